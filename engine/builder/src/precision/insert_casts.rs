//! Inserts Casts where the type changes, and converts the weights that half-precision nodes use.
//!
//! A value keeps its name in FP32 and has another name in half precision. Each exists only if a node needs it.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::choose::input_follows;
use super::error::PrecisionError;
use super::graph::{OnnxGraph, OnnxNode, TypedValue};
use super::tensor::{self, Half, Losses, floats, header};
use visiond_engine::builder_api::onnx::element;

/// Declares FP32 inputs and outputs as half precision, and casts them right away.
pub(super) fn half_io(graph: &mut OnnxGraph<'_>, half: Half) -> Result<(), PrecisionError> {
    let is_full = |declared: &&mut TypedValue<'_>| declared.element == element::FLOAT;
    // Graphs inside nodes know values by their outer names.
    let captured: HashSet<&String> = graph.nodes.iter().flat_map(|node| &node.captures).collect();
    let (mut renamed, mut nodes, mut last) = (HashMap::new(), Vec::new(), Vec::new());
    for input in graph.inputs.iter_mut().filter(is_full) {
        if captured.contains(&input.name) {
            return Err(PrecisionError::HalfInput(input.name.clone()));
        }
        let full = format!("{} in fp32", input.name);
        nodes.push(OnnxNode::cast(&input.name, &full, element::FLOAT));
        renamed.insert(input.name.clone(), full);
        input.set_element(half.element())?;
    }
    for output in graph.outputs.iter_mut().filter(is_full) {
        let full = format!("{} in fp32", output.name);
        last.push(OnnxNode::cast(&full, &output.name, half.element()));
        renamed.insert(output.name.clone(), full);
        output.set_element(half.element())?;
    }
    for name in graph.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs)) {
        if let Some(full) = renamed.get(name) {
            name.clone_from(full);
        }
    }
    graph.values.retain(|value| !renamed.contains_key(&value.name));
    nodes.append(&mut graph.nodes);
    nodes.append(&mut last);
    graph.nodes = nodes;
    Ok(())
}

/// Where the numbers of a constant are.
enum Constant {
    /// In the weight with this index.
    Weight(usize),
    /// In the attribute of the node with this index among those already written.
    Node(usize),
}

/// The shape and numbers of a constant.
type Numbers = (Vec<u64>, Vec<f32>);

/// The graph while it is rewritten.
struct Inserter<'g, 'a> {
    graph: &'g mut OnnxGraph<'a>,
    half: Half,
    directory: &'g Path,
    written: Vec<OnnxNode<'a>>,
    /// Values that exist in FP32 (or in their own other type).
    full: HashSet<String>,
    /// The half-precision names of FP32 values.
    halves: HashMap<String, String>,
    constants: HashMap<String, Constant>,
    /// The input of each Cast to FP32.
    cast_from: HashMap<String, String>,
    taken: HashSet<String>,
    losses: Losses,
}

/// Rewrites the graph's nodes; those marked in `chosen` compute in half precision.
pub(super) fn insert_casts(
    graph: &mut OnnxGraph<'_>,
    elements: &HashMap<String, i64>,
    chosen: &[bool],
    half: Half,
    directory: &Path,
) -> Result<Losses, PrecisionError> {
    let nodes = std::mem::take(&mut graph.nodes);
    let weights = graph.weights.iter().enumerate();
    let constants = weights.map(|(index, weights)| (weights.name.clone(), Constant::Weight(index))).collect();
    let inputs = graph.inputs.iter().map(|input| input.name.clone());
    let full = inputs.chain(graph.weights.iter().map(|weights| weights.name.clone())).collect();
    let mut inserter = Inserter {
        half,
        directory,
        written: Vec::with_capacity(nodes.len() * 2),
        full,
        halves: HashMap::new(),
        constants,
        cast_from: HashMap::new(),
        taken: elements.keys().cloned().collect(),
        losses: Losses::default(),
        graph,
    };
    for (node, &in_half) in nodes.into_iter().zip(chosen) {
        if in_half { inserter.half_node(node, elements)? } else { inserter.full_node(node, elements) }
    }
    let outputs: Vec<String> = inserter.graph.outputs.iter().map(|output| output.name.clone()).collect();
    for output in outputs {
        inserter.need_full(&output);
    }
    inserter.graph.nodes = inserter.written;
    Ok(inserter.losses)
}

impl<'a> Inserter<'_, 'a> {
    /// Makes sure that a value exists under its own name.
    fn need_full(&mut self, name: &str) {
        if !self.full.contains(name)
            && let Some(half) = self.halves.get(name)
        {
            self.written.push(OnnxNode::cast(half, name, element::FLOAT));
            self.full.insert(name.to_owned());
        }
    }

    /// Returns the half-precision name of an FP32 value.
    fn need_half(&mut self, name: &str, elements: &HashMap<String, i64>) -> Result<String, PrecisionError> {
        if let Some(half) = self.halves.get(name) {
            return Ok(half.clone());
        }
        let mut source = name.to_owned();
        while let Some(from) = self.cast_from.get(&source).cloned() {
            if elements.get(&from) == Some(&self.half.element()) {
                self.halves.insert(name.to_owned(), from.clone());
                return Ok(from);
            }
            source = from;
        }
        let fresh = self.fresh(name);
        match self.numbers(&source)? {
            Some((dims, numbers)) => {
                let message = tensor::write(&fresh, &dims, &numbers, self.half, &mut self.losses);
                if self.losses.clamped > 0 {
                    self.losses.clamped_in.get_or_insert(source);
                }
                let (name, element) = (fresh.clone(), self.half.element());
                self.graph.weights.push(TypedValue { name, element, message: message.into() });
            }
            None => self.written.push(OnnxNode::cast(name, &fresh, self.half.element())),
        }
        self.halves.insert(name.to_owned(), fresh.clone());
        Ok(fresh)
    }

    /// Returns shape and numbers of a floating-point constant.
    fn numbers(&self, name: &str) -> Result<Option<Numbers>, PrecisionError> {
        let message = match self.constants.get(name) {
            Some(Constant::Weight(index)) => Some(&*self.graph.weights[*index].message),
            Some(Constant::Node(index)) => self.written[*index].tensor("value"),
            None => None,
        };
        let Some(message) = message else { return Ok(None) };
        Ok(floats(message, self.directory)?.zip(Some(header(message)?.dims)).map(|(numbers, dims)| (dims, numbers)))
    }

    fn fresh(&mut self, name: &str) -> String {
        let mut fresh = format!("{name} in {}", self.half.name());
        while !self.taken.insert(fresh.clone()) {
            fresh.push('\'');
        }
        fresh
    }

    /// Writes a node unchanged.
    fn full_node(&mut self, mut node: OnnxNode<'a>, elements: &HashMap<String, i64>) {
        let is_cast = node.is_standard() && node.op == "Cast";
        for input in &mut node.inputs {
            match self.halves.get(input) {
                // A Cast takes any type.
                Some(half) if is_cast && !self.full.contains(input) => *input = half.clone(),
                _ => self.need_full(input),
            }
        }
        for captured in &node.captures {
            self.need_full(captured);
        }
        self.full.extend(node.outputs.iter().cloned());
        if let (true, [input], [output]) = (node.is_standard(), &node.inputs[..], &node.outputs[..])
            && is_cast
            && elements.get(output) == Some(&element::FLOAT)
        {
            self.cast_from.insert(output.clone(), input.clone());
        }
        if node.is_standard()
            && node.op == "Constant"
            && let [output] = &node.outputs[..]
        {
            self.constants.insert(output.clone(), Constant::Node(self.written.len()));
        }
        self.written.push(node);
    }

    /// Writes a node that computes in half precision.
    fn half_node(&mut self, mut node: OnnxNode<'a>, elements: &HashMap<String, i64>) -> Result<(), PrecisionError> {
        let is_full = |name: &String| elements.get(name) == Some(&element::FLOAT);
        if node.op == "Cast" && node.outputs.iter().all(is_full) {
            return self.half_cast(node, elements);
        }
        let operator = node.op.clone();
        for (index, input) in node.inputs.iter_mut().enumerate() {
            if is_full(input) && input_follows(&operator, index) {
                *input = self.need_half(input, elements)?;
            } else {
                self.need_full(input);
            }
        }
        for output in &mut node.outputs {
            if is_full(output) {
                let half = self.fresh(output);
                self.halves.insert(output.clone(), half.clone());
                *output = half;
            } else {
                self.full.insert(output.clone());
            }
        }
        // The output type, for operators that can choose it.
        if node.op == "DequantizeLinear" && node.int("output_dtype") == Some(element::FLOAT) {
            node.set_int("output_dtype", self.half.element());
        }
        self.written.push(node);
        Ok(())
    }

    /// Converts a Cast to FP32 into one to half precision, or removes it if the value already exists.
    fn half_cast(&mut self, mut node: OnnxNode<'a>, elements: &HashMap<String, i64>) -> Result<(), PrecisionError> {
        let (Some(input), Some(output)) = (node.inputs.first().cloned(), node.outputs.first().cloned()) else {
            return Err(PrecisionError::Malformed);
        };
        let half = match elements.get(&input) {
            Some(&element::FLOAT) => self.need_half(&input, elements)?,
            Some(&element) if element == self.half.element() => input,
            _ => {
                let half = self.fresh(&output);
                node.outputs = vec![half.clone()];
                node.set_int("to", self.half.element());
                self.written.push(node);
                half
            }
        };
        self.halves.insert(output, half);
        Ok(())
    }
}
