//! All that runs, and its change into what another configuration asks for.
//!
//! A change is a transaction: `Plan` loads networks and opens sinks beside those that run, and whatever is wrong is wrong
//! there; only then is anything switched. Cameras, lanes and sinks that did not change are not touched. One change is made
//! at a time, on whichever thread asks for it, while all else goes on.
//!
//! Lock order, outermost first: `changing`, `state`, `Live::views`, `CameraView::state`, the encoder's queue. Every other lock is
//! a leaf: the code that holds it takes none but those of the log and of a trace. Debug builds do not check this, because locks
//! nest in `service` and `live` only.

pub mod network;

mod canary;
mod plan;
pub mod reload;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use visiond_config::diff::ConfigDiff;
use visiond_config::types::{Config, HttpConfig, StatusConfig};
use visiond_flow::metrics::LaneView;
use visiond_flow::sink_counts::SinkCounts;
use visiond_live::Live;
use visiond_pipeline::camera::Patience;
use visiond_pipeline::summary::{CameraSummary, ModelSummary, SinkSummary};
use visiond_pipeline::supervisor::{JOIN, Pipeline, Surroundings};
use visiond_publish::{PublishError, Publisher, SinkContext};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::stop::Stop;
use visiond_system::{logging, process};

use canary::Canary;
use plan::{Plan, Running};
pub use view::{ModelView, View};

/// How long lanes have to take their new networks before it is told that one does not.
const HANDOVER: Duration = Duration::from_secs(10);
/// How long sinks and pictures that are no more have to write out what waits.
const RETIRE: Duration = Duration::from_secs(5);

/// How long the last live picture has at the end.
const PICTURES: Duration = Duration::from_millis(200);

/// The HTTP server, as far as a reload changes it.
pub trait HttpServer: Send + Sync {
    /// Opens the listeners that `config` asks for and that are not open yet. The returned function switches to them; without its
    /// call nothing changes.
    ///
    /// # Errors
    /// An address cannot be listened on, or the token or a certificate cannot be read.
    fn prepare(&self, config: &HttpConfig) -> Result<Box<dyn FnOnce() + '_>, ExitError>;
}

/// The daemon at work.
pub struct Service {
    stop: Stop,
    live: Arc<Live>,
    publisher: Arc<Publisher>,
    first_message: Arc<OnceLock<Option<Duration>>>,
    state: Mutex<State>,
    /// What runs, for whoever looks: exchanged as a whole, so that nobody who looks waits for a change.
    view: Mutex<Arc<View>>,
    /// Held by whoever makes a change.
    changing: Mutex<()>,
    /// What serves HTTP, once it does.
    web: OnceLock<Arc<dyn HttpServer>>,
    /// Why a change was left half done, which ends the daemon.
    broken: OnceLock<String>,
}

struct State {
    running: Running,
    pipeline: Pipeline,
}

/// What a run came to, part by part.
pub struct Parts {
    /// The models, in the configuration's order.
    pub models: Vec<ModelSummary>,
    /// The cameras, likewise.
    pub cameras: Vec<CameraSummary>,
    /// The sinks, likewise.
    pub sinks: Vec<SinkSummary>,
}

impl Service {
    /// Starts what `config` asks for; at most so many `messages` go out.
    pub fn start(config: Config, messages: Option<u64>, stop: &Stop) -> Result<Self, ExitError> {
        let Plan { lanes, running, .. } = Plan::new(config, &Running::default(), |_| false, None)?;
        let live = Live::new();
        let context = SinkContext { live: Arc::clone(&live), device: running.config.device.resolved().into() };
        let publisher = Arc::new(Publisher::start(&running.config.sinks, &context, stop).map_err(output)?);
        warn_without_sink(&running.config);
        let first_message = Arc::new(OnceLock::new());
        let outlet = {
            let (publisher, first_message) = (Arc::clone(&publisher), Arc::clone(&first_message));
            Arc::new(move |message: &_| {
                publisher.publish(message);
                first_message.get_or_init(process::age);
            })
        };
        let around = Surroundings {
            outlet,
            live: Arc::clone(&live),
            messages,
            patience: Patience::default(),
            stop: stop.clone(),
        };
        let pipeline = Pipeline::start(lanes, around).map_err(ExitError::system)?;
        let view = Mutex::new(Arc::new(View::new(&running, &pipeline)));
        live.set_lanes(pipeline.lanes());
        let state = Mutex::new(State { running, pipeline });
        Ok(Self {
            stop: stop.clone(),
            live,
            publisher,
            first_message,
            state,
            view,
            changing: Mutex::default(),
            web: OnceLock::new(),
            broken: OnceLock::new(),
        })
    }

    /// Makes of what runs what `config` asks for, and tells what has changed; or leaves all as it is, and tells why.
    ///
    /// Loads and waits, so it is not for the thread that keeps systemd content.
    pub fn apply(&self, config: Config) -> Result<ConfigDiff, ExitError> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let ending = || ExitError::new(Exit::Failure, "the daemon is ending");
        let (before, hold) = {
            let state = self.lock();
            (state.running.clone(), state.pipeline.hold().ok_or_else(ending)?)
        };
        let canary = Canary { live: &self.live };
        let Plan { changes, lanes, running } = Plan::new(config, &before, |model| hold.has(model), Some(&canary))?;
        let sinks = self.publisher.prepare(&running.config.sinks).map_err(output)?;
        let serve = self.web.get().map(|server| server.prepare(&running.config.http)).transpose()?;

        let mut state = self.lock();
        if self.stop.is_raised() {
            return Err(ending());
        }
        let retired = self.publisher.change(sinks).map_err(output)?;
        let handover = state.pipeline.change(lanes).map_err(|error| {
            // The first is as good as any.
            let _ = self.broken.set(format!("a reload was left half done, because the system refuses: {error}"));
            ExitError::system(error)
        })?;
        logging::configure(running.config.log.level, running.config.log.target);
        if let Some(serve) = serve {
            serve();
        }
        warn_without_sink(&running.config);
        state.running = running;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(View::new(&state.running, &state.pipeline));
        self.live.set_lanes(state.pipeline.lanes());
        let pictures = state.running.pictures.clone();
        drop(state);
        drop(hold);

        handover.wait(Instant::now() + HANDOVER, &self.stop);
        let deadline = Instant::now() + RETIRE;
        for old in before.pictures {
            if !pictures.iter().any(|new| Arc::ptr_eq(&new.annotator, &old.annotator)) {
                old.annotator.close(deadline);
            }
        }
        retired.close(deadline);
        Ok(changes)
    }

    /// What can be watched.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// From here on a change has `server` follow it.
    pub fn is_served_by(&self, server: Arc<dyn HttpServer>) {
        // There is one server a process.
        let _ = self.web.set(server);
    }

    /// What is in force, as it was read.
    pub fn config(&self) -> Config {
        self.lock().running.config.clone()
    }

    /// Every lane with its cameras, as they are now.
    pub fn lanes(&self) -> Vec<LaneView> {
        self.lock().pipeline.lanes()
    }

    /// What runs. Never waits, whatever is under way.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What became of each sink's messages so far. Never waits either.
    pub fn sinks(&self) -> Vec<SinkCounts> {
        self.publisher.counts()
    }

    /// What `config` would change about what runs, or why it would be refused, as far as that can be told without trying.
    pub fn preview(&self, config: &Config) -> Result<ConfigDiff, ExitError> {
        let before = self.lock().running.clone();
        plan::preview(config, &before)
    }

    /// How often what is told.
    pub fn status(&self) -> StatusConfig {
        self.lock().running.config.status.clone()
    }

    /// Why no lane can go on in this process; `None` as long as they can.
    pub fn lost(&self) -> Option<String> {
        self.lock().pipeline.lost().map(str::to_owned)
    }

    /// Why a change ended it, if one did.
    pub fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }

    /// Why the sinks ended it, if they did.
    pub fn sink_failure(&self) -> Option<&PublishError> {
        self.publisher.failure()
    }

    /// The process's age at the first message.
    pub fn first_message(&self) -> Option<Duration> {
        self.first_message.get().copied().flatten()
    }

    /// After stop was raised: ends every thread, writes out what waits by `deadline`, and tells what the `seconds` came to.
    pub fn end(&self, deadline: Instant, seconds: f64) -> Parts {
        // Waits for a change that has begun to switch, which stop hastens.
        let state = self.lock();
        let State { running, pipeline } = &*state;
        pipeline.halt();
        pipeline.join(Instant::now() + JOIN);
        self.live.close(Instant::now() + PICTURES);
        let pictures: Vec<_> =
            running.pictures.iter().map(|pictures| (pictures, pictures.annotator.close(deadline))).collect();
        let sinks = self.publisher.close(deadline);
        let views = pipeline.lanes();
        let cameras = views.iter().flat_map(|view| &view.cameras).map(|camera| {
            let summary = CameraSummary::new(&camera.name, camera.phase().name(), &camera.snapshot(), seconds);
            match pictures.iter().find(|(pictures, _)| pictures.camera == camera.name) {
                Some((pictures, counts)) => summary.with_pictures(&pictures.directory, *counts),
                None => summary,
            }
        });
        let models = views.iter().zip(&running.models);
        Parts {
            models: models
                .map(|(view, model)| ModelSummary::new(view, &model.loaded.backend, model.buffers.memory.kind()))
                .collect(),
            cameras: cameras.collect(),
            sinks: sinks.iter().map(SinkSummary::new).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What a panic in the middle of a change leaves behind still has to be ended.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn output(error: PublishError) -> ExitError {
    ExitError::new(Exit::Output, error)
}

fn warn_without_sink(config: &Config) {
    if config.sinks.is_empty() {
        log::warn!("no [[sink]] is configured: detections go nowhere");
    }
}
