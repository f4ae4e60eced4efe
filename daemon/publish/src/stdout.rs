//! Writes JSON lines to standard output.
//!
//! The thread never waits in write(2): it polls first and writes at most a pipe's atomic size. A reader that has stopped
//! reading (a pager, a stuck program) therefore cannot delay the end of the daemon. Standard output stays in blocking mode,
//! because non-blocking mode would apply to every process that shares it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use visiond_system::outage::{Outage, explain};
use visiond_telemetry::trace;

use super::poll::{entry, poll};
use super::queue::{Counters, Popped, Queue};
use super::sink::{Opening, Sink, SinkEnd, SinkError, SinkType};

/// PIPE_BUF: how many bytes a pipe accepts without waiting once poll(2) reports it as writable.
const CHUNK_BYTES: usize = 4096;

/// How often the sink checks for the end of the daemon.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct StdoutSink {
    output: File,
    outage: Outage,
    /// The rest of a line that was written in part; it goes out before anything else.
    tail: Vec<u8>,
}

/// Why a line could not be written.
enum WriteFailure {
    ReaderGone,
    /// The deadline at the end has passed.
    Overdue,
    Other(io::Error),
}

/// Standard output, which has no keys of its own.
pub struct StandardOutput;

impl SinkType for StandardOutput {
    fn place(&self) -> String {
        "standard output".to_owned()
    }

    fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>, SinkError> {
        Ok(Box::new(StdoutSink::open(&opening.sink.name)?))
    }
}

impl StdoutSink {
    fn open(name: &str) -> Result<Self, SinkError> {
        let output = io::stdout().as_fd().try_clone_to_owned();
        let output = output.map_err(|error| {
            let remedy = "start visiond with one, or configure another sink";
            SinkError::certain("type", format!("cannot use standard output: {error}; {remedy}"))
        })?;
        Ok(Self::new(name, output.into()))
    }

    fn new(name: &str, output: File) -> Self {
        Self { output, outage: Outage::new(label(name)), tail: Vec::new() }
    }

    /// Completes a line that was written in part, then writes this one; counts each complete line.
    ///
    /// A line that was only partly written is completed later, and is not an error yet.
    fn write(&mut self, line: &[u8], queue: &Queue) -> Result<(), WriteFailure> {
        self.write_tail(queue)?;
        match self.write_all(line, queue) {
            Ok(()) => Counters::add(&queue.counters.written, 1),
            Err((rest, WriteFailure::Other(_))) if rest < line.len() => self.tail = line[line.len() - rest..].to_vec(),
            Err((_, failure)) => return Err(failure),
        }
        Ok(())
    }

    fn write_tail(&mut self, queue: &Queue) -> Result<(), WriteFailure> {
        if self.tail.is_empty() {
            return Ok(());
        }
        let tail = std::mem::take(&mut self.tail);
        self.write_all(&tail, queue).map_err(|(rest, failure)| {
            self.tail = tail[tail.len() - rest..].to_vec();
            failure
        })?;
        Counters::add(&queue.counters.written, 1);
        Ok(())
    }

    /// Writes all of `bytes`; on an error returns how many are left, and why.
    fn write_all(&mut self, mut bytes: &[u8], queue: &Queue) -> Result<(), (usize, WriteFailure)> {
        while !bytes.is_empty() {
            let mut ready = [entry(&self.output, libc::POLLOUT)];
            poll(&mut ready, Some(LOOK_AGAIN)).map_err(|error| (bytes.len(), WriteFailure::Other(error)))?;
            let written = match ready[0].revents {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => self.output.write(&bytes[..bytes.len().min(CHUNK_BYTES)]),
            };
            let failure = match written {
                Ok(n) => {
                    bytes = &bytes[n..];
                    continue;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::BrokenPipe => WriteFailure::ReaderGone,
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock if !queue.is_overdue() => continue,
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => WriteFailure::Overdue,
                    _ => WriteFailure::Other(error),
                },
            };
            return Err((bytes.len(), failure));
        }
        Ok(())
    }

    /// Whether the pipe's other end is closed. poll(2) reports this even when there is nothing to write.
    fn reader_is_gone(&self) -> bool {
        let mut ready = [entry(&self.output, 0)];
        poll(&mut ready, Some(Duration::ZERO)).is_ok() && ready[0].revents & (libc::POLLERR | libc::POLLHUP) != 0
    }
}

impl Sink for StdoutSink {
    fn run(mut self: Box<Self>, queue: &Queue) -> SinkEnd {
        loop {
            let message = match queue.pop(Some(LOOK_AGAIN)) {
                Popped::Message(message) => message,
                Popped::Configured(config) => {
                    self.outage.rename(label(&config.name));
                    continue;
                }
                Popped::TimedOut if self.reader_is_gone() => return SinkEnd::ReaderGone,
                Popped::TimedOut => continue,
                Popped::Closed => {
                    if self.write_tail(queue).is_err() {
                        Counters::add(&queue.counters.failed, 1);
                    }
                    return SinkEnd::Closed;
                }
            };
            if !self.outage.may_try(Instant::now()) {
                self.outage.lost(1);
                Counters::add(&queue.counters.failed, 1);
                continue;
            }
            let _trace = trace::work_on("write", message.topic(), message.sequence());
            match self.write(message.line(), queue) {
                Ok(()) => {
                    self.outage.recovered(Instant::now());
                    queue.counters.report_outage(&self.outage);
                }
                Err(WriteFailure::Other(error)) => {
                    self.outage.failed(&explain(&error), Instant::now());
                    queue.counters.report_outage(&self.outage);
                    self.outage.lost(1);
                    Counters::add(&queue.counters.failed, 1);
                }
                Err(WriteFailure::Overdue) => {
                    Counters::add(&queue.counters.unsent, 1);
                    return SinkEnd::Closed;
                }
                Err(WriteFailure::ReaderGone) => {
                    Counters::add(&queue.counters.failed, 1);
                    return SinkEnd::ReaderGone;
                }
            }
        }
    }
}

fn label(name: &str) -> String {
    format!("sink {name}: standard output")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::io::{BufRead, BufReader, Read};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use visiond_config::types::WhenFull;
    use visiond_message::Published;
    use visiond_message::testing::door_message as message;
    use visiond_system::stop::Stop;
    use visiond_system::testing::TinyDisk;
    use visiond_system::testing::{finishes, hang, wait_until};

    fn queue_of(count: u64) -> Queue {
        let queue = Queue::new(count as usize, WhenFull::DropOldest, &Stop::new().unwrap());
        for sequence in 0..count {
            queue.push(&Arc::new(Published::new(message(sequence, 3))), || ());
        }
        queue
    }

    fn sink(output: impl Into<OwnedFd>) -> Box<StdoutSink> {
        Box::new(StdoutSink::new("stdout", output.into().into()))
    }

    #[test]
    fn a_reader_gets_every_line_and_its_leaving_is_told() {
        let (reader, writer) = io::pipe().unwrap();
        let queue = Arc::new(queue_of(500));
        let thread = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || sink(writer).run(&queue))
        };
        let mut lines = BufReader::new(reader).lines();
        for sequence in 0..500 {
            let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            assert_eq!(line["sequence"], sequence);
        }
        // From here on nothing is written; the sink still notices the closed pipe.
        drop(lines);
        assert_eq!(thread.join().unwrap(), SinkEnd::ReaderGone);
        assert_eq!(queue.counters.written.load(Ordering::Relaxed), 500);
    }

    #[test]
    fn a_reader_that_stopped_reading_does_not_hold_up_the_end() {
        let (reader, writer) = io::pipe().unwrap();
        let queue = queue_of(2000);
        queue.close(Instant::now() + Duration::from_millis(300));
        assert_eq!(finishes("the end", move || sink(writer).run(&queue)), SinkEnd::Closed);
        drop(reader);
    }

    #[test]
    fn a_full_device_loses_messages_by_count_and_nothing_else() {
        let queue = queue_of(20);
        queue.close(hang());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(sink(full).run(&queue), SinkEnd::Closed);
        assert_eq!(queue.counters.failed.load(Ordering::Relaxed), 20);
        assert!(queue.counters.outage.lock().as_ref().is_some_and(|why| why.contains("No space left")));
        assert_eq!(queue.counters.written.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_file_on_a_full_disk_gets_the_rest_of_its_last_line_once_there_is_room() {
        let Some(disk) = TinyDisk::mount(32 * 1024) else { return };
        let (path, ballast) = (disk.join("out.jsonl"), disk.join("ballast"));
        std::fs::write(&ballast, vec![0; 16 * 1024]).unwrap();
        let queue = Arc::new(queue_of(100));
        let output = std::fs::File::create(&path).unwrap();
        let thread = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || sink(output).run(&queue))
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        wait_until("the full disk", || queue.waiting() == 0 && count(&queue.counters.failed) > 0);
        std::fs::remove_file(&ballast).unwrap();
        // The sink retries the disk after a pause; messages until then are lost.
        let (mut pushed, before) = (100, count(&queue.counters.written));
        wait_until("room to be found", || {
            queue.push(&Arc::new(Published::new(message(pushed, 3))), || ());
            pushed += 1;
            wait_until("it to be taken", || queue.waiting() == 0);
            count(&queue.counters.written) > before
        });
        queue.close(hang());
        assert_eq!(thread.join().unwrap(), SinkEnd::Closed);
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).count();
        assert!(text.ends_with('\n') && whole == text.lines().count(), "half a line");
        assert_eq!(queue.counters.written.load(Ordering::Relaxed), whole as u64);
        assert_eq!(whole as u64 + queue.counters.failed.load(Ordering::Relaxed), pushed);
    }

    #[test]
    fn a_closed_output_in_the_middle_is_no_error_but_an_end() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = queue_of(2000);
        let thread = std::thread::spawn(move || sink(writer).run(&queue));
        reader.read_exact(&mut [0; 10_000]).unwrap();
        drop(reader);
        assert_eq!(thread.join().unwrap(), SinkEnd::ReaderGone);
    }
}
