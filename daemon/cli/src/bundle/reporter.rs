//! Reports to the fleet what this device uses and does, from a thread of its own: a server that is away never delays a rollout, and a
//! step that takes minutes delays no report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{mem, thread};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use visiond_bundle::rollout::{Rollout, Step};
use visiond_bundle::store::Versions;
use visiond_fleet::{BundleReport, Reported};
use visiond_nats::{NatsError, Options};
use visiond_system::exit::ExitError;

use crate::fleet_buckets::{Buckets, describe};
use crate::output::{complain, note};
use crate::wall_clock::unix_s;

/// The shortest time between two reports: what changes meanwhile is in one.
const APART: Duration = Duration::from_secs(1);

/// The longest pause before a report that failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Reports to the fleet, and hears from it when something changes for this device.
#[derive(Debug, Clone)]
pub struct Reporter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A report has arrived, or the fleet has news.
    changed: Condvar,
    /// There is something to report.
    written: Notify,
}

#[derive(Debug, Default)]
struct State {
    bundles: BTreeMap<String, BundleReport>,
    /// Counts changes that should be reported at once.
    written: u64,
    /// The last of them that arrived.
    arrived: u64,
    /// Whether an operator has changed something since the last rest.
    has_news: bool,
}

/// Who reports.
#[derive(Debug, Clone)]
pub struct Identity {
    /// This device's name.
    pub device: String,
    /// Its group.
    pub group: String,
}

impl Reporter {
    /// Starts the thread. It reports at least every `interval`.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(options: Options, identity: Identity, interval: Duration) -> Result<Self, ExitError> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), written: Notify::new() });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("reporter".to_owned());
        thread.spawn(move || of_thread.run(&options, &identity, interval)).map_err(ExitError::system)?;
        Ok(Self(shared))
    }

    /// Sets what is reported of a bundle. Progress of a fetch alone waits for the next report.
    pub fn report(&self, name: &str, rollout: &Rollout, versions: &Versions) {
        let [current, previous] = versions.numbers();
        let report = BundleReport {
            current,
            previous,
            step: rollout.step,
            version: rollout.version,
            since_unix_s: rollout.since_unix_s,
            percent: rollout.percent,
            reason: rollout.reason.clone(),
        };
        let mut state = self.0.state.lock();
        let before = state.bundles.insert(name.to_owned(), report.clone());
        let is_progress = |before: &BundleReport| {
            report.step == Step::Fetching && *before == BundleReport { percent: before.percent, ..report.clone() }
        };
        if before.as_ref() != Some(&report) && !before.as_ref().is_some_and(is_progress) {
            state.written += 1;
            self.0.written.notify_one();
        }
    }

    /// Returns whether the fleet has news since the last rest.
    pub fn has_news(&self) -> bool {
        self.0.state.lock().has_news
    }

    /// Waits until the fleet has news, but not longer than that; returns whether it has.
    pub fn rest(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.0.state.lock();
        while !state.has_news && !self.0.changed.wait_until(&mut state, until).timed_out() {}
        mem::take(&mut state.has_news)
    }

    /// Waits until what was reported has arrived, but not longer than that.
    pub fn finish(&self, within: Duration) {
        let until = Instant::now() + within;
        let mut state = self.0.state.lock();
        while state.arrived < state.written && !self.0.changed.wait_until(&mut state, until).timed_out() {}
    }
}

impl Shared {
    /// Reports for as long as the process lives.
    fn run(&self, options: &Options, identity: &Identity, interval: Duration) {
        let (mut buckets, mut pause, mut failed) = (None, APART, None);
        loop {
            match self.turn(&mut buckets, options, identity, interval) {
                Ok(has_reported) => {
                    if failed.take().is_some() {
                        note("reports reach the fleet again");
                    }
                    pause = if has_reported { APART } else { Duration::ZERO };
                }
                Err(error) => {
                    let error = describe(&error);
                    if failed.as_ref() != Some(&error) {
                        complain(&format!("cannot report to the fleet as {}: {error}", identity.device));
                        failed = Some(error);
                    }
                    buckets = None;
                    pause = (pause.max(APART) * 2).min(LONGEST_PAUSE);
                }
            }
            thread::sleep(pause);
        }
    }

    /// Reports what there is, and waits until there is more; returns whether there was something.
    fn turn(
        &self,
        buckets: &mut Option<Buckets>,
        options: &Options,
        identity: &Identity,
        interval: Duration,
    ) -> Result<bool, NatsError> {
        let open = match buckets {
            Some(open) => open,
            none => none.insert(Buckets::open(options.clone())?),
        };
        let Identity { device, group } = identity;
        let (written, bundles) = {
            let state = self.state.lock();
            (state.written, state.bundles.clone())
        };
        let has_something = !bundles.is_empty();
        if has_something {
            let (group, visiond) = (group.clone(), env!("CARGO_PKG_VERSION").to_owned());
            open.put_reported(device, &Reported { format: 1, group, visiond, at_unix_s: unix_s(), bundles })?;
            self.state.lock().arrived = written;
            self.changed.notify_all();
        }
        let until = Instant::now() + interval;
        while Instant::now() < until {
            if open.wait(device, group, &self.written, until)? {
                self.state.lock().has_news = true;
                self.changed.notify_all();
            }
            if self.state.lock().written > written {
                break;
            }
        }
        Ok(has_something)
    }
}
