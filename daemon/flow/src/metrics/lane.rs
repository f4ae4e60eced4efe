//! What happened so far on a lane: what its thread does, its runs, and what they took of the GPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use visiond_engine::detector::RunCounts;

use crate::histogram::Histogram;

/// Where a lane's thread stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Activity {
    /// Waits for a frame.
    Idle,
    /// Looks at frames; the only state in which no progress means that something hangs.
    Looking,
    /// Hands messages on; waits only where a sink or the pictures must not lose anything.
    Publishing,
    /// Waits before it builds its session again.
    Backoff,
    /// Over.
    Ended,
}

impl Activity {
    pub(super) const ALL: [Self; 5] = [Self::Idle, Self::Looking, Self::Publishing, Self::Backoff, Self::Ended];

    /// The name that the status has for it.
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

/// One lane's counters.
#[derive(Debug)]
pub struct LaneMetrics {
    /// The model's name.
    pub name: Arc<str>,
    activity: AtomicU8,
    runs: AtomicU64,
    errors: AtomicU64,
    rebuilds: AtomicU64,
    gpu: [AtomicU64; 5],
    launch: Histogram,
    first_frame: AtomicBool,
}

/// What a lane's network counted on the GPU, over all of its sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSnapshot {
    /// Runs that the GPU was given as one CUDA graph.
    pub graph_runs: u64,
    /// Runs that it was given call by call.
    pub single_runs: u64,
    /// Runs, of either kind, that were begun while another was under way.
    pub overlapped_runs: u64,
    /// Bytes of frames that were copied first, because the GPU does not see their memory.
    pub copied_bytes: u64,
    /// Candidates that the filter had no room for.
    pub lost_candidates: u64,
    /// The host's time until the GPU had the run: median in microseconds.
    pub launch_us_p50: u64,
    /// The same, 99th percentile.
    pub launch_us_p99: u64,
}

impl LaneMetrics {
    /// Nothing happened yet.
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

    /// The thread goes over to `activity`.
    pub fn enter(&self, activity: Activity) {
        self.activity.store(activity as u8, Ordering::Relaxed);
    }

    /// Where the thread stands.
    pub fn activity(&self) -> Activity {
        Activity::ALL[usize::from(self.activity.load(Ordering::Relaxed))]
    }

    /// The network was run, well or not.
    pub fn count_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs so far: as long as it rises, the lane lives.
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Preprocess, network or head failed.
    pub fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Failures so far.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The session was built again.
    pub fn count_rebuild(&self) {
        self.rebuilds.fetch_add(1, Ordering::Relaxed);
    }

    /// Sessions built again so far.
    pub fn rebuilds(&self) -> u64 {
        self.rebuilds.load(Ordering::Relaxed)
    }

    /// A run on the GPU ended: what the network counted since the one before, and the host's time until the GPU had it.
    pub fn count_gpu(&self, new: &RunCounts, launch_us: u64) {
        let RunCounts { graph_runs, single_runs, overlapped_runs, copied_bytes, lost_candidates } = *new;
        let new = [graph_runs, single_runs, overlapped_runs, copied_bytes, lost_candidates];
        for (counter, new) in self.gpu.iter().zip(new) {
            counter.fetch_add(new, Ordering::Relaxed);
        }
        self.launch.record_us(launch_us);
    }

    /// What was counted on the GPU; `None` where no run was on one.
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

    /// A frame went through.
    pub fn note_frame(&self) {
        self.first_frame.store(true, Ordering::Release);
    }

    /// Whether a frame went through yet.
    pub fn had_frame(&self) -> bool {
        self.first_frame.load(Ordering::Acquire)
    }
}
