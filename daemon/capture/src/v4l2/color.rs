//! Interprets a driver's colour fields.
//!
//! A driver may leave any of the three at "default". videodev2.h defines what that means (V4L2_MAP_YCBCR_ENC_DEFAULT,
//! V4L2_MAP_QUANTIZATION_DEFAULT):
//! <https://docs.kernel.org/userspace-api/media/v4l/colorspaces-defs.html>

use v4l::v4l_sys as sys;
use visiond_kernels::color::{ColorDescription, ColorMatrix, ColorRange};

use super::device::PixFormat;

/// Returns matrix and range of the pixels of `pix`.
pub fn description(pix: &PixFormat) -> ColorDescription {
    ColorDescription::new(matrix(pix.colorspace, pix.ycbcr_encoding), range(pix))
}

fn matrix(colorspace: u32, encoding: u32) -> ColorMatrix {
    use sys::{
        v4l2_colorspace_V4L2_COLORSPACE_BT2020 as BT2020, v4l2_colorspace_V4L2_COLORSPACE_DCI_P3 as DCI_P3,
        v4l2_colorspace_V4L2_COLORSPACE_REC709 as REC709, v4l2_colorspace_V4L2_COLORSPACE_SMPTE240M as SMPTE240M,
        v4l2_ycbcr_encoding_V4L2_YCBCR_ENC_709 as ENC_709, v4l2_ycbcr_encoding_V4L2_YCBCR_ENC_BT2020 as ENC_BT2020,
        v4l2_ycbcr_encoding_V4L2_YCBCR_ENC_BT2020_CONST_LUM as ENC_BT2020_CONST_LUM,
        v4l2_ycbcr_encoding_V4L2_YCBCR_ENC_DEFAULT as ENC_DEFAULT,
        v4l2_ycbcr_encoding_V4L2_YCBCR_ENC_SMPTE240M as ENC_SMPTE240M,
        v4l2_ycbcr_encoding_V4L2_YCBCR_ENC_XV709 as ENC_XV709,
    };
    match (encoding, colorspace) {
        // SMPTE 240M, of analogue HDTV, has its own weights within 0.02 of BT.709's.
        (ENC_DEFAULT, REC709 | DCI_P3 | SMPTE240M) | (ENC_709 | ENC_XV709 | ENC_SMPTE240M, _) => ColorMatrix::Bt709,
        (ENC_DEFAULT, BT2020) | (ENC_BT2020 | ENC_BT2020_CONST_LUM, _) => ColorMatrix::Bt2020,
        _ => ColorMatrix::Bt601,
    }
}

fn range(pix: &PixFormat) -> ColorRange {
    match pix.quantization {
        sys::v4l2_quantization_V4L2_QUANTIZATION_FULL_RANGE => ColorRange::Full,
        sys::v4l2_quantization_V4L2_QUANTIZATION_LIM_RANGE => ColorRange::Limited,
        // A sensor's raw values use the full range; for grey pixels that matters.
        _ if matches!(
            pix.colorspace,
            sys::v4l2_colorspace_V4L2_COLORSPACE_JPEG | sys::v4l2_colorspace_V4L2_COLORSPACE_RAW
        ) =>
        {
            ColorRange::Full
        }
        // videodev2.h defines it as limited. No monochrome or thermal camera with more than 8 bits means that, and OpenCV and
        // GStreamer read them as full.
        _ if matches!(&pix.fourcc, b"Y10 " | b"Y12 " | b"Y16 ") => ColorRange::Full,
        _ => ColorRange::Limited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(colorspace: u32, ycbcr_encoding: u32, quantization: u32) -> (ColorMatrix, ColorRange) {
        let color = description(&PixFormat { colorspace, ycbcr_encoding, quantization, ..PixFormat::default() });
        (color.matrix, color.range)
    }

    #[test]
    fn grey_of_many_bits_is_full_unless_the_driver_says_otherwise() {
        let range = |fourcc: &[u8; 4], quantization| {
            description(&PixFormat { fourcc: *fourcc, quantization, ..PixFormat::default() }).range
        };
        let limited = sys::v4l2_quantization_V4L2_QUANTIZATION_LIM_RANGE;
        assert_eq!([b"Y10 ", b"Y12 ", b"Y16 "].map(|fourcc| range(fourcc, 0)), [ColorRange::Full; 3]);
        assert_eq!(range(b"Y16 ", limited), ColorRange::Limited);
        assert_eq!(range(b"GREY", 0), ColorRange::Limited);
    }

    #[test]
    fn defaults_are_videodev2_hs() {
        assert_eq!(of(sys::v4l2_colorspace_V4L2_COLORSPACE_DEFAULT, 0, 0), (ColorMatrix::Bt601, ColorRange::Limited));
        assert_eq!(of(sys::v4l2_colorspace_V4L2_COLORSPACE_SRGB, 0, 0), (ColorMatrix::Bt601, ColorRange::Limited));
        assert_eq!(of(sys::v4l2_colorspace_V4L2_COLORSPACE_SMPTE170M, 0, 0), (ColorMatrix::Bt601, ColorRange::Limited));
        assert_eq!(of(sys::v4l2_colorspace_V4L2_COLORSPACE_JPEG, 0, 0), (ColorMatrix::Bt601, ColorRange::Full));
        assert_eq!(of(sys::v4l2_colorspace_V4L2_COLORSPACE_RAW, 0, 0), (ColorMatrix::Bt601, ColorRange::Full));
        assert_eq!(of(sys::v4l2_colorspace_V4L2_COLORSPACE_REC709, 0, 0), (ColorMatrix::Bt709, ColorRange::Limited));
        assert_eq!(of(sys::v4l2_colorspace_V4L2_COLORSPACE_BT2020, 0, 0), (ColorMatrix::Bt2020, ColorRange::Limited));
    }

    #[test]
    fn what_the_driver_says_wins_over_the_defaults() {
        let srgb = sys::v4l2_colorspace_V4L2_COLORSPACE_SRGB;
        let said =
            of(srgb, sys::v4l2_ycbcr_encoding_V4L2_YCBCR_ENC_709, sys::v4l2_quantization_V4L2_QUANTIZATION_FULL_RANGE);
        assert_eq!(said, (ColorMatrix::Bt709, ColorRange::Full));
        let jpeg = sys::v4l2_colorspace_V4L2_COLORSPACE_JPEG;
        assert_eq!(of(jpeg, 0, sys::v4l2_quantization_V4L2_QUANTIZATION_LIM_RANGE).1, ColorRange::Limited);
        let raw = sys::v4l2_colorspace_V4L2_COLORSPACE_RAW;
        assert_eq!(of(raw, 0, sys::v4l2_quantization_V4L2_QUANTIZATION_LIM_RANGE).1, ColorRange::Limited);
    }
}
