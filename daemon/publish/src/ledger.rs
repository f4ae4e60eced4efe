//! Remembers events and totals over a restart, a crash and a power cut.
//!
//! Sinks get an event once it is on disk with its rule's totals, so no total that a sink has got goes back. The next start sends
//! messages that no sink has confirmed again, with the same id, and ends the events that were under way.
//!
//! A thread writes: a sync takes milliseconds, and events that come meanwhile share the next one. Without a folder there is no thread, and
//! sinks get each event at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use visiond_message::{EventMessage, EventPhase, Published, Receipt, RuleTotals, event_topic};
use visiond_system::outage::{Outage, explain};
use visiond_system::priority::{Rank, give_way};
use visiond_system::threads::finished_by;

use self::file::{Entry, LedgerFile};
use self::open_event::OpenEvent;

mod file;
mod open_event;

/// How long an event waits for the disk, and how many do. Then sinks get them all, before they are on disk.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST_WAITING: usize = 4096;
/// The most bytes of changes that wait for the disk. If there are more, a copy of the ledger is written instead.
const MOST_BYTES: usize = 4 << 20;

/// Passes a message on to the sinks.
type Send = Box<dyn Fn(Published) + std::marker::Send + Sync>;

/// Camera, name and kind of a rule.
type Key = (Arc<str>, Arc<str>, Box<str>);

/// The events under way, the totals, and the messages that sinks still have.
pub struct EventLedger {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    /// The thread waits for work, and [`EventLedger::flush`] for its end.
    changed: Condvar,
    send: Send,
    /// See [`EventLedger::revision`].
    revision: AtomicU64,
}

#[derive(Default)]
struct State {
    totals: BTreeMap<Key, RuleTotals>,
    /// What an earlier process counted, where the camera does not count on from it yet.
    earlier: BTreeMap<Key, RuleTotals>,
    /// The cameras and their lines and zones that have totals; `None` for all.
    rules: Option<BTreeSet<(String, String)>>,
    open: BTreeMap<Box<str>, OpenEvent>,
    /// Messages that a sink may still need, by number.
    unconfirmed: BTreeMap<u64, Arc<EventMessage>>,
    number: u64,
    /// Confirmed messages that the file does not know of yet.
    confirmed: Vec<u64>,
    /// Changes that are not in the file.
    changes: Vec<u8>,
    /// Messages that wait until the changes are on disk, and since when the first one does.
    waiting: Vec<(u64, Arc<EventMessage>)>,
    since: Option<Instant>,
    /// Messages that need not wait any longer, in their order, and whether a thread is passing them on.
    ready: VecDeque<(u64, Arc<EventMessage>)>,
    is_sending: bool,
    /// Whether messages did not wait any longer, and the disk has not been written since.
    is_late: bool,
    /// Whether there is a thread that writes.
    writes: bool,
    /// Changes were left out, so only a copy of the whole ledger can follow.
    wants_copy: bool,
    /// The changes must be on disk soon, although no message waits for that.
    wants_sync: bool,
    /// The thread has messages in its hands.
    busy: bool,
    closed: bool,
}

impl std::fmt::Debug for EventLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLedger").finish_non_exhaustive()
    }
}

/// Confirms a message when it is dropped.
struct Confirmation {
    shared: Weak<Shared>,
    number: u64,
}

impl Drop for Confirmation {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut state = shared.state.lock();
        if state.unconfirmed.remove(&self.number).is_some() {
            state.confirmed.push(self.number);
            shared.changed.notify_all();
        }
    }
}

impl EventLedger {
    /// Makes a ledger that remembers totals while the process lives, and passes each event on to `send` at once.
    pub fn new(send: impl Fn(Published) + std::marker::Send + Sync + 'static) -> Self {
        let (state, revision) = (Mutex::default(), AtomicU64::new(0));
        let shared = Arc::new(Shared { state, changed: Condvar::new(), send: Box::new(send), revision });
        Self { shared, thread: Mutex::default() }
    }

    /// Whether an earlier process left something in `folder`.
    pub fn is_in(folder: &Path) -> bool {
        file::has_files(folder)
    }

    /// Goes on with what an earlier process left in `folder`, unless a folder is open already: sends what was not confirmed, and ends the
    /// events that were under way at the time `now` (RFC 3339). From then on, events are on disk before sinks get them. A folder that
    /// cannot be used is logged and tried again.
    pub fn open(&self, folder: &Path, now: &str) {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return;
        }
        let mut writer = Writer::new(folder, now);
        let spawned = std::thread::Builder::new().name("event-ledger".to_owned());
        {
            let mut state = self.shared.state.lock();
            (state.writes, state.wants_copy) = (true, true);
        }
        writer.open(&self.shared);
        let shared = Arc::clone(&self.shared);
        match spawned.spawn(move || writer.run(&shared)) {
            Ok(started) => *thread = Some(started),
            Err(error) => {
                let mut state = self.shared.state.lock();
                state.writes = false;
                let all = state.waiting.len();
                self.shared.send_waiting(state, all);
                log::error!(
                    "cannot start the thread that writes events of lines and zones: {error}; a restart forgets totals and events \
                     under way: raise the limit of tasks (`TasksMax=`, `ulimit -u`)"
                );
            }
        }
    }

    /// Takes in an event with the totals of its rule, and passes it on to the sinks once it is on disk. Never waits for the disk.
    pub fn publish(&self, mut event: EventMessage, mut totals: Option<RuleTotals>) {
        let mut state = self.shared.state.lock();
        state.count_on(&mut event, &mut totals);
        let event = Arc::new(event);
        let message = state.take(&event, totals);
        if !state.writes {
            drop(state);
            return (self.shared.send)(Published::of_event(event, None));
        }
        let since = *state.since.get_or_insert_with(Instant::now);
        state.waiting.push((message, event));
        if since.elapsed() > PATIENCE || state.waiting.len() > MOST_WAITING || state.closed {
            self.shared.pass_on(state);
        } else {
            self.shared.changed.notify_all();
        }
    }

    /// Returns the totals of a rule, from which the camera counts on; 0 if it is new.
    pub fn totals(&self, camera: &str, rule: &str, kind: &str) -> RuleTotals {
        let mut state = self.shared.state.lock();
        let key = (camera.into(), rule.into(), kind.into());
        state.earlier.remove(&key);
        state.totals.get(&key).cloned().unwrap_or_default()
    }

    /// Returns a number that changes when totals of an earlier process have been added: cameras then ask for [`Self::totals`] again.
    pub fn revision(&self) -> u64 {
        self.shared.revision.load(Ordering::Relaxed)
    }

    /// Sets the totals of a rule, such as to 0.
    pub fn set_totals(&self, camera: &str, rule: &str, kind: &str, totals: RuleTotals) {
        let mut state = self.shared.state.lock();
        let key = (camera.into(), rule.into(), kind.into());
        state.earlier.remove(&key);
        state.set(key, totals);
        self.shared.changed.notify_all();
    }

    /// Resets the totals of all rules of a line or zone, which stay of the same day. They are on disk after [`Self::flush`].
    pub fn reset_totals(&self, camera: &str, rule: &str) {
        let mut state = self.shared.state.lock();
        let is_of = |(of, name, _): &&Key| **of == *camera && **name == *rule;
        let keys: Vec<Key> = state.totals.keys().filter(is_of).cloned().collect();
        state.wants_sync |= state.writes && !keys.is_empty();
        for key in keys {
            let day = state.totals.get(&key).and_then(|totals| totals.day);
            state.earlier.remove(&key);
            state.set(key, RuleTotals { day, ..RuleTotals::default() });
        }
        self.shared.changed.notify_all();
    }

    /// Forgets the totals of all rules but those of these cameras and lines or zones, and keeps no others from now on.
    pub fn retain(&self, rules: BTreeSet<(String, String)>) {
        let mut state = self.shared.state.lock();
        let has = |(camera, rule, _): &&Key| rules.contains(&(camera.to_string(), rule.to_string()));
        let gone: Vec<Key> = state.totals.keys().filter(|key| !has(key)).cloned().collect();
        state.rules = Some(rules);
        for key in gone {
            state.totals.remove(&key);
            state.earlier.remove(&key);
            let (camera, rule, kind) = key;
            state.change(&Entry::Forgotten { camera, rule, kind });
        }
        self.shared.changed.notify_all();
    }

    /// Waits until all events are on disk and passed on to the sinks, and totals that were reset are on disk. At `deadline` the rest is passed on without that.
    pub fn flush(&self, deadline: Instant) {
        let mut state = self.shared.state.lock();
        while state.busy || state.is_sending || state.wants_sync || !state.waiting.is_empty() {
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                return self.shared.pass_on(state);
            }
        }
    }

    /// Writes down what is left and ends the thread, or leaves it at `deadline`. Call it once the sinks are closed.
    pub fn close(&self, deadline: Instant) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            finished_by([&thread], deadline);
        }
    }
}

impl Shared {
    /// Passes all messages on to the sinks, although they may not be on disk.
    fn pass_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        state.since = None;
        let all = state.waiting.len();
        if !state.is_late && !state.closed && all > 0 {
            state.is_late = true;
            log::warn!(
                "the disk takes longer than {} s to write an event: sinks get events before they are on disk: check the disk with dmesg",
                PATIENCE.as_secs()
            );
        }
        self.send_waiting(state, all);
    }

    /// Passes the first `count` messages that wait on to the sinks. If another thread is passing messages on, these follow there, so that all
    /// keep their order.
    fn send_waiting(self: &Arc<Self>, mut state: MutexGuard<'_, State>, count: usize) {
        let State { waiting, ready, .. } = &mut *state;
        ready.extend(waiting.drain(..count));
        if std::mem::replace(&mut state.is_sending, true) {
            return;
        }
        while let Some((number, event)) = state.ready.pop_front() {
            // A sink may confirm it at once.
            MutexGuard::unlocked(&mut state, || self.send(number, event));
        }
        state.is_sending = false;
        drop(state);
        self.changed.notify_all();
    }

    /// Passes a message on to the sinks.
    fn send(self: &Arc<Self>, number: u64, event: Arc<EventMessage>) {
        let receipt: Receipt = Arc::new(Confirmation { shared: Arc::downgrade(self), number });
        (self.send)(Published::of_event(event, Some(receipt)));
    }
}

impl State {
    /// Adds what an earlier process counted to the totals of a camera that does not count on from there yet.
    fn count_on(&self, event: &mut EventMessage, totals: &mut Option<RuleTotals>) {
        let Some(totals) = totals else { return };
        let key = (Arc::clone(&event.camera), Arc::clone(&event.rule), event.kind.clone());
        let Some(earlier) = self.earlier.get(&key) else { return };
        *totals = totals.plus(earlier);
        if let Some(shown) = &mut event.totals {
            shown.begun = match &event.to {
                Some(side) => totals.crossed_to.get(side).copied().unwrap_or_default(),
                None => totals.begun.max(totals.taken),
            };
        }
    }

    /// Takes in a message; returns its number.
    fn take(&mut self, event: &Arc<EventMessage>, totals: Option<RuleTotals>) -> u64 {
        let EventMessage { camera, rule, kind, .. } = &**event;
        if let Some(totals) = totals {
            let key = (Arc::clone(camera), Arc::clone(rule), kind.clone());
            let totals = self.totals.get(&key).map_or_else(|| totals.clone(), |known| known.larger(&totals));
            self.set(key, totals);
        }
        if self.writes {
            follow(&mut self.open, event);
        }
        self.add(event)
    }

    /// Adds a message to those that sinks may need; returns its number.
    fn add(&mut self, event: &Arc<EventMessage>) -> u64 {
        self.number += 1;
        if self.writes {
            self.unconfirmed.insert(self.number, Arc::clone(event));
            self.change(&Entry::Message(self.number, Arc::clone(event)));
        }
        self.number
    }

    /// Sets the totals of a rule.
    fn set(&mut self, (camera, rule, kind): Key, totals: RuleTotals) {
        // The end of a removed rule's event comes late.
        if self.rules.as_ref().is_some_and(|rules| !rules.contains(&(camera.to_string(), rule.to_string()))) {
            return;
        }
        let entry = (camera.clone(), rule.clone(), kind.clone());
        self.totals.insert(entry, totals.clone());
        self.change(&Entry::Totals { camera, rule, kind, totals });
    }

    /// Appends a change to what is to be written.
    fn change(&mut self, entry: &Entry) {
        if self.wants_copy || !self.writes {
            return;
        }
        entry.write(&mut self.changes);
        if self.changes.len() > MOST_BYTES {
            self.copy_next();
        }
    }

    /// Writes a copy of the whole ledger next.
    fn copy_next(&mut self) {
        self.wants_copy = true;
        self.changes = Vec::new();
        self.confirmed.clear();
    }

    /// Returns the whole ledger as lines.
    fn copy(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for ((camera, rule, kind), totals) in &self.totals {
            let (camera, rule, kind) = (camera.clone(), rule.clone(), kind.clone());
            Entry::Totals { camera, rule, kind, totals: totals.clone() }.write(&mut lines);
        }
        self.open.values().for_each(|event| Entry::Open(event.clone()).write(&mut lines));
        for (number, event) in &self.unconfirmed {
            Entry::Message(*number, Arc::clone(event)).write(&mut lines);
        }
        lines
    }

    /// Takes in an entry of an earlier process.
    fn restore(&mut self, entry: Entry, from: &mut Earlier) {
        match entry {
            Entry::Copy(_) => {}
            Entry::Complete => from.is_complete = true,
            Entry::Totals { camera, rule, kind, totals } => {
                self.totals.insert((camera, rule, kind), totals);
            }
            Entry::Forgotten { camera, rule, kind } => {
                self.totals.remove(&(camera, rule, kind));
            }
            Entry::Open(event) => {
                from.open.insert(event.event.clone(), event);
            }
            Entry::Message(number, event) => {
                if from.is_complete {
                    follow(&mut from.open, &event);
                }
                from.unconfirmed.insert(number, event);
            }
            Entry::Done(numbers) => numbers.iter().for_each(|number| {
                from.unconfirmed.remove(number);
            }),
        }
    }
}

/// The rest of an earlier process.
#[derive(Default)]
struct Earlier {
    /// The copy is over. A message in it may be of an event that has ended: those under way have their own entries.
    is_complete: bool,
    open: BTreeMap<Box<str>, OpenEvent>,
    unconfirmed: BTreeMap<u64, Arc<EventMessage>>,
}

/// Adds or removes an event that is under way.
fn follow(open: &mut BTreeMap<Box<str>, OpenEvent>, event: &EventMessage) {
    match event.phase {
        EventPhase::Begin | EventPhase::Update => {
            open.insert(event.event.clone(), OpenEvent::of(event));
        }
        EventPhase::End => {
            open.remove(&event.event);
        }
        EventPhase::Moment => {}
    }
}

/// The thread that writes.
struct Writer {
    folder: PathBuf,
    /// When the folder was to be opened, as RFC 3339.
    now: String,
    file: Option<LedgerFile>,
    outage: Outage,
}

impl Writer {
    fn new(folder: &Path, now: &str) -> Self {
        let what = format!("the events of lines and zones in {}", folder.display());
        let cost = "a restart forgets totals and events under way";
        Self { folder: folder.to_owned(), now: now.to_owned(), file: None, outage: Outage::new(what).costing(cost) }
    }

    /// Opens the file, and takes in what an earlier process left there.
    fn open(&mut self, shared: &Shared) {
        let (file, entries) = match LedgerFile::open(&self.folder) {
            Ok(opened) => opened,
            Err(error) => return self.outage.failed(&error.to_string(), Instant::now()),
        };
        self.file = Some(file);
        let mut state = shared.state.lock();
        // If the file could not be opened at the start, messages have had the totals of this process alone.
        let known = std::mem::take(&mut state.totals);
        let mut earlier = Earlier::default();
        entries.into_iter().for_each(|entry| state.restore(entry, &mut earlier));
        if let Some(rules) = state.rules.clone() {
            state.totals.retain(|(camera, rule, _), _| rules.contains(&(camera.to_string(), rule.to_string())));
        }
        state.earlier = state.totals.clone();
        for (key, known) in known {
            let is_same_day =
                |before: &&RuleTotals| before.day.is_none() || known.day.is_none() || before.day == known.day;
            let before = state.earlier.get(&key).filter(is_same_day);
            let totals = before.map_or_else(|| known.clone(), |before| known.plus(before));
            if before.is_none() {
                state.earlier.remove(&key);
            }
            state.totals.insert(key, totals);
        }
        shared.revision.fetch_add(1, Ordering::Relaxed);
        for event in earlier.unconfirmed.into_values() {
            let topic = event_topic(&event.camera);
            let event = Arc::new(EventMessage { topic, ..Arc::unwrap_or_clone(event) });
            // Its event may be over: `earlier.open` has those that are not.
            let number = state.add(&event);
            state.waiting.push((number, event));
        }
        for event in earlier.open.into_values() {
            let key = (event.camera.clone(), event.rule.clone(), event.kind.clone());
            let mut totals = state.totals.get(&key).cloned().unwrap_or_default();
            let event = Arc::new(event.end(&self.now, &mut totals));
            if let Some(earlier) = state.earlier.get_mut(&key) {
                earlier.ended += 1;
            }
            let number = state.take(&event, Some(totals));
            state.waiting.push((number, event));
        }
        state.copy_next();
    }

    fn run(mut self, shared: &Arc<Shared>) {
        give_way(Rank::Batch);
        loop {
            let mut state = shared.state.lock();
            loop {
                let retry = self.outage.reason().is_some().then(|| self.outage.next_try(Instant::now()));
                let work = !state.waiting.is_empty() || !state.changes.is_empty() || !state.confirmed.is_empty();
                let is_due = retry.is_none_or(|at| at <= Instant::now());
                if state.closed || !state.waiting.is_empty() || is_due && (work || state.wants_copy) {
                    break;
                }
                match retry {
                    Some(at) => {
                        shared.changed.wait_until(&mut state, at);
                    }
                    None => shared.changed.wait(&mut state),
                }
            }
            let closed = state.closed;
            if self.file.is_none() && self.outage.may_try(Instant::now()) {
                drop(state);
                self.open(shared);
                state = shared.state.lock();
            }
            let last = state.waiting.last().map_or(0, |(number, _)| *number);
            state.busy = true;
            let sync = std::mem::take(&mut state.wants_sync) || last > 0;
            self.write(state, shared, sync);
            let mut state = shared.state.lock();
            let written = state.waiting.iter().take_while(|(number, _)| *number <= last).count();
            state.since = (written < state.waiting.len()).then(Instant::now);
            state.is_late = false;
            shared.send_waiting(state, written);
            shared.state.lock().busy = false;
            shared.changed.notify_all();
            if closed {
                return;
            }
        }
    }

    /// Writes the changes, and waits until they are on disk if messages wait for that.
    fn write(&mut self, mut state: MutexGuard<'_, State>, shared: &Shared, sync: bool) {
        let at = Instant::now();
        let Some(file) = self.file.as_mut().filter(|_| self.outage.may_try(at)) else {
            return state.copy_next();
        };
        let result = if state.wants_copy || file.wants_copy() {
            let lines = state.copy();
            state.copy_next();
            state.wants_copy = false;
            drop(state);
            file.write_copy(&lines)
        } else {
            let confirmed = std::mem::take(&mut state.confirmed);
            if !confirmed.is_empty() {
                let entry = Entry::Done(confirmed);
                state.change(&entry);
            }
            let lines = std::mem::take(&mut state.changes);
            drop(state);
            file.append(&lines, sync)
        };
        match result {
            Ok(()) => self.outage.recovered(at),
            Err(error) => {
                self.outage.failed(&explain(&error), at);
                shared.state.lock().copy_next();
            }
        }
    }
}

#[cfg(test)]
mod tests;
