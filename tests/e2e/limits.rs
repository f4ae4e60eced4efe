//! The limits of HTTP: connections, wrong tokens, sizes, and streams whose permission ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use visiond_tests::web::{Place, Stream};
use visiond_tests::{Daemon, HANG};

use crate::http::{TOKEN, config, end, goes_on, start, token_file};

/// The headers of a WebSocket's request.
const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n";

/// Requests that are answered for as long as the client stays, each a path and headers.
const STREAMS: [(&str, &str); 3] =
    [("/api/v1/stream", ""), ("/api/v1/stream", UPGRADE), ("/cameras/bars/stream.mjpeg", "")];

/// A continuing answer: its status, and the bytes after the head.
struct Open {
    status: u16,
    body: BufReader<Box<dyn Stream>>,
}

/// Sends a request with these headers, each with its line end, and reads the head of the answer.
fn open(place: &Place, path: &str, headers: &str) -> Open {
    let mut stream = place.connect();
    let host = if let Place::Tcp(address) = place { address.to_string() } else { "localhost".to_owned() };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n").unwrap();
    let mut body = BufReader::new(stream);
    let mut head = String::new();
    while body.read_line(&mut head).unwrap() > 2 {}
    let status = head.split(' ').nth(1).unwrap_or_else(|| panic!("no answer to {path}")).parse().unwrap();
    Open { status, body }
}

/// Returns a counter of the server.
fn http(place: &Place, name: &str) -> u64 {
    place.get("/api/v1/status").json()["http"][name].as_u64().unwrap()
}

/// Waits until `others` connections are open, in addition to its own.
fn wait_for_connections(daemon: &mut Daemon, place: &Place, others: u64) {
    daemon.wait_until(&format!("{others} connections"), |_| {
        let answer = place.get("/api/v1/status");
        answer.status == 200 && answer.json()["http"]["connections"] == others + 1
    });
}

#[test]
fn whatever_lasts_is_one_connection_until_it_ends() {
    let (mut daemon, place) = start("max_connections = 4");
    let socket = Place::socket(&mut daemon);
    for (path, headers) in STREAMS {
        wait_for_connections(&mut daemon, &socket, 0);
        let held: Vec<_> = (0..4).map(|_| open(&place, path, headers)).collect();
        assert!(held.iter().all(|open| matches!(open.status, 101 | 200)), "{path}");
        wait_for_connections(&mut daemon, &socket, 4);
        let answer = place.get("/api/v1/status");
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")), "{path}: {answer:?}");
        assert_eq!(
            answer.json()["detail"],
            "all connections are taken: try again later, or raise http.max_connections"
        );
        assert_eq!(open(&place, path, headers).status, 503, "{path}");
        drop(held);
        wait_for_connections(&mut daemon, &socket, 0);
        assert_eq!(place.get("/api/v1/status").status, 200, "{path}");
    }
    end(daemon);
}

#[test]
fn clients_of_one_kind_of_socket_keep_out_neither_the_other_kind_nor_health_checks() {
    let (mut daemon, address) = start("max_connections = 4");
    let socket = Place::socket(&mut daemon);
    daemon.wait_until("readiness", |_| address.get("/readyz").status == 200);
    for (full, other) in [(&address, &socket), (&socket, &address)] {
        wait_for_connections(&mut daemon, other, 0);
        let held: Vec<_> = (0..4).map(|_| open(full, "/api/v1/stream", "")).collect();
        assert!(held.iter().all(|open| open.status == 200));
        for _ in 0..10 {
            assert_eq!(full.get("/metrics").status, 503);
            assert_eq!(full.ask("POST", "/healthz", &[], "").status, 503, "no health check");
            assert_eq!(full.get("/healthz").text(), "ok\n");
            assert_eq!(full.get("/readyz").text(), "ready\n");
            assert_eq!(other.get("/metrics").status, 200);
        }
    }
    end(daemon);
}

#[test]
fn wrong_tokens_keep_out_neither_the_right_one_nor_health_checks() {
    let (_folder, token) = token_file();
    let (mut daemon, place) = start(&format!("max_connections = 8\ntoken = \"{}\"", token.display()));
    let socket = Place::socket(&mut daemon);
    let right = format!("Authorization: Bearer {TOKEN}");
    // Each has sent its request before the next connects, and reads no answer yet.
    let form = "token=wrong";
    let login = format!("POST /login HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{form}", form.len());
    let header = "GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer wrong\r\n\r\n".to_owned();
    let mut waiting: Vec<Box<dyn Stream>> = Vec::new();
    for n in 1..=60 {
        let mut stream = place.connect();
        stream.write_all(if n % 2 == 0 { &login } else { &header }.as_bytes()).unwrap();
        daemon
            .wait_until("the request to be judged", |_| http(&socket, "unauthorized") + http(&socket, "refused") == n);
        assert_eq!(http(&socket, "refused"), 0, "after {n}");
        waiting.push(stream);
    }
    assert_eq!(place.ask("GET", "/metrics", &[&right], "").status, 200);
    assert_eq!(place.get("/healthz").text(), "ok\n");
    for stream in &mut waiting {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = visiond_tests::web::Answer::parse(&answer);
        assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
        match answer.status {
            401 => assert!(answer.header("www-authenticate").is_some(), "{answer:?}"),
            429 => assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}"),
            _ => panic!("{answer:?}"),
        }
    }
    end(daemon);
}

/// Reads a WebSocket's frames up to one that closes it, and returns the code in it; panics if the connection ends before.
fn close_code(socket: &mut BufReader<Box<dyn Stream>>) -> u16 {
    let until = Instant::now() + HANG;
    loop {
        assert!(Instant::now() < until, "the stream goes on");
        let mut start = [0; 2];
        socket.read_exact(&mut start).unwrap();
        let length = match start[1] {
            126 => {
                let mut two = [0; 2];
                socket.read_exact(&mut two).unwrap();
                usize::from(u16::from_be_bytes(two))
            }
            length => usize::from(length),
        };
        let mut frame = vec![0; length];
        socket.read_exact(&mut frame).unwrap();
        if start[0] == 0x88 {
            return u16::from_be_bytes([frame[0], frame[1]]);
        }
    }
}

/// Reads a body in chunked encoding to its end in order.
fn read_to_end(body: &mut BufReader<Box<dyn Stream>>) {
    let (mut rest, until) = (Vec::new(), Instant::now() + HANG);
    while let part @ [_, ..] = body.fill_buf().unwrap() {
        let length = part.len();
        rest.extend_from_slice(part);
        body.consume(length);
        assert!(Instant::now() < until, "the stream goes on");
    }
    assert!(rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest[rest.len().saturating_sub(200)..]));
}

#[test]
fn streams_end_when_the_token_changes() {
    let (_folder, token) = token_file();
    let settings = format!("max_connections = 16\ntoken = \"{}\"", token.display());
    let (mut daemon, place) = start(&settings);
    let socket = Place::socket(&mut daemon);
    let login = place.ask("POST", "/login", &[], &format!("token={TOKEN}"));
    let cookie = format!("Cookie: {}\r\n", login.header("set-cookie").unwrap().split(';').next().unwrap());
    let header = format!("Authorization: Bearer {TOKEN}\r\n");
    let mut by_token: Vec<_> = [&cookie, &header]
        .into_iter()
        .flat_map(|proof| STREAMS.map(|(path, headers)| (headers, open(&place, path, &format!("{proof}{headers}")))))
        .collect();
    assert!(by_token.iter().all(|(_, open)| matches!(open.status, 101 | 200)));
    let mut by_socket = open(&socket, "/api/v1/stream", "");

    // A reload that changes other things leaves them alone.
    let other = config(&format!("listen = [\"127.0.0.1:0\", \"unix:{{dir}}/http.sock\"]\nmax_fps = 9.0\n{settings}"));
    daemon.reconfigure(&other);
    daemon.wait_until("the reload", |_| socket.get("/api/v1/status").json()["reloads"]["applied"] == 1);
    for (_, open) in by_token.iter_mut().filter(|(headers, _)| headers.is_empty()) {
        open.body.read_exact(&mut [0; 4096]).unwrap();
    }
    let seen = socket.get("/api/v1/status").json();
    let counts = [&seen["http"]["event_readers"], &seen["http"]["websocket_readers"], &seen["cameras"][0]["watchers"]];
    assert_eq!(counts, [3, 2, 2], "{seen}");
    std::fs::write(&token, "another-token-of-32-characters-1\n").unwrap();
    assert_eq!(socket.ask("POST", "/api/v1/reload", &[], "").status, 200);
    for (headers, open) in &mut by_token {
        if headers.is_empty() {
            read_to_end(&mut open.body);
        } else {
            assert_eq!(close_code(&mut open.body), 1008);
        }
    }
    for proof in [&cookie, &header] {
        assert_eq!(open(&place, "/api/v1/stream", proof).status, 401);
    }
    assert_eq!(open(&place, "/", "Authorization: Bearer another-token-of-32-characters-1\r\n").status, 200);
    by_socket.body.read_exact(&mut [0; 4096]).unwrap();
    assert_eq!(http(&socket, "event_readers"), 1);
    drop(by_token);
    drop(by_socket);
    wait_for_connections(&mut daemon, &socket, 0);
    end(daemon);
}

#[test]
fn connections_end_with_their_address() {
    let (mut daemon, place) = start("");
    let socket = Place::socket(&mut daemon);
    let mut idle = open(&place, "/healthz", "");
    let mut events = open(&place, "/api/v1/stream", "");
    let mut web_socket = open(&place, "/api/v1/stream", UPGRADE);
    let mut stays = open(&socket, "/api/v1/stream", "");
    daemon.reconfigure(&config("listen = [\"unix:{dir}/http.sock\"]"));
    read_to_end(&mut events.body);
    assert_eq!(close_code(&mut web_socket.body), 1001);
    let mut rest = String::new();
    idle.body.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "ok\n");
    stays.body.read_exact(&mut [0; 4096]).unwrap();
    end(daemon);
    read_to_end(&mut stays.body);
}

/// Returns a request whose head is `length` bytes long.
fn head_of(length: usize) -> Vec<u8> {
    let rest = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: \r\n\r\n";
    rest.replace("X: ", &format!("X: {}", "x".repeat(length - rest.len()))).into_bytes()
}

#[test]
fn the_sizes_of_requests_are_limited_to_the_byte() {
    let (daemon, place) = start("");
    for (length, status) in [(1000, 200), (32_768, 200), (32_769, 431), (33_000, 431), (40_000, 431), (60_000, 431)] {
        let head = head_of(length);
        assert_eq!(head.len(), length);
        assert_eq!(place.raw(&head).status, status, "{length} bytes");
        // In two parts: the second arrives when the daemon has read the first, or with it.
        let mut stream = place.connect();
        let (first, second) = head.split_at(length * 2 / 3);
        stream.write_all(first).unwrap();
        assert_eq!(place.get("/healthz").status, 200);
        let _ = stream.write_all(second);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length} bytes: {answer:.80}");
    }
    let lines = |count: usize| {
        let lines: String = (2..count).map(|n| format!("X-{n}: y\r\n")).collect();
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n")
    };
    assert_eq!(place.raw(lines(100).as_bytes()).status, 200);
    assert_eq!(place.raw(lines(101).as_bytes()).status, 431);

    let chunked = |body: &str| {
        let chunks: String =
            body.as_bytes().chunks(1000).map(|c| format!("{:x}\r\n{}\r\n", c.len(), "x".repeat(c.len()))).collect();
        let head = "POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked";
        place.raw(format!("{head}\r\n\r\n{chunks}0\r\n\r\n").as_bytes()).status
    };
    for (length, status) in [(65_536, 200), (65_537, 413), (100_000, 413)] {
        let body = "x".repeat(length);
        assert_eq!(place.ask("POST", "/api/v1/reload", &[], &body).status, status, "{length} bytes");
        assert_eq!(chunked(&body), status, "{length} bytes in chunks");
    }
    end(daemon);
}

#[test]
fn without_the_token_a_body_is_small() {
    let (_folder, token) = token_file();
    let (daemon, place) = start(&format!("token = \"{}\"", token.display()));
    let form = |length: usize| format!("token={TOKEN}&x={}", "x".repeat(length - TOKEN.len() - 9));
    for (length, status) in [(4096, 303), (4097, 413), (60_000, 413)] {
        let form = form(length);
        assert_eq!(form.len(), length);
        assert_eq!(place.ask("POST", "/login", &[], &form).status, status, "{length} bytes");
    }
    let right = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(place.ask("POST", "/api/v1/reload", &[&right], &"x".repeat(65_536)).status, 200);
    end(daemon);
}

#[test]
fn what_a_web_socket_sends_is_limited() {
    let slow = "[[camera]]\nname = \"slow\"\nsource = { type = \"pattern\", width = 64, height = 48, fps = 0.1 }\n";
    let text = config("listen = [\"127.0.0.1:0\", \"unix:{dir}/http.sock\"]");
    let mut daemon = Daemon::start(&text.replacen("[[sink]]", &format!("{slow}[[sink]]"), 1));
    let place = Place::address(&mut daemon);
    let socket = Place::socket(&mut daemon);
    let mask = [0; 4];
    let frame = |start: &[u8], body: usize| [start, &mask, &vec![b'x'; body]].concat();
    let attacks = [
        // A text that says it is 2^62 bytes long, one of 5000 bytes, and one in fragments of 1000 without an end.
        frame(&[0x81, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0], 1000),
        frame(&[0x81, 0xfe, 0x13, 0x88], 5000),
        [frame(&[0x01, 0xfe, 0x03, 0xe8], 1000), frame(&[0x00, 0xfe, 0x03, 0xe8], 1000).repeat(20)].concat(),
        // A ping that is too long, a frame without a mask, and reserved bits.
        frame(&[0x89, 0xfe, 0x03, 0xe8], 1000),
        vec![0x81, 0x01, b'x'],
        frame(&[0xf1, 0x81], 1),
    ];
    for (n, attack) in attacks.iter().enumerate() {
        let mut open = open(&place, "/api/v1/stream", UPGRADE);
        assert_eq!(open.status, 101);
        let _ = open.body.get_mut().write_all(attack);
        daemon.wait_until(&format!("attack {n} to be closed"), |_| http(&socket, "websocket_readers") == 0);
    }
    // Empty fragments without end, and pings whose answers the client does not read, take no memory.
    let before = daemon.memory_kib("VmRSS");
    for (first, again) in [(frame(&[0x01, 0x80], 0), frame(&[0x00, 0x80], 0)), (Vec::new(), frame(&[0x89, 0xfd], 125))]
    {
        let Place::Tcp(address) = place else { unreachable!("an address") };
        let mut client = TcpStream::connect(address).unwrap();
        // It writes until the daemon stops reading.
        client.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        write!(client, "GET /api/v1/stream?camera=slow HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n").unwrap();
        assert!(client.read(&mut [0; 12]).unwrap() > 0);
        client.write_all(&first).unwrap();
        let part = again.repeat(1000);
        let mut left = 20 << 20;
        while left > 0 && client.write_all(&part).is_ok() {
            left -= part.len().min(left);
        }
    }
    goes_on(&mut daemon);
    let grown = daemon.memory_kib("VmHWM").saturating_sub(before);
    assert!(grown < 10 << 10, "{grown} KiB more");
    end(daemon);
}

#[test]
fn a_client_that_sends_no_more_is_gone() {
    let (mut daemon, place) = start("");
    let socket = Place::socket(&mut daemon);
    let Place::Tcp(address) = place else { unreachable!("an address") };
    for (path, headers) in STREAMS.into_iter().chain([("/healthz", "")]) {
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        assert!(client.read(&mut [0; 12]).unwrap() > 0);
        client.shutdown(Shutdown::Write).unwrap();
        wait_for_connections(&mut daemon, &socket, 0);
    }
    end(daemon);
}

#[test]
fn pipelined_requests_are_answered_one_after_another() {
    let (daemon, place) = start("");
    let Place::Tcp(address) = place else { unreachable!("an address") };
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(HANG)).unwrap();
    let mut writer = client.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for n in 0..2000 {
            let path = if n % 2 == 0 { "healthz" } else { "nothing" };
            let last = if n == 1999 { "Connection: close\r\n" } else { "" };
            write!(writer, "GET /{path} HTTP/1.1\r\nHost: localhost\r\n{last}\r\n").unwrap();
        }
    });
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    writer.join().unwrap();
    let statuses: Vec<_> = answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "404"].repeat(1000));
    end(daemon);
}

#[test]
fn readers_that_stall_cost_little_memory() {
    let text = config("listen = [\"127.0.0.1:0\", \"unix:{dir}/http.sock\"]\nmax_fps = 20.0");
    let mut daemon = Daemon::start(&text.replace("width = 64, height = 48", "width = 640, height = 480"));
    let place = Place::address(&mut daemon);
    let socket = Place::socket(&mut daemon);
    goes_on(&mut daemon);
    let before = daemon.memory_kib("VmRSS");
    let stalled: Vec<_> = STREAMS.iter().cycle().take(500).map(|(path, headers)| open(&place, path, headers)).collect();
    assert!(stalled.iter().all(|open| matches!(open.status, 101 | 200)));
    let begin = daemon.count("out.jsonl");
    // Ten seconds of messages and images: more than the sockets' buffers hold.
    daemon.wait_until("200 messages", |daemon| daemon.count("out.jsonl") > begin + 200);
    let grown = daemon.memory_kib("VmHWM").saturating_sub(before);
    assert!(grown < 100 << 10, "{grown} KiB more");
    assert_eq!(socket.get("/healthz").status, 200);
    drop(stalled);
    wait_for_connections(&mut daemon, &socket, 0);
    goes_on(&mut daemon);
    end(daemon);
}
