//! The frames of a benchmark: decoded beforehand, kept in memory, not too many.

use std::path::Path;

use visiond_kernels::buffer::Memory;

use crate::capture::frame::{Frame, FramePool};
use crate::capture::source::{Next, Source, SourceError};
use crate::capture::{self, Buffers};
use crate::cli::CliError;
use crate::config::types::{ImagesConfig, Pace, PatternConfig, SourceConfig, VideoConfig};
use crate::exit::Exit;
use crate::pipeline::stop::Stop;

/// Distinct frames at most; then they come again.
const FRAMES: u64 = 100;
/// Bytes of them at most, but for the first.
const BYTES: usize = 256 << 20;

/// A source that is read to memory.
pub struct Supply {
    source: Box<dyn Source>,
    name: String,
    stop: Stop,
    most: u64,
    memory: Memory,
}

impl Supply {
    /// Opens what the user named, for `frames` frames at most, to be kept in this memory.
    pub fn open(name: &str, frames: u64, memory: Memory) -> Result<Self, CliError> {
        let most = frames.min(FRAMES);
        let stop = Stop::new().map_err(|error| CliError::new(Exit::Failure, error))?;
        let source = capture::open(&source(name, most), "bench", &Buffers::default()).map_err(input)?;
        Ok(Self { source, name: name.to_owned(), stop, most, memory })
    }

    /// The next frame, in a buffer of its own; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Frame>, CliError> {
        loop {
            match self.source.next(&self.stop).map_err(input)? {
                Next::Frame(frame) => return kept(&frame, &self.name, &self.memory).map(Some),
                Next::Lost { .. } | Next::Waiting { .. } => {}
                Next::End | Next::Stopped => return Ok(None),
            }
        }
    }

    /// `first` and those behind it, as many as there is room for. The source is closed.
    pub fn rest(mut self, first: Frame) -> Result<Vec<Frame>, CliError> {
        let mut bytes = first.layout.size_bytes();
        let mut frames = vec![first];
        while (frames.len() as u64) < self.most && bytes < BYTES {
            let Some(frame) = self.next()? else { break };
            bytes += frame.layout.size_bytes();
            frames.push(frame);
        }
        Ok(frames)
    }
}

fn input(error: SourceError) -> CliError {
    CliError::new(Exit::Input, error)
}

/// A copy in a buffer of its own, so that the source gets its own back.
fn kept(frame: &Frame, name: &str, memory: &Memory) -> Result<Frame, CliError> {
    let bytes = frame.layout.size_bytes();
    let pool = FramePool::new(memory, 1, bytes).map_err(|error| CliError::new(Exit::Failure, error))?;
    let source = frame.buffer.as_slice().get(..bytes);
    let (Some(mut buffer), Some(source)) = (pool.take(), source) else {
        return Err(CliError::new(Exit::Input, format!("{name}: a frame was cut off")));
    };
    buffer.as_mut_slice().copy_from_slice(source);
    Ok(Frame { buffer: buffer.into(), name: frame.name.clone(), ..*frame })
}

/// What a name on the command line means.
fn source(name: &str, frames: u64) -> SourceConfig {
    let path = Path::new(name);
    if name == "pattern" {
        // Fast, because nobody waits for it here; what it loses meanwhile does not matter.
        SourceConfig::Pattern(PatternConfig { fps: 1000.0, ..PatternConfig::default() })
    } else if path.is_dir() || is_picture(path) {
        SourceConfig::Images(ImagesConfig { path: path.to_owned(), ..ImagesConfig::default() })
    } else {
        let url = name.to_owned();
        SourceConfig::Video(VideoConfig {
            url,
            pace: Pace::Fastest,
            max_frames: Some(frames),
            ..VideoConfig::default()
        })
    }
}

/// By its first bytes.
fn is_picture(path: &Path) -> bool {
    let reader = image::ImageReader::open(path).and_then(|reader| reader.with_guessed_format());
    // An animated GIF is a video as well, and reading it as one loses nothing.
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
        let mut supply = Supply::open("pattern", 6, Memory::host()).unwrap();
        let first = supply.next().unwrap().unwrap();
        let frames = supply.rest(first).unwrap();
        assert_eq!(frames.len(), 6, "more than the source has buffers");
        let different = frames.windows(2).filter(|pair| pair[0].buffer.as_slice() != pair[1].buffer.as_slice()).count();
        assert_eq!(different, 5);
        assert!(frames.iter().all(|frame| frame.view().is_ok()));
    }
}
