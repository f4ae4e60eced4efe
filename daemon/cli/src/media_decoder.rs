//! Files into frames, on a thread of its own.

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

/// Enough of a file to know a picture by.
const HEAD_BYTES: u64 = 64;

/// What comes out of the files, in their order.
pub enum Item {
    /// The next file is opened.
    Begun {
        /// Which.
        file: usize,
    },
    /// A frame of it.
    Frame {
        /// Which file.
        file: usize,
        /// Whether it is one of many.
        is_video: bool,
        /// The frame; its name is the file's.
        frame: Frame,
    },
    /// The file, or the rest of it, cannot be read.
    Failed {
        /// A sentence.
        reason: String,
    },
    /// A part of the file could not be decoded, which was logged.
    Damaged,
}

/// Reads files.
pub struct MediaDecoder {
    /// Only every n-th frame of a video is handed on.
    pub every: u64,
    /// Frames of a video at most.
    pub max_frames: Option<u64>,
    /// What frames live in.
    pub buffers: Buffers,
    /// Ends it.
    pub stop: Stop,
}

/// Nobody takes what is read any more.
struct Gone;

impl MediaDecoder {
    /// Reads every file, until all are read or nobody takes the frames.
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
            Kind::Other { is_known } => match self.read_video(file, path, out)? {
                Ok(()) => Ok(()),
                Err(error) if is_known => send(Item::Failed { reason: escape(&error.message) }),
                Err(error) => {
                    send(Item::Failed { reason: escape(&format!("{}; a picture it is not either", error.message)) })
                }
            },
        }
    }

    /// Hands on every frame that is asked for. What is wrong with the video is the inner result.
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

/// What a file is, by its first bytes.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A picture, or something of which the picture reader says best what is wrong with it (nothing there, a folder).
    Picture,
    /// For ffmpeg.
    Other {
        /// Known to be no file of this machine, so that no picture was looked for.
        is_known: bool,
    },
}

fn kind(path: &Path) -> Kind {
    if path.to_str().is_some_and(|path| path.contains("://")) && !path.exists() {
        return Kind::Other { is_known: true };
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    match read {
        Ok(0) | Err(_) => Kind::Picture,
        Ok(_) if image::guess_format(&head).is_ok() => Kind::Picture,
        Ok(_) => Kind::Other { is_known: false },
    }
}
