//! Runs everything, and changes it to another configuration.
//!
//! One change is made at a time, on the thread that requests it, while everything else continues.
//!
//! Locks nest in this order, by [`LockRank`], which debug builds check:
//! - 0: [`Service::changing`]: one change at a time.
//! - 1: [`Service::state`]: the running configuration and the pipeline.
//! - 2: `ActiveCameras`: the number of cameras that may still deliver frames.
//! - 3: `Publisher::sinks`: the running sinks.
//! - 4: `Server::served`: the endpoints that are served.
//! - 5: [`Service::snapshot`]: what readers see while a change is made.
//! - 6: `ReloadHandle::pending`: the requests that wait for a reload.
//! - 7: `CommandQueue`: the commands that wait.
//! - 8: `BundleWatch`: the bundles of the running models.

use std::iter;
use std::slice;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use visiond_config::command::{Action, Command, Overrides, Target};
use visiond_config::diff::ConfigDiff;
use visiond_config::types::{CameraConfig, Config, StatusConfig};
use visiond_frames::clock::{SystemClock, now};
use visiond_ground::ranked_lock::{LockRank, RankedMutex};
use visiond_live::Live;
use visiond_message::status::{CameraStatus, SinkCounts};
use visiond_message::{EventMessage, RuleTotals};
use visiond_pipeline::camera::RetryPolicy;
use visiond_pipeline::outlet::EventOutlet;
use visiond_pipeline::summary::{CameraSummary, ModelSummary, SinkSummary};
use visiond_pipeline::supervisor::{JOIN_TIMEOUT, Pipeline, PipelineContext, PipelineHold};
use visiond_publish::{EventLedger, PublishError, Publisher, SinkContext};
use visiond_system::exit::ExitError;
use visiond_system::outage::IfUnusable;
use visiond_system::stop::Stop;
use visiond_system::{logging, process};
use visiond_telemetry::metrics::{LaneMetrics, LaneView, cameras_of};

use crate::bundle_watch::BundleWatch;
use crate::command_queue::{CommandQueue, model_names};
use crate::error::ServiceError;
use crate::http_server::HttpServer;
use crate::prepared_config::{
    self, Cause, Clips, LoadedFacts, Pictures, PreparedConfig, RunningConfig, RunningCropModel, RunningModel,
};

/// A lane that takes longer for its new model gets a warning in the log.
const SWAP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long sinks and annotators that a change removed have to write their backlog.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of the shutdown time is reserved for the sinks.
const SINK_RESERVE: Duration = Duration::from_millis(300);
/// How long a command waits until totals that it resets are on disk.
const RESET_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the last live image may take at shutdown.
const PICTURE_TIMEOUT: Duration = Duration::from_millis(200);

/// Everything that runs: models, cameras, sinks.
pub struct Service {
    stop: Stop,
    live: Arc<Live>,
    publisher: Arc<Publisher>,
    ledger: Arc<EventLedger>,
    first_message: Arc<OnceLock<Option<Duration>>>,
    commands: Arc<CommandQueue>,
    bundles: BundleWatch,
    state: RankedMutex<ServiceState>,
    /// Everything that runs; replaced as a whole, so that a reader never waits for a change.
    snapshot: RankedMutex<Arc<Snapshot>>,
    /// Held during a change.
    changing: RankedMutex<()>,
    /// The HTTP server, once it runs.
    web: OnceLock<Arc<dyn HttpServer>>,
    /// Why a change was left half done, which ends the daemon.
    broken: OnceLock<String>,
}

struct ServiceState {
    running: RunningConfig,
    /// The configuration as the file has it, and the settings of commands that lie over it.
    file: Config,
    overrides: Overrides,
    pipeline: Pipeline,
    /// Keeps the daemon running while commands have switched all cameras off.
    idle: Option<PipelineHold>,
}

/// The running models, lanes and annotated cameras. Lanes and annotators keep counting.
pub struct Snapshot {
    /// The models, one for each of `lanes`.
    pub models: Vec<RunningModel>,
    /// The lanes with their cameras.
    pub lanes: Vec<LaneView>,
    /// The cameras whose images are drawn.
    pub pictures: Vec<Pictures>,
    /// The cameras that store clips.
    pub clips: Vec<Clips>,
    /// The status of each camera that a command has switched off.
    pub switched_off: Vec<CameraStatus>,
}

impl Snapshot {
    fn new(ServiceState { running, file, overrides, pipeline, .. }: &ServiceState) -> Self {
        let RunningConfig { models, pictures, clips, .. } = running;
        let status = |camera: &CameraConfig| CameraStatus::disabled(&camera.name, &model_names(file, camera));
        Self {
            models: models.clone(),
            lanes: pipeline.lanes(),
            pictures: pictures.clone(),
            clips: clips.clone(),
            switched_off: overrides.switched_off(file).map(status).collect(),
        }
    }
}

/// The parts of a run's summary.
pub struct SummaryParts {
    /// The models, in the configuration's order.
    pub models: Vec<ModelSummary>,
    /// The cameras, in the configuration's order.
    pub cameras: Vec<CameraSummary>,
    /// The sinks, in the configuration's order.
    pub sinks: Vec<SinkSummary>,
}

impl Service {
    /// Starts everything in `config`; publishes at most `messages`, if that is set.
    pub fn start(config: Config, messages: Option<u64>, stop: &Stop) -> Result<Self, ServiceError> {
        if config.used_models().next().is_none() {
            return Err(ServiceError::NoCamera);
        }
        let PreparedConfig { pipeline, running, .. } =
            PreparedConfig::new(&config, &RunningConfig::default(), |_| false, Cause::Start, stop)?;
        let live = Live::new();
        let commands = Arc::new(CommandQueue::new(&running.config));
        let context = SinkContext {
            live: Arc::clone(&live),
            device: running.config.device.resolved().into(),
            commander: Some(Arc::<CommandQueue>::clone(&commands)),
        };
        let publisher = Arc::new(Publisher::start(&running.config.sinks, &context, stop)?);
        warn_without_sink(&running.config);
        let first_message = Arc::new(OnceLock::new());
        let publish = {
            let (publisher, first_message) = (Arc::clone(&publisher), Arc::clone(&first_message));
            Arc::new(move |message: &_| {
                publisher.publish(message);
                first_message.get_or_init(process::age);
            })
        };
        let ledger = {
            let publisher = Arc::clone(&publisher);
            Arc::new(EventLedger::new(move |event| publisher.publish_event(event)))
        };
        open_ledger(&ledger, &running.config);
        forget_totals(&ledger, &running.config);
        let context = PipelineContext {
            publish,
            events: Arc::new(Events(Arc::clone(&ledger))),
            live: Arc::clone(&live),
            messages,
            retry_policy: RetryPolicy::default(),
            stop: stop.clone(),
        };
        let pipeline = Pipeline::start(pipeline, context).map_err(ServiceError::System)?;
        let bundles = BundleWatch::new(&live, stop);
        bundles.follow(&running);
        live.set_lanes(pipeline.lanes());
        let state = ServiceState { running, file: config, overrides: Overrides::default(), pipeline, idle: None };
        let snapshot = RankedMutex::new(LockRank(5), Arc::new(Snapshot::new(&state)));
        let state = RankedMutex::new(LockRank(1), state);
        Ok(Self {
            stop: stop.clone(),
            live,
            publisher,
            ledger,
            first_message,
            commands,
            bundles,
            state,
            snapshot,
            changing: RankedMutex::new(LockRank(0), ()),
            web: OnceLock::new(),
            broken: OnceLock::new(),
        })
    }

    /// Switches to another configuration of the file; returns the changes. After an error, everything runs as before.
    ///
    /// Settings of commands stay, except for those that the file changes. Loading takes long, so the thread that pings systemd must
    /// not call this.
    pub fn apply(&self, file: Config) -> Result<ConfigDiff, ServiceError> {
        let _one_at_a_time = self.changing.lock();
        let overrides = {
            let state = self.state.lock();
            state.overrides.kept(&state.file, &file)
        };
        self.change(file, overrides, Cause::Reload(&self.live))
    }

    /// Carries out commands by one change, if that works, and returns the result of each. May take as long as [`Self::apply`].
    pub fn carry_out(&self, commands: &[Command]) -> Vec<Result<(), ServiceError>> {
        match self.carry_out_together(commands) {
            Ok((results, _)) => results,
            Err(error) if commands.len() == 1 => vec![Err(error)],
            // One of them cannot be, which the others must not suffer from: of a thousand, some ten changes find it.
            Err(_) => {
                let (first, second) = commands.split_at(commands.len() / 2);
                [first, second].into_iter().flat_map(|half| self.carry_out(half)).collect()
            }
        }
    }

    /// Carries out a command; returns the changes. After an error, everything runs as before. May take as long as [`Self::apply`].
    pub fn command(&self, command: &Command) -> Result<ConfigDiff, ServiceError> {
        let (results, changes) = self.carry_out_together(slice::from_ref(command))?;
        results.into_iter().collect::<Result<(), _>>().map(|()| changes)
    }

    /// Carries out commands by one change; returns the result of each, and the changes. After an error, everything runs as before.
    fn carry_out_together(
        &self,
        commands: &[Command],
    ) -> Result<(Vec<Result<(), ServiceError>>, ConfigDiff), ServiceError> {
        let _one_at_a_time = self.changing.lock();
        let (mut config, file, mut overrides) = {
            let state = self.state.lock();
            (state.running.config.clone(), state.file.clone(), state.overrides.clone())
        };
        let mut results = Vec::new();
        let mut is_changed = false;
        for command in commands {
            let checked = command.check(&config);
            if let (Ok(()), Action::Set(change)) = (&checked, command.action)
                && !command.is_in_force(&config)
            {
                overrides = overrides.with(&command.target, change);
                config = overrides.over(&file);
                is_changed = true;
            }
            results.push(checked.map_err(ServiceError::from));
        }
        let changes =
            if is_changed { self.change(file, overrides, Cause::Command(&self.live))? } else { ConfigDiff::default() };
        let resets = commands.iter().zip(&mut results).filter(|(command, _)| command.action == Action::Reset);
        let mut is_reset = false;
        for (command, result) in resets.filter(|(_, result)| result.is_ok()) {
            let Target { camera, rule } = &command.target;
            let state = self.state.lock();
            if rule.iter().all(|rule| state.pipeline.reset_totals(camera, rule)) {
                is_reset = true;
            } else {
                *result = Err(ServiceError::TotalsBusy(camera.clone()));
            }
        }
        if is_reset {
            self.ledger.flush(Instant::now() + RESET_TIMEOUT);
        }
        Ok((results, changes))
    }

    /// Switches to the configuration of `file` with `overrides`. The caller holds `changing`.
    fn change(&self, file: Config, overrides: Overrides, cause: Cause<'_>) -> Result<ConfigDiff, ServiceError> {
        let ending = || ServiceError::Ending;
        let config = with_overrides(&file, &overrides)?;
        let is_reload = matches!(cause, Cause::Reload(_));
        let (before, hold) = {
            let state = self.state.lock();
            (state.running.clone(), state.pipeline.hold().ok_or_else(ending)?)
        };
        let PreparedConfig { changes, pipeline, running } =
            PreparedConfig::new(&config, &before, |model| hold.has(model), cause, &self.stop)?;
        let sinks = self.publisher.prepare(&running.config.sinks, IfUnusable::Refuse)?;
        // The token's file may be another one now, which waits for a reload.
        let web = self.web.get().filter(|_| is_reload);
        let serve = web.map(|server| server.prepare(&running.config.http)).transpose()?;

        // Before the lock: a disk may hang.
        open_ledger(&self.ledger, &running.config);
        let mut state = self.state.lock();
        if self.stop.is_raised() {
            return Err(ending());
        }
        let retired = self.publisher.change(sinks)?;
        let pending_swaps = state.pipeline.change(pipeline).map_err(|error| {
            let _ = self
                .broken
                .set(format!("a reload was left half done: cannot start a thread or open a descriptor: {error}"));
            ServiceError::System(error)
        })?;
        logging::configure(running.config.log.level, running.config.log.target);
        if let Some(serve) = serve {
            serve();
        }
        if is_reload {
            warn_without_sink(&running.config);
        }
        forget_totals(&self.ledger, &running.config);
        self.commands.follow(&running.config);
        (state.running, state.file, state.overrides) = (running, file, overrides);
        // A camera that a command has switched off may come back when the others have ended.
        let waits = state.running.models.is_empty() || state.overrides.switched_off(&state.file).next().is_some();
        state.idle = if waits { state.pipeline.hold() } else { None };
        *self.snapshot.lock() = Arc::new(Snapshot::new(&state));
        self.bundles.follow(&state.running);
        self.live.set_lanes(state.pipeline.lanes());
        let (pictures, clips) = (state.running.pictures.clone(), state.running.clips.clone());
        drop(state);
        drop(hold);

        pending_swaps.wait(Instant::now() + SWAP_TIMEOUT, &self.stop);
        let deadline = Instant::now() + RETIRE_TIMEOUT;
        for old in before.pictures {
            if !pictures.iter().any(|new| Arc::ptr_eq(&new.annotator, &old.annotator)) {
                old.annotator.close(deadline);
            }
        }
        for old in before.clips {
            if !clips.iter().any(|new| Arc::ptr_eq(&new.recorder, &old.recorder)) {
                old.recorder.close(deadline);
            }
        }
        retired.close(deadline);
        Ok(changes)
    }

    /// Returns the live messages and images for clients.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Returns the commands that wait. [`Reloader`](crate::reload::Reloader) carries them out.
    pub fn commands(&self) -> &Arc<CommandQueue> {
        &self.commands
    }

    /// Registers the HTTP server, which follows every later change.
    pub fn is_served_by(&self, server: Arc<dyn HttpServer>) {
        // A process has one server.
        let _ = self.web.set(server);
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Config {
        self.state.lock().running.config.clone()
    }

    /// Returns every lane with its cameras.
    pub fn lanes(&self) -> Vec<LaneView> {
        self.state.lock().pipeline.lanes()
    }

    /// Returns the running models, lanes and cameras. Never waits for a change.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.lock())
    }

    /// Returns the counters of every sink. Never waits for a change.
    pub fn sinks(&self) -> Vec<SinkCounts> {
        self.publisher.counts()
    }

    /// Returns what `config` would change or why it would be rejected, based only on checks that load nothing.
    pub fn preview(&self, config: &Config) -> Result<ConfigDiff, ServiceError> {
        let (before, overrides) = {
            let state = self.state.lock();
            (state.running.clone(), state.overrides.kept(&state.file, config))
        };
        prepared_config::preview(with_overrides(config, &overrides)?, &before)
    }

    /// Returns the `[status]` table in force.
    pub fn status(&self) -> StatusConfig {
        self.state.lock().running.config.status.clone()
    }

    /// Returns why only a new process can continue, with the exit status; `None` if this one can.
    pub fn needs_restart(&self) -> Option<ExitError> {
        self.state.lock().pipeline.needs_restart().cloned()
    }

    /// Returns why a change that was left half done ended the daemon.
    pub fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }

    /// Returns why a sink ended the daemon.
    pub fn sink_failure(&self) -> Option<&PublishError> {
        self.publisher.failure()
    }

    /// Returns the process's age at the first message.
    pub fn first_message(&self) -> Option<Duration> {
        self.first_message.get().copied().flatten()
    }

    /// Brings the deadline of [`Service::end`], and of sinks that a change removed, forward to `deadline`.
    pub fn hasten(&self, deadline: Instant) {
        self.publisher.hasten(deadline);
    }

    /// Ends every thread after stop was raised, and flushes the sinks by `deadline`; returns the summary of a run of `seconds`.
    pub fn end(&self, deadline: Instant, seconds: f64) -> SummaryParts {
        // Waits for a change that has begun to switch; stop makes it faster.
        let state = self.state.lock();
        let ServiceState { running, pipeline, .. } = &*state;
        pipeline.halt();
        // They all end by `deadline`, even if some of them hang.
        let until =
            |limit: Duration| (Instant::now() + limit).min(deadline.checked_sub(SINK_RESERVE).unwrap_or(deadline));
        pipeline.join(until(JOIN_TIMEOUT));
        self.live.close(until(PICTURE_TIMEOUT));
        self.ledger.flush(until(JOIN_TIMEOUT));
        self.publisher.close_queues(deadline);
        let pictures: Vec<_> =
            running.pictures.iter().map(|pictures| (pictures, pictures.annotator.close(deadline))).collect();
        let clips: Vec<_> = running.clips.iter().map(|clips| (clips, clips.recorder.close(deadline))).collect();
        let sinks = self.publisher.close(deadline);
        self.ledger.close(deadline);
        let views = pipeline.lanes();
        let cameras = cameras_of(&views).into_iter().map(|known| {
            let camera = known.camera;
            let summary = CameraSummary::new(camera.snapshot(), seconds);
            let summary = match pictures.iter().find(|(pictures, _)| pictures.camera == camera.name) {
                Some((pictures, counts)) => summary.with_pictures(&pictures.directory, counts.clone()),
                None => summary,
            };
            match clips.iter().find(|(clips, _)| clips.camera == camera.name) {
                Some((clips, counts)) => summary.with_clips(&clips.directory, counts),
                None => summary,
            }
        });
        let models = views.iter().zip(&running.models);
        SummaryParts {
            models: models
                .flat_map(|(view, model)| {
                    let memory = model.buffers.memory.kind();
                    let summary = |lane: &LaneMetrics, on: Option<&String>, facts: &LoadedFacts| {
                        let bundle = running.bundles.get(&*lane.name);
                        let bundle = bundle.map(|bundle| format!("{} {}", bundle.name, bundle.version));
                        ModelSummary { bundle, ..ModelSummary::new(lane, on, &facts.backend, memory) }
                    };
                    let root = summary(&view.lane, None, &model.facts);
                    let of_crops = |one: &RunningCropModel| summary(&one.metrics, Some(&one.on), &one.facts);
                    iter::once(root).chain(model.crop_models.iter().map(of_crops)).collect::<Vec<_>>()
                })
                .collect(),
            cameras: cameras.collect(),
            sinks: sinks.iter().map(SinkSummary::new).collect(),
        }
    }
}

/// Writes the events of cameras into the ledger, which passes them on to the sinks.
struct Events(Arc<EventLedger>);

impl EventOutlet for Events {
    fn publish(&self, event: EventMessage, totals: Option<RuleTotals>) {
        self.0.publish(event, totals);
    }

    fn totals(&self, camera: &str, rule: &str, kind: &str) -> RuleTotals {
        self.0.totals(camera, rule, kind)
    }

    fn set_totals(&self, camera: &str, rule: &str, kind: &str, totals: RuleTotals) {
        self.0.set_totals(camera, rule, kind, totals);
    }

    fn reset_totals(&self, camera: &str, rule: &str) {
        self.0.reset_totals(camera, rule);
    }

    fn revision(&self) -> u64 {
        self.0.revision()
    }
}

/// Returns the configuration of `file` with `overrides`. It has a camera that runs, unless commands have switched all off, and no two
/// cameras that run have the same device.
fn with_overrides(file: &Config, overrides: &Overrides) -> Result<Config, ServiceError> {
    overrides.check(file)?;
    let config = overrides.over(file);
    let runs = config.used_models().next().is_some() || overrides.switched_off(file).next().is_some();
    if runs { Ok(config) } else { Err(ServiceError::NoCamera) }
}

/// Opens the ledger's folder if the configuration has lines or zones, or had them: an earlier process may have left events under way.
fn open_ledger(ledger: &EventLedger, config: &Config) {
    let has_rules = config.cameras.iter().any(|camera| !(camera.line.is_empty() && camera.zone.is_empty()));
    if let Some(folder) = config.events.folder().filter(|folder| has_rules || EventLedger::is_in(folder)) {
        ledger.open(&folder, &now(&SystemClock).rfc3339());
    }
}

/// Forgets the totals of lines and zones that the configuration does not have.
fn forget_totals(ledger: &EventLedger, config: &Config) {
    let rules = config.cameras.iter().flat_map(|camera| {
        let lines = camera.line.iter().map(|line| &line.name);
        let names = lines.chain(camera.zone.iter().map(|zone| &zone.name));
        names.map(|name| (camera.name.clone(), name.clone()))
    });
    ledger.retain(rules.collect());
}

/// The warning about a configuration without a sink.
pub const NO_SINK: &str = "no [[sink]] is configured: detections are not stored or sent";

fn warn_without_sink(config: &Config) {
    if config.sinks.is_empty() {
        log::warn!("{NO_SINK}");
    }
}

#[cfg(test)]
mod tests;
