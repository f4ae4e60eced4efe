//! Holds messages until the window has room: in memory or, for a durable sink, in its spool.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use visiond_config::types::SinkConfig;
use visiond_flow::message::Published;
use visiond_system::outage::IfUnusable;

use super::spool_writer::SpoolWriter;
use super::{QueuedMessage, WINDOW};
use crate::queue::Counters;
use crate::sink::SinkError;
use crate::spool::Spool;

pub struct Outbox {
    next_number: u64,
    /// Messages in memory; a durable sink has them on disk as well. They go first.
    fresh: VecDeque<QueuedMessage>,
    /// Of a durable sink.
    spool_writer: Option<SpoolWriter>,
}

impl Outbox {
    /// Opens the outbox of a sink. Fails if the sink has no folder for its spool or, with [`IfUnusable::Refuse`], cannot use it.
    pub fn open(config: &SinkConfig, if_unusable: IfUnusable) -> Result<Self, SinkError> {
        let spool_writer = config.durable.then(|| SpoolWriter::open(config, if_unusable)).transpose()?;
        Ok(Self { next_number: 1, fresh: VecDeque::new(), spool_writer })
    }

    pub fn is_durable(&self) -> bool {
        self.spool_writer.is_some()
    }

    /// Returns what happens to messages while there is no connection, for the log.
    pub fn meanwhile(&self) -> &'static str {
        match self.spool_writer {
            Some(_) => "new messages are kept in the spool",
            None => "new messages wait in the queue, which drops messages when it is full",
        }
    }

    /// Applies a new size and a new name; the folder is the same.
    pub fn configure(&mut self, config: &SinkConfig) {
        if let Some(writer) = &mut self.spool_writer {
            writer.configure(config);
        }
    }

    /// Returns how many messages the outbox accepts when the window has room for `room`.
    ///
    /// A spool accepts any number. While the disk refuses, a durable sink behaves like one without a spool: it accepts what can
    /// be sent at once, and leaves the rest in its queue.
    pub fn may_take(&self, room: usize) -> usize {
        let Some(writer) = &self.spool_writer else { return room.saturating_sub(self.fresh.len()) };
        match &writer.spool {
            // What is on disk goes first, and is not known yet.
            None => 0,
            Some(_) if writer.unwritten.is_empty() => usize::MAX,
            Some(spool) if spool.unread() > 0 => 0,
            Some(_) => room.saturating_sub(self.fresh.len() + writer.unwritten.len()),
        }
    }

    /// Accepts messages, and numbers them.
    pub fn put(&mut self, messages: &[Arc<Published>], counters: &Counters) {
        if let Some(spool) = self.spool_writer.as_ref().and_then(|writer| writer.spool.as_ref()) {
            self.next_number = self.next_number.max(spool.next_number());
        }
        for message in messages {
            let queued = queued(self.next_number, message);
            self.next_number += 1;
            match &mut self.spool_writer {
                Some(writer) => writer.unwritten.push_back((queued, message.message().sequence)),
                None => self.fresh.push_back(queued),
            }
        }
        self.write(counters);
    }

    /// Does the work that is due, see [`Outbox::due`].
    pub fn attend(&mut self, counters: &Counters) {
        if let Some(writer) = &mut self.spool_writer {
            writer.attend();
            self.write(counters);
        }
        if let Some(writer) = &mut self.spool_writer {
            writer.report(counters);
        }
    }

    /// Returns when the outbox has work to do.
    pub fn due(&self) -> Option<Instant> {
        self.spool_writer.as_ref()?.due()
    }

    pub fn take(&mut self, counters: &Counters) -> Option<QueuedMessage> {
        if let Some(message) = self.fresh.pop_front() {
            return Some(message);
        }
        let writer = self.spool_writer.as_mut()?;
        if let Some(message) = writer.read() {
            return Some(message);
        }
        if writer.spool.as_ref().is_some_and(|spool| !spool.is_read()) {
            // It cannot be read for the moment, and goes first.
            return None;
        }
        // A message stays here for longer than a call only while the disk refuses it.
        let (message, _) = writer.unwritten.pop_front()?;
        if let Some(spool) = &mut writer.spool {
            spool.skip_numbers(message.number + 1);
        }
        writer.memory_only.insert(message.number);
        Counters::add(&counters.memory_only, 1);
        Some(message)
    }

    /// Notes that the broker has the message of this number and, with `through`, everything up to that number.
    pub fn acknowledge(&mut self, number: u64, through: Option<u64>) {
        let Some(writer) = &mut self.spool_writer else { return };
        writer.memory_only.remove(&number);
        if let (Some(spool), Some(through)) = (&mut writer.spool, through) {
            spool.acknowledge(through);
        }
    }

    /// Writes the acknowledged number to disk.
    pub fn settle(&mut self) {
        if let Some(writer) = &mut self.spool_writer {
            writer.write_cursor();
        }
    }

    pub fn waiting(&self) -> u64 {
        let on_disk =
            |writer: &SpoolWriter| writer.spool.as_ref().map_or(0, Spool::unread) + writer.unwritten.len() as u64;
        self.fresh.len() as u64 + self.spool_writer.as_ref().map_or(0, on_disk)
    }

    /// Closes the outbox while `in_flight` messages are unacknowledged; returns how many messages are lost.
    pub fn close(self, in_flight: u64) -> u64 {
        match self.spool_writer {
            None => in_flight + self.fresh.len() as u64,
            Some(writer) => writer.close(),
        }
    }

    /// Writes new messages to disk. What can be sent at once stays in memory as well.
    fn write(&mut self, counters: &Counters) {
        let Some(writer) = &mut self.spool_writer else { return };
        let was_read = writer.spool.as_ref().is_none_or(|spool| spool.unread() == 0);
        if writer.unwritten.is_empty() || !writer.write() {
            return;
        }
        if let Some(spool) = &mut writer.spool
            && was_read
            && self.fresh.len() + writer.unwritten.len() <= WINDOW
        {
            spool.pass_over();
            self.fresh.extend(writer.unwritten.drain(..).map(|(message, _)| message));
        }
        writer.unwritten.clear();
        writer.report(counters);
    }
}

fn queued(number: u64, published: &Published) -> QueuedMessage {
    let message = published.message();
    let line = published.line();
    let line = line.slice(..line.len() - usize::from(line.ends_with(b"\n")));
    QueuedMessage { number, id: message.id.clone(), camera: Arc::clone(&message.camera), line }
}
