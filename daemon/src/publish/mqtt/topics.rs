//! The topics, see docs/mqtt.md.

/// The topics of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics {
    base: String,
}

impl Topics {
    /// All begin with PREFIX/DEVICE.
    pub fn new(prefix: &str, device: &str) -> Self {
        Self { base: format!("{prefix}/{device}") }
    }

    /// `online` or `offline`.
    pub fn availability(&self) -> String {
        format!("{}/availability", self.base)
    }

    /// A camera's messages.
    pub fn detections(&self, camera: &str) -> String {
        self.of(camera, "detections")
    }

    /// How a camera is.
    pub fn state(&self, camera: &str) -> String {
        self.of(camera, "state")
    }

    /// A camera's picture.
    pub fn snapshot(&self, camera: &str) -> String {
        self.of(camera, "snapshot")
    }

    fn of(&self, camera: &str, what: &str) -> String {
        format!("{}/cameras/{camera}/{what}", self.base)
    }
}
