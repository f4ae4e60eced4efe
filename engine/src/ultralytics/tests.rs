//! Metadata as exports carry it, and as they should not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use visiond_kernels::placement::{Fit, Resize};
use visiond_kernels::preprocess::ChannelOrder;

use super::*;
use crate::backend::{Dim, TensorInfo};
use crate::card::Card;
use crate::heads::spec::{BoxUnit, BoxesSpec, HeadSpec, Keypoints, RowsSpec};
use visiond_kernels::tensor::DType;

fn tensor(name: &str, shape: &[i32]) -> TensorInfo {
    let dim = |&n: &i32| usize::try_from(n).map_or_else(|_| Dim::Dynamic("anchors".to_owned()), Dim::Fixed);
    TensorInfo { name: name.to_owned(), dtype: DType::F32, shape: Some(shape.iter().map(dim).collect()) }
}

fn metadata(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = [("author", "Ultralytics"), ("stride", "32"), ("imgsz", "[480, 640]")].iter().chain(pairs);
    pairs.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn coco() -> String {
    format!("{{{}}}", (0..80).map(|i| format!("{i}: 'c{i}'")).collect::<Vec<_>>().join(", "))
}

fn card_of(pairs: &[(&str, &str)], input: &[i32], outputs: &[&[i32]]) -> Result<Card, UltralyticsError> {
    let outputs: Vec<TensorInfo> = outputs.iter().map(|shape| tensor("output", shape)).collect();
    card(&metadata(pairs), &[tensor("images", input)], &outputs).unwrap()
}

const FIXED: &[i32] = &[1, 3, 480, 640];

fn head_of(pairs: &[(&str, &str)], outputs: &[&[i32]]) -> HeadSpec {
    card_of(pairs, FIXED, outputs).unwrap_or_else(|error| panic!("{error}")).head
}

#[test]
fn a_detector_is_fed_and_read_as_ultralytics_does() {
    let names = coco();
    let pairs = [
        ("names", names.as_str()),
        ("task", "detect"),
        ("description", "Ultralytics YOLO11n model trained on coco.yaml"),
    ];
    let card = card_of(&pairs, FIXED, &[&[1, 84, 6300]]).unwrap();
    assert_eq!((card.name.as_str(), card.origin.as_str()), ("YOLO11n", "its Ultralytics metadata"));
    assert_eq!((card.input.size, card.input.placement.fit, card.input.pad), (None, Fit::Letterbox, 114.0));
    assert_eq!((card.input.order, card.input.scale), (ChannelOrder::Rgb, 1.0 / 255.0));
    assert_eq!((card.head, card.classes.len()), (HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: false }, 80));
    assert_eq!((card.score_threshold, card.iou_threshold), (0.25, 0.7));
}

#[test]
fn the_size_comes_from_imgsz_where_the_input_is_dynamic() {
    let names = coco();
    let pairs = [("names", names.as_str()), ("task", "detect")];
    let card = card_of(&pairs, &[-1, 3, -1, -1], &[&[-1, 84, -1]]).unwrap();
    assert_eq!(card.input.size, Some((640, 480)), "imgsz is height, width; a card says width, height");
    assert_eq!(card.head, HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: false });
}

#[test]
fn each_task_and_shape_finds_its_head() {
    let names = coco();
    let all = ("names", names.as_str());
    let two = ("names", "{0: 'a', 1: 'b'}");
    let one = ("names", "['a']");
    let detect = ("task", "detect");
    let v8 = HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: false };
    let suppressed =
        HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: false, rows: RowsSpec::default() };
    let v5 = HeadSpec::Yolov5 { keypoints: None, masks: 0 };

    assert_eq!(head_of(&[all, detect], &[&[1, 84, 8400]]), v8);
    assert_eq!(head_of(&[two, detect], &[&[1, 6, 8400]]), v8);
    assert_eq!(head_of(&[all, detect], &[&[1, 300, 6]]), suppressed);
    assert_eq!(head_of(&[one, detect], &[&[1, 300, 6]]), suppressed);
    assert_eq!(head_of(&[all, detect, ("args", "{'batch': 1, 'nms': True}")], &[&[1, -1, 6]]), suppressed);
    assert_eq!(head_of(&[all, detect, ("end2end", "True")], &[&[-1, 300, 6]]), suppressed);
    assert_eq!(head_of(&[all, detect, ("end2end", "True")], &[&[1, 84, 8400]]), v8, "exported with end2end=False");
    assert_eq!(head_of(&[all], &[&[1, 25_200, 85]]), v5);
    assert_eq!(head_of(&[one], &[&[1, 25_200, 6]]), v5);
    assert_eq!(
        head_of(&[all], &[&[1, 25_200, 117], &[1, 32, 160, 160]]),
        HeadSpec::Yolov5 { keypoints: None, masks: 32 }
    );
    let detr = HeadSpec::Detr(BoxesSpec::default());
    assert_eq!(head_of(&[all, detect, ("description", "Ultralytics rtdetr-l model")], &[&[1, 300, 84]]), detr);
    assert_eq!(head_of(&[two, detect, ("description", "Ultralytics RT-DETR-l model")], &[&[1, 300, 6]]), detr);

    // From 8.4.47 on, rows of centre, size, score and class; with two classes, only the version tells them apart.
    let rows = rt_detr_rows();
    let description = ("description", "Ultralytics rtdetr-l model");
    let [before, since] = ["8.4.46", "8.4.47"].map(|version| ("version", version));
    assert_eq!(head_of(&[all, detect, description], &[&[1, 300, 6]]), rows);
    assert_eq!(head_of(&[two, detect, description, before], &[&[1, 300, 6]]), detr);
    assert_eq!(head_of(&[two, detect, description, since], &[&[1, 300, 6]]), rows);
    assert_eq!(head_of(&[all, detect, description, since], &[&[-1, -1, -1]]), rows);
    let retrained = [all, detect, ("description", "Ultralytics best model"), ("head", "RTDETRDecoder"), since];
    assert_eq!(head_of(&retrained, &[&[1, 300, 6]]), rows);

    let segment = ("task", "segment");
    let masks: &[i32] = &[1, 32, 160, 160];
    assert_eq!(
        head_of(&[all, segment], &[&[1, 116, 8400], masks]),
        HeadSpec::Yolov8 { keypoints: None, masks: 32, oriented: false }
    );
    assert_eq!(head_of(&[all, segment, ("end2end", "True")], &[&[1, 300, 38], masks]), suppressed);

    let turned = |names| [("names", names), ("task", "obb"), ("end2end", "True")];
    let v8_turned = HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: true };
    let suppressed_turned =
        HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: true, rows: RowsSpec::default() };
    assert_eq!(head_of(&turned("{0: 'a', 1: 'b'}"), &[&[1, 7, 8400]]), v8_turned);
    assert_eq!(head_of(&turned("{0: 'a', 1: 'b'}"), &[&[1, 300, 7]]), suppressed_turned);
    assert_eq!(head_of(&turned(&names), &[&[1, 85, 8400]]), v8_turned);
    assert!(card_of(&turned("['a']"), FIXED, &[&[1, 5, 8400]]).is_err(), "the angle is missing");

    let pose = [("names", "{0: 'person'}"), ("task", "pose"), ("kpt_shape", "[17, 3]")];
    let keypoints = Some(Keypoints { count: 17, scored: true });
    assert_eq!(head_of(&pose, &[&[1, 56, 8400]]), HeadSpec::Yolov8 { keypoints, masks: 0, oriented: false });
    assert_eq!(
        head_of(&pose, &[&[1, 300, 57]]),
        HeadSpec::YoloNms { keypoints, unit: BoxUnit::Pixels, oriented: false, rows: RowsSpec::default() }
    );
}

#[test]
fn a_classifier_sees_the_centre_and_rt_detr_the_whole_stretched() {
    let names = coco();
    let classifier = card_of(&[("names", &names), ("task", "classify")], &[1, 3, 224, 224], &[&[1, 80]]).unwrap();
    assert_eq!(
        (classifier.input.placement.fit, classifier.input.mean),
        (Fit::ResizeCrop(Resize::Fraction(1.0)), [0.0; 3])
    );
    assert_eq!(classifier.input.std, [1.0; 3]);
    let described = [("names", names.as_str()), ("description", "Ultralytics rtdetr-l model")];
    let rtdetr = card_of(&described, FIXED, &[&[1, 300, 84]]).unwrap();
    let chosen = card_of(&described, FIXED, &[&[1, 300, 6]]).unwrap();
    assert_eq!((chosen.input.placement.fit, chosen.score_threshold), (Fit::Stretch, 0.25));
    let placement = rtdetr.input.placement;
    assert_eq!((placement.fit, rtdetr.score_threshold, rtdetr.max_detections), (Fit::Stretch, 0.25, 300));
}

#[test]
fn other_metadata_is_not_taken_for_theirs() {
    let other = BTreeMap::from([("author".to_owned(), "Someone".to_owned()), ("names".to_owned(), "{}".to_owned())]);
    assert!(card(&other, &[], &[]).is_none());
    assert!(card(&BTreeMap::new(), &[], &[]).is_none());
}

/// The head of metadata with exactly these pairs, if it is a card.
fn head_of_these(pairs: &[(&str, &str)], output: &[i32]) -> Option<HeadSpec> {
    let metadata = pairs.iter().map(|(key, note)| ((*key).to_owned(), (*note).to_owned())).collect();
    let card = card(&metadata, &[tensor("images", FIXED)], &[tensor("output", output)])?;
    Some(card.unwrap_or_else(|error| panic!("{error}")).head)
}

#[test]
fn only_its_author_or_description_makes_metadata_ultralytics() {
    let (names, columns) = (("names", "{0: 'a', 1: 'b'}"), &[1, 6, 6300]);
    let v8 = Some(HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: false });
    let detect = ("task", "detect");
    assert_eq!(head_of_these(&[names, detect, ("author", "Ultralytics")], columns), v8);
    assert_eq!(head_of_these(&[names, detect, ("description", "Ultralytics YOLOv8n model")], columns), v8);
    // LibreYOLO and others.
    assert_eq!(head_of_these(&[names, detect], columns), None);
    assert_eq!(head_of_these(&[names, detect, ("stride", "32")], columns), None);
    assert_eq!(head_of_these(&[names, ("stride", "32"), ("model_family", "yolo9")], columns), None);
    assert_eq!(head_of_these(&[names, detect, ("author", "LibreYOLO")], columns), None);
    assert_eq!(head_of_these(&[names, detect, ("description", "trained with Ultralytics' data")], columns), None);
}

#[test]
fn the_two_keys_of_yolov5_count_only_with_its_outputs() {
    let pairs = [("names", "['a', 'b']"), ("stride", "32")];
    assert_eq!(head_of_these(&pairs, &[1, 18_900, 7]), Some(HeadSpec::Yolov5 { masks: 0, keypoints: None }));
    let v8 = HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: false };
    assert_eq!(head_of_these(&pairs, &[1, 6, 6300]), Some(v8), "YOLOv9 and the first versions of YOLOv8");
    // Rows of RT-DETR or after NMS, and outputs that do not fit.
    assert_eq!(head_of_these(&pairs, &[1, 300, 6]), None);
    assert_eq!(head_of_these(&pairs, &[1, 300, 9]), None);
}

#[test]
fn metadata_with_a_name_of_more_than_256_characters_is_damaged() {
    let card =
        |length| card_of(&[("names", &format!("{{0: '{}'}}", "a".repeat(length)))], &[1, 3, 64, 64], &[&[1, 5, 84]]);
    assert!(card(256).is_ok());
    let error = card(257).unwrap_err().to_string();
    assert!(error.contains("`names`") && error.contains("with a class name of more than 256 characters"), "{error}");
}

#[test]
fn damaged_metadata_is_told_with_its_key() {
    let refused = |pairs: &[(&str, &str)]| {
        card_of(pairs, &[1, 3, -1, -1], &[&[1, 84, 8400]]).map(|card| card.head).unwrap_err().to_string()
    };
    let names = coco();
    assert_eq!(
        refused(&[("names", "{0: 'person', 1: bicycle}")]),
        "its Ultralytics metadata is damaged: `names` is \"{0: 'person', 1: bicycle}\", with 'b' after 17 bytes instead of \
         a value: write a model card"
    );
    let message = refused(&[("names", "{'person': 0}")]);
    assert!(message.contains("whose keys are not numbers"), "{message}");
    let message = refused(&[("names", "{99999999999: 'x'}")]);
    assert!(message.contains("with an impossible class number"), "{message}");
    let message = refused(&[("names", "{}")]);
    assert!(message.contains("names no class"), "{message}");
    let message = refused(&[("names", &names), ("imgsz", "[-1, 640]")]);
    assert!(message.contains("`imgsz` is \"[-1, 640]\", not a height and a width"), "{message}");
    for shape in ["17", "[17]", "[17, 1]", "[17, 4]", "[0, 3]", "[1001, 3]"] {
        let message = refused(&[("names", &names), ("task", "pose"), ("kpt_shape", shape)]);
        assert!(message.contains("`kpt_shape`") && message.contains("as in [17, 3]"), "{message}");
    }
    let message = refused(&[("names", &names), ("task", "depth")]);
    assert!(message.contains("task is `depth`, which visiond does not support"), "{message}");
    let message = refused(&[("names", "{0: 'a', 1: 'b', 2: 'c'}")]);
    assert!(message.contains("task `detect` and 3 classes, but its outputs do not fit"), "{message}");
}

#[test]
fn a_gap_in_the_names_is_filled_with_numbers() {
    let card = card_of(&[("names", "{0: 'a', 2: 'c'}")], FIXED, &[&[1, 7, 8400]]).unwrap();
    assert_eq!(card.classes, ["a", "1", "c"]);
}

#[test]
fn the_points_of_a_pose_model_have_the_names_of_its_metadata_or_cocos() {
    let names_of = |shape: &str, names: Option<&str>, width: i32| {
        let pairs = [("names", "{0: 'x', 1: 'y'}"), ("task", "pose"), ("kpt_shape", shape)];
        let pairs: Vec<_> = pairs.into_iter().chain(names.map(|names| ("kpt_names", names))).collect();
        card_of(&pairs, FIXED, &[&[1, width, 6300]]).unwrap().keypoints.names
    };
    let first = |names: Option<Vec<String>>| names.map(|names| (names[0].clone(), names.len()));
    let coco = Some(("nose".to_owned(), 17));
    assert_eq!(first(names_of("[17, 3]", None, 57)), coco);
    let numbers = format!("{{0: {0:?}, 1: {0:?}}}", (0..17).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(first(names_of("[17, 3]", Some(&numbers), 57)), coco, "numbers are no names");
    assert_eq!(names_of("[2, 2]", None, 10), None);
    let named = names_of("[2, 2]", Some("{0: ['head', 'tail'], 1: ['head', 'tail']}"), 10);
    assert_eq!(named, Some(vec!["head".to_owned(), "tail".to_owned()]));
    for odd in [
        "{0: ['head', 'tail'], 1: ['left', 'right']}",
        "{0: ['head']}",
        "{0: ['0', '1']}",
        "{0: [1, 2]}",
        "{}",
        "['head', 'tail']",
        "nonsense",
        &format!("{{0: ['head', '{}']}}", "x".repeat(257)),
    ] {
        assert_eq!(names_of("[2, 2]", Some(odd), 10), None, "{odd}");
    }
}
