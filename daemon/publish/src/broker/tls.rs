//! TLS with a broker: trusted CAs, and this device's certificate.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};
use visiond_config::types::MqttSinkConfig;

/// Builds the TLS configuration. Reads the files for each connection, so that a renewed certificate takes effect.
pub fn client(config: &MqttSinkConfig) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match &config.ca {
        Some(path) => {
            let unusable = |error| format!("cannot use a certificate in {}: {error}", path.display());
            certificates(path)?.into_iter().try_for_each(|certificate| roots.add(certificate)).map_err(unusable)?;
        }
        None if roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs).0 == 0 => {
            let remedy = "install ca-certificates, or set `ca` to the broker's CA";
            return Err(format!("this system has no CA certificates: {remedy}"));
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?
        .with_root_certificates(roots);
    let client = match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, "key", &error))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| {
                format!("{} and {} do not belong together: {error}", certificate.display(), key.display())
            })?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(client))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = |error| unreadable(path, "certificate", &error);
    let all: Vec<_> = CertificateDer::pem_file_iter(path).map_err(read)?.collect::<Result<_, _>>().map_err(read)?;
    if all.is_empty() {
        return Err(format!("{} has no certificate in PEM format (-----BEGIN CERTIFICATE-----)", path.display()));
    }
    Ok(all)
}

fn unreadable(path: &Path, what: &str, error: &pem::Error) -> String {
    let path = path.display();
    match error {
        pem::Error::Io(error) => format!("cannot read {path}: {error}"),
        pem::Error::NoItemsFound => format!("{path} has no {what} in PEM format"),
        error => format!("{path} has no {what} in PEM format: {error}"),
    }
}

/// Returns why TLS failed and what to do; `plain` is the URL scheme without TLS. `None` if the error is not one of TLS.
pub fn explain(error: &io::Error, host: &str, plain: &str) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "unknown certificate issuer: set `ca` to the signing CA".to_owned()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("the broker's certificate is not for {host}: use a name of the certificate in `url`"),
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the broker's certificate has expired: renew it, or correct this machine's clock".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            "the broker's certificate is not valid yet: check this machine's clock".to_owned()
        }
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::HandshakeFailure
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied,
        ) => format!("the broker rejects this device's certificate ({error}): set `certificate` and `key`"),
        Error::InvalidMessage(_) => format!("no TLS at that port: use {plain}:// in `url`, or the TLS port"),
        error => format!("TLS with the broker failed: {error}"),
    })
}
