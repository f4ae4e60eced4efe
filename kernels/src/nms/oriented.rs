//! Non-maximum suppression of oriented boxes, as Ultralytics does it.

use super::ranked_box::{RankedBox, most_apart};
use super::{Candidate, Nms, NmsOptions, index_of};
use crate::oriented::OrientedBox;

/// The maximum number of candidates to compare, best first.
///
/// `max_nms` in ultralytics `utils/nms.py` is 30,000. That many take up to 56 s on one core of a server if all are smaller than a
/// pixel, and a ninth with this limit; the best 300 survivors are the same unless thousands of boxes show each of them.
const MAX_ORIENTED: usize = 10_000;

impl Nms {
    /// Keeps the surviving oriented boxes, best first: those that no better box of their class, **removed or not**, overlaps by a
    /// probiou above the threshold. `oriented` returns a candidate's box; a candidate without one is removed.
    ///
    /// `TorchNMS.fast_nms` of ultralytics `utils/nms.py`. Because removed boxes remove others too, fewer stay than in
    /// [`Nms::run`]. Only the best 10,000 are compared, and no more after `max_detections` survivors: n * n / 2
    /// comparisons at worst, of which those of boxes far apart cost a few multiplications.
    pub fn run_oriented(
        &mut self,
        candidates: &mut Vec<Candidate>,
        oriented: impl Fn(&Candidate) -> Option<OrientedBox>,
        options: &NmsOptions,
    ) {
        self.rank(candidates, options.score_threshold);
        self.ranked.clear();
        let threshold = f64::from(options.iou_threshold);
        let most_apart = most_apart(threshold);
        for &key in self.keys.iter().take(MAX_ORIENTED) {
            if self.kept.len() >= options.max_detections {
                break;
            }
            let candidate = candidates[index_of(key)];
            let Some(turned) = oriented(&candidate).filter(OrientedBox::is_finite) else { continue };
            let ranked = RankedBox::new(&turned, candidate.class_id);
            let meets = |better: &RankedBox| better.meets(&ranked, options.class_agnostic, threshold, most_apart);
            if !self.ranked.iter().any(meets) {
                self.kept.push(candidate);
            }
            self.ranked.push(ranked);
        }
        candidates.clear();
        candidates.extend_from_slice(&self.kept);
    }
}

#[cfg(test)]
mod tests;
