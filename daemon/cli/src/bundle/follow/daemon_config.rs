//! The configuration file of the daemon, as a process of root reads it: the daemon, which may do less, must not make it send files that
//! the daemon cannot read.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use visiond_bundle::open_regular;
use visiond_config::{read_opened, read_regular};
use visiond_system::exit::{Exit, ExitError};

use crate::client::{Client, DaemonAddress, is_same};
use crate::config_path::config_path;

/// Permissions of everybody to read a file, and to pass a folder.
const OTHERS_READ: u32 = 0o004;
const OTHERS_PASS: u32 = 0o001;

/// A configuration file.
#[derive(Debug)]
pub struct DaemonConfig {
    /// The path by which the daemon knows it.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

impl DaemonConfig {
    /// Reads the configuration file of the daemon, or without a daemon the file that it would read.
    ///
    /// # Errors
    /// The daemon does not say which file that is, or names one that it may not be able to read itself, or the file cannot be read.
    pub fn read(client: &Client, named: Option<&Path>) -> Result<Self, ExitError> {
        let invalid = |finding| ExitError::new(Exit::Config, finding);
        let path = match client.config() {
            Err(_) if client.finds_no_listener() => {
                let path = config_path(named.map(Path::to_owned))?;
                let text = read_regular(&path).map_err(invalid)?;
                return Ok(Self { path, text });
            }
            found => found?,
        };
        // The path of the daemon may be a link that leads elsewhere by now, so it is not this one that is read.
        if let Some(known) = known_path(&path, named) {
            let text = read_regular(&known).map_err(invalid)?;
            return Ok(Self { path, text });
        }
        let cannot = |error| ExitError::new(Exit::Config, format!("cannot read {}: {error}", path.display()));
        let file = open_regular(&path).map_err(cannot)?;
        if geteuid().is_root() && !daemon_may_read(&file, owner(&client.address)) {
            let message = format!(
                "cannot use {}, which the daemon says is its configuration: other users cannot read it, so it may be a secret; \
                 name the configuration with --config",
                path.display()
            );
            return Err(ExitError::new(Exit::Config, message));
        }
        let text = read_opened(&path, file).map_err(invalid)?;
        Ok(Self { path, text })
    }
}

/// Returns the file that the command line or visiond itself names, if the daemon names the same one.
fn known_path(path: &Path, named: Option<&Path>) -> Option<PathBuf> {
    match named {
        Some(named) => is_same(path, named).then(|| named.to_owned()),
        None => config_path(None).ok().filter(|default| path.is_absolute() && is_same(path, default)),
    }
}

/// Returns the user who owns the daemon's socket.
fn owner(address: &DaemonAddress) -> Option<u32> {
    let DaemonAddress::Unix(socket) = address else { return None };
    fs::metadata(socket).ok().map(|metadata| metadata.uid())
}

/// Whether the user of the daemon can read an open file: it is that user's, or everybody can.
fn daemon_may_read(file: &File, daemon: Option<u32>) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    if daemon == Some(metadata.uid()) {
        return true;
    }
    // Where it really is, whatever links led there.
    let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else { return false };
    let may_pass = |folder: &Path| fs::metadata(folder).is_ok_and(|folder| folder.mode() & OTHERS_PASS != 0);
    metadata.mode() & OTHERS_READ != 0 && path.ancestors().skip(1).all(may_pass)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_the_daemons_if_its_user_owns_it_or_everybody_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["other.toml", "link.toml"].map(|name| folder.path().join(name));
        fs::write(&path, "").unwrap();
        symlink(&path, &link).unwrap();
        let allow = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let user = fs::metadata(&path).unwrap().uid();
        let may_read = |daemon| daemon_may_read(&open_regular(&link).unwrap(), daemon);
        allow(&path, 0o600);
        assert!(may_read(Some(user)));
        assert!(!may_read(Some(user + 1)) && !may_read(None));
        // Readable, but in a folder that is not.
        allow(&path, 0o644);
        allow(folder.path(), 0o700);
        assert!(!may_read(Some(user + 1)));
        allow(folder.path(), 0o755);
        assert!(may_read(Some(user + 1)) && may_read(None));
        allow(&path, 0o640);
        assert!(!may_read(Some(user + 1)));
    }
}
