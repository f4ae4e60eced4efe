//! What a device does about newer versions of a bundle, for people and for the daemon's status: `rollout.toml` in the bundle's folder
//! of the [store](crate::store).

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::read_bounded_text;

/// The file's name.
pub const ROLLOUT: &str = "rollout.toml";

/// A larger file is broken.
const MAX_BYTES: u64 = 16 << 10;

/// What a device does about newer versions of one bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// Where newer versions come from: a URL or a folder, without a password.
    pub source: String,
    /// What happens now, or what ended last.
    pub step: Step,
    /// The version that the step is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The newest version that the source has, whether it can be used or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<u64>,
    /// When the step began, in seconds since 1970.
    pub since_unix_s: u64,
    /// How much of the bundle is here, in percent; only of [`Step::Fetching`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Why, in one sentence; of what failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A step of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The current version is the newest.
    UpToDate,
    /// The source cannot be reached, or what it has cannot be read; it is asked again.
    Unreachable,
    /// The device may not use the newest version yet: it is not in the rollout's first waves, or outside of its maintenance window.
    Waiting,
    /// The bundle is fetched.
    Fetching,
    /// An engine is built of its model for this machine's GPU.
    Building,
    /// Its signature and contents are verified, and its model proves itself on this machine.
    Proving,
    /// It runs beside the version in use on live frames, and is compared with it.
    Comparing,
    /// The cameras use it, and it goes back by itself if they fare worse.
    Watching,
    /// It was refused before any camera used it.
    Refused,
    /// Cameras used it and fared worse: the version before is current again.
    WentBack,
}

impl Rollout {
    /// Reads what is known about the bundle in this folder. `None` without the file, or if it is broken: it only informs.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Self> {
        toml::from_str(&read_bounded_text(&folder.join(ROLLOUT), MAX_BYTES).ok()?).ok()
    }
}
