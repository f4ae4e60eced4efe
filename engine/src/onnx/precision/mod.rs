//! A network in half precision: an `.onnx` file whose layers compute in FP16 or BF16.
//!
//! TensorRT 11 and TensorRT for RTX take every layer's type from the network and have no switch for it, so the network says
//! it: weights become half precision, Casts stand where the type changes, inputs and outputs stay FP32 unless asked for.
//! The older ones get the same network, so that one way is tested for all.
//!
//! What stays in FP32:
//! - operators that do not exist in half precision, and whole graphs inside `If`, `Loop` and `Scan`;
//! - sizes and indices: what is computed from integers and constants alone, `Resize`'s scales;
//! - what overflows or loses its use in half precision: powers, sums and means, norms, `TopK`, `GridSample`;
//! - the last convolutions or matrix products and the tail behind them, which decodes boxes: FP16 has steps of half a pixel
//!   above 512.
//!
//! Rules by layer or operator override all but the first two.

mod choose;
mod graph;
mod operators;
mod pattern;
mod tensor;
mod types;
mod weave;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::schema::element;
use super::wire::WireError;
use graph::Model;
pub use pattern::{LayerPrecision, Rule, RuleError};

/// A floating-point type of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// IEEE 754: 11 bits of precision, up to 65,504.
    F16,
    /// 8 bits of precision, the range of FP32.
    Bf16,
}

impl Half {
    /// The greatest finite number.
    const fn most(self) -> f32 {
        match self {
            Self::F16 => 65_504.0,
            Self::Bf16 => 3.389_531_4e38,
        }
    }

    /// The number of ONNX's element type.
    const fn element(self) -> i64 {
        match self {
            Self::F16 => element::FLOAT16,
            Self::Bf16 => element::BFLOAT16,
        }
    }

    /// As in options and names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }
}

/// How to rewrite a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrecisionOptions {
    /// The type of what is not kept in FP32.
    pub half: Half,
    /// Layers that differ; of several that mean one layer, the last holds.
    pub rules: Vec<Rule>,
    /// Whether inputs and outputs of FP32 become half precision too.
    pub half_io: bool,
}

/// A network in half precision, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewritten {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// Layers that compute in half precision.
    pub half_layers: usize,
    /// Layers that could, and stay in FP32.
    pub full_layers: usize,
    /// Finite weights beyond the range, which became its end; and a tensor that has some.
    pub clamped: usize,
    /// A tensor with clamped weights.
    pub clamped_in: Option<String>,
    /// Weights so small that they became zero.
    pub vanished: usize,
}

/// A network cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrecisionError {
    /// The file is broken.
    #[error("the model's fields make no sense: copy or export it again")]
    Malformed,
    /// Weights in another file cannot be read.
    #[error("the weights in {path} cannot be read ({error}): copy the file into the model's directory again")]
    External {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A rule means no layer.
    #[error("no layer is called `{layers}`: near are {near}")]
    NoSuchLayer {
        /// As in the rule.
        layers: String,
        /// Names that are like it.
        near: String,
    },
    /// An input cannot become half precision.
    #[error("the input `{name}` is used inside of a loop or branch and must stay FP32: build without half inputs")]
    HalfInput {
        /// The input.
        name: String,
    },
    /// A rule wants the other half precision.
    #[error("`{layers}` cannot be {asked} in a network of {whole}: one half precision serves the whole network")]
    OtherHalf {
        /// As in the rule.
        layers: String,
        /// Wanted by the rule.
        asked: &'static str,
        /// Of the network.
        whole: &'static str,
    },
}

impl From<WireError> for PrecisionError {
    fn from(_: WireError) -> Self {
        Self::Malformed
    }
}

/// Whether a convolution of the model gets its numbers from 8-bit integers. A model that cannot be read has none.
pub(crate) fn quantises_convolutions(bytes: &[u8]) -> bool {
    let Ok(model) = Model::read(bytes) else { return false };
    let nodes = &model.graph.nodes;
    let floats_again: HashSet<&String> =
        nodes.iter().filter(|node| node.op == "DequantizeLinear").flat_map(|node| &node.outputs).collect();
    let convolves = |node: &&graph::Node<'_>| matches!(node.op.as_str(), "Conv" | "ConvTranspose");
    nodes.iter().filter(convolves).any(|node| node.inputs.iter().take(2).any(|input| floats_again.contains(input)))
}

/// The model `bytes` in half precision; `directory` is where its files with weights lie.
pub fn rewrite(bytes: &[u8], directory: &Path, options: &PrecisionOptions) -> Result<Rewritten, PrecisionError> {
    let mut model = Model::read(bytes)?;
    for rule in &options.rules {
        match rule.precision {
            LayerPrecision::Half(Some(asked)) if asked != options.half => {
                let (asked, whole) = (asked.name(), options.half.name());
                return Err(PrecisionError::OtherHalf { layers: rule.layers.clone(), asked, whole });
            }
            _ if !model.graph.nodes.iter().any(|node| rule.matches(node)) => {
                return Err(rule.unknown(&model.graph.nodes));
            }
            _ => {}
        }
    }
    if options.half_io {
        weave::half_io(&mut model.graph, options.half)?;
    }
    let elements = model.graph.elements()?;
    let choice = choose::choose(&model.graph, &elements, &options.rules, options.half, directory)?;
    let woven = weave::weave(&mut model.graph, &elements, &choice.half, options.half, directory)?;
    model.graph.sweep();
    Ok(Rewritten {
        bytes: model.write(),
        half_layers: choice.half.iter().filter(|&&half| half).count(),
        full_layers: choice.kept,
        clamped: woven.losses.clamped,
        clamped_in: woven.clamped_in,
        vanished: woven.losses.vanished,
    })
}
