//! Frames that ffmpeg writes to a pipe: their format, and ffmpeg's arguments for it.

use visiond_config::types::VideoPixels;
use visiond_kernels::color::{ColorDescription, ColorMatrix, ColorRange, YuvArithmetic};
use visiond_kernels::frame::PixelFormat;

use super::ffprobe::VideoInfo;

/// The configured pixels and colours.
#[derive(Debug, Clone, Copy)]
pub struct FfmpegOutput {
    pub pixels: VideoPixels,
    /// `None`: the video's.
    pub color_matrix: Option<ColorMatrix>,
    /// `None`: the video's.
    pub color_range: Option<ColorRange>,
}

impl FfmpegOutput {
    /// Returns the format that comes through the pipe, and its colours.
    pub fn format(&self, info: &VideoInfo) -> (PixelFormat, ColorDescription) {
        match self.planes(info) {
            Some((format, _, arithmetic)) => {
                let color = ColorDescription {
                    matrix: self.color_matrix.unwrap_or(info.color.matrix),
                    range: self.color_range.unwrap_or(info.color.range),
                    arithmetic,
                    levels: None,
                };
                (format, color)
            }
            None => (PixelFormat::Bgr, ColorDescription::default()),
        }
    }

    /// Returns ffmpeg's arguments behind its input.
    pub fn arguments(&self, info: &VideoInfo) -> Vec<String> {
        let passthrough = if info.has_fps_mode { "-fps_mode" } else { "-vsync" };
        let planes = self.planes(info);
        let pix_fmt = planes.map_or("bgr24", |(_, name, _)| name);
        let mut args = vec!["-vf".to_owned(), scale(self, info, planes.is_some())];
        args.extend([passthrough, "passthrough", "-f", "rawvideo", "-pix_fmt", pix_fmt, "pipe:1"].map(str::to_owned));
        args
    }

    /// Returns our format and ffmpeg's name of the video's own planes, and how they become RGB; `None` if ffmpeg must convert to BGR.
    fn planes(&self, info: &VideoInfo) -> Option<(PixelFormat, &'static str, YuvArithmetic)> {
        match self.pixels {
            VideoPixels::Native => {
                native(&info.pixel_format).map(|(format, name)| (format, name, YuvArithmetic::Nearest))
            }
            // The same bytes as ffmpeg's BGR, and half as many come through the pipe.
            VideoPixels::Bgr if is_converted_quickly(info) => {
                Some((PixelFormat::I420, "yuv420p", YuvArithmetic::Ffmpeg))
            }
            VideoPixels::Bgr => None,
        }
    }
}

/// Whether ffmpeg converts such video with [`YuvArithmetic::Ffmpeg`]: where the height is odd, it interpolates chroma.
fn is_converted_quickly(info: &VideoInfo) -> bool {
    matches!(info.pixel_format.as_str(), "yuv420p" | "yuvj420p")
        && info.height.is_multiple_of(2)
        // Their matrices are none of ours.
        && !matches!(info.color_space.as_str(), "fcc" | "smpte240m")
}

/// Returns our format and ffmpeg's name for it; `None` if ffmpeg must convert to BGR.
fn native(pixel_format: &str) -> Option<(PixelFormat, &'static str)> {
    Some(match pixel_format {
        "yuv420p" | "yuvj420p" => (PixelFormat::I420, "yuv420p"),
        "nv12" => (PixelFormat::Nv12, "nv12"),
        "nv21" => (PixelFormat::Nv21, "nv21"),
        // The same samples in another order.
        "yuyv422" | "yuv422p" | "yuvj422p" => (PixelFormat::Yuyv, "yuyv422"),
        "uyvy422" => (PixelFormat::Uyvy, "uyvy422"),
        "yvyu422" => (PixelFormat::Yvyu, "yvyu422"),
        "gray" => (PixelFormat::Grey, "gray"),
        "rgb24" => (PixelFormat::Rgb, "rgb24"),
        "rgba" | "rgb0" => (PixelFormat::Rgba, "rgba"),
        "bgra" | "bgr0" => (PixelFormat::Bgra, "bgra"),
        _ => return None,
    })
}

/// Returns the filter that scales every frame to the first one's size, because a stream may change its size. It also names the
/// colours where they are configured, or must stay as they are.
fn scale(config: &FfmpegOutput, info: &VideoInfo, are_planes: bool) -> String {
    let mut filter = format!("scale={}:{}", info.width, info.height);
    if are_planes {
        let range = range_name(info.color.range);
        filter.push_str(&format!(":in_range={range}:out_range={range}"));
    } else {
        filter.push_str(chroma_position(&info.chroma_location));
        if let Some(matrix) = config.color_matrix {
            let name = match matrix {
                ColorMatrix::Bt601 => "bt601",
                ColorMatrix::Bt709 => "bt709",
                ColorMatrix::Bt2020 => "bt2020",
            };
            filter.push_str(&format!(":in_color_matrix={name}"));
        }
        if let Some(range) = config.color_range {
            filter.push_str(&format!(":in_range={}", range_name(range)));
        }
    }
    filter
}

/// Returns options of the filter for the place of chroma samples, because old versions of it ignore the video's.
///
/// OpenCV's conversion looks at it, too. It matters where chroma is interpolated: more than 8 bits, or an odd height.
fn chroma_position(location: &str) -> &'static str {
    match location {
        "left" => ":in_h_chr_pos=0",
        "topleft" => ":in_h_chr_pos=0:in_v_chr_pos=0",
        "top" => ":in_h_chr_pos=128:in_v_chr_pos=0",
        // Centred, as the filter assumes by itself.
        _ => "",
    }
}

/// Returns ffmpeg's name of the range.
fn range_name(range: ColorRange) -> &'static str {
    match range {
        ColorRange::Limited => "tv",
        ColorRange::Full => "pc",
    }
}
