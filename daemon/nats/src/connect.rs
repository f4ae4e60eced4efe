//! Connects to a NATS server: address, TCP, TLS, and CONNECT.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use visiond_system::broker_tls;
use visiond_system::broker_url::split_broker;

use crate::auth::ClientAuth;
use crate::options::Options;
use crate::protocol::{Connect, PING, ServerOp, decode};

/// How long one address may take to answer, before visiond tries the next.
const ANSWER: Duration = Duration::from_secs(4);
const DEFAULT_PORT: u16 = 4222;
/// The largest message accepted before the server has accepted the connection, in bytes. There should be none.
const GREETING_BYTES: u64 = 1 << 20;

/// A TCP connection, with TLS or without.
pub trait TcpOrTls: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> TcpOrTls for T {}

/// A connection that the server has accepted.
pub struct Accepted {
    /// The connection.
    pub stream: Box<dyn TcpOrTls>,
    /// Bytes received after the server's answer.
    pub input: BytesMut,
    /// The largest message that the server accepts, in bytes with its headers.
    pub max_payload: usize,
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("max_payload", &self.max_payload).finish_non_exhaustive()
    }
}

/// Why no server can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{servers}: {reason}")]
pub struct NoServer {
    /// The servers.
    pub servers: String,
    /// What went wrong with the last one, and the remedy.
    pub reason: String,
    /// The server refuses this login; others of its cluster know the same logins.
    pub is_login: bool,
}

/// Why a server is not used.
enum Failure {
    /// Another server may work.
    Unusable(String),
    /// The servers of a cluster know the same logins.
    Unauthorized,
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Unusable(reason)
    }
}

/// Connects to the first server that answers, in random order.
///
/// # Errors
/// If none does, or one refuses the login.
pub async fn open(options: &Options, auth: &ClientAuth) -> Result<Accepted, NoServer> {
    let (mut urls, random) = (options.urls.clone(), RandomState::new());
    urls.sort_by_cached_key(|url| random.hash_one(url));
    let (mut why, mut is_login) = (String::new(), false);
    for url in &urls {
        match open_one(url, options, auth).await {
            Ok(accepted) => return Ok(accepted),
            Err(Failure::Unusable(reason)) => why = reason,
            Err(Failure::Unauthorized) => {
                (why, is_login) = (format!("the server {}", auth.remedy()), true);
                break;
            }
        }
    }
    Err(NoServer { servers: options.servers(), reason: options.explain(why), is_login })
}

async fn open_one(url: &str, options: &Options, auth: &ClientAuth) -> Result<Accepted, Failure> {
    let (scheme, host, port) = split_broker(url).ok_or_else(|| "is not a broker's URL".to_owned())?;
    let addresses = lookup_host((host, port.unwrap_or(DEFAULT_PORT))).await;
    let addresses =
        addresses.map_err(|error| format!("unknown host name: {error}; check `url` and the network's name server"))?;
    let mut failure = Failure::Unusable("the host name has no address: check `url`".to_owned());
    for address in addresses {
        let attempt = start(address, host, scheme == "tls", options, auth);
        match tokio::time::timeout(ANSWER, attempt).await {
            Ok(Err(Failure::Unusable(reason))) => failure = Failure::Unusable(reason),
            Ok(result) => return result,
            Err(_) => failure = Failure::Unusable(format!("no answer within {} s", ANSWER.as_secs())),
        }
    }
    Err(failure)
}

async fn start(
    address: SocketAddr,
    host: &str,
    encrypted: bool,
    options: &Options,
    auth: &ClientAuth,
) -> Result<Accepted, Failure> {
    let mut tcp = TcpStream::connect(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("{error}: check that nats-server runs there"),
        _ => format!("cannot connect to {host}: {error}; check the network and the host"),
    })?;
    // A small message must not wait for the acknowledgement of the previous one.
    let _ = tcp.set_nodelay(true);
    let mut input = BytesMut::new();
    let ServerOp::Info(mut info) = read(&mut tcp, &mut input, host).await? else { return Err(no_nats().into()) };
    let required = encrypted || options.requires_tls();
    let mut stream: Box<dyn TcpOrTls> = if required || info.tls_required {
        // Bytes received without TLS may come from anyone.
        if !input.is_empty() {
            return Err(no_nats().into());
        }
        let client = broker_tls::client(&options.tls_files()).map_err(|error| error.reason)?;
        let server = ServerName::try_from(host.to_owned());
        let server = server.map_err(|_| "has no valid host name for TLS".to_owned())?;
        let connected = TlsConnector::from(client).connect(server, tcp).await;
        Box::new(connected.map_err(|error| broken(&error, host))?)
    } else {
        Box::new(tcp)
    };
    let connect = Connect {
        verbose: false,
        pedantic: false,
        tls_required: required,
        name: options.name.clone(),
        lang: "rust",
        version: env!("CARGO_PKG_VERSION"),
        protocol: 1,
        headers: true,
        no_responders: true,
        proof: auth.answer(&info.nonce)?,
    };
    let json = serde_json::to_string(&connect).map_err(|error| format!("cannot write CONNECT as JSON: {error}"))?;
    let greeting = [b"CONNECT ", json.as_bytes(), b"\r\n", PING].concat();
    stream.write_all(&greeting).await.map_err(|error| broken(&error, host))?;
    stream.flush().await.map_err(|error| broken(&error, host))?;
    loop {
        match read(&mut stream, &mut input, host).await? {
            ServerOp::Pong => return Ok(Accepted { stream, input, max_payload: info.max_payload }),
            ServerOp::Info(again) => info = again,
            ServerOp::Error(error) if error.eq_ignore_ascii_case("authorization violation") => {
                return Err(Failure::Unauthorized);
            }
            ServerOp::Error(error) => return Err(explain_server(&error).into()),
            ServerOp::Ping | ServerOp::Ok | ServerOp::Message(_) => {}
        }
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin), input: &mut BytesMut, host: &str) -> Result<ServerOp, String> {
    loop {
        if let Some(op) = decode(input, GREETING_BYTES)? {
            return Ok(op);
        }
        if stream.read_buf(input).await.map_err(|error| broken(&error, host))? == 0 {
            return Err(ENDED.to_owned());
        }
    }
}

/// The connection's end, as the server's doing.
pub const ENDED: &str = "the server has ended the connection";

fn no_nats() -> String {
    "the server is not a NATS server: check the port".to_owned()
}

/// Returns what went wrong before the connection was accepted.
fn broken(error: &io::Error, host: &str) -> String {
    broker_tls::explain(error, host, "nats").unwrap_or_else(|| describe_io_error(error))
}

/// Describes an error of the connection.
pub fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ENDED.to_owned(),
        _ => format!("lost the connection to the server: {error}"),
    }
}

/// Adds a remedy to an error from the server.
pub fn explain_server(error: &str) -> String {
    let remedy = if error.to_lowercase().contains("permissions violation") {
        "; allow this login to publish its subjects and to subscribe to _INBOX.>, see docs/nats.md"
    } else {
        ""
    };
    format!("the server says: {error}{remedy}")
}
