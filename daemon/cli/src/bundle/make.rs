//! `visiond bundle make`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Command, FromArgMatches as _};
use toml::value::Datetime;
use visiond_bundle::{
    BundleError, BundleModel, EngineBuild, Fallback, Live, Manifest, Proof, SETTINGS, Sources, Trial, write,
};
use visiond_config::{check_settings, format_size, read};
use visiond_engine::tensorrt::plan::is_plan_file;
use visiond_engine::tensorrt::sidecar::Sidecar;
use visiond_system::exit::{Exit, ExitError};

use super::failure::refuse;
use super::proof::{Failed, Needs, compare, measure};
use crate::build;
use crate::media_decoder::images_of;
use crate::output::note;
use crate::value_parsers::{fraction, load_timeout, size};

/// Pack a model into a bundle, and let it prove itself on this machine; or settings for configurations
///
/// The bundle has the model, its card, and pictures with what the model must detect in them. A device that installs it runs
/// the model on these pictures first, and so does this command.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Model: an .onnx file or a TensorRT engine; of several, a device uses the first that it can load
    #[arg(value_name = "MODEL", required_unless_present = "settings")]
    models: Vec<PathBuf>,

    /// Pack this TOML, which lies over the configurations of devices, in place of a model
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["models", "card", "with", "build", "pictures", "reference", "min_found", "no_proof"],
        help_heading = "Settings"
    )]
    settings: Option<PathBuf>,

    /// Devices do not compare detections before and after, because these settings change how many there are
    #[arg(long, requires = "settings", help_heading = "Settings")]
    changes_detections: bool,

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

    /// Devices with a GPU build an engine of each .onnx model, with these flags of `visiond build`, such as '--fp16'; '' for none
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, value_parser = flags, help_heading = "Engine")]
    build: Option<BuildFlags>,

    /// Use the ONNX model itself: without-gpu, always (also if no engine can be built or loaded), or never [default: without-gpu]
    #[arg(long, value_name = "WHEN", value_parser = fallback, requires = "build", help_heading = "Engine")]
    fallback: Option<Fallback>,

    /// Calibrate an INT8 engine with the pictures of this folder
    #[arg(long, value_name = "FOLDER", requires = "build", help_heading = "Engine")]
    calibrate: Option<PathBuf>,

    /// Kernel timings that a device has measured, which make builds on others of its kind shorter (repeatable)
    #[arg(long, value_name = "FILE", requires = "build", help_heading = "Engine")]
    timing_cache: Vec<PathBuf>,

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

    /// Require that a process which runs the model has at most this much memory, such as 600MiB; what is on the GPU does not count
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "reference", help_heading = "Proof")]
    max_memory: Option<u64>,

    /// On live frames of a device, require this share of what the version in use detects, 0 to 1; 0 requires nothing [default: 0.5]
    #[arg(long, value_name = "SHARE", value_parser = fraction, help_heading = "Proof")]
    min_found: Option<f64>,

    /// Do not try the bundle on this machine, which may have no GPU for its engines
    #[arg(long, help_heading = "Proof")]
    no_proof: bool,

    /// Give up on a model that takes longer than this to be loaded, or to be proven, from 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = load_timeout, help_heading = "Proof")]
    timeout: Duration,

    #[command(flatten)]
    about: AboutArgs,
}

const AFTER_HELP: &str = "\
Without pictures, a device installs the model if it can be loaded there.

Each model of the bundle that this machine can load must detect what the reference has, and one must be loadable. The status is 8 if one differs: then no bundle is written.

Settings of a bundle lie over the configuration of each device that names it, `settings = \"NAME\"` under [bundles]. docs/configuration.md lists what they may set.

Examples:
  visiond bundle make yolo11n.onnx --name street --version 7
  visiond bundle make --settings north.toml --name north --version 3
  visiond detect --json --model yolo11n.onnx pictures/* > expected.json
  visiond bundle make yolo11n.onnx --name street --version 7 \\
    --pictures pictures --reference expected.json --max-latency-p99-ms 40
  visiond bundle make yolo11n.onnx --name street --version 8 --build '--fp16'";

fn version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number, such as 2".to_owned())
}

/// Flags of `visiond build`, a value after `=`.
#[derive(Debug, Clone)]
struct BuildFlags(Vec<String>);

/// Parses flags as `visiond build` does, so that a device does not find the mistake.
fn flags(text: &str) -> Result<BuildFlags, String> {
    let command = <build::Args as clap::Args>::augment_args(Command::new("build").no_binary_name(true));
    let words = std::iter::once("MODEL").chain(text.split_whitespace());
    let matches = command.try_get_matches_from(words).and_then(|matches| build::Args::from_arg_matches(&matches));
    matches.map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    let mut flags: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match flags.last_mut() {
            Some(flag) if !word.starts_with('-') => {
                flag.push('=');
                flag.push_str(word);
            }
            _ => flags.push(word.to_owned()),
        }
    }
    Ok(BuildFlags(flags))
}

fn fallback(text: &str) -> Result<Fallback, String> {
    match text {
        "without-gpu" => Ok(Fallback::WithoutGpu),
        "always" => Ok(Fallback::Always),
        "never" => Ok(Fallback::Never),
        _ => Err("expected without-gpu, always or never".to_owned()),
    }
}

/// Makes a bundle.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    if let Some(settings) = args.settings.clone() {
        return make_settings(args, settings);
    }
    let mut files = Files::default();
    let build = engine_build(&args, &mut files)?;
    let mut manifest = Manifest::new(args.name, args.version);
    for model in &args.models {
        let file = files.add("", model)?;
        let sidecar = Sidecar::path_of(model);
        if is_plan_file(model) && sidecar.is_file() {
            files.add("", &sidecar)?;
        }
        let build = build.clone().filter(|_| file.ends_with(".onnx"));
        manifest.models.push(BundleModel { file, build });
    }
    if build.is_some() && manifest.models.iter().all(|model| model.build.is_none()) {
        return Err(ExitError::new(Exit::Usage, "--build requires an .onnx model: name one, or leave out --build"));
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
            max_memory_bytes: args.max_memory,
        };
        for path in &args.pictures {
            let pictures = if path.is_dir() { images_of(path)? } else { vec![path.clone()] };
            for picture in &pictures {
                proof.pictures.push(files.add("proof/pictures/", picture)?);
            }
        }
        manifest.proof = Some(proof);
    }
    manifest.live = args.min_found.map(|least| Live { min_found: Some(least) });
    let out = args.about.complete(&mut manifest, args.output)?;
    let manifest = if args.no_proof {
        write(&out, manifest, &files.0).map_err(refuse)?
    } else {
        write_proven(&out, manifest, &files.0, args.timeout)?
    };
    let (count, size) = (manifest.files.len(), format_size(manifest.total_bytes()));
    note(&format!("{}: {count} files, {size}; sign it with `visiond bundle sign`", out.display()));
    Ok(Exit::Success)
}

/// Makes a bundle of settings, which devices would not refuse by themselves.
fn make_settings(args: Args, settings: PathBuf) -> Result<Exit, ExitError> {
    let text = read(&settings).map_err(|finding| ExitError::new(Exit::Input, finding))?;
    let findings = check_settings(&text, &settings);
    if !findings.is_empty() {
        let findings: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
        let message = format!("{findings}no bundle is made: correct {}", settings.display());
        return Err(ExitError::new(Exit::Config, message));
    }
    let mut manifest = Manifest::of_settings(args.name, args.version);
    manifest.changes_detections = args.changes_detections;
    let out = args.about.complete(&mut manifest, args.output)?;
    write(&out, manifest, &vec![(SETTINGS.to_owned(), settings)]).map_err(refuse)?;
    note(&format!("{}: settings; sign it with `visiond bundle sign`", out.display()));
    Ok(Exit::Success)
}

/// The keys of a manifest that say nothing about its files.
#[derive(Debug, clap::Args)]
struct AboutArgs {
    /// Oldest visiond that can use the bundle, such as 0.6.0
    #[arg(long, value_name = "VERSION")]
    minimum_visiond: Option<String>,

    /// Licence of the model or the settings
    #[arg(long, value_name = "TEXT")]
    licence: Option<String>,

    /// Notes for people
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,

    /// Day from which on an installation warns, such as 2027-06-30
    #[arg(long, value_name = "DATE")]
    expires: Option<Datetime>,
}

impl AboutArgs {
    /// Adds them to a manifest, and returns the file of the bundle.
    fn complete(self, manifest: &mut Manifest, output: Option<PathBuf>) -> Result<PathBuf, ExitError> {
        if self.expires.is_some_and(|expires| expires.date.is_none()) {
            return Err(ExitError::new(Exit::Usage, "--expires must be a date, such as 2027-06-30"));
        }
        manifest.minimum_visiond = self.minimum_visiond;
        (manifest.licence, manifest.notes, manifest.expires) = (self.licence, self.notes, self.expires);
        let default = || PathBuf::from(format!("{}-{}.visiond", manifest.name, manifest.version));
        let out = output.unwrap_or_else(default);
        if out.exists() {
            let message = format!("{} exists: delete it, or choose another name with -o", out.display());
            return Err(ExitError::new(Exit::Output, message));
        }
        Ok(out)
    }
}

/// Returns how devices build engines, and adds the files for that.
fn engine_build(args: &Args, files: &mut Files) -> Result<Option<EngineBuild>, ExitError> {
    let Some(BuildFlags(flags)) = args.build.clone() else { return Ok(None) };
    let mut build = EngineBuild { flags, fallback: args.fallback.unwrap_or_default(), ..EngineBuild::default() };
    for picture in args.calibrate.as_deref().map(images_of).transpose()?.into_iter().flatten() {
        build.calibration.push(files.add("calibration/", &picture)?);
    }
    for timings in &args.timing_cache {
        build.timing_caches.push(files.add("timings/", timings)?);
    }
    Ok(Some(build))
}

/// Writes a bundle under another name, and gives it its own once it has proven itself.
fn write_proven(out: &Path, manifest: Manifest, files: &Sources, timeout: Duration) -> Result<Manifest, ExitError> {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    let unproven = out.with_file_name(format!(".{name}.{}.unproven", std::process::id()));
    let written = (|| {
        let manifest = write(&unproven, manifest, files).map_err(refuse)?;
        prove(&unproven, timeout)?;
        let renamed = fs::rename(&unproven, out);
        renamed.map_err(|error| refuse(BundleError::Io { action: "write", path: out.to_owned(), error }))?;
        Ok(manifest)
    })();
    // Gone where all went well.
    let _ = fs::remove_file(&unproven);
    written
}

/// Runs each model of a bundle that this machine can load, as devices do that can load no model before it.
fn prove(bundle: &Path, timeout: Duration) -> Result<(), ExitError> {
    let trial = Trial::unpack(bundle).map_err(refuse)?;
    let proof = trial.manifest.proof.as_ref();
    let (mut proven, mut last) = (0, None);
    for model in &trial.manifest.models {
        let (path, name) = (trial.choose(&model.file).map_err(refuse)?, &model.file);
        let Needs { p99_ms, memory_bytes } = match measure(&path, proof, &trial.folder, timeout) {
            Ok(needs) => needs,
            Err(error) => {
                note(&format!("{name} cannot be used on this machine, and is packed without proof"));
                last = Some(error);
                continue;
            }
        };
        proven += 1;
        let Some(proof) = proof else { continue };
        // The limit is for devices.
        if let Some(limit_ms) = proof.max_latency_p99_ms.filter(|limit_ms| p99_ms > *limit_ms) {
            note(&format!(
                "{name}: p99 of a frame is {p99_ms:.1} ms here; a device that takes more than {limit_ms} ms refuses the bundle"
            ));
        }
        if let Some(most) = proof.max_memory_bytes.filter(|most| memory_bytes > *most) {
            let [used, limit] = [memory_bytes, most].map(format_size);
            note(&format!(
                "{name}: takes {used} of memory here; a device where it takes more than {limit} refuses the bundle"
            ));
        }
        match compare(&path, proof, &trial.folder, timeout) {
            Ok(()) => {}
            Err(Failed::Proof(reason, _)) => {
                let message = format!(
                    "no bundle is made, because {name} differs: {reason}; make the reference again, or correct the model, its card or the limits"
                );
                return Err(ExitError::new(Exit::Differs, message));
            }
            Err(Failed::Other(error)) => return Err(error),
        }
    }
    if proven > 0 {
        return Ok(());
    }
    let reason = last.map(|error| error.message).unwrap_or_default();
    let message = format!(
        "no bundle is made, because this machine can use none of its models: {reason}; for models of other machines, use --no-proof"
    );
    Err(ExitError::new(Exit::Model, message))
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
