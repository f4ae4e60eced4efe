//! Hides secrets in text that leaves the process: the log, errors, reports, `check --effective`, `/status`, `/cameras`, `/config`.
//!
//! Secrets belong in credentials. Where they stand in the configuration anyway, they stand in a URL, behind a key such as
//! `password=`, or behind an option such as `--password`. These functions hide what looks like one, rather too much than too
//! little. They cannot know every form.

use std::ops::Range;

/// The text that replaces a secret.
pub const MASK: &str = "***";

/// Ends of the names of secrets, lower case: `MQTT_PASSWORD`, `apikey`.
const ENDS: [&str; 15] = [
    "authorization",
    "cookie",
    "cookies",
    "sessionid",
    "sessid",
    "passwd",
    "password",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "login",
];

/// Last words of the names of secrets, lower case: `user-pw`, `api_key`, `streamKey`. Not `keyint` or `bypass`.
const WORDS: [&str; 8] = ["auth", "bearer", "key", "pass", "psk", "pw", "sig", "signature"];

/// Last words of the names of users. `user:password` behind one is secret.
const USERS: [&str; 3] = ["u", "user", "userpwd"];

/// Where the value behind a key ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// At the end of the text.
    Text,
    /// At the end of the line.
    Line,
    /// At the closing quote, else at the next blank, quote, `&`, or comma or semicolon before a blank.
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
    let mut ranges = users(text);
    for url in urls(text) {
        let inside = secrets(&text[url.clone()], Extent::Word);
        ranges.extend(inside.into_iter().map(|range| url.start + range.start..url.start + range.end));
    }
    replaced(text, &merged(ranges))
}

/// A file's `text` with a `*` in place of each character of a secret, so that columns stay; blanks and TOML's separators stay too.
pub fn redact_in_place(text: &str) -> String {
    let secrets = secrets(text, Extent::Line);
    let users = users(text);
    let is_in = |ranges: &[Range<usize>], at| ranges.iter().any(|range| range.contains(&at));
    let hide = |(at, c): (usize, char)| {
        let separates = c.is_whitespace() || "\"',]}".contains(c);
        if is_in(&users, at) || (is_in(&secrets, at) && !separates) { '*' } else { c }
    };
    text.char_indices().map(hide).collect()
}

/// Replaces the secrets in a program's arguments with `***`: within each argument, and one that an option before it announces.
pub fn redact_arguments<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut before = "";
    let redact_next = |argument: &'a str| {
        let start = before.len() + 1;
        let both = format!("{before} {argument}");
        before = argument;
        // The option before announces the argument only if it has no value of its own.
        let is_announced = secrets(&both, Extent::Text).iter().any(|range| range.start == start);
        if is_announced { MASK.to_owned() } else { redact(argument) }
    };
    arguments.into_iter().map(redact_next).collect()
}

/// The kind of a value, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Secret,
    /// A secret of several words: the value of an HTTP header.
    Header,
    /// A user, with whom a password may stand.
    User,
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_new = |(at, _): &(usize, char)| {
            let (before, here) = (name.as_bytes()[at - 1], name.as_bytes()[*at]);
            b"-_".contains(&before) || (before.is_ascii_lowercase() && here.is_ascii_uppercase())
        };
        let last = name.char_indices().skip(1).filter(is_new).last().map_or(0, |(at, _)| at);
        let (last, lower) = (name[last..].to_ascii_lowercase(), name.to_ascii_lowercase());
        if lower.ends_with("authorization") || lower.ends_with("cookie") || lower.ends_with("cookies") {
            Some(Self::Header)
        } else if ENDS.iter().any(|end| lower.ends_with(end)) || WORDS.contains(&last.as_str()) {
            Some(Self::Secret)
        } else {
            USERS.contains(&last.as_str()).then_some(Self::User)
        }
    }
}

/// The bytes of `text` that are secret: in order, none empty, none overlapping.
fn secrets(text: &str, extent: Extent) -> Vec<Range<usize>> {
    let mut found = users(text);
    for name in names(text) {
        let known = Kind::of(&text[name.clone()]).and_then(|kind| Some((kind, value(text, &name)?)));
        // `-uadmin:hush`, as curl takes it.
        let attached = || text[name.clone()].starts_with("-u").then_some((Kind::User, name.start + 2));
        let Some((kind, value)) = known.or_else(attached) else { continue };
        let extent = match kind {
            Kind::User => Extent::Word,
            Kind::Header if extent == Extent::Word => Extent::Line,
            _ => extent,
        };
        let range = value..end(text, value, extent);
        let shown = &text[range.clone()];
        let is_secret = match kind {
            Kind::User => shown.split_once(':').is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with("//")),
            _ => !shown.is_empty(),
        };
        if is_secret {
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
        // `%26` before a name is `&`.
        let escaped = text.as_bytes()[start..end].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
        if text[..start].ends_with('%') && escaped == 2 {
            start += 2;
        }
        Some(start..end)
    })
}

/// The start of the value behind a name: behind `=` or `:`, or behind an option and a blank.
fn value(text: &str, name: &Range<usize>) -> Option<usize> {
    let behind = &text[name.end..];
    let unquoted = without(behind, &['"', '\'', '\\', ' ', '\t']);
    if let Some(value) = separated(unquoted) {
        // TOML: the path of a key's file.
        let is_path = &text[name.clone()] == "key" && behind.starts_with(' ') && value.trim_start().starts_with("\"/");
        return (!is_path).then(|| text.len() - without(value, &['"', '\'', '\\', ' ', '\t']).len());
    }
    let value = behind.trim_start_matches(|c: char| c.is_whitespace() || "\"'\\,".contains(c));
    let blank = &behind[..behind.len() - value.len()];
    let is_apart = blank.contains(|c: char| c.is_whitespace() || c == ',');
    (text[name.clone()].starts_with('-') && is_apart).then(|| text.len() - value.len())
}

/// `text` without `chars` at its start, percent-encoded ones too.
fn without<'a>(mut text: &'a str, chars: &[char]) -> &'a str {
    loop {
        let trimmed = text.trim_start_matches(chars);
        let rest = ["%20", "%22", "%27"].iter().find_map(|escaped| trimmed.strip_prefix(escaped));
        match rest {
            Some(rest) => text = rest,
            None => return trimmed,
        }
    }
}

/// `text` behind a separator, which may be percent-encoded, also twice.
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

/// The end of the value that starts at `start`.
fn end(text: &str, start: usize, extent: Extent) -> usize {
    let mut value = &text[start..];
    if extent == Extent::Text {
        return text.len();
    }
    value = value.lines().next().unwrap_or_default();
    if extent == Extent::Line {
        return start + value.len();
    }
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
        c.is_whitespace() || "\"'`&".contains(*c) || (",;".contains(*c) && is_last)
    };
    let word = &value[..value.char_indices().find(ends).map_or(value.len(), |(at, _)| at)];
    // The colon between a URL and the reason that follows it.
    start + word.trim_end_matches(':').len()
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

/// What follows the scheme of each URL, up to a blank or a quote.
fn urls(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let lower = text.to_ascii_lowercase();
    let mut from = 0;
    let schemes = |from: usize| {
        let scheme = |mark: &str| Some((from + lower[from..].find(mark)?, mark.len()));
        ["://", ":\\/\\/", "%3a%2f%2f"].into_iter().filter_map(scheme).min()
    };
    while let Some((scheme, length)) = schemes(from) {
        let start = scheme + length;
        let end =
            text[start..].find(|c: char| c.is_whitespace() || "\"'".contains(c)).map_or(text.len(), |n| start + n);
        found.push(start..end);
        from = end;
    }
    found
}

/// The users of URLs, `user:password` in `rtsp://user:password@host`.
///
/// Up to the last `@` before a blank or a quote: a password may hold any character that should have been escaped.
fn users(text: &str) -> Vec<Range<usize>> {
    let is_escaped = text.to_ascii_lowercase().contains("%3a%2f%2f");
    let user = |url: Range<usize>| {
        let word = &text[url.clone()];
        let end = word.rfind('@').max(word.rfind("%40").filter(|_| is_escaped))?;
        (end > 0).then(|| url.start..url.start + end)
    };
    urls(text).into_iter().filter_map(user).collect()
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
            ("> Authorization: Basic YTpi", "> Authorization: ***"),
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
    fn every_occurrence_is_hidden() {
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
                // Behind a blank only an option's value is secret.
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
