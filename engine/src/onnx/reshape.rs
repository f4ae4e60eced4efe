//! Changes the input shapes that an `.onnx` file declares.
//!
//! Both backends refuse an input whose declared dimensions differ, although many models work at any size. So this rewrites the
//! declaration before a backend sees it: the graph's inputs get the requested shapes, outputs keep the dimensions that do not
//! depend on them, and the shapes of intermediate values, which follow from the inputs, are removed. Everything else is
//! copied unchanged.

use std::collections::BTreeMap;

use super::schema::number;
use super::wire::{WireError, fields, text, write_bytes, write_number};

/// The new value of a dimension; `None` is unknown.
type NewDim = Option<usize>;

/// Returns the model `bytes` with the inputs in `shapes` declared as given there.
///
/// `params` gives named dimensions their sizes wherever an output repeats the name. With `sizes_changed`, fixed dimensions of
/// the outputs may be wrong and become unknown.
pub(super) fn with_input_shapes(
    bytes: &[u8],
    shapes: &BTreeMap<String, Vec<usize>>,
    params: &BTreeMap<String, usize>,
    sizes_changed: bool,
) -> Result<Vec<u8>, WireError> {
    rewritten(bytes, number::MODEL_GRAPH, |bytes| graph(bytes, shapes, params, sizes_changed))
}

/// Returns `message` with each of its fields `wanted` replaced by the result of `new`.
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

/// Returns a `ValueInfoProto` with its dimensions replaced by the result of `new_dims` for its `TensorShapeProto` (empty if none).
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::file::value_info;
    use super::super::schema::element;
    use super::*;
    use crate::backend::Dim;

    fn message(field: u64, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_bytes(&mut out, field, bytes);
        out
    }

    /// An f32 value with these dimensions; a text is the name of one.
    fn value(name: &str, dims: Option<&[Result<u64, &str>]>) -> Vec<u8> {
        let mut tensor = Vec::new();
        write_number(&mut tensor, number::TENSOR_TYPE_ELEMENT, element::FLOAT as u64);
        if let Some(dims) = dims {
            let mut shape = Vec::new();
            for dim in dims {
                let mut message = Vec::new();
                match dim {
                    Ok(size) => write_number(&mut message, number::DIM_VALUE, *size),
                    Err(name) => write_bytes(&mut message, number::DIM_PARAM, name.as_bytes()),
                }
                write_bytes(&mut shape, number::SHAPE_DIM, &message);
            }
            write_bytes(&mut tensor, number::TENSOR_TYPE_SHAPE, &shape);
        }
        let types = message(number::TYPE_TENSOR, &tensor);
        [message(number::VALUE_NAME, name.as_bytes()), message(number::VALUE_TYPE, &types)].concat()
    }

    #[test]
    fn inputs_get_their_new_shapes_and_outputs_keep_what_does_not_depend_on_them() {
        let graph = [
            message(number::GRAPH_INPUT, &value("x", Some(&[Err("n"), Ok(3), Ok(640)]))),
            message(number::GRAPH_INPUT, &value("other", Some(&[Ok(5)]))),
            message(number::GRAPH_INPUT, &value("open", None)),
            message(number::GRAPH_VALUE_INFO, &value("inside", Some(&[Ok(640)]))),
            message(number::GRAPH_OUTPUT, &value("y", Some(&[Err("n"), Ok(84), Err("rows"), Ok(0)]))),
        ];
        let mut model = Vec::new();
        write_number(&mut model, number::MODEL_IR_VERSION, 9);
        write_bytes(&mut model, number::MODEL_GRAPH, &graph.concat());
        let shapes = BTreeMap::from([("x".to_owned(), vec![2, 3, 320]), ("open".to_owned(), vec![7])]);
        let params = BTreeMap::from([("n".to_owned(), 2)]);
        for (sizes_changed, fixed) in [(false, Dim::Fixed(84)), (true, Dim::Dynamic(String::new()))] {
            let new = with_input_shapes(&model, &shapes, &params, sizes_changed).unwrap();
            let fields: Vec<_> = fields(&new).map(Result::unwrap).collect();
            assert_eq!((fields.len(), fields[0].number_value()), (2, 9));
            let values: Vec<_> = super::fields(fields[1].bytes()).map(|field| field.unwrap()).collect();
            let read = values.iter().map(|field| {
                let (name, value) = value_info(field.bytes()).unwrap();
                (field.number, name, value.unwrap().1)
            });
            let dims = |dims: &[usize]| Some(dims.iter().map(|&size| Dim::Fixed(size)).collect::<Vec<_>>());
            let open = Dim::Dynamic(String::new());
            assert_eq!(
                read.collect::<Vec<_>>(),
                [
                    (number::GRAPH_INPUT, "x".to_owned(), dims(&[2, 3, 320])),
                    (number::GRAPH_INPUT, "other".to_owned(), dims(&[5])),
                    (number::GRAPH_INPUT, "open".to_owned(), dims(&[7])),
                    (number::GRAPH_OUTPUT, "y".to_owned(), Some(vec![Dim::Fixed(2), fixed, open.clone(), open])),
                ]
            );
        }
    }

    #[test]
    fn a_value_that_is_no_tensor_of_ours_is_described() {
        for (kind, bytes, found) in [
            (number::TYPE_SEQUENCE, &[][..], "a sequence"),
            (number::TYPE_MAP, &[], "a map"),
            (number::TYPE_SPARSE, &[], "a sparse tensor"),
            (number::TYPE_OPTIONAL, &[], "an optional value"),
            (number::TYPE_TENSOR, &[0x08, 11], "a tensor of f64"),
            (number::TYPE_TENSOR, &[], "a tensor of undeclared type"),
            (77, &[], "without a declared type"),
        ] {
            let types = message(kind, bytes);
            let value = [message(number::VALUE_NAME, b"v"), message(number::VALUE_TYPE, &types)].concat();
            assert_eq!(value_info(&value), Ok(("v".to_owned(), Err(found.to_owned()))));
        }
    }
}
