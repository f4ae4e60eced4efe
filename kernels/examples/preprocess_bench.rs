//! How long a preprocess takes: one JSON line a case, times in microseconds. tests/bench/preprocess runs it beside OpenCV.
//!
//!     preprocess_bench [--runs N] [--sampling NAME] [--only FORMAT] [--rotate QUARTERS] [--flip horizontal|vertical]

use std::hint::black_box;
use std::time::Instant;

use visiond_kernels::buffer::UnifiedBuffer;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{BayerDepth, BayerOrder, FrameLayout, PixelFormat};
use visiond_kernels::placement::Fit;
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Preprocessor, Sampling, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut};
use visiond_kernels::view::{Flip, Orientation, View};

/// Format, frame's width and height, input's width and height, type.
const CASES: &[(PixelFormat, [u32; 2], [u32; 2], DType)] = &[
    (PixelFormat::Yuyv, [1920, 1080], [640, 640], DType::F32),
    (PixelFormat::Nv12, [1920, 1080], [640, 640], DType::F32),
    (PixelFormat::Yuyv, [1920, 1080], [640, 640], DType::F16),
    (PixelFormat::Nv12, [1920, 1080], [640, 640], DType::U8),
    (PixelFormat::Yuyv, [1920, 1080], [416, 416], DType::F32),
    (PixelFormat::Nv12, [1920, 1080], [416, 416], DType::F32),
    (PixelFormat::I420, [768, 576], [416, 416], DType::F32),
    (PixelFormat::Bgr, [768, 576], [416, 416], DType::F32),
    (PixelFormat::Rgb, [768, 576], [416, 416], DType::F32),
    (PixelFormat::Bgr, [1280, 720], [640, 640], DType::F32),
    (PixelFormat::Yuyv, [640, 480], [1280, 720], DType::F32),
    (PixelFormat::Bgr, [640, 480], [1280, 720], DType::F32),
    (PixelFormat::Bayer(BayerOrder::Rggb, BayerDepth::Bits8), [1920, 1080], [640, 640], DType::F32),
    (PixelFormat::Bayer(BayerOrder::Rggb, BayerDepth::Bits10), [1920, 1080], [640, 640], DType::F32),
];

/// Those for a letterbox, and those that warp.
const SAMPLINGS: &[(&str, Sampling)] = &[
    ("opencv", Sampling::Opencv),
    ("exact", Sampling::Exact),
    ("opencv-area", Sampling::OpencvArea),
    ("opencv-cubic", Sampling::OpencvCubic),
    ("pillow-bilinear", Sampling::PillowBilinear),
    ("pillow-bicubic", Sampling::PillowBicubic),
    ("torch", Sampling::Torch),
    ("torch-antialias", Sampling::TorchAntialias),
    ("torch-antialias-bicubic", Sampling::TorchAntialiasBicubic),
    ("tensorflow-legacy", Sampling::TensorflowLegacy),
    ("opencv-warp", Sampling::OpencvWarp),
    ("opencv-warp-affine", Sampling::OpencvWarpAffine),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut runs, mut sampling, mut only) = (200_usize, Sampling::Opencv, None);
    let (mut quarters, mut flip) = (0, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next().as_deref()) {
            ("--runs", Some(value)) => runs = value.parse()?,
            ("--sampling", Some(name)) => {
                let found = SAMPLINGS.iter().find(|(known, _)| *known == name);
                sampling = found.ok_or_else(|| format!("unknown sampling {name}: use one of {SAMPLINGS:?}"))?.1;
            }
            ("--only", Some(value)) => only = Some(value.to_owned()),
            ("--rotate", Some(value)) => quarters = value.parse()?,
            ("--flip", Some("horizontal")) => flip = Some(Flip::Horizontal),
            ("--flip", Some("vertical")) => flip = Some(Flip::Vertical),
            _ => {
                let options = "[--rotate QUARTERS] [--flip horizontal|vertical]";
                return Err(
                    format!("usage: preprocess_bench [--runs N] [--sampling NAME] [--only FORMAT] {options}").into()
                );
            }
        }
    }
    for &(format, [width, height], [input_width, input_height], dtype) in CASES {
        if only.as_ref().is_some_and(|only| only != format.name()) {
            continue;
        }
        let mut preprocessor = Preprocessor::new(PreprocessSpec {
            width: input_width,
            height: input_height,
            placement: if sampling.only_warps() { Fit::Warp } else { Fit::Letterbox }.into(),
            sampling,
            pad: 114.0,
            order: ChannelOrder::Rgb,
            layout: TensorLayout::Nchw,
            dtype,
            scale: if dtype == DType::U8 { 1.0 } else { 1.0 / 255.0 },
            mean: [0.0; 3],
            std: [1.0; 3],
        })?;
        let layout = FrameLayout::packed(format, width, height, ColorDescription::default())?;
        let mut buffer = UnifiedBuffer::host(layout.size_bytes())?;
        for (i, byte) in buffer.as_mut_slice().iter_mut().enumerate() {
            *byte = (i.wrapping_mul(0x9E37_79B9) >> 13) as u8;
        }
        let turned = Orientation::UPRIGHT.turned(quarters);
        let orientation = flip.map_or(turned, |flip| turned.flipped(flip));
        let view = View::new((width, height), [0, 0, width, height], orientation).ok_or("an empty view")?;
        let frame = layout.view(buffer.as_slice())?.viewed(view)?;
        let shape = preprocessor.spec().shape();
        let mut tensor = UnifiedBuffer::host(shape.iter().product::<usize>() * dtype.size_bytes())?;
        let mut times_us = Vec::with_capacity(runs);
        for run in 0..runs + 5 {
            let started = Instant::now();
            let mut out = TensorMut::new(dtype, &shape, tensor.as_mut_slice())?;
            preprocessor.run(black_box(&frame), &mut out)?;
            black_box(out.bytes());
            if run >= 5 {
                times_us.push(started.elapsed().as_secs_f64() * 1e6);
            }
        }
        times_us.sort_by(f64::total_cmp);
        println!(
            r#"{{"format":"{format}","frame":"{width}x{height}","input":"{input_width}x{input_height}","dtype":"{dtype}","min_us":{:.1},"median_us":{:.1},"p90_us":{:.1}}}"#,
            times_us[0],
            times_us[runs / 2],
            times_us[runs * 9 / 10],
        );
    }
    Ok(())
}
