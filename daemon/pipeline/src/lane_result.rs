//! The result of a lane for a frame.

use std::sync::Arc;

use visiond_engine::detector::{Detection, MaskForm};
use visiond_engine::heads::FrameValues;
use visiond_frames::frame::FrameFacts;
use visiond_message::{AttributesMessage, DetectionMessage, EmbeddingMessage, KeypointMessage, MessageModel, Timings};
use visiond_telemetry::metrics::ModelValues;

/// The result of a model for one frame.
#[derive(Debug)]
pub struct LaneResult<'a> {
    /// The frame.
    pub frame: FrameFacts,
    /// The model that ran.
    pub model: &'a ModelFacts,
    /// Detections, best first.
    pub detections: &'a [Detection],
    /// Values of the whole frame.
    pub values: &'a FrameValues,
    /// The results of models on its detections, one for each detection; empty without such models.
    pub crops: &'a [CropResults],
    /// How long each stage took so far.
    pub timings: Timings,
}

/// The results of models on the crop of one detection, as a message has them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CropResults {
    pub(crate) keypoints: Vec<KeypointMessage>,
    pub(crate) attributes: AttributesMessage,
    pub(crate) embedding: Option<EmbeddingMessage>,
    pub(crate) detections: Vec<DetectionMessage>,
}

/// Facts of a loaded model that its results refer to.
#[derive(Debug, Clone, Default)]
pub struct ModelFacts {
    /// The model's name in messages.
    pub message: Arc<MessageModel>,
    /// Names of the classes.
    pub labels: Vec<Arc<str>>,
    /// Names of the keypoints; each keypoint has one.
    pub keypoint_names: Vec<Arc<str>>,
    /// The score below which its detections are dropped.
    pub score_threshold: f32,
    /// The forms of its masks in messages.
    pub masks: MaskFacts,
    /// Its outputs other than detections.
    pub values: Arc<ModelValues>,
}

/// The forms of masks in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaskFacts {
    /// Polygons, run lengths, or both.
    pub form: MaskForm,
    /// How far a polygon may be from the edge of its mask, in pixels.
    pub tolerance_pixels: u32,
}
