//! `visiond bundle follow`: fetches newer versions of bundles by itself, lets them prove themselves, switches the daemon to them,
//! watches how its cameras fare, and goes back if they fare worse.
//!
//! One bundle changes at a time, so that what is observed is due to that one. The process may end at any moment: what the next one
//! must know is in the store. docs/bundles.md describes the steps.

mod daemon_config;
mod fleet;
mod settings;
mod watch;
mod web_source;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, path, thread};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use visiond_bundle::rollout::{Rollout, Step};
use visiond_bundle::store::{Candidate, Store, Versions};
use visiond_bundle::{
    Bundle, BundleError, BundleSource, FetchError, FetchLimits, FolderSource, Following, Index, KeysUpdated,
    check_followed, fetch,
};
use visiond_config::parse_duration;
use visiond_config::units::format_duration;
use visiond_fleet::Order;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::redact::redact_urls;
use visiond_web::status::report::StatusReport;

use self::daemon_config::DaemonConfig;
use self::fleet::{Fleet, FleetArgs, random};
use self::watch::{Before, FRAMES, Judge, Limits, Sample};
use self::web_source::{WebSource, check_url};
use super::comparison::{Running, compare_live};
use super::failure::{refuse, refuse_key_list};
use super::install::{note_left, warn_of_expiry};
use super::proof::{Failed, ProofArgs, prove};
use super::reporter::Reporter;
use super::rollout_state::State;
use super::trusted_keys::KeyArgs;
use super::versions::StoreArgs;
use crate::client::{Client, DaemonAddress, DaemonArgs};
use crate::fleet_buckets::check_servers;
use crate::output::{complain, note};
use crate::value_parsers::{duration, size};
use crate::wall_clock::unix_s;
use crate::{check, reload};

/// Fetch newer versions of bundles, prove, use and watch them, and go back to the version before if cameras fare worse
///
/// It runs as root until it is stopped: the service visiond-bundles does.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Names of the bundles
    #[arg(value_name = "NAME", required = true, value_parser = name)]
    names: Vec<String>,

    /// Fetch from this URL (https:// or http://) or folder, which `visiond bundle publish` fills, or follow the fleet on these NATS
    /// servers: nats://HOST or tls://HOST, several with commas
    #[arg(long, value_name = "SOURCE", value_parser = source)]
    source: String,

    #[command(flatten)]
    fleet: FleetArgs,

    #[command(flatten)]
    keys: KeyArgs,

    #[command(flatten)]
    store: StoreArgs,

    /// Ask the source once, do what follows from that, and exit
    #[arg(long)]
    once: bool,

    /// Ask the source this often; each device adds or takes away up to a quarter
    #[arg(long, value_name = "TIME", default_value = "15min", value_parser = duration)]
    interval: Duration,

    /// Watch a new version for this long; 0 does not watch it
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = watch_time)]
    watch: Duration,

    /// Before a new version is used, compare it for this long with the one in use, on live frames; 0 does not compare it
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = watch_time)]
    compare: Duration,

    /// Fetch at most this much in a second, such as 500KiB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_rate: Option<u64>,

    #[command(flatten)]
    proof: ProofArgs,

    /// Read the daemon's address from this configuration [default: /etc/visiond/visiond.toml, otherwise ./visiond.toml]
    #[arg(long, value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// Connect to the daemon at ADDRESS: http://HOST:PORT or unix:/PATH [default: from CONFIG, or this user's daemon, or the service]
    #[arg(long, value_name = "ADDRESS", value_parser = DaemonAddress::parse)]
    url: Option<DaemonAddress>,
}

const AFTER_HELP: &str = "\
A version that was refused, or that the device went back from, is not tried again. docs/bundles.md says what is watched.

With --once, the status is 0 if the newest version is in use, or if a fleet wants nothing now, 4 or 8 if it was refused or went back, 5 if the source cannot be read.

Examples:
  sudo visiond bundle follow --source https://models.example/bundles street
  sudo visiond bundle follow --source /media/stick --once street door
  sudo -E visiond bundle follow --source tls://nats.example --group north street

NATS_CREDS, NATS_USER, NATS_PASSWORD, NATS_TOKEN, NATS_CA, NATS_CERT and NATS_KEY log in to NATS as they do for the program `nats`. NATS_JS_API_PREFIX is its --js-api-prefix.";

/// Pause between two reads of the daemon's status.
const POLL: Duration = Duration::from_secs(2);

/// The longest time to fetch a bundle before the others have their turn.
const FETCH_TURN: Duration = Duration::from_secs(3600);

/// How often a model that cannot be loaded is tried.
const ATTEMPTS: u32 = 3;

/// How long to wait for a command that changes the store.
const BUSY: Duration = Duration::from_secs(15 * 60);

/// The shortest watch after a restart of this process, so that none passes unseen.
const SHORTEST_WATCH: Duration = Duration::from_secs(60);

/// The pause before a fetch that took its whole turn continues.
const FETCH_PAUSE: Duration = Duration::from_secs(60);

/// Names of files that survive a restart of this process.
const WATCH: &str = "watch";
const ATTEMPT: &str = "attempt";
const UNFIT: &str = "unfit";

/// A version that becomes the current one, or that is watched.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Watch {
    version: u64,
    /// The end, in seconds since 1970; absent until the daemon has been reloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_unix_s: Option<u64>,
    /// When the daemon started.
    started_at: String,
    /// What changes if the machine restarts, or visiond is updated.
    run_id: String,
    /// Whether it has changed meanwhile.
    is_other_run: bool,
    /// Whether the version before is current again, and the daemon must still be reloaded.
    is_left: bool,
    /// Why to go back; absent as long as there is no reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    limits: Limits,
}

/// Why to go back, and how that ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Verdict {
    step: Step,
    reason: String,
    exit_status: u8,
}

impl Verdict {
    /// Cameras fared worse.
    fn worse(reason: String) -> Self {
        Self { step: Step::WentBack, reason, exit_status: Exit::Model.code() }
    }

    fn exit(&self) -> Exit {
        Exit::from_code(self.exit_status).unwrap_or(Exit::Model)
    }
}

/// A file that no key and no update can make a bundle of this name and version.
#[derive(Debug, Serialize, Deserialize)]
struct Unfit {
    sha256: String,
}

/// How often a bundle was tried.
#[derive(Debug, Serialize, Deserialize)]
struct Attempt {
    sha256: String,
    begun: u32,
}

/// Follows bundles.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    let store = args.store.open();
    let followed = args.names.iter().map(|name| Ok((name.clone(), store.follow(name).map_err(refuse)?)));
    let followed: Vec<(String, Following)> = followed.collect::<Result<_, ExitError>>()?;
    let (origin, shown) = if is_fleet(&args.source) {
        (
            Origin::Fleet(Box::new(Fleet::new(&args.fleet, &args.source, args.config.clone(), args.interval)?)),
            redact_urls(&args.source),
        )
    } else if is_url(&args.source) {
        (Origin::Source(Box::new(WebSource::new(&args.source)?)), args.source.clone())
    } else {
        let folder = path::absolute(&args.source).unwrap_or_else(|_| args.source.clone().into());
        (Origin::Source(Box::new(FolderSource(folder.clone()))), folder.display().to_string())
    };
    if args.source.starts_with("http://") {
        complain(
            "bundles cross the network in clear text, so others may read them, though not change them: use https:// in --source",
        );
    }
    let proving = Mutex::new(None);
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(ExitError::system)?;
    let handle = signals.handle();
    let follower = Follower { args, store, origin, shown, proving: &proving, said_of_keys: String::new() };
    thread::scope(|scope| {
        scope.spawn(|| {
            for signal in &mut signals {
                // Held until the process ends.
                let mut proving = proving.lock();
                take_back(&mut proving, &followed);
                let _ = emulate_default_handler(signal);
            }
        });
        let exit = follower.run(&followed);
        handle.close();
        Ok(exit)
    })
}

/// Takes back the attempt of a proof that is ended from outside, because that is no fault of the model.
fn take_back(proving: &mut Option<(String, Option<Attempt>)>, followed: &[(String, Following)]) {
    if let Some((name, before)) = proving.take()
        && let Some((_, following)) = followed.iter().find(|(one, _)| *one == name)
        && let Err(error) = following.write(ATTEMPT, before.as_ref())
    {
        complain(&format!("{name}: {error}"));
    }
}

/// How a turn of a bundle ended.
enum Outcome {
    Ended(Exit),
    /// The rest is fetched in the next turn.
    Unfinished,
}

/// Where newer versions come from, and who says which one to use.
enum Origin {
    /// A source whose newest version is used.
    Source(Box<dyn BundleSource>),
    /// A fleet, whose operators say which version is used.
    Fleet(Box<Fleet>),
}

impl Origin {
    fn source(&mut self) -> &mut dyn BundleSource {
        match self {
            Self::Source(source) => source.as_mut(),
            Self::Fleet(fleet) => fleet.as_mut(),
        }
    }

    fn reporter(&self) -> Option<Reporter> {
        match self {
            Self::Source(_) => None,
            Self::Fleet(fleet) => Some(fleet.reporter.clone()),
        }
    }
}

struct Follower<'a> {
    args: &'a Args,
    store: Store,
    origin: Origin,
    /// The source, for people.
    shown: String,
    /// The name of the bundle that is proven, and its attempts before.
    proving: &'a Mutex<Option<(String, Option<Attempt>)>>,
    /// Why the list of keys stays, as it was said last.
    said_of_keys: String,
}

impl Follower<'_> {
    /// Follows until it is stopped, or once.
    fn run(mut self, followed: &[(String, Following)]) -> Exit {
        loop {
            if let Some(reporter) = self.origin.reporter() {
                // What is asked from here on is newer than any news so far.
                reporter.rest(Duration::ZERO);
            }
            let (mut exit, mut is_unfinished) = (self.update_keys(), false);
            for (name, following) in followed {
                let outcome = self.follow(name, following).unwrap_or_else(|error| {
                    complain(&format!("{name}: {}", error.message));
                    Outcome::Ended(error.exit)
                });
                match outcome {
                    Outcome::Ended(of_this) if exit == Exit::Success => exit = of_this,
                    Outcome::Ended(_) => {}
                    Outcome::Unfinished => {
                        is_unfinished = true;
                        exit = Exit::Input;
                    }
                }
            }
            if self.args.once {
                if let Origin::Fleet(fleet) = &self.origin {
                    fleet.finish();
                }
                return exit;
            }
            let pause = scattered(self.args.interval);
            let pause = if is_unfinished { pause.min(FETCH_PAUSE) } else { pause };
            match &mut self.origin {
                Origin::Source(_) => thread::sleep(pause),
                Origin::Fleet(fleet) => fleet.rest(pause),
            }
        }
    }

    /// Takes over the newest list of keys of the source. A list that is refused keeps no bundle of the installed one's keys away.
    fn update_keys(&mut self) -> Exit {
        // Keys that are named take the place of any list.
        if self.args.keys.are_named() {
            return Exit::Success;
        }
        let refused = match self.store.update_key_list(self.origin.source()) {
            Ok(KeysUpdated { list, refused }) => {
                if let Some(list) = list {
                    note(&format!("version {} of the list of keys is installed", list.version));
                }
                refused
            }
            Err(error) => Some(error),
        };
        let Some(error) = refused.map(refuse_key_list) else {
            self.said_of_keys.clear();
            return Exit::Success;
        };
        // Not again in every turn.
        if self.said_of_keys != error.message {
            complain(&format!("the list of keys stays: {}", error.message));
            self.said_of_keys = error.message;
        }
        error.exit
    }

    /// Does what is to be done about one bundle now.
    fn follow(&mut self, name: &str, following: &Following) -> Result<Outcome, ExitError> {
        let (shown, store, reporter) = (self.shown.clone(), self.store.clone(), self.origin.reporter());
        let state = State { name, following, store: &store, source: &shown, reporter: reporter.as_ref() };
        state.report();
        if let Some(watch) = following.read::<Watch>(WATCH)
            && let Some(exit) = self.resume(&state, watch)?
        {
            return Ok(Outcome::Ended(exit));
        }
        let versions = self.store.versions(name).map_err(refuse)?;
        let wanted = match &mut self.origin {
            Origin::Source(source) => Index::ask(source.as_mut(), name),
            Origin::Fleet(fleet) => match fleet.order(name, versions.numbers()) {
                Ok(Order::Use { version, .. }) => Index::ask_version(fleet.as_mut(), name, version),
                Ok(order) => return self.obey(&state, &versions, order).map(Outcome::Ended),
                Err(error) => Err(error),
            },
        };
        let index = match wanted {
            Ok(index) => index,
            Err(error) => {
                state.set(Step::Unreachable, None, None, Some(error.to_string()));
                return Ok(Outcome::Ended(Exit::Input));
            }
        };
        let newest = Some(index.version);
        let refused = versions.refused.get(&index.version);
        let was_current = versions.newest.is_some_and(|newest| index.version <= newest);
        if refused.is_some() || was_current {
            following.keep_only(None).map_err(refuse)?;
            // What ended badly remains to be seen until there is a newer version.
            let rollout = following.rollout();
            let current = versions.current.as_ref().map(|it| it.manifest.version);
            // Not if it was installed by hand afterwards.
            let is_out = refused.is_some() || current != newest;
            let bad_end = rollout.as_ref().filter(|it| is_out && ended_badly(it, newest));
            if let Some(bad_end) = bad_end {
                if self.args.once {
                    state.say(bad_end);
                }
            } else {
                match refused {
                    Some(reason) => {
                        let step = if was_current { Step::WentBack } else { Step::Refused };
                        state.set(step, newest, newest, Some(reason.clone()));
                    }
                    None if matches!(self.origin, Origin::Fleet(_)) && current != newest => {
                        let had = versions.newest.unwrap_or_default();
                        let reason =
                            format!("it is not newer than version {had}, which this device had: use a newer one");
                        state.set(Step::Refused, newest, newest, Some(reason));
                    }
                    None => up_to_date(&state, current, newest),
                }
            }
            let is_bad = bad_end.is_some() || refused.is_some();
            return Ok(Outcome::Ended(if is_bad { Exit::Model } else { Exit::Success }));
        }
        // The same file is not fetched again to be refused again.
        if following.read::<Unfit>(UNFIT).is_some_and(|unfit| unfit.sha256 == index.sha256)
            && let Some(rollout) = following.rollout().filter(|it| ended_badly(it, newest))
        {
            if self.args.once {
                state.say(&rollout);
            }
            return Ok(Outcome::Ended(Exit::Model));
        }
        let bundle = match self.fetch(&state, &index) {
            Ok(bundle) => bundle,
            Err(outcome) => return Ok(outcome),
        };
        if let Some(reason) = self.objection(name, index.version) {
            // It is here, and proves itself once it may be used.
            state.set(Step::Waiting, newest, newest, Some(reason));
            return Ok(Outcome::Ended(Exit::Success));
        }
        self.install(&state, &index, &bundle).map(Outcome::Ended)
    }

    /// Returns why a version may not be used now. The fleet is asked again after each step that takes its time.
    fn objection(&mut self, name: &str, version: u64) -> Option<String> {
        let Origin::Fleet(fleet) = &mut self.origin else { return None };
        let versions = match self.store.versions(name) {
            Ok(versions) => versions,
            Err(error) => return Some(error.to_string()),
        };
        match fleet.order(name, versions.numbers()) {
            Ok(Order::Use { version: wanted, wait }) if wanted == version => wait,
            Ok(_) => Some("another version is wanted by now".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Does what the fleet wants, except for using another version.
    fn obey(&self, state: &State<'_>, versions: &Versions, order: Order) -> Result<Exit, ExitError> {
        let [current, _] = versions.numbers();
        match order {
            Order::GoBack { from, reason } => {
                let verdict = Verdict { step: Step::WentBack, reason, exit_status: Exit::Success.code() };
                return self.go_back(state, Watch { version: from, ..Watch::default() }, verdict);
            }
            Order::Impossible { version, reason } => {
                state.set(Step::Refused, Some(version), Some(version), Some(reason));
                return Ok(Exit::Model);
            }
            // What was fetched stays.
            Order::Wait { version, reason } => state.set(Step::Waiting, Some(version), Some(version), Some(reason)),
            Order::Use { .. } => {}
            Order::Stay { newest } => {
                state.following.keep_only(None).map_err(refuse)?;
                if current.is_some() {
                    up_to_date(state, current, newest);
                } else {
                    let reason = format!(
                        "its group has no version of it yet: begin with `visiond fleet rollout {} VERSION --group {}`",
                        state.name, self.args.fleet.group
                    );
                    state.set(Step::Waiting, None, newest, Some(reason));
                }
            }
        }
        Ok(Exit::Success)
    }

    /// Fetches a bundle, or returns how its turn ended without it.
    fn fetch(&mut self, state: &State<'_>, index: &Index) -> Result<PathBuf, Outcome> {
        let limits = FetchLimits { max_rate_bytes_s: self.args.max_rate, deadline: Instant::now() + FETCH_TURN };
        let (version, is_once) = (Some(index.version), self.args.once);
        let mut shown: Option<Instant> = None;
        let mut progress = |percent| {
            if shown.is_none() {
                state.set(Step::Fetching, version, version, None);
            }
            if shown.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
                state.set_percent(index.version, percent);
                shown = Some(Instant::now());
            }
            // An operator may want something else by now.
            let has_news = !is_once && state.reporter.is_some_and(Reporter::has_news);
            if has_news { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match fetch(self.origin.source(), index, state.following, &limits, &mut progress) {
            Ok(path) => Ok(path),
            Err(FetchError::Unfinished { .. }) => Err(Outcome::Unfinished),
            Err(FetchError::Source(error)) => {
                state.set(Step::Unreachable, version, version, Some(error.to_string()));
                Err(Outcome::Ended(Exit::Input))
            }
            Err(FetchError::Store(error)) => {
                state.set(Step::Fetching, version, version, Some(error.to_string()));
                Err(Outcome::Ended(refuse(error).exit))
            }
        }
    }

    /// Lets a fetched bundle prove itself, and switches to it.
    fn install(&mut self, state: &State<'_>, index: &Index, bundle: &Path) -> Result<Exit, ExitError> {
        let version = Some(index.version);
        let refused = |error: ExitError| {
            state.set(Step::Refused, version, version, Some(error.message));
            Ok(error.exit)
        };
        let unfit = |error: ExitError| {
            state.following.write(UNFIT, Some(&Unfit { sha256: index.sha256.clone() })).map_err(refuse)?;
            state.following.keep_only(None).map_err(refuse)?;
            refused(error)
        };
        let wait = |error: ExitError| {
            state.set(Step::Proving, version, version, Some(error.message));
            error.exit
        };
        let keys = match self.args.keys.read(&self.store) {
            Ok(keys) => keys,
            // Keys may be installed later.
            Err(error) => return Ok(wait(error)),
        };
        let (opened, signer) = match Bundle::open_trusted(bundle, &keys) {
            Ok(opened) => opened,
            Err(error @ BundleError::Io { .. }) => return Ok(wait(refuse(error))),
            // Its key may be trusted later.
            Err(error @ BundleError::Untrusted { .. }) => return refused(refuse(error)),
            Err(error) => return unfit(refuse(error)),
        };
        let manifest = opened.manifest();
        if manifest.name != state.name || manifest.version != index.version {
            let (name, version) = (&manifest.name, manifest.version);
            let message = format!("its file in the source is the bundle {name} {version}: publish the right one");
            return unfit(ExitError::new(Exit::Model, message));
        }
        let daemon = match self.daemon(state.name) {
            Ok(daemon) => daemon,
            Err(error) => return Ok(wait(error)),
        };
        if let Some(error) = self.unwanted(manifest) {
            return refused(error);
        }
        // Without any version, the configuration may name the bundle already, and is rejected until there is one.
        let is_first = self.store.versions(state.name).map_err(refuse)?.current.is_none();
        // The proof of settings finds such a fault, and whether they correct it.
        let is_settings = manifest.settings.is_some();
        if let Some(fault) = self.fault_of_configuration().filter(|_| !is_first && !is_settings) {
            let reason =
                format!("a reload would be rejected now, whatever the model is: correct the configuration: {fault}");
            return Ok(wait(ExitError::new(Exit::Config, reason)));
        }
        state.set(Step::Proving, version, version, None);
        // Before the bundle is locked, which also keeps people from a rollback.
        let before = if daemon.is_ok() { self.measure(state) } else { None };
        let candidate = match self.store.unpack(bundle, &keys, false) {
            Ok(candidate) => candidate,
            Err(BundleError::Installed { .. }) => return end(state, Step::UpToDate, version, None, Exit::Success),
            // A later attempt may not meet these.
            Err(error @ (BundleError::Busy(_) | BundleError::NoSpace { .. } | BundleError::Io { .. })) => {
                return Ok(wait(refuse(error)));
            }
            Err(error) => return refused(refuse(error)),
        };
        note(&format!("{} {}: signed by the key {}", state.name, index.version, signer.id));
        warn_of_expiry(&candidate.manifest);
        let settings = match candidate.settings() {
            Ok(settings) => settings,
            Err(error @ BundleError::Io { .. }) => return Ok(wait(refuse(error))),
            Err(_) => {
                let reason = "its settings are not UTF-8: make a new version";
                candidate.refuse(reason).map_err(refuse)?;
                state.following.keep_only(None).map_err(refuse)?;
                state.set(Step::Refused, version, version, Some(reason.to_owned()));
                return Ok(Exit::Config);
            }
        };
        let candidate = match &settings {
            Some(settings) => match self.prove_settings(state, candidate, settings, daemon.as_ref().ok())? {
                Ok(candidate) => candidate,
                Err(exit) => return Ok(exit),
            },
            None => candidate,
        };
        if settings.is_none()
            && let Some((exit, reason)) = self.prove(state, index, &candidate)?
        {
            let attempts = state.following.read::<Attempt>(ATTEMPT).map_or(0, |attempt| attempt.begun);
            if exit != Exit::Differs && attempts < ATTEMPTS {
                let reason =
                    format!("it could not be proven, and is tried again (attempt {attempts} of {ATTEMPTS}): {reason}");
                return Ok(wait(ExitError::new(exit, reason)));
            }
            candidate.refuse(&reason).map_err(refuse)?;
            state.following.keep_only(None).map_err(refuse)?;
            state.set(Step::Refused, version, version, Some(reason));
            return Ok(exit);
        }
        // The proof may have taken minutes.
        if let Err(error) = self.daemon(state.name) {
            return Ok(wait(error));
        }
        if let Some(reason) = self.objection(state.name, index.version) {
            state.set(Step::Waiting, version, version, Some(reason));
            return Ok(Exit::Success);
        }
        let proof = candidate.manifest.proof.as_ref();
        let max_latency_p99_us = proof.and_then(|proof| proof.max_latency_p99_ms).map(|ms| (ms * 1e3) as u64);
        let may_change_detections = candidate.manifest.changes_detections;
        let limits = Limits { max_latency_p99_us, before, may_change_detections, ..Limits::default() };
        let watch = Watch { version: index.version, limits, ..Watch::default() };
        // Before the switch, so that a process that ends after it is continued.
        state.following.write(WATCH, Some(&watch)).map_err(refuse)?;
        note_left(&candidate.accept().map_err(refuse)?);
        self.switch(state, watch)
    }

    /// Runs the proof, as an installation by hand does. Returns the status and the reason of a model that does not pass.
    fn prove(
        &self,
        state: &State<'_>,
        index: &Index,
        candidate: &Candidate,
    ) -> Result<Option<(Exit, String)>, ExitError> {
        let before = state.following.read::<Attempt>(ATTEMPT).filter(|attempt| attempt.sha256 == index.sha256);
        let begun = before.as_ref().map_or(0, |attempt| attempt.begun);
        if begun >= ATTEMPTS {
            return Ok(Some((Exit::Model, format!("{begun} attempts to prove it did not end"))));
        }
        // Noted first: an attempt that ends with this machine counts as well.
        let attempt = Attempt { sha256: index.sha256.clone(), begun: begun + 1 };
        state.following.write(ATTEMPT, Some(&attempt)).map_err(refuse)?;
        *self.proving.lock() = Some((state.name.to_owned(), before));
        let at_step = |step| state.set(step, Some(index.version), Some(index.version), None);
        let proven = prove(candidate, &self.args.proof, &at_step)
            .and_then(|model| self.compare(state.name, candidate, &model, &at_step));
        if matches!(proven, Err(Failed::Other(_))) {
            // A service manager stops all processes of a service, and this one may be the last to get its signal.
            thread::sleep(POLL);
        }
        *self.proving.lock() = None;
        match proven {
            Ok(()) => {
                state.following.write::<Attempt>(ATTEMPT, None).map_err(refuse)?;
                Ok(None)
            }
            Err(Failed::Proof(reason, _)) => Ok(Some((Exit::Differs, reason))),
            Err(Failed::Other(error)) => Ok(Some((error.exit, error.message))),
        }
    }

    /// Compares a model of a new version with those of the daemon that use the bundle, on live frames.
    fn compare(&self, name: &str, candidate: &Candidate, model: &Path, at_step: &dyn Fn(Step)) -> Result<(), Failed> {
        let Ok(Ok(client)) = self.daemon(name) else { return Ok(()) };
        // If it does not answer just now, the next step says so.
        let models = client.get_json("/api/v1/status").map_or(Vec::new(), |report| self.models(&report, name));
        if self.args.compare.is_zero() || models.is_empty() {
            return Ok(());
        }
        at_step(Step::Comparing);
        let time = self.args.compare / models.len() as u32;
        let config = self.args.config.as_deref();
        models.iter().try_for_each(|running| {
            let running = Running { address: &client.address, config, model: running };
            compare_live(model, &candidate.manifest, &running, time)
        })
    }

    /// Makes the daemon use the current version, and watches it.
    fn switch(&self, state: &State<'_>, mut watch: Watch) -> Result<Exit, ExitError> {
        let version = Some(watch.version);
        // A daemon that cannot be asked just now is asked again in the next turn.
        let client = match self.daemon(state.name)? {
            Ok(client) => client,
            Err(why) => return end(state, Step::UpToDate, version, Some(why), Exit::Success),
        };
        match reload::request(&client) {
            Ok(outcome) if outcome.applied => {}
            Ok(outcome) => {
                let why = first_error(&outcome.error.unwrap_or_default());
                let exit = Exit::from_code(outcome.exit_status).unwrap_or(Exit::Model);
                let reason = format!("the reload was rejected: {why}");
                return self.go_back(state, watch, Verdict { step: Step::Refused, reason, exit_status: exit.code() });
            }
            Err(error) => {
                let reason = format!("the reload failed: {}", error.message);
                return self.go_back(state, watch, Verdict::worse(reason));
            }
        }
        if self.args.watch.is_zero() {
            return end(state, Step::UpToDate, version, None, Exit::Success);
        }
        let sample = self.sample(&client, state.name).unwrap_or_default();
        watch.run_id = run_id(&sample);
        watch.started_at = sample.started_at;
        watch.limits.at_switch = sample.counts;
        watch.ends_unix_s = Some(unix_s() + self.args.watch.as_secs().max(1));
        state.following.write(WATCH, Some(&watch)).map_err(refuse)?;
        self.watch(state, watch)
    }

    /// Watches the current version until its time is over, or goes back.
    fn watch(&self, state: &State<'_>, mut watch: Watch) -> Result<Exit, ExitError> {
        let version = Some(watch.version);
        state.set(Step::Watching, version, version, None);
        // The system's clock is asked once, because it may jump; and if it was set back, the watch does not become longer.
        let left = Duration::from_secs(watch.ends_unix_s.unwrap_or(0).saturating_sub(unix_s()));
        let begin = Instant::now();
        let ends = begin + left.max(SHORTEST_WATCH).min(self.args.watch);
        let detections_from = ends.checked_sub(self.args.watch / 2).unwrap_or(begin);
        let mut judge = Judge::new(watch.limits.clone(), detections_from, begin);
        let mut frames = 0;
        loop {
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let time = format_duration(self.args.watch);
                let judged = if !watch.limits.before.as_ref().is_some_and(Before::has_frames) {
                    "its cameras were not measured before, so they were not compared".to_owned()
                } else if frames < FRAMES {
                    format!("{frames} frames came, so latency and detections were not judged")
                } else {
                    "its cameras fare no worse".to_owned()
                };
                note(&format!("{} {} stays: watched for {time}, {judged}", state.name, watch.version));
                return end(state, Step::UpToDate, version, None, Exit::Success);
            }
            thread::sleep(POLL.min(left));
            let current = self.store.versions(state.name).map_err(refuse)?.current.map(|it| it.manifest.version);
            if current != version {
                return self.no_longer_watched(state, &watch);
            }
            let sample = self.client().and_then(|client| self.sample(&client, state.name));
            let now = Instant::now();
            if let Ok(sample) = &sample {
                frames = sample.counts.since(&watch.limits.at_switch).all.frames;
            }
            let reason = match sample {
                Err(_) => judge.silence(now),
                Ok(sample) if watch.started_at.is_empty() || sample.started_at == watch.started_at => {
                    judge.judge(&sample, now)
                }
                // The power may have been cut, or visiond updated; but twice is too much.
                Ok(sample) if !watch.is_other_run && watch.run_id != run_id(&sample) => {
                    watch.is_other_run = true;
                    watch.run_id = run_id(&sample);
                    watch.started_at = sample.started_at;
                    watch.limits.at_switch = watch::Counts::default();
                    state.following.write(WATCH, Some(&watch)).map_err(refuse)?;
                    judge = Judge::new(watch.limits.clone(), detections_from, now);
                    None
                }
                Ok(_) => Some("the daemon was restarted while the version was watched".to_owned()),
            };
            if let Some(reason) = reason {
                return self.go_back(state, watch, Verdict::worse(reason));
            }
        }
    }

    /// Goes on with a version that an earlier process has installed or watched. `None` if there is nothing left to do about it.
    fn resume(&self, state: &State<'_>, watch: Watch) -> Result<Option<Exit>, ExitError> {
        let versions = self.store.versions(state.name).map_err(refuse)?;
        let refused = versions.refused.get(&watch.version);
        let is_current = versions.current.is_some_and(|current| current.manifest.version == watch.version);
        if is_current && !watch.is_left {
            // The process may have ended while it went back.
            let verdict = watch.verdict.clone().or_else(|| refused.cloned().map(Verdict::worse));
            let exit = match verdict {
                Some(verdict) => self.go_back(state, watch, verdict),
                None if watch.ends_unix_s.is_some() => self.watch(state, watch),
                None => self.switch(state, watch),
            };
            return exit.map(Some);
        }
        if let Some(reason) = refused.filter(|_| !is_current) {
            // The daemon may still use the version.
            let verdict = watch.verdict.clone().unwrap_or_else(|| Verdict::worse(reason.clone()));
            return self.reload_after(state, watch, verdict).map(Some);
        }
        // It ended before the switch, or somebody has installed the version again.
        state.following.write::<Watch>(WATCH, None).map_err(refuse)?;
        Ok(None)
    }

    /// Goes back to the version before, for good.
    fn go_back(&self, state: &State<'_>, mut watch: Watch, verdict: Verdict) -> Result<Exit, ExitError> {
        watch.verdict = Some(verdict.clone());
        // For a process that continues this one; but a full disk must not keep a bad version in use.
        if let Err(error) = state.following.write(WATCH, Some(&watch)) {
            complain(&format!("{}: {error}", state.name));
        }
        let until = Instant::now() + BUSY;
        let switched = loop {
            match self.store.roll_back(state.name, Some(watch.version), &verdict.reason) {
                Err(BundleError::Busy(_)) if Instant::now() < until => thread::sleep(Duration::from_secs(1)),
                switched => break switched,
            }
        };
        match switched {
            Ok(_) => self.reload_after(state, watch, verdict),
            Err(BundleError::NothingBefore { .. }) => {
                let reason = format!("{}; there is no version to go back to", verdict.reason);
                end(state, Step::Refused, Some(watch.version), Some(reason), verdict.exit())
            }
            Err(BundleError::NotCurrent { .. }) => self.no_longer_watched(state, &watch),
            // The next turn tries it again.
            Err(error) => Err(refuse(error)),
        }
    }

    /// Makes the daemon use the version before, once that is current again.
    fn reload_after(&self, state: &State<'_>, mut watch: Watch, verdict: Verdict) -> Result<Exit, ExitError> {
        let version = Some(watch.version);
        let failed = match self.daemon(state.name) {
            Ok(Ok(client)) => match reload::request(&client) {
                Ok(outcome) if outcome.applied => None,
                Ok(outcome) => Some((first_error(&outcome.error.unwrap_or_default()), verdict.step == Step::Refused)),
                Err(error) => Some((error.message, false)),
            },
            // There is nothing to be reloaded.
            Ok(Err(_)) => None,
            Err(error) => Some((error.message, false)),
        };
        let exit = verdict.exit();
        match failed {
            None => end(state, verdict.step, version, Some(verdict.reason), exit),
            Some((why, true)) => {
                self.store.forgive(state.name, watch.version).map_err(refuse)?;
                let reason =
                    format!("a reload is rejected with the version before as well, so it is tried again: {why}");
                state.set(Step::Proving, version, None, Some(reason));
                state.following.write::<Watch>(WATCH, None).map_err(refuse)?;
                Ok(exit)
            }
            Some((why, false)) => {
                let reason = format!("{}; the daemon could not be reloaded, and is asked again: {why}", verdict.reason);
                state.set(verdict.step, version, None, Some(reason));
                (watch.is_left, watch.verdict) = (true, Some(verdict));
                state.following.write(WATCH, Some(&watch)).map_err(refuse)?;
                Ok(exit)
            }
        }
    }

    /// Ends the watch of a version that somebody has replaced by hand.
    fn no_longer_watched(&self, state: &State<'_>, watch: &Watch) -> Result<Exit, ExitError> {
        let versions = self.store.versions(state.name).map_err(refuse)?;
        let current = versions.current.map(|it| it.manifest.version);
        let (name, version) = (state.name, watch.version);
        if let Some(reason) = versions.refused.get(&version) {
            let now = current.map_or_else(String::new, |current| format!(" ({name} {current})"));
            note(&format!("{name} {version} is no longer watched: it was rolled back by hand{now}"));
            return end(state, Step::WentBack, Some(version), Some(reason.clone()), Exit::Model);
        }
        note(&format!("{name} {version} is no longer watched: another version was installed"));
        end(state, Step::UpToDate, current, None, Exit::Success)
    }

    /// Returns why the daemon would not accept its configuration now, for which no version must be blamed.
    fn fault_of_configuration(&self) -> Option<String> {
        let client = self.client().ok()?;
        let DaemonConfig { path, text } = DaemonConfig::read(&client, self.args.config.as_deref()).ok()?;
        let preview = check::preview_text(&client, &path, text, None).ok()?;
        preview.error.filter(|_| !preview.valid).map(|error| first_error(&error))
    }

    /// Measures how cameras fare with the version in use; `None` if that is not known.
    fn measure(&self, state: &State<'_>) -> Option<Before> {
        if self.args.watch.is_zero() {
            return None;
        }
        note(&format!("{}: measures the version in use", state.name));
        let begin = Instant::now();
        let read = || self.client().and_then(|client| self.sample(&client, state.name)).ok();
        let pause = || {
            thread::sleep(POLL.min(self.args.watch));
            begin.elapsed()
        };
        let before = Before::measure(self.args.watch, read, pause);
        if !before.as_ref().is_some_and(Before::has_frames) {
            note(&format!("{}: no frames came, so latency and detections will not be compared", state.name));
        }
        before
    }

    /// Returns the daemon that uses the bundle, or why nothing can be watched: no daemon runs, or none of its models uses the bundle.
    ///
    /// # Errors
    /// If it is not known, because the daemon does not answer as it should, or if it uses the bundle of another store.
    fn daemon(&self, name: &str) -> Result<Result<Client, String>, ExitError> {
        let client = self.client()?;
        let report: StatusReport = match client.get_json("/api/v1/status") {
            Ok(report) => report,
            Err(error) if client.finds_no_listener() => return Ok(Err(error.message)),
            Err(error) => return Err(error),
        };
        if self.takes_settings(&report, name) || self.sample_of(&report, name).models > 0 {
            return Ok(Ok(client));
        }
        let mut models = report.models.iter();
        let elsewhere = models.find(|model| model.bundle.as_ref().is_some_and(|bundle| bundle.name == name));
        match elsewhere {
            Some(model) => {
                // STORE/NAME/VERSION/model
                let store = Path::new(&model.file).ancestors().nth(3).unwrap_or(Path::new("/"));
                let message = format!("the daemon's bundles are in {}: use --store", store.display());
                Err(ExitError::new(Exit::Config, message))
            }
            None => Ok(Err(format!("no model of the daemon uses it: set `bundle = \"{name}\"` of one"))),
        }
    }

    fn client(&self) -> Result<Client, ExitError> {
        let daemon = DaemonArgs { config: self.args.config.clone(), url: self.args.url.clone() };
        Client::find(&daemon, self.args.config.as_deref())
    }

    /// Reads the daemon's status.
    fn sample(&self, client: &Client, name: &str) -> Result<Sample, ExitError> {
        Ok(self.sample_of(&client.get_json("/api/v1/status")?, name))
    }

    fn sample_of(&self, report: &StatusReport, name: &str) -> Sample {
        // Settings may concern every camera.
        let takes_settings = self.takes_settings(report, name);
        let has_file = self.has_file(name);
        Sample::of(report, |file| takes_settings || has_file(file))
    }

    /// Returns the names of the daemon's models that run on whole frames and use a bundle.
    fn models(&self, report: &StatusReport, name: &str) -> Vec<String> {
        let has_file = self.has_file(name);
        let ours = report.models.iter().filter(|model| model.on.is_none() && has_file(&model.file));
        ours.map(|model| model.name.clone()).collect()
    }

    /// Returns what says whether a file is one of a bundle, of any version: before a reload, the daemon runs another one than the current
    /// one.
    fn has_file(&self, name: &str) -> impl Fn(&str) -> bool {
        let folder = fs::canonicalize(self.store.folder(name)).unwrap_or_else(|_| self.store.folder(name));
        move |file| {
            let file = Path::new(file);
            fs::canonicalize(file).as_deref().unwrap_or(file).starts_with(&folder)
        }
    }
}

/// Ends what was done about a version.
fn end(
    state: &State<'_>,
    step: Step,
    version: Option<u64>,
    reason: Option<String>,
    exit: Exit,
) -> Result<Exit, ExitError> {
    state.set(step, version, None, reason);
    state.following.write::<Watch>(WATCH, None).map_err(refuse)?;
    state.following.keep_only(None).map_err(refuse)?;
    Ok(exit)
}

/// Notes that the current version is the one to use.
fn up_to_date(state: &State<'_>, current: Option<u64>, newest: Option<u64>) {
    let rollout = state.following.rollout();
    // Why it was not watched.
    let same = rollout.as_ref().filter(|it| it.step == Step::UpToDate && it.version == current);
    state.set(Step::UpToDate, current, newest, same.and_then(|it| it.reason.clone()));
}

/// Whether the version was refused or gone back from.
fn ended_badly(rollout: &Rollout, version: Option<u64>) -> bool {
    matches!(rollout.step, Step::Refused | Step::WentBack) && rollout.version == version
}

/// Returns the first error of a daemon's text, without the excerpt of the file and without warnings.
fn first_error(errors: &str) -> String {
    let is_error = |line: &&str| !line.starts_with(' ') && !line.contains(": warning: ");
    errors.lines().find(is_error).unwrap_or(errors).to_owned()
}

fn name(text: &str) -> Result<String, String> {
    check_followed(text).map(|()| text.to_owned())
}

fn is_url(source: &str) -> bool {
    source.contains("://")
}

/// Whether a source is a list of NATS servers.
fn is_fleet(source: &str) -> bool {
    ["nats://", "tls://"].iter().any(|scheme| source.starts_with(scheme))
}

fn source(text: &str) -> Result<String, String> {
    if is_fleet(text) {
        check_servers(text)?;
    } else if is_url(text) {
        check_url(text)?;
    } else if !Path::new(text).is_absolute() && !Path::new(text).is_dir() {
        return Err(format!("write https://{text}, or an absolute folder"));
    }
    Ok(text.to_owned())
}

fn watch_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok().filter(|time| *time <= Duration::from_secs(7 * 24 * 3600));
    time.ok_or_else(|| {
        format!("expected 0, or a time such as 30s, up to {}", format_duration(Duration::from_secs(7 * 24 * 3600)))
    })
}

/// Returns a time around this one, so that a thousand devices do not ask at once.
fn scattered(interval: Duration) -> Duration {
    interval.mul_f64(0.75 + random() / 2.0)
}

/// Returns what distinguishes this run of the machine, and this version of the daemon, from others.
fn run_id(sample: &Sample) -> String {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{} {}", boot_id.trim(), sample.visiond)
}
