//! Whole runs in this process: configuration, sources, the sample model on rten, sinks.

#![allow(clippy::unwrap_used)]

use std::fs;

use serde_json::Value;
use tempfile::TempDir;
use visiond_system::testing::{finishes, wait_until};

use super::*;

/// A run in its own folder.
struct Run {
    folder: TempDir,
    signals: Signals,
    sender: visiond_system::signals::testing::Sender,
}

impl Run {
    fn new() -> Self {
        let (signals, sender) = visiond_system::signals::testing::signals().unwrap();
        Self { folder: tempfile::tempdir().unwrap(), signals, sender }
    }

    fn config(&self, cameras: &str) -> Config {
        Config::parse(&self.text(cameras), Path::new("test.toml")).unwrap()
    }

    fn text(&self, cameras: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        format!(
            "[engine]\nbackend = \"rten\"\n[[model]]\nname = \"nanodet\"\npath = '{}'\n{cameras}\n\
             [[sink]]\ntype = \"file\"\npath = '{}'\n",
            root.join("config/models/nanodet-g-416.onnx").display(),
            self.folder.path().join("out.jsonl").display()
        )
    }

    fn serve(&self, cameras: &str, messages: Option<u64>) -> RunOutcome {
        serve(Path::new("/nowhere"), self.config(cameras), messages, None, &self.signals).unwrap()
    }

    /// Serves until a signal ends it.
    fn serve_at(&self, path: &Path, config: Config) -> RunOutcome {
        serve(path, config, None, None, &self.signals).unwrap()
    }

    fn has_message_of(&self, camera: &str) -> bool {
        let text = fs::read_to_string(self.folder.path().join("out.jsonl")).unwrap_or_default();
        text.contains(&format!("\"camera\":\"{camera}\""))
    }

    fn messages(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("out.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn exit(outcome: &RunOutcome) -> Exit {
    outcome.failure.as_ref().map_or(Exit::Success, |failure| failure.exit)
}

fn pictures() -> String {
    let media = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join("tests/media");
    format!("[[camera]]\nname = \"album\"\nsource = {{ type = \"images\", path = '{}' }}\n", media.display())
}

const PATTERN: &str = "[[camera]]\nname = \"bars\"\n\
    source = { type = \"pattern\", width = 320, height = 240, fps = 25.0 }\n";

#[test]
fn every_picture_of_a_folder_is_processed_once_and_the_run_ends_by_itself() {
    let run = Run::new();
    let outcome = run.serve(&pictures(), None);
    assert_eq!(exit(&outcome), Exit::Success);
    let messages = run.messages();
    let files: Vec<_> = messages.iter().map(|message| message["frame"]["file"].as_str().unwrap()).collect();
    let mut names: Vec<_> = files.iter().map(|file| Path::new(file).file_name().unwrap().to_str().unwrap()).collect();
    let found = messages.iter().find(|message| message["frame"]["file"].as_str().unwrap().ends_with("chelsea.png"));
    assert_eq!(found.unwrap()["detections"][0]["label"], "cat");
    let count = names.len();
    names.dedup();
    assert!(count >= 3 && names.len() == count, "{names:?}");
    let camera = &outcome.summary.cameras[0];
    assert_eq!((camera.captured, camera.published), (count as u64, count as u64));
    assert_eq!(camera.state, "ended");
    assert!(camera.detections.contains_key("cat"), "{:?}", camera.detections);
    assert_eq!(outcome.summary.sinks[0].written, count as u64);
}

#[test]
fn a_run_ends_after_exactly_the_wanted_number_of_frames() {
    let run = Run::new();
    let outcome = run.serve(PATTERN, Some(3));
    assert_eq!(exit(&outcome), Exit::Success);
    let messages = run.messages();
    assert_eq!(messages.len(), 3);
    let numbers: Vec<_> = messages.iter().map(|message| message["sequence"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    for message in &messages {
        let t = |stage: &str| message["timings_us"][stage].as_u64().unwrap();
        let parts: u64 = ["capture", "queue", "preprocess", "infer", "postprocess"].map(t).iter().sum();
        assert!(t("infer") > 0 && t("total") + 5 >= parts, "{message}");
    }
}

#[test]
fn a_camera_that_cannot_be_read_does_not_stop_the_others_and_is_named_at_the_end() {
    let run = Run::new();
    let missing = "[[camera]]\nname = \"attic\"\nsource = { type = \"images\", path = \"/nowhere/at/all\" }\n";
    let outcome = run.serve(&format!("{}{missing}", pictures()), None);
    assert_eq!(exit(&outcome), Exit::Input);
    assert!(outcome.failure.unwrap().message.contains("attic"));
    assert!(run.messages().len() >= 3);
}

#[test]
fn a_signal_ends_a_run_in_order() {
    let run = Arc::new(Run::new());
    let (at_work, config) = (Arc::clone(&run), run.config(PATTERN));
    let serving = std::thread::spawn(move || at_work.serve_at(Path::new("/nowhere"), config));
    wait_until("a message", || run.has_message_of("bars"));
    run.sender.end();
    let outcome = finishes("the end", move || serving.join().unwrap());
    assert_eq!(exit(&outcome), Exit::Success);
    assert_eq!(run.messages().len() as u64, outcome.summary.cameras[0].published);
}

#[test]
fn a_reload_applies_the_file_and_an_invalid_file_changes_nothing() {
    let run = Arc::new(Run::new());
    let path = run.folder.path().join("visiond.toml");
    let (at_work, at, config) = (Arc::clone(&run), path.clone(), run.config(PATTERN));
    let serving = std::thread::spawn(move || at_work.serve_at(&at, config));
    wait_until("a message", || run.has_message_of("bars"));
    // A pipe, so that it is known when it is read.
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    run.sender.reload();
    let (pipe, wrong) = (path.clone(), run.text("nonsense"));
    finishes("the wrong file to be read", move || fs::write(pipe, wrong).unwrap());
    let right = run.folder.path().join("right.toml");
    fs::write(&right, run.text(&PATTERN.replace("bars", "lines"))).unwrap();
    fs::rename(&right, &path).unwrap();
    run.sender.reload();
    wait_until("the other camera", || run.has_message_of("lines"));
    run.sender.end();
    let outcome = finishes("the end", move || serving.join().unwrap());
    assert_eq!(exit(&outcome), Exit::Success);
    let names: Vec<_> = outcome.summary.cameras.iter().map(|camera| camera.name.as_str()).collect();
    assert_eq!(names, ["lines"]);
}

#[test]
fn a_configuration_without_a_running_camera_is_refused() {
    let run = Run::new();
    let config = run.config(&PATTERN.replace("source", "enabled = false\nsource"));
    let failure = serve(Path::new("/nowhere"), config, None, None, &run.signals).err().unwrap();
    assert_eq!(failure.exit, Exit::Config);
}

#[test]
fn the_summary_is_written_to_the_named_file() {
    let run = Run::new();
    let outcome = run.serve(PATTERN, Some(1));
    let path = run.folder.path().join("summary.json");
    write_file(&path, to_json(&outcome.summary, true).unwrap()).unwrap();
    let value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(value["cameras"][0]["published"], 1);
    assert_eq!(value["models"][0]["backend"].as_str().unwrap().split(' ').next(), Some("rten"));
    let nowhere = run.folder.path().join("no/summary.json");
    assert_eq!(write_file(&nowhere, "").unwrap_err().exit, Exit::Output);
}

#[test]
fn the_limit_of_messages_keeps_its_former_name_for_one_version_outside_the_help() {
    let mut command = <Args as clap::Args>::augment_args(clap::Command::new("run"));
    for option in ["--max-messages", "--max-frames"] {
        let parsed = command.clone().try_get_matches_from(["run", option, "3"]).unwrap();
        assert_eq!(parsed.get_one::<u64>("max_messages"), Some(&3), "{option}");
    }
    assert!(!command.render_long_help().to_string().contains("--max-frames"));
}
