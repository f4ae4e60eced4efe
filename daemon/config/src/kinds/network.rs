//! Addresses to listen on, host names, brokers, MQTT topics, NATS subjects, URLs and certificates of cameras.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use visiond_system::broker_url::split_broker;

use super::text::{no_variable, resolve_without_home};
use super::{Refusal, filled, quote, string, value};
use crate::schema::KeyKind;

/// Address that a server listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An IP address with its port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Returns whether only this machine can reach the address.
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Returns the kind of addresses with a port, or paths of Unix sockets. A relative path starts at the folder of the file.
pub fn address() -> KeyKind<Address> {
    let description = "an address such as \"127.0.0.1:8790\", \"[::1]:8790\" or \"unix:/run/visiond/http.sock\"";
    value(
        description,
        |address: &Address| quote(&address.to_string()),
        |item, context| {
            let text = filled(item)?;
            if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
                return resolve_without_home(context.base, path).map(Address::Unix);
            }
            text.parse().map(Address::Tcp).map_err(|_| {
                let proposal = match (text.parse::<IpAddr>(), text.rsplit_once(':')) {
                    (Ok(ip), _) => SocketAddr::new(ip, 8790).to_string(),
                    (_, Some(("localhost", port))) if port.parse::<u16>().is_ok() => format!("127.0.0.1:{port}"),
                    _ if text.starts_with('/') => format!("unix:{text}"),
                    _ => return "".into(),
                };
                format!(": write {}", quote(&proposal)).into()
            })
        },
    )
}

/// Returns the kind of host names, without a port.
pub fn host() -> KeyKind<String> {
    string("a host's name without a port, such as \"cameras.example.org\"", |item, _| {
        let is_host = |text: &&str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
        Ok(Some(filled(item)?).filter(is_host).ok_or("")?.to_ascii_lowercase())
    })
}

/// Returns the kind of URLs that consist of one of these schemes, a host and a port only.
pub fn broker(schemes: &'static [&'static str]) -> KeyKind<String> {
    let urls: Vec<_> = schemes.iter().map(|scheme| format!("{scheme}://HOST:PORT")).collect();
    string(format!("a URL {}", urls.join(" or ")), |item, _| {
        let text = filled(item)?;
        if text.split_once("://").is_some_and(|(_, rest)| rest.contains('@')) {
            let sentence = "contains a user, visible to everyone who can read this file: use `login`";
            return Err(Refusal::Sentence(sentence.to_owned()));
        }
        no_variable(text)?;
        let (scheme, ..) = split_broker(text).ok_or("")?;
        if schemes.contains(&scheme) { Ok(text.to_owned()) } else { Err("".into()) }
    })
}

/// Returns the kind of URLs of RTSP streams.
pub fn rtsp_url() -> KeyKind<String> {
    camera_url("a URL rtsp://HOST/PATH, rtsp://HOST:PORT/PATH, or with rtsps://", &["rtsp", "rtsps"])
}

/// Returns the kind of URLs of cameras that speak HTTP.
pub fn http_url() -> KeyKind<String> {
    camera_url("a URL http://HOST/PATH or https://HOST/PATH", &["http", "https"])
}

fn camera_url(description: &str, schemes: &'static [&'static str]) -> KeyKind<String> {
    string(description, move |item, _| {
        let text = filled(item)?;
        no_variable(text)?;
        let (scheme, rest) = text.split_once("://").ok_or("")?;
        let is_known = schemes.contains(&scheme.to_ascii_lowercase().as_str());
        let is_plain = text.chars().all(|c| !c.is_control() && !c.is_whitespace());
        if is_known && !rest.is_empty() && is_plain { Ok(text.to_owned()) } else { Err("".into()) }
    })
}

/// SHA-256 of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    /// Writes it as openssl and browsers do: `12:AB:...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02X}", if i == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl Fingerprint {
    /// Reads 64 hexadecimal digits, with or without colons between each two.
    pub fn parse(text: &str) -> Option<Self> {
        hexadecimal(text)?.try_into().ok().map(Self)
    }

    /// Returns the remedy for a text that is a different kind of fingerprint.
    pub fn remedy(text: &str) -> Option<&'static str> {
        hexadecimal(text).filter(|bytes| bytes.len() == 20).map(|_| {
            "that is a SHA-1, which anyone may forge: get the SHA-256 by `openssl s_client -connect HOST:PORT </dev/null | openssl \
             x509 -noout -fingerprint -sha256`"
        })
    }
}

/// Reads bytes as hexadecimal digits, with or without colons between each two.
fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let pairs: Vec<&[u8]> = if text.contains(':') {
        text.split(':').map(str::as_bytes).collect()
    } else {
        text.as_bytes().chunks(2).collect()
    };
    let byte = |pair: &&[u8]| {
        let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        if pair.len() == 2 { u8::try_from(digit(0)? << 4 | digit(1)?).ok() } else { None }
    };
    pairs.iter().map(byte).collect()
}

/// Returns the kind of fingerprints of certificates.
pub fn fingerprint() -> KeyKind<Fingerprint> {
    value(
        "the SHA-256 of a certificate: 64 hexadecimal digits, with or without colons",
        |fingerprint: &Fingerprint| quote(&fingerprint.to_string()),
        |item, _| {
            let text = filled(item)?.trim();
            Fingerprint::parse(text)
                .ok_or_else(|| Fingerprint::remedy(text).map_or("".into(), |more| format!(": {more}").into()))
        },
    )
}

/// Returns the kind of MQTT topic prefixes: levels separated by `/`.
pub fn topic() -> KeyKind<String> {
    string("a topic: words with / between them, without spaces, #, + and $", |item, _| {
        let wrong = |c: char| c.is_control() || c.is_whitespace() || "#+$".contains(c);
        let is_level = |level: &str| !level.is_empty() && !level.contains(wrong);
        let text = filled(item)?;
        if text.len() <= 256 && text.split('/').all(is_level) { Ok(text.to_owned()) } else { Err("".into()) }
    })
}

/// Returns the kind of NATS subjects: words separated by dots; {device} and {camera} are placeholders for names.
pub fn subject() -> KeyKind<String> {
    let description =
        "a subject: words with dots between them, without spaces, * and >; {device} and {camera} stand for names";
    string(description, |item, _| {
        let text = filled(item)?;
        // Subjects that begin with these are reserved for the server.
        let is_reserved = text.starts_with(['$', '_']);
        if text.len() <= 256 && text.split('.').all(is_word) && !is_reserved {
            Ok(text.to_owned())
        } else {
            Err("".into())
        }
    })
}

/// Returns whether `word` is a valid word of a subject once names replace its placeholders. Names have no special characters.
fn is_word(word: &str) -> bool {
    let rest = word.replace("{device}", "n").replace("{camera}", "n");
    !rest.is_empty() && rest.chars().all(|c| c.is_ascii_graphic() && !"*>{}".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_has_64_digits_with_or_without_colons() {
        let plain = "00ff".repeat(16);
        let expected = Fingerprint(std::array::from_fn(|i| if i % 2 == 0 { 0 } else { 255 }));
        assert_eq!(Fingerprint::parse(&plain), Some(expected));
        assert_eq!(Fingerprint::parse(&expected.to_string()), Some(expected));
        assert!(expected.to_string().starts_with("00:FF:00:FF:"));
        let wrong =
            [&plain[1..], &plain[2..], &format!("{plain}00"), &plain.replace('f', "g"), "", "00:ff", "0:0ff", "+0ä"];
        for wrong in wrong.into_iter().chain([&*format!("{}:0", &expected.to_string()[..92])]) {
            assert_eq!(Fingerprint::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn words_of_a_subject_hold_placeholders_and_nothing_that_servers_read_otherwise() {
        for word in ["visiond", "{device}", "cam-{camera}", "{device}_{camera}"] {
            assert!(is_word(word), "{word}");
        }
        for word in ["", "*", ">", "{name}", "{", "a b", "ü", "{device", "a>"] {
            assert!(!is_word(word), "{word}");
        }
    }
}
