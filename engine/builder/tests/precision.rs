//! Models in half precision: that they run, agree with FP32, and keep in FP32 what must stay there.
//!
//! ONNX Runtime checks every type in a model, so it is the reference here; without its library, only the parts that need no
//! run are tested.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};

use common::{backends, dims, encode, external, graph, load, model, node, run, set_f32, value};
use rten_onnx::onnx::DataType;
use visiond_engine::engine::Backend;
use visiond_engine_builder::precision::{Half, PrecisionError, PrecisionOptions, Rewritten, rewrite};
use visiond_kernels::tensor::DType;

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx")
}

fn half(bytes: &[u8], rules: &[&str]) -> Rewritten {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    rewrite(bytes, Path::new("."), &PrecisionOptions { half: Half::F16, rules, half_io: false }).unwrap()
}

/// Pseudo-random numbers from 0 to 1.
fn noise(count: usize) -> Vec<f32> {
    (0..count as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32).collect()
}

fn judge() -> Option<Backend> {
    let found = backends().into_iter().find(|backend| *backend == Backend::OnnxRuntime);
    if found.is_none() {
        use std::io::Write as _;
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let _ = writeln!(std::io::stderr(), "skipped: {test}: ONNX Runtime is not there: set ORT_DYLIB_PATH");
    }
    found
}

/// The first output of a model over noise.
fn outcome(bytes: &[u8], backend: Backend) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.onnx");
    std::fs::write(&path, bytes).unwrap();
    let mut session = load(backend, &path).session().unwrap();
    let count = session.input_shape(0).iter().product();
    set_f32(&mut session, 0, &noise(count));
    run(&mut session).1
}

/// The greatest difference, as part of the greatest number.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = a.iter().fold(0_f32, |most, n| most.max(n.abs()));
    a.iter().zip(b).fold(0_f32, |worst, (a, b)| worst.max((a - b).abs())) / most
}

#[test]
fn the_sample_model_runs_in_half_precision_and_agrees() {
    let bytes = std::fs::read(sample()).unwrap();
    let rewritten = half(&bytes, &[]);
    assert_eq!((rewritten.half_layers, rewritten.full_layers), (80, 20));
    assert_eq!((rewritten.clamped, rewritten.vanished), (0, 0));
    let Some(judge) = judge() else { return };
    assert!(difference(&outcome(&bytes, judge), &outcome(&rewritten.bytes, judge)) < 2e-3);
}

/// A small YOLOv8 with the parts that such rewriting may break: see the script that made it.
fn awkward() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/half.onnx")).unwrap()
}

#[test]
fn a_detector_with_all_that_is_awkward_runs_and_agrees() {
    let bytes = awkward();
    let rewritten = half(&bytes, &[]);
    assert!(rewritten.half_layers >= 10 && rewritten.full_layers >= 10, "{rewritten:?}");
    assert_eq!(rewritten.clamped, 2, "both bounds are beyond FP16");
    assert!(["least", "most"].contains(&rewritten.clamped_in.as_deref().unwrap()));
    let Some(judge) = judge() else { return };
    let full = outcome(&bytes, judge);
    let kept = difference(&full, &outcome(&rewritten.bytes, judge));
    let all = half(&bytes, &["*=half"]);
    assert!(all.vanished > rewritten.vanished, "the tiny weights are below FP16's least number");
    assert!(all.full_layers == 0 && all.half_layers > rewritten.half_layers);
    let lost = difference(&full, &outcome(&all.bytes, judge));
    assert!(kept < 1e-3 && lost < 1e-2, "kept {kept}, lost {lost}");
    assert!(kept < lost, "the tail in FP32 keeps boxes precise: {kept} and {lost}");
    let none = half(&bytes, &["*=fp32"]);
    assert_eq!(none.half_layers, 0);
    assert_eq!(difference(&full, &outcome(&none.bytes, judge)), 0.0);
}

#[test]
fn inputs_and_outputs_stay_fp32_unless_asked_otherwise() {
    let bytes = awkward();
    let options = |half_io| PrecisionOptions { half: Half::F16, rules: Vec::new(), half_io };
    for (half_io, expected) in [(false, DType::F32), (true, DType::F16)] {
        let rewritten = rewrite(&bytes, Path::new("."), &options(half_io)).unwrap();
        let Some(judge) = judge() else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.onnx");
        std::fs::write(&path, &rewritten.bytes).unwrap();
        let engine = load(judge, &path);
        assert_eq!((engine.inputs()[0].dtype, engine.outputs()[0].dtype), (expected, expected));
        engine.session().unwrap();
    }
}

#[test]
fn a_rule_that_matches_nothing_is_refused_with_similar_names() {
    let bytes = awkward();
    let refused = |rule: &str, half| {
        let options = PrecisionOptions { half, rules: vec![rule.parse().unwrap()], half_io: false };
        rewrite(&bytes, Path::new("."), &options).unwrap_err()
    };
    let error = refused("type:Softmx=fp32", Half::F16);
    assert!(error.to_string().contains("similar names: `type:Softmax`"), "{error}");
    let error = refused("/head/clz=fp32", Half::F16);
    assert!(error.to_string().contains("`/head/cls`"), "{error}");
    let error = refused("type:Conv=fp16", Half::Bf16);
    assert!(matches!(error, PrecisionError::OtherHalf { .. }), "{error}");
}

#[test]
fn weights_in_another_file_are_read_and_missing_ones_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut graph = graph(
        vec![node("Conv", &["images", "w1"], &["out"])],
        vec![value("images", DataType::FLOAT, Some(dims(&[1, 3, 8, 8])))],
        vec![value("out", DataType::FLOAT, Some(dims(&[1, 8, 6, 6])))],
    );
    graph.initializer = vec![external("w1", &[8, 3, 3, 3], "net.data")];
    let bytes = encode(&model(graph));
    let numbers: Vec<u8> = noise(216).iter().flat_map(|n| n.to_le_bytes()).collect();
    let options = PrecisionOptions { half: Half::F16, rules: Vec::new(), half_io: false };
    let error = rewrite(&bytes, folder.path(), &options).unwrap_err().to_string();
    assert!(error.contains("net.data") && error.contains("model's directory"), "{error}");
    std::fs::write(folder.path().join("net.data"), &numbers[..100]).unwrap();
    rewrite(&bytes, folder.path(), &options).unwrap_err();
    std::fs::write(folder.path().join("net.data"), &numbers).unwrap();
    let rewritten = rewrite(&bytes, folder.path(), &options).unwrap();
    // They are inside now, half as large.
    assert!(!rewritten.bytes.windows(8).any(|window| window == b"net.data"));
}

#[test]
fn broken_files_are_errors() {
    let bytes = awkward();
    let options = PrecisionOptions { half: Half::F16, rules: Vec::new(), half_io: true };
    for end in (0..bytes.len()).step_by(101) {
        // Whatever the result, there is no panic.
        let _ = rewrite(&bytes[..end], Path::new("."), &options);
    }
}
