//! Runs the sinks: passes each message to their queues, and changes the sinks while they run.
//!
//! [`Publisher::change`] keeps a sink whose output is unchanged: its queue, its open file and its readers stay, and it
//! receives its new settings through its queue.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_config::diff::same_output;
use visiond_config::types::{MessageKind, MqttSinkConfig, SinkConfig, SinkKind};
use visiond_ground::ranked_lock::{LockRank, RankedMutex};
use visiond_message::status::SinkCounts;
use visiond_message::{Message, Published};
use visiond_system::backoff::RateLimit;
use visiond_system::logging::{self, Subject};
use visiond_system::outage::IfUnusable;
use visiond_system::priority::{Rank, give_way};
use visiond_system::stop::Stop;
use visiond_system::threads::finished_by;

use crate::broker::SpoolWriter;
use crate::mqtt;
use crate::queue::{Counters, Queue, Removed, Succession, TooLarge};
use crate::sink::{Opening, Sink, SinkContext, SinkEnd, SinkError};
use crate::sink_types::type_of;
use crate::wake_thread::WakeThread;

/// An error of the sinks, as a whole.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PublishError {
    /// A sink's output cannot be opened.
    #[error("sink {sink}: {error}")]
    Open {
        /// The sink's name.
        sink: String,
        /// The reason, with a remedy.
        error: SinkError,
    },
    /// The system cannot start the thread that wakes the sinks.
    #[error(
        "cannot start the thread that wakes the sinks: {reason}; raise the limit of tasks (`TasksMax=`, `ulimit -u`)"
    )]
    Thread {
        /// The system's error.
        reason: String,
    },
    /// Every sink has lost its reader.
    #[error("the reader of standard output is gone and there is no other sink: add another [[sink]]")]
    ReaderGone,
}

/// All running sinks.
#[derive(Debug)]
pub struct Publisher {
    // Fields drop in order: the thread ends before the sinks that it wakes.
    wake_thread: WakeThread,
    shared: Arc<SharedSinks>,
}

/// The state that the sinks' threads and the publisher share.
#[derive(Debug)]
struct SharedSinks {
    /// Replaced as a whole, so that a lane that publishes does not hold the lock.
    sinks: RankedMutex<Arc<Vec<RunningSink>>>,
    context: SinkContext,
    failure: OnceLock<PublishError>,
    stop: Stop,
    ending: Mutex<Ending>,
}

/// What [`Publisher::hasten`] needs.
#[derive(Debug, Default)]
struct Ending {
    /// The sinks that the last change removed; they may still write out their queues.
    retired: Vec<RunningSink>,
    /// The latest deadline that a sink may have.
    latest: Option<Instant>,
}

/// A sink with its configuration.
#[derive(Debug, Clone)]
struct RunningSink {
    config: SinkConfig,
    handle: Arc<SinkHandle>,
}

#[derive(Debug)]
struct SinkHandle {
    queue: Arc<Queue>,
    gone: Arc<AtomicBool>,
    succession: Succession,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Limits the lines about messages that are too large.
    too_large: Mutex<RateLimit>,
}

/// How often to log that messages are too large.
const QUIET: Duration = Duration::from_secs(60);

/// The sinks of a new configuration; those that do not run yet are open.
pub struct PreparedSinks(Vec<(SinkConfig, Option<OpenSink>)>);

/// A sink that does not run yet.
struct OpenSink {
    sink: Box<dyn Sink>,
    succession: Succession,
}

/// Sinks that a new configuration no longer has. Close them to write out their queues.
#[must_use = "close the retired sinks, which writes out their queues"]
pub struct RetiredSinks(Vec<RunningSink>);

impl Publisher {
    /// Opens every sink and starts its thread.
    ///
    /// If only standard outputs without a reader are left, the publisher raises `stop` and [`Publisher::failure`] returns the
    /// reason.
    ///
    /// # Errors
    ///
    /// A sink's keys are wrong, or another process serves its socket. A file or a spool that cannot be used is logged and retried
    /// instead.
    pub fn start(sinks: &[SinkConfig], context: &SinkContext, stop: &Stop) -> Result<Self, PublishError> {
        survive_size_limits();
        let context = context.clone();
        let sinks_lock = RankedMutex::new(LockRank(3), Arc::default());
        let shared = SharedSinks {
            sinks: sinks_lock,
            context,
            failure: OnceLock::new(),
            stop: stop.clone(),
            ending: Mutex::default(),
        };
        let shared = Arc::new(shared);
        let woken = Arc::clone(&shared);
        let wake_thread = WakeThread::start(move || woken.wake())
            .map_err(|error| PublishError::Thread { reason: error.to_string() })?;
        let publisher = Self { shared, wake_thread };
        let RetiredSinks(none) = publisher.change(publisher.prepare(sinks, IfUnusable::Retry)?)?;
        debug_assert!(none.is_empty());
        Ok(publisher)
    }

    /// Opens the sinks to whose output no running sink writes. Does not touch the running sinks.
    ///
    /// # Errors
    ///
    /// A sink's keys are wrong or, with [`IfUnusable::Refuse`], its output can never be used as configured: its folder is
    /// missing, for example. A problem that can pass, such as a full disk, is logged and retried instead.
    pub fn prepare(&self, sinks: &[SinkConfig], if_unusable: IfUnusable) -> Result<PreparedSinks, PublishError> {
        if let Some((number, error)) = shared_spool(sinks) {
            return Err(PublishError::Open { sink: sinks[number].name.clone(), error });
        }
        let before = self.shared.sinks();
        let runs = |sink: &SinkConfig| before.iter().any(|running| same_output(&running.config, sink));
        let prepared = sinks.iter().map(|sink| {
            let opened = if runs(sink) { None } else { Some(open(sink, &self.shared.context, if_unusable)?) };
            Ok((sink.clone(), opened))
        });
        prepared.collect::<Result<_, _>>().map(PreparedSinks)
    }

    /// Switches to the prepared sinks; returns the sinks to close.
    ///
    /// # Errors
    ///
    /// The system cannot start a thread. The running sinks stay as they were.
    pub fn change(&self, prepared: PreparedSinks) -> Result<RetiredSinks, PublishError> {
        let before = self.shared.sinks();
        let mut started = RetiredSinks(Vec::new());
        let mut sinks = Vec::with_capacity(prepared.0.len());
        for (config, sink) in prepared.0 {
            let running = before.iter().find(|sink| same_output(&sink.config, &config));
            sinks.push(match (sink, running) {
                (None, Some(running)) => RunningSink { config, handle: Arc::clone(&running.handle) },
                (None, None) => continue,
                (Some(sink), _) => match self.spawn(config, sink) {
                    Ok(sink) => {
                        started.0.push(sink.clone());
                        sink
                    }
                    Err(error) => {
                        started.0.iter().for_each(|sink| sink.leave_to(&before));
                        started.close(Instant::now());
                        return Err(error);
                    }
                },
            });
        }
        for sink in &sinks {
            let same = |before: &&RunningSink| Arc::ptr_eq(&before.handle, &sink.handle);
            if before.iter().find(same).is_some_and(|before| before.config != sink.config) {
                sink.handle.queue.configure(&sink.config);
            }
        }
        let stays = |sink: &&RunningSink| sinks.iter().any(|after| Arc::ptr_eq(&after.handle, &sink.handle));
        let gone: Vec<_> = before.iter().filter(|sink| !stays(sink)).cloned().collect();
        gone.iter().for_each(|sink| sink.leave_to(&sinks));
        self.shared.ending.lock().retired.clone_from(&gone);
        *self.shared.sinks.lock() = Arc::new(sinks);
        self.shared.end_without_readers();
        Ok(RetiredSinks(gone))
    }

    /// Queues a message for every sink that wants it and for the live readers. Waits only for sinks with `when_full = "block"`.
    pub fn publish(&self, message: &Arc<Message>) {
        let published = Arc::new(Published::new(Arc::clone(message)));
        self.send(&published, &published);
    }

    /// Queues an event for every sink that wants it and for the live readers. Waits as [`Self::publish`] does.
    ///
    /// Its receipt is for sinks alone: live readers get the event without it, since they may have it for long.
    pub fn publish_event(&self, event: Published) {
        let (for_readers, event) = (Arc::new(event.without_receipt()), Arc::new(event));
        self.send(&event, &for_readers);
    }

    fn send(&self, published: &Arc<Published>, for_readers: &Arc<Published>) {
        let wanted = self.queue(published);
        if self.shared.context.live.messages().publish(for_readers) || wanted {
            self.wake_thread.call();
        }
    }

    /// Queues a message for every sink that wants it; returns whether one does.
    fn queue(&self, published: &Arc<Published>) -> bool {
        let mut wanted = false;
        for sink in self.shared.sinks().iter().filter(|sink| sink.wants(published)) {
            if let Some(too_large) = sink.handle.queue.push(published, || self.wake_thread.call()) {
                sink.report_too_large(published.camera(), &too_large);
            }
            wanted = true;
        }
        wanted
    }

    /// Returns the counters of each sink's messages.
    pub fn counts(&self) -> Vec<SinkCounts> {
        self.shared.sinks().iter().map(RunningSink::counts).collect()
    }

    /// Returns why the sinks raised `stop`, if they did. The daemon then exits with [`visiond_system::exit::Exit::Output`].
    pub fn failure(&self) -> Option<&PublishError> {
        self.shared.failure.get()
    }

    /// Writes out the queues, ends every thread by `deadline`, logs the losses, and returns the final counts.
    ///
    /// A message published afterwards counts as unsent. A second call only returns the counts.
    pub fn close(&self, deadline: Instant) -> Vec<SinkCounts> {
        self.close_queues(deadline);
        join(&self.shared.sinks())
    }

    /// Closes the queues, so that every sink writes out its own by `deadline`; does not wait.
    pub fn close_queues(&self, deadline: Instant) {
        let ending = self.shared.ending.lock();
        let deadline = ending.latest.map_or(deadline, |latest| latest.min(deadline));
        self.shared.sinks().iter().for_each(|sink| sink.handle.queue.close(deadline));
    }

    /// Brings the deadline of all sinks forward to `latest`. This applies to sinks with closed queues, to those that a change
    /// removed, and to the others once their queues are closed.
    pub fn hasten(&self, latest: Instant) {
        let mut ending = self.shared.ending.lock();
        ending.latest = Some(ending.latest.map_or(latest, |known| known.min(latest)));
        let closed = |sink: &&RunningSink| sink.handle.queue.deadline().is_some();
        let sinks = self.shared.sinks();
        ending.retired.iter().chain(sinks.iter().filter(closed)).for_each(|sink| sink.handle.queue.close(latest));
    }

    fn spawn(&self, config: SinkConfig, open: OpenSink) -> Result<RunningSink, PublishError> {
        let OpenSink { sink, succession } = open;
        let queue = Arc::new(Queue::of(&config, &self.shared.stop));
        let gone = Arc::new(AtomicBool::new(false));
        let thread = {
            let (queue, gone, shared) = (Arc::clone(&queue), Arc::clone(&gone), Arc::clone(&self.shared));
            let name = config.name.clone();
            // The kernel truncates thread names to 15 bytes.
            std::thread::Builder::new().name(format!("sink-{}", config.kind.name())).spawn(move || {
                logging::about(Subject::Sink, name.as_str());
                give_way(Rank::Batch);
                match sink.run(&queue) {
                    SinkEnd::Closed => queue.abandon(|counters| &counters.unsent),
                    SinkEnd::ReaderGone => {
                        queue.abandon(|counters| &counters.failed);
                        gone.store(true, Ordering::SeqCst);
                        if !shared.end_without_readers() {
                            log::warn!(
                                "sink {name}: the reader of standard output is gone; later messages for this sink are lost"
                            );
                        }
                    }
                }
            })
        };
        let thread = thread.map_err(|error| PublishError::Open {
            sink: config.name.clone(),
            error: SinkError::certain("type", format!("cannot start its thread: {error}")),
        })?;
        Ok(RunningSink {
            config,
            handle: Arc::new(SinkHandle {
                queue,
                gone,
                succession,
                thread: Mutex::new(Some(thread)),
                too_large: Mutex::new(RateLimit::new(QUIET)),
            }),
        })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.close(Instant::now());
    }
}

impl SharedSinks {
    fn sinks(&self) -> Arc<Vec<RunningSink>> {
        Arc::clone(&self.sinks.lock())
    }

    fn wake(&self) {
        self.sinks().iter().for_each(|sink| sink.handle.queue.wake());
        self.context.live.messages().wake();
    }

    /// Stops the daemon if every sink has lost its reader for good; returns whether it did.
    fn end_without_readers(&self) -> bool {
        let sinks = self.sinks();
        let end = !sinks.is_empty() && sinks.iter().all(|sink| sink.handle.gone.load(Ordering::SeqCst));
        if end {
            // A reason that is already set stays.
            let _ = self.failure.set(PublishError::ReaderGone);
            self.stop.raise();
        }
        end
    }
}

impl RetiredSinks {
    /// Writes out the queues, ends the threads by `deadline`, and logs the losses.
    pub fn close(self, deadline: Instant) {
        self.0.iter().for_each(|sink| sink.handle.queue.close(deadline));
        join(&self.0);
    }
}

/// Waits for the threads of sinks whose queues are closed. They share the time, no matter how many of them hang.
fn join(sinks: &[RunningSink]) -> Vec<SinkCounts> {
    let began = Instant::now();
    sinks.iter().for_each(|sink| sink.join(began));
    sinks.iter().map(RunningSink::counts).collect()
}

impl RunningSink {
    /// Informs a sink which sinks stay before it ends, because that decides what it clears.
    fn leave_to(&self, stay: &[Self]) {
        let any = |shares: fn(&MqttSinkConfig, &MqttSinkConfig) -> bool| {
            let SinkKind::Mqtt(gone) = &self.config.kind else { return false };
            stay.iter().any(|stays| matches!(&stays.config.kind, SinkKind::Mqtt(stays) if shares(gone, stays)))
        };
        let removed = Removed { shares_discovery: any(mqtt::shares_discovery) };
        if any(mqtt::shares_topics) {
            // The first reload that removes a sink is the only one.
            let _ = self.handle.succession.set(removed);
        } else {
            self.handle.queue.remove(removed);
        }
    }

    fn counts(&self) -> SinkCounts {
        let queue = &self.handle.queue;
        let counters = &queue.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = counters.shown.read(read);
        let spool = counters.spool.lock().clone();
        let lost_by_spool = spool.as_ref().map_or(0, |spool| spool.dropped);
        SinkCounts {
            name: self.config.name.clone(),
            kind: self.config.kind.name().to_owned(),
            to: type_of(&self.config.kind).place(),
            waiting: queue.waiting() as u64 + read(&counters.refused),
            capacity: self.config.queue as u64,
            lost: counts.dropped_full + counts.failed + counts.unsent + lost_by_spool,
            connected: [None, Some(false), Some(true)].get(read(&counters.connected) as usize).copied().flatten(),
            outage: counters.outage.lock().clone(),
            spool,
            ..counts
        }
    }

    fn report_too_large(&self, camera: &str, TooLarge { bytes, limit }: &TooLarge) {
        if let Some(held_back) = self.handle.too_large.lock().pass(Instant::now()) {
            let more = if held_back > 0 { format!(" (and {held_back} more)") } else { String::new() };
            log::error!(
                "sink {}: a message of camera {camera} has about {bytes} bytes, the queue holds {limit}: dropped{more}; raise \
                 queue_bytes, or lower max_detections",
                self.config.name
            );
        }
    }

    fn wants(&self, published: &Published) -> bool {
        let SinkConfig { cameras, messages, only_detections, .. } = &self.config;
        let kind = if published.frame().is_some() { MessageKind::Frames } else { MessageKind::Events };
        messages.contains(&kind)
            && (cameras.is_empty() || cameras.iter().any(|camera| **camera == **published.camera()))
            && !(*only_detections && published.is_empty())
    }

    /// Waits for the thread until shortly after `began` and the queue's deadline, then abandons a thread that hangs in a
    /// system call.
    fn join(&self, began: Instant) {
        let Some(thread) = self.handle.thread.lock().take() else { return };
        let queue = &self.handle.queue;
        // Read repeatedly, because it may be brought forward.
        let patience = || queue.deadline().map_or(began, |deadline| deadline.max(began)) + LAST_PATIENCE;
        while Instant::now() < patience() && !finished_by([&thread], patience().min(Instant::now() + LAST_PATIENCE)) {}
        if !thread.is_finished() {
            queue.abandon(|counters| &counters.unsent);
            let spool = queue.counters.spool.lock().as_ref().map(|spool| spool.records);
            let kept = match spool {
                Some(records) => format!("; {records} messages stay in its spool"),
                None => {
                    Counters::add(&queue.counters.unsent, queue.counters.in_hand());
                    String::new()
                }
            };
            log::error!("sink {}: its output does not respond; abandoning its thread{kept}", self.config.name);
        } else if thread.join().is_err() {
            log::error!("sink {}: its thread panicked, which is a bug in visiond: please report it", self.config.name);
            self.handle.queue.abandon(|counters| &counters.failed);
        }
        let counts = self.counts();
        if counts.lost > 0 {
            let kept = counts.spool.as_ref().map_or(0, |spool| spool.records);
            log::warn!(
                "sink {}: lost {} of {} messages: {} by a full queue, {} by failed writes, {} unsent at the end{}",
                self.config.name,
                counts.lost,
                counts.lost + counts.written + kept,
                counts.dropped_full,
                counts.failed,
                counts.unsent,
                counts.spool.map_or(String::new(), |spool| format!(", {} by a full spool", spool.dropped)),
            );
        }
    }
}

/// Returns why [`Publisher::prepare`] would refuse each of `sinks`, and its number among them. Opens and connects nothing.
pub fn check(sinks: &[SinkConfig]) -> Vec<(usize, SinkError)> {
    let shared = shared_spool(sinks).into_iter();
    let each = sinks.iter().enumerate().flat_map(|(number, sink)| {
        let spool = if sink.durable { SpoolWriter::check(sink) } else { Ok(()) };
        let output = type_of(&sink.kind).check();
        [output, spool].into_iter().filter_map(move |checked| Some((number, checked.err()?)))
    });
    shared.chain(each).collect()
}

/// Returns the first sink whose spool folder belongs to another sink.
fn shared_spool(sinks: &[SinkConfig]) -> Option<(usize, SinkError)> {
    let mut known: Vec<(PathBuf, &str)> = Vec::new();
    for (number, sink) in sinks.iter().enumerate().filter(|(_, sink)| sink.durable) {
        let Some(folder) = sink.spool() else { continue };
        if let Some((_, other)) = known.iter().find(|(other, _)| *other == folder) {
            let folder = folder.display();
            let reason = format!(
                "its spool {folder} is also that of sink {other}: give each sink its own `name` or `spool_directory`"
            );
            return Some((number, SinkError::certain("spool_directory", reason)));
        }
        known.push((folder, &sink.name));
    }
    None
}

/// How long after its deadline a sink's thread may take to end.
const LAST_PATIENCE: Duration = Duration::from_millis(150);

/// Makes a write beyond the process's file size limit (`ulimit -f`) return an error instead of ending the process.
fn survive_size_limits() {
    // SAFETY: SIG_IGN is a valid disposition for SIGXFSZ, and setting it runs no code of ours in a handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Opens a sink.
fn open(sink: &SinkConfig, context: &SinkContext, if_unusable: IfUnusable) -> Result<OpenSink, PublishError> {
    let succession = Succession::default();
    let opened = type_of(&sink.kind).open(&Opening { sink, context, if_unusable, succession: &succession });
    let opened = opened.map_err(|error| PublishError::Open { sink: sink.name.clone(), error })?;
    Ok(OpenSink { sink: opened, succession })
}

#[cfg(test)]
mod tests;
