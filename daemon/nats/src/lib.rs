//! A client of NATS: the connection, and the key-value buckets and object stores of JetStream.
//!
//! The NATS sink uses [`connect`] and [`wire`], and publishes on its own. Everything else goes through [`client::Client`], which
//! repeats a request until it is answered, over the same or another server of the cluster.
//!
//! visiond has its own client. The available ones reconnect by themselves, send what they still hold before the messages that
//! were lost with the connection, and buffer what a server sends without a bound.

pub mod answer;
pub mod auth;
pub mod client;
pub mod connect;
pub mod consumer;
pub mod error;
pub mod kv;
pub mod object;
pub mod options;
pub mod protocol;
mod stream;
pub mod wire;

pub use client::Client;
pub use error::NatsError;
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
