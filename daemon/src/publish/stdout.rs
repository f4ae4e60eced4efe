//! JSON lines on standard output, or on whatever descriptor stands there.
//!
//! The thread never waits in write(2): it polls first and writes at most a pipe's atomic size, so that a reader that has
//! stopped reading (a pager, a stuck program) cannot hold up the end of the daemon. Standard output is not switched to
//! non-blocking mode, because that would switch it for every process that shares it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::poll::{entry, poll};
use super::queue::{Counters, Popped, Queue};
use super::{Ended, Sink};

/// What a pipe takes without waiting once poll(2) calls it writable. PIPE_BUF.
const CHUNK_BYTES: usize = 4096;

/// How long until the end of the daemon is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long after a failed write the next is tried.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The sink of `type = "stdout"`.
#[derive(Debug)]
pub struct Stdout {
    name: String,
    output: File,
    /// The last write failed, and that was logged.
    broken: Option<Broken>,
    /// The end of a line whose beginning is written already; it goes before anything else.
    tail: Vec<u8>,
}

#[derive(Debug)]
struct Broken {
    reason: String,
    next_try: Instant,
    lost: u64,
}

/// Why a line is not out.
enum Failure {
    ReaderGone,
    /// The time to end is over.
    Overdue,
    Other(io::Error),
}

impl Stdout {
    /// Of the process's standard output.
    pub fn open(name: &str) -> Result<Self, String> {
        let output = io::stdout().as_fd().try_clone_to_owned();
        let output = output.map_err(|error| {
            format!("standard output cannot be used: {error}; start visiond with one, or choose another sink")
        })?;
        Ok(Self::new(name, output.into()))
    }

    fn new(name: &str, output: File) -> Self {
        Self { name: name.to_owned(), output, broken: None, tail: Vec::new() }
    }

    fn write(&mut self, line: &[u8], queue: &Queue) -> Result<(), Failure> {
        if self.broken.as_ref().is_some_and(|broken| Instant::now() < broken.next_try) {
            // Not tried, so nothing to say that was not said.
            return Err(Failure::Other(io::ErrorKind::WouldBlock.into()));
        }
        let tail = std::mem::take(&mut self.tail);
        if let Err((rest, failure)) = self.write_all(&tail, queue) {
            self.tail = tail[tail.len() - rest..].to_vec();
            return Err(failure);
        }
        if let Err((rest, failure)) = self.write_all(line, queue) {
            if rest == line.len() {
                return Err(failure);
            }
            // Begun: its rest is owed, so the line counts as written unless the daemon ends first.
            self.tail = line[line.len() - rest..].to_vec();
            if !matches!(failure, Failure::Other(_)) {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Writes everything, or tells how many bytes are left and why.
    fn write_all(&mut self, mut bytes: &[u8], queue: &Queue) -> Result<(), (usize, Failure)> {
        while !bytes.is_empty() {
            let mut ready = [entry(&self.output, libc::POLLOUT)];
            poll(&mut ready, Some(LOOK_AGAIN)).map_err(|error| (bytes.len(), Failure::Other(error)))?;
            if ready[0].revents == 0 {
                if queue.is_overdue() {
                    return Err((bytes.len(), Failure::Overdue));
                }
                continue;
            }
            match self.output.write(&bytes[..bytes.len().min(CHUNK_BYTES)]) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err((bytes.len(), Failure::ReaderGone));
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                    if queue.is_overdue() {
                        return Err((bytes.len(), Failure::Overdue));
                    }
                }
                Err(error) => return Err((bytes.len(), Failure::Other(error))),
            }
        }
        Ok(())
    }

    fn works(&mut self) {
        if let Some(broken) = self.broken.take() {
            log::info!("sink {}: standard output works again; {} messages were lost", self.name, broken.lost);
        }
    }

    fn fails(&mut self, error: &io::Error) {
        let next_try = Instant::now() + RETRY_AFTER;
        match &mut self.broken {
            Some(broken) if Instant::now() < broken.next_try => broken.lost += 1,
            Some(broken) if broken.reason == error.to_string() => {
                broken.next_try = next_try;
                broken.lost += 1;
            }
            _ => {
                log::error!("sink {}: standard output cannot be written: {error}; trying on", self.name);
                let lost = 1 + self.broken.as_ref().map_or(0, |broken| broken.lost);
                self.broken = Some(Broken { reason: error.to_string(), next_try, lost });
            }
        }
    }
}

impl Sink for Stdout {
    fn run(mut self: Box<Self>, queue: &Queue) -> Ended {
        loop {
            let message = match queue.pop(Some(LOOK_AGAIN)) {
                Popped::Message(message) => message,
                Popped::TimedOut if self.reader_is_gone() => return Ended::ReaderGone,
                Popped::TimedOut => continue,
                Popped::Closed => return Ended::Closed,
            };
            match self.write(message.line(), queue) {
                Ok(()) => {
                    self.works();
                    Counters::add(&queue.counters.written, 1);
                }
                Err(Failure::Other(error)) => {
                    self.fails(&error);
                    Counters::add(&queue.counters.failed, 1);
                }
                Err(Failure::Overdue) => {
                    Counters::add(&queue.counters.unsent, 1);
                    return Ended::Closed;
                }
                Err(Failure::ReaderGone) => {
                    Counters::add(&queue.counters.failed, 1);
                    return Ended::ReaderGone;
                }
            }
        }
    }
}

impl Stdout {
    /// Whether the pipe's other end is closed, which is told also while there is nothing to write.
    fn reader_is_gone(&self) -> bool {
        let mut ready = [entry(&self.output, 0)];
        poll(&mut ready, Some(Duration::ZERO)).is_ok() && ready[0].revents & libc::POLLERR != 0
    }
}
