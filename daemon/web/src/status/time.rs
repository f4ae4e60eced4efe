//! Points in time as text.

/// Formats a time in RFC 3339, in UTC to the millisecond.
pub fn rfc3339(time: jiff::Timestamp) -> String {
    format!("{time:.3}")
}
