//! Reads a bundle from its beginning to its end, in one pass.
//!
//! A stranger may have made it. So the manifest and the signature have a limit, the signature is verified before anything else is
//! unpacked, and every file must be the one that the manifest lists next, with its size and hash.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use sha2::{Digest, Sha256};
use tar::{Archive, EntryType};

use super::error::BundleError;
use super::files::create_folder;
use super::manifest::{BundleFile, Manifest};
use super::signature::{self, Signer, TrustedKeys};
use super::{MANIFEST, SIGNATURE};

/// The largest manifest: 10,000 files with long paths take 2 MiB.
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;

/// The largest signature; minisign's take 400 bytes.
const MAX_SIGNATURE: u64 = 4 << 10;

/// The most memory that a frame of zstd may need to be unpacked.
const MAX_WINDOW: u64 = 32 << 20;

/// The most zeros after the last file: archives are filled up to a multiple of 10 KiB.
const MAX_PADDING: usize = 1 << 20;

/// The first bytes of every frame of zstd.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

type Unpacker = StreamingDecoder<BufReader<File>, FrameDecoder>;

/// A bundle's file, and what its beginning says.
#[derive(Debug, Clone)]
pub struct Bundle {
    path: PathBuf,
    manifest: Manifest,
    /// What is signed.
    text: String,
    signature: Option<String>,
}

impl Bundle {
    /// Reads the beginning of a bundle: its manifest, and its signature without verifying it.
    ///
    /// # Errors
    /// If the file cannot be read, or is no bundle.
    pub fn open(path: &Path) -> Result<Self, BundleError> {
        let (text, signature) = read_head(path)?;
        Self::parse(path, text, signature)
    }

    /// Reads the beginning of a bundle, and verifies its signature before the manifest is parsed. Returns whose it is as well.
    ///
    /// # Errors
    /// As [`Self::open`], or if none of the keys has signed this manifest.
    pub fn open_trusted(path: &Path, keys: &TrustedKeys) -> Result<(Self, Signer), BundleError> {
        let (text, signature) = read_head(path)?;
        let signed = signature.as_deref().ok_or_else(|| BundleError::Unsigned(path.to_owned()))?;
        let signer = keys.verify(path, text.as_bytes(), signed)?;
        Ok((Self::parse(path, text, signature)?, signer))
    }

    fn parse(path: &Path, text: String, signature: Option<String>) -> Result<Self, BundleError> {
        let manifest =
            Manifest::parse(&text).map_err(|reason| BundleError::Manifest { path: path.to_owned(), reason })?;
        Ok(Self { path: path.to_owned(), manifest, text, signature })
    }

    /// The manifest. After [`Self::open`], nothing vouches for it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The claimed signer; `None` without a signature.
    ///
    /// # Errors
    /// If the signature is not in minisign's format.
    pub fn claimed_signer(&self) -> Result<Option<Signer>, BundleError> {
        self.signature.as_deref().map(|signature| signature::signer(&self.path, signature)).transpose()
    }

    /// Reads the whole file and compares it with the manifest; writes nothing.
    ///
    /// # Errors
    /// If a file differs from what the manifest says of it.
    pub fn check_files(&self) -> Result<(), BundleError> {
        self.each_file(|_, from| io::copy(from, &mut io::sink()).map(drop))
    }

    /// Writes the files into `folder`, which must not exist, and syncs them. Only what [`Self::open_trusted`] returned may be unpacked.
    ///
    /// # Errors
    /// As [`Self::check_files`], or if the folder cannot be written.
    pub(crate) fn unpack(&self, folder: &Path) -> Result<(), BundleError> {
        create_folder(folder).map_err(BundleError::io("create", folder))?;
        let mut write_error = None;
        let all = self.each_file(|file, from| {
            let to = folder.join(&file.path);
            let written = write_file(folder, &to, from);
            if let Err(Copying::Write(error)) = &written {
                write_error = Some(BundleError::io("write", &to)(io::Error::new(error.kind(), error.to_string())));
            }
            written.map_err(|(Copying::Read(error) | Copying::Write(error))| error)
        });
        if let Some(error) = write_error {
            return Err(error);
        }
        all?;
        let signature = self.signature.as_deref().unwrap_or_default();
        for (name, text) in [(MANIFEST, self.text.as_str()), (SIGNATURE, signature)] {
            let to = folder.join(name);
            write_file(folder, &to, &mut text.as_bytes())
                .map_err(|(Copying::Read(error) | Copying::Write(error))| BundleError::io("write", &to)(error))?;
        }
        sync_folders(folder).map_err(BundleError::io("sync", folder))
    }

    /// Returns the manifest as it lies in the bundle, which is what a signature is of.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Calls `take` with each file and its contents, and compares size and hash of what it has read.
    pub(crate) fn each_file(
        &self,
        mut take: impl FnMut(&BundleFile, &mut dyn Read) -> io::Result<()>,
    ) -> Result<(), BundleError> {
        let path = &self.path;
        let mut archive = archive(path)?;
        let mut entries = entries(&mut archive, path)?;
        // They were read before, so that only a file that changes meanwhile can differ.
        let head = 1 + usize::from(self.signature.is_some());
        let mut texts = vec![&self.text];
        texts.extend(self.signature.as_ref());
        for (text, name) in texts.into_iter().zip([MANIFEST, SIGNATURE]).take(head) {
            let mut entry = match entries.next() {
                Some(entry) => entry.map_err(|error| damaged(path, name, &error))?,
                None => return Err(wrong(path, format!("{name} is missing"))),
            };
            if read_text(path, &mut entry, name, MAX_MANIFEST)?.as_ref() != Some(text) {
                return Err(wrong(path, format!("{name} has changed while it was read")));
            }
        }
        for file in &self.manifest.files {
            let name = &file.path;
            let mut entry = match entries.next() {
                Some(entry) => entry.map_err(|error| damaged(path, name, &error))?,
                None => return Err(wrong(path, format!("{name} is missing"))),
            };
            check_header(path, &entry, name)?;
            if entry.size() != file.bytes {
                return Err(wrong(path, format!("{name} has {} bytes instead of {}", entry.size(), file.bytes)));
            }
            let mut hashing = Hashing { from: &mut entry, hash: Sha256::new(), bytes: 0 };
            take(file, &mut hashing).map_err(|error| damaged(path, name, &error))?;
            let (hash, bytes) = (hashing.hash.finalize(), hashing.bytes);
            if bytes != file.bytes {
                return Err(wrong(path, format!("{name} ends after {bytes} of {} bytes", file.bytes)));
            }
            if hex(&hash) != file.sha256 {
                return Err(wrong(path, format!("the SHA-256 of {name} is not the manifest's")));
            }
        }
        match entries.next() {
            None => {}
            Some(Ok(_)) => return Err(wrong(path, "it has more files than its manifest lists".to_owned())),
            Some(Err(error)) => return Err(damaged(path, "", &error)),
        }
        check_end(path, archive)
    }
}

/// Checks that nothing follows the archive but the zeros that fill its last block.
fn check_end(path: &Path, archive: Archive<Unpacker>) -> Result<(), BundleError> {
    let mut unpacker = archive.into_inner();
    let (mut buffer, mut zeros) = ([0; 4096], 0);
    loop {
        let read = unpacker.read(&mut buffer).map_err(|error| damaged(path, "", &error))?;
        zeros += read;
        if buffer[..read].iter().any(|byte| *byte != 0) || zeros > MAX_PADDING {
            return Err(wrong(path, "something follows the archive in it".to_owned()));
        }
        if read == 0 {
            break;
        }
    }
    match unpacker.into_inner().read(&mut buffer) {
        Ok(0) => Ok(()),
        Ok(_) => Err(wrong(path, "something follows the compressed archive".to_owned())),
        Err(error) => Err(damaged(path, "", &error)),
    }
}

/// Reads the manifest's text and the signature.
fn read_head(path: &Path) -> Result<(String, Option<String>), BundleError> {
    let mut archive = archive(path)?;
    let mut entries = entries(&mut archive, path)?;
    let mut next = || entries.next().transpose().map_err(|error| damaged(path, "", &error));
    let mut first = next()?.ok_or_else(|| BundleError::NotABundle(path.to_owned()))?;
    let text = read_text(path, &mut first, MANIFEST, MAX_MANIFEST)?;
    let text = text.ok_or_else(|| BundleError::NotABundle(path.to_owned()))?;
    let signature = match next()? {
        Some(mut second) => read_text(path, &mut second, SIGNATURE, MAX_SIGNATURE)?,
        None => None,
    };
    Ok((text, signature))
}

/// Hashes and counts what is read through it.
struct Hashing<'a> {
    from: &'a mut dyn Read,
    hash: Sha256,
    bytes: u64,
}

impl Read for Hashing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Which side of a copy failed.
enum Copying {
    Read(io::Error),
    Write(io::Error),
}

/// Opens the archive in a bundle.
fn archive(path: &Path) -> Result<Archive<Unpacker>, BundleError> {
    // Opening a pipe without a writer would never end.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(BundleError::io("read", path))?;
    let is_file = file.metadata().map_err(BundleError::io("read", path))?.is_file();
    let mut file = BufReader::with_capacity(1 << 16, file);
    if !is_file || !file.fill_buf().map_err(BundleError::io("read", path))?.starts_with(&MAGIC) {
        return Err(BundleError::NotABundle(path.to_owned()));
    }
    let unpacker = StreamingDecoder::new_with_max_window_size(file, MAX_WINDOW);
    unpacker.map(Archive::new).map_err(|error| wrong(path, error.to_string()))
}

/// Returns the archive's entries as they lie there, without the extensions with which an entry could have any name and size.
fn entries<'a>(archive: &'a mut Archive<Unpacker>, path: &Path) -> Result<tar::Entries<'a, Unpacker>, BundleError> {
    archive.entries().map(|entries| entries.raw(true)).map_err(|error| damaged(path, "", &error))
}

/// Checks that an entry is a plain file of this name.
fn check_header<R: Read>(path: &Path, entry: &tar::Entry<'_, R>, name: &str) -> Result<(), BundleError> {
    let found = entry.path_bytes();
    if entry.header().entry_type() != EntryType::Regular {
        return Err(wrong(path, format!("there is a link or a folder where {name} should be")));
    }
    if *found != *name.as_bytes() {
        let found: String = String::from_utf8_lossy(&found).chars().take(100).collect();
        return Err(wrong(path, format!("{found:?} is where {name} should be")));
    }
    Ok(())
}

/// Reads an entry that must have this name and be no larger than `most`; `None` if it has another name.
fn read_text<R: Read>(
    path: &Path,
    entry: &mut tar::Entry<'_, R>,
    name: &str,
    most: u64,
) -> Result<Option<String>, BundleError> {
    if *entry.path_bytes() != *name.as_bytes() || entry.header().entry_type() != EntryType::Regular {
        return Ok(None);
    }
    if entry.size() > most {
        return Err(wrong(path, format!("{name} has {} bytes, and at most {most} are allowed", entry.size())));
    }
    let mut text = String::new();
    entry.read_to_string(&mut text).map_err(|error| damaged(path, name, &error))?;
    if text.len() as u64 != entry.size() {
        return Err(wrong(path, format!("{name} ends after {} of {} bytes", text.len(), entry.size())));
    }
    Ok(Some(text))
}

fn wrong(path: &Path, reason: String) -> BundleError {
    BundleError::Damaged { path: path.to_owned(), reason }
}

fn damaged(path: &Path, name: &str, error: &io::Error) -> BundleError {
    let place = if name.is_empty() { String::new() } else { format!("{name}: ") };
    wrong(path, format!("{place}{error}"))
}

/// Returns bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a new file that every user can read, with its folders below `root`, and syncs it.
fn write_file(root: &Path, path: &Path, from: &mut dyn Read) -> Result<(), Copying> {
    let above = path.ancestors().skip(1).take_while(|folder| *folder != root);
    for folder in above.filter(|folder| !folder.exists()).collect::<Vec<_>>().into_iter().rev() {
        create_folder(folder).map_err(Copying::Write)?;
    }
    let file = File::create_new(path).map_err(Copying::Write)?;
    let mut to = BufWriter::with_capacity(1 << 16, file);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => to.write_all(&buffer[..read]).map_err(Copying::Write)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Copying::Read(error)),
        }
    }
    let file = to.into_inner().map_err(|error| Copying::Write(error.into_error()))?;
    file.set_permissions(fs::Permissions::from_mode(0o644)).map_err(Copying::Write)?;
    file.sync_all().map_err(Copying::Write)
}

/// Syncs a folder and those in it, so that the names of their files survive a power cut.
pub(crate) fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}
