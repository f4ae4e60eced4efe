//! A socket pair that wakes a thread that sleeps in `poll`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Wakes a thread that sleeps in `poll`.
#[derive(Debug)]
pub struct WakePipe {
    /// Readable from [`WakePipe::wake`] until [`WakePipe::clear`]; non-blocking.
    pub reader: UnixStream,
    writer: UnixStream,
}

impl WakePipe {
    /// Creates the pipe; it is not readable yet.
    ///
    /// # Errors
    /// The process has run out of file descriptors.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self { reader, writer })
    }

    /// Wakes the sleeper, now or when it next polls.
    pub fn wake(&self) {
        // A full pipe is already readable.
        let _ = (&self.writer).write(&[1]);
    }

    /// Makes the pipe unreadable until the next [`WakePipe::wake`].
    pub fn clear(&self) {
        while matches!((&self.reader).read(&mut [0; 64]), Ok(64)) {}
    }

    /// Returns another descriptor of the writing side; a byte written to it wakes the sleeper.
    pub(crate) fn writer(&self) -> io::Result<UnixStream> {
        self.writer.try_clone()
    }
}
