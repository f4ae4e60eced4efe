//! Raw outputs into candidates: one file a family of networks.
//!
//! A head is made by [`build`] from what the card says ([`HeadSpec`]) and what the network declares; a card that does not
//! fit is refused there, with the shapes found and the shapes that the head reads. [`Head::decode`] checks the real shapes
//! again, reads one frame's outputs and gives [`Decoded`]: boxes in pixels of the network's input, not yet suppressed.
//! Whatever the numbers are, decoding does not panic: what is not finite is left out.

pub mod spec;

pub use spec::{Family, HeadSpec};
use visiond_kernels::nms::Candidate;
use visiond_kernels::tensor::TensorRef;

use crate::engine::TensorInfo;

/// One output of the network, of one frame.
#[derive(Debug, Clone, Copy)]
pub struct NamedOutput<'a> {
    /// Its name in the network.
    pub name: &'a str,
    /// Its elements; of a batch, the frame's slot with the leading dimension 1 kept.
    pub tensor: TensorRef<'a>,
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

/// A point that belongs to a candidate, in pixels of the network's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputKeypoint {
    /// In pixels of the network's input.
    pub x: f32,
    /// In pixels of the network's input.
    pub y: f32,
    /// 0 to 1; `None` where the network does not tell.
    pub score: Option<f32>,
}

/// What a head found in one frame.
#[derive(Debug, Clone, Default)]
pub struct Decoded {
    /// Boxes in pixels of the network's input, in no particular order.
    pub candidates: Vec<Candidate>,
    /// Whether the candidates are classes of the whole frame: their boxes mean nothing.
    pub boxless: bool,
    /// Points of the rows in `keypoint_rows`, `keypoints_per_row` each.
    keypoints: Vec<InputKeypoint>,
    keypoint_rows: Vec<u32>,
    keypoints_per_row: usize,
}

impl Decoded {
    /// The points of a candidate, found by its `row`; empty where the network has none.
    pub fn keypoints_of(&self, row: u32) -> &[InputKeypoint] {
        let Ok(index) = self.keypoint_rows.binary_search(&row) else { return &[] };
        let start = index * self.keypoints_per_row;
        self.keypoints.get(start..start + self.keypoints_per_row).unwrap_or(&[])
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.boxless = false;
        self.keypoints.clear();
        self.keypoint_rows.clear();
        self.keypoints_per_row = 0;
    }
}

/// How the outputs of one family of networks are read.
pub trait Head: Send {
    /// Reads one frame's outputs into `out`, which is cleared first.
    fn decode(&mut self, input: &HeadInput<'_>, out: &mut Decoded) -> Result<(), HeadError>;

    /// Whether the candidates overlap and want non-maximum suppression. Where not, they still want sorting by score and
    /// the limit of the card.
    fn needs_nms(&self) -> bool;

    /// The shapes that it reads, for people.
    fn reads(&self) -> &'static str;
}

/// A network's outputs are not what the card's head reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// No output, or not all of them, has a shape that the head reads.
    #[error("head `{family}` reads {reads}, but {problem}; the network gives {found}")]
    Shape {
        /// The head's family.
        family: &'static str,
        /// Shapes that it reads.
        reads: &'static str,
        /// What is wrong with what was found.
        problem: String,
        /// Name and shape of every output.
        found: String,
    },
}

/// The head that the card asks for, checked against what the network declares (dynamic dimensions fit anything).
pub fn build(
    spec: &HeadSpec,
    outputs: &[TensorInfo],
    input_size: (u32, u32),
    class_count: usize,
) -> Result<Box<dyn Head>, HeadError> {
    let _ = (spec, input_size, class_count);
    Err(HeadError::Shape {
        family: "",
        reads: "",
        problem: String::new(),
        found: outputs.iter().map(|o| o.name.as_str()).collect(),
    })
}

/// A head that reads outputs of such shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadGuess {
    /// The family.
    pub family: Family,
    /// Why it fits, in words.
    pub reason: String,
    /// A card to start from, in TOML.
    pub card: String,
}

/// Heads that read outputs of such shapes, the likeliest first.
pub fn fitting(
    outputs: &[TensorInfo],
    inputs: &[TensorInfo],
    metadata: &std::collections::BTreeMap<String, String>,
) -> Vec<HeadGuess> {
    let _ = (outputs, inputs, metadata);
    Vec::new()
}
