//! Where an object went during an event.

use std::ops::Deref;

use crate::geometry::{Point, UNITS};

/// Points that a [`Path`] has at most.
pub const MOST_PATH_POINTS: usize = 32;

/// How far apart two points of a path are at first, in units: 4 px.
const SPACING: i64 = 4 * 256;

/// The way of an object: points in pixels of the frame, the first and the last of the event included. Points between are left out where the
/// object has hardly moved, and evenly where there would be more than [`MOST_PATH_POINTS`].
#[derive(Clone, Copy, PartialEq, Default)]
pub struct Path {
    points: [[f32; 2]; MOST_PATH_POINTS],
    length: usize,
}

impl Deref for Path {
    type Target = [[f32; 2]];

    fn deref(&self) -> &[[f32; 2]] {
        self.points.get(..self.length).unwrap_or_default()
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(formatter)
    }
}

/// A path that goes on. Has room for one point less than a path, for the last one.
#[derive(Debug)]
pub(crate) struct Trail {
    points: [Point; MOST_PATH_POINTS - 1],
    length: usize,
    /// How far from the last one a point must be, in units.
    spacing: i64,
    last: Point,
}

impl Trail {
    pub(crate) fn new(point: Point) -> Self {
        Self { points: [point; MOST_PATH_POINTS - 1], length: 1, spacing: SPACING, last: point }
    }

    /// Takes a sighting. Where there is no room, every second point goes, and those that follow are twice as far apart.
    pub(crate) fn add(&mut self, point: Point) {
        self.last = point;
        let is_near =
            self.points.get(self.length - 1).is_some_and(|before| before.minus(point).squared() < self.spacing.pow(2));
        if is_near {
            return;
        }
        if self.length == self.points.len() {
            self.length = self.length.div_ceil(2);
            for index in 0..self.length {
                self.points.copy_within(2 * index..=2 * index, index);
            }
            self.spacing = self.spacing.saturating_mul(2);
        }
        if let Some(free) = self.points.get_mut(self.length) {
            *free = point;
            self.length += 1;
        }
    }

    /// Returns the path until now.
    pub(crate) fn path(&self) -> Path {
        let pixels = |point: &Point| [point.x as f32 / UNITS, point.y as f32 / UNITS];
        let kept = self.points.get(..self.length).unwrap_or_default();
        let last = Some(&self.last).filter(|last| kept.last() != Some(last));
        let mut path = Path::default();
        for (free, point) in path.points.iter_mut().zip(kept.iter().chain(last)) {
            *free = pixels(point);
            path.length += 1;
        }
        path
    }
}

/// The memory of trails that are over, for the next ones.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "a trail moves between here and a record, which is small without it")]
pub(crate) struct SpareTrails(Vec<Box<Trail>>);

impl SpareTrails {
    /// Begins a path. Allocates only if more go on than ever before.
    pub(crate) fn begin(&mut self, point: Point) -> Box<Trail> {
        let trail = Trail::new(point);
        match self.0.pop() {
            Some(mut spare) => {
                *spare = trail;
                spare
            }
            None => Box::new(trail),
        }
    }

    /// Ends a path, and returns it.
    pub(crate) fn end(&mut self, trail: Box<Trail>) -> Path {
        let path = trail.path();
        self.0.push(trail);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: i32, y: i32) -> Point {
        Point { x: 256 * x, y: 256 * y }
    }

    #[test]
    fn a_path_has_the_first_and_the_last_point_and_no_jitter() {
        let mut trail = Trail::new(at(10, 10));
        assert_eq!(*trail.path(), [[10.0, 10.0]]);
        for step in 0..20 {
            trail.add(at(10 + step % 3, 10));
        }
        assert_eq!(*trail.path(), [[10.0, 10.0], [11.0, 10.0]]);
        trail.add(at(10, 14));
        trail.add(at(10, 15));
        assert_eq!(*trail.path(), [[10.0, 10.0], [10.0, 14.0], [10.0, 15.0]]);
    }

    #[test]
    fn a_long_way_keeps_points_from_all_of_it() {
        for steps in [30, 31, 32, 61, 62, 63, 500, 100_000] {
            let mut trail = Trail::new(at(0, 0));
            (1..=steps).for_each(|step| trail.add(Point { x: 0, y: step * 1100 }));
            let path = trail.path();
            assert!(path.len() <= MOST_PATH_POINTS && (steps < 30 || path.len() > MOST_PATH_POINTS / 2), "{steps}");
            let (first, last) = (path.first().unwrap()[1], path.last().unwrap()[1]);
            assert_eq!((first, last), (0.0, steps as f32 * 1100.0 / 256.0));
            let gaps: Vec<f32> = path.windows(2).map(|pair| pair[1][1] - pair[0][1]).collect();
            let (most, least) =
                (gaps.iter().copied().fold(0.0, f32::max), gaps.iter().rev().skip(1).copied().fold(1e9, f32::min));
            assert!(most <= 2.2 * least, "{steps}: {path:?}");
        }
    }
}
