//! A lane: the thread of one model. Takes the newest frames of its cameras, looks at them in one run, and publishes.
//!
//! A frame's buffer is given back as soon as the run has begun, unless pictures are drawn of its camera or somebody watches it. A frame that fails
//! costs that frame; a network that fails again and again is built anew; a panic costs the frames in hand, and the lane
//! begins anew after a pause. Other lanes and all cameras go on meanwhile. The lane sleeps on the inbox: it never spins.
//!
//! An error that costs the process its GPU ends the lane and raises stop: only a new process can go on, see [`Lost`].
//!
//! The network can be exchanged for another one, which is ready, between two runs: see [`Exchange`].
//!
//! A network that can have two runs under way begins the second just before the first is done, see [`super::pacer`].

mod given;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_engine::detector::{Detection, RunCounts, RunId, RunTimings};
use visiond_flow::clock::Clock;
use visiond_flow::frame::Frame;
use visiond_flow::message::{DetectionMessage, Message, ModelFacts, Timings};
use visiond_flow::metrics::{Activity, DropCause, LaneMetrics};
use visiond_flow::trace;
use visiond_kernels::nvtx;
use visiond_system::backoff::{Backoff, RateLimit};
use visiond_system::logging::{self, Subject, events};
use visiond_system::stop::Stop;

use super::inbox::{Delivery, Taken};
use super::network::{Fault, Network, NetworkError};
use super::pacer::{Pacer, Step};

pub use self::given::{Arrival, Budget, Exchange, LaneCamera, LaneInbox, LaneNetwork, Lost, Outlet};

/// Runs that fail one after the other until the network is built anew.
const FAILURES_UNTIL_REBUILD: u32 = 3;
/// The lane looks up so often when nothing comes.
const IDLE: Duration = Duration::from_secs(10);

/// One model's thread, before it runs.
pub struct Lane {
    /// Its counters and name.
    pub metrics: Arc<LaneMetrics>,
    /// Where its cameras' frames stand.
    pub inbox: Arc<LaneInbox>,
    /// Where another network comes from.
    pub exchange: Arc<Exchange>,
    /// Where messages go.
    pub outlet: Outlet,
    /// How many may.
    pub budget: Arc<Budget>,
    /// Time of ages.
    pub clock: Arc<dyn Clock>,
    /// Ends this lane's pauses early.
    pub stop: Stop,
    /// Ends the daemon.
    pub end: Stop,
    /// Whether the GPU is lost.
    pub lost: Lost,
}

/// A frame in hand.
struct Work {
    camera: Arc<LaneCamera>,
    /// Kept once the run has begun only where a picture is made of it.
    frame: Option<Frame>,
    /// Complete but for what the run tells.
    message: Message,
}

/// A run under way. Slot `i` of it is `works[i]`'s.
struct Run {
    flight: RunId,
    works: VecDeque<Work>,
}

/// What lives as long as the lane's thread.
struct Hands {
    taken: Vec<(Arc<LaneCamera>, Arrival)>,
    /// To be begun, or being published.
    works: VecDeque<Work>,
    /// Under way, the oldest first.
    aloft: VecDeque<Run>,
    /// Emptied lists, for the next runs.
    spare: Vec<VecDeque<Work>>,
    found: Vec<Detection>,
    pacer: Pacer,
    /// What the network had counted when it was asked last.
    counted: RunCounts,
    backoff: Backoff,
    failures: u32,
    /// What cost the process its GPU.
    lost: Option<String>,
    complaints: RateLimit,
}

impl Lane {
    /// Looks at frames until the inbox has ended or stopped.
    pub fn run(self, mut looks: LaneNetwork) {
        logging::about(Subject::Model, Arc::clone(&self.metrics.name));
        let flights = looks.ready.as_ref().map_or(1, |network| network.flights());
        let mut hands = Hands {
            taken: Vec::new(),
            works: VecDeque::new(),
            aloft: VecDeque::with_capacity(flights),
            spare: Vec::with_capacity(flights),
            found: Vec::new(),
            pacer: Pacer::new(flights, self.inbox.has_lossless()),
            counted: RunCounts::default(),
            backoff: Backoff::new(Duration::from_millis(250), Duration::from_secs(5)),
            failures: 0,
            lost: None,
            complaints: RateLimit::new(Duration::from_secs(10)),
        };
        // After a panic `hands` may hold half a batch, which `discard` clears; all else in `self` is atomic or locked.
        while catch_unwind(AssertUnwindSafe(|| self.serve(&mut looks, &mut hands))).is_err() {
            // The panic hook has logged where and why.
            log::error!("model {}: beginning anew after a panic", self.metrics.name);
            self.metrics.count_error();
            self.discard(&mut hands);
            looks.ready = None;
        }
        self.metrics.enter(Activity::Ended);
    }

    /// Returns when there is nothing more to do.
    fn serve(&self, looks: &mut LaneNetwork, hands: &mut Hands) {
        loop {
            let Some(ready) = &mut looks.ready else {
                if !self.rebuild(looks, hands) {
                    return;
                }
                continue;
            };
            if let Some(reason) = hands.lost.take() {
                // Freeing what is in a lost context fails at best; the process ends anyway.
                std::mem::forget(looks.ready.take());
                self.give_up(reason, hands);
                return;
            }
            if hands.failures >= FAILURES_UNTIL_REBUILD {
                log::warn!(
                    "model {}: {} runs failed one after the other, building it anew",
                    self.metrics.name,
                    hands.failures
                );
                while hands.lost.is_none() && self.land(ready.as_mut(), hands) {}
                if hands.lost.is_none() {
                    looks.ready = None;
                }
                continue;
            }
            let patience = match hands.pacer.step(self.clock.monotonic_ns(), hands.aloft.len()) {
                Step::Wait => {
                    self.metrics.enter(Activity::Idle);
                    IDLE
                }
                Step::Look { at_ns } => {
                    self.clock.sleep_until(at_ns, &self.stop);
                    Duration::ZERO
                }
                Step::Land => {
                    self.land(ready.as_mut(), hands);
                    continue;
                }
            };
            let model = &looks.model;
            match self.inbox.take(ready.batch(), patience, &mut hands.taken) {
                Taken::Frames => {
                    self.metrics.enter(Activity::Looking);
                    self.begin(ready.as_mut(), model, hands);
                }
                Taken::TimedOut => {
                    hands.pacer.nothing_waits();
                    self.land(ready.as_mut(), hands);
                }
                Taken::Called => {
                    while hands.lost.is_none() && self.land(ready.as_mut(), hands) {}
                    if hands.lost.is_none() {
                        self.exchange(looks, hands);
                        hands.pacer.set_eager(self.inbox.has_lossless());
                    }
                }
                Taken::Ended | Taken::Stopped => {
                    while hands.lost.is_none() && self.land(ready.as_mut(), hands) {}
                    if hands.lost.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// The GPU is lost: what was in hand has failed, and the daemon is to end.
    fn give_up(&self, reason: String, hands: &mut Hands) {
        log::error!(
            message_id = events::GPU_LOST;
            "model {}: the GPU is lost to this process, ending so that a new one gets it: {reason}",
            self.metrics.name
        );
        self.discard(hands);
        let _ = self.lost.set(reason);
        self.end.raise();
    }

    /// Takes another network, if one is there, in place of this one; nothing is under way.
    fn exchange(&self, looks: &mut LaneNetwork, hands: &mut Hands) -> bool {
        let Some((new, back)) = self.exchange.take() else { return false };
        if let Some(network) = &new.ready {
            hands.pacer = Pacer::new(network.flights(), self.inbox.has_lossless());
        }
        hands.counted = RunCounts::default();
        hands.failures = 0;
        hands.backoff.reset();
        // Where nobody waits for the old one any more, it is freed here.
        let _ = back.send(std::mem::replace(looks, new));
        true
    }

    /// A new network, tried again after ever longer pauses; `false` when the lane stops.
    fn rebuild(&self, looks: &mut LaneNetwork, hands: &mut Hands) -> bool {
        loop {
            self.metrics.enter(Activity::Backoff);
            let pause = hands.backoff.pause();
            if self.exchange(looks, hands) {
                return true;
            }
            if self.stop.sleep(pause) {
                return false;
            }
            if self.exchange(looks, hands) {
                return true;
            }
            self.metrics.enter(Activity::Looking);
            match (looks.build)() {
                Ok(network) => {
                    self.metrics.count_rebuild();
                    hands.failures = 0;
                    log::info!("model {}: built anew", self.metrics.name);
                    looks.ready = Some(network);
                    return true;
                }
                Err(error) if error.fault == Fault::Process => {
                    self.metrics.count_error();
                    self.give_up(error.to_string(), hands);
                    return false;
                }
                Err(error) => {
                    self.metrics.count_error();
                    log::error!("model {}: cannot be built anew: {error}; trying again", self.metrics.name);
                }
            }
        }
    }

    /// Begins a run over what was taken. A frame that cannot be part of it is left out; what fails is logged.
    fn begin(&self, network: &mut dyn Network, model: &Arc<ModelFacts>, hands: &mut Hands) {
        let now_ns = self.clock.monotonic_ns();
        let trace = trace::work("begin run");
        hands.works.extend(hands.taken.drain(..).map(|(camera, arrival)| receive(camera, model, arrival, now_ns)));
        hands.works.iter().for_each(|work| trace.frame(&work.camera.metrics.name, work.message.sequence));
        while let Some(first) = hands.works.front() {
            let error = match begin_run(network, &hands.works) {
                Ok(flight) => {
                    for work in &mut hands.works {
                        if work.camera.annotator.is_none() && !work.camera.view.wanted() {
                            work.frame = None;
                        }
                    }
                    hands.pacer.begun(now_ns, hands.works.len());
                    let works = std::mem::replace(&mut hands.works, hands.spare.pop().unwrap_or_default());
                    hands.aloft.push_back(Run { flight, works });
                    return;
                }
                Err(error) => error,
            };
            match error.fault {
                Fault::Frame(index) if index < hands.works.len() => {
                    if let Some(work) = hands.works.remove(index) {
                        self.complain(&mut hands.complaints, &work, &error);
                        fail(&work);
                    }
                }
                fault => {
                    hands.failures += 1;
                    hands.lost = (fault == Fault::Process).then(|| error.to_string());
                    self.complain(&mut hands.complaints, first, &error);
                    hands.works.drain(..).for_each(|work| fail(&work));
                }
            }
        }
    }

    /// Waits for the oldest run under way, and publishes what it saw; `false`: there is none.
    fn land(&self, network: &mut dyn Network, hands: &mut Hands) -> bool {
        let Some(run) = hands.aloft.front_mut() else { return false };
        self.metrics.enter(Activity::Looking);
        let trace = trace::work("finish run");
        let result = network.finish(run.flight);
        drop(trace);
        self.metrics.count_run();
        let flight = run.flight;
        match result {
            Ok(timings) => {
                hands.failures = 0;
                hands.backoff.reset();
                let (now_ns, frames) = (self.clock.monotonic_ns(), run.works.len());
                hands.pacer.landed(now_ns, hands.aloft.len() - 1, frames, &timings, self.inbox.waits());
                self.read(network, hands, flight, &timings);
                self.count(network, hands, &timings);
            }
            Err(error) => {
                hands.failures += 1;
                hands.lost = (error.fault == Fault::Process).then(|| error.to_string());
                hands.pacer.lost();
                if let Some(first) = run.works.front() {
                    self.complain(&mut hands.complaints, first, &error);
                }
                run.works.drain(..).for_each(|work| fail(&work));
            }
        }
        if let Some(run) = hands.aloft.pop_front() {
            hands.spare.push(run.works);
        }
        true
    }

    /// Reads the oldest run, which is finished, and publishes frame by frame.
    fn read(&self, network: &mut dyn Network, hands: &mut Hands, flight: RunId, timings: &RunTimings) {
        let Some(run) = hands.aloft.front_mut() else { return };
        for slot in 0.. {
            let Some(mut work) = run.works.pop_front() else { break };
            let start = Instant::now();
            let trace = trace::work_on("read", &work.message.camera, work.message.sequence);
            if let Err(error) = network.detections(flight, slot, &mut hands.found) {
                self.complain(&mut hands.complaints, &work, &error);
                fail(&work);
                continue;
            }
            let named = |found: &Detection| DetectionMessage::new(found, network.label(found.class_id));
            work.message.detections = hands.found.iter().filter_map(named).collect();
            work.message.timings_us.preprocess = timings.preprocess_us;
            work.message.timings_us.infer = timings.infer_us;
            work.message.timings_us.postprocess = micros(start.elapsed());
            drop(trace);
            self.metrics.enter(Activity::Publishing);
            self.publish(work);
            self.metrics.enter(Activity::Looking);
        }
    }

    /// Passes on what the network counted since the run before.
    fn count(&self, network: &dyn Network, hands: &mut Hands, timings: &RunTimings) {
        let counts = network.counts();
        // A network that was built anew begins at 0.
        let new = counts.since(&hands.counted).unwrap_or(counts);
        hands.counted = counts;
        if counts.graph_runs + counts.single_runs > 0 {
            self.metrics.count_gpu(&new, timings.launch_us);
        }
    }

    /// Sends the message, and the frame to whoever draws it.
    fn publish(&self, work: Work) {
        let camera = &work.camera;
        if !self.budget.spend() {
            return;
        }
        let _range = nvtx::range(c"publish");
        let mut message = work.message;
        let _trace = trace::work_on("publish", &message.camera, message.sequence);
        let now_ns = self.clock.monotonic_ns();
        message.timings_us.total = now_ns.saturating_sub(message.monotonic_ns) / 1_000;
        let message = Arc::new(message);
        trace::frame(&message, now_ns);
        (self.outlet)(&message);
        camera.metrics.count_published(&message);
        self.metrics.note_frame();
        let Some(frame) = work.frame.map(Arc::new) else { return };
        camera.view.offer(&frame, &message);
        if let Some(annotator) = &camera.annotator {
            match camera.delivery {
                Delivery::NewestWins => annotator.offer(frame, message),
                Delivery::Lossless => annotator.offer_wait(frame, message),
            }
        }
    }

    /// What was in hand has failed.
    fn discard(&self, hands: &mut Hands) {
        let aloft = hands.aloft.drain(..).flat_map(|run| run.works);
        let works = hands.works.drain(..).chain(aloft).map(|work| work.camera);
        hands.pacer.lost();
        for camera in works.chain(hands.taken.drain(..).map(|(camera, _)| camera)) {
            camera.metrics.count_dropped(DropCause::Failed, 1);
        }
    }

    fn complain(&self, complaints: &mut RateLimit, work: &Work, error: &NetworkError) {
        self.metrics.count_error();
        let Some(held_back) = complaints.pass(Instant::now()) else { return };
        let more = if held_back > 0 { format!(" (and {held_back} more like it)") } else { String::new() };
        let (model, camera) = (&self.metrics.name, &work.camera.metrics.name);
        log::error!(camera:% = camera; "model {model}: frame {} of camera {camera}: {error}{more}", work.message.sequence);
    }
}

/// A frame that was taken out of the inbox at `now_ns`.
fn receive(camera: Arc<LaneCamera>, model: &Arc<ModelFacts>, arrival: Arrival, now_ns: u64) -> Work {
    let Arrival { frame, queued_ns } = arrival;
    let timings = Timings {
        capture: queued_ns.saturating_sub(frame.timestamp.monotonic_ns) / 1_000,
        queue: now_ns.saturating_sub(queued_ns) / 1_000,
        ..Timings::default()
    };
    let name = &camera.metrics.name;
    let message = Message::new(name, model, &frame, timings, &[], |_| Arc::clone(name));
    Work { camera, frame: Some(frame), message }
}

fn fail(work: &Work) {
    work.camera.metrics.count_dropped(DropCause::Failed, 1);
}

/// Begins a run over all of `works`.
fn begin_run(network: &mut dyn Network, works: &VecDeque<Work>) -> Result<RunId, NetworkError> {
    let mut views = Vec::with_capacity(works.len());
    for (index, frame) in works.iter().map(|work| &work.frame).enumerate() {
        // Frames are there until their run has begun.
        let Some(frame) = frame else { continue };
        views.push(frame.view().map_err(|error| NetworkError::new(Fault::Frame(index), error))?);
    }
    network.begin(&views)
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

#[cfg(test)]
pub mod testing;

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
