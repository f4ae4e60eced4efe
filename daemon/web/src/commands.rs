//! The handlers that change cameras, lines and zones while the daemon runs: `/api/v1/cameras/{name}/settings`,
//! `/api/v1/cameras/{name}/rules/{rule}/settings` and `/api/v1/cameras/{name}/rules/{rule}/reset`.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;
use visiond_config::command::{Action, Command, CommandError, SettingsChange, Target};
use visiond_message::SettingsMessage;
use visiond_service::ServiceError;

use crate::errors::{Problem, no_camera};
use crate::listen::connection::{Client, Peer};
use crate::state::AppState;

/// New settings of a camera.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CameraChange {
    enabled: Option<bool>,
    score_threshold: Option<f64>,
}

/// New settings of a line or zone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleChange {
    enabled: Option<bool>,
    min_score: Option<f64>,
}

/// `GET /api/v1/cameras/{name}/settings`: the settings in force.
pub async fn settings(
    State(state): State<AppState>,
    Path(name): Path<String>,
) -> Result<Json<SettingsMessage>, Problem> {
    settings_of(&state, &name)
}

/// `POST /api/v1/cameras/{name}/settings`: changes settings of a camera; returns those in force.
pub async fn set_camera(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Extension(client): Extension<Client>,
    change: Result<Json<CameraChange>, JsonRejection>,
) -> Result<Json<SettingsMessage>, Problem> {
    check_may(&state, &client)?;
    let Json(CameraChange { enabled, score_threshold }) = change.map_err(|error| body_problem(&error))?;
    let change = SettingsChange { enabled, min_score: score_threshold };
    set(&state, Target { camera: name, rule: None }, change, "`enabled`, `score_threshold`").await
}

/// `POST /api/v1/cameras/{name}/rules/{rule}/settings`: changes settings of a line or zone; returns those of its camera.
pub async fn set_rule(
    State(state): State<AppState>,
    Path((name, rule)): Path<(String, String)>,
    Extension(client): Extension<Client>,
    change: Result<Json<RuleChange>, JsonRejection>,
) -> Result<Json<SettingsMessage>, Problem> {
    check_may(&state, &client)?;
    let Json(RuleChange { enabled, min_score }) = change.map_err(|error| body_problem(&error))?;
    let change = SettingsChange { enabled, min_score };
    set(&state, Target { camera: name, rule: Some(rule) }, change, "`enabled`, `min_score`").await
}

/// `POST /api/v1/cameras/{name}/rules/{rule}/reset`: resets the totals of a line or zone; returns the settings of its camera.
pub async fn reset(
    State(state): State<AppState>,
    Path((name, rule)): Path<(String, String)>,
    Extension(client): Extension<Client>,
) -> Result<Json<SettingsMessage>, Problem> {
    check_may(&state, &client)?;
    carry_out(&state, Command { target: Target { camera: name, rule: Some(rule) }, action: Action::Reset }).await
}

/// Refuses commands by TCP unless `allow_changes` is set: a client that may read must not switch cameras off. The permissions of a Unix
/// socket decide who may use it.
fn check_may(state: &AppState, client: &Client) -> Result<(), Problem> {
    match client.peer {
        Peer::Tcp(_) if !state.service.commands().config().http.allow_changes => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "clients may not change cameras, lines and zones: set `allow_changes = true` under [http] to allow it, or use the Unix socket",
        )),
        Peer::Tcp(_) | Peer::Unix => Ok(()),
    }
}

async fn set(
    state: &AppState,
    target: Target,
    change: SettingsChange,
    keys: &str,
) -> Result<Json<SettingsMessage>, Problem> {
    if change == SettingsChange::default() {
        return Err(Problem::bad_request(format!("the body changes nothing: send {keys} or both")));
    }
    carry_out(state, Command { target, action: Action::Set(change) }).await
}

/// Waits until a command is carried out; returns the settings of its camera.
async fn carry_out(state: &AppState, command: Command) -> Result<Json<SettingsMessage>, Problem> {
    let camera = command.target.camera.clone();
    let result = state.service.commands().ask(command).map_err(|error| refusal(&error))?;
    let result = result.await.map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending"))?;
    result.map_err(|error| match &*error {
        ServiceError::Command(error) => refusal(error),
        error => Problem::new(StatusCode::CONFLICT, error.to_string()),
    })?;
    settings_of(state, &camera)
}

fn settings_of(state: &AppState, name: &str) -> Result<Json<SettingsMessage>, Problem> {
    state.service.commands().settings_of(name).map(Json).ok_or_else(|| no_camera(name))
}

fn refusal(error: &CommandError) -> Problem {
    let status = match error {
        CommandError::NoCamera(_) | CommandError::NoRule { .. } => StatusCode::NOT_FOUND,
        CommandError::NoTotals(_) | CommandError::Score(_) => StatusCode::BAD_REQUEST,
        CommandError::SameDevice { .. } | CommandError::DeviceTaken { .. } => StatusCode::CONFLICT,
        CommandError::Busy => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::new(status, error.to_string())
}

fn body_problem(error: &JsonRejection) -> Problem {
    Problem::new(error.status(), error.body_text())
}
