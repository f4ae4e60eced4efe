//! A camera for tests, with a driver that answers a node's ioctls as the kernel's documentation says. It gives no frames.

#![allow(clippy::expect_used)]

use std::collections::VecDeque;
use std::os::raw::c_void;

use super::*;

/// What the camera offers, and what was set. A test changes it at any time.
#[derive(Debug, Default)]
pub struct FakeCamera {
    pub formats: Vec<FakeFormat>,
    /// Of TRY_FMT and S_FMT: the field order that it answers.
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
    /// What is measured at the input, or the error.
    pub signal: Option<Result<FakeTimings, i32>>,
    pub timings: Option<FakeTimings>,
    /// `V4L2_EVENT_*` that wait; `None` if the driver has no events.
    pub events: Option<VecDeque<u32>>,
    /// The calls that change something, in their order.
    pub changes: Vec<&'static str>,
}

/// A pixel format with its sizes, and the frames per second of each.
#[derive(Debug, Clone)]
pub struct FakeFormat {
    pub fourcc: FourCc,
    pub sizes: Vec<((u32, u32), Vec<u32>)>,
}

/// Timings of a digital signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakeTimings {
    pub size: (u32, u32),
    /// Pixels of blanking beside and below the picture.
    pub blanking: (u32, u32),
    pub pixel_clock: u64,
}

impl FakeTimings {
    fn raw(self) -> sys::v4l2_dv_timings {
        // SAFETY: integers, and a union of them, for which zeros are values.
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
        Node { fake: Some(Mutex::new(self)), ..Node::of(file, Path::new("/dev/video9")) }
    }

    fn rates(&self, format: usize, size: (u32, u32)) -> &[u32] {
        let sizes = self.formats.get(format).map_or(&[][..], |format| &format.sizes);
        sizes.iter().find(|(known, _)| *known == size).map_or(&[], |(_, rates)| rates)
    }

    fn at(&self, fourcc: u32) -> Option<usize> {
        self.formats.iter().position(|format| u32::from_le_bytes(format.fourcc) == fourcc)
    }

    /// What the driver makes of a request: the first format if it lacks that one, and the format's first size if it lacks that.
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
                // SAFETY: as the request says; and so below.
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
