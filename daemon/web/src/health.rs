//! Whether the daemon lives and is ready, for whoever supervises it. Answered without a token, but then without names.

use axum::Router;
use axum::extract::{Extension, State as Extract};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::errors::Problem;
use crate::guard::Trusted;
use crate::state::State;

/// `/healthz` and `/readyz`.
pub fn routes() -> Router<State> {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz))
}

/// The process lives and serves.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Every lane that can start had its first frame.
async fn readyz(Extract(state): Extract<State>, Extension(Trusted(trusted)): Extension<Trusted>) -> Response {
    let reasons = state.observer.not_ready();
    if reasons.is_empty() {
        return "ready\n".into_response();
    }
    let why = if trusted { reasons.join("; ") } else { "a lane has had no frame yet".to_owned() };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}
