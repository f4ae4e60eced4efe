//! Kinds of values: how each is read, checked, written and described.
//!
//! - `plain`: flags, numbers, words.
//! - `text`: strings, names, paths, URLs, command lines.
//! - `quantity`: durations, sizes, permissions.
//! - `address`: addresses to listen on, host names.
//! - `broker`: URLs of brokers, topics.
//! - `camera`: names of V4L2 cameras.
//! - `control`: values of camera controls.
//! - `subject`: NATS subjects.
//! - `lists`: lists and maps of one kind.

mod address;
mod broker;
mod camera;
mod control;
mod lists;
mod plain;
mod quantity;
mod subject;
mod text;

use toml::de::{DeInteger, DeValue};

use super::schema::{At, Context, Item, Kind, Shape, TableWriter};

pub use address::{Address, address, host, is_loopback};
pub use broker::{broker, split_broker, topic};
pub use camera::{CameraName, camera, camera_in};
pub use control::{ControlValue, control};
pub use lists::{by_name, list};
pub use plain::{Word, Words, choice, flag, fraction, parse_word, real, whole, word};
pub use quantity::{duration, mode, size};
pub use subject::subject;
pub use text::{command_line, credential, is_url, location, name, path, program, resolve, text};

/// A kind whose values stand after `=`.
pub trait Inline {
    /// The Rust type of the value.
    type Value;
    /// Returns the text that follows "must be".
    fn describe(&self) -> String;
    /// Reads a value; returns `None` after it reported an error.
    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Self::Value>;
    /// Returns a value as TOML, to stand after `=`.
    fn text(&self, value: &Self::Value) -> String;

    /// Reports `must be X, not Y`, followed by `more`.
    fn refuse<T>(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>, more: &str) -> Option<T> {
        let sentence = format!("must be {}, not {}{more}", self.describe(), show(item.get_ref()));
        context.wrong(item, at, &sentence);
        None
    }
}

impl<K: Inline> Kind for K {
    type Value = K::Value;

    fn shape(&self) -> Shape {
        Shape::Value(self.describe())
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<K::Value> {
        Inline::read(self, item, at, context)
    }

    fn write(&self, name: &str, value: &K::Value, table: &mut TableWriter) {
        table.value(name, &self.text(value));
    }

    fn inline(&self, value: &K::Value) -> String {
        self.text(value)
    }
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
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn integer(number: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}
