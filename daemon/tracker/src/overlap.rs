//! How alike two boxes are.

use visiond_kernels::oriented::oriented_iou;

use crate::motion::Shape;

/// A box, and the upright box around it, which is enough to see that most pairs do not overlap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) shape: Shape,
    pub(crate) bounds: [f64; 4],
}

impl Placed {
    pub(crate) fn new(shape: Shape) -> Self {
        Self { shape, bounds: shape.bounds() }
    }

    pub(crate) fn touches(&self, other: &Self) -> bool {
        let (a, b) = (&self.bounds, &other.bounds);
        a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
    }

    /// An upper bound of [`iou`](Self::iou) that costs little: turned boxes share no more than the upright ones around them, and no more
    /// than the smaller one has.
    pub(crate) fn iou_at_most(&self, other: &Self) -> f64 {
        let (a, b) = (&self.bounds, &other.bounds);
        let side = |axis: usize| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis])).max(0.0);
        let areas = [self, other].map(|placed| placed.shape.size.iter().product::<f64>());
        let shared = (side(0) * side(1)).min(areas[0]).min(areas[1]);
        shared / (areas[0] + areas[1] - shared)
    }

    /// Intersection over union, of turned boxes where both are turned.
    pub(crate) fn iou(&self, other: &Self) -> f64 {
        if !self.touches(other) {
            return 0.0;
        }
        if let (Some(a), Some(b)) = (self.shape.oriented(), other.shape.oriented()) {
            return oriented_iou(&a, &b);
        }
        let (a, b) = (&self.bounds, &other.bounds);
        let shared = (a[2].min(b[2]) - a[0].max(b[0])) * (a[3].min(b[3]) - a[1].max(b[1]));
        let area = |of: &[f64; 4]| (of[2] - of[0]) * (of[3] - of[1]);
        shared / (area(a) + area(b) - shared)
    }

    /// Returns the IoU, of upright boxes times a power of the vertical IoU: 0 to 1.
    ///
    /// Objects before and behind each other overlap, but end at other heights, and their heights waver less than their widths. The
    /// vertical IoU is the height IoU of Hybrid-SORT (<https://arxiv.org/abs/2308.00783>, 3.2). A view from above, which turned boxes are
    /// for, has no height.
    pub(crate) fn similarity(&self, other: &Self, height_power: i32) -> f64 {
        let iou = self.iou(other);
        if iou <= 0.0 || self.shape.angle.is_some() && other.shape.angle.is_some() {
            return iou;
        }
        let (a, b) = (&self.bounds, &other.bounds);
        iou * ((a[3].min(b[3]) - a[1].max(b[1])) / (a[3].max(b[3]) - a[1].min(b[1]))).powi(height_power)
    }

    /// How alike the sides are, whatever the places: the product of their ratios, 0 to 1.
    pub(crate) fn size_ratio(&self, other: &Self) -> f64 {
        self.shape.size.iter().zip(other.shape.size).map(|(a, b)| a.min(b) / a.max(b)).product()
    }
}

/// Returns the cosine of the angle between two embeddings; `None` if their lengths differ or one has no direction.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = product(a, b) / (product(a, a) * product(b, b)).sqrt();
    cosine.is_finite().then(|| cosine.clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_kernels::oriented::OrientedBox;

    fn upright(bounds: [f32; 4]) -> Placed {
        Placed::new(Shape::new(bounds, None).unwrap())
    }

    #[test]
    fn a_shift_down_costs_more_than_a_shift_aside() {
        let one = upright([0.0, 0.0, 50.0, 100.0]);
        let (aside, down) = (upright([10.0, 0.0, 60.0, 100.0]), upright([0.0, 20.0, 50.0, 120.0]));
        assert!((one.iou(&aside) - 40.0 / 60.0).abs() < 1e-12 && (one.iou(&down) - 80.0 / 120.0).abs() < 1e-12);
        assert_eq!(one.similarity(&aside, 2), one.iou(&aside));
        assert!((one.similarity(&down, 2) - one.iou(&down) * (80.0_f64 / 120.0).powi(2)).abs() < 1e-12);
        assert_eq!(one.similarity(&upright([50.0, 0.0, 90.0, 100.0]), 2), 0.0);
    }

    #[test]
    fn turned_boxes_overlap_as_they_are_turned() {
        let turned = |angle: f32| {
            let oriented = OrientedBox { center: [50.0, 50.0], size: [80.0, 10.0], angle };
            Placed::new(Shape::new([0.0; 4], Some(oriented)).unwrap())
        };
        assert!((turned(0.7).similarity(&turned(0.7), 2) - 1.0).abs() < 1e-6);
        // Two crossing bars share a square of ten pixels.
        assert!((turned(0.0).similarity(&turned(std::f32::consts::FRAC_PI_2), 2) - 100.0 / 1500.0).abs() < 1e-4);
    }

    #[test]
    fn embeddings_of_other_lengths_or_without_direction_say_nothing() {
        assert_eq!(cosine(&[1.0, 0.0], &[2.0, 0.0]), Some(1.0));
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), Some(0.0));
        assert_eq!([cosine(&[1.0], &[1.0, 0.0]), cosine(&[0.0], &[1.0]), cosine(&[f32::NAN], &[1.0])], [None; 3]);
    }
}
