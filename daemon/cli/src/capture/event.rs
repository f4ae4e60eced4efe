//! The lines that `visiond capture` prints, as text or JSON.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use visiond_config::diagnostics::count;
use visiond_system::exit::ExitError;
use visiond_system::logging::escape;
use visiond_system::process::ProcessFacts;

use crate::output::{print, to_json};

/// An event: one line of text or JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CaptureEvent<'a> {
    /// The camera is open. The description equals the daemon's log line.
    Opened {
        camera: &'a str,
        description: String,
        /// How frames leave the driver; absent if there is no driver.
        #[serde(skip_serializing_if = "Option::is_none")]
        io: Option<&'static str>,
    },
    /// A frame was saved.
    Frame {
        /// The driver's frame number.
        sequence: u64,
        /// Time of capture, RFC 3339 in UTC.
        captured_at: String,
        /// The same time on CLOCK_MONOTONIC.
        monotonic_ns: u64,
        /// The instant that the timestamp marks.
        instant: &'static str,
        /// Time from that instant until this process had the frame.
        age_us: u64,
        width: u32,
        height: u32,
        /// Pixel format of the frame that a model would get; a decoded JPEG is rgb.
        format: &'static str,
        file: PathBuf,
    },
    /// Frames were lost.
    Lost { frames: u64, cause: &'static str },
    /// All frames have been taken.
    End {
        frames: u64,
        /// The time for all frames, from the first one that was not skipped.
        seconds: f64,
        /// Frames that the driver lost.
        driver: u64,
        /// Frames that arrived damaged.
        corrupt: u64,
        /// Frames for which no buffer was free.
        overload: u64,
        /// Frames that a privacy mask could not be applied to; absent without one.
        #[serde(skip_serializing_if = "is_zero")]
        unmasked: u64,
        /// Bytes copied between the driver and this process.
        copied_bytes: u64,
    },
    /// The resources of this process after a number of cycles.
    Footprint {
        cycle: u64,
        #[serde(flatten)]
        footprint: Footprint,
    },
}

/// The resources of this process, read from /proc; 0 if a value is missing.
#[derive(Debug, Serialize)]
pub struct Footprint {
    resident_bytes: u64,
    descriptors: usize,
    threads: usize,
    mappings: usize,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Footprint {
    pub fn now() -> Self {
        let process = ProcessFacts::now();
        Self {
            resident_bytes: process.resident_bytes,
            descriptors: process.descriptors as usize,
            threads: process.threads as usize,
            mappings: fs::read_to_string("/proc/self/maps").unwrap_or_default().lines().count(),
        }
    }
}

impl CaptureEvent<'_> {
    /// Prints the event as one line of JSON or of text.
    pub fn print(&self, json: bool) -> Result<(), ExitError> {
        print(&if json { to_json(self, false)? } else { escape(&self.line()) + "\n" })
    }

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
            Self::End { frames, seconds, driver, corrupt, overload, unmasked, copied_bytes } => format!(
                "{} in {seconds:.2} s; lost: {driver} by the driver, {corrupt} damaged, {overload} without a free buffer{}; \
                 {copied_bytes} bytes copied",
                count(*frames as usize, "frame"),
                if *unmasked > 0 { format!(", {unmasked} that could not be masked") } else { String::new() }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn memory_in_use_counts_as_resident() {
        // Tests on other threads take and free memory at the same time.
        let grows = |_| {
            let before = Footprint::now();
            let memory = vec![1_u8; 256 << 20];
            let with = Footprint::now();
            assert!(before.descriptors >= 3 && before.threads >= 1 && before.mappings > 10, "{before:?}");
            assert!(std::hint::black_box(memory).len() > 1);
            with.resident_bytes >= before.resident_bytes + (128 << 20)
        };
        assert!((0..10).any(grows));
    }
}
