//! The router: every path with its handler, and the headers and limits that hold for every answer.

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
use axum::routing::{get, post};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::compress::compress;
use crate::errors::{Problem, as_problem};
use crate::guard::{self, Guard, Trusted};
use crate::state::AppState;
use crate::{api, commands, event_files, frames, metrics, page, pictures, shapes, stream};

/// The largest body of a request, in bytes.
const BODY_BYTES: usize = 64 << 10;
/// The same limit for requests without a token, which the login form sends.
const LOGIN_BYTES: usize = 4 << 10;
/// Time for the body of a request.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Headers of every answer that does not set its own.
const HEADERS: [(HeaderName, &str); 6] = [
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    // With a stricter value, browsers send `Origin: null` with the login form, which the guard refuses.
    (REFERRER_POLICY, "same-origin"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Returns the router with every path, behind the guard.
pub fn router(state: AppState, guard: &Arc<Guard>) -> Router {
    let login = Router::new().route("/login", post(guard::login)).with_state(Arc::clone(guard));
    Router::new()
        .route("/", get(page::live))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(api::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/cameras/{name}/snapshot.jpg", get(pictures::snapshot))
        .route("/cameras/{name}/stream.mjpeg", get(pictures::mjpeg))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/cameras", get(api::cameras))
        .route("/api/v1/cameras/{name}", get(api::camera))
        .route("/api/v1/cameras/{name}/detections", get(api::detections_of))
        .route("/api/v1/cameras/{name}/frame", get(frames::frame))
        .route("/api/v1/cameras/{name}/snapshot", get(pictures::snapshot))
        .route("/api/v1/cameras/{name}/settings", get(commands::settings).post(commands::set_camera))
        .route("/api/v1/cameras/{name}/rules/{rule}/settings", post(commands::set_rule))
        .route("/api/v1/cameras/{name}/rules/{rule}/reset", post(commands::reset))
        .route("/api/v1/detections", get(api::detections))
        .route("/api/v1/cameras/{name}/shapes", get(shapes::shapes).put(shapes::change))
        .route("/api/v1/events", get(api::events))
        .route("/api/v1/events/{event}/image", get(event_files::image))
        .route("/api/v1/events/{event}/clip", get(event_files::clip))
        .route("/api/v1/stream", get(stream::stream))
        .route("/api/v1/config", get(api::config))
        .route("/api/v1/changes", post(api::changes))
        .route("/api/v1/reload", post(api::reload))
        .route("/api/v1/log", get(api::log))
        .route("/api/v1/trace", post(api::trace))
        .route("/api/v1/openapi.json", get(api::openapi))
        .with_state(state)
        .merge(login)
        .layer(from_fn(with_whole_body))
        .layer(from_fn_with_state(Arc::clone(guard), guard::check))
        .layer(from_fn(with_headers))
        .layer(from_fn(compress))
}

/// Reads the body of a request before its handler runs, so that a slow or endless body holds up only its own client.
async fn with_whole_body(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let problem = |status, why: &str| Problem::new(status, why).into_response();
    let is_trusted = parts.extensions.get::<Trusted>().is_some_and(|Trusted(trusted)| *trusted);
    let most = if is_trusted { BODY_BYTES } else { LOGIN_BYTES };
    let too_large =
        || problem(StatusCode::PAYLOAD_TOO_LARGE, &format!("the request's body is larger than {} KiB", most >> 10));
    if body.size_hint().lower() > most as u64 {
        return too_large();
    }
    match timeout(BODY_TIME, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, Body::from(body.to_bytes()))).await,
        Ok(Err(error)) if error.is::<LengthLimitError>() => too_large(),
        Ok(Err(_)) => problem(StatusCode::BAD_REQUEST, "the request's body is truncated or malformed"),
        Err(_) => problem(StatusCode::REQUEST_TIMEOUT, "the request's body did not arrive within 10 s"),
    }
}

/// Turns plain-text errors into problems, and adds [`HEADERS`].
async fn with_headers(request: Request, next: Next) -> Response {
    let mut answer = as_problem(next.run(request).await).await;
    for (name, value) in HEADERS {
        answer.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    answer
}
