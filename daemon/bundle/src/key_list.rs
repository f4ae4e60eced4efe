//! A list of the keys that devices trust, which a part of its keys changes together.
//!
//! ```text
//! keys.toml           the list: a version, the keys, how many of them sign the next list, and the keys that are revoked
//! keys.toml.minisig   its signatures, one after another, each as minisign writes it
//! ```
//!
//! A device takes a list only if it is newer than the one before, and signed by as many keys of the one before as that one demands. So
//! one stolen key changes nothing, and one lost key stops nothing. The first list of a device is signed by its own keys, and root
//! installs it. The list lies in the [store](crate::store), which `visiond bundle follow` can write, and is replaced by one rename.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use visiond_ground::atomic_write::write_atomically;

use super::error::BundleError;
use super::files::create_if_missing;
use super::index::create_published;
use super::owner;
use super::signature::{Fit, KnownKey, TrustedKeys, signer};
use super::source::{BundleSource, FolderSource, SourceError};
use super::store::Store;
use super::write::sign_text;

/// The file's name, in the store and in a source.
pub const KEY_LIST: &str = "keys.toml";

/// What follows the name of a list in the name of its signatures.
const SIGNATURES: &str = ".minisig";

/// Held by the process that replaces the list.
const LOCK: &str = ".keys.lock";

/// The format that this program reads and writes.
const FORMAT: u32 = 1;

/// The most keys of a list, and as many that are revoked.
const MAX_KEYS: usize = 64;

/// The largest list, and the largest file of signatures.
const MAX_BYTES: u64 = 64 << 10;

/// The most versions that a source may be ahead: each costs a request.
const MAX_STEPS: u64 = 1000;

/// Keys that are trusted, and how many of them change that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyList {
    /// Always 1.
    pub format: u32,
    /// Grows with each list.
    pub version: u64,
    /// How many of the keys must sign the next list.
    pub threshold: usize,
    /// Each of them may sign bundles.
    #[serde(rename = "key")]
    pub keys: Vec<ListedKey>,
    /// Keys that verify nothing any more, in this list and in all that follow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<ListedKey>,
}

/// A key of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedKey {
    /// Whose it is, for people.
    pub name: String,
    /// The public key: the line of 56 characters of its file.
    pub key: String,
}

/// Why a list of keys is not made, published or used.
#[derive(Debug, thiserror::Error)]
pub enum KeyListError {
    /// A file cannot be read or written, or is not root's; or a secret key cannot be used.
    #[error(transparent)]
    Files(#[from] BundleError),
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The text is no list, or one that no device may use.
    #[error("{path} is no valid list of keys: {reason}; correct the list, and have it signed again")]
    Invalid {
        /// The file.
        path: String,
        /// The key of the list, and what is wrong with it.
        reason: String,
    },
    /// Too few keys have signed it.
    #[error(
        "{path} is signed by {have} of the keys of {list}, and {needed} must sign it: have it signed by more of {names} with \
         `visiond bundle sign --keys`"
    )]
    TooFewSignatures {
        /// The file.
        path: String,
        /// How many keys have signed it.
        have: usize,
        /// How many must.
        needed: usize,
        /// The list whose keys count.
        list: String,
        /// The names of the keys that have not signed.
        names: String,
    },
    /// A signature of one of the keys is of another text.
    #[error(
        "the signature of {name} does not fit {path}: the list was changed after it was signed; sign it again, or copy it again"
    )]
    Changed {
        /// The file.
        path: String,
        /// The name of the key.
        name: String,
    },
    /// The list is not newer.
    #[error(
        "{path} is version {version}, which is not newer than version {newest} {place}: give the list a higher version"
    )]
    NotNewer {
        /// The file.
        path: String,
        /// Its version.
        version: u64,
        /// The version that it would replace.
        newest: u64,
        /// Where that one is.
        place: &'static str,
    },
    /// A key that was revoked would be trusted again, or be forgotten.
    #[error(
        "{path} must have the key of {name} in `revoked`, as version {before} has: add it there, and remove it from the keys"
    )]
    Unrevoked {
        /// The file.
        path: String,
        /// The name of the key.
        name: String,
        /// The version of the list before.
        before: u64,
    },
    /// The source is further ahead than can be read.
    #[error(
        "the source has version {newest} of the list of keys, and version {version} is installed: install the newest by hand"
    )]
    TooFarAhead {
        /// The version that is installed.
        version: u64,
        /// The source's version.
        newest: u64,
    },
}

/// What a source has changed.
#[derive(Debug)]
pub struct KeysUpdated {
    /// The list that is installed now, if it is another one than before.
    pub list: Option<KeyList>,
    /// Why a newer one of the source was not.
    pub refused: Option<KeyListError>,
}

impl ListedKey {
    /// Returns the key's number, as minisign shows it; empty if it is no key, which no valid list has.
    pub fn id(&self) -> String {
        KnownKey::parse(&self.key).map(|key| key.id()).unwrap_or_default()
    }
}

impl KeyList {
    /// Reads a list. `path` is for errors.
    fn parse(text: &[u8], path: &str) -> Result<Self, KeyListError> {
        /// The key that decides how the others are read.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let invalid = |reason| KeyListError::Invalid { path: path.to_owned(), reason };
        let text = str::from_utf8(text).map_err(|_| invalid("it is not text".to_owned()))?;
        let of_toml = |error: toml::de::Error| invalid(error.message().lines().collect::<Vec<_>>().join(" "));
        let head: Head = toml::from_str(text).map_err(of_toml)?;
        if head.format != FORMAT {
            let own = env!("CARGO_PKG_VERSION");
            return Err(invalid(format!("visiond {own} reads format {FORMAT}, not {}", head.format)));
        }
        let list: Self = toml::from_str(text).map_err(of_toml)?;
        list.validate().map_err(invalid)?;
        Ok(list)
    }

    /// Checks what the types leave open.
    fn validate(&self) -> Result<(), String> {
        if self.version == 0 {
            return Err("`version` must be at least 1".to_owned());
        }
        if self.keys.len() > MAX_KEYS || self.revoked.len() > MAX_KEYS {
            return Err(format!("it must have at most {MAX_KEYS} keys, and as many in `revoked`"));
        }
        if self.threshold == 0 || self.threshold > self.keys.len() {
            return Err(format!(
                "`threshold` must be between 1 and its {} keys, not {}: otherwise no list could ever follow it",
                self.keys.len(),
                self.threshold
            ));
        }
        let mut seen: Vec<KnownKey> = Vec::new();
        let mut names = BTreeSet::new();
        for ListedKey { name, key } in self.keys.iter().chain(&self.revoked) {
            if !(1..=64).contains(&name.len()) || name.chars().any(char::is_control) {
                return Err(format!("`name` must have 1 to 64 characters, not {name:?}"));
            }
            if !names.insert(name) {
                return Err(format!("the name {name:?} must be used once"));
            }
            let known = KnownKey::parse(key).ok_or_else(|| {
                format!("the key of {name} must be the line of 56 characters of its .pub file, which begins with RW")
            })?;
            // One holder of a key must not count twice, nor a revoked key at all.
            if seen.iter().any(|other| other.is_same(&known)) {
                return Err(format!("the key of {name} must be listed once, as a key or in `revoked`"));
            }
            seen.push(known);
        }
        Ok(())
    }

    /// Returns the keys that may sign bundles.
    pub fn trusted(&self) -> TrustedKeys {
        // They were parsed when the list was read.
        self.without_revoked(TrustedKeys::parse(self.keys.iter().map(|key| key.key.as_str())).unwrap_or_default())
    }

    /// Returns these keys without those that the list has revoked.
    pub fn without_revoked(&self, keys: TrustedKeys) -> TrustedKeys {
        let revoked = self.revoked.iter().filter_map(|one| Some((KnownKey::parse(&one.key)?, one.name.clone())));
        keys.without(revoked.collect())
    }

    /// Checks that this list, the one of `path`, may follow `before`.
    fn check_follows(&self, before: &Self, path: &str, place: &'static str) -> Result<(), KeyListError> {
        if self.version <= before.version {
            let (version, newest) = (self.version, before.version);
            return Err(KeyListError::NotNewer { path: path.to_owned(), version, newest, place });
        }
        let is_same = |a: &ListedKey, b: &ListedKey| match (KnownKey::parse(&a.key), KnownKey::parse(&b.key)) {
            (Some(a), Some(b)) => a.is_same(&b),
            _ => false,
        };
        let is_revoked = |key: &ListedKey| self.revoked.iter().any(|other| is_same(other, key));
        match before.revoked.iter().find(|key| !is_revoked(key)) {
            None => Ok(()),
            Some(key) => {
                let (name, before) = (key.name.clone(), before.version);
                Err(KeyListError::Unrevoked { path: path.to_owned(), name, before })
            }
        }
    }
}

/// A list with its signatures, as they lie in files or in a source. Nothing has verified them.
#[derive(Debug, Clone)]
pub struct SignedKeyList {
    path: String,
    text: Vec<u8>,
    list: KeyList,
    signatures: String,
}

impl SignedKeyList {
    /// Reads a list and the signatures beside it, if there are any.
    ///
    /// # Errors
    /// If a file cannot be read, or is no list.
    pub fn open(path: &Path) -> Result<Self, KeyListError> {
        let text = read_small(path)?;
        let signatures = match read_small(&signatures_of(path)) {
            Err(BundleError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            signatures => signatures?,
        };
        Self::parse(path.display().to_string(), text, &signatures)
    }

    fn parse(path: String, text: Vec<u8>, signatures: &[u8]) -> Result<Self, KeyListError> {
        let list = KeyList::parse(&text, &path)?;
        let signatures = String::from_utf8_lossy(signatures).into_owned();
        Ok(Self { path, text, list, signatures })
    }

    /// The list.
    pub fn list(&self) -> &KeyList {
        &self.list
    }

    /// Returns the names of the keys of `list` that have signed this one.
    ///
    /// # Errors
    /// A signature of one of these keys is of another text.
    pub fn signed_by<'a>(&self, list: &'a KeyList) -> Result<Vec<&'a str>, KeyListError> {
        let (names, changed) = self.signers(list);
        match changed {
            None => Ok(names),
            Some(name) => Err(KeyListError::Changed { path: self.path.clone(), name: name.to_owned() }),
        }
    }

    /// Returns the names of the keys of `list` that have signed this one, and of one whose signature does not fit.
    fn signers<'a>(&self, list: &'a KeyList) -> (Vec<&'a str>, Option<&'a str>) {
        let (mut names, mut changed) = (Vec::new(), None);
        // Each key counts once, however often it has signed.
        for ListedKey { name, key } in &list.keys {
            let Some(key) = KnownKey::parse(key) else { continue };
            let fits: Vec<_> = signatures(&self.signatures).map(|one| key.verify(&self.text, &one)).collect();
            if fits.contains(&Fit::Signed) {
                names.push(name.as_str());
            } else if fits.contains(&Fit::Changed) {
                changed = Some(name.as_str());
            }
        }
        (names, changed)
    }

    /// Checks that as many keys of `list` have signed this one as `list` demands.
    fn check_signed(&self, list: &KeyList) -> Result<(), KeyListError> {
        let (names, changed) = self.signers(list);
        if names.len() >= list.threshold {
            return Ok(());
        }
        if let Some(name) = changed {
            return Err(KeyListError::Changed { path: self.path.clone(), name: name.to_owned() });
        }
        let missing = list.keys.iter().map(|key| key.name.as_str()).filter(|name| !names.contains(name));
        Err(KeyListError::TooFewSignatures {
            path: self.path.clone(),
            have: names.len(),
            needed: list.threshold,
            list: format!("version {}", list.version),
            names: missing.collect::<Vec<_>>().join(", "),
        })
    }

    /// Checks that this list may replace `before`, or be the first one.
    fn check(&self, before: Option<&KeyList>, place: &'static str) -> Result<(), KeyListError> {
        if let Some(before) = before {
            self.list.check_follows(before, &self.path, place)?;
        }
        self.check_signed(before.unwrap_or(&self.list))
    }
}

impl Store {
    /// Returns the list of keys that is installed; `None` if there is none, and keys are trusted one by one.
    ///
    /// # Errors
    /// If the list cannot be read, or somebody else could have changed it. Then no key is to be trusted.
    pub fn key_list(&self) -> Result<Option<KeyList>, KeyListError> {
        let path = self.folder(KEY_LIST);
        let text = match read_small(&path) {
            Err(BundleError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        owner::check(&path)?;
        KeyList::parse(&text, &path.display().to_string()).map(Some)
    }

    /// Installs a list of keys by hand: the first one, or one that the installed one allows. Returns the one that is installed then.
    ///
    /// # Errors
    /// If the list is not newer, too few keys have signed it, or the store cannot be written. Then everything is as before.
    pub fn install_key_list(&self, path: &Path) -> Result<KeyList, KeyListError> {
        let new = SignedKeyList::open(path)?;
        let _lock = self.lock_keys()?;
        let installed = self.key_list()?;
        if installed.as_ref() == Some(&new.list) {
            return Ok(new.list);
        }
        new.check(installed.as_ref(), "which is installed here")?;
        self.write_key_list(&new)?;
        Ok(new.list)
    }

    /// Installs the newest list of a source that the installed one allows, by way of those between them. Without an installed list, and
    /// without one in the source, nothing changes.
    ///
    /// # Errors
    /// If the source or the store fails. Then everything is as before.
    pub fn update_key_list(&self, source: &mut dyn BundleSource) -> Result<KeysUpdated, KeyListError> {
        let mut updated = KeysUpdated { list: None, refused: None };
        let Some(installed) = self.key_list()? else { return Ok(updated) };
        let Some(newest_text) = read_from(source, KEY_LIST)? else { return Ok(updated) };
        let newest = KeyList::parse(&newest_text, KEY_LIST)?.version;
        if newest > installed.version.saturating_add(MAX_STEPS) {
            return Err(KeyListError::TooFarAhead { version: installed.version, newest });
        }
        let mut last: Option<SignedKeyList> = None;
        for version in installed.version.saturating_add(1)..=newest {
            let mut path = version_path(version);
            let text = match read_from(source, &path)? {
                None if version == newest => {
                    path = KEY_LIST.to_owned();
                    Some(newest_text.clone())
                }
                text => text,
            };
            // Numbers may be left out.
            let Some(text) = text else { continue };
            let signatures = read_from(source, &format!("{path}{SIGNATURES}"))?.unwrap_or_default();
            let before = last.as_ref().map_or(&installed, |last| &last.list);
            let checked = SignedKeyList::parse(path, text, &signatures)
                .and_then(|new| new.check(Some(before), "which is installed here").map(|()| new));
            match checked {
                Ok(new) => (last, updated.refused) = (Some(new), None),
                // A later one may be signed by more of the keys.
                Err(error) => updated.refused = Some(error),
            }
        }
        if let Some(new) = last {
            let _lock = self.lock_keys()?;
            // Another process may have replaced it: the next call sees to that.
            if self.key_list()?.as_ref() == Some(&installed) {
                self.write_key_list(&new)?;
                updated.list = Some(new.list);
            }
        }
        Ok(updated)
    }

    fn write_key_list(&self, new: &SignedKeyList) -> Result<(), BundleError> {
        write_readable(&self.folder(KEY_LIST), &new.text)
    }

    /// Keeps other processes from replacing the list.
    fn lock_keys(&self) -> Result<File, BundleError> {
        let path = self.folder(LOCK);
        let folder = self.folder("");
        owner::check(&folder)?;
        create_if_missing(folder)?;
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(BundleError::io("open", &path))?;
        // Held for as long as a file takes.
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| BundleError::io("lock", &path)(error.into()))?;
        Ok(lock)
    }
}

/// Signs a list, beside the signatures that it has; one of the same key is replaced. Returns the number of the key.
///
/// # Errors
/// If the list is invalid, the key cannot be used, or the file of signatures cannot be written.
pub fn sign_key_list(path: &Path, secret_key: &str) -> Result<String, KeyListError> {
    let signed = SignedKeyList::open(path)?;
    let comment = format!("keys {}", signed.list.version);
    let signature = sign_text(secret_key, &signed.text, &comment)?;
    let id = |text: &str| signer(path, text).map(|signer| signer.id);
    let own = id(&signature)?;
    // One that cannot be read is of no use.
    let others = signatures(&signed.signatures).filter(|one| id(one).is_ok_and(|id| id != own));
    let all: String = others.chain([signature]).map(|one| format!("{}\n", one.trim_end())).collect();
    let beside = signatures_of(path);
    write_atomically(&beside, all.as_bytes()).map_err(BundleError::io("write", &beside))?;
    Ok(own)
}

/// Publishes a list in `folder`, where [`Store::update_key_list`] reads it: under its version, which stays, and as the newest.
///
/// # Errors
/// If the list could not follow the one that is published there, too few keys have signed it, or the folder cannot be written.
pub fn publish_key_list(path: &Path, folder: &Path) -> Result<KeyList, KeyListError> {
    // A list that is refused leaves no folder.
    SignedKeyList::open(path)?;
    create_published(folder)?;
    let (list, files) = key_list_files(path, &mut FolderSource(folder.to_owned()))?;
    for (name, text) in files {
        write_readable(&folder.join(name), &text)?;
    }
    Ok(list)
}

/// Paths in a source, and what is written there.
pub type KeyListFiles = Vec<(String, Vec<u8>)>;

/// Returns a list with the files by which a source has it, in the order in which they must be written; none if the source has it.
///
/// # Errors
/// If the list could not follow the one that the source has, too few keys have signed it, or the source cannot be read.
pub fn key_list_files(path: &Path, source: &mut dyn BundleSource) -> Result<(KeyList, KeyListFiles), KeyListError> {
    let new = SignedKeyList::open(path)?;
    let before = match read_from(source, KEY_LIST)? {
        None => None,
        Some(text) => {
            let signatures = read_from(source, &format!("{KEY_LIST}{SIGNATURES}"))?.unwrap_or_default();
            Some(SignedKeyList::parse(KEY_LIST.to_owned(), text, &signatures)?)
        }
    };
    match &before {
        Some(before) if before.text == new.text => return Ok((new.list, Vec::new())),
        Some(before) => new.check(Some(&before.list), "which is published there")?,
        // Which keys must have signed it is known to devices only.
        None if signatures(&new.signatures).next().is_none() => new.check_signed(&new.list)?,
        None => {}
    }
    // The newest last, so that a device that reads it finds what it needs.
    let names = [version_path(new.list.version), KEY_LIST.to_owned()];
    let files = names.into_iter().flat_map(|name| {
        [(format!("{name}{SIGNATURES}"), new.signatures.clone().into_bytes()), (name, new.text.clone())]
    });
    let files = files.collect();
    Ok((new.list, files))
}

/// Where the list of a version is in a source.
fn version_path(version: u64) -> String {
    format!("keys-{version}.toml")
}

fn signatures_of(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(SIGNATURES);
    path.into()
}

/// Returns each signature of a file of several.
fn signatures(text: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    // No list has more keys.
    lines.chunks(4).take(2 * MAX_KEYS).map(|lines| lines.join("\n")).collect::<Vec<_>>().into_iter()
}

/// Reads a file of a source; `None` if it does not exist.
fn read_from(source: &mut dyn BundleSource, path: &str) -> Result<Option<Vec<u8>>, SourceError> {
    match source.read_small(path, MAX_BYTES) {
        Err(SourceError::Missing { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Reads a small file.
fn read_small(path: &Path) -> Result<Vec<u8>, BundleError> {
    // Opening a pipe without a writer would never end.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let read = File::options().read(true).custom_flags(flags).open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::other(format!(
                "it has more than {MAX_BYTES} bytes, so it is no list of keys: name one"
            )));
        }
        Ok(bytes)
    });
    read.map_err(BundleError::io("read", path))
}

/// Replaces a file that every user can read, whatever the mask of this process is, by one rename.
fn write_readable(path: &Path, bytes: &[u8]) -> Result<(), BundleError> {
    let written = write_atomically(path, bytes);
    // The file system of a stick may have no modes.
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o644));
    written.map_err(BundleError::io("write", path))
}

#[cfg(test)]
mod tests;
