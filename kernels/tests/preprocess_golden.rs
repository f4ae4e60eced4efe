//! Every format, fit, order and layout against tensors made by numpy in float64 and by OpenCV: tests/golden/preprocess.py.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::str::FromStr;

use visiond_kernels::color::{ColorDescription, ColorMatrix, ColorRange, GreyLevels};
use visiond_kernels::frame::{FrameLayout, FrameView, PixelFormat};
use visiond_kernels::placement::Fit;
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Preprocessor, Sampling, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut, TensorRef};

/// A line of a golden file.
struct Case {
    frame: FrameLayout,
    seed: u64,
    spec: PreprocessSpec,
    check: f64,
    values: Vec<(usize, f64)>,
}

/// The next field of a line.
fn field<'a, T: FromStr>(fields: &mut impl Iterator<Item = &'a str>) -> T {
    let text = fields.next().unwrap();
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

fn list<T: FromStr>(text: &str) -> Vec<T> {
    text.split(',').map(|item| item.parse().unwrap_or_else(|_| panic!("{text}"))).collect()
}

fn parse(line: &str, sampling: Sampling) -> Case {
    let mut fields = line.split(' ');
    let f = &mut fields;
    let format = PixelFormat::from_name(f.next().unwrap()).unwrap();
    let (width, height) = (field(f), field(f));
    let pitches: Vec<usize> = list(f.next().unwrap());
    let matrix = match f.next().unwrap() {
        "bt709" => ColorMatrix::Bt709,
        "bt2020" => ColorMatrix::Bt2020,
        _ => ColorMatrix::Bt601,
    };
    let range = f.next().unwrap();
    let levels = range.split_once('-').map(|(low, high)| GreyLevels::new(low.parse().unwrap(), high.parse().unwrap()));
    let range = if range == "full" { ColorRange::Full } else { ColorRange::Limited };
    let color = ColorDescription::new(matrix, range).with_levels(levels.map(Option::unwrap));
    let fit = f.next().unwrap();
    let fraction = field(f);
    let spec = PreprocessSpec {
        placement: match fit {
            "letterbox" => Fit::Letterbox,
            "top-left" => Fit::LetterboxTopLeft,
            "crop" => Fit::Crop { fraction },
            _ => Fit::Stretch,
        }
        .into(),
        sampling,
        width: field(f),
        height: field(f),
        order: match f.next().unwrap() {
            "rgb" => ChannelOrder::Rgb,
            "bgr" => ChannelOrder::Bgr,
            _ => ChannelOrder::Grey,
        },
        layout: if f.next().unwrap() == "nchw" { TensorLayout::Nchw } else { TensorLayout::Nhwc },
        dtype: match f.next().unwrap() {
            "f32" => DType::F32,
            "f16" => DType::F16,
            "u8" => DType::U8,
            _ => DType::I8,
        },
        scale: field::<f64>(f) as f32,
        mean: list(f.next().unwrap()).try_into().unwrap(),
        std: list(f.next().unwrap()).try_into().unwrap(),
        pad: field(f),
    };
    let (seed, check) = (field(f), field(f));
    let values = fields.map(|pair| pair.split_once(':').unwrap());
    let values = values.map(|(index, value)| (index.parse().unwrap(), value.parse().unwrap())).collect();
    Case {
        frame: FrameLayout::with_pitches(format, width, height, &pitches, color).unwrap(),
        seed,
        spec,
        check,
        values,
    }
}

/// The script's `frame_of`.
fn noise(layout: &FrameLayout, seed: u64) -> Vec<u8> {
    let hash = |i: u64| {
        let z = i.wrapping_add(seed.wrapping_mul(0x1_0000_0001)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (z ^ (z >> 32)) as u8
    };
    let mut bytes: Vec<u8> = (0..layout.size_bytes() as u64).map(hash).collect();
    if let Some(depth) = layout.format().sample_depth()
        && depth.bits() > 8
    {
        for row in bytes.chunks_mut(layout.planes()[0].pitch_bytes) {
            for high in row.iter_mut().skip(1).step_by(2) {
                *high &= ((1_u32 << (depth.bits() - 8)) - 1) as u8;
            }
        }
    }
    bytes
}

fn tensor(spec: &PreprocessSpec, frame: &FrameView<'_>) -> Vec<f32> {
    let (dtype, shape) = (spec.dtype, spec.shape());
    let mut out = vec![0x5a; shape.iter().product::<usize>() * dtype.size_bytes()];
    Preprocessor::new(spec.clone()).unwrap().run(frame, &mut TensorMut::new(dtype, &shape, &mut out).unwrap()).unwrap();
    TensorRef::new(dtype, &shape, &out).unwrap().to_f32().into_owned()
}

fn each_case(file: &str, sampling: Sampling, mut check: impl FnMut(&str, &Case, &[f32])) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let mut cases = 0;
    for line in text.lines() {
        let case = parse(line, sampling);
        let bytes = noise(&case.frame, case.seed);
        let tensor = tensor(&case.spec, &case.frame.view(&bytes).unwrap());
        assert_eq!(tensor.len(), case.spec.shape().iter().product::<usize>());
        // The line without its numbers says which case it is.
        check(line.split_once(':').unwrap().0, &case, &tensor);
        cases += 1;
    }
    // Every small case, and 16 large frames with 3 fits.
    assert_eq!(cases, 33 * 5 * 3 * 2 + 16 * 3);
}

#[test]
fn every_sample_between_and_beyond_its_levels_becomes_opencvs_byte() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/grey_levels.txt");
    let samples: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let text = std::fs::read_to_string(path).unwrap();
    for line in text.lines() {
        let [low, high, check]: [u64; 3] =
            line.split(' ').map(|n| n.parse().unwrap()).collect::<Vec<_>>().try_into().unwrap();
        let levels = GreyLevels::new(low as u16, high as u16);
        let color = ColorDescription::default().with_levels(levels);
        let frame = FrameLayout::packed(PixelFormat::Grey16, 256, 256, color).unwrap();
        let spec = PreprocessSpec {
            placement: Fit::Stretch.into(),
            sampling: Sampling::Opencv,
            width: 256,
            height: 256,
            order: ChannelOrder::Grey,
            layout: TensorLayout::Nchw,
            dtype: DType::U8,
            scale: 1.0,
            mean: [0.0; 3],
            std: [1.0; 3],
            pad: 0.0,
        };
        let bytes = tensor(&spec, &frame.view(&samples).unwrap());
        let sum: u64 = bytes.iter().zip(1..).map(|(&byte, number)| number * byte as u64).sum();
        assert_eq!(sum, check, "{low} to {high}");
    }
    assert_eq!(text.lines().count(), 40);
}

#[test]
fn exact_sampling_is_within_a_thousandth_of_float64() {
    let mut worst = [0.0_f64; 2];
    each_case("preprocess_exact.txt", Sampling::Exact, |name, case, tensor| {
        // The longest of the channels' full scales: 255 in steps of the tensor.
        let std = case.spec.std.iter().fold(f64::INFINITY, |least, &std| least.min(f64::from(std)));
        let full_scale = 255.0 * f64::from(case.spec.scale) / std;
        let allowed = match case.spec.dtype {
            DType::F32 => 1e-3 * full_scale,
            DType::F16 => 2e-3 * full_scale,
            _ => 1.0,
        };
        let mut error = tensor.iter().map(|&value| f64::from(value)).sum::<f64>() / tensor.len() as f64 - case.check;
        for &(index, value) in &case.values {
            error = error.abs().max((f64::from(tensor[index]) - value).abs());
        }
        assert!(error <= allowed, "{name}: {error} is more than {allowed}");
        match case.spec.dtype {
            DType::F32 => worst[0] = worst[0].max(error / full_scale),
            DType::F16 => worst[1] = worst[1].max(error / full_scale),
            _ => {}
        }
    });
    println!("largest difference of full scale: f32 {:.2e}, f16 {:.2e}", worst[0], worst[1]);
}

#[test]
fn opencv_sampling_gives_opencvs_bytes() {
    each_case("preprocess_opencv.txt", Sampling::Opencv, |name, case, tensor| {
        if case.spec.dtype == DType::U8 {
            for &(index, value) in &case.values {
                assert_eq!(f64::from(tensor[index]), value, "{name}: byte {index}");
            }
            let sum: f64 = tensor.iter().enumerate().map(|(i, &value)| (i + 1) as f64 * f64::from(value)).sum();
            assert_eq!(sum, case.check, "{name}: the bytes shown are right, others are not");
        } else {
            // The same bytes, normalised: what remains is the rounding of f32 and of the file's seven digits.
            for &(index, value) in &case.values {
                let error = (f64::from(tensor[index]) - value).abs();
                assert!(error <= 2e-6 * value.abs().max(1.0), "{name}: {index} {} {value}", tensor[index]);
            }
        }
    });
}
