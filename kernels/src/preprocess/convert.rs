//! Words of pixels into a horizontally resampled row of RGB or luma, in f32 of 0 to 255, one plane a channel.
//!
//! Colour comes first and resampling second, because clamping to 0..=255 is not linear.

use super::fetch::Words;
use super::plan::{Axis, LANES};
use super::simd::{Isa, Kernel, multiply_add};
use crate::color::{ColorDescription, ColorRange};
use crate::frame::PixelFormat;

/// Luma of RGB, for networks that see one channel.
pub(super) const LUMA: [f32; 3] = [0.299, 0.587, 0.114];

/// How a frame's words become RGB.
#[derive(Debug, Clone, Copy)]
pub(super) enum Converter {
    /// 4:2:2 packed: two pixels a word.
    YuvPairs(Yuv),
    /// One pixel a word.
    YuvPixels(Yuv),
    /// Already RGB.
    Rgb(Words),
    /// One component.
    Grey(Grey),
}

impl Converter {
    /// The converter of a format's words.
    pub(super) fn new(format: PixelFormat, words: Words, color: ColorDescription) -> Self {
        match format {
            PixelFormat::Yuyv | PixelFormat::Uyvy => Self::YuvPairs(Yuv::new(words, color)),
            PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::I420 => Self::YuvPixels(Yuv::new(words, color)),
            PixelFormat::Grey => Self::Grey(Grey::new(color)),
            _ => Self::Rgb(words),
        }
    }

    /// Converts and resamples one row into as many planes as `planes` has (one of luma, or red, green and blue).
    pub(super) fn resample(&self, isa: Isa, taps: &Taps<'_>, planes: &mut [Vec<f32>]) {
        match *self {
            Self::YuvPairs(yuv) => resample(isa, YuvPairs(yuv), taps, planes),
            Self::YuvPixels(yuv) => resample(isa, YuvPixels(yuv), taps, planes),
            Self::Rgb(words) => resample(isa, words, taps, planes),
            Self::Grey(grey) => {
                if let [plane, ..] = planes {
                    isa.run(Row::<_, 1> { pixel: GreyPixel(grey), taps, planes: [&mut plane[..]] });
                }
            }
        }
    }
}

/// The words of one row and how they mix; all slices are equally long, a multiple of [`LANES`].
pub(super) struct Taps<'a> {
    /// Source columns and weights.
    pub(super) columns: &'a Axis,
    /// Words of the left pixels.
    pub(super) low: &'a [u32],
    /// Words of the right pixels; `None` when every weight is 0.
    pub(super) high: Option<&'a [u32]>,
}

fn resample<P>(isa: Isa, pixel: P, taps: &Taps<'_>, planes: &mut [Vec<f32>])
where
    P: Pixel<3> + Copy,
{
    match planes {
        [red, green, blue] => isa.run(Row::<_, 3> { pixel, taps, planes: [red, green, blue] }),
        [luma] => isa.run(Row::<_, 1> { pixel: Luma(pixel), taps, planes: [luma] }),
        _ => {}
    }
}

/// A word's way to `N` channels.
trait Pixel<const N: usize>: Copy {
    /// Channels of the pixel in column `x`.
    fn channels<const FMA: bool>(self, word: u32, x: u32) -> [f32; N];
}

/// One row: convert, mix, store.
struct Row<'a, P, const N: usize> {
    pixel: P,
    taps: &'a Taps<'a>,
    planes: [&'a mut [f32]; N],
}

impl<P: Pixel<N>, const N: usize> Kernel for Row<'_, P, N> {
    /// Blocks of [`LANES`] pixels in local arrays: the compiler keeps them in vector registers and needs no proof that the
    /// slices do not overlap.
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { pixel, taps, planes } = self;
        let mut planes = planes.map(|plane| plane.as_chunks_mut::<LANES>().0.iter_mut());
        let (low_columns, _) = taps.columns.low.as_chunks::<LANES>();
        let (high_columns, _) = taps.columns.high.as_chunks::<LANES>();
        let (low, _) = taps.low.as_chunks::<LANES>();
        let (weight, _) = taps.columns.weight.as_chunks::<LANES>();
        let high = taps.high.map(|high| high.as_chunks::<LANES>().0);
        for (i, (words, columns)) in low.iter().zip(low_columns).enumerate() {
            let mut block = [[0.0_f32; LANES]; N];
            for lane in 0..LANES {
                let value = pixel.channels::<FMA>(words[lane], columns[lane]);
                for channel in 0..N {
                    block[channel][lane] = value[channel];
                }
            }
            if let Some(high) = high {
                let (words, columns, weight) = (&high[i], &high_columns[i], &weight[i]);
                for lane in 0..LANES {
                    let value = pixel.channels::<FMA>(words[lane], columns[lane]);
                    for channel in 0..N {
                        let low = block[channel][lane];
                        block[channel][lane] = multiply_add::<FMA>(weight[lane], value[channel] - low, low);
                    }
                }
            }
            for channel in 0..N {
                if let Some(out) = planes[channel].next() {
                    *out = block[channel];
                }
            }
        }
    }
}

/// YUV's linear map, in f32: `red = y_gain Y + r_cr Cr + r_bias`, and so on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Yuv {
    words: Words,
    y_gain: f32,
    r_cr: f32,
    g_cb: f32,
    g_cr: f32,
    b_cb: f32,
    bias: [f32; 3],
}

impl Yuv {
    fn new(words: Words, color: ColorDescription) -> Self {
        let map = color.to_rgb();
        let black = -map.y_gain * map.y_offset;
        Self {
            words,
            y_gain: map.y_gain as f32,
            r_cr: map.r_cr as f32,
            g_cb: map.g_cb as f32,
            g_cr: map.g_cr as f32,
            b_cb: map.b_cb as f32,
            bias: [
                (black - 128.0 * map.r_cr) as f32,
                (black - 128.0 * (map.g_cb + map.g_cr)) as f32,
                (black - 128.0 * map.b_cb) as f32,
            ],
        }
    }

    #[inline(always)]
    fn rgb<const FMA: bool>(&self, y: f32, cb: f32, cr: f32) -> [f32; 3] {
        let fma = multiply_add::<FMA>;
        let red = fma(self.y_gain, y, fma(self.r_cr, cr, self.bias[0]));
        let green = fma(self.y_gain, y, fma(self.g_cb, cb, fma(self.g_cr, cr, self.bias[1])));
        let blue = fma(self.y_gain, y, fma(self.b_cb, cb, self.bias[2]));
        [limit(red), limit(green), limit(blue)]
    }
}

#[derive(Clone, Copy)]
struct YuvPairs(Yuv);

impl Pixel<3> for YuvPairs {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, x: u32) -> [f32; 3] {
        let Words { first, second, third } = self.0.words;
        self.0.rgb::<FMA>(byte(word >> ((x & 1) * 16), first), byte(word, second), byte(word, third))
    }
}

#[derive(Clone, Copy)]
struct YuvPixels(Yuv);

impl Pixel<3> for YuvPixels {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, _x: u32) -> [f32; 3] {
        let Words { first, second, third } = self.0.words;
        self.0.rgb::<FMA>(byte(word, first), byte(word, second), byte(word, third))
    }
}

impl Pixel<3> for Words {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, _x: u32) -> [f32; 3] {
        [byte(word, self.first), byte(word, self.second), byte(word, self.third)]
    }
}

/// Luma of the channels of another pixel.
#[derive(Clone, Copy)]
struct Luma<P>(P);

impl<P: Pixel<3>> Pixel<1> for Luma<P> {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, x: u32) -> [f32; 1] {
        let [red, green, blue] = self.0.channels::<FMA>(word, x);
        let fma = multiply_add::<FMA>;
        [fma(LUMA[0], red, fma(LUMA[1], green, LUMA[2] * blue))]
    }
}

/// Grey's range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grey {
    gain: f32,
    bias: f32,
}

impl Grey {
    fn new(color: ColorDescription) -> Self {
        match color.range {
            ColorRange::Full => Self { gain: 1.0, bias: 0.0 },
            ColorRange::Limited => {
                let map = color.to_rgb();
                Self { gain: map.y_gain as f32, bias: (-map.y_gain * map.y_offset) as f32 }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct GreyPixel(Grey);

impl Pixel<1> for GreyPixel {
    #[inline(always)]
    fn channels<const FMA: bool>(self, word: u32, _x: u32) -> [f32; 1] {
        [limit(multiply_add::<FMA>(self.0.gain, byte(word, 0), self.0.bias))]
    }
}

#[inline(always)]
fn byte(word: u32, shift: u32) -> f32 {
    ((word >> shift) & 0xff) as i32 as f32
}

#[inline(always)]
fn limit(value: f32) -> f32 {
    value.clamp(0.0, 255.0)
}
