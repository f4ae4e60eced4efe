//! Where a command finds the configuration when the command line names none.

use std::path::{Path, PathBuf};

use visiond_system::exit::{Exit, ExitError};

/// Where a configuration is looked for when none is named, first found first.
pub const DEFAULT_CONFIGS: [&str; 2] = ["/etc/visiond/visiond.toml", "visiond.toml"];

/// The configuration named on the command line, else the first of [`DEFAULT_CONFIGS`] that exists.
pub fn config_path(named: Option<PathBuf>) -> Result<PathBuf, ExitError> {
    let found = || DEFAULT_CONFIGS.map(Path::new).into_iter().find(|path| path.exists()).map(Path::to_owned);
    named.or_else(found).ok_or_else(|| {
        ExitError::new(
            Exit::Config,
            format!(
                "no configuration: neither {} nor {} in this folder exists; name one, or write one with \
                 `visiond check --print-default-config > visiond.toml`",
                DEFAULT_CONFIGS[0], DEFAULT_CONFIGS[1]
            ),
        )
    })
}
