//! What a benchmark found, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde::Serialize;
use visiond_flow::frame::Frame;
use visiond_system::process;

use super::engine::EngineReport;
use super::figures::{Figures, figures_row};

/// A part of the work on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The CPU writes the frame into memory that the GPU sees; networks on the GPU alone, no part of the total.
    Write,
    /// The host, until the GPU has the frame's work; networks on the GPU alone.
    Launch,
    /// Frame to tensor.
    Preprocess,
    /// The network.
    Infer,
    /// Raw outputs to detections.
    Postprocess,
    /// Detections to a line of JSON.
    Message,
    /// All of it.
    Total,
    /// All but the network.
    Rest,
}

impl Stage {
    /// Every stage, as the table has them.
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

    /// Its key in the JSON.
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
            Self::Infer => "network",
            Self::Total => "whole frame",
            Self::Rest => "all but network",
            stage => stage.name(),
        }
    }
}

/// Where it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Processor or board.
    pub name: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Kernel.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        // Boards with a device tree say there what they are; x86 says it in cpuinfo.
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

/// Memory at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Resident.
    pub resident_bytes: u64,
    /// Resident at most.
    pub peak_resident_bytes: u64,
    /// Of it the frames that were decoded beforehand, which a daemon does not keep.
    pub frames_bytes: u64,
}

impl Memory {
    /// As it is now.
    pub fn now(frames: &[Frame]) -> Option<Self> {
        let resident = process::resident()?;
        let frames_bytes = frames.iter().map(|frame| frame.buffer.as_slice().len() as u64).sum();
        Some(Self { resident_bytes: resident.now, peak_resident_bytes: resident.peak, frames_bytes })
    }
}

/// Everything.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Our version.
    pub visiond: &'static str,
    /// Where.
    pub machine: Machine,
    /// The network.
    pub model: String,
    /// Of its file.
    pub sha256: String,
    /// What ran it, with version.
    pub backend: String,
    /// As asked for; 0 is every core.
    pub threads: usize,
    /// What was looked at.
    pub source: String,
    /// Size and format of the frames.
    pub frame: String,
    /// Width and height of the network's input.
    pub input: (u32, u32),
    /// Different frames.
    pub distinct_frames: usize,
    /// Frames measured.
    pub frames: u64,
    /// Frames before, unmeasured.
    pub warmup: u64,
    /// Durations by stage.
    pub stages_us: BTreeMap<&'static str, Figures>,
    /// One frame after the other, decoding left out.
    pub frames_per_second: f64,
    /// Things seen, on average.
    pub detections_per_frame: f64,
    /// From the process's start to the first frame's detections, opening the source included; to 10 ms.
    pub first_detection_s: Option<f64>,
    /// Memory.
    pub memory: Option<Memory>,
    /// The engine by itself, where TensorRT runs the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineReport>,
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let threads = match self.threads {
            _ if self.engine.is_some() => "one frame a run".to_owned(),
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
        let _ = write!(out, "\n{:.1} frames a second", self.frames_per_second);
        if let Some(share) = self.share_of_rest() {
            let _ = write!(out, "; all but the network takes {:.1} % of the network's time", share * 100.0);
        }
        let _ = writeln!(out, "; {:.1} detections a frame", self.detections_per_frame);
        if let Some(engine) = &self.engine {
            out += &engine.frame_lines();
            let whole = self.stages_us.get(Stage::Total.name()).map_or(0.0, Figures::median);
            if engine.floor_us() > 0.0 {
                let _ =
                    writeln!(out, "a whole frame takes {:.2} times the engine by itself", whole / engine.floor_us());
            }
        }
        if let Some(first) = self.first_detection_s {
            let _ = writeln!(out, "first detection {first:.2} s after the start");
        }
        if let Some(memory) = &self.memory {
            let [now, frames] = [memory.resident_bytes, memory.frames_bytes].map(|bytes| bytes / 1_000_000);
            let _ = writeln!(out, "{now} MB resident, {frames} MB of it the decoded frames");
        }
        if let Some(engine) = &self.engine {
            out += &engine.layer_table();
        }
        out
    }

    /// Medians compared.
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
