//! Non-maximum suppression: of boxes that show the same thing, the best stays.
//!
//! Greedy, as in torchvision and OpenCV: candidates in order of falling score (equal scores: lower index first); one that
//! overlaps a kept one by more than the threshold goes. Boxes are (x1, y1, x2, y2) in any common unit.

/// A box with its score and class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// x1, y1, x2, y2 in pixels of the network's input.
    pub box_in_input: [f32; 4],
    /// Confidence, 0 to 1.
    pub score: f32,
    /// Class, counted from 0.
    pub class_id: u32,
    /// The row of the raw output that it came from, to find masks and keypoints again.
    pub row: u32,
}

/// How to suppress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NmsOptions {
    /// Boxes whose IoU with a better one is greater than this go; 0 to 1.
    pub iou_threshold: f32,
    /// Candidates below this score are not looked at.
    pub score_threshold: f32,
    /// At most so many stay.
    pub max_detections: usize,
    /// Whether boxes of different classes suppress each other.
    pub class_agnostic: bool,
}

/// Intersection over union of two boxes; 0 when they do not meet or either is empty.
pub fn iou(a: [f32; 4], b: [f32; 4]) -> f32 {
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let shared = width * height;
    let area = |r: [f32; 4]| (r[2] - r[0]).max(0.0) * (r[3] - r[1]).max(0.0);
    let union = area(a) + area(b) - shared;
    if union > 0.0 { shared / union } else { 0.0 }
}
