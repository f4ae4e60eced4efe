//! Areas, their checks, and the state of an area under test.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::progress::Progress;

/// Minimum time left to start a test. A camera that opens but delivers no frame takes this long.
pub const LEAST_TIME: Duration = Duration::from_secs(15);
/// Why an area or a camera is skipped after the time limit.
pub const NO_TIME: &str = "no time left: test it alone with --only or --camera";

/// Why a check cannot continue.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
/// The result of a check: its text, whether it passed, and the numbers in it.
pub type Seen = (String, bool, Vec<(&'static str, f64)>);

/// An area of the self-test, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// Board, operating system, and versions of the libraries that visiond uses
    Board,
    /// Device nodes of GPU and cameras
    Nodes,
    /// GPU through CUDA
    Cuda,
    /// Each kind of memory for frames
    Memory,
    /// TensorRT library
    Tensorrt,
    /// V4L2 cameras
    Cameras,
    /// NVIDIA's camera stack through a pipe
    Argus,
    /// Repeat the selected areas inside the sandbox of visiond.service and report differences
    Sandbox,
    /// Temperatures under load
    Heat,
}

impl Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Pass,
    Fail,
    /// The check is not possible here; `seen` says why.
    Skipped,
    /// A fact, which has no requirement.
    Info,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub area: Area,
    /// The name of the check, unique within its area.
    pub check: String,
    pub outcome: Outcome,
    /// The expected result; empty for a fact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wanted: String,
    /// The actual result, or why the check was skipped.
    pub seen: String,
    /// The numbers in `seen`, each with its unit in its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// An area under test: its rows, its progress and its time limit.
#[derive(Debug)]
pub struct AreaTest {
    pub area: Area,
    /// The rows so far.
    pub rows: Vec<Row>,
    /// The deadline of all tests but heat.
    end: Instant,
    /// Whether progress goes to the parent process, by lines on standard error.
    by_lines: bool,
    last_line: Option<Instant>,
    progress: Progress,
}

impl AreaTest {
    pub fn new(area: Area, by_lines: bool, end: Instant) -> Self {
        Self { area, rows: Vec::new(), end, by_lines, last_line: None, progress: Progress::new() }
    }

    /// Returns the time left, if it is enough to start a test.
    pub fn time_left(&self) -> Option<Duration> {
        Some(self.end.saturating_duration_since(Instant::now())).filter(|left| *left >= LEAST_TIME)
    }

    /// Reports that the area starts.
    pub fn begin(&mut self) {
        if !self.by_lines {
            self.progress.tell_now(&format!("testing {}", self.area));
        }
    }

    /// Reports a step of the area, at a limited rate.
    pub fn say(&mut self, words: &str) {
        /// Interval between lines, because the parent updates its line no more often.
        const EVERY: Duration = Duration::from_millis(200);
        if !self.by_lines {
            let separator = if words.is_empty() { "" } else { ": " };
            self.progress.tell(|| format!("testing {}{separator}{words}", self.area));
        } else if self.last_line.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last_line = Some(Instant::now());
            // If the pipe is closed, the result still counts.
            let _ = writeln!(io::stderr(), "{words}");
        }
    }

    /// Adds a fact.
    pub fn info(&mut self, check: impl Display, seen: impl Display) {
        self.add(check, Outcome::Info, "", seen);
    }

    /// Adds a check that passed or failed.
    pub fn verdict(&mut self, check: impl Display, wanted: impl Display, seen: impl Display, passed: bool) {
        self.add(check, if passed { Outcome::Pass } else { Outcome::Fail }, wanted, seen);
    }

    /// Adds a check that failed with an error.
    pub fn fail(&mut self, check: impl Display, wanted: impl Display, why: impl Display) {
        self.add(check, Outcome::Fail, wanted, why);
    }

    /// Adds a check by its result.
    pub fn result(&mut self, check: impl Display, wanted: impl Display, result: Result<Seen, Failed>) {
        match result {
            Ok((seen, passed, figures)) => {
                self.verdict(check, wanted, seen, passed);
                self.figures(figures);
            }
            Err(error) => self.fail(check, wanted, error),
        }
    }

    /// Adds a check that is not possible here.
    pub fn skip(&mut self, check: impl Display, why: impl Display) {
        self.add(check, Outcome::Skipped, "", why);
    }

    fn add(&mut self, check: impl Display, outcome: Outcome, wanted: impl Display, seen: impl Display) {
        let (check, wanted, seen) = (check.to_string(), wanted.to_string(), seen.to_string());
        self.rows.push(Row { area: self.area, check, outcome, wanted, seen, figures: BTreeMap::new() });
    }

    /// Adds the numbers of the last row, except infinities and NaN, which JSON cannot express.
    pub fn figures<Name: Into<String>>(&mut self, figures: impl IntoIterator<Item = (Name, f64)>) {
        // A thousandth is finer than any measurement here.
        let rounded = figures.into_iter().map(|(name, value)| (name.into(), (value * 1000.0).round() / 1000.0));
        if let Some(row) = self.rows.last_mut() {
            row.figures.extend(rounded.filter(|(_, value)| value.is_finite()));
        }
    }
}

/// Formats a size of memory.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0)
}
