//! Oriented boxes, as in aerial images.

use std::f64::consts::FRAC_PI_2;

/// A box rotated about its centre.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OrientedBox {
    /// The centre x and y, in pixels.
    pub center: [f32; 2],
    /// The side along `angle`, and the side at a right angle to it, in pixels.
    pub size: [f32; 2],
    /// In radians, clockwise on the screen (from the x axis, which points right, to the y axis, which points down).
    pub angle: f32,
}

impl OrientedBox {
    /// Rotates the box x1, y1, x2, y2 by `angle` about its centre.
    pub fn from_upright(corners: [f32; 4], angle: f32) -> Self {
        let [x1, y1, x2, y2] = corners.map(f64::from);
        Self {
            center: [((x1 + x2) / 2.0) as f32, ((y1 + y2) / 2.0) as f32],
            size: [(x2 - x1) as f32, (y2 - y1) as f32],
            angle,
        }
    }

    /// Whether all of its numbers are finite.
    pub fn is_finite(&self) -> bool {
        let [x, y] = self.center;
        let [width, height] = self.size;
        [x, y, width, height, self.angle].iter().all(|number| number.is_finite())
    }

    /// Returns the corners, clockwise on the screen. At angle 0 the first is the bottom right one, as in `xywhr2xyxyxyxy` of
    /// ultralytics `utils/ops.py`.
    pub fn corners(&self) -> [[f32; 2]; 4] {
        self.exact_corners().map(|corner| corner.map(|number| number as f32))
    }

    fn exact_corners(&self) -> [[f64; 2]; 4] {
        let [x, y] = self.center.map(f64::from);
        let [width, height] = self.size.map(f64::from);
        let (sin, cos) = f64::from(self.angle).sin_cos();
        let (across, down) = ([width / 2.0 * cos, width / 2.0 * sin], [-height / 2.0 * sin, height / 2.0 * cos]);
        [[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]]
            .map(|[a, d]| [x + a * across[0] + d * down[0], y + a * across[1] + d * down[1]])
    }

    /// Returns the same box with sides of at least 0 and an angle from 0 to below a quarter turn: sides swap where needed, as in
    /// `regularize_rboxes` of ultralytics `utils/ops.py`.
    #[must_use]
    pub fn regularized(self) -> Self {
        let quarters = (f64::from(self.angle) / FRAC_PI_2).floor();
        let rest = (f64::from(self.angle) - quarters * FRAC_PI_2) as f32;
        let rest = if rest < 0.0 { 0.0 } else { rest };
        // An angle just below 0 rounds to a whole quarter.
        let (quarters, angle) = if rest >= FRAC_PI_2 as f32 { (quarters + 1.0, 0.0) } else { (quarters, rest) };
        let [width, height] = self.size.map(f32::abs);
        let swap = quarters.rem_euclid(2.0) == 1.0;
        Self { center: self.center, size: if swap { [height, width] } else { [width, height] }, angle }
    }

    /// Returns the upright box x1, y1, x2, y2 around the corners.
    pub fn bounds(&self) -> [f32; 4] {
        let corners = self.corners();
        let least = |axis: usize| corners.iter().map(|corner| corner[axis]).fold(f32::INFINITY, f32::min);
        let most = |axis: usize| corners.iter().map(|corner| corner[axis]).fold(f32::NEG_INFINITY, f32::max);
        [least(0), least(1), most(0), most(1)]
    }

    /// Returns the area in square pixels.
    pub fn area(&self) -> f64 {
        (f64::from(self.size[0]) * f64::from(self.size[1])).abs()
    }
}

/// Returns the rectangle of the least area around a convex polygon, one of whose sides always lies on one of the polygon's:
/// OpenCV's `minAreaRect`. `None` without a corner, or if a number is not finite; it has no area around one or two corners.
pub(crate) fn min_area_rectangle(hull: &[[f64; 2]]) -> Option<OrientedBox> {
    let first = *hull.first()?;
    let around = |[cos, sin]: [f64; 2]| {
        let mut bounds = [f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::NEG_INFINITY];
        for [x, y] in hull {
            let (along, across) = (x * cos + y * sin, y * cos - x * sin);
            bounds = [bounds[0].min(along), bounds[1].max(along), bounds[2].min(across), bounds[3].max(across)];
        }
        bounds
    };
    let sides = hull.iter().zip(hull.iter().cycle().skip(1)).filter_map(|(a, b)| {
        let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
        let length = dx.hypot(dy);
        (length > 0.0).then(|| [dx / length, dy / length])
    });
    let area = |bounds: &[f64; 4]| (bounds[1] - bounds[0]) * (bounds[3] - bounds[2]);
    let least = sides.map(|side| (side, around(side))).min_by(|(_, a), (_, b)| area(a).total_cmp(&area(b)));
    let ([cos, sin], [left, right, top, bottom]) =
        least.unwrap_or(([1.0, 0.0], [first[0], first[0], first[1], first[1]]));
    let (along, across) = ((left + right) / 2.0, (top + bottom) / 2.0);
    let found = OrientedBox {
        center: [(along * cos - across * sin) as f32, (along * sin + across * cos) as f32],
        size: [(right - left) as f32, (bottom - top) as f32],
        angle: sin.atan2(cos) as f32,
    };
    found.is_finite().then(|| found.regularized())
}

/// The normal distribution that represents an oriented box in [`probiou`]: its mean, and the covariance `[[a, c], [c, b]]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gaussian {
    pub(crate) mean: [f64; 2],
    covariance: [f64; 3],
    /// The determinant of the covariance, at least 0.
    determinant: f64,
}

/// `eps` of `batch_probiou`.
const EPSILON: f64 = 1e-7;

impl Gaussian {
    /// `_get_covariance_matrix` of ultralytics `utils/metrics.py`: the variance of a uniform distribution is its width squared,
    /// divided by 12.
    pub(crate) fn of(turned: &OrientedBox) -> Self {
        let [across, down] = turned.size.map(|side| f64::from(side).powi(2) / 12.0);
        let (sin, cos) = f64::from(turned.angle).sin_cos();
        let (a, b) = (across * cos * cos + down * sin * sin, across * sin * sin + down * cos * cos);
        let c = (across - down) * cos * sin;
        Self {
            mean: turned.center.map(f64::from),
            covariance: [a, b, c],
            // a * b - c * c, without its rounding for a long and thin box.
            determinant: across * down,
        }
    }

    /// See [`probiou`].
    pub(crate) fn probiou(&self, other: &Self) -> f64 {
        let sum = |index: usize| self.covariance[index] + other.covariance[index];
        let (a, b, c) = (sum(0), sum(1), sum(2));
        let (dx, dy) = (self.mean[0] - other.mean[0], self.mean[1] - other.mean[1]);
        // Never negative, but rounding may make it so.
        let determinant = (a * b - c * c).max(0.0);
        let apart =
            (a * dy * dy + b * dx * dx) / (determinant + EPSILON) * 0.25 - c * dx * dy / (determinant + EPSILON) * 0.5;
        let own = 4.0 * (self.determinant * other.determinant).sqrt() + EPSILON;
        let unlike = (determinant / own + EPSILON).ln() * 0.5;
        let bhattacharyya = (apart + unlike).clamp(EPSILON, 100.0);
        1.0 - (1.0 - (-bhattacharyya).exp() + EPSILON).sqrt()
    }
}

/// Returns how much two oriented boxes overlap by their normal distributions: 1 minus the Hellinger distance, about 0 to 1.
///
/// `batch_probiou` of ultralytics `utils/metrics.py`, in f64; the formula is from <https://arxiv.org/abs/2106.06072>. It differs
/// from the IoU of the two rectangles, [`oriented_iou`]. NaN only if a number is not finite.
pub fn probiou(a: &OrientedBox, b: &OrientedBox) -> f64 {
    Gaussian::of(a).probiou(&Gaussian::of(b))
}

/// Returns the intersection over union of two oriented boxes; 0 if they do not overlap, either is empty, or a number is not
/// finite.
///
/// Clips the corners of `a`, as seen from `b`, to the sides of `b` (Sutherland and Hodgman).
pub fn oriented_iou(a: &OrientedBox, b: &OrientedBox) -> f64 {
    let (sin, cos) = f64::from(b.angle).sin_cos();
    let [x, y] = b.center.map(f64::from);
    let seen = |[px, py]: [f64; 2]| [(px - x) * cos + (py - y) * sin, (py - y) * cos - (px - x) * sin];
    let mut polygon = Polygon::default();
    a.exact_corners().into_iter().map(seen).for_each(|corner| polygon.push(corner));
    for axis in 0..2 {
        let half = f64::from(b.size[axis]).abs() / 2.0;
        for sign in [1.0, -1.0] {
            polygon = polygon.clipped(|point| half - sign * point[axis]);
        }
    }
    let shared = polygon.sides().map(|(p, q)| p[0] * q[1] - q[0] * p[1]).sum::<f64>().abs() / 2.0;
    let union = a.area() + b.area() - shared;
    let iou = if union > 0.0 { shared / union } else { 0.0 };
    // Also true for infinity and NaN.
    if iou >= 0.0 { iou.min(1.0) } else { 0.0 }
}

/// A convex polygon: four corners, of which each of four cuts makes one more at most.
#[derive(Default)]
struct Polygon {
    corners: [[f64; 2]; 8],
    count: usize,
}

impl Polygon {
    /// Adds a corner. Beyond eight there are some by rounding alone, which add no area.
    fn push(&mut self, corner: [f64; 2]) {
        if let Some(place) = self.corners.get_mut(self.count) {
            *place = corner;
            self.count += 1;
        }
    }

    /// The ends of each side.
    fn sides(&self) -> impl Iterator<Item = (&[f64; 2], &[f64; 2])> {
        let corners = &self.corners[..self.count];
        corners.iter().zip(corners.iter().cycle().skip(1))
    }

    /// Returns the part where `inside` is at least 0; `inside` is a distance from a line.
    fn clipped(&self, inside: impl Fn(&[f64; 2]) -> f64) -> Self {
        let mut part = Self::default();
        for (p, q) in self.sides() {
            let (at_p, at_q) = (inside(p), inside(q));
            if at_p >= 0.0 {
                part.push(*p);
            }
            if (at_p < 0.0) != (at_q < 0.0) {
                let t = at_p / (at_p - at_q);
                part.push([p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])]);
            }
        }
        part
    }
}

#[cfg(test)]
mod tests;
