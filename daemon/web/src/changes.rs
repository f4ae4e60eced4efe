//! `POST /api/v1/changes`: what another configuration would change. Nothing is changed, and no file that it names is read.

use axum::extract::State as Extract;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use tokio::task::spawn_blocking;
use visiond_service::reload::{Preview, Proposal};

use crate::errors::Problem;
use crate::state::State;

/// The route.
pub fn routes() -> Router<State> {
    Router::new().route("/api/v1/changes", post(changes))
}

async fn changes(
    Extract(state): Extract<State>,
    proposal: Result<Json<Proposal>, JsonRejection>,
) -> Result<Json<Preview>, Problem> {
    let Json(proposal) = proposal.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    // Models' files are looked at, which may be on a disk that sleeps.
    let preview = spawn_blocking(move || Preview::new(&state.service, state.reloads.path(), &proposal)).await;
    // A panic was logged by the hook.
    let fault = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a fault of visiond, told in its log");
    preview.map(Json).map_err(fault)
}
