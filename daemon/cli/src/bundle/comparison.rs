//! The comparison of a new version with the one in use, on live frames of the cameras. What they publish stays that of the one in use.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use visiond_bundle::Manifest;
use visiond_config::units::format_duration;
use visiond_system::exit::{Exit, ExitError};

use super::child::{Job, this_program};
use super::proof::Failed;
use crate::client::DaemonAddress;
use crate::output::note;

/// How many frames of all cameras are compared in a second, so that a machine whose CPU runs both models has time for the one in use.
const FPS: &str = "2";

/// How long the new model may take to be loaded and to run its last frame.
const LOADING: Duration = Duration::from_secs(10 * 60);

/// The daemon whose model is in use.
pub struct Running<'a> {
    pub address: &'a DaemonAddress,
    pub config: Option<&'a Path>,
    /// The model's name.
    pub model: &'a str,
}

/// What of the report is said.
#[derive(Deserialize)]
struct Report {
    reasons: Vec<String>,
    frames: u64,
    judged: bool,
    found_share: Option<f64>,
}

/// Compares a model of a bundle with one that the daemon runs, for this long. What keeps it from being compared speaks neither for nor
/// against it: the watch comes after it.
pub fn compare_live(model: &Path, manifest: &Manifest, running: &Running<'_>, time: Duration) -> Result<(), Failed> {
    let mut command = this_program()?;
    command.args(["compare", "--json", "--max-fps", FPS, "--with", running.model]).arg(model);
    command.args(["--time", &format!("{}ms", time.as_millis())]);
    command.args(["--url", &running.address.to_string()]);
    if let Some(config) = running.config {
        command.arg("--config").arg(config);
    }
    if let Some(least) = manifest.live.as_ref().and_then(|live| live.min_found) {
        command.args(["--min-found", &least.to_string()]);
    }
    let job = Job { doing: "compare", remedy: "see the log of the daemon", timeout: time + LOADING };
    let ended = job.finish(command)?;
    let report: Option<Report> = serde_json::from_slice(&ended.out).ok();
    let name = format!("{} {}", manifest.name, manifest.version);
    match (ended.exit, report) {
        (Exit::Differs, Some(report)) => {
            Err(Failed::Proof(report.reasons.join("; "), "make a better version, or allow more with --min-found"))
        }
        (Exit::Success, Some(report)) => {
            let time = format_duration(time);
            let said = match report.found_share.filter(|_| report.judged) {
                Some(share) => format!("it finds {:.0} % of what the version in use detects", share * 100.0),
                None => "too few detections to judge it by".to_owned(),
            };
            note(&format!("{name}: compared for {time} on {} live frames: {said}", report.frames));
            Ok(())
        }
        // Of the model itself.
        (exit @ (Exit::Config | Exit::Model | Exit::GpuLost), _) => {
            Err(Failed::Other(ExitError::new(exit, ended.last_error)))
        }
        _ => {
            note(&format!("{name}: not compared on live frames: {}", ended.last_error));
            Ok(())
        }
    }
}
