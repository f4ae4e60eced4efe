//! The queue of access units between a session and a decoder: short, and never old. It first holds the stream's description, and
//! the session requests units once there is a decoder.
//!
//! When the decoder does not keep up, the queue drops everything up to its newest key frame. If it has none, it drops everything
//! and waits for the next one, because a decoder can start only there.
//!
//! After a loss in transit, it drops units that refer to lost frames, up to the next clean entry point (`continuity`), or marks
//! them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use visiond_config::types::DamagedFrames;
use visiond_frames::clock::Clock;
use visiond_frames::coded_ring::CodedRing;
use visiond_frames::frame::LossCause;
use visiond_system::stop::Stop;

use super::super::source::SourceError;
use super::access_unit::{Access, AccessUnit, Codec, Fate};
use super::coded_tap::CodedTap;
use super::continuity::{Continuity, Verdict};

/// How old a waiting unit may get: frames are late by at most that.
const MAX_AGE: Duration = Duration::from_secs(2);

/// How old a unit may be at a decoder's start, if there is a younger key frame.
const MAX_AGE_AT_START: Duration = Duration::from_millis(500);

/// The most bytes in the queue.
pub const MAX_BYTES: usize = 32 << 20;

/// How often a wait checks whether to end.
pub const STEP: Duration = Duration::from_millis(50);

/// The queue that a session writes to and a decoder reads from.
pub struct UnitQueue {
    state: Mutex<State>,
    changed: Condvar,
    clock: Arc<dyn Clock>,
    damaged: DamagedFrames,
    /// Gets the units as they come, for clips. Only the session locks it.
    tap: OnceLock<Mutex<CodedTap>>,
}

/// The stream's description by the camera, before it plays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub codec: Codec,
    /// The parameter sets in Annex B; empty if they arrive only with the frames.
    pub sets: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    description: Option<Description>,
    accepts_units: bool,
    units: VecDeque<(u64, AccessUnit)>,
    bytes: usize,
    /// The references available to a decoder that gets all units.
    continuity: Continuity,
    /// Why frames are missing now, or were missing before the last entry point. `None` at the start of the stream, where that
    /// is not a loss.
    cause: Option<LossCause>,
    /// Whether a complete frame has arrived: units before the first are not a loss.
    has_begun: bool,
    /// How often a decoder had to start at a recovery point. Each start is a new generation.
    restarts: u64,
    overload: u64,
    corrupt: u64,
    end: Option<SourceError>,
}

/// The result of taking a unit.
#[derive(Debug)]
pub enum Taken {
    Unit(AccessUnit),
    /// The next unit needs a decoder with different parameters.
    OtherParameters,
    /// The session has ended, and no unit is left.
    Ended,
    /// The decoder ends.
    Cancelled,
    /// No unit arrived in time.
    TimedOut,
}

/// The state at the front of the queue.
#[derive(Debug)]
pub enum First {
    /// Before any unit. The session waits for [`UnitQueue::accept_units`].
    Description(Description),
    Unit(AccessUnit),
    Ended(SourceError),
    Stopped,
    TimedOut,
}

impl UnitQueue {
    pub fn new(clock: Arc<dyn Clock>, damaged: DamagedFrames) -> Self {
        let (state, changed) = <(Mutex<State>, Condvar)>::default();
        Self { state, changed, clock, damaged, tap: OnceLock::new() }
    }

    /// Puts the units that come from now on into `ring` as well.
    pub fn record_to(&self, ring: Arc<CodedRing>) {
        let _ = self.tap.set(Mutex::new(CodedTap::new(ring)));
    }

    /// Returns the ring for clips, if there is one.
    pub fn tap(&self) -> Option<MutexGuard<'_, CodedTap>> {
        self.tap.get().map(Mutex::lock)
    }

    /// Sets the stream's description. Units may follow once [`accepts_units`](Self::accepts_units) returns true.
    pub fn describe(&self, description: Description) {
        self.state.lock().description = Some(description);
        self.changed.notify_all();
    }

    /// Allows units: there is a decoder, or none is created before the first unit.
    pub fn accept_units(&self) {
        self.state.lock().accepts_units = true;
    }

    /// Whether units may come.
    pub fn accepts_units(&self) -> bool {
        self.state.lock().accepts_units
    }

    /// Adds a unit, or drops it if a decoder could not use it.
    pub fn push(&self, mut unit: AccessUnit) {
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.state.lock();
        if state.is_older(now_ns, MAX_AGE) || state.bytes + size(&unit) > MAX_BYTES {
            state.drop_to_newest_key();
        }
        if state.bytes + size(&unit) > MAX_BYTES {
            state.drop_all();
        }
        let was_missing = state.continuity.is_missing();
        let (verdict, begins) = state.continuity.next(&unit);
        if unit.follows_loss && !was_missing && state.has_begun {
            state.cause = Some(LossCause::Corrupt);
        }
        state.restarts += u64::from(begins);
        unit.generation += state.restarts;
        // An overload has ended the decoding of units that refer to lost frames.
        let is_marked = self.damaged == DamagedFrames::Mark && state.cause == Some(LossCause::Corrupt);
        unit.fate = match verdict {
            Verdict::Whole => Fate::Published,
            Verdict::Damaged if is_marked => Fate::PublishedAsDamaged,
            Verdict::Recovering if is_marked => Fate::PublishedAsRecovering,
            Verdict::Recovering => {
                state.count_lost(1);
                Fate::Discarded
            }
            Verdict::Damaged | Verdict::Undecodable => {
                state.count_lost(1);
                return;
            }
        };
        state.has_begun |= verdict == Verdict::Whole;
        state.bytes += size(&unit);
        state.units.push_back((now_ns, unit));
        drop(state);
        self.changed.notify_all();
    }

    /// Whether a decoder has units to take, and more may arrive.
    pub fn is_behind(&self) -> bool {
        let state = self.state.lock();
        state.end.is_none() && !state.units.is_empty()
    }

    /// Waits for a change, up to [`STEP`]: if `session` runs on this thread, by running it.
    fn wait(&self, state: &mut MutexGuard<'_, State>, session: Option<&dyn Fn()>) {
        match session {
            Some(work) => MutexGuard::unlocked(state, work),
            None => {
                self.changed.wait_for(state, STEP);
            }
        }
    }

    /// Counts units that were damaged in transit.
    pub fn count_corrupt(&self, units: u64) {
        let mut state = self.state.lock();
        if state.has_begun {
            state.corrupt += units;
        }
    }

    /// Ends the session for this reason.
    pub fn end(&self, error: SourceError) {
        self.state.lock().end.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Returns why the session ended.
    pub fn ended(&self) -> Option<SourceError> {
        self.state.lock().end.clone()
    }

    /// Returns losses that were not reported yet.
    pub fn take_loss(&self) -> Option<(u64, LossCause)> {
        let mut state = self.state.lock();
        let overload = Some(std::mem::take(&mut state.overload)).filter(|&units| units > 0);
        if let Some(units) = overload {
            return Some((units, LossCause::Overload));
        }
        Some(std::mem::take(&mut state.corrupt)).filter(|&units| units > 0).map(|units| (units, LossCause::Corrupt))
    }

    /// Waits for the stream's description, which is returned once, or for a unit; returns a copy of the unit, which stays.
    /// `session` runs the session for a while, if it runs on this thread.
    pub fn first(&self, stop: &Stop, deadline: Instant, session: Option<&dyn Fn()>) -> First {
        let mut state = self.state.lock();
        loop {
            stop.mark_progress();
            if stop.is_raised() {
                return First::Stopped;
            }
            if let Some(description) = state.description.take() {
                return First::Description(description);
            }
            if let Some((_, unit)) = state.units.front() {
                return First::Unit(unit.clone());
            }
            if let Some(error) = &state.end {
                return First::Ended(error.clone());
            }
            if Instant::now() >= deadline {
                return First::TimedOut;
            }
            self.wait(&mut state, session);
        }
    }

    /// Puts back a unit that needs a different decoder. If it is not a key frame, decoding continues at the next one.
    pub fn put_back(&self, unit: AccessUnit) {
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.state.lock();
        if unit.access == Access::Key {
            state.bytes += size(&unit);
            state.units.push_front((now_ns, unit));
            return;
        }
        state.overload += u64::from(unit.fate != Fate::Discarded);
        match state.units.iter().position(|(_, unit)| unit.access == Access::Key) {
            Some(at) => state.go_on_at(at),
            None => state.drop_all(),
        }
    }

    /// Puts back the units that a decoder has received without returning a frame, oldest first, for another decoder. If that took
    /// long, decoding continues at a newer key frame, if there is one: otherwise frames are late until the next one.
    pub fn put_back_all(&self, units: Vec<AccessUnit>) {
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.state.lock();
        let mut later = units.iter().skip(1).chain(state.units.iter().map(|(_, unit)| unit));
        let has_newer = later.any(|unit| unit.access == Access::Key);
        for unit in units.into_iter().rev() {
            state.bytes += size(&unit);
            let since_ns = if has_newer { unit.captured.monotonic_ns } else { now_ns };
            state.units.push_front((since_ns, unit));
        }
        drop(state);
        self.catch_up();
    }

    /// Whether the decoder waits for an entry point because something was lost.
    pub fn awaits_entry(&self) -> bool {
        let state = self.state.lock();
        state.has_begun && state.continuity.is_missing()
    }

    /// Drops everything up to the newest key frame if creating a decoder took long: frames would be late otherwise.
    pub fn catch_up(&self) {
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.state.lock();
        let is_key = |unit: &(u64, AccessUnit)| unit.1.access == Access::Key;
        if state.is_older(now_ns, MAX_AGE_AT_START) && state.units.iter().skip(1).any(is_key) {
            state.drop_to_newest_key();
        }
    }

    /// Takes the next unit for a decoder with the parameters of `generation`. Waits until the session has ended, `is_over` returns
    /// true, or `deadline`, if there is one, has passed. For `session` see [`first`](Self::first).
    pub fn take(
        &self,
        generation: u64,
        deadline: Option<Instant>,
        is_over: impl Fn() -> bool,
        session: Option<&dyn Fn()>,
    ) -> Taken {
        let mut state = self.state.lock();
        loop {
            if is_over() {
                return Taken::Cancelled;
            }
            match state.units.front() {
                Some((_, unit)) if unit.generation != generation => return Taken::OtherParameters,
                Some(_) => {}
                None if state.end.is_some() => return Taken::Ended,
                None if deadline.is_some_and(|deadline| Instant::now() >= deadline) => return Taken::TimedOut,
                None => {
                    self.wait(&mut state, session);
                    continue;
                }
            }
            if let Some((_, unit)) = state.units.pop_front() {
                state.bytes -= size(&unit);
                return Taken::Unit(unit);
            }
        }
    }
}

impl State {
    /// Whether the first unit has waited for longer than `age`.
    fn is_older(&self, now_ns: u64, age: Duration) -> bool {
        self.units.front().is_some_and(|(since_ns, _)| now_ns.saturating_sub(*since_ns) > age.as_nanos() as u64)
    }

    fn drop_to_newest_key(&mut self) {
        // If the front is a key frame, this would drop nothing.
        match self.units.iter().rposition(|(_, unit)| unit.access == Access::Key).filter(|&at| at > 0) {
            Some(newest) => self.go_on_at(newest),
            None => self.drop_all(),
        }
    }

    /// Drops everything up to a key frame.
    fn go_on_at(&mut self, key: usize) {
        // Without the frames before it, its leading frames cannot be decoded.
        let is_leading = |unit: &&(u64, AccessUnit)| unit.1.access == Access::Leading;
        let behind = self.units.iter().skip(key + 1).take_while(is_leading).count();
        let dropped = self.units.drain(key + 1..=key + behind).map(is_frame).sum::<u64>();
        self.overload += dropped + self.units.drain(..key).map(is_frame).sum::<u64>();
        self.bytes = self.units.iter().map(|(_, unit)| size(unit)).sum();
        if self.units.len() == 1 {
            self.continuity.begin_at_last_key();
            self.cause = Some(LossCause::Overload);
        }
    }

    fn drop_all(&mut self) {
        self.overload += self.units.drain(..).map(is_frame).sum::<u64>();
        self.bytes = 0;
        self.continuity.lose();
        self.cause = self.has_begun.then_some(LossCause::Overload);
    }

    /// Counts units that yield no frames because others are missing.
    fn count_lost(&mut self, units: u64) {
        match self.cause {
            Some(LossCause::Overload) => self.overload += units,
            Some(_) => self.corrupt += units,
            None => {}
        }
    }
}

/// Whether a dropped unit was to become a frame: the others are already counted as lost.
fn is_frame((_, unit): (u64, AccessUnit)) -> u64 {
    u64::from(unit.fate != Fate::Discarded)
}

/// Returns the size of a waiting unit in bytes.
pub fn size(unit: &AccessUnit) -> usize {
    unit.data.capacity() + size_of::<(u64, AccessUnit)>()
}

#[cfg(test)]
mod tests;
