//! A bundle that its maker tries before anybody has signed it.

use std::fs;
use std::path::{Path, PathBuf};

use super::chosen_model::choose;
use super::error::BundleError;
use super::manifest::Manifest;
use super::read::Bundle;

/// A bundle that is unpacked beside its file, as a device unpacks it; removed at the end.
#[derive(Debug)]
pub struct Trial {
    /// What it is.
    pub manifest: Manifest,
    /// Its folder.
    pub folder: PathBuf,
}

impl Trial {
    /// Unpacks a bundle that this user has just made: nothing else vouches for it.
    ///
    /// # Errors
    /// If the bundle is damaged, needs a newer visiond, or the folder beside it cannot be written.
    pub fn unpack(path: &Path) -> Result<Self, BundleError> {
        let bundle = Bundle::open(path)?;
        let manifest = bundle.manifest().clone();
        if !manifest.suits_this_visiond() {
            let needed = manifest.minimum_visiond.unwrap_or_default();
            return Err(BundleError::TooOld { name: manifest.name, version: manifest.version, needed });
        }
        let mut folder = path.as_os_str().to_owned();
        folder.push(".proof");
        // From here on, whatever happens, the folder is removed.
        let trial = Self { manifest, folder: folder.into() };
        bundle.unpack(&trial.folder)?;
        Ok(trial)
    }

    /// Chooses a model of the manifest, as a device does, and returns its path.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn choose(&self, model: &str) -> Result<PathBuf, BundleError> {
        choose(&self.folder, self.manifest.card.as_deref(), model, self.manifest.has_sidecar(model))
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // It is hidden, and its owner can remove it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
