//! The signal at a camera's input: whether there is one, its timings, and events when it changes.
//!
//! A webcam has one input that always has a frame. The HDMI input of a capture card or a bridge may have none, or one of
//! another size than before. Then the stream must be set up again:
//! <https://docs.kernel.org/userspace-api/media/v4l/dv-timings.html>

use std::io;

use v4l::v4l_sys as sys;
use v4l::v4l2::vidioc;

use super::device::{Node, text};
use super::errors::refused;
use crate::source::SourceError;

/// The input status flags that mean "no picture". `V4L2_IN_ST_NO_POWER` is not one of them: a Jetson's `tegra-video` reports it
/// for every input that does not stream, because its sensors get power when the stream starts (`tegra_csi_g_input_status` in
/// L4T's csi.c).
const NO_PICTURE: u32 = sys::V4L2_IN_ST_NO_SIGNAL
    | sys::V4L2_IN_ST_NO_H_LOCK
    | sys::V4L2_IN_ST_NO_V_LOCK
    | sys::V4L2_IN_ST_NO_SYNC
    | sys::V4L2_IN_ST_NO_CARRIER;

/// An input of a camera.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The input's number, as configured with `input`.
    pub index: u32,
    /// "HDMI 0".
    pub name: String,
    /// `V4L2_IN_ST_*`.
    pub status: u32,
    /// `V4L2_IN_CAP_*`.
    pub capabilities: u32,
}

/// Why an input has no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSignal {
    /// There is no signal.
    #[error("no signal at its input: check the cable, and that the connected device is on")]
    Nothing,
    /// There is a signal, but the input is not locked to it, or not yet.
    #[error("no stable signal at its input: check the cable, and that the connected device sends a common mode")]
    NoLock,
    /// The signal exceeds what the input supports.
    #[error("the signal at its input is out of range: set the connected device to a smaller size or rate")]
    OutOfRange,
}

/// The timings of a digital signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalTimings {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Whether it is interlaced.
    pub is_interlaced: bool,
    /// Pixels per second, blanking included.
    pub pixel_clock: u64,
    /// Pixels per frame, blanking included.
    pub total_pixels: u64,
}

impl SignalTimings {
    /// Returns frames per second; `None` if the driver leaves fields empty.
    pub fn rate(&self) -> Option<f64> {
        let known = self.pixel_clock > 0 && self.total_pixels > 0;
        known.then(|| self.pixel_clock as f64 / self.total_pixels as f64)
    }

    fn of(raw: &sys::v4l2_dv_timings) -> Self {
        // SAFETY: for any type, the bytes are valid integers of this struct.
        let bt = unsafe { raw.__bindgen_anon_1.bt };
        let sum = |parts: [u32; 4]| parts.into_iter().map(u64::from).sum::<u64>();
        Self {
            width: bt.width,
            height: bt.height,
            is_interlaced: bt.interlaced != 0,
            pixel_clock: bt.pixelclock,
            total_pixels: sum([bt.width, bt.hfrontporch, bt.hsync, bt.hbackporch])
                * sum([bt.height, bt.vfrontporch, bt.vsync, bt.vbackporch]),
        }
    }

    /// Whether timings close to `other` are set already: measured timings differ a little each time.
    fn is_like(&self, other: &Self) -> bool {
        let shape = |timings: &Self| (timings.width, timings.height, timings.is_interlaced);
        let near = |a: u64, b: u64| a.abs_diff(b) <= b / 200;
        shape(self) == shape(other)
            && near(self.pixel_clock, other.pixel_clock)
            && near(self.total_pixels, other.total_pixels)
    }
}

/// The current input, and how its signal is watched.
#[derive(Debug)]
pub struct SignalWatch {
    /// Whether the timings must be queried and set.
    has_timings: bool,
    /// Whether its status reports the signal. A sensor's does not.
    has_status: bool,
    /// Whether the driver sends an event when the signal changes.
    has_events: bool,
}

impl SignalWatch {
    /// Selects the input `wanted`, or keeps the current one, and subscribes to its changes.
    pub fn new(node: &Node, wanted: Option<u32>) -> Result<Self, SourceError> {
        if let Some(wanted) = wanted {
            select(node, wanted)?;
        }
        let current = current(node);
        let has = |flag| current.as_ref().is_some_and(|input| input.capabilities & flag != 0);
        let has_timings = has(sys::V4L2_IN_CAP_DV_TIMINGS);
        let fill = |raw: &mut sys::v4l2_event_subscription| {
            raw.type_ = sys::V4L2_EVENT_SOURCE_CHANGE;
            raw.id = current.as_ref().map_or(0, |input| input.index);
        };
        // SAFETY: SUBSCRIBE_EVENT reads a v4l2_event_subscription, integers. Most cameras have no such event.
        let has_events = unsafe { node.query(sys::VIDIOC_SUBSCRIBE_EVENT, fill) }.is_ok();
        let has_status = has_timings || has(sys::V4L2_IN_CAP_STD);
        Ok(Self { has_timings, has_status, has_events })
    }

    /// Whether the signal may change while the camera streams.
    pub fn is_live(&self) -> bool {
        self.has_status
    }

    /// Whether the signal must be polled while frames come, because the driver sends no events.
    pub fn must_look(&self) -> bool {
        self.has_status && !self.has_events
    }

    /// Queries the signal. Changes nothing.
    pub fn look(&self, node: &Node) -> io::Result<Result<Option<SignalTimings>, NoSignal>> {
        if !self.has_status {
            return Ok(Ok(None));
        }
        let missing = current(node).and_then(|input| missing(input.status));
        if !self.has_timings {
            return Ok(missing.map_or(Ok(None), Err));
        }
        // The reason for missing timings says more than the status.
        let timings = match timings(node, sys::VIDIOC_QUERY_DV_TIMINGS) {
            Ok(raw) => Some(SignalTimings::of(&raw)),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOLINK) => return Ok(Err(NoSignal::Nothing)),
                Some(libc::ENOLCK) => return Ok(Err(NoSignal::NoLock)),
                Some(libc::ERANGE) => return Ok(Err(NoSignal::OutOfRange)),
                // The input cannot measure: assume the timings that are set.
                Some(libc::ENODATA | libc::ENOTTY | libc::EINVAL) => None,
                _ => return Err(error),
            },
        };
        Ok(missing.map_or(Ok(timings), Err))
    }

    /// Sets the camera to the current signal. To be called before streaming.
    pub fn settle(&self, node: &Node) -> io::Result<Result<Option<SignalTimings>, NoSignal>> {
        let found = self.look(node)?;
        let Ok(Some(measured)) = found else { return Ok(found) };
        let mut raw = timings(node, sys::VIDIOC_QUERY_DV_TIMINGS)?;
        let set = timings(node, sys::VIDIOC_G_DV_TIMINGS).ok().map(|raw| SignalTimings::of(&raw));
        if !set.is_some_and(|set| set.is_like(&measured)) {
            // SAFETY: S_DV_TIMINGS reads and writes a v4l2_dv_timings.
            unsafe { node.ioctl(sys::VIDIOC_S_DV_TIMINGS, &mut raw)? };
        }
        Ok(found)
    }

    /// Reads all pending events; returns whether the signal changed.
    pub fn take_change(&self, node: &Node) -> bool {
        if !self.has_events {
            return false;
        }
        // SAFETY: DQEVENT writes a v4l2_event, integers and unions of them. It returns an error when there are no more
        // events.
        let next = || unsafe { node.query(sys::VIDIOC_DQEVENT, |_: &mut sys::v4l2_event| ()) }.ok();
        std::iter::from_fn(next).fold(false, |changed, raw| changed | (raw.type_ == sys::V4L2_EVENT_SOURCE_CHANGE))
    }
}

/// Lists every input of a node, for `probe`.
pub fn inputs(node: &Node) -> Vec<Input> {
    (0..64).map_while(|index| input(node, index)).collect()
}

/// Returns the current input; `None` if the driver knows none.
pub fn current(node: &Node) -> Option<Input> {
    // SAFETY: G_INPUT writes an int.
    let index: libc::c_int = unsafe { node.query(vidioc::VIDIOC_G_INPUT, |_| ()) }.ok()?;
    input(node, u32::try_from(index).ok()?)
}

fn input(node: &Node, index: u32) -> Option<Input> {
    let fill = |raw: &mut sys::v4l2_input| raw.index = index;
    // SAFETY: ENUMINPUT reads and writes a v4l2_input, integers and arrays of them.
    let raw = unsafe { node.query(vidioc::VIDIOC_ENUMINPUT, fill) }.ok()?;
    Some(Input { index, name: text(&raw.name), status: raw.status, capabilities: raw.capabilities })
}

/// Selects the input.
fn select(node: &Node, wanted: u32) -> Result<(), SourceError> {
    if current(node).is_some_and(|input| input.index == wanted) {
        return Ok(());
    }
    let device = node.path().display();
    // The configuration rejects numbers that are too large.
    let mut index = wanted as libc::c_int;
    // SAFETY: S_INPUT reads and writes an int.
    let Err(error) = (unsafe { node.ioctl(vidioc::VIDIOC_S_INPUT, &mut index) }) else { return Ok(()) };
    if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENODEV)) {
        return Err(refused(node, "select its input", &error));
    }
    let known: Vec<_> = inputs(node).iter().map(|input| format!("{} ({})", input.index, input.name)).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(SourceError::permanent(format!(
        "{device} has no input {wanted} (S_INPUT: {error}): it has {known}; correct `input`"
    )))
}

/// Returns what is missing according to an input's status.
fn missing(status: u32) -> Option<NoSignal> {
    match status & NO_PICTURE {
        0 => None,
        flags if flags & sys::V4L2_IN_ST_NO_SIGNAL != 0 => Some(NoSignal::Nothing),
        _ => Some(NoSignal::NoLock),
    }
}

fn timings(node: &Node, request: vidioc::_IOC_TYPE) -> io::Result<sys::v4l2_dv_timings> {
    // SAFETY: callers pass only QUERY_DV_TIMINGS and G_DV_TIMINGS, which write a v4l2_dv_timings, integers and unions of
    // them.
    unsafe { node.query(request, |_| ()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_status_without_a_picture_says_what_to_check() {
        assert_eq!(missing(0), None);
        assert_eq!(missing(sys::V4L2_IN_ST_NO_COLOR | sys::V4L2_IN_ST_HFLIP), None);
        assert_eq!(missing(sys::V4L2_IN_ST_NO_POWER | sys::V4L2_IN_ST_NO_SIGNAL), Some(NoSignal::Nothing));
        assert_eq!(missing(sys::V4L2_IN_ST_NO_SYNC), Some(NoSignal::NoLock));
        assert!(NoSignal::Nothing.to_string().contains("no signal at its input: check the cable"));
    }

    #[test]
    fn a_sensor_without_power_is_no_reason_to_wait() {
        assert_eq!(missing(sys::V4L2_IN_ST_NO_POWER), None);
    }

    #[test]
    fn timings_that_were_measured_twice_are_the_same() {
        let hd = SignalTimings {
            width: 1920,
            height: 1080,
            is_interlaced: false,
            pixel_clock: 148_500_000,
            total_pixels: 2200 * 1125,
        };
        assert_eq!(hd.rate(), Some(60.0));
        assert!(hd.is_like(&SignalTimings { pixel_clock: 148_350_000, ..hd }));
        assert!(!hd.is_like(&SignalTimings { pixel_clock: 74_250_000, ..hd }));
        // 59.5 Hz, from the pixels per frame.
        assert!(!hd.is_like(&SignalTimings { total_pixels: 2218 * 1125, ..hd }));
        assert!(!hd.is_like(&SignalTimings { pixel_clock: 147_500_000, ..hd }));
        assert!(!hd.is_like(&SignalTimings { is_interlaced: true, ..hd }));
        assert!(!hd.is_like(&SignalTimings { height: 720, ..hd }));
    }

    use std::collections::VecDeque;

    use super::super::device::fake_camera::{FakeCamera, FakeTimings};

    const HD: FakeTimings = FakeTimings { size: (1920, 1080), blanking: (280, 45), pixel_clock: 148_500_000 };
    const SMALL: FakeTimings = FakeTimings { size: (1280, 720), blanking: (370, 30), pixel_clock: 74_250_000 };

    /// A capture card with two inputs, of which the second is selected.
    fn card() -> FakeCamera {
        let inputs = vec![("HDMI 0", 0, sys::V4L2_IN_CAP_DV_TIMINGS), ("HDMI 1", 0, sys::V4L2_IN_CAP_DV_TIMINGS)];
        FakeCamera { inputs, input: 1, signal: Some(Ok(HD)), events: Some(VecDeque::new()), ..FakeCamera::default() }
    }

    fn with(node: &Node, change: impl FnOnce(&mut FakeCamera)) {
        if let Some(camera) = &node.fake {
            change(&mut camera.lock());
        }
    }

    fn changes(node: &Node) -> Vec<&'static str> {
        let mut taken = Vec::new();
        with(node, |camera| taken = std::mem::take(&mut camera.changes));
        taken
    }

    #[test]
    fn the_timings_are_set_to_the_signal_once_and_again_when_it_is_another() {
        let node = card().node();
        let watch = SignalWatch::new(&node, None).unwrap();
        assert!(watch.is_live() && !watch.must_look());
        let found = watch.settle(&node).unwrap().unwrap().unwrap();
        assert_eq!((found.width, found.height, found.is_interlaced, found.rate()), (1920, 1080, false, Some(60.0)));
        assert_eq!(changes(&node), ["S_DV_TIMINGS"]);
        with(&node, |camera| assert_eq!(camera.timings, Some(HD)));
        // Slightly different measurements of one signal, and a different signal.
        with(&node, |camera| camera.signal = Some(Ok(FakeTimings { pixel_clock: 148_400_000, ..HD })));
        assert!(watch.settle(&node).unwrap().is_ok() && changes(&node).is_empty());
        with(&node, |camera| camera.signal = Some(Ok(SMALL)));
        assert_eq!(watch.look(&node).unwrap().unwrap().unwrap().rate(), Some(60.0));
        assert!(changes(&node).is_empty(), "to look changes nothing");
        assert!(watch.settle(&node).unwrap().is_ok());
        assert_eq!(changes(&node), ["S_DV_TIMINGS"]);
        with(&node, |camera| assert_eq!(camera.timings, Some(SMALL)));
    }

    #[test]
    fn a_missing_signal_has_a_reason_and_an_input_that_cannot_measure_has_none() {
        let node = card().node();
        let watch = SignalWatch::new(&node, None).unwrap();
        for (code, reason) in
            [(libc::ENOLINK, NoSignal::Nothing), (libc::ENOLCK, NoSignal::NoLock), (libc::ERANGE, NoSignal::OutOfRange)]
        {
            with(&node, |camera| camera.signal = Some(Err(code)));
            assert_eq!(watch.settle(&node).unwrap(), Err(reason));
        }
        for code in [libc::ENODATA, libc::ENOTTY, libc::EINVAL] {
            with(&node, |camera| camera.signal = Some(Err(code)));
            assert_eq!(watch.settle(&node).unwrap(), Ok(None));
        }
        assert!(changes(&node).is_empty());
        // Then only its status is known.
        with(&node, |camera| camera.inputs[1].1 = sys::V4L2_IN_ST_NO_SYNC);
        assert_eq!(watch.look(&node).unwrap(), Err(NoSignal::NoLock));
        with(&node, |camera| camera.signal = Some(Err(libc::ENODEV)));
        assert_eq!(watch.look(&node).unwrap_err().raw_os_error(), Some(libc::ENODEV));

        // An analogue input has a status and no timings; the status of a sensor says nothing.
        let status = sys::V4L2_IN_ST_NO_SIGNAL;
        let analogue = FakeCamera { inputs: vec![("S-Video", status, sys::V4L2_IN_CAP_STD)], ..FakeCamera::default() };
        let node = analogue.node();
        let watch = SignalWatch::new(&node, None).unwrap();
        assert!(watch.is_live() && watch.must_look(), "its driver has no events");
        assert_eq!(watch.look(&node).unwrap(), Err(NoSignal::Nothing));
        let sensor = FakeCamera { inputs: vec![("Camera 0", status, 0)], ..FakeCamera::default() }.node();
        let watch = SignalWatch::new(&sensor, None).unwrap();
        assert!(!watch.is_live() && !watch.must_look());
        assert_eq!(watch.settle(&sensor).unwrap(), Ok(None));
    }

    #[test]
    fn all_events_are_taken_and_a_change_among_them_counts() {
        let node = card().node();
        let watch = SignalWatch::new(&node, None).unwrap();
        let (change, other) = (sys::V4L2_EVENT_SOURCE_CHANGE, sys::V4L2_EVENT_CTRL);
        assert!(!watch.take_change(&node));
        for (events, changed) in [(vec![other], false), (vec![change, other], true), (vec![other, change], true)] {
            with(&node, |camera| camera.events = Some(events.into()));
            assert_eq!(watch.take_change(&node), changed);
            assert!(!watch.take_change(&node), "all were taken");
        }
    }

    #[test]
    fn an_input_is_selected_unless_it_is_and_one_that_is_missing_is_answered_with_those_there_are() {
        let node = card().node();
        assert_eq!(inputs(&node).iter().map(|input| &*input.name).collect::<Vec<_>>(), ["HDMI 0", "HDMI 1"]);
        assert_eq!(current(&node).unwrap().index, 1);
        SignalWatch::new(&node, Some(1)).unwrap();
        assert!(changes(&node).is_empty());
        SignalWatch::new(&node, Some(0)).unwrap();
        assert_eq!((changes(&node), current(&node).unwrap().index), (vec!["S_INPUT"], 0));
        let error = SignalWatch::new(&node, Some(2)).unwrap_err();
        assert!(
            error.to_string().ends_with("it has 0 (HDMI 0), 1 (HDMI 1); correct `input`") && !error.may_pass(),
            "{error}"
        );
        with(&node, |camera| camera.input_error = Some(libc::EBUSY));
        let error = SignalWatch::new(&node, Some(1)).unwrap_err();
        assert!(error.may_pass(), "another program streams: {error}");
        let webcam = FakeCamera::default().node();
        assert!(current(&webcam).is_none() && inputs(&webcam).is_empty());
        let error = SignalWatch::new(&webcam, Some(1)).unwrap_err();
        assert!(error.to_string().contains("it has none; correct `input`"), "{error}");
    }
}
