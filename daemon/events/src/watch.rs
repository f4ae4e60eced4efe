//! Whether an object's owner is near.

use std::time::Duration;

use crate::geometry::Point;
use crate::settled::Settled;
use crate::stillness::Stillness;

/// The owner of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// No owner was near while it moved, or its owner's track ended near it.
    Unknown,
    /// A track, which was near at the last sighting or not.
    Track { id: u64, near: bool },
    /// Its owner's track ended elsewhere.
    Gone,
}

/// An object, its place and its owner.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    still: Stillness,
    owner: Owner,
    attended: Settled<bool>,
}

/// The tracks around an object that may be its owner.
pub(crate) trait Neighbours {
    /// Whether a track of the owners' classes is within reach; `None` if there is no such track any more.
    fn is_near(&self, id: u64) -> Option<bool>;
    /// The nearest track of the owners' classes that this frame shows within reach.
    fn nearest(&self) -> Option<u64>;
}

/// The state of an object after a sighting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// Since when it is at its place.
    pub(crate) still_since: Duration,
    /// Since when its owner is away; `None` while the owner is near.
    pub(crate) alone_since: Option<Duration>,
    /// If it has moved from its place: since when it was there.
    pub(crate) moved_from: Option<Duration>,
}

impl Watch {
    pub(crate) fn new(point: Point, now: Duration) -> Self {
        Self { still: Stillness::new(point, now), owner: Owner::Unknown, attended: Settled::new(false, now) }
    }

    /// Since when the object is at its place, and alone.
    pub(crate) fn known(&self) -> Watched {
        Watched {
            still_since: self.still.since(),
            alone_since: (!self.attended.state).then_some(self.attended.since),
            moved_from: None,
        }
    }

    /// Takes a sighting.
    pub(crate) fn sight(
        &mut self,
        point: Point,
        neighbours: &impl Neighbours,
        now: Duration,
        distance: i64,
        settle: Duration,
    ) -> Watched {
        let place_since = self.still.since();
        let moved = self.still.sight(point, now, distance, settle);
        let is_new = now.saturating_sub(self.still.since()) < settle || self.still.since() == now;
        if is_new && let Some(id) = neighbours.nearest() {
            self.owner = Owner::Track { id, near: true };
        }
        if let Owner::Track { id, near } = self.owner {
            self.owner = match neighbours.is_near(id) {
                Some(near) => Owner::Track { id, near },
                None if near => Owner::Unknown,
                None => Owner::Gone,
            };
        }
        let attended = match self.owner {
            Owner::Unknown => neighbours.nearest().is_some(),
            Owner::Track { near, .. } => near,
            Owner::Gone => false,
        };
        self.attended.sight(attended, now, settle);
        Watched { moved_from: moved.then_some(place_since), ..self.known() }
    }
}
