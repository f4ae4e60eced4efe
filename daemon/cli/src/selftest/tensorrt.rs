//! TensorRT's library: whether its objects behave as visiond's tables of their methods assume, with known models.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use visiond_engine::engine::{Backend, Engine, EngineOptions, Session};
use visiond_engine::tensorrt::{Library, Scratch, TrtEngine};
use visiond_engine_builder::{self as build, BuildOptions, Monitor};
use visiond_kernels::cuda::{CudaStream, Device, DeviceBuffer};

use super::checks::{AreaTest, Failed, Seen};

/// Convolution, activation, pooling, matrix product; made by `models.py`.
const KNOWN: &[u8] = include_bytes!("known.onnx");
/// The plugin that detectors exported for TensorRT end with.
const NMS: &[u8] = include_bytes!("nms.onnx");

/// The plugin's name, and the check's.
const PLUGIN: &str = "EfficientNMS_TRT";

/// How far an output may be from the CPU's, as a share of its range: TensorRT may add in any order.
const ALLOWED: f32 = 0.01;

/// Builds, runs and inspects both models.
pub fn run(test: &mut AreaTest) -> Result<(), Failed> {
    // CUDA comes first: without it TensorRT 10 and 11 return garbage.
    let device = Device::open(0).map_err(|error| Failed::from(format!("it needs a GPU: {error}")));
    let opened = device.and_then(|device| Ok((device, Library::get(None)?)));
    let library = match &opened {
        Ok((_, library)) => library,
        Err(why) => {
            test.skip("TensorRT", why);
            return Ok(());
        }
    };
    test.info("library", format!("{}, {}", library.description(), library.plugins()));
    let folder = std::env::temp_dir().join(format!("visiond-selftest-trt-{}", std::process::id()));
    fs::create_dir(&folder)?;
    known(&folder, test);
    if library.is_rtx() {
        test.skip(PLUGIN, "TensorRT for RTX has no plugin library");
    } else {
        plugin(&folder, test);
    }
    Ok(fs::remove_dir_all(&folder)?)
}

/// Builds `onnx`, and loads the engine as visiond does.
fn built(folder: &Path, name: &str, onnx: &[u8]) -> Result<Engine, Failed> {
    let (source, plan) = (folder.join(name).with_extension("onnx"), folder.join(name).with_extension("engine"));
    fs::write(&source, onnx)?;
    fs::write(&plan, build::build(&source, BuildOptions::default(), &Monitor::new())?.plan)?;
    Ok(Engine::load(&plan, &EngineOptions::default())?)
}

fn known(folder: &Path, test: &mut AreaTest) {
    const BUILT: &str = "an engine of a known model";
    test.say("building a model");
    let began = std::time::Instant::now();
    let engine = match built(folder, "known", KNOWN) {
        Ok(engine) => engine,
        Err(error) => return test.fail("builder", BUILT, error),
    };
    let seconds = began.elapsed().as_secs_f64();
    test.verdict("builder", BUILT, format!("built in {seconds:.1} s"), true);
    test.figures([("seconds", seconds)]);
    let onnx = folder.join("known.onnx");
    test.result("engine's tensors", "the model's own names, types and shapes", declared(&onnx, &engine));
    test.say("running the model on GPU and CPU");
    let wanted = format!("within {:.0} % of the CPU's range", ALLOWED * 100.0);
    test.result("outputs", wanted, against_cpu(&onnx, &engine));
    match engine.tensorrt().map(inspect) {
        Some(Ok((layers, timed))) => {
            test.verdict("inspector", "JSON with layers", format!("JSON with {layers} layers"), layers > 0);
            test.verdict("profiler", "a time for every layer", format!("{timed} layers with a time"), timed > 0);
        }
        Some(Err(error)) => test.fail("inspector and profiler", "layers and their times", error),
        None => {}
    }
}

/// Compares the engine's description of its tensors with that of the file.
fn declared(onnx: &Path, engine: &Engine) -> Result<Seen, Failed> {
    let options = EngineOptions { backend: Some(Backend::Rten), ..EngineOptions::default() };
    let cpu = Engine::load(onnx, &options)?;
    let tensors = |engine: &Engine| {
        let mut all: Vec<_> = engine.inputs().iter().chain(engine.outputs()).map(ToString::to_string).collect();
        all.sort();
        all.join(", ")
    };
    let seen = tensors(engine);
    let same = seen == tensors(&cpu);
    Ok((seen, same, Vec::new()))
}

/// Finds the largest difference of an output from the CPU's, in per cent of its range.
fn against_cpu(onnx: &Path, engine: &Engine) -> Result<Seen, Failed> {
    let cpu = Engine::load(onnx, &EngineOptions::default())?;
    let (mut here, mut there) = (engine.session()?, cpu.session()?);
    for session in [&mut here, &mut there] {
        fill(session);
        session.run()?;
    }
    let mut worst = 0.0_f32;
    for (index, info) in cpu.outputs().iter().enumerate() {
        let (a, b) = (here.output(output(engine, &info.name)?)?.to_f32(), there.output(index)?.to_f32());
        let scale = b.iter().fold(1e-6_f32, |most, value| most.max(value.abs()));
        let differences = a.iter().zip(b.iter()).map(|(a, b)| (a - b).abs() / scale);
        // NaN does not agree with anything.
        let most = differences.fold(0.0, |most: f32, one| if one.is_nan() { f32::INFINITY } else { most.max(one) });
        worst = worst.max(if a.len() == b.len() { most } else { f32::INFINITY });
    }
    let percent = f64::from(worst) * 100.0;
    let seen = format!("{percent:.4} % off {}'s", cpu.backend());
    Ok((seen, worst <= ALLOWED, vec![("worst_percent", percent)]))
}

/// Returns the index of the output with this name.
fn output(engine: &Engine, name: &str) -> Result<usize, Failed> {
    let index = engine.outputs().iter().position(|output| output.name == name);
    Ok(index.ok_or_else(|| format!("the engine has no output {name}"))?)
}

/// A picture of slopes, 0 to 1.
fn fill(session: &mut Session) {
    for (index, bytes) in session.input_mut(0).bytes().chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&((index * 37 % 256) as f32 / 255.0).to_ne_bytes());
    }
}

/// Returns how many layers the inspector reports, and for how many the profiler has a time.
fn inspect(engine: &Arc<TrtEngine>) -> Result<(usize, usize), Failed> {
    let information: serde_json::Value = serde_json::from_str(&engine.information(None)?)?;
    let layers = information.get("Layers").and_then(|layers| layers.as_array()).map_or(0, Vec::len);
    let stream = CudaStream::new(engine.device())?;
    let mut context = engine.context(Scratch::Own)?;
    context.infer_shapes()?;
    // Declared after the context, and so dropped before it: the stream is idle by then.
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

/// Runs EfficientNMS_TRT: of two overlapping boxes of one class it keeps the better one, it keeps a box of another class, and
/// removes boxes with a low score.
fn plugin(folder: &Path, test: &mut AreaTest) {
    const BOXES: [f32; 16] = [0.0, 0.0, 10.0, 10.0, 1.0, 0.0, 11.0, 10.0, 0.0, 0.0, 10.0, 10.0, 50.0, 50.0, 60.0, 60.0];
    const SCORES: [f32; 8] = [0.9, 0.0, 0.8, 0.0, 0.0, 0.7, 0.1, 0.1];
    test.say("building a model with a plugin");
    let run = || -> Result<Seen, Failed> {
        let engine = built(folder, "nms", NMS)?;
        let mut session = engine.session()?;
        for index in 0..engine.inputs().len() {
            let values: &[f32] = if engine.inputs()[index].name == "boxes" { &BOXES } else { &SCORES };
            for (bytes, value) in session.input_mut(index).bytes().chunks_exact_mut(4).zip(values) {
                bytes.copy_from_slice(&value.to_ne_bytes());
            }
        }
        session.run()?;
        let count = session.output(output(&engine, "count")?)?.to_f32().first().copied().unwrap_or(-1.0) as i64;
        let mut scores = session.output(output(&engine, "kept_scores")?)?.to_f32().into_owned();
        scores.truncate(usize::try_from(count).unwrap_or(0));
        let right = scores.len() == 2 && (scores[0] - 0.9).abs() < 1e-3 && (scores[1] - 0.7).abs() < 1e-3;
        Ok((format!("{count} stay, with scores {scores:?}"), right, Vec::new()))
    };
    test.result(PLUGIN, "2 of 4 boxes stay, with scores 0.9 and 0.7", run());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_known_model_runs_on_the_cpu_and_agrees_with_itself() {
        let folder = tempfile::tempdir().unwrap();
        let onnx = folder.path().join("known.onnx");
        fs::write(&onnx, KNOWN).unwrap();
        let options = EngineOptions { backend: Some(Backend::Rten), ..EngineOptions::default() };
        let engine = Engine::load(&onnx, &options).unwrap();
        assert_eq!(
            declared(&onnx, &engine).unwrap(),
            ("features f32 [1, 4, 8, 8], picture f32 [1, 3, 16, 16], shares f32 [1, 5]".to_owned(), true, Vec::new())
        );
        let (seen, passed, _) = against_cpu(&onnx, &engine).unwrap();
        assert!(passed, "{seen}");
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
