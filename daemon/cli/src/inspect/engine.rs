//! Describes a TensorRT engine: its header, its sidecar and, if TensorRT can load it here, its tensors and layers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use visiond_config::types::EngineConfig;
use visiond_engine::card::Card;
use visiond_engine::engine::Engine;
use visiond_engine::heads::{self, HeadGuess};
use visiond_engine::tensorrt::sidecar::Sidecar;
use visiond_engine::tensorrt::{Direction, LayerFacts, PlanFile, TrtEngine, TrtTensor, layers};
use visiond_kernels::cuda::Device;
use visiond_kernels::tensor::ShapeText;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;

use super::description::{CardFacts, card_lines, fit_lines, guess_json, metadata_lines, size, tensor_json};

/// The JSON that is printed.
#[derive(Debug, Serialize)]
pub struct Facts {
    file: PathBuf,
    size_bytes: u64,
    sha256: String,
    /// The builder, such as "TensorRT 10.3.0".
    built_by: String,
    /// The compute capabilities in the header; may be empty.
    compute_capabilities: Vec<String>,
    metadata: BTreeMap<String, String>,
    sidecar: Option<Value>,
    /// Why the engine cannot run here.
    refused: Option<String>,
    /// The contents, if the engine can run here.
    loaded: Option<LoadedFacts>,
    card: CardFacts,
    /// Heads that fit outputs of these shapes, the likeliest first.
    heads: Vec<Value>,
    /// The file that `sidecar` shows.
    #[serde(skip)]
    sidecar_file: Option<Sidecar>,
    /// What `heads` shows.
    #[serde(skip)]
    guesses: Vec<HeadGuess>,
}

/// What TensorRT reports about a loaded engine.
#[derive(Debug, Serialize)]
struct LoadedFacts {
    by: String,
    name: String,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    tensors: Vec<TensorFacts>,
    profiles: usize,
    layer_count: usize,
    /// GPU memory that loading it took, in bytes.
    memory_bytes: Option<u64>,
    /// GPU memory of each execution context, in bytes.
    context_bytes: usize,
    layers: Vec<LayerRow>,
}

/// An input or output tensor.
#[derive(Debug, Serialize)]
struct TensorFacts {
    name: String,
    direction: &'static str,
    dtype: &'static str,
    /// The shape; `null` is a dynamic dimension.
    shape: Vec<Option<usize>>,
    location: &'static str,
    format: String,
    /// The shapes that each profile allows, for inputs.
    profiles: Vec<Value>,
}

/// A layer.
#[derive(Debug, Serialize)]
struct LayerRow {
    name: String,
    kind: Option<String>,
    precision: Option<String>,
    tactic: Option<String>,
}

impl Facts {
    /// Reads the sidecar and the card, and loads the engine where that is possible.
    pub fn of(model: &Path, named_card: Option<&Path>, file: &PlanFile) -> Result<Self, ExitError> {
        // Without a valid sidecar everything else can still be shown.
        let sidecar = Sidecar::of(model).unwrap_or_else(|error| {
            log::warn!("{error}");
            None
        });
        let free = || Device::open(0).ok().and_then(|device| device.memory_free_bytes().ok());
        let before = free();
        let engine = Engine::load(model, &EngineConfig::default().options(&BTreeMap::new()));
        let taken = before.zip(free()).map(|(before, after)| before.saturating_sub(after));

        let (inputs, outputs) = engine.as_ref().map_or((&[][..], &[][..]), |e| (e.inputs(), e.outputs()));
        let mut metadata = file.plan.metadata.clone();
        let ours = sidecar.as_ref().filter(|sidecar| sidecar.engine.sha256 == file.file.sha256);
        if let (true, Some(sidecar)) = (metadata.is_empty(), ours) {
            metadata.clone_from(&sidecar.metadata);
        }
        let guesses = heads::guess_heads(outputs, inputs, &metadata);
        let has_file = named_card.is_some() || model.with_extension("toml").exists();
        let card = if engine.is_ok() || has_file {
            CardFacts::of(Card::for_model(model, named_card, &metadata, inputs, outputs))
        } else {
            CardFacts::none(
                "unknown: the card depends on the engine's tensors, which TensorRT reports only where it can load the engine",
            )
        };
        if let (Some(_), Some(error)) = (named_card, &card.error) {
            return Err(ExitError::new(Exit::Config, error));
        }
        let gpus = file.plan.header.gpus().iter().map(|(major, minor)| format!("{major}.{minor}")).collect();
        Ok(Self {
            file: file.file.path.clone(),
            size_bytes: file.file.size_bytes,
            sha256: file.file.sha256.clone(),
            built_by: file.plan.header.to_string(),
            compute_capabilities: gpus,
            metadata,
            sidecar: sidecar.as_ref().map(Sidecar::to_json),
            refused: engine.as_ref().err().map(ToString::to_string),
            loaded: match &engine {
                Ok(engine) => engine.tensorrt().map(|inner| loaded(engine, inner, taken)),
                Err(_) => None,
            },
            card,
            heads: guesses.iter().map(guess_json).collect(),
            sidecar_file: sidecar,
            guesses,
        })
    }

    /// The description as lines of text; `with_layers` adds a table of the layers.
    pub fn text(&self, with_layers: bool) -> String {
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
        line("file", self.file.display().to_string());
        line("size", size(self.size_bytes));
        line("sha256", self.sha256.clone());
        let gpus = match &self.compute_capabilities[..] {
            [] => String::new(),
            gpus => format!(", for GPUs of SM {}", gpus.join(", ")),
        };
        line("engine", format!("built by {}{gpus}", self.built_by));
        match &self.sidecar_file {
            Some(sidecar) => sidecar_lines(sidecar, &self.sha256, &mut line),
            None => line("sidecar", format!("none ({} does not exist)", Sidecar::path_of(&self.file).display())),
        }
        metadata_lines(&self.metadata, &mut line);
        if let Some(refused) = &self.refused {
            line("runs here", format!("no: {refused}"));
        }
        if let Some(loaded) = &self.loaded {
            loaded_lines(loaded, &mut line);
        }
        card_lines(&self.card, &mut line);
        // The heads depend on the outputs, which only a loaded engine has.
        if self.loaded.is_some() {
            fit_lines(&self.guesses, &mut line);
        }
        let mut out = String::new();
        for (name, value) in lines {
            // Writing into a String cannot fail, here and below.
            let _ = writeln!(out, "{name:10} {}", escape(&value));
        }
        if let (true, Some(loaded)) = (with_layers, &self.loaded) {
            out += &layer_table(&loaded.layers);
        }
        out
    }
}

fn loaded(engine: &Engine, inner: &TrtEngine, taken: Option<u64>) -> LoadedFacts {
    let information = inner.information(None).unwrap_or_else(|error| {
        log::warn!("{error}");
        String::new()
    });
    let row = |LayerFacts { name, kind, precision, tactic }: LayerFacts| LayerRow { name, kind, precision, tactic };
    LoadedFacts {
        by: engine.backend_description().to_owned(),
        name: inner.name().to_owned(),
        inputs: engine.inputs().iter().map(tensor_json).collect(),
        outputs: engine.outputs().iter().map(tensor_json).collect(),
        tensors: inner.tensors().iter().map(tensor).collect(),
        profiles: inner.profiles(),
        layer_count: inner.layers(),
        memory_bytes: taken,
        context_bytes: inner.scratch_bytes(),
        layers: layers(&information).into_iter().map(row).collect(),
    }
}

fn tensor(tensor: &TrtTensor) -> TensorFacts {
    TensorFacts {
        name: tensor.name.clone(),
        direction: match tensor.direction {
            Direction::Input => "input",
            Direction::Output => "output",
        },
        dtype: tensor.dtype.name(),
        shape: tensor.shape.clone(),
        location: if tensor.on_host { "host" } else { "gpu" },
        format: tensor.format.clone(),
        profiles: tensor.limits.iter().map(|l| json!({ "min": l.min, "opt": l.opt, "max": l.max })).collect(),
    }
}

fn sidecar_lines(sidecar: &Sidecar, sha256: &str, line: &mut impl FnMut(&str, String)) {
    let when = format!("{} in {:.0} s by visiond {}", sidecar.built_at, sidecar.build_seconds, sidecar.visiond);
    line("built", format!("{when} with {}", sidecar.tensorrt));
    let gpu = sidecar.gpu.as_deref().map_or_else(
        || "without a GPU".to_owned(),
        |gpu| {
            let sm = sidecar.sm.as_deref().map_or_else(String::new, |sm| format!(", SM {sm}"));
            let cuda = sidecar.cuda.as_deref().map_or_else(String::new, |cuda| format!(", CUDA {cuda}"));
            format!("{gpu}{sm}{cuda}")
        },
    );
    line("built on", gpu);
    if !sidecar.options.is_empty() {
        line("options", sidecar.options.join(" "));
    }
    line("precision", sidecar.precision.clone());
    line("from", format!("{} (sha256 {})", sidecar.onnx.path.display(), sidecar.onnx.sha256));
    if sidecar.engine.sha256 != sha256 {
        line("sidecar", format!("of another engine (sha256 {}): the engine file was replaced", sidecar.engine.sha256));
    }
}

fn loaded_lines(loaded: &LoadedFacts, line: &mut impl FnMut(&str, String)) {
    line("runs here", format!("on {}", loaded.by));
    if !loaded.name.is_empty() {
        line("network", loaded.name.clone());
    }
    for tensor in &loaded.tensors {
        let sizes: Vec<_> = tensor.shape.iter().map(|s| s.map_or_else(|| "?".to_owned(), |s| s.to_string())).collect();
        let place = if tensor.location == "host" { ", in host memory" } else { "" };
        let (name, dtype, format) = (&tensor.name, tensor.dtype, &tensor.format);
        let format = if format.is_empty() { String::new() } else { format!(" ({format})") };
        line(tensor.direction, format!("{name} {dtype} [{}]{place}{format}", sizes.join(", ")));
    }
    for profile in 0..loaded.profiles {
        let shapes = loaded.tensors.iter().filter_map(|tensor| {
            let limits = tensor.profiles.get(profile)?;
            let shape = |key: &str| {
                let sizes = limits[key].as_array()?.iter().map(|size| size.as_u64().map(|size| size as usize));
                Some(ShapeText(&sizes.collect::<Option<Vec<_>>>()?).to_string())
            };
            let (min, opt, max) = (shape("min")?, shape("opt")?, shape("max")?);
            let name = &tensor.name;
            Some(if min == max { format!("{name} {opt}") } else { format!("{name} {min} to {max}, tuned for {opt}") })
        });
        line("profile", format!("{profile}: {}", shapes.collect::<Vec<_>>().join("; ")));
    }
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let all = loaded.memory_bytes.map_or_else(String::new, |bytes| format!("{} when loaded, ", megabytes(bytes)));
    line("GPU memory", format!("{all}{} more for each context", megabytes(loaded.context_bytes as u64)));
    let mut kinds = BTreeMap::<&str, usize>::new();
    for layer in &loaded.layers {
        *kinds.entry(layer.precision.as_deref().unwrap_or("unknown precision")).or_default() += 1;
    }
    let kinds: Vec<_> = kinds.iter().map(|(name, number)| format!("{name} {number}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
    line("layers", format!("{}{kinds}", loaded.layer_count));
}

fn layer_table(layers: &[LayerRow]) -> String {
    let mut out = format!("\n{:>5}  {:9}  {:24}  LAYER, TACTIC\n", "", "PRECISION", "KIND");
    for (index, layer) in layers.iter().enumerate() {
        let word = |word: &Option<String>| escape(word.as_deref().unwrap_or("-"));
        let tactic = layer.tactic.as_deref().map_or_else(String::new, |tactic| format!("  [{}]", escape(tactic)));
        let (precision, kind, name) = (word(&layer.precision), word(&layer.kind), escape(&layer.name));
        let _ = writeln!(out, "{index:>5}  {precision:9}  {kind:24}  {name}{tactic}");
    }
    out
}

/// Reads the header and hash of `path` if it is an engine.
pub fn file(path: &Path) -> Result<Option<PlanFile>, ExitError> {
    PlanFile::read(path).map_err(|error| ExitError::new(Exit::Model, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded() -> LoadedFacts {
        let layer = |name: &str, precision: Option<&str>| LayerRow {
            name: name.to_owned(),
            kind: Some("CaskConvolution".to_owned()),
            precision: precision.map(str::to_owned),
            tactic: Some("sm87_xmma".to_owned()),
        };
        let profile = json!({ "min": [1, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [4, 3, 8, 8] });
        LoadedFacts {
            by: "TensorRT 10.3.0 on Orin (SM 8.7)".to_owned(),
            name: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            tensors: vec![TensorFacts {
                name: "images".to_owned(),
                direction: "input",
                dtype: "f16",
                shape: vec![None, Some(3), Some(8), Some(8)],
                location: "gpu",
                format: "Row major linear FP16 format".to_owned(),
                profiles: vec![profile],
            }],
            profiles: 1,
            layer_count: 2,
            memory_bytes: Some(12_340_000),
            context_bytes: 1_000_000,
            layers: vec![layer("conv1", Some("FP16")), layer("conv2", None)],
        }
    }

    #[test]
    fn a_loaded_engine_is_described_line_by_line() {
        let mut lines = Vec::new();
        loaded_lines(&loaded(), &mut |name: &str, value: String| lines.push(format!("{name}: {value}")));
        assert_eq!(
            lines,
            [
                "runs here: on TensorRT 10.3.0 on Orin (SM 8.7)",
                "input: images f16 [?, 3, 8, 8] (Row major linear FP16 format)",
                "profile: 0: images [1, 3, 8, 8] to [4, 3, 8, 8], tuned for [2, 3, 8, 8]",
                "GPU memory: 12.3 MB when loaded, 1.0 MB more for each context",
                "layers: 2: FP16 1, unknown precision 1",
            ]
        );
        let table = layer_table(&loaded().layers);
        assert!(table.contains("    0  FP16       CaskConvolution           conv1  [sm87_xmma]"), "{table}");
    }

    #[test]
    fn a_sidecar_of_another_engine_is_noticed() {
        let mut sidecar = Sidecar::default();
        sidecar.engine.sha256 = "ab".to_owned();
        let mut lines = Vec::new();
        sidecar_lines(&sidecar, "cd", &mut |name: &str, value: String| lines.push(format!("{name}: {value}")));
        assert!(lines.iter().any(|line| line.starts_with("sidecar: of another engine")), "{lines:?}");
        assert!(lines.contains(&"built on: without a GPU".to_owned()));
    }
}
