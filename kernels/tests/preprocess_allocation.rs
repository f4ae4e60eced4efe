//! A preprocess allocates when it meets a frame size, and never again while it takes turns between those it knows.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{BayerDepth, BayerOrder, FrameLayout, PixelFormat};
use visiond_kernels::placement::{Fit, Placement};
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Preprocessor, Sampling, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut};
use visiond_kernels::view::Orientation;

/// The system's allocator, counted.
struct Counted;

thread_local! {
    /// Of this thread, because the test harness allocates beside it.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`; `pointer` came from there.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[test]
fn known_frame_sizes_cost_no_allocation() {
    let cameras = [
        (PixelFormat::Yuyv, 320, 180),
        (PixelFormat::Nv12, 101, 77),
        (PixelFormat::Bgr, 64, 64),
        (PixelFormat::Bayer(BayerOrder::Gbrg, BayerDepth::Bits12), 90, 60),
        (PixelFormat::Grey12, 90, 60),
    ];
    let cameras = cameras.map(|(format, width, height)| {
        let layout = FrameLayout::packed(format, width, height, ColorDescription::default()).unwrap();
        (layout, vec![90; layout.size_bytes()])
    });
    let samplings = [
        (Sampling::Opencv, TensorLayout::Nhwc),
        (Sampling::Exact, TensorLayout::Nchw),
        (Sampling::OpencvArea, TensorLayout::Nchw),
        (Sampling::OpencvCubic, TensorLayout::Nhwc),
        (Sampling::PillowBicubic, TensorLayout::Nchw),
        (Sampling::TorchAntialias, TensorLayout::Nhwc),
    ];
    for ((sampling, layout), pad_first) in samplings.into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let mut preprocessor = Preprocessor::new(PreprocessSpec {
            width: 64,
            height: 64,
            placement: Placement { pad_first, ..Fit::Letterbox.into() },
            sampling,
            pad: 0.0,
            order: ChannelOrder::Rgb,
            layout,
            dtype: DType::F16,
            scale: 1.0,
            mean: [0.0; 3],
            std: [1.0; 3],
        })
        .unwrap();
        let shape = preprocessor.spec().shape();
        let mut bytes = vec![0; 64 * 64 * 3 * 2];
        for round in 0..5 {
            let before = ALLOCATIONS.get();
            for ((layout, frame), quarters) in cameras.iter().flat_map(|camera| [(camera, 0), (camera, 1)]) {
                let frame = layout.view(frame).unwrap().turned(Orientation::UPRIGHT.turned(quarters)).unwrap();
                let mut out = TensorMut::new(DType::F16, &shape, &mut bytes).unwrap();
                preprocessor.run(&frame, &mut out).unwrap();
            }
            let allocated = ALLOCATIONS.get() - before;
            assert!(round == 0 || allocated == 0, "{allocated} allocations in round {round}");
        }
    }
}
