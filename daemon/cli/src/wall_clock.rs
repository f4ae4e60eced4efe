//! Times of the system's clock, as records have them.

use std::time::SystemTime;

use visiond_web::status::report::rfc3339;

/// Returns the time in seconds since 1970.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Formats such a time in RFC 3339; a time that no calendar has as 1970.
pub fn rfc3339_of(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    rfc3339(time.unwrap_or_default())
}

/// Says how long ago it was, in its largest unit.
pub fn ago(now_unix_s: u64, unix_s: u64) -> String {
    format!("{} ago", in_largest_unit(now_unix_s.saturating_sub(unix_s)))
}

/// Says a number of seconds in the largest unit.
pub fn in_largest_unit(seconds: u64) -> String {
    let (number, unit) = match seconds {
        0..60 => (seconds, "s"),
        60..3600 => (seconds / 60, "min"),
        3600..86400 => (seconds / 3600, "h"),
        _ => (seconds / 86400, "d"),
    };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_its_largest_unit() {
        let said = [0, 59, 60, 3599, 7200, 86400 * 3].map(|seconds| ago(1_000_000, 1_000_000 - seconds));
        assert_eq!(said, ["0 s ago", "59 s ago", "1 min ago", "59 min ago", "2 h ago", "3 d ago"]);
        assert_eq!(ago(1, 2), "0 s ago", "a clock that was set back");
        assert_eq!(rfc3339_of(1_790_000_000), "2026-09-21T14:13:20.000Z");
        assert_eq!(rfc3339_of(u64::MAX), "1970-01-01T00:00:00.000Z");
    }
}
