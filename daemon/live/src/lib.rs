//! What can be watched live: messages as they come, pictures of the cameras, and who runs.
//!
//! Made before the pipeline and kept as long as the process lives, so that a reader stays connected over a reload. It knows
//! nothing of who reads: pages, brokers and the check of a new network ask here. A lane gives away what it has in passing:
//! it never waits, and where nobody watches it keeps nothing of a frame.

mod encoder;
pub mod feed;
mod room;
pub mod view;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use visiond_flow::metrics::LaneView;

use self::encoder::Encoder;

pub use self::feed::{Delivered, Feed, Filter, Subscription};
pub use self::view::{CameraView, OwnedFrame, Picture, ViewError, Watch};

/// What can be watched of the process.
#[derive(Debug, Default)]
pub struct Live {
    feed: Feed,
    encoder: Arc<Encoder>,
    views: Mutex<HashMap<Box<str>, Arc<CameraView>>>,
    lanes: Mutex<Vec<LaneView>>,
}

impl Live {
    /// Nobody watches yet, and nothing runs.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// The messages of all cameras.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The view of a camera that is configured; made when it is asked for first, and kept.
    ///
    /// For who runs cameras; who asks for a name that came from outside uses [`Live::find`].
    pub fn view(&self, camera: &str) -> Arc<CameraView> {
        let mut views = lock(&self.views);
        if let Some(view) = views.get(camera) {
            return Arc::clone(view);
        }
        let view = Arc::new(CameraView::new(camera, &self.encoder));
        views.insert(camera.into(), Arc::clone(&view));
        view
    }

    /// The view of a camera that runs now; `None`: none of this name does.
    pub fn find(&self, camera: &str) -> Option<Arc<CameraView>> {
        let runs = lock(&self.lanes).iter().flat_map(|lane| &lane.cameras).any(|known| *known.name == *camera);
        runs.then(|| self.view(camera))
    }

    /// Every lane with its cameras, as they are now.
    pub fn lanes(&self) -> Vec<LaneView> {
        lock(&self.lanes).clone()
    }

    /// What runs from now on; the last messages of cameras that do not are forgotten.
    pub fn set_lanes(&self, lanes: Vec<LaneView>) {
        self.feed.keep(|camera| lanes.iter().flat_map(|lane| &lane.cameras).any(|known| *known.name == *camera));
        *lock(&self.lanes) = lanes;
    }

    /// At most so many pictures a second are made of a camera.
    pub fn set_max_fps(&self, fps: f64) {
        self.encoder.set_max_fps(fps);
    }

    /// Gives back every frame that is kept, and ends the encoder by `deadline`.
    pub fn close(&self, deadline: Instant) {
        self.encoder.close(deadline);
        lock(&self.views).values().for_each(|view| view.close());
    }
}

/// What a panic elsewhere leaves behind in here is good as it is: each change is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], for who cannot wait: `None` while somebody else has it.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
