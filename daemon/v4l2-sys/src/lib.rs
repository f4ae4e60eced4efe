//! The kernel's V4L2 structures and constants, for 64-bit Linux.
//!
//! `generate` made `bindings.rs` from Linux 5.10's headers, the oldest kernel that visiond runs on (JetPack 5); the kernel only
//! ever adds to them. The constants in `bindings.rs` that compute to `[(); 0]` check each structure's size and offsets
//! against libclang's values on every architecture. `tests/kernel_headers.rs` checks the same figures, and the numbers of the
//! ioctls, against the kernel's headers.

#![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("these bindings are for 64-bit little-endian Linux: run daemon/v4l2-sys/generate for another one");

use std::os::raw::c_ulong;

include!("bindings.rs");

/// The number of a request, computed like in `linux/ioctl.h`.
const fn request<T>(direction: c_ulong, number: c_ulong) -> c_ulong {
    (direction << 30) | ((size_of::<T>() as c_ulong) << 16) | ((b'V' as c_ulong) << 8) | number
}

const WRITE: c_ulong = 1;
const READ: c_ulong = 2;

// The ioctls that `v4l::v4l2::vidioc` leaves out.
pub const VIDIOC_S_DV_TIMINGS: c_ulong = request::<v4l2_dv_timings>(READ | WRITE, 87);
pub const VIDIOC_G_DV_TIMINGS: c_ulong = request::<v4l2_dv_timings>(READ | WRITE, 88);
pub const VIDIOC_DQEVENT: c_ulong = request::<v4l2_event>(READ, 89);
pub const VIDIOC_SUBSCRIBE_EVENT: c_ulong = request::<v4l2_event_subscription>(WRITE, 90);
pub const VIDIOC_QUERY_DV_TIMINGS: c_ulong = request::<v4l2_dv_timings>(READ, 99);
