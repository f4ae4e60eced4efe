//! Pixel formats of cameras and files: names, planes and rows.

use std::fmt;

use strum::IntoEnumIterator;

/// How pixels are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::EnumIter, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum PixelFormat {
    /// 4:2:2 packed: Y0 Cb Y1 Cr.
    Yuyv,
    /// 4:2:2 packed: Cb Y0 Cr Y1.
    Uyvy,
    /// 4:2:2 packed: Y0 Cr Y1 Cb.
    Yvyu,
    /// 4:2:2 packed: Cr Y0 Cb Y1.
    Vyuy,
    /// 4:2:0: a plane of Y, a plane of interleaved Cb Cr.
    Nv12,
    /// 4:2:0: a plane of Y, a plane of interleaved Cr Cb.
    Nv21,
    /// 4:2:2: a plane of Y, a plane of interleaved Cb Cr.
    Nv16,
    /// 4:2:2: a plane of Y, a plane of interleaved Cr Cb.
    Nv61,
    /// 4:2:0: as NV12, of 16-bit little-endian samples. The upper 8 of their bits count here; P010 uses the upper 10, P016 all.
    P010,
    /// 4:2:0: planes of Y, Cb and Cr.
    I420,
    /// R G B bytes.
    Rgb,
    /// B G R bytes.
    Bgr,
    /// R G B A bytes; A is ignored.
    Rgba,
    /// B G R A bytes; A is ignored.
    Bgra,
    /// One luma byte.
    Grey,
    /// Luma of 10 bits in the low bits of a little-endian 16-bit word.
    Grey10,
    /// Luma of 12 bits in the low bits of a little-endian 16-bit word.
    Grey12,
    /// Luma of 16 bits, little-endian.
    Grey16,
    /// A raw sensor mosaic.
    Bayer(BayerOrder, BayerDepth),
}

/// The colours of a mosaic's top-left 2x2 pixels, row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, strum::EnumIter)]
pub enum BayerOrder {
    /// R G / G B.
    #[default]
    Rggb,
    /// G R / B G.
    Grbg,
    /// G B / R G.
    Gbrg,
    /// B G / G R.
    Bggr,
}

/// The bit depth of a Bayer or grey sample. More than 8 bits are in the low bits of little-endian 16-bit words, as in V4L2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, strum::EnumIter)]
pub enum BayerDepth {
    /// 8 bits in a byte.
    #[default]
    Bits8,
    /// 10 bits in 16.
    Bits10,
    /// 12 bits in 16.
    Bits12,
    /// 16 bits.
    Bits16,
}

impl BayerOrder {
    /// Returns column and row of the first red pixel.
    pub(crate) const fn first_red(self) -> (usize, usize) {
        match self {
            Self::Rggb => (0, 0),
            Self::Grbg => (1, 0),
            Self::Gbrg => (0, 1),
            Self::Bggr => (1, 1),
        }
    }
}

impl BayerDepth {
    /// Returns the bits of a sample.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bits8 => 8,
            Self::Bits10 => 10,
            Self::Bits12 => 12,
            Self::Bits16 => 16,
        }
    }

    /// Returns the factor that maps the largest sample to 255.
    #[inline(always)]
    pub(crate) fn full_scale_gain(self) -> f32 {
        255.0 / ((1_u32 << self.bits()) - 1) as f32
    }

    /// Returns the bytes of a stored sample.
    pub const fn sample_bytes(self) -> usize {
        if matches!(self, Self::Bits8) { 1 } else { 2 }
    }
}

impl PixelFormat {
    /// Returns every format, in the documented order.
    pub fn all() -> impl Iterator<Item = Self> {
        let plain = Self::iter().filter(|format| !matches!(format, Self::Bayer(..)));
        let raw = BayerDepth::iter().flat_map(|depth| BayerOrder::iter().map(move |order| Self::Bayer(order, depth)));
        plain.chain(raw)
    }

    /// Returns the name used in the configuration and in messages.
    pub fn name(self) -> &'static str {
        const BAYER: [[&str; 4]; 4] = [
            ["rggb8", "rggb10", "rggb12", "rggb16"],
            ["grbg8", "grbg10", "grbg12", "grbg16"],
            ["gbrg8", "gbrg10", "gbrg12", "gbrg16"],
            ["bggr8", "bggr10", "bggr12", "bggr16"],
        ];
        match self {
            Self::Bayer(order, depth) => BAYER[order as usize][depth as usize],
            plain => plain.into(),
        }
    }

    /// Returns the format with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|format| format.name() == name)
    }

    /// Whether the frame has luma only.
    pub const fn is_grey(self) -> bool {
        matches!(self, Self::Grey) || self.has_levels()
    }

    /// Whether [`GreyLevels`](crate::color::GreyLevels) say which samples are black and white.
    pub const fn has_levels(self) -> bool {
        matches!(self, Self::Grey10 | Self::Grey12 | Self::Grey16)
    }

    /// Returns the depth of a mosaic's or a grey frame's samples; `None` for other formats.
    pub const fn sample_depth(self) -> Option<BayerDepth> {
        match self {
            Self::Grey => Some(BayerDepth::Bits8),
            Self::Grey10 => Some(BayerDepth::Bits10),
            Self::Grey12 => Some(BayerDepth::Bits12),
            Self::Grey16 => Some(BayerDepth::Bits16),
            Self::Bayer(_, depth) => Some(depth),
            _ => None,
        }
    }

    /// Returns the number of planes.
    pub const fn plane_count(self) -> usize {
        match self {
            Self::Nv12 | Self::Nv21 | Self::Nv16 | Self::Nv61 | Self::P010 => 2,
            Self::I420 => 3,
            _ => 1,
        }
    }

    /// Returns the bytes of a row's pixels in a plane, without padding. Odd widths of subsampled formats round up.
    pub const fn row_bytes(self, plane: usize, width: u32) -> usize {
        let w = width as usize;
        match self {
            Self::Yuyv | Self::Uyvy | Self::Yvyu | Self::Vyuy => w.div_ceil(2) * 4,
            Self::Nv12 | Self::Nv21 | Self::Nv16 | Self::Nv61 if plane > 0 => w.div_ceil(2) * 2,
            Self::P010 if plane > 0 => w.div_ceil(2) * 4,
            Self::P010 | Self::Grey10 | Self::Grey12 | Self::Grey16 => w * 2,
            Self::I420 if plane > 0 => w.div_ceil(2),
            Self::Nv12 | Self::Nv21 | Self::Nv16 | Self::Nv61 | Self::I420 | Self::Grey => w,
            Self::Rgb | Self::Bgr => w * 3,
            Self::Rgba | Self::Bgra => w * 4,
            Self::Bayer(_, depth) => w * depth.sample_bytes(),
        }
    }

    /// Returns the number of rows of a plane.
    pub const fn plane_rows(self, plane: usize, height: u32) -> usize {
        let rows_each = if plane > 0 { self.rows_per_chroma_row() } else { 1 };
        (height as usize).div_ceil(rows_each)
    }

    /// Returns how many rows of the frame share a row of the planes after the first.
    pub const fn rows_per_chroma_row(self) -> usize {
        if matches!(self, Self::Nv12 | Self::Nv21 | Self::P010 | Self::I420) { 2 } else { 1 }
    }
}

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in PixelFormat::all() {
            assert_eq!(PixelFormat::from_name(format.name()), Some(format));
        }
        let names: Vec<_> = PixelFormat::all().map(PixelFormat::name).collect();
        assert_eq!(
            names.join(" "),
            "yuyv uyvy yvyu vyuy nv12 nv21 nv16 nv61 p010 i420 rgb bgr rgba bgra grey grey10 grey12 grey16 rggb8 grbg8 gbrg8 \
             bggr8 rggb10 grbg10 gbrg10 bggr10 rggb12 grbg12 gbrg12 bggr12 rggb16 grbg16 gbrg16 bggr16"
        );
        assert_eq!(PixelFormat::from_name("yuv"), None);
        assert_eq!(PixelFormat::Nv12.to_string(), "nv12");
    }

    #[test]
    fn odd_sides_of_subsampled_planes_round_up() {
        // Bytes of a row and rows, of each plane of a picture of 7 x 5 pixels.
        let planes = |name: &str| {
            let format = PixelFormat::from_name(name).unwrap();
            let plane = |plane| (format.row_bytes(plane, 7), format.plane_rows(plane, 5));
            (0..format.plane_count()).map(plane).collect::<Vec<_>>()
        };
        for (names, expected) in [
            ("yuyv uyvy yvyu vyuy", &[(16, 5)][..]),
            ("nv12 nv21", &[(7, 5), (8, 3)]),
            ("nv16 nv61", &[(7, 5), (8, 5)]),
            ("p010", &[(14, 5), (16, 3)]),
            ("i420", &[(7, 5), (4, 3), (4, 3)]),
            ("rgb bgr", &[(21, 5)]),
            ("rgba bgra", &[(28, 5)]),
            ("grey rggb8 bggr8", &[(7, 5)]),
            ("grey10 grey12 grey16 grbg10 gbrg12 rggb16", &[(14, 5)]),
        ] {
            for name in names.split(' ') {
                assert_eq!(planes(name), expected, "{name}");
            }
        }
    }

    #[test]
    fn the_largest_sample_of_a_mosaic_becomes_255() {
        for (depth, largest) in BayerDepth::iter().zip([255.0, 1023.0, 4095.0, 65_535.0]) {
            assert!((depth.full_scale_gain() * largest - 255.0).abs() < 1e-3, "{depth:?}");
        }
        let reds = BayerOrder::iter().map(BayerOrder::first_red).collect::<Vec<_>>();
        assert_eq!(reds, [(0, 0), (1, 0), (0, 1), (1, 1)]);
    }
}
