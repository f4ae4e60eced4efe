//! Connects to a NATS server: address, TCP, TLS, and CONNECT.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use visiond_config::split_broker;
use visiond_config::types::NatsSinkConfig;

use super::auth::ClientAuth;
use super::protocol::{Connect, PING, ServerOp, decode};
use crate::broker::{TcpOrTls, tls};

/// How long one address may take to answer, before visiond tries the next.
const ANSWER: Duration = Duration::from_secs(4);
const DEFAULT_PORT: u16 = 4222;

/// A connection that the server has accepted.
pub struct Accepted {
    pub stream: Box<dyn TcpOrTls>,
    /// Bytes received after the server's answer.
    pub input: BytesMut,
    pub max_payload: usize,
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

/// Connects to the first server that answers, in random order. The error is a sentence that names the servers.
pub async fn open(config: &NatsSinkConfig, auth: &ClientAuth, name: &str) -> Result<Accepted, String> {
    let (mut urls, random) = (config.url.clone(), RandomState::new());
    urls.sort_by_cached_key(|url| random.hash_one(url));
    let mut why = String::new();
    for url in &urls {
        match open_one(url, config, auth, name).await {
            Ok(accepted) => return Ok(accepted),
            Err(Failure::Unusable(reason)) => why = reason,
            Err(Failure::Unauthorized) => {
                why = format!("the server {}", auth.remedy());
                break;
            }
        }
    }
    Err(format!("{}: {why}", config.url.join(", ")))
}

async fn open_one(url: &str, config: &NatsSinkConfig, auth: &ClientAuth, name: &str) -> Result<Accepted, Failure> {
    let (scheme, host, port) = split_broker(url).ok_or_else(|| "is not a broker's URL".to_owned())?;
    let addresses = lookup_host((host, port.unwrap_or(DEFAULT_PORT))).await;
    let addresses =
        addresses.map_err(|error| format!("unknown host name: {error}; check `url` and the network's name server"))?;
    let mut failure = Failure::Unusable("the host name has no address: check `url`".to_owned());
    for address in addresses {
        let attempt = start(address, host, scheme == "tls", config, auth, name);
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
    config: &NatsSinkConfig,
    auth: &ClientAuth,
    name: &str,
) -> Result<Accepted, Failure> {
    let mut tcp = TcpStream::connect(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("{error}: check that nats-server runs there"),
        _ => format!("cannot connect to {host}: {error}; check the network and the host"),
    })?;
    // A small message must not wait for the acknowledgement of the previous one.
    let _ = tcp.set_nodelay(true);
    let mut input = BytesMut::new();
    let ServerOp::Info(mut info) = read(&mut tcp, &mut input, host).await? else { return Err(no_nats().into()) };
    let required = encrypted || config.ca.is_some() || config.certificate.is_some();
    let mut stream: Box<dyn TcpOrTls> = if required || info.tls_required {
        // Bytes received without TLS may come from anyone.
        if !input.is_empty() {
            return Err(no_nats().into());
        }
        let client = tls::client(&config.into()).map_err(|error| error.reason)?;
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
        name: name.to_owned(),
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
        if let Some(op) = decode(input)? {
            return Ok(op);
        }
        if stream.read_buf(input).await.map_err(|error| broken(&error, host))? == 0 {
            return Err(ENDED.to_owned());
        }
    }
}

pub const ENDED: &str = "the server has ended the connection";

fn no_nats() -> String {
    "the server is not a NATS server: check the port".to_owned()
}

/// Returns what went wrong before the connection was accepted.
fn broken(error: &io::Error, host: &str) -> String {
    tls::explain(error, host, "nats").unwrap_or_else(|| describe_io_error(error))
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
