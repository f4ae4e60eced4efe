//! The two arithmetics of preprocessing: exact in `f32`, and OpenCV's fixed point in `u16`.
//!
//! Everything else is written once for [`Number`]. OpenCV's steps are those of its `resize` (modules/imgproc, resize.cpp) and
//! `cvtColor` (color_yuv, color_rgb). Each step there results in a byte; repeating every step gives equal bytes.

use std::ops::Add;

use super::simd::multiply_add;
use crate::color::{ColorDescription, ColorMatrix, ColorRange, YuvToRgb, rounded};
use crate::frame::BayerDepth;

/// The bits of a fixed-point coefficient of a colour conversion.
const COEFFICIENT_BITS: u32 = 20;

/// The bits of a fixed-point weight.
const WEIGHT_BITS: u32 = 11;

/// A weight this close to a whole pixel is rounded to it: that saves a tap and changes no value by more than 255e-6.
const SNAP: f64 = 1e-6;

/// The weights of luma in RGB, for models with one channel.
const LUMA: [f32; 3] = [0.299, 0.587, 0.114];

/// The same weights in OpenCV's `BGR2GRAY`, times 2^15.
const FIXED_LUMA: [i32; 3] = [9798, 19235, 3735];
const FIXED_LUMA_BITS: u32 = 15;

/// A number that rows consist of. As a row's value it is the result of horizontal resampling: 0 to 255 in `f32`, 0 to 255 * 128
/// in `u16`. As a weight it is 0 to 1, or 0 to 2048. As a mosaic's sample it is 0 to 255.
pub(super) trait Number: Copy + Default + PartialEq + Add<Output = Self> + 'static {
    /// A pixel's channel, 0 to 255, as wide as a lane of its conversion.
    type Wide: Copy + Default;
    /// The coefficients for YUV.
    type Yuv: Copy;
    /// The conversion of a grey byte.
    type Grey: Copy;

    /// Returns the lower of the two pixels around a position, with the weights of both. Positions count pixel centres, so -0.5
    /// is the edge. The lower pixel may be -1 and the upper one the size; the caller repeats the edges.
    fn taps(position: f64, size: u32, along: Along) -> (i32, [Self; 2]);

    /// The weight of a pixel that does not contribute.
    const NONE: Self;

    /// Returns the coefficients for a colour description.
    fn yuv(color: ColorDescription) -> Self::Yuv;
    /// Returns the conversion for a grey frame.
    fn grey(color: ColorDescription) -> Self::Grey;
    /// Returns the coefficients of a YUV or grey frame for a GPU's kernel; floats as bits.
    fn coefficients(color: ColorDescription, grey: bool) -> [u32; 8];
    /// Returns red, green and blue for bytes of Y, Cb and Cr.
    fn rgb<const FMA: bool>(yuv: &Self::Yuv, y: u32, cb: u32, cr: u32) -> [Self::Wide; 3];
    /// Returns the value of a grey byte.
    fn grey_value<const FMA: bool>(grey: &Self::Grey, byte: u32) -> Self::Wide;

    /// Converts a byte to a channel.
    fn wide(byte: u32) -> Self::Wide;
    /// Computes luma from three channels.
    fn luma<const FMA: bool>(rgb: [Self::Wide; 3]) -> Self::Wide;
    /// Converts a single channel to a row's value.
    fn whole(channel: Self::Wide) -> Self;
    /// Mixes two channels into a row's value.
    fn mixed<const FMA: bool>(channels: [Self::Wide; 2], weights: [Self; 2]) -> Self;

    /// Returns the value, 0 to 255, of a single row.
    fn value(row: Self) -> Self;
    /// Returns the value, 0 to 255, of two mixed rows.
    fn mixed_value<const FMA: bool>(rows: [Self; 2], weights: [Self; 2]) -> Self;
    /// Returns the same without rounding in between.
    fn exact_value<const FMA: bool>(rows: [Self; 2], weights: [Self; 2]) -> Self;
    /// Returns a weight, 0 to 1, which must be a multiple of 1/2048.
    fn weight(share: f32) -> Self;
    /// Converts a value to a float.
    fn float(value: Self) -> f32;

    /// Returns its bits, the others 0.
    fn bits(self) -> u64;
    /// Returns the number of the lowest bits.
    fn of_bits(bits: u64) -> Self;

    /// Converts a raw sample of a mosaic.
    fn sample(raw: u16, depth: BayerDepth) -> Self;
    /// Converts a sample to a channel.
    fn channel(sample: Self) -> Self::Wide;
    /// Converts a channel to a sample.
    fn narrow(channel: Self::Wide) -> Self;
    /// Returns the mean of two samples.
    fn mean_of_2(samples: [Self; 2]) -> Self;
    /// Returns the mean of four samples.
    fn mean_of_4(samples: [Self; 4]) -> Self;
}

/// Converts a whole number of at most 31 bits and a sign. A cast saturates, for which there is no vector instruction.
#[inline(always)]
fn whole_number(value: f64) -> i32 {
    // 1.5 * 2^52, so that the number is in the lowest bits of the sum.
    (value + 6_755_399_441_055_744.0).to_bits() as i32
}

/// The axis of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Along {
    X,
    Y,
}

impl Number for f32 {
    type Wide = f32;
    /// The linear map `red = y_gain Y + r_cr Cr + bias`, and so on: y_gain, r_cr, g_cb, g_cr, b_cb, three biases.
    type Yuv = [f32; 8];
    /// A gain and a bias.
    type Grey = [f32; 2];

    const NONE: Self = 0.0;

    #[inline(always)]
    fn taps(position: f64, size: u32, _along: Along) -> (i32, [Self; 2]) {
        let position = position.clamp(0.0, f64::from(size - 1));
        let nearest = position.round_ties_even();
        let position = if (position - nearest).abs() < SNAP { nearest } else { position };
        let weight = position - position.floor();
        (whole_number(position.floor()), [(1.0 - weight) as f32, weight as f32])
    }

    #[inline(always)]
    fn wide(byte: u32) -> f32 {
        // Via i32, because SSE2 and AVX2 convert only signed integers.
        byte as i32 as f32
    }

    #[inline(always)]
    fn luma<const FMA: bool>([red, green, blue]: [f32; 3]) -> f32 {
        let fma = multiply_add::<FMA>;
        fma(LUMA[0], red, fma(LUMA[1], green, LUMA[2] * blue))
    }

    #[inline(always)]
    fn whole(channel: f32) -> f32 {
        channel
    }

    #[inline(always)]
    fn mixed<const FMA: bool>([low, high]: [f32; 2], weights: [f32; 2]) -> f32 {
        multiply_add::<FMA>(high, weights[1], low * weights[0])
    }

    #[inline(always)]
    fn value(row: f32) -> f32 {
        row
    }

    #[inline(always)]
    fn mixed_value<const FMA: bool>(rows: [f32; 2], weights: [f32; 2]) -> f32 {
        Self::mixed::<FMA>(rows, weights)
    }

    #[inline(always)]
    fn exact_value<const FMA: bool>(rows: [f32; 2], weights: [f32; 2]) -> f32 {
        Self::mixed::<FMA>(rows, weights)
    }

    fn weight(share: f32) -> f32 {
        share
    }

    #[inline(always)]
    fn float(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }

    #[inline(always)]
    fn of_bits(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }

    /// Samples beyond their depth's range count as white.
    #[inline(always)]
    fn sample(raw: u16, depth: BayerDepth) -> f32 {
        (f32::from(raw) * depth.full_scale_gain()).min(255.0)
    }

    #[inline(always)]
    fn channel(sample: f32) -> f32 {
        sample
    }

    #[inline(always)]
    fn narrow(channel: f32) -> f32 {
        channel
    }

    #[inline(always)]
    fn mean_of_2([a, b]: [f32; 2]) -> f32 {
        0.5 * (a + b)
    }

    #[inline(always)]
    fn mean_of_4([a, b, c, d]: [f32; 4]) -> f32 {
        0.25 * ((a + b) + (c + d))
    }

    fn yuv(color: ColorDescription) -> [f32; 8] {
        let YuvToRgb { y_offset, y_gain, r_cr, g_cb, g_cr, b_cb } = color.to_rgb();
        let black = -y_gain * y_offset;
        let biases = [black - 128.0 * r_cr, black - 128.0 * (g_cb + g_cr), black - 128.0 * b_cb];
        let [red, green, blue] = biases;
        [y_gain, r_cr, g_cb, g_cr, b_cb, red, green, blue].map(|coefficient| coefficient as f32)
    }

    fn grey(color: ColorDescription) -> [f32; 2] {
        let map = color.to_rgb();
        [map.y_gain as f32, (-map.y_gain * map.y_offset) as f32]
    }

    fn coefficients(color: ColorDescription, grey: bool) -> [u32; 8] {
        let [gain, bias] = Self::grey(color);
        let floats = if grey { [gain, bias, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] } else { Self::yuv(color) };
        floats.map(f32::to_bits)
    }

    #[inline(always)]
    fn rgb<const FMA: bool>(yuv: &[f32; 8], y: u32, cb: u32, cr: u32) -> [f32; 3] {
        let [y_gain, r_cr, g_cb, g_cr, b_cb, red_bias, green_bias, blue_bias] = *yuv;
        let (y, cb, cr) = (f32::wide(y), f32::wide(cb), f32::wide(cr));
        let fma = multiply_add::<FMA>;
        let red = fma(y_gain, y, fma(r_cr, cr, red_bias));
        let green = fma(y_gain, y, fma(g_cb, cb, fma(g_cr, cr, green_bias)));
        let blue = fma(y_gain, y, fma(b_cb, cb, blue_bias));
        [red, green, blue].map(|value| value.clamp(0.0, 255.0))
    }

    #[inline(always)]
    fn grey_value<const FMA: bool>(&[gain, bias]: &[f32; 2], byte: u32) -> f32 {
        multiply_add::<FMA>(gain, f32::wide(byte), bias).clamp(0.0, 255.0)
    }
}

impl Number for u16 {
    type Wide = i32;
    /// The same map times 2^20, rounded like in OpenCV: y_offset, y_gain, r_cr, g_cb, g_cr, b_cb.
    type Yuv = [i32; 6];
    type Grey = ();

    const NONE: Self = 0;

    #[inline(always)]
    fn taps(position: f64, size: u32, along: Along) -> (i32, [Self; 2]) {
        // In OpenCV, the position itself is single precision.
        let position = position as f32;
        let (mut low, mut weight) = (whole_number(f64::from(position.floor())), position - position.floor());
        // Columns beyond the edges lose their weight; rows keep it and are repeated. The last bit shows the difference.
        let last = size as i32 - 1;
        if along == Along::X && (low < 0 || low >= last) {
            (low, weight) = (low.clamp(0, last), 0.0);
        }
        let fixed = |weight: f32| rounded(weight * (1 << WEIGHT_BITS) as f32) as u16;
        (low, [fixed(1.0 - weight), fixed(weight)])
    }

    #[inline(always)]
    fn wide(byte: u32) -> i32 {
        byte as i32
    }

    #[inline(always)]
    fn luma<const FMA: bool>(rgb: [i32; 3]) -> i32 {
        let sum = rgb[0] * FIXED_LUMA[0] + rgb[1] * FIXED_LUMA[1] + rgb[2] * FIXED_LUMA[2];
        (sum + (1 << (FIXED_LUMA_BITS - 1))) >> FIXED_LUMA_BITS
    }

    #[inline(always)]
    fn whole(channel: i32) -> u16 {
        (channel << (WEIGHT_BITS - 4)) as u16
    }

    /// At most 255 * 2049 / 16, which fits in 15 bits.
    #[inline(always)]
    fn mixed<const FMA: bool>([low, high]: [i32; 2], weights: [u16; 2]) -> u16 {
        // The masks show the compiler that 16-bit multiplications are enough.
        let [low_weight, high_weight] = weights.map(|weight| i32::from(weight & 0xfff));
        (((low & 0xff) * low_weight + (high & 0xff) * high_weight) >> 4) as u16
    }

    #[inline(always)]
    fn value(row: u16) -> u16 {
        ((row >> 5) + 2) >> 2
    }

    /// At most 255: a row is at most 255 * 2049 / 16, so the parts add up to at most 1020.
    #[inline(always)]
    fn mixed_value<const FMA: bool>(rows: [u16; 2], weights: [u16; 2]) -> u16 {
        let part = |i: usize| ((u32::from(rows[i]) * u32::from(weights[i])) >> 16) as u16;
        (part(0) + part(1) + 2) >> 2
    }

    #[inline(always)]
    fn exact_value<const FMA: bool>(rows: [u16; 2], weights: [u16; 2]) -> u16 {
        let part = |i: usize| u32::from(rows[i]) * u32::from(weights[i]);
        ((part(0) + part(1) + (1 << 17)) >> 18) as u16
    }

    fn weight(share: f32) -> u16 {
        (share * (1 << WEIGHT_BITS) as f32) as u16
    }

    #[inline(always)]
    fn float(value: u16) -> f32 {
        f32::from(value)
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        u64::from(self)
    }

    #[inline(always)]
    fn of_bits(bits: u64) -> u16 {
        bits as u16
    }

    /// Rounds to the nearest byte. Samples beyond their depth's range count as white.
    #[inline(always)]
    fn sample(raw: u16, depth: BayerDepth) -> u16 {
        // Exact: at every depth a quotient is at least 1/682 away from a half, far more than f32's error.
        rounded(f32::sample(raw, depth)) as u16
    }

    #[inline(always)]
    fn channel(sample: u16) -> i32 {
        i32::from(sample)
    }

    #[inline(always)]
    fn narrow(channel: i32) -> u16 {
        channel as u16
    }

    #[inline(always)]
    fn mean_of_2([a, b]: [u16; 2]) -> u16 {
        (a + b + 1) >> 1
    }

    #[inline(always)]
    fn mean_of_4([a, b, c, d]: [u16; 4]) -> u16 {
        (a + b + c + d + 2) >> 2
    }

    fn yuv(color: ColorDescription) -> [i32; 6] {
        if (color.matrix, color.range) == (ColorMatrix::Bt601, ColorRange::Limited) {
            // OpenCV's own coefficients, which are not the nearest (color_yuv.simd.hpp, ITUR_BT_601_*).
            return [16, 1220542, 1673527, -409993, -852492, 2116026];
        }
        let YuvToRgb { y_offset, y_gain, r_cr, g_cb, g_cr, b_cb } = color.to_rgb();
        let fixed = |coefficient: f64| (coefficient * f64::from(1 << COEFFICIENT_BITS)).round() as i32;
        let [y_gain, r_cr, g_cb, g_cr, b_cb] = [y_gain, r_cr, g_cb, g_cr, b_cb].map(fixed);
        [y_offset as i32, y_gain, r_cr, g_cb, g_cr, b_cb]
    }

    fn grey(_color: ColorDescription) {}

    fn coefficients(color: ColorDescription, _grey: bool) -> [u32; 8] {
        let [y_offset, y_gain, r_cr, g_cb, g_cr, b_cb] = Self::yuv(color);
        [y_offset, y_gain, r_cr, g_cb, g_cr, b_cb, 0, 0].map(i32::cast_unsigned)
    }

    /// No sum reaches 2^30: gains are below 2.2 * 2^20.
    #[inline(always)]
    fn rgb<const FMA: bool>(yuv: &[i32; 6], y: u32, cb: u32, cr: u32) -> [i32; 3] {
        let [y_offset, y_gain, r_cr, g_cb, g_cr, b_cb] = *yuv;
        let y = (y as i32 - y_offset).max(0) * y_gain + (1 << (COEFFICIENT_BITS - 1));
        let (cb, cr) = (cb as i32 - 128, cr as i32 - 128);
        let red = y + r_cr * cr;
        let green = y + g_cr * cr + g_cb * cb;
        let blue = y + b_cb * cb;
        [red, green, blue].map(|value| (value >> COEFFICIENT_BITS).clamp(0, 255))
    }

    #[inline(always)]
    fn grey_value<const FMA: bool>(_grey: &(), byte: u32) -> i32 {
        byte as i32
    }
}
