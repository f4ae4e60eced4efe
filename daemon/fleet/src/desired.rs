//! What operators want: the version of a bundle for a group, and for a single device.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::RecordError;
use crate::{FORMAT, check_name};

/// [`Desired::admitted`] that admits every device.
pub const EVERY_PLACE: u64 = 1 << 32;

/// The most devices of [`Desired::first`].
pub const MOST_FIRST: usize = 50;

/// The most bytes of a record.
const MOST_BYTES: usize = 64 << 10;

/// The longest text of a record, in characters.
const MOST_CHARS: usize = 500;

/// The version of a bundle that a group should use, and the waves in which its devices get it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Desired {
    /// Always 1.
    pub format: u32,
    /// The version.
    pub version: u64,
    /// The version that the group should use before; a rollback returns to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Whether devices with a newer version go back to this one.
    #[serde(default)]
    pub is_rollback: bool,
    /// A random text, which decides in which order devices take part.
    pub rollout: String,
    /// The devices that take part before all others, at most [`MOST_FIRST`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<String>,
    /// What happens to it.
    pub progress: Progress,
    /// Why it is paused or stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Devices whose [`place`](crate::place) is below this may use the version; place 0 if they are in `first`.
    pub admitted: u64,
    /// Shares of the group, in percent, that rise to 100.
    pub waves: Vec<f64>,
    /// The index of the wave under way in `waves`.
    pub wave: usize,
    /// When that wave began, in seconds since 1970.
    pub wave_since_unix_s: u64,
    /// When enough of its devices had succeeded, in seconds since 1970: its soak begins then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_since_unix_s: Option<u64>,
    /// When the rollout began, in seconds since 1970.
    pub since_unix_s: u64,
    /// Who began it.
    pub by: String,
    /// When it goes on and when it stops.
    pub limits: Limits,
    /// When devices may switch, in their local time; always, if there is none. See [`Window`](crate::Window).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<String>,
}

/// When a rollout goes on to the next wave, and when it stops.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The largest share of admitted devices, in percent, that may fail. One more, and no further device starts.
    pub max_failed_percent: f64,
    /// The smallest share of admitted devices that are online, in percent, that must succeed before the next wave.
    pub min_succeeded_percent: f64,
    /// How long a wave lasts once enough devices have succeeded, in seconds.
    pub soak_s: u64,
    /// A device without a report for so many seconds is offline: a wave does not wait for it.
    pub offline_after_s: u64,
}

/// What happens to a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Admitted devices switch, and the next wave follows.
    Running,
    /// No further device switches until somebody resumes it.
    Paused,
    /// Too many devices failed: no further device switches.
    Stopped,
    /// Every wave has succeeded. Devices that come later use the version as well.
    Done,
}

impl Desired {
    /// Reads a record.
    ///
    /// # Errors
    /// If it is not one, or of another format.
    pub fn parse(key: &str, text: &[u8]) -> Result<Self, RecordError> {
        let mut desired: Self = parse(key, text)?;
        plain(&mut desired.by);
        desired.reason.as_mut().map(plain);
        let rises = desired.waves.windows(2).all(|pair| pair[0] < pair[1]);
        let are_shares = desired.waves.iter().all(|share| *share > 0.0 && *share <= 100.0);
        if !rises || !are_shares || desired.wave >= desired.waves.len() {
            return Err(RecordError::broken(key, "its waves are not shares that rise to 100, or it has no such wave"));
        }
        if desired.first.len() > MOST_FIRST {
            let reason = format!("it has {} devices that come first, and {MOST_FIRST} may", desired.first.len());
            return Err(RecordError::broken(key, reason));
        }
        if desired.version == 0 || desired.admitted > EVERY_PLACE {
            return Err(RecordError::broken(key, "its version or its share is none"));
        }
        Ok(desired)
    }

    /// Returns the record as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        // Numbers and texts can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The version that devices leave, of a rollback.
    pub(crate) fn left(&self) -> Option<u64> {
        self.before.filter(|_| self.is_rollback)
    }

    /// The share of the wave under way, in percent.
    pub fn share(&self) -> f64 {
        self.waves.get(self.wave).copied().unwrap_or(100.0)
    }
}

/// The version of a bundle for one device, whatever its group should use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Always 1.
    pub format: u32,
    /// The version; `None` for the one that the device has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Who set it.
    pub by: String,
    /// When, in seconds since 1970.
    pub since_unix_s: u64,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Pin {
    /// Reads a record.
    ///
    /// # Errors
    /// If it is not one, or of another format.
    pub fn parse(key: &str, text: &[u8]) -> Result<Self, RecordError> {
        let mut pin: Self = parse(key, text)?;
        plain(&mut pin.by);
        pin.reason.as_mut().map(plain);
        Ok(pin)
    }

    /// Returns the record as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        // Numbers and texts can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Returns the key of a group's [`Desired`].
pub fn group_key(group: &str, bundle: &str) -> String {
    format!("group.{group}.{bundle}")
}

/// Returns the key of a device's [`Pin`].
pub fn device_key(device: &str, bundle: &str) -> String {
    format!("device.{device}.{bundle}")
}

/// Returns the group and the bundle of a key.
pub fn parse_group_key(key: &str) -> Option<(&str, &str)> {
    parse_key(key, "group.")
}

/// Returns the device and the bundle of a key.
pub fn parse_device_key(key: &str) -> Option<(&str, &str)> {
    parse_key(key, "device.")
}

fn parse_key<'k>(key: &'k str, prefix: &str) -> Option<(&'k str, &'k str)> {
    let (owner, bundle) = key.strip_prefix(prefix)?.split_once('.')?;
    (check_name(owner).is_ok() && check_name(bundle).is_ok()).then_some((owner, bundle))
}

/// Makes one line of a text that anybody may have written.
pub(crate) fn plain(text: &mut String) {
    *text = text.chars().map(|one| if one.is_control() { ' ' } else { one }).take(MOST_CHARS).collect();
}

/// Reads a record of this format.
pub(crate) fn parse<T: DeserializeOwned>(key: &str, text: &[u8]) -> Result<T, RecordError> {
    /// The key that decides how the others are read.
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    if text.len() > MOST_BYTES {
        return Err(RecordError::broken(key, format!("it has {} bytes, and {MOST_BYTES} are allowed", text.len())));
    }
    let head: Head = serde_json::from_slice(text).map_err(|error| RecordError::broken(key, error))?;
    if head.format != FORMAT {
        return Err(RecordError::Format { key: key.to_owned(), format: head.format });
    }
    serde_json::from_slice(text).map_err(|error| RecordError::broken(key, error))
}
