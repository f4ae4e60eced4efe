//! Kinds of value: how each is read, checked, written and described.
//!
//! - `plain`: flags, numbers, words.
//! - `text`: strings, names, paths, URLs, command lines.
//! - `quantity`: what has a unit or a radix: times, sizes, permissions.
//! - `address`: where a server listens.
//! - `broker`: where a broker is, topics.
//! - `camera`: a camera's name.
//! - `control`: what a camera's control is set to.
//! - `subject`: subjects of NATS.
//! - `lists`: many values of one kind.

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

/// A kind whose values stand behind `=`.
pub trait Inline {
    /// What becomes of it.
    type Value;
    /// What follows "must be".
    fn describe(&self) -> String;
    /// Reads a value; `None` when an error was reported.
    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Self::Value>;
    /// A value as it stands behind `=`.
    fn text(&self, value: &Self::Value) -> String;

    /// Reports `must be X, not Y`, with what `more` adds.
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

/// A value as an error shows it.
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

/// A string as TOML: quoted, on one line.
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
