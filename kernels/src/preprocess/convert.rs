//! Words of pixels into a horizontally resampled row of RGB or luma, one plane a channel.
//!
//! Colour comes first and resampling second, because clamping to 0..=255 is not linear.

use super::fetch::Words;
use super::number::Number;
use super::plan::{Axis, LANES};
use super::simd::{Isa, Kernel};
use super::yuv::ToRgb;
use crate::color::ColorDescription;
use crate::frame::PixelFormat;

/// How a frame's words become RGB.
pub(super) enum Converter<N: ToRgb> {
    /// 4:2:2 packed: two pixels a word.
    YuvPairs(Words, N::Yuv),
    /// One pixel a word.
    YuvPixels(Words, N::Yuv),
    /// Already RGB.
    Rgb(Words),
    /// One component.
    Grey(N::Grey),
}

impl<N: ToRgb> Converter<N> {
    /// The converter of a format's words.
    pub(super) fn new(format: PixelFormat, words: Words, color: ColorDescription) -> Self {
        match format {
            PixelFormat::Yuyv | PixelFormat::Uyvy => Self::YuvPairs(words, N::yuv(color)),
            PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::I420 => Self::YuvPixels(words, N::yuv(color)),
            PixelFormat::Grey => Self::Grey(N::grey(color)),
            _ => Self::Rgb(words),
        }
    }

    /// Converts and resamples one row into as many planes as `planes` has (one of luma, or red, green and blue).
    ///
    /// About a nanosecond for 16 pixels of RGB, two for YUV, twice that where two columns are mixed.
    pub(super) fn resample(&self, isa: Isa, taps: &Taps<'_, N>, planes: &mut [Vec<N>]) {
        match *self {
            Self::YuvPairs(words, yuv) => resample(isa, YuvPairs(words, yuv), taps, planes),
            Self::YuvPixels(words, yuv) => resample(isa, YuvPixels(words, yuv), taps, planes),
            Self::Rgb(words) => resample(isa, words, taps, planes),
            Self::Grey(grey) => {
                if let [plane, ..] = planes {
                    isa.run(Row::<N, _, 1> { pixel: GreyPixel(grey), taps, planes: [plane] });
                }
            }
        }
    }
}

/// The words of one row and how they mix; all slices are equally long, a multiple of [`LANES`].
pub(super) struct Taps<'a, N> {
    /// Source columns and weights.
    pub(super) columns: &'a Axis<N>,
    /// Words of the left pixels.
    pub(super) low: &'a [u32],
    /// Words of the right pixels; `None` when none has any weight.
    pub(super) high: Option<&'a [u32]>,
}

fn resample<N: Number, P: Pixel<N, 3>>(isa: Isa, pixel: P, taps: &Taps<'_, N>, planes: &mut [Vec<N>]) {
    match planes {
        [red, green, blue] => isa.run(Row::<N, _, 3> { pixel, taps, planes: [red, green, blue] }),
        [luma] => isa.run(Row::<N, _, 1> { pixel: Luma(pixel), taps, planes: [luma] }),
        _ => {}
    }
}

/// A word's way to `C` channels.
trait Pixel<N: Number, const C: usize>: Copy {
    /// Channels of the pixel in column `x`.
    fn channels<const FMA: bool>(self, word: u32, x: u32) -> [N::Wide; C];
}

/// One row: convert, mix, store.
struct Row<'a, N, P, const C: usize> {
    pixel: P,
    taps: &'a Taps<'a, N>,
    planes: [&'a mut [N]; C],
}

impl<N: Number, P: Pixel<N, C>, const C: usize> Kernel for Row<'_, N, P, C> {
    /// Blocks of [`LANES`] pixels in local arrays: the compiler keeps them in vector registers and needs no proof that the
    /// slices do not overlap.
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { pixel, taps, planes } = self;
        let mut planes = planes.map(|plane| plane.as_chunks_mut::<LANES>().0.iter_mut());
        let columns = taps.columns;
        let low = taps.low.as_chunks::<LANES>().0.iter().zip(columns.low.as_chunks::<LANES>().0);
        let Some(high) = taps.high else {
            for (words, columns) in low {
                let block = block::<N, P, C, FMA>(pixel, words, columns);
                for channel in 0..C {
                    if let Some(out) = planes[channel].next() {
                        *out = block[channel].map(N::whole);
                    }
                }
            }
            return;
        };
        let high = high.as_chunks::<LANES>().0.iter().zip(columns.high.as_chunks::<LANES>().0);
        let weights = columns.weights.each_ref().map(|weights| weights.as_chunks::<LANES>().0.iter());
        let [low_weights, high_weights] = weights;
        for (((low, high), low_weights), high_weights) in low.zip(high).zip(low_weights).zip(high_weights) {
            let low = block::<N, P, C, FMA>(pixel, low.0, low.1);
            let high = block::<N, P, C, FMA>(pixel, high.0, high.1);
            let mut mixed = [[N::NONE; LANES]; C];
            for channel in 0..C {
                for lane in 0..LANES {
                    let weights = [low_weights[lane], high_weights[lane]];
                    mixed[channel][lane] = N::mixed::<FMA>([low[channel][lane], high[channel][lane]], weights);
                }
            }
            for channel in 0..C {
                if let Some(out) = planes[channel].next() {
                    *out = mixed[channel];
                }
            }
        }
    }
}

/// The channels of [`LANES`] words.
#[inline(always)]
fn block<N: Number, P: Pixel<N, C>, const C: usize, const FMA: bool>(
    pixel: P,
    words: &[u32; LANES],
    columns: &[u32; LANES],
) -> [[N::Wide; LANES]; C] {
    let mut block = [[N::Wide::default(); LANES]; C];
    for lane in 0..LANES {
        let value = pixel.channels::<FMA>(words[lane], columns[lane]);
        for channel in 0..C {
            block[channel][lane] = value[channel];
        }
    }
    block
}

#[derive(Clone, Copy)]
struct YuvPairs<Y>(Words, Y);

impl<N: ToRgb> Pixel<N, 3> for YuvPairs<N::Yuv> {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, x: u32) -> [N::Wide; 3] {
        let Words { first, second, third } = self.0;
        N::rgb::<FMA>(&self.1, byte(word >> ((x & 1) * 16), first), byte(word, second), byte(word, third))
    }
}

#[derive(Clone, Copy)]
struct YuvPixels<Y>(Words, Y);

impl<N: ToRgb> Pixel<N, 3> for YuvPixels<N::Yuv> {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, _x: u32) -> [N::Wide; 3] {
        let Words { first, second, third } = self.0;
        N::rgb::<FMA>(&self.1, byte(word, first), byte(word, second), byte(word, third))
    }
}

impl<N: Number> Pixel<N, 3> for Words {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, _x: u32) -> [N::Wide; 3] {
        [self.first, self.second, self.third].map(|shift| N::wide(byte(word, shift)))
    }
}

/// Luma of the channels of another pixel.
#[derive(Clone, Copy)]
struct Luma<P>(P);

impl<N: Number, P: Pixel<N, 3>> Pixel<N, 1> for Luma<P> {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, x: u32) -> [N::Wide; 1] {
        [N::luma::<FMA>(self.0.channels::<FMA>(word, x))]
    }
}

#[derive(Clone, Copy)]
struct GreyPixel<G>(G);

impl<N: ToRgb> Pixel<N, 1> for GreyPixel<N::Grey> {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, _x: u32) -> [N::Wide; 1] {
        [N::grey_value::<FMA>(&self.0, byte(word, 0))]
    }
}

#[inline(always)]
fn byte(word: u32, shift: u32) -> u32 {
    (word >> shift) & 0xff
}
