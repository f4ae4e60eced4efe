//! Why a model cannot be rewritten.

use std::io;
use std::path::PathBuf;

use visiond_engine::builder_api::onnx::WireError;

/// A network cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrecisionError {
    /// The file is broken.
    #[error("the model's fields make no sense: copy or export it again")]
    Malformed,
    /// Weights in another file cannot be read.
    #[error("the weights in {path} cannot be read ({error}): copy the file into the model's directory again")]
    External {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A rule means no layer.
    #[error("no layer is called `{layers}`: near are {near}")]
    NoSuchLayer {
        /// As in the rule.
        layers: String,
        /// Names that are like it.
        near: String,
    },
    /// An input cannot become half precision.
    #[error("the input `{name}` is used inside of a loop or branch and must stay FP32: build without half inputs")]
    HalfInput {
        /// The input.
        name: String,
    },
    /// A rule wants the other half precision.
    #[error("`{layers}` cannot be {asked} in a network of {whole}: one half precision serves the whole network")]
    OtherHalf {
        /// As in the rule.
        layers: String,
        /// Wanted by the rule.
        asked: &'static str,
        /// Of the network.
        whole: &'static str,
    },
}

impl From<WireError> for PrecisionError {
    fn from(_: WireError) -> Self {
        Self::Malformed
    }
}
