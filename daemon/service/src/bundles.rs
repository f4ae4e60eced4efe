//! The bundles that models of the configuration name: each model gets the folder of one version, which is then loaded whole,
//! whatever is installed meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use visiond_bundle::BundleError;
use visiond_config::types::{BundlesConfig, Config, ModelConfig};

use crate::error::ServiceError;

/// How often something is loaded while installations remove the version that is being loaded.
const MOST_ATTEMPTS: usize = 3;

/// The version of a bundle that a model is.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelBundle {
    /// The name of the bundle.
    pub name: String,
    /// Its version.
    pub version: u64,
    /// The number of the key that signed it, if its signature can be read.
    pub signed_by: Option<String>,
    /// Since when it is the current version.
    pub since: Option<SystemTime>,
    /// The folder of the bundle, with all of its versions.
    pub folder: PathBuf,
    /// The model's file.
    pub model: PathBuf,
}

/// The bundles of models, by the model's name.
pub type Bundles = BTreeMap<String, ModelBundle>;

/// Gives a model the path of its bundle's current version, and returns that version; `None` for a model that is a file.
///
/// # Errors
/// The bundle is not installed, or cannot be read.
pub fn resolve(model: &mut ModelConfig, config: &BundlesConfig) -> Result<Option<ModelBundle>, ServiceError> {
    let Some(name) = &model.bundle else { return Ok(None) };
    let store = config.store();
    let installed = store.current(name).map_err(|error| ServiceError::model(&model.name, error))?;
    if installed.settings().is_some() {
        let (name, version) = (name.clone(), installed.manifest.version);
        return Err(ServiceError::model(&model.name, BundleError::NoModel { name, version }));
    }
    // An installation may have come in between: then this is unknown.
    let since = store.current_since(name).filter(|(folder, _)| *folder == installed.folder).map(|(_, since)| since);
    model.path = installed.model();
    Ok(Some(ModelBundle {
        name: name.clone(),
        version: installed.manifest.version,
        signed_by: installed.signed_by,
        since,
        folder: store.folder(name),
        model: model.path.clone(),
    }))
}

/// Does the same for every model that runs, and returns their bundles. A model that `kept` has keeps its version.
///
/// # Errors
/// Those of [`resolve`].
pub fn resolve_running(config: &mut Config, kept: Option<&Bundles>) -> Result<Bundles, ServiceError> {
    let running: Vec<_> = config.running_models().into_iter().map(|model| model.name.clone()).collect();
    let mut bundles = Bundles::new();
    for model in config.models.iter_mut().filter(|model| running.contains(&model.name)) {
        let known =
            kept.and_then(|kept| kept.get(&model.name)).filter(|known| Some(&known.name) == model.bundle.as_ref());
        let bundle = match known {
            Some(known) => {
                model.path.clone_from(&known.model);
                Some(known.clone())
            }
            None => resolve(model, &config.bundles)?,
        };
        bundles.extend(bundle.map(|bundle| (model.name.clone(), bundle)));
    }
    Ok(bundles)
}

/// Loads something from the models of `config`, once more if it fails and another version of a bundle has become current: what an
/// installation has removed in the meantime is no fault of the new version.
pub fn load_whole<T>(config: &Config, mut load: impl FnMut() -> Result<T, ServiceError>) -> Result<T, ServiceError> {
    let store = config.bundles.store();
    let names: Vec<_> = config.models.iter().filter_map(|model| model.bundle.as_ref()).collect();
    let versions = || names.iter().map(|name| store.current_since(name)).collect::<Vec<_>>();
    let mut attempts = 0;
    loop {
        let before = versions();
        attempts += 1;
        match load() {
            Err(error) if attempts < MOST_ATTEMPTS && versions() != before => {
                log::info!("{error}: trying the bundle that is current now");
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// A store that has versions of "street", of which the last is current.
    fn store_of(versions: &[u64]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for version in versions {
            install(folder.path(), *version);
        }
        folder
    }

    fn install(store: &Path, version: u64) {
        let folder = store.join("street").join(version.to_string());
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "format = 1\nname = \"street\"\nversion = {version}\n[[model]]\nfile = \"m.onnx\"\n[[file]]\npath = \"m.onnx\"\n\
             bytes = 1\nsha256 = \"{}\"\n",
            "0".repeat(64)
        );
        fs::write(folder.join("manifest.toml"), text).unwrap();
        let (link, new) = (store.join("street/current"), store.join("street/.current.new"));
        symlink(version.to_string(), &new).unwrap();
        fs::rename(new, link).unwrap();
    }

    fn config(store: &Path) -> Config {
        let text = format!(
            "[bundles]\ndirectory = {:?}\n[[model]]\nname = \"cars\"\nbundle = \"street\"\n[[model]]\nname = \"off\"\nbundle = \"none\"\n\
             [[camera]]\nname = \"gate\"\nmodel = \"cars\"\nsource = {{ type = \"pattern\" }}\n",
            store.to_str().unwrap()
        );
        Config::parse(&text, Path::new("v.toml")).unwrap()
    }

    #[test]
    fn a_model_that_runs_gets_the_folder_of_one_version_and_keeps_it_if_asked() {
        let store = store_of(&[1]);
        let mut first = config(store.path());
        let bundles = resolve_running(&mut first, None).unwrap();
        assert_eq!(bundles.keys().collect::<Vec<_>>(), ["cars"], "the other model has no camera");
        assert_eq!(first.models[0].path, store.path().join("street/1/model"));
        assert!(bundles["cars"].since.is_some() && bundles["cars"].folder == store.path().join("street"));
        install(store.path(), 2);
        let mut kept = config(store.path());
        assert_eq!(resolve_running(&mut kept, Some(&bundles)).unwrap(), bundles);
        assert_eq!(kept, first);
        let mut second = config(store.path());
        assert_eq!(resolve_running(&mut second, None).unwrap()["cars"].version, 2);
        assert_eq!(second.models[0].path, store.path().join("street/2/model"));
    }

    #[test]
    fn a_bundle_that_is_not_installed_or_broken_is_named_with_the_remedy() {
        let store = store_of(&[1]);
        let error = |config: &mut Config| resolve_running(config, None).unwrap_err().to_string();
        let mut config = config(store.path());
        fs::write(store.path().join("street/1/manifest.toml"), "format = 1").unwrap();
        assert!(error(&mut config).contains("manifest.toml is invalid"), "{}", error(&mut config));
        fs::remove_dir_all(store.path().join("street")).unwrap();
        let wanted = format!(
            "model cars: no bundle named street is installed in {}: install one with `visiond bundle install`",
            store.path().display()
        );
        assert_eq!(error(&mut config), wanted);
    }

    #[test]
    fn a_version_that_is_removed_while_it_is_loaded_makes_place_for_the_current_one() {
        let store = store_of(&[1]);
        let config = config(store.path());
        let gone = || ServiceError::NoCamera;
        let mut attempts = 0;
        let loaded = load_whole(&config, || {
            attempts += 1;
            let bundles = resolve_running(&mut config.clone(), None)?;
            if bundles["cars"].version == 1 {
                install(store.path(), 2);
                return Err(gone());
            }
            Ok(bundles["cars"].version)
        });
        assert_eq!((loaded.unwrap(), attempts), (2, 2));
        let mut attempts = 0;
        let failed = load_whole(&config, || -> Result<(), _> {
            attempts += 1;
            Err(gone())
        });
        assert!(failed.is_err() && attempts == 1, "nothing was installed meanwhile");
        let mut version = 2;
        let mut attempts = 0;
        let failed = load_whole(&config, || -> Result<(), _> {
            version += 1;
            attempts += 1;
            install(store.path(), version);
            Err(gone())
        });
        assert!(failed.is_err() && attempts == MOST_ATTEMPTS);
    }
}
