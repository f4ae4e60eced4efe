//! `/api/v1/`: what is, as JSON, and reloads. Documented in docs/openapi.json, which is served, too.

use axum::extract::{Path, State as Extract};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use crate::errors::{Problem, no_camera};
use crate::masked;
use crate::state::State;
use crate::status::report::{CameraFacts, StatusReport};

/// What the server answers, in OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// Everything below `/api/v1/` that is no stream.
pub fn routes() -> Router<State> {
    Router::new()
        .route("/api/v1/status", get(status))
        .route("/api/v1/cameras", get(cameras))
        .route("/api/v1/cameras/{name}", get(camera))
        .route("/api/v1/cameras/{name}/detections", get(detections_of))
        .route("/api/v1/detections", get(detections))
        .route("/api/v1/config", get(config))
        .route("/api/v1/reload", post(reload))
        .route("/api/v1/openapi.json", get(openapi))
}

async fn status(Extract(state): Extract<State>) -> Json<StatusReport> {
    Json(state.observer.observe())
}

async fn cameras(Extract(state): Extract<State>) -> Json<Vec<CameraFacts>> {
    Json(state.observer.observe().cameras)
}

async fn camera(Extract(state): Extract<State>, Path(name): Path<String>) -> Result<Json<CameraFacts>, Problem> {
    let cameras = state.observer.observe().cameras;
    cameras.into_iter().find(|camera| camera.name == name).map(Json).ok_or_else(|| no_camera(&name))
}

/// The newest message of a camera, as sinks get it.
async fn detections_of(Extract(state): Extract<State>, Path(name): Path<String>) -> Result<Response, Problem> {
    if !names(&state).any(|camera| camera == name) {
        return Err(no_camera(&name));
    }
    let latest = state.live.messages().latest(&name);
    let latest = latest.ok_or_else(|| Problem::not_found(format!("camera {name} has published nothing yet")))?;
    Ok(json(Bytes::copy_from_slice(latest.line().trim_ascii_end())))
}

/// The newest message of each camera that has published one.
async fn detections(Extract(state): Extract<State>) -> Response {
    let mut list = BytesMut::from(&b"["[..]);
    for latest in names(&state).filter_map(|camera| state.live.messages().latest(&camera)) {
        if list.len() > 1 {
            list.put_u8(b',');
        }
        list.put(latest.line().trim_ascii_end());
    }
    list.put_u8(b']');
    json(list.freeze())
}

/// The cameras that run.
fn names(state: &State) -> impl Iterator<Item = String> + use<> {
    let lanes = state.live.lanes();
    lanes.into_iter().flat_map(|lane| lane.cameras).map(|camera| camera.name.to_string())
}

/// What is in force, with every default written out and without secrets.
async fn config(Extract(state): Extract<State>) -> Result<Json<Value>, Problem> {
    let unreadable = |error| {
        let why = format!("the configuration in force cannot be told: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why)
    };
    let mut config: Value = toml::from_str(&state.service.config().to_toml()).map_err(unreadable)?;
    masked::mask(&mut config);
    Ok(Json(config))
}

/// Has the configuration read again, and waits for what comes of it.
async fn reload(Extract(state): Extract<State>) -> Result<Response, Problem> {
    let outcome = state.reloads.request().await;
    let ending = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending");
    let outcome = outcome.map_err(ending)?;
    if outcome.applied {
        return Ok(Json(outcome).into_response());
    }
    let why = outcome.error.clone().unwrap_or_else(|| "refused".to_owned());
    Err(Problem::new(StatusCode::CONFLICT, why).with(serde_json::to_value(outcome).unwrap_or_default()))
}

async fn openapi() -> Response {
    json(Bytes::from_static(OPENAPI.as_bytes()))
}

fn json(text: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests;
