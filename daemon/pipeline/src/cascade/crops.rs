//! Which detections have crops, and where these are.

use std::sync::Arc;
use std::time::Duration;

use visiond_engine::detector::{Detection, class_label};

/// Which crops a model on detections gets.
#[derive(Debug, Clone, PartialEq)]
pub struct CropSettings {
    /// The labels of detections that have crops; empty: all.
    pub classes: Vec<String>,
    /// The least length of a box's longer side, in pixels of the frame.
    pub min_size: Option<u32>,
    /// How far a crop extends beyond its box on each side, as a part of the box's width and height.
    pub margin: f64,
    /// Whether the shorter sides are extended until the crop is square.
    pub square: bool,
    /// The most crops of a frame.
    pub max_crops: usize,
    /// How long the results of a track stay valid; `None` for the default of the model's output.
    pub refresh: Option<Duration>,
}

impl CropSettings {
    /// Returns the part of the frame (x, y, width, height) that the model sees of a detection: inside of `area`, with all pixels
    /// that the extended box touches. `None` if the detection has no box, or the settings do not ask for it.
    pub(super) fn crop_of(&self, detection: &Detection, labels: &[Arc<str>], area: [u32; 4]) -> Option<[u32; 4]> {
        // A class of a map of the frame is no object.
        let corners = detection.box_in_source.filter(|_| detection.fraction.is_none())?;
        let [x1, y1, x2, y2] = corners.map(f64::from);
        let (width, height) = (x2 - x1, y2 - y1);
        let is_large = self.min_size.is_none_or(|least| width.max(height) >= f64::from(least));
        let has_class = || {
            let label = class_label(labels, detection.class_id);
            self.classes.is_empty() || self.classes.iter().any(|class| **class == *label)
        };
        // NaN is not above 0.
        if !(is_large && width > 0.0 && height > 0.0 && has_class()) {
            return None;
        }
        let (mut across, mut down) = (width * (1.0 + 2.0 * self.margin), height * (1.0 + 2.0 * self.margin));
        if self.square {
            (across, down) = (across.max(down), across.max(down));
        }
        let span = |middle: f64, length: f64, from: u32, side: u32| {
            let (low, high) = (f64::from(from), f64::from(from + side));
            let first = (middle - length / 2.0).floor().clamp(low, high) as u32;
            let end = (middle + length / 2.0).ceil().clamp(low, high) as u32;
            (end > first).then_some((first, end - first))
        };
        let (x, width) = span((x1 + x2) / 2.0, across, area[0], area[2])?;
        let (y, height) = span((y1 + y2) / 2.0, down, area[1], area[3])?;
        Some([x, y, width, height])
    }
}
