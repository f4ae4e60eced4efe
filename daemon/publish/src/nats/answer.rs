//! What JetStream answers.

use std::fmt;

use serde::Deserialize;

use crate::broker::shorten;

/// Why JetStream refuses a request or a message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Refusal {
    code: u64,
    pub err_code: u64,
    description: String,
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

/// Returns whether JetStream has fulfilled the request; `None` if the answer does not have JetStream's form.
pub fn api_answer(payload: &[u8]) -> Option<Result<(), Refusal>> {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<Refusal>,
    }
    let Answer { error } = serde_json::from_slice(payload).ok()?;
    Some(error.map_or(Ok(()), Err))
}

/// The error code for a message that exceeds the stream's `max_msg_size`.
const TOO_LARGE: u64 = 10054;

/// Why a stream has not accepted a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
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
