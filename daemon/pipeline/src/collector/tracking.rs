//! Gives each detection of a camera its track.

use std::sync::Arc;
use std::time::Duration;

use visiond_annotate::annotator::{Annotator, EventImage};
use visiond_clips::recorder::ClipRecorder;
use visiond_engine::detector::class_label;
use visiond_events::EndReason;
use visiond_message::MessageModel;
use visiond_telemetry::metrics::CameraMetrics;
use visiond_tracker::{Observation, Parameters, Step, TrackIds, TrackReport, Tracker};

use super::rules::{CameraRules, RuleSettings};
use crate::lane_result::{LaneResult, ModelFacts};
use crate::outlet::Outlet;

/// The default of [`TrackSettings::score`] is the model's threshold, but not below this: most detections with lower scores are errors.
const LEAST_SCORE: f64 = 0.25;

/// What of a camera is tracked, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct TrackSettings {
    /// How long an object may be unseen before its track ends.
    pub unseen: Duration,
    /// The score from which a detection keeps a track by itself. Without it, the model's threshold, but from 0.25 to 0.6.
    pub score: Option<f64>,
    /// The labels that have tracks; empty: all.
    pub classes: Vec<String>,
    /// Whether messages have the boxes of tracks without the detector's jitter.
    pub smooth: bool,
    /// The lines and zones.
    pub rules: Arc<[RuleSettings]>,
}

impl Default for TrackSettings {
    fn default() -> Self {
        Self {
            unseen: Parameters::default().unseen,
            score: None,
            classes: Vec::new(),
            smooth: false,
            rules: Arc::default(),
        }
    }
}

impl TrackSettings {
    /// Returns the parameters for a model that gives detections from `threshold` on.
    fn parameters(&self, threshold: f32) -> Parameters {
        let default = Parameters::default();
        // A threshold above the default drops what is below anyway.
        let of_model = f64::from(threshold).clamp(LEAST_SCORE, default.score);
        Parameters { unseen: self.unseen, score: self.score.unwrap_or(of_model), ..default }
    }

    /// Whether a class has tracks.
    fn has(&self, labels: &[Arc<str>], class_id: u32) -> bool {
        if self.classes.is_empty() {
            return true;
        }
        let label = class_label(labels, class_id);
        self.classes.iter().any(|class| **class == *label)
    }
}

/// The tracks of a frame's detections.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameTracks<'a> {
    /// The track of each detection; empty if the camera does not track objects.
    pub reports: &'a [Option<TrackReport>],
    /// See [`TrackSettings::smooth`].
    pub smooth: bool,
}

/// The memory of a step. One serves all cameras of a lane: it is in the cache more often than one for each.
#[derive(Debug, Default)]
pub struct TrackBuffers {
    observations: Vec<Observation<'static>>,
    step: Step,
    /// The images of events that the frame is for.
    images: Vec<EventImage>,
}

impl TrackBuffers {
    /// Returns the track of each detection of the last step.
    pub fn reports(&self) -> &[Option<TrackReport>] {
        &self.step.tracks
    }

    /// Returns the images of events that the frame of the last step is for.
    pub fn images(&self) -> &[EventImage] {
        &self.images
    }

    /// Forgets the last step.
    pub fn clear(&mut self) {
        self.step.tracks.clear();
        self.images.clear();
    }
}

/// The tracks of a camera. Outlives the camera's collector, so that a reload keeps the ids.
#[derive(Debug)]
pub struct CameraTracks {
    ids: Arc<TrackIds>,
    tracker: Tracker,
    /// The model whose classes the tracks have.
    model: Arc<MessageModel>,
    labels: Vec<Arc<str>>,
    rules: CameraRules,
}

impl CameraTracks {
    /// Makes tracks whose ids come from `ids`, which all cameras share.
    pub fn new(ids: Arc<TrackIds>) -> Self {
        Self {
            tracker: Tracker::new(Parameters::default(), Arc::clone(&ids)),
            ids,
            model: Arc::default(),
            labels: Vec::new(),
            rules: CameraRules::default(),
        }
    }

    /// Returns the track of each detection of the camera's next frame. It costs 1 us for 7 objects, and 4 to 6 us if other work between
    /// frames took its memory out of the nearest caches. Allocates nothing once its lists have grown.
    pub fn step<'b>(
        &mut self,
        settings: &TrackSettings,
        result: &LaneResult<'_>,
        buffers: &'b mut TrackBuffers,
    ) -> FrameTracks<'b> {
        let TrackBuffers { observations, step, .. } = buffers;
        let LaneResult { frame, model, detections, .. } = result;
        if !Arc::ptr_eq(&self.model, &model.message) {
            self.take_model(settings, model);
        }
        observations.clear();
        observations.extend(detections.iter().map(|detection| {
            // A class of a map of the frame is no object.
            let object = detection.box_in_source.filter(|_| detection.fraction.is_none());
            match object.filter(|_| settings.has(&model.labels, detection.class_id)) {
                Some(bounds) => Observation {
                    bounds,
                    oriented: detection.oriented,
                    score: detection.score,
                    class_id: detection.class_id,
                    embedding: None,
                },
                // The tracker passes over an empty box.
                None => Observation { bounds: [0.0; 4], oriented: None, score: 0.0, class_id: 0, embedding: None },
            }
        }));
        self.tracker.set_parameters(settings.parameters(model.score_threshold));
        self.tracker.step(frame.time(), observations, step);
        FrameTracks { reports: &step.tracks, smooth: settings.smooth }
    }

    /// Publishes and counts the events of the camera's lines and zones in the last step, finds the images of events that the frame is for,
    /// and begins and ends their clips.
    pub fn apply_rules(
        &mut self,
        settings: &TrackSettings,
        result: &LaneResult<'_>,
        TrackBuffers { step, images, .. }: &mut TrackBuffers,
        media: (Option<&Annotator>, Option<&Arc<ClipRecorder>>),
        (metrics, outlet): (&CameraMetrics, &Outlet),
    ) {
        let reports = (&*step.tracks, &*step.ended);
        self.rules.step(&settings.rules, result, reports, media, (&metrics.name, outlet));
        images.clear();
        images.append(self.rules.images());
        if self.rules.has_news() {
            metrics.count_rules(self.rules.counts());
        }
    }

    /// Resets the totals of a line or zone.
    pub fn reset_totals(&mut self, rule: &str, metrics: &CameraMetrics, outlet: &Outlet) {
        self.rules.reset_totals(rule);
        outlet.events.reset_totals(&metrics.name, rule);
        metrics.count_rules(self.rules.counts());
    }

    /// Compares the classes in new settings with those of the model at the next frame.
    pub fn change_settings(&mut self) {
        self.model = Arc::default();
    }

    /// Ends the events of all lines and zones: the tracks end.
    pub fn finish(&mut self, reason: EndReason, metrics: &CameraMetrics, outlet: &Outlet) {
        self.rules.finish(reason, &self.labels, (&metrics.name, outlet));
        metrics.end_events();
    }

    /// Ends the events of all lines and zones. Later frames may begin others.
    pub fn end_events(&mut self, reason: EndReason, metrics: &CameraMetrics, outlet: &Outlet) {
        self.rules.end_events(reason, &self.labels, (&metrics.name, outlet));
        metrics.end_events();
    }

    /// Returns the age of the last frame that the lines and zones have seen. `None` without one, and of a recording, whose time is its own.
    pub fn frame_age(&self, now_ns: u64) -> Option<Duration> {
        self.rules.frame_age(now_ns)
    }

    /// Ends the events of each line and zone if the camera has been away for so long that its next frame would end them.
    pub fn miss_frames(&mut self, away: Duration, metrics: &CameraMetrics, outlet: &Outlet) {
        if self.rules.miss_frames(away, &self.labels, (&metrics.name, outlet)) {
            metrics.count_rules(self.rules.counts());
        }
    }

    /// Starts a new tracker if the model has other classes, and warns about classes in the settings that it does not have.
    fn take_model(&mut self, settings: &TrackSettings, model: &ModelFacts) {
        self.model = Arc::clone(&model.message);
        if self.labels != model.labels {
            self.labels.clone_from(&model.labels);
            self.tracker = Tracker::new(Parameters::default(), Arc::clone(&self.ids));
            self.rules.take_model();
        }
        let unknown =
            |class: &&String| !model.labels.is_empty() && !model.labels.iter().any(|label| **label == ***class);
        for class in settings.classes.iter().filter(unknown) {
            let name = &model.message.name;
            log::warn!("model {name} has no class `{class}`, which `track.classes` names: correct it, or remove it");
        }
    }
}

#[cfg(test)]
mod tests;
