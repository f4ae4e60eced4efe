//! The flags of `visiond build`.

use std::path::PathBuf;

use visiond_engine_builder::calibration::Algorithm;
use visiond_engine_builder::precision::Rule;
use visiond_engine_builder::{
    ComputeCapability, HardwareCompatibility, ShapeProfile, ShapeRange, parse_input_shapes, parse_profile,
};

/// Build a TensorRT engine from an .onnx network, for the GPU that is here
///
/// With TensorRT's own builder and ONNX parser, opened at run time: TensorRT 8.5 to 11, or TensorRT for RTX, which needs no
/// GPU for it. Beside the engine goes MODEL.engine.json, which tells how it was built, and a copy of the model card.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The network's .onnx file
    pub model: PathBuf,

    /// The engine file to write; without it the model's name with .engine
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// The card; without it the TOML beside the model with the same stem, else the model's own metadata
    #[arg(short, long, value_name = "FILE")]
    pub card: Option<PathBuf>,

    /// Replace the engine file where there is one
    #[arg(short, long)]
    pub force: bool,

    /// Print the sidecar as JSON instead of a summary
    #[arg(long)]
    pub json: bool,

    /// Compute in FP16 where that is safe; inputs and outputs stay FP32
    #[arg(long, conflicts_with = "bf16", help_heading = "Precision")]
    pub fp16: bool,

    /// Compute in BF16 where that is safe; from TensorRT 10 on
    #[arg(long, help_heading = "Precision")]
    pub bf16: bool,

    /// Let products of FP32 round their factors to 10 bits (TF32): faster from Orin and Ampere on, moves scores by some hundredths
    #[arg(long, help_heading = "Precision")]
    pub tf32: bool,

    /// Compute in 8-bit integers: a network with QuantizeLinear and DequantizeLinear, or with --calibrate
    #[arg(long, help_heading = "Precision")]
    pub int8: bool,

    /// Keep layers in FP32 (LAYER=fp32), or have them in half precision nevertheless (LAYER=half)
    ///
    /// LAYER is a node's name, with * and ? for other characters, or type:OPERATOR. May be given several times; of several
    /// that mean one layer, the last holds.
    #[arg(long, value_name = "LAYER=P", help_heading = "Precision")]
    pub precision: Vec<Rule>,

    /// Make inputs and outputs half precision too
    #[arg(long, requires = "fp16", help_heading = "Precision")]
    pub half_io: bool,

    /// Find the ranges for --int8 by this folder of pictures (TensorRT 8 and 10); some hundred, as the camera sees them
    #[arg(long, value_name = "FOLDER", requires = "int8", help_heading = "Precision")]
    pub calibrate: Option<PathBuf>,

    /// How ranges follow from the pictures: entropy, minmax, or percentile:99.99
    #[arg(long, value_name = "HOW", default_value = "entropy", help_heading = "Precision")]
    pub calibration: Algorithm,

    /// Pictures of the folder that are used at most
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Precision")]
    pub calibration_pictures: u64,

    /// Where ranges are kept; without it in the cache folder, by network, pictures and TensorRT
    #[arg(long, value_name = "FILE", help_heading = "Precision")]
    pub calibration_cache: Option<PathBuf>,

    /// Give an input this one shape, as in images=1x3x640x640; may be given once an input
    #[arg(long, value_name = "INPUT=SHAPE", value_parser = parse_input_shapes, help_heading = "Shapes")]
    pub shape: Vec<(String, ShapeRange)>,

    /// The least shapes, as trtexec takes them: images:1x3x640x640, several with commas between
    #[arg(long, value_name = "SHAPES", requires = "opt_shapes", requires = "max_shapes", help_heading = "Shapes")]
    pub min_shapes: Option<String>,

    /// The shapes that kernels are chosen for
    #[arg(long, value_name = "SHAPES", requires = "min_shapes", help_heading = "Shapes")]
    pub opt_shapes: Option<String>,

    /// The greatest shapes
    #[arg(long, value_name = "SHAPES", requires = "min_shapes", help_heading = "Shapes")]
    pub max_shapes: Option<String>,

    /// One profile: INPUT=LEAST,USUAL,MOST, several inputs with semicolons between; may be given several times
    #[arg(long, value_name = "PROFILE", value_parser = parse_profile, conflicts_with_all = ["shape", "min_shapes"], help_heading = "Shapes")]
    pub profile: Vec<ShapeProfile>,

    /// Scratch memory that a layer may take, in MiB; without it what TensorRT takes
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20), help_heading = "Builder")]
    pub workspace_mb: Option<u64>,

    /// How long to look for faster kernels: 0 to 5; without it TensorRT's own choice, 3
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=5), help_heading = "Builder")]
    pub optimization_level: Option<u32>,

    /// Where measured times of kernels are kept; without it in the cache folder, by TensorRT and GPU
    #[arg(long, value_name = "FILE", help_heading = "Builder")]
    pub timing_cache: Option<PathBuf>,

    /// Keep no measured times, and use none
    #[arg(long, conflicts_with = "timing_cache", help_heading = "Builder")]
    pub no_timing_cache: bool,

    /// Let later minor versions of TensorRT run the engine too (from 8.6 on)
    #[arg(long, help_heading = "Builder")]
    pub version_compatible: bool,

    /// Let other GPUs run the engine too: ampere+, same-sm or none
    #[arg(long, value_name = "LEVEL", default_value = "none", help_heading = "Builder")]
    pub hardware_compatible: HardwareCompatibility,

    /// Run on this deep-learning accelerator (DLA) of a Jetson; TensorRT up to 10.7, or AGX Orin with 11.4.1 and newer
    #[arg(long, value_name = "CORE", help_heading = "Builder")]
    pub dla: Option<u32>,

    /// Run layers that the DLA does not know on the GPU
    #[arg(long, requires = "dla", help_heading = "Builder")]
    pub gpu_fallback: bool,

    /// TensorRT for RTX: compute capabilities to build for, as in 86,89; without it the GPU that is here, else any
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Builder")]
    pub sm: Vec<ComputeCapability>,

    /// The GPU to build on
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Builder")]
    pub device: u32,

    /// TensorRT's library; without it VISIOND_TENSORRT_LIBRARY, else the newest that is found
    #[arg(long, value_name = "FILE", help_heading = "Builder")]
    pub tensorrt_library: Option<PathBuf>,
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
    pub fn told(&self) -> Vec<String> {
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
