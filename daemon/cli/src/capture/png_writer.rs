//! Frames into PNG files, on a thread of its own; and a line about each.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use visiond_annotate::picture_folder::{encode, write_atomically};
use visiond_annotate::rgb_converter::RgbConverter;
use visiond_capture::source::Next;
use visiond_config::types::PictureFormat;
use visiond_flow::clock::{Clock, SystemClock};
use visiond_flow::frame::Frame;
use visiond_flow::message::rfc3339;
use visiond_flow::metrics::LossCause;
use visiond_flow::timestamp::{Instant, Timestamp};
use visiond_kernels::frame::FrameLayout;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::outage::explain;

use super::event::{Event, EventPrinter};

/// Frames that wait to be written at most: what comes faster than it is written is not lost before that.
const WAITING: usize = 32;

/// What waits to be told and written.
#[derive(Debug)]
enum Waiting {
    /// A frame's copy, so that the driver has its buffer again.
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

/// Where frames go.
pub struct Sender(SyncSender<Waiting>);

/// The writer has ended.
#[derive(Debug)]
pub struct Ended;

impl Sender {
    /// Hands on what came; waits while too much is waiting.
    pub fn send(&self, next: Next) -> Result<(), Ended> {
        let waiting = match next {
            Next::Frame(Frame { layout, buffer, sequence, timestamp, .. }) => {
                let age_us = SystemClock.monotonic_ns().saturating_sub(timestamp.monotonic_ns) / 1000;
                Waiting::Frame { layout, bytes: buffer.as_slice().to_vec(), sequence, timestamp, age_us }
            }
            Next::Lost { frames, cause } => Waiting::Lost { frames, cause },
            Next::Waiting { .. } | Next::End | Next::Stopped => return Ok(()),
        };
        self.0.send(waiting).map_err(|_| Ended)
    }
}

/// A folder of a camera's pictures.
pub struct PngWriter {
    folder: PathBuf,
    camera: String,
    maker: RgbConverter,
}

impl PngWriter {
    /// Makes the folder where it is missing.
    pub fn open(folder: &Path, camera: &str) -> Result<Self, ExitError> {
        fs::create_dir_all(folder).map_err(|error| {
            ExitError::new(Exit::Output, format!("{} cannot be made: {}", folder.display(), explain(&error)))
        })?;
        Ok(Self { folder: folder.to_owned(), camera: camera.to_owned(), maker: RgbConverter::default() })
    }

    /// Starts the thread that writes. It ends when the sender is gone and all is written, or when something fails.
    pub fn start<'scope>(
        mut self,
        scope: &'scope Scope<'scope, '_>,
        printer: &'scope EventPrinter,
    ) -> Result<(Sender, ScopedJoinHandle<'scope, Result<(), ExitError>>), ExitError> {
        let (sender, waiting) = sync_channel(WAITING);
        let writer = std::thread::Builder::new()
            .name("write".to_owned())
            .spawn_scoped(scope, move || self.write(&waiting, printer))
            .map_err(|error| ExitError::new(Exit::Failure, format!("cannot start a thread: {error}")))?;
        Ok((Sender(sender), writer))
    }

    fn write(&mut self, waiting: &Receiver<Waiting>, printer: &EventPrinter) -> Result<(), ExitError> {
        for waiting in waiting {
            match waiting {
                Waiting::Lost { frames, cause } => printer.print(&Event::Lost { frames, cause: lost_by(cause) })?,
                Waiting::Frame { layout, bytes, sequence, timestamp, age_us } => {
                    let file = self.store(&layout, &bytes, sequence)?;
                    printer.print(&Event::Frame {
                        sequence,
                        captured_at: rfc3339(timestamp),
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
                    })?;
                }
            }
        }
        Ok(())
    }

    fn store(&mut self, layout: &FrameLayout, bytes: &[u8], sequence: u64) -> Result<PathBuf, ExitError> {
        let unmade = |error: &dyn std::fmt::Display| {
            ExitError::new(Exit::Input, format!("frame {sequence} is no picture: {error}"))
        };
        let view = layout.view(bytes).map_err(|error| unmade(&error))?;
        let picture = self.maker.make(&view).map_err(|error| unmade(&error))?;
        let file = self.folder.join(format!("{}-{sequence:08}.png", self.camera));
        encode(&picture, PictureFormat::Png).and_then(|png| write_atomically(&file, &png)).map_err(|error| {
            ExitError::new(Exit::Output, format!("{} cannot be written: {}", file.display(), explain(&error)))
        })?;
        Ok(file)
    }
}

fn lost_by(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Driver => "driver",
        LossCause::Corrupt => "damaged",
        LossCause::Overload => "no buffer was free",
    }
}
