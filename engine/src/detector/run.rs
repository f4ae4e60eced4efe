//! Runs of a detector: which one, what it took, what was counted.

/// A run that was begun: where [`Detector::finish`] and [`Detector::detections`] find it.
///
/// Its results can be read from its finish until a later run begins in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId(usize);

impl RunId {
    /// The flight in place `index`.
    pub fn new(index: usize) -> Self {
        Self(index)
    }

    /// Its place, below [`Detector::flights`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// What a run took, in microseconds, all of its frames together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTimings {
    /// The host's time until the GPU had the run; 0 where there is no GPU in it.
    pub launch_us: u64,
    /// Frames to tensors.
    pub preprocess_us: u64,
    /// The network; on the GPU with its candidate filter, unless that went beside another run.
    pub infer_us: u64,
}

/// What a detector counted since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCounts {
    /// Runs that the GPU was given as one CUDA graph.
    pub graph_runs: u64,
    /// Runs that it was given call by call.
    pub single_runs: u64,
    /// Runs, of either kind, that were begun while another was under way.
    pub overlapped_runs: u64,
    /// Bytes of frames that were copied first, because the GPU does not see their memory.
    pub copied_bytes: u64,
    /// Candidates that the GPU's filter had no room for.
    pub lost_candidates: u64,
}

impl RunCounts {
    /// What was counted since `earlier`; `None` where that was of another detector.
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
