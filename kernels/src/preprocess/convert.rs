//! Converts words of pixels into a horizontally resampled row of RGB or luma, one plane per channel.
//!
//! Converts colours first and resamples second, because clamping to 0..=255 is not linear.

use std::ops::Range;

use super::axis::{Axis, LANES, Pairs};
use super::fetch::{WordLayout, words};
use super::number::Number;
use super::simd::{Isa, SliceLoop};
use crate::color::{ColorDescription, TruncatedYuvToRgb, YuvArithmetic};
use crate::frame::PixelFormat;

/// How a frame's words become RGB.
pub(super) struct Converter<N: Number> {
    format: PixelFormat,
    words: WordLayout,
    yuv: Nearest<N>,
    /// Instead of `yuv`, where the frame's description says so.
    truncated: Option<TruncatedYuvToRgb>,
    grey: N::Grey,
}

impl<N: Number> Converter<N> {
    /// Returns the converter for a format's words.
    pub(super) fn new(format: PixelFormat, color: ColorDescription) -> Self {
        let truncated = (color.arithmetic == YuvArithmetic::Ffmpeg).then(|| color.truncated());
        Self { format, words: words(format), yuv: Nearest(N::yuv(color)), truncated, grey: N::grey(color) }
    }

    /// Converts and resamples one row into as many planes as `planes` has (one of luma, or red, green and blue).
    ///
    /// About 0.8 ns per pixel of YUV; where two columns are mixed, 0.5 ns for RGB and 1.5 ns for YUV.
    pub(super) fn resample(&self, isa: Isa, taps: &Taps<'_, N>, planes: &mut [Vec<N>]) {
        self.run(isa, taps, Output::Mixed(planes));
    }

    /// Converts single pixels into this part of the planes, as values of a row or as samples.
    pub(super) fn convert(
        &self,
        isa: Isa,
        taps: &Taps<'_, N>,
        planes: &mut [Vec<N>],
        part: Range<usize>,
        of: PixelsOf,
    ) {
        self.run(isa, taps, Output::Pixels(planes, part, of));
    }

    fn run(&self, isa: Isa, taps: &Taps<'_, N>, output: Output<'_, N>) {
        match self.truncated {
            Some(yuv) => self.run_with(yuv, isa, taps, output),
            None => self.run_with(self.yuv, isa, taps, output),
        }
    }

    fn run_with(&self, yuv: impl ToRgb<N>, isa: Isa, taps: &Taps<'_, N>, output: Output<'_, N>) {
        let Self { words, grey, .. } = *self;
        match self.format {
            PixelFormat::Yuyv | PixelFormat::Uyvy | PixelFormat::Yvyu | PixelFormat::Vyuy => {
                convert(isa, Packed(words, yuv), taps, output);
            }
            PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::Nv16 | PixelFormat::Nv61 | PixelFormat::P010 => {
                convert(isa, Planes::<_, false>(words, yuv), taps, output);
            }
            PixelFormat::I420 => convert(isa, Planes::<_, true>(words, yuv), taps, output),
            format if format.is_grey() => convert_to(isa, GreyPixel(grey), taps, output),
            _ => convert(isa, words, taps, output),
        }
    }
}

/// An arithmetic that makes RGB of bytes of Y, Cb and Cr.
trait ToRgb<N: Number>: Copy {
    fn rgb<const FMA: bool>(&self, y: u32, cb: u32, cr: u32) -> [N::Wide; 3];
}

/// The number's own: [`YuvArithmetic::Nearest`].
#[derive(Clone, Copy)]
struct Nearest<N: Number>(N::Yuv);

impl<N: Number> ToRgb<N> for Nearest<N> {
    #[inline(always)]
    fn rgb<const FMA: bool>(&self, y: u32, cb: u32, cr: u32) -> [N::Wide; 3] {
        N::rgb::<FMA>(&self.0, y, cb, cr)
    }
}

/// [`YuvArithmetic::Ffmpeg`], which results in bytes.
impl<N: Number> ToRgb<N> for TruncatedYuvToRgb {
    #[inline(always)]
    fn rgb<const FMA: bool>(&self, y: u32, cb: u32, cr: u32) -> [N::Wide; 3] {
        let y = ((8 * y as i32 - self.y_offset) * self.y_gain) >> 16;
        let (cb, cr) = (8 * cb as i32 - 1024, 8 * cr as i32 - 1024);
        let red = y + ((cr * self.r_cr) >> 16);
        let green = y + ((cb * self.g_cb) >> 16) + ((cr * self.g_cr) >> 16);
        let blue = y + ((cb * self.b_cb) >> 16);
        [red, green, blue].map(|value| N::wide(value.clamp(0, 255) as u32))
    }
}

/// The words of one row and how to mix them; all slices have the same length, a multiple of [`LANES`].
pub(super) struct Taps<'a, N> {
    /// The source columns and weights.
    pub(super) columns: &'a Axis<N>,
    /// For single columns the words, with the second slice unused; for pairs both words.
    pub(super) words: [&'a [u32]; 2],
}

/// What single pixels are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PixelsOf {
    /// A row: they are values of it.
    Row,
    /// To be mixed: they are samples.
    Mix,
}

impl PixelsOf {
    /// Returns a channel as such a number.
    #[inline(always)]
    pub(super) fn number<N: Number>(self, channel: N::Wide) -> N {
        match self {
            Self::Row => N::whole(channel),
            Self::Mix => N::narrow(channel),
        }
    }
}

/// Where converted pixels go: as many planes as are wanted, one of luma, or red, green and blue.
enum Output<'a, N> {
    /// A resampled row.
    Mixed(&'a mut [Vec<N>]),
    /// A part of planes of single pixels.
    Pixels(&'a mut [Vec<N>], Range<usize>, PixelsOf),
}

impl<N> Output<'_, N> {
    fn planes(&self) -> usize {
        match self {
            Self::Mixed(planes) | Self::Pixels(planes, ..) => planes.len(),
        }
    }
}

fn convert<N: Number, P: Pixel<N, 3>>(isa: Isa, pixel: P, taps: &Taps<'_, N>, output: Output<'_, N>) {
    if output.planes() == 1 {
        convert_to::<N, _, 1>(isa, Luma(pixel), taps, output);
    } else {
        convert_to::<N, _, 3>(isa, pixel, taps, output);
    }
}

fn convert_to<N: Number, P: Pixel<N, C>, const C: usize>(
    isa: Isa,
    pixel: P,
    taps: &Taps<'_, N>,
    output: Output<'_, N>,
) {
    match output {
        Output::Mixed(planes) => {
            if let Some(planes) = planes.first_chunk_mut() {
                let planes = planes.each_mut().map(|plane| &mut plane[..]);
                isa.run(ConvertRow::<N, _, C> { pixel, taps, planes });
            }
        }
        Output::Pixels(planes, part, of) => {
            if let Some(planes) = planes.first_chunk_mut() {
                let planes = planes.each_mut().map(|plane| &mut plane[part.clone()]);
                isa.run(ConvertPixels::<N, _, C> { pixel, taps, planes, of });
            }
        }
    }
}

/// Converts words to `C` channels.
trait Pixel<N: Number, const C: usize>: Copy {
    /// Returns the channels of the pixel in column `x`.
    fn one<const FMA: bool>(self, word: u32, x: u32) -> [N::Wide; C];
    /// Returns the channels of the pixels in columns `x` and `x + 1`.
    fn two<const FMA: bool>(self, words: [u32; 2], x: u32) -> [[N::Wide; C]; 2];
}

/// One row: convert, mix, store.
struct ConvertRow<'a, N, P, const C: usize> {
    pixel: P,
    taps: &'a Taps<'a, N>,
    planes: [&'a mut [N]; C],
}

impl<N: Number, P: Pixel<N, C>, const C: usize> SliceLoop for ConvertRow<'_, N, P, C> {
    /// Works on blocks of [`LANES`] pixels in local arrays: the compiler keeps them in vector registers and needs no proof that
    /// the slices do not overlap.
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { pixel, taps, planes } = self;
        let mut planes = planes.map(|plane| plane.as_chunks_mut::<LANES>().0.iter_mut());
        let columns = taps.columns;
        let [first, second] = taps.words.map(|words| words.as_chunks::<LANES>().0);
        let words = columns.left().as_chunks::<LANES>().0.iter().zip(first);
        let [low_weights, high_weights] = columns.weights.each_ref().map(|weights| weights.as_chunks::<LANES>().0);
        let weights = low_weights.iter().zip(high_weights);
        let mut store = |block: [[N; LANES]; C]| {
            for channel in 0..C {
                if let Some(out) = planes[channel].next() {
                    *out = block[channel];
                }
            }
        };
        let mut block = [[N::NONE; LANES]; C];
        if columns.single {
            for (x, words) in words {
                for lane in 0..LANES {
                    let pixel = pixel.one::<FMA>(words[lane], x[lane]);
                    for channel in 0..C {
                        block[channel][lane] = N::whole(pixel[channel]);
                    }
                }
                store(block);
            }
            return;
        }
        let words = words.zip(second).zip(weights);
        // One loop for each, so that each becomes vector instructions.
        match columns.pairs {
            Pairs::Rising => {
                mix::<N, FMA, C>(words, &mut store, |first, second, x| pixel.two::<FMA>([first, second], x))
            }
            Pairs::Falling => mix::<N, FMA, C>(words, &mut store, |first, second, x| {
                let [left, right] = pixel.two::<FMA>([first, second], x);
                [right, left]
            }),
        }
    }
}

/// Single pixels: convert, store.
struct ConvertPixels<'a, N, P, const C: usize> {
    pixel: P,
    taps: &'a Taps<'a, N>,
    planes: [&'a mut [N]; C],
    of: PixelsOf,
}

impl<N: Number, P: Pixel<N, C>, const C: usize> SliceLoop for ConvertPixels<'_, N, P, C> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { pixel, taps, planes, of } = self;
        // One loop for each, so that each becomes vector instructions.
        match of {
            PixelsOf::Row => convert_pixels::<N, P, FMA, C>(pixel, taps, planes, N::whole),
            PixelsOf::Mix => convert_pixels::<N, P, FMA, C>(pixel, taps, planes, N::narrow),
        }
    }
}

#[inline(always)]
fn convert_pixels<N: Number, P: Pixel<N, C>, const FMA: bool, const C: usize>(
    pixel: P,
    taps: &Taps<'_, N>,
    planes: [&mut [N]; C],
    number: impl Fn(N::Wide) -> N,
) {
    let mut planes = planes.map(|plane| plane.as_chunks_mut::<LANES>().0.iter_mut());
    let words = taps.words[0].as_chunks::<LANES>().0;
    for (x, words) in taps.columns.low.as_chunks::<LANES>().0.iter().zip(words) {
        let mut block = [[N::NONE; LANES]; C];
        for lane in 0..LANES {
            let pixel = pixel.one::<FMA>(words[lane], x[lane]);
            for channel in 0..C {
                block[channel][lane] = number(pixel[channel]);
            }
        }
        for channel in 0..C {
            if let Some(out) = planes[channel].next() {
                *out = block[channel];
            }
        }
    }
}

/// Blocks of columns with two words each, and their weights.
type Block<'a, T> = &'a [T; LANES];

/// Mixes blocks of pairs, whose lower and upper pixels `two` returns.
#[inline(always)]
fn mix<'a, N: Number, const FMA: bool, const C: usize>(
    words: impl Iterator<Item = (((Block<'a, u32>, Block<'a, u32>), Block<'a, u32>), (Block<'a, N>, Block<'a, N>))>,
    store: &mut impl FnMut([[N; LANES]; C]),
    two: impl Fn(u32, u32, u32) -> [[N::Wide; C]; 2],
) {
    let mut block = [[N::NONE; LANES]; C];
    for (((x, first), second), (low_weights, high_weights)) in words {
        for lane in 0..LANES {
            let [low, high] = two(first[lane], second[lane], x[lane]);
            for channel in 0..C {
                let weights = [low_weights[lane], high_weights[lane]];
                block[channel][lane] = N::mixed::<FMA>([low[channel], high[channel]], weights);
            }
        }
        store(block);
    }
}

#[derive(Clone, Copy)]
struct Packed<Y>(WordLayout, Y);

impl<N: Number, Y: ToRgb<N>> Pixel<N, 3> for Packed<Y> {
    #[inline(always)]
    fn one<const FMA: bool>(self, word: u32, x: u32) -> [N::Wide; 3] {
        let WordLayout { first, second, third } = self.0;
        self.1.rgb::<FMA>(byte(word >> ((x & 1) * 16), first), byte(word, second), byte(word, third))
    }

    #[inline(always)]
    fn two<const FMA: bool>(self, [word, next]: [u32; 2], x: u32) -> [[N::Wide; 3]; 2] {
        let neighbour = if x & 1 == 0 { word } else { next };
        [Pixel::<N, 3>::one::<FMA>(self, word, x), Pixel::<N, 3>::one::<FMA>(self, neighbour, x + 1)]
    }
}

/// Luma and chroma from planes of their own: two planes, or three if `PLANAR`.
#[derive(Clone, Copy)]
struct Planes<Y, const PLANAR: bool>(WordLayout, Y);

impl<N: Number, Y: ToRgb<N>, const PLANAR: bool> Pixel<N, 3> for Planes<Y, PLANAR> {
    #[inline(always)]
    fn one<const FMA: bool>(self, word: u32, _x: u32) -> [N::Wide; 3] {
        let WordLayout { first, second, third } = self.0;
        self.1.rgb::<FMA>(byte(word, first), byte(word, second), byte(word, third))
    }

    #[inline(always)]
    fn two<const FMA: bool>(self, [word, next]: [u32; 2], x: u32) -> [[N::Wide; 3]; 2] {
        if PLANAR {
            let ([luma_cb, cr], shift) = ([word, next], (x & 1) * 8);
            return [
                self.1.rgb::<FMA>(byte(luma_cb, 0), byte(luma_cb, 16), byte(cr, 0)),
                self.1.rgb::<FMA>(byte(luma_cb, 8), byte(luma_cb >> shift, 16), byte(cr >> shift, 0)),
            ];
        }
        // Chroma is one byte lower here than after the luma of a single pixel.
        let (luma, chroma) = (word, next);
        let word = luma & 0xff | chroma << 8;
        let neighbour = luma >> 8 | (chroma >> ((x & 1) * 16)) << 8;
        [word, neighbour].map(|word| Pixel::<N, 3>::one::<FMA>(self, word, x))
    }
}

/// Red, green and blue.
impl<N: Number> Pixel<N, 3> for WordLayout {
    #[inline(always)]
    fn one<const FMA: bool>(self, word: u32, _x: u32) -> [N::Wide; 3] {
        [self.first, self.second, self.third].map(|shift| N::wide(byte(word, shift)))
    }

    #[inline(always)]
    fn two<const FMA: bool>(self, words: [u32; 2], x: u32) -> [[N::Wide; 3]; 2] {
        words.map(|word| Pixel::<N, 3>::one::<FMA>(self, word, x))
    }
}

/// Luma of the channels of another pixel.
#[derive(Clone, Copy)]
struct Luma<P>(P);

impl<N: Number, P: Pixel<N, 3>> Pixel<N, 1> for Luma<P> {
    #[inline(always)]
    fn one<const FMA: bool>(self, word: u32, x: u32) -> [N::Wide; 1] {
        [N::luma::<FMA>(self.0.one::<FMA>(word, x))]
    }

    #[inline(always)]
    fn two<const FMA: bool>(self, words: [u32; 2], x: u32) -> [[N::Wide; 1]; 2] {
        self.0.two::<FMA>(words, x).map(|rgb| [N::luma::<FMA>(rgb)])
    }
}

#[derive(Clone, Copy)]
struct GreyPixel<G>(G);

impl<N: Number> Pixel<N, 1> for GreyPixel<N::Grey> {
    #[inline(always)]
    fn one<const FMA: bool>(self, word: u32, _x: u32) -> [N::Wide; 1] {
        [N::grey_value::<FMA>(&self.0, byte(word, 0))]
    }

    #[inline(always)]
    fn two<const FMA: bool>(self, words: [u32; 2], x: u32) -> [[N::Wide; 1]; 2] {
        words.map(|word| Pixel::<N, 1>::one::<FMA>(self, word, x))
    }
}

#[inline(always)]
fn byte(word: u32, shift: u32) -> u32 {
    (word >> shift) & 0xff
}
