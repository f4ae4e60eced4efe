//! Compares the detections of two models, object by object.
//!
//! Each detection of the first model, best first, is matched with the second model's detection of its class that overlaps it
//! most, from an IoU of 0.5. The IoU of oriented boxes is that of the rectangles. A detection counts if one of the two scores
//! reaches the threshold. Request lower scores from both models as well: then a score that falls just below the threshold in one
//! of them is a score difference, not a missing object.
//!
//! If two boxes of one object have nearly the same score, NMS keeps one of them, and the smallest rounding may decide which.
//! Such a pair overlaps little although nothing is wrong. So pairs outside the limits are counted, and their share is the
//! criterion.

use std::collections::BTreeMap;

use visiond_kernels::nms::iou;
use visiond_kernels::oriented::oriented_iou;

use super::oks::oks;
use crate::card::has_coco_keypoints;
use crate::detector::Detection;

/// Boxes that overlap less show different objects.
const MATCH_IOU: f64 = 0.5;

/// The worst value, and the image where it occurs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worst {
    /// The lowest for an IoU, the largest for a difference.
    pub value: f64,
    /// The index of the image.
    pub picture: usize,
}

impl Worst {
    pub(super) fn keep(worst: &mut Option<Self>, value: f64, picture: usize, is_worse: impl Fn(f64, f64) -> bool) {
        if worst.is_none_or(|worst| is_worse(value, worst.value)) {
            *worst = Some(Self { value, picture });
        }
    }
}

/// How far two models agree on the objects of one class, or of all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClassAgreement {
    /// Objects that both detect.
    pub matched: u64,
    /// Matched objects whose boxes, scores or keypoints differ by more than the limits.
    pub outside: u64,
    /// Objects that only the first detects.
    pub missing: u64,
    /// Objects that only the second detects.
    pub extra: u64,
    /// The first image with a missing or extra object.
    pub unmatched_picture: Option<usize>,
    /// The smallest IoU of a matched pair; `None` without boxes.
    pub min_iou: Option<Worst>,
    /// The smallest IoU of the masks of a matched pair; `None` without masks.
    pub min_mask_iou: Option<Worst>,
    /// The largest difference of a matched pair's scores.
    pub max_score_difference: Option<Worst>,
    /// The largest distance between the keypoints of a matched pair, in pixels of the image; `None` without keypoints.
    pub max_keypoint_distance: Option<Worst>,
    /// The smallest OKS of a matched pair; `None` without keypoints or boxes.
    pub min_oks: Option<Worst>,
    sum_iou: f64,
    boxes: u64,
    sum_oks: f64,
    poses: u64,
}

impl ClassAgreement {
    /// Returns the mean IoU of the matched pairs; `None` without boxes.
    pub fn mean_iou(&self) -> Option<f64> {
        (self.boxes > 0).then(|| self.sum_iou / self.boxes as f64)
    }

    /// Returns the mean OKS of the matched pairs; `None` without keypoints.
    pub fn mean_oks(&self) -> Option<f64> {
        (self.poses > 0).then(|| self.sum_oks / self.poses as f64)
    }

    /// Returns the number of objects that either model detects.
    pub fn things(&self) -> u64 {
        self.matched + self.missing + self.extra
    }

    /// Returns the share of objects that are missing, extra, or outside the limits.
    pub fn outside_share(&self) -> f64 {
        (self.outside + self.missing + self.extra) as f64 / self.things().max(1) as f64
    }

    fn add_pair(&mut self, picture: usize, a: &Detection, b: &Detection, limits: &MatchLimits) {
        self.matched += 1;
        let mut inside = true;
        if let Some(overlap) = overlap(a, b) {
            self.sum_iou += overlap;
            self.boxes += 1;
            inside = overlap >= limits.min_iou;
            Worst::keep(&mut self.min_iou, overlap, picture, |new, old| new < old);
        }
        if let (Some(a), Some(b)) = (&a.mask, &b.mask) {
            let overlap = a.iou(b);
            inside &= overlap >= limits.min_iou;
            Worst::keep(&mut self.min_mask_iou, overlap, picture, |new, old| new < old);
        }
        if let Some(similarity) = oks(a, b, limits.has_coco_points) {
            self.sum_oks += similarity;
            self.poses += 1;
            inside &= similarity >= limits.min_oks;
            Worst::keep(&mut self.min_oks, similarity, picture, |new, old| new < old);
        }
        let difference = f64::from((a.score - b.score).abs());
        self.outside += u64::from(!inside || difference > limits.max_score_difference);
        Worst::keep(&mut self.max_score_difference, difference, picture, |new, old| new > old);
        for (a, b) in a.keypoints.iter().zip(&b.keypoints) {
            let distance = f64::from((a.x - b.x).hypot(a.y - b.y));
            Worst::keep(&mut self.max_keypoint_distance, distance, picture, |new, old| new > old);
        }
    }

    fn add_unmatched(&mut self, picture: usize, of_first: bool) {
        *(if of_first { &mut self.missing } else { &mut self.extra }) += 1;
        self.unmatched_picture.get_or_insert(picture);
    }
}

/// How much a matched pair may differ.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MatchLimits {
    /// The minimum IoU.
    pub min_iou: f64,
    /// The minimum OKS of keypoints.
    pub min_oks: f64,
    /// Whether the keypoints are COCO's, so that OKS has COCO's sigmas.
    pub has_coco_points: bool,
    /// The maximum difference of scores.
    pub max_score_difference: f64,
    /// An object that only one model detects counts only if its score is this far above the threshold. The other model may
    /// have rounded its score to just below the threshold and dropped the object.
    pub unmatched_margin: f64,
}

/// How far two models agree on the objects in images.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    /// For all classes together.
    pub all: ClassAgreement,
    /// For each class.
    pub classes: BTreeMap<u32, ClassAgreement>,
    /// Of the first model and of the second.
    thresholds: [f32; 2],
    limits: MatchLimits,
    taken: Vec<bool>,
}

impl Agreement {
    /// Compares objects that score at least `threshold` in one of the two.
    pub fn new(threshold: f32) -> Self {
        Self::within(threshold, MatchLimits { max_score_difference: f64::INFINITY, ..MatchLimits::default() })
    }

    /// Does the same and counts the pairs outside `limits`.
    pub fn within(threshold: f32, limits: MatchLimits) -> Self {
        let thresholds = [threshold; 2];
        Self { all: ClassAgreement::default(), classes: BTreeMap::new(), thresholds, limits, taken: Vec::new() }
    }

    /// Counts every object of the first model, whatever it scores: another program has chosen them.
    #[must_use]
    pub fn with_all_of_first(mut self) -> Self {
        self.thresholds[0] = 0.0;
        self
    }

    /// Measures keypoints with COCO's sigmas if `names` are those of COCO's points.
    pub fn with_keypoints(mut self, names: &[impl AsRef<str>]) -> Self {
        self.limits.has_coco_points = has_coco_keypoints(names);
        self
    }

    /// Adds what both models detect in an image, each best first.
    pub fn add(&mut self, picture: usize, first: &[Detection], second: &[Detection]) {
        let Self { all, classes, thresholds, limits, taken } = self;
        taken.clear();
        taken.resize(second.len(), false);
        let counts_alone =
            |d: &Detection, threshold: f32| f64::from(d.score) >= f64::from(threshold) + limits.unmatched_margin;
        for a in first {
            match partner(a, second, taken) {
                Some(index) => {
                    taken[index] = true;
                    let b = &second[index];
                    if a.score >= thresholds[0] || b.score >= thresholds[1] {
                        all.add_pair(picture, a, b, limits);
                        classes.entry(a.class_id).or_default().add_pair(picture, a, b, limits);
                    }
                }
                None if counts_alone(a, thresholds[0]) => {
                    all.add_unmatched(picture, true);
                    classes.entry(a.class_id).or_default().add_unmatched(picture, true);
                }
                None => {}
            }
        }
        for (b, _) in second.iter().zip(&*taken).filter(|(b, taken)| !**taken && counts_alone(b, thresholds[1])) {
            all.add_unmatched(picture, false);
            classes.entry(b.class_id).or_default().add_unmatched(picture, false);
        }
    }
}

/// Returns the IoU of two detections: of their oriented boxes if both have one, otherwise of the upright ones; `None` without
/// boxes.
pub fn overlap(a: &Detection, b: &Detection) -> Option<f64> {
    match (a.oriented, b.oriented) {
        (Some(a), Some(b)) => Some(oriented_iou(&a, &b)),
        _ => Some(f64::from(iou(a.box_in_source?, b.box_in_source?))),
    }
}

/// Returns the unmatched detection of `a`'s class that overlaps it most; without boxes, any unmatched one of its class.
fn partner(a: &Detection, others: &[Detection], taken: &[bool]) -> Option<usize> {
    let free = others.iter().enumerate().filter(|(index, b)| !taken[*index] && b.class_id == a.class_id);
    let likeness = |b: &Detection| match (a.box_in_source, b.box_in_source) {
        (None, None) => 1.0,
        _ => overlap(a, b).unwrap_or(0.0),
    };
    free.map(|(index, b)| (index, likeness(b)))
        .filter(|(_, overlap)| *overlap >= MATCH_IOU)
        .max_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)))
        .map(|(index, _)| index)
}
