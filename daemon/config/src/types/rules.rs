//! `[[camera.line]]` and `[[camera.zone]]`: what is reported about a camera's tracks.

use std::time::Duration;

use visiond_kernels::frame::MAX_SIDE;

use super::{HOUR, MS, SECOND};
use crate::kinds::{
    Words, duration, duration_or_zero, flag, fraction, frame_size, label, list, metres, name, one_of_with_hints,
    points, real, text, time_of_day, whole,
};
use crate::table_macros::section;
use crate::tables::{table, tables};

/// The minutes of a day that are the last and the end.
const LAST_MINUTE: u16 = MIDNIGHT - 1;
const MIDNIGHT: u16 = 24 * 60;

const DAY: Duration = Duration::from_secs(24 * 3600);

section! {
    /// A table `[[camera.line]]`.
    pub struct LineConfig {
        /// Name of the line in events. No other line or zone of the camera has it.
        name: String as name() => required(r#""door""#),
        /// Whether it counts. Its totals stay while it does not.
        enabled: bool as flag() => default(true),
        /// The points in order, 2 to 64, as fractions of the frame's width and height from its top-left corner. The line ends at the first and
        /// at the last.
        points: Vec<[f64; 2]> as points() => required("[[0.2, 0.6], [0.8, 0.6]]"),
        /// The points are pixels of a frame of this width and height. They keep their places if the camera's frames have another size.
        frame_size: Option<[u32; 2]> as frame_size() => optional("[1920, 1080]"),
        /// Names of the two sides: to the left and to the right of somebody who walks along the line.
        sides: Vec<String> as list(name()) => default(vec!["left".to_owned(), "right".to_owned()]),
        /// Count only objects of these classes, by label; empty: all.
        classes: Vec<String> as list(label()) => default(Vec::new()),
        /// Count only objects with this score.
        min_score: f64 as fraction() => default(0.0),
        /// Count only boxes whose longer side has at least this many pixels of the frame.
        min_size: Option<u32> as whole(1..=MAX_SIDE) => optional("24"),
        /// Count only boxes whose longer side has at most this many pixels of the frame.
        max_size: Option<u32> as whole(1..=MAX_SIDE) => optional("400"),
        /// The point of a box that crosses: the middle of an edge, or the center.
        anchor: Anchor as one_of_with_hints(Anchor::words(), other_anchor) => default(Anchor::Bottom),
        /// How long an object must be seen on a side before that counts.
        settle: Duration as duration_or_zero(MS..=HOUR) => default(200 * MS),
        /// How long an object may be unseen without losing its side.
        hold: Duration as duration(10 * MS..=HOUR) => default(SECOND),
        /// Count only while each of these has an event under way: the visits of a zone, "dock", or what it also reports, "dock/dwell".
        only_while: Vec<String> as list(text()) => default(Vec::new()),
        /// Count only while none of these has an event under way.
        unless: Vec<String> as list(text()) => default(Vec::new()),
        /// The local time of the day at which its totals begin again at 0.
        reset: Option<u16> as time_of_day(LAST_MINUTE) => optional(r#""00:00""#),
        /// A time of the week at which it counts. There may be several. Without it, always.
        active: Vec<ActiveConfig> as tables() => part,
    }
}

section! {
    /// A table `[[camera.zone]]`.
    pub struct ZoneConfig {
        /// Name of the zone in events. No other line or zone of the camera has it.
        name: String as name() => required(r#""dock""#),
        /// Whether it reports. Its totals stay while it does not.
        enabled: bool as flag() => default(true),
        /// The corners in order, 3 to 64, as fractions of the frame's width and height from its top-left corner; empty: the whole frame.
        polygon: Vec<[f64; 2]> as points() => default(Vec::new()),
        /// The corners are pixels of a frame of this width and height. They keep their places if the camera's frames have another size.
        frame_size: Option<[u32; 2]> as frame_size() => optional("[1920, 1080]"),
        /// Report each visit: an event from entering to leaving.
        visits: bool as flag() => default(true),
        /// Report an object that is in the zone for this long without leaving.
        dwell: Option<Duration> as duration(10 * MS..=DAY) => optional(r#""30s""#),
        /// Report an object that is in the zone for this long in total.
        loitering: Option<Duration> as duration(10 * MS..=DAY) => optional(r#""2m""#),
        /// Report when no object was in the zone for this long.
        absence: Option<Duration> as duration(10 * MS..=DAY) => optional(r#""10m""#),
        /// Report that the number of objects in the zone is within limits.
        occupancy: Option<OccupancyConfig> as table() => optional_part,
        /// Report an object that stops.
        stopped: Option<StoppedConfig> as table() => optional_part,
        /// Report an object that moves against the right direction.
        wrong_way: Option<WrongWayConfig> as table() => optional_part,
        /// Report an object that moves faster or slower than a limit. Requires the camera's table `ground`.
        speed: Option<SpeedConfig> as table() => optional_part,
        /// Report an object that stays while its owner is away, such as a bag.
        left_behind: Option<BelongingConfig> as table() => optional_part,
        /// Report an object that stood still, and then moves or vanishes while its owner is away.
        taken_away: Option<BelongingConfig> as table() => optional_part,
        /// See only objects of these classes, by label; empty: all.
        classes: Vec<String> as list(label()) => default(Vec::new()),
        /// See only objects with this score.
        min_score: f64 as fraction() => default(0.0),
        /// See only boxes whose longer side has at least this many pixels of the frame.
        min_size: Option<u32> as whole(1..=MAX_SIDE) => optional("24"),
        /// See only boxes whose longer side has at most this many pixels of the frame.
        max_size: Option<u32> as whole(1..=MAX_SIDE) => optional("400"),
        /// The point of a box that is inside or outside: the middle of an edge, or the center.
        anchor: Anchor as one_of_with_hints(Anchor::words(), other_anchor) => default(Anchor::Bottom),
        /// How long an object must be seen inside or outside before that counts. With 0, a path that passes through the zone between two
        /// frames enters and leaves it.
        settle: Duration as duration_or_zero(MS..=HOUR) => default(200 * MS),
        /// How long an object may be unseen without leaving.
        hold: Duration as duration(10 * MS..=HOUR) => default(SECOND),
        /// An object that stands still, such as a parked car, may be unseen for longer if it is then found at its place.
        parked: bool as flag() => default(false),
        /// Report only while each of these has an event under way: the visits of a zone, "dock", or what it also reports, "dock/dwell".
        only_while: Vec<String> as list(text()) => default(Vec::new()),
        /// Report only while none of these has an event under way.
        unless: Vec<String> as list(text()) => default(Vec::new()),
        /// The local time of the day at which its totals begin again at 0.
        reset: Option<u16> as time_of_day(LAST_MINUTE) => optional(r#""00:00""#),
        /// A time of the week at which it reports. There may be several. Without it, always.
        active: Vec<ActiveConfig> as tables() => part,
    }
}

section! {
    /// A time of the week, by the local clock.
    pub struct ActiveConfig {
        /// The days on which it begins; empty: every day.
        days: Vec<Weekday> as list(one_of_with_hints(Weekday::words(), other_days)) => default(Vec::new()),
        /// When it begins.
        from: u16 as time_of_day(LAST_MINUTE) => default(0),
        /// When it is over: on the next day, if that is earlier than `from`.
        to: u16 as time_of_day(MIDNIGHT) => default(MIDNIGHT),
    }
    example: r#"{ days = ["sat", "sun"], from = "22:00", to = "06:00" }"#
}

section! {
    /// The number of objects in a zone.
    pub struct OccupancyConfig {
        /// Report at least this many.
        at_least: Option<u32> as whole(1..=100_000) => optional("5"),
        /// Report at most this many.
        at_most: Option<u32> as whole(0..=100_000) => optional("20"),
        /// How long the number must be within the limits.
        lasting: Duration as duration_or_zero(10 * MS..=DAY) => default(SECOND),
    }
    example: "{ at_least = 3 }"
}

section! {
    /// When an object counts as stopped.
    pub struct StoppedConfig {
        /// How long it must stay.
        time: Duration as duration(10 * MS..=DAY) => default(10 * SECOND),
        /// How far it may move meanwhile, in pixels of the frame.
        distance: f64 as real(0.1..=f64::from(MAX_SIDE)) => default(20.0),
    }
    example: r#"{ time = "10 s" }"#
}

section! {
    /// The right direction of a zone.
    pub struct WrongWayConfig {
        /// The right direction, from the first point to the second, as `polygon`.
        direction: Vec<[f64; 2]> as points() => required("[[0.5, 0.9], [0.5, 0.1]]"),
        /// How far an object must move against it, in pixels of the frame.
        distance: f64 as real(1.0..=f64::from(MAX_SIDE)) => default(50.0),
    }
    example: "{ direction = [[0.5, 0.9], [0.5, 0.1]] }"
}

section! {
    /// The limits of a speed.
    pub struct SpeedConfig {
        /// Report this speed and higher ones, in km/h.
        at_least_kmh: Option<f64> as real(0.1..=1000.0) => optional("30"),
        /// Report this speed and lower ones, in km/h.
        at_most_kmh: Option<f64> as real(0.1..=1000.0) => optional("80"),
        /// Measure the speed between two places of the object that are this long apart. A longer time measures more exactly.
        over: Duration as duration(100 * MS..=60 * SECOND) => default(500 * MS),
    }
    example: "{ at_least_kmh = 30 }"
}

section! {
    /// An object that has an owner.
    pub struct BelongingConfig {
        /// Classes of the objects, by label, in place of the zone's `classes`. They need tracks.
        classes: Vec<String> as list(label()) => required(r#"["backpack", "suitcase"]"#),
        /// How long the object must stay; until `left_behind` is reported, its owner must be away as long.
        time: Duration as duration(10 * MS..=DAY) => default(30 * SECOND),
        /// How far it may move meanwhile, in pixels of the frame.
        distance: f64 as real(0.1..=f64::from(MAX_SIDE)) => default(20.0),
        /// Classes of owners, by label; empty: no object has an owner. They need tracks.
        owners: Vec<String> as list(label()) => default(vec!["person".to_owned()]),
        /// How far an owner may be from the object, from `anchor` to `anchor`, in pixels of the frame.
        near: f64 as real(1.0..=f64::from(MAX_SIDE)) => default(200.0),
    }
    example: r#"{ classes = ["suitcase"] }"#
}

section! {
    /// Four points of a flat ground, in the frame and in metres.
    pub struct GroundConfig {
        /// Four points of the frame, in order around the area, as fractions of its width and height from the top-left corner. No three
        /// may be on a line.
        points: Vec<[f64; 2]> as points() => required("[[0.3, 0.4], [0.6, 0.4], [0.9, 0.9], [0.1, 0.9]]"),
        /// The points are pixels of a frame of this width and height. They keep their places if the camera's frames have another size.
        frame_size: Option<[u32; 2]> as frame_size() => optional("[1920, 1080]"),
        /// Positions of these points on the ground in the same order, in metres from any origin: to the right, then away from the camera.
        metres: Vec<[f64; 2]> as metres() => required("[[0, 20], [7, 20], [7, 0], [0, 0]]"),
    }
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weekday {
    /// Monday.
    Monday,
    /// Tuesday.
    Tuesday,
    /// Wednesday.
    Wednesday,
    /// Thursday.
    Thursday,
    /// Friday.
    Friday,
    /// Saturday.
    Saturday,
    /// Sunday.
    Sunday,
}

words!(Weekday: "mon" = Self::Monday, "tue" = Self::Tuesday, "wed" = Self::Wednesday, "thu" = Self::Thursday, "fri" = Self::Friday,
    "sat" = Self::Saturday, "sun" = Self::Sunday);

/// Returns the days that a lower-case word probably means, if it is no day's name.
fn other_days(word: &str) -> Option<&'static str> {
    Some(match word {
        "monday" => "write \"mon\"",
        "tuesday" | "tues" => "write \"tue\"",
        "wednesday" => "write \"wed\"",
        "thursday" | "thur" | "thurs" => "write \"thu\"",
        "friday" => "write \"fri\"",
        "saturday" => "write \"sat\"",
        "sunday" => "write \"sun\"",
        "mon-fri" | "weekday" | "weekdays" | "workday" | "workdays" => {
            "write each day, [\"mon\", \"tue\", \"wed\", \"thu\", \"fri\"]"
        }
        "sat-sun" | "weekend" | "weekends" => "write each day, [\"sat\", \"sun\"]",
        "mon-sun" | "daily" | "every day" | "everyday" | "all" => "remove `days`, which is every day",
        _ => return None,
    })
}

/// The point of a box that lines and zones look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The middle of the lower edge.
    Bottom,
    /// The center.
    Center,
    /// The middle of the upper edge.
    Top,
    /// The middle of the left edge.
    Left,
    /// The middle of the right edge.
    Right,
}

words!(Anchor: "bottom" = Self::Bottom, "center" = Self::Center, "top" = Self::Top, "left" = Self::Left, "right" = Self::Right);

/// Returns the anchor that a lower-case word of another program probably means.
fn other_anchor(word: &str) -> Option<&'static str> {
    Some(match word {
        "bottom_center" | "bottom-center" | "foot" | "feet" => "write \"bottom\"",
        "top_center" | "top-center" | "head" => "write \"top\"",
        "center_left" | "center-left" => "write \"left\"",
        "center_right" | "center-right" => "write \"right\"",
        "center_of_mass" | "centroid" | "centre" | "middle" => "write \"center\"",
        "bottom_left" | "bottom-left" | "bottom_right" | "bottom-right" => {
            "a corner cannot be an anchor, write \"bottom\""
        }
        "top_left" | "top-left" | "top_right" | "top-right" => "a corner cannot be an anchor, write \"top\"",
        _ => return None,
    })
}
