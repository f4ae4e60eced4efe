//! Hides secrets in text that leaves the process: the log, errors, reports, `check --effective`, `/status`, `/cameras`, `/config`.
//!
//! Secrets belong in credentials. If they are in the configuration anyway, they are in a URL, after a key such as
//! `password=`, or after an option such as `--password`. These functions hide everything that looks like a secret, and err on
//! the side of hiding too much. They cannot recognise every form.

use std::collections::BTreeSet;
use std::ops::Range;

/// The text that replaces a secret.
pub const MASK: &str = "***";

/// Ends of the names of secrets, lower case and without `-`, `_` and `.`: `MQTT_PASSWORD`, `apikey`, `pass-phrase`.
const ENDS: [&str; 33] = [
    "authorization",
    "authbasic",
    "basicauth",
    "cookie",
    "cookies",
    "sessionid",
    "sessid",
    "passwd",
    "password",
    "passphrase",
    "passcode",
    "passkey",
    "passw",
    "passwort",
    "loginpas",
    "loginpass",
    "userpass",
    "usrpass",
    "adminpass",
    "pwd",
    "pswd",
    "psw",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "authkey",
    "privatekey",
    "secretkey",
    "sharedkey",
    "streamkey",
    "pw",
    "login",
];

/// Last words of the names that are secrets in a URL, and ordinary words elsewhere: Wyze's `api` and `enr`, HomeKit's
/// `client_private`, Akamai's `hdnts`, the parts of a digest, sessions.
const URL_WORDS: [&str; 16] = [
    "api",
    "code",
    "cnonce",
    "credential",
    "credentials",
    "digest",
    "enr",
    "hash",
    "hdnea",
    "hdnts",
    "jwt",
    "nonce",
    "pas",
    "private",
    "session",
    "sid",
];

/// Ports for which the first part of a URL's path grants access: UniFi Protect's `rtsps://HOST:7441/TOKEN` and
/// `rtsp://HOST:7447/TOKEN`.
const TOKEN_PORTS: [&str; 2] = ["7441", "7447"];

/// Words before a colon in a URL's path that are not a user: `mp4:film.mp4` is a media server's file.
const PATH_PREFIXES: [&str; 9] = ["mp4", "mp3", "flv", "smil", "amlst", "ngrp", "urn", "http", "https"];

/// Words after a colon in a URL's path that are not a password: the tag of an image.
const TAGS: [&str; 2] = ["latest", "stable"];

/// Letters and digits of the shortest token in a URL's path, and how often capitals, small letters and digits change in it. Words
/// change less often.
const TOKEN_LENGTH: usize = 16;
const TOKEN_CHANGES: usize = 6;

/// Letters of the shortest word that makes a name of several words differ from a token.
const WORD_LENGTH: usize = 4;

/// Lengths of the groups of a UUID.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];

/// Last words of the names of secrets, lower case: `user-pw`, `api_key`, `streamKey`. Not `keyint` or `bypass`.
const WORDS: [&str; 8] = ["auth", "bearer", "key", "pass", "psk", "pw", "sig", "signature"];

/// Last words of user names. `user:password` after one of them is secret.
const USERS: [&str; 3] = ["u", "user", "userpwd"];

/// How far to search for the rest of a pattern that spans several words. Bounds the time for a long line.
const FAR: usize = 256;

/// Bytes of the shortest secret that is looked for in other text.
const LEAST: usize = 4;

/// Where the value after a key ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// At the end of the text.
    Text,
    /// At the end of the line.
    Line,
    /// At the closing quote, otherwise at the next blank, quote, `&`, or comma or semicolon before a blank.
    Word,
}

/// Replaces each URL's user, and everything after a secret's key, with `***`.
pub fn redact(text: &str) -> String {
    replaced(text, &secrets(text, Extent::Text))
}

/// `text`, written by another program, with each URL's user and each secret's value replaced by `***`; the rest stays readable.
pub fn redact_line(text: &str) -> String {
    replaced(text, &secrets(text, Extent::Word))
}

/// `text` with each URL's user and secret parameters replaced by `***`.
pub fn redact_urls(text: &str) -> String {
    let mut ranges = in_urls(text);
    for url in urls(text) {
        let text = &text[url.clone()];
        let inside = secrets_of(text, Extent::Word, std::slice::from_ref(&(0..text.len())));
        ranges.extend(inside.into_iter().map(|range| url.start + range.start..url.start + range.end));
    }
    replaced(text, &merged(ranges))
}

/// A file's `text` with a `*` in place of each character of a secret, so that columns stay; blanks and TOML's separators stay too.
pub fn redact_in_place(text: &str) -> String {
    let secrets = secrets(text, Extent::Line);
    let users = in_urls(text);
    let hide = |(at, c): (usize, char)| {
        let separates = c.is_whitespace() || "\"',]}".contains(c);
        if is_in(&users, at) || (is_in(&secrets, at) && !separates) { '*' } else { c }
    };
    text.char_indices().map(hide).collect()
}

/// Replaces the secrets in a program's arguments with `***`: within each argument, and in one that follows an option such as
/// `--password`.
pub fn redact_arguments<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut before = "";
    let redact_next = |argument: &'a str| {
        let start = before.len() + 1;
        let both = format!("{before} {argument}");
        before = argument;
        // The previous option announces the argument only if it has no value of its own.
        let is_announced = secrets(&both, Extent::Text).iter().any(|range| range.start == start);
        if is_announced { MASK.to_owned() } else { redact(argument) }
    };
    arguments.into_iter().map(redact_next).collect()
}

/// Returns what [`redact_arguments`] hides, longest first, so that it can be found where the program repeats it. Leaves out
/// secrets that are too short to distinguish from other text.
pub fn hidden_in_arguments<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut before = "";
    let mut found = BTreeSet::new();
    for argument in arguments {
        let both = format!("{before} {argument}");
        let start = before.len() + 1;
        // A value that goes to the end of the argument, and the word that it begins with, unless the whole argument is announced.
        let to_the_end = secrets(&both, Extent::Text).into_iter().filter(|range| range.start >= start);
        let words = secrets(&both, Extent::Word).into_iter().filter(|range| range.start > start);
        for value in to_the_end.chain(words).map(|range| &both[range]) {
            found.insert(value.to_owned());
            // The password of `user:password`.
            found.extend(value.split_once(':').map(|(_, password)| password.to_owned()));
        }
        before = argument;
    }
    let mut found: Vec<_> = found.into_iter().filter(|value| value.len() >= LEAST).collect();
    found.sort_by_key(|value| std::cmp::Reverse(value.len()));
    found
}

/// The kind of a value, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Secret,
    /// A secret of several words: the value of an HTTP header.
    Header,
    /// A user, perhaps with a password.
    User,
}

impl Kind {
    fn of(name: &str, is_in_url: bool) -> Option<Self> {
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_new = |(at, _): &(usize, char)| {
            let (before, here) = (name.as_bytes()[at - 1], name.as_bytes()[*at]);
            b"-_".contains(&before) || (before.is_ascii_lowercase() && here.is_ascii_uppercase())
        };
        let last = name.char_indices().skip(1).filter(is_new).last().map_or(0, |(at, _)| at);
        let last = name[last..].to_ascii_lowercase();
        let lower = name.replace(['-', '_', '.'], "").to_ascii_lowercase();
        if lower.ends_with("authorization") || lower.ends_with("cookie") || lower.ends_with("cookies") {
            Some(Self::Header)
        } else if ENDS.iter().any(|end| lower.ends_with(end))
            || WORDS.contains(&last.as_str())
            || (is_in_url && URL_WORDS.contains(&last.as_str()))
        {
            Some(Self::Secret)
        } else {
            USERS.contains(&last.as_str()).then_some(Self::User)
        }
    }
}

/// The bytes of `text` that are secret: in order, none empty, none overlapping.
fn secrets(text: &str, extent: Extent) -> Vec<Range<usize>> {
    secrets_of(text, extent, &urls(text))
}

/// The same for a text that has URLs at `urls`.
fn secrets_of(text: &str, extent: Extent, urls: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut found = in_urls(text);
    // The end of the line, and of the last value that extends to it, which covers any names within it.
    let (mut line_end, mut covered) = (0, 0);
    for name in names(text) {
        if name.end <= covered {
            continue;
        }
        let value = || value(text, &name).or_else(|| element(text, &name));
        let known = Kind::of(&text[name.clone()], is_in(urls, name.start)).and_then(|kind| Some((kind, value()?)));
        // `-uadmin:hush`, as curl accepts it.
        let attached = || text[name.clone()].starts_with("-u").then_some((Kind::User, name.start + 2));
        let bearer = || Some((Kind::Secret, bearer(text, &name)?));
        let Some((kind, value)) = known.or_else(attached).or_else(bearer) else { continue };
        let extent = match kind {
            Kind::User => Extent::Word,
            Kind::Header if extent == Extent::Word => Extent::Line,
            _ => extent,
        };
        if line_end < value {
            line_end = text[value..].find('\n').map_or(text.len(), |length| value + length);
        }
        let range = value..end(text, value, line_end, extent);
        let shown = &text[range.clone()];
        let is_secret = match kind {
            Kind::User => shown.split_once(':').is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with("//")),
            _ => !shown.is_empty(),
        };
        if is_secret {
            if range.end >= line_end {
                covered = range.end;
            }
            found.push(range);
        }
    }
    merged(found)
}

/// The words of `text` that may be a name.
fn names(text: &str) -> impl Iterator<Item = Range<usize>> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let mut from = 0;
    std::iter::from_fn(move || {
        let mut start = from + text[from..].find(is_name)?;
        let end = text[start..].find(|c| !is_name(c)).map_or(text.len(), |n| start + n);
        from = end;
        // `%26` before a name is an encoded `&`.
        let escaped = text.as_bytes()[start..end].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
        if text[..start].ends_with('%') && escaped == 2 {
            start += 2;
        }
        Some(start..end)
    })
}

/// The start of the value after a name: after `=` or `:`, or after an option and a blank.
fn value(text: &str, name: &Range<usize>) -> Option<usize> {
    let behind = &text[name.end..];
    let is_index = text[..name.start].strip_suffix('[').is_some_and(|list| list.ends_with(char::is_alphanumeric));
    let unquoted = without(if is_index { behind.trim_start_matches(']') } else { behind }, &BLANK);
    if let Some(value) = separated(unquoted) {
        // TOML: the path of a key's file.
        let is_path = &text[name.clone()] == "key" && behind.starts_with(' ') && value.trim_start().starts_with("\"/");
        // `:=`, `=>` and `==` are one separator.
        return (!is_path).then(|| text.len() - without(value.trim_start_matches(['=', '>']), &BLANK).len());
    }
    let value = behind.trim_start_matches(|c: char| c.is_whitespace() || "\"'\\,".contains(c));
    let blank = &behind[..behind.len() - value.len()];
    let is_apart = blank.contains(|c: char| c.is_whitespace() || c == ',');
    (text[name.clone()].starts_with('-') && is_apart).then(|| text.len() - value.len())
}

/// Characters that may surround a separator.
const BLANK: [char; 5] = ['"', '\'', '\\', ' ', '\t'];

/// The start of an XML element's text, if `name` is the element's name: `<wsse:Password Type="x">`.
fn element(text: &str, name: &Range<usize>) -> Option<usize> {
    let before = &text[..name.start];
    let space = before.strip_suffix(':').map(|before| before.trim_end_matches(|c: char| c.is_ascii_alphanumeric()));
    let near = &text[name.end..text.floor_char_boundary(name.end + FAR)];
    let end = near.find(['<', '>']).map(|at| name.end + at).filter(|at| text[*at..].starts_with('>'))?;
    space.unwrap_or(before).ends_with('<').then_some(end + 1)
}

/// The start of the token after `Bearer` and a blank. A word of prose has no digit and no full stop inside.
fn bearer(text: &str, name: &Range<usize>) -> Option<usize> {
    let rest = text[name.end..].strip_prefix(' ').filter(|_| text[name.clone()].eq_ignore_ascii_case("bearer"))?;
    let token = rest.split_whitespace().next()?.trim_end_matches(['.', ',', ':']);
    token.contains(|c: char| c == '.' || c.is_ascii_digit()).then_some(name.end + 1)
}

/// `text` without leading `chars`, including percent-encoded ones.
fn without<'a>(mut text: &'a str, chars: &[char]) -> &'a str {
    loop {
        let trimmed = text.trim_start_matches(chars);
        let rest = ["%20", "%22", "%27", "%5D", "%5d"].iter().find_map(|escaped| trimmed.strip_prefix(escaped));
        match rest {
            Some(rest) => text = rest,
            None => return trimmed,
        }
    }
}

/// `text` after a separator, which may be percent-encoded once or twice.
fn separated(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix(['=', ':']) {
        return Some(rest);
    }
    let mut rest = text.strip_prefix('%')?;
    while let Some(again) = rest.strip_prefix("25") {
        rest = again;
    }
    rest.strip_prefix('3')?.strip_prefix(['d', 'D', 'a', 'A'])
}

/// The end of the value that starts at `start`, in a line that ends at `line_end`.
fn end(text: &str, start: usize, line_end: usize, extent: Extent) -> usize {
    match extent {
        Extent::Text => return text.len(),
        Extent::Line => return line_end,
        Extent::Word => {}
    }
    let value = &text[start..line_end];
    let is_element = text[..start].ends_with('>');
    let opening = text[..start].chars().next_back().filter(|c| "\"'".contains(*c));
    if let Some(quote) = opening {
        let is_escaped = text[..start - 1].ends_with('\\');
        let mut closing = value.match_indices(quote);
        let is_closing = |(at, _): &(usize, &str)| value[..*at].ends_with('\\') == is_escaped;
        return start + closing.find(is_closing).map_or(value.len(), |(at, _)| at);
    }
    let ends = |(at, c): &(usize, char)| {
        let rest = &value[at + c.len_utf8()..];
        let is_last = rest.chars().next().is_none_or(char::is_whitespace);
        c.is_whitespace() || "\"'`&".contains(*c) || (",;".contains(*c) && is_last) || (is_element && *c == '<')
    };
    let word = &value[..value.char_indices().find(ends).map_or(value.len(), |(at, _)| at)];
    // The colon between a URL and the reason that follows it.
    start + word.trim_end_matches(':').len()
}

/// Whether `at` is in one of `ranges`, which are in order and do not overlap.
fn is_in(ranges: &[Range<usize>], at: usize) -> bool {
    let before = ranges.partition_point(|range| range.start <= at);
    ranges[..before].last().is_some_and(|range| range.contains(&at))
}

/// `ranges` in order, those that touch joined.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// The part after the scheme of each URL: up to the closing quote if one opens before the scheme, otherwise up to a blank.
fn urls(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(Range { start: mark, end: start }) = scheme_mark(text, from) {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
        let opening = text[..mark].trim_end_matches(is_scheme).chars().next_back().filter(|c| "\"'".contains(*c));
        let rest = &text[start..];
        // A password may also contain a quote: the closing one is followed by the end of a word.
        let closes = |(at, _): &(usize, &str)| {
            rest[at + 1..].chars().next().is_none_or(|c| c.is_whitespace() || ",;:)]}>|&".contains(c))
        };
        let near = rest[..rest.floor_char_boundary(FAR)].lines().next().unwrap_or_default();
        let quoted = opening.and_then(|quote| near.match_indices(quote).find(closes)).map(|(at, _)| at);
        let length = quoted.unwrap_or_else(|| rest.find(char::is_whitespace).unwrap_or(rest.len()));
        let end = start + length.max(spaced_user(rest, length));
        found.push(start..end);
        from = end;
    }
    found
}

/// The next `://` at or after `from`. Its colon and slashes may be percent-encoded once or twice, and slashes may be escaped.
fn scheme_mark(text: &str, from: usize) -> Option<Range<usize>> {
    let after = |text: &str, forms: &[&str]| {
        let is = |form: &&&str| text.get(..form.len()).is_some_and(|start| start.eq_ignore_ascii_case(form));
        forms.iter().find(is).map_or(0, |form| form.len())
    };
    const SLASHES: [&str; 4] = ["/", "\\/", "%2f", "%252f"];
    text[from..].match_indices([':', '%']).find_map(|(at, _)| {
        let start = from + at;
        let colon = start + after(&text[start..], &[":", "%3a", "%253a"]);
        let first = colon + after(&text[colon..], &SLASHES);
        let second = first + after(&text[first..], &SLASHES);
        (start < colon && colon < first && first < second).then_some(start..second)
    })
}

/// How far the user of a URL reaches if its password has a blank: `user:a b@host`. `length` is where the blank is.
fn spaced_user(url: &str, length: usize) -> usize {
    let word = &url[..length];
    // A port is a number, and a path has a slash.
    let is_user = word.split_once(':').is_some_and(|(_, rest)| rest.contains(|c: char| !c.is_ascii_digit()));
    let near = &url[..url.floor_char_boundary(length + FAR)];
    let end = near.find(['@', '\n', '"', '\'']).filter(|end| url[*end..].starts_with('@') && length < *end);
    end.filter(|end| is_user && !url[..*end].contains(['/', '?', '#'])).map_or(0, |end| end + 1)
}

/// The parts of URLs that are secret by position, not by name: the user, and parts of the path.
fn in_urls(text: &str) -> Vec<Range<usize>> {
    let mut found = users(text);
    for url in urls(text) {
        let end = found.iter().filter(|user| url.start <= user.start && user.end < url.end).map(|user| user.end).max();
        let start = end.unwrap_or(url.start);
        found.extend(path_secrets(&text[start..url.end]).into_iter().map(|part| start + part.start..start + part.end));
    }
    merged(found)
}

/// The secret parts of the path in `url`, which begins at its host: a token, and `user:password`.
fn path_secrets(url: &str) -> Vec<Range<usize>> {
    let end = url.find(['?', '#', ';', '&', '=', ',', '"', '\'', '`', '|', ')']).unwrap_or(url.len());
    let mut parts = url[..end].split('/');
    let host = parts.next().unwrap_or_default();
    let has_token = host.rsplit_once(':').is_some_and(|(_, port)| TOKEN_PORTS.contains(&port));
    let mut start = host.len() + 1;
    let mut found = Vec::new();
    for part in parts {
        // The colon between a URL and the reason that follows it.
        let part_end = start + part.trim_end_matches([':', '.']).len();
        let is_first = start == host.len() + 1;
        let part_text = &url[start..part_end];
        let has_password = part_text.split_once(':').is_some_and(|(user, password)| is_user(user, password));
        let is_shown = part_text.trim_matches('*').is_empty();
        if !is_shown && ((has_token && is_first) || has_password || is_token(part_text)) {
            found.push(start..part_end);
        }
        start += part.len() + 1;
    }
    found
}

/// Whether a `user:password` pattern in a path is really one. `12:30:00` is a time, `app:1.2` an image.
fn is_user(user: &str, password: &str) -> bool {
    let is_version = password.contains('.') && password.chars().all(|c| c.is_ascii_digit() || c == '.');
    !password.is_empty()
        && user.contains(|c: char| !c.is_ascii_digit())
        && !PATH_PREFIXES.contains(&user.to_ascii_lowercase().as_str())
        && !is_version
        && !TAGS.contains(&password)
}

/// Whether a part of a path looks random.
fn is_token(part: &str) -> bool {
    // Base64 in URLs has `-` and `_`.
    part.split(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c)).any(|group| {
        let runs: Vec<_> = group.split(['-', '_']).collect();
        let length: usize = runs.iter().map(|run| run.len()).sum();
        let all_changes: usize = runs.iter().map(|run| changes(run)).sum();
        // Names of several words with numbers have changes in each, but fewer.
        let is_base64 = length >= TOKEN_LENGTH && all_changes >= TOKEN_CHANGES && 3 * all_changes >= length;
        let has_token =
            runs.iter().any(|run| run.len() >= TOKEN_LENGTH && changes(run) >= TOKEN_CHANGES && !is_name(run));
        has_token || (is_base64 && !is_name(group)) || has_uuid(&runs)
    })
}

/// How often capitals, small letters and digits change.
fn changes(run: &str) -> usize {
    let class = |c: u8| (c.is_ascii_uppercase(), c.is_ascii_digit());
    run.as_bytes().windows(2).filter(|pair| class(pair[0]) != class(pair[1])).count()
}

/// Whether at least three quarters of the letters are in `CamelCase` words. In a token, runs of lower-case letters occur only
/// by chance.
fn is_name(text: &str) -> bool {
    let is_within = |_: &u8, right: &u8| right.is_ascii_lowercase();
    let words = text.as_bytes().chunk_by(is_within);
    let in_words: usize = words
        .map(|word| word.iter().filter(|c| c.is_ascii_alphabetic()).count())
        .filter(|letters| *letters >= WORD_LENGTH)
        .sum();
    let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
    text.contains(|c: char| c.is_ascii_uppercase()) && 4 * in_words >= 3 * letters
}

fn has_uuid(runs: &[&str]) -> bool {
    let is_hex = |run: &str, length| run.len() == length && run.bytes().all(|c| c.is_ascii_hexdigit());
    runs.windows(UUID.len()).any(|groups| groups.iter().zip(UUID).all(|(run, length)| is_hex(run, length)))
}

/// The users of URLs, `user:password` in `rtsp://user:password@host`, and without a scheme in `user:password@host`.
///
/// Up to the last `@` of a URL: a password may hold any character that should have been escaped.
fn users(text: &str) -> Vec<Range<usize>> {
    let urls = urls(text);
    let inner = urls.iter().flat_map(|url| escaped_urls(text, url));
    let mut users: Vec<_> = urls
        .iter()
        .cloned()
        .chain(inner)
        .filter_map(|url| {
            let word = &text[url.clone()];
            let slash = text.get(url.start - 2..url.start).unwrap_or_default();
            let is_escaped = slash.eq_ignore_ascii_case("2f");
            let end = ["@", "%40", "%2540"]
                .iter()
                .filter(|at| **at == "@" || is_escaped)
                .filter_map(|at| word.rfind(at))
                .max()?;
            // Masked text keeps its length, so that columns in a file's line do not shift.
            (!word[..end].trim_matches('*').is_empty()).then_some(url.start..url.start + end)
        })
        .collect();
    for (at, _) in text.match_indices('@').filter(|(at, _)| !is_in(&urls, *at)) {
        let is_outside = |c: char| c.is_whitespace() || "\"'`=,;|()".contains(c);
        let from = text.floor_char_boundary(at.saturating_sub(FAR));
        let word = text[from..at].rsplit(is_outside).next().unwrap_or_default().trim_start_matches('/');
        let start = at - word.len();
        let has_password = word.split_once(':').is_some_and(|(user, rest)| !user.is_empty() && !rest.is_empty());
        if has_password && text[at + 1..].starts_with(|c: char| c.is_alphanumeric() || c == '[') {
            users.push(start..at);
        }
    }
    merged(users)
}

/// Returns where the percent-encoded URLs in the parameters of `url` are, without their schemes: `?src=rtsp%3A%2F%2F...&x=1`.
fn escaped_urls(text: &str, url: &Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = url.start;
    while let Some(mark) = scheme_mark(&text[..url.end], from) {
        from = mark.end;
        if text[mark.clone()].contains('%') {
            let length = text[from..url.end].find(['&', '#']).unwrap_or(url.end - from);
            found.push(from..from + length);
        }
    }
    found
}

fn replaced(text: &str, secrets: &[Range<usize>]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for secret in secrets {
        out += &text[from..secret.start];
        out += MASK;
        from = secret.end;
    }
    out + &text[from..]
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// URLs of cameras and recorders, from the makers' manuals and from programs that people copy them from. Each secret is
    /// `hushHUSH1` or a token like it.
    const VENDORS: [(&str, &str); 60] = [
        ("Hikvision", "rtsp://admin:hushHUSH1@10.0.0.5:554/Streaming/Channels/101"),
        ("Hikvision ISAPI", "http://admin:hushHUSH1@10.0.0.5/ISAPI/Streaming/channels/101/picture"),
        ("Hikvision, by parameter", "rtsp://10.0.0.5:554/Streaming/Channels/101?auth=hushHUSH1"),
        ("Dahua", "rtsp://admin:hushHUSH1@10.0.0.5:554/cam/realmonitor?channel=1&subtype=0"),
        ("Dahua, by parameter", "rtsp://10.0.0.5:554/cam/realmonitor?channel=1&subtype=0&authbasic=hushHUSH1=="),
        ("Dahua, the order turned", "rtsp://10.0.0.5/cam/realmonitor?authbasic=hushHUSH1&channel=1"),
        ("Amcrest", "http://admin:hushHUSH1@10.0.0.5/cgi-bin/snapshot.cgi?channel=1"),
        ("Axis", "rtsp://root:hushHUSH1@10.0.0.5/axis-media/media.amp?videocodec=h264"),
        ("Axis, a token", "http://10.0.0.5/axis-cgi/mjpg/video.cgi?camera=1&authToken=hushHUSH1"),
        ("Foscam", "http://10.0.0.5:88/cgi-bin/CGIProxy.fcgi?cmd=snapPicture2&usr=admin&pwd=hushHUSH1"),
        ("Foscam, older", "http://10.0.0.5/videostream.cgi?user=admin&pwd=hushHUSH1&resolution=32"),
        ("EasyN", "http://10.0.0.5/videostream.cgi?loginuse=admin&loginpas=hushHUSH1"),
        ("Reolink", "http://10.0.0.5/cgi-bin/api.cgi?cmd=Snap&channel=0&rs=x&user=admin&password=hushHUSH1"),
        ("Reolink, a token", "http://10.0.0.5/cgi-bin/api.cgi?cmd=Snap&token=hushHUSH1"),
        ("Reolink RTMP", "rtmp://10.0.0.5/bcs/channel0_main.bcs?channel=0&stream=0&user=admin&password=hushHUSH1"),
        ("Reolink FLV", "http://10.0.0.5/flv?port=1935&app=bcs&stream=channel0_main.bcs&user=admin&password=hushHUSH1"),
        ("Vivotek", "rtsp://root:hushHUSH1@10.0.0.5:554/live.sdp"),
        ("TP-Link VIGI", "rtsp://admin:hushHUSH1@10.0.0.5:554/stream1"),
        ("Tapo", "rtsp://me%40mail.example:hushHUSH1@10.0.0.5:554/stream2"),
        ("Uniview", "rtsp://admin:hushHUSH1@10.0.0.5/unicast/c1/s0/live"),
        ("Uniview, its page", "http://10.0.0.5/cgi-bin/main-cgi?cmd=255&szUserName=admin&szUserPasswd=hushHUSH1"),
        ("Hanwha", "rtsp://admin:hushHUSH1@10.0.0.5/profile2/media.smp"),
        ("Panasonic", "http://admin:hushHUSH1@10.0.0.5/nphMotionJpeg?Resolution=640x480&Quality=Standard"),
        ("D-Link", "http://10.0.0.5/video/mjpg.cgi?user=admin&pass=hushHUSH1"),
        ("Trendnet", "http://10.0.0.5/cgi/mjpg/mjpg.cgi?username=admin&password=hushHUSH1"),
        ("ACTi", "http://10.0.0.5/cgi-bin/cmd/encoder?USER=admin&PWD=hushHUSH1&SNAPSHOT"),
        ("GeoVision", "http://10.0.0.5/PictureCatch.cgi?username=admin&password=hushHUSH1&channel=1"),
        ("Vstarcam", "http://10.0.0.5:81/livestream.cgi?user=admin&pwd=hushHUSH1&streamid=0"),
        ("Wyze bridge", "rtsp://wb:hushHUSH1@10.0.0.5:8554/front-door"),
        ("Wyze bridge, a key", "http://10.0.0.5:5000/img/front-door.jpg?api=hushHUSH1"),
        ("go2rtc, Wyze", "wyze://10.0.0.5?uid=A&enr=hushHUSH1&mac=B"),
        ("UniFi Protect", "rtsps://10.0.0.1:7441/hushHUSHhushHUSH?enableSrtp"),
        ("UniFi Protect, plain", "rtsp://10.0.0.1:7447/hushHUSHhushHUSH"),
        ("UniFi Protect, behind another port", "rtsps://nvr.example/hUSh1hushHUSH2hu"),
        ("Ubiquiti airCam", "rtsp://ubnt:hushHUSH1@10.0.0.5:554/live/ch00_0"),
        ("ONVIF snapshot", "http://10.0.0.5/onvif-http/snapshot?auth=hushHUSH1"),
        ("ONVIF snapshot, a session", "http://10.0.0.5/onvif/snapshot.jpg?Profile=1&sessionID=hushHUSH1"),
        ("XMEye", "rtsp://10.0.0.5:554/user=admin_password=hushHUSH1_channel=1_stream=0.sdp?real_stream"),
        ("XMEye, by ampersands", "rtsp://10.0.0.5:554/user=admin&password=hushHUSH1&channel=1&stream=0.sdp?"),
        ("NetSurveillance", "rtsp://10.0.0.5/live/ch00_0?username=admin&password=hushHUSH1"),
        ("Zosi", "rtsp://10.0.0.5:554/0/admin:hushHUSH1/main"),
        ("Zosi, a path before a query", "rtsp://10.0.0.5/admin:hushHUSH1/av?ch=0"),
        ("go2rtc", "rtsp://10.0.0.9:8554/front?src=rtsp://admin:hushHUSH1@10.0.0.5/1"),
        ("go2rtc, escaped", "http://10.0.0.9:1984/api/frame.jpeg?src=rtsp%3A%2F%2Fadmin%3AhushHUSH1%4010.0.0.5%2F1"),
        ("go2rtc, ffmpeg", "ffmpeg:rtsp://admin:hushHUSH1@10.0.0.5/1#video=copy#audio=opus"),
        ("go2rtc, Tapo", "tapo://hushHUSH1@10.0.0.5"),
        ("go2rtc, Ring", "ring:?device_id=x&refresh_token=hushHUSH1"),
        ("go2rtc, HomeKit", "homekit://10.0.0.5:5000?client_id=a&client_private=hushHUSH1"),
        ("go2rtc, DVRIP", "dvrip://admin:hushHUSH1@10.0.0.5:34567?channel=0"),
        ("go2rtc, ONVIF", "onvif://admin:hushHUSH1@10.0.0.5?subtype=MediaProfile000"),
        ("Frigate", "http://10.0.0.9:5000/api/front/latest.jpg?h=300&frigate_token=hushHUSH1"),
        ("Blue Iris", "http://10.0.0.9:81/mjpg/front?user=me&pw=hushHUSH1"),
        ("Blue Iris, a session", "http://10.0.0.9:81/image/front?session=hushHUSH1"),
        ("Synology", "rtsp://syno:hushHUSH1@10.0.0.9:554/Sms=1.unicast"),
        ("Synology, by parameter", "http://10.0.0.9:5000/webapi/entry.cgi?api=x&_sid=hushHUSH1&StmKey=hushHUSH1"),
        ("ZoneMinder", "http://10.0.0.9/zm/cgi-bin/nph-zms?monitor=1&user=me&pass=hushHUSH1"),
        ("Shinobi", "http://10.0.0.9:8080/hushHUSH1hushHUSH1hush2HU/jpeg/group/monitor/s.jpg"),
        ("Home Assistant", "http://10.0.0.9:8123/api/camera_proxy/camera.front?token=hushHUSH1"),
        ("userinfo with @ and :", "rtsp://admin:p@ss:hushHUSH1@10.0.0.5:554/1"),
        ("an escaped password", "rtsp://admin:p%40%3AhushHUSH1%23@10.0.0.5/1"),
    ];

    #[test]
    fn no_vendors_url_shows_its_secret_and_each_shows_its_camera() {
        for (vendor, url) in VENDORS {
            let lines = [
                url.to_owned(),
                format!("camera door: cannot play {url}: 401 Unauthorized"),
                format!("url = \"{url}\""),
                format!("[in#0 @ 0x55] Error opening input '{url}', giving up"),
            ];
            for line in lines {
                for shown in [redact(&line), redact_line(&line), redact_urls(&line), redact_in_place(&line)] {
                    let is_url = line.contains("://") || shown != redact_urls(&line);
                    assert!(!is_url || !shown.to_lowercase().contains("hush"), "{vendor}: {shown}");
                }
                if !url.starts_with("ring:")
                    && !url.contains('%')
                    && !url.contains("src=")
                    && !url.starts_with("rtsps://nvr")
                {
                    assert!(redact_line(&line).contains("10.0.0."), "{vendor}: {}", redact_line(&line));
                }
            }
        }
        for (line, shown) in [
            ("cannot play rtsps://10.0.0.1:7441/hushHUSHhush: 401", "cannot play rtsps://10.0.0.1:7441/***: 401"),
            ("http://10.0.0.9/3f2b8c1d-9a4e-4b6f-8d7c-0123456789ab/s.jpg", "http://10.0.0.9/***/s.jpg"),
            ("http://10.0.0.9/cam_3F2B8C1D-9A4E-4B6F-8D7C-0123456789AB.jpg", "http://10.0.0.9/***"),
            ("http://10.0.0.9/live/kJ3x-9fQ_2bL8-vT5zW1/a.m3u8", "http://10.0.0.9/live/***/a.m3u8"),
            ("http://10.0.0.9/dQw4w9WgXcQ_aB3-x7Kp2Lm9/1", "http://10.0.0.9/***/1"),
            ("http://10.0.0.9/hls/admin:123456/1", "http://10.0.0.9/hls/***/1"),
            ("rtsps://10.0.0.1:7441/hushHUSHhush?enableSrtp", "rtsps://10.0.0.1:7441/***?enableSrtp"),
            ("http://h/c?subtype=0&authbasic=aHVzaA==: 404", "http://h/c?subtype=0&authbasic=***: 404"),
        ] {
            assert_eq!(redact_line(line), shown);
        }
    }

    #[test]
    fn ordinary_paths_of_cameras_stay() {
        for url in [
            "rtsp://10.0.0.5:554/Streaming/Channels/101",
            "rtsp://10.0.0.5/h264Preview_01_main",
            "rtsp://10.0.0.5/axis-media/media.amp?videocodec=h264&resolution=1920x1080",
            "rtsp://10.0.0.5/onvif/profile1/media.smp",
            "rtsp://10.0.0.5/onvif-media/MediaProfile00001/videoMainStream1",
            "rtmp://10.0.0.5/vod/mp4:film.mp4",
            "http://10.0.0.5/rec/12:30:00/a.mp4",
            "http://10.0.0.5/app:latest",
            "http://10.0.0.5/library/app:1.26.3/manifest",
            "rtsp://10.0.0.5/videoMainStream1H264Profile2",
            "rtsp://10.0.0.5/Camera_1-Main_Stream2_Profile3",
            "rtsp://10.0.0.5/cam1_day2_h264_720p_15fps_front2",
            "rtsp://10.0.0.5:8554/front-door",
            "http://10.0.0.9/2024-05-01T12-30-00/20240501123000.mp4",
            "http://10.0.0.9/recordings/0123456789012345678901/index.m3u8",
            "rtsp://[fe80::1]:554/live.sdp",
        ] {
            for shown in [redact(url), redact_line(url), redact_in_place(url), redact_urls(url)] {
                assert_eq!(shown, url);
            }
        }
    }

    fn separator() -> impl Strategy<Value = String> {
        prop_oneof!["[\"']?[ \t]?[=:][ \t]?[\"']?", "%(25)?3[Dd]", " {1,2}"]
    }

    #[test]
    fn a_url_loses_its_user_and_its_secret_parameters() {
        for (text, shown) in [
            ("rtsp://admin:p@ss@10.0.0.1:554/1", "rtsp://***@10.0.0.1:554/1"),
            ("rtsp://admin:pa/ss@10.0.0.1/1", "rtsp://***@10.0.0.1/1"),
            ("rtsp://admin:pw@cam/1?x=a@b", "rtsp://***@b"),
            ("https://host/a.m3u8?token=abc&x=1", "https://host/a.m3u8?token=***"),
            ("https://host/a.m3u8?x=1&APIKEY=abc", "https://host/a.m3u8?x=1&APIKEY=***"),
            ("http://h/tokens?token=abc", "http://h/tokens?token=***"),
            ("Authorization: Basic YTpi", "Authorization: ***"),
            ("location=rtsp://u:p@h/1 x", "location=rtsp://***@h/1 x"),
            ("/films/a b.mp4", "/films/a b.mp4"),
            ("film@home.mp4", "film@home.mp4"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }

    #[test]
    fn a_programs_line_keeps_its_reason() {
        for (line, shown) in [
            ("https://h/a?token=abc: Server returned 404", "https://h/a?token=***: Server returned 404"),
            ("password: 'hush', retrying", "password: '***', retrying"),
            // The quote that closes a URL is the one before the end of a word, not one in the password.
            ("'rtsp://u:it's@cam/1' failed", "'rtsp://***@cam/1' failed"),
            ("\"rtsp://u:a\"b@cam/1\", then 'x'", "\"rtsp://***@cam/1\", then 'x'"),
            ("> Authorization: Basic YTpi", "> Authorization: ***"),
            ("rtsp://u:p@cam/1: 401 Unauthorized", "rtsp://***@cam/1: 401 Unauthorized"),
        ] {
            assert_eq!(redact_line(line), shown);
        }
    }

    #[test]
    fn in_a_line_of_a_file_nothing_moves() {
        assert_eq!(redact_in_place("'rtsp://a\n:b@c' d"), "'rtsp://a\n:b@c' d");
        for (text, shown) in [
            ("url = \"rtsp://admin:pw@cam/1?x=a@b\" # at", "url = \"rtsp://******************@b\" # at"),
            ("url = \"rtsp://a:p@s/s@cam/1", "url = \"rtsp://*******@cam/1"),
            (
                "a = 'rtsp://u:pä@x/' b = 'http://h/' c = 'mqtt://u:p@y'",
                "a = 'rtsp://****@x/' b = 'http://h/' c = 'mqtt://***@y'",
            ),
            ("Password = \"hush\", queue = 5", "Password = \"****\", ***** * *"),
            (
                "args = [\"-headers\", \"Authorization: Basic YTpi\"]",
                "args = [\"-headers\", \"Authorization: ***** ****\"]",
            ),
            ("args = [\"user-pw=hush\"]", "args = [\"user-pw=****\"]"),
            ("name = \"tokens\" # no secrets", "name = \"tokens\" # no secrets"),
            ("path = \"https://host/a\"", "path = \"https://host/a\""),
        ] {
            assert_eq!(redact_in_place(text), shown);
        }
    }

    #[test]
    fn what_an_option_announces_is_hidden() {
        let arguments = |all: &[&str]| redact_arguments(all.iter().copied()).join(" ");
        for (all, shown) in [
            (&["--password", "hush", "--user-pw", "hush", "-x"][..], "--password *** --user-pw *** -x"),
            (&["--password=hush", "film"], "--password=*** film"),
            (&["-u", "admin:hush hush", "-u", "1000"], "-u *** -u 1000"),
            (&["-uadmin:hush", "--user=admin:hush", "--user", "admin:hush"], "-u*** --user=*** --user ***"),
            (&["-cookies", "session=hush; path=/"], "-cookies ***"),
            (&["sh", "-c", "grab --password hush"], "sh -c grab --password ***"),
            (&["sh", "-c", "curl -u admin:hush http://cam | tee x"], "sh -c curl -u *** http://cam | tee x"),
            (&["sh", "-c", "curl -u 'admin:hu sh' cam"], "sh -c curl -u '***' cam"),
            (&["-headers", "X-Api-Key: hush"], "-headers X-Api-Key: ***"),
            (&["password", "film", "-headers", "Accept: a"], "password film -headers Accept: a"),
        ] {
            assert_eq!(arguments(all), shown);
        }
        for (line, shown) in [
            (r#"["--password", "hush", "-x"]"#, r#"["--password", "****", "**"]"#),
            (r#"["-u", "admin:hush", "-x"]"#, r#"["-u", "**********", "-x"]"#),
            ("a = [\"--password\",\n\"hush\",\n5]", "a = [\"--password\",\n\"****\",\n5]"),
        ] {
            assert_eq!(redact_in_place(line), shown);
        }
    }

    #[test]
    fn what_is_hidden_in_arguments_is_found_elsewhere() {
        let arguments =
            ["-i", "rtsp://admin:hu sh@cam/1?token=abcde&x=1", "--password", "very hush", "-q", "pw=ab", "film"];
        let hidden = hidden_in_arguments(arguments);
        for secret in ["admin:hu sh", "hu sh", "abcde", "very hush"] {
            assert!(hidden.iter().any(|hidden| hidden == secret), "{secret}: {hidden:?}");
        }
        assert!(hidden.iter().all(|hidden| hidden.len() >= LEAST && !hidden.contains("film")), "{hidden:?}");
        assert!(hidden.is_sorted_by_key(|hidden| std::cmp::Reverse(hidden.len())));
        // A value may be one word or the whole rest, and both are found elsewhere.
        let hidden = hidden_in_arguments(["-x", "password=hushhush and more"]);
        assert_eq!(hidden, ["hushhush and more", "hushhush"]);
    }

    #[test]
    fn every_occurrence_is_hidden() {
        // A user name that is not secret hides nothing after it.
        assert_eq!(redact_line("u:'a b password=hush now"), "u:'a b password=*** now");
        for text in [
            "http://cam/?user=a&pass=hush&key=hush",
            "http://cam/?pwd=hush&x=1&token=hush",
            "http://cam/?next=%3Ftoken%3Dhush%26key%3dhush&a=token%253Dhush",
            "rtsp://user:hush@a/1 rtsp://user:hush@b/2, rtsp://c/3 rtsp://user:hush@d",
            r#"{"url":"rtsp:\/\/user:hush@a\/1"} x=rtsp%3A%2F%2Fuser%3Ahush%40a"#,
            "rtspsrc user-pw=hush ! x api_key=hush passphrase=hush streamKey=hush PHPSESSID=hush key2=hush",
            r#"{\"token\": \"hush hush\", "password":"a 'hush"} secret='hush, hush'"#,
            "Cookie: a=hush; b=hush",
        ] {
            for shown in [redact(text), redact_line(text), redact_in_place(text)] {
                assert!(!shown.contains("hush"), "{shown}");
            }
        }
        assert_eq!(redact_line("http://h/?user=a&pass=hush&x=1&key=hush"), "http://h/?user=a&pass=***&x=1&key=***");
        let message = "`http://h/?token=hush` and rtsp://u:hush@h: `token` is: unknown";
        assert_eq!(redact_urls(message), "`http://h/?token=***` and rtsp://***@h: `token` is: unknown");
    }

    #[test]
    fn other_spellings_are_hidden_too() {
        for text in [
            "RTSP://Admin:hush@CAM/1",
            "rtsp://admin:it's-hush@cam/1",
            "rtsp://admin:a\"hush@cam/1",
            "'rtsp://admin:it's-hush@cam/1' and more",
            "rtsp://admin:very hush@cam/1",
            "rtsp://admin:hush@[fe80::1%25eth0]:554/1",
            "rtsp://admin:%68hush%40x@cam/1",
            "rtsp:%2F%2Fadmin:hush@cam",
            "url=rtsp%3A//admin:hush@cam",
            "url=rtsp%253A%252F%252Fadmin%253Ahush%2540cam",
            "//admin:hush@cam/1",
            "admin:hush@10.0.0.5:554/stream",
            "rtsp://a:hush@h,rtsp://b:hush@i|rtsp://c:hush@j",
            "http://cam/#access_token=hush",
            "http://cam/;pwd=hush;x=1",
            "http://cam/?a=1;PassWord=hush;b=2",
            "http://cam/?user[password]=hush",
            "http://cam/?user%5Bpassword%5D=hush",
            "http://cam/?x=%26password%3Dhush",
            "pass-word=hush pass_phrase=hush api.key=hush userpw=hush session-id=hush AuthKey=hush",
            "password := hush, password => hush, password == hush",
            "<Password>hush</Password> <wsse:Password Type=\"x\">hush</wsse:Password>",
            "Bearer hush.hush",
            "-headers 'Authorization: Digest username=\"hush\", response=\"hush\"'",
            "-headers \"X-Auth-Token: hush\\r\\nCookie: a=hush\\r\\n\"",
            "rtspsrc location=rtsp://cam user-id=x user-pw=\"hush hush\" ! fdsink",
            "rtspsrc location=\"rtsp://admin:hush@cam/1\" proxy-pw=hush ! fdsink",
            "srt://cam:9000?mode=caller&passphrase=hush&pbkeylen=16",
            "--proxy-user admin:hush -U admin:hush --user=admin:hush",
            "PGPASSWORD=hush MQTT_PWD='hush' x",
        ] {
            for shown in [redact(text), redact_line(text), redact_in_place(text)] {
                assert!(!shown.contains("hush"), "{text}: {shown}");
            }
            let is_url = text.contains("://") && !text.contains(['=', ' ']);
            assert!(!is_url || !redact_urls(text).contains("hush"), "{text}");
        }
    }

    #[test]
    fn harmless_text_stays() {
        for text in [
            "/films/secret garden.mp4",
            "/etc/visiond/token/http-password.txt",
            "/etc/visiond/device.key: No such file",
            "keyframe = 5",
            "keyint=30:key-int-max = 3",
            "user-agent = \"visiond: 1\"",
            "-user_agent visiond -passes 2 -passlogfile x",
            "key = \"/etc/visiond/device.key\"",
            "--password-file /etc/x --token-file=/y",
            "python3 -u grab.py -u 1000",
            "-u rtsp://cam/1 -update 1",
            "wrong password given for user admin",
            "rtspsrc location=rtsp://cam/1 user-id=admin latency=0 ! rtph264depay ! h264parse ! fdsink fd=3",
            "v4l2src ! video/x-raw,format=NV12,width=640 ! x264enc bitrate=500 key-int-max=30 ! bypass=true",
            "https://host/a.m3u8?mail=a%40b&keys=1&tokens=2&monkey=3",
            "[tls @ 0x55d] [h264 @ 0x1f] visiond@north.service: film@home.mp4 12:30 a@b",
            "http://10.0.0.1:8790 answers, and so does me@host",
            "bearer token missing, Bearer realm",
            "camera[0]: x, [auth]",
        ] {
            for shown in [redact(text), redact_line(text), redact_in_place(text), redact_urls(text)] {
                assert_eq!(shown, text);
            }
        }
    }

    proptest! {
        #[test]
        fn no_value_of_a_secret_key_is_shown(
            keys in vec((select([&ENDS[..], &WORDS[..], &["api_key", "user-pw", "X-Auth"]].concat()), any::<bool>(), separator()), 1..4),
            before in "(.{0,20}[^a-zA-Z0-9%_.-])?", between in "[ &,;\"]", after in "([ &,;\"].{0,20})?", value in "[0-9]{9}",
        ) {
            let names: Vec<_> = keys.iter().map(|(key, ..)| format!("--{key}")).collect();
            let written = keys.into_iter().map(|(key, upper, separator)| {
                let key = if upper { key.to_uppercase() } else { key.to_owned() };
                // After a blank, only an option's value is secret.
                let dashes = if separator.trim().is_empty() { "--" } else { "" };
                format!("{dashes}{key}{separator}{value}")
            });
            let text = format!("{before}{}{after}", written.collect::<Vec<_>>().join(&between));
            for shown in [redact(&text), redact_line(&text), redact_in_place(&text)] {
                prop_assert!(!shown.contains(&value), "{shown}");
            }
            let arguments = names.iter().flat_map(|name| [name.as_str(), &value]);
            prop_assert!(!redact_arguments(arguments).contains(&value), "{names:?}");
        }

        #[test]
        fn no_user_of_a_url_is_shown(user in "[^\\s\"'@]{0,9}", password in "[0-9]{9}", rest in "[a-z/?@=&]{1,20}", before in ".{0,20}") {
            let text = format!("{before}rtsp://{user}:{password}@{rest}");
            for shown in [redact(&text), redact_line(&text), redact_urls(&text), redact_in_place(&text)] {
                prop_assert!(!shown.contains(&password), "{shown}");
            }
        }

        #[test]
        fn any_text_is_taken_and_columns_stay(text in ".{0,60}") {
            prop_assert_eq!(redact_in_place(&text).chars().count(), text.chars().count());
            let once = redact(&text);
            prop_assert_eq!(redact(&once), once);
        }

        #[test]
        fn text_without_keys_and_users_stays(text in "[a-n0-9 /.,=:-]{0,60}") {
            prop_assert_eq!(redact_line(&text), text);
        }
    }
}
