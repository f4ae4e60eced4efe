//! Names the MQTT topics: see docs/mqtt.md.

// The last levels of a camera's topics.
pub const STATE: &str = "state";
pub const SNAPSHOT: &str = "snapshot";
pub const DETECTIONS: &str = "detections";

// What a command sets, and `reset`.
pub const ENABLED: &str = "enabled";
pub const SCORE_THRESHOLD: &str = "score_threshold";
pub const MIN_SCORE: &str = "min_score";
pub const RESET: &str = "reset";

/// The end of the topics of commands.
pub const SET: &str = "/set";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics {
    base: String,
}

impl Topics {
    /// Creates the topics below PREFIX/DEVICE.
    pub fn new(prefix: &str, device: &str) -> Self {
        Self { base: format!("{prefix}/{device}") }
    }

    /// Returns the topic of the device's availability, `online` or `offline`.
    pub fn availability(&self) -> String {
        format!("{}/availability", self.base)
    }

    /// Returns the filter of all these topics.
    pub fn all(&self) -> String {
        format!("{}/#", self.base)
    }

    /// Returns the topic of a camera's messages; `camera` may name one of its further models after a slash.
    pub fn detections(&self, camera: &str) -> String {
        self.of(camera, DETECTIONS)
    }

    /// Returns the topic of a camera's events.
    pub fn events(&self, camera: &str) -> String {
        self.of(camera, "events")
    }

    /// Returns the topic of a camera's state; `+` matches every camera.
    pub fn state(&self, camera: &str) -> String {
        self.of(camera, STATE)
    }

    pub fn snapshot(&self, camera: &str) -> String {
        self.of(camera, SNAPSHOT)
    }

    /// Returns the camera of this topic, with the model if it names one, and which of its topics it is.
    pub fn camera_of<'t>(&self, topic: &'t str) -> Option<(&'t str, &'t str)> {
        let (camera, what) = topic.strip_prefix(&self.base)?.strip_prefix("/cameras/")?.rsplit_once('/')?;
        [STATE, SNAPSHOT, DETECTIONS].contains(&what).then_some((camera, what))
    }

    /// Returns the filters of the topics of all commands.
    pub fn commands(&self) -> [String; 2] {
        [self.command("+", "+"), self.rule_command("+", "+", "+")]
    }

    /// Returns the topic of a command to a camera.
    pub fn command(&self, camera: &str, key: &str) -> String {
        self.of(camera, &format!("{key}{SET}"))
    }

    /// Returns the topic of a command to a line or zone.
    pub fn rule_command(&self, camera: &str, rule: &str, key: &str) -> String {
        self.of(camera, &format!("rules/{rule}/{key}{SET}"))
    }

    /// Returns what a topic of a command is about.
    pub fn command_of<'t>(&self, topic: &'t str) -> Option<CommandTopic<'t>> {
        let levels = topic.strip_prefix(&self.base)?.strip_prefix("/cameras/")?.strip_suffix(SET)?;
        let mut levels = levels.split('/');
        let (camera, second) = (levels.next()?, levels.next()?);
        match (second, levels.next(), levels.next(), levels.next()) {
            (key, None, ..) => Some(CommandTopic { camera, rule: None, key }),
            ("rules", Some(rule), Some(key), None) => Some(CommandTopic { camera, rule: Some(rule), key }),
            _ => None,
        }
    }

    fn of(&self, camera: &str, what: &str) -> String {
        format!("{}/cameras/{camera}/{what}", self.base)
    }
}

/// What a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandTopic<'t> {
    pub camera: &'t str,
    /// The line or zone.
    pub rule: Option<&'t str>,
    /// What to set.
    pub key: &'t str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_tells_its_camera() {
        let topics = Topics::new("a/b", "gate");
        assert_eq!(topics.camera_of(&topics.state("door")), Some(("door", STATE)));
        assert_eq!(topics.camera_of(&topics.detections("door")), Some(("door", DETECTIONS)));
        assert_eq!(topics.camera_of(&topics.detections("door/plates")), Some(("door/plates", DETECTIONS)));
        assert_eq!(topics.camera_of("a/b/gate7/cameras/door/state"), None);
        assert_eq!(topics.camera_of("a/b/gate/cameras/door/other"), None);
    }
}
