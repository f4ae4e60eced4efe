//! How a client gets a camera's pictures: one, one after the other, or a copy of a frame.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tokio::sync::watch;

use crate::camera_view::CameraView;
use crate::encoder::ensure_threads;
use crate::picture::{OwnedFrame, Picture};

/// A client that comes back for the next picture does not get one that is older than this.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Why there is no picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The camera gave no frame.
    #[error("camera {camera} gave no frame within {seconds} s: see its state in /api/v1/cameras/{camera} and the log")]
    NoFrame {
        /// The camera's name.
        camera: Arc<str>,
        /// How long the client waited, in seconds.
        seconds: u64,
    },
    /// The daemon is ending, or could not start a thread for the encoder.
    #[error("camera {camera}: cannot make a picture: the daemon is ending, or the system has no thread left")]
    NoEncoder {
        /// The camera's name.
        camera: Arc<str>,
    },
}

impl CameraView {
    /// Waits for a copy of the next frame; `None` if none came in time.
    pub fn frame(&self, timeout: Duration) -> Option<OwnedFrame> {
        if !ensure_threads(&self.queue) {
            return None;
        }
        let (send, copy) = sync_channel(1);
        self.request_copy(send);
        copy.recv_timeout(timeout).ok()
    }

    /// Waits for the next picture, with boxes or without.
    pub async fn jpeg(self: &Arc<Self>, overlay: bool, timeout: Duration) -> Result<Arc<Picture>, ViewError> {
        let mut watch = self.watch(overlay)?;
        let no_frame = || ViewError::NoFrame { camera: Arc::clone(&self.name), seconds: timeout.as_secs() };
        match tokio::time::timeout(timeout, watch.next()).await {
            Ok(picture) => picture.ok_or_else(no_frame),
            Err(_) => Err(no_frame()),
        }
    }

    /// Returns the pictures from the next one on, with boxes or without.
    pub fn watch(self: &Arc<Self>, overlay: bool) -> Result<Watch, ViewError> {
        if !ensure_threads(&self.queue) {
            return Err(ViewError::NoEncoder { camera: Arc::clone(&self.name) });
        }
        Ok(Watch { pictures: self.subscribe(overlay), view: Arc::clone(self) })
    }
}

/// A camera's pictures, one after the other; a client that is too slow misses some.
#[derive(Debug)]
pub struct Watch {
    pictures: watch::Receiver<Option<Arc<Picture>>>,
    view: Arc<CameraView>,
}

impl Watch {
    /// Waits for the next picture; `None` if no more will come.
    pub async fn next(&mut self) -> Option<Arc<Picture>> {
        loop {
            if !self.pictures.has_changed().ok()? {
                let _waiting = Waiting::begin(&self.view);
                self.pictures.changed().await.ok()?;
            }
            let picture = self.pictures.borrow_and_update().clone();
            if picture.as_ref().is_some_and(|picture| picture.made.elapsed() < MAX_AGE) {
                return picture;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Replaced by another receiver, so that the view no longer counts it.
        self.pictures = watch::channel(None).1;
        self.view.client_left();
    }
}

/// Counts a client as waiting until this is dropped.
struct Waiting<'v>(&'v CameraView);

impl<'v> Waiting<'v> {
    fn begin(view: &'v CameraView) -> Self {
        view.begin_wait();
        Self(view)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.end_wait();
    }
}
