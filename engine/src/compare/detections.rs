//! What was seen, thing by thing.
//!
//! Each thing that the first network sees, best first, takes the thing of its class in the second's that overlaps it most, from
//! an IoU of 0.5. A thing counts when one of the two scores reaches the threshold; so that a score that falls just
//! below it in one of the two is a difference of scores and not a thing missing, both are to be asked for lower scores too.
//!
//! Of two boxes of one thing whose scores are nearly the same, suppression keeps one: the least rounding may decide which. Such a
//! pair then overlaps little though nothing is wrong, so pairs outside of the limits are counted, to be judged by their share.

use std::collections::BTreeMap;

use visiond_kernels::nms::iou;

use crate::detector::Detection;

/// Boxes that overlap less are different things.
const MATCH_IOU: f32 = 0.5;

/// A value at its worst, and the picture where it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worst {
    /// The value.
    pub value: f64,
    /// The picture.
    pub picture: usize,
}

impl Worst {
    fn keep(worst: &mut Option<Self>, value: f64, picture: usize, is_worse: impl Fn(f64, f64) -> bool) {
        if worst.is_none_or(|worst| is_worse(value, worst.value)) {
            *worst = Some(Self { value, picture });
        }
    }
}

/// How far two networks agree on things of one class, or of all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClassAgreement {
    /// Things that both see.
    pub matched: u64,
    /// Of them, those whose boxes or scores differ by more than the limits allow.
    pub outside: u64,
    /// Things that the first sees and the second does not.
    pub missing: u64,
    /// Things that the second sees and the first does not.
    pub extra: u64,
    /// The first picture with a missing or an extra thing.
    pub unmatched_picture: Option<usize>,
    /// The least overlap of a matched pair; `None` without boxes.
    pub min_iou: Option<Worst>,
    /// The greatest difference of a matched pair's scores.
    pub max_score_difference: Option<Worst>,
    /// The greatest distance between the keypoints of a matched pair, in pixels of the picture; `None` without any.
    pub max_keypoint_distance: Option<Worst>,
    sum_iou: f64,
    boxes: u64,
}

impl ClassAgreement {
    /// The mean overlap of matched pairs; `None` without boxes.
    pub fn mean_iou(&self) -> Option<f64> {
        (self.boxes > 0).then(|| self.sum_iou / self.boxes as f64)
    }

    /// Things that one of the two sees.
    pub fn things(&self) -> u64 {
        self.matched + self.missing + self.extra
    }

    /// Things outside of the limits, missing and extra ones among them, as a part of all.
    pub fn outside_share(&self) -> f64 {
        (self.outside + self.missing + self.extra) as f64 / self.things().max(1) as f64
    }

    fn add_pair(&mut self, picture: usize, a: &Detection, b: &Detection, limits: &Limits) {
        self.matched += 1;
        let mut inside = true;
        if let (Some(a), Some(b)) = (a.box_in_source, b.box_in_source) {
            let overlap = f64::from(iou(a, b));
            self.sum_iou += overlap;
            self.boxes += 1;
            inside = overlap >= limits.min_iou;
            Worst::keep(&mut self.min_iou, overlap, picture, |new, old| new < old);
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

/// What a pair of boxes may differ by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Overlap at least.
    pub min_iou: f64,
    /// Difference of scores at most.
    pub max_score_difference: f64,
}

/// How far two networks agree on what is on pictures.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    /// Of all classes.
    pub all: ClassAgreement,
    /// By class.
    pub classes: BTreeMap<u32, ClassAgreement>,
    threshold: f32,
    limits: Limits,
    taken: Vec<bool>,
}

impl Agreement {
    /// Of things that score `threshold` or more in one of the two.
    pub fn new(threshold: f32) -> Self {
        Self::within(threshold, Limits { min_iou: 0.0, max_score_difference: f64::INFINITY })
    }

    /// The same, with pairs counted that are outside of `limits`.
    pub fn within(threshold: f32, limits: Limits) -> Self {
        Self { all: ClassAgreement::default(), classes: BTreeMap::new(), threshold, limits, taken: Vec::new() }
    }

    /// Adds what both networks see on a picture, each best first.
    pub fn add(&mut self, picture: usize, first: &[Detection], second: &[Detection]) {
        let Self { all, classes, threshold, limits, taken } = self;
        taken.clear();
        taken.resize(second.len(), false);
        for a in first {
            match partner(a, second, taken) {
                Some(index) => {
                    taken[index] = true;
                    let b = &second[index];
                    if a.score.max(b.score) >= *threshold {
                        all.add_pair(picture, a, b, limits);
                        classes.entry(a.class_id).or_default().add_pair(picture, a, b, limits);
                    }
                }
                None if a.score >= *threshold => {
                    all.add_unmatched(picture, true);
                    classes.entry(a.class_id).or_default().add_unmatched(picture, true);
                }
                None => {}
            }
        }
        for (b, _) in second.iter().zip(&*taken).filter(|(b, taken)| !**taken && b.score >= *threshold) {
            all.add_unmatched(picture, false);
            classes.entry(b.class_id).or_default().add_unmatched(picture, false);
        }
    }
}

/// The free thing of `a`'s class that overlaps it most; without boxes, the free one of its class.
fn partner(a: &Detection, others: &[Detection], taken: &[bool]) -> Option<usize> {
    let free = others.iter().enumerate().filter(|(index, b)| !taken[*index] && b.class_id == a.class_id);
    let overlap = |b: &Detection| match (a.box_in_source, b.box_in_source) {
        (Some(a), Some(b)) => iou(a, b),
        (None, None) => 1.0,
        _ => 0.0,
    };
    free.map(|(index, b)| (index, overlap(b)))
        .filter(|(_, overlap)| *overlap >= MATCH_IOU)
        .max_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i)))
        .map(|(index, _)| index)
}
