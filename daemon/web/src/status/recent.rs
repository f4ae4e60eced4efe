//! Recent durations of stages: histograms only grow, so the values of some seconds ago are subtracted.
//!
//! While reports are read, it keeps two copies of each camera's histograms and swaps them every few seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_telemetry::histogram::HistogramSnapshot;
use visiond_telemetry::metrics::{CameraMetrics, LaneView, Stage};

/// The shortest recent time; the longest is twice that.
const SPAN: Duration = Duration::from_secs(5);

/// Histograms in the order of [`Stage::ALL`].
type Stages = [HistogramSnapshot; Stage::ALL.len()];

/// Keeps earlier histograms of each camera.
#[derive(Debug, Default)]
pub struct RecentStages(Mutex<Vec<Earlier>>);

#[derive(Debug)]
struct Earlier {
    camera: Arc<CameraMetrics>,
    /// The stages to subtract; `None` until [`SPAN`] has passed.
    older: Option<Stages>,
    newer: Stages,
    newer_at: Instant,
}

impl RecentStages {
    /// Returns the recent durations of a camera whose histograms are `stages` now; all of them at the first call.
    pub fn of(&self, camera: &Arc<CameraMetrics>, stages: &Stages) -> Stages {
        self.at(camera, stages, Instant::now())
    }

    /// Forgets cameras that no longer run.
    pub fn keep(&self, lanes: &[LaneView]) {
        let runs = |camera: &Arc<CameraMetrics>| {
            lanes.iter().flat_map(|lane| &lane.cameras).any(|running| Arc::ptr_eq(running, camera))
        };
        self.0.lock().retain(|earlier| runs(&earlier.camera));
    }

    fn at(&self, camera: &Arc<CameraMetrics>, stages: &Stages, now: Instant) -> Stages {
        let mut all = self.0.lock();
        let Some(earlier) = all.iter_mut().find(|earlier| Arc::ptr_eq(&earlier.camera, camera)) else {
            let newer = stages.clone();
            all.push(Earlier { camera: Arc::clone(camera), older: None, newer, newer_at: now });
            return stages.clone();
        };
        if now.saturating_duration_since(earlier.newer_at) >= SPAN {
            earlier.older = Some(std::mem::replace(&mut earlier.newer, stages.clone()));
            earlier.newer_at = now;
        }
        match &earlier.older {
            Some(older) => std::array::from_fn(|stage| stages[stage].since(&older[stage])),
            None => stages.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_message::testing::message;

    #[test]
    fn what_is_long_over_counts_no_more() {
        let (recent, camera) = (RecentStages::default(), Arc::new(CameraMetrics::new("door".into())));
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
