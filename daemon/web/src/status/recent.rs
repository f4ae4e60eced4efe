//! What stages took of late: histograms only grow, so what they held some seconds ago is taken off.
//!
//! Kept only as far as somebody looks: two copies of a camera's histograms, exchanged every few seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_flow::histogram::HistogramSnapshot;
use visiond_flow::metrics::{CameraMetrics, LaneView, Stage};

/// "Of late" is so long at least, and twice that at most.
const SPAN: Duration = Duration::from_secs(5);

/// Histograms in the order of [`Stage::ALL`].
type Stages = [HistogramSnapshot; Stage::ALL.len()];

/// Remembers what histograms held.
#[derive(Debug, Default)]
pub struct Recent(Mutex<Vec<Memory>>);

#[derive(Debug)]
struct Memory {
    camera: Arc<CameraMetrics>,
    /// What is taken off; `None`: nothing yet.
    older: Option<Stages>,
    newer: Stages,
    newer_at: Instant,
}

impl Recent {
    /// What `camera`'s stages took of late, where they hold `stages` now. From the start on where nobody looked before.
    pub fn of(&self, camera: &Arc<CameraMetrics>, stages: &Stages) -> Stages {
        self.at(camera, stages, Instant::now())
    }

    /// Forgets cameras that run no more.
    pub fn keep(&self, lanes: &[LaneView]) {
        let runs = |camera: &Arc<CameraMetrics>| {
            lanes.iter().flat_map(|lane| &lane.cameras).any(|running| Arc::ptr_eq(running, camera))
        };
        self.0.lock().retain(|memory| runs(&memory.camera));
    }

    fn at(&self, camera: &Arc<CameraMetrics>, stages: &Stages, now: Instant) -> Stages {
        let mut memories = self.0.lock();
        let Some(memory) = memories.iter_mut().find(|memory| Arc::ptr_eq(&memory.camera, camera)) else {
            let newer = stages.clone();
            memories.push(Memory { camera: Arc::clone(camera), older: None, newer, newer_at: now });
            return stages.clone();
        };
        if now.saturating_duration_since(memory.newer_at) >= SPAN {
            memory.older = Some(std::mem::replace(&mut memory.newer, stages.clone()));
            memory.newer_at = now;
        }
        match &memory.older {
            Some(older) => std::array::from_fn(|stage| stages[stage].since(&older[stage])),
            None => stages.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_flow::testing::message;

    #[test]
    fn what_is_long_over_counts_no_more() {
        let (recent, camera) = (Recent::default(), Arc::new(CameraMetrics::new("door".into())));
        let start = Instant::now();
        let frames_at = |seconds: u64| {
            let stages = camera.snapshot().stages;
            recent.at(&camera, &stages, start + Duration::from_secs(seconds))[Stage::Total as usize].count()
        };
        let frame = || camera.count_published(&message("door", &[]));
        frame();
        assert_eq!(frames_at(0), 1, "from the start");
        frame();
        assert_eq!(frames_at(5), 1, "without the first look's");
        frame();
        assert_eq!(frames_at(6), 2);
        assert_eq!(frames_at(10), 1);
        assert_eq!(frames_at(15), 0);
        recent.keep(&[]);
        assert!(recent.0.lock().is_empty());
    }
}
