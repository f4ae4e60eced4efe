//! The input that a model expects.

use super::error::PreprocessError;
use crate::frame::MAX_SIDE;
use crate::placement::{Fit, Placement, Resize};
use crate::tensor::DType;

/// The input that a model expects.
#[derive(Debug, Clone, PartialEq)]
pub struct PreprocessSpec {
    /// The width of the input in pixels.
    pub width: u32,
    /// The height of the input in pixels.
    pub height: u32,
    /// How the frame is placed in the input.
    pub placement: Placement,
    /// How pixels are sampled.
    pub sampling: Sampling,
    /// The padding value before normalisation, 0 to 255, the same in every channel.
    pub pad: f32,
    /// The channel order.
    pub order: ChannelOrder,
    /// The channel layout.
    pub layout: TensorLayout,
    /// The element type: F32, F16, U8, I8 or I32. Whole numbers are rounded, and cut to the type's range, or to 2^22 of I32.
    pub dtype: DType,
    /// The factor for a pixel's 0..=255.
    pub scale: f32,
    /// Subtracted after `scale`, in the tensor's channel order.
    pub mean: [f32; 3],
    /// The divisor after `mean`, in the tensor's channel order.
    pub std: [f32; 3],
}

impl PreprocessSpec {
    /// Returns the input of most YOLO models: RGB divided by 255 in planes, letterboxed with grey (114) bars.
    pub const fn yolo(width: u32, height: u32, dtype: DType) -> Self {
        Self {
            width,
            height,
            placement: Placement::new(Fit::Letterbox),
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

    /// Whether each pixel comes from at most two columns and rows of the frame itself, by the sampling that is used most.
    pub(super) fn is_plain(&self) -> bool {
        let warps = self.placement.fit.warps();
        matches!(self.sampling, Sampling::Opencv | Sampling::Exact) && !self.placement.pad_first && !warps
    }

    pub(super) fn check(&self) -> Result<(), PreprocessError> {
        let Self { width, height, dtype, pad, .. } = *self;
        let refuse = |text: String| Err(PreprocessError::Invalid(text));
        let sides = 1..=MAX_SIDE;
        if !sides.contains(&width) || !sides.contains(&height) {
            let range = format!("each side must be 1 to {MAX_SIDE} pixels");
            return refuse(format!("a model input of {width}x{height} is out of range: {range}"));
        }
        if !dtype.holds_pixels() {
            return refuse(format!("cannot store pixels as {dtype}: the input must be f32, f16, u8, i8 or i32"));
        }
        if !(0.0..=255.0).contains(&pad) {
            return refuse(format!("pad is {pad}: it must be a pixel value before normalisation, 0 to 255"));
        }
        if let Fit::Crop { fraction } = self.placement.fit
            && !(fraction > 0.0 && fraction <= 1.0)
        {
            return refuse(format!("the crop fraction is {fraction}: it must be above 0 and at most 1"));
        }
        if let Fit::ResizeCrop(resize) = self.placement.fit {
            let (least_width, least_height) = match resize {
                Resize::ShortSide(side) => (side, side),
                Resize::Fraction(fraction) if fraction > 0.0 && fraction <= 1.0 => (width, height),
                Resize::Fraction(fraction) => {
                    return refuse(format!("the crop fraction is {fraction}: it must be above 0 and at most 1"));
                }
                Resize::Stretch(width, height) => (width, height),
            };
            if least_width < width || least_height < height {
                let size = format!("{least_width}x{least_height}");
                return refuse(format!(
                    "cannot cut {width}x{height} out of a picture of {size}: set at least the input's size"
                ));
            }
            if least_width > MAX_SIDE || least_height > MAX_SIDE {
                return refuse(format!(
                    "cannot resize to {least_width}x{least_height} before the crop: use at most {MAX_SIDE} pixels a side"
                ));
            }
        }
        let warps = self.placement.fit.warps();
        if warps && !self.sampling.can_warp() {
            return refuse(format!(
                "cannot warp with the sampling {:?}: use OpencvWarp, Opencv or Exact",
                self.sampling
            ));
        }
        if !warps && self.sampling.only_warps() {
            return refuse(format!(
                "cannot sample a frame that is not warped with {:?}: use another sampling, or the fit Warp or WarpStretch",
                self.sampling
            ));
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
    /// Floating point without rounding, as defined at the top of [`crate::preprocess`], like all that follow.
    Exact,
    /// OpenCV 4's `warpPerspective`, linear, 8 bits: positions in 1/32 of a pixel. NanoDet, MediaPipe.
    OpencvWarp,
    /// OpenCV 4's `warpAffine`, linear, 8 bits: the same, positions rounded in two steps. CenterNet.
    OpencvWarpAffine,
    /// OpenCV's `resize` with `INTER_AREA`, 8 bits.
    OpencvArea,
    /// OpenCV's `resize` with `INTER_CUBIC`, 8 bits. PaddleDetection.
    OpencvCubic,
    /// Pillow's `Image.resize` with `BILINEAR`, 8 bits: antialiased. Torchvision's classifiers, DETR, RT-DETR.
    PillowBilinear,
    /// Pillow's `Image.resize` with `BICUBIC`, 8 bits: antialiased. Most of timm's models.
    PillowBicubic,
    /// PyTorch's `interpolate`, bilinear, on floats, without antialias. Torchvision's detectors, RF-DETR, TensorFlow 2, Keras.
    Torch,
    /// The same with antialias.
    TorchAntialias,
    /// PyTorch's `interpolate`, bicubic, on floats, with antialias.
    TorchAntialiasBicubic,
    /// TensorFlow 1's `resize_bilinear` without half-pixel centres. Its object detection API.
    TensorflowLegacy,
}

impl Sampling {
    /// Every sampling with its name in cards.
    pub const ALL: [(&'static str, Self); 12] = [
        ("opencv", Self::Opencv),
        ("exact", Self::Exact),
        ("opencv-warp", Self::OpencvWarp),
        ("opencv-warp-affine", Self::OpencvWarpAffine),
        ("opencv-area", Self::OpencvArea),
        ("opencv-cubic", Self::OpencvCubic),
        ("pillow-bilinear", Self::PillowBilinear),
        ("pillow-bicubic", Self::PillowBicubic),
        ("torch", Self::Torch),
        ("torch-antialias", Self::TorchAntialias),
        ("torch-antialias-bicubic", Self::TorchAntialiasBicubic),
        ("tensorflow-legacy", Self::TensorflowLegacy),
    ];

    /// Whether it can sample a frame that a warp places.
    pub const fn can_warp(self) -> bool {
        matches!(self, Self::Opencv | Self::Exact) || self.only_warps()
    }

    /// Whether it can sample no other frame.
    pub const fn only_warps(self) -> bool {
        matches!(self, Self::OpencvWarp | Self::OpencvWarpAffine)
    }
}
