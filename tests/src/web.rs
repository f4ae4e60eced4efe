//! HTTP for tests, over either kind of socket, down to raw bytes.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

use crate::{Daemon, HANG};

/// The address of a daemon.
#[derive(Debug, Clone)]
pub enum Place {
    /// At an address.
    Tcp(SocketAddr),
    /// At a socket.
    Unix(PathBuf),
}

/// Bytes both ways.
pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// What was answered.
#[derive(Clone, Default)]
pub struct Answer {
    /// The status; 0: none, the connection was closed.
    pub status: u16,
    /// The head, as received.
    pub head: String,
    /// The bytes after the head, chunks joined.
    pub body: Vec<u8>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        let begin: String = text.chars().take(400).collect();
        write!(f, "{}\n\n{begin}", self.head)
    }
}

impl Answer {
    /// Parses everything received until the connection was closed.
    pub fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else { return Self { body: bytes.to_vec(), ..Self::default() } };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = &bytes[end + 4..];
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Self { status, head, body: if chunked { unchunked(body) } else { body.to_vec() } }
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let length = std::str::from_utf8(&body[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(length) = length.filter(|length| *length > 0 && end + 2 + length <= body.len()) else { break };
        out.extend_from_slice(&body[end + 2..end + 2 + length]);
        body = body.get(end + 4 + length..).unwrap_or_default();
    }
    out
}

impl Place {
    /// The daemon's own socket in its folder, as `listen = ["unix:{dir}/http.sock"]` has it; waits until it is served.
    pub fn socket(daemon: &mut Daemon) -> Self {
        let path = daemon.path("http.sock");
        daemon.wait_until("the socket of HTTP", |_| UnixStream::connect(&path).is_ok());
        Self::Unix(path)
    }

    /// The address that the daemon chose for `listen = ["127.0.0.1:0", "unix:{dir}/http.sock"]`.
    pub fn address(daemon: &mut Daemon) -> Self {
        Self::socket(daemon);
        let at = |log: &str| log.rsplit_once("serving at http://")?.1.split_once('\n')?.0.trim().parse().ok();
        daemon.wait_until("the address in the log", |daemon| at(&daemon.log()).is_some());
        Self::Tcp(at(&daemon.log()).expect("it was there"))
    }

    /// A connection.
    pub fn connect(&self) -> Box<dyn Stream> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).expect("a connection");
                stream.set_read_timeout(Some(HANG)).expect("a timeout");
                Box::new(stream)
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path).expect("a connection");
                stream.set_read_timeout(Some(HANG)).expect("a timeout");
                Box::new(stream)
            }
        }
    }

    /// Sends `bytes`, and receives until the connection is closed.
    pub fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A rejected client may be disconnected while it sends, but still gets an answer.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut part) {
            answer.extend_from_slice(&part[..n]);
        }
        Answer::parse(&answer)
    }

    /// Asks with these further headers, each `Name: value`.
    pub fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        let host = match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(_) => "localhost".to_owned(),
        };
        let host = if headers.iter().any(|line| line.starts_with("Host:")) {
            String::new()
        } else {
            format!("Host: {host}\r\n")
        };
        let more: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let request = format!("{method} {path} HTTP/1.1\r\n{host}{more}{length}Connection: close\r\n\r\n{body}");
        self.raw(request.as_bytes())
    }

    /// `GET`.
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }
}
