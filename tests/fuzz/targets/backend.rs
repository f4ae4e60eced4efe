//! ONNX files through the trial in another process, by the built-in backend; those that pass it, through that backend in this one.
//!
//! Whatever the file does to that process, the trial ends with a reason, and a file that passed loads and runs here.

#![no_main]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use visiond_config::types::{BackendChoice, EngineConfig, ModelConfig};
use visiond_service::loaded_model::LoadedModel;
use visiond_service::model_trial::try_model;
use visiond_system::stop::Stop;

/// A card that fits many outputs.
const CARD: &str = "[input]\nsize = [8, 8]\n[head]\nfamily = \"classifier\"\n";

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("net.toml"), CARD).unwrap();
    folder
});
static STOP: LazyLock<Stop> = LazyLock::new(|| Stop::new().unwrap());

fn check(path: &Path) {
    let model = ModelConfig { name: "net".to_owned(), path: path.to_owned(), max_batch: 1, ..ModelConfig::default() };
    let engine = EngineConfig {
        backend: BackendChoice::Rten,
        threads: 1,
        load_timeout: Duration::from_secs(10),
        load_memory_bytes: 128 << 20,
        ..EngineConfig::default()
    };
    match try_model(&model, &engine, &STOP) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(_) => {
            let loaded = LoadedModel::load(&model, &engine);
            let loaded = loaded.unwrap_or_else(|error| panic!("it passed the trial, and then {error}"));
            loaded.detector().unwrap_or_else(|error| panic!("it passed the trial, and then {error}"));
        }
    }
}

fuzz_target!(init: visiond_fuzz::answer_trial(), |data: &[u8]| {
    let path = FOLDER.path().join("net.onnx");
    std::fs::write(&path, data).unwrap();
    check(&path);
});
