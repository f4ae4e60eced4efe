//! What a scene reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::path::Path;
use crate::rule::Kind;

/// Gives each event of every camera an id that no other event of this process has. Scenes share one by `Arc`; it counts from 1.
#[derive(Debug, Default)]
pub struct EventIds(AtomicU64);

impl EventIds {
    /// Returns the next id, from 1.
    pub fn take(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Where in its life an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It begins. An [`End`](Self::End) with the same id follows, whatever happens.
    Begin,
    /// Its count or its track's id has changed.
    Update,
    /// It is over.
    End,
    /// It has no duration: a crossing, or something that was taken away.
    Moment,
}

/// Why an event ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndReason {
    /// What it reports no longer holds.
    Over,
    /// The track ended.
    TrackEnded,
    /// The rule has not seen the object for longer than `hold`.
    TrackLost,
    /// No frame came for longer than `hold`.
    FramesMissing,
    /// A rule of `only_while` no longer holds, or one of `unless` does.
    Condition,
    /// The rule was switched off.
    RuleOff,
    /// The rule was removed or changed.
    RuleRemoved,
    /// The camera is gone or shows another scene.
    CameraGone,
    /// The program ends.
    Shutdown,
}

/// Something that a rule found.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The same from begin to end; no other event of any scene with the same [`EventIds`] has it.
    pub id: u64,
    /// The name of the rule.
    pub rule: Arc<str>,
    /// Where in its life it is.
    pub phase: Phase,
    /// The track that it is about; `None` for a count or an absence.
    pub track: Option<u64>,
    /// The time of the frame with which it was decided, by the caller's clock.
    pub at: Duration,
    /// How long before `at` this began: at a begin, what it reports; at an end, that it is over; at an update, nothing. At the end of a lost
    /// track, it was last seen that long ago.
    pub ago: Duration,
    /// The number of objects that a count has.
    pub count: Option<u32>,
    /// The speed at a begin of [`Kind::Speed`], in the unit of its plane per second.
    pub speed: Option<f32>,
    /// At an end, the way of the track's anchor since the begin. Empty for a count, and at other phases.
    pub path: Path,
    /// The side of a line that was crossed to.
    pub to: Option<Arc<str>>,
    /// Why it ended.
    pub reason: Option<EndReason>,
}

impl Event {
    /// Makes an event with nothing but what every event has.
    pub fn new(id: u64, rule: Arc<str>, phase: Phase, at: Duration) -> Self {
        let (ago, path) = (Duration::ZERO, Path::default());
        Self { id, rule, phase, track: None, at, ago, count: None, speed: None, path, to: None, reason: None }
    }
}

/// Totals of a rule since it was added, changed or [set](crate::Scene::set_totals), and `inside` and `under_way`, which are of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Events that began; for a zone, those that entered.
    pub begun: u64,
    /// Events that ended; for a zone, those that left.
    pub ended: u64,
    /// Crossings to the first and to the second side of a line.
    pub crossed_to: [u64; 2],
    /// Objects that were taken away.
    pub taken: u64,
    /// Objects inside now, whether or not conditions hold.
    pub inside: u32,
    /// Events under way.
    pub under_way: u32,
}

impl Counters {
    /// Returns the totals for a rule that is now of another kind: crossings count for the side of the same name.
    pub(crate) fn of(self, kind: &Kind, before: &Kind) -> Self {
        let (Kind::Line { sides, .. }, Kind::Line { sides: old, .. }) = (kind, before) else {
            return if std::mem::discriminant(kind) == std::mem::discriminant(before) {
                Self { inside: 0, under_way: 0, ..self }
            } else {
                Self::default()
            };
        };
        let crossed =
            |side| old.iter().zip(self.crossed_to).find(|(name, _)| *name == side).map_or(0, |(_, crossed)| crossed);
        Self { crossed_to: [crossed(&sides[0]), crossed(&sides[1])], inside: 0, under_way: 0, ..self }
    }
}

/// The events of a step, and the source of their ids.
pub(crate) struct Sink<'a> {
    pub(crate) events: &'a mut Vec<Event>,
    pub(crate) ids: &'a EventIds,
    /// By the caller's clock.
    pub(crate) at: Duration,
    /// Whether the number of objects inside a zone has changed.
    pub(crate) has_moves: bool,
}

impl Sink<'_> {
    /// Adds an event with the fields that every event has.
    pub(crate) fn push(&mut self, id: u64, rule: &Arc<str>, phase: Phase, track: Option<u64>) -> Option<&mut Event> {
        self.events.push(Event { track, ..Event::new(id, Arc::clone(rule), phase, self.at) });
        self.events.last_mut()
    }
}
