//! Areas, and the checks in them: the rows of the self-test's table.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// An area of the self-test, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
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
    /// Differences of the areas above in the sandbox of visiond.service; alone, of all of them
    Sandbox,
    /// Temperatures under load
    Heat,
}

impl Area {
    /// The name in the table, in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Board => "board",
            Self::Nodes => "nodes",
            Self::Cuda => "cuda",
            Self::Memory => "memory",
            Self::Tensorrt => "tensorrt",
            Self::Cameras => "cameras",
            Self::Argus => "argus",
            Self::Sandbox => "sandbox",
            Self::Heat => "heat",
        }
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The result is as wanted.
    Pass,
    /// The result is not as wanted.
    Fail,
    /// The check is not possible here; `seen` says why.
    Skipped,
    /// A fact without a requirement.
    Info,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The area.
    pub area: Area,
    /// The name of the check, unique within its area.
    pub check: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The wanted result; empty for a fact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wanted: String,
    /// The actual result, or why the check was skipped.
    pub seen: String,
    /// The numbers in `seen`, each with its unit in its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

impl Row {
    /// Adds a number that stands in `seen`, unless it is infinite or no number: JSON has neither.
    pub fn figure(&mut self, name: &str, value: f64) -> &mut Self {
        // A thousandth is less than anything here is measured to.
        let rounded = (value * 1000.0).round() / 1000.0;
        if rounded.is_finite() {
            self.figures.insert(name.to_owned(), rounded);
        }
        self
    }
}

/// The rows of one area, while it is tested.
#[derive(Debug)]
pub struct Section {
    area: Area,
    /// The rows so far.
    pub rows: Vec<Row>,
}

impl Section {
    /// Makes an empty section.
    pub fn new(area: Area) -> Self {
        Self { area, rows: Vec::new() }
    }

    /// Adds a fact.
    pub fn info(&mut self, check: impl fmt::Display, seen: impl fmt::Display) -> &mut Row {
        self.add(check, Outcome::Info, "", seen)
    }

    /// Adds a check that passed or failed.
    pub fn verdict(
        &mut self,
        check: impl fmt::Display,
        wanted: impl fmt::Display,
        seen: impl fmt::Display,
        passed: bool,
    ) -> &mut Row {
        self.add(check, if passed { Outcome::Pass } else { Outcome::Fail }, wanted, seen)
    }

    /// Adds a check that failed with an error.
    pub fn fail(&mut self, check: impl fmt::Display, wanted: impl fmt::Display, why: impl fmt::Display) -> &mut Row {
        self.verdict(check, wanted, why, false)
    }

    /// Adds a check that is not possible here.
    pub fn skip(&mut self, check: impl fmt::Display, why: impl fmt::Display) -> &mut Row {
        self.add(check, Outcome::Skipped, "", why)
    }

    fn add(
        &mut self,
        check: impl fmt::Display,
        outcome: Outcome,
        wanted: impl fmt::Display,
        seen: impl fmt::Display,
    ) -> &mut Row {
        let (check, wanted, seen) = (check.to_string(), wanted.to_string(), seen.to_string());
        let index = self.rows.len();
        self.rows.push(Row { area: self.area, check, outcome, wanted, seen, figures: BTreeMap::new() });
        &mut self.rows[index]
    }
}
