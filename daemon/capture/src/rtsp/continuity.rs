//! Decides which frames of a stream are clean, that is, refer to no frame that was lost or damaged in transit.
//!
//! After a loss, frames are clean from the next clean entry point on: a key frame (H.264: IDR; H.265: IDR, CRA, BLA), or a
//! recovery point. With gradual refresh, each frame renews a part of the image, and a message in the stream says how many
//! frames that takes: until then they are decoded, but not clean. visiond waits for one more refresh than the message says:
//! x264 claims to be exact, but at 1 of 11 recovery points of a film the first refresh left damage that the second removed.
//! Frames that are shown before an entry point but arrive after it may refer to lost ones.
//!
//! The encoder may call the frames of a recovery point only approximately right (`exact_match_flag`). They count as clean,
//! because such a stream offers nothing better.

use super::access_unit::{Access, AccessUnit};
use super::numbering::{Position, RecoveryPoint};

/// Once this many frames that are shown after an entry point have arrived, all later frames are shown after it: H.264 and H.265
/// reorder at most 16.
const MOST_REORDERED: u8 = 16;

/// Follows a stream from unit to unit.
#[derive(Debug, Default)]
pub struct Continuity(State);

/// The references available to a decoder that got all units so far.
#[derive(Debug, Default)]
enum State {
    /// Frames are missing; all of them, before the first unit.
    #[default]
    Missing,
    /// It started at the last key frame, so frames that are shown before that one cannot be decoded.
    AtKey,
    /// The last frame had this number (H.264), and the recovery point is this many reference frames away.
    Recovering { order: OutputOrder, number: u32, distance: u32 },
    /// From the frame with this order count on, frames are clean. This many of them have arrived.
    Recovered { order: OutputOrder, from: i64, shown: u8 },
    /// All frames are available.
    Whole,
}

/// The value of a unit for a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Whole,
    /// Others refer to it, but it is not clean.
    Recovering,
    /// It refers to missing frames.
    Damaged,
    /// No decoder can use it.
    Undecodable,
}

impl Continuity {
    /// Classifies the next unit. The second value says whether a decoder must start with it although it is not a key frame.
    pub fn next(&mut self, unit: &AccessUnit) -> (Verdict, bool) {
        let point = match unit.access {
            Access::Recovery(point) => Some(point),
            _ => None,
        };
        if unit.follows_loss || point.is_some_and(|point| point.is_broken_link) {
            self.0 = State::Missing;
        }
        let verdict = match (&mut self.0, unit.access) {
            (state, Access::Key) => {
                let is_missing = matches!(state, State::Missing | State::Recovering { .. } | State::Recovered { .. });
                *state = if is_missing { State::AtKey } else { State::Whole };
                Verdict::Whole
            }
            (State::AtKey, Access::Leading) => Verdict::Undecodable,
            (State::AtKey, Access::LeadingAlone) | (State::Whole, _) => Verdict::Whole,
            (State::AtKey, Access::Inter | Access::Recovery(_)) => {
                self.0 = State::Whole;
                Verdict::Whole
            }
            (State::Missing, _) => {
                let begun = point.zip(unit.position).and_then(|(point, position)| State::at(point, position));
                let Some((state, verdict)) = begun else { return (Verdict::Damaged, false) };
                self.0 = state;
                return (verdict, true);
            }
            (State::Recovering { .. } | State::Recovered { .. }, _) => match unit.position {
                Some(position) => self.recover(position),
                None => {
                    self.0 = State::Missing;
                    Verdict::Damaged
                }
            },
        };
        (verdict, false)
    }

    /// Notes that units were dropped that the decoder would have needed.
    pub fn lose(&mut self) {
        self.0 = State::Missing;
    }

    /// Notes that units between the last key frame, where the decoder will start, and the next unit were dropped, if there were
    /// any.
    pub fn begin_at_last_key(&mut self) {
        if matches!(self.0, State::Whole) {
            self.0 = State::AtKey;
        }
    }

    pub fn is_missing(&self) -> bool {
        matches!(self.0, State::Missing)
    }

    /// Classifies an access unit after a recovery point's message.
    fn recover(&mut self, position: Position) -> Verdict {
        let (is_whole, is_over) = match &mut self.0 {
            State::Recovering { order, number, distance } => {
                let at = order.next(position);
                if let Some((next, modulo)) = position.number {
                    *distance = distance.saturating_sub(next.wrapping_sub(*number) % modulo);
                    *number = next;
                }
                if position.is_reference && *distance == 0 {
                    let order = *order;
                    self.0 = State::Recovered { order, from: at, shown: 0 };
                    (true, false)
                } else {
                    (false, false)
                }
            }
            State::Recovered { order, from, shown } => {
                let is_whole = order.next(position) >= *from;
                *shown += u8::from(is_whole);
                (is_whole, *shown >= MOST_REORDERED)
            }
            State::Missing | State::AtKey | State::Whole => return Verdict::Damaged,
        };
        if is_over {
            self.0 = State::Whole;
        }
        if is_whole { Verdict::Whole } else { Verdict::Recovering }
    }
}

impl State {
    /// Starts at the frame that has a recovery point's message.
    fn at(point: RecoveryPoint, position: Position) -> Option<(Self, Verdict)> {
        let order = OutputOrder::from(position);
        match position.number {
            Some((number, modulo)) => {
                let distance = u32::try_from(point.distance).ok().filter(|distance| *distance < modulo)?;
                Some(match distance {
                    0 => (Self::Recovered { order, from: order.last(), shown: 0 }, Verdict::Whole),
                    _ => (Self::Recovering { order, number, distance: distance * 2 + 1 }, Verdict::Recovering),
                })
            }
            None => {
                let refreshes =
                    if point.distance > 0 { i64::from(point.distance) * 2 + 1 } else { i64::from(point.distance) };
                let from = order.last() + refreshes;
                let verdict = if point.distance <= 0 { Verdict::Whole } else { Verdict::Recovering };
                Some((Self::Recovered { order, from, shown: 0 }, verdict))
            }
        }
    }
}

/// Unwraps the order counts of frames in decoding order (H.264: 8.2.1.1; H.265: 8.3.1).
#[derive(Debug, Clone, Copy)]
struct OutputOrder {
    /// The order count of the last reference frame.
    reference: i64,
    /// The order count of the last frame, in streams that are shown as they are decoded.
    decoded: i64,
}

impl OutputOrder {
    fn from(position: Position) -> Self {
        Self { reference: position.order.map_or(0, |(low, _)| i64::from(low)), decoded: 0 }
    }

    /// Returns the order count of the frame that it begins with.
    fn last(&self) -> i64 {
        self.reference
    }

    fn next(&mut self, position: Position) -> i64 {
        let Some((low, modulo)) = position.order else {
            self.decoded += 1;
            return self.decoded;
        };
        let modulo = i64::from(modulo);
        let later = (i64::from(low) - self.reference).rem_euclid(modulo);
        let order = self.reference + if later >= modulo / 2 { later - modulo } else { later };
        if position.is_reference {
            self.reference = order;
        }
        order
    }
}

#[cfg(test)]
mod tests;
