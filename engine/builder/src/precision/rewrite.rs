//! Rewrites a model in half precision.

use std::collections::HashSet;
use std::path::Path;

use super::choose::choose;
use super::error::PrecisionError;
use super::graph::{Model, OnnxNode};
use super::rule::{LayerPrecision, Rule};
use super::tensor::Half;
use super::{insert_casts, types};

/// How to rewrite a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrecisionOptions {
    /// The type of layers that do not stay in FP32.
    pub half: Half,
    /// Rules for layers that differ; the last one that matches wins.
    pub rules: Vec<Rule>,
    /// Whether FP32 inputs and outputs also become half precision.
    pub half_io: bool,
}

/// A model in half precision, and what the conversion changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewritten {
    /// The bytes of the file.
    pub bytes: Vec<u8>,
    /// Layers that compute in half precision.
    pub half_layers: usize,
    /// Layers that could, but stay in FP32.
    pub full_layers: usize,
    /// Finite weights beyond the range, which were clamped.
    pub clamped: usize,
    /// A tensor with clamped weights.
    pub clamped_in: Option<String>,
    /// Weights that were too small and became zero.
    pub vanished: usize,
}

/// Whether a convolution of the model has quantised inputs. False for a model that cannot be read.
pub(crate) fn quantises_convolutions(bytes: &[u8]) -> bool {
    let Ok(model) = Model::read(bytes) else { return false };
    let nodes = &model.graph.nodes;
    let floats_again: HashSet<&String> =
        nodes.iter().filter(|node| node.op == "DequantizeLinear").flat_map(|node| &node.outputs).collect();
    let convolves = |node: &&OnnxNode<'_>| matches!(node.op.as_str(), "Conv" | "ConvTranspose");
    nodes.iter().filter(convolves).any(|node| node.inputs.iter().take(2).any(|input| floats_again.contains(input)))
}

/// Converts the model `bytes` to half precision; `directory` contains its external weights.
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
        insert_casts::half_io(&mut model.graph, options.half)?;
    }
    let elements = types::elements(&model.graph)?;
    let (half, full_layers) = choose(&model.graph, &elements, &options.rules, options.half, directory)?;
    let losses = insert_casts::insert_casts(&mut model.graph, &elements, &half, options.half, directory)?;
    model.graph.sweep();
    Ok(Rewritten {
        bytes: model.write(),
        half_layers: half.iter().filter(|&&half| half).count(),
        full_layers,
        clamped: losses.clamped,
        clamped_in: losses.clamped_in,
        vanished: losses.vanished,
    })
}
