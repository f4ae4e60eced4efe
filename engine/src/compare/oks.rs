//! The similarity of two detections' keypoints, as COCO measures it (object keypoint similarity, OKS).
//!
//! The mean over the points of `exp(-d² / (2 * area * (2 * sigma)²))`: d is the distance between a point's two positions,
//! `area` the object's area, and `sigma` how much annotators differ on that point, as a fraction of the object's size.
//! Source: `computeOks` in pycocotools `cocoeval.py`.
//!
//! It follows Ultralytics (`models/yolo/pose/val.py`, `utils/metrics.py`): COCO's sigmas for COCO's points, and 1 divided by
//! their number for others. COCO measures the area by the object's outline; this uses 0.53 of its box.

use crate::detector::{Detection, Keypoint};

/// COCO's sigmas, in the order of its points: `Params.setKpParams` in pycocotools `cocoeval.py`.
const COCO_SIGMAS: [f64; 17] = [
    0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089,
    0.089,
];

/// The part of a person's box that the person covers: xtcocotools `cocoeval.py`, which Ultralytics cites.
const AREA_OF_BOX: f64 = 0.53;

/// Points that score less are guesses and are not compared. COCO also skips points that its annotators left out.
const VISIBLE: f32 = 0.3;

/// Returns the similarity of `b`'s keypoints to `a`'s, 0 to 1; `None` without a box, or without a point to compare.
pub(super) fn oks(a: &Detection, b: &Detection, has_coco_points: bool) -> Option<f64> {
    let [x1, y1, x2, y2] = a.box_in_source?.map(f64::from);
    // As in both sources: no division by 0.
    let area = ((x2 - x1) * (y2 - y1) * AREA_OF_BOX).max(0.0) + f64::EPSILON;
    let count = a.keypoints.len();
    let sigma = |index: usize| match COCO_SIGMAS.get(index) {
        Some(&sigma) if has_coco_points => sigma,
        _ => 1.0 / count as f64,
    };
    let is_visible = |point: &Keypoint| point.score.is_none_or(|score| score >= VISIBLE);
    let similarity = |(index, (a, b)): (usize, (&Keypoint, &Keypoint))| {
        let distance = (f64::from(a.x) - f64::from(b.x)).hypot(f64::from(a.y) - f64::from(b.y));
        // Points at infinity, which a reference may contain, never match.
        (-distance.powi(2) / (2.0 * area * (2.0 * sigma(index)).powi(2))).exp().max(0.0)
    };
    let pairs = a.keypoints.iter().zip(&b.keypoints).enumerate();
    let found = pairs.filter(|(_, (a, _))| is_visible(a)).map(similarity);
    let (sum, compared) = found.fold((0.0, 0_u32), |(sum, count), one| (sum + one, count + 1));
    (compared > 0).then(|| sum / f64::from(compared))
}
