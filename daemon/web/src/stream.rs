//! `GET /api/v1/stream`: messages as server-sent events, or over a WebSocket if the client requests an upgrade.
//!
//! An event of the stream is a message as every sink sends it: of a frame, or of a line or zone if `messages` has `events`. A reader that
//! is too slow gets an event `{"lost": N}` with the number of
//! messages it missed; other readers are not affected.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream};
use serde::Deserialize;
use tokio::time::{interval, timeout};
use visiond_live::{Delivered, Filter, Subscription, Wanted};

use crate::errors::{Problem, no_camera};
use crate::guard::{Admission, Ended};
use crate::pictures::flag;
use crate::state::AppState;
use crate::status::StatusCollector;
use crate::status::report::HttpCounts;

/// The interval of keep-alive events, and of pings, which a WebSocket reader must answer.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The largest message from a WebSocket's reader; nothing it sends is used.
const INCOMING_BYTES: usize = 4 << 10;
/// The size of a WebSocket's write buffer.
const OUTGOING_BYTES: usize = 16 << 10;
/// Time for a WebSocket reader to accept the reason for closing.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// The most messages that are sent before the reader's messages are read again.
const BATCH: usize = 64;

/// The query's parameters.
#[derive(Deserialize)]
pub struct StreamQuery {
    camera: Option<String>,
    only_detections: Option<String>,
    messages: Option<String>,
}

/// `GET /api/v1/stream`
pub async fn stream(
    State(state): State<AppState>,
    Extension(mut admission): Extension<Admission>,
    query: Result<Query<StreamQuery>, QueryRejection>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let names = query.camera.iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty());
    // A set, because every message is compared with each of them.
    let cameras: BTreeSet<_> = names.map(str::to_owned).collect();
    let cameras = Vec::from_iter(cameras);
    let messages = wanted(query.messages.as_deref())?;
    let only_detections = flag("only_detections", query.only_detections.as_deref())?;
    let filter = Filter { cameras, only_detections, messages };
    if let Some(unknown) = filter.cameras.iter().find(|camera| state.live.find(camera).is_none()) {
        return Err(no_camera(unknown));
    }
    if !headers.contains_key(header::UPGRADE) {
        return Ok(server_sent_events(&state, filter, admission));
    }
    Ok(match upgrade {
        Err(rejection) => rejection.into_response(),
        Ok(upgrade) => {
            let upgrade = upgrade.max_message_size(INCOMING_BYTES).max_frame_size(INCOMING_BYTES);
            let upgrade = upgrade.read_buffer_size(INCOMING_BYTES).write_buffer_size(OUTGOING_BYTES);
            upgrade.on_upgrade(async move |mut socket| {
                let reader = CountedReader::new(&state.status, |http| &http.websocket_readers);
                let subscription = state.live.messages().subscribe(filter);
                tokio::select! {
                    () = talk(&mut socket, subscription, &reader) => {}
                    why = admission.ended() => close(socket, why).await,
                }
            })
        }
    })
}

/// Parses the parameter `messages`.
fn wanted(value: Option<&str>) -> Result<Wanted, Problem> {
    match value {
        None | Some("frames") => Ok(Wanted::Frames),
        Some("events") => Ok(Wanted::Events),
        Some("frames,events" | "events,frames") => Ok(Wanted::All),
        Some(_) => Err(Problem::bad_request("`messages` must be frames, events or frames,events")),
    }
}

/// Counts a reader until it is dropped.
struct CountedReader {
    status: Arc<StatusCollector>,
    counter: fn(&HttpCounts<AtomicU64>) -> &AtomicU64,
}

impl CountedReader {
    fn new(status: &Arc<StatusCollector>, counter: fn(&HttpCounts<AtomicU64>) -> &AtomicU64) -> Self {
        counter(&status.http).fetch_add(1, Ordering::Relaxed);
        Self { status: Arc::clone(status), counter }
    }

    /// Counts the events that the reader lost.
    fn count_lost(&self, delivered: &Delivered) {
        self.status.http.events_lost.fetch_add(delivered.lost, Ordering::Relaxed);
    }
}

impl Drop for CountedReader {
    fn drop(&mut self) {
        (self.counter)(&self.status.http).fetch_sub(1, Ordering::Relaxed);
    }
}

fn server_sent_events(state: &AppState, filter: Filter, mut admission: Admission) -> Response {
    let reader = CountedReader::new(&state.status, |http| &http.event_readers);
    let subscription = state.live.messages().subscribe(filter);
    let events = stream::unfold((subscription, reader), async |(mut subscription, reader): (Subscription, _)| {
        let delivered = subscription.next().await;
        reader.count_lost(&delivered);
        Some((delivered, (subscription, reader)))
    });
    let events = events.take_until(async move { admission.ended().await });
    let events = events.flat_map(|delivered| stream::iter(events_of(&delivered)));
    let mut answer =
        Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response();
    // Otherwise proxies hold events back: nginx until its buffer is full, a compressing one until it has enough to compress.
    answer.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    answer
}

/// Returns the events of a message: the number of lost messages before it, if any, and the message.
fn events_of(delivered: &Delivered) -> impl Iterator<Item = Event> + use<> {
    let lost = (delivered.lost > 0).then(|| Event::default().event("lost").data(lost_text(delivered.lost)));
    lost.into_iter().chain([Event::default().id(delivered.message.id()).data(text(delivered).as_str())])
}

/// Sends messages until the reader disconnects or no longer answers pings.
async fn talk(socket: &mut WebSocket, mut subscription: Subscription, reader: &CountedReader) {
    let mut heartbeat = interval(HEARTBEAT);
    heartbeat.reset();
    let mut answered = true;
    loop {
        tokio::select! {
            delivered = subscription.next() => {
                if send(socket, &mut subscription, delivered, reader).await.is_err() {
                    return;
                }
            }
            said = socket.recv() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {
                    answered = true;
                    // The library answers pings. Without this, it would keep the answers that the reader does not take.
                    if socket.flush().await.is_err() {
                        return;
                    }
                }
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

/// Closes the socket, with the reason if the reader accepts it soon.
async fn close(mut socket: WebSocket, why: Ended) {
    let (code, reason) = match why {
        Ended::Revoked => (close_code::POLICY, "the rules of access changed: connect again"),
        Ended::Closing => (close_code::AWAY, "visiond no longer serves this address"),
    };
    let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
    let _ = timeout(CLOSE_TIME, socket.send(Message::Close(Some(frame)))).await;
}

/// Sends a message and those queued after it, with one flush.
async fn send(
    socket: &mut WebSocket,
    subscription: &mut Subscription,
    first: Delivered,
    reader: &CountedReader,
) -> Result<(), axum::Error> {
    for delivered in iter::once(first).chain(iter::from_fn(|| subscription.try_next())).take(BATCH) {
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

/// Returns the message's JSON without its line end.
fn text(delivered: &Delivered) -> Utf8Bytes {
    let line = delivered.message.line();
    let line = line.slice(..line.len().saturating_sub(1));
    // JSON is UTF-8, even without its line end.
    Utf8Bytes::try_from(line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use visiond_message::Published;
    use visiond_message::testing::door_message;

    use super::*;

    #[test]
    fn a_reader_is_told_of_lost_messages_before_the_next_one() {
        let message = Arc::new(Published::new(door_message(7, 1)));
        let events = |lost| events_of(&Delivered { message: Arc::clone(&message), lost }).count();
        assert_eq!((events(0), events(1), events(2)), (1, 2, 2));
        assert_eq!(lost_text(2), "{\"lost\":2}");
    }
}
