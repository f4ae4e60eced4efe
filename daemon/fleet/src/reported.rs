//! What a device says of itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use visiond_bundle::rollout::Step;

use crate::desired::{parse, plain};
use crate::error::RecordError;

/// What a device uses and does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// Always 1.
    pub format: u32,
    /// Its group.
    pub group: String,
    /// Its version of visiond.
    pub visiond: String,
    /// When it wrote this, in seconds since 1970 by its own clock.
    pub at_unix_s: u64,
    /// The bundles that it follows.
    pub bundles: BTreeMap<String, BundleReport>,
}

/// What a device does about one bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BundleReport {
    /// The version in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// The version before, to which it can go back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    /// What happens, or what ended last.
    pub step: Step,
    /// The version that the step is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// When the step began, in seconds since 1970 by its own clock.
    pub since_unix_s: u64,
    /// How much of the bundle is there, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Why, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Reported {
    /// Reads a record.
    ///
    /// # Errors
    /// If it is not one, or of another format.
    pub fn parse(key: &str, text: &[u8]) -> Result<Self, RecordError> {
        let mut reported: Self = parse(key, text)?;
        plain(&mut reported.group);
        plain(&mut reported.visiond);
        for reason in reported.bundles.values_mut().filter_map(|report| report.reason.as_mut()) {
            plain(reason);
        }
        Ok(reported)
    }

    /// Returns the record as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        // Numbers and texts can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
