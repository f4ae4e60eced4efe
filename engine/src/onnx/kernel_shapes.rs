//! Writes the `kernel_shape` that convolutions may leave out.
//!
//! ONNX takes it from the weights then. rten does not, and takes the defaults of `strides` and `dilations` from it, so it fails
//! to run such a node.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::schema::number;
use super::wire::{WireError, fields, last, packed, text, write_bytes, write_number};

/// The operators with kernels.
const CONVOLUTIONS: [&str; 3] = ["Conv", "ConvInteger", "ConvTranspose"];

/// Operators whose output has the shape of their first input, and which exporters put between weights and convolution.
const SAME_SHAPE: [&str; 4] = ["Cast", "DequantizeLinear", "Identity", "QuantizeLinear"];

/// The most operators followed from a convolution to its weights.
const MOST_STEPS: usize = 8;

/// `AttributeProto.AttributeType.INTS`.
const INTS: u64 = 7;

/// Returns the model `bytes` with the `kernel_shape` of each convolution of its graph, where the shape of the weights is known.
pub(super) fn with_kernel_shapes(bytes: Vec<u8>) -> Vec<u8> {
    // Parsing the file has visited all of this, so there is no error; if there is one, rten reports it.
    match rewritten(&bytes) {
        Ok(Some(new)) => new,
        Ok(None) | Err(_) => bytes,
    }
}

/// Returns the model with what it lacks; `None` if it lacks nothing.
fn rewritten(bytes: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let Some(graph) = last(bytes, number::MODEL_GRAPH)? else { return Ok(None) };
    let kernels = missing(graph.bytes())?;
    if kernels.is_empty() {
        return Ok(None);
    }
    let (mut new_graph, mut index) = (Vec::with_capacity(graph.bytes().len() + 32 * kernels.len()), 0);
    for field in fields(graph.bytes()) {
        let field = field?;
        let kernel = (field.number == number::GRAPH_NODE).then(|| kernels.get(&index)).flatten();
        match kernel {
            Some(kernel) => {
                let mut node = field.bytes().to_vec();
                write_bytes(&mut node, number::NODE_ATTRIBUTE, &attribute(kernel));
                write_bytes(&mut new_graph, number::GRAPH_NODE, &node);
            }
            None => new_graph.extend_from_slice(field.raw),
        }
        index += usize::from(field.number == number::GRAPH_NODE);
    }
    let mut model = Vec::with_capacity(bytes.len() + 32 * kernels.len());
    for field in fields(bytes) {
        let field = field?;
        if field.number != number::MODEL_GRAPH {
            model.extend_from_slice(field.raw);
        }
    }
    write_bytes(&mut model, number::MODEL_GRAPH, &new_graph);
    Ok(Some(model))
}

fn attribute(kernel: &[u64]) -> Vec<u8> {
    let mut attribute = Vec::new();
    write_bytes(&mut attribute, number::ATTRIBUTE_NAME, b"kernel_shape");
    kernel.iter().for_each(|&size| write_number(&mut attribute, number::ATTRIBUTE_INTS, size));
    write_number(&mut attribute, number::ATTRIBUTE_TYPE, INTS);
    attribute
}

/// Returns the kernel of each convolution without `kernel_shape`, by the index of its node.
fn missing(graph: &[u8]) -> Result<BTreeMap<usize, Vec<u64>>, WireError> {
    let mut convolutions: Vec<(usize, Cow<'_, str>)> = Vec::new();
    // The first input of each operator that keeps the shape, and the dimensions of each tensor, by name.
    let (mut sources, mut shapes) = (BTreeMap::new(), BTreeMap::new());
    let mut index = 0;
    for field in fields(graph) {
        let field = field?;
        match field.number {
            number::GRAPH_INITIALIZER => {
                shapes.insert(text(field.bytes(), number::TENSOR_NAME)?, field.bytes());
            }
            number::GRAPH_NODE => {
                let node = field.bytes();
                let operator = text(node, number::NODE_OP_TYPE)?;
                if CONVOLUTIONS.contains(&operator.as_str()) && attribute_named(node, "kernel_shape")?.is_none() {
                    if let Some(weights) = nth(node, number::NODE_INPUT, 1)? {
                        convolutions.push((index, weights));
                    }
                } else if SAME_SHAPE.contains(&operator.as_str()) {
                    if let (Some(from), Some(to)) =
                        (nth(node, number::NODE_INPUT, 0)?, nth(node, number::NODE_OUTPUT, 0)?)
                    {
                        sources.insert(to.into_owned(), from.into_owned());
                    }
                } else if operator == "Constant"
                    && let (Some(value), Some(to)) =
                        (attribute_named(node, "value")?, nth(node, number::NODE_OUTPUT, 0)?)
                    && let Some(tensor) = last(value, number::ATTRIBUTE_TENSOR)?
                {
                    shapes.insert(to.into_owned(), tensor.bytes());
                }
                index += 1;
            }
            _ => {}
        }
    }
    let mut kernels = BTreeMap::new();
    for (index, weights) in convolutions {
        let mut name = weights.as_ref();
        for _ in 0..MOST_STEPS {
            let Some(source) = sources.get(name) else { break };
            name = source;
        }
        let Some(tensor) = shapes.get(name) else { continue };
        if let [_, _, kernel @ ..] = &dims(tensor)?[..]
            && !kernel.is_empty()
        {
            kernels.insert(index, kernel.to_vec());
        }
    }
    Ok(kernels)
}

/// Returns the text of the `at`-th field `number` of `message`.
fn nth(message: &[u8], number: u64, at: usize) -> Result<Option<Cow<'_, str>>, WireError> {
    let mut left = at;
    for field in fields(message) {
        let field = field?;
        if field.number == number {
            if left == 0 {
                return Ok(Some(String::from_utf8_lossy(field.bytes())));
            }
            left -= 1;
        }
    }
    Ok(None)
}

fn attribute_named<'a>(node: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, WireError> {
    for field in fields(node) {
        let field = field?;
        if field.number == number::NODE_ATTRIBUTE && text(field.bytes(), number::ATTRIBUTE_NAME)? == name {
            return Ok(Some(field.bytes()));
        }
    }
    Ok(None)
}

/// Returns the dimensions of a `TensorProto`.
fn dims(tensor: &[u8]) -> Result<Vec<u64>, WireError> {
    let mut dims = Vec::new();
    for field in fields(tensor) {
        let field = field?;
        if field.number == number::TENSOR_DIMS {
            match field.bytes() {
                [] => dims.push(field.number_value() as u64),
                bytes => packed(bytes).try_for_each(|size| size.map(|size| dims.push(size)))?,
            }
        }
    }
    Ok(dims)
}
