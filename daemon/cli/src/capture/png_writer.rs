//! A thread that writes frames as PNG files and prints a line about each.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};

use visiond_annotate::picture_folder::encode;
use visiond_annotate::rgb_converter::RgbConverter;
use visiond_config::types::PictureFormat;
use visiond_frames::clock::{Clock, SystemClock};
use visiond_frames::frame::{Frame, LossCause};
use visiond_frames::timestamp::{Instant, Timestamp};
use visiond_ground::atomic_write::write_atomically;
use visiond_kernels::frame::FrameLayout;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::outage::explain;

use super::event::CaptureEvent;
use crate::output::create_folder;

/// Maximum number of queued frames, so that a short burst is not lost when the writer is slower than the camera.
pub const QUEUE: usize = 32;

/// An item from a camera.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are frames, which would be allocated for the sake of the others"
)]
pub enum Captured {
    Frame(Frame),
    Lost { frames: u64, cause: LossCause },
}

/// A queued frame or loss.
#[derive(Debug)]
pub enum Queued {
    /// A copy of a frame, so that the driver gets its buffer back.
    Frame {
        layout: FrameLayout,
        bytes: Vec<u8>,
        sequence: u64,
        timestamp: Timestamp,
        age_us: u64,
    },
    Lost {
        frames: u64,
        cause: LossCause,
    },
}

/// Queues a frame or a loss, and waits while the queue is full. Returns false when the writer thread has ended.
pub fn queue(queue: &SyncSender<Queued>, captured: Captured) -> bool {
    let queued = match captured {
        Captured::Frame(Frame { layout, buffer, sequence, timestamp, .. }) => {
            let age_us = SystemClock.monotonic_ns().saturating_sub(timestamp.monotonic_ns) / 1000;
            Queued::Frame { layout, bytes: buffer.as_slice().to_vec(), sequence, timestamp, age_us }
        }
        Captured::Lost { frames, cause } => Queued::Lost { frames, cause },
    };
    queue.send(queued).is_ok()
}

/// Writes the frames of one camera to a folder.
pub struct PngWriter {
    folder: PathBuf,
    camera: String,
    maker: RgbConverter,
}

impl PngWriter {
    /// Creates the folder if it does not exist.
    pub fn open(folder: &Path, camera: &str) -> Result<Self, ExitError> {
        create_folder(folder)?;
        Ok(Self { folder: folder.to_owned(), camera: camera.to_owned(), maker: RgbConverter::default() })
    }

    /// Writes frames and prints their events until the sender is dropped and the queue is empty, or until an error.
    pub fn write(mut self, queue: Receiver<Queued>, json: bool) -> Result<(), ExitError> {
        for queued in queue {
            let event = match queued {
                Queued::Lost { frames, cause } => {
                    let cause = match cause {
                        LossCause::Driver => "driver",
                        LossCause::Corrupt => "damaged",
                        LossCause::Overload => "no free buffer",
                        LossCause::Unmasked => "its privacy mask could not be applied",
                    };
                    CaptureEvent::Lost { frames, cause }
                }
                Queued::Frame { layout, bytes, sequence, timestamp, age_us } => {
                    let file = self.store(&layout, &bytes, sequence)?;
                    CaptureEvent::Frame {
                        sequence,
                        captured_at: timestamp.rfc3339(),
                        monotonic_ns: timestamp.monotonic_ns,
                        instant: match timestamp.instant {
                            Instant::StartOfExposure => "start_of_exposure",
                            Instant::StartOfFrame => "start_of_frame",
                            Instant::EndOfFrame => "end_of_frame",
                        },
                        age_us,
                        width: layout.width(),
                        height: layout.height(),
                        format: layout.format().name(),
                        file,
                    }
                }
            };
            event.print(json)?;
        }
        Ok(())
    }

    fn store(&mut self, layout: &FrameLayout, bytes: &[u8], sequence: u64) -> Result<PathBuf, ExitError> {
        let unmade = |error: &dyn std::fmt::Display| {
            ExitError::new(Exit::Input, format!("cannot convert frame {sequence}: {error}"))
        };
        let view = layout.view(bytes).map_err(|error| unmade(&error))?;
        let picture = self.maker.make(&view).map_err(|error| unmade(&error))?;
        let file = self.folder.join(format!("{}-{sequence:08}.png", self.camera));
        encode(&picture, PictureFormat::Png).and_then(|png| write_atomically(&file, &png)).map_err(|error| {
            ExitError::new(Exit::Output, format!("cannot write {}: {}", file.display(), explain(&error)))
        })?;
        Ok(file)
    }
}
