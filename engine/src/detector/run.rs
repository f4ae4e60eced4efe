//! Runs of a detector: their identity, timings and counters.

/// Identifies a run for [`Detector::finish`](super::Detector::finish) and
/// [`Detector::detections`](super::Detector::detections).
///
/// Its results can be read after it is finished, until a later run reuses the same index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId(usize);

impl RunId {
    /// Returns the run with this index.
    pub fn new(index: usize) -> Self {
        Self(index)
    }

    /// Returns its index, below [`Detector::max_in_flight`](super::Detector::max_in_flight).
    pub fn index(self) -> usize {
        self.0
    }
}

/// The durations of a run with all of its frames, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTimings {
    /// Host time until the run was submitted to the GPU; 0 without a GPU.
    pub launch_us: u64,
    /// Preprocessing of the frames.
    pub preprocess_us: u64,
    /// Inference; on the GPU including the candidate filter, unless that overlapped another run.
    pub infer_us: u64,
}

/// What a detector has counted since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCounts {
    /// Runs submitted to the GPU as one CUDA graph.
    pub graph_runs: u64,
    /// Runs submitted to the GPU call by call.
    pub single_runs: u64,
    /// Runs of either kind that were begun while another was in flight.
    pub overlapped_runs: u64,
    /// Bytes of frames that were copied first, because the GPU cannot access their memory.
    pub copied_bytes: u64,
    /// Candidates that did not fit into the GPU's filter.
    pub lost_candidates: u64,
}

impl RunCounts {
    /// Returns the difference to `earlier`; `None` if `earlier` is from another detector.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            graph_runs: self.graph_runs.checked_sub(earlier.graph_runs)?,
            single_runs: self.single_runs.checked_sub(earlier.single_runs)?,
            overlapped_runs: self.overlapped_runs.checked_sub(earlier.overlapped_runs)?,
            copied_bytes: self.copied_bytes.checked_sub(earlier.copied_bytes)?,
            lost_candidates: self.lost_candidates.checked_sub(earlier.lost_candidates)?,
        })
    }
}
