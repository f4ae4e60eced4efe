//! Kinds of value: how each is read, checked, written and described.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::{DeInteger, DeValue};

use super::report::nearest;
use super::schema::{At, Item, Kind, Reader, Shape, TableWriter};
use super::units::{UnitError, format_duration, format_size, parse_duration, parse_size};

/// A kind whose values stand behind `=`.
pub trait Inline {
    /// What becomes of it.
    type Value;
    /// What follows "must be".
    fn describe(&self) -> String;
    /// Reads a value; `None` when an error was reported.
    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<Self::Value>;
    /// A value as it stands behind `=`.
    fn text(&self, value: &Self::Value) -> String;

    /// Reports `must be X, not Y`, with what `more` adds.
    fn refuse<T>(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>, more: &str) -> Option<T> {
        let sentence = format!("must be {}, not {}{more}", self.describe(), show(item.get_ref()));
        reader.wrong(item, at, &sentence);
        None
    }
}

impl<K: Inline> Kind for K {
    type Value = K::Value;

    fn shape(&self) -> Shape {
        Shape::Value(self.describe())
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<K::Value> {
        Inline::read(self, item, at, reader)
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

/// true or false.
#[derive(Debug)]
pub struct Flag;

/// true or false
pub fn flag() -> Flag {
    Flag
}

impl Inline for Flag {
    type Value = bool;

    fn describe(&self) -> String {
        "true or false".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<bool> {
        let value = item.get_ref().as_bool();
        let quoted = matches!(item.get_ref().as_str(), Some("true" | "false"));
        value.or_else(|| self.refuse(item, at, reader, if quoted { ": leave the quotes out" } else { "" }))
    }

    fn text(&self, value: &bool) -> String {
        value.to_string()
    }
}

/// A whole number in a range.
#[derive(Debug)]
pub struct Whole<T> {
    range: RangeInclusive<T>,
}

/// A whole number in `range`.
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

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<T> {
        let number = item.get_ref().as_integer().and_then(integer).and_then(|number| T::try_from(number).ok());
        let number = number.filter(|number| self.range.contains(number));
        let quoted = item.get_ref().as_str().is_some_and(|text| text.parse::<i64>().is_ok());
        number.or_else(|| self.refuse(item, at, reader, if quoted { ": leave the quotes out" } else { "" }))
    }

    fn text(&self, value: &T) -> String {
        value.to_string()
    }
}

/// The largest number of a type that TOML can hold.
pub trait Bounded {
    /// It.
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

/// A number in a range.
#[derive(Debug)]
pub struct Real {
    range: RangeInclusive<f64>,
}

/// A number in `range`.
pub fn real(range: RangeInclusive<f64>) -> Real {
    Real { range }
}

/// A number from 0 to 1.
pub fn fraction() -> Real {
    real(0.0..=1.0)
}

impl Inline for Real {
    type Value = f64;

    fn describe(&self) -> String {
        format!("a number from {} to {}", self.range.start(), self.range.end())
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<f64> {
        let number = match item.get_ref() {
            DeValue::Integer(number) => integer(number).map(|number| number as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        // NaN is in no range.
        let number = number.filter(|number| self.range.contains(number));
        let percent = match item.get_ref().as_str() {
            Some(text) if text.trim_end().ends_with('%') && *self.range.end() == 1.0 => ": write 50 % as 0.5",
            Some(text) if text.parse::<f64>().is_ok() => ": leave the quotes out",
            _ => "",
        };
        number.or_else(|| self.refuse(item, at, reader, percent))
    }

    fn text(&self, value: &f64) -> String {
        // Debug is the shortest text that reads back as the same number.
        let text = format!("{value:?}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    }
}

/// One of some words.
#[derive(Debug)]
pub struct Word<T> {
    /// The words and what they mean.
    pub words: Vec<(&'static str, T)>,
}

/// A type whose values have names.
pub trait Words: Copy + PartialEq + 'static {
    /// The names, in the order of the reference.
    fn words() -> Vec<(&'static str, Self)>;
}

/// One of the type's words.
pub fn word<T: Words>() -> Word<T> {
    Word { words: T::words() }
}

/// The meaning of a word, or a sentence with the words there are.
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

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<T> {
        let text = item.get_ref().as_str();
        let found = text.and_then(|text| self.words.iter().find(|(word, _)| *word == text));
        if let Some((_, value)) = found {
            return Some(*value);
        }
        let near = text.and_then(|text| nearest(text, self.words.iter().map(|(word, _)| *word)));
        let more = near.map_or(String::new(), |near| format!(": did you mean \"{near}\"?"));
        self.refuse(item, at, reader, &more)
    }

    fn text(&self, value: &T) -> String {
        // Every value of the type is in the list; a test goes through all of them.
        self.words.iter().find(|(_, known)| known == value).map_or(String::new(), |(word, _)| quote(word))
    }
}

/// A string that is not empty.
#[derive(Debug)]
pub struct Text;

/// A string that is not empty.
pub fn text() -> Text {
    Text
}

impl Inline for Text {
    type Value = String;

    fn describe(&self) -> String {
        "a string that is not empty".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<String> {
        // No path, name or argument of a program can hold a NUL.
        let text = item.get_ref().as_str().filter(|text| !text.is_empty() && !text.contains('\0'));
        text.map(str::to_owned).or_else(|| self.refuse(item, at, reader, ""))
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}

/// A name: letters, digits, `-` and `_`.
#[derive(Debug)]
pub struct Name;

/// A name: letters, digits, `-` and `_`.
pub fn name() -> Name {
    Name
}

/// Bytes of a name at most, so that it fits file names and labels.
const NAME_BYTES: usize = 64;

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Whether `text` can be a name.
fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES).contains(&text.len()) && text.chars().all(in_name)
}

impl Inline for Name {
    type Value = String;

    fn describe(&self) -> String {
        format!("a name of 1 to {NAME_BYTES} letters (a-z, A-Z), digits, - and _")
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<String> {
        let text = item.get_ref().as_str();
        if let Some(name) = text.filter(|text| is_name(text)) {
            return Some(name.to_owned());
        }
        let proposal: String = text.unwrap_or("").chars().map(|c| if in_name(c) { c } else { '-' }).collect();
        let proposal = proposal.trim_matches('-');
        let more = if is_name(proposal) { format!(": write {}", quote(proposal)) } else { String::new() };
        self.refuse(item, at, reader, &more)
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}

/// A path.
#[derive(Debug)]
pub struct FilePath {
    /// A word without a slash is looked for in PATH and stays as it is.
    program: bool,
}

/// A path; relative to the file's folder.
pub fn path() -> FilePath {
    FilePath { program: false }
}

/// A program; with a slash a path, else looked for in PATH.
pub fn program() -> FilePath {
    FilePath { program: true }
}

impl Inline for FilePath {
    type Value = PathBuf;

    fn describe(&self) -> String {
        if self.program { "a program's name or path" } else { "a path" }.to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<PathBuf> {
        let Some(text) = item.get_ref().as_str().filter(|text| !text.is_empty() && !text.contains('\0')) else {
            return self.refuse(item, at, reader, "");
        };
        if self.program && !text.contains('/') {
            return Some(PathBuf::from(text));
        }
        refuse_home(text, item, at, reader)?;
        Some(resolve(reader.base, text))
    }

    fn text(&self, value: &PathBuf) -> String {
        quote(&value.to_string_lossy())
    }
}

/// `text` as seen from the folder `base`.
pub fn resolve(base: &Path, text: &str) -> PathBuf {
    // `join` keeps a leading `./`, which only makes paths longer in every message.
    base.join(text.strip_prefix("./").filter(|rest| !rest.is_empty() && !base.as_os_str().is_empty()).unwrap_or(text))
}

fn refuse_home(text: &str, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<()> {
    if text == "~" || text.starts_with("~/") {
        reader.wrong(item, at, "begins with `~`, which is not expanded here: write the whole path");
        return None;
    }
    Some(())
}

/// A path or a URL.
#[derive(Debug)]
pub struct Location;

/// A path, relative to the file's folder, or a URL.
pub fn location() -> Location {
    Location
}

/// Whether ffmpeg takes `text` for a URL: a scheme comes before the first colon.
pub fn is_url(text: &str) -> bool {
    let scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    text.split_once(':').is_some_and(|(before, _)| scheme(before))
}

impl Inline for Location {
    type Value = String;

    fn describe(&self) -> String {
        "a path or a URL".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<String> {
        let text = Text.accept(item).or_else(|| self.refuse(item, at, reader, ""))?;
        if is_url(text) {
            return Some(text.to_owned());
        }
        refuse_home(text, item, at, reader)?;
        // TOML is UTF-8, and so is the folder wherever it came from TOML; another folder's odd bytes are shown as U+FFFD
        // and not found, which the error of the source then says.
        Some(resolve(reader.base, text).to_string_lossy().into_owned())
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}

impl Text {
    fn accept<'a>(&self, item: &'a Item<'_>) -> Option<&'a str> {
        item.get_ref().as_str().filter(|text| !text.is_empty() && !text.contains('\0'))
    }
}

/// A program and its arguments.
#[derive(Debug)]
pub struct CommandLine;

/// A program and its arguments.
pub fn command_line() -> CommandLine {
    CommandLine
}

impl Inline for CommandLine {
    type Value = Vec<String>;

    fn describe(&self) -> String {
        "a list of a program and its arguments".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
        if let Some(text) = item.get_ref().as_str() {
            let words: Vec<_> = text.split_whitespace().map(quote).collect();
            return self.refuse(item, at, reader, &format!(": write [{}]", words.join(", ")));
        }
        let Some(items) = item.get_ref().as_array().filter(|items| !items.is_empty()) else {
            return self.refuse(item, at, reader, "");
        };
        let mut words = Vec::new();
        for (index, item) in items.iter().enumerate() {
            // An argument may be empty, a program's name may not.
            let text = item.get_ref().as_str().filter(|text| !text.contains('\0') && (index > 0 || !text.is_empty()));
            match text {
                Some(text) if index == 0 && text.contains('/') => {
                    refuse_home(text, item, at, reader)?;
                    words.push(resolve(reader.base, text).to_string_lossy().into_owned());
                }
                Some(text) => words.push(text.to_owned()),
                None => {
                    let shown = show(item.get_ref());
                    reader.wrong(item, at, &format!("must hold strings only, not {shown}: quote numbers too"));
                }
            }
        }
        (words.len() == items.len()).then_some(words)
    }

    fn text(&self, value: &Vec<String>) -> String {
        list(Text).text(value)
    }
}

/// A list of values of one kind.
#[derive(Debug)]
pub struct List<K>(K);

/// A list of `kind`.
pub fn list<K>(kind: K) -> List<K> {
    List(kind)
}

impl<K: Inline> Inline for List<K> {
    type Value = Vec<K::Value>;

    fn describe(&self) -> String {
        let one = self.0.describe();
        format!("a list, each {}", one.strip_prefix("one of ").unwrap_or(&one))
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<Vec<K::Value>> {
        let Some(items) = item.get_ref().as_array() else {
            let more = format!(": write [{}]", show(item.get_ref()));
            let single = matches!(item.get_ref(), DeValue::String(_) | DeValue::Integer(_));
            return self.refuse(item, at, reader, if single { &more } else { "" });
        };
        let values: Vec<_> = items.iter().map(|item| self.0.read(item, at, reader)).collect();
        values.into_iter().collect()
    }

    fn text(&self, value: &Vec<K::Value>) -> String {
        let values: Vec<_> = value.iter().map(|value| self.0.text(value)).collect();
        format!("[{}]", values.join(", "))
    }
}

/// Values of one kind by name.
#[derive(Debug)]
pub struct ByName<K>(K);

/// Values of `kind` by name.
pub fn by_name<K>(kind: K) -> ByName<K> {
    ByName(kind)
}

impl<K: Inline> Inline for ByName<K> {
    type Value = BTreeMap<String, K::Value>;

    fn describe(&self) -> String {
        format!("a table of names, each with {}", self.0.describe())
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<Self::Value> {
        let Some(table) = item.get_ref().as_table() else {
            return self.refuse(item, at, reader, "");
        };
        let mut values = BTreeMap::new();
        for (key, item) in table.iter() {
            let path = format!("{}.{}", at.path, crate::logging::escape(key.get_ref()));
            if let Some(value) = self.0.read(item, &At { path: &path, note: at.note }, reader) {
                values.insert(key.get_ref().to_string(), value);
            }
        }
        (values.len() == table.len()).then_some(values)
    }

    fn text(&self, value: &Self::Value) -> String {
        let values: Vec<_> =
            value.iter().map(|(name, value)| format!("{} = {}", quote(name), self.0.text(value))).collect();
        if values.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", values.join(", ")) }
    }
}

/// A span of time.
#[derive(Debug)]
pub struct Time {
    range: RangeInclusive<Duration>,
    zero: bool,
}

/// A span of time in `range`.
pub fn duration(range: RangeInclusive<Duration>) -> Time {
    Time { range, zero: false }
}

impl Time {
    /// 0 is allowed too, and means what the key's documentation says.
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

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<Duration> {
        let text = with_unit(item);
        match text.as_deref().map_or(Err(UnitError::Malformed), parse_duration) {
            Ok(value) if self.range.contains(&value) || self.zero && value.is_zero() => Some(value),
            Ok(_) => self.refuse(item, at, reader, ""),
            Err(error) => {
                let number = text.unwrap_or_default();
                self.refuse(item, at, reader, &unit_remedy(error, &number, ["s", "ms"], "ns, us, ms, s, min, h and d"))
            }
        }
    }

    fn text(&self, value: &Duration) -> String {
        quote(&format_duration(*value))
    }
}

/// A number of bytes.
#[derive(Debug)]
pub struct Size<T> {
    range: RangeInclusive<T>,
    zero: bool,
}

/// A number of bytes in `range`.
pub fn size<T>(range: RangeInclusive<T>) -> Size<T> {
    Size { range, zero: false }
}

impl<T> Size<T> {
    /// 0 is allowed too, and means what the key's documentation says.
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

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<T> {
        let text = with_unit(item);
        match text.as_deref().map_or(Err(UnitError::Malformed), parse_size) {
            Ok(bytes) => {
                let value = T::try_from(bytes).ok();
                let value = value.filter(|value| self.range.contains(value) || self.zero && bytes == 0);
                value.or_else(|| self.refuse(item, at, reader, ""))
            }
            Err(error) => {
                let number = text.unwrap_or_default();
                let units = "B, kB, KiB, MB, MiB, GB, GiB, TB and TiB";
                self.refuse(item, at, reader, &unit_remedy(error, &number, ["MiB", "MB"], units))
            }
        }
    }

    fn text(&self, value: &T) -> String {
        // u64 holds every size that the type holds.
        quote(&format_size((*value).try_into().unwrap_or(u64::MAX)))
    }
}

/// The text of a number with a unit; of a bare number too, whose error then is that the unit is missing.
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
        UnitError::Unknown(word, Some(near)) => format!(": write {near} for {word}"),
        UnitError::Unknown(..) => format!(": the units are {all}"),
        UnitError::Malformed => String::new(),
    }
}

/// Octal permissions.
#[derive(Debug)]
pub struct Mode;

/// Octal permissions.
pub fn mode() -> Mode {
    Mode
}

impl Inline for Mode {
    type Value = u32;

    fn describe(&self) -> String {
        "octal permissions from 0o000 to 0o777".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, reader: &mut Reader<'_>) -> Option<u32> {
        let parse = |digits: &str| u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777);
        let octal = |text: &str| parse(text.strip_prefix("0o").unwrap_or(text));
        match item.get_ref() {
            DeValue::String(text) if octal(text).is_some() => octal(text),
            DeValue::Integer(number) if number.radix() == 8 && parse(number.as_str()).is_some() => {
                parse(number.as_str())
            }
            // A decimal 660 is meant to be octal, but is 0o1224.
            DeValue::Integer(number) if number.radix() == 10 && parse(number.as_str()).is_some() => {
                self.refuse(item, at, reader, &format!(": write 0o{}", number.as_str()))
            }
            _ => self.refuse(item, at, reader, ""),
        }
    }

    fn text(&self, value: &u32) -> String {
        format!("0o{value:03o}")
    }
}
