//! The model that a command runs: the one on the command line, otherwise the sample model.

use std::env;
use std::path::{Path, PathBuf};

use visiond_config::types::ModelConfig;
use visiond_system::exit::{Exit, ExitError};

/// The sample model: NanoDet, the 80 COCO classes, 416x416.
const SAMPLE: &str = "nanodet-g-416.onnx";

/// Flags that select a model.
#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// Run this model [default: the sample NanoDet]
    #[arg(short, long)]
    model: Option<PathBuf>,

    /// Use this model card [default: MODEL with the extension .toml, otherwise the model's own metadata]
    #[arg(short, long)]
    card: Option<PathBuf>,
}

impl ModelArgs {
    /// Returns the configuration of the model, with the name of its file.
    ///
    /// # Errors
    /// With [`Exit::Model`] when no model is named and no folder has the sample.
    pub fn config(self) -> Result<ModelConfig, ExitError> {
        let path = self.model.map_or_else(path, Ok)?;
        Ok(ModelConfig { name: stem(&path), path, card: self.card, ..ModelConfig::default() })
    }
}

/// Returns a file's name without folder and extension.
pub fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Returns the path of the sample model, which is too large to be part of the program.
pub fn path() -> Result<PathBuf, ExitError> {
    let exe = env::current_exe().ok();
    first_model(&places(exe.as_deref(), |name| env::var_os(name).map(PathBuf::from)))
}

/// Returns the folders to search, in this order.
fn places(exe: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|path| !path.as_os_str().is_empty());
    let beside_exe =
        |up: usize, rest: &str| exe.and_then(|exe| exe.ancestors().nth(up)).map(|folder| folder.join(rest));
    let data_home = || set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    let mut places: Vec<PathBuf> = [
        set("VISIOND_MODELS"),
        Some(PathBuf::from("config/models")),
        // PREFIX/bin/visiond, PREFIX/share/visiond/models
        beside_exe(2, "share/visiond/models"),
        Some(PathBuf::from("/usr/share/visiond/models")),
        data_home().map(|home| home.join("visiond/models")),
        // A build in the source tree: target/PROFILE/visiond or target/TRIPLE/PROFILE/visiond.
        beside_exe(3, "config/models"),
        beside_exe(4, "config/models"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut seen = std::collections::BTreeSet::new();
    places.retain(|place| seen.insert(place.clone()));
    places
}

fn first_model(places: &[PathBuf]) -> Result<PathBuf, ExitError> {
    let found = places.iter().map(|place| place.join(SAMPLE)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let searched = places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ");
        let message = format!(
            "cannot find the sample model {SAMPLE} in {searched}: name a model with --model, or set the environment variable \
             VISIOND_MODELS to the folder that has the sample"
        );
        ExitError::new(Exit::Model, message)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_environment_comes_first_and_the_source_tree_last() {
        let variable = |name: &str| match name {
            "VISIOND_MODELS" => Some(PathBuf::from("/m")),
            "HOME" => Some(PathBuf::from("/home/a")),
            _ => None,
        };
        let places = places(Some(Path::new("/src/target/release/visiond")), variable);
        let names: Vec<_> = places.iter().map(|place| place.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "/m",
                "config/models",
                "/src/target/share/visiond/models",
                "/usr/share/visiond/models",
                "/home/a/.local/share/visiond/models",
                "/src/config/models",
                "/config/models",
            ]
        );
    }

    #[test]
    fn a_missing_sample_is_reported_with_the_folders_that_were_searched() {
        let folder = tempfile::tempdir().unwrap();
        let places = [folder.path().to_owned()];
        let error = first_model(&places).unwrap_err();
        assert_eq!(error.exit, Exit::Model);
        assert!(error.message.contains(folder.path().to_str().unwrap()), "{}", error.message);
        std::fs::write(folder.path().join(SAMPLE), b"x").unwrap();
        assert_eq!(first_model(&places).unwrap(), folder.path().join(SAMPLE));
    }
}
