//! Kinds of values: how each is read, checked, written and described.
//!
//! - `plain`: flags, numbers, durations, sizes, permissions, words.
//! - `text`: strings, names, paths, URLs, command lines.
//! - `network`: addresses to listen on, host names, brokers, topics, subjects, URLs and certificates of cameras.
//! - `camera`: names of V4L2 cameras, values of their controls, levels of grey, crops.

mod camera;
mod network;
mod plain;
mod text;

use std::collections::BTreeMap;

use toml::de::{DeInteger, DeValue};

use super::diagnostics::Diagnostics;
use super::schema::{Context, Item, KeyKind, Shape, Written};

pub use camera::{CameraName, ControlValue, camera, control, crop, fill, frame_size, levels, metres, points};
pub use network::{
    Address, Fingerprint, address, broker, fingerprint, host, http_url, is_loopback, rtsp_url, subject, topic,
};
pub use plain::{
    Words, choice, duration, duration_or_zero, flag, fraction, mode, one_of_with_hints, parse_word, real, size,
    size_or_zero, time_of_day, whole, word, word_of,
};
pub use text::{command_line, credential, is_url, label, location, name, path, program, text, time_zone};

/// Why a value is rejected.
enum Refusal {
    /// It is of the wrong kind: `must be KIND, not VALUE`, followed by this text.
    OtherKind(String),
    /// This sentence, after the path of the key.
    Sentence(String),
    /// The errors were reported one by one.
    Reported,
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(more: T) -> Self {
        Self::OtherKind(more.into())
    }
}

/// Returns a kind whose values follow `=`. `description` follows "must be"; `text` returns a value as TOML.
fn value<T: 'static>(
    description: impl Into<String>,
    text: impl Fn(&T) -> String + 'static,
    read: impl Fn(&Item<'_>, &mut Context<'_>) -> Result<T, Refusal> + 'static,
) -> KeyKind<T> {
    let description = description.into();
    let shape = Shape::Value(description.clone());
    KeyKind {
        shape: Box::new(move || shape.clone()),
        read: Box::new(move |item, context| {
            let refusal = match read(item, context) {
                Ok(value) => return Some(value),
                Err(refusal) => refusal,
            };
            let sentence = match refusal {
                Refusal::OtherKind(more) => format!("must be {description}, not {}{more}", show(item.get_ref())),
                Refusal::Sentence(sentence) => sentence,
                Refusal::Reported => return None,
            };
            context.wrong(item, &sentence);
            None
        }),
        write: Box::new(move |value| Written::Value(text(value))),
    }
}

/// Returns a kind of strings.
fn string(
    description: impl Into<String>,
    read: impl Fn(&Item<'_>, &mut Context<'_>) -> Result<String, Refusal> + 'static,
) -> KeyKind<String> {
    value(description, |text: &String| quote(text), read)
}

/// Returns the kind of lists of `kind`.
pub fn list<T: 'static>(kind: KeyKind<T>) -> KeyKind<Vec<T>> {
    let one = describe(&kind);
    let description = format!("a list, each {}", one.strip_prefix("one of ").unwrap_or(&one));
    let KeyKind { read, write, .. } = kind;
    let read = move |item: &Item<'_>, context: &mut Context<'_>| {
        let Some(items) = item.get_ref().as_array() else {
            let (path, note, base) = (context.path, context.note, context.base);
            let diagnostics = &mut Diagnostics::default();
            let is_single = matches!(item.get_ref(), DeValue::String(_) | DeValue::Integer(_))
                && read(item, &mut Context { path, note, base, diagnostics, items: Vec::new() }).is_some();
            return Err(if is_single { format!(": write [{}]", show(item.get_ref())) } else { String::new() }.into());
        };
        Ok(valid_items(items.iter(), context, |item, context| read(item, context)))
    };
    value(description, move |values: &Vec<T>| bracketed(values.iter().map(|value| inline(write(value)))), read)
}

/// Reads the items of a list; returns the valid ones and notes their places.
pub fn valid_items<'a, 'i: 'a, T>(
    items: impl Iterator<Item = &'a Item<'i>>,
    context: &mut Context<'_>,
    read: impl Fn(&Item<'i>, &mut Context<'_>) -> Option<T>,
) -> Vec<T> {
    let mut values = Vec::new();
    for item in items {
        if let Some(value) = read(item, context) {
            values.push(value);
            context.items.push(item.span());
        }
    }
    values
}

/// Returns the kind of maps from names to values of `kind`.
pub fn by_name<T: 'static>(kind: KeyKind<T>) -> KeyKind<BTreeMap<String, T>> {
    let description = format!("a table of names, each with {}", describe(&kind));
    let KeyKind { read, write, .. } = kind;
    let read = move |item: &Item<'_>, context: &mut Context<'_>| {
        let table = item.get_ref().as_table().ok_or("")?;
        let mut values = BTreeMap::new();
        for (key, item) in table.iter() {
            let path = format!("{}.{}", context.path, visiond_system::logging::escape(key.get_ref()));
            let (note, base, diagnostics) = (context.note, context.base, &mut *context.diagnostics);
            if let Some(value) = read(item, &mut Context { path: &path, note, base, diagnostics, items: Vec::new() }) {
                values.insert(key.get_ref().to_string(), value);
            }
        }
        if values.len() == table.len() { Ok(values) } else { Err(Refusal::Reported) }
    };
    let text = move |values: &BTreeMap<String, T>| {
        let entries: Vec<_> =
            values.iter().map(|(name, value)| format!("{} = {}", quote(name), inline(write(value)))).collect();
        if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
    };
    value(description, text, read)
}

fn describe<T>(kind: &KeyKind<T>) -> String {
    if let Shape::Value(description) = (kind.shape)() { description } else { String::new() }
}

fn inline(written: Written) -> String {
    if let Written::Value(text) = written { text } else { String::new() }
}

fn bracketed(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// Returns a value for an error message.
fn show(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > 60 => {
            format!("{}...", quote(&text.chars().take(60).collect::<String>()).trim_end_matches('"'))
        }
        DeValue::String(text) => quote(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Returns a string as TOML: quoted, on one line.
pub fn quote(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

/// Returns the text of a string that is not empty and has no NUL, which no path, name or argument can hold.
fn filled<'a>(item: &'a Item<'_>) -> Result<&'a str, Refusal> {
    item.get_ref().as_str().filter(|text| !text.is_empty() && !text.contains('\0')).ok_or_else(|| "".into())
}

fn integer(number: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}
