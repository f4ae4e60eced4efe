//! The proof of settings: the configuration of this machine, with them over it, is valid.

use std::path::{Path, PathBuf};

use visiond_bundle::store::Store;
use visiond_bundle::{BundleSettings, SETTINGS};
use visiond_config::ConfigErrors;
use visiond_config::diagnostics::Severity;
use visiond_config::layers::wanted_settings;
use visiond_config::types::Config;
use visiond_config::{check_settings, read_regular};
use visiond_service::reload::ProposedSettings;
use visiond_system::exit::{Exit, ExitError};

use crate::check;
use crate::client::Client;

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsFault {
    /// The configuration file takes no settings of this bundle.
    #[error("{0}")]
    Unwanted(String),
    /// The configuration file has errors of its own, for which no settings are to blame.
    #[error("the configuration has errors without these settings as well: correct it: {0}")]
    File(String),
    /// The settings.
    #[error("the configuration would be invalid: {0}; make a new version")]
    Settings(String),
}

impl From<SettingsFault> for ExitError {
    fn from(fault: SettingsFault) -> Self {
        Self::new(Exit::Config, fault)
    }
}

/// Checks that the configuration file takes its settings from this bundle of the store, and returns the file's text.
///
/// # Errors
/// [`SettingsFault::Unwanted`], or the file cannot be read.
pub fn wanted(config: &Path, name: &str, store: &Store) -> Result<String, SettingsFault> {
    let text = read_regular(config).map_err(|finding| SettingsFault::File(finding.to_string()))?;
    wanted_in(&text, config, name, store).map(|()| text)
}

/// Checks the same of the text of the configuration file.
///
/// # Errors
/// [`SettingsFault::Unwanted`].
pub fn wanted_in(text: &str, config: &Path, name: &str, store: &Store) -> Result<(), SettingsFault> {
    let shown = config.display();
    match wanted_settings(text, config) {
        Some((wanted, its_store)) if wanted == name => {
            let [own, its] = [store, &its_store].map(|store| real(&store.folder("")));
            if own != its {
                let message = format!("the bundles of {shown} are in {}: use --store", its.display());
                return Err(SettingsFault::Unwanted(message));
            }
            Ok(())
        }
        other => {
            let but = other.map_or(String::new(), |(other, _)| format!(", but of {other}"));
            Err(SettingsFault::Unwanted(format!(
                "{shown} takes no settings of the bundle {name}{but}: write `settings = \"{name}\"` into its table [bundles]"
            )))
        }
    }
}

/// Returns the folder without links.
fn real(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// Checks settings without any configuration.
///
/// # Errors
/// [`SettingsFault::Settings`].
pub fn check_alone(settings: &BundleSettings) -> Result<(), SettingsFault> {
    let path = PathBuf::from(format!("{} {}: {SETTINGS}", settings.name, settings.version));
    match check_settings(&settings.text, &path).into_iter().find(|it| it.severity == Severity::Error) {
        Some(finding) => Err(SettingsFault::Settings(first_line(&finding.to_string()))),
        None => Ok(()),
    }
}

/// Checks that the configuration, whose text is that of the file `config`, is valid with these settings; a daemon that runs is asked
/// as well, because it knows which models and programs it has.
///
/// # Errors
/// [`SettingsFault::Settings`] or [`SettingsFault::File`], or the daemon cannot be asked.
pub fn prove(
    text: &str,
    config: &Path,
    settings: &BundleSettings,
    daemon: Option<&Client>,
) -> Result<Result<(), SettingsFault>, ExitError> {
    if let Err(errors) = Config::parse_with(text, config, settings.clone()) {
        return Ok(Err(match Config::parse(text, config) {
            Err(alone) => SettingsFault::File(first_error(&alone)),
            Ok(_) => SettingsFault::Settings(first_error(&errors)),
        }));
    }
    let Some(daemon) = daemon else { return Ok(Ok(())) };
    let ask = |of_bundle: &str| {
        let settings =
            ProposedSettings { bundle: settings.name.clone(), version: settings.version, text: of_bundle.to_owned() };
        let preview = check::preview_text(daemon, config, text.to_owned(), Some(settings))?;
        Ok::<_, ExitError>(preview.error.filter(|_| !preview.valid).map(|error| first_line(&error)))
    };
    Ok(match ask(&settings.text)? {
        None => Ok(()),
        Some(error) => match ask("")? {
            Some(alone) => Err(SettingsFault::File(alone)),
            None => Err(SettingsFault::Settings(error)),
        },
    })
}

/// Returns the first error with its place.
fn first_error(errors: &ConfigErrors) -> String {
    let first = errors.findings.iter().find(|finding| finding.severity == Severity::Error);
    first.map_or_else(|| errors.to_string(), |finding| first_line(&finding.to_string()))
}

/// Returns an error without the lines that show its place.
fn first_line(error: &str) -> String {
    error.lines().next().unwrap_or_default().to_owned()
}
