//! Non-maximum suppression of turned boxes, as Ultralytics does it.

use super::{Candidate, Nms, NmsOptions, index_of};
use crate::oriented::{Gaussian, OrientedBox};

/// The maximum number of candidates that are compared, best first.
///
/// `max_nms` in ultralytics `utils/nms.py` is 30,000. That many take up to 56 s on one core of a server if all are smaller than a
/// pixel, and a ninth with this limit; the best 300 survivors are the same unless thousands of boxes stand for each of them.
pub const MAX_ORIENTED: usize = 10_000;

/// A turned box, ready for comparison.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankedBox {
    gaussian: Gaussian,
    /// The variance along its longer side, so that boxes far apart need no probiou; infinite for a box of less than a tenth
    /// of a square pixel, whose probiou depends on its epsilon.
    reach: f64,
    class_id: u32,
}

impl RankedBox {
    fn new(turned: &OrientedBox, class_id: u32) -> Self {
        let [width, height] = turned.size.map(|side| f64::from(side).abs());
        let is_tiny = width * height < 0.1;
        let reach = if is_tiny { f64::INFINITY } else { width.max(height).powi(2) / 12.0 };
        Self { gaussian: Gaussian::of(turned), reach, class_id }
    }

    /// Whether the two have a probiou above `threshold`. `most_apart` is [`most_apart`] of the threshold.
    #[inline]
    fn meets(&self, other: &Self, class_agnostic: bool, threshold: f64, most_apart: f64) -> bool {
        let ([x, y], [other_x, other_y]) = (self.gaussian.mean, other.gaussian.mean);
        let squared = (x - other_x).powi(2) + (y - other_y).powi(2);
        // The distance of two distributions is at least a quarter of this, divided by the largest variance of their sum.
        (class_agnostic || self.class_id == other.class_id)
            && squared <= 4.0 * most_apart * (self.reach + other.reach)
            && self.gaussian.probiou(&other.gaussian) > threshold
    }
}

/// Returns the distance of two distributions from which their probiou is below `threshold`, with room for the epsilons of
/// probiou.
fn most_apart(threshold: f64) -> f64 {
    // probiou = 1 - sqrt(1 - exp(-distance)).
    -(1.0 - (1.0 - threshold).powi(2)).max(0.0).ln() * 1.001 + 1e-3
}

impl Nms {
    /// Keeps the surviving turned boxes, best first: those that no better box of their class, **removed or not**, overlaps by a
    /// probiou above the threshold. `oriented` returns a candidate's box; a candidate without one is removed.
    ///
    /// `TorchNMS.fast_nms` of ultralytics `utils/nms.py`. Because removed boxes remove others too, fewer stay than in
    /// [`Nms::run`]. Only the best [`MAX_ORIENTED`] are compared, and no more after `max_detections` survivors: n * n / 2
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
