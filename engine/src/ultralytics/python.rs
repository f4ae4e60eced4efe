//! Reads Python literals in the form of `str()` of a dict, a list or a number. Ultralytics' metadata consists of these.

/// The maximum nesting of lists and dicts.
const MOST_DEPTH: usize = 16;

/// A Python value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PythonValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// A list or a tuple.
    List(Vec<PythonValue>),
    Dict(Vec<(PythonValue, PythonValue)>),
}

/// Reads the value in `text`. The error is text, because it becomes part of `UltralyticsError::Value`.
pub(super) fn parse(text: &str) -> Result<PythonValue, String> {
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
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Result<PythonValue, String> {
        if depth > MOST_DEPTH {
            return Err("which is nested too deep".to_owned());
        }
        self.skip_space();
        for (word, value) in [
            ("None", PythonValue::None),
            ("null", PythonValue::None),
            ("True", PythonValue::Bool(true)),
            ("true", PythonValue::Bool(true)),
            ("False", PythonValue::Bool(false)),
            ("false", PythonValue::Bool(false)),
        ] {
            if self.takes(word) {
                return Ok(value);
            }
        }
        match self.rest.chars().next() {
            Some('{') => {
                let pairs = self.items('}', "a comma or a closing brace", |parser| parser.pair(depth + 1));
                pairs.map(PythonValue::Dict)
            }
            Some(open @ ('[' | '(')) => {
                let close = if open == '[' { ']' } else { ')' };
                let values = self.items(close, "a comma or a closing bracket", |parser| parser.value(depth + 1));
                values.map(PythonValue::List)
            }
            Some(quote @ ('\'' | '"')) => self.text(quote).map(PythonValue::Text),
            Some('0'..='9' | '-' | '+' | '.') => self.number(),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Reads items up to `close`, after the opening character.
    fn items<T>(
        &mut self,
        close: char,
        wanted: &str,
        mut item: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        while !self.takes(close.encode_utf8(&mut [0; 4])) {
            items.push(item(self)?);
            if !self.takes(",") && !self.rest.starts_with(close) {
                return Err(self.unexpected(wanted));
            }
        }
        Ok(items)
    }

    fn pair(&mut self, depth: usize) -> Result<(PythonValue, PythonValue), String> {
        let key = self.value(depth)?;
        if !self.takes(":") {
            return Err(self.unexpected("a colon"));
        }
        Ok((key, self.value(depth)?))
    }

    fn number(&mut self) -> Result<PythonValue, String> {
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_')))
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let value = match (digits.parse::<i64>(), digits.parse::<f64>()) {
            (Ok(int), _) => PythonValue::Int(int),
            (_, Ok(float)) => PythonValue::Float(float),
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
                number.and_then(char::from_u32).ok_or_else(|| "with an invalid escape".to_owned())
            };
            match escape {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'x' => text.push(hex(2)?),
                'u' => text.push(hex(4)?),
                'U' => text.push(hex(8)?),
                '\\' | '\'' | '"' => text.push(escape),
                // As in Python, a backslash before any other character is a backslash.
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
        let wanted =
            (0..).zip(names).map(|(i, name)| (PythonValue::Int(i), PythonValue::Text(name.to_owned()))).collect();
        assert_eq!(value, PythonValue::Dict(wanted));
    }

    #[test]
    fn an_invalid_literal_is_refused_with_its_place() {
        for (text, problem) in [
            ("{0: 'person'", "which ends after 12 bytes instead of a comma or a closing brace"),
            ("{0: 'person", "with a text that is not closed"),
            ("{0 'person'}", "with '\\'' after 3 bytes instead of a colon"),
            ("[1, 2] 3", "with '3' after 7 bytes instead of its end"),
            ("", "which ends after 0 bytes instead of a value"),
            ("1-2", "with '1' after 0 bytes instead of a number"),
            (r"'\ud800'", "with an invalid escape"),
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
