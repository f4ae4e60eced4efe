//! Frames in, detections out: preprocess, network, head, NMS and the way back to the frame.
//!
//! [`Detector::begin`] takes the frames of a run and returns as soon as they are no longer needed, [`Detector::finish`] waits
//! for the run, [`Detector::detections`] reads a slot of it. So many runs as [`Detector::flights`] says may be under way at
//! once. Nothing is allocated once the busiest frame has been seen, but for what the network's backend allocates.

mod classes;
mod cuda;
mod error;

mod feed;
mod host;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use visiond_kernels::frame::FrameView;
use visiond_kernels::geometry::Mapping;
use visiond_kernels::nms::{Nms, NmsOptions};
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::TensorRef;

use self::cuda::CudaWay;
use self::feed::Feed;
use self::host::HostWay;
use crate::card::Card;
use crate::engine::{Dim, Engine, TensorInfo};
use crate::heads::{self, Decoded, Head};

pub use error::DetectorError;

/// One thing seen, in pixels of the source frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    /// Class, counted from 0.
    pub class_id: u32,
    /// Confidence, 0 to 1.
    pub score: f32,
    /// x1, y1, x2, y2, inside the frame; `None` from a classifier.
    pub box_in_source: Option<[f32; 4]>,
    /// x, y and score of each point, in the source; empty where the network has none.
    pub keypoints: Vec<Keypoint>,
}

/// A point of a detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keypoint {
    /// In pixels of the source frame; may lie outside, where the network guesses what the frame cuts off.
    pub x: f32,
    /// In pixels of the source frame.
    pub y: f32,
    /// 0 to 1; `None` where the network does not tell.
    pub score: Option<f32>,
}

/// What a user wants other than the card says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// What scores less is left out; `None` for the card's.
    pub score_threshold: Option<f32>,
    /// Overlap above which the lesser box goes; `None` for the card's.
    pub iou_threshold: Option<f32>,
    /// At most so many detections a frame; `None` for the card's.
    pub max_detections: Option<usize>,
    /// Classes to look for, by name; all if empty. A class without a name goes by its number.
    pub classes: Vec<String>,
    /// Frames of one run, where the network leaves that open; 0 is 1.
    pub max_batch: usize,
    /// Whether [`Detector::raw_output`] is wanted: the network is then run by way of the host's memory.
    pub raw_outputs: bool,
}

/// A run that was begun: where [`Detector::finish`] and [`Detector::detections`] find it.
///
/// Its results can be read from its finish until a later run begins in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flight(usize);

impl Flight {
    /// The flight in place `index`.
    pub fn new(index: usize) -> Self {
        Self(index)
    }

    /// Its place, below [`Detector::flights`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// What a run took, in microseconds, all of its frames together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTimings {
    /// The host's time until the GPU had the run; 0 where there is no GPU in it.
    pub launch_us: u64,
    /// Frames to tensors.
    pub preprocess_us: u64,
    /// The network; on the GPU with its candidate filter, unless that went beside another run.
    pub infer_us: u64,
}

/// What a detector counted since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCounts {
    /// Runs that the GPU was given as one CUDA graph.
    pub graph_runs: u64,
    /// Runs that it was given call by call.
    pub single_runs: u64,
    /// Runs, of either kind, that were begun while another was under way.
    pub overlapped_runs: u64,
    /// Bytes of frames that were copied first, because the GPU does not see their memory.
    pub copied_bytes: u64,
    /// Candidates that the GPU's filter had no room for.
    pub lost_candidates: u64,
}

impl RunCounts {
    /// What was counted since `earlier`; `None` where that was of another detector.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            graph_runs: self.graph_runs.checked_sub(earlier.graph_runs)?,
            single_runs: self.single_runs.checked_sub(earlier.single_runs)?,
            overlapped_runs: self.overlapped_runs.checked_sub(earlier.overlapped_runs)?,
            copied_bytes: self.copied_bytes.checked_sub(earlier.copied_bytes)?,
            lost_candidates: self.lost_candidates.checked_sub(earlier.lost_candidates)?,
        })
    }
}

/// A network that detects, with its card's way to feed and to read it.
pub struct Detector {
    way: Box<dyn Way>,
    head: Box<dyn Head>,
    batch: usize,
    input_size: (u32, u32),
    options: NmsOptions,
    labels: Vec<Arc<str>>,
    /// Whether each class is looked for; `None` for all.
    wanted: Option<Vec<u32>>,
    decoded: Decoded,
    nms: Nms,
}

/// A way and the head that reads what comes of it.
type Made<W> = (W, Box<dyn Head>);

/// How frames go through the network and come back: by way of the host, or on the GPU.
trait Way: Send {
    /// How frames become pictures.
    fn spec(&self) -> &PreprocessSpec;

    /// The network's outputs, as declared.
    fn outputs(&self) -> &[TensorInfo];

    /// Runs that may be under way at once.
    fn flights(&self) -> usize;

    /// Begins a run of 1 to batch frames; returns when they are no longer needed.
    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<Flight, DetectorError>;

    /// Waits for the oldest run, which is `flight`.
    fn finish(&mut self, flight: Flight) -> Result<RunTimings, DetectorError>;

    /// The way back from a slot of a finished run.
    fn mapping(&self, flight: Flight, slot: usize) -> Option<Mapping>;

    /// Decodes one slot of a finished run, which has it.
    fn decode(
        &mut self,
        flight: Flight,
        slot: usize,
        head: &mut dyn Head,
        score_threshold: f32,
        decoded: &mut Decoded,
    ) -> Result<(), DetectorError>;

    /// An output of the last run, and how many frames it has.
    fn raw_output(&self, index: usize) -> Result<TensorRef<'_>, DetectorError>;

    /// Frames that the last run's tensors have: a network with a fixed batch runs it all.
    fn frames_run(&self) -> usize;

    /// What was counted so far.
    fn counts(&self) -> RunCounts;
}

impl Detector {
    /// A detector with a context of its own: on the GPU where the engine is, else on a session.
    pub fn new(engine: &Engine, card: &Card, limits: &Limits) -> Result<Self, DetectorError> {
        let overridden = |name: &str| engine.overrides(name);
        let max_batch = engine.most_frames().map_or(limits.max_batch, |most| limits.max_batch.min(most));
        if max_batch < limits.max_batch {
            log::info!("{} takes at most {max_batch} frames a run", engine.file().path.display());
        }
        let feed = feed::plan(engine.inputs(), card, max_batch, &overridden)?;
        let (input_size, batch) = ((feed.spec.width, feed.spec.height), feed.batch);
        let options = NmsOptions {
            iou_threshold: limits.iou_threshold.unwrap_or(card.iou_threshold),
            score_threshold: limits.score_threshold.unwrap_or(card.score_threshold),
            max_detections: limits.max_detections.unwrap_or(card.max_detections),
            class_agnostic: card.class_agnostic,
        };
        let (way, head) = way(engine, feed, card, limits, options.score_threshold)?;
        Ok(Self {
            way,
            head,
            batch,
            input_size,
            options,
            labels: card.classes.iter().map(|name| Arc::from(name.as_str())).collect(),
            wanted: classes::wanted(&limits.classes, &card.classes)?,
            decoded: Decoded::default(),
            nms: Nms::default(),
        })
    }

    /// The shape of every input for runs of `max_batch` frames, by name: for what measures a network by itself.
    pub fn input_shapes(
        engine: &Engine,
        card: &Card,
        max_batch: usize,
    ) -> Result<BTreeMap<String, Vec<usize>>, DetectorError> {
        Ok(feed::plan(engine.inputs(), card, max_batch, &|name: &str| engine.overrides(name))?.shapes)
    }

    /// Runs that may be under way at once.
    pub fn flights(&self) -> usize {
        self.way.flights()
    }

    /// What was counted so far.
    pub fn counts(&self) -> RunCounts {
        self.way.counts()
    }

    /// Frames of one run at most.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Width and height of the network's input.
    pub fn input_size(&self) -> (u32, u32) {
        self.input_size
    }

    /// How frames become the network's picture.
    pub fn preprocess_spec(&self) -> &PreprocessSpec {
        self.way.spec()
    }

    /// The network's outputs, as declared.
    pub fn outputs(&self) -> &[TensorInfo] {
        self.way.outputs()
    }

    /// A raw output of the last run, with every frame that the network ran. For detectors made with
    /// [`Limits::raw_outputs`].
    pub fn raw_output(&self, index: usize) -> Result<TensorRef<'_>, DetectorError> {
        self.way.raw_output(index)
    }

    /// Frames that the last run's tensors have: a network with a fixed batch runs it all.
    pub fn frames_run(&self) -> usize {
        self.way.frames_run()
    }

    /// Names of the classes, from class 0 on; may be fewer than the network has.
    pub fn labels(&self) -> &[Arc<str>] {
        &self.labels
    }

    /// The name of a class, or its number as text.
    pub fn label(&self, class_id: u32) -> Arc<str> {
        let named = self.labels.get(class_id as usize).cloned();
        named.unwrap_or_else(|| class_id.to_string().into())
    }

    /// Begins a run: `frames[i]` becomes the picture of slot `i`. Returns when the frames are no longer needed.
    ///
    /// A network with a fixed batch sees nothing (zeros) in the slots without a frame. On [`DetectorError::Frame`] nothing
    /// was begun, and the run can be begun without that frame.
    pub fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<Flight, DetectorError> {
        if frames.is_empty() || frames.len() > self.batch {
            return Err(DetectorError::Frames { found: frames.len(), most: self.batch });
        }
        self.way.begin(frames)
    }

    /// Waits for a run to end. Runs end in the order in which they were begun.
    pub fn finish(&mut self, flight: Flight) -> Result<RunTimings, DetectorError> {
        self.way.finish(flight)
    }

    /// What a finished run saw in `slot`, best first; `out` is cleared first.
    pub fn detections(&mut self, flight: Flight, slot: usize, out: &mut Vec<Detection>) -> Result<(), DetectorError> {
        out.clear();
        let mapping = self.way.mapping(flight, slot);
        let mapping = mapping.ok_or_else(|| slot_error(slot, "the last run had no frame there"))?;
        self.way.decode(flight, slot, self.head.as_mut(), self.options.score_threshold, &mut self.decoded)?;
        let Self { decoded, nms, options, wanted, .. } = self;
        if let Some(wanted) = wanted {
            decoded.candidates.retain(|candidate| wanted.contains(&candidate.class_id));
        }
        if self.head.needs_nms() && !decoded.boxless {
            nms.run(&mut decoded.candidates, options);
        } else {
            nms.best(&mut decoded.candidates, options.score_threshold, options.max_detections);
        }
        for candidate in &decoded.candidates {
            let box_in_source = mapping.box_to_source(candidate.box_in_input);
            let [x1, y1, x2, y2] = box_in_source;
            // What lies in the padding alone has no part in the frame.
            let has_area = x2 > x1 && y2 > y1;
            if !decoded.boxless && !has_area {
                continue;
            }
            let keypoint = |point: &heads::InputKeypoint| {
                let (x, y) = mapping.to_source(f64::from(point.x), f64::from(point.y));
                Keypoint { x: x as f32, y: y as f32, score: point.score }
            };
            out.push(Detection {
                class_id: candidate.class_id,
                score: candidate.score,
                box_in_source: (!decoded.boxless).then_some(box_in_source),
                keypoints: decoded.keypoints_of(candidate.row).iter().map(keypoint).collect(),
            });
        }
        Ok(())
    }
}

/// The way and the head for a network: on the GPU if that can be.
fn way(
    engine: &Engine,
    feed: Feed,
    card: &Card,
    limits: &Limits,
    score_threshold: f32,
) -> Result<Made<Box<dyn Way>>, DetectorError> {
    let input_size = (feed.spec.width, feed.spec.height);
    let head = |outputs: &[TensorInfo]| heads::build(&card.head, outputs, input_size, card.classes.len());
    let mut refused = None;
    if let Some(program) = engine.tensorrt().filter(|_| !limits.raw_outputs) {
        match CudaWay::new(engine, program, &feed, card, head, score_threshold) {
            Ok((way, head)) => return Ok((Box::new(way), head)),
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => refused = Some(error),
        }
    }
    let session = engine.session_with_shapes(&feed.shapes)?;
    let head = head(&of_one_frame(session.outputs(), feed.batch))?;
    let way = HostWay::new(session, feed, card)?;
    if let Some(error) = refused {
        log::warn!("frames and outputs of this network go by way of the host, which is slower: {error}");
    }
    Ok((Box::new(way), head))
}

/// What the outputs declare of one frame: heads read a batch of 1.
fn of_one_frame(outputs: &[TensorInfo], batch: usize) -> Vec<TensorInfo> {
    let mut outputs = outputs.to_vec();
    for first in outputs.iter_mut().filter_map(|info| info.shape.as_mut()?.first_mut()) {
        if *first == Dim::Fixed(batch) {
            *first = Dim::Fixed(1);
        }
    }
    outputs
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

fn slot_error(slot: usize, why: &str) -> DetectorError {
    DetectorError::Slot { slot, why: why.to_owned() }
}
