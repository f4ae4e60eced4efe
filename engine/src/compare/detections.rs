//! What was seen, thing by thing.
//!
//! Each thing that the first network sees, best first, takes the thing of its class in the second's that overlaps it most, from
//! an IoU of 0.5. A thing counts when one of the two scores reaches the threshold; so that a score that falls just
//! below it in one of the two is a difference of scores and not a thing missing, both are to be asked for lower scores too.

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

    /// Missing and extra things, as a part of all.
    pub fn unmatched_share(&self) -> f64 {
        let unmatched = self.missing + self.extra;
        unmatched as f64 / (self.matched + unmatched).max(1) as f64
    }

    fn add_pair(&mut self, picture: usize, a: &Detection, b: &Detection) {
        self.matched += 1;
        if let (Some(a), Some(b)) = (a.box_in_source, b.box_in_source) {
            let overlap = f64::from(iou(a, b));
            self.sum_iou += overlap;
            self.boxes += 1;
            Worst::keep(&mut self.min_iou, overlap, picture, |new, old| new < old);
        }
        let difference = f64::from((a.score - b.score).abs());
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

/// How far two networks agree on what is on pictures.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    /// Of all classes.
    pub all: ClassAgreement,
    /// By class.
    pub classes: BTreeMap<u32, ClassAgreement>,
    threshold: f32,
    taken: Vec<bool>,
}

impl Agreement {
    /// Of things that score `threshold` or more in one of the two.
    pub fn new(threshold: f32) -> Self {
        Self { all: ClassAgreement::default(), classes: BTreeMap::new(), threshold, taken: Vec::new() }
    }

    /// Adds what both networks see on a picture, each best first.
    pub fn add(&mut self, picture: usize, first: &[Detection], second: &[Detection]) {
        let Self { all, classes, threshold, taken } = self;
        taken.clear();
        taken.resize(second.len(), false);
        for a in first {
            match partner(a, second, taken) {
                Some(index) => {
                    taken[index] = true;
                    let b = &second[index];
                    if a.score.max(b.score) >= *threshold {
                        all.add_pair(picture, a, b);
                        classes.entry(a.class_id).or_default().add_pair(picture, a, b);
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
