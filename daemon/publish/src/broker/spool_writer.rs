//! The spool as a durable sink's thread uses it. Logs and retries failed writes. Another thread syncs written messages, so
//! that a power cut does not lose them.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use visiond_config::types::SinkConfig;
use visiond_message::describe_topic;
use visiond_message::status::SpoolCounts;
use visiond_system::backoff::RateLimit;
use visiond_system::outage::{IfUnusable, Outage, explain};
use visiond_system::preflight::Certainty;

use super::QueuedMessage;
use crate::queue::Counters;
use crate::sink::SinkError;
use crate::spool::{MOST_BYTES, OpenError, Spool, Unsynced};

/// How long to wait before retrying a spool that another sink of this process still holds.
const HANDOVER: Duration = Duration::from_millis(20);
/// How often to log a problem that persists.
const QUIET: Duration = Duration::from_secs(60);
/// How often to check whether a sync has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long to wait before retrying a sync or a read that failed.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The spool of a durable sink, and the messages that could not be written to it.
pub struct SpoolWriter {
    name: String,
    directory: PathBuf,
    limit_bytes: u64,
    sync_every: Duration,
    /// `None` while the spool cannot be opened.
    pub spool: Option<Spool>,
    /// Messages that were not written to disk yet, with their frames' numbers for the log; newer than all messages on it.
    pub unwritten: VecDeque<(QueuedMessage, u64)>,
    /// The numbers of messages in flight that are not on disk.
    pub memory_only: BTreeSet<u64>,
    /// When to try to open it next, while `spool` is `None`.
    open_again: Instant,
    outage: Outage,
    /// Why the spool cannot be read, and when to read again.
    read_failure: Option<(String, Instant)>,
    /// When to sync the written messages.
    sync_due: Option<Instant>,
    syncing: Option<Syncing>,
    /// Why the last sync failed.
    sync_failure: Option<String>,
    complaints: RateLimit,
    unreadable: RateLimit,
    too_large: RateLimit,
    /// For the log: messages that count as accepted once they are synced.
    unaccepted: Vec<String>,
    full: RateLimit,
    /// The dropped messages and damaged places that were already logged.
    logged_dropped: u64,
    logged_damaged: u64,
}

/// A sync on another thread.
struct Syncing {
    task: JoinHandle<(Unsynced, io::Result<()>)>,
    /// The messages that it covers, see [`SpoolWriter::unaccepted`].
    unaccepted: Vec<String>,
    look_again: Instant,
}

impl SpoolWriter {
    /// Prepares the spool of a sink, whose thread opens it. With [`IfUnusable::Refuse`], opens it now, and fails if waiting cannot
    /// help.
    pub fn open(config: &SinkConfig, if_unusable: IfUnusable) -> Result<Self, SinkError> {
        let directory = folder(config)?;
        let mut writer = Self {
            name: config.name.clone(),
            outage: Outage::new(label(&config.name, &directory)).costing("messages are kept in memory only"),
            directory,
            limit_bytes: config.spool_bytes,
            sync_every: config.spool_sync,
            spool: None,
            unwritten: VecDeque::new(),
            memory_only: BTreeSet::new(),
            open_again: Instant::now(),
            read_failure: None,
            sync_due: None,
            syncing: None,
            sync_failure: None,
            complaints: RateLimit::new(QUIET),
            unreadable: RateLimit::new(QUIET),
            too_large: RateLimit::new(QUIET),
            unaccepted: Vec::new(),
            full: RateLimit::new(QUIET),
            logged_dropped: 0,
            logged_damaged: 0,
        };
        if if_unusable == IfUnusable::Refuse {
            match writer.open_spool() {
                // The old sink of this process is about to hand it over.
                Ok(()) | Err(OpenError::HeldByThisProcess) => {}
                Err(error) if error.is_full_disk() => writer.outage.failed(&error.to_string(), Instant::now()),
                Err(error) => return Err(cannot_open(&writer.directory, &error)),
            }
        }
        Ok(writer)
    }

    /// Finds out whether a reload would refuse the spool, without touching the folder.
    pub fn check(config: &SinkConfig) -> Result<(), SinkError> {
        let directory = folder(config)?;
        Spool::check(&directory).map_err(|error| cannot_open(&directory, &error))
    }

    /// Applies a new name and new limits.
    pub fn configure(&mut self, config: &SinkConfig) {
        self.name.clone_from(&config.name);
        self.outage.rename(label(&self.name, &self.directory));
        (self.limit_bytes, self.sync_every) = (config.spool_bytes, config.spool_sync);
        if let Some(spool) = &mut self.spool {
            spool.limit_bytes = self.limit_bytes;
        }
    }

    pub fn due(&self) -> Option<Instant> {
        let now = Instant::now();
        let write = match &self.spool {
            None => Some(self.open_again),
            Some(_) => (!self.unwritten.is_empty()).then(|| self.outage.next_try(now)),
        };
        // Without a connection, nothing else triggers a read at that time.
        let read = self.read_failure.as_ref().map(|(_, again)| *again).filter(|again| *again > now);
        let sync = self.syncing.as_ref().map(|syncing| syncing.look_again).or(self.sync_due);
        [write, read, sync].into_iter().flatten().min()
    }

    /// Opens a spool that could not be opened before, and runs a sync that is due.
    pub fn attend(&mut self) {
        let now = Instant::now();
        if self.spool.is_none() && now >= self.open_again {
            self.open_again = now + HANDOVER;
            match self.open_spool() {
                Ok(()) => self.outage.recovered(now),
                Err(OpenError::HeldByThisProcess) => {}
                Err(error) => {
                    self.outage.failed(&error.to_string(), now);
                    self.open_again = self.outage.next_try(now);
                }
            }
        }
        if self.syncing.as_ref().is_some_and(|syncing| now >= syncing.look_again) {
            self.end_sync(now);
        }
        if self.syncing.is_none() && self.sync_due.is_some_and(|due| now >= due) {
            self.begin_sync(now);
        }
    }

    /// Writes all unwritten messages, oldest first; returns `false` if it wrote none and they must be retried.
    pub fn write(&mut self) -> bool {
        let Some(spool) = &mut self.spool else { return false };
        let now = Instant::now();
        if !self.outage.may_try(now) {
            return false;
        }
        if let Err(error) = spool.append(self.unwritten.iter().map(|(message, _)| message)) {
            self.outage.failed(&explain(&error), now);
            return false;
        }
        self.outage.recovered(now);
        let should_sync = spool.should_sync();
        if log::log_enabled!(log::Level::Trace) {
            let words = |(QueuedMessage { id, camera, .. }, sequence): &_| format!("{id} {camera} {sequence}");
            self.unaccepted.extend(self.unwritten.iter().map(words));
        }
        if !self.sync_every.is_zero() {
            self.accept();
            self.schedule_sync(if should_sync { Duration::ZERO } else { self.sync_every });
        } else if self.sync_failure.is_none() && self.syncing.is_none() {
            self.sync_and_wait();
        } else {
            // A disk that fails must not hold up the sink.
            self.schedule_sync(TRY_AGAIN);
        }
        true
    }

    /// Whether the spool can hold a message of this size; logs it if not.
    pub fn fits(&mut self, message: &QueuedMessage) -> bool {
        let (bytes, limit) = (message.line.len(), self.limit_bytes.min(MOST_BYTES as u64));
        let fits = bytes as u64 <= limit;
        if !fits && self.too_large.pass(Instant::now()).is_some() {
            log::error!(
                "sink {}: one of the {} has {bytes} bytes, the spool holds {limit}: dropped; raise spool_bytes, or lower \
                 max_detections",
                self.name,
                describe_topic(&message.camera)
            );
        }
        fits
    }

    pub fn read(&mut self) -> Option<QueuedMessage> {
        self.try_read(Spool::read)?
    }

    /// Reads messages again: see [`Spool::read_again`].
    pub fn read_again(&mut self, numbers: &[u64]) -> Option<(Vec<QueuedMessage>, usize)> {
        self.try_read(|spool| spool.read_again(numbers))
    }

    fn try_read<T>(&mut self, read: impl FnOnce(&mut Spool) -> io::Result<T>) -> Option<T> {
        let spool = self.spool.as_mut()?;
        if self.read_failure.as_ref().is_some_and(|(_, again)| Instant::now() < *again) {
            return None;
        }
        match read(spool) {
            Ok(found) => {
                self.read_failure = None;
                Some(found)
            }
            Err(error) => {
                let reason = explain(&error);
                if self.unreadable.pass(Instant::now()).is_some() {
                    let (name, directory) = (&self.name, self.directory.display());
                    log::error!("sink {name}: cannot read the spool {directory}, its messages wait: {reason}");
                }
                self.read_failure = Some((format!("reading it fails: {reason}"), Instant::now() + TRY_AGAIN));
                None
            }
        }
    }

    /// Writes the acknowledged number. If that fails, messages are sent twice after a restart.
    pub fn write_cursor(&mut self) {
        match self.spool.as_mut().map(Spool::write_cursor) {
            // With 0 only the cursor is left to sync, and an old cursor only makes messages be sent twice.
            Some(Ok(true)) if self.sync_every.is_zero() => self.schedule_sync(Duration::from_secs(1)),
            Some(Ok(true)) => self.schedule_sync(self.sync_every),
            Some(Err(error)) => self.complain(&error),
            Some(Ok(false)) | None => {}
        }
    }

    /// Publishes the spool's counters, and logs losses.
    pub fn report(&mut self, counters: &Counters) {
        let outage = self.outage.reason().map(str::to_owned);
        let outage = outage.or_else(|| self.sync_failure.clone());
        let outage = outage.or_else(|| self.read_failure.as_ref().map(|(reason, _)| reason.clone()));
        let limit_bytes = self.limit_bytes;
        let Some(spool) = &self.spool else {
            if outage.is_some() {
                *counters.spool.lock() = Some(SpoolCounts { limit_bytes, outage, ..SpoolCounts::default() });
            }
            return;
        };
        let (name, directory) = (&self.name, self.directory.display());
        let (dropped, damaged) = (spool.dropped, spool.damaged);
        if dropped > self.logged_dropped && self.full.pass(Instant::now()).is_some() {
            log::warn!(
                "sink {name}: the spool {directory} is full: {} messages are lost, the oldest first; raise spool_bytes if \
                 that is too many",
                dropped - self.logged_dropped
            );
            self.logged_dropped = dropped;
        }
        if damaged > self.logged_damaged {
            log::warn!(
                "sink {name}: the spool {directory} is damaged in {} places, as after a power cut; the messages there are \
                 lost",
                damaged - self.logged_damaged
            );
            self.logged_damaged = damaged;
        }
        let (bytes, records, unreadable) = (spool.bytes(), spool.records(), spool.unreadable);
        *counters.spool.lock() = Some(SpoolCounts { bytes, limit_bytes, records, dropped, unreadable, outage });
    }

    /// Syncs everything and closes the spool; returns how many messages are lost.
    pub fn close(mut self) -> u64 {
        self.write_cursor();
        self.end_sync(Instant::now());
        self.sync_and_wait();
        if let Some(spool) = self.spool.take() {
            let records = spool.records();
            if records > 0 {
                log::info!("sink {}: {records} messages stay in the spool {}", self.name, self.directory.display());
            }
        }
        (self.unwritten.len() + self.memory_only.len()) as u64
    }

    fn open_spool(&mut self) -> Result<(), OpenError> {
        let spool = Spool::open(&self.directory, self.limit_bytes)?;
        let (records, directory) = (spool.records(), self.directory.display());
        if records > 0 {
            log::info!("sink {}: {records} messages from an earlier run are in the spool {directory}", self.name);
        }
        self.spool = Some(spool);
        Ok(())
    }

    /// Syncs after this time at the latest.
    fn schedule_sync(&mut self, after: Duration) {
        let due = Instant::now() + after;
        self.sync_due = Some(self.sync_due.map_or(due, |known| known.min(due)));
    }

    /// Begins a sync on another thread, one at a time, so that syncs do not pile up on a slow disk.
    fn begin_sync(&mut self, now: Instant) {
        self.sync_due = None;
        let Some(mut unsynced) = self.spool.as_mut().and_then(Spool::unsynced) else {
            // The messages of the failed sync are acknowledged and deleted.
            return self.synced(Unsynced::default(), Ok(()));
        };
        let task = tokio::task::spawn_blocking(move || {
            let synced = unsynced.sync();
            (unsynced, synced)
        });
        let unaccepted = std::mem::take(&mut self.unaccepted);
        self.syncing = Some(Syncing { task, unaccepted, look_again: now + LOOK_AGAIN });
    }

    /// Finishes the running sync, if it is done.
    fn end_sync(&mut self, now: Instant) {
        let Some(Syncing { mut task, unaccepted, .. }) = self.syncing.take() else { return };
        match (&mut task).now_or_never() {
            None => self.syncing = Some(Syncing { task, unaccepted, look_again: now + LOOK_AGAIN }),
            Some(Ok((unsynced, synced))) => {
                let newer = std::mem::replace(&mut self.unaccepted, unaccepted);
                self.synced(unsynced, synced);
                self.unaccepted.extend(newer);
            }
            // The task never panics and is never cancelled.
            Some(Err(_)) => {}
        }
    }

    /// Syncs on this thread.
    fn sync_and_wait(&mut self) {
        if let Some(mut unsynced) = self.spool.as_mut().and_then(Spool::unsynced) {
            let synced = unsynced.sync();
            self.synced(unsynced, synced);
        }
    }

    /// Notes the end of a sync.
    fn synced(&mut self, unsynced: Unsynced, synced: io::Result<()>) {
        match synced {
            Ok(()) => {
                if self.sync_failure.take().is_some() {
                    log::info!("sink {}: the spool {} is synced again", self.name, self.directory.display());
                }
                self.accept();
            }
            Err(error) => {
                self.complain(&error);
                self.sync_failure = Some(format!("syncing it fails: {}", explain(&error)));
                if let Some(spool) = &mut self.spool {
                    spool.not_synced(unsynced);
                }
                self.sync_due = Some(Instant::now() + TRY_AGAIN);
            }
        }
    }

    /// Logs the messages that count as accepted now.
    fn accept(&mut self) {
        self.unaccepted.drain(..).for_each(|words| log::trace!("sink {}: accepted {words}", self.name));
    }

    fn complain(&mut self, error: &io::Error) {
        if self.complaints.pass(Instant::now()).is_some() {
            log::error!(
                "sink {}: cannot sync the spool {}, a power cut may lose messages: {}",
                self.name,
                self.directory.display(),
                explain(error)
            );
        }
    }
}

/// Returns the folder of a sink's spool.
fn folder(config: &SinkConfig) -> Result<PathBuf, SinkError> {
    config.spool().ok_or_else(|| {
        let reason =
            "`durable` needs a folder, and $STATE_DIRECTORY, which systemd sets, is not set: set `spool_directory`";
        SinkError { key: "durable", reason: reason.to_owned(), certainty: Certainty::OnlyHere }
    })
}

fn cannot_open(directory: &Path, error: &OpenError) -> SinkError {
    let reason = format!("cannot open the spool {}: {error}", directory.display());
    SinkError { key: "spool_directory", reason, certainty: error.certainty(directory) }
}

fn label(name: &str, directory: &Path) -> String {
    format!("sink {name}: the spool {}", directory.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use bytes::Bytes;
    use visiond_system::testing::HANG;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn config(directory: &Path, spool_sync: Duration) -> SinkConfig {
        SinkConfig {
            durable: true,
            spool_directory: Some(directory.to_owned()),
            spool_sync,
            spool_bytes: 1 << 30,
            ..SinkConfig::default()
        }
    }

    fn writer(directory: &Path, spool_sync: Duration) -> SpoolWriter {
        SpoolWriter::open(&config(directory, spool_sync), IfUnusable::Refuse).unwrap()
    }

    fn message(number: u64) -> (QueuedMessage, u64) {
        (QueuedMessage { number, id: "0-1".into(), camera: "door".into(), line: Bytes::from_static(b"{}") }, number)
    }

    /// Whether more work is due `after` the work that began `before`.
    fn is_due(due: Option<Instant>, before: Instant, after: Duration) -> bool {
        due.is_some_and(|due| (before + after..=Instant::now() + after).contains(&due))
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(HANG, test).await.expect("no test hangs") });
    }

    #[test]
    fn what_is_written_is_synced_when_it_was_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let mut lazy = writer(&folder.path().join("lazy"), 5 * SECOND);
        let mut strict = writer(&folder.path().join("strict"), Duration::ZERO);
        for writer in [&mut lazy, &mut strict] {
            writer.sync_due = None;
            assert_eq!(writer.due(), None);
            writer.unwritten.push_back(message(1));
            assert!(writer.due().is_some());
        }
        let before = Instant::now();
        assert!(lazy.write() && strict.write());
        lazy.unwritten.clear();
        strict.unwritten.clear();
        assert!(is_due(lazy.due(), before, 5 * SECOND));
        assert_eq!(strict.due(), None);
        let unsynced = |writer: &SpoolWriter| writer.spool.as_ref().unwrap().unsynced_bytes();
        assert!(unsynced(&lazy) > 0 && unsynced(&strict) == 0);
        // The cursor: with 0, a second later.
        lazy.sync_due = None;
        for (writer, after) in [(&mut lazy, 5 * SECOND), (&mut strict, SECOND)] {
            writer.write_cursor();
            assert_eq!(writer.due(), None, "nothing is acknowledged");
            writer.spool.as_mut().unwrap().acknowledge(1);
            let before = Instant::now();
            writer.write_cursor();
            assert!(is_due(writer.due(), before, after));
        }
        // A disk that fails must not hold up the sink.
        strict.sync_due = None;
        strict.sync_failure = Some("test".to_owned());
        strict.unwritten.push_back(message(2));
        let before = Instant::now();
        assert!(strict.write());
        strict.unwritten.clear();
        assert!(is_due(strict.due(), before, TRY_AGAIN) && unsynced(&strict) > 0);
        // This much is synced at once.
        let (mut large, number) = message(2);
        large.line = vec![b'x'; 5 << 20].into();
        lazy.unwritten.push_back((large, number));
        let before = Instant::now();
        assert!(lazy.write());
        lazy.unwritten.clear();
        assert!(is_due(lazy.due(), before, Duration::ZERO));
        let earlier = lazy.due();
        lazy.schedule_sync(5 * SECOND);
        assert_eq!(lazy.due(), earlier);
    }

    #[test]
    fn a_sync_runs_beside_the_sink_one_at_a_time() {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = writer(folder.path(), HANG);
            writer.unwritten.push_back(message(1));
            assert!(writer.write());
            writer.unwritten.clear();
            writer.attend();
            assert!(writer.syncing.is_none(), "it is not due");
            let before = Instant::now();
            writer.sync_due = Some(before);
            writer.attend();
            assert!(writer.sync_due.is_none() && is_due(writer.due(), before, LOOK_AGAIN));
            let is_finished =
                |writer: &SpoolWriter| writer.syncing.as_ref().is_some_and(|syncing| syncing.task.is_finished());
            while !is_finished(&writer) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let look_again = |writer: &mut SpoolWriter, at| writer.syncing.as_mut().unwrap().look_again = at;
            look_again(&mut writer, before + 2 * HANG);
            writer.sync_due = Some(before);
            writer.attend();
            assert!(writer.syncing.is_some() && writer.sync_due.is_some(), "one at a time");
            writer.sync_due = None;
            look_again(&mut writer, Instant::now());
            writer.attend();
            assert!(writer.syncing.is_none() && writer.due().is_none());
            assert!(writer.spool.as_mut().unwrap().unsynced().is_none(), "all of it is synced");
            // One that takes longer.
            let task = tokio::spawn(std::future::pending());
            writer.syncing = Some(Syncing { task, unaccepted: Vec::new(), look_again: before });
            let now = Instant::now();
            writer.end_sync(now);
            assert_eq!(writer.due(), Some(now + LOOK_AGAIN));
        });
    }

    #[test]
    fn a_sync_that_fails_is_reported_until_one_succeeds() {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = writer(folder.path(), 5 * SECOND);
            writer.unwritten.push_back(message(1));
            assert!(writer.write());
            writer.unwritten.clear();
            writer.sync_due = None;
            let counters = Counters::default();
            let outage = |writer: &mut SpoolWriter| {
                writer.report(&counters);
                counters.spool.lock().as_ref().and_then(|spool| spool.outage.clone())
            };
            assert_eq!(outage(&mut writer), None);
            let unsynced = writer.spool.as_mut().unwrap().unsynced().unwrap();
            let before = Instant::now();
            writer.synced(unsynced, Err(io::Error::other("test")));
            assert!(is_due(writer.due(), before, TRY_AGAIN));
            assert!(outage(&mut writer).is_some_and(|reason| reason.starts_with("syncing it fails: ")));
            assert!(writer.spool.as_ref().unwrap().unsynced_bytes() > 0, "it is tried again");
            writer.sync_and_wait();
            assert_eq!(outage(&mut writer), None);
            assert_eq!(writer.spool.as_ref().unwrap().unsynced_bytes(), 0);
            // The messages that it covered are gone.
            writer.sync_failure = Some("test".to_owned());
            while writer.spool.as_mut().unwrap().unsynced().is_some() {}
            writer.begin_sync(before);
            assert!(writer.syncing.is_none() && outage(&mut writer).is_none());
        });
    }

    #[test]
    fn a_spool_that_cannot_be_opened_is_refused_or_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("spool");
        std::fs::write(&directory, "in the way").unwrap();
        let config = config(&directory, SECOND);
        let Err(error) = SpoolWriter::open(&config, IfUnusable::Refuse) else { panic!() };
        assert_eq!(error.key, "spool_directory");
        assert!(error.reason.starts_with("cannot open the spool /"), "{error}");
        assert!(SpoolWriter::check(&config).is_err_and(|error| error.key == "spool_directory"));
        let mut writer = SpoolWriter::open(&config, IfUnusable::Retry).unwrap();
        let counters = Counters::default();
        writer.report(&counters);
        assert!(writer.spool.is_none() && counters.spool.lock().is_none());
        assert_eq!(writer.due(), Some(writer.open_again));
        writer.attend();
        assert!(writer.due() == Some(writer.outage.next_try(Instant::now())) && writer.outage.reason().is_some());
        writer.report(&counters);
        let reported = counters.spool.lock().clone().unwrap();
        assert!(reported.limit_bytes == 1 << 30 && reported.outage.as_deref() == writer.outage.reason());
        assert!(!writer.write() && writer.read().is_none());
        std::fs::remove_file(&directory).unwrap();
        SpoolWriter::check(&config).unwrap();
        writer.open_again = Instant::now() + HANG;
        writer.attend();
        assert!(writer.spool.is_none(), "not before its time");
        writer.open_again = Instant::now();
        writer.attend();
        assert!(writer.spool.is_some());
        writer.report(&counters);
        assert_eq!(counters.spool.lock().clone().unwrap().outage, None);
        // Another sink of this process still has it briefly.
        let mut other = SpoolWriter::open(&config, IfUnusable::Refuse).unwrap();
        assert!(other.spool.is_none());
        let before = Instant::now();
        other.attend();
        assert!(is_due(other.due(), before, HANDOVER) && other.outage.reason().is_none());
        other.configure(&SinkConfig { spool_bytes: 7, spool_sync: SECOND, ..config.clone() });
        assert_eq!((other.limit_bytes, other.sync_every), (7, SECOND));
        writer.configure(&SinkConfig { spool_bytes: 7, ..config });
        assert_eq!(writer.spool.as_ref().map(|spool| spool.limit_bytes), Some(7));
    }

    #[test]
    fn a_spool_that_cannot_be_read_waits() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path(), 5 * SECOND);
        writer.unwritten.push_back(message(1));
        assert!(writer.write());
        writer.unwritten.clear();
        writer.sync_due = None;
        let again = Instant::now() + HANG;
        writer.read_failure = Some(("test".to_owned(), again));
        assert_eq!((writer.read(), writer.due()), (None, Some(again)));
        writer.read_failure = Some(("test".to_owned(), Instant::now()));
        assert_eq!(writer.due(), None, "nothing reads without a connection");
        assert_eq!(writer.read(), Some(message(1).0));
        assert!(writer.read_failure.is_none() && writer.read().is_none());
    }

    #[test]
    fn what_is_lost_is_counted_and_logged_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path(), 5 * SECOND);
        let counters = Counters::default();
        let mut report = |dropped, damaged| {
            let spool = writer.spool.as_mut().unwrap();
            (spool.dropped, spool.damaged) = (dropped, damaged);
            writer.report(&counters);
            let counted = counters.spool.lock().clone().unwrap();
            assert_eq!((counted.dropped, counted.limit_bytes, counted.records), (dropped, 1 << 30, 0));
            (writer.logged_dropped, writer.logged_damaged)
        };
        assert_eq!(report(0, 0), (0, 0));
        assert_eq!(report(5, 2), (5, 2));
        assert_eq!(report(7, 3), (5, 3), "a full spool is logged once a minute");
    }

    #[test]
    fn the_end_writes_the_cursor_and_counts_what_is_not_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = writer(folder.path(), 5 * SECOND);
        first.unwritten.extend([message(1), message(2)]);
        assert!(first.write());
        first.spool.as_mut().unwrap().acknowledge(1);
        first.unwritten = [message(3), message(4)].into();
        first.memory_only = [5, 6, 7].into();
        assert_eq!(first.close(), 5);
        let mut next = writer(folder.path(), 5 * SECOND);
        assert_eq!((next.read(), next.read()), (Some(message(2).0), None));
    }
}
