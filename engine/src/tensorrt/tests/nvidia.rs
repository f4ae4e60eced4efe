//! NVIDIA's own libraries, on the CPU: TensorRT for RTX makes runtimes there, and refuses engines for want of a GPU; the
//! dispatch runtimes of 10 and 11 refuse to start.
//!
//! `VISIOND_TEST_TENSORRT` names the folder that `tests/setup --test` fills; without it, tests of what is not there pass.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::abi::runtime::Runtime;
use super::super::abi::{Owned, call};
use super::super::error::TensorRtError;
use super::super::error_recorder::{ErrorRecorder, Reported};
use super::super::library::Library;
use super::super::{engine, logger};

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

#[test]
fn a_runtime_answers_through_our_table() {
    for library in rtx() {
        assert!(library.is_rtx());
        let recorder = ErrorRecorder::new(library.abi().layout);
        let runtime = library.create_runtime().unwrap();
        let object = runtime.get();
        // SAFETY: the runtime lives and takes these arguments; the recorder goes after it.
        unsafe {
            assert_eq!(call!(object, Runtime::LOGGER()).unwrap(), library.logger().as_ptr());
            assert!(call!(object, Runtime::SET_MAX_THREADS(3)).unwrap());
            assert_eq!(call!(object, Runtime::MAX_THREADS()).unwrap(), 3);
            assert_eq!(call!(object, Runtime::DLA_CORES()).unwrap(), 0);
            for allowed in [true, false] {
                call!(object, Runtime::SET_HOST_CODE_ALLOWED(allowed)).unwrap();
                assert_eq!(call!(object, Runtime::HOST_CODE_ALLOWED()).unwrap(), allowed);
            }
            call!(object, Runtime::SET_ERROR_RECORDER(recorder.as_ptr())).unwrap();
            assert_eq!(call!(object, Runtime::ERROR_RECORDER()).unwrap(), recorder.as_ptr());
            call!(object, Runtime::SET_ERROR_RECORDER(std::ptr::null_mut())).unwrap();
        }
        drop(runtime);
    }
}

/// Returns the errors that deserializing `plan` reports.
fn reported(library: &'static Library, plan: &[u8]) -> Vec<Reported> {
    let recorder: Arc<ErrorRecorder> = ErrorRecorder::new(library.abi().layout);
    let runtime: Owned<Runtime> = library.create_runtime().unwrap();
    match engine::deserialize(library, &runtime, &recorder, plan) {
        Err(TensorRtError::Refused { reported, .. }) => reported,
        other => panic!("{:?}", other.map(|_| "an engine")),
    }
}

#[test]
fn files_that_are_no_engines_are_refused_with_reasons() {
    let garbage: Vec<u8> = (0..4096_u32).map(|i| (i * 37) as u8).collect();
    let mut other = vec![0; 4096];
    other[..4].copy_from_slice(b"ftrt");
    for library in rtx() {
        for plan in [&garbage[..], &other, &[0; 4096], &[], b"vtrt", b"x"] {
            let reported = reported(library, plan);
            let texts: Vec<String> = reported.iter().map(Reported::plain).collect();
            assert!(!texts.is_empty() && texts.iter().all(|text| text.len() > 10), "{texts:?}");
            assert!(!texts.concat().contains(".cpp:") && !texts.concat().contains(char::is_control), "{texts:?}");
        }
        let first = reported(library, &garbage)[0].plain();
        assert!(first.contains("incompatible serialization version"), "{first}");
    }
}

#[test]
fn without_a_gpu_dispatch_runtimes_do_not_start_and_nothing_crashes() {
    let libraries =
        [("dispatch-10.16.1", "libnvinfer_dispatch.so.10"), ("dispatch-11.4.0", "libnvinfer_dispatch.so.11")];
    for library in libraries.into_iter().filter_map(|(folder, name)| library(folder, name)) {
        assert!(!library.is_rtx());
        logger::take_errors();
        match library.create_runtime() {
            Ok(_) => assert!(has_gpu()),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("cannot start its runtime: "), "{error}");
                assert!(
                    error.contains("CUDA initialization failure with error: 35") && !error.contains(".cpp:"),
                    "{error}"
                );
            }
        }
        let error = library.create_builder().err().unwrap().to_string();
        assert!(error.contains("this library only runs engines"), "{error}");
    }
}
