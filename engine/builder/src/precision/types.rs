//! Infers the element types of values.

use std::collections::HashMap;

use super::error::PrecisionError;
use super::graph::{OnnxGraph, OnnxNode, declared};
use super::tensor::header;
use visiond_engine::builder_api::onnx::{element, fields, number};

/// Returns the element type of each value for which it can be inferred.
pub(super) fn elements(graph: &OnnxGraph<'_>) -> Result<HashMap<String, i64>, PrecisionError> {
    let mut elements: HashMap<String, i64> = HashMap::new();
    for declared in graph.values.iter().chain(&graph.inputs).chain(&graph.outputs) {
        elements.insert(declared.name.clone(), declared.element);
    }
    elements.extend(graph.weights.iter().map(|weights| (weights.name.clone(), weights.element)));
    for node in &graph.nodes {
        for (index, output) in node.outputs.iter().enumerate() {
            if elements.get(output).is_none_or(|&known| known == 0) {
                let element = output_element(node, index, &elements)?;
                elements.insert(output.clone(), element);
            }
        }
    }
    elements.retain(|_, element| *element != 0);
    Ok(elements)
}

/// Returns the element type of an output; 0 if unknown.
fn output_element(node: &OnnxNode<'_>, index: usize, elements: &HashMap<String, i64>) -> Result<i64, PrecisionError> {
    let input = |index: usize| node.inputs.get(index).and_then(|name| elements.get(name)).copied().unwrap_or(0);
    let attribute = |name, otherwise| node.int(name).unwrap_or(otherwise);
    if node.subgraphs().next().is_some() {
        return of_subgraph(node, index);
    }
    if !node.is_standard() {
        return Ok(0);
    }
    Ok(match (node.op.as_str(), index) {
        ("Cast", _) => attribute("to", 0),
        ("CastLike" | "Where", _) => input(1),
        ("Constant", _) => constant(node)?,
        ("ConstantOfShape", _) => match node.tensor("value") {
            Some(tensor) => header(tensor)?.element,
            None => element::FLOAT,
        },
        ("Shape" | "Size" | "NonZero" | "ArgMax" | "ArgMin" | "NonMaxSuppression" | "StringNormalizer", _) => {
            element::INT64
        }
        ("TopK" | "MaxPool", 1) | ("Unique", 1..) => element::INT64,
        (
            "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "And" | "Or" | "Not" | "Xor" | "IsNaN"
            | "IsInf",
            _,
        )
        | ("Dropout", 1) => element::BOOL,
        ("QuantizeLinear", _) => match (input(2), attribute("output_dtype", 0)) {
            (0, 0) => element::UINT8,
            (0, asked) => asked,
            (zero_point, _) => zero_point,
        },
        ("DequantizeLinear", _) => match attribute("output_dtype", 0) {
            0 => input(1),
            asked => asked,
        },
        ("DynamicQuantizeLinear", 1) => element::FLOAT,
        ("DynamicQuantizeLinear", _) => element::UINT8,
        ("ConvInteger" | "MatMulInteger", _) => element::INT32,
        ("QLinearConv" | "QLinearMatMul", _) => input(7),
        ("OneHot", _) => input(2),
        ("EyeLike" | "RandomNormalLike" | "RandomUniformLike" | "Bernoulli", _) => attribute("dtype", input(0)),
        ("RandomNormal" | "RandomUniform" | "HannWindow" | "HammingWindow" | "BlackmanWindow", _) => {
            attribute("dtype", element::FLOAT)
        }
        ("Multinomial", _) => attribute("dtype", element::INT32),
        (
            "SequenceConstruct" | "SequenceEmpty" | "SequenceInsert" | "SequenceErase" | "SequenceAt"
            | "SplitToSequence" | "ConcatFromSequence" | "SequenceLength" | "Optional" | "OptionalGetElement"
            | "OptionalHasElement",
            _,
        ) => 0,
        _ => input(0),
    })
}

fn constant(node: &OnnxNode<'_>) -> Result<i64, PrecisionError> {
    if let Some(tensor) = node.tensor("value") {
        return Ok(header(tensor)?.element);
    }
    let has = |name| node.attribute(name).is_some();
    Ok(if has("value_float") || has("value_floats") {
        element::FLOAT
    } else if has("value_int") || has("value_ints") {
        element::INT64
    } else {
        0
    })
}

/// Returns the element type that the graph inside `If`, `Loop` or `Scan` declares for an output.
fn of_subgraph(node: &OnnxNode<'_>, index: usize) -> Result<i64, PrecisionError> {
    // The first output of a loop's body is its condition.
    let index = if node.op == "Loop" { index + 1 } else { index };
    for graph in node.subgraphs() {
        let mut outputs = fields(graph).map_while(Result::ok).filter(|field| field.number == number::GRAPH_OUTPUT);
        if let Some(output) = outputs.nth(index) {
            let element = declared(output.bytes())?.element;
            if element != 0 {
                return Ok(element);
            }
        }
    }
    Ok(0)
}
