//! Strings, names, paths, URLs, command lines.

use std::path::{Path, PathBuf};

use jiff::tz::{TimeZone, db};
use toml::de::DeValue;
use visiond_ground::nearest::nearest;

use super::{Refusal, bracketed, filled, quote, show, string, value};
use crate::schema::KeyKind;

/// Returns the kind of strings that are not empty.
pub fn text() -> KeyKind<String> {
    string("a string that is not empty", |item, _| Ok(filled(item)?.to_owned()))
}

/// Returns the kind of labels of classes.
pub fn label() -> KeyKind<String> {
    string("a string that is not empty", |item, _| match item.get_ref() {
        DeValue::Integer(_) => Err(": write the label of this class, such as \"person\"".into()),
        _ => Ok(filled(item)?.to_owned()),
    })
}

/// Maximum bytes of a name, so that it fits file names and labels.
const NAME_BYTES: usize = 64;

/// Returns the kind of names: letters, digits, `-` and `_`.
pub fn name() -> KeyKind<String> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_name = move |text: &str| (1..=NAME_BYTES).contains(&text.len()) && text.chars().all(in_name);
    let description = format!("a name of 1 to {NAME_BYTES} letters (a-z, A-Z), digits, - and _");
    string(description, move |item, _| {
        let text = item.get_ref().as_str().unwrap_or("");
        if is_name(text) {
            return Ok(text.to_owned());
        }
        // A bundle's file is NAME-VERSION.visiond.
        let of_file = text.strip_suffix(".visiond").map(|name| name.trim_end_matches(|c: char| c.is_ascii_digit()));
        let text = of_file.and_then(|name| name.strip_suffix('-')).unwrap_or(text);
        let proposal: String = text.chars().map(|c| if in_name(c) { c } else { '-' }).collect();
        let proposal = Some(proposal.trim_matches('-')).filter(|proposal| is_name(proposal));
        Err(proposal.map_or(String::new(), |proposal| format!(": write {}", quote(proposal))).into())
    })
}

/// Returns the kind of time zones of this machine.
pub fn time_zone() -> KeyKind<TimeZone> {
    let text = |zone: &TimeZone| quote(zone.iana_name().unwrap_or("UTC"));
    value("the name of a time zone, such as \"Europe/Berlin\"", text, |item, _| {
        let name = filled(item)?;
        TimeZone::get(name).map_err(|_| {
            let names: Vec<_> = db().available().map(|name| name.to_string()).collect();
            // Without its data, jiff knows UTC alone.
            if names.len() <= 1 {
                let sentence = "is not known, because this machine has no time zones: install the package `tzdata`, or remove this key";
                return Refusal::Sentence(sentence.to_owned());
            }
            match nearest(name, names.iter().map(String::as_str)) {
                Some(near) => format!(": did you mean {}?", quote(near)).into(),
                None => ": see the folders of /usr/share/zoneinfo".into(),
            }
        })
    })
}

/// Returns the kind of paths. A relative path starts at the folder of the file.
pub fn path() -> KeyKind<PathBuf> {
    file_path("a path", false)
}

/// Returns the kind of programs: a path if it has a slash, otherwise a name to search for in PATH.
pub fn program() -> KeyKind<PathBuf> {
    file_path("a program's name or path", true)
}

/// Returns the kind of secrets: a file if it has a slash, otherwise a systemd credential.
pub fn credential() -> KeyKind<PathBuf> {
    let text = |path: &PathBuf| quote(&path.to_string_lossy());
    value("a credential's name or a file's path", text, |item, context| match filled(item)? {
        // No credential's name has a colon, and a path with one may begin with `./`.
        secret if secret.split('/').next().is_some_and(|first| first.contains(':')) => {
            let sentence = "is the name of a credential or the path of a file, and this looks like a user and password: write \
                            them into a file, as one line `user:password`, and the path of that file here";
            Err(Refusal::Sentence(sentence.to_owned()))
        }
        word if !word.contains('/') => Ok(PathBuf::from(word)),
        path => resolve_without_home(context.base, path),
    })
}

/// Returns a kind of paths. With `or_word`, a word without a slash is allowed and stays as it is.
fn file_path(description: &str, or_word: bool) -> KeyKind<PathBuf> {
    let text = |path: &PathBuf| quote(&path.to_string_lossy());
    value(description, text, move |item, context| match filled(item)? {
        word if or_word && !word.contains('/') => Ok(PathBuf::from(word)),
        path => resolve_without_home(context.base, path),
    })
}

/// Resolves the path `text` against the folder `base`; rejects `~`.
pub(super) fn resolve_without_home(base: &Path, text: &str) -> Result<PathBuf, Refusal> {
    if text == "~" || text.starts_with("~/") {
        let sentence = "begins with `~`, which visiond does not expand: write the full path";
        return Err(Refusal::Sentence(sentence.to_owned()));
    }
    // `join` keeps a leading `./`, which only makes paths in messages longer.
    let short = text.strip_prefix("./").filter(|rest| !rest.is_empty() && !base.as_os_str().is_empty());
    Ok(base.join(short.unwrap_or(text)))
}

/// Returns the kind of paths and URLs. A relative path starts at the folder of the file.
pub fn location() -> KeyKind<String> {
    string("a path or a URL", |item, context| match filled(item)? {
        url if is_url(url) => no_variable(url).map(|()| url.to_owned()),
        // TOML is UTF-8. A folder name that is not becomes U+FFFD here and is not found; the source's error says so.
        path => Ok(resolve_without_home(context.base, path)?.to_string_lossy().into_owned()),
    })
}

/// Rejects `${NAME}`, which other programs replace by an environment variable.
pub fn no_variable(text: &str) -> Result<(), Refusal> {
    let variable = text.split_once("${").and_then(|(_, rest)| Some(rest.split_once('}')?.0));
    match variable {
        Some(name) => Err(Refusal::Sentence(format!(
            "contains ${{{name}}}, and visiond replaces no variables: write the value, and a password into the file of `login`"
        ))),
        None => Ok(()),
    }
}

/// Returns whether ffmpeg treats `text` as a URL: it starts with a scheme and a colon.
pub fn is_url(text: &str) -> bool {
    let scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    text.split_once(':').is_some_and(|(before, _)| scheme(before))
}

/// Returns the kind of command lines: a program and its arguments.
pub fn command_line() -> KeyKind<Vec<String>> {
    let text = |words: &Vec<String>| bracketed(words.iter().map(|word| quote(word)));
    value("a list: a program and its arguments", text, |item, context| {
        if let Some(text) = item.get_ref().as_str() {
            return Err(format!(": write {}", bracketed(text.split_whitespace().map(quote))).into());
        }
        let items = item.get_ref().as_array().filter(|items| !items.is_empty()).ok_or("")?;
        let mut words = Vec::new();
        for (index, item) in items.iter().enumerate() {
            // An argument may be empty, a program's name may not.
            match item.get_ref().as_str().filter(|text| !text.contains('\0') && (index > 0 || !text.is_empty())) {
                Some(program) if index == 0 && program.contains('/') => {
                    // The error is placed at the program, not at the list.
                    match resolve_without_home(context.base, program) {
                        Ok(path) => words.push(path.to_string_lossy().into_owned()),
                        Err(Refusal::Sentence(sentence)) => {
                            context.wrong(item, &sentence);
                            return Err(Refusal::Reported);
                        }
                        Err(other) => return Err(other),
                    }
                }
                Some(text) => words.push(text.to_owned()),
                None => {
                    let shown = show(item.get_ref());
                    context.wrong(item, &format!("must hold strings only, not {shown}: quote numbers too"));
                }
            }
        }
        if words.len() == items.len() { Ok(words) } else { Err(Refusal::Reported) }
    })
}
