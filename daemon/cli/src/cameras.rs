//! The V4L2 cameras of this machine, as `probe` shows them and `selftest` tests them.

mod snippet;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use visiond_capture::Buffers;
use visiond_capture::source::{Next, Source, SourceError};
use visiond_capture::v4l2::controls::{self, Control};
use visiond_capture::v4l2::device::{Api, Node, NodeError};
use visiond_capture::v4l2::find_camera::{self, NotFound};
use visiond_capture::v4l2::formats::{self, FrameRates, SupportedFormat, SupportedSize};
use visiond_capture::v4l2::identity::Identity;
use visiond_capture::v4l2::sample_alignment::{SampleAlignment, SampleBits};
use visiond_capture::v4l2::signal::{self, SignalWatch};
use visiond_capture::v4l2::stream::io_support::{IoSupport, io_support};
use visiond_capture::v4l2::{V4l2Source, format_negotiation, fourcc, io_method, open};
use visiond_config::types::{CameraFormat as CameraPixels, CameraName, IoMode, V4l2Config};
use visiond_flow::clock::SystemClock;
use visiond_kernels::frame::{BayerDepth, PixelFormat};
use visiond_system::stop::Stop;

/// A V4L2 capture device, or a device that cannot be opened or queried.
#[derive(Debug, Default, Serialize)]
pub struct Camera {
    /// The device node, such as /dev/video0.
    pub device: PathBuf,
    /// The other names that the configuration's `device` accepts.
    pub names: Names,
    /// The best name, which stays the same when devices appear in another order.
    pub stable_name: Option<String>,
    /// The driver's name for the device.
    pub name: String,
    /// The driver's own name.
    pub driver: String,
    /// The bus address where it is plugged in.
    pub bus: String,
    /// The V4L2 capture API that it has: single-planar or multi-planar.
    pub api: Option<&'static str>,
    /// The pixel formats, with sizes and rates.
    pub formats: Vec<CameraFormat>,
    /// The inputs, such as those of a capture card; empty if the driver has none.
    pub inputs: Vec<Input>,
    /// The V4L2 I/O methods of the driver.
    pub io: Option<Io>,
    /// The controls.
    pub controls: Vec<Control>,
    /// The mode that visiond would choose with the proposed configuration.
    pub chosen: Option<Chosen>,
    /// Where the bits of its Bayer samples are, from a captured frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<Samples>,
    /// The proposed configuration as TOML.
    pub toml: Option<String>,
    /// Why it cannot be queried or used.
    pub error: Option<String>,
}

/// An input of a capture device.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// The number for the configuration's `input`.
    pub index: u32,
    /// The driver's name for it.
    pub name: String,
    /// Whether it is the current input.
    pub is_set: bool,
    /// The signal at the current input: its size and rate, or what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

/// The V4L2 I/O methods; `None` while another program streams, because the driver refuses the query then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Io {
    /// Whether the driver can write into visiond's memory.
    pub userptr: Option<bool>,
    /// Whether visiond can map the driver's memory.
    pub mmap: Option<bool>,
}

/// The names of a camera.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Names {
    /// Links by vendor, product and serial number.
    pub by_id: Vec<PathBuf>,
    /// Links by the place where it is plugged in.
    pub by_path: Vec<PathBuf>,
    /// USB ID such as `046d:0825`, with the serial number if it has one.
    pub usb: Option<String>,
    /// The driver's name for it.
    pub card: Option<String>,
}

/// A pixel format with its sizes.
#[derive(Debug, Serialize)]
pub struct CameraFormat {
    /// The V4L2 FourCC.
    pub fourcc: String,
    /// The configuration's name for it; absent if visiond cannot read it.
    pub format: Option<&'static str>,
    /// The driver's description.
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
    /// The smallest size and the steps, of a range of sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<SizeRange>,
    /// Frames per second, highest first; of a range, both ends.
    pub fps: Vec<f64>,
    /// Whether `fps` is a range, with every rate between its ends.
    pub fps_is_range: bool,
}

/// A range of sizes, below the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeRange {
    /// The smallest width.
    pub min_width: u32,
    /// The smallest height.
    pub min_height: u32,
    /// Step between widths.
    pub step_width: u32,
    /// Step between heights.
    pub step_height: u32,
}

/// The mode that visiond would set.
#[derive(Debug, PartialEq, Serialize)]
pub struct Chosen {
    /// Pixel format by its name in the configuration.
    pub format: &'static str,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Frames per second, if the driver reports them.
    pub fps: Option<f64>,
    /// The likely I/O method. Opening the camera tries whether the driver accepts it.
    pub io: Option<&'static str>,
}

/// Where Bayer samples of 10 or 12 bits are in their 16-bit words.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Samples {
    /// Bits of a sample.
    pub bits: u32,
    /// Where captured frames have them; `None` if the frames were too dark to tell.
    pub found: Option<SampleAlignment>,
    /// Where visiond expects them with this driver.
    pub read: SampleAlignment,
    /// Why no frame could be captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Returns every camera by node number, without devices that do not capture. `buffers` is the memory that frames would use.
pub fn all(buffers: &Buffers) -> Vec<Camera> {
    let mut nodes: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir("/dev").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.strip_prefix("video")?.parse().ok());
        nodes.extend(number.map(|number| (number, entry.path())));
    }
    nodes.sort();
    let cameras = nodes.into_iter().map(|(_, node)| {
        let identity = find_camera::find(&CameraName::Node(node.clone()), None).ok().and_then(|found| found.identity);
        Camera::ask(&node, identity.as_ref(), buffers)
    });
    cameras.filter(|camera| camera.api.is_some() || camera.error.is_some()).collect()
}

/// Returns the camera named `name`, and captures frames to locate Bayer samples.
pub fn one(name: &CameraName, buffers: &Buffers) -> Result<Camera, NotFound> {
    let found = find_camera::find(name, None)?;
    let mut camera = Camera::ask(&found.node, found.identity.as_ref(), buffers);
    if camera.error.is_none() && camera.api.is_none() {
        camera.error = open::node(&found.node).err().map(|error| error.message.to_string());
    }
    camera.samples = camera.samples(buffers);
    Ok(camera)
}

impl Camera {
    /// Queries the device; `api` and `error` stay empty if it is not a capture device.
    fn ask(node: &Path, identity: Option<&Identity>, buffers: &Buffers) -> Self {
        let names = Names::of(node, identity);
        let mut camera = Self { device: node.to_owned(), stable_name: names.stable(), names, ..Self::default() };
        let opened = match Node::open(node) {
            Ok(opened) => opened,
            Err(error) => {
                camera.error = Some(unasked(&error));
                return camera;
            }
        };
        let capabilities = opened.capabilities();
        let Some(api) = capabilities.api() else { return camera };
        (camera.name, camera.driver, camera.bus) =
            (capabilities.card.clone(), capabilities.driver.clone(), capabilities.bus.clone());
        match formats::list(&opened) {
            // A webcam has a second node for metadata, without formats.
            Ok(formats) if formats.is_empty() => return camera,
            Ok(formats) => camera.formats = formats.into_iter().map(CameraFormat::from).collect(),
            Err(error) => camera.error = Some(format!("cannot list its formats: {error}")),
        }
        camera.api = Some(match api {
            Api::Single => "single-planar",
            Api::Multi => "multi-planar",
        });
        camera.inputs = inputs(&opened);
        let modes = io_support(&opened);
        camera.io = Some(Io { userptr: modes.userptr, mmap: modes.mmap });
        camera.controls = controls::list(&opened).unwrap_or_default();
        camera.toml = Some(camera.snippet());
        match camera.choose(&opened, modes, buffers) {
            Ok(chosen) => camera.chosen = Some(chosen),
            Err(error) => camera.error = camera.error.or(Some(error)),
        }
        camera
    }

    /// Returns the proposed configuration.
    fn config(&self) -> V4l2Config {
        let proposed = self.proposed();
        V4l2Config {
            device: CameraName::Node(self.device.clone()),
            width: proposed.map(|mode| mode.width),
            height: proposed.map(|mode| mode.height),
            fps: proposed.and_then(|mode| mode.fps),
            ..V4l2Config::default()
        }
    }

    /// Returns the proposed configuration without a rate, for a test capture: some drivers keep a rate that was set. NVIDIA's
    /// has the rate as a control, and `override_enable` with it.
    pub(super) fn config_without_rate(&self) -> V4l2Config {
        V4l2Config { fps: None, ..self.config() }
    }

    /// Locates the samples in a captured frame; `None` unless the format is Bayer with 10 or 12 bits.
    fn samples(&self, buffers: &Buffers) -> Option<Samples> {
        let format = self.chosen.as_ref().and_then(|chosen| PixelFormat::from_name(chosen.format));
        let Some(PixelFormat::Bayer(_, depth @ (BayerDepth::Bits10 | BayerDepth::Bits12))) = format else {
            return None;
        };
        let mut samples = Samples { bits: depth.bits(), found: None, read: SampleAlignment::Bottom, error: None };
        samples.error = self.look_at_samples(depth, &mut samples, buffers).err().map(|error| error.message.to_string());
        Some(samples)
    }

    /// Locates the samples in the first frame that is not black.
    fn look_at_samples(&self, depth: BayerDepth, samples: &mut Samples, buffers: &Buffers) -> Result<(), SourceError> {
        /// A sensor's first frames may be black.
        const FRAMES: usize = 10;
        let config = self.config_without_rate();
        let (name, clock) = (self.device.display().to_string(), Arc::new(SystemClock));
        let stop = Stop::new().map_err(|error| SourceError::transient(error.to_string()))?;
        let mut bits = SampleBits::default();
        let mut source = V4l2Source::open_node(&self.device, &config, &name, buffers, clock)?;
        for _ in 0..FRAMES {
            match source.next(&stop)? {
                Next::Frame(frame) => {
                    if let PixelFormat::Bayer(_, BayerDepth::Bits16) = frame.layout.format() {
                        samples.read = SampleAlignment::Top;
                    }
                    frame.view().iter().for_each(|view| bits.add_frame(view));
                    samples.found = bits.alignment(depth);
                }
                Next::Lost { .. } => {}
                Next::Waiting { .. } | Next::End | Next::Stopped => break,
            }
            if samples.found.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Chooses the mode with the same code as `run`.
    fn choose(&self, node: &Node, modes: IoSupport, buffers: &Buffers) -> Result<Chosen, String> {
        let config = self.config();
        let choice = format_negotiation::choose(node, &config).map_err(|error| error.message.to_string())?;
        let fps = config.fps.or_else(|| format_negotiation::rate(node));
        let io = io_method::likely(modes, choice.format == CameraPixels::Mjpeg, buffers).map(IoMode::name);
        Ok(Chosen { format: fourcc::word(choice.format), width: choice.width, height: choice.height, fps, io })
    }
}

impl Names {
    fn of(node: &Path, identity: Option<&Identity>) -> Self {
        let usb = identity.and_then(|identity| identity.usb.as_ref()).map(|usb| {
            CameraName::Usb { vendor: usb.vendor, product: usb.product, serial: usb.serial.clone() }.to_string()
        });
        Self {
            by_id: links("/dev/v4l/by-id", node),
            by_path: links("/dev/v4l/by-path", node),
            usb,
            card: identity.map(|identity| identity.card.clone()),
        }
    }

    /// Returns a link by serial number, else one by port.
    fn stable(&self) -> Option<String> {
        self.by_id.first().or(self.by_path.first()).map(|link| link.display().to_string())
    }
}

fn inputs(node: &Node) -> Vec<Input> {
    let set = signal::current(node).map(|input| input.index);
    let found = signal::inputs(node).into_iter().map(|input| {
        let is_set = set == Some(input.index);
        Input { index: input.index, name: input.name, is_set, signal: is_set.then(|| signal(node)).flatten() }
    });
    found.collect()
}

/// Returns the signal at the current input; `None` if the driver reports none.
fn signal(node: &Node) -> Option<String> {
    match SignalWatch::new(node, None).ok()?.look(node).ok()? {
        Ok(timings) => timings.map(|timings| {
            let fps = timings.rate().map_or(String::new(), |fps| format!(" at {} fps", (fps * 100.0).round() / 100.0));
            let lines = if timings.is_interlaced { " interlaced" } else { "" };
            format!("{}x{}{lines}{fps}", timings.width, timings.height)
        }),
        Err(missing) => Some(missing.to_string()),
    }
}

/// Returns the links in `folder` that point to `node`.
fn links(folder: &str, node: &Path) -> Vec<PathBuf> {
    let Ok(node) = node.canonicalize() else { return Vec::new() };
    let links = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut leading: Vec<_> = links.filter(|link| link.canonicalize().is_ok_and(|to| to == node)).collect();
    leading.sort();
    leading
}

fn unasked(error: &NodeError) -> String {
    match error {
        NodeError::Unopened(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            "cannot be opened: permission denied; add this user to the `video` group".to_owned()
        }
        NodeError::Unopened(error) => format!("cannot be opened: {error}"),
        NodeError::Unknown(error) => format!("is not a V4L2 device (QUERYCAP: {error})"),
    }
}

impl From<SupportedFormat> for CameraFormat {
    fn from(offered: SupportedFormat) -> Self {
        Self {
            fourcc: fourcc::text(offered.fourcc),
            format: fourcc::format_of(offered.fourcc).map(fourcc::word),
            description: offered.description,
            sizes: offered.sizes.into_iter().map(Size::from).collect(),
        }
    }
}

impl From<SupportedSize> for Size {
    fn from(offered: SupportedSize) -> Self {
        let range = offered.range.map(|((min_width, min_height), (step_width, step_height))| SizeRange {
            min_width,
            min_height,
            step_width,
            step_height,
        });
        let (fps, fps_is_range) = match offered.rates {
            FrameRates::List(rates) => (rates, false),
            FrameRates::Range { lowest, highest } => (vec![highest, lowest], true),
        };
        Self { width: offered.largest.0, height: offered.largest.1, range, fps, fps_is_range }
    }
}
