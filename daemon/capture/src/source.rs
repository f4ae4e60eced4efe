//! The interface that every frame source implements.

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
    /// The next frame.
    Frame(Frame),
    /// Frames were lost before they reached visiond: they were damaged, or the driver had no buffer. Call again.
    Lost {
        /// The number of lost frames.
        frames: u64,
        /// Why they were lost.
        cause: LossCause,
    },
    /// There is nothing to read, and the source keeps waiting until there is. Returned at the start and when the reason changes.
    /// Call again.
    Waiting {
        /// A sentence: what is missing and what to check.
        reason: Arc<str>,
    },
    /// The source has no more frames: a file that is not repeated ended.
    End,
    /// The daemon is stopping.
    Stopped,
}

/// The result of a source's work on a shared thread: see [`Source::work`].
#[derive(Debug)]
pub enum Worked {
    /// The same result as from [`Source::next`]. Call again.
    Next(Next),
    /// Nothing to do until the source's socket is readable, or until this time.
    Idle(Instant),
    /// The next step takes long: call [`Source::next`] on a dedicated thread.
    NeedsThread,
}

/// An open source: one camera, one file, one program.
///
/// # Examples
/// Reads the test pattern to its end:
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use visiond_capture::Buffers;
/// use visiond_capture::source::Next;
/// use visiond_config::types::{BufferConfig, PatternConfig, SourceConfig};
/// use visiond_system::stop::Stop;
///
/// let pattern = PatternConfig { width: 320, height: 240, max_frames: Some(3), ..PatternConfig::default() };
/// let buffers = Buffers::new(&BufferConfig::default(), None)?;
/// let mut source = visiond_capture::open(&SourceConfig::Pattern(pattern), Vec::new(), "pattern", &buffers)?;
///
/// let (stop, mut taken, mut lost) = (Stop::new()?, 0, 0);
/// loop {
///     match source.next(&stop)? {
///         Next::Frame(frame) => {
///             assert_eq!((frame.layout.width(), frame.layout.height()), (320, 240));
///             taken += 1;
///         }
///         Next::Lost { frames, .. } => lost += frames,
///         Next::Waiting { reason } => eprintln!("{reason}"),
///         Next::End | Next::Stopped => break,
///     }
/// }
/// // A machine that is too slow for the pattern's frame rate loses frames.
/// assert_eq!(taken + lost, 3);
/// # Ok(())
/// # }
/// ```
pub trait Source: Send {
    /// Waits for the next frame. Returns within 100 ms of `stop`.
    ///
    /// # Errors
    ///
    /// The source has failed: the supervisor drops it and opens it again after a back-off.
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError>;

    /// Returns the socket that is readable when there is work, if the work is so light that many sources can share a thread: then
    /// [`work`](Self::work) does it. `None` while the source needs its own thread, as most sources always do.
    fn shares_thread(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Does the work of [`next`](Self::next) without waiting. `is_readable` says whether the source's socket is readable.
    ///
    /// # Errors
    /// The same as [`next`](Self::next).
    fn work(&mut self, _is_readable: bool, _stop: &Stop) -> Result<Worked, SourceError> {
        Ok(Worked::NeedsThread)
    }

    /// Returns one line for the log and `probe`: device, size, format, rate, I/O.
    fn describe(&self) -> String;

    /// Whether an open source may normally yield no frames: a folder that is watched for new images.
    fn may_idle(&self) -> bool {
        false
    }

    /// Returns the I/O method as the configuration names it; `None` for sources without a driver, and without a stream.
    fn io(&self) -> Option<&'static str> {
        None
    }

    /// Returns the decoder as the configuration names it; `None` for other sources, and before the first frame.
    fn decoder(&self) -> Option<&'static str> {
        None
    }

    /// Returns how many bytes were copied so far from a driver's buffer or a decoder's image into a frame's buffer. Bytes
    /// that are read from a pipe or decoded straight into the buffer do not count.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

/// A source that cannot be opened, or has failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// A sentence: the attempted action, the system's error, the remedy.
    pub message: Arc<str>,
    /// Which kind of remedy can help.
    pub kind: SourceErrorKind,
}

/// Which kind of remedy can help a source that cannot be opened, or has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// Another attempt may help.
    Transient,
    /// The camera is away and may be back at any moment: another attempt costs little and must not be delayed.
    Absent,
    /// The user must change something, for example because the file is not a video.
    Permanent,
    /// A new process, because this one lost its GPU.
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

    /// Returns the exit status, if only a new process can help.
    pub fn restart(&self) -> Option<Exit> {
        match self.kind {
            SourceErrorKind::Transient | SourceErrorKind::Absent | SourceErrorKind::Permanent => None,
            SourceErrorKind::GpuLost => Some(Exit::GpuLost),
            SourceErrorKind::DeviceListOutdated => Some(Exit::Input),
        }
    }
}

/// Why a source cannot be opened with its configuration.
#[derive(Debug)]
pub struct SourceFault {
    /// The key of `[camera.source]` with the fault.
    pub key: &'static str,
    /// The error that opening the source would return.
    pub error: SourceError,
    /// Whether the service would fail as well.
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

/// Opens a source any number of times. A closure suffices if there is no state to keep and no event to wait for.
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
