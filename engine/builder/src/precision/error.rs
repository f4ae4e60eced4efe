//! Why a model cannot be rewritten.

use std::io;
use std::path::PathBuf;

use visiond_engine::builder_api::onnx::WireError;

/// Why a model cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrecisionError {
    /// The file is damaged.
    #[error("the model's file is damaged: copy or export it again")]
    Malformed,
    /// External weights cannot be read.
    #[error("cannot read the weights in {0}: {1}; copy the file into the model's directory again")]
    External(PathBuf, io::Error),
    /// A rule matches no layer: the pattern, and similar names.
    #[error("no layer is called `{0}`; similar names: {1}")]
    NoSuchLayer(String, String),
    /// An input cannot become half precision.
    #[error("the input `{0}` is used inside a loop or branch and must stay FP32: build without half inputs")]
    HalfInput(String),
    /// A rule requests the other half-precision type.
    #[error("`{layers}` cannot be {asked} in a {whole} model: use one half-precision type for the whole model")]
    OtherHalf {
        /// As in the rule.
        layers: String,
        /// The type that the rule requests.
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
