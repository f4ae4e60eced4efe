//! The side of a broker's sink that reads its queue: new messages, new settings, and the end.
//!
//! It keeps reading while the other side connects, or waits for a broker that accepts nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::OptionFuture;
use tokio::net::UnixStream;
use visiond_config::types::SinkConfig;
use visiond_message::Published;
use visiond_system::wake_pipe::WakePipe;

use super::outbox::Outbox;
use crate::queue::{Popped, Queue, Removed};

/// How many messages it takes from the queue at once.
const BATCH: usize = 64;

/// How many bytes of messages it takes at once, plus one message.
const BATCH_BYTES: usize = 4 << 20;

/// How long a durable sink keeps sending while it shuts down.
const GRACE: Duration = Duration::from_millis(500);

/// How long ending the session may take; this much of the shutdown time is reserved for it.
pub const CLOSE_TIMEOUT: Duration = Duration::from_millis(150);

pub struct QueueReader<'q> {
    queue: &'q Queue,
    /// Readable when the queue has news.
    wake_pipe: UnixStream,
    pub outbox: Outbox,
    /// New settings that the sink has not applied yet.
    pub configured: Option<Box<SinkConfig>>,
    /// The queue is closed and empty: no more messages will come.
    pub drained: bool,
    /// The deadline for sending everything, once the queue is closed.
    end: Option<Instant>,
    batch: Vec<Arc<Published>>,
}

impl<'q> QueueReader<'q> {
    /// Creates a reader of `queue`. Must be called within a runtime.
    pub fn new(queue: &'q Queue, outbox: Outbox) -> std::io::Result<Self> {
        let wake_pipe = UnixStream::from_std(queue.wake_by(WakePipe::new()?).reader.try_clone()?)?;
        Ok(Self { queue, wake_pipe, outbox, configured: None, drained: false, end: None, batch: Vec::new() })
    }

    /// Waits until there is news or work is due, and does it. The future may be dropped at any time.
    pub async fn wait_and_fill(&mut self, room: usize) {
        let due = [self.end, self.outbox.due(), self.queue.next_turn()].into_iter().flatten().min();
        let sleep = OptionFuture::from(due.map(|due| tokio::time::sleep_until(due.into())));
        tokio::select! {
            // Before reading the queue, so that a message that arrives meanwhile wakes again.
            _ = self.wake_pipe.readable() => while self.wake_pipe.try_read(&mut [0; 64]).is_ok_and(|n| n > 0) {},
            // Without a time, this branch is disabled.
            Some(()) = sleep => {}
        }
        self.fill_outbox(room);
    }

    /// Reads as much of the queue as the outbox accepts when the window has room for `room` messages.
    pub fn fill_outbox(&mut self, room: usize) {
        // Otherwise a message that the rate limit releases, and that does not fit, would end every sleep at once.
        self.queue.release_due();
        if let Some(config) = self.queue.configured() {
            self.configured = Some(config);
        }
        if let Some(deadline) = self.queue.deadline() {
            let end = deadline.checked_sub(CLOSE_TIMEOUT).unwrap_or(deadline);
            // The next start continues where this one ends.
            let end = if self.outbox.is_durable() { end.min(Instant::now() + GRACE) } else { end };
            // The deadline may have been brought forward.
            self.end = Some(self.end.map_or(end, |known| known.min(end)));
        }
        self.outbox.attend(&self.queue.counters);
        loop {
            let limit = self.outbox.may_take(room).min(BATCH);
            let mut bytes = 0;
            while self.batch.len() < limit && bytes < BATCH_BYTES {
                match self.queue.pop(Some(Duration::ZERO)) {
                    Popped::Message(message) => {
                        bytes += message.about_bytes();
                        self.batch.push(message);
                    }
                    Popped::Configured(config) => self.configured = Some(config),
                    Popped::TimedOut => break,
                    Popped::Closed => {
                        self.drained = true;
                        break;
                    }
                }
            }
            if self.batch.is_empty() {
                return;
            }
            self.outbox.put(&self.batch, &self.queue.counters);
            self.batch.clear();
        }
    }

    /// Returns whether a reload has removed the sink.
    pub fn removed(&self) -> Option<Removed> {
        self.queue.removed()
    }

    /// Returns how much time is left until the deadline.
    pub fn left(&self) -> Duration {
        self.queue.deadline().map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(Instant::now()))
    }

    pub fn is_closing(&self) -> bool {
        self.end.is_some()
    }

    pub fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Messages that were not sent yet.
    pub fn waiting(&self) -> u64 {
        self.outbox.waiting() + self.queue.waiting() as u64
    }
}
