//! Where the messages of all cameras go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use visiond_events::EventIds;
use visiond_frames::clock::Clock;
use visiond_message::{EventMessage, Message};
use visiond_system::stop::Stop;
use visiond_tracker::TrackIds;

/// Publishes a message: the publisher's function, or a test's.
pub type PublishFn = Arc<dyn Fn(&Arc<Message>) + Send + Sync>;

/// Publishes an event in the same way.
pub type PublishEventFn = Arc<dyn Fn(EventMessage) + Send + Sync>;

/// Where the messages of all cameras go.
pub struct Outlet {
    /// Publishes a message.
    pub publish: PublishFn,
    /// Publishes an event of a line or zone.
    pub publish_event: PublishEventFn,
    /// How many messages may still be published.
    pub message_limit: MessageLimit,
    /// The clock for frames' ages.
    pub clock: Arc<dyn Clock>,
    /// The source of ids for the tracks of all cameras.
    pub track_ids: Arc<TrackIds>,
    /// The source of ids for the events of all cameras.
    pub event_ids: Arc<EventIds>,
}

/// How many messages may still be published, over all cameras.
#[derive(Debug)]
pub struct MessageLimit {
    left: AtomicU64,
    stop: Stop,
}

impl MessageLimit {
    /// Allows this many messages, or any number. The last one raises `stop`.
    pub fn new(messages: Option<u64>, stop: &Stop) -> Self {
        Self { left: AtomicU64::new(messages.unwrap_or(u64::MAX)), stop: stop.clone() }
    }

    /// Counts one message; returns whether it may be published.
    pub fn spend(&self) -> bool {
        let spent = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if matches!(spent, Ok(0 | 1) | Err(_)) {
            self.stop.raise();
        }
        spent.is_ok()
    }
}
