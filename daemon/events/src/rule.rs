//! Rules, as the caller writes them, and what is wrong with them.

use std::sync::Arc;
use std::time::Duration;

use crate::object::{Anchor, Filter};

/// Points that a line or zone may have.
pub const MOST_POINTS: usize = 1000;
/// Rules that a scene may have.
pub const MOST_RULES: usize = 256;

/// What a rule looks for. Distances are in pixels of the frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Objects that cross a line: a [`Moment`](crate::Phase::Moment) each.
    ///
    /// A crossing counts when an object is settled on one side and then on the other, and its path between them crosses the line more often
    /// to that side than back. The side of its first sighting counts as settled. A sighting exactly on the line is on neither side.
    Line {
        /// Two or more points. The line ends at the first and the last.
        points: Vec<[f32; 2]>,
        /// Names of the sides: to the left and to the right of somebody who walks along the line, in an image whose y axis points down.
        sides: [Arc<str>; 2],
    },
    /// Visits of a zone: an event for each object, from entering to leaving.
    Zone,
    /// Objects that are in the zone for `time` without leaving.
    Dwell {
        /// The time from the first sighting inside.
        time: Duration,
    },
    /// Objects that are in the zone for `time` in total.
    Loitering {
        /// The total of all visits.
        time: Duration,
        /// How long a track may be outside before its total begins again.
        away: Duration,
    },
    /// The number of objects in the zone, when it lasts within limits. With `at_least`, it is a crowd.
    Occupancy {
        /// The least number that counts.
        at_least: Option<u32>,
        /// The greatest number that counts.
        at_most: Option<u32>,
        /// How long the number must be within the limits.
        lasting: Duration,
    },
    /// No object in the zone for `time`.
    Absence {
        /// The time since the last one left, or since the first frame.
        time: Duration,
    },
    /// Objects in the zone that stay at a place for `time`.
    Stopped {
        /// How far apart, in x and in y, the anchor's positions at one place may be.
        distance: f32,
        /// How long it must stay.
        time: Duration,
    },
    /// Objects in the zone that move against a direction.
    WrongWay {
        /// The right direction, in pixels to the right and down; its length does not matter.
        direction: [f32; 2],
        /// How far an object must move within 45° of the opposite direction. So far it must then move otherwise for the event to end.
        distance: f32,
    },
    /// Objects in the zone that move faster or slower than a limit.
    Speed {
        /// Four points of the frame, and where these are on the ground, in metres or any other unit. No three may be on a line.
        plane: [([f32; 2], [f32; 2]); 4],
        /// The least speed that counts, in units per second.
        at_least: Option<f32>,
        /// The greatest speed that counts, in units per second.
        at_most: Option<f32>,
        /// The speed is that between two sightings at least this far apart: at most a quarter and two frames further.
        over: Duration,
    },
    /// Objects that stay at a place in the zone for `time`, while their owner is not near.
    LeftBehind(Belonging),
    /// Objects that stayed at a place in the zone for `time`, and then moved or vanished while their owner was not near: a
    /// [`Moment`](crate::Phase::Moment) each.
    TakenAway(Belonging),
}

/// An object and its owner.
///
/// The owner is the nearest object of the classes in `owners` that is within `near` while the object moves or has just appeared. If there
/// is none, or if its track ends within `near`, each object of these classes counts as the owner.
#[derive(Debug, Clone, PartialEq)]
pub struct Belonging {
    /// How far apart, in x and in y, the anchor's positions at one place may be.
    pub distance: f32,
    /// How long it must stay, and for [`Kind::LeftBehind`] how long the owner must be away meanwhile.
    pub time: Duration,
    /// Classes of owners. If there are none, no owner is ever near.
    pub owners: Vec<u32>,
    /// How far apart the anchors of object and owner may be.
    pub near: f32,
}

impl Kind {
    /// Whether its events have a duration, so that other rules can depend on it.
    pub(crate) fn lasts(&self) -> bool {
        !matches!(self, Self::Line { .. } | Self::TakenAway(_))
    }
}

/// A rule over the tracks of a camera.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// A name that no other rule of the scene has.
    pub name: Arc<str>,
    /// What it looks for.
    pub kind: Kind,
    /// The corners of the zone, in pixels of the frame; the whole frame if empty. A line has none.
    pub area: Vec<[f32; 2]>,
    /// Which objects it sees.
    pub filter: Filter,
    /// The point of an object that counts.
    pub anchor: Anchor,
    /// How long an object must be seen inside or outside, or on a side of a line, before that counts; 0.2 s. With 0, a path that touches a
    /// zone between two frames enters and leaves it.
    pub settle: Duration,
    /// How long an object may be unseen by the rule without a break; 1 s. After a break it counts as a new one.
    pub hold: Duration,
    /// Whether an object that stayed at its place for [`PARKED_AFTER`](crate::PARKED_AFTER) may be unseen for
    /// [`PARKED_UNSEEN`](crate::PARKED_UNSEEN), if it is then found at its place, even as another track.
    pub parked: bool,
    /// Names of rules of which each must have an event under way, or this rule has none.
    pub only_while: Vec<Arc<str>>,
    /// Names of rules of which none may have an event under way.
    pub unless: Vec<Arc<str>>,
}

impl Rule {
    /// Makes a rule for the whole frame with the defaults.
    pub fn new(name: &str, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
            area: Vec::new(),
            filter: Filter::default(),
            anchor: Anchor::default(),
            settle: Duration::from_millis(200),
            hold: Duration::from_secs(1),
            parked: false,
            only_while: Vec::new(),
            unless: Vec::new(),
        }
    }
}

/// Why rules were rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// The frame has no area or is too large.
    #[error("frame of {width}x{height} pixels: each side must be 1 to 65,536")]
    FrameSize {
        /// The width.
        width: u32,
        /// The height.
        height: u32,
    },
    /// A scene has more than [`MOST_RULES`].
    #[error("{found} rules: remove some, a scene takes {MOST_RULES}")]
    TooManyRules {
        /// Their number.
        found: usize,
    },
    /// Two rules have one name.
    #[error("two rules have the name `{name}`: rename one")]
    SameName {
        /// The name.
        name: Arc<str>,
    },
    /// A line or zone has more than [`MOST_POINTS`].
    #[error("rule `{rule}` has {found} points: use at most {MOST_POINTS}")]
    TooManyPoints {
        /// The rule.
        rule: Arc<str>,
        /// The number of points.
        found: usize,
    },
    /// A line has no length.
    #[error("rule `{rule}`: a line must have two or more different points")]
    NoLine {
        /// The rule.
        rule: Arc<str>,
    },
    /// A zone has no area.
    #[error("rule `{rule}`: a zone must have three or more points that are not on one line")]
    NoArea {
        /// The rule.
        rule: Arc<str>,
    },
    /// A line has a zone as well.
    #[error("rule `{rule}` is a line and has an area: remove the area")]
    AreaOfLine {
        /// The rule.
        rule: Arc<str>,
    },
    /// A number is out of its range.
    #[error("rule `{rule}`: {problem}")]
    Range {
        /// The rule.
        rule: Arc<str>,
        /// What the number must be.
        problem: &'static str,
    },
    /// The four points of a plane do not define it.
    #[error(
        "rule `{rule}`: the plane must have four points of which no three are on a line, in the same order in the frame and on the ground"
    )]
    Plane {
        /// The rule.
        rule: Arc<str>,
    },
    /// A rule depends on one that does not exist.
    #[error("rule `{rule}` depends on `{on}`, which does not exist: use the name of a rule of the same camera")]
    UnknownCondition {
        /// The rule.
        rule: Arc<str>,
        /// The name.
        on: Arc<str>,
    },
    /// A rule depends on one whose events have no duration.
    #[error("rule `{rule}` depends on `{on}`, whose events have no duration: use another kind of rule")]
    MomentCondition {
        /// The rule.
        rule: Arc<str>,
        /// The other rule.
        on: Arc<str>,
    },
    /// Rules depend on each other in a circle.
    #[error("rule `{rule}` depends on itself through other rules: remove a condition")]
    Circle {
        /// A rule of the circle.
        rule: Arc<str>,
    },
}
