//! Detections on their way out: the message, the sinks and their queues.
//!
//! A sink is a file here, a thread, and a bounded queue of its own, so that none slows the lane or another. What leaves is
//! described in `docs/message.md`.

mod file;
pub mod message;
pub mod outage;
mod poll;
mod queue;
mod stdout;
mod unix;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::config::types::{SinkConfig, SinkKind};
use crate::logging::{self, Subject};
use crate::pipeline::stop::Stop;
use message::Message;
use queue::{Published, Queue};

/// A sink cannot be opened, or none is left to write to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PublishError {
    /// A sink's output cannot be opened.
    #[error("sink {sink}: {reason}")]
    Open {
        /// The sink's name.
        sink: String,
        /// A sentence with its remedy.
        reason: String,
    },
    /// The last sink's reader is gone.
    #[error("the reader of standard output is gone, and no other sink is configured: add a [[sink]] that stays")]
    ReaderGone,
}

/// All sinks, running.
#[derive(Debug)]
pub struct Publisher {
    outlets: Vec<Outlet>,
    shared: Arc<Shared>,
}

/// What the sinks' threads tell the rest.
#[derive(Debug)]
struct Shared {
    /// Sinks that have not ended for good.
    open: AtomicUsize,
    failure: OnceLock<PublishError>,
    stop: Stop,
}

/// One sink with its queue and thread.
#[derive(Debug)]
struct Outlet {
    name: String,
    kind: &'static str,
    cameras: Vec<String>,
    only_detections: bool,
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How a sink's thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The queue was closed, and all that could be written is.
    Closed,
    /// The reader is gone for good.
    ReaderGone,
}

/// What every sink does.
trait Sink: Send {
    /// Writes what comes until the queue is closed and empty or overdue, or until nobody can ever read again.
    fn run(self: Box<Self>, queue: &Queue) -> Ended;
}

/// What became of one sink's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkCounts {
    /// The sink's name.
    pub name: String,
    /// stdout, file or unix.
    pub kind: &'static str,
    /// Waiting now.
    pub waiting: usize,
    /// Taken into the queue.
    pub queued: u64,
    /// Written; by a socket: handed to whoever was connected.
    pub written: u64,
    /// Turned away by a full queue.
    pub dropped_full: u64,
    /// Lost because the output could not be written.
    pub failed: u64,
    /// Still waiting when the time to end was over.
    pub unsent: u64,
    /// Socket: readers connected now.
    pub readers: u64,
    /// Socket: messages that one reader or another was too slow for; each reader's loss counts.
    pub reader_lost: u64,
    /// Socket: readers turned away because there were too many.
    pub readers_refused: u64,
}

impl SinkCounts {
    /// Messages that this sink did not pass on, by whatever cause. Slow readers' losses are not among them.
    pub fn lost(&self) -> u64 {
        self.dropped_full + self.failed + self.unsent
    }
}

impl Publisher {
    /// Opens every sink and starts its thread.
    ///
    /// Fails when an output can never work as configured (a missing folder, a socket that another process serves). What
    /// may mend itself (a full disk) is logged and tried again. When the only sinks left are standard outputs without a
    /// reader, `stop` is raised and [`Publisher::failure`] says so.
    pub fn start(sinks: &[SinkConfig], stop: &Stop) -> Result<Self, PublishError> {
        survive_size_limits();
        let opened = sinks.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let open = AtomicUsize::new(sinks.len());
        let shared = Arc::new(Shared { open, failure: OnceLock::new(), stop: stop.clone() });
        let mut publisher = Self { outlets: Vec::new(), shared };
        for (config, sink) in sinks.iter().zip(opened) {
            // On failure the publisher is dropped, which ends the threads started so far.
            let outlet = publisher.spawn(config, sink)?;
            publisher.outlets.push(outlet);
        }
        Ok(publisher)
    }

    /// Hands a message to every sink that wants it. Never waits, except for a sink with `when_full = "block"`.
    pub fn publish(&self, message: &Arc<Message>) {
        let mut published = None;
        for outlet in self.outlets.iter().filter(|outlet| outlet.wants(message)) {
            let published = published.get_or_insert_with(|| Arc::new(Published::new(Arc::clone(message))));
            outlet.queue.push(published);
        }
    }

    /// What became of each sink's messages so far.
    pub fn counts(&self) -> Vec<SinkCounts> {
        self.outlets.iter().map(Outlet::counts).collect()
    }

    /// Why `stop` was raised by the sinks, if it was; the daemon then ends with [`crate::exit::Exit::Output`].
    pub fn failure(&self) -> Option<&PublishError> {
        self.shared.failure.get()
    }

    /// Writes out what waits, ends every thread by `deadline`, logs what was lost, and tells the final counts.
    ///
    /// Messages published afterwards count as unsent. A second call only tells the counts.
    pub fn close(&self, deadline: Instant) -> Vec<SinkCounts> {
        for outlet in &self.outlets {
            outlet.queue.close(deadline);
        }
        for outlet in &self.outlets {
            outlet.join(deadline);
        }
        self.counts()
    }

    fn spawn(&self, config: &SinkConfig, sink: Box<dyn Sink>) -> Result<Outlet, PublishError> {
        let queue = Arc::new(Queue::new(config.queue, config.when_full, &self.shared.stop));
        let kind = match config.kind {
            SinkKind::Stdout => "stdout",
            SinkKind::File(_) => "file",
            SinkKind::Unix(_) => "unix",
        };
        let thread = {
            let (queue, shared, name) = (Arc::clone(&queue), Arc::clone(&self.shared), config.name.clone());
            // The kernel cuts thread names at 15 bytes.
            std::thread::Builder::new().name(format!("sink-{kind}")).spawn(move || {
                logging::about(Subject::Sink, name.as_str());
                match sink.run(&queue) {
                    Ended::Closed => queue.die(|counters| &counters.unsent),
                    Ended::ReaderGone => {
                        queue.die(|counters| &counters.failed);
                        shared.reader_gone(&name);
                    }
                }
            })
        };
        let reason = |error: std::io::Error| format!("cannot start its thread: {error}");
        let thread = thread.map_err(|error| PublishError::Open { sink: config.name.clone(), reason: reason(error) })?;
        Ok(Outlet {
            name: config.name.clone(),
            kind,
            cameras: config.cameras.clone(),
            only_detections: config.only_detections,
            queue,
            thread: Mutex::new(Some(thread)),
        })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.close(Instant::now());
    }
}

impl Shared {
    fn reader_gone(&self, sink: &str) {
        if self.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Set once: the counter comes to zero once.
            let _ = self.failure.set(PublishError::ReaderGone);
            self.stop.raise();
        } else {
            log::warn!("sink {sink}: the reader of standard output is gone; its messages are lost from here on");
        }
    }
}

impl Outlet {
    fn wants(&self, message: &Message) -> bool {
        (self.cameras.is_empty() || self.cameras.iter().any(|camera| **camera == *message.camera))
            && !(self.only_detections && message.detections.is_empty())
    }

    fn counts(&self) -> SinkCounts {
        let counters = &self.queue.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        SinkCounts {
            name: self.name.clone(),
            kind: self.kind,
            waiting: self.queue.waiting(),
            queued: read(&counters.queued),
            written: read(&counters.written),
            dropped_full: read(&counters.dropped_full),
            failed: read(&counters.failed),
            unsent: read(&counters.unsent),
            readers: read(&counters.readers),
            reader_lost: read(&counters.reader_lost),
            readers_refused: read(&counters.readers_refused),
        }
    }

    /// Waits for the thread until a moment after `deadline`; one that hangs in the system is left behind.
    fn join(&self, deadline: Instant) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let patience = deadline.max(Instant::now()) + Duration::from_millis(150);
        while !thread.is_finished() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(2));
        }
        if !thread.is_finished() {
            log::error!("sink {}: its output does not answer; left behind", self.name);
            self.queue.die(|counters| &counters.unsent);
        } else if thread.join().is_err() {
            log::error!("sink {}: its thread panicked, which is a fault of visiond: please report it", self.name);
            self.queue.die(|counters| &counters.failed);
        }
        let counts = self.counts();
        if counts.lost() > 0 {
            log::warn!(
                "sink {}: {} messages lost of {}: {} by a full queue, {} by failed writes, {} unsent at the end",
                self.name,
                counts.lost(),
                counts.lost() + counts.written,
                counts.dropped_full,
                counts.failed,
                counts.unsent,
            );
        }
    }
}

/// Makes a write beyond the process's file size limit (`ulimit -f`) an error of that write, not the end of the process.
fn survive_size_limits() {
    // SAFETY: SIG_IGN is a valid disposition for SIGXFSZ, and setting it runs no code of ours in a handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

fn open(config: &SinkConfig) -> Result<Box<dyn Sink>, PublishError> {
    let name = &config.name;
    let opened: Result<Box<dyn Sink>, String> = match &config.kind {
        SinkKind::Stdout => stdout::Stdout::open(name).map(|sink| Box::new(sink) as _),
        SinkKind::File(config) => file::FileSink::open(name, config).map(|sink| Box::new(sink) as _),
        SinkKind::Unix(config) => unix::UnixSink::open(name, config).map(|sink| Box::new(sink) as _),
    };
    opened.map_err(|reason| PublishError::Open { sink: name.clone(), reason })
}

#[cfg(test)]
pub mod tests;
