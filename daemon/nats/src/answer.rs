//! What JetStream answers.

use std::fmt;

use serde::Deserialize;

use crate::shorten;

/// Why JetStream refuses a request or a message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Refusal {
    /// Like the status of HTTP.
    pub code: u64,
    /// What JetStream's documents list.
    pub err_code: u64,
    /// JetStream's words.
    pub description: String,
}

impl Default for Refusal {
    fn default() -> Self {
        Self { code: 0, err_code: 0, description: "no reason given".to_owned() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {}, error code {})", shorten(&self.description), self.code, self.err_code)
    }
}

// Error codes of JetStream.
/// There is no such stream.
pub const STREAM_NOT_FOUND: u64 = 10059;
/// A stream of this name has another configuration.
pub const STREAM_NAME_EXIST: u64 = 10058;
/// JetStream is off on this server.
pub const NOT_ENABLED: u64 = 10076;
/// JetStream is off for this account.
pub const NOT_ENABLED_FOR_ACCOUNT: u64 = 10039;
/// The message exceeds the stream's `max_msg_size`.
pub const TOO_LARGE: u64 = 10054;
/// The subject's last message is not the expected one.
pub const WRONG_LAST_SEQUENCE: [u64; 2] = [10071, 10164];
/// The server that answers does not lead, or still stores the first copy of this message.
const TEMPORARY: [u64; 2] = [10009, 10158];
/// Codes of status 503 that waiting does not help: no memory or disk for JetStream, no such capability, no room in the stream.
const LASTING: [u64; 5] = [10023, 10028, NOT_ENABLED_FOR_ACCOUNT, NOT_ENABLED, 10077];

impl Refusal {
    /// Returns whether the cluster may fulfil the request a moment later, when it has elected its leaders.
    pub fn is_temporary(&self) -> bool {
        TEMPORARY.contains(&self.err_code) || (self.code == 503 && !LASTING.contains(&self.err_code))
    }
}

/// Returns whether JetStream has fulfilled the request; `None` if the answer does not have JetStream's form.
pub fn api_answer(payload: &[u8]) -> Option<Result<(), Refusal>> {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<Refusal>,
    }
    let Answer { error } = serde_json::from_slice(payload).ok()?;
    Some(error.map_or(Ok(()), Err))
}

/// Why a stream has not accepted a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
    /// JetStream's words.
    pub reason: String,
    /// The stream can never accept it.
    pub is_final: bool,
}

impl From<String> for Rejection {
    fn from(reason: String) -> Self {
        Self { reason, is_final: false }
    }
}

/// Returns why an answer does not acknowledge a message.
///
/// # Errors
/// If it does not.
pub fn acknowledgement(payload: &[u8]) -> Result<(), Rejection> {
    #[derive(Deserialize)]
    struct Acknowledgement {
        error: Option<Refusal>,
        stream: Option<String>,
    }
    match serde_json::from_slice(payload) {
        Ok(Acknowledgement { error: Some(refusal), .. }) => {
            Err(Rejection { reason: refusal.to_string(), is_final: refusal.err_code == TOO_LARGE })
        }
        Ok(Acknowledgement { error: None, stream: Some(_) }) => Ok(()),
        _ => Err("its answer is not an acknowledgement".to_owned().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_of_a_stream_acknowledges_a_message() {
        let told = |payload: &str| acknowledgement(payload.as_bytes()).map_err(|rejection| rejection.reason);
        assert_eq!(told(r#"{"stream":"visiond","seq":7,"duplicate":true}"#), Ok(()));
        let refused =
            r#"{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},"seq":0}"#;
        assert_eq!(told(refused), Err("expected stream does not match (code 400, error code 10060)".to_owned()));
        assert_eq!(told(r#"{"error":{}}"#), Err("no reason given (code 0, error code 0)".to_owned()));
        for other in ["", "{}", "[]", "+ACK", r#"{"seq":7}"#] {
            assert_eq!(told(other), Err("its answer is not an acknowledgement".to_owned()), "{other}");
        }
    }
}
