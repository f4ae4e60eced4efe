//! Which ways of I/O a node has, asked without disturbing who streams from it.

use v4l::v4l_sys as sys;

use super::raw::{self, MemoryType};
use crate::capture::v4l2::device::Node;

/// Which ways of I/O a node has. `None`: another program streams from it, and the driver does not tell meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoModes {
    /// The driver writes into memory of ours.
    pub userptr: Option<bool>,
    /// The driver's memory is mapped.
    pub mmap: Option<bool>,
}

/// Asks `node`. A driver that takes memory of ours may still refuse the one that it is given.
pub fn io_modes(node: &Node) -> IoModes {
    // A request for no buffers frees those of this descriptor, which has none; it is refused where another one has some.
    let ask = |memory, flag| match raw::request(node, memory, 0) {
        Ok(granted) => Some(granted.capabilities == 0 || granted.capabilities & flag != 0),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => None,
        Err(_) => Some(false),
    };
    IoModes {
        userptr: ask(MemoryType::UserPtr, sys::V4L2_BUF_CAP_SUPPORTS_USERPTR),
        mmap: ask(MemoryType::Mmap, sys::V4L2_BUF_CAP_SUPPORTS_MMAP),
    }
}
