//! Detections on their way out: the message, the sinks and their queues.
//!
//! A sink is a file here, a thread, and a bounded queue of its own, so that none slows the lane or another. What leaves is
//! described in `docs/message.md`.
//!
//! Sinks change while they run, see [`Publisher::change`]. One that writes to the same place as before is the same: it keeps
//! its queue, its open file or its readers, and learns what is set otherwise from its queue.

pub mod broker;
mod file;
mod mqtt;
mod nats;
mod poll;
mod queue;
mod spool;
mod stdout;
mod thin;
mod unix;
mod waker;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use visiond_config::changes::same_output;
use visiond_config::types::{SinkConfig, SinkKind};
use visiond_flow::message::{Message, Published};
use visiond_flow::sink_counts::SinkCounts;
use visiond_system::logging::{self, Subject};
use visiond_system::priority::{Rank, give_way};
use visiond_system::stop::Stop;
use visiond_system::threads::finished_by;

use broker::{BrokerSink, SinkContext};
use queue::Queue;
use waker::Waker;

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
    /// The system gives no thread to wake the sinks.
    #[error(
        "cannot start the thread that wakes the sinks: {reason}; raise the limit of tasks (`TasksMax=`, `ulimit -u`)"
    )]
    Thread {
        /// The system's words.
        reason: String,
    },
    /// The last sink's reader is gone.
    #[error("the reader of standard output is gone, and no other sink is configured: add a [[sink]] that stays")]
    ReaderGone,
}

/// All sinks, running.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
    waker: Waker,
}

/// What the sinks' threads and the rest share.
#[derive(Debug)]
struct Shared {
    /// Exchanged as a whole, so that who publishes holds no lock meanwhile.
    routes: Mutex<Arc<Vec<Route>>>,
    context: SinkContext,
    failure: OnceLock<PublishError>,
    stop: Stop,
}

/// The way to a sink, and what goes there.
#[derive(Debug)]
struct Route {
    config: SinkConfig,
    outlet: Arc<Outlet>,
}

/// One sink with its queue and thread.
#[derive(Debug)]
struct Outlet {
    queue: Arc<Queue>,
    /// Its reader is, for good.
    gone: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Sinks to be, opened where they are new.
pub struct SinkPlan(Vec<(SinkConfig, Option<Box<dyn Sink>>)>);

/// Sinks that are to be no more.
#[must_use = "what waits there is to be written out"]
pub struct Retired(Vec<Route>);

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

impl Publisher {
    /// Opens every sink and starts its thread.
    ///
    /// Fails when an output can never work as configured (a missing folder, a socket that another process serves). What
    /// may mend itself (a full disk) is logged and tried again. When the only sinks left are standard outputs without a
    /// reader, `stop` is raised and [`Publisher::failure`] says so.
    pub fn start(sinks: &[SinkConfig], context: &SinkContext, stop: &Stop) -> Result<Self, PublishError> {
        survive_size_limits();
        let context = context.clone();
        let shared = Shared { routes: Mutex::default(), context, failure: OnceLock::new(), stop: stop.clone() };
        let shared = Arc::new(shared);
        let waker = {
            let shared = Arc::clone(&shared);
            Waker::start(move || shared.wake()).map_err(|error| PublishError::Thread { reason: error.to_string() })?
        };
        let publisher = Self { shared, waker };
        let Retired(none) = publisher.change(publisher.prepare(sinks)?)?;
        debug_assert!(none.is_empty());
        Ok(publisher)
    }

    /// Opens those of `sinks` that write to a place where none does yet; nothing that runs is touched.
    pub fn prepare(&self, sinks: &[SinkConfig]) -> Result<SinkPlan, PublishError> {
        one_spool_each(sinks)?;
        let before = self.shared.routes();
        let runs = |sink: &SinkConfig| before.iter().any(|route| same_output(&route.config, sink));
        let prepared = sinks.iter().map(|sink| {
            let opened = if runs(sink) { None } else { Some(open(sink, &self.shared.context)?) };
            Ok((sink.clone(), opened))
        });
        prepared.collect::<Result<_, _>>().map(SinkPlan)
    }

    /// Makes of the sinks that run what was prepared; returns those that are to be closed. Fails, with all as it was, when
    /// the system gives no thread.
    pub fn change(&self, plan: SinkPlan) -> Result<Retired, PublishError> {
        let before = self.shared.routes();
        let mut started = Retired(Vec::new());
        let mut routes = Vec::with_capacity(plan.0.len());
        for (config, sink) in plan.0 {
            let running = before.iter().find(|route| same_output(&route.config, &config));
            let outlet = match (sink, running) {
                (None, Some(running)) => Arc::clone(&running.outlet),
                (None, None) => continue,
                (Some(sink), _) => match self.spawn(&config, sink) {
                    Ok(outlet) => {
                        let outlet = Arc::new(outlet);
                        started.0.push(Route { config: config.clone(), outlet: Arc::clone(&outlet) });
                        outlet
                    }
                    Err(error) => {
                        started.close(Instant::now());
                        return Err(error);
                    }
                },
            };
            routes.push(Route { config, outlet });
        }
        for route in &routes {
            let same = |before: &&Route| Arc::ptr_eq(&before.outlet, &route.outlet);
            if before.iter().find(same).is_some_and(|before| before.config != route.config) {
                route.outlet.queue.configure(&route.config);
            }
        }
        let stays = |route: &&Route| routes.iter().any(|after| Arc::ptr_eq(&after.outlet, &route.outlet));
        let gone = before.iter().filter(|route| !stays(route));
        let gone =
            gone.map(|route| Route { config: route.config.clone(), outlet: Arc::clone(&route.outlet) }).collect();
        *self.shared.lock() = Arc::new(routes);
        self.shared.end_without_readers();
        Ok(Retired(gone))
    }

    /// Hands a message to every sink that wants it, and to whoever reads live. Never waits, except for a sink with `when_full = "block"`.
    pub fn publish(&self, message: &Arc<Message>) {
        let published = Arc::new(Published::new(Arc::clone(message)));
        let mut wanted = false;
        for route in self.shared.routes().iter().filter(|route| route.wants(message)) {
            route.outlet.queue.push(&published, || self.waker.call());
            wanted = true;
        }
        wanted |= self.shared.context.live.feed().publish(&published);
        if wanted {
            self.waker.call();
        }
    }

    /// What became of each sink's messages so far.
    pub fn counts(&self) -> Vec<SinkCounts> {
        self.shared.routes().iter().map(Route::counts).collect()
    }

    /// Why `stop` was raised by the sinks, if it was; the daemon then ends with [`visiond_system::exit::Exit::Output`].
    pub fn failure(&self) -> Option<&PublishError> {
        self.shared.failure.get()
    }

    /// Writes out what waits, ends every thread by `deadline`, logs what was lost, and tells the final counts.
    ///
    /// Messages published afterwards count as unsent. A second call only tells the counts.
    pub fn close(&self, deadline: Instant) -> Vec<SinkCounts> {
        close(&self.shared.routes(), deadline)
    }

    fn spawn(&self, config: &SinkConfig, sink: Box<dyn Sink>) -> Result<Outlet, PublishError> {
        let queue = Arc::new(Queue::of(config, &self.shared.stop));
        let gone = Arc::new(AtomicBool::new(false));
        let thread = {
            let (queue, gone, shared) = (Arc::clone(&queue), Arc::clone(&gone), Arc::clone(&self.shared));
            let name = config.name.clone();
            // The kernel cuts thread names at 15 bytes.
            std::thread::Builder::new().name(format!("sink-{}", kind(config))).spawn(move || {
                logging::about(Subject::Sink, name.as_str());
                give_way(Rank::Batch);
                match sink.run(&queue) {
                    Ended::Closed => queue.die(|counters| &counters.unsent),
                    Ended::ReaderGone => {
                        queue.die(|counters| &counters.failed);
                        gone.store(true, Ordering::SeqCst);
                        if !shared.end_without_readers() {
                            log::warn!(
                                "sink {name}: the reader of standard output is gone; its messages are lost from here on"
                            );
                        }
                    }
                }
            })
        };
        let reason = |error: std::io::Error| format!("cannot start its thread: {error}");
        let thread = thread.map_err(|error| PublishError::Open { sink: config.name.clone(), reason: reason(error) })?;
        Ok(Outlet { queue, gone, thread: Mutex::new(Some(thread)) })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.close(Instant::now());
        self.waker.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Arc<Vec<Route>>> {
        // It is only ever exchanged, so a poisoned lock guards a good one.
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn routes(&self) -> Arc<Vec<Route>> {
        Arc::clone(&self.lock())
    }

    /// Wakes every sink that something came for, and who reads live.
    fn wake(&self) {
        self.routes().iter().for_each(|route| route.outlet.queue.wake());
        self.context.live.feed().wake();
    }

    /// Ends the daemon where it has sinks and each has lost its reader for good; tells whether.
    fn end_without_readers(&self) -> bool {
        let routes = self.routes();
        let end = !routes.is_empty() && routes.iter().all(|route| route.outlet.gone.load(Ordering::SeqCst));
        if end {
            // The first reason is as good as a later one.
            let _ = self.failure.set(PublishError::ReaderGone);
            self.stop.raise();
        }
        end
    }
}

impl Retired {
    /// Writes out what waits there, ends their threads by `deadline`, and logs what was lost.
    pub fn close(self, deadline: Instant) {
        close(&self.0, deadline);
    }
}

fn close(routes: &[Route], deadline: Instant) -> Vec<SinkCounts> {
    routes.iter().for_each(|route| route.outlet.queue.close(deadline));
    routes.iter().for_each(|route| route.join(deadline));
    routes.iter().map(Route::counts).collect()
}

fn kind(config: &SinkConfig) -> &'static str {
    match config.kind {
        SinkKind::Stdout => "stdout",
        SinkKind::File(_) => "file",
        SinkKind::Unix(_) => "unix",
        SinkKind::Mqtt(_) => "mqtt",
        SinkKind::Nats(_) => "nats",
    }
}

impl Route {
    /// What became of its messages so far.
    fn counts(&self) -> SinkCounts {
        let queue = &self.outlet.queue;
        let counters = &queue.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SinkCounts {
            name: self.config.name.clone(),
            kind: kind(&self.config),
            to: place(&self.config),
            waiting: queue.waiting(),
            capacity: self.config.queue,
            queued: read(&counters.queued),
            written: read(&counters.written),
            dropped_full: read(&counters.dropped_full),
            failed: read(&counters.failed),
            unsent: read(&counters.unsent),
            readers: read(&counters.readers),
            reader_lost: read(&counters.reader_lost),
            readers_refused: read(&counters.readers_refused),
            thinned: read(&counters.thinned),
            connected: [None, Some(false), Some(true)].get(read(&counters.connected) as usize).copied().flatten(),
            reconnects: read(&counters.reconnects),
            resent: read(&counters.resent),
            outage: counters.outage.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            spool: *counters.spool.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn wants(&self, message: &Message) -> bool {
        let SinkConfig { cameras, only_detections, .. } = &self.config;
        (cameras.is_empty() || cameras.iter().any(|camera| **camera == *message.camera))
            && !(*only_detections && message.detections.is_empty())
    }

    /// Waits for the thread until a moment after `deadline`; one that hangs in the system is left behind.
    fn join(&self, deadline: Instant) {
        let Some(thread) = self.outlet.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let patience = deadline.max(Instant::now()) + Duration::from_millis(150);
        if !finished_by([&thread], patience) {
            log::error!("sink {}: its output does not answer; left behind", self.config.name);
            self.outlet.queue.die(|counters| &counters.unsent);
        } else if thread.join().is_err() {
            log::error!(
                "sink {}: its thread panicked, which is a fault of visiond: please report it",
                self.config.name
            );
            self.outlet.queue.die(|counters| &counters.failed);
        }
        let counts = self.counts();
        if counts.lost() > 0 {
            let kept = counts.spool.map_or(0, |spool| spool.records);
            log::warn!(
                "sink {}: {} messages lost of {}: {} by a full queue, {} by failed writes, {} unsent at the end{}",
                self.config.name,
                counts.lost(),
                counts.lost() + counts.written + kept,
                counts.dropped_full,
                counts.failed,
                counts.unsent,
                counts.spool.map_or(String::new(), |spool| format!(", {} by a full spool", spool.dropped)),
            );
        }
    }
}

/// Where a sink's messages go, for people.
fn place(config: &SinkConfig) -> String {
    match &config.kind {
        SinkKind::Stdout => "standard output".to_owned(),
        SinkKind::File(file) => file.path.display().to_string(),
        SinkKind::Unix(socket) => socket.path.display().to_string(),
        SinkKind::Mqtt(broker) => broker.url.clone(),
        SinkKind::Nats(nats) => nats.url.join(", "),
    }
}

/// Two sinks cannot keep their messages in one folder.
fn one_spool_each(sinks: &[SinkConfig]) -> Result<(), PublishError> {
    let mut known: Vec<(PathBuf, &str)> = Vec::new();
    for sink in sinks.iter().filter(|sink| sink.durable) {
        let Some(folder) = sink.spool() else { continue };
        if let Some((_, other)) = known.iter().find(|(other, _)| *other == folder) {
            let folder = folder.display();
            let reason = format!(
                "its spool {folder} is that of sink {other} too: give each its own `name`, or its own `spool_directory`"
            );
            return Err(PublishError::Open { sink: sink.name.clone(), reason });
        }
        known.push((folder, &sink.name));
    }
    Ok(())
}

/// Makes a write beyond the process's file size limit (`ulimit -f`) an error of that write, not the end of the process.
fn survive_size_limits() {
    // SAFETY: SIG_IGN is a valid disposition for SIGXFSZ, and setting it runs no code of ours in a handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Opens a sink. One that talks to a broker is a [`broker::BrokerSink`] around the courier of its protocol.
fn open(sink: &SinkConfig, context: &SinkContext) -> Result<Box<dyn Sink>, PublishError> {
    let name = &sink.name;
    let opened: Result<Box<dyn Sink>, String> = match &sink.kind {
        SinkKind::Stdout => stdout::Stdout::open(name).map(|sink| Box::new(sink) as _),
        SinkKind::File(config) => file::FileSink::open(name, config).map(|sink| Box::new(sink) as _),
        SinkKind::Unix(config) => unix::UnixSink::open(name, config).map(|sink| Box::new(sink) as _),
        SinkKind::Mqtt(config) => mqtt::Mqtt::open(sink, config, context.clone())
            .and_then(|courier| BrokerSink::open(sink, courier))
            .map(|sink| Box::new(sink) as _),
        SinkKind::Nats(config) => {
            let courier = nats::NatsCourier::new(name, config, context);
            BrokerSink::open(sink, courier).map(|sink| Box::new(sink) as _)
        }
    };
    opened.map_err(|reason| PublishError::Open { sink: name.clone(), reason })
}

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod tests;
