//! The field numbers and element types of onnx.proto.
//!
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>

use visiond_kernels::tensor::DType;

/// The field numbers of the messages in onnx.proto.
#[expect(missing_docs, reason = "the names are those of onnx.proto")]
pub mod number {
    pub const MODEL_IR_VERSION: u64 = 1;
    pub const MODEL_PRODUCER_NAME: u64 = 2;
    pub const MODEL_PRODUCER_VERSION: u64 = 3;
    pub const MODEL_GRAPH: u64 = 7;
    pub const MODEL_OPSET_IMPORT: u64 = 8;
    pub const MODEL_METADATA: u64 = 14;
    /// The highest field number of `ModelProto` so far.
    pub const MODEL_LAST: u64 = 26;
    pub const GRAPH_NODE: u64 = 1;
    pub const GRAPH_INITIALIZER: u64 = 5;
    pub const GRAPH_INPUT: u64 = 11;
    pub const GRAPH_OUTPUT: u64 = 12;
    pub const GRAPH_VALUE_INFO: u64 = 13;
    pub const GRAPH_SPARSE_INITIALIZER: u64 = 15;
    pub const NODE_INPUT: u64 = 1;
    pub const NODE_OUTPUT: u64 = 2;
    pub const NODE_NAME: u64 = 3;
    pub const NODE_OP_TYPE: u64 = 4;
    pub const NODE_ATTRIBUTE: u64 = 5;
    pub const NODE_DOMAIN: u64 = 7;
    pub const ATTRIBUTE_NAME: u64 = 1;
    pub const ATTRIBUTE_INT: u64 = 3;
    pub const ATTRIBUTE_TENSOR: u64 = 5;
    pub const ATTRIBUTE_GRAPH: u64 = 6;
    pub const ATTRIBUTE_GRAPHS: u64 = 11;
    pub const ATTRIBUTE_TYPE: u64 = 20;
    pub const TENSOR_DIMS: u64 = 1;
    pub const TENSOR_DATA_TYPE: u64 = 2;
    pub const TENSOR_FLOAT_DATA: u64 = 4;
    pub const TENSOR_INT32_DATA: u64 = 5;
    pub const TENSOR_NAME: u64 = 8;
    pub const TENSOR_RAW_DATA: u64 = 9;
    pub const TENSOR_EXTERNAL_DATA: u64 = 13;
    pub const SPARSE_VALUES: u64 = 1;
    pub const VALUE_NAME: u64 = 1;
    pub const VALUE_TYPE: u64 = 2;
    pub const TYPE_TENSOR: u64 = 1;
    pub const TYPE_SEQUENCE: u64 = 4;
    pub const TYPE_MAP: u64 = 5;
    pub const TYPE_SPARSE: u64 = 8;
    pub const TYPE_OPTIONAL: u64 = 9;
    pub const TENSOR_TYPE_ELEMENT: u64 = 1;
    pub const TENSOR_TYPE_SHAPE: u64 = 2;
    pub const SHAPE_DIM: u64 = 1;
    pub const DIM_VALUE: u64 = 1;
    pub const DIM_PARAM: u64 = 2;
    /// The first field of `StringStringEntryProto` and `OperatorSetIdProto`.
    pub const FIRST: u64 = 1;
    pub const SECOND: u64 = 2;
}

/// The values of `TensorProto.DataType`.
#[expect(missing_docs, reason = "the names are those of onnx.proto")]
pub mod element {
    pub const FLOAT: i64 = 1;
    pub const UINT8: i64 = 2;
    pub const INT32: i64 = 6;
    pub const INT64: i64 = 7;
    pub const BOOL: i64 = 9;
    pub const FLOAT16: i64 = 10;
    pub const BFLOAT16: i64 = 16;
}

/// Returns the element type for a `TensorProto.DataType`, if visiond supports it.
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

/// Returns the name of a `TensorProto.DataType` that visiond does not support.
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
