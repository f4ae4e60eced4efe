//! Signatures of minisign, and who made them.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign_verify::{Error, PublicKey, Signature};

use super::error::BundleError;

/// Public keys whose owners may give this machine models.
#[derive(Debug, Clone, Default)]
pub struct TrustedKeys(Vec<PublicKey>);

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
            PublicKey::from_base64(line).map_err(|_| BundleError::Key(line.chars().take(80).collect()))
        };
        let keys: Vec<_> = texts.into_iter().map(key).collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(BundleError::NoKeys) } else { Ok(Self(keys)) }
    }

    /// Checks that one of the keys has signed `manifest`, the one of the bundle `path`, and returns whose it is.
    pub(crate) fn verify(&self, path: &Path, manifest: &[u8], signature: &str) -> Result<Signer, BundleError> {
        let decoded = decode(path, signature)?;
        let signer = signer(path, signature)?;
        for key in &self.0 {
            match key.verify(manifest, &decoded, false) {
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
    // Of the second line, the bytes after the algorithm.
    let line = signature.lines().nth(1).and_then(|line| STANDARD.decode(line).ok()).unwrap_or_default();
    let id = line.get(2..10).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes).unwrap_or_default();
    Ok(Signer { id: format!("{id:016X}"), comment: decoded.trusted_comment().to_owned() })
}
