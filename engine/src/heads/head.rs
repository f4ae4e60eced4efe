//! The interface of heads, the one that each family's file implements, and the checks between the two.

use visiond_kernels::filter::{FilterSpec, Filtered, ScoreCode};

use super::decoded::Decoded;
use super::outputs::{ModelOutputs, NamedOutput};
use super::rows::logit_floor;
use crate::backend::TensorInfo;

/// Reads the outputs of one family of models.
pub trait Head: Send {
    /// Decodes one frame's outputs into `out`, which is cleared first.
    fn decode(&mut self, input: &HeadInput<'_>, out: &mut Decoded) -> Result<(), HeadError>;

    /// Describes to the GPU's filter how to find the candidates that [`Head::decode`] finds.
    ///
    /// `None` if the filter cannot: a shape is unknown, the outputs are so small that they are copied instead (classifiers), or
    /// there are more grids than one launch takes.
    fn filter(&self, outputs: &[TensorInfo], input_size: (u32, u32), score_threshold: f32) -> Option<FilterSpec>;

    /// Does the same as [`Head::decode`] with what the filter found in one frame: the same candidates in the same order.
    fn decode_filtered(&mut self, found: &Filtered<'_>, out: &mut Decoded) {
        out.take(found);
    }

    /// Whether the candidates overlap and need non-maximum suppression. If not, they still need sorting by score and the card's
    /// limit.
    fn needs_nms(&self) -> bool;

    /// Returns the shapes that it reads, as text.
    fn reads(&self) -> &'static str;
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
}

/// Why the card's head does not fit a model's outputs: the shape of an output does not fit, or an output is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "head `{family}` reads {reads}, but {problem}; the model has {found}: \
     correct [head] in its model card (`visiond inspect` shows which heads fit)"
)]
pub struct HeadError {
    family: &'static str,
    reads: &'static str,
    problem: String,
    /// The name, type and shape of every output.
    found: String,
}

/// The trait that each family's file implements; [`checked`] makes a [`Head`] of it.
pub(super) trait Decoder: Send {
    /// Which output has which role, and the sizes that decoding relies on.
    type Layout;

    /// Returns the shapes that it reads, as text.
    fn reads(&self) -> &'static str;

    /// Finds the outputs, declared or real. For real outputs this checks every dimension that `decode` relies on.
    ///
    /// The error is text, because it becomes a part of [`HeadError`].
    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<Self::Layout, String>;

    /// Decodes the outputs that `layout`, which was made of them, names.
    fn decode(&mut self, layout: &Self::Layout, input: &HeadInput<'_>, out: &mut Decoded);

    /// Describes `decode` to the GPU's filter; `None` if it is not worth it or a shape is unknown. Thresholds are set later.
    fn filter(&self, layout: &Self::Layout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec>;

    /// Whether the candidates of such outputs overlap.
    fn needs_nms(&self, _layout: &Self::Layout) -> bool {
        true
    }
}

struct Checked<D> {
    decoder: D,
    family: &'static str,
    needs_nms: bool,
}

/// Makes a head of `decoder` and checks it against the outputs that the model declares.
pub(super) fn checked<D: Decoder + 'static>(
    decoder: D,
    family: &'static str,
    outputs: &[TensorInfo],
    input_size: (u32, u32),
) -> Result<Box<dyn Head>, HeadError> {
    let mut head = Checked { decoder, family, needs_nms: true };
    let layout = head.layout(ModelOutputs::Declared(outputs), input_size)?;
    head.needs_nms = head.decoder.needs_nms(&layout);
    Ok(Box::new(head))
}

impl<D: Decoder> Checked<D> {
    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<D::Layout, HeadError> {
        self.decoder.layout(outputs, input_size).map_err(|problem| HeadError {
            family: self.family,
            reads: self.decoder.reads(),
            problem,
            found: outputs.describe(),
        })
    }
}

impl<D: Decoder> Head for Checked<D> {
    fn decode(&mut self, input: &HeadInput<'_>, out: &mut Decoded) -> Result<(), HeadError> {
        out.clear();
        let layout = self.layout(ModelOutputs::Real(input.outputs), input.input_size)?;
        self.decoder.decode(&layout, input, out);
        Ok(())
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

    fn needs_nms(&self) -> bool {
        self.needs_nms
    }

    fn reads(&self) -> &'static str {
        self.decoder.reads()
    }
}
