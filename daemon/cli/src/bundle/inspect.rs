//! `visiond bundle inspect` and `verify`.

use std::path::PathBuf;

use serde::Serialize;
use visiond_bundle::{Bundle, EngineBuild, Fallback, Manifest};
use visiond_system::exit::{Exit, ExitError};

use super::failure::refuse;
use super::trusted_keys::KeyArgs;
use crate::output::{labelled, print, print_report};

/// Show what is in a bundle, whoever made it
#[derive(Debug, clap::Args)]
#[command(after_help = INSPECT_HELP)]
pub struct Args {
    /// Bundle
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

const INSPECT_HELP: &str = "\
Nothing is verified: see `visiond bundle verify`.

Examples:
  visiond bundle inspect street-7.visiond
  visiond bundle inspect --json street-7.visiond | jq .manifest.version";

/// Check the signature and every file of a bundle, and write nothing
#[derive(Debug, clap::Args)]
#[command(after_help = VERIFY_HELP)]
pub struct VerifyArgs {
    /// Bundle
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    #[command(flatten)]
    keys: KeyArgs,
}

const VERIFY_HELP: &str = "\
Examples:
  visiond bundle verify street-7.visiond
  visiond bundle verify street-7.visiond --key team.pub";

/// The bundle as `--json` prints it.
#[derive(Debug, Serialize)]
struct BundleReport {
    manifest: Manifest,
    /// The number of the key that signed it, which nothing has verified; `None` without a signature.
    signed_by: Option<String>,
}

/// Shows what is in a bundle.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    let bundle = Bundle::open(&args.bundle).map_err(refuse)?;
    let signed_by = bundle.claimed_signer().map_err(refuse)?.map(|signer| signer.id);
    let report = BundleReport { manifest: bundle.manifest().clone(), signed_by };
    print_report(args.json, &report, text)
}

fn text(report: &BundleReport) -> String {
    let manifest = &report.manifest;
    let mut out = labelled("bundle", &format!("{} {}", manifest.name, manifest.version));
    let signer = report.signed_by.as_ref().map_or("nobody".to_owned(), |id| format!("the key {id}, not verified here"));
    out += &labelled("signed by", &signer);
    let expires = manifest.expires.map(|date| date.to_string());
    for (label, value) in [
        ("needs", &manifest.minimum_visiond.as_ref().map(|version| format!("visiond {version}"))),
        ("licence", &manifest.licence),
        ("notes", &manifest.notes),
        ("expires", &expires),
    ] {
        if let Some(value) = value {
            out += &labelled(label, value);
        }
    }
    let models: Vec<_> = manifest.models.iter().map(|model| model.file.as_str()).collect();
    out += &labelled("models", &models.join(", "));
    for (model, build) in manifest.models.iter().filter_map(|model| Some((model, model.build.as_ref()?))) {
        let flags: String = build.flags.iter().map(|flag| format!(" {flag}")).collect();
        out +=
            &labelled("built by", &format!("the device: visiond build {}{flags}{}", model.file, fallback_text(build)));
    }
    out += &labelled("card", manifest.card.as_deref().unwrap_or("none: the model's own data"));
    let proof = manifest.proof.as_ref().map_or("none".to_owned(), |proof| {
        let limits = [
            proof.min_iou.map(|value| format!("IoU {value}")),
            proof.max_score_difference.map(|value| format!("scores within {value}")),
            proof.max_outside.map(|value| format!("{value} outside")),
            proof.max_latency_p99_ms.map(|value| format!("p99 {value} ms")),
        ];
        let limits: String = limits.into_iter().flatten().map(|limit| format!(", {limit}")).collect();
        format!("{} pictures{limits}", proof.pictures.len())
    });
    out += &labelled("proof", &proof);
    for file in &manifest.files {
        out += &format!("  {:>12}  {}\n", file.bytes, file.path);
    }
    out
}

/// Returns when the ONNX model itself is used, for the end of a line.
fn fallback_text(build: &EngineBuild) -> &'static str {
    match build.fallback {
        Fallback::WithoutGpu => "",
        Fallback::Always => ", otherwise the ONNX model",
        Fallback::Never => ", never without",
    }
}

/// Verifies a bundle.
pub fn verify(args: &VerifyArgs) -> Result<Exit, ExitError> {
    let keys = args.keys.read()?;
    let (bundle, signer) = Bundle::open_trusted(&args.bundle, &keys).map_err(refuse)?;
    bundle.check_files().map_err(refuse)?;
    let manifest = bundle.manifest();
    let (name, version, files) = (&manifest.name, manifest.version, manifest.files.len());
    print(&format!("{name} {version}: signed by the key {}, all {files} files are as signed\n", signer.id))?;
    Ok(Exit::Success)
}
