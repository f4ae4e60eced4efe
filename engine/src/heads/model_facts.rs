//! What a model's file says about it, before any card.

use std::collections::BTreeMap;

use crate::backend::TensorInfo;
use crate::onnx::OutputTail;

/// What a model says about itself, as far as a guess needs it.
#[derive(Debug, Clone, Copy)]
pub struct ModelFacts<'a> {
    /// Its inputs.
    pub inputs: &'a [TensorInfo],
    /// Its outputs.
    pub outputs: &'a [TensorInfo],
    /// The metadata that its exporter wrote.
    pub metadata: &'a BTreeMap<String, String>,
    /// The last operators before each output; empty if the graph is unknown.
    pub tails: &'a BTreeMap<String, OutputTail>,
}
