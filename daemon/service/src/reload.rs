//! Reloads: read the configuration again and switch to it, on a thread beside the one that waits for signals.
//!
//! SIGHUP and the API, through [`ReloadHandle`], take the same path: the main thread begins one reload at a time, notifies
//! systemd, and answers every request. A request that comes during a reload is answered by the next one, because the file may
//! have changed after the reload read it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tokio::sync::oneshot;
use visiond_bundle::BundleSettings;
use visiond_bundle::store::Store;
use visiond_config::diff::{ConfigDiff, Difference};
use visiond_config::layers::wanted_settings;
use visiond_config::types::Config;
use visiond_ground::ranked_lock::{LockRank, RankedMutex};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::threads::finished_by;
use visiond_system::wake_pipe::WakePipe;

use crate::command_queue::{CommandResult, WaitingCommand};
use crate::error::ServiceError;
use crate::service::Service;

/// The least time between two changes by commands; those that come meanwhile make one. Each change may cost as much as a reload.
const COMMAND_INTERVAL: Duration = Duration::from_millis(500);

/// The result of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadOutcome {
    /// When it ended, in RFC 3339.
    pub at: String,
    /// Whether the file is now in force; if not, nothing has changed.
    pub applied: bool,
    /// The changes, part by part; empty if there are none.
    pub changes: Vec<Difference>,
    /// The changes that take effect only after a restart, as sentences.
    pub restart_needed: Vec<String>,
    /// Why it was refused: a sentence, or a line for each error in the file.
    pub error: Option<String>,
    /// The exit status of `visiond run` if it starts with the same file; 0 if the reload was applied.
    pub exit_status: u8,
    /// How long the reload took, in milliseconds.
    pub took_ms: u64,
}

impl ReloadOutcome {
    fn new(result: &Result<ConfigDiff, ExitError>, took: Duration) -> Self {
        let changes = result.as_ref().ok();
        Self {
            at: jiff::Timestamp::now().to_string(),
            applied: result.is_ok(),
            changes: changes.map(ConfigDiff::differences).unwrap_or_default(),
            restart_needed: changes.map(|changes| changes.restart_needed.clone()).unwrap_or_default(),
            error: result.as_ref().err().map(|error| error.message.trim_end().to_owned()),
            exit_status: result.as_ref().err().map_or(Exit::Success, |error| error.exit).code(),
            took_ms: took.as_millis() as u64,
        }
    }
}

/// The changes that a configuration would make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preview {
    /// Whether a reload would accept the file; only the reload itself finds a model that does not work.
    pub valid: bool,
    /// The same as in [`ReloadOutcome`].
    pub changes: Vec<Difference>,
    /// The same as in [`ReloadOutcome`].
    pub restart_needed: Vec<String>,
    /// The same as in [`ReloadOutcome`].
    pub error: Option<String>,
}

/// A configuration to preview.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposal {
    /// The file, which the daemon does not read: relative paths in the text are relative to its folder.
    pub path: PathBuf,
    /// The text of the file.
    pub text: String,
    /// Settings to lie over the file, in place of those that are installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<ProposedSettings>,
}

/// The settings of a version of a bundle that is not in use yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProposedSettings {
    /// The name of the bundle.
    pub bundle: String,
    /// Its version.
    #[serde(deserialize_with = "whole_number")]
    pub version: u64,
    /// The text of its settings.
    pub text: String,
}

/// Reads a whole number, which JSON may also write as `7.0`.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    /// The first number that is too large: 2^64.
    const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Whole(u64),
        Float(f64),
    }
    match Number::deserialize(deserializer)? {
        Number::Whole(number) => Ok(number),
        Number::Float(number) if number.fract() == 0.0 && (0.0..TOO_LARGE).contains(&number) => Ok(number as u64),
        Number::Float(_) => Err(D::Error::custom("the version must be a whole number, such as 7")),
    }
}

impl Preview {
    /// Returns the changes that `service`, whose configuration is the file `own`, would make for `proposal`.
    pub fn new(service: &Service, own: &Path, proposal: &Proposal) -> Self {
        match Self::changes(service, own, proposal) {
            Ok(changes) => Self {
                valid: true,
                changes: changes.differences(),
                restart_needed: changes.restart_needed,
                error: None,
            },
            Err(error) => Self { error: Some(error.to_string().trim_end().to_owned()), ..Self::default() },
        }
    }

    fn changes(service: &Service, own: &Path, proposal: &Proposal) -> Result<ConfigDiff, PreviewError> {
        let path = as_from(own, &proposal.path);
        let running = service.config().bundles.store();
        let config = match &proposal.settings {
            Some(ProposedSettings { bundle, version, text }) => {
                let settings = BundleSettings::proposed(bundle, *version, text);
                Config::parse_with(&proposal.text, &path, settings)
            }
            None => {
                if let Some((_, store)) = wanted_settings(&proposal.text, &path) {
                    check_store(&store, &running)?;
                }
                Config::complete(&proposal.text, &path)
            }
        };
        let config = config.map_err(ServiceError::from)?;
        if config.models.iter().any(|model| model.bundle.is_some()) {
            check_store(&config.bundles.store(), &running)?;
        }
        Ok(service.preview(&config)?)
    }
}

/// Why a proposal has no preview.
#[derive(Debug, thiserror::Error)]
enum PreviewError {
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error(
        "cannot preview bundles in {asked}: the running configuration has them in {running}, and no other folder is read for a \
         client; change `directory` in [bundles] with a reload first"
    )]
    OtherStore { asked: PathBuf, running: PathBuf },
}

/// Checks that a proposal's bundles are where the running configuration has them: a client must not choose what the daemon reads.
fn check_store(asked: &Store, running: &Store) -> Result<(), PreviewError> {
    let [asked, running] = [asked, running].map(|store| store.folder(""));
    // Links are not followed, because the client may have made them.
    if asked == running { Ok(()) } else { Err(PreviewError::OtherStore { asked, running }) }
}

/// Returns `path` relative to the folder of `own` if it is in that folder.
///
/// The daemon's own path may be relative; relative paths in both files then resolve in the same way.
fn as_from(own: &Path, path: &Path) -> PathBuf {
    let folder = |path: &Path| std::path::absolute(path).ok()?.parent()?.canonicalize().ok();
    match (folder(own), folder(path), path.file_name()) {
        (Some(a), Some(b), Some(name)) if a == b => own.with_file_name(name),
        _ => path.to_owned(),
    }
}

/// Requests reloads, from any thread.
#[derive(Clone)]
pub struct ReloadHandle(Arc<ReloadRequests>);

struct ReloadRequests {
    pending: RankedMutex<PendingRequests>,
    wake_pipe: Arc<WakePipe>,
    path: PathBuf,
}

#[derive(Default)]
struct PendingRequests {
    /// Requests that wait for a reload that has not begun.
    waiters: Vec<oneshot::Sender<ReloadOutcome>>,
    /// Whether the daemon is ending, so that no reload will come.
    closed: bool,
}

impl ReloadHandle {
    fn new(path: PathBuf, wake_pipe: Arc<WakePipe>) -> Self {
        let pending = RankedMutex::new(LockRank(6), PendingRequests::default());
        Self(Arc::new(ReloadRequests { pending, wake_pipe, path }))
    }

    /// Returns the configuration file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Requests a reload that begins after this call. The receiver returns an error if the daemon ends first.
    pub fn request(&self) -> oneshot::Receiver<ReloadOutcome> {
        let (waiter, outcome) = oneshot::channel();
        let mut pending = self.0.pending.lock();
        if !pending.closed {
            pending.waiters.push(waiter);
            self.0.wake_pipe.wake();
        }
        outcome
    }
}

/// Runs reloads and commands for the main thread: a reload, or all commands that wait, at a time.
pub struct Reloader {
    service: Arc<Service>,
    /// Requests reloads.
    pub reloads: ReloadHandle,
    current: Option<RunningReload>,
    /// Whether another request came during the reload, which may have read an older file.
    again: bool,
    /// When the next commands may begin.
    commands_from: Option<Instant>,
}

/// A reload or commands in progress.
struct RunningReload {
    began: Instant,
    work: Work,
    /// `None` if it could not be started; the result then says so.
    thread: Option<JoinHandle<()>>,
    result: Receiver<Result<Done, ServiceError>>,
}

/// The changes of a reload, or the result of each command.
type Done = (ConfigDiff, Vec<CommandResult>);

/// What is in progress, and who waits for it.
enum Work {
    Reload(Vec<oneshot::Sender<ReloadOutcome>>),
    Commands(Vec<WaitingCommand>),
}

/// A reload or commands that have ended.
pub enum Finished {
    /// A reload.
    Reload(Box<FinishedReload>),
    /// Commands.
    Commands(Vec<FinishedCommand>),
}

/// A command that has ended.
pub struct FinishedCommand {
    /// Why the command was refused, if it was.
    pub result: CommandResult,
    /// The command.
    pub waiting: WaitingCommand,
}

impl FinishedCommand {
    /// Gives the clients their answer.
    pub fn answer(self) {
        self.waiting.answer(&self.result);
    }
}

/// A reload that has ended.
pub struct FinishedReload {
    /// The changes, or why the reload was refused.
    pub result: Result<ConfigDiff, ExitError>,
    waiters: Vec<oneshot::Sender<ReloadOutcome>>,
    outcome: ReloadOutcome,
}

/// Wakes the main thread when it is dropped, also by a panic.
struct WakeAtEnd(Arc<WakePipe>);

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Reloader {
    /// Reloads `service` from the file at `path`, and wakes `wake_pipe` on every request and at the end of each reload.
    pub fn new(path: PathBuf, service: &Arc<Service>, wake_pipe: Arc<WakePipe>) -> Self {
        service.commands().wake_by(Arc::clone(&wake_pipe));
        let reloads = ReloadHandle::new(path, wake_pipe);
        Self { service: Arc::clone(service), reloads, current: None, again: false, commands_from: None }
    }

    /// Whether a request came through [`ReloadHandle`] since the last reload began.
    pub fn is_asked(&self) -> bool {
        !self.again && !self.reloads.0.pending.lock().waiters.is_empty()
    }

    /// Begins a reload; during another one, begins it after that.
    pub fn begin(&mut self) {
        if self.current.is_some() {
            self.again = true;
            return;
        }
        self.again = false;
        let waiters = std::mem::take(&mut self.reloads.0.pending.lock().waiters);
        let (path, service) = (self.reloads.path().to_owned(), Arc::clone(&self.service));
        self.spawn(Work::Reload(waiters), move || {
            let config = Config::load(&path).map_err(ServiceError::from);
            config.and_then(|config| service.apply(config)).map(|changes| (changes, Vec::new()))
        });
    }

    /// Returns when commands that wait may begin; `None` if none waits, or something is in progress.
    pub fn commands_due(&self, now: Instant) -> Option<Instant> {
        let may_begin = self.current.is_none() && self.service.commands().has_some();
        may_begin.then(|| self.commands_from.unwrap_or(now))
    }

    /// Begins the commands that wait, if they may begin now.
    pub fn begin_commands(&mut self, now: Instant) {
        if self.commands_due(now).is_some_and(|due| due <= now) {
            self.commands_from = Some(now + COMMAND_INTERVAL);
            let waiting = self.service.commands().take();
            let commands: Vec<_> = waiting.iter().map(|waiting| waiting.command.clone()).collect();
            let service = Arc::clone(&self.service);
            self.spawn(Work::Commands(waiting), move || {
                let results = service.carry_out(&commands).into_iter().map(|result| result.map_err(Arc::new));
                Ok((ConfigDiff::default(), results.collect()))
            });
        }
    }

    fn spawn(&mut self, work: Work, run: impl FnOnce() -> Result<Done, ServiceError> + Send + 'static) {
        let (sender, result) = channel();
        let failed = sender.clone();
        let wake_at_end = WakeAtEnd(Arc::clone(&self.reloads.0.wake_pipe));
        let spawned = thread::Builder::new().name("reload".to_owned()).spawn(move || {
            let _wake_at_end = wake_at_end;
            let _ = sender.send(run());
        });
        let thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                let _ = failed.send(Err(ServiceError::System(error)));
                None
            }
        };
        self.current = Some(RunningReload { began: Instant::now(), work, thread, result });
    }

    /// Returns the reload or the commands that have ended, if some have. Their requests wait for an answer.
    ///
    /// Begins the next reload if one was requested meanwhile.
    pub fn finished(&mut self) -> Option<Finished> {
        let result = match self.current.as_ref()?.result.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(ServiceError::Panic),
        };
        let RunningReload { began, work, .. } = self.current.take()?;
        if std::mem::take(&mut self.again) {
            self.begin();
        }
        Some(match work {
            Work::Reload(waiters) => {
                let result = result.map(|(changes, _)| changes).map_err(ExitError::from);
                let outcome = ReloadOutcome::new(&result, began.elapsed());
                Finished::Reload(Box::new(FinishedReload { result, waiters, outcome }))
            }
            Work::Commands(waiting) => {
                let results = match result {
                    Ok((_, results)) => results,
                    Err(error) => vec![Err(Arc::new(error)); waiting.len()],
                };
                let of_each = waiting.into_iter().zip(results);
                Finished::Commands(of_each.map(|(waiting, result)| FinishedCommand { result, waiting }).collect())
            }
        })
    }

    /// Answers the requests of a reload, once its changes are in force.
    pub fn answer(&self, FinishedReload { waiters, outcome, .. }: FinishedReload) {
        for waiter in waiters {
            // The client may have gone.
            let _ = waiter.send(outcome.clone());
        }
    }

    /// Whether a reload is in progress.
    pub fn is_busy(&self) -> bool {
        self.current.as_ref().is_some_and(|current| matches!(current.work, Work::Reload(_)))
    }

    /// Refuses all requests, including waiting ones, because the daemon is ending.
    pub fn close(&self) {
        let mut pending = self.reloads.0.pending.lock();
        pending.closed = true;
        pending.waiters.clear();
        self.service.commands().close();
    }

    /// Waits for the reload in progress; returns `false` if it has not ended by `deadline`.
    pub fn wait(&self, deadline: Instant) -> bool {
        let thread = self.current.as_ref().and_then(|current| current.thread.as_ref());
        finished_by(thread, deadline)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_version_is_a_whole_number_however_json_writes_it() {
        let version = |number: &str| {
            let text = format!("{{\"bundle\": \"night\", \"version\": {number}, \"text\": \"\"}}");
            serde_json::from_str::<ProposedSettings>(&text).ok().map(|settings| settings.version)
        };
        for (number, wanted) in [("7", 7), ("7.0", 7), ("-0", 0), ("18446744073709551615", u64::MAX), ("1e3", 1000)] {
            assert_eq!(version(number), Some(wanted), "{number}");
        }
        for number in ["7.5", "-1", "18446744073709551616", "1e30", "\"7\"", "null"] {
            assert_eq!(version(number), None, "{number}");
        }
    }

    #[test]
    fn a_neighbour_of_the_daemons_file_is_read_from_where_that_is() {
        let here = std::env::current_dir().unwrap();
        let from = |own: &str, path: &Path| as_from(Path::new(own), path);
        assert_eq!(from("v.toml", &here.join("v.toml")), Path::new("v.toml"));
        assert_eq!(from("./v.toml", &here.join("new.toml")), Path::new("./new.toml"));
        assert_eq!(from("v.toml", Path::new("/etc/v.toml")), Path::new("/etc/v.toml"));
        assert_eq!(from("/etc/v.toml", &here.join("v.toml")), here.join("v.toml"));
        assert_eq!(from("v.toml", Path::new("")), Path::new(""));
    }
}
