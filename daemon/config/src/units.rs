//! Reads and writes durations and sizes with units: `250 ms`, `1m30s`, `64 MiB`.

use std::time::Duration;

/// Units of time with their nanoseconds, longest first.
const TIMES: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Other spellings of [`TIMES`].
const TIME_ALIASES: [(&str, &str); 3] = [("m", "min"), ("sec", "s"), ("µs", "us")];

/// Units of size with their bytes, largest first.
const SIZES: [(&str, u128); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// Why a text is not a duration or size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitError {
    /// The number has no unit.
    NoUnit,
    /// The unit is unknown; holds the unit that it resembles.
    Unknown(String, Option<&'static str>),
    /// The text has no number, or not a whole number of nanoseconds or bytes.
    Malformed,
}

/// Reads a duration: one or more numbers with units, such as `1m30s`. A bare `0` is valid too.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let unit = |word: &str| {
        let word = TIME_ALIASES.iter().find(|(alias, _)| *alias == word).map_or(word, |(_, unit)| unit);
        TIMES.iter().find(|(name, _)| *name == word).map(|(_, ns)| *ns)
    };
    let ns = parse(text, unit, &TIMES)?;
    u64::try_from(ns).map(Duration::from_nanos).map_err(|_| UnitError::Malformed)
}

/// Reads a size in bytes. A bare `0` is valid too.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let unit = |word: &str| SIZES.iter().find(|(name, _)| *name == word).map(|(_, bytes)| *bytes);
    u64::try_from(parse(text, unit, &SIZES)?).map_err(|_| UnitError::Malformed)
}

/// Formats a duration with the longest unit that needs no fraction.
pub fn format_duration(duration: Duration) -> String {
    format_units(duration.as_nanos(), &TIMES, "s")
}

/// Formats a size with the largest unit that needs no fraction.
pub fn format_size(bytes: u64) -> String {
    format_units(u128::from(bytes), &SIZES, "B")
}

fn format_units(amount: u128, units: &[(&str, u128)], of_zero: &str) -> String {
    match units.iter().find(|(_, each)| amount >= *each && amount.is_multiple_of(*each)) {
        Some((unit, each)) => format!("{} {unit}", amount / each),
        None => format!("0 {of_zero}"),
    }
}

fn parse(text: &str, unit: impl Fn(&str) -> Option<u128>, units: &[(&'static str, u128)]) -> Result<u128, UnitError> {
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(UnitError::Malformed);
    }
    let mut sum = 0_u128;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (word, after) = after.split_at(letters);
        rest = after.trim_start();
        if word.is_empty() {
            let bare = number == text.trim() && number.starts_with(|c: char| c.is_ascii_digit());
            return Err(if bare { UnitError::NoUnit } else { UnitError::Malformed });
        }
        let each = unit(word).ok_or_else(|| UnitError::Unknown(word.to_owned(), similar(word, units)))?;
        let part = times(number, each).ok_or(UnitError::Malformed)?;
        sum = sum.checked_add(part).ok_or(UnitError::Malformed)?;
    }
    Ok(sum)
}

/// Returns `number` (digits and at most one point) times `each`, if that is a whole number.
fn times(number: &str, each: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u128 = whole.parse().ok()?;
    let tenths = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = fraction.parse::<u128>().ok()?.checked_mul(each)?;
    // A fraction of a byte or nanosecond is an error; do not round.
    if fraction % tenths != 0 {
        return None;
    }
    whole.checked_mul(each)?.checked_add(fraction / tenths)
}

/// Returns the unit that `word` probably means.
fn similar(word: &str, units: &[(&'static str, u128)]) -> Option<&'static str> {
    let lower = word.to_lowercase();
    let begins = |unit: &str| unit.to_lowercase() == lower || lower.starts_with("sec") && unit == "s";
    let named = [("k", "KiB"), ("m", "MiB"), ("g", "GiB"), ("t", "TiB"), ("minutes", "min"), ("minute", "min")];
    let named = || named.iter().find(|(name, _)| *name == lower).map(|(_, unit)| *unit);
    let named = || named().and_then(|unit| units.iter().find(|(name, _)| *name == unit));
    units.iter().find(|(unit, _)| begins(unit)).or_else(named).map(|(unit, _)| *unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let ms = |text: &str| parse_duration(text).map(|duration| duration.as_millis());
        assert_eq!(ms("250 ms"), Ok(250));
        assert_eq!(ms("5s"), Ok(5_000));
        assert_eq!(ms("1m30s"), Ok(90_000));
        assert_eq!(ms("1 min 30 s"), Ok(90_000));
        assert_eq!(ms("1.5 s"), Ok(1_500));
        assert_eq!(ms("2h"), Ok(7_200_000));
        assert_eq!(ms("0"), Ok(0));
        assert_eq!(ms("5"), Err(UnitError::NoUnit));
        assert_eq!(ms("5 S"), Err(UnitError::Unknown("S".into(), Some("s"))));
        assert_eq!(ms("5 seconds"), Err(UnitError::Unknown("seconds".into(), Some("s"))));
        assert_eq!(ms("5 x"), Err(UnitError::Unknown("x".into(), None)));
        for text in ["", "s", "-5 s", "1.5 ns", "1..5 s", "5 s 3", ". s", "99999999999999999999 d"] {
            assert!(matches!(ms(text), Err(UnitError::Malformed | UnitError::NoUnit)), "{text}");
        }
    }

    #[test]
    fn sizes_are_binary_or_decimal_as_their_unit_says() {
        assert_eq!(parse_size("64 MiB"), Ok(64 << 20));
        assert_eq!(parse_size("10MB"), Ok(10_000_000));
        assert_eq!(parse_size("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_size("512 B"), Ok(512));
        assert_eq!(parse_size("64"), Err(UnitError::NoUnit));
        assert_eq!(parse_size("64 mib"), Err(UnitError::Unknown("mib".into(), Some("MiB"))));
        assert_eq!(parse_size("64 M"), Err(UnitError::Unknown("M".into(), Some("MiB"))));
        assert_eq!(parse_size("0.3 B"), Err(UnitError::Malformed));
    }

    #[test]
    fn what_is_written_has_the_largest_whole_unit() {
        assert_eq!(format_duration(Duration::from_millis(1500)), "1500 ms");
        assert_eq!(format_duration(Duration::from_secs(90)), "90 s");
        assert_eq!(format_duration(Duration::ZERO), "0 s");
        assert_eq!(format_size(64 << 20), "64 MiB");
        assert_eq!(format_size(10_000_000), "10 MB");
        assert_eq!(format_size(0), "0 B");
    }
}
