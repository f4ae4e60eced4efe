//! Frames in shared memory, from GStreamer's `shmsink`: they are read where the program wrote them, and not copied by visiond.
//!
//! The program listens on a Unix socket. Over it, it names areas of POSIX shared memory and the buffers in them that hold frames, and
//! visiond says which ones it no longer reads. Messages have 24 bytes, as `struct CommandBuffer` of GStreamer's sys/shm/shmpipe.c on a
//! machine of 64 bits:
//!
//! | type | | then |
//! |---|---|---|
//! | 1, from the program | a new area | its size, and the length of its name, which follows |
//! | 2, from the program | no more buffers of an area | |
//! | 3, from the program | a frame | its offset in the area, and its size |
//! | 4, from visiond | a frame is no longer read | its offset |
//!
//! The program does not write to a buffer until visiond has returned it. It takes another one meanwhile, or waits if none is free.

use std::ffi::CStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use std::{env, process, slice};

use rustix::fs::Mode;
use rustix::shm;
use visiond_frames::frame::{DriverBuffer, DriverMemory};
use visiond_kernels::buffer::{MemoryKind, RegisteredPages, UnifiedBuffer};
use visiond_kernels::cuda::{CudaError, Device, DeviceAddress};
use visiond_system::stop::{Stop, Wake};

use super::buffers::Buffers;
use super::mapping::Mapping;

const MESSAGE_BYTES: usize = 24;
const NEW_AREA: u32 = 1;
const CLOSE_AREA: u32 = 2;
const FRAME: u32 = 3;
const RETURN: u32 = 4;

/// The most areas at a time. The program makes a new one when its size is changed, and closes the one before.
const MOST_AREAS: usize = 8;
/// The most bytes of an area.
const MOST_BYTES: u64 = 4 << 30;
/// The most bytes of an area's name, with the zero at its end; GStreamer's have 23.
const MOST_NAME: usize = 255;
/// How often frames that were dropped meanwhile are returned while the program sends none. It may wait for them.
const RETURN_CHECK: Duration = Duration::from_millis(10);

/// Why frames cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SharedMemoryError {
    /// Its socket cannot be reached or read.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// It writes something else than `shmsink` does.
    #[error("the socket is not that of a shmsink ({reason}): end the pipeline with `shmsink socket-path={{socket}}`")]
    Protocol {
        /// What it sent.
        reason: String,
    },
    /// The shared memory cannot be used.
    #[error("cannot use its shared memory {name}: {error}; check its permissions by `ls -l /dev/shm`")]
    Area {
        /// Its name.
        name: String,
        /// What failed.
        error: io::Error,
    },
    /// The GPU cannot read the shared memory.
    #[error("the GPU cannot read its shared memory: {0}; use `fdsink fd=3`, `fd = 3` and `container = \"raw\"`")]
    Gpu(#[from] CudaError),
    /// The frames do not have the configured layout.
    #[error("its frames have {found} bytes, and `format`, `width`, `height` and `pitches` make {wanted}: correct them")]
    Size {
        /// The bytes that it sends.
        found: u64,
        /// The bytes of the layout.
        wanted: usize,
    },
}

/// What came next.
#[derive(Debug)]
pub enum Received {
    /// A frame, which goes back when it is dropped.
    Frame(DriverBuffer),
    /// A frame that went back at once, because too many are in use.
    Dropped,
    /// The program has closed the socket.
    Ended,
    /// Stop was raised.
    Stopped,
    /// The deadline passed.
    TimedOut,
}

/// A folder for a program's socket that other users cannot enter, removed when dropped.
#[derive(Debug)]
pub struct SocketFolder(PathBuf);

impl SocketFolder {
    /// Makes one: in the folder that systemd has made for the service, otherwise among the temporary files.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> io::Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let of_service = env::var_os("RUNTIME_DIRECTORY");
        let base = of_service.and_then(|folders| env::split_paths(&folders).next()).unwrap_or_else(env::temp_dir);
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let folder = base.join(format!("visiond-{}-{number}", process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                // Of a process that was killed, and had the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(folder)),
            }
        }
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("frames")
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        // The program has removed its socket unless it was killed.
        if let Err(error) = fs::remove_dir_all(&self.0) {
            log::debug!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// A connection to a program that writes frames into shared memory.
#[derive(Debug)]
pub struct SharedMemory {
    socket: UnixStream,
    /// The beginning of a message, of which the rest has not arrived.
    begun: Vec<u8>,
    areas: Vec<Arc<Area>>,
    /// Buffers that held frames: the program uses the same ones again and again.
    known: Vec<Arc<Buffer>>,
    /// The area and the offset of each frame that is in use, by its number.
    lent: Vec<Option<(u32, u64)>>,
    return_queue: Sender<u32>,
    returned: Receiver<u32>,
    /// The GPU that reads frames in place.
    device: Option<Arc<Device>>,
    frame_bytes: usize,
}

/// An area of shared memory. Fields drop in order: the GPU's registration before the mapping.
#[derive(Debug)]
struct Area {
    registered: Option<RegisteredPages>,
    mapping: Mapping,
    id: u32,
    name: String,
    file: File,
}

/// A part of an area that holds a frame.
#[derive(Debug)]
struct Buffer {
    area: Arc<Area>,
    offset: usize,
    bytes: usize,
}

impl Area {
    /// Checks that the program has not cut the memory short: beyond the end of its file, a read would end the process.
    fn check(&self) -> Result<(), SharedMemoryError> {
        let cannot = |error| SharedMemoryError::Area { name: self.name.clone(), error };
        let (real, wanted) = (self.file.metadata().map_err(cannot)?.len(), self.mapping.len());
        if real < wanted as u64 {
            return Err(cannot(io::Error::other(format!("it has {real} bytes instead of {wanted}"))));
        }
        Ok(())
    }
}

// SAFETY: `Buffer`s are made of ranges inside their area only, which stays mapped for reads and writes as long as they live. Shared
// memory is initialised by the kernel. Where the program has cut its file short since `Area::check`, an access ends the process.
unsafe impl DriverMemory for Buffer {
    unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: as above; the caller guarantees that nothing writes to it.
        unsafe { slice::from_raw_parts(self.start().as_ptr(), self.bytes) }
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: the offset is inside the mapping.
        unsafe { self.area.mapping.start().add(self.offset) }
    }

    fn device_address(&self) -> Option<DeviceAddress> {
        let area = self.area.registered.as_ref()?.device_address();
        Some(area.offset(self.offset))
    }

    fn buffer(&self) -> Option<&UnifiedBuffer> {
        None
    }
}

/// A message of the program.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    NewArea { id: u32, bytes: u64, name: Vec<u8> },
    CloseArea { id: u32 },
    Frame { area: u32, offset: u64, bytes: u64 },
}

impl SharedMemory {
    /// Connects to the program that listens on `socket`, for frames of `frame_bytes`.
    ///
    /// # Errors
    /// It does not listen there (yet).
    pub fn connect(socket: &Path, frame_bytes: usize, buffers: &Buffers) -> io::Result<Self> {
        let socket = UnixStream::connect(socket)?;
        socket.set_nonblocking(true)?;
        let (return_queue, returned) = channel();
        let device = buffers.memory.device().filter(|_| buffers.memory.kind() != MemoryKind::Host).cloned();
        Ok(Self {
            socket,
            begun: Vec::with_capacity(MESSAGE_BYTES + MOST_NAME),
            areas: Vec::new(),
            known: Vec::new(),
            lent: vec![None; buffers.count],
            return_queue,
            returned,
            device,
            frame_bytes,
        })
    }

    /// Waits for the next frame. With `waits`, a frame that comes while too many are in use waits for one of these; otherwise it goes
    /// back at once. Allocates nothing once the program uses its buffers again.
    ///
    /// # Errors
    /// What the program sends makes no sense, or its memory cannot be used.
    pub fn next(&mut self, waits: bool, stop: &Stop, deadline: Instant) -> Result<Received, SharedMemoryError> {
        loop {
            self.give_back()?;
            if stop.is_raised() {
                return Ok(Received::Stopped);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if waits && self.lent.iter().all(Option::is_some) {
                stop.mark_progress();
                // An error is a time-out: `self.return_queue` keeps the channel connected.
                if let Ok(number) = self.returned.recv_timeout(RETURN_CHECK) {
                    self.acknowledge(number)?;
                }
                continue;
            }
            match self.read()? {
                Some(Message::Frame { area, offset, bytes }) => {
                    if waits && !self.wait_for(area, offset, stop)? {
                        return Ok(Received::Stopped);
                    }
                    return self.take(area, offset, bytes);
                }
                Some(Message::NewArea { id, bytes, name }) => self.open(id, bytes, name)?,
                Some(Message::CloseArea { id }) => {
                    self.areas.retain(|area| area.id != id);
                    self.known.retain(|buffer| buffer.area.id != id);
                }
                None => {
                    let patience = if self.lent.iter().any(Option::is_some) { left.min(RETURN_CHECK) } else { left };
                    match stop.wait_readable(self.socket.as_fd(), Some(patience))? {
                        Wake::Ready if self.has_ended()? => return Ok(Received::Ended),
                        Wake::Stopped => return Ok(Received::Stopped),
                        Wake::TimedOut if left.is_zero() => return Ok(Received::TimedOut),
                        Wake::Ready | Wake::TimedOut => continue,
                    }
                }
            }
            // Areas alone are no frames.
            if left.is_zero() {
                return Ok(Received::TimedOut);
            }
        }
    }

    /// Waits until no frame in use has bytes of this place; returns `false` if stop is raised first.
    fn wait_for(&mut self, area: u32, offset: u64, stop: &Stop) -> io::Result<bool> {
        while self.overlaps(area, offset) {
            if stop.is_raised() {
                return Ok(false);
            }
            stop.mark_progress();
            if let Ok(number) = self.returned.recv_timeout(RETURN_CHECK) {
                self.acknowledge(number)?;
            }
        }
        Ok(true)
    }

    /// Whether a frame in use has bytes of the frame at this place.
    fn overlaps(&self, area: u32, offset: u64) -> bool {
        let lent = self.lent.iter().flatten();
        lent.into_iter().any(|&(of, at)| of == area && at.abs_diff(offset) < self.frame_bytes as u64)
    }

    /// Whether the program has closed the socket.
    fn has_ended(&self) -> io::Result<bool> {
        let mut byte = [0];
        match rustix::net::recv(&self.socket, &mut byte, rustix::net::RecvFlags::PEEK) {
            Ok((_, read)) => Ok(read == 0),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(rustix::io::Errno::CONNRESET) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a message, if a whole one has arrived.
    fn read(&mut self) -> Result<Option<Message>, SharedMemoryError> {
        loop {
            let wanted = match message(&self.begun)? {
                Ok(message) => {
                    self.begun.clear();
                    return Ok(Some(message));
                }
                Err(wanted) => wanted,
            };
            let begun = self.begun.len();
            self.begun.resize(wanted, 0);
            let read = self.socket.read(&mut self.begun[begun..]);
            self.begun.truncate(begun + read.as_ref().map_or(0, |read| *read));
            match read {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The program has ended.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Maps an area, for the GPU as well.
    fn open(&mut self, id: u32, bytes: u64, name: Vec<u8>) -> Result<(), SharedMemoryError> {
        let shown = String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(&name)).into_owned();
        let cannot = |error| SharedMemoryError::Area { name: shown.clone(), error };
        let name = CStr::from_bytes_with_nul(&name).map_err(|_| protocol("a name without an end"))?;
        if self.areas.len() >= MOST_AREAS || self.areas.iter().any(|area| area.id == id) {
            return Err(protocol(&format!("one more area, {id}, of {}", self.areas.len())));
        }
        let length = usize::try_from(bytes).ok().filter(|_| (1..=MOST_BYTES).contains(&bytes));
        let length = length.ok_or_else(|| protocol(&format!("an area of {bytes} bytes")))?;
        // Only names of shared memory: those that leave its folder are refused by the library.
        let file = shm::open(name, shm::OFlags::RDWR, Mode::empty()).map_err(|error| cannot(error.into()))?;
        let file = File::from(file);
        // A program that is killed would leave its memory behind. Removed, it is gone once neither side has it mapped.
        if let Err(error) = shm::unlink(name) {
            log::debug!("cannot remove the name of shared memory {shown}: {error}");
        }
        let mapping = Mapping::new(None, length, Some((&file, 0))).map_err(cannot)?;
        let mut area = Area { registered: None, mapping, id, name: shown, file };
        area.check()?;
        if let Some(device) = &self.device {
            // SAFETY: the mapping is for reads and writes; the order of the fields undoes the registration before it is unmapped. GPU
            // work on it is over when a frame is dropped, and a frame keeps the area.
            area.registered = Some(unsafe { RegisteredPages::new(device, area.mapping.start(), area.mapping.len()) }?);
        }
        self.areas.push(Arc::new(area));
        Ok(())
    }

    /// Takes a frame that the program has written.
    fn take(&mut self, area: u32, offset: u64, bytes: u64) -> Result<Received, SharedMemoryError> {
        let wrong = |what: &str| protocol(&format!("a frame {what}"));
        if bytes != self.frame_bytes as u64 {
            return Err(SharedMemoryError::Size { found: bytes, wanted: self.frame_bytes });
        }
        let is_again = self.lent.contains(&Some((area, offset)));
        if self.overlaps(area, offset) && !is_again {
            return Err(wrong("that overlaps another one"));
        }
        // GStreamer's `videorate` sends a frame several times.
        let free = self.lent.iter().position(Option::is_none).filter(|_| !is_again);
        let Some(number) = free else {
            self.send_return(area, offset)?;
            return Ok(Received::Dropped);
        };
        let start = usize::try_from(offset).map_err(|_| wrong("outside of its area"))?;
        let is_it = |buffer: &&Arc<Buffer>| buffer.area.id == area && buffer.offset == start;
        let buffer = match self.known.iter().find(is_it) {
            Some(buffer) => Arc::clone(buffer),
            None => {
                let area = self.areas.iter().find(|it| it.id == area).ok_or_else(|| wrong("of an unknown area"))?;
                let end = start.checked_add(self.frame_bytes).filter(|end| *end <= area.mapping.len());
                end.ok_or_else(|| wrong("outside of its area"))?;
                let buffer = Arc::new(Buffer { area: Arc::clone(area), offset: start, bytes: self.frame_bytes });
                // More than enough for each place where a frame begins, unless the program has other ones each time.
                if self.known.len() < 4 * self.lent.len() + 32 {
                    self.known.push(Arc::clone(&buffer));
                }
                buffer
            }
        };
        buffer.area.check()?;
        self.lent[number] = Some((area, offset));
        // SAFETY: no frame in use has bytes of this place. The program has said that the frame is whole, and writes to it only after `give_back`, which comes after the number.
        Ok(Received::Frame(unsafe { DriverBuffer::new(buffer, number as u32, self.return_queue.clone()) }))
    }

    /// Returns frames that are no longer in use to the program.
    fn give_back(&mut self) -> io::Result<()> {
        while let Ok(number) = self.returned.try_recv() {
            self.acknowledge(number)?;
        }
        Ok(())
    }

    fn acknowledge(&mut self, number: u32) -> io::Result<()> {
        match self.lent.get_mut(number as usize).and_then(Option::take) {
            Some((area, offset)) => self.send_return(area, offset),
            None => Ok(()),
        }
    }

    fn send_return(&mut self, area: u32, offset: u64) -> io::Result<()> {
        let mut message = [0; MESSAGE_BYTES];
        message[..4].copy_from_slice(&RETURN.to_ne_bytes());
        message[4..8].copy_from_slice(&area.to_ne_bytes());
        message[8..16].copy_from_slice(&offset.to_ne_bytes());
        // So short that it is sent whole or not at all. A program that reads none of them has a full socket, and ends soon anyway.
        match self.socket.write_all(&message) {
            // That it has ended is noticed by the next read.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
            result => result,
        }
    }
}

/// Something that `shmsink` does not send.
fn protocol(reason: &str) -> SharedMemoryError {
    SharedMemoryError::Protocol { reason: reason.to_owned() }
}

/// Reads a message from its bytes; `Err` with the number of bytes that it needs, if there are less.
fn message(bytes: &[u8]) -> Result<Result<Message, usize>, SharedMemoryError> {
    let Some(head) = bytes.first_chunk::<MESSAGE_BYTES>() else { return Ok(Err(MESSAGE_BYTES)) };
    let short = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| {
        let mut value = [0; 8];
        value.copy_from_slice(&head[at..at + 8]);
        u64::from_ne_bytes(value)
    };
    let id = short(4);
    Ok(Ok(match short(0) {
        NEW_AREA => {
            let name_bytes = short(16) as usize;
            if !(2..=MOST_NAME).contains(&name_bytes) {
                return Err(protocol(&format!("a name of {name_bytes} bytes")));
            }
            let end = MESSAGE_BYTES + name_bytes;
            let Some(name) = bytes.get(MESSAGE_BYTES..end) else { return Ok(Err(end)) };
            Message::NewArea { id, bytes: long(8), name: name.to_vec() }
        }
        CLOSE_AREA => Message::CloseArea { id },
        FRAME => Message::Frame { area: id, offset: long(8), bytes: long(16) },
        other => return Err(protocol(&format!("a message of type {other}"))),
    }))
}

#[cfg(test)]
mod tests;
