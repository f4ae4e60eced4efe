//! Values of camera controls, whose type only the camera knows.

use std::fmt;

use toml::de::DeValue;

use super::{Inline, integer, quote};
use crate::schema::{At, Context, Item};

/// Value of a camera control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlValue {
    /// On or off; `true` presses a button.
    Flag(bool),
    /// A number, the number of a menu item, or bits.
    Number(i64),
    /// Text, or the text of a menu item.
    Text(String),
}

impl ControlValue {
    /// Parses a value from a command line: true, 0x10, -3; else text. Quotes make text of a number.
    pub fn parse(text: &str) -> Self {
        let hex = text.strip_prefix("0x").and_then(|digits| i64::from_str_radix(digits, 16).ok());
        match (text, hex.or_else(|| text.parse().ok())) {
            ("true", _) => Self::Flag(true),
            ("false", _) => Self::Flag(false),
            (_, Some(number)) => Self::Number(number),
            _ => {
                let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                Self::Text(inner.unwrap_or(text).to_owned())
            }
        }
    }
}

impl fmt::Display for ControlValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(&quote(text)),
        }
    }
}

/// The kind of control values.
#[derive(Debug)]
pub struct Control;

/// Returns the kind of control values.
pub fn control() -> Control {
    Control
}

impl Inline for Control {
    type Value = ControlValue;

    fn describe(&self) -> String {
        "true, false, a whole number or a string".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<ControlValue> {
        match item.get_ref() {
            DeValue::Boolean(flag) => Some(ControlValue::Flag(*flag)),
            DeValue::Integer(number) => {
                let number = integer(number).and_then(|number| i64::try_from(number).ok());
                number.map(ControlValue::Number).or_else(|| self.refuse(item, at, context, ""))
            }
            // V4L2 ends text with a NUL.
            DeValue::String(text) if !text.contains('\0') => Some(ControlValue::Text(text.to_string())),
            _ => self.refuse(item, at, context, ""),
        }
    }

    fn text(&self, value: &ControlValue) -> String {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_lines_word_is_what_it_looks_like() {
        assert_eq!(ControlValue::parse("true"), ControlValue::Flag(true));
        assert_eq!(ControlValue::parse("-3"), ControlValue::Number(-3));
        assert_eq!(ControlValue::parse("0x1f"), ControlValue::Number(31));
        assert_eq!(ControlValue::parse("Manual Mode"), ControlValue::Text("Manual Mode".to_owned()));
        assert_eq!(ControlValue::parse("\"42\""), ControlValue::Text("42".to_owned()));
    }
}
