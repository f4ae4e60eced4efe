//! The bytes of the NATS client protocol, with limits on what a server may send.

use std::fmt::Write as _;

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::shorten;

/// The longest line accepted from a server, in bytes. INFO of a large cluster takes a few KiB.
const LINE_BYTES: usize = 64 << 10;

/// The client's question whether the server is still there.
pub const PING: &[u8] = b"PING\r\n";
/// The answer to the server's PING.
pub const PONG: &[u8] = b"PONG\r\n";

/// INFO: the part of a server's announcement that visiond needs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// The largest message that the server accepts, in bytes with its headers.
    pub max_payload: usize,
    /// The nonce that a client with an nkey must sign.
    pub nonce: String,
    /// Whether the server accepts only encrypted connections.
    pub tls_required: bool,
}

impl Default for ServerInfo {
    /// The defaults of nats-server.
    fn default() -> Self {
        Self { max_payload: 1 << 20, nonce: String::new(), tls_required: false }
    }
}

/// CONNECT: starts a session.
#[derive(Serialize)]
pub struct Connect {
    /// Whether to acknowledge each line with `+OK`.
    pub verbose: bool,
    /// Whether the server checks subjects strictly.
    pub pedantic: bool,
    /// Whether this client requires TLS.
    pub tls_required: bool,
    /// The connection's name, which the server shows.
    pub name: String,
    /// The client's language.
    pub lang: &'static str,
    /// The client's version.
    pub version: &'static str,
    /// 1: INFO may come again.
    pub protocol: u8,
    /// Whether messages may have headers.
    pub headers: bool,
    /// Whether the server answers with status 503 if a message has no receiver.
    pub no_responders: bool,
    /// Who the client is.
    #[serde(flatten)]
    pub proof: Proof,
}

/// The members of CONNECT that authenticate the device.
#[derive(Default, Serialize)]
pub struct Proof {
    /// The user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// A token in place of a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<String>,
    /// The JWT of a credentials file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt: Option<String>,
    /// The public key of an nkey without a JWT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey: Option<String>,
    /// The signed nonce in Base64 for URLs, without padding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sig: Option<String>,
}

/// An operation of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerOp {
    /// INFO.
    Info(ServerInfo),
    /// MSG or HMSG.
    Message(ServerMessage),
    /// PING, which requires a PONG.
    Ping,
    /// PONG.
    Pong,
    /// +OK.
    Ok,
    /// -ERR, without its quotes.
    Error(String),
}

/// A message from the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerMessage {
    /// Its subject: where the server sent it, or where it was stored.
    pub subject: String,
    /// The number of the subscription that it is for.
    pub subscription: u64,
    /// Where an answer to it goes; JetStream puts a message's position there.
    pub reply: Option<String>,
    /// The status in its headers; 503: the request has no receiver.
    pub status: Option<u16>,
    /// The headers as sent, `NATS/1.0` included; empty if there are none.
    pub headers: Bytes,
    /// The contents.
    pub payload: Bytes,
}

impl ServerMessage {
    /// Returns the last value of a header. A server writes its own after those that were stored with a message, which anybody may have
    /// chosen.
    pub fn last_header(&self, name: &str) -> Option<&str> {
        let text = std::str::from_utf8(&self.headers).ok()?;
        let lines = text.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(found, _)| found.trim().eq_ignore_ascii_case(name)).last().map(|(_, value)| value.trim())
    }

    /// Returns the value of a header; names match without case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let text = std::str::from_utf8(&self.headers).ok()?;
        let mut lines = text.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns the text after the status, such as `No Messages`.
    pub fn status_text(&self) -> String {
        let line = self.headers.split(|&byte| byte == b'\r' || byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let text = line.trim_start_matches("NATS/1.0").trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        shorten(text.trim())
    }
}

/// Takes the next operation out of `input`; `None` if it is incomplete.
///
/// # Errors
/// If the server sends something that visiond does not accept, at the latest when `input` holds `most_bytes`, the largest
/// message, and a line.
pub fn decode(input: &mut BytesMut, most_bytes: u64) -> Result<Option<ServerOp>, String> {
    let searched = &input[..input.len().min(LINE_BYTES)];
    let Some(end) = searched.iter().position(|&byte| byte == b'\n') else {
        let too_long = searched.len() == LINE_BYTES;
        return if too_long { Err("the server sent a line of more than 64 KiB".to_owned()) } else { Ok(None) };
    };
    let text = std::str::from_utf8(&input[..end]).map_err(|_| "the server sent a line that is not text".to_owned())?;
    let unknown = || format!("the server sent {:?}, which is not NATS", shorten(text.trim_end()));
    let (verb, rest) = text.trim_end().split_once([' ', '\t']).unwrap_or((text.trim_end(), ""));
    let op = match verb.to_ascii_uppercase().as_str() {
        "PING" => ServerOp::Ping,
        "PONG" => ServerOp::Pong,
        "+OK" => ServerOp::Ok,
        "-ERR" => ServerOp::Error(shorten(rest.trim().trim_matches('\''))),
        "INFO" => ServerOp::Info(serde_json::from_str(rest).map_err(|_| unknown())?),
        verb @ ("MSG" | "HMSG") => {
            let head = MessageHead::parse(rest, verb == "HMSG").ok_or_else(unknown)?;
            if head.bytes > most_bytes {
                let (bytes, most) = (head.bytes, most_bytes);
                return Err(format!("the server announced a message of {bytes} bytes; visiond accepts {most}"));
            }
            // The message and a line feed follow.
            let (header_bytes, bytes) = (head.header_bytes as usize, head.bytes as usize);
            if input.len() < end + 1 + bytes + 2 {
                return Ok(None);
            }
            let (subject, subscription) = (head.subject.to_owned(), head.subscription);
            let reply = head.reply.map(str::to_owned);
            input.advance(end + 1);
            let headers = input.split_to(header_bytes).freeze();
            let payload = input.split_to(bytes - header_bytes).freeze();
            if !input.starts_with(b"\r\n") {
                return Err("the server sent a message that is longer than announced".to_owned());
            }
            input.advance(2);
            let status = status(&headers);
            return Ok(Some(ServerOp::Message(ServerMessage {
                subject,
                subscription,
                reply,
                status,
                headers,
                payload,
            })));
        }
        _ => return Err(unknown()),
    };
    input.advance(end + 1);
    Ok(Some(op))
}

/// The words after MSG or HMSG: `SUBJECT SID [REPLY] [HEADER BYTES] BYTES`.
struct MessageHead<'l> {
    subject: &'l str,
    subscription: u64,
    reply: Option<&'l str>,
    header_bytes: u64,
    /// With the headers.
    bytes: u64,
}

impl<'l> MessageHead<'l> {
    fn parse(line: &'l str, has_headers: bool) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (subject, subscription) = (words.next()?, words.next()?.parse().ok()?);
        let bytes = words.next_back()?.parse().ok()?;
        let header_bytes = if has_headers { words.next_back()?.parse().ok()? } else { 0 };
        // At most a reply subject is left.
        let reply = words.next();
        (header_bytes <= bytes && words.next().is_none()).then_some(Self {
            subject,
            subscription,
            reply,
            header_bytes,
            bytes,
        })
    }
}

/// Returns the status of a message's headers: `NATS/1.0 503`.
fn status(headers: &[u8]) -> Option<u16> {
    let line = headers.split(|&byte| byte == b'\r' || byte == b'\n').next()?;
    std::str::from_utf8(line).ok()?.strip_prefix("NATS/1.0")?.split_ascii_whitespace().next()?.parse().ok()
}

/// Appends PUB, or HPUB if there are headers, for a message whose answer goes to `reply`.
pub fn publish(subject: &str, reply: &str, headers: &str, payload: &[u8], out: &mut BytesMut) {
    let bytes = headers.len() + payload.len();
    let _ = match headers.len() {
        0 => write!(out, "PUB {subject} {reply} {bytes}\r\n"),
        header_bytes => write!(out, "HPUB {subject} {reply} {header_bytes} {bytes}\r\n"),
    };
    for part in [headers.as_bytes(), payload, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const MOST: u64 = 1 << 20;

    fn decoded(bytes: &[u8]) -> Result<Option<ServerOp>, String> {
        decode(&mut BytesMut::from(bytes), MOST)
    }

    #[test]
    fn each_operation_is_read_once_it_is_whole() {
        let message = |reply: Option<&str>, headers: &'static [u8], payload: &'static [u8]| {
            let (subject, reply) = ("_INBOX.x.7".to_owned(), reply.map(str::to_owned));
            let (headers, payload) = (Bytes::from_static(headers), Bytes::from_static(payload));
            ServerOp::Message(ServerMessage {
                subject,
                subscription: 1,
                reply,
                status: status(&headers),
                headers,
                payload,
            })
        };
        let info = ServerInfo { max_payload: 1000, nonce: "n".to_owned(), tls_required: true };
        for (bytes, op) in [
            (&b"PING\r\n"[..], ServerOp::Ping),
            (b"pong\r\n", ServerOp::Pong),
            (b"+OK\r\n", ServerOp::Ok),
            (b"-ERR 'Unknown Subject'\r\n", ServerOp::Error("Unknown Subject".to_owned())),
            (b"INFO {\"max_payload\":1000,\"nonce\":\"n\",\"tls_required\":true,\"x\":[]} \r\n", ServerOp::Info(info)),
            (b"INFO {}\r\n", ServerOp::Info(ServerInfo::default())),
            (b"MSG _INBOX.x.7 1 2\r\n{}\r\n", message(None, b"", b"{}")),
            (b"MSG _INBOX.x.7 1  other 2\r\n\r\n\r\n", message(Some("other"), b"", b"\r\n")),
            (b"HMSG _INBOX.x.7 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", message(None, b"NATS/1.0 503\r\n\r\n", b"")),
            (
                b"HMSG _INBOX.x.7 1 other 18 20\r\nNATS/1.0\r\na: b\r\n\r\n{}\r\n",
                message(Some("other"), b"NATS/1.0\r\na: b\r\n\r\n", b"{}"),
            ),
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(decoded(&bytes[..cut]), Ok(None), "{:?}", String::from_utf8_lossy(&bytes[..cut]));
            }
            let mut input = BytesMut::from(&[bytes, b"PI"].concat()[..]);
            assert_eq!(decode(&mut input, MOST), Ok(Some(op)));
            assert_eq!(&input[..], b"PI");
        }
    }

    #[test]
    fn what_is_not_nats_or_too_large_is_an_error_that_names_it() {
        for (bytes, words) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], "\"HTTP/1.1 400 Bad Request\", which is not NATS"),
            (b"INFO {\r\n", "which is not NATS"),
            (b"MSG x 1\r\n", "which is not NATS"),
            (b"MSG x 1 a b 2\r\n", "which is not NATS"),
            (b"MSG x 1 -2\r\n", "which is not NATS"),
            (b"MSG x y 2\r\n", "which is not NATS"),
            (b"MSG x 1 99999999999999999999999\r\n", "which is not NATS"),
            (b"HMSG x 1 3 2\r\n", "which is not NATS"),
            (b"MSG x 1 2\r\nabcd", "longer than announced"),
            (b"MSG x 1 1048577\r\n", "announced a message of 1048577 bytes"),
            (b"HMSG x 1 1 18446744073709551615\r\n", "announced a message of 18446744073709551615 bytes"),
            (&[b'x'; LINE_BYTES], "a line of more than 64 KiB"),
            (&[0xff, b'\n'], "not text"),
        ] {
            let error = decoded(bytes).unwrap_err();
            assert!(error.contains(words) && error.len() < 300, "{error}");
        }
        assert_eq!(decoded(&[b'x'; LINE_BYTES - 1]), Ok(None));
    }

    #[test]
    fn a_message_is_written_with_its_lengths() {
        let mut out = BytesMut::new();
        publish("a.b", "_INBOX.x.1", "NATS/1.0\r\na: b\r\n\r\n", b"{}", &mut out);
        publish("a.b", "_INBOX.x.2", "", b"{}", &mut out);
        assert_eq!(
            &out[..],
            b"HPUB a.b _INBOX.x.1 18 20\r\nNATS/1.0\r\na: b\r\n\r\n{}\r\nPUB a.b _INBOX.x.2 2\r\n{}\r\n"
        );
    }

    #[test]
    fn headers_are_found_by_their_names_without_case() {
        let headers = Bytes::from_static(b"NATS/1.0 404 No Messages\r\nNats-Sequence: 7\r\nA:b: c\r\n\r\n");
        let message = ServerMessage { headers, ..ServerMessage::default() };
        assert_eq!((message.header("nats-sequence"), message.header("A")), (Some("7"), Some("b: c")));
        assert_eq!((message.header("Nats"), message.status_text().as_str()), (None, "No Messages"));
        assert_eq!(
            (ServerMessage::default().header("a"), ServerMessage::default().status_text()),
            (None, String::new())
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_are_held_without_bound(
            bytes in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(&b"MSGHINFO +OK-ERR 0123456789\r\n{}\""[..])], 0..200,
            ),
            start in prop::sample::select(&["", "MSG x 1 ", "HMSG x 1 ", "INFO {", "-ERR "][..]),
        ) {
            let mut input = BytesMut::from(start);
            input.extend_from_slice(&bytes);
            while let Ok(Some(op)) = decode(&mut input, MOST) {
                if let ServerOp::Message(message) = op {
                    let _ = (message.header("a"), message.status_text());
                }
            }
        }
    }
}
