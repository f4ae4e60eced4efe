//! The lines that `visiond capture` prints, as text or as JSON.

use std::path::PathBuf;

use serde::Serialize;
use visiond_config::diagnostics::count;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;

use super::footprint::Footprint;
use crate::output::print;

/// An event, which is one line of text or of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// The camera is open.
    Opened {
        /// The camera's name.
        camera: &'a str,
        /// The description that the daemon logs.
        description: String,
        /// How frames leave the driver; absent without a driver.
        #[serde(skip_serializing_if = "Option::is_none")]
        io: Option<&'static str>,
    },
    /// A frame was saved.
    Frame {
        /// The driver's frame number.
        sequence: u64,
        /// Time of capture, RFC 3339 in UTC.
        captured_at: String,
        /// The same time on CLOCK_MONOTONIC, in nanoseconds.
        monotonic_ns: u64,
        /// The instant that the time marks.
        instant: &'static str,
        /// Time from that instant until this process had the frame, in microseconds.
        age_us: u64,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Pixel format as a model would get it; a decoded JPEG is rgb.
        format: &'static str,
        /// The PNG file.
        file: PathBuf,
    },
    /// Frames were lost.
    Lost {
        /// Number of lost frames.
        frames: u64,
        /// The cause.
        cause: &'static str,
    },
    /// All frames have been taken.
    End {
        /// Number of frames.
        frames: u64,
        /// The time for all of them, from the first one that was not skipped.
        seconds: f64,
        /// Frames that the driver lost.
        driver: u64,
        /// Frames that arrived damaged.
        corrupt: u64,
        /// Frames for which no buffer was free.
        overload: u64,
        /// Bytes that had to be copied between the driver and this process.
        copied_bytes: u64,
    },
    /// The resources of this process.
    Footprint {
        /// Number of cycles so far.
        cycle: u64,
        /// The resources.
        #[serde(flatten)]
        footprint: Footprint,
    },
}

impl Event<'_> {
    fn line(&self) -> String {
        match self {
            Self::Opened { camera, description, .. } => format!("camera {camera}: {description}"),
            Self::Frame { sequence, monotonic_ns, age_us, width, height, format, file, .. } => format!(
                "frame {sequence}: {width}x{height} {format}, captured at {:.6} s, arrived {:.1} ms later: {}",
                *monotonic_ns as f64 / 1e9,
                *age_us as f64 / 1e3,
                file.display()
            ),
            Self::Lost { frames, cause } => format!("{} lost: {cause}", count(*frames as usize, "frame")),
            Self::End { frames, seconds, driver, corrupt, overload, copied_bytes } => format!(
                "{} in {seconds:.2} s; lost: {driver} by the driver, {corrupt} damaged, {overload} without a free buffer; {copied_bytes} \
                 bytes copied",
                count(*frames as usize, "frame")
            ),
            Self::Footprint { cycle, footprint } => format!(
                "after {}: {:.1} MiB resident, {}, {}, {}",
                count(*cycle as usize, "cycle"),
                footprint.resident_bytes as f64 / 1_048_576.0,
                count(footprint.descriptors, "descriptor"),
                count(footprint.threads, "thread"),
                count(footprint.mappings, "mapping")
            ),
        }
    }
}

/// Prints events on standard output.
#[derive(Debug)]
pub struct EventPrinter {
    json: bool,
}

impl EventPrinter {
    /// Prints JSON or text.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints an event as one line.
    pub fn print(&self, event: &Event<'_>) -> Result<(), ExitError> {
        let line = if self.json {
            serde_json::to_string(event)
                .map_err(|error| ExitError::new(Exit::Failure, format!("cannot write JSON: {error}")))?
        } else {
            escape(&event.line())
        };
        print(&(line + "\n"))
    }
}
