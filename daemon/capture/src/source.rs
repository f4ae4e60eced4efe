//! The interface of every source of frames.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_frames::frame::{Frame, LossCause};
use visiond_system::exit::Exit;
use visiond_system::preflight::Certainty;
use visiond_system::stop::{Stop, Wake};

/// The result of waiting for a frame.
#[derive(Debug)]
pub enum Next {
    /// A frame.
    Frame(Frame),
    /// Frames were lost on the way to visiond: they were damaged, or the driver had no buffer. Call again.
    Lost {
        /// How many frames.
        frames: u64,
        /// The cause.
        cause: LossCause,
    },
    /// There is nothing to read, and the source waits by itself until there is. Returned at the start and when the reason
    /// changes. Call again.
    Waiting {
        /// A sentence: what is missing and what to check.
        reason: Arc<str>,
    },
    /// The source has no more frames: a file that is not repeated ended.
    End,
    /// The daemon is stopping.
    Stopped,
}

/// What a source did on a thread that it shares with others: see [`Source::work`].
#[derive(Debug)]
pub enum Worked {
    /// As [`Source::next`] returns it. Call again.
    Next(Next),
    /// There is nothing to do until the source's socket can be read, or until this time.
    Idle(Instant),
    /// What it does next takes long: call [`Source::next`], on a thread of its own.
    NeedsThread,
}

/// An open source: one camera, one file, one program.
pub trait Source: Send {
    /// Waits for the next frame. Returns within 100 ms of `stop`.
    ///
    /// # Errors
    ///
    /// The source has failed: the supervisor drops it and opens it again after a back-off.
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError>;

    /// Returns the socket that can be read when there is work, if the work is so little that many sources can share a thread:
    /// then [`work`](Self::work) does it. `None` while the source needs a thread of its own, which most do always.
    fn shares_thread(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Does what [`next`](Self::next) does, without waiting. `is_readable` says whether the source's socket can be read.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    fn work(&mut self, _is_readable: bool, _stop: &Stop) -> Result<Worked, SourceError> {
        Ok(Worked::NeedsThread)
    }

    /// Returns one line for the log and `probe`: device, size, format, rate, I/O.
    fn describe(&self) -> String;

    /// Whether an open source without frames is as it should be: a folder that is watched for new pictures.
    fn may_idle(&self) -> bool {
        false
    }

    /// Returns how frames come out of a driver, as the configuration calls it; `None` for other sources, and without a stream.
    fn io(&self) -> Option<&'static str> {
        None
    }

    /// Returns what decodes a stream, as the configuration calls it; `None` for other sources, and before the first frame.
    fn decoder(&self) -> Option<&'static str> {
        None
    }

    /// Returns how many bytes of frames were copied so far from a driver's buffer or a decoder's picture into the frame's
    /// buffer. Bytes that are read from a pipe or decoded straight into the buffer do not count.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

/// A source cannot be opened, or has failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// A sentence: what visiond tried, what the system said, what to do.
    pub message: Arc<str>,
    /// What can help.
    pub kind: SourceErrorKind,
}

/// What can help a source that cannot be opened, or has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// Another attempt may help.
    Transient,
    /// The camera is away and may be back at any moment: another attempt costs little and must not wait for long.
    Absent,
    /// The user must change something: a file is not a video.
    Permanent,
    /// A new process, because this one has lost its GPU.
    GpuLost,
    /// A new process, because the unit's device list is older than the driver.
    DeviceListOutdated,
}

impl SourceError {
    /// Creates an error that another attempt may solve.
    pub fn transient(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), kind: SourceErrorKind::Transient }
    }

    /// Creates an error of a camera that is away, and may be back at any moment.
    pub fn absent(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), kind: SourceErrorKind::Absent }
    }

    /// Creates an error that stays until the user changes something.
    pub fn permanent(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), kind: SourceErrorKind::Permanent }
    }

    /// Creates the error of a process that has lost its GPU.
    pub fn gpu_lost(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), kind: SourceErrorKind::GpuLost }
    }

    /// Whether another attempt may help.
    pub fn may_pass(&self) -> bool {
        matches!(self.kind, SourceErrorKind::Transient | SourceErrorKind::Absent)
    }

    /// Whether the camera is away and may be back at any moment.
    pub fn is_absent(&self) -> bool {
        self.kind == SourceErrorKind::Absent
    }

    /// Returns the status to end with, if only a new process can help.
    pub fn restart(&self) -> Option<Exit> {
        match self.kind {
            SourceErrorKind::Transient | SourceErrorKind::Absent | SourceErrorKind::Permanent => None,
            SourceErrorKind::GpuLost => Some(Exit::GpuLost),
            SourceErrorKind::DeviceListOutdated => Some(Exit::Input),
        }
    }
}

/// Why a source cannot be opened as it is configured.
#[derive(Debug)]
pub struct SourceFault {
    /// The key of its `[camera.source]` that is to blame.
    pub key: &'static str,
    /// The error that opening it has.
    pub error: SourceError,
    /// Whether the service would fail likewise.
    pub certainty: Certainty,
}

impl SourceFault {
    /// Creates a fault that lasts until the user fixes it.
    pub(super) fn new(key: &'static str, error: SourceError) -> Self {
        Self { key, error, certainty: Certainty::Certain }
    }
}

/// Opens a camera's source.
pub type Open = Box<dyn Opener>;

/// Opens a source, again and again. A closure is enough where there is nothing to remember and no event to wait for.
pub trait Opener: Send {
    /// Tries to open the source.
    fn open(&mut self) -> Result<Box<dyn Source>, SourceError>;

    /// Whether the source is a device, which can come back or be replaced without notice.
    fn is_device(&self) -> bool {
        false
    }

    /// Waits until another attempt may help: returns [`Wake::Ready`] on an event, [`Wake::TimedOut`] after `pause`.
    fn wait(&mut self, pause: Duration, stop: &Stop) -> Wake {
        if stop.sleep(pause) { Wake::Stopped } else { Wake::TimedOut }
    }
}

impl<F: FnMut() -> Result<Box<dyn Source>, SourceError> + Send> Opener for F {
    fn open(&mut self) -> Result<Box<dyn Source>, SourceError> {
        self()
    }
}
