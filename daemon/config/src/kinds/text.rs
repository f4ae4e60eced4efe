//! Strings, names, paths, URLs, command lines.

use std::path::{Path, PathBuf};

use super::{Inline, list, quote, show};
use crate::schema::{At, Context, Item};

/// Returns the text of a string that is not empty and has no NUL, which no path, name or argument can hold.
pub(super) fn filled<'a>(item: &'a Item<'_>) -> Option<&'a str> {
    item.get_ref().as_str().filter(|text| !text.is_empty() && !text.contains('\0'))
}

/// The kind of strings that are not empty.
#[derive(Debug)]
pub struct Text;

/// Returns the kind of strings that are not empty.
pub fn text() -> Text {
    Text
}

impl Inline for Text {
    type Value = String;

    fn describe(&self) -> String {
        "a string that is not empty".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<String> {
        filled(item).map(str::to_owned).or_else(|| self.refuse(item, at, context, ""))
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}

/// The kind of names: letters, digits, `-` and `_`.
#[derive(Debug)]
pub struct Name;

/// Returns the kind of names: letters, digits, `-` and `_`.
pub fn name() -> Name {
    Name
}

/// Maximum bytes of a name, so that it fits file names and labels.
const NAME_BYTES: usize = 64;

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Returns whether `text` can be a name.
fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES).contains(&text.len()) && text.chars().all(in_name)
}

impl Inline for Name {
    type Value = String;

    fn describe(&self) -> String {
        format!("a name of 1 to {NAME_BYTES} letters (a-z, A-Z), digits, - and _")
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<String> {
        let text = item.get_ref().as_str();
        if let Some(name) = text.filter(|text| is_name(text)) {
            return Some(name.to_owned());
        }
        let proposal: String = text.unwrap_or("").chars().map(|c| if in_name(c) { c } else { '-' }).collect();
        let proposal = proposal.trim_matches('-');
        let more = if is_name(proposal) { format!(": write {}", quote(proposal)) } else { String::new() };
        self.refuse(item, at, context, &more)
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}

/// The kind of paths.
#[derive(Debug)]
pub struct FilePath {
    /// Description, if a word without a slash is allowed and stays as it is.
    word: Option<&'static str>,
}

/// Returns the kind of paths. A relative path starts at the folder of the file.
pub fn path() -> FilePath {
    FilePath { word: None }
}

/// Returns the kind of programs: a path if it has a slash, else searched in PATH.
pub fn program() -> FilePath {
    FilePath { word: Some("a program's name or path") }
}

/// Returns the kind of secrets: a file if it has a slash, else a systemd credential.
pub fn credential() -> FilePath {
    FilePath { word: Some("a credential's name or a file's path") }
}

impl Inline for FilePath {
    type Value = PathBuf;

    fn describe(&self) -> String {
        self.word.unwrap_or("a path").to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<PathBuf> {
        let Some(text) = filled(item) else {
            return self.refuse(item, at, context, "");
        };
        if self.word.is_some() && !text.contains('/') {
            return Some(PathBuf::from(text));
        }
        refuse_home(text, item, at, context)?;
        Some(resolve(context.base, text))
    }

    fn text(&self, value: &PathBuf) -> String {
        quote(&value.to_string_lossy())
    }
}

/// Resolves the path `text` against the folder `base`.
pub fn resolve(base: &Path, text: &str) -> PathBuf {
    // `join` keeps a leading `./`, which only makes paths in messages longer.
    base.join(text.strip_prefix("./").filter(|rest| !rest.is_empty() && !base.as_os_str().is_empty()).unwrap_or(text))
}

pub(super) fn refuse_home(text: &str, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<()> {
    if text == "~" || text.starts_with("~/") {
        context.wrong(item, at, "begins with `~`, which visiond does not expand: write the full path");
        return None;
    }
    Some(())
}

/// The kind of paths and URLs.
#[derive(Debug)]
pub struct Location;

/// Returns the kind of paths and URLs. A relative path starts at the folder of the file.
pub fn location() -> Location {
    Location
}

/// Returns whether ffmpeg treats `text` as a URL: a scheme stands before the first colon.
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

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<String> {
        let text = filled(item).or_else(|| self.refuse(item, at, context, ""))?;
        if is_url(text) {
            return Some(text.to_owned());
        }
        refuse_home(text, item, at, context)?;
        // TOML is UTF-8. A folder that is not becomes U+FFFD here and is not found, which the error of the source says.
        Some(resolve(context.base, text).to_string_lossy().into_owned())
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}

/// The kind of command lines: a program and its arguments.
#[derive(Debug)]
pub struct CommandLine;

/// Returns the kind of command lines: a program and its arguments.
pub fn command_line() -> CommandLine {
    CommandLine
}

impl Inline for CommandLine {
    type Value = Vec<String>;

    fn describe(&self) -> String {
        "a list: a program and its arguments".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Vec<String>> {
        if let Some(text) = item.get_ref().as_str() {
            let words: Vec<_> = text.split_whitespace().map(quote).collect();
            return self.refuse(item, at, context, &format!(": write [{}]", words.join(", ")));
        }
        let Some(items) = item.get_ref().as_array().filter(|items| !items.is_empty()) else {
            return self.refuse(item, at, context, "");
        };
        let mut words = Vec::new();
        for (index, item) in items.iter().enumerate() {
            // An argument may be empty, a program's name may not.
            let text = item.get_ref().as_str().filter(|text| !text.contains('\0') && (index > 0 || !text.is_empty()));
            match text {
                Some(text) if index == 0 && text.contains('/') => {
                    refuse_home(text, item, at, context)?;
                    words.push(resolve(context.base, text).to_string_lossy().into_owned());
                }
                Some(text) => words.push(text.to_owned()),
                None => {
                    let shown = show(item.get_ref());
                    context.wrong(item, at, &format!("must hold strings only, not {shown}: quote numbers too"));
                }
            }
        }
        (words.len() == items.len()).then_some(words)
    }

    fn text(&self, value: &Vec<String>) -> String {
        list(Text).text(value)
    }
}
