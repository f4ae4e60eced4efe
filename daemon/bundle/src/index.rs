//! The index of a bundle's published versions: a small file beside them, by which a device learns of the newest one.
//!
//! ```text
//! street/index.toml     the newest version: its file, size and hashes
//! street/7.visiond      version 7, which its maker has signed
//! street/6.visiond      the version before, for devices that still fetch it
//! ```
//!
//! The index has no signature. It says where to read and how many bytes, and its hashes find damage early. Whose bundle it is, and
//! whether its contents are right, is decided by the signature in the bundle.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use visiond_ground::atomic_write::{create, write_atomically};

use super::error::BundleError;
use super::manifest::{MAX_BYTES, check_name};
use super::read::{Bundle, hex};
use super::source::{BundleSource, SourceError};

/// The file's name.
const INDEX: &str = "index.toml";

/// The format that this program reads and writes.
const FORMAT: u32 = 1;

/// Bytes of each part but the last, which may be shorter.
pub const PART_BYTES: u64 = 8 << 20;

/// The largest index: the hashes of 64 GiB take half of it.
const MAX_INDEX_BYTES: u64 = 1 << 20;

/// The newest version of a bundle that is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// Always 1.
    pub format: u32,
    /// The bundle's name.
    pub name: String,
    /// The newest version.
    pub version: u64,
    /// The bundle's file, in the folder of the index.
    pub file: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in 64 hexadecimal digits.
    pub sha256: String,
    /// SHA-256 of each part of 8 MiB, in the same form.
    pub parts: Vec<String>,
}

/// What publishing a bundle changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The index that is now in the folder.
    pub index: Index,
    /// Whether the same bundle was published before.
    pub is_same: bool,
}

impl Index {
    /// Asks a source for the index of a bundle.
    ///
    /// # Errors
    /// If the source cannot be read, or the index is not one of this bundle.
    pub fn ask(source: &mut dyn BundleSource, name: &str) -> Result<Self, SourceError> {
        let path = format!("{name}/{INDEX}");
        let text = source.read_small(&path, MAX_INDEX_BYTES).map_err(|error| match error {
            SourceError::Missing { path, .. } => SourceError::NotPublished { name: name.to_owned(), path },
            other => other,
        })?;
        Self::parse(&text, name).map_err(|reason| SourceError::Index { path, reason })
    }

    /// Asks a source that has an index for each version for that of one.
    ///
    /// # Errors
    /// If the source cannot be read, or the index is not one of this version.
    pub fn ask_version(source: &mut dyn BundleSource, name: &str, version: u64) -> Result<Self, SourceError> {
        let path = Self::path_of_version(name, version);
        let text = source.read_small(&path, MAX_INDEX_BYTES)?;
        let index = Self::parse(&text, name).and_then(|index| match index.version {
            found if found == version => Ok(index),
            found => Err(format!("it is of version {found}")),
        });
        index.map_err(|reason| SourceError::Index { path, reason })
    }

    /// Returns the path of the index of one version, in a source that has one for each.
    pub fn path_of_version(name: &str, version: u64) -> String {
        format!("{name}/{version}.toml")
    }

    /// Returns the index of a signed bundle, with `VERSION.visiond` as its file.
    ///
    /// # Errors
    /// If the bundle is damaged or not signed.
    pub fn of(bundle: &Path) -> Result<Self, BundleError> {
        let (name, version) = check(bundle)?;
        let file = format!("{version}.visiond");
        Ok(Self { file, ..copy(bundle, &mut io::sink(), bundle, &name, version)? })
    }

    /// Returns the index as the text of its file.
    pub fn to_toml(&self) -> String {
        // Hashes and numbers can always be written as TOML.
        toml::to_string(self).unwrap_or_default()
    }

    /// Returns the path of the bundle's file in a source.
    pub fn path(&self) -> String {
        format!("{}/{}", self.name, self.file)
    }

    /// Returns where a part begins and ends in the file.
    pub(crate) fn part(&self, part: usize) -> [u64; 2] {
        let begin = part as u64 * PART_BYTES;
        [begin, begin.saturating_add(PART_BYTES).min(self.bytes)]
    }

    fn parse(text: &[u8], name: &str) -> Result<Self, String> {
        /// The key that decides how the others are read.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let text = str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
        let head: Head = toml::from_str(text).map_err(|error| first_line(&error))?;
        if head.format != FORMAT {
            let own = env!("CARGO_PKG_VERSION");
            return Err(format!("visiond {own} reads format {FORMAT}, not {}", head.format));
        }
        let index: Self = toml::from_str(text).map_err(|error| first_line(&error))?;
        index.validate(name)?;
        Ok(index)
    }

    fn validate(&self, name: &str) -> Result<(), String> {
        if self.name != name {
            return Err(format!("it is of {:?}, not of {name:?}", self.name));
        }
        if self.version == 0 {
            return Err("`version` must be at least 1".to_owned());
        }
        let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '.' | '-' | '_');
        if !(1..=100).contains(&self.file.len())
            || !self.file.chars().all(is_plain)
            || self.file.starts_with(['.', '-'])
        {
            return Err(format!("`file` must be the name of a file beside the index, not {:?}", self.file));
        }
        if !(1..=MAX_BYTES).contains(&self.bytes) {
            return Err(format!("`bytes` must be between 1 and {MAX_BYTES}"));
        }
        let is_hash =
            |text: &String| text.len() == 64 && text.bytes().all(|one| matches!(one, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hash(&self.sha256) || !self.parts.iter().all(is_hash) {
            return Err("hashes must have 64 hexadecimal digits".to_owned());
        }
        if self.parts.len() as u64 != self.bytes.div_ceil(PART_BYTES) {
            let needed = self.bytes.div_ceil(PART_BYTES);
            return Err(format!("it has {} parts, and {} bytes have {needed}", self.parts.len(), self.bytes));
        }
        Ok(())
    }
}

/// Publishes a signed bundle in `folder`: copies its file, then replaces the index. Files of other versions stay, because devices may
/// be reading them. `again` allows a version that is not newer than the one of the index.
///
/// # Errors
/// If the bundle is damaged or not signed, its version is not newer, or the folder cannot be written.
pub fn publish(bundle: &Path, folder: &Path, again: bool) -> Result<Published, BundleError> {
    let (name, version) = check(bundle)?;
    let folder = folder.join(&name);
    create_published(&folder)?;
    let path = folder.join(INDEX);
    let before = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        text => Some(Index::parse(&text.map_err(BundleError::io("read", &path))?, &name)),
    };
    // A broken index is replaced.
    let before = before.and_then(Result::ok);
    let copied = folder.join(format!(".{version}.{}.part", std::process::id()));
    let published = (|| {
        let mut out = BufWriter::new(create(&copied).map_err(BundleError::io("write", &copied))?);
        let mut index = copy(bundle, &mut out, &copied, &name, version)?;
        let synced = out.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| file.sync_all());
        synced.map_err(BundleError::io("write", &copied))?;
        if let Some(before) = before {
            if before.version == version && before.sha256 == index.sha256 && folder.join(&before.file).is_file() {
                return Ok(Published { index: before, is_same: true });
            }
            if before.version >= version && !again {
                return Err(BundleError::NotNewerThanPublished { name, version, newest: before.version });
            }
        }
        // The same version with other contents gets another file, so that the old index has its file until it is replaced.
        let names =
            [format!("{version}.visiond")].into_iter().chain((2..).map(|nth: u32| format!("{version}.{nth}.visiond")));
        index.file = names.into_iter().find(|name| !folder.join(name).exists()).unwrap_or_default();
        let file = folder.join(&index.file);
        open_to_readers(&copied, 0o644);
        fs::rename(&copied, &file).map_err(BundleError::io("write", &file))?;
        // Syncs the folder as well, after both names.
        write_atomically(&path, index.to_toml().as_bytes()).map_err(BundleError::io("write", &path))?;
        open_to_readers(&path, 0o644);
        Ok(Published { index, is_same: false })
    })();
    // Gone where all went well.
    let _ = fs::remove_file(&copied);
    published
}

/// Makes a folder for what is published, with those above it.
pub(crate) fn create_published(folder: &Path) -> Result<(), BundleError> {
    // From the outermost that is missing.
    let missing: Vec<_> =
        folder.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.is_dir()).map(Path::to_owned).collect();
    for folder in missing.into_iter().rev() {
        fs::create_dir(&folder).map_err(BundleError::io("create", &folder))?;
        open_to_readers(&folder, 0o755);
    }
    Ok(())
}

/// Lets every user read what was published, whatever the mask of this process is: a web server runs as a user of its own.
fn open_to_readers(path: &Path, mode: u32) {
    // The file system of a stick may have no modes.
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
}

/// Reads a bundle whole; returns its name and version.
fn check(bundle: &Path) -> Result<(String, u64), BundleError> {
    let opened = Bundle::open(bundle)?;
    if opened.claimed_signer()?.is_none() {
        return Err(BundleError::Unsigned(bundle.to_owned()));
    }
    opened.check_files()?;
    Ok((opened.manifest().name.clone(), opened.manifest().version))
}

/// Copies a bundle to `out`, the file `to`, and returns its index without the file's name.
fn copy(bundle: &Path, out: &mut dyn Write, to: &Path, name: &str, version: u64) -> Result<Index, BundleError> {
    let mut from = File::open(bundle).map_err(BundleError::io("read", bundle))?;
    let (mut all, mut bytes, mut parts) = (Sha256::new(), 0, Vec::new());
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (mut part, mut left) = (Sha256::new(), PART_BYTES);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let read = match from.read(&mut buffer[..most]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(BundleError::io("read", bundle))?,
            };
            if read == 0 {
                break;
            }
            left -= read as u64;
            part.update(&buffer[..read]);
            all.update(&buffer[..read]);
            out.write_all(&buffer[..read]).map_err(BundleError::io("write", to))?;
        }
        if left < PART_BYTES {
            parts.push(hex(&part.finalize()));
        }
        bytes += PART_BYTES - left;
        if left > 0 {
            break;
        }
    }
    let index = Index {
        format: FORMAT,
        name: name.to_owned(),
        version,
        file: String::new(),
        bytes,
        sha256: hex(&all.finalize()),
        parts,
    };
    Ok(index)
}

/// Checks a name that a user gives for a bundle to follow.
///
/// # Errors
/// A sentence that says what names have.
pub fn check_followed(name: &str) -> Result<(), String> {
    check_name(name).map_err(|_| format!("a bundle's name must have 1 to 64 letters, digits, - and _, not {name:?}"))
}

/// Returns TOML's error without the lines that show the place.
fn first_line(error: &toml::de::Error) -> String {
    error.message().lines().next().unwrap_or_default().chars().take(200).collect()
}
