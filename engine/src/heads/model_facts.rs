//! The facts in a model's file, without any card.

use std::collections::BTreeMap;

use super::spec::HeadSpec;
use crate::backend::{Dim, TensorInfo};
use crate::onnx::OutputTail;

/// The statements of a model about itself that a guess needs.
#[derive(Debug, Clone, Copy)]
pub struct ModelFacts<'a> {
    /// Inputs in the file's order.
    pub inputs: &'a [TensorInfo],
    /// Outputs in the file's order.
    pub outputs: &'a [TensorInfo],
    /// The metadata that its exporter wrote.
    pub metadata: &'a BTreeMap<String, String>,
    /// The last operators before each output; empty if the graph is unknown.
    pub tails: &'a BTreeMap<String, OutputTail>,
}

/// Guesses the input that takes the image.
pub(super) fn picture(inputs: &[TensorInfo]) -> Option<&TensorInfo> {
    let rank = |info: &&TensorInfo| info.shape.as_ref().map_or(4, Vec::len);
    inputs.iter().find(|info| rank(info) == 4).or_else(|| inputs.iter().find(|info| rank(info) == 3))
}

/// Returns width and height of the image input if the model fixes them.
pub(super) fn picture_sides(inputs: &[TensorInfo]) -> [Option<u32>; 2] {
    let dims: Vec<Option<usize>> =
        picture(inputs).iter().flat_map(|p| p.shape.iter().flatten()).map(Dim::fixed).collect();
    let side = |dim: Option<usize>| dim.and_then(|dim| u32::try_from(dim).ok());
    match dims[..] {
        [.., Some(1 | 3), height, width] | [.., height, width, Some(1 | 3)] => [side(width), side(height)],
        _ => [None; 2],
    }
}

/// Returns the sides that the model fixes, and the head's usual ones for those that it leaves open.
pub(super) fn likely_size(spec: &HeadSpec, inputs: &[TensorInfo]) -> (u32, u32) {
    let ([width, height], usual) = (picture_sides(inputs), spec.usual_size());
    (width.unwrap_or(usual.0), height.unwrap_or(usual.1))
}
