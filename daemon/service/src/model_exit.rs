//! The exit status for each failure of a model.

use visiond_engine::detector::DetectorError;
use visiond_system::exit::Exit;

/// Returns the exit status for a run that failed.
pub fn run_exit(error: &DetectorError) -> Exit {
    if error.is_fatal() { Exit::Gpu } else { Exit::Model }
}

/// Returns the exit status for a detector that cannot be made.
pub fn detector_exit(error: &DetectorError) -> Exit {
    match error {
        error if error.is_fatal() => Exit::Gpu,
        DetectorError::Engine(_) | DetectorError::Preprocess(_) => Exit::Model,
        // The card or the limits ask for something that the model does not have.
        _ => Exit::Config,
    }
}
