//! How a box moves: Kalman filters of constant velocity, in real time.

use std::f64::consts::{FRAC_PI_2, PI};

use visiond_kernels::oriented::OrientedBox;

use crate::parameters::Parameters;

/// The time after which the growth of a box is forgotten, in seconds: an object that comes nearer does not do so for long.
const GROWTH_S: f64 = 1.0;
/// The part of the velocity's noise that sizes have.
const SIZE_CHANGE: f64 = 0.1;
/// The least side of a box, in pixels.
const LEAST_SIDE: f64 = 1.0;
/// Variance of a detected angle in radians squared, its drift per second, and that of its velocity.
const ANGLE_NOISE: [f64; 3] = [0.0025, 0.01, 0.5];

/// A box as the filter sees it: centre, width, height, and the angle of a turned one.
///
/// The sides of a turned box are those that its angle turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shape {
    pub(crate) center: [f64; 2],
    pub(crate) size: [f64; 2],
    pub(crate) angle: Option<f64>,
}

impl Shape {
    /// A box x1, y1, x2, y2, or the turned one, if there is one; `None` if it is empty or not finite, or so large that squares of it
    /// are not.
    pub(crate) fn new(bounds: [f32; 4], oriented: Option<OrientedBox>) -> Option<Self> {
        let shape = match oriented {
            Some(turned) => Self {
                center: turned.center.map(f64::from),
                size: turned.size.map(|side| f64::from(side).abs()),
                angle: Some(f64::from(turned.angle)),
            },
            None => {
                let [x1, y1, x2, y2] = bounds.map(f64::from);
                Self { center: [(x1 + x2) / 2.0, (y1 + y2) / 2.0], size: [x2 - x1, y2 - y1], angle: None }
            }
        };
        const MOST: f64 = 1e6;
        let inside = shape.center.iter().all(|at| at.abs() <= MOST)
            && shape.size.iter().all(|side| *side > 0.0 && *side <= MOST)
            && shape.angle.is_none_or(|angle| angle.abs() <= 1e3);
        inside.then_some(shape)
    }

    /// The upright box x1, y1, x2, y2 around it.
    pub(crate) fn bounds(&self) -> [f64; 4] {
        let [x, y] = self.center;
        let [width, height] = self.size;
        let [across, down] = match self.angle {
            None => [width / 2.0, height / 2.0],
            Some(angle) => {
                let (sin, cos) = angle.sin_cos();
                let half = |a: f64, b: f64| (width * a.abs() + height * b.abs()) / 2.0;
                [half(cos, sin), half(sin, cos)]
            }
        };
        [x - across, y - down, x + across, y + down]
    }

    pub(crate) fn oriented(&self) -> Option<OrientedBox> {
        let angle = self.angle? as f32;
        Some(OrientedBox { center: self.center.map(|at| at as f32), size: self.size.map(|side| side as f32), angle })
    }

    /// The same turned box, written with the angle nearest to `angle`: a quarter of a turn swaps the sides.
    fn turned_to(self, angle: f64) -> Self {
        let Some(own) = self.angle else { return self };
        // A box whose sides are alike may be seen turned by a quarter; a long one is not.
        let [a, b] = self.size;
        let step = if a.min(b) > 0.8 * a.max(b) { FRAC_PI_2 } else { PI };
        let turns = ((angle - own) / step).round();
        let swap = step == FRAC_PI_2 && turns.rem_euclid(2.0) == 1.0;
        Self { size: if swap { [b, a] } else { [a, b] }, angle: Some(own + turns * step), ..self }
    }
}

/// The time between two frames, with what all tracks need of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) seconds: f64,
    /// The part of a velocity that is forgotten in [`GROWTH_S`] that is left after it.
    kept: f64,
    /// The seconds in which such a velocity, if it stayed, would go as far.
    moved: f64,
}

impl Span {
    pub(crate) fn new(seconds: f64) -> Self {
        let kept = (-seconds / GROWTH_S).exp();
        Self { seconds, kept, moved: GROWTH_S * (1.0 - kept) }
    }
}

/// Position and velocity along `N` axes whose noises are the same, with the covariance that each of them has.
#[derive(Debug, Clone, Copy)]
struct Axes<const N: usize> {
    position: [f64; N],
    velocity: [f64; N],
    /// Variance of the position, covariance, variance of the velocity.
    covariance: [f64; 3],
}

impl<const N: usize> Axes<N> {
    fn new(position: [f64; N], variance: f64, velocity_variance: f64) -> Self {
        Self { position, velocity: [0.0; N], covariance: [variance, 0.0, velocity_variance] }
    }

    /// Moves ahead by `span`. `drift` is the growth of the position's variance per second, `change` that of the velocity's; with
    /// `forgets`, 1/e of the velocity is left after [`GROWTH_S`].
    ///
    /// White noise of acceleration, as in Bar-Shalom, Li and Kirubarajan, "Estimation with Applications to Tracking and Navigation"
    /// (2001), 6.2.2. Not inlined: most of the time, its instructions are not in the cache.
    #[inline(never)]
    fn predict(&mut self, span: &Span, drift: f64, change: f64, forgets: bool) {
        let [p, c, v] = self.covariance;
        let Span { seconds, .. } = *span;
        let (kept, moved) = if forgets { (span.kept, span.moved) } else { (1.0, seconds) };
        for (position, velocity) in self.position.iter_mut().zip(&mut self.velocity) {
            *position += *velocity * moved;
            *velocity *= kept;
        }
        self.covariance = [
            p + 2.0 * moved * c + moved * moved * v + drift * seconds + change * seconds.powi(3) / 3.0,
            kept * (c + moved * v) + change * seconds.powi(2) / 2.0,
            kept * kept * v + change * seconds,
        ];
    }

    /// Takes in positions seen with the variance `noise`.
    #[inline(never)]
    fn update(&mut self, seen: [f64; N], noise: f64) {
        let [p, c, v] = self.covariance;
        let sum = p + noise;
        if sum <= 0.0 {
            return;
        }
        let (gain, velocity_gain) = (p / sum, c / sum);
        for ((position, velocity), seen) in self.position.iter_mut().zip(&mut self.velocity).zip(seen) {
            let off = seen - *position;
            *position += gain * off;
            *velocity += velocity_gain * off;
        }
        self.covariance = [p * (1.0 - gain), c * (1.0 - gain), (v - velocity_gain * c).max(0.0)];
    }
}

/// The motion of a box.
///
/// With noise that is the same in both directions, as in ByteTrack's filter, covariances between centre and sides stay 0, and those of x
/// and y, and of width and height, stay equal: two filters do what one of eight numbers does. Its noises per frame became noises per
/// second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Motion {
    center: Axes<2>,
    size: Axes<2>,
    angle: Option<Axes<1>>,
}

/// The length that noises are in parts of: the side of a square of the same area.
fn scale(size: [f64; 2]) -> f64 {
    (size[0] * size[1]).sqrt()
}

/// The filter of an angle that was seen once.
fn angle_at(angle: f64) -> Axes<1> {
    Axes::new([angle], 2.0 * ANGLE_NOISE[0], ANGLE_NOISE[2])
}

impl Motion {
    pub(crate) fn new(shape: &Shape, parameters: &Parameters) -> Self {
        let scale = scale(shape.size);
        let variance = 2.0 * (parameters.measurement_deviation * scale).powi(2);
        let velocity = (parameters.first_velocity * scale).powi(2);
        Self {
            center: Axes::new(shape.center, variance, velocity),
            size: Axes::new(shape.size, variance, velocity),
            angle: shape.angle.map(angle_at),
        }
    }

    /// Moves ahead by `span`.
    pub(crate) fn predict(&mut self, span: &Span, parameters: &Parameters) {
        let square = scale(self.size.position).powi(2);
        let (drift, change) = (parameters.position_noise * square, parameters.velocity_noise * square);
        self.center.predict(span, drift, change, false);
        self.size.predict(span, drift, change * SIZE_CHANGE, true);
        for (side, velocity) in self.size.position.iter_mut().zip(&mut self.size.velocity) {
            if *side < LEAST_SIDE {
                (*side, *velocity) = (LEAST_SIDE, velocity.max(0.0));
            }
        }
        if let Some(angle) = &mut self.angle {
            angle.predict(span, ANGLE_NOISE[1], ANGLE_NOISE[2], true);
        }
    }

    /// Stays where it is for a span too long to say where the object went, or one that a clock made up.
    pub(crate) fn hold(&mut self, parameters: &Parameters) {
        let square = scale(self.size.position).powi(2);
        for axes in [&mut self.center, &mut self.size] {
            let [position, ..] = axes.covariance;
            axes.covariance =
                [position + parameters.position_noise * square, 0.0, parameters.first_velocity.powi(2) * square];
        }
    }

    /// Takes in a box.
    pub(crate) fn update(&mut self, seen: &Shape, parameters: &Parameters) {
        let seen = self.angle.map_or(*seen, |angle| seen.turned_to(angle.position[0]));
        let noise = (parameters.measurement_deviation * scale(seen.size)).powi(2);
        self.center.update(seen.center, noise);
        self.size.update(seen.size, noise);
        match (&mut self.angle, seen.angle) {
            (Some(angle), Some(at)) => angle.update([at], ANGLE_NOISE[0]),
            (angle, at) => *angle = at.map(angle_at),
        }
    }

    /// Moves the centre by a distance that many objects share. The velocity changes as a measurement of the position would change it:
    /// otherwise nothing would tell the filter how fast objects are that all move alike.
    pub(crate) fn shift(&mut self, by: [f64; 2]) {
        let [p, c, _] = self.center.covariance;
        for (axis, by) in by.into_iter().enumerate() {
            self.center.position[axis] += by;
            if p > 0.0 {
                self.center.velocity[axis] += c / p * by;
            }
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        let angle = self.angle.map(|angle| angle.position[0]);
        Shape { center: self.center.position, size: self.size.position, angle }
    }

    /// Velocity of the centre in pixels per second.
    pub(crate) fn velocity(&self) -> [f64; 2] {
        self.center.velocity
    }

    /// How far a centre is from where it was expected, in standard deviations, squared.
    pub(crate) fn surprise(&self, seen: &Shape, parameters: &Parameters) -> f64 {
        let noise = (parameters.measurement_deviation * scale(seen.size)).powi(2);
        let square = |axis: usize| {
            (seen.center[axis] - self.center.position[axis]).powi(2) / (self.center.covariance[0] + noise)
        };
        square(0) + square(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upright(x: f32, y: f32) -> Shape {
        Shape::new([x, y, x + 40.0, y + 100.0], None).unwrap()
    }

    /// A body of 120 px/s, seen at the given times, then predicted to 4 s.
    fn predicted(times: impl Iterator<Item = f64>) -> Motion {
        let parameters = Parameters::default();
        let mut motion = Motion::new(&upright(0.0, 50.0), &parameters);
        let mut now = 0.0;
        for at in times {
            motion.predict(&Span::new(at - now), &parameters);
            motion.update(&upright((120.0 * at) as f32, 50.0), &parameters);
            now = at;
        }
        motion.predict(&Span::new(4.0 - now), &parameters);
        motion
    }

    #[test]
    fn the_prediction_is_the_same_at_every_rate() {
        let rates =
            [60, 30, 10, 5].map(|rate| predicted((1..=rate * 3).map(|frame| f64::from(frame) / f64::from(rate))));
        for motion in rates {
            assert!((motion.shape().center[0] - 500.0).abs() < 2.0, "{motion:?}");
            assert!((motion.velocity()[0] - 120.0).abs() < 2.0 && motion.velocity()[1].abs() < 1e-6, "{motion:?}");
        }
    }

    #[test]
    fn two_short_predictions_are_one_long_one() {
        let parameters = Parameters::default();
        let mut once = predicted((1..30).map(|frame| f64::from(frame) / 10.0));
        let mut twice = once;
        once.predict(&Span::new(1.0), &parameters);
        twice.predict(&Span::new(0.3), &parameters);
        twice.predict(&Span::new(0.7), &parameters);
        let (a, b) = (once.center, twice.center);
        for axis in 0..2 {
            assert!((a.position[axis] - b.position[axis]).abs() < 1e-9);
            assert!((a.velocity[axis] - b.velocity[axis]).abs() < 1e-9);
        }
        assert!(a.covariance.iter().zip(b.covariance).all(|(a, b)| (a - b).abs() < 1e-6 * a.abs()), "{a:?} {b:?}");
    }

    #[test]
    fn a_turned_box_is_followed_past_a_whole_turn_and_through_swapped_sides() {
        let parameters = Parameters::default();
        let seen = |angle: f32, size: [f32; 2]| {
            Shape::new([0.0; 4], Some(OrientedBox { center: [50.0, 50.0], size, angle })).unwrap()
        };
        let mut motion = Motion::new(&seen(0.0, [40.0, 20.0]), &parameters);
        for step in 1..200 {
            motion.predict(&Span::new(0.1), &parameters);
            // 0.5 rad/s, written from 0 to half a turn.
            motion.update(&seen((0.05 * step as f32).rem_euclid(PI as f32), [40.0, 20.0]), &parameters);
        }
        let shape = motion.shape();
        assert!((shape.angle.unwrap() - 0.05 * 199.0).abs() < 0.05, "{shape:?}");
        assert!((shape.size[0] - 40.0).abs() < 0.1);
        let mut square = Motion::new(&seen(0.1, [21.0, 20.0]), &parameters);
        square.update(&seen(0.1 - FRAC_PI_2 as f32, [20.0, 21.0]), &parameters);
        assert!((square.shape().angle.unwrap() - 0.1).abs() < 1e-6 && square.shape().size[0] > 20.9);
    }

    #[test]
    fn boxes_that_are_empty_or_not_finite_are_none() {
        let nan = f32::NAN;
        for bounds in
            [[0.0; 4], [5.0, 5.0, 5.0, 9.0], [9.0, 0.0, 1.0, 5.0], [nan, 0.0, 1.0, 1.0], [0.0, 0.0, f32::INFINITY, 1.0]]
        {
            assert_eq!(Shape::new(bounds, None), None);
        }
        let turned =
            |angle, size| Shape::new([0.0, 0.0, 9.0, 9.0], Some(OrientedBox { center: [1.0, 1.0], size, angle }));
        assert_eq!([turned(nan, [2.0, 2.0]), turned(f32::INFINITY, [2.0, 2.0]), turned(0.0, [0.0, 2.0])], [None; 3]);
    }
}
