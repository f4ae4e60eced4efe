//! The configuration that `probe` proposes for a camera.

use super::{Camera, Size};

/// Maximum number of pixels of the proposed size: 1080p.
const MODEST_PIXELS: u64 = 1920 * 1080;

/// Maximum proposed frames per second.
const MODEST_RATE: f64 = 30.0;

/// Minimum frames per second of a size that is preferred over a smaller one.
const LEAST_RATE: f64 = 15.0;

/// A proposed size and rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Frames per second, if the driver reports them.
    pub fps: Option<f64>,
}

impl Camera {
    /// Returns the largest size up to 1080p that is fast enough in a format that visiond reads. `None` without a list of at
    /// least two sizes: then the camera's current size is best, as an HDMI input has the size of its signal.
    pub fn proposed(&self) -> Option<Mode> {
        let readable = self.formats.iter().filter(|format| format.format.is_some());
        let sizes = readable.flat_map(|format| format.sizes.iter());
        let listed: Vec<&Size> = sizes.filter(|size| size.range.is_none()).collect();
        let first = listed.first().map(|size| (size.width, size.height))?;
        if listed.iter().all(|size| (size.width, size.height) == first) {
            return None;
        }
        let pixels = |size: &Size| u64::from(size.width) * u64::from(size.height);
        let highest = |size: &Size| size.fps.first().copied();
        let is_fast = |size: &Size| highest(size).is_none_or(|fps| fps >= LEAST_RATE);
        let modest = listed.iter().copied().filter(|size| pixels(size) <= MODEST_PIXELS);
        let rate = |size: &Size| highest(size).unwrap_or(0.0).min(MODEST_RATE);
        let best = modest
            .max_by(|a, b| (is_fast(a), pixels(a)).cmp(&(is_fast(b), pixels(b))).then(rate(a).total_cmp(&rate(b))))?;
        Some(Mode { width: best.width, height: best.height, fps: modest_rate(best) })
    }

    /// Returns a `[[camera]]` to paste into a configuration, which leaves the pixel format to visiond.
    pub fn snippet(&self) -> String {
        let node = self.device.display().to_string();
        let device = visiond_config::quote(self.stable_name.as_deref().unwrap_or(&node));
        let mut out = format!("[[camera]]\nname = \"camera\"\n\n[camera.source]\ntype = \"v4l2\"\ndevice = {device}\n");
        if let Some(Mode { width, height, fps }) = self.proposed() {
            out += &format!("width = {width}\nheight = {height}\n");
            if let Some(fps) = fps {
                out += &format!("fps = {fps}\n");
            }
        }
        out
    }
}

/// Returns the highest rate of the size up to [`MODEST_RATE`], else its lowest.
fn modest_rate(size: &Size) -> Option<f64> {
    if size.fps_is_range {
        return size.fps.first().map(|fps| fps.min(MODEST_RATE));
    }
    size.fps.iter().find(|&&fps| fps <= MODEST_RATE).or(size.fps.last()).copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::super::{CameraFormat, SizeRange};
    use super::*;

    fn size(width: u32, height: u32, fps: &[f64]) -> Size {
        Size { width, height, range: None, fps: fps.to_vec(), fps_is_range: false }
    }

    fn camera(formats: &[(&'static str, &[Size])]) -> Camera {
        let format = |&(name, sizes): &(&'static str, &[Size])| CameraFormat {
            fourcc: name.to_owned(),
            format: (name != "h264").then_some(name),
            description: name.to_owned(),
            sizes: sizes.to_vec(),
        };
        let stable_name = Some("/dev/v4l/by-id/usb-\"x\"".to_owned());
        Camera {
            device: "/dev/video0".into(),
            stable_name,
            formats: formats.iter().map(format).collect(),
            ..Camera::default()
        }
    }

    #[test]
    fn a_look_at_a_camera_asks_for_the_proposed_size_and_sets_no_rate() {
        let camera = camera(&[("yuyv", &[size(1280, 720, &[30.0]), size(640, 480, &[60.0])])]);
        let (proposed, look) = (camera.config(), camera.config_without_rate());
        assert!(proposed.fps.is_some() && proposed.width.is_some());
        assert_eq!((look.width, look.height, look.fps), (proposed.width, proposed.height, None));
    }

    #[test]
    fn the_snippet_is_a_configuration() {
        let sizes = [size(3840, 2160, &[30.0]), size(1280, 720, &[60.0, 29.97]), size(640, 480, &[30.0])];
        let camera = camera(&[("mjpeg", &sizes)]);
        let text = format!("[[model]]\nname = \"n\"\npath = \"n.onnx\"\n\n{}", camera.snippet());
        let config = visiond_config::types::Config::parse(&text, Path::new("visiond.toml")).unwrap();
        let visiond_config::types::SourceConfig::V4l2(source) = &config.cameras[0].source else { panic!("{text}") };
        assert_eq!((source.width, source.height, source.fps), (Some(1280), Some(720), Some(29.97)));
    }

    #[test]
    fn a_size_that_is_slow_raw_and_fast_in_jpeg_is_proposed_fast() {
        let raw = [size(1920, 1080, &[5.0]), size(640, 480, &[30.0])];
        let jpeg = [size(1920, 1080, &[30.0, 15.0])];
        let proposed = camera(&[("yuyv", &raw), ("mjpeg", &jpeg)]).proposed().unwrap();
        assert_eq!(proposed, Mode { width: 1920, height: 1080, fps: Some(30.0) });
        assert_eq!(camera(&[("yuyv", &raw)]).proposed().unwrap().width, 640);
        // What is not read does not count.
        let proposed = camera(&[("yuyv", &raw), ("h264", &jpeg)]).proposed().unwrap();
        assert_eq!(proposed.width, 640);
    }

    #[test]
    fn a_camera_without_a_list_keeps_its_own_size() {
        let range = Some(SizeRange { min_width: 16, min_height: 16, step_width: 2, step_height: 2 });
        let any = Size { range, ..size(4096, 2160, &[]) };
        assert_eq!(camera(&[("nv12", &[any])]).proposed(), None);
        assert_eq!(camera(&[("nv12", &[size(1920, 1080, &[])])]).proposed(), None);
        assert!(!camera(&[]).snippet().contains("width"));
    }
}
