//! Public keys: those of the command line, of the list of keys, or of the folder.

use std::path::{Path, PathBuf};
use std::{fs, io};

use visiond_bundle::store::Store;
use visiond_bundle::{TrustedKeys, owner};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::regular_file;

use super::failure::{refuse, refuse_key_list};

/// The folder whose files `*.pub` are trusted.
///
/// Not in `/etc/visiond`, which belongs to the service where its page may change the configuration.
const KEYS: &str = "/etc/visiond-keys";

/// Whose bundles are trusted.
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    /// Trust this public key of minisign, or the one in this file, instead of the list of keys or those in /etc/visiond-keys (repeatable)
    #[arg(short, long = "key", value_name = "KEY")]
    keys: Vec<String>,
}

impl KeyArgs {
    /// Whether keys are named.
    pub fn are_named(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Reads the keys that are named, otherwise those of the store's list of keys, otherwise, without a list, those of the folder. A key
    /// that the list has revoked is none of them.
    pub fn read(&self, store: &Store) -> Result<TrustedKeys, ExitError> {
        let list = store.key_list().map_err(refuse_key_list)?;
        if let Some(list) = &list
            && self.keys.is_empty()
        {
            return Ok(list.trusted());
        }
        let mut texts = Vec::new();
        for key in &self.keys {
            // A key is 56 letters, digits and `+/=`; no path is likely to be one.
            let is_key = TrustedKeys::parse([key.as_str()]).is_ok();
            texts.push(if is_key { key.clone() } else { read_key(Path::new(key))? });
        }
        if self.keys.is_empty() {
            for path in key_files()? {
                owner::check(&path).map_err(refuse)?;
                texts.push(read_key(&path)?);
            }
        }
        let keys = TrustedKeys::parse(texts.iter().map(String::as_str)).map_err(refuse)?;
        Ok(match list {
            Some(list) => list.without_revoked(keys),
            None => keys,
        })
    }
}

/// Reads a file with a public key.
fn read_key(path: &Path) -> Result<String, ExitError> {
    let text = read_text(path)?;
    if TrustedKeys::parse([text.as_str()]).is_ok() {
        return Ok(text);
    }
    // Its text may be a secret key.
    let message = format!("{} has no public key of minisign: name the file that ends with .pub", path.display());
    Err(ExitError::new(Exit::Config, message))
}

/// Returns the trusted files.
fn key_files() -> Result<Vec<PathBuf>, ExitError> {
    let cannot = |error| {
        ExitError::new(Exit::Config, format!("cannot read {KEYS}: {error}; use sudo, or name a key with --key"))
    };
    let entries = match fs::read_dir(KEYS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(cannot)?,
    };
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_, _>>().map_err(cannot)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pub"));
    paths.sort();
    Ok(paths)
}

/// Reads a file of one key.
pub fn read_text(path: &Path) -> Result<String, ExitError> {
    let text = regular_file::open(path).and_then(|file| {
        let mut text = String::new();
        io::Read::read_to_string(&mut io::Read::take(file, 4096), &mut text).map(|_| text)
    });
    text.map_err(|error| ExitError::new(Exit::Config, format!("cannot read the key {}: {error}", path.display())))
}
