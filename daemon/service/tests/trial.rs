//! Trials of models in a separate process. Like visiond, this program starts itself again for each trial, so it has no test
//! harness and checks for that first.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use visiond_config::types::{BackendChoice, EngineConfig, ModelConfig};
use visiond_service::ServiceError;
use visiond_service::model_trial::{CardTrial, answer, load, try_cards, try_model};
use visiond_system::stop::Stop;

/// The most cards of a trial, and their length together.
const CARDS: usize = 12;
const CARDS_BYTES: usize = 64 << 10;

type Test = (&'static str, fn(&ModelConfig, &str, &EngineConfig, &Stop));

const TESTS: [Test; 4] = [
    ("a_sound_model_is_known_by_what_was_tried", a_sound_model_is_known_by_what_was_tried),
    ("a_model_that_does_not_load_is_refused_in_its_own_words", a_model_that_does_not_load_is_refused_in_its_own_words),
    ("as_many_cards_are_tried_as_a_trial_takes_and_no_more", as_many_cards_are_tried_as_a_trial_takes_and_no_more),
    ("a_trial_ends_with_the_daemon", a_trial_ends_with_the_daemon),
];

fn main() -> ExitCode {
    if let Some(exit) = answer(std::env::args_os()) {
        return ExitCode::from(exit.code());
    }
    println!("\nrunning {} tests", TESTS.len());
    for (name, test) in TESTS {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm");
        for file in ["tiny.onnx", "tiny.toml"] {
            fs::copy(source.join(file), folder.path().join(file)).unwrap();
        }
        let path = folder.path().join("tiny.onnx");
        let model = ModelConfig { name: "tiny".to_owned(), path, ..ModelConfig::default() };
        let engine = EngineConfig { backend: BackendChoice::Rten, threads: 1, ..EngineConfig::default() };
        let card = fs::read_to_string(folder.path().join("tiny.toml")).unwrap();
        // A panic ends the program.
        test(&model, &card, &engine, &Stop::new().unwrap());
        println!("test {name} ... ok");
    }
    println!("\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out", TESTS.len());
    ExitCode::SUCCESS
}

fn a_sound_model_is_known_by_what_was_tried(model: &ModelConfig, _: &str, engine: &EngineConfig, stop: &Stop) {
    let tried = try_model(model, engine, stop).unwrap();
    let loaded = load(model, engine, stop).unwrap();
    assert_eq!(tried.as_ref(), Some(&loaded.engine.file().sha256));
}

fn a_model_that_does_not_load_is_refused_in_its_own_words(
    model: &ModelConfig,
    card: &str,
    engine: &EngineConfig,
    stop: &Stop,
) {
    fs::write(&model.path, "no model").unwrap();
    let refused = try_model(model, engine, stop).unwrap_err().to_string();
    assert!(refused.starts_with("model tiny: ") && refused.contains("tiny.onnx"), "{refused}");
    assert_eq!(try_cards(model, engine, &[card.to_owned()], stop).unwrap_err().to_string(), refused);
    fs::remove_file(&model.path).unwrap();
    let missing = try_model(model, engine, stop).unwrap_err().to_string();
    assert!(missing.contains("no model at "), "{missing}");
}

fn as_many_cards_are_tried_as_a_trial_takes_and_no_more(
    model: &ModelConfig,
    card: &str,
    engine: &EngineConfig,
    stop: &Stop,
) {
    let tried = |cards: &[String]| try_cards(model, engine, cards, stop).unwrap();
    let (own, wrong) = (card.to_owned(), "nonsense".to_owned());
    let two = tried(&[own.clone(), wrong]).unwrap();
    assert!(matches!(two[..], [CardTrial::Ran { .. }, CardTrial::Contradicted(_)]), "{two:?}");
    assert_eq!(tried(&vec![own.clone(); CARDS]).map(|tried| tried.len()), Some(CARDS));
    let long = |bytes: usize| own.clone() + &"#".repeat(bytes - own.len());
    assert_eq!(tried(&[long(CARDS_BYTES)]).map(|tried| tried.len()), Some(1));
    for cards in [vec![], vec![own.clone(); CARDS + 1], vec![long(CARDS_BYTES + 1)]] {
        assert_eq!(tried(&cards), None);
    }
}

fn a_trial_ends_with_the_daemon(model: &ModelConfig, card: &str, engine: &EngineConfig, stop: &Stop) {
    stop.raise();
    assert!(matches!(try_model(model, engine, stop), Err(ServiceError::Ending)));
    assert!(matches!(try_cards(model, engine, &[card.to_owned()], stop), Err(ServiceError::Ending)));
}
