//! A camera that is always ready: 1080p YUYV frames of a moving image, in buffers of any kind of memory.

use visiond_kernels::buffer::{Memory, UnifiedBuffer};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, FrameView, PixelFormat};

use crate::measure::Noise;
use crate::report::Failure;

/// Prepared frames, returned in turn.
pub struct Camera {
    layout: FrameLayout,
    buffers: Vec<UnifiedBuffer>,
    /// The image in the last buffer.
    picture: Vec<u8>,
}

impl Camera {
    /// Buffers like those that a capture driver cycles through, each with its own image.
    pub const BUFFERS: usize = 4;

    /// Allocates the buffers and fills them.
    pub fn new(memory: &Memory) -> Result<Self, Failure> {
        let layout = FrameLayout::packed(PixelFormat::Yuyv, 1920, 1080, ColorDescription::default())?;
        let mut buffers = Vec::new();
        for index in 0..Self::BUFFERS {
            let mut buffer = memory.allocate(layout.size_bytes())?;
            let bytes = buffer.as_mut_slice();
            Noise::new(index as u64).fill(bytes);
            for (at, byte) in bytes.iter_mut().enumerate() {
                let (x, y) = (at % 3840, at / 3840);
                let slope = if x % 2 == 0 { 40 + (x / 16 + y / 8 + index * 8) % 160 } else { 120 };
                *byte = u8::try_from(slope).unwrap_or(128) + *byte % 8;
            }
            buffers.push(buffer);
        }
        let picture = buffers.last().map_or(Vec::new(), |buffer| buffer.as_slice().to_vec());
        Ok(Self { layout, buffers, picture })
    }

    /// Returns the bytes of one frame.
    pub fn frame_bytes(&self) -> usize {
        self.layout.size_bytes()
    }

    /// Writes frame `number` again, as a camera does before each run.
    pub fn write(&mut self, number: usize) {
        let count = self.buffers.len();
        self.buffers[number % count].as_mut_slice().copy_from_slice(&self.picture);
    }

    /// Returns frame `number`.
    pub fn frame(&self, number: usize) -> Result<FrameView<'_>, Failure> {
        Ok(self.layout.view_of(&self.buffers[number % self.buffers.len()])?)
    }
}
