//! Whether the processor has room for pictures.
//!
//! A thread that has the processor while nobody else wants it ([`Rank::Idle`]) costs cameras and networks nothing, but where
//! no core is ever free it needs a second for a picture. So there is another ([`Rank::Nice`]) for such times. They tell by how
//! long a picture took and how much of that it was worked on.
//!
//! [`Rank::Idle`]: visiond_system::priority::Rank::Idle
//! [`Rank::Nice`]: visiond_system::priority::Rank::Nice

use std::time::Duration;

/// Pictures by which it is decided that there is room: 0.2 s of eight cameras, 1.6 s of one.
const ENOUGH: u32 = 16;
/// What a picture may take at [`Rank::Idle`](visiond_system::priority::Rank::Idle) beside four times its work: half of the time
/// until the next at the usual rate.
const PATIENCE: Duration = Duration::from_millis(50);

/// What pictures took at [`Rank::Nice`](visiond_system::priority::Rank::Nice) of late.
#[derive(Debug, Default)]
pub struct Room {
    pictures: u32,
    elapsed: Duration,
    worked: Duration,
}

impl Room {
    /// After a picture that was made in `elapsed` with `worked` of CPU time: whether there is room, as far as is known. There
    /// is when [`ENOUGH`] of them took at most one and a half times their work.
    pub fn is_seen(&mut self, elapsed: Duration, worked: Duration) -> bool {
        self.pictures += 1;
        self.elapsed += elapsed;
        self.worked += worked;
        if self.pictures < ENOUGH {
            return false;
        }
        let seen = std::mem::take(self);
        seen.elapsed * 2 <= seen.worked * 3
    }
}

/// Whether a picture that was made at [`Rank::Idle`](visiond_system::priority::Rank::Idle) shows that there is no room any more.
pub fn is_gone(elapsed: Duration, worked: Duration) -> bool {
    elapsed > worked * 4 + PATIENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn there_is_room_after_enough_pictures_in_a_row_that_were_hardly_held_up() {
        let mut room = Room::default();
        let mut after = |elapsed, count| (0..count).map(|_| room.is_seen(elapsed, MS(4))).collect::<Vec<_>>();
        let enough = ENOUGH as usize;
        assert_eq!(after(MS(5), enough).iter().position(|&seen| seen), Some(enough - 1));
        assert!(!after(MS(12), enough).contains(&true), "held up by half");
        // What was seen before does not count any more.
        assert_eq!(after(MS(5), enough).iter().position(|&seen| seen), Some(enough - 1));
    }

    #[test]
    fn room_is_gone_with_one_picture_that_took_long() {
        assert!(!is_gone(MS(60), MS(3)) && is_gone(MS(70), MS(3)));
        assert!(!is_gone(MS(200), MS(40)), "a large one takes long by itself");
    }
}
