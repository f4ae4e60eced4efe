//! What a self-test found: one type for the table, the JSON and the archive.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use visiond_system::logging::escape;

use super::checks::{Area, Outcome, Row};
use super::nodes::DeviceNode;

/// The format that this version writes. A field that is added does not change it.
pub const FORMAT: u32 = 1;

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
    use super::super::checks::Section;
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
