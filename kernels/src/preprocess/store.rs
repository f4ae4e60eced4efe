//! Stores horizontally resampled rows in the tensor: vertical mix, normalisation, element type, layout, padding.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::number::Number;
use super::simd::{Isa, SliceLoop, multiply_add};
use super::spec::{ChannelOrder, PreprocessSpec, TensorLayout};
use crate::color::rounded;
use crate::tensor::DType;

/// The maximum size of the pattern that pads are copied from, so that it stays in the first-level cache.
const PATTERN_BYTES: usize = 4096;

/// The conversion of pixel values for a spec, and its row buffers; fixed for a preprocessor's life.
pub(super) struct TensorWriter {
    isa: Isa,
    /// Which of the planes (red, green, blue, or one for all) feeds each of three channels.
    plane_of: [usize; 3],
    normalisation: Normalisation,
    /// The bytes of one pad pixel, by channel.
    pad: [[u8; 4]; 3],
    spec: PreprocessSpec,
    /// A row of normalised channels, as wide as the tensor.
    channels: [Vec<f32>; 3],
    /// The same, interleaved.
    interleaved: Vec<f32>,
    /// The same, as f16.
    halves: Vec<f16>,
}

/// One or two horizontally resampled rows and how to mix them.
pub(super) struct RowPair<'a, N> {
    /// The planes of the upper row: red, green and blue, or one for all.
    pub(super) low: [&'a [N]; 3],
    /// The planes of the lower row; `None` if they have no weight.
    pub(super) high: Option<[&'a [N]; 3]>,
    /// The weights of both.
    pub(super) weights: [N; 2],
    /// Whether they are mixed without rounding in between.
    pub(super) is_exact: bool,
}

/// Returns the first of three planes, or all, as a row's three.
pub(super) fn planes_of<N>(planes: &[Vec<N>; 3], count: usize) -> [&[N]; 3] {
    std::array::from_fn(|plane| &planes[if count == 1 { 0 } else { plane }][..])
}

/// How pixel values, 0 to 255, become the tensor's: `value * gain + bias`, by channel.
pub(super) struct Normalisation {
    pub(super) gain: [f32; 3],
    pub(super) bias: [f32; 3],
    /// The padding, normalised.
    pub(super) pad: [f32; 3],
}

impl Normalisation {
    /// Computes the values in double precision; channels that the spec does not have get 0.
    pub(super) fn new(spec: &PreprocessSpec) -> Self {
        let (mut gain, mut bias, mut pad) = ([0.0; 3], [0.0; 3], [0.0; 3]);
        for channel in 0..spec.order.channels() {
            let [scale, mean, std] = [spec.scale, spec.mean[channel], spec.std[channel]].map(f64::from);
            let normalised = |value: f32| ((f64::from(value) * scale - mean) / std) as f32;
            gain[channel] = (scale / std) as f32;
            bias[channel] = normalised(0.0);
            pad[channel] = normalised(spec.pad);
        }
        Self { gain, bias, pad }
    }
}

impl TensorWriter {
    pub(super) fn new(isa: Isa, spec: PreprocessSpec) -> Self {
        let width = spec.width as usize;
        let normalisation = Normalisation::new(&spec);
        Self {
            isa,
            plane_of: if spec.order == ChannelOrder::Bgr { [2, 1, 0] } else { [0, 1, 2] },
            pad: normalisation.pad.map(|value| element(spec.dtype, value)),
            normalisation,
            channels: std::array::from_fn(|_| vec![0.0; width]),
            interleaved: vec![0.0; 3 * width],
            halves: vec![f16::ZERO; 3 * width],
            spec,
        }
    }

    /// Returns the spec.
    pub(super) fn spec(&self) -> &PreprocessSpec {
        &self.spec
    }

    /// Fills the tensor outside `placed` (x, y, width, height) with the padding.
    pub(super) fn fill_pads(&self, tensor: &mut [u8], placed: [usize; 4]) {
        let (stride, channels, size) = self.dimensions();
        match self.spec.layout {
            TensorLayout::Nchw => {
                let planes = tensor.chunks_exact_mut(stride * self.spec.height as usize * size);
                planes.zip(&self.pad).for_each(|(plane, pad)| fill_around(plane, stride, placed, &pad[..size]));
            }
            TensorLayout::Nhwc => {
                let mut pixel = [0_u8; 12];
                for (bytes, pad) in pixel.chunks_exact_mut(size).zip(&self.pad).take(channels) {
                    bytes.copy_from_slice(&pad[..size]);
                }
                fill_around(tensor, stride, placed, &pixel[..channels * size]);
            }
        }
    }

    /// Returns the tensor's width, its channels, and the bytes of an element.
    fn dimensions(&self) -> (usize, usize, usize) {
        (self.spec.width as usize, self.spec.order.channels(), self.spec.dtype.size_bytes())
    }

    /// Writes one row of the placed picture: `width` pixels from (`x`, `y`) of the tensor on.
    ///
    /// Planar f32, u8, i8 and i32 go directly from the row buffers to the tensor; f16 and interleaved tensors use one more row
    /// buffer.
    pub(super) fn store<N: Number>(&mut self, pair: &RowPair<'_, N>, [x, y, width]: [usize; 3], tensor: &mut [u8]) {
        let (isa, (stride, channels, size)) = (self.isa, self.dimensions());
        let mixes: [Mix<'_, N>; 3] = std::array::from_fn(|channel| self.mix(pair, channel, width));
        match self.spec.layout {
            TensorLayout::Nchw => {
                for (channel, mix) in mixes.into_iter().enumerate().take(channels) {
                    let start = ((channel * self.spec.height as usize + y) * stride + x) * size;
                    let out = &mut tensor[start..start + width * size];
                    match self.spec.dtype {
                        DType::F16 => {
                            let row = &mut self.channels[channel][..width];
                            isa.run(Store::<N, AsF32> { mix, out: row });
                            halves(row, &mut self.halves, out);
                        }
                        DType::U8 => isa.run(Store::<N, AsU8> { mix, out }),
                        DType::I8 => isa.run(Store::<N, AsI8> { mix, out }),
                        DType::I32 => isa.run(Store::<N, AsI32> { mix, out: out.as_chunks_mut().0 }),
                        _ => isa.run(Store::<N, AsF32Bytes> { mix, out: out.as_chunks_mut().0 }),
                    }
                }
            }
            TensorLayout::Nhwc => {
                let start = (y * stride + x) * channels * size;
                let out = &mut tensor[start..start + width * channels * size];
                for (channel, mix) in mixes.into_iter().enumerate().take(channels) {
                    isa.run(Store::<N, AsF32> { mix, out: &mut self.channels[channel][..width] });
                }
                let planes = self.channels.each_ref().map(|channel| &channel[..width]);
                let row = if channels == 1 {
                    planes[0]
                } else {
                    let row = &mut self.interleaved[..3 * width];
                    isa.run(Interleave { channels: planes, out: row.as_chunks_mut().0 });
                    row
                };
                match self.spec.dtype {
                    DType::F16 => halves(row, &mut self.halves, out),
                    DType::U8 => isa.run(Convert::<AsU8> { row, out }),
                    DType::I8 => isa.run(Convert::<AsI8> { row, out }),
                    DType::I32 => isa.run(Convert::<AsI32> { row, out: out.as_chunks_mut().0 }),
                    _ => isa.run(Convert::<AsF32Bytes> { row, out: out.as_chunks_mut().0 }),
                }
            }
        }
    }

    fn mix<'a, N: Number>(&self, pair: &RowPair<'a, N>, channel: usize, width: usize) -> Mix<'a, N> {
        let plane = self.plane_of[channel];
        Mix {
            low: &pair.low[plane][..width],
            high: pair.high.map(|high| &high[plane][..width]),
            weights: pair.weights,
            is_exact: pair.is_exact,
            gain: self.normalisation.gain[channel],
            bias: self.normalisation.bias[channel],
        }
    }
}

/// Returns a normalised value as an element of the tensor; the first `size_bytes` bytes count.
fn element(dtype: DType, value: f32) -> [u8; 4] {
    match dtype {
        DType::F16 => {
            let [a, b] = f16::from_f32(value).to_ne_bytes();
            [a, b, 0, 0]
        }
        DType::U8 => [AsU8::cell(value), 0, 0, 0],
        DType::I8 => [AsI8::cell(value), 0, 0, 0],
        DType::I32 => AsI32::cell(value),
        _ => value.to_ne_bytes(),
    }
}

/// Fills a picture `stride` pixels wide around `placed` with `pixel`.
fn fill_around(picture: &mut [u8], stride: usize, placed: [usize; 4], pixel: &[u8]) {
    let [x, y, width, height] = placed;
    let row = stride * pixel.len();
    let (above, rest) = picture.split_at_mut(y * row);
    let (beside, below) = rest.split_at_mut(height * row);
    fill(above, pixel);
    fill(below, pixel);
    if width < stride && height > 0 {
        let (first, rest) = beside.split_at_mut(row);
        let (left, right) = (x * pixel.len(), (x + width) * pixel.len());
        fill(&mut first[..left], pixel);
        fill(&mut first[right..], pixel);
        for row in rest.chunks_exact_mut(row) {
            row[..left].copy_from_slice(&first[..left]);
            row[right..].copy_from_slice(&first[right..]);
        }
    }
}

/// Fills `bytes` with copies of `pixel`.
fn fill(bytes: &mut [u8], pixel: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    bytes[..pixel.len()].copy_from_slice(pixel);
    let mut done = pixel.len();
    while done < bytes.len() {
        let copied = done.min(bytes.len() - done).min(PATTERN_BYTES / pixel.len() * pixel.len());
        bytes.copy_within(..copied, done);
        done += copied;
    }
}

/// Writes a row as f16. `half` converts eight values at a time with F16C or NEON if the processor has it.
fn halves(row: &[f32], halves: &mut [f16], out: &mut [u8]) {
    let halves = &mut halves[..row.len()];
    halves.convert_from_f32_slice(row);
    for (out, half) in out.as_chunks_mut::<2>().0.iter_mut().zip(halves) {
        *out = half.to_ne_bytes();
    }
}

/// The vertical mix and the normalisation of one channel.
struct Mix<'a, N> {
    low: &'a [N],
    high: Option<&'a [N]>,
    weights: [N; 2],
    is_exact: bool,
    gain: f32,
    bias: f32,
}

/// How a value is stored.
trait Element {
    /// The type of an element in the output slice: bytes and not numbers, because a tensor's bytes need not be aligned.
    type Cell;
    /// Returns the stored value.
    fn cell(value: f32) -> Self::Cell;
}

struct AsF32;
struct AsF32Bytes;
struct AsU8;
struct AsI8;
struct AsI32;

impl Element for AsF32 {
    type Cell = f32;
    #[inline(always)]
    fn cell(value: f32) -> f32 {
        value
    }
}

impl Element for AsF32Bytes {
    type Cell = [u8; 4];
    #[inline(always)]
    fn cell(value: f32) -> [u8; 4] {
        value.to_ne_bytes()
    }
}

impl Element for AsU8 {
    type Cell = u8;
    #[inline(always)]
    fn cell(value: f32) -> u8 {
        rounded(value.clamp(0.0, 255.0)) as u8
    }
}

impl Element for AsI8 {
    type Cell = u8;
    #[inline(always)]
    fn cell(value: f32) -> u8 {
        rounded(value.clamp(-128.0, 127.0)) as u8
    }
}

impl Element for AsI32 {
    type Cell = [u8; 4];
    #[inline(always)]
    fn cell(value: f32) -> [u8; 4] {
        // What `rounded` can round.
        const LIMIT: f32 = 4_194_304.0;
        rounded(value.clamp(-LIMIT, LIMIT)).to_ne_bytes()
    }
}

/// Mixes, normalises and stores one channel of a row.
struct Store<'a, N, E: Element> {
    mix: Mix<'a, N>,
    out: &'a mut [E::Cell],
}

impl<N: Number, E: Element> SliceLoop for Store<'_, N, E> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Mix { low, high, weights, is_exact, gain, bias } = self.mix;
        let cell = |value: N| E::cell(multiply_add::<FMA>(N::float(value), gain, bias));
        match high {
            Some(high) if is_exact => {
                for ((out, &low), &high) in self.out.iter_mut().zip(low).zip(high) {
                    *out = cell(N::exact_value::<FMA>([low, high], weights));
                }
            }
            Some(high) => {
                for ((out, &low), &high) in self.out.iter_mut().zip(low).zip(high) {
                    *out = cell(N::mixed_value::<FMA>([low, high], weights));
                }
            }
            None => {
                for (out, &low) in self.out.iter_mut().zip(low) {
                    *out = cell(N::value(low));
                }
            }
        }
    }
}

/// Stores values that are already normalised.
struct Convert<'a, E: Element> {
    row: &'a [f32],
    out: &'a mut [E::Cell],
}

impl<E: Element> SliceLoop for Convert<'_, E> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (out, &value) in self.out.iter_mut().zip(self.row) {
            *out = E::cell(value);
        }
    }
}

/// Interleaves three planes into one row of pixels.
struct Interleave<'a> {
    channels: [&'a [f32]; 3],
    out: &'a mut [[f32; 3]],
}

impl SliceLoop for Interleave<'_> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let [a, b, c] = self.channels;
        for (((out, &a), &b), &c) in self.out.iter_mut().zip(a).zip(b).zip(c) {
            *out = [a, b, c];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_around_a_picture_is_filled_and_nothing_of_it() {
        for (stride, rows, placed) in [
            (7, 5, [2, 1, 3, 2]),
            (7, 5, [0, 0, 7, 5]),
            (7, 5, [0, 2, 7, 1]),
            (7, 5, [4, 0, 3, 5]),
            (7, 5, [0, 0, 6, 4]),
            (5000, 3, [1, 1, 2, 1]),
        ] {
            for pixel in [&[7][..], &[7, 8], &[7, 8, 9], &[6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8]] {
                let mut picture = vec![0xee; stride * rows * pixel.len()];
                fill_around(&mut picture, stride, placed, pixel);
                let [x, y, width, height] = placed;
                for (at, found) in picture.chunks_exact(pixel.len()).enumerate() {
                    let is_placed = (x..x + width).contains(&(at % stride)) && (y..y + height).contains(&(at / stride));
                    let kept = vec![0xee; pixel.len()];
                    assert_eq!(found, if is_placed { &kept[..] } else { pixel }, "{stride} {placed:?} {pixel:?} {at}");
                }
            }
        }
    }
}
