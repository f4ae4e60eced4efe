//! Reads frames of one size from a program's pipe into pooled buffers, with no copy but the kernel's.

use std::io;
use std::time::{Duration, Instant};

use visiond_config::types::Pace;
use visiond_flow::frame::{FramePool, PooledBuffer};
use visiond_kernels::frame::FrameLayout;
use visiond_system::child_process::{Child, Filled};
use visiond_system::stop::Stop;

use super::buffers::Buffers;
use super::source::SourceError;

/// The result of reading one frame.
#[derive(Debug)]
pub enum ReadFrame {
    /// A frame.
    Frame(PooledBuffer),
    /// The frame was read and discarded, because every buffer was in use.
    Dropped,
    /// The program closed its output after this many bytes of a frame.
    Ended(usize),
    /// Stop was raised.
    Stopped,
    /// The frame did not arrive in full in time.
    TimedOut,
}

/// The buffers of a source that reads a pipe.
#[derive(Debug)]
pub struct PipeFrames {
    /// The layout of every frame.
    pub layout: FrameLayout,
    pool: FramePool,
    /// Receives discarded frames; empty until the first.
    discarded: Vec<u8>,
    pace: Pace,
}

impl PipeFrames {
    /// Allocates the buffers.
    pub fn new(layout: FrameLayout, buffers: &Buffers, pace: Pace) -> Result<Self, SourceError> {
        Ok(Self { layout, pool: buffers.pool(layout.size_bytes())?, discarded: Vec::new(), pace })
    }

    /// Returns the bytes of the last frame that was [dropped](ReadFrame::Dropped).
    pub fn dropped(&self) -> &[u8] {
        &self.discarded
    }

    /// Reads the next frame. With `pace = "fastest"` it waits for a free buffer; otherwise it discards the frame if no buffer
    /// is free.
    ///
    /// `timeout` applies to the program: waiting for a buffer does not count.
    pub fn read(&mut self, child: &mut Child, stop: &Stop, timeout: Duration) -> io::Result<ReadFrame> {
        let bytes = self.layout.size_bytes();
        let buffer = match self.pace {
            Pace::Fastest => match self.pool.take_wait(stop) {
                Some(buffer) => Some(buffer),
                None => return Ok(ReadFrame::Stopped),
            },
            Pace::Realtime => self.pool.take(),
        };
        let deadline = Instant::now() + timeout;
        let (filled, frame) = match buffer {
            Some(mut buffer) => {
                let filled = child.fill(&mut buffer.as_mut_slice()[..bytes], stop, deadline)?;
                (filled, ReadFrame::Frame(buffer))
            }
            None => {
                self.discarded.resize(bytes, 0);
                (child.fill(&mut self.discarded, stop, deadline)?, ReadFrame::Dropped)
            }
        };
        Ok(match filled {
            Filled::Full => frame,
            Filled::Ended(read) => ReadFrame::Ended(read),
            Filled::Stopped => ReadFrame::Stopped,
            Filled::TimedOut => ReadFrame::TimedOut,
        })
    }
}
