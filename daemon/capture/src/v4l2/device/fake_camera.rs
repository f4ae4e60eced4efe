//! A camera for tests, with a driver that answers a node's ioctls as the kernel's documentation says. It delivers no frames.

#![allow(clippy::expect_used)]

use std::collections::VecDeque;
use std::os::raw::c_void;

use super::*;

/// The camera's capabilities and settings. A test may change them at any time.
#[derive(Debug, Default)]
pub struct FakeCamera {
    /// The driver's name, which decides the quirks.
    pub driver: &'static str,
    pub formats: Vec<FakeFormat>,
    /// Smallest size, largest size and step of every format, in place of a list of sizes.
    pub size_range: Option<[(u32, u32); 3]>,
    /// Lowest and highest frames per second of every size, in place of a list of rates.
    pub rate_range: Option<(u32, u32)>,
    /// The field order that TRY_FMT and S_FMT return.
    pub field: u32,
    /// The format that is set; its index in `formats`, and the size.
    pub current: (usize, (u32, u32)),
    /// Frames per second that are set; `None` if the driver knows no rates.
    pub fps: Option<u32>,
    /// Name, status and capabilities of each input.
    pub inputs: Vec<(&'static str, u32, u32)>,
    pub input: u32,
    /// The error of S_INPUT.
    pub input_error: Option<i32>,
    /// The timings measured at the input, or the error.
    pub signal: Option<Result<FakeTimings, i32>>,
    pub timings: Option<FakeTimings>,
    /// `V4L2_EVENT_*` that wait; `None` if the driver has no events.
    pub events: Option<VecDeque<u32>>,
    pub controls: Vec<FakeControl>,
    /// The control's id and the number of each S_EXT_CTRLS, in their order.
    pub writes: Vec<(u32, i64)>,
    /// The calls that change something, in their order.
    pub changes: Vec<&'static str>,
}

/// A pixel format with its sizes, and the frames per second of each.
#[derive(Debug, Clone)]
pub struct FakeFormat {
    pub fourcc: FourCc,
    pub sizes: Vec<((u32, u32), Vec<u32>)>,
}

/// A control.
#[derive(Debug, Clone, Default)]
pub struct FakeControl {
    pub id: u32,
    pub title: &'static str,
    /// `V4L2_CTRL_TYPE_*`.
    pub kind: u32,
    pub range: (i64, i64),
    pub step: u64,
    pub default: i64,
    /// `V4L2_CTRL_FLAG_*`.
    pub flags: u32,
    pub value: i64,
    /// The value of a text.
    pub text: String,
    /// The items of a menu: index, and name or number.
    pub items: Vec<(u32, &'static str)>,
    /// The value of an array of 32-bit numbers.
    pub array: Vec<u32>,
    /// How the driver changes every number.
    pub becomes: Option<i64>,
    /// The error of S_EXT_CTRLS.
    pub error: Option<i32>,
}

/// Timings of a digital signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakeTimings {
    pub size: (u32, u32),
    /// Pixels of blanking beside and below the frame.
    pub blanking: (u32, u32),
    pub pixel_clock: u64,
}

impl FakeTimings {
    fn raw(self) -> sys::v4l2_dv_timings {
        // SAFETY: the struct holds integers and a union of them, for which zeros are valid.
        let mut bt: sys::v4l2_bt_timings = unsafe { mem::zeroed() };
        (bt.width, bt.height, bt.pixelclock) = (self.size.0, self.size.1, self.pixel_clock);
        // Each part of the blanking counts.
        (bt.hfrontporch, bt.hsync, bt.hbackporch) = (1, 2, self.blanking.0 - 3);
        (bt.vfrontporch, bt.vsync, bt.vbackporch) = (1, 1, self.blanking.1 - 2);
        sys::v4l2_dv_timings { type_: 0, __bindgen_anon_1: sys::v4l2_dv_timings__bindgen_ty_1 { bt } }
    }

    fn of(raw: &sys::v4l2_dv_timings) -> Self {
        // SAFETY: any bits are integers.
        let bt = unsafe { raw.__bindgen_anon_1.bt };
        Self {
            size: (bt.width, bt.height),
            blanking: (bt.hfrontporch + bt.hsync + bt.hbackporch, bt.vfrontporch + bt.vsync + bt.vbackporch),
            pixel_clock: bt.pixelclock,
        }
    }
}

fn error<T>(code: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(code))
}

impl FakeCamera {
    /// Returns a node of this camera.
    pub fn node(self) -> Node {
        let file = File::open("/dev/null").expect("a file");
        let capabilities = Capabilities { driver: self.driver.to_owned(), ..Capabilities::default() };
        Node { capabilities, fake: Some(Mutex::new(self)), ..Node::of(file, Path::new("/dev/video9")) }
    }

    fn rates(&self, format: usize, size: (u32, u32)) -> &[u32] {
        let sizes = self.formats.get(format).map_or(&[][..], |format| &format.sizes);
        sizes.iter().find(|(known, _)| *known == size).map_or(&[], |(_, rates)| rates)
    }

    fn at(&self, fourcc: u32) -> Option<usize> {
        self.formats.iter().position(|format| u32::from_le_bytes(format.fourcc) == fourcc)
    }

    /// How the driver adjusts a request: to its first format if it lacks the wanted one, and to the format's first size if it
    /// lacks the wanted one.
    fn adjusted(&self, wanted: &PixFormat) -> (usize, (u32, u32)) {
        let format = self.at(u32::from_le_bytes(wanted.fourcc)).unwrap_or(0);
        let sizes = &self.formats[format].sizes;
        let size = (wanted.width, wanted.height);
        (format, if sizes.iter().any(|(known, _)| *known == size) { size } else { sizes[0].0 })
    }

    fn pix(&self, (format, (width, height)): (usize, (u32, u32))) -> PixFormat {
        let mut memories = [MemoryPlaneFormat::default(); MAX_MEMORY_PLANES];
        memories[0] = MemoryPlaneFormat { pitch_bytes: width * 2, size_bytes: width * height * 2 };
        let fourcc = self.formats.get(format).map_or(*b"none", |format| format.fourcc);
        PixFormat { width, height, fourcc, field: self.field, memories, memory_count: 1, ..PixFormat::default() }
    }

    pub(super) fn answer(&mut self, request: vidioc::_IOC_TYPE, argument: *mut c_void) -> io::Result<()> {
        /// # Safety
        /// The pointer is to a `T`, which `request` says, and nothing else uses it during the call.
        unsafe fn of<'a, T>(argument: *mut c_void) -> &'a mut T {
            // SAFETY: the caller's promise.
            unsafe { &mut *argument.cast::<T>() }
        }
        match request {
            vidioc::VIDIOC_ENUM_FMT => {
                // SAFETY: as the request defines; the same applies below.
                let raw = unsafe { of::<sys::v4l2_fmtdesc>(argument) };
                let Some(format) = self.formats.get(raw.index as usize) else { return error(libc::EINVAL) };
                raw.pixelformat = u32::from_le_bytes(format.fourcc);
                raw.description[..4].copy_from_slice(&format.fourcc);
            }
            vidioc::VIDIOC_G_FMT | vidioc::VIDIOC_TRY_FMT | vidioc::VIDIOC_S_FMT => {
                // SAFETY: as above.
                let raw = unsafe { of::<sys::v4l2_format>(argument) };
                let mut answer = self.current;
                if request != vidioc::VIDIOC_G_FMT {
                    // SAFETY: the caller wrote `pix`, since the type is VIDEO_CAPTURE.
                    answer = self.adjusted(&of_single(unsafe { raw.fmt.pix }));
                }
                if request == vidioc::VIDIOC_S_FMT {
                    self.changes.push("S_FMT");
                    self.current = answer;
                }
                raw.fmt.pix = single(&self.pix(answer));
            }
            vidioc::VIDIOC_ENUM_FRAMESIZES => {
                // SAFETY: as above.
                let raw = unsafe { of::<sys::v4l2_frmsizeenum>(argument) };
                if let Some([smallest, largest, step]) = self.size_range {
                    // The driver returns a range for index 0 only; other indices are errors.
                    if raw.index > 0 {
                        return error(libc::EINVAL);
                    }
                    raw.type_ = sys::v4l2_frmsizetypes_V4L2_FRMSIZE_TYPE_STEPWISE;
                    raw.__bindgen_anon_1.stepwise = sys::v4l2_frmsize_stepwise {
                        min_width: smallest.0,
                        max_width: largest.0,
                        step_width: step.0,
                        min_height: smallest.1,
                        max_height: largest.1,
                        step_height: step.1,
                    };
                    return Ok(());
                }
                let sizes = self.at(raw.pixel_format).map(|at| &self.formats[at].sizes);
                let Some(((width, height), _)) = sizes.and_then(|sizes| sizes.get(raw.index as usize)) else {
                    return error(libc::EINVAL);
                };
                raw.type_ = sys::v4l2_frmsizetypes_V4L2_FRMSIZE_TYPE_DISCRETE;
                raw.__bindgen_anon_1.discrete = sys::v4l2_frmsize_discrete { width: *width, height: *height };
            }
            vidioc::VIDIOC_ENUM_FRAMEINTERVALS => {
                // SAFETY: as above.
                let raw = unsafe { of::<sys::v4l2_frmivalenum>(argument) };
                if let Some((lowest, highest)) = self.rate_range {
                    let every = |fps| sys::v4l2_fract { numerator: 1, denominator: fps };
                    raw.type_ = sys::v4l2_frmivaltypes_V4L2_FRMIVAL_TYPE_CONTINUOUS;
                    // Intervals: the shortest one belongs to the highest rate.
                    raw.__bindgen_anon_1.stepwise =
                        sys::v4l2_frmival_stepwise { min: every(highest), max: every(lowest), step: every(1) };
                    return Ok(());
                }
                let Some(at) = self.at(raw.pixel_format) else { return error(libc::EINVAL) };
                let Some(&fps) = self.rates(at, (raw.width, raw.height)).get(raw.index as usize) else {
                    return error(libc::EINVAL);
                };
                raw.type_ = sys::v4l2_frmivaltypes_V4L2_FRMIVAL_TYPE_DISCRETE;
                raw.__bindgen_anon_1.discrete = sys::v4l2_fract { numerator: 1, denominator: fps };
            }
            vidioc::VIDIOC_G_PARM | vidioc::VIDIOC_S_PARM => {
                // SAFETY: as above.
                let raw = unsafe { of::<sys::v4l2_streamparm>(argument) };
                let Some(fps) = &mut self.fps else { return error(libc::ENOTTY) };
                // SAFETY: any bits are integers.
                let mut capture = unsafe { raw.parm.capture };
                if request == vidioc::VIDIOC_S_PARM {
                    self.changes.push("S_PARM");
                    let wanted = capture.timeperframe.denominator / capture.timeperframe.numerator.max(1);
                    let (format, size) = self.current;
                    let offered = self.formats[format].sizes.iter().find(|(known, _)| *known == size);
                    let nearest = offered.and_then(|(_, rates)| rates.iter().min_by_key(|rate| rate.abs_diff(wanted)));
                    *fps = nearest.copied().unwrap_or(wanted);
                }
                capture.capability = sys::V4L2_CAP_TIMEPERFRAME;
                capture.timeperframe = sys::v4l2_fract { numerator: 1, denominator: *fps };
                raw.parm.capture = capture;
            }
            vidioc::VIDIOC_ENUMINPUT => {
                // SAFETY: as above.
                let raw = unsafe { of::<sys::v4l2_input>(argument) };
                let Some((name, status, capabilities)) = self.inputs.get(raw.index as usize) else {
                    return error(libc::EINVAL);
                };
                raw.name[..name.len()].copy_from_slice(name.as_bytes());
                (raw.status, raw.capabilities) = (*status, *capabilities);
            }
            vidioc::VIDIOC_G_INPUT if !self.inputs.is_empty() => {
                // SAFETY: as above.
                *unsafe { of::<libc::c_int>(argument) } = self.input as libc::c_int;
            }
            vidioc::VIDIOC_S_INPUT => {
                self.changes.push("S_INPUT");
                // SAFETY: as above.
                let wanted = *unsafe { of::<libc::c_int>(argument) } as u32;
                if let Some(code) = self.input_error {
                    return error(code);
                }
                if wanted as usize >= self.inputs.len() {
                    return error(libc::EINVAL);
                }
                self.input = wanted;
            }
            sys::VIDIOC_QUERY_DV_TIMINGS | sys::VIDIOC_G_DV_TIMINGS => {
                let measured = if request == sys::VIDIOC_G_DV_TIMINGS { self.timings.map(Ok) } else { self.signal };
                match measured {
                    // SAFETY: as above. The struct is packed, so it is written as a whole.
                    Some(Ok(timings)) => unsafe {
                        argument.cast::<sys::v4l2_dv_timings>().write_unaligned(timings.raw())
                    },
                    Some(Err(code)) => return error(code),
                    None => return error(libc::ENOTTY),
                }
            }
            sys::VIDIOC_S_DV_TIMINGS => {
                self.changes.push("S_DV_TIMINGS");
                // SAFETY: as above.
                let raw = unsafe { argument.cast::<sys::v4l2_dv_timings>().read_unaligned() };
                self.timings = Some(FakeTimings::of(&raw));
            }
            vidioc::VIDIOC_QUERY_EXT_CTRL => {
                // SAFETY: as above.
                let raw = unsafe { of::<sys::v4l2_query_ext_ctrl>(argument) };
                let next = sys::V4L2_CTRL_FLAG_NEXT_CTRL | sys::V4L2_CTRL_FLAG_NEXT_COMPOUND;
                let last = raw.id & !next;
                let found = match raw.id & next {
                    0 => self.controls.iter().find(|control| control.id == last),
                    _ => self.controls.iter().filter(|control| control.id > last).min_by_key(|control| control.id),
                };
                let Some(control) = found else { return error(libc::EINVAL) };
                (raw.id, raw.type_, raw.flags) = (control.id, control.kind, control.flags);
                raw.name.iter_mut().zip(control.title.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
                (raw.minimum, raw.maximum) = control.range;
                (raw.step, raw.default_value, raw.elem_size) = (control.step, control.default, 4);
                (raw.elems, raw.nr_of_dims) = match control.array.len() {
                    0 => (1, 0),
                    elements => (elements as u32, 1),
                };
            }
            vidioc::VIDIOC_QUERYMENU => {
                // SAFETY: as above.
                let raw = unsafe { of::<sys::v4l2_querymenu>(argument) };
                let (id, index) = (raw.id, raw.index);
                let control = self.controls.iter().find(|control| control.id == id);
                let items = control.map_or(&[][..], |control| &control.items);
                let Some((_, text)) = items.iter().find(|(known, _)| *known == index) else {
                    return error(libc::EINVAL);
                };
                let is_number =
                    control.is_some_and(|control| control.kind == sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER_MENU);
                raw.__bindgen_anon_1 = if is_number {
                    sys::v4l2_querymenu__bindgen_ty_1 { value: text.parse().expect("a number") }
                } else {
                    let mut name = [0; 32];
                    name[..text.len()].copy_from_slice(text.as_bytes());
                    sys::v4l2_querymenu__bindgen_ty_1 { name }
                };
            }
            vidioc::VIDIOC_G_EXT_CTRLS | vidioc::VIDIOC_S_EXT_CTRLS => {
                // SAFETY: as above; every caller passes one control, at which `controls` points.
                let raw = unsafe { &mut *of::<sys::v4l2_ext_controls>(argument).controls };
                let (id, size) = (raw.id, raw.size as usize);
                let Some(control) = self.controls.iter_mut().find(|control| control.id == id) else {
                    return error(libc::EINVAL);
                };
                let is_text = control.kind == sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_STRING;
                if request == vidioc::VIDIOC_S_EXT_CTRLS {
                    let number = match control.kind {
                        // SAFETY: any bits are a number; the caller wrote this one.
                        sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER64 => unsafe { raw.__bindgen_anon_1.value64 },
                        // SAFETY: as above.
                        _ if !is_text => i64::from(unsafe { raw.__bindgen_anon_1.value }),
                        _ => 0,
                    };
                    self.writes.push((id, number));
                    if let Some(code) = control.error {
                        return error(code);
                    }
                    if is_text {
                        // SAFETY: the caller's text has `size` bytes, the last of which is zero.
                        let text = unsafe { std::ffi::CStr::from_ptr(raw.__bindgen_anon_1.string) };
                        assert_eq!(text.count_bytes() + 1, size);
                        control.text = text.to_string_lossy().into_owned();
                    }
                    control.value = control.becomes.unwrap_or(number);
                } else if is_text {
                    if size <= control.text.len() {
                        return error(libc::ENOSPC);
                    }
                    // SAFETY: the caller's memory has `size` bytes, more than the text, and zeros.
                    unsafe {
                        let to = raw.__bindgen_anon_1.string.cast::<u8>();
                        ptr::copy_nonoverlapping(control.text.as_ptr(), to, control.text.len());
                    }
                } else if !control.array.is_empty() {
                    let count = control.array.len().min(size / 4);
                    // SAFETY: the caller's memory has `size` bytes.
                    unsafe { ptr::copy_nonoverlapping(control.array.as_ptr(), raw.__bindgen_anon_1.p_u32, count) };
                } else if control.kind == sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER64 {
                    raw.__bindgen_anon_1.value64 = control.value;
                } else {
                    raw.__bindgen_anon_1.value = control.value as i32;
                }
            }
            sys::VIDIOC_SUBSCRIBE_EVENT if self.events.is_some() => {}
            sys::VIDIOC_DQEVENT => {
                let Some(kind) = self.events.as_mut().and_then(VecDeque::pop_front) else { return error(libc::ENOENT) };
                // SAFETY: as above.
                unsafe { of::<sys::v4l2_event>(argument) }.type_ = kind;
            }
            _ => return error(libc::ENOTTY),
        }
        Ok(())
    }
}
