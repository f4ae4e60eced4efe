//! Hides secrets in the configuration that `visiond check --effective` and `/api/v1/config` show.
//!
//! Secrets belong in credentials. Some users put them into a URL or an argument anyway, so this module hides everything there that
//! looks like one.

use toml::Value;
use visiond_system::redact::{MASK, redact, redact_arguments};

use super::kinds::quote;
use super::schema::{Entries, Written};

/// Replaces values in `entries` that look like secrets with [`MASK`].
pub fn mask(entries: &mut Entries) {
    // These keys name a credential or a certificate, not a secret, so they stay visible.
    for (_, written) in
        entries.iter_mut().filter(|(key, _)| !matches!(*key, "token" | "login" | "credentials" | "fingerprint"))
    {
        match written {
            Written::Table(entries) => mask(entries),
            Written::Tables(all) => all.iter_mut().for_each(mask),
            Written::Value(text) => match text.parse() {
                Ok(value) => {
                    let masked = mask_value(&value);
                    if masked != value {
                        *text = masked.to_string();
                    }
                }
                // Values that cannot be parsed cannot be searched.
                Err(_) => *text = quote(MASK),
            },
        }
    }
}

fn mask_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(redact(text)),
        Value::Array(items) => {
            let arguments: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            Value::Array(match arguments {
                Some(arguments) => redact_arguments(arguments).into_iter().map(Value::String).collect(),
                None => items.iter().map(mask_value).collect(),
            })
        }
        Value::Table(table) => Value::Table(table.iter().map(|(key, item)| (key.clone(), mask_value(item))).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use crate::types::{Config, SourceConfig};

    #[test]
    fn secrets_in_urls_and_arguments_are_hidden_and_nothing_else() {
        let text = r#"
            [http]
            token = "http-token"
            [[model]]
            name = "n"
            path = "n.onnx"
            [[camera]]
            name = "a"
            source = { type = "video", url = "rtsp://10.0.0.1:554/1", login = "gate-login" }
            [[camera]]
            name = "b"
            source = { type = "video", url = "rtsp://admin:pa/ss@10.0.0.1/1" }
            [[camera]]
            name = "c"
            source = { type = "video", url = "https://host/a.m3u8?token=hush&x=1" }
            [[camera]]
            name = "d"
            source = { type = "video", url = "/films/a b.mp4", input_args = ["-headers", "Authorization: Basic hush", "-rtsp_transport", "tcp"] }
            [[camera]]
            name = "e"
            source = { type = "command", command = ["gst", "rtspsrc location=rtsp://u:hush@h/1", "user-pw=hush", "--password", "hush", "-u", "admin:hush", "fdsink"] }
            [[camera]]
            name = "f"
            source = { type = "rtsp", url = "rtsp://10.0.0.1/1", preview_url = "rtsp://admin:hush@10.0.0.1/2?pwd=hush" }
            [[sink]]
            type = "mqtt"
            url = "mqtt://broker"
            login = "/etc/visiond/login"
            [[sink]]
            type = "nats"
            url = ["nats://broker"]
            credentials = "nats"
        "#;
        let config = Config::parse(text, Path::new("v.toml")).unwrap();
        let shown = config.to_toml_without_secrets();
        assert!(!shown.contains("hush") && !shown.contains("pa/ss"), "{shown}");
        let mut expected = config.clone();
        let url = |config: &mut Config, camera: usize, shown: &str| {
            let SourceConfig::Video(video) = &mut config.cameras[camera].source else { panic!("a video") };
            video.url = shown.to_owned();
        };
        url(&mut expected, 1, "rtsp://***@10.0.0.1/1");
        url(&mut expected, 2, "https://host/a.m3u8?token=***");
        let SourceConfig::Video(video) = &mut expected.cameras[3].source else { panic!("a video") };
        video.input_args[1] = "Authorization: ***".to_owned();
        let SourceConfig::Command(command) = &mut expected.cameras[4].source else { panic!("a command") };
        command.command =
            ["gst", "rtspsrc location=rtsp://***@h/1", "user-pw=***", "--password", "***", "-u", "***", "fdsink"]
                .map(str::to_owned)
                .into();
        let SourceConfig::Rtsp(rtsp) = &mut expected.cameras[5].source else { panic!("an RTSP camera") };
        rtsp.preview_url = Some("rtsp://***@10.0.0.1/2?pwd=***".to_owned());
        assert_eq!(Config::parse(&shown, Path::new("v.toml")).unwrap(), expected);
    }
}
