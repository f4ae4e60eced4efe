//! The host's part of runs, on a driver made for the test (`cuda/tests`), whose kernels do nothing.
//!
//! The driver is found by its name, once in a process. So the test runs its program again, with the stub in the loader's path.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use super::CudaPreprocessor;
use crate::color::ColorDescription;
use crate::cuda::{CudaStream, Device, DeviceBuffer, StreamPriority};
use crate::frame::{FrameLayout, PixelFormat};
use crate::preprocess::{PreprocessSpec, Sampling};
use crate::tensor::DType;
use crate::view::{Orientation, View};

const INNER: &str = "VISIOND_TEST_STUB_KERNELS";
const CROPS: u32 = 20;

/// The stub's counters.
struct Stub(libloading::Library);

impl Stub {
    fn read(&self, counter: &str) -> i32 {
        // SAFETY: the stub's counters take nothing and return a number.
        unsafe { self.0.get::<unsafe extern "C" fn() -> i32>(counter.as_bytes()).unwrap()() }
    }
}

#[test]
fn a_driver_that_counts_sees_what_runs_cost() {
    let Some(library) = std::env::var_os(INNER) else {
        let folder = tempfile::tempdir().unwrap();
        let (library, source) = (folder.path().join("libcuda.so.1"), folder.path().join("driver.c"));
        std::fs::write(&source, include_str!("../../cuda/tests/stub_driver.c")).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-DWITH_KERNELS", "-Wl,-soname,libcuda.so.1", "-o"]).arg(&library).arg(&source);
        let output = cc.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let name = "preprocess::cuda::stub_tests::a_driver_that_counts_sees_what_runs_cost";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(INNER, &library)
            .env("LD_LIBRARY_PATH", folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    };
    // SAFETY: the library is the stub, which has no initialisers.
    let stub = Stub(unsafe { libloading::Library::new(Path::new(&library)) }.unwrap());
    for (_, sampling) in Sampling::ALL.into_iter().filter(|(_, sampling)| !sampling.only_warps()) {
        crops_of_ever_new_sizes_cost_two_launches_and_no_memory(&stub, sampling);
    }
    a_stream_of_high_priority_has_the_greatest(&stub);
    assert_eq!(stub.read("stub_alive"), 0, "memory or streams were not freed");
}

fn crops_of_ever_new_sizes_cost_two_launches_and_no_memory(stub: &Stub, sampling: Sampling) {
    let device = Device::open(0).unwrap();
    let stream = CudaStream::new(&device).unwrap();
    let spec = PreprocessSpec { sampling, ..PreprocessSpec::yolo(224, 224, DType::F16) };
    let mut preprocessor = CudaPreprocessor::new(&spec, &device, CROPS as usize).unwrap();
    let layout = FrameLayout::packed(PixelFormat::Nv12, 640, 480, ColorDescription::default()).unwrap();
    let frame = DeviceBuffer::new(&device, layout.size_bytes()).unwrap();
    let out = DeviceBuffer::new(&device, CROPS as usize * 3 * 224 * 224 * 2).unwrap();
    let bytes = vec![0; layout.size_bytes()];
    let mut run = |sizes: &dyn Fn(u32) -> (u32, u32)| {
        let views: Vec<_> = (0..CROPS)
            .map(|crop| {
                let (width, height) = sizes(crop);
                let view = View::new((640, 480), [8, 8, width, height], Orientation::UPRIGHT).unwrap();
                layout.view_at(&bytes, Some(frame.address())).unwrap().viewed(view).unwrap()
            })
            .collect();
        let before = ["stub_slow_calls", "stub_launches"].map(|counter| stub.read(counter));
        preprocessor.prepare(&views).unwrap();
        // SAFETY: the tensors have room; the stub's kernels touch nothing.
        unsafe { preprocessor.enqueue(out.address(), CROPS as usize, &stream) }.unwrap();
        ["stub_slow_calls", "stub_launches"]
            .map(|counter| stub.read(counter))
            .into_iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect::<Vec<_>>()
    };
    // Until every place has memory for the largest tables.
    for _ in 0..8 {
        run(&|crop| (620 - crop, 460 - crop));
        for round in 0..8 {
            run(&|crop| (600 - 8 * crop - round, 460 - crop));
        }
    }
    for round in 0..30 {
        let cost = run(&|crop| (48 + 20 * crop + round % 8, 50 + 11 * round + crop));
        assert_eq!(cost, [0, 2], "{sampling:?}, run {round}");
    }
}

fn a_stream_of_high_priority_has_the_greatest(stub: &Stub) {
    let device = Device::open(0).unwrap();
    for (priority, number) in [(StreamPriority::Normal, 0), (StreamPriority::High, -5)] {
        CudaStream::with_priority(&device, priority).unwrap();
        assert_eq!(stub.read("stub_priority"), number, "{priority:?}");
    }
}
