//! Sends a SOAP request over HTTP to an IP address. It resolves no name, follows no redirect and sends no login.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::xml::{self, XmlError};

/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(5);

/// The most bytes of an answer. 16 profiles take some 100 KB.
const MOST_BYTES: usize = 512 << 10;

/// The most bytes of an answer's head.
const MOST_HEAD_BYTES: usize = 16 << 10;

/// The most characters to quote from a camera's response.
const MOST_CHARS: usize = 200;

/// Why there is no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum SoapError {
    #[error("cannot connect to its ONVIF service: {0}; check the camera and the network")]
    Connect(#[from] io::Error),
    #[error("no answer from its ONVIF service for {} s: check the camera and the network", ANSWER.as_secs())]
    Silent,
    #[error("its ONVIF service takes more than {0} s for all answers: restart the camera")]
    Slow(u64),
    #[error("its ONVIF service breaks HTTP ({0}): if it is a camera, update its firmware")]
    Http(#[from] hyper::Error),
    #[error("its ONVIF service returned more than {MOST_BYTES} bytes: if it is a camera, update its firmware")]
    TooLong,
    #[error("it lists its streams only after a login; use `probe --rtsp` with the URL of its manual")]
    LoginRequired,
    #[error("its ONVIF service returned HTTP status {0}: switch ONVIF on in the camera")]
    Status(u16),
    #[error("its ONVIF service returned invalid XML ({0}): update the camera's firmware")]
    Xml(#[from] XmlError),
    #[error("its ONVIF service returned bytes that are not text: update the camera's firmware")]
    NoText,
    /// In the camera's words.
    #[error("its ONVIF service refuses: {0}; switch ONVIF on in the camera, or update its firmware")]
    Fault(String),
}

/// Sends `body`, the content of the SOAP body, to `url` at `address`. Returns the answer, which is valid XML.
pub async fn ask(address: Ipv4Addr, url: &Url, body: &str) -> Result<String, SoapError> {
    let (status, bytes) = timeout(ANSWER, exchange(address, url, body)).await.map_err(|_| SoapError::Silent)??;
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(SoapError::LoginRequired),
        StatusCode::OK | StatusCode::BAD_REQUEST | StatusCode::INTERNAL_SERVER_ERROR => {}
        other => return Err(SoapError::Status(other.as_u16())),
    }
    let text = String::from_utf8(bytes).map_err(|_| SoapError::NoText)?;
    let document = match xml::parse(&text) {
        Ok(document) => document,
        // An error page.
        Err(_) if status != StatusCode::OK => return Err(SoapError::Status(status.as_u16())),
        Err(error) => return Err(error.into()),
    };
    let Some(fault) = xml::find(document.root(), "Fault") else {
        return if status == StatusCode::OK { Ok(text) } else { Err(SoapError::Status(status.as_u16())) };
    };
    // SOAP 1.2's `env:Sender` with ONVIF's subcode `ter:NotAuthorized`.
    if xml::all(fault, "Value").any(|code| code.text().is_some_and(|code| code.trim().ends_with(":NotAuthorized"))) {
        return Err(SoapError::LoginRequired);
    }
    let words = xml::text(fault, "Text").or(xml::text(fault, "faultstring")).unwrap_or("without a reason");
    Err(SoapError::Fault(words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MOST_CHARS).collect()))
}

async fn exchange(address: Ipv4Addr, url: &Url, body: &str) -> Result<(StatusCode, Vec<u8>), SoapError> {
    let port = url.port_or_known_default().unwrap_or(80);
    let stream = TcpStream::connect((IpAddr::V4(address), port)).await?;
    let handshake = http1::Builder::new().max_buf_size(MOST_HEAD_BYTES).handshake(TokioIo::new(stream)).await?;
    let (mut sender, connection) = handshake;
    let envelope = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <s:Envelope xmlns:s=\"http://www.w3.org/2003/05/soap-envelope\"><s:Body>{body}</s:Body></s:Envelope>"
    );
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let request = Request::post(path)
        .header(HOST, format!("{address}:{port}"))
        .header(USER_AGENT, "visiond")
        .header(CONNECTION, "close")
        .header(CONTENT_TYPE, "application/soap+xml; charset=utf-8")
        .body(Full::<Bytes>::from(envelope))
        // A path that `url` accepts but HTTP does not.
        .map_err(|_| SoapError::Status(StatusCode::NOT_FOUND.as_u16()))?;
    let answer = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
        match body {
            Ok(body) => Ok((status, body.to_bytes().into())),
            Err(error) if error.is::<LengthLimitError>() => Err(SoapError::TooLong),
            Err(error) => match error.downcast::<hyper::Error>() {
                Ok(error) => Err(SoapError::Http(*error)),
                Err(_) => Err(SoapError::TooLong),
            },
        }
    };
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The connection has ended; `answer` holds the received bytes.
        _ = connection => answer.await,
    }
}
