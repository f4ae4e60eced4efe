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

use std::iter;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use visiond_config::diff::ConfigDiff;
use visiond_config::types::{Config, StatusConfig};
use visiond_frames::clock::{SystemClock, now};
use visiond_ground::ranked_lock::{LockRank, RankedMutex};
use visiond_live::Live;
use visiond_message::status::SinkCounts;
use visiond_message::{EventMessage, RuleTotals};
use visiond_pipeline::camera::RetryPolicy;
use visiond_pipeline::outlet::EventOutlet;
use visiond_pipeline::summary::{CameraSummary, ModelSummary, SinkSummary};
use visiond_pipeline::supervisor::{JOIN_TIMEOUT, Pipeline, PipelineContext};
use visiond_publish::{EventLedger, PublishError, Publisher, SinkContext};
use visiond_system::exit::ExitError;
use visiond_system::outage::IfUnusable;
use visiond_system::stop::Stop;
use visiond_system::{logging, process};
use visiond_telemetry::metrics::{LaneView, cameras_of};

use crate::error::ServiceError;
use crate::http_server::HttpServer;
use crate::prepared_config::{self, Pictures, PreparedConfig, RunningConfig, RunningCropModel, RunningModel};

/// A lane that takes longer for its new model gets a warning in the log.
const SWAP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long sinks and annotators that a change removed have to write their backlog.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of the shutdown time is reserved for the sinks.
const SINK_RESERVE: Duration = Duration::from_millis(300);
/// How long the last live image may take at shutdown.
const PICTURE_TIMEOUT: Duration = Duration::from_millis(200);

/// Everything that runs: models, cameras, sinks.
pub struct Service {
    stop: Stop,
    live: Arc<Live>,
    publisher: Arc<Publisher>,
    ledger: Arc<EventLedger>,
    first_message: Arc<OnceLock<Option<Duration>>>,
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
    pipeline: Pipeline,
}

/// The running models, lanes and annotated cameras. Lanes and annotators keep counting.
pub struct Snapshot {
    /// The models, one for each of `lanes`.
    pub models: Vec<RunningModel>,
    /// The lanes with their cameras.
    pub lanes: Vec<LaneView>,
    /// The cameras whose images are drawn.
    pub pictures: Vec<Pictures>,
}

impl Snapshot {
    fn new(RunningConfig { models, pictures, .. }: &RunningConfig, pipeline: &Pipeline) -> Self {
        Self { models: models.clone(), lanes: pipeline.lanes(), pictures: pictures.clone() }
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
        let PreparedConfig { pipeline, running, .. } =
            PreparedConfig::new(config, &RunningConfig::default(), |_| false, None, stop)?;
        let live = Live::new();
        let context = SinkContext { live: Arc::clone(&live), device: running.config.device.resolved().into() };
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
        let snapshot = RankedMutex::new(LockRank(5), Arc::new(Snapshot::new(&running, &pipeline)));
        live.set_lanes(pipeline.lanes());
        let state = RankedMutex::new(LockRank(1), ServiceState { running, pipeline });
        Ok(Self {
            stop: stop.clone(),
            live,
            publisher,
            ledger,
            first_message,
            state,
            snapshot,
            changing: RankedMutex::new(LockRank(0), ()),
            web: OnceLock::new(),
            broken: OnceLock::new(),
        })
    }

    /// Switches to another configuration; returns the changes. After an error, everything runs as before.
    ///
    /// Loading takes long, so the thread that pings systemd must not call this.
    pub fn apply(&self, config: Config) -> Result<ConfigDiff, ServiceError> {
        let _one_at_a_time = self.changing.lock();
        let ending = || ServiceError::Ending;
        let (before, hold) = {
            let state = self.state.lock();
            (state.running.clone(), state.pipeline.hold().ok_or_else(ending)?)
        };
        let PreparedConfig { changes, pipeline, running } =
            PreparedConfig::new(config, &before, |model| hold.has(model), Some(&self.live), &self.stop)?;
        let sinks = self.publisher.prepare(&running.config.sinks, IfUnusable::Refuse)?;
        let serve = self.web.get().map(|server| server.prepare(&running.config.http)).transpose()?;

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
        warn_without_sink(&running.config);
        forget_totals(&self.ledger, &running.config);
        state.running = running;
        *self.snapshot.lock() = Arc::new(Snapshot::new(&state.running, &state.pipeline));
        self.live.set_lanes(state.pipeline.lanes());
        let pictures = state.running.pictures.clone();
        drop(state);
        drop(hold);

        pending_swaps.wait(Instant::now() + SWAP_TIMEOUT, &self.stop);
        let deadline = Instant::now() + RETIRE_TIMEOUT;
        for old in before.pictures {
            if !pictures.iter().any(|new| Arc::ptr_eq(&new.annotator, &old.annotator)) {
                old.annotator.close(deadline);
            }
        }
        retired.close(deadline);
        Ok(changes)
    }

    /// Returns the live messages and images for clients.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
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
        let before = self.state.lock().running.clone();
        prepared_config::preview(config, &before)
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
        let ServiceState { running, pipeline } = &*state;
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
        let sinks = self.publisher.close(deadline);
        self.ledger.close(deadline);
        let views = pipeline.lanes();
        let cameras = cameras_of(&views).into_iter().map(|known| {
            let camera = known.camera;
            let summary = CameraSummary::new(camera.snapshot(), seconds);
            match pictures.iter().find(|(pictures, _)| pictures.camera == camera.name) {
                Some((pictures, counts)) => summary.with_pictures(&pictures.directory, counts.clone()),
                None => summary,
            }
        });
        let models = views.iter().zip(&running.models);
        SummaryParts {
            models: models
                .flat_map(|(view, model)| {
                    let memory = model.buffers.memory.kind();
                    let root = ModelSummary::new(&view.lane, None, &model.facts.backend, memory);
                    let summary = |one: &RunningCropModel| {
                        ModelSummary::new(&one.metrics, Some(&one.on), &one.facts.backend, memory)
                    };
                    iter::once(root).chain(model.crop_models.iter().map(summary)).collect::<Vec<_>>()
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
}

/// Opens the ledger's folder if the configuration has lines or zones.
fn open_ledger(ledger: &EventLedger, config: &Config) {
    let has_rules = config.cameras.iter().any(|camera| !(camera.line.is_empty() && camera.zone.is_empty()));
    if let Some(folder) = config.events.folder().filter(|_| has_rules) {
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
