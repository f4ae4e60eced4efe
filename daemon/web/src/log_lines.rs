//! `GET /api/v1/log?after=`: the newest lines of the daemon's log.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use visiond_system::logging::tail;

use crate::errors::Problem;
use crate::state::State;

/// The query's parameters.
#[derive(Deserialize)]
struct Lines {
    /// The number of the last line that the client has.
    #[serde(default)]
    after: u64,
}

/// Returns the route.
pub fn routes() -> Router<State> {
    Router::new().route("/api/v1/log", get(log))
}

async fn log(lines: Result<Query<Lines>, QueryRejection>) -> Response {
    match lines {
        Ok(Query(Lines { after })) => Json(tail::after(after)).into_response(),
        Err(_) => Problem::new(StatusCode::BAD_REQUEST, "`after` must be a line number, 0 or more").into_response(),
    }
}
