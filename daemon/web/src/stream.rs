//! `GET /api/v1/stream`: messages as they come, as server-sent events, or over a WebSocket where the request asks for one.
//!
//! Either way an event is a message as every sink sends it. A reader that is too slow is told how many it missed, as an
//! event of its own, `{"lost": N}`; it costs nobody else anything.

use std::convert::Infallible;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use tokio::time::interval;
use visiond_live::{Delivered, Filter, Subscription};

use crate::errors::{Problem, no_camera};
use crate::pictures::flag;
use crate::status::StatusCollector;
use crate::status::counters::HttpCounters;

/// So often something is said where there is no message, and a WebSocket's reader is asked whether it is there.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// What a WebSocket's reader may send at once; it has nothing to say.
const INCOMING_BYTES: usize = 4 << 10;

/// What is sent to it at once.
const OUTGOING_BYTES: usize = 16 << 10;
/// As many messages at most, before it is looked whether the reader says something.
const AT_ONCE: usize = 64;

/// What may be asked for.
#[derive(Deserialize)]
struct Wanted {
    camera: Option<String>,
    only_detections: Option<String>,
}

/// The route.
pub fn routes() -> Router<crate::state::State> {
    Router::new().route("/api/v1/stream", get(stream))
}

async fn stream(
    State(state): State<crate::state::State>,
    wanted: Result<Query<Wanted>, QueryRejection>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let filter = match wanted.map_err(|rejection| rejection.body_text()).and_then(|Query(wanted)| filter(&wanted)) {
        Ok(filter) => filter,
        Err(reason) => return Problem::new(StatusCode::BAD_REQUEST, reason).into_response(),
    };
    if let Some(unknown) = filter.cameras.iter().find(|camera| state.live.find(camera).is_none()) {
        return no_camera(unknown).into_response();
    }
    if !headers.contains_key(header::UPGRADE) {
        return server_sent_events(&state, filter);
    }
    match upgrade {
        Err(rejection) => rejection.into_response(),
        Ok(upgrade) => {
            let upgrade = upgrade.max_message_size(INCOMING_BYTES).max_frame_size(INCOMING_BYTES);
            let upgrade = upgrade.read_buffer_size(INCOMING_BYTES).write_buffer_size(OUTGOING_BYTES);
            upgrade.on_upgrade(async move |socket| {
                let reader = Reader::new(&state.observer, |http| &http.websocket_readers);
                talk(socket, state.live.messages().subscribe(filter), &reader).await;
            })
        }
    }
}

/// What is wanted, or a sentence.
fn filter(wanted: &Wanted) -> Result<Filter, String> {
    let cameras = wanted.camera.iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty());
    let only_detections = flag("only_detections", wanted.only_detections.as_deref())?;
    Ok(Filter { cameras: cameras.map(str::to_owned).collect(), only_detections })
}

/// A reader, counted while it is there.
struct Reader {
    observer: Arc<StatusCollector>,
    counter: fn(&HttpCounters) -> &AtomicU64,
}

impl Reader {
    fn new(observer: &Arc<StatusCollector>, counter: fn(&HttpCounters) -> &AtomicU64) -> Self {
        counter(&observer.http).fetch_add(1, Ordering::Relaxed);
        Self { observer: Arc::clone(observer), counter }
    }

    /// Events passed it by.
    fn count_lost(&self, delivered: &Delivered) {
        self.observer.http.events_lost.fetch_add(delivered.lost, Ordering::Relaxed);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        (self.counter)(&self.observer.http).fetch_sub(1, Ordering::Relaxed);
    }
}

fn server_sent_events(state: &crate::state::State, filter: Filter) -> Response {
    let reader = Reader::new(&state.observer, |http| &http.event_readers);
    let subscription = state.live.messages().subscribe(filter);
    let events = stream::unfold((subscription, reader), async |(mut subscription, reader): (Subscription, _)| {
        let delivered = subscription.next().await;
        reader.count_lost(&delivered);
        Some((delivered, (subscription, reader)))
    });
    let events = events.flat_map(|delivered| stream::iter(events_of(&delivered)));
    let mut answer = Sse::new(as_fallible(events)).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response();
    // nginx would hold events back until its buffer is full.
    answer.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    answer
}

fn as_fallible(events: impl Stream<Item = Event>) -> impl Stream<Item = Result<Event, Infallible>> {
    events.map(Ok)
}

/// A message's events: what was lost before it, and itself.
fn events_of(delivered: &Delivered) -> impl Iterator<Item = Event> + use<> {
    let message = delivered.message.message();
    let lost = (delivered.lost > 0).then(|| Event::default().event("lost").data(lost_text(delivered.lost)));
    lost.into_iter().chain([Event::default().id(&*message.id).data(text(delivered).as_str())])
}

/// Sends messages until the reader goes away or no longer answers.
async fn talk(mut socket: WebSocket, mut subscription: Subscription, reader: &Reader) {
    let mut heartbeat = interval(HEARTBEAT);
    heartbeat.reset();
    let mut answered = true;
    loop {
        tokio::select! {
            delivered = subscription.next() => {
                if send(&mut socket, &mut subscription, delivered, reader).await.is_err() {
                    return;
                }
            }
            said = socket.recv() => match said {
                // Pings are answered by the library.
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => answered = true,
            },
            _ = heartbeat.tick() => {
                if !answered || socket.send(Message::Ping(Bytes::new())).await.is_err() {
                    return;
                }
                answered = false;
            }
        }
    }
}

/// Sends a message and what came behind it, at once.
async fn send(
    socket: &mut WebSocket,
    subscription: &mut Subscription,
    first: Delivered,
    reader: &Reader,
) -> Result<(), axum::Error> {
    for delivered in iter::once(first).chain(iter::from_fn(|| subscription.try_next())).take(AT_ONCE) {
        reader.count_lost(&delivered);
        if delivered.lost > 0 {
            socket.feed(Message::Text(lost_text(delivered.lost).into())).await?;
        }
        socket.feed(Message::Text(text(&delivered))).await?;
    }
    socket.flush().await
}

fn lost_text(lost: u64) -> String {
    format!("{{\"lost\":{lost}}}")
}

/// The message's JSON without its line end.
fn text(delivered: &Delivered) -> Utf8Bytes {
    let line = delivered.message.line();
    let line = line.slice(..line.len().saturating_sub(1));
    // JSON is UTF-8, and without its line end still is.
    Utf8Bytes::try_from(line).unwrap_or_default()
}
