//! Frames, messages and models for tests of the pipeline.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use visiond_engine::heads::FrameValues;
use visiond_frames::clock::SystemClock;
pub use visiond_frames::testing::{frame, pool};
use visiond_kernels::frame::FrameView;
use visiond_message::{EventMessage, Message};
use visiond_telemetry::metrics::CameraMetrics;

use super::*;
use crate::mailbox::Delivery;
use crate::outlet::{MessageLimit, Outlet, PublishFn};

/// Where the messages of a test's cameras go, at most `messages`.
pub fn outlet(publish: PublishFn, messages: Option<u64>, clock: Arc<dyn Clock>, stop: &Stop) -> Arc<Outlet> {
    let (message_limit, events) = (MessageLimit::new(messages, stop), Arc::new(drop::<EventMessage>));
    Arc::new(Outlet { publish, events, message_limit, clock, track_ids: Arc::default(), event_ids: Arc::default() })
}

/// The collector of a camera whose messages go to `outlet`.
pub fn camera_to(outlet: &Arc<Outlet>, metrics: &Arc<CameraMetrics>) -> Arc<Collector> {
    camera_of(&CameraModel::default(), outlet, metrics)
}

/// The same for a model with settings.
pub fn camera_of(model: &CameraModel, outlet: &Arc<Outlet>, metrics: &Arc<CameraMetrics>) -> Arc<Collector> {
    let view = visiond_live::Live::new().view(&metrics.name);
    let new =
        Collector::new(Arc::clone(metrics), None, None, view, Delivery::Lossless, Arc::clone(outlet), Arc::default());
    Arc::new(new.for_model(model, true))
}

/// The collector of a camera whose messages go nowhere.
pub fn camera(metrics: &Arc<CameraMetrics>) -> Arc<Collector> {
    camera_to(&outlet(Arc::new(|_| ()), None, Arc::new(SystemClock), &Stop::new().unwrap()), metrics)
}

/// The facts of a fake model, whose classes are "class 0" and so on.
pub fn facts(name: &str) -> ModelFacts {
    let labels = (0..=255).map(|class| format!("class {class}").into()).collect();
    ModelFacts { message: visiond_message::testing::model(name), labels, ..ModelFacts::default() }
}

/// The result of a fake model for a frame, by the frame's first pixel.
#[derive(Clone, Copy)]
pub enum Act {
    /// Detects one object of the class that the pixel selects.
    See,
    /// Fails in the preprocess.
    FailLoad,
    /// Fails before the run.
    FailBegin,
    /// Fails in the run.
    FailRun,
    /// Fails in the head.
    FailHead,
    /// Makes the GPU unusable during the run.
    LoseGpu,
    /// Panics in the run.
    Panic,
}

/// A fake model that does with each frame what `act` returns.
pub struct Fake {
    batch: usize,
    act: fn(u8) -> Act,
    /// The pixels of each run's frames; `None`: not in progress.
    in_flight: Vec<Option<Vec<u8>>>,
    /// The finished runs.
    finished: Vec<Vec<u8>>,
    /// Runs in progress, in the order in which they began.
    order: Vec<usize>,
    /// The embedding of the frame that was read last, with its pixel.
    values: FrameValues,
    counts: RunCounts,
}

impl Fake {
    /// Up to `batch` frames a run, and `max_in_flight` runs at once.
    pub fn new(batch: usize, max_in_flight: usize, act: fn(u8) -> Act) -> Self {
        Self {
            batch,
            act,
            in_flight: vec![None; max_in_flight],
            finished: vec![Vec::new(); max_in_flight],
            order: Vec::new(),
            values: FrameValues::default(),
            counts: RunCounts::default(),
        }
    }

    /// The same on a GPU, which counts its runs from `counts` on.
    pub fn on_gpu(self, counts: RunCounts) -> Self {
        Self { counts, ..self }
    }
}

impl ModelRunner for Fake {
    fn batch(&self) -> usize {
        self.batch
    }

    fn max_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, RunError> {
        assert!((1..=self.batch).contains(&frames.len()), "a run has 1 to {} frames", self.batch);
        let pixels: Vec<u8> = frames.iter().map(|frame| frame.planes()[0].bytes[0]).collect();
        if let Some(slot) = pixels.iter().position(|&pixel| matches!((self.act)(pixel), Act::FailLoad)) {
            return Err(RunError::new(Fault::Frame(slot), "the frame is odd"));
        }
        if pixels.iter().any(|&pixel| matches!((self.act)(pixel), Act::FailBegin)) {
            return Err(RunError::new(Fault::Run, "the run could not begin"));
        }
        let free = self.in_flight.iter().position(Option::is_none).expect("a run is free");
        self.in_flight[free] = Some(pixels);
        self.order.push(free);
        Ok(RunId(free))
    }

    fn finish(&mut self, run_id: RunId) -> Result<RunTimings, RunError> {
        assert_eq!(self.order.remove(0), run_id.0, "runs end in their order");
        let pixels = self.in_flight[run_id.0].take().expect("the run is under way");
        for &pixel in &pixels {
            match (self.act)(pixel) {
                Act::FailRun => return Err(RunError::new(Fault::Run, "the run failed")),
                Act::LoseGpu => return Err(RunError::new(Fault::GpuLost, "an illegal address was encountered")),
                Act::Panic => panic!("made to panic"),
                _ => {}
            }
        }
        self.finished[run_id.0] = pixels;
        if self.counts != RunCounts::default() {
            self.counts.graph_runs += 1;
        }
        Ok(RunTimings { preprocess_us: 1, infer_us: 1, ..RunTimings::default() })
    }

    fn detections(&mut self, run_id: RunId, slot: usize, out: &mut Vec<Detection>) -> Result<(), RunError> {
        out.clear();
        let pixel = self.finished[run_id.0][slot];
        if let Act::FailHead = (self.act)(pixel) {
            return Err(RunError::new(Fault::Run, "the head failed"));
        }
        self.values.embedding = vec![f32::from(pixel)];
        let class_id = u32::from(pixel);
        out.push(Detection { class_id, score: 0.9, box_in_source: Some([0.0, 0.0, 1.0, 1.0]), ..Detection::default() });
        Ok(())
    }

    fn values(&self) -> &FrameValues {
        &self.values
    }

    fn counts(&self) -> RunCounts {
        self.counts
    }
}

/// A publish function whose messages a test receives.
pub fn message_channel() -> (PublishFn, Receiver<Arc<Message>>) {
    let (send, receive): (Sender<Arc<Message>>, _) = channel();
    let send = Mutex::new(send);
    (Arc::new(move |message: &Arc<Message>| drop(send.lock().unwrap().send(Arc::clone(message)))), receive)
}
