//! Compares two oriented boxes of a suppression.

use crate::oriented::{Gaussian, OrientedBox};

/// An oriented box, prepared for comparison.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankedBox {
    gaussian: Gaussian,
    /// The variance along its longer side, so that boxes far apart need no probiou; infinite for a box of less than a tenth
    /// of a square pixel, whose probiou depends on its epsilon.
    reach: f64,
    class_id: u32,
}

impl RankedBox {
    pub(super) fn new(turned: &OrientedBox, class_id: u32) -> Self {
        let [width, height] = turned.size.map(|side| f64::from(side).abs());
        let is_tiny = width * height < 0.1;
        let reach = if is_tiny { f64::INFINITY } else { width.max(height).powi(2) / 12.0 };
        Self { gaussian: Gaussian::of(turned), reach, class_id }
    }

    /// Whether the two have a probiou above `threshold`. `most_apart` is [`most_apart`] of the threshold.
    #[inline]
    pub(super) fn meets(&self, other: &Self, class_agnostic: bool, threshold: f64, most_apart: f64) -> bool {
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
pub(super) fn most_apart(threshold: f64) -> f64 {
    // probiou = 1 - sqrt(1 - exp(-distance)).
    -(1.0 - (1.0 - threshold).powi(2)).max(0.0).ln() * 1.001 + 1e-3
}
