//! The objects of a frame, and which of them a rule sees.

use crate::geometry::{Bounds, Point, snap};

/// An object in a frame, with its track. Leave out tracks that the frame does not show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Object {
    /// The id of its track, which no other track has or had.
    pub track: u64,
    /// The box x1, y1, x2, y2 in pixels of the frame; may reach out of it. A box that is empty or not finite is no object.
    pub bounds: [f32; 4],
    /// The class of the track.
    pub class_id: u32,
    /// The confidence, 0 to 1.
    pub score: f32,
}

impl Object {
    /// The box in units; `None` if it is none.
    pub(crate) fn snapped(&self) -> Option<Bounds> {
        if !self.bounds.iter().all(|side| side.is_finite()) {
            return None;
        }
        let [left, top, right, bottom] = self.bounds.map(snap);
        let bounds = Bounds { left: left?, top: top?, right: right?, bottom: bottom? };
        (bounds.left < bounds.right && bounds.top < bounds.bottom).then_some(bounds)
    }
}

/// The point of a box that lines and zones look at. If it is outside the frame, the nearest point of the frame's edge counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Anchor {
    /// The middle of the lower edge: where a person stands.
    #[default]
    Bottom,
    /// The centre.
    Center,
    /// The middle of the upper edge.
    Top,
    /// The middle of the left edge.
    Left,
    /// The middle of the right edge.
    Right,
}

impl Anchor {
    /// The point of a box in a frame of `size` units. A half unit is rounded down.
    pub(crate) fn of(self, bounds: &Bounds, size: [i32; 2]) -> Point {
        let middle_x = (bounds.left + bounds.right) >> 1;
        let middle_y = (bounds.top + bounds.bottom) >> 1;
        let (x, y) = match self {
            Self::Bottom => (middle_x, bounds.bottom),
            Self::Center => (middle_x, middle_y),
            Self::Top => (middle_x, bounds.top),
            Self::Left => (bounds.left, middle_y),
            Self::Right => (bounds.right, middle_y),
        };
        Point { x: x.clamp(0, size[0]), y: y.clamp(0, size[1]) }
    }
}

/// Which objects a rule sees. One that fails for a few frames is a gap, see [`Rule::hold`](crate::Rule::hold).
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// The classes; all if empty.
    pub classes: Vec<u32>,
    /// The least score.
    pub min_score: f32,
    /// The least length of the whole box's longer side in pixels.
    pub min_size: f32,
    /// The greatest length of the longer side in pixels.
    pub max_size: f32,
}

impl Default for Filter {
    fn default() -> Self {
        Self { classes: Vec::new(), min_score: 0.0, min_size: 0.0, max_size: f32::INFINITY }
    }
}

/// A filter in units.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sieve {
    classes: Vec<u32>,
    min_score: f32,
    /// The least and the greatest.
    longer_side: [i32; 2],
}

impl Sieve {
    /// `None` if a number of the filter is NaN.
    pub(crate) fn new(filter: &Filter) -> Option<Self> {
        // A side is as long as from one limit of positions to the other at most.
        let max_size = if filter.max_size == f32::INFINITY { i32::MAX } else { snap(filter.max_size)? };
        Some(Self {
            classes: filter.classes.clone(),
            min_score: (!filter.min_score.is_nan()).then_some(filter.min_score)?,
            longer_side: [snap(filter.min_size)?, max_size],
        })
    }

    pub(crate) fn passes(&self, bounds: &Bounds, class_id: u32, score: f32) -> bool {
        let longer_side = (bounds.right - bounds.left).max(bounds.bottom - bounds.top);
        score >= self.min_score
            && (self.classes.is_empty() || self.classes.contains(&class_id))
            && (self.longer_side[0]..=self.longer_side[1]).contains(&longer_side)
    }
}
