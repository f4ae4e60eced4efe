//! Row "ABI": calls TensorRT's objects through our method tables, on a machine where they can work.
//!
//! The engine is described, compared with the CPU, run in contexts that share scratch memory, profiled and inspected. Other
//! libraries (lean and dispatch runtimes of TensorRT 10 and 11) get files that are not engines: they must return clear errors
//! and not crash.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use visiond_engine::engine::{Engine, EngineOptions, Session};
use visiond_engine::tensorrt::{Direction, Library, Scratch, TrtContext, TrtEngine};
use visiond_engine_builder::{self as build, BuildOptions, Monitor};
use visiond_kernels::cuda::{CudaStream, Device, DeviceBuffer};

use crate::measure::Noise;
use crate::network;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "ABI";

/// Other libraries.
#[derive(Args, Clone)]
pub struct Libraries {
    /// Folder of lean or dispatch runtimes, such as libnvinfer_dispatch.so.10.
    #[arg(long, value_name = "DIR")]
    abi_libraries: Option<PathBuf>,
}

/// Runs the row.
pub fn run(setup: &Setup, libraries: &Libraries, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    match &setup.arguments.engine {
        Some(path) => engine(setup, path, report)?,
        None => report.skipped(ROW, "engine", "as the CPU", "there is no such engine"),
    }
    dynamic(report)?;
    let Some(folder) = &libraries.abi_libraries else {
        report.skipped(ROW, "other libraries", "clear errors", "no folder of them was given (--abi-libraries)");
        return Ok(());
    };
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        library(&path, &device, report);
    }
    Ok(())
}

/// Creates a library's runtime and loads files that are not engines.
fn library(path: &Path, device: &Arc<Device>, report: &mut Report) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let library = match Library::get(Some(path)) {
        Ok(library) => library,
        Err(error) => return report.figure(ROW, &name, "opens", error, false),
    };
    report.figure(ROW, &name, "opens", library.version(), true);
    let mut garbage = vec![0; 4096];
    Noise::new(1).fill(&mut garbage);
    let version = library.version();
    let mut cut = vec![0; 2000];
    cut[..4].copy_from_slice(b"ftrt");
    cut[24..27].copy_from_slice(&[version.major as u8, version.minor as u8, version.patch as u8]);
    for (what, plan) in [("garbage", garbage), ("zeros", vec![0; 4096]), ("a cut engine", cut), ("nothing", Vec::new())]
    {
        let (seen, pass) = match TrtEngine::load(library, device, &plan) {
            Ok(engine) => (format!("{engine:?}"), false),
            Err(error) => (error.to_string(), !error.to_string().contains("gives no reason")),
        };
        report.figure(ROW, &format!("{name}, {what}"), "a clear error", seen, pass);
    }
}

/// Compares the engine on the GPU with the ONNX model on the CPU, on noise.
fn engine(setup: &Setup, path: &Path, report: &mut Report) -> Result<(), Failure> {
    let loaded = Engine::load(path, &network::options(setup))?;
    report.note(ROW, "library", loaded.backend_description());
    let Some(engine) = loaded.tensorrt().cloned() else {
        report.figure(ROW, "engine", "TensorRT runs it", loaded.backend(), false);
        return Ok(());
    };
    let tensors: Vec<String> = loaded.inputs().iter().chain(loaded.outputs()).map(ToString::to_string).collect();
    let profiles = engine.profiles();
    report.note(
        ROW,
        "engine",
        format!(
            "{}; {profiles} profile, {} layers, {} KiB of scratch",
            tensors.join(", "),
            engine.layers(),
            engine.scratch_bytes() >> 10
        ),
    );
    let cpu = Engine::load(&setup.arguments.model, &EngineOptions::default())?;
    let (mut here, mut there) = (loaded.session()?, cpu.session()?);
    let mut worst: f32 = 0.0;
    for seed in 1..4 {
        for session in [&mut here, &mut there] {
            fill(session, seed);
            session.run()?;
        }
        for index in 0..loaded.outputs().len() {
            let (a, b) = (here.output(index)?.to_f32(), there.output(index)?.to_f32());
            let scale = b.iter().fold(1e-6_f32, |most, value| most.max(value.abs()));
            let differences = a.iter().zip(b.iter()).map(|(a, b)| (a - b).abs() / scale);
            worst = differences.fold(if a.len() == b.len() { worst } else { f32::INFINITY }, f32::max);
        }
    }
    let backend = cpu.backend();
    report.figure(
        ROW,
        "outputs against the CPU",
        "1 % of their range",
        format!("{worst:.2e} ({backend})"),
        worst < 0.01,
    );
    contexts(&engine, report)?;
    Ok(())
}

/// Builds a model with open sizes, one byte input and outputs of five types, with two profiles, and compares it with the CPU.
fn dynamic(report: &mut Report) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let (onnx, path) = (folder.path().join("dynamic.onnx"), folder.path().join("dynamic.engine"));
    fs::write(&onnx, include_bytes!("dynamic.onnx"))?;
    let profile = |text| build::parse_profile(text).map_err(|error| Failure::Broken(error.to_string()));
    let profiles = vec![profile("images=1x3x32x32,2x3x64x64,4x3x96x96")?, profile("images=8x3x32x32")?];
    let options = BuildOptions { profiles, ..BuildOptions::default() };
    fs::write(&path, build::build(&onnx, options, &Monitor::new())?.plan)?;
    let (here, there) = (EngineOptions::default(), EngineOptions::default());
    let (engine, cpu) = (Engine::load(&path, &here)?, Engine::load(&onnx, &there)?);
    let tensors: Vec<String> = engine.inputs().iter().chain(engine.outputs()).map(ToString::to_string).collect();
    report.note(ROW, "open sizes", tensors.join(", "));
    for shape in [[1, 3, 64, 64], [4, 3, 64, 64], [3, 3, 64, 64], [2, 3, 96, 32], [8, 3, 32, 32]] {
        let shapes = BTreeMap::from([("images".to_owned(), shape.to_vec())]);
        let (mut a, mut b) = (engine.session_with_shapes(&shapes)?, cpu.session_with_shapes(&shapes)?);
        for session in [&mut a, &mut b] {
            Noise::new(7).fill(session.input_mut(0).bytes());
            session.run()?;
        }
        let (mut off, mut elements, mut same_shapes) = (0, 0, true);
        for index in 0..engine.outputs().len() {
            let (a, b) = (a.output(index)?, b.output(index)?);
            same_shapes &= a.shape() == b.shape();
            elements += b.len();
            off += a.to_f32().iter().zip(b.to_f32().iter()).filter(|(a, b)| (*a - *b).abs() > 2e-3).count();
        }
        let seen = format!("{off} of {elements} differ{}", if same_shapes { "" } else { ", other shapes" });
        // If two channels are almost equal, either may be the best.
        let pass = same_shapes && off * 1000 <= elements;
        report.figure(ROW, &format!("u8 in, 5 types out, {shape:?}"), "as the CPU", seen, pass);
    }
    let shapes = BTreeMap::from([("images".to_owned(), vec![5, 3, 64, 64])]);
    let said = engine.session_with_shapes(&shapes).and_then(|mut session| session.run()).err();
    let said = said.map_or_else(|| "it ran".to_owned(), |error| error.to_string());
    report.figure(
        ROW,
        "a shape beyond the profiles",
        "a sentence with the limits",
        &said,
        said.contains("[4, 3, 96, 96]"),
    );
    Ok(())
}

/// Fills every f32 input with noise between 0 and 1.
fn fill(session: &mut Session, seed: u64) {
    let mut noise = Noise::new(seed);
    for index in 0..session.inputs().len() {
        for bytes in session.input_mut(index).bytes().chunks_exact_mut(4) {
            bytes.copy_from_slice(&((noise.number() % 256) as f32 / 255.0).to_ne_bytes());
        }
    }
}

/// Runs two contexts in one scratch memory, a profile of the layers, and the inspector.
fn contexts(engine: &Arc<TrtEngine>, report: &mut Report) -> Result<(), Failure> {
    let stream = CudaStream::new(engine.device())?;
    let shared = engine.shared_scratch()?;
    let mut outputs = Vec::new();
    let mut layers = Vec::new();
    for scratch in [Scratch::Own, shared.clone(), shared] {
        let mut context = engine.context(scratch)?;
        // Declared after the context and so dropped before it; the stream is idle by then.
        let buffers = place(engine, &mut context, &stream)?;
        // SAFETY: every tensor has memory of its size, and the run is waited for before anything else happens.
        unsafe { context.enqueue(&stream) }?;
        stream.synchronize()?;
        // SAFETY: as above.
        layers = unsafe { context.profile(&stream) }?;
        let mut bytes = Vec::new();
        for buffer in &buffers {
            let mut read = vec![0; buffer.len()];
            // SAFETY: the buffer is that long, and the copy is waited for.
            unsafe { stream.copy_to_host(buffer.address(), &mut read) }?;
            stream.synchronize()?;
            bytes.extend(read);
        }
        outputs.push(bytes);
    }
    let same = outputs.windows(2).all(|pair| pair[0] == pair[1]);
    let seen = if same { "the same bytes" } else { "other bytes" };
    report.figure(ROW, "contexts that share scratch memory", "the same bytes", seen, same);
    let total: f64 = layers.iter().map(|layer| layer.us).sum();
    let seen = format!("{} layers, {total:.0} µs", layers.len());
    report.figure(ROW, "profiler", "every layer's time", seen, !layers.is_empty() && total > 0.0);
    let information = engine.information(None)?;
    let read: Result<serde_json::Value, _> = serde_json::from_str(&information);
    let layers = read.as_ref().ok().and_then(|value| value.get("Layers")?.as_array().map(Vec::len));
    let seen = layers.map_or_else(|| format!("{:.80}", information), |count| format!("JSON with {count} layers"));
    report.figure(ROW, "inspector", "JSON with layers", seen, layers.is_some_and(|count| count > 0));
    Ok(())
}

/// Allocates zeroed memory for every tensor; inputs of open size get their profile's optimum.
fn place(engine: &TrtEngine, context: &mut TrtContext, stream: &CudaStream) -> Result<Vec<DeviceBuffer>, Failure> {
    for tensor in engine.tensors().iter().filter(|tensor| tensor.direction == Direction::Input) {
        if let Some(limits) = tensor.limits.first() {
            context.set_input_shape(&tensor.name, &limits.opt)?;
        }
    }
    context.infer_shapes()?;
    let mut buffers = Vec::new();
    for tensor in engine.tensors() {
        let elements: usize = context.shape(&tensor.name)?.iter().product();
        let mut buffer = DeviceBuffer::new(engine.device(), elements * tensor.dtype.size_bytes())?;
        buffer.zero(stream)?;
        context.set_address(&tensor.name, buffer.address())?;
        buffers.push(buffer);
    }
    Ok(buffers)
}
