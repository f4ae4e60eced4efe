//! The spool of a durable sink, as the sink's thread uses it: logs and retries what the disk refuses. Another thread syncs what
//! was written, so that a power cut does not lose it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use visiond_config::types::SinkConfig;
use visiond_system::backoff::RateLimit;
use visiond_system::outage::{Outage, explain};

use super::client::QueuedMessage;
use crate::queue::Counters;
use crate::spool::{OpenError, Spool};
use visiond_flow::sink_counts::SpoolCounts;

/// How long to wait before retrying a spool that another sink of this process still holds.
const HANDOVER: Duration = Duration::from_millis(20);
/// How often to log a problem that persists.
const QUIET: Duration = Duration::from_secs(60);

/// The spool of a sink.
pub struct Disk {
    name: String,
    directory: PathBuf,
    limit_bytes: u64,
    sync_every: Duration,
    /// `None` while the spool cannot be opened.
    spool: Option<Spool>,
    /// When to try to open it next, while `spool` is `None`.
    open_again: Instant,
    outage: Outage,
    /// When to sync what was written.
    sync_due: Option<Instant>,
    syncing: Option<JoinHandle<io::Result<()>>>,
    sync_failed: RateLimit,
    full: RateLimit,
    dropped_told: u64,
    damaged_told: u64,
}

/// A message that waits to be written, with the frame's number for the log.
pub(super) struct Unwritten {
    pub message: QueuedMessage,
    pub sequence: u64,
}

impl Disk {
    /// Opens the spool of a sink. Fails if waiting cannot help.
    pub fn open(config: &SinkConfig) -> Result<Self, String> {
        let directory = config.spool().ok_or_else(|| {
            "`durable` needs a folder, and $STATE_DIRECTORY, which systemd sets, is not set: set `spool_directory`"
                .to_owned()
        })?;
        let mut disk = Self {
            name: config.name.clone(),
            outage: outage(&config.name, &directory),
            directory,
            limit_bytes: config.spool_bytes,
            sync_every: config.spool_sync,
            spool: None,
            open_again: Instant::now(),
            sync_due: None,
            syncing: None,
            sync_failed: RateLimit::new(QUIET),
            full: RateLimit::new(QUIET),
            dropped_told: 0,
            damaged_told: 0,
        };
        let shown = disk.directory.display();
        match Spool::open(&disk.directory, disk.limit_bytes) {
            Ok(spool) => disk.begin(spool),
            // The old sink of this process hands it over in a moment.
            Err(OpenError::HeldByThisProcess) => {}
            Err(OpenError::HeldByOtherProcess) => {
                return Err(format!(
                    "the spool {shown} is in use by another process: end that process, or set another `spool_directory`"
                ));
            }
            Err(OpenError::Io(error))
                if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                disk.outage.fails(&explain(&error));
            }
            Err(OpenError::Io(error)) => {
                return Err(format!("cannot open the spool {shown}: {}", explain(&error)));
            }
        }
        Ok(disk)
    }

    /// Applies a new name and new limits.
    pub fn configure(&mut self, config: &SinkConfig) {
        self.name.clone_from(&config.name);
        self.outage.rename(what(&self.name, &self.directory));
        (self.limit_bytes, self.sync_every) = (config.spool_bytes, config.spool_sync);
        if let Some(spool) = &mut self.spool {
            spool.set_limit(self.limit_bytes);
        }
    }

    /// Whether the spool is open.
    pub fn is_open(&self) -> bool {
        self.spool.is_some()
    }

    /// Returns the next message's number, or a larger one.
    pub fn next_number(&self) -> u64 {
        self.spool.as_ref().map_or(0, Spool::next_number)
    }

    /// Returns how many messages are unread.
    pub fn unread(&self) -> u64 {
        self.spool.as_ref().map_or(0, Spool::unread)
    }

    /// Returns when there is work to do; `refused`: there are messages that the disk did not accept.
    pub fn due(&self, refused: bool) -> Option<Instant> {
        let write = match &self.spool {
            None => Some(self.open_again),
            Some(_) if refused => Some(self.outage.next_try()),
            Some(_) => None,
        };
        [write, self.sync_due].into_iter().flatten().min()
    }

    /// Opens a spool that could not be opened, and syncs what is due.
    pub fn attend(&mut self) {
        let now = Instant::now();
        if self.spool.is_none() && now >= self.open_again {
            self.open_again = now + HANDOVER;
            match Spool::open(&self.directory, self.limit_bytes) {
                Ok(spool) => {
                    self.outage.works();
                    self.begin(spool);
                }
                Err(OpenError::HeldByThisProcess) => {}
                Err(error) => {
                    let reason = match error {
                        OpenError::Io(error) => explain(&error),
                        OpenError::HeldByThisProcess | OpenError::HeldByOtherProcess => {
                            "another process holds it".to_owned()
                        }
                    };
                    self.outage.fails(&reason);
                    self.open_again = self.outage.next_try();
                }
            }
        }
        if self.sync_due.is_some_and(|due| now >= due) {
            self.sync();
        }
    }

    /// Writes all of `messages`, oldest first; returns `false` if it wrote none and they are to be tried again.
    pub fn write(&mut self, messages: &VecDeque<Unwritten>) -> bool {
        let Some(spool) = &mut self.spool else { return false };
        if !self.outage.may_try() {
            return false;
        }
        if let Err(error) = spool.append(messages.iter().map(|unwritten| &unwritten.message)) {
            self.outage.fails(&explain(&error));
            return false;
        }
        self.outage.works();
        if self.sync_every.is_zero()
            && let Some(Err(error)) = spool.unsynced().map(|unsynced| unsynced.sync())
        {
            self.complain(&error);
        }
        if log::log_enabled!(log::Level::Trace) {
            for Unwritten { message: QueuedMessage { id, camera, .. }, sequence } in messages {
                log::trace!("sink {}: accepted {id} {camera} {sequence}", self.name);
            }
        }
        self.is_to_be_synced();
        true
    }

    /// Returns the next unread message on disk.
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

    /// Marks everything as read, because it is sent from memory.
    pub fn pass_over(&mut self) {
        if let Some(spool) = &mut self.spool {
            spool.pass_over();
        }
    }

    /// Notes that the numbers below this one are not on disk.
    pub fn skip_numbers(&mut self, next_number: u64) {
        if let Some(spool) = &mut self.spool {
            spool.skip_numbers(next_number);
        }
    }

    /// Notes that everything up to `number` is acknowledged.
    pub fn acknowledge(&mut self, number: u64) {
        if let Some(spool) = &mut self.spool {
            spool.acknowledge(number);
        }
    }

    /// Writes the acknowledged number. If that fails, messages are sent twice after a restart.
    pub fn write_cursor(&mut self) {
        match self.spool.as_mut().map(Spool::write_cursor) {
            Some(Ok(true)) => self.is_to_be_synced(),
            Some(Err(error)) => self.complain(&error),
            Some(Ok(false)) | None => {}
        }
    }

    /// Publishes what the spool holds, and logs what is lost.
    pub fn tell(&mut self, counters: &Counters) {
        let Some(spool) = &self.spool else { return };
        let (name, directory) = (&self.name, self.directory.display());
        let (dropped, damaged) = (spool.dropped(), spool.damaged());
        if dropped > self.dropped_told && self.full.pass(Instant::now()).is_some() {
            log::warn!(
                "sink {name}: the spool {directory} is full: {} messages are lost, the oldest first; raise spool_bytes if \
                 that is too many",
                dropped - self.dropped_told
            );
            self.dropped_told = dropped;
        }
        if damaged > self.damaged_told {
            log::warn!(
                "sink {name}: the spool {directory} is damaged in {} places, as after a power cut; the messages there are \
                 lost",
                damaged - self.damaged_told
            );
            self.damaged_told = damaged;
        }
        let counts =
            SpoolCounts { bytes: spool.bytes(), limit_bytes: self.limit_bytes, records: spool.records(), dropped };
        *counters.spool.lock() = Some(counts);
    }

    /// Syncs everything and closes the spool.
    pub fn close(mut self) {
        self.write_cursor();
        let Some(mut spool) = self.spool.take() else { return };
        if let Some(Err(error)) = spool.unsynced().map(|unsynced| unsynced.sync()) {
            self.complain(&error);
        }
        let records = spool.records();
        if records > 0 {
            log::info!("sink {}: {records} messages stay in the spool {}", self.name, self.directory.display());
        }
    }

    fn begin(&mut self, spool: Spool) {
        let records = spool.records();
        if records > 0 {
            log::info!(
                "sink {}: {records} messages from an earlier run are in the spool {}",
                self.name,
                self.directory.display()
            );
        }
        self.spool = Some(spool);
    }

    fn is_to_be_synced(&mut self) {
        if self.sync_due.is_none() {
            // With 0 only the cursor is left, and an old cursor costs only messages that are sent twice.
            let after = if self.sync_every.is_zero() { Duration::from_secs(1) } else { self.sync_every };
            self.sync_due = Some(Instant::now() + after);
        }
    }

    /// Lets another thread sync what was written; one at a time, so that a slow disk is not given more and more work.
    fn sync(&mut self) {
        if let Some(syncing) = &mut self.syncing {
            match syncing.now_or_never() {
                None => {
                    self.sync_due = Some(Instant::now() + Duration::from_millis(100));
                    return;
                }
                Some(Ok(Err(error))) => self.complain(&error),
                // It never panics and is never cancelled.
                Some(Ok(Ok(())) | Err(_)) => {}
            }
        }
        self.syncing = None;
        self.sync_due = None;
        if let Some(unsynced) = self.spool.as_mut().and_then(Spool::unsynced) {
            self.syncing = Some(tokio::task::spawn_blocking(move || unsynced.sync()));
        }
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

fn outage(name: &str, directory: &std::path::Path) -> Outage {
    Outage::new(what(name, directory)).costing("kept in memory only")
}

fn what(name: &str, directory: &std::path::Path) -> String {
    format!("sink {name}: the spool {}", directory.display())
}
