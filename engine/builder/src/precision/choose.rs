//! Decides which nodes compute in half precision.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::error::PrecisionError;
use super::graph::{OnnxGraph, OnnxNode};
use super::rule::{LayerPrecision, Rule};
use super::tensor::{Half, floats};
use visiond_engine::builder_api::onnx::element;

/// Operators whose FP32 numbers may all become half precision, including their results.
const ABLE: &str = "Abs Acos Add ArgMax ArgMin Asin Atan AveragePool BatchNormalization Cast Ceil Celu Clip Concat Conv \
    ConvTranspose Cos CumSum DepthToSpace DequantizeLinear Div Dropout Einsum Elu Equal Erf Exp Expand \
    Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool \
    Greater GreaterOrEqual GridSample GroupNormalization HardSigmoid HardSwish Hardmax Identity \
    InstanceNormalization LRN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax \
    LpNormalization LpPool MatMul Max MaxPool Mean MeanVarianceNormalization Min Mish Mul Neg PRelu Pad \
    Pow QuantizeLinear Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean \
    ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Round ScatterElements ScatterND \
    Selu Sigmoid Sign Sin Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan \
    Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where";

/// Operators that stay in FP32 unless a rule says otherwise: they overflow, or their results are useless in half precision.
const BETTER_FULL: &str = "CumSum GridSample GroupNormalization InstanceNormalization LRN LayerNormalization LogSoftmax \
    LpNormalization LpPool GlobalLpPool MeanVarianceNormalization Pow ReduceL1 ReduceL2 ReduceLogSum \
    ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare Sqrt TopK";

/// A convolution with fewer weights is part of decoding, such as the one that weights the bins of a distance.
const FEW_WEIGHTS: usize = 64;

/// The smallest scale that FP16 represents with full precision.
const LEAST_SCALE: f32 = 6.103_515_6e-5;

/// Decides for each node of the graph whether it computes in half precision. Also returns how many nodes could, but stay in
/// FP32.
pub(super) fn choose(
    graph: &OnnxGraph<'_>,
    elements: &HashMap<String, i64>,
    rules: &[Rule],
    half_type: Half,
    directory: &Path,
) -> Result<(Vec<bool>, usize), PrecisionError> {
    let fixed = fixed_values(graph, elements);
    let in_tail = tail(graph);
    let fine_scales = fine_scales(graph, directory)?;
    let (mut half, mut kept) = (Vec::with_capacity(graph.nodes.len()), 0);
    for (node, in_tail) in graph.nodes.iter().zip(in_tail) {
        let able = is_candidate(node, elements)
            && !node.outputs.iter().all(|output| fixed.contains(output.as_str()))
            && !scale_of(node).is_some_and(|scale| fine_scales.contains(scale));
        let ruled = rules.iter().rev().find(|rule| rule.matches(node)).map(|rule| rule.precision);
        let wanted = match ruled {
            Some(LayerPrecision::Full) => false,
            Some(LayerPrecision::Half(_)) => true,
            // TensorRT for RTX 1.6 does not support transposed convolutions in BF16 and fails with a compiler error.
            None if node.op == "ConvTranspose" && half_type == Half::Bf16 => false,
            None => !in_tail && !lists(BETTER_FULL, &node.op),
        };
        kept += usize::from(able && !wanted);
        half.push(able && wanted);
    }
    Ok((half, kept))
}

/// Whether the node has FP32 numbers that may become half precision.
fn is_candidate(node: &OnnxNode<'_>, elements: &HashMap<String, i64>) -> bool {
    let element = |name: &String| elements.get(name).copied();
    let used = || node.inputs.iter().filter(|name| !name.is_empty());
    node.is_standard()
        && lists(ABLE, &node.op)
        && node.captures.is_empty()
        && used().all(|name| element(name).is_some())
        && used().chain(&node.outputs).any(|name| element(name) == Some(element::FLOAT))
}

/// Returns values that follow only from integers and constants: sizes, indices, or values that are the same in every run.
fn fixed_values<'g>(graph: &'g OnnxGraph<'_>, elements: &HashMap<String, i64>) -> HashSet<&'g str> {
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
fn tail(graph: &OnnxGraph<'_>) -> Vec<bool> {
    let sizes: HashMap<&str, usize> =
        graph.weights.iter().map(|weights| (weights.name.as_str(), weights.message.len())).collect();
    let is_heavy = |node: &OnnxNode<'_>| {
        let few = |name: &String| sizes.get(name.as_str()).is_some_and(|&bytes| bytes < FEW_WEIGHTS * 4 + 64);
        // These do most of a model's work and benefit from half precision.
        let works = matches!(&*node.op, "Conv" | "ConvTranspose" | "Gemm" | "MatMul" | "Einsum");
        node.is_standard() && works && !node.inputs.get(1).is_some_and(few)
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
fn fine_scales<'g>(graph: &'g OnnxGraph<'_>, directory: &Path) -> Result<HashSet<&'g str>, PrecisionError> {
    let scales: HashSet<&str> = graph.nodes.iter().filter_map(scale_of).collect();
    let mut fine = HashSet::new();
    for weights in graph.weights.iter().filter(|weights| scales.contains(weights.name.as_str())) {
        let numbers = floats(&weights.message, directory)?.unwrap_or_default();
        if numbers.iter().any(|scale| scale.abs() < LEAST_SCALE) {
            fine.insert(weights.name.as_str());
        }
    }
    Ok(fine)
}

/// Returns the scale of a quantised layer.
fn scale_of<'g>(node: &'g OnnxNode<'_>) -> Option<&'g str> {
    let quantises = matches!(node.op.as_str(), "QuantizeLinear" | "DequantizeLinear");
    node.inputs.get(1).filter(|_| quantises).map(String::as_str)
}

/// Whether `names`, which are separated by spaces, contain `operator`.
fn lists(names: &str, operator: &str) -> bool {
    names.split(' ').any(|name| name == operator)
}

/// Whether an input becomes half precision with the operator. The others are sizes and rates with their own type.
pub(super) fn input_follows(operator: &str, index: usize) -> bool {
    match operator {
        "Resize" | "Upsample" | "Dropout" => index == 0,
        _ => true,
    }
}
