//! The configuration without its secrets, for whoever may see it but not them.
//!
//! Secrets belong into credentials, and where they stand in the file all the same they stand in a URL, or among a program's
//! arguments: what looks like one there is hidden, rather too much than too little.

use serde_json::Value;

/// What stands in a secret's place.
const MASK: &str = "***";
/// What follows these words, behind `=` or `:` or as the next argument, is a secret.
const WORDS: [&str; 11] = [
    "authorization",
    "passwd",
    "password",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "user-pw",
    "-pw",
    "login",
];

/// Hides what must not be told.
pub fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(text),
        Value::Array(items) => {
            let mut next_is_secret = false;
            for item in items {
                match item {
                    Value::String(text) if std::mem::take(&mut next_is_secret) => *text = MASK.to_owned(),
                    Value::String(text) => {
                        next_is_secret = text.starts_with('-') && names_a_secret(text);
                        *text = masked(text);
                    }
                    item => mask(item),
                }
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                // Those name where a secret is, which is told.
                if !matches!(&**key, "token" | "login" | "credentials") {
                    mask(member);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `text` without the user of a URL in it, and without what a word says is secret.
fn masked(text: &str) -> String {
    let text = without_users(text);
    let end_of_word = |word: &str| text.to_ascii_lowercase().find(word).map(|at| at + word.len());
    for end in WORDS.iter().filter_map(|word| end_of_word(word)) {
        let rest = &text[end..];
        let behind = rest.trim_start_matches(['"', '\'', ' ']);
        if behind.starts_with(['=', ':']) && behind.len() > 1 {
            let kept = text.len() - behind.len() + 1;
            return format!("{}{MASK}", &text[..kept]);
        }
    }
    text
}

/// `rtsp://user:password@host` as `rtsp://***@host`, wherever in `text`.
fn without_users(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let authority =
            after.find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'')).unwrap_or(after.len());
        // A password may well hold what should have been escaped in it: up to the last @ before the next blank.
        let word = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).unwrap_or(after.len());
        let user = after[..authority].rfind('@').or_else(|| after[..word].find('@'));
        match user {
            Some(user) => {
                out.push_str(MASK);
                rest = &after[user..];
            }
            None => rest = after,
        }
    }
    out.push_str(rest);
    out
}

fn names_a_secret(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    !text.contains('=') && WORDS.iter().any(|word| text.ends_with(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_in_urls_and_arguments_are_hidden_and_nothing_else() {
        let mut value = json!({
            "camera": [
                { "name": "gate", "source": { "url": "rtsp://admin:p@ss@10.0.0.1:554/1?x=a@b", "login": "gate-login" } },
                { "source": { "url": "rtsp://admin:pa/ss@10.0.0.1/1" } },
                { "source": { "url": "https://host/a.m3u8?token=abc&x=1" } },
                { "source": { "url": "/films/a b.mp4", "input_args": ["-headers", "Authorization: Basic YTpi", "-rtsp_transport", "tcp"] } },
                { "source": { "command": ["gst", "rtspsrc location=rtsp://u:p@h/1", "user-pw=hush", "--password", "hush", "fdsink"] } },
            ],
            "http": { "token": "http-token", "listen": ["127.0.0.1:8790"], "max_fps": 10.0 },
        });
        mask(&mut value);
        let camera = |i: usize| value["camera"][i]["source"].clone();
        assert_eq!(camera(0), json!({ "url": "rtsp://***@10.0.0.1:554/1?x=a@b", "login": "gate-login" }));
        assert_eq!(camera(1)["url"], "rtsp://***@10.0.0.1/1");
        assert_eq!(camera(2)["url"], "https://host/a.m3u8?token=***");
        assert_eq!(camera(3)["input_args"], json!(["-headers", "Authorization:***", "-rtsp_transport", "tcp"]));
        assert_eq!(camera(3)["url"], "/films/a b.mp4");
        let command = json!(["gst", "rtspsrc location=rtsp://***@h/1", "user-pw=***", "--password", "***", "fdsink"]);
        assert_eq!(camera(4)["command"], command);
        assert_eq!(value["http"], json!({ "token": "http-token", "listen": ["127.0.0.1:8790"], "max_fps": 10.0 }));
    }
}
