//! Pictures of the cameras for a broker, made one at a time of each and now and then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use visiond_live::Live;

/// How long a camera may take to give a frame.
const PATIENCE: Duration = Duration::from_secs(5);

/// Cameras with their pictures, as JPEG.
type Made = Vec<(Arc<str>, Bytes)>;

/// Has pictures made, and keeps them until they are asked for.
#[derive(Debug, Default)]
pub struct Snapshots {
    next: BTreeMap<Arc<str>, Instant>,
    made: Arc<Mutex<Made>>,
}

impl Snapshots {
    /// Has a picture of the camera made if it is time, within the runtime of the caller.
    pub fn ask(&mut self, live: &Live, camera: &Arc<str>, overlay: bool, interval: Duration, now: Instant) {
        if self.next.get(camera).is_some_and(|next| now < *next) {
            return;
        }
        let (view, made, camera) = (live.view(camera), Arc::clone(&self.made), Arc::clone(camera));
        self.next.insert(Arc::clone(&camera), now + interval);
        // Given up before the next is asked for, so that one of a camera at most is on its way.
        tokio::spawn(async move {
            // Without a frame there is no picture, which the camera's state explains.
            if let Ok(picture) = view.jpeg(overlay, PATIENCE.min(interval)).await {
                made.lock().push((camera, picture.jpeg.clone()));
            }
        });
    }

    /// The pictures that were made since.
    pub fn take(&mut self) -> Made {
        std::mem::take(&mut self.made.lock())
    }

    /// Nothing was asked for yet.
    pub fn forget(&mut self) {
        self.next.clear();
        self.made.lock().clear();
    }
}
