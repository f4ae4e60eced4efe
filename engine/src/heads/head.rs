//! The interface of heads.

use visiond_kernels::filter::{FilterSpec, Filtered};
use visiond_kernels::tensor::TensorRef;

use super::decoded::Decoded;
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

    /// Returns the shapes that it reads, for people.
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

/// One output of the model for one frame.
#[derive(Debug, Clone, Copy)]
pub struct NamedOutput<'a> {
    /// Its name in the model.
    pub name: &'a str,
    /// Its elements; for a batch, the frame's slot with a leading dimension of 1.
    pub tensor: TensorRef<'a>,
}

/// Why the card's head does not fit a model's outputs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The shape of an output does not fit, or an output is missing.
    #[error(
        "head `{family}` reads {reads}, but {problem}; the model has {found}: \
         correct [head] in its model card (`visiond inspect` shows which heads fit)"
    )]
    Shape {
        /// The head's family.
        family: &'static str,
        /// The shapes that it reads.
        reads: &'static str,
        /// What does not fit.
        problem: String,
        /// The name, type and shape of every output.
        found: String,
    },
}
