//! Small test models, written by another crate's encoder, and the backends to test them on.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Once;

use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataLocation, DataType, Dimension, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto, TypeProto, TypeProtoTensor,
    ValueInfoProto,
};
use rten_onnx::protobuf::{EncodeMessage, ValueWriter};
use visiond_engine::engine::{Backend, Engine, EngineOptions, Session};
use visiond_engine::onnx::{onnxruntime, silence_telemetry};

/// The backends on this machine: rten always, ONNX Runtime where its library is found.
pub fn backends() -> Vec<Backend> {
    static SILENCE: Once = Once::new();
    // SAFETY: the first thing every test does, before any of them opens a library that reads the environment on its own;
    // Rust's own reads wait for the write.
    SILENCE.call_once(|| unsafe { silence_telemetry() });
    let mut backends = vec![Backend::Rten];
    match onnxruntime::find(None) {
        Ok(_) => backends.push(Backend::OnnxRuntime),
        Err(error) => eprintln!("tested with rten alone: {error}"),
    }
    backends
}

pub fn options(backend: Backend) -> EngineOptions {
    EngineOptions { backend: Some(backend), threads: 1, ..EngineOptions::default() }
}

pub fn load(backend: Backend, path: &Path) -> Engine {
    Engine::load(path, &options(backend)).unwrap()
}

pub enum D {
    Is(i64),
    Named(&'static str),
    Open,
}

pub fn dims(sizes: &[i64]) -> Vec<D> {
    sizes.iter().map(|&size| D::Is(size)).collect()
}

pub fn value(name: &str, dtype: DataType, dims: Option<Vec<D>>) -> ValueInfoProto {
    let dim = |dim| match dim {
        D::Is(size) => Dimension { dim_value: Some(size), dim_param: None },
        D::Named(name) => Dimension { dim_value: None, dim_param: Some(name.to_owned()) },
        D::Open => Dimension::default(),
    };
    let shape = dims.map(|dims| TensorShapeProto { dim: dims.into_iter().map(dim).collect() });
    let tensor_type = Some(TypeProtoTensor { elem_type: Some(dtype), shape });
    ValueInfoProto { name: Some(name.to_owned()), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}

pub fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        name: Some(format!("the {operator} of {}", outputs[0])),
        op_type: Some(operator.to_owned()),
        input: inputs.iter().map(|&s| s.to_owned()).collect(),
        output: outputs.iter().map(|&s| s.to_owned()).collect(),
        ..NodeProto::default()
    }
}

pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        i: Some(value),
        r#type: Some(AttributeType::INT),
        ..AttributeProto::default()
    }
}

pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        ints: values.to_vec(),
        r#type: Some(AttributeType::INTS),
        ..AttributeProto::default()
    }
}

pub fn weights(name: &str, shape: &[i64], numbers: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        dims: shape.to_vec(),
        data_type: Some(DataType::FLOAT),
        raw_data: Some(RefCell::new(numbers.iter().flat_map(|n| n.to_le_bytes()).collect())),
        ..TensorProto::default()
    }
}

/// Weights whose bytes are in another file.
pub fn external(name: &str, shape: &[i64], file: &str) -> TensorProto {
    let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.to_owned()), value: Some(value) };
    let length = shape.iter().product::<i64>() * 4;
    TensorProto {
        name: Some(name.to_owned()),
        dims: shape.to_vec(),
        data_type: Some(DataType::FLOAT),
        data_location: Some(DataLocation::EXTERNAL),
        external_data: vec![
            entry("location", file.to_owned()),
            entry("offset", "0".to_owned()),
            entry("length", length.to_string()),
        ],
        ..TensorProto::default()
    }
}

pub fn graph(nodes: Vec<NodeProto>, inputs: Vec<ValueInfoProto>, outputs: Vec<ValueInfoProto>) -> GraphProto {
    GraphProto { node: nodes, input: inputs, output: outputs, ..GraphProto::default() }
}

pub fn model(graph: GraphProto) -> ModelProto {
    let opset = OperatorSetIdProto { domain: Some(String::new()), version: Some(17) };
    ModelProto {
        ir_version: Some(8),
        producer_name: Some("a test".to_owned()),
        graph: Some(graph),
        opset_import: vec![opset],
        ..ModelProto::default()
    }
}

pub fn encode(model: &ModelProto) -> Vec<u8> {
    let mut bytes = Vec::new();
    model.encode(ValueWriter::new(&mut bytes)).unwrap();
    bytes
}

pub fn write(directory: &Path, name: &str, model: &ModelProto) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, encode(model)).unwrap();
    path
}

pub fn set<const N: usize>(session: &mut Session, index: usize, elements: impl IntoIterator<Item = [u8; N]>) {
    let mut tensor = session.input_mut(index);
    let bytes: Vec<u8> = elements.into_iter().flatten().collect();
    tensor.bytes().copy_from_slice(&bytes);
}

pub fn set_f32(session: &mut Session, index: usize, numbers: &[f32]) {
    set(session, index, numbers.iter().map(|n| n.to_ne_bytes()));
}

pub fn run(session: &mut Session) -> (Vec<usize>, Vec<f32>) {
    session.run().unwrap();
    let output = session.output(0).unwrap();
    (output.shape().to_vec(), output.to_f32().into_owned())
}
