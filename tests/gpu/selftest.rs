//! Row "Self-test": what `visiond selftest` reports about the GPU, its memory and TensorRT, as figures of this table.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::report::{Failure, Report};
use crate::setup::Setup;

/// The sections about the GPU; the rest are about the machine.
const AREAS: &str = "board,cuda,memory,tensorrt";

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    setup.device()?;
    let mut command = Command::new(setup.visiond()?);
    let output = command.args(["selftest", "--json", "--only", AREAS]).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    let ended = |_| Failure::Broken(format!("visiond selftest ended with {}: {last}", output.status));
    let found: Value = serde_json::from_slice(&output.stdout).map_err(ended)?;
    for row in found["rows"].as_array().into_iter().flatten() {
        let field = |name: &str| row[name].as_str().unwrap_or_default();
        let (area, check, wanted, seen) = (field("area"), field("check"), field("wanted"), field("seen"));
        let area = format!("Self-test, {area}");
        match field("outcome") {
            "info" => report.note(&area, check, seen),
            "skipped" => report.skipped(&area, check, wanted, seen),
            outcome => report.figure(&area, check, wanted, seen, outcome == "pass"),
        }
    }
    Ok(())
}
