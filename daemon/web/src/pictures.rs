//! Images of cameras as JPEG and MJPEG, with boxes or without.
//!
//! They are encoded only while a client watches, once for all clients, and at most `http.max_fps` times a second.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::time::timeout;
use visiond_live::{CameraView, Live, Picture, PictureStream, ViewError, Watch};

use crate::errors::{Problem, no_camera};
use crate::guard::Admission;
use crate::state::AppState;

/// How long a client waits for an image.
const PICTURE_TIMEOUT: Duration = Duration::from_secs(5);
/// The header with the sequence number of the message whose detections belong to the image; absent if there is none.
const SEQUENCE: &str = "x-visiond-sequence";

/// The query's parameters.
#[derive(Deserialize)]
pub struct PictureQuery {
    overlay: Option<String>,
}

type Name = Result<Path<String>, PathRejection>;
type Parameters = Result<Query<PictureQuery>, QueryRejection>;

/// `GET /cameras/{name}/snapshot.jpg`: the next image.
pub async fn snapshot(State(state): State<AppState>, name: Name, query: Parameters) -> Result<Response, Problem> {
    let (view, overlay) = parse(&state.live, name, query)?;
    let picture =
        view.jpeg(PictureStream::Shown, overlay, PICTURE_TIMEOUT).await.map_err(|error| no_picture(&error))?;
    let sequence = picture.sequence.map(|sequence| [(SEQUENCE, sequence.to_string())]);
    Ok(([(header::CONTENT_TYPE, "image/jpeg")], sequence, picture.jpeg.clone()).into_response())
}

/// `GET /cameras/{name}/stream.mjpeg`: images for as long as the camera runs.
pub async fn mjpeg(
    State(state): State<AppState>,
    Extension(mut admission): Extension<Admission>,
    name: Name,
    query: Parameters,
) -> Result<Response, Problem> {
    let (view, overlay) = parse(&state.live, name, query)?;
    let watch = view.watch(PictureStream::Shown, overlay).map_err(|error| no_picture(&error))?;
    let pictures = stream::unfold((watch, view, state.live), async |(mut watch, view, live)| {
        let picture = next(&mut watch, &view, &live).await?;
        Some((picture, (watch, view, live)))
    });
    let pictures = pictures.take_until(async move { admission.ended().await });
    // Browsers show a part when its closing boundary has arrived, so the boundary is sent with the part.
    let parts = pictures.flat_map(|picture| {
        let length = picture.jpeg.len();
        let sequence = picture.sequence.map(|sequence| format!("X-Visiond-Sequence: {sequence}\r\n"));
        let sequence = sequence.unwrap_or_default();
        let head = format!("Content-Type: image/jpeg\r\nContent-Length: {length}\r\n{sequence}\r\n");
        stream::iter([Bytes::from(head), picture.jpeg.clone(), Bytes::from_static(b"\r\n--picture\r\n")])
    });
    let body = stream::iter([Bytes::from_static(b"--picture\r\n")]).chain(parts).map(Ok::<_, Infallible>);
    let kind = "multipart/x-mixed-replace; boundary=picture";
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response())
}

/// Waits for the next image; `None` if the camera no longer runs.
async fn next(watch: &mut Watch, view: &Arc<CameraView>, live: &Arc<Live>) -> Option<Arc<Picture>> {
    loop {
        match timeout(PICTURE_TIMEOUT, watch.next()).await {
            Ok(picture) => return picture,
            Err(_) if live.find(&view.name).is_some() => {}
            Err(_) => return None,
        }
    }
}

/// Returns the camera of a request, and whether to draw boxes.
fn parse(live: &Live, name: Name, query: Parameters) -> Result<(Arc<CameraView>, bool), Problem> {
    let Path(name) = name.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let Query(query) = query.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let overlay = flag("overlay", query.overlay.as_deref())?;
    let view = live.find(&name).ok_or_else(|| no_camera(&name))?;
    Ok((view, overlay))
}

/// Parses a parameter that is on or off; off if it is missing.
pub fn flag(name: &str, value: Option<&str>) -> Result<bool, Problem> {
    match value {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(_) => Err(Problem::bad_request(format!("`{name}` must be 1 or true, 0 or false"))),
    }
}

fn no_picture(error: &ViewError) -> Problem {
    let status = match error {
        ViewError::NoFrame { .. } => StatusCode::NOT_FOUND,
        ViewError::NoEncoder { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::new(status, error.to_string())
}
