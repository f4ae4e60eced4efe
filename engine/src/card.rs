//! The model card: how to feed and read a model.
//!
//! A card is a TOML file beside the model (`net.onnx`, `net.toml`); docs/models.md has every key. The head's family supplies
//! the defaults, so `[head] family = "yolov8"` and the names of the classes make a complete card. Ultralytics' exports contain
//! their own ([`crate::ultralytics`]).

mod error;
mod head;
mod load;
mod presets;
mod sections;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use visiond_kernels::letterbox::Fit;
use visiond_kernels::preprocess::{ChannelOrder, Sampling, TensorLayout};

use crate::heads::{Family, HeadSpec};

pub use error::{CardError, CardProblem};

/// A model card: what a model's file does not say about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// The model's name in messages.
    pub name: String,
    /// Where the card comes from: a path, or "its Ultralytics metadata".
    pub origin: String,
    /// How frames become the model's input.
    pub input: InputCard,
    /// The inputs other than the picture.
    pub extra_inputs: BTreeMap<String, ExtraInput>,
    /// How its outputs are read.
    pub head: HeadSpec,
    /// The names of the classes from class 0 on; may be empty.
    pub classes: Vec<String>,
    /// The minimum score.
    pub score_threshold: f32,
    /// IoU above which NMS removes the lower-scoring box.
    pub iou_threshold: f32,
    /// The maximum number of detections per frame.
    pub max_detections: usize,
    /// Whether NMS also compares boxes of different classes.
    pub class_agnostic: bool,
}

impl Card {
    /// Makes a card of a head alone, with its family's defaults.
    pub(crate) fn with_head(head: HeadSpec) -> Self {
        let input = InputCard {
            name: None,
            size: None,
            fit: Fit::Letterbox,
            sampling: Sampling::default(),
            pad: 114.0,
            order: ChannelOrder::Rgb,
            layout: None,
            scale: 1.0 / 255.0,
            mean: [0.0; 3],
            std: [1.0; 3],
        };
        let family = head.family();
        let yolo = Self {
            name: String::new(),
            origin: String::new(),
            input: input.clone(),
            extra_inputs: BTreeMap::new(),
            head,
            classes: Vec::new(),
            score_threshold: 0.25,
            iou_threshold: 0.45,
            max_detections: 300,
            class_agnostic: false,
        };
        match family {
            Family::Yolov5 => yolo,
            Family::Yolov8 | Family::YoloNms => Self { iou_threshold: 0.7, ..yolo },
            Family::Yolox => Self {
                input: InputCard { fit: Fit::LetterboxTopLeft, order: ChannelOrder::Bgr, scale: 1.0, ..input },
                score_threshold: 0.3,
                ..yolo
            },
            Family::Nanodet => Self {
                input: InputCard {
                    pad: 0.0,
                    order: ChannelOrder::Bgr,
                    scale: 1.0,
                    mean: [103.53, 116.28, 123.675],
                    std: [57.375, 57.12, 58.395],
                    ..input
                },
                score_threshold: 0.4,
                iou_threshold: 0.6,
                max_detections: 100,
                ..yolo
            },
            Family::Ssd => Self {
                input: InputCard { fit: Fit::Stretch, ..input },
                score_threshold: 0.5,
                iou_threshold: 0.5,
                max_detections: 200,
                ..yolo
            },
            Family::Detr => Self { input: InputCard { fit: Fit::Stretch, ..input }, score_threshold: 0.5, ..yolo },
            Family::Heatmap => Self {
                input: InputCard { fit: Fit::Stretch, scale: 1.0, ..input },
                score_threshold: 0.4,
                iou_threshold: 0.3,
                max_detections: 100,
                ..yolo
            },
            Family::Blazeface => Self {
                input: InputCard { pad: 0.0, scale: 1.0 / 127.5, mean: [1.0; 3], ..input },
                score_threshold: 0.5,
                iou_threshold: 0.3,
                max_detections: 100,
                ..yolo
            },
            Family::Classifier => Self {
                input: InputCard {
                    fit: Fit::Crop { fraction: 0.875 },
                    mean: [0.485, 0.456, 0.406],
                    std: [0.229, 0.224, 0.225],
                    ..input
                },
                score_threshold: 0.1,
                max_detections: 5,
                ..yolo
            },
        }
    }
}

/// How a frame becomes the model's input.
#[derive(Debug, Clone, PartialEq)]
pub struct InputCard {
    /// The input that takes the picture; `None` finds it by shape.
    pub name: Option<String>,
    /// Width and height; `None` uses what the model declares.
    pub size: Option<(u32, u32)>,
    /// How the frame is fitted into the input.
    pub fit: Fit,
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

/// The values that fill an input other than the picture.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtraInput {
    /// These numbers, in the input's own type and shape.
    Values(Vec<f64>),
    /// Width and height of the model's picture input.
    InputSize,
    /// Height and width of the model's picture input.
    InputSizeHw,
}
