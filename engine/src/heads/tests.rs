//! Cards that fit and cards that do not, and outputs that no model should give.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod corners;
mod filter;
mod values;

use std::collections::BTreeMap;

use proptest::prelude::*;
use visiond_kernels::filter::Values;
use visiond_kernels::mask::{MaskParts, MaskSpec};
use visiond_kernels::placement::{Fit, Mapping};
use visiond_kernels::tensor::{DType, TensorRef};

use super::remedy::with_remedy;
use super::spec::*;
use super::*;
use crate::backend::{Dim, TensorInfo};

pub(super) fn tensor(name: &str, shape: &[usize]) -> TensorInfo {
    let shape = shape.iter().map(|&n| Dim::Fixed(n)).collect();
    TensorInfo { name: name.to_owned(), dtype: DType::F32, shape: Some(shape) }
}

fn integers(name: &str, shape: &[usize]) -> TensorInfo {
    TensorInfo { dtype: DType::I64, ..tensor(name, shape) }
}

fn refused(spec: &HeadSpec, outputs: &[TensorInfo], size: (u32, u32), classes: usize) -> String {
    build(spec, outputs, size, classes).err().map(|error| error.to_string()).unwrap_or_default()
}

const V8: HeadSpec = HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: false };

fn nanodet_g() -> HeadSpec {
    HeadSpec::Nanodet(NanodetSpec {
        strides: vec![8, 16, 32],
        reg_max: 10,
        sigmoid: false,
        cell_centre: true,
        multi_label: true,
    })
}

#[test]
fn a_card_of_another_family_is_told_what_was_found_and_what_is_read() {
    assert_eq!(
        refused(&V8, &[tensor("output", &[1, 3549, 124])], (416, 416), 80),
        "head `yolov8` reads one output [1, 4 + classes + 2 or 3 a keypoint, N] or its transpose, [1, N, 4 + ...], but \
         `output` has rows of 124 numbers instead of 84: the card's 80 classes and 4 others; the model has \
         `output` f32 [1, 3549, 124]: correct [head] in its model card (`visiond inspect` shows which heads fit)"
    );
    let message = refused(&nanodet_g(), &[tensor("output", &[1, 3598, 112])], (416, 416), 80);
    assert!(
        message.contains("has rows of 112 numbers instead of 124: the card's 80 classes and 44 others (reg_max = 10)"),
        "{message}"
    );
    let message = refused(&nanodet_g(), &[tensor("output", &[1, 3549, 124])], (320, 320), 80);
    assert!(
        message.contains("has 3549 rows instead of 2100: grids of strides [8, 16, 32] over 320x320 pixels"),
        "{message}"
    );
    let message = refused(&nanodet_g(), &[tensor("hm", &[1, 80, 104, 104])], (416, 416), 80);
    assert!(message.contains("no output has rows and columns"), "{message}");
}

#[test]
fn too_few_names_are_told_with_both_counts() {
    let message = refused(&V8, &[tensor("output0", &[1, 84, 8400])], (640, 640), 3);
    assert!(message.contains("has columns of 84 numbers instead of 7: the card's 3 classes and 4 others"), "{message}");
    let spec = HeadSpec::Detr(BoxesSpec::default());
    let message = refused(&spec, &[tensor("dets", &[1, 300, 4]), tensor("labels", &[1, 300, 4])], (560, 560), 3);
    assert!(message.contains("set background = \"first\" or \"last\""), "{message}");
}

#[test]
fn an_output_that_the_card_names_must_be_there() {
    let spec = HeadSpec::Ssd(BoxesSpec { boxes: Some("bbox".to_owned()), ..BoxesSpec::default() });
    let message = refused(&spec, &[tensor("boxes", &[1, 9, 4]), tensor("scores", &[1, 9, 2])], (320, 240), 2);
    assert!(message.contains("no output is called `bbox`, which the card names as boxes"), "{message}");
    let spec = HeadSpec::Ssd(BoxesSpec { boxes: Some("scores".to_owned()), ..BoxesSpec::default() });
    let message = refused(&spec, &[tensor("boxes", &[1, 9, 4]), tensor("scores", &[1, 9, 2])], (320, 240), 2);
    assert!(message.contains("`scores`, which the card names as boxes, has another shape"), "{message}");
}

fn key(spec: &HeadSpec, outputs: &[TensorInfo], size: (u32, u32), classes: usize) -> &'static str {
    build(spec, outputs, size, classes).err().map_or("", |error| error.key)
}

/// Doubts the numbers of one output.
fn doubt(spec: &HeadSpec, shape: &[usize], classes: usize, numbers: &[f32]) -> String {
    let infos = [tensor("output0", shape)];
    let head = build(spec, &infos, (320, 320), classes).unwrap_or_else(|error| panic!("{error}"));
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let outputs = [NamedOutput { name: "output0", tensor: TensorRef::new(DType::F32, shape, &bytes).unwrap() }];
    let input = HeadInput { outputs: &outputs, input_size: (320, 320), score_threshold: 0.25, mapping: None };
    head.check_numbers(&input).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn no_other_output_is_read_in_place_of_a_heat_map_of_other_classes() {
    let spec = |style| HeadSpec::Heatmap(HeatmapSpec { style, stride: 4, sigmoid: true, ..HeatmapSpec::default() });
    let maps = |names: [&str; 4], planes: [usize; 4], side: usize| -> Vec<TensorInfo> {
        let named = names.iter().zip(planes).filter(|(_, planes)| *planes > 0);
        named.map(|(name, planes)| tensor(name, &[1, planes, side, side])).collect()
    };
    let (net, face) = (spec(HeatmapStyle::CenterNet), spec(HeatmapStyle::CenterFace));
    let named = ["hm", "wh", "reg", "x"];
    let error = refused(&net, &maps(named, [3, 2, 2, 0], 80), (320, 320), 2);
    assert!(error.contains("`hm` has 3 planes instead of 2, one for each of the card's classes; "), "{error}");
    assert!(error.ends_with(": name 3 classes under [classes], or remove the names"), "{error}");
    let numbers = ["537", "538", "539", "540"];
    assert_eq!(key(&net, &maps(numbers, [80, 2, 2, 0], 80), (320, 320), 2), "classes");
    assert_eq!(key(&net, &maps(numbers, [2, 2, 2, 0], 80), (320, 320), 2), "");
    assert_eq!(key(&net, &maps(named, [3, 2, 2, 0], 80), (320, 320), 0), "");
    assert_eq!(key(&net, &maps(["wh", "hm", "reg", "hm_hp"], [2, 1, 2, 17], 80), (320, 320), 1), "");
    let error = refused(&face, &maps(numbers, [1, 2, 2, 10], 80), (320, 320), 2);
    assert!(
        error.contains("but the card names 2 classes instead of one") && error.contains(": name 1 class under"),
        "{error}"
    );
    assert_eq!(key(&face, &maps(numbers, [1, 2, 2, 10], 80), (320, 320), 1), "");
    // Another family altogether.
    assert_eq!(key(&net, &[tensor("output0", &[1, 7, 2100])], (320, 320), 2), "head.family");
}

#[test]
fn the_stride_of_a_heat_map_is_that_of_its_cells() {
    let spec = |stride| HeadSpec::Heatmap(HeatmapSpec { stride, ..HeatmapSpec::default() });
    let maps = |h, w| [("hm", 3), ("wh", 2), ("reg", 2)].map(|(name, planes)| tensor(name, &[1, planes, h, w]));
    let error = refused(&spec(8), &maps(80, 80), (320, 320), 3);
    assert!(
        error.contains("`hm` has 80x80 cells over an input of 320x320, which does not match the card's stride of 8"),
        "{error}"
    );
    assert!(error.ends_with(": write `stride = 4` under [head]"), "{error}");
    assert_eq!(key(&spec(4), &maps(40, 40), (320, 320), 3), "head.stride");
    assert_eq!(key(&spec(4), &maps(80, 120), (480, 320), 3), "");
    // A side that is no multiple has one cell more, or that of the rest.
    assert_eq!(key(&spec(4), &maps(76, 75), (301, 301), 3), "");
    assert_eq!(key(&spec(4), &maps(80, 81), (320, 320), 3), "head.family");
}

#[test]
fn what_follows_the_class_of_a_row_must_be_masks_or_the_cards_keypoints() {
    let spec = |keypoints: Option<(usize, bool)>| HeadSpec::YoloNms {
        keypoints: keypoints.map(|(count, scored)| Keypoints { count, scored }),
        unit: BoxUnit::Pixels,
        oriented: false,
        rows: RowsSpec::default(),
    };
    let rows = |width| tensor("output0", &[1, 50, width]);
    let error = refused(&spec(None), &[rows(57)], (320, 320), 3);
    assert!(error.contains("`output0` has 51 numbers after the class of each row"), "{error}");
    assert!(error.ends_with(": write `keypoints = [17, 3]` under [head]"), "{error}");
    assert_eq!(key(&spec(Some((17, true))), &[rows(57)], (320, 320), 3), "");
    assert_eq!(key(&spec(Some((17, false))), &[rows(57)], (320, 320), 3), "head.keypoints");
    assert_eq!(key(&spec(None), &[rows(16)], (320, 320), 1), "head.keypoints");
    // Mask coefficients, with the masks and without.
    assert_eq!(key(&spec(None), &[rows(38), tensor("output1", &[1, 32, 80, 80])], (320, 320), 3), "");
    assert_eq!(key(&spec(None), &[rows(38)], (320, 320), 3), "");
    assert_eq!(key(&spec(None), &[rows(6)], (320, 320), 3), "");
    // The scores of a classifier.
    assert_eq!(key(&spec(None), &[tensor("y", &[1, 6])], (224, 224), 0), "head.family");
    assert_eq!(key(&spec(None), &[tensor("y", &[1, 1, 6])], (224, 224), 0), "");
}

#[test]
fn masks_are_made_of_a_rows_last_numbers_and_the_planes_of_another_output() {
    let planes = |shape: &[usize]| tensor("output1", shape);
    let masks =
        |spec: &HeadSpec, outputs: &[TensorInfo]| build(spec, outputs, (32, 32), 3).unwrap().masks(outputs, (32, 32));
    let expected = |coefficients: Values| MaskSpec {
        planes: Values::planes(1, 5, 8 * 6),
        height: 8,
        width: 6,
        parts: MaskParts::Prototypes { channels: 5, coefficients },
    };
    let of_planes = tensor("output0", &[1, 12, 40]);
    let of_rows = tensor("output0", &[1, 40, 12]);
    let v8 = HeadSpec::Yolov8 { keypoints: None, masks: 5, oriented: false };
    let at = |offset, row_step, column_step, frame_len| {
        Some(expected(Values { output: 0, offset, row_step, column_step, frame_len }))
    };
    assert_eq!(masks(&v8, &[of_planes.clone(), planes(&[1, 5, 8, 6])]), at(7 * 40, 1, 40, 480));
    assert_eq!(masks(&v8, &[of_rows, planes(&[1, 5, 8, 6])]), at(7, 12, 1, 480));
    let v5 = HeadSpec::Yolov5 { keypoints: None, masks: 5 };
    assert_eq!(masks(&v5, &[tensor("output0", &[1, 40, 13]), planes(&[1, 5, 8, 6])]), at(8, 13, 1, 520));
    let nms = HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: false, rows: RowsSpec::default() };
    assert_eq!(masks(&nms, &[tensor("output0", &[1, 40, 11]), planes(&[1, 5, 8, 6])]), at(6, 11, 1, 440));
    // Without planes, with others, or before their shape is known.
    for other in [&[1, 4, 8, 6][..], &[5, 8, 6], &[1, 5, 0, 6], &[2, 5, 8, 6, 1]] {
        assert_eq!(masks(&v8, &[of_planes.clone(), planes(other)]), None, "{other:?}");
    }
    assert_eq!(masks(&v8, std::slice::from_ref(&of_planes)), None);
    let open = TensorInfo { shape: None, ..planes(&[]) };
    assert_eq!(masks(&v8, &[of_planes, open]), None);
}

#[test]
fn masks_are_planes_of_their_own_beside_boxes_and_scores() {
    let i64_tensor = |name: &str, shape: &[usize]| TensorInfo { dtype: DType::I64, ..tensor(name, shape) };
    let masks =
        |spec: &HeadSpec, outputs: &[TensorInfo]| build(spec, outputs, (32, 32), 0).unwrap().masks(outputs, (32, 32));
    let expected = |output: usize, side: usize, threshold: f32| {
        let parts = MaskParts::OwnPlane { count: 7, threshold };
        Some(MaskSpec { planes: Values::planes(output, 7, side * side), height: side, width: side, parts })
    };
    let (detr, ssd) = (HeadSpec::Detr(BoxesSpec::default()), HeadSpec::Ssd(BoxesSpec::default()));
    // The input is 32 x 32.
    let rf_detr =
        |planes: &[usize]| [tensor("dets", &[1, 7, 4]), tensor("labels", &[1, 7, 91]), tensor("masks", planes)];
    assert_eq!(masks(&detr, &rf_detr(&[1, 7, 8, 8])), expected(2, 8, 0.0));
    // Another count, too coarse, too narrow, keypoints, too fine, other ranks.
    for other in
        [&[1, 6, 8, 8][..], &[1, 7, 7, 7], &[1, 7, 8, 6], &[1, 7, 17, 3], &[1, 7, 8, 33], &[7], &[1, 7, 8, 8, 1]]
    {
        assert_eq!(masks(&detr, &rf_detr(other)), None, "{other:?}");
    }
    let torchvision = |planes: &[usize]| {
        [tensor("boxes", &[7, 4]), i64_tensor("labels", &[7]), tensor("scores", &[7]), tensor("masks", planes)]
    };
    assert_eq!(masks(&ssd, &torchvision(&[7, 1, 32, 32])), expected(3, 32, 0.5));
    assert_eq!(masks(&ssd, &torchvision(&[7, 32, 32])), expected(3, 32, 0.5));
    // Their number is known only at run time: then the decoder checks again.
    let open = TensorInfo { shape: None, ..tensor("masks", &[]) };
    let [boxes, labels, scores, _] = torchvision(&[7, 32, 32]);
    assert_eq!(masks(&ssd, &[boxes, labels, scores, open]), None);
    assert_eq!(masks(&ssd, &[tensor("boxes", &[1, 7, 4]), tensor("scores", &[1, 7, 3])]), None);
}

#[test]
fn oriented_boxes_have_one_number_more_and_nothing_else() {
    let turned = HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: true };
    let rows = HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: true, rows: RowsSpec::default() };
    assert_eq!(key(&turned, &[tensor("y", &[1, 20, 2100])], (320, 320), 15), "");
    let error = refused(&turned, &[tensor("y", &[1, 19, 2100])], (320, 320), 15);
    assert!(error.contains("one output [1, 4 + classes + 1, N]"), "{error}");
    assert!(error.contains("columns of 19 numbers instead of 20: the card's 15 classes and 5 others"), "{error}");
    assert_eq!(key(&rows, &[tensor("y", &[1, 300, 7])], (320, 320), 15), "");
    let error = refused(&rows, &[tensor("y", &[1, 300, 6])], (320, 320), 15);
    assert!(error.contains("`y` has rows of 6 numbers, not 7"), "{error}");
}

#[test]
fn angles_in_degrees_are_doubted() {
    let rows = HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: true, rows: RowsSpec::default() };
    let doubted = |angle: f32| doubt(&rows, &[1, 30, 7], 3, &[90.0, 80.0, 70.0, 60.0, 0.5, 0.0, angle].repeat(30));
    assert_eq!(doubted(1.5), "");
    assert_eq!(doubted(-7.0), "");
    assert!(doubted(45.0).contains("many of its angles are beyond two turns"), "{}", doubted(45.0));
}

#[test]
fn rows_without_a_score_may_hold_any_box() {
    let spec = HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: false, rows: RowsSpec::default() };
    for row in [[-1.0; 6], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]] {
        assert_eq!(doubt(&spec, &[1, 300, 6], 3, &row.repeat(300)), "", "{row:?}");
    }
    let found = doubt(&spec, &[1, 300, 6], 3, &[0.1, 0.1, 0.9, 0.9, 0.5, 0.0].repeat(300));
    assert!(found.contains("they are fractions of the input"), "{found}");
}

#[test]
fn three_anchors_a_cell_are_not_candidates_of_yolov8() {
    let error = refused(&V8, &[tensor("output0", &[1, 6300, 8])], (320, 320), 4);
    assert!(error.contains("has 6300 candidates, three anchors for each of 2100 cells as YOLOv5 has"), "{error}");
    assert_eq!(refused(&V8, &[tensor("output0", &[1, 2100, 8])], (320, 320), 4), "");
}

#[test]
fn the_centres_of_a_yolox_show_whether_it_is_decoded() {
    let strides = vec![8, 16, 32];
    let spec = |decoded| HeadSpec::Yolox(YoloxSpec { decoded, strides: strides.clone() });
    let (mut raw, mut decoded) = (Vec::new(), Vec::new());
    for stride in [8_u16, 16, 32] {
        let side = 320 / stride;
        for cell in 0..side * side {
            let stride = f32::from(stride);
            // Within a cell and half of one around it; sizes of half a cell, so that neither numbers are large.
            let (x, y) = (f32::from(cell % 5) / 2.0 - 0.5, f32::from(cell % 7) / 4.0);
            let (column, line) = (f32::from(cell % side), f32::from(cell / side));
            raw.extend([x, y, 0.5, 0.5, 0.1, 0.2]);
            decoded.extend([(x + column) * stride, (y + line) * stride, 6.0, 6.0, 0.1, 0.2]);
        }
    }
    let doubted = |is_decoded, numbers: &[f32]| doubt(&spec(is_decoded), &[1, 2100, 6], 1, numbers);
    assert_eq!(doubted(true, &decoded), "");
    assert_eq!(doubted(false, &raw), "");
    assert!(doubted(true, &raw).ends_with(": write `decoded = false` under [head]"), "{}", doubted(true, &raw));
    assert!(
        doubted(false, &decoded).ends_with(": write `decoded = true` under [head]"),
        "{}",
        doubted(false, &decoded)
    );
}

#[test]
fn a_remedy_names_no_family_that_the_shapes_do_not_speak_for() {
    let remedy = |spec: &HeadSpec, outputs: &[TensorInfo], named: usize| {
        let inputs = [tensor("images", &[1, 3, 320, 320])];
        let error = build(spec, outputs, (320, 320), named).err().unwrap();
        with_remedy(error, spec, named, &inputs, outputs, (320, 320)).to_string()
    };
    let detr = |activation| HeadSpec::Detr(BoxesSpec { activation: Some(activation), ..BoxesSpec::default() });
    let outputs = [tensor("logits", &[1, 100, 92]), tensor("pred_boxes", &[1, 100, 4])];
    let error = remedy(&detr(Activation::Softmax), &outputs, 80);
    assert!(error.ends_with(": name 91 classes under [classes], or remove the names"), "{error}");
    let error = remedy(&detr(Activation::None), &outputs, 91);
    assert!(error.ends_with("name 92 classes under [classes], or remove the names"), "{error}");
    let ssd = HeadSpec::Ssd(BoxesSpec { background: Some(Background::First), ..BoxesSpec::default() });
    let outputs = [tensor("scores", &[1, 1500, 4]), tensor("boxes", &[1, 1500, 4])];
    let error = remedy(&ssd, &outputs, 4);
    assert!(error.contains("name 3 classes") && !error.contains("family ="), "{error}");
    let swapped = BoxesSpec { boxes: Some("scores".to_owned()), ..BoxesSpec::default() };
    let error = remedy(&HeadSpec::Ssd(swapped), &outputs, 4);
    assert!(error.ends_with(": write `boxes = \"boxes\"`, or remove the key"), "{error}");
}

#[test]
fn a_remedy_counts_the_cards_classes_before_it_takes_the_other_numbers_for_what_they_are() {
    let remedy = |spec: &HeadSpec, outputs: &[TensorInfo], named: usize| {
        let inputs = [tensor("images", &[1, 3, 640, 640])];
        let error = build(spec, outputs, (640, 640), named).err().unwrap();
        let text = with_remedy(error, spec, named, &inputs, outputs, (640, 640)).to_string();
        text.rsplit_once(": ").map_or(text.clone(), |(_, remedy)| remedy.to_owned())
    };
    let one = |shape: &[usize]| vec![tensor("output0", shape)];
    let planes = || tensor("output1", &[1, 32, 160, 160]);
    let v5 = HeadSpec::Yolov5 { keypoints: None, masks: 0 };
    let cases = [
        // Five points after two scores; a body after one, and after three; of too many names; numbers that are no points.
        (&V8, one(&[1, 16, 8400]), 2, "write `keypoints = [5, 2]` under [head], or name 12 classes"),
        (&V8, one(&[1, 56, 8400]), 1, "write `keypoints = [17, 3]` under [head]"),
        (&V8, one(&[1, 58, 8400]), 3, "write `keypoints = [17, 3]` under [head], or name 54 classes"),
        (&V8, one(&[1, 56, 8400]), 3, "write `keypoints = [17, 3]` under [head], and name 1 class"),
        (&V8, one(&[1, 17, 8400]), 2, "name 13 classes under [classes], or remove the names"),
        (&V8, vec![tensor("output0", &[1, 38, 8400]), planes()], 2, "write `masks = 32` under [head]"),
        (&v5, vec![tensor("output0", &[1, 25_200, 39]), planes()], 2, "write `masks = 32` under [head]"),
        // Bins that no public model has beside five scores, or those of NanoDet beside one.
        (&nanodet_g(), one(&[1, 8400, 45]), 5, "write `reg_max = 9` under [head], or name 1 class"),
        // Another family has as many classes as the card; one that is likelier without the card has not.
        (&v5, one(&[1, 8400, 85]), 81, "write `family = \"yolov8\"` under [head]"),
        (&V8, one(&[1, 25_200, 85]), 80, "write `family = \"yolov5\"` under [head]"),
        // Nothing reads it.
        (&V8, one(&[1, 3, 64, 64]), 3, "export the model in one of the forms of docs/models.md"),
    ];
    let of = |(spec, outputs, named, _): &(&HeadSpec, Vec<TensorInfo>, usize, &str)| remedy(spec, outputs, *named);
    let found: Vec<String> = cases.iter().map(of).collect();
    assert_eq!(found, cases.map(|(.., wanted)| wanted));
}

#[test]
fn real_shapes_are_checked_again_whatever_was_declared() {
    let unknown = TensorInfo { shape: None, ..tensor("output", &[]) };
    let mut head = build(&nanodet_g(), &[unknown], (416, 416), 80).unwrap_or_else(|error| panic!("{error}"));
    let bytes = vec![0; 4 * 7 * 124];
    let tensor = TensorRef::new(DType::F32, &[1, 7, 124], &bytes).unwrap();
    let outputs = [NamedOutput { name: "output", tensor }];
    let input = HeadInput { outputs: &outputs, input_size: (416, 416), score_threshold: 0.1, mapping: None };
    let error = head.decode(&input, &mut Decoded::default()).unwrap_err().to_string();
    assert!(error.contains("has 7 rows") && error.contains("`output` f32 [1, 7, 124]"), "{error}");
    assert!(head.decode(&HeadInput { outputs: &[], ..input }, &mut Decoded::default()).is_err());
}

#[test]
fn a_blazeface_whose_anchors_do_not_fit_is_told_the_strides() {
    let blazeface = |strides| HeadSpec::Blazeface(BlazefaceSpec { strides });
    let pair = |n| [tensor("regressors", &[1, n, 16]), tensor("classificators", &[1, n, 1])];
    let message = refused(&blazeface(None), &pair(2304), (192, 192), 1);
    assert!(
        message.contains(
            "no such pair has the 896 rows (or [512, 384] of each grid, or half as many) of strides [12, 24, 24, 24] over \
             192x192 pixels; the model has `regressors` f32 [1, 2304, 16], `classificators` f32 [1, 2304, 1]"
        ),
        "{message}"
    );
    assert_eq!(refused(&blazeface(Some(vec![4])), &pair(2304), (192, 192), 1), "");
    let message = refused(&blazeface(None), &pair(896), (128, 128), 2);
    assert!(message.contains("but the card names 2 classes instead of one"), "{message}");
    let odd = [tensor("regressors", &[1, 896, 15]), tensor("classificators", &[1, 896, 1])];
    assert!(refused(&blazeface(None), &odd, (128, 128), 1).contains("no such pair"));
}

#[test]
fn a_blazeface_box_of_no_size_is_kept_and_one_of_a_negative_size_is_not() {
    let spec = HeadSpec::Blazeface(BlazefaceSpec { strides: Some(vec![32]) });
    let infos = [tensor("scores", &[1, 8, 1]), tensor("boxes", &[1, 8, 4])];
    let mut head = build(&spec, &infos, (64, 64), 1).unwrap_or_else(|error| panic!("{error}"));
    let sizes = [[4.0, 8.0], [0.0, 8.0], [4.0, 0.0], [-1.0, 8.0], [4.0, -1.0], [2.0, 2.0], [2.0, 2.0], [2.0, 2.0]];
    let boxes = sizes.map(|[w, h]| [1.0_f32, 2.0, w, h]).concat();
    let scores = [1.0_f32, 1.0, 1.0, 1.0, 1.0, -9.0, f32::NAN, 1.0];
    let bytes = [scores.map(f32::to_ne_bytes).concat(), boxes.iter().flat_map(|v| v.to_ne_bytes()).collect()];
    let shapes = shapes_of(&infos);
    let outputs = [0, 1].map(|index| NamedOutput {
        name: &infos[index].name,
        tensor: TensorRef::new(DType::F32, &shapes[index], &bytes[index]).unwrap(),
    });
    let mut out = Decoded::default();
    head.decode(&HeadInput { outputs: &outputs, input_size: (64, 64), score_threshold: 0.5, mapping: None }, &mut out)
        .unwrap();
    let found: Vec<_> = out.candidates.iter().map(|candidate| (candidate.row, candidate.box_in_input)).collect();
    // Two anchors in each of 2 x 2 cells: the first cell's middle is at (16, 16), the second's at (48, 16).
    let wanted = [
        (0, [15.0, 14.0, 19.0, 22.0]),
        (1, [17.0, 14.0, 17.0, 22.0]),
        (2, [47.0, 18.0, 51.0, 18.0]),
        (7, [48.0, 49.0, 50.0, 51.0]),
    ];
    assert_eq!(found, wanted);
}

/// The outputs of faces on grids, for each width all grids, without a batch dimension as InsightFace has them.
fn of_grids(rows: &[usize], widths: &[usize]) -> Vec<TensorInfo> {
    let mut outputs: Vec<TensorInfo> = Vec::new();
    for &width in widths {
        for &rows in rows {
            outputs.push(tensor(&format!("{}", 443 + 3 * outputs.len()), &[rows, width]));
        }
    }
    outputs
}

fn faces(style: FacesStyle) -> HeadSpec {
    HeadSpec::Faces(FacesSpec { style, ..FacesSpec::default() })
}

#[test]
fn faces_need_the_rows_of_every_grid_and_as_many_outputs_as_their_style_has() {
    let (scrfd, yunet, retinaface) =
        (faces(FacesStyle::Scrfd), faces(FacesStyle::Yunet), faces(FacesStyle::Retinaface));
    // Strides 8, 16 and 32 over 64x64.
    let (one, two) = ([64, 16, 4], [128, 32, 8]);
    let refused = |spec: &HeadSpec, outputs: &[TensorInfo], classes| refused(spec, outputs, (64, 64), classes);
    for rows in [one, two] {
        for widths in [&[1, 4][..], &[1, 4, 10]] {
            assert_eq!(refused(&scrfd, &of_grids(&rows, widths), 1), "");
        }
    }
    assert_eq!(refused(&yunet, &of_grids(&one, &[1, 1, 4, 10]), 1), "");
    let priors = |n: usize| [4, 2, 10].map(|width| tensor(&format!("o{width}"), &[1, n, width]));
    assert_eq!(refused(&retinaface, &priors(168), 0), "");
    for (spec, outputs, words) in [
        (&scrfd, of_grids(&one, &[1, 1, 4, 10]), "there are 12 outputs instead of 6 or 9 for strides [8, 16, 32]"),
        (
            &scrfd,
            of_grids(&[64, 16, 5], &[1, 4, 10]),
            "no such outputs have the [64, 16, 4] rows of each grid, or twice as",
        ),
        (&yunet, of_grids(&two, &[1, 1, 4, 10]), "no such outputs have the [64, 16, 4] rows of each grid of strides"),
        (&yunet, of_grids(&one, &[1, 1, 4]), "no such outputs have the [64, 16, 4] rows of each grid of strides"),
        (&yunet, of_grids(&one, &[1, 4, 10]), "no such outputs have the [64, 16, 4] rows"),
        (&retinaface, priors(84).into(), "no such outputs have the 168 rows of strides [8, 16, 32] over 64x64 pixels"),
    ] {
        let message = refused(spec, &outputs, 1);
        assert!(message.contains(words), "{message}");
    }
    let message = refused(&scrfd, &of_grids(&two, &[1, 4, 10]), 2);
    assert!(message.contains("the card names 2 classes instead of one"), "{message}");
}

#[test]
fn a_card_of_other_faces_is_told_the_style_and_an_ssd_the_family() {
    let inputs = [tensor("input", &[1, 3, 640, 640])];
    let remedy = |spec: &HeadSpec, outputs: &[TensorInfo], named: usize| {
        let error = build(spec, outputs, (640, 640), named).err().unwrap();
        with_remedy(error, spec, named, &inputs, outputs, (640, 640)).to_string()
    };
    let scrfd = of_grids(&[12_800, 3200, 800], &[1, 4, 10]);
    let yunet = of_grids(&[6400, 1600, 400], &[1, 1, 4, 10]);
    let retinaface = [4, 2, 10].map(|width| tensor("o", &[1, 16_800, width])).to_vec();
    let slim = [4, 2, 10].map(|width| tensor("o", &[1, 23_500, width])).to_vec();
    let ssd = HeadSpec::Ssd(BoxesSpec::default());
    for (spec, outputs, write) in [
        (&faces(FacesStyle::Scrfd), &yunet, "write `style = \"yunet\"` under [head]"),
        (&faces(FacesStyle::Yunet), &scrfd, "write `style = \"scrfd\"` under [head]"),
        (&faces(FacesStyle::Scrfd), &retinaface, "write `style = \"retinaface\"` under [head]"),
        (&ssd, &retinaface, "write `family = \"faces\"`, `style = \"retinaface\"` under [head]"),
        (
            &faces(FacesStyle::Scrfd),
            &slim,
            "write `strides = [8, 16, 32, 64]`, `style = \"retinaface\"`, `min_sizes = [[10, 16, 24], [32, 48]",
        ),
        (&HeadSpec::Blazeface(BlazefaceSpec::default()), &yunet, "write `family = \"faces\"`, `style = \"yunet\"`"),
        (
            &faces(FacesStyle::Retinaface),
            &slim,
            "write the `strides` and `min_sizes` that the model was trained with under [head]",
        ),
    ] {
        let error = remedy(spec, outputs, 1);
        assert!(error.contains(write), "{error}");
    }
}

#[test]
fn scores_of_faces_that_are_logits_are_doubted() {
    for (style, outputs, key) in [
        (FacesStyle::Scrfd, of_grids(&[128, 32, 8], &[1, 4, 10]), "its last sigmoid"),
        (FacesStyle::Yunet, of_grids(&[64, 16, 4], &[1, 1, 4, 10]), "its last sigmoid"),
        (
            FacesStyle::Retinaface,
            [4, 2, 10].map(|w| tensor("o", &[1, 168, w])).into(),
            "its softmax (`phase=\"test\"`)",
        ),
    ] {
        let head = build(&faces(style), &outputs, (64, 64), 1).unwrap_or_else(|error| panic!("{error}"));
        let shapes = shapes_of(&outputs);
        let check = |value: f32| {
            let bytes: Vec<Vec<u8>> = shapes
                .iter()
                .map(|shape| std::iter::repeat_n(value.to_ne_bytes(), shape.iter().product()).flatten().collect())
                .collect();
            let named: Vec<_> = outputs
                .iter()
                .zip(shapes.iter().zip(&bytes))
                .map(|(info, (shape, bytes))| NamedOutput {
                    name: &info.name,
                    tensor: TensorRef::new(DType::F32, shape, bytes).unwrap(),
                })
                .collect();
            let input = HeadInput { outputs: &named, input_size: (64, 64), score_threshold: 0.5, mapping: None };
            head.check_numbers(&input).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(check(0.7), "", "{style:?}");
        assert!(check(-3.0).contains(key), "{style:?}");
    }
}

#[test]
fn an_ssd_of_offsets_beside_landmarks_is_told_of_faces_and_one_of_ten_classes_is_not() {
    let advice = |score_columns: usize, third: usize| {
        let infos = [tensor("loc", &[1, 20, 4]), tensor("conf", &[1, 20, score_columns]), tensor("o", &[1, 20, third])];
        let head = build(&HeadSpec::Ssd(BoxesSpec::default()), &infos, (64, 64), 0).unwrap_or_else(|e| panic!("{e}"));
        let shapes = shapes_of(&infos);
        // Boxes that end before they begin.
        let bytes: Vec<Vec<u8>> = shapes
            .iter()
            .map(|shape| {
                let numbers = (0..shape.iter().product::<usize>()).map(|at| 0.5 - 0.1 * (at % 4) as f32);
                numbers.flat_map(f32::to_ne_bytes).collect()
            })
            .collect();
        let output = |index: usize| NamedOutput {
            name: &infos[index].name,
            tensor: TensorRef::new(DType::F32, &shapes[index], &bytes[index]).unwrap(),
        };
        let outputs = [output(0), output(1), output(2)];
        let input = HeadInput { outputs: &outputs, input_size: (64, 64), score_threshold: 0.5, mapping: None };
        head.check_numbers(&input).unwrap_err().to_string()
    };
    let faces = advice(2, 10);
    assert!(faces.contains(": write `family = \"faces\"` under [head] if nothing has decoded the boxes"), "{faces}");
    assert!(faces.contains("; otherwise write `format = "), "{faces}");
    for (score_columns, third) in [(10, 3), (2, 8)] {
        let other = advice(score_columns, third);
        assert!(other.contains(": write `format = ") && !other.contains("faces"), "{other}");
    }
}

#[test]
fn nanodet_in_pairs_needs_the_rows_and_the_widths_of_every_grid() {
    // Strides 8, 16 and 32 over 64 x 64: 64, 16 and 4 cells; 80 classes and 44 distances.
    let pairs = |rows: [usize; 3], classes: usize, distances: usize| {
        let pair = |n| [tensor("cls", &[1, n, classes]), tensor("dis", &[1, n, distances])];
        rows.map(pair).concat()
    };
    let refused = |outputs: Vec<TensorInfo>| refused(&nanodet_g(), &outputs, (64, 64), 80);
    assert_eq!(refused(pairs([64, 16, 4], 80, 44)), "");
    assert_eq!(refused(pairs([4, 64, 16], 80, 44)), "", "in any order");
    for wrong in
        [pairs([64, 16, 5], 80, 44), pairs([65, 17, 5], 80, 44), pairs([64, 16, 4], 80, 45), pairs([64, 16, 4], 81, 44)]
    {
        assert_ne!(refused(wrong), "");
    }
}

#[test]
fn a_refusal_says_what_the_head_reads() {
    let outputs = [tensor("odd", &[1, 2, 3, 4, 5, 6])];
    for (spec, reads) in [
        (HeadSpec::Yolov5 { keypoints: None, masks: 0 }, "one output [1, N, 5 + classes"),
        (V8, "one output [1, 4 + classes"),
        (
            HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: false, rows: RowsSpec::default() },
            "[1, N, 6",
        ),
        (
            HeadSpec::Yolox(YoloxSpec { decoded: false, strides: vec![8] }),
            "one output [1, cells of all grids, 5 + classes]",
        ),
        (nanodet_g(), "classes + 4 * (reg_max + 1)"),
        (HeadSpec::Ssd(BoxesSpec::default()), "boxes [1, "),
        (HeadSpec::Detr(BoxesSpec::default()), "boxes [1, Q, 4] and logits"),
        (HeadSpec::Heatmap(HeatmapSpec { stride: 4, ..HeatmapSpec::default() }), "a heat map [1, classes, h, w]"),
        (HeadSpec::Blazeface(BlazefaceSpec::default()), "scores [1, anchors, 1] and boxes"),
        (HeadSpec::Faces(FacesSpec::default()), "scores [n, 1], boxes [n, 4] and perhaps points"),
        (HeadSpec::Semantic { activation: None, background: Background::None }, "scores [1, classes, h, w]"),
        (HeadSpec::DbText(DbTextSpec::default()), "one map of probabilities [1, 1, h, w]"),
        (HeadSpec::Darknet(darknet(3, 1)), "a map of each grid"),
        (HeadSpec::Fomo, "one output [1, h, w, classes + 1]"),
        (HeadSpec::Movenet, "one output [1, 1, 17, 3] or [1, N, 56]"),
        (HeadSpec::Pose, "two outputs [1, points, W] and [1, points, H]"),
        (HeadSpec::Classifier { activation: None, background: Background::None }, "[1, classes]"),
        (HeadSpec::Embedding { output: None, normalize: true }, "one output [1, D]"),
        (HeadSpec::Depth(DepthSpec::default()), "one output [1, h, w], [1, 1, h, w] or [1, h, w, 1]"),
    ] {
        let family = spec.family().name();
        let message = refused(&spec, &outputs, (64, 64), 2);
        let (_, told) = message.split_once(&format!("head `{family}` reads ")).unwrap_or_else(|| panic!("{message}"));
        assert!(told.contains(reads), "{family}: {told}");
    }
}

/// Guesses from shapes alone.
fn guesses(outputs: &[TensorInfo], inputs: &[TensorInfo]) -> Vec<HeadGuess> {
    let (metadata, tails) = (BTreeMap::new(), BTreeMap::new());
    guess_heads(ModelFacts { inputs, outputs, metadata: &metadata, tails: &tails })
}

fn first_guess(outputs: &[TensorInfo], side: usize) -> (Family, Option<usize>) {
    let guesses = guesses(outputs, &[tensor("images", &[1, 3, side, side])]);
    guesses.first().map(|guess| (guess.family, guess.class_count)).unwrap()
}

#[test]
fn the_likeliest_head_is_the_right_one_for_what_people_export() {
    let one = |shape: &[usize], side| first_guess(&[tensor("output", shape)], side);
    assert_eq!(one(&[1, 3549, 124], 416), (Family::Nanodet, Some(80)));
    assert_eq!(one(&[1, 3598, 112], 416), (Family::Nanodet, Some(80)));
    assert_eq!(one(&[1, 25_200, 85], 640), (Family::Yolov5, Some(80)));
    assert_eq!(one(&[1, 84, 8400], 640), (Family::Yolov8, Some(80)));
    assert_eq!(one(&[1, 6, 8400], 640), (Family::Yolov8, Some(2)));
    assert_eq!(one(&[1, 8400, 85], 640), (Family::Yolox, Some(80)));
    assert_eq!(one(&[1, 300, 6], 640), (Family::YoloNms, None));
    assert_eq!(one(&[1, 300, 84], 640), (Family::Detr, Some(80)));
    assert_eq!(one(&[1, 1000], 224), (Family::Classifier, Some(1000)));
    assert_eq!(one(&[1, 1, 17, 3], 192), (Family::Movenet, Some(1)));
    assert_eq!(one(&[1, 6, 56], 256), (Family::Movenet, Some(1)));
    let two = |a: TensorInfo, b: TensorInfo, side| first_guess(&[a, b], side);
    let axis = |name: &str| tensor(name, &[1, 133, 512]);
    assert_eq!(two(axis("simcc_x"), axis("simcc_y"), 256), (Family::Pose, Some(1)));
    assert_eq!(first_guess(&[tensor("output", &[1, 17, 64, 64])], 256), (Family::Pose, Some(1)));
    assert_eq!(first_guess(&[tensor("heatmaps", &[1, 21, 64, 64])], 256), (Family::Pose, Some(1)));
    let posed = two(tensor("dets", &[1, 50, 5]), tensor("keypoints", &[1, 50, 17, 3]), 640);
    assert_eq!(posed, (Family::YoloNms, Some(1)));
    assert_eq!(two(tensor("logits", &[1, 300, 80]), tensor("pred_boxes", &[1, 300, 4]), 640), (Family::Detr, Some(80)));
    assert_eq!(two(tensor("scores", &[1, 4420, 2]), tensor("boxes", &[1, 4420, 4]), 320), (Family::Ssd, Some(1)));
    let faces = [1, 2, 2, 10].map(|c| tensor(&format!("o{c}"), &[1, c, 120, 160]));
    let face_guesses = guesses(&faces, &[tensor("images", &[1, 3, 480, 640])]);
    assert_eq!((face_guesses[0].family, face_guesses[0].class_count), (Family::Heatmap, Some(1)));
    let pair = |n, width| (tensor("regressors", &[1, n, width]), tensor("classificators", &[1, n, 1]));
    for (n, width, side) in [(896, 16, 128), (896, 16, 256), (2304, 16, 192), (2016, 18, 192), (2254, 12, 224)] {
        let (boxes, scores) = pair(n, width);
        assert_eq!(two(boxes, scores, side), (Family::Blazeface, Some(1)), "{n} {width} {side}");
    }
    for (outputs, style) in [
        (of_grids(&[12_800, 3200, 800], &[1, 4, 10]), "scrfd"),
        (of_grids(&[12_800, 3200, 800], &[1, 4]), "scrfd"),
        (of_grids(&[6400, 1600, 400, 100, 25], &[1, 4, 10]), "scrfd"),
        (of_grids(&[6400, 1600, 400], &[1, 1, 4, 10]), "yunet"),
        ([4, 2, 10].map(|width| tensor("o", &[1, 16_800, width])).into(), "retinaface"),
        ([4, 2, 10].map(|width| tensor("o", &[1, 23_500, width])).into(), "retinaface"),
    ] {
        let guesses = guesses(&outputs, &[tensor("input", &[1, 3, 640, 640])]);
        assert_eq!(guesses.iter().map(|guess| guess.family).collect::<Vec<_>>(), [Family::Faces]);
        let card = &guesses[0].card;
        assert!(card.contains(&format!("style = \"{style}\"")) && card.contains("names = [\"face\"]"), "{card}");
        let card = crate::card::Card::from_toml(card, std::path::Path::new("net.toml")).unwrap();
        assert!(build(&card.head, &outputs, (640, 640), card.classes.len()).is_ok());
    }
    // With a batch dimension and the names of OpenCV Zoo.
    let parts = [("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10)];
    let of_part = |(part, width)| {
        [(8, 6400), (16, 1600), (32, 400)].map(|(stride, rows)| tensor(&format!("{part}_{stride}"), &[1, rows, width]))
    };
    let yunet: Vec<TensorInfo> = parts.into_iter().flat_map(of_part).collect();
    let guesses_of_yunet = guesses(&yunet, &[tensor("input", &[1, 3, 640, 640])]);
    assert_eq!((guesses_of_yunet.len(), guesses_of_yunet[0].family), (1, Family::Faces));
    let open = |name: &str| TensorInfo { shape: Some(vec![Dim::Dynamic(String::new()); 3]), ..tensor(name, &[]) };
    let outputs = ["loc", "conf", "landmarks"].map(open);
    let card = &guesses(&outputs, &[tensor("input", &[1, 3, 640, 640])])[0].card;
    assert!(card.contains("style = \"retinaface\""), "{card}");
    for (width, options) in [(16, "keypoints = [5, 2]"), (57, "keypoints = [17, 3]")] {
        let guesses = guesses(&[tensor("output", &[1, 25_200, width])], &[tensor("input", &[1, 3, 640, 640])]);
        assert_eq!((guesses[0].family, guesses[0].class_count), (Family::Yolov5, Some(1)));
        assert!(guesses[0].card.contains(options), "{}", guesses[0].card);
    }
    let efficient = [
        tensor("num_dets", &[1, 1]),
        tensor("det_boxes", &[1, 100, 4]),
        tensor("det_scores", &[1, 100]),
        integers("det_classes", &[1, 100]),
    ];
    assert_eq!(first_guess(&efficient, 640), (Family::YoloNms, None));
    let deployed = [integers("labels", &[1, 300]), tensor("boxes", &[1, 300, 4]), tensor("scores", &[1, 300])];
    let inputs = [tensor("images", &[1, 3, 640, 640]), integers("orig_target_sizes", &[1, 2])];
    assert_eq!(guesses(&deployed, &inputs)[0].family, Family::Detr);
    assert_eq!(guesses(&[tensor("matte", &[1, 640, 640, 1])], &inputs), []);
}

#[test]
fn every_head_that_fits_is_guessed_with_its_options_and_classes() {
    let table = |a, b| vec![tensor("output", &[1, a, b])];
    let pair = |n, a, b| vec![tensor("boxes", &[1, n, a]), tensor("scores", &[1, n, b])];
    let maps = |planes: &[usize]| planes.iter().map(|&c| tensor(&format!("o{c}"), &[1, c, 80, 80])).collect();
    let chosen = |labels| vec![tensor("boxes", &[1, 300, 4]), tensor("scores", &[1, 300]), labels];
    // A model's outputs, and the side of its image; 0 leaves it open.
    let cases: [(Vec<TensorInfo>, usize); 32] = [
        (table(2100, 112), 320),
        (table(2100, 124), 320),
        (table(2100, 148), 320),
        (table(2125, 112), 320),
        (table(2100, 33), 320),
        (table(2100, 85), 320),
        (table(2125, 25), 320),
        (table(2100, 40), 320),
        (table(2100, 6), 320),
        (table(2100, 5), 320),
        (table(6300, 85), 320),
        (table(6300, 5), 320),
        (table(6375, 6), 320),
        (table(84, 2100), 320),
        (table(5, 2100), 320),
        (table(4, 2100), 320),
        (table(300, 7), 640),
        (table(1000, 6), 640),
        (table(1001, 6), 640),
        (table(1000, 95), 640),
        (table(300, 5), 640),
        (table(25_200, 85), 0),
        (table(84, 8400), 0),
        (pair(1000, 4, 91), 320),
        (pair(1001, 4, 91), 320),
        (pair(896, 16, 1), 128),
        (pair(2304, 16, 1), 192),
        (maps(&[1, 2, 2, 10]), 320),
        (maps(&[80, 2, 2]), 320),
        (maps(&[80, 2]), 320),
        (chosen(integers("labels", &[1, 300])), 320),
        (chosen(tensor("labels", &[1, 300])), 320),
    ];
    let mut found = String::new();
    for (outputs, side) in cases {
        let side = if side == 0 { Dim::Dynamic(String::new()) } else { Dim::Fixed(side) };
        let shape = vec![Dim::Fixed(1), Dim::Fixed(3), side.clone(), side];
        let picture = TensorInfo { shape: Some(shape), ..tensor("images", &[]) };
        let shapes = shapes_of(&outputs);
        found += &format!("{shapes:?}\n");
        let (metadata, tails) = (BTreeMap::new(), BTreeMap::new());
        let facts = ModelFacts { inputs: &[picture], outputs: &outputs, metadata: &metadata, tails: &tails };
        for guess in guess_heads(facts) {
            let (_, options) = guess.card.split_once("[head]\n").unwrap();
            let (options, _) = options.split_once("\n[classes]").unwrap();
            let options = options.trim().replace("family = ", "").replace('\n', ", ");
            found += &format!("  {options}, {:?} classes: {}\n", guess.class_count, guess.reason);
        }
    }
    assert_eq!(found, include_str!("guesses.txt"), "\n{found}");
}

#[test]
fn every_guess_comes_with_a_card_that_builds_its_head() {
    let shapes: [&[usize]; 8] = [
        &[1, 3549, 124],
        &[1, 3598, 112],
        &[1, 25_200, 85],
        &[1, 84, 8400],
        &[1, 8400, 85],
        &[1, 300, 84],
        &[1, 300, 6],
        &[1, 7],
    ];
    for shape in shapes {
        for side in [416, 640] {
            let output = [tensor("output", shape)];
            for guess in guesses(&output, &[tensor("images", &[1, 3, side, side])]) {
                let text = &guess.card;
                let card = crate::card::Card::from_toml(text, std::path::Path::new("net.toml"));
                let card = card.unwrap_or_else(|error| panic!("{error}\n{text}"));
                let size = (side as u32, side as u32);
                assert!(build(&card.head, &output, size, card.classes.len()).is_ok(), "{shape:?} {text}");
            }
        }
    }
}

fn darknet(anchors: usize, scales: usize) -> DarknetSpec {
    let scale_x_y = vec![1.1; scales];
    let style = if scales == 1 { GridStyle::Yolov5 } else { GridStyle::Darknet };
    let activation = if scales == 2 { Activation::Softmax } else { Activation::Sigmoid };
    let anchors = (0..anchors).map(|n| [10.0 + n as f32, 13.0]).collect();
    DarknetSpec { anchors, scale_x_y, activation, style }
}

pub(super) fn specs() -> impl Strategy<Value = HeadSpec> {
    let keypoints =
        || prop::option::of((0..4_usize, any::<bool>()).prop_map(|(count, scored)| Keypoints { count, scored }));
    let background = || prop::sample::select(vec![Background::None, Background::First, Background::Last]);
    let activation = || prop::sample::select(vec![Activation::None, Activation::Sigmoid, Activation::Softmax]);
    let unit = || prop::sample::select(vec![BoxUnit::Pixels, BoxUnit::Normalized]);
    let strides = || prop::collection::vec(0..40_u32, 0..4);
    prop_oneof![
        (keypoints(), 0..3_usize).prop_map(|(keypoints, masks)| HeadSpec::Yolov5 { keypoints, masks }),
        (keypoints(), 0..3_usize).prop_map(|(keypoints, masks)| HeadSpec::Yolov8 { keypoints, masks, oriented: false }),
        (keypoints(), unit(), any::<bool>(), background()).prop_map(|(keypoints, unit, nms, background)| {
            let rows = RowsSpec { nms, background, ..RowsSpec::default() };
            HeadSpec::YoloNms { keypoints, unit, oriented: false, rows }
        }),
        (Just(COLUMNS.map(|(_, column)| column).to_vec()).prop_shuffle(), unit(), background()).prop_map(
            |(columns, unit, background)| {
                let rows = RowsSpec { columns: Some(columns), background, ..RowsSpec::default() };
                HeadSpec::YoloNms { keypoints: None, unit, oriented: false, rows }
            }
        ),
        Just(HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: true }),
        Just(HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: true, rows: RowsSpec::default() }),
        (any::<bool>(), strides()).prop_map(|(decoded, strides)| HeadSpec::Yolox(YoloxSpec { decoded, strides })),
        (strides(), 0..3_usize, any::<bool>(), any::<bool>()).prop_map(|(strides, reg_max, sigmoid, multi_label)| {
            HeadSpec::Nanodet(NanodetSpec { strides, reg_max, sigmoid, cell_centre: true, multi_label })
        }),
        (background(), activation(), prop::option::of(any::<bool>()), prop::bool::weighted(0.2)).prop_map(
            |(background, activation, multi_label, offsets)| {
                HeadSpec::Ssd(BoxesSpec {
                    multi_label,
                    anchors: offsets.then_some(AnchorKind::EfficientDet),
                    background: Some(background),
                    activation: Some(activation),
                    ..BoxesSpec::default()
                })
            }
        ),
        (prop::option::of(background()), prop::option::of(activation())).prop_map(|(background, activation)| {
            HeadSpec::Detr(BoxesSpec { background, activation, ..BoxesSpec::default() })
        }),
        (0..STYLES.len(), 0..9_u32, any::<bool>()).prop_map(|(style, stride, sigmoid)| {
            let (_, style) = STYLES[style];
            let (heat, size, offset, landmarks) = (None, None, None, None);
            HeadSpec::Heatmap(HeatmapSpec { style, stride, sigmoid, heat, size, offset, landmarks })
        }),
        prop::option::of(strides()).prop_map(|strides| HeadSpec::Blazeface(BlazefaceSpec { strides })),
        (0..FACES.len(), strides(), prop::collection::vec(prop::collection::vec(0..40_u32, 0..3), 0..4)).prop_map(
            |(style, strides, min_sizes)| HeadSpec::Faces(FacesSpec { style: FACES[style].1, strides, min_sizes })
        ),
        (0..7_usize, 0..3_usize).prop_map(|(anchors, scales)| HeadSpec::Darknet(darknet(anchors, scales))),
        Just(HeadSpec::Fomo),
        Just(HeadSpec::Movenet),
        Just(HeadSpec::Pose),
        (0.0..1.0_f32, 0.0..4.0_f32, 1..9_usize, any::<bool>()).prop_map(
            |(thresh, unclip_ratio, max_candidates, sigmoid)| {
                HeadSpec::DbText(DbTextSpec { thresh, unclip_ratio, max_candidates, sigmoid })
            }
        ),
        (prop::option::of(activation()), background())
            .prop_map(|(activation, background)| HeadSpec::Semantic { activation, background }),
        (prop::option::of(activation()), background())
            .prop_map(|(activation, background)| HeadSpec::Classifier { activation, background }),
        prop::collection::vec(attributes(), 0..4).prop_map(HeadSpec::Attributes),
        any::<bool>().prop_map(|normalize| HeadSpec::Embedding { output: None, normalize }),
        ([0..9_u32, 0..9_u32], any::<bool>()).prop_map(|(grid, far)| {
            let nearer = if far { Nearer::Smaller } else { Nearer::Larger };
            HeadSpec::Depth(DepthSpec { output: None, grid, nearer })
        }),
    ]
}

/// Any possible attribute of an output.
fn attributes() -> impl Strategy<Value = AttributeSpec> {
    let activation = vec![None, Some(Activation::None), Some(Activation::Sigmoid), Some(Activation::Softmax)];
    let labels =
        (0..4_usize, prop::sample::select(activation), any::<bool>()).prop_map(|(count, activation, multi_label)| {
            let names = (0..count).map(|label| label.to_string()).collect();
            AttributeKind::Labels { names, activation, multi_label }
        });
    let number = (values(), values()).prop_map(|(scale, offset)| AttributeKind::Number { scale, offset });
    let column = prop::option::of(prop_oneof![0..3_usize, Just(usize::MAX)]);
    let output = prop::sample::select(vec!["output", "scores"]);
    (output, column, prop_oneof![labels, number]).prop_map(|(output, column, kind)| AttributeSpec {
        name: "a".to_owned(),
        output: output.to_owned(),
        column,
        kind,
    })
}

/// Any small shape, often one that a head reads.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        prop::collection::vec(0..9_usize, 0..8),
        (1..20_usize, 0..20_usize).prop_map(|(a, b)| vec![1, a, b]),
        (1..12_usize, 0..5_usize, 0..5_usize).prop_map(|(c, h, w)| vec![1, c, h, w]),
        (0..20_usize).prop_map(|n| vec![1, n]),
        (0..20_usize).prop_map(|n| vec![n]),
    ]
}

pub(super) fn values() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -2.0..2.0_f32,
        1 => any::<f32>(),
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0, 1e30]),
    ]
}

fn outputs() -> impl Strategy<Value = Vec<(String, DType, Vec<usize>, Vec<f32>)>> {
    let name = prop::sample::select(vec!["boxes", "scores", "labels", "num", "hm", "wh", "reg", "output", "logits"]);
    let dtype = prop::sample::select(vec![DType::F32, DType::F32, DType::F16, DType::I64, DType::U8]);
    let output = (name, dtype, shapes(), prop::collection::vec(values(), 1..40))
        .prop_map(|(name, dtype, shape, values)| (name.to_owned(), dtype, shape, values));
    prop::collection::vec(output, 0..7)
}

/// Outputs of the shapes that a head reads, for `classes` classes and `rows` rows where those are free.
pub(super) fn right_outputs(
    spec: &HeadSpec,
    classes: usize,
    rows: usize,
    size: (u32, u32),
    variant: usize,
) -> Vec<TensorInfo> {
    let cells = |strides: &[u32], ceil: bool| -> usize {
        let side = |n: u32, s: u32| (if ceil { n.div_ceil(s.max(1)) } else { n / s.max(1) }) as usize;
        strides.iter().map(|&s| side(size.0, s) * side(size.1, s)).sum()
    };
    let background_columns = |background: Background| usize::from(background != Background::None);
    let chosen = || vec![tensor("boxes", &[1, rows, 4]), tensor("scores", &[1, rows]), integers("labels", &[1, rows])];
    let points = |keypoints: Option<Keypoints>| keypoints.map_or(0, |k| k.values());
    let scored = |width: usize| vec![tensor("boxes", &[1, rows, 4]), tensor("scores", &[1, rows, width])];
    match spec {
        HeadSpec::Yolov5 { keypoints, masks } => {
            vec![
                tensor("output", &[1, rows, 5 + classes + points(*keypoints) + masks]),
                tensor("prototypes", &[1, *masks, 3, 5]),
            ]
        }
        HeadSpec::Yolov8 { keypoints, masks, oriented } => {
            let width = 4 + classes + points(*keypoints) + masks + usize::from(*oriented);
            let output = tensor("output", &if variant == 0 { [1, width, rows] } else { [1, rows, width] });
            vec![output, tensor("prototypes", &[1, *masks, 3, 5])]
        }
        HeadSpec::YoloNms { oriented: true, .. } => vec![tensor("output", &[1, rows, 7])],
        HeadSpec::YoloNms { rows: RowsSpec { columns: Some(columns), .. }, .. } => {
            vec![tensor("output", &[rows, columns.len()])]
        }
        HeadSpec::YoloNms {
            keypoints: Some(points @ Keypoints { count: 1.., scored }),
            rows: RowsSpec { columns: None, .. },
            ..
        } if variant == 2 => {
            let each = if *scored { 3 } else { 2 };
            vec![tensor("dets", &[1, rows, 5]), tensor("keypoints", &[1, rows, points.count, each])]
        }
        HeadSpec::YoloNms { keypoints, .. } => match variant {
            0 => vec![tensor("output", &[1, rows, 6 + points(*keypoints)])],
            1 => vec![tensor("output", &[rows, 7])],
            2 => vec![tensor("dets", &[1, rows, 5]), integers("labels", &[1, rows])],
            _ => chosen().into_iter().chain([tensor("num", &[1, 1])]).collect(),
        },
        HeadSpec::Yolox(spec) => vec![tensor("output", &[1, cells(&spec.strides, false), 5 + classes])],
        HeadSpec::Nanodet(spec) if variant == 0 => {
            vec![tensor("output", &[1, cells(&spec.strides, true), classes + 4 * (spec.reg_max + 1)])]
        }
        HeadSpec::Nanodet(spec) if variant == 2 => {
            let map = |stride: u32, planes: usize| {
                tensor("map", &[1, planes, size.1.div_ceil(stride) as usize, size.0.div_ceil(stride) as usize])
            };
            let strides = spec.strides.iter().map(|&stride| stride.max(1));
            strides.flat_map(|stride| [map(stride, classes), map(stride, 4 * (spec.reg_max + 1))]).collect()
        }
        HeadSpec::Nanodet(spec) if variant == 1 => {
            let n = cells(&spec.strides, true);
            vec![tensor("boxes", &[1, n, 4 * (spec.reg_max + 1)]), tensor("cls", &[1, n, classes])]
        }
        HeadSpec::Nanodet(spec) => spec
            .strides
            .iter()
            .map(|&stride| cells(&[stride], true))
            .flat_map(|n| [tensor("cls", &[1, n, classes]), tensor("dis", &[1, n, 4 * (spec.reg_max + 1)])])
            .collect(),
        HeadSpec::Faces(FacesSpec { style: FacesStyle::Retinaface, strides, min_sizes }) => {
            let priors = strides.iter().zip(min_sizes).map(|(&stride, sizes)| cells(&[stride], true) * sizes.len());
            let n = priors.sum();
            [("loc", 4), ("conf", 2), ("landms", 10)].map(|(name, width)| tensor(name, &[1, n, width])).into()
        }
        HeadSpec::Faces(FacesSpec { style, strides, .. }) => {
            let (widths, anchors): (&[usize], usize) = match (style, variant) {
                (FacesStyle::Yunet, _) => (&[1, 1, 4, 10], 1),
                (_, 0) => (&[1, 4], 2),
                (_, variant) => (&[1, 4, 10], 1 + variant % 2),
            };
            let of_width = |&width: &usize| {
                strides.iter().map(move |&stride| tensor("o", &[1, cells(&[stride], true) * anchors, width]))
            };
            widths.iter().flat_map(of_width).collect()
        }
        HeadSpec::Darknet(spec) if spec.style == GridStyle::Yolov5 => {
            let anchors = spec.anchors.len() / (variant + 1);
            let dims = |grid: usize| [1, anchors, rows, grid + 1, 5 + classes];
            (0..=variant).map(|grid| tensor(&format!("o{grid}"), &dims(grid))).collect()
        }
        HeadSpec::Darknet(spec) => {
            let planes = (spec.anchors.len() / (variant + 1)) * (5 + classes);
            (0..=variant).map(|grid| tensor(&format!("o{grid}"), &[1, planes, rows, grid + 1])).collect()
        }
        HeadSpec::Fomo => vec![tensor("output", &[1, rows, 3, classes + 1])],
        HeadSpec::Movenet if variant == 0 => vec![tensor("output", &[1, 1, 17, 3])],
        HeadSpec::Movenet => vec![tensor("output", &[1, rows, 56])],
        HeadSpec::Ssd(BoxesSpec { anchors: Some(kind), background, .. }) => {
            let n = anchors::count(*kind, size);
            let width = classes + background_columns(background.unwrap_or_default());
            vec![tensor("regression", &[1, n, 4]), tensor("classification", &[1, n, width])]
        }
        HeadSpec::Pose if variant == 0 => {
            let axis = |name: &str, side: u32| tensor(name, &[1, rows, 2 * side as usize]);
            vec![axis("simcc_x", size.0), axis("simcc_y", size.1)]
        }
        HeadSpec::Pose => vec![tensor("output", &[1, rows, 3 + variant, 4])],
        HeadSpec::Ssd(spec) if variant == 0 => {
            scored(classes + background_columns(spec.background.unwrap_or_default()))
        }
        HeadSpec::Ssd(spec) if variant == 1 => {
            let width = classes + background_columns(spec.background.unwrap_or_default());
            vec![tensor("boxes", &[1, rows, 1, 4]), tensor("scores", &[1, width, rows])]
        }
        HeadSpec::Ssd(_) if variant == 2 => vec![tensor("output", &[1, 4 + classes, rows])],
        HeadSpec::Ssd(_) => chosen(),
        HeadSpec::Detr(spec) => match variant {
            0 => {
                let last =
                    if spec.activation == Some(Activation::Softmax) { Background::Last } else { Background::None };
                scored(classes + background_columns(spec.background.unwrap_or(last)))
            }
            1 => chosen(),
            _ => vec![tensor("output", &[1, rows, 4 + classes])],
        },
        HeadSpec::Heatmap(spec) => {
            let planes = if spec.style == HeatmapStyle::CenterFace { 1 } else { classes };
            let sizes = match spec.style {
                HeatmapStyle::TtfNet => 4,
                HeatmapStyle::DetectNet => 4 * classes,
                _ => 2,
            };
            [("hm", planes), ("wh", sizes), ("reg", 2), ("landmarks", 10)]
                .map(|(n, c)| tensor(n, &[1, c, rows, 3]))
                .into()
        }
        HeadSpec::Blazeface(spec) => {
            let usual = || vec![size.0 / 16, size.0 / 8, size.0 / 8, size.0 / 8];
            let strides = spec.strides.clone().unwrap_or_else(usual);
            let pair = |strides: &[u32]| {
                let n = cells(strides, true) * if variant == 2 { 1 } else { 2 };
                [tensor("scores", &[1, n, 1]), tensor("boxes", &[1, n, 4 + 2 * classes])]
            };
            match variant {
                0 => pair(&strides).into(),
                _ => strides.chunk_by(|a, b| a == b).flat_map(pair).collect(),
            }
        }
        HeadSpec::DbText(_) => vec![tensor("output", &[1, 1, size.1 as usize, size.0 as usize])],
        HeadSpec::Semantic { background, .. } => {
            let (width, height) = (size.0 as usize, size.1 as usize);
            let scores = classes + background_columns(*background);
            vec![match variant {
                0 => tensor("output", &[1, scores, height, width]),
                1 => tensor("output", &[1, height, width, scores]),
                _ => integers("output", &[1, height, width]),
            }]
        }
        HeadSpec::Classifier { background, .. } => {
            vec![tensor("output", &[1, classes + background_columns(*background)])]
        }
        HeadSpec::Attributes(_) => vec![tensor("output", &[1, classes]), tensor("scores", &[1, rows, 1, 1])],
        HeadSpec::Embedding { .. } => vec![tensor("output", &[1, 2 + rows])],
        HeadSpec::Depth(_) if variant == 0 => vec![tensor("output", &[1, 2 + rows, 3, 1])],
        HeadSpec::Depth(_) => vec![tensor("output", &[1, 2 + classes, 2 + rows])],
    }
}

/// The shapes of outputs that declare them.
pub(super) fn shapes_of(infos: &[TensorInfo]) -> Vec<Vec<usize>> {
    let shape = |info: &TensorInfo| info.shape.iter().flatten().map(|dim| dim.fixed().unwrap_or(0)).collect();
    infos.iter().map(shape).collect()
}

/// Decodes random bytes twice; the results must be finite and pass the threshold.
fn decode_garbage(
    head: &mut Box<dyn Head>,
    infos: &[TensorInfo],
    shapes: &[Vec<usize>],
    values: &[f32],
    size: (u32, u32),
    score_threshold: f32,
) -> Result<(), TestCaseError> {
    let mut left = values.iter().cycle();
    let bytes: Vec<Vec<u8>> = infos
        .iter()
        .zip(shapes)
        .map(|(info, shape)| {
            let size = shape.iter().product::<usize>() * info.dtype.size_bytes();
            left.by_ref().flat_map(|v| v.to_ne_bytes()).take(size).collect()
        })
        .collect();
    let named: Vec<NamedOutput<'_>> = infos
        .iter()
        .zip(shapes)
        .zip(&bytes)
        .map(|((info, shape), bytes)| NamedOutput {
            name: &info.name,
            tensor: TensorRef::new(info.dtype, shape, bytes).unwrap(),
        })
        .collect();
    let mut out = Decoded::default();
    let letterboxed = Mapping::new(Fit::Letterbox, (64, 48), (size.0.max(1), size.1.max(1)));
    for mapping in [None, Some(letterboxed)] {
        let input = HeadInput { outputs: &named, input_size: size, score_threshold, mapping };
        if head.decode(&input, &mut out).is_ok() {
            for candidate in &out.candidates {
                prop_assert!(candidate.box_in_input.iter().all(|v| v.is_finite()), "{candidate:?}");
                prop_assert!(candidate.score.is_finite() && candidate.score >= score_threshold, "{candidate:?}");
                let points = out.keypoints_of(candidate.row);
                prop_assert!(points.iter().all(|p| p.x.is_finite() && p.y.is_finite()), "{points:?}");
            }
            check_values(&out.values)?;
            let (width, height) = mapping.map_or(size, |mapping| mapping.source());
            for found in &out.class_areas {
                let [left, top, right, bottom] = found.region.bounds;
                prop_assert!(left < right && right <= width && top < bottom && bottom <= height, "{found:?}");
                prop_assert!(found.region.score >= score_threshold && found.region.score <= 1.0, "{found:?}");
            }
            let areas: u64 = out.class_areas.iter().map(|found| found.region.area).sum();
            prop_assert!(areas <= u64::from(width) * u64::from(height), "{areas}");
        }
    }
    Ok(())
}

/// Checks that all numbers are finite, all scores from 0 to 1, and both lists of a depth grid as long as it has cells.
fn check_values(values: &FrameValues) -> Result<(), TestCaseError> {
    let is_score = |one: &ScoredLabel| (0.0..=1.0).contains(&one.score);
    for AttributeValue { reading, .. } in &values.attributes {
        let right = match reading {
            Reading::Label(one) => is_score(one),
            Reading::Labels(all) => all.iter().all(is_score) && all.is_sorted_by(|a, b| a.score >= b.score),
            Reading::Number(number) => number.is_finite(),
        };
        prop_assert!(right, "{reading:?}");
    }
    prop_assert!(values.embedding.iter().all(|number| number.is_finite()), "{values:?}");
    let DepthGrid { columns, rows, nearest, median } = &values.depth;
    prop_assert_eq!([nearest.len(), median.len()], [columns * rows; 2]);
    for (nearest, median) in nearest.iter().zip(median) {
        prop_assert_eq!(nearest.is_some(), median.is_some());
        prop_assert!(nearest.iter().chain(median).all(|depth| depth.is_finite()));
    }
    Ok(())
}

/// Returns the scores that a head finds in `values`, which fill its outputs in turn, best first.
fn scores_in(
    head: &mut Box<dyn Head>,
    infos: &[TensorInfo],
    shapes: &[Vec<usize>],
    values: &[f32],
    size: (u32, u32),
    score_threshold: f32,
) -> Option<Vec<f32>> {
    let mut left = values.iter().cycle();
    let mut bytes: Vec<Vec<u8>> = Vec::new();
    for (info, shape) in infos.iter().zip(shapes) {
        let count = shape.iter().product();
        bytes.push(match info.dtype {
            DType::I64 => vec![0; count * 8],
            _ => left.by_ref().take(count).flat_map(|value| value.to_ne_bytes()).collect(),
        });
    }
    let named: Vec<NamedOutput<'_>> = infos
        .iter()
        .zip(shapes)
        .zip(&bytes)
        .map(|((info, shape), bytes)| NamedOutput {
            name: &info.name,
            tensor: TensorRef::new(info.dtype, shape, bytes).unwrap(),
        })
        .collect();
    let mut out = Decoded::default();
    head.decode(&HeadInput { outputs: &named, input_size: size, score_threshold, mapping: None }, &mut out).ok()?;
    let mut scores: Vec<f32> = out.candidates.iter().map(|candidate| candidate.score).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    Some(scores)
}

pub(super) fn thresholds() -> impl Strategy<Value = f32> {
    prop_oneof![Just(0.0_f32), 0.0..1.0_f32, Just(1.0)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_outputs_make_a_head_panic_and_what_it_gives_is_finite(
        spec in specs(),
        outputs in outputs(),
        size in (0..70_u32, 0..70_u32),
        class_count in 0..4_usize,
        score_threshold in thresholds(),
        declared in 0..3_usize,
    ) {
        let infos: Vec<TensorInfo> = outputs.iter().map(|(name, dtype, shape, _)| {
            let dims = shape.iter().map(|&n| if declared == 1 { Dim::Dynamic(String::new()) } else { Dim::Fixed(n) });
            TensorInfo { name: name.clone(), dtype: *dtype, shape: (declared != 2).then(|| dims.collect()) }
        }).collect();
        let Ok(mut head) = build(&spec, &infos, size, class_count) else { return Ok(()) };
        let shapes: Vec<Vec<usize>> = outputs.iter().map(|(_, _, shape, _)| shape.clone()).collect();
        let values: Vec<f32> = outputs.iter().flat_map(|(_, _, _, values)| values.clone()).chain([0.5]).collect();
        decode_garbage(&mut head, &infos, &shapes, &values, size, score_threshold)?;
    }

    #[test]
    fn right_shapes_of_garbage_are_decoded_without_a_panic(
        spec in specs(),
        classes in 1..4_usize,
        rows in 0..9_usize,
        size in (0..70_u32, 0..70_u32),
        variant in 0..3_usize,
        values in prop::collection::vec(values(), 1..200),
        score_threshold in thresholds(),
        half in any::<bool>(),
    ) {
        let mut infos = right_outputs(&spec, classes, rows, size, variant);
        for info in infos.iter_mut().filter(|info| half && info.dtype == DType::F32) {
            info.dtype = DType::F16;
        }
        let shapes = shapes_of(&infos);
        // A few combinations contradict themselves: no strides, a background on top of chosen classes.
        if let Ok(mut head) = build(&spec, &infos, size, classes) {
            decode_garbage(&mut head, &infos, &shapes, &values, size, score_threshold)?;
        }
    }

    #[test]
    fn a_threshold_removes_what_scores_below_it_and_nothing_else(
        spec in specs(),
        classes in 1..4_usize,
        rows in 1..9_usize,
        side in 8..70_u32,
        variant in 0..3_usize,
        // Above 1 an objectness or a class would not be a probability.
        values in prop::collection::vec(prop_oneof![4 => 0.0_f32..1.0, 1 => Just(1.0)], 1..100),
        pick in any::<prop::sample::Index>(),
    ) {
        // A cell that passes joins an object, whose score is the best of its cells.
        prop_assume!(spec.family() != Family::Fomo);
        let size = (side, side);
        let infos = right_outputs(&spec, classes, rows, size, variant);
        let shapes = shapes_of(&infos);
        let Ok(mut head) = build(&spec, &infos, size, classes) else { return Ok(()) };
        let mut scores = |threshold: f32| scores_in(&mut head, &infos, &shapes, &values, size, threshold);
        let Some(all) = scores(0.0).filter(|all| !all.is_empty()) else { return Ok(()) };
        let score = all[pick.index(all.len())];
        for threshold in [score, score.next_up()] {
            let above: Vec<f32> = all.iter().copied().filter(|&score| score >= threshold).collect();
            prop_assert_eq!(scores(threshold), Some(above), "{} of {:?}", threshold, spec);
        }
    }

    #[test]
    fn no_shapes_make_the_guess_panic(outputs in outputs(), sides in prop::collection::vec(0..700_usize, 0..5)) {
        let infos: Vec<TensorInfo> =
            outputs.iter().map(|(name, dtype, shape, _)| TensorInfo { dtype: *dtype, ..tensor(name, shape) }).collect();
        guesses(&infos, &[tensor("images", &sides)]);
    }
}
