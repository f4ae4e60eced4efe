//! Areas, and the checks in them: the rows of the self-test's table.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is tested, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// The board, its system, and the versions of what visiond uses.
    Board,
    /// Device nodes of GPU and cameras.
    Nodes,
    /// The GPU by CUDA.
    Cuda,
    /// Each kind of memory that frames may lie in.
    Memory,
    /// TensorRT's library.
    Tensorrt,
    /// Each camera behind V4L2.
    Cameras,
    /// NVIDIA's camera stack through a pipe.
    Argus,
    /// What of the areas above differs in the sandbox of visiond.service; alone, of all of them.
    Sandbox,
    /// Temperatures under load.
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

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is as wanted.
    Pass,
    /// It is not.
    Fail,
    /// It could not be tested here; `seen` says why.
    Skipped,
    /// A fact of which nothing is wanted.
    Info,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What is tested.
    pub area: Area,
    /// The check; `area` and `check` together name a row.
    pub check: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What is wanted; empty of a fact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wanted: String,
    /// What was seen, or why the check was skipped.
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
    /// So far.
    pub rows: Vec<Row>,
}

impl Section {
    /// No row yet.
    pub fn new(area: Area) -> Self {
        Self { area, rows: Vec::new() }
    }

    /// A fact.
    pub fn info(&mut self, check: impl fmt::Display, seen: impl fmt::Display) -> &mut Row {
        self.add(check, Outcome::Info, "", seen)
    }

    /// A check that passed or failed.
    pub fn verdict(
        &mut self,
        check: impl fmt::Display,
        wanted: impl fmt::Display,
        seen: impl fmt::Display,
        passed: bool,
    ) -> &mut Row {
        self.add(check, if passed { Outcome::Pass } else { Outcome::Fail }, wanted, seen)
    }

    /// A check that failed before there was anything to see.
    pub fn fail(&mut self, check: impl fmt::Display, wanted: impl fmt::Display, why: impl fmt::Display) -> &mut Row {
        self.verdict(check, wanted, why, false)
    }

    /// A check that cannot be made here.
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
