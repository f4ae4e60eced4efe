//! When frames were captured: by the camera's sender reports if they are plausible, otherwise by the arrival of the packets.

use std::collections::VecDeque;

use visiond_frames::timestamp::{Instant, Timestamp};

use super::access_unit::Fate;

/// How long before its arrival a frame may have been captured for a sender report to count.
const MAX_UNDERWAY_NS: i128 = 1_000_000_000;

/// The most frames that a decoder may have taken and not returned.
const MAX_PENDING: usize = 256;

/// The most frames that an H.264 or H.265 decoder holds back, plus some lost ones.
const MAX_REORDERED: usize = 32;

/// How many frames a decoder drops before it knows how many it must hold back.
const MOST_DROPPED_AT_START: usize = 4;

/// The number of frames over which too many pending times are detected.
const WINDOW: usize = 100;

/// Maps the RTP timestamps of one stream to the wall clock.
#[derive(Debug)]
pub struct CameraClock {
    rate_hz: u32,
    /// RTP timestamp and wall clock in ns since 1970 of the last sender report.
    report: Option<(i64, i128)>,
}

impl CameraClock {
    pub fn new(rate_hz: u32) -> Self {
        Self { rate_hz: rate_hz.max(1), report: None }
    }

    /// Takes a sender report: `ntp` is its time in NTP format, 32.32 bits of seconds since 1900.
    pub fn report(&mut self, rtp: i64, ntp: u64) {
        /// Seconds from 1900 to 1970.
        const EPOCH_S: u64 = 2_208_988_800;
        // Wraps in 2036, like NTP's era.
        let since_1970 = ntp.wrapping_sub(EPOCH_S << 32);
        self.report = Some((rtp, (i128::from(since_1970) * 1_000_000_000) >> 32));
    }

    /// Returns when the frame with the timestamp `rtp` was captured. Its first packet arrived at `arrival`.
    ///
    /// A camera's clock may be wrong by years. The report counts only if it puts the capture into the last second before the
    /// arrival.
    pub fn captured(&self, rtp: i64, arrival: Timestamp) -> Timestamp {
        let Some((reported, realtime_ns)) = self.report else { return arrival };
        let later_ns = (i128::from(rtp) - i128::from(reported)) * 1_000_000_000 / i128::from(self.rate_hz);
        let captured_ns = realtime_ns + later_ns;
        let underway_ns = i128::from(arrival.realtime_ns) - captured_ns;
        if !(0..=MAX_UNDERWAY_NS).contains(&underway_ns) {
            return arrival;
        }
        let underway_ns = underway_ns as u64;
        Timestamp {
            monotonic_ns: arrival.monotonic_ns.saturating_sub(underway_ns),
            realtime_ns: arrival.realtime_ns.saturating_sub(underway_ns),
            instant: Instant::EndOfFrame,
        }
    }
}

/// The times of frames that a decoder has taken and not returned.
///
/// A decoder takes frames in a different order than it returns them (B-frames). It returns them in presentation order, so the next
/// output is the pending frame with the smallest presentation time. A frame that is shown later was captured later: if it arrived
/// earlier, its time counts for both. So times never go back. If the decoder returns fewer frames than it took, because some were
/// damaged, times would lag from then on: if more frames are pending throughout [`WINDOW`] frames than the decoder holds back,
/// the oldest are dropped.
///
/// Which frames are published does not depend on these times, which cameras may write in decoding order. A decoder returns the
/// frames before a recovery point first, because it starts with them and they are shown before the others. Once one may show
/// damage, so may all later ones, and the last ones before it, which the decoder may return later: the next clean one needs a new
/// decoder.
#[derive(Debug)]
pub struct PendingTimes {
    /// By presentation time. `None` is a repetition, which does not count as a frame.
    pending: Vec<(i64, Option<Timestamp>)>,
    held_back: usize,
    /// The fewest pending times since `returned` was 0.
    fewest: usize,
    returned: usize,
    /// Frames that are shown before a recovery point and were not returned yet, and how to handle them.
    recovering: (usize, Fate),
    /// How many frames the decoder has taken, and how many it has returned.
    frames_taken: u64,
    frames_returned: u64,
    /// How many it had taken when the first one that may show damage arrived.
    damaged_from: Option<u64>,
}

impl PendingTimes {
    /// Creates the times for a decoder that holds back this many frames.
    pub fn new(held_back: usize) -> Self {
        Self {
            pending: Vec::with_capacity(MAX_PENDING),
            held_back,
            fewest: usize::MAX,
            returned: 0,
            recovering: (0, Fate::Discarded),
            frames_taken: 0,
            frames_returned: 0,
            damaged_from: None,
        }
    }

    /// Notes how to handle a frame that the decoder takes.
    pub fn add_fate(&mut self, fate: Fate) {
        match fate {
            Fate::Published => {}
            Fate::PublishedAsDamaged => {
                self.damaged_from.get_or_insert(self.frames_taken);
            }
            Fate::PublishedAsRecovering | Fate::Discarded => self.recovering = (self.recovering.0 + 1, fate),
        }
        self.frames_taken += 1;
    }

    /// Whether a frame that the decoder took may show damage.
    pub fn has_damage(&self) -> bool {
        self.damaged_from.is_some()
    }

    /// Returns how to handle the decoder's next frame that is not a repetition.
    pub fn next_fate(&mut self) -> Fate {
        let latest = self.frames_returned + (self.held_back + MOST_DROPPED_AT_START) as u64;
        self.frames_returned += 1;
        if let (Some(recovering), fate) = (self.recovering.0.checked_sub(1), self.recovering.1) {
            self.recovering.0 = recovering;
            return fate;
        }
        let may_be_damaged = self.damaged_from.is_some_and(|from| latest >= from);
        if may_be_damaged { Fate::PublishedAsDamaged } else { Fate::Published }
    }

    /// Adds a frame that the decoder takes, after others with the same presentation time.
    pub fn add(&mut self, presentation: i64, captured: Option<Timestamp>) {
        if self.pending.len() == MAX_PENDING {
            self.pending.remove(0);
        }
        let at = self.pending.partition_point(|(other, _)| *other <= presentation);
        self.pending.insert(at, (presentation, captured));
    }

    /// Returns when the next frame of the decoder was captured, `Some(None)` for a repetition; `None` if there is no such frame.
    pub fn next(&mut self) -> Option<Option<Timestamp>> {
        let mut next = (!self.pending.is_empty()).then(|| self.pending.remove(0).1);
        if let Some(Some(time)) = &mut next {
            let later = self.pending.iter().filter_map(|(_, captured)| *captured);
            *time =
                later.fold(*time, |first, other| if other.monotonic_ns < first.monotonic_ns { other } else { first });
        }
        self.fewest = self.fewest.min(self.pending.len());
        self.returned += 1;
        if self.returned == WINDOW {
            let stale = self.fewest.saturating_sub(self.held_back);
            self.pending.drain(..stale);
            (self.returned, self.fewest) = (0, usize::MAX);
        }
        next
    }
}

/// The capture times of frames in a decoder that identifies the frames that it returns.
///
/// As with [`PendingTimes`], a frame that is shown later and arrived earlier lends its time, so that times never go back.
#[derive(Debug, Default)]
pub struct ShownTimes {
    /// In decoding order.
    pending: VecDeque<(i64, Timestamp)>,
    /// The last time returned.
    last: Option<Timestamp>,
    /// Frames with special handling, by the time passed with them.
    fates: VecDeque<(i64, Fate)>,
}

impl ShownTimes {
    /// Adds a frame that the decoder takes.
    pub fn add(&mut self, presentation: i64, captured: Timestamp) {
        // Frames that the decoder never returns, such as damaged ones, must not accumulate.
        if self.pending.len() == MAX_REORDERED {
            self.pending.pop_front();
        }
        self.pending.push_back((presentation, captured));
    }

    /// Notes how to handle a frame that the decoder receives with this time.
    pub fn add_fate(&mut self, given_with: i64, fate: Fate) {
        if fate == Fate::Published {
            return;
        }
        if self.fates.len() == MAX_REORDERED {
            self.fates.pop_front();
        }
        self.fates.push_back((given_with, fate));
    }

    /// Returns how to handle the frame that was passed with this time. A frame keeps its handling even if another one is
    /// shown at its time, because some cameras write times in decoding order.
    pub fn take_fate(&mut self, given_with: i64) -> Fate {
        let at = self.fates.iter().position(|(other, _)| *other == given_with);
        at.and_then(|at| self.fates.remove(at)).map_or(Fate::Published, |(_, fate)| fate)
    }

    /// Returns when the frame with this presentation time was captured, and forgets those that are shown before it; `None` if it
    /// was not added.
    pub fn take(&mut self, presentation: i64) -> Option<Timestamp> {
        let is_known = self.pending.iter().any(|(other, _)| *other == presentation);
        self.pending.retain(|(other, _)| *other >= presentation);
        let first = self.pending.iter().map(|(_, captured)| *captured).min_by_key(|captured| captured.monotonic_ns);
        self.pending.retain(|(other, _)| *other > presentation);
        // This is later than its own time if a frame that belongs after it was shown at once.
        let latest = [first.filter(|_| is_known)?, self.last.unwrap_or(first?)];
        self.last = latest.into_iter().max_by_key(|captured| captured.monotonic_ns);
        self.last
    }
}

#[cfg(test)]
mod tests;
