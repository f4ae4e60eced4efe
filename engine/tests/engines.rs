//! Engine files, or files that look like some, on a machine where none can run: one error sentence each, with the kind of
//! file and the remedy. Real engines come from TensorRT for RTX, which builds without a GPU (`tests/setup --test` fetches
//! it).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use visiond_engine::engine::{Backend, Engine, EngineOptions};
use visiond_engine::tensorrt::plan::{Plan, PlanFile};
use visiond_kernels::cuda::Device;

/// A header of TensorRT for RTX with nothing after it.
fn rtx(version: [u8; 3], gpus: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..4].copy_from_slice(b"vtrt");
    bytes[16..24].copy_from_slice(&4096_u64.to_le_bytes());
    bytes[24..27].copy_from_slice(&version);
    bytes[32..40].copy_from_slice(&gpus.to_le_bytes());
    bytes
}

/// A header of TensorRT with nothing after it.
fn tensorrt(version: [u8; 3]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..4].copy_from_slice(b"ftrt");
    bytes[24..27].copy_from_slice(&version);
    bytes
}

fn library(folder: &str) -> Option<PathBuf> {
    let named = std::env::var_os("VISIOND_TEST_TENSORRT").map(PathBuf::from);
    let cache = || Some(Path::new(&std::env::var_os("HOME")?).join(".cache/visiond/tensorrt"));
    let path = named.clone().or_else(cache)?.join(folder).join("libtensorrt_rtx.so.1");
    let there = path.exists() || named.is_some();
    if !there {
        skip(&format!("{} is not there: run tests/setup --test", path.display()));
    }
    there.then_some(path)
}

/// Reports that the running test cannot run, so that `tests/steps.py` counts it as skipped: unlike printed text, the test
/// runner passes on bytes written to standard error.
fn skip(reason: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

fn nanodet() -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/models/nanodet-g-416.onnx")).unwrap()
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Returns the error of loading these bytes under this name, with the folder's name left out.
    fn refusal(&self, name: &str, bytes: &[u8], options: &EngineOptions) -> String {
        let path = self.write(name, bytes);
        let error = Engine::load(&path, options).unwrap_err().to_string();
        error.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn here() -> EngineOptions {
    EngineOptions { tensorrt_library: library("rtx-1.6.1"), ..EngineOptions::default() }
}

#[test]
fn what_is_no_engine_is_told_with_the_command_that_makes_one() {
    let files = Files::new();
    let command = "`visiond build net.onnx -o net.engine`";
    assert_eq!(
        files.refusal("net.engine", &[0xa7; 4096], &here()),
        format!("net.engine is not a TensorRT engine (nor an ONNX model): build one with {command}")
    );
    assert_eq!(
        files.refusal("net.engine", b"", &here()),
        format!("net.engine is an empty file, not a TensorRT engine: copy it again, or build it with {command}")
    );
    let onnx = nanodet();
    assert_eq!(
        files.refusal("net.engine", &onnx, &here()),
        format!(
            "net.engine is an ONNX model, not a TensorRT engine: rename it to net.onnx to run it on the CPU, and build an \
             engine from that with {command}"
        )
    );
    assert_eq!(
        files.refusal("net.engine", &rtx([1, 6, 1], 0x7e)[..1000], &here()),
        format!("net.engine is truncated: 1000 of 4096 bytes; copy it again, or build it with {command}")
    );
    assert!(files.refusal("net.onnx", &onnx[..onnx.len() / 2], &here()).contains("is truncated"));
}

#[test]
fn an_engine_of_another_release_is_refused_by_its_header_with_or_without_a_gpu() {
    let Some(newer) = library("rtx-1.7.1") else { return };
    let files = Files::new();
    let options = EngineOptions { tensorrt_library: Some(newer), ..EngineOptions::default() };
    assert_eq!(
        files.refusal("net.engine", &rtx([1, 6, 1], 0x7e), &options),
        "net.engine was built by TensorRT for RTX 1.6.1, this device has TensorRT for RTX 1.7.1: rebuild it here with \
         `visiond build net.onnx -o net.engine`"
    );
    // An engine of TensorRT itself where only TensorRT for RTX is, under a name of ONNX models.
    assert_eq!(
        files.refusal("net.onnx", &tensorrt([10, 3, 0]), &options),
        "net.onnx was built by TensorRT 10.3.0, this device has TensorRT for RTX 1.7.1: rebuild it here with `visiond \
         build MODEL.onnx -o net.engine`"
    );
}

#[test]
fn without_a_gpu_an_engine_says_so() {
    if Device::open(0).is_ok() {
        return skip("this machine has a GPU");
    }
    let files = Files::new();
    let said = files.refusal("net.engine", &rtx([1, 6, 1], 0x7e), &here());
    assert!(
        said.starts_with(
            "net.engine is an engine for a GPU (TensorRT for RTX 1.6.1), and no GPU is usable: no NVIDIA driver: "
        ),
        "{said}"
    );
    assert!(said.ends_with("without a GPU, use the .onnx file instead"), "{said}");
}

#[test]
fn an_engine_whose_bytes_are_not_the_trusted_ones_is_not_loaded() {
    let files = Files::new();
    let pinned = "0".repeat(64);
    let options = EngineOptions { sha256: Some(pinned.clone()), ..here() };
    let onnx = nanodet();
    for (name, bytes) in [("net.engine", rtx([1, 6, 1], 0x7e)), ("net.onnx", onnx)] {
        let said = files.refusal(name, &bytes, &options);
        assert!(said.contains(&format!(", but the configuration requires {pinned}")), "{said}");
    }
    let path = files.write("right.onnx", &nanodet());
    let engine = Engine::load(&path, &EngineOptions { backend: Some(Backend::Rten), ..here() }).unwrap();
    let pinned = engine.file().sha256.to_uppercase();
    Engine::load(&path, &EngineOptions { backend: Some(Backend::Rten), sha256: Some(pinned), ..here() }).unwrap();
}

#[test]
fn an_onnx_model_is_not_run_by_tensorrt() {
    let files = Files::new();
    let options = EngineOptions { backend: Some(Backend::TensorRt), ..here() };
    let said = files.refusal("net.onnx", &nanodet(), &options);
    assert!(said.contains("`visiond build ") && said.contains("net.onnx -o "), "{said}");
}

#[test]
fn ultralytics_wrapping_is_looked_through() {
    let json = r#"{"description": "Ultralytics YOLO11n model", "author": "Ultralytics", "task": "detect", "batch": 1,
        "imgsz": [640, 640], "names": {"0": "person", "1": "bicycle"}, "stride": 32, "args": {"nms": false}}"#;
    let engine = rtx([1, 6, 1], 0x7e);
    let wrapped = [&(json.len() as u32).to_le_bytes(), json.as_bytes(), &engine].concat();
    let plan = Plan::parse(&wrapped).unwrap();
    assert_eq!(plan.header.to_string(), "TensorRT for RTX 1.6.1");
    assert_eq!(plan.metadata["stride"], "32");
    let files = Files::new();
    let said = files.refusal("net.engine", &wrapped[..wrapped.len() - 1], &here());
    assert!(said.contains("is truncated") && said.contains(&wrapped.len().to_string()), "{said}");
    let path = files.write("net.engine", &wrapped);
    assert_eq!(PlanFile::read(&path).unwrap().unwrap().plan, plan);
}
