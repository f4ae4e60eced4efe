//! HTTP client for the running daemon.
//!
//! The address comes from the command line, otherwise from `[http]` of the daemon's configuration. Without both it is the socket
//! of the daemon that this user runs (with the named configuration, if there is one), otherwise the service's. The client reads
//! only `[http]`, so that an error elsewhere in the configuration does not keep it from connecting.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt, fs, io, mem};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use toml::de::{DeTable, DeValue};
use visiond_system::exit::{Exit, ExitError};

use crate::config_path::config_path;

/// The HTTP socket of the systemd unit.
const SOCKET: &str = "/run/visiond/http.sock";
/// The environment variable with the token; it overrides the configuration's `token`.
const TOKEN: &str = "VISIOND_TOKEN";
/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit for the answer to a simple request.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum size of an answer, in bytes.
const MAX_ANSWER: usize = 256 << 20;

/// Flags that select the daemon to connect to.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct DaemonArgs {
    /// Read the daemon's address from this configuration [default: /etc/visiond/visiond.toml, otherwise ./visiond.toml]
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,

    /// Connect to ADDRESS: http://HOST:PORT or unix:/PATH [default: from CONFIG, or this user's daemon, or the service]
    #[arg(long, value_name = "ADDRESS", value_parser = DaemonAddress::parse)]
    pub url: Option<DaemonAddress>,
}

/// An address that a daemon listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DaemonAddress {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// `host:port`, an IPv6 address in brackets.
    Tcp(String),
}

impl DaemonAddress {
    /// Parses `http://HOST:PORT` or `unix:/PATH`; the default port is 80. The error is a sentence for clap.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if text.starts_with("https://") {
            return Err("visiond has no TLS: connect on its own machine, or through `ssh -L`".to_owned());
        }
        text.strip_prefix("http://").and_then(tcp).ok_or_else(|| "expected http://HOST:PORT or unix:/PATH".to_owned())
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
        (address.port() != 0).then(|| Self::Tcp(address.to_string()))
    }
}

impl fmt::Display for DaemonAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(authority) => write!(f, "http://{authority}"),
        }
    }
}

/// Parses `host`, `host:port`, `[::1]:port` or `::1:port`, each with or without a slash at the end.
fn tcp(text: &str) -> Option<DaemonAddress> {
    let text = text.strip_suffix('/').unwrap_or(text);
    let bare = text.rsplit_once(':').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok());
    let text = &bare.map_or_else(|| text.to_owned(), |(host, port)| format!("[{host}]:{port}"));
    let authority: Authority = text.parse().ok()?;
    let host = authority.host();
    let port = if text == host { 80 } else { authority.port_u16()? };
    let address = format!("{host}:{port}");
    let is_name = |host: &str| host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) && !host.is_empty();
    let is_valid = is_name(host) || address.parse::<SocketAddr>().is_ok();
    (is_valid && port != 0 && !text.contains('@')).then_some(DaemonAddress::Tcp(address))
}

/// A client for one daemon. Each request opens its own connection, so the daemon may restart between two requests.
pub struct Client {
    pub address: DaemonAddress,
    /// The token, or why the configuration's token cannot be read.
    token: Result<String, Option<String>>,
    runtime: Runtime,
}

/// An HTTP response of the daemon.
pub type Reply = Response<Bytes>;

impl Client {
    /// Determines the daemon's address and token.
    ///
    /// By default it is the daemon that this user runs by hand, if it accepts connections and its configuration is `runs`,
    /// otherwise the service.
    pub fn find(daemon: &DaemonArgs, runs: Option<&Path>) -> Result<Self, ExitError> {
        let http = HttpTable::of(daemon.config.clone());
        let of_config = || http.listen.into_iter().min_by_key(|address| matches!(address, DaemonAddress::Tcp(..)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ExitError::system)?;
        let known = daemon.url.clone().or_else(of_config);
        let of_user = visiond_web::user_socket().filter(|_| known.is_none());
        let address = known.unwrap_or_else(|| DaemonAddress::Unix(SOCKET.into()));
        let token = match (env::var(TOKEN).ok().filter(|token| !token.is_empty()), http.token, &address) {
            (Some(token), ..) => Ok(token),
            (None, Some(path), DaemonAddress::Tcp(_)) => {
                read_token(&path).map_err(|error| Some(format!("{}: {error}", path.display())))
            }
            _ => Err(None),
        };
        let mut client = Self { address, token, runtime };
        if let Some(socket) = of_user {
            let accepts = client.runtime.block_on(in_time(UnixStream::connect(&socket))).is_ok();
            let service = mem::replace(&mut client.address, DaemonAddress::Unix(socket));
            if !accepts || runs.is_some_and(|named| !client.config().is_ok_and(|config| is_same(&config, named))) {
                client.address = service;
            }
        }
        Ok(client)
    }

    /// Whether no daemon listens at the address: the socket does not exist, or the connection is refused.
    pub fn finds_no_listener(&self) -> bool {
        let connected = self.runtime.block_on(async {
            match &self.address {
                DaemonAddress::Unix(socket) => in_time(UnixStream::connect(socket)).await.map(drop),
                DaemonAddress::Tcp(authority) => in_time(TcpStream::connect(authority)).await.map(drop),
            }
        });
        connected.is_err_and(|error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused))
    }

    /// Gets the path of the daemon's configuration.
    pub fn config(&self) -> Result<PathBuf, ExitError> {
        #[derive(serde::Deserialize)]
        struct Status {
            config: PathBuf,
        }
        self.get_json("/api/v1/status").map(|Status { config }| config)
    }

    /// Gets the JSON at `path`.
    pub fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, ExitError> {
        self.ask(Method::GET, path, None, ANSWER).and_then(|reply| self.json(&self.success(reply)?))
    }

    /// Posts `body` to `path` and waits at most `patience` for the JSON answer.
    pub fn post_json<T: DeserializeOwned>(&self, path: &str, body: &Value, patience: Duration) -> Result<T, ExitError> {
        self.ask(Method::POST, path, Some(body), patience).and_then(|reply| self.json(&self.success(reply)?))
    }

    /// Parses the reply's body as JSON.
    pub fn json<T: DeserializeOwned>(&self, reply: &Reply) -> Result<T, ExitError> {
        let fail = |error| format!("{} is not visiond, or another version of it: {error}", self.address);
        serde_json::from_slice(reply.body()).map_err(|error| ExitError::new(Exit::Failure, fail(error)))
    }

    /// Returns the reply if its status is a success.
    ///
    /// # Errors
    /// The problem that the daemon reports.
    pub fn success(&self, reply: Reply) -> Result<Reply, ExitError> {
        if reply.status().is_success() {
            return Ok(reply);
        }
        let message = if reply.status() == StatusCode::UNAUTHORIZED {
            let why = match &self.token {
                Ok(_) => "rejects this token".to_owned(),
                Err(Some(error)) => format!("requires its token, which cannot be read from {error}"),
                Err(None) => "requires its token".to_owned(),
            };
            format!("visiond at {} {why}; set {TOKEN} to the token, or connect to the Unix socket", self.address)
        } else {
            let problem: Value = serde_json::from_slice(reply.body()).unwrap_or_default();
            let detail = problem["detail"].as_str().or(problem["title"].as_str());
            let detail = detail.unwrap_or("no details; is this visiond?");
            format!("visiond at {} returned HTTP status {}: {detail}", self.address, reply.status().as_u16())
        };
        Err(ExitError::new(Exit::Failure, message))
    }

    /// Sends a request and waits at most `patience` for the whole answer. An HTTP error status is a reply as well, see
    /// [`Client::success`].
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Reply, ExitError> {
        let address = &self.address;
        let reply = self.runtime.block_on(async {
            match address {
                DaemonAddress::Unix(socket) => {
                    let stream = in_time(UnixStream::connect(socket)).await?;
                    io::Result::Ok(timeout(patience, self.exchange(stream, method, path, body)).await)
                }
                DaemonAddress::Tcp(authority) => {
                    let stream = in_time(TcpStream::connect(authority)).await?;
                    Ok(timeout(patience, self.exchange(stream, method, path, body)).await)
                }
            }
        });
        let message = match reply {
            Ok(Ok(Ok(reply))) => return Ok(reply),
            Ok(Ok(Err(error))) => {
                format!("no answer from visiond at {address}: {error}; it may have exited, or this is not visiond")
            }
            Ok(Err(_)) => format!("no answer from visiond at {address} within {} s; see its log", patience.as_secs()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                format!(
                    "cannot open {address}: permission denied; run this as root, or as a member of the group that owns the socket"
                )
            }
            Err(error) => format!(
                "cannot connect to visiond at {address}: {error}; start it (`systemctl start visiond`, or \
                 `visiond run CONFIG`), name its configuration (its [http] `listen` has the address), or set --url"
            ),
        };
        Err(ExitError::new(Exit::Failure, message))
    }

    async fn exchange<S>(
        &self,
        stream: S,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Box<dyn Error + Send + Sync>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // An error of the connection also fails the request.
        let connection = tokio::spawn(connection);
        let host = match &self.address {
            DaemonAddress::Unix(_) => "localhost",
            DaemonAddress::Tcp(authority) => authority,
        };
        let mut request = Request::builder().method(method).uri(path).header(HOST, host);
        if let Ok(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::<Bytes>::new(body.map(|body| body.to_string().into()).unwrap_or_default());
        let (head, body) = sender.send_request(request.body(body)?).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        connection.abort();
        match body {
            Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => Err("the answer is larger than 256 MiB".into()),
            Err(error) => Err(error),
        }
    }
}

/// Whether `config`, the path that a daemon reports, is the file `named`.
pub fn is_same(config: &Path, named: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // A relative path starts at the daemon's working directory, which this process does not know.
    config.is_relative() || resolved(config) == resolved(named)
}

/// Waits at most [`CONNECT`] for a connection.
async fn in_time<T>(connect: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The daemon's addresses and token, from `[http]` of its configuration.
#[derive(Default)]
struct HttpTable {
    listen: Vec<DaemonAddress>,
    token: Option<PathBuf>,
}

impl HttpTable {
    /// Reads the named configuration, otherwise the first default one that exists; empty if it cannot be read.
    fn of(config: Option<PathBuf>) -> Self {
        let read = |path: PathBuf| Some((fs::read_to_string(&path).ok()?, path));
        let Some((text, path)) = config_path(config).ok().and_then(read) else { return Self::default() };
        Self::parse(&text, path.parent().unwrap_or(Path::new("")))
    }

    fn parse(text: &str, base: &Path) -> Self {
        let (root, _) = DeTable::parse_recoverable(text);
        let value = |key: &str| root.get_ref().get("http")?.get_ref().as_table()?.get(key).map(|value| value.get_ref());
        let listen = value("listen").and_then(DeValue::as_array).into_iter().flatten();
        let listen = listen.filter_map(|item| item.get_ref().as_str());
        let token = value("token").and_then(DeValue::as_str);
        Self {
            listen: listen.filter_map(|text| DaemonAddress::listening(text, base)).collect(),
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
        let read = |text: &str| DaemonAddress::parse(text).map(|address| address.to_string());
        for (text, expected) in [
            ("unix:/run/visiond/http.sock", "unix:/run/visiond/http.sock"),
            ("http://127.0.0.1:8790/", "http://127.0.0.1:8790"),
            ("http://gate", "http://gate:80"),
            ("http://[::1]:8790", "http://[::1]:8790"),
            ("http://::1:8790", "http://[::1]:8790"),
        ] {
            assert_eq!(read(text).unwrap(), expected);
        }
        for wrong in [
            "",
            "unix:",
            "http://",
            "http://:80",
            "http://a:b",
            "http://a:0",
            "http://a/b",
            "a:80",
            "http://[a]",
            "http://a!b:80",
            "http://a[::1]:80",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read("https://gate").unwrap_err().contains("ssh -L"));
    }

    #[test]
    fn a_configuration_with_errors_elsewhere_still_has_the_address() {
        let text = "[[camera]]\nname = 7\n[http]\nlisten = [\"0.0.0.0:8790\", 5, \"[::]:1\", \"x:0\", \"1.2.3.4:0\", \
                    \"unix:a/http.sock\"]\ntoken = \"secrets/token\"\n[log\n";
        let http = HttpTable::parse(text, Path::new("/etc/v"));
        let addresses: Vec<_> = http.listen.iter().map(DaemonAddress::to_string).collect();
        assert_eq!(addresses, ["http://127.0.0.1:8790", "http://[::1]:1", "unix:/etc/v/a/http.sock"]);
        assert_eq!(http.token.unwrap(), Path::new("/etc/v/secrets/token"));
    }

    /// Answers one request with `answer` and returns the request's head.
    fn answer_once(stream: &mut (impl Read + Write), answer: &str) -> String {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            request.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    }

    fn over_tcp(answer: &'static str, token: &str) -> (Result<Value, ExitError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (config, port) = (folder.path().join("visiond.toml"), listener.local_addr().unwrap().port());
        fs::write(&config, format!("[http]\nlisten = [\"127.0.0.1:{port}\"]\ntoken = \"./token\"\n")).unwrap();
        if !token.is_empty() {
            fs::write(folder.path().join("token"), token).unwrap();
        }
        let server = thread::spawn(move || answer_once(&mut listener.accept().unwrap().0, answer));
        let client = Client::find(&DaemonArgs { config: Some(config), url: None }, None).unwrap();
        (client.get_json("/api/v1/status"), server.join().unwrap())
    }

    #[test]
    fn the_token_comes_from_the_file_that_the_configuration_names() {
        let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n";
        let (value, request) = over_tcp(answer, "such a secret\n");
        assert_eq!(value.unwrap(), serde_json::json!({"a": 1}));
        let request = request.to_lowercase();
        assert!(request.starts_with("get /api/v1/status http/1.1\r\n"), "{request}");
        assert!(request.contains("authorization: bearer such a secret\r\n"), "{request}");
        assert!(request.contains("host: 127.0.0.1:"), "{request}");
    }

    #[test]
    fn each_failure_is_a_sentence_with_a_remedy() {
        let error = |answer, token: &str| over_tcp(answer, token).0.unwrap_err().message;
        let locked = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
        assert!(error(locked, "").contains("requires its token, which cannot be read from "));
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
    fn requests_over_the_unix_socket_carry_no_token_and_a_missing_socket_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("http.sock");
        let place = DaemonArgs { config: None, url: Some(DaemonAddress::Unix(socket.clone())) };
        let client = Client::find(&place, None).unwrap();
        let error = client.get_json::<Value>("/").unwrap_err().message;
        assert!(
            error.starts_with(&format!("cannot connect to visiond at unix:{}: No such file", socket.display())),
            "{error}"
        );

        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || {
            answer_once(&mut listener.accept().unwrap().0, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n42")
        });
        let answer: u32 = client.post_json("/x", &serde_json::json!({"a": 1}), ANSWER).unwrap();
        assert_eq!(answer, 42);
        let request = server.join().unwrap().to_lowercase();
        assert!(request.contains("content-type: application/json") && !request.contains("authorization"), "{request}");
    }

    #[test]
    fn an_address_with_a_user_or_without_a_usable_port_is_refused() {
        for wrong in ["http://a@b:80", "http://gate:65536", "http://gate:", "http://-:x", "http://[1.2.3.4]:80"] {
            let found = DaemonAddress::parse(wrong).map(|address| address.to_string());
            assert!(found.is_err(), "{wrong}: {found:?}");
        }
        for (text, expected) in
            [("http://a-b.c_d:9/", "http://a-b.c_d:9"), ("http://10.0.0.2:8790", "http://10.0.0.2:8790")]
        {
            assert_eq!(DaemonAddress::parse(text).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn a_listening_address_is_reached_from_this_machine() {
        let of = |text: &str| DaemonAddress::listening(text, Path::new("/etc/v")).map(|address| address.to_string());
        for (text, expected) in [
            ("0.0.0.0:8790", Some("http://127.0.0.1:8790")),
            ("[::]:8790", Some("http://[::1]:8790")),
            ("10.0.0.2:8790", Some("http://10.0.0.2:8790")),
            ("[fe80::1]:9", Some("http://[fe80::1]:9")),
            ("unix:/run/a.sock", Some("unix:/run/a.sock")),
            ("127.0.0.1:0", None),
            ("gate:8790", None),
        ] {
            assert_eq!(of(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_file_that_a_daemon_reports_is_the_named_one_by_any_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.toml"), "").unwrap();
        std::os::unix::fs::symlink("a.toml", at("b.toml")).unwrap();
        assert!(is_same(&at("a.toml"), &at("b.toml")) && is_same(&at("gone.toml"), &at("gone.toml")));
        assert!(!is_same(&at("a.toml"), &at("c.toml")));
        assert!(is_same(Path::new("relative.toml"), &at("a.toml")), "relative to an unknown folder");
    }
}
