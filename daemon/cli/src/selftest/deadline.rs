//! Whether a test may still begin.

use std::time::{Duration, Instant};

/// Minimum time left to begin a test. A camera that opens but delivers no frame takes this long.
pub const LEAST_TIME: Duration = Duration::from_secs(15);
/// Why an area or a camera is skipped after the time limit.
pub const NO_TIME: &str = "no time left: test it alone with --only or --camera";

/// Returns the time left until `end`, if it is enough to begin a test.
pub fn time_left(end: Instant) -> Option<Duration> {
    Some(end.saturating_duration_since(Instant::now())).filter(|left| *left >= LEAST_TIME)
}
