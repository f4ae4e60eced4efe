//! A cluster whose replicas lag: an operator's command that reads what it has just written may get the record of before.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use visiond_tests::stderr;

use crate::bundles::Desk;
use crate::fleet::Office;

/// How the record of street in the group north is read and written.
const READ: &str = "$JS.API.DIRECT.GET.KV_visiond-desired.$KV.visiond-desired.group.north.street";
const WRITE: &str = "$KV.visiond-desired.group.north.street";

/// How many reads after each write get the answer of before.
const STALE: u32 = 3;

/// What one connection has seen.
#[derive(Default)]
struct Seen {
    /// The subjects of its subscriptions, and their numbers.
    subscriptions: Vec<(String, String)>,
    /// Where the answer to a read that was passed on goes.
    asked: String,
    /// The last answer from before a write: its lengths, and its bytes.
    before: Option<(String, Vec<u8>)>,
    stale: u32,
}

/// Starts a server that passes everything on to one of NATS, but answers reads after a write as a replica without it would. Returns
/// its port.
fn lag(server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the test's process.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
            }
            let (seen, to_client) = (Arc::default(), Arc::new(Mutex::new(client.try_clone().unwrap())));
            let (seen_too, to_client_too) = (Arc::clone(&seen), Arc::clone(&to_client));
            let from_server = BufReader::new(server.try_clone().unwrap());
            thread::spawn(move || pass_to_client(from_server, &to_client_too, &seen_too));
            thread::spawn(move || pass_to_server(BufReader::new(client), server, &to_client, &seen));
        }
    });
    port
}

/// Reads a line and, if it announces one, its payload; `None` at the end of the connection.
fn read(from: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    if from.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut payload = Vec::new();
    if ["PUB ", "HPUB ", "MSG ", "HMSG "].iter().any(|verb| line.starts_with(verb)) {
        payload = vec![0; line.split_whitespace().last()?.parse::<usize>().ok()? + 2];
        from.read_exact(&mut payload).ok()?;
    }
    Some((line, payload))
}

fn pass_to_client(mut from: impl BufRead, client: &Mutex<TcpStream>, seen: &Mutex<Seen>) -> Option<()> {
    loop {
        let (line, payload) = read(&mut from)?;
        let words: Vec<_> = line.split_whitespace().collect();
        if words[0] == "HMSG" {
            let mut seen = seen.lock().unwrap();
            if words[1] == seen.asked {
                seen.before = Some((words[words.len() - 2..].join(" "), payload.clone()));
            }
        }
        client.lock().unwrap().write_all(&[line.as_bytes(), &payload].concat()).ok()?;
    }
}

fn pass_to_server(
    mut from: impl BufRead,
    mut server: TcpStream,
    client: &Mutex<TcpStream>,
    seen: &Mutex<Seen>,
) -> Option<()> {
    loop {
        let (line, payload) = read(&mut from)?;
        let words: Vec<_> = line.split_whitespace().collect();
        let subject = words.get(1).copied().unwrap_or_default();
        {
            let mut seen = seen.lock().unwrap();
            if words[0] == "SUB" {
                seen.subscriptions.push((subject.to_owned(), words[words.len() - 1].to_owned()));
            } else if subject == WRITE {
                seen.stale = STALE;
            } else if subject == READ && seen.stale > 0 {
                seen.stale -= 1;
                let (lengths, answer) = seen.before.clone().expect("it was read before it was written");
                let of_reply = |subject: &str| words[2].starts_with(subject.trim_end_matches(['*', '>']));
                let (_, number) = seen.subscriptions.iter().find(|(subject, _)| of_reply(subject)).unwrap();
                let head = format!("HMSG {} {number} {lengths}\r\n", words[2]);
                client.lock().unwrap().write_all(&[head.as_bytes(), &answer].concat()).ok()?;
                continue;
            } else if subject == READ {
                seen.asked = words[2].to_owned();
            }
        }
        server.write_all(&[line.as_bytes(), &payload].concat()).ok()?;
    }
}

#[test]
fn a_rollout_goes_on_although_replicas_lag_after_each_of_its_changes() {
    let office = Office::of(Desk::new());
    let _devices = ["gate-0", "gate-1"].map(|name| office.device(name, &[]));
    office.wait("both devices to report", || office.reported().len() == 2);
    let url = format!("nats://127.0.0.1:{}", lag(office.server.port));
    for version in ["1", "2"] {
        if version == "2" {
            office.push(version);
        }
        let args = ["fleet", "rollout", "street", version, "--group", "north", "--waves", "50", "--soak", "0"];
        let output = visiond_tests::run(args.into_iter().chain(["--nats", &url]));
        let done = format!("street {version}: done: 2 succeeded");
        assert!(output.status.success() && stderr(&output).contains(&done), "{}", stderr(&output));
    }
    assert_eq!(office.versions(), [Some(2); 2]);
}
