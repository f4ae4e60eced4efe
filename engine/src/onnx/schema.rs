//! The numbers of onnx.proto: fields of its messages, and types of elements.
//!
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>

use visiond_kernels::tensor::DType;

/// Field numbers of the messages in onnx.proto.
pub(super) mod number {
    pub(crate) const MODEL_IR_VERSION: u64 = 1;
    pub(crate) const MODEL_PRODUCER_NAME: u64 = 2;
    pub(crate) const MODEL_PRODUCER_VERSION: u64 = 3;
    pub(crate) const MODEL_GRAPH: u64 = 7;
    pub(crate) const MODEL_OPSET_IMPORT: u64 = 8;
    pub(crate) const MODEL_METADATA: u64 = 14;
    /// The highest that onnx.proto has had so far.
    pub(crate) const MODEL_LAST: u64 = 26;
    pub(crate) const GRAPH_NODE: u64 = 1;
    pub(crate) const GRAPH_INITIALIZER: u64 = 5;
    pub(crate) const GRAPH_INPUT: u64 = 11;
    pub(crate) const GRAPH_OUTPUT: u64 = 12;
    pub(crate) const GRAPH_VALUE_INFO: u64 = 13;
    pub(crate) const GRAPH_SPARSE_INITIALIZER: u64 = 15;
    pub(crate) const NODE_INPUT: u64 = 1;
    pub(crate) const NODE_OUTPUT: u64 = 2;
    pub(crate) const NODE_NAME: u64 = 3;
    pub(crate) const NODE_OP_TYPE: u64 = 4;
    pub(crate) const NODE_ATTRIBUTE: u64 = 5;
    pub(crate) const NODE_DOMAIN: u64 = 7;
    pub(crate) const ATTRIBUTE_NAME: u64 = 1;
    pub(crate) const ATTRIBUTE_INT: u64 = 3;
    pub(crate) const ATTRIBUTE_TENSOR: u64 = 5;
    pub(crate) const ATTRIBUTE_GRAPH: u64 = 6;
    pub(crate) const ATTRIBUTE_GRAPHS: u64 = 11;
    pub(crate) const ATTRIBUTE_TYPE: u64 = 20;
    pub(crate) const TENSOR_DIMS: u64 = 1;
    pub(crate) const TENSOR_DATA_TYPE: u64 = 2;
    pub(crate) const TENSOR_FLOAT_DATA: u64 = 4;
    pub(crate) const TENSOR_INT32_DATA: u64 = 5;
    pub(crate) const TENSOR_NAME: u64 = 8;
    pub(crate) const TENSOR_RAW_DATA: u64 = 9;
    pub(crate) const TENSOR_EXTERNAL_DATA: u64 = 13;
    pub(crate) const SPARSE_VALUES: u64 = 1;
    pub(crate) const VALUE_NAME: u64 = 1;
    pub(crate) const VALUE_TYPE: u64 = 2;
    pub(crate) const TYPE_TENSOR: u64 = 1;
    pub(crate) const TYPE_SEQUENCE: u64 = 4;
    pub(crate) const TYPE_MAP: u64 = 5;
    pub(crate) const TYPE_SPARSE: u64 = 8;
    pub(crate) const TYPE_OPTIONAL: u64 = 9;
    pub(crate) const TENSOR_TYPE_ELEMENT: u64 = 1;
    pub(crate) const TENSOR_TYPE_SHAPE: u64 = 2;
    pub(crate) const SHAPE_DIM: u64 = 1;
    pub(crate) const DIM_VALUE: u64 = 1;
    pub(crate) const DIM_PARAM: u64 = 2;
    /// Of `StringStringEntryProto` and `OperatorSetIdProto`.
    pub(crate) const FIRST: u64 = 1;
    pub(crate) const SECOND: u64 = 2;
}

/// Numbers of `TensorProto.DataType`.
pub(super) mod element {
    pub(crate) const FLOAT: i64 = 1;
    pub(crate) const UINT8: i64 = 2;
    pub(crate) const INT32: i64 = 6;
    pub(crate) const INT64: i64 = 7;
    pub(crate) const BOOL: i64 = 9;
    pub(crate) const FLOAT16: i64 = 10;
    pub(crate) const BFLOAT16: i64 = 16;
}

/// The element type of a `TensorProto.DataType`, where it is one of ours.
pub(super) fn dtype(element: i64) -> Option<DType> {
    Some(match element {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        _ => return None,
    })
}

/// The name of a `TensorProto.DataType` that is not one of ours.
pub(super) fn element_name(element: i64) -> String {
    match element {
        0 => "undeclared type",
        4 => "u16",
        5 => "i16",
        8 => "strings",
        11 => "f64",
        12 => "u32",
        13 => "u64",
        14 | 15 => "complex numbers",
        16 => "bf16",
        17..=20 => "8-bit floats",
        21 | 22 => "4-bit integers",
        _ => return format!("element type {element}"),
    }
    .to_owned()
}
