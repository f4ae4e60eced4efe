//! The state folder, for data that must outlive a restart.

use std::env;
use std::path::PathBuf;

/// Returns the state folder that systemd created for the service; `None` without systemd.
pub fn folder() -> Option<PathBuf> {
    // systemd separates several StateDirectory= values with colons.
    let folders = env::var_os("STATE_DIRECTORY")?;
    env::split_paths(&folders).next().filter(|path| path.is_absolute())
}
