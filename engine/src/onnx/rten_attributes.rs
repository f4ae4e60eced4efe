//! Writes attributes of convolutions and poolings that rten interprets differently from ONNX.
//!
//! - `kernel_shape`, which ONNX derives from the weights if it is missing. rten does not, and takes the number of `strides`
//!   and `dilations` from it, so it fails to run such a convolution.
//! - `strides` of a pooling, which default to 1. Without them, rten fails to run it.
//! - `auto_pad = SAME_LOWER`, which puts the odd pixel of padding first. rten puts it last, like `SAME_UPPER`, without an
//!   error. If all strides are 1, this writes `pads` instead; otherwise they depend on the size of the input, and the model
//!   is rejected.
//!
//! Only the graph's own nodes are rewritten, not those inside `If`, `Loop` and functions: there, `SAME_LOWER` is rejected.

use std::collections::BTreeMap;

use super::schema::number;
use super::wire::{WireError, fields, last, packed, text, write_bytes, write_number};

/// The operators with kernels.
const CONVOLUTIONS: [&str; 3] = ["Conv", "ConvInteger", "ConvTranspose"];
const POOLINGS: [&str; 3] = ["AveragePool", "LpPool", "MaxPool"];

/// Operators whose output has the shape of their first input, and that exporters put between weights and convolution.
const SAME_SHAPE: [&str; 4] = ["Cast", "DequantizeLinear", "Identity", "QuantizeLinear"];

/// The most operators followed from a convolution to its weights.
const MOST_STEPS: usize = 8;

/// `AttributeProto.AttributeType.INTS`.
const INTS: u64 = 7;

/// Why rten cannot run a model correctly.
#[derive(Debug)]
pub(super) enum AttributeError {
    /// The bytes are not a model; rten also reports it.
    Wire,
    /// A node pads in a way that depends on the size of its input.
    SameLower { operator: String, node: String },
}

impl From<WireError> for AttributeError {
    fn from(_: WireError) -> Self {
        Self::Wire
    }
}

/// A change to a node.
#[derive(Debug, Default)]
struct Change {
    /// The attributes to add, with their integers.
    add: Vec<(&'static str, Vec<u64>)>,
    drop_auto_pad: bool,
}

/// Returns the model `bytes` with the attributes that rten needs.
///
/// # Errors
/// A node has `auto_pad = SAME_LOWER`, and strides or a kernel from which the padding does not follow.
pub(super) fn with_attributes(bytes: Vec<u8>) -> Result<Vec<u8>, AttributeError> {
    let Some(graph) = last(&bytes, number::MODEL_GRAPH)? else { return Ok(bytes) };
    for function in fields(&bytes) {
        let function = function?;
        if function.number == number::MODEL_FUNCTIONS {
            check_nodes(function.bytes(), number::FUNCTION_NODE)?;
        }
    }
    let changes = changes(graph.bytes())?;
    if changes.is_empty() {
        return Ok(bytes);
    }
    let (mut new_graph, mut index) = (Vec::with_capacity(graph.bytes().len() + 64 * changes.len()), 0);
    for field in fields(graph.bytes()) {
        let field = field?;
        let change = (field.number == number::GRAPH_NODE).then(|| changes.get(&index)).flatten();
        match change {
            Some(change) => write_bytes(&mut new_graph, number::GRAPH_NODE, &changed(field.bytes(), change)?),
            None => new_graph.extend_from_slice(field.raw),
        }
        index += usize::from(field.number == number::GRAPH_NODE);
    }
    let mut model = Vec::with_capacity(bytes.len() + 64 * changes.len());
    for field in fields(&bytes) {
        let field = field?;
        if field.number != number::MODEL_GRAPH {
            model.extend_from_slice(field.raw);
        }
    }
    write_bytes(&mut model, number::MODEL_GRAPH, &new_graph);
    Ok(model)
}

fn changed(node: &[u8], change: &Change) -> Result<Vec<u8>, WireError> {
    let mut new = Vec::with_capacity(node.len() + 64);
    for field in fields(node) {
        let field = field?;
        let is_auto_pad =
            field.number == number::NODE_ATTRIBUTE && text(field.bytes(), number::ATTRIBUTE_NAME)? == "auto_pad";
        if !(change.drop_auto_pad && is_auto_pad) {
            new.extend_from_slice(field.raw);
        }
    }
    for (name, values) in &change.add {
        let mut attribute = Vec::new();
        write_bytes(&mut attribute, number::ATTRIBUTE_NAME, name.as_bytes());
        values.iter().for_each(|&value| write_number(&mut attribute, number::ATTRIBUTE_INTS, value));
        write_number(&mut attribute, number::ATTRIBUTE_TYPE, INTS);
        write_bytes(&mut new, number::NODE_ATTRIBUTE, &attribute);
    }
    Ok(new)
}

/// Returns the changes by node index.
fn changes(graph: &[u8]) -> Result<BTreeMap<usize, Change>, AttributeError> {
    let mut nodes: Vec<(usize, &[u8], String)> = Vec::new();
    // The first input of each operator that keeps the shape, and the tensor of each constant, by name.
    let (mut sources, mut tensors) = (BTreeMap::new(), BTreeMap::new());
    let mut index = 0;
    for field in fields(graph) {
        let field = field?;
        match field.number {
            number::GRAPH_INITIALIZER => {
                tensors.insert(text(field.bytes(), number::TENSOR_NAME)?, field.bytes());
            }
            number::GRAPH_NODE => {
                let node = field.bytes();
                let operator = text(node, number::NODE_OP_TYPE)?;
                let output = nth(node, number::NODE_OUTPUT, 0)?;
                let is_one_of = |operators: &[&str]| operators.contains(&operator.as_str());
                if is_one_of(&CONVOLUTIONS) || is_one_of(&POOLINGS) {
                    nodes.push((index, node, operator));
                } else if is_one_of(&SAME_SHAPE) {
                    sources.extend(output.zip(nth(node, number::NODE_INPUT, 0)?));
                } else if operator != "Constant" {
                    check_inside(node)?;
                } else if let (Some(value), Some(output)) = (attribute(node, "value")?, output)
                    && let Some(tensor) = last(value, number::ATTRIBUTE_TENSOR)?
                {
                    tensors.insert(output, tensor.bytes());
                }
                index += 1;
            }
            _ => {}
        }
    }
    let kernel_of = |weights: &str| -> Result<Option<Vec<u64>>, WireError> {
        let mut name = weights;
        for _ in 0..MOST_STEPS {
            let Some(source) = sources.get(name) else { break };
            name = source;
        }
        let Some(tensor) = tensors.get(name) else { return Ok(None) };
        let dims = numbers(tensor, number::TENSOR_DIMS)?;
        Ok(dims.get(2..).filter(|kernel| !kernel.is_empty()).map(<[u64]>::to_vec))
    };
    let mut changes = BTreeMap::new();
    for (index, node, operator) in nodes {
        let weights = nth(node, number::NODE_INPUT, 1)?.filter(|_| CONVOLUTIONS.contains(&operator.as_str()));
        let weights = weights.map_or(Ok(None), |weights| kernel_of(&weights))?;
        if let Some(change) = change(node, operator, weights)? {
            changes.insert(index, change);
        }
    }
    Ok(changes)
}

/// Returns the change to a node; `weights` is its kernel size derived from its weights.
fn change(node: &[u8], operator: String, weights: Option<Vec<u64>>) -> Result<Option<Change>, AttributeError> {
    let values = |name: &str| -> Result<Option<Vec<u64>>, WireError> {
        attribute(node, name)?.map(|attribute| numbers(attribute, number::ATTRIBUTE_INTS)).transpose()
    };
    let mut change = Change::default();
    let (declared, strides) = (values("kernel_shape")?, values("strides")?);
    if let (None, Some(kernel)) = (&declared, &weights) {
        change.add.push(("kernel_shape", kernel.clone()));
    }
    let kernel = declared.or(weights);
    if let (true, None, Some(kernel)) = (POOLINGS.contains(&operator.as_str()), &strides, &kernel) {
        change.add.push(("strides", vec![1; kernel.len()]));
    }
    if is_same_lower(node)? {
        let dilations = values("dilations")?;
        let one =
            |values: &Option<Vec<u64>>| values.as_ref().is_none_or(|values| values.iter().all(|&value| value == 1));
        let Some(kernel) = kernel.filter(|_| one(&strides) && one(&dilations) && operator != "ConvTranspose") else {
            return Err(AttributeError::SameLower { operator, node: text(node, number::NODE_NAME)? });
        };
        let totals = kernel.iter().map(|size| size.saturating_sub(1));
        let first = totals.clone().map(|total| total.div_ceil(2));
        change.add.push(("pads", first.chain(totals.clone().map(|total| total / 2)).collect()));
        change.drop_auto_pad = true;
    }
    Ok((!change.add.is_empty()).then_some(change))
}

fn is_same_lower(node: &[u8]) -> Result<bool, WireError> {
    let auto_pad =
        attribute(node, "auto_pad")?.map(|attribute| text(attribute, number::ATTRIBUTE_STRING)).transpose()?;
    Ok(auto_pad.is_some_and(|auto_pad| auto_pad == "SAME_LOWER"))
}

/// Rejects nodes with `SAME_LOWER` in the graphs inside `node`, which are not rewritten. Reading the file has checked their depth.
fn check_inside(node: &[u8]) -> Result<(), AttributeError> {
    for attribute in fields(node) {
        let attribute = attribute?;
        if attribute.number != number::NODE_ATTRIBUTE {
            continue;
        }
        for graph in fields(attribute.bytes()) {
            let graph = graph?;
            if matches!(graph.number, number::ATTRIBUTE_GRAPH | number::ATTRIBUTE_GRAPHS) {
                check_nodes(graph.bytes(), number::GRAPH_NODE)?;
            }
        }
    }
    Ok(())
}

/// Does the same for the nodes in field `of` of `message`, and for the graphs inside them.
fn check_nodes(message: &[u8], of: u64) -> Result<(), AttributeError> {
    for field in fields(message) {
        let field = field?;
        if field.number == of {
            let node = field.bytes();
            if is_same_lower(node)? {
                let operator = text(node, number::NODE_OP_TYPE)?;
                return Err(AttributeError::SameLower { operator, node: text(node, number::NODE_NAME)? });
            }
            check_inside(node)?;
        }
    }
    Ok(())
}

/// Returns the text of the `at`-th field `number` of `message`.
fn nth(message: &[u8], number: u64, at: usize) -> Result<Option<String>, WireError> {
    let mut left = at;
    for field in fields(message) {
        let field = field?;
        if field.number == number {
            if left == 0 {
                return Ok(Some(field.text()));
            }
            left -= 1;
        }
    }
    Ok(None)
}

/// Returns the attribute of that name.
fn attribute<'a>(node: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, WireError> {
    for field in fields(node) {
        let field = field?;
        if field.number == number::NODE_ATTRIBUTE && text(field.bytes(), number::ATTRIBUTE_NAME)? == name {
            return Ok(Some(field.bytes()));
        }
    }
    Ok(None)
}

/// Returns the integers in field `number` of `message`, packed or not.
fn numbers(message: &[u8], number: u64) -> Result<Vec<u64>, WireError> {
    let mut values = Vec::new();
    for field in fields(message) {
        let field = field?;
        if field.number == number {
            match field.bytes() {
                [] => values.push(field.number_value() as u64),
                bytes => packed(bytes).try_for_each(|value| value.map(|value| values.push(value)))?,
            }
        }
    }
    Ok(values)
}
