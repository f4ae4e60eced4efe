//! The texts that make a configuration: the file of the device, and the settings of a bundle that lie over it.

use std::ops::Range;
use std::path::{self, Path, PathBuf};

use toml::de::DeTable;
use visiond_bundle::store::{FOLDER, Store};
use visiond_bundle::{BundleSettings, SETTINGS};

use super::diagnostics::Diagnostics;
use super::schema::Context;
use super::settings::TakenSettings;
use super::tables::{Part, Section, TableReader};
use super::types::BundlesConfig;

/// The text of a file, and the settings that lie over it, if there are some.
#[derive(Debug)]
pub struct Layers<'t> {
    /// The text of the file.
    pub text: &'t str,
    settings: Option<Over>,
}

/// Settings, and their text behind as many line breaks as the text of the file has bytes, and one: so no place in them is one of the file.
#[derive(Debug)]
struct Over {
    settings: BundleSettings,
    padded: String,
}

impl<'t> Layers<'t> {
    /// Returns a file alone.
    pub fn file(text: &'t str) -> Self {
        Self { text, settings: None }
    }

    /// Returns a file with settings over it, whatever it says about them.
    pub fn with(text: &'t str, settings: BundleSettings) -> Self {
        let pad = text.len() + 1;
        let mut padded = "\n".repeat(pad);
        padded += settings.text.strip_prefix('\u{feff}').unwrap_or(&settings.text);
        Self { text, settings: Some(Over { settings, padded }) }
    }

    /// Returns the text of the file `path` with the installed settings that it names. Reports why there are none.
    pub fn installed(text: &'t str, path: &Path, diagnostics: &mut Diagnostics) -> Self {
        let Some((bundles, place)) = wanted(text, path) else { return Self::file(text) };
        let name = bundles.settings.clone().unwrap_or_default();
        let store = bundles.store();
        match store.settings(&name) {
            Ok(Some(settings)) => Self::with(text, settings),
            Ok(None) => {
                let message = format!(
                    "no version of the bundle {name} is installed in {}, so this file alone is in force: install one with `visiond bundle install`",
                    store.folder("").display()
                );
                diagnostics.warning(place, message);
                Self::file(text)
            }
            Err(error) => {
                diagnostics.error(place, format!("cannot take the settings of the bundle {name}: {error}"));
                Self::file(text)
            }
        }
    }

    /// Returns the place where the text of the settings begins in [`Self::padded`], what errors call it, and the text; `None` without settings.
    pub(crate) fn over(&self) -> Option<(usize, PathBuf, &str)> {
        let Over { settings, padded } = self.settings.as_ref()?;
        let pad = self.text.len() + 1;
        Some((pad, format!("{} {}: {SETTINGS}", settings.name, settings.version).into(), &padded[pad..]))
    }

    /// Returns the text of the settings with their places.
    pub(crate) fn padded(&self) -> Option<&str> {
        self.settings.as_ref().map(|over| over.padded.as_str())
    }

    /// Returns what is known about the settings. `None` without settings, or if they are no TOML.
    pub(crate) fn taken(&self) -> Option<TakenSettings> {
        let Over { settings, padded } = self.settings.as_ref()?;
        let BundleSettings { name, version, signed_by, since, .. } = settings;
        let table = padded[self.text.len() + 1..].parse().ok()?;
        Some(TakenSettings {
            bundle: name.clone(),
            version: *version,
            signed_by: signed_by.clone(),
            since: *since,
            table,
        })
    }
}

/// Returns the table `[bundles]` of a file that names settings, with the place where it does.
fn wanted(text: &str, path: &Path) -> Option<(BundlesConfig, Range<usize>)> {
    let (root, _) = DeTable::parse_recoverable(text);
    let item = root.get_ref().get("bundles")?;
    let table = item.get_ref().as_table()?;
    let place = table.get("settings")?.span();
    // The reader of the whole file reports what is wrong with it.
    let mut unseen = Diagnostics::default();
    let base = path.parent().unwrap_or(Path::new(""));
    let mut context = Context { path: "bundles", note: "", base, diagnostics: &mut unseen, items: Vec::new() };
    let read = TableReader::read(table, item.span(), &mut context, BundlesConfig::read);
    let bundles = BundlesConfig::of(read);
    bundles.settings.is_some().then_some((bundles, place))
}

/// Returns the name of the bundle whose settings a configuration file wants, and the store where it looks for it.
pub fn wanted_settings(text: &str, path: &Path) -> Option<(String, Store)> {
    let (bundles, _) = wanted(text, path)?;
    let store = bundles.store();
    Some((bundles.settings?, store))
}

impl BundlesConfig {
    /// Returns the folder of bundles.
    pub fn store(&self) -> Store {
        let folder = self.directory.as_deref().unwrap_or(Path::new(FOLDER));
        // The process may have another folder than whoever reads the status.
        Store::new(path::absolute(folder).unwrap_or_else(|_| folder.to_owned()))
    }
}
