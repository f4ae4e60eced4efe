//! The settings of a bundle, as a device reads them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::error::BundleError;
use super::files::read_bounded;
use super::manifest::MAX_SETTINGS_BYTES;
use super::read::Bundle;
use super::store::{Candidate, Installed, Store};

/// How often the settings are read while installations remove the version that is being read.
const MOST_ATTEMPTS: usize = 3;

/// The settings of one version of a bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct BundleSettings {
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
    /// The text of the settings.
    pub text: String,
}

impl BundleSettings {
    /// Returns settings that are not installed.
    #[must_use]
    pub fn proposed(name: &str, version: u64, text: &str) -> Self {
        let (name, text) = (name.to_owned(), text.to_owned());
        Self { name, version, signed_by: None, since: None, folder: PathBuf::new(), text }
    }
}

impl Store {
    /// Reads the settings of the current version of a bundle; `None` if none is installed.
    ///
    /// # Errors
    /// If they cannot be read, or the bundle has a model instead.
    pub fn settings(&self, name: &str) -> Result<Option<BundleSettings>, BundleError> {
        let mut attempts = 0;
        loop {
            let before = self.current_since(name);
            attempts += 1;
            match self.read_settings(name) {
                Err(BundleError::NotInstalled { .. }) => return Ok(None),
                // An installation has removed what was current at first.
                Err(BundleError::Io { .. }) if attempts < MOST_ATTEMPTS && self.current_since(name) != before => {}
                read => return read.map(Some),
            }
        }
    }

    fn read_settings(&self, name: &str) -> Result<BundleSettings, BundleError> {
        let installed = self.current(name)?;
        let since = self.current_since(name).filter(|(folder, _)| *folder == installed.folder).map(|(_, since)| since);
        let text = read_text(&settings_path(&installed)?)?;
        let Installed { manifest, signed_by, .. } = installed;
        let folder = self.folder(name);
        Ok(BundleSettings { name: manifest.name, version: manifest.version, signed_by, since, folder, text })
    }
}

impl Candidate {
    /// Reads the settings of an unpacked bundle; `None` if it has a model instead.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn settings(&self) -> Result<Option<BundleSettings>, BundleError> {
        let Some(file) = &self.manifest.settings else { return Ok(None) };
        let text = read_text(&self.folder.join(file))?;
        Ok(Some(BundleSettings {
            name: self.manifest.name.clone(),
            version: self.manifest.version,
            signed_by: Some(self.signer.id.clone()),
            since: None,
            folder: self.folder.parent().unwrap_or(Path::new("/")).to_owned(),
            text,
        }))
    }
}

impl Bundle {
    /// Reads the text of the settings in a bundle; `None` if it has a model instead. After [`Self::open`], nothing vouches for it.
    ///
    /// # Errors
    /// If the bundle is damaged, or the settings are not text.
    pub fn settings(&self) -> Result<Option<String>, BundleError> {
        let Some(name) = &self.manifest().settings else { return Ok(None) };
        let mut bytes = Vec::new();
        // The manifest's limit of this file's size holds, because another size is an error.
        self.each_file(|_, from| from.read_to_end(&mut bytes).map(drop))?;
        String::from_utf8(bytes).map(Some).map_err(|_| not_text(Path::new(name)))
    }
}

/// Returns the path of installed settings.
fn settings_path(installed: &Installed) -> Result<PathBuf, BundleError> {
    installed.settings().ok_or_else(|| BundleError::NoSettings {
        name: installed.manifest.name.clone(),
        version: installed.manifest.version,
    })
}

fn read_text(path: &Path) -> Result<String, BundleError> {
    let bytes = read_bounded(path, MAX_SETTINGS_BYTES).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => not_text(path),
        _ => BundleError::io("read", path)(error),
    })?;
    String::from_utf8(bytes).map_err(|_| not_text(path))
}

fn not_text(path: &Path) -> BundleError {
    let most = MAX_SETTINGS_BYTES >> 20;
    BundleError::Damaged {
        path: path.to_owned(),
        reason: format!("settings must be UTF-8 of at most {most} MiB: install the bundle again"),
    }
}
