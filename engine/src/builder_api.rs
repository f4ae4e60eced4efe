//! The interface that only the crate `visiond-engine-builder` uses: TensorRT's objects and callbacks, and the wire format of
//! `.onnx` files.

/// TensorRT's objects, their vtables, and our objects that TensorRT calls back.
pub mod tensorrt {
    pub use crate::tensorrt::abi::builder;
    pub use crate::tensorrt::abi::runtime::{self, host_bytes};
    pub use crate::tensorrt::abi::{
        Abi, Class, Dims32, Dims64, Implementation, Method, Object, Owned, RawObject, Slot, Virtuals, call, dims_32,
        dims_64,
    };
    pub use crate::tensorrt::callback::{InterfaceInfo, VTable, language_is_cpp, no_destructor, text, vtable};
    pub use crate::tensorrt::error_recorder::ErrorRecorder;
}

/// The fields of onnx.proto, and functions that read and write them.
pub mod onnx {
    pub use crate::onnx::file::node_at;
    pub use crate::onnx::schema::{element, number};
    pub use crate::onnx::wire::{Field, Fields, Value, WireError, fields, packed, write_bytes, write_number};
}
