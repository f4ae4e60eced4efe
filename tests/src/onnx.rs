//! ONNX models that are well-formed but malicious, written field by field: a classifier of three classes for pictures of 32 x
//! 32, with something added.

use std::path::{Path, PathBuf};

/// The card of every model here.
const CARD: &str = "name = \"hostile\"\n[head]\nfamily = \"classifier\"\n[classes]\nnames = [\"a\", \"b\", \"c\"]\n";

/// Element types of ONNX.
pub(crate) const FLOAT: u64 = 1;
pub(crate) const INT64: u64 = 7;
pub(crate) const BOOL: u64 = 9;

/// The malicious part of a model.
#[derive(Debug, Clone, Copy)]
pub enum Model {
    /// What it says.
    Good,
    /// Declares a value whose type is a sequence of a sequence and so on, nested this deep.
    Nested(usize),
    /// Makes a tensor with this number of f32, which is known only at run time.
    Filled(f32),
    /// The same by `Expand`.
    Expanded(f32),
    /// Multiplies every number of the image by every other, so that memory grows with the fourth power of its side.
    Squared,
    /// Never ends.
    Loop,
}

/// Writes a model and its card into `folder`; returns the model's path.
pub fn write(folder: &Path, name: &str, model: Model) -> PathBuf {
    let path = folder.join(name).with_extension("onnx");
    std::fs::write(&path, bytes(model)).expect("the model is written");
    std::fs::write(path.with_extension("toml"), CARD).expect("its card is written");
    path
}

/// Returns the bytes of a model.
pub fn bytes(model: Model) -> Vec<u8> {
    // The mean of each colour, and a term that depends on the malicious part.
    let mut graph = vec![node("GlobalAveragePool", &["images"], "means", &[])];
    graph.push(node("Flatten", &["means"], "scores", &[]));
    // A number that is zero, but only at run time: the size of a tensor may depend on it.
    graph.push(node("ReduceMax", &["images"], "most", &[int("keepdims", 0)]));
    graph.push(node("Mul", &["most", "zero"], "nothing", &[]));
    let size = |graph: &mut Vec<Vec<u8>>| {
        graph.push(node("Add", &["nothing", "count"], "large", &[]));
        graph.push(node("Cast", &["large"], "large_int", &[int("to", INT64)]));
        graph.push(node("Reshape", &["large_int", "one_dim"], "large_shape", &[]));
    };
    let mut count = 1.0;
    match model {
        Model::Good | Model::Nested(_) => graph.push(node("Identity", &["nothing"], "extra", &[])),
        Model::Filled(elements) => {
            count = elements;
            size(&mut graph);
            graph.push(node("ConstantOfShape", &["large_shape"], "many", &[]));
            graph.push(node("Gather", &["many", "first"], "extra", &[]));
        }
        Model::Expanded(elements) => {
            count = elements;
            size(&mut graph);
            graph.push(node("Expand", &["nothing", "large_shape"], "many", &[]));
            graph.push(node("Gather", &["many", "first"], "extra", &[]));
        }
        Model::Squared => {
            graph.push(node("Reshape", &["images", "column_dims"], "column", &[]));
            graph.push(node("Reshape", &["images", "row_dims"], "row", &[]));
            graph.push(node("MatMul", &["column", "row"], "products", &[]));
            graph.push(node("ReduceMax", &["products"], "most_product", &[int("keepdims", 0)]));
            graph.push(node("Mul", &["most_product", "zero"], "extra", &[]));
        }
        Model::Loop => graph.push(node("Loop", &["", "yes", "nothing"], "extra", &[endless()])),
    }
    graph.push(node("Add", &["scores", "extra"], "output", &[]));
    let mut graph: Vec<u8> = graph.iter().flat_map(|node| field(1, node)).collect();
    graph.extend(text(2, "hostile"));
    let initializers = [
        tensor("zero", FLOAT, &[], &0_f32.to_le_bytes()),
        tensor("count", FLOAT, &[], &count.to_le_bytes()),
        tensor("one_dim", INT64, &[1], &1_i64.to_le_bytes()),
        tensor("column_dims", INT64, &[2], &[-1_i64, 1].map(i64::to_le_bytes).concat()),
        tensor("row_dims", INT64, &[2], &[1_i64, -1].map(i64::to_le_bytes).concat()),
        tensor("first", INT64, &[], &0_i64.to_le_bytes()),
        tensor("yes", BOOL, &[], &[1]),
    ];
    graph.extend(initializers.iter().flat_map(|tensor| field(5, tensor)));
    graph.extend(field(11, &value("images", FLOAT, &[1, 3, 32, 32])));
    graph.extend(field(12, &value("output", FLOAT, &[1, 3])));
    if let Model::Nested(levels) = model {
        // TypeProto { tensor_type }, then TypeProto { sequence_type { elem_type } } around it, level by level.
        let mut kind = field(1, &number(1, FLOAT));
        for _ in 0..levels {
            kind = field(4, &field(1, &kind));
        }
        graph.extend(field(13, &[text(1, "means"), field(2, &kind)].concat()));
    }
    let opset = [text(1, ""), number(2, 13)].concat();
    [number(1, 8), field(7, &graph), field(8, &opset)].concat()
}

/// Returns a classifier of five classes for `batch` images, with six layers of convolutions whose weights mean nothing.
pub fn convolutions(batch: u64, side: u64) -> Vec<u8> {
    let (mut nodes, mut tensors) = (Vec::new(), Vec::new());
    let weights = |count: u64, inputs: u64| -> Vec<u8> {
        // The golden ratio spreads them evenly; the sum over a layer's inputs keeps its size.
        let scale = 1.0 / (inputs as f32).sqrt();
        (0..count).flat_map(|index| (((index as f32 * 0.618_034).fract() - 0.5) * scale).to_le_bytes()).collect()
    };
    let (mut input, mut channels) = ("images".to_owned(), 3);
    for (layer, (width, stride)) in [(32, 2), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2)].into_iter().enumerate() {
        let [kernel, sum, output] = ["kernel", "sum", "layer"].map(|name| format!("{name}{layer}"));
        let shape = [width, channels, 3, 3];
        tensors.push(tensor(&kernel, FLOAT, &shape, &weights(shape.iter().product(), 9 * channels)));
        let attributes = [ints("kernel_shape", &[3, 3]), ints("pads", &[1; 4]), ints("strides", &[stride; 2])];
        nodes.push(node("Conv", &[&input, &kernel], &sum, &attributes));
        nodes.push(node("Relu", &[&sum], &output, &[]));
        (input, channels) = (output, width);
    }
    tensors.push(tensor("classes", FLOAT, &[channels, 5], &weights(channels * 5, channels)));
    nodes.push(node("GlobalAveragePool", &[&input], "means", &[]));
    nodes.push(node("Flatten", &["means"], "features", &[]));
    nodes.push(node("MatMul", &["features", "classes"], "output", &[]));
    let mut graph: Vec<u8> = nodes.iter().flat_map(|node| field(1, node)).collect();
    graph.extend(text(2, "convolutions"));
    graph.extend(tensors.iter().flat_map(|tensor| field(5, tensor)));
    graph.extend(field(11, &value("images", FLOAT, &[batch, 3, side, side])));
    graph.extend(field(12, &value("output", FLOAT, &[batch, 5])));
    let opset = [text(1, ""), number(2, 13)].concat();
    [number(1, 8), field(7, &graph), field(8, &opset)].concat()
}

/// What a model of [`of_crop`] returns.
#[derive(Debug, Clone, Copy)]
pub enum CropNumbers {
    /// The mean of each channel: a row of three numbers.
    Means,
    /// The image itself: three maps.
    Image,
}

/// Returns a model whose numbers are those of its square image, for any number of images.
pub fn of_crop(numbers: CropNumbers, side: u64) -> Vec<u8> {
    let (nodes, dims) = match numbers {
        CropNumbers::Means => {
            let means = node("GlobalAveragePool", &["images"], "means", &[]);
            (vec![means, node("Flatten", &["means"], "output", &[])], vec![0, 3])
        }
        CropNumbers::Image => (vec![node("Identity", &["images"], "output", &[])], vec![0, 3, side, side]),
    };
    let mut graph: Vec<u8> = nodes.iter().flat_map(|node| field(1, node)).collect();
    graph.extend(text(2, "crop"));
    graph.extend(field(11, &value("images", FLOAT, &[0, 3, side, side])));
    graph.extend(field(12, &value("output", FLOAT, &dims)));
    let opset = [text(1, ""), number(2, 13)].concat();
    [number(1, 8), field(7, &graph), field(8, &opset)].concat()
}

/// Returns a model that returns `rows` of `width` numbers for a white image, and rows of zeros for a grey one.
pub fn late_rows(rows: &[f32], width: u64) -> Vec<u8> {
    let nodes = [
        node("ReduceMean", &["images"], "mean", &[int("keepdims", 0)]),
        node("Sub", &["mean", "bright"], "above", &[]),
        node("Mul", &["above", "five"], "steep", &[]),
        node("Relu", &["steep"], "share", &[]),
        node("Mul", &["share", "rows"], "output", &[]),
    ];
    let bytes: Vec<u8> = rows.iter().flat_map(|number| number.to_le_bytes()).collect();
    let shape = [rows.len() as u64 / width, width];
    let mut graph: Vec<u8> = nodes.iter().flat_map(|node| field(1, node)).collect();
    graph.extend(text(2, "late"));
    let initializers = [
        tensor("bright", FLOAT, &[], &0.8_f32.to_le_bytes()),
        tensor("five", FLOAT, &[], &5_f32.to_le_bytes()),
        tensor("rows", FLOAT, &shape, &bytes),
    ];
    graph.extend(initializers.iter().flat_map(|tensor| field(5, tensor)));
    graph.extend(field(11, &value("images", FLOAT, &[1, 3, 640, 640])));
    graph.extend(field(12, &value("output", FLOAT, &shape)));
    let opset = [text(1, ""), number(2, 13)].concat();
    [number(1, 8), field(7, &graph), field(8, &opset)].concat()
}

/// The body of a loop whose condition stays true.
fn endless() -> Vec<u8> {
    let nodes = [node("Identity", &["go"], "go_on", &[]), node("Identity", &["state"], "next", &[])];
    let mut graph: Vec<u8> = nodes.iter().flat_map(|node| field(1, node)).collect();
    graph.extend(text(2, "body"));
    for (name, kind) in [("round", INT64), ("go", BOOL), ("state", FLOAT)] {
        graph.extend(field(11, &value(name, kind, &[])));
    }
    for (name, kind) in [("go_on", BOOL), ("next", FLOAT)] {
        graph.extend(field(12, &value(name, kind, &[])));
    }
    [text(1, "body"), field(6, &graph), number(20, 5)].concat()
}

/// A `NodeProto` with one output.
pub(crate) fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes: Vec<u8> = inputs.iter().flat_map(|input| text(1, input)).collect();
    bytes.extend([text(2, output), text(3, output), text(4, operator)].concat());
    bytes.extend(attributes.iter().flat_map(|attribute| field(5, attribute)));
    bytes
}

/// An `AttributeProto` with a whole number.
pub(crate) fn int(name: &str, value: u64) -> Vec<u8> {
    [text(1, name), number(3, value), number(20, 2)].concat()
}

/// An `AttributeProto` with whole numbers.
fn ints(name: &str, values: &[u64]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|value| number(8, *value)).collect();
    [text(1, name), values, number(20, 7)].concat()
}

/// A `TensorProto`.
pub(crate) fn tensor(name: &str, kind: u64, dims: &[u64], data: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = dims.iter().flat_map(|size| number(1, *size)).collect();
    bytes.extend([number(2, kind), text(8, name), field(9, data)].concat());
    bytes
}

/// A `ValueInfoProto` of a tensor.
pub(crate) fn value(name: &str, kind: u64, dims: &[u64]) -> Vec<u8> {
    // A size of 0 is one that the model leaves open.
    let dim = |size: u64| if size == 0 { Vec::new() } else { number(1, size) };
    let shape: Vec<u8> = dims.iter().flat_map(|size| field(1, &dim(*size))).collect();
    let tensor = [number(1, kind), field(2, &shape)].concat();
    [text(1, name), field(2, &field(1, &tensor))].concat()
}

/// The same with open dimensions that have names.
pub(crate) fn named_value(name: &str, kind: u64, names: &[&str]) -> Vec<u8> {
    let shape: Vec<u8> = names.iter().flat_map(|name| field(1, &text(2, name))).collect();
    let tensor = [number(1, kind), field(2, &shape)].concat();
    [text(1, name), field(2, &field(1, &tensor))].concat()
}

pub(crate) fn text(number: u64, text: &str) -> Vec<u8> {
    field(number, text.as_bytes())
}

/// A field with a length.
pub(crate) fn field(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// A field with a number.
pub(crate) fn number(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

pub(crate) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
