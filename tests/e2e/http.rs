//! HTTP from outside: which requests are admitted, which are refused, and that the daemon keeps running.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use visiond_tests::web::{Place, Stream};
use visiond_tests::{Daemon, root, visiond};

pub const TOKEN: &str = "a-token-of-32-characters-or-so-1";

/// One camera with the tiny model, and these lines in [http].
pub fn config(http: &str) -> String {
    let tiny = root().join("tests/vm/tiny.onnx");
    format!(
        "[engine]\nbackend = \"rten\"\nthreads = 1\n[[model]]\nname = \"tiny\"\npath = \"{}\"\n[[camera]]\nname = \"bars\"\n\
         source = {{ type = \"pattern\", width = 64, height = 48, fps = 20.0 }}\n[[sink]]\ntype = \"file\"\n\
         path = \"{{dir}}/out.jsonl\"\n[http]\n{http}\n",
        tiny.display()
    )
}

pub fn start(http: &str) -> (Daemon, Place) {
    let mut daemon = Daemon::start(&config(&format!("listen = [\"127.0.0.1:0\", \"unix:{{dir}}/http.sock\"]\n{http}")));
    let place = Place::address(&mut daemon);
    (daemon, place)
}

/// With a token in a file, in a folder that must live as long.
fn start_with_token() -> (Daemon, Place, tempfile::TempDir) {
    let (folder, token) = token_file();
    let (daemon, place) = start(&format!("token = \"{}\"", token.display()));
    (daemon, place, folder)
}

/// A file with the token, in a folder that must live as long.
pub fn token_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    (folder, token)
}

/// Asserts that messages keep arriving.
pub fn goes_on(daemon: &mut Daemon) {
    let before = daemon.count("out.jsonl");
    daemon.wait_until("more messages", |d| d.count("out.jsonl") > before + 2);
}

pub fn end(daemon: Daemon) -> String {
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    ended.log
}

fn document() -> Value {
    let text = std::fs::read_to_string(root().join("docs/openapi.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Every method and path of the document, with the camera's name in it.
fn operations() -> Vec<(String, String)> {
    let document = document();
    let paths = document["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(|method| (method.to_uppercase(), path.replace("{name}", "bars"))).collect::<Vec<_>>()
    });
    operations.collect()
}

#[test]
fn without_the_token_nothing_answers_but_health() {
    let (mut daemon, place, _folder) = start_with_token();
    let others = ["/nothing", "/api", "/api/v1/", "/login", "/favicon.ico", "//", "/healthz/", "/healthz/../metrics"];
    let others = others.map(|path| ("GET".to_owned(), path.to_owned()));
    for (method, path) in operations().into_iter().chain(others) {
        let answer = place.ask(&method, &path, &[], "");
        if path == "/healthz" || path == "/readyz" {
            assert!(matches!(answer.status, 200 | 503), "{answer:?}");
            assert!(!answer.text().contains("tiny"), "no names: {answer:?}");
            continue;
        }
        if (&*method, &*path) == ("POST", "/login") {
            assert_eq!(answer.status, 400, "an empty form: {answer:?}");
            continue;
        }
        assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"visiond\""));
        assert!(!answer.text().contains("tiny"), "{answer:?}");
        if path == "/" {
            assert!(answer.text().contains("<form method=\"post\" action=\"login\""));
        } else {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
            assert_eq!(answer.json()["status"], 401);
        }
    }
    let websocket = [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==",
    ];
    assert_eq!(place.ask("GET", "/api/v1/stream", &websocket, "").status, 401);
    for wrong in ["Bearer wrong", "Basic dmlzaW9uZA==", "Bearer", &format!("Bearer {TOKEN}x")] {
        assert_eq!(
            place.ask("GET", "/api/v1/status", &[&format!("Authorization: {wrong}")], "").status,
            401,
            "{wrong}"
        );
    }
    let right = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(place.ask("GET", "/api/v1/status", &[&right], "").json()["cameras"][0]["name"], "bars");
    assert_eq!(place.ask("GET", "/nothing", &[&right], "").status, 404);
    assert!(place.ask("GET", "/api/v1/status", &[&right], "").json()["http"]["unauthorized"].as_u64().unwrap() > 20);
    // The socket's permissions are its guard.
    assert_eq!(Place::socket(&mut daemon).get("/api/v1/cameras").json()[0]["name"], "bars");
    let socket = std::fs::metadata(daemon.path("http.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o660);
    goes_on(&mut daemon);
    let log = end(daemon);
    assert!(log.contains("sent a wrong token") && !log.contains(TOKEN), "{log}");
}

#[test]
fn the_form_exchanges_the_token_for_a_cookie() {
    let (daemon, place, _folder) = start_with_token();
    let form = ["Content-Type: application/x-www-form-urlencoded"];
    let wrong = place.ask("POST", "/login", &form, "token=guess");
    assert_eq!(wrong.status, 401);
    assert!(wrong.text().contains("Wrong token") && wrong.header("set-cookie").is_none());
    let foreign = place.ask("POST", "/login", &["Origin: http://evil.example"], &format!("token={TOKEN}"));
    assert_eq!(foreign.status, 403, "a page elsewhere cannot log a browser in: {foreign:?}");
    assert!(foreign.json()["detail"].as_str().unwrap().starts_with("the request comes from a page of another origin"));
    let right = place.ask("POST", "/login", &form, &format!("token={TOKEN}"));
    assert_eq!((right.status, right.header("location")), (303, Some("./")));
    let cookie = right.header("set-cookie").unwrap();
    assert!(!cookie.contains("Path="), "it is for the folder of the page, whatever a proxy calls that: {cookie}");
    assert!(
        cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict") && !cookie.contains(TOKEN),
        "{cookie}"
    );
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert_eq!(place.ask("GET", "/api/v1/status", &[&cookie], "").status, 200);
    assert_eq!(place.ask("POST", "/api/v1/reload", &[&cookie, "Origin: http://evil.example"], "").status, 403);
    let Place::Tcp(address) = place else { unreachable!("an address") };
    let place = Place::Tcp(address);
    let ours = format!("Origin: http://{address}");
    assert_eq!(place.ask("POST", "/api/v1/reload", &[&cookie, &ours], "").json()["applied"], true);
    end(daemon);
}

#[test]
fn text_is_compressed_for_a_client_that_asks_for_it_and_streams_are_not() {
    let (mut daemon, place) = start("");
    goes_on(&mut daemon);
    let asks = ["Accept-Encoding: gzip, deflate"];
    for path in ["/", "/metrics", "/api/v1/status", "/api/v1/openapi.json"] {
        let plain = place.get(path);
        assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")), "{path}");
        let packed = place.ask("GET", path, &asks, "");
        assert_eq!((packed.status, packed.header("content-encoding")), (200, Some("gzip")), "{path}: {packed:?}");
        assert_eq!(packed.header("content-length"), Some(&*packed.body.len().to_string()), "{path}");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
        assert!(packed.body.len() < text.len() / 2, "{path}: {} of {} bytes", packed.body.len(), text.len());
        let begin: String = plain.text().chars().take(40).collect();
        assert!(text.starts_with(&begin), "{path}: {text}");
        let head = place.ask("HEAD", path, &asks, "");
        assert_eq!((head.status, head.header("content-encoding"), head.body.len()), (200, Some("gzip"), 0), "{head:?}");
    }
    for path in ["/healthz", "/cameras/bars/snapshot.jpg"] {
        let answer = place.ask("GET", path, &asks, "");
        assert_eq!((answer.status, answer.header("content-encoding")), (200, None), "{path}: {answer:?}");
    }
    let mut stream = place.connect();
    stream.write_all(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n").unwrap();
    let mut begin = Vec::new();
    while !String::from_utf8_lossy(&begin).contains("\"schema\":\"visiond/1\"") {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&begin));
        begin.extend_from_slice(&part[..read]);
    }
    end(daemon);
}

#[test]
fn a_page_from_another_origin_cannot_make_a_browser_send_requests() {
    let (daemon, place) = start("allow_hosts = [\"cams.example\"]");
    for host in ["Host: evil.example", "Host: 192.168.1.9:8790", "Host: localhost.evil.example"] {
        let answer = place.ask("GET", "/api/v1/status", &[host], "");
        assert_eq!(answer.status, 403, "{host}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("http.allow_hosts"));
        assert_eq!(place.ask("GET", "/healthz", &[host], "").status, 200, "health tells nothing");
    }
    for host in ["Host: cams.example", "Host: localhost:99", "Host: [::1]:8790"] {
        assert_eq!(place.ask("GET", "/api/v1/status", &[host], "").status, 200, "{host}");
    }
    for origin in ["Origin: http://evil.example", "Origin: null", "Origin: http://127.0.0.1:1"] {
        assert_eq!(place.ask("POST", "/api/v1/reload", &[origin], "").status, 403, "{origin}");
        let websocket = [
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==",
            origin,
        ];
        assert_eq!(place.ask("GET", "/api/v1/stream", &websocket, "").status, 403, "{origin}");
    }
    let answer = place.get("/api/v1/status");
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cross-origin-resource-policy", "same-origin"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{answer:?}");
    }
    assert!(answer.header("access-control-allow-origin").is_none());
    end(daemon);
}

#[test]
fn malformed_oversized_and_unfinished_requests_are_refused_and_the_daemon_keeps_running() {
    let (mut daemon, place) = start("");
    // Half a head: the daemon closes the connection after a timeout, and serves others meanwhile.
    let mut slow: Vec<Box<dyn Stream>> = (0..100)
        .map(|n| {
            let mut stream = place.connect();
            stream.write_all(&b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX: "[..n % 48]).unwrap();
            stream
        })
        .collect();
    // A body that never arrives.
    let mut bodiless = place.connect();
    bodiless.write_all(b"POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n1").unwrap();

    let long = "x".repeat(100_000);
    for (request, statuses) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), &[431, 414][..]),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"), &[431]),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(500)), &[431]),
        ("nonsense\r\n\r\n".to_owned(), &[400]),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), &[400, 505]),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n".to_owned(), &[400]),
        ("POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab".to_owned(), &[400]),
        ("POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n".to_owned(), &[400]),
        ("\u{0}\u{1}\u{2}\u{16}\u{3}\u{1}".to_owned() + &long, &[400, 431, 0]),
        (format!("POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\nConnection: close\r\n\r\n{}", &long[..70_000]), &[413]),
        ("POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n".to_owned(), &[413]),
        ("GET /api/v1/status HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(), &[403, 400]),
    ] {
        let answer = place.raw(request.as_bytes());
        assert!(statuses.contains(&answer.status), "{statuses:?}: {:.80} {answer:?}", request);
    }
    for path in [
        "/../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/cameras/..%2f..%2fconfig",
        "/api/v1/cameras/%00",
        "/api/v1/cameras/bars%00",
        "/api/v1/cameras/%ff%fe",
        "//etc/passwd",
        "/file:///etc/passwd",
        "/api/v1/cameras/%2Fetc%2Fpasswd/detections",
        "/cameras/..%2f/snapshot.jpg",
        "/api/v1/cameras/bars%0d%0aSet-Cookie:%20a",
        "http://localhost/../etc/passwd",
        "/api/v1/log?after=-1",
        "/api/v1/log?after=%00",
        "/api/v1/log?after=99999999999999999999999",
    ] {
        let answer = place.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}: {answer:?}");
        assert!(!answer.text().contains("root:") && answer.header("set-cookie").is_none(), "{path}: {answer:?}");
    }
    for (method, path) in
        [("DELETE", "/api/v1/status"), ("POST", "/metrics"), ("GET", "/api/v1/reload"), ("BREW", "/healthz")]
    {
        let answer = place.ask(method, path, &[], "");
        assert_eq!((answer.status, answer.header("allow").is_some()), (405, true), "{method} {path}: {answer:?}");
        assert_eq!(answer.json()["status"], 405);
    }
    goes_on(&mut daemon);
    // The half heads and the missing body have timed out.
    let mut rest = Vec::new();
    bodiless.read_to_end(&mut rest).unwrap();
    assert!(String::from_utf8_lossy(&rest).starts_with("HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
    for stream in &mut slow {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    daemon.wait_until("their connections to go", |_| {
        place.get("/api/v1/status").json()["http"]["connections"].as_u64().unwrap() <= 3
    });
    goes_on(&mut daemon);
    let log = end(daemon);
    assert!(!log.contains("bug"), "{log}");
}

#[test]
fn secrets_appear_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).display().to_string()
    };
    let (login, token) = (file("login", "admin:hidden-by-login\n"), file("token", &format!("{TOKEN}\n")));
    let text = config(&format!("listen = [\"127.0.0.1:0\", \"unix:{{dir}}/http.sock\"]\ntoken = \"{token}\""));
    let video =
        |name: &str, rest: &str| format!("[[camera]]\nname = \"{name}\"\nsource = {{ type = \"video\", {rest} }}\n");
    let cameras = "[ffmpeg]\nprogram = \"{dir}/ffmpeg\"\n".to_owned()
        + &video("gate", "url = \"rtsp://admin:hidden-in-url@127.0.0.1:1/x\"")
        + &video("yard", &format!("url = \"rtsp://127.0.0.1:1/y\", login = \"{login}\""))
        + "[[camera]]\nname = \"tool\"\nsource = { type = \"command\", command = [\"{dir}/tool\", \"--password\", \"hidden-argument\"] }\n";
    let mut daemon = Daemon::start_with(&text.replacen("[[sink]]", &format!("{cameras}[[sink]]"), 1), |command| {
        command.env("RUST_BACKTRACE", "1").arg("--log-level").arg("trace");
    });
    let socket = Place::socket(&mut daemon);
    daemon.wait_until("both streams to fail", |_| {
        let cameras = socket.get("/api/v1/cameras").json();
        cameras.as_array().unwrap().iter().filter(|camera| camera["errors"].as_u64() > Some(0)).count() == 3
    });
    let told: Vec<String> = operations()
        .iter()
        .filter(|(method, path)| method == "GET" && !path.contains("stream") && !path.contains("snapshot"))
        .map(|(_, path)| socket.get(path).text())
        .collect();
    let config = socket.get("/api/v1/config").json();
    let url = |camera: usize| config["camera"][camera]["source"]["url"].clone();
    assert_eq!((url(1), url(2)), ("rtsp://***@127.0.0.1:1/x".into(), "rtsp://127.0.0.1:1/y".into()));
    assert_eq!(config["http"]["token"], token, "its place is no secret");
    // Crash output in the log.
    daemon.signal(libc::SIGTERM);
    let ended = daemon.finish();
    for text in told.iter().chain([&ended.log]) {
        for secret in ["hidden-by-login", "hidden-in-url", "hidden-argument", TOKEN] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[test]
fn a_reload_opens_and_closes_addresses_and_leaves_the_others_alone() {
    let (mut daemon, place) = start("");
    let mut kept = place.connect();
    let http = "listen = [\"127.0.0.1:0\", \"unix:{dir}/http.sock\", \"unix:{dir}/more.sock\"]";
    daemon.reconfigure(&config(http));
    let more = daemon.path("more.sock");
    daemon.wait_until("the new socket", |_| UnixStream::connect(&more).is_ok());
    assert_eq!(Place::Unix(more.clone()).get("/healthz").status, 200);
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(kept.read(&mut [0; 4096]).unwrap() > 0, "a connection stays");
    assert_eq!(place.get("/healthz").status, 200, "the same port");

    // An address that cannot be opened is rejected, and the existing ones stay.
    let text = config("listen = [\"127.0.0.1:0\", \"unix:{dir}/http.sock\", \"unix:{dir}/nowhere/x.sock\"]");
    let text = text.replace("{dir}", &daemon.folder.path().display().to_string());
    std::fs::write(daemon.path("visiond.toml"), text).unwrap();
    let refused = Place::Unix(daemon.path("http.sock")).ask("POST", "/api/v1/reload", &[], "");
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.json()["detail"].as_str().unwrap().contains("make its folder"), "{refused:?}");
    assert_eq!(refused.json()["applied"], false);
    assert_eq!(Place::Unix(more.clone()).get("/healthz").status, 200);

    daemon.reconfigure(&config("listen = [\"unix:{dir}/http.sock\"]"));
    daemon.wait_until("the other socket to go", |_| !more.exists());
    let Place::Tcp(address) = place else { unreachable!("an address") };
    daemon.wait_until("the port to go", |_| std::net::TcpStream::connect(address).is_err());
    goes_on(&mut daemon);
    end(daemon);
}

#[test]
fn systemds_folder_has_a_socket_by_default_and_an_open_address_needs_a_token() {
    let text = config("");
    let runtime = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start_with(&text, |command| {
        command.env("RUNTIME_DIRECTORY", runtime.path());
    });
    let socket = runtime.path().join("http.sock");
    daemon.wait_until("the socket", |_| UnixStream::connect(&socket).is_ok());
    assert_eq!(Place::Unix(socket.clone()).get("/healthz").status, 200);
    end(daemon);
    assert!(!socket.exists(), "it is removed");

    let ended = Daemon::start(&config("listen = [\"0.0.0.0:0\"]")).finish();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.log);
    assert!(ended.log.contains("set `http.token`, or listen on 127.0.0.1"), "{}", ended.log);
}

/// Starts the daemon with `listener` as descriptor 3, as systemd passes it, for the process that `pid` expands to in a shell.
fn start_with_socket(listener: TcpListener, pid: &str) -> Daemon {
    let script = format!("LISTEN_PID={pid} LISTEN_FDS=1 exec \"$0\" run \"$1\" 3<&0 </dev/null");
    Daemon::start_with(&config("listen = [\"unix:{dir}/http.sock\"]"), |command| {
        let path = PathBuf::from(command.get_args().last().unwrap());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(visiond()).arg(path).env_remove("XDG_RUNTIME_DIR");
        *command = shell;
        command.stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::null()).stderr(Stdio::piped());
    })
}

#[test]
fn sockets_from_systemd_are_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::Tcp(listener.local_addr().unwrap());
    let daemon = start_with_socket(listener, "$$");
    // The socket is open before the daemon starts, so an early client waits.
    assert_eq!(place.get("/healthz").text(), "ok\n");
    end(daemon);
}

#[test]
fn sockets_that_systemd_passed_to_another_process_are_left_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut daemon = start_with_socket(listener, "1");
    // The daemon serves its own socket after those of systemd.
    assert_eq!(Place::socket(&mut daemon).get("/healthz").text(), "ok\n");
    let log = end(daemon);
    assert!(!log.contains(&address.to_string()), "{log}");
}
