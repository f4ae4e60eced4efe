//! The report of a benchmark, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde::Serialize;
use visiond_frames::frame::Frame;
use visiond_system::process;

use super::engine::EngineReport;
use super::measurement::Figures;

/// The stages of a frame, each with its key in JSON and its title in the table.
pub const STAGES: [(&str, &str); 8] = [
    // The CPU writes the frame into memory that the GPU sees. Only on a GPU; the total leaves it out.
    ("write", "write"),
    // The CPU enqueues the frame's work. Only on a GPU.
    ("launch", "launch"),
    ("preprocess", "preprocess"),
    ("infer", "inference"),
    // From raw outputs to detections.
    ("postprocess", "postprocess"),
    // From detections to a line of JSON.
    ("message", "message"),
    ("total", "whole frame"),
    // The whole frame without inference.
    ("all_but_infer", "rest"),
];

/// Index of the whole frame in [`STAGES`].
pub const TOTAL: usize = 6;

/// The machine that ran the benchmark.
#[derive(Debug, Serialize)]
pub struct BenchMachine {
    /// Name of the board or processor.
    name: String,
    /// Number of cores that this process may use.
    cores: usize,
    kernel: String,
}

impl BenchMachine {
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
#[derive(Debug, Serialize)]
pub struct MemoryUse {
    resident_bytes: u64,
    peak_resident_bytes: u64,
    /// The size of the decoded frames in memory, which a daemon would not keep.
    frames_bytes: u64,
}

impl MemoryUse {
    pub fn now(frames: &[Frame]) -> Option<Self> {
        let resident = process::resident()?;
        let frames_bytes = frames.iter().map(|frame| frame.buffer.as_slice().len() as u64).sum();
        Some(Self { resident_bytes: resident.now, peak_resident_bytes: resident.peak, frames_bytes })
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    pub visiond: &'static str,
    pub machine: BenchMachine,
    pub model: String,
    pub sha256: String,
    /// The backend with its version.
    pub backend: String,
    /// The `--threads` value; 0 is every core.
    pub threads: usize,
    pub source: String,
    /// Size and format of the frames.
    pub frame: String,
    /// Width and height of the model's input.
    pub input: (u32, u32),
    pub distinct_frames: usize,
    pub frames: u64,
    pub warmup: u64,
    pub stages_us: BTreeMap<&'static str, Figures>,
    /// Frames per second, one frame at a time, without decoding.
    pub frames_per_second: f64,
    pub detections_per_frame: f64,
    /// Time from the start of the process to the first frame's detections, with a resolution of 10 ms.
    pub first_detection_s: Option<f64>,
    pub memory: Option<MemoryUse>,
    /// The measurements of the bare engine, if TensorRT runs the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineReport>,
}

impl BenchReport {
    pub fn table(&self) -> String {
        let threads = match self.threads {
            _ if self.engine.is_some() => "one frame per run".to_owned(),
            0 => "every core".to_owned(),
            1 => "1 thread".to_owned(),
            n => format!("{n} threads"),
        };
        let Self { visiond, machine: BenchMachine { name, cores, kernel }, model, backend, .. } = self;
        let Self { source, frame, input: (width, height), distinct_frames, frames, .. } = self;
        let mut out = format!(
            "{model} on {backend}, {threads}\n{name}, {cores} cores, Linux {kernel}; visiond {visiond}\n\
             {frames} frames ({distinct_frames} distinct) of {source}, {frame}, into {width}x{height}\n\n"
        );
        // Writing into a String cannot fail, here and below.
        let _ =
            writeln!(out, "{:<16}{:>11}{:>11}{:>11}{:>11}{:>11}", "microseconds", "median", "p90", "p99", "min", "max");
        for (stage, title) in STAGES {
            out.extend(self.stages_us.get(stage).map(|figures| figures.row(title)));
        }
        if let Some(engine) = &self.engine {
            out += &engine.table();
        }
        let _ = write!(out, "\n{:.1} frames/s", self.frames_per_second);
        let median = |stage: &str| self.stages_us.get(stage).map_or(0.0, |figures| figures.median);
        if median("infer") > 0.0 {
            let share = median("all_but_infer") / median("infer") * 100.0;
            let _ = write!(out, "; the rest takes {share:.1} % of the inference time");
        }
        let _ = writeln!(out, "; {:.1} detections per frame", self.detections_per_frame);
        if let Some(engine) = &self.engine {
            out += &engine.frame_lines();
            let ratio = median("total") / engine.floor_us();
            if ratio.is_finite() {
                let _ = writeln!(out, "a whole frame takes {ratio:.2} times as long as the engine alone");
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_processor_is_known_by_its_name() {
        let text = "processor\t: 0\nmodel name\t: Cortex: A78\n";
        assert_eq!(processor(text).as_deref(), Some("Cortex: A78"));
        assert_eq!(processor(""), None);
    }

    #[test]
    fn the_table_has_the_stages_the_rate_and_the_memory_in_their_units() {
        let times = |us: &[u64]| Figures::of(us.iter().copied().map(Duration::from_micros));
        let mut report = BenchReport {
            visiond: "1.2.3",
            machine: BenchMachine { name: "Orin".to_owned(), cores: 6, kernel: "6.8".to_owned() },
            model: "net.onnx".to_owned(),
            sha256: String::new(),
            backend: "rten".to_owned(),
            threads: 0,
            source: "film.mp4".to_owned(),
            frame: "1280x720 bgr".to_owned(),
            input: (640, 384),
            distinct_frames: 20,
            frames: 300,
            warmup: 3,
            stages_us: BTreeMap::from([
                ("infer", times(&[100, 200, 300])),
                ("total", times(&[150, 250, 350])),
                ("all_but_infer", times(&[50, 50, 50])),
            ]),
            frames_per_second: 40.04,
            detections_per_frame: 2.25,
            first_detection_s: Some(0.256),
            memory: Some(MemoryUse {
                resident_bytes: 123_456_789,
                peak_resident_bytes: 200_000_000,
                frames_bytes: 45_000_000,
            }),
            engine: None,
        };
        let table = report.table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "net.onnx on rten, every core",
                "Orin, 6 cores, Linux 6.8; visiond 1.2.3",
                "300 frames (20 distinct) of film.mp4, 1280x720 bgr, into 640x384",
            ]
        );
        let rows: Vec<Vec<_>> = lines[4..8].iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["microseconds", "median", "p90", "p99", "min", "max"]);
        assert_eq!(rows[1], ["inference", "200.0", "300.0", "300.0", "100.0", "300.0"]);
        assert_eq!((rows[2][1], rows[2][2], rows[3][0], rows[3][1]), ("frame", "250.0", "rest", "50.0"));
        assert_eq!(
            lines[9..],
            [
                "40.0 frames/s; the rest takes 25.0 % of the inference time; 2.2 detections per frame",
                "first detection 0.26 s after the start",
                "123 MB resident, 45 MB of it decoded frames",
            ]
        );
        report.stages_us.clear();
        (report.first_detection_s, report.memory) = (None, None);
        for (threads, text) in [(1, "1 thread"), (8, "8 threads")] {
            report.threads = threads;
            let table = report.table();
            assert_eq!(table.lines().next(), Some(&*format!("net.onnx on rten, {text}")));
            assert!(table.ends_with("\n40.0 frames/s; 2.2 detections per frame\n"), "{table}");
        }
    }
}
