//! The GPUs that the CUDA driver finds, or why it finds none.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use visiond_kernels::auto_memory::{AutoMemory, FrameCost};
use visiond_kernels::cuda::{Device, DeviceError};
use visiond_kernels::nvdec::{self, Chroma, NvdecError, VideoCodec, VideoKind};
use visiond_system::board::Board;
use visiond_system::exit::{Exit, ExitError};

use crate::output::print;

/// The GPUs of this machine.
#[derive(Debug, Serialize)]
pub struct Gpus {
    pub available: bool,
    /// Why none can be used, in one line.
    pub reason: Option<String>,
    /// Version of NVIDIA's kernel module; on a Jetson whose module reports none, `L4T` and its version.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// The usable GPUs.
    pub devices: Vec<ProbedGpu>,
}

/// Prints whether there is a GPU that CUDA can use, without measuring anything.
///
/// # Errors
/// If there is a GPU, and it does not work.
pub fn print_whether_there_is_one() -> Result<Exit, ExitError> {
    match Device::count() {
        Ok(count) => print(&format!("{}\n", count > 0))?,
        Err(DeviceError::NoDriver { .. } | DeviceError::NoDevice) => print("false\n")?,
        Err(error) => return Err(ExitError::new(Exit::Failure, error)),
    }
    Ok(Exit::Success)
}

/// A GPU.
#[derive(Debug, Serialize)]
pub struct ProbedGpu {
    /// Its number in the configuration (`engine.gpu`).
    pub index: u32,
    /// The name, such as `NVIDIA H100` or `Orin`.
    name: String,
    /// Compute capability, such as `8.7`.
    sm: String,
    /// Whether it shares memory with the CPU.
    integrated: bool,
    memory_bytes: u64,
    memory_free_bytes: Option<u64>,
    multiprocessors: u32,
    /// The memory kind that `buffers.memory = "auto"` chooses.
    pub frames: &'static str,
    /// The measurements that led to that choice; empty if only one kind is available.
    frames_measured: Vec<MemoryCost>,
    /// The kinds of video that its video engine decodes.
    decodes: Vec<DecodedVideo>,
    /// Why it decodes none, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_decoder: Option<String>,
    /// The measurements in one line.
    #[serde(skip)]
    pub why: Option<String>,
}

/// A kind of video that a video engine decodes.
#[derive(Debug, Serialize)]
struct DecodedVideo {
    /// Codec, bit depth, chroma sampling.
    kind: String,
    max_width: u32,
    max_height: u32,
    /// How many engines there are for it; 0 if the driver does not say.
    engines: u32,
}

/// The cost of a 1280x720 YUYV frame in one kind of memory.
#[derive(Debug, Serialize)]
struct MemoryCost {
    memory: &'static str,
    /// Time for the CPU to write it, in microseconds.
    write_us: f64,
    /// Time for the GPU to preprocess it, in microseconds.
    preprocess_us: f64,
}

impl Gpus {
    /// Opens each GPU briefly and measures which memory suits its frames. Reads the driver's version below `root`, in place
    /// of `/`.
    pub fn find(root: &Path) -> Self {
        let opened = Device::count().and_then(|count| (0..count).map(Device::open).collect::<Result<Vec<_>, _>>());
        Self::of(opened, root)
    }

    fn of(opened: Result<Vec<Arc<Device>>, DeviceError>, root: &Path) -> Self {
        let (devices, reason) = match opened {
            Ok(devices) if devices.is_empty() => (devices, Some(DeviceError::NoDevice.to_string())),
            Ok(devices) => (devices, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Self {
            available: !devices.is_empty(),
            reason,
            driver: driver(root),
            cuda: devices.first().map(|device| device.facts().cuda_version()),
            devices: devices.iter().map(ProbedGpu::new).collect(),
        }
    }

    /// Returns a line for each GPU, or one that says why there is none.
    pub fn lines(&self) -> Vec<String> {
        if let Some(reason) = &self.reason {
            return vec![format!("not available: {reason}")];
        }
        let driver = self.driver.as_ref().map_or(String::new(), |version| format!(", driver {version}"));
        let cuda = self.cuda.as_deref().unwrap_or("?");
        let gib = |bytes: u64| bytes as f64 / 1_073_741_824.0;
        let line = |gpu: &ProbedGpu| {
            let ProbedGpu { index, name, sm, .. } = gpu;
            let shared = if gpu.integrated { "shared with the CPU, " } else { "" };
            let memory = gib(gpu.memory_bytes);
            let free = gpu.memory_free_bytes.map_or(String::new(), |bytes| format!(", {:.1} free", gib(bytes)));
            format!("{index}: {name} (SM {sm}), {shared}{memory:.1} GiB of memory{free}{driver}, CUDA {cuda}")
        };
        self.devices.iter().map(line).collect()
    }

    /// Returns a line for the video engine of each GPU.
    pub fn decoder_lines(&self) -> Vec<String> {
        let decoded = |video: &DecodedVideo| format!("{} to {}x{}", video.kind, video.max_width, video.max_height);
        let line = |gpu: &ProbedGpu| match &gpu.no_decoder {
            Some(reason) => format!("{}: not available: {reason}", gpu.index),
            None => format!("{}: {}", gpu.index, gpu.decodes.iter().map(decoded).collect::<Vec<_>>().join("; ")),
        };
        self.devices.iter().map(line).collect()
    }
}

impl ProbedGpu {
    fn new(device: &Arc<Device>) -> Self {
        let facts = device.facts();
        let frames = AutoMemory::of(device);
        let (decodes, no_decoder) = match decoded_videos(device) {
            Ok(decodes) if decodes.is_empty() => (decodes, Some("it decodes neither H.264 nor H.265".to_owned())),
            Ok(decodes) => (decodes, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let round = |us: f64| (us * 10.0).round() / 10.0;
        let cost = |cost: &FrameCost| MemoryCost {
            memory: cost.kind.name(),
            write_us: round(cost.write_us),
            preprocess_us: round(cost.preprocess_us),
        };
        Self {
            index: facts.index,
            name: facts.name.clone(),
            sm: format!("{}.{}", facts.sm.0, facts.sm.1),
            integrated: facts.integrated,
            memory_bytes: facts.memory_bytes,
            memory_free_bytes: device.memory_free_bytes().ok(),
            multiprocessors: facts.multiprocessors,
            frames: frames.kind().name(),
            frames_measured: frames.costs().iter().map(cost).collect(),
            decodes,
            no_decoder,
            why: frames.why(),
        }
    }
}

/// Asks the GPU's video engine for the usual kinds of video.
fn decoded_videos(device: &Arc<Device>) -> Result<Vec<DecodedVideo>, NvdecError> {
    let mut decodes = Vec::new();
    for codec in [VideoCodec::H264, VideoCodec::H265] {
        for chroma in [Chroma::Yuv420, Chroma::Yuv422] {
            for bits in [8, 10] {
                let kind = VideoKind { codec, chroma, bits };
                if let Some(limits) = nvdec::limits(device, kind)? {
                    let ((max_width, max_height), engines) = (limits.most, limits.engines);
                    decodes.push(DecodedVideo { kind: kind.to_string(), max_width, max_height, engines });
                }
            }
        }
    }
    Ok(decodes)
}

/// Returns the version of NVIDIA's kernel module. On a Jetson whose module has none, returns the L4T version, because the
/// driver is part of L4T.
fn driver(root: &Path) -> Option<String> {
    let module = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok();
    module.as_deref().and_then(module_version).or_else(|| Some(format!("L4T {}", Board::read(root).l4t?)))
}

/// Returns the first version number: `580.65.06` of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06
/// Sun ...".
fn module_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_one_line_says_why() {
        let root = Path::new("/");
        let none = Gpus::of(Err(DeviceError::NoDriver { reason: "libcuda.so.1: cannot open".to_owned() }), root);
        assert_eq!(none.lines(), ["not available: no NVIDIA driver: libcuda.so.1: cannot open"]);
        assert!(!none.available && none.devices.is_empty());
        assert!(Gpus::of(Ok(Vec::new()), root).lines()[0].starts_with("not available: the NVIDIA driver finds no GPU"));
    }

    #[test]
    fn a_gpu_is_one_line() {
        let gpu = ProbedGpu {
            index: 0,
            name: "Orin".to_owned(),
            sm: "8.7".to_owned(),
            integrated: true,
            memory_bytes: 8 << 30,
            memory_free_bytes: Some(3 << 29),
            multiprocessors: 8,
            frames: "mapped",
            frames_measured: Vec::new(),
            decodes: Vec::new(),
            no_decoder: Some("no NVDEC".to_owned()),
            why: Some("write 180 us, preprocess 41 us; managed: write 600 us, preprocess 300 us".to_owned()),
        };
        let (driver, cuda) = (Some("540.4.0".to_owned()), Some("12.6".to_owned()));
        let all = Gpus { available: true, reason: None, driver, cuda, devices: vec![gpu] };
        let line = "0: Orin (SM 8.7), shared with the CPU, 8.0 GiB of memory, 1.5 free, driver 540.4.0, CUDA 12.6";
        assert_eq!(all.lines(), [line]);
    }

    #[test]
    fn the_modules_version_is_found_in_both_of_its_forms() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (buildbrain)\n";
        assert_eq!(module_version(closed).as_deref(), Some("535.183.01"));
        assert_eq!(module_version(open).as_deref(), Some("540.4.0"));
        assert_eq!(module_version("nothing"), None);
    }

    #[test]
    fn a_jetsons_driver_is_the_modules_or_the_systems() {
        let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/boards");
        let driver = |name: &str| driver(&boards.join(name)).unwrap();
        assert_eq!(driver("orin-nano-36.4.3"), "540.4.0");
        // Its module states a word instead of a number.
        assert_eq!(driver("thor-38.4.0"), "L4T 38.4.0");
        assert_eq!(driver("xavier-nx-35.4.1"), "L4T 35.4.1");
    }

    #[test]
    fn a_video_engine_is_a_line_with_its_codecs_or_why_it_decodes_none() {
        let video = |kind: &str, max_width, max_height| DecodedVideo {
            kind: kind.to_owned(),
            max_width,
            max_height,
            engines: 1,
        };
        let gpu = |index, decodes, no_decoder: Option<&str>| ProbedGpu {
            index,
            name: "H200".to_owned(),
            sm: "9.0".to_owned(),
            integrated: false,
            memory_bytes: 1 << 30,
            memory_free_bytes: None,
            multiprocessors: 1,
            frames: "host",
            frames_measured: Vec::new(),
            decodes,
            no_decoder: no_decoder.map(str::to_owned),
            why: None,
        };
        let decodes = vec![video("H.264", 4096, 4096), video("H.265 10 bit", 8192, 8192)];
        let devices = vec![gpu(0, decodes, None), gpu(1, Vec::new(), Some("no driver"))];
        let all = Gpus { available: true, reason: None, driver: None, cuda: None, devices };
        let lines = ["0: H.264 to 4096x4096; H.265 10 bit to 8192x8192", "1: not available: no driver"];
        assert_eq!(all.decoder_lines(), lines);
        assert_eq!(all.lines()[1], "1: H200 (SM 9.0), 1.0 GiB of memory, CUDA ?");
    }
}
