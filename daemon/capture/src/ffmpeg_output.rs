//! Frames that ffmpeg writes to a pipe: their format, and ffmpeg's arguments for it.

use visiond_config::types::VideoPixels;
use visiond_kernels::color::{ColorDescription, ColorMatrix, ColorRange, YuvArithmetic};
use visiond_kernels::frame::PixelFormat;

use super::ffprobe::VideoInfo;

/// The configured pixels and colours.
#[derive(Debug, Clone, Copy)]
pub struct FfmpegOutput {
    pub pixels: VideoPixels,
    /// `None`: as the video has them.
    pub color_matrix: Option<ColorMatrix>,
    /// `None`: as the video has it.
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

    /// Returns ffmpeg's arguments that follow its input.
    pub fn arguments(&self, info: &VideoInfo) -> Vec<String> {
        let passthrough = if info.has_fps_mode { "-fps_mode" } else { "-vsync" };
        let planes = self.planes(info);
        let pix_fmt = planes.map_or("bgr24", |(_, name, _)| name);
        let mut args = vec!["-vf".to_owned(), scale(self, info, planes.is_some())];
        args.extend([passthrough, "passthrough", "-f", "rawvideo", "-pix_fmt", pix_fmt, "pipe:1"].map(str::to_owned));
        args
    }

    /// Returns our format and ffmpeg's name for the video's own planes, and their conversion to RGB; `None` if ffmpeg must output
    /// BGR.
    fn planes(&self, info: &VideoInfo) -> Option<(PixelFormat, &'static str, YuvArithmetic)> {
        match self.pixels {
            VideoPixels::Native => {
                native(&info.pixel_format).map(|(format, name)| (format, name, YuvArithmetic::Nearest))
            }
            // The result equals ffmpeg's BGR byte for byte, and half as many bytes cross the pipe.
            VideoPixels::Bgr if is_converted_quickly(info) => {
                Some((PixelFormat::I420, "yuv420p", YuvArithmetic::Ffmpeg))
            }
            VideoPixels::Bgr => None,
        }
    }
}

/// Whether [`YuvArithmetic::Ffmpeg`] converts this video as ffmpeg does: at an odd height, ffmpeg interpolates chroma.
fn is_converted_quickly(info: &VideoInfo) -> bool {
    matches!(info.pixel_format.as_str(), "yuv420p" | "yuvj420p")
        && info.height.is_multiple_of(2)
        // We do not implement these matrices.
        && !matches!(info.color_space.as_str(), "fcc" | "smpte240m")
}

/// Returns our format and ffmpeg's name for it; `None` if ffmpeg must convert to BGR.
fn native(pixel_format: &str) -> Option<(PixelFormat, &'static str)> {
    Some(match pixel_format {
        "yuv420p" | "yuvj420p" => (PixelFormat::I420, "yuv420p"),
        "nv12" => (PixelFormat::Nv12, "nv12"),
        "nv21" => (PixelFormat::Nv21, "nv21"),
        // The same samples in a different order.
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

/// Returns the filter that scales every frame to the first one's size, because a stream may change its size. It also sets the
/// colours that are configured or that must not change.
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

/// Returns the filter's options for chroma siting, because old versions of the filter ignore the video's own.
///
/// OpenCV's conversion respects it as well. It matters where chroma is interpolated: above 8 bits, or at an odd height.
fn chroma_position(location: &str) -> &'static str {
    match location {
        "left" => ":in_h_chr_pos=0",
        "topleft" => ":in_h_chr_pos=0:in_v_chr_pos=0",
        "top" => ":in_h_chr_pos=128:in_v_chr_pos=0",
        // Centred is the filter's own default.
        _ => "",
    }
}

/// Returns ffmpeg's name for the range.
fn range_name(range: ColorRange) -> &'static str {
    match range {
        ColorRange::Limited => "tv",
        ColorRange::Full => "pc",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn video(pixel_format: &str) -> VideoInfo {
        VideoInfo {
            width: 640,
            height: 360,
            pixel_format: pixel_format.to_owned(),
            fps: Some(25.0),
            frames: None,
            hides_frames: false,
            duration: None,
            codec: "h264".to_owned(),
            container: "mpegts".to_owned(),
            held_back: 0,
            color: ColorDescription::default(),
            color_space: "bt709".to_owned(),
            chroma_location: "unspecified".to_owned(),
            demuxer: None,
            has_fps_mode: true,
        }
    }

    fn output(pixels: VideoPixels) -> FfmpegOutput {
        FfmpegOutput { pixels, color_matrix: None, color_range: None }
    }

    #[test]
    fn a_format_that_is_ours_comes_as_it_is_and_every_other_one_as_bgr() {
        // Names from `ffmpeg -pix_fmts`.
        for (video_format, wanted, pix_fmt) in [
            ("yuv420p", PixelFormat::I420, "yuv420p"),
            ("yuvj420p", PixelFormat::I420, "yuv420p"),
            ("nv12", PixelFormat::Nv12, "nv12"),
            ("nv21", PixelFormat::Nv21, "nv21"),
            ("yuyv422", PixelFormat::Yuyv, "yuyv422"),
            ("yuv422p", PixelFormat::Yuyv, "yuyv422"),
            ("yuvj422p", PixelFormat::Yuyv, "yuyv422"),
            ("uyvy422", PixelFormat::Uyvy, "uyvy422"),
            ("yvyu422", PixelFormat::Yvyu, "yvyu422"),
            ("gray", PixelFormat::Grey, "gray"),
            ("rgb24", PixelFormat::Rgb, "rgb24"),
            ("rgba", PixelFormat::Rgba, "rgba"),
            ("rgb0", PixelFormat::Rgba, "rgba"),
            ("bgra", PixelFormat::Bgra, "bgra"),
            ("bgr0", PixelFormat::Bgra, "bgra"),
            ("yuv420p10le", PixelFormat::Bgr, "bgr24"),
            ("", PixelFormat::Bgr, "bgr24"),
        ] {
            let (info, native) = (video(video_format), output(VideoPixels::Native));
            assert_eq!(native.format(&info).0, wanted, "{video_format}");
            assert_eq!(native.arguments(&info)[7], pix_fmt, "{video_format}");
        }
    }

    #[test]
    fn bgr_is_converted_here_where_that_is_the_same_and_by_ffmpeg_elsewhere() {
        let odd = VideoInfo { height: 361, ..video("yuv420p") };
        let film = VideoInfo { color_space: "fcc".to_owned(), ..video("yuv420p") };
        for (info, wanted) in [
            (video("yuv420p"), PixelFormat::I420),
            (video("yuvj420p"), PixelFormat::I420),
            (odd, PixelFormat::Bgr),
            (film, PixelFormat::Bgr),
            (video("nv12"), PixelFormat::Bgr),
        ] {
            assert_eq!(output(VideoPixels::Bgr).format(&info).0, wanted, "{info:?}");
        }
    }

    #[test]
    fn the_filter_names_the_size_and_the_colours_that_are_configured() {
        let arguments = |output: FfmpegOutput, info: &VideoInfo| output.arguments(info);
        let info = VideoInfo { chroma_location: "topleft".to_owned(), has_fps_mode: true, ..video("yuv420p10le") };
        let plain = output(VideoPixels::Native);
        assert_eq!(
            arguments(plain, &info),
            [
                "-vf",
                "scale=640:360:in_h_chr_pos=0:in_v_chr_pos=0",
                "-fps_mode",
                "passthrough",
                "-f",
                "rawvideo",
                "-pix_fmt",
                "bgr24",
                "pipe:1"
            ]
        );
        let old = VideoInfo { has_fps_mode: false, ..info.clone() };
        assert_eq!(arguments(plain, &old)[2..4], ["-vsync", "passthrough"]);
        for (matrix, range, words) in [
            (ColorMatrix::Bt601, ColorRange::Limited, ":in_color_matrix=bt601:in_range=tv"),
            (ColorMatrix::Bt709, ColorRange::Full, ":in_color_matrix=bt709:in_range=pc"),
            (ColorMatrix::Bt2020, ColorRange::Full, ":in_color_matrix=bt2020:in_range=pc"),
        ] {
            let configured = FfmpegOutput { color_matrix: Some(matrix), color_range: Some(range), ..plain };
            let filter = arguments(configured, &info).swap_remove(1);
            assert_eq!(filter, format!("scale=640:360:in_h_chr_pos=0:in_v_chr_pos=0{words}"));
        }
        // The planes keep the video's range, and their colours are converted here.
        let configured = FfmpegOutput { color_matrix: Some(ColorMatrix::Bt709), ..plain };
        let planes = video("yuv420p");
        let range = range_name(planes.color.range);
        assert_eq!(arguments(configured, &planes)[1], format!("scale=640:360:in_range={range}:out_range={range}"));
        assert_eq!(configured.format(&planes).1.matrix, ColorMatrix::Bt709);
    }

    #[test]
    fn chroma_lies_where_the_video_says() {
        for (location, words) in
            [("left", ":in_h_chr_pos=0"), ("top", ":in_h_chr_pos=128:in_v_chr_pos=0"), ("center", "")]
        {
            let info = VideoInfo { chroma_location: location.to_owned(), ..video("yuv420p10le") };
            let filter = output(VideoPixels::Native).arguments(&info).swap_remove(1);
            assert_eq!(filter, format!("scale=640:360{words}"));
        }
    }
}
