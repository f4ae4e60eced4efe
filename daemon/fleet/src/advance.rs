//! How a rollout proceeds from wave to wave.

use sha2::{Digest, Sha256};
use visiond_bundle::rollout::Step;

use crate::desired::{Desired, EVERY_PLACE, Progress};
use crate::reported::BundleReport;

/// A device of the group, as far as a rollout needs it.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// Its name.
    pub device: &'a str,
    /// What it reports about the bundle.
    pub report: &'a BundleReport,
    /// When the report arrived, in seconds since 1970.
    pub seen_unix_s: u64,
    /// Whether it has a pin, and so takes no part.
    pub is_pinned: bool,
}

/// How a rollout fares on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It takes no part: it is pinned, or has a newer version.
    Apart,
    /// It is not its turn.
    Waiting,
    /// It is its turn, and it has not finished.
    Busy,
    /// The same, but it did not report for a while.
    Offline,
    /// It uses the version, and has watched it.
    Succeeded,
    /// It refused the version, or went back from it.
    Failed,
}

/// Devices of a group by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// See [`Outcome::Apart`].
    pub apart: usize,
    /// See [`Outcome::Waiting`].
    pub waiting: usize,
    /// See [`Outcome::Busy`].
    pub busy: usize,
    /// See [`Outcome::Offline`].
    pub offline: usize,
    /// See [`Outcome::Succeeded`].
    pub succeeded: usize,
    /// See [`Outcome::Failed`].
    pub failed: usize,
}

/// How a rollout stands, and what follows from that.
#[derive(Debug, Clone, PartialEq)]
pub struct Advance {
    /// The devices of the group.
    pub counts: Counts,
    /// The record to write, if the rollout goes on or stops.
    pub next: Option<Desired>,
}

/// Returns the place of a device in a rollout: the first 32 bits of SHA-256 over `ROLLOUT/DEVICE`. Each rollout has another order, so
/// that not the same devices always come first.
pub fn place(device: &str, rollout: &str) -> u32 {
    let hash = Sha256::digest(format!("{rollout}/{device}"));
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

/// Returns whether a device may use the version now.
pub fn is_admitted(device: &str, desired: &Desired) -> bool {
    place_in(device, desired) < desired.admitted
}

/// Returns the place of a device, or 0 if it comes before all others.
fn place_in(device: &str, desired: &Desired) -> u64 {
    if desired.first.iter().any(|first| first == device) {
        return 0;
    }
    u64::from(place(device, &desired.rollout)).max(1)
}

/// Returns how a rollout fares on a device at the time `now_unix_s`.
pub fn outcome(desired: &Desired, member: &Member<'_>, now_unix_s: u64) -> Outcome {
    let (report, version) = (member.report, Some(desired.version));
    let is_about = report.version == version;
    if member.is_pinned {
        return Outcome::Apart;
    }
    let has_failed = is_about && matches!(report.step, Step::Refused | Step::WentBack);
    let has_it = match desired.left() {
        // Whichever version it had before that one.
        Some(left) => report.current.is_some_and(|current| current < left),
        None => report.current == version,
    };
    let is_under_way =
        matches!(report.step, Step::Fetching | Step::Building | Step::Proving | Step::Comparing | Step::Watching);
    let is_newer = report.current > version && !desired.is_rollback;
    if !is_admitted(member.device, desired) {
        // What it did by itself says nothing about the rollout.
        return if has_failed || has_it || is_newer { Outcome::Apart } else { Outcome::Waiting };
    }
    if has_failed {
        return Outcome::Failed;
    }
    if has_it && !is_under_way {
        return Outcome::Succeeded;
    }
    if is_newer {
        return Outcome::Apart;
    }
    let is_online = now_unix_s.saturating_sub(member.seen_unix_s) <= desired.limits.offline_after_s;
    if is_online { Outcome::Busy } else { Outcome::Offline }
}

/// Decides how a rollout proceeds, from the reports of all devices of the group that follow the bundle.
pub fn advance(desired: &Desired, members: &[Member<'_>], now_unix_s: u64) -> Advance {
    let mut counts = Counts::default();
    for member in members {
        *match outcome(desired, member, now_unix_s) {
            Outcome::Apart => &mut counts.apart,
            Outcome::Waiting => &mut counts.waiting,
            Outcome::Busy => &mut counts.busy,
            Outcome::Offline => &mut counts.offline,
            Outcome::Succeeded => &mut counts.succeeded,
            Outcome::Failed => &mut counts.failed,
        } += 1;
    }
    let next = (desired.progress == Progress::Running).then(|| next(desired, &counts, members, now_unix_s)).flatten();
    Advance { counts, next }
}

impl Counts {
    /// The share of failed devices among those whose turn it was, in percent.
    pub fn failed_percent(&self) -> f64 {
        percent(self.failed, self.succeeded + self.failed + self.busy + self.offline)
    }

    /// The share of succeeded devices among those whose turn it was and that are online, in percent.
    pub fn succeeded_percent(&self) -> f64 {
        percent(self.succeeded, self.succeeded + self.failed + self.busy)
    }
}

/// Percent; 0 of nothing.
fn percent(part: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

fn next(desired: &Desired, counts: &Counts, members: &[Member<'_>], now_unix_s: u64) -> Option<Desired> {
    let limits = &desired.limits;
    if counts.failed_percent() > limits.max_failed_percent {
        let admitted = counts.succeeded + counts.failed + counts.busy + counts.offline;
        let (failed, most) = (counts.failed, limits.max_failed_percent);
        let reason = format!("{failed} of {admitted} devices failed, more than {most} %");
        return Some(Desired { progress: Progress::Stopped, reason: Some(reason), ..desired.clone() });
    }
    if counts.succeeded + counts.busy + counts.offline + counts.waiting == 0 && counts.failed + counts.apart > 0 {
        let (progress, reason) = match counts.failed {
            0 => (Progress::Done, None),
            failed => (Progress::Stopped, Some(format!("{failed} of {failed} devices failed"))),
        };
        return Some(Desired { progress, reason: reason.or_else(|| desired.reason.clone()), ..desired.clone() });
    }
    let are_enough = counts.succeeded > 0 && counts.succeeded_percent() >= limits.min_succeeded_percent;
    // A device that comes later does not begin the soak again.
    let succeeded_since = desired.succeeded_since_unix_s.or(are_enough.then_some(now_unix_s));
    // A clock that was set back makes a wave longer.
    let has_soaked = succeeded_since.is_some_and(|since| now_unix_s.saturating_sub(since) >= limits.soak_s);
    if !are_enough || !has_soaked {
        // Devices that have come since are a part of the share.
        let admitted = admit(desired, members, now_unix_s).max(desired.admitted);
        let same = Desired { admitted, succeeded_since_unix_s: succeeded_since, ..desired.clone() };
        return (same != *desired).then_some(same);
    }
    let wave = desired.wave + 1;
    if wave >= desired.waves.len() {
        // No wave is left in which the last devices could still fail.
        return (counts.busy == 0).then(|| Desired {
            progress: Progress::Done,
            admitted: EVERY_PLACE,
            ..desired.clone()
        });
    }
    let begun = Desired { wave, wave_since_unix_s: now_unix_s, succeeded_since_unix_s: None, ..desired.clone() };
    Some(Desired { admitted: admit(&begun, members, now_unix_s).max(desired.admitted), ..begun })
}

/// Returns [`Desired::admitted`] for the wave of `desired`: the share of the group's devices, rounded up, but all of [`Desired::first`].
/// If none of these is online, it reaches to the first one that is, but has at most twice as many devices.
pub fn admit(desired: &Desired, members: &[Member<'_>], now_unix_s: u64) -> u64 {
    let share = desired.share();
    if share >= 100.0 {
        return EVERY_PLACE;
    }
    let is_online =
        |member: &Member<'_>| now_unix_s.saturating_sub(member.seen_unix_s) <= desired.limits.offline_after_s;
    let takes_part = members.iter().filter(|member| !member.is_pinned);
    let mut places: Vec<_> = takes_part.map(|member| (place_in(member.device, desired), is_online(member))).collect();
    places.sort_unstable();
    let first = places.iter().take_while(|(place, _)| *place == 0).count();
    let wanted = ((places.len() as f64 * share / 100.0).ceil() as usize).max(first);
    let first_online = places.iter().position(|(_, is_online)| *is_online).map_or(0, |index| index + 1);
    // In a group without devices, the share of those that come.
    let Some(last) = wanted.max(first_online.min(wanted * 2)).checked_sub(1).and_then(|last| places.get(last)) else {
        return (EVERY_PLACE as f64 * share / 100.0) as u64;
    };
    last.0 + 1
}
