//! Flags, numbers, words.

use std::ops::RangeInclusive;

use toml::de::DeValue;

use super::{Inline, integer, quote};
use crate::diagnostics::nearest;
use crate::schema::{At, Context, Item};

/// The kind of `true` and `false`.
#[derive(Debug)]
pub struct Flag;

/// Returns the kind of `true` and `false`.
pub fn flag() -> Flag {
    Flag
}

impl Inline for Flag {
    type Value = bool;

    fn describe(&self) -> String {
        "true or false".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<bool> {
        let value = item.get_ref().as_bool();
        let quoted = matches!(item.get_ref().as_str(), Some("true" | "false"));
        value.or_else(|| self.refuse(item, at, context, if quoted { ": remove the quotes" } else { "" }))
    }

    fn text(&self, value: &bool) -> String {
        value.to_string()
    }
}

/// The kind of whole numbers in a range.
#[derive(Debug)]
pub struct Whole<T> {
    range: RangeInclusive<T>,
}

/// Returns the kind of whole numbers in `range`.
pub fn whole<T>(range: RangeInclusive<T>) -> Whole<T> {
    Whole { range }
}

impl<T: Copy + PartialOrd + std::fmt::Display + TryFrom<i128> + Bounded> Inline for Whole<T> {
    type Value = T;

    fn describe(&self) -> String {
        match (self.range.start(), self.range.end()) {
            (from, to) if *to >= T::MAX => format!("a whole number from {from} on"),
            (from, to) => format!("a whole number from {from} to {to}"),
        }
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<T> {
        let number = item.get_ref().as_integer().and_then(integer).and_then(|number| T::try_from(number).ok());
        let number = number.filter(|number| self.range.contains(number));
        let quoted = item.get_ref().as_str().is_some_and(|text| text.parse::<i64>().is_ok());
        number.or_else(|| self.refuse(item, at, context, if quoted { ": remove the quotes" } else { "" }))
    }

    fn text(&self, value: &T) -> String {
        value.to_string()
    }
}

/// The kind of a choice among whole numbers.
#[derive(Debug)]
pub struct Choice {
    numbers: &'static [u32],
}

/// Returns the kind of a choice among `numbers`.
pub fn choice(numbers: &'static [u32]) -> Choice {
    Choice { numbers }
}

impl Inline for Choice {
    type Value = u32;

    fn describe(&self) -> String {
        let numbers: Vec<_> = self.numbers.iter().map(u32::to_string).collect();
        numbers.join(" or ")
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<u32> {
        let number = item.get_ref().as_integer().and_then(integer).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| self.numbers.contains(number));
        let quoted = item.get_ref().as_str().is_some_and(|text| text.parse::<i64>().is_ok());
        number.or_else(|| self.refuse(item, at, context, if quoted { ": remove the quotes" } else { "" }))
    }

    fn text(&self, value: &u32) -> String {
        value.to_string()
    }
}

/// The largest number of a type that TOML can hold.
pub trait Bounded {
    /// The largest value.
    const MAX: Self;
}

impl Bounded for u32 {
    const MAX: Self = Self::MAX;
}
impl Bounded for u64 {
    const MAX: Self = i64::MAX as Self;
}
impl Bounded for usize {
    const MAX: Self = isize::MAX as Self;
}

/// The kind of numbers in a range.
#[derive(Debug)]
pub struct Real {
    range: RangeInclusive<f64>,
}

/// Returns the kind of numbers in `range`.
pub fn real(range: RangeInclusive<f64>) -> Real {
    Real { range }
}

/// Returns the kind of numbers from 0 to 1.
pub fn fraction() -> Real {
    real(0.0..=1.0)
}

impl Inline for Real {
    type Value = f64;

    fn describe(&self) -> String {
        format!("a number from {} to {}", self.range.start(), self.range.end())
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<f64> {
        let number = match item.get_ref() {
            DeValue::Integer(number) => integer(number).map(|number| number as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        // NaN is in no range.
        let number = number.filter(|number| self.range.contains(number));
        let percent = match item.get_ref().as_str() {
            Some(text) if text.trim_end().ends_with('%') && *self.range.end() == 1.0 => ": write 50 % as 0.5",
            Some(text) if text.parse::<f64>().is_ok() => ": remove the quotes",
            _ => "",
        };
        number.or_else(|| self.refuse(item, at, context, percent))
    }

    fn text(&self, value: &f64) -> String {
        // Debug is the shortest text that reads back as the same number.
        let text = format!("{value:?}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    }
}

/// The kind of a choice among words.
#[derive(Debug)]
pub struct Word<T> {
    /// The words with their values.
    pub words: Vec<(&'static str, T)>,
}

/// A type whose values have names.
pub trait Words: Copy + PartialEq + 'static {
    /// Returns the names with their values, in the order of the reference.
    fn words() -> Vec<(&'static str, Self)>;
}

/// Returns the kind of a choice among the names of `T`.
pub fn word<T: Words>() -> Word<T> {
    Word { words: T::words() }
}

/// Returns the value of a word, or a sentence that lists the valid words, for clap.
pub fn parse_word<T: Words>(text: &str) -> Result<T, String> {
    let words = T::words();
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let near = nearest(text, names.iter().copied()).map_or(String::new(), |near| format!("; did you mean {near}?"));
        format!("not one of {}{near}", names.join(", "))
    })
}

impl<T: Copy + PartialEq> Inline for Word<T> {
    type Value = T;

    fn describe(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        match words.as_slice() {
            [one] => one.clone(),
            [one, other] => format!("{one} or {other}"),
            words => format!("one of {}", words.join(", ")),
        }
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<T> {
        let text = item.get_ref().as_str();
        let found = text.and_then(|text| self.words.iter().find(|(word, _)| *word == text));
        if let Some((_, value)) = found {
            return Some(*value);
        }
        let near = text.and_then(|text| nearest(text, self.words.iter().map(|(word, _)| *word)));
        let more = near.map_or(String::new(), |near| format!(": did you mean \"{near}\"?"));
        self.refuse(item, at, context, &more)
    }

    fn text(&self, value: &T) -> String {
        // The list has every value of the type, which a test checks.
        self.words.iter().find(|(_, known)| known == value).map_or(String::new(), |(word, _)| quote(word))
    }
}
