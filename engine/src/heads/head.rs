//! The interface of heads.

use visiond_kernels::filter::{FilterSpec, Filtered};
use visiond_kernels::tensor::TensorRef;

use super::decoded::Decoded;
use crate::backend::TensorInfo;

/// How the outputs of one family of networks are read.
pub trait Head: Send {
    /// Reads one frame's outputs into `out`, which is cleared first.
    fn decode(&mut self, input: &HeadInput<'_>, out: &mut Decoded) -> Result<(), HeadError>;

    /// What the GPU's filter is told to find the candidates that [`Head::decode`] finds in such outputs.
    ///
    /// `None` where the filter cannot: a shape is not known, the family's outputs are so few that they are copied instead
    /// (classifiers), or there are more grids than one launch takes.
    fn filter(&self, outputs: &[TensorInfo], input_size: (u32, u32), score_threshold: f32) -> Option<FilterSpec>;

    /// As [`Head::decode`], of what the filter found in one frame: the same candidates, in the same order.
    fn decode_filtered(&mut self, found: &Filtered<'_>, out: &mut Decoded) {
        out.take(found);
    }

    /// Whether the candidates overlap and want non-maximum suppression. Where not, they still want sorting by score and
    /// the limit of the card.
    fn needs_nms(&self) -> bool;

    /// The shapes that it reads, for people.
    fn reads(&self) -> &'static str;
}

/// What a head decodes.
#[derive(Debug, Clone, Copy)]
pub struct HeadInput<'a> {
    /// Every output of the network.
    pub outputs: &'a [NamedOutput<'a>],
    /// Width and height of the network's input in pixels.
    pub input_size: (u32, u32),
    /// What scores less is left out.
    pub score_threshold: f32,
}

/// One output of the network, of one frame.
#[derive(Debug, Clone, Copy)]
pub struct NamedOutput<'a> {
    /// Its name in the network.
    pub name: &'a str,
    /// Its elements; of a batch, the frame's slot with the leading dimension 1 kept.
    pub tensor: TensorRef<'a>,
}

/// A network's outputs are not what the card's head reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// No output, or not all of them, has a shape that the head reads.
    #[error(
        "head `{family}` reads {reads}, but {problem}; the network gives {found}: \
         correct [head] in its model card (`visiond inspect` tells which heads fit)"
    )]
    Shape {
        /// The head's family.
        family: &'static str,
        /// Shapes that it reads.
        reads: &'static str,
        /// What is wrong with what was found.
        problem: String,
        /// Name, type and shape of every output.
        found: String,
    },
}
