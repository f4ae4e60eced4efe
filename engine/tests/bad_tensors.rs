//! ONNX files whose tensors have less data than they declare: rejected before a backend reads them, wherever they are in the
//! file.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;

use common::*;
use rten_onnx::onnx::{DataType, NodeProto};
use visiond_engine::builder_api::onnx::{fields, number, write_bytes, write_number};
use visiond_engine::engine::{Engine, EngineError};
use visiond_engine::onnx::file::OnnxFile;

/// The product of this and 8 is 8 in 64 bits.
const WRAPS: i64 = (1 << 61) + 1;

fn node_with(operator: &str, inputs: &[&str], attributes: Vec<rten_onnx::onnx::AttributeProto>) -> NodeProto {
    NodeProto { attribute: attributes, ..node(operator, inputs, &["y"]) }
}

/// A model that runs `node` over its input `x` of `[8]` and the weights `w`.
fn model_of(node: NodeProto) -> Vec<u8> {
    let x = value("x", DataType::FLOAT, Some(dims(&[8])));
    let y = value("y", DataType::FLOAT, None);
    let mut graph = graph(vec![node], vec![x], vec![y]);
    graph.initializer.push(weights("sizes", &[2], &[1.0, 1.0]));
    encode(&model(graph))
}

fn relu() -> Vec<u8> {
    model_of(node("Relu", &["x"], &["y"]))
}

/// Returns `message` with another field at its end.
fn with(message: &[u8], number: u64, content: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    write_bytes(&mut message, number, content);
    message
}

fn part(number: u64, content: &[u8]) -> Vec<u8> {
    with(&[], number, content)
}

/// Returns a model with another field at the end of its graph.
fn with_in_graph(model: &[u8], number: u64, content: &[u8]) -> Vec<u8> {
    let mut changed = Vec::new();
    for field in fields(model).map(Result::unwrap) {
        if field.number == number::MODEL_GRAPH {
            write_bytes(&mut changed, field.number, &with(field.bytes(), number, content));
        } else {
            changed.extend_from_slice(field.raw);
        }
    }
    changed
}

/// Returns a `TensorProto` without data.
fn tensor(name: &str, element: i64, dims: &[i64]) -> Vec<u8> {
    let mut tensor = Vec::new();
    for &dim in dims {
        write_number(&mut tensor, number::TENSOR_DIMS, dim as u64);
    }
    write_number(&mut tensor, number::TENSOR_DATA_TYPE, element as u64);
    with(&tensor, number::TENSOR_NAME, name.as_bytes())
}

fn raw(name: &str, element: i64, dims: &[i64], bytes: usize) -> Vec<u8> {
    with(&tensor(name, element, dims), number::TENSOR_RAW_DATA, &vec![0; bytes])
}

/// Returns a tensor of f32 whose data is in another file.
fn elsewhere(name: &str, dims: &[i64], entries: &[(&str, &str)]) -> Vec<u8> {
    let mut tensor = tensor(name, 1, dims);
    for (key, value) in entries {
        let entry = with(&part(number::FIRST, key.as_bytes()), number::SECOND, value.as_bytes());
        write_bytes(&mut tensor, number::TENSOR_EXTERNAL_DATA, &entry);
    }
    write_number(&mut tensor, number::TENSOR_DATA_LOCATION, 1);
    tensor
}

fn sparse(values: &[u8], indices: &[u8], dims: &[i64]) -> Vec<u8> {
    let mut sparse = with(&part(number::SPARSE_VALUES, values), number::SPARSE_INDICES, indices);
    for &dim in dims {
        write_number(&mut sparse, number::SPARSE_DIMS, dim as u64);
    }
    sparse
}

/// Returns a node with one attribute.
fn node_message(field: u64, content: &[u8]) -> Vec<u8> {
    let attribute = with(&part(number::ATTRIBUTE_NAME, b"value"), field, content);
    let node = with(&part(number::NODE_OP_TYPE, b"Constant"), number::NODE_NAME, b"n");
    with(&with(&node, number::NODE_OUTPUT, b"c"), number::NODE_ATTRIBUTE, &attribute)
}

/// Every place in a file where a tensor can stand, with `tensor` in it.
fn places(tensor: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let model = relu();
    let (values, index) = (raw("v", 1, &[1], 4), raw("i", 7, &[1], 8));
    let graph = |tensor| part(number::GRAPH_INITIALIZER, tensor);
    let in_node = |field, content: &[u8]| with_in_graph(&model, number::GRAPH_NODE, &node_message(field, content));
    let in_function = |field, content: &[u8]| {
        let function = with(&part(1, b"f"), field, content);
        with(&model, number::MODEL_FUNCTIONS, &with(&function, 10, b"local"))
    };
    let in_training = |field| with(&model, number::MODEL_TRAINING_INFO, &part(field, &graph(tensor)));
    let default = with(&part(number::ATTRIBUTE_NAME, b"a"), number::ATTRIBUTE_TENSOR, tensor);
    vec![
        ("initializer", with_in_graph(&model, number::GRAPH_INITIALIZER, tensor)),
        ("sparse values", with_in_graph(&model, number::GRAPH_SPARSE_INITIALIZER, &sparse(tensor, &index, &[1]))),
        ("sparse indices", with_in_graph(&model, number::GRAPH_SPARSE_INITIALIZER, &sparse(&values, tensor, &[1]))),
        ("attribute t", in_node(number::ATTRIBUTE_TENSOR, tensor)),
        ("attribute tensors", in_node(number::ATTRIBUTE_TENSORS, tensor)),
        ("attribute sparse_tensor", in_node(number::ATTRIBUTE_SPARSE_TENSOR, &sparse(tensor, &index, &[1]))),
        ("attribute sparse_tensors", in_node(number::ATTRIBUTE_SPARSE_TENSORS, &sparse(tensor, &index, &[1]))),
        ("subgraph", in_node(number::ATTRIBUTE_GRAPH, &graph(tensor))),
        ("subgraphs", in_node(number::ATTRIBUTE_GRAPHS, &graph(tensor))),
        ("function", in_function(number::FUNCTION_NODE, &node_message(number::ATTRIBUTE_TENSOR, tensor))),
        ("default of a function", in_function(number::FUNCTION_ATTRIBUTE, &default)),
        ("training, initialization", in_training(number::TRAINING_INITIALIZATION)),
        ("training, algorithm", in_training(number::TRAINING_ALGORITHM)),
    ]
}

fn save(directory: &Path, model: &[u8]) -> std::path::PathBuf {
    let path = directory.join("m.onnx");
    std::fs::write(&path, model).unwrap();
    path
}

/// Asserts that both backends refuse the model with the same error, and returns it.
fn refused(model: &[u8], case: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = save(directory.path(), model);
    let mut texts = backends().into_iter().map(|backend| match Engine::load(&path, &options(backend)) {
        Ok(_) => panic!("{case}: {backend} loads it"),
        Err(EngineError::Malformed(_, reason)) => reason,
        Err(error) => panic!("{case}: {backend}: {error}"),
    });
    let text = texts.next().unwrap();
    assert!(texts.all(|other| other == text), "{case}");
    text
}

fn refused_tensor(tensor: &[u8]) -> String {
    refused(&with_in_graph(&relu(), number::GRAPH_INITIALIZER, tensor), "initializer")
}

fn accepted(model: &[u8], case: &str) -> OnnxFile {
    let directory = tempfile::tempdir().unwrap();
    OnnxFile::read(&save(directory.path(), model)).unwrap_or_else(|error| panic!("{case}: {error}"))
}

#[test]
fn dimensions_whose_product_wraps_reach_no_operator() {
    let huge = |node| with_in_graph(&model_of(node), number::GRAPH_INITIALIZER, &raw("w", 1, &[8, WRAPS], 32));
    let cubic = || rten_onnx::onnx::AttributeProto {
        name: Some("equation".to_owned()),
        s: Some("ij->ji".to_owned()),
        r#type: Some(rten_onnx::onnx::AttributeType::STRING),
        ..Default::default()
    };
    let nodes = [
        node("Where", &["w", "w", "x"], &["y"]),
        node("Add", &["w", "x"], &["y"]),
        node_with("Transpose", &["w"], vec![ints("perm", &[1, 0])]),
        node_with("Softmax", &["w"], vec![int("axis", 0)]),
        node_with("Einsum", &["w"], vec![cubic()]),
        node("Trilu", &["w"], &["y"]),
        node("Resize", &["w", "", "sizes"], &["y"]),
        node("MatMul", &["x", "w"], &["y"]),
    ];
    for node in nodes {
        let operator = node.op_type.clone().unwrap();
        let text = refused(&huge(node), &operator);
        let says = format!("tensor `w` of f32 [8, {WRAPS}] has 32 bytes and needs more than 2^63 bytes");
        assert!(text.contains(&says), "{operator}: {text}");
    }
}

#[test]
fn a_tensor_is_checked_wherever_it_stands() {
    for (place, model) in places(&raw("w", 1, &[2, 3], 20)) {
        let text = refused(&model, place);
        assert!(text.contains("tensor `w` of f32 [2, 3] has 20 bytes and needs 24"), "{place}: {text}");
    }
    // With a valid tensor, the same places are accepted.
    for (place, model) in places(&raw("w", 7, &[1], 8)) {
        accepted(&model, place);
    }
}

#[test]
fn a_tensor_without_a_name_is_named_by_its_place() {
    let node = node_message(number::ATTRIBUTE_TENSOR, &raw("", 1, &[2], 4));
    let text = refused(&with_in_graph(&relu(), number::GRAPH_NODE, &node), "constant");
    assert!(text.contains("attribute `value` of node `n` (Constant) of f32 [2] has 4 bytes and needs 8"), "{text}");
    let text = refused_tensor(&raw("", 1, &[2], 4));
    assert!(text.contains("a tensor without a name of f32 [2] has 4 bytes"), "{text}");
    let text = refused_tensor(&raw(&format!("w\n{}", "x".repeat(500)), 1, &[2], 4));
    assert!(text.contains("tensor `w\\nxxx") && text.len() < 300, "{text}");
}

#[test]
fn dimensions_are_checked_even_if_there_is_nothing_in_them() {
    let text = refused_tensor(&raw("w", 1, &[-1, 2], 0));
    assert!(text.contains("tensor `w` has the dimension -1"), "{text}");
    let text = refused_tensor(&raw("w", 1, &[0, 1 << 40, 1 << 40], 0));
    assert!(text.contains("needs more than 2^63 bytes"), "{text}");
    assert!(refused_tensor(&raw("w", 1, &[0, 1 << 59], 0)).contains("needs more than 2^63 bytes"));
    let most = raw("w", 1, &[0, (1 << 59) - 1], 0);
    accepted(&with_in_graph(&relu(), number::GRAPH_INITIALIZER, &most), "no element");
    let text = refused_tensor(&raw("w", 1, &[1; 65], 4));
    assert!(text.contains("tensor `w` has more than 64 dimensions"), "{text}");
    for dims in [&[][..], &[1; 64]] {
        accepted(&with_in_graph(&relu(), number::GRAPH_INITIALIZER, &raw("w", 1, dims, 4)), "one element");
    }
    accepted(&with_in_graph(&relu(), number::GRAPH_INITIALIZER, &raw("w", 1, &[0, 1 << 40], 0)), "no element");
    // Packed dimensions count like those that stand alone.
    let mut packed = part(number::TENSOR_DIMS, &[2, 3]);
    write_number(&mut packed, number::TENSOR_DATA_TYPE, 1);
    let text = refused_tensor(&with(&packed, number::TENSOR_RAW_DATA, &[0; 20]));
    assert!(text.contains("of f32 [2, 3] has 20 bytes and needs 24"), "{text}");
}

/// Each element type: its number, the bytes of three elements as raw data, its field, and the values of three elements there.
const TYPES: [(i64, usize, u64, usize); 25] = [
    (1, 12, 4, 3),
    (2, 3, 5, 3),
    (3, 3, 5, 3),
    (4, 6, 5, 3),
    (5, 6, 5, 3),
    (6, 12, 5, 3),
    (7, 24, 7, 3),
    (9, 3, 5, 3),
    (10, 6, 5, 3),
    (11, 24, 10, 3),
    (12, 12, 11, 3),
    (13, 24, 11, 3),
    (14, 24, 4, 6),
    (15, 48, 10, 6),
    (16, 6, 5, 3),
    (17, 3, 5, 3),
    (18, 3, 5, 3),
    (19, 3, 5, 3),
    (20, 3, 5, 3),
    (21, 2, 5, 2),
    (22, 2, 5, 2),
    (23, 2, 5, 2),
    (24, 3, 5, 3),
    (25, 1, 5, 1),
    (26, 1, 5, 1),
];

#[test]
fn every_type_needs_exactly_its_bytes_or_values() {
    let ok = |tensor: &[u8], case: &str| accepted(&with_in_graph(&relu(), number::GRAPH_INITIALIZER, tensor), case);
    for (element, bytes, field, values) in TYPES {
        let case = format!("element type {element}");
        let directory = tempfile::tempdir().unwrap();
        let refuses = |tensor: &[u8], says: &str| {
            let path = save(directory.path(), &with_in_graph(&relu(), number::GRAPH_INITIALIZER, tensor));
            let text = OnnxFile::read(&path).expect_err(&case).to_string();
            assert!(text.contains(says), "{case}: {text}");
        };
        ok(&raw("w", element, &[3], bytes), &case);
        refuses(&raw("w", element, &[3], bytes - 1), &format!("has {} bytes and needs {bytes}", bytes - 1));
        refuses(&raw("w", element, &[3], bytes + 1), &format!("has {} bytes and needs {bytes}", bytes + 1));
        refuses(&tensor("w", element, &[3]), &format!("has 0 bytes and needs {bytes}"));
        // Packed, one by one, and both mixed, which protobuf allows.
        let size = match field {
            4 => 4,
            10 => 8,
            _ => 1,
        };
        let packed = |values: usize| with(&tensor("w", element, &[3]), field, &vec![1; values * size]);
        let single = |message: &mut Vec<u8>| match size {
            1 => write_number(message, field, u64::MAX),
            4 => message.extend([(field << 3 | 5) as u8, 0, 0, 0, 0]),
            _ => message.extend([(field << 3 | 1) as u8, 0, 0, 0, 0, 0, 0, 0, 0]),
        };
        ok(&packed(values), &case);
        refuses(&packed(values + 1), &format!("has {} values and needs {values}", values + 1));
        let mut one_by_one = tensor("w", element, &[3]);
        (0..values).for_each(|_| single(&mut one_by_one));
        ok(&one_by_one, &case);
        single(&mut one_by_one);
        refuses(&one_by_one, &format!("has {} values and needs {values}", values + 1));
        let mut mixed = packed(values - 1);
        single(&mut mixed);
        ok(&mixed, &case);
        refuses(&with(&packed(values), number::TENSOR_RAW_DATA, &vec![0; bytes]), "has its data twice");
        let other = if field == 7 { 11 } else { 7 };
        refuses(&with(&tensor("w", element, &[3]), other, &vec![1; values]), "in the field of another type");
        refuses(&with(&tensor("w", element, &[3]), number::TENSOR_STRING_DATA, b"s"), "in the field of another type");
    }
    for element in [0, 27, -1] {
        let text = refused_tensor(&raw("w", element, &[1], 4));
        assert!(text.contains(&format!("tensor `w` has the unknown element type {element}")), "{text}");
    }
}

#[test]
fn strings_are_counted_and_never_raw() {
    let strings = |count: usize| {
        let message = tensor("w", 8, &[2]);
        (0..count).fold(message, |message, _| with(&message, number::TENSOR_STRING_DATA, b"text"))
    };
    accepted(&with_in_graph(&relu(), number::GRAPH_INITIALIZER, &strings(2)), "strings");
    for count in [0, 1, 3] {
        let text = refused_tensor(&strings(count));
        assert!(text.contains(&format!("of strings [2] has {count} strings and needs 2")), "{text}");
    }
    assert!(refused_tensor(&raw("w", 8, &[2], 8)).contains("in the field of another type"));
    let mut outside = tensor("w", 8, &[2]);
    let entry = with(&part(number::FIRST, b"location"), number::SECOND, b"w.data");
    write_bytes(&mut outside, number::TENSOR_EXTERNAL_DATA, &entry);
    write_number(&mut outside, number::TENSOR_DATA_LOCATION, 1);
    assert!(refused_tensor(&outside).contains("which strings cannot have"));
}

#[test]
fn a_field_of_the_wrong_kind_is_damage() {
    let numbered = |field| {
        let mut tensor = tensor("w", 1, &[1]);
        write_number(&mut tensor, field, 1);
        tensor
    };
    // A number where bytes must be, half a float, an integer cut off, a type that is text.
    let bad = [
        numbered(number::TENSOR_RAW_DATA),
        with(&tensor("w", 1, &[1]), number::TENSOR_FLOAT_DATA, &[0; 3]),
        with(&tensor("w", 6, &[1]), number::TENSOR_INT32_DATA, &[0x80]),
        with(&raw("w", 1, &[1], 4), number::TENSOR_DATA_TYPE, b"f32"),
    ];
    for tensor in bad {
        let directory = tempfile::tempdir().unwrap();
        let path = save(directory.path(), &with_in_graph(&relu(), number::GRAPH_INITIALIZER, &tensor));
        let error = OnnxFile::read(&path).unwrap_err();
        assert!(matches!(error, EngineError::Malformed(..) | EngineError::Truncated(..)), "{error}");
    }
    for (field, content) in [(number::ATTRIBUTE_FLOATS, &[0; 5][..]), (number::ATTRIBUTE_FLOAT, &[0; 3])] {
        let model = with_in_graph(&relu(), number::GRAPH_NODE, &node_message(field, content));
        assert!(refused(&model, "attribute").contains("the file is damaged"));
    }
}

/// One reader takes the last of two messages in a field for one, another merges them, so that it sees more dimensions.
#[test]
fn a_message_that_may_occur_once_does() {
    let half = raw("w", 1, &[2], 8);
    let twice = |field, message: &[u8]| with(&part(field, message), field, message);
    let graph = part(number::GRAPH_INITIALIZER, &half);
    let in_node = |field, message: &[u8]| {
        let node = with(&part(number::NODE_OP_TYPE, b"Constant"), number::NODE_ATTRIBUTE, &twice(field, message));
        with_in_graph(&relu(), number::GRAPH_NODE, &node)
    };
    let both = sparse(&half, &raw("i", 7, &[2], 16), &[2]);
    let cases = [
        ("t", in_node(number::ATTRIBUTE_TENSOR, &half)),
        ("g", in_node(number::ATTRIBUTE_GRAPH, &graph)),
        ("sparse", in_node(number::ATTRIBUTE_SPARSE_TENSOR, &both)),
        ("tp", in_node(number::ATTRIBUTE_TYPE_PROTO, &[])),
        (
            "sparse values",
            with_in_graph(&relu(), number::GRAPH_SPARSE_INITIALIZER, &with(&both, number::SPARSE_VALUES, &half)),
        ),
        ("graph", with(&relu(), number::MODEL_GRAPH, &graph)),
    ];
    for (case, model) in cases {
        assert!(refused(&model, case).contains("the file is damaged"), "{case}");
    }
}

#[test]
fn a_sparse_tensor_keeps_to_its_dimensions() {
    let indices = |dims: &[i64], values: &[i64]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        with(&tensor("i", 7, dims), number::TENSOR_RAW_DATA, &bytes)
    };
    let values = raw("w", 1, &[2], 8);
    let model = |sparse: &[u8]| with_in_graph(&relu(), number::GRAPH_SPARSE_INITIALIZER, sparse);
    accepted(&model(&sparse(&values, &indices(&[2], &[0, 11]), &[3, 4])), "linear");
    accepted(&model(&sparse(&values, &indices(&[2, 2], &[0, 3, 2, 0]), &[3, 4])), "by dimension");
    let packed = with(&tensor("i", 7, &[2]), number::TENSOR_INT64_DATA, &[0, 11]);
    accepted(&model(&sparse(&values, &packed, &[3, 4])), "packed");
    let bad = [
        (sparse(&values, &indices(&[2], &[0, 12]), &[3, 4]), "one of its indices is 12"),
        (sparse(&values, &indices(&[2], &[0, -1]), &[3, 4]), "one of its indices is -1"),
        (sparse(&values, &indices(&[2, 2], &[0, 4, 2, 0]), &[3, 4]), "one of its indices is 4"),
        (sparse(&values, &with(&tensor("i", 7, &[2]), 7, &[0, 12]), &[3, 4]), "one of its indices is 12"),
        (sparse(&values, &indices(&[1], &[0]), &[3, 4]), "its indices are i64 [1] instead of i64 [2, 2]"),
        (sparse(&values, &raw("i", 6, &[2], 8), &[3, 4]), "its indices are i32 [2] instead of"),
        (sparse(&values, &elsewhere("i", &[2], &[("location", "i")]), &[3, 4]), "its indices are f32 [2]"),
        (sparse(&values, &indices(&[2], &[0, 1]), &[1 << 40, 1 << 40]), "too large"),
        (sparse(&raw("w", 1, &[1, 2], 8), &indices(&[2], &[0, 1]), &[3, 4]), "its values have the dimensions [1, 2]"),
        (part(number::SPARSE_VALUES, &values), "has no indices"),
        (Vec::new(), "has no values"),
    ];
    for (message, says) in bad {
        let text = refused(&model(&message), says);
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn no_tensor_anywhere_reads_a_file_outside_of_the_models_directory() {
    for file in ["../secret.data", "/etc/passwd", "a/../../secret.data", ""] {
        let tensor = elsewhere("w", &[1], &[("location", file), ("offset", "0"), ("length", "4")]);
        for (place, model) in places(&tensor) {
            if place == "sparse indices" {
                continue;
            }
            let text = refused(&model, place);
            assert!(text.contains("outside its own directory") && text.contains(file), "{place}: {text}");
        }
    }
}

#[test]
fn data_in_another_file_is_measured() {
    let reason = |entries: &[(&str, &str)]| refused_tensor(&elsewhere("w", &[2], entries));
    for (entries, says) in [
        (&[][..], "does not name the file"),
        (&[("location", "*/_ORT_MEM_ADDR_/*"), ("offset", "4096")][..], "at an address in memory"),
        (&[("location", "w.data"), ("length", "4")], "of f32 [2] has 4 bytes and needs 8"),
        (&[("location", "w.data"), ("offset", "-8")], "has the offset `-8`, which is not a size"),
        (&[("location", "w.data"), ("length", "0x8")], "has the length `0x8`, which is not a size"),
        (&[("location", "w.data"), ("offset", "18446744073709551615")], "from the end of any file on"),
        (&[("location", "w.data"), ("location", "x.data")], "has two entries `location`"),
        (&[("location", "w.data"), ("prepacked_0", "key|0;4;")], "the unknown entry `prepacked_0`"),
    ] {
        let text = reason(entries);
        assert!(text.contains(says), "{text}");
    }
    let both = with(&elsewhere("w", &[2], &[("location", "w.data")]), number::TENSOR_RAW_DATA, &[0; 8]);
    assert!(refused_tensor(&both).contains("both in the model and in another file"));
    let mut unknown = raw("w", 1, &[2], 8);
    write_number(&mut unknown, number::TENSOR_DATA_LOCATION, 2);
    assert!(refused_tensor(&unknown).contains("in the unknown place 2"));
    let mut lossy = tensor("w", 1, &[2]);
    let entry = with(&part(number::FIRST, b"location"), number::SECOND, b"w\xff.data");
    write_bytes(&mut lossy, number::TENSOR_EXTERNAL_DATA, &entry);
    write_number(&mut lossy, number::TENSOR_DATA_LOCATION, 1);
    assert!(refused_tensor(&lossy).contains("not UTF-8"));
}

#[test]
fn the_other_file_must_be_a_file_and_long_enough() {
    let directory = tempfile::tempdir().unwrap();
    let tensor = elsewhere("w", &[2], &[("location", "w.data"), ("offset", "4"), ("length", "8")]);
    let path = save(directory.path(), &with_in_graph(&relu(), number::GRAPH_INITIALIZER, &tensor));
    let data = directory.path().join("w.data");
    let error = |backend| match Engine::load(&path, &options(backend)) {
        Err(error @ EngineError::ExternalData { .. }) => error.to_string(),
        Err(error) => panic!("{backend}: {error}"),
        Ok(_) => panic!("{backend} loads it"),
    };
    for backend in backends() {
        std::fs::write(&data, [0; 11]).unwrap();
        let text = error(backend);
        assert!(text.contains("it has 11 bytes, but tensor `w` ends at byte 12"), "{text}");
        std::fs::write(&data, [0; 12]).unwrap();
        load(backend, &path);
        // A pipe would wait for a writer.
        std::fs::remove_file(&data).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&data).status().unwrap();
        assert!(made.success());
        assert!(error(backend).contains("it is a pipe or a device"));
        std::fs::remove_file(&data).unwrap();
    }
}

#[test]
fn nesting_ends_where_a_parser_is_still_safe() {
    // Each level has a node with a graph in it.
    let graphs = |levels: usize| {
        let innermost = part(10, b"innermost");
        let node = |graph: &Vec<u8>| node_message(number::ATTRIBUTE_GRAPH, graph);
        let nested = (1..levels).fold(innermost, |graph, _| part(number::GRAPH_NODE, &node(&graph)));
        with_in_graph(&relu(), number::GRAPH_NODE, &node(&nested))
    };
    accepted(&graphs(32), "32 graphs");
    assert!(refused(&graphs(33), "33 graphs").contains("nested too deeply"));
    for (field, inner) in [(number::TYPE_SEQUENCE, 1), (number::TYPE_OPTIONAL, 1), (number::TYPE_MAP, 2)] {
        // Written from the inside out: each level is a few bytes, and a deep file is a small one.
        let types = |levels: usize| {
            let mut reversed: Vec<u8> = Vec::new();
            for _ in 0..levels {
                for (number, _) in [(inner, ()), (field, ())] {
                    let mut head = Vec::new();
                    write_bytes(&mut head, number, &vec![0; reversed.len()]);
                    head.truncate(head.len() - reversed.len());
                    reversed.extend(head.iter().rev());
                }
            }
            reversed.reverse();
            let value = with(&part(number::VALUE_NAME, b"v"), number::VALUE_TYPE, &reversed);
            with_in_graph(&relu(), number::GRAPH_VALUE_INFO, &value)
        };
        accepted(&types(32), "32 types");
        assert!(refused(&types(33), "33 types").contains("nested too deeply"));
        assert!(refused(&types(3_000), "3,000 types").contains("nested too deeply"));
    }
    let shape = (0..65).fold(Vec::new(), |shape, _| with(&shape, number::SHAPE_DIM, &[]));
    let declared = part(number::TYPE_TENSOR, &part(number::TENSOR_TYPE_SHAPE, &shape));
    let value = with(&part(number::VALUE_NAME, b"v"), number::VALUE_TYPE, &declared);
    let text = refused(&with_in_graph(&relu(), number::GRAPH_VALUE_INFO, &value), "rank");
    assert!(text.contains("the value `v` has more than 64 dimensions"), "{text}");
}

/// A chain of functions, each of which calls the next `calls` times; the last is the first again if `cycle`.
fn functions(levels: usize, calls: usize, cycle: bool) -> Vec<u8> {
    let call = |operator: &str| {
        let node = with(&part(number::NODE_INPUT, b"a"), number::NODE_OUTPUT, b"b");
        let node = with(&node, number::NODE_OP_TYPE, operator.as_bytes());
        if operator == "Relu" { node } else { with(&node, number::NODE_DOMAIN, b"local") }
    };
    let mut model = with_in_graph(&relu(), number::GRAPH_NODE, &call("f0"));
    for level in 0..levels {
        let next = match level + 1 {
            next if next < levels => format!("f{next}"),
            _ if cycle => "f0".to_owned(),
            _ => "Relu".to_owned(),
        };
        let mut function = part(number::FUNCTION_NAME, format!("f{level}").as_bytes());
        (0..calls).for_each(|_| write_bytes(&mut function, number::FUNCTION_NODE, &call(&next)));
        let function = with(&function, number::FUNCTION_DOMAIN, b"local");
        model = with(&model, number::MODEL_FUNCTIONS, &function);
    }
    model
}

#[test]
fn functions_that_never_end_are_refused() {
    let read = accepted(&functions(3, 2, false), "three levels");
    assert_eq!((read.operators["local.f0"], read.operators["local.f2"], read.operators["Relu"]), (1, 2, 3));
    accepted(&functions(32, 1, false), "32 levels");
    accepted(&functions(15, 2, false), "65,534 nodes");
    for levels in [1, 2, 5] {
        assert!(refused(&functions(levels, 1, true), "a cycle").contains("nested too deeply"));
    }
    assert!(refused(&functions(33, 1, false), "33 levels").contains("nested too deeply"));
    for levels in [16, 30] {
        let text = refused(&functions(levels, 2, false), "doubled");
        assert!(text.contains("its functions expand to more than 100000 nodes"), "{text}");
    }
}
