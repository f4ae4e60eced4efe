//! The two clocks of a frame's timestamp, and how timestamps are made.
//!
//! Sources that wait (pattern, files at their own pace) take a [`Clock`], so that a test can move time.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use parking_lot::Mutex;
use visiond_system::stop::{Stop, Wake};

use crate::timestamp::{Instant, Timestamp};

/// A source of time: the system's, or a simulated one.
pub trait Clock: Send + Sync {
    /// Returns nanoseconds of CLOCK_MONOTONIC.
    fn monotonic_ns(&self) -> u64;

    /// Returns nanoseconds since 1970 UTC, from CLOCK_REALTIME.
    fn realtime_ns(&self) -> u64;

    /// Returns nanoseconds of the machine's system counter, which a Jetson's capture unit uses for timestamps; `None` if programs
    /// cannot read it. The counter starts at power-on and has a constant rate; CLOCK_MONOTONIC starts later and NTP adjusts it.
    fn system_counter_ns(&self) -> Option<u64>;

    /// Sleeps until `monotonic_ns` or until stop is raised; returns whether stop was raised.
    fn sleep_until(&self, monotonic_ns: u64, stop: &Stop) -> bool;

    /// Waits until `fd` is readable, until `monotonic_ns`, or until stop is raised.
    fn wait_readable_until(&self, fd: BorrowedFd<'_>, monotonic_ns: u64, stop: &Stop) -> Wake;
}

/// The clocks of the system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic_ns(&self) -> u64 {
        read(libc::CLOCK_MONOTONIC)
    }

    fn realtime_ns(&self) -> u64 {
        read(libc::CLOCK_REALTIME)
    }

    fn system_counter_ns(&self) -> Option<u64> {
        counter_ns()
    }

    fn sleep_until(&self, monotonic_ns: u64, stop: &Stop) -> bool {
        let left = monotonic_ns.saturating_sub(self.monotonic_ns());
        stop.mark_progress();
        if left == 0 { stop.is_raised() } else { stop.sleep(Duration::from_nanos(left)) }
    }

    fn wait_readable_until(&self, fd: BorrowedFd<'_>, monotonic_ns: u64, stop: &Stop) -> Wake {
        let left = Duration::from_nanos(monotonic_ns.saturating_sub(self.monotonic_ns()));
        // The descriptors are open, so poll(2) fails only without memory: sleep instead.
        stop.wait_readable(fd, Some(left))
            .unwrap_or_else(|_| if stop.sleep(left) { Wake::Stopped } else { Wake::TimedOut })
    }
}

/// Reads the virtual counter of the generic timer. Linux lets every program read it (`CNTKCTL_EL1.EL0VCTEN`), as the vDSO does for
/// clock_gettime. Costs about as much as that call, some 50 ns.
#[cfg(target_arch = "aarch64")]
fn counter_ns() -> Option<u64> {
    let (count, frequency_hz): (u64, u64);
    // SAFETY: both registers can be read at EL0 on Linux; the barrier prevents an early read of the count. The instructions change
    // no memory and no flags.
    unsafe {
        std::arch::asm!(
            "isb",
            "mrs {count}, cntvct_el0",
            "mrs {frequency}, cntfrq_el0",
            count = out(reg) count,
            frequency = out(reg) frequency_hz,
            options(nomem, nostack, preserves_flags)
        );
    }
    let ns = u128::from(count) * 1_000_000_000 / u128::from(frequency_hz.max(1));
    u64::try_from(ns).ok()
}

#[cfg(not(target_arch = "aarch64"))]
fn counter_ns() -> Option<u64> {
    None
}

/// Returns the current time as the end of a frame: the timestamp of every source except cameras.
pub fn now(clock: &dyn Clock) -> Timestamp {
    Timestamp { monotonic_ns: clock.monotonic_ns(), realtime_ns: clock.realtime_ns(), instant: Instant::EndOfFrame }
}

/// Returns the timestamp of an instant that a driver gave on CLOCK_MONOTONIC.
///
/// Reads both clocks and subtracts the age from the wall clock. A step of the wall clock between the capture and this call
/// therefore shifts the result by the step. Ages come from the monotonic clock, which never steps.
pub fn at_monotonic(clock: &dyn Clock, monotonic_ns: u64, instant: Instant) -> Timestamp {
    let age_ns = i128::from(clock.monotonic_ns()) - i128::from(monotonic_ns);
    let realtime_ns = i128::from(clock.realtime_ns()) - age_ns;
    Timestamp { monotonic_ns, realtime_ns: u64::try_from(realtime_ns).unwrap_or(0), instant }
}

/// Detects steps of the wall clock.
#[derive(Debug, Default)]
pub struct WallWatch {
    /// Wall clock less monotonic clock at the last call.
    offset_ns: Mutex<Option<i128>>,
}

impl WallWatch {
    /// Returns the instance of the process, so that a step is reported once.
    pub fn of_process() -> &'static Self {
        static WATCH: WallWatch = WallWatch { offset_ns: Mutex::new(None) };
        &WATCH
    }

    /// Returns the step of the wall clock since the last call in seconds; `None` without a step.
    pub fn step(&self, clock: &dyn Clock) -> Option<f64> {
        /// Smallest step; NTP changes the clock far less from one frame to the next.
        const LEAST_NS: u128 = 100_000_000;
        let mut last = self.offset_ns.lock();
        let before_ns = clock.monotonic_ns();
        let realtime_ns = clock.realtime_ns();
        if clock.monotonic_ns() - before_ns > 10_000_000 {
            // This thread was suspended between the two reads, so the clocks cannot be compared.
            return None;
        }
        let offset_ns = i128::from(realtime_ns) - i128::from(before_ns);
        let step_ns = offset_ns - last.replace(offset_ns)?;
        (step_ns.unsigned_abs() >= LEAST_NS).then_some(step_ns as f64 / 1e9)
    }
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write; both clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    // A wall clock before 1970, such as that of a board with an empty battery, reads as 1970.
    u64::try_from(time.tv_sec).map_or(0, |seconds| seconds.saturating_mul(1_000_000_000) + time.tv_nsec as u64)
}

#[cfg(any(test, feature = "testing"))]
pub mod simulated {
    //! A simulated clock for tests.

    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    use super::*;

    /// A clock that moves when a test moves it or code sleeps; nothing waits.
    #[derive(Debug, Default)]
    pub struct SimulatedClock {
        monotonic_ns: AtomicU64,
        ahead_ns: AtomicI64,
        /// System counter; 0: none.
        counter_ns: AtomicU64,
    }

    impl SimulatedClock {
        /// Wall clock at monotonic 0.
        pub const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

        /// Moves the clock forward.
        pub fn advance(&self, duration: Duration) {
            self.monotonic_ns.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
        }

        /// Sets the system counter, which does not move by itself.
        pub fn set_counter_ns(&self, counter_ns: u64) {
            self.counter_ns.store(counter_ns, Ordering::SeqCst);
        }

        /// Steps the wall clock forward.
        pub fn set_ahead(&self, duration: Duration) {
            self.ahead_ns.fetch_add(duration.as_nanos() as i64, Ordering::SeqCst);
        }

        /// Steps the wall clock back.
        pub fn set_back(&self, duration: Duration) {
            self.ahead_ns.fetch_sub(duration.as_nanos() as i64, Ordering::SeqCst);
        }
    }

    impl Clock for SimulatedClock {
        fn monotonic_ns(&self) -> u64 {
            self.monotonic_ns.load(Ordering::SeqCst)
        }

        fn realtime_ns(&self) -> u64 {
            (Self::EPOCH_NS + self.monotonic_ns()).saturating_add_signed(self.ahead_ns.load(Ordering::SeqCst))
        }

        fn system_counter_ns(&self) -> Option<u64> {
            Some(self.counter_ns.load(Ordering::SeqCst)).filter(|&counter_ns| counter_ns > 0)
        }

        fn sleep_until(&self, monotonic_ns: u64, stop: &Stop) -> bool {
            self.monotonic_ns.fetch_max(monotonic_ns, Ordering::SeqCst);
            stop.is_raised()
        }

        fn wait_readable_until(&self, fd: BorrowedFd<'_>, monotonic_ns: u64, stop: &Stop) -> Wake {
            let wake = stop.wait_readable(fd, Some(Duration::ZERO)).unwrap_or(Wake::TimedOut);
            if wake == Wake::TimedOut {
                self.monotonic_ns.fetch_max(monotonic_ns, Ordering::SeqCst);
            }
            wake
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::simulated::SimulatedClock;
    use super::*;

    #[test]
    fn a_drivers_instant_is_put_on_the_wall_clock_by_its_age() {
        let clock = SimulatedClock::default();
        clock.advance(Duration::from_millis(500));
        let stamp = at_monotonic(&clock, 460_000_000, Instant::StartOfExposure);
        assert_eq!(stamp.monotonic_ns, 460_000_000);
        assert_eq!(stamp.realtime_ns, SimulatedClock::EPOCH_NS + 460_000_000);
    }

    #[test]
    fn the_system_counter_is_one_of_arm64_and_runs() {
        let clock = SystemClock;
        let first = clock.system_counter_ns();
        assert_eq!(first.is_some(), cfg!(target_arch = "aarch64"));
        assert!(first.is_none() || (0..1_000_000).any(|_| clock.system_counter_ns() > first));
    }

    #[test]
    fn a_step_of_the_wall_clock_is_noticed_once() {
        let (clock, watch) = (SimulatedClock::default(), WallWatch::default());
        assert_eq!(watch.step(&clock), None);
        clock.advance(Duration::from_secs(5));
        assert_eq!(watch.step(&clock), None);
        clock.set_ahead(Duration::from_secs(3));
        assert_eq!(watch.step(&clock), Some(3.0));
        assert_eq!(watch.step(&clock), None);
        clock.set_ahead(Duration::from_millis(20));
        assert_eq!(watch.step(&clock), None);
    }

    #[test]
    fn thirty_days_of_steps_and_slewing_report_every_step_once_and_move_frames_with_the_wall_clock() {
        const SECOND: Duration = Duration::from_secs(1);
        let (clock, watch) = (SimulatedClock::default(), WallWatch::default());
        watch.step(&clock);
        // One frame a second. The watch only sees differences, so more frames would change nothing.
        for second in 1..=30 * 86_400_u64 {
            clock.advance(SECOND);
            // NTP slews by 500 ppm, the most that Linux allows, in alternating hours.
            let slew = Duration::from_micros(500);
            if (second / 3600).is_multiple_of(2) {
                clock.set_ahead(slew)
            } else {
                clock.set_back(slew)
            }
            let expected_s = match second % (7 * 3600) {
                1 => 2.0 * 3600.0,
                2 => -3600.0,
                // A suspend, during which CLOCK_MONOTONIC stops.
                3 => 8.0 * 3600.0,
                4 => -9.0 * 3600.0,
                5 => 0.25,
                6 => -0.25,
                _ => 0.0,
            };
            let by = Duration::from_secs_f64(f64::abs(expected_s));
            if expected_s < 0.0 {
                clock.set_back(by)
            } else {
                clock.set_ahead(by)
            }
            match watch.step(&clock) {
                Some(step) => assert!((step - expected_s).abs() < 0.001 && expected_s != 0.0, "{second}: {step}"),
                None => assert_eq!(expected_s, 0.0, "{second}"),
            }
            let stamp = at_monotonic(&clock, clock.monotonic_ns() - 40_000_000, Instant::EndOfFrame);
            assert_eq!(stamp.realtime_ns, clock.realtime_ns() - 40_000_000);
        }
        assert_eq!(clock.monotonic_ns(), 30 * 86_400 * 1_000_000_000);
    }

    #[test]
    fn the_system_clocks_move_forward() {
        let first = now(&SystemClock);
        let second = now(&SystemClock);
        assert!(second.monotonic_ns >= first.monotonic_ns);
        assert!(first.realtime_ns > 1_700_000_000_000_000_000);
    }
}
