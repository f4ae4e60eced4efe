//! The handlers that answer with JSON: `/api/v1/`, `/healthz` and `/readyz`. docs/openapi.json describes them, and is itself
//! served.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use visiond_live::{RECENT_EVENTS, RuleKey};
use visiond_message::EventTotals;
use visiond_message::status::CameraStatus;
use visiond_service::reload::{Preview, Proposal};
use visiond_system::logging::tail;
use visiond_telemetry::metrics::cameras_of;
use visiond_telemetry::trace::{self, MOST_SECONDS};

use crate::errors::{Problem, no_camera};
use crate::guard::Trusted;
use crate::state::AppState;
use crate::status::report::StatusReport;

/// The description of the API, in OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// Length of a recording if the client does not set it.
const TRACE_SECONDS: u64 = 5;

/// `GET /readyz`: whether every lane that can start has had its first frame. Without a token, the answer has no names.
pub async fn ready(State(state): State<AppState>, Extension(Trusted(trusted)): Extension<Trusted>) -> Response {
    let reasons = state.status.not_ready();
    if reasons.is_empty() {
        return "ready\n".into_response();
    }
    let why = if trusted { reasons.join("; ") } else { "a lane has had no frame yet".to_owned() };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}

/// `GET /api/v1/status`
pub async fn status(State(state): State<AppState>) -> Json<StatusReport> {
    Json(state.status.observe())
}

/// `GET /api/v1/cameras`
pub async fn cameras(State(state): State<AppState>) -> Json<Vec<CameraStatus>> {
    Json(state.status.observe().cameras)
}

/// `GET /api/v1/cameras/{name}`
pub async fn camera(State(state): State<AppState>, Path(name): Path<String>) -> Result<Json<CameraStatus>, Problem> {
    let cameras = state.status.observe().cameras;
    cameras.into_iter().find(|camera| camera.name == name).map(Json).ok_or_else(|| no_camera(&name))
}

/// The parameters of a camera's newest message.
#[derive(Debug, Deserialize)]
pub struct DetectionsQuery {
    model: Option<String>,
}

/// `GET /api/v1/cameras/{name}/detections`: the newest message of a camera, as sent to sinks: of its first model, or of `model`.
pub async fn detections_of(
    State(state): State<AppState>,
    Path(name): Path<String>,
    query: Result<Query<DetectionsQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    if !names(&state).any(|camera| camera == name) {
        return Err(no_camera(&name));
    }
    let latest = match &query.model {
        Some(model) => {
            let mut all = state.live.messages().latest_of(&name).into_iter();
            let found = all.find(|published| published.frame().is_some_and(|message| message.model.name == *model));
            found.ok_or_else(|| format!("model {model} has published nothing about camera {name}: see its `models`"))
        }
        None => {
            let found = state.live.messages().latest(&name);
            found.ok_or_else(|| format!("camera {name} has published nothing yet"))
        }
    };
    let latest = latest.map_err(Problem::not_found)?;
    Ok(json(Bytes::copy_from_slice(latest.line().trim_ascii_end())))
}

/// `GET /api/v1/detections`: the newest message of each camera and model that has published one.
pub async fn detections(State(state): State<AppState>) -> Response {
    let mut list = BytesMut::from(&b"["[..]);
    for latest in names(&state).flat_map(|camera| state.live.messages().latest_of(&camera)) {
        if list.len() > 1 {
            list.put_u8(b',');
        }
        list.put(latest.line().trim_ascii_end());
    }
    list.put_u8(b']');
    json(list.freeze())
}

/// The parameters of `GET /api/v1/events`.
#[derive(Debug, Deserialize)]
pub struct EventsQuery {
    camera: Option<String>,
    kind: Option<String>,
    limit: Option<usize>,
}

/// The newest totals of a rule.
#[derive(Serialize)]
struct RuleTotals {
    camera: Arc<str>,
    rule: Arc<str>,
    kind: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Arc<str>>,
    #[serde(flatten)]
    totals: EventTotals,
}

impl RuleTotals {
    fn new((RuleKey { camera, rule, kind, to }, totals): (RuleKey, EventTotals)) -> Self {
        Self { camera, rule, kind, to, totals }
    }
}

/// `GET /api/v1/events`: the newest events, and the totals of each rule after its last one.
pub async fn events(
    State(state): State<AppState>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(EventsQuery { camera, kind, limit }) =
        query.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let limit = limit.unwrap_or(RECENT_EVENTS);
    if !(1..=RECENT_EVENTS).contains(&limit) {
        return Err(Problem::bad_request(format!("`limit` must be a whole number from 1 to {RECENT_EVENTS}")));
    }
    if let Some(unknown) = camera.as_deref().filter(|camera| state.live.find(camera).is_none()) {
        return Err(no_camera(unknown));
    }
    let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let recent = state.live.messages().events();
    let events = recent.newest(|event| is(&camera, &event.camera) && is(&kind, &event.kind));
    let totals = recent.totals().into_iter().filter(|(of, _)| is(&camera, &of.camera) && is(&kind, &of.kind));
    let totals: Vec<_> = totals.map(RuleTotals::new).collect();
    let totals = serde_json::to_vec(&totals).map_err(|error| Problem::internal(error.to_string()))?;
    let mut text = BytesMut::from(&br#"{"events":["#[..]);
    for (place, event) in events.iter().take(limit).enumerate() {
        if place > 0 {
            text.put_u8(b',');
        }
        text.put(event.line().trim_ascii_end());
    }
    text.put(&br#"],"totals":"#[..]);
    text.put(&totals[..]);
    text.put_u8(b'}');
    Ok(json(text.freeze()))
}

/// Returns the names of the cameras that run.
fn names(state: &AppState) -> impl Iterator<Item = String> + use<> {
    let lanes = state.live.lanes();
    let cameras: Vec<_> = cameras_of(&lanes).iter().map(|known| known.camera.name.to_string()).collect();
    cameras.into_iter()
}

/// `GET /api/v1/config`: the configuration in force, with every default, and `***` in place of values that look like secrets.
pub async fn config(State(state): State<AppState>) -> Result<Json<Value>, Problem> {
    let unreadable = |error| Problem::internal(format!("cannot show the configuration in force: {error}"));
    let config = state.service.config().to_toml_without_secrets();
    Ok(Json(toml::from_str(&config).map_err(unreadable)?))
}

/// `POST /api/v1/reload`: reads the configuration again, and waits for the outcome.
pub async fn reload(State(state): State<AppState>) -> Result<Response, Problem> {
    let outcome = state.reloads.request().await;
    let outcome = outcome.map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending"))?;
    if outcome.applied {
        return Ok(Json(outcome).into_response());
    }
    let why = outcome.error.clone().unwrap_or_else(|| "refused".to_owned());
    Err(Problem::new(StatusCode::CONFLICT, why).with(serde_json::to_value(outcome).unwrap_or_default()))
}

/// `POST /api/v1/changes`: the changes that another configuration would make. Changes nothing, and reads no file that the
/// configuration names.
pub async fn changes(
    State(state): State<AppState>,
    proposal: Result<Json<Proposal>, JsonRejection>,
) -> Result<Json<Preview>, Problem> {
    let Json(proposal) = proposal.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    // Checks that the models' files exist, possibly on a sleeping disk.
    let preview = spawn_blocking(move || Preview::new(&state.service, state.reloads.path(), &proposal)).await;
    // The panic hook has logged the panic.
    preview.map(Json).map_err(|_| Problem::internal("internal error, see the log of visiond: please report it"))
}

/// `GET /api/v1/openapi.json`
pub async fn openapi() -> Response {
    json(Bytes::from_static(OPENAPI.as_bytes()))
}

/// The parameters of `GET /api/v1/log`.
#[derive(Deserialize)]
pub struct LogQuery {
    /// The number of the last line that the client has.
    #[serde(default)]
    after: u64,
}

/// `GET /api/v1/log?after=`: the newest lines of the daemon's log.
pub async fn log(query: Result<Query<LogQuery>, QueryRejection>) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|_| Problem::bad_request("`after` must be a line number, 0 or more"))?;
    Ok(Json(tail::after(query.after)).into_response())
}

/// The parameters of `POST /api/v1/trace`.
#[derive(Deserialize)]
pub struct TraceQuery {
    seconds: Option<u64>,
}

/// `POST /api/v1/trace?seconds=`: records what every thread does with every frame, and answers with the recording.
pub async fn trace(query: Result<Query<TraceQuery>, QueryRejection>) -> Result<Response, Problem> {
    let seconds = query.ok().map(|Query(query)| query.seconds.unwrap_or(TRACE_SECONDS));
    let seconds = seconds
        .filter(|seconds| (1..=MOST_SECONDS).contains(seconds))
        .ok_or_else(|| Problem::bad_request(format!("`seconds` must be a whole number from 1 to {MOST_SECONDS}")))?;
    let recording = trace::start().map_err(|busy| Problem::new(StatusCode::CONFLICT, busy.to_string()))?;
    // A client that disconnects drops this future, and the recording with it.
    sleep(Duration::from_secs(seconds)).await;
    let trace = recording.finish();
    // Writing some MB of text would hold up the thread that serves all clients.
    let text = spawn_blocking(move || {
        let mut text = Vec::new();
        trace.write(&mut text).map(|()| text)
    });
    // Writing to memory does not fail, and the panic hook has logged a panic.
    let text = text.await.ok().and_then(Result::ok).ok_or_else(|| Problem::internal("cannot write the trace"))?;
    Ok(json(text.into()))
}

fn json(text: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests;
