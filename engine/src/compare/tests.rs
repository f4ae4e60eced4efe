#![allow(clippy::unwrap_used)]

use visiond_kernels::oriented::OrientedBox;
use visiond_kernels::placement::Fit;
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Sampling, TensorLayout};
use visiond_kernels::tensor::{DType, TensorRef};

use super::*;
use crate::backend::{Dim, TensorInfo};
use crate::card::KeypointCard;
use crate::detector::{Detection, Keypoint};

const LIMITS: MatchLimits = MatchLimits {
    min_iou: 0.98,
    min_oks: 0.0,
    has_coco_points: false,
    max_score_difference: 0.02,
    unmatched_margin: 0.0,
};

fn seen(class_id: u32, score: f32, x: f32) -> Detection {
    Detection { class_id, score, box_in_source: Some([x, 0.0, x + 10.0, 10.0]), ..Detection::default() }
}

fn spec() -> PreprocessSpec {
    PreprocessSpec {
        width: 64,
        height: 64,
        placement: Fit::Letterbox.into(),
        sampling: Sampling::Opencv,
        pad: 0.0,
        order: ChannelOrder::Rgb,
        layout: TensorLayout::Nchw,
        dtype: DType::F32,
        scale: 1.0,
        mean: [0.0; 3],
        std: [1.0; 3],
    }
}

fn info(name: &str, shape: &[usize]) -> TensorInfo {
    let shape = shape.iter().map(|&n| if n == 0 { Dim::Dynamic(String::new()) } else { Dim::Fixed(n) }).collect();
    TensorInfo { name: name.to_owned(), dtype: DType::F32, shape: Some(shape) }
}

#[test]
fn a_build_that_is_fed_otherwise_is_refused_with_what_differs() {
    same_feed(&spec(), &PreprocessSpec { dtype: DType::F16, layout: TensorLayout::Nhwc, ..spec() }).unwrap();
    same_feed(&spec(), &PreprocessSpec { dtype: DType::U8, scale: 0.5, ..spec() }).unwrap();
    let error = same_feed(&spec(), &PreprocessSpec { scale: 0.5, ..spec() }).unwrap_err().to_string();
    assert!(error.contains("`scale` is 1.0 in the first and 0.5 in the second"), "{error}");
    same_feed(&spec(), &PreprocessSpec { width: 32, ..spec() }).unwrap_err();
}

#[test]
fn outputs_go_together_by_name_else_by_order() {
    let [a, b, c] = [info("a", &[1, 4, 8]), info("b", &[1, 8]), info("c", &[0, 4, 8])];
    assert_eq!(pair_outputs(&[a.clone(), b.clone()], &[b.clone(), a.clone()]), Ok(vec![1, 0]));
    assert_eq!(pair_outputs(&[a.clone(), b.clone()], &[c, b.clone()]), Ok(vec![0, 1]));
    let error = pair_outputs(std::slice::from_ref(&a), &[info("a", &[1, 4, 9])]).unwrap_err().to_string();
    assert!(error.starts_with("cannot compare different models: ") && error.contains("a f32 [1, 4, 9]"), "{error}");
    pair_outputs(&[a.clone(), b], &[a]).unwrap_err();
}

#[test]
fn differences_are_added_over_pictures() {
    let bytes = |numbers: [f32; 4]| numbers.map(f32::to_ne_bytes).concat();
    let (a, b) = (bytes([1.0, 2.0, 3.0, f32::NAN]), bytes([1.0, 2.5, 3.0, 4.0]));
    let mut difference = TensorDifference::new("out");
    let tensor = |bytes| TensorRef::new(DType::F32, &[1, 4], bytes).unwrap();
    difference.add(0, tensor(&a), tensor(&a), (1, 1)).unwrap();
    assert_eq!((difference.max_abs, difference.worst_picture, difference.not_finite), (0.0, None, 0));
    assert_eq!(difference.cosine(), 1.0);
    difference.add(7, tensor(&a), tensor(&b), (1, 1)).unwrap();
    assert_eq!((difference.max_abs, difference.worst_picture, difference.not_finite), (0.5, Some(7), 1));
    assert_eq!((difference.mean_abs(), difference.rms()), (0.5 / 8.0, (0.25_f64 / 8.0).sqrt()));
    assert!(difference.cosine() < 1.0 && difference.cosine() > 0.98);
    assert_eq!(difference.range, Some((1.0, 3.0)));
    // A batch of 2 against a batch of 1: the first frame's.
    let two = [b.clone(), a.clone()].concat();
    let pair = TensorRef::new(DType::F32, &[2, 4], &two).unwrap();
    difference.add(8, tensor(&b), pair, (1, 2)).unwrap();
    difference.add(8, tensor(&b), pair, (1, 1)).unwrap_err();
}

#[test]
fn things_are_matched_best_first_in_their_class() {
    let mut agreement = Agreement::within(0.5, LIMITS);
    agreement.add(
        3,
        &[seen(0, 0.9, 0.0), seen(0, 0.8, 3.0)],
        &[seen(0, 0.85, 1.0), seen(0, 0.8, 3.0), seen(1, 0.6, 0.0)],
    );
    let all = &agreement.all;
    assert_eq!((all.matched, all.missing, all.extra), (2, 0, 1));
    assert_eq!(all.min_iou.unwrap().picture, 3);
    assert!((all.min_iou.unwrap().value - 9.0 / 11.0).abs() < 1e-6);
    assert!((all.max_score_difference.unwrap().value - 0.05).abs() < 1e-6);
    assert_eq!(agreement.classes[&1].extra, 1);
    // One of the two pairs is outside of the limits, by box and score.
    assert_eq!((all.outside, agreement.classes[&0].outside_share(), all.outside_share()), (1, 0.5, 2.0 / 3.0));
}

#[test]
fn a_score_that_falls_below_the_threshold_is_a_difference_and_not_a_thing_missing() {
    let mut agreement = Agreement::within(0.5, LIMITS);
    agreement.add(0, &[seen(0, 0.51, 0.0)], &[seen(0, 0.49, 0.0)]);
    agreement.add(1, &[seen(0, 0.48, 0.0)], &[seen(0, 0.47, 0.0)]);
    agreement.add(2, &[seen(0, 0.48, 0.0)], &[]);
    agreement.add(4, &[], &[]);
    let all = &agreement.all;
    assert_eq!((all.matched, all.missing, all.extra), (1, 0, 0));
    agreement.add(5, &[seen(0, 0.6, 0.0)], &[seen(0, 0.6, 30.0)]);
    assert_eq!((agreement.all.missing, agreement.all.extra, agreement.all.unmatched_picture), (1, 1, Some(5)));
}

#[test]
fn a_thing_of_one_alone_counts_from_the_margin_above_the_threshold() {
    let mut agreement = Agreement::within(0.5, MatchLimits { unmatched_margin: 0.01, ..LIMITS });
    agreement.add(0, &[seen(0, 0.509, 0.0)], &[seen(1, 0.509, 0.0)]);
    assert_eq!((agreement.all.matched, agreement.all.missing, agreement.all.extra), (0, 0, 0));
    agreement.add(1, &[seen(0, 0.511, 0.0)], &[]);
    agreement.add(2, &[], &[seen(0, 0.511, 0.0)]);
    assert_eq!((agreement.all.matched, agreement.all.missing, agreement.all.extra), (0, 1, 1));
    // A pair counts from the threshold on.
    agreement.add(3, &[seen(0, 0.501, 0.0)], &[seen(0, 0.499, 0.0)]);
    assert_eq!(agreement.all.matched, 1);
}

#[test]
fn what_another_program_has_chosen_counts_whatever_it_scores() {
    let compare = |mut agreement: Agreement| {
        agreement.add(0, &[seen(0, 0.4, 0.0), seen(0, 0.3, 100.0)], &[seen(0, 0.2, 0.0), seen(0, 0.8, 200.0)]);
        (agreement.all.matched, agreement.all.missing, agreement.all.extra)
    };
    assert_eq!(compare(Agreement::within(0.85, LIMITS)), (0, 0, 0));
    assert_eq!(compare(Agreement::within(0.85, LIMITS).with_all_of_first()), (1, 1, 0));
}

#[test]
fn a_classifier_is_compared_by_class() {
    let class = |class_id, score| Detection { class_id, score, ..Detection::default() };
    let mut agreement = Agreement::within(0.1, LIMITS);
    agreement.add(0, &[class(3, 0.7), class(1, 0.2)], &[class(3, 0.69), class(2, 0.2)]);
    let all = &agreement.all;
    assert_eq!((all.matched, all.missing, all.extra, all.mean_iou()), (1, 1, 1, None));
}

#[test]
fn turned_boxes_are_matched_by_their_own_overlap() {
    // Two bars that cross: their upright boxes are the same.
    let bar = |angle: f32| Detection {
        oriented: Some(OrientedBox { center: [5.0, 5.0], size: [10.0, 2.0], angle }),
        ..seen(0, 0.9, 0.0)
    };
    let (falling, rising) = (bar(std::f32::consts::FRAC_PI_4), bar(3.0 * std::f32::consts::FRAC_PI_4));
    let mut agreement = Agreement::within(0.25, LIMITS);
    agreement.add(0, std::slice::from_ref(&falling), &[rising.clone(), falling.clone()]);
    assert_eq!((agreement.all.matched, agreement.all.missing, agreement.all.extra), (1, 0, 1));
    assert!(agreement.all.mean_iou().unwrap() > 0.999);
    assert!((overlap(&falling, &rising).unwrap() - 4.0 / 36.0).abs() < 1e-5);
    // A reference may have upright boxes only.
    assert_eq!(overlap(&falling, &seen(0, 0.9, 0.0)), Some(1.0));
    assert_eq!(overlap(&falling, &Detection::default()), None);
}

/// The output of tests/golden/oks.py for the two persons below: pycocotools' similarity with COCO's sigmas, and with others.
const OKS: [f64; 2] = [0.9804360118364962, 0.9666792670974855];

/// A person whose points are moved along x, by more each; the last is a guess.
fn person(count: usize, step: f32) -> Detection {
    let point = |index: usize| Keypoint {
        x: 20.0 + (3.0 + step) * index as f32,
        y: 30.0,
        score: Some(if index + 1 == count { 0.1 } else { 0.9 }),
    };
    let box_in_source = Some([0.0, 0.0, 80.0, 120.0]);
    Detection { score: 0.9, box_in_source, keypoints: (0..count).map(point).collect(), ..Detection::default() }
}

#[test]
fn keypoints_are_compared_by_cocos_similarity() {
    let compared = |count: usize, names: &[String], limits: MatchLimits| {
        let mut agreement = Agreement::within(0.5, limits).with_keypoints(names);
        agreement.add(0, &[person(count, 0.0)], &[person(count, 0.25)]);
        agreement.add(1, &[person(count, 0.0)], &[person(count, 0.0)]);
        agreement.all
    };
    let close =
        |found: Option<f64>, wanted: f64| assert!((found.unwrap() - wanted).abs() < 1e-6, "{found:?}, {wanted}");
    let coco = KeypointCard::coco().names.unwrap();
    let all = compared(17, &coco, LIMITS);
    close(all.min_oks.map(|worst| worst.value), OKS[0]);
    close(all.mean_oks(), (1.0 + OKS[0]) / 2.0);
    assert_eq!((all.min_oks.unwrap().picture, all.outside), (0, 0));
    close(compared(17, &[], LIMITS).min_oks.map(|worst| worst.value), OKS[1]);
    assert_eq!(compared(17, &coco, MatchLimits { min_oks: 0.99, ..LIMITS }).outside, 1);
    // One point, which is a guess; none; no box.
    assert_eq!(compared(1, &[], LIMITS).min_oks, None);
    assert_eq!(compared(0, &[], LIMITS).mean_oks(), None);
    let mut agreement = Agreement::new(0.5);
    let boxless = || Detection { box_in_source: None, ..person(17, 0.0) };
    agreement.add(0, &[boxless()], &[boxless()]);
    assert_eq!((agreement.all.matched, agreement.all.min_oks), (1, None));
}

proptest::proptest! {
    #[test]
    fn the_similarity_of_keypoints_is_a_share_whatever_the_numbers(
        numbers in proptest::collection::vec((proptest::num::f32::ANY, proptest::num::f32::ANY), 34),
        bounds in proptest::array::uniform4(proptest::num::f32::ANY),
        has_coco_points in proptest::bool::ANY,
    ) {
        let point = |&(x, y): &(f32, f32)| Keypoint { x, y, score: None };
        let of = |half: &[(f32, f32)]| Detection {
            box_in_source: Some(bounds),
            keypoints: half.iter().map(point).collect(),
            ..Detection::default()
        };
        let found = super::oks::oks(&of(&numbers[..17]), &of(&numbers[17..]), has_coco_points);
        proptest::prop_assert!(found.is_some_and(|value| (0.0..=1.0).contains(&value)), "{found:?}");
    }
}
