//! The spool of a durable sink, as the sink's thread uses it: logs and retries what the disk refuses. Another thread syncs what
//! was written, so that a power cut does not lose it.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use visiond_config::types::SinkConfig;
use visiond_flow::sink_counts::SpoolCounts;
use visiond_system::backoff::RateLimit;
use visiond_system::outage::{Outage, explain};
use visiond_system::preflight::Certainty;

use super::QueuedMessage;
use crate::queue::Counters;
use crate::sink::SinkError;
use crate::spool::{OpenError, Spool};

/// How long to wait before retrying a spool that another sink of this process still holds.
const HANDOVER: Duration = Duration::from_millis(20);
/// How often to log a problem that persists.
const QUIET: Duration = Duration::from_secs(60);

/// The spool of a durable sink, and the messages that could not be written to it.
pub struct SpoolWriter {
    name: String,
    directory: PathBuf,
    limit_bytes: u64,
    sync_every: Duration,
    /// `None` while the spool cannot be opened.
    pub spool: Option<Spool>,
    /// Messages that the disk has not accepted yet, with their frames' numbers for the log; newer than all on it.
    pub unwritten: VecDeque<(QueuedMessage, u64)>,
    /// The numbers of messages in flight that are not on disk.
    pub memory_only: BTreeSet<u64>,
    /// When to try to open it next, while `spool` is `None`.
    open_again: Instant,
    outage: Outage,
    /// When to sync what was written.
    sync_due: Option<Instant>,
    syncing: Option<JoinHandle<io::Result<()>>>,
    sync_failed: RateLimit,
    full: RateLimit,
    /// How many dropped messages and damaged places were logged.
    logged_dropped: u64,
    logged_damaged: u64,
}

impl SpoolWriter {
    /// Opens the spool of a sink. Fails if waiting cannot help.
    pub fn open(config: &SinkConfig) -> Result<Self, SinkError> {
        let directory = folder(config)?;
        let mut writer = Self {
            name: config.name.clone(),
            outage: Outage::new(label(&config.name, &directory)).costing("kept in memory only"),
            directory,
            limit_bytes: config.spool_bytes,
            sync_every: config.spool_sync,
            spool: None,
            unwritten: VecDeque::new(),
            memory_only: BTreeSet::new(),
            open_again: Instant::now(),
            sync_due: None,
            syncing: None,
            sync_failed: RateLimit::new(QUIET),
            full: RateLimit::new(QUIET),
            logged_dropped: 0,
            logged_damaged: 0,
        };
        match writer.open_spool() {
            // The old sink of this process hands it over in a moment.
            Ok(()) | Err(OpenError::HeldByThisProcess) => {}
            Err(OpenError::Io(error))
                if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                writer.outage.failed(&explain(&error));
            }
            Err(error) => return Err(cannot_open(&writer.directory, &error)),
        }
        Ok(writer)
    }

    /// Finds out whether [`SpoolWriter::open`] would fail, without touching the folder.
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
        let write = match &self.spool {
            None => Some(self.open_again),
            Some(_) => (!self.unwritten.is_empty()).then(|| self.outage.next_try()),
        };
        [write, self.sync_due].into_iter().flatten().min()
    }

    /// Opens a spool that could not be opened, and syncs what is due.
    pub fn attend(&mut self) {
        let now = Instant::now();
        if self.spool.is_none() && now >= self.open_again {
            self.open_again = now + HANDOVER;
            match self.open_spool() {
                Ok(()) => self.outage.recovered(),
                Err(OpenError::HeldByThisProcess) => {}
                Err(error) => {
                    self.outage.failed(&error.to_string());
                    self.open_again = self.outage.next_try();
                }
            }
        }
        if self.sync_due.is_some_and(|due| now >= due) {
            self.sync();
        }
    }

    /// Writes all unwritten messages, oldest first; returns `false` if it wrote none and they are to be tried again.
    pub fn write(&mut self) -> bool {
        let Some(spool) = &mut self.spool else { return false };
        if !self.outage.may_try() {
            return false;
        }
        if let Err(error) = spool.append(self.unwritten.iter().map(|(message, _)| message)) {
            self.outage.failed(&explain(&error));
            return false;
        }
        self.outage.recovered();
        if self.sync_every.is_zero()
            && let Some(Err(error)) = spool.unsynced().map(|unsynced| unsynced.sync())
        {
            self.complain(&error);
        }
        if log::log_enabled!(log::Level::Trace) {
            for (QueuedMessage { id, camera, .. }, sequence) in &self.unwritten {
                log::trace!("sink {}: accepted {id} {camera} {sequence}", self.name);
            }
        }
        self.schedule_sync();
        true
    }

    pub fn read(&mut self) -> Option<QueuedMessage> {
        let spool = self.spool.as_mut()?;
        loop {
            match spool.read() {
                Ok(found) => return found,
                Err(error) => log::error!(
                    "sink {}: cannot read a part of the spool {}, skipping it: {error}",
                    self.name,
                    self.directory.display()
                ),
            }
        }
    }

    /// Writes the acknowledged number. If that fails, messages are sent twice after a restart.
    pub fn write_cursor(&mut self) {
        match self.spool.as_mut().map(Spool::write_cursor) {
            Some(Ok(true)) => self.schedule_sync(),
            Some(Err(error)) => self.complain(&error),
            Some(Ok(false)) | None => {}
        }
    }

    /// Publishes what the spool holds, and logs what is lost.
    pub fn report(&mut self, counters: &Counters) {
        let outage = self.outage.reason().map(str::to_owned);
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
        let (bytes, records) = (spool.bytes(), spool.records());
        *counters.spool.lock() = Some(SpoolCounts { bytes, limit_bytes, records, dropped, outage });
    }

    /// Syncs everything and closes the spool; returns how many messages are lost.
    pub fn close(mut self) -> u64 {
        self.write_cursor();
        if let Some(mut spool) = self.spool.take() {
            if let Some(Err(error)) = spool.unsynced().map(|unsynced| unsynced.sync()) {
                self.complain(&error);
            }
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

    fn schedule_sync(&mut self) {
        // With 0 only the cursor is left, and an old cursor costs only messages that are sent twice.
        let after = if self.sync_every.is_zero() { Duration::from_secs(1) } else { self.sync_every };
        self.sync_due.get_or_insert_with(|| Instant::now() + after);
    }

    /// Syncs on another thread, one sync at a time, so that syncs do not pile up on a slow disk.
    fn sync(&mut self) {
        if let Some(syncing) = &mut self.syncing {
            match syncing.now_or_never() {
                None => {
                    self.sync_due = Some(Instant::now() + Duration::from_millis(100));
                    return;
                }
                Some(Ok(Err(error))) => self.complain(&error),
                // The task never panics and is never cancelled.
                Some(Ok(Ok(())) | Err(_)) => {}
            }
        }
        self.sync_due = None;
        let unsynced = self.spool.as_mut().and_then(Spool::unsynced);
        self.syncing = unsynced.map(|unsynced| tokio::task::spawn_blocking(move || unsynced.sync()));
    }

    fn complain(&mut self, error: &io::Error) {
        if self.sync_failed.pass(Instant::now()).is_some() {
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
