//! Small networks with the outputs and last operators of common exports, written field by field.
//!
//! Each has one layer with weights; its numbers do not depend on the image, so that a test knows them.

use crate::onnx::{BOOL, FLOAT, INT64, field, int, named_value, node, number, tensor, text, value};

/// An element type of ONNX.
pub(crate) const UINT8: u64 = 2;
pub(crate) const INT32: u64 = 6;

/// A dimension that the model leaves open; any other is fixed.
pub const OPEN: u64 = 0;

/// Sides of the pictures, and the cells of grids of strides 8, 16 and 32 over them.
pub const SIDE: u64 = 64;
pub(crate) const CELLS: u64 = 64 + 16 + 4;

/// A network under construction.
pub struct Network {
    nodes: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    metadata: Vec<Vec<u8>>,
    values: usize,
}

impl Network {
    /// A network with an image input of `dims`, of f32.
    pub fn new(dims: &[u64]) -> Self {
        Self::with_picture(FLOAT, dims)
    }

    pub(crate) fn with_picture(kind: u64, dims: &[u64]) -> Self {
        let mut network = Self {
            nodes: Vec::new(),
            tensors: Vec::new(),
            inputs: vec![value("images", kind, dims)],
            outputs: Vec::new(),
            metadata: Vec::new(),
            values: 0,
        };
        network.nodes.push(node("Cast", &["images"], "picture", &[int("to", FLOAT)]));
        network.nodes.push(node("ReduceMean", &["picture"], "mean", &[int("keepdims", 0)]));
        let one = network.integers(&[1, 1]);
        network.nodes.push(node("Reshape", &["mean", &one], "feature", &[]));
        network
    }

    /// Replaces the image input by one whose dimensions have these names.
    pub(crate) fn name_dims(&mut self, names: &[&str]) {
        self.inputs = vec![named_value("images", FLOAT, names)];
    }

    pub(crate) fn named_input(&mut self, name: &str, kind: u64, names: &[&str]) {
        self.inputs.push(named_value(name, kind, names));
    }

    fn name(&mut self) -> String {
        self.values += 1;
        format!("v{}", self.values)
    }

    /// Adds an operator and returns its value.
    pub(crate) fn op(&mut self, operator: &str, inputs: &[&str], attributes: &[Vec<u8>]) -> String {
        let name = self.name();
        self.nodes.push(node(operator, inputs, &name, attributes));
        name
    }

    pub(crate) fn floats(&mut self, dims: &[u64], data: &[f32]) -> String {
        let name = self.name();
        let bytes: Vec<u8> = data.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.tensors.push(tensor(&name, FLOAT, dims, &bytes));
        name
    }

    fn integers(&mut self, data: &[i64]) -> String {
        let name = self.name();
        let bytes: Vec<u8> = data.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.tensors.push(tensor(&name, INT64, &[data.len() as u64], &bytes));
        name
    }

    fn number(&mut self, number: f32) -> String {
        self.floats(&[], &[number])
    }

    fn reshape(&mut self, value: &str, dims: &[u64]) -> String {
        let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        let dims = self.integers(&dims);
        self.op("Reshape", &[value, &dims], &[])
    }

    /// Adds a layer with weights whose numbers are spread from `least` to `most`.
    fn layer(&mut self, dims: &[u64], least: f32, most: f32) -> String {
        let count: u64 = dims.iter().product();
        // The golden ratio spreads them evenly.
        let part = |index: u64| (index as f32 * 0.618_034).fract();
        let bias: Vec<f32> = (0..count).map(|index| least + (most - least) * part(index)).collect();
        self.fixed(dims, &bias)
    }

    /// Adds a layer that returns these numbers for any image.
    pub(crate) fn fixed(&mut self, dims: &[u64], numbers: &[f32]) -> String {
        let count = numbers.len() as u64;
        let weights = self.floats(&[1, count], &vec![0.0; numbers.len()]);
        let bias = self.floats(&[count], numbers);
        let product = self.op("MatMul", &["feature", &weights], &[]);
        let sum = self.op("Add", &[&product, &bias], &[]);
        self.reshape(&sum, dims)
    }

    /// Adds logits, most of them far below 0.
    fn logits(&mut self, dims: &[u64]) -> String {
        self.layer(dims, -9.0, 3.0)
    }

    /// Adds scores after a sigmoid.
    fn scores(&mut self, dims: &[u64]) -> String {
        let logits = self.logits(dims);
        self.op("Sigmoid", &[&logits], &[])
    }

    fn softmax(&mut self, dims: &[u64]) -> String {
        let logits = self.logits(dims);
        self.op("Softmax", &[&logits], &[int("axis", dims.len() as u64 - 1)])
    }

    /// Adds centres and sizes as fractions of the input, the four numbers along `axis`.
    fn fractions(&mut self, dims: &[u64]) -> String {
        let raw = self.layer(dims, -2.0, 2.0);
        self.op("Sigmoid", &[&raw], &[])
    }

    /// Adds centres and sizes in pixels.
    fn pixels(&mut self, dims: &[u64]) -> String {
        let (fractions, side) = (self.fractions(dims), self.number(SIDE as f32));
        self.op("Mul", &[&fractions, &side], &[])
    }

    pub(crate) fn concat(&mut self, parts: &[&str], axis: u64) -> String {
        self.op("Concat", parts, &[int("axis", axis)])
    }

    /// Adds boxes as corners: centres minus and plus half the sizes.
    fn corners(&mut self, rows: u64, unit: f32) -> String {
        let (dims, unit, half) = ([1, rows, 2], self.number(unit), self.number(0.5));
        let centre = self.fractions(&dims);
        let centre = self.op("Mul", &[&centre, &unit], &[]);
        let size = self.fractions(&dims);
        let size = self.op("Mul", &[&size, &unit], &[]);
        let half = self.op("Mul", &[&size, &half], &[]);
        let near = self.op("Sub", &[&centre, &half], &[]);
        let far = self.op("Add", &[&centre, &half], &[]);
        self.concat(&[&near, &far], 2)
    }

    /// Adds whole numbers below `most` as classes.
    fn labels(&mut self, dims: &[u64], most: f32) -> String {
        let numbers = self.layer(dims, 0.0, most);
        let below = self.op("Floor", &[&numbers], &[]);
        self.op("Cast", &[&below], &[int("to", INT64)])
    }

    pub(crate) fn input(&mut self, name: &str, kind: u64, dims: &[u64]) {
        self.inputs.push(value(name, kind, dims));
    }

    pub(crate) fn output(&mut self, name: &str, from: &str, kind: u64, dims: &[u64]) {
        self.nodes.push(node("Identity", &[from], name, &[]));
        self.outputs.push(value(name, kind, dims));
    }

    pub(crate) fn metadata(&mut self, key: &str, note: &str) {
        self.metadata.push([text(1, key), text(2, note)].concat());
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let graph: Vec<u8> = [(1, &self.nodes), (5, &self.tensors), (11, &self.inputs), (12, &self.outputs)]
            .into_iter()
            .flat_map(|(number, parts)| parts.iter().flat_map(move |part| field(number, part)))
            .chain(text(2, "network"))
            .collect();
        let opset = [text(1, ""), number(2, 13)].concat();
        let metadata: Vec<u8> = self.metadata.iter().flat_map(|entry| field(14, entry)).collect();
        [number(1, 8), field(7, &graph), field(8, &opset), metadata].concat()
    }
}

/// An image input of three colours, with a fixed or open side.
fn picture(side: u64) -> Network {
    Network::new(&[1, 3, side, side])
}

/// YOLOv8: columns of a box in pixels and scores after the sigmoid; `more` numbers after two classes, `extra` of them in pixels.
fn yolov8(side: u64, columns: u64, classes: u64, points: u64, masks: u64) -> Network {
    let mut network = picture(side);
    let mut parts = vec![network.pixels(&[1, 4, columns]), network.scores(&[1, classes, columns])];
    if points > 0 {
        let each = network.pixels(&[1, points, 3, columns]);
        parts.push(network.reshape(&each, &[1, 3 * points, columns]));
    }
    if masks > 0 {
        parts.push(network.layer(&[1, masks, columns], -1.0, 1.0));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let joined = network.concat(&parts, 1);
    let declared = if side == OPEN { OPEN } else { columns };
    network.output("output0", &joined, FLOAT, &[1, 4 + classes + 3 * points + masks, declared]);
    if masks > 0 {
        let prototypes = network.layer(&[1, masks, 16, 16], -1.0, 1.0);
        network.output("output1", &prototypes, FLOAT, &[1, masks, 16, 16]);
    }
    network
}

/// The logits of four labels, two of which apply.
pub const TAGS: [f32; 4] = [2.0, -3.0, 1.0, -1.0];

/// How many objects the network `noisy-masks` finds.
pub const NOISY: u64 = 40;

/// A body with its left hand up, in COCO's order of points: x, y and score in a picture of [`SIDE`].
pub const BODY: [[f32; 3]; 17] = [
    [32.0, 10.0, 0.9],
    [34.0, 8.0, 0.9],
    [30.0, 8.0, 0.9],
    [36.0, 9.0, 0.9],
    [28.0, 9.0, 0.9],
    [40.0, 18.0, 0.9],
    [24.0, 18.0, 0.9],
    [50.0, 16.0, 0.9],
    [18.0, 26.0, 0.9],
    [52.0, 6.0, 0.9],
    [17.0, 34.0, 0.9],
    [37.0, 36.0, 0.9],
    [27.0, 36.0, 0.9],
    [38.0, 47.0, 0.9],
    [26.0, 47.0, 0.9],
    [39.0, 58.0, 0.9],
    // The right foot is hidden.
    [25.0, 58.0, 0.1],
];

/// The logits of the attribute `gender` of the network "attributes".
pub const GENDER: [f32; 2] = [2.0, -1.0];

/// The logits of its attribute `worn`.
pub const WORN: [f32; 3] = [2.0, -2.0, 0.5];

/// The vector of the network "embedding".
pub const EMBEDDING: [f32; 16] = [3.0, -4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 12.0];

/// Returns the value at a pixel of the map of the network "depth", of 16 x 16 pixels.
pub fn depth_at(column: usize, line: usize) -> f32 {
    (100 * line + column) as f32
}

/// A network of attributes: gender, age, clothes.
fn attributes(gender: [f32; 2]) -> Network {
    let mut network = picture(SIDE);
    let gender = network.fixed(&[1, 2], &gender);
    network.output("gender", &gender, FLOAT, &[1, 2]);
    let age = network.fixed(&[1, 1], &[0.312]);
    network.output("age", &age, FLOAT, &[1, 1]);
    let worn = network.fixed(&[1, 3], &WORN);
    let worn = network.op("Sigmoid", &[&worn], &[]);
    network.output("worn", &worn, FLOAT, &[1, 3]);
    network
}

/// A pose model of Ultralytics that finds [`BODY`].
fn pose(names: Option<&str>) -> Network {
    let mut network = picture(SIDE);
    let body = [32.0, 33.0, 44.0, 58.0, 0.9].into_iter().chain(BODY.into_iter().flatten());
    let column = |value: f32| std::iter::once(value).chain(std::iter::repeat_n(0.0, CELLS as usize - 1));
    let numbers: Vec<f32> = body.flat_map(column).collect();
    let output = network.fixed(&[1, 56, CELLS], &numbers);
    network.output("output0", &output, FLOAT, &[1, 56, CELLS]);
    let metadata = [("author", "Ultralytics"), ("task", "pose"), ("names", "{0: 'person'}"), ("kpt_shape", "[17, 3]")];
    for (key, note) in metadata.into_iter().chain(names.map(|names| ("kpt_names", names))) {
        network.metadata(key, note);
    }
    network
}

/// A segmentation model of Ultralytics with NMS inside that finds [`NOISY`] objects as large as the picture, whose masks are noise.
fn noisy_masks() -> Network {
    const CELLS: u64 = 160;
    const PROTOTYPES: u64 = 32;
    let mut network = picture(640);
    let mut state = 1_u32;
    let mut noise = |count: u64| -> Vec<f32> {
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(next).collect()
    };
    let rows: Vec<f32> = (0..NOISY)
        .flat_map(|row| [0.0, 0.0, 640.0, 640.0, 0.9 - 0.001 * row as f32, 0.0].into_iter().chain(noise(PROTOTYPES)))
        .collect();
    let rows = network.fixed(&[1, NOISY, 6 + PROTOTYPES], &rows);
    network.output("output0", &rows, FLOAT, &[1, NOISY, 6 + PROTOTYPES]);
    let prototypes = network.fixed(&[1, PROTOTYPES, CELLS, CELLS], &noise(PROTOTYPES * CELLS * CELLS));
    network.output("output1", &prototypes, FLOAT, &[1, PROTOTYPES, CELLS, CELLS]);
    let metadata = [("author", "Ultralytics"), ("task", "segment"), ("names", "{0: 'x'}"), ("end2end", "True")];
    for (key, note) in metadata {
        network.metadata(key, note);
    }
    network
}

/// MoveNet as TensorFlow's hub has it, with a picture of i32, which finds [`BODY`].
fn movenet() -> Network {
    let mut network = Network::with_picture(INT32, &[1, SIDE, SIDE, 3]);
    let side = SIDE as f32;
    let numbers: Vec<f32> = BODY.iter().flat_map(|[x, y, score]| [y / side, x / side, *score]).collect();
    let output = network.fixed(&[1, 1, 17, 3], &numbers);
    network.output("output_0", &output, FLOAT, &[1, 1, 17, 3]);
    network
}

/// Turned boxes in a picture of [`SIDE`]: the centre, the size, the scores of two classes, the angle. The second shows the same
/// object as the first, the third lies across it, the fourth is of the other class.
pub const TURNED: [[f32; 7]; 4] = [
    [32.0, 30.0, 30.0, 8.0, 0.9, 0.0, 0.5],
    [32.5, 30.0, 29.0, 8.0, 0.8, 0.0, 0.52],
    [32.0, 30.0, 30.0, 8.0, 0.7, 0.0, 2.0],
    [20.0, 50.0, 12.0, 6.0, 0.0, 0.6, -0.25],
];

/// A model of Ultralytics that finds [`TURNED`].
fn obb() -> Network {
    let mut network = picture(SIDE);
    let row = |index: usize| {
        let found = TURNED.iter().map(move |turned| turned[index]);
        found.chain(std::iter::repeat_n(0.0, CELLS as usize - TURNED.len()))
    };
    let numbers: Vec<f32> = (0..7).flat_map(row).collect();
    let output = network.fixed(&[1, 7, CELLS], &numbers);
    network.output("output0", &output, FLOAT, &[1, 7, CELLS]);
    for (key, note) in [("author", "Ultralytics"), ("task", "obb"), ("names", "{0: 'ship', 1: 'harbor'}")] {
        network.metadata(key, note);
    }
    network
}

/// SegFormer: logits of three classes in cells of 4x4 pixels. The first is the best on the left, the last on the right.
fn semantic() -> Network {
    const CELLS: u64 = SIDE / 4;
    let mut network = picture(SIDE);
    let logit = |class: u64, cell: u64| match (class, cell % CELLS < CELLS / 2) {
        (0, true) => 2.0,
        (2, false) => 4.0,
        _ => 0.0,
    };
    let numbers: Vec<f32> = (0..3).flat_map(|class| (0..CELLS * CELLS).map(move |cell| logit(class, cell))).collect();
    let logits = network.fixed(&[1, 3, CELLS, CELLS], &numbers);
    network.output("logits", &logits, FLOAT, &[1, 3, CELLS, CELLS]);
    network
}

/// PaddleOCR's text detection: a text in columns 10 to 50 and lines 20 to 30.
fn text_map() -> Network {
    let mut network = picture(SIDE);
    let is_text = |cell: u64| (10..=50).contains(&(cell % SIDE)) && (20..=30).contains(&(cell / SIDE));
    let numbers: Vec<f32> = (0..SIDE * SIDE).map(|cell| if is_text(cell) { 3.0 } else { -5.0 }).collect();
    let logits = network.fixed(&[1, 1, SIDE, SIDE], &numbers);
    let map = network.op("Sigmoid", &[&logits], &[]);
    network.output("fetch_name_0", &map, FLOAT, &[1, 1, SIDE, SIDE]);
    network
}

/// YOLOv5: rows of a box in pixels, an objectness and scores.
fn yolov5(rows: u64, classes: u64) -> Network {
    let mut network = picture(SIDE);
    let (boxes, scores) = (network.pixels(&[1, rows, 4]), network.scores(&[1, rows, 1 + classes]));
    let joined = network.concat(&[&boxes, &scores], 2);
    network.output("output", &joined, FLOAT, &[1, rows, 5 + classes]);
    network
}

/// YOLOX, decoded in the graph or not.
fn yolox(side: u64, rows: u64, decoded: bool) -> Network {
    let mut network = picture(side);
    let boxes = network.layer(&[1, rows, 2], -1.0, 2.0);
    let sizes = network.layer(&[1, rows, 2], -1.0, 2.0);
    let boxes = if decoded {
        let stride = network.number(8.0);
        let sizes = network.op("Exp", &[&sizes], &[]);
        let joined = network.concat(&[&boxes, &sizes], 2);
        let joined = network.op("Mul", &[&joined, &stride], &[]);
        // The corner of each cell, of a grid of stride 8 as wide as the picture.
        let columns = SIDE / 8;
        let corner = |row: u64| [(row % columns * 8) as f32, (row / columns % columns * 8) as f32, 0.0, 0.0];
        let corners: Vec<f32> = (0..rows).flat_map(corner).collect();
        let corners = network.floats(&[1, rows, 4], &corners);
        network.op("Add", &[&joined, &corners], &[])
    } else {
        network.concat(&[&boxes, &sizes], 2)
    };
    let scores = network.scores(&[1, rows, 3]);
    let joined = network.concat(&[&boxes, &scores], 2);
    network.output("output", &joined, FLOAT, &[1, if side == OPEN { OPEN } else { rows }, 7]);
    network
}

/// NanoDet: scores and the bins of four distances; the scores are logits without `sigmoid`.
fn nanodet(side: u64, rows: u64, classes: u64, reg_max: u64, sigmoid: bool) -> Network {
    let mut network = picture(side);
    let distances = 4 * (reg_max + 1);
    let joint = network.layer(&[1, rows, classes + distances], -9.0, 3.0);
    let sizes = network.integers(&[classes as i64, distances as i64]);
    let (scores, boxes) = (network.name(), network.name());
    // `node` has one output.
    let mut split = node("Split", &[&joint, &sizes], &scores, &[int("axis", 2)]);
    split.extend(text(2, &boxes));
    network.nodes.push(split);
    let scores = if sigmoid { network.op("Sigmoid", &[&scores], &[]) } else { scores };
    let joined = network.concat(&[&scores, &boxes], 2);
    let declared = if side == OPEN { OPEN } else { rows };
    network.output("output", &joined, FLOAT, &[1, declared, classes + distances]);
    network
}

/// YOLOv10 and YOLO26: rows of box, score and class.
fn end_to_end(rows: u64, unit: f32) -> Network {
    let mut network = picture(SIDE);
    let (boxes, scores) = (network.corners(rows, unit), network.scores(&[1, rows, 1]));
    let labels = network.labels(&[1, rows, 1], 3.0);
    let labels = network.op("Cast", &[&labels], &[int("to", FLOAT)]);
    let joined = network.concat(&[&boxes, &scores, &labels], 2);
    network.output("output0", &joined, FLOAT, &[1, rows, 6]);
    network
}

/// YOLOv7 with the suppression inside: rows of batch, box, class and score, as many as there are.
fn yolov7_nms() -> Network {
    let mut network = picture(SIDE);
    let rows = 10;
    let batch = network.layer(&[1, rows, 1], 0.0, 0.0);
    let (boxes, scores) = (network.corners(rows, 64.0), network.scores(&[1, rows, 1]));
    let labels = network.labels(&[1, rows, 1], 3.0);
    let labels = network.op("Cast", &[&labels], &[int("to", FLOAT)]);
    let joined = network.concat(&[&batch, &boxes, &labels, &scores], 2);
    let joined = network.reshape(&joined, &[rows, 7]);
    network.output("output", &joined, FLOAT, &[OPEN, 7]);
    network
}

/// Final boxes, labels and scores of `rows` detections.
fn labelled(network: &mut Network, rows: u64, names: [&str; 3], most: f32, dims: &[u64]) {
    let boxes = network.corners(rows, 64.0);
    let boxes = network.reshape(&boxes, &[dims, &[4]].concat());
    // The surest have the label 0.
    let labels = network.layer(dims, most, 0.0);
    let labels = network.op("Floor", &[&labels], &[]);
    let labels = network.op("Cast", &[&labels], &[int("to", INT64)]);
    let scores = network.scores(dims);
    network.output(names[0], &boxes, FLOAT, &[dims, &[4]].concat());
    network.output(names[1], &labels, INT64, dims);
    network.output(names[2], &scores, FLOAT, dims);
}

/// SSD and UltraFace: corners as fractions and scores of which the first is that of no class.
fn ssd(rows: u64, scores: &str, classes: u64) -> Network {
    let mut network = picture(SIDE);
    let scores = match scores {
        "softmax" => network.softmax(&[1, rows, classes]),
        _ => network.logits(&[1, rows, classes]),
    };
    let boxes = network.corners(rows, 1.0);
    network.output("scores", &scores, FLOAT, &[1, rows, classes]);
    network.output("boxes", &boxes, FLOAT, &[1, rows, 4]);
    network
}

/// DETR and RT-DETR of Hugging Face, and RF-DETR by its names.
fn detr(queries: u64, classes: u64, names: [&str; 2], sigmoid: bool) -> Network {
    let mut network = picture(SIDE);
    let boxes = network.fractions(&[1, queries, 4]);
    let dims = [1, queries, classes];
    let logits = if sigmoid { network.scores(&dims) } else { network.logits(&dims) };
    network.output(names[0], &logits, FLOAT, &dims);
    network.output(names[1], &boxes, FLOAT, &[1, queries, 4]);
    network
}

/// D-FINE: deployed, with the size of the picture as a second input.
fn deployed(dims: &[u64]) -> Network {
    let mut network = picture(SIDE);
    network.input("orig_target_sizes", INT64, dims);
    labelled(&mut network, 30, ["boxes", "labels", "scores"], 3.0, &[1, 30]);
    network
}

/// CenterNet and CenterFace: a heat map, sizes, offsets, and the landmarks of a face.
fn heat_map(classes: u64, names: &[&str], sigmoid: bool) -> Network {
    let mut network = picture(SIDE);
    let plane = |planes: u64| [1, planes, SIDE / 4, SIDE / 4];
    let heat = if sigmoid { network.scores(&plane(classes)) } else { network.logits(&plane(classes)) };
    network.output(names[0], &heat, FLOAT, &plane(classes));
    for (name, planes) in names[1..].iter().zip([2, 2, 10]) {
        let numbers = network.layer(&plane(planes), 0.1, 2.0);
        network.output(name, &numbers, FLOAT, &plane(planes));
    }
    network
}

/// BlazeFace, of a sigmoid or, as MediaPipe has it, of none.
fn blazeface(sigmoid: bool) -> Network {
    let mut network = picture(128);
    let boxes = network.layer(&[1, 896, 16], -20.0, 40.0);
    let scores = if sigmoid { network.scores(&[1, 896, 1]) } else { network.logits(&[1, 896, 1]) };
    network.output("regressors", &boxes, FLOAT, &[1, 896, 16]);
    network.output("classificators", &scores, FLOAT, &[1, 896, 1]);
    network
}

/// The left, top, right and bottom of a face in pixels of the input.
pub const FACE: [f32; 4] = [10.0, 12.0, 50.0, 56.0];
/// Its right eye, left eye, nose, and the right and left corner of its mouth.
pub const FACE_POINTS: [[f32; 2]; 5] = [[20.0, 26.0], [40.0, 26.0], [30.0, 36.0], [22.0, 46.0], [38.0, 46.0]];

/// Faces on grids of strides 8, 16 and 32: [`FACE`] with a score of 0.96 in one cell of the second grid, in each style's own
/// numbers. A row has scores, objectness, box and points.
fn faces(style: &str) -> Network {
    let mut network = picture(SIDE);
    let anchors = if style == "yunet" { 1 } else { 2 };
    let rows = [64 * anchors, 16 * anchors, 4 * anchors];
    // The cell at (2, 2), and RetinaFace's prior box of 64 pixels, the first of the cell.
    let (stride, at) = (16.0, (2 * 4 + 2) * anchors as usize);
    let [left, top, right, bottom] = FACE;
    let (origin, unit) = match style {
        "retinaface" => (2.5 * stride, 6.4),
        _ => (2.0 * stride, stride),
    };
    let offset = |pixel: f32| (pixel - origin) / unit;
    let centre = [(left + right) / 2.0, (top + bottom) / 2.0].map(offset);
    let size = |pixels: f32| match style {
        "retinaface" => (pixels / 64.0).ln() / 0.2,
        _ => (pixels / stride).ln(),
    };
    let sides = match style {
        "scrfd" => [-offset(left), -offset(top), offset(right), offset(bottom)],
        _ => [centre[0], centre[1], size(right - left), size(bottom - top)],
    };
    let points: Vec<f32> = FACE_POINTS.iter().flatten().map(|&pixel| offset(pixel)).collect();
    // Scores before their sigmoid or softmax: 0.96, and for YuNet the root of 0.96 times 0.96.
    let logit = (0.96_f32 / 0.04).ln();
    let table = |rows: u64, found: &[f32], other: f32, grid: bool| -> Vec<f32> {
        let mut numbers = vec![other; rows as usize * found.len()];
        if grid {
            numbers[at * found.len()..(at + 1) * found.len()].copy_from_slice(found);
        }
        numbers
    };
    if style == "retinaface" {
        let parts: [(&str, Vec<f32>, f32); 3] =
            [("loc", sides.to_vec(), 0.0), ("conf", vec![0.0, logit], 0.0), ("landms", points, 0.0)];
        for (name, found, other) in parts {
            let width = found.len() as u64;
            let mut numbers: Vec<f32> = Vec::new();
            for (index, rows) in rows.into_iter().enumerate() {
                numbers.extend(table(rows, &found, other, index == 1));
            }
            if name == "conf" {
                // All others are background.
                numbers.chunks_exact_mut(2).filter(|row| row[1] == 0.0).for_each(|row| row[0] = 6.0);
            }
            let dims = [1, rows.iter().sum(), width];
            let mut value = network.fixed(&dims, &numbers);
            if name == "conf" {
                value = network.op("Softmax", &[&value], &[int("axis", 2)]);
            }
            network.output(name, &value, FLOAT, &dims);
        }
        return network;
    }
    let mut parts = vec![("score", vec![logit]), ("bbox", sides.to_vec()), ("kps", points)];
    if style == "yunet" {
        parts[0].0 = "cls";
        parts.insert(1, ("obj", vec![logit]));
    }
    for (part, found) in parts {
        let width = found.len() as u64;
        for (index, rows) in rows.into_iter().enumerate() {
            let other = if width == 1 { -6.0 } else { 0.0 };
            // InsightFace has no batch dimension.
            let dims = if style == "yunet" { vec![1, rows, width] } else { vec![rows, width] };
            let mut value = network.fixed(&dims, &table(rows, &found, other, index == 1));
            if width == 1 {
                value = network.op("Sigmoid", &[&value], &[]);
            }
            network.output(&format!("{part}_{}", 8 << index), &value, FLOAT, &dims);
        }
    }
    network
}

/// YOLOv5-face: rows of a box, an objectness, five points and the score of the one class; [`FACE`] is the second.
fn yolov5_face() -> Network {
    let mut network = picture(SIDE);
    let rows = 3 * CELLS;
    let [left, top, right, bottom] = FACE;
    let found = [(left + right) / 2.0, (top + bottom) / 2.0, right - left, bottom - top];
    let of = |network: &mut Network, found: &[f32], other: f32| {
        let width = found.len();
        let mut numbers = vec![other; rows as usize * width];
        numbers[width..2 * width].copy_from_slice(found);
        network.fixed(&[1, rows, width as u64], &numbers)
    };
    let points: Vec<f32> = FACE_POINTS.iter().flatten().copied().collect();
    let boxes = of(&mut network, &found, 8.0);
    let points = of(&mut network, &points, 8.0);
    let one = network.number(1.0);
    let [boxes, points] = [boxes, points].map(|value| network.op("Mul", &[&value, &one], &[]));
    let logit = (0.96_f32 / 0.04).ln();
    let objectness = of(&mut network, &[logit], -6.0);
    let scores = of(&mut network, &[9.0], -6.0);
    let [objectness, scores] = [objectness, scores].map(|value| network.op("Sigmoid", &[&value], &[]));
    let joined = network.concat(&[&boxes, &objectness, &points, &scores], 2);
    network.output("output", &joined, FLOAT, &[1, rows, 16]);
    network
}

fn classifier(mut network: Network, classes: u64, softmax: bool) -> Network {
    let scores = if softmax { network.softmax(&[1, classes]) } else { network.logits(&[1, classes]) };
    network.output("scores", &scores, FLOAT, &[1, classes]);
    network
}

/// Returns the bytes of a network by its name.
///
/// # Panics
/// If none has that name.
pub fn network(name: &str) -> Vec<u8> {
    let nanodet_cells = 52 * 52 + 26 * 26 + 13 * 13;
    let network = match name {
        "yolov5" => yolov5(3 * CELLS, 2),
        "yolov7-nms" => yolov7_nms(),
        "yolov8" => yolov8(SIDE, CELLS, 2, 0, 0),
        "yolov8-open" => yolov8(OPEN, CELLS, 2, 0, 0),
        "yolov8-pose" => yolov8(SIDE, CELLS, 1, 17, 0),
        "yolov8-seg" => yolov8(SIDE, CELLS, 2, 0, 32),
        "yolov8-logits" => {
            let mut network = picture(SIDE);
            let logits = network.logits(&[1, 6, CELLS]);
            network.output("output0", &logits, FLOAT, &[1, 6, CELLS]);
            network
        }
        "yolov8-fractions" => {
            let mut network = picture(SIDE);
            let scores = network.scores(&[1, 6, CELLS]);
            network.output("output0", &scores, FLOAT, &[1, 6, CELLS]);
            network
        }
        "ultralytics" => {
            let mut network = yolov8(SIDE, CELLS, 2, 0, 0);
            for (key, note) in [("author", "Ultralytics"), ("task", "detect"), ("names", "{0: 'cat', 1: 'dog'}")] {
                network.metadata(key, note);
            }
            network
        }
        "ultralytics-segment" => {
            let mut network = yolov8(SIDE, CELLS, 2, 0, 32);
            for (key, note) in [("author", "Ultralytics"), ("task", "segment"), ("names", "{0: 'cat', 1: 'dog'}")] {
                network.metadata(key, note);
            }
            network
        }
        "noisy-masks" => noisy_masks(),
        "movenet" => movenet(),
        "obb" => obb(),
        "semantic" => semantic(),
        "text-map" => text_map(),
        "pose" => pose(None),
        "pose-named" => {
            let names = (0..17).map(|point| format!("'joint {point}'")).collect::<Vec<_>>().join(", ");
            pose(Some(&format!("{{0: [{names}]}}")))
        }
        "tags" => {
            let mut network = picture(SIDE);
            let logits = network.fixed(&[1, 4], &TAGS);
            network.output("tags", &logits, FLOAT, &[1, 4]);
            network
        }
        "yolov10" => end_to_end(30, 64.0),
        "yolov10-fractions" => end_to_end(30, 1.0),
        "efficient-nms" => {
            let mut network = picture(SIDE);
            let count = network.labels(&[1, 1], 0.0);
            let ten = network.integers(&[10]);
            let count = network.op("Add", &[&count, &ten], &[]);
            network.output("num_dets", &count, INT64, &[1, 1]);
            labelled(&mut network, 30, ["det_boxes", "det_classes", "det_scores"], 3.0, &[1, 30]);
            network
        }
        "yolox" => yolox(SIDE, CELLS, false),
        "yolox-open" => yolox(OPEN, 80 * 80 + 40 * 40 + 20 * 20, false),
        "yolox-decoded" => yolox(SIDE, CELLS, true),
        "nanodet" => nanodet(SIDE, CELLS, 2, 10, true),
        "nanodet-open" => nanodet(OPEN, nanodet_cells, 2, 7, true),
        "nanodet-logits" => nanodet(SIDE, CELLS, 2, 7, false),
        "nanodet-plus" => nanodet(SIDE, CELLS + 1, 2, 7, true),
        "ssd" => ssd(84, "softmax", 3),
        "ssd-logits" => ssd(1200, "logits", 3),
        "ultraface" => ssd(4420, "softmax", 2),
        "torchvision" => {
            let mut network = picture(SIDE);
            labelled(&mut network, 30, ["boxes", "labels", "scores"], 3.0, &[30]);
            network
        }
        "tensorflow" => {
            let mut network = Network::with_picture(UINT8, &[1, OPEN, OPEN, 3]);
            let boxes = network.corners(30, 1.0);
            let labels = network.layer(&[1, 30], 1.0, 4.0);
            let labels = network.op("Floor", &[&labels], &[]);
            let scores = network.scores(&[1, 30]);
            let count = network.layer(&[1], 30.0, 30.0);
            network.output("detection_boxes", &boxes, FLOAT, &[1, 30, 4]);
            network.output("detection_classes", &labels, FLOAT, &[1, 30]);
            network.output("detection_scores", &scores, FLOAT, &[1, 30]);
            network.output("num_detections", &count, FLOAT, &[1]);
            network
        }
        "detr" => detr(100, 92, ["logits", "pred_boxes"], false),
        "rt-detr" => detr(300, 80, ["logits", "pred_boxes"], false),
        "detr-scores" => detr(300, 2, ["logits", "pred_boxes"], true),
        "rf-detr" => detr(300, 91, ["labels", "dets"], false),
        "d-fine" => deployed(&[1, 2]),
        "d-fine-flag" => {
            let mut network = deployed(&[1, 2]);
            network.input("flag", BOOL, &[1]);
            network
        }
        "centernet" => heat_map(2, &["hm", "wh", "reg"], false),
        "centernet-scores" => heat_map(2, &["hm", "wh", "reg"], true),
        "centerface" => heat_map(1, &["537", "538", "539", "540"], true),
        "blazeface" => blazeface(false),
        "blazeface-scores" => blazeface(true),
        "scrfd" | "yunet" | "retinaface" => faces(name),
        "yolov5-face" => yolov5_face(),
        "classifier" => classifier(picture(SIDE), 10, false),
        "classifier-softmax" => classifier(picture(SIDE), 30, true),
        "classifier-open" => classifier(picture(OPEN), 10, false),
        "grey" => classifier(Network::new(&[1, 1, 28, 28]), 10, false),
        "flattened" => {
            // A product over all pixels, which fixes their number.
            let mut network = picture(28);
            let row = network.integers(&[1, -1]);
            let pixels = network.op("Reshape", &["picture", &row], &[]);
            let weights = network.floats(&[3 * 28 * 28, 10], &vec![0.01; 3 * 28 * 28 * 10]);
            let scores = network.op("MatMul", &[&pixels, &weights], &[]);
            network.output("scores", &scores, FLOAT, &[1, 10]);
            network
        }
        "bytes" => classifier(Network::with_picture(UINT8, &[1, SIDE, SIDE, 3]), 10, false),
        "matte" => {
            let mut network = picture(SIDE);
            let matte = network.layer(&[1, 1, SIDE, SIDE], 0.0, 9.0);
            network.output("matte", &matte, FLOAT, &[1, 1, SIDE, SIDE]);
            network
        }
        "attributes" => attributes(GENDER),
        "attributes-other" => attributes([-GENDER[0], GENDER[1]]),
        "embedding" => {
            let mut network = picture(SIDE);
            let vector = network.fixed(&[1, EMBEDDING.len() as u64], &EMBEDDING);
            network.output("embedding", &vector, FLOAT, &[1, EMBEDDING.len() as u64]);
            network
        }
        "depth" => {
            let mut network = picture(SIDE);
            let numbers: Vec<f32> = (0..16 * 16).map(|pixel| depth_at(pixel % 16, pixel / 16)).collect();
            let map = network.fixed(&[1, 16, 16], &numbers);
            network.output("predicted_depth", &map, FLOAT, &[1, 16, 16]);
            network
        }
        "anchors" => {
            // Offsets that are never decoded.
            let mut network = picture(SIDE);
            let boxes = network.layer(&[1, 1200, 4], -3.0, 3.0);
            let scores = network.softmax(&[1, 1200, 3]);
            network.output("loc", &boxes, FLOAT, &[1, 1200, 4]);
            network.output("conf", &scores, FLOAT, &[1, 1200, 3]);
            network
        }
        name => panic!("no network is called {name}"),
    };
    network.bytes()
}
