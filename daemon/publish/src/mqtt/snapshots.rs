//! Pictures of the cameras for a broker: one per camera at a time, at the configured interval.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use visiond_live::Live;

/// How long to wait for a camera's next frame.
const PATIENCE: Duration = Duration::from_secs(5);

/// Cameras with their pictures as JPEG.
type Made = Vec<(Arc<str>, Bytes)>;

/// Requests pictures, and keeps them until the sink takes them.
#[derive(Debug, Default)]
pub struct Snapshots {
    next: BTreeMap<Arc<str>, Instant>,
    made: Arc<Mutex<Made>>,
}

impl Snapshots {
    /// Requests a picture of the camera if it is due. Must be called within a runtime.
    pub fn ask(&mut self, live: &Live, camera: &Arc<str>, overlay: bool, interval: Duration, now: Instant) {
        if self.next.get(camera).is_some_and(|next| now < *next) {
            return;
        }
        let (view, made, camera) = (live.view(camera), Arc::clone(&self.made), Arc::clone(camera));
        self.next.insert(Arc::clone(&camera), now + interval);
        // Gives up before the next picture is due, so that each camera has at most one request.
        tokio::spawn(async move {
            // Without a frame there is no picture; the camera's state says why.
            if let Ok(picture) = view.jpeg(overlay, PATIENCE.min(interval)).await {
                made.lock().push((camera, picture.jpeg.clone()));
            }
        });
    }

    /// Takes the pictures that are ready.
    pub fn take(&mut self) -> Made {
        std::mem::take(&mut self.made.lock())
    }

    /// Forgets all requests and pictures, for a new session.
    pub fn forget(&mut self) {
        self.next.clear();
        self.made.lock().clear();
    }
}
