//! The lines that `visiond capture` prints, as text or as JSON.

use std::path::PathBuf;

use serde::Serialize;
use visiond_config::diagnostics::count;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;

use super::footprint::Footprint;
use crate::output::print;

/// Something to tell: a line of text, or of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// The camera is open.
    Opened {
        /// Its name.
        camera: &'a str,
        /// As the daemon's log has it.
        description: String,
        /// How pictures come out of the driver; absent where there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        io: Option<&'static str>,
    },
    /// A frame was saved.
    Frame {
        /// The driver's number.
        sequence: u64,
        /// RFC 3339, UTC.
        captured_at: String,
        /// CLOCK_MONOTONIC.
        monotonic_ns: u64,
        /// What the time marks.
        instant: &'static str,
        /// From that instant until it was here.
        age_us: u64,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Pixel format, as it came to the network; a decoded JPEG is rgb.
        format: &'static str,
        /// The picture.
        file: PathBuf,
    },
    /// Frames were lost.
    Lost {
        /// How many.
        frames: u64,
        /// By whom.
        cause: &'static str,
    },
    /// All frames are there.
    End {
        /// How many.
        frames: u64,
        /// What they took, from the first one that was not skipped.
        seconds: f64,
        /// Frames that the driver lost.
        driver: u64,
        /// Frames that came damaged.
        corrupt: u64,
        /// Frames for which no buffer was free.
        overload: u64,
        /// Bytes that were copied on the way here.
        copied_bytes: u64,
    },
    /// What the process holds.
    Footprint {
        /// After so many cycles.
        cycle: u64,
        /// It.
        #[serde(flatten)]
        footprint: Footprint,
    },
}

impl Event<'_> {
    fn line(&self) -> String {
        match self {
            Self::Opened { camera, description, .. } => format!("camera {camera}: {description}"),
            Self::Frame { sequence, monotonic_ns, age_us, width, height, format, file, .. } => format!(
                "frame {sequence}: {width}x{height} {format}, taken at {:.6} s, here {:.1} ms later: {}",
                *monotonic_ns as f64 / 1e9,
                *age_us as f64 / 1e3,
                file.display()
            ),
            Self::Lost { frames, cause } => format!("{} lost: {cause}", count(*frames as usize, "frame")),
            Self::End { frames, seconds, driver, corrupt, overload, copied_bytes } => format!(
                "{} in {seconds:.2} s; lost: {driver} by the driver, {corrupt} damaged, {overload} without a buffer; {copied_bytes} \
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

/// Prints what happens.
#[derive(Debug)]
pub struct EventPrinter {
    json: bool,
}

impl EventPrinter {
    /// In JSON or in words.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a line.
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
