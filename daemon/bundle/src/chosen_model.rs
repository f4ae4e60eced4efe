//! Links to the model that this machine uses, under names that do not differ from version to version.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::error::BundleError;
use super::files::remove_if_there;
use super::manifest::{MODEL, MODEL_CARD, MODEL_SIDECAR};

/// Links a model of the bundle in `folder`, its card, and its sidecar `MODEL.json` if it has one, and returns the path of the model.
///
/// # Errors
/// If the folder cannot be written.
pub(crate) fn choose(
    folder: &Path,
    card: Option<&str>,
    model: &str,
    has_sidecar: bool,
) -> Result<PathBuf, BundleError> {
    let card = card.filter(|card| *card != MODEL_CARD);
    let sidecar = format!("{model}.json");
    let sidecar = has_sidecar.then_some(&*sidecar);
    // What another model has left that was chosen before.
    for name in [MODEL_SIDECAR, MODEL].into_iter().chain(card.map(|_| MODEL_CARD)) {
        remove_if_there(&folder.join(name))?;
    }
    for (name, file) in [(MODEL_CARD, card), (MODEL_SIDECAR, sidecar), (MODEL, Some(model))] {
        let Some(file) = file else { continue };
        let link = folder.join(name);
        symlink(file, &link).map_err(BundleError::io("create", &link))?;
    }
    File::open(folder).and_then(|it| it.sync_all()).map_err(BundleError::io("sync", folder))?;
    Ok(folder.join(MODEL))
}
