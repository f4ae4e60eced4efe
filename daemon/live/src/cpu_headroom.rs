//! Whether the processor has time left for live pictures.
//!
//! A thread at idle priority ([`Rank::Idle`]) costs cameras and models nothing, but where no core is ever idle it needs a second
//! for a picture. A second thread at nice 10 ([`Rank::Nice`]) works at such times. Both judge by how long a picture took
//! and how much CPU time it used.
//!
//! [`Rank::Idle`]: visiond_system::priority::Rank::Idle
//! [`Rank::Nice`]: visiond_system::priority::Rank::Nice

use std::time::Duration;

/// How many pictures decide that there is headroom: 0.2 s of eight cameras, 1.6 s of one.
const ENOUGH: u32 = 16;
/// What a picture may take at [`Rank::Idle`](visiond_system::priority::Rank::Idle) beyond four times its CPU time: half of the
/// time until the next picture at the default rate.
const MARGIN: Duration = Duration::from_millis(50);

/// Adds up what the last pictures took at [`Rank::Nice`](visiond_system::priority::Rank::Nice).
#[derive(Debug, Default)]
pub struct CpuHeadroom {
    pictures: u32,
    elapsed: Duration,
    worked: Duration,
}

impl CpuHeadroom {
    /// Adds a picture that took `elapsed` and used `worked` of CPU time; returns whether there is headroom.
    ///
    /// There is when [`ENOUGH`] pictures took at most one and a half times their CPU time; `false` until then.
    pub fn is_found(&mut self, elapsed: Duration, worked: Duration) -> bool {
        self.pictures += 1;
        self.elapsed += elapsed;
        self.worked += worked;
        if self.pictures < ENOUGH {
            return false;
        }
        let sum = std::mem::take(self);
        sum.elapsed * 2 <= sum.worked * 3
    }
}

/// Whether a picture that was encoded at [`Rank::Idle`](visiond_system::priority::Rank::Idle) shows that the headroom is gone.
pub fn is_gone(elapsed: Duration, worked: Duration) -> bool {
    elapsed > worked * 4 + MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn there_is_headroom_after_enough_pictures_in_a_row_that_hardly_waited() {
        let mut headroom = CpuHeadroom::default();
        let mut after = |elapsed, count| (0..count).map(|_| headroom.is_found(elapsed, MS(4))).collect::<Vec<_>>();
        let enough = ENOUGH as usize;
        assert_eq!(after(MS(5), enough).iter().position(|&seen| seen), Some(enough - 1));
        assert!(!after(MS(12), enough).contains(&true), "it waited twice as long as it worked");
        // The count starts again.
        assert_eq!(after(MS(5), enough).iter().position(|&seen| seen), Some(enough - 1));
    }

    #[test]
    fn headroom_is_gone_after_one_picture_that_took_long() {
        assert!(!is_gone(MS(60), MS(3)) && is_gone(MS(70), MS(3)));
        assert!(!is_gone(MS(200), MS(40)), "a large one takes long by itself");
    }
}
