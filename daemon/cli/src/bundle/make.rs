//! `visiond bundle make`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::value::Datetime;
use visiond_bundle::{BundleModel, Manifest, Proof, Sources, write};
use visiond_config::format_size;
use visiond_system::exit::{Exit, ExitError};

use super::failure::refuse;
use crate::media_decoder::images_of;
use crate::output::note;
use crate::value_parsers::fraction;

/// Pack a model into a bundle
///
/// The bundle has the model, its card, and pictures with what the model must detect in them. A device that installs it runs
/// the model on these pictures first.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Model: an .onnx file or a TensorRT engine; of several, a device uses the first that it can load
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,

    /// Name of the bundle: letters, digits, - and _
    #[arg(long, value_name = "NAME")]
    name: String,

    /// Version: a number greater than that of each earlier bundle of this name
    #[arg(long, value_name = "N", value_parser = version)]
    version: u64,

    /// Write the bundle to this file [default: NAME-VERSION.visiond]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Model card [default: the TOML file beside the first model with the same stem, if there is one]
    #[arg(long, value_name = "FILE")]
    card: Option<PathBuf>,

    /// Another file that the model or its card needs, such as external data or a list of labels (repeatable)
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,

    /// Pictures of the proof, or folders of them (repeatable)
    #[arg(long, value_name = "PATH", requires = "reference", help_heading = "Proof")]
    pictures: Vec<PathBuf>,

    /// What the model must detect in the pictures, as `visiond verify --reference` reads it
    #[arg(long, value_name = "FILE", requires = "pictures", help_heading = "Proof")]
    reference: Option<PathBuf>,

    /// Allow matched boxes to overlap with this IoU or more [default: 0.98]
    #[arg(long, value_name = "IOU", value_parser = fraction, requires = "reference", help_heading = "Proof")]
    min_iou: Option<f64>,

    /// Allow scores of matched boxes to differ by this much [default: 0.01]
    #[arg(long, value_name = "SCORE", value_parser = fraction, requires = "reference", help_heading = "Proof")]
    max_score_difference: Option<f64>,

    /// Allow this share of detections, 0 to 1, to exceed the limits or to be found on one side only [default: 0.002]
    #[arg(long, value_name = "SHARE", value_parser = fraction, requires = "reference", help_heading = "Proof")]
    max_outside: Option<f64>,

    /// Require that 99 of 100 frames take at most this time from the frame to its detections
    #[arg(long, value_name = "MS", requires = "reference", help_heading = "Proof")]
    max_latency_p99_ms: Option<f64>,

    /// Oldest visiond that can use the model, such as 0.6.0
    #[arg(long, value_name = "VERSION")]
    minimum_visiond: Option<String>,

    /// Licence of the model
    #[arg(long, value_name = "TEXT")]
    licence: Option<String>,

    /// Notes for people
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,

    /// Day from which on an installation warns, such as 2027-06-30
    #[arg(long, value_name = "DATE")]
    expires: Option<Datetime>,
}

const AFTER_HELP: &str = "\
Without pictures, a device installs the model if it can be loaded there.

Examples:
  visiond bundle make yolo11n.onnx --name street --version 7
  visiond detect --json --model yolo11n.onnx pictures/* > expected.json
  visiond bundle make yolo11n.onnx --name street --version 7 \\
    --pictures pictures --reference expected.json --max-latency-p99-ms 40";

fn version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number, such as 2".to_owned())
}

/// Makes a bundle.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let mut files = Files::default();
    let mut manifest = Manifest::new(args.name, args.version);
    for model in &args.models {
        manifest.models.push(BundleModel { file: files.add("", model)? });
    }
    let beside = args.models.first().map(|model| model.with_extension("toml")).filter(|path| path.is_file());
    if let Some(card) = args.card.or(beside) {
        manifest.card = Some(files.add("", &card)?);
    }
    for file in &args.with {
        files.add("", file)?;
    }
    if let Some(reference) = &args.reference {
        let mut proof = Proof {
            reference: files.add("proof/", reference)?,
            pictures: Vec::new(),
            min_iou: args.min_iou,
            max_score_difference: args.max_score_difference,
            max_outside: args.max_outside,
            max_latency_p99_ms: args.max_latency_p99_ms,
        };
        for path in &args.pictures {
            let pictures = if path.is_dir() { images_of(path)? } else { vec![path.clone()] };
            for picture in &pictures {
                proof.pictures.push(files.add("proof/pictures/", picture)?);
            }
        }
        manifest.proof = Some(proof);
    }
    if args.expires.is_some_and(|expires| expires.date.is_none()) {
        return Err(ExitError::new(Exit::Usage, "--expires must be a date, such as 2027-06-30"));
    }
    manifest.minimum_visiond = args.minimum_visiond;
    (manifest.licence, manifest.notes, manifest.expires) = (args.licence, args.notes, args.expires);
    let default = || PathBuf::from(format!("{}-{}.visiond", manifest.name, manifest.version));
    let out = args.output.unwrap_or_else(default);
    if out.exists() {
        let message = format!("{} exists: delete it, or choose another name with -o", out.display());
        return Err(ExitError::new(Exit::Output, message));
    }
    let manifest = write(&out, manifest, &files.0).map_err(refuse)?;
    let (count, size) = (manifest.files.len(), format_size(manifest.total_bytes()));
    note(&format!("{}: {count} files, {size}; sign it with `visiond bundle sign`", out.display()));
    Ok(Exit::Success)
}

/// The files of a bundle, by their paths in it.
#[derive(Default)]
struct Files(Sources);

impl Files {
    /// Adds a file by its name, below `folder`, and returns its path in the bundle.
    fn add(&mut self, folder: &str, file: &Path) -> Result<String, ExitError> {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let path = format!("{folder}{name}");
        match self.0.iter().find(|(other, _)| *other == path) {
            None => self.0.push((path.clone(), file.to_owned())),
            // A card that is also named as another file, say.
            Some((_, same)) if same == file => {}
            Some((_, other)) => {
                let message = format!(
                    "{} and {} would have the same name in the bundle: rename one of them",
                    other.display(),
                    file.display()
                );
                return Err(ExitError::new(Exit::Usage, message));
            }
        }
        Ok(path)
    }
}
