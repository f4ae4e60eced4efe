//! TensorRT's library: whether its objects answer as visiond's tables of their methods say, on networks that are known.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use visiond_engine::engine::{Backend, Engine, EngineOptions, Session};
use visiond_engine::tensorrt::{Library, Scratch, TrtEngine};
use visiond_engine_builder::{self as build, BuildOptions, Monitor};
use visiond_kernels::cuda::{CudaStream, Device, DeviceBuffer};

use super::checks::Section;
use super::progress::TestProgress;

/// A check that cannot go on, in words.
type Failed = Box<dyn std::error::Error>;

/// Convolution, activation, pooling, matrix product; `networks.py` makes it.
const KNOWN: &[u8] = include_bytes!("known.onnx");
/// The plugin that detectors exported for TensorRT end with.
const NMS: &[u8] = include_bytes!("nms.onnx");

/// The plugin's name, and the check's.
const PLUGIN: &str = "EfficientNMS_TRT";

/// How far an output may be from the CPU's, of its range. TensorRT orders sums as it likes.
const ALLOWED: f32 = 0.01;

/// Builds, runs and looks into both networks.
pub fn run(section: &mut Section, tell: &mut TestProgress) -> Result<(), Failed> {
    // CUDA comes first: without it TensorRT 10 and 11 give back rubbish.
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            section.skip("TensorRT", format!("it needs a GPU: {error}"));
            return Ok(());
        }
    };
    let library = match Library::get(None) {
        Ok(library) => library,
        Err(error) => {
            section.skip("TensorRT", error);
            return Ok(());
        }
    };
    section.info("library", format!("{}, {}", library.description(), library.plugins()));
    let folder = std::env::temp_dir().join(format!("visiond-selftest-trt-{}", std::process::id()));
    fs::create_dir(&folder)?;
    known(&folder, section, tell);
    if library.is_rtx() {
        section.skip(PLUGIN, "TensorRT for RTX comes without the library of plugins");
    } else {
        plugin(&folder, section, tell);
    }
    drop(device);
    Ok(fs::remove_dir_all(&folder)?)
}

/// Builds `onnx`; the engine as visiond loads it.
fn built(folder: &Path, name: &str, onnx: &[u8]) -> Result<Engine, Failed> {
    let (source, plan) = (folder.join(name).with_extension("onnx"), folder.join(name).with_extension("engine"));
    fs::write(&source, onnx)?;
    fs::write(&plan, build::build(&source, BuildOptions::default(), &Monitor::new())?.plan)?;
    Ok(Engine::load(&plan, &EngineOptions::default())?)
}

fn known(folder: &Path, section: &mut Section, tell: &mut TestProgress) {
    tell.say("building a network");
    let began = std::time::Instant::now();
    let engine = match built(folder, "known", KNOWN) {
        Ok(engine) => engine,
        Err(error) => {
            section.fail("builder", "an engine of a known network", error);
            return;
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    section
        .verdict("builder", "an engine of a known network", format!("built in {seconds:.1} s"), true)
        .figure("seconds", seconds);
    let wanted = "the network's own names, types and shapes";
    match declared(&folder.join("known.onnx"), &engine) {
        Ok((seen, same)) => section.verdict("engine's tensors", wanted, seen, same),
        Err(error) => section.fail("engine's tensors", wanted, error),
    };
    tell.say("running the network on GPU and CPU");
    let wanted = format!("within {:.0} % of the CPU's range", ALLOWED * 100.0);
    match against_cpu(&folder.join("known.onnx"), &engine) {
        Ok((worst, backend)) => section
            .verdict("outputs", &wanted, format!("{:.4} % off {backend}'s", worst * 100.0), worst <= ALLOWED)
            .figure("worst_percent", f64::from(worst) * 100.0),
        Err(error) => section.fail("outputs", &wanted, error),
    };
    let Some(engine) = engine.tensorrt() else { return };
    match inspect(engine) {
        Ok((layers, timed)) => {
            section.verdict("inspector", "JSON with layers", format!("JSON with {layers} layers"), layers > 0);
            section.verdict("profiler", "a time for every layer", format!("{timed} layers with a time"), timed > 0);
        }
        Err(error) => {
            section.fail("inspector and profiler", "layers and their times", error);
        }
    }
}

/// What the engine says of its tensors against what the file says of them.
fn declared(onnx: &Path, engine: &Engine) -> Result<(String, bool), Failed> {
    let options = EngineOptions { backend: Some(Backend::Rten), ..EngineOptions::default() };
    let cpu = Engine::load(onnx, &options)?;
    let told = |engine: &Engine| {
        let mut all: Vec<_> = engine.inputs().iter().chain(engine.outputs()).map(ToString::to_string).collect();
        all.sort();
        all.join(", ")
    };
    let (seen, wanted) = (told(engine), told(&cpu));
    let same = seen == wanted;
    Ok((seen, same))
}

/// The worst difference of an output from the CPU's, of its range, and what ran on the CPU.
fn against_cpu(onnx: &Path, engine: &Engine) -> Result<(f32, Backend), Failed> {
    let cpu = Engine::load(onnx, &EngineOptions::default())?;
    let (mut here, mut there) = (engine.session()?, cpu.session()?);
    for session in [&mut here, &mut there] {
        fill(session);
        session.run()?;
    }
    let mut worst = 0.0_f32;
    for (index, info) in cpu.outputs().iter().enumerate() {
        let other = engine.outputs().iter().position(|output| output.name == info.name);
        let other = other.ok_or_else(|| format!("the engine has no output {}", info.name))?;
        let (a, b) = (here.output(other)?.to_f32(), there.output(index)?.to_f32());
        let scale = b.iter().fold(1e-6_f32, |most, value| most.max(value.abs()));
        let differences = a.iter().zip(b.iter()).map(|(a, b)| (a - b).abs() / scale);
        // Not a number is no agreement either.
        let most = differences.fold(0.0, |most: f32, one| if one.is_nan() { f32::INFINITY } else { most.max(one) });
        worst = worst.max(if a.len() == b.len() { most } else { f32::INFINITY });
    }
    Ok((worst, cpu.backend()))
}

/// A picture of slopes, 0 to 1.
fn fill(session: &mut Session) {
    for (index, bytes) in session.input_mut(0).bytes().chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&((index * 37 % 256) as f32 / 255.0).to_ne_bytes());
    }
}

/// Layers that the inspector tells of, and those that the profiler has a time of.
fn inspect(engine: &Arc<TrtEngine>) -> Result<(usize, usize), Failed> {
    let information: serde_json::Value = serde_json::from_str(&engine.information(None)?)?;
    let layers = information.get("Layers").and_then(|layers| layers.as_array()).map_or(0, Vec::len);
    let stream = CudaStream::new(engine.device())?;
    let mut context = engine.context(Scratch::Own)?;
    context.infer_shapes()?;
    // Declared behind the context, and so dropped before it: the stream is idle by then.
    let mut buffers = Vec::new();
    for tensor in engine.tensors() {
        let elements: usize = context.shape(&tensor.name)?.iter().product();
        let mut buffer = DeviceBuffer::new(engine.device(), elements * tensor.dtype.size_bytes())?;
        buffer.zero(&stream)?;
        context.set_address(&tensor.name, buffer.address())?;
        buffers.push(buffer);
    }
    // SAFETY: every tensor has memory of its size, which lives until the run was waited for; `profile` waits.
    let times = unsafe { context.profile(&stream) }?;
    stream.synchronize()?;
    Ok((layers, times.len()))
}

/// EfficientNMS_TRT: of two boxes of a class that overlap the better one stays, of another class the box stays too, and what
/// scores too little goes.
fn plugin(folder: &Path, section: &mut Section, tell: &mut TestProgress) {
    const BOXES: [f32; 16] = [0.0, 0.0, 10.0, 10.0, 1.0, 0.0, 11.0, 10.0, 0.0, 0.0, 10.0, 10.0, 50.0, 50.0, 60.0, 60.0];
    const SCORES: [f32; 8] = [0.9, 0.0, 0.8, 0.0, 0.0, 0.7, 0.1, 0.1];
    const WANTED: &str = "2 of 4 boxes stay, with scores 0.9 and 0.7";
    tell.say("building a network with a plugin");
    let run = || -> Result<(i64, Vec<f32>), Failed> {
        let engine = built(folder, "nms", NMS)?;
        let mut session = engine.session()?;
        for index in 0..engine.inputs().len() {
            let values: &[f32] = if engine.inputs()[index].name == "boxes" { &BOXES } else { &SCORES };
            for (bytes, value) in session.input_mut(index).bytes().chunks_exact_mut(4).zip(values) {
                bytes.copy_from_slice(&value.to_ne_bytes());
            }
        }
        session.run()?;
        let of = |name: &str| {
            let index = engine.outputs().iter().position(|output| output.name == name);
            index.ok_or_else(|| format!("the engine has no output {name}"))
        };
        let count = session.output(of("count")?)?.to_f32().first().copied().unwrap_or(-1.0);
        let scores = session.output(of("kept_scores")?)?.to_f32().into_owned();
        Ok((count as i64, scores))
    };
    match run() {
        Ok((count, scores)) => {
            let kept: Vec<_> = scores.iter().take(usize::try_from(count).unwrap_or(0)).copied().collect();
            let right = kept.len() == 2 && (kept[0] - 0.9).abs() < 1e-3 && (kept[1] - 0.7).abs() < 1e-3;
            section.verdict(PLUGIN, WANTED, format!("{count} stay, with scores {kept:?}"), right);
        }
        Err(error) => {
            section.fail(PLUGIN, WANTED, error);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_known_network_runs_on_the_cpu_and_agrees_with_itself() {
        let folder = tempfile::tempdir().unwrap();
        let onnx = folder.path().join("known.onnx");
        fs::write(&onnx, KNOWN).unwrap();
        let options = EngineOptions { backend: Some(Backend::Rten), ..EngineOptions::default() };
        let engine = Engine::load(&onnx, &options).unwrap();
        assert_eq!(
            declared(&onnx, &engine).unwrap(),
            ("features f32 [1, 4, 8, 8], picture f32 [1, 3, 16, 16], shares f32 [1, 5]".to_owned(), true)
        );
        let (worst, _) = against_cpu(&onnx, &engine).unwrap();
        assert!(worst <= ALLOWED, "{worst}");
        let mut session = engine.session().unwrap();
        fill(&mut session);
        session.run().unwrap();
        let shares = session.output(1).unwrap().to_f32().into_owned();
        assert!(
            (shares.iter().sum::<f32>() - 1.0).abs() < 1e-4 && shares.iter().all(|share| *share > 0.01),
            "{shares:?}"
        );
    }
}
