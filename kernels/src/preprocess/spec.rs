//! The input that a model expects.

use super::error::PreprocessError;
use crate::frame::MAX_SIDE;
use crate::letterbox::Fit;
use crate::tensor::DType;

/// The input that a model expects.
#[derive(Debug, Clone, PartialEq)]
pub struct PreprocessSpec {
    /// The width of the input in pixels.
    pub width: u32,
    /// The height of the input in pixels.
    pub height: u32,
    /// How the frame is fitted into the input.
    pub fit: Fit,
    /// How pixels are sampled.
    pub sampling: Sampling,
    /// The padding value before normalisation, 0 to 255, the same in every channel.
    pub pad: f32,
    /// The channel order.
    pub order: ChannelOrder,
    /// The channel layout.
    pub layout: TensorLayout,
    /// The element type: F32, F16, U8 or I8.
    pub dtype: DType,
    /// The factor for a pixel's 0..=255.
    pub scale: f32,
    /// Subtracted after `scale`, in the tensor's channel order.
    pub mean: [f32; 3],
    /// The divisor after `mean`, in the tensor's channel order.
    pub std: [f32; 3],
}

impl PreprocessSpec {
    /// Returns what most YOLO models want: RGB divided by 255 in planes, letterboxed with grey (114) bars.
    pub const fn yolo(width: u32, height: u32, dtype: DType) -> Self {
        Self {
            width,
            height,
            fit: Fit::Letterbox,
            sampling: Sampling::Opencv,
            pad: 114.0,
            order: ChannelOrder::Rgb,
            layout: TensorLayout::Nchw,
            dtype,
            scale: 1.0 / 255.0,
            mean: [0.0; 3],
            std: [1.0; 3],
        }
    }

    /// Returns the tensor's shape without a batch dimension: [C, H, W] or [H, W, C].
    pub fn shape(&self) -> [usize; 3] {
        let (channels, height, width) = (self.order.channels(), self.height as usize, self.width as usize);
        match self.layout {
            TensorLayout::Nchw => [channels, height, width],
            TensorLayout::Nhwc => [height, width, channels],
        }
    }

    pub(super) fn check(&self) -> Result<(), PreprocessError> {
        let Self { width, height, dtype, pad, .. } = *self;
        let refuse = |text: String| Err(PreprocessError::Invalid(text));
        let sides = 1..=MAX_SIDE;
        if !sides.contains(&width) || !sides.contains(&height) {
            let range = format!("each side must be 1 to {MAX_SIDE} pixels");
            return refuse(format!("a model input of {width}x{height} is out of range: {range}"));
        }
        if !matches!(dtype, DType::F32 | DType::F16 | DType::U8 | DType::I8) {
            return refuse(format!("cannot store pixels as {dtype}: the input must be f32, f16, u8 or i8"));
        }
        if !(0.0..=255.0).contains(&pad) {
            return refuse(format!("pad is {pad}: it must be a pixel value before normalisation, 0 to 255"));
        }
        if let Fit::Crop { fraction } = self.fit
            && !(fraction > 0.0 && fraction <= 1.0)
        {
            return refuse(format!("the crop fraction is {fraction}: it must be above 0 and at most 1"));
        }
        let channels = self.order.channels();
        let (mean, std) = (&self.mean[..channels], &self.std[..channels]);
        for (name, values) in [("scale", &[self.scale][..]), ("mean", mean), ("std", std)] {
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return refuse(format!("{name} is {value}: it must be a finite number"));
            }
        }
        match std.iter().position(|&std| std == 0.0) {
            Some(channel) => {
                refuse(format!("std of channel {channel} is 0, but it is a divisor: use 1 to leave values unchanged"))
            }
            None => Ok(()),
        }
    }
}

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
    /// Returns the number of channels.
    pub const fn channels(self) -> usize {
        match self {
            Self::Rgb | Self::Bgr => 3,
            Self::Grey => 1,
        }
    }
}

/// Where the channels are in a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TensorLayout {
    /// Each channel is a plane.
    #[default]
    Nchw,
    /// Channels are interleaved.
    Nhwc,
}

/// How pixels are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sampling {
    /// Bit for bit like OpenCV's 8-bit steps: `cvtColor`, then `resize` with `INTER_LINEAR` in 11-bit fixed point, each rounded
    /// to a byte. Nearly every training and export pipeline feeds this, so boxes are equal to theirs: exact sampling differs by
    /// one level in a tenth of the pixels, which changes scores by 0.01.
    #[default]
    Opencv,
    /// Floating point without rounding, as defined at the top of [`crate::preprocess`].
    Exact,
}
