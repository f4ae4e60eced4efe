//! HTTP client for the running daemon.
//!
//! The address comes from the command line, else from `[http]` of the daemon's configuration, else it is systemd's socket.
//! The client reads only `[http]`, so that an error elsewhere in the configuration does not keep it from connecting.

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

/// The socket of the systemd unit.
const SOCKET: &str = "/run/visiond/http.sock";
/// The environment variable with the token; it wins over the configuration's `token`.
const TOKEN: &str = "VISIOND_TOKEN";
/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit for an answer to a simple request.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum size of an answer, in bytes.
const MAX_ANSWER: usize = 256 << 20;

/// Flags that select the daemon to connect to.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct DaemonArgs {
    /// Daemon's configuration file, to read its address from [default: /etc/visiond/visiond.toml, else visiond.toml in this
    /// folder]
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,

    /// Connect to the daemon at ADDRESS: http://HOST:PORT or unix:/PATH [default: `[http]` of its configuration, else
    /// unix:/run/visiond/http.sock]
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub url: Option<Address>,
}

/// An address that a daemon listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A host name or IP address, and a port.
    Tcp(String, u16),
}

impl Address {
    /// Parses `http://HOST:PORT` or `unix:/PATH`. The error is a sentence because clap prints it as such.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if text.starts_with("https://") {
            return Err("visiond has no TLS: connect on its own machine, or through `ssh -L`".to_owned());
        }
        let host = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let host = host.and_then(host_and_port).map(|(host, port)| Self::Tcp(host, port));
        host.ok_or_else(|| "expected http://HOST:PORT or unix:/PATH".to_owned())
    }

    /// Turns an entry of `listen` into an address to connect to from this machine.
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
        // With port 0 the kernel chooses the port, which only the daemon knows.
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

/// Splits `host`, `host:port` or `[::1]:port`; the default port is 80.
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

/// A client for one daemon. Each request opens its own connection, so the daemon may restart between two requests.
pub struct Client {
    address: Address,
    token: Option<String>,
    /// Why the token that the configuration names cannot be read.
    no_token: Option<String>,
    runtime: Runtime,
}

/// An answer of the daemon.
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

impl Client {
    /// Determines the daemon's address and token, without connecting.
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

    /// Returns the daemon's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Gets the JSON at `path`.
    pub fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, ExitError> {
        let reply = self.ask(Method::GET, path, None, ANSWER)?;
        self.json(&self.success(reply)?)
    }

    /// Posts `body` to `path` and waits at most `patience` for the JSON answer.
    pub fn post_json<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<T, ExitError> {
        let reply = self.ask(Method::POST, path, body, patience)?;
        self.json(&self.success(reply)?)
    }

    /// Parses the reply's body as JSON.
    pub fn json<T: DeserializeOwned>(&self, reply: &Reply) -> Result<T, ExitError> {
        let fail = |error| format!("{} is not visiond, or another version of it: {error}", self.address);
        serde_json::from_slice(&reply.body).map_err(|error| ExitError::new(Exit::Failure, fail(error)))
    }

    /// Returns the reply if its status is a success.
    ///
    /// # Errors
    /// With the problem that the daemon reports.
    pub fn success(&self, reply: Reply) -> Result<Reply, ExitError> {
        if (200..300).contains(&reply.status) {
            return Ok(reply);
        }
        let message = match reply.status {
            401 => {
                let why = match (&self.token, &self.no_token) {
                    (Some(_), _) => "rejects this token".to_owned(),
                    (None, Some(error)) => format!("requires its token, which cannot be read: {error}"),
                    (None, None) => "requires its token".to_owned(),
                };
                format!("visiond at {} {why}; set {TOKEN} to the token, or connect to the Unix socket", self.address)
            }
            status => {
                let problem: Option<Value> = serde_json::from_slice(&reply.body).ok();
                let text = |key: &str| problem.as_ref()?.get(key)?.as_str().map(str::to_owned);
                let detail = text("detail").or_else(|| text("title"));
                let detail = detail.unwrap_or_else(|| "no details; is this visiond?".to_owned());
                format!("visiond at {} returned HTTP status {status}: {detail}", self.address)
            }
        };
        Err(ExitError::new(Exit::Failure, message))
    }

    /// Sends a request and waits at most `patience` for the whole answer. An HTTP error status is a reply as well, see [`Client::success`].
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
        // An error of the connection also fails the request.
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
                format!(
                    "cannot open {address}: permission denied; run this as root, or as a member of the group that owns the socket"
                )
            }
            Failure::Connect(error) => format!(
                "cannot connect to visiond at {address}: {error}; start it (`systemctl start visiond`), name its \
                 configuration (its [http] `listen` has the address), or set --url"
            ),
            Failure::Talk(error) => {
                format!("no answer from visiond at {address}: {error}; it may have exited, or this is not visiond")
            }
            Failure::Late => {
                format!("no answer from visiond at {address} within {} s; see its log", patience.as_secs())
            }
        }
    }
}

/// Why a request got no reply.
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
        Failure::Talk(if long { "the answer is larger than 256 MiB".to_owned() } else { error.to_string() })
    })?;
    Ok(Reply { status, body: body.to_bytes() })
}

/// The daemon's addresses and token, from `[http]` of its configuration.
#[derive(Default)]
struct Http {
    listen: Vec<Address>,
    token: Option<PathBuf>,
}

impl Http {
    /// Reads the named configuration, else the first of [`DEFAULT_CONFIGS`] that exists; empty if it cannot be read.
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
            // A name without a slash is a systemd credential, which only the daemon can read.
            token: token.map(|token| if token.contains('/') { base.join(token) } else { token.into() }),
        }
    }
}

fn read_token(path: &Path) -> io::Result<String> {
    if path.components().count() == 1 {
        let Some(folder) = env::var_os("CREDENTIALS_DIRECTORY") else {
            return Err(io::Error::other("it is a systemd credential, which only the service can read"));
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
        assert!(error(locked, "").contains("requires its token, which cannot be read: "));
        assert!(error(locked, "wrong").contains("rejects this token; set VISIOND_TOKEN"));
        let problem = "HTTP/1.1 404 Not Found\r\ncontent-length: 30\r\n\r\n{\"detail\":\"no such camera here\"";
        assert!(error(problem, "").contains("returned HTTP status 404"), "cut off");
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 3000\r\n\r\n{}";
        assert!(error(cut, "").contains("no answer from visiond at "));
        assert!(
            error("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "")
                .contains("is not visiond, or another version of it")
        );
        assert!(error("SSH-2.0\r\n", "").contains("this is not visiond"));
    }

    #[test]
    fn over_its_unix_socket_it_is_asked_without_a_token_and_where_it_is_not_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("http.sock");
        let place = DaemonArgs { config: None, url: Some(Address::Unix(socket.clone())) };
        let client = Client::find(&place).unwrap();
        let error = client.get_json::<Value>("/").unwrap_err().message;
        assert!(
            error.starts_with(&format!("cannot connect to visiond at unix:{}: No such file", socket.display())),
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
