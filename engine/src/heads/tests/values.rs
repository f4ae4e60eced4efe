//! Attributes, embeddings and depth: matching cards and outputs, and hostile numbers.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use visiond_kernels::tensor::{DType, TensorRef};

use super::tensor;
use crate::backend::{Dim, TensorInfo};
use crate::card::Card;
use crate::heads::*;

const GENDER: &str = "name = \"gender\"\noutput = \"g\"\nclasses = [\"female\", \"male\"]\n";
const HAT: &str = "name = \"hat\"\noutput = \"h\"\nclasses = [\"no\", \"yes\"]\n";
const AGE: &str = "name = \"age\"\noutput = \"a\"\nscale = 100\n";
const TAGS: &str = "name = \"tags\"\noutput = \"t\"\nclasses = [\"bag\", \"coat\", \"tie\"]\nmulti_label = true\n";

fn card(text: &str) -> Card {
    Card::from_toml(text, Path::new("net.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn attributes(all: &[&str]) -> String {
    let tables: String = all.iter().map(|one| format!("[[head.attribute]]\n{one}")).collect();
    format!("[head]\nfamily = \"attributes\"\n{tables}")
}

/// Outputs of one frame: name, shape, numbers.
type Outputs<'a> = &'a [(&'a str, &'a [usize], &'a [f32])];

fn infos(outputs: Outputs<'_>) -> Vec<TensorInfo> {
    outputs.iter().map(|(name, shape, _)| tensor(name, shape)).collect()
}

/// Applies `read` to the card's head and its input.
fn with_input<T>(text: &str, outputs: Outputs<'_>, read: impl FnOnce(&mut dyn Head, &HeadInput<'_>) -> T) -> T {
    let card = card(text);
    let mut head =
        build(&card.head, &infos(outputs), (8, 8), card.classes.len()).unwrap_or_else(|error| panic!("{error}"));
    let bytes: Vec<Vec<u8>> =
        outputs.iter().map(|(_, _, numbers)| numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()).collect();
    let named: Vec<NamedOutput<'_>> = outputs
        .iter()
        .zip(&bytes)
        .map(|((name, shape, _), bytes)| NamedOutput {
            name,
            tensor: TensorRef::new(DType::F32, shape, bytes).unwrap(),
        })
        .collect();
    let input = HeadInput { outputs: &named, input_size: (8, 8), score_threshold: card.score_threshold, mapping: None };
    read(head.as_mut(), &input)
}

/// The attributes as text.
fn read(text: &str, outputs: Outputs<'_>) -> Vec<String> {
    let label = |one: &ScoredLabel| format!("{} {:.3}", one.label, one.score);
    let mut out = Decoded::default();
    with_input(text, outputs, |head, input| head.decode(input, &mut out)).unwrap();
    let line = |AttributeValue { name, reading }: &AttributeValue| match reading {
        Reading::Label(one) => format!("{name}: {}", label(one)),
        Reading::Labels(all) => format!("{name}: [{}]", all.iter().map(label).collect::<Vec<_>>().join(", ")),
        Reading::Number(number) => format!("{name}: {number:.3}"),
    };
    assert!(out.candidates.is_empty());
    out.values.attributes.iter().map(line).collect()
}

fn doubt(text: &str, outputs: Outputs<'_>) -> String {
    let found = with_input(text, outputs, |head, input| head.check_numbers(input));
    found.err().map(|error| error.to_string()).unwrap_or_default()
}

fn refused(text: &str, outputs: &[TensorInfo]) -> String {
    let card = card(text);
    build(&card.head, outputs, (8, 8), card.classes.len()).err().map_or(String::new(), |error| error.to_string())
}

#[test]
fn attributes_come_in_the_order_of_the_card() {
    let outputs: Outputs<'_> = &[
        ("t", &[1, 3], &[-1.0, 2.0, 3.0]),
        ("a", &[1, 1, 1, 1], &[0.312]),
        ("g", &[1, 2, 1, 1], &[2.0, -1.0]),
        ("h", &[1, 1], &[-2.0]),
    ];
    assert_eq!(
        read(&attributes(&[GENDER, AGE, HAT, TAGS]), outputs),
        ["gender: female 0.953", "age: 31.200", "hat: no 0.881", "tags: [tie 0.953, coat 0.881]"]
    );
    assert_eq!(read(&attributes(&[TAGS, AGE]), outputs), ["tags: [tie 0.953, coat 0.881]", "age: 31.200"]);
    // The threshold is that of the labels.
    let strict = attributes(&[TAGS, GENDER]) + "[detect]\nscore_threshold = 0.96\n";
    assert_eq!(read(&strict, outputs), ["tags: []", "gender: female 0.953"]);
}

#[test]
fn an_activation_is_the_cards_or_what_the_numbers_show() {
    let gender = |activation: &str, numbers: &[f32]| {
        read(&attributes(&[&(GENDER.to_owned() + activation)]), &[("g", &[1, 2], numbers)]).join("; ")
    };
    assert_eq!(gender("", &[0.25, 0.75]), "gender: male 0.750", "already probabilities");
    assert_eq!(gender("", &[0.25, 0.85]), "gender: male 0.646", "a softmax");
    assert_eq!(gender("activation = \"softmax\"\n", &[0.25, 0.75]), "gender: male 0.622");
    assert_eq!(gender("activation = \"sigmoid\"\n", &[0.0, -1.0]), "gender: female 0.500");
    assert_eq!(gender("activation = \"none\"\n", &[0.5, 0.5]), "gender: female 0.500", "the first of the best");
    let hat = |activation: &str, number: f32| {
        read(&attributes(&[&(HAT.to_owned() + activation)]), &[("h", &[1, 1], &[number])]).join("; ")
    };
    assert_eq!(hat("", 0.0), "hat: yes 0.500");
    assert_eq!(hat("activation = \"none\"\n", 0.2), "hat: no 0.800");
    assert_eq!(hat("activation = \"none\"\n", 1.5), "hat: yes 1.000");
}

#[test]
fn a_part_of_an_output_is_an_attribute_too() {
    // InsightFace's genderage: two scores, and an age in hundreds of years.
    let parts = [GENDER.to_owned() + "column = 0\n", AGE.to_owned() + "column = 2\n"];
    let text = attributes(&[&parts[0], &parts[1]]).replace("\"a\"", "\"g\"");
    assert_eq!(read(&text, &[("g", &[1, 3], &[-1.0, 1.0, 0.27])]), ["gender: male 0.881", "age: 27.000"]);
    let error = refused(&text, &[tensor("g", &[1, 2])]);
    assert!(error.contains("`g` has 2 numbers, and the attribute `age` reads 1 from number 2 on"), "{error}");
}

#[test]
fn an_attribute_with_a_number_that_is_not_finite_is_left_out() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for wrong in [nan, inf, -inf] {
        let outputs: Outputs<'_> = &[
            ("g", &[1, 2], &[wrong, wrong]),
            ("a", &[1, 1], &[wrong]),
            ("h", &[1, 1], &[nan]),
            ("t", &[1, 3], &[0.0, nan, 0.0]),
        ];
        assert_eq!(read(&attributes(&[GENDER, AGE, HAT, TAGS]), outputs), [""; 0], "{wrong}");
    }
    let huge: Outputs<'_> =
        &[("g", &[1, 2], &[3e38, -3e38]), ("a", &[1, 1], &[3e38]), ("t", &[1, 3], &[inf, -inf, 1e30])];
    assert_eq!(read(&attributes(&[GENDER, AGE, TAGS]), huge), ["gender: female 1.000", "tags: [bag 1.000, tie 1.000]"]);
}

#[test]
fn an_attribute_that_does_not_fit_its_output_is_refused_with_what_to_write() {
    let all = attributes(&[GENDER, AGE]);
    let found = |outputs: &[TensorInfo]| refused(&all, outputs);
    assert_eq!(found(&[tensor("g", &[1, 2]), tensor("a", &[1, 1])]), "");
    let error = found(&[tensor("gg", &[1, 2]), tensor("a", &[1, 1])]);
    assert!(error.contains("no output is called `g`, which the attribute `gender` reads"), "{error}");
    let error = found(&[tensor("g", &[1, 5]), tensor("a", &[1, 1])]);
    assert!(error.contains("`g` has 5 numbers instead of 2, which the attribute `gender` reads"), "{error}");
    assert!(error.ends_with(": name 5 `classes`, or write the first as `column`"), "{error}");
    let error = found(&[tensor("g", &[1, 2]), tensor("a", &[1, 3])]);
    assert!(error.ends_with(": write which of them as `column`, or name its `classes`"), "{error}");
    let error = found(&[tensor("g", &[1, 2, 7, 7]), tensor("a", &[1, 1])]);
    assert!(error.contains("`g`, which the attribute `gender` reads, is not one row of numbers"), "{error}");
    let named = refused(&(all + "[classes]\nnames = [\"x\"]\n"), &[tensor("g", &[1, 2]), tensor("a", &[1, 1])]);
    assert!(named.ends_with(": remove [classes]"), "{named}");
}

#[test]
fn open_outputs_are_checked_when_they_are_read() {
    let open = TensorInfo { shape: Some(vec![Dim::Fixed(1), Dim::Dynamic("n".to_owned())]), ..tensor("g", &[]) };
    let card = card(&attributes(&[GENDER]));
    let mut head = build(&card.head, &[open], (8, 8), 0).unwrap();
    let bytes = [0_u8; 12];
    let outputs = [NamedOutput { name: "g", tensor: TensorRef::new(DType::F32, &[1, 3], &bytes).unwrap() }];
    let input = HeadInput { outputs: &outputs, input_size: (8, 8), score_threshold: 0.5, mapping: None };
    let error = head.decode(&input, &mut Decoded::default()).unwrap_err().to_string();
    assert!(error.contains("`g` has 3 numbers instead of 2"), "{error}");
}

#[test]
fn numbers_that_cannot_be_what_the_card_says_are_doubted() {
    let tags = |lines: &str| attributes(&[&(TAGS.to_owned() + lines)]);
    let found = doubt(&tags("activation = \"none\"\n"), &[("t", &[1, 3], &[-4.0, 0.5, 0.2])]);
    assert!(found.contains("of the attribute `tags`, its scores are from -4.00 to 0.50"), "{found}");
    assert!(found.ends_with(": write `activation = \"sigmoid\"` under [[head.attribute]]"), "{found}");
    assert_eq!(doubt(&tags(""), &[("t", &[1, 3], &[0.5, 0.2, 0.1])]), "", "three numbers show nothing");
    let gender = |numbers: &[f32], activation: &str| {
        let text = attributes(&[&format!("{GENDER}activation = \"{activation}\"\n")]);
        doubt(&text, &[("g", &[1, 2], numbers)])
    };
    assert!(gender(&[3.0, -1.0], "none").contains("logits and not probabilities"));
    assert_eq!(gender(&[0.3, 0.7], "softmax"), "", "logits may add up to 1");
    let embedding = "[head]\nfamily = \"embedding\"\n";
    let found = doubt(embedding, &[("e", &[1, 6], &[0.5, 0.1, 0.1, 0.1, 0.1, 0.1])]);
    assert!(found.contains("its numbers add up to 1, so they are the scores of a classifier"), "{found}");
    assert_eq!(doubt(embedding, &[("e", &[1, 6], &[0.5, -0.1, 0.3, 0.1, 0.1, 0.1])]), "");
}

#[test]
fn an_embedding_is_one_row_of_a_model() {
    let text = "[head]\nfamily = \"embedding\"\n";
    for shape in [&[1, 512][..], &[1, 512, 1, 1], &[512]] {
        assert_eq!(refused(text, &[tensor("e", shape)]), "", "{shape:?}");
    }
    assert!(refused(text, &[tensor("e", &[1, 7, 7])]).contains("no output is one row of numbers"));
    assert!(refused(text, &[tensor("e", &[1, 1])]).contains("`e` has too few numbers for an embedding"));
    assert!(refused(text, &[tensor("e", &[1, 16_385])]).contains("at most 16384"));
    let two = [tensor("logits", &[1, 9]), tensor("e", &[1, 512]), tensor("m", &[1, 3, 4])];
    assert_eq!(refused(&format!("{text}output = \"e\"\n"), &two), "");
    let error = refused(&format!("{text}output = \"ee\"\n"), &two);
    assert!(error.contains("no output is called `ee`") && error.ends_with("did you mean `e`?"), "{error}");
    assert!(
        refused(&format!("{text}output = \"m\"\n"), &two).contains("which the card names as output, has another shape")
    );
    assert!(refused(&format!("{text}[classes]\nnames = [\"a\"]\n"), &two).ends_with("remove [classes]"));
}

#[test]
fn a_depth_map_has_one_channel() {
    let text = "[head]\nfamily = \"depth\"\n";
    for shape in [&[1, 6, 9][..], &[1, 1, 6, 9], &[1, 6, 9, 1], &[6, 9], &[6, 9, 1]] {
        assert_eq!(refused(text, &[tensor("d", shape)]), "", "{shape:?}");
    }
    for shape in [&[1, 3, 6, 9][..], &[1, 6, 9, 3], &[9]] {
        assert!(refused(text, &[tensor("d", shape)]).contains("no output is a map of one channel"), "{shape:?}");
    }
    assert!(refused(text, &[tensor("d", &[1, 9])]).contains("`d` is not a map: a side has fewer than 2 numbers"));
    // Rows stay rows in every layout.
    let numbers: Vec<f32> = (0..12).map(|n| n as f32).collect();
    for shape in [&[1, 2, 6][..], &[1, 1, 2, 6], &[1, 2, 6, 1]] {
        let mut out = Decoded::default();
        let text = format!("{text}grid = [2, 2]\nnearer = \"smaller\"\n");
        with_input(&text, &[("d", shape, &numbers)], |head, input| head.decode(input, &mut out)).unwrap();
        assert_eq!(out.values.depth.median, [1.0, 4.0, 7.0, 10.0].map(Some), "{shape:?}");
        out.clear();
        assert!(out.values.is_empty());
    }
}

#[test]
fn a_card_with_attributes_that_contradict_themselves_is_refused() {
    let error = |text: &str| Card::from_toml(text, Path::new("net.toml")).unwrap_err().to_string();
    for (attribute, words) in [
        ("name = \"a\"\n", "an attribute has no `output`: write `output = "),
        ("output = \"a\"\n", "an attribute has no `name`"),
        ("name = \"\"\noutput = \"a\"\n", "`name` must have 1 to 256 characters"),
        ("name = \"a\"\noutput = \"a\"\nclasses = [\"x\"]\n", "`classes` has too few names"),
        ("name = \"a\"\noutput = \"a\"\nactivation = \"none\"\n", "`activation` does not apply to a number"),
        (
            "name = \"a\"\noutput = \"a\"\nclasses = [\"x\", \"y\"]\nscale = 2\n",
            "`scale` does not apply to an attribute with",
        ),
        (
            "name = \"a\"\noutput = \"a\"\nclasses = [\"x\"]\nmulti_label = true\nactivation = \"softmax\"\n",
            "a softmax picks one label",
        ),
        (
            "name = \"a\"\noutput = \"a\"\nclases = [\"x\"]\n",
            "[[head.attribute]] has no key `clases`: did you mean `classes`?",
        ),
        ("name = \"a\"\noutput = \"a\"\nscale = inf\n", "`scale` is inf"),
    ] {
        let message = error(&attributes(&[attribute]));
        assert!(message.contains(words), "{attribute}: {message}");
    }
    assert!(error(&attributes(&[AGE, AGE])).contains("`name` is `age` in two attributes: rename one"));
    assert!(error("[head]\nfamily = \"attributes\"\n").contains("the card has no attribute: write [[head.attribute]]"));
    assert!(error("[head]\nfamily = \"attributes\"\nattribute = [1]\n").contains("not a list of tables"));
    for (grid, words) in
        [("[8]", "`grid` must be columns and rows"), ("[8, 65]", "`grid` is 65"), ("[0, 6]", "`grid` is 0")]
    {
        let message = error(&format!("[head]\nfamily = \"depth\"\ngrid = {grid}\n"));
        assert!(message.contains(words), "{message}");
    }
}
