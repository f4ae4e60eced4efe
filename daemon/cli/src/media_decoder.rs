//! Decodes pictures and videos into frames, for a command that takes them on another thread.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use visiond_capture::source::{Next, SourceError};
use visiond_capture::{Buffers, picture};
use visiond_config::types::{Pace, SourceConfig, VideoConfig};
use visiond_flow::frame::Frame;
use visiond_flow::metrics::LossCause;
use visiond_system::logging::escape;
use visiond_system::stop::Stop;

/// Number of first bytes that identify a picture.
const HEAD_BYTES: u64 = 64;

/// What the decoder passes on, in the order of the files.
pub enum Item {
    /// The decoder opens the next file.
    Begun {
        /// Index of the file.
        file: usize,
    },
    /// A frame of a file.
    Frame {
        /// Index of the file.
        file: usize,
        /// Whether the file is a video.
        is_video: bool,
        /// The frame, named after the file.
        frame: Frame,
    },
    /// The file, or the rest of it, cannot be decoded.
    Failed {
        /// The error, as a sentence.
        reason: String,
    },
    /// A part of the file could not be decoded; the source has logged it.
    Damaged,
}

/// Decodes files.
pub struct MediaDecoder {
    /// Passes on every n-th frame of a video.
    pub every: u64,
    /// Maximum number of frames of a video.
    pub max_frames: Option<u64>,
    /// The buffers of frames.
    pub buffers: Buffers,
    /// Ends the decoder.
    pub stop: Stop,
}

/// The receiver has been dropped.
struct Gone;

impl MediaDecoder {
    /// Decodes every file, until all are done or the receiver is dropped.
    pub fn run(&self, files: &[PathBuf], out: &SyncSender<Item>) {
        for (file, path) in files.iter().enumerate() {
            if self.stop.is_raised() || self.read(file, path, out).is_err() {
                return;
            }
        }
    }

    fn read(&self, file: usize, path: &Path, out: &SyncSender<Item>) -> Result<(), Gone> {
        let send = |item| out.send(item).map_err(|_| Gone);
        send(Item::Begun { file })?;
        match kind(path) {
            Kind::Picture => match picture::load(path, &self.buffers.memory) {
                Ok(frame) => send(Item::Frame { file, is_video: false, frame }),
                Err(error) => send(Item::Failed { reason: escape(&error.message) }),
            },
            Kind::Other { is_url } => match self.read_video(file, path, out)? {
                Ok(()) => Ok(()),
                Err(error) if is_url => send(Item::Failed { reason: escape(&error.message) }),
                Err(error) => {
                    send(Item::Failed { reason: escape(&format!("{}; it is not a picture either", error.message)) })
                }
            },
        }
    }

    /// Passes on the wanted frames. The inner result is the error of the video.
    fn read_video(&self, file: usize, path: &Path, out: &SyncSender<Item>) -> Result<Result<(), SourceError>, Gone> {
        let url = path.to_string_lossy().into_owned();
        let name: Arc<str> = url.as_str().into();
        let video = VideoConfig { url, pace: Pace::Fastest, max_frames: self.max_frames, ..VideoConfig::default() };
        let source = visiond_capture::open(&SourceConfig::Video(video), &name, &self.buffers);
        let mut source = match source {
            Ok(source) => source,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            match source.next(&self.stop) {
                Ok(Next::Frame(mut frame)) => {
                    if frame.sequence % self.every == 0 {
                        frame.name = Some(Arc::clone(&name));
                        out.send(Item::Frame { file, is_video: true, frame }).map_err(|_| Gone)?;
                    }
                }
                Ok(Next::Lost { cause: LossCause::Corrupt, .. }) => out.send(Item::Damaged).map_err(|_| Gone)?,
                Ok(Next::Lost { .. } | Next::Waiting { .. }) => {}
                Ok(Next::End) => return Ok(Ok(())),
                Ok(Next::Stopped) => return Err(Gone),
                Err(error) => return Ok(Err(error)),
            }
        }
    }
}

/// The kind of a file, from its first bytes.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A picture, or a path for which the picture decoder has the better error: missing, empty or a folder.
    Picture,
    /// A file for ffmpeg.
    Other {
        /// Whether it is a URL, so that it cannot be a picture.
        is_url: bool,
    },
}

fn kind(path: &Path) -> Kind {
    if path.to_str().is_some_and(|path| path.contains("://")) && !path.exists() {
        return Kind::Other { is_url: true };
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    match read {
        Ok(0) | Err(_) => Kind::Picture,
        Ok(_) if image::guess_format(&head).is_ok() => Kind::Picture,
        Ok(_) => Kind::Other { is_url: false },
    }
}
