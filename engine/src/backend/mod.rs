//! What all backends share: the options to load a model, what a model declares, and the traits that a backend implements.

mod error;
mod input_tensor;
mod kind;
mod model_file;
mod options;
mod program;
mod tensor_info;

pub use error::EngineError;
pub(crate) use input_tensor::InputTensor;
pub use kind::Backend;
pub use model_file::ModelFile;
pub(crate) use model_file::open_model_file;
pub use options::{DeviceChoice, EngineOptions};
pub(crate) use program::{BackendModel, Program, ProgramContext};
pub(crate) use tensor_info::picture_size;
pub use tensor_info::{Dim, TensorInfo, dims_text};
