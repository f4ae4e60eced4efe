//! The error of a setting that cannot be used, such as a file that it names.

use crate::credentials::CredentialError;
use crate::preflight::Certainty;

/// Why a setting cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SettingError {
    /// The setting's key that is to blame.
    pub key: &'static str,
    /// The reason, with a remedy.
    pub reason: String,
    /// Whether the service would fail in the same way.
    pub certainty: Certainty,
}

impl SettingError {
    /// Creates an error that lasts until the user fixes it.
    pub fn certain(key: &'static str, reason: impl Into<String>) -> Self {
        Self { key, reason: reason.into(), certainty: Certainty::Certain }
    }

    /// Creates the error of a secret that `key` names.
    pub fn of_secret(key: &'static str, error: &CredentialError) -> Self {
        Self { key, reason: error.to_string(), certainty: error.certainty() }
    }
}
