//! TLS with a camera: decides which certificates to accept, and explains why one is rejected.
//!
//! Few cameras have a certificate that a CA signed, or one with the right name. So there are three ways to trust one: a CA or the
//! camera's own certificate (`ca`), its fingerprint (`fingerprint`), or no check at all (`insecure`). The first two prove that the
//! other end has the certificate's key; the last proves nothing.
//!
//! A certificate that is trusted by its bytes is parsed by [`PublicKey`] alone, because some cameras have certificates that the
//! web's rules forbid, such as those of version 1.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, alg_id};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use sha2::{Digest, Sha256};
use visiond_config::types::{Fingerprint, MjpegConfig, RtspConfig, SnapshotConfig};
use visiond_system::certificate_fault::{CertificateFault, WallClock};
use visiond_system::preflight::Certainty;
use visiond_system::regular_file;

use super::source::{SourceError, SourceFault};

/// Why a signature cannot be checked with a certificate that is trusted by its bytes.
const UNUSABLE_KEY: &str = "the camera's certificate has a key that visiond cannot check: make a new one in the camera, with an \
                            RSA key of 2048 bits or more, or set `insecure = true`";

/// Why the handshake failed, and the remedy.
pub const NO_TLS: &str = "no TLS at that port: use the URL's scheme without the s, or the TLS port";

/// The keys of a camera's configuration that decide which certificates to accept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsKeys {
    /// A PEM file with the CA, or with the camera's own certificate. Without it, the system's CAs count.
    pub ca: Option<PathBuf>,
    /// SHA-256 of the only certificate to accept.
    pub fingerprint: Option<Fingerprint>,
    /// Accept any certificate.
    pub insecure: bool,
}

impl From<&RtspConfig> for TlsKeys {
    fn from(RtspConfig { ca, fingerprint, insecure, .. }: &RtspConfig) -> Self {
        Self { ca: ca.clone(), fingerprint: *fingerprint, insecure: *insecure }
    }
}

impl From<&MjpegConfig> for TlsKeys {
    fn from(MjpegConfig { ca, fingerprint, insecure, .. }: &MjpegConfig) -> Self {
        Self { ca: ca.clone(), fingerprint: *fingerprint, insecure: *insecure }
    }
}

impl From<&SnapshotConfig> for TlsKeys {
    fn from(SnapshotConfig { ca, fingerprint, insecure, .. }: &SnapshotConfig) -> Self {
        Self { ca: ca.clone(), fingerprint: *fingerprint, insecure: *insecure }
    }
}

impl TlsKeys {
    /// Checks that the `ca` file can be used.
    pub fn check(&self) -> Option<SourceFault> {
        let path = self.ca.as_deref()?;
        let (error, certainty) = certificates(path).err()?;
        Some(SourceFault { key: "ca", error: SourceError::permanent(error.message), certainty })
    }
}

/// TLS with one camera.
#[derive(Debug)]
pub struct CameraTls {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
    host: String,
    /// The URL that the camera redirected to, as messages show it, if this host is contacted because of a redirect.
    redirect: Option<String>,
    verifier: Arc<CameraVerifier>,
}

impl CameraTls {
    /// Reads the `ca` file or the system's CAs each time, so that a renewed certificate takes effect. `host` is the URL's.
    ///
    /// # Errors
    /// The file or the host cannot be used.
    pub fn new(keys: &TlsKeys, host: &str) -> Result<Self, SourceError> {
        let wrong = |reason: &str| SourceError::permanent(format!("cannot set up TLS with {host}: {reason}"));
        // In a URL, an IPv6 address has brackets.
        let name = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| wrong("it is not a name that a certificate can have: correct the host in `url`"))?;
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let trust = match (keys.insecure, &keys.fingerprint) {
            (true, _) => Trust::Any,
            (false, Some(pin)) => Trust::Pinned(pin.0),
            (false, None) => Trust::of_authorities(keys.ca.as_deref(), &provider, name)?,
        };
        let verifier = Arc::new(CameraVerifier { trust, algorithms, host: name.to_owned(), seen: Mutex::default() });
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::<CameraVerifier>::clone(&verifier))
            .with_no_client_auth();
        // No session resumption: a camera that resumes shows no certificate, and some TLS stacks break there.
        config.resumption = Resumption::disabled();
        config.time_provider = Arc::new(WallClock);
        Ok(Self { config: Arc::new(config), server, host: name.to_owned(), redirect: None, verifier })
    }

    /// Notes the URL that the camera redirected to, so that errors say that it is not the configured one.
    pub fn set_redirect(&mut self, url: String) {
        self.redirect = Some(url);
    }

    /// Returns a connection whose handshake has not started. It sends the host name as SNI, but never an IP address.
    ///
    /// # Errors
    /// rustls cannot create one.
    pub fn connection(&self) -> Result<ClientConnection, SourceError> {
        ClientConnection::new(Arc::clone(&self.config), self.server.clone())
            .map_err(|error| SourceError::permanent(format!("cannot set up TLS with {}: {error}", self.host)))
    }

    /// Returns why the handshake failed, and the remedy.
    pub fn failure(&self, error: &Error) -> String {
        use CertificateError as Wrong;
        let seen = self.verifier.seen.lock().clone();
        let pin = match &seen {
            Some(seen) => format!("`fingerprint = \"{}\"`, which is what the camera sent now", seen.fingerprint),
            None => "`fingerprint`".to_owned(),
        };
        // The TLS keys apply to the configured URL only.
        let (certificate, set) = match &self.redirect {
            Some(url) => {
                (format!("the camera redirects to {url}, whose certificate"), "write that URL in `url` and set")
            }
            None => ("the camera's certificate".to_owned(), "set"),
        };
        match error {
            Error::InvalidCertificate(Wrong::ApplicationVerificationFailure) => {
                let sent = seen.map_or_else(String::new, |seen| format!("the camera sent {}; ", seen.fingerprint));
                format!(
                    "{certificate} has another fingerprint than `fingerprint`: {sent}{set} the new one if the camera got a new \
                     certificate, otherwise find out who answers in its place"
                )
            }
            Error::InvalidCertificate(Wrong::UnknownIssuer) => {
                if matches!(&self.verifier.trust, Trust::Authorities { own, .. } if !own.is_empty()) {
                    let instead = match &seen {
                        Some(seen) => {
                            format!(
                                "`fingerprint = \"{}\"` instead, which is what the camera sent now",
                                seen.fingerprint
                            )
                        }
                        None => "`fingerprint` instead".to_owned(),
                    };
                    return format!(
                        "{certificate} is not the one in `ca`, nor signed by it: correct `ca`, or {set} {instead}"
                    );
                }
                let which = match seen {
                    Some(seen) if seen.is_self_signed => "is self-signed",
                    _ => "has an unknown issuer",
                };
                format!("{certificate} {which}: {set} {pin}, or `ca`")
            }
            Error::InvalidCertificate(Wrong::BadSignature) => "the camera does not prove that it has the key of its \
                 certificate: restart it and update its firmware; if it stays, find out who answers in its place"
                .to_owned(),
            Error::General(reason) if reason == UNUSABLE_KEY => UNUSABLE_KEY.to_owned(),
            Error::InvalidCertificate(error) => match CertificateFault::of(error, &self.host) {
                Some(CertificateFault { fault, remedy, is_clock: true }) => format!("{certificate} {fault}: {remedy}"),
                Some(CertificateFault { fault, remedy, .. }) => {
                    format!("{certificate} {fault}: {set} {pin}; or {remedy}")
                }
                None => format!("{certificate} is not one that the rules for TLS allow ({error}): {set} {pin}"),
            },
            Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied,
            ) => {
                "the camera requires a certificate of its clients, and visiond has none: switch that off in the camera"
                    .to_owned()
            }
            Error::AlertReceived(
                AlertDescription::HandshakeFailure
                | AlertDescription::ProtocolVersion
                | AlertDescription::InsufficientSecurity,
            )
            | Error::PeerIncompatible(_) => format!(
                "the camera has no version or cipher of TLS that visiond has ({error}): update its firmware, or use the port \
                 without TLS"
            ),
            Error::InvalidMessage(_) => NO_TLS.to_owned(),
            error => format!("TLS with the camera failed: {error}"),
        }
    }

    /// Returns the SHA-256 of the camera's last certificate in the form that `fingerprint` takes.
    pub fn seen_fingerprint(&self) -> Option<String> {
        self.verifier.seen.lock().as_ref().map(|seen| seen.fingerprint.to_string())
    }
}

/// The size limit of the `ca` file in bytes: ten times all CAs of a browser.
const MOST_CA_BYTES: u64 = 4 << 20;
/// How many certificates to remember as already warned about.
const MOST_WARNED: usize = 1024;

/// Whether this host shows this certificate for the first time in this process. A camera that reconnects repeatedly causes
/// one warning; a different certificate may come from an attacker and causes another.
fn is_first(host: &str, digest: [u8; 32]) -> bool {
    static WARNED: Mutex<BTreeSet<(String, [u8; 32])>> = Mutex::new(BTreeSet::new());
    let mut warned = WARNED.lock();
    // Bounded, because a hostile camera may redirect to a new host each time.
    if warned.len() >= MOST_WARNED {
        warned.clear();
    }
    warned.insert((host.to_owned(), digest))
}

/// The certificate that a camera showed.
#[derive(Debug, Clone)]
struct SeenCertificate {
    fingerprint: Fingerprint,
    is_self_signed: bool,
}

/// The certificates to accept.
#[derive(Debug)]
enum Trust {
    Any,
    Pinned([u8; 32]),
    Authorities {
        /// `None` if no certificate in the file can be a CA.
        chains: Option<Arc<WebPkiServerVerifier>>,
        /// The certificates of the `ca` file, any of which may be the camera's own.
        own: Vec<CertificateDer<'static>>,
    },
}

impl Trust {
    fn of_authorities(ca: Option<&Path>, provider: &Arc<CryptoProvider>, host: &str) -> Result<Self, SourceError> {
        let mut roots = RootCertStore::empty();
        let own = match ca {
            Some(path) => certificates(path).map_err(|(error, _)| error)?,
            None => Vec::new(),
        };
        if ca.is_some() {
            // The camera's own certificate may be one that is not allowed to be a CA.
            roots.add_parsable_certificates(own.iter().cloned());
        } else if roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs).0 == 0 {
            return Err(SourceError::permanent(format!(
                "cannot set up TLS with {host}: this system has no CA certificates: install ca-certificates, or set `ca` or \
                 `fingerprint`"
            )));
        }
        let chains = match roots.is_empty() {
            true => None,
            false => {
                let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
                let wrong = |error| SourceError::permanent(format!("cannot set up TLS with {host}: {error}"));
                Some(built.map_err(wrong)?)
            }
        };
        Ok(Self::Authorities { chains, own })
    }
}

/// Checks the certificate that a camera shows.
#[derive(Debug)]
struct CameraVerifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
    host: String,
    seen: Mutex<Option<SeenCertificate>>,
}

impl CameraVerifier {
    /// Whether a certificate was accepted by its bytes alone, so that only its key is parsed.
    fn is_known(&self, certificate: &CertificateDer<'_>) -> bool {
        match &self.trust {
            Trust::Any => false,
            Trust::Pinned(_) => true,
            Trust::Authorities { own, .. } => own.iter().any(|own| own == certificate),
        }
    }

    /// Checks a camera's signature with its certificate's key; TLS 1.3 uses only the first algorithm of a scheme.
    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        is_tls13: bool,
    ) -> Result<HandshakeSignatureValid, Error> {
        if matches!(self.trust, Trust::Any) {
            // If any certificate is accepted, a valid signature proves nothing more.
            return Ok(HandshakeSignatureValid::assertion());
        }
        if !self.is_known(certificate) {
            let check = if is_tls13 { verify_tls13_signature } else { verify_tls12_signature };
            return check(message, certificate, signed, &self.algorithms);
        }
        let unusable = || Error::General(UNUSABLE_KEY.to_owned());
        let key = PublicKey::of(certificate).filter(|key| !key.is_short_rsa()).ok_or_else(unusable)?;
        let offered = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let all = offered.map(|(_, algorithms)| *algorithms).unwrap_or_default();
        let usable = if is_tls13 { all.get(..1).unwrap_or_default() } else { all };
        let mut fitting = usable.iter().filter(|one| one.public_key_alg_id().as_ref() == key.algorithm).peekable();
        if fitting.peek().is_none() || is_tls13 && is_pkcs1(signed.scheme) {
            return Err(unusable());
        }
        if fitting.any(|one| one.verify_signature(key.bits, message, signed.signature()).is_ok()) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        Err(CertificateError::BadSignature.into())
    }
}

/// Whether TLS 1.3 forbids the scheme.
fn is_pkcs1(scheme: SignatureScheme) -> bool {
    use SignatureScheme::{RSA_PKCS1_SHA1, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512};
    [RSA_PKCS1_SHA1, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512].contains(&scheme)
}

impl ServerCertVerifier for CameraVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let digest: [u8; 32] = Sha256::digest(end_entity).into();
        let fingerprint = Fingerprint(digest);
        let is_self_signed = PublicKey::of(end_entity).is_some_and(|key| key.issuer == key.subject);
        *self.seen.lock() = Some(SeenCertificate { fingerprint, is_self_signed });
        match &self.trust {
            Trust::Any => {
                if is_first(&self.host, digest) {
                    log::warn!(
                        "the certificate of {} is not checked, so anyone on the network path can read and replace the video: set `fingerprint \
                         = \"{fingerprint}\"`, which matches its current certificate, instead of `insecure`",
                        self.host
                    );
                }
                Ok(ServerCertVerified::assertion())
            }
            Trust::Pinned(pin) if *pin == digest => Ok(ServerCertVerified::assertion()),
            Trust::Pinned(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
            Trust::Authorities { .. } if self.is_known(end_entity) => Ok(ServerCertVerified::assertion()),
            Trust::Authorities { chains: None, .. } => Err(CertificateError::UnknownIssuer.into()),
            Trust::Authorities { chains: Some(chains), .. } => {
                let verified = chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
                match verified {
                    // webpki rejects a self-signed end-entity certificate that is marked as a CA.
                    Err(Error::InvalidCertificate(CertificateError::Other(_))) if is_self_signed => {
                        Err(CertificateError::UnknownIssuer.into())
                    }
                    verified => verified,
                }
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The parts that are parsed of a certificate that is trusted by its bytes: RFC 5280, 4.1.
struct PublicKey<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
    /// The content of the AlgorithmIdentifier.
    algorithm: &'a [u8],
    /// The content of the BIT STRING.
    bits: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// Whether it is an RSA key of fewer than 2048 bits, which ring rejects.
    fn is_short_rsa(&self) -> bool {
        self.algorithm == alg_id::RSA_ENCRYPTION.as_ref() && self.bits.len() < 2048 / 8
    }

    fn of(certificate: &'a CertificateDer<'_>) -> Option<Self> {
        const SEQUENCE: u8 = 0x30;
        const INTEGER: u8 = 0x02;
        const BIT_STRING: u8 = 0x03;
        /// The version, which certificates of version 1 do not have.
        const VERSION: u8 = 0xa0;
        let (whole, _) = element(certificate, SEQUENCE)?;
        let (signed, _) = element(whole, SEQUENCE)?;
        let rest = element(signed, VERSION).map_or(signed, |(_, rest)| rest);
        let (_serial, rest) = element(rest, INTEGER)?;
        let (_signature, rest) = element(rest, SEQUENCE)?;
        let (issuer, rest) = element(rest, SEQUENCE)?;
        let (_validity, rest) = element(rest, SEQUENCE)?;
        let (subject, rest) = element(rest, SEQUENCE)?;
        let (key, _) = element(rest, SEQUENCE)?;
        let (algorithm, rest) = element(key, SEQUENCE)?;
        let (bits, _) = element(rest, BIT_STRING)?;
        // The first byte counts the unused bits of the last one.
        let (0, bits) = bits.split_first().map(|(unused, bits)| (*unused, bits))? else { return None };
        Some(Self { issuer, subject, algorithm, bits })
    }
}

/// Splits a DER element with this tag off the front of `input`; returns its content and the rest.
fn element(input: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = input.split_first()?;
    let (&short, rest) = rest.split_first()?;
    if first != tag {
        return None;
    }
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        // No certificate in TLS is longer than three length bytes can express.
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// Reads the certificates of the file `ca`.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, (SourceError, Certainty)> {
    let shown = path.display();
    let no_pem = || {
        let reason = "it has no certificate in PEM format (-----BEGIN CERTIFICATE-----)";
        (SourceError::permanent(format!("cannot use `ca` {shown}: {reason}")), Certainty::Certain)
    };
    let read = regular_file::read(path, MOST_CA_BYTES).map_err(pem::Error::Io);
    let all = read.and_then(|bytes| CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>());
    let all = all.map_err(|error| match error {
        pem::Error::Io(error) => {
            let message = format!("cannot read `ca` {shown}: {error}");
            // The file may appear later.
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let failure = if is_missing { SourceError::transient(message) } else { SourceError::permanent(message) };
            (failure, Certainty::of_reading(&error))
        }
        _ => no_pem(),
    })?;
    if all.is_empty() { Err(no_pem()) } else { Ok(all) }
}

#[cfg(test)]
pub(crate) mod tests;
