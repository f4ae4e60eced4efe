//! The interface with which a lane runs a model, its errors, and its implementation by the engine crate's detector.

use std::error::Error;

use visiond_engine::detector::{Detection, Detector, DetectorError, RunCounts, RunId, RunTimings};
use visiond_engine::heads::FrameValues;
use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_kernels::frame::FrameView;
use visiond_kernels::nvtx;

/// The extent of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// One frame of the run, by its slot; the run can begin without it.
    Frame(usize),
    /// The whole run.
    Run,
    /// Every later run as well: the process has lost the GPU.
    GpuLost,
}

/// Why a model could not run, with what that affects.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RunError {
    /// The extent of the failure.
    pub fault: Fault,
    /// The contradiction in a frame's rows, in the same words for every such frame.
    pub contradiction: Option<&'static str>,
    #[source]
    error: Box<dyn Error + Send + Sync>,
}

impl RunError {
    /// Wraps an error.
    pub fn new(fault: Fault, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { fault, contradiction: None, error: error.into() }
    }
}

impl From<DetectorError> for RunError {
    fn from(error: DetectorError) -> Self {
        let contradiction = match &error {
            DetectorError::Head(error) => error.of_row(),
            _ => None,
        };
        let fault = match error {
            ref error if is_gpu_lost(error) => Fault::GpuLost,
            DetectorError::Frame { slot, .. } => Fault::Frame(slot),
            _ => Fault::Run,
        };
        Self { contradiction, ..Self::new(fault, error) }
    }
}

/// Creates a model with a session of its own.
pub type BuildRunner = Box<dyn Fn() -> Result<Box<dyn ModelRunner>, RunError> + Send>;

/// Runs a model on a batch of frames: `begin` a run, `finish` it, then read each slot's `detections`.
pub trait ModelRunner: Send {
    /// Returns the most frames that a run takes.
    fn batch(&self) -> usize;

    /// Returns how many runs may be in flight at once.
    fn max_in_flight(&self) -> usize;

    /// Begins a run. The frames' buffers are free again when it returns.
    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, RunError>;

    /// Waits for a run to end. Runs end in the order in which they began.
    fn finish(&mut self, run_id: RunId) -> Result<RunTimings, RunError>;

    /// Replaces `out` with the detections in a slot's frame, best first.
    fn detections(&mut self, run_id: RunId, slot: usize, out: &mut Vec<Detection>) -> Result<(), RunError>;

    /// Returns the values of the whole frame whose `detections` were read last.
    fn values(&self) -> &FrameValues {
        const { &FrameValues::NONE }
    }

    /// Returns the GPU's counters so far; all 0 without a GPU.
    fn counts(&self) -> RunCounts {
        RunCounts::default()
    }
}

impl ModelRunner for Detector {
    fn batch(&self) -> usize {
        Self::batch(self)
    }

    fn max_in_flight(&self) -> usize {
        Self::max_in_flight(self)
    }

    fn begin(&mut self, frames: &[FrameView<'_>]) -> Result<RunId, RunError> {
        let _range = nvtx::range(c"preprocess");
        Ok(Self::begin(self, frames)?)
    }

    fn finish(&mut self, run_id: RunId) -> Result<RunTimings, RunError> {
        let _range = nvtx::range(c"engine");
        Ok(Self::finish(self, run_id)?)
    }

    fn detections(&mut self, run_id: RunId, slot: usize, out: &mut Vec<Detection>) -> Result<(), RunError> {
        let _range = nvtx::range(c"filter");
        Ok(Self::detections(self, run_id, slot, out)?)
    }

    fn values(&self) -> &FrameValues {
        Self::values(self)
    }

    fn counts(&self) -> RunCounts {
        Self::counts(self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use visiond_engine::card::Card;
    use visiond_engine::detector::DetectorOptions;
    use visiond_engine::engine::{Backend, Engine, EngineOptions};
    use visiond_kernels::color::ColorDescription;
    use visiond_kernels::cuda::CudaError;
    use visiond_kernels::frame::{FrameLayout, PixelFormat};
    use visiond_kernels::preprocess::PreprocessError;

    use super::*;

    #[test]
    fn an_error_concerns_its_frame_the_run_or_the_process() {
        let cuda = |code| CudaError { call: "cuLaunchKernel", code, name: "AN_ERROR".to_owned() };
        let of_frame = DetectorError::Frame { slot: 3, error: PreprocessError::Invalid("too small".to_owned()) };
        for (error, fault, words) in [
            (of_frame, Fault::Frame(3), "too small"),
            (DetectorError::NotInFlight, Fault::Run, "not in flight"),
            (DetectorError::Cuda(cuda(2)), Fault::Run, "cuLaunchKernel failed"),
            (DetectorError::Cuda(cuda(700)), Fault::GpuLost, "AN_ERROR (700)"),
        ] {
            let error = RunError::from(error);
            assert!(error.fault == fault && error.to_string().contains(words), "{error:?}");
        }
    }

    #[test]
    fn the_detector_of_the_engine_runs_as_the_model_of_a_lane() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vm/tiny.onnx"));
        let engine =
            Engine::load(path, &EngineOptions { backend: Some(Backend::Rten), ..EngineOptions::default() }).unwrap();
        let card = Card::read(&path.with_extension("toml")).unwrap();
        let mut detector = Detector::new(&engine, &card, &DetectorOptions::default()).unwrap();
        let own = (detector.batch(), detector.max_in_flight(), detector.counts());
        let runner: &mut dyn ModelRunner = &mut detector;
        assert_eq!((runner.batch(), runner.max_in_flight(), runner.counts()), own);

        let layout = FrameLayout::packed(PixelFormat::Grey, 8, 8, ColorDescription::JPEG).unwrap();
        let white = [255; 64];
        let run = runner.begin(&[layout.view(&white).unwrap()]).unwrap();
        assert!(runner.finish(run).unwrap().infer_us > 0);
        let mut found = Vec::new();
        runner.detections(run, 0, &mut found).unwrap();
        let names: Vec<_> = found.iter().map(|one| card.classes[one.class_id as usize].as_str()).collect();
        assert!(!names.is_empty() && names.iter().all(|name| *name == "white"), "{found:?}");

        let many = vec![layout.view(&white).unwrap(); runner.batch() + 1];
        assert_eq!(runner.begin(&many).unwrap_err().fault, Fault::Run);
    }
}
