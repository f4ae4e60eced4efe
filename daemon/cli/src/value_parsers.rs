//! Value parsers that several commands give to clap. Their errors are sentences because clap prints them as such.

use std::time::Duration;

use visiond_config::types::LOAD_TIMEOUT;
use visiond_config::units::format_duration;
use visiond_config::{parse_duration, parse_size};

/// Parses a number from 0 to 1.
pub fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

/// Parses a number of frames in a second, above zero.
pub fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.001..=1000.0).contains(number));
    number.ok_or_else(|| "expected a number from 0.001 to 1000".to_owned())
}

/// Parses a duration above zero, such as `10s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "expected a time with a unit, such as 10s or 5min".to_owned())
}

/// Parses the time limit of a model's trial, as `load_timeout` in the configuration.
pub fn load_timeout(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok().filter(|time| LOAD_TIMEOUT.contains(time));
    let [least, most] = [LOAD_TIMEOUT.start(), LOAD_TIMEOUT.end()].map(|limit| format_duration(*limit));
    time.ok_or_else(|| format!("expected a time from {least} to {most}"))
}

/// Parses a size above zero, such as `2GiB`.
pub fn size(text: &str) -> Result<u64, String> {
    let size = parse_size(text).ok().filter(|size| *size > 0);
    size.ok_or_else(|| "expected a size with a unit, such as 512MiB or 2GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit() {
        assert_eq!(duration("1min30s"), Ok(Duration::from_secs(90)));
        assert_eq!(load_timeout("1h"), Ok(Duration::from_secs(3600)));
        assert!(load_timeout("1ns").is_err() && load_timeout("2h").is_err());
        assert!(duration("10").is_err() && duration("0s").is_err() && duration("soon").is_err());
    }

    #[test]
    fn a_size_has_a_unit_and_is_above_zero() {
        assert_eq!([size("512MiB"), size("2GiB")], [Ok(512 << 20), Ok(2 << 30)]);
        for wrong in ["0MiB", "10", "large", "-1GiB", ""] {
            assert_eq!(size(wrong), Err("expected a size with a unit, such as 512MiB or 2GiB".to_owned()), "{wrong}");
        }
    }
}
