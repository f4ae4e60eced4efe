//! All threads of the pipeline: a lane for each model, a camera thread for each camera; their start and their end.
//!
//! It ends in one of two ways. Every camera has ended: the lanes drain, and the last one raises `stop`. Or somebody raises
//! `stop` (a signal, a sink without a reader, a limit): [`Pipeline::halt`] then wakes whoever waits. Either way
//! [`Pipeline::join`] waits for the threads, but not for ever.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::camera::{Camera, Open, Patience, Settlement};
use super::inbox::{Delivery, Inbox};
use super::lane::{Arrival, Budget, Lane, LaneCamera, Lost, Outlet};
use super::metrics::{Activity, CameraMetrics, LaneMetrics, Phase};
use super::network::{Build, Network};
use super::stop::Stop;
use crate::annotate::annotator::Annotator;
use crate::capture::clock::{Clock, SystemClock};
use crate::publish::message::ModelFacts;

/// A camera to be.
pub struct CameraPlan {
    /// Its name.
    pub name: Arc<str>,
    /// Opens its source.
    pub open: Open,
    /// What it does when the lane is busy.
    pub delivery: Delivery,
    /// Who draws its pictures.
    pub annotator: Option<Arc<Annotator>>,
}

/// A lane to be.
pub struct LanePlan {
    /// What messages say of the model.
    pub model: Arc<ModelFacts>,
    /// The network, ready.
    pub network: Box<dyn Network>,
    /// Makes it anew.
    pub build: Build,
    /// Its cameras, at least one.
    pub cameras: Vec<CameraPlan>,
}

/// What all lanes and cameras share.
pub struct Surroundings {
    /// Where messages go.
    pub outlet: Outlet,
    /// How many may.
    pub messages: Option<u64>,
    /// Pauses.
    pub patience: Patience,
    /// Ends it all.
    pub stop: Stop,
}

/// A lane's and its cameras' counters.
#[derive(Debug, Clone)]
pub struct LaneView {
    /// The lane's.
    pub lane: Arc<LaneMetrics>,
    /// The cameras', in the configuration's order.
    pub cameras: Vec<Arc<CameraMetrics>>,
}

impl LaneView {
    /// Whether a frame went through, or none can come now because every camera is away.
    pub fn is_ready(&self) -> bool {
        let away = |camera: &Arc<CameraMetrics>| !matches!(camera.phase(), Phase::Opening | Phase::Streaming);
        self.lane.had_frame() || self.cameras.iter().all(away)
    }
}

/// The running pipeline.
pub struct Pipeline {
    lanes: Vec<LaneView>,
    inboxes: Vec<Arc<Inbox<Arrival>>>,
    settlement: Arc<Settlement>,
    lost: Lost,
    /// Never sent on: it disconnects when the last thread ends.
    ended: Receiver<()>,
}

/// Dropped at the end of each lane's thread; the last one raises stop.
struct LastLane {
    left: Arc<AtomicUsize>,
    stop: Stop,
}

impl Drop for LastLane {
    fn drop(&mut self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.stop.raise();
        }
    }
}

impl Pipeline {
    /// Starts every thread. Fails when the system gives no thread or descriptor; what was started then ends by itself.
    pub fn start(plans: Vec<LanePlan>, around: &Surroundings) -> io::Result<Self> {
        let cameras = plans.iter().map(|plan| plan.cameras.len()).sum();
        let (alive, ended) = channel();
        let mut pipeline = Self {
            lanes: Vec::new(),
            inboxes: Vec::new(),
            settlement: Arc::new(Settlement::new(cameras)?),
            lost: Lost::default(),
            ended,
        };
        let left = Arc::new(AtomicUsize::new(plans.len()));
        let budget = Arc::new(Budget::new(around.messages, &around.stop));
        for plan in plans {
            let last = LastLane { left: Arc::clone(&left), stop: around.stop.clone() };
            pipeline.start_lane(plan, around, &budget, &alive, last).inspect_err(|_| {
                around.stop.raise();
                pipeline.halt();
            })?;
        }
        Ok(pipeline)
    }

    fn start_lane(
        &mut self,
        plan: LanePlan,
        around: &Surroundings,
        budget: &Arc<Budget>,
        alive: &Sender<()>,
        last: LastLane,
    ) -> io::Result<()> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let deliveries: Vec<_> = plan.cameras.iter().map(|camera| camera.delivery).collect();
        let inbox = Arc::new(Inbox::new(&deliveries));
        let lane_metrics = Arc::new(LaneMetrics::new(plan.model.name.as_str().into()));
        let mut lane = Lane {
            metrics: Arc::clone(&lane_metrics),
            model: plan.model,
            cameras: Vec::new(),
            inbox: Arc::clone(&inbox),
            outlet: Arc::clone(&around.outlet),
            budget: Arc::clone(budget),
            build: plan.build,
            clock: Arc::clone(&clock),
            stop: around.stop.clone(),
            lost: Arc::clone(&self.lost),
        };
        let mut threads = Vec::new();
        for (slot, plan) in plan.cameras.into_iter().enumerate() {
            let metrics = Arc::new(CameraMetrics::new(plan.name));
            let (annotator, delivery) = (plan.annotator, plan.delivery);
            lane.cameras.push(LaneCamera { metrics: Arc::clone(&metrics), annotator, delivery });
            threads.push(Camera {
                metrics,
                open: plan.open,
                inbox: Arc::clone(&inbox),
                slot,
                settlement: Arc::clone(&self.settlement),
                patience: around.patience,
                clock: Arc::clone(&clock),
                stop: around.stop.clone(),
            });
        }
        let cameras = threads.iter().map(|camera| Arc::clone(&camera.metrics)).collect();
        self.lanes.push(LaneView { lane: lane_metrics, cameras });
        self.inboxes.push(inbox);

        let network = plan.network;
        let held = alive.clone();
        thread::Builder::new().name(format!("lane {}", lane.metrics.name)).spawn(move || {
            // Dropped last first, by a panic too: whoever waits for the threads finds stop raised.
            let (_held, _last) = (held, last);
            lane.run(network);
        })?;
        for camera in threads {
            let held = alive.clone();
            thread::Builder::new().name(format!("cam {}", camera.metrics.name)).spawn(move || {
                let _held = held;
                camera.run();
            })?;
        }
        Ok(())
    }

    /// Every lane with its cameras.
    pub fn lanes(&self) -> &[LaneView] {
        &self.lanes
    }

    /// Why no lane can go on in this process; `None` as long as they can.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// After `stop` was raised: wakes whoever waits in an inbox or for help.
    pub fn halt(&self) {
        self.settlement.call_off();
        self.inboxes.iter().for_each(|inbox| inbox.stop());
    }

    /// Waits until every thread has ended; `false`: some had not by `deadline`, and are named in the log.
    pub fn join(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        if self.ended.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
            return true;
        }
        for view in &self.lanes {
            if view.lane.activity() != Activity::Ended {
                log::error!("model {}: its lane does not end; left behind", view.lane.name);
            }
            for camera in view.cameras.iter().filter(|c| !matches!(c.phase(), Phase::Ended | Phase::Failed)) {
                log::error!("camera {}: its source does not end; left behind", camera.name);
            }
        }
        false
    }
}

/// How long the threads have at the end: a run of the network and a source's 100 ms.
pub const JOIN: Duration = Duration::from_millis(1_200);
