//! What a backend implements: [`Program`] is a loaded model, [`Context`] runs it.

use std::any::Any;
use std::collections::BTreeMap;

use visiond_kernels::tensor::TensorRef;

use super::error::EngineError;
use super::input_tensor::InputTensor;
use super::kind::Backend;
use super::model_file::ModelFile;
use super::tensor_info::TensorInfo;

/// A model that a backend has loaded.
pub(crate) trait Program: Any + Send + Sync {
    /// Makes a new context of the model.
    fn context(&self) -> Result<Box<dyn Context>, EngineError>;
}

/// One context of a [`Program`]: runs the model and keeps the outputs of the last run.
pub(crate) trait Context: Send {
    /// Runs over `inputs`, which are in the order of the model's inputs and have their final shapes.
    fn run(&mut self, inputs: &[InputTensor]) -> Result<(), EngineError>;

    /// Returns an output of the last run; `index` is below the number of outputs.
    fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError>;
}

/// What a backend returns for a file.
pub(crate) struct Loaded {
    pub(crate) program: Box<dyn Program>,
    pub(crate) backend: Backend,
    pub(crate) description: String,
    pub(crate) file: ModelFile,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) inputs: Vec<TensorInfo>,
    pub(crate) outputs: Vec<TensorInfo>,
}
