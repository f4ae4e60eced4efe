//! What is answered where. Each part has a function `routes()` of its own, merged here.

use axum::Router;
use axum::routing::get;

use super::{State, observe, trace};

/// Everything.
pub fn router(state: State) -> Router {
    Router::new().route("/healthz", get(healthz)).merge(observe::routes()).merge(trace::routes()).with_state(state)
}

/// The process lives and serves.
async fn healthz() -> &'static str {
    "ok\n"
}
