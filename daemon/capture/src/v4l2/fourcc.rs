//! Maps V4L2's pixel formats to visiond's.
//!
//! <https://docs.kernel.org/userspace-api/media/v4l/pixfmt.html>

use visiond_config::types::CameraFormat::{self, Mjpeg, Raw};
use visiond_kernels::frame::BayerDepth::{Bits8, Bits10, Bits12, Bits16};
use visiond_kernels::frame::BayerOrder::{Bggr, Gbrg, Grbg, Rggb};
use visiond_kernels::frame::PixelFormat::{self, Bayer};

/// A four-character code.
pub type FourCc = [u8; 4];

/// Every supported format, cheapest first: few bytes and little arithmetic, then JPEG, which must be decoded, then Bayer
/// mosaics, which cost arithmetic and have no white balance. Grey comes last, because a camera that also has colour shows more.
/// The number of memory planes does not affect the cost.
const TABLE: &[(FourCc, CameraFormat)] = &[
    (*b"NV12", Raw(PixelFormat::Nv12)),
    (*b"NM12", Raw(PixelFormat::Nv12)),
    (*b"YUYV", Raw(PixelFormat::Yuyv)),
    (*b"UYVY", Raw(PixelFormat::Uyvy)),
    (*b"NM21", Raw(PixelFormat::Nv21)),
    (*b"NV21", Raw(PixelFormat::Nv21)),
    (*b"YM12", Raw(PixelFormat::I420)),
    (*b"YU12", Raw(PixelFormat::I420)),
    (*b"YV12", Raw(PixelFormat::I420)),
    (*b"YM21", Raw(PixelFormat::I420)),
    (*b"YVYU", Raw(PixelFormat::Yvyu)),
    (*b"VYUY", Raw(PixelFormat::Vyuy)),
    (*b"NV16", Raw(PixelFormat::Nv16)),
    (*b"NM16", Raw(PixelFormat::Nv16)),
    (*b"NM61", Raw(PixelFormat::Nv61)),
    (*b"NV61", Raw(PixelFormat::Nv61)),
    (*b"P010", Raw(PixelFormat::P010)),
    (*b"RGB3", Raw(PixelFormat::Rgb)),
    (*b"BGR3", Raw(PixelFormat::Bgr)),
    (*b"AB24", Raw(PixelFormat::Rgba)),
    (*b"XB24", Raw(PixelFormat::Rgba)),
    (*b"AR24", Raw(PixelFormat::Bgra)),
    (*b"XR24", Raw(PixelFormat::Bgra)),
    (*b"MJPG", Mjpeg),
    (*b"JPEG", Mjpeg),
    (*b"RGGB", Raw(Bayer(Rggb, Bits8))),
    (*b"GRBG", Raw(Bayer(Grbg, Bits8))),
    (*b"GBRG", Raw(Bayer(Gbrg, Bits8))),
    (*b"BA81", Raw(Bayer(Bggr, Bits8))),
    (*b"RG10", Raw(Bayer(Rggb, Bits10))),
    (*b"BA10", Raw(Bayer(Grbg, Bits10))),
    (*b"GB10", Raw(Bayer(Gbrg, Bits10))),
    (*b"BG10", Raw(Bayer(Bggr, Bits10))),
    (*b"RG12", Raw(Bayer(Rggb, Bits12))),
    (*b"BA12", Raw(Bayer(Grbg, Bits12))),
    (*b"GB12", Raw(Bayer(Gbrg, Bits12))),
    (*b"BG12", Raw(Bayer(Bggr, Bits12))),
    (*b"RG16", Raw(Bayer(Rggb, Bits16))),
    (*b"GR16", Raw(Bayer(Grbg, Bits16))),
    (*b"GB16", Raw(Bayer(Gbrg, Bits16))),
    (*b"BYR2", Raw(Bayer(Bggr, Bits16))),
    (*b"GREY", Raw(PixelFormat::Grey)),
    (*b"Y10 ", Raw(PixelFormat::Grey10)),
    (*b"Y12 ", Raw(PixelFormat::Grey12)),
    (*b"Y16 ", Raw(PixelFormat::Grey16)),
];

/// Returns visiond's format of this code; `None` if it is not supported.
pub fn format_of(fourcc: FourCc) -> Option<CameraFormat> {
    TABLE.iter().find(|(code, _)| *code == fourcc).map(|&(_, format)| format)
}

/// How a format's colour planes are arranged in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrangement {
    /// The number of memory planes.
    pub memory_plane_count: usize,
    /// Whether the Cr plane comes before the Cb plane.
    pub is_cr_first: bool,
}

/// Returns the arrangement of a supported format.
pub fn arrangement(fourcc: FourCc) -> Arrangement {
    let memory_plane_count = match &fourcc {
        b"NM12" | b"NM21" | b"NM16" | b"NM61" => 2,
        b"YM12" | b"YM21" => 3,
        _ => 1,
    };
    Arrangement { memory_plane_count, is_cr_first: matches!(&fourcc, b"YV12" | b"YM21") }
}

/// Returns the configuration's name of a format.
pub fn word(format: CameraFormat) -> &'static str {
    match format {
        Raw(format) => format.name(),
        Mjpeg => "mjpeg",
    }
}

/// Returns the supported formats of `offered`, cheapest first; if `wanted` is set, only those of that format.
pub fn by_cost(offered: &[FourCc], wanted: Option<CameraFormat>) -> Vec<(FourCc, CameraFormat)> {
    let fits = |&&(code, format): &&(FourCc, CameraFormat)| {
        offered.contains(&code) && wanted.is_none_or(|wanted| wanted == format)
    };
    TABLE.iter().filter(fits).copied().collect()
}

/// Returns "YUYV", or "Y16-BE" if the last character's top bit marks big-endian.
pub fn text(mut fourcc: FourCc) -> String {
    let is_big_endian = fourcc[3] & 0x80 != 0;
    fourcc[3] &= 0x7f;
    let text = fourcc.escape_ascii().to_string();
    format!("{}{}", text.trim_end(), if is_big_endian { "-BE" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_of_ours_has_a_code_and_comes_back() {
        for format in PixelFormat::all().map(Raw).chain([Mjpeg]) {
            let codes: Vec<_> = TABLE.iter().filter(|(_, of)| *of == format).collect();
            assert!(!codes.is_empty(), "{}", word(format));
            assert!(codes.iter().all(|(code, _)| format_of(*code) == Some(format)));
        }
        let mut codes: Vec<_> = TABLE.iter().map(|(code, _)| code).collect();
        codes.sort();
        codes.dedup();
        assert_eq!(codes.len(), TABLE.len(), "a code stands twice");
        assert_eq!(format_of(*b"H264"), None);
    }

    #[test]
    fn every_word_is_one_that_the_configuration_has() {
        for &(_, format) in TABLE {
            assert_eq!(visiond_config::parse_word(word(format)), Ok(format));
        }
    }

    #[test]
    fn mosaics_are_the_kernels() {
        assert_eq!(format_of(*b"BA81"), Some(Raw(Bayer(Bggr, Bits8))));
        assert_eq!(format_of(*b"BA10"), Some(Raw(Bayer(Grbg, Bits10))));
        assert_eq!(format_of(*b"BYR2"), Some(Raw(Bayer(Bggr, Bits16))));
    }

    #[test]
    fn a_webcam_gives_raw_pixels_before_jpeg_and_what_was_asked_for_before_both() {
        let offered = [*b"MJPG", *b"H264", *b"YUYV", *b"GREY"];
        let codes = |wanted| by_cost(&offered, wanted).into_iter().map(|(code, _)| text(code)).collect::<Vec<_>>();
        assert_eq!(codes(None), ["YUYV", "MJPG", "GREY"]);
        assert_eq!(codes(Some(Mjpeg)), ["MJPG"]);
        assert!(codes(Some(Raw(PixelFormat::Nv12))).is_empty());
        assert_eq!(text(*b"Y16 "), "Y16");
        assert_eq!(text(*b"Y16\xa0"), "Y16-BE");
    }

    #[test]
    fn a_monochrome_sensor_gives_bytes_before_more_bits() {
        let formats =
            by_cost(&[*b"Y16 ", *b"Y12 ", *b"Y10 ", *b"GREY"], None).into_iter().map(|(_, format)| word(format));
        assert_eq!(formats.collect::<Vec<_>>(), ["grey", "grey10", "grey12", "grey16"]);
    }
}
