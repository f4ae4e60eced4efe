//! What is done about newer versions of the bundles that models are and settings come from, for the status and for brokers. Another process writes it into
//! a file, which is read on a thread of its own: the disk may hang.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use visiond_bundle::rollout::{Rollout, Step};
use visiond_config::settings::TakenSettings;
use visiond_ground::ranked_lock::{LockRank, RankedMutex};
use visiond_live::{Live, LiveBundle};
use visiond_message::status::{BundleStatus, RolloutStatus};
use visiond_system::redact::redact_urls;
use visiond_system::stop::Stop;

use crate::bundles::ModelBundle;
use crate::prepared_config::RunningConfig;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(2);

/// The longest text that is passed on, in characters.
const MOST_CHARS: usize = 500;

/// Follows the bundles of the running models and of the settings in force.
pub struct BundleWatch {
    watched: Arc<Watched>,
    stop: Stop,
    /// Set once the thread runs, which is when there is the first bundle.
    thread: OnceLock<()>,
}

struct Watched {
    live: Arc<Live>,
    bundles: RankedMutex<WatchedBundles>,
}

#[derive(Clone, Default, PartialEq)]
struct WatchedBundles {
    models: Vec<WatchedModel>,
    settings: Option<WatchedSettings>,
}

/// The settings in force.
#[derive(Clone, PartialEq)]
struct WatchedSettings {
    /// Their bundle, without a rollout.
    status: BundleStatus,
    /// The folder of the bundle, with all of its versions.
    folder: PathBuf,
}

/// A model, its lane and its bundle.
#[derive(Clone, PartialEq)]
struct WatchedModel {
    model: String,
    lane: String,
    bundle: ModelBundle,
}

impl BundleWatch {
    /// Creates a watch without bundles.
    pub fn new(live: &Arc<Live>, stop: &Stop) -> Self {
        let bundles = RankedMutex::new(LockRank(8), WatchedBundles::default());
        let watched = Arc::new(Watched { live: Arc::clone(live), bundles });
        Self { watched, stop: stop.clone(), thread: OnceLock::new() }
    }

    /// Shows the bundles that are used from now on, and follows their rollouts.
    pub fn follow(&self, running: &RunningConfig) {
        let (models, settings) = (models_of(running), settings_of(running));
        let is_empty = models.is_empty() && settings.is_none();
        let known = self.watched.live.bundles();
        let shown = models.iter().map(|model| {
            // What was known of the same version stays until the file is read.
            let known = known.iter().find(|known| known.model == model.model);
            let status = status_of(&model.bundle, None);
            let rollout =
                known.filter(|known| known.status.name == status.name && known.status.version == status.version);
            model.live(BundleStatus { rollout: rollout.and_then(|known| known.status.rollout.clone()), ..status })
        });
        let shown = shown.collect();
        let known = self.watched.live.settings();
        let shown_settings = settings.as_ref().map(|settings| {
            let status = settings.status.clone();
            let same = known.filter(|known| known.name == status.name && known.version == status.version);
            BundleStatus { rollout: same.and_then(|known| known.rollout), ..status }
        });
        let mut watched = self.watched.bundles.lock();
        *watched = WatchedBundles { models, settings };
        self.watched.live.set_bundles(shown);
        self.watched.live.set_settings(shown_settings);
        drop(watched);
        if !is_empty && self.thread.set(()).is_ok() {
            self.start();
        }
    }

    fn start(&self) {
        let (watched, stop) = (Arc::downgrade(&self.watched), self.stop.clone());
        let spawned = thread::Builder::new().name("bundles".to_owned()).spawn(move || {
            while let Some(watched) = watched.upgrade() {
                watched.look();
                drop(watched);
                if stop.sleep(INTERVAL) {
                    break;
                }
            }
        });
        if let Err(error) = spawned {
            log::warn!("cannot start a thread for the rollouts of bundles, which are not shown: {error}");
        }
    }
}

impl Watched {
    /// Reads the files and shows what they say.
    fn look(&self) {
        let bundles = self.bundles.lock().clone();
        let read = |model: &WatchedModel| model.live(status_of(&model.bundle, Rollout::read(&model.bundle.folder)));
        let shown: Vec<_> = bundles.models.iter().map(read).collect();
        let settings = bundles.settings.as_ref().map(|WatchedSettings { status, folder }| {
            let rollout = Rollout::read(folder).map(rollout_of);
            BundleStatus { rollout, ..status.clone() }
        });
        // A reload may have changed them meanwhile.
        let now = self.bundles.lock();
        if *now != bundles {
            return;
        }
        if *self.live.bundles() != shown {
            self.live.set_bundles(shown);
        }
        self.live.set_settings(settings);
    }
}

impl WatchedModel {
    fn live(&self, status: BundleStatus) -> LiveBundle {
        LiveBundle { model: self.model.clone(), lane: self.lane.clone(), status }
    }
}

/// Returns the running models that are bundles.
fn models_of(running: &RunningConfig) -> Vec<WatchedModel> {
    let mut models = Vec::new();
    for root in running.config.used_models() {
        let all = std::iter::once(root).chain(running.config.cascade_of(root));
        models.extend(all.filter_map(|model| {
            let bundle = running.bundles.get(&model.name)?.clone();
            Some(WatchedModel { model: model.name.clone(), lane: root.name.clone(), bundle })
        }));
    }
    models
}

/// Returns the bundle of the settings in force.
fn settings_of(running: &RunningConfig) -> Option<WatchedSettings> {
    let bundles = &running.config.bundles;
    let TakenSettings { bundle: name, version, signed_by, since, .. } = bundles.taken.as_ref()?;
    let status = BundleStatus {
        name: name.clone(),
        version: *version,
        since: since.and_then(rfc3339),
        signed_by: signed_by.clone(),
        rollout: None,
    };
    Some(WatchedSettings { status, folder: bundles.store().folder(name) })
}

fn rfc3339(since: SystemTime) -> Option<String> {
    Timestamp::try_from(since).ok().map(|since| format!("{since:.0}"))
}

fn status_of(bundle: &ModelBundle, rollout: Option<Rollout>) -> BundleStatus {
    BundleStatus {
        name: bundle.name.clone(),
        version: bundle.version,
        since: bundle.since.and_then(rfc3339),
        signed_by: bundle.signed_by.clone(),
        rollout: rollout.map(rollout_of),
    }
}

/// Returns what a file says, of which nothing is trusted.
fn rollout_of(Rollout { source, step, version, newest, since_unix_s, percent, reason }: Rollout) -> RolloutStatus {
    let since = i64::try_from(since_unix_s).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    RolloutStatus {
        source: plain(&source),
        step: step_name(step).to_owned(),
        version,
        newest,
        since: since.map(|since| since.to_string()),
        percent: percent.map(|percent| percent.min(100)),
        reason: reason.as_deref().map(plain),
    }
}

/// Returns a text as one line without secrets.
fn plain(text: &str) -> String {
    redact_urls(text).chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_CHARS).collect()
}

fn step_name(step: Step) -> &'static str {
    match step {
        Step::UpToDate => "up_to_date",
        Step::Unreachable => "unreachable",
        Step::Waiting => "waiting",
        Step::Fetching => "fetching",
        Step::Building => "building",
        Step::Proving => "proving",
        Step::Comparing => "comparing",
        Step::Watching => "watching",
        Step::Refused => "refused",
        Step::WentBack => "went_back",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use visiond_bundle::rollout::ROLLOUT;
    use visiond_message::status::ROLLOUT_STEPS;
    use visiond_system::testing::make_fifo;

    use super::*;

    #[test]
    fn a_rollout_is_shown_as_its_file_has_it_and_a_broken_or_endless_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ROLLOUT);
        let mut seen = Vec::new();
        for step in ROLLOUT_STEPS {
            let text = format!(
                "source = \"https://user:secret@example.org/street\"\nstep = \"{step}\"\nversion = 8\nnewest = 9\n\
                 since_unix_s = 1790000000\npercent = 200\nreason = \"a\\u001b[31mb\"\n"
            );
            fs::write(&path, text).unwrap();
            seen.push(rollout_of(Rollout::read(folder.path()).unwrap()));
        }
        assert_eq!(seen.iter().map(|one| &*one.step).collect::<Vec<_>>(), ROLLOUT_STEPS);
        let one = &seen[0];
        assert!(!one.source.contains("secret") && one.source.contains("example.org/street"), "{}", one.source);
        assert_eq!((one.percent, one.reason.as_deref()), (Some(100), Some("a [31mb")));
        assert_eq!(one.since.as_deref(), Some("2026-09-21T14:13:20Z"));
        assert_eq!((one.version, one.newest), (Some(8), Some(9)));
        let long = format!("source = \"{}\"\nstep = \"refused\"\nsince_unix_s = 1\n", "x".repeat(1000));
        fs::write(&path, &long).unwrap();
        assert_eq!(rollout_of(Rollout::read(folder.path()).unwrap()).source.chars().count(), MOST_CHARS);
        for broken in
            ["step = \"fetching\"", "\0", &long.replace("refused", "unknown"), &long.replace('x', &"x".repeat(20))]
        {
            fs::write(&path, broken).unwrap();
            assert_eq!(Rollout::read(folder.path()), None);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(Rollout::read(folder.path()), None);
        make_fifo(&path);
        assert_eq!(Rollout::read(folder.path()), None, "a pipe without a writer");
    }
}
