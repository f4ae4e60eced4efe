//! What a detector finds.

/// One detected object, in pixels of the source frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    /// The class, counted from 0.
    pub class_id: u32,
    /// The confidence, 0 to 1.
    pub score: f32,
    /// The box x1, y1, x2, y2, inside the frame; `None` from a classifier.
    pub box_in_source: Option<[f32; 4]>,
    /// The keypoints in the source frame; empty if the model has none.
    pub keypoints: Vec<Keypoint>,
}

/// A keypoint of a detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keypoint {
    /// In pixels of the source frame; may be outside it, if the model guesses what the frame cuts off.
    pub x: f32,
    /// In pixels of the source frame.
    pub y: f32,
    /// The confidence, 0 to 1; `None` if the model does not return one.
    pub score: Option<f32>,
}
