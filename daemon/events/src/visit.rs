//! Whether an object is in a zone.

use std::time::Duration;

use crate::geometry::{Point, Polygon};
use crate::settled::Settled;

/// How an object's visits of a zone changed with a sighting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visited {
    /// It is inside or outside as before.
    Same,
    /// It entered.
    Entered,
    /// It left.
    Left,
    /// It was inside between two sightings outside.
    Passed,
}

/// An object and a zone.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    inside: Settled<bool>,
    last: Option<(Point, bool)>,
}

impl Visit {
    pub(crate) fn new() -> Self {
        Self { inside: Settled::new(false, Duration::ZERO), last: None }
    }

    pub(crate) fn is_inside(&self) -> bool {
        self.inside.state
    }

    /// The last sighting.
    pub(crate) fn last(&self) -> Option<Point> {
        self.last.map(|(point, _)| point)
    }

    /// Whether the last sighting was inside.
    pub(crate) fn is_seen_inside(&self) -> bool {
        self.last.is_some_and(|(_, inside)| inside)
    }

    /// Whether it is outside, and not about to enter.
    pub(crate) fn is_outside(&self) -> bool {
        !self.inside.state && self.inside.is_steady()
    }

    /// The first sighting inside, or outside after it left.
    pub(crate) fn since(&self) -> Duration {
        self.inside.since
    }

    /// Takes a sighting. Looks at the zone's points only if the object has moved.
    pub(crate) fn sight(&mut self, zone: Option<&Polygon>, point: Point, now: Duration, settle: Duration) -> Visited {
        let last = self.last;
        let inside = match last {
            Some((last, inside)) if last == point => inside,
            _ => zone.is_none_or(|zone| zone.contains(point)),
        };
        self.last = Some((point, inside));
        match self.inside.sight(inside, now, settle) {
            Some(true) => Visited::Left,
            Some(false) => Visited::Entered,
            None => {
                let outside = settle.is_zero() && !inside;
                let passes = |(from, _): &(Point, bool)| zone.is_some_and(|zone| zone.is_touched(*from, point));
                if outside && last.as_ref().is_some_and(passes) { Visited::Passed } else { Visited::Same }
            }
        }
    }
}
