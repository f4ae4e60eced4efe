//! The limits of a model's trial, for commands that read no configuration.

use std::time::Duration;

use visiond_config::types::EngineConfig;

use crate::value_parsers::{load_timeout, size};

/// Flags that limit the process that tries an .onnx model.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadLimits {
    /// Limit the memory of an .onnx model's trial to SIZE plus six times the model's size [default: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Trial of the model")]
    load_memory: Option<u64>,

    /// Limit the trial of an .onnx model to TIME, from 1s to 1h [default: 1min]
    #[arg(long, value_name = "TIME", value_parser = load_timeout, help_heading = "Trial of the model")]
    load_timeout: Option<Duration>,
}

impl LoadLimits {
    /// Returns `engine` with these limits.
    pub fn of(&self, engine: EngineConfig) -> EngineConfig {
        EngineConfig {
            load_memory_bytes: self.load_memory.unwrap_or(engine.load_memory_bytes),
            load_timeout: self.load_timeout.unwrap_or(engine.load_timeout),
            ..engine
        }
    }
}
