//! Reads Python literals, as `str()` of a dict, a list or a number writes them. Ultralytics' metadata consists of these.

/// The maximum nesting of lists and dicts.
const MOST_DEPTH: usize = 16;

/// A Python value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// A list or a tuple.
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
}

/// Reads the value in `text`. The error is text, because it becomes part of `UltralyticsError::Value`.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let mut parser = Parser { rest: text.trim(), whole: text.trim().len() };
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.rest.is_empty() { Ok(value) } else { Err(parser.unexpected("its end")) }
}

struct Parser<'a> {
    rest: &'a str,
    whole: usize,
}

impl Parser<'_> {
    fn unexpected(&self, wanted: &str) -> String {
        let at = self.whole - self.rest.len();
        match self.rest.chars().next() {
            Some(found) => format!("with {found:?} after {at} bytes instead of {wanted}"),
            None => format!("which ends after {at} bytes instead of {wanted}"),
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Consumes `wanted` if it is next.
    fn takes(&mut self, wanted: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MOST_DEPTH {
            return Err("which is nested too deep".to_owned());
        }
        self.skip_space();
        for (word, value) in [
            ("None", Value::None),
            ("null", Value::None),
            ("True", Value::Bool(true)),
            ("true", Value::Bool(true)),
            ("False", Value::Bool(false)),
            ("false", Value::Bool(false)),
        ] {
            if self.takes(word) {
                return Ok(value);
            }
        }
        match self.rest.chars().next() {
            Some('{') => self.dict(depth),
            Some('[') => self.list('[', "]", depth),
            Some('(') => self.list('(', ")", depth),
            Some(quote @ ('\'' | '"')) => self.text(quote).map(Value::Text),
            Some('0'..='9' | '-' | '+' | '.') => self.number(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn dict(&mut self, depth: usize) -> Result<Value, String> {
        self.takes("{");
        let mut pairs = Vec::new();
        while !self.takes("}") {
            let key = self.value(depth + 1)?;
            if !self.takes(":") {
                return Err(self.unexpected("a colon"));
            }
            pairs.push((key, self.value(depth + 1)?));
            if !self.takes(",") && !self.rest.starts_with('}') {
                return Err(self.unexpected("a comma or a closing brace"));
            }
        }
        Ok(Value::Dict(pairs))
    }

    fn list(&mut self, open: char, close: &str, depth: usize) -> Result<Value, String> {
        self.rest = self.rest.strip_prefix(open).unwrap_or(self.rest);
        let mut values = Vec::new();
        while !self.takes(close) {
            values.push(self.value(depth + 1)?);
            if !self.takes(",") && !self.rest.starts_with(close) {
                return Err(self.unexpected("a comma or a closing bracket"));
            }
        }
        Ok(Value::List(values))
    }

    fn number(&mut self) -> Result<Value, String> {
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_')))
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let value = match (digits.parse::<i64>(), digits.parse::<f64>()) {
            (Ok(int), _) => Value::Int(int),
            (_, Ok(float)) => Value::Float(float),
            _ => return Err(self.unexpected("a number")),
        };
        self.rest = rest;
        Ok(value)
    }

    fn text(&mut self, quote: char) -> Result<String, String> {
        let mut chars = self.rest.char_indices().skip(1);
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.rest = &self.rest[at + 1..];
                return Ok(text);
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let Some((_, escape)) = chars.next() else { break };
            let mut hex = |digits: usize| {
                let number = (0..digits).try_fold(0_u32, |n, _| Some(n * 16 + chars.next()?.1.to_digit(16)?));
                number.and_then(char::from_u32).ok_or_else(|| "with an escape that is no character".to_owned())
            };
            match escape {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'x' => text.push(hex(2)?),
                'u' => text.push(hex(4)?),
                'U' => text.push(hex(8)?),
                '\\' | '\'' | '"' => text.push(escape),
                // As Python does: a backslash before anything else is a backslash.
                other => text.extend(['\\', other]),
            }
        }
        Err("with a text that is not closed".to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_with_both_quotes_and_escapes_are_read() {
        let value = parse(r#"{0: 'person', 1: "driver's cab", 2: 'a \'b\' \\ \u00e9', }"#).unwrap();
        let names = ["person", "driver's cab", "a 'b' \\ é"];
        let wanted = (0..).zip(names).map(|(i, name)| (Value::Int(i), Value::Text(name.to_owned()))).collect();
        assert_eq!(value, Value::Dict(wanted));
    }

    #[test]
    fn what_is_no_literal_is_told() {
        for (text, problem) in [
            ("{0: 'person'", "which ends after 12 bytes instead of a comma or a closing brace"),
            ("{0: 'person", "with a text that is not closed"),
            ("{0 'person'}", "with '\\'' after 3 bytes instead of a colon"),
            ("[1, 2] 3", "with '3' after 7 bytes instead of its end"),
            ("", "which ends after 0 bytes instead of a value"),
            ("1-2", "with '1' after 0 bytes instead of a number"),
            (r"'\ud800'", "with an escape that is no character"),
        ] {
            assert_eq!(parse(text).unwrap_err(), problem, "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = parse(&text);
        }

        #[test]
        fn almost_literals_do_not_make_it_panic(text in r#"[\[\]{}(),:'"\\0-9xuUeE. NTFatruefolsn-]{0,60}"#) {
            let _ = parse(&text);
        }
    }
}
