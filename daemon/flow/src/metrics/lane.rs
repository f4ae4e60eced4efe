//! Counters of a lane: the activity of its thread, its inferences, and their use of the GPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use visiond_engine::detector::RunCounts;

use crate::histogram::Histogram;

/// Activity of a lane's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Activity {
    /// Waiting for a frame.
    Idle,
    /// Processing frames; the only activity in which no progress means a hang.
    Looking,
    /// Publishing messages; waits only if a sink or annotated pictures must lose nothing.
    Publishing,
    /// Waiting before it rebuilds its session.
    Backoff,
    /// The thread has ended.
    Ended,
}

impl Activity {
    pub(super) const ALL: [Self; 5] = [Self::Idle, Self::Looking, Self::Publishing, Self::Backoff, Self::Ended];

    /// Returns the name used in the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Looking => "looking",
            Self::Publishing => "publishing",
            Self::Backoff => "backoff",
            Self::Ended => "ended",
        }
    }
}

/// Counters of one lane.
#[derive(Debug)]
pub struct LaneMetrics {
    /// Name of the model.
    pub name: Arc<str>,
    activity: AtomicU8,
    runs: AtomicU64,
    errors: AtomicU64,
    rebuilds: AtomicU64,
    gpu: [AtomicU64; 5],
    launch: Histogram,
    first_frame: AtomicBool,
}

/// GPU counters of a lane's model, over all of its sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSnapshot {
    /// Runs that were launched as one CUDA graph.
    pub graph_runs: u64,
    /// Runs that were launched call by call.
    pub single_runs: u64,
    /// Runs of either kind that started while another was in flight.
    pub overlapped_runs: u64,
    /// Bytes of frames that were copied first, because the GPU cannot access their memory.
    pub copied_bytes: u64,
    /// Candidates dropped because the filter was full.
    pub lost_candidates: u64,
    /// Host time to launch a run: median in microseconds.
    pub launch_us_p50: u64,
    /// Host time to launch a run: 99th percentile in microseconds.
    pub launch_us_p99: u64,
}

impl LaneMetrics {
    /// Returns counters at zero.
    pub fn new(name: Arc<str>) -> Self {
        Self {
            name,
            activity: AtomicU8::new(Activity::Idle as u8),
            runs: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            rebuilds: AtomicU64::new(0),
            gpu: Default::default(),
            launch: Histogram::default(),
            first_frame: AtomicBool::new(false),
        }
    }

    /// Records that the thread enters `activity`.
    pub fn enter(&self, activity: Activity) {
        self.activity.store(activity as u8, Ordering::Relaxed);
    }

    /// Returns the activity of the thread.
    pub fn activity(&self) -> Activity {
        Activity::ALL[usize::from(self.activity.load(Ordering::Relaxed))]
    }

    /// Counts a run, successful or not.
    pub fn count_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the runs so far. While the number rises, the lane makes progress.
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Counts a failure of preprocess, inference or head.
    pub fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the failures so far.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Counts a rebuilt session.
    pub fn count_rebuild(&self) {
        self.rebuilds.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the rebuilt sessions so far.
    pub fn rebuilds(&self) -> u64 {
        self.rebuilds.load(Ordering::Relaxed)
    }

    /// Counts a run on the GPU: the counters since the last run, and the host time of its launch.
    pub fn count_gpu(&self, new: &RunCounts, launch_us: u64) {
        let RunCounts { graph_runs, single_runs, overlapped_runs, copied_bytes, lost_candidates } = *new;
        let new = [graph_runs, single_runs, overlapped_runs, copied_bytes, lost_candidates];
        for (counter, new) in self.gpu.iter().zip(new) {
            counter.fetch_add(new, Ordering::Relaxed);
        }
        self.launch.record_us(launch_us);
    }

    /// Returns the GPU counters; `None` if no run used a GPU.
    pub fn gpu(&self) -> Option<GpuSnapshot> {
        let [graph_runs, single_runs, overlapped_runs, copied_bytes, lost_candidates] =
            std::array::from_fn(|index| self.gpu[index].load(Ordering::Relaxed));
        let launch = self.launch.snapshot();
        (graph_runs + single_runs > 0).then(|| GpuSnapshot {
            graph_runs,
            single_runs,
            overlapped_runs,
            copied_bytes,
            lost_candidates,
            launch_us_p50: launch.quantile_us(0.5),
            launch_us_p99: launch.quantile_us(0.99),
        })
    }

    /// Records that a frame was processed.
    pub fn note_frame(&self) {
        self.first_frame.store(true, Ordering::Release);
    }

    /// Returns whether a frame was processed yet.
    pub fn had_frame(&self) -> bool {
        self.first_frame.load(Ordering::Acquire)
    }
}
