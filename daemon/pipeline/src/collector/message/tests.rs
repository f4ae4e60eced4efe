#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};
use visiond_engine::detector::MaskForm;
use visiond_frames::frame::FrameFacts;
use visiond_frames::timestamp::{Instant, Timestamp};
use visiond_kernels::frame::PixelFormat;
use visiond_kernels::mask::{Mask, Polygons, rle_decode};
use visiond_message::testing::{door_message, model};
use visiond_message::{MessageModel, Timings};
use visiond_system::testing::strict_schema;

use super::*;
use crate::lane_result::MaskFacts;

const SCHEMA: &str = include_str!("../../../../../docs/message.schema.json");

fn validator(schema: &str) -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(schema).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

static STRICT_SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| validator(&strict_schema(SCHEMA)));

fn violations(message: &Value) -> Vec<String> {
    STRICT_SCHEMA.iter_errors(message).map(|error| format!("{error} at {}", error.instance_path())).collect()
}

fn any_number() -> impl Strategy<Value = f32> {
    prop_oneof![8 => 0.0..4000_f32, 1 => any::<f32>(), 1 => Just(f32::NAN), 1 => Just(f32::INFINITY)]
}

fn keypoint() -> impl Strategy<Value = Keypoint> {
    (any_number(), any_number(), proptest::option::of(any_number())).prop_map(|(x, y, score)| Keypoint { x, y, score })
}

/// The facts of a frame of this size.
fn frame_of(width: u32, height: u32) -> FrameFacts {
    let timestamp = Timestamp { monotonic_ns: 0, realtime_ns: 0, instant: Instant::EndOfFrame };
    FrameFacts { width, height, format: "rgb", sequence: 3, timestamp, recorded_at: None, damaged: false, name: None }
}

/// The message for these in a frame.
fn joined(frame: FrameFacts, model: &ModelFacts, detections: &[Detection], values: &FrameValues) -> Message {
    let timings = Timings::default();
    message_of(
        &"door".into(),
        &LaneResult { frame, model, detections, values, crops: &[], timings },
        FrameTracks::default(),
    )
}

/// A model whose classes have this name, and whose masks have this form.
fn model_of(label: &str, masks: MaskFacts) -> ModelFacts {
    ModelFacts { message: model("m"), labels: vec![label.into()], masks, ..ModelFacts::default() }
}

/// Returns a detector's detections: boxes inside the frame. The other numbers are any at all.
fn detection(width: u32, height: u32) -> impl Strategy<Value = Detection> {
    let corner = (0.0..=1.0_f64, 0.0..=1.0_f64);
    let bounds = (corner.clone(), corner).prop_map(move |((x1, y1), (x2, y2))| {
        let (w, h) = (f64::from(width), f64::from(height));
        [x1.min(x2) * w, y1.min(y2) * h, x1.max(x2) * w, y1.max(y2) * h].map(|v| v as f32)
    });
    let turned = [any_number(), any_number(), any_number(), any_number(), any_number()]
        .prop_map(|[x, y, w, h, angle]| OrientedBox { center: [x, y], size: [w, h], angle });
    let turned = proptest::option::of(turned);
    (any::<u32>(), any_number(), proptest::option::of(bounds), turned, proptest::collection::vec(keypoint(), 0..4))
        .prop_map(|(class_id, score, box_in_source, oriented, keypoints)| Detection {
            class_id,
            score,
            box_in_source,
            oriented,
            keypoints,
            ..Detection::default()
        })
}

/// Returns values of a frame as heads give them, and with numbers that no head gives.
fn values() -> impl Strategy<Value = FrameValues> {
    let scored = || ("\\PC{0,8}", any_number()).prop_map(|(label, score)| ScoredLabel { label: label.into(), score });
    let reading = prop_oneof![
        scored().prop_map(Reading::Label),
        proptest::collection::vec(scored(), 0..3).prop_map(Reading::Labels),
        any_number().prop_map(Reading::Number),
    ];
    let depth = (0..4_usize, 1..4_usize).prop_flat_map(|(columns, rows)| {
        let cells = || proptest::collection::vec(proptest::option::of(any_number()), columns * rows);
        (cells(), cells()).prop_map(move |(nearest, median)| DepthGrid { columns, rows, nearest, median })
    });
    (proptest::collection::vec(reading, 0..4), proptest::collection::vec(-2.0..2.0_f32, 0..9), depth).prop_map(
        |(readings, embedding, depth)| {
            let named = readings.into_iter().enumerate();
            let attribute =
                |(index, reading): (usize, Reading)| AttributeValue { name: index.to_string().into(), reading };
            FrameValues { attributes: named.map(attribute).collect(), embedding, depth }
        },
    )
}

fn message() -> impl Strategy<Value = (Message, Vec<Detection>)> {
    let formats: Vec<_> = PixelFormat::all().collect();
    (1..=16384_u32, 1..=16384_u32, proptest::sample::select(formats), any::<u64>(), any::<u64>(), any::<[u64; 6]>())
        .prop_flat_map(|(width, height, format, sequence, time, timings)| {
            let rest = (
                "\\PC{1,12}",
                proptest::option::of("\\PC{1,20}"),
                any::<String>(),
                proptest::collection::vec(detection(width, height), 0..6),
                proptest::collection::vec(any::<String>(), 0..4),
                values(),
            );
            rest.prop_map(move |(camera, file, label, seen, names, values)| {
                let [capture, queue, preprocess, infer, postprocess, total] = timings;
                let timestamp = Timestamp { monotonic_ns: time, realtime_ns: time, instant: Instant::EndOfFrame };
                let skeleton = (1..names.len() as u32).map(|point| [point - 1, point]).collect();
                let model = ModelFacts {
                    message: Arc::new(MessageModel { skeleton, ..MessageModel::clone(&model("m")) }),
                    labels: vec![label.into()],
                    keypoint_names: names.iter().map(|name| Arc::from(name.as_str())).collect(),
                    ..ModelFacts::default()
                };
                let (damaged, name) = (sequence % 2 == 0, file.map(Into::into));
                let result = LaneResult {
                    frame: FrameFacts {
                        width,
                        height,
                        format: format.name(),
                        sequence,
                        timestamp,
                        recorded_at: None,
                        damaged,
                        name,
                    },
                    model: &model,
                    detections: &seen,
                    values: &values,
                    crops: &[],
                    timings: Timings { capture, queue, preprocess, infer, postprocess, total },
                };
                let message = message_of(&camera.into(), &result, FrameTracks::default());
                (message, seen)
            })
        })
}

fn close(written: &Value, meant: f32, tolerance: f64) -> bool {
    // f32 itself has steps of 0.001 at the far end of the largest frames.
    (written.as_f64().unwrap() - f64::from(meant)).abs() <= tolerance + f64::from(meant.abs()) * 1e-7
}

proptest! {
    #[test]
    fn any_message_is_one_line_that_the_schema_allows((message, seen) in message()) {
        let line = message.to_line();
        prop_assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
        prop_assert_eq!(line.last(), Some(&b'\n'));
        let written: Value = serde_json::from_slice(&line).unwrap();
        prop_assert_eq!(violations(&written), Vec::<String>::new());

        let told: Vec<_> = seen.iter().filter(|d| detection_of(d, "".into(), &[]).is_some()).collect();
        for (written, meant) in written["detections"].as_array().unwrap().iter().zip(told) {
            prop_assert!(close(&written["score"], meant.score.clamp(0.0, 1.0), 5.1e-5));
            let Some([x1, y1, x2, y2]) = meant.box_in_source else { continue };
            let bounds = &written["box"];
            let number = |key: &str| bounds[key].as_f64().unwrap();
            prop_assert!(close(&bounds["x"], x1, 5.1e-4) && close(&bounds["y"], y1, 5.1e-4));
            prop_assert!(close(&(number("x") + number("width")).into(), x2, 5.2e-4));
            prop_assert!(close(&(number("y") + number("height")).into(), y2, 5.2e-4));
            prop_assert!(number("x") + number("width") <= f64::from(message.frame.width) + 1e-9);
            prop_assert!(number("y") + number("height") <= f64::from(message.frame.height) + 1e-9);
        }
    }
}

/// The polygons of a mask, without a budget.
fn traced(mask: &Mask, tolerance_pixels: u32) -> Vec<Vec<f32>> {
    let mut polygons = Polygons::new();
    polygons.trace(mask, tolerance_pixels as f32);
    polygons.rings().map(|ring| ring.as_flattened().to_vec()).collect()
}

/// A mask whose words are made by `word` from their numbers.
fn mask_of(width: u32, height: u32, word: impl Fn(u32) -> u32) -> Mask {
    Mask { left: 0, top: 0, width, height, words: (0..width / 32 * height).map(word).collect() }
}

/// The detections of a message whose masks are these, best first, in a frame of 1920x1080.
fn detections_with(masks: &[Mask], form: MaskForm) -> Message {
    let model = model_of("car", MaskFacts { form, tolerance_pixels: 1 });
    let detection = |mask: &Mask| Detection { score: 0.5, mask: Some(mask.clone()), ..Detection::default() };
    let detections: Vec<_> = masks.iter().map(detection).collect();
    joined(frame_of(1920, 1080), &model, &detections, &FrameValues::NONE)
}

#[test]
fn masks_of_noise_are_left_out_and_those_of_objects_stay() {
    let noise = |seed: u32| {
        let word = move |index: u32| {
            let mixed = (index + seed * 977).wrapping_mul(0x9e37_79b9);
            (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b)
        };
        mask_of(1920, 240, word)
    };
    let object = mask_of(64, 200, |_| !0);
    for form in [MaskForm::Polygons, MaskForm::Rle, MaskForm::Both] {
        let mut masks: Vec<_> = (0..8).map(noise).collect();
        let edges: Vec<_> = masks.iter().map(|mask| mask.edges_within(u64::MAX).unwrap()).collect();
        assert!(edges[..4].iter().sum::<u64>() < 1 << 21 && edges[..5].iter().sum::<u64>() > 1 << 21, "{edges:?}");
        masks.push(object.clone());
        let message = detections_with(&masks, form);
        let truncated: Vec<_> = message.detections.iter().map(|found| found.truncated).collect();
        assert_eq!(truncated, [false, false, false, false, true, true, true, true, false], "{form:?}");
        assert_eq!(message.truncated_masks(), 4);
        for (found, mask) in message.detections.iter().zip(&masks) {
            assert_eq!(found.area, Some(mask.area()), "it costs little");
            assert_eq!(found.segments.is_some(), form.has_polygons() && !found.truncated);
            assert_eq!(found.mask.is_some(), form.has_rle() && !found.truncated);
        }
        let written: Value = serde_json::from_slice(&message.to_line()).unwrap();
        assert_eq!(violations(&written), Vec::<String>::new());
        assert_eq!(
            (&written["detections"][4]["truncated"], written["detections"][8].get("truncated")),
            (&json!(true), None)
        );
    }
    // Parts that nobody requested do not count as left out.
    assert_eq!(detections_with(&[noise(0), noise(1), noise(2)], MaskForm::None).truncated_masks(), 0);
}

#[test]
fn a_message_has_no_more_bytes_of_masks_than_its_budget() {
    // 2,500 pixels by themselves, each an outline of four points.
    let specks = mask_of(128, 100, |index| if index / 4 % 2 == 0 && index % 4 < 3 { 0x5555_5555 } else { 0 });
    let message = detections_with(&vec![specks; 100], MaskForm::Polygons);
    let truncated = message.truncated_masks();
    assert!((50..80).contains(&truncated), "{truncated}");
    assert!(message.detections[..100 - truncated].iter().all(|found| !found.truncated), "the best ones stay");
    let bytes = message.to_line().len();
    assert!((2 << 20..6 << 20).contains(&bytes), "{bytes}");
}

proptest! {
    #[test]
    fn any_mask_is_written_as_the_schema_has_it(
        rows in proptest::collection::vec(any::<u64>(), 1..40),
        left in 0..50_u32,
        top in 0..50_u32,
        tolerance_pixels in 0..4_u32,
        form in proptest::sample::select(vec![MaskForm::None, MaskForm::Polygons, MaskForm::Rle, MaskForm::Both]),
    ) {
        let words = rows.iter().flat_map(|row| [*row as u32, (*row >> 32) as u32]).collect();
        let mask = Mask { left, top, width: 64, height: rows.len() as u32, words };
        let found = Detection { score: 0.5, fraction: Some(0.25), mask: Some(mask.clone()), ..Detection::default() };
        let model = model_of("car", MaskFacts { form, tolerance_pixels });
        let message = joined(frame_of(120, 100), &model, &[found], &FrameValues::NONE);
        let written: Value = serde_json::from_slice(&message.to_line()).unwrap();
        prop_assert_eq!(violations(&written), Vec::<String>::new());
        let told = &written["detections"][0];
        prop_assert_eq!(told["area"].as_u64(), Some(mask.area()));
        prop_assert_eq!(told.get("segments").is_some(), form.has_polygons());
        prop_assert_eq!(told.get("mask").is_some(), form.has_rle());
        prop_assert_eq!(told.get("truncated"), None);
        if let Some(segments) = &message.detections[0].segments {
            prop_assert_eq!(segments, &traced(&mask, tolerance_pixels));
        }
        if form.has_rle() {
            let back = rle_decode(told["mask"]["rle"]["counts"].as_str().unwrap(), 120, 100).unwrap();
            prop_assert_eq!((back.area(), back.iou(&mask)), (mask.area(), if mask.area() == 0 { 0.0 } else { 1.0 }));
        }
    }
}

#[test]
fn a_class_of_a_map_has_its_part_of_the_frame_even_if_that_is_one_pixel() {
    let part = |fraction| {
        let found = Detection { score: 0.5, fraction: Some(fraction), ..Detection::default() };
        let message = detection_of(&found, "road".into(), &[])?;
        let written = serde_json::to_string(&message).unwrap();
        Some(written.split_once("\"fraction\":").unwrap().1.split_once(['}', ',']).unwrap().0.to_owned())
    };
    assert_eq!(part(0.123_456_7), Some("0.123457".to_owned()));
    // A pixel of 1280 x 720.
    assert_eq!(part(1.0 / 921_600.0), Some("0.000001".to_owned()));
    assert_eq!(part(1.000_000_1), Some("1.0".to_owned()));
    assert_eq!(part(f32::NAN), None);
    let plain = serde_json::to_value(DetectionMessage::default()).unwrap();
    assert_eq!(plain.get("fraction"), None);
}

fn example() -> Value {
    let detection = Detection {
        class_id: 0,
        score: 0.873_14,
        box_in_source: Some([412.5, 180.219_4, 500.625, 420.969]),
        // The second has no name.
        keypoints: vec![Keypoint { x: 1.0, y: -0.000_2, score: None }, Keypoint { x: 2.0, y: 3.0, score: None }],
        ..Detection::default()
    };
    let model = ModelFacts {
        message: Arc::new(MessageModel { skeleton: vec![[0, 1]], ..MessageModel::clone(&model("m")) }),
        keypoint_names: vec!["nose".into()],
        ..model_of("person", MaskFacts::default())
    };
    serde_json::from_slice(&joined(frame_of(640, 480), &model, &[detection], &FrameValues::NONE).to_line()).unwrap()
}

#[test]
fn numbers_have_the_decimals_that_mean_something() {
    let detection = &example()["detections"][0];
    assert_eq!(detection["score"].to_string(), "0.8731");
    assert_eq!(detection["box"], json!({"x": 412.5, "y": 180.219, "width": 88.125, "height": 240.75}));
    assert_eq!(detection["keypoints"], json!([{"name": "nose", "x": 1.0, "y": 0.0}, {"x": 2.0, "y": 3.0}]));
}

#[test]
fn a_skeleton_is_pairs_of_points_and_absent_without_lines() {
    assert_eq!(example()["model"]["skeleton"], json!([[0, 1]]));
    let message = serde_json::to_value(&*door_message(3, 1)).unwrap();
    let keys: Vec<_> = message["model"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["name", "sha256"]);
}

#[test]
fn what_is_no_number_is_not_told() {
    let detection =
        |score, x1| Detection { class_id: 0, score, box_in_source: Some([x1, 0.0, 1.0, 1.0]), ..Detection::default() };
    assert_eq!(detection_of(&detection(f32::NAN, 0.0), "".into(), &[]), None);
    assert_eq!(detection_of(&detection(0.5, f32::INFINITY), "".into(), &[]), None);
    assert!(detection_of(&detection(0.5, 0.0), "".into(), &[]).is_some());
}

/// A message with values of the frame.
fn message_of_values() -> Message {
    let label = |label: &str, score| ScoredLabel { label: label.into(), score };
    let attribute = |name: &str, reading| AttributeValue { name: name.into(), reading };
    let values = FrameValues {
        attributes: vec![
            attribute("gender", Reading::Label(label("female", 0.970_04))),
            attribute("age", Reading::Number(31.2)),
            attribute("worn", Reading::Labels(vec![label("hat", 0.9), label("bag", 0.7)])),
            attribute("held", Reading::Labels(Vec::new())),
            attribute("broken", Reading::Number(f32::NAN)),
        ],
        embedding: vec![1.0, -0.5, 65504.0],
        depth: DepthGrid {
            columns: 2,
            rows: 1,
            nearest: vec![Some(0.512_345_6), None],
            median: vec![Some(1.0), Some(f32::INFINITY)],
        },
    };
    joined(frame_of(640, 480), &model_of("", MaskFacts::default()), &[], &values)
}

fn example_of_values() -> Value {
    serde_json::from_slice(&message_of_values().to_line()).unwrap()
}

#[test]
fn values_of_the_frame_are_written_in_the_cards_order() {
    assert_eq!(violations(&example_of_values()), Vec::<String>::new());
    let line = String::from_utf8(message_of_values().to_line()).unwrap();
    let attributes = concat!(
        r#""attributes":{"gender":{"label":"female","score":0.97},"age":{"value":31.2},"#,
        r#""worn":{"labels":[{"label":"hat","score":0.9},{"label":"bag","score":0.7}]},"held":{"labels":[]}}"#
    );
    // 1 is 0x3c00, -0.5 is 0xb800, 65504 is 0x7bff; the low byte first.
    let embedding = r#""embedding":{"length":3,"f16":"ADwAuP97"}"#;
    let depth = r#""depth":{"columns":2,"rows":1,"nearest":[0.51235,null],"median":[1.0,null]}"#;
    for part in [attributes, embedding, depth] {
        assert!(line.contains(part), "{line}");
    }
    let plain = serde_json::to_value(&*door_message(3, 1)).unwrap();
    assert!(["attributes", "embedding", "depth"].iter().all(|key| plain.get(key).is_none()), "{plain}");
}

#[test]
fn a_message_with_values_is_not_empty() {
    let model = model_of("", MaskFacts::default());
    let joined = |values: &FrameValues| joined(frame_of(640, 480), &model, &[], values);
    assert!(!joined(&FrameValues { embedding: vec![1.0], ..FrameValues::default() }).is_empty());
    assert!(joined(&FrameValues::default()).is_empty() && !door_message(3, 1).is_empty());
}

#[test]
fn the_schema_refuses_values_that_visiond_does_not_write() {
    let refused = |change: fn(&mut Value)| {
        let mut message = example_of_values();
        change(&mut message);
        assert!(!STRICT_SCHEMA.is_valid(&message), "{message}");
    };
    refused(|m| m["attributes"] = json!({}));
    refused(|m| m["attributes"]["gender"] = json!({"label": "x"}));
    refused(|m| m["attributes"]["age"] = json!({"value": null}));
    refused(|m| m["attributes"]["age"] = json!({"value": 1, "score": 1}));
    refused(|m| m["embedding"]["f16"] = json!("A*=="));
    refused(|m| m["embedding"]["length"] = json!(0));
    refused(|m| m["depth"]["columns"] = json!(65));
    refused(|m| m["depth"]["median"] = json!(["x"]));
    refused(|m| drop(m["depth"].as_object_mut().unwrap().remove("nearest")));
}

#[test]
fn the_schema_refuses_what_it_does_not_describe() {
    assert_eq!(violations(&example()), Vec::<String>::new());
    let refused = |change: fn(&mut Value)| {
        let mut message = example();
        change(&mut message);
        assert!(!STRICT_SCHEMA.is_valid(&message), "{message}");
    };
    refused(|m| m["colour"] = 1.into());
    refused(|m| m["frame"]["depth"] = 1.into());
    refused(|m| m["detections"][0]["box"]["x2"] = 1.into());
    refused(|m| m["detections"][0]["score"] = json!(1.01));
    refused(|m| m["detections"][0]["box"]["x"] = Value::Null);
    refused(|m| m["model"]["skeleton"] = json!([[0]]));
    refused(|m| m["model"]["skeleton"] = json!([[0, -1]]));
    refused(|m| m["model"]["skeleton"] = json!([]));
    refused(|m| m["detections"][0]["keypoints"][0]["name"] = 1.into());
    refused(|m| m["detections"][0]["truncated"] = json!(false));
    refused(|m| m["schema"] = "visiond/2".into());
    refused(|m| m["captured_at"] = "2026-03-01T09:30:12Z".into());
    refused(|m| drop(m.as_object_mut().unwrap().remove("timings_us")));
}

#[test]
fn the_schema_allows_fields_that_a_later_version_adds() {
    fn extend(value: &mut Value) -> usize {
        match value {
            Value::Array(items) => items.iter_mut().map(extend).sum(),
            Value::Object(members) => {
                // The members of `attributes` have names of the model.
                let inner: usize =
                    members.iter_mut().filter(|(name, _)| *name != "attributes").map(|(_, m)| extend(m)).sum();
                members.insert("later".to_owned(), json!({ "x": 1 }));
                inner + 1
            }
            _ => 0,
        }
    }
    let message = serde_json::to_value(&*door_message(3, 1)).unwrap();
    assert_eq!(violations(&message), [""; 0]);
    let mut extended = message.clone();
    let objects = extend(&mut extended);
    assert!(objects > 4, "{extended}");
    let open = validator(SCHEMA);
    assert!(open.is_valid(&message) && open.is_valid(&extended), "{extended}");
    assert_eq!(violations(&extended).len(), objects, "{extended}");
    // It still knows the fields of this version.
    extended["frame"]["width"] = "wide".into();
    assert!(!open.is_valid(&extended));
}

#[test]
fn a_turned_box_has_centre_size_angle_and_corners() {
    let turned = OrientedBox { center: [100.0, 50.0], size: [20.0, 40.0], angle: -std::f32::consts::FRAC_PI_4 };
    let detection = Detection { score: 0.5, oriented: Some(turned), ..Detection::default() };
    let message = serde_json::to_value(detection_of(&detection, "ship".into(), &[]).unwrap()).unwrap();
    let oriented = &message["oriented"];
    // A quarter of a turn more, with the sides swapped.
    assert_eq!(oriented["angle"].as_f64().map(|a| (a * 1e5).round()), Some(78540.0));
    assert_eq!((oriented["x"].as_f64(), oriented["y"].as_f64()), (Some(100.0), Some(50.0)));
    assert_eq!((oriented["width"].as_f64(), oriented["height"].as_f64()), (Some(40.0), Some(20.0)));
    let corner = |index: usize| [0, 1].map(|axis| oriented["corners"][index][axis].as_f64().unwrap());
    // 40 right and down, 20 left and down, each halved and turned by an eighth.
    let [x, y] = corner(0);
    assert!((x - 107.071).abs() < 1e-3 && (y - 71.213).abs() < 1e-3, "{oriented}");
    let wrong = OrientedBox { angle: f32::NAN, ..turned };
    assert_eq!(detection_of(&Detection { oriented: Some(wrong), ..detection }, "ship".into(), &[]), None);
}
