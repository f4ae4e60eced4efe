//! Reads what an `.onnx` file says about itself, without a backend.
//!
//! Keeps only the graph's inputs and outputs, the operators' names and the metadata; skips the weights. The format:
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use visiond_kernels::tensor::DType;

use super::schema::{dtype, element_name, number};
use super::sniff::foreign_format;
use super::wire::{Field, WireError, fields};
use crate::backend::{Dim, EngineError, ModelFile, TensorInfo, open_model_file};

/// Limits graphs inside nodes (`If`, `Loop`) inside graphs. No exporter comes near this, and a recursive parser needs a limit.
const MAX_DEPTH: usize = 32;

/// What a model's file says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnnxFile {
    /// Its path, size and SHA-256.
    pub file: ModelFile,
    /// The inputs in the file's order, without those that are weights.
    pub inputs: Vec<TensorInfo>,
    /// The outputs in the file's order.
    pub outputs: Vec<TensorInfo>,
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
    /// How often each operator occurs, including subgraphs; operators of other domains are named `domain.Operator`.
    pub operators: BTreeMap<String, usize>,
    /// Files beside the model that hold weights, named as in the model.
    pub external_files: BTreeSet<PathBuf>,
}

/// An input or output of a type that visiond cannot feed or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignValue {
    /// Whether it is an output.
    pub is_output: bool,
    /// Its name.
    pub name: String,
    /// What it is: "a tensor of f64", "a sequence".
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
    // The first field shows whether this is a model at all; what does not parse after it is a damaged model.
    let first = fields(bytes).next().and_then(Result::ok).ok_or_else(not_onnx)?;
    if first.number > number::MODEL_LAST || (first.number == number::MODEL_IR_VERSION && first.number_value() == 0) {
        return Err(not_onnx());
    }
    let mut model = OnnxFile {
        file,
        inputs: Vec::new(),
        outputs: Vec::new(),
        foreign: Vec::new(),
        metadata: BTreeMap::new(),
        opsets: BTreeMap::new(),
        ir_version: 0,
        producer: String::new(),
        operators: BTreeMap::new(),
        external_files: BTreeSet::new(),
    };
    let mut found_graph = false;
    model.model(bytes, &mut found_graph).map_err(|error| {
        let size_bytes = model.file.size_bytes;
        match error {
            // Every writer puts the format's version first.
            _ if first.number != number::MODEL_IR_VERSION => not_onnx(),
            ParseError::Wire(WireError::Truncated) => EngineError::Truncated(path.clone(), size_bytes),
            ParseError::Wire(WireError::Malformed) => {
                malformed(&path, "its fields make no sense; copy or export it again")
            }
            ParseError::Depth => malformed(&path, "its graphs are nested too deeply to be read safely"),
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
    Ok(model)
}

fn malformed(path: &Path, reason: &str) -> EngineError {
    EngineError::Malformed(path.to_owned(), reason.to_owned())
}

/// Why parsing stopped.
enum ParseError {
    Wire(WireError),
    Depth,
}

impl From<WireError> for ParseError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl OnnxFile {
    fn model(&mut self, bytes: &[u8], found_graph: &mut bool) -> Result<(), ParseError> {
        let mut producer = [String::new(), String::new()];
        for field in fields(bytes) {
            let field = field?;
            match field.number {
                number::MODEL_IR_VERSION => self.ir_version = field.number_value(),
                number::MODEL_PRODUCER_NAME => producer[0] = field.text(),
                number::MODEL_PRODUCER_VERSION => producer[1] = field.text(),
                number::MODEL_GRAPH => {
                    *found_graph = true;
                    self.outer_graph(field.bytes())?;
                }
                number::MODEL_OPSET_IMPORT => {
                    let (mut domain, mut version) = (String::new(), 0);
                    for field in fields(field.bytes()) {
                        let field = field?;
                        match field.number {
                            number::FIRST => domain = field.text(),
                            number::SECOND => version = field.number_value(),
                            _ => {}
                        }
                    }
                    let domain = if domain.is_empty() { "ai.onnx".to_owned() } else { domain };
                    self.opsets.insert(domain, version);
                }
                number::MODEL_METADATA => {
                    let (key, value) = entry(field.bytes())?;
                    self.metadata.insert(key, value);
                }
                _ => {}
            }
        }
        self.producer = producer.join(" ").trim().to_owned();
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
            // Before version 4 of the format, weights had to be listed as inputs too.
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

    /// Counts operators and collects external files; collects the names of weights if `weights` is given.
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
            match field.number {
                number::GRAPH_NODE => self.node(field.bytes(), depth)?,
                number::GRAPH_INITIALIZER => {
                    let name = self.tensor(field.bytes())?;
                    weights.as_mut().map(|weights| weights.insert(name));
                }
                number::GRAPH_SPARSE_INITIALIZER => {
                    for field in fields(field.bytes()) {
                        let field = field?;
                        if field.number == number::SPARSE_VALUES {
                            let name = self.tensor(field.bytes())?;
                            weights.as_mut().map(|weights| weights.insert(name));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn node(&mut self, node: &[u8], depth: usize) -> Result<(), ParseError> {
        let (mut operator, mut domain) = (String::new(), String::new());
        for field in fields(node) {
            let field = field?;
            match field.number {
                number::NODE_OP_TYPE => operator = field.text(),
                number::NODE_DOMAIN => domain = field.text(),
                number::NODE_ATTRIBUTE => {
                    for field in fields(field.bytes()) {
                        let field = field?;
                        match field.number {
                            number::ATTRIBUTE_TENSOR => drop(self.tensor(field.bytes())?),
                            number::ATTRIBUTE_GRAPH | number::ATTRIBUTE_GRAPHS => {
                                self.graph(field.bytes(), depth + 1, None)?;
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        *self.operators.entry(qualified(&domain, &operator)).or_default() += 1;
        Ok(())
    }

    /// Notes where the tensor's bytes are and returns the tensor's name.
    fn tensor(&mut self, tensor: &[u8]) -> Result<String, ParseError> {
        let mut name = String::new();
        for field in fields(tensor) {
            let field = field?;
            match field.number {
                number::TENSOR_NAME => name = field.text(),
                number::TENSOR_EXTERNAL_DATA => {
                    let (key, value) = entry(field.bytes())?;
                    if key == "location" {
                        self.external_files.insert(PathBuf::from(value));
                    }
                }
                _ => {}
            }
        }
        Ok(name)
    }
}

/// Returns `Operator` for the standard domain and `domain.Operator` for others.
fn qualified(domain: &str, operator: &str) -> String {
    if domain.is_empty() || domain == "ai.onnx" { operator.to_owned() } else { format!("{domain}.{operator}") }
}

/// Returns the name of the first node in the main graph that uses `operator`, if the node has a name.
pub(super) fn node_using(bytes: &[u8], operator: &str) -> Option<String> {
    let part = |message: &'_ [u8], wanted| -> Option<String> {
        fields(message).map_while(Result::ok).find(|field| field.number == wanted).map(|field| field.text())
    };
    fields(bytes)
        .map_while(Result::ok)
        .filter(|field| field.number == number::MODEL_GRAPH)
        .flat_map(|graph| fields(graph.bytes()).map_while(Result::ok))
        .filter(|field| field.number == number::GRAPH_NODE)
        .find(|node| part(node.bytes(), number::NODE_OP_TYPE).as_deref() == Some(operator))
        .and_then(|node| part(node.bytes(), number::NODE_NAME))
        .filter(|name| !name.is_empty())
}

/// Returns the name and the operator of the node at `index` in the main graph.
pub fn node_at(bytes: &[u8], index: usize) -> Option<(String, String)> {
    let nodes = fields(bytes)
        .map_while(Result::ok)
        .filter(|field| field.number == number::MODEL_GRAPH)
        .flat_map(|graph| fields(graph.bytes()).map_while(Result::ok))
        .filter(|field| field.number == number::GRAPH_NODE);
    let node = nodes.into_iter().nth(index)?;
    let part = |wanted| {
        let mut parts = fields(node.bytes()).map_while(Result::ok);
        parts.find(|field| field.number == wanted).map(|field| field.text()).unwrap_or_default()
    };
    Some((part(number::NODE_NAME), part(number::NODE_OP_TYPE)))
}

/// Reads a `StringStringEntryProto`.
fn entry(message: &[u8]) -> Result<(String, String), WireError> {
    let (mut key, mut value) = (String::new(), String::new());
    for field in fields(message) {
        let field = field?;
        match field.number {
            number::FIRST => key = field.text(),
            number::SECOND => value = field.text(),
            _ => {}
        }
    }
    Ok((key, value))
}

/// A tensor's element type and shape, or a description of what the value is instead.
type ValueType = Result<(DType, Option<Vec<Dim>>), String>;

/// Reads a `ValueInfoProto`.
pub(super) fn value_info(message: &[u8]) -> Result<(String, ValueType), WireError> {
    let (mut name, mut value) = (String::new(), Err("without a declared type".to_owned()));
    for field in fields(message) {
        let field = field?;
        match field.number {
            number::VALUE_NAME => name = field.text(),
            number::VALUE_TYPE => {
                for field in fields(field.bytes()) {
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
            _ => {}
        }
    }
    Ok((name, value))
}

fn tensor_type(message: &[u8]) -> Result<ValueType, WireError> {
    let (mut element, mut shape) = (0, None);
    for field in fields(message) {
        let field = field?;
        match field.number {
            number::TENSOR_TYPE_ELEMENT => element = field.number_value(),
            number::TENSOR_TYPE_SHAPE => shape = Some(dims(field.bytes())?),
            _ => {}
        }
    }
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
