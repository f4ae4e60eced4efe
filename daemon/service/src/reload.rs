//! Reloads: the configuration is read again and put in force, beside the thread that waits for signals.
//!
//! SIGHUP and [`Reloads`], the handle that all else asks through, go one way: the main thread begins one reload at a time,
//! tells systemd, and answers whoever asked. Who asks while one is under way is answered by the one after it, because what
//! that one read may be older than the wish.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use visiond_config::diff::{ConfigDiff, Difference};
use visiond_config::types::Config;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::signals::Bell;
use visiond_system::threads::finished_by;

use super::Service;

/// What came of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// When it was done, RFC 3339.
    pub at: String,
    /// Whether what the file says is in force now; else everything is as it was.
    pub applied: bool,
    /// What has changed, part by part; empty: nothing has.
    pub changes: Vec<Difference>,
    /// What the file says otherwise and only a restart puts in force, as sentences.
    pub restart_needed: Vec<String>,
    /// Why it was refused: a sentence, or a line for each mistake of the file.
    pub error: Option<String>,
    /// The status that `visiond run` ends with when it finds the same at its start; 0: applied.
    pub exit_status: u8,
    /// From its beginning to its end.
    pub took_ms: u64,
}

impl Outcome {
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

/// What a configuration would change about what runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preview {
    /// Whether a reload would try it; a network that is no good is found by the reload alone.
    pub valid: bool,
    /// As in [`Outcome`].
    pub changes: Vec<Difference>,
    /// As in [`Outcome`].
    pub restart_needed: Vec<String>,
    /// As in [`Outcome`].
    pub error: Option<String>,
}

/// A configuration that is not in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposal {
    /// Its file: relative paths in it are relative to the file's folder. The daemon does not read it.
    pub path: PathBuf,
    /// What stands in it.
    pub text: String,
}

impl Preview {
    /// What `service`, whose configuration is the file `own`, would change for `proposal`.
    pub fn new(service: &Service, own: &Path, proposal: &Proposal) -> Self {
        let config = Config::parse(&proposal.text, &as_from(own, &proposal.path));
        let config = config.map_err(|errors| ExitError::new(Exit::Config, errors));
        match config.and_then(|config| service.preview(&config)) {
            Ok(changes) => Self {
                valid: true,
                changes: changes.differences(),
                restart_needed: changes.restart_needed,
                error: None,
            },
            Err(error) => Self { error: Some(error.message.trim_end().to_owned()), ..Self::default() },
        }
    }
}

/// `path` as a neighbour of `own` where it is one, so that relative paths in the two files read alike: the daemon may have
/// been given a path that is relative itself.
fn as_from(own: &Path, path: &Path) -> PathBuf {
    let folder = |path: &Path| std::path::absolute(path).ok()?.parent()?.canonicalize().ok();
    match (folder(own), folder(path), path.file_name()) {
        (Some(a), Some(b), Some(name)) if a == b => own.with_file_name(name),
        _ => path.to_owned(),
    }
}

/// Asks for reloads, from any thread.
#[derive(Clone)]
pub struct Reloads(Arc<Shared>);

struct Shared {
    asked: Mutex<Asked>,
    bell: Bell,
    path: PathBuf,
}

#[derive(Default)]
struct Asked {
    /// Who waits for a reload that has not begun.
    waiters: Vec<oneshot::Sender<Outcome>>,
    /// The daemon ends: there will be none.
    closed: bool,
}

impl Reloads {
    fn new(path: PathBuf, bell: Bell) -> Self {
        Self(Arc::new(Shared { asked: Mutex::default(), bell, path }))
    }

    /// The file that is read.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Asks for one that begins from now on. An error instead of an outcome means that the daemon ends.
    pub fn request(&self) -> oneshot::Receiver<Outcome> {
        let (waiter, outcome) = oneshot::channel();
        let mut asked = self.lock();
        if !asked.closed {
            asked.waiters.push(waiter);
            self.0.bell.ring();
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes reloads, one after the other. The main thread's.
pub struct Reloader {
    service: Arc<Service>,
    reloads: Reloads,
    current: Option<Current>,
    /// It was asked for again meanwhile: what is read now may be older than that.
    again: bool,
}

/// A reload under way.
struct Current {
    began: Instant,
    waiters: Vec<oneshot::Sender<Outcome>>,
    /// `None` where the system gave none, which is the outcome then.
    thread: Option<JoinHandle<()>>,
    result: Receiver<Result<ConfigDiff, ExitError>>,
}

/// A reload that is done.
pub struct Finished {
    /// For the log and systemd.
    pub result: Result<ConfigDiff, ExitError>,
    waiters: Vec<oneshot::Sender<Outcome>>,
    outcome: Outcome,
}

/// Rings when dropped, by a panic too.
struct RingAtEnd(Bell);

impl Drop for RingAtEnd {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl Reloader {
    /// Reads the file at `path`, puts it in force at `service`, and rings `bell` when that is done or asked for.
    pub fn new(path: PathBuf, service: &Arc<Service>, bell: Bell) -> Self {
        Self { service: Arc::clone(service), reloads: Reloads::new(path, bell), current: None, again: false }
    }

    /// The handle to ask through.
    pub fn reloads(&self) -> Reloads {
        self.reloads.clone()
    }

    /// Whether somebody asked through [`Reloads`] and no reload begun since.
    pub fn is_asked(&self) -> bool {
        !self.again && !self.reloads.lock().waiters.is_empty()
    }

    /// Begins one, or makes one follow the one under way.
    pub fn begin(&mut self) {
        if self.current.is_some() {
            self.again = true;
            return;
        }
        self.again = false;
        let waiters = std::mem::take(&mut self.reloads.lock().waiters);
        let (tell, result) = channel();
        let (path, service) = (self.reloads.path().to_owned(), Arc::clone(&self.service));
        // Its receiver lives as long as the daemon waits.
        let failed = tell.clone();
        let ring = RingAtEnd(self.reloads.0.bell.clone());
        let spawned = thread::Builder::new().name("reload".to_owned()).spawn(move || {
            let _ring = ring;
            let config = Config::load(&path).map_err(|errors| ExitError::new(Exit::Config, errors));
            let _ = tell.send(config.and_then(|config| service.apply(config)));
        });
        let thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                let _ = failed.send(Err(ExitError::system(error)));
                None
            }
        };
        self.current = Some(Current { began: Instant::now(), waiters, thread, result });
    }

    /// What came of the one that was under way, once it is done; who asked for it waits until [`Reloader::answer`]. One
    /// that was asked for meanwhile has begun then.
    pub fn finished(&mut self) -> Option<Finished> {
        let result = match self.current.as_ref()?.result.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                let message = "a fault of visiond, told above: please report it";
                Err(ExitError::new(Exit::Failure, message))
            }
        };
        let Current { began, waiters, .. } = self.current.take()?;
        if std::mem::take(&mut self.again) {
            self.begin();
        }
        let outcome = Outcome::new(&result, began.elapsed());
        Some(Finished { result, waiters, outcome })
    }

    /// Answers who asked, once all that it changes is changed.
    pub fn answer(&self, Finished { waiters, outcome, .. }: Finished) {
        for waiter in waiters {
            // Who has gone wants no answer.
            let _ = waiter.send(outcome.clone());
        }
    }

    /// Whether one is under way.
    pub fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// The daemon ends: who waits is told so, and nobody can ask any more.
    pub fn close(&self) {
        let mut asked = self.reloads.lock();
        asked.closed = true;
        asked.waiters.clear();
    }

    /// Waits for the one that is under way; `false`: it is not done by `deadline`.
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
