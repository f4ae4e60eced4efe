//! A frame into a network's input tensor: colour, geometry, scale and layout in one pass.
//!
//! What it computes, and what every implementation must agree with: each source pixel becomes RGB (its chroma sample
//! replicated, not interpolated; clamped to 0..=255, not rounded); those are sampled bilinearly at half-pixel centres with
//! edges repeated (OpenCV's `INTER_LINEAR`); each channel becomes `(value * scale - mean) / std`, stored as the tensor's
//! type (integers rounded half to even and saturated). Bayer mosaics are demosaiced bilinearly, edges mirrored.

use crate::geometry::Fit;
use crate::tensor::DType;

/// The order of a tensor's colour channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChannelOrder {
    /// Red first.
    #[default]
    Rgb,
    /// Blue first.
    Bgr,
    /// One channel of luma: 0.299 R + 0.587 G + 0.114 B.
    Grey,
}

impl ChannelOrder {
    /// Number of channels.
    pub const fn channels(self) -> usize {
        match self {
            Self::Rgb | Self::Bgr => 3,
            Self::Grey => 1,
        }
    }
}

/// Where the channels stand in a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TensorLayout {
    /// Channels are planes.
    #[default]
    Nchw,
    /// Channels are interleaved.
    Nhwc,
}

/// How pixels are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sampling {
    /// Bit for bit OpenCV's 8-bit steps: `cvtColor`, then `resize` with `INTER_LINEAR` in 11-bit fixed point, each rounded
    /// to a byte. What nearly every training and export pipeline feeds, so that boxes come out equal to theirs: a step of
    /// one level in a tenth of the pixels, which is what exact sampling differs by, moves scores by 0.01.
    #[default]
    Opencv,
    /// Floating point without rounding, as defined at the head of this module.
    Exact,
}

/// What a network wants to be fed.
#[derive(Debug, Clone, PartialEq)]
pub struct PreprocessSpec {
    /// Input width in pixels.
    pub width: u32,
    /// Input height in pixels.
    pub height: u32,
    /// How the frame is fitted.
    pub fit: Fit,
    /// How its pixels are sampled.
    pub sampling: Sampling,
    /// Value of the padding before normalisation, 0 to 255, the same in every channel.
    pub pad: f32,
    /// Channel order.
    pub order: ChannelOrder,
    /// Channel layout.
    pub layout: TensorLayout,
    /// Element type: F32, F16, U8 or I8.
    pub dtype: DType,
    /// Multiplies a pixel's 0..=255.
    pub scale: f32,
    /// Subtracted after `scale`, in the tensor's channel order.
    pub mean: [f32; 3],
    /// Divides last, in the tensor's channel order.
    pub std: [f32; 3],
}
