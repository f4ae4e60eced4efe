//! On which side of a line an object is.

use std::time::Duration;

use crate::geometry::{Point, Polyline};
use crate::settled::Settled;

/// A side of a line, seen along it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// An object and a line.
///
/// A line with ends has no sides in the whole frame: an object that goes round an end gets to the other side without crossing. So the state is the
/// number of times that the path crossed to the right, less those to the left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crossing {
    last: Option<Point>,
    /// The sum of the path's crossings.
    crossings: i32,
    /// The sum at the last sightings beside the line; `None` before the first of them.
    settled: Option<Settled<i32>>,
}

impl Crossing {
    /// Makes one of an object that was last seen beside the line, settled.
    pub(crate) fn beside(last: Point, at: Duration) -> Self {
        Self { last: Some(last), crossings: 0, settled: Some(Settled::new(0, at)) }
    }

    /// Whether the object is settled, so that only its last point matters.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.is_some_and(|settled| settled.is_steady() && settled.state == self.crossings)
    }

    /// Takes a sighting; returns the side on which the object has settled after a crossing.
    pub(crate) fn sight(&mut self, line: &Polyline, point: Point, now: Duration, settle: Duration) -> Option<Side> {
        if let Some(last) = self.last {
            self.crossings = self.crossings.saturating_add(line.crossings(last, point));
        }
        self.last = Some(point);
        if line.contains(point) {
            return None;
        }
        let settled = self.settled.get_or_insert(Settled::new(self.crossings, now));
        let before = settled.sight(self.crossings, now, settle)?;
        Some(if self.crossings > before { Side::Right } else { Side::Left })
    }

    /// The first sighting after the last crossing that counted.
    pub(crate) fn since(&self) -> Option<Duration> {
        self.settled.map(|settled| settled.since)
    }
}
