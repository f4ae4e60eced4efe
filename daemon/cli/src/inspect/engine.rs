//! Describes a TensorRT engine: its header, its sidecar and, if TensorRT can load it here, its tensors and layers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use visiond_config::types::EngineConfig;
use visiond_engine::card::Card;
use visiond_engine::detector::Detector;
use visiond_engine::engine::{Engine, ModelFile, TensorInfo};
use visiond_engine::heads::{self, HeadGuess, ModelFacts};
use visiond_engine::tensorrt::sidecar::Sidecar;
use visiond_engine::tensorrt::{Direction, LayerFacts, PlanFile, TrtEngine, TrtTensor, layers};
use visiond_kernels::cuda::Device;
use visiond_kernels::tensor::ShapeText;
use visiond_system::logging::escape;

use super::description::{
    CardDescription, card_lines, file_lines, fit_lines, guess_json, line, metadata_lines, tensor_json,
};

/// The description of an engine, printed as JSON or text.
#[derive(Debug, Serialize)]
pub struct EngineDescription {
    #[serde(rename = "file")]
    path: PathBuf,
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
    loaded: Option<LoadedEngine>,
    pub card: CardDescription,
    /// Heads that fit outputs of these shapes, the likeliest first.
    heads: Vec<Value>,
    /// The values behind `sidecar` and `heads`, for the text.
    #[serde(skip)]
    sidecar_file: Option<Sidecar>,
    #[serde(skip)]
    guesses: Vec<HeadGuess>,
    #[serde(skip)]
    outputs: Vec<TensorInfo>,
    #[serde(skip)]
    file: ModelFile,
}

/// The facts that TensorRT reports about a loaded engine.
#[derive(Debug, Serialize)]
struct LoadedEngine {
    by: String,
    name: String,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    tensors: Vec<EngineTensor>,
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
struct EngineTensor {
    name: String,
    direction: &'static str,
    dtype: &'static str,
    /// The shape; `null` means a dynamic dimension.
    shape: Vec<Option<usize>>,
    location: &'static str,
    format: String,
    /// For inputs, the shapes that each profile allows.
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

impl EngineDescription {
    /// Reads the sidecar and the card, and loads the engine where that is possible.
    pub fn of(named_card: Option<&Path>, file: PlanFile) -> Self {
        let PlanFile { file, plan } = file;
        let model = &file.path;
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
        let mut metadata = plan.metadata;
        let ours = sidecar.as_ref().filter(|sidecar| sidecar.engine.sha256 == file.sha256);
        if let (true, Some(sidecar)) = (metadata.is_empty(), ours) {
            metadata.clone_from(&sidecar.metadata);
        }
        let tails = BTreeMap::new();
        let guesses = heads::guess_heads(ModelFacts { inputs, outputs, metadata: &metadata, tails: &tails });
        let has_file = named_card.is_some() || model.with_extension("toml").exists();
        let card = if engine.is_ok() || has_file {
            let card = Card::for_model(model, named_card, &metadata, inputs, outputs);
            CardDescription::of(card, |card| match &engine {
                Ok(engine) => Detector::check_engine_card(card, engine).map_err(|error| error.to_string()),
                Err(_) => Ok(Vec::new()),
            })
        } else {
            CardDescription::unknown(
                "unknown: the card depends on the engine's tensors, which TensorRT reports only where it can load the engine",
            )
        };
        let outputs = outputs.to_vec();
        let gpus = plan.header.gpus().iter().map(|(major, minor)| format!("{major}.{minor}")).collect();
        Self {
            path: file.path.clone(),
            size_bytes: file.size_bytes,
            sha256: file.sha256.clone(),
            built_by: plan.header.to_string(),
            compute_capabilities: gpus,
            metadata,
            sidecar: sidecar.as_ref().map(Sidecar::to_json),
            refused: engine.as_ref().err().map(ToString::to_string),
            loaded: engine.ok().and_then(|engine| Some(loaded(&engine, engine.tensorrt()?, taken))),
            card,
            heads: guesses.iter().map(guess_json).collect(),
            sidecar_file: sidecar,
            guesses,
            outputs,
            file,
        }
    }

    /// The description as lines of text; `with_layers` adds a table of the layers.
    pub fn text(&self, with_layers: bool) -> String {
        let mut out = file_lines(&self.file);
        let gpus = match &self.compute_capabilities[..] {
            [] => String::new(),
            gpus => format!(", for GPUs of SM {}", gpus.join(", ")),
        };
        out += &line("engine", format!("built by {}{gpus}", self.built_by));
        out += &match &self.sidecar_file {
            Some(sidecar) => sidecar_lines(sidecar, &self.sha256),
            None => line("sidecar", format!("none ({} does not exist)", Sidecar::path_of(&self.path).display())),
        };
        out += &metadata_lines(&self.metadata);
        out.extend(self.refused.iter().map(|refused| line("runs here", format!("no: {refused}"))));
        out.extend(self.loaded.iter().map(loaded_lines));
        out += &card_lines(&self.card);
        // The heads depend on the outputs, which only a loaded engine has.
        if self.loaded.is_some() {
            out += &fit_lines(&self.guesses, &self.outputs);
        }
        if let (true, Some(loaded)) = (with_layers, &self.loaded) {
            out += &layer_table(&loaded.layers);
        }
        out
    }
}

fn loaded(engine: &Engine, inner: &TrtEngine, taken: Option<u64>) -> LoadedEngine {
    let information = inner.information(None).unwrap_or_else(|error| {
        log::warn!("{error}");
        String::new()
    });
    let row = |LayerFacts { name, kind, precision, tactic }: LayerFacts| LayerRow { name, kind, precision, tactic };
    LoadedEngine {
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

fn tensor(tensor: &TrtTensor) -> EngineTensor {
    EngineTensor {
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

fn sidecar_lines(sidecar: &Sidecar, sha256: &str) -> String {
    let Sidecar { built_at, build_seconds, visiond, tensorrt, precision, onnx, engine, .. } = sidecar;
    let mut out = line("built", format!("{built_at} in {build_seconds:.0} s by visiond {visiond} with {tensorrt}"));
    let part =
        |name: &str, value: &Option<String>| value.as_ref().map_or_else(String::new, |v| format!(", {name} {v}"));
    let gpu = match &sidecar.gpu {
        Some(gpu) => format!("{gpu}{}{}", part("SM", &sidecar.sm), part("CUDA", &sidecar.cuda)),
        None => "without a GPU".to_owned(),
    };
    out += &line("built on", gpu);
    if !sidecar.options.is_empty() {
        out += &line("options", sidecar.options.join(" "));
    }
    out += &line("precision", precision);
    out += &line("from", format!("{} (sha256 {})", onnx.path.display(), onnx.sha256));
    if engine.sha256 != sha256 {
        out += &line("sidecar", format!("of another engine (sha256 {}): the engine file was replaced", engine.sha256));
    }
    out
}

fn loaded_lines(loaded: &LoadedEngine) -> String {
    let mut out = line("runs here", format!("on {}", loaded.by));
    if !loaded.name.is_empty() {
        out += &line("model", &loaded.name);
    }
    for EngineTensor { name, direction, dtype, shape, location, format, .. } in &loaded.tensors {
        let sizes: Vec<_> = shape.iter().map(|s| s.map_or_else(|| "?".to_owned(), |s| s.to_string())).collect();
        let place = if *location == "host" { ", in host memory" } else { "" };
        let format = if format.is_empty() { String::new() } else { format!(" ({format})") };
        out += &line(direction, format!("{name} {dtype} [{}]{place}{format}", sizes.join(", ")));
    }
    for profile in 0..loaded.profiles {
        let shapes = loaded.tensors.iter().filter_map(|EngineTensor { name, profiles, .. }| {
            let limits = profiles.get(profile)?;
            let shape = |key: &str| Vec::deserialize(&limits[key]).ok().map(|shape| ShapeText(&shape).to_string());
            let (min, opt, max) = (shape("min")?, shape("opt")?, shape("max")?);
            Some(if min == max { format!("{name} {opt}") } else { format!("{name} {min} to {max}, tuned for {opt}") })
        });
        out += &line("profile", format!("{profile}: {}", shapes.collect::<Vec<_>>().join("; ")));
    }
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let all = loaded.memory_bytes.map_or_else(String::new, |bytes| format!("{} when loaded, ", megabytes(bytes)));
    out += &line("GPU memory", format!("{all}{} more for each context", megabytes(loaded.context_bytes as u64)));
    let mut precisions = BTreeMap::<&str, usize>::new();
    for layer in &loaded.layers {
        *precisions.entry(layer.precision.as_deref().unwrap_or("unknown precision")).or_default() += 1;
    }
    let precisions: Vec<_> = precisions.iter().map(|(name, number)| format!("{name} {number}")).collect();
    let precisions = if precisions.is_empty() { String::new() } else { format!(": {}", precisions.join(", ")) };
    out + &line("layers", format!("{}{precisions}", loaded.layer_count))
}

fn layer_table(layers: &[LayerRow]) -> String {
    let mut out = format!("\n{:>5}  {:9}  {:24}  LAYER, TACTIC\n", "", "PRECISION", "KIND");
    for (index, layer) in layers.iter().enumerate() {
        let word = |word: &Option<String>| escape(word.as_deref().unwrap_or("-"));
        let tactic = layer.tactic.as_deref().map_or_else(String::new, |tactic| format!("  [{}]", escape(tactic)));
        let (precision, kind, name) = (word(&layer.precision), word(&layer.kind), escape(&layer.name));
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{index:>5}  {precision:9}  {kind:24}  {name}{tactic}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded() -> LoadedEngine {
        let layer = |name: &str, precision: Option<&str>| LayerRow {
            name: name.to_owned(),
            kind: Some("CaskConvolution".to_owned()),
            precision: precision.map(str::to_owned),
            tactic: Some("sm87_xmma".to_owned()),
        };
        let profile = json!({ "min": [1, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [4, 3, 8, 8] });
        LoadedEngine {
            by: "TensorRT 10.3.0 on Orin (SM 8.7)".to_owned(),
            name: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            tensors: vec![EngineTensor {
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
        assert_eq!(
            loaded_lines(&loaded()).lines().collect::<Vec<_>>(),
            [
                "runs here  on TensorRT 10.3.0 on Orin (SM 8.7)",
                "input      images f16 [?, 3, 8, 8] (Row major linear FP16 format)",
                "profile    0: images [1, 3, 8, 8] to [4, 3, 8, 8], tuned for [2, 3, 8, 8]",
                "GPU memory 12.3 MB when loaded, 1.0 MB more for each context",
                "layers     2: FP16 1, unknown precision 1",
            ]
        );
        let table = layer_table(&loaded().layers);
        assert!(table.contains("    0  FP16       CaskConvolution           conv1  [sm87_xmma]"), "{table}");
    }

    #[test]
    fn a_sidecar_of_another_engine_is_noticed() {
        let mut sidecar = Sidecar::default();
        sidecar.engine.sha256 = "ab".to_owned();
        let lines = sidecar_lines(&sidecar, "cd");
        assert!(lines.contains("\nsidecar    of another engine"), "{lines:?}");
        assert!(lines.contains("\nbuilt on   without a GPU\n"), "{lines:?}");
    }

    fn sidecar() -> Sidecar {
        let mut sidecar = Sidecar {
            visiond: "1.2.3".to_owned(),
            built_at: "2026-01-02T03:04:05Z".to_owned(),
            build_seconds: 61.6,
            tensorrt: "TensorRT 10.3.0".to_owned(),
            gpu: Some("Orin".to_owned()),
            sm: Some("8.7".to_owned()),
            cuda: Some("12.6".to_owned()),
            options: vec!["--fp16".to_owned(), "--dla=0".to_owned()],
            precision: "fp16".to_owned(),
            ..Sidecar::default()
        };
        (sidecar.onnx.path, sidecar.onnx.sha256) = ("/models/net.onnx".into(), "ef".to_owned());
        sidecar.engine.sha256 = "ab".to_owned();
        sidecar
    }

    #[test]
    fn a_sidecar_says_how_the_engine_was_built() {
        let expected = "\
built      2026-01-02T03:04:05Z in 62 s by visiond 1.2.3 with TensorRT 10.3.0
built on   Orin, SM 8.7, CUDA 12.6
options    --fp16 --dla=0
precision  fp16
from       /models/net.onnx (sha256 ef)
";
        assert_eq!(sidecar_lines(&sidecar(), "ab"), expected);
        let bare = sidecar_lines(&Sidecar { options: Vec::new(), sm: None, cuda: None, ..sidecar() }, "ab");
        assert!(bare.contains("\nbuilt on   Orin\nprecision  fp16\n"), "{bare}");
    }

    fn description(loaded: Option<LoadedEngine>, sidecar_file: Option<Sidecar>) -> EngineDescription {
        let path = PathBuf::from("/models/net.engine");
        let sha256 = "ab".to_owned();
        EngineDescription {
            path: path.clone(),
            size_bytes: 5,
            sha256: sha256.clone(),
            built_by: "TensorRT 10.3.0".to_owned(),
            compute_capabilities: Vec::new(),
            metadata: [("task".to_owned(), "detect".to_owned())].into(),
            sidecar: None,
            refused: loaded.is_none().then(|| "no GPU".to_owned()),
            loaded,
            card: CardDescription::unknown("unknown"),
            heads: Vec::new(),
            sidecar_file,
            guesses: Vec::new(),
            outputs: Vec::new(),
            file: ModelFile { path, size_bytes: 5, sha256 },
        }
    }

    #[test]
    fn an_engine_that_cannot_be_loaded_is_described_by_its_files() {
        let expected = "\
file       /models/net.engine
size       5 B
sha256     ab
engine     built by TensorRT 10.3.0
sidecar    none (/models/net.engine.json does not exist)
metadata   task = detect
runs here  no: no GPU
card       unknown
";
        assert_eq!(description(None, None).text(true), expected);
        let compute_capabilities = vec!["8.6".to_owned(), "8.7".to_owned()];
        let text = EngineDescription { compute_capabilities, ..description(None, Some(sidecar())) }.text(false);
        assert!(
            text.contains("engine     built by TensorRT 10.3.0, for GPUs of SM 8.6, 8.7\nbuilt      2026-"),
            "{text}"
        );
    }

    #[test]
    fn a_loaded_engine_has_its_heads_and_on_request_its_layers() {
        let with_layers = description(Some(loaded()), None).text(true);
        let without = description(Some(loaded()), None).text(false);
        assert!(without.contains("\nfits       no head of visiond reads the outputs \n"), "{without}");
        assert!(!without.contains("LAYER, TACTIC") && with_layers.starts_with(&without), "{with_layers}");
        let rows = "\n
       PRECISION  KIND                      LAYER, TACTIC
    0  FP16       CaskConvolution           conv1  [sm87_xmma]
    1  -          CaskConvolution           conv2  [sm87_xmma]
";
        assert!(with_layers.ends_with(&rows[1..]), "{with_layers}");
    }

    #[test]
    fn tensors_profiles_and_memory_of_a_loaded_engine_have_their_words() {
        let profile = |sizes: [usize; 3]| json!({ "min": [sizes[0]], "opt": [sizes[1]], "max": [sizes[2]] });
        let tensor = |name: &str, direction, location, profiles| EngineTensor {
            name: name.to_owned(),
            direction,
            dtype: "i32",
            shape: vec![Some(2)],
            location,
            format: String::new(),
            profiles,
        };
        let described = LoadedEngine {
            name: "net".to_owned(),
            tensors: vec![
                tensor("size", "input", "host", vec![profile([2, 2, 2]), profile([1, 2, 4])]),
                tensor("out", "output", "gpu", Vec::new()),
            ],
            profiles: 2,
            memory_bytes: None,
            layers: Vec::new(),
            ..loaded()
        };
        let expected = "\
runs here  on TensorRT 10.3.0 on Orin (SM 8.7)
model      net
input      size i32 [2], in host memory
output     out i32 [2]
profile    0: size [2]
profile    1: size [1] to [4], tuned for [2]
GPU memory 1.0 MB more for each context
layers     2
";
        assert_eq!(loaded_lines(&described), expected);
    }
}
