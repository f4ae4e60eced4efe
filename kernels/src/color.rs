//! The meaning of a frame's values: matrix, range, levels, and the conversion to RGB.
//!
//! A wrong matrix shifts every colour that a model sees. So the description travels with the frame and comes from the driver or
//! the file; it is never assumed.

/// The luma weights of the conversion from R, G, B to Y, Cb, Cr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ColorMatrix {
    /// ITU-R BT.601: standard definition, JPEG, most webcams.
    #[default]
    Bt601,
    /// ITU-R BT.709: high definition.
    Bt709,
    /// ITU-R BT.2020, non-constant luminance: ultra-high definition.
    Bt2020,
}

impl ColorMatrix {
    /// Returns (Kr, Kb), the weights of red and blue in luma. ITU-R BT.601-7 §2.5.1, BT.709-6 §3, BT.2020-2 table 4.
    pub const fn luma_weights(self) -> (f64, f64) {
        match self {
            Self::Bt601 => (0.299, 0.114),
            Self::Bt709 => (0.2126, 0.0722),
            Self::Bt2020 => (0.2627, 0.0593),
        }
    }

    /// Returns the name used in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The range of the 8-bit values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ColorRange {
    /// Y in 16..=235, Cb and Cr in 16..=240.
    #[default]
    Limited,
    /// All of 0..=255 (JPEG).
    Full,
}

impl ColorRange {
    /// Returns the name used in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How YUV becomes RGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum YuvArithmetic {
    /// By the recommendation's formula, rounded to the nearest, as OpenCV's `cvtColor`.
    #[default]
    Nearest,
    /// Like ffmpeg's conversion of 8-bit 4:2:0, and so OpenCV's `VideoCapture`: 16-bit products, each truncated. See
    /// [`ColorDescription::truncated`].
    Ffmpeg,
}

/// The samples that become black and white, of a grey frame with more than 8 bits.
///
/// Sample `v` becomes the byte `255 (v - low) / (high - low)`, saturated. The arithmetic is that of OpenCV's `convertTo(CV_8U,
/// 255 / (high - low), -255 low / (high - low))`: see [`LevelMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GreyLevels {
    low: u16,
    high: u16,
}

impl GreyLevels {
    /// Makes levels; `None` unless `low` is below `high`.
    pub const fn new(low: u16, high: u16) -> Option<Self> {
        if low < high { Some(Self { low, high }) } else { None }
    }

    /// Returns the levels of samples that use all values of their bits, 1 to 16.
    pub(crate) const fn full(bits: u32) -> Self {
        Self { low: 0, high: u16::MAX >> (16 - bits) }
    }

    /// Returns the black and the white sample.
    pub const fn ends(self) -> [u16; 2] {
        [self.low, self.high]
    }

    /// Returns the map to bytes.
    pub(crate) fn map(self) -> LevelMap {
        let gain = 255.0 / f64::from(self.high - self.low);
        LevelMap { gain: gain as f32, bias: (-f64::from(self.low) * gain) as f32 }
    }
}

/// The map from grey samples to bytes: `gain v + bias` in single precision with one rounding, then half to even.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LevelMap {
    /// 255 / (high - low).
    pub(crate) gain: f32,
    /// -low times the gain.
    pub(crate) bias: f32,
}

impl LevelMap {
    /// Returns the byte of a sample.
    #[inline(always)]
    pub(crate) fn byte(self, sample: u16) -> u8 {
        // A fused multiply-add, even if the processor has none. The product has 40 bits at most. The bias is 0 or from 1 to 2^16
        // times the gain, so the sum has 42. Double precision holds both, and only the conversion rounds.
        let value = (f64::from(sample) * f64::from(self.gain) + f64::from(self.bias)) as f32;
        rounded(value.clamp(0.0, 255.0)) as u8
    }
}

/// Rounds a number of up to 2^22 to the nearest integer, half to even, in two's complement: adding 1.5 * 2^23 rounds it into
/// the low bits of the mantissa. Unlike `as`, this is one addition in vector lanes.
#[inline(always)]
pub(crate) fn rounded(value: f32) -> i32 {
    const ROUNDER: f32 = 12_582_912.0;
    (value + ROUNDER).to_bits() as i32 - ROUNDER.to_bits() as i32
}

/// The meaning of a frame's values. RGB and Bayer frames ignore it; a grey frame uses the range and, with more than 8 bits, the
/// levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ColorDescription {
    /// The luma weights.
    pub matrix: ColorMatrix,
    /// The range of the values.
    pub range: ColorRange,
    /// How the values become RGB.
    pub arithmetic: YuvArithmetic,
    /// The samples that become black and white; `None`: the least and the largest of the depth.
    pub levels: Option<GreyLevels>,
}

impl ColorDescription {
    /// The colours of JPEG (JFIF): BT.601, full range.
    pub const JPEG: Self = Self::new(ColorMatrix::Bt601, ColorRange::Full);

    /// Makes a description with the formula's arithmetic.
    pub const fn new(matrix: ColorMatrix, range: ColorRange) -> Self {
        Self { matrix, range, arithmetic: YuvArithmetic::Nearest, levels: None }
    }

    /// Sets the levels, if there are any. The resulting bytes use the full range.
    pub const fn with_levels(self, levels: Option<GreyLevels>) -> Self {
        match levels {
            Some(_) => Self { range: ColorRange::Full, levels, ..self },
            None => self,
        }
    }

    /// Returns the linear map to RGB in 0..=255, not yet clamped.
    pub fn to_rgb(self) -> YuvToRgb {
        let (kr, kb) = self.matrix.luma_weights();
        let kg = 1.0 - kr - kb;
        let (y_offset, y_span, c_span) = match self.range {
            ColorRange::Limited => (16.0, 219.0, 224.0),
            ColorRange::Full => (0.0, 255.0, 255.0),
        };
        let chroma = 255.0 / c_span;
        YuvToRgb {
            y_offset,
            y_gain: 255.0 / y_span,
            r_cr: 2.0 * (1.0 - kr) * chroma,
            g_cb: -2.0 * kb * (1.0 - kb) / kg * chroma,
            g_cr: -2.0 * kr * (1.0 - kr) / kg * chroma,
            b_cb: 2.0 * (1.0 - kb) * chroma,
        }
    }

    /// Returns ffmpeg's map to RGB, whose coefficients are not those nearest to the formula's: libswscale/yuv2rgb.c,
    /// `ff_yuv2rgb_coeffs` and `ff_yuv2rgb_c_init_tables`.
    pub fn truncated(self) -> TruncatedYuvToRgb {
        // Times 2^16, for the limited range: red from Cr, blue from Cb, green from Cb and from Cr.
        let [r_cr, b_cb, g_cb, g_cr] = match self.matrix {
            ColorMatrix::Bt601 => [104_597, 132_201, -25_675, -53_279],
            ColorMatrix::Bt709 => [117_489, 138_438, -13_975, -34_925],
            ColorMatrix::Bt2020 => [110_013, 140_363, -12_277, -42_626],
        };
        let (y_offset, y_gain, chroma) = match self.range {
            ColorRange::Limited => (16, (255 << 16) / 219, [1, 1]),
            ColorRange::Full => (0, 1 << 16, [224, 255]),
        };
        let [y_gain, r_cr, g_cb, g_cr, b_cb] = [
            y_gain,
            r_cr * chroma[0] / chroma[1],
            g_cb * chroma[0] / chroma[1],
            g_cr * chroma[0] / chroma[1],
            b_cb * chroma[0] / chroma[1],
        ]
        .map(|coefficient| (coefficient + 4) >> 3);
        TruncatedYuvToRgb { y_offset: 8 * y_offset, y_gain, r_cr, g_cb, g_cr, b_cb }
    }
}

/// The map of [`YuvArithmetic::Ffmpeg`], in 16-bit numbers: `R = (8 Y - y_offset) y_gain / 2^16 + 8 (Cr - 128) r_cr / 2^16`, and so
/// on. Each product is rounded down, sums are clamped to 0..=255.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TruncatedYuvToRgb {
    /// The black level of Y, times 8.
    pub y_offset: i32,
    /// The gain of Y, times 2^13.
    pub y_gain: i32,
    /// Red from Cr, times 2^13.
    pub r_cr: i32,
    /// Green from Cb, times 2^13.
    pub g_cb: i32,
    /// Green from Cr, times 2^13.
    pub g_cr: i32,
    /// Blue from Cb, times 2^13.
    pub b_cb: i32,
}

/// The map `R = y_gain (Y - y_offset) + r_cr (Cr - 128)`, and so on. The caller clamps the results to 0..=255.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YuvToRgb {
    /// The black level of Y.
    pub y_offset: f64,
    /// 1 for full range, 255/219 for limited range.
    pub y_gain: f64,
    /// Red from Cr - 128.
    pub r_cr: f64,
    /// Green from Cb - 128.
    pub g_cb: f64,
    /// Green from Cr - 128.
    pub g_cr: f64,
    /// Blue from Cb - 128.
    pub b_cb: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coefficients_are_those_of_the_recommendations() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 5e-4, "{a} {b}");
        let sd = ColorDescription::default().to_rgb();
        close(sd.y_gain, 1.16438);
        close(sd.r_cr, 1.59603);
        close(sd.g_cb, -0.39176);
        close(sd.g_cr, -0.81297);
        close(sd.b_cb, 2.01723);
        let hd = ColorDescription::new(ColorMatrix::Bt709, ColorRange::Full).to_rgb();
        close(hd.r_cr, 1.5748);
        close(hd.b_cb, 1.8556);
        close(hd.y_gain, 1.0);
        let uhd = ColorDescription::new(ColorMatrix::Bt2020, ColorRange::Limited).to_rgb();
        for (ours, theirs) in [(uhd.y_offset, 16.0), (uhd.r_cr, 1.67867), (uhd.g_cb, -0.18733), (uhd.g_cr, -0.65042)] {
            close(ours, theirs);
        }
        close(uhd.b_cb, 2.14177);
    }

    #[test]
    fn levels_become_black_and_white_and_halves_between_become_even() {
        let bytes = |low, high, samples: [u16; 5]| {
            GreyLevels::new(low, high).map(|levels| samples.map(|sample| levels.map().byte(sample)))
        };
        assert_eq!(bytes(100, 110, [0, 100, 105, 110, 65_535]), Some([0, 0, 128, 255, 255]));
        assert_eq!(bytes(0, 510, [1, 3, 5, 507, 509]), Some([0, 2, 2, 254, 254]));
        assert_eq!(bytes(65_534, 65_535, [0, 1, 65_533, 65_534, 65_535]), Some([0, 0, 0, 0, 255]));
        assert_eq!(bytes(7, 7, [7; 5]), None);
        assert_eq!(bytes(8, 7, [7; 5]), None);
        assert_eq!([8, 10, 12, 16].map(|bits| GreyLevels::full(bits).ends()[1]), [255, 1023, 4095, 65_535]);
    }

    #[test]
    fn what_levels_make_of_samples_uses_the_full_range() {
        let limited = ColorDescription::default();
        assert_eq!(limited.with_levels(None), limited);
        let levels = GreyLevels::new(64, 940);
        assert_eq!(limited.with_levels(levels), ColorDescription { range: ColorRange::Full, levels, ..limited });
    }

    /// The coefficients of ffmpeg 5.1: they reproduce its BGR for all 2^24 colours, for each matrix and range.
    #[test]
    fn the_truncated_coefficients_are_ffmpegs() {
        let of = |matrix, range| {
            let TruncatedYuvToRgb { y_offset, y_gain, r_cr, g_cb, g_cr, b_cb } =
                ColorDescription::new(matrix, range).truncated();
            [y_offset, y_gain, r_cr, b_cb, g_cb, g_cr]
        };
        use {ColorMatrix::*, ColorRange::*};
        assert_eq!(of(Bt601, Limited), [128, 9539, 13075, 16525, -3209, -6660]);
        assert_eq!(of(Bt601, Full), [0, 8192, 11485, 14516, -2819, -5850]);
        assert_eq!(of(Bt709, Limited), [128, 9539, 14686, 17305, -1747, -4366]);
        assert_eq!(of(Bt709, Full), [0, 8192, 12901, 15201, -1534, -3835]);
        assert_eq!(of(Bt2020, Limited), [128, 9539, 13752, 17545, -1535, -5328]);
        assert_eq!(of(Bt2020, Full), [0, 8192, 12080, 15412, -1348, -4680]);
    }

    #[test]
    fn names_are_those_of_the_configuration() {
        use ColorMatrix::{Bt601, Bt709, Bt2020};
        assert_eq!([Bt601, Bt709, Bt2020].map(ColorMatrix::name), ["bt601", "bt709", "bt2020"]);
        assert_eq!([ColorRange::Limited, ColorRange::Full].map(ColorRange::name), ["limited", "full"]);
    }
}
