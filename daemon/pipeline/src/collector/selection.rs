//! Which detections of a model on a camera are kept.

use std::sync::Arc;

use visiond_engine::detector::{Detection, class_label};

/// What a camera keeps of a model's detections.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// The labels that are kept; empty: all.
    pub classes: Vec<String>,
    /// The least score.
    pub score_threshold: Option<f64>,
    /// The least length of a box's longer side, in pixels of the frame.
    pub min_size: Option<u32>,
    /// The greatest length of a box's longer side.
    pub max_size: Option<u32>,
}

impl Selection {
    /// Removes the other detections, whose order stays. Costs a look at each detection, and nothing without settings.
    pub fn keep_wanted(&self, detections: &mut Vec<Detection>, labels: &[Arc<str>]) {
        if *self != Self::default() {
            detections.retain(|detection| self.keeps(detection, labels));
        }
    }

    fn keeps(&self, detection: &Detection, labels: &[Arc<str>]) -> bool {
        // The bound of the scores of a message, so that a score that is printed as the threshold is kept.
        let has_score = self.score_threshold.is_none_or(|least| detection.score >= least as f32);
        let fits = longer_side(detection).is_none_or(|side| {
            self.min_size.is_none_or(|least| side >= least as f32)
                && self.max_size.is_none_or(|most| side <= most as f32)
        });
        has_score && fits && self.has_class(detection, labels)
    }

    fn has_class(&self, detection: &Detection, labels: &[Arc<str>]) -> bool {
        if self.classes.is_empty() {
            return true;
        }
        let label = class_label(labels, detection.class_id);
        self.classes.iter().any(|class| **class == *label)
    }
}

/// Returns the length of the longer side of a detection's box, of the oriented one if there is one; `None` without a box.
fn longer_side(detection: &Detection) -> Option<f32> {
    if let Some(oriented) = &detection.oriented {
        return Some(oriented.size[0].max(oriented.size[1]));
    }
    let [x1, y1, x2, y2] = detection.box_in_source?;
    Some((x2 - x1).max(y2 - y1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detection_is_kept_by_its_label_its_score_and_the_longer_side_of_its_box() {
        let labels: Vec<Arc<str>> = vec!["car".into(), "plate".into()];
        let detection = |class_id, score, sides: Option<[f32; 2]>| Detection {
            class_id,
            score,
            box_in_source: sides.map(|[width, height]| [5.0, 5.0, 5.0 + width, 5.0 + height]),
            ..Detection::default()
        };
        let all = [
            detection(0, 0.9, Some([40.0, 20.0])),
            detection(1, 0.9, Some([10.0, 30.0])),
            detection(1, 0.5, Some([10.0, 31.0])),
            detection(7, 0.4, None),
        ];
        let kept = |selection: &Selection| {
            let mut found = all.to_vec();
            selection.keep_wanted(&mut found, &labels);
            found.iter().map(|kept| all.iter().position(|one| one == kept).unwrap_or(9)).collect::<Vec<_>>()
        };
        let none = Selection::default();
        assert_eq!(kept(&none), [0, 1, 2, 3]);
        assert_eq!(kept(&Selection { classes: vec!["plate".into(), "7".into()], ..none.clone() }), [1, 2, 3]);
        assert_eq!(kept(&Selection { score_threshold: Some(0.5), ..none.clone() }), [0, 1, 2]);
        assert_eq!(kept(&Selection { min_size: Some(31), ..none.clone() }), [0, 2, 3], "what has no box has no size");
        assert_eq!(kept(&Selection { max_size: Some(30), ..none.clone() }), [1, 3]);
        assert_eq!(kept(&Selection { min_size: Some(31), max_size: Some(39), ..none }), [2, 3]);
    }
}
