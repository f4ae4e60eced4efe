//! The collector of a model on a camera: makes the lane's results messages, and passes them to the publisher, the live view, the
//! annotator and the clips.
//!
//! Facts about a camera over several frames or models belong here: a detection gets its track in [`Collector::track`].
//!
//! It has no thread: a lane calls it. A frame costs the allocations of its message: the id, the time, the lists and the message
//! itself. Labels and the names of camera, model and keypoints are shared; only a class without a name allocates its label. A lock
//! is taken only for tracks, and for a message that lost masks. Only the lane that a reload takes a camera
//! from may hold it meanwhile.

mod frame_spans;
mod ignored;
mod joiner;
mod masks;
mod message;
mod publish_gate;
mod rounding;
mod rules;
mod schedule;
mod selection;
mod tracking;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_annotate::annotator::{Annotator, EventImage};
use visiond_clips::recorder::ClipRecorder;
use visiond_engine::detector::Detection;
use visiond_events::EndReason;
use visiond_frames::frame::{Frame, FrameFacts};
use visiond_kernels::nvtx;
use visiond_kernels::view::ViewSpec;
use visiond_live::CameraView;
use visiond_message::{Message, topic};
use visiond_system::backoff::RateLimit;
use visiond_telemetry::metrics::{CameraMetrics, LaneMetrics};
use visiond_telemetry::trace;
use visiond_tracker::TrackReport;

pub use self::ignored::{IgnoredArea, drop_ignored};
pub use self::joiner::{FrameTicket, Joiner, Ticket};
pub use self::message::message_of;
pub use self::publish_gate::{Passing, PublishGate};
pub use self::rules::{PART, RuleSettings};
pub use self::schedule::{ActiveTime, Schedule};
pub use self::selection::Selection;
pub use self::tracking::{CameraTracks, FrameTracks, TrackBuffers, TrackSettings};
use crate::frame_rate::FrameRate;
use crate::lane_result::{LaneResult, ModelFacts};
use crate::mailbox::Delivery;
use crate::outlet::Outlet;

/// How late a frame may come without being missed: a source may still have it.
const LATENESS: Duration = Duration::from_secs(1);

/// How often to log masks that are too large for their message.
const QUIET: Duration = Duration::from_secs(60);

/// A model that runs on a camera's frames.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CameraModel {
    /// The model's name.
    pub name: Arc<str>,
    /// Which frames it gets.
    pub frame_rate: FrameRate,
    /// Which of its detections are kept.
    pub selection: Selection,
    /// How it sees them.
    pub view: ViewSpec,
}

/// Makes messages of a model's results for a camera.
pub struct Collector {
    /// The camera's counters and name.
    pub metrics: Arc<CameraMetrics>,
    /// Draws the camera's images, if the configuration asks for them.
    annotator: Option<Arc<Annotator>>,
    /// Stores clips of the camera's events, if the configuration asks for them.
    recorder: Option<Arc<ClipRecorder>>,
    /// How to track its objects, if the configuration asks for it, and their tracks.
    tracking: Option<(TrackSettings, Arc<Mutex<CameraTracks>>)>,
    /// Where detections are dropped.
    ignored: Vec<IgnoredArea>,
    /// The clients that watch the camera.
    pub view: Arc<CameraView>,
    /// Whether frames and images may be dropped.
    pub delivery: Delivery,
    /// Which of the model's detections are kept.
    pub selection: Selection,
    /// See [`Message::topic`].
    pub topic: Arc<str>,
    /// Joins the results of the camera's models, if the configuration asks for it, and the model's place in the camera's list.
    group: Option<(Arc<Joiner>, usize)>,
    /// How the model sees its frames.
    pub view_spec: ViewSpec,
    outlet: Arc<Outlet>,
    mask_warnings: Arc<MaskWarnings>,
    gate: Arc<PublishGate>,
}

/// Limits the warnings about masks of a camera that are too large for their message. Outlives the camera's collector.
pub struct MaskWarnings(Mutex<RateLimit>);

impl Default for MaskWarnings {
    fn default() -> Self {
        Self(Mutex::new(RateLimit::new(QUIET)))
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Collector").field("camera", &self.metrics.name).finish_non_exhaustive()
    }
}

impl Collector {
    /// Creates the collector of a camera; `delivery` decides whether its frames may be dropped.
    pub fn new(
        metrics: Arc<CameraMetrics>,
        annotator: Option<Arc<Annotator>>,
        tracking: Option<(TrackSettings, Arc<Mutex<CameraTracks>>)>,
        view: Arc<CameraView>,
        delivery: Delivery,
        outlet: Arc<Outlet>,
        mask_warnings: Arc<MaskWarnings>,
    ) -> Self {
        let (ignored, view_spec) = (Vec::new(), ViewSpec::default());
        let (selection, topic) = (Selection::default(), Arc::clone(&metrics.name));
        Self {
            metrics,
            annotator,
            recorder: None,
            tracking,
            ignored,
            view,
            delivery,
            selection,
            topic,
            group: None,
            view_spec,
            outlet,
            mask_warnings,
            gate: Arc::default(),
        }
    }

    /// The same for one of the camera's models, which may be its first.
    #[must_use]
    pub fn for_model(self, model: &CameraModel, is_first: bool) -> Self {
        let topic = topic(&self.metrics.name, &model.name, is_first);
        Self { selection: model.selection.clone(), view_spec: model.view, topic, ..self }
    }

    /// Returns the collector with its results joined to those of other models; `place` is the model's in the camera's list.
    #[must_use]
    pub fn grouped(self, joiner: Option<Arc<Joiner>>, place: usize) -> Self {
        Self { group: joiner.map(|joiner| (joiner, place)), ..self }
    }

    /// Returns the collector with clips of the camera's events.
    #[must_use]
    pub fn filmed(self, recorder: Option<Arc<ClipRecorder>>) -> Self {
        Self { recorder, ..self }
    }

    /// Returns the collector with areas in which detections are dropped.
    #[must_use]
    pub fn ignoring(self, ignored: Vec<IgnoredArea>) -> Self {
        Self { ignored, ..self }
    }

    /// Sets the gate that a reload closes when it changes the camera's privacy masks.
    #[must_use]
    pub fn behind(self, gate: &Arc<PublishGate>) -> Self {
        Self { gate: Arc::clone(gate), ..self }
    }

    /// Begins to publish a result, until the returned value is dropped; `None` if the camera's privacy masks have changed since its
    /// frame was captured.
    pub fn pass(&self) -> Option<Passing<'_>> {
        self.gate.pass()
    }

    /// Whether results need the pixels of their frames, because images are drawn or a client watches.
    pub fn wants_view(&self) -> bool {
        let draws_clips = self.recorder.as_ref().is_some_and(|recorder| recorder.draws());
        self.annotator.is_some() || draws_clips || self.view.wanted()
    }

    /// Drops the detections in the camera's ignored areas, before anything else knows of them. Allocates nothing.
    pub fn drop_ignored(&self, frame: &FrameFacts, model: &ModelFacts, detections: &mut Vec<Detection>) {
        let up = self.view_spec.orientation;
        drop_ignored(&self.ignored, up, (frame.width, frame.height), &model.labels, detections);
    }

    /// Finds the track of each detection; of none if the model's objects are not tracked.
    pub fn track(&self, result: &LaneResult<'_>, buffers: &mut TrackBuffers) {
        match &self.tracking {
            Some((settings, tracks)) => {
                tracks.lock().step(settings, result, buffers);
            }
            None => buffers.clear(),
        }
    }

    /// Publishes the events of the camera's lines and zones, once the tracks of the frame and the results of models on its detections are
    /// known. Waits only for a sink that must lose nothing.
    pub fn apply_rules(&self, result: &LaneResult<'_>, buffers: &mut TrackBuffers) {
        let Some((settings, tracks)) = &self.tracking else { return };
        // Under the lock, so that no event follows the ends of all.
        let mut tracks = tracks.lock();
        let media = (self.annotator.as_deref(), self.recorder.as_ref());
        tracks.apply_rules(settings, result, buffers, media, (&self.metrics, &self.outlet));
    }

    /// Notes that the camera has sent no frame for so long. Waits for nothing: a lane that has a frame of it knows better.
    pub fn miss_frames(&self, away: Duration) {
        if let Some(mut tracks) = self.tracking.as_ref().and_then(|(_, tracks)| tracks.try_lock()) {
            tracks.miss_frames(away, &self.metrics, &self.outlet);
        }
    }

    /// Ends the events of the camera if its last frame is older than its rules wait, at `now_ns` on CLOCK_MONOTONIC. The lane has no frame of
    /// it. Waits for nothing.
    pub fn look_for_silence(&self, now_ns: u64) {
        if let Some(mut tracks) = self.tracking.as_ref().and_then(|(_, tracks)| tracks.try_lock())
            && let Some(age) = tracks.frame_age(now_ns)
        {
            tracks.miss_frames(age.saturating_sub(LATENESS), &self.metrics, &self.outlet);
        }
    }

    /// Ends the events of the camera, because its source has ended. The lane has no frame of it.
    pub fn end_events(&self) {
        if let Some((_, tracks)) = &self.tracking {
            tracks.lock().end_events(EndReason::CameraGone, &self.metrics, &self.outlet);
        }
    }

    /// Returns the message of a result with these tracks, whose postprocessing began at `start`. Waits for nothing.
    pub fn join(&self, result: &LaneResult<'_>, reports: &[Option<TrackReport>], start: Instant) -> Message {
        let smooth = self.tracking.as_ref().is_some_and(|(settings, _)| settings.smooth);
        let message = message_of(&self.metrics.name, result, FrameTracks { reports, smooth });
        let mut message = Message { topic: Arc::clone(&self.topic), ..message };
        message.timings_us.postprocess = start.elapsed().as_micros() as u64;
        self.report_truncated(&message);
        message
    }

    /// Publishes a message that `lane` has made, unless the limit of messages is reached, and passes the frame's pixels to
    /// the live view, the annotator and the clips. Waits only for a sink, an annotator or clips that must lose nothing.
    ///
    /// `images` are the images of events that the frame is for.
    ///
    /// With a group, the message is published as a part of the frame's, now or later; [`Collector::drop_frame`] comes next.
    pub fn publish(&self, mut message: Message, view: Option<Arc<Frame>>, images: &[EventImage], lane: &LaneMetrics) {
        if self.group.is_none() && !self.outlet.message_limit.spend() {
            return;
        }
        let _range = nvtx::range(c"publish");
        let _trace = trace::work_on("publish", &message.topic, message.sequence);
        let now_ns = self.outlet.clock.monotonic_ns();
        message.timings_us.total = now_ns.saturating_sub(message.monotonic_ns) / 1_000;
        let message = Arc::new(message);
        trace::frame(&message, now_ns);
        match &self.group {
            Some((joiner, place)) => joiner.add(*place, &message),
            None => {
                (self.outlet.publish)(&message);
                self.metrics.count_published(&message);
            }
        }
        // Done before the annotator, so that a disk that hangs does not keep the daemon from being ready.
        lane.note_frame();
        // A sink may have kept the lane for longer than a reload waits.
        let Some(frame) = view.filter(|_| !self.gate.is_closed()) else { return };
        self.view.offer(&frame, &message);
        if let Some(recorder) = &self.recorder {
            match self.delivery {
                Delivery::NewestWins => recorder.offer(&frame, self.view_spec.orientation, &message),
                Delivery::Lossless => recorder.offer_wait(&frame, self.view_spec.orientation, &message),
            }
        }
        if let Some(annotator) = &self.annotator {
            match self.delivery {
                Delivery::NewestWins => annotator.offer(frame, self.view_spec.orientation, message, images),
                Delivery::Lossless => annotator.offer_wait(frame, self.view_spec.orientation, message, images),
            }
        }
    }

    /// Notes that the lane is done with a frame, with a result or without. Waits only for a sink that must lose nothing.
    pub fn drop_frame(&self, ticket: Option<Ticket>) {
        drop(ticket);
        if let Some((joiner, _)) = &self.group {
            joiner.flush();
        }
    }

    /// Logs masks that are too large for their message.
    fn report_truncated(&self, message: &Message) {
        let masks = message.truncated_masks();
        if masks == 0 {
            return;
        }
        let Some(held_back) = self.mask_warnings.0.lock().pass(Instant::now()) else { return };
        let more = if held_back > 0 { format!(" (and {held_back} more frames)") } else { String::new() };
        let Message { camera, sequence, model, .. } = message;
        log::warn!(
            camera:% = camera;
            "model {}: frame {sequence} of camera {camera}: the outlines of its masks are too much for a message: {masks} of its \
             detections have none{more}; noise has such outlines: check the model, raise score_threshold, or lower max_detections",
            model.name
        );
    }
}

#[cfg(test)]
mod tests;
