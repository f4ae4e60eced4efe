//! A lane: the thread of one model. Takes the newest frames of its cameras, looks at them in one run, and publishes.
//!
//! A frame's buffer is given back as soon as the run has begun, unless pictures are drawn of its camera. A frame that fails
//! costs that frame; a network that fails again and again is built anew; a panic costs the frames in hand, and the lane
//! begins anew after a pause. Other lanes and all cameras go on meanwhile. The lane sleeps on the inbox: it never spins.
//!
//! An error that costs the process its GPU ends the lane and raises stop: only a new process can go on, see [`Lost`].
//!
//! A network that can have two runs under way begins the second just before the first is done, see [`super::pacer`].

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use visiond_engine::detector::{Detection, Flight, RunCounts, RunTimings};
use visiond_kernels::nvtx;

use super::backoff::{Backoff, RateLimit};
use super::inbox::{Delivery, Inbox, Taken};
use super::metrics::{Activity, CameraMetrics, DropCause, LaneMetrics};
use super::network::{Build, Fault, Network, NetworkError};
use super::pacer::{Pacer, Step};
use super::stop::Stop;
use crate::annotate::annotator::Annotator;
use crate::capture::clock::Clock;
use crate::capture::frame::Frame;
use crate::publish::message::{DetectionMessage, Message, ModelFacts, Timings};

/// Runs that fail one after the other until the network is built anew.
const FAILURES_UNTIL_REBUILD: u32 = 3;
/// The lane looks up so often when nothing comes.
const IDLE: Duration = Duration::from_secs(10);

/// A frame in the mailbox.
#[derive(Debug)]
pub struct Arrival {
    /// The frame.
    pub frame: Frame,
    /// When it was put there, on CLOCK_MONOTONIC.
    pub queued_ns: u64,
}

/// Where messages go: the publisher, or a test's list.
pub type Outlet = Arc<dyn Fn(&Arc<Message>) + Send + Sync>;

/// How many messages may still go out, over all lanes.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
    stop: Stop,
}

impl Budget {
    /// `messages`, or no limit. The last one raises `stop`.
    pub fn new(messages: Option<u64>, stop: &Stop) -> Self {
        Self { left: AtomicU64::new(messages.unwrap_or(u64::MAX)), stop: stop.clone() }
    }

    /// Whether one more may go out.
    fn spend(&self) -> bool {
        let spent = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if matches!(spent, Ok(0 | 1) | Err(_)) {
            self.stop.raise();
        }
        spent.is_ok()
    }
}

/// Why no lane can go on in this process, once one cannot: the first to say so.
pub type Lost = Arc<OnceLock<String>>;

/// What a lane knows of a camera. Its number in the inbox is its place in [`Lane::cameras`].
pub struct LaneCamera {
    /// Its counters and name.
    pub metrics: Arc<CameraMetrics>,
    /// Who draws its pictures.
    pub annotator: Option<Arc<Annotator>>,
    /// Whether its frames and pictures must not be lost.
    pub delivery: Delivery,
}

/// One model's thread, before it runs.
pub struct Lane {
    /// Its counters and name.
    pub metrics: Arc<LaneMetrics>,
    /// What messages say of the model.
    pub model: Arc<ModelFacts>,
    /// Its cameras.
    pub cameras: Vec<LaneCamera>,
    /// Where their frames stand.
    pub inbox: Arc<Inbox<Arrival>>,
    /// Where messages go.
    pub outlet: Outlet,
    /// How many may.
    pub budget: Arc<Budget>,
    /// Makes the network anew.
    pub build: Build,
    /// Time of ages.
    pub clock: Arc<dyn Clock>,
    /// Ends a pause early.
    pub stop: Stop,
    /// Whether the GPU is lost.
    pub lost: Lost,
}

/// A frame in hand.
struct Work {
    camera: usize,
    /// Kept once the run has begun only where pictures are drawn.
    frame: Option<Frame>,
    /// Complete but for what the run tells.
    message: Message,
}

/// A run under way. Slot `i` of it is `works[i]`'s.
struct Run {
    flight: Flight,
    works: VecDeque<Work>,
}

/// What lives as long as the lane's thread.
struct Hands {
    taken: Vec<(usize, Arrival)>,
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
    pub fn run(self, network: Box<dyn Network>) {
        let lossless = self.cameras.iter().any(|camera| camera.delivery == Delivery::Lossless);
        let mut hands = Hands {
            taken: Vec::with_capacity(self.cameras.len()),
            works: VecDeque::with_capacity(self.cameras.len()),
            aloft: VecDeque::with_capacity(network.flights()),
            spare: Vec::with_capacity(network.flights()),
            found: Vec::new(),
            pacer: Pacer::new(network.flights(), lossless),
            counted: RunCounts::default(),
            backoff: Backoff::new(Duration::from_millis(250), Duration::from_secs(5)),
            failures: 0,
            lost: None,
            complaints: RateLimit::new(Duration::from_secs(10)),
        };
        let mut network = Some(network);
        // After a panic `hands` may hold half a batch, which `discard` clears; all else in `self` is atomic or locked.
        while catch_unwind(AssertUnwindSafe(|| self.serve(&mut network, &mut hands))).is_err() {
            // The panic hook has logged where and why.
            log::error!("model {}: beginning anew after a panic", self.metrics.name);
            self.metrics.count_error();
            self.discard(&mut hands);
            network = None;
        }
        self.metrics.enter(Activity::Ended);
    }

    /// Returns when there is nothing more to do.
    fn serve(&self, network: &mut Option<Box<dyn Network>>, hands: &mut Hands) {
        loop {
            let Some(ready) = network else {
                *network = self.rebuild(hands);
                if network.is_none() {
                    return;
                }
                continue;
            };
            if let Some(reason) = hands.lost.take() {
                // Freeing what is in a lost context fails at best; the process ends anyway.
                std::mem::forget(network.take());
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
                    *network = None;
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
            match self.inbox.take(ready.batch(), patience, &mut hands.taken) {
                Taken::Frames => {
                    self.metrics.enter(Activity::Looking);
                    self.begin(ready.as_mut(), hands);
                }
                Taken::TimedOut => {
                    hands.pacer.nothing_waits();
                    self.land(ready.as_mut(), hands);
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
            "model {}: the GPU is lost to this process, ending so that a new one gets it: {reason}",
            self.metrics.name
        );
        self.discard(hands);
        let _ = self.lost.set(reason);
        self.stop.raise();
    }

    /// A new network, tried again after ever longer pauses; `None` when the daemon stops.
    fn rebuild(&self, hands: &mut Hands) -> Option<Box<dyn Network>> {
        loop {
            self.metrics.enter(Activity::Backoff);
            let pause = hands.backoff.pause();
            if self.stop.sleep(pause) {
                return None;
            }
            self.metrics.enter(Activity::Looking);
            match (self.build)() {
                Ok(network) => {
                    self.metrics.count_rebuild();
                    hands.failures = 0;
                    log::info!("model {}: built anew", self.metrics.name);
                    return Some(network);
                }
                Err(error) if error.fault == Fault::Process => {
                    self.metrics.count_error();
                    self.give_up(error.to_string(), hands);
                    return None;
                }
                Err(error) => {
                    self.metrics.count_error();
                    log::error!("model {}: cannot be built anew: {error}; trying again", self.metrics.name);
                }
            }
        }
    }

    /// Begins a run over what was taken. A frame that cannot be part of it is left out; what fails is logged.
    fn begin(&self, network: &mut dyn Network, hands: &mut Hands) {
        let now_ns = self.clock.monotonic_ns();
        hands.works.extend(hands.taken.drain(..).map(|(camera, arrival)| self.receive(camera, arrival, now_ns)));
        while let Some(first) = hands.works.front() {
            let error = match begin_run(network, &hands.works) {
                Ok(flight) => {
                    for work in &mut hands.works {
                        if self.cameras[work.camera].annotator.is_none() {
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
                        self.fail(&work);
                    }
                }
                fault => {
                    hands.failures += 1;
                    hands.lost = (fault == Fault::Process).then(|| error.to_string());
                    self.complain(&mut hands.complaints, first, &error);
                    hands.works.drain(..).for_each(|work| self.fail(&work));
                }
            }
        }
    }

    /// Waits for the oldest run under way, and publishes what it saw; `false`: there is none.
    fn land(&self, network: &mut dyn Network, hands: &mut Hands) -> bool {
        let Some(run) = hands.aloft.front_mut() else { return false };
        self.metrics.enter(Activity::Looking);
        let result = network.finish(run.flight);
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
                run.works.drain(..).for_each(|work| self.fail(&work));
            }
        }
        if let Some(run) = hands.aloft.pop_front() {
            hands.spare.push(run.works);
        }
        true
    }

    /// Reads the oldest run, which is finished, and publishes frame by frame.
    fn read(&self, network: &mut dyn Network, hands: &mut Hands, flight: Flight, timings: &RunTimings) {
        let Some(run) = hands.aloft.front_mut() else { return };
        for slot in 0.. {
            let Some(mut work) = run.works.pop_front() else { break };
            let start = Instant::now();
            if let Err(error) = network.detections(flight, slot, &mut hands.found) {
                self.complain(&mut hands.complaints, &work, &error);
                self.fail(&work);
                continue;
            }
            let named = |found: &Detection| DetectionMessage::new(found, network.label(found.class_id));
            work.message.detections = hands.found.iter().filter_map(named).collect();
            work.message.timings_us.preprocess = timings.preprocess_us;
            work.message.timings_us.infer = timings.infer_us;
            work.message.timings_us.postprocess = micros(start.elapsed());
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

    /// A frame that was taken out of the inbox at `now_ns`.
    fn receive(&self, camera: usize, Arrival { frame, queued_ns }: Arrival, now_ns: u64) -> Work {
        let timings = Timings {
            capture: queued_ns.saturating_sub(frame.timestamp.monotonic_ns) / 1_000,
            queue: now_ns.saturating_sub(queued_ns) / 1_000,
            ..Timings::default()
        };
        let name = &self.cameras[camera].metrics.name;
        let message = Message::new(name, &self.model, &frame, timings, &[], |_| Arc::clone(name));
        Work { camera, frame: Some(frame), message }
    }

    /// Sends the message, and the frame to whoever draws it.
    fn publish(&self, work: Work) {
        let camera = &self.cameras[work.camera];
        if !self.budget.spend() {
            return;
        }
        let _range = nvtx::range(c"publish");
        let mut message = work.message;
        message.timings_us.total = self.clock.monotonic_ns().saturating_sub(message.monotonic_ns) / 1_000;
        let message = Arc::new(message);
        (self.outlet)(&message);
        camera.metrics.count_published(&message);
        self.metrics.note_frame();
        if let (Some(annotator), Some(frame)) = (&camera.annotator, work.frame) {
            match camera.delivery {
                Delivery::NewestWins => annotator.offer(frame, message),
                Delivery::Lossless => annotator.offer_wait(frame, message),
            }
        }
    }

    fn fail(&self, work: &Work) {
        self.cameras[work.camera].metrics.count_dropped(DropCause::Failed, 1);
    }

    /// What was in hand has failed.
    fn discard(&self, hands: &mut Hands) {
        let aloft = hands.aloft.drain(..).flat_map(|run| run.works);
        let works = hands.works.drain(..).chain(aloft).map(|work| work.camera);
        hands.pacer.lost();
        for camera in works.chain(hands.taken.drain(..).map(|(camera, _)| camera)) {
            self.cameras[camera].metrics.count_dropped(DropCause::Failed, 1);
        }
    }

    fn complain(&self, complaints: &mut RateLimit, work: &Work, error: &NetworkError) {
        self.metrics.count_error();
        let Some(held_back) = complaints.pass(Instant::now()) else { return };
        let more = if held_back > 0 { format!(" (and {held_back} more like it)") } else { String::new() };
        let (model, camera) = (&self.metrics.name, &self.cameras[work.camera].metrics.name);
        log::error!("model {model}: frame {} of camera {camera}: {error}{more}", work.message.sequence);
    }
}

/// Begins a run over all of `works`.
fn begin_run(network: &mut dyn Network, works: &VecDeque<Work>) -> Result<Flight, NetworkError> {
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
