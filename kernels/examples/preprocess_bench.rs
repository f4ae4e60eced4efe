//! How long a preprocess takes: one JSON line a case, times in microseconds. tests/bench/preprocess runs it beside OpenCV.
//!
//!     preprocess_bench [--runs N] [--sampling NAME] [--only FORMAT] [--rotate QUARTERS] [--flip horizontal|vertical]
//!     preprocess_bench --turned [--runs N] [--sampling NAME] [--only FORMAT]
//!
//! `--turned` compares each orientation with the upright one, for every format and sampling, or for those that are named. The
//! orientations take turns, and the fastest run of each counts, in CPU time, so that other load on the machine affects the ratios least.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
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

/// Frame's width and height, input's width and height of `--turned`: whole and other steps, and enlarged.
const TURNED_SIZES: &[([u32; 2], [u32; 2])] =
    &[([1920, 1080], [640, 640]), ([1920, 1080], [416, 416]), ([1280, 720], [640, 640]), ([640, 480], [960, 960])];

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
    let (mut runs, mut sampling, mut only) = (200_usize, None, None);
    let (mut quarters, mut flip, mut is_turned) = (0, None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--turned" {
            is_turned = true;
            continue;
        }
        match (argument.as_str(), arguments.next().as_deref()) {
            ("--runs", Some(value)) => runs = value.parse()?,
            ("--sampling", Some(name)) => {
                let found = SAMPLINGS.iter().find(|(known, _)| *known == name);
                sampling = Some(*found.ok_or_else(|| format!("unknown sampling {name}: use one of {SAMPLINGS:?}"))?);
            }
            ("--only", Some(value)) => only = Some(value.to_owned()),
            ("--rotate", Some(value)) => quarters = value.parse()?,
            ("--flip", Some("horizontal")) => flip = Some(Flip::Horizontal),
            ("--flip", Some("vertical")) => flip = Some(Flip::Vertical),
            _ => {
                let options = "[--turned] [--rotate QUARTERS] [--flip horizontal|vertical]";
                return Err(
                    format!("usage: preprocess_bench [--runs N] [--sampling NAME] [--only FORMAT] {options}").into()
                );
            }
        }
    }
    let is_wanted = |format: PixelFormat| only.as_ref().is_none_or(|only| only == format.name());
    if is_turned {
        let samplings = SAMPLINGS.iter().filter(|&&(name, _)| sampling.is_none_or(|(only, _)| only == name));
        return compare_turned(runs, samplings, is_wanted);
    }
    let turned = Orientation::UPRIGHT.turned(quarters);
    let orientation = flip.map_or(turned, |flip| turned.flipped(flip));
    for &(format, size, input, dtype) in CASES.iter().filter(|case| is_wanted(case.0)) {
        let mut case =
            Case::new(format, size, input, dtype, sampling.map_or(Sampling::Opencv, |(_, sampling)| sampling))?;
        let mut times_us = Vec::with_capacity(runs);
        for run in 0..runs + 5 {
            let time_us = case.run(orientation, ClockId::Monotonic)?;
            if run >= 5 {
                times_us.push(time_us);
            }
        }
        times_us.sort_by(f64::total_cmp);
        println!(
            r#"{{"format":"{format}","frame":"{}x{}","input":"{}x{}","dtype":"{dtype}","min_us":{:.1},"median_us":{:.1},"p90_us":{:.1}}}"#,
            size[0],
            size[1],
            input[0],
            input[1],
            times_us[0],
            times_us[runs / 2],
            times_us[runs * 9 / 10],
        );
    }
    Ok(())
}

/// Prints the ratio of each orientation's time to that of the upright frame.
fn compare_turned<'a>(
    runs: usize,
    samplings: impl Iterator<Item = &'a (&'a str, Sampling)> + Clone,
    is_wanted: impl Fn(PixelFormat) -> bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let upright = Orientation::UPRIGHT;
    let orientations = [
        ("90", upright.turned(1)),
        ("180", upright.turned(2)),
        ("270", upright.turned(3)),
        ("horizontal", upright.flipped(Flip::Horizontal)),
        ("vertical", upright.flipped(Flip::Vertical)),
    ];
    for &(size, input) in TURNED_SIZES {
        // Mosaics differ in their first pixel, and those of more than 8 bits in a constant.
        let is_alike = |format: PixelFormat| match format {
            PixelFormat::Bayer(order, depth) => {
                order != BayerOrder::Rggb || !matches!(depth, BayerDepth::Bits8 | BayerDepth::Bits10)
            }
            _ => false,
        };
        for format in PixelFormat::all().filter(|&format| is_wanted(format) && !is_alike(format)) {
            for &(name, sampling) in samplings.clone() {
                let mut case = Case::new(format, size, input, DType::F32, sampling)?;
                let (mut base_us, mut turned_us) = (f64::MAX, [f64::MAX; 5]);
                for _ in 0..runs {
                    base_us = base_us.min(case.run(upright, ClockId::ThreadCPUTime)?);
                    for (least, &(_, orientation)) in turned_us.iter_mut().zip(&orientations) {
                        *least = least.min(case.run(orientation, ClockId::ThreadCPUTime)?);
                    }
                }
                let ratios: Vec<_> = turned_us
                    .iter()
                    .zip(&orientations)
                    .map(|(time_us, (turn, _))| format!(r#""{turn}":{:.2}"#, time_us / base_us))
                    .collect();
                println!(
                    r#"{{"sampling":"{name}","format":"{format}","frame":"{}x{}","input":"{}x{}","upright_us":{base_us:.1},{}}}"#,
                    size[0],
                    size[1],
                    input[0],
                    input[1],
                    ratios.join(",")
                );
            }
        }
    }
    Ok(())
}

/// A frame of noise, and what makes a tensor of it.
struct Case {
    preprocessor: Preprocessor,
    layout: FrameLayout,
    frame: UnifiedBuffer,
    tensor: UnifiedBuffer,
}

impl Case {
    fn new(
        format: PixelFormat,
        [width, height]: [u32; 2],
        [input_width, input_height]: [u32; 2],
        dtype: DType,
        sampling: Sampling,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let preprocessor = Preprocessor::new(PreprocessSpec {
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
        let mut frame = UnifiedBuffer::host(layout.size_bytes())?;
        for (i, byte) in frame.as_mut_slice().iter_mut().enumerate() {
            *byte = (i.wrapping_mul(0x9E37_79B9) >> 13) as u8;
        }
        let elements = preprocessor.spec().shape().iter().product::<usize>();
        Ok(Self { preprocessor, layout, frame, tensor: UnifiedBuffer::host(elements * dtype.size_bytes())? })
    }

    /// Returns how long a run takes, in microseconds.
    fn run(&mut self, orientation: Orientation, clock: ClockId) -> Result<f64, Box<dyn std::error::Error>> {
        let (width, height) = (self.layout.width(), self.layout.height());
        let view = View::new((width, height), [0, 0, width, height], orientation).ok_or("an empty view")?;
        let frame = self.layout.view(self.frame.as_slice())?.viewed(view)?;
        let (shape, dtype) = (self.preprocessor.spec().shape(), self.preprocessor.spec().dtype);
        let started = now_us(clock);
        let mut out = TensorMut::new(dtype, &shape, self.tensor.as_mut_slice())?;
        self.preprocessor.run(black_box(&frame), &mut out)?;
        black_box(out.bytes());
        Ok(now_us(clock) - started)
    }
}

fn now_us(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}
