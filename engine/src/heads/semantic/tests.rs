//! Maps of classes: the layouts, the background, the scores, and what is doubted.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use visiond_kernels::mask::Mask;
use visiond_kernels::placement::{Fit, Mapping};
use visiond_kernels::tensor::{DType, TensorRef};

use crate::backend::TensorInfo;
use crate::heads::spec::{Activation, Background, HeadSpec};
use crate::heads::tests::{shapes_of, tensor};
use crate::heads::{Decoded, HeadInput, NamedOutput, build};

const PLAIN: HeadSpec = HeadSpec::Semantic { activation: None, background: Background::None };

fn spec(activation: Option<Activation>, background: Background) -> HeadSpec {
    HeadSpec::Semantic { activation, background }
}

/// Decodes one output for an input of 8 x 4 and a frame of `frame`.
fn decode(spec: &HeadSpec, info: &TensorInfo, bytes: &[u8], classes: usize, frame: (u32, u32)) -> Decoded {
    let shape = &shapes_of(std::slice::from_ref(info))[0];
    let outputs = [NamedOutput { name: &info.name, tensor: TensorRef::new(info.dtype, shape, bytes).unwrap() }];
    let mut head = build(spec, std::slice::from_ref(info), (8, 4), classes).unwrap_or_else(|error| panic!("{error}"));
    let mapping = Some(Mapping::new(Fit::Stretch, frame, (8, 4)));
    let mut out = Decoded::default();
    head.decode(&HeadInput { outputs: &outputs, input_size: (8, 4), score_threshold: 0.0, mapping }, &mut out).unwrap();
    out
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Class, area and box of each class.
fn found(out: &Decoded) -> Vec<(u32, u64, [u32; 4])> {
    out.class_areas.iter().map(|found| (found.class_id, found.region.area, found.region.bounds)).collect()
}

/// A map of 8 x 4 cells whose left three columns are class 0, and the others class 2.
fn classes() -> Vec<u32> {
    (0..32).map(|cell| if cell % 8 < 3 { 0 } else { 2 }).collect()
}

#[test]
fn the_layouts_of_all_exporters_give_the_same_classes() {
    let scores = |class: u32, cell: usize| if classes()[cell] == class { 3.0 } else { -1.0 };
    let planes: Vec<f32> = (0..3).flat_map(|class| (0..32).map(move |cell| scores(class, cell))).collect();
    let cells: Vec<f32> = (0..32).flat_map(|cell| (0..3).map(move |class| scores(class, cell))).collect();
    let wanted = vec![(2, 20 * 8, [6, 0, 16, 16]), (0, 12 * 8, [0, 0, 6, 16])];
    let frame = (16, 16);
    for (info, numbers) in [(tensor("y", &[1, 3, 4, 8]), &planes), (tensor("y", &[1, 4, 8, 3]), &cells)] {
        for named in [0, 3] {
            assert_eq!(found(&decode(&PLAIN, &info, &bytes(numbers), named, frame)), wanted, "{info}");
        }
    }
    let numbers: Vec<f32> = classes().iter().map(|&class| class as f32).collect();
    for shape in [&[1, 4, 8][..], &[1, 1, 4, 8], &[1, 4, 8, 1]] {
        let out = decode(&PLAIN, &tensor("y", shape), &bytes(&numbers), 3, frame);
        assert_eq!(found(&out), wanted, "{shape:?}");
        assert!(out.class_areas.iter().all(|found| found.region.score == 1.0));
    }
    let integers = TensorInfo { dtype: DType::I64, ..tensor("y", &[1, 4, 8]) };
    let long: Vec<u8> = classes().iter().flat_map(|&class| i64::from(class).to_ne_bytes()).collect();
    assert_eq!(found(&decode(&PLAIN, &integers, &long, 3, frame)), wanted);
    let short = TensorInfo { dtype: DType::U8, ..tensor("y", &[1, 4, 8]) };
    let bytes: Vec<u8> = classes().iter().map(|&class| class as u8).collect();
    assert_eq!(found(&decode(&PLAIN, &short, &bytes, 0, frame)), wanted);
}

#[test]
fn the_background_is_not_reported_and_classes_count_without_it() {
    let numbers: Vec<f32> = classes().iter().map(|&class| class as f32).collect();
    let of = |background, named| {
        found(&decode(&spec(None, background), &tensor("y", &[1, 4, 8]), &bytes(&numbers), named, (8, 4)))
    };
    assert_eq!(of(Background::First, 0), [(1, 20, [3, 0, 8, 4])]);
    assert_eq!(of(Background::First, 2), [(1, 20, [3, 0, 8, 4])]);
    assert_eq!(of(Background::Last, 2), [(0, 12, [0, 0, 3, 4])]);
    // 255 marks pixels without a class.
    let ignored: Vec<f32> = numbers.iter().map(|&class| if class == 0.0 { 255.0 } else { class }).collect();
    let out = decode(&PLAIN, &tensor("y", &[1, 4, 8]), &bytes(&ignored), 3, (8, 4));
    assert_eq!(found(&out), [(2, 20, [3, 0, 8, 4])]);
}

#[test]
fn the_score_is_the_mean_probability_of_the_classs_own_cells() {
    // Two classes; class 1 wins the left half by ln(3), so by 0.75, and class 0 the right by ln(9), by 0.9.
    let lead = |cell: usize| if cell % 8 < 4 { 3.0_f32.ln() } else { -9.0_f32.ln() };
    let logits: Vec<f32> = std::iter::repeat_n(0.0, 32).chain((0..32).map(lead)).collect();
    let info = tensor("y", &[1, 2, 4, 8]);
    let scores = |spec: &HeadSpec, numbers: &[f32]| {
        let mut found: Vec<_> = decode(spec, &info, &bytes(numbers), 2, (8, 4))
            .class_areas
            .iter()
            .map(|found| (found.class_id, (f64::from(found.region.score) * 1e4).round() / 1e4))
            .collect();
        found.sort_by_key(|(class, _)| *class);
        found
    };
    assert_eq!(scores(&PLAIN, &logits), [(0, 0.9), (1, 0.75)]);
    assert_eq!(scores(&spec(Some(Activation::Sigmoid), Background::None), &logits), [(0, 0.5), (1, 0.75)]);
    let probable: Vec<f32> = (0..32)
        .map(|cell| if cell % 8 < 4 { 0.25 } else { 0.9 })
        .chain((0..32).map(|cell| if cell % 8 < 4 { 0.75 } else { 0.1 }))
        .collect();
    assert_eq!(scores(&PLAIN, &probable), [(0, 0.9), (1, 0.75)], "probabilities are seen");
    assert_eq!(scores(&spec(Some(Activation::None), Background::None), &probable), [(0, 0.9), (1, 0.75)]);
}

#[test]
fn masks_have_the_pixels_of_their_class() {
    let numbers: Vec<f32> = classes().iter().map(|&class| class as f32).collect();
    let mut out = decode(&PLAIN, &tensor("y", &[1, 4, 8]), &bytes(&numbers), 3, (80, 40));
    let regions: Vec<_> = out.class_areas.iter().map(|found| found.region).collect();
    let mut masks: Vec<Mask> = Vec::new();
    assert_eq!(out.class_map.masks(&regions, &mut masks), 0);
    assert_eq!(masks.iter().map(Mask::area).collect::<Vec<_>>(), [2000, 1200]);
    assert_eq!((masks[0].left, masks[0].width, masks[1].left, masks[1].width), (30, 50, 0, 30));
    assert!((out.class_map.fraction(&regions[0]) - 0.625).abs() < 1e-9);
}

fn refused(spec: &HeadSpec, shape: &[usize], size: (u32, u32), named: usize) -> String {
    let error = build(spec, &[tensor("y", shape)], size, named).err();
    error.map_or_else(String::new, |error| format!("{} {error}", error.key))
}

#[test]
fn a_map_of_other_classes_or_of_another_shape_is_refused() {
    assert_eq!(refused(&PLAIN, &[1, 150, 128, 128], (512, 512), 150), "");
    assert_eq!(refused(&PLAIN, &[1, 65, 65, 21], (513, 513), 21), "");
    assert_eq!(refused(&PLAIN, &[1, 21, 47, 63], (500, 375), 0), "");
    let error = refused(&PLAIN, &[1, 21, 65, 65], (513, 513), 20);
    assert!(error.starts_with("classes head `semantic` reads scores [1, classes, h, w]"), "{error}");
    assert!(error.contains("`y` has 21 scores a cell instead of 20, for the card's 20 classes"), "{error}");
    assert!(
        error.ends_with("if one of them is the background, write `background = \"first\"` or `\"last\"` under [head]"),
        "{error}"
    );
    assert_eq!(refused(&spec(None, Background::First), &[1, 21, 65, 65], (513, 513), 20), "");
    let error = refused(&PLAIN, &[1, 19, 65, 65], (1024, 512), 19);
    assert!(error.contains("`y` has no height and width with the shape of an input of 1024x512"), "{error}");
    let error = refused(&PLAIN, &[1, 100, 7], (512, 512), 0);
    assert!(error.contains("`y` has 7x100 cells, which do not match an input of 512x512"), "{error}");
    assert!(refused(&PLAIN, &[1, 1000], (224, 224), 0).contains("no output is a map of classes"));
    // The first output that fits is read: torchvision's `out` stands before its `aux`.
    let outputs = [tensor("depths", &[1, 9]), tensor("out", &[1, 21, 64, 64]), tensor("aux", &[1, 21, 64, 64])];
    assert!(build(&PLAIN, &outputs, (512, 512), 21).is_ok());
}

fn doubt(spec: &HeadSpec, shape: &[usize], named: usize, numbers: &[f32]) -> String {
    let info = tensor("y", shape);
    let head = build(spec, std::slice::from_ref(&info), (8, 4), named).unwrap_or_else(|error| panic!("{error}"));
    let bytes = bytes(numbers);
    let outputs = [NamedOutput { name: "y", tensor: TensorRef::new(DType::F32, shape, &bytes).unwrap() }];
    let input = HeadInput { outputs: &outputs, input_size: (8, 4), score_threshold: 0.0, mapping: None };
    head.check_numbers(&input).err().map_or_else(String::new, |error| format!("{} {error}", error.key))
}

#[test]
fn numbers_that_cannot_be_classes_or_scores_are_doubted() {
    let numbers: Vec<f32> = classes().iter().map(|&class| class as f32).collect();
    assert_eq!(doubt(&PLAIN, &[1, 4, 8], 3, &numbers), "");
    let error = doubt(&PLAIN, &[1, 4, 8], 2, &numbers);
    assert!(
        error.starts_with("classes ") && error.contains("a cell has the number 2, beyond the card's 2 classes"),
        "{error}"
    );
    assert!(error.ends_with("name at least 3 classes under [classes], from class 0 on"), "{error}");
    assert_eq!(doubt(&PLAIN, &[1, 4, 8], 3, &[numbers[1..].to_vec(), vec![255.0]].concat()), "");
    let depths: Vec<f32> = (0..32_u8).map(|cell| f32::from(cell) * 0.37).collect();
    let error = doubt(&PLAIN, &[1, 1, 4, 8], 0, &depths);
    assert!(error.starts_with("head.family ") && error.contains("are not integers"), "{error}");
    // Logits that the card calls probabilities, and vice versa.
    let logits: Vec<f32> = (0..96_u8).map(|at| f32::from(at % 7) - 3.0).collect();
    let none = spec(Some(Activation::None), Background::None);
    let softmax = spec(Some(Activation::Softmax), Background::None);
    assert!(doubt(&none, &[1, 3, 4, 8], 3, &logits).starts_with("head.activation "));
    assert_eq!(doubt(&softmax, &[1, 3, 4, 8], 3, &logits), "");
    let probable: Vec<f32> = [0.25, 0.625, 0.125].into_iter().flat_map(|p| std::iter::repeat_n(p, 32)).collect();
    assert!(doubt(&softmax, &[1, 3, 4, 8], 3, &probable).starts_with("head.activation "));
    assert_eq!(doubt(&none, &[1, 3, 4, 8], 3, &probable), "");
    assert_eq!(doubt(&PLAIN, &[1, 3, 4, 8], 3, &probable), "");
}
