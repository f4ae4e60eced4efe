//! Names the MQTT topics: see docs/mqtt.md.

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

    pub fn detections(&self, camera: &str) -> String {
        self.of(camera, "detections")
    }

    /// Returns the topic of a camera's state; `+` stands for every camera.
    pub fn state(&self, camera: &str) -> String {
        self.of(camera, "state")
    }

    pub fn snapshot(&self, camera: &str) -> String {
        self.of(camera, "snapshot")
    }

    /// Returns the camera whose state has this topic.
    pub fn camera_of_state<'t>(&self, topic: &'t str) -> Option<&'t str> {
        topic.strip_prefix(&self.base)?.strip_prefix("/cameras/")?.strip_suffix("/state")
    }

    fn of(&self, camera: &str, what: &str) -> String {
        format!("{}/cameras/{camera}/{what}", self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_tells_its_camera() {
        let topics = Topics::new("a/b", "gate");
        assert_eq!(topics.camera_of_state(&topics.state("door")), Some("door"));
        assert_eq!(topics.camera_of_state("a/b/gate7/cameras/door/state"), None);
        assert_eq!(topics.camera_of_state(&topics.detections("door")), None);
    }
}
