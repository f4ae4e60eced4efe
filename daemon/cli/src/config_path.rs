//! Finds the configuration when the command line names none.

use std::path::PathBuf;

use visiond_system::exit::{Exit, ExitError};

/// The paths to try, in this order, when the command line names no configuration.
const DEFAULT_CONFIGS: [&str; 2] = ["/etc/visiond/visiond.toml", "visiond.toml"];

/// Returns the configuration named on the command line, otherwise the first of [`DEFAULT_CONFIGS`] that exists.
///
/// # Errors
/// With [`Exit::Config`] when none is named and none exists.
pub fn config_path(named: Option<PathBuf>) -> Result<PathBuf, ExitError> {
    let found = || DEFAULT_CONFIGS.map(PathBuf::from).into_iter().find(|path| path.exists());
    named.or_else(found).ok_or_else(|| {
        let [system, here] = DEFAULT_CONFIGS;
        let message = format!(
            "cannot find a configuration: neither {system} nor {here} in this folder exists; name one, or create one with \
             `visiond check --print-default-config > visiond.toml`"
        );
        ExitError::new(Exit::Config, message)
    })
}
