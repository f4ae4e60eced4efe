//! Speeds on the ground.

use std::time::Duration;

use crate::geometry::{Point, UNITS};

/// Sightings of a track that are kept, at least a quarter of the span apart that a speed is measured over.
const SAMPLES: usize = 8;
/// The least value of the projection's denominator, which is 1 on average over the four points: less is at the horizon.
const HORIZON: f64 = 1e-3;

/// The projection of the frame onto the ground.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane {
    /// The first eight numbers of a 3x3 homography from pixels, row by row, and the ninth.
    matrix: [f64; 9],
}

impl Plane {
    /// Solves the projection of four points. `None` if three of them are on a line, or if their order differs on both sides.
    pub(crate) fn new(points: &[([f32; 2], [f32; 2]); 4]) -> Option<Self> {
        let frame = points.map(|(frame, _)| frame.map(f64::from));
        let ground = points.map(|(_, ground)| ground.map(f64::from));
        if !is_quadrilateral(&frame) || !is_quadrilateral(&ground) {
            return None;
        }
        // u = (a x + b y + c) / (g x + h y + 1), v alike: two equations for each point. The horizon does not pass through the middle of the
        // points, which is the origin here, so the 1 is right.
        let [middle_x, middle_y] = [0, 1].map(|axis| frame.iter().map(|point| point[axis]).sum::<f64>() / 4.0);
        let mut rows = [[0.0; 9]; 8];
        for (pair, ([x, y], [u, v])) in rows.chunks_exact_mut(2).zip(frame.into_iter().zip(ground)) {
            let (x, y) = (x - middle_x, y - middle_y);
            if let [first, second] = pair {
                *first = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
                *second = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
            }
        }
        let [a, b, c, d, e, f, g, h] = solve(rows)?;
        let from_corner = |by_x: f64, by_y: f64, at_middle: f64| at_middle - by_x * middle_x - by_y * middle_y;
        let (c, f, i) = (from_corner(a, b, c), from_corner(d, e, f), from_corner(g, h, 1.0));
        // The horizon must not pass between the points.
        let depths = frame.map(|[x, y]| g * x + h * y + i);
        let mean = depths.iter().sum::<f64>() / 4.0;
        let matrix = [a, b, c, d, e, f, g, h, i].map(|number| number / mean);
        let in_front = depths.iter().all(|depth| depth / mean > HORIZON);
        (in_front && matrix.iter().all(|number| number.is_finite())).then_some(Self { matrix })
    }

    /// The place of a point on the ground; `None` at the horizon and above.
    pub(crate) fn project(&self, point: Point) -> Option<[f64; 2]> {
        let [x, y] = [point.x, point.y].map(|units| f64::from(units) / f64::from(UNITS));
        let [a, b, c, d, e, f, g, h, i] = self.matrix;
        let depth = g * x + h * y + i;
        (depth > HORIZON).then(|| [(a * x + b * y + c) / depth, (d * x + e * y + f) / depth])
    }
}

/// Returns whether four points of the frame and their places on the ground define a plane for [`Kind::Speed`](crate::Kind::Speed).
pub fn is_plane(points: &[([f32; 2], [f32; 2]); 4]) -> bool {
    Plane::new(points).is_some()
}

/// Whether no three of four points are on a line: of each three, the triangle has at least a millionth of the area of the longest side's
/// square.
fn is_quadrilateral(points: &[[f64; 2]; 4]) -> bool {
    let square = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2);
    [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]].into_iter().all(|corners| {
        let [a, b, c] = corners.map(|corner| points[corner]);
        let area = ((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])).abs();
        let longest = square(a, b).max(square(b, c)).max(square(a, c));
        area.is_finite() && area > 1e-6 * longest
    })
}

/// Solves eight linear equations by elimination with pivots; `None` if they have no single solution.
fn solve(mut rows: [[f64; 9]; 8]) -> Option<[f64; 8]> {
    for column in 0..8 {
        let pivot = (column..8).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        let divisor = rows[column][column];
        if divisor == 0.0 || !divisor.is_finite() {
            return None;
        }
        for number in &mut rows[column] {
            *number /= divisor;
        }
        let solved = rows[column];
        for (index, row) in rows.iter_mut().enumerate() {
            let factor = row[column];
            if index != column {
                for (number, part) in row.iter_mut().zip(solved) {
                    *number -= factor * part;
                }
            }
        }
    }
    Some(rows.map(|row| row[8]))
}

/// The last places of a track, to know its speed.
#[derive(Debug, Clone)]
pub(crate) struct Speedometer {
    /// A ring; `newest` is the place of the newest one.
    samples: [Option<(Duration, [f64; 2])>; SAMPLES],
    newest: usize,
}

impl Speedometer {
    pub(crate) fn new() -> Self {
        Self { samples: [None; SAMPLES], newest: 0 }
    }

    /// Takes a sighting; returns the speed since the newest one that is `over` ago, once there is such a one.
    pub(crate) fn sight(&mut self, place: [f64; 2], now: Duration, over: Duration) -> Option<f64> {
        let old = |sample: &&(Duration, [f64; 2])| now.saturating_sub(sample.0) >= over;
        let before = self.samples.iter().flatten().filter(old).max_by_key(|sample| sample.0).copied();
        let newest = self.samples.get(self.newest).copied().flatten();
        if newest.is_none_or(|(at, _)| now.saturating_sub(at) >= over / 4) {
            self.newest = (self.newest + 1) % SAMPLES;
            if let Some(sample) = self.samples.get_mut(self.newest) {
                *sample = Some((now, place));
            }
        }
        let (at, [x, y]) = before?;
        let seconds = now.saturating_sub(at).as_secs_f64();
        (seconds > 0.0).then(|| (place[0] - x).hypot(place[1] - y) / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A street seen from above its end: 10 m wide, from 20 m to 80 m away.
    fn street() -> [([f32; 2], [f32; 2]); 4] {
        [
            ([440.0, 240.0], [0.0, 80.0]),
            ([840.0, 240.0], [10.0, 80.0]),
            ([1240.0, 700.0], [10.0, 20.0]),
            ([40.0, 700.0], [0.0, 20.0]),
        ]
    }

    #[test]
    fn the_four_points_are_where_they_were_measured() {
        let plane = Plane::new(&street()).unwrap();
        for ([x, y], ground) in street() {
            let point = Point { x: (x * UNITS) as i32, y: (y * UNITS) as i32 };
            let [u, v] = plane.project(point).unwrap();
            assert!((u - f64::from(ground[0])).abs() < 1e-6 && (v - f64::from(ground[1])).abs() < 1e-6, "{u} {v}");
        }
        // The diagonals of a rectangle meet in its middle.
        let centre = plane.project(Point { x: 640 * 256, y: (355.0 * UNITS) as i32 }).unwrap();
        assert!((centre[0] - 5.0).abs() < 0.01 && (centre[1] - 50.0).abs() < 0.1, "{centre:?}");
    }

    #[test]
    fn above_the_horizon_is_no_place() {
        let plane = Plane::new(&street()).unwrap();
        assert!(plane.project(Point { x: 640 * 256, y: 0 }).is_none());
    }

    #[test]
    fn the_horizon_may_pass_through_the_corner_of_the_frame() {
        // Half as wide where it is twice as far away.
        let pixels = [[160.0, 240.0], [480.0, 240.0], [640.0, 480.0], [0.0, 480.0]];
        let metres = [[-2.5, 80.0], [2.5, 80.0], [2.5, 40.0], [-2.5, 40.0]];
        let plane = Plane::new(&[0, 1, 2, 3].map(|corner| (pixels[corner], metres[corner]))).unwrap();
        let [x, y] = plane.project(Point { x: 320 * 256, y: 320 * 256 }).unwrap();
        assert!(x.abs() < 1e-6 && (y - 60.0).abs() < 1e-6, "{x} {y}");
        assert!(plane.project(Point { x: 320 * 256, y: 0 }).is_none());
    }

    #[test]
    fn points_that_define_no_plane_are_rejected() {
        let mut line = street();
        line[2].0 = [640.0, 240.0];
        assert!(Plane::new(&line).is_none());
        let mut crossed = street();
        (crossed[2].1, crossed[3].1) = (crossed[3].1, crossed[2].1);
        assert!(Plane::new(&crossed).is_none());
        let mut wild = street();
        wild[0].1 = [f32::NAN, 0.0];
        assert!(Plane::new(&wild).is_none());
    }

    #[test]
    fn a_speed_is_that_between_samples_at_any_rate() {
        for step_ms in [20, 33, 100, 700, 3000_u64] {
            let mut speedometer = Speedometer::new();
            let speeds: Vec<f64> = (0..10_000 / step_ms)
                .filter_map(|frame| {
                    let ms = frame * step_ms;
                    speedometer.sight(
                        [ms as f64 * 0.003, ms as f64 * 0.004],
                        Duration::from_millis(ms),
                        Duration::from_secs(1),
                    )
                })
                .collect();
            assert!(
                !speeds.is_empty() && speeds.iter().all(|speed| (speed - 5.0).abs() < 1e-9),
                "{step_ms}: {speeds:?}"
            );
        }
    }
}
