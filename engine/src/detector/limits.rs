//! What a user asks for beyond the card.

/// What a user wants other than the card says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// What scores less is left out; `None` for the card's.
    pub score_threshold: Option<f32>,
    /// Overlap above which the lesser box goes; `None` for the card's.
    pub iou_threshold: Option<f32>,
    /// At most so many detections a frame; `None` for the card's.
    pub max_detections: Option<usize>,
    /// Classes to look for, by name; all if empty. A class without a name goes by its number.
    pub classes: Vec<String>,
    /// Frames of one run, where the network leaves that open; 0 is 1.
    pub max_batch: usize,
    /// Whether [`Detector::raw_output`] is wanted: the network is then run by way of the host's memory.
    pub raw_outputs: bool,
}
