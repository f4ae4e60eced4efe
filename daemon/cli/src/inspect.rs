//! `visiond inspect`: describes a model file.

mod description;
mod engine;
mod proposals;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use visiond_config::diagnostics::count;
use visiond_config::types::{EngineConfig, ModelConfig};
use visiond_engine::card::Card;
use visiond_engine::detector::Detector;
use visiond_engine::engine::EngineError;
use visiond_engine::heads::{self, Export, HeadGuess, ModelFacts};
use visiond_engine::onnx::file::OnnxFile;
use visiond_engine::tensorrt::PlanFile;
use visiond_engine::tensorrt::plan::{self, PlanError};
use visiond_service::{ServiceError, model_trial};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;
use visiond_system::stop::Stop;

use crate::load_limits::LoadLimits;
use crate::output::print_report;
use description::{CardDescription, card_lines, file_lines, fit_lines, guess_json, line, metadata_lines, tensor_json};
use engine::EngineDescription;
use proposals::{Answer, Better, Proposals, Rejected};

/// Show a model's inputs, outputs, metadata and card, and the heads that fit
///
/// Reading an ONNX file or the header of a TensorRT engine needs no backend, so this also works for models that this machine
/// cannot run. An ONNX model that can run here runs on test images in a separate process: a card that contradicts the model is
/// an error (exit status 3), and without a card, heads that contradict it are not proposed. The tensors, profiles and layers of
/// an engine require TensorRT and a GPU that runs it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Model file
    model: PathBuf,

    /// Use this model card [default: MODEL with the extension .toml, otherwise the model's own metadata]
    #[arg(short, long)]
    card: Option<PathBuf>,

    /// List every layer of a TensorRT engine with precision and tactic
    #[arg(long)]
    layers: bool,

    #[command(flatten)]
    trial: LoadLimits,

    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  visiond inspect yolo11n.onnx
  visiond inspect --layers yolo11n.engine
  visiond inspect --json yolo11n.onnx | jq -r .sha256";

/// The description of an ONNX file as JSON.
#[derive(Debug, Serialize)]
struct OnnxDescription<'a> {
    file: &'a Path,
    size_bytes: u64,
    sha256: &'a str,
    producer: &'a str,
    ir_version: i64,
    opsets: &'a BTreeMap<String, i64>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    /// Inputs and outputs that visiond cannot use.
    unusable: Vec<Value>,
    external_files: Vec<&'a PathBuf>,
    metadata: &'a BTreeMap<String, String>,
    operators: &'a BTreeMap<String, usize>,
    /// Why the model cannot run here.
    refused: Option<&'a str>,
    card: &'a CardDescription,
    /// The exporter that wrote it, if it is known and wrote no metadata that visiond reads.
    export: Option<Value>,
    /// Heads that fit outputs of these shapes, the likeliest first.
    heads: Vec<Value>,
    /// Heads that fit by their shapes, but contradict the numbers of a run.
    rejected: &'a [Rejected],
    /// A preprocess with which the first head finds something, if it finds nothing with the card's.
    better: Option<&'a Better>,
    /// A classifier's answers with the card's preprocess and with others, if they differ.
    answers: &'a [Answer],
}

/// Prints the description of the file.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let engine = PlanFile::read(&args.model).map_err(|error| ExitError::new(Exit::Model, error))?;
    if let Some(file) = engine {
        let description = EngineDescription::of(args.card.as_deref(), file);
        print_report(args.json, &description, |description| description.text(args.layers))?;
        return description.card.outcome().map(|()| Exit::Success);
    }
    let file = OnnxFile::read(&args.model).map_err(|error| match error {
        EngineError::NotOnnx(path, _) if plan::has_plan_name(&path) => {
            let command = plan::rebuild_command(&path);
            ExitError::new(Exit::Model, PlanError::NotAPlan(path, command))
        }
        error => ExitError::new(Exit::Model, error),
    })?;
    let guesses = guesses(&file);
    let export = heads::recognise(facts(&file));
    let card = Card::for_model(&args.model, args.card.as_deref(), &file.metadata, &file.inputs, &file.outputs);
    let mut refused = None;
    let card = CardDescription::of(card, |card| {
        let keypoints = Detector::check_card(card, &file.inputs, &file.outputs).map_err(|error| error.to_string())?;
        refused = try_model(&args).err();
        match refused.take_if(|(exit, _)| *exit == Exit::Config) {
            Some((_, error)) => Err(error),
            None => Ok(keypoints),
        }
    });
    let why = refused.as_ref().map(|(_, error)| error.as_str());
    let proposals = match card.found {
        true => Proposals { guesses, ..Proposals::default() },
        false => Proposals::tried(&args.model, &args.trial, guesses, heads::guess_orders(facts(&file))),
    };
    let why = why.or(proposals.untried.as_deref());
    let export = export.filter(|export| proposals.guesses.is_empty() || !export.is_hint());
    let description = description(&file, &card, export.as_ref(), &proposals, why);
    print_report(args.json, &description, |_| text(&file, &card, export.as_ref(), &proposals, why))?;
    card.outcome()?;
    // Exit with the status of `check`, `detect` and `run`.
    refused.map_or(Ok(Exit::Success), |(exit, error)| Err(ExitError::new(exit, error)))
}

fn facts(file: &OnnxFile) -> ModelFacts<'_> {
    let OnnxFile { inputs, outputs, metadata, tails, .. } = file;
    ModelFacts { inputs, outputs, metadata, tails }
}

fn guesses(file: &OnnxFile) -> Vec<HeadGuess> {
    heads::guess_heads(facts(file))
}

/// Runs the model once, as `visiond run` does before it starts: only the numbers show whether the card fits them.
fn try_model(args: &Args) -> Result<(), (Exit, String)> {
    let model = ModelConfig { path: args.model.clone(), card: args.card.clone(), ..ModelConfig::default() };
    let stop = Stop::new().map_err(|error| (Exit::Failure, error.to_string()))?;
    let tried = model_trial::try_model(&model, &args.trial.of(EngineConfig::default()), &stop);
    tried.map(drop).map_err(|error| {
        let exit = error.exit();
        // The model has no name here except its path, which the error already shows.
        let text = match error {
            ServiceError::Model { error, .. } => error.to_string(),
            other => other.to_string(),
        };
        (exit, text)
    })
}

fn description<'a>(
    file: &'a OnnxFile,
    card: &'a CardDescription,
    export: Option<&'a Export>,
    proposals: &'a Proposals,
    refused: Option<&'a str>,
) -> OnnxDescription<'a> {
    let unusable = file.foreign.iter().map(|value| {
        let direction = if value.is_output { "output" } else { "input" };
        json!({ "direction": direction, "name": value.name, "found": value.found })
    });
    OnnxDescription {
        file: &file.file.path,
        size_bytes: file.file.size_bytes,
        sha256: &file.file.sha256,
        producer: &file.producer,
        ir_version: file.ir_version,
        opsets: &file.opsets,
        inputs: file.inputs.iter().map(tensor_json).collect(),
        outputs: file.outputs.iter().map(tensor_json).collect(),
        unusable: unusable.collect(),
        external_files: file.external_files.keys().collect(),
        metadata: &file.metadata,
        operators: &file.operators,
        refused,
        card,
        export: export.map(|export| json!({ "exporter": export.exporter, "note": export.note })),
        heads: proposals.guesses.iter().map(guess_json).collect(),
        rejected: &proposals.rejected,
        better: proposals.better.as_ref(),
        answers: &proposals.answers,
    }
}

fn text(
    file: &OnnxFile,
    card: &CardDescription,
    export: Option<&Export>,
    proposals: &Proposals,
    refused: Option<&str>,
) -> String {
    let mut out = file_lines(&file.file);
    let opsets: Vec<_> = file.opsets.iter().map(|(domain, version)| format!("{domain} {version}")).collect();
    out += &line("producer", if file.producer.is_empty() { "unknown" } else { &file.producer });
    out += &line("opset", format!("{} (ONNX IR version {})", opsets.join(", "), file.ir_version));
    out.extend(file.inputs.iter().map(|info| line("input", info)));
    out.extend(file.outputs.iter().map(|info| line("output", info)));
    out.extend(file.foreign.iter().map(|value| line("unusable", format!("{} is {}", value.name, value.found))));
    let weights = |path: &PathBuf| line("weights", format!("in {} beside the model", path.display()));
    out.extend(file.external_files.keys().map(weights));
    out += &metadata_lines(&file.metadata);
    let operators: Vec<_> = file.operators.iter().map(|(name, number)| format!("{name} {number}")).collect();
    out += &line("operators", operators.join(", "));
    out.extend(refused.map(|refused| line("runs here", format!("no: {refused}"))));
    out += &card_lines(card);
    out.extend(export.map(|export| line("export", format!("{}: {}", export.exporter, export.note))));
    let rejected = |head: &Rejected| line("not", format!("{}: {}", head.family, head.reason));
    out.extend(proposals.rejected.iter().map(rejected));
    out += &fit_lines(&proposals.guesses, &file.outputs);
    out.extend(proposals.better.iter().map(|better| {
        let (count, lines) = (count(better.count, "object"), better.lines.join("`, `"));
        let text = format!(
            "with the card below it finds nothing in an image of a person, and {count} (score up to {:.2}) with `{lines}` \
             under [input]",
            better.highest
        );
        line("try", text)
    }));
    if !proposals.answers.is_empty() {
        let answer = |answer: &Answer| {
            let with = match answer.lines.is_empty() {
                true => "with the card below".to_owned(),
                false => format!("with `{}`", answer.lines.join("`, `")),
            };
            format!("class {} ({:.2}) {with}", answer.class_id, answer.score)
        };
        let answers: Vec<String> = proposals.answers.iter().map(answer).collect();
        let text = format!(
            "a classifier answers to pixels of any range, and this one says for an image of a person: {}; compare with the code that it \
             was trained with",
            answers.join(", ")
        );
        out += &line("compare", text);
    }
    if let Some(guess) = proposals.guesses.first().filter(|_| !card.found) {
        let target = file.file.path.with_extension("toml");
        out += &format!("\nTemplate for a model card, to save as {}:\n\n", target.display());
        out.extend(guess.card.lines().map(|line| escape(line) + "\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_engine::onnx::file::ForeignValue;

    use super::*;

    #[test]
    fn the_sample_model_is_described() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
        let file = OnnxFile::read(&model).unwrap();
        let guesses = guesses(&file);
        let card = Card::for_model(&model, None, &file.metadata, &file.inputs, &file.outputs);
        let card = CardDescription::of(card, |_| Ok(Vec::new()));
        let proposals = Proposals { guesses, ..Proposals::default() };
        let text = text(&file, &card, None, &proposals, None);
        for part in ["input      images f32 [1, 3, 416, 416]", "sha256     c56a49a7981b", "fits       nanodet: "] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        let json = serde_json::to_value(description(&file, &card, None, &proposals, None)).unwrap();
        assert_eq!(json["inputs"][0]["shape"], json!([1, 3, 416, 416]));
        assert_eq!(json["heads"][0]["family"], "nanodet");
    }

    /// A small ONNX file with everything that a description shows.
    fn odd_file() -> OnnxFile {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
        let mut file = OnnxFile::read(&model).unwrap();
        file.file.path = "/models/odd.onnx".into();
        (file.file.size_bytes, file.file.sha256) = (9_999, "ab".to_owned());
        (file.producer, file.ir_version) = (String::new(), 8);
        file.opsets = [("ai.onnx".to_owned(), 17), ("x".to_owned(), 1)].into();
        file.operators = [("Conv".to_owned(), 3), ("x.Nms".to_owned(), 1)].into();
        file.metadata = [("names".to_owned(), "é".repeat(100)), ("task".to_owned(), "n".repeat(101))].into();
        let foreign = |is_output, name: &str, found: &str| ForeignValue {
            is_output,
            name: name.to_owned(),
            found: found.to_owned(),
        };
        file.foreign = vec![foreign(false, "clock", "a sequence"), foreign(true, "late", "a tensor of f64")];
        file.external_files = [("odd.data".into(), Default::default())].into();
        file.outputs.truncate(1);
        file
    }

    fn no_card() -> CardDescription {
        CardDescription::unknown("none: /models/odd.toml does not exist\nsecond line")
    }

    #[test]
    fn a_description_has_a_line_for_each_fact() {
        let file = odd_file();
        let rejected = vec![Rejected { family: "ssd", reason: "its scores reach 9.0".to_owned() }];
        let proposals = Proposals { rejected, ..Proposals::default() };
        let text = text(&file, &no_card(), None, &proposals, Some("no library"));
        let expected = format!(
            "\
file       /models/odd.onnx
size       9999 B
sha256     ab
producer   unknown
opset      ai.onnx 17, x 1 (ONNX IR version 8)
input      {}
output     {}
unusable   clock is a sequence
unusable   late is a tensor of f64
weights    in odd.data beside the model
metadata   names = {}
metadata   task = {}... (101 bytes)
operators  Conv 3, x.Nms 1
runs here  no: no library
card       none: /models/odd.toml does not exist
           second line
not        ssd: its scores reach 9.0
fits       no head of visiond reads the outputs `{1}`
",
            file.inputs[0],
            file.outputs[0],
            "é".repeat(100),
            "n".repeat(100),
        );
        assert_eq!(text, expected);
        let json = serde_json::to_value(description(&file, &no_card(), None, &proposals, None)).unwrap();
        let unusable = [("input", "clock", "a sequence"), ("output", "late", "a tensor of f64")]
            .map(|(direction, name, found)| json!({ "direction": direction, "name": name, "found": found }));
        assert_eq!((&json["unusable"], &json["external_files"]), (&json!(unusable), &json!(["odd.data"])));
        assert_eq!((&json["refused"], &json["rejected"][0]["family"]), (&Value::Null, &json!("ssd")));
    }

    #[test]
    fn a_better_preprocess_and_differing_answers_are_lines_and_a_found_card_needs_no_template() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
        let guesses = guesses(&OnnxFile::read(&model).unwrap());
        let answer = |lines: &[&'static str], class_id, score| Answer { lines: lines.to_vec(), class_id, score };
        let proposals = Proposals {
            guesses,
            better: Some(Better { lines: vec!["scale = 1", "mean = 0"], count: 1, highest: 0.876 }),
            answers: vec![answer(&[], 3, 0.5), answer(&["order = \"bgr\"", "scale = 1"], 7, 0.996)],
            ..Proposals::default()
        };
        let text_with = |card: &CardDescription, proposals: &Proposals| text(&odd_file(), card, None, proposals, None);
        let all = text_with(&no_card(), &proposals);
        for part in [
            "try        with the card below it finds nothing in an image of a person, and 1 object (score up to 0.88) with \
             `scale = 1`, `mean = 0` under [input]\n",
            ": class 3 (0.50) with the card below, class 7 (1.00) with `order = \"bgr\"`, `scale = 1`; compare with the code",
            "\nTemplate for a model card, to save as /models/odd.toml:\n\n",
        ] {
            assert!(all.contains(part), "{part} is missing:\n{all}");
        }
        let mut found = CardDescription::default();
        found.found = true;
        let proposals = Proposals { better: None, answers: Vec::new(), ..proposals };
        let text = text_with(&found, &proposals);
        assert!(!["Template", "try ", "compare "].iter().any(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn a_card_is_described_by_its_origin_head_and_error() {
        let card = |found, wrong: bool, keypoints: &[&str]| {
            let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
            let file = OnnxFile::read(&model).unwrap();
            let card = match found {
                true => Card::for_model(&model, None, &file.metadata, &file.inputs, &file.outputs),
                false => {
                    Card::for_model(Path::new("/no/net.onnx"), None, &BTreeMap::new(), &file.inputs, &file.outputs)
                }
            };
            let names = keypoints.iter().map(|name| (*name).to_owned()).collect();
            CardDescription::of(card, |_| if wrong { Err("it has a mistake".to_owned()) } else { Ok(names) })
        };
        let right = card(true, false, &["nose", "tail"]);
        let lines = card_lines(&right);
        assert!(lines.starts_with("card       ") && lines.ends_with("keypoints  nose, tail\n"), "{lines}");
        assert!(lines.contains(": head nanodet, 80 class names\n"), "{lines}");
        assert!(right.outcome().is_ok() && right.found);
        let wrong = card(true, true, &[]);
        assert!(card_lines(&wrong).ends_with(", 80 class names; wrong, as the error says\n"));
        let error = wrong.outcome().unwrap_err();
        assert_eq!((error.exit, error.message.as_str()), (Exit::Config, "it has a mistake"));
        let none = card(false, false, &[]);
        assert_eq!(card_lines(&none), "card       none: /no/net.toml does not exist\n");
        assert!(none.outcome().is_ok() && !none.found);
        // A card that was named and cannot be read.
        let named = Card::for_model(Path::new("a.onnx"), Some(Path::new("/no/card.toml")), &BTreeMap::new(), &[], &[]);
        let unread = CardDescription::of(named, |_| Ok(Vec::new()));
        assert_eq!(card_lines(&unread), "card       wrong, as the error says\n");
        assert!(unread.outcome().unwrap_err().message.contains("/no/card.toml"));
    }

    #[test]
    fn heads_that_fit_equally_well_are_named_together() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
        let guess = guesses(&OnnxFile::read(&model).unwrap()).remove(0);
        let of = |family, tied| HeadGuess { family, tied, reason: "why".to_owned(), ..guess.clone() };
        let (nanodet, other) = (heads::Family::Nanodet, heads::Family::Ssd);
        let tie = |guesses: &[HeadGuess]| {
            let lines = fit_lines(guesses, &[]);
            assert!(lines.starts_with("fits       nanodet: why\n"), "{lines}");
            lines
                .lines()
                .find_map(|line| line.strip_prefix("tie        ")?.split_once(" fit ").map(|(who, _)| who.to_owned()))
        };
        assert_eq!(tie(&[of(nanodet, true), of(other, true)]).as_deref(), Some("nanodet and ssd"));
        assert_eq!(tie(&[of(nanodet, true), of(nanodet, true)]).as_deref(), Some("these ways to read nanodet"));
        assert_eq!(tie(&[of(nanodet, true), of(other, false)]), None);
        assert_eq!(tie(&[of(nanodet, false)]), None);
    }
}
