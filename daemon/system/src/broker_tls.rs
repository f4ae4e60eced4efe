//! TLS with a broker: trusted CAs, and this device's certificate.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};

use crate::certificate_fault::{CertificateFault, WallClock};
use crate::preflight::Certainty;
use crate::regular_file;
use crate::setting_error::SettingError;

/// The largest file of certificates, in bytes: ten times the CAs of all browsers.
const MOST_PEM_BYTES: u64 = 4 << 20;

/// The files for TLS that a configuration names.
#[derive(Debug, Clone, Copy)]
pub struct TlsFiles<'a> {
    /// CA certificates that verify the broker's; `None`: those of the system.
    pub ca: Option<&'a Path>,
    /// This device's certificate, which requires `key`.
    pub certificate: Option<&'a Path>,
    /// The certificate's private key.
    pub key: Option<&'a Path>,
}

/// Builds the TLS configuration. Reads the files for each connection, so that a renewed certificate takes effect.
///
/// # Errors
/// If a file cannot be used, or the system has no CA certificates.
pub fn client(files: &TlsFiles<'_>) -> Result<Arc<ClientConfig>, SettingError> {
    let mut roots = RootCertStore::empty();
    match files.ca {
        Some(path) => {
            let unusable =
                |error| SettingError::certain("ca", format!("cannot use a certificate in {}: {error}", path.display()));
            let mut certificates = certificates("ca", path)?.into_iter();
            certificates.try_for_each(|certificate| roots.add(certificate)).map_err(unusable)?;
        }
        None if roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs).0 == 0 => {
            let remedy = "install ca-certificates, or set `ca` to the broker's CA";
            return Err(SettingError::certain("url", format!("this system has no CA certificates: {remedy}")));
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingError::certain("url", format!("cannot set up TLS: {error}")))?
        .with_root_certificates(roots);
    let mut client = match (files.certificate, files.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates("certificate", certificate)?;
            let secret = read_pem(key)
                .and_then(|pem| PrivateKeyDer::from_pem_slice(&pem))
                .map_err(|error| unreadable("key", key, "key", &error))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| {
                let (certificate, key) = (certificate.display(), key.display());
                SettingError::certain("key", format!("{certificate} and {key} do not belong together: {error}"))
            })?
        }
        _ => builder.with_no_client_auth(),
    };
    client.time_provider = Arc::new(WallClock);
    Ok(Arc::new(client))
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, SettingError> {
    let read = |error| unreadable(key, path, "certificate", &error);
    let pem = read_pem(path).map_err(read)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(read)?;
    if all.is_empty() {
        let reason = format!("{} has no certificate in PEM format (-----BEGIN CERTIFICATE-----)", path.display());
        return Err(SettingError::certain(key, reason));
    }
    Ok(all)
}

/// Reads a file of certificates or of a key. Rejects a pipe, which would block the sink.
fn read_pem(path: &Path) -> Result<Vec<u8>, pem::Error> {
    regular_file::read(path, MOST_PEM_BYTES).map_err(pem::Error::Io)
}

fn unreadable(key: &'static str, path: &Path, what: &str, error: &pem::Error) -> SettingError {
    let shown = path.display();
    match error {
        pem::Error::Io(error) => {
            SettingError { key, reason: format!("cannot read {shown}: {error}"), certainty: Certainty::of(error, path) }
        }
        pem::Error::NoItemsFound => SettingError::certain(key, format!("{shown} has no {what} in PEM format")),
        error => SettingError::certain(key, format!("{shown} has no {what} in PEM format: {error}")),
    }
}

/// Returns why TLS failed and what to do; `plain` is the URL scheme without TLS. `None` if the error does not come from TLS.
pub fn explain(error: &io::Error, host: &str, plain: &str) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "unknown certificate issuer: set `ca` to the signing CA".to_owned()
        }
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            "the broker's certificate has a wrong signature: copy the broker's CA to `ca` again, which may be another one of the same name; if \
             it stays, the broker has the key of another certificate"
                .to_owned()
        }
        Error::InvalidCertificate(error) => match CertificateFault::of(error, host) {
            Some(CertificateFault { fault, remedy, .. }) => format!("the broker's certificate {fault}: {remedy}"),
            None => format!("the broker's certificate breaks the rules of TLS ({error}): make one as docs/certificates.md shows"),
        },
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the broker rejects this device's certificate, which has expired: renew `certificate`".to_owned()
        }
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::HandshakeFailure
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied,
        ) => format!("the broker rejects this device's certificate ({error}): set `certificate` and `key`"),
        Error::InvalidMessage(_) => format!("no TLS at that port: use {plain}:// in `url`, or the TLS port"),
        error => format!("TLS with the broker failed: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_tls_says_what_to_do() {
        use CertificateError::{Expired, NotValidForName, NotValidYet, UnknownIssuer};
        let said = |error| explain(&io::Error::other(error), "gate", "mqtt");
        for (error, words) in [
            (Error::InvalidCertificate(UnknownIssuer), "unknown certificate issuer: set `ca`"),
            (Error::InvalidCertificate(NotValidForName), "the broker's certificate is not for gate: use a name"),
            (Error::InvalidCertificate(Expired), "the broker's certificate has expired: renew it"),
            (Error::InvalidCertificate(NotValidYet), "is not valid yet: correct this machine's clock"),
            (Error::AlertReceived(AlertDescription::CertificateRequired), "rejects this device's certificate"),
            (Error::AlertReceived(AlertDescription::UnknownCA), "set `certificate` and `key`"),
            (Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType), "no TLS at that port: use mqtt:// in"),
            (Error::AlertReceived(AlertDescription::InternalError), "TLS with the broker failed: "),
        ] {
            assert!(said(error.clone()).is_some_and(|said| said.contains(words)), "{error:?}");
        }
        assert_eq!(explain(&io::ErrorKind::ConnectionReset.into(), "gate", "mqtt"), None);
        assert_eq!(explain(&io::Error::other("something else"), "gate", "mqtt"), None);
    }
}
