#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use visiond_frames::clock::SystemClock;
use visiond_system::testing::{EVER, finishes, hang, never, while_it_waits};

use super::*;
use crate::camera_tls::tests::Certificates;

/// A request as received by the server: its lines.
#[derive(Debug, Clone)]
pub struct Request(pub Vec<String>);

impl Request {
    pub fn path(&self) -> &str {
        self.0[0].split(' ').nth(1).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.0.iter().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim())
    }
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// A server that stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    pub requests: Arc<Mutex<Vec<Request>>>,
    scheme: &'static str,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// Starts one that passes each request and the client's stream to `answer`, which returns whether the connection
    /// continues.
    pub fn start(answer: impl Fn(&Request, &mut dyn Write) -> bool + Send + Sync + 'static) -> Self {
        Self::start_with(None, answer)
    }

    pub fn start_with(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&Request, &mut dyn Write) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (ends, opened, seen) = (Arc::clone(&over), Arc::clone(&connections), Arc::clone(&requests));
        let answer = Arc::new(answer);
        let thread = thread::spawn(move || {
            for socket in listener.incoming().map(Result::unwrap) {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                opened.fetch_add(1, Ordering::SeqCst);
                let (answer, seen, tls) = (Arc::clone(&answer), Arc::clone(&seen), tls.clone());
                thread::spawn(move || serve(socket, tls, &seen, answer.as_ref()));
            }
        });
        Self { address, connections, requests, scheme, over, thread: Some(thread) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn serve(
    socket: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    seen: &Mutex<Vec<Request>>,
    answer: &dyn Fn(&Request, &mut dyn Write) -> bool,
) {
    socket.set_nodelay(true).unwrap();
    let stream: Box<dyn ReadWrite> = match tls {
        Some(config) => Box::new(StreamOwned::new(ServerConnection::new(config).unwrap(), socket)),
        None => Box::new(socket),
    };
    let mut stream = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if !matches!(stream.read_line(&mut line), Ok(1..)) {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_owned());
        }
        let request = Request(lines);
        seen.lock().push(request.clone());
        if !answer(&request, stream.get_mut().as_mut()) || stream.get_mut().flush().is_err() {
            return;
        }
    }
}

/// Writes to a client, which may be gone.
pub fn write(client: &mut dyn Write, bytes: &[u8]) -> bool {
    client.write_all(bytes).and_then(|()| client.flush()).is_ok()
}

/// Ends the connection after what was written.
pub fn closing(_written: bool) -> bool {
    false
}

/// Answers with a status, more header lines and a body.
pub fn answer(client: &mut dyn Write, status: &str, headers: &str, body: &[u8]) -> bool {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    write(client, &[head.as_bytes(), body].concat())
}

fn config(url: &str) -> SnapshotConfig {
    SnapshotConfig { url: url.to_owned(), ..SnapshotConfig::default() }
}

fn client(config: &SnapshotConfig) -> HttpClient {
    HttpClient::new(&HttpCamera::from(config), Arc::new(SystemClock)).unwrap()
}

/// Reads an answer to its end.
fn body(client: &mut HttpClient, answer: &mut Answer) -> Result<Vec<u8>, Failure> {
    let (mut all, stop) = (Vec::new(), Stop::new().unwrap());
    loop {
        match client.read(answer, |bytes, _| all.extend_from_slice(bytes))? {
            Progress::Some => {}
            Progress::Nothing => assert_eq!(client.wait(&stop, hang())?, Wake::Ready),
            Progress::End => return Ok(all),
            Progress::Closed if answer.ends_with_connection() => return Ok(all),
            Progress::Closed => return Err(Failure::Absent("cut off".to_owned())),
        }
    }
}

fn get(client: &mut HttpClient) -> Result<(u16, Vec<u8>), Failure> {
    let mut answer = client.get(&[], &Stop::new().unwrap(), hang())?;
    Ok((answer.status, body(client, &mut answer)?))
}

fn refused(config: &SnapshotConfig) -> String {
    match get(&mut client(config)) {
        Err(Failure::Refused(reason) | Failure::Absent(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bodies_by_length_in_chunks_and_until_the_end_arrive_whole() {
    let server = Server::start(|request, client| {
        match request.path() {
        "/length?a=b" => answer(client, "200 OK", "", b"hello"),
        "/chunks" => write(client, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
        "/lf" => write(client, b"HTTP/1.0 200 OK\nConnection : Keep-Alive\nContent-Length:5\n\nhello"),
        _ => closing(write(client, b"HTTP/1.0 200 OK\r\n\r\nhel") && write(client, b"lo")),
    }
    });
    for (path, connections) in [("/length?a=b", 1), ("/chunks", 2), ("/lf", 3), ("/end", 5)] {
        let mut client = client(&config(&server.url(path)));
        for _ in 0..2 {
            assert_eq!(get(&mut client), Ok((200, b"hello".to_vec())), "{path}");
        }
        // Two requests on one connection, if the camera allows it.
        assert_eq!(server.connections(), connections, "{path}");
    }
    let first = server.requests.lock()[0].clone();
    assert_eq!(first.0[0], "GET /length?a=b HTTP/1.1");
    assert_eq!(
        (first.header("host"), first.header("user-agent")),
        (Some(&*server.address.to_string()), Some("visiond"))
    );
}

#[test]
fn a_kept_connection_that_the_camera_has_closed_is_made_again() {
    // Announces that the connection stays open, and closes it.
    let server = Server::start(|_, client| closing(answer(client, "200 OK", "", b"x")));
    let mut client = client(&config(&server.url("/")));
    for count in 1..=3 {
        assert_eq!(get(&mut client), Ok((200, b"x".to_vec())));
        assert_eq!(server.connections(), count);
    }
}

#[test]
fn each_refusal_says_what_to_do() {
    let server = Server::start(|request, client| {
        let status = request.path().trim_start_matches('/').replace('-', " ");
        answer(client, &status, "WWW-Authenticate: Basic realm=\"c\"\r\n", b"no")
    });
    for (path, words) in [
        ("/401-No", "requires a user and password (401): set `login`"),
        ("/403-No", "forbids this to this user (403): check the user's rights"),
        ("/404-No", "no such path (404): correct the path in `url`"),
        ("/503-Busy", "too many clients, or starts (503)"),
        ("/500-Oh", "an error of its own (500)"),
        ("/418-Tea", "answers with HTTP status 418"),
        ("/302-Where", "answers with HTTP status 302"),
    ] {
        let said = refused(&config(&server.url(path)));
        assert!(said.contains(words), "{path}: {said}");
    }
}

#[test]
fn a_login_is_sent_as_asked_and_once_where_it_is_wrong() {
    let server = Server::start(|request, client| {
        let sent = request.header("authorization").unwrap_or_default();
        let (challenge, wanted) = match request.path() {
            "/basic" => ("Basic realm=\"c\"", "Basic dXNlcjpwQHNz"),
            "/digest" => ("Digest realm=\"c\", nonce=\"n1\", qop=\"auth\"", "username=\"user\""),
            "/unknown" => ("Negotiate", "-"),
            _ => ("Basic realm=\"c\"", "-"),
        };
        if !sent.is_empty() && sent.contains(wanted) {
            answer(client, "200 OK", "", sent.as_bytes())
        } else {
            answer(client, "401 No", &format!("WWW-Authenticate: {challenge}\r\n"), b"a page")
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let login = folder.path().join("login");
    std::fs::write(&login, "user:p@ss\n").unwrap();
    let with_file = |path: &str| SnapshotConfig { login: Some(login.clone()), ..config(&server.url(path)) };
    let in_url = |path: &str| config(&server.url(path).replace("//", "//user:p%40ss@"));
    for config in [with_file("/basic"), in_url("/basic"), with_file("/digest"), in_url("/digest")] {
        let before = server.requests.lock().len();
        let mut client = client(&config);
        assert_eq!(get(&mut client).unwrap().0, 200);
        assert_eq!(get(&mut client).unwrap().0, 200);
        // The challenge is requested once.
        assert_eq!(server.requests.lock().len() - before, 3, "{}", config.url);
    }
    let before = server.requests.lock().len();
    assert!(refused(&with_file("/wrong")).contains("refuses the user or password (401): correct `login`"));
    assert_eq!(server.requests.lock().len() - before, 2, "cameras lock out a client that tries again and again");
    let unknown = refused(&with_file("/unknown"));
    assert!(unknown.contains("an authentication that visiond does not have (Negotiate)"), "{unknown}");
    let digest_only = |path| SnapshotConfig { require_digest: true, ..with_file(path) };
    assert_eq!(get(&mut client(&digest_only("/digest"))).unwrap().0, 200);
    let before = server.requests.lock().len();
    let strict = refused(&digest_only("/basic"));
    assert!(
        strict.contains("the camera offers no digest authentication (Basic realm=\"c\"), which `require_digest`"),
        "{strict}"
    );
    assert_eq!(server.requests.lock().len() - before, 1, "the password was not sent");
}

#[test]
fn a_nonce_that_ages_is_replaced_at_each_request() {
    let count = AtomicUsize::new(0);
    // Each nonce serves one request. This one says so by `stale`, the other by another challenge alone.
    let server = Server::start(move |request, client| {
        let stale = if request.path() == "/stale" { ", stale=\"TRUE\"" } else { "" };
        let now = count.load(Ordering::SeqCst);
        if request.header("authorization").is_some_and(|sent| sent.contains(&format!("nonce=\"n{now}\""))) {
            count.fetch_add(1, Ordering::SeqCst);
            return answer(client, "200 OK", "", b"x");
        }
        answer(client, "401 No", &format!("WWW-Authenticate: Digest realm=\"c\", nonce=\"n{now}\"{stale}\r\n"), b"")
    });
    for path in ["/stale", "/silent"] {
        let mut client = client(&config(&server.url(path).replace("//", "//u:p@")));
        for _ in 0..5 {
            assert_eq!(get(&mut client).unwrap().0, 200, "{path}");
        }
    }
}

#[test]
fn a_body_that_is_not_needed_and_does_not_come_costs_a_new_connection_alone() {
    let server = Server::start(|request, client| {
        let (path, is_known) = (request.path(), request.header("authorization").is_some());
        let head = match (path, is_known) {
            (_, true) | ("/there", _) => return answer(client, "200 OK", "", b"here"),
            ("/late", _) => "401 No\r\nWWW-Authenticate: Basic realm=\"c\"\r\nContent-Length: 500\r\n\r\nhalf a",
            ("/large", _) => "401 No\r\nWWW-Authenticate: Basic realm=\"c\"\r\nContent-Length: 99999999\r\n\r\n",
            ("/broken", _) => {
                "401 No\r\nWWW-Authenticate: Basic realm=\"c\"\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"
            }
            _ => "302 Found\r\nLocation: /there\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
        };
        write(client, format!("HTTP/1.1 {head}").as_bytes());
        thread::sleep(EVER);
        false
    });
    for (number, path) in ["/late", "/large", "/broken", "/moved"].into_iter().enumerate() {
        let mut client = client(&config(&server.url(path).replace("//", "//user:pw@")));
        assert_eq!(get(&mut client), Ok((200, b"here".to_vec())), "{path}");
        assert_eq!(server.connections(), 2 * (number + 1), "{path}");
    }
}

#[test]
fn status_lines_of_odd_servers_are_read() {
    let server = Server::start(|request, client| {
        let head = match request.path() {
            "/icy" => "ICY 200 OK\r\nContent-Length: 5\r\n\r\n",
            "/icy-kept" => "ICY 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n",
            "/2" => "HTTP/2 200\r\nContent-Length: 5\r\n\r\n",
            "/small" => "http/1.1 200 ok\r\nContent-Length: 5\r\n\r\n",
            "/short" => "HTTP/1.1 200\nContent-Length: 5\n\n",
            "/blank" => "\r\n\n\r\nHTTP/1.1 100 Continue\r\n\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            "/twice" => "HTTP/1.1 200 OK\r\nContent-Length: 5, 5 ,5\r\n\r\n",
            "/patient" => {
                let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(MOST_INTERIM);
                return write(client, interim.as_bytes())
                    && write(client, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
            }
            _ => return closing(write(client, b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello")),
        };
        write(client, head.as_bytes()) && write(client, b"hello")
    });
    for (path, connections) in [
        ("/icy", 2),
        ("/icy-kept", 1),
        ("/2", 1),
        ("/small", 1),
        ("/short", 1),
        ("/blank", 1),
        ("/twice", 1),
        ("/patient", 1),
        ("/differ", 2),
    ] {
        let (mut client, before) = (client(&config(&server.url(path))), server.connections());
        for _ in 0..2 {
            assert_eq!(get(&mut client), Ok((200, b"hello".to_vec())), "{path}");
        }
        assert_eq!(server.connections() - before, connections, "{path}");
    }
}

#[test]
fn blank_lines_without_end_are_no_answer() {
    let server = Server::start(|_, client| (0..).all(|_| write(client, &b"\r\n".repeat(512))));
    let config = config(&server.url("/"));
    let said = finishes("the answer", move || refused(&config));
    assert!(said.contains("the head of the answer does not end"), "{said}");
}

#[test]
fn values_of_the_camera_begin_no_line_of_a_request() {
    let server = Server::start(|request, client| match request.header("authorization") {
        _ if request.path() == "/open" => answer(client, "200 OK", "", b"x"),
        _ => answer(client, "401 No", "WWW-Authenticate: Digest realm=\"c\", nonce=\"n\rX-Evil: 1\"\r\n", b""),
    });
    let said = refused(&config(&server.url("/login").replace("//", "//user:pw@")));
    assert!(said.contains("asks for an authentication that visiond does not have"), "{said}");
    let mut client = client(&config(&server.url("/open")));
    let headers: [(&str, &[u8]); 3] = [("If-None-Match", b"a\rX-Evil: 1"), ("X-Zero", b"\0"), ("X-Good", b"\xfc y")];
    client.get(&headers[..2], &Stop::new().unwrap(), hang()).unwrap();
    let sent = server.requests.lock().iter().flat_map(|request| request.0.clone()).collect::<Vec<_>>().join("\n");
    assert!(!sent.contains("Evil") && !sent.contains("Zero"), "{sent}");
    assert!(request(&Url::parse("http://h/").unwrap(), None, &headers).ends_with(b"\r\nX-Good: \xfc y\r\n\r\n"));
}

#[test]
fn a_compressed_body_is_decoded_although_none_is_asked_for() {
    let server = Server::start(|request, client| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"hello").unwrap();
        let mut body = gzip.finish().unwrap();
        if request.path() == "/damaged" {
            body[10] = 0xFF;
        }
        answer(client, "200 OK", "Content-Encoding: GZIP\r\n", &body)
    });
    let mut client = client(&config(&server.url("/")));
    for _ in 0..2 {
        assert_eq!(get(&mut client), Ok((200, b"hello".to_vec())));
    }
    assert_eq!((server.connections(), server.requests.lock()[0].header("accept-encoding")), (1, None));
    assert!(refused(&config(&server.url("/damaged"))).contains("switch HTTP compression off in the camera"));
}

#[test]
fn a_camera_gets_the_cookies_back_that_it_sets_and_no_other_host_does() {
    let elsewhere = Server::start(|_, client| answer(client, "200 OK", "", b"elsewhere"));
    // Another name for another host, at the same address.
    let other = elsewhere.url("/").replace("127.0.0.1", "localhost");
    let server = Server::start(move |request, client| match (request.path(), request.header("cookie")) {
        ("/away", _) => answer(client, "302 Found", &format!("Set-Cookie: a=hush\r\nLocation: {other}\r\n"), b""),
        ("/", None) => answer(
            client,
            "302 Found",
            "Set-Cookie: sid=old\r\nSet-Cookie: sid=7; Path=/; HttpOnly\r\nSet-Cookie: \r\nSet-Cookie: b=c=d\r\nLocation: /\r\n",
            b"",
        ),
        (_, cookies) => answer(client, "200 OK", "", cookies.unwrap_or_default().as_bytes()),
    });
    let mut camera = client(&config(&server.url("/")));
    for _ in 0..2 {
        assert_eq!(get(&mut camera), Ok((200, b"sid=7; b=c=d".to_vec())));
    }
    // One request for the cookies.
    assert_eq!(server.requests.lock().len(), 3);
    assert_eq!(get(&mut client(&config(&server.url("/away")))), Ok((200, b"elsewhere".to_vec())));
    assert_eq!(elsewhere.requests.lock()[0].header("cookie"), None);
}

#[test]
fn cookies_without_end_take_no_memory() {
    let sent = AtomicUsize::new(0);
    let server = Server::start(move |request, client| {
        let first = sent.fetch_add(100, Ordering::SeqCst);
        let headers: String = (first..first + 100).map(|n| format!("Set-Cookie: n{n}={n}\r\n")).collect();
        let long = "x".repeat(2000);
        let headers = format!("Set-Cookie: long={long}\r\n{headers}");
        answer(client, "200 OK", &headers, request.header("cookie").unwrap_or_default().as_bytes())
    });
    let mut camera = client(&config(&server.url("/")));
    assert_eq!(get(&mut camera).unwrap().1, b"");
    for _ in 0..2 {
        let cookies = String::from_utf8(get(&mut camera).unwrap().1).unwrap();
        assert_eq!((cookies.matches('=').count(), cookies.contains("long")), (MOST_COOKIES, false), "{cookies}");
    }
}

#[test]
fn redirects_are_followed_and_the_login_stays_at_its_host() {
    let other = Server::start(|request, client| match request.header("authorization") {
        Some(_) => answer(client, "500 It has the login", "", b""),
        None if request.path() == "/open" => answer(client, "200 OK", "", b"there"),
        None => answer(client, "401 No", "WWW-Authenticate: Basic realm=\"c\"\r\n", b""),
    });
    // Another name for the same machine is another host.
    let elsewhere = format!("http://localhost:{}", other.address.port());
    let server = Server::start(move |request, client| {
        let to = match request.path() {
            "/relative" => "login?x=1".to_owned(),
            "/endless" => "/endless".to_owned(),
            "/odd" => "ftp://elsewhere/".to_owned(),
            "/other-open" => format!("{elsewhere}/open"),
            "/other-closed" => format!("{elsewhere}/closed"),
            _ if request.header("authorization").is_some() => return answer(client, "200 OK", "", b"here"),
            _ => return answer(client, "401 No", "WWW-Authenticate: Basic realm=\"c\"\r\n", b""),
        };
        answer(client, "302 Found", &format!("Location: {to}\r\n"), b"moved")
    });
    let camera = |path: &str| config(&server.url(path).replace("//", "//user:hush@"));
    assert_eq!(get(&mut client(&camera("/relative"))), Ok((200, b"here".to_vec())));
    assert_eq!(get(&mut client(&camera("/other-open"))), Ok((200, b"there".to_vec())));
    let said = refused(&camera("/other-closed"));
    assert!(
        said.contains("redirects to another host or away from TLS, where visiond does not send the login"),
        "{said}"
    );
    assert!(other.requests.lock().iter().all(|request| request.header("authorization").is_none()));
    assert!(refused(&camera("/endless")).contains("redirects more than 5 times"));
    assert!(refused(&camera("/odd")).contains("redirects to ftp://elsewhere/, which is no URL of HTTP"));
}

#[test]
fn a_redirect_to_tls_is_followed_with_the_login_and_back_without() {
    let files = Certificates::new();
    files.self_signed("camera", "");
    let plain_port = Arc::new(AtomicUsize::new(0));
    let port = Arc::clone(&plain_port);
    let secure = Server::start_with(Some(files.server("camera")), move |request, client| {
        match (request.path(), request.header("authorization")) {
            ("/back", _) => {
                let to = format!("Location: http://127.0.0.1:{}/plain\r\n", port.load(Ordering::SeqCst));
                answer(client, "302 Found", &to, b"")
            }
            (_, Some(_)) => answer(client, "200 OK", "", b"secure"),
            (_, None) => answer(client, "401 No", "WWW-Authenticate: Basic realm=\"c\"\r\n", b""),
        }
    });
    let to = secure.url("/in");
    let plain = Server::start(move |request, client| match request.path() {
        "/plain" if request.header("authorization").is_some() => answer(client, "200 It has the login", "", b""),
        "/plain" => answer(client, "401 No", "WWW-Authenticate: Basic realm=\"c\"\r\n", b""),
        _ => answer(client, "301 Moved", &format!("Location: {to}\r\n"), b""),
    });
    plain_port.store(plain.address.port().into(), Ordering::SeqCst);
    let pinned = |url: &str| SnapshotConfig {
        fingerprint: Some(files.fingerprint("camera")),
        ..config(&url.replace("//", "//user:hush@"))
    };
    let mut moved = client(&pinned(&plain.url("/")));
    for _ in 0..3 {
        assert_eq!(get(&mut moved), Ok((200, b"secure".to_vec())));
    }
    assert_eq!(
        (plain.requests.lock().len(), plain.connections(), secure.connections()),
        (1, 1, 1),
        "it has moved for good"
    );
    let said = refused(&pinned(&secure.url("/back")));
    assert!(said.contains("away from TLS, where visiond does not send the login"), "{said}");
}

#[test]
fn tls_is_by_fingerprint_ca_or_insecure_and_refused_with_what_to_set() {
    let files = Certificates::new();
    files.self_signed("camera", "");
    files.self_signed("other", "");
    let server = Server::start_with(Some(files.server("camera")), |_, client| answer(client, "200 OK", "", b"picture"));
    let camera = config(&server.url("/"));
    for config in [
        SnapshotConfig { fingerprint: Some(files.fingerprint("camera")), ..camera.clone() },
        SnapshotConfig { ca: Some(files.path("camera.pem")), ..camera.clone() },
        SnapshotConfig { insecure: true, ..camera.clone() },
    ] {
        let mut client = client(&config);
        assert_eq!(get(&mut client), Ok((200, b"picture".to_vec())));
        assert_eq!(get(&mut client), Ok((200, b"picture".to_vec())));
    }
    assert_eq!(server.connections(), 3);
    let said = refused(&SnapshotConfig { ca: Some(files.path("other.pem")), ..camera.clone() });
    let remedy = format!("correct `ca`, or set `fingerprint = \"{}\"` instead", files.fingerprint("camera"));
    assert!(said.contains(&remedy), "{said}");
    // Through a redirect, the URL must be written too, because one of http has no fingerprint.
    let to = server.url("/in?token=hush");
    let from = Server::start(move |_, client| answer(client, "302 Found", &format!("Location: {to}\r\n"), b""));
    let said = refused(&self::config(&from.url("/")));
    let whither = format!("the camera redirects to {}/in", server.url(""));
    let remedy = format!(
        "whose certificate is self-signed: write that URL in `url` and set `fingerprint = \"{}\"`",
        files.fingerprint("camera")
    );
    assert!(said.starts_with(&whither) && said.contains(&remedy) && !said.contains("hush"), "{said}");
    let said = refused(&SnapshotConfig { fingerprint: Some(files.fingerprint("other")), ..camera });
    assert!(said.contains("another fingerprint than `fingerprint`"), "{said}");
    // One without TLS, and the other way round.
    let plain = Server::start(|_, client| closing(answer(client, "400 Bad Request", "", b"")));
    let config = SnapshotConfig { insecure: true, ..config(&plain.url("/").replace("http:", "https:")) };
    let said = refused(&config);
    assert!(said.contains("TLS"), "{said}");
    let config = SnapshotConfig { insecure: false, ..self::config(&server.url("/").replace("https:", "http:")) };
    assert!(!refused(&config).is_empty());
}

#[test]
fn answers_that_are_none_end_with_a_sentence_and_take_no_memory() {
    let server = Server::start(|request, client| match request.path() {
        "/none" => false,
        "/cut" => closing(write(client, b"HTTP/1.1 200 OK\r\nContent-Le")),
        "/short" => closing(write(client, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")),
        "/rtsp" => write(client, b"RTSP/1.0 400 Bad Request\r\n\r\n"),
        "/ssh" => {
            write(client, b"SSH-2.0-OpenSSH_9.2\r\n");
            // It waits for the client's line.
            thread::sleep(EVER);
            false
        }
        "/chunk" => write(client, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
        "/interim" => (0..100).all(|_| write(client, b"HTTP/1.1 100 Continue\r\n\r\n")),
        "/line" => (0..1000).all(|_| write(client, &[b'x'; 1024])),
        _ => {
            write(client, b"HTTP/1.1 200 OK\r\n")
                && (0..10_000).all(|i| write(client, format!("X-{i}: y\r\n").as_bytes()))
        }
    });
    for (path, words) in [
        ("/none", "closed the connection without an answer; if it speaks TLS there, use https://"),
        ("/cut", "in the middle of its answer"),
        ("/short", "cut off"),
        (
            "/rtsp",
            "the answer is not HTTP (RTSP/1.0 400 Bad Request): write rtsp:// in `url` and set `type = \"rtsp\"`",
        ),
        ("/ssh", "the answer is not HTTP (SSH-2.0-OpenSSH_9.2): correct the port in `url`"),
        ("/chunk", "breaks HTTP's chunked coding"),
        ("/interim", "the head of the answer does not end"),
        ("/line", "the head of the answer does not end"),
        ("/headers", "the head of the answer does not end"),
    ] {
        let config = config(&server.url(path));
        let said = finishes("the answer", move || refused(&config));
        assert!(said.contains(words), "{path}: {said}");
    }
}

#[test]
fn a_camera_that_is_away_or_silent_is_absent_and_a_stop_ends_each_wait() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/", listener.local_addr().unwrap())
    };
    let absent = get(&mut client(&config(&gone))).unwrap_err();
    assert!(
        matches!(&absent, Failure::Absent(reason) if reason.contains("cannot connect to 127.0.0.1:")),
        "{absent:?}"
    );
    let unknown = get(&mut client(&config("http://no-such-host.invalid/"))).unwrap_err();
    assert!(
        matches!(&unknown, Failure::Absent(reason) if reason.contains("cannot resolve no-such-host.invalid")),
        "{unknown:?}"
    );
    // Accepts connections, and answers nothing, without TLS and before TLS.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for scheme in ["http", "https"] {
        let silent = SnapshotConfig {
            insecure: scheme == "https",
            ..config(&format!("{scheme}://{}/", listener.local_addr().unwrap()))
        };
        let mut first = client(&silent);
        let late = first.get(&[], &Stop::new().unwrap(), Instant::now()).err().unwrap();
        assert!(matches!(late, Failure::Absent(_)), "{late:?}");
        let mut second = client(&silent);
        let stopped = while_it_waits(move |stop| second.get(&[], stop, never()).err(), Stop::raise);
        assert_eq!(stopped, Some(Failure::Stopped));
    }
}

#[test]
fn a_port_that_takes_connections_and_does_not_answer_tls_is_said_before_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = SnapshotConfig { insecure: true, ..config(&format!("https://{}/", listener.local_addr().unwrap())) };
    let said = client(&silent).get(&[], &Stop::new().unwrap(), hang()).err();
    assert!(matches!(&said, Some(Failure::Absent(reason)) if reason.contains("no TLS at that port")), "{said:?}");
}

#[test]
fn what_cannot_be_used_is_found_before_the_camera_is_asked() {
    let wrong = SnapshotConfig {
        login: Some("/nonexistent/login".into()),
        ca: Some("/nonexistent/ca".into()),
        ..config("https://:80/")
    };
    let keys: Vec<_> = HttpCamera::from(&wrong).check().iter().map(|fault| fault.key).collect();
    assert_eq!(keys, ["login", "url", "ca"]);
    assert!(HttpCamera::from(&config("http://10.0.0.1/a")).check().is_empty());
}

proptest::proptest! {
    #[test]
    fn no_head_panics(bytes: Vec<u8>) {
        let now = clock::now(&SystemClock);
        let _ = (head_end(&bytes), parse(&bytes, now));
        let _ = parse(&[b"HTTP/1.1 200 OK\r\n", &bytes[..]].concat(), now);
    }
}
