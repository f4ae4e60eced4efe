//! All threads of the pipeline: a lane for each model, a camera thread for each camera; their start, change and end.
//!
//! [`Pipeline::change`] makes of what runs what is to run: a camera that stays is not touched, nor is a lane by the change of
//! a camera; a lane takes another network between two runs. The start is a change of nothing.
//!
//! It ends in one of two ways. Every camera has ended: the lanes drain, and the last one raises `stop`. Or somebody raises
//! `stop` (a signal, a sink without a reader, a limit): [`Pipeline::halt`] then wakes whoever waits. Either way
//! [`Pipeline::join`] waits for the threads, but not for ever.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use visiond_annotate::annotator::Annotator;
use visiond_capture::source::Open;
use visiond_flow::clock::{Clock, SystemClock};
use visiond_flow::metrics::{Activity, CameraMetrics, DropCause, LaneMetrics, LaneView, Phase};
use visiond_live::Live;
use visiond_system::stop::Stop;
use visiond_system::threads::finished_by;

use super::camera::{Camera, Patience, Settlement};
use super::inbox::{Delivery, Inbox};
use super::lane::{Budget, Exchange, Lane, LaneCamera, LaneInbox, LaneNetwork, Lost, Outlet};

/// A camera to be.
pub struct CameraPlan {
    /// Its name.
    pub name: Arc<str>,
    /// Opens its source; `None`: it goes on in its lane as it is.
    pub open: Option<Open>,
    /// What it does when the lane is busy.
    pub delivery: Delivery,
    /// Who draws its pictures.
    pub annotator: Option<Arc<Annotator>>,
}

/// A lane to be.
pub struct LanePlan {
    /// Its model's name, which is its own.
    pub model: Arc<str>,
    /// The network that it is to look with; `None`: the one that it has, see [`Hold::has`].
    pub network: Option<LaneNetwork>,
    /// Its cameras, at least one.
    pub cameras: Vec<CameraPlan>,
}

/// What all lanes and cameras share.
pub struct Surroundings {
    /// Where messages go.
    pub outlet: Outlet,
    /// Who watches.
    pub live: Arc<Live>,
    /// How many may.
    pub messages: Option<u64>,
    /// Pauses.
    pub patience: Patience,
    /// Ends it all.
    pub stop: Stop,
}

/// The running pipeline.
pub struct Pipeline {
    lanes: Vec<RunningLane>,
    /// What is to run no more and had not ended when it was looked at last.
    leaving: Vec<JoinHandle<()>>,
    around: Surroundings,
    budget: Arc<Budget>,
    settlement: Arc<Settlement>,
    unfinished: Arc<AtomicUsize>,
    lost: Lost,
    clock: Arc<dyn Clock>,
}

struct RunningLane {
    metrics: Arc<LaneMetrics>,
    inbox: Arc<LaneInbox>,
    exchange: Arc<Exchange>,
    stop: Stop,
    thread: JoinHandle<()>,
    cameras: Vec<RunningCamera>,
}

struct RunningCamera {
    record: Record,
    slot: usize,
    stop: Stop,
    thread: JoinHandle<()>,
}

/// What outlives a camera's thread when it is opened anew.
#[derive(Clone)]
struct Record {
    metrics: Arc<CameraMetrics>,
    sequence: Arc<AtomicU64>,
}

impl Record {
    fn new(name: &Arc<str>) -> Self {
        Self { metrics: Arc::new(CameraMetrics::new(Arc::clone(name))), sequence: Arc::default() }
    }
}

/// A lane that has not ended, or a [`Hold`]; dropped at its end, and the last one raises stop.
struct Unfinished {
    left: Arc<AtomicUsize>,
    stop: Stop,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.stop.raise();
        }
    }
}

/// Keeps the pipeline, and every lane that has not ended, from ending by itself because no camera is left; for whoever is
/// about to change it.
pub struct Hold {
    settlement: Arc<Settlement>,
    lanes: Vec<(Arc<str>, Arc<LaneInbox>)>,
    _pipeline: Unfinished,
}

impl Hold {
    /// Whether `model` has a lane that goes on without another network.
    pub fn has(&self, model: &str) -> bool {
        self.lanes.iter().any(|(name, _)| **name == *model)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|(_, inbox)| inbox.release());
        self.settlement.settle();
    }
}

/// Networks on their way to lanes that run.
#[derive(Default)]
pub struct Handover(Vec<(Arc<LaneMetrics>, Receiver<LaneNetwork>)>);

impl Handover {
    /// Waits until each lane has taken its network, and frees the one that it had. A lane that has not by `deadline` takes
    /// it when it can.
    pub fn wait(self, deadline: Instant, stop: &Stop) {
        for (lane, before) in self.0 {
            let name = &lane.name;
            loop {
                match before.recv_timeout(Duration::from_millis(20)) {
                    Ok(_) => log::debug!("model {name}: the lane has its new network"),
                    Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                        log::warn!("model {name}: the lane has not taken its new network yet, it is busy or hangs");
                    }
                    Err(RecvTimeoutError::Timeout) if !stop.is_raised() => continue,
                    Err(_) => {}
                }
                break;
            }
        }
    }
}

impl Pipeline {
    /// Starts every thread. Fails when the system gives no thread or descriptor; what was started then ends by itself.
    pub fn start(plans: Vec<LanePlan>, around: Surroundings) -> io::Result<Self> {
        let budget = Arc::new(Budget::new(around.messages, &around.stop));
        // Of the hold.
        let settlement = Arc::new(Settlement::new(1)?);
        let unfinished = Arc::new(AtomicUsize::new(1));
        let mut pipeline = Self {
            lanes: Vec::new(),
            leaving: Vec::new(),
            budget,
            settlement: Arc::clone(&settlement),
            unfinished: Arc::clone(&unfinished),
            lost: Lost::default(),
            clock: Arc::new(SystemClock),
            around,
        };
        let _pipeline = Unfinished { left: unfinished, stop: pipeline.around.stop.clone() };
        let _hold = Hold { settlement, lanes: Vec::new(), _pipeline };
        pipeline.change(plans)?;
        Ok(pipeline)
    }

    /// Keeps it from ending by itself; `None`: it has already.
    pub fn hold(&self) -> Option<Hold> {
        let one_more = |left: usize| (left > 0).then(|| left + 1);
        self.unfinished.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        let pipeline = Unfinished { left: Arc::clone(&self.unfinished), stop: self.around.stop.clone() };
        if !self.settlement.unsettle() {
            return None;
        }
        let held = self.lanes.iter().filter(|lane| lane.inbox.hold());
        let lanes = held.map(|lane| (Arc::clone(&lane.metrics.name), Arc::clone(&lane.inbox))).collect();
        Some(Hold { settlement: Arc::clone(&self.settlement), lanes, _pipeline: pipeline })
    }

    /// Makes of what runs what `plans` say, in their order; who changes what runs keeps a [`Hold`] meanwhile.
    ///
    /// Cameras that go, or are opened anew, end first, because two cannot have one device. Fails when the system gives no
    /// thread or descriptor, which leaves a part undone: `stop` is then raised.
    pub fn change(&mut self, plans: Vec<LanePlan>) -> io::Result<Handover> {
        let mut records = self.end_cameras(&plans);
        let mut before = std::mem::take(&mut self.lanes);
        let mut handover = Handover::default();
        let result = plans.into_iter().try_for_each(|plan| {
            let at = before.iter().position(|lane| lane.metrics.name == plan.model);
            let lane = at.map(|at| before.remove(at));
            self.change_lane(lane, plan, &mut records, &mut handover)
        });
        if let Err(error) = result {
            self.lanes.append(&mut before);
            self.around.stop.raise();
            self.halt();
            return Err(error);
        }
        for lane in before {
            // It has no camera left, and ends with what it has in hand; if it waits before it builds its network, at once.
            lane.stop.raise();
            self.leaving.push(lane.thread);
        }
        self.leaving.retain(|thread| !thread.is_finished());
        Ok(handover)
    }

    /// Ends the cameras that do not stay as they are; returns what is to be remembered of them.
    fn end_cameras(&mut self, plans: &[LanePlan]) -> HashMap<Arc<str>, Record> {
        let stays = |lane: &RunningLane, camera: &RunningCamera| {
            let plan = plans.iter().find(|plan| plan.model == lane.metrics.name);
            let mut cameras = plan.into_iter().flat_map(|plan| &plan.cameras);
            cameras.any(|plan| plan.open.is_none() && plan.name == camera.record.metrics.name)
        };
        let mut going = Vec::new();
        for lane in &mut self.lanes {
            let cameras = std::mem::take(&mut lane.cameras);
            let (stay, go): (Vec<_>, Vec<_>) = cameras.into_iter().partition(|camera| stays(lane, camera));
            lane.cameras = stay;
            for camera in go {
                camera.stop.raise();
                if lane.inbox.remove(camera.slot).is_some() {
                    camera.record.metrics.count_dropped(DropCause::Overload, 1);
                }
                going.push(camera);
            }
        }
        let deadline = Instant::now() + JOIN;
        let mut records = HashMap::new();
        for RunningCamera { mut record, thread, .. } in going {
            let name = Arc::clone(&record.metrics.name);
            if !finished_by([&thread], deadline) {
                log::error!("camera {name}: its source does not end; left behind");
                self.leaving.push(thread);
                // The old ones are still the old thread's.
                let sequence = AtomicU64::new(record.sequence.load(Ordering::Relaxed));
                record = Record { sequence: Arc::new(sequence), ..Record::new(&name) };
            }
            records.insert(name, record);
        }
        records
    }

    fn change_lane(
        &mut self,
        lane: Option<RunningLane>,
        plan: LanePlan,
        records: &mut HashMap<Arc<str>, Record>,
        handover: &mut Handover,
    ) -> io::Result<()> {
        // Held for as long as its cameras are exchanged.
        let mut held = lane.as_ref().is_some_and(|lane| lane.inbox.hold());
        let mut lane = match (lane, plan.network) {
            (Some(lane), network) if held => {
                if let Some(network) = network {
                    handover.0.push((Arc::clone(&lane.metrics), lane.exchange.offer(network)));
                }
                lane
            }
            (Some(lane), None) => lane,
            (before, Some(network)) => {
                let metrics = before.as_ref().map(|lane| Arc::clone(&lane.metrics));
                let metrics = metrics.unwrap_or_else(|| Arc::new(LaneMetrics::new(plan.model)));
                let mut lane = self.start_lane(metrics, network)?;
                // Those that stay have ended with the lane that they had.
                lane.cameras = before.map(|lane| lane.cameras).unwrap_or_default();
                held = true;
                lane
            }
            (None, None) => return Err(io::Error::other(format!("model {} has no network", plan.model))),
        };
        let mut before = std::mem::take(&mut lane.cameras);
        let mut result = Ok(());
        for camera in plan.cameras {
            let known = |metrics: &Arc<CameraMetrics>| {
                let annotator = camera.annotator.clone();
                let (metrics, view) = (Arc::clone(metrics), self.around.live.view(&camera.name));
                Arc::new(LaneCamera { metrics, annotator, view, delivery: camera.delivery })
            };
            let at = before.iter().position(|running| running.record.metrics.name == camera.name);
            match (camera.open, at) {
                (Some(open), _) => {
                    let record = records.remove(&camera.name).unwrap_or_else(|| Record::new(&camera.name));
                    let known = known(&record.metrics);
                    match self.start_camera(&lane, known, record, open) {
                        Ok(running) => lane.cameras.push(running),
                        Err(error) => result = Err(error),
                    }
                }
                (None, Some(at)) => {
                    let running = before.remove(at);
                    lane.inbox.relabel(running.slot, known(&running.record.metrics));
                    lane.cameras.push(running);
                }
                (None, None) => result = Err(io::Error::other(format!("camera {} does not run", camera.name))),
            }
        }
        if held {
            lane.inbox.release();
        }
        // It looks at the exchange, and at whether a camera must not lose anything.
        lane.inbox.call();
        self.lanes.push(lane);
        result
    }

    /// A lane whose inbox is held.
    fn start_lane(&self, metrics: Arc<LaneMetrics>, network: LaneNetwork) -> io::Result<RunningLane> {
        let inbox = Arc::new(Inbox::new());
        inbox.hold();
        let exchange = Arc::new(Exchange::default());
        let stop = self.around.stop.child()?;
        let lane = Lane {
            metrics: Arc::clone(&metrics),
            inbox: Arc::clone(&inbox),
            exchange: Arc::clone(&exchange),
            outlet: Arc::clone(&self.around.outlet),
            budget: Arc::clone(&self.budget),
            clock: Arc::clone(&self.clock),
            stop: stop.clone(),
            end: self.around.stop.clone(),
            lost: Arc::clone(&self.lost),
        };
        self.unfinished.fetch_add(1, Ordering::SeqCst);
        let last = Unfinished { left: Arc::clone(&self.unfinished), stop: self.around.stop.clone() };
        let thread = thread::Builder::new().name(format!("lane {}", metrics.name)).spawn(move || {
            // Dropped by a panic too, and when the system gives no thread.
            let _last = last;
            lane.run(network);
        })?;
        Ok(RunningLane { metrics, inbox, exchange, stop, thread, cameras: Vec::new() })
    }

    fn start_camera(
        &self,
        lane: &RunningLane,
        known: Arc<LaneCamera>,
        record: Record,
        open: Open,
    ) -> io::Result<RunningCamera> {
        let stop = self.around.stop.child()?;
        let slot = lane.inbox.add(Arc::clone(&known), known.delivery);
        self.settlement.enter();
        let camera = Camera {
            metrics: Arc::clone(&record.metrics),
            open,
            inbox: Arc::clone(&lane.inbox),
            slot,
            sequence: Arc::clone(&record.sequence),
            settlement: Arc::clone(&self.settlement),
            patience: self.around.patience,
            clock: Arc::clone(&self.clock),
            stop: stop.clone(),
        };
        let name = format!("cam {}", record.metrics.name);
        let thread = thread::Builder::new().name(name).spawn(move || camera.run())?;
        Ok(RunningCamera { record, slot, stop, thread })
    }

    /// Every lane with its cameras.
    pub fn lanes(&self) -> Vec<LaneView> {
        let cameras =
            |lane: &RunningLane| lane.cameras.iter().map(|camera| Arc::clone(&camera.record.metrics)).collect();
        self.lanes.iter().map(|lane| LaneView { lane: Arc::clone(&lane.metrics), cameras: cameras(lane) }).collect()
    }

    /// Why no lane can go on in this process; `None` as long as they can.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// After `stop` was raised: wakes whoever waits in an inbox or for help.
    pub fn halt(&self) {
        self.settlement.call_off();
        self.lanes.iter().for_each(|lane| lane.inbox.stop());
    }

    /// Waits until every thread has ended; `false`: some had not by `deadline`, and are named in the log.
    pub fn join(&self, deadline: Instant) -> bool {
        let cameras = self.lanes.iter().flat_map(|lane| &lane.cameras).map(|camera| &camera.thread);
        let threads = self.lanes.iter().map(|lane| &lane.thread).chain(cameras).chain(&self.leaving);
        if finished_by(threads, deadline) {
            return true;
        }
        for lane in &self.lanes {
            if lane.metrics.activity() != Activity::Ended {
                log::error!("model {}: its lane does not end; left behind", lane.metrics.name);
            }
            let metrics = lane.cameras.iter().map(|camera| &camera.record.metrics);
            for camera in metrics.filter(|camera| !matches!(camera.phase(), Phase::Ended | Phase::Failed)) {
                log::error!("camera {}: its source does not end; left behind", camera.name);
            }
        }
        false
    }
}

/// How long the threads have at the end: a run of the network and a source's 100 ms.
pub const JOIN: Duration = Duration::from_millis(1_200);

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
