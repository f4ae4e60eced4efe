//! Row "Preprocess": 32 frames of 1080p YUYV and of NV12, in device memory, to one 640x640 f16 tensor, letterboxed.
//!
//! The time is the GPU's own between two events around many launches, the best of several rounds. Bytes are counted twice: the
//! whole frame read once and the tensor written once; and only the rows that the resampling needs.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use clap::Args;
use serde_json::Value;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::cuda::{CudaStream, Device, DeviceAddress, DeviceBuffer, Event};
use visiond_kernels::frame::{FrameLayout, FrameView, PixelFormat};
use visiond_kernels::placement::Fit;
use visiond_kernels::preprocess::cuda::CudaPreprocessor;
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Sampling, TensorLayout};
use visiond_kernels::tensor::DType;

use crate::device::copy_gb_per_s;
use crate::measure::{Noise, Samples};
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Preprocess";
const FRAMES: usize = 32;
const SIDE: u32 = 640;
const TENSOR_BYTES: usize = 3 * (SIDE * SIDE) as usize * 2;
/// The required share of the copy bandwidth.
const SHARE: f64 = 0.6;
/// The time of a warp at most, relative to OpenCV's resize: both read as much.
const WARP_TIMES: f64 = 1.3;
/// The required speed relative to CV-CUDA.
const TIMES: f64 = 5.0;

/// The paths that CV-CUDA needs.
#[derive(Args, Clone)]
pub struct Peers {
    /// Folder of the peers' scripts.
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Python with torch and cvcuda.
    #[arg(long, value_name = "FILE", default_value = "python3")]
    python: PathBuf,
}

/// One of the two formats, with the number of bytes of a frame that are read.
struct Case {
    name: &'static str,
    format: PixelFormat,
    frame_bytes: usize,
    needed_bytes: usize,
}

/// A third of the rows is sampled: 1080 become 360, at `3 i + 1` exactly.
const CASES: [Case; 2] = [
    Case { name: "yuyv", format: PixelFormat::Yuyv, frame_bytes: 1920 * 1080 * 2, needed_bytes: 1920 * 2 * 360 },
    Case { name: "nv12", format: PixelFormat::Nv12, frame_bytes: 1920 * 1080 * 3 / 2, needed_bytes: 1920 * 360 * 2 },
];

/// Runs the row.
pub fn run(setup: &Setup, peers: &Peers, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let copy = copy_gb_per_s(&device)?;
    report.note(ROW, "copy bandwidth of this GPU", format!("{copy:.0} GB/s"));
    let folder = std::env::temp_dir().join(format!("visiond-gpu-preprocess-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut ours = Vec::new();
    for case in &CASES {
        let frame = frame_of(case);
        for sampling in [Sampling::Opencv, Sampling::Exact] {
            let mut bench = Bench::new(&device, case, &frame, sampling)?;
            let microseconds = bench.best_us()?;
            let gb_per_s = |bytes: usize| (FRAMES * (bytes + TENSOR_BYTES)) as f64 / microseconds / 1e3;
            let (whole, needed) = (gb_per_s(case.frame_bytes), gb_per_s(case.needed_bytes));
            let what = format!("{} to f16, {sampling:?} sampling", case.name);
            report.figure(
                ROW,
                &format!("{what}, whole frames counted"),
                format!(">= {:.0} % of the copy bandwidth", SHARE * 100.0),
                format!("{microseconds:.1} us, {whole:.0} GB/s, {:.0} %", whole / copy * 100.0),
                whole >= SHARE * copy,
            );
            let text = format!("{needed:.0} GB/s, {:.0} %", needed / copy * 100.0);
            report.note(ROW, &format!("{what}, sampled rows counted"), text);
            if sampling == Sampling::Opencv {
                std::fs::write(folder.join(format!("{}.frame", case.name)), &frame)?;
                std::fs::write(folder.join(format!("{}.tensor", case.name)), bench.first_tensor()?)?;
                ours.push((case.name, microseconds));
            }
        }
    }
    let frame = frame_of(&CASES[0]);
    for (name, sampling) in Sampling::ALL.into_iter().skip(2) {
        let microseconds = Bench::new(&device, &CASES[0], &frame, sampling)?.best_us()?;
        let times = microseconds / ours[0].1;
        let (what, seen) = (format!("yuyv to f16, {name}"), format!("{microseconds:.1} us, {times:.2} times opencv"));
        if sampling.only_warps() {
            report.figure(ROW, &what, format!("<= {WARP_TIMES} times opencv"), seen, times <= WARP_TIMES);
        } else {
            report.note(ROW, &what, seen);
        }
    }
    compare(peers, &folder, &ours, report)?;
    Ok(std::fs::remove_dir_all(&folder)?)
}

/// Makes a smooth image with some noise, so that two samplings of it can be compared.
fn frame_of(case: &Case) -> Vec<u8> {
    let mut frame = vec![0; case.frame_bytes];
    Noise::new(7).fill(&mut frame);
    let width = case.frame_bytes / if case.format == PixelFormat::Yuyv { 1080 } else { 1620 };
    for (index, byte) in frame.iter_mut().enumerate() {
        let (x, y) = (index % width, index / width);
        let is_luma = if case.format == PixelFormat::Yuyv { x % 2 == 0 } else { y < 1080 };
        let noise = *byte % 8;
        let slope = if is_luma { 40 + (x / 32 + y / 16) % 160 } else { 90 + (x / 64 + y / 32) % 60 };
        *byte = u8::try_from(slope).unwrap_or(128) + noise;
    }
    frame
}

/// Frames, the tensor and the preprocessor, all on the GPU.
struct Bench {
    device: Arc<Device>,
    stream: CudaStream,
    preprocessor: CudaPreprocessor,
    tensor: DeviceBuffer,
    _frames: DeviceBuffer,
}

impl Bench {
    fn new(device: &Arc<Device>, case: &Case, frame: &[u8], sampling: Sampling) -> Result<Self, Failure> {
        let spec = PreprocessSpec {
            width: SIDE,
            height: SIDE,
            placement: if sampling.only_warps() { Fit::Warp } else { Fit::Letterbox }.into(),
            sampling,
            pad: 114.0,
            order: ChannelOrder::Rgb,
            layout: TensorLayout::Nchw,
            dtype: DType::F16,
            scale: 1.0 / 255.0,
            mean: [0.0; 3],
            std: [1.0; 3],
        };
        let stream = CudaStream::new(device)?;
        let frames = DeviceBuffer::new(device, FRAMES * case.frame_bytes)?;
        let layout = FrameLayout::packed(case.format, 1920, 1080, ColorDescription::default())?;
        let at = |index: usize| frames.address().offset(index * case.frame_bytes);
        let mut views: Vec<FrameView<'_>> = Vec::new();
        for index in 0..FRAMES {
            // SAFETY: each range lies within `frames`, which outlives the synchronisation below, as does `frame`.
            unsafe { stream.copy_to_device(frame, at(index)) }?;
            views.push(layout.view_at(frame, Some(at(index)))?);
        }
        stream.synchronize()?;
        let mut preprocessor = CudaPreprocessor::new(&spec, device, FRAMES)?;
        preprocessor.prepare(&views)?;
        let tensor = DeviceBuffer::new(device, FRAMES * TENSOR_BYTES)?;
        // Once the GPU has the tables, a run copies none.
        // SAFETY: the tensor has room for these frames, which are all there until the synchronisation.
        unsafe { preprocessor.enqueue(tensor.address(), FRAMES, &stream) }?;
        stream.synchronize()?;
        preprocessor.prepare(&views)?;
        Ok(Self { device: device.clone(), stream, preprocessor, tensor, _frames: frames })
    }

    /// Returns the best of ten means of a hundred launches each.
    fn best_us(&mut self) -> Result<f64, Failure> {
        let (rounds, launches) = (10, 100);
        let mut means = Vec::new();
        for _ in 0..=rounds {
            let (begin, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
            begin.record(&self.stream)?;
            for _ in 0..launches {
                self.enqueue()?;
            }
            end.record(&self.stream)?;
            self.stream.synchronize()?;
            means.push(end.elapsed_us(&begin)? / f64::from(launches));
        }
        Ok(Samples::new(means).best())
    }

    fn enqueue(&mut self) -> Result<(), Failure> {
        let to: DeviceAddress = self.tensor.address();
        // SAFETY: `prepare` was given these frames, which `self` keeps; the tensor has room for them; every caller
        // synchronises before anything is dropped.
        Ok(unsafe { self.preprocessor.enqueue(to, FRAMES, &self.stream) }?)
    }

    fn first_tensor(&mut self) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; TENSOR_BYTES];
        self.enqueue()?;
        // SAFETY: the tensor is longer than one frame's; `bytes` outlives the synchronisation.
        unsafe { self.stream.copy_to_host(self.tensor.address(), &mut bytes) }?;
        self.stream.synchronize()?;
        Ok(bytes)
    }
}

/// Runs CV-CUDA on the same frames, in a separate process.
fn compare(peers: &Peers, folder: &std::path::Path, ours: &[(&str, f64)], report: &mut Report) -> Result<(), Failure> {
    let wanted = format!(">= {TIMES} times as fast as CV-CUDA");
    let Some(scripts) = &peers.peers else {
        report.skipped(ROW, "against CV-CUDA", wanted, "no scripts were named (--peers)");
        return Ok(());
    };
    let output = Command::new(&peers.python).arg(scripts.join("copy_peer.py")).output();
    let summary = |output: &std::process::Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
        (text, last)
    };
    if let Ok(output) = output
        && let Ok(line) = serde_json::from_str::<Value>(summary(&output).0.trim())
        && let Some(gb_per_s) = line["gb_per_s"].as_f64()
    {
        report.note(ROW, "copy bandwidth by PyTorch", format!("{gb_per_s:.0} GB/s"));
    }
    let output = match Command::new(&peers.python).arg(scripts.join("cvcuda_peer.py")).arg(folder).output() {
        Ok(output) => output,
        Err(error) => {
            report.skipped(ROW, "against CV-CUDA", wanted, format!("{}: {error}", peers.python.display()));
            return Ok(());
        }
    };
    let (lines, last) = summary(&output);
    let mut seen = 0;
    for line in lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if let Some(why) = line["skipped"].as_str() {
            report.skipped(ROW, "against CV-CUDA", &wanted, why);
            return Ok(());
        }
        if let (Some(format), Some(why)) = (line["format"].as_str(), line["failed"].as_str()) {
            report.figure(ROW, &format!("{format} against CV-CUDA"), &wanted, format!("it failed: {why}"), false);
            seen += 1;
        }
        let (Some(format), Some(theirs)) = (line["format"].as_str(), line["ms"].as_f64()) else { continue };
        let Some((name, microseconds)) = ours.iter().find(|(name, _)| *name == format) else { continue };
        let times = theirs * 1e3 / microseconds;
        let difference = line["difference"].as_f64().unwrap_or(f64::NAN);
        report.figure(
            ROW,
            &format!("{name} against CV-CUDA {}", line["cvcuda"].as_str().unwrap_or_default()),
            &wanted,
            format!("{times:.1} times: {theirs:.3} ms; mean difference {difference:.2} of 255"),
            times >= TIMES,
        );
        seen += 1;
    }
    if seen < ours.len() {
        report.figure(ROW, "against CV-CUDA", &wanted, format!("it failed: {last}"), false);
    }
    Ok(())
}
