//! Drops the detections in a camera's ignored areas.

use std::sync::Arc;

use visiond_engine::detector::{Detection, class_label};
use visiond_frames::frame::FrameFacts;
use visiond_kernels::polygon::Polygon;

/// An area of a camera's frame whose detections are dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct IgnoredArea {
    /// The area.
    pub polygon: Polygon,
    /// The labels that are dropped; empty: all.
    pub classes: Vec<String>,
}

/// Removes the detections whose anchor, the middle of the box's lower edge, is in one of `areas`. A detection that is
/// no object stays: without a box, or a class of a map of the frame.
pub fn drop_ignored(areas: &[IgnoredArea], frame: &FrameFacts, labels: &[Arc<str>], detections: &mut Vec<Detection>) {
    if areas.is_empty() {
        return;
    }
    let size = [frame.width, frame.height].map(f64::from);
    detections.retain(|detection| {
        let bounds = detection.box_in_source.filter(|_| detection.fraction.is_none());
        let Some([left, _, right, bottom]) = bounds.map(|corners| corners.map(f64::from)) else { return true };
        // The lower edge of a box that ends at the frame's is on the edge of any polygon there: the last pixel decides.
        let anchor = [(left + right) / 2.0 / size[0], bottom.min(size[1] - 0.5) / size[1]];
        let has_class = |area: &IgnoredArea| {
            let label = || class_label(labels, detection.class_id);
            area.classes.is_empty() || area.classes.iter().any(|class| **class == *label())
        };
        !areas.iter().any(|area| area.polygon.contains(anchor) && has_class(area))
    });
}
