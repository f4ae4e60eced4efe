//! What is answered where, and what holds for every answer. Each part has a function `routes()` of its own, merged here.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::errors::{Problem, as_problem};
use crate::guard::{self, Guard};
use crate::state::State;
use crate::{api, changes, health, log_lines, login, metrics, page, pictures, stream, trace};

/// Bytes that a request may carry.
const BODY_BYTES: usize = 64 << 10;
/// How long they may take.
const BODY_TIME: Duration = Duration::from_secs(10);

/// What every answer says unless it says otherwise itself.
const HEADERS: [(HeaderName, &str); 6] = [
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    // Not less: without it browsers say of a form that it comes from nowhere, and logging in would be refused.
    (REFERRER_POLICY, "same-origin"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Everything, behind the guard.
pub fn router(state: State, guard: &Arc<Guard>) -> Router {
    Router::new()
        .merge(health::routes())
        .merge(api::routes())
        .merge(changes::routes())
        .merge(metrics::routes())
        .merge(log_lines::routes())
        .merge(stream::routes())
        .merge(pictures::routes())
        .merge(trace::routes())
        .merge(page::routes())
        .with_state(state)
        .merge(login::routes(guard))
        .layer(from_fn(bounded))
        .layer(from_fn_with_state(Arc::clone(guard), guard::check))
        .layer(from_fn(finished))
}

/// Takes what a request carries before anybody acts on it, so that a slow or endless one holds up nobody else.
async fn bounded(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let problem = |status, why| Problem::new(status, why).into_response();
    let too_large = || problem(StatusCode::PAYLOAD_TOO_LARGE, "no request needs more than 64 KiB");
    if body.size_hint().lower() > BODY_BYTES as u64 {
        return too_large();
    }
    match timeout(BODY_TIME, Limited::new(body, BODY_BYTES).collect()).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, Body::from(body.to_bytes()))).await,
        Ok(Err(error)) if error.is::<LengthLimitError>() => too_large(),
        Ok(Err(_)) => problem(StatusCode::BAD_REQUEST, "the request's body is cut off or malformed"),
        Err(_) => problem(StatusCode::REQUEST_TIMEOUT, "the request's body did not come within 10 s"),
    }
}

/// An answer as all are.
async fn finished(request: Request, next: Next) -> Response {
    let mut answer = as_problem(next.run(request).await).await;
    for (name, value) in HEADERS {
        answer.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    answer
}
