use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use visiond_message::status::BundleStatus;
use visiond_message::topic;
use visiond_telemetry::metrics::LaneView;

use crate::broadcast::Broadcast;
use crate::camera_view::CameraView;
use crate::encoder::start_threads;
use crate::encoder_queue::EncoderQueue;

/// A model that is a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBundle {
    /// Name of the model.
    pub model: String,
    /// Name of the lane that runs it: of the model on frames, if this one runs on detections.
    pub lane: String,
    /// Its bundle.
    pub status: BundleStatus,
}

/// The messages, the cameras' images, the lanes and the bundles of this process.
///
/// It is created before the pipeline and lives as long as the process, so that clients stay connected across a reload.
#[derive(Debug)]
pub struct Live {
    messages: Arc<Broadcast>,
    queue: Arc<EncoderQueue<CameraView>>,
    views: Mutex<HashMap<Box<str>, Arc<CameraView>>>,
    lanes: Mutex<Vec<LaneView>>,
    bundles: Mutex<Arc<Vec<LiveBundle>>>,
    settings: Mutex<Option<BundleStatus>>,
}

impl Live {
    /// Creates an instance without lanes and without clients.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            messages: Arc::default(),
            queue: Arc::new(EncoderQueue::new(start_threads)),
            views: Mutex::default(),
            lanes: Mutex::default(),
            bundles: Mutex::default(),
            settings: Mutex::default(),
        })
    }

    /// Returns the messages of all cameras.
    pub fn messages(&self) -> &Broadcast {
        &self.messages
    }

    /// Returns the view of a configured camera; the first call creates it, and it is kept.
    ///
    /// Code that handles a name from a client uses [`Live::find`], so that clients cannot create views.
    pub fn view(&self, camera: &str) -> Arc<CameraView> {
        let mut views = self.views.lock();
        Arc::clone(
            views
                .entry(camera.into())
                .or_insert_with(|| Arc::new(CameraView::new(camera, &self.queue, &self.messages))),
        )
    }

    /// Returns the view of a running camera; `None` if no running camera has this name.
    pub fn find(&self, camera: &str) -> Option<Arc<CameraView>> {
        let runs = self.lanes.lock().iter().flat_map(|lane| &lane.cameras).any(|known| *known.name == *camera);
        runs.then(|| self.view(camera))
    }

    /// Returns every running lane with its cameras.
    pub fn lanes(&self) -> Vec<LaneView> {
        self.lanes.lock().clone()
    }

    /// Sets the lanes that run from now on, and forgets the last messages of cameras and models that no longer run.
    pub fn set_lanes(&self, lanes: Vec<LaneView>) {
        let (mut running, mut names) = (HashMap::new(), HashSet::new());
        for LaneView { lane, cameras } in &lanes {
            for camera in cameras {
                names.insert(Arc::clone(&camera.name));
                let is_first = camera.models().first().is_none_or(|first| *first == lane.name);
                running.insert(topic(&camera.name, &lane.name, is_first), Arc::clone(&lane.name));
            }
        }
        self.messages.events().keep_cameras(&names);
        self.messages.keep(running);
        *self.lanes.lock() = lanes;
    }

    /// Returns the models that are bundles.
    pub fn bundles(&self) -> Arc<Vec<LiveBundle>> {
        Arc::clone(&self.bundles.lock())
    }

    /// Sets the models that are bundles from now on.
    pub fn set_bundles(&self, bundles: Vec<LiveBundle>) {
        *self.bundles.lock() = Arc::new(bundles);
    }

    /// Returns the bundle whose settings are in force.
    pub fn settings(&self) -> Option<BundleStatus> {
        self.settings.lock().clone()
    }

    /// Sets the bundle whose settings are in force from now on.
    pub fn set_settings(&self, settings: Option<BundleStatus>) {
        *self.settings.lock() = settings;
    }

    /// Forgets the frames, images and newest messages of a camera, because its privacy masks have changed or it goes: no client gets one of
    /// them afterwards.
    pub fn forget_frames(&self, camera: &str) {
        self.view(camera).change_masks();
        self.messages.forget(camera);
    }

    /// Hides the files of the events that a camera had so far, because its privacy masks have changed.
    pub fn hide_event_files(&self, camera: &str) {
        self.messages.events().change_masks(camera);
    }

    /// Limits the images per second of each camera.
    pub fn set_max_fps(&self, fps: f64) {
        self.queue.set_max_fps(fps);
    }

    /// Gives every kept frame back, and ends the encoder by `deadline`.
    pub fn close(&self, deadline: Instant) {
        self.queue.close(deadline);
        self.views.lock().values().for_each(|view| view.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pictures_of_every_camera_follow_the_limit() {
        let live = Live::new();
        let before = live.queue.interval_ns();
        live.set_max_fps(25.0);
        assert_eq!((before, live.queue.interval_ns()), (100_000_000, 40_000_000));
    }
}
