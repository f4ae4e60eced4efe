//! Runs the model of a known fault, to check whether the workaround helps.

use std::path::Path;

use visiond_kernels::tensor::DType;

use super::file::parse;
use super::known_faults::KnownFault;
use super::load::load_parsed;
use crate::backend::{EngineError, EngineOptions, ModelFile};
use crate::session::Session;

/// The tolerance of an output.
const TOLERANCE: f32 = 1e-4;

/// Why the model of a fault did not produce the correct numbers.
#[derive(Debug, thiserror::Error)]
pub enum KnownFaultError {
    /// The model cannot be loaded or run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The numbers are wrong.
    #[error("{backend} returns {found:?} instead of {expected:?}: use another version of it")]
    Numbers {
        /// The backend with its version.
        backend: String,
        /// The numbers of the output.
        found: Vec<f32>,
        /// The correct numbers.
        expected: &'static [f32],
    },
}

impl KnownFault {
    /// Runs the fault's model with its backend in the same way as any other model. Returns the backend with its version.
    ///
    /// # Errors
    /// The workaround does not help with this version of the backend, or its library cannot be used.
    pub fn check(&self, options: &EngineOptions) -> Result<String, KnownFaultError> {
        let path = Path::new(self.name);
        let options = EngineOptions { backend: Some(self.backend), threads: 1, ..options.clone() };
        let read = parse(ModelFile::new(path, self.model), self.model)?;
        let model = load_parsed(path, read, self.model.to_vec(), &options)?;
        let mut session = Session::new(&model)?;
        let mut input = session.input_mut(0);
        if input.dtype() == DType::F32 {
            input.bytes().chunks_exact_mut(4).for_each(|number| number.copy_from_slice(&1.0_f32.to_ne_bytes()));
        }
        session.run()?;
        let found = session.output(0)?.to_f32().into_owned();
        let is_near = |(found, expected): (&f32, &f32)| (found - expected).abs() <= TOLERANCE;
        if found.len() == self.expected.len() && found.iter().zip(self.expected).all(is_near) {
            return Ok(model.description);
        }
        Err(KnownFaultError::Numbers { backend: model.description, found, expected: self.expected })
    }
}
