//! What a backend implements: [`Program`] is a loaded model, [`ProgramContext`] runs it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use visiond_kernels::tensor::TensorRef;

use super::error::EngineError;
use super::input_tensor::InputTensor;
use super::kind::Backend;
use super::model_file::ModelFile;
use super::tensor_info::TensorInfo;

/// A model that a backend has loaded.
pub(crate) trait Program: Any + Send + Sync {
    /// Makes a new context of the model.
    fn context(&self) -> Result<Box<dyn ProgramContext>, EngineError>;
}

/// One context of a [`Program`]: runs the model and keeps the outputs of the last run.
pub(crate) trait ProgramContext: Send {
    /// Runs over `inputs`, which are in the order of the model's inputs and have their final shapes.
    fn run(&mut self, inputs: &[InputTensor]) -> Result<(), EngineError>;

    /// Returns an output of the last run; `index` is below the number of outputs.
    fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError>;
}

/// A model's file that a backend has loaded.
pub(crate) struct BackendModel {
    pub(crate) program: Box<dyn Program>,
    pub(crate) backend: Backend,
    pub(crate) description: String,
    pub(crate) file: ModelFile,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) inputs: Arc<[TensorInfo]>,
    pub(crate) outputs: Arc<[TensorInfo]>,
}
