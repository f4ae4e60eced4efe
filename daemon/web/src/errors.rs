//! Errors as `application/problem+json` (RFC 9457).

use axum::Json;
use axum::body::to_bytes;
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// The longest plain-text error that becomes a problem's detail.
const DETAIL_BYTES: usize = 4096;

/// An error answer: a status, a sentence, and optional members of its own.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    detail: String,
    more: Map<String, Value>,
}

impl Problem {
    /// Creates a problem; the detail says what to do.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), more: Map::new() }
    }

    /// Creates a problem with status 404.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Creates a problem with status 400.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Creates a problem with status 500.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    /// Adds the members of `more`; they do not replace the standard ones.
    pub fn with(mut self, more: Value) -> Self {
        if let Value::Object(more) = more {
            self.more.extend(more);
        }
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut members = self.more;
        members.insert("type".into(), json!("about:blank"));
        members.insert("title".into(), json!(self.status.canonical_reason().unwrap_or("Error")));
        members.insert("status".into(), json!(self.status.as_u16()));
        members.insert("detail".into(), json!(self.detail));
        (self.status, [(CONTENT_TYPE, "application/problem+json")], Json(members)).into_response()
    }
}

/// Creates the problem for a camera name that is not running.
pub fn no_camera(name: &str) -> Problem {
    let name: String = name.chars().take(64).collect();
    Problem::not_found(format!("no running camera has the name \"{name}\": see /api/v1/cameras"))
}

/// Turns a library's plain-text error into a problem.
pub async fn as_problem(answer: Response) -> Response {
    let status = answer.status();
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let has_own_format = kind.starts_with("application/") || kind.starts_with("text/html");
    if !(status.is_client_error() || status.is_server_error()) || has_own_format {
        return answer;
    }
    let (parts, body) = answer.into_parts();
    let text = to_bytes(body, DETAIL_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let detail = match (text.trim(), status) {
        ("", StatusCode::NOT_FOUND) => "no such path: see /api/v1/openapi.json",
        ("", StatusCode::METHOD_NOT_ALLOWED) => "method not allowed; see the Allow header",
        ("", StatusCode::INTERNAL_SERVER_ERROR) => "internal error, see the log of visiond: please report it",
        ("", _) => status.canonical_reason().unwrap_or("error"),
        (text, _) => text,
    };
    let mut problem = Problem::new(status, detail).into_response();
    for (name, value) in parts.headers {
        // Keeps headers with information of their own, such as Allow and Sec-WebSocket-Version.
        if let Some(name) = name.filter(|name| *name == ALLOW || name.as_str().starts_with("sec-")) {
            problem.headers_mut().insert(name, value);
        }
    }
    problem
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::from_slice;

    use super::*;

    /// Returns the media type and the body of a converted answer.
    fn answered(answer: impl IntoResponse) -> (String, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let answer = as_problem(answer.into_response()).await;
            let kind = answer.headers().get(CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap()).to_owned();
            (kind, to_bytes(answer.into_body(), 1 << 20).await.unwrap().to_vec())
        })
    }

    #[test]
    fn plain_errors_become_problems_and_everything_else_stays() {
        for status in [StatusCode::BAD_REQUEST, StatusCode::BAD_GATEWAY] {
            let (kind, body) = answered((status, "why"));
            assert_eq!(kind, "application/problem+json");
            let problem: Value = from_slice(&body).unwrap();
            assert_eq!((&problem["status"], &problem["detail"]), (&json!(status.as_u16()), &json!("why")));
        }
        let detail = |status: StatusCode| from_slice::<Value>(&answered(status).1).unwrap()["detail"].clone();
        assert_eq!(
            detail(StatusCode::INTERNAL_SERVER_ERROR),
            "internal error, see the log of visiond: please report it"
        );
        assert_eq!(detail(StatusCode::NOT_FOUND), "no such path: see /api/v1/openapi.json");
        assert_eq!(detail(StatusCode::GONE), "Gone");
        for kind in ["text/html; charset=utf-8", "application/json"] {
            let stays = answered((StatusCode::UNAUTHORIZED, [(CONTENT_TYPE, kind)], "own"));
            assert_eq!(stays, (kind.to_owned(), b"own".to_vec()));
        }
        assert_eq!(answered("ok").1, b"ok");
    }
}
