//! Reopens a camera: remembers which camera it was, and waits for it to return.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::V4l2Config;
use visiond_frames::clock::SystemClock;
use visiond_frames::coded_ring::CodedRing;
use visiond_system::stop::{Stop, Wake};

use super::V4l2Source;
use super::capture_channel;
use super::find_camera::{self, FoundCamera, NotFound};
use super::hotplug::HotplugWatch;
use super::identity::{CameraClaim, Identity};
use crate::buffers::Buffers;
use crate::source::{Opener, Source, SourceError};

/// How long a camera must be missing before another one at its node replaces it.
const REPLACEMENT_GRACE: Duration = Duration::from_secs(3);

/// Opens one configured camera.
pub struct V4l2Opener {
    config: V4l2Config,
    name: Arc<str>,
    buffers: Buffers,
    /// Gets the camera's JPEGs as they are, for clips.
    coded: Option<Arc<CodedRing>>,
    remembered: Option<Identity>,
    claim: CameraClaim,
    /// When another camera appeared at its node.
    replaced_since: Option<Instant>,
    /// Present only while the camera is away.
    watch: Option<HotplugWatch>,
}

impl V4l2Opener {
    /// Creates the opener of a camera that was never open.
    pub fn new(config: V4l2Config, name: Arc<str>, buffers: Buffers) -> Self {
        let (coded, remembered, claim) = (None, None, CameraClaim::new());
        Self { config, name, buffers, coded, remembered, claim, replaced_since: None, watch: None }
    }

    /// Makes the sources put the camera's JPEGs into `coded` as well.
    pub fn recording_to(self, coded: Option<Arc<CodedRing>>) -> Self {
        Self { coded, ..self }
    }

    fn find(&mut self) -> Result<FoundCamera, NotFound> {
        let error = match find_camera::find(&self.config.device, self.remembered.as_ref()) {
            Err(error @ NotFound::Replaced { .. }) => error,
            found => {
                self.replaced_since = None;
                return found;
            }
        };
        if self.replaced_since.get_or_insert_with(Instant::now).elapsed() < REPLACEMENT_GRACE {
            return Err(error);
        }
        let found = find_camera::find(&self.config.device, None)?;
        if let (Some(now), Some(before)) = (&found.identity, &self.remembered) {
            log::warn!("camera {}: {} is now {now}, it was {before}", self.name, self.config.device);
        }
        // Logged once, even if it then cannot be opened.
        self.remembered.clone_from(&found.identity);
        Ok(found)
    }
}

impl Opener for V4l2Opener {
    fn open(&mut self) -> Result<Box<dyn Source>, SourceError> {
        // Before the attempt, so that no event after it is missed.
        if self.watch.is_none() {
            match HotplugWatch::new(&self.config.device) {
                Ok(watch) => self.watch = Some(watch),
                Err(error) => {
                    log::debug!("camera {}: cannot use inotify, retrying by time alone: {error}", self.name);
                }
            }
        }
        let found = self.find().map_err(|error| SourceError::transient(error.to_string()))?;
        let clock = Arc::new(SystemClock);
        let source = V4l2Source::open_node(&found.node, &self.config, &self.name, &self.buffers, clock);
        let source = source.map_err(capture_channel::restarting_once)?;
        self.claim.set(found.identity.as_ref());
        (self.remembered, self.replaced_since, self.watch) = (found.identity, None, None);
        Ok(Box::new(source.recording_to(self.coded.clone())))
    }

    fn is_device(&self) -> bool {
        true
    }

    fn wait(&mut self, pause: Duration, stop: &Stop) -> Wake {
        match &mut self.watch {
            Some(watch) => watch.wait(pause, stop),
            None if stop.sleep(pause) => Wake::Stopped,
            None => Wake::TimedOut,
        }
    }
}
