//! SIGHUP: the configuration is read again, and put in force beside the thread that waits for signals.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Service;
use crate::cli::CliError;
use crate::config::changes::Changes;
use crate::config::types::Config;
use crate::exit::Exit;
use crate::signals::Bell;

/// Reloads, one after the other.
pub struct Reloader {
    path: PathBuf,
    service: Arc<Service>,
    bell: Bell,
    current: Option<Current>,
    /// It was asked for again meanwhile: what is read now may be older than that.
    again: bool,
}

/// A reload under way.
struct Current {
    /// `None` where the system gave none, which is the outcome then.
    thread: Option<JoinHandle<()>>,
    outcome: Receiver<Result<Changes, CliError>>,
}

/// Rings when dropped, by a panic too.
struct RingAtEnd(Bell);

impl Drop for RingAtEnd {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl Reloader {
    /// Reads the file at `path`, puts it in force at `service`, and rings `bell` when that is done.
    pub fn new(path: PathBuf, service: &Arc<Service>, bell: Bell) -> Self {
        Self { path, service: Arc::clone(service), bell, current: None, again: false }
    }

    /// Begins one, or makes one follow the one under way.
    pub fn begin(&mut self) {
        if self.current.is_some() {
            self.again = true;
            return;
        }
        self.again = false;
        let (tell, outcome) = channel();
        let (path, service, bell) = (self.path.clone(), Arc::clone(&self.service), self.bell.clone());
        // Its receiver lives as long as the daemon waits.
        let failed = tell.clone();
        let ring = RingAtEnd(bell);
        let spawned = thread::Builder::new().name("reload".to_owned()).spawn(move || {
            let _ring = ring;
            let config = Config::load(&path).map_err(|errors| CliError::new(Exit::Config, errors));
            let _ = tell.send(config.and_then(|config| service.apply(config)));
        });
        let thread = spawned.map_err(|error| failed.send(Err(CliError::system(error)))).ok();
        self.current = Some(Current { thread, outcome });
    }

    /// What came of the one that was under way, once it is done.
    pub fn finished(&mut self) -> Option<Result<Changes, CliError>> {
        let outcome = match self.current.as_ref()?.outcome.try_recv() {
            Ok(outcome) => outcome,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                let message = "a fault of visiond, told above: please report it";
                Err(CliError::new(Exit::Failure, message))
            }
        };
        self.current = None;
        if std::mem::take(&mut self.again) {
            self.begin();
        }
        Some(outcome)
    }

    /// Whether one is under way.
    pub fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Waits for the one that is under way; `false`: it is not done by `deadline`.
    pub fn wait(&self, deadline: Instant) -> bool {
        let thread = self.current.as_ref().and_then(|current| current.thread.as_ref());
        while thread.is_some_and(|thread| !thread.is_finished()) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        true
    }
}
