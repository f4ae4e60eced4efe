//! Signatures of minisign, and who made them.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign_verify::{Error, PublicKey, Signature};

use super::error::BundleError;

/// Public keys whose owners may give this machine models.
#[derive(Debug, Clone, Default)]
pub struct TrustedKeys {
    keys: Vec<KnownKey>,
    /// Keys that verify nothing any more, and whose they were.
    revoked: Vec<(KnownKey, String)>,
}

/// A public key.
#[derive(Debug, Clone)]
pub(crate) struct KnownKey {
    key: PublicKey,
    /// The algorithm, the key's number and the key itself.
    bytes: Vec<u8>,
}

/// What a signature is to a key and a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The key has signed this text.
    Signed,
    /// The signature names the key, and is not of this text.
    Changed,
    /// It is of another key, or not a signature.
    Other,
}

impl KnownKey {
    /// Reads the one line that minisign prints.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let bytes = STANDARD.decode(line).ok().filter(|bytes| bytes.len() == 42)?;
        Some(Self { key: PublicKey::from_base64(line).ok()?, bytes })
    }

    /// Returns the key's number, as minisign shows it.
    pub(crate) fn id(&self) -> String {
        id_of(&self.bytes)
    }

    /// Whether one holder could sign for both: the number or the key itself is the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.bytes[2..10] == other.bytes[2..10] || self.bytes[10..] == other.bytes[10..]
    }

    pub(crate) fn verify(&self, text: &[u8], signature: &str) -> Fit {
        let Ok(signature) = Signature::decode(signature) else { return Fit::Other };
        match self.key.verify(text, &signature, false) {
            Ok(()) => Fit::Signed,
            Err(Error::InvalidSignature) => Fit::Changed,
            Err(_) => Fit::Other,
        }
    }
}

/// Returns the number in the bytes of a key or a signature, after the algorithm.
fn id_of(bytes: &[u8]) -> String {
    let id = bytes.get(2..10).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes).unwrap_or_default();
    format!("{id:016X}")
}

/// Who signed a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// The key's number, as minisign shows it: 16 hexadecimal digits.
    pub id: String,
    /// What the signer wrote beside the signature. It is as trustworthy as the signature.
    pub comment: String,
}

impl TrustedKeys {
    /// Reads keys: each the one line that minisign prints, or the text of the file that it writes.
    ///
    /// # Errors
    /// [`BundleError::Key`], with the text of the first that is no key; [`BundleError::NoKeys`] if there are none.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, BundleError> {
        let key = |text: &str| {
            let line =
                text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("untrusted comment:"));
            let line = line.unwrap_or_default();
            KnownKey::parse(line).ok_or_else(|| BundleError::Key(line.chars().take(80).collect()))
        };
        let keys: Vec<_> = texts.into_iter().map(key).collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(BundleError::NoKeys) } else { Ok(Self { keys, revoked: Vec::new() }) }
    }

    /// Returns the same keys without those that are revoked, each of which comes with the name of its holder.
    pub(crate) fn without(mut self, revoked: Vec<(KnownKey, String)>) -> Self {
        self.keys.retain(|key| !revoked.iter().any(|(revoked, _)| revoked.is_same(key)));
        self.revoked = revoked;
        self
    }

    /// Checks that one of the keys has signed `manifest`, the one of the bundle `path`, and returns whose it is.
    pub(crate) fn verify(&self, path: &Path, manifest: &[u8], signature: &str) -> Result<Signer, BundleError> {
        let decoded = decode(path, signature)?;
        let signer = signer(path, signature)?;
        if let Some((_, name)) = self.revoked.iter().find(|(key, _)| key.id() == signer.id) {
            return Err(BundleError::Revoked { path: path.to_owned(), id: signer.id, name: name.clone() });
        }
        for key in &self.keys {
            match key.key.verify(manifest, &decoded, false) {
                Ok(()) => return Ok(signer),
                Err(Error::UnexpectedKeyId) => {}
                Err(Error::InvalidSignature) => return Err(BundleError::Forged { path: path.to_owned() }),
                Err(error) => return Err(BundleError::Signature { path: path.to_owned(), reason: error.to_string() }),
            }
        }
        Err(BundleError::Untrusted { path: path.to_owned(), id: signer.id })
    }
}

fn decode(path: &Path, signature: &str) -> Result<Signature, BundleError> {
    Signature::decode(signature)
        .map_err(|error| BundleError::Signature { path: path.to_owned(), reason: error.to_string() })
}

/// Returns who claims to have signed: nothing has verified it.
pub fn signer(path: &Path, signature: &str) -> Result<Signer, BundleError> {
    let decoded = decode(path, signature)?;
    let line = signature.lines().nth(1).and_then(|line| STANDARD.decode(line).ok()).unwrap_or_default();
    Ok(Signer { id: id_of(&line), comment: decoded.trusted_comment().to_owned() })
}
