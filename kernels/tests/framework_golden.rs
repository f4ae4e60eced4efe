//! Tensors as the training frameworks' own code makes them, and the samplers it is made of: tests/golden/framework_pixels.py.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::placement::{Fit, Placement, Resize, Rounding};
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Preprocessor, Sampling, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut, TensorRef};

/// What gives a framework's tensor.
struct Recipe {
    placement: Placement,
    sampling: Sampling,
    /// How many levels of 255 a value may differ by. With 0 all bytes are equal.
    levels: f64,
}

/// Returns the recipe of a line's framework or sampler; `None` if there is none.
fn recipe(name: &str, parameters: &[f64], input: (u32, u32)) -> Option<Recipe> {
    use Sampling::{
        Opencv, OpencvArea, OpencvCubic, OpencvWarp, OpencvWarpAffine, PillowBicubic, PillowBilinear, TensorflowLegacy,
        Torch, TorchAntialias, TorchAntialiasBicubic,
    };
    let top_left = |rounding| Placement { rounding, ..Fit::LetterboxTopLeft.into() };
    let stretch = || Placement::from(Fit::Stretch);
    let short_side = || Fit::ResizeCrop(Resize::ShortSide(parameters[0] as u32)).into();
    let fraction = || Placement { rounding: Rounding::Down, ..Fit::ResizeCrop(Resize::Fraction(parameters[0])).into() };
    let squash = || {
        let side = |input: u32| (f64::from(input) / parameters[0]) as u32;
        Fit::ResizeCrop(Resize::Stretch(side(input.0), side(input.1))).into()
    };
    // Floats differ by their rounding; bytes made of them by one where that decides.
    let (float, rounded) = (5e-3, 1.0);
    let (placement, sampling, levels) = match name {
        "ultralytics" | "yolov5" => (Fit::Letterbox.into(), Opencv, 0.0),
        "megvii-yolox" | "damo-yolo" => (top_left(Rounding::Down), Opencv, 0.0),
        "mmdet" => (top_left(Rounding::HalfUp), Opencv, 0.0),
        "nudenet" => (Placement { pad_first: true, ..Fit::LetterboxTopLeft.into() }, Opencv, 0.0),
        "ultralytics-classify" => (Fit::ResizeCrop(Resize::Fraction(1.0)).into(), PillowBilinear, 0.0),
        "caffe" => (Fit::ResizeCrop(Resize::Stretch(256, 256)).into(), Opencv, 0.0),
        "centerface" | "ultraface" | "cv2-linear" => (stretch(), Opencv, 0.0),
        "cv2-area" => (stretch(), OpencvArea, 0.0),
        // The last values of a row go through other code there, which rounds a half up.
        "cv2-cubic" | "paddle" => (stretch(), OpencvCubic, rounded),
        "nanodet" => (Fit::Warp.into(), OpencvWarp, 0.0),
        "nanodet-plus" => (Fit::WarpStretch.into(), OpencvWarp, 0.0),
        "centernet" => (Fit::Warp.into(), OpencvWarpAffine, 0.0),
        // Its matrix has errors that decide between two positions, 1/32 of a pixel apart, where these are equally near.
        "mediapipe" => (Fit::Warp.into(), OpencvWarp, (255.0_f64 / 32.0).ceil()),
        "pillow-bilinear" | "detr-pillow" | "rt-detr" => (stretch(), PillowBilinear, 0.0),
        "pillow-bicubic" => (stretch(), PillowBicubic, 0.0),
        "d-fine-letterbox" => (Placement { rounding: Rounding::Down, ..Fit::Letterbox.into() }, PillowBilinear, 0.0),
        "torchvision-classification" => (short_side(), PillowBilinear, 0.0),
        "torchvision-classification-bicubic" => (short_side(), PillowBicubic, 0.0),
        "timm" => (fraction(), PillowBicubic, 0.0),
        "timm-bilinear" => (fraction(), PillowBilinear, 0.0),
        "timm-squash" => (squash(), PillowBicubic, 0.0),
        // PyTorch's own bytes have weights of 16 bits.
        "detr" | "rt-detr-transformers" | "torchvision-v2-u8-bilinear-antialias" => (stretch(), PillowBilinear, 1.0),
        "torchvision-v2-u8-bicubic-antialias" => (stretch(), PillowBicubic, 2.0),
        "torch-bilinear" | "tf-bilinear" | "torchvision-ssd" | "rf-detr" => (stretch(), Torch, float),
        "torch-bilinear-antialias" | "tf-bilinear-antialias" | "rf-detr-1.8.0" => (stretch(), TorchAntialias, float),
        "torch-bicubic-antialias" | "tf-bicubic-antialias" => (stretch(), TorchAntialiasBicubic, float),
        "torchvision-u8-bilinear" => (stretch(), Torch, rounded),
        "torchvision-u8-bilinear-antialias" => (stretch(), TorchAntialias, rounded),
        "torchvision-u8-bicubic-antialias" => (stretch(), TorchAntialiasBicubic, rounded),
        "torchvision-classification-tensor" => (short_side(), TorchAntialias, rounded),
        "tf-legacy" => (stretch(), TensorflowLegacy, float),
        // Samplings that visiond does not have, and warps by matrices that no placement has.
        _ => return None,
    };
    Some(Recipe { placement, sampling, levels })
}

/// The script's `picture`.
fn picture(kind: &str, width: u32, height: u32, seed: u64) -> Vec<u8> {
    let hash = |i: u64| {
        let z = i.wrapping_add(seed.wrapping_mul(0x1_0000_0001)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (z ^ (z >> 32)) as u8
    };
    let (w, h) = (i64::from(width), i64::from(height));
    if kind == "noise" {
        return (0..(w * h * 3) as u64).map(hash).collect();
    }
    let pixel = |x: i64, y: i64| match kind {
        "gradient" => {
            [x * 255 / (w - 1).max(1), y * 255 / (h - 1).max(1), (x + y) * 255 / (w + h - 2).max(1)].map(|v| v as u8)
        }
        _ => [1536, 2304, 3328].map(|number| {
            let square = (2 * x + 1 - w).pow(2) + (2 * y + 1 - h).pow(2);
            let wave = (square * number / (w * w + h * h) + seed as i64) & 511;
            wave.min(511 - wave) as u8
        }),
    };
    (0..h).flat_map(|y| (0..w).flat_map(move |x| pixel(x, y))).collect()
}

fn list<T: FromStr>(text: &str) -> Vec<T> {
    let items = text.split(',').filter(|&item| item != "-");
    items.map(|item| item.parse().unwrap_or_else(|_| panic!("{text}"))).collect()
}

#[test]
fn frameworks_tensors_are_equal() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/framework_pixels.txt");
    // Cases and the largest difference, by name.
    let mut seen = BTreeMap::<String, (usize, f64)>::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| fields[i].parse::<u32>().unwrap();
        let (name, input) = (fields[0], (number(6), number(7)));
        let Some(recipe) = recipe(name, &list(fields[5]), input) else { continue };
        let bytes = fields[9] == "u8";
        let (scale, mean, std) = match bytes {
            true => (1.0, vec![0.0; 3], vec![1.0; 3]),
            false => (fields[10].parse::<f64>().unwrap(), list(fields[11]), list(fields[12])),
        };
        let spec = PreprocessSpec {
            width: input.0,
            height: input.1,
            placement: recipe.placement,
            sampling: recipe.sampling,
            pad: fields[13].parse::<f32>().unwrap(),
            order: if fields[8] == "rgb" { ChannelOrder::Rgb } else { ChannelOrder::Bgr },
            layout: TensorLayout::Nchw,
            dtype: if bytes { DType::U8 } else { DType::F32 },
            scale: scale as f32,
            mean: mean.iter().map(|&value: &f64| value as f32).collect::<Vec<_>>().try_into().unwrap(),
            std: std.iter().map(|&value: &f64| value as f32).collect::<Vec<_>>().try_into().unwrap(),
        };
        let (width, height) = (number(2), number(3));
        let frame = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default()).unwrap();
        let pixels = picture(fields[1], width, height, fields[4].parse().unwrap());
        let (dtype, shape) = (spec.dtype, spec.shape());
        let mut out = vec![0; shape.iter().product::<usize>() * dtype.size_bytes()];
        let mut preprocessor = Preprocessor::new(spec).unwrap();
        preprocessor.run(&frame.view(&pixels).unwrap(), &mut TensorMut::new(dtype, &shape, &mut out).unwrap()).unwrap();
        let tensor = TensorRef::new(dtype, &shape, &out).unwrap().to_f32().into_owned();

        let levels = |channel: usize| if bytes { 1.0 } else { std[channel] / scale };
        let mut worst = 0.0_f64;
        for pair in &fields[15..] {
            let (index, value) = pair.split_once(':').unwrap();
            let index: usize = index.parse().unwrap();
            let difference = f64::from(tensor[index]) - value.parse::<f64>().unwrap();
            worst = worst.max(difference.abs() * levels(index * 3 / tensor.len()));
        }
        assert!(worst <= recipe.levels, "{worst} levels: {}", fields[..10].join(" "));
        let check = fields[14].parse::<f64>().unwrap();
        if recipe.levels == 0.0 {
            let sum: f64 = tensor.iter().enumerate().map(|(i, &value)| (i + 1) as f64 * f64::from(value)).sum();
            assert_eq!(sum, check, "the bytes shown are right, others are not: {}", fields[..10].join(" "));
        } else if !bytes {
            let mean = tensor.iter().map(|&value| f64::from(value)).sum::<f64>() / tensor.len() as f64;
            assert!((mean - check).abs() <= recipe.levels, "mean {mean}, not {check}: {}", fields[..10].join(" "));
        }
        let entry = seen.entry(name.to_owned()).or_default();
        *entry = (entry.0 + 1, entry.1.max(worst));
    }
    println!("cases and the largest difference: {seen:#?}");
    assert_eq!(seen.len(), 46);
}
