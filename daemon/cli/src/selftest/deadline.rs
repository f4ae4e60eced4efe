//! Whether a test may still begin.

use std::time::{Duration, Instant};

/// With less time than this left nothing begins: it is what a camera takes that opens and gives no frame.
pub const LEAST_TIME: Duration = Duration::from_secs(15);
/// Why an area or a camera is skipped after [`TIME`].
pub const NO_TIME: &str = "no time left: test it alone by --only or --camera";

/// What is left until `end`, if that is enough to begin something.
pub fn time_left(end: Instant) -> Option<Duration> {
    Some(end.saturating_duration_since(Instant::now())).filter(|left| *left >= LEAST_TIME)
}
