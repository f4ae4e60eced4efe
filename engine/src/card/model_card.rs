//! What a model card says.

use std::collections::BTreeMap;

use visiond_kernels::letterbox::Fit;
use visiond_kernels::preprocess::{ChannelOrder, Sampling, TensorLayout};

use crate::heads::HeadSpec;

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

/// What fills an input other than the picture.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtraInput {
    /// These numbers, in the input's own type and shape.
    Values(Vec<f64>),
    /// Width and height of the model's picture input.
    InputSize,
    /// Height and width of the model's picture input.
    InputSizeHw,
}
