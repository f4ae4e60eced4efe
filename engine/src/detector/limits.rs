//! Settings of the user that override the card.

/// Settings of the user that override the card.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Minimum score; `None` uses the card's.
    pub score_threshold: Option<f32>,
    /// IoU above which NMS removes the lower-scoring box; `None` uses the card's.
    pub iou_threshold: Option<f32>,
    /// Maximum number of detections per frame; `None` uses the card's.
    pub max_detections: Option<usize>,
    /// Names of the classes to detect; all if empty. Use the number of a class that has no name.
    pub classes: Vec<String>,
    /// Batch size, if the model leaves it open; 0 is 1.
    pub max_batch: usize,
    /// Whether [`Detector::raw_output`](super::Detector::raw_output) is needed. The model then runs through host memory.
    pub raw_outputs: bool,
}
