//! The parts that all backends share: the options to load a model, what a model declares, and the traits that a backend
//! implements.

mod error;
mod model_file;
mod options;
mod program;
mod tensor_info;

pub use error::EngineError;
pub use model_file::ModelFile;
pub(crate) use model_file::{open_model_file, read_small_file, read_small_text};
pub use options::{Backend, DeviceChoice, EngineOptions};
pub(crate) use program::{BackendModel, InputTensor, Program, ProgramContext};
pub use tensor_info::{Dim, TensorInfo, dims_text};
pub(crate) use tensor_info::{one_line, picture_size};
