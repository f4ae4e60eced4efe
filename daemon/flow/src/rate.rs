//! How often something happened within the last seconds: a ring of counts by time, written by one thread and read by any,
//! without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time of one slot.
const SLOT: Duration = Duration::from_millis(250);
/// Slots that are looked at: five seconds, in whole slots before the one being filled.
const WINDOW: u64 = 20;
/// Slots of the ring: the window, the one being filled, and one that may just be begun.
const SLOTS: usize = WINDOW as usize + 2;
/// A slot holds its number in time (upper half) and its count (lower half); numbers wrap after 34 years.
const COUNT_BITS: u32 = 32;

/// Counts by time.
#[derive(Debug)]
pub struct Rate {
    born: Instant,
    slots: [AtomicU64; SLOTS],
}

impl Default for Rate {
    fn default() -> Self {
        Self { born: Instant::now(), slots: Default::default() }
    }
}

impl Rate {
    /// It happened now. For one thread; costs a look at the clock, a load and a store.
    pub fn count(&self) {
        self.count_at(self.born.elapsed());
    }

    /// Times a second within the last five seconds, or since the start where that is less.
    pub fn per_second(&self) -> f64 {
        self.per_second_at(self.born.elapsed())
    }

    fn count_at(&self, age: Duration) {
        let number = number(age);
        let slot = &self.slots[number as usize % SLOTS];
        let now = slot.load(Ordering::Relaxed);
        let count = if now >> COUNT_BITS == number { (now & u64::from(u32::MAX)) + 1 } else { 1 };
        slot.store(number << COUNT_BITS | count, Ordering::Relaxed);
    }

    fn per_second_at(&self, age: Duration) -> f64 {
        let current = number(age);
        let window = current.min(WINDOW);
        if window == 0 {
            return 0.0;
        }
        let slots = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        let within = slots.filter(|slot| (current - window..current).contains(&(slot >> COUNT_BITS)));
        let count: u64 = within.map(|slot| slot & u64::from(u32::MAX)).sum();
        count as f64 / (window as f64 * SLOT.as_secs_f64())
    }
}

/// A time's slot, among all there ever are.
fn number(age: Duration) -> u64 {
    (age.as_millis() / SLOT.as_millis()) as u64 & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_steady_rate_is_known_soon_and_forgotten_when_it_ends() {
        let rate = Rate::default();
        for frame in 0..600_u32 {
            rate.count_at(MS * 20 * frame);
        }
        let near = |age: Duration, expected: f64| {
            let told = rate.per_second_at(age);
            assert!((told - expected).abs() < 1.0, "{told} at {age:?}");
        };
        near(12_000 * MS, 50.0);
        near(14_500 * MS, 25.0);
        near(18_000 * MS, 0.0);
        let young = Rate::default();
        (0..25_u32).for_each(|frame| young.count_at(MS * 40 * frame));
        assert!((young.per_second_at(1_000 * MS) - 25.0).abs() < 1.5);
        assert_eq!(young.per_second_at(100 * MS), 0.0);
    }
}
