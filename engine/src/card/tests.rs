//! Cards as people write them, right and wrong.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use proptest::prelude::*;

use std::collections::BTreeMap;
use std::path::Path;

use visiond_kernels::placement::{Fit, Resize, WayBack};
use visiond_kernels::preprocess::{ChannelOrder, Sampling, TensorLayout};
use visiond_kernels::tensor::DType;

use super::*;
use crate::backend::Dim;
use crate::backend::TensorInfo;
use crate::heads::build;
use crate::heads::spec::{
    Activation, AnchorKind, Background, BlazefaceSpec, BoxFormat, BoxUnit, BoxesSpec, Column, DarknetSpec, DepthSpec,
    FacesSpec, FacesStyle, GridStyle, HeatmapSpec, HeatmapStyle, Keypoints, NanodetSpec, Nearer, RowsSpec, YoloxSpec,
};
use crate::heads::{Family, HeadSpec};

fn card(text: &str) -> Card {
    Card::from_toml(text, Path::new("net.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn errors(text: &str) -> String {
    Card::from_toml(text, Path::new("net.toml")).unwrap_err().to_string()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/models")
}

fn tensor(name: &str, shape: &[usize]) -> TensorInfo {
    let shape = shape.iter().map(|&n| Dim::Fixed(n)).collect();
    TensorInfo { name: name.to_owned(), dtype: DType::F32, shape: Some(shape) }
}

#[test]
fn a_family_and_nothing_else_makes_a_card() {
    let card = card("[head]\nfamily = \"yolov8\"\n");
    assert_eq!(card.name, "net");
    assert_eq!(
        (card.input.placement.fit, card.input.pad, card.input.order),
        (Fit::Letterbox, 114.0, ChannelOrder::Rgb)
    );
    assert_eq!((card.input.scale, card.input.mean, card.input.std), (1.0 / 255.0, [0.0; 3], [1.0; 3]));
    assert_eq!((card.score_threshold, card.iou_threshold, card.max_detections), (0.25, 0.7, 300));
    assert_eq!(card.head, HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: false });
    assert!(card.classes.is_empty() && !card.class_agnostic && card.extra_inputs.is_empty());
}

#[test]
fn each_family_is_fed_as_its_project_feeds_it() {
    const RGB: [[f32; 3]; 2] = [[123.675, 116.28, 103.53], [58.395, 57.12, 57.375]];
    const BGR: [[f32; 3]; 2] = [[103.53, 116.28, 123.675], [57.375, 57.12, 58.395]];
    const IMAGENET: [[f32; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];
    const COCO: [[f32; 3]; 2] = [[0.408, 0.447, 0.47], [0.289, 0.274, 0.278]];
    const PLAIN: [[f32; 3]; 2] = [[0.0; 3], [1.0; 3]];
    const SIGNED: [[f32; 3]; 2] = [[1.0; 3], [1.0; 3]];
    use Sampling::{Opencv, OpencvWarp, OpencvWarpAffine, PillowBilinear};
    let (rgb, bgr) = (ChannelOrder::Rgb, ChannelOrder::Bgr);
    let (byte, cut) = (1.0 / 255.0, Fit::ResizeCrop(Resize::Fraction(0.875)));
    // Fit, sampling, padding, order, scale, mean and std.
    let cases = [
        ("yolov5", "", (Fit::Letterbox, Opencv, 114.0, rgb, byte, PLAIN)),
        ("yolov8", "", (Fit::Letterbox, Opencv, 114.0, rgb, byte, PLAIN)),
        ("yolo-nms", "", (Fit::Letterbox, Opencv, 114.0, rgb, byte, PLAIN)),
        ("yolox", "", (Fit::LetterboxTopLeft, Opencv, 114.0, bgr, 1.0, PLAIN)),
        ("nanodet", "", (Fit::Warp, OpencvWarp, 0.0, bgr, 1.0, BGR)),
        ("ssd", "", (Fit::Stretch, Opencv, 114.0, rgb, byte, PLAIN)),
        ("detr", "", (Fit::Stretch, PillowBilinear, 114.0, rgb, byte, PLAIN)),
        ("heatmap", "", (Fit::Warp, OpencvWarpAffine, 0.0, bgr, byte, COCO)),
        ("heatmap", "style = \"ttfnet\"", (Fit::Stretch, Opencv, 114.0, rgb, 1.0, RGB)),
        ("heatmap", "style = \"centerface\"", (Fit::Stretch, Opencv, 114.0, rgb, 1.0, PLAIN)),
        ("faces", "", (Fit::LetterboxTopLeft, Opencv, 0.0, rgb, 1.0, [[127.5; 3], [128.0; 3]])),
        ("faces", "style = \"yunet\"", (Fit::LetterboxTopLeft, Opencv, 0.0, bgr, 1.0, PLAIN)),
        (
            "faces",
            "style = \"retinaface\"",
            (Fit::LetterboxTopLeft, Opencv, 0.0, bgr, 1.0, [[104.0, 117.0, 123.0], [1.0; 3]]),
        ),
        ("heatmap", "style = \"detectnet\"", (Fit::Stretch, Opencv, 114.0, rgb, 1.0 / 255.0, PLAIN)),
        ("darknet", "anchors = [1, 2]", (Fit::Stretch, Opencv, 114.0, rgb, byte, PLAIN)),
        ("fomo", "", (Fit::Stretch, Opencv, 114.0, rgb, byte, PLAIN)),
        ("blazeface", "", (Fit::Warp, OpencvWarp, 0.0, rgb, 1.0 / 127.5, SIGNED)),
        ("classifier", "", (cut, PillowBilinear, 114.0, rgb, byte, IMAGENET)),
    ];
    for (family, style, (fit, sampling, pad, order, scale, [mean, std])) in cases {
        let Card { input, .. } = card(&format!("[head]\nfamily = \"{family}\"\n{style}\n"));
        let of_card =
            (input.placement.fit, input.sampling, input.pad, input.order, input.scale, [input.mean, input.std]);
        assert_eq!(of_card, (fit, sampling, pad, order, scale, [mean, std]), "{family}");
    }
    let way_back = |family| card(&format!("[head]\nfamily = \"{family}\"\n")).input.placement.way_back;
    assert_eq!(["yolov5", "yolov8", "yolox"].map(way_back), [WayBack::RatioFromMiddle, WayBack::Axes, WayBack::Ratio]);
}

#[test]
fn every_option_of_a_head_is_heard() {
    let head = |lines: &str| card(&format!("[head]\n{lines}\n")).head;
    let nanodet = |strides: &[u32], reg_max, sigmoid, cell_centre| {
        let strides = strides.to_vec();
        HeadSpec::Nanodet(NanodetSpec { strides, reg_max, sigmoid, cell_centre, multi_label: cell_centre })
    };
    let yolox = |decoded, strides: &[u32]| HeadSpec::Yolox(YoloxSpec { decoded, strides: strides.to_vec() });
    let heatmap =
        |style, stride, sigmoid| HeadSpec::Heatmap(HeatmapSpec { style, stride, sigmoid, ..HeatmapSpec::default() });
    let named = |name: &str| Some(name.to_owned());
    let boxes = BoxesSpec {
        boxes: named("b"),
        scores: named("s"),
        labels: named("l"),
        activation: Some(Activation::Softmax),
        format: Some(BoxFormat::Xywh),
        unit: Some(BoxUnit::Normalized),
        background: Some(Background::Last),
        ..BoxesSpec::default()
    };
    let options = "boxes = \"b\"\nscores = \"s\"\nlabels = \"l\"\nactivation = \"softmax\"\nformat = \"xywh\"\n\
        unit = \"normalized\"\nbackground = \"last\"";
    let maps = HeatmapSpec {
        style: HeatmapStyle::CenterFace,
        stride: 8,
        sigmoid: true,
        heat: named("h"),
        size: named("z"),
        offset: named("o"),
        landmarks: named("m"),
    };
    let map_options = "style = \"centerface\"\nstride = 8\nsigmoid = true\nheat = \"h\"\nsize = \"z\"\noffset = \"o\"\nlandmarks = \"m\"";
    for (family, lines, wanted) in [
        ("yolov5", "masks = 32", HeadSpec::Yolov5 { keypoints: None, masks: 32 }),
        (
            "yolov5",
            "keypoints = [5, 2]",
            HeadSpec::Yolov5 { keypoints: Some(Keypoints { count: 5, scored: false }), masks: 0 },
        ),
        ("yolov5", "", HeadSpec::Yolov5 { keypoints: None, masks: 0 }),
        ("yolov8", "masks = 32", HeadSpec::Yolov8 { keypoints: None, masks: 32, oriented: false }),
        ("yolov8", "oriented = true", HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: true }),
        (
            "yolo-nms",
            "oriented = true",
            HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: true, rows: RowsSpec::default() },
        ),
        (
            "yolo-nms",
            "",
            HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: false, rows: RowsSpec::default() },
        ),
        (
            "yolo-nms",
            "columns = [\"batch\", \"class\", \"score\", \"y1\", \"x1\", \"y2\", \"x2\", \"_\", \"_\"]\nnms = true\nbackground = \"first\"",
            HeadSpec::YoloNms {
                keypoints: None,
                unit: BoxUnit::Pixels,
                oriented: false,
                rows: RowsSpec {
                    columns: Some({
                        use Column::{Batch, Class, Score, Skipped, X1, X2, Y1, Y2};
                        vec![Batch, Class, Score, Y1, X1, Y2, X2, Skipped, Skipped]
                    }),
                    nms: true,
                    background: Background::First,
                    ..RowsSpec::default()
                },
            },
        ),
        (
            "yolo-nms",
            "boxes = \"b\"\nscores = \"s\"\nlabels = \"l\"",
            HeadSpec::YoloNms {
                keypoints: None,
                unit: BoxUnit::Pixels,
                oriented: false,
                rows: RowsSpec { boxes: named("b"), scores: named("s"), labels: named("l"), ..RowsSpec::default() },
            },
        ),
        ("yolox", "", yolox(false, &[8, 16, 32])),
        ("yolox", "decoded = true\nstrides = [16]", yolox(true, &[16])),
        ("nanodet", "", nanodet(&[8, 16, 32], 7, false, true)),
        (
            "nanodet",
            "strides = [4]\nreg_max = 16\nsigmoid = true\ncell_centre = false\nmulti_label = false",
            nanodet(&[4], 16, true, false),
        ),
        ("ssd", "", HeadSpec::Ssd(BoxesSpec::default())),
        ("ssd", &format!("{options}\ncount = \"n\""), HeadSpec::Ssd(BoxesSpec { count: named("n"), ..boxes.clone() })),
        (
            "detr",
            &format!("{options}\nmulti_label = true"),
            HeadSpec::Detr(BoxesSpec { multi_label: Some(true), ..boxes }),
        ),
        ("heatmap", "", heatmap(HeatmapStyle::CenterNet, 4, true)),
        ("heatmap", "style = \"ttfnet\"", heatmap(HeatmapStyle::TtfNet, 4, true)),
        ("heatmap", "style = \"centerface\"", heatmap(HeatmapStyle::CenterFace, 4, false)),
        ("heatmap", "style = \"detectnet\"", heatmap(HeatmapStyle::DetectNet, 16, false)),
        ("heatmap", map_options, HeadSpec::Heatmap(maps)),
        (
            "darknet",
            "anchors = [10, 13.5, 16, 30]\nscale_x_y = [1.2, 1]\nactivation = \"softmax\"",
            HeadSpec::Darknet(DarknetSpec {
                anchors: vec![[10.0, 13.5], [16.0, 30.0]],
                scale_x_y: vec![1.2, 1.0],
                activation: Activation::Softmax,
                style: GridStyle::Darknet,
            }),
        ),
        (
            "darknet",
            "anchors = [10, 13]\nstyle = \"yolov5\"",
            HeadSpec::Darknet(DarknetSpec {
                anchors: vec![[10.0, 13.0]],
                scale_x_y: Vec::new(),
                activation: Activation::Sigmoid,
                style: GridStyle::Yolov5,
            }),
        ),
        (
            "ssd",
            "anchors = \"efficientdet\"",
            HeadSpec::Ssd(BoxesSpec { anchors: Some(AnchorKind::EfficientDet), ..BoxesSpec::default() }),
        ),
        ("blazeface", "", HeadSpec::Blazeface(BlazefaceSpec { strides: None })),
        ("blazeface", "strides = [4]", HeadSpec::Blazeface(BlazefaceSpec { strides: Some(vec![4]) })),
        ("faces", "", HeadSpec::Faces(FacesSpec::default())),
        (
            "faces",
            "style = \"yunet\"\nstrides = [4]",
            HeadSpec::Faces(FacesSpec { style: FacesStyle::Yunet, strides: vec![4], ..FacesSpec::default() }),
        ),
        (
            "faces",
            "style = \"retinaface\"\nstrides = [8, 16]\nmin_sizes = [[10, 20], [32]]",
            HeadSpec::Faces(FacesSpec {
                style: FacesStyle::Retinaface,
                strides: vec![8, 16],
                min_sizes: vec![vec![10, 20], vec![32]],
            }),
        ),
        ("classifier", "", HeadSpec::Classifier { activation: None, background: Background::None }),
        (
            "classifier",
            "activation = \"sigmoid\"\nbackground = \"first\"",
            HeadSpec::Classifier { activation: Some(Activation::Sigmoid), background: Background::First },
        ),
        ("embedding", "", HeadSpec::Embedding { output: None, normalize: true }),
        (
            "embedding",
            "output = \"e\"\nnormalize = false",
            HeadSpec::Embedding { output: named("e"), normalize: false },
        ),
        ("depth", "", HeadSpec::Depth(DepthSpec { output: None, grid: [8, 6], nearer: Nearer::Larger })),
        (
            "depth",
            "output = \"d\"\ngrid = [1, 64]\nnearer = \"smaller\"",
            HeadSpec::Depth(DepthSpec { output: named("d"), grid: [1, 64], nearer: Nearer::Smaller }),
        ),
    ] {
        assert_eq!(head(&format!("family = \"{family}\"\n{lines}")), wanted, "{family} {lines}");
    }
    for (line, words) in [
        ("", "the card has no `anchors`: write those that the `mask` of each grid"),
        ("anchors = []", "`anchors` must be pairs of width and height"),
        ("anchors = [10, 13, 16]", "`anchors` must be pairs of width and height"),
        ("anchors = [10, 0]", "`anchors` must be pairs of width and height"),
        ("anchors = [10, 13]\nscale_x_y = [-1]", "`scale_x_y` must be a number for each grid"),
        ("anchors = [10, 13]\nactivation = \"none\"", "the numbers of Darknet's layers are not scores"),
    ] {
        let message = errors(&format!("[head]\nfamily = \"darknet\"\n{line}\n"));
        assert!(message.contains(words), "{message}");
    }
    let message = errors("[head]\nfamily = \"yolox\"\nstrides = []\n");
    assert!(message.contains("`strides` names no stride"), "{message}");
    for (lines, words) in [
        ("style = \"scrfd\"\nmin_sizes = [[16]]", "the [head] of family `faces` has no key `min_sizes`"),
        ("style = \"retinaface\"\nstrides = [8, 16]", "must have 1 to 16 sizes for each of the strides [8, 16]"),
        ("style = \"retinaface\"\nmin_sizes = [[16], [], [32]]", "must have 1 to 16 sizes for each"),
        ("style = \"retinaface\"\nmin_sizes = [16]", "`min_sizes` is a number, not a list of sizes for each grid"),
        ("style = \"yolov5-face\"", "`style` cannot be `yolov5-face`: there is `scrfd`, `yunet`, `retinaface`"),
    ] {
        let message = errors(&format!("[head]\nfamily = \"faces\"\n{lines}\n"));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_value_of_another_type_is_told_by_its_kind() {
    let head = "[head]\nfamily = \"yolov8\"\n";
    for (lines, words) in [
        ("[input]\npad = \"x\"", "`pad` is a text, not a number from 0 to 255"),
        ("[input]\npad = true", "`pad` is true or false, not a number"),
        ("[input]\npad = [1]", "`pad` is a list, not a number"),
        ("[input]\npad = 1979-05-27", "`pad` is a date, not a number"),
        ("[input.pad]", "`pad` is a table, not a number"),
        ("[input]\nfit = 3", "`fit` is a number, not one of `letterbox`, `letterbox-top-left`, `stretch`, `crop`"),
        ("[input]\nfit = \"zzz\"", "`fit` cannot be `zzz`: there is `letterbox`"),
        ("[input]\nsize = 1.5", "`size` is a number, not width and height"),
        ("[input]\nsize = 0", "`size` is 0, not a number from 1 to 16384"),
        ("[input]\nsize = [640, 1.5]", "`size` is a number, not a whole number from 1 to 16384"),
        ("[input]\nscale = \"1/0\"", "`scale` is \"1/0\": write a number or a fraction"),
        ("[input]\nscale = true", "`scale` is true or false, not a number"),
        ("[input]\nmean = [1, 2]", "`mean` is not a list of three numbers"),
        ("[input]\nmean = \"x\"", "`mean` is a text, not a list of three numbers"),
        ("[input]\nstd = [1, 0, 1]", "`std` divides, so it cannot be 0"),
        ("[input]\ncrop_fraction = 0.5", "`crop_fraction` applies to `fit = \"resize-crop\"` and `\"crop\"` only"),
        ("[extra_inputs]\na = true", "the extra input `a` must be a list of numbers"),
        ("[extra_inputs]\na = [\"x\"]", "the extra input `a` must be a list of numbers"),
        ("[extra_inputs]\na = \"input-size-wh\"", "the extra input `a` must be a list of numbers"),
        ("[classes]\nnames = [1]", "`names` is a number, not a text in quotes"),
        ("[classes]\nnames = [\"a\"]\npreset = \"coco80\"", "the classes are given more than once"),
        ("[classes]\nfile = \"f\"\npreset = \"coco80\"", "the classes are given more than once"),
        ("[detect]\nclass_agnostic = 1", "`class_agnostic` is a number, not true or false"),
    ] {
        let message = errors(&format!("{head}{lines}\n"));
        assert!(message.contains(words), "{lines}: {message}");
    }
    for (lines, size) in [("size = 320", (320, 320)), ("size = [1, 16384]", (1, 16_384))] {
        assert_eq!(card(&format!("{head}[input]\n{lines}\n")).input.size, Some(size));
    }
    assert_eq!(card(&format!("{head}[input]\nmean = [5]\n")).input.mean, [5.0; 3]);
    assert_eq!(card(&format!("{head}[extra_inputs]\na = 3\n")).extra_inputs["a"], ExtraInput::Values(vec![3.0]));
    for (order, wanted) in [("rgb", ChannelOrder::Rgb), ("grey", ChannelOrder::Grey)] {
        assert_eq!(card(&format!("{head}[input]\norder = \"{order}\"\n")).input.order, wanted);
    }
}

#[test]
fn thresholds_and_limits_are_those_of_the_familys_own_code() {
    for (head, wanted) in [
        ("family = \"yolov5\"", (0.25, 0.45, 1000)),
        ("family = \"yolov8\"", (0.25, 0.7, 300)),
        ("family = \"yolo-nms\"", (0.25, 0.7, 300)),
        ("family = \"yolox\"", (0.3, 0.45, 1000)),
        ("family = \"nanodet\"", (0.4, 0.6, 100)),
        ("family = \"ssd\"", (0.5, 0.5, 300)),
        ("family = \"detr\"", (0.5, 0.45, 300)),
        ("family = \"heatmap\"", (0.3, 0.3, 100)),
        ("family = \"heatmap\"\nstyle = \"ttfnet\"", (0.3, 0.3, 100)),
        ("family = \"heatmap\"\nstyle = \"centerface\"", (0.5, 0.3, 1000)),
        ("family = \"heatmap\"\nstyle = \"detectnet\"", (0.4, 0.5, 1000)),
        ("family = \"fomo\"", (0.5, 0.45, 1000)),
        ("family = \"darknet\"\nanchors = [1, 2]", (0.25, 0.45, 1000)),
        ("family = \"blazeface\"", (0.5, 0.3, 1000)),
        ("family = \"faces\"", (0.5, 0.4, 1000)),
        ("family = \"faces\"\nstyle = \"yunet\"", (0.9, 0.3, 1000)),
        ("family = \"faces\"\nstyle = \"retinaface\"", (0.6, 0.4, 1000)),
    ] {
        let card = card(&format!("[head]\n{head}\n"));
        assert_eq!((card.score_threshold, card.iou_threshold, card.max_detections), wanted, "{head}");
        assert!(!card.class_agnostic);
    }
}

#[test]
fn every_key_is_heard() {
    let card = card(
        r#"
        name = "mine"
        [input]
        name = "x"
        size = [320, 240]
        fit = "crop"
        crop_fraction = 0.5
        order = "bgr"
        layout = "nhwc"
        scale = "1/128"
        sampling = "exact"
        mean = [1, 2.5, 3]
        std = 2
        [extra_inputs]
        orig_target_sizes = "input-size"
        im_shape = "input-size-hw"
        scale_factor = [1, 1.5]
        [head]
        family = "yolo-nms"
        keypoints = [17, 3]
        unit = "normalized"
        [detect]
        score_threshold = 0.1
        iou_threshold = 0.2
        max_detections = 3
        class_agnostic = true
        [classes]
        names = ["a", "b"]
        "#,
    );
    assert_eq!((card.name.as_str(), card.input.name.as_deref()), ("mine", Some("x")));
    assert_eq!((card.input.size, card.input.placement.fit), (Some((320, 240)), Fit::Crop { fraction: 0.5 }));
    assert_eq!(
        (card.input.pad, card.input.order, card.input.layout),
        (114.0, ChannelOrder::Bgr, Some(TensorLayout::Nhwc))
    );
    assert_eq!((card.input.scale, card.input.mean, card.input.std), (1.0 / 128.0, [1.0, 2.5, 3.0], [2.0; 3]));
    assert_eq!(card.input.sampling, Sampling::Exact);
    assert_eq!(card.extra_inputs["orig_target_sizes"], ExtraInput::InputSize);
    assert_eq!(card.extra_inputs["im_shape"], ExtraInput::InputSizeHw);
    assert_eq!(card.extra_inputs["scale_factor"], ExtraInput::Values(vec![1.0, 1.5]));
    assert_eq!((card.score_threshold, card.iou_threshold, card.max_detections), (0.1, 0.2, 3));
    assert!(card.class_agnostic);
    assert_eq!(card.classes, ["a", "b"]);
}

#[test]
fn every_error_is_told_at_once_with_its_place_and_what_was_meant() {
    let text = "nam = \"x\"\n[input]\nsize = [640]\nfit = \"leterbox\"\n\tpad = 300\nstd = 0\n[head]\nfamily = \"yolov8\"\n\
        strides = [8]\n[detect]\nscore_treshold = 0.5\niou_threshold = \"high\"\n[classes]\npreset = \"coco\"\n";
    let message = errors(text);
    let wanted = "\
net.toml:1:1: the card has no key `nam`: did you mean `name`?
 1 | nam = \"x\"
   | ^^^
net.toml:3:8: `size` must be width and height, as in [640, 480], or one number for both
 3 | size = [640]
   |        ^^^^^
net.toml:4:7: `fit` cannot be `leterbox`: did you mean `letterbox`? There is `letterbox`, `letterbox-top-left`, `stretch`, `crop`, `resize-crop`, `warp`, `warp-stretch`
 4 | fit = \"leterbox\"
   |       ^^^^^^^^^^
net.toml:5:8: `pad` is 300, not a number from 0 to 255
 5 | \tpad = 300
   | \t      ^^^
net.toml:6:7: `std` divides, so it cannot be 0: use 1 to leave values unchanged
 6 | std = 0
   |       ^
net.toml:9:1: the [head] of family `yolov8` has no key `strides`: there is `family`, `keypoints`, `masks`, `oriented`
 9 | strides = [8]
   | ^^^^^^^
net.toml:11:1: [detect] has no key `score_treshold`: did you mean `score_threshold`?
 11 | score_treshold = 0.5
    | ^^^^^^^^^^^^^^
net.toml:12:17: `iou_threshold` is a text, not a number from 0 to 1
 12 | iou_threshold = \"high\"
    |                 ^^^^^^
net.toml:14:10: `preset` cannot be `coco`: did you mean `coco80`?
 14 | preset = \"coco\"
    |          ^^^^^^";
    assert_eq!(message, wanted, "\n{message}\n");
}

#[test]
fn numbers_beyond_their_bounds_are_refused() {
    let input = |line: &str| errors(&format!("[input]\nfit = \"crop\"\n{line}\n[head]\nfamily = \"yolov8\"\n"));
    for fraction in ["10", "1.001", "0", "-0.5"] {
        let message = input(&format!("crop_fraction = {fraction}"));
        assert!(message.contains(&format!("`crop_fraction` is {fraction}, not a number from 0.01 to 1")), "{message}");
    }
    let detect = |line: &str| errors(&format!("[head]\nfamily = \"yolov8\"\n[detect]\n{line}\n"));
    for key in ["score_threshold", "iou_threshold"] {
        for value in ["-0.1", "1.1"] {
            let message = detect(&format!("{key} = {value}"));
            assert!(message.contains(&format!("`{key}` is {value}, not a number from 0 to 1")), "{message}");
        }
    }
    for value in ["0", "100001"] {
        let message = detect(&format!("max_detections = {value}"));
        assert!(message.contains(&format!("`max_detections` is {value}, not a number from 1 to 100000")), "{message}");
    }
    for family in ["yolov8", "yolo-nms"] {
        for shape in ["[17, 1]", "[17, 4]", "[17]", "[17, 3, 1]"] {
            let message = errors(&format!("[head]\nfamily = \"{family}\"\nkeypoints = {shape}\n"));
            assert!(message.contains("must be a number of points and 2 (x, y) or 3 (x, y, score)"), "{message}");
        }
        for (shape, scored) in [("[17, 2]", false), ("[17, 3]", true)] {
            let head = card(&format!("[head]\nfamily = \"{family}\"\nkeypoints = {shape}\n")).head;
            let (HeadSpec::Yolov8 { keypoints, .. } | HeadSpec::YoloNms { keypoints, .. }) = head else { panic!() };
            assert_eq!(keypoints, Some(Keypoints { count: 17, scored }));
        }
    }
}

#[test]
fn oriented_boxes_go_with_no_keypoints_no_fractions_and_no_stretch() {
    let refused = |family: &str, head: &str, input: &str| {
        errors(&format!("[input]\n{input}\n[head]\nfamily = \"{family}\"\noriented = true\n{head}\n"))
    };
    for (family, head, other) in [
        ("yolov8", "keypoints = [17, 3]", "`keypoints`"),
        ("yolov8", "masks = 32", "`masks`"),
        ("yolo-nms", "keypoints = [17, 3]", "`keypoints`"),
        ("yolo-nms", "unit = \"normalized\"", "`unit = \"normalized\"`"),
    ] {
        let message = refused(family, head, "");
        assert!(message.contains(&format!("net.toml:5:12: `oriented` cannot go with {other}")), "{message}");
    }
    for input in ["fit = \"stretch\"", "fit = \"warp-stretch\"", "fit = \"resize-crop\"\nresize = [256, 200]"] {
        let message = refused("yolov8", "", input);
        assert!(message.contains("net.toml:2:7: oriented boxes lose their right angles"), "{message}");
    }
    assert!(card("[head]\nfamily = \"yolov8\"\noriented = true\n").head.is_oriented());
}

#[test]
fn a_card_without_a_head_is_told_the_families() {
    let message = errors("[classes]\npreset = \"coco80\"\n");
    assert!(message.contains("write `family = \"...\"` under [head], one of yolov5, yolov8"), "{message}");
    let message = errors("[head]\nfamily = \"yolo8\"\n");
    assert!(message.contains("did you mean `yolov8`?"), "{message}");
}

#[test]
fn what_is_no_toml_is_told_with_its_place() {
    let message = errors("[input\nsize = 3\n");
    assert!(message.starts_with("net.toml:1:7: this is not TOML: "), "{message}");
}

#[test]
fn the_columns_of_a_row_have_each_number_once() {
    let columns = |lines: &str| errors(&format!("[head]\nfamily = \"yolo-nms\"\n{lines}\n"));
    let all = r#"columns = ["class", "score", "x1", "y1", "x2", "y2"]"#;
    for (lines, words) in [
        (r#"columns = ["class", "x1", "y1", "x2", "y2"]"#, "net.toml:3:11: `columns` has no `score`: write each of"),
        (r#"columns = ["class", "score", "score", "x1", "y1", "x2", "y2"]"#, "`columns` has 2 times `score`"),
        (r#"columns = ["batch", "batch", "class", "score", "x1", "y1", "x2", "y2"]"#, "`columns` has 2 times `batch`"),
        (
            r#"columns = ["class", "scor", "x1", "y1", "x2", "y2"]"#,
            "net.toml:3:21: `columns` has no `scor`: did you mean `score`?",
        ),
        (
            r#"columns = ["class", "score", "cx", "cy", "w", "h", "x1"]"#,
            "`columns` also has `x1`: write each of class, score, cx",
        ),
        (r#"columns = ["class", "score", "cx", "cy", "w"]"#, "`columns` has no `h`"),
        (r#"columns = [0, 1]"#, "`columns` must be a list of the numbers of a row"),
        (r#"columns = "class""#, "`columns` is a text, not a list of the numbers of a row"),
        (&format!("{all}\nkeypoints = [17, 3]"), "`columns` cannot go with `keypoints`"),
        (&format!("{all}\noriented = true"), "`columns` cannot go with `oriented`"),
        (&format!("{all}\nlabels = \"classes\""), "net.toml:4:10: `labels` names an output of its own"),
    ] {
        let message = columns(lines);
        assert!(message.contains(words), "{lines}: {message}");
    }
}

#[test]
fn a_card_nested_without_end_is_refused() {
    assert!(errors(&format!("[input]\nmean = {}", "[".repeat(100_000))).contains("this is not TOML"));
}

#[test]
fn a_file_of_names_lies_beside_the_card() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pets.txt"), "cat\r\ndog \n\n").unwrap();
    let path = folder.path().join("net.toml");
    let card = Card::from_toml("[head]\nfamily = \"yolox\"\n[classes]\nfile = \"pets.txt\"\n", &path).unwrap();
    assert_eq!(card.classes, ["cat", "dog"]);
    let error = Card::from_toml("[head]\nfamily = \"yolox\"\n[classes]\nfile = \"no.txt\"\n", &path).unwrap_err();
    assert!(error.to_string().contains("cannot read") && error.to_string().contains("no.txt"), "{error}");
}

#[test]
fn the_cards_that_come_with_visiond_are_right() {
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            Card::read(&path).unwrap_or_else(|error| panic!("{error}"));
            count += 1;
        }
    }
    assert!(count >= 13, "{count} cards");
    let card = Card::read(&folder().join("nanodet-g-416.toml")).unwrap();
    assert_eq!((card.score_threshold, card.iou_threshold, card.classes.len()), (0.4, 0.6, 80));
    let output = [tensor("output", &[1, 3549, 124])];
    build(&card.head, &output, (416, 416), card.classes.len()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_manual_has_every_key_and_its_examples_are_cards() {
    let manual = std::fs::read_to_string(folder().join("../../docs/models.md")).unwrap();
    for example in manual.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        // The file of the example is the reader's.
        card(&example.replace("\"prompts.npy\"", "1"));
    }
    // A key that is like no other is answered with all that there are.
    let mut cards = vec!["0 = 0\n[head]\nfamily = \"yolov8\"\n".to_owned()];
    cards.extend(
        ["input", "detect", "classes", "keypoints"]
            .map(|table| format!("[head]\nfamily = \"yolov8\"\n[{table}]\n0 = 0\n")),
    );
    // A card without attributes or anchors has another error first.
    let attribute = "[[head.attribute]]\nname = \"a\"\noutput = \"a\"\n";
    let rest = |family| match family {
        Family::Attributes => attribute,
        Family::Darknet => "anchors = [1, 2]\n",
        _ => "",
    };
    cards.extend(Family::ALL.map(|(name, family)| format!("[head]\nfamily = \"{name}\"\n0 = 0\n{}", rest(family))));
    cards.push(format!("[head]\nfamily = \"attributes\"\n{attribute}0 = 0\n"));
    let mut count = 0;
    for text in cards {
        let message = errors(&text);
        let (_, keys) =
            message.lines().next().unwrap().split_once(": there is ").unwrap_or_else(|| panic!("{message}"));
        for key in keys.split(", ") {
            let documented = manual.contains(key) || manual.contains(&format!("[{}]", key.trim_matches('`')));
            assert!(documented, "docs/models.md says nothing of {key}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn explicit_comes_before_beside_comes_before_metadata_comes_before_an_example() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("net.onnx");
    let (inputs, outputs) = ([tensor("images", &[1, 3, 640, 640])], [tensor("output0", &[1, 84, 8400])]);
    let mut metadata = BTreeMap::new();
    let find = |explicit: Option<&Path>, metadata: &_| Card::for_model(&model, explicit, metadata, &inputs, &outputs);

    let error = find(None, &metadata).unwrap_err().to_string();
    let inspect = format!("`visiond inspect {}` tries which heads fit and prints a card", model.display());
    assert!(error.contains("net.toml does not exist") && error.contains(&inspect), "{error}");

    let names: Vec<String> = (0..80).map(|i| format!("{i}: 'c{i}'")).collect();
    metadata.insert("names".to_owned(), format!("{{{}}}", names.join(", ")));
    metadata.insert("stride".to_owned(), "32".to_owned());
    assert_eq!(find(None, &metadata).unwrap().classes[79], "c79");

    std::fs::write(model.with_extension("toml"), "name = \"beside\"\n[head]\nfamily = \"yolov8\"\n").unwrap();
    assert_eq!(find(None, &metadata).unwrap().name, "beside");

    let explicit = folder.path().join("other.toml");
    assert!(matches!(find(Some(&explicit), &metadata), Err(CardError::Read { .. })));
    std::fs::write(&explicit, "name = \"explicit\"\n[head]\nfamily = \"yolov8\"\n").unwrap();
    assert_eq!(find(Some(&explicit), &metadata).unwrap().name, "explicit");
}

#[test]
fn rows_of_an_order_that_nothing_shows_are_refused_with_the_key_that_names_it() {
    let find = |shape: &[usize]| {
        let (inputs, outputs) = ([tensor("images", &[1, 3, 640, 640])], [tensor("rows", shape)]);
        let model = Path::new("no/such/net.onnx");
        Card::for_model(model, None, &BTreeMap::new(), &inputs, &outputs).unwrap_err().to_string()
    };
    let error = find(&[1, 2001, 7]);
    assert!(error.contains("no head") && error.contains("the order of their numbers as `columns`"), "{error}");
    let error = find(&[1, 2001, 9]);
    assert!(error.ends_with(": export the model in one of the forms of docs/models.md"), "{error}");
}

#[test]
fn bytes_are_fed_as_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("net.onnx");
    let input = [TensorInfo { dtype: DType::U8, ..tensor("image", &[1, 320, 320, 3]) }];
    let scale = |text: &str| {
        std::fs::write(model.with_extension("toml"), text).unwrap();
        Card::for_model(&model, None, &BTreeMap::new(), &input, &[]).unwrap().input.scale
    };
    assert_eq!(scale("[head]\nfamily = \"ssd\"\n"), 1.0);
    assert_eq!(scale("[input]\nscale = 0.5\n[head]\nfamily = \"ssd\"\n"), 0.5);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\PC|[\n\"='\\[\\]{}#.,0-9a-z]){0,200}") {
        if let Err(error) = Card::from_toml(&text, Path::new("net.toml")) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn wrong_values_do_not_make_the_reader_panic(
        key in prop::sample::select(vec!["name", "size", "fit", "crop_fraction", "pad", "order", "layout", "scale", "mean", "std"]),
        value in prop::sample::select(vec!["1", "-1", "1e400", "nan", "[]", "[1]", "[[1]]", "{}", "\"é\"", "\"1/0\"", "true",
            "1979-05-27", "99999999999999999999", "[1, \"a\"]"]),
        tail in "[ -~é]{0,20}",
    ) {
        let _ = Card::from_toml(&format!("[input]\n{key} = {value}{tail}\n[head]\nfamily = \"yolox\"\n"), Path::new("c.toml"));
    }
}

#[test]
fn a_number_that_is_none_is_shown_as_it_was_written() {
    for (line, says) in [
        ("[input]\npad = nan", "`pad` is nan, not a number from 0 to 255"),
        ("[input]\nscale = -inf", "`scale` is -inf, not a number"),
        (
            "[detect]\nmax_detections = 9223372036854775808",
            "`max_detections` is 9223372036854775808, not a whole number",
        ),
        ("[input]\npad = \"x\"", "`pad` is a text, not a number from 0 to 255"),
    ] {
        let found = errors(&format!("[head]\nfamily = \"yolov8\"\n{line}\n"));
        assert!(found.contains(says), "{found}");
    }
}

#[test]
fn of_many_errors_the_first_hundred_are_shown() {
    let many: String = (0..2_000).map(|number| format!("key{number} = 1\n")).collect();
    assert_eq!(errors(&(many + "[head]\nfamily = \"yolov8\"\n")).matches("net.toml:").count(), 100);
}

#[test]
fn of_a_long_line_the_beginning_is_shown() {
    let found = errors(&format!("[head]\nfamily = \"{}\"\n", "x".repeat(1 << 20)));
    let lines: Vec<_> = found.lines().collect();
    assert!(lines[0].contains("`yolov8`"), "the remedy stays");
    assert!(lines.len() == 3 && lines[1].len() < 500 && lines[2].len() < 500, "{:?}", &lines[1..]);
}

#[test]
fn a_key_of_the_card_that_has_no_effect_is_refused() {
    let found = |lines: &str| {
        let text = format!("[input]\n{lines}\n[head]\nfamily = \"yolov8\"\n");
        Card::from_toml(&text, Path::new("net.toml")).err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (lines, key) in [
        ("fit = \"letterbox-top-left\"\nway_back = \"ratio-from-middle\"", "way_back"),
        ("fit = \"letterbox-top-left\"\nway_back = \"ratio-from-rounded-middle\"", "way_back"),
        ("fit = \"stretch\"\nrounding = \"down\"", "rounding"),
        ("fit = \"stretch\"\npad = 3", "pad"),
        ("pad_first = true\nrounding = \"down\"", "rounding"),
        ("pad_first = true\nway_back = \"axes\"", "way_back"),
        ("pad_first = true\nstep = \"ratio\"", "step"),
        ("fit = \"resize-crop\"\nresize = [400, 400]\nrounding = \"down\"", "rounding"),
        ("fit = \"warp-stretch\"\npad = 0", "pad"),
        ("scale = 0", "scale"),
        ("scale = \"0/255\"", "scale"),
    ] {
        let error = found(lines);
        assert!(error.contains(&format!(": `{key}` ")), "{lines}: {error}");
        assert_eq!(error.matches("net.toml:").count(), 1, "{lines}: {error}");
    }
    for lines in [
        // A framework's preprocessing with single keys changed.
        "preprocess = \"ultralytics\"\nfit = \"stretch\"",
        "preprocess = \"yolov5\"\nfit = \"letterbox-top-left\"",
        "preprocess = \"megvii-yolox\"\nfit = \"letterbox\"\nway_back = \"ratio-from-middle\"",
        "preprocess = \"nudenet\"\npad = 114",
        "preprocess = \"nudenet\"\npad_first = false\nrounding = \"down\"",
        "preprocess = \"timm\"\nrounding = \"half-up\"",
        "preprocess = \"mediapipe\"\npad = 114",
        "fit = \"letterbox-top-left\"\nway_back = \"ratio\"",
        "scale = 1e-3",
    ] {
        assert_eq!(found(lines), "", "{lines}");
    }
}

#[test]
fn a_name_of_more_than_256_characters_is_refused() {
    let (fits, long) = ("ä".repeat(256), "ä".repeat(257));
    let head = "[head]\nfamily = \"yolov8\"\n";
    assert_eq!(card(&format!("{head}[classes]\nnames = [\"{fits}\"]\n")).classes[0], fits);
    let error = errors(&format!("{head}[classes]\nnames = [\"a\", \"{long}\"]\n"));
    assert!(error.contains("net.toml:4:9: the name of class 1 has more than 256 characters: shorten it"), "{error}");
    assert!(errors(&format!("name = \"{long}\"\n{head}")).contains("`name` has more than 256 characters"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("names.txt"), format!("a\n{long}\n")).unwrap();
    let text = format!("{head}[classes]\nfile = \"names.txt\"\n");
    let error = Card::from_toml(&text, &folder.path().join("net.toml")).unwrap_err().to_string();
    assert!(error.contains(":4:8: the name of class 1 has more than 256 characters"), "{error}");
}

#[test]
fn a_name_of_the_model_breaks_no_line_of_an_error() {
    let card = card("[head]\nfamily = \"yolov8\"\n");
    let input =
        TensorInfo { shape: Some(vec![Dim::Dynamic("h\n\tb".to_owned())]), ..tensor("x\r\n\tnet.toml: forged", &[]) };
    assert_eq!(input.to_string(), "x\\r\\n\\tnet.toml: forged f32 [h\\n\\tb]");
    for key in ["head.family", "classes"] {
        assert!(card.problem_at(key, "no output is called `a\n\tb`").contains(": no output is called `a\\n\\tb`"));
    }
}

fn settled(text: &str, count: Option<usize>) -> Result<SettledKeypoints, (&'static str, String)> {
    let card = card(text);
    card.keypoints.settle(&card.head, &card.classes, count)
}

#[test]
fn keypoints_have_the_names_and_the_skeleton_of_the_card() {
    const CARD: &str = "[head]\nfamily = \"yolov8\"\nkeypoints = [3, 3]\n[keypoints]\nnames = [\"a\", \"b\", \"c\"]\n";
    let SettledKeypoints { names, skeleton } = settled(&format!("{CARD}skeleton = [[2, 0], [0, 1]]"), Some(3)).unwrap();
    assert_eq!((names, skeleton), (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], vec![[2, 0], [0, 1]]));
    assert_eq!(settled(CARD, Some(3)).unwrap().skeleton, [[0; 2]; 0]);
    // Open until the model runs.
    assert_eq!(settled(&format!("{CARD}skeleton = [[0, 999]]"), None).unwrap().skeleton, [[0, 999]]);
    for (more, count, key, wanted) in [
        ("", 4, "keypoints.names", "has 3 names, but the model's detections have 4 keypoints"),
        ("", 0, "keypoints.names", "have no keypoints"),
        ("skeleton = [[0, 1], [1, 3]]", 3, "keypoints.skeleton", "the line [1, 3]"),
    ] {
        let (at, error) = settled(&format!("{CARD}{more}"), Some(count)).unwrap_err();
        assert!(at == key && error.contains(wanted), "{at}: {error}");
    }
    let (key, error) = settled("[head]\nfamily = \"yolov5\"\n[keypoints]\nskeleton = [[0, 1]]", Some(0)).unwrap_err();
    assert!(key == "keypoints.skeleton" && error.contains("which has none"), "{error}");
}

#[test]
fn usual_keypoints_need_no_names_in_the_card() {
    let of = |head: &str, class: &str, count| {
        let SettledKeypoints { names, skeleton } =
            settled(&format!("[head]\nfamily = {head}\n[classes]\nnames = [{class}]"), Some(count)).unwrap();
        (names.first().cloned().unwrap_or_default(), names.len(), skeleton.len())
    };
    let found = |name: &str, names, lines| (name.to_owned(), names, lines);
    assert_eq!(of("\"yolov8\"", "\"person\"", 17), found("nose", 17, 19));
    assert_eq!(of("\"yolov8\"", "", 17), found("nose", 17, 19));
    assert_eq!(of("\"yolov8\"", "\"cat\", \"dog\"", 17), found("", 0, 0));
    assert_eq!(of("\"yolov8\"", "\"face\"", 5), found("right_eye", 5, 0));
    assert_eq!(of("\"yolov8\"", "\"plate\"", 5), found("", 0, 0));
    assert_eq!(of("\"heatmap\"\nstyle = \"centerface\"", "", 5), found("right_eye", 5, 0));
    assert_eq!(of("\"faces\"", "\"face\"", 5), found("right_eye", 5, 0));
    assert_eq!(of("\"blazeface\"", "\"face\"", 6), found("right_eye", 6, 0));
    assert_eq!(of("\"blazeface\"", "\"palm\"", 7), found("", 0, 0));
    // With only lines, the names stay.
    let SettledKeypoints { names, skeleton } =
        settled("[head]\nfamily = \"yolov8\"\n[keypoints]\nskeleton = []", Some(17)).unwrap();
    assert_eq!((names.len(), skeleton.len()), (17, 0));
}

#[test]
fn keypoints_of_a_card_are_checked() {
    let errors = |lines: &str| errors(&format!("[head]\nfamily = \"yolov8\"\n[keypoints]\n{lines}"));
    let long = "x".repeat(257);
    let mesh = "[0, 1],".repeat(3001);
    for (lines, wanted) in [
        ("skeleton = [[0, 0]]", "each line of `skeleton` connects two points"),
        ("skeleton = [[0, 1, 2]]", "each line of `skeleton` connects two points"),
        ("skeleton = [0, 1]", "`skeleton` is a number, not a list of pairs"),
        ("skeleton = [[0, -1]]", "`skeleton` is -1"),
        ("skeleton = [[0, 1000]]", "`skeleton` is 1000"),
        ("names = [1]", "`names` is a number"),
        ("name = [\"a\"]", "did you mean `names`?"),
        (&format!("names = [\"a\", \"{long}\"]"), "the name of point 1 has more than 256 characters"),
        (&format!("skeleton = [{mesh}]"), "`skeleton` has more than 3000 lines"),
    ] {
        let error = errors(lines);
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
}
