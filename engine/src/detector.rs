//! Frames in, detections out: preprocess, network, head, NMS and the way back to the frame.
//!
//! [`Detector::begin`] takes the frames of a run and returns as soon as they are no longer needed, [`Detector::finish`] waits
//! for the run, [`Detector::detections`] reads a slot of it. So many runs as [`Detector::flights`] says may be under way at
//! once. Nothing is allocated once the busiest frame has been seen, but for what the network's backend allocates.

mod error;
mod feed;
mod host;

use std::sync::Arc;
use std::time::Duration;

use visiond_kernels::frame::FrameView;
use visiond_kernels::nms::{Nms, NmsOptions};
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::TensorRef;

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
    /// The network; on the GPU with its candidate filter.
    pub infer_us: u64,
}

/// A network that detects, with its card's way to feed and to read it.
pub struct Detector {
    way: HostWay,
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

impl Detector {
    /// A detector on a session of its own.
    pub fn new(engine: &Engine, card: &Card, limits: &Limits) -> Result<Self, DetectorError> {
        let overridden = |name: &str| engine.overrides(name);
        let feed = feed::plan(engine.inputs(), card, limits.max_batch, &overridden)?;
        let (input_size, batch) = ((feed.spec.width, feed.spec.height), feed.batch);
        let session = engine.session_with_shapes(&feed.shapes)?;
        let outputs = of_one_frame(session.outputs(), batch);
        let head = heads::build(&card.head, &outputs, input_size, card.classes.len())?;
        let options = NmsOptions {
            iou_threshold: limits.iou_threshold.unwrap_or(card.iou_threshold),
            score_threshold: limits.score_threshold.unwrap_or(card.score_threshold),
            max_detections: limits.max_detections.unwrap_or(card.max_detections),
            class_agnostic: card.class_agnostic,
        };
        Ok(Self {
            way: HostWay::new(session, feed, card)?,
            head,
            batch,
            input_size,
            options,
            labels: card.classes.iter().map(|name| Arc::from(name.as_str())).collect(),
            wanted: wanted_classes(&limits.classes, &card.classes)?,
            decoded: Decoded::default(),
            nms: Nms::default(),
        })
    }

    /// Runs that may be under way at once.
    pub fn flights(&self) -> usize {
        1
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
        if self.way.is_under_way() {
            return Err(DetectorError::Busy { flights: self.flights() });
        }
        self.way.begin(frames)?;
        Ok(Flight(0))
    }

    /// Waits for a run to end. Runs end in the order in which they were begun.
    pub fn finish(&mut self, _flight: Flight) -> Result<RunTimings, DetectorError> {
        self.way.finish()
    }

    /// What a finished run saw in `slot`, best first; `out` is cleared first.
    pub fn detections(&mut self, _flight: Flight, slot: usize, out: &mut Vec<Detection>) -> Result<(), DetectorError> {
        out.clear();
        let mapping = self.way.mapping(slot);
        let mapping = mapping.ok_or_else(|| slot_error(slot, "the last run had no frame there"))?;
        self.way.decode(slot, self.head.as_mut(), self.options.score_threshold, &mut self.decoded)?;
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

/// The classes looked for, by number; `None` for all.
fn wanted_classes(asked: &[String], names: &[String]) -> Result<Option<Vec<u32>>, DetectorError> {
    if asked.is_empty() {
        return Ok(None);
    }
    let class = |name: &String| {
        if let Some(index) = names.iter().position(|known| known == name) {
            return Ok(index as u32);
        }
        match name.parse::<u32>() {
            Ok(number) if number as usize >= names.len() => Ok(number),
            _ => Err(DetectorError::UnknownClass { name: name.clone(), hint: class_hint(name, names) }),
        }
    };
    asked.iter().map(class).collect::<Result<_, _>>().map(Some)
}

/// The names nearest to `name`, as a remedy.
fn class_hint(name: &str, names: &[String]) -> String {
    if names.is_empty() {
        return ": its card names no classes, give them by their numbers".to_owned();
    }
    let likeness = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let mut near: Vec<_> = names.iter().map(|known| (likeness(known), known)).filter(|(l, _)| *l > 0.75).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    match near[..] {
        [] => format!(": it has {}", names.iter().take(100).map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")),
        _ => {
            let near: Vec<_> = near.iter().take(3).map(|(_, known)| format!("`{known}`")).collect();
            format!(": did you mean {}?", near.join(" or "))
        }
    }
}
