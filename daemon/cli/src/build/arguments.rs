//! The flags of `visiond build`.

use std::path::PathBuf;

use visiond_engine_builder::calibration::Algorithm;
use visiond_engine_builder::precision::Rule;
use visiond_engine_builder::{
    ComputeCapability, HardwareCompatibility, ShapeProfile, ShapeRange, parse_input_shapes, parse_profile,
};

use crate::load_limits::LoadLimits;

/// Build a TensorRT engine from an ONNX model for this machine's GPU
///
/// Uses TensorRT's own builder and ONNX parser, loaded at run time: TensorRT 8.5 to 11, or TensorRT for RTX, which can build
/// without a GPU. Next to the engine it writes MODEL.engine.json, which records the build, and a copy of the model card.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// ONNX model file
    pub model: PathBuf,

    /// Write the engine to FILE [default: MODEL with the extension .engine]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Use this model card [default: MODEL with the extension .toml, otherwise the model's own metadata]
    #[arg(short, long, value_name = "FILE")]
    pub card: Option<PathBuf>,

    /// Replace an existing engine file
    #[arg(short, long)]
    pub force: bool,

    /// Print the build record (sidecar) as JSON instead of a summary
    #[arg(long)]
    pub json: bool,

    /// Compute in FP16 where it is safe; inputs and outputs stay FP32
    #[arg(long, conflicts_with = "bf16", help_heading = "Precision")]
    pub fp16: bool,

    /// Compute in BF16 where it is safe; requires TensorRT 10 or newer
    #[arg(long, help_heading = "Precision")]
    pub bf16: bool,

    /// Allow TF32, which rounds factors to 10 bits: faster on Ampere, Orin and newer, changes scores by some hundredths
    #[arg(long, help_heading = "Precision")]
    pub tf32: bool,

    /// Compute in INT8; requires QuantizeLinear and DequantizeLinear nodes in the model, or --calibrate
    #[arg(long, help_heading = "Precision")]
    pub int8: bool,

    /// Keep layers in FP32 (LAYER=fp32), or force them to half precision (LAYER=half) (repeatable)
    ///
    /// LAYER is a node's name with the wildcards * and ?, or type:OPERATOR. If several match a layer, the last one wins.
    #[arg(long, value_name = "LAYER=P", help_heading = "Precision")]
    pub precision: Vec<Rule>,

    /// Use half precision for inputs and outputs as well
    #[arg(long, requires = "fp16", help_heading = "Precision")]
    pub half_io: bool,

    /// Calibrate --int8 with the images in FOLDER (TensorRT 8 and 10); use a few hundred images from the camera
    #[arg(long, value_name = "FOLDER", requires = "int8", help_heading = "Precision")]
    pub calibrate: Option<PathBuf>,

    /// Calibrate with this method: entropy, minmax, or percentile:99.99
    #[arg(long, value_name = "HOW", default_value = "entropy", help_heading = "Precision")]
    pub calibration: Algorithm,

    /// Use at most N images for calibration
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Precision")]
    pub calibration_pictures: u64,

    /// Cache calibration ranges in FILE [default: in the cache folder, by model, images and TensorRT version]
    #[arg(long, value_name = "FILE", help_heading = "Precision")]
    pub calibration_cache: Option<PathBuf>,

    /// Fix the shape of an input, as in images=1x3x640x640 (once per input)
    #[arg(long, value_name = "INPUT=SHAPE", value_parser = parse_input_shapes, help_heading = "Shapes")]
    pub shape: Vec<(String, ShapeRange)>,

    /// Set the smallest shapes in trtexec's syntax: images:1x3x640x640, several separated by commas
    #[arg(long, value_name = "SHAPES", requires = "opt_shapes", requires = "max_shapes", help_heading = "Shapes")]
    pub min_shapes: Option<String>,

    /// Set the shapes to optimize for, in the same syntax
    #[arg(long, value_name = "SHAPES", requires = "min_shapes", help_heading = "Shapes")]
    pub opt_shapes: Option<String>,

    /// Set the largest shapes, in the same syntax
    #[arg(long, value_name = "SHAPES", requires = "min_shapes", help_heading = "Shapes")]
    pub max_shapes: Option<String>,

    /// Add an optimization profile: INPUT=MIN,OPT,MAX, several inputs separated by semicolons (repeatable)
    #[arg(long, value_name = "PROFILE", value_parser = parse_profile, conflicts_with_all = ["shape", "min_shapes"], help_heading = "Shapes")]
    pub profile: Vec<ShapeProfile>,

    /// Limit a layer's scratch memory to MIB [default: TensorRT's limit]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20), help_heading = "Builder")]
    pub workspace_mb: Option<u64>,

    /// Set how long to search for faster kernels, 0 to 5 [default: TensorRT's default, 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=5), help_heading = "Builder")]
    pub optimization_level: Option<u32>,

    /// Cache kernel timings in FILE [default: in the cache folder, by TensorRT version and GPU]
    #[arg(long, value_name = "FILE", help_heading = "Builder")]
    pub timing_cache: Option<PathBuf>,

    /// Use no timing cache
    #[arg(long, conflicts_with = "timing_cache", help_heading = "Builder")]
    pub no_timing_cache: bool,

    /// Allow newer minor versions of TensorRT to run the engine (TensorRT 8.6 or newer)
    #[arg(long, help_heading = "Builder")]
    pub version_compatible: bool,

    /// Allow other GPUs to run the engine: ampere+, same-sm or none
    #[arg(long, value_name = "LEVEL", default_value = "none", help_heading = "Builder")]
    pub hardware_compatible: HardwareCompatibility,

    /// Build for this deep-learning accelerator (DLA) of a Jetson; TensorRT up to 10.7, or AGX Orin with 11.4.1 and newer
    #[arg(long, value_name = "CORE", help_heading = "Builder")]
    pub dla: Option<u32>,

    /// Run layers that the DLA does not support on the GPU
    #[arg(long, requires = "dla", help_heading = "Builder")]
    pub gpu_fallback: bool,

    /// Build for these compute capabilities, as in 86,89; TensorRT for RTX only [default: this GPU, otherwise any]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Builder")]
    pub sm: Vec<ComputeCapability>,

    /// Build on GPU number N
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Builder")]
    pub device: u32,

    /// Load TensorRT from FILE [default: VISIOND_TENSORRT_LIBRARY, otherwise the newest one found]
    #[arg(long, value_name = "FILE", help_heading = "Builder")]
    pub tensorrt_library: Option<PathBuf>,

    #[command(flatten)]
    pub trial: LoadLimits,
}

const AFTER_HELP: &str = "\
An engine runs only with the TensorRT version and the kind of GPU that built it. --version-compatible and \
--hardware-compatible allow more.

A build takes from seconds to an hour and gigabytes of memory. Ctrl-C cancels it and leaves no files. To see TensorRT's \
own messages, run visiond -vv build ...

Examples:
  visiond build yolo11n.onnx --fp16
  visiond build yolo11n.onnx --fp16 --precision '/model.22/*=fp32'
  visiond build yolo11n.onnx --fp16 --shape images=1x3x480x640
  visiond build yolo.onnx --profile images=1x3x640x640,2x3x640x640,4x3x640x640
  visiond build yolo11n.onnx --fp16 --int8 --calibrate pictures
  visiond build yolo11n.onnx --fp16 --dla 0 --gpu-fallback
  visiond verify yolo11n.onnx yolo11n.engine --images pictures";

impl Args {
    /// Returns the flags that shape the engine, in command-line form.
    pub fn engine_flags(&self) -> Vec<String> {
        let switches = [
            (self.fp16, "--fp16"),
            (self.bf16, "--bf16"),
            (self.tf32, "--tf32"),
            (self.int8, "--int8"),
            (self.half_io, "--half-io"),
            (self.version_compatible, "--version-compatible"),
            (self.gpu_fallback, "--gpu-fallback"),
        ];
        let mut flags: Vec<String> =
            switches.iter().filter(|(set, _)| *set).map(|(_, name)| (*name).to_owned()).collect();
        flags.extend(self.precision.iter().map(|rule| format!("--precision={rule}")));
        if let Some(folder) = &self.calibrate {
            flags.push(format!("--calibrate={}", folder.display()));
            flags.push(format!("--calibration={}", self.calibration));
        }
        let numbers = [
            ("--workspace-mb", self.workspace_mb),
            ("--optimization-level", self.optimization_level.map(u64::from)),
            ("--dla", self.dla.map(u64::from)),
        ];
        flags.extend(numbers.into_iter().filter_map(|(name, value)| value.map(|value| format!("{name}={value}"))));
        if self.hardware_compatible != HardwareCompatibility::None {
            flags.push(format!("--hardware-compatible={}", self.hardware_compatible.name()));
        }
        flags
    }
}
