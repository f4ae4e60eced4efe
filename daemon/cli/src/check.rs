//! `visiond check`: lists every error of a configuration at once.

mod resources;
mod user;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use visiond_config::diagnostics::{Diagnostic, Diagnostics, Severity, count};
use visiond_config::layers::Layers;
use visiond_config::settings::TakenSettings;
use visiond_config::types::Config;
use visiond_config::{Document, annotated, read};
use visiond_service::bundles::{Bundles, ModelBundle};
use visiond_service::reload::{Preview, Proposal, ProposedSettings};
use visiond_service::{NO_SINK, ServiceError};
use visiond_system::exit::{Exit, ExitError};

use crate::client::{Client, DaemonAddress, DaemonArgs};
use crate::config_path::config_path;
use crate::output::{print, print_json};

/// Time limit for the daemon's comparison, which reads the model files.
const PREVIEW: Duration = Duration::from_secs(30);

/// Check configurations and list every error with file, line and column
///
/// First checks the file itself, then, on this machine, what `visiond run` needs before the first frame: models, libraries,
/// secrets, certificates, programs, files, folders, sockets and addresses. Problems that persist until you fix them are errors.
/// Problems that the service may not have are warnings: a camera that is not plugged in, a folder that systemd creates, a
/// credential that systemd passes, a file that another user may read or write, an address that the running daemon uses.
/// Changes nothing: creates no file, connects to nothing, and starts no program except itself, to try the models. The one
/// exception: loading a TensorRT engine powers the GPU on, and may write compiled kernels into visiond's cache.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Configuration files [default: /etc/visiond/visiond.toml, otherwise visiond.toml in this folder]
    #[arg(value_name = "CONFIG")]
    configs: Vec<PathBuf>,

    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,

    /// Check only the file, not the models, programs, folders and devices on this machine
    #[arg(long)]
    file_only: bool,

    /// Print a valid configuration with all defaults filled in and *** in place of values that look like secrets
    #[arg(long, conflicts_with = "json")]
    effective: bool,

    /// Ask the running daemon what a reload would change
    #[arg(long, conflicts_with = "effective")]
    against_running: bool,

    /// Connect to the daemon at ADDRESS: http://HOST:PORT or unix:/PATH [default: as for `visiond reload`]
    #[arg(long, value_name = "ADDRESS", requires = "against_running", value_parser = DaemonAddress::parse)]
    url: Option<DaemonAddress>,

    /// Print a template with every key, its default and its description
    #[arg(long, conflicts_with_all = ["configs", "json", "effective", "file_only", "against_running"])]
    print_default_config: bool,
}

const AFTER_HELP: &str = "\
Not checked:
  whether a camera streams, and in the configured format and size
  whether a URL answers, and a video file can be decoded
  whether a command works: only that its program may be started
  whether the interpreter of a script exists
  whether a broker answers, and accepts the login or certificate
  whether a disk has room
  sockets that systemd passes to the daemon
  whether a new model passes the trial of a reload

Examples:
  visiond check
  visiond check --file-only jetson.toml        for another machine
  visiond check --against-running              show what a reload would change
  visiond check --effective /etc/visiond/visiond.toml
  visiond check --print-default-config > visiond.toml";

/// The findings for one file.
#[derive(Debug, Serialize)]
struct CheckedFile {
    file: PathBuf,
    valid: bool,
    findings: Vec<Diagnostic>,
    /// The installed settings that lie over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<CheckedSettings>,
    /// The installed bundles of its models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bundles: Vec<CheckedBundle>,
    /// The changes that a reload of the running daemon would make.
    #[serde(skip_serializing_if = "Option::is_none")]
    against_running: Option<Preview>,
    #[serde(skip)]
    config: Option<Config>,
}

/// Installed settings that a file names.
#[derive(Debug, Serialize)]
struct CheckedSettings {
    bundle: String,
    version: u64,
    /// The number of the key that signed it.
    signed_by: Option<String>,
}

/// An installed bundle that a model names.
#[derive(Debug, Serialize)]
struct CheckedBundle {
    model: String,
    bundle: String,
    version: u64,
    /// The number of the key that signed it.
    signed_by: Option<String>,
}

/// Checks every file and prints the findings.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    if args.print_default_config {
        return print(&annotated::text()).map(|()| Exit::Success);
    }
    let configs = if args.configs.is_empty() { vec![config_path(None)?] } else { args.configs };
    let mut checked: Vec<_> = configs.iter().map(|path| check(path, !args.file_only)).collect();
    if args.against_running {
        for one in checked.iter_mut().filter(|one| one.valid) {
            let daemon = DaemonArgs { config: Some(one.file.clone()), url: args.url.clone() };
            // Any daemon of this user counts: the file may be a draft that no daemon uses.
            let preview = preview(&Client::find(&daemon, None)?, &one.file, None)?;
            one.valid = preview.valid;
            one.against_running = Some(preview);
        }
    }
    let all_valid = checked.iter().all(|one| one.valid);
    if args.json {
        print_json(&checked)?;
    } else {
        let text = |one: &CheckedFile| match &one.config {
            Some(config) if args.effective && one.valid => {
                let notes: String = one.findings.iter().map(|f| format!("# {}\n", f.message)).collect();
                let settings = one
                    .settings
                    .as_ref()
                    .map_or(String::new(), |it| format!("# with the settings of {} {}\n", it.bundle, it.version));
                format!("# {}\n{settings}{notes}{}", one.file.display(), config.to_toml_without_secrets())
            }
            _ => text(one),
        };
        print(&checked.iter().map(text).collect::<String>())?;
    }
    Ok(if all_valid { Exit::Success } else { Exit::Config })
}

fn check(path: &Path, whole_machine: bool) -> CheckedFile {
    let mut config = None;
    let mut bundles = Bundles::new();
    let findings = match read(path) {
        Ok(text) => {
            let mut report = Diagnostics::default();
            let layers = if whole_machine { Layers::installed(&text, path, &mut report) } else { Layers::file(&text) };
            let document = Document::of(&layers, &mut report);
            config = document.config(path, &mut report);
            if let Some(config) = &config {
                warn_of_nothing(config, &mut report);
            }
            if let Some(config) = config.as_ref().filter(|_| whole_machine) {
                bundles = resources::check(path, config, document.tables(), &mut report);
            }
            report.into_findings(path, &text)
        }
        Err(finding) => vec![*finding],
    };
    let valid = findings.iter().all(|finding| finding.severity != Severity::Error);
    let bundles = bundles.into_iter().map(|(model, ModelBundle { name: bundle, version, signed_by, .. })| {
        CheckedBundle { model, bundle, version, signed_by }
    });
    let bundles = bundles.collect();
    let taken = config.as_ref().and_then(|config| config.bundles.taken.clone());
    let settings =
        taken.map(|TakenSettings { bundle, version, signed_by, .. }| CheckedSettings { bundle, version, signed_by });
    CheckedFile { file: path.to_owned(), valid, findings, settings, bundles, against_running: None, config }
}

/// Warns about a valid configuration, such as the package's default, that gives `run` nothing to do, in the words of `run`.
fn warn_of_nothing(config: &Config, report: &mut Diagnostics) {
    if !config.cameras.iter().any(|camera| camera.enabled) {
        report.warning(0..0, ServiceError::NoCamera.to_string());
    } else if config.sinks.is_empty() {
        report.warning(0..0, NO_SINK);
    }
}

/// Asks the daemon what a reload with the file would change. It gets the text and does the comparison itself, because the
/// running configuration contains secrets.
///
/// With `settings`, they lie over the file in place of those that are installed.
pub fn preview(client: &Client, path: &Path, settings: Option<ProposedSettings>) -> Result<Preview, ExitError> {
    let text = read(path).map_err(|finding| ExitError::new(Exit::Config, finding))?;
    preview_text(client, path, text, settings)
}

/// Asks the same about `text` as the content of the file.
pub fn preview_text(
    client: &Client,
    path: &Path,
    text: String,
    settings: Option<ProposedSettings>,
) -> Result<Preview, ExitError> {
    let path = std::path::absolute(path).map_err(ExitError::system)?;
    let proposal = serde_json::to_value(Proposal { path, text, settings })
        .map_err(|error| ExitError::new(Exit::Failure, error))?;
    client.post_json("/api/v1/changes", &proposal, PREVIEW)
}

fn text(checked: &CheckedFile) -> String {
    let mut out: String = checked.findings.iter().map(|finding| format!("{finding}\n")).collect();
    let number = |severity| checked.findings.iter().filter(|finding| finding.severity == severity).count();
    let signed = |key: &Option<String>| key.as_ref().map_or(String::new(), |key| format!(", signed by the key {key}"));
    if let Some(CheckedSettings { bundle, version, signed_by }) = &checked.settings {
        out += &format!("settings: bundle {bundle}, version {version}{}\n", signed(signed_by));
    }
    for CheckedBundle { model, bundle, version, signed_by } in &checked.bundles {
        let key = signed(signed_by);
        out += &format!("model {model}: bundle {bundle}, version {version}{key}\n");
    }
    let (errors, warnings) = (number(Severity::Error), number(Severity::Warning));
    let valid = checked.config.as_ref().filter(|_| errors == 0);
    let found = [(errors, "error"), (warnings, "warning")].into_iter().filter(|(number, _)| *number > 0);
    let contents = valid
        .map(|config| [(config.models.len(), "model"), (config.cameras.len(), "camera"), (config.sinks.len(), "sink")]);
    let counts = found.chain(contents.into_iter().flatten()).map(|(number, noun)| count(number, noun));
    let parts: Vec<_> = valid.map(|_| "no error".to_owned()).into_iter().chain(counts).collect();
    out += &format!("{}: {}\n", checked.file.display(), parts.join(", "));
    checked.against_running.iter().for_each(|preview| out += &against_running(preview));
    out
}

fn against_running(preview: &Preview) -> String {
    let Preview { changes, restart_needed, error, .. } = preview;
    let lines = match error {
        Some(error) => vec![format!("be refused: {error}")],
        None if changes.is_empty() && restart_needed.is_empty() => vec!["change nothing".to_owned()],
        None => {
            let changes = changes.iter().map(|change| format!("change: {change}"));
            changes.chain(restart_needed.iter().map(|what| format!("not be enough: {what}"))).collect()
        }
    };
    lines.iter().map(|line| format!("a reload would {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn checked(text: &str) -> (tempfile::TempDir, CheckedFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("visiond.toml");
        std::fs::write(&path, text).unwrap();
        let checked = check(&path, true);
        (folder, checked)
    }

    #[test]
    fn missing_files_programs_and_devices_are_reported_with_their_lines() {
        let (folder, checked) = checked(
            "[[model]]\nname = \"n\"\npath = \"gone.onnx\"\n\
             [[camera]]\nname = \"a\"\nsource = { type = \"v4l2\", device = \"no-device\" }\n\
             [[camera]]\nname = \"b\"\nsource = { type = \"command\", command = [\"no-such-program-here\"] }\n\
             [[camera]]\nname = \"c\"\nsource = { type = \"video\", url = \"no.mp4\" }\n\
             [[camera]]\nname = \"d\"\nsource = { type = \"rtsp\", url = \"rtsp://192.0.2.1/\" }\n\
             [[sink]]\ntype = \"file\"\npath = \"no-folder/out.jsonl\"\n\
             [ffmpeg]\nprogram = \"./no-ffmpeg\"\n",
        );
        let place = format!("{}/", folder.path().display());
        let lines: Vec<_> =
            checked.findings.iter().map(|f| (f.line.unwrap(), f.severity, f.message.replace(&place, ""))).collect();
        let (error, warning) = (Severity::Error, Severity::Warning);
        let expected = [
            (3, error, "model n: no model at gone.onnx: check the name, or download the model again"),
            (
                6,
                warning,
                "no-device is missing: plug the camera in, or correct `device` (`visiond probe` lists the cameras)",
            ),
            (9, error, "cannot start no-such-program-here: no such program; install it or set its path"),
            (12, error, "cannot open the video no.mp4: there is no such file"),
            (
                18,
                error,
                "sink file: cannot write no-folder/out.jsonl: No such file or directory (os error 2); make its folder",
            ),
            (
                20,
                error,
                "the program ffprobe, which reads videos, is missing: install it (`apt install ffmpeg`) or set `program` \
                 in `[ffmpeg]` to its path",
            ),
        ];
        assert_eq!(lines, expected.map(|(line, severity, text)| (line, severity, text.to_owned())));
        assert!(!checked.valid);
        assert!(text(&checked).ends_with("visiond.toml: 5 errors, 1 warning\n"), "{}", text(&checked));
    }

    #[test]
    fn an_empty_configuration_is_a_warning_in_the_words_of_run() {
        let (_folder, checked) = checked("# nothing\n");
        let messages: Vec<_> = checked.findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, ["no camera to run: add a [[camera]], or set `enabled` of one to true"]);
        assert!(checked.valid);
        assert!(text(&checked).ends_with("visiond.toml: no error, 1 warning, 0 models, 0 cameras, 0 sinks\n"));
    }

    #[test]
    fn a_class_that_the_model_lacks_is_reported_at_the_model() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
        let (_folder, checked) = checked(&format!(
            "[engine]\nbackend = \"rten\"\n[[model]]\nname = \"n\"\npath = \"{}\"\nclasses = [\"persn\"]\n\
             [[camera]]\nname = \"p\"\nsource.type = \"pattern\"\n[[sink]]\ntype = \"stdout\"\n",
            model.display()
        ));
        assert_eq!(checked.findings.len(), 1, "{:#?}", checked.findings);
        assert!(checked.findings[0].message.contains("persn"), "{:#?}", checked.findings);
    }

    #[test]
    fn classes_of_lines_and_zones_that_the_model_lacks_are_reported_at_their_tables() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
        let (_folder, checked) = checked(&format!(
            "[engine]\nbackend = \"rten\"\n[[model]]\nname = \"n\"\npath = \"{}\"\n\
             [[camera]]\nname = \"p\"\nsource.type = \"pattern\"\ntrack = {{}}\n[[sink]]\ntype = \"stdout\"\n\
             [[camera.line]]\nname = \"l\"\npoints = [[0, 0], [1, 1]]\nclasses = [\"persn\", \"car\"]\n\
             [[camera.zone]]\nname = \"z\"\nclasses = [\"buss\"]\nleft_behind = {{ classes = [\"suitcas\"] }}\n",
            model.display()
        ));
        let found: Vec<_> = checked.findings.iter().map(|finding| (finding.line, &*finding.message)).collect();
        assert!(checked.valid && found.len() == 3, "{found:#?}");
        for ((line, message), (wanted, class)) in found.iter().zip([(12, "persn"), (16, "buss"), (16, "suitcas")]) {
            let words = format!("the camera's model does not have the class `{class}`");
            assert!(*line == Some(wanted) && message.starts_with(&words), "{found:#?}");
        }
    }

    #[test]
    fn a_priority_that_has_no_effect_is_a_warning() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
        let found = |priority: &str| {
            let (_folder, checked) = checked(&format!(
                "[engine]\nbackend = \"rten\"\n[[model]]\nname = \"n\"\npath = \"{}\"\npriority = \"{priority}\"\n\
                 [[camera]]\nname = \"p\"\nsource.type = \"pattern\"\n[[sink]]\ntype = \"stdout\"\n",
                model.display()
            ));
            assert!(checked.valid);
            checked.findings.into_iter().map(|finding| (finding.line, finding.message)).collect::<Vec<_>>()
        };
        let message =
            "model n runs on the CPU, where `priority` has no effect: remove it, or build an engine for the GPU";
        assert_eq!(found("high"), [(Some(6), message.to_owned())]);
        assert_eq!(found("normal"), []);
    }

    #[test]
    fn what_a_reload_would_do_has_a_line_each() {
        use visiond_config::diff::{Change, Difference};
        let change = Difference { part: "camera".into(), name: "door".to_owned(), change: Change::Changed };
        let restart_needed = vec!["[device] `name` is b".to_owned()];
        let preview = |changes, restart_needed, error: Option<&str>| {
            against_running(&Preview { valid: true, changes, restart_needed, error: error.map(str::to_owned) })
        };
        assert_eq!(preview(Vec::new(), Vec::new(), None), "a reload would change nothing\n");
        assert_eq!(preview(Vec::new(), Vec::new(), Some("no model")), "a reload would be refused: no model\n");
        let not_enough = "a reload would not be enough: [device] `name` is b\n";
        assert_eq!(preview(Vec::new(), restart_needed.clone(), None), not_enough);
        let both = preview(vec![change], restart_needed, None);
        assert!(both.starts_with("a reload would change: camera door") && both.ends_with(not_enough), "{both}");
    }

    #[test]
    fn a_configuration_whose_cameras_are_off_has_nothing_to_run() {
        let with = |camera: &str, sink: &str| {
            let (_folder, checked) = checked(&format!(
                "[[model]]\nname = \"n\"\npath = \"n.onnx\"\n[[camera]]\nname = \"p\"\nsource.type = \"pattern\"\n{camera}\n{sink}"
            ));
            checked.findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("|")
        };
        assert!(with("enabled = false", "").contains("no camera to run"));
        assert!(with("", "").contains(NO_SINK) && !with("", "").contains("no camera to run"));
        assert!(!with("", "[[sink]]\ntype = \"stdout\"\n").contains(NO_SINK));
    }
}
