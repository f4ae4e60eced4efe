//! `POST /api/v1/trace?seconds=`: what every thread does with every frame, recorded while the answer is waited for.

use std::time::Duration;

use axum::Router;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use visiond_flow::trace::{self, MOST_SECONDS};

use crate::errors::Problem;
use crate::state::State;

/// What is recorded where nobody says how long.
const SECONDS: u64 = 5;

/// What may be said.
#[derive(Deserialize)]
struct Wanted {
    seconds: Option<u64>,
}

/// The route.
pub fn routes() -> Router<State> {
    Router::new().route("/api/v1/trace", post(record))
}

async fn record(wanted: Result<Query<Wanted>, QueryRejection>) -> Response {
    let seconds = wanted.map(|Query(wanted)| wanted.seconds.unwrap_or(SECONDS));
    let Some(seconds) = seconds.ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds)) else {
        let detail = format!("`seconds` is a whole number from 1 to {MOST_SECONDS}");
        return Problem::new(StatusCode::BAD_REQUEST, detail).into_response();
    };
    let recording = match trace::start() {
        Ok(recording) => recording,
        Err(busy) => return Problem::new(StatusCode::CONFLICT, busy.to_string()).into_response(),
    };
    // Who asks and goes away takes the recording along.
    sleep(Duration::from_secs(seconds)).await;
    let trace = recording.finish();
    // Some MB of text are not for the thread that serves everybody.
    let text = spawn_blocking(move || {
        let mut text = Vec::new();
        trace.write(&mut text).map(|()| text)
    });
    match text.await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        // Writing to memory does not fail, and a panic was logged by the hook.
        Ok(Err(_)) | Err(_) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the trace's text could not be made").into_response()
        }
    }
}
