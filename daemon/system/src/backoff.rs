//! Pauses between retries, and a rate limit for log lines.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Pauses that double from the first to the limit. Each is shortened by up to a quarter at random, so that cameras that were lost
/// together (a hub, a switch) do not all retry at the same instant.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    limit: Duration,
    next: Duration,
    random: u64,
}

impl Backoff {
    /// Creates pauses from `first` to `limit`.
    pub fn new(first: Duration, limit: Duration) -> Self {
        // Each RandomState has random keys, so its hash is a seed.
        let random = RandomState::new().hash_one(0_u8) | 1;
        Self { first, limit, next: first, random }
    }

    /// Returns the next pause.
    pub fn pause(&mut self) -> Duration {
        self.pause_within(self.limit)
    }

    /// Returns the next pause, or `limit` if that is shorter; the pauses double in either case.
    pub fn pause_within(&mut self, limit: Duration) -> Duration {
        let whole = self.next.min(limit);
        self.next = (self.next * 2).min(self.limit);
        // xorshift64: every non-zero state has a non-zero successor.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random >> 40) as f64 / (1_u64 << 24) as f64;
        whole.mul_f64(1.0 - part / 4.0)
    }

    /// Starts again with the first pause, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Passes one log line per interval and counts the others.
#[derive(Debug)]
pub struct RateLimit {
    interval: Duration,
    last: Option<Instant>,
    held_back: u64,
}

impl RateLimit {
    /// Passes at most one line per `interval`.
    pub fn new(interval: Duration) -> Self {
        Self { interval, last: None, held_back: 0 }
    }

    /// Returns whether to log a line at `now`; if so, the number of lines suppressed since the last one.
    pub fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < self.interval) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_start_again() {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
        let expected = [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0];
        for whole in expected {
            let pause = backoff.pause().as_secs_f64();
            assert!(pause <= whole && pause >= whole * 0.749, "{pause} of {whole}");
        }
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(250));
    }

    #[test]
    fn two_cameras_do_not_pause_alike() {
        let pauses = || {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(64));
            std::array::from_fn::<_, 100, _>(|_| backoff.pause())
        };
        let (one, other) = (pauses(), pauses());
        assert_ne!(one[..6], other[..6]);
        assert_ne!(one[90..], other[90..], "nor do they later");
    }

    #[test]
    fn thirty_days_of_failures_keep_the_limit_and_a_success_starts_over() {
        let (first, limit) = (Duration::from_millis(250), Duration::from_secs(5));
        let mut backoff = Backoff::new(first, limit);
        let (mut waited, mut pauses) = (Duration::ZERO, 0_u32);
        while waited < Duration::from_secs(30 * 86_400) {
            let pause = backoff.pause();
            assert!(
                pause <= limit && pause >= if pauses < 5 { first } else { limit }.mul_f64(0.749),
                "{pauses}: {pause:?}"
            );
            waited += pause;
            pauses += 1;
        }
        assert!(pauses > 518_400, "{pauses}");
        backoff.reset();
        assert!(backoff.pause() <= first);
    }

    #[test]
    fn thirty_days_of_a_flood_are_a_line_each_interval_and_every_line_is_counted() {
        let (mut limit, start) = (RateLimit::new(Duration::from_secs(10)), Instant::now());
        let (mut lines, mut counted) = (0_u64, 0);
        let floods = 30 * 86_400 * 4_u64;
        for event in 0..floods {
            if let Some(held_back) = limit.pass(start + Duration::from_millis(250) * event as u32) {
                lines += 1;
                counted += 1 + held_back;
            }
        }
        assert_eq!((lines, counted + limit.held_back), (30 * 8640, floods));
        // A suspend, and an instant that another thread has read earlier.
        let later = start + Duration::from_secs(31 * 86_400);
        assert!(limit.pass(later).is_some() && limit.pass(later - Duration::from_secs(3600)).is_none());
    }

    #[test]
    fn a_flood_becomes_one_line_and_a_number() {
        let mut limit = RateLimit::new(Duration::from_secs(10));
        let start = Instant::now();
        assert_eq!(limit.pass(start), Some(0));
        assert_eq!(limit.pass(start + Duration::from_secs(1)), None);
        assert_eq!(limit.pass(start + Duration::from_secs(9)), None);
        assert_eq!(limit.pass(start + Duration::from_secs(10)), Some(2));
    }
}
