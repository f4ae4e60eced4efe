//! `GET /metrics` and `GET /api/v1/log?after=`: what the daemon tells of itself besides its status.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use visiond_system::logging::tail;

use super::State;
use super::errors::Problem;
use crate::observe::prometheus;

/// Which lines are asked for.
#[derive(Deserialize)]
struct Lines {
    #[serde(default)]
    after: u64,
}

/// The routes.
pub fn routes() -> Router<State> {
    Router::new().route("/metrics", get(metrics)).route("/api/v1/log", get(log))
}

async fn metrics(Shared(state): Shared<State>) -> Response {
    let page = prometheus::render(&state.observer.observe());
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], page).into_response()
}

async fn log(lines: Result<Query<Lines>, QueryRejection>) -> Response {
    match lines {
        Ok(Query(Lines { after })) => Json(tail::after(after)).into_response(),
        Err(_) => Problem::new(StatusCode::BAD_REQUEST, "`after` is the number of a line, 0 or more").into_response(),
    }
}
