//! How long the host takes to prepare a run of 20 crops of a frame, whose sizes are new: one JSON line a case, times in microseconds.
//!
//!     crops_bench [--runs N]
//!
//! It needs a GPU, or the driver of the tests, whose kernels do nothing:
//!
//!     cc -shared -fPIC -O2 -DWITH_KERNELS -Wl,-soname,libcuda.so.1 -o FOLDER/libcuda.so.1 kernels/src/cuda/tests/stub_driver.c
//!     LD_LIBRARY_PATH=FOLDER crops_bench

use std::time::Instant;

use visiond_kernels::color::ColorDescription;
use visiond_kernels::cuda::{CudaStream, Device, DeviceBuffer};
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::preprocess::cuda::CudaPreprocessor;
use visiond_kernels::preprocess::{PreprocessSpec, Sampling};
use visiond_kernels::tensor::DType;
use visiond_kernels::view::{Orientation, View};

const CROPS: usize = 20;
const SIDE: u32 = 224;
const FRAME: (u32, u32) = (1920, 1080);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runs = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => 500,
        [option, runs] if option == "--runs" => runs.parse()?,
        _ => return Err("usage: crops_bench [--runs N]".into()),
    };
    let device = Device::open(0)?;
    let stream = CudaStream::new(&device)?;
    let layout = FrameLayout::packed(PixelFormat::Nv12, FRAME.0, FRAME.1, ColorDescription::default())?;
    let bytes = vec![0; layout.size_bytes()];
    let frame = DeviceBuffer::new(&device, layout.size_bytes())?;
    for (name, sampling) in Sampling::ALL.into_iter().filter(|(_, sampling)| !sampling.only_warps()) {
        for dtype in [DType::U8, DType::F16] {
            let spec = PreprocessSpec { sampling, ..PreprocessSpec::yolo(SIDE, SIDE, dtype) };
            let spec = PreprocessSpec { scale: if dtype == DType::U8 { 1.0 } else { spec.scale }, ..spec };
            let elements: usize = spec.shape().iter().product();
            let out = DeviceBuffer::new(&device, CROPS * elements * dtype.size_bytes())?;
            let mut preprocessor = CudaPreprocessor::new(&spec, &device, CROPS)?;
            let mut random = 7_u64;
            let mut below = |most: u32| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) as u32 % most
            };
            let mut times_us = Vec::with_capacity(runs);
            for _ in 0..runs {
                let mut views = Vec::with_capacity(CROPS);
                for _ in 0..CROPS {
                    let (width, height) = (48 + below(200), 48 + below(300));
                    let crop = [below(FRAME.0 - width), below(FRAME.1 - height), width, height];
                    let view = View::new(FRAME, crop, Orientation::UPRIGHT).ok_or("an empty crop")?;
                    views.push(layout.view_at(&bytes, Some(frame.address()))?.viewed(view)?);
                }
                let began = Instant::now();
                preprocessor.prepare(&views)?;
                times_us.push(began.elapsed().as_secs_f64() * 1e6);
                // SAFETY: `out` has room for the tensors of the views that were prepared; all of it stays until the wait.
                unsafe { preprocessor.enqueue(out.address(), CROPS, &stream) }?;
                stream.synchronize()?;
            }
            times_us.sort_by(f64::total_cmp);
            println!(
                r#"{{"sampling":"{name}","dtype":"{dtype}","crops":{CROPS},"min_us":{:.1},"median_us":{:.1},"p90_us":{:.1}}}"#,
                times_us[0],
                times_us[runs / 2],
                times_us[runs * 9 / 10],
            );
        }
    }
    Ok(())
}
