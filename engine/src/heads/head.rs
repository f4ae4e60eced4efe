//! The interface of heads, the trait that each family's file implements, and the checks between the two.

use visiond_kernels::filter::{FilterSpec, Filtered, Record, ScoreCode};
use visiond_kernels::mask::MaskSpec;
use visiond_kernels::nms::{Nms, NmsOptions, Overlap};
use visiond_kernels::placement::{Fit, Mapping};

use super::decoded::Decoded;
use super::misfit::Misfit;
use super::outputs::{ModelOutputs, NamedOutput};
use super::rows::logit_floor;
use crate::backend::TensorInfo;

/// Reads the outputs of one family of models. It is a trait because [`checked`] creates it from any [`Decoder`], each with
/// its own layout.
pub trait Head: Send {
    /// Decodes one frame's outputs into `out`, which is cleared first.
    ///
    /// # Errors
    /// The outputs have different shapes, or a row that the model has chosen contradicts the card. Then `out` is empty.
    fn decode(&mut self, input: &HeadInput<'_>, out: &mut Decoded) -> Result<(), HeadError>;

    /// Checks the numbers of a run on a real image: whether they are consistent with the card.
    fn check_numbers(&self, input: &HeadInput<'_>) -> Result<(), HeadError>;

    /// Describes to the GPU's filter how to find the candidates that [`Head::decode`] finds.
    ///
    /// `None` if the filter cannot: a shape is unknown, the outputs are so small that they are copied instead (classifiers), or
    /// there are more grids than one launch takes.
    fn filter(&self, outputs: &[TensorInfo], input_size: (u32, u32), score_threshold: f32) -> Option<FilterSpec>;

    /// Does the same as [`Head::decode`] with the filter's results for one frame: the same candidates in the same order.
    fn decode_filtered(&mut self, found: &Filtered<'_>, out: &mut Decoded) -> Result<(), HeadError>;

    /// Returns where masks are in outputs of these shapes; `None` if the model has none, or a shape is unknown. [`Head::decode`]
    /// sets [`Decoded::masks`] for real outputs.
    fn masks(&self, outputs: &[TensorInfo], input_size: (u32, u32)) -> Option<MaskSpec>;

    /// Returns how to remove candidates of the same object.
    fn suppression(&self) -> Suppression;

    /// Returns the number of keypoints of each candidate; `None` if the model leaves it open until it runs.
    fn keypoints(&self) -> Option<usize>;

    /// Returns the shapes that it reads, as text.
    fn reads(&self) -> &'static str;
}

/// How to remove candidates of the same object in a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suppression {
    /// Remove none: each object has one candidate.
    None,
    /// NMS: the best candidate of an object stays.
    Best(Overlap),
    /// NMS of oriented boxes by probiou; a removed box also removes others.
    Oriented,
    /// NMS in which the best candidate gets the mean of the object's boxes and points, weighted by their scores.
    Blend,
}

impl Suppression {
    /// Keeps the best candidate of each object, best first, at most `max_detections`. The overlap is measured like in the
    /// family's own code, regardless of `options`.
    pub fn run(self, decoded: &mut Decoded, nms: &mut Nms, options: &NmsOptions) {
        let candidates = &mut decoded.candidates;
        match self {
            _ if decoded.boxless => nms.best(candidates, options.score_threshold, options.max_detections),
            Self::None => nms.best(candidates, options.score_threshold, options.max_detections),
            Self::Best(overlap) => nms.run(candidates, &NmsOptions { overlap, ..*options }),
            Self::Oriented => decoded.suppress_oriented(nms, options),
            Self::Blend => {
                nms.blend(candidates, &NmsOptions { overlap: Overlap::Points, ..*options }, &mut decoded.members);
                decoded.blend_keypoints();
            }
        }
    }
}

/// The input of a head.
#[derive(Debug, Clone, Copy)]
pub struct HeadInput<'a> {
    /// Every output of the model.
    pub outputs: &'a [NamedOutput<'a>],
    /// The width and height of the model's input in pixels.
    pub input_size: (u32, u32),
    /// The minimum score.
    pub score_threshold: f32,
    /// How the frame lies in the input; `None` if the input is the frame. Only maps of the whole frame depend on it.
    pub mapping: Option<Mapping>,
}

impl HeadInput<'_> {
    /// Returns how the frame lies in the input.
    pub(super) fn mapping(&self) -> Mapping {
        self.mapping.unwrap_or_else(|| Mapping::new(Fit::Stretch, self.input_size, self.input_size))
    }
}

/// Why the card's head does not fit a model's outputs: the shape of an output does not fit, an output is missing, or its numbers
/// are not what the head reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("head `{family}` reads {reads}, but {problem}: {remedy}")]
pub struct HeadError {
    family: &'static str,
    reads: &'static str,
    /// The problem, and the name, type and shape of every output.
    problem: String,
    /// The card's key that is wrong, such as `head.family`.
    pub(crate) key: &'static str,
    /// The remedy, as an imperative.
    remedy: String,
    /// The fault of one frame's row, in words that are the same for every such row.
    of_row: Option<&'static str>,
}

impl HeadError {
    /// Returns the fault of one frame's row, in words that are the same for every such row; `None` for an error of the whole
    /// model.
    pub fn of_row(&self) -> Option<&'static str> {
        self.of_row
    }

    /// Replaces the remedy and its key.
    pub(super) fn remedied(self, key: &'static str, remedy: String) -> Self {
        Self { key, remedy, ..self }
    }
}

/// The trait that each family's file implements; [`checked`] makes a [`Head`] of it.
pub(super) trait Decoder: Send {
    /// Which output has which role, and the sizes that decoding relies on.
    type Layout: Send;

    /// Returns the shapes that it reads, as text.
    fn reads(&self) -> &'static str;

    /// Finds the outputs, declared or real. For real outputs, this checks every dimension that `decode` relies on.
    ///
    /// The error becomes a part of [`HeadError`].
    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<Self::Layout, Misfit>;

    /// Decodes the outputs named by `layout`, which was made from them.
    fn decode(&mut self, layout: &Self::Layout, input: &HeadInput<'_>, out: &mut Decoded);

    /// Returns the first model-selected row of a frame that contradicts the card. It costs one comparison per row, because it
    /// runs on every frame.
    fn contradiction(&self, _layout: &Self::Layout, _input: &HeadInput<'_>) -> Option<Misfit> {
        None
    }

    /// Does the same with the GPU filter's results, the minimum score and the input's size; `outputs` are the declared ones.
    fn contradiction_of_records(
        &self,
        _layout: &Self::Layout,
        _outputs: ModelOutputs<'_>,
        _found: (&[Record], f32, (u32, u32)),
    ) -> Option<Misfit> {
        None
    }

    /// Describes `decode` to the GPU's filter; `None` if it is not worth it or a shape is unknown. Thresholds are set later.
    fn filter(&self, layout: &Self::Layout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec>;

    /// Returns where masks are; `None` if the model has none, or a shape is unknown.
    fn masks(&self, _layout: &Self::Layout, _outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Option<MaskSpec> {
        None
    }

    /// Returns why the numbers of a run on a real image contradict the card: logits where it expects probabilities, for example.
    ///
    /// It never fires on a model that is decoded correctly, whatever the image shows.
    fn doubt(&self, layout: &Self::Layout, input: &HeadInput<'_>) -> Option<Misfit>;

    /// Returns how to remove candidates of the same object from such outputs.
    fn suppression(&self, _layout: &Self::Layout) -> Suppression {
        Suppression::Best(Overlap::Points)
    }

    /// Returns the number of keypoints of each candidate; `None` if the declared outputs leave it open.
    fn keypoints(&self, _layout: &Self::Layout) -> Option<usize> {
        Some(0)
    }

    /// Whether boxes are clipped to the input before the suppression. (They are clipped to the frame in any case.)
    fn clips(&self) -> bool {
        false
    }
}

struct Checked<D: Decoder> {
    decoder: D,
    family: &'static str,
    input_size: (u32, u32),
    suppression: Suppression,
    keypoints: Option<usize>,
    /// The outputs that the model declares, for errors, and their layout.
    outputs: Vec<TensorInfo>,
    layout: D::Layout,
}

/// Creates a head from `decoder` and checks it against the model's declared outputs.
pub(super) fn checked<D: Decoder + 'static>(
    decoder: D,
    family: &'static str,
    outputs: &[TensorInfo],
    input_size: (u32, u32),
) -> Result<Box<dyn Head>, HeadError> {
    let declared = ModelOutputs::Declared(outputs);
    let layout = decoder.layout(declared, input_size).map_err(|misfit| error_of(&decoder, family, misfit, declared))?;
    let (suppression, keypoints) = (decoder.suppression(&layout), decoder.keypoints(&layout));
    Ok(Box::new(Checked { decoder, family, input_size, suppression, keypoints, outputs: outputs.to_vec(), layout }))
}

fn error_of<D: Decoder>(decoder: &D, family: &'static str, misfit: Misfit, outputs: ModelOutputs<'_>) -> HeadError {
    let remedy = || "correct [head] in its model card (`visiond inspect` shows which heads fit)".to_owned();
    HeadError {
        family,
        reads: decoder.reads(),
        problem: format!("{}; the model has {}", misfit.problem, outputs.describe()),
        key: misfit.key,
        remedy: misfit.remedy.unwrap_or_else(remedy),
        of_row: misfit.of_row,
    }
}

impl<D: Decoder> Checked<D> {
    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<D::Layout, HeadError> {
        self.decoder.layout(outputs, input_size).map_err(|misfit| self.error(misfit, outputs))
    }

    fn error(&self, misfit: Misfit, outputs: ModelOutputs<'_>) -> HeadError {
        error_of(&self.decoder, self.family, misfit, outputs)
    }
}

impl<D: Decoder> Head for Checked<D> {
    fn decode(&mut self, input: &HeadInput<'_>, out: &mut Decoded) -> Result<(), HeadError> {
        out.clear();
        let outputs = ModelOutputs::Real(input.outputs);
        let layout = self.layout(outputs, input.input_size)?;
        if let Some(misfit) = self.decoder.contradiction(&layout, input) {
            return Err(self.error(misfit, outputs));
        }
        self.decoder.decode(&layout, input, out);
        out.masks = self.decoder.masks(&layout, outputs, input.input_size);
        if self.decoder.clips() {
            out.clip(input.input_size);
        }
        Ok(())
    }

    fn check_numbers(&self, input: &HeadInput<'_>) -> Result<(), HeadError> {
        let outputs = ModelOutputs::Real(input.outputs);
        let layout = self.layout(outputs, input.input_size)?;
        let misfit = self.decoder.doubt(&layout, input).or_else(|| self.decoder.contradiction(&layout, input));
        misfit.map_or(Ok(()), |misfit| Err(self.error(misfit, outputs)))
    }

    fn filter(&self, outputs: &[TensorInfo], input_size: (u32, u32), score_threshold: f32) -> Option<FilterSpec> {
        let outputs = ModelOutputs::Declared(outputs);
        let layout = self.decoder.layout(outputs, input_size).ok()?;
        let spec = self.decoder.filter(&layout, outputs, input_size)?;
        let scores = match spec.scores {
            ScoreCode::Sigmoid { .. } => ScoreCode::Sigmoid { floor: logit_floor(score_threshold) },
            scores => scores,
        };
        Some(FilterSpec { input_size, score_threshold, scores, ..spec }).filter(|spec| spec.check().is_ok())
    }

    fn masks(&self, outputs: &[TensorInfo], input_size: (u32, u32)) -> Option<MaskSpec> {
        let outputs = ModelOutputs::Declared(outputs);
        let layout = self.decoder.layout(outputs, input_size).ok()?;
        self.decoder.masks(&layout, outputs, input_size)
    }

    fn decode_filtered(&mut self, found: &Filtered<'_>, out: &mut Decoded) -> Result<(), HeadError> {
        out.clear();
        let outputs = ModelOutputs::Declared(&self.outputs);
        let rows = (found.records, found.score_threshold, self.input_size);
        if let Some(misfit) = self.decoder.contradiction_of_records(&self.layout, outputs, rows) {
            return Err(self.error(misfit, outputs));
        }
        out.take(found);
        if self.decoder.clips() {
            out.clip(self.input_size);
        }
        Ok(())
    }

    fn suppression(&self) -> Suppression {
        self.suppression
    }

    fn keypoints(&self) -> Option<usize> {
        self.keypoints
    }

    fn reads(&self) -> &'static str {
        self.decoder.reads()
    }
}
