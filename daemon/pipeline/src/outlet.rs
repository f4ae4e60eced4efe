//! Where the messages of all cameras go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use visiond_events::EventIds;
use visiond_frames::clock::Clock;
use visiond_message::{EventMessage, Message, RuleTotals};
use visiond_system::stop::Stop;
use visiond_tracker::TrackIds;

/// Publishes a message: the publisher's function, or a test's.
pub type PublishFn = Arc<dyn Fn(&Arc<Message>) + Send + Sync>;

/// Publishes events, and remembers the totals of rules when their tracks or settings change, or the daemon restarts.
pub trait EventOutlet: Send + Sync {
    /// Publishes an event, with the totals of its rule after it; `None` if the rule is gone.
    fn publish(&self, event: EventMessage, totals: Option<RuleTotals>);
    /// Returns the last totals of a camera's rule.
    fn totals(&self, camera: &str, rule: &str, kind: &str) -> RuleTotals;
    /// Sets the totals of a camera's rule, because they are reset.
    fn set_totals(&self, camera: &str, rule: &str, kind: &str, totals: RuleTotals);
    /// Resets the totals of all rules of a camera's line or zone. They stay of the same day.
    fn reset_totals(&self, camera: &str, rule: &str);
    /// Returns a number that changes when the last totals are others, because those of an earlier process were added.
    fn revision(&self) -> u64 {
        0
    }
}

/// A test's function, which gets the events alone.
#[cfg(test)]
impl<F: Fn(EventMessage) + Send + Sync> EventOutlet for F {
    fn publish(&self, event: EventMessage, _: Option<RuleTotals>) {
        self(event);
    }

    fn totals(&self, _: &str, _: &str, _: &str) -> RuleTotals {
        RuleTotals::default()
    }

    fn set_totals(&self, _: &str, _: &str, _: &str, _: RuleTotals) {}

    fn reset_totals(&self, _: &str, _: &str) {}
}

/// Where the messages of all cameras go.
pub struct Outlet {
    /// Publishes a message.
    pub publish: PublishFn,
    /// Publishes the events of lines and zones.
    pub events: Arc<dyn EventOutlet>,
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
