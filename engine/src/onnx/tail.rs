//! Finds the last operators before each output of a graph: whether a score went through a sigmoid, whether a box is in
//! pixels.
//!
//! It walks from the output back to the layers with weights, through operators that move, cut or join numbers and through
//! arithmetic, and notes the operators. The result does not affect the daemon: it lets `inspect` write a better starting
//! card. The file may be hostile, so the walk visits each node once, and at most [`MAX_NODES`] per output; a tail that it
//! does not see completely is not [`known`](OutputTail::known).

mod parts;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use half::f16;

use super::schema::{element, number};
use super::wire::{Field, Value, fields, last, packed, text};
use crate::backend::{Dim, TensorInfo};
use crate::heads::spec::BoxFormat;

pub use parts::{Part, PartKind};

/// The most nodes to visit for one output; the tail of a YOLO with three grids has about a hundred.
const MAX_NODES: usize = 4_000;

/// The most nodes to visit for the parts of rows, for all outputs together.
const MAX_VISITS: usize = 1 << 18;

/// The most outputs to examine; no head reads more.
const MAX_OUTPUTS: usize = 64;

/// The longest row whose parts to determine.
const MAX_WIDTH: usize = 1 << 20;

/// The most elements of constants to read in total.
const MAX_ELEMENTS: usize = 1 << 22;

/// A factor or summand of boxes above this is in pixels; fractions of the input, variances and halves are smaller.
const PIXELS: f32 = 4.0;

/// The operators between the last layer with weights and an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputTail {
    /// Whether the file has a graph that computes this output; an engine has none.
    pub seen: bool,
    /// Whether every path ended at a layer with weights or an activation. If not, operators may have been missed.
    pub known: bool,
    /// Whether numbers went through a sigmoid.
    pub sigmoid: bool,
    /// Whether numbers went through a softmax.
    pub softmax: bool,
    /// Whether numbers went through exp(x), like the sizes of decoded boxes.
    pub exp: bool,
    /// Whether the last operator joins parts, ignoring those that only move numbers.
    pub joined: bool,
    /// Whether the last numbers were divided by their length or normalised, like an embedding's.
    pub embedded: bool,
    /// Whether a `Reshape` fixes every dimension, so that no other image size fits.
    pub fixed: bool,
    /// Whether the best rows were selected: `TopK`, `NonMaxSuppression`.
    pub chosen: bool,
    /// Whether there was a sum, product or quotient with a constant.
    pub arithmetic: bool,
    /// Whether there was a product of two computed values, such as with a size from another input.
    pub scaled: bool,
    /// The unit that the outermost large constant implies: `Some(true)` is pixels.
    pub pixels: Option<bool>,
    /// The four numbers of a box, if the parts of the last `Concat` show them.
    pub format: Option<BoxFormat>,
    /// Channel counts from `Split`, `Reshape` and convolutions.
    pub widths: BTreeSet<usize>,
    /// The parts of a row, by the length of a row, for each of the last two dimensions that is fixed.
    pub parts: BTreeMap<usize, Vec<Part>>,
}

impl OutputTail {
    /// Whether the numbers come straight from a layer with weights.
    pub fn is_raw(&self) -> bool {
        self.known && !self.sigmoid && !self.softmax && !self.exp && !self.arithmetic
    }
}

struct Node<'a> {
    operator: String,
    inputs: Vec<&'a [u8]>,
    outputs: Vec<&'a [u8]>,
    message: &'a [u8],
}

/// The main graph, by the names of its values.
struct Graph<'a> {
    nodes: Vec<Node<'a>>,
    /// The node that computes a value.
    makers: HashMap<&'a [u8], usize>,
    /// The constant tensors.
    constants: HashMap<&'a [u8], &'a [u8]>,
    /// The remaining budget of constant elements to read.
    elements_left: Cell<usize>,
    /// The remaining budget of nodes to visit for the parts of rows.
    visits_left: Cell<usize>,
}

/// Returns the tail of each of `outputs`, by its name; none for a file that cannot be read.
pub(super) fn tails(model: &[u8], outputs: &[TensorInfo]) -> BTreeMap<String, OutputTail> {
    let graph = fields(model).map_while(Result::ok).find(|field| field.number == number::MODEL_GRAPH);
    let Some(graph) = graph.map(|field| Graph::read(field.bytes())) else { return BTreeMap::new() };
    let tail = |output: &TensorInfo| {
        let mut tail = graph.tail(output.name.as_bytes());
        let widths = output.shape.iter().flat_map(|dims| dims.iter().rev().take(2)).filter_map(Dim::fixed);
        for width in widths.filter(|width| (2..=MAX_WIDTH).contains(width)) {
            let parts = graph.parts_of(output.name.as_bytes(), width);
            if !parts.is_empty() {
                tail.parts.insert(width, parts);
            }
        }
        (output.name.clone(), tail)
    };
    outputs.iter().take(MAX_OUTPUTS).map(tail).collect()
}

impl<'a> Graph<'a> {
    fn read(message: &'a [u8]) -> Self {
        let mut graph = Self {
            nodes: Vec::new(),
            makers: HashMap::new(),
            constants: HashMap::new(),
            elements_left: Cell::new(MAX_ELEMENTS),
            visits_left: Cell::new(MAX_VISITS),
        };
        for field in fields(message).map_while(Result::ok) {
            match field.number {
                number::GRAPH_NODE => graph.add(field.bytes()),
                number::GRAPH_INITIALIZER => {
                    if let Some(name) = bytes_of(field.bytes(), number::TENSOR_NAME) {
                        graph.constants.insert(name, field.bytes());
                    }
                }
                _ => {}
            }
        }
        graph
    }

    fn add(&mut self, message: &'a [u8]) {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let domain = text(message, number::NODE_DOMAIN).unwrap_or_default();
        let mut operator = text(message, number::NODE_OP_TYPE).unwrap_or_default();
        if !domain.is_empty() && domain != "ai.onnx" {
            operator = format!("{domain}.{operator}");
        }
        let index = self.nodes.len();
        for field in fields(message).map_while(Result::ok) {
            match field.number {
                number::NODE_INPUT => inputs.push(field.bytes()),
                number::NODE_OUTPUT => {
                    outputs.push(field.bytes());
                    self.makers.insert(field.bytes(), index);
                }
                number::NODE_ATTRIBUTE if operator == "Constant" => {
                    let tensor = bytes_of(field.bytes(), number::ATTRIBUTE_TENSOR);
                    if let (Some(tensor), Some(name)) = (tensor, bytes_of(message, number::NODE_OUTPUT)) {
                        self.constants.insert(name, tensor);
                    }
                }
                _ => {}
            }
        }
        self.nodes.push(Node { operator, inputs, outputs, message });
    }

    fn tail(&self, output: &[u8]) -> OutputTail {
        let seen = self.makers.contains_key(output);
        let joined = self.last_operator(output) == Some("Concat");
        OutputTail { seen, joined, format: self.format(output), ..self.walk(output, MAX_NODES).0 }
    }

    /// Notes all operators from a value back to the layers, and returns their number; visits at most `most`.
    fn walk(&self, output: &[u8], most: usize) -> (OutputTail, usize) {
        let mut tail = OutputTail { known: true, ..OutputTail::default() };
        let (mut waiting, mut seen) = (vec![output], HashSet::new());
        while let Some(value) = waiting.pop() {
            let Some(&index) = self.makers.get(value).filter(|_| !self.constants.contains_key(value)) else {
                // A constant, or an input of the graph.
                continue;
            };
            if !seen.insert(index) {
                continue;
            }
            if seen.len() > most {
                tail.known = false;
                break;
            }
            // Depth first, starting with the first input, so that the outermost constant comes before inner ones.
            waiting.extend(self.visit(&self.nodes[index], &mut tail).iter().rev());
        }
        (tail, seen.len())
    }

    /// Notes a node's operator and returns the inputs to follow.
    fn visit<'n>(&self, node: &'n Node<'a>, tail: &mut OutputTail) -> &'n [&'a [u8]] {
        let all = &node.inputs[..];
        let first = all.get(..1).unwrap_or(&[]);
        match node.operator.as_str() {
            "Reshape" => {
                let dims = all.get(1).map(|name| self.integers(name)).unwrap_or_default();
                tail.widths.extend(dims.iter().filter_map(|&dim| usize::try_from(dim).ok()).filter(|dim| *dim > 1));
                tail.fixed |= !dims.iter().any(|dim| *dim < 1);
                first
            }
            "Split" => {
                let sizes = all.get(1).map(|name| self.integers(name)).unwrap_or_default();
                let sizes = if sizes.is_empty() { attribute(node.message, "split") } else { sizes };
                tail.widths.extend(sizes.iter().filter_map(|&size| usize::try_from(size).ok()));
                first
            }
            "Transpose" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" | "Cast" | "CastLike" | "Slice"
            | "Gather" | "GatherElements" | "GatherND" | "Expand" | "Tile" | "Pad" | "Clip" | "Abs" | "Neg"
            | "Sqrt" | "Floor" | "Round" | "ArgMax" | "ReduceMax" | "ReduceMin" | "DequantizeLinear"
            | "QuantizeLinear" | "Dropout" | "Relu" | "MaxPool" => first,
            "ScatterND" | "ScatterElements" => {
                tail.arithmetic = true;
                all
            }
            "Concat" | "Max" | "Min" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "And" | "Or" | "Not" => all,
            "Where" => all.get(1..).unwrap_or(&[]),
            operator @ ("Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod") => {
                let constants = all.iter().filter_map(|name| self.largest(name));
                if let Some(largest) = constants.reduce(f32::max) {
                    // A linear layer is a product with weights, then a sum with a bias of more than a few numbers.
                    tail.arithmetic |= operator != "Add" || !self.is_bias(all);
                    if largest > PIXELS && operator != "Pow" && !(operator == "Add" && self.is_bias(all)) {
                        tail.pixels = tail.pixels.or(Some(operator != "Div"));
                    }
                } else {
                    tail.arithmetic = true;
                    tail.scaled |= matches!(operator, "Mul" | "Div");
                }
                all
            }
            "TopK" => {
                tail.chosen = true;
                first
            }
            "NonMaxSuppression" => {
                tail.chosen = true;
                &[]
            }
            "ReduceL2" | "LpNormalization" => {
                tail.embedded = true;
                &[]
            }
            "Sigmoid" | "HardSigmoid" => {
                tail.sigmoid = true;
                &[]
            }
            // The softmax of a log-softmax is the softmax itself, so a log-softmax counts as logits.
            "LogSoftmax" => &[],
            "Softmax" => {
                tail.softmax = true;
                &[]
            }
            "Exp" => {
                tail.exp = true;
                &[]
            }
            "Conv" | "ConvTranspose" => {
                let weights = all.get(1).and_then(|name| self.constants.get(name));
                tail.widths.extend(weights.and_then(|tensor| dims(tensor).first().copied()));
                &[]
            }
            "BatchNormalization" | "LayerNormalization" => {
                let of_features = first.iter().all(|name| matches!(self.last_operator(name), Some("Gemm" | "MatMul")));
                tail.embedded |= node.operator == "LayerNormalization" || of_features;
                &[]
            }
            "Gemm" | "MatMul" | "GlobalAveragePool" | "AveragePool" | "Tanh" | "Elu" | "LeakyRelu" | "PRelu"
            | "ReduceMean" | "ReduceSum" | "Resize" | "Shape" | "Constant" | "ConstantOfShape" | "Range" => &[],
            _ => {
                tail.known = false;
                &[]
            }
        }
    }

    /// Whether a sum adds a bias to a product with weights.
    fn is_bias(&self, inputs: &[&[u8]]) -> bool {
        let product = |name: &&[u8]| {
            let maker = self.makers.get(*name).map(|&index| self.nodes[index].operator.as_str());
            matches!(maker, Some("MatMul" | "Gemm" | "Conv"))
        };
        inputs.iter().any(product) && inputs.iter().any(|name| self.constants.contains_key(name))
    }

    /// Returns the four numbers of a box, from the parts of the outermost `Concat` that does not join rows.
    fn format(&self, output: &[u8]) -> Option<BoxFormat> {
        let mut value = output;
        for _ in 0..64 {
            let node = &self.nodes[*self.makers.get(value)?];
            if node.operator != "Concat" {
                value = match node.operator.as_str() {
                    "Reshape" | "Transpose" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" | "Cast" | "Clip"
                    | "Slice" | "Gather" | "GatherElements" | "GatherND" => node.inputs.first()?,
                    "Mul" | "Div" => node.inputs.iter().find(|name| !self.constants.contains_key(*name))?,
                    _ => return None,
                };
                continue;
            }
            let parts: Vec<&str> = node.inputs.iter().filter_map(|name| self.maker_of_part(name)).collect();
            let has = |operator: &str| parts.contains(&operator);
            match (has("Sub"), has("Add")) {
                (true, true) => return Some(BoxFormat::Xyxy),
                (true, false) => return Some(BoxFormat::Xywh),
                (false, true) if has("Mul") || has("Exp") => return Some(BoxFormat::Cxcywh),
                _ => value = node.inputs.first()?,
            }
        }
        None
    }

    /// Returns the operator that computes a part of a box.
    fn maker_of_part(&self, value: &[u8]) -> Option<&str> {
        let mut value = value;
        for _ in 0..16 {
            let node = &self.nodes[*self.makers.get(value)?];
            match node.operator.as_str() {
                "Reshape" | "Transpose" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" | "Cast" | "Clip" => {
                    value = node.inputs.first()?;
                }
                operator => return Some(operator),
            }
        }
        None
    }

    /// Returns the largest magnitude in a constant.
    fn largest(&self, name: &[u8]) -> Option<f32> {
        let numbers = numbers(self.constants.get(name)?, self.elements_left.get())?;
        self.elements_left.set(self.elements_left.get() - numbers.len());
        numbers.into_iter().map(f32::abs).filter(|number| number.is_finite()).reduce(f32::max)
    }

    /// Returns the integers of a constant; none if it is not one.
    fn integers(&self, name: &[u8]) -> Vec<i64> {
        let Some(tensor) = self.constants.get(name) else { return Vec::new() };
        if last_number(tensor, number::TENSOR_DATA_TYPE) != Some(element::INT64) {
            return Vec::new();
        }
        if let Some(raw) = bytes_of(tensor, number::TENSOR_RAW_DATA) {
            let (words, _) = raw.as_chunks::<8>();
            return words.iter().take(16).map(|bytes| i64::from_le_bytes(*bytes)).collect();
        }
        all_integers(tensor, number::TENSOR_INT64_DATA)
    }
}

fn bytes_of(message: &[u8], wanted: u64) -> Option<&[u8]> {
    last(message, wanted).ok()?.map(|field| field.bytes())
}

fn last_number(message: &[u8], wanted: u64) -> Option<i64> {
    last(message, wanted).ok()?.map(|field| field.number_value())
}

/// Returns the first integers of a repeated field, packed or not.
fn all_integers(message: &[u8], wanted: u64) -> Vec<i64> {
    let of_field = |field: Field<'_>| match field.value {
        Value::Number(number) => vec![number as i64],
        Value::Bytes(bytes) => packed(bytes).map_while(Result::ok).take(16).map(|number| number as i64).collect(),
        Value::Fixed(_) => Vec::new(),
    };
    let fields = fields(message).map_while(Result::ok).filter(|field| field.number == wanted);
    fields.flat_map(of_field).take(16).collect()
}

/// Returns the integers of a node's attribute, or its single integer.
fn attribute(node: &[u8], name: &str) -> Vec<i64> {
    let attributes = fields(node).map_while(Result::ok).filter(|field| field.number == number::NODE_ATTRIBUTE);
    let named = |field: &Field<'_>| bytes_of(field.bytes(), number::ATTRIBUTE_NAME) == Some(name.as_bytes());
    let integers = |field: Field<'_>| {
        let one = last_number(field.bytes(), number::ATTRIBUTE_INT);
        all_integers(field.bytes(), number::ATTRIBUTE_INTS).into_iter().chain(one)
    };
    attributes.filter(named).flat_map(integers).collect()
}

fn dims(tensor: &[u8]) -> Vec<usize> {
    all_integers(tensor, number::TENSOR_DIMS).iter().filter_map(|&dim| usize::try_from(dim).ok()).collect()
}

/// Returns the first `most` numbers of a tensor of f32 or f16 that the file holds.
fn numbers(tensor: &[u8], most: usize) -> Option<Vec<f32>> {
    if last_number(tensor, number::TENSOR_DATA_TYPE) == Some(element::FLOAT16) {
        let Some(raw) = bytes_of(tensor, number::TENSOR_RAW_DATA) else {
            let bits = all_integers(tensor, number::TENSOR_INT32_DATA).into_iter().take(most);
            return Some(bits.map(|bits| f16::from_bits(bits as u16).to_f32()).collect());
        };
        let (words, _) = raw.as_chunks::<2>();
        return Some(words.iter().take(most).map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect());
    }
    if last_number(tensor, number::TENSOR_DATA_TYPE) != Some(element::FLOAT) {
        return None;
    }
    if let Some(raw) = bytes_of(tensor, number::TENSOR_RAW_DATA) {
        let (words, _) = raw.as_chunks::<4>();
        return Some(words.iter().take(most).map(|bytes| f32::from_le_bytes(*bytes)).collect());
    }
    let floats = fields(tensor).map_while(Result::ok).filter(|field| field.number == number::TENSOR_FLOAT_DATA);
    let bytes = floats.flat_map(|field| match field.value {
        Value::Bytes(bytes) | Value::Fixed(bytes) => bytes.as_chunks::<4>().0,
        Value::Number(_) => &[],
    });
    Some(bytes.take(most).map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use visiond_kernels::tensor::DType;

    use super::super::wire::{write_bytes, write_number};
    use super::*;

    fn node(operator: &str, inputs: &[&str], output: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        inputs.iter().for_each(|input| write_bytes(&mut bytes, number::NODE_INPUT, input.as_bytes()));
        write_bytes(&mut bytes, number::NODE_OUTPUT, output.as_bytes());
        write_bytes(&mut bytes, number::NODE_OP_TYPE, operator.as_bytes());
        bytes
    }

    fn constant(name: &str, numbers: &[f32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_number(&mut bytes, number::TENSOR_DIMS, numbers.len() as u64);
        write_number(&mut bytes, number::TENSOR_DATA_TYPE, element::FLOAT as u64);
        write_bytes(&mut bytes, number::TENSOR_NAME, name.as_bytes());
        let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        write_bytes(&mut bytes, number::TENSOR_RAW_DATA, &raw);
        bytes
    }

    fn output(shape: &[usize]) -> TensorInfo {
        let shape = Some(shape.iter().map(|&dim| Dim::Fixed(dim)).collect());
        TensorInfo { name: "out".to_owned(), dtype: DType::F32, shape }
    }

    /// The tail of the value `out`.
    fn tail(nodes: &[Vec<u8>], constants: &[Vec<u8>]) -> OutputTail {
        let (mut graph, mut model) = (Vec::new(), Vec::new());
        nodes.iter().for_each(|node| write_bytes(&mut graph, number::GRAPH_NODE, node));
        constants.iter().for_each(|tensor| write_bytes(&mut graph, number::GRAPH_INITIALIZER, tensor));
        write_bytes(&mut model, number::MODEL_GRAPH, &graph);
        tails(&model, &[output(&[])]).remove("out").unwrap()
    }

    fn integers(name: &str, numbers: &[i64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_number(&mut bytes, number::TENSOR_DIMS, numbers.len() as u64);
        write_number(&mut bytes, number::TENSOR_DATA_TYPE, element::INT64 as u64);
        write_bytes(&mut bytes, number::TENSOR_NAME, name.as_bytes());
        let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        write_bytes(&mut bytes, number::TENSOR_RAW_DATA, &raw);
        bytes
    }

    /// A layer's weights: the shape without the numbers.
    fn weights(name: &str, shape: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        shape.iter().for_each(|&dim| write_number(&mut bytes, number::TENSOR_DIMS, dim));
        write_number(&mut bytes, number::TENSOR_DATA_TYPE, element::FLOAT as u64);
        write_bytes(&mut bytes, number::TENSOR_NAME, name.as_bytes());
        bytes
    }

    /// A node with an attribute of integers.
    fn node_with(operator: &str, inputs: &[&str], output: &str, (name, values): (&str, &[i64])) -> Vec<u8> {
        let (mut bytes, mut attribute) = (node(operator, inputs, output), Vec::new());
        write_bytes(&mut attribute, number::ATTRIBUTE_NAME, name.as_bytes());
        match values {
            &[value] => write_number(&mut attribute, number::ATTRIBUTE_INT, value as u64),
            values => values.iter().for_each(|&v| write_number(&mut attribute, number::ATTRIBUTE_INTS, v as u64)),
        }
        write_bytes(&mut bytes, number::NODE_ATTRIBUTE, &attribute);
        bytes
    }

    /// The parts of rows of `width` numbers of the value `out`.
    fn parts(nodes: &[Vec<u8>], constants: &[Vec<u8>], width: usize) -> Vec<(usize, PartKind)> {
        let (mut graph, mut model) = (Vec::new(), Vec::new());
        nodes.iter().for_each(|node| write_bytes(&mut graph, number::GRAPH_NODE, node));
        constants.iter().for_each(|tensor| write_bytes(&mut graph, number::GRAPH_INITIALIZER, tensor));
        write_bytes(&mut model, number::MODEL_GRAPH, &graph);
        let tail = tails(&model, &[output(&[1, 2100, width])]).remove("out").unwrap();
        let parts = tail.parts.get(&width).cloned().unwrap_or_default();
        parts.iter().map(|part| (part.width, part.kind)).collect()
    }

    /// One layer per grid, with their rows concatenated: `name0` and `name1` form `name`.
    fn grids(name: &str, width: u64) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let of = |part: &str, grid: u64| format!("{name}{part}{grid}");
        let mut nodes = Vec::new();
        for grid in [0, 1] {
            nodes.push(node("Conv", &["x", &of("w", grid)], &of("raw", grid)));
            nodes.push(node("Reshape", &[&of("raw", grid), &of("to", 0)], &of("flat", grid)));
        }
        nodes.push(node_with("Concat", &[&of("flat", 0), &of("flat", 1)], name, ("axis", &[2])));
        let to = integers(&of("to", 0), &[1, width as i64, -1]);
        let constants = vec![weights(&of("w", 0), &[width, 16, 1, 1]), weights(&of("w", 1), &[width, 16, 1, 1]), to];
        (nodes, constants)
    }

    #[test]
    fn the_parts_of_a_row_are_told_from_the_rows_of_several_grids() {
        for classes in [1, 2, 3, 4, 80] {
            let ((mut nodes, mut constants), (score_nodes, score_constants)) = (grids("l", 4), grids("s", classes));
            nodes.extend(score_nodes);
            constants.extend(score_constants);
            nodes.push(node("Sigmoid", &["s"], "scores"));
            let width = 4 + classes as usize;
            let with = |more: &[Vec<u8>]| parts(&[&nodes[..], more].concat(), &constants, width);
            let scores = (classes as usize, PartKind::Sigmoid);
            // NanoDet and similar models: scores, then the output of a layer.
            let raw =
                [node_with("Concat", &["scores", "l"], "both", ("axis", &[1])), node("Transpose", &["both"], "out")];
            assert_eq!(with(&raw), [scores, (4, PartKind::Raw)]);
            // YOLOv8: a box of two parts that are cut from one layer.
            constants.push(integers("i0", &[0]));
            constants.push(integers("i1", &[1]));
            constants.push(integers("i2", &[2]));
            constants.push(integers("i4", &[4]));
            constants.push(constant("stride", &[8.0]));
            let with = |more: &[Vec<u8>]| parts(&[&nodes[..], more].concat(), &constants, width);
            let decoded = [
                node("Slice", &["l", "i0", "i2", "i1"], "lt"),
                node("Slice", &["l", "i2", "i4", "i1"], "rb"),
                node("Sub", &["rb", "lt"], "wh"),
                node("Add", &["rb", "lt"], "c"),
                node_with("Concat", &["c", "wh"], "cells", ("axis", &[1])),
                node("Mul", &["cells", "stride"], "box"),
                node_with("Concat", &["box", "scores"], "out", ("axis", &[1])),
            ];
            assert_eq!(with(&decoded), [(4, PartKind::Computed), scores]);
        }
    }

    #[test]
    fn a_part_that_is_cut_from_a_row_keeps_its_operators() {
        let constants = [weights("w", &[7, 16, 1, 1]), integers("sizes", &[4, 3]), constant("side", &[640.0])];
        let mut split = node("Split", &["all", "sizes"], "first");
        write_bytes(&mut split, number::NODE_OUTPUT, b"second");
        let nodes = [
            node("Conv", &["x", "w"], "raw"),
            node("Sigmoid", &["raw"], "all"),
            split,
            node("Mul", &["first", "side"], "box"),
            node_with("Concat", &["box", "second"], "out", ("axis", &[1])),
        ];
        assert_eq!(parts(&nodes, &constants, 7), [(4, PartKind::Computed), (3, PartKind::Sigmoid)]);
        // One softmax or sigmoid over the whole row.
        let whole = [node("Conv", &["x", "w"], "raw"), node("Softmax", &["raw"], "out")];
        assert_eq!(parts(&whole, &constants, 7), [(7, PartKind::Softmax)]);
        let unknown = [node("Conv", &["x", "w"], "raw"), node("Mystery", &["raw"], "out")];
        assert_eq!(parts(&unknown, &constants, 7), [(7, PartKind::Unknown)]);
    }

    /// Nested joins, each of which is used twice.
    #[test]
    fn a_slice_of_a_row_has_the_parts_that_it_takes() {
        let constants = [
            weights("w3", &[3, 16, 1, 1]),
            weights("w4", &[4, 16, 1, 1]),
            integers("two", &[2]),
            integers("five", &[5]),
            integers("one", &[1]),
        ];
        let nodes = [
            node("Conv", &["x", "w3"], "a"),
            node("Sigmoid", &["a"], "scores"),
            node("Conv", &["x", "w4"], "sides"),
            node_with("Concat", &["scores", "sides"], "all", ("axis", &[1])),
            node("Slice", &["all", "two", "five", "one"], "out"),
        ];
        assert_eq!(parts(&nodes, &constants, 3), [(1, PartKind::Sigmoid), (2, PartKind::Raw)]);
    }

    #[test]
    fn the_weights_of_a_layer_and_the_shape_of_a_reshape_show_how_wide_a_part_is() {
        let shapes = [integers("to3", &[1, 3, -1]), integers("to4", &[1, 4, -1])];
        // The weights of a transposed convolution start with the input dimension.
        let layers = [weights("w3", &[16, 3, 2, 2]), weights("w4", &[16, 4, 2, 2])];
        let joined = [node("Sigmoid", &["a"], "scores"), node_with("Concat", &["scores", "b"], "out", ("axis", &[1]))];
        let upsampled = [node("ConvTranspose", &["x", "w3"], "a"), node("ConvTranspose", &["x", "w4"], "b")];
        let wanted = [(3, PartKind::Sigmoid), (4, PartKind::Raw)];
        assert_eq!(parts(&[&upsampled[..], &joined].concat(), &layers, 7), wanted);
        let foreign =
            [node("Foreign", &["x"], "f"), node("Reshape", &["f", "to3"], "a"), node("Reshape", &["f", "to4"], "b")];
        let wanted = [(3, PartKind::Sigmoid), (4, PartKind::Unknown)];
        assert_eq!(parts(&[&foreign[..], &joined].concat(), &shapes, 7), wanted);
    }

    #[test]
    fn numbers_that_are_divided_by_their_length_are_an_embedding() {
        let layer = || node("Gemm", &["x", "w"], "raw");
        let weights = [weights("w", &[512, 128])];
        assert!(tail(&[layer(), node("LpNormalization", &["raw"], "out")], &weights).embedded);
        let divided = [layer(), node("ReduceL2", &["raw"], "length"), node("Div", &["raw", "length"], "out")];
        assert!(tail(&divided, &weights).embedded);
        assert!(!tail(&[layer(), node("Identity", &["raw"], "out")], &weights).embedded);
    }

    #[test]
    fn a_hostile_row_ends() {
        let name = |index: usize| if index == 0 { "out".to_owned() } else { format!("v{index}") };
        for operator in ["Concat", "Mul", "Add", "Slice", "Split"] {
            let join = |i| node_with(operator, &[&name(i + 1), &name(i + 1)], &name(i), ("axis", &[1]));
            let nodes: Vec<_> = (0..5_000).map(join).collect();
            parts(&nodes, &[], 84);
            let looped = [join(0), node("Identity", &["out"], "v1")];
            parts(&looped, &[], 84);
        }
    }

    #[test]
    fn a_layer_and_its_bias_are_raw_and_an_activation_is_not() {
        let layer = [node("MatMul", &["x", "w"], "product"), node("Add", &["product", "b"], "sum")];
        let constants = [constant("w", &[9.0]), constant("b", &[100.0])];
        let with = |more: Vec<u8>| tail(&[&layer[..], &[more]].concat(), &constants);
        let raw = with(node("Reshape", &["sum"], "out"));
        assert!(raw.known && raw.is_raw() && raw.pixels.is_none(), "{raw:?}");
        let scores = with(node("Sigmoid", &["sum"], "out"));
        assert!(scores.known && scores.sigmoid && !scores.is_raw(), "{scores:?}");
        assert!(with(node("Softmax", &["sum"], "out")).softmax);
        assert!(!with(node("Mystery", &["sum"], "out")).known);
    }

    #[test]
    fn a_large_factor_makes_pixels_and_a_large_divisor_fractions() {
        let constants = [constant("w", &[1.0]), constant("side", &[640.0]), constant("half", &[0.5])];
        let layer = [node("Conv", &["x", "w"], "raw"), node("Sigmoid", &["raw"], "part")];
        let with = |more: &[Vec<u8>]| tail(&[&layer[..], more].concat(), &constants);
        assert_eq!(with(&[node("Mul", &["part", "side"], "out")]).pixels, Some(true));
        assert_eq!(with(&[node("Mul", &["part", "half"], "out")]).pixels, None);
        // The outermost decides.
        let divided = [node("Mul", &["part", "side"], "wide"), node("Div", &["wide", "side"], "out")];
        assert_eq!(with(&divided).pixels, Some(false));
        assert!(with(&[node("Mul", &["part", "other"], "out")]).scaled);
    }

    #[test]
    fn the_parts_of_a_box_show_its_format() {
        let sides = |parts: [&str; 2]| {
            let mut nodes = vec![node("Conv", &["x", "w"], "raw"), node("Exp", &["raw"], "size")];
            nodes.push(node("Add", &["raw", "half"], "centre"));
            nodes.push(node("Sub", &["centre", "size"], "near"));
            nodes.push(node("Add", &["centre", "size"], "far"));
            nodes.push(node("Concat", &parts, "boxes"));
            nodes.push(node("Reshape", &["boxes"], "out"));
            tail(&nodes, &[constant("w", &[1.0]), constant("half", &[0.5])]).format
        };
        assert_eq!(sides(["near", "far"]), Some(BoxFormat::Xyxy));
        assert_eq!(sides(["centre", "size"]), Some(BoxFormat::Cxcywh));
        assert_eq!(sides(["near", "size"]), Some(BoxFormat::Xywh));
        assert_eq!(sides(["raw", "raw"]), None);
    }

    /// A cyclic graph, a long chain, and a graph whose values all depend on each other: each node is visited once.
    #[test]
    fn a_hostile_graph_ends_and_is_not_known() {
        let looped = [node("Add", &["out", "b"], "a"), node("Mul", &["a", "a"], "b"), node("Add", &["a", "b"], "out")];
        tail(&looped, &[]);
        let name = |index: usize| if index == 0 { "out".to_owned() } else { format!("v{index}") };
        let count = 50_000;
        let chain: Vec<_> = (0..count).map(|i| node("Identity", &[&name(i + 1)], &name(i))).collect();
        assert!(!tail(&chain, &[]).known);
        // If nodes were visited more than once, this would take 2^3000 steps.
        let wide: Vec<_> = (0..3_000).map(|i| node("Add", &[&name(i + 1), &name(i + 1)], &name(i))).collect();
        assert!(tail(&wide, &[]).known);
        // A constant that every node reads: the number of elements read is limited.
        let large = constant("c", &vec![1.0; 1 << 20]);
        let reads: Vec<_> = (0..3_000).map(|i| node("Mul", &[&name(i + 1), "c"], &name(i))).collect();
        tail(&reads, &[large]);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut model = Vec::new();
            write_bytes(&mut model, number::MODEL_GRAPH, &bytes);
            tails(&model, &[output(&[7, 2100])]);
        }
    }
}
