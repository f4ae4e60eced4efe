//! The cameras behind V4L2 on this machine, as `probe` shows them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use v4l::Device;
use v4l::capability::Flags;
use v4l::format::FourCC;
use v4l::frameinterval::FrameIntervalEnum;
use v4l::framesize::FrameSizeEnum;
use v4l::video::Capture;

use crate::capture::v4l2::fourcc;

/// A device that hands out pictures, or one that cannot be asked.
#[derive(Debug, Serialize)]
pub struct Camera {
    /// The node: /dev/video0.
    pub device: PathBuf,
    /// A link that stays the same when devices come up in another order.
    pub stable_name: Option<PathBuf>,
    /// What the driver calls it.
    pub name: String,
    /// The driver.
    pub driver: String,
    /// Where it is plugged in.
    pub bus: String,
    /// What it offers.
    pub formats: Vec<CameraFormat>,
    /// Why it cannot be asked.
    pub error: Option<String>,
}

/// A pixel format with its sizes.
#[derive(Debug, Serialize)]
pub struct CameraFormat {
    /// Four characters.
    pub fourcc: String,
    /// The configuration's name for it; absent where visiond cannot read it.
    pub format: Option<&'static str>,
    /// What the driver calls it.
    pub description: String,
    /// Sizes, largest first.
    pub sizes: Vec<Size>,
}

/// A size with its rates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Size {
    /// Width in pixels; the largest of a range.
    pub width: u32,
    /// Height in pixels; the largest of a range.
    pub height: u32,
    /// Frames per second, highest first; both ends of a range.
    pub fps: Vec<f64>,
}

/// Every camera, in the order of the nodes' numbers. Devices that hand out no pictures are left out.
pub fn all() -> Vec<Camera> {
    let mut nodes: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir("/dev").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.strip_prefix("video")?.parse().ok());
        nodes.extend(number.map(|number| (number, entry.path())));
    }
    nodes.sort();
    nodes.into_iter().filter_map(|(_, node)| ask(&node)).collect()
}

/// What the device says; `None` where it says that it is no camera.
fn ask(node: &Path) -> Option<Camera> {
    let mut camera = Camera {
        device: node.to_owned(),
        stable_name: stable_name(node),
        name: String::new(),
        driver: String::new(),
        bus: String::new(),
        formats: Vec::new(),
        error: None,
    };
    let asked = Device::with_path(node).and_then(|device| device.query_caps().map(|caps| (device, caps)));
    let (device, caps) = match asked {
        Ok(asked) => asked,
        Err(error) => {
            camera.error = Some(match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "may not be opened by this user: add the user to the group `video`".to_owned()
                }
                _ => format!("cannot be opened: {error}"),
            });
            return Some(camera);
        }
    };
    if !caps.capabilities.intersects(Flags::VIDEO_CAPTURE | Flags::VIDEO_CAPTURE_MPLANE) {
        return None;
    }
    (camera.name, camera.driver, camera.bus) = (caps.card, caps.driver, caps.bus);
    match device.enum_formats() {
        Ok(formats) => {
            for format in formats {
                camera.formats.push(CameraFormat {
                    fourcc: format.fourcc.to_string(),
                    format: fourcc::format_of(format.fourcc.repr).map(fourcc::word),
                    description: format.description,
                    sizes: sizes(&device, format.fourcc),
                });
            }
        }
        Err(error) => camera.error = Some(format!("does not tell its formats: {error}")),
    }
    // A webcam has a second node for metadata, without formats.
    (camera.error.is_some() || !camera.formats.is_empty()).then_some(camera)
}

fn sizes(device: &Device, fourcc: FourCC) -> Vec<Size> {
    let mut sizes: Vec<Size> = Vec::new();
    for size in device.enum_framesizes(fourcc).unwrap_or_default() {
        let (width, height) = match size.size {
            FrameSizeEnum::Discrete(size) => (size.width, size.height),
            FrameSizeEnum::Stepwise(steps) => (steps.max_width, steps.max_height),
        };
        let mut fps = Vec::new();
        for interval in device.enum_frameintervals(fourcc, width, height).unwrap_or_default() {
            match interval.interval {
                FrameIntervalEnum::Discrete(interval) => fps.extend(rate(interval.numerator, interval.denominator)),
                FrameIntervalEnum::Stepwise(steps) => {
                    fps.extend(rate(steps.min.numerator, steps.min.denominator));
                    fps.extend(rate(steps.max.numerator, steps.max.denominator));
                }
            }
        }
        fps.sort_by(|a: &f64, b| b.total_cmp(a));
        fps.dedup();
        sizes.push(Size { width, height, fps });
    }
    sizes.sort_by_key(|size| std::cmp::Reverse((u64::from(size.width) * u64::from(size.height), size.width)));
    sizes.dedup();
    sizes
}

/// Frames per second of an interval, to a hundredth; none of a zero interval.
fn rate(numerator: u32, denominator: u32) -> Option<f64> {
    (numerator > 0).then(|| (f64::from(denominator) / f64::from(numerator) * 100.0).round() / 100.0)
}

/// The link in /dev/v4l/by-id, else in by-path, that leads to `node`.
fn stable_name(node: &Path) -> Option<PathBuf> {
    let node = node.canonicalize().ok()?;
    ["/dev/v4l/by-id", "/dev/v4l/by-path"].into_iter().find_map(|folder| {
        let links = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        let mut leading: Vec<_> = links.filter(|link| link.canonicalize().is_ok_and(|to| to == node)).collect();
        leading.sort();
        leading.into_iter().next()
    })
}

/// Pixels a second above which a size is too much to begin with: 1080p at 30.
const MODEST_PIXELS: u64 = 1920 * 1080;

impl Camera {
    /// The `[[camera]]` to paste into a configuration. It leaves the format to visiond.
    pub fn snippet(&self) -> String {
        let device = self.stable_name.as_ref().unwrap_or(&self.device);
        let device = crate::config::quote(&device.to_string_lossy());
        let mut out = format!("[[camera]]\nname = \"camera\"\n\n[camera.source]\ntype = \"v4l2\"\ndevice = {device}\n");
        let readable = self.formats.iter().filter(|format| format.format.is_some());
        let modest = |size: &&Size| u64::from(size.width) * u64::from(size.height) <= MODEST_PIXELS;
        let sizes = readable.flat_map(|format| format.sizes.iter()).filter(modest);
        if let Some(size) = sizes.max_by_key(|size| u64::from(size.width) * u64::from(size.height)) {
            out += &format!("width = {}\nheight = {}\n", size.width, size.height);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_snippet_is_a_configuration() {
        let size = |width, height| Size { width, height, fps: vec![30.0] };
        let camera = Camera {
            device: "/dev/video0".into(),
            stable_name: Some("/dev/v4l/by-id/usb-\"x\"".into()),
            name: "Webcam".into(),
            driver: "uvcvideo".into(),
            bus: "usb-1".into(),
            formats: vec![CameraFormat {
                fourcc: "MJPG".into(),
                format: Some("mjpeg"),
                description: "Motion-JPEG".into(),
                sizes: vec![size(3840, 2160), size(1280, 720), size(640, 480)],
            }],
            error: None,
        };
        let text = format!("[[model]]\nname = \"n\"\npath = \"n.onnx\"\n\n{}", camera.snippet());
        let config = crate::config::types::Config::parse(&text, Path::new("visiond.toml")).unwrap();
        let crate::config::types::SourceConfig::V4l2(source) = &config.cameras[0].source else { panic!("{text}") };
        assert_eq!((source.width, source.height), (Some(1280), Some(720)));
        assert_eq!(rate(1001, 30_000), Some(29.97));
        assert_eq!(rate(0, 1), None);
    }
}
