//! What the rows share: the paths given on the command line, and the device.

use std::path::PathBuf;

use clap::Args;

use crate::report::{Failure, Report};

/// Where things are; `tests/gpu/run` gives all of them.
#[derive(Args, Clone)]
pub struct Arguments {
    /// Folder of the TensorRT library.
    #[arg(long, global = true, value_name = "DIR")]
    pub tensorrt: Option<PathBuf>,
    /// The network, as ONNX.
    #[arg(long, global = true, value_name = "FILE", default_value = "config/models/nanodet-g-416.onnx")]
    pub model: PathBuf,
    /// The network's engine in FP32, built on this machine.
    #[arg(long, global = true, value_name = "FILE")]
    pub engine: Option<PathBuf>,
    /// The network's engine in FP16, built on this machine.
    #[arg(long, global = true, value_name = "FILE")]
    pub engine_fp16: Option<PathBuf>,
    /// Frames of the sample video, 768x576 BGR without padding, one after the other.
    #[arg(long, global = true, value_name = "FILE")]
    pub frames: Option<PathBuf>,
    /// The daemon's binary.
    #[arg(long, global = true, value_name = "FILE")]
    pub visiond: Option<PathBuf>,
    /// Fewer cases: what compute-sanitizer runs, which is some hundred times slower.
    #[arg(long, global = true)]
    pub quick: bool,
}

/// The arguments, and what is made of them when a row asks.
pub struct Setup {
    /// As given.
    pub arguments: Arguments,
}

impl Setup {
    /// Keeps the arguments; nothing is opened yet.
    pub fn new(arguments: Arguments) -> Self {
        Self { arguments }
    }
}

/// What GPU is here.
pub fn device_row(_setup: &Setup, _report: &mut Report) -> Result<(), Failure> {
    Err(Failure::NoGpu("this build looks for none".to_owned()))
}
