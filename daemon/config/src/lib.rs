//! The configuration: its keys, their defaults, and how a file is read.
//!
//! - [`types`]: the structs. Each key is declared there only.
//! - `table_macros`, `schema`, `tables`, `kinds`, [`units`]: how declarations become readers and writers.
//! - `validate`: checks across the keys and tables of a file.
//! - [`diagnostics`]: all errors of a file at once, with place, line and remedy.
//! - [`shapes`]: changes the masks, lines and zones of a camera in the text of a file.
//! - [`command`]: settings that commands change while the daemon runs.
//! - [`layers`]: the file, and the settings of a bundle that lie over it.
//! - [`settings`]: what such settings may set, and how they are merged.
//! - [`diff`]: the differences between two configurations.
//! - `redact`: hides secrets in a configuration that is shown.
//! - [`annotated`]: the file with every key, generated from the declarations.

pub mod annotated;
pub mod command;
pub mod diagnostics;
pub mod diff;
mod kinds;
pub mod layers;
mod other_names;
mod redact;
mod schema;
pub mod settings;
pub mod shapes;
mod table_macros;
mod tables;
pub mod types;
pub mod units;
mod validate;

use std::fs::File;
use std::io::Read;
use std::iter;
use std::path::Path;

use toml::Spanned;
use toml::de::DeTable;
use visiond_bundle::{BundleSettings, open_regular};

use diagnostics::{Diagnostic, Diagnostics, Severity};
use layers::Layers;
use schema::Context;
use settings::TakenSettings;
use tables::{Part, Section, TableReader, Union};
use types::{CameraConfig, CameraModelConfig, Config, ModelConfig, SinkConfig, SourceConfig};

pub use diagnostics::ConfigErrors;
pub use kinds::{is_loopback, is_url, parse_word, quote};
pub use schema::{Key, Presence, Shape, Variant, join};
pub use tables::TYPE_DOC;
pub use units::{format_size, parse_duration, parse_size};

/// Maximum size of a configuration in bytes; a larger file is probably not a configuration.
const MAX_BYTES: u64 = 4 << 20;

impl Config {
    /// Reads a file, and the installed settings of the bundle that it names. Relative paths in it start at its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let text = read(path).map_err(|finding| ConfigErrors { path: path.to_owned(), findings: vec![*finding] })?;
        Self::complete(&text, path)
    }

    /// Reads `text` as the content of the file `path`, and the installed settings of the bundle that it names.
    pub fn complete(text: &str, path: &Path) -> Result<Self, ConfigErrors> {
        let mut diagnostics = Diagnostics::default();
        let layers = Layers::installed(text, path, &mut diagnostics);
        Self::read_layers(&layers, path, diagnostics)
    }

    /// Reads `text` as the content of the file `path`, alone.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigErrors> {
        Self::read_layers(&Layers::file(text), path, Diagnostics::default())
    }

    /// Reads `text` as the content of the file `path`, with these settings over it, whatever bundle it names.
    pub fn parse_with(text: &str, path: &Path, settings: BundleSettings) -> Result<Self, ConfigErrors> {
        Self::read_layers(&Layers::with(text, settings), path, Diagnostics::default())
    }

    fn read_layers(layers: &Layers<'_>, path: &Path, mut diagnostics: Diagnostics) -> Result<Self, ConfigErrors> {
        let text = layers.text;
        let document = Document::of(layers, &mut diagnostics);
        let config = document.config(path, &mut diagnostics);
        let findings = diagnostics.into_findings(path, text);
        let harmless = findings.iter().all(|finding| finding.severity == Severity::Warning);
        match config {
            Some(config) if harmless => {
                // `visiond check` also prints the line.
                for Diagnostic { file, line, message, .. } in &findings {
                    log::warn!("{}:{}: {message}", file.display(), line.unwrap_or(1));
                }
                Ok(config)
            }
            _ => Err(ConfigErrors { path: path.to_owned(), findings }),
        }
    }

    /// Returns the models of a camera in its order, at least one, each with its settings there. A camera that names none uses the only
    /// model that has no `on`; validation ensures that.
    pub fn models_of(&self, camera: &CameraConfig) -> impl Iterator<Item = (&ModelConfig, CameraModelConfig)> {
        let plain = |name: &str| CameraModelConfig { name: name.to_owned(), ..CameraModelConfig::default() };
        let listed = match &camera.model {
            Some(name) => vec![plain(name)],
            None if camera.models.is_empty() => {
                let mut of_frames = self.models.iter().filter(|model| model.on.is_none());
                of_frames.next().map(|model| plain(&model.name)).into_iter().collect()
            }
            None => camera.models.clone(),
        };
        let of_camera = |one: CameraModelConfig| CameraModelConfig {
            // `None` is less than any score.
            score_threshold: if one.score_threshold < camera.score_threshold {
                camera.score_threshold
            } else {
                one.score_threshold
            },
            ..one
        };
        listed
            .into_iter()
            .map(of_camera)
            .filter_map(|one| Some((self.models.iter().find(|model| model.name == one.name)?, one)))
    }

    /// Returns the enabled cameras that use `model`.
    pub fn cameras_of(&self, model: &ModelConfig) -> impl Iterator<Item = &CameraConfig> {
        let ours = |camera: &&CameraConfig| self.models_of(camera).any(|(its, _)| its.name == model.name);
        self.cameras.iter().filter(|camera| camera.enabled).filter(ours)
    }

    /// Returns the models that run on the frames of an enabled camera.
    pub fn used_models(&self) -> impl Iterator<Item = &ModelConfig> + Clone {
        self.models.iter().filter(|model| self.cameras_of(model).next().is_some())
    }

    /// Returns the number of the camera's models with models on their detections. Each of them keeps frames longer.
    pub fn cascades_of(&self, camera: &CameraConfig) -> usize {
        self.models_of(camera).filter(|(model, _)| self.crop_models_of(model).next().is_some()).count()
    }

    /// Returns the models that run: those of enabled cameras, each followed by its cascade.
    pub fn running_models(&self) -> Vec<&ModelConfig> {
        self.used_models().flat_map(|model| iter::once(model).chain(self.cascade_of(model))).collect()
    }

    /// Returns the models that run on the detections of `model`.
    pub fn crop_models_of(&self, model: &ModelConfig) -> impl Iterator<Item = &ModelConfig> + Clone {
        self.models.iter().filter(|crop_model| crop_model.on.as_ref() == Some(&model.name))
    }

    /// Returns the models that run on detections of `model`, of these and so on, each before its own.
    pub fn cascade_of(&self, model: &ModelConfig) -> Vec<&ModelConfig> {
        self.crop_models_of(model).flat_map(|one| iter::once(one).chain(self.cascade_of(one))).collect()
    }

    /// Returns the configuration as TOML, with every default written out.
    pub fn to_toml(&self) -> String {
        schema::render(&self.write(), "").trim_start().to_owned()
    }

    /// Returns the configuration as TOML, with `***` in place of values that look like secrets.
    pub fn to_toml_without_secrets(&self) -> String {
        let mut entries = self.write();
        redact::mask(&mut entries);
        schema::render(&entries, "").trim_start().to_owned()
    }
}

/// Returns every key of the file, for the reference.
pub fn keys() -> Vec<Key> {
    Config::keys()
}

/// Reads the text of a file that a person names. It may be a pipe, and then this waits for who writes to it.
///
/// # Errors
/// The file cannot be read, is too large, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, Box<Diagnostic>> {
    File::open(path).map_err(|error| cannot_read(path, &error)).and_then(|file| read_opened(path, file))
}

/// Reads the text of a regular file; never waits.
///
/// # Errors
/// The file cannot be read, is no regular file, is too large, or is not UTF-8.
pub fn read_regular(path: &Path) -> Result<String, Box<Diagnostic>> {
    open_regular(path).map_err(|error| cannot_read(path, &error)).and_then(|file| read_opened(path, file))
}

/// Reads the text of a file that was opened at this path.
///
/// # Errors
/// The file cannot be read, is too large, or is not UTF-8.
pub fn read_opened(path: &Path, file: File) -> Result<String, Box<Diagnostic>> {
    let fail = |message: String| Box::new(Diagnostic::of_file(path, message));
    let mut bytes = Vec::new();
    // A file may grow meanwhile, or say that it has no bytes.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| cannot_read(path, &error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fail(format!("has more than the {MAX_BYTES} bytes of a configuration: name another file")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        fail(format!("line {line} is not UTF-8: save the file as UTF-8"))
    })
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Box<Diagnostic> {
    Box::new(Diagnostic::of_file(path, format!("cannot be read: {error}")))
}

/// Returns what is wrong with settings, whatever file they will lie over. `path` is where errors say they are.
pub fn check_settings(text: &str, path: &Path) -> Vec<Diagnostic> {
    let mut diagnostics = Diagnostics::default();
    let root = parse_toml(text, &mut diagnostics);
    settings::check(root.get_ref(), "", &Config::keys(), &mut diagnostics);
    let mut context =
        Context { path: "", note: "", base: Path::new(""), diagnostics: &mut diagnostics, items: Vec::new() };
    TableReader::read(root.get_ref(), 0..0, &mut context, Config::read);
    // What the settings leave out is in the file.
    diagnostics.drop_absences();
    diagnostics.into_findings(path, text)
}

/// Parses TOML; reports syntax errors and continues after them.
fn parse_toml<'i>(text: &'i str, diagnostics: &mut Diagnostics) -> Spanned<DeTable<'i>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        diagnostics.syntax(span, format!("invalid TOML: {}", error.message()));
    }
    root
}

/// The tables of a configuration, with their places.
pub struct Document<'i> {
    root: Spanned<DeTable<'i>>,
    taken: Option<TakenSettings>,
}

impl<'i> Document<'i> {
    /// Parses a file, and lays settings over it. Reports errors and continues after them: settings with errors are left out.
    pub fn of(layers: &'i Layers<'_>, diagnostics: &mut Diagnostics) -> Self {
        let mut document = Self { root: parse_toml(layers.text, diagnostics), taken: None };
        let (Some((offset, path, text)), Some(padded)) = (layers.over(), layers.padded()) else { return document };
        diagnostics.add_text(offset, path, text);
        let before = diagnostics.error_count();
        let over = parse_toml(padded, diagnostics);
        let keys = Config::keys();
        settings::check(over.get_ref(), "", &keys, diagnostics);
        if diagnostics.error_count() == before {
            settings::merge(document.root.get_mut(), over.get_ref(), "", &keys, diagnostics);
            document.taken = layers.taken();
        }
        document
    }

    /// Reads the configuration; returns `None` if there are errors.
    pub fn config(&self, path: &Path, diagnostics: &mut Diagnostics) -> Option<Config> {
        let before = diagnostics.error_count();
        let base = path.parent().unwrap_or(Path::new(""));
        let mut context = Context { path: "", note: "", base, diagnostics, items: Vec::new() };
        let read = TableReader::read(self.root.get_ref(), 0..0, &mut context, Config::read);
        validate::check(&read, diagnostics);
        if diagnostics.error_count() > before {
            return None;
        }
        let mut config = Config::of(read);
        config.bundles.taken.clone_from(&self.taken);
        for model in &mut config.models {
            model.path = model.own_path.clone().unwrap_or_default();
        }
        for camera in &mut config.cameras {
            match &mut camera.source {
                SourceConfig::Rtsp(rtsp) => rtsp.ffmpeg.clone_from(&config.ffmpeg),
                SourceConfig::Video(video) => video.ffmpeg.clone_from(&config.ffmpeg),
                _ => {}
            }
        }
        for SinkConfig { name, kind, .. } in &mut config.sinks {
            if name.is_empty() {
                Union::name(kind).clone_into(name);
            }
        }
        Some(config)
    }

    /// Returns the tables.
    pub fn tables(&self) -> &DeTable<'i> {
        self.root.get_ref()
    }
}

#[cfg(test)]
mod tests;
