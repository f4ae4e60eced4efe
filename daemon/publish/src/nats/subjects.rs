//! The subjects of a sink's messages.

use std::collections::HashMap;
use std::sync::Arc;

use async_nats::Subject;

/// The subject of each camera, made once.
#[derive(Debug)]
pub struct Subjects {
    /// Contains {camera}.
    template: String,
    /// A wildcard for every device and camera.
    pub all: String,
    cameras: HashMap<Arc<str>, Subject>,
}

impl Subjects {
    /// Creates the subjects from the configured `template`. Names contain only characters that a subject may have.
    pub fn new(template: &str, device: &str) -> Self {
        let wild = |word: &str| if word.contains(['{', '}']) { "*".to_owned() } else { word.to_owned() };
        Self {
            template: template.replace("{device}", device),
            all: template.split('.').map(wild).collect::<Vec<_>>().join("."),
            cameras: HashMap::new(),
        }
    }

    /// Returns the subject of a camera's messages.
    pub fn of(&mut self, camera: &Arc<str>) -> Subject {
        let subject = || Subject::from(self.template.replace("{camera}", camera));
        self.cameras.entry(Arc::clone(camera)).or_insert_with(subject).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_their_places_and_a_stream_takes_them_all() {
        let mut subjects = Subjects::new("visiond.{device}.cam-{camera}.detections", "gate-7");
        assert_eq!(subjects.of(&"door".into()).as_str(), "visiond.gate-7.cam-door.detections");
        assert_eq!(subjects.of(&"yard".into()).as_str(), "visiond.gate-7.cam-yard.detections");
        assert_eq!(subjects.of(&"door".into()).as_str(), "visiond.gate-7.cam-door.detections");
        assert_eq!(subjects.all, "visiond.*.*.detections");
        assert_eq!(Subjects::new("all", "gate-7").all, "all");
    }
}
