//! The manifest of a bundle, and what it may say.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use toml::value::Datetime;

use super::engine_build::EngineBuild;

/// The format of bundles with models.
const MODEL_FORMAT: u32 = 1;

/// The format of bundles with settings: a visiond that knows none of them refuses it by its number.
const SETTINGS_FORMAT: u32 = 2;

/// The file of the settings, in every bundle that has some.
pub const SETTINGS: &str = "settings.toml";

/// The largest settings.
pub(crate) const MAX_SETTINGS_BYTES: u64 = 1 << 20;

/// The most files of a bundle, and the most bytes of them all.
const MAX_FILES: usize = 10_000;
pub(crate) const MAX_BYTES: u64 = 64 << 30;

/// A path that a ustar header holds in one field.
const MAX_PATH: usize = 100;

/// The name of the model in an installed bundle; no file of a bundle may have it, nor the card's.
pub const MODEL: &str = "model";

/// The name of the card, beside the model. Only the card itself may have it.
pub const MODEL_CARD: &str = "model.toml";

/// The name of the sidecar of a model that is an engine, beside the model: the record of its build.
pub const MODEL_SIDECAR: &str = "model.json";

/// The folder of an engine that was built on the device, in an installed bundle.
pub(crate) const BUILT: &str = "built";

/// Names that files of a bundle may not have.
const RESERVED: [&str; 5] = [super::MANIFEST, super::SIGNATURE, MODEL, MODEL_SIDECAR, BUILT];

/// What a bundle is and holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// 1 of a bundle with models, 2 of one with settings.
    pub format: u32,
    /// The bundle's name: letters, digits, `-` and `_`.
    pub name: String,
    /// Grows with each bundle of this name.
    pub version: u64,
    /// The oldest visiond that can use it, such as "0.5.0".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_visiond: Option<String>,
    /// Under which terms the model may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// From this day on, an installation warns. It refuses nothing: a board without a clock wakes up in 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Datetime>,
    /// The file of the card; without one, the model's own data must do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// The file of settings for the configurations of devices, in place of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// Whether devices do not compare detections before and after, because the settings change how many there are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes_detections: bool,
    /// The model for different machines: the first that can be loaded is used.
    #[serde(default, rename = "model", skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<BundleModel>,
    /// How a device proves that the model works there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// How a device compares it with the version in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    /// All files, in the archive's order.
    #[serde(rename = "file")]
    pub files: Vec<BundleFile>,
}

/// A model file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleModel {
    /// An ONNX file or a TensorRT engine.
    pub file: String,
    /// How a device with a GPU builds an engine of it, which it then uses instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<EngineBuild>,
}

impl BundleModel {
    /// Returns a model that is used as it is.
    pub fn new(file: String) -> Self {
        Self { file, build: None }
    }
}

/// Pictures, what the model must detect in them, and how near it must come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The file of the expected detections, as `visiond verify --reference` reads it.
    pub reference: String,
    /// The files of the pictures.
    pub pictures: Vec<String>,
    /// The least IoU of two matching boxes on the average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_iou: Option<f64>,
    /// The largest difference of two scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_score_difference: Option<f64>,
    /// The largest share of detections that may differ by more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_outside: Option<f64>,
    /// The longest that the 99th percentile of the time from a frame to its detections may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_latency_p99_ms: Option<f64>,
    /// The most memory that a process which runs the model may have, in bytes; what is on the GPU does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_bytes: Option<u64>,
}

/// What a comparison with the version in use must show, on live frames of the device's cameras.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// The least share of the detections of the version in use that it finds as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_found: Option<f64>,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleFile {
    /// Relative, with slashes: letters, digits, `.`, `-` and `_`.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the contents, in 64 hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    /// Starts the manifest of a bundle of models.
    pub fn new(name: String, version: u64) -> Self {
        Self {
            format: MODEL_FORMAT,
            name,
            version,
            minimum_visiond: None,
            licence: None,
            notes: None,
            expires: None,
            card: None,
            settings: None,
            changes_detections: false,
            models: Vec::new(),
            proof: None,
            live: None,
            files: Vec::new(),
        }
    }

    /// Starts the manifest of a bundle of settings, whose only file is [`SETTINGS`].
    pub fn of_settings(name: String, version: u64) -> Self {
        Self { format: SETTINGS_FORMAT, settings: Some(SETTINGS.to_owned()), ..Self::new(name, version) }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// A text that names the key, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        /// The key that decides how the others are read.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let head: Head = toml::from_str(text).map_err(|error| one_line(&error))?;
        if ![MODEL_FORMAT, SETTINGS_FORMAT].contains(&head.format) {
            return Err(format!(
                "format {} is none that visiond {} reads, which are {MODEL_FORMAT} and {SETTINGS_FORMAT}: update visiond if \
                 the bundle is newer",
                head.format,
                env!("CARGO_PKG_VERSION")
            ));
        }
        let manifest: Self = toml::from_str(text).map_err(|error| one_line(&error))?;
        manifest.validate()?;
        Ok(manifest)
    }

    /// Returns the manifest as it is written and signed.
    pub fn to_text(&self) -> String {
        // Serialising fails for values that TOML cannot hold, of which there are none here.
        toml::to_string(self).unwrap_or_default()
    }

    /// Returns what it has, for people.
    pub(crate) fn kind(&self) -> &'static str {
        if self.settings.is_some() { "settings" } else { "a model" }
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of what an installation needs: all files, and an engine as large as the largest model that one is built of.
    pub fn installed_bytes(&self) -> u64 {
        let is_built = |path: &str| self.models.iter().any(|model| model.file == path && model.build.is_some());
        let engine = self.files.iter().filter(|file| is_built(&file.path)).map(|file| file.bytes).max();
        self.total_bytes().saturating_add(engine.unwrap_or(0))
    }

    /// Whether this program is new enough for it.
    pub fn suits_this_visiond(&self) -> bool {
        let own = env!("CARGO_PKG_VERSION");
        self.minimum_visiond.as_deref().is_none_or(|least| numbers(own) >= numbers(least))
    }

    /// Whether a model has a sidecar `MODEL.json` in the bundle.
    pub(crate) fn has_sidecar(&self, model: &str) -> bool {
        let sidecar = format!("{model}.json");
        self.files.iter().any(|file| file.path == sidecar)
    }

    /// Checks what the types leave open.
    pub(crate) fn validate(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if self.version == 0 {
            return Err("`version` must be at least 1".to_owned());
        }
        if let Some(least) = &self.minimum_visiond
            && numbers(least).is_none()
        {
            return Err(format!("`minimum_visiond` must be like \"0.5.0\", not {least:?}"));
        }
        if self.files.len() > MAX_FILES || self.total_bytes() > MAX_BYTES {
            return Err(format!("it must have at most {MAX_FILES} files of {} GiB in all", MAX_BYTES >> 30));
        }
        let mut folders = BTreeSet::new();
        let mut paths = BTreeSet::new();
        for file in &self.files {
            check_path(&file.path)?;
            if file.path.split('/').next() == Some(MODEL_CARD) && self.card.as_deref() != Some(&file.path) {
                return Err(format!("only the card may be named {MODEL_CARD:?}: rename the other file"));
            }
            if !paths.insert(file.path.as_str()) {
                return Err(format!("the file {:?} must be listed once", file.path));
            }
            folders.extend(Path::new(&file.path).ancestors().skip(1).filter_map(Path::to_str).map(str::to_owned));
            let is_hash =
                file.sha256.len() == 64 && file.sha256.bytes().all(|one| matches!(one, b'0'..=b'9' | b'a'..=b'f'));
            if !is_hash {
                return Err(format!("`sha256` of {:?} must be 64 hexadecimal digits", file.path));
            }
        }
        if let Some(both) = paths.iter().find(|path| folders.contains(**path)) {
            return Err(format!("{both:?} must be a file or a folder, not both"));
        }
        let min_found = self.live.as_ref().and_then(|live| live.min_found);
        if min_found.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err("`min_found` must be between 0 and 1".to_owned());
        }
        self.check_named(&paths)
    }

    /// Checks that everything that the manifest names is among the files.
    fn check_named(&self, paths: &BTreeSet<&str>) -> Result<(), String> {
        if let Some(settings) = &self.settings {
            return self.check_settings(settings, paths);
        }
        if self.format != MODEL_FORMAT {
            return Err(format!("a bundle of format {} must have `settings`", self.format));
        }
        if self.changes_detections {
            return Err("`changes_detections` is a key of bundles with `settings`".to_owned());
        }
        if self.models.is_empty() {
            return Err("it must have a `[[model]]`".to_owned());
        }
        let builds = self.models.iter().filter_map(|model| Some((model, model.build.as_ref()?)));
        builds.clone().try_for_each(|(model, build)| build.validate(&model.file))?;
        let models = self.models.iter().map(|model| ("file", &model.file));
        let models = models.chain(builds.flat_map(|(_, build)| build.files()));
        let card = self.card.iter().map(|card| ("card", card));
        let proof = self.proof.iter();
        let proof = proof
            .flat_map(|it| it.pictures.iter().map(|path| ("pictures", path)).chain([("reference", &it.reference)]));
        for (key, path) in models.chain(card).chain(proof) {
            if !paths.contains(path.as_str()) {
                return Err(format!("`{key}` names {path:?}, which is not among its files"));
            }
        }
        let Some(proof) = &self.proof else { return Ok(()) };
        if proof.pictures.is_empty() {
            return Err("`pictures` must name at least one".to_owned());
        }
        let shares = [
            ("min_iou", proof.min_iou, 1.0),
            ("max_score_difference", proof.max_score_difference, 1.0),
            ("max_outside", proof.max_outside, 1.0),
            ("max_latency_p99_ms", proof.max_latency_p99_ms, 1e6),
        ];
        for (key, value, most) in shares {
            if value.is_some_and(|value| !(0.0..=most).contains(&value)) {
                return Err(format!("`{key}` must be between 0 and {most}"));
            }
        }
        Ok(())
    }
}

impl Manifest {
    /// Checks a bundle of settings, which has nothing else.
    fn check_settings(&self, settings: &str, paths: &BTreeSet<&str>) -> Result<(), String> {
        if self.format != SETTINGS_FORMAT {
            return Err(format!("a bundle with `settings` must have the format {SETTINGS_FORMAT}"));
        }
        if !self.models.is_empty() || self.card.is_some() || self.proof.is_some() || self.live.is_some() {
            return Err("a bundle has either `settings`, or models with a card and a proof".to_owned());
        }
        if settings != SETTINGS || paths.len() != 1 || !paths.contains(SETTINGS) {
            return Err(format!("a bundle of settings must have the file {SETTINGS:?} and no other"));
        }
        if self.total_bytes() > MAX_SETTINGS_BYTES {
            return Err(format!("{SETTINGS} must have at most {} MiB", MAX_SETTINGS_BYTES >> 20));
        }
        Ok(())
    }
}

/// Checks the name of a bundle, which becomes the name of a folder.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_');
    let is_good = (1..=64).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('-');
    if is_good { Ok(()) } else { Err(format!("`name` must be 1 to 64 letters, digits, - and _, not {name:?}")) }
}

/// Checks that a path stays in its folder and can be written in every file system.
fn check_path(path: &str) -> Result<(), String> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '.' | '-' | '_' | '/');
    let stays = Path::new(path).components().all(|part| match part {
        Component::Normal(name) => name.to_str().is_some_and(|name| !name.starts_with(['.', '-'])),
        _ => false,
    });
    let is_canonical = !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "."));
    if path.len() <= MAX_PATH && path.chars().all(is_plain) && stays && is_canonical {
        // Reserved with all that is below them, since they would be folders then.
        let first = path.split('/').next().unwrap_or_default();
        return if RESERVED.contains(&first) {
            Err(format!("{path:?} is a name that visiond uses itself: rename the file"))
        } else {
            Ok(())
        };
    }
    Err(format!(
        "the name {path:?} must have at most {MAX_PATH} letters, digits, `.`, `-`, `_` and `/`, and no part that begins with a dot or a \
         hyphen: rename the file"
    ))
}

/// Returns the three numbers of a version.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?];
    parts.next().is_none().then_some(numbers)
}

/// Returns TOML's error without the lines that show the place.
fn one_line(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join(" ")
}
