//! What a detector finds.

/// One thing seen, in pixels of the source frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    /// Class, counted from 0.
    pub class_id: u32,
    /// Confidence, 0 to 1.
    pub score: f32,
    /// x1, y1, x2, y2, inside the frame; `None` from a classifier.
    pub box_in_source: Option<[f32; 4]>,
    /// x, y and score of each point, in the source; empty where the network has none.
    pub keypoints: Vec<Keypoint>,
}

/// A point of a detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keypoint {
    /// In pixels of the source frame; may lie outside, where the network guesses what the frame cuts off.
    pub x: f32,
    /// In pixels of the source frame.
    pub y: f32,
    /// 0 to 1; `None` where the network does not tell.
    pub score: Option<f32>,
}
