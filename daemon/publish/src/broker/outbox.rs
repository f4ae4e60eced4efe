//! Holds messages until the window has room: in memory or, for a durable sink, in its spool.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use visiond_config::types::SinkConfig;
use visiond_message::Published;
use visiond_system::outage::IfUnusable;

use super::spool_writer::SpoolWriter;
use super::{QueuedMessage, WINDOW, WINDOW_BYTES};
use crate::queue::Counters;
use crate::sink::SinkError;
use crate::spool::Spool;

pub struct Outbox {
    next_number: u64,
    /// Messages in memory, which a durable sink also has on disk. They go first.
    fresh: VecDeque<QueuedMessage>,
    /// Of a durable sink.
    pub(super) spool_writer: Option<SpoolWriter>,
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
    /// A spool accepts any number. While writes to the disk fail, a durable sink behaves like one without a spool: it accepts
    /// what can be sent at once, and leaves the rest in its queue.
    pub fn may_take(&self, room: usize) -> usize {
        let Some(writer) = &self.spool_writer else {
            let full = bytes(self.fresh.iter()) >= WINDOW_BYTES;
            return if full { 0 } else { room.saturating_sub(self.fresh.len()) };
        };
        match &writer.spool {
            // Messages on disk go first, and their number is not known yet.
            None => 0,
            Some(_) if writer.unwritten.is_empty() => usize::MAX,
            Some(spool) if !spool.is_read() => 0,
            Some(_) if bytes(writer.unwritten.iter().map(|(message, _)| message)) >= WINDOW_BYTES => 0,
            Some(_) => room.saturating_sub(self.fresh.len() + writer.unwritten.len()),
        }
    }

    /// Accepts messages and numbers them.
    pub fn put(&mut self, messages: &[Arc<Published>], counters: &Counters) {
        if let Some(spool) = self.spool_writer.as_ref().and_then(|writer| writer.spool.as_ref()) {
            self.next_number = self.next_number.max(spool.next_number());
        }
        for message in messages {
            let queued = queued(self.next_number, message);
            self.next_number += 1;
            match &mut self.spool_writer {
                Some(writer) => {
                    if !writer.fits(&queued) {
                        Counters::add(&counters.failed, 1);
                        continue;
                    }
                    writer.unwritten.push_back((queued, message.sequence()));
                }

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
            // The spool cannot be read at the moment, and its messages go first.
            return None;
        }
        // A message stays here for longer than a call only while it cannot be written to disk.
        let (message, _) = writer.unwritten.pop_front()?;
        if let Some(spool) = &mut writer.spool {
            spool.skip_numbers(message.number + 1);
        }
        writer.memory_only.insert(message.number);
        Counters::add(&counters.memory_only, 1);
        Some(message)
    }

    /// Notes that the broker has the message of this number, and everything up to `through`.
    pub fn acknowledge(&mut self, number: u64, through: u64) {
        let Some(writer) = &mut self.spool_writer else { return };
        writer.memory_only.remove(&number);
        if let Some(spool) = &mut writer.spool {
            spool.acknowledge(through);
        }
    }

    /// Whether a message that was taken is also on disk.
    pub fn is_on_disk(&self, number: u64) -> bool {
        self.spool_writer.as_ref().is_some_and(|writer| !writer.memory_only.contains(&number))
    }

    /// Reads messages again that were taken before: see [`Spool::read_again`]. `None` if they cannot be read now.
    pub fn read_again(&mut self, numbers: &[u64]) -> Option<(Vec<QueuedMessage>, usize)> {
        self.spool_writer.as_mut()?.read_again(numbers)
    }

    /// Returns the smallest number that the spool still has.
    pub fn first_number(&self) -> Option<u64> {
        self.spool_writer.as_ref()?.spool.as_ref()?.first_number()
    }

    /// Counts messages that were taken earlier and that the spool has dropped since.
    pub fn count_dropped(&mut self, dropped: u64) {
        if let Some(spool) = self.spool_writer.as_mut().and_then(|writer| writer.spool.as_mut()) {
            spool.dropped += dropped;
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

    /// Writes new messages to disk. Messages that can be sent at once also stay in memory.
    fn write(&mut self, counters: &Counters) {
        let Some(writer) = &mut self.spool_writer else { return };
        let was_read = writer.spool.as_ref().is_none_or(Spool::is_read);
        if writer.unwritten.is_empty() || !writer.write() {
            return;
        }
        if let Some(spool) = &mut writer.spool
            && was_read
            && self.fresh.len() + writer.unwritten.len() <= WINDOW
            && bytes(self.fresh.iter()) + bytes(writer.unwritten.iter().map(|(message, _)| message)) <= WINDOW_BYTES
        {
            spool.pass_over();
            self.fresh.extend(writer.unwritten.drain(..).map(|(message, _)| message));
        }
        writer.unwritten.clear();
        writer.report(counters);
    }
}

fn bytes<'m>(messages: impl Iterator<Item = &'m QueuedMessage>) -> usize {
    messages.map(|message| message.line.len()).sum()
}

fn queued(number: u64, published: &Published) -> QueuedMessage {
    let line = published.line();
    let line = line.slice(..line.len() - usize::from(line.ends_with(b"\n")));
    QueuedMessage { number, id: published.id().into(), camera: Arc::clone(published.topic()), line }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use visiond_config::types::Config;
    use visiond_message::testing::door_message;

    use super::*;

    fn outbox(spool: Option<&Path>) -> Outbox {
        let spool = spool.map(|folder| format!("durable = true\nspool_directory = \"{}\"", folder.display()));
        let text = format!("[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://b\"\n{}\n", spool.unwrap_or_default());
        let config = Config::parse(&text, Path::new("v.toml")).map_err(|errors| errors.to_string()).unwrap();
        Outbox::open(&config.sinks[0], IfUnusable::Refuse).unwrap()
    }

    fn put(outbox: &mut Outbox, sequences: std::ops::Range<u64>) {
        let messages: Vec<_> = sequences.map(|n| Arc::new(Published::new(door_message(n, 1)))).collect();
        outbox.put(&messages, &Counters::default());
    }

    fn taken(outbox: &mut Outbox) -> Vec<u64> {
        std::iter::from_fn(|| outbox.take(&Counters::default())).map(|message| message.number).collect()
    }

    #[test]
    fn without_a_spool_it_takes_what_the_window_has_room_for_and_loses_the_rest_with_the_connection() {
        let mut outbox = outbox(None);
        assert!(!outbox.is_durable() && outbox.meanwhile().contains("wait in the queue"));
        assert_eq!((outbox.may_take(3), outbox.waiting(), outbox.due()), (3, 0, None));
        put(&mut outbox, 0..2);
        assert_eq!((outbox.may_take(3), outbox.may_take(1), outbox.waiting()), (1, 0, 2));
        let first = outbox.take(&Counters::default()).unwrap();
        assert_eq!((first.number, &*first.camera, first.line.ends_with(b"}")), (1, "door", true));
        put(&mut outbox, 2..4);
        assert_eq!(outbox.waiting(), 3);
        assert_eq!(outbox.close(5), 8, "those in flight, and those that wait");
    }

    #[test]
    fn with_a_spool_it_takes_everything_and_keeps_what_was_not_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("spool");
        let mut first = outbox(Some(&directory));
        assert!(first.is_durable() && first.meanwhile().contains("kept in the spool"));
        assert_eq!(first.may_take(0), usize::MAX);
        put(&mut first, 0..5);
        assert_eq!((first.waiting(), taken(&mut first)), (5, vec![1, 2, 3, 4, 5]));
        first.acknowledge(1, 1);
        first.acknowledge(2, 2);
        first.settle();
        assert_eq!(first.close(3), 0, "they are on disk");
        let mut next = outbox(Some(&directory));
        assert_eq!((next.waiting(), taken(&mut next)), (3, vec![3, 4, 5]));
        put(&mut next, 5..6);
        assert_eq!(taken(&mut next), [6], "numbers go on");
        assert_eq!(next.close(4), 0);
    }

    #[test]
    fn what_the_window_holds_stays_in_memory_and_more_is_read_from_disk() {
        let counters = Counters::default();
        for (sizes, in_memory, on_disk) in
            [(&[256][..], 256, 0), (&[257], 0, 257), (&[200, 56], 256, 0), (&[200, 57], 200, 57), (&[257, 1], 0, 258)]
        {
            let folder = tempfile::tempdir().unwrap();
            let mut outbox = outbox(Some(folder.path()));
            let mut next = 0;
            for size in sizes {
                put(&mut outbox, next..next + size);
                next += size;
            }
            let unread = |outbox: &Outbox| outbox.spool_writer.as_ref().unwrap().spool.as_ref().unwrap().unread();
            assert_eq!(
                (outbox.fresh.len(), unread(&outbox), outbox.waiting()),
                (in_memory, on_disk, next),
                "{sizes:?}"
            );
            assert!(outbox.due().is_some(), "a sync");
            assert_eq!(taken(&mut outbox), (1..=next).collect::<Vec<_>>());
            outbox.attend(&counters);
            assert!(counters.spool.lock().as_ref().is_some_and(|spool| spool.records == next));
        }
    }

    #[test]
    fn while_the_disk_refuses_it_takes_what_can_be_sent_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut outbox = outbox(Some(folder.path()));
        put(&mut outbox, 0..2);
        let refused = |outbox: &mut Outbox, numbers: std::ops::Range<u64>| {
            let messages: Vec<_> = numbers.map(|n| (queued(n, &Published::new(door_message(n, 1))), n)).collect();
            outbox.spool_writer.as_mut().unwrap().unwritten.extend(messages);
        };
        refused(&mut outbox, 3..6);
        assert_eq!((outbox.may_take(10), outbox.may_take(5), outbox.may_take(1), outbox.waiting()), (5, 0, 0, 5));
        assert_eq!(taken(&mut outbox), [1, 2, 3, 4, 5]);
        let memory_only =
            |outbox: &Outbox| outbox.spool_writer.as_ref().unwrap().memory_only.iter().copied().collect::<Vec<_>>();
        assert_eq!(memory_only(&outbox), [3, 4, 5]);
        outbox.acknowledge(4, 0);
        assert_eq!(memory_only(&outbox), [3, 5]);
        put(&mut outbox, 5..6);
        assert_eq!(taken(&mut outbox), [6], "numbers go on");
        // Messages on disk go first.
        put(&mut outbox, 6..300);
        refused(&mut outbox, 301..303);
        assert_eq!(outbox.may_take(1000), 0);
        let writer = outbox.spool_writer.as_mut().unwrap();
        writer.configure(&visiond_config::types::SinkConfig { spool_bytes: 1 << 30, ..Default::default() });
        assert_eq!(taken(&mut outbox).len(), 296);
        assert_eq!(outbox.close(0), 4, "3, 5 and the last two were never on disk");
    }
}
