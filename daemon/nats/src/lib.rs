//! A client of NATS: servers, logins, TLS and the protocol.
//!
//! The NATS sink publishes over it.
//!
//! visiond has its own client. The available ones reconnect by themselves, send what they still hold before the messages that
//! were lost with the connection, and buffer what a server sends without a bound.

pub mod answer;
pub mod auth;
pub mod connect;
pub mod options;
pub mod protocol;
pub mod wire;

pub use options::Options;

/// The longest text of a broker that visiond repeats, in characters.
const REPEATED_CHARS: usize = 200;

/// Cuts a broker's text for the log.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(REPEATED_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
