//! Hides secrets in the configuration that `/api/v1/config` returns.
//!
//! Secrets belong in credentials. Some users put them into a URL or an argument anyway, so this hides everything there that
//! looks like one.

use serde_json::Value;
use visiond_system::redact::{MASK, announces_secret, redact};

/// Replaces every secret in `value` with [`MASK`].
pub fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = redact(text),
        Value::Array(items) => {
            let mut next_is_secret = false;
            for item in items {
                match item {
                    Value::String(text) if std::mem::take(&mut next_is_secret) => *text = MASK.to_owned(),
                    Value::String(text) => {
                        next_is_secret = announces_secret(text);
                        *text = redact(text);
                    }
                    item => mask(item),
                }
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                // These keys name a credential, not a secret, so they stay visible.
                if !matches!(&**key, "token" | "login" | "credentials") {
                    mask(member);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_in_urls_and_arguments_are_hidden_and_nothing_else() {
        let mut value = json!({
            "camera": [
                { "name": "gate", "source": { "url": "rtsp://admin:p@ss@10.0.0.1:554/1", "login": "gate-login" } },
                { "source": { "url": "rtsp://admin:pa/ss@10.0.0.1/1" } },
                { "source": { "url": "https://host/a.m3u8?token=abc&x=1" } },
                { "source": { "url": "/films/a b.mp4", "input_args": ["-headers", "Authorization: Basic YTpi", "-rtsp_transport", "tcp"] } },
                { "source": { "command": ["gst", "rtspsrc location=rtsp://u:p@h/1", "user-pw=hush", "--password", "hush", "fdsink"] } },
            ],
            "http": { "token": "http-token", "listen": ["127.0.0.1:8790"], "max_fps": 10.0 },
        });
        mask(&mut value);
        let camera = |i: usize| value["camera"][i]["source"].clone();
        assert_eq!(camera(0), json!({ "url": "rtsp://***@10.0.0.1:554/1", "login": "gate-login" }));
        assert_eq!(camera(1)["url"], "rtsp://***@10.0.0.1/1");
        assert_eq!(camera(2)["url"], "https://host/a.m3u8?token=***");
        assert_eq!(camera(3)["input_args"], json!(["-headers", "Authorization:***", "-rtsp_transport", "tcp"]));
        assert_eq!(camera(3)["url"], "/films/a b.mp4");
        let command = json!(["gst", "rtspsrc location=rtsp://***@h/1", "user-pw=***", "--password", "***", "fdsink"]);
        assert_eq!(camera(4)["command"], command);
        assert_eq!(value["http"], json!({ "token": "http-token", "listen": ["127.0.0.1:8790"], "max_fps": 10.0 }));
    }
}
