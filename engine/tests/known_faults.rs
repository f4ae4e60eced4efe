//! Faults of the backends that are worked around: each with its tiny model, on the versions that are here.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use rten_onnx::onnx::{AttributeProto, AttributeType, DataType, GraphProto, NodeProto};
use visiond_engine::engine::EngineOptions;
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
