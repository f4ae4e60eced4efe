//! The flags of `visiond build`, and the options that follow from them.

#![allow(clippy::unwrap_used)]

use clap::Parser;
use visiond_engine::engine::Dim;
use visiond_kernels::tensor::DType;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &str) -> Result<Args, String> {
    let words = std::iter::once("build").chain(line.split_whitespace());
    Line::try_parse_from(words).map(|line| line.args).map_err(|error| error.to_string())
}

#[test]
fn three_ways_to_say_shapes_give_the_same() {
    let one = profiles(&args("n.onnx --profile images=1x3x64x64,2x3x64x64,4x3x64x64").unwrap()).unwrap();
    let as_trtexec = "n.onnx --min-shapes images:1x3x64x64 --opt-shapes images:2x3x64x64 --max-shapes images:4x3x64x64";
    assert_eq!(profiles(&args(as_trtexec).unwrap()).unwrap(), one);
    assert_eq!(profiles(&args("n.onnx --shape images=1x3x64x64,2x3x64x64,4x3x64x64").unwrap()).unwrap(), one);
    let error = profiles(&args("n.onnx --min-shapes a:1 --opt-shapes b:1 --max-shapes a:2").unwrap()).unwrap_err();
    assert_eq!(error.message, "--opt-shapes has no shape for `a`, which --min-shapes names: add one");
    assert_eq!(error.exit, Exit::Usage);
    assert!(args("n.onnx --min-shapes a:1").unwrap_err().contains("--opt-shapes"));
}

#[test]
fn options_that_do_not_go_together_are_refused_by_name() {
    for (line, expected) in [
        ("n.onnx --fp16 --bf16", "--bf16"),
        ("n.onnx --half-io", "--fp16"),
        ("n.onnx --calibrate d", "--int8"),
        ("n.onnx --gpu-fallback", "--dla"),
        ("n.onnx --precision x=int8", "LAYER=fp32"),
        ("n.onnx --shape images", "images=1x3x640x640"),
        ("n.onnx --sm sm_86", "8.6"),
        ("n.onnx --hardware-compatible all", "ampere+"),
        ("n.onnx --optimization-level 6", "0..=5"),
        ("n.onnx --int8 --calibrate d --calibration kl", "entropy"),
    ] {
        assert!(args(line).map(drop).unwrap_err().contains(expected), "{line}");
    }
}

#[test]
fn the_options_are_told_as_they_were_given() {
    let line = "n.onnx --fp16 --precision type:Softmax=fp32 --workspace-mb 512 --dla 0 --gpu-fallback";
    let flags = args(line).unwrap().engine_flags();
    assert_eq!(flags, ["--fp16", "--gpu-fallback", "--precision=type:Softmax=fp32", "--workspace-mb=512", "--dla=0"]);
}

#[test]
fn the_card_gives_the_shapes_that_the_network_leaves_open_and_nobody_asked_for() {
    let mut card =
        Card::from_toml("[input]\nsize = [64, 32]\n[head]\nfamily = \"yolov8\"\n", Path::new("n.toml")).unwrap();
    let open = |name: &str| Dim::Dynamic(name.to_owned());
    let input =
        |name: &str, dims: &[Dim]| TensorInfo { name: name.to_owned(), dtype: DType::F32, shape: Some(dims.to_vec()) };
    let completed = |asked: &str, inputs: &[TensorInfo], card: &Card| {
        let mut profiles = profiles(&args(&format!("n.onnx {asked}")).unwrap()).unwrap();
        complete(&mut profiles, inputs, card);
        let text = |(name, range): (&String, &ShapeRange)| format!("{name}={range}");
        profiles.iter().flatten().map(text).collect::<Vec<_>>().join(" ")
    };
    let planes = [input("images", &[open(""), Dim::Fixed(3), open(""), open("")])];
    assert_eq!(completed("", &planes, &card), "images=1x3x32x64");
    assert_eq!(completed("--shape images=1x3x64x64", &planes, &card), "images=1x3x64x64");
    let all_open = [input("images", &[open("b"), open("c"), open("h"), open("w")])];
    assert_eq!(completed("", &all_open, &card), "images=1x3x32x64");
    let interleaved = [input("images", &[Dim::Fixed(2), open(""), open(""), Dim::Fixed(3)])];
    assert_eq!(completed("", &interleaved, &card), "images=2x32x64x3");
    assert_eq!(completed("", &[input("images", &[1, 3, 8, 8].map(Dim::Fixed))], &card), "");
    // The card also has the values of the other inputs.
    let [images] = &planes;
    let two = [images.clone(), input("image_shape", &[open("n"), open("two")])];
    assert_eq!(completed("", &two, &card), "");
    card = Card::from_toml(
        "[input]\nsize = [64, 32]\n[extra_inputs]\nimage_shape = \"input-size-hw\"\n[head]\nfamily = \"yolov8\"\n",
        Path::new("n.toml"),
    )
    .unwrap();
    assert_eq!(completed("", &two, &card), "image_shape=1x2 images=1x3x32x64");
    assert_eq!(completed("--shape images=1x3x64x64", &two, &card), "image_shape=1x2 images=1x3x64x64");
    assert_eq!(completed("--shape images=4x3x32x64", &two, &card), "image_shape=4x2 images=4x3x32x64");
    let masked = [
        input("images", &[open("b"), Dim::Fixed(3), open("h"), open("w")]),
        input("image_shape", &[open("b"), open("h"), open("w")]),
    ];
    let mask = Card::from_toml(
        "[input]\nsize = [64, 32]\n[extra_inputs]\nimage_shape = 1\n[head]\nfamily = \"yolov8\"\n",
        Path::new("n.toml"),
    )
    .unwrap();
    assert_eq!(completed("", &masked, &mask), "image_shape=1x32x64 images=1x3x32x64");
    assert_eq!(completed("--shape images=2x3x96x96", &masked, &mask), "image_shape=2x96x96 images=2x3x96x96");
    assert_eq!(completed("--shape images=1x3x64x64,2x3x64x64,4x3x64x64", &two, &card), "images=1x3x64x64..4x3x64x64");
}

#[test]
fn calibration_feeds_pictures_as_the_card_says() {
    use visiond_engine_builder::calibration::CalibrationFeed;

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let model = root.join("config/models/nanodet-g-416.onnx");
    let line = format!(
        "{} --int8 --calibrate {} --calibration-pictures 2",
        model.display(),
        root.join("tests/media").display()
    );
    let args = args(&line).unwrap();
    let mut pictures = CalibrationImages::open(&args, args.calibrate.as_deref().unwrap(), &[]).unwrap();
    assert_eq!(pictures.count(), 2);
    let tensor = pictures.next().unwrap().unwrap();
    assert_eq!(tensor.len(), 3 * 416 * 416 * 4);
    let numbers: Vec<f32> = tensor.as_chunks::<4>().0.iter().map(|chunk| f32::from_ne_bytes(*chunk)).collect();
    // NanoDet's mean and standard deviation: a pixel's 0 to 255 is about -2 to 2.7.
    assert!(numbers.iter().all(|number| (-2.2..2.8).contains(number)) && numbers.iter().any(|number| *number > 0.5));
    pictures.next().unwrap().unwrap();
    assert_eq!(pictures.next().unwrap(), None);
    let file = OnnxFile::read(&model).unwrap();
    let cache = pictures.cache_file(&args, &file).unwrap();
    assert!(
        cache.to_string_lossy().contains("c56a49a7981b") && cache.to_string_lossy().ends_with("-entropy.calibration")
    );
}
