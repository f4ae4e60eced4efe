//! The table: every figure of the JSON lines that the rows printed.

use std::path::Path;

use serde_json::Value;

use crate::report::Failure;

const HEADINGS: [&str; 5] = ["", "row", "figure", "wanted", "seen"];

/// Prints the table of `path`. Returns whether there was a figure and every figure passed.
pub fn print(path: &Path) -> Result<bool, Failure> {
    let text = std::fs::read_to_string(path)?;
    let mut cells = vec![HEADINGS.map(str::to_owned)];
    let mut counts = [0usize; 3];
    for line in text.lines() {
        let figure: Value = serde_json::from_str(line)?;
        let field = |name: &str| figure[name].as_str().unwrap_or_default().to_owned();
        let (kind, verdict) = match figure["pass"].as_bool() {
            Some(true) if field("wanted").is_empty() => (None, ""),
            Some(true) => (Some(0), "pass"),
            Some(false) => (Some(1), "FAIL"),
            None => (Some(2), "skipped"),
        };
        if let Some(kind) = kind {
            counts[kind] += 1;
        }
        cells.push([verdict.to_owned(), field("row"), field("what"), field("wanted"), field("seen")]);
    }
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    for (index, row) in cells.iter().enumerate() {
        // The last column is not padded: lines are long enough.
        let widths = widths[..4].iter().copied().chain([0]);
        let padded: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        println!("| {} |", padded.join(" | "));
        if index == 0 {
            println!("|{}|", ["---"; 5].join("|"));
        }
    }
    let [passed, failed, skipped] = counts;
    println!("\n{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0 && passed > 0)
}
