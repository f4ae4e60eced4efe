//! Frames for tests.

#![allow(clippy::unwrap_used)]

use visiond_kernels::buffer::Memory;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};

use crate::clock::{SystemClock, now};
use crate::frame::{Frame, FramePool};

/// Returns a grey frame of 4x2 pixels from `pool`, each of value `sequence`.
pub fn frame(pool: &FramePool, sequence: u64) -> Option<Frame> {
    let layout = FrameLayout::packed(PixelFormat::Grey, 4, 2, ColorDescription::default()).unwrap();
    let mut buffer = pool.take()?;
    buffer.as_mut_slice().fill(sequence as u8);
    Some(Frame {
        layout,
        buffer: buffer.into(),
        sequence,
        timestamp: now(&SystemClock),
        recorded_at: None,
        damaged: false,
        name: None,
    })
}

/// Returns a pool of buffers for [`frame`].
pub fn pool(buffers: usize) -> FramePool {
    FramePool::new(&Memory::host(), buffers, 8).unwrap()
}
