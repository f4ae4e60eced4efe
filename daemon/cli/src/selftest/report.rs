//! The report of a self-test: one type for the table, the JSON and the archive.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use visiond_system::logging::escape;

use super::checks::{Area, Outcome, Row};
use super::nodes::DeviceNode;

/// The format that this version writes. New fields do not change it.
pub const FORMAT: u32 = 1;

/// A whole self-test; docs/selftest.md lists the fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub format: u32,
    pub visiond: String,
    pub arch: String,
    /// The start time, in UTC.
    pub at: String,
    /// The duration.
    pub seconds: f64,
    pub rows: Vec<Row>,
    #[serde(default)]
    pub nodes: Vec<DeviceNode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
}

/// The run in the unit's sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The command, with every property of the unit.
    pub command: Vec<String>,
    pub rows: Vec<Row>,
    pub nodes: Vec<DeviceNode>,
}

impl Report {
    /// Returns how many rows passed, failed and were skipped.
    pub fn counts(&self) -> [usize; 3] {
        [Outcome::Pass, Outcome::Fail, Outcome::Skipped]
            .map(|outcome| self.rows.iter().filter(|row| row.outcome == outcome).count())
    }

    /// Formats the table, followed by the sums.
    pub fn table(&self) -> String {
        let mut cells = vec![["", "area", "check", "seen"].map(str::to_owned)];
        cells.extend(self.rows.iter().map(|Row { area, check, outcome, wanted, seen, .. }| {
            let (outcome, seen) = match outcome {
                Outcome::Pass => ("pass", seen),
                Outcome::Fail => ("FAIL", &format!("{seen} (wanted: {wanted})")),
                Outcome::Skipped => ("skipped", seen),
                Outcome::Info => ("info", seen),
            };
            [outcome, &area.to_string(), check, seen].map(|cell| escape(&cell.replace('\n', "; ")))
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
        // The areas in which every check was skipped.
        let is_untested = |area: &&Area| {
            let mut rows = self.rows.iter().filter(|row| row.area == **area).peekable();
            rows.peek().is_some() && rows.all(|row| row.outcome == Outcome::Skipped)
        };
        let untested: Vec<_> = Area::value_variants().iter().filter(is_untested).map(Area::to_string).collect();
        if !untested.is_empty() {
            out += &format!("not tested at all: {}\n", untested.join(", "));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::checks::AreaTest;
    use super::*;

    fn report() -> Report {
        let mut test = AreaTest::new(Area::Memory, true, Instant::now());
        test.verdict("mapped, yuyv 1080p", "the CPU's tensor", "212 us", true);
        test.figures([("us", 212.3456), ("nan", f64::NAN), ("infinite", f64::INFINITY), ("too_great", f64::MAX)]);
        test.fail("managed, yuyv 1080p", "the CPU's tensor", "cuMemAllocManaged\nfailed");
        test.skip("registered, yuyv 1080p", "the GPU registers no memory");
        test.info("CPU reads", "8.1 GB/s");
        Report {
            format: FORMAT,
            visiond: "0.1.0".to_owned(),
            arch: "aarch64".to_owned(),
            at: "2026-01-02T03:04:05Z".to_owned(),
            seconds: 12.6,
            rows: test.rows,
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
        assert_eq!(report().rows[0].figures, [("us".to_owned(), 212.346)].into());
        assert_eq!(serde_json::from_slice::<Report>(&serde_json::to_vec(&report())?)?, report());
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

    #[test]
    fn areas_that_were_not_tested_at_all_are_named_last() {
        let rows = |area, outcomes: &[Outcome]| {
            let mut test = AreaTest::new(area, true, Instant::now());
            for &outcome in outcomes {
                test.info("check", "seen");
                if let Some(row) = test.rows.last_mut() {
                    row.outcome = outcome;
                }
            }
            test.rows
        };
        let skipped = [Outcome::Skipped; 2];
        let rows = [
            rows(Area::Board, &[Outcome::Skipped, Outcome::Info]),
            rows(Area::Cuda, &skipped),
            rows(Area::Memory, &[Outcome::Fail, Outcome::Pass]),
            rows(Area::Heat, &skipped),
        ];
        let table = Report { rows: rows.concat(), ..report() }.table();
        assert!(table.ends_with("1 passed, 1 failed, 5 skipped\nnot tested at all: cuda, heat\n"), "{table}");
    }
}
