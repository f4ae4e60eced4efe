//! Drops the detections in a camera's ignored areas.

use std::sync::Arc;

use visiond_engine::detector::{Detection, class_label};
use visiond_kernels::polygon::Polygon;
use visiond_kernels::view::Orientation;

/// An area of a camera's frame whose detections are dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct IgnoredArea {
    /// The area.
    pub polygon: Polygon,
    /// The labels that are dropped; empty: all.
    pub classes: Vec<String>,
}

/// Removes the detections whose anchor, the middle of the box's lower edge as the model sees it, is in one of `areas`. A detection that
/// is no object stays: without a box, or a class of a map of the frame. `frame` is the frame's width and height.
pub fn drop_ignored(
    areas: &[IgnoredArea],
    seen: Orientation,
    frame: (u32, u32),
    labels: &[Arc<str>],
    detections: &mut Vec<Detection>,
) {
    if areas.is_empty() {
        return;
    }
    let size = [frame.0, frame.1].map(f64::from);
    detections.retain(|detection| {
        let bounds = detection.box_in_source.filter(|_| detection.fraction.is_none());
        let Some(bounds) = bounds else { return true };
        let anchor = anchor(bounds.map(f64::from), size, seen);
        let has_class = |area: &IgnoredArea| {
            let label = || class_label(labels, detection.class_id);
            area.classes.is_empty() || area.classes.iter().any(|class| **class == *label())
        };
        !areas.iter().any(|area| area.polygon.contains(anchor) && has_class(area))
    });
}

/// Returns the middle of the edge of a box that is its lower one for the model, as fractions of the frame.
fn anchor(bounds: [f64; 4], size: [f64; 2], seen: Orientation) -> [f64; 2] {
    let [left, top, right, bottom] = bounds;
    // Rows of the picture are columns of the frame.
    let (edges, axis) = if seen.transposed { ([left, right], 0) } else { ([top, bottom], 1) };
    let edge = if seen.mirrored[1] { edges[0] } else { edges[1] };
    let mut anchor = [(left + right) / 2.0, (top + bottom) / 2.0];
    // An edge of a box that ends at the frame's is on the edge of any polygon there: the last pixel decides.
    anchor[axis] = edge.clamp(0.5, size[axis] - 0.5);
    [anchor[0] / size[0], anchor[1] / size[1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_anchor_is_below_the_object_however_the_camera_hangs() {
        let bounds = [100.0, 200.0, 140.0, 300.0];
        let at = |turns: u32| {
            let [x, y] = anchor(bounds, [640.0, 480.0], Orientation::UPRIGHT.turned(turns));
            [(x * 640.0).round(), (y * 480.0).round()]
        };
        // Turned by 90 degrees clockwise, the frame's right edge is below.
        assert_eq!([at(0), at(1), at(2), at(3)], [[120.0, 300.0], [140.0, 250.0], [120.0, 200.0], [100.0, 250.0]]);
    }
}
