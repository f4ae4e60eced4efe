//! Flags, numbers, durations, sizes, permissions, words.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;
use visiond_ground::nearest::nearest;

use super::{Refusal, integer, quote, value};
use crate::schema::{Item, KeyKind};
use crate::units::{UnitError, format_duration, format_size, parse_duration, parse_size};

/// Returns the kind of `true` and `false`.
pub fn flag() -> KeyKind<bool> {
    value("true or false", bool::to_string, |item, _| {
        let is_quoted = matches!(item.get_ref().as_str(), Some("true" | "false"));
        item.get_ref().as_bool().ok_or_else(|| unquote(is_quoted))
    })
}

/// Returns the kind of integers in `range`.
pub fn whole<T>(range: RangeInclusive<T>) -> KeyKind<T>
where
    T: Copy + PartialOrd + Display + TryFrom<i128> + TryInto<i64> + 'static,
{
    let (from, to) = (range.start(), range.end());
    let description = match (*to).try_into() {
        Ok(i64::MAX) => format!("a whole number from {from} on"),
        _ => format!("a whole number from {from} to {to}"),
    };
    value(description, T::to_string, move |item, _| number(item, |number| range.contains(number)))
}

/// Returns the kind of a choice among `numbers`.
pub fn choice(numbers: &'static [u32]) -> KeyKind<u32> {
    let names: Vec<_> = numbers.iter().map(u32::to_string).collect();
    value(names.join(" or "), u32::to_string, |item, _| number(item, |number| numbers.contains(number)))
}

/// Reads an integer that `fits`.
fn number<T: TryFrom<i128>>(item: &Item<'_>, fits: impl Fn(&T) -> bool) -> Result<T, Refusal> {
    let number = item.get_ref().as_integer().and_then(integer).and_then(|number| T::try_from(number).ok());
    let is_quoted = item.get_ref().as_str().is_some_and(|text| text.parse::<i64>().is_ok());
    number.filter(fits).ok_or_else(|| unquote(is_quoted))
}

fn unquote(is_quoted: bool) -> Refusal {
    if is_quoted { ": remove the quotes" } else { "" }.into()
}

/// Returns the kind of numbers in `range`.
pub fn real(range: RangeInclusive<f64>) -> KeyKind<f64> {
    // Debug is the shortest text that reads back as the same number.
    let text = |number: &f64| format!("{number:?}").trim_end_matches(".0").to_owned();
    value(format!("a number from {} to {}", range.start(), range.end()), text, move |item, _| {
        let number = match item.get_ref() {
            DeValue::Integer(number) => integer(number).map(|number| number as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        // NaN is in no range.
        number.filter(|number| range.contains(number)).ok_or_else(|| match item.get_ref().as_str() {
            Some(text) if text.trim_end().ends_with('%') && *range.end() == 1.0 => ": write 50 % as 0.5".into(),
            text => unquote(text.is_some_and(|text| text.parse::<f64>().is_ok())),
        })
    })
}

/// Returns the kind of numbers from 0 to 1.
pub fn fraction() -> KeyKind<f64> {
    real(0.0..=1.0)
}

/// Returns the kind of durations in `range`.
pub fn duration(range: RangeInclusive<Duration>) -> KeyKind<Duration> {
    quantity("a duration", range, false, format_duration, parse_duration, DURATION_UNITS)
}

/// Returns the kind of durations in `range`, and 0, which the documentation of the key explains.
pub fn duration_or_zero(range: RangeInclusive<Duration>) -> KeyKind<Duration> {
    quantity("a duration", range, true, format_duration, parse_duration, DURATION_UNITS)
}

/// Returns the kind of local times of the day, as minutes from midnight to `last`.
pub fn time_of_day(last: u16) -> KeyKind<u16> {
    let text_of = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
    let text = move |minute: &u16| quote(&text_of(*minute));
    let description = format!("a time of day from \"00:00\" to {}", text(&last));
    value(description, text, move |item, _| {
        let given = match item.get_ref() {
            DeValue::String(time) => time.to_string(),
            DeValue::Integer(hour) => hour.to_string(),
            DeValue::Datetime(time) => time.to_string(),
            _ => return Err("".into()),
        };
        let minute = meant_minute(&given);
        match minute {
            Some(minute) if minute <= last && item.get_ref().as_str() == Some(&*text_of(minute)) => Ok(minute),
            // The end of a day is the beginning of the next one.
            Some(minute) => {
                let written = text(&if minute > last { minute % MINUTES_OF_DAY } else { minute });
                Err(format!(": write {written}").into())
            }
            None => Err("".into()),
        }
    })
}

const MINUTES_OF_DAY: u16 = 24 * 60;

/// Returns the minute of the day that `6`, `6:00` or `06:00:00` means.
fn meant_minute(time: &str) -> Option<u16> {
    let number = |digits: &str| {
        let is_one = (1..=2).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
        digits.parse().ok().filter(|_: &u16| is_one)
    };
    let mut parts = time.trim().splitn(3, ':');
    let hour = number(parts.next()?)?;
    let minute = parts.next().map_or(Some(0), number)?;
    parts.next().map_or(Some(0), number)?;
    Some(hour * 60 + minute).filter(|all| minute < 60 && *all <= MINUTES_OF_DAY)
}

/// Returns the kind of sizes in `range`.
pub fn size<T: TryFrom<u64> + TryInto<u64> + Quantity>(range: RangeInclusive<T>) -> KeyKind<T> {
    quantity("a size", range, false, format_bytes, parse_bytes, SIZE_UNITS)
}

/// Returns the kind of sizes in `range`, and 0, which the documentation of the key explains.
pub fn size_or_zero<T: TryFrom<u64> + TryInto<u64> + Quantity>(range: RangeInclusive<T>) -> KeyKind<T> {
    quantity("a size", range, true, format_bytes, parse_bytes, SIZE_UNITS)
}

fn format_bytes<T: TryInto<u64>>(bytes: T) -> String {
    // u64 can represent every size of the type.
    format_size(bytes.try_into().unwrap_or(u64::MAX))
}

fn parse_bytes<T: TryFrom<u64>>(text: &str) -> Result<T, UnitError> {
    T::try_from(parse_size(text)?).map_err(|_| UnitError::Malformed)
}

/// An amount whose default is 0.
pub trait Quantity: Copy + PartialOrd + Default + 'static {}
impl<T: Copy + PartialOrd + Default + 'static> Quantity for T {}

/// Two likely units, and the list of all units.
type Units = (&'static str, &'static str, &'static str);
const DURATION_UNITS: Units = ("s", "ms", "ns, us, ms, s, min, h and d");
const SIZE_UNITS: Units = ("MiB", "MB", "B, kB, KiB, MB, MiB, GB, GiB, TB and TiB");

fn quantity<T: Quantity>(
    noun: &str,
    range: RangeInclusive<T>,
    or_zero: bool,
    format: fn(T) -> String,
    parse: fn(&str) -> Result<T, UnitError>,
    (one, other, all): Units,
) -> KeyKind<T> {
    let text = move |value: &T| quote(&format(*value));
    let zero = if or_zero { "0 or " } else { "" };
    let description = format!("{zero}{noun} from {} to {}", text(range.start()), text(range.end()));
    value(description, text, move |item, _| {
        // Parse a bare number as well, so that the error says that the unit is missing.
        let given = match item.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            _ => return Err("".into()),
        };
        match parse(&given) {
            Ok(value) if range.contains(&value) || or_zero && value == T::default() => Ok(value),
            Ok(_) | Err(UnitError::Malformed) => Err("".into()),
            Err(UnitError::NoUnit) => {
                let number = given.trim();
                Err(format!(": write the unit, \"{number} {one}\" or \"{number} {other}\"").into())
            }
            Err(UnitError::Unknown(word, Some(near))) => Err(format!(": write {near}, not {word}").into()),
            Err(UnitError::Unknown(..)) => Err(format!(": the units are {all}").into()),
        }
    })
}

/// Returns the kind of octal permissions.
pub fn mode() -> KeyKind<u32> {
    let text = |mode: &u32| format!("0o{mode:03o}");
    value("octal permissions from 0o000 to 0o777", text, |item, _| {
        let parse = |digits: &str| u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777);
        match item.get_ref() {
            DeValue::String(text) => parse(text.strip_prefix("0o").unwrap_or(text)).ok_or_else(|| "".into()),
            DeValue::Integer(number) => match (number.radix(), parse(number.as_str())) {
                (8, Some(mode)) => Ok(mode),
                // A decimal 660 is probably meant to be octal, but equals 0o1224.
                (10, Some(_)) => Err(format!(": write 0o{}", number.as_str()).into()),
                _ => Err("".into()),
            },
            _ => Err("".into()),
        }
    })
}

/// A type whose values have names.
pub trait Words: Copy + PartialEq + 'static {
    /// Returns the names with their values, in the order of the reference.
    fn words() -> Vec<(&'static str, Self)>;
}

/// Returns the kind of a choice among the names of `T`.
pub fn word<T: Words>() -> KeyKind<T> {
    one_of(T::words())
}

/// Returns the value of a word, or a sentence that lists the valid words, which clap prints.
pub fn parse_word<T: Words>(text: &str) -> Result<T, String> {
    let words = T::words();
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let near = nearest(text, names.iter().copied()).map_or(String::new(), |near| format!("; did you mean {near}?"));
        format!("not one of {}{near}", names.join(", "))
    })
}

/// Returns the word for a value.
pub fn word_of<T: Words>(value: T) -> &'static str {
    T::words().into_iter().find(|(_, known)| *known == value).map_or("", |(word, _)| word)
}

/// Returns the kind of a choice among `words`, each with its value.
fn one_of<T: Copy + PartialEq + 'static>(words: Vec<(&'static str, T)>) -> KeyKind<T> {
    one_of_with_hints(words, |_| None)
}

/// Returns the kind of a choice among `words`. For another word, `hint` may suggest the intended one.
pub fn one_of_with_hints<T: Copy + PartialEq + 'static>(
    words: Vec<(&'static str, T)>,
    hint: fn(&str) -> Option<&'static str>,
) -> KeyKind<T> {
    let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let quoted: Vec<_> = names.iter().map(|word| quote(word)).collect();
    let description = match quoted.as_slice() {
        [one] => one.clone(),
        [one, other] => format!("{one} or {other}"),
        all => format!("one of {}", all.join(", ")),
    };
    let values: Vec<_> = words.iter().map(|(_, value)| *value).collect();
    // The list has every value of the type, which a test checks.
    let text =
        move |value: &T| values.iter().zip(&quoted).find(|(known, _)| *known == value).map(|(_, word)| word.clone());
    value(
        description,
        move |value| text(value).unwrap_or_default(),
        move |item, _| {
            let given = item.get_ref().as_str();
            let found = given.and_then(|given| words.iter().find(|(word, _)| *word == given));
            found.map(|(_, value)| *value).ok_or_else(|| {
                if let Some(hint) = given.and_then(|given| hint(&given.to_ascii_lowercase())) {
                    return format!(": {hint}").into();
                }
                let near = given.and_then(|given| nearest(given, names.iter().copied()));
                near.map_or(String::new(), |near| format!(": did you mean \"{near}\"?")).into()
            })
        },
    )
}
