//! Hides secrets in text that leaves the process: the log, errors, `/status`, `/cameras`, `/config`.
//!
//! Secrets belong in credentials. Where they stand in the configuration anyway, they stand in a URL or behind a key such as
//! `password=`. These functions hide what looks like one, rather too much than too little.

use std::ops::Range;

/// The text that replaces a secret.
pub const MASK: &str = "***";

/// Names of secrets, lower case. The value follows `=` or `:`, or is a program's next argument.
pub const SECRET_KEYS: [&str; 13] = [
    "authorization",
    "passwd",
    "password",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "user-pw",
    "-pw",
    "login",
];

/// Where the value behind a key ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// At the end of the text.
    Text,
    /// At the next blank, quote, comma, semicolon or `&`; that of `authorization` at the end of the text.
    Word,
}

/// Replaces each URL's user, and everything after a secret's key, with `***`.
pub fn redact(text: &str) -> String {
    replaced(text, &secrets(text, Extent::Text))
}

/// `line`, written by another program, with each URL's user and each secret's value replaced by `***`; the rest stays readable.
pub fn redact_line(line: &str) -> String {
    replaced(line, &secrets(line, Extent::Word))
}

/// `text` with each URL's user replaced by `***`.
pub fn redact_urls(text: &str) -> String {
    replaced(text, &users(text))
}

/// `line` of a file with a `*` in place of each character of a secret, so that columns stay; blanks and TOML's separators stay too.
pub fn redact_in_place(line: &str) -> String {
    let secrets = secrets(line, Extent::Text);
    let users = users(line);
    let is_in = |ranges: &[Range<usize>], at| ranges.iter().any(|range| range.contains(&at));
    let hide = |(at, c): (usize, char)| {
        let separates = c.is_whitespace() || "\"',]}".contains(c);
        if is_in(&users, at) || (is_in(&secrets, at) && !separates) { '*' } else { c }
    };
    line.char_indices().map(hide).collect()
}

/// Whether the argument behind `argument` is a secret, as that behind `--password` is.
pub fn announces_secret(argument: &str) -> bool {
    let argument = argument.to_ascii_lowercase();
    argument.starts_with('-') && !argument.contains('=') && SECRET_KEYS.iter().any(|key| argument.ends_with(key))
}

/// The bytes of `text` that are secret: in order, none empty, none overlapping.
fn secrets(text: &str, extent: Extent) -> Vec<Range<usize>> {
    let mut found = users(text);
    let lower = text.to_ascii_lowercase();
    for key in SECRET_KEYS {
        for (at, _) in lower.match_indices(key) {
            let behind = &text[at + key.len()..];
            let value = behind.trim_start_matches(['"', '\'', ' ', '\t']);
            let Some(value) = value.strip_prefix(['=', ':']) else { continue };
            let range = if extent == Extent::Text || key == "authorization" {
                text.len() - value.len()..text.len()
            } else {
                let value = value.trim_start_matches(['"', '\'', ' ', '\t']);
                let start = text.len() - value.len();
                let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '&');
                let word = &value[..value.find(ends).unwrap_or(value.len())];
                // The colon between a URL and the reason that follows it.
                start..start + word.trim_end_matches(':').len()
            };
            if !range.is_empty() {
                found.push(range);
            }
        }
    }
    found.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for range in found {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// The users of URLs, `user:password` in `rtsp://user:password@host`.
///
/// Up to the last `@` before a blank or a quote: a password may hold any character that should have been escaped.
fn users(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(scheme) = text[from..].find("://") {
        let start = from + scheme + 3;
        let word = text[start..]
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\''))
            .map_or(text.len(), |n| start + n);
        let end = text[start..word].rfind('@').map_or(start, |at| start + at);
        if start < end {
            found.push(start..end);
        }
        from = end;
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_loses_its_user_and_its_secret_parameters() {
        for (text, shown) in [
            ("rtsp://admin:p@ss@10.0.0.1:554/1", "rtsp://***@10.0.0.1:554/1"),
            ("rtsp://admin:pa/ss@10.0.0.1/1", "rtsp://***@10.0.0.1/1"),
            ("rtsp://admin:pw@cam/1?x=a@b", "rtsp://***@b"),
            ("https://host/a.m3u8?token=abc&x=1", "https://host/a.m3u8?token=***"),
            ("https://host/a.m3u8?x=1&APIKEY=abc", "https://host/a.m3u8?x=1&APIKEY=***"),
            ("http://h/tokens?token=abc", "http://h/tokens?token=***"),
            ("Authorization: Basic YTpi", "Authorization:***"),
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
            ("> Authorization: Basic YTpi", "> Authorization:***"),
            ("rtsp://u:p@cam/1: 401 Unauthorized", "rtsp://***@cam/1: 401 Unauthorized"),
        ] {
            assert_eq!(redact_line(line), shown);
        }
    }

    #[test]
    fn in_a_line_of_a_file_nothing_moves() {
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
    fn an_option_announces_the_secret_behind_it() {
        assert!(announces_secret("--password") && announces_secret("-user-pw"));
        assert!(!announces_secret("--password=x") && !announces_secret("password") && !announces_secret("-headers"));
    }

    proptest! {
        #[test]
        fn no_value_of_a_secret_key_is_shown(
            key in proptest::sample::select(&SECRET_KEYS[..]), upper: bool, separator in "[\"']?[ \t]?[=:][ \t]?[\"']?",
            before in ".{0,20}", after in "([ &,;\"].{0,20})?", value in "[0-9]{9}",
        ) {
            let key = if upper { key.to_uppercase() } else { key.to_owned() };
            let text = format!("{before}{key}{separator}{value}{after}");
            for shown in [redact(&text), redact_line(&text), redact_in_place(&text)] {
                prop_assert!(!shown.contains(&value), "{shown}");
            }
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
