//! Every head against the post-processing of the project that it comes from: tests/golden/heads.json, made by heads.py.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "common/filter_kernel.rs"]
mod filter_kernel;

use std::path::Path;

use half::f16;
use serde_json::Value;
use visiond_engine::card::Card;
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_engine::heads::{self, Decoded, Head, HeadInput, NamedOutput, Suppression};
use visiond_kernels::nms::{Candidate, Nms, NmsOptions, Overlap};
use visiond_kernels::tensor::{DType, TensorRef};

struct Tensor {
    info: TensorInfo,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn tensor(output: &Value) -> Tensor {
    let shape: Vec<usize> = output["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    let data = output["data"].as_array().unwrap();
    let f32s = || data.iter().map(|v| v.as_f64().unwrap() as f32);
    let (dtype, bytes): (DType, Vec<u8>) = match output["dtype"].as_str().unwrap() {
        "f32" => (DType::F32, f32s().flat_map(f32::to_ne_bytes).collect()),
        "f16" => (DType::F16, f32s().map(f16::from_f32).flat_map(f16::to_ne_bytes).collect()),
        "i64" => (DType::I64, data.iter().flat_map(|v| v.as_i64().unwrap().to_ne_bytes()).collect()),
        "i32" => (DType::I32, data.iter().flat_map(|v| (v.as_i64().unwrap() as i32).to_ne_bytes()).collect()),
        other => panic!("{other}"),
    };
    let name = output["name"].as_str().unwrap().to_owned();
    let declared = shape.iter().map(|&n| Dim::Fixed(n)).collect();
    Tensor { info: TensorInfo { name, dtype, shape: Some(declared) }, shape, bytes }
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

/// Corners to a thousandth of a pixel (boxes of a large exp: a part in ten thousand), scores to 1e-5.
fn assert_same(case: &str, wanted: &[f32], found: &Candidate) {
    for (corner, (&w, f)) in wanted[..4].iter().zip(found.box_in_input).enumerate() {
        assert!((w - f).abs() <= 1e-3 + 1e-4 * w.abs(), "{case}: corner {corner} is {f}, not {w}, of {found:?}");
    }
    assert!((wanted[4] - found.score).abs() <= 1e-5, "{case}: {} is the score of {found:?}", wanted[4]);
    assert_eq!(wanted[5] as u32, found.class_id, "{case}: {found:?}");
}

/// A place in a list that does not depend on rounding: class, then score.
fn order(class: f32, score: f32) -> (u32, i64) {
    (class as u32, (f64::from(score) * 1e5).round() as i64)
}

fn check(case: &Value, declare: impl Fn(&TensorInfo) -> TensorInfo) {
    let name = case["name"].as_str().unwrap();
    let card = Card::from_toml(case["card"].as_str().unwrap(), Path::new("golden.toml"));
    let card = card.unwrap_or_else(|error| panic!("{name}: {error}"));
    let tensors: Vec<Tensor> = case["outputs"].as_array().unwrap().iter().map(tensor).collect();
    let infos: Vec<TensorInfo> = tensors.iter().map(|t| declare(&t.info)).collect();
    let size = numbers(&case["size"]);
    let input_size = (size[0] as u32, size[1] as u32);
    let mut head = heads::build(&card.head, &infos, input_size, card.classes.len())
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(head.suppression() == Suppression::None, case["kept"].is_null(), "{name}");

    let outputs: Vec<NamedOutput<'_>> = tensors
        .iter()
        .map(|t| NamedOutput { name: &t.info.name, tensor: TensorRef::new(t.info.dtype, &t.shape, &t.bytes).unwrap() })
        .collect();
    let score_threshold = case["threshold"].as_f64().unwrap() as f32;
    let mut out = Decoded::default();
    head.decode(&HeadInput { outputs: &outputs, input_size, score_threshold, mapping: None }, &mut out)
        .unwrap_or_else(|error| panic!("{name}: {error}"));

    check_filter(name, head.as_mut(), &tensors, input_size, score_threshold, &out);

    check_candidates(name, &mut out, &case["expected"], &case["keypoints"], &case["angles"]);
    if !case["kept"].is_null() {
        let options = NmsOptions {
            iou_threshold: card.iou_threshold,
            score_threshold,
            max_detections: card.max_detections,
            class_agnostic: card.class_agnostic,
            overlap: Overlap::default(),
        };
        // Rows in order, as heads give them.
        out.candidates.sort_by_key(|c| c.row);
        head.suppression().run(&mut out, &mut Nms::default(), &options);
        assert!(out.candidates.is_sorted_by(|a, b| a.score >= b.score), "{name}");
        check_candidates(name, &mut out, &case["kept"], &case["kept_keypoints"], &case["kept_angles"]);
    }
}

/// Compares candidates, their points and their angles with golden ones, in any order.
fn check_candidates(name: &str, out: &mut Decoded, expected: &Value, points: &Value, angles: &Value) {
    let found_angle = |c: &Candidate| out.oriented(c).map(|turned| (order(c.class_id as f32, c.score), turned.angle));
    let mut found: Vec<_> = out.candidates.iter().filter_map(found_angle).collect();
    let place = |e: &Value| order(numbers(e)[5], numbers(e)[4]);
    let places = expected.as_array().unwrap().iter().map(place);
    let angles =
        angles.as_array().map_or_else(Vec::new, |angles| angles.iter().map(|a| a.as_f64().unwrap() as f32).collect());
    let mut wanted: Vec<_> = places.zip(angles).collect();
    found.sort_by_key(|(place, _)| *place);
    wanted.sort_by_key(|(place, _)| *place);
    assert_eq!(found, wanted, "{name}");
    let points = points.as_array();
    let boxes = expected.as_array().unwrap().iter().enumerate();
    let mut wanted: Vec<(Vec<f32>, Option<&Value>)> = boxes.map(|(i, e)| (numbers(e), points.map(|p| &p[i]))).collect();
    wanted.sort_by_key(|(e, _)| order(e[5], e[4]));
    out.candidates.sort_by_key(|c| order(c.class_id as f32, c.score));
    assert_eq!(wanted.len(), out.candidates.len(), "{name}: {:?}", out.candidates);
    for ((expected, points), found) in wanted.iter().zip(&out.candidates) {
        assert_same(name, expected, found);
        let keypoints = out.keypoints_of(found.row);
        let points: Vec<Vec<f32>> =
            points.map_or_else(Vec::new, |p| p.as_array().unwrap().iter().map(numbers).collect());
        assert_eq!(points.len(), keypoints.len(), "{name}");
        for (point, keypoint) in points.iter().zip(keypoints) {
            assert!(
                (point[0] - keypoint.x).abs() < 2e-3 && (point[1] - keypoint.y).abs() < 2e-3,
                "{name}: {keypoint:?}"
            );
            assert_eq!(point.get(2).is_some(), keypoint.score.is_some(), "{name}");
            assert!(point.get(2).is_none_or(|s| (s - keypoint.score.unwrap()).abs() < 1e-3), "{name}");
        }
    }
}

/// The GPU's filter, on the processor: exactly what the head gives.
fn check_filter(
    name: &str,
    head: &mut dyn Head,
    tensors: &[Tensor],
    input_size: (u32, u32),
    score_threshold: f32,
    wanted: &Decoded,
) {
    let infos: Vec<TensorInfo> = tensors.iter().map(|t| t.info.clone()).collect();
    let Some(spec) = head.filter(&infos, input_size, score_threshold) else {
        assert!(
            ["classifier", "movenet", "pose", "rtmo", "faces", "detectnet", "fomo", "darknet", "offsets", "maps"]
                .iter()
                .any(|family| name.starts_with(family)),
            "{name} has no filter"
        );
        return;
    };
    for last_first in [false, true] {
        let outputs: Vec<_> =
            tensors.iter().map(|t| filter_kernel::Output { dtype: t.info.dtype, bytes: &t.bytes }).collect();
        let results = filter_kernel::run(&spec, &outputs, last_first);
        let mut found = Decoded::default();
        head.decode_filtered(&results.frame(1), &mut found).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.lost, 0, "{name}");
        assert_eq!(found.candidates, wanted.candidates, "{name}");
        for candidate in &wanted.candidates {
            assert_eq!(found.oriented(candidate), wanted.oriented(candidate), "{name}");
            assert_eq!(found.keypoints_of(candidate.row), wanted.keypoints_of(candidate.row), "{name}");
        }
    }
}

fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/heads.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_head_gives_what_its_project_gives() {
    let cases = cases();
    assert!(cases.len() >= 40);
    for case in &cases {
        check(case, Clone::clone);
    }
}

#[test]
fn outputs_of_dynamic_dimensions_are_read_by_their_real_ones() {
    for case in &cases() {
        check(case, |info| {
            let mut info = info.clone();
            // Named as in exports: the batch, and dimensions that depend on the input's size.
            for dim in info.shape.iter_mut().flatten().filter(|dim| !matches!(dim, Dim::Fixed(..=20))) {
                *dim = Dim::Dynamic("n".to_owned());
            }
            info
        });
    }
}
