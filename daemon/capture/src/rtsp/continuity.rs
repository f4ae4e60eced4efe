//! Which pictures of a stream are whole, that is, refer to no picture that was lost or damaged on its way.
//!
//! After a loss, that is so from the next clean entry point on: a key frame (H.264: IDR; H.265: IDR, CRA, BLA), or a recovery point.
//! With gradual refresh, each picture renews a part of the frame, and a message in the stream says how many pictures that takes:
//! until then they are decoded, and not whole. They are whole one refresh later than the message says: x264 says that it is exact, and
//! at 1 of 11 recovery points of a film the first refresh left damage, which the second removed. Pictures that are shown before an
//! entry point but arrive after it may refer to lost ones.
//!
//! The encoder may call the pictures of a recovery point only approximately right (`exact_match_flag`). They count as whole: such a
//! stream has nothing better.

use super::access_unit::{Access, AccessUnit};
use super::numbering::{Position, RecoveryPoint};

/// Once so many frames that are shown after an entry point have arrived, so are all later ones: H.264 and H.265 reorder 16 at most.
const MOST_REORDERED: u8 = 16;

/// Follows a stream from unit to unit.
#[derive(Debug, Default)]
pub struct Continuity(State);

/// What a decoder has that got all units before.
#[derive(Debug, Default)]
enum State {
    /// It lacks pictures, or everything: before the first unit.
    #[default]
    Missing,
    /// It has begun at the last key frame, so that pictures ahead of which that is shown cannot be decoded.
    AtKey,
    /// The last picture had this number (H.264), and the recovery point is so many reference pictures away.
    Recovering { order: OutputOrder, number: u32, distance: u32 },
    /// From the picture with this order count on, they are whole. So many of them have come.
    Recovered { order: OutputOrder, from: i64, shown: u8 },
    /// It has all pictures.
    Whole,
}

/// What a unit is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Whole,
    /// Others refer to it, but it is not whole.
    Recovering,
    /// It refers to pictures that are missing.
    Damaged,
    /// No decoder can make sense of it.
    Undecodable,
}

impl Continuity {
    /// Judges the next unit. The second value says whether a decoder must begin with it although it is no key frame.
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

    /// Units that the decoder would have needed were dropped.
    pub fn lose(&mut self) {
        self.0 = State::Missing;
    }

    /// Units between the last key frame, which the decoder will begin with, and the next unit were dropped, if any.
    pub fn begin_at_last_key(&mut self) {
        if matches!(self.0, State::Whole) {
            self.0 = State::AtKey;
        }
    }

    pub fn is_missing(&self) -> bool {
        matches!(self.0, State::Missing)
    }

    /// Judges an access unit after a recovery point's message.
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
    /// Begins at the picture that has a recovery point's message.
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

/// Unwraps the order counts of pictures in the order of decoding (H.264: 8.2.1.1; H.265: 8.3.1).
#[derive(Debug, Clone, Copy)]
struct OutputOrder {
    /// That of the last reference picture.
    reference: i64,
    /// That of the last picture where they are shown as they are decoded.
    decoded: i64,
}

impl OutputOrder {
    fn from(position: Position) -> Self {
        Self { reference: position.order.map_or(0, |(low, _)| i64::from(low)), decoded: 0 }
    }

    /// Returns the order count of the picture that it begins with.
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
