//! Faults of the backends that are worked around: each with its tiny model, on the versions that are here.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use rten_onnx::onnx::{AttributeProto, AttributeType, DataType, GraphProto, NodeProto};
use visiond_engine::engine::{Backend, Engine, EngineOptions};
use visiond_engine::onnx::known_faults::KNOWN_FAULTS;

#[test]
fn every_known_fault_is_worked_around() {
    for fault in KNOWN_FAULTS.iter().filter(|fault| backends().contains(&fault.backend)) {
        let checked = fault.check(&EngineOptions::default());
        assert!(checked.is_ok(), "{}: {}", fault.name, checked.unwrap_err());
    }
}

/// The weights come from an initializer, from a Constant, or through operators that keep their shape.
#[test]
fn a_convolution_needs_no_kernel_shape_wherever_its_weights_come_from() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = weights("kernel", &[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let constant = || {
        let value = AttributeProto {
            name: Some("value".to_owned()),
            t: Some(kernel.clone()),
            r#type: Some(AttributeType::TENSOR),
            ..AttributeProto::default()
        };
        NodeProto { attribute: vec![value], ..node("Constant", &[], &["kernel"]) }
    };
    let identity = || vec![node("Identity", &["kernel"], &["same"]), node("Identity", &["same"], &["again"])];
    for (nodes, weights, initializers) in [
        (vec![], "kernel", vec![kernel.clone()]),
        (vec![constant()], "kernel", vec![]),
        (identity(), "again", vec![kernel.clone()]),
        ([vec![constant()], identity()].concat(), "again", vec![]),
    ] {
        let nodes = [nodes, vec![node("Conv", &["x", weights], &["y"])]].concat();
        let graph = graph(
            nodes,
            vec![value("x", DataType::FLOAT, Some(dims(&[1, 1, 3, 3])))],
            vec![value("y", DataType::FLOAT, Some(dims(&[1, 1, 2, 2])))],
        );
        let path = write(directory.path(), "m.onnx", &model(GraphProto { initializer: initializers, ..graph }));
        for backend in backends() {
            let mut session = load(backend, &path).session().unwrap();
            set_f32(&mut session, 0, &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
            assert_eq!(run(&mut session), (vec![1, 1, 2, 2], vec![5.0, 3.0, 2.0, 5.0]), "{backend}: {weights}");
        }
    }
}

fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        s: Some(value.to_owned()),
        r#type: Some(AttributeType::STRING),
        ..AttributeProto::default()
    }
}

/// Padding of an even number of pixels and of an odd one, of convolutions and of poolings, against ONNX Runtime.
#[test]
fn padding_that_begins_with_the_odd_pixel_is_right_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let kernel =
        |size: i64| weights("kernel", &[1, 1, size, size], &(1..=size * size).map(|n| n as f32).collect::<Vec<_>>());
    let lower = || text("auto_pad", "SAME_LOWER");
    let numbers: Vec<f32> = (0..49).map(|n| (n * n % 23) as f32).collect();
    let with = |operator: &str, size: i64, attributes: Vec<AttributeProto>, sides: i64| {
        let inputs: &[&str] = if operator == "Conv" { &["x", "kernel"] } else { &["x"] };
        let nodes = vec![NodeProto { attribute: attributes, ..node(operator, inputs, &["y"]) }];
        let graph = graph(
            nodes,
            vec![value("x", DataType::FLOAT, Some(dims(&[1, 1, 7, 7])))],
            vec![value("y", DataType::FLOAT, Some(dims(&[1, 1, sides, sides])))],
        );
        let initializer = if operator == "Conv" { vec![kernel(size)] } else { vec![] };
        write(directory.path(), "m.onnx", &model(GraphProto { initializer, ..graph }))
    };
    for (operator, size, attributes) in [
        ("Conv", 2, vec![lower()]),
        ("Conv", 3, vec![lower()]),
        ("Conv", 4, vec![lower(), ints("kernel_shape", &[4, 4]), ints("strides", &[1, 1])]),
        ("MaxPool", 2, vec![lower(), ints("kernel_shape", &[2, 2])]),
        ("AveragePool", 4, vec![lower(), ints("kernel_shape", &[4, 4])]),
    ] {
        let path = with(operator, size, attributes, 7);
        let found: Vec<_> = backends()
            .into_iter()
            .map(|backend| {
                let mut session = load(backend, &path).session().unwrap();
                set_f32(&mut session, 0, &numbers);
                run(&mut session)
            })
            .collect();
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{operator} {size}: {found:?}");
    }
    let path = with("MaxPool", 3, vec![lower(), ints("kernel_shape", &[3, 3]), ints("strides", &[2, 2])], 4);
    let error = Engine::load(&path, &options(Backend::Rten)).unwrap_err().to_string();
    assert!(error.contains("`MaxPool` node `the MaxPool of y` has `auto_pad = SAME_LOWER`"), "{error}");
}
