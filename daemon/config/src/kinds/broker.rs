//! URLs of brokers, and MQTT topics.

use super::{Inline, quote};
use crate::kinds::text::filled;
use crate::schema::{At, Context, Item};

/// The kind of broker URLs, without user and password.
#[derive(Debug)]
pub struct Broker {
    schemes: &'static [&'static str],
}

/// Returns the kind of URLs with one of these schemes, a host and a port, and nothing else.
pub fn broker(schemes: &'static [&'static str]) -> Broker {
    Broker { schemes }
}

/// Splits a broker URL into scheme, host and port; returns `None` if it has any other part.
pub fn split_broker(url: &str) -> Option<(&str, &str, Option<u16>)> {
    let (scheme, rest) = url.split_once("://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    let fine = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    let port = match port {
        None => None,
        Some(port) => Some(port.parse().ok().filter(|&port| port != 0)?),
    };
    (!host.is_empty() && host.chars().all(fine)).then_some((scheme, host, port))
}

impl Inline for Broker {
    type Value = String;

    fn describe(&self) -> String {
        let urls: Vec<_> = self.schemes.iter().map(|scheme| format!("{scheme}://HOST:PORT")).collect();
        format!("a URL {}", urls.join(" or "))
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<String> {
        let text = filled(item).unwrap_or_default();
        if text.split_once("://").is_some_and(|(_, rest)| rest.contains('@')) {
            context.wrong(item, at, "contains a user, which everyone who can read this file would see: use `login`");
            return None;
        }
        match split_broker(text) {
            Some((scheme, ..)) if self.schemes.contains(&scheme) => Some(text.to_owned()),
            _ => self.refuse(item, at, context, ""),
        }
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}

/// The kind of topic prefixes.
#[derive(Debug)]
pub struct Topic;

/// Returns the kind of topic prefixes: levels separated by `/`.
pub fn topic() -> Topic {
    Topic
}

impl Inline for Topic {
    type Value = String;

    fn describe(&self) -> String {
        "a topic: words with / between them, without spaces, #, + and $".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<String> {
        let wrong = |c: char| c.is_control() || c.is_whitespace() || "#+$".contains(c);
        match filled(item) {
            Some(text)
                if text.len() <= 256 && text.split('/').all(|level| !level.is_empty() && !level.contains(wrong)) =>
            {
                Some(text.to_owned())
            }
            _ => self.refuse(item, at, context, ""),
        }
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brokers_url_is_scheme_host_and_port() {
        assert_eq!(split_broker("mqtt://localhost:1883"), Some(("mqtt", "localhost", Some(1883))));
        assert_eq!(split_broker("mqtts://10.0.0.5/"), Some(("mqtts", "10.0.0.5", None)));
        assert_eq!(split_broker("mqtt://[fd00::1]:1884"), Some(("mqtt", "fd00::1", Some(1884))));
        for wrong in ["localhost:1883", "mqtt://", "mqtt://host:0", "mqtt://host:99999", "mqtt://host/x", "mqtt://[::1"]
        {
            assert_eq!(split_broker(wrong), None, "{wrong}");
        }
    }
}
