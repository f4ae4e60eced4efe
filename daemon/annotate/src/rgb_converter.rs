//! Converts a frame of any format to an RGB image.

use image::RgbImage;
use visiond_kernels::frame::{FrameCopyError, FrameError, FrameView};
use visiond_kernels::placement::Fit;
use visiond_kernels::preprocess::{
    ChannelOrder, PreprocessError, PreprocessSpec, Preprocessor, Sampling, TensorLayout,
};
use visiond_kernels::tensor::{DType, TensorMut, TensorSizeError};

/// Why a frame cannot become an image.
#[derive(Debug, thiserror::Error)]
pub enum RgbError {
    /// The frame's bytes do not match its layout.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The frame cannot be copied from the GPU.
    #[error(transparent)]
    Copy(#[from] FrameCopyError),
    /// The conversion failed.
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    /// The image's bytes do not match its size.
    #[error(transparent)]
    Size(#[from] TensorSizeError),
    /// The image is too large for memory.
    #[error("an image of {width}x{height} is too large")]
    TooLarge {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
}

/// Converts frames to RGB images; keeps its tables while the size of the frames stays the same.
///
/// It runs the preprocess of a model whose input is the unscaled frame, so that colours are converted in one place.
#[derive(Default)]
pub struct RgbConverter {
    preprocessor: Option<Preprocessor>,
    /// The last frame that was in the GPU's memory.
    copy: Vec<u8>,
}

impl RgbConverter {
    /// Returns the frame's pixels, turned and mirrored if it is a view of that kind.
    pub fn make(&mut self, frame: &FrameView<'_>) -> Result<RgbImage, RgbError> {
        let (width, height) = frame.view().picture_size();
        let fits = |made: &Preprocessor| (made.spec().width, made.spec().height) == (width, height);
        let preprocessor = match self.preprocessor.take_if(|made| fits(made)) {
            Some(made) => self.preprocessor.insert(made),
            None => self.preprocessor.insert(Preprocessor::new(unscaled(width, height))?),
        };
        let mut pixels = vec![0; width as usize * height as usize * 3];
        let shape = [height as usize, width as usize, 3];
        let frame = frame.on_host(&mut self.copy)?;
        preprocessor.run(&frame, &mut TensorMut::new(DType::U8, &shape, &mut pixels)?)?;
        RgbImage::from_raw(width, height, pixels).ok_or(RgbError::TooLarge { width, height })
    }
}

fn unscaled(width: u32, height: u32) -> PreprocessSpec {
    PreprocessSpec {
        width,
        height,
        placement: Fit::Stretch.into(),
        sampling: Sampling::Opencv,
        pad: 0.0,
        order: ChannelOrder::Rgb,
        layout: TensorLayout::Nhwc,
        dtype: DType::U8,
        scale: 1.0,
        mean: [0.0; 3],
        std: [1.0; 3],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use visiond_kernels::color::ColorDescription;
    use visiond_kernels::frame::{FrameLayout, PixelFormat};
    use visiond_kernels::view::Orientation;

    #[test]
    fn rgb_stays_as_it_is_and_yuv_gets_its_colours() {
        let mut maker = RgbConverter::default();
        let bytes: Vec<u8> = (0..7 * 5 * 3).map(|i| (i * 37 % 256) as u8).collect();
        let layout = FrameLayout::packed(PixelFormat::Rgb, 7, 5, ColorDescription::default()).unwrap();
        let picture = maker.make(&layout.view(&bytes).unwrap()).unwrap();
        assert_eq!(picture.as_raw(), &bytes);
        // Limited-range BT.601: Y 81, Cb 90, Cr 240 is pure red.
        let layout = FrameLayout::packed(PixelFormat::Yuyv, 4, 2, ColorDescription::default()).unwrap();
        let picture = maker.make(&layout.view(&[81, 90, 81, 240].repeat(4)).unwrap()).unwrap();
        for pixel in picture.pixels() {
            assert!(pixel.0[0] >= 253 && pixel.0[1] <= 2 && pixel.0[2] <= 2, "{pixel:?}");
        }
    }

    #[test]
    fn a_turned_frame_makes_the_turned_picture_in_every_format() {
        let mut maker = RgbConverter::default();
        for format in PixelFormat::all() {
            let layout = FrameLayout::packed(format, 10, 6, ColorDescription::default()).unwrap();
            let bytes: Vec<u8> =
                (0..layout.size_bytes() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let frame = layout.view(&bytes).unwrap();
            let plain = maker.make(&frame).unwrap();
            for orientation in Orientation::all() {
                let turned = maker.make(&frame.turned(orientation).unwrap()).unwrap();
                assert_eq!(turned.dimensions(), orientation.size_of((10, 6)));
                for (x, y, pixel) in plain.enumerate_pixels() {
                    let at = orientation.point_to_picture((10.0, 6.0), (x as f32 + 0.5, y as f32 + 0.5));
                    assert_eq!(turned.get_pixel(at.0 as u32, at.1 as u32), pixel, "{format} {orientation:?}");
                }
            }
        }
    }

    #[test]
    fn every_format_makes_a_picture() {
        let mut maker = RgbConverter::default();
        for format in PixelFormat::all() {
            let layout = FrameLayout::packed(format, 9, 6, ColorDescription::default()).unwrap();
            let bytes = vec![100; layout.size_bytes()];
            assert_eq!(maker.make(&layout.view(&bytes).unwrap()).unwrap().dimensions(), (9, 6), "{format}");
        }
    }
}
