//! The model card: how to prepare a model's input and read its output.
//!
//! A card is a TOML file beside the model (`net.onnx`, `net.toml`); docs/models.md has every key. The head's family supplies
//! the defaults, so `[head] family = "yolov8"` and the names of the classes make a complete card. Ultralytics' exports contain
//! their own ([`crate::ultralytics`]).

mod class_name;
mod error;
mod head;
mod keypoints;
mod load;
mod numpy_file;
mod preprocess;
mod presets;
mod sections;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use visiond_kernels::placement::Placement;
use visiond_kernels::preprocess::{ChannelOrder, Sampling, TensorLayout};

pub(crate) use self::class_name::{MAX_NAME_CHARS, is_too_long};
pub(crate) use self::preprocess::Way;
use crate::backend::one_line;
use crate::heads::spec::{FacesSpec, FacesStyle, HeatmapSpec, HeatmapStyle};
use crate::heads::{Family, HeadSpec};

pub(crate) use error::CardPlaces;
pub use error::{CardError, CardProblem};
pub(crate) use keypoints::SettledKeypoints;
pub use keypoints::{KeypointCard, has_coco_keypoints};
pub use numpy_file::NumpyArray;
pub use presets::{coco_class, has_coco_classes};

/// A model card: the facts about a model that its file does not state.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// The model's name in messages.
    pub name: String,
    /// The card's origin: a path, or the model's path with "its Ultralytics metadata" if that is the card.
    pub origin: String,
    /// How to turn frames into the model's input.
    pub input: InputCard,
    /// The inputs other than the image.
    pub extra_inputs: BTreeMap<String, ExtraInput>,
    /// How to read its outputs.
    pub head: HeadSpec,
    /// The names of the classes from class 0 on; may be empty.
    pub classes: Vec<String>,
    /// The names of the keypoints and the lines between them.
    pub keypoints: KeypointCard,
    /// The minimum score.
    pub score_threshold: f32,
    /// IoU above which NMS removes the lower-scoring box.
    pub iou_threshold: f32,
    /// The maximum number of detections per frame.
    pub max_detections: usize,
    /// Whether NMS also compares boxes of different classes.
    pub class_agnostic: bool,
    /// The keys of the card's file, with their locations.
    pub(crate) places: CardPlaces,
}

/// The limit for families whose own code has none: more detections than any frame has objects, but few enough to compare.
const NO_LIMIT: usize = 1000;

impl Card {
    /// Returns a sentence about the card's `key`, such as `head.family`, with its location in the file.
    pub(crate) fn problem_at(&self, key: &str, message: &str) -> String {
        match self.places.problem(key, message) {
            Some(problem) => problem.to_string(),
            None => format!("{}: {}", self.origin, one_line(message)),
        }
    }

    /// Creates a card from a head alone, with its family's defaults.
    pub(crate) fn with_head(head: HeadSpec) -> Self {
        let way = match &head {
            HeadSpec::Yolov5 { .. } => Way::YOLOV5,
            HeadSpec::Yolov8 { .. } | HeadSpec::YoloNms { .. } => Way::ULTRALYTICS,
            HeadSpec::Yolox(_) => Way::MEGVII_YOLOX,
            HeadSpec::Nanodet(_) => Way::NANODET,
            HeadSpec::Ssd(_)
            | HeadSpec::Fomo
            | HeadSpec::Darknet(_)
            | HeadSpec::Heatmap(HeatmapSpec { style: HeatmapStyle::DetectNet, .. }) => Way::STRETCH,
            HeadSpec::Detr(_) => Way::RT_DETR,
            HeadSpec::Heatmap(heatmap) if heatmap.style == HeatmapStyle::CenterFace => Way::CENTERFACE,
            HeadSpec::Heatmap(heatmap) if heatmap.style == HeatmapStyle::TtfNet => Way::TTFNET,
            HeadSpec::Heatmap(_) => Way::CENTERNET,
            HeadSpec::Blazeface(_) => Way::MEDIAPIPE,
            HeadSpec::Faces(faces) => match faces.style {
                FacesStyle::Scrfd => Way::SCRFD,
                FacesStyle::Yunet => Way::YUNET,
                FacesStyle::Retinaface => Way::RETINAFACE,
            },
            HeadSpec::Movenet => Way::MOVENET,
            HeadSpec::Pose => Way::MMPOSE,
            HeadSpec::Semantic { .. } => Way::DETR,
            HeadSpec::DbText(_) => Way::PADDLE_OCR,
            HeadSpec::Classifier { .. } => Way::TORCHVISION,
            HeadSpec::Attributes(_) | HeadSpec::Embedding { .. } => Way::DETR,
            HeadSpec::Depth(_) => Way::PADDLE,
        };
        let family = head.family();
        let classes = match family {
            Family::DbText => vec!["text".to_owned()],
            Family::Faces => vec!["face".to_owned()],
            _ => Vec::new(),
        };
        let (faces_score, faces_iou) = match &head {
            HeadSpec::Faces(FacesSpec { style: FacesStyle::Yunet, .. }) => (0.9, 0.3),
            HeadSpec::Faces(FacesSpec { style: FacesStyle::Retinaface, .. }) => (0.6, 0.4),
            _ => (0.5, 0.4),
        };
        let (heat_score, heat_iou, heat_most) = match &head {
            HeadSpec::Heatmap(spec) if spec.style == HeatmapStyle::CenterFace => (0.5, 0.3, NO_LIMIT),
            HeadSpec::Heatmap(spec) if spec.style == HeatmapStyle::DetectNet => (0.4, 0.5, NO_LIMIT),
            _ => (0.3, 0.3, 100),
        };
        let yolo = Self {
            name: String::new(),
            origin: String::new(),
            input: way.input(),
            extra_inputs: BTreeMap::new(),
            head,
            classes,
            keypoints: KeypointCard::default(),
            score_threshold: 0.25,
            iou_threshold: 0.45,
            max_detections: 300,
            class_agnostic: false,
            places: CardPlaces::default(),
        };
        match family {
            Family::Yolov5 => Self { max_detections: 1000, ..yolo },
            Family::Yolov8 | Family::YoloNms => Self { iou_threshold: 0.7, ..yolo },
            Family::Yolox => Self { score_threshold: 0.3, max_detections: NO_LIMIT, ..yolo },
            Family::Nanodet => Self { score_threshold: 0.4, iou_threshold: 0.6, max_detections: 100, ..yolo },
            Family::Ssd => Self { score_threshold: 0.5, iou_threshold: 0.5, ..yolo },
            Family::Detr => Self { score_threshold: 0.5, ..yolo },
            Family::Heatmap => {
                Self { score_threshold: heat_score, iou_threshold: heat_iou, max_detections: heat_most, ..yolo }
            }
            Family::Blazeface => Self { score_threshold: 0.5, iou_threshold: 0.3, max_detections: NO_LIMIT, ..yolo },
            Family::Faces => {
                Self { score_threshold: faces_score, iou_threshold: faces_iou, max_detections: NO_LIMIT, ..yolo }
            }
            Family::Darknet => Self { max_detections: NO_LIMIT, ..yolo },
            Family::Fomo => Self { score_threshold: 0.5, max_detections: NO_LIMIT, ..yolo },
            Family::Movenet => Self { score_threshold: 0.11, ..yolo },
            // mmpose's `kpt_thr`.
            Family::Pose => Self { score_threshold: 0.3, ..yolo },
            // Every class that covers a pixel.
            Family::Semantic => Self { score_threshold: 0.0, max_detections: NO_LIMIT, ..yolo },
            Family::DbText => Self { score_threshold: 0.6, max_detections: NO_LIMIT, ..yolo },
            Family::Classifier => Self { score_threshold: 0.1, max_detections: 5, ..yolo },
            Family::Attributes => Self { score_threshold: 0.5, ..yolo },
            Family::Embedding | Family::Depth => yolo,
        }
    }
}

/// How a frame becomes the model's input.
#[derive(Debug, Clone, PartialEq)]
pub struct InputCard {
    /// The input that takes the image; `None` finds it by shape.
    pub name: Option<String>,
    /// Width and height; `None` uses the model's declared size.
    pub size: Option<(u32, u32)>,
    /// How the frame is placed in the input.
    pub placement: Placement,
    /// How pixels are sampled.
    pub sampling: Sampling,
    /// The padding value, 0 to 255.
    pub pad: f32,
    /// The channel order.
    pub order: ChannelOrder,
    /// The channel layout; `None` derives it from the declared shape.
    pub layout: Option<TensorLayout>,
    /// The factor for a pixel's 0..=255.
    pub scale: f32,
    /// Subtracted after `scale`, in the tensor's channel order.
    pub mean: [f32; 3],
    /// The divisor after `mean`, in the tensor's channel order.
    pub std: [f32; 3],
}

/// The values that fill an input other than the image.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtraInput {
    /// These numbers, in the input's own type and shape.
    Values(Vec<f64>),
    /// The numbers of a NumPy file with their shape, in the input's own type.
    Array(NumpyArray),
    /// Width and height of the model's image input.
    InputSize,
    /// Height and width of the model's image input.
    InputSizeHw,
}

impl ExtraInput {
    /// Returns the numbers, for an image input of this width and height; they are repeated until the input is full.
    pub(crate) fn values(&self, (width, height): (u32, u32)) -> Cow<'_, [f64]> {
        let (width, height) = (f64::from(width), f64::from(height));
        match self {
            Self::Values(values) => Cow::Borrowed(values),
            Self::Array(array) => Cow::Borrowed(&array.values),
            Self::InputSize => Cow::Owned(vec![width, height]),
            Self::InputSizeHw => Cow::Owned(vec![height, width]),
        }
    }
}
