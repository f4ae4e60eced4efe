//! Takes a model apart as far as its element types require, and reassembles it.
//!
//! Everything else is copied unchanged: attributes, weights, shapes, subgraphs.

use std::borrow::Cow;
use std::collections::HashSet;

use super::error::PrecisionError;
use super::tensor::header;
use visiond_engine::builder_api::onnx::{Field, Value, WireError, fields, number, write_bytes, write_number};

/// Limits the nesting of graphs inside nodes: only a malicious file has more.
const MAX_DEPTH: usize = 32;

/// A model around its main graph.
pub(super) struct Model<'a> {
    /// Everything except the graph and the format's version, in order.
    rest: Vec<&'a [u8]>,
    ir_version: u64,
    pub(super) graph: OnnxGraph<'a>,
}

/// The main graph.
pub(super) struct OnnxGraph<'a> {
    pub(super) nodes: Vec<OnnxNode<'a>>,
    /// The weights: a `TensorProto` each.
    pub(super) weights: Vec<TypedValue<'a>>,
    /// Inputs that are not weights, outputs, and declared intermediate values: a `ValueInfoProto` each.
    pub(super) inputs: Vec<TypedValue<'a>>,
    pub(super) outputs: Vec<TypedValue<'a>>,
    pub(super) values: Vec<TypedValue<'a>>,
    rest: Vec<&'a [u8]>,
}

/// A weight or a declared value, with its message.
pub(super) struct TypedValue<'a> {
    pub(super) name: String,
    /// The element type; 0 if it is not a tensor or not declared.
    pub(super) element: i64,
    pub(super) message: Cow<'a, [u8]>,
}

/// An operation.
#[derive(Clone, Default)]
pub(super) struct OnnxNode<'a> {
    pub(super) name: String,
    pub(super) op: String,
    pub(super) domain: String,
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    /// An `AttributeProto` each.
    pub(super) attributes: Vec<Cow<'a, [u8]>>,
    /// Values of the graph that graphs inside the node use.
    pub(super) captures: Vec<String>,
    rest: Vec<&'a [u8]>,
}

impl<'a> OnnxNode<'a> {
    /// Makes a node that casts `input` to `output`.
    pub(super) fn cast(input: &str, output: &str, to: i64) -> Self {
        let mut node = Self {
            name: format!("cast {output}"),
            op: "Cast".to_owned(),
            inputs: vec![input.to_owned()],
            outputs: vec![output.to_owned()],
            ..Self::default()
        };
        node.set_int("to", to);
        node
    }

    /// Whether it is a standard operator.
    pub(super) fn is_standard(&self) -> bool {
        self.domain.is_empty() || self.domain == "ai.onnx"
    }

    /// Returns its name, or that of its first output if it has none.
    pub(super) fn label(&self) -> &str {
        if self.name.is_empty() { self.outputs.first().map_or("", String::as_str) } else { &self.name }
    }

    /// Returns an attribute's message.
    pub(super) fn attribute(&self, name: &str) -> Option<&[u8]> {
        self.attributes.iter().find(|attribute| is_called(attribute, name)).map(|attribute| &**attribute)
    }

    /// Returns an integer attribute.
    pub(super) fn int(&self, name: &str) -> Option<i64> {
        field_of(self.attribute(name)?, number::ATTRIBUTE_INT).map(|field| field.number_value())
    }

    /// Returns the tensor in an attribute.
    pub(super) fn tensor(&self, name: &str) -> Option<&[u8]> {
        field_of(self.attribute(name)?, number::ATTRIBUTE_TENSOR).map(|field| field.bytes())
    }

    /// Sets or adds an integer attribute.
    pub(super) fn set_int(&mut self, name: &str, value: i64) {
        const TYPE_INT: u64 = 2;
        let mut message = Vec::new();
        write_bytes(&mut message, number::ATTRIBUTE_NAME, name.as_bytes());
        write_number(&mut message, number::ATTRIBUTE_INT, value as u64);
        write_number(&mut message, number::ATTRIBUTE_TYPE, TYPE_INT);
        match self.attributes.iter_mut().find(|attribute| is_called(attribute, name)) {
            Some(attribute) => *attribute = Cow::Owned(message),
            None => self.attributes.push(Cow::Owned(message)),
        }
    }

    /// Returns the graphs inside the node.
    pub(super) fn subgraphs(&self) -> impl Iterator<Item = &[u8]> {
        self.attributes.iter().flat_map(|attribute| subgraphs_of(attribute))
    }

    fn read(message: &'a [u8]) -> Result<Self, PrecisionError> {
        let mut node = Self::default();
        for field in fields(message) {
            let field = field?;
            match field.number {
                number::NODE_INPUT => node.inputs.push(field.text()),
                number::NODE_OUTPUT => node.outputs.push(field.text()),
                number::NODE_NAME => node.name = field.text(),
                number::NODE_OP_TYPE => node.op = field.text(),
                number::NODE_DOMAIN => node.domain = field.text(),
                number::NODE_ATTRIBUTE => node.attributes.push(Cow::Borrowed(field.bytes())),
                _ => node.rest.push(field.raw),
            }
        }
        let mut captures = HashSet::new();
        for graph in node.subgraphs() {
            captured(graph, 0, &mut captures)?;
        }
        node.captures = captures.into_iter().collect();
        // Sorted, so that the same model gives the same bytes.
        node.captures.sort_unstable();
        Ok(node)
    }

    fn write(&self) -> Vec<u8> {
        let mut message = Vec::new();
        for input in &self.inputs {
            write_bytes(&mut message, number::NODE_INPUT, input.as_bytes());
        }
        for output in &self.outputs {
            write_bytes(&mut message, number::NODE_OUTPUT, output.as_bytes());
        }
        let texts =
            [(number::NODE_NAME, &self.name), (number::NODE_OP_TYPE, &self.op), (number::NODE_DOMAIN, &self.domain)];
        for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            write_bytes(&mut message, field, text.as_bytes());
        }
        for attribute in &self.attributes {
            write_bytes(&mut message, number::NODE_ATTRIBUTE, attribute);
        }
        message.extend(self.rest.concat());
        message
    }
}

/// Returns the first field `wanted` of a message.
fn field_of(message: &[u8], wanted: u64) -> Option<Field<'_>> {
    fields(message).map_while(Result::ok).find(|field| field.number == wanted)
}

fn is_called(attribute: &[u8], name: &str) -> bool {
    field_of(attribute, number::ATTRIBUTE_NAME).is_some_and(|field| field.bytes() == name.as_bytes())
}

fn subgraphs_of(attribute: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_graph = |number| matches!(number, number::ATTRIBUTE_GRAPH | number::ATTRIBUTE_GRAPHS);
    fields(attribute).map_while(Result::ok).filter(move |field| is_graph(field.number)).map(|field| field.bytes())
}

/// Adds the names that a subgraph uses and does not define, by a single pass: an extra name only costs a Cast.
fn captured(graph: &[u8], depth: usize, names: &mut HashSet<String>) -> Result<(), PrecisionError> {
    if depth > MAX_DEPTH {
        return Err(PrecisionError::Malformed);
    }
    let (mut used, mut defined) = (HashSet::new(), HashSet::new());
    for field in fields(graph) {
        let field = field?;
        match field.number {
            number::GRAPH_NODE => {
                for part in fields(field.bytes()) {
                    let part = part?;
                    match part.number {
                        number::NODE_INPUT => drop(used.insert(part.text())),
                        number::NODE_OUTPUT => drop(defined.insert(part.text())),
                        number::NODE_ATTRIBUTE => {
                            for inner in subgraphs_of(part.bytes()) {
                                captured(inner, depth + 1, &mut used)?;
                            }
                        }
                        _ => {}
                    }
                }
            }
            number::GRAPH_INPUT => drop(defined.insert(declared(field.bytes())?.name)),
            // A branch may return a value of the surrounding graph directly.
            number::GRAPH_OUTPUT => drop(used.insert(declared(field.bytes())?.name)),
            number::GRAPH_INITIALIZER => drop(defined.insert(header(field.bytes())?.name)),
            _ => {}
        }
    }
    used.remove("");
    names.extend(used.difference(&defined).cloned());
    Ok(())
}

/// Reads the name and element type of a `ValueInfoProto`.
pub(super) fn declared(message: &[u8]) -> Result<TypedValue<'_>, WireError> {
    let (mut name, mut element) = (String::new(), 0);
    for field in fields(message) {
        let field = field?;
        match field.number {
            number::VALUE_NAME => name = field.text(),
            number::VALUE_TYPE => {
                let tensor = field_of(field.bytes(), number::TYPE_TENSOR).map_or(&[][..], |field| field.bytes());
                for field in fields(tensor) {
                    let field = field?;
                    if field.number == number::TENSOR_TYPE_ELEMENT {
                        element = field.number_value();
                    }
                }
            }
            _ => {}
        }
    }
    Ok(TypedValue { name, element, message: Cow::Borrowed(message) })
}

impl TypedValue<'_> {
    /// Declares another element type.
    pub(super) fn set_element(&mut self, element: i64) -> Result<(), WireError> {
        let message = with_field(&self.message, number::VALUE_TYPE, |types| {
            with_field(types, number::TYPE_TENSOR, |tensor| {
                let mut message = Vec::new();
                write_number(&mut message, number::TENSOR_TYPE_ELEMENT, element as u64);
                for field in fields(tensor) {
                    let field = field?;
                    if field.number != number::TENSOR_TYPE_ELEMENT {
                        message.extend_from_slice(field.raw);
                    }
                }
                Ok(message)
            })
        })?;
        (self.message, self.element) = (Cow::Owned(message), element);
        Ok(())
    }
}

/// Returns the message with `change` applied to each field `wanted`.
fn with_field<C>(message: &[u8], wanted: u64, change: C) -> Result<Vec<u8>, WireError>
where
    C: Fn(&[u8]) -> Result<Vec<u8>, WireError>,
{
    let mut changed = Vec::new();
    for field in fields(message) {
        let field = field?;
        if field.number == wanted {
            write_bytes(&mut changed, wanted, &change(field.bytes())?);
        } else {
            changed.extend_from_slice(field.raw);
        }
    }
    Ok(changed)
}

impl<'a> Model<'a> {
    /// Parses `bytes`.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, PrecisionError> {
        let (mut rest, mut ir_version, mut graph) = (Vec::new(), 0, None);
        for field in fields(bytes) {
            let field = field?;
            match (field.number, field.value) {
                (number::MODEL_IR_VERSION, Value::Number(version)) => ir_version = version,
                (number::MODEL_GRAPH, Value::Bytes(bytes)) => graph = Some(OnnxGraph::read(bytes)?),
                _ => rest.push(field.raw),
            }
        }
        Ok(Self { rest, ir_version, graph: graph.ok_or(PrecisionError::Malformed)? })
    }

    /// Returns the model as a file.
    pub(super) fn write(&self) -> Vec<u8> {
        /// The first format version in which weights need not also be inputs.
        const FREE_WEIGHTS: u64 = 4;
        let mut out = Vec::new();
        write_number(&mut out, number::MODEL_IR_VERSION, self.ir_version.max(FREE_WEIGHTS));
        out.extend(self.rest.concat());
        write_bytes(&mut out, number::MODEL_GRAPH, &self.graph.write());
        out
    }
}

impl<'a> OnnxGraph<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, PrecisionError> {
        let (mut nodes, mut weights, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let (mut inputs, mut outputs, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for field in fields(bytes) {
            let field = field?;
            match field.number {
                number::GRAPH_NODE => nodes.push(OnnxNode::read(field.bytes())?),
                number::GRAPH_INITIALIZER => {
                    let header = header(field.bytes())?;
                    let message = Cow::Borrowed(field.bytes());
                    weights.push(TypedValue { name: header.name, element: header.element, message });
                }
                number::GRAPH_INPUT => inputs.push(declared(field.bytes())?),
                number::GRAPH_OUTPUT => outputs.push(declared(field.bytes())?),
                number::GRAPH_VALUE_INFO => values.push(declared(field.bytes())?),
                _ => rest.push(field.raw),
            }
        }
        // Before version 4 of the format, weights also had to be listed as inputs.
        let named: HashSet<&str> = weights.iter().map(|weights| weights.name.as_str()).collect();
        inputs.retain(|input: &TypedValue<'_>| !named.contains(input.name.as_str()));
        Ok(Self { nodes, weights, inputs, outputs, values, rest })
    }

    fn write(&self) -> Vec<u8> {
        let size = self.weights.iter().map(|weights| weights.message.len() + 64).sum::<usize>();
        let mut message = Vec::with_capacity(size + self.nodes.len() * 256);
        for node in &self.nodes {
            write_bytes(&mut message, number::GRAPH_NODE, &node.write());
        }
        message.extend(self.rest.concat());
        for weights in &self.weights {
            write_bytes(&mut message, number::GRAPH_INITIALIZER, &weights.message);
        }
        let declared = [
            (number::GRAPH_INPUT, &self.inputs),
            (number::GRAPH_OUTPUT, &self.outputs),
            (number::GRAPH_VALUE_INFO, &self.values),
        ];
        for (field, values) in declared {
            for value in values {
                write_bytes(&mut message, field, &value.message);
            }
        }
        message
    }

    /// Removes nodes whose results are unused, and unused weights and declarations.
    pub(super) fn sweep(&mut self) {
        let mut used: HashSet<String> = self.outputs.iter().map(|output| output.name.clone()).collect();
        let mut kept = vec![false; self.nodes.len()];
        for (node, kept) in self.nodes.iter().zip(&mut kept).rev() {
            *kept = node.outputs.iter().any(|output| used.contains(output)) || node.outputs.is_empty();
            if *kept {
                used.extend(node.inputs.iter().chain(&node.captures).filter(|name| !name.is_empty()).cloned());
            }
        }
        let mut kept = kept.into_iter();
        self.nodes.retain(|_| kept.next().unwrap_or(true));
        self.weights.retain(|weights| used.contains(&weights.name));
        let made: HashSet<&str> = self.nodes.iter().flat_map(|node| &node.outputs).map(String::as_str).collect();
        self.values.retain(|value| made.contains(value.name.as_str()));
    }
}
