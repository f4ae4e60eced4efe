//! Asks the daemon that runs, over its HTTP interface.
//!
//! Where it listens is said on the command line, else by `[http]` of its configuration, else it is systemd's socket. Of the
//! configuration only `[http]` is looked at, so that a mistake anywhere else in it is no obstacle.

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use toml::de::{DeTable, DeValue};
use visiond_system::exit::{Exit, ExitError};

use crate::config_path::DEFAULT_CONFIGS;

/// Where systemd has the daemon listen.
const SOCKET: &str = "/run/visiond/http.sock";
/// The token, when it is not read from where the configuration says.
const TOKEN: &str = "VISIOND_TOKEN";
/// Until a connection is there.
const CONNECT: Duration = Duration::from_secs(5);
/// Until an answer is there that needs no work.
const ANSWER: Duration = Duration::from_secs(10);
/// Bytes of an answer at most.
const MAX_ANSWER: usize = 256 << 20;

/// Which daemon is asked.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct DaemonArgs {
    /// The daemon's configuration, which says where it listens; without it /etc/visiond/visiond.toml, else visiond.toml in
    /// this folder
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,

    /// Where it listens: http://HOST:PORT or unix:/PATH; without it what `[http]` of its configuration says, else
    /// unix:/run/visiond/http.sock
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub url: Option<Address>,
}

/// Where a daemon listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host's name or number, and a port.
    Tcp(String, u16),
}

impl Address {
    /// `http://HOST:PORT` or `unix:/PATH`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if text.starts_with("https://") {
            return Err("visiond speaks no TLS: ask it on its own machine, or through `ssh -L`".to_owned());
        }
        let host = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let host = host.and_then(host_and_port).map(|(host, port)| Self::Tcp(host, port));
        host.ok_or_else(|| "not http://HOST:PORT or unix:/PATH".to_owned())
    }

    /// An entry of `listen`, as somebody on this machine reaches it.
    fn listening(text: &str, base: &Path) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Some(Self::Unix(base.join(path)));
        }
        let mut address: SocketAddr = text.parse().ok()?;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        // Port 0 is one that the daemon alone knows.
        (address.port() != 0).then(|| Self::Tcp(address.ip().to_string(), address.port()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "http://{host}:{port}"),
        }
    }
}

/// `host`, `host:port` or `[::1]:port`; without a port 80.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, rest.strip_prefix(':'))
        }
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let port = port.map_or(Some(80), |port| port.parse().ok().filter(|port| *port != 0))?;
    (!host.is_empty() && host.chars().all(plain)).then(|| (host.to_owned(), port))
}

/// A daemon to ask. Every question is a connection of its own, so that the daemon may be started anew between two.
pub struct Client {
    address: Address,
    token: Option<String>,
    /// Why the token that the configuration names cannot be had.
    no_token: Option<String>,
    runtime: Runtime,
}

/// What it answered.
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

impl Client {
    /// Finds the daemon; nothing is asked yet.
    pub fn find(daemon: &DaemonArgs) -> Result<Self, ExitError> {
        let http = Http::of(daemon.config.as_deref());
        let of_config = || http.listen.into_iter().min_by_key(|address| matches!(address, Address::Tcp(..)));
        let address = daemon.url.clone().or_else(of_config).unwrap_or_else(|| Address::Unix(SOCKET.into()));
        let (mut token, mut no_token) = (env::var(TOKEN).ok().filter(|token| !token.is_empty()), None);
        if let (None, Some(path), Address::Tcp(..)) = (&token, http.token, &address) {
            match read_token(&path) {
                Ok(text) => token = Some(text),
                Err(error) => no_token = Some(format!("{}: {error}", path.display())),
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ExitError::system)?;
        Ok(Self { address, token, no_token, runtime })
    }

    /// Where it is asked.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What is to be had at `path`.
    pub fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, ExitError> {
        let reply = self.ask(Method::GET, path, None, ANSWER)?;
        self.json(&self.well(reply)?)
    }

    /// Has something done that takes `patience` at most.
    pub fn post_json<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<T, ExitError> {
        let reply = self.ask(Method::POST, path, body, patience)?;
        self.json(&self.well(reply)?)
    }

    /// The reply's body, which is JSON.
    pub fn json<T: DeserializeOwned>(&self, reply: &Reply) -> Result<T, ExitError> {
        let fail = |error| format!("what answers at {} is no visiond of this version: {error}", self.address);
        serde_json::from_slice(&reply.body).map_err(|error| ExitError::new(Exit::Failure, fail(error)))
    }

    /// The reply, unless it tells of an error.
    pub fn well(&self, reply: Reply) -> Result<Reply, ExitError> {
        if (200..300).contains(&reply.status) {
            return Ok(reply);
        }
        let message = match reply.status {
            401 => {
                let why = match (&self.token, &self.no_token) {
                    (Some(_), _) => "does not know this token".to_owned(),
                    (None, Some(error)) => format!("asks for its token, and that cannot be read: {error}"),
                    (None, None) => "asks for its token".to_owned(),
                };
                format!("visiond at {} {why}: set {TOKEN} to it, or ask through its Unix socket", self.address)
            }
            status => {
                let problem: Option<Value> = serde_json::from_slice(&reply.body).ok();
                let text = |key: &str| problem.as_ref()?.get(key)?.as_str().map(str::to_owned);
                let told = text("detail").or_else(|| text("title"));
                let told = told.unwrap_or_else(|| "nothing more, so this may be no visiond".to_owned());
                format!("visiond at {} answers with {status}: {told}", self.address)
            }
        };
        Err(ExitError::new(Exit::Failure, message))
    }

    /// Asks, and waits `patience` for the whole answer. A reply that tells of an error is one, too, see [`Client::well`].
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Reply, ExitError> {
        let outcome = self.runtime.block_on(async {
            let connected = match &self.address {
                Address::Unix(socket) => {
                    let stream = in_time(CONNECT, UnixStream::connect(socket)).await.map_err(Failure::Connect)?;
                    timeout(patience, self.exchange(stream, method, path, body)).await
                }
                Address::Tcp(host, port) => {
                    let stream = TcpStream::connect((host.as_str(), *port));
                    let stream = in_time(CONNECT, stream).await.map_err(Failure::Connect)?;
                    timeout(patience, self.exchange(stream, method, path, body)).await
                }
            };
            connected.map_err(|_| Failure::Late)?
        });
        outcome.map_err(|failure| ExitError::new(Exit::Failure, self.sentence(&failure, patience)))
    }

    async fn exchange<S>(&self, stream: S, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its error comes with the request's.
        let connection = tokio::spawn(connection);
        let host = match &self.address {
            Address::Unix(_) => "localhost".to_owned(),
            Address::Tcp(..) => self.address.to_string().trim_start_matches("http://").to_owned(),
        };
        let mut request = Request::builder().method(method).uri(path).header(HOST, host);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::<Bytes>::new(body.map(|body| body.to_string().into()).unwrap_or_default());
        let request = request.body(body).map_err(|error| Failure::Talk(error.to_string()))?;
        let reply = read(sender.send_request(request).await?).await;
        drop(sender);
        connection.abort();
        reply
    }

    fn sentence(&self, failure: &Failure, patience: Duration) -> String {
        let address = &self.address;
        match failure {
            Failure::Connect(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                format!("{address} may not be opened: ask as root, or as a member of the group that owns it")
            }
            Failure::Connect(error) => format!(
                "no visiond answers at {address} ({error}): start it (`systemctl start visiond`), or name its \
                 configuration, in which [http] `listen` says where it listens, or say so with --url"
            ),
            Failure::Talk(error) => {
                format!("visiond at {address} did not answer ({error}): it ended meanwhile, or this is no visiond")
            }
            Failure::Late => format!(
                "visiond at {address} did not answer within {} s: its log says what it is busy with",
                patience.as_secs()
            ),
        }
    }
}

/// Why there is no reply.
enum Failure {
    Connect(io::Error),
    Talk(String),
    Late,
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Self {
        Self::Talk(error.to_string())
    }
}

async fn in_time<T>(limit: Duration, connect: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, connect).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn read(response: Response<Incoming>) -> Result<Reply, Failure> {
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|error| {
        let long = error.is::<LengthLimitError>();
        Failure::Talk(if long { "its answer has no end".to_owned() } else { error.to_string() })
    })?;
    Ok(Reply { status, body: body.to_bytes() })
}

/// What a configuration says of where its daemon listens.
#[derive(Default)]
struct Http {
    listen: Vec<Address>,
    token: Option<PathBuf>,
}

impl Http {
    /// Of the file that is named, else of the first that is there. What cannot be read says nothing.
    fn of(config: Option<&Path>) -> Self {
        let found = || DEFAULT_CONFIGS.map(Path::new).into_iter().find(|path| path.exists());
        let text = |path: &Path| fs::read_to_string(path).ok();
        let Some((path, text)) = config.or_else(found).and_then(|path| Some((path, text(path)?))) else {
            return Self::default();
        };
        Self::parse(&text, path.parent().unwrap_or(Path::new("")))
    }

    fn parse(text: &str, base: &Path) -> Self {
        let (root, _) = DeTable::parse_recoverable(text);
        let Some(http) = root.get_ref().get("http").and_then(|http| http.get_ref().as_table()) else {
            return Self::default();
        };
        let listen = http.get("listen").and_then(|listen| listen.get_ref().as_array());
        let listen = listen.into_iter().flat_map(|listen| listen.iter()).filter_map(|item| item.get_ref().as_str());
        let token = http.get("token").map(|token| token.get_ref()).and_then(DeValue::as_str);
        Self {
            listen: listen.filter_map(|text| Address::listening(text, base)).collect(),
            // A name without a slash is a credential, which only the daemon can read.
            token: token.map(|token| if token.contains('/') { base.join(token) } else { token.into() }),
        }
    }
}

fn read_token(path: &Path) -> io::Result<String> {
    if path.components().count() == 1 {
        let Some(folder) = env::var_os("CREDENTIALS_DIRECTORY") else {
            return Err(io::Error::other("it is a credential of systemd's, which only the service is given"));
        };
        return read_token(&Path::new(&folder).join(path));
    }
    Ok(fs::read_to_string(path)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn an_address_is_read_as_people_write_it() {
        let read = |text: &str| Address::parse(text).map(|address| address.to_string());
        for (text, told) in [
            ("unix:/run/visiond/http.sock", "unix:/run/visiond/http.sock"),
            ("http://127.0.0.1:8790/", "http://127.0.0.1:8790"),
            ("http://gate", "http://gate:80"),
            ("http://[::1]:8790", "http://[::1]:8790"),
        ] {
            assert_eq!(read(text).unwrap(), told);
        }
        for wrong in
            ["", "unix:", "http://", "http://:80", "http://a:b", "http://a:0", "http://a/b", "a:80", "http://[a]"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read("https://gate").unwrap_err().contains("ssh -L"));
    }

    #[test]
    fn a_configuration_with_mistakes_elsewhere_still_tells_where_the_daemon_listens() {
        let text = "[[camera]]\nname = 7\n[http]\nlisten = [\"0.0.0.0:8790\", 5, \"[::]:1\", \"x:0\", \"1.2.3.4:0\", \
                    \"unix:a/http.sock\"]\ntoken = \"secrets/token\"\n[log\n";
        let http = Http::parse(text, Path::new("/etc/v"));
        let told: Vec<_> = http.listen.iter().map(Address::to_string).collect();
        assert_eq!(told, ["http://127.0.0.1:8790", "http://[::1]:1", "unix:/etc/v/a/http.sock"]);
        assert_eq!(http.token.unwrap(), Path::new("/etc/v/secrets/token"));
    }

    /// A server that answers one request so; what it was asked.
    fn answers(stream: &mut (impl Read + Write), answer: &str) -> String {
        let mut asked = Vec::new();
        let mut byte = [0];
        while !asked.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            asked.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(asked).unwrap()
    }

    fn over_tcp(answer: &'static str, token: &str) -> (Result<Value, ExitError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (config, port) = (folder.path().join("visiond.toml"), listener.local_addr().unwrap().port());
        fs::write(&config, format!("[http]\nlisten = [\"127.0.0.1:{port}\"]\ntoken = \"./token\"\n")).unwrap();
        if !token.is_empty() {
            fs::write(folder.path().join("token"), token).unwrap();
        }
        let server = thread::spawn(move || answers(&mut listener.accept().unwrap().0, answer));
        let client = Client::find(&DaemonArgs { config: Some(config), url: None }).unwrap();
        (client.get_json("/api/v1/status"), server.join().unwrap())
    }

    #[test]
    fn the_token_is_read_from_where_the_configuration_says() {
        let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n";
        let (value, asked) = over_tcp(answer, "such a secret\n");
        assert_eq!(value.unwrap(), serde_json::json!({"a": 1}));
        let asked = asked.to_lowercase();
        assert!(asked.starts_with("get /api/v1/status http/1.1\r\n"), "{asked}");
        assert!(asked.contains("authorization: bearer such a secret\r\n"), "{asked}");
        assert!(asked.contains("host: 127.0.0.1:"), "{asked}");
    }

    #[test]
    fn what_goes_wrong_is_a_sentence_that_says_what_to_do() {
        let error = |answer, token: &str| over_tcp(answer, token).0.unwrap_err().message;
        let locked = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
        assert!(error(locked, "").contains("asks for its token, and that cannot be read: "));
        assert!(error(locked, "wrong").contains("does not know this token: set VISIOND_TOKEN"));
        let problem = "HTTP/1.1 404 Not Found\r\ncontent-length: 30\r\n\r\n{\"detail\":\"no such camera here\"";
        assert!(error(problem, "").contains("answers with 404"), "cut off");
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 3000\r\n\r\n{}";
        assert!(error(cut, "").contains("did not answer"));
        assert!(error("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "").contains("no visiond of this version"));
        assert!(error("SSH-2.0\r\n", "").contains("this is no visiond"));
    }

    #[test]
    fn over_its_unix_socket_it_is_asked_without_a_token_and_where_it_is_not_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("http.sock");
        let place = DaemonArgs { config: None, url: Some(Address::Unix(socket.clone())) };
        let client = Client::find(&place).unwrap();
        let error = client.get_json::<Value>("/").unwrap_err().message;
        assert!(
            error.starts_with(&format!("no visiond answers at unix:{} (No such file", socket.display())),
            "{error}"
        );

        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || {
            answers(&mut listener.accept().unwrap().0, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n42")
        });
        let answer: u32 = client.post_json("/x", Some(&serde_json::json!({"a": 1})), ANSWER).unwrap();
        assert_eq!(answer, 42);
        let asked = server.join().unwrap().to_lowercase();
        assert!(asked.contains("content-type: application/json") && !asked.contains("authorization"), "{asked}");
    }
}
