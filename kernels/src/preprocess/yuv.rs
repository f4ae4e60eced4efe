//! Converts YUV and grey to RGB of 0 to 255, in both arithmetics.

use super::number::Number;
use super::simd::multiply_add;
use crate::color::{ColorDescription, ColorMatrix, ColorRange};

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

/// The linear map for YUV: `red = y_gain Y + r_cr Cr + bias[0]`, and so on.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExactYuv {
    y_gain: f32,
    r_cr: f32,
    g_cb: f32,
    g_cr: f32,
    b_cb: f32,
    bias: [f32; 3],
}

/// A gain and a bias.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExactGrey {
    gain: f32,
    bias: f32,
}

impl ToRgb for f32 {
    type Yuv = ExactYuv;
    type Grey = ExactGrey;

    fn yuv(color: ColorDescription) -> ExactYuv {
        let map = color.to_rgb();
        let black = -map.y_gain * map.y_offset;
        ExactYuv {
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

    fn grey(color: ColorDescription) -> ExactGrey {
        let map = color.to_rgb();
        ExactGrey { gain: map.y_gain as f32, bias: (-map.y_gain * map.y_offset) as f32 }
    }

    fn coefficients(color: ColorDescription, grey: bool) -> [u32; 8] {
        if grey {
            let ExactGrey { gain, bias } = Self::grey(color);
            return [gain, bias, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0].map(f32::to_bits);
        }
        let ExactYuv { y_gain, r_cr, g_cb, g_cr, b_cb, bias: [red, green, blue] } = Self::yuv(color);
        [y_gain, r_cr, g_cb, g_cr, b_cb, red, green, blue].map(f32::to_bits)
    }

    #[inline(always)]
    fn rgb<const FMA: bool>(yuv: &ExactYuv, y: u32, cb: u32, cr: u32) -> [f32; 3] {
        let (y, cb, cr) = (f32::wide(y), f32::wide(cb), f32::wide(cr));
        let fma = multiply_add::<FMA>;
        let red = fma(yuv.y_gain, y, fma(yuv.r_cr, cr, yuv.bias[0]));
        let green = fma(yuv.y_gain, y, fma(yuv.g_cb, cb, fma(yuv.g_cr, cr, yuv.bias[1])));
        let blue = fma(yuv.y_gain, y, fma(yuv.b_cb, cb, yuv.bias[2]));
        [red, green, blue].map(|value| value.clamp(0.0, 255.0))
    }

    #[inline(always)]
    fn grey_value<const FMA: bool>(grey: &ExactGrey, byte: u32) -> f32 {
        multiply_add::<FMA>(grey.gain, f32::wide(byte), grey.bias).clamp(0.0, 255.0)
    }
}

/// The same map times 2^20, rounded like in OpenCV.
#[derive(Debug, Clone, Copy)]
pub(super) struct FixedYuv {
    y_offset: i32,
    y_gain: i32,
    r_cr: i32,
    g_cb: i32,
    g_cr: i32,
    b_cb: i32,
}

impl ToRgb for u16 {
    type Yuv = FixedYuv;
    type Grey = ();

    fn yuv(color: ColorDescription) -> FixedYuv {
        // OpenCV's own coefficients, which are not the nearest (color_yuv.simd.hpp, ITUR_BT_601_*).
        const OPENCV: FixedYuv =
            FixedYuv { y_offset: 16, y_gain: 1220542, r_cr: 1673527, g_cb: -409993, g_cr: -852492, b_cb: 2116026 };
        if color == (ColorDescription { matrix: ColorMatrix::Bt601, range: ColorRange::Limited }) {
            return OPENCV;
        }
        let map = color.to_rgb();
        let fixed = |coefficient: f64| (coefficient * f64::from(1 << COEFFICIENT_BITS)).round() as i32;
        FixedYuv {
            y_offset: map.y_offset as i32,
            y_gain: fixed(map.y_gain),
            r_cr: fixed(map.r_cr),
            g_cb: fixed(map.g_cb),
            g_cr: fixed(map.g_cr),
            b_cb: fixed(map.b_cb),
        }
    }

    fn grey(_color: ColorDescription) {}

    fn coefficients(color: ColorDescription, _grey: bool) -> [u32; 8] {
        let FixedYuv { y_offset, y_gain, r_cr, g_cb, g_cr, b_cb } = Self::yuv(color);
        [y_offset, y_gain, r_cr, g_cb, g_cr, b_cb, 0, 0].map(i32::cast_unsigned)
    }

    /// No sum reaches 2^30: gains are below 2.2 * 2^20.
    #[inline(always)]
    fn rgb<const FMA: bool>(yuv: &FixedYuv, y: u32, cb: u32, cr: u32) -> [i32; 3] {
        let y = (y as i32 - yuv.y_offset).max(0) * yuv.y_gain + (1 << (COEFFICIENT_BITS - 1));
        let (cb, cr) = (cb as i32 - 128, cr as i32 - 128);
        let red = y + yuv.r_cr * cr;
        let green = y + yuv.g_cr * cr + yuv.g_cb * cb;
        let blue = y + yuv.b_cb * cb;
        [red, green, blue].map(|value| (value >> COEFFICIENT_BITS).clamp(0, 255))
    }

    #[inline(always)]
    fn grey_value<const FMA: bool>(_grey: &(), byte: u32) -> i32 {
        byte as i32
    }
}
