//! The configuration: what can be set, its defaults, and how a file becomes it.

pub mod types;

use std::fmt;
use std::path::{Path, PathBuf};

use types::Config;

/// Everything that is wrong with a file. Its text has every error with its place, and their number in the last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    path: PathBuf,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be read", self.path.display())
    }
}

impl std::error::Error for ConfigErrors {}

impl Config {
    /// Reads a file. Relative paths in it are relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        Err(ConfigErrors { path: path.to_owned() })
    }
}
