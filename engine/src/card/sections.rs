//! Reads TOML with locations: takes keys out of tables one by one, and collects every problem instead of stopping at the first.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use visiond_ground::nearest::nearest;

use super::error::CardProblem;

/// The card's text and the problems found so far.
pub(super) struct CardSource<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    problems: RefCell<Vec<CardProblem>>,
}

impl<'a> CardSource<'a> {
    pub(super) fn new(path: &'a Path, text: &'a str) -> Self {
        Self { path, text, problems: RefCell::default() }
    }

    /// Adds a problem at `span`, unless there are [`MAX_PROBLEMS`].
    pub(super) fn wrong(&self, span: Range<usize>, message: impl Into<String>) {
        let mut problems = self.problems.borrow_mut();
        // Locating each problem counts the lines before it.
        if problems.len() < MAX_PROBLEMS {
            problems.push(CardProblem::new(self.path, self.text, span, message.into()));
        }
    }

    /// Returns all problems in the order of the file.
    pub(super) fn into_problems(self) -> Vec<CardProblem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|p| (p.line, p.column));
        problems
    }
}

/// How many problems of a card to show.
const MAX_PROBLEMS: usize = 100;

/// Returns "did you mean" for an unknown word, or the list of all known ones.
pub(super) fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("there is {}", list(known)),
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// Returns the number in a value.
pub(super) fn number_in(value: &DeValue<'_>) -> Option<f64> {
    let number: f64 = match value {
        DeValue::Integer(int) => i64::from_str_radix(int.as_str(), int.radix()).ok()? as f64,
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// A table that is being read.
pub(super) struct CardSection<'a> {
    source: &'a CardSource<'a>,
    /// Its name in messages: `[input]`, or `the card` for the top level.
    pub(super) title: String,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'a> CardSection<'a> {
    pub(super) fn new(source: &'a CardSource<'a>, title: impl Into<String>, table: Option<&'a DeTable<'a>>) -> Self {
        Self { source, title: title.into(), table, known: Vec::new() }
    }

    /// Returns the value of a key, which counts as known from now on.
    pub(super) fn value(&mut self, key: &'static str) -> Option<&'a Value<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.table?.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// Returns the result of `read` for a key's value; reports a value of the wrong type.
    fn typed<T>(&mut self, key: &'static str, wanted: &str, read: impl Fn(&'a DeValue<'a>) -> Option<T>) -> Option<T> {
        let value = self.value(key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            self.wrong_type(key, value, wanted);
        }
        found
    }

    /// Returns the table under a key.
    pub(super) fn section(&mut self, key: &'static str) -> CardSection<'a> {
        let table = self.typed(key, &format!("a table: write [{key}] on a line of its own"), DeValue::as_table);
        CardSection::new(self.source, format!("[{key}]"), table)
    }

    /// Returns the tables in the list under a key; `title` is their name in messages.
    pub(super) fn sections(&mut self, key: &'static str, title: &str) -> Vec<CardSection<'a>> {
        let wanted = format!("a list of tables: write {title} on a line of its own above each");
        let tables = self.list(key, &wanted, |section, element| {
            let table = element.get_ref().as_table();
            if table.is_none() {
                section.wrong_type(key, element, "a list of tables");
            }
            table
        });
        let section = |table| CardSection::new(self.source, title, Some(table));
        tables.unwrap_or_default().into_iter().map(section).collect()
    }

    fn wrong_type(&self, key: &str, value: &Value<'_>, wanted: &str) {
        let found = match value.get_ref() {
            // Infinite, not a number, or beyond what a number can hold.
            DeValue::Float(float) if number_in(value.get_ref()).is_none() => float.as_str(),
            DeValue::Integer(int) if number_in(value.get_ref()).is_none() => int.as_str(),
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::String(_) => "a text",
            DeValue::Boolean(_) => "true or false",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
            DeValue::Datetime(_) => "a date",
        };
        self.source.wrong(value.span(), format!("`{key}` is {found}, not {wanted}"));
    }

    /// Reads a text.
    pub(super) fn text(&mut self, key: &'static str) -> Option<&'a str> {
        self.typed(key, "a text in quotes", DeValue::as_str)
    }

    /// Reads a boolean.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.typed(key, "true or false", DeValue::as_bool)
    }

    /// Reads one of several words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let word = self.typed(key, &format!("one of {}", list(&names)), DeValue::as_str)?;
        let found = words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        if found.is_none() {
            let nearest = match nearest(word, names.iter().copied()) {
                Some(name) => format!("did you mean `{name}`? There is {}", list(&names)),
                None => format!("there is {}", list(&names)),
            };
            self.wrong_at(key, format!("`{key}` cannot be `{word}`: {nearest}"));
        }
        found
    }

    /// Reads a number within bounds.
    pub(super) fn number(&mut self, key: &'static str, least: f64, most: f64) -> Option<f64> {
        let number = self.typed(key, &bounds_text(least, most), number_in)?;
        let value = self.value(key)?;
        self.within(key, value, number, least, most)
    }

    /// Reads an integer within bounds.
    pub(super) fn whole(&mut self, key: &'static str, least: u32, most: u32) -> Option<u32> {
        let value = self.value(key)?;
        self.whole_in(key, value, least, most)
    }

    fn whole_in(&self, key: &str, value: &Value<'_>, least: u32, most: u32) -> Option<u32> {
        let number = value.get_ref().is_integer().then(|| number_in(value.get_ref())).flatten();
        let Some(number) = number else {
            self.wrong_type(key, value, &format!("a whole number from {least} to {most}"));
            return None;
        };
        self.within(key, value, number, f64::from(least), f64::from(most)).map(|n| n as u32)
    }

    fn within(&self, key: &str, value: &Value<'_>, number: f64, least: f64, most: f64) -> Option<f64> {
        let inside = (least..=most).contains(&number);
        if !inside {
            self.source.wrong(value.span(), format!("`{key}` is {number}, not {}", bounds_text(least, most)));
        }
        inside.then_some(number)
    }

    /// Reads a list whose elements `read` accepts.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&Self, &'a Value<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let array = self.typed(key, wanted, DeValue::as_array)?;
        array.iter().map(|element| read(self, element)).collect()
    }

    /// Reads a list of integers within bounds.
    pub(super) fn wholes(&mut self, key: &'static str, least: u32, most: u32, wanted: &str) -> Option<Vec<u32>> {
        self.list(key, wanted, |section, element| section.whole_in(key, element, least, most))
    }

    /// Reads a list of integers within bounds that is an element of the list under `key`.
    pub(super) fn wholes_in(
        &self,
        key: &str,
        value: &'a Value<'a>,
        least: u32,
        most: u32,
        wanted: &str,
    ) -> Option<Vec<u32>> {
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(key, value, wanted);
            return None;
        };
        array.iter().map(|element| self.whole_in(key, element, least, most)).collect()
    }

    /// Adds a problem at a value.
    pub(super) fn wrong_value(&self, value: &Value<'_>, message: impl Into<String>) {
        self.source.wrong(value.span(), message);
    }

    /// Reads a list of texts.
    pub(super) fn texts(&mut self, key: &'static str, wanted: &str) -> Option<Vec<String>> {
        self.list(key, wanted, |section, element| {
            let text = element.get_ref().as_str().map(str::to_owned);
            if text.is_none() {
                section.wrong_type(key, element, "a text in quotes");
            }
            text
        })
    }

    /// Returns the location of the table, or the start of the card.
    pub(super) fn span(&self) -> Range<usize> {
        let first = self.table.and_then(|table| table.iter().map(|(key, _)| key.span()).min_by_key(|s| s.start));
        first.unwrap_or(0..0)
    }

    /// Adds a problem at a key's value.
    pub(super) fn wrong_at(&mut self, key: &'static str, message: impl Into<String>) {
        let span = self.value(key).map_or_else(|| self.span(), Spanned::span);
        self.source.wrong(span, message);
    }

    /// Returns every key in the table.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value<'a>)> {
        self.table.into_iter().flat_map(|table| table.iter().map(|(key, value)| (key.get_ref().as_ref(), value)))
    }

    /// Reports the keys that were not read.
    pub(super) fn finish(self) {
        for (key, _) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if !self.known.contains(&name) {
                let hint = suggestion(name, &self.known);
                self.source.wrong(key.span(), format!("{} has no key `{name}`: {hint}", self.title));
            }
        }
    }
}

fn bounds_text(least: f64, most: f64) -> String {
    if most >= f64::from(f32::MAX) {
        if least > 0.0 { "a number above 0".to_owned() } else { "a number".to_owned() }
    } else {
        format!("a number from {least} to {most}")
    }
}
