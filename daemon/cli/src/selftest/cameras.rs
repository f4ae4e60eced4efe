//! Each camera behind V4L2: what its driver says, idle and streaming, before visiond makes anything of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use v4l::v4l_sys as sys;
use visiond_capture::Buffers;
use visiond_capture::v4l2::arrivals::{Arrival, Arrivals};
use visiond_capture::v4l2::controls::{self, Value};
use visiond_capture::v4l2::device::{Node, NodeError};
use visiond_capture::v4l2::fourcc;
use visiond_capture::v4l2::sample_alignment::{SampleAlignment, SampleBits};
use visiond_capture::v4l2::signal::{self, Input};
use visiond_capture::v4l2::stream::Refusal;
use visiond_capture::v4l2::stream::io_support::try_io_methods;
use visiond_config::types::{CameraFormat, CameraName};
use visiond_kernels::frame::{BayerDepth, PixelFormat};
use visiond_system::stop::Stop;

use super::checks::Section;
use super::deadline::{NO_TIME, time_left};
use super::progress::TestProgress;
use crate::cameras::{self, Camera};

/// Frames of a camera.
const FRAMES: usize = 200;
/// A slow camera gives fewer: after so long it is enough.
const FRAMES_TIME: Duration = Duration::from_secs(20);
/// Frame numbers that may be missing among them.
const MISSING_ALLOWED: u64 = 2;

/// Tests the cameras of these names, or all that there are, until `end`.
pub fn run(names: &[CameraName], section: &mut Section, tell: &mut TestProgress, end: Instant) {
    let buffers = Buffers::default();
    if names.is_empty() {
        let found = cameras::all(&buffers);
        if found.is_empty() {
            section.skip("cameras", "there is no camera behind V4L2 (/dev/video*)");
        }
        for camera in found {
            test(&camera.device.display().to_string(), &camera, &buffers, section, tell, end);
        }
    }
    for name in names {
        if time_left(end).is_none() {
            section.skip(format!("{name}: opens"), NO_TIME);
            continue;
        }
        match cameras::one(name, &buffers) {
            Ok(camera) => test(&name.to_string(), &camera, &buffers, section, tell, end),
            Err(error) => {
                section.fail(format!("{name}: opens"), "a camera", error);
            }
        }
    }
}

fn test(label: &str, camera: &Camera, buffers: &Buffers, section: &mut Section, tell: &mut TestProgress, end: Instant) {
    tell.say(label);
    let opens = format!("{label}: opens");
    let Some(left) = time_left(end) else {
        section.skip(opens, NO_TIME);
        return;
    };
    if let Some(error) = &camera.error {
        section.fail(opens, "a camera", error);
        return;
    }
    let api = camera.api.unwrap_or("no pictures");
    section.verdict(opens, "a camera", format!("{} ({}, {}), {api}", camera.name, camera.driver, camera.bus), true);
    if camera.io.is_some_and(|io| io.mmap.is_none() && io.userptr.is_none()) {
        let why = "another program streams from it: end that, such as by `systemctl stop visiond`";
        section.skip(format!("{label}: streams"), why);
        return;
    }
    match Node::open(&camera.device) {
        Ok(node) => idle(label, &Arc::new(node), section),
        Err(NodeError::Unopened(error) | NodeError::Unknown(error)) => {
            section.fail(format!("{label}: opens again"), "as before", error);
            return;
        }
    }
    let streams = format!("{label}: streams");
    match Arrivals::open(&camera.device, &camera.config_without_rate(), buffers) {
        Ok(Ok(arrivals)) => {
            section.verdict(streams, "a stream", arrivals.description(), true);
            if let Err(error) = stream(label, arrivals, section, tell, FRAMES_TIME.min(left)) {
                section.fail(format!("{label}: frames"), format!("{FRAMES} frames"), error);
            }
        }
        Ok(Err(missing)) => {
            section.skip(streams, missing);
        }
        Err(error) => {
            section.fail(streams, "a stream", error.message);
        }
    }
}

/// What the driver says while nothing streams.
fn idle(label: &str, node: &Arc<Node>, section: &mut Section) {
    section.info(format!("{label}: input idle"), input(signal::current(node)));
    match controls::list(node) {
        Ok(controls) => {
            let told = controls.iter().map(|control| {
                let value =
                    control.value.as_ref().map_or("?".to_owned(), |value| shown(value, |value| control.show(value)));
                let note = if control.inactive { " (inactive)" } else { "" };
                format!("{} = {value}{note}", control.name)
            });
            let told: Vec<_> = told.collect();
            let seen = if told.is_empty() { "none".to_owned() } else { told.join(", ") };
            section.info(format!("{label}: controls"), seen).figure("controls", controls.len() as f64);
        }
        Err(error) => {
            section.fail(format!("{label}: controls"), "a list", error);
        }
    }
    let tried = try_io_methods(node);
    let word = |result: &Result<(), Refusal>| result.as_ref().map_or_else(ToString::to_string, |()| "yes".to_owned());
    let expbuf = tried.expbuf.as_ref().map_or("no buffer to export".to_owned(), word);
    let seen = format!("mmap: {}, userptr: {}, expbuf: {expbuf}", word(&tried.mmap), word(&tried.userptr));
    let works = tried.mmap.is_ok() || tried.userptr.is_ok();
    section.verdict(format!("{label}: I/O"), "mmap or userptr", seen, works);
}

/// A control's value as it is printed. Of a text its length alone: NVIDIA's sensor drivers have `Fuse ID`, `EEPROM Data` and
/// `OTP Data` as texts (tegracam_ctrls.c), which tell one camera module from every other.
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
    let Some(Input { index, name, status, .. }) = input else { return "the driver knows no input".to_owned() };
    let named: Vec<_> = NAMES.iter().filter(|(bit, _)| status & bit != 0).map(|(_, name)| *name).collect();
    let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    format!("{index} {name}, status {status:#x}{named}")
}

/// 200 frames, or those of `time`, and what they say.
fn stream(
    label: &str,
    mut arrivals: Arrivals,
    section: &mut Section,
    tell: &mut TestProgress,
    time: Duration,
) -> Result<(), String> {
    let stop = Stop::new().map_err(|error| format!("cannot make an eventfd: {error}"))?;
    let depth = arrivals.format().ok().and_then(|pix| depth_of(fourcc::format_of(pix.fourcc)?));
    let read = arrivals.samples_read();
    let mut bits = SampleBits::default();
    let mut came = Vec::with_capacity(FRAMES);
    let began = Instant::now();
    for number in 1..=FRAMES {
        if number > 2 && began.elapsed() >= time {
            break;
        }
        let look = |bytes: &[u8]| {
            // A tenth of the frames says as much, and takes no time that the camera would not wait for.
            if depth.is_some() && number % 10 == 0 {
                bits.add(bytes);
            }
        };
        came.push(arrivals.next(&stop, look).map_err(|error| format!("after {} frames: {error}", number - 1))?);
        tell.say(&format!("{label}: {number} of {FRAMES} frames"));
    }
    // By a second descriptor, as another program would ask.
    let streaming = Node::open(arrivals.node().path()).ok().and_then(|node| signal::current(&node));
    section.info(format!("{label}: input streaming"), input(streaming));
    drop(arrivals);
    let frames = Intervals::of(&came);
    let seen = format!(
        "{} frames, {:.2} to {:.2} ms apart, median {:.2} ms, {} missing, {} damaged",
        came.len(),
        frames.least_ms,
        frames.most_ms,
        frames.median_ms,
        frames.missing,
        frames.damaged
    );
    let passed = frames.missing <= MISSING_ALLOWED && frames.damaged == 0;
    let wanted = format!("at most {MISSING_ALLOWED} frames missing, none damaged");
    section
        .verdict(format!("{label}: frames"), wanted, seen, passed)
        .figure("frames", came.len() as f64)
        .figure("least_ms", frames.least_ms)
        .figure("median_ms", frames.median_ms)
        .figure("most_ms", frames.most_ms)
        .figure("missing", frames.missing as f64)
        .figure("damaged", frames.damaged as f64);
    let stamps = Stamps::of(&came);
    let row = section.verdict(
        format!("{label}: stamps"),
        "a clock of this machine, at most a second old",
        stamps.text(),
        stamps.clock().is_some(),
    );
    for (name, ages) in stamps.ages() {
        row.figure(&format!("{name}_least_ms"), ages.0)
            .figure(&format!("{name}_median_ms"), ages.1)
            .figure(&format!("{name}_most_ms"), ages.2);
    }
    if let Some(depth) = depth {
        let wanted = match read {
            SampleAlignment::Bottom => "in the low bits, where visiond reads them of this driver",
            SampleAlignment::Top => "in the top bits, where visiond reads them of this driver",
        };
        let passed = bits.alignment(depth).is_none_or(|place| place == read);
        section
            .verdict(format!("{label}: samples"), wanted, bits_text(bits, depth), passed)
            .figure("bits_set", f64::from(bits.set()))
            .figure("depth", f64::from(depth.bits()));
    }
    Ok(())
}

/// The depth of a mosaic whose samples do not fill their words.
fn depth_of(format: CameraFormat) -> Option<BayerDepth> {
    match format {
        CameraFormat::Raw(PixelFormat::Bayer(_, depth @ (BayerDepth::Bits10 | BayerDepth::Bits12))) => Some(depth),
        _ => None,
    }
}

/// Bits as people read them.
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

/// What the stamps and numbers of frames say of a stream.
#[derive(Debug, PartialEq)]
struct Intervals {
    least_ms: f64,
    median_ms: f64,
    most_ms: f64,
    missing: u64,
    damaged: usize,
}

impl Intervals {
    fn of(came: &[Arrival]) -> Self {
        let between = came
            .windows(2)
            .map(|pair| (i128::from(pair[1].timestamp_ns) - i128::from(pair[0].timestamp_ns)) as f64 / 1e6);
        let (least_ms, median_ms, most_ms) = spread(between.collect());
        // A driver that does not count leaves 0; one that starts again is not missing four thousand million.
        let missing =
            came.windows(2).map(|pair| u64::from(pair[1].sequence.saturating_sub(pair[0].sequence)).saturating_sub(1));
        let damaged = came.iter().filter(|arrival| arrival.flags & sys::V4L2_BUF_FLAG_ERROR != 0).count();
        Self { least_ms, median_ms, most_ms, missing: missing.sum(), damaged }
    }
}

/// Least, median and greatest; zeros of nothing.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    (at(0), at(values.len() / 2), at(values.len().saturating_sub(1)))
}

/// How old stamps are on each clock when their frames come: least, median and greatest, in milliseconds.
#[derive(Debug)]
struct Stamps {
    /// What the flags say.
    flags: String,
    monotonic: (f64, f64, f64),
    realtime: (f64, f64, f64),
    counter: Option<(f64, f64, f64)>,
}

impl Stamps {
    fn of(came: &[Arrival]) -> Self {
        let ages = |clock: &dyn Fn(&Arrival) -> Option<u64>| {
            let age =
                |arrival: &Arrival| Some((i128::from(clock(arrival)?) - i128::from(arrival.timestamp_ns)) as f64 / 1e6);
            let ages: Option<Vec<f64>> = came.iter().map(age).collect();
            ages.map(spread)
        };
        let flags = came.first().map_or(0, |arrival| arrival.flags);
        let clock = match flags & sys::V4L2_BUF_FLAG_TIMESTAMP_MASK {
            sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC => "monotonic",
            sys::V4L2_BUF_FLAG_TIMESTAMP_COPY => "copied",
            _ => "unknown",
        };
        let instant = match flags & sys::V4L2_BUF_FLAG_TSTAMP_SRC_MASK {
            sys::V4L2_BUF_FLAG_TSTAMP_SRC_SOE => "start of exposure",
            _ => "end of frame",
        };
        Self {
            flags: format!("{clock}, {instant}"),
            monotonic: ages(&|arrival| Some(arrival.arrived.monotonic_ns)).unwrap_or_default(),
            realtime: ages(&|arrival| Some(arrival.arrived.realtime_ns)).unwrap_or_default(),
            counter: ages(&|arrival| arrival.arrived.counter_ns),
        }
    }

    fn ages(&self) -> Vec<(&'static str, (f64, f64, f64))> {
        let mut ages = vec![("monotonic", self.monotonic), ("realtime", self.realtime)];
        ages.extend(self.counter.map(|counter| ("cntvct", counter)));
        ages
    }

    /// The clock that the stamps are of: on it they are not from the future and at most a second old. Where two clocks run alike,
    /// the first.
    fn clock(&self) -> Option<&'static str> {
        let fits = |(least, _, most): (f64, f64, f64)| least >= -100.0 && most <= 1000.0;
        self.ages().into_iter().find(|(_, ages)| fits(*ages)).map(|(name, _)| name)
    }

    fn text(&self) -> String {
        let ages = self
            .ages()
            .into_iter()
            .map(|(name, (least, median, most))| format!("{name} {median:.1} ms ({least:.1} to {most:.1})"));
        let clock =
            self.clock().map_or("of no clock of this machine".to_owned(), |clock| format!("of the clock {clock}"));
        format!("{clock}, flagged {}; age on arrival: {}", self.flags, ages.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_capture::v4l2::arrivals::Clocks;

    fn arrival(sequence: u32, timestamp_ns: u64, monotonic_ns: u64) -> Arrival {
        let arrived = Clocks {
            monotonic_ns,
            realtime_ns: monotonic_ns + 1_700_000_000_000_000_000,
            counter_ns: Some(monotonic_ns + 50_000_000_000),
        };
        Arrival { sequence, flags: sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC, timestamp_ns, arrived }
    }

    #[test]
    fn samples_are_told_by_the_bits_that_are_ever_set() {
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
    fn of_a_control_that_is_a_text_the_length_alone_is_printed() {
        let fuse_id = Value::Text("0a1b2c3d4e5f".to_owned());
        assert_eq!(shown(&fuse_id, |value| format!("{value:?}")), "<text of 12 bytes>");
        assert_eq!(shown(&Value::Number(7), |value| format!("{value:?}")), "Number(7)");
    }

    #[test]
    fn frames_that_are_missing_and_those_that_are_damaged_are_counted() {
        let mut came = vec![arrival(7, 0, 1), arrival(8, 33_000_000, 1), arrival(11, 133_000_000, 1)];
        came[2].flags |= sys::V4L2_BUF_FLAG_ERROR;
        let expected = Intervals { least_ms: 33.0, median_ms: 100.0, most_ms: 100.0, missing: 2, damaged: 1 };
        assert_eq!(Intervals::of(&came), expected);
        assert_eq!(Intervals::of(&[arrival(0, 5, 5), arrival(0, 5, 5)]).missing, 0);
        assert_eq!(Intervals::of(&[]).most_ms, 0.0);
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
    fn a_status_is_told_by_its_bits() {
        let of = |status| input(Some(Input { index: 0, name: "Camera 0".to_owned(), status, capabilities: 0 }));
        assert_eq!(of(0), "0 Camera 0, status 0x0");
        assert_eq!(of(1), "0 Camera 0, status 0x1 (no power)");
    }
}
