//! What a model card says.

use std::collections::BTreeMap;

use visiond_kernels::letterbox::Fit;
use visiond_kernels::preprocess::{ChannelOrder, Sampling, TensorLayout};

use crate::heads::HeadSpec;

/// All that a network's file does not tell.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// The network's name, as messages carry it.
    pub name: String,
    /// Where the card comes from, for people: a path, or "its Ultralytics metadata".
    pub origin: String,
    /// How the network is fed.
    pub input: InputCard,
    /// Inputs besides the picture.
    pub extra_inputs: BTreeMap<String, ExtraInput>,
    /// How its outputs are read.
    pub head: HeadSpec,
    /// Names of the classes, from class 0 on; may be empty.
    pub classes: Vec<String>,
    /// What scores less is left out.
    pub score_threshold: f32,
    /// Overlap above which the lesser box goes.
    pub iou_threshold: f32,
    /// At most so many detections a frame.
    pub max_detections: usize,
    /// Whether boxes of different classes suppress each other.
    pub class_agnostic: bool,
}

/// How a frame becomes the network's input.
#[derive(Debug, Clone, PartialEq)]
pub struct InputCard {
    /// The input that takes the picture; `None` for the one that looks like it.
    pub name: Option<String>,
    /// Width and height; `None` for what the network declares.
    pub size: Option<(u32, u32)>,
    /// How the frame is fitted.
    pub fit: Fit,
    /// How its pixels are sampled.
    pub sampling: Sampling,
    /// Padding, 0 to 255.
    pub pad: f32,
    /// Channel order.
    pub order: ChannelOrder,
    /// Channel layout; `None` for what the declared shape looks like.
    pub layout: Option<TensorLayout>,
    /// Multiplies a pixel's 0..=255.
    pub scale: f32,
    /// Subtracted after `scale`, in the tensor's channel order.
    pub mean: [f32; 3],
    /// Divides last, in the tensor's channel order.
    pub std: [f32; 3],
}

/// What an input besides the picture is filled with.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtraInput {
    /// These numbers, in the input's own type and declared shape.
    Values(Vec<f64>),
    /// Width and height of the network's picture input.
    InputSize,
    /// Height and width of the network's picture input.
    InputSizeHw,
}
