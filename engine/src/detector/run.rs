//! The arguments and results of a detector: options, runs, their timings and counters, detections.

use visiond_kernels::cuda::StreamPriority;
use visiond_kernels::mask::Mask;
use visiond_kernels::oriented::OrientedBox;

/// One detected object, in pixels of the source frame.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Detection {
    /// The class, counted from 0.
    pub class_id: u32,
    /// The confidence, 0 to 1.
    pub score: f32,
    /// The box x1, y1, x2, y2, inside the frame; `None` from a classifier.
    pub box_in_source: Option<[f32; 4]>,
    /// The oriented box, which may extend beyond the frame; `None` if the model has no oriented boxes.
    pub oriented: Option<OrientedBox>,
    /// The keypoints in the source frame; empty if the model has none.
    pub keypoints: Vec<Keypoint>,
    /// The part of the frame that the class covers, 0 to 1; `None` unless the model gives a class for each pixel.
    pub fraction: Option<f32>,
    /// The object's pixels; `None` if the model outputs none, or the options do not request them.
    pub mask: Option<Mask>,
}

/// A keypoint of a detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keypoint {
    /// In pixels of the source frame; may be outside it, if the model guesses a point that the frame cuts off.
    pub x: f32,
    /// In pixels of the source frame.
    pub y: f32,
    /// The confidence, 0 to 1; `None` if the model does not return one.
    pub score: Option<f32>,
}

/// The mask formats in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MaskForm {
    /// Not at all.
    None,
    /// Polygons.
    #[default]
    Polygons,
    /// COCO's run lengths.
    Rle,
    /// Both.
    Both,
}

impl MaskForm {
    /// Whether there are polygons.
    pub const fn has_polygons(self) -> bool {
        matches!(self, Self::Polygons | Self::Both)
    }

    /// Whether there are run lengths.
    pub const fn has_rle(self) -> bool {
        matches!(self, Self::Rle | Self::Both)
    }
}

/// Settings of the user that override the card.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DetectorOptions {
    /// Minimum score; `None` uses the card's.
    pub score_threshold: Option<f32>,
    /// IoU above which NMS removes the lower-scoring box; `None` uses the card's.
    pub iou_threshold: Option<f32>,
    /// Maximum number of detections per frame; `None` uses the card's.
    pub max_detections: Option<usize>,
    /// Names of the classes to detect; all if empty. Use the number of a class that has no name.
    pub classes: Vec<String>,
    /// Batch size, if the model leaves it open; 0 is 1.
    pub max_batch: usize,
    /// The forms of masks in messages, if the model has masks; with [`MaskForm::None`], detections have none.
    pub masks: MaskForm,
    /// Whether [`Detector::raw_output`](super::Detector::raw_output) is needed. The model then runs through host memory.
    pub raw_outputs: bool,
    /// Whether the GPU starts the work of this model before that of others. It has no effect if the model runs on the CPU or
    /// through host memory.
    pub priority: StreamPriority,
}

/// Identifies a run for [`Detector::finish`](super::Detector::finish) and
/// [`Detector::detections`](super::Detector::detections).
///
/// Holds an index below [`Detector::max_in_flight`](super::Detector::max_in_flight). Its results can be read after it is finished,
/// until a later run reuses the same index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId(pub usize);

/// The durations of a run with all of its frames, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTimings {
    /// Host time until the run was submitted to the GPU; 0 without a GPU.
    pub launch_us: u64,
    /// Preprocessing of the frames.
    pub preprocess_us: u64,
    /// Inference; on the GPU including the candidate filter, unless that overlapped another run.
    pub infer_us: u64,
}

/// The counters of a detector since its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCounts {
    /// Runs submitted to the GPU as one CUDA graph.
    pub graph_runs: u64,
    /// Runs submitted to the GPU call by call.
    pub single_runs: u64,
    /// Runs, graph or not, that were begun while another was in flight.
    pub overlapped_runs: u64,
    /// Bytes of frames that were copied because the GPU cannot access their memory.
    pub copied_bytes: u64,
    /// Candidates that did not fit into the GPU's filter.
    pub lost_candidates: u64,
}

impl RunCounts {
    /// Returns the difference to `earlier`; `None` if `earlier` is from another detector.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            graph_runs: self.graph_runs.checked_sub(earlier.graph_runs)?,
            single_runs: self.single_runs.checked_sub(earlier.single_runs)?,
            overlapped_runs: self.overlapped_runs.checked_sub(earlier.overlapped_runs)?,
            copied_bytes: self.copied_bytes.checked_sub(earlier.copied_bytes)?,
            lost_candidates: self.lost_candidates.checked_sub(earlier.lost_candidates)?,
        })
    }
}
