//! Reads the declarations of an `.onnx` file, without a backend.
//!
//! Keeps only the graph's inputs and outputs, the operators' names and the metadata. Also visits everything else, and rejects
//! tensors whose data does not fit their dimensions, and deep nesting: backends only see files that passed. The format:
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Read};
use std::path::{Path, PathBuf};

use visiond_kernels::tensor::DType;

use super::schema::{dtype, element_name, number};
use super::tail::{self, OutputTail};
use super::tensor::{self, MAX_RANK, TensorError, fixed_count, message_of, shown, varint_count};
use super::wire::{Field, WireError, fields, last, text};
use crate::backend::{Dim, EngineError, ModelFile, TensorInfo, open_model_file};

/// The largest message of Protocol Buffers, which no reader of ONNX exceeds.
const MOST_BYTES: usize = (2 << 30) - 1;

/// Limits the nesting of graphs inside nodes (`If`, `Loop`) and of sequences. No exporter comes near this, and a recursive
/// parser needs a limit: rten has none, and its stack overflows.
const MAX_DEPTH: usize = 32;

/// Limits the names of inputs, outputs, dimensions and operators, which errors repeat. Exporters write some hundred bytes.
const MAX_NAME_BYTES: usize = 1000;

/// Limits the nodes that a model has once its functions are expanded: ONNX Runtime copies a function's body for each call, so
/// a small file can become an endless graph.
const MAX_EXPANDED: u64 = 100_000;

/// The facts that a model's file states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnnxFile {
    /// Its path, size and SHA-256.
    pub file: ModelFile,
    /// The inputs in the file's order, without those that are weights.
    pub inputs: Vec<TensorInfo>,
    /// The outputs in the file's order.
    pub outputs: Vec<TensorInfo>,
    /// The last operators before each output, by its name.
    pub tails: BTreeMap<String, OutputTail>,
    /// Inputs and outputs of a type that visiond cannot feed or read. Such a model can be inspected, but not loaded.
    pub foreign: Vec<ForeignValue>,
    /// The metadata that the exporter wrote, by key.
    pub metadata: BTreeMap<String, String>,
    /// The version of each operator set, by domain; the standard domain is "ai.onnx".
    pub opsets: BTreeMap<String, i64>,
    /// The version of the file format.
    pub ir_version: i64,
    /// The program that wrote the file, with its version; empty if the file does not name it.
    pub producer: String,
    /// How often each operator occurs, including subgraphs and functions; operators of other domains are named
    /// `domain.Operator`.
    pub operators: BTreeMap<String, usize>,
    /// Files beside the model that hold weights, named as in the model.
    pub external_files: BTreeMap<PathBuf, ExternalWeights>,
}

/// The weights that a model has in one other file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalWeights {
    /// The size in bytes that the file must have.
    pub end_bytes: u64,
    /// The tensor that ends there, as an error names it.
    pub tensor: String,
}

/// An input or output of a type that visiond cannot feed or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignValue {
    /// Whether it is an output.
    pub is_output: bool,
    /// The name in the graph.
    pub name: String,
    /// The kind found: "a tensor of f64", "a sequence".
    pub found: String,
}

impl OnnxFile {
    /// Reads and checks the file at `path`. It may contain operators that no backend supports.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        Ok(read_with_bytes(path)?.0)
    }
}

/// Does what [`OnnxFile::read`] does and also returns the file's bytes, so that a backend need not read the file again.
pub(super) fn read_with_bytes(path: &Path) -> Result<(OnnxFile, Vec<u8>), EngineError> {
    let bytes = read_bytes(path)?;
    let file = ModelFile::new(path, &bytes);
    Ok((parse(file, &bytes)?, bytes))
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, EngineError> {
    let unreadable = |error| EngineError::Unreadable(path.to_owned(), error);
    let (mut file, len) = open_model_file(path)?;
    if len > MOST_BYTES {
        let reason = "an ONNX file has at most 2 GiB; export it with its weights in a file beside it";
        return Err(unreadable(Error::new(ErrorKind::FileTooLarge, reason)));
    }
    let mut bytes = Vec::new();
    // One byte more than expected, so that reading to the end does not allocate again.
    bytes.try_reserve_exact(len + 1).map_err(|error| unreadable(error.into()))?;
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.is_empty() {
        return Err(EngineError::Empty(path.to_owned()));
    }
    Ok(bytes)
}

pub(super) fn parse(file: ModelFile, bytes: &[u8]) -> Result<OnnxFile, EngineError> {
    let path = file.path.clone();
    if let Some(found) = foreign_format(bytes) {
        return Err(EngineError::NotOnnx(path, found.to_owned()));
    }
    let unknown = "in an unknown format: export the model to ONNX";
    let not_onnx = || EngineError::NotOnnx(path.clone(), unknown.to_owned());
    // The first field shows whether this is a model at all; if a later one does not parse, the model is damaged.
    let first = fields(bytes).next().and_then(Result::ok).ok_or_else(not_onnx)?;
    if first.number > number::MODEL_LAST || (first.number == number::MODEL_IR_VERSION && first.number_value() == 0) {
        return Err(not_onnx());
    }
    let mut model = OnnxFile {
        file,
        inputs: Vec::new(),
        outputs: Vec::new(),
        tails: BTreeMap::new(),
        foreign: Vec::new(),
        metadata: BTreeMap::new(),
        opsets: BTreeMap::new(),
        ir_version: 0,
        producer: String::new(),
        operators: BTreeMap::new(),
        external_files: BTreeMap::new(),
    };
    let mut found_graph = false;
    model.model(bytes, &mut found_graph).map_err(|error| {
        let size_bytes = model.file.size_bytes;
        match error {
            // Every writer puts the format's version first.
            _ if first.number != number::MODEL_IR_VERSION => not_onnx(),
            ParseError::Wire(WireError::Truncated) => EngineError::Truncated(path.clone(), size_bytes),
            ParseError::Wire(WireError::Malformed) => malformed(&path, "the file is damaged; copy or export it again"),
            ParseError::Depth => malformed(
                &path,
                "its graphs, types or functions are nested too deeply to be read safely; export it with fewer levels",
            ),
            ParseError::Refused { what, reason } => {
                let what = if what.is_empty() { "a tensor without a name" } else { &what };
                malformed(&path, &format!("{what} {reason}; copy or export it again"))
            }
        }
    })?;
    if !found_graph && model.opsets.is_empty() {
        return Err(not_onnx());
    }
    if !found_graph || model.opsets.is_empty() {
        // Writers put the operator sets after the graph: one without the other is a file that was truncated between them.
        return Err(EngineError::Truncated(path, model.file.size_bytes));
    }
    if model.outputs.is_empty() && !model.foreign.iter().any(|value| value.is_output) {
        return Err(malformed(&path, "it has no output; export it again"));
    }
    model.tails = tail::tails(bytes, &model.outputs);
    Ok(model)
}

fn malformed(path: &Path, reason: &str) -> EngineError {
    EngineError::Malformed(path.to_owned(), reason.to_owned())
}

/// Why parsing stopped.
enum ParseError {
    Wire(WireError),
    Depth,
    /// The rejected object (empty: a tensor without a name), and the reason, as a phrase that follows the name.
    Refused {
        what: String,
        reason: String,
    },
}

impl ParseError {
    fn of_tensor(error: TensorError, name: &str) -> Self {
        match error {
            TensorError::Wire(error) => Self::Wire(error),
            TensorError::Refused(reason) => {
                let what = if name.is_empty() { String::new() } else { format!("tensor `{}`", shown(name)) };
                Self::Refused { what, reason }
            }
        }
    }

    /// Describes the location of a tensor without a name.
    fn inside(self, place: impl FnOnce() -> String) -> Self {
        match self {
            Self::Refused { what, reason } if what.is_empty() => Self::Refused { what: place(), reason },
            other => other,
        }
    }
}

impl From<WireError> for ParseError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl OnnxFile {
    fn model(&mut self, bytes: &[u8], found_graph: &mut bool) -> Result<(), ParseError> {
        let mut functions = Functions::new();
        for field in fields(bytes) {
            let field = field?;
            match field.number {
                number::MODEL_IR_VERSION => self.ir_version = field.number_value(),
                number::MODEL_GRAPH => {
                    once(found_graph)?;
                    self.outer_graph(field.bytes())?;
                }
                // No backend runs these graphs, but they may read them.
                number::MODEL_TRAINING_INFO => {
                    for field in fields(field.bytes()) {
                        let field = field?;
                        if matches!(field.number, number::TRAINING_INITIALIZATION | number::TRAINING_ALGORITHM) {
                            self.graph(field.bytes(), 0, None)?;
                        }
                    }
                }
                number::MODEL_FUNCTIONS => {
                    let outside = std::mem::take(&mut self.operators);
                    self.function(field.bytes())?;
                    let inside = std::mem::replace(&mut self.operators, outside);
                    let name = text(field.bytes(), number::FUNCTION_NAME)?;
                    let name = qualified(&text(field.bytes(), number::FUNCTION_DOMAIN)?, &name);
                    add(functions.entry(name).or_default(), &inside);
                }
                number::MODEL_OPSET_IMPORT => {
                    let domain = text(field.bytes(), number::FIRST)?;
                    let domain = if domain.is_empty() { "ai.onnx".to_owned() } else { domain };
                    let version = last(field.bytes(), number::SECOND)?.map_or(0, |field| field.number_value());
                    self.opsets.insert(domain, version);
                }
                number::MODEL_METADATA => {
                    let (key, value) = entry(field.bytes())?;
                    self.metadata.insert(key, value);
                }
                _ => {}
            }
        }
        if expanded(&self.operators, &functions, &mut BTreeMap::new(), 0)? > MAX_EXPANDED {
            let reason = format!("expand to more than {MAX_EXPANDED} nodes");
            return Err(ParseError::Refused { what: "its functions".to_owned(), reason });
        }
        functions.values().for_each(|inside| add(&mut self.operators, inside));
        let producer = [number::MODEL_PRODUCER_NAME, number::MODEL_PRODUCER_VERSION].map(|part| text(bytes, part));
        let [name, version] = producer;
        self.producer = format!("{} {}", name?, version?).trim().to_owned();
        Ok(())
    }

    fn outer_graph(&mut self, graph: &[u8]) -> Result<(), ParseError> {
        let mut weights = BTreeSet::new();
        self.graph(graph, 0, Some(&mut weights))?;
        for field in fields(graph) {
            let field = field?;
            let is_output = match field.number {
                number::GRAPH_INPUT => false,
                number::GRAPH_OUTPUT => true,
                _ => continue,
            };
            let (name, value) = value_info(field.bytes())?;
            // Before version 4 of the format, weights also had to be listed as inputs.
            if !is_output && weights.contains(&name) {
                continue;
            }
            match value {
                Ok((dtype, shape)) if is_output => self.outputs.push(TensorInfo { name, dtype, shape }),
                Ok((dtype, shape)) => self.inputs.push(TensorInfo { name, dtype, shape }),
                Err(found) => self.foreign.push(ForeignValue { is_output, name, found }),
            }
        }
        Ok(())
    }

    /// Counts operators, checks tensors and collects external files; collects the names of weights if `weights` is given.
    fn graph(
        &mut self,
        graph: &[u8],
        depth: usize,
        mut weights: Option<&mut BTreeSet<String>>,
    ) -> Result<(), ParseError> {
        if depth > MAX_DEPTH {
            return Err(ParseError::Depth);
        }
        for field in fields(graph) {
            let field = field?;
            let name = match field.number {
                number::GRAPH_NODE => {
                    self.node(field.bytes(), depth)?;
                    continue;
                }
                number::GRAPH_INPUT | number::GRAPH_OUTPUT | number::GRAPH_VALUE_INFO => {
                    check_value(field.bytes())?;
                    continue;
                }
                number::GRAPH_INITIALIZER => self.tensor(message_of(&field)?)?,
                number::GRAPH_SPARSE_INITIALIZER => self.sparse_tensor(message_of(&field)?)?,
                _ => continue,
            };
            weights.as_mut().map(|weights| weights.insert(name));
        }
        Ok(())
    }

    fn function(&mut self, function: &[u8]) -> Result<(), ParseError> {
        for field in fields(function) {
            let field = field?;
            match field.number {
                number::FUNCTION_NODE => self.node(field.bytes(), 0)?,
                number::FUNCTION_ATTRIBUTE => self.attribute(field.bytes(), 0)?,
                number::FUNCTION_VALUE_INFO => check_value(field.bytes())?,
                _ => {}
            }
        }
        Ok(())
    }

    fn node(&mut self, node: &[u8], depth: usize) -> Result<(), ParseError> {
        for field in fields(node) {
            let field = field?;
            if field.number == number::NODE_ATTRIBUTE {
                self.attribute(field.bytes(), depth).map_err(|error| {
                    let name =
                        |message, number| text(message, number).map_or_else(|_| String::new(), |name| shown(&name));
                    let attribute = name(field.bytes(), number::ATTRIBUTE_NAME);
                    let (node, operator) = (name(node, number::NODE_NAME), name(node, number::NODE_OP_TYPE));
                    error.inside(|| format!("attribute `{attribute}` of node `{node}` ({operator})"))
                })?;
            }
        }
        let (domain, operator) = (text(node, number::NODE_DOMAIN)?, text(node, number::NODE_OP_TYPE)?);
        check_name(domain.as_bytes(), "the domain of an operator")?;
        check_name(operator.as_bytes(), "an operator")?;
        let operator = qualified(&domain, &operator);
        *self.operators.entry(operator).or_default() += 1;
        Ok(())
    }

    fn attribute(&mut self, attribute: &[u8], depth: usize) -> Result<(), ParseError> {
        let [mut tensor, mut graph, mut sparse, mut declared] = [false; 4];
        for field in fields(attribute) {
            let field = field?;
            match field.number {
                number::ATTRIBUTE_TENSOR => once(&mut tensor)?,
                number::ATTRIBUTE_GRAPH => once(&mut graph)?,
                number::ATTRIBUTE_SPARSE_TENSOR => once(&mut sparse)?,
                number::ATTRIBUTE_TYPE_PROTO => once(&mut declared)?,
                _ => {}
            }
            match field.number {
                number::ATTRIBUTE_FLOAT | number::ATTRIBUTE_FLOATS => drop(fixed_count(&field, 4)?),
                number::ATTRIBUTE_INT | number::ATTRIBUTE_INTS | number::ATTRIBUTE_TYPE => drop(varint_count(&field)?),
                number::ATTRIBUTE_STRING | number::ATTRIBUTE_STRINGS => drop(message_of(&field)?),
                number::ATTRIBUTE_TENSOR | number::ATTRIBUTE_TENSORS => drop(self.tensor(message_of(&field)?)?),
                number::ATTRIBUTE_SPARSE_TENSOR | number::ATTRIBUTE_SPARSE_TENSORS => {
                    self.sparse_tensor(message_of(&field)?)?;
                }
                number::ATTRIBUTE_GRAPH | number::ATTRIBUTE_GRAPHS => {
                    self.graph(message_of(&field)?, depth + 1, None)?;
                }
                number::ATTRIBUTE_TYPE_PROTO | number::ATTRIBUTE_TYPE_PROTOS => check_type(message_of(&field)?, 0)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks a tensor, notes the file that its data is in, and returns its name.
    fn tensor(&mut self, message: &[u8]) -> Result<String, ParseError> {
        let name = text(message, number::TENSOR_NAME)?;
        let tensor = tensor::check(message).map_err(|error| ParseError::of_tensor(error, &name))?;
        if let Some((path, end_bytes)) = tensor.external {
            let weights = self.external_files.entry(path).or_default();
            if end_bytes > weights.end_bytes {
                *weights = ExternalWeights { end_bytes, tensor: shown(&name) };
            }
        }
        Ok(name)
    }

    /// Does the same for a sparse tensor, which is named after its values.
    fn sparse_tensor(&mut self, message: &[u8]) -> Result<String, ParseError> {
        let mut name = String::new();
        for field in fields(message) {
            let field = field?;
            match field.number {
                number::SPARSE_VALUES => name = self.tensor(message_of(&field)?)?,
                number::SPARSE_INDICES => drop(self.tensor(message_of(&field)?)?),
                _ => {}
            }
        }
        tensor::check_sparse(message).map_err(|error| ParseError::of_tensor(error, &name))?;
        Ok(name)
    }
}

/// How often each operator occurs in each function, by the name of the function.
type Functions = BTreeMap<String, BTreeMap<String, usize>>;

fn add(sum: &mut BTreeMap<String, usize>, operators: &BTreeMap<String, usize>) {
    for (operator, count) in operators {
        *sum.entry(operator.clone()).or_default() += count;
    }
}

/// Returns how many nodes the functions called by `operators` expand to. `known` holds the functions that were already
/// counted.
fn expanded<'a>(
    operators: &'a BTreeMap<String, usize>,
    functions: &'a Functions,
    known: &mut BTreeMap<&'a str, u64>,
    depth: usize,
) -> Result<u64, ParseError> {
    if depth > MAX_DEPTH {
        // A function that calls itself also ends here.
        return Err(ParseError::Depth);
    }
    let mut nodes = 0_u64;
    for (operator, &count) in operators {
        let Some(inside) = functions.get(operator) else { continue };
        let each = match known.get(operator.as_str()) {
            Some(&each) => each,
            None => {
                let own = inside.values().sum::<usize>() as u64;
                let each = own.saturating_add(expanded(inside, functions, known, depth + 1)?);
                known.insert(operator, each);
                each
            }
        };
        nodes = nodes.saturating_add(each.saturating_mul(count as u64));
    }
    Ok(nodes)
}

/// Notes that a message occurred, and rejects a second occurrence: one reader would merge the two, another would use the
/// last.
fn once(found: &mut bool) -> Result<(), WireError> {
    if std::mem::replace(found, true) { Err(WireError::Malformed) } else { Ok(()) }
}

/// Rejects the name of `what` if it is too long for an error message.
fn check_name(name: &[u8], what: &str) -> Result<(), ParseError> {
    if name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    let reason = format!("has a name of {} bytes, more than {MAX_NAME_BYTES}", name.len());
    Err(ParseError::Refused { what: what.to_owned(), reason })
}

/// Checks the name and the type in a `ValueInfoProto`.
fn check_value(value: &[u8]) -> Result<(), ParseError> {
    for field in fields(value) {
        let field = field?;
        if field.number == number::VALUE_NAME {
            check_name(field.bytes(), "a value")?;
        }
        if field.number == number::VALUE_TYPE {
            let name = || text(value, number::VALUE_NAME).map_or_else(|_| String::new(), |name| shown(&name));
            check_type(field.bytes(), 0).map_err(|error| error.inside(|| format!("the value `{}`", name())))?;
        }
    }
    Ok(())
}

/// Checks how deep types are nested in a `TypeProto`, and the number of their dimensions.
fn check_type(message: &[u8], depth: usize) -> Result<(), ParseError> {
    if depth > MAX_DEPTH {
        return Err(ParseError::Depth);
    }
    for field in fields(message) {
        let field = field?;
        let (wanted, is_shape) = match field.number {
            number::TYPE_TENSOR | number::TYPE_SPARSE => (number::TENSOR_TYPE_SHAPE, true),
            number::TYPE_SEQUENCE | number::TYPE_OPTIONAL => (number::TYPE_ELEMENT, false),
            number::TYPE_MAP => (number::TYPE_MAP_VALUE, false),
            _ => continue,
        };
        for inner in fields(field.bytes()) {
            let inner = inner?;
            if inner.number != wanted {
                continue;
            }
            if !is_shape {
                check_type(inner.bytes(), depth + 1)?;
                continue;
            }
            if fields(inner.bytes()).filter_map(Result::ok).count() > MAX_RANK {
                let reason = format!("has more than {MAX_RANK} dimensions");
                return Err(ParseError::Refused { what: String::new(), reason });
            }
            for dim in fields(inner.bytes()).filter_map(Result::ok) {
                for field in
                    fields(dim.bytes()).filter_map(Result::ok).filter(|field| field.number == number::DIM_PARAM)
                {
                    check_name(field.bytes(), "a dimension")?;
                }
            }
        }
    }
    Ok(())
}

/// Returns `Operator` for the standard domain and `domain.Operator` for others.
fn qualified(domain: &str, operator: &str) -> String {
    if domain.is_empty() || domain == "ai.onnx" { operator.to_owned() } else { format!("{domain}.{operator}") }
}

/// Returns name and operator of each node in the main graph.
fn nodes(bytes: &[u8]) -> impl Iterator<Item = (String, String)> {
    let nodes = parts(bytes, number::MODEL_GRAPH).flat_map(|graph| parts(graph, number::GRAPH_NODE));
    let first = |node, wanted| parts(node, wanted).next().map(|part| String::from_utf8_lossy(part).into_owned());
    let part = move |node, wanted| first(node, wanted).unwrap_or_default();
    nodes.map(move |node| (part(node, number::NODE_NAME), part(node, number::NODE_OP_TYPE)))
}

/// Returns the bytes of each field `wanted`, up to the first error.
fn parts(message: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    let fields = fields(message).map_while(Result::ok).filter(move |field| field.number == wanted);
    fields.map(|field| field.bytes())
}

/// Returns the name of the first node in the main graph that uses `operator`, if the node has a name.
pub(super) fn node_using(bytes: &[u8], operator: &str) -> Option<String> {
    nodes(bytes).find(|(_, used)| used == operator).map(|(name, _)| name).filter(|name| !name.is_empty())
}

/// Returns the name and the operator of the node at `index` in the main graph.
pub fn node_at(bytes: &[u8], index: usize) -> Option<(String, String)> {
    nodes(bytes).nth(index)
}

/// Reads a `StringStringEntryProto`.
fn entry(message: &[u8]) -> Result<(String, String), WireError> {
    Ok((text(message, number::FIRST)?, text(message, number::SECOND)?))
}

/// A tensor's element type and shape, or a description of a value that is not a tensor.
type ValueType = Result<(DType, Option<Vec<Dim>>), String>;

/// Reads a `ValueInfoProto`.
pub(super) fn value_info(message: &[u8]) -> Result<(String, ValueType), WireError> {
    let mut value = Err("without a declared type".to_owned());
    // Protobuf merges fields that are repeated.
    for declared in fields(message) {
        let declared = declared?;
        if declared.number != number::VALUE_TYPE {
            continue;
        }
        for field in fields(declared.bytes()) {
            let field = field?;
            value = match field.number {
                number::TYPE_TENSOR => tensor_type(field.bytes())?,
                number::TYPE_SEQUENCE => Err("a sequence".to_owned()),
                number::TYPE_MAP => Err("a map".to_owned()),
                number::TYPE_SPARSE => Err("a sparse tensor".to_owned()),
                number::TYPE_OPTIONAL => Err("an optional value".to_owned()),
                _ => continue,
            };
        }
    }
    Ok((text(message, number::VALUE_NAME)?, value))
}

fn tensor_type(message: &[u8]) -> Result<ValueType, WireError> {
    let element = last(message, number::TENSOR_TYPE_ELEMENT)?.map_or(0, |field| field.number_value());
    let shape = last(message, number::TENSOR_TYPE_SHAPE)?.map(|shape| dims(shape.bytes())).transpose()?;
    Ok(match dtype(element) {
        Some(dtype) => Ok((dtype, shape)),
        None => Err(format!("a tensor of {}", element_name(element))),
    })
}

fn dims(message: &[u8]) -> Result<Vec<Dim>, WireError> {
    let dim = |field: Field<'_>| {
        let mut dim = Dim::Dynamic(String::new());
        for field in fields(field.bytes()) {
            let field = field?;
            match field.number {
                // Some exporters write -1 or 0 for an unknown size.
                number::DIM_VALUE => {
                    if let Ok(size @ 1..) = usize::try_from(field.number_value()) {
                        dim = Dim::Fixed(size);
                    }
                }
                number::DIM_PARAM => dim = Dim::Dynamic(field.text()),
                _ => {}
            }
        }
        Ok(dim)
    };
    let mut shape = Vec::new();
    for field in fields(message) {
        let field = field?;
        if field.number == number::SHAPE_DIM {
            shape.push(dim(field)?);
        }
    }
    Ok(shape)
}

/// Returns what the file is and the remedy, if it is a well-known format other than ONNX.
pub(super) fn foreign_format(bytes: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 14] = [
        (b"\x89PNG", "a PNG picture: see whether the model and the picture are swapped"),
        (b"\xff\xd8\xff", "a JPEG picture: see whether the model and the picture are swapped"),
        (b"GIF8", "a GIF picture: see whether the model and the picture are swapped"),
        (b"RIFF", "a WebP picture or an AVI video: see whether the model and the source are swapped"),
        (b"PK\x03\x04", "a ZIP archive, perhaps a PyTorch model: unpack it, or export the model to ONNX"),
        (b"\x1f\x8b", "a gzip archive: unpack it"),
        (
            b"\x28\xb5\x2f\xfd",
            "a zstd archive: if it is a bundle, install it with `visiond bundle install`, and write `bundle = \"NAME\"` in place of \
             `path`; otherwise unpack it",
        ),
        (b"ftrt", "a TensorRT engine: name the .onnx file that it was built from"),
        (b"ptrt", "a TensorRT engine: name the .onnx file that it was built from"),
        (b"vtrt", "a TensorRT engine: name the .onnx file that it was built from"),
        (b"\x7fELF", "a program or library: name the .onnx file"),
        (b"version https://git-lfs", "a Git LFS pointer to the model: run `git lfs pull`"),
        (b"<", "a web page or XML: the download returned an error page; open its address in a browser"),
        (b"\x80\x02", "a Python pickle, perhaps a PyTorch model: export the model to ONNX"),
    ];
    if let Some((_, found)) = MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(found);
    }
    if bytes.get(4..8) == Some(b"TFL3") {
        return Some("a TensorFlow Lite model: export the model to ONNX");
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return Some("an MP4 video: see whether the model and the source are swapped");
    }
    let start = &bytes[..bytes.len().min(256)];
    let printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
    // An ONNX file starts with byte 8 (a number field), which is not printable.
    (start.iter().filter(|byte| printable(byte)).count() == start.len())
        .then_some("plain text: name the .onnx file, or download it again")
}
