//! Guesses from shapes and from the last operators of a graph.

use std::collections::BTreeMap;

use visiond_kernels::tensor::DType;

use crate::backend::{Dim, TensorInfo};
use crate::heads::build::build;
use crate::heads::exports::recognise;
use crate::heads::guess::{HeadGuess, guess_heads};
use crate::heads::model_facts::ModelFacts;
use crate::heads::spec::{AnchorKind, BoxFormat, BoxesSpec, Family, HeadSpec};
use crate::onnx::PartKind::{Computed, Constant, Raw, Sigmoid, Softmax};
use crate::onnx::{OutputTail, Part, PartKind};

/// A tensor; a dimension of 0 is open.
fn tensor(name: &str, shape: &[usize]) -> TensorInfo {
    let dim = |&dim: &usize| if dim == 0 { Dim::Dynamic(String::new()) } else { Dim::Fixed(dim) };
    TensorInfo { name: name.to_owned(), dtype: DType::F32, shape: Some(shape.iter().map(dim).collect()) }
}

/// The shape again; an open dimension is 0.
fn shape_of(info: &TensorInfo) -> Vec<usize> {
    info.shape.iter().flatten().map(|dim| dim.fixed().unwrap_or(0)).collect()
}

/// The tail of an output whose rows have these parts.
pub(in crate::heads) fn row(parts: &[(usize, PartKind)]) -> OutputTail {
    let part = |&(width, kind): &(usize, PartKind)| Part { width, kind, sigmoid: kind == Sigmoid, exp: false };
    let any = |wanted| parts.iter().any(|(_, kind)| *kind == wanted);
    let width = parts.iter().map(|(width, _)| *width).sum();
    OutputTail {
        seen: true,
        known: true,
        sigmoid: any(Sigmoid),
        softmax: any(Softmax),
        arithmetic: any(Computed),
        joined: parts.len() > 1,
        parts: BTreeMap::from([(width, parts.iter().map(part).collect())]),
        ..OutputTail::default()
    }
}

/// The guesses for an image of `width` and `height`, 0 for a side that is open.
fn guesses(outputs: &[(TensorInfo, OutputTail)], width: usize, height: usize) -> Vec<HeadGuess> {
    let metadata = BTreeMap::new();
    let tails = outputs.iter().map(|(info, tail)| (info.name.clone(), tail.clone())).collect();
    let outputs: Vec<TensorInfo> = outputs.iter().map(|(info, _)| info.clone()).collect();
    let inputs = [tensor("images", &[1, 3, height, width])];
    guess_heads(ModelFacts { inputs: &inputs, outputs: &outputs, metadata: &metadata, tails: &tails })
}

/// The only guess for one output of a network for images of 320x320, and its options.
fn only(shape: &[usize], tail: OutputTail) -> Option<(Family, Option<usize>, String)> {
    let guesses = guesses(&[(tensor("output", shape), tail)], 320, 320);
    assert!(guesses.len() < 2, "{guesses:?}");
    let guess = guesses.into_iter().next()?;
    let (_, options) = guess.card.split_once("[head]\n")?;
    let (options, _) = options.split_once("\n[classes]")?;
    let (_, options) = options.split_once('\n')?;
    Some((guess.family, guess.class_count, options.trim().replace('\n', ", ")))
}

#[test]
fn the_parts_of_a_row_tell_the_yolos_apart_whatever_the_number_of_classes() {
    for classes in [1, 2, 3, 10, 27, 28, 80] {
        let (scores, count) = ((classes, Sigmoid), Some(classes));
        let nanodet = |reg_max: usize, options: &str| {
            let distances = 4 * (reg_max + 1);
            let found = only(&[1, 2100, classes + distances], row(&[scores, (distances, Raw)]));
            assert_eq!(found, Some((Family::Nanodet, count, options.to_owned())));
        };
        nanodet(7, "strides = [8, 16, 32], reg_max = 7, cell_centre = true, sigmoid = false");
        nanodet(10, "strides = [8, 16, 32], reg_max = 10, cell_centre = true, sigmoid = false");
        nanodet(15, "strides = [8, 16, 32], reg_max = 15, cell_centre = true, sigmoid = false");
        let yolox = only(&[1, 2100, 5 + classes], row(&[(4, Raw), (1, Sigmoid), scores]));
        let options = "decoded = false, strides = [8, 16, 32]".to_owned();
        assert_eq!(yolox, Some((Family::Yolox, count, options)));
        for shape in [[1, 2100, 4 + classes], [1, 4 + classes, 2100]] {
            assert_eq!(only(&shape, row(&[(4, Computed), scores])), Some((Family::Yolov8, count, String::new())));
        }
        let yolov5 = row(&[(2, Computed), (2, Computed), (1 + classes, Sigmoid)]);
        assert_eq!(only(&[1, 6300, 5 + classes], yolov5), Some((Family::Yolov5, count, String::new())));
        // YOLOv7-pose: the points of a row went through a sigmoid in part.
        let points = Part { width: 51, kind: Computed, sigmoid: true, exp: false };
        let mut pose = row(&[(2, Computed), (2, Computed), (1 + classes, Sigmoid), (51, Computed)]);
        pose.parts.values_mut().for_each(|parts| parts[3] = points);
        let found = only(&[1, 6300, 56 + classes], pose);
        assert_eq!(found, Some((Family::Yolov5, count, "keypoints = [17, 3]".to_owned())));
        // YOLOv6 writes an objectness of 1 for each cell.
        let yolov6 = row(&[(4, Computed), (1, Constant), scores]);
        assert_eq!(only(&[1, 2100, 5 + classes], yolov6), Some((Family::Yolov5, count, String::new())));
        // As many queries as a grid has anchors.
        let detr = row(&[(4, Sigmoid), scores]);
        assert_eq!(only(&[1, 300, 4 + classes], detr), Some((Family::Detr, count, String::new())));
    }
}

#[test]
fn five_points_between_objectness_and_the_one_class_are_those_of_a_face() {
    let points = (10, Computed);
    let face = row(&[(2, Computed), (2, Computed), (1, Sigmoid), points, (1, Sigmoid)]);
    let wanted = Some((Family::Yolov5, Some(1), "keypoints = [5, 2]".to_owned()));
    assert_eq!(only(&[1, 6300, 16], face), wanted);
    // Eleven classes that the graph shows are classes.
    let classes = row(&[(2, Computed), (2, Computed), (12, Sigmoid)]);
    assert_eq!(only(&[1, 6300, 16], classes), Some((Family::Yolov5, Some(11), String::new())));
}

#[test]
fn numbers_after_the_scores_are_keypoints_or_nothing_that_a_head_reads() {
    let with = |rest: Part| {
        let mut tail = row(&[(4, Computed), (2, Sigmoid), (rest.width, rest.kind)]);
        tail.parts.values_mut().for_each(|parts| parts[2] = rest);
        only(&[1, 6 + rest.width, 2100], tail)
    };
    let points = Part { width: 10, kind: Computed, sigmoid: false, exp: false };
    assert_eq!(with(points), Some((Family::Yolov8, Some(2), "keypoints = [5, 2]".to_owned())));
    let scored = Part { width: 18, sigmoid: true, ..points };
    assert_eq!(with(scored), Some((Family::Yolov8, Some(2), "keypoints = [6, 3]".to_owned())));
    // The angle of an oriented box.
    let turned = Some((Family::Yolov8, Some(2), "oriented = true".to_owned()));
    assert_eq!(with(Part { width: 1, ..points }), turned);
    assert_eq!(with(Part { width: 1, kind: Raw, ..points }), turned);
    // Numbers that nothing decodes.
    assert_eq!(with(Part { width: 10, kind: Raw, ..points }), None);
}

#[test]
fn maps_of_classes_are_known_by_integers_a_softmax_their_name_or_many_planes() {
    let raw = || OutputTail { seen: true, known: true, ..OutputTail::default() };
    let softmax = || OutputTail { softmax: true, ..raw() };
    let one = |info: TensorInfo, tail: OutputTail, height: usize, width: usize| {
        let found = guesses(&[(info, tail)], width, height);
        assert!(found.len() < 2, "{found:?}");
        found
            .into_iter()
            .next()
            .map(|guess| (guess.family, guess.class_count, guess.card.contains("activation = \"softmax\"")))
    };
    let integers = |name: &str, shape: &[usize]| TensorInfo { dtype: DType::I64, ..tensor(name, shape) };
    // SegFormer, torchvision, DeepLab of TensorFlow, BiSeNet, PP-LiteSeg with an open size.
    let segformer = one(tensor("logits", &[1, 150, 128, 128]), raw(), 512, 512);
    assert_eq!(segformer, Some((Family::Semantic, Some(150), true)));
    assert_eq!(one(tensor("out", &[1, 21, 520, 520]), raw(), 520, 520), Some((Family::Semantic, Some(21), true)));
    assert_eq!(one(tensor("y", &[1, 65, 65, 21]), softmax(), 513, 513), Some((Family::Semantic, Some(21), false)));
    assert_eq!(one(tensor("preds", &[1, 19, 512, 1024]), raw(), 512, 1024), Some((Family::Semantic, Some(19), true)));
    for shape in [&[1, 512, 1024][..], &[1, 1, 512, 1024], &[1, 512, 1024, 1], &[1, 64, 128]] {
        let found = one(integers("SemanticPredictions", shape), raw(), 512, 1024);
        assert_eq!(found, Some((Family::Semantic, None, false)), "{shape:?}");
    }
    assert_eq!(one(integers("argmax_0.tmp_0", &[0, 0, 0]), raw(), 0, 0), Some((Family::Semantic, None, false)));
    let both = guesses(&[(tensor("out", &[1, 21, 65, 65]), raw()), (tensor("aux", &[1, 21, 65, 65]), raw())], 520, 520);
    assert_eq!(both.first().map(|guess| (guess.family, guess.class_count)), Some((Family::Semantic, Some(21))));
    // Mattes, joints, flow, images, features, and integers of another shape.
    for (info, tail) in [
        (tensor("output", &[1, 1, 512, 512]), raw()),
        (tensor("output", &[1, 512, 512]), raw()),
        (tensor("output", &[1, 17, 128, 128]), raw()),
        (tensor("flow", &[1, 2, 512, 512]), raw()),
        (tensor("output", &[1, 3, 512, 512]), raw()),
        (tensor("features", &[1, 256, 16, 16]), raw()),
        (integers("tokens", &[1, 77, 512]), raw()),
    ] {
        assert_eq!(one(info.clone(), tail, 512, 512), None, "{info}");
    }
}

#[test]
fn a_map_of_text_is_known_by_its_sigmoid_and_is_not_depth_or_a_mask() {
    let sigmoid = || OutputTail { seen: true, known: true, sigmoid: true, ..OutputTail::default() };
    let raw = || OutputTail { sigmoid: false, ..sigmoid() };
    let one = |name: &str, shape: &[usize], tail: OutputTail| {
        let found = guesses(&[(tensor(name, shape), tail)], 640, 640);
        found.first().map(|guess| (guess.family, guess.card.contains("names = [\"text\"]")))
    };
    let text = Some((Family::DbText, true));
    assert_eq!(one("fetch_name_0", &[1, 1, 640, 640], sigmoid()), text);
    assert_eq!(one("fetch_name_0", &[0, 1, 0, 0], sigmoid()), text);
    // An engine shows no operators.
    assert_eq!(one("sigmoid_0.tmp_0", &[1, 1, 640, 640], OutputTail::default()), text);
    assert_ne!(one("fetch_name_0", &[1, 1, 640, 640], OutputTail::default()), text);
    assert_ne!(one("output", &[1, 1, 640, 640], raw()), text);
    assert_ne!(one("depth", &[1, 1, 640, 640], sigmoid()), text);
    assert_ne!(one("mask", &[1, 1, 640, 640], sigmoid()), text);
    assert_ne!(one("output", &[1, 1, 320, 320], sigmoid()), text);
    assert_ne!(one("output", &[1, 640, 640], sigmoid()), text);
}

#[test]
fn a_network_that_no_head_reads_gets_no_card_of_another_family() {
    for (shape, tail) in [
        // Text recognition, whose rows are probabilities of characters; the second as long as the cells of a grid.
        ([1, 40, 97], row(&[(97, Softmax)])),
        ([1, 2100, 97], row(&[(97, Softmax)])),
        // Depth and lanes.
        ([1, 80, 80], OutputTail { seen: true, known: true, sigmoid: true, ..OutputTail::default() }),
        ([1, 201, 100], row(&[(100, Softmax)])),
        ([1, 100, 80], row(&[(80, Sigmoid)])),
        // Tokens of a transformer, after an operator that is unknown.
        ([1, 197, 192], OutputTail { seen: true, ..OutputTail::default() }),
        ([1, 300, 6], OutputTail { seen: true, ..OutputTail::default() }),
        // YOLOX in columns, and YOLO without its decoding.
        ([1, 8, 2100], row(&[(4, Raw), (1, Sigmoid), (3, Sigmoid)])),
        ([1, 6300, 8], row(&[(8, Sigmoid)])),
        // Scores before boxes.
        ([1, 2100, 7], row(&[(3, Sigmoid), (4, Raw)])),
    ] {
        assert_eq!(only(&shape, tail), None, "{shape:?}");
    }
}

/// An output of planes or a table that a layer gives.
fn raw(name: &str, shape: &[usize]) -> (TensorInfo, OutputTail) {
    (tensor(name, shape), OutputTail { seen: true, known: true, ..OutputTail::default() })
}

/// The same after a sigmoid.
fn scored(name: &str, shape: &[usize]) -> (TensorInfo, OutputTail) {
    let (info, tail) = raw(name, shape);
    (info, OutputTail { sigmoid: true, ..tail })
}

#[test]
fn planes_are_a_heat_map_only_with_sizes_and_offsets_or_their_names() {
    let family = |planes: &[(&str, usize)]| {
        let outputs: Vec<_> = planes.iter().map(|(name, count)| raw(name, &[1, *count, 40, 40])).collect();
        guesses(&outputs, 320, 320).first().map(|guess| (guess.family, guess.class_count))
    };
    assert_eq!(family(&[("hm", 3), ("wh", 2), ("reg", 2)]), Some((Family::Heatmap, Some(3))));
    assert_eq!(family(&[("hm", 2), ("wh", 2), ("reg", 2)]), Some((Family::Heatmap, Some(2))));
    assert_eq!(family(&[("a", 80), ("b", 2), ("c", 2)]), Some((Family::Heatmap, Some(80))));
    assert_eq!(family(&[("hm", 80), ("wh", 2)]), Some((Family::Heatmap, Some(80))));
    assert_eq!(family(&[("flow", 2), ("occlusion", 1)]), None);
    // A second output of a segmentation.
    let map = Some((Family::Semantic, Some(21)));
    assert_eq!(family(&[("out", 21), ("aux", 2)]), map);
    assert_eq!(family(&[("out", 21), ("aux", 2), ("edge", 2), ("more", 2)]), map);
    assert_eq!(family(&[("x", 21), ("aux", 2), ("edge", 2), ("more", 2)]), None);
}

#[test]
fn landmarks_and_embeddings_are_no_classes() {
    let family = |name: &str, change: fn(&mut OutputTail)| {
        let (info, mut tail) = raw(name, &[1, 136]);
        change(&mut tail);
        guesses(&[(info, tail)], 112, 112).first().map(|guess| guess.card.contains("activation = \"softmax\""))
    };
    assert_eq!(family("logits", |_| {}), Some(true));
    assert_eq!(family("film", |_| {}), Some(true));
    assert_eq!(family("lm", |_| {}), None);
    assert_eq!(family("output_landmarks", |_| {}), None);
    assert_eq!(family("features", |tail| tail.softmax = true), Some(false));
    // exp(x) over its sum.
    assert_eq!(family("y", |tail| (tail.exp, tail.scaled, tail.arithmetic) = (true, true, true)), Some(false));
}

#[test]
fn an_embedding_is_guessed_if_the_graph_normalises_it_or_its_name_says_so() {
    let guess = |name: &str, width: usize, change: fn(&mut OutputTail)| {
        let (info, mut tail) = raw(name, &[1, width]);
        change(&mut tail);
        guesses(&[(info, tail)], 128, 256).first().map(|guess| guess.family)
    };
    assert_eq!(guess("e", 136, |tail| tail.embedded = true), Some(Family::Embedding));
    assert_eq!(guess("embedding", 512, |_| {}), Some(Family::Embedding));
    assert_eq!(guess("embedding", 512, |tail| tail.softmax = true), Some(Family::Classifier));
    assert_eq!(guess("features", 512, |_| {}), None);
    assert_eq!(guess("logits", 512, |_| {}), Some(Family::Classifier));
}

#[test]
fn depth_is_guessed_by_its_name_alone() {
    let guess = |name: &str, shape: &[usize]| {
        guesses(&[raw(name, shape)], 518, 518).into_iter().next().map(|guess| (guess.family, guess.card))
    };
    let (family, card) = guess("predicted_depth", &[1, 518, 518]).unwrap();
    assert_eq!(family, Family::Depth);
    assert!(card.ends_with("[head]\nfamily = \"depth\"\ngrid = [8, 6]\nnearer = \"larger\"\n"), "{card}");
    assert!(crate::card::Card::from_toml(&card, std::path::Path::new("net.toml")).is_ok(), "{card}");
    assert_eq!(guess("depth", &[1, 518, 518, 1]).map(|guess| guess.0), Some(Family::Depth));
    for (name, shape) in [("mask", &[1, 518, 518][..]), ("depth", &[1, 3, 518, 518]), ("depth", &[1, 9, 518])] {
        assert_eq!(guess(name, shape).map(|guess| guess.0), None, "{name} {shape:?}");
    }
}

#[test]
fn several_rows_of_scores_are_attributes_and_their_card_runs() {
    let guess = |outputs: &[(TensorInfo, OutputTail)]| {
        let found = guesses(outputs, 64, 64);
        found.into_iter().find(|guess| guess.family == Family::Attributes).map(|guess| guess.card)
    };
    let softmax = |name: &str, width: usize| (tensor(name, &[1, width, 1, 1]), row(&[(width, Softmax)]));
    let sigmoid = |name: &str, width: usize| (tensor(name, &[1, width]), row(&[(width, Sigmoid)]));
    let outputs = [
        softmax("prob", 2),
        raw("age_conv3", &[1, 1, 1, 1]),
        sigmoid("tags", 3),
        sigmoid("hat", 1),
        raw("type", &[1, 6]),
    ];
    let card = guess(&outputs).unwrap();
    let wanted = "[head]\nfamily = \"attributes\"\nattribute = [\n  \
        { name = \"prob\", output = \"prob\", classes = [\"class 0\", \"class 1\"], activation = \"none\" },\n  \
        { name = \"age_conv3\", output = \"age_conv3\", scale = 1, offset = 0 },\n  \
        { name = \"tags\", output = \"tags\", classes = [\"class 0\", \"class 1\", \"class 2\"], activation = \"none\", multi_label = true },\n  \
        { name = \"hat\", output = \"hat\", classes = [\"no\", \"yes\"], activation = \"none\" },\n  \
        { name = \"type\", output = \"type\", classes = [\"class 0\", \"class 1\", \"class 2\", \"class 3\", \"class 4\", \"class 5\"], activation = \"softmax\" },\n]\n";
    let (assumed, read) = card.split_once("[head]").unwrap();
    assert_eq!(format!("[head]{read}"), wanted);
    assert!(assumed.starts_with("[input]\n# Assumed, since the file does not say it: RGB"), "{assumed}");
    let head = crate::card::Card::from_toml(&card, std::path::Path::new("net.toml")).unwrap().head;
    let infos: Vec<TensorInfo> = outputs.iter().map(|(info, _)| info.clone()).collect();
    assert!(crate::heads::build(&head, &infos, (64, 64), 0).is_ok());
    // A face: scores, a box, landmarks; and only numbers.
    assert_eq!(guess(&[softmax("prob", 2), raw("box4", &[1, 4])]), None);
    assert_eq!(guess(&[softmax("prob", 2), raw("output1", &[1, 10])]), None);
    assert_eq!(guess(&[raw("age", &[1, 1]), raw("age2", &[1, 1])]), None);
    assert_eq!(guess(&[softmax("a\u{1b}\"", 2), softmax("b", 2)]), None, "a name that TOML cannot take as it is");
    assert_eq!(guess(&[softmax("a", 2), (tensor("b", &[30, 2]), row(&[(2, Softmax)]))]), None, "thirty objects");
}

#[test]
fn nanodet_with_two_tables_a_grid_gets_names_since_they_tell_scores_from_distances() {
    let outputs = |strides: &[usize], classes: usize, bins: usize, by_grid: bool| {
        let rows = |stride: usize| (320 / stride) * (320 / stride);
        let scores = strides.iter().map(|&s| scored(&format!("cls{s}"), &[1, rows(s), classes]));
        let distances = strides.iter().map(|&s| raw(&format!("dis{s}"), &[1, rows(s), 4 * bins]));
        if by_grid {
            scores.zip(distances).flat_map(|(a, b)| [a, b]).collect()
        } else {
            scores.chain(distances).collect::<Vec<_>>()
        }
    };
    for by_grid in [true, false] {
        let found = &guesses(&outputs(&[8, 16, 32], 3, 8, by_grid), 320, 320)[0];
        assert_eq!((found.family, found.class_count), (Family::Nanodet, Some(3)));
        assert!(found.card.contains("reg_max = 7\n"), "{}", found.card);
        assert!(found.card.contains("\nnames = [\"class 0\", \"class 1\", \"class 2\"]"), "{}", found.card);
    }
    let plus = &guesses(&outputs(&[8, 16, 32, 64], 80, 8, true), 320, 320)[0];
    assert!(plus.card.contains("strides = [8, 16, 32, 64]") && plus.card.contains("coco80"), "{}", plus.card);
    // As many classes as distances: the scores are those that went through the sigmoid.
    let same = guesses(&outputs(&[8, 16, 32], 36, 8, true), 320, 320);
    assert_eq!(same[0].class_count, Some(36), "{same:?}");
    // Anchors with boxes of four numbers.
    assert_eq!(guesses(&outputs(&[8, 16, 32], 1, 1, true), 320, 320), []);
}

#[test]
fn layers_of_scores_and_of_distances_show_how_many_bins_there_are() {
    let bins = |widths: &[usize]| {
        let tail = OutputTail { widths: widths.iter().copied().collect(), ..row(&[(61, Raw)]) };
        let card = guesses(&[(tensor("output", &[1, 2100, 61]), tail)], 320, 320).remove(0).card;
        card.lines().find(|line| line.starts_with("reg_max")).map(str::to_owned)
    };
    assert_eq!(bins(&[52, 9]).as_deref(), Some("reg_max = 12"));
    // One of them alone proves nothing, nor does a layer as wide as the row or wider.
    for widths in [&[52][..], &[9], &[61], &[61, 64]] {
        assert_eq!(bins(widths).as_deref(), Some("reg_max = 7"), "{widths:?}");
    }
}

#[test]
fn scores_of_four_classes_are_not_taken_for_the_boxes() {
    let softmax = OutputTail { softmax: true, ..scored("", &[]).1 };
    let boxes = OutputTail { sigmoid: false, arithmetic: true, exp: true, ..softmax.clone() };
    let boxes = OutputTail { softmax: false, ..boxes };
    let shape = [1, 1500, 4];
    let swapped = [(tensor("a_out", &shape), softmax.clone()), (tensor("b_out", &shape), boxes.clone())];
    let card = &guesses(&swapped, 320, 320)[0].card;
    assert!(card.contains("boxes = \"b_out\"") && card.contains("scores = \"a_out\""), "{card}");
    assert!(card.contains("background = \"first\""), "{card}");
    // Names, or the order, also show it to the head.
    let named = [(tensor("scores", &shape), softmax.clone()), (tensor("boxes", &shape), boxes.clone())];
    let card = &guesses(&named, 320, 320)[0].card;
    assert!(!card.contains("boxes =") && !card.contains("scores ="), "{card}");
    let ordered = [(tensor("b_out", &shape), boxes), (tensor("a_out", &shape), softmax)];
    assert!(!guesses(&ordered, 320, 320)[0].card.contains("boxes ="));
}

#[test]
fn the_size_is_what_the_model_fixes_and_the_usual_one_for_what_it_leaves_open() {
    let yolo = || row(&[(4, Computed), (3, Sigmoid)]);
    let card = |width, height| guesses(&[(tensor("o", &[1, 7, 0]), yolo())], width, height).remove(0).card;
    assert!(card(0, 0).contains("size = [640, 640]  # width, height: the model leaves them open"));
    assert!(card(0, 256).contains("size = [640, 256]  # width, height: the model leaves its width open"));
    assert!(card(256, 0).contains("size = [256, 640]  # width, height: the model leaves its height open"));
    let fixed = guesses(&[(tensor("o", &[1, 7, 2100]), yolo())], 320, 320).remove(0).card;
    assert!(!fixed.contains("size ="), "{fixed}");
}

#[test]
fn a_card_says_what_it_assumes_of_pixels_and_what_to_do_if_that_is_wrong() {
    let card = |info: &str, shape: &[usize], size: usize| guesses(&[raw(info, shape)], size, size).remove(0).card;
    let classes = card("logits", &[1, 1000], 224);
    assert!(
        classes.contains("RGB less a mean of [0.485, 0.456, 0.406], divided by [0.229, 0.224, 0.225]"),
        "{classes}"
    );
    assert!(classes.contains("Nothing shows it if\n# that is wrong: compare with the code"), "{classes}");
    let depth = card("predicted_depth", &[1, 518, 518], 518);
    assert!(depth.contains("Nothing shows it if\n# that is wrong"), "{depth}");
    let boxes = guesses(&[(tensor("o", &[1, 7, 2100]), row(&[(4, Computed), (3, Sigmoid)]))], 320, 320).remove(0).card;
    assert!(boxes.contains("RGB from 0 to 1. If little or nothing is found, try\n# `scale = 1`"), "{boxes}");
}

#[test]
fn a_tiny_size_that_a_network_of_convolutions_declares_is_only_that_of_its_export() {
    let faces = |fixed: bool, side: usize| {
        let mut outputs = vec![scored("a", &[10, 1, side / 4, side / 4])];
        outputs.extend([("b", 2), ("c", 2), ("d", 10)].map(|(name, c)| raw(name, &[10, c, side / 4, side / 4])));
        outputs[0].1.fixed = fixed;
        guesses(&outputs, side, side).remove(0).card
    };
    let card = faces(false, 32);
    assert!(card.contains("size = [640, 480]  # width, height: the file declares 32x32, which is only"), "{card}");
    assert!(!faces(true, 32).contains("size ="));
    assert!(!faces(false, 320).contains("size ="));
    // A classifier of small images has the size that it declares.
    let digits = guesses(&[raw("y", &[1, 10])], 28, 28).remove(0).card;
    assert!(!digits.contains("size ="), "{digits}");
}

#[test]
fn oriented_boxes_of_ultralytics_need_no_card() {
    let note = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let metadata =
        [("author", "Ultralytics"), ("task", "obb"), ("names", "{0: 'ship'}"), ("description", "Ultralytics")];
    let metadata: BTreeMap<String, String> = metadata.map(note).into();
    let (inputs, outputs) = ([tensor("images", &[1, 3, 320, 320])], [tensor("output0", &[1, 6, 2100])]);
    let tails = BTreeMap::new();
    let facts = ModelFacts { inputs: &inputs, outputs: &outputs, metadata: &metadata, tails: &tails };
    let guess = guess_heads(facts).remove(0);
    assert_eq!((guess.family, guess.class_count), (Family::Yolov8, Some(1)));
    assert!(guess.reason.contains("it needs no card"), "{}", guess.reason);
}

#[test]
fn boxes_that_may_be_corners_or_centres_are_a_tie_unless_a_name_or_the_graph_decides() {
    let tied = |boxes: &str, scores: &str, tail: OutputTail| {
        let outputs = [(tensor(boxes, &[1, 300, 4]), tail), scored(scores, &[1, 300, 5])];
        guesses(&outputs, 640, 640).iter().map(|guess| (guess.family, guess.tied)).collect::<Vec<_>>()
    };
    let computed = || row(&[(4, Computed)]);
    let [detr, ssd] = [Family::Detr, Family::Ssd];
    assert_eq!(tied("boxes", "scores", computed()), [(detr, true), (ssd, true)]);
    assert_eq!(tied("pred_boxes", "logits", computed()), [(detr, false), (ssd, false)]);
    let corners = OutputTail { format: Some(BoxFormat::Xyxy), ..computed() };
    assert_eq!(tied("boxes", "scores", corners), [(ssd, false), (detr, false)]);
}

#[test]
fn names_alone_and_shapes_alone_are_no_exporters() {
    let exporter = |outputs: &[TensorInfo]| {
        let (metadata, tails) = (BTreeMap::new(), BTreeMap::new());
        let inputs = [tensor("images", &[1, 3, 640, 640])];
        let facts = ModelFacts { inputs: &inputs, outputs, metadata: &metadata, tails: &tails };
        let export = recognise(facts).filter(|export| !export.is_hint());
        (export.map(|export| export.exporter), guess_heads(facts).first().map(|guess| guess.family))
    };
    let one = |shape: &[usize]| exporter(&[tensor("output", shape)]);
    // YOLOv5 of 11 classes, whose rows are as wide as those of yolov5-face; of 52 with four grids, as those of YOLOv7-pose.
    assert_eq!(one(&[1, 25_200, 16]), (None, Some(Family::Yolov5)));
    assert_eq!(one(&[1, 25_500, 57]), (None, Some(Family::Yolov5)));
    assert_eq!(one(&[1, 84, 8400]), (None, Some(Family::Yolov8)));
    // A map of 21 classes on three scales, as deep as three anchors of two classes.
    let maps = [80, 40, 20].map(|side| tensor(&format!("seg{side}"), &[1, 21, side, side]));
    assert_eq!(exporter(&maps), (None, Some(Family::Semantic)));
    // Layers of a YOLO have the grids of its strides.
    let layers = |sides: [usize; 3]| {
        let [a, b, c] = sides.map(|side| tensor("output", &[1, 3, side, side, 85]));
        exporter(&[a, b, c]).0
    };
    assert_eq!(layers([80, 40, 20]), Some("YOLOv5 or YOLOv7 without its last layer"));
    assert_eq!(layers([81, 41, 21]), None);
    let layer = |side| (tensor(&format!("grid{side}"), &[1, 3, side, side, 85]), OutputTail::default());
    let found = guesses(&[80, 40, 20, 10].map(layer), 640, 640);
    assert!(found[0].card.contains("anchors = [19.0, 27.0, "), "{}", found[0].card);
    let found = guesses(&[80, 40, 20].map(layer), 640, 640);
    let yolov7 = "# those of YOLOv5 and YOLOv7-tiny; of YOLOv7: [12, 16, 19, 36, 40, 28, 36, 75, 76, 55, 72, 146, 142, 110, 192, 243, 459, 401]\n";
    assert!(found[0].card.contains(yolov7), "{}", found[0].card);
    // An age and a class.
    assert_eq!(exporter(&[tensor("regression", &[1, 1]), tensor("classification", &[1, 8])]), (None, None));
    // As many rows as EfficientDet's anchors, and others.
    for (rows, family) in [(76_725, Some(Family::Ssd)), (76_700, None)] {
        let efficientdet = [tensor("regression", &[1, rows, 4]), tensor("classification", &[1, rows, 90])];
        assert_eq!(exporter(&efficientdet), (Some("EfficientDet (Yet-Another-EfficientDet-Pytorch)"), family));
    }
    // D7 of open size has the grids of D6 for 1536x1536.
    let spec = HeadSpec::Ssd(BoxesSpec { anchors: Some(AnchorKind::EfficientDet), ..BoxesSpec::default() });
    let open = [tensor("regression", &[1, 0, 4]), tensor("classification", &[1, 0, 90])];
    assert!(build(&spec, &open, (1280, 1280), 90).is_ok());
    let error = build(&spec, &open, (1536, 1536), 90).err().unwrap();
    assert!(error.to_string().contains("1536x1536 pixels is that of D7") && error.key == "head.anchors", "{error}");
    // Darknet's layers whose numbers are those of a public .cfg.
    let darknet = |names: [&str; 3]| {
        let layer = |(name, side): (&str, usize)| tensor(&format!("{name}_convolutional"), &[1, 255, side, side]);
        exporter(&names.into_iter().zip([20, 40, 80]).map(layer).collect::<Vec<_>>())
    };
    assert_eq!(darknet(["139", "150", "161"]), (Some("Darknet's YOLO"), Some(Family::Darknet)));
    assert_eq!(darknet(["030", "037", "044"]), (None, None));
}

#[test]
pub(in crate::heads) fn rows_of_seven_named_detections_are_automls_only_behind_a_batch_and_of_channels_last() {
    let exporter = |input: &[usize], output: &[usize]| {
        let (inputs, outputs) = ([tensor("images", input)], [tensor("detections", output)]);
        let (metadata, tails) = (BTreeMap::new(), BTreeMap::new());
        let facts = ModelFacts { inputs: &inputs, outputs: &outputs, metadata: &metadata, tails: &tails };
        recognise(facts).map(|export| export.exporter)
    };
    assert_eq!(exporter(&[1, 512, 512, 3], &[1, 100, 7]), Some("automl's EfficientDet"));
    assert_eq!(exporter(&[1, 0, 0, 3], &[1, 0, 7]), Some("automl's EfficientDet"));
    // YOLO-NAS, whose flat rows may have this name.
    assert_eq!(exporter(&[1, 3, 512, 512], &[100, 7]), None);
    assert_eq!(exporter(&[1, 512, 512, 3], &[100, 7]), None);
    assert_eq!(exporter(&[1, 3, 512, 512], &[1, 100, 7]), None);
}

#[test]
fn dimensions_of_any_size_overflow_nothing() {
    const HUGE: usize = u32::MAX as usize;
    let metadata = BTreeMap::new();
    let tails = BTreeMap::new();
    let inputs = [tensor("images", &[1, 3, HUGE, HUGE]), tensor("other", &[1, usize::MAX, usize::MAX])];
    for shape in [[1, HUGE, 57], [1, HUGE, 16], [1, 84, HUGE], [1, 8400, 84]] {
        let outputs = [tensor("output", &shape)];
        guess_heads(ModelFacts { inputs: &inputs, outputs: &outputs, metadata: &metadata, tails: &tails });
    }
    // An image that a head reads, so that there is a card.
    let (inputs, outputs) =
        ([tensor("images", &[1, 3, 640, 640]), inputs[1].clone()], [tensor("output", &[1, 84, 8400])]);
    let found = guess_heads(ModelFacts { inputs: &inputs, outputs: &outputs, metadata: &metadata, tails: &tails });
    assert!(found[0].card.contains("other = \"other.npy\""), "{}", found[0].card);
}

#[test]
fn a_fomo_is_known_by_its_name_and_its_cells_of_eight_pixels() {
    let card = |name: &str, cells: [usize; 3]| {
        let outputs = [tensor(name, &[1, cells[0], cells[1], cells[2]])];
        let (metadata, tails) = (BTreeMap::new(), BTreeMap::new());
        let inputs = [tensor("x_input", &[1, 96, 160, 1])];
        let guesses =
            guess_heads(ModelFacts { inputs: &inputs, outputs: &outputs, metadata: &metadata, tails: &tails });
        guesses.into_iter().find(|guess| guess.family == Family::Fomo)
    };
    let found = card("StatefulPartitionedCall:0", [12, 20, 3]).unwrap();
    assert_eq!(found.class_count, Some(2));
    let lines = ["fit = \"stretch\"", "order = \"grey\"", "family = \"fomo\""];
    assert!(lines.iter().all(|line| found.card.contains(line)), "{}", found.card);
    assert_eq!(card("output", [12, 20, 3]), None);
    assert_eq!(card("StatefulPartitionedCall:0", [6, 10, 3]), None);
}

/// The guess for every kind of row.
const GUESSES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/heads/guess_rows.txt");

#[test]
fn every_kind_of_row_gets_the_heads_that_it_had() {
    let exp = |mut tail: OutputTail| {
        for part in tail.parts.values_mut().flatten().skip(1).take(1) {
            part.exp = true;
        }
        OutputTail { exp: true, ..tail }
    };
    let chosen = |tail: OutputTail| OutputTail { chosen: true, ..tail };
    let mut found = String::new();
    let mut note = |what: &str, outputs: &[(TensorInfo, OutputTail)]| {
        let shapes: Vec<String> = outputs.iter().map(|(info, _)| format!("{:?}", shape_of(info))).collect();
        let mut guesses = String::new();
        for guess in self::guesses(outputs, 320, 320) {
            let options = guess.card.split_once("[head]\nfamily = ").map_or("", |(_, text)| text);
            let (options, names) = options.split_once("\n[classes]\n").unwrap_or((options, ""));
            let names = names.split("  #").next().unwrap_or("").trim();
            let classes = guess.class_count.map_or("any".to_owned(), |count| format!("{count}, {names}"));
            let tied = if guess.tied { ", tied" } else { "" };
            guesses += &format!("  {}: {classes}{tied}\n", options.trim().replace('\n', ", "));
        }
        if !guesses.is_empty() {
            found += &format!("{what} {}\n{guesses}", shapes.join(" "));
        }
    };
    for classes in [1, 2, 80] {
        let scores = (classes, Sigmoid);
        let tails = [
            ("unknown", OutputTail::default(), 4 + classes),
            ("unknown", OutputTail::default(), 5 + classes),
            ("unknown", OutputTail::default(), 4 + classes + 32),
            ("straight from a layer", row(&[(4 + classes, Raw)]), 4 + classes),
            ("logits, distances", row(&[(classes, Raw), (32, Raw)]), classes + 32),
            ("scores, distances", row(&[scores, (32, Raw)]), classes + 32),
            ("raw box, objectness, scores", row(&[(4, Raw), (1, Sigmoid), scores]), 5 + classes),
            (
                "exp box, objectness, scores",
                exp(row(&[(2, Computed), (2, Computed), (1, Sigmoid), scores])),
                5 + classes,
            ),
            ("box, objectness with scores", row(&[(2, Computed), (2, Computed), (1 + classes, Sigmoid)]), 5 + classes),
            ("box, scores", row(&[(4, Computed), scores]), 4 + classes),
            ("box, scores, points", row(&[(4, Computed), scores, (34, Computed)]), 4 + classes + 34),
            ("box, scores, angle", row(&[(4, Computed), scores, (1, Computed)]), 5 + classes),
            ("fractions, scores", row(&[(4, Sigmoid), scores]), 4 + classes),
            ("box, scores, two points", row(&[(4, Computed), scores, (4, Computed)]), 8 + classes),
            ("chosen", chosen(row(&[(6, Computed)])), 6),
            ("chosen with a body", chosen(row(&[(57, Computed)])), 57),
            ("chosen with more", chosen(row(&[(6 + 3 * classes, Computed)])), 6 + 3 * classes),
        ];
        for (what, tail, width) in tails {
            for rows in [2100, 2125, 6300, 6375, 300, 1001, 0] {
                for shape in [[1, rows, width], [1, width, rows]] {
                    note(what, &[(tensor("output", &shape), tail.clone())]);
                }
            }
        }
        let of_scores =
            [("unknown", OutputTail::default()), ("logits", row(&[(classes, Raw)])), ("sigmoid", row(&[scores]))];
        let softmax = ("softmax", row(&[(classes, Softmax)]));
        for (what, tail) in of_scores.into_iter().chain([softmax]) {
            for rows in [300, 1001, 2100, 0] {
                let boxes = (tensor("boxes", &[1, rows, 4]), row(&[(4, Computed)]));
                let table = (tensor("scores", &[1, rows, classes]), tail.clone());
                note(&format!("boxes, {what}"), &[boxes.clone(), table.clone()]);
                note(&format!("{what}, boxes"), &[table, boxes]);
            }
        }
    }
    if std::env::var_os("VISIOND_REGENERATE").is_some() {
        std::fs::write(GUESSES, &found).unwrap();
    }
    let wanted = std::fs::read_to_string(GUESSES).unwrap();
    for (line, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(
            found,
            wanted,
            "line {} of guess_rows.txt; after a change that means it, VISIOND_REGENERATE=1",
            line + 1
        );
    }
    assert_eq!(found.lines().count(), wanted.lines().count());
}
