//! Frames of one size out of a program's pipe into pooled buffers, one copy (the kernel's) and no more.

use std::io;
use std::time::{Duration, Instant};

use visiond_config::types::Pace;
use visiond_flow::frame::{FramePool, PooledBuffer};
use visiond_kernels::frame::FrameLayout;
use visiond_system::child_process::{Child, Filled};
use visiond_system::stop::Stop;

use super::buffers::Buffers;
use super::source::SourceError;

/// What came of reading one frame.
#[derive(Debug)]
pub enum ReadFrame {
    /// It is here.
    Frame(PooledBuffer),
    /// It was read and thrown away: every buffer was on its way.
    Dropped,
    /// The program closed its output after so many bytes of a frame.
    Ended(usize),
    /// Stop was raised.
    Stopped,
    /// Nothing, or not all of it, came in time.
    TimedOut,
}

/// The buffers of a source that reads a pipe.
#[derive(Debug)]
pub struct PipeFrames {
    /// Shape of every frame.
    pub layout: FrameLayout,
    pool: FramePool,
    /// Takes the frames that nobody wants; empty until the first.
    discarded: Vec<u8>,
    pace: Pace,
}

impl PipeFrames {
    /// Makes the buffers.
    pub fn new(layout: FrameLayout, buffers: &Buffers, pace: Pace) -> Result<Self, SourceError> {
        Ok(Self { layout, pool: buffers.pool(layout.size_bytes())?, discarded: Vec::new(), pace })
    }

    /// The bytes of the last frame that was [dropped](ReadFrame::Dropped).
    pub fn dropped(&self) -> &[u8] {
        &self.discarded
    }

    /// Reads the next frame. At pace fastest it waits for a buffer, else the frame is dropped when there is none.
    ///
    /// `timeout` is the program's: the wait for a buffer does not count.
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
