//! Which backend runs a model.

use std::fmt;

/// Which backend runs a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// ONNX Runtime's library, opened at run time.
    OnnxRuntime,
    /// rten, compiled in.
    Rten,
    /// TensorRT's library, opened at run time: runs engines on the GPU.
    TensorRt,
}

impl Backend {
    /// Returns the name used in the configuration and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "onnxruntime",
            Self::Rten => "rten",
            Self::TensorRt => "tensorrt",
        }
    }
}

/// Writes the product's name.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnnxRuntime => "ONNX Runtime",
            Self::Rten => "rten",
            Self::TensorRt => "TensorRT",
        })
    }
}
