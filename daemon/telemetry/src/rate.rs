//! Events per second over the last five seconds: a ring of counts that one thread at a time writes and any thread reads, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Length of one slot.
const SLOT: Duration = Duration::from_millis(250);
/// Slots that are counted: five seconds, the whole slots before the current one.
const WINDOW: u64 = 20;
/// Slots of the ring: the window, the current one, and one that a writer may be starting.
const SLOTS: usize = WINDOW as usize + 2;
/// Bits of the count, the lower half of a slot. The upper half is the number of the slot, which wraps after 34 years.
const COUNT_BITS: u32 = 32;

/// Counts events by time.
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
    /// Counts an event. Only one thread at a time may call this; costs one clock read, one load and one store.
    pub fn count(&self) {
        self.count_at(self.born.elapsed());
    }

    /// Returns events per second over the last five seconds, or since the start if that is shorter.
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

/// Returns the number of the slot at `age`.
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

    #[test]
    fn what_is_counted_now_is_seen_soon() {
        let rate = Rate::default();
        assert_eq!(rate.per_second(), 0.0);
        // A slot counts once it is over. Counted again in each round, so that a pause of this thread changes nothing.
        let seen = (0..6_000).find_map(|_| {
            rate.count();
            std::thread::sleep(MS * 10);
            Some(rate.per_second()).filter(|&rate| rate != 0.0)
        });
        assert!(seen.is_some_and(|rate| rate > 0.0 && rate <= 200.0), "{seen:?}");
    }

    #[test]
    fn thirty_days_keep_the_rate_of_the_last_five_seconds_also_where_the_slots_number_wraps() {
        // Four frames per second, one in each slot. A faster camera would only raise the counts.
        let slots = 30 * 86_400 * 4_u32;
        let wrap = Duration::from_secs(1 << 30);
        for start in [Duration::ZERO, wrap - SLOT * (slots / 2)] {
            let rate = Rate::default();
            // No slot has a future number yet.
            for slot in 0..slots {
                let (age, minute) = (start + SLOT * slot, slot / 240);
                // Every seventh hour has ten minutes without frames.
                let streams = minute % 420 >= 10;
                if streams {
                    rate.count_at(age);
                }
                let settled = minute % 420 != 10 && !(minute % 420 == 0 && slot % 240 < 21);
                let just_wrapped = age >= wrap && age < wrap + 21 * SLOT;
                if slot % 60 == 59 && settled && slot > 40 && !just_wrapped {
                    let expected = if streams { 4.0 } else { 0.0 };
                    assert_eq!(rate.per_second_at(age), expected, "{age:?}");
                }
            }
        }
    }
}
