//! What a self-test found: one type for the table, the JSON and the archive.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use visiond_system::logging::escape;

use super::nodes::DeviceNode;

/// The format that this version writes. A field that is added does not change it.
pub const FORMAT: u32 = 1;

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

/// A whole self-test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`] of the version that wrote it.
    pub format: u32,
    /// visiond's version.
    pub visiond: String,
    /// The processor's architecture.
    pub arch: String,
    /// When it began, UTC.
    pub at: String,
    /// How long it took.
    pub seconds: f64,
    /// The table.
    pub rows: Vec<Row>,
    /// Device nodes.
    #[serde(default)]
    pub nodes: Vec<DeviceNode>,
    /// The same in the unit's sandbox, where that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
}

/// What ran in the unit's sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The command, with every property of the unit.
    pub command: Vec<String>,
    /// Its table.
    pub rows: Vec<Row>,
    /// Its device nodes.
    pub nodes: Vec<DeviceNode>,
}

impl Report {
    /// Rows that passed, failed, were skipped.
    pub fn counts(&self) -> [usize; 3] {
        let count = |outcome| self.rows.iter().filter(|row| row.outcome == outcome).count();
        [count(Outcome::Pass), count(Outcome::Fail), count(Outcome::Skipped)]
    }

    /// The table as text, with its sum.
    pub fn table(&self) -> String {
        let words = |outcome| match outcome {
            Outcome::Pass => "pass",
            Outcome::Fail => "FAIL",
            Outcome::Skipped => "skipped",
            Outcome::Info => "info",
        };
        let seen = |row: &Row| match row.outcome {
            Outcome::Fail => format!("{} (wanted: {})", row.seen, row.wanted),
            _ => row.seen.clone(),
        };
        let mut cells = vec![["", "area", "check", "seen"].map(str::to_owned)];
        cells.extend(self.rows.iter().map(|row| {
            [words(row.outcome), row.area.name(), &row.check, &seen(row)].map(|cell| escape(&cell.replace('\n', "; ")))
        }));
        let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2)];
        let mut out = String::new();
        for [outcome, area, check, seen] in &cells {
            out += &format!("{outcome:0$}  {area:1$}  {check:2$}  {seen}\n", widths[0], widths[1], widths[2]);
        }
        let [passed, failed, skipped] = self.counts();
        let at = escape(&self.at);
        out += &format!("\nvisiond {} on {}, {at}, {:.0} s\n", escape(&self.visiond), escape(&self.arch), self.seconds);
        out += &format!("{passed} passed, {failed} failed, {skipped} skipped\n");
        let untested = self.untested();
        if !untested.is_empty() {
            out += &format!("not tested at all: {}\n", untested.join(", "));
        }
        out
    }

    /// The areas of which every check was skipped.
    fn untested(&self) -> Vec<&'static str> {
        let outcomes = |area| self.rows.iter().filter(move |row| row.area == area).map(|row| row.outcome);
        let areas = Area::value_variants().iter();
        let is_untested =
            |area: &&Area| outcomes(**area).any(|_| true) && outcomes(**area).all(|o| o == Outcome::Skipped);
        areas.filter(is_untested).map(|area| area.name()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut section = Section::new(Area::Memory);
        section.verdict("mapped, yuyv 1080p", "the CPU's tensor", "212 us", true).figure("us", 212.3456);
        section.fail("managed, yuyv 1080p", "the CPU's tensor", "cuMemAllocManaged\nfailed");
        section.skip("registered, yuyv 1080p", "the GPU registers no memory");
        section.info("CPU reads", "8.1 GB/s");
        Report {
            format: FORMAT,
            visiond: "0.1.0".to_owned(),
            arch: "aarch64".to_owned(),
            at: "2026-01-02T03:04:05Z".to_owned(),
            seconds: 12.6,
            rows: section.rows,
            nodes: Vec::new(),
            sandbox: None,
        }
    }

    #[test]
    fn a_table_has_a_line_a_row_with_its_outcome_and_ends_with_the_sums() {
        let expected = "         area    check                   seen
pass     memory  mapped, yuyv 1080p      212 us
FAIL     memory  managed, yuyv 1080p     cuMemAllocManaged; failed (wanted: the CPU's tensor)
skipped  memory  registered, yuyv 1080p  the GPU registers no memory
info     memory  CPU reads               8.1 GB/s

visiond 0.1.0 on aarch64, 2026-01-02T03:04:05Z, 13 s
1 passed, 1 failed, 1 skipped
";
        assert_eq!(report().table(), expected);
    }

    #[test]
    fn a_figure_that_json_cannot_hold_is_left_out_and_the_report_is_read_back() -> Result<(), serde_json::Error> {
        let mut with_them = report();
        for (name, value) in [("nan", f64::NAN), ("infinite", f64::INFINITY), ("too_great", f64::MAX)] {
            with_them.rows[0].figure(name, value);
        }
        assert_eq!(serde_json::from_slice::<Report>(&serde_json::to_vec(&with_them)?)?, report());
        Ok(())
    }

    #[test]
    fn a_report_of_a_later_version_that_has_more_fields_is_read() -> Result<(), serde_json::Error> {
        let mut json = serde_json::to_value(report())?;
        json["new"] = "field".into();
        json["rows"][0]["new"] = "field".into();
        assert_eq!(json["rows"][0]["figures"]["us"], 212.346);
        assert_eq!(serde_json::from_value::<Report>(json)?, report());
        Ok(())
    }
}
