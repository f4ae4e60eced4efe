//! The backends by name.

use std::fmt;

/// What runs a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// ONNX Runtime's library, opened at run time.
    OnnxRuntime,
    /// rten, compiled in.
    Rten,
    /// TensorRT's library, opened at run time: engines on the GPU.
    TensorRt,
}

impl Backend {
    /// The name used in the configuration and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "onnxruntime",
            Self::Rten => "rten",
            Self::TensorRt => "tensorrt",
        }
    }
}

/// The name that people know it by.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnnxRuntime => "ONNX Runtime",
            Self::Rten => "rten",
            Self::TensorRt => "TensorRT",
        })
    }
}
