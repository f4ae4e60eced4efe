//! Joins the results of a camera's models about a frame to one message: `group = true`.
//!
//! It has no thread. The camera announces each frame ([`Joiner::announce`]) and lends its ticket to the lanes with it. A lane adds its
//! result and drops the ticket; a lane that drops the frame for any reason drops the ticket too. When no lane has a ticket of the oldest
//! frame, or the frame has waited for too long, the next thread that calls [`Joiner::flush`] publishes its message: a lane after each of
//! its frames, and the camera after each of its own. Messages therefore leave in the order of the frames, one for each.
//!
//! Two locks: that of the groups is held for moments. The one for the order is taken first and held while messages are published, so
//! that two threads cannot swap them; a sink that must lose nothing may take long. A thread that finds it taken goes on: the one that
//! has it looks again before it is done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use visiond_message::Message;
use visiond_system::backoff::RateLimit;
use visiond_system::stop::Stop;
use visiond_telemetry::metrics::{CameraMetrics, DropCause};

use crate::outlet::Outlet;

/// How often to log results that come too late.
const QUIET: Duration = Duration::from_secs(60);

/// Frames that may wait, in order to bound the memory: 200 ms at 300 frames per second. With more, the oldest no longer waits, or the
/// source does, if it waits for its models.
const MOST_WAITING: usize = 64;

/// How often a camera that waits for room looks whether it shall stop.
const ROOM_POLL: Duration = Duration::from_millis(50);

/// Joins the messages of one camera. Outlives the camera's collectors, so that the order holds across a reload.
pub struct Joiner {
    metrics: Arc<CameraMetrics>,
    outlet: Arc<Outlet>,
    state: Mutex<JoinerState>,
    /// Wakes a camera that waits for room.
    changed: Condvar,
    /// Held while messages are published.
    order: Mutex<()>,
    /// Whether a thread wanted to publish while another one did.
    again: AtomicBool,
}

struct JoinerState {
    /// How long a frame waits for its models; `None` for a source that waits for them.
    timeout: Option<Duration>,
    /// The frames that wait, oldest first.
    groups: VecDeque<Group>,
    /// Whether the lanes have ended, so that no frame waits.
    ended: bool,
    late: RateLimit,
}

impl JoinerState {
    /// Returns the oldest frame if its message is due.
    fn take_due(&mut self, now_ns: u64) -> Option<Group> {
        let oldest = self.groups.front()?;
        let waited = Duration::from_nanos(now_ns.saturating_sub(oldest.since_ns));
        let is_late = self.timeout.is_some_and(|most| waited >= most);
        // As long as no frame has a result, there is nothing to send instead.
        let has_result = || self.groups.iter().any(|group| !group.results.is_empty());
        let too_many = self.timeout.is_some() && self.groups.len() > MOST_WAITING;
        let is_due = self.ended || oldest.is_done() || too_many || (is_late && has_result());
        if is_due { self.groups.pop_front() } else { None }
    }
}

/// A frame that a lane may still be working on, as long as the lane has this.
pub type Ticket = Arc<FrameTicket>;

/// The number of models whose turn a frame is, whether they get to it or not.
#[derive(Debug, Default)]
pub struct FrameTicket(AtomicUsize);

impl FrameTicket {
    /// Returns a ticket to lend to another lane.
    pub fn lend(self: &Arc<Self>) -> Ticket {
        self.0.fetch_add(1, Ordering::Relaxed);
        Arc::clone(self)
    }
}

/// A frame and its results.
struct Group {
    sequence: u64,
    /// When the frame was announced, in nanoseconds on CLOCK_MONOTONIC.
    since_ns: u64,
    ticket: Ticket,
    /// Each with its model's place in the camera's list.
    results: Vec<(usize, Arc<Message>)>,
}

impl Group {
    fn is_done(&self) -> bool {
        Arc::strong_count(&self.ticket) == 1
    }
}

impl Joiner {
    /// Joins the messages of a camera.
    pub fn new(metrics: &Arc<CameraMetrics>, outlet: &Arc<Outlet>) -> Self {
        let state = JoinerState { timeout: None, groups: VecDeque::new(), ended: false, late: RateLimit::new(QUIET) };
        Self {
            metrics: Arc::clone(metrics),
            outlet: Arc::clone(outlet),
            state: Mutex::new(state),
            changed: Condvar::new(),
            order: Mutex::new(()),
            again: AtomicBool::new(false),
        }
    }

    /// Sets how long a frame waits for its models; `None`: for all of them.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.state.lock().timeout = timeout;
    }

    /// Waits until fewer than [`MOST_WAITING`] frames wait, or `stop` is raised, if the source waits for its models.
    pub fn wait_for_room(&self, stop: &Stop) {
        let mut state = self.state.lock();
        while state.timeout.is_none() && state.groups.len() >= MOST_WAITING && !stop.is_raised() {
            self.changed.wait_for(&mut state, ROOM_POLL);
        }
    }

    /// Notes a frame, whose number is higher than all before, and returns its ticket. The caller drops it once it has lent it to each
    /// lane that gets the frame.
    pub fn announce(&self, sequence: u64) -> Ticket {
        let (ticket, since_ns) = (Ticket::default(), self.outlet.clock.monotonic_ns());
        let group = Group { sequence, since_ns, ticket: Arc::clone(&ticket), results: Vec::new() };
        let mut state = self.state.lock();
        state.ended = false;
        state.groups.push_back(group);
        ticket
    }

    /// Adds the result of the model at this place in the camera's list. The caller drops its ticket afterwards, and flushes.
    ///
    /// A result that comes after the frame's message counts as one that the model dropped because it was busy.
    pub fn add(&self, place: usize, result: &Arc<Message>) {
        let mut state = self.state.lock();
        let JoinerState { groups, late, .. } = &mut *state;
        if let Some(group) = groups.iter_mut().find(|group| group.sequence == result.sequence) {
            group.results.push((place, Arc::clone(result)));
            return;
        }
        let held_back = late.pass(Instant::now());
        drop(state);
        let (camera, model) = (&self.metrics.name, &result.model.name);
        self.metrics.count_dropped_by(model, DropCause::Overload, 1);
        let Some(held_back) = held_back else { return };
        let more = if held_back > 0 { format!(" (and {held_back} more)") } else { String::new() };
        log::warn!(
            camera:% = camera;
            "model {model}: its result for frame {} of camera {camera} came after the message of the frame was sent{more}: raise \
             `group_timeout` of the camera, or use a faster model",
            result.sequence
        );
    }

    /// Publishes the messages of the oldest frames that wait for no lane, or have waited for too long.
    pub fn flush(&self) {
        self.again.store(true, Ordering::SeqCst);
        while self.again.load(Ordering::SeqCst)
            && let Some(_order) = self.order.try_lock()
        {
            self.again.store(false, Ordering::SeqCst);
            while let Some((group, now_ns)) = self.take_due() {
                self.send(group, now_ns);
            }
        }
    }

    /// Publishes the messages of all frames that have results, because the lanes have ended. A thread that publishes already does it.
    pub fn flush_all(&self) {
        self.state.lock().ended = true;
        self.flush();
    }

    /// Drops the results of all frames that wait, because the camera's privacy masks have changed.
    pub fn forget(&self) {
        let groups = std::mem::take(&mut self.state.lock().groups);
        for (_, result) in groups.into_iter().flat_map(|group| group.results) {
            self.metrics.count_dropped_by(&result.model.name, DropCause::Unmasked, 1);
        }
    }

    fn take_due(&self) -> Option<(Group, u64)> {
        let mut state = self.state.lock();
        let now_ns = self.outlet.clock.monotonic_ns();
        let group = state.take_due(now_ns)?;
        self.changed.notify_all();
        Some((group, now_ns))
    }

    fn send(&self, Group { ticket, mut results, .. }: Group, now_ns: u64) {
        // Its models have dropped the frame, and have counted that.
        if results.is_empty() || !self.outlet.message_limit.spend() {
            return results.iter().for_each(|(_, result)| {
                self.metrics.count_dropped_by(&result.model.name, DropCause::Overload, 1);
            });
        }
        results.sort_by_key(|(place, _)| *place);
        let published = |(_, mut result): (usize, Arc<Message>)| {
            // Copied only if the live view or an annotator has it.
            let message = Arc::make_mut(&mut result);
            message.timings_us.total = now_ns.saturating_sub(message.monotonic_ns) / 1_000;
            result
        };
        let results: Vec<_> = results.into_iter().map(published).collect();
        self.metrics.incomplete_groups.add(u64::from(results.len() < ticket.0.load(Ordering::Relaxed)));
        let counted = results.clone();
        let Some(message) = Message::joined(results) else { return };
        (self.outlet.publish)(&Arc::new(message));
        counted.iter().for_each(|result| self.metrics.count_published(result));
    }
}

#[cfg(test)]
mod tests;
