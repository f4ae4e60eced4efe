//! Bundles on a web server: any that serves files. One that answers with ranges of them lets a device continue after a cut.
//!
//! Redirects are not followed, and there is no login. Every wait has a time limit, and the memory for an answer is bounded.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_RANGE, ETAG, HOST, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, RANGE, USER_AGENT};
use hyper::http::response::Parts;
use hyper::http::uri::Authority;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use visiond_bundle::{BundleSource, Piece, SourceError, Take};
use visiond_system::certificate_fault::{CertificateFault, WallClock};
use visiond_system::exit::{Exit, ExitError};

/// Time limit for a connection, with TLS.
const CONNECT: Duration = Duration::from_secs(15);

/// The longest time without a byte of the answer.
const SILENCE: Duration = Duration::from_secs(60);

/// The longest time for a small file.
const SMALL_FILE: Duration = Duration::from_secs(120);

/// The most characters to quote from an answer.
const MOST_CHARS: usize = 200;

/// A web server's folder of published bundles.
pub struct WebSource {
    base: String,
    authority: String,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    runtime: Runtime,
    /// Small files and their tags: what has not changed is not sent again.
    known: BTreeMap<String, (HeaderValue, Vec<u8>)>,
}

/// Why a request failed; becomes a [`SourceError`] with the URL.
type Failure = Box<dyn Error + Send + Sync>;

/// The server has no such file.
#[derive(Debug, thiserror::Error)]
#[error("the server has no such file (HTTP status 404): publish a bundle of this name there")]
struct Missing;

impl WebSource {
    /// Creates a client for a URL that [`check_url`] accepts. The first request connects.
    ///
    /// # Errors
    /// If the system has no certificates of authorities for https, or no descriptors.
    pub fn new(url: &str) -> Result<Self, ExitError> {
        let uri = check_url(url).map_err(|reason| ExitError::new(Exit::Usage, reason))?;
        let is_tls = uri.scheme_str() == Some("https");
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        Ok(Self {
            base: uri.path().trim_end_matches('/').to_owned(),
            authority,
            host,
            port: uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            tls: if is_tls { Some(connector()?) } else { None },
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ExitError::system)?,
            known: BTreeMap::new(),
        })
    }

    fn unreadable(&self, path: &str, error: &Failure) -> SourceError {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let path = format!("{scheme}://{}{}/{path}", self.authority, self.base);
        let reason = error.to_string();
        let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_CHARS).collect();
        if error.is::<Missing>() {
            return SourceError::Missing { path, reason };
        }
        SourceError::Unreadable { path, reason }
    }

    /// Opens a connection, with TLS if the URL says so.
    async fn connect(&self) -> Result<Box<dyn Stream>, Failure> {
        let connecting = async {
            let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
            let Some(tls) = &self.tls else { return Ok(Box::new(tcp) as Box<dyn Stream>) };
            let name = ServerName::try_from(self.host.clone())?;
            let tls = tls.connect(name, tcp).await.map_err(|error| explain(error, &self.host))?;
            Ok(Box::new(tls) as Box<dyn Stream>)
        };
        timeout(CONNECT, connecting).await.map_err(|_| late(CONNECT))?
    }

    /// Requests a file on a connection of its own, and gives the answer to `read`.
    async fn get<T>(
        &self,
        path: &str,
        header: Option<(HeaderName, HeaderValue)>,
        read: impl AsyncFnOnce(Parts, Incoming) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let stream = TokioIo::new(self.connect().await?);
        let (mut sender, connection) = http1::handshake(stream).await?;
        let mut request = Request::get(format!("{}/{path}", self.base))
            .header(HOST, &self.authority)
            .header(USER_AGENT, concat!("visiond/", env!("CARGO_PKG_VERSION")));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let exchange = async {
            let answer = timeout(SILENCE, sender.send_request(request)).await.map_err(|_| late(SILENCE))??;
            let (head, body) = answer.into_parts();
            read(head, body).await
        };
        // An error of the connection is also one of the exchange, which still reads what has arrived before.
        let connection = async {
            let _ = connection.await;
            pending::<Infallible>().await
        };
        tokio::select! {
            result = exchange => result,
            never = connection => match never {},
        }
    }

    /// Requests a small file, and returns its contents and its tag; `None` if it is the one that is known.
    async fn small(&self, path: &str, most: u64) -> Result<Option<(Vec<u8>, Option<HeaderValue>)>, Failure> {
        let known = self.known.get(path).map(|(tag, _)| (IF_NONE_MATCH, tag.clone()));
        let is_known = known.is_some();
        self.get(path, known, async |head, mut body| {
            match head.status {
                StatusCode::OK => {}
                StatusCode::NOT_MODIFIED if is_known => return Ok(None),
                _ => return Err(refusal(&head)),
            }
            let mut contents = Vec::new();
            while let Some(bytes) = next(&mut body).await? {
                if (contents.len() + bytes.len()) as u64 > most {
                    return Err(
                        format!("it has more than {most} bytes, so it is no index: publish the bundle again").into()
                    );
                }
                contents.extend_from_slice(&bytes);
            }
            Ok(Some((contents, head.headers.get(ETAG).cloned())))
        })
        .await
    }

    async fn range(&self, path: &str, range: &Range<u64>, take: &mut Take<'_>) -> Result<(), Failure> {
        let wanted = HeaderValue::try_from(format!("bytes={}-{}", range.start, range.end.saturating_sub(1)))?;
        self.get(path, Some((RANGE, wanted)), async |head, mut body| {
            // A server without ranges sends the file from its begin.
            let mut skipped = match head.status {
                StatusCode::OK => range.start,
                StatusCode::PARTIAL_CONTENT if begins_at(&head, range.start) => 0,
                StatusCode::PARTIAL_CONTENT => {
                    return Err("the answer has another range of the file: correct the server".into());
                }
                StatusCode::RANGE_NOT_SATISFIABLE => {
                    return Err("the file is shorter than its index says: publish the bundle again".into());
                }
                _ => return Err(refusal(&head)),
            };
            let mut left = range.end.saturating_sub(range.start);
            while let Some(bytes) = next(&mut body).await? {
                let begin = usize::try_from(skipped).unwrap_or(usize::MAX).min(bytes.len());
                skipped -= begin as u64;
                if begin > 0 && take(Piece::Skipped(begin)).is_break() {
                    return Ok(());
                }
                let end = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - begin) + begin;
                let bytes = bytes.slice(begin..end);
                left -= bytes.len() as u64;
                // More than was requested is not read.
                if (!bytes.is_empty() && take(Piece::Bytes(&bytes)).is_break()) || left == 0 {
                    return Ok(());
                }
            }
            Err(format!("the answer ends {left} bytes early: check the server and the network").into())
        })
        .await
    }
}

impl BundleSource for WebSource {
    fn read_small(&mut self, path: &str, most: u64) -> Result<Vec<u8>, SourceError> {
        let read = self.runtime.block_on(async { timeout(SMALL_FILE, self.small(path, most)).await });
        let read = read.unwrap_or_else(|_| Err(late(SMALL_FILE))).map_err(|error| self.unreadable(path, &error))?;
        match read {
            None => Ok(self.known.get(path).map(|(_, contents)| contents.clone()).unwrap_or_default()),
            Some((contents, tag)) => {
                self.known.remove(path);
                if let Some(tag) = tag {
                    self.known.insert(path.to_owned(), (tag, contents.clone()));
                }
                Ok(contents)
            }
        }
    }

    fn read_range(&mut self, path: &str, range: Range<u64>, take: &mut Take<'_>) -> Result<(), SourceError> {
        let read = self.runtime.block_on(self.range(path, &range, take));
        read.map_err(|error| self.unreadable(path, &error))
    }
}

/// A connection, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Checks the URL of a source: http or https, a host, and a path.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_url(url: &str) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{url} is not a URL: {error}"))?;
    let authority = uri.authority().map(Authority::as_str).unwrap_or_default();
    if !matches!(uri.scheme_str(), Some("http" | "https")) || authority.is_empty() || uri.query().is_some() {
        return Err("a source must be https://HOST/PATH, http://HOST/PATH, or a folder".to_owned());
    }
    if authority.contains('@') {
        return Err(
            "remove user and password from the URL: a source has no login, because bundles are signed".to_owned()
        );
    }
    Ok(uri)
}

/// Sets up TLS with the authorities that this system trusts, or those in the file that `SSL_CERT_FILE` names.
fn connector() -> Result<TlsConnector, ExitError> {
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs).0 == 0 {
        let message = "this system has no CA certificates: install ca-certificates, or name a file with SSL_CERT_FILE";
        return Err(ExitError::new(Exit::Config, message));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder =
        builder.map_err(|error| ExitError::new(Exit::Failure, format!("cannot set up TLS: {error}; report it")))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.time_provider = Arc::new(WallClock);
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Waits for the next bytes of a body; `None` at its end.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    loop {
        let frame = timeout(SILENCE, body.frame()).await.map_err(|_| late(SILENCE))?;
        let Some(frame) = frame else { return Ok(None) };
        // Trailers are no bytes of the file.
        if let Ok(bytes) = frame?.into_data() {
            return Ok(Some(bytes));
        }
    }
}

/// Whether an answer says that its part of the file begins there.
fn begins_at(head: &Parts, begin: u64) -> bool {
    let range = head.headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()) == Some(begin)
}

/// Returns why an answer has not what was requested.
fn refusal(head: &Parts) -> Failure {
    let location = head.headers.get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
    let status = head.status.as_u16();
    match location.filter(|_| head.status.is_redirection()) {
        Some(to) => format!("the server redirects to {to} (HTTP status {status}): use that URL").into(),
        None if status == 404 => Missing.into(),
        None => format!("the server answers with HTTP status {status}").into(),
    }
}

fn late(limit: Duration) -> Failure {
    format!("no answer within {} s: check the server and the network", limit.as_secs()).into()
}

/// Returns why TLS failed, and what to do.
fn explain(error: io::Error, host: &str) -> Failure {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "unknown certificate issuer: name the file of the signing CA with SSL_CERT_FILE".into()
        }
        Some(rustls::Error::InvalidCertificate(wrong)) => match CertificateFault::of(wrong, host) {
            Some(CertificateFault { fault, remedy, .. }) => {
                format!("the server's certificate {fault}: {remedy}").into()
            }
            None => format!("the server's certificate breaks the rules of TLS: {wrong}").into(),
        },
        Some(other) => format!("TLS with the server failed: {other}").into(),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_url_without_login_and_query() {
        for url in ["https://models.example", "http://10.0.0.2:8000/bundles/", "https://[::1]/a"] {
            assert!(check_url(url).is_ok(), "{url}");
        }
        for (url, words) in [
            ("https://a:b@models.example", "remove user and password"),
            ("https://models.example/?a=b", "https://HOST/PATH"),
            ("ftp://models.example", "https://HOST/PATH"),
            ("https://", "is not a URL"),
        ] {
            let said = check_url(url).unwrap_err();
            assert!(said.contains(words), "{url}: {said}");
        }
    }
}
