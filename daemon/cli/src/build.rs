//! `visiond build`: builds a TensorRT engine from an ONNX file for this machine's GPU.

mod arguments;
mod calibration;
mod outputs;
mod progress;

use std::path::Path;
use std::time::Instant;

use visiond_engine::card::Card;
use visiond_engine::detector::Detector;
use visiond_engine::engine::TensorInfo;
use visiond_engine::onnx::file::OnnxFile;
use visiond_engine_builder::calibration::CalibrationOptions;
use visiond_engine_builder::precision::Half;
use visiond_engine_builder::{BuildOptions, Built, ShapeProfile, ShapeRange, TimingCacheChoice, parse_input_shapes};
use visiond_system::cache;
use visiond_system::exit::{Exit, ExitError};

use crate::output::print_report;
pub use arguments::Args;
use calibration::CalibrationImages;
use outputs::BuildFiles;

/// Builds and writes the engine.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let began = Instant::now();
    let output = args.output.clone().unwrap_or_else(|| args.model.with_extension("engine"));
    let file = OnnxFile::read(&args.model).map_err(|error| ExitError::new(Exit::Model, error))?;
    let card = card(&args, &file)?;
    let outputs = BuildFiles::new(&args, &output)?;
    let options = options(&args, &file, card.as_ref())?;
    let built = progress::build(&args.model, options)?;
    let sidecar = outputs.write(&built, &args, began.elapsed())?;
    print_report(args.json, &sidecar.to_json(), |_| summary(&built, &output, &sidecar.precision, began))
}

/// Returns the model card, if there is one. Reads it first, so that an error in it appears before the long build.
fn card(args: &Args, file: &OnnxFile) -> Result<Option<Card>, ExitError> {
    let found = Card::for_model(&args.model, args.card.as_deref(), &file.metadata, &file.inputs, &file.outputs);
    match found {
        Ok(card) => Ok(Some(card)),
        Err(error) if args.card.is_some() || args.calibrate.is_some() => Err(ExitError::new(Exit::Config, error)),
        Err(error) => {
            log::info!("{error}");
            Ok(None)
        }
    }
}

/// Returns the options for the builder.
fn options(args: &Args, file: &OnnxFile, card: Option<&Card>) -> Result<BuildOptions, ExitError> {
    let half = args.fp16.then_some(Half::F16).or(args.bf16.then_some(Half::Bf16));
    if half.is_none() && !args.precision.is_empty() {
        return Err(ExitError::new(Exit::Usage, "--precision requires --fp16 or --bf16"));
    }
    let mut profiles = profiles(args)?;
    if let Some(card) = card {
        complete(&mut profiles, &file.inputs, card);
    }
    let timing_cache = match (&args.timing_cache, cache::own_folder()) {
        (Some(path), _) => TimingCacheChoice::File(path.clone()),
        (None, Some(folder)) if !args.no_timing_cache => TimingCacheChoice::Folder(folder.join("tensorrt")),
        _ => TimingCacheChoice::Off,
    };
    let calibration = match (&args.calibrate, card) {
        (Some(folder), Some(_)) => {
            let feed = CalibrationImages::open(args, folder, &profiles)?;
            let cache = args.calibration_cache.clone().or_else(|| feed.cache_file(args, file));
            Some(CalibrationOptions { algorithm: args.calibration, feed: Box::new(feed), cache })
        }
        _ => None,
    };
    Ok(BuildOptions {
        library: args.tensorrt_library.clone(),
        device: args.device,
        half,
        rules: args.precision.clone(),
        half_io: args.half_io,
        tf32: args.tf32,
        int8: args.int8,
        calibration,
        profiles,
        workspace_bytes: args.workspace_mb.map(|mib| mib << 20),
        optimization_level: args.optimization_level,
        timing_cache,
        version_compatible: args.version_compatible,
        hardware_compatibility: args.hardware_compatible,
        dla_core: args.dla,
        gpu_fallback: args.gpu_fallback,
        compute_capabilities: args.sm.clone(),
    })
}

fn profiles(args: &Args) -> Result<Vec<ShapeProfile>, ExitError> {
    let wrong = |message: String| ExitError::new(Exit::Usage, message);
    if !args.profile.is_empty() {
        return Ok(args.profile.clone());
    }
    let mut profile: ShapeProfile = args.shape.iter().cloned().collect();
    if let (Some(min), Some(opt), Some(max)) = (&args.min_shapes, &args.opt_shapes, &args.max_shapes) {
        let shapes = |option: &str, text: &str| {
            let shapes: Result<ShapeProfile, _> = text.split(',').map(parse_input_shapes).collect();
            shapes.map_err(|error| wrong(format!("{option}: {error}")))
        };
        let (opt, max) = (shapes("--opt-shapes", opt)?, shapes("--max-shapes", max)?);
        for (name, min) in shapes("--min-shapes", min)? {
            let of = |shapes: &ShapeProfile, option: &str| {
                let missing =
                    || wrong(format!("{option} has no shape for `{name}`, which --min-shapes names: add one"));
                shapes.get(&name).map(ToString::to_string).ok_or_else(missing)
            };
            let (opt, max) = (of(&opt, "--opt-shapes")?, of(&max, "--max-shapes")?);
            // Parsed as one range for the same checks as --profile and --shape.
            let range = parse_input_shapes(&format!("{name}={min},{opt},{max}"));
            profile.extend([range.map_err(|error| wrong(error.to_string()))?]);
        }
    }
    Ok(if profile.is_empty() { Vec::new() } else { vec![profile] })
}

/// Adds shapes for the inputs whose dimensions the model leaves open, as the card fills them, unless the user gave some.
fn complete(profiles: &mut Vec<ShapeProfile>, inputs: &[TensorInfo], card: &Card) {
    let asked = match &mut profiles[..] {
        [] => ShapeProfile::new(),
        [asked] if asked.values().all(ShapeRange::is_fixed) => std::mem::take(asked),
        // Inputs that belong together vary together.
        _ => return,
    };
    let mut profile = asked;
    let fixed = profile.iter().map(|(name, range)| (name.clone(), range.opt.clone())).collect();
    match Detector::open_shapes(card, inputs, &fixed) {
        Ok(shapes) => {
            for (name, shape) in shapes {
                profile.entry(name).or_insert_with(|| ShapeRange::fixed(shape));
            }
        }
        Err(error) => log::info!("the card does not show the shapes of the inputs: {error}"),
    }
    *profiles = if profile.is_empty() { Vec::new() } else { vec![profile] };
}

fn summary(built: &Built, output: &Path, precision: &str, began: Instant) -> String {
    let size = format!("{:.1} MB", built.plan.len() as f64 / 1e6);
    let device =
        built.device.as_ref().map_or_else(|| ", without a GPU".to_owned(), |facts| format!(" on {}", facts.label()));
    let mut text = format!(
        "engine     {} ({size}), built in {:.1} s\nbuilt by   {}{device}\nprecision  {precision}\n",
        output.display(),
        began.elapsed().as_secs_f64(),
        built.version,
    );
    for (name, shape) in &built.fixed_shapes {
        text.push_str(&format!("shape      {name} {}\n", ShapeRange::fixed(shape.clone())));
    }
    for (index, profile) in built.profiles.iter().enumerate() {
        for (name, range) in profile {
            text.push_str(&format!("profile {index}  {name} {range}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests;
