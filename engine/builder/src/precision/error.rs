//! Why a model cannot be rewritten.

use std::io;
use std::path::PathBuf;

use visiond_engine::builder_api::onnx::WireError;

/// Why a model cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrecisionError {
    /// The file is damaged.
    #[error("the model's fields make no sense: copy or export it again")]
    Malformed,
    /// External weights cannot be read.
    #[error("cannot read the weights in {path}: {error}; copy the file into the model's directory again")]
    External {
        /// The file.
        path: PathBuf,
        /// The error from the operating system.
        error: io::Error,
    },
    /// A rule matches no layer.
    #[error("no layer is called `{layers}`; similar names: {near}")]
    NoSuchLayer {
        /// As in the rule.
        layers: String,
        /// Similar names.
        near: String,
    },
    /// An input cannot become half precision.
    #[error("the input `{name}` is used inside a loop or branch and must stay FP32: build without half inputs")]
    HalfInput {
        /// The input.
        name: String,
    },
    /// A rule asks for the other half-precision type.
    #[error("`{layers}` cannot be {asked} in a {whole} model: use one half-precision type for the whole model")]
    OtherHalf {
        /// As in the rule.
        layers: String,
        /// The type that the rule asks for.
        asked: &'static str,
        /// The type of the model.
        whole: &'static str,
    },
}

impl From<WireError> for PrecisionError {
    fn from(_: WireError) -> Self {
        Self::Malformed
    }
}
