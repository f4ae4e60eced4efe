//! Shared data of the rows: the paths given on the command line, and the device.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use clap::Args;
use visiond_kernels::cuda::{Device, DeviceError};

use crate::report::Failure;

/// The paths; `tests/gpu/run` gives all of them.
#[derive(Args, Clone)]
pub struct Arguments {
    /// The model, as ONNX.
    #[arg(long, global = true, value_name = "FILE", default_value = "config/models/nanodet-g-416.onnx")]
    pub model: PathBuf,
    /// The model's engine in FP32, built on this machine.
    #[arg(long, global = true, value_name = "FILE")]
    pub engine: Option<PathBuf>,
    /// The model's engine in FP16, built on this machine.
    #[arg(long, global = true, value_name = "FILE")]
    pub engine_fp16: Option<PathBuf>,
    /// Frames of the sample video, 768x576 BGR without padding, contiguous.
    #[arg(long, global = true, value_name = "FILE")]
    pub frames: Option<PathBuf>,
    /// The daemon's binary.
    #[arg(long, global = true, value_name = "FILE")]
    pub visiond: Option<PathBuf>,
    /// Run fewer cases: for compute-sanitizer, which is some hundred times slower.
    #[arg(long, global = true)]
    pub quick: bool,
}

/// The arguments, and the objects that are opened when a row needs them.
pub struct Setup {
    /// As given.
    pub arguments: Arguments,
}

impl Setup {
    /// Keeps the arguments; opens nothing yet.
    pub fn new(arguments: Arguments) -> Self {
        Self { arguments }
    }

    /// Returns the machine's first GPU.
    pub fn device(&self) -> Result<Arc<Device>, Failure> {
        Device::open(0).map_err(|error| match error {
            DeviceError::Cuda(_) | DeviceError::NotStarted { .. } => Failure::Broken(error.to_string()),
            _ => Failure::NoGpu(error.to_string()),
        })
    }

    /// Returns the FP32 engine.
    pub fn engine(&self) -> Result<&Path, Failure> {
        self.arguments.engine.as_deref().ok_or_else(|| Failure::Broken("no engine was given (--engine)".to_owned()))
    }

    /// Returns the daemon's binary.
    pub fn visiond(&self) -> Result<&Path, Failure> {
        self.arguments.visiond.as_deref().ok_or_else(|| Failure::Broken("no visiond was given (--visiond)".to_owned()))
    }

    /// Adds the arguments that a row's own processes need to their command lines.
    pub fn pass_on(&self, command: &mut Command) {
        let arguments = &self.arguments;
        let paths = [
            ("--engine", &arguments.engine),
            ("--engine-fp16", &arguments.engine_fp16),
            ("--frames", &arguments.frames),
            ("--visiond", &arguments.visiond),
        ];
        command.arg("--model").arg(&arguments.model);
        for (name, path) in paths {
            if let Some(path) = path {
                command.arg(name).arg(path);
            }
        }
    }
}
