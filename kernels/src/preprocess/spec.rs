//! What a model wants to be fed.

use super::error::PreprocessError;
use crate::frame::MAX_SIDE;
use crate::letterbox::Fit;
use crate::tensor::DType;

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

    /// The tensor's shape without a batch dimension: [C, H, W] or [H, W, C].
    pub fn shape(&self) -> [usize; 3] {
        let (channels, height, width) = (self.order.channels(), self.height as usize, self.width as usize);
        match self.layout {
            TensorLayout::Nchw => [channels, height, width],
            TensorLayout::Nhwc => [height, width, channels],
        }
    }

    pub(super) fn check(&self) -> Result<(), PreprocessError> {
        let side = 1..=MAX_SIDE;
        if !side.contains(&self.width) || !side.contains(&self.height) {
            return Err(PreprocessError::Size { width: self.width, height: self.height });
        }
        if !matches!(self.dtype, DType::F32 | DType::F16 | DType::U8 | DType::I8) {
            return Err(PreprocessError::ElementType { dtype: self.dtype });
        }
        if !(0.0..=255.0).contains(&self.pad) {
            return Err(PreprocessError::Pad { value: self.pad });
        }
        if let Fit::Crop { fraction } = self.fit
            && !(fraction > 0.0 && fraction <= 1.0)
        {
            return Err(PreprocessError::CropFraction { value: fraction });
        }
        let channels = self.order.channels();
        let finite = |name: &'static str, values: &[f32]| match values.iter().find(|value| !value.is_finite()) {
            Some(&value) => Err(PreprocessError::NotFinite { name, value }),
            None => Ok(()),
        };
        finite("scale", &[self.scale])?;
        finite("mean", &self.mean[..channels])?;
        finite("std", &self.std[..channels])?;
        match self.std[..channels].iter().position(|&std| std == 0.0) {
            Some(channel) => Err(PreprocessError::ZeroStd { channel }),
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
