//! Durations, sizes, permissions.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use super::{Inline, quote};
use crate::schema::{At, Context, Item};
use crate::units::{UnitError, format_duration, format_size, parse_duration, parse_size};

/// The kind of durations in a range.
#[derive(Debug)]
pub struct Time {
    range: RangeInclusive<Duration>,
    zero: bool,
}

/// Returns the kind of durations in `range`.
pub fn duration(range: RangeInclusive<Duration>) -> Time {
    Time { range, zero: false }
}

impl Time {
    /// Allows 0 too; the documentation of the key says what it means.
    pub fn or_zero(self) -> Self {
        Self { zero: true, ..self }
    }
}

impl Inline for Time {
    type Value = Duration;

    fn describe(&self) -> String {
        let zero = if self.zero { "0 or " } else { "" };
        let (from, to) = (format_duration(*self.range.start()), format_duration(*self.range.end()));
        format!("{zero}a duration from \"{from}\" to \"{to}\"")
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Duration> {
        let text = with_unit(item);
        match text.as_deref().map_or(Err(UnitError::Malformed), parse_duration) {
            Ok(value) if self.range.contains(&value) || self.zero && value.is_zero() => Some(value),
            Ok(_) => self.refuse(item, at, context, ""),
            Err(error) => {
                let number = text.unwrap_or_default();
                self.refuse(item, at, context, &unit_remedy(error, &number, ["s", "ms"], "ns, us, ms, s, min, h and d"))
            }
        }
    }

    fn text(&self, value: &Duration) -> String {
        quote(&format_duration(*value))
    }
}

/// The kind of sizes in bytes.
#[derive(Debug)]
pub struct Size<T> {
    range: RangeInclusive<T>,
    zero: bool,
}

/// Returns the kind of sizes in `range`.
pub fn size<T>(range: RangeInclusive<T>) -> Size<T> {
    Size { range, zero: false }
}

impl<T> Size<T> {
    /// Allows 0 too; the documentation of the key says what it means.
    pub fn or_zero(self) -> Self {
        Self { zero: true, ..self }
    }
}

impl<T: Copy + PartialOrd + TryFrom<u64> + TryInto<u64>> Inline for Size<T> {
    type Value = T;

    fn describe(&self) -> String {
        let zero = if self.zero { "0 or " } else { "" };
        let [from, to] = [self.range.start(), self.range.end()].map(|bytes| self.text(bytes));
        format!("{zero}a size from {from} to {to}")
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<T> {
        let text = with_unit(item);
        match text.as_deref().map_or(Err(UnitError::Malformed), parse_size) {
            Ok(bytes) => {
                let value = T::try_from(bytes).ok();
                let value = value.filter(|value| self.range.contains(value) || self.zero && bytes == 0);
                value.or_else(|| self.refuse(item, at, context, ""))
            }
            Err(error) => {
                let number = text.unwrap_or_default();
                let units = "B, kB, KiB, MB, MiB, GB, GiB, TB and TiB";
                self.refuse(item, at, context, &unit_remedy(error, &number, ["MiB", "MB"], units))
            }
        }
    }

    fn text(&self, value: &T) -> String {
        // u64 can represent every size of the type.
        quote(&format_size((*value).try_into().unwrap_or(u64::MAX)))
    }
}

/// Returns the text of a number with a unit. A bare number is returned too, so that the error says that the unit is missing.
fn with_unit(item: &Item<'_>) -> Option<String> {
    match item.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

fn unit_remedy(error: UnitError, text: &str, likely: [&str; 2], all: &str) -> String {
    let text = text.trim();
    match error {
        UnitError::NoUnit => format!(": write the unit, \"{text} {}\" or \"{text} {}\"", likely[0], likely[1]),
        UnitError::Unknown(word, Some(near)) => format!(": write {near}, not {word}"),
        UnitError::Unknown(..) => format!(": the units are {all}"),
        UnitError::Malformed => String::new(),
    }
}

/// The kind of octal permissions.
#[derive(Debug)]
pub struct Mode;

/// Returns the kind of octal permissions.
pub fn mode() -> Mode {
    Mode
}

impl Inline for Mode {
    type Value = u32;

    fn describe(&self) -> String {
        "octal permissions from 0o000 to 0o777".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<u32> {
        let parse = |digits: &str| u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777);
        let octal = |text: &str| parse(text.strip_prefix("0o").unwrap_or(text));
        match item.get_ref() {
            DeValue::String(text) if octal(text).is_some() => octal(text),
            DeValue::Integer(number) if number.radix() == 8 && parse(number.as_str()).is_some() => {
                parse(number.as_str())
            }
            // A decimal 660 is probably meant to be octal, but equals 0o1224.
            DeValue::Integer(number) if number.radix() == 10 && parse(number.as_str()).is_some() => {
                self.refuse(item, at, context, &format!(": write 0o{}", number.as_str()))
            }
            _ => self.refuse(item, at, context, ""),
        }
    }

    fn text(&self, value: &u32) -> String {
        format!("0o{value:03o}")
    }
}
