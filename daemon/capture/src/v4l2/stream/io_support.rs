//! Queries which I/O methods a node supports, without disturbing a program that streams from it.

use std::sync::Arc;

use v4l::v4l_sys as sys;
use visiond_kernels::buffer::Memory;

use super::ioctl::{self, MemoryType};
use super::{BufferOrigin, IoRefusal, Stream};
use crate::v4l2::device::{MAX_MEMORY_PLANES, Node};

/// Which I/O methods a node supports. `None`: unknown, because another program streams from the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoSupport {
    /// The driver writes into visiond's memory.
    pub userptr: Option<bool>,
    /// The driver's memory can be mapped.
    pub mmap: Option<bool>,
}

/// Queries `node`. A driver that supports USERPTR may still refuse a particular kind of memory.
pub fn io_support(node: &Node) -> IoSupport {
    // Requesting no buffers frees this descriptor's buffers, of which there are none; it fails if another descriptor has some.
    let ask = |memory, flag| match ioctl::request(node, memory, 0) {
        Ok(granted) => Some(granted.capabilities == 0 || granted.capabilities & flag != 0),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => None,
        Err(_) => Some(false),
    };
    IoSupport {
        userptr: ask(MemoryType::UserPtr, sys::V4L2_BUF_CAP_SUPPORTS_USERPTR),
        mmap: ask(MemoryType::Mmap, sys::V4L2_BUF_CAP_SUPPORTS_MMAP),
    }
}

/// The result of trying each I/O method. `expbuf` is `None` if there is no driver's buffer to export.
#[derive(Debug)]
pub struct IoTrial {
    /// The driver's memory, mapped and queued.
    pub mmap: Result<(), IoRefusal>,
    /// Ordinary memory of ours, queued.
    pub userptr: Result<(), IoRefusal>,
    /// The driver's memory as a DMA-BUF.
    pub expbuf: Option<Result<(), IoRefusal>>,
}

/// Tries every method with two buffers of the current format, without starting the stream. Nothing else may stream.
pub fn try_io_methods(node: &Arc<Node>) -> IoTrial {
    const BUFFERS: u32 = 2;
    let pix = node.format().unwrap_or_default();
    let (lengths, memory_plane_count) =
        (pix.memories.map(|memory| memory.size_bytes as usize), pix.memory_count.min(MAX_MEMORY_PLANES));
    let mapped = Stream::new(node, BufferOrigin::Driver, BUFFERS, lengths, memory_plane_count);
    let expbuf = mapped.as_ref().ok().map(|_| ioctl::export(node, 0).map(drop).map_err(IoRefusal::of("EXPBUF")));
    // These buffers must be freed before another method can have buffers.
    let mmap = mapped.map(drop);
    let userptr =
        Stream::new(node, BufferOrigin::Ours(&Memory::host()), BUFFERS, lengths, memory_plane_count).map(drop);
    IoTrial { mmap, userptr, expbuf }
}
