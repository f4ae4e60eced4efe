//! Where a command finds the configuration when the command line names none.

use std::path::{Path, PathBuf};

use visiond_system::exit::{Exit, ExitError};

/// The paths that a command tries in this order when the command line names no configuration.
pub const DEFAULT_CONFIGS: [&str; 2] = ["/etc/visiond/visiond.toml", "visiond.toml"];

/// Returns the configuration named on the command line, else the first of [`DEFAULT_CONFIGS`] that exists.
///
/// # Errors
/// With [`Exit::Config`] when none is named and none exists.
pub fn config_path(named: Option<PathBuf>) -> Result<PathBuf, ExitError> {
    let found = || DEFAULT_CONFIGS.map(Path::new).into_iter().find(|path| path.exists()).map(Path::to_owned);
    named.or_else(found).ok_or_else(|| {
        ExitError::new(
            Exit::Config,
            format!(
                "cannot find a configuration: neither {} nor {} in this folder exists; name one, or create one with \
                 `visiond check --print-default-config > visiond.toml`",
                DEFAULT_CONFIGS[0], DEFAULT_CONFIGS[1]
            ),
        )
    })
}
