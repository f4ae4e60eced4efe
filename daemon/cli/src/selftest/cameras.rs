//! V4L2 cameras: what each driver reports, idle and streaming, before visiond converts it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use v4l::v4l_sys as sys;
use visiond_annotate::rgb_converter::RgbConverter;
use visiond_capture::Buffers;
use visiond_capture::source::SourceError;
use visiond_capture::v4l2::V4l2Source;
use visiond_capture::v4l2::arrivals::{Arrival, Arrivals};
use visiond_capture::v4l2::controls::{self, Control, ControlKind, KeptControls, MenuItem, Value};
use visiond_capture::v4l2::device::{Node, NodeError};
use visiond_capture::v4l2::fourcc;
use visiond_capture::v4l2::sample_alignment::{SampleAlignment, SampleBits};
use visiond_capture::v4l2::signal::{self, Input};
use visiond_capture::v4l2::stream::IoRefusal;
use visiond_capture::v4l2::stream::io_support::try_io_methods;
use visiond_config::types::{CameraFormat, CameraName, ControlValue};
use visiond_frames::clock::SystemClock;
use visiond_kernels::frame::BayerDepth;
use visiond_system::stop::Stop;

use super::checks::{AreaTest, Failed, NO_TIME};
use super::color_bar::{self, Colors};
use crate::cameras::{self, Camera};
use crate::next_frame::next_frame;

/// Number of frames to take from a camera.
const FRAMES: usize = 200;
/// Time limit for the frames of a slow camera.
const FRAMES_TIME: Duration = Duration::from_secs(20);
/// How many frame numbers may be missing among them.
const MISSING_ALLOWED: u64 = 2;

/// The control that makes a sensor send its own test pattern (V4L2_CID_TEST_PATTERN).
const TEST_PATTERN: &str = "test_pattern";
/// Which frame to examine, and how long it may take.
const PATTERN_FRAME: usize = 10;
const COLOR_BAR_TIME: Duration = Duration::from_secs(10);

/// Tests the cameras with these names, or all cameras.
pub fn run(names: &[CameraName], test: &mut AreaTest) {
    let buffers = Buffers::default();
    if names.is_empty() {
        let found = cameras::all(&buffers);
        if found.is_empty() {
            test.skip("cameras", "there is no V4L2 camera (/dev/video*)");
        }
        for camera in found {
            test_camera(&camera.device.display().to_string(), &camera, &buffers, test);
        }
    }
    for name in names {
        if test.time_left().is_none() {
            test.skip(format!("{name}: opens"), NO_TIME);
            continue;
        }
        match cameras::one(name, &buffers) {
            Ok(camera) => test_camera(&name.to_string(), &camera, &buffers, test),
            Err(error) => test.fail(format!("{name}: opens"), "a camera", error),
        }
    }
}

fn test_camera(label: &str, camera: &Camera, buffers: &Buffers, test: &mut AreaTest) {
    test.say(label);
    let (opens, streams) = (format!("{label}: opens"), format!("{label}: streams"));
    let Some(left) = test.time_left() else { return test.skip(opens, NO_TIME) };
    if let Some(error) = &camera.error {
        return test.fail(opens, "a camera", error);
    }
    let api = camera.api.unwrap_or("no frames");
    test.verdict(opens, "a camera", format!("{} ({}, {}), {api}", camera.name, camera.driver, camera.bus), true);
    if camera.io.is_some_and(|io| io.mmap.is_none() && io.userptr.is_none()) {
        return test.skip(streams, "another program streams from it: stop that, such as by `systemctl stop visiond`");
    }
    let node = Node::open(&camera.device).and_then(|node| {
        idle(label, &Arc::new(node), test);
        // A new descriptor, because the driver may have tied its buffers to the first.
        Node::open(&camera.device)
    });
    let node = match node {
        Ok(node) => node,
        Err(NodeError::Unopened(error) | NodeError::Unknown(error)) => {
            return test.fail(format!("{label}: opens again"), "as before", error);
        }
    };
    // Dropped after the streams.
    let _kept = KeptControls::new(&node, &[TEST_PATTERN]);
    match Arrivals::open(&camera.device, &camera.config_without_rate(), buffers) {
        Ok(Ok(arrivals)) => {
            test.verdict(streams, "a stream", arrivals.description(), true);
            if let Err(error) = stream(label, arrivals, test, FRAMES_TIME.min(left)) {
                test.fail(format!("{label}: frames"), format!("{FRAMES} frames"), error);
            }
        }
        Ok(Err(missing)) => return test.skip(streams, missing),
        Err(error) => return test.fail(streams, "a stream", error.message),
    }
    if let Some(item) = color_bar_item(&camera.controls) {
        let check = format!("{label}: colour bar");
        let Some(left) = test.time_left() else { return test.skip(check, NO_TIME) };
        match color_bar(camera, item, buffers, left.min(COLOR_BAR_TIME)) {
            Ok(Colors::Right) => test.verdict(check, color_bar::WANTED, color_bar::WANTED, true),
            Ok(Colors::Wrong(words)) => test.fail(check, color_bar::WANTED, words),
            Ok(Colors::Unknown(seen)) => test.info(check, format!("not the usual bars ({}): {seen}", item.text)),
            Err(error) => test.fail(check, color_bar::WANTED, error),
        }
    }
}

/// Returns the menu item of the test pattern that has colour bars.
fn color_bar_item(controls: &[Control]) -> Option<&MenuItem> {
    let pattern = controls.iter().find(|control| control.name == TEST_PATTERN && control.kind == ControlKind::Menu)?;
    pattern.items.iter().find(|item| {
        let text = item.text.to_lowercase();
        let is_colored = text.contains("color") || text.contains("colour");
        is_colored
            && text.contains("bar")
            && !["grey", "gray", "fade", "horizontal"].iter().any(|word| text.contains(word))
    })
}

/// Captures a frame of the test pattern, and checks its colours as `run` would convert them.
fn color_bar(camera: &Camera, item: &MenuItem, buffers: &Buffers, time: Duration) -> Result<Colors, Failed> {
    let mut config = camera.config_without_rate();
    config.controls.insert(TEST_PATTERN.to_owned(), ControlValue::Number(item.index));
    let stop = Stop::new().map_err(|error| format!("cannot make an eventfd: {error}"))?;
    let (name, clock) = (camera.device.display().to_string(), Arc::new(SystemClock));
    let mut source = V4l2Source::open_node(&camera.device, &config, &name, buffers, clock)?;
    let (began, mut number) = (Instant::now(), 0);
    let lost = |_, _| match began.elapsed() < time {
        true => Ok(()),
        false => Err(SourceError::transient("no frame is whole")),
    };
    loop {
        let frame = next_frame(&mut source, &stop, lost)?.ok_or("the camera ended its stream")?;
        // A sensor may need some frames before it shows its pattern.
        if number >= PATTERN_FRAME || began.elapsed() >= time {
            return Ok(Colors::of(&RgbConverter::default().make(&frame.view()?)?));
        }
        number += 1;
    }
}

/// Shows what the driver reports while nothing streams.
fn idle(label: &str, node: &Arc<Node>, test: &mut AreaTest) {
    test.info(format!("{label}: input idle"), input(signal::current(node)));
    match controls::list(node) {
        Ok(controls) => {
            let texts = controls.iter().map(|control| {
                let value = control.value.as_ref().map(|value| shown(value, |value| control.show(value)));
                let note = if control.inactive { " (inactive)" } else { "" };
                format!("{} = {}{note}", control.name, value.as_deref().unwrap_or("?"))
            });
            let seen = if controls.is_empty() { "none".to_owned() } else { texts.collect::<Vec<_>>().join(", ") };
            test.info(format!("{label}: controls"), seen);
            test.figures([("controls", controls.len() as f64)]);
        }
        Err(error) => test.fail(format!("{label}: controls"), "a list", error),
    }
    let tried = try_io_methods(node);
    let word = |result: &Result<(), IoRefusal>| result.as_ref().map_or_else(ToString::to_string, |()| "yes".to_owned());
    let expbuf = tried.expbuf.as_ref().map_or("no buffer to export".to_owned(), word);
    let seen = format!("mmap: {}, userptr: {}, expbuf: {expbuf}", word(&tried.mmap), word(&tried.userptr));
    test.verdict(format!("{label}: I/O"), "mmap or userptr", seen, tried.mmap.is_ok() || tried.userptr.is_ok());
}

/// Formats a control's value; for a text only its length: NVIDIA's sensor drivers have the texts `Fuse ID`, `EEPROM Data` and
/// `OTP Data` (tegracam_ctrls.c), which identify the camera module.
fn shown(value: &Value, show: impl FnOnce(&Value) -> String) -> String {
    match value {
        Value::Text(text) => format!("<text of {} bytes>", text.len()),
        Value::Number(_) => show(value),
    }
}

fn input(input: Option<Input>) -> String {
    const NAMES: [(u32, &str); 7] = [
        (sys::V4L2_IN_ST_NO_POWER, "no power"),
        (sys::V4L2_IN_ST_NO_SIGNAL, "no signal"),
        (sys::V4L2_IN_ST_NO_COLOR, "no colour"),
        (sys::V4L2_IN_ST_NO_H_LOCK, "no horizontal lock"),
        (sys::V4L2_IN_ST_NO_V_LOCK, "no vertical lock"),
        (sys::V4L2_IN_ST_NO_SYNC, "no sync"),
        (sys::V4L2_IN_ST_NO_CARRIER, "no carrier"),
    ];
    let Some(Input { index, name, status, .. }) = input else { return "the driver reports no input".to_owned() };
    let named: Vec<_> = NAMES.iter().filter(|(bit, _)| status & bit != 0).map(|(_, name)| *name).collect();
    let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    format!("{index} {name}, status {status:#x}{named}")
}

/// Receives [`FRAMES`] frames, or as many as arrive within `time`, and adds the rows about them.
fn stream(label: &str, mut arrivals: Arrivals, test: &mut AreaTest, time: Duration) -> Result<(), Failed> {
    let stop = Stop::new().map_err(|error| format!("cannot make an eventfd: {error}"))?;
    let depth = arrivals.format().ok().and_then(|pix| depth_of(fourcc::format_of(pix.fourcc)?));
    let read = arrivals.samples_read();
    let mut bits = SampleBits::default();
    let mut frames = Vec::with_capacity(FRAMES);
    let began = Instant::now();
    for number in 1..=FRAMES {
        if number > 2 && began.elapsed() >= time {
            break;
        }
        let look = |bytes: &[u8]| {
            // A tenth of the frames is enough, because the camera waits for a buffer meanwhile.
            if depth.is_some() && number % 10 == 0 {
                bits.add(bytes);
            }
        };
        frames.push(arrivals.next(&stop, look).map_err(|error| format!("after {} frames: {error}", number - 1))?);
        test.say(&format!("{label}: {number} of {FRAMES} frames"));
    }
    // Query through a second descriptor, as another program would.
    let streaming = Node::open(arrivals.node().path()).ok().and_then(|node| signal::current(&node));
    test.info(format!("{label}: input streaming"), input(streaming));
    drop(arrivals);
    let (ms, missing, damaged) = intervals(&frames);
    let (count, Spread { least, median, most }) = (frames.len(), ms);
    let wanted = format!("at most {MISSING_ALLOWED} frames missing, none damaged");
    let seen = format!(
        "{count} frames, {least:.2} to {most:.2} ms apart, median {median:.2} ms, {missing} missing, {damaged} damaged"
    );
    test.verdict(format!("{label}: frames"), wanted, seen, missing <= MISSING_ALLOWED && damaged == 0);
    test.figures([("frames", count as f64), ("missing", missing as f64), ("damaged", damaged as f64)]);
    test.figures(ms.figures(""));
    let stamps = Stamps::of(&frames);
    let wanted = "a clock of this machine, at most a second old";
    test.verdict(format!("{label}: stamps"), wanted, stamps.text(), stamps.clock().is_some());
    test.figures(stamps.ages.iter().flat_map(|(name, age)| age.figures(&format!("{name}_"))));
    if let Some(depth) = depth {
        let wanted = match read {
            SampleAlignment::Bottom => "in the low bits, where visiond reads them with this driver",
            SampleAlignment::Top => "in the top bits, where visiond reads them with this driver",
        };
        let passed = bits.alignment(depth).is_none_or(|place| place == read);
        test.verdict(format!("{label}: samples"), wanted, bits_text(bits, depth), passed);
        test.figures([("bits_set", f64::from(bits.set())), ("depth", f64::from(depth.bits()))]);
    }
    Ok(())
}

/// Returns the bit depth of Bayer or grey samples that do not fill their words.
fn depth_of(format: CameraFormat) -> Option<BayerDepth> {
    let CameraFormat::Raw(format) = format else { return None };
    format.sample_depth().filter(|depth| matches!(depth, BayerDepth::Bits10 | BayerDepth::Bits12))
}

fn bits_text(bits: SampleBits, depth: BayerDepth) -> String {
    let (width, set) = (depth.bits(), bits.set());
    let is_filled = set & ((1 << (16 - width)) - 1) != 0;
    let meaning = match bits.alignment(depth) {
        None => "too dark to tell: is the lens covered?",
        Some(SampleAlignment::Bottom) => "in the low bits",
        // NVIDIA's VI fills the low bits with the sample's highest.
        Some(SampleAlignment::Top) if is_filled => "in the top bits, the low bits filled",
        Some(SampleAlignment::Top) => "in the top bits",
    };
    format!("{width} bits in 16: {meaning} (bits ever set {set:#06x})")
}

/// Minimum, median and maximum in milliseconds; zeros without values.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    fn of(ms: impl Iterator<Item = f64>) -> Self {
        let mut ms: Vec<f64> = ms.collect();
        ms.sort_by(f64::total_cmp);
        let at = |index: usize| ms.get(index).copied().unwrap_or(0.0);
        Self { least: at(0), median: at(ms.len() / 2), most: at(ms.len().saturating_sub(1)) }
    }

    fn figures(self, name: &str) -> [(String, f64); 3] {
        [("least", self.least), ("median", self.median), ("most", self.most)]
            .map(|(which, ms)| (format!("{name}{which}_ms"), ms))
    }
}

fn ms_between(earlier_ns: u64, later_ns: u64) -> f64 {
    (i128::from(later_ns) - i128::from(earlier_ns)) as f64 / 1e6
}

/// Returns the intervals between timestamps, and how many frames are missing and damaged.
fn intervals(frames: &[Arrival]) -> (Spread, u64, usize) {
    let ms = frames.windows(2).map(|pair| ms_between(pair[0].timestamp_ns, pair[1].timestamp_ns));
    // A driver that does not count leaves 0; one that restarts its count has not lost four billion frames.
    let steps = frames.windows(2).map(|pair| u64::from(pair[1].sequence.saturating_sub(pair[0].sequence)));
    let damaged = frames.iter().filter(|frame| frame.flags & sys::V4L2_BUF_FLAG_ERROR != 0).count();
    (Spread::of(ms), steps.map(|step| step.saturating_sub(1)).sum(), damaged)
}

/// The age of timestamps when their frames arrive.
#[derive(Debug)]
struct Stamps {
    /// The meaning of the timestamp flags.
    flags: String,
    /// The age by each clock of this machine.
    ages: Vec<(&'static str, Spread)>,
}

impl Stamps {
    fn of(frames: &[Arrival]) -> Self {
        let flags = frames.first().map_or(0, |frame| frame.flags);
        let clock = match flags & sys::V4L2_BUF_FLAG_TIMESTAMP_MASK {
            sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC => "monotonic",
            sys::V4L2_BUF_FLAG_TIMESTAMP_COPY => "copied",
            _ => "unknown",
        };
        let instant = match flags & sys::V4L2_BUF_FLAG_TSTAMP_SRC_MASK {
            sys::V4L2_BUF_FLAG_TSTAMP_SRC_SOE => "start of exposure",
            _ => "end of frame",
        };
        let age = |read: fn(&Arrival) -> Option<u64>| {
            frames.iter().all(|frame| read(frame).is_some()).then(|| {
                Spread::of(frames.iter().filter_map(|frame| Some(ms_between(frame.timestamp_ns, read(frame)?))))
            })
        };
        let clocks = [
            ("monotonic", age(|frame| Some(frame.arrived.monotonic_ns))),
            ("realtime", age(|frame| Some(frame.arrived.realtime_ns))),
            ("cntvct", age(|frame| frame.arrived.counter_ns)),
        ];
        let ages = clocks.into_iter().filter_map(|(name, age)| Some((name, age?))).collect();
        Self { flags: format!("{clock}, {instant}"), ages }
    }

    /// The clock of the timestamps: on it they are not in the future and at most a second old. If two clocks agree, the first
    /// counts.
    fn clock(&self) -> Option<&'static str> {
        let fits = |age: &Spread| age.least >= -100.0 && age.most <= 1000.0;
        self.ages.iter().find(|(_, age)| fits(age)).map(|(name, _)| *name)
    }

    fn text(&self) -> String {
        let age =
            |(name, Spread { least, median, most }): &_| format!("{name} {median:.1} ms ({least:.1} to {most:.1})");
        let ages: Vec<_> = self.ages.iter().map(age).collect();
        let clock =
            self.clock().map_or("of no clock of this machine".to_owned(), |clock| format!("of the clock {clock}"));
        format!("{clock}, flagged {}; age on arrival: {}", self.flags, ages.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_capture::v4l2::arrivals::Clocks;
    use visiond_kernels::frame::PixelFormat;

    fn arrival(sequence: u32, timestamp_ns: u64, monotonic_ns: u64) -> Arrival {
        let arrived = Clocks {
            monotonic_ns,
            realtime_ns: monotonic_ns + 1_700_000_000_000_000_000,
            counter_ns: Some(monotonic_ns + 50_000_000_000),
        };
        Arrival { sequence, flags: sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC, timestamp_ns, arrived }
    }

    #[test]
    fn samples_are_located_by_the_bits_that_are_ever_set() {
        let text = |words: &[u16], depth| {
            let mut bits = SampleBits::default();
            bits.add(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
            bits_text(bits, depth)
        };
        assert_eq!(
            text(&[0x03ff, 0x0001], BayerDepth::Bits10),
            "10 bits in 16: in the low bits (bits ever set 0x03ff)"
        );
        assert_eq!(
            text(&[0xff00, 0x00c0], BayerDepth::Bits10),
            "10 bits in 16: in the top bits (bits ever set 0xffc0)"
        );
        // 0x080 of 10 bits as VI5 writes it.
        assert_eq!(
            text(&[0x2008], BayerDepth::Bits10),
            "10 bits in 16: in the top bits, the low bits filled (bits ever set 0x2008)"
        );
        assert_eq!(text(&[0x0fff], BayerDepth::Bits12), "12 bits in 16: in the low bits (bits ever set 0x0fff)");
        assert!(text(&[0], BayerDepth::Bits12).contains("is the lens covered?"));
    }

    #[test]
    fn samples_of_10_and_12_bits_are_located_in_mosaics_and_in_grey() {
        let depth = |name| depth_of(PixelFormat::from_name(name).map_or(CameraFormat::Mjpeg, CameraFormat::Raw));
        assert_eq!(["rggb10", "grey10"].map(depth), [Some(BayerDepth::Bits10); 2]);
        assert_eq!(["bggr12", "grey12"].map(depth), [Some(BayerDepth::Bits12); 2]);
        assert_eq!(["grey", "grey16", "rggb8", "gbrg16", "p010", "mjpeg"].map(depth), [None; 6]);
    }

    #[test]
    fn of_a_text_control_only_the_length_is_printed() {
        let fuse_id = Value::Text("0a1b2c3d4e5f".to_owned());
        assert_eq!(shown(&fuse_id, |value| format!("{value:?}")), "<text of 12 bytes>");
        assert_eq!(shown(&Value::Number(7), |value| format!("{value:?}")), "Number(7)");
    }

    #[test]
    fn missing_and_damaged_frames_are_counted() {
        let mut came = vec![arrival(7, 0, 1), arrival(8, 33_000_000, 1), arrival(11, 133_000_000, 1)];
        came[2].flags |= sys::V4L2_BUF_FLAG_ERROR;
        let expected = (Spread { least: 33.0, median: 100.0, most: 100.0 }, 2, 1);
        assert_eq!(intervals(&came), expected);
        assert_eq!(intervals(&[arrival(0, 5, 5), arrival(0, 5, 5)]).1, 0);
        assert_eq!(intervals(&[]).0.most, 0.0);
    }

    #[test]
    fn stamps_are_of_the_clock_on_which_they_are_fresh() {
        let second = 1_000_000_000;
        let of = |timestamp_ns| {
            Stamps::of(&[arrival(0, timestamp_ns, 100 * second), arrival(1, timestamp_ns, 100 * second)])
        };
        let fresh = of(100 * second - 20_000_000);
        assert_eq!(fresh.clock(), Some("monotonic"));
        assert!(fresh.text().starts_with(
            "of the clock monotonic, flagged monotonic, end of frame; age on arrival: monotonic 20.0 ms (20.0 to 20.0)"
        ));
        assert_eq!(of(150 * second - 30_000_000).clock(), Some("cntvct"));
        assert_eq!(of(1_700_000_100 * second).clock(), Some("realtime"));
        assert_eq!(of(5 * second).clock(), None);
    }

    #[test]
    fn a_status_is_named_by_its_bits() {
        let of = |status| input(Some(Input { index: 0, name: "Camera 0".to_owned(), status, capabilities: 0 }));
        assert_eq!(of(0), "0 Camera 0, status 0x0");
        assert_eq!(of(1), "0 Camera 0, status 0x1 (no power)");
    }
}
