//! Frames in, detections out: preprocess, model, head, NMS and the mapping back to the frame.
//!
//! [`Detector::begin`] takes the frames of a run and returns as soon as they are no longer needed, [`Detector::finish`] waits
//! for the run, and [`Detector::detections`] reads one slot of it. Up to [`Detector::max_in_flight`] runs may be in flight.
//! After the busiest frame, nothing is allocated except by the model's backend.

mod cuda;
mod error;
mod host;
mod input_checks;
mod model_inputs;
mod run;
mod runner;
mod view_merger;

use std::collections::BTreeMap;
use std::sync::Arc;

use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_kernels::frame::FrameView;
use visiond_kernels::mask::{ClassRegion, Mask, MaskJob};
use visiond_kernels::nms::{Nms, NmsOptions, Overlap};
use visiond_kernels::placement::Mapping;
use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::TensorRef;
use visiond_kernels::view::View;

use self::cuda::CudaRunner;
use self::host::HostRunner;
use self::model_inputs::{ModelInputs, SettledSizes};
use self::runner::{Runner, RunnerAndHead};
use crate::backend::{Dim, TensorInfo, picture_size};
use crate::card::{Card, SettledKeypoints};
use crate::engine::Engine;
use crate::heads::{self, Decoded, Family, FrameValues, Head, HeadError, HeadInput, NamedOutput};

pub use error::DetectorError;
pub use run::{Detection, DetectorOptions, Keypoint, MaskForm, RunCounts, RunId, RunTimings};
pub use view_merger::ViewMerger;

/// A model that detects objects, with the card that says how to feed and read it.
///
/// # Examples
/// Finds the eight bars of a red frame, with the card beside the model:
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::path::Path;
///
/// use visiond_engine::card::Card;
/// use visiond_engine::detector::{Detector, DetectorOptions};
/// use visiond_engine::engine::{Engine, EngineOptions};
/// use visiond_kernels::color::ColorDescription;
/// use visiond_kernels::frame::{FrameView, PixelFormat, Plane};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vm/tiny.onnx");
/// let path = Path::new(path);
/// let engine = Engine::load(path, &EngineOptions::default())?;
/// let card = Card::for_model(path, None, engine.metadata(), engine.inputs(), engine.outputs())?;
/// let mut detector = Detector::new(&engine, &card, &DetectorOptions::default())?;
///
/// let pixels = [255, 0, 0].repeat(320 * 240);
/// let plane = Plane { bytes: &pixels, pitch_bytes: 3 * 320, device: None };
/// let frame = FrameView::new(PixelFormat::Rgb, 320, 240, &[plane], ColorDescription::default())?;
///
/// let run = detector.begin(&[frame])?;
/// // From here on, the frame's memory may be reused.
/// detector.finish(run)?;
/// let mut detections = Vec::new();
/// detector.detections(run, 0, &mut detections)?;
/// assert_eq!(detections.len(), 8);
/// assert_eq!(&*detector.label(detections[0].class_id), "red");
/// # Ok(())
/// # }
/// ```
pub struct Detector {
    runner: Box<dyn Runner>,
    head: Box<dyn Head>,
    batch: usize,
    input_size: (u32, u32),
    options: NmsOptions,
    labels: Vec<Arc<str>>,
    keypoint_names: Vec<Arc<str>>,
    skeleton: Vec<[u32; 2]>,
    oriented: bool,
    maps_classes: bool,
    /// The classes to keep; `None` keeps all.
    wanted: Option<Vec<u32>>,
    decoded: Decoded,
    nms: Nms,
    /// Whether detections get their masks.
    with_masks: bool,
    mask_jobs: Vec<MaskJob>,
    /// The regions whose masks are made; the memory is reused.
    regions: Vec<ClassRegion>,
    masks: Vec<Mask>,
    /// Whether the log has reported that masks did not fit.
    lost_masks: bool,
}

impl Detector {
    /// Creates a detector with its own context: on the GPU if the engine is there, otherwise in a session.
    pub fn new(engine: &Engine, card: &Card, options: &DetectorOptions) -> Result<Self, DetectorError> {
        let max_batch = engine.batch_limit().map_or(options.max_batch, |most| options.max_batch.min(most));
        if max_batch < options.max_batch {
            log::info!("{} takes at most {max_batch} frames per run", engine.file().path.display());
        }
        let inputs = plan(engine, card, max_batch)?;
        let (input_size, batch) = ((inputs.spec.width, inputs.spec.height), inputs.batch);
        let nms_options = NmsOptions {
            iou_threshold: options.iou_threshold.unwrap_or(card.iou_threshold),
            score_threshold: options.score_threshold.unwrap_or(card.score_threshold),
            max_detections: options.max_detections.unwrap_or(card.max_detections),
            class_agnostic: card.class_agnostic,
            overlap: Overlap::default(),
        };
        let (runner, head) = runner(engine, inputs, card, options, nms_options.score_threshold)?;
        let SettledKeypoints { names, skeleton } = settled_keypoints(card, head.as_ref())?;
        Ok(Self {
            runner,
            head,
            batch,
            input_size,
            options: nms_options,
            labels: card.classes.iter().map(|name| Arc::from(name.as_str())).collect(),
            keypoint_names: names.into_iter().map(Arc::from).collect(),
            skeleton,
            oriented: card.head.is_oriented(),
            maps_classes: card.head.family() == Family::Semantic,
            wanted: wanted_classes(&options.classes, &card.classes)?,
            decoded: Decoded::default(),
            nms: Nms::default(),
            with_masks: options.masks != MaskForm::None,
            mask_jobs: Vec::new(),
            regions: Vec::new(),
            masks: Vec::new(),
            lost_masks: false,
        })
    }

    /// Returns the shape of every input for runs of `max_batch` frames, to measure a model by itself.
    pub fn input_shapes(
        engine: &Engine,
        card: &Card,
        max_batch: usize,
    ) -> Result<BTreeMap<String, Vec<usize>>, DetectorError> {
        Ok(plan(engine, card, max_batch)?.shapes)
    }

    /// Returns the shapes of an ONNX model's inputs that the model leaves open: those in `asked`, otherwise as the card fills
    /// them, for runs of one frame or of the batch requested for the image.
    ///
    /// # Errors
    /// A contradiction between the card and the inputs, or an input that the card does not fill.
    pub fn open_shapes(
        card: &Card,
        inputs: &[TensorInfo],
        asked: &BTreeMap<String, Vec<usize>>,
    ) -> Result<BTreeMap<String, Vec<usize>>, DetectorError> {
        // Dimensions with the same name have the same size.
        let mut sizes = BTreeMap::new();
        for info in inputs {
            let shape = asked.get(&info.name).into_iter().flatten();
            for (dim, size) in info.shape.iter().flatten().zip(shape) {
                if let Dim::Dynamic(name) = dim
                    && !name.is_empty()
                {
                    sizes.insert(name.as_str(), *size);
                }
            }
        }
        let settle = |info: &TensorInfo| {
            let asked = asked.get(&info.name).map(|shape| shape.iter().copied().map(Dim::Fixed).collect());
            let mut shape = asked.or_else(|| info.shape.clone());
            for dim in shape.iter_mut().flatten() {
                if let Dim::Dynamic(name) = &*dim
                    && let Some(size) = sizes.get(name.as_str())
                {
                    *dim = Dim::Fixed(*size);
                }
            }
            TensorInfo { shape, ..info.clone() }
        };
        let settled: Vec<TensorInfo> = inputs.iter().map(settle).collect();
        let is_asked = |name: &str| asked.contains_key(name);
        let planned = model_inputs::plan(&settled, card, 1, SettledSizes { asked: &is_asked, is_engine: false })?;
        let is_open = |name: &String| {
            let dims = inputs.iter().filter(|info| info.name == *name).flat_map(|info| info.shape.iter().flatten());
            dims.into_iter().any(|dim| dim.fixed().is_none())
        };
        Ok(planned.shapes.into_iter().filter(|(name, _)| is_open(name)).collect())
    }

    /// Checks a card against the declared inputs and outputs of an ONNX model, without running it. Returns the names of the
    /// keypoints.
    ///
    /// # Errors
    /// The first contradiction, with its location in the card.
    pub fn check_card(
        card: &Card,
        inputs: &[TensorInfo],
        outputs: &[TensorInfo],
    ) -> Result<Vec<String>, DetectorError> {
        let planned = model_inputs::plan(inputs, card, 1, SettledSizes { asked: &|_| false, is_engine: false })?;
        let size = (planned.spec.width, planned.spec.height);
        let mut outputs = of_one_frame(outputs, planned.batch);
        if planned.replaces_size {
            outputs
                .iter_mut()
                .filter_map(|info| info.shape.as_mut())
                .flatten()
                .for_each(|dim| *dim = Dim::Dynamic(String::new()));
        }
        let head = build_head(card, inputs, &outputs, size)?;
        settled_keypoints(card, head.as_ref()).map(|settled| settled.names)
    }

    /// Checks a card against a loaded engine's inputs and outputs, without running it. Returns the names of the keypoints.
    ///
    /// # Errors
    /// The same as [`Self::check_card`].
    pub fn check_engine_card(card: &Card, engine: &Engine) -> Result<Vec<String>, DetectorError> {
        let planned = plan(engine, card, 1)?;
        let size = (planned.spec.width, planned.spec.height);
        let head = build_head(card, engine.inputs(), &of_one_frame(engine.outputs(), planned.batch), size)?;
        settled_keypoints(card, head.as_ref()).map(|settled| settled.names)
    }

    /// Returns a card with a different size to try after a run has failed, and the error of the first card if that one runs: then
    /// its size was the reason. `None` if the card has no size, or no other is likely.
    pub fn other_size(engine: &Engine, card: &Card) -> Option<(Card, DetectorError)> {
        let (size, error) =
            model_inputs::other_size(engine.inputs(), card, settled(engine, &|name| engine.overrides(name)))?;
        let mut other = card.clone();
        other.input.size = Some(size);
        Some((other, error))
    }

    /// Checks the numbers of the last run, whose first frame was an image, against the card: logits or probabilities, pixels or
    /// fractions. Outputs that stay on the GPU are not checked.
    ///
    /// # Errors
    /// The first contradiction, with its location in the card.
    pub fn check_numbers(&self, card: &Card, inputs: &[TensorInfo]) -> Result<(), DetectorError> {
        let frames = self.runner.frames_run();
        let mut tensors = Vec::with_capacity(self.outputs().len());
        for index in 0..self.outputs().len() {
            let Ok(whole) = self.runner.raw_output(index) else { return Ok(()) };
            let mut shape = whole.shape().to_vec();
            let mut bytes = whole.bytes();
            if frames > 1 && shape.first() == Some(&frames) {
                shape[0] = 1;
                bytes = &bytes[..bytes.len() / frames];
            }
            tensors.push((whole.dtype(), shape, bytes));
        }
        let mut outputs = Vec::with_capacity(tensors.len());
        let mut real = Vec::with_capacity(tensors.len());
        for ((dtype, shape, bytes), info) in tensors.iter().zip(self.outputs()) {
            let Ok(tensor) = TensorRef::new(*dtype, shape, bytes) else { return Ok(()) };
            outputs.push(NamedOutput { name: &info.name, tensor });
            let mut shape: Vec<Dim> = shape.iter().map(|&size| Dim::Fixed(size)).collect();
            // The rows of a table without a batch dimension may differ from run to run.
            if let ([rows, _], None | Some([Dim::Dynamic(_), ..])) = (&mut shape[..], info.shape.as_deref()) {
                *rows = Dim::Dynamic(String::new());
            }
            real.push(TensorInfo { shape: Some(shape), ..info.clone() });
        }
        // The declared shapes may have been open.
        let head = build_head(card, inputs, &real, self.input_size)?;
        let score_threshold = self.options.score_threshold;
        let input = HeadInput { outputs: &outputs, input_size: self.input_size, score_threshold, mapping: None };
        head.check_numbers(&input).map_err(|error| card_error(card, &error))
    }

    /// Returns how many runs may be in flight.
    pub fn max_in_flight(&self) -> usize {
        self.runner.max_in_flight()
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> RunCounts {
        self.runner.counts()
    }

    /// Returns the maximum number of frames in a run.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Returns width and height of the model's input.
    pub fn input_size(&self) -> (u32, u32) {
        self.input_size
    }

    /// Returns how frames are preprocessed.
    pub fn preprocess_spec(&self) -> &PreprocessSpec {
        self.runner.spec()
    }

    /// Returns the outputs as the model declares them.
    pub fn outputs(&self) -> &[TensorInfo] {
        self.runner.outputs()
    }

    /// Returns a raw output of the last run, with every frame that the model ran. Needs [`DetectorOptions::raw_outputs`].
    pub fn raw_output(&self, index: usize) -> Result<TensorRef<'_>, DetectorError> {
        self.runner.raw_output(index)
    }

    /// Returns the batch size of the last run; a model with a fixed batch always runs all of it.
    pub fn frames_run(&self) -> usize {
        self.runner.frames_run()
    }

    /// Returns the names of the classes from class 0 on; there may be fewer than the model has.
    pub fn labels(&self) -> &[Arc<str>] {
        &self.labels
    }

    /// Returns the score below which detections are dropped.
    pub fn score_threshold(&self) -> f32 {
        self.options.score_threshold
    }

    /// Whether detections have oriented boxes.
    pub fn is_oriented(&self) -> bool {
        self.oriented
    }

    /// Whether detections are the classes of the frame's pixels.
    pub fn maps_classes(&self) -> bool {
        self.maps_classes
    }

    /// Returns the name of a class, or its number as text.
    pub fn label(&self, class_id: u32) -> Arc<str> {
        class_label(&self.labels, class_id)
    }

    /// Returns the name of each keypoint in the model's order; empty if they have none.
    pub fn keypoint_names(&self) -> &[Arc<str>] {
        &self.keypoint_names
    }

    /// Whether detections have keypoints, as far as the model declares that.
    pub fn has_keypoints(&self) -> bool {
        self.head.keypoints().is_some_and(|count| count > 0)
    }

    /// Returns the pairs of keypoints that a line connects, counted from 0.
    pub fn skeleton(&self) -> &[[u32; 2]] {
        &self.skeleton
    }

    /// Begins a run with `frames[i]` in slot `i`. Returns when the frames are no longer needed.
    ///
    /// A model with a fixed batch gets zeros in the unused slots.
    ///
    /// # Errors
    /// After [`DetectorError::Frame`] nothing was begun, and the run can be begun again without that frame.
    pub fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, DetectorError> {
        if frames.is_empty() || frames.len() > self.batch {
            return Err(DetectorError::Frames { found: frames.len(), most: self.batch });
        }
        self.runner.begin(frames)
    }

    /// Waits for a run to finish. Runs finish in the order in which they were begun.
    pub fn finish(&mut self, run: RunId) -> Result<RunTimings, DetectorError> {
        self.runner.finish(run)
    }

    /// Returns the values of the whole frame that [`Self::detections`] read last.
    pub fn values(&self) -> &FrameValues {
        &self.decoded.values
    }

    /// Returns the detections of a finished run in `slot`, best first (classes of a map: largest first); clears `out` first.
    pub fn detections(&mut self, run: RunId, slot: usize, out: &mut Vec<Detection>) -> Result<(), DetectorError> {
        out.clear();
        let mapping = self.runner.mapping(run, slot);
        let mapping = mapping.ok_or_else(|| DetectorError::Slot(slot, "the last run had no frame there"))?;
        self.runner.decode(run, slot, self.head.as_mut(), self.options.score_threshold, &mut self.decoded)?;
        if self.decoded.has_class_map {
            self.class_detections(out);
        } else {
            self.object_detections((run, slot), &mapping, out)?;
        }
        self.map_to_frame(mapping.view(), out);
        Ok(())
    }

    /// Makes a detection for each object of a slot, best first.
    fn object_detections(
        &mut self,
        (run, slot): (RunId, usize),
        mapping: &Mapping,
        out: &mut Vec<Detection>,
    ) -> Result<(), DetectorError> {
        let Self { decoded, nms, options, wanted, mask_jobs, masks, .. } = self;
        mask_jobs.clear();
        if let Some(wanted) = wanted {
            decoded.candidates.retain(|candidate| wanted.contains(&candidate.class_id));
        }
        self.head.suppression().run(decoded, nms, options);
        for candidate in &decoded.candidates {
            let oriented = decoded.oriented(candidate).map(|turned| mapping.oriented_to_source(&turned).regularized());
            let box_in_source = match &oriented {
                Some(turned) => mapping.clip_to_source(turned.bounds()),
                None => mapping.box_to_source(candidate.box_in_input),
            };
            let [x1, y1, x2, y2] = box_in_source;
            // A box that lies only in the padding does not touch the frame.
            let has_area = x2 > x1 && y2 > y1;
            if !decoded.boxless && !has_area {
                continue;
            }
            let keypoint = |point: &heads::InputKeypoint| {
                let (x, y) = mapping.to_source(f64::from(point.x), f64::from(point.y));
                Keypoint { x: x as f32, y: y as f32, score: point.score }
            };
            mask_jobs.push(MaskJob { row: candidate.row, box_in_source });
            out.push(Detection {
                class_id: candidate.class_id,
                score: candidate.score,
                box_in_source: (!decoded.boxless).then_some(box_in_source),
                oriented,
                keypoints: decoded.keypoints_of(candidate.row).iter().map(keypoint).collect(),
                fraction: None,
                mask: None,
            });
        }
        let with_masks = self.with_masks && !decoded.boxless && !mask_jobs.is_empty();
        if with_masks && let Some(lost) = self.runner.masks(run, slot, decoded, mask_jobs, masks)? {
            self.give_masks(lost, out);
        }
        Ok(())
    }

    /// Maps results from the picture that the model saw to the camera's frame. Does nothing if that was the frame.
    fn map_to_frame(&mut self, view: &View, out: &mut [Detection]) {
        if view.is_whole() {
            return;
        }
        for detection in out {
            detection.box_in_source = detection.box_in_source.map(|corners| view.box_to_frame(corners));
            detection.oriented = detection.oriented.map(|turned| view.oriented_to_frame(&turned));
            for point in &mut detection.keypoints {
                let (x, y) = view.point_to_frame(f64::from(point.x), f64::from(point.y));
                (point.x, point.y) = (x as f32, y as f32);
            }
            detection.mask = detection.mask.take().map(|mask| mask.in_frame(view));
        }
        let depth = &mut self.decoded.values.depth;
        if !depth.is_empty() {
            let grid = (depth.columns, depth.rows);
            view.grid_to_frame(grid, &mut depth.median);
            (depth.columns, depth.rows) = view.grid_to_frame(grid, &mut depth.nearest);
        }
    }

    /// Makes a detection for each wanted class of the frame's class map, largest first.
    fn class_detections(&mut self, out: &mut Vec<Detection>) {
        let Self { decoded, wanted, options, regions, masks, .. } = self;
        if let Some(wanted) = wanted {
            decoded.class_areas.retain(|found| wanted.contains(&found.class_id));
        }
        decoded.class_areas.truncate(options.max_detections);
        out.extend(decoded.class_areas.iter().map(|found| Detection {
            class_id: found.class_id,
            score: found.region.score,
            box_in_source: Some(found.region.bounds.map(|edge| edge as f32)),
            fraction: Some(decoded.class_map.fraction(&found.region) as f32),
            ..Detection::default()
        }));
        if self.with_masks {
            regions.clear();
            regions.extend(decoded.class_areas.iter().map(|found| found.region));
            let lost = decoded.class_map.masks(regions, masks);
            self.give_masks(lost, out);
        }
    }

    /// Moves the masks to their detections; `lost` of them are empty because there was no room.
    fn give_masks(&mut self, lost: usize, out: &mut [Detection]) {
        if lost > 0 && !std::mem::replace(&mut self.lost_masks, true) {
            log::warn!(
                "{lost} masks of a frame did not fit into 64 MiB and are empty: raise score_threshold or lower \
                 max_detections (logged once)"
            );
        }
        for (detection, mask) in out.iter_mut().zip(self.masks.drain(..)) {
            detection.mask = Some(mask);
        }
    }
}

/// Decides how the inputs of a loaded model are filled.
fn plan(engine: &Engine, card: &Card, max_batch: usize) -> Result<ModelInputs, DetectorError> {
    model_inputs::plan(engine.inputs(), card, max_batch, settled(engine, &|name| engine.overrides(name)))
}

fn settled<'a>(engine: &Engine, asked: &'a dyn Fn(&str) -> bool) -> SettledSizes<'a> {
    SettledSizes { asked, is_engine: engine.tensorrt().is_some() }
}

/// Creates the runner and the head for a model, on the GPU if possible.
fn runner(
    engine: &Engine,
    inputs: ModelInputs,
    card: &Card,
    options: &DetectorOptions,
    score_threshold: f32,
) -> Result<RunnerAndHead<Box<dyn Runner>>, DetectorError> {
    let input_size = (inputs.spec.width, inputs.spec.height);
    let head = |outputs: &[TensorInfo]| build_head(card, engine.inputs(), outputs, input_size);
    let mut refused = None;
    if let Some(program) = engine.tensorrt().filter(|_| !options.raw_outputs) {
        match CudaRunner::new(engine, program, &inputs, card, head, score_threshold, options.priority) {
            Ok((runner, head)) => return Ok((Box::new(runner), head)),
            Err(error) if is_gpu_lost(&error) => return Err(error),
            Err(error) => refused = Some(error),
        }
    }
    let session = engine.session_with_shapes(&inputs.shapes)?;
    let head = head(&of_one_frame(session.outputs(), inputs.batch))?;
    let runner = HostRunner::new(session, inputs, card)?;
    if let Some(error) = refused {
        log::warn!("this model runs through host memory, which is slower: {error}");
    }
    Ok((Box::new(runner), head))
}

/// Creates the head of a card; the error has its location and the correction.
fn build_head(
    card: &Card,
    inputs: &[TensorInfo],
    outputs: &[TensorInfo],
    size: (u32, u32),
) -> Result<Box<dyn Head>, DetectorError> {
    let named = card.classes.len();
    let opened: Vec<TensorInfo>;
    let mut outputs = outputs;
    // InsightFace's files leave the input size open, but their number of rows matches the size of the export.
    if card.head.family() == Family::Faces && picture_size(inputs).is_none() {
        opened = outputs.iter().cloned().map(with_open_rows).collect();
        outputs = &opened;
    }
    let head = heads::build(&card.head, outputs, size, named).map_err(|error| {
        let error = heads::with_remedy(error, &card.head, named, inputs, outputs, size);
        card_error(card, &error)
    })?;
    settled_keypoints(card, head.as_ref())?;
    Ok(head)
}

/// Returns an output with only the last dimension known.
fn with_open_rows(mut output: TensorInfo) -> TensorInfo {
    let rows = output.shape.as_mut().and_then(|dims| dims.split_last_mut());
    rows.into_iter().flat_map(|(_, rows)| rows).for_each(|dim| *dim = Dim::Dynamic(String::new()));
    output
}

/// Returns the names of a head's keypoints and the lines between them; the error has its location in the card.
fn settled_keypoints(card: &Card, head: &dyn Head) -> Result<SettledKeypoints, DetectorError> {
    let settled = card.keypoints.settle(&card.head, &card.classes, head.keypoints());
    settled.map_err(|(key, problem)| DetectorError::at(card, key, problem))
}

fn card_error(card: &Card, error: &HeadError) -> DetectorError {
    DetectorError::at(card, error.key, error.to_string())
}

/// Returns the outputs for a batch of one frame, as heads read them.
fn of_one_frame(outputs: &[TensorInfo], batch: usize) -> Vec<TensorInfo> {
    let mut outputs = outputs.to_vec();
    for first in outputs.iter_mut().filter_map(|info| info.shape.as_mut()?.first_mut()) {
        if *first == Dim::Fixed(batch) {
            *first = Dim::Fixed(1);
        }
    }
    outputs
}

/// Returns the numbers of the wanted classes; `None` for all.
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
            _ => Err(DetectorError::UnknownClass(name.clone(), class_hint(name, names))),
        }
    };
    asked.iter().map(class).collect::<Result<_, _>>().map(Some)
}

/// Returns a hint with the nearest class names.
pub fn class_hint(name: &str, names: &[String]) -> String {
    if names.is_empty() {
        return ": its card names no classes; use their numbers".to_owned();
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

/// Returns the name of a class among the names of all classes; its number as text if it has no name.
pub fn class_label(labels: &[Arc<str>], class_id: u32) -> Arc<str> {
    let named = labels.get(class_id as usize).cloned();
    named.unwrap_or_else(|| class_id.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_asked_for_by_name_or_by_a_number_that_has_none() {
        let names = ["lamp", "candle", "7"].map(str::to_owned);
        let wanted = |asked: &[&str]| {
            let asked: Vec<_> = asked.iter().map(|&name| name.to_owned()).collect();
            wanted_classes(&asked, &names).map_err(|error| error.to_string())
        };
        assert_eq!(wanted(&[]), Ok(None));
        assert_eq!(wanted(&["candle", "lamp", "3", "40"]), Ok(Some(vec![1, 0, 3, 40])));
        assert_eq!(wanted(&["7"]), Ok(Some(vec![2])), "a name goes before a number");
        for (asked, hint) in [
            ("2", "no class `2`: it has `lamp`, `candle`, `7`"),
            ("cande", "no class `cande`: did you mean `candle`?"),
            ("LAMPS", "did you mean `lamp`?"),
            ("zebra", "it has `lamp`, `candle`, `7`"),
        ] {
            let error = wanted(&[asked]).err().unwrap_or_default();
            assert!(error.contains(hint), "{asked}: {error}");
        }
        assert_eq!(class_hint("x", &[]), ": its card names no classes; use their numbers");
        let many = ["lamp a", "lamp b", "lamp c", "lamp d"].map(str::to_owned);
        assert_eq!(class_hint("lamp", &many), ": did you mean `lamp a` or `lamp b` or `lamp c`?");
    }

    #[test]
    fn faces_of_an_open_picture_have_the_rows_of_the_cards_size_whatever_the_file_says() {
        let info = |name: String, shape: Vec<Dim>| TensorInfo {
            name,
            dtype: visiond_kernels::tensor::DType::F32,
            shape: Some(shape),
        };
        let fixed = |dims: &[usize]| dims.iter().copied().map(Dim::Fixed).collect::<Vec<_>>();
        let open = vec![Dim::Dynamic(String::new()); 2];
        let picture = |sides: Vec<Dim>| [info("input.1".to_owned(), [fixed(&[1, 3]), sides].concat())];
        let tables = [1, 4, 10].into_iter().flat_map(|width| [12_800, 3200, 800].map(|rows| [rows, width]));
        let outputs: Vec<_> =
            tables.enumerate().map(|(index, table)| info((448 + index).to_string(), fixed(&table))).collect();
        let card = |size| {
            let text = format!("[input]\nsize = {size}\n[head]\nfamily = \"faces\"\n");
            Card::from_toml(&text, std::path::Path::new("net.toml")).unwrap_or_else(|error| panic!("{error}"))
        };
        for size in [640, 320] {
            let names = Detector::check_card(&card(size), &picture(open.clone()), &outputs);
            assert_eq!(names.unwrap_or_else(|error| panic!("{error}")).len(), 5, "{size}");
        }
        let error = Detector::check_card(&card(320), &picture(fixed(&[640, 640])), &outputs).err();
        assert!(error.is_some(), "the size of the picture is fixed");
        // The widths still count.
        assert!(Detector::check_card(&card(320), &picture(open), &outputs[..8]).is_err());
    }

    #[test]
    fn a_heads_outputs_are_those_of_one_frame() {
        let output = |shape: Option<Vec<Dim>>| TensorInfo {
            name: "y".to_owned(),
            dtype: visiond_kernels::tensor::DType::F32,
            shape,
        };
        let (two, seven, open) = (Dim::Fixed(2), Dim::Fixed(7), Dim::Dynamic("n".to_owned()));
        let outputs = [
            output(Some(vec![two.clone(), seven.clone()])),
            output(Some(vec![seven.clone(), two.clone()])),
            output(Some(vec![open.clone(), two.clone()])),
            output(Some(vec![])),
            output(None),
        ];
        let mut wanted = outputs.to_vec();
        wanted[0] = output(Some(vec![Dim::Fixed(1), seven]));
        assert_eq!(of_one_frame(&outputs, 2), wanted);
    }
}
