//! A camera's picture, as JPEG and as pixels.

use std::time::Instant;

use bytes::Bytes;
use visiond_flow::frame::Frame;
use visiond_kernels::buffer::{BufferError, UnifiedBuffer};
use visiond_kernels::frame::{FrameError, FrameLayout, FrameView};

/// A picture of a camera, as JPEG.
#[derive(Debug)]
pub struct Picture {
    /// The JPEG file.
    pub jpeg: Bytes,
    /// The frame's sequence number, the same as in its message.
    pub sequence: u64,
    /// When the picture was encoded.
    pub made: Instant,
}

/// A copy of a frame in memory of its own.
#[derive(Debug)]
pub struct OwnedFrame {
    /// Size, pixel format and planes.
    pub layout: FrameLayout,
    /// The bytes of the planes.
    pub buffer: UnifiedBuffer,
}

impl OwnedFrame {
    /// Copies a frame.
    pub fn copy_of(frame: &Frame) -> Result<Self, BufferError> {
        let bytes = frame.buffer.as_slice();
        let needed = frame.layout.needed_bytes().min(bytes.len());
        let mut buffer = UnifiedBuffer::host(needed)?;
        buffer.as_mut_slice().copy_from_slice(&bytes[..needed]);
        Ok(Self { layout: frame.layout, buffer })
    }

    /// Returns the pixels.
    pub fn view(&self) -> Result<FrameView<'_>, FrameError> {
        self.layout.view_of(&self.buffer)
    }
}
