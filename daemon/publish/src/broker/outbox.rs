//! Holds messages until the window has room: in memory or, for a durable sink, in its spool.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use visiond_config::types::SinkConfig;

use super::client::{QueuedMessage, WINDOW};
use super::disk::{Disk, Unwritten};
use crate::queue::Counters;
use visiond_flow::message::Published;

/// The messages that wait to be sent.
pub struct Outbox {
    next_number: u64,
    /// Messages in memory; a durable sink has them on disk as well. They go first.
    fresh: VecDeque<QueuedMessage>,
    disk: Option<Durable>,
}

/// What a durable sink has in addition.
struct Durable {
    disk: Disk,
    /// Messages that the disk has not accepted yet; newer than all on it.
    unwritten: VecDeque<Unwritten>,
    /// The numbers of messages in flight that are not on disk.
    memory_only: BTreeSet<u64>,
}

impl Outbox {
    /// Opens the outbox of a sink. Fails if the sink's spool can never be opened.
    pub fn open(config: &SinkConfig) -> Result<Self, String> {
        let durable = |disk| Durable { disk, unwritten: VecDeque::new(), memory_only: BTreeSet::new() };
        let disk = if config.durable { Some(durable(Disk::open(config)?)) } else { None };
        Ok(Self { next_number: 1, fresh: VecDeque::new(), disk })
    }

    /// Whether unsent messages outlive the process.
    pub fn is_durable(&self) -> bool {
        self.disk.is_some()
    }

    /// Returns what happens to messages while there is no connection, for the log.
    pub fn meanwhile(&self) -> &'static str {
        match self.disk {
            Some(_) => "new messages are kept in the spool",
            None => "new messages wait in the queue, which drops messages when it is full",
        }
    }

    /// Applies a new size and a new name; the folder is the same.
    pub fn configure(&mut self, config: &SinkConfig) {
        if let Some(durable) = &mut self.disk {
            durable.disk.configure(config);
        }
    }

    /// Returns how many messages the outbox accepts when the window has room for `room`.
    ///
    /// A spool accepts any number. While the disk refuses, a durable sink behaves like one without a spool: it accepts what can
    /// be sent at once, and leaves the rest in its queue.
    pub fn may_take(&self, room: usize) -> usize {
        match &self.disk {
            // What is on disk goes first, and is not known yet.
            Some(durable) if !durable.disk.is_open() => 0,
            Some(durable) if durable.unwritten.is_empty() => usize::MAX,
            Some(durable) if durable.disk.unread() > 0 => 0,
            Some(durable) => room.saturating_sub(self.fresh.len() + durable.unwritten.len()),
            None => room.saturating_sub(self.fresh.len()),
        }
    }

    /// Accepts messages, and numbers them.
    pub fn put(&mut self, messages: &[Arc<Published>], counters: &Counters) {
        if let Some(durable) = &self.disk {
            self.next_number = self.next_number.max(durable.disk.next_number());
        }
        for message in messages {
            let queued = queued(self.next_number, message);
            self.next_number += 1;
            match &mut self.disk {
                Some(durable) => {
                    durable.unwritten.push_back(Unwritten { message: queued, sequence: message.message().sequence });
                }
                None => self.fresh.push_back(queued),
            }
        }
        self.write(counters);
    }

    /// Does the work that is due, see [`Outbox::due`].
    pub fn attend(&mut self, counters: &Counters) {
        if let Some(durable) = &mut self.disk {
            durable.disk.attend();
            self.write(counters);
        }
        if let Some(durable) = &mut self.disk {
            durable.disk.tell(counters);
        }
    }

    /// Returns when the outbox has work to do.
    pub fn due(&self) -> Option<Instant> {
        let durable = self.disk.as_ref()?;
        durable.disk.due(!durable.unwritten.is_empty())
    }

    /// Takes the next message to send.
    pub fn take(&mut self, counters: &Counters) -> Option<QueuedMessage> {
        if let Some(message) = self.fresh.pop_front() {
            return Some(message);
        }
        let durable = self.disk.as_mut()?;
        if let Some(message) = durable.disk.read() {
            return Some(message);
        }
        // A message stays here for longer than a call only while the disk refuses it.
        let Unwritten { message, .. } = durable.unwritten.pop_front()?;
        durable.disk.skip_numbers(message.number + 1);
        durable.memory_only.insert(message.number);
        Counters::add(&counters.memory_only, 1);
        Some(message)
    }

    /// Notes that the broker has the message of this number and, with `through`, everything up to that number.
    pub fn acknowledge(&mut self, number: u64, through: Option<u64>) {
        if let Some(durable) = &mut self.disk {
            durable.memory_only.remove(&number);
            if let Some(through) = through {
                durable.disk.acknowledge(through);
            }
        }
    }

    /// Writes the acknowledged number to disk.
    pub fn settle(&mut self) {
        if let Some(durable) = &mut self.disk {
            durable.disk.write_cursor();
        }
    }

    /// Whether no message waits here.
    pub fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Returns how many messages wait here.
    pub fn waiting(&self) -> u64 {
        let on_disk = self.disk.as_ref().map_or(0, |durable| durable.disk.unread() + durable.unwritten.len() as u64);
        self.fresh.len() as u64 + on_disk
    }

    /// Closes the outbox while `on_their_way` messages are in flight; returns how many messages are lost.
    pub fn close(mut self, on_their_way: u64) -> u64 {
        match self.disk.take() {
            None => on_their_way + self.fresh.len() as u64,
            Some(durable) => {
                durable.disk.close();
                (durable.unwritten.len() + durable.memory_only.len()) as u64
            }
        }
    }

    /// Writes new messages to disk. What can be sent at once stays in memory as well.
    fn write(&mut self, counters: &Counters) {
        let Some(Durable { disk, unwritten, .. }) = &mut self.disk else { return };
        let was_read = disk.unread() == 0;
        if unwritten.is_empty() || !disk.write(unwritten) {
            return;
        }
        if was_read && self.fresh.len() + unwritten.len() <= WINDOW {
            disk.pass_over();
            self.fresh.extend(unwritten.drain(..).map(|unwritten| unwritten.message));
        }
        unwritten.clear();
        disk.tell(counters);
    }
}

fn queued(number: u64, published: &Published) -> QueuedMessage {
    let message = published.message();
    let line = published.line();
    let line = line.slice(..line.len() - usize::from(line.ends_with(b"\n")));
    QueuedMessage { number, id: message.id.clone(), camera: Arc::clone(&message.camera), line }
}
