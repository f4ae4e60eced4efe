//! Frames in, detections out: preprocess, session, head, NMS and the way back to the frame.
//!
//! A caller loads a frame into each slot, runs, and asks each slot for its detections; the three steps are apart so that it
//! can time them and give a frame back as soon as it is loaded. Nothing is allocated once the busiest frame has been seen,
//! but for what the network's backend allocates.

mod error;
mod feed;

use std::sync::Arc;

use visiond_kernels::frame::FrameView;
use visiond_kernels::geometry::Mapping;
use visiond_kernels::nms::{Nms, NmsOptions};
use visiond_kernels::preprocess::{PreprocessSpec, Preprocessor};
use visiond_kernels::stream::Stream;
use visiond_kernels::tensor::{ShapeText, TensorRef};

use crate::card::Card;
use crate::engine::{Dim, Engine, Session, TensorInfo};
use crate::heads::{self, Decoded, Head, HeadInput, NamedOutput};

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
}

/// A network that detects, with its card's way to feed and to read it.
pub struct Detector {
    session: Session,
    preprocessor: Preprocessor,
    head: Box<dyn Head>,
    feed: feed::Feed,
    input_size: (u32, u32),
    options: NmsOptions,
    labels: Vec<Arc<str>>,
    /// Whether each class is looked for; `None` for all.
    wanted: Option<Vec<u32>>,
    /// The way back from each slot; `None` before its first frame.
    mappings: Vec<Option<Mapping>>,
    /// Frames of the last run; 0 before.
    frames: usize,
    decoded: Decoded,
    nms: Nms,
    /// Shape of each output's slot, of the slot being read.
    slot_shapes: Vec<Vec<usize>>,
}

impl Detector {
    /// A detector on a session of its own.
    pub fn new(engine: &Engine, card: &Card, limits: &Limits) -> Result<Self, DetectorError> {
        let overridden = |name: &str| engine.overrides(name);
        let feed = feed::plan(engine.inputs(), card, limits.max_batch, &overridden)?;
        let preprocessor = Preprocessor::new(feed.spec.clone())?;
        let input_size = (feed.spec.width, feed.spec.height);
        let mut session = engine.session_with_shapes(&feed.shapes)?;
        let outputs = of_one_frame(session.outputs(), feed.batch);
        let head = heads::build(&card.head, &outputs, input_size, card.classes.len())?;
        let extras = session.inputs().iter().map(|info| card.extra_inputs.get(&info.name)).collect::<Vec<_>>();
        for (index, extra) in extras.into_iter().enumerate().filter(|(index, _)| *index != feed.picture) {
            if let Some(extra) = extra {
                feed::fill(&mut session.input_mut(index), extra, input_size);
            }
        }
        let options = NmsOptions {
            iou_threshold: limits.iou_threshold.unwrap_or(card.iou_threshold),
            score_threshold: limits.score_threshold.unwrap_or(card.score_threshold),
            max_detections: limits.max_detections.unwrap_or(card.max_detections),
            class_agnostic: card.class_agnostic,
        };
        Ok(Self {
            preprocessor,
            head,
            input_size,
            options,
            labels: card.classes.iter().map(|name| Arc::from(name.as_str())).collect(),
            wanted: wanted_classes(&limits.classes, &card.classes)?,
            mappings: vec![None; feed.batch],
            frames: 0,
            decoded: Decoded::default(),
            nms: Nms::default(),
            slot_shapes: vec![Vec::new(); session.outputs().len()],
            session,
            feed,
        })
    }

    /// Frames of one run at most.
    pub fn batch(&self) -> usize {
        self.feed.batch
    }

    /// Width and height of the network's input.
    pub fn input_size(&self) -> (u32, u32) {
        self.input_size
    }

    /// How frames become the network's picture.
    pub fn preprocess_spec(&self) -> &PreprocessSpec {
        &self.feed.spec
    }

    /// The network's outputs, as declared.
    pub fn outputs(&self) -> &[TensorInfo] {
        self.session.outputs()
    }

    /// A raw output of the last run, with every frame that the network ran.
    pub fn raw_output(&self, index: usize) -> Result<TensorRef<'_>, DetectorError> {
        Ok(self.session.output(index)?)
    }

    /// Frames that the last run's tensors have: a network with a fixed batch runs it all.
    pub fn frames_run(&self) -> usize {
        if self.feed.has_batch_dim { self.session.input_shape(self.feed.picture)[0] } else { 1 }
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

    /// Makes the frame the picture of `slot`. The frame is not needed afterwards.
    pub fn load(&mut self, slot: usize, frame: &FrameView<'_>) -> Result<(), DetectorError> {
        self.check_slot(slot)?;
        self.set_frames(self.feed.batch);
        let tensor = self.session.input_mut(self.feed.picture);
        let tensor = if self.feed.has_batch_dim { tensor.slot(slot) } else { Some(tensor) };
        let mut tensor = tensor.ok_or_else(|| slot_error(slot, "the network's input has no such slot"))?;
        self.mappings[slot] = Some(self.preprocessor.run(frame, &mut tensor, Stream::Host)?);
        Ok(())
    }

    /// Runs the network over the first `frames` slots. A network with a fixed batch sees nothing (zeros) in the others.
    pub fn infer(&mut self, frames: usize) -> Result<(), DetectorError> {
        self.frames = 0;
        let Some(last) = frames.checked_sub(1) else { return Ok(()) };
        self.check_slot(last)?;
        if let Some(empty) = self.mappings[..frames].iter().position(Option::is_none) {
            return Err(slot_error(empty, "no frame was loaded into it"));
        }
        self.clear_slots_from(frames);
        self.set_frames(frames);
        self.session.run(Stream::Host)?;
        self.frames = frames;
        Ok(())
    }

    /// What the last run saw in `slot`, best first; `out` is cleared first.
    pub fn detections(&mut self, slot: usize, out: &mut Vec<Detection>) -> Result<(), DetectorError> {
        out.clear();
        let mapping = self.mappings.get(slot).copied().flatten().filter(|_| slot < self.frames);
        let mapping = mapping.ok_or_else(|| slot_error(slot, "the last run had no frame there"))?;
        self.decode(slot)?;
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

    /// Decodes one slot of the last run's outputs.
    fn decode(&mut self, slot: usize) -> Result<(), DetectorError> {
        let frames = self.frames_run();
        for (index, shape) in self.slot_shapes.iter_mut().enumerate() {
            shape.clear();
            shape.extend_from_slice(self.session.output(index)?.shape());
            if frames > 1 {
                if shape.first() != Some(&frames) {
                    let name = self.session.outputs()[index].name.clone();
                    return Err(DetectorError::NotByFrame { name, shape: ShapeText(shape).to_string(), frames });
                }
                shape[0] = 1;
            }
        }
        let mut outputs = Vec::with_capacity(self.slot_shapes.len());
        for (index, (shape, info)) in self.slot_shapes.iter().zip(self.session.outputs()).enumerate() {
            let whole = self.session.output(index)?;
            let each = whole.bytes().len() / frames;
            let bytes = &whole.bytes()[slot * each..(slot + 1) * each];
            let tensor = TensorRef::new(whole.dtype(), shape, bytes)
                .map_err(|_| slot_error(slot, "the backend's output is not of its shape"))?;
            outputs.push(NamedOutput { name: &info.name, tensor });
        }
        let (input_size, score_threshold) = (self.input_size, self.options.score_threshold);
        self.head.decode(&HeadInput { outputs: &outputs, input_size, score_threshold }, &mut self.decoded)?;
        Ok(())
    }

    fn check_slot(&self, slot: usize) -> Result<(), DetectorError> {
        if slot < self.feed.batch {
            return Ok(());
        }
        Err(slot_error(slot, &format!("the network takes {} frames a run, counted from 0", self.feed.batch)))
    }

    /// Lets the network see so many slots, where it leaves their number open. What they hold stays.
    fn set_frames(&mut self, frames: usize) {
        for &index in &self.feed.open_batch {
            self.session.set_batch(index, frames);
        }
    }

    /// Empties the slots that a fixed batch runs for nothing, so that they cannot hold a frame of long ago.
    fn clear_slots_from(&mut self, frames: usize) {
        if self.feed.open_batch.contains(&self.feed.picture) {
            return;
        }
        for slot in frames..self.feed.batch {
            if self.mappings[slot].take().is_some()
                && let Some(mut tensor) = self.session.input_mut(self.feed.picture).slot(slot)
            {
                tensor.bytes().fill(0);
            }
        }
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
