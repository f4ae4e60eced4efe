//! Decides which nodes compute in half precision.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::error::PrecisionError;
use super::graph::{Graph, Node};
use super::half_type::Half;
use super::operators::{is_able, is_better_full, is_heavy};
use super::rule::{LayerPrecision, Rule};
use super::tensor::floats;
use visiond_engine::builder_api::onnx::element;

/// A convolution with fewer weights is part of decoding, such as the one that weighs the bins of a distance.
const FEW_WEIGHTS: usize = 64;

/// The smallest scale that FP16 represents with full precision.
const LEAST_SCALE: f32 = 6.103_515_6e-5;

/// The result of the choice.
pub(super) struct LayerChoice {
    /// For each node, whether it computes in half precision.
    pub(super) half: Vec<bool>,
    /// How many nodes could compute in half precision and stay in FP32.
    pub(super) kept: usize,
}

/// Decides for each node of the graph.
pub(super) fn choose(
    graph: &Graph<'_>,
    elements: &HashMap<String, i64>,
    rules: &[Rule],
    half_type: Half,
    directory: &Path,
) -> Result<LayerChoice, PrecisionError> {
    let fixed = fixed_values(graph, elements);
    let in_tail = tail(graph);
    let fine_scales = fine_scales(graph, directory)?;
    let (mut half, mut kept) = (Vec::with_capacity(graph.nodes.len()), 0);
    for (node, in_tail) in graph.nodes.iter().zip(in_tail) {
        let able = is_candidate(node, elements)
            && !node.outputs.iter().all(|output| fixed.contains(output.as_str()))
            && !has_fine_scale(node, &fine_scales);
        let ruled = rules.iter().rev().find(|rule| rule.matches(node)).map(|rule| rule.precision);
        let wanted = match ruled {
            Some(LayerPrecision::Full) => false,
            Some(LayerPrecision::Half(_)) => true,
            None => !in_tail && !is_better_full(&node.op, half_type),
        };
        kept += usize::from(able && !wanted);
        half.push(able && wanted);
    }
    Ok(LayerChoice { half, kept })
}

/// Whether the node has FP32 numbers that may become half precision.
fn is_candidate(node: &Node<'_>, elements: &HashMap<String, i64>) -> bool {
    let element = |name: &String| elements.get(name).copied();
    let used = || node.inputs.iter().filter(|name| !name.is_empty());
    node.is_standard()
        && is_able(&node.op)
        && node.captures.is_empty()
        && used().all(|name| element(name).is_some())
        && used().chain(&node.outputs).any(|name| element(name) == Some(element::FLOAT))
}

/// Returns values that follow only from integers and constants: sizes, indices, or the same in every run.
fn fixed_values<'g>(graph: &'g Graph<'_>, elements: &HashMap<String, i64>) -> HashSet<&'g str> {
    let mut fixed: HashSet<&str> = graph.weights.iter().map(|weights| weights.name.as_str()).collect();
    let is_float = |name: &str| {
        let element = elements.get(name).copied();
        element.is_none_or(|e| e == element::FLOAT || e == Half::F16.element() || e == Half::Bf16.element())
    };
    for node in &graph.nodes {
        let all = node.inputs.iter().all(|name| name.is_empty() || fixed.contains(name.as_str()) || !is_float(name));
        // Quantised numbers are integers but not sizes.
        if all && node.captures.is_empty() && node.subgraphs().next().is_none() && node.op != "DequantizeLinear" {
            fixed.extend(node.outputs.iter().map(String::as_str));
        }
    }
    fixed
}

/// For each node, whether no heavy node follows it: the last convolutions and matrix products, and everything after them. All
/// false if the model would have no other heavy nodes.
fn tail(graph: &Graph<'_>) -> Vec<bool> {
    let sizes: HashMap<&str, usize> =
        graph.weights.iter().map(|weights| (weights.name.as_str(), weights.message.len())).collect();
    let is_heavy = |node: &Node<'_>| {
        let few = |name: &String| sizes.get(name.as_str()).is_some_and(|&bytes| bytes < FEW_WEIGHTS * 4 + 64);
        node.is_standard() && is_heavy(&node.op) && !node.inputs.get(1).is_some_and(few)
    };
    let mut leads_on: HashSet<&str> = HashSet::new();
    let mut tail = vec![false; graph.nodes.len()];
    let mut others = 0;
    for (node, tail) in graph.nodes.iter().zip(&mut tail).rev() {
        *tail = !node.outputs.iter().any(|output| leads_on.contains(output.as_str()));
        let heavy = is_heavy(node);
        others += usize::from(heavy && !*tail);
        if heavy || !*tail {
            leads_on.extend(node.inputs.iter().chain(&node.captures).map(String::as_str));
        }
    }
    if others == 0 {
        tail.fill(false);
    }
    tail
}

/// Returns the scales of quantised layers that are too small for FP16.
fn fine_scales<'g>(graph: &'g Graph<'_>, directory: &Path) -> Result<HashSet<&'g str>, PrecisionError> {
    let quantises = |node: &&Node<'_>| matches!(node.op.as_str(), "QuantizeLinear" | "DequantizeLinear");
    let scales: HashSet<&str> =
        graph.nodes.iter().filter(quantises).filter_map(|node| node.inputs.get(1)).map(String::as_str).collect();
    let mut fine = HashSet::new();
    for weights in graph.weights.iter().filter(|weights| scales.contains(weights.name.as_str())) {
        let numbers = floats(&weights.message, directory)?.unwrap_or_default();
        if numbers.iter().any(|scale| scale.abs() < LEAST_SCALE) {
            fine.insert(weights.name.as_str());
        }
    }
    Ok(fine)
}

fn has_fine_scale(node: &Node<'_>, fine: &HashSet<&str>) -> bool {
    matches!(node.op.as_str(), "QuantizeLinear" | "DequantizeLinear")
        && node.inputs.get(1).is_some_and(|scale| fine.contains(scale.as_str()))
}
