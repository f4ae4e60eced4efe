//! The times of the week at which a line or zone is active, and the time of the day at which its totals begin again.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const DAY: i64 = 24 * 3600;

/// A clock that is set back by so many seconds does not begin a day for totals twice.
const SET_BACK: i64 = 600;

/// The clock is not set while it shows an earlier time: 2020-01-01, in nanoseconds since 1970.
const CLOCK_IS_SET: u64 = 1_577_836_800_000_000_000;

/// A part of days by local time. If `to` is not later than `from`, it ends on the next day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveTime {
    /// The days on which it begins, Monday first.
    pub days: [bool; 7],
    /// The minute of the day with which it begins.
    pub from: u16,
    /// The minute of the day with which it is over.
    pub to: u16,
}

impl ActiveTime {
    fn contains(&self, weekday: usize, minute: u16) -> bool {
        let begins_on = |weekday: usize| self.days.get(weekday % 7).is_some_and(|begins| *begins);
        if self.from < self.to {
            begins_on(weekday) && (self.from..self.to).contains(&minute)
        } else {
            begins_on(weekday) && minute >= self.from || begins_on(weekday + 6) && minute < self.to
        }
    }
}

/// When a line or zone is active, and when its totals begin again, by the clock on the wall.
///
/// At the end of daylight saving time, an hour happens twice, so a rule is active in both, and at its start the hour is missing.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The times at which it is active; always if there are none.
    pub active: Vec<ActiveTime>,
    /// The minute of the day with which totals go to 0.
    pub reset: Option<u16>,
    /// The time zone of all these.
    pub time_zone: TimeZone,
}

/// The result of a look at a [`Schedule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) is_active: bool,
    /// The number of the day for totals, which begins with the time of `reset`; `None` while the clock is not set.
    pub(super) day: Option<i64>,
    /// Nothing changes before this time, in nanoseconds since 1970.
    pub(super) until_ns: u64,
}

impl Schedule {
    /// Whether a day for totals has begun at a time in nanoseconds since 1970, or is about to. It may have while the local time is of the day
    /// before: an hour that happens twice is of the later day.
    pub(super) fn has_begun(&self, day: i64, realtime_ns: u64) -> bool {
        let reset = i64::from(self.reset.unwrap_or_default()) * MINUTE;
        let local = SignedDuration::from_secs(day.saturating_mul(DAY).saturating_add(reset));
        let begin = DateTime::constant(1970, 1, 1, 0, 0, 0, 0).checked_add(local);
        // Of an hour that happens twice, the first.
        let begin = begin.and_then(|begin| self.time_zone.to_timestamp(begin));
        begin.is_ok_and(|begin| (realtime_ns / 1_000_000_000) as i64 + SET_BACK >= begin.as_second())
    }

    /// Looks at a time in nanoseconds since 1970. While the clock is not set, the rule is active, so that nothing is missed.
    pub(super) fn look(&self, realtime_ns: u64) -> Look {
        let seconds = (realtime_ns / 1_000_000_000) as i64;
        let time = Timestamp::from_second(seconds).ok().filter(|_| realtime_ns >= CLOCK_IS_SET);
        let Some(time) = time else {
            // u64 nanoseconds end before jiff's instants.
            return Look { is_active: true, day: None, until_ns: CLOCK_IS_SET };
        };
        let local = seconds + i64::from(self.time_zone.to_offset(time).seconds());
        let (day, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        // 1970 began on a Thursday.
        let (weekday, minute) = ((day + 3).rem_euclid(7) as usize, (second / MINUTE) as u16);
        let is_active = self.active.is_empty() || self.active.iter().any(|active| active.contains(weekday, minute));
        let reset = i64::from(self.reset.unwrap_or_default()) * MINUTE;
        // The local time goes on evenly to the next change of the clock, and nothing changes between two of these times of the day.
        let marks = self.active.iter().flat_map(|active| [active.from, active.to]).chain(self.reset);
        let to_mark = |mark: u16| match (i64::from(mark) * MINUTE).rem_euclid(DAY) - second {
            passed @ ..=0 => passed + DAY,
            ahead => ahead,
        };
        let next_mark = seconds + marks.map(to_mark).min().unwrap_or(DAY);
        let change = self.time_zone.following(time).next().map(|change| change.timestamp());
        let next = change.map_or(next_mark, |change| change.as_second().min(next_mark));
        let until_ns = u64::try_from(next).unwrap_or_default().saturating_mul(1_000_000_000);
        Look { is_active, day: Some((local - reset).div_euclid(DAY)), until_ns }
    }
}

#[cfg(test)]
mod tests;
