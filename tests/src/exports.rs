//! Small networks with the output layouts of public exporters, each of which finds the same five objects, or has outputs that no
//! head reads.
//!
//! Names, shapes and metadata are those of the exporters' own code, which `engine/src/heads/exports.rs` lists.

use crate::networks::{CELLS, INT32, Network, OPEN, SIDE, UINT8};
use crate::onnx::{FLOAT, INT64, int, number, text};

/// The objects in an image of [`SIDE`]: left, top, right, bottom, score, class.
pub const OBJECTS: [[f32; 6]; 5] = [
    [8.0, 8.0, 24.0, 32.0, 0.92, 2.0],
    [30.0, 6.0, 44.0, 30.0, 0.81, 0.0],
    [4.0, 36.0, 28.0, 58.0, 0.77, 1.0],
    [38.0, 34.0, 62.0, 56.0, 0.66, 3.0],
    [26.0, 26.0, 32.0, 33.0, 0.55, 1.0],
];

/// How visiond handles an export.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wanted {
    /// It finds the objects without a card.
    NoCard,
    /// It finds the objects with the card that `inspect` prints.
    Card,
    /// It refuses it, and names the exporter.
    Refused(&'static str),
}

/// An export.
pub struct Layout {
    /// Its name in the table of docs/models.md.
    pub name: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// How visiond handles it.
    pub wanted: Wanted,
}

/// The logarithm of the odds: the number whose sigmoid is `score`.
fn logit(score: f32) -> f32 {
    if score <= 0.0 { -20.0 } else { (score / (1.0 - score)).ln() }
}

/// Rows for `count` candidates, of which every third has an object until none is left.
fn rows(count: u64, width: usize, of: impl Fn(Option<[f32; 6]>) -> Vec<f32>) -> Vec<f32> {
    let object = |row: u64| (row % 3 == 1).then(|| OBJECTS.get(row as usize / 3).copied()).flatten();
    let numbers: Vec<f32> = (0..count).flat_map(|row| of(object(row))).collect();
    assert_eq!(numbers.len(), count as usize * width, "a row has another width");
    numbers
}

/// A box away from every object, for rows without one.
const ELSEWHERE: [f32; 6] = [60.0, 2.0, 63.0, 5.0, 0.0, 0.0];

fn corners(object: Option<[f32; 6]>, unit: f32) -> Vec<f32> {
    object.unwrap_or(ELSEWHERE)[..4].iter().map(|number| number * unit).collect()
}

fn centre(object: Option<[f32; 6]>, unit: f32) -> Vec<f32> {
    let [x1, y1, x2, y2, ..] = object.unwrap_or(ELSEWHERE);
    [(x1 + x2) / 2.0, (y1 + y2) / 2.0, x2 - x1, y2 - y1].iter().map(|number| number * unit).collect()
}

/// The logits of `classes`; the first of them has the number `first`.
fn logits(object: Option<[f32; 6]>, classes: usize, first: usize) -> Vec<f32> {
    let mut scores = vec![logit(0.0); classes];
    if let Some([.., score, class]) = object {
        scores[class as usize + first] = logit(score);
    }
    scores
}

fn transposed(numbers: &[f32], width: usize) -> Vec<f32> {
    (0..width).flat_map(|column| numbers.iter().skip(column).step_by(width).copied()).collect()
}

fn picture() -> Network {
    Network::new(&[1, 3, SIDE, SIDE])
}

/// Adds an output of numbers that do not depend on the image.
fn output(network: &mut Network, name: &str, dims: &[u64], numbers: &[f32]) {
    let fixed = network.fixed(dims, numbers);
    network.output(name, &fixed, FLOAT, dims);
}

/// Adds an output of numbers without a meaning, such as the offsets of anchors.
fn noise(network: &mut Network, name: &str, dims: &[u64]) {
    let count: u64 = dims.iter().product();
    let numbers: Vec<f32> = (0..count).map(|index| (index as f32 * 0.618_034).fract() * 4.0 - 2.0).collect();
    output(network, name, dims, &numbers);
}

/// Adds whole numbers.
fn integers(network: &mut Network, name: &str, kind: u64, dims: &[u64], declared: &[u64], numbers: &[f32]) {
    let fixed = network.fixed(dims, numbers);
    let cast = network.op("Cast", &[&fixed], &[int("to", kind)]);
    network.output(name, &cast, kind, declared);
}

/// A YOLO's table: boxes, and numbers after the sigmoid, of rows or columns.
fn yolo(network: &mut Network, names: &[&str], boxes: &[f32], scores: &[f32], in_rows: bool, batch: bool) {
    let width = scores.len() as u64 / CELLS;
    let lead: &[u64] = if batch { &[1] } else { &[] };
    let axis = lead.len() as u64 + u64::from(in_rows);
    let mut part = |numbers: &[f32], width: u64| {
        let dims = if in_rows { [CELLS, width] } else { [width, CELLS] };
        let numbers = if in_rows { numbers.to_vec() } else { transposed(numbers, width as usize) };
        network.fixed(&[lead, &dims].concat(), &numbers)
    };
    let (boxes, scores) = (part(boxes, 4), part(scores, width));
    let side = network.floats(&[], &[SIDE as f32]);
    let boxes = network.op("Mul", &[&boxes, &side], &[]);
    let scores = network.op("Sigmoid", &[&scores], &[]);
    let joined = network.concat(&[&boxes, &scores], axis);
    let dims = if in_rows { [CELLS, 4 + width] } else { [4 + width, CELLS] };
    for name in names {
        network.output(name, &joined, FLOAT, &[lead, &dims].concat());
    }
}

const FRACTION: f32 = 1.0 / SIDE as f32;

/// YOLOv8's table, of 20 classes.
fn yolov8(network: &mut Network, names: &[&str], in_rows: bool, batch: bool) {
    let boxes = rows(CELLS, 4, |object| centre(object, FRACTION));
    yolo(network, names, &boxes, &rows(CELLS, 20, |object| logits(object, 20, 0)), in_rows, batch);
}

/// YOLOv5's and YOLOX's table, decoded, of 20 classes.
fn yolov5(network: &mut Network, anchors: u64) {
    let boxes = rows(anchors, 4, |object| centre(object, 1.0));
    let scores = rows(anchors, 21, |object| {
        let found = if object.is_some() { 20.0 } else { -20.0 };
        [vec![found], logits(object, 20, 0)].concat()
    });
    let (boxes, scores) = (network.fixed(&[1, anchors, 4], &boxes), network.fixed(&[1, anchors, 21], &scores));
    let scores = network.op("Sigmoid", &[&scores], &[]);
    let joined = network.concat(&[&boxes, &scores], 2);
    network.output("output", &joined, FLOAT, &[1, anchors, 25]);
}

/// YOLOv8's columns or YOLOv6's rows of 20 classes, whose last operators are arithmetic, as in a quantised graph.
fn computed(is_yolov6: bool) -> Network {
    let row = |object: Option<[f32; 6]>| {
        let mut scores = vec![0.001; 20];
        if let Some([.., score, class]) = object {
            scores[class as usize] = score;
        }
        let objectness = if is_yolov6 { vec![1.0] } else { Vec::new() };
        [centre(object, 1.0), objectness, scores].concat()
    };
    let mut network = picture();
    let width = if is_yolov6 { 25 } else { 24 };
    let table = rows(CELLS, width as usize, row);
    let (dims, table) =
        if is_yolov6 { ([1, CELLS, width], table) } else { ([1, width, CELLS], transposed(&table, width as usize)) };
    let fixed = network.fixed(&dims, &table);
    let factor = network.floats(&[], &[0.0]);
    let nothing = network.op("Mul", &["mean", &factor], &[]);
    let sum = network.op("Add", &[&fixed, &nothing], &[]);
    network.output(if is_yolov6 { "outputs" } else { "output0" }, &sum, FLOAT, &dims);
    network
}

fn names(count: usize) -> String {
    let names: Vec<String> = (0..count).map(|class| format!("{class}: 'c{class}'")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Separate boxes, corners in `unit`, and scores after the sigmoid.
fn boxes_and_scores(names: [&str; 2], unit: f32, classes: usize) -> Network {
    let mut network = picture();
    let boxes = network.fixed(&[1, CELLS, 4], &rows(CELLS, 4, |object| corners(object, FRACTION)));
    let unit = network.floats(&[], &[unit]);
    let boxes = network.op("Mul", &[&boxes, &unit], &[]);
    network.output(names[0], &boxes, FLOAT, &[1, CELLS, 4]);
    let dims = [1, CELLS, classes as u64];
    let scores = network.fixed(&dims, &rows(CELLS, classes, |object| logits(object, classes, 0)));
    let scores = network.op("Sigmoid", &[&scores], &[]);
    network.output(names[1], &scores, FLOAT, &dims);
    network
}

/// Boxes, corners in `unit`, and the scores of 20 classes; without `transposed` boxes are `[1, N, 1, 4]`.
fn scored(network: &mut Network, boxes: &str, scores: &str, unit: f32, transpose: bool) {
    let dims: &[u64] = if transpose { &[1, CELLS, 4] } else { &[1, CELLS, 1, 4] };
    output(network, boxes, dims, &rows(CELLS, 4, |object| corners(object, unit)));
    let numbers = rows(CELLS, 20, |object| logits(object, 20, 0));
    let (dims, numbers) =
        if transpose { ([1, 20, CELLS], transposed(&numbers, 20)) } else { ([1, CELLS, 20], numbers) };
    let fixed = network.fixed(&dims, &numbers);
    let sigmoid = network.op("Sigmoid", &[&fixed], &[]);
    network.output(scores, &sigmoid, FLOAT, &dims);
}

/// The scores of cells of 16 pixels, and the distances from these to the sides of boxes in 35 pixels.
fn detectnet() -> Network {
    const SIDE_CELLS: usize = SIDE as usize / 16;
    const COUNT: usize = SIDE_CELLS * SIDE_CELLS;
    let mut network = picture();
    let (mut scores, mut boxes) = (vec![logit(0.0); 4 * COUNT], vec![0.0; 16 * COUNT]);
    for [x1, y1, x2, y2, score, class] in OBJECTS {
        let class = class as usize;
        let [column, line] = [(x1 + x2) / 32.0, (y1 + y2) / 32.0].map(|middle| middle as usize);
        let [x, y] = [column, line].map(|cell| 16.0 * cell as f32 + 0.5);
        scores[class * COUNT + line * SIDE_CELLS + column] = logit(score);
        for (side, distance) in [x - x1, y - y1, x2 - x, y2 - y].into_iter().enumerate() {
            boxes[(4 * class + side) * COUNT + line * SIDE_CELLS + column] = distance / 35.0;
        }
    }
    let side = SIDE_CELLS as u64;
    let scores = network.fixed(&[1, 4, side, side], &scores);
    let scores = network.op("Sigmoid", &[&scores], &[]);
    network.output("output_cov/Sigmoid", &scores, FLOAT, &[1, 4, side, side]);
    output(&mut network, "output_bbox/BiasAdd", &[1, 16, side, side], &boxes);
    network
}

/// A map of five anchors, four classes and cells of 32 pixels. Objects in the same cell have anchors of their own.
fn custom_vision_yolov2() -> Network {
    const LINE: usize = SIDE as usize / 32;
    const ANCHORS: [[f32; 2]; 5] = [[0.573, 0.677], [1.87, 2.06], [3.34, 5.47], [7.88, 3.53], [9.77, 9.17]];
    let cells = LINE * LINE;
    let mut numbers = vec![logit(0.0); 45 * cells];
    for ([x1, y1, x2, y2, score, class], (index, anchor)) in OBJECTS.into_iter().zip(ANCHORS.into_iter().enumerate()) {
        let [x, y] = [(x1 + x2) / 64.0, (y1 + y2) / 64.0];
        let cell = y as usize * LINE + x as usize;
        let [w, h] = [((x2 - x1) / 32.0 / anchor[0]).ln(), ((y2 - y1) / 32.0 / anchor[1]).ln()];
        // The objectness is the score, and the softmax of the classes is nearly 1.
        for (plane, number) in [logit(x.fract()), logit(y.fract()), w, h, logit(score)].into_iter().enumerate() {
            numbers[(9 * index + plane) * cells + cell] = number;
        }
        numbers[(9 * index + 5 + class as usize) * cells + cell] = 20.0;
    }
    built(|network| output(network, "model_outputs0", &[1, 45, LINE as u64, LINE as u64], &numbers))
}

/// Scores, and centres and sizes as fractions, without a batch.
fn yolov3_archive() -> Network {
    const ANCHORS: u64 = 3 * CELLS;
    let mut network = picture();
    let scores = network.fixed(&[ANCHORS, 4], &rows(ANCHORS, 4, |object| logits(object, 4, 0)));
    let scores = network.op("Sigmoid", &[&scores], &[]);
    network.output("classes", &scores, FLOAT, &[ANCHORS, 4]);
    output(&mut network, "boxes", &[ANCHORS, 4], &rows(ANCHORS, 4, |object| centre(object, FRACTION)));
    network
}

/// Boxes in pixels, y first, transposed scores, and the indices of those that an NMS has chosen.
fn keras_yolo3() -> Network {
    const ANCHORS: u64 = 3 * CELLS;
    let mut network = picture();
    network.named_input("image_shape", FLOAT, &["N", "two"]);
    let boxes = rows(ANCHORS, 4, |object| {
        let [x1, y1, x2, y2, ..] = object.unwrap_or(ELSEWHERE);
        vec![y1, x1, y2, x2]
    });
    output(&mut network, "yolonms_layer_1/ExpandDims_1:0", &[1, ANCHORS, 4], &boxes);
    let scores = transposed(&rows(ANCHORS, 20, |object| logits(object, 20, 0)), 20);
    let scores = network.fixed(&[1, 20, ANCHORS], &scores);
    let scores = network.op("Sigmoid", &[&scores], &[]);
    network.output("yolonms_layer_1/ExpandDims_3:0", &scores, FLOAT, &[1, 20, ANCHORS]);
    integers(&mut network, "yolonms_layer_1/concat_2:0", INT32, &[2, 3], &[OPEN, 3], &[0.0; 6]);
    network
}

/// Maps of three anchors, 20 classes and cells of 32, 16 and 8 pixels; the objects are in the last, at its first anchor.
fn darknet() -> Network {
    const LINE: usize = SIDE as usize / 8;
    const ANCHOR: [f32; 2] = [10.0, 13.0];
    let mut network = picture();
    for (name, side) in [("082_convolutional", 2), ("094_convolutional", 4), ("106_convolutional", 8)] {
        let cells = (side * side) as usize;
        let mut numbers = vec![logit(0.0); 75 * cells];
        for [x1, y1, x2, y2, score, class] in OBJECTS.into_iter().filter(|_| side as usize == LINE) {
            let [x, y] = [(x1 + x2) / 16.0, (y1 + y2) / 16.0];
            let cell = y as usize * LINE + x as usize;
            let box_numbers =
                [logit(x.fract()), logit(y.fract()), ((x2 - x1) / ANCHOR[0]).ln(), ((y2 - y1) / ANCHOR[1]).ln()];
            for (plane, number) in box_numbers.into_iter().chain([20.0]).enumerate() {
                numbers[plane * cells + cell] = number;
            }
            numbers[(5 + class as usize) * cells + cell] = logit(score);
        }
        output(&mut network, name, &[1, 75, side, side], &numbers);
    }
    network
}

/// The layers of YOLOv5, with 20 classes and three anchors: cells of 32, 16 and 8 pixels, the last of which have the objects, at the
/// largest anchor of their grid.
fn yolov5_layers() -> Network {
    const LINE: usize = SIDE as usize / 8;
    const ANCHOR: [f32; 2] = [33.0, 23.0];
    let mut network = picture();
    for (name, side) in [("output", 8), ("354", 4), ("366", 2)] {
        let cells = (side * side) as usize;
        let mut numbers = vec![logit(0.0); 3 * cells * 25];
        for [x1, y1, x2, y2, score, class] in OBJECTS.into_iter().filter(|_| side as usize == LINE) {
            let [x, y] = [(x1 + x2) / 16.0, (y1 + y2) / 16.0];
            let row = &mut numbers[25 * (2 * cells + y as usize * LINE + x as usize)..][..25];
            // Twice the sigmoid is the fraction in the cell plus a half, or the root of the size in anchors.
            let half = |number: f32| logit(number / 2.0);
            row[0] = half(x.fract() + 0.5);
            row[1] = half(y.fract() + 0.5);
            row[2] = half(((x2 - x1) / ANCHOR[0]).sqrt());
            row[3] = half(((y2 - y1) / ANCHOR[1]).sqrt());
            row[4] = 20.0;
            row[5 + class as usize] = logit(score);
        }
        output(&mut network, name, &[1, 3, side, side, 25], &numbers);
    }
    network
}

/// Logits of 16 bins for each side's distance from the middle of a cell, and scores.
fn keras_cv() -> Network {
    let mut network = Network::new(&[1, SIDE, SIDE, 3]);
    let line = SIDE as usize / 8;
    let (mut bins, mut scores) = (vec![0.0_f32; CELLS as usize * 64], vec![0.001_f32; CELLS as usize * 20]);
    for [x1, y1, x2, y2, score, class] in OBJECTS {
        let [column, row] = [(x1 + x2) / 16.0, (y1 + y2) / 16.0].map(|middle| middle as usize);
        let cell = row * line + column;
        let [x, y] = [column, row].map(|at| 8.0 * (at as f32 + 0.5));
        for (side, distance) in [x - x1, y - y1, x2 - x, y2 - y].into_iter().enumerate() {
            let own = &mut bins[64 * cell + 16 * side..][..16];
            own.fill(-30.0);
            let (whole, part) = ((distance / 8.0).floor(), (distance / 8.0).fract());
            own[whole as usize] = (1.0 - part).ln();
            own[whole as usize + 1] = part.max(1e-9).ln();
        }
        scores[20 * cell + class as usize] = score;
    }
    output(&mut network, "boxes", &[1, CELLS, 64], &bins);
    output(&mut network, "classes", &[1, CELLS, 20], &scores);
    network
}

/// Scores, bins and distances of cells of 8, 16 and 32 pixels; the objects are in the first.
fn mit_yolo() -> Network {
    let mut network = picture();
    for side in [8, 4, 2] {
        let cells = side * side;
        let (mut scores, mut sides) = (vec![logit(0.0); 20 * cells], vec![1.0; 4 * cells]);
        for [x1, y1, x2, y2, score, class] in OBJECTS.into_iter().filter(|_| side == 8) {
            let [column, line] = [(x1 + x2) / 16.0, (y1 + y2) / 16.0].map(|middle| middle as usize);
            let [x, y] = [column, line].map(|at| 8.0 * (at as f32 + 0.5));
            scores[class as usize * cells + line * side + column] = logit(score);
            for (plane, distance) in [x - x1, y - y1, x2 - x, y2 - y].into_iter().enumerate() {
                sides[plane * cells + line * side + column] = distance / 8.0;
            }
        }
        let of_grid = side as u64;
        output(&mut network, &format!("class{side}"), &[1, 20, of_grid, of_grid], &scores);
        noise(&mut network, &format!("bins{side}"), &[1, 16, 4, of_grid, of_grid]);
        output(&mut network, &format!("box{side}"), &[1, 4, of_grid, of_grid], &sides);
    }
    network
}

/// Offsets from the first anchor, of 32 pixels, of the cells of 8 pixels in which the objects are.
fn efficientdet() -> Network {
    const ROWS: usize = 9 * (64 + 16 + 4 + 1 + 1);
    let mut network = picture();
    let line = SIDE as usize / 8;
    let (mut boxes, mut scores) = (vec![0.0_f32; 4 * ROWS], vec![0.001_f32; 20 * ROWS]);
    for [x1, y1, x2, y2, score, class] in OBJECTS {
        let [cx, cy] = [(x1 + x2) / 2.0, (y1 + y2) / 2.0];
        let [column, row] = [cx, cy].map(|middle| (middle / 8.0) as usize);
        let [x, y] = [column, row].map(|at| 8.0 * (at as f32 + 0.5));
        let index = 9 * (row * line + column);
        let numbers = [(cy - y) / 32.0, (cx - x) / 32.0, ((y2 - y1) / 32.0).ln(), ((x2 - x1) / 32.0).ln()];
        boxes[4 * index..][..4].copy_from_slice(&numbers);
        scores[20 * index + class as usize] = score;
    }
    output(&mut network, "regression", &[1, ROWS as u64, 4], &boxes);
    output(&mut network, "classification", &[1, ROWS as u64, 20], &scores);
    network
}

/// The five objects as final boxes, labels and scores, and the order of the names of these.
fn finished(mut network: Network, names: [&str; 3], unit: f32, first: f32, lead: &[u64]) -> Network {
    let count = OBJECTS.len() as u64;
    let boxes: Vec<f32> = OBJECTS.iter().flat_map(|object| corners(Some(*object), unit)).collect();
    let labels = OBJECTS.map(|object| object[5] + first);
    let boxes = network.fixed(&[lead, &[count, 4]].concat(), &boxes);
    network.output(names[0], &boxes, FLOAT, &[lead, &[OPEN, 4]].concat());
    integers(&mut network, names[1], INT64, &[lead, &[count]].concat(), &[lead, &[OPEN]].concat(), &labels);
    let scores = network.fixed(&[lead, &[count]].concat(), &OBJECTS.map(|object| object[4]));
    network.output(names[2], &scores, FLOAT, &[lead, &[OPEN]].concat());
    network
}

fn with_metadata(mut network: Network, pairs: &[(&str, &str)]) -> Network {
    for (key, note) in pairs {
        network.metadata(key, note);
    }
    network
}

fn built(make: impl FnOnce(&mut Network)) -> Network {
    let mut network = picture();
    make(&mut network);
    network
}

/// Detection networks of Ultralytics' form, with and without their metadata.
fn yolos() -> Vec<(&'static str, Network, Wanted)> {
    let classes = names(20);
    let ultralytics = [("author", "Ultralytics"), ("task", "detect"), ("names", &*classes), ("stride", "32")];
    let described = [("description", "Ultralytics YOLO11n model"), ("task", "detect"), ("names", &*classes)];
    let yolov5_keys = [("names", &*classes), ("stride", "32")];
    let other = [("names", &*classes), ("task", "detect"), ("stride", "32"), ("model_type", "x")];
    let columns = || built(|network| yolov8(network, &["output0"], false, true));
    vec![
        ("Ultralytics", with_metadata(columns(), &ultralytics), Wanted::NoCard),
        ("Ultralytics, by its description", with_metadata(columns(), &described), Wanted::NoCard),
        ("YOLOv5", with_metadata(built(|network| yolov5(network, 3 * CELLS)), &yolov5_keys), Wanted::NoCard),
        (
            "YOLOv9",
            with_metadata(built(|n| yolov8(n, &["output0", "1890"], false, true)), &yolov5_keys),
            Wanted::NoCard,
        ),
        ("YOLOv9 without metadata", built(|n| yolov8(n, &["output0", "1890"], false, true)), Wanted::Card),
        ("another writer's metadata", with_metadata(columns(), &other), Wanted::Card),
        ("YOLOv8 in rows", built(|network| yolov8(network, &["output0"], true, true)), Wanted::Card),
        ("YOLOv8 without a batch", built(|network| yolov8(network, &["output0"], false, false)), Wanted::Card),
        (
            "YOLOv8 with selected_indices",
            built(|network| {
                yolov8(network, &["output0"], false, true);
                integers(network, "selected_indices", INT64, &[1, 3], &[OPEN, 3], &[0.0, 2.0, 1.0]);
            }),
            Wanted::Card,
        ),
        ("YOLOv8 with scores that no sigmoid made", computed(false), Wanted::Card),
        ("YOLOv6 with scores that no sigmoid made", computed(true), Wanted::Card),
        (
            "YOLOv5 with its layers",
            built(|network| {
                yolov5(network, 3 * CELLS);
                for (name, side) in [("354", 8), ("366", 4), ("378", 2)] {
                    noise(network, name, &[1, 3, side, side, 25]);
                }
            }),
            Wanted::Card,
        ),
    ]
}

/// Exports with other forms of boxes.
fn others() -> Vec<(&'static str, Network, Wanted)> {
    let json = r#"{"0": "person", "1": "car", "2": "dog", "3": "cat"}"#;
    let libreyolo = |family| {
        [
            ("libreyolo_version", "1.6.0"),
            ("model_family", family),
            ("task", "detect"),
            ("names", json),
            ("imgsz", "64"),
            ("letterbox_pad", "topleft"),
        ]
    };
    let windows = [
        ("Image.BitmapPixelFormat", "Bgr8"),
        ("Image.ColorSpaceGamma", "SRGB"),
        ("Image.NominalPixelRange", "NominalRange_0_255"),
    ];
    let yolo9 = built(|network| {
        let boxes = rows(CELLS, 4, |object| corners(object, FRACTION));
        yolo(network, &["output"], &boxes, &rows(CELLS, 4, |object| logits(object, 4, 0)), false, true);
    });
    let yolox = built(|network| {
        // Rows without an object are zeros, so their boxes are in the top left corner.
        let boxes = rows(CELLS, 4, |object| object.map_or(vec![0.0; 4], |object| centre(Some(object), FRACTION)));
        let found = |object: Option<[f32; 6]>| if object.is_some() { 20.0 } else { -20.0 };
        let scores = rows(CELLS, 5, |object| [vec![found(object)], logits(object, 4, 0)].concat());
        yolo(network, &["output"], &boxes, &scores, true, true);
    });
    let final_names = ["detected_boxes", "detected_classes", "detected_scores"];
    vec![
        ("LibreYOLO, YOLOv9", with_metadata(yolo9, &libreyolo("yolo9")), Wanted::Card),
        ("LibreYOLO, YOLOv9 with NMS", with_metadata(libreyolo_nms(), &libreyolo("yolo9")), Wanted::Card),
        ("LibreYOLO, YOLOX", with_metadata(yolox, &libreyolo("yolox")), Wanted::Card),
        (
            "Azure Custom Vision",
            with_metadata(finished(picture(), final_names, FRACTION, 0.0, &[1]), &windows),
            Wanted::Card,
        ),
        ("Azure Custom Vision, YOLOv2", with_metadata(custom_vision_yolov2(), &windows), Wanted::Card),
        ("YOLOv3 of Ultralytics (archive)", yolov3_archive(), Wanted::Card),
        ("keras-yolo3", keras_yolo3(), Wanted::Card),
        (
            "torchvision",
            finished(Network::new(&[3, SIDE, SIDE]), ["boxes", "labels", "scores"], 1.0, 1.0, &[]),
            Wanted::Card,
        ),
        ("boxes and six scores", boxes_and_scores(["boxes", "scores"], 1.0, 6), Wanted::Card),
        ("YOLO-NAS before NMS", boxes_and_scores(["boxes", "scores"], SIDE as f32, 80), Wanted::Card),
        (
            "MLPerf's SSD",
            finished(Network::new(&[1, 3, 1200, 1200]), ["bboxes", "labels", "scores"], FRACTION, 1.0, &[1]),
            Wanted::Card,
        ),
        ("DETR (Hugging Face)", detr(), Wanted::Card),
        ("TensorFlow's detection API", tensorflow(), Wanted::Card),
        ("EfficientNMS", efficient_nms(), Wanted::Card),
    ]
}

/// LibreYOLO's YOLOv9 with NMS inside, which also returns its input.
fn libreyolo_nms() -> Network {
    const ROWS: u64 = 30;
    let mut network = picture();
    let of_object = |object: Option<[f32; 6]>| {
        let [.., score, class] = object.unwrap_or(ELSEWHERE);
        [corners(object, 1.0), vec![score, class]].concat()
    };
    output(&mut network, "output", &[1, ROWS, 6], &rows(ROWS, 6, of_object));
    let raw = rows(CELLS, 4, |object| corners(object, 1.0));
    let scores = rows(CELLS, 4, |object| logits(object, 4, 0));
    yolo(&mut network, &["raw"], &raw, &scores, false, true);
    network
}

/// DETR as optimum exports it, with a mask of the padding.
fn detr() -> Network {
    const QUERIES: u64 = 100;
    let mut network = picture();
    network.name_dims(&["batch_size", "num_channels", "height", "width"]);
    network.named_input("pixel_mask", INT64, &["batch_size", "height", "width"]);
    let logits = rows(QUERIES, 92, |object| {
        // The softmax gives the scores of the class and of no object.
        let mut numbers = vec![-20.0; 92];
        numbers[91] = object.map_or(0.0, |[.., score, _]| (1.0 - score).ln());
        if let Some([.., score, class]) = object {
            numbers[class as usize] = score.ln();
        }
        numbers
    });
    output(&mut network, "logits", &[1, QUERIES, 92], &logits);
    let boxes = network.fixed(
        &[1, QUERIES, 4],
        &rows(QUERIES, 4, |object| {
            centre(object, FRACTION).into_iter().map(|number| logit(number.clamp(0.001, 0.999))).collect()
        }),
    );
    let boxes = network.op("Sigmoid", &[&boxes], &[]);
    network.output("pred_boxes", &boxes, FLOAT, &[1, QUERIES, 4]);
    network
}

/// The eight outputs of TensorFlow's detection API.
fn tensorflow() -> Network {
    const ROWS: u64 = 20;
    let mut network = Network::with_picture(UINT8, &[1, OPEN, OPEN, 3]);
    let of = |pick: fn([f32; 6]) -> f32| rows(ROWS, 1, |object| vec![pick(object.unwrap_or(ELSEWHERE))]);
    let boxes = rows(ROWS, 4, |object| {
        let [x1, y1, x2, y2, ..] = object.unwrap_or(ELSEWHERE);
        [y1, x1, y2, x2].iter().map(|number| number * FRACTION).collect()
    });
    output(&mut network, "detection_anchor_indices", &[1, ROWS], &of(|object| object[0]));
    output(&mut network, "detection_boxes", &[1, ROWS, 4], &boxes);
    output(&mut network, "detection_classes", &[1, ROWS], &of(|object| object[5]));
    noise(&mut network, "detection_multiclass_scores", &[1, ROWS, 5]);
    output(&mut network, "detection_scores", &[1, ROWS], &of(|object| object[4]));
    output(&mut network, "num_detections", &[1], &[ROWS as f32]);
    noise(&mut network, "raw_detection_boxes", &[1, 50, 4]);
    noise(&mut network, "raw_detection_scores", &[1, 50, 5]);
    network
}

/// The four outputs of TensorRT's EfficientNMS.
fn efficient_nms() -> Network {
    const ROWS: u64 = 20;
    let mut network = picture();
    let of = |pick: fn([f32; 6]) -> f32| rows(ROWS, 1, |object| vec![pick(object.unwrap_or(ELSEWHERE))]);
    integers(&mut network, "num_dets", INT64, &[1, 1], &[1, 1], &[ROWS as f32]);
    output(&mut network, "bboxes", &[1, ROWS, 4], &rows(ROWS, 4, |object| corners(object, 1.0)));
    output(&mut network, "scores", &[1, ROWS], &of(|object| object[4]));
    integers(&mut network, "labels", INT64, &[1, ROWS], &[1, ROWS], &of(|object| object[5]));
    network
}

/// Rows of finished objects, each as `of` has it.
fn finished_rows(name: &str, of: impl Fn([f32; 6]) -> Vec<f32>) -> Network {
    let count = OBJECTS.len() as u64;
    let numbers: Vec<f32> = OBJECTS.into_iter().flat_map(&of).collect();
    let width = numbers.len() as u64 / count;
    let mut network = picture();
    let fixed = network.fixed(&[count, width], &numbers);
    network.output(name, &fixed, FLOAT, &[OPEN, width]);
    network
}

/// Rows `[1, 1, N, 7]` with classes from `first`, the last of which are unused, and perhaps their count.
fn detection_output(names: &[&str], first: f32) -> Network {
    const ROWS: u64 = 8;
    let mut network = picture();
    let numbers = (0..ROWS as usize).flat_map(|row| match OBJECTS.get(row) {
        Some(object) => [vec![0.0, object[5] + first, object[4]], corners(Some(*object), FRACTION)].concat(),
        None => vec![-1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    });
    output(&mut network, names[0], &[1, 1, ROWS, 7], &numbers.collect::<Vec<f32>>());
    if let Some(count) = names.get(1) {
        integers(&mut network, count, INT64, &[1, 1, 1, 1], &[1, 1, 1, 1], &[OBJECTS.len() as f32]);
    }
    network
}

/// Rows with the top first and classes from 1, of a model of bytes.
fn automl() -> Network {
    const ROWS: u64 = 8;
    let mut network = Network::with_picture(UINT8, &[1, SIDE, SIDE, 3]);
    let row = |object: Option<&[f32; 6]>| {
        object.map_or(vec![0.0; 7], |&[x1, y1, x2, y2, score, class]| vec![0.0, y1, x1, y2, x2, score, class + 1.0])
    };
    let numbers: Vec<f32> = (0..ROWS as usize).flat_map(|index| row(OBJECTS.get(index))).collect();
    output(&mut network, "detections", &[1, ROWS, 7], &numbers);
    network
}

/// Exports whose rows have another order, or need NMS.
fn chosen() -> Vec<(&'static str, Network, Wanted)> {
    let paddle = || {
        let of = |[x1, y1, x2, y2, score, class]: [f32; 6]| vec![class, score, x1, y1, x2, y2];
        let mut network = finished_rows("multiclass_nms3_0.tmp_0", of);
        network.input("scale_factor", FLOAT, &[1, 2]);
        integers(&mut network, "multiclass_nms3_0.tmp_2", INT64, &[1], &[1], &[OBJECTS.len() as f32]);
        network
    };
    let candidate = |pick: fn([f32; 6]) -> f32| rows(CELLS, 1, move |object| vec![pick(object.unwrap_or(ELSEWHERE))]);
    let boxes = || rows(CELLS, 4, |object| corners(object, 1.0));
    let deepstream = built(|network| {
        let boxes = network.fixed(&[1, CELLS, 4], &rows(CELLS, 4, |object| corners(object, FRACTION)));
        let side = network.floats(&[], &[SIDE as f32]);
        let boxes = network.op("Mul", &[&boxes, &side], &[]);
        let scores = network.fixed(&[1, CELLS, 20], &rows(CELLS, 20, |object| logits(object, 20, 0)));
        let scores = network.op("Sigmoid", &[&scores], &[]);
        // The attribute `axes` of whole numbers.
        let axes = [text(1, "axes"), number(8, 2), number(20, 7)].concat();
        let best = network.op("ReduceMax", &[&scores], &[axes, int("keepdims", 1)]);
        let class = network.op("ArgMax", &[&scores], &[int("axis", 2), int("keepdims", 1)]);
        let class = network.op("Cast", &[&class], &[int("to", FLOAT)]);
        let joined = network.concat(&[&boxes, &best, &class], 2);
        network.output("output", &joined, FLOAT, &[1, CELLS, 6]);
    });
    let three = built(|network| {
        output(network, "boxes", &[1, CELLS, 4], &boxes());
        output(network, "scores", &[1, CELLS, 1], &candidate(|object| object[4]));
        output(network, "classes", &[1, CELLS, 1], &candidate(|object| object[5]));
    });
    let qualcomm = built(|network| {
        output(network, "boxes", &[1, CELLS, 4], &boxes());
        output(network, "scores", &[1, CELLS], &candidate(|object| object[4]));
        integers(network, "class_idx", UINT8, &[1, CELLS], &[1, CELLS], &candidate(|object| object[5]));
    });
    let mmdeploy = built(|network| {
        let dets = OBJECTS.iter().flat_map(|object| [corners(Some(*object), 1.0), vec![object[4]]].concat());
        output(network, "dets", &[1, 5, 5], &dets.collect::<Vec<f32>>());
        integers(network, "labels", INT64, &[1, 5], &[1, 5], &OBJECTS.map(|object| object[5]));
    });
    let nas = |[x1, y1, x2, y2, score, class]: [f32; 6]| vec![0.0, x1, y1, x2, y2, score, class];
    let score_first = |[x1, y1, x2, y2, score, class]: [f32; 6]| vec![0.0, class, score, x1, y1, x2, y2];
    let score_last = |[x1, y1, x2, y2, score, class]: [f32; 6]| vec![0.0, class, x1, y1, x2, y2, score];
    let yolov7 = |[x1, y1, x2, y2, score, class]: [f32; 6]| vec![0.0, x1, y1, x2, y2, class, score];
    let class_first = |[x1, y1, x2, y2, score, class]: [f32; 6]| vec![class, score, x1, y1, x2, y2];
    let class_before_score = |[x1, y1, x2, y2, score, class]: [f32; 6]| vec![x1, y1, x2, y2, class, score];
    let fractions = |object: [f32; 6]| [corners(Some(object), FRACTION), vec![object[5], object[4]]].concat();
    vec![
        ("DeepStream-Yolo", deepstream, Wanted::Card),
        ("DeepStream-Yolo, three outputs", three, Wanted::Card),
        ("pytorch-YOLOv4", built(|network| scored(network, "boxes", "confs", FRACTION, false)), Wanted::Card),
        ("DetectNet_v2", detectnet(), Wanted::Card),
        ("Darknet", darknet(), Wanted::Card),
        ("YOLOv5 without its last layer", yolov5_layers(), Wanted::Card),
        ("KerasCV", keras_cv(), Wanted::Card),
        ("MIT YOLO", mit_yolo(), Wanted::Card),
        ("EfficientDet", efficientdet(), Wanted::Card),
        (
            "PaddleDetection without NMS",
            built(|network| {
                network.input("scale_factor", FLOAT, &[1, 2]);
                network.input("im_shape", FLOAT, &[1, 2]);
                scored(network, "tmp_17", "concat_14.tmp_0", 1.0, true);
            }),
            Wanted::Card,
        ),
        ("Qualcomm AI Hub", qualcomm, Wanted::Card),
        ("PaddleDetection", paddle(), Wanted::Card),
        ("MMDeploy", mmdeploy, Wanted::Card),
        ("YOLO-NAS, flat", finished_rows("graph2_flat_predictions", nas), Wanted::Card),
        (
            "PINTO_model_zoo, score before box",
            finished_rows("batchno_classid_score_x1y1x2y2", score_first),
            Wanted::Card,
        ),
        ("PINTO_model_zoo, score last", finished_rows("batchno_classid_x1y1x2y2_score", score_last), Wanted::Card),
        ("OpenVINO or Caffe", detection_output(&["detection_out"], 1.0), Wanted::Card),
        ("NVIDIA TAO", detection_output(&["NMS", "NMS_1"], 0.0), Wanted::Card),
        ("automl's EfficientDet", automl(), Wanted::Card),
        ("rows of picture, box, class and score", finished_rows("output", yolov7), Wanted::Card),
        ("rows of picture, box, score and class", finished_rows("output", nas), Wanted::Card),
        ("rows of picture, class, score and box", finished_rows("output", score_first), Wanted::Card),
        ("rows of class, score and box", finished_rows("output", class_first), Wanted::Card),
        ("rows of box, class and score", finished_rows("output", class_before_score), Wanted::Card),
        ("rows of fractions", finished_rows("output", fractions), Wanted::Card),
    ]
}

/// The keypoints of each object, as parts of its box: x, y, score.
pub fn points_of([x1, y1, x2, y2, score, _]: [f32; 6], count: usize) -> Vec<[f32; 3]> {
    let part = |index: usize, step: f32| (index as f32 * step).fract();
    let at = |index: usize| [x1 + (x2 - x1) * part(index, 0.31), y1 + (y2 - y1) * part(index, 0.17), score];
    (0..count).map(at).collect()
}

/// The points of COCO's bodies.
pub const BODY: usize = 17;

/// Finished people with their keypoints in a separate output, as MMDeploy exports RTMO.
fn rtmo() -> Network {
    let dets: Vec<f32> =
        OBJECTS.iter().flat_map(|object| [corners(Some(*object), 1.0), vec![object[4]]].concat()).collect();
    let points: Vec<f32> = OBJECTS.iter().flat_map(|object| points_of(*object, BODY).into_flattened()).collect();
    let mut network = picture();
    for (name, dims, numbers) in [("dets", &[1, 5, 5][..], &dets), ("keypoints", &[1, 5, BODY as u64, 3], &points)] {
        let fixed = network.fixed(dims, numbers);
        let declared: Vec<u64> =
            dims.iter().enumerate().map(|(axis, &dim)| if axis == 1 { OPEN } else { dim }).collect();
        network.output(name, &fixed, FLOAT, &declared);
    }
    network
}

/// Exports of people with keypoints, all of the first class.
pub fn poses() -> Vec<Layout> {
    let all = [("RTMO", rtmo(), Wanted::Card)];
    all.into_iter().map(|(name, network, wanted)| Layout { name, bytes: network.bytes(), wanted }).collect()
}

/// The points of one person, at the positions of whole cells of four pixels: x, y, score.
pub fn body() -> Vec<[f32; 3]> {
    (0..BODY)
        .map(|index| [4 * (index * 5 % 13 + 1), 4 * (index * 7 % 14 + 1)])
        .map(|[x, y]| [x as f32, y as f32, 0.9])
        .collect()
}

/// One person, as mmpose exports RTMPose: scores of half pixels on each axis.
fn rtmpose() -> Network {
    const PLACES: usize = 2 * SIDE as usize;
    built(|network| {
        for (axis, name) in ["simcc_x", "simcc_y"].into_iter().enumerate() {
            let mut numbers = vec![0.01; BODY * PLACES];
            for (index, point) in body().into_iter().enumerate() {
                numbers[index * PLACES + 2 * point[axis] as usize] = point[2];
            }
            output(network, name, &[1, BODY as u64, PLACES as u64], &numbers);
        }
    })
}

/// One person in a heat map for each point.
fn hrnet() -> Network {
    const CELLS: usize = SIDE as usize / 4;
    built(|network| {
        let mut numbers = vec![0.01; BODY * CELLS * CELLS];
        for (map, [x, y, score]) in numbers.chunks_exact_mut(CELLS * CELLS).zip(body()) {
            map[y as usize / 4 * CELLS + x as usize / 4] = score;
        }
        output(network, "output", &[1, BODY as u64, CELLS as u64, CELLS as u64], &numbers);
    })
}

/// Exports of the points of one person.
pub fn one_person() -> Vec<Layout> {
    let all = [("RTMPose", rtmpose()), ("HRNet, SimpleBaseline, ViTPose", hrnet())];
    all.into_iter().map(|(name, network)| Layout { name, bytes: network.bytes(), wanted: Wanted::Card }).collect()
}

/// Numbers of an embedding.
const EMBEDDING: usize = 128;

/// A detector of any class: the scores of a class are those of [`OBJECTS`] that its embedding picks.
pub fn prompted() -> Layout {
    let mut network = picture();
    network.input("txt_feats", FLOAT, &[1, OPEN, EMBEDDING as u64]);
    let scores = rows(CELLS, EMBEDDING, |object| logits(object, EMBEDDING, 0));
    let scores = network.fixed(&[1, EMBEDDING as u64, CELLS], &transposed(&scores, EMBEDDING));
    let scores = network.op("MatMul", &["txt_feats", &scores], &[]);
    let scores = network.op("Sigmoid", &[&scores], &[]);
    let boxes = rows(CELLS, 4, |object| centre(object, 1.0));
    let boxes = network.fixed(&[1, 4, CELLS], &transposed(&boxes, 4));
    let joined = network.concat(&[&boxes, &scores], 1);
    network.output("output0", &joined, FLOAT, &[1, OPEN, CELLS]);
    Layout { name: "YOLO-World, YOLOE with prompts", bytes: network.bytes(), wanted: Wanted::Card }
}

/// The file of NumPy with the embeddings of these classes of [`OBJECTS`], in this order, of f32 or f16.
pub fn prompts(classes: &[usize], half: bool) -> Vec<u8> {
    let kind = if half { "<f2" } else { "<f4" };
    let shape = format!("(1, {}, {EMBEDDING})", classes.len());
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    let header = format!("{header:117}\n");
    let is_one = classes.iter().flat_map(|class| (0..EMBEDDING).map(move |number| number == *class));
    let numbers: Vec<u8> = match half {
        true => is_one.flat_map(|one| (if one { 0x3c00_u16 } else { 0 }).to_le_bytes()).collect(),
        false => is_one.flat_map(|one| (if one { 1.0_f32 } else { 0.0 }).to_le_bytes()).collect(),
    };
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &numbers].concat()
}

/// Exports that no head reads.
fn unread() -> Vec<(&'static str, Network, Wanted)> {
    let mut encoded = Network::with_picture(UINT8, &[OPEN]);
    output(&mut encoded, "boxes", &[5, 6], &[0.0; 30]);
    let mut other = picture();
    noise(&mut other, "regression", &[1, 700, 4]);
    noise(&mut other, "classification", &[1, 700, 90]);
    let mut keras = Network::new(&[1, SIDE, SIDE, 3]);
    noise(&mut keras, "regression", &[1, 774, 4]);
    noise(&mut keras, "classification", &[1, 774, 90]);
    vec![
        ("onnxruntime-extensions", encoded, Wanted::Refused("onnxruntime-extensions")),
        ("EfficientDet with other anchors", other, Wanted::Refused("EfficientDet")),
        ("RetinaNet or a Keras EfficientDet", keras, Wanted::Refused("RetinaNet or a Keras EfficientDet")),
    ]
}

/// Follows the advice of an error: keys under a table, the first of alternatives. `None` if it has no such advice.
pub fn followed(card: &str, error: &str) -> Option<String> {
    let (_, after) = error.split_once("write `")?;
    let (said, rest) = after.split_once("` under [")?;
    let (table, _) = rest.split_once(']')?;
    let said: Vec<&str> = said.split("` or `").next()?.split("`, `").collect();
    let key = |line: &str| line.split(" = ").next().unwrap_or_default().to_owned();
    let header = format!("[{table}]");
    let mut new = if card.lines().any(|line| line == header) { card.to_owned() } else { format!("{card}\n{header}\n") };
    for line in said {
        let kept: Vec<&str> = new.lines().filter(|old| old.is_empty() || key(old) != key(line)).collect();
        new = kept.join("\n") + "\n";
        new = new.replacen(&format!("{header}\n"), &format!("{header}\n{line}\n"), 1);
    }
    (new != card).then_some(new)
}

/// Returns a network with these rows of six numbers; only the numbers show their order.
pub fn of_rows(rows: &[[f32; 6]]) -> Vec<u8> {
    let mut network = picture();
    let fixed = network.fixed(&[rows.len() as u64, 6], rows.as_flattened());
    network.output("output", &fixed, FLOAT, &[OPEN, 6]);
    network.bytes()
}

/// A row of box, score and class around all that is not grey: centre and size, or corners, in pixels or as fractions.
pub fn of_person(centre: bool, unit: f32) -> Vec<u8> {
    let mut network = picture();
    let (grey, most) = (network.floats(&[], &[114.0 / 255.0]), network.floats(&[], &[1.0]));
    let (steep, unit) = (network.floats(&[], &[1000.0]), network.floats(&[], &[unit]));
    let off = network.op("Sub", &["picture", &grey], &[]);
    let off = network.op("Abs", &[&off], &[]);
    let off = network.op("Mul", &[&off, &steep], &[]);
    let off = network.op("Min", &[&off, &most], &[]);
    let side = network.floats(&[], &[SIDE as f32]);
    let numbers: Vec<f32> = (1..=SIDE).map(|number| number as f32).collect();
    let back: Vec<f32> = numbers.iter().rev().copied().collect();
    let axes = |axes: &[u64]| {
        let numbers: Vec<u8> = axes.iter().flat_map(|&axis| number(8, axis)).collect();
        [text(1, "axes"), numbers, number(20, 7)].concat()
    };
    let mut farthest = |dims: &[u64], numbers: &[f32]| {
        let places = network.floats(dims, numbers);
        let places = network.op("Mul", &[&off, &places], &[]);
        let lines = network.op("ReduceMax", &[&places], &[axes(&[1, 2]), int("keepdims", 0)]);
        network.op("ReduceMax", &[&lines], &[axes(&[1]), int("keepdims", 1)])
    };
    let (x2, y2) = (farthest(&[1, 1, 1, SIDE], &numbers), farthest(&[1, 1, SIDE, 1], &numbers));
    let (left, above) = (farthest(&[1, 1, 1, SIDE], &back), farthest(&[1, 1, SIDE, 1], &back));
    let first = network.concat(&[&left, &above], 1);
    let first = network.op("Sub", &[&side, &first], &[]);
    let mut last = network.concat(&[&x2, &y2], 1);
    let mut start = first.clone();
    if centre {
        let half = network.floats(&[], &[0.5]);
        let sum = network.op("Add", &[&first, &last], &[]);
        start = network.op("Mul", &[&sum, &half], &[]);
        last = network.op("Sub", &[&last, &first], &[]);
    }
    let found = network.concat(&[&start, &last], 1);
    let found = network.op("Mul", &[&found, &unit], &[]);
    let (score, class) = (network.floats(&[1, 1], &[0.9]), network.floats(&[1, 1], &[0.0]));
    let joined = network.concat(&[&found, &score, &class], 1);
    network.output("output", &joined, FLOAT, &[OPEN, 6]);
    network.bytes()
}

/// YOLOv8's layout, whose scores are high only if the pixels are from 0 to 255.
pub fn of_bytes() -> Vec<u8> {
    let mut network = picture();
    let boxes = network.fixed(&[1, 4, CELLS], &transposed(&rows(CELLS, 4, |object| centre(object, 1.0)), 4));
    let scores = rows(CELLS, 20, |object| logits(object, 20, 0));
    let scores = network.fixed(&[1, 20, CELLS], &transposed(&scores, 20));
    let (factor, most) = (network.floats(&[], &[1.0]), network.floats(&[], &[10.0]));
    let bright = network.op("Mul", &["mean", &factor], &[]);
    let bright = network.op("Min", &[&bright, &most], &[]);
    let bright = network.op("Sub", &[&bright, &most], &[]);
    let scores = network.op("Add", &[&scores, &bright], &[]);
    let scores = network.op("Sigmoid", &[&scores], &[]);
    let joined = network.concat(&[&boxes, &scores], 1);
    network.output("output0", &joined, FLOAT, &[1, 24, CELLS]);
    network.bytes()
}

/// A classifier of two classes, which finds the second only in pixels from 0 to 255.
pub fn classifier_of_bytes() -> Vec<u8> {
    let mut network = picture();
    let (least, most, zero) =
        (network.floats(&[], &[0.0]), network.floats(&[], &[6.0]), network.floats(&[1, 1], &[0.0]));
    let bright = network.op("Max", &["feature", &least], &[]);
    let bright = network.op("Min", &[&bright, &most], &[]);
    let half = network.floats(&[], &[3.0]);
    let bright = network.op("Sub", &[&bright, &half], &[]);
    let joined = network.concat(&[&zero, &bright], 1);
    let scores = network.op("Softmax", &[&joined], &[int("axis", 1)]);
    network.output("prob", &scores, FLOAT, &[1, 2]);
    network.bytes()
}

/// Returns the layout of each exporter.
pub fn layouts() -> Vec<Layout> {
    let all = yolos().into_iter().chain(others()).chain(chosen()).chain(unread());
    all.map(|(name, network, wanted)| Layout { name, bytes: network.bytes(), wanted }).collect()
}
