//! Makes and signs bundles. The same files give the same bytes, except for the signature.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Cursor, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign::{KeyPair, PublicKey, SecretKey, SecretKeyBox};
use ruzstd::encoding::{CompressionLevel, compress};
use sha2::{Digest, Sha256};

use super::error::BundleError;
use super::manifest::{BundleFile, Manifest};
use super::read::{Bundle, hex};
use super::{MANIFEST, SIGNATURE};

/// Bytes of a secret key of minisign.
const KEY_BYTES: usize = 158;

/// The files of a bundle to make: their paths in it, and where they are.
pub type Sources = Vec<(String, PathBuf)>;

/// Writes a bundle, unsigned. The manifest's list of files is made from `sources`.
///
/// # Errors
/// If the manifest would be invalid, or a file cannot be read or written. An existing bundle stays as it was.
pub fn write(out: &Path, mut manifest: Manifest, sources: &Sources) -> Result<Manifest, BundleError> {
    manifest.files = sources.iter().map(|(path, file)| describe(path, file)).collect::<Result<_, _>>()?;
    manifest.validate().map_err(|reason| BundleError::Invalid { reason })?;
    let text = manifest.to_text();
    write_archive(out, &text, None, |archive| {
        for (described, (_, file)) in manifest.files.iter().zip(sources) {
            let mut from = File::open(file).map_err(BundleError::io("read", file))?;
            let mut same = Same { from: &mut from, hash: Sha256::new(), left: described.bytes };
            append(archive, &described.path, described.bytes, &mut same).map_err(BundleError::io("pack", file))?;
            if same.left > 0 || hex(&same.hash.finalize()) != described.sha256 {
                let error = io::Error::other("it has changed meanwhile: run the command again");
                return Err(BundleError::io("pack", file)(error));
            }
        }
        Ok(())
    })?;
    Ok(manifest)
}

/// Signs the bundle at `path` with a secret key of minisign, in the place of any signature that it has, and returns the signature.
///
/// # Errors
/// If the key cannot be used, or the bundle cannot be read or written; then it stays as it was.
pub fn sign(path: &Path, secret_key: &str) -> Result<(), BundleError> {
    let bundle = Bundle::open(path)?;
    bundle.check_files()?;
    let manifest = bundle.manifest();
    let comment = format!("{} {}", manifest.name, manifest.version);
    let signature = sign_text(secret_key, bundle.text().as_bytes(), &comment)?;
    write_archive(path, bundle.text(), Some(&signature), |archive| {
        bundle.each_file(|file, from| append(archive, &file.path, file.bytes, from))
    })
}

/// Signs a text with a secret key of minisign, and returns the signature as minisign writes it.
pub(crate) fn sign_text(secret_key: &str, text: &[u8], comment: &str) -> Result<String, BundleError> {
    let key = read_key(secret_key)?;
    // A damaged key is noticed by signatures that do not fit its other half.
    let public = PublicKey::from_secret_key(&key).map_err(refuse_key)?;
    let signature = minisign::sign(Some(&public), &key, Cursor::new(text), Some(comment), None).map_err(refuse_key)?;
    Ok(signature.into_string())
}

/// Makes a key pair: the texts of the public key's file and of the secret key's. `encrypted` asks for a password at the terminal.
///
/// # Errors
/// If the system gives no random numbers, or there is no terminal.
pub fn generate_key(encrypted: bool) -> Result<[String; 2], BundleError> {
    let comment = Some("visiond bundles, secret key");
    let pair = if encrypted {
        KeyPair::generate_encrypted_keypair(None).map_err(|error| BundleError::Password(error.to_string()))?
    } else {
        KeyPair::generate_unencrypted_keypair().map_err(refuse_key)?
    };
    let public = pair.pk.to_box().map_err(refuse_key)?.into_string();
    let secret = pair.sk.to_box(comment).map_err(refuse_key)?.into_string();
    Ok([public, secret])
}

fn refuse_key(error: minisign::PError) -> BundleError {
    BundleError::SecretKey(error.to_string())
}

/// Reads a secret key. One with a password asks for it at the terminal.
fn read_key(text: &str) -> Result<SecretKey, BundleError> {
    let line = text.lines().nth(1).unwrap_or_default();
    let bytes = STANDARD.decode(line.trim()).unwrap_or_default();
    // After the algorithm of signatures, that which derives a key from the password: none, or scrypt.
    let key = match bytes.get(2..4).filter(|_| bytes.len() == KEY_BYTES) {
        // `minisign -W` leaves out the checksum of such keys, so it is not asked for.
        Some([0, 0]) => SecretKey::from_bytes(&bytes),
        Some(b"Sc") => {
            let key = SecretKeyBox::from_string(text).and_then(|boxed| boxed.into_secret_key(None));
            return key.map_err(|error| BundleError::Password(error.to_string()));
        }
        _ => return Err(BundleError::SecretKey("it must be one of minisign".to_owned())),
    };
    key.map_err(refuse_key)
}

/// Sizes and hashes a file.
fn describe(path: &str, file: &Path) -> Result<BundleFile, BundleError> {
    let read = |error| BundleError::io("read", file)(error);
    let mut from = File::open(file).map_err(read)?;
    if !from.metadata().map_err(read)?.is_file() {
        return Err(read(io::Error::other("it is not a file: name one")));
    }
    let mut hash = Sha256::new();
    let bytes = io::copy(&mut from, &mut hash).map_err(read)?;
    Ok(BundleFile { path: path.to_owned(), bytes, sha256: hex(&hash.finalize()) })
}

/// A file that must not have changed since it was described.
struct Same<'a> {
    from: &'a mut File,
    hash: Sha256,
    left: u64,
}

impl Read for Same<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.from.read(&mut buffer[..most])?;
        self.hash.update(&buffer[..read]);
        self.left -= read as u64;
        Ok(read)
    }
}

type Packer = tar::Builder<BufWriter<File>>;

/// Appends a file without times and owners. It has as many bytes as the header says, or the archive is given up.
fn append(archive: &mut Packer, path: &str, bytes: u64, from: &mut dyn Read) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_mtime(0);
    archive.append_data(&mut header, path, from)
}

/// Writes manifest, signature and, by `fill`, the files into an archive, and puts it in the place of `out` once it is whole.
fn write_archive(
    out: &Path,
    manifest: &str,
    signature: Option<&str>,
    fill: impl FnOnce(&mut Packer) -> Result<(), BundleError>,
) -> Result<(), BundleError> {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    let beside = |ending: &str| out.with_file_name(format!(".{name}.{}.{ending}", std::process::id()));
    let [unpacked, packed] = [beside("tar"), beside("part")];
    let written = (|| {
        let mut options = fs::OpenOptions::new();
        // The compressor pulls its input, and so does not take what the archive writes.
        let archive = options.read(true).write(true).create_new(true).mode(0o600).open(&unpacked);
        let archive = archive.map_err(BundleError::io("write", &unpacked))?;
        let mut archive = tar::Builder::new(BufWriter::new(archive));
        for (name, text) in [(MANIFEST, Some(manifest)), (SIGNATURE, signature)] {
            let Some(text) = text else { continue };
            let added = append(&mut archive, name, text.len() as u64, &mut text.as_bytes());
            added.map_err(BundleError::io("write", &unpacked))?;
        }
        fill(&mut archive)?;
        let archive = archive.into_inner().and_then(|it| it.into_inner().map_err(io::IntoInnerError::into_error));
        let mut archive = archive.map_err(BundleError::io("write", &unpacked))?;
        archive.rewind().map_err(BundleError::io("read", &unpacked))?;
        let to = File::create_new(&packed).map_err(BundleError::io("write", &packed))?;
        pack(&archive, &to).map_err(BundleError::io("write", &packed))?;
        to.sync_all().map_err(BundleError::io("write", &packed))?;
        fs::rename(&packed, out).map_err(BundleError::io("write", out))
    })();
    for left in [&unpacked, &packed] {
        // The second is gone where all went well.
        let _ = fs::remove_file(left);
    }
    written
}

/// Compresses `from` into `to`.
fn pack(from: &File, to: &File) -> io::Result<()> {
    let mut from = Kept { stream: BufReader::with_capacity(1 << 18, from), error: None };
    let mut to = Kept { stream: BufWriter::with_capacity(1 << 18, to), error: None };
    compress(&mut from, &mut to, CompressionLevel::Fastest);
    match from.error.or(to.error) {
        Some(error) => Err(error),
        None => to.stream.flush(),
    }
}

/// A stream that keeps its first error for later, since the compressor panics at one: reading ends there, and what is written
/// after it is thrown away.
struct Kept<T> {
    stream: T,
    error: Option<io::Error>,
}

impl<T: Read> Read for Kept<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.error.get_or_insert(error);
                Ok(0)
            }
            read => read,
        }
    }
}

impl<T: Write> Write for Kept<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.error.is_none()
            && let Err(error) = self.stream.write_all(bytes)
        {
            self.error = Some(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
