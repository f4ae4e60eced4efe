//! Pictures of cameras: one, or one after the other, with boxes drawn or without.
//!
//! They are made only while somebody watches, once for all who do, and at most `http.max_fps` a second.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::time::timeout;
use visiond_live::{CameraView, Live, Picture, ViewError, Watch};

use crate::errors::{Problem, no_camera};

/// How long a picture is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The frame's number, as its message has it.
const SEQUENCE: &str = "x-visiond-sequence";

/// What may be asked for.
#[derive(Deserialize)]
struct Wanted {
    overlay: Option<String>,
}

type Name = Result<Path<String>, PathRejection>;
type Words = Result<Query<Wanted>, QueryRejection>;

/// The routes.
pub fn routes() -> Router<crate::state::State> {
    Router::new()
        .route("/cameras/{name}/snapshot.jpg", get(snapshot))
        .route("/api/v1/cameras/{name}/snapshot", get(snapshot))
        .route("/cameras/{name}/stream.mjpeg", get(pictures))
}

async fn snapshot(State(state): State<crate::state::State>, name: Name, wanted: Words) -> Result<Response, Problem> {
    let (view, overlay) = asked(&state.live, name, wanted)?;
    let picture = view.jpeg(overlay, PATIENCE).await.map_err(|error| no_picture(&error))?;
    let headers = [(header::CONTENT_TYPE.as_str(), "image/jpeg"), (SEQUENCE, &*picture.sequence.to_string())];
    Ok((headers, picture.jpeg.clone()).into_response())
}

async fn pictures(State(state): State<crate::state::State>, name: Name, wanted: Words) -> Result<Response, Problem> {
    let (view, overlay) = asked(&state.live, name, wanted)?;
    let watch = view.watch(overlay).map_err(|error| no_picture(&error))?;
    let pictures = stream::unfold((watch, view, state.live), async |(mut watch, view, live)| {
        let picture = next(&mut watch, &view, &live).await?;
        Some((picture, (watch, view, live)))
    });
    // A part is shown when the line behind it is there, so that line is sent with it, not with the next.
    let parts = pictures.flat_map(|picture| {
        let length = picture.jpeg.len();
        let head = format!(
            "Content-Type: image/jpeg\r\nContent-Length: {length}\r\nX-Visiond-Sequence: {}\r\n\r\n",
            picture.sequence
        );
        stream::iter([Bytes::from(head), picture.jpeg.clone(), Bytes::from_static(b"\r\n--picture\r\n")])
    });
    let body = stream::iter([Bytes::from_static(b"--picture\r\n")]).chain(parts).map(Ok::<_, Infallible>);
    let kind = "multipart/x-mixed-replace; boundary=picture";
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response())
}

/// The next picture, for as long as the camera runs.
async fn next(watch: &mut Watch, view: &Arc<CameraView>, live: &Arc<Live>) -> Option<Arc<Picture>> {
    loop {
        match timeout(PATIENCE, watch.next()).await {
            Ok(picture) => return picture,
            Err(_) if live.find(&view.name).is_some() => {}
            Err(_) => return None,
        }
    }
}

/// Which camera, and whether with boxes; or what is wrong with the request.
fn asked(live: &Live, name: Name, wanted: Words) -> Result<(Arc<CameraView>, bool), Problem> {
    let wrong = |reason: String| Problem::new(StatusCode::BAD_REQUEST, reason);
    let Path(name) = name.map_err(|rejection| wrong(rejection.body_text()))?;
    let Query(wanted) = wanted.map_err(|rejection| wrong(rejection.body_text()))?;
    let overlay = flag("overlay", wanted.overlay.as_deref()).map_err(wrong)?;
    let view = live.find(&name).ok_or_else(|| no_camera(&name))?;
    Ok((view, overlay))
}

/// A parameter that is there or not, or a sentence.
pub fn flag(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(_) => Err(format!("`{name}` is 1 or true, 0 or false")),
    }
}

fn no_picture(error: &ViewError) -> Problem {
    let status = match error {
        ViewError::NoFrame { .. } => StatusCode::NOT_FOUND,
        ViewError::NoEncoder { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::new(status, error.to_string())
}
