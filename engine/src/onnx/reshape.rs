//! Changes the input shapes that an `.onnx` file declares.
//!
//! Both backends refuse an input whose declared dimensions differ, although many models work at any size. So this rewrites the
//! declaration before a backend sees it: the graph's inputs get the requested shapes, outputs keep the dimensions that do not
//! depend on them, and the shapes of intermediate values, which only repeat what follows from the inputs, are removed.
//! Everything else is copied unchanged.

use std::collections::BTreeMap;

use super::schema::number;
use super::wire::{WireError, fields, text, write_bytes, write_number};

/// The new value of a dimension; `None` is unknown.
type NewDim = Option<usize>;

/// Returns the model `bytes` with the inputs in `shapes` declared as given there.
///
/// `params` gives named dimensions their sizes wherever an output repeats the name. With `sizes_changed`, dimensions that the
/// outputs fix may be wrong and become unknown.
pub(super) fn with_input_shapes(
    bytes: &[u8],
    shapes: &BTreeMap<String, Vec<usize>>,
    params: &BTreeMap<String, usize>,
    sizes_changed: bool,
) -> Result<Vec<u8>, WireError> {
    rewritten(bytes, number::MODEL_GRAPH, |bytes| graph(bytes, shapes, params, sizes_changed))
}

/// Returns `message` with what `new` makes of each of its fields `wanted`.
fn rewritten(
    message: &[u8],
    wanted: u64,
    mut new: impl FnMut(&[u8]) -> Result<Vec<u8>, WireError>,
) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(message.len() + 64);
    for field in fields(message) {
        let field = field?;
        if field.number == wanted {
            write_bytes(&mut out, wanted, &new(field.bytes())?);
        } else {
            out.extend_from_slice(field.raw);
        }
    }
    Ok(out)
}

fn graph(
    bytes: &[u8],
    shapes: &BTreeMap<String, Vec<usize>>,
    params: &BTreeMap<String, usize>,
    sizes_changed: bool,
) -> Result<Vec<u8>, WireError> {
    let mut graph = Vec::with_capacity(bytes.len() + 64);
    for field in fields(bytes) {
        let field = field?;
        match field.number {
            number::GRAPH_INPUT => match shapes.get(&text(field.bytes(), number::VALUE_NAME)?) {
                Some(shape) => {
                    let dims: Vec<NewDim> = shape.iter().map(|&size| Some(size)).collect();
                    let value = with_dims(field.bytes(), &|_| Some(dims.clone()))?;
                    write_bytes(&mut graph, number::GRAPH_INPUT, &value);
                }
                None => graph.extend_from_slice(field.raw),
            },
            number::GRAPH_OUTPUT => {
                let value = with_dims(field.bytes(), &|shape| {
                    let dim = |dim: &[u8]| output_dim(dim, params, sizes_changed);
                    let dims = fields(shape).map_while(Result::ok).filter(|field| field.number == number::SHAPE_DIM);
                    Some(dims.map(|field| dim(field.bytes())).collect())
                })?;
                write_bytes(&mut graph, number::GRAPH_OUTPUT, &value);
            }
            number::GRAPH_VALUE_INFO => {}
            _ => graph.extend_from_slice(field.raw),
        }
    }
    Ok(graph)
}

fn output_dim(dim: &[u8], params: &BTreeMap<String, usize>, sizes_changed: bool) -> NewDim {
    fields(dim).map_while(Result::ok).find_map(|field| match field.number {
        number::DIM_VALUE if !sizes_changed => usize::try_from(field.number_value()).ok().filter(|&size| size > 0),
        number::DIM_PARAM => params.get(&field.text()).copied(),
        _ => None,
    })
}

/// Returns a `ValueInfoProto` with the dimensions that `new_dims` makes of its `TensorShapeProto` (empty if it has none).
fn with_dims(value: &[u8], new_dims: &dyn Fn(&[u8]) -> Option<Vec<NewDim>>) -> Result<Vec<u8>, WireError> {
    let tensor = |message: &[u8]| {
        let (mut tensor, mut shape) = (Vec::new(), None);
        for field in fields(message) {
            let field = field?;
            if field.number == number::TENSOR_TYPE_SHAPE {
                shape = Some(field.bytes());
            } else {
                tensor.extend_from_slice(field.raw);
            }
        }
        if let Some(dims) = shape.map_or_else(|| new_dims(&[]).filter(|dims| !dims.is_empty()), new_dims) {
            write_bytes(&mut tensor, number::TENSOR_TYPE_SHAPE, &shape_message(&dims));
        }
        Ok(tensor)
    };
    rewritten(value, number::VALUE_TYPE, |types| rewritten(types, number::TYPE_TENSOR, tensor))
}

fn shape_message(dims: &[NewDim]) -> Vec<u8> {
    let mut shape = Vec::new();
    for dim in dims {
        let mut message = Vec::new();
        if let Some(size) = dim {
            write_number(&mut message, number::DIM_VALUE, *size as u64);
        }
        write_bytes(&mut shape, number::SHAPE_DIM, &message);
    }
    shape
}
