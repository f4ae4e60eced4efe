//! `visiond bundle inspect` and `verify`.

use std::path::PathBuf;

use serde::Serialize;
use visiond_bundle::{Bundle, EngineBuild, Fallback, KeyList, Manifest, SignedKeyList};
use visiond_config::format_size;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::is_unprintable;

use super::failure::{refuse, refuse_key_list};
use super::trusted_keys::KeyArgs;
use super::versions::StoreArgs;
use crate::output::{labelled, print, print_report};

/// Show what is in a bundle or a list of keys, whoever made it
#[derive(Debug, clap::Args)]
#[command(after_help = INSPECT_HELP)]
pub struct Args {
    /// Bundle; with --keys, a list of keys
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    /// Show a list of keys, and which keys of the installed list, or otherwise of its own, have signed it
    #[arg(long)]
    keys: bool,

    #[command(flatten)]
    store: StoreArgs,

    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

const INSPECT_HELP: &str = "\
Nothing of a bundle is verified: see `visiond bundle verify`.

Examples:
  visiond bundle inspect street-7.visiond
  visiond bundle inspect --json street-7.visiond | jq .manifest.version
  visiond bundle inspect --keys keys.toml
  visiond bundle inspect --keys /var/lib/visiond-models/keys.toml";

/// Check the signature and every file of a bundle, and write nothing
#[derive(Debug, clap::Args)]
#[command(after_help = VERIFY_HELP)]
pub struct VerifyArgs {
    /// Bundle
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    #[command(flatten)]
    keys: KeyArgs,

    #[command(flatten)]
    store: StoreArgs,
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
    /// The text of its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<String>,
}

/// A list of keys as `--json` prints it.
#[derive(Debug, Serialize)]
struct KeyListReport {
    list: KeyList,
    /// The version of the list whose keys must sign it: the installed one, if this one is newer, otherwise itself.
    judged_by: u64,
    /// The names of its keys that have.
    signed_by: Vec<String>,
    /// How many must.
    needed: usize,
}

/// Shows what is in a bundle or a list of keys.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    if args.keys {
        let signed = SignedKeyList::open(&args.bundle).map_err(refuse_key_list)?;
        let list = signed.list().clone();
        let installed = args.store.open().key_list().map_err(refuse_key_list)?;
        let judge = installed.filter(|installed| installed.version < list.version).unwrap_or_else(|| list.clone());
        let signed_by = signed.signed_by(&judge).map_err(refuse_key_list)?.into_iter().map(str::to_owned).collect();
        let report = KeyListReport { list, judged_by: judge.version, signed_by, needed: judge.threshold };
        return print_report(args.json, &report, text_of_keys);
    }
    let bundle = Bundle::open(&args.bundle).map_err(refuse)?;
    let signed_by = bundle.claimed_signer().map_err(refuse)?.map(|signer| signer.id);
    let settings = bundle.settings().map_err(refuse)?;
    let report = BundleReport { manifest: bundle.manifest().clone(), signed_by, settings };
    print_report(args.json, &report, text)
}

fn text_of_keys(report: &KeyListReport) -> String {
    let KeyListReport { list, judged_by, signed_by, needed } = report;
    let mut out = labelled("list of keys", &format!("version {}", list.version));
    out += &labelled("next list", &format!("signed by {} of these {} keys", list.threshold, list.keys.len()));
    let names = if signed_by.is_empty() { "nobody".to_owned() } else { signed_by.join(", ") };
    let counted = format!("{names}: {} of the {needed} that version {judged_by} demands", signed_by.len());
    out += &labelled("signed by", &counted);
    for (mark, keys) in [("", &list.keys), ("  revoked", &list.revoked)] {
        for key in keys {
            out += &format!("  {}  {}{mark}\n", key.id(), key.name);
        }
    }
    out
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
    if let Some(settings) = &report.settings {
        // A stranger's text must not move the cursor.
        let is_shown = |c: &char| matches!(c, '\n' | '\t') || !is_unprintable(*c);
        let settings: String = settings.chars().filter(is_shown).collect();
        out += &labelled("settings", if manifest.changes_detections { "they change detections" } else { "" });
        return out + "\n" + settings.trim_end() + "\n";
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
            proof.max_memory_bytes.map(|value| format!("{} of memory", format_size(value))),
        ];
        let limits: String = limits.into_iter().flatten().map(|limit| format!(", {limit}")).collect();
        format!("{} pictures{limits}", proof.pictures.len())
    });
    out += &labelled("proof", &proof);
    if let Some(least) = manifest.live.as_ref().and_then(|live| live.min_found) {
        out += &labelled("on devices", &format!("finds {least} of what the version in use detects on live frames"));
    }
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
    let keys = args.keys.read(&args.store.open())?;
    let (bundle, signer) = Bundle::open_trusted(&args.bundle, &keys).map_err(refuse)?;
    bundle.check_files().map_err(refuse)?;
    let manifest = bundle.manifest();
    let (name, version, files) = (&manifest.name, manifest.version, manifest.files.len());
    print(&format!("{name} {version}: signed by the key {}, all {files} files are as signed\n", signer.id))?;
    Ok(Exit::Success)
}
