//! The rules that hold for every frame, and the frames that are refused. Values are compared with numpy and OpenCV in
//! kernels/tests/preprocess_golden.rs.

#![allow(clippy::unwrap_used)]

mod views;

use proptest::prelude::*;

use super::simd::Isa;
use super::*;
use crate::color::{ColorDescription, ColorMatrix, ColorRange, GreyLevels, YuvArithmetic};
use crate::frame::{BayerDepth, BayerOrder, FrameLayout, PixelFormat};
use crate::frame::{FrameView, MAX_SIDE};
use crate::placement::{Fit, Placement};
use crate::tensor::DType;
use crate::tensor::TensorMut;

/// A model that takes pixels as they are.
fn plain(width: u32, height: u32) -> PreprocessSpec {
    PreprocessSpec {
        width,
        height,
        placement: Fit::Letterbox.into(),
        sampling: Sampling::Exact,
        pad: 114.0,
        order: ChannelOrder::Rgb,
        layout: TensorLayout::Nchw,
        dtype: DType::F32,
        scale: 1.0,
        mean: [0.0; 3],
        std: [1.0; 3],
    }
}

/// The tensor of a frame as f32, whatever its type.
fn tensor_of(preprocessor: &mut Preprocessor, frame: &FrameView<'_>) -> Vec<f32> {
    let (dtype, shape) = (preprocessor.spec().dtype, preprocessor.spec().shape());
    // One byte too far on, so that nothing may rely on alignment; not zero, so that nothing may be left out.
    let mut bytes = vec![0xa5; shape.iter().product::<usize>() * dtype.size_bytes() + 1];
    let mut out = TensorMut::new(dtype, &shape, &mut bytes[1..]).unwrap();
    preprocessor.run(frame, &mut out).unwrap();
    crate::tensor::TensorRef::new(dtype, &shape, &bytes[1..]).unwrap().to_f32().into_owned()
}

fn run(spec: &PreprocessSpec, frame: &FrameView<'_>) -> Vec<f32> {
    tensor_of(&mut Preprocessor::new(spec.clone()).unwrap(), frame)
}

fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn formats() -> impl Strategy<Value = PixelFormat> {
    prop::sample::select(PixelFormat::all().collect::<Vec<_>>())
}

fn colors() -> impl Strategy<Value = ColorDescription> {
    use ColorMatrix::{Bt601, Bt709, Bt2020};
    let matrices = prop::sample::select(vec![Bt601, Bt709, Bt2020]);
    let levels = (any::<u16>(), any::<u16>()).prop_map(|(low, high)| GreyLevels::new(low, high));
    (matrices, any::<bool>(), any::<bool>(), levels).prop_map(|(matrix, full, truncated, levels)| ColorDescription {
        matrix,
        range: if full { ColorRange::Full } else { ColorRange::Limited },
        arithmetic: if truncated { YuvArithmetic::Ffmpeg } else { YuvArithmetic::Nearest },
        levels,
    })
}

/// The samplings for frames that are not warped.
const FITTING: [Sampling; 10] = [
    Sampling::Opencv,
    Sampling::Exact,
    Sampling::OpencvArea,
    Sampling::OpencvCubic,
    Sampling::PillowBilinear,
    Sampling::PillowBicubic,
    Sampling::Torch,
    Sampling::TorchAntialias,
    Sampling::TorchAntialiasBicubic,
    Sampling::TensorflowLegacy,
];

/// Those for frames that are.
const WARPING: [Sampling; 4] = [Sampling::Opencv, Sampling::Exact, Sampling::OpencvWarp, Sampling::OpencvWarpAffine];

fn specs() -> impl Strategy<Value = PreprocessSpec> {
    use ChannelOrder::{Bgr, Grey, Rgb};
    use DType::{F16, F32, I8, I32, U8};
    let fit = prop_oneof![
        Just(Fit::Letterbox),
        Just(Fit::LetterboxTopLeft),
        Just(Fit::Stretch),
        (0.2..=1.0).prop_map(|fraction| Fit::Crop { fraction }),
    ];
    let warp = prop::sample::select(vec![Fit::Warp, Fit::WarpStretch]);
    let of_warp = prop::sample::select(WARPING.to_vec());
    (
        1..50_u32,
        1..50_u32,
        prop_oneof![5 => (fit, prop::sample::select(FITTING.to_vec())), 1 => (warp, of_warp)],
        any::<bool>(),
        prop::sample::select(vec![Rgb, Bgr, Grey]),
        any::<bool>(),
        prop::sample::select(vec![F32, F16, U8, I8, I32]),
    )
        .prop_map(|(width, height, (fit, sampling), pad_first, order, planar, dtype)| PreprocessSpec {
            placement: Placement { pad_first, ..fit.into() },
            sampling,
            order,
            layout: if planar { TensorLayout::Nchw } else { TensorLayout::Nhwc },
            dtype,
            scale: if matches!(dtype, DType::I8) { 0.5 } else { 1.0 },
            ..plain(width, height)
        })
}

proptest! {
    #[test]
    fn an_even_frame_gives_an_even_tensor(
        mut spec in specs(), format in formats(), color in colors(), w in 1..70_u32, h in 1..70_u32, value: u8,
    ) {
        // Where every byte is the same, so is every pixel.
        let layout = FrameLayout::packed(format, w, h, color).unwrap();
        let bytes = vec![value; layout.size_bytes()];
        spec.placement = Fit::Stretch.into();
        if !FITTING.contains(&spec.sampling) {
            spec.sampling = Sampling::Opencv;
        }
        let out = run(&spec, &layout.view(&bytes).unwrap());
        // A value between two steps may go either way.
        let step = match spec.dtype { DType::F32 => 1e-3, DType::F16 => 0.13, _ => 1.0 };
        let channels = spec.order.channels();
        let pixel = |i: usize, channel: usize| match spec.layout {
            TensorLayout::Nchw => out[channel * out.len() / channels + i],
            TensorLayout::Nhwc => out[i * channels + channel],
        };
        for i in 0..out.len() / channels {
            for channel in 0..channels {
                prop_assert!((pixel(i, channel) - pixel(0, channel)).abs() <= step);
            }
        }
    }

    #[test]
    fn both_layouts_hold_the_same_numbers(
        spec in specs(), format in formats(), color in colors(), w in 1..70_u32, h in 1..70_u32, seed: u64,
    ) {
        let layout = FrameLayout::packed(format, w, h, color).unwrap();
        let bytes = noise(layout.size_bytes(), seed);
        let frame = layout.view(&bytes).unwrap();
        let planar = run(&PreprocessSpec { layout: TensorLayout::Nchw, ..spec.clone() }, &frame);
        let interleaved = run(&PreprocessSpec { layout: TensorLayout::Nhwc, ..spec.clone() }, &frame);
        let (channels, pixels) = (spec.order.channels(), (spec.width * spec.height) as usize);
        for i in 0..pixels {
            for channel in 0..channels {
                prop_assert_eq!(planar[channel * pixels + i], interleaved[i * channels + channel]);
            }
        }
    }

    #[test]
    fn padding_of_rows_is_never_seen(
        spec in specs(), format in formats(), color in colors(), w in 1..70_u32, h in 1..70_u32, seed: u64,
        extra in prop::array::uniform3(0..9_usize),
    ) {
        let packed = FrameLayout::packed(format, w, h, color).unwrap();
        let bytes = noise(packed.size_bytes(), seed);
        let pitches: Vec<usize> = packed.planes().iter().zip(extra).map(|(plane, extra)| plane.pitch_bytes + extra).collect();
        let padded = FrameLayout::with_pitches(format, w, h, &pitches, color).unwrap();
        let mut spread = noise(padded.size_bytes(), !seed);
        for (i, (from, to)) in packed.planes().iter().zip(padded.planes()).enumerate() {
            for y in 0..format.plane_rows(i, h) {
                let row = &bytes[from.offset_bytes + y * from.pitch_bytes..][..from.pitch_bytes];
                spread[to.offset_bytes + y * to.pitch_bytes..][..row.len()].copy_from_slice(row);
            }
        }
        prop_assert_eq!(run(&spec, &packed.view(&bytes).unwrap()), run(&spec, &padded.view(&spread).unwrap()));
    }

    #[test]
    fn bgr_is_rgb_with_its_channels_swapped(
        spec in specs(), format in formats(), color in colors(), w in 1..70_u32, h in 1..70_u32, seed: u64,
    ) {
        let layout = FrameLayout::packed(format, w, h, color).unwrap();
        let bytes = noise(layout.size_bytes(), seed);
        let frame = layout.view(&bytes).unwrap();
        let planar = |order| PreprocessSpec { layout: TensorLayout::Nchw, order, ..spec.clone() };
        let (rgb, bgr) = (run(&planar(ChannelOrder::Rgb), &frame), run(&planar(ChannelOrder::Bgr), &frame));
        let pixels = rgb.len() / 3;
        prop_assert_eq!(&rgb[..pixels], &bgr[2 * pixels..]);
        prop_assert_eq!(&rgb[pixels..2 * pixels], &bgr[pixels..2 * pixels]);
        prop_assert_eq!(&rgb[2 * pixels..], &bgr[..pixels]);
    }

    #[test]
    fn a_frame_of_the_inputs_size_stays_as_it_is(w in 1..70_u32, h in 1..70_u32, seed: u64, spec in specs()) {
        let layout = FrameLayout::packed(PixelFormat::Rgb, w, h, ColorDescription::default()).unwrap();
        let bytes = noise(layout.size_bytes(), seed);
        let spec = PreprocessSpec {
            width: w, height: h, dtype: DType::U8, order: ChannelOrder::Rgb, layout: TensorLayout::Nhwc, scale: 1.0, ..spec
        };
        let fit = if FITTING.contains(&spec.sampling) { Fit::Stretch } else { Fit::WarpStretch };
        let spec = PreprocessSpec { placement: fit.into(), ..spec };
        let same: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte)).collect();
        prop_assert_eq!(run(&spec, &layout.view(&bytes).unwrap()), same);
    }

    #[test]
    fn padding_first_changes_nothing_where_there_is_none(
        spec in specs(), format in formats(), color in colors(), w in 1..70_u32, side in 1..50_u32, seed: u64,
    ) {
        // One way goes by tables of any number of taps, the other does not.
        let layout = FrameLayout::packed(format, w, w, color).unwrap();
        let bytes = noise(layout.size_bytes(), seed);
        let frame = layout.view(&bytes).unwrap();
        for (sampling, most) in [(Sampling::Opencv, 0.0), (Sampling::Exact, 1e-3)] {
            let spec = PreprocessSpec { width: side, height: side, sampling, dtype: DType::F32, ..spec.clone() };
            let of = |pad_first| {
                let placement = Placement { pad_first, ..Fit::Letterbox.into() };
                run(&PreprocessSpec { placement, ..spec.clone() }, &frame)
            };
            for (first, after) in of(true).iter().zip(of(false)) {
                prop_assert!((first - after).abs() <= most, "{sampling:?}: {first} {after}");
            }
        }
    }

    #[test]
    fn padding_first_is_as_if_the_frame_had_it(
        spec in specs(), w in 1..40_u32, h in 1..40_u32, centred: bool, seed: u64,
    ) {
        let fit = if centred { Fit::Letterbox } else { Fit::LetterboxTopLeft };
        let sampling = if FITTING.contains(&spec.sampling) { spec.sampling } else { Sampling::Exact };
        let placement = Placement { pad_first: true, ..fit.into() };
        let spec = PreprocessSpec { placement, sampling, dtype: DType::F32, ..spec };
        let layout = FrameLayout::packed(PixelFormat::Rgb, w, h, ColorDescription::default()).unwrap();
        let bytes = noise(layout.size_bytes(), seed);
        let padded = run(&spec, &layout.view(&bytes).unwrap());

        let mapping = crate::placement::Mapping::new(placement, (w, h), (spec.width, spec.height));
        let [x, y] = mapping.axes();
        let canvas = FrameLayout::packed(PixelFormat::Rgb, x.canvas, y.canvas, ColorDescription::default()).unwrap();
        let mut larger = vec![114; canvas.size_bytes()];
        let rows = larger.chunks_exact_mut(3 * x.canvas as usize).skip(y.lead as usize);
        for (to, from) in rows.zip(bytes.chunks_exact(3 * w as usize)) {
            to[3 * x.lead as usize..][..from.len()].copy_from_slice(from);
        }
        let whole = run(&PreprocessSpec { placement: Fit::Stretch.into(), ..spec }, &canvas.view(&larger).unwrap());
        for (padded, whole) in padded.iter().zip(whole) {
            prop_assert!((padded - whole).abs() < 1e-3, "{sampling:?}: {padded} {whole}");
        }
    }

    #[test]
    fn p010_counts_by_the_upper_bytes_of_its_samples(w in 1..50_u32, h in 1..50_u32, seed: u64, spec in specs()) {
        let color = ColorDescription::default();
        let [wide, plain] = [PixelFormat::P010, PixelFormat::Nv12].map(|format| FrameLayout::packed(format, w, h, color).unwrap());
        let samples = noise(wide.size_bytes(), seed);
        let upper: Vec<u8> = samples.iter().skip(1).step_by(2).copied().collect();
        prop_assert_eq!(run(&spec, &wide.view(&samples).unwrap()), run(&spec, &plain.view(&upper).unwrap()));
    }

    #[test]
    fn grey_of_more_bits_is_grey_of_the_bytes_that_its_levels_make(
        w in 1..50_u32, h in 1..50_u32, seed: u64, spec in specs(), color in colors(),
        format in prop::sample::select(vec![PixelFormat::Grey10, PixelFormat::Grey12, PixelFormat::Grey16]),
    ) {
        let [deep, plain] = [format, PixelFormat::Grey].map(|format| FrameLayout::packed(format, w, h, color).unwrap());
        let samples = noise(deep.size_bytes(), seed);
        let full = 2_f64.powi(format.sample_depth().unwrap().bits() as i32) - 1.0;
        let [low, high] = color.levels.map_or([0.0, full], |levels| levels.ends().map(f64::from));
        let (gain, bias) = (255.0 / (high - low), -255.0 * low / (high - low));
        let byte = |&sample: &[u8; 2]| {
            let value = f32::from(u16::from_le_bytes(sample)).mul_add(gain as f32, bias as f32);
            value.round_ties_even().clamp(0.0, 255.0) as u8
        };
        let bytes: Vec<u8> = samples.as_chunks::<2>().0.iter().map(byte).collect();
        prop_assert_eq!(run(&spec, &deep.view(&samples).unwrap()), run(&spec, &plain.view(&bytes).unwrap()));
    }

    #[test]
    fn every_instruction_set_gives_the_same_within_rounding(
        spec in specs(), format in formats(), color in colors(), w in 1..70_u32, h in 1..70_u32, seed: u64,
    ) {
        let layout = FrameLayout::packed(format, w, h, color).unwrap();
        let bytes = noise(layout.size_bytes(), seed);
        let frame = layout.view(&bytes).unwrap();
        let spec = PreprocessSpec { dtype: DType::F32, ..spec };
        let best = run(&spec, &frame);
        let mut plain = Preprocessor::with_isa(spec, Isa::BASELINE);
        for (best, plain) in best.iter().zip(tensor_of(&mut plain, &frame)) {
            prop_assert!((best - plain).abs() < 1e-3, "{best} {plain}");
        }
    }
}

proptest! {
    #[test]
    fn a_warp_by_two_taps_has_the_bytes_of_a_warp_by_tables(
        spec in specs(), affine: bool, stretched: bool, pad in 0.0..255.0_f32, format in formats(), color in colors(),
        w in 1..70_u32, h in 1..70_u32, seed: u64,
    ) {
        let layout = FrameLayout::packed(format, w, h, color).unwrap();
        let bytes = noise(layout.size_bytes(), seed);
        let frame = layout.view(&bytes).unwrap();
        let placement = if stretched { Fit::WarpStretch } else { Fit::Warp }.into();
        let sampling = if affine { Sampling::OpencvWarpAffine } else { Sampling::OpencvWarp };
        let spec = PreprocessSpec { placement, sampling, pad, ..spec };
        let mut by_taps = Preprocessor::by_taps(spec.clone());
        prop_assert_eq!(run(&spec, &frame), tensor_of(&mut by_taps, &frame));
    }
}

#[test]
fn a_warp_counts_pixel_centres_and_sees_padding() {
    let layout = FrameLayout::packed(PixelFormat::Grey, 2, 1, ColorDescription::JPEG).unwrap();
    for sampling in WARPING {
        let placement = Fit::WarpStretch.into();
        let spec = PreprocessSpec { placement, sampling, order: ChannelOrder::Grey, pad: 100.0, ..plain(4, 1) };
        // Positions 0, 0.5, 1 and 1.5.
        assert_eq!(run(&spec, &layout.view(&[20, 60]).unwrap()), [20.0, 40.0, 60.0, 80.0], "{sampling:?}");
    }
}

#[test]
fn tall_and_wide_inputs_far_beyond_the_frame_are_padding() {
    let layout = FrameLayout::packed(PixelFormat::Rgb, 1, 300, ColorDescription::default()).unwrap();
    let bytes = vec![10; layout.size_bytes()];
    for sampling in FITTING {
        let placement = Placement { pad_first: true, ..Fit::LetterboxTopLeft.into() };
        let out = run(&PreprocessSpec { placement, sampling, ..plain(500, 1) }, &layout.view(&bytes).unwrap());
        assert!(out[10..500].iter().all(|&value| (value - 114.0).abs() < 1e-3), "{sampling:?}: {out:?}");
    }
}

#[test]
fn cameras_of_several_sizes_take_turns() {
    let spec = PreprocessSpec { dtype: DType::U8, ..plain(33, 17) };
    let mut shared = Preprocessor::new(spec.clone()).unwrap();
    // More sizes than are kept, some alike in one side, and the same one twice in a row with another picture.
    let sizes = (1..=12).map(|i| (5 * i, 64 - 5 * i)).chain([(60, 1), (60, 1), (60, 2), (30, 2)]);
    for (round, (w, h)) in sizes.clone().chain(sizes).enumerate() {
        for format in [PixelFormat::Yuyv, PixelFormat::Bayer(BayerOrder::Grbg, BayerDepth::Bits12), PixelFormat::Grey] {
            let layout = FrameLayout::packed(format, w, h, ColorDescription::default()).unwrap();
            let bytes = noise(layout.size_bytes(), round as u64);
            let frame = layout.view(&bytes).unwrap();
            assert_eq!(tensor_of(&mut shared, &frame), run(&spec, &frame), "{format} {w}x{h}");
        }
    }
}

#[test]
fn the_largest_frame_fits_the_smallest_input_and_the_other_way_round() {
    let color = ColorDescription::default();
    let wide = FrameLayout::packed(PixelFormat::I420, MAX_SIDE, 1, color).unwrap();
    let bytes = vec![128; wide.size_bytes()];
    let tensor = run(&plain(1, 1), &wide.view(&bytes).unwrap());
    assert!(tensor.iter().all(|&value| (value - 130.41).abs() < 0.01), "{tensor:?}");
    let point = FrameLayout::packed(PixelFormat::Yuyv, 1, 1, color).unwrap();
    let spec = PreprocessSpec { dtype: DType::U8, order: ChannelOrder::Grey, ..plain(MAX_SIDE, 2) };
    let tensor = run(&spec, &point.view(&[128; 4]).unwrap());
    assert_eq!((tensor[0], tensor[MAX_SIDE as usize / 2]), (114.0, 130.0));
}

#[test]
fn a_tensor_of_a_batch_may_keep_its_leading_ones() {
    let mut preprocessor = Preprocessor::new(PreprocessSpec { dtype: DType::U8, ..plain(2, 2) }).unwrap();
    let layout = FrameLayout::packed(PixelFormat::Grey, 1, 1, ColorDescription::JPEG).unwrap();
    let frame = layout.view(&[7]).unwrap();
    let mut bytes = [0; 12];
    let mut out = TensorMut::new(DType::U8, &[1, 3, 2, 2], &mut bytes).unwrap();
    let mapping = preprocessor.run(&frame, &mut out).unwrap();
    assert_eq!(mapping.placed(), [0, 0, 2, 2]);
    assert_eq!(bytes, [7; 12]);
}

#[test]
fn a_wrong_tensor_is_an_error_that_shows_both() {
    let mut preprocessor = Preprocessor::new(plain(4, 2)).unwrap();
    let layout = FrameLayout::packed(PixelFormat::Grey, 1, 1, ColorDescription::JPEG).unwrap();
    let frame = layout.view(&[7]).unwrap();
    let mut bytes = [0; 96];
    let mut wrong = TensorMut::new(DType::F32, &[2, 4, 3], &mut bytes).unwrap();
    let error = preprocessor.run(&frame, &mut wrong).unwrap_err().to_string();
    assert!(error.contains("[2, 4, 3]") && error.contains("[3, 2, 4]"), "{error}");
    let mut wrong = TensorMut::new(DType::U8, &[3, 2, 4], &mut bytes[..24]).unwrap();
    let error = preprocessor.run(&frame, &mut wrong).unwrap_err().to_string();
    assert!(error.contains("u8") && error.contains("f32"), "{error}");
    let mut two = [0; 192];
    let mut wrong = TensorMut::new(DType::F32, &[2, 3, 2, 4], &mut two).unwrap();
    assert!(preprocessor.run(&frame, &mut wrong).is_err());
}

#[test]
fn an_impossible_spec_is_refused_with_its_value() {
    let refused = |spec: PreprocessSpec, text: &str| {
        let error = Preprocessor::new(spec).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let good = plain(4, 4);
    refused(PreprocessSpec { width: 0, ..good.clone() }, "0x4");
    refused(PreprocessSpec { height: MAX_SIDE + 1, ..good.clone() }, "16385");
    refused(PreprocessSpec { dtype: DType::I64, ..good.clone() }, "i64");
    refused(PreprocessSpec { std: [1.0, 0.0, 1.0], ..good.clone() }, "channel 1");
    refused(PreprocessSpec { mean: [0.0, 0.0, f32::NAN], ..good.clone() }, "mean is NaN");
    refused(PreprocessSpec { scale: f32::INFINITY, ..good.clone() }, "scale is inf");
    refused(PreprocessSpec { pad: 256.0, ..good.clone() }, "pad is 256");
    refused(PreprocessSpec { placement: Fit::Crop { fraction: 0.0 }.into(), ..good.clone() }, "fraction is 0");
    let warped = PreprocessSpec { placement: Fit::Warp.into(), ..good.clone() };
    refused(PreprocessSpec { sampling: Sampling::PillowBilinear, ..warped }, "PillowBilinear");
    refused(PreprocessSpec { sampling: Sampling::OpencvWarp, ..good.clone() }, "OpencvWarp");
    // What a grey input does not use may be anything.
    assert!(Preprocessor::new(PreprocessSpec { order: ChannelOrder::Grey, std: [1.0, 0.0, 0.0], ..good }).is_ok());
}
