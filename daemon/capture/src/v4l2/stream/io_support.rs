//! Which ways of I/O a node has, asked without disturbing who streams from it.

use std::sync::Arc;

use v4l::v4l_sys as sys;
use visiond_kernels::buffer::Memory;

use super::ioctl::{self, MemoryType};
use super::{Refusal, Source, Stream};
use crate::v4l2::device::{MAX_MEMORY_PLANES, Node};

/// Which ways of I/O a node has. `None`: another program streams from it, and the driver does not tell meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoSupport {
    /// The driver writes into memory of ours.
    pub userptr: Option<bool>,
    /// The driver's memory is mapped.
    pub mmap: Option<bool>,
}

/// Asks `node`. A driver that takes memory of ours may still refuse the one that it is given.
pub fn io_support(node: &Node) -> IoSupport {
    // A request for no buffers frees those of this descriptor, which has none; it is refused where another one has some.
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

/// Buffers of each way. `None` of EXPBUF: there is no buffer of the driver's to export.
#[derive(Debug)]
pub struct IoTrial {
    /// The driver's memory, mapped and queued.
    pub mmap: Result<(), Refusal>,
    /// Ordinary memory of ours, queued.
    pub userptr: Result<(), Refusal>,
    /// The driver's memory as a DMA-BUF.
    pub expbuf: Option<Result<(), Refusal>>,
}

/// Tries every way with two buffers of the format that is set, without starting the stream. Nothing else may stream.
pub fn try_io_methods(node: &Arc<Node>) -> IoTrial {
    const BUFFERS: u32 = 2;
    let pix = node.format().unwrap_or_default();
    let (lengths, memories) =
        (pix.memories.map(|memory| memory.size_bytes as usize), pix.memory_count.min(MAX_MEMORY_PLANES));
    let mapped = Stream::new(node, Source::Driver, BUFFERS, lengths, memories);
    let expbuf = mapped.as_ref().ok().map(|_| ioctl::export(node, 0).map(drop).map_err(Refusal::of("EXPBUF")));
    // Its buffers go before those of another way can be had.
    let mmap = mapped.map(drop);
    let userptr = Stream::new(node, Source::Ours(&Memory::host()), BUFFERS, lengths, memories).map(drop);
    IoTrial { mmap, userptr, expbuf }
}
