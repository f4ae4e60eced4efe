//! `visiond inspect`: describes a model file.

mod description;
mod engine;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use visiond_engine::card::Card;
use visiond_engine::engine::EngineError;
use visiond_engine::heads::{self, HeadGuess};
use visiond_engine::onnx::file::OnnxFile;
use visiond_engine::tensorrt::plan::{self, PlanError};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;

use crate::output::{print, print_json};
use description::{CardFacts, card_lines, fit_lines, guess_json, metadata_lines, size, tensor_json};

/// Show a model's inputs, outputs, metadata and card, and the heads that fit
///
/// Reading an ONNX file or the header of a TensorRT engine needs no backend, so this also works for models that this machine
/// cannot run. The tensors, profiles and layers of an engine require TensorRT and a GPU that runs it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Model file
    model: PathBuf,

    /// Use this model card [default: MODEL with the extension .toml, else the model's own metadata]
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// List every layer of a TensorRT engine with precision and tactic
    #[arg(long)]
    layers: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  visiond inspect yolo11n.onnx
  visiond inspect --layers yolo11n.engine
  visiond inspect --json yolo11n.onnx | jq -r .sha256";

/// The JSON that is printed.
#[derive(Debug, Serialize)]
struct Facts {
    file: PathBuf,
    size_bytes: u64,
    sha256: String,
    producer: String,
    ir_version: i64,
    opsets: BTreeMap<String, i64>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    /// Inputs and outputs that visiond cannot use.
    unusable: Vec<Value>,
    external_files: BTreeSet<PathBuf>,
    metadata: BTreeMap<String, String>,
    operators: BTreeMap<String, usize>,
    card: CardFacts,
    /// Heads that fit outputs of these shapes, the likeliest first.
    heads: Vec<Value>,
}

/// Prints the description of the file.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    if let Some(file) = engine::file(&args.model)? {
        let facts = engine::Facts::of(&args.model, args.card.as_deref(), &file)?;
        if args.json {
            print_json(&facts)?;
        } else {
            print(&facts.text(args.layers))?;
        }
        return Ok(Exit::Success);
    }
    let file = OnnxFile::read(&args.model).map_err(|error| match error {
        EngineError::NotOnnx(path, _) if plan::has_plan_name(&path) => {
            let command = plan::rebuild_command(&path);
            ExitError::new(Exit::Model, PlanError::NotAPlan(path, command))
        }
        error => ExitError::new(Exit::Model, error),
    })?;
    let guesses = heads::guess_heads(&file.outputs, &file.inputs, &file.metadata);
    let card = Card::for_model(&args.model, args.card.as_deref(), &file.metadata, &file.inputs, &file.outputs);
    let card = CardFacts::of(card);
    // An invalid card is an error only if --card names it; otherwise the description shows the error.
    if let (Some(_), Some(error)) = (&args.card, &card.error) {
        return Err(ExitError::new(Exit::Config, error));
    }
    if args.json {
        print_json(&facts(&file, card, &guesses))?;
    } else {
        print(&text(&file, &card, &guesses))?;
    }
    Ok(Exit::Success)
}

fn facts(file: &OnnxFile, card: CardFacts, guesses: &[HeadGuess]) -> Facts {
    let unusable = file.foreign.iter().map(|value| {
        let direction = if value.is_output { "output" } else { "input" };
        json!({ "direction": direction, "name": value.name, "found": value.found })
    });
    Facts {
        file: file.file.path.clone(),
        size_bytes: file.file.size_bytes,
        sha256: file.file.sha256.clone(),
        producer: file.producer.clone(),
        ir_version: file.ir_version,
        opsets: file.opsets.clone(),
        inputs: file.inputs.iter().map(tensor_json).collect(),
        outputs: file.outputs.iter().map(tensor_json).collect(),
        unusable: unusable.collect(),
        external_files: file.external_files.clone(),
        metadata: file.metadata.clone(),
        operators: file.operators.clone(),
        card,
        heads: guesses.iter().map(guess_json).collect(),
    }
}

fn text(file: &OnnxFile, card: &CardFacts, guesses: &[HeadGuess]) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{name:10} {}", escape(&value));
    };
    let opsets: Vec<_> = file.opsets.iter().map(|(domain, version)| format!("{domain} {version}")).collect();
    line("file", file.file.path.display().to_string());
    line("size", size(file.file.size_bytes));
    line("sha256", file.file.sha256.clone());
    line("producer", if file.producer.is_empty() { "unknown".to_owned() } else { file.producer.clone() });
    line("opset", format!("{} (ONNX IR version {})", opsets.join(", "), file.ir_version));
    for info in &file.inputs {
        line("input", info.to_string());
    }
    for info in &file.outputs {
        line("output", info.to_string());
    }
    for value in &file.foreign {
        line("unusable", format!("{} is {}", value.name, value.found));
    }
    for external in &file.external_files {
        line("weights", format!("in {} beside the model", external.display()));
    }
    metadata_lines(&file.metadata, &mut line);
    let operators: Vec<_> = file.operators.iter().map(|(name, number)| format!("{name} {number}")).collect();
    line("operators", operators.join(", "));
    card_lines(card, &mut line);
    fit_lines(guesses, &mut line);
    if let Some(guess) = guesses.first().filter(|_| !card.found) {
        let _ = write!(out, "\nTemplate for a model card, to save as {}:\n\n", beside(&file.file.path).display());
        for line in guess.card.lines() {
            let _ = writeln!(out, "{}", escape(line));
        }
    }
    out
}

fn beside(model: &Path) -> PathBuf {
    model.with_extension("toml")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_sample_network_is_described() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
        let file = OnnxFile::read(&model).unwrap();
        let guesses = heads::guess_heads(&file.outputs, &file.inputs, &file.metadata);
        let card = || CardFacts::of(Card::for_model(&model, None, &file.metadata, &file.inputs, &file.outputs));
        let text = text(&file, &card(), &guesses);
        for part in ["input      images f32 [1, 3, 416, 416]", "sha256     c56a49a7981b", "fits       nanodet: "] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        let facts = serde_json::to_value(facts(&file, card(), &guesses)).unwrap();
        assert_eq!(facts["inputs"][0]["shape"], json!([1, 3, 416, 416]));
        assert_eq!(facts["heads"][0]["family"], "nanodet");
    }
}
