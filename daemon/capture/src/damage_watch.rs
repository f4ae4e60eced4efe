//! Detects a source whose data yields no usable frame.

use std::time::Duration;

/// Measures for how long every frame of a source has been damaged.
#[derive(Debug, Default)]
pub struct DamageWatch {
    /// When the first damaged frame since the last usable one arrived, on CLOCK_MONOTONIC.
    since_ns: Option<u64>,
}

impl DamageWatch {
    /// Notes a usable frame, or one that was lost for a reason other than damage.
    pub fn reset(&mut self) {
        self.since_ns = None;
    }

    /// Notes a damaged frame; returns whether all frames have been damaged for `timeout`.
    pub fn is_over(&mut self, now_ns: u64, timeout: Duration) -> bool {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        Duration::from_nanos(now_ns.saturating_sub(since_ns)) >= timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_without_a_usable_frame_is_over_after_the_timeout() {
        const SECOND: u64 = 1_000_000_000;
        let (mut watch, timeout) = (DamageWatch::default(), Duration::from_secs(2));
        // A camera that was silent before gets the full timeout.
        assert!(!watch.is_over(100 * SECOND, timeout));
        assert!(!watch.is_over(102 * SECOND - 1, timeout));
        assert!(watch.is_over(102 * SECOND, timeout));
        watch.reset();
        assert!(!watch.is_over(103 * SECOND, timeout));
        assert!(!watch.is_over(104 * SECOND, timeout));
        assert!(watch.is_over(105 * SECOND, timeout));
        // A clock that goes backwards does not count as damage.
        assert!(!watch.is_over(90 * SECOND, timeout));
    }
}
