//! `visiond build`: an engine out of an `.onnx` file, for the GPU that is here.

mod beside;
mod pictures;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Instant;

use visiond_engine::card::Card;
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_engine::onnx::file::OnnxFile;
use visiond_engine_builder::calibration::{Algorithm, CalibrationOptions};
use visiond_engine_builder::precision::{Half, Rule};
use visiond_engine_builder::{
    BuildError, BuildOptions, Built, ComputeCapability, HardwareCompatibility, ShapeProfile, ShapeRange,
    TimingCacheChoice, parse_input_shapes, parse_profile,
};
use visiond_system::cache;
use visiond_system::exit::{Exit, ExitError};

use super::{print, print_json};
use beside::Beside;
use pictures::Pictures;

/// Build a TensorRT engine from an .onnx network, for the GPU that is here
///
/// With TensorRT's own builder and ONNX parser, opened at run time: TensorRT 8.5 to 11, or TensorRT for RTX, which needs no
/// GPU for it. Beside the engine goes MODEL.engine.json, which tells how it was built, and a copy of the model card.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The network's .onnx file
    model: PathBuf,

    /// The engine file to write; without it the model's name with .engine
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The card; without it the TOML beside the model with the same stem, else the model's own metadata
    #[arg(short, long, value_name = "FILE")]
    card: Option<PathBuf>,

    /// Replace the engine file where there is one
    #[arg(short, long)]
    force: bool,

    /// Print the sidecar as JSON instead of a summary
    #[arg(long)]
    json: bool,

    /// Compute in FP16 where that is safe; inputs and outputs stay FP32
    #[arg(long, conflicts_with = "bf16", help_heading = "Precision")]
    fp16: bool,

    /// Compute in BF16 where that is safe; from TensorRT 10 on
    #[arg(long, help_heading = "Precision")]
    bf16: bool,

    /// Let products of FP32 round their factors to 10 bits (TF32): faster from Orin and Ampere on, moves scores by some hundredths
    #[arg(long, help_heading = "Precision")]
    tf32: bool,

    /// Compute in 8-bit integers: a network with QuantizeLinear and DequantizeLinear, or with --calibrate
    #[arg(long, help_heading = "Precision")]
    int8: bool,

    /// Keep layers in FP32 (LAYER=fp32), or have them in half precision nevertheless (LAYER=half)
    ///
    /// LAYER is a node's name, with * and ? for other characters, or type:OPERATOR. May be given several times; of several
    /// that mean one layer, the last holds.
    #[arg(long, value_name = "LAYER=P", help_heading = "Precision")]
    precision: Vec<Rule>,

    /// Make inputs and outputs half precision too
    #[arg(long, requires = "fp16", help_heading = "Precision")]
    half_io: bool,

    /// Find the ranges for --int8 by this folder of pictures (TensorRT 8 and 10); some hundred, as the camera sees them
    #[arg(long, value_name = "FOLDER", requires = "int8", help_heading = "Precision")]
    calibrate: Option<PathBuf>,

    /// How ranges follow from the pictures: entropy, minmax, or percentile:99.99
    #[arg(long, value_name = "HOW", default_value = "entropy", help_heading = "Precision")]
    calibration: Algorithm,

    /// Pictures of the folder that are used at most
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Precision")]
    calibration_pictures: u64,

    /// Where ranges are kept; without it in the cache folder, by network, pictures and TensorRT
    #[arg(long, value_name = "FILE", help_heading = "Precision")]
    calibration_cache: Option<PathBuf>,

    /// Give an input this one shape, as in images=1x3x640x640; may be given once an input
    #[arg(long, value_name = "INPUT=SHAPE", value_parser = parse_input_shapes, help_heading = "Shapes")]
    shape: Vec<(String, ShapeRange)>,

    /// The least shapes, as trtexec takes them: images:1x3x640x640, several with commas between
    #[arg(long, value_name = "SHAPES", requires = "opt_shapes", requires = "max_shapes", help_heading = "Shapes")]
    min_shapes: Option<String>,

    /// The shapes that kernels are chosen for
    #[arg(long, value_name = "SHAPES", requires = "min_shapes", help_heading = "Shapes")]
    opt_shapes: Option<String>,

    /// The greatest shapes
    #[arg(long, value_name = "SHAPES", requires = "min_shapes", help_heading = "Shapes")]
    max_shapes: Option<String>,

    /// One profile: INPUT=LEAST,USUAL,MOST, several inputs with semicolons between; may be given several times
    #[arg(long, value_name = "PROFILE", value_parser = parse_profile, conflicts_with_all = ["shape", "min_shapes"], help_heading = "Shapes")]
    profile: Vec<ShapeProfile>,

    /// Scratch memory that a layer may take, in MiB; without it what TensorRT takes
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20), help_heading = "Builder")]
    workspace_mb: Option<u64>,

    /// How long to look for faster kernels: 0 to 5; without it TensorRT's own choice, 3
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=5), help_heading = "Builder")]
    optimization_level: Option<u32>,

    /// Where measured times of kernels are kept; without it in the cache folder, by TensorRT and GPU
    #[arg(long, value_name = "FILE", help_heading = "Builder")]
    timing_cache: Option<PathBuf>,

    /// Keep no measured times, and use none
    #[arg(long, conflicts_with = "timing_cache", help_heading = "Builder")]
    no_timing_cache: bool,

    /// Let later minor versions of TensorRT run the engine too (from 8.6 on)
    #[arg(long, help_heading = "Builder")]
    version_compatible: bool,

    /// Let other GPUs run the engine too: ampere+, same-sm or none
    #[arg(long, value_name = "LEVEL", default_value = "none", help_heading = "Builder")]
    hardware_compatible: HardwareCompatibility,

    /// Run on this deep-learning accelerator (DLA) of a Jetson; TensorRT up to 10.7, or AGX Orin with 11.4.1 and newer
    #[arg(long, value_name = "CORE", help_heading = "Builder")]
    dla: Option<u32>,

    /// Run layers that the DLA does not know on the GPU
    #[arg(long, requires = "dla", help_heading = "Builder")]
    gpu_fallback: bool,

    /// TensorRT for RTX: compute capabilities to build for, as in 86,89; without it the GPU that is here, else any
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Builder")]
    sm: Vec<ComputeCapability>,

    /// The GPU to build on
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Builder")]
    device: u32,

    /// TensorRT's library; without it VISIOND_TENSORRT_LIBRARY, else the newest that is found
    #[arg(long, value_name = "FILE", help_heading = "Builder")]
    tensorrt_library: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
An engine runs with the TensorRT that built it, on the kind of GPU that it was built on, unless
built otherwise. Building takes from seconds to an hour and gigabytes of memory; Ctrl-C ends it
and leaves nothing behind. TensorRT's own messages: visiond -vv build ...

Examples:
  visiond build yolo11n.onnx --fp16
  visiond build yolo11n.onnx -o door.engine --fp16 --precision '/model.22/*=fp32'
  visiond build yolo11n.onnx --fp16 --shape images=1x3x480x640
  visiond build yolo11n.onnx --fp16 --profile images=1x3x640x640,2x3x640x640,4x3x640x640
  visiond build yolo11n.onnx --int8 --fp16 --calibrate pictures/     TensorRT 8 and 10
  visiond build yolo11n.onnx --fp16 --dla 0 --gpu-fallback           Orin NX, AGX Orin
  visiond verify yolo11n.onnx yolo11n.engine --images pictures/      what it cost";

impl Args {
    /// The options that shape the engine, as on the command line.
    fn told(&self) -> Vec<String> {
        let flags = [
            (self.fp16, "--fp16"),
            (self.bf16, "--bf16"),
            (self.tf32, "--tf32"),
            (self.int8, "--int8"),
            (self.half_io, "--half-io"),
            (self.version_compatible, "--version-compatible"),
            (self.gpu_fallback, "--gpu-fallback"),
        ];
        let mut told: Vec<String> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| (*name).to_owned()).collect();
        told.extend(self.precision.iter().map(|rule| format!("--precision={rule}")));
        if let Some(folder) = &self.calibrate {
            told.push(format!("--calibrate={}", folder.display()));
            told.push(format!("--calibration={}", self.calibration));
        }
        let numbers = [
            ("--workspace-mb", self.workspace_mb),
            ("--optimization-level", self.optimization_level.map(u64::from)),
            ("--dla", self.dla.map(u64::from)),
        ];
        told.extend(numbers.into_iter().filter_map(|(name, value)| value.map(|value| format!("{name}={value}"))));
        if self.hardware_compatible != HardwareCompatibility::None {
            told.push(format!("--hardware-compatible={}", self.hardware_compatible.name()));
        }
        told
    }
}

/// Builds and writes the engine.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let began = Instant::now();
    let output = args.output.clone().unwrap_or_else(|| args.model.with_extension("engine"));
    let file = OnnxFile::read(&args.model).map_err(|error| ExitError::new(Exit::Model, error))?;
    let card = card(&args, &file)?;
    let beside = Beside::new(&args, &output)?;
    let options = options(&args, &file, card.as_ref())?;
    let built = watch::build(&args.model, options)?;
    let sidecar = beside.write(&built, &args, began.elapsed())?;
    if args.json {
        print_json(&sidecar.to_json())?;
    } else {
        print(&summary(&built, &output, &sidecar.precision, began))?;
    }
    Ok(Exit::Success)
}

/// The card that goes with the network, where there is one. One that is wrong is told before the long work.
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

/// The options for the builder.
fn options(args: &Args, file: &OnnxFile, card: Option<&Card>) -> Result<BuildOptions, ExitError> {
    let half = match (args.fp16, args.bf16) {
        (true, _) => Some(Half::F16),
        (_, true) => Some(Half::Bf16),
        _ => None,
    };
    if half.is_none() && !args.precision.is_empty() {
        return Err(ExitError::new(Exit::Usage, "--precision is for networks in half precision: add --fp16 or --bf16"));
    }
    let mut profiles = profiles(args)?;
    if profiles.is_empty()
        && let Some(shape) = card.and_then(|card| shape_of_card(&file.inputs, card))
    {
        profiles.push([shape].into());
    }
    let timing_cache = match (&args.timing_cache, cache::own_folder()) {
        (Some(path), _) => TimingCacheChoice::File(path.clone()),
        (None, Some(folder)) if !args.no_timing_cache => TimingCacheChoice::Folder(folder.join("tensorrt")),
        _ => TimingCacheChoice::Off,
    };
    let calibration = match (&args.calibrate, card) {
        (Some(folder), Some(_)) => {
            let feed = Pictures::open(args, folder, &profiles)?;
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
        let shapes = |option: &str, text: &str| -> Result<Vec<(String, Vec<usize>)>, ExitError> {
            let one = |part: &str| parse_input_shapes(part).map(|(name, range)| (name, range.opt));
            text.split(',').map(one).collect::<Result<_, _>>().map_err(|error| wrong(format!("{option}: {error}")))
        };
        let (min, opt, max) =
            (shapes("--min-shapes", min)?, shapes("--opt-shapes", opt)?, shapes("--max-shapes", max)?);
        for (name, min) in min {
            let of = |shapes: &[(String, Vec<usize>)], option: &str| {
                let found = shapes.iter().find(|(other, _)| *other == name).map(|(_, shape)| shape.clone());
                found.ok_or_else(|| wrong(format!("{option} has no shape for `{name}`, which --min-shapes names")))
            };
            let range = ShapeRange { opt: of(&opt, "--opt-shapes")?, max: of(&max, "--max-shapes")?, min };
            // Through the same checks as the other ways to say it.
            let text = [&range.min, &range.opt, &range.max]
                .map(|shape| shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x"))
                .join(",");
            let (_, range) = parse_input_shapes(&format!("{name}={text}")).map_err(|error| wrong(error.to_string()))?;
            profile.insert(name, range);
        }
    }
    Ok(if profile.is_empty() { Vec::new() } else { vec![profile] })
}

/// The picture input's shape where the network leaves its size open and the card has it.
fn shape_of_card(inputs: &[TensorInfo], card: &Card) -> Option<(String, ShapeRange)> {
    let [input] = inputs else { return None };
    let (width, height) = card.input.size?;
    let (width, height) = (width as usize, height as usize);
    let dims = input.shape.as_deref()?;
    if dims.iter().all(|dim| dim.fixed().is_some()) {
        return None;
    }
    let shape = match dims {
        [batch, Dim::Fixed(channels @ (1 | 3)), _, _] => vec![batch.fixed().unwrap_or(1), *channels, height, width],
        [batch, _, _, Dim::Fixed(channels @ (1 | 3))] => vec![batch.fixed().unwrap_or(1), height, width, *channels],
        _ => return None,
    };
    Some((input.name.clone(), ShapeRange::fixed(shape)))
}

/// The exit status that goes with what went wrong.
fn failure(error: &BuildError) -> ExitError {
    let exit = match error {
        BuildError::Calibration { .. } => Exit::Input,
        BuildError::Write { .. } => Exit::Output,
        BuildError::Cancelled | BuildError::NoDevice { .. } | BuildError::Cuda(_) => Exit::Failure,
        BuildError::Unavailable { .. } | BuildError::Shape { .. } => Exit::Usage,
        _ => Exit::Model,
    };
    ExitError::new(exit, error)
}

/// What became of the network's numbers, for people.
fn precision_text(built: &Built, args: &Args) -> String {
    let mut parts = Vec::new();
    if args.int8 {
        parts.push("int8".to_owned());
    }
    match (&built.rewritten, args.fp16, args.bf16) {
        (Some(rewritten), fp16, _) => {
            let name = if fp16 { "fp16" } else { "bf16" };
            let (half, full) = (rewritten.half_layers, rewritten.full_layers);
            parts.push(format!("{half} layers in {name}, {full} in fp32"));
        }
        (None, true, _) => parts.push("fp16 where TensorRT finds it faster".to_owned()),
        (None, _, true) => parts.push("bf16 where TensorRT finds it faster".to_owned()),
        (None, false, false) if parts.is_empty() => parts.push("as in the network's file".to_owned()),
        (None, false, false) => {}
    }
    parts.join(", ")
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
        let shape = shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        text.push_str(&format!("shape      {name} {shape}\n"));
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
