//! The ioctls for buffers, for both APIs.

use std::os::fd::{FromRawFd, OwnedFd};
use std::{io, mem};

use v4l::v4l_sys as sys;
use v4l::v4l2::vidioc;

use crate::v4l2::device::{Api, MAX_MEMORY_PLANES, Node};

/// Whose memory the driver fills, as `V4L2_MEMORY_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MemoryType {
    /// The driver allocates the memory, and visiond maps it.
    Mmap = sys::v4l2_memory_V4L2_MEMORY_MMAP,
    /// visiond allocates the memory, and the driver writes into it.
    UserPtr = sys::v4l2_memory_V4L2_MEMORY_USERPTR,
}

/// REQBUFS: requests `count` buffers; 0 frees them. The answer's `capabilities` are 0 with a kernel before 4.20.
pub fn request(node: &Node, memory: MemoryType, count: u32) -> io::Result<sys::v4l2_requestbuffers> {
    let fill = |raw: &mut sys::v4l2_requestbuffers| {
        (raw.count, raw.type_, raw.memory) = (count, node.api() as u32, memory as u32);
    };
    // SAFETY: REQBUFS reads and writes a v4l2_requestbuffers, integers.
    unsafe { node.query(vidioc::VIDIOC_REQBUFS, fill) }
}

/// EXPBUF: exports the first memory plane of the driver's buffer `index` as a DMA-BUF.
pub fn export(node: &Node, index: u32) -> io::Result<OwnedFd> {
    let fill = |raw: &mut sys::v4l2_exportbuffer| {
        (raw.type_, raw.index, raw.flags) = (node.api() as u32, index, libc::O_CLOEXEC as u32);
    };
    // SAFETY: EXPBUF reads and writes a v4l2_exportbuffer, integers.
    let raw = unsafe { node.query(vidioc::VIDIOC_EXPBUF, fill)? };
    // SAFETY: the call created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw.fd) })
}

pub struct RawBuffer {
    buffer: sys::v4l2_buffer,
    planes: [sys::v4l2_plane; MAX_MEMORY_PLANES],
    api: Api,
}

impl RawBuffer {
    /// Describes the buffer `index` of `node`.
    pub fn new(node: &Node, memory: MemoryType, index: u32) -> Self {
        // SAFETY: the struct holds integers, and unions of integers with a raw pointer; zeros are valid for all of them.
        let mut buffer: sys::v4l2_buffer = unsafe { mem::zeroed() };
        buffer.index = index;
        buffer.type_ = node.api() as u32;
        buffer.memory = memory as u32;
        // SAFETY: the struct holds integers and unions of them.
        Self { buffer, planes: unsafe { mem::zeroed() }, api: node.api() }
    }

    /// Sets the address of a memory plane (USERPTR).
    pub fn point(&mut self, memory: usize, address: usize, length: usize) {
        // Buffers over 2 GiB were rejected earlier: see `MemoryPlanes`.
        let (address, length) = (address as libc::c_ulong, length as u32);
        match self.api {
            Api::Single => (self.buffer.m.userptr, self.buffer.length) = (address, length),
            Api::Multi => (self.planes[memory].m.userptr, self.planes[memory].length) = (address, length),
        }
    }

    /// QUERYBUF: returns the mmap offset and the length of each memory plane.
    pub fn query(&mut self, node: &Node) -> io::Result<[(u32, usize); MAX_MEMORY_PLANES]> {
        // SAFETY: QUERYBUF reads and writes a v4l2_buffer.
        unsafe { self.call(node, vidioc::VIDIOC_QUERYBUF)? };
        Ok(match self.api {
            // SAFETY: the memory is MMAP, so the kernel wrote `offset`; any bits are a valid integer.
            Api::Single => [(unsafe { self.buffer.m.offset }, self.buffer.length as usize), (0, 0), (0, 0)],
            // SAFETY: as above, for each plane; unused ones are zero.
            Api::Multi => self.planes.map(|plane| (unsafe { plane.m.mem_offset }, plane.length as usize)),
        })
    }

    /// QBUF: gives the buffer to the driver.
    ///
    /// # Safety
    ///
    /// For USERPTR, the memory that was [pointed](Self::point) at must belong to this process, and must stay allocated and
    /// unread until the driver gives the buffer back or REQBUFS frees its buffers.
    pub unsafe fn queue(&mut self, node: &Node) -> io::Result<()> {
        // SAFETY: QBUF reads and writes a v4l2_buffer; the caller guarantees the rest.
        unsafe { self.call(node, vidioc::VIDIOC_QBUF) }
    }

    /// DQBUF: dequeues a filled buffer.
    pub fn dequeue(&mut self, node: &Node) -> io::Result<&sys::v4l2_buffer> {
        // SAFETY: DQBUF reads and writes a v4l2_buffer.
        unsafe { self.call(node, vidioc::VIDIOC_DQBUF)? };
        Ok(&self.buffer)
    }

    /// Returns the used bytes of each memory plane.
    pub fn used(&self) -> [Used; MAX_MEMORY_PLANES] {
        let of = |end: u32, start: u32| Used { start: start as usize, end: end as usize };
        match self.api {
            Api::Single => [of(self.buffer.bytesused, 0), Used::default(), Used::default()],
            Api::Multi => self.planes.map(|plane| of(plane.bytesused, plane.data_offset)),
        }
    }

    /// # Safety
    ///
    /// `request` must read and write a v4l2_buffer; for QBUF, its conditions apply.
    unsafe fn call(&mut self, node: &Node, request: vidioc::_IOC_TYPE) -> io::Result<()> {
        if self.api == Api::Multi {
            // The struct may have moved since the last call.
            self.buffer.m.planes = self.planes.as_mut_ptr();
            self.buffer.length = self.planes.len() as u32;
        }
        // SAFETY: guaranteed by the caller; its only pointer is to `planes`, `length` of them, which live as long.
        unsafe { node.ioctl(request, &mut self.buffer) }
    }
}

/// The bytes of a memory plane that belong to the frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// The first byte (`data_offset`).
    pub start: usize,
    /// The end (`bytesused`).
    pub end: usize,
}
