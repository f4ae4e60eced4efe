//! The frames of a benchmark: decoded beforehand and kept in memory, up to a limit.

use std::ops::Deref;
use std::path::Path;

use visiond_capture::Buffers;
use visiond_config::types::{ImagesConfig, Pace, PatternConfig, SourceConfig, VideoConfig};
use visiond_frames::frame::{Frame, FramePool, PooledBuffer};
use visiond_kernels::buffer::{Memory, MemoryKind};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::stop::Stop;

use crate::next_frame::next_frame;

/// Maximum number of distinct frames; then they repeat.
const FRAMES: u64 = 100;
/// Maximum size of all frames in bytes; the first frame may exceed it.
const BYTES: usize = 256 << 20;

/// Opens the source that the user named and returns copies of its frames, at most `most` and up to the limits above.
pub fn read_frames(name: &str, most: u64) -> Result<impl Iterator<Item = Result<Frame, ExitError>> + use<>, ExitError> {
    let most = most.min(FRAMES);
    let stop = Stop::new().map_err(ExitError::system)?;
    let source = visiond_capture::open(&source(name, most), Vec::new(), "bench", &Buffers::default());
    let mut source = source.map_err(|error| ExitError::new(Exit::Input, error))?;
    let (name, mut bytes) = (name.to_owned(), 0);
    let next = move || {
        if bytes >= BYTES {
            return None;
        }
        match next_frame(source.as_mut(), &stop, |_, _| Ok(())).transpose()? {
            Ok(frame) => {
                bytes += frame.layout.size_bytes();
                Some(kept(&frame, &name))
            }
            Err(error) => Some(Err(ExitError::new(Exit::Input, error))),
        }
    };
    Ok(std::iter::from_fn(next).take(most as usize))
}

/// Copies the frame to a new buffer, so that the source gets its buffer back.
fn kept(frame: &Frame, name: &str) -> Result<Frame, ExitError> {
    let pool = FramePool::new(&Memory::host(), 1, frame.layout.size_bytes())
        .map_err(|error| ExitError::new(Exit::Failure, error))?;
    let copy = pool.take().and_then(|buffer| copied(frame, buffer));
    copy.ok_or_else(|| ExitError::new(Exit::Input, format!("{name}: a frame is truncated")))
}

/// Copies `frame` into `buffer`; `None` if the frame is truncated or the buffer is too small.
fn copied(frame: &Frame, mut buffer: PooledBuffer) -> Option<Frame> {
    let bytes = frame.layout.size_bytes();
    buffer.as_mut_slice().get_mut(..bytes)?.copy_from_slice(frame.buffer.as_slice().get(..bytes)?);
    Some(Frame { buffer: buffer.into(), name: frame.name.clone(), ..*frame })
}

/// Provides frames like a source.
///
/// For a GPU, the CPU writes each frame into a source's buffer again. Otherwise managed memory would stay on the GPU, which
/// never happens with a camera.
pub struct FrameWriter<'a> {
    frames: &'a [Frame],
    /// The source's buffers; `None` without a GPU, or if the GPU does not see the memory.
    pool: Option<FramePool>,
}

impl<'a> FrameWriter<'a> {
    /// Allocates buffers for `frames`, which has at least one frame.
    pub fn new(frames: &'a [Frame], buffers: &Buffers) -> Result<Self, ExitError> {
        let bytes = frames.iter().map(|frame| frame.layout.size_bytes()).max().unwrap_or(0);
        let pool = (buffers.memory.kind() != MemoryKind::Host)
            .then(|| FramePool::new(&buffers.memory, buffers.count, bytes))
            .transpose()
            .map_err(|error| ExitError::new(Exit::Failure, error))?;
        Ok(Self { frames, pool })
    }

    /// Returns whether [`Self::frame`] writes the frame into a buffer.
    pub fn writes(&self) -> bool {
        self.pool.is_some()
    }

    /// Returns frame `n`; the frames repeat.
    pub fn frame(&self, n: u64) -> Result<ProvidedFrame<'a>, ExitError> {
        let frame = &self.frames[(n % self.frames.len() as u64) as usize];
        let Some(pool) = &self.pool else { return Ok(ProvidedFrame::Kept(frame)) };
        let written = pool.take().and_then(|buffer| copied(frame, buffer)).map(ProvidedFrame::Written);
        written.ok_or_else(|| ExitError::new(Exit::Failure, "no free buffer for the next frame"))
    }
}

/// A frame from a [`FrameWriter`].
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are frames, which would be allocated for the sake of the others"
)]
pub enum ProvidedFrame<'a> {
    /// The frame in the memory that it was decoded to.
    Kept(&'a Frame),
    /// A copy in a source's buffer.
    Written(Frame),
}

impl Deref for ProvidedFrame<'_> {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        match self {
            Self::Kept(frame) => frame,
            Self::Written(frame) => frame,
        }
    }
}

/// Returns the source for a name on the command line.
fn source(name: &str, frames: u64) -> SourceConfig {
    let path = Path::new(name);
    if name == "pattern" {
        // As fast as possible; frames that it loses do not matter here.
        SourceConfig::Pattern(PatternConfig { fps: 1000.0, ..PatternConfig::default() })
    } else if path.is_dir() || is_image(path) {
        SourceConfig::Images(ImagesConfig { path: path.to_owned(), ..ImagesConfig::default() })
    } else {
        let (url, max_frames) = (name.to_owned(), Some(frames));
        SourceConfig::Video(VideoConfig { url, pace: Pace::Fastest, max_frames, ..VideoConfig::default() })
    }
}

/// Returns whether the file is an image, from its first bytes.
fn is_image(path: &Path) -> bool {
    let reader = image::ImageReader::open(path).and_then(|reader| reader.with_guessed_format());
    // An animated GIF counts as a video; a still GIF works as one.
    reader.is_ok_and(|reader| reader.format().is_some_and(|format| format != image::ImageFormat::Gif))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_name_means_the_pattern_a_picture_a_folder_or_a_video() {
        let folder = tempfile::tempdir().unwrap();
        let picture = folder.path().join("photo");
        std::fs::write(&picture, b"\x89PNG\r\n\x1a\n").unwrap();
        assert!(matches!(source("pattern", 3), SourceConfig::Pattern(_)));
        assert!(matches!(source(folder.path().to_str().unwrap(), 3), SourceConfig::Images(_)));
        assert!(matches!(source(picture.to_str().unwrap(), 3), SourceConfig::Images(_)));
        assert!(matches!(source("rtsp://camera/1", 3), SourceConfig::Video(_)));
    }

    #[test]
    fn frames_are_kept_apart_from_the_sources_buffers() {
        let frames: Vec<_> = read_frames("pattern", 6).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(frames.len(), 6, "more than the source has buffers");
        let different = frames.windows(2).filter(|pair| pair[0].buffer.as_slice() != pair[1].buffer.as_slice()).count();
        assert_eq!(different, 5);
        assert!(frames.iter().all(|frame| frame.view().is_ok()));
    }

    #[test]
    fn a_frame_that_is_written_is_the_frame_and_its_buffer_comes_back() {
        let frames: Vec<_> = read_frames("pattern", 2).unwrap().collect::<Result<_, _>>().unwrap();
        let kept = FrameWriter::new(&frames, &Buffers::host(1)).unwrap();
        assert!(!kept.writes() && std::ptr::eq(&*kept.frame(3).unwrap(), &frames[1]));

        let pool = FramePool::new(&Memory::host(), 1, frames[0].layout.size_bytes()).unwrap();
        let writer = FrameWriter { frames: &frames, pool: Some(pool) };
        for n in [0, 1, 2] {
            let frame = writer.frame(n).unwrap();
            assert_eq!(frame.buffer.as_slice(), frames[n as usize % 2].buffer.as_slice());
            assert!(writer.frame(n).is_err(), "its one buffer is in use");
        }
    }
}
