//! Maps of text: coordinates, options, and what is doubted.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use visiond_kernels::tensor::{DType, TensorRef};

use crate::card::Card;
use crate::heads::spec::{DbTextSpec, HeadSpec};
use crate::heads::tests::tensor;
use crate::heads::{Decoded, HeadInput, NamedOutput, build};

/// A map of 40 x 20 cells with a text of `value` in columns 10 to 30 and lines 5 to 11.
fn map(text: f32, other: f32) -> Vec<f32> {
    let is_text = |cell: usize| (10..=30).contains(&(cell % 40)) && (5..=11).contains(&(cell / 40));
    (0..800).map(|cell| if is_text(cell) { text } else { other }).collect()
}

fn spec(text: &str) -> HeadSpec {
    let card = format!("[head]\nfamily = \"db-text\"\n{text}");
    Card::from_toml(&card, std::path::Path::new("net.toml")).unwrap_or_else(|error| panic!("{error}")).head
}

/// Centre, sides and score of each text in a map for an input of 160 x 80, four times as large.
fn decode(spec: &HeadSpec, numbers: &[f32], score_threshold: f32) -> Vec<([f32; 2], [f32; 2], f32)> {
    let shape = [1, 1, 20, 40];
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let outputs = [NamedOutput { name: "maps", tensor: TensorRef::new(DType::F32, &shape, &bytes).unwrap() }];
    let mut head = build(spec, &[tensor("maps", &shape)], (160, 80), 1).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Decoded::default();
    let input = HeadInput { outputs: &outputs, input_size: (160, 80), score_threshold, mapping: None };
    head.decode(&input, &mut out).unwrap();
    let texts = out.candidates.iter().map(|candidate| {
        let oriented = out.oriented(candidate).expect("a turned box");
        (oriented.center, oriented.size, candidate.score)
    });
    texts.collect()
}

#[test]
fn a_text_is_mapped_to_the_input_and_grows_by_the_cards_ratio() {
    // 20 x 6 cells grow by 120 / 52 times the ratio on each side.
    let of = |text: &str| decode(&spec(text), &map(0.75, 0.0), 0.6);
    let found = of("");
    assert_eq!((found.len(), found[0].0, found[0].2), (1, [80.0, 32.0], 0.75));
    let sides = |ratio: f32| [20.0_f32, 6.0].map(|side| 4.0 * (side + 2.0 * ratio * 120.0 / 52.0));
    assert!(found[0].1.iter().zip(sides(1.5)).all(|(found, wanted)| (found - wanted).abs() < 1e-3), "{found:?}");
    let wide = of("unclip_ratio = 2");
    assert!(wide[0].1.iter().zip(sides(2.0)).all(|(found, wanted)| (found - wanted).abs() < 1e-3), "{wide:?}");
    assert_eq!(of("thresh = 0.8").len(), 0);
    assert_eq!(decode(&spec(""), &map(0.75, 0.0), 0.8).len(), 0, "the score threshold is PaddleOCR's box_thresh");
    let logits = map(3.0_f32.ln(), -9.0);
    let found = decode(&spec("sigmoid = true"), &logits, 0.6);
    assert!(found.len() == 1 && (found[0].2 - 0.75).abs() < 1e-5, "{found:?}");
    // Two texts, one candidate: that with more cells.
    let mut two = map(0.75, 0.0);
    (0..5).for_each(|line| two[line * 40 + 600..][..12].fill(0.9));
    assert_eq!((decode(&spec(""), &two, 0.6).len(), decode(&spec("max_candidates = 1"), &two, 0.6)[0].2), (2, 0.75));
}

#[test]
fn a_card_without_names_calls_it_text_and_a_wrong_card_is_refused() {
    let card =
        |text: &str| Card::from_toml(&format!("[head]\nfamily = \"db-text\"\n{text}"), std::path::Path::new("n.toml"));
    let plain = card("").unwrap();
    assert_eq!((plain.classes, plain.score_threshold), (vec!["text".to_owned()], 0.6));
    assert_eq!(card("\n[classes]\nnames = [\"sign\"]").unwrap().classes, ["sign"]);
    let error = card("\n[input]\nfit = \"stretch\"").unwrap_err().to_string();
    assert!(error.contains("lose their right angles"), "{error}");
    assert!(card("thresh = 1.5").unwrap_err().to_string().contains("`thresh`"));
    let refused = |shape: &[usize], classes| {
        let error = build(&HeadSpec::DbText(DbTextSpec::default()), &[tensor("y", shape)], (160, 80), classes).err();
        error.map_or_else(String::new, |error| error.to_string())
    };
    assert_eq!(refused(&[1, 1, 80, 160], 1), "");
    assert!(refused(&[1, 1, 80, 160], 2).ends_with("name 1 class under [classes], or remove the names"));
    assert!(refused(&[1, 1, 80, 80], 1).contains("`y` has 80x80 cells"));
    assert!(refused(&[1, 2, 80, 160], 1).contains("no output is [1, 1, h, w]"));
}

#[test]
fn logits_are_doubted_as_probabilities_and_the_other_way_round() {
    let doubt = |text: &str, numbers: &[f32]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let outputs = [NamedOutput { name: "y", tensor: TensorRef::new(DType::F32, &[1, 1, 20, 40], &bytes).unwrap() }];
        let head = build(&spec(text), &[tensor("y", &[1, 1, 20, 40])], (160, 80), 1).unwrap_or_else(|e| panic!("{e}"));
        let input = HeadInput { outputs: &outputs, input_size: (160, 80), score_threshold: 0.6, mapping: None };
        head.check_numbers(&input).err().map_or_else(String::new, |error| format!("{} {error}", error.key))
    };
    assert_eq!(doubt("", &map(0.9, 0.01)), "");
    assert_eq!(doubt("sigmoid = true", &map(2.0, -4.0)), "");
    let error = doubt("", &map(2.0, -4.0));
    assert!(error.starts_with("head.sigmoid ") && error.contains("write `sigmoid = true` under [head]"), "{error}");
    let error = doubt("sigmoid = true", &map(0.9, 0.01));
    assert!(error.starts_with("head.sigmoid ") && error.ends_with("remove `sigmoid` under [head]"), "{error}");
}
