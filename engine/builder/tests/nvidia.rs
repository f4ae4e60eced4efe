//! NVIDIA's own libraries, on the CPU: TensorRT for RTX builds engines there, and refuses to load them for want of a GPU.
//!
//! `VISIOND_TEST_TENSORRT` names the folder that `tests/setup --test` fills; without it, the test passes where nothing is there.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};

use visiond_engine::builder_api::tensorrt::runtime::Runtime;
use visiond_engine::builder_api::tensorrt::{ErrorRecorder, Owned, call};
use visiond_engine::tensorrt::plan::PlanHeader;
use visiond_engine::tensorrt::{Library, Reported};
use visiond_engine_builder::{BuildOptions, Monitor, build, parse_profile};

/// A library in the folder of those for tests.
fn library(folder: &str, name: &str) -> Option<&'static Library> {
    let named = std::env::var_os("VISIOND_TEST_TENSORRT").map(PathBuf::from);
    let cache = || Some(Path::new(&std::env::var_os("HOME")?).join(".cache/visiond/tensorrt"));
    let path = named.clone().or_else(cache)?.join(folder).join(name);
    if named.is_none() && !path.exists() {
        // Written, not printed, so that the test runner passes it on and `tests/steps.py` counts it.
        let (thread, path) = (std::thread::current(), path.display());
        let test = thread.name().unwrap_or("a test");
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {path} is not there: run tests/setup --test");
        return None;
    }
    Some(Library::get(Some(&path)).unwrap())
}

fn rtx() -> impl Iterator<Item = &'static Library> {
    ["rtx-1.6.1", "rtx-1.7.1"].into_iter().filter_map(|folder| library(folder, "libtensorrt_rtx.so.1"))
}

/// Whether a GPU is here, where things succeed that fail without.
fn has_gpu() -> bool {
    visiond_kernels::cuda::Device::open(0).is_ok()
}

/// Returns what deserializing `plan` reports.
fn reported(library: &'static Library, plan: &[u8]) -> Vec<Reported> {
    let recorder = ErrorRecorder::new(library.abi().layout);
    let runtime: Owned<Runtime> = library.create_runtime().unwrap();
    // SAFETY: the runtime lives, the recorder goes after it, and the plan outlives the call.
    let engine = unsafe {
        call!(runtime.get(), Runtime::SET_ERROR_RECORDER(recorder.as_ptr())).unwrap();
        call!(runtime.get(), Runtime::DESERIALIZE(plan.as_ptr().cast(), plan.len())).unwrap()
    };
    assert!(engine.is_null(), "an engine without a GPU");
    recorder.take()
}

#[test]
fn an_engine_is_built_without_a_gpu_and_refused_for_want_of_one() {
    let onnx = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gpu/dynamic.onnx");
    for library in rtx() {
        let profiles = ["images=1x3x32x32,2x3x64x64,4x3x96x96", "images=8x3x32x32"];
        let options = BuildOptions {
            library: Some(library.path().to_owned()),
            profiles: profiles.iter().map(|text| parse_profile(text).unwrap()).collect(),
            ..BuildOptions::default()
        };
        let plan = build(&onnx, options, &Monitor::new()).unwrap().plan;
        let header = PlanHeader::parse(&plan).unwrap();
        assert_eq!(header.version(), library.version());
        assert!(matches!(header, PlanHeader::Rtx { size_bytes, .. } if size_bytes == plan.len() as u64));
        if has_gpu() {
            continue;
        }
        // Built for no GPU in particular, which leaves Turing out.
        assert_eq!(
            (header.is_for((7, 5)), header.is_for((8, 9)), header.is_for((9, 0))),
            (Some(false), Some(true), None)
        );
        let said = reported(library, &plan)[0].plain();
        assert_eq!(
            said,
            "IRuntime::deserializeCudaEngine: Error Code 1: Cuda Runtime (cudaError 35: CUDA driver version is insufficient for \
             CUDA runtime version)"
        );
    }
}
