//! What is done about newer versions of a bundle, in words and in the store.

use visiond_bundle::Following;
use visiond_bundle::rollout::{Rollout, Step};
use visiond_bundle::store::Store;

use super::reporter::Reporter;
use crate::output::{complain, note};
use crate::wall_clock::unix_s;

/// The most characters of a reason: a file of more than 16 KiB counts as broken.
const MOST_CHARS: usize = 500;

/// The state of one bundle's rollout, for people and for the daemon's status.
pub struct State<'a> {
    pub name: &'a str,
    pub following: &'a Following,
    pub store: &'a Store,
    pub source: &'a str,
    /// Reports to the fleet, if there is one.
    pub reporter: Option<&'a Reporter>,
}

impl State<'_> {
    /// Writes the state, and says it if it is another one.
    pub fn set(&self, step: Step, version: Option<u64>, newest: Option<u64>, reason: Option<String>) {
        let reason = reason.map(|reason| reason.chars().take(MOST_CHARS).collect());
        let before = self.following.rollout();
        let is_same = |before: &&Rollout| (before.step, before.version) == (step, version);
        let since_unix_s = before.as_ref().filter(is_same).map_or_else(unix_s, |before| before.since_unix_s);
        // A source that is away is not asked for its newest version.
        let newest = newest.or_else(|| before.as_ref().and_then(|before| before.newest));
        let rollout =
            Rollout { source: self.source.to_owned(), step, version, newest, since_unix_s, percent: None, reason };
        if before.as_ref() == Some(&rollout) {
            return;
        }
        self.say(&rollout);
        self.write(&rollout);
        self.report();
    }

    /// Says a state.
    pub fn say(&self, rollout: &Rollout) {
        let line = format!("{} {}", self.name, described(rollout));
        // What needs no remedy is silenced by `-q`.
        if rollout.reason.is_some() && rollout.step != Step::UpToDate {
            complain(&line);
        } else {
            note(&line);
        }
    }

    /// Notes how much is here.
    pub fn set_percent(&self, version: u64, percent: u8) {
        if let Some(mut rollout) = self.following.rollout().filter(|it| it.version == Some(version)) {
            rollout.percent = Some(percent);
            self.write(&rollout);
            self.report();
        }
    }

    /// Reports the state, and the versions in the store, to the fleet.
    pub fn report(&self) {
        let Some(reporter) = self.reporter else { return };
        // A store that cannot be read is reported by what needs it.
        if let (Some(rollout), Ok(versions)) = (self.following.rollout(), self.store.versions(self.name)) {
            reporter.report(self.name, &rollout, &versions);
        }
    }

    fn write(&self, rollout: &Rollout) {
        // It only informs: a full disk must not keep a bad version in use.
        if let Err(error) = self.following.write_rollout(rollout) {
            complain(&format!("{}: {error}", self.name));
        }
    }
}

/// Returns the state as a sentence that begins with the version.
pub fn described(rollout: &Rollout) -> String {
    let version = rollout.version.map(|version| format!("{version} ")).unwrap_or_default();
    let what = match rollout.step {
        Step::UpToDate if rollout.reason.is_some() => "is installed, not watched",
        Step::UpToDate => "is the newest version",
        Step::Unreachable => "waits for its source, which is asked again later",
        Step::Waiting => "waits",
        Step::Fetching => "is being fetched",
        Step::Building => "gets its engine built for this machine's GPU",
        Step::Proving if rollout.reason.is_some() => "waits",
        Step::Proving => "proves itself",
        Step::Comparing => "is compared with the version in use",
        Step::Watching => "is in use, and watched",
        Step::Refused => "is refused, and the version in use stays",
        Step::WentBack => "was left for the version before",
    };
    let percent = rollout.percent.map(|percent| format!(" ({percent} %)")).unwrap_or_default();
    let reason = rollout.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{version}{what}{percent}{reason}")
}
