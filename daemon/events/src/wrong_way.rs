//! Whether an object moves against a direction.

use crate::geometry::{Point, Vector};

/// Which way an object moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrongWay {
    /// The point that it got furthest to the way it moves, since it turned or moved sideways.
    furthest: Point,
    wrong: bool,
}

impl WrongWay {
    pub(crate) fn new(point: Point) -> Self {
        Self { furthest: point, wrong: false }
    }

    /// Takes a sighting; returns whether it moves the wrong way.
    pub(crate) fn sight(&mut self, point: Point, direction: Vector, distance: i64) -> bool {
        let moved = point.minus(self.furthest);
        let (along, across) = (moved.dot(direction), moved.cross(direction));
        let is_back = along < 0 && across.abs() <= -along;
        let is_further = if self.wrong { along <= 0 } else { along >= 0 };
        if moved.squared() >= distance * distance {
            (self.furthest, self.wrong) = (point, is_back);
        } else if is_further {
            self.furthest = point;
        }
        self.wrong
    }
}
