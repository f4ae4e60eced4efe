//! A line of a configuration as an error may show it: without what looks like a secret.
//!
//! Errors go to the log and to whoever asks for a reload, and the line that is wrong may be the one with the password in it.
//! Every character that is hidden becomes a `*`, so that places in the line stay.

/// What is set behind one of these words is hidden.
const WORDS: [&str; 8] = ["authorization", "passwd", "password", "passphrase", "secret", "token", "api_key", "-pw"];

/// `line` without users of URLs, and without what is set by a word that says it is secret.
pub fn line(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let behind = |word: &&str| {
        let end = lower.find(*word)? + word.len();
        let rest = lower[end..].trim_start_matches(['"', '\'', ' ', '\t']);
        rest.starts_with(['=', ':']).then(|| lower.len() - rest.len() + 1)
    };
    let set = WORDS.iter().filter_map(behind).min().unwrap_or(text.len());
    let (open, secret) = text.split_at(set);
    urls(open)
        + &secret.chars().map(|c| if c.is_whitespace() || "\"',]}".contains(c) { c } else { '*' }).collect::<String>()
}

/// `text` without the users of URLs in it: `rtsp://admin:pw@host` as `rtsp://********@host`.
pub fn urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out += before;
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).unwrap_or(after.len());
        // A password may hold what should have been escaped in it: rather too much is hidden than too little.
        let user = after[..end].rfind('@').unwrap_or(0);
        out.extend(after[..user].chars().map(|_| '*'));
        rest = &after[user..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_stars_and_nothing_moves() {
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
            assert_eq!(line(text), shown);
        }
    }
}
