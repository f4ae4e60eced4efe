//! Converts YUV and grey to RGB of 0 to 255, in both arithmetics.

use super::number::Number;
use super::simd::multiply_add;
use crate::color::{ColorDescription, ColorMatrix, ColorRange, YuvToRgb};

/// The bits of a fixed-point coefficient.
const COEFFICIENT_BITS: u32 = 20;

/// Colour conversion in one of the arithmetics.
pub(super) trait ToRgb: Number {
    /// The coefficients for YUV.
    type Yuv: Copy;
    /// The conversion of a grey byte.
    type Grey: Copy;

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
}

impl ToRgb for f32 {
    /// The linear map `red = y_gain Y + r_cr Cr + bias`, and so on: y_gain, r_cr, g_cb, g_cr, b_cb, three biases.
    type Yuv = [f32; 8];
    /// A gain and a bias.
    type Grey = [f32; 2];

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

impl ToRgb for u16 {
    /// The same map times 2^20, rounded like in OpenCV: y_offset, y_gain, r_cr, g_cb, g_cr, b_cb.
    type Yuv = [i32; 6];
    type Grey = ();

    fn yuv(color: ColorDescription) -> [i32; 6] {
        if color == (ColorDescription { matrix: ColorMatrix::Bt601, range: ColorRange::Limited }) {
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
