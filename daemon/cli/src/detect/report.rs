//! The output of `detect`: a table or messages on standard output, progress on standard error.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use visiond_flow::message::{DetectionMessage, Message};
use visiond_system::exit::ExitError;
use visiond_system::logging::{clear_live_line, escape};

use crate::output::complain;
use crate::progress::Progress;

/// Maximum width of a column; a longer name shifts the rest of its row.
const WIDEST: usize = 48;

/// Prints detections and progress.
pub struct Report {
    json: bool,
    name_width: usize,
    label_width: usize,
    header_printed: bool,
    /// Whether rows and the live line share the terminal, so that the line must be cleared before a row.
    out_is_terminal: bool,
    started: Instant,
    progress: Progress,
    files: u64,
    frames: u64,
    detections: u64,
    current: Current,
}

/// The current file.
struct Current {
    name: String,
    started: Instant,
    frames: u64,
}

impl Report {
    /// Sizes the columns for these files and class labels.
    pub fn new(json: bool, files: &[PathBuf], labels: &[Arc<str>]) -> Self {
        let widest = |widths: &mut dyn Iterator<Item = usize>| widths.max().unwrap_or(0).min(WIDEST);
        let now = Instant::now();
        Self {
            json,
            name_width: widest(&mut files.iter().map(|file| file.to_string_lossy().chars().count())).max(4),
            label_width: widest(&mut labels.iter().map(|label| label.chars().count())).max(5),
            header_printed: false,
            out_is_terminal: io::stdout().is_terminal(),
            started: now,
            progress: Progress::new(),
            files: 0,
            frames: 0,
            detections: 0,
            current: Current { name: String::new(), started: now, frames: 0 },
        }
    }

    /// Starts a file.
    pub fn begin(&mut self, file: &Path) {
        self.files += 1;
        self.current = Current { name: escape(&file.to_string_lossy()), started: Instant::now(), frames: 0 };
    }

    /// Prints the detections of a frame.
    pub fn frame(&mut self, message: &Message, is_video: bool) -> Result<(), ExitError> {
        self.frames += 1;
        self.current.frames += 1;
        self.detections += message.detections.len() as u64;
        let text = if self.json { message.to_line() } else { self.rows(message, is_video).into_bytes() };
        if !text.is_empty() {
            if self.out_is_terminal {
                clear_live_line();
            }
            let mut out = io::stdout().lock();
            out.write_all(&text).and_then(|()| out.flush()).map_err(|error| ExitError::stdout(&error))?;
        }
        self.progress(message.sequence);
        Ok(())
    }

    /// Clears the live line before another message on standard error.
    pub fn clear(&self) {
        clear_live_line();
    }

    /// Prints the totals after a long run or on a terminal.
    pub fn end(&self) -> Result<(), ExitError> {
        clear_live_line();
        let took = self.started.elapsed();
        if self.frames > 1 && Progress::was_long(took) {
            let plural = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            complain(&format!(
                "{}, {}, {} in {:.1} s ({:.1} frames/s)",
                plural(self.files, "file"),
                plural(self.frames, "frame"),
                plural(self.detections, "detection"),
                took.as_secs_f64(),
                self.frames as f64 / took.as_secs_f64().max(1e-3),
            ));
        }
        Ok(())
    }

    fn progress(&mut self, sequence: u64) {
        let Current { name, started, frames } = &self.current;
        self.progress.tell(|| {
            let rate = *frames as f64 / started.elapsed().as_secs_f64().max(1e-3);
            format!("{name}: frame {sequence}, {rate:.1} frames/s")
        });
    }

    fn rows(&mut self, message: &Message, is_video: bool) -> String {
        let mut text = String::new();
        if !std::mem::replace(&mut self.header_printed, true) {
            text = self.row(["FILE", "FRAME", "LABEL", "SCORE", "X", "Y", "WIDTH", "HEIGHT"]);
        }
        let name = escape(message.frame.file.as_deref().unwrap_or("-"));
        let frame = message.sequence.to_string();
        // A picture without detections gets a row as well, so that none seems forgotten; a video frame gets none.
        if message.detections.is_empty() && !is_video {
            text += &self.row([&name, &frame, "-", "", "", "", "", ""]);
        }
        for DetectionMessage { label, score, bounds, .. } in &message.detections {
            let score = format!("{score:.2}");
            let numbers = match bounds {
                Some(b) => [b.x, b.y, b.width, b.height].map(|pixels| format!("{pixels:.0}")),
                None => Default::default(),
            };
            let [x, y, width, height] = &numbers;
            text += &self.row([&name, &frame, &escape(label), &score, x, y, width, height]);
        }
        text
    }

    fn row(&self, [name, frame, label, score, x, y, width, height]: [&str; 8]) -> String {
        let (names, labels) = (self.name_width, self.label_width);
        let row =
            format!("{name:names$}  {frame:>6}  {label:labels$}  {score:>5}  {x:>6} {y:>6} {width:>6} {height:>6}");
        row.trim_end().to_owned() + "\n"
    }
}
