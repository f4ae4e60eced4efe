//! Frames as models see them, without loss, each with the message about it: what another model can be compared with.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use bytes::Bytes;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use visiond_message::Message;

use crate::errors::{Problem, no_camera};
use crate::state::AppState;

/// How long a client waits for its turn, and then for a frame.
const FRAME_TIMEOUT: Duration = Duration::from_secs(5);
/// The clients whose turn it is: a frame of 1080p takes 25 MB until it is sent, and there may be a thousand clients.
static TURNS: Semaphore = Semaphore::const_new(2);
/// How much of an answer is sent at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The query's parameters.
#[derive(Deserialize)]
pub struct FrameQuery {
    model: Option<String>,
}

/// A frame with the message about it.
#[derive(Serialize)]
struct FrameAnswer {
    message: Arc<Message>,
    width: u32,
    height: u32,
    /// Three bytes for each pixel, row by row, in Base64.
    rgb: String,
}

/// `GET /api/v1/cameras/{name}/frame`: the next frame that a model runs on.
///
/// Costs the encoder a copy of the frame, and a thread beside it the conversion. Two clients have their turn at a time.
pub async fn frame(
    State(state): State<AppState>,
    name: Result<Path<String>, PathRejection>,
    query: Result<Query<FrameQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path(name) = name.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let Query(query) = query.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let view = state.live.find(&name).ok_or_else(|| no_camera(&name))?;
    let lanes = state.live.lanes();
    let models = lanes.iter().flat_map(|lane| &lane.cameras).find(|camera| *camera.name == name).map(|it| it.models());
    let models = models.unwrap_or_default();
    let model = match query.model {
        None => models.first().cloned(),
        Some(wanted) => models.iter().find(|model| ***model == wanted).cloned(),
    };
    let Some(model) = model else {
        let known: Vec<_> = models.iter().map(|model| &**model).collect();
        let detail = format!("camera {name} has no such model on its frames: it has {}", known.join(", "));
        return Err(Problem::not_found(detail));
    };
    let Ok(Ok(turn)) = timeout(FRAME_TIMEOUT, TURNS.acquire()).await else {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "other clients get frames just now: ask again"));
    };
    let its_view = Arc::clone(&view);
    let made = spawn_blocking(move || {
        let frame = its_view.frame_of(&model, FRAME_TIMEOUT).ok_or_else(|| {
            let seconds = FRAME_TIMEOUT.as_secs();
            let detail = format!(
                "model {model} ran on no frame of camera {name} within {seconds} s: see its state in /api/v1/cameras/{name} \
                 and the log"
            );
            Problem::not_found(detail)
        })?;
        let cannot = |error: String| Problem::internal(format!("cannot convert a frame of camera {name}: {error}"));
        let (width, height, pixels) = frame.rgb().map_err(|error| cannot(error.to_string()))?;
        let answer = FrameAnswer { message: frame.message, width, height, rgb: STANDARD.encode(pixels) };
        let json = serde_json::to_vec(&answer).map_err(|error| cannot(error.to_string()))?;
        Ok::<_, Problem>((json, frame.mask_changes))
    });
    // The panic hook has logged the panic.
    let (made, mask_changes) =
        made.await.map_err(|_| Problem::internal("the conversion of the frame failed: see the log"))??;
    let length = made.len();
    // The turn ends with the last piece.
    let begin = (Bytes::from(made), turn, view, mask_changes);
    let pieces = stream::unfold(begin, async |(mut rest, turn, view, mask_changes)| {
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        // From the reload on, nobody gets a frame without the new masks.
        let has_masks = view.mask_changes() == mask_changes;
        let sent = has_masks
            .then_some(piece)
            .ok_or_else(|| io::Error::other("the camera's privacy masks have changed: ask again"));
        (!sent.as_ref().is_ok_and(Bytes::is_empty)).then_some((sent, (rest, turn, view, mask_changes)))
    });
    let head = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, length.to_string())];
    Ok((head, Body::from_stream(pieces)).into_response())
}
