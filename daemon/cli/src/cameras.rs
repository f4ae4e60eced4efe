//! The V4L2 cameras of this machine, as `probe` shows them and `selftest` tests them, and the configuration that `probe`
//! proposes for each.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use visiond_capture::Buffers;
use visiond_capture::source::SourceError;
use visiond_capture::v4l2::controls::{self, Control, KeptControls};
use visiond_capture::v4l2::device::{Api, Node, NodeError};
use visiond_capture::v4l2::find_camera::{self, NotFound};
use visiond_capture::v4l2::formats::{self, FrameRates, SupportedFormat, SupportedSize};
use visiond_capture::v4l2::identity::{Identity, UsbIds};
use visiond_capture::v4l2::sample_alignment::{SampleAlignment, SampleBits};
use visiond_capture::v4l2::sensor_modes::{self, SENSOR_MODE};
use visiond_capture::v4l2::signal::{self, SignalWatch};
use visiond_capture::v4l2::stream::io_support::{IoSupport, io_support};
use visiond_capture::v4l2::{V4l2Source, format_negotiation, fourcc, io_method, open};
use visiond_config::types::{CameraFormat, CameraName, ControlValue, IoMode, V4l2Config};
use visiond_frames::clock::SystemClock;
use visiond_kernels::frame::{BayerDepth, PixelFormat};
use visiond_system::stop::Stop;

use crate::next_frame::next_frame;

/// Maximum number of pixels of the proposed size: 1080p.
const MODEST_PIXELS: u64 = 1920 * 1080;

/// Maximum proposed frames per second.
const MODEST_RATE: f64 = 30.0;

/// Minimum frames per second of a size that is preferred over a smaller one.
const LEAST_RATE: f64 = 15.0;

/// Maximum number of sizes to list on a format's line.
const SIZES_IN_A_LINE: usize = 6;

/// A V4L2 capture device, or a device that cannot be opened or queried.
#[derive(Debug, Default, Serialize)]
pub struct Camera {
    /// The device node, such as /dev/video0.
    pub device: PathBuf,
    /// The other names that the configuration's `device` accepts for it.
    pub names: CameraNames,
    /// The best name: it stays the same when devices appear in a different order.
    pub stable_name: Option<String>,
    /// The driver's name for the device.
    pub name: String,
    /// The driver's own name.
    pub driver: String,
    /// The bus address of its port.
    pub bus: String,
    /// The V4L2 capture API that it supports: single-planar or multi-planar.
    pub api: Option<&'static str>,
    pub formats: Vec<ListedFormat>,
    /// The inputs, such as those of a capture card; empty if the driver has none.
    pub inputs: Vec<CameraInput>,
    pub io: Option<Io>,
    pub controls: Vec<Control>,
    /// The mode that visiond would choose with the proposed configuration.
    pub chosen: Option<ChosenMode>,
    /// The position of its samples in 16-bit words, from a captured frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<Samples>,
    /// The proposed configuration as TOML.
    pub toml: Option<String>,
    /// Why it cannot be queried or used.
    pub error: Option<String>,
    /// The value of the control that chooses the sensor's mode, for the proposed size and rate.
    #[serde(skip)]
    sensor_mode: Option<ControlValue>,
}

/// An input of a capture device.
#[derive(Debug, Serialize)]
pub struct CameraInput {
    /// The number for the configuration's `input`.
    pub index: u32,
    pub name: String,
    /// Whether it is the current input.
    pub is_set: bool,
    /// The signal at the current input: its size and rate, or what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

/// The V4L2 I/O methods; `None` while another program streams, because the driver refuses the query then.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Io {
    /// Whether the driver can write into visiond's memory.
    pub userptr: Option<bool>,
    /// Whether visiond can map the driver's memory.
    pub mmap: Option<bool>,
}

/// The names of a camera.
#[derive(Debug, Default, Serialize)]
pub struct CameraNames {
    /// Links by vendor, product and serial number.
    pub by_id: Vec<PathBuf>,
    /// Links by port.
    pub by_path: Vec<PathBuf>,
    /// USB ID such as `046d:0825`, with the serial number if it has one.
    pub usb: Option<String>,
    /// The driver's name for it.
    pub card: Option<String>,
}

/// A pixel format with its sizes.
#[derive(Debug, Serialize)]
pub struct ListedFormat {
    /// The V4L2 FourCC.
    pub fourcc: String,
    /// The configuration's name for it; absent if visiond cannot read it.
    pub format: Option<&'static str>,
    /// The driver's description.
    pub description: String,
    /// Sizes, largest first.
    pub sizes: Vec<ListedSize>,
}

/// A size in pixels with its rates; for a range of sizes, the largest.
#[derive(Debug, Clone, Serialize)]
pub struct ListedSize {
    pub width: u32,
    pub height: u32,
    /// The smallest size and the steps, for a range of sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<SizeRange>,
    /// Frames per second, highest first; for a range, both ends.
    pub fps: Vec<f64>,
    /// Whether `fps` is a range, with every rate between its ends.
    pub fps_is_range: bool,
}

/// A range of sizes, below the largest.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SizeRange {
    pub min_width: u32,
    pub min_height: u32,
    pub step_width: u32,
    pub step_height: u32,
}

/// The mode that visiond would set.
#[derive(Debug, Serialize)]
pub struct ChosenMode {
    /// Pixel format by its name in the configuration.
    pub format: &'static str,
    pub width: u32,
    pub height: u32,
    /// Frames per second, if the driver reports them.
    pub fps: Option<f64>,
    /// The likely I/O method. Opening the camera tries whether the driver accepts it.
    pub io: Option<&'static str>,
}

/// The position of 10- or 12-bit Bayer or grey samples in their 16-bit words.
#[derive(Debug, Serialize)]
pub struct Samples {
    /// Bits of a sample.
    pub bits: u32,
    /// Their position in captured frames; `None` if the frames were too dark.
    pub found: Option<SampleAlignment>,
    /// The position that visiond expects from this driver.
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

/// Returns the camera named `name`, and captures frames to locate samples of 10 or 12 bits.
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
        let usb = identity.and_then(|identity| identity.usb.clone());
        let usb = usb.map(|UsbIds { vendor, product, serial }| CameraName::Usb { vendor, product, serial }.to_string());
        let names = CameraNames {
            by_id: links("/dev/v4l/by-id", node),
            by_path: links("/dev/v4l/by-path", node),
            usb,
            card: identity.map(|identity| identity.card.clone()),
        };
        // A link by serial number, otherwise one by port.
        let stable_name = names.by_id.first().or(names.by_path.first()).map(|link| link.display().to_string());
        let mut camera = Self { device: node.to_owned(), stable_name, names, ..Self::default() };
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
            Ok(formats) => camera.formats = formats.into_iter().map(listed_format).collect(),
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
        camera.sensor_mode = sensor_modes::resolved(&opened, &camera.config()).controls.remove(SENSOR_MODE);
        camera.toml = Some(camera.snippet());
        match camera.choose(&opened, modes, buffers) {
            Ok(chosen) => camera.chosen = Some(chosen),
            Err(error) => camera.error = camera.error.or(Some(error)),
        }
        camera
    }

    /// Returns the largest size up to 1080p that is fast enough in a format that visiond reads. `None` without a list of at
    /// least two sizes: then the camera's current size is best, as an HDMI input has the size of its signal.
    fn proposed(&self) -> Option<&ListedSize> {
        let readable = self.formats.iter().filter(|format| format.format.is_some());
        let listed = readable.flat_map(|format| &format.sizes).filter(|size| size.range.is_none());
        let listed: Vec<&ListedSize> = listed.collect();
        let first = listed.first().map(|size| (size.width, size.height))?;
        if listed.iter().all(|size| (size.width, size.height) == first) {
            return None;
        }
        let pixels = |size: &ListedSize| u64::from(size.width) * u64::from(size.height);
        let is_fast = |size: &ListedSize| size.fps.first().is_none_or(|fps| *fps >= LEAST_RATE);
        let rate = |size: &ListedSize| size.fps.first().map_or(0.0, |fps| fps.min(MODEST_RATE));
        let modest = listed.into_iter().filter(|size| pixels(size) <= MODEST_PIXELS);
        modest.max_by(|a, b| (is_fast(a), pixels(a)).cmp(&(is_fast(b), pixels(b))).then(rate(a).total_cmp(&rate(b))))
    }

    /// Returns a `[[camera]]` to paste into a configuration, which leaves the pixel format to visiond.
    fn snippet(&self) -> String {
        let node = self.device.display().to_string();
        let device = visiond_config::quote(self.stable_name.as_deref().unwrap_or(&node));
        let mut out = format!("[[camera]]\nname = \"camera\"\n\n[camera.source]\ntype = \"v4l2\"\ndevice = {device}\n");
        if let Some(size) = self.proposed() {
            out += &format!("width = {}\nheight = {}\n", size.width, size.height);
            out.extend(modest_rate(size).map(|fps| format!("fps = {fps}\n")));
        }
        if let Some(mode) = &self.sensor_mode {
            out += &format!("\n[camera.source.controls]\n{SENSOR_MODE} = {mode}\n");
        }
        out
    }

    /// Returns the proposed configuration.
    fn config(&self) -> V4l2Config {
        let proposed = self.proposed();
        V4l2Config {
            device: CameraName::Node(self.device.clone()),
            width: proposed.map(|size| size.width),
            height: proposed.map(|size| size.height),
            fps: proposed.and_then(modest_rate),
            controls: self.sensor_mode.iter().map(|mode| (SENSOR_MODE.to_owned(), mode.clone())).collect(),
            ..V4l2Config::default()
        }
    }

    /// Returns the proposed configuration without a rate, for a test capture: some drivers keep a rate that was set. NVIDIA's
    /// driver has the rate as a control, together with `override_enable`.
    pub(super) fn config_without_rate(&self) -> V4l2Config {
        V4l2Config { fps: None, ..self.config() }
    }

    /// Locates the samples in a captured frame; `None` unless the format is Bayer or grey with 10 or 12 bits.
    fn samples(&self, buffers: &Buffers) -> Option<Samples> {
        let format = self.chosen.as_ref().and_then(|chosen| PixelFormat::from_name(chosen.format));
        let depth = format.and_then(PixelFormat::sample_depth)?;
        if !matches!(depth, BayerDepth::Bits10 | BayerDepth::Bits12) {
            return None;
        }
        /// A sensor's first frames may be black.
        const FRAMES: usize = 10;
        let mut samples = Samples { bits: depth.bits(), found: None, read: SampleAlignment::Bottom, error: None };
        let mut look = || {
            let config = self.config_without_rate();
            let node = Node::open(&self.device).map_err(|error| SourceError::transient(unasked(&error)))?;
            // Dropped after the stream.
            let _kept = KeptControls::new(&node, &[]);
            let (name, clock) = (self.device.display().to_string(), Arc::new(SystemClock));
            let stop = Stop::new().map_err(|error| SourceError::transient(error.to_string()))?;
            let mut bits = SampleBits::default();
            let mut source = V4l2Source::open_node(&self.device, &config, &name, buffers, clock)?;
            let mut losses = 0;
            let mut lost = |_, _| {
                losses += 1;
                if losses < FRAMES { Ok(()) } else { Err(SourceError::transient("no frame is whole: check the cable")) }
            };
            for _ in 0..FRAMES {
                let Some(frame) = next_frame(&mut source, &stop, &mut lost)? else { break };
                if frame.layout.format().sample_depth() == Some(BayerDepth::Bits16) {
                    samples.read = SampleAlignment::Top;
                }
                frame.view().iter().for_each(|view| bits.add_frame(view));
                samples.found = bits.alignment(depth);
                if samples.found.is_some() {
                    break;
                }
            }
            Ok::<_, SourceError>(())
        };
        samples.error = look().err().map(|error| error.message.to_string());
        Some(samples)
    }

    /// Chooses the mode with the same code as `run`, and queries the format that the driver would send. The error is a sentence for
    /// [`Camera::error`].
    fn choose(&self, node: &Node, modes: IoSupport, buffers: &Buffers) -> Result<ChosenMode, String> {
        let config = sensor_modes::resolved(node, &self.config());
        let is_idle = modes.mmap.is_some() || modes.userptr.is_some();
        let choice = format_negotiation::expected(node, &config, is_idle).map_err(|error| error.message.to_string())?;
        let fps = config.fps.or_else(|| format_negotiation::rate(node));
        let io = io_method::likely(node, modes, choice.format == CameraFormat::Mjpeg, buffers).map(IoMode::name);
        Ok(ChosenMode { format: fourcc::word(choice.format), width: choice.width, height: choice.height, fps, io })
    }

    /// Returns the lines, each with its label. `whole` lists every size with all of its rates.
    pub fn lines(&self, whole: bool) -> Vec<(&'static str, String)> {
        let device = self.device.display();
        let mut lines = match (&self.error, self.api) {
            (Some(error), None) => vec![("camera", format!("{device} {error}"))],
            (error, api) => {
                let api = api.unwrap_or_default();
                let head = format!("{device}: {} (driver {}, {}, {api})", self.name, self.driver, self.bus);
                let wrong = error.iter().map(|error| ("", format!("cannot be used: {error}")));
                std::iter::once(("camera", head)).chain(wrong).collect()
            }
        };
        lines.extend(self.names().map(|name| ("", name)));
        for format in self.formats.iter().filter(|format| format.format.is_some()) {
            lines.extend(format_lines(format, whole).into_iter().map(|line| ("", line)));
        }
        let unread = self.formats.iter().filter(|format| format.format.is_none());
        let unread: Vec<_> = unread.map(|format| format.fourcc.as_str()).collect();
        if !unread.is_empty() {
            lines.push(("", format!("unsupported formats: {}", unread.join(", "))));
        }
        // Do not list the only input of a webcam.
        if self.inputs.len() > 1 || self.inputs.iter().any(|input| input.signal.is_some()) {
            lines.extend(self.inputs.iter().map(|input| ("", input_text(input))));
        }
        lines.extend(self.io.map(|io| ("", io_text(io))));
        if let Some(chosen) = &self.chosen {
            let fps = chosen.fps.map_or(String::new(), |fps| format!(" at {} fps", tidy(fps)));
            let io = chosen.io.map_or(String::new(), |io| format!(" with {io}"));
            lines.push(("", format!("would use {}x{} {}{fps}{io}", chosen.width, chosen.height, chosen.format)));
        }
        lines.extend(self.samples.iter().map(|samples| ("", samples_text(samples))));
        lines.extend(self.controls.iter().map(|control| ("control", line(control))));
        lines
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let stable = self.stable_name.as_ref().map(|name| format!("stable name {name}"));
        let links = self.names.by_id.iter().chain(&self.names.by_path).map(|link| link.display().to_string());
        let others: Vec<_> = links
            .filter(|link| Some(link) != self.stable_name.as_ref())
            .chain(self.names.usb.clone())
            .chain(self.names.card.as_ref().map(|card| format!("{card:?}")))
            .collect();
        let others = (!others.is_empty()).then(|| format!("other names {}", others.join(", ")));
        stable.into_iter().chain(others)
    }
}

fn inputs(node: &Node) -> Vec<CameraInput> {
    let set = signal::current(node).map(|input| input.index);
    let input = |signal::Input { index, name, .. }| {
        let is_set = set == Some(index);
        CameraInput { index, name, is_set, signal: is_set.then(|| signal(node)).flatten() }
    };
    signal::inputs(node).into_iter().map(input).collect()
}

/// Returns the signal at the current input; `None` if the driver reports none.
fn signal(node: &Node) -> Option<String> {
    let timings = match SignalWatch::new(node, None).ok()?.look(node).ok()? {
        Ok(timings) => timings?,
        Err(missing) => return Some(missing.to_string()),
    };
    let fps = timings.rate().map_or(String::new(), |fps| format!(" at {} fps", (fps * 100.0).round() / 100.0));
    let lines = if timings.is_interlaced { " interlaced" } else { "" };
    Some(format!("{}x{}{lines}{fps}", timings.width, timings.height))
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

/// Returns the size's highest rate up to [`MODEST_RATE`], otherwise its lowest rate.
fn modest_rate(size: &ListedSize) -> Option<f64> {
    if size.fps_is_range {
        return size.fps.first().map(|fps| fps.min(MODEST_RATE));
    }
    size.fps.iter().find(|&&fps| fps <= MODEST_RATE).or(size.fps.last()).copied()
}

fn listed_format(SupportedFormat { fourcc, description, sizes }: SupportedFormat) -> ListedFormat {
    let size = |SupportedSize { largest: (width, height), range, rates }: SupportedSize| {
        let range = range.map(|((min_width, min_height), (step_width, step_height))| SizeRange {
            min_width,
            min_height,
            step_width,
            step_height,
        });
        let (fps, fps_is_range) = match rates {
            FrameRates::List(rates) => (rates, false),
            FrameRates::Range { lowest, highest } => (vec![highest, lowest], true),
        };
        ListedSize { width, height, range, fps, fps_is_range }
    };
    let format = fourcc::format_of(fourcc).map(fourcc::word);
    ListedFormat { fourcc: fourcc::text(fourcc), format, description, sizes: sizes.into_iter().map(size).collect() }
}

fn input_text(CameraInput { index, name, is_set, signal }: &CameraInput) -> String {
    let set = if *is_set { ", selected" } else { "" };
    let signal = signal.as_ref().map_or(String::new(), |signal| format!(": {signal}"));
    format!("input {index} {name:?}{set}{signal}")
}

fn io_text(io: Io) -> String {
    let ways = [("userptr", io.userptr), ("mmap", io.mmap)];
    let of = |state| ways.iter().filter(|(_, has)| *has == state).map(|(name, _)| *name).collect::<Vec<_>>();
    match (of(Some(true)).as_slice(), of(None).as_slice()) {
        ([], []) => "I/O: none".to_owned(),
        ([], _) => "I/O: unknown while another program streams".to_owned(),
        (known, _) => format!("I/O: {}", known.join(", ")),
    }
}

fn samples_text(Samples { bits, found, read, error }: &Samples) -> String {
    let bits_of = |place: &SampleAlignment| match place {
        SampleAlignment::Bottom => "in the low bits of 16",
        SampleAlignment::Top => "in the high bits of 16",
    };
    let text = match (error, found) {
        (Some(error), _) => format!("cannot capture a frame: {error}"),
        (None, None) => "the frames were too dark to locate them; point the camera at light and try again".to_owned(),
        (None, Some(found)) if found == read => format!("{}, as visiond reads them", bits_of(found)),
        (None, Some(found)) => format!(
            "{}, but visiond reads them {}: colours will be wrong; report this output",
            bits_of(found),
            bits_of(read)
        ),
    };
    format!("samples of {bits} bits: {text}")
}

/// Returns the lines of a format; `whole` lists every size.
fn format_lines(ListedFormat { fourcc, format, description, sizes }: &ListedFormat, whole: bool) -> Vec<String> {
    let name = format.unwrap_or_default();
    if whole {
        let head = format!("{name} ({fourcc}, {description})");
        return std::iter::once(head).chain(sizes.iter().map(|size| format!("  {}", size_text(size, true)))).collect();
    }
    let shown: Vec<_> = sizes.iter().take(SIZES_IN_A_LINE).map(|size| size_text(size, false)).collect();
    let more = if sizes.len() > SIZES_IN_A_LINE { ", ..." } else { "" };
    vec![format!("{name} ({fourcc}): {}{more}", shown.join(", "))]
}

/// Returns the size with its highest rate, or with all rates.
fn size_text(ListedSize { width, height, range, fps, fps_is_range }: &ListedSize, all_rates: bool) -> String {
    let sizes = match range {
        Some(range) => {
            let steps = match (range.step_width, range.step_height) {
                (0 | 1, 0 | 1) => String::new(),
                (width, height) => format!(" in steps of {width}x{height}"),
            };
            format!("{}x{} to {width}x{height}{steps}", range.min_width, range.min_height)
        }
        None => format!("{width}x{height}"),
    };
    let rates = match fps.as_slice() {
        [] => String::new(),
        [highest, lowest] if *fps_is_range => format!(" at {} to {}", tidy(*lowest), tidy(*highest)),
        [highest, ..] if !all_rates => format!(" at {}", tidy(*highest)),
        all => format!(" at {}", all.iter().map(|fps| tidy(*fps)).collect::<Vec<_>>().join(", ")),
    };
    sizes + &rates
}

/// Formats a rate with at most two decimals.
fn tidy(fps: f64) -> String {
    ((fps * 100.0).round() / 100.0).to_string()
}

fn line(control: &Control) -> String {
    let mut parts = vec![control.takes()];
    parts.extend(control.show_default().map(|default| format!("default {default}")));
    parts.extend(control.value.as_ref().map(|value| format!("is {}", control.show(value))));
    let notes = [
        (control.read_only, "read-only"),
        (control.write_only, "write-only"),
        (control.inactive, "inactive in the current mode"),
    ];
    parts.extend(notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note.to_owned()));
    format!("{}: {}", control.name, parts.join("; "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn size(width: u32, height: u32, fps: &[f64]) -> ListedSize {
        ListedSize { width, height, range: None, fps: fps.to_vec(), fps_is_range: false }
    }

    fn camera(formats: &[(&'static str, &[ListedSize])]) -> Camera {
        let format = |&(name, sizes): &(&'static str, &[ListedSize])| ListedFormat {
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
    fn a_test_capture_uses_the_proposed_size_and_sets_no_rate() {
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
    fn the_snippet_has_the_mode_of_a_sensor_that_is_chosen_by_a_control() {
        let sizes = [size(3280, 2464, &[21.0]), size(1920, 1080, &[30.0])];
        let camera = Camera { sensor_mode: Some(ControlValue::Number(2)), ..camera(&[("rggb10", &sizes)]) };
        let end = "width = 1920\nheight = 1080\nfps = 30\n\n[camera.source.controls]\nsensor_mode = 2\n";
        assert!(camera.snippet().ends_with(end), "{}", camera.snippet());
        assert_eq!(camera.config().controls["sensor_mode"], ControlValue::Number(2));
    }

    #[test]
    fn a_size_that_is_slow_raw_and_fast_in_jpeg_is_proposed_fast() {
        let raw = [size(1920, 1080, &[5.0]), size(640, 480, &[30.0])];
        let jpeg = [size(1920, 1080, &[30.0, 15.0])];
        let proposed = camera(&[("yuyv", &raw), ("mjpeg", &jpeg)]).config();
        assert_eq!((proposed.width, proposed.height, proposed.fps), (Some(1920), Some(1080), Some(30.0)));
        assert_eq!(camera(&[("yuyv", &raw)]).config().width, Some(640));
        // A format that visiond cannot read does not count.
        assert_eq!(camera(&[("yuyv", &raw), ("h264", &jpeg)]).config().width, Some(640));
    }

    #[test]
    fn a_camera_without_a_list_keeps_its_own_size() {
        let range = Some(SizeRange { min_width: 16, min_height: 16, step_width: 2, step_height: 2 });
        let any = ListedSize { range, ..size(4096, 2160, &[]) };
        assert_eq!(camera(&[("nv12", &[any])]).config().width, None);
        assert_eq!(camera(&[("nv12", &[size(1920, 1080, &[])])]).config().width, None);
        assert!(!camera(&[]).snippet().contains("width"));
    }

    #[test]
    fn sizes_and_rates_are_lists_or_ranges() {
        let list =
            ListedSize { width: 640, height: 480, range: None, fps: vec![30.0, 29.97, 5.0], fps_is_range: false };
        assert_eq!(size_text(&list, false), "640x480 at 30");
        assert_eq!(size_text(&list, true), "640x480 at 30, 29.97, 5");
        let range = SizeRange { min_width: 16, min_height: 16, step_width: 2, step_height: 2 };
        let range = ListedSize { range: Some(range), fps: vec![60.0, 1.0], fps_is_range: true, ..list };
        assert_eq!(size_text(&range, false), "16x16 to 640x480 in steps of 2x2 at 1 to 60");
    }

    #[test]
    fn inputs_and_io_are_a_line_each() {
        let signal = Some("1920x1080 at 60 fps".to_owned());
        let input = CameraInput { index: 3, name: "HDMI 0".to_owned(), is_set: true, signal };
        assert_eq!(input_text(&input), "input 3 \"HDMI 0\", selected: 1920x1080 at 60 fps");
        let io = |userptr, mmap| io_text(Io { userptr, mmap });
        assert_eq!(io(Some(true), Some(true)), "I/O: userptr, mmap");
        assert_eq!(io(Some(false), Some(true)), "I/O: mmap");
        assert!(io(None, None).contains("another program streams"));
    }

    #[test]
    fn samples_that_visiond_reads_from_the_wrong_bits_are_reported() {
        let text = |found| samples_text(&Samples { bits: 10, found, read: SampleAlignment::Top, error: None });
        assert_eq!(
            text(Some(SampleAlignment::Top)),
            "samples of 10 bits: in the high bits of 16, as visiond reads them"
        );
        assert!(
            text(Some(SampleAlignment::Bottom))
                .contains("in the low bits of 16, but visiond reads them in the high bits of 16: colours")
        );
        assert!(text(None).contains("too dark"));
    }

    #[test]
    fn a_format_is_a_line_with_its_first_sizes_or_a_line_for_each_of_all() {
        let few = [size(1280, 720, &[30.0, 15.0]), size(640, 480, &[])];
        let lines = |name, sizes: &[ListedSize], whole| format_lines(&camera(&[(name, sizes)]).formats[0], whole);
        assert_eq!(lines("yuyv", &few, false), ["yuyv (yuyv): 1280x720 at 30, 640x480"]);
        assert_eq!(lines("h264", &few[1..], false), [" (h264): 640x480"]);
        assert_eq!(lines("yuyv", &few, true), ["yuyv (yuyv, yuyv)", "  1280x720 at 30, 15", "  640x480"]);
        let many: Vec<_> = (1..=7).map(|n| size(n, n, &[])).collect();
        assert_eq!(lines("yuyv", &many[..6], false), ["yuyv (yuyv): 1x1, 2x2, 3x3, 4x4, 5x5, 6x6"]);
        assert_eq!(lines("yuyv", &many, false), ["yuyv (yuyv): 1x1, 2x2, 3x3, 4x4, 5x5, 6x6, ..."]);
        assert_eq!(lines("yuyv", &many, true).len(), 8);
    }

    #[test]
    fn a_camera_that_cannot_be_opened_is_listed_with_its_names() {
        let names = CameraNames { usb: Some("046d:0825".to_owned()), ..CameraNames::default() };
        let error = Some("may not be opened".to_owned());
        let camera = Camera { device: "/dev/video2".into(), names, error, ..Camera::default() };
        let lines: Vec<_> = camera.lines(false).into_iter().map(|(head, text)| format!("{head} {text}")).collect();
        assert_eq!(lines, ["camera /dev/video2 may not be opened", " other names 046d:0825"]);
    }

    #[test]
    fn a_size_is_proposed_up_to_1080p_from_15_frames_a_second_on() {
        let proposed = |sizes: &[ListedSize]| {
            let config = camera(&[("yuyv", sizes)]).config();
            (config.width, config.fps)
        };
        let small = size(640, 480, &[30.0]);
        for (large, expected) in [
            (size(1920, 1080, &[15.0]), (Some(1920), Some(15.0))),
            (size(1920, 1080, &[14.9]), (Some(640), Some(30.0))),
            (size(1920, 1081, &[30.0]), (Some(640), Some(30.0))),
            (size(1920, 1080, &[]), (Some(1920), None)),
            (size(1280, 720, &[90.0, 60.0]), (Some(1280), Some(60.0))),
        ] {
            assert_eq!(proposed(&[large, small.clone()]), expected);
        }
        let range = ListedSize { fps_is_range: true, ..size(1280, 720, &[60.0, 5.0]) };
        assert_eq!(proposed(&[range, small]), (Some(1280), Some(30.0)));
        // The higher rate of one size in two formats.
        let slow = [size(1280, 720, &[20.0]), size(640, 480, &[30.0])];
        let config = camera(&[("yuyv", &slow), ("mjpeg", &[size(1280, 720, &[30.0])])]).config();
        assert_eq!((config.width, config.fps), (Some(1280), Some(30.0)));
    }

    /// A control from this value up to 9.
    fn gain(minimum: i64) -> Control {
        let mut control = Control::default();
        control.name = "gain".to_owned();
        (control.minimum, control.maximum, control.default) = (minimum, 9, 3);
        control
    }

    #[test]
    fn a_camera_is_described_line_by_line() {
        let names = CameraNames {
            by_id: vec!["/dev/v4l/by-id/usb-\"x\"".into()],
            by_path: vec!["/dev/v4l/by-path/pci".into()],
            usb: Some("046d:0825".to_owned()),
            card: Some("C270".to_owned()),
        };
        let described = Camera {
            names,
            name: "C270".to_owned(),
            driver: "uvcvideo".to_owned(),
            bus: "usb-1".to_owned(),
            api: Some("single-planar"),
            io: Some(Io { userptr: Some(true), mmap: Some(true) }),
            controls: vec![gain(0)],
            chosen: Some(ChosenMode { format: "yuyv", width: 640, height: 480, fps: Some(29.97), io: Some("mmap") }),
            samples: Some(Samples {
                bits: 10,
                found: None,
                read: SampleAlignment::Top,
                error: Some("busy".to_owned()),
            }),
            error: Some("no memory".to_owned()),
            ..camera(&[("yuyv", &[size(640, 480, &[30.0])]), ("h264", &[])])
        };
        let lines = |camera: &Camera| -> Vec<String> {
            camera.lines(false).into_iter().map(|(head, text)| format!("{head} {text}")).collect()
        };
        let expected = [
            "camera /dev/video0: C270 (driver uvcvideo, usb-1, single-planar)",
            " cannot be used: no memory",
            " stable name /dev/v4l/by-id/usb-\"x\"",
            " other names /dev/v4l/by-path/pci, 046d:0825, \"C270\"",
            " yuyv (yuyv): 640x480 at 30",
            " unsupported formats: h264",
            " I/O: userptr, mmap",
            " would use 640x480 yuyv at 29.97 fps with mmap",
            " samples of 10 bits: cannot capture a frame: busy",
            "control gain: 0 to 9; default 3",
        ];
        assert_eq!(lines(&described), expected);
        let input = |index, signal: Option<&str>| CameraInput {
            index,
            name: "in".to_owned(),
            is_set: false,
            signal: signal.map(str::to_owned),
        };
        let inputs = |inputs| {
            let listed = lines(&Camera { inputs, ..camera(&[]) });
            listed.iter().filter(|line| line.starts_with(" input")).count()
        };
        let only = [vec![input(0, None)], vec![input(0, Some("no signal"))], vec![input(0, None), input(1, None)]];
        assert_eq!(only.map(inputs), [0, 1, 2], "the only input of a webcam is no news");
    }

    #[test]
    fn links_are_those_that_lead_to_the_node() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("by-id")).unwrap();
        fs::write(at("video0"), "").unwrap();
        fs::write(at("video1"), "").unwrap();
        for (name, to) in [("b", "../video0"), ("a", "../video0"), ("c", "../video1"), ("d", "../gone")] {
            std::os::unix::fs::symlink(to, at("by-id").join(name)).unwrap();
        }
        let of = |node: &str| links(at("by-id").to_str().unwrap(), &at(node));
        assert_eq!(of("video0"), [at("by-id/a"), at("by-id/b")]);
        assert!(of("video9").is_empty());
    }

    #[test]
    fn a_device_that_cannot_be_opened_has_a_remedy_where_there_is_one() {
        let of = |kind: std::io::ErrorKind| unasked(&NodeError::Unopened(kind.into()));
        assert!(of(std::io::ErrorKind::PermissionDenied).ends_with("add this user to the `video` group"));
        assert!(of(std::io::ErrorKind::NotFound).starts_with("cannot be opened: "));
        let other = unasked(&NodeError::Unknown(std::io::ErrorKind::Unsupported.into()));
        assert!(other.starts_with("is not a V4L2 device (QUERYCAP: "), "{other}");
    }

    #[test]
    fn what_a_driver_lists_keeps_its_rates_and_ranges() {
        let sizes = vec![
            SupportedSize { largest: (640, 480), range: None, rates: FrameRates::List(vec![30.0, 15.0]) },
            SupportedSize {
                largest: (800, 600),
                range: Some(((16, 8), (4, 2))),
                rates: FrameRates::Range { lowest: 1.0, highest: 60.0 },
            },
        ];
        let listed = listed_format(SupportedFormat { fourcc: *b"YUYV", description: "YUYV 4:2:2".to_owned(), sizes });
        assert_eq!((listed.fourcc.as_str(), listed.format), ("YUYV", Some("yuyv")));
        let texts: Vec<_> = listed.sizes.iter().map(|size| size_text(size, true)).collect();
        assert_eq!(texts, ["640x480 at 30, 15", "16x8 to 800x600 in steps of 4x2 at 1 to 60"]);
        let step = |step_width, step_height| {
            let range = Some(SizeRange { min_width: 2, min_height: 2, step_width, step_height });
            size_text(&ListedSize { range, ..size(9, 9, &[]) }, false)
        };
        assert_eq!([step(1, 1), step(0, 0)], ["2x2 to 9x9"; 2]);
        assert_eq!([step(1, 2), step(2, 1)], ["2x2 to 9x9 in steps of 1x2", "2x2 to 9x9 in steps of 2x1"]);
    }

    #[test]
    fn a_control_has_its_range_default_value_and_state() {
        let mut control = gain(1);
        assert_eq!(line(&control), "gain: 1 to 9; default 3");
        control.value = Some(controls::Value::Number(4));
        (control.read_only, control.write_only, control.inactive) = (true, true, true);
        let expected = "gain: 1 to 9; default 3; is 4; read-only; write-only; inactive in the current mode";
        assert_eq!(line(&control), expected);
    }
}
