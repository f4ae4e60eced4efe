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
    pub const MODEL_TRAINING_INFO: u64 = 20;
    pub const MODEL_FUNCTIONS: u64 = 25;
    /// The highest field number of `ModelProto` so far.
    pub const MODEL_LAST: u64 = 26;
    pub const GRAPH_NODE: u64 = 1;
    pub const GRAPH_INITIALIZER: u64 = 5;
    pub const GRAPH_INPUT: u64 = 11;
    pub const GRAPH_OUTPUT: u64 = 12;
    pub const GRAPH_VALUE_INFO: u64 = 13;
    pub const GRAPH_SPARSE_INITIALIZER: u64 = 15;
    pub const TRAINING_INITIALIZATION: u64 = 1;
    pub const TRAINING_ALGORITHM: u64 = 2;
    pub const FUNCTION_NAME: u64 = 1;
    pub const FUNCTION_NODE: u64 = 7;
    pub const FUNCTION_DOMAIN: u64 = 10;
    pub const FUNCTION_ATTRIBUTE: u64 = 11;
    pub const FUNCTION_VALUE_INFO: u64 = 12;
    pub const NODE_INPUT: u64 = 1;
    pub const NODE_OUTPUT: u64 = 2;
    pub const NODE_NAME: u64 = 3;
    pub const NODE_OP_TYPE: u64 = 4;
    pub const NODE_ATTRIBUTE: u64 = 5;
    pub const NODE_DOMAIN: u64 = 7;
    pub const ATTRIBUTE_NAME: u64 = 1;
    pub const ATTRIBUTE_FLOAT: u64 = 2;
    pub const ATTRIBUTE_INT: u64 = 3;
    pub const ATTRIBUTE_STRING: u64 = 4;
    pub const ATTRIBUTE_TENSOR: u64 = 5;
    pub const ATTRIBUTE_GRAPH: u64 = 6;
    pub const ATTRIBUTE_FLOATS: u64 = 7;
    pub const ATTRIBUTE_INTS: u64 = 8;
    pub const ATTRIBUTE_STRINGS: u64 = 9;
    pub const ATTRIBUTE_TENSORS: u64 = 10;
    pub const ATTRIBUTE_GRAPHS: u64 = 11;
    pub const ATTRIBUTE_TYPE_PROTO: u64 = 14;
    pub const ATTRIBUTE_TYPE_PROTOS: u64 = 15;
    pub const ATTRIBUTE_TYPE: u64 = 20;
    pub const ATTRIBUTE_SPARSE_TENSOR: u64 = 22;
    pub const ATTRIBUTE_SPARSE_TENSORS: u64 = 23;
    pub const TENSOR_DIMS: u64 = 1;
    pub const TENSOR_DATA_TYPE: u64 = 2;
    pub const TENSOR_FLOAT_DATA: u64 = 4;
    pub const TENSOR_INT32_DATA: u64 = 5;
    pub const TENSOR_STRING_DATA: u64 = 6;
    pub const TENSOR_INT64_DATA: u64 = 7;
    pub const TENSOR_NAME: u64 = 8;
    pub const TENSOR_RAW_DATA: u64 = 9;
    pub const TENSOR_DOUBLE_DATA: u64 = 10;
    pub const TENSOR_UINT64_DATA: u64 = 11;
    pub const TENSOR_EXTERNAL_DATA: u64 = 13;
    pub const TENSOR_DATA_LOCATION: u64 = 14;
    pub const SPARSE_VALUES: u64 = 1;
    pub const SPARSE_INDICES: u64 = 2;
    pub const SPARSE_DIMS: u64 = 3;
    pub const VALUE_NAME: u64 = 1;
    pub const VALUE_TYPE: u64 = 2;
    pub const TYPE_TENSOR: u64 = 1;
    pub const TYPE_SEQUENCE: u64 = 4;
    pub const TYPE_MAP: u64 = 5;
    pub const TYPE_SPARSE: u64 = 8;
    pub const TYPE_OPTIONAL: u64 = 9;
    pub const TYPE_ELEMENT: u64 = 1;
    pub const TYPE_MAP_VALUE: u64 = 2;
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
    pub const STRING: i64 = 8;
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

/// How the elements of a `TensorProto` are stored.
pub(super) struct Storage {
    /// The size of an element in `raw_data` and in other files; 0 for strings, which are never stored there.
    bits: u64,
    /// The field for elements that are not raw.
    pub(super) field: u64,
    /// The size of a field's value: a complex number takes two values, and a value holds two 4-bit integers.
    bits_per_value: u64,
}

impl Storage {
    /// Returns the size of `count` elements as raw data; `count` is below 2^59.
    pub(super) fn bytes(&self, count: u64) -> u64 {
        self.needed(count, 8)
    }

    /// Returns the number of values of the typed field for `count` elements; `count` is below 2^59.
    pub(super) fn values(&self, count: u64) -> u64 {
        if self.bits == 0 { count } else { self.needed(count, self.bits_per_value) }
    }

    fn needed(&self, count: u64, unit_bits: u64) -> u64 {
        (u128::from(count) * u128::from(self.bits)).div_ceil(unit_bits.into()) as u64
    }
}

/// Returns how a `TensorProto.DataType` is stored, if it is a known one.
pub(super) fn storage(element: i64) -> Option<Storage> {
    let (bits, field) = match element {
        1 => (32, number::TENSOR_FLOAT_DATA),
        2 | 3 | 9 | 17..=20 | 24 => (8, number::TENSOR_INT32_DATA),
        4 | 5 | 10 | 16 => (16, number::TENSOR_INT32_DATA),
        6 => (32, number::TENSOR_INT32_DATA),
        7 => (64, number::TENSOR_INT64_DATA),
        element::STRING => (0, number::TENSOR_STRING_DATA),
        11 => (64, number::TENSOR_DOUBLE_DATA),
        12 => (32, number::TENSOR_UINT64_DATA),
        13 => (64, number::TENSOR_UINT64_DATA),
        14 => (64, number::TENSOR_FLOAT_DATA),
        15 => (128, number::TENSOR_DOUBLE_DATA),
        21..=23 => (4, number::TENSOR_INT32_DATA),
        25 | 26 => (2, number::TENSOR_INT32_DATA),
        _ => return None,
    };
    let bits_per_value = match element {
        14 => 32,
        15 => 64,
        _ => bits.max(8),
    };
    Some(Storage { bits, field, bits_per_value })
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
        23 => "4-bit floats",
        24 => "8-bit exponents",
        25 | 26 => "2-bit integers",
        _ => return format!("element type {element}"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_of_onnx_is_read_or_named() {
        let known: Vec<_> = (0..30).filter_map(|element| Some((element, dtype(element)?.name()))).collect();
        assert_eq!(known, [(1, "f32"), (2, "u8"), (3, "i8"), (6, "i32"), (7, "i64"), (9, "bool"), (10, "f16")]);
        let others = [
            (0, "undeclared type"),
            (4, "u16"),
            (5, "i16"),
            (8, "strings"),
            (11, "f64"),
            (12, "u32"),
            (13, "u64"),
            (14, "complex numbers"),
            (15, "complex numbers"),
            (16, "bf16"),
            (17, "8-bit floats"),
            (20, "8-bit floats"),
            (21, "4-bit integers"),
            (22, "4-bit integers"),
            (23, "4-bit floats"),
            (24, "8-bit exponents"),
            (25, "2-bit integers"),
            (26, "2-bit integers"),
            (27, "element type 27"),
            (-1, "element type -1"),
        ];
        for (element, name) in others {
            assert_eq!(element_name(element), name);
            assert!(storage(element).is_some() == (1..27).contains(&element), "{element}");
        }
    }

    #[test]
    fn elements_that_share_bytes_or_values_round_up() {
        // An element type, and the bytes and values that seven elements need.
        for (element, bytes, values) in [
            (1, 28, 7),
            (2, 7, 7),
            (10, 14, 7),
            (7, 56, 7),
            (8, 0, 7),
            (12, 28, 7),
            (14, 56, 14),
            (15, 112, 14),
            (22, 4, 4),
            (25, 2, 2),
        ] {
            let found = storage(element).map(|storage| (storage.bytes(7), storage.values(7)));
            assert_eq!(found, Some((bytes, values)), "{element}");
        }
    }
}
