//! The report of a benchmark, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde::Serialize;
use visiond_flow::frame::Frame;
use visiond_system::process;

use super::engine::EngineReport;
use super::figures::{Figures, figures_row};

/// A stage of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The CPU writes the frame into memory that the GPU sees. Only on a GPU; the total leaves it out.
    Write,
    /// The CPU enqueues the frame's work. Only on a GPU.
    Launch,
    /// From frame to tensor.
    Preprocess,
    /// Inference.
    Infer,
    /// From raw outputs to detections.
    Postprocess,
    /// From detections to a line of JSON.
    Message,
    /// The whole frame.
    Total,
    /// The whole frame without inference.
    Rest,
}

impl Stage {
    /// Every stage, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Write,
        Self::Launch,
        Self::Preprocess,
        Self::Infer,
        Self::Postprocess,
        Self::Message,
        Self::Total,
        Self::Rest,
    ];

    /// Returns the key in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Launch => "launch",
            Self::Preprocess => "preprocess",
            Self::Infer => "infer",
            Self::Postprocess => "postprocess",
            Self::Message => "message",
            Self::Total => "total",
            Self::Rest => "all_but_infer",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Infer => "inference",
            Self::Total => "whole frame",
            Self::Rest => "rest",
            stage => stage.name(),
        }
    }
}

/// The machine of the benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Name of the board or processor.
    pub name: String,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
}

impl Machine {
    /// Describes this machine.
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        // Boards with a device tree have their name there, x86 machines in cpuinfo.
        let board = read("/proc/device-tree/model").map(|text| text.trim_end_matches('\0').to_owned());
        let name = board.or_else(|| read("/proc/cpuinfo").as_deref().and_then(processor));
        Self {
            name: name.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").map_or_else(String::new, |text| text.trim().to_owned()),
        }
    }
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Memory use at the end of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Resident memory.
    pub resident_bytes: u64,
    /// Peak resident memory.
    pub peak_resident_bytes: u64,
    /// Size of the decoded frames in it, which a daemon does not keep.
    pub frames_bytes: u64,
}

impl Memory {
    /// Reads the current values.
    pub fn now(frames: &[Frame]) -> Option<Self> {
        let resident = process::resident()?;
        let frames_bytes = frames.iter().map(|frame| frame.buffer.as_slice().len() as u64).sum();
        Some(Self { resident_bytes: resident.now, peak_resident_bytes: resident.peak, frames_bytes })
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// visiond's version.
    pub visiond: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Name of the model.
    pub model: String,
    /// SHA-256 of its file.
    pub sha256: String,
    /// The backend with its version.
    pub backend: String,
    /// Number of threads as given; 0 is every core.
    pub threads: usize,
    /// The source of the frames.
    pub source: String,
    /// Size and format of the frames.
    pub frame: String,
    /// Width and height of the model's input.
    pub input: (u32, u32),
    /// Number of distinct frames.
    pub distinct_frames: usize,
    /// Number of measured frames.
    pub frames: u64,
    /// Number of frames before measuring.
    pub warmup: u64,
    /// Times by stage.
    pub stages_us: BTreeMap<&'static str, Figures>,
    /// Frames per second, one frame after the other, without decoding.
    pub frames_per_second: f64,
    /// Mean number of detections per frame.
    pub detections_per_frame: f64,
    /// Time from the start of the process to the first frame's detections, with a resolution of 10 ms.
    pub first_detection_s: Option<f64>,
    /// Memory use.
    pub memory: Option<Memory>,
    /// The engine alone, if TensorRT runs the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineReport>,
}

impl Report {
    /// Returns the table.
    pub fn table(&self) -> String {
        let threads = match self.threads {
            _ if self.engine.is_some() => "one frame per run".to_owned(),
            0 => "every core".to_owned(),
            1 => "1 thread".to_owned(),
            n => format!("{n} threads"),
        };
        let (width, height) = self.input;
        let mut out = format!(
            "{} on {}, {threads}\n{}, {} cores, Linux {}; visiond {}\n{} frames ({} distinct) of {}, {}, into {width}x{height}\n\n",
            self.model,
            self.backend,
            self.machine.name,
            self.machine.cores,
            self.machine.kernel,
            self.visiond,
            self.frames,
            self.distinct_frames,
            self.source,
            self.frame
        );
        // Writing into a String cannot fail, here and below.
        let _ =
            writeln!(out, "{:<16}{:>11}{:>11}{:>11}{:>11}{:>11}", "microseconds", "median", "p90", "p99", "min", "max");
        for stage in Stage::ALL {
            let Some(f) = self.stages_us.get(stage.name()) else { continue };
            out += &figures_row(stage.title(), f);
        }
        if let Some(engine) = &self.engine {
            out += &engine.table();
        }
        let _ = write!(out, "\n{:.1} frames/s", self.frames_per_second);
        if let Some(share) = self.share_of_rest() {
            let _ = write!(out, "; the rest takes {:.1} % of the inference time", share * 100.0);
        }
        let _ = writeln!(out, "; {:.1} detections per frame", self.detections_per_frame);
        if let Some(engine) = &self.engine {
            out += &engine.frame_lines();
            let whole = self.stages_us.get(Stage::Total.name()).map_or(0.0, Figures::median);
            if engine.floor_us() > 0.0 {
                let _ = writeln!(
                    out,
                    "a whole frame takes {:.2} times as long as the engine alone",
                    whole / engine.floor_us()
                );
            }
        }
        if let Some(first) = self.first_detection_s {
            let _ = writeln!(out, "first detection {first:.2} s after the start");
        }
        if let Some(memory) = &self.memory {
            let [now, frames] = [memory.resident_bytes, memory.frames_bytes].map(|bytes| bytes / 1_000_000);
            let _ = writeln!(out, "{now} MB resident, {frames} MB of it decoded frames");
        }
        if let Some(engine) = &self.engine {
            out += &engine.layer_table();
        }
        out
    }

    /// Returns the median of the rest divided by that of inference.
    fn share_of_rest(&self) -> Option<f64> {
        let median = |stage: Stage| self.stages_us.get(stage.name()).map(Figures::median);
        let infer = median(Stage::Infer).filter(|infer| *infer > 0.0)?;
        Some(median(Stage::Rest)? / infer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_known_by_its_name() {
        let text = "processor\t: 0\nmodel name\t: Cortex: A78\n";
        assert_eq!(processor(text).as_deref(), Some("Cortex: A78"));
        assert_eq!(processor(""), None);
    }
}
