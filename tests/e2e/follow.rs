//! `visiond bundle publish` and `follow`: from a folder or a web server to a daemon that uses the newest version, and back by
//! itself if its cameras fare worse; through cuts, lies and full disks.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use visiond_tests::port::Port;
use visiond_tests::{Daemon, certificates, command, skip, stderr, wait_until};

use crate::bundles::{CONFIG, Desk, refused};

const MODEL: i32 = 4;
const INPUT: i32 = 5;
const OUTPUT: i32 = 6;

impl Desk {
    pub fn publish(&self, version: &str) {
        self.succeed(&["publish", &format!("DIR/street-{version}.visiond"), "DIR/published"]);
    }

    /// Starts to follow with these arguments besides those that every test has.
    pub fn following(&self, source: &str, more: &[&str]) -> Command {
        let mut follow = command();
        let folder = self.path("");
        let folder = folder.to_str().unwrap().trim_end_matches('/');
        let args = ["bundle", "follow", "street", "--key", "DIR/team.pub", "--store", "DIR/models", "--source", source];
        let compare = if more.contains(&"--compare") { &[][..] } else { &["--compare", "0"] };
        follow.args(args.iter().chain(compare).chain(more).map(|arg| arg.replace("DIR", folder)));
        follow.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        follow
    }

    /// Follows once, from the folder where this desk publishes, without a daemon.
    pub fn follow_from(&self, source: &str, more: &[&str]) -> Output {
        let nowhere = format!("unix:{}", self.path("no.sock").display());
        self.following(source, &[&["--once", "--url", &nowhere], more].concat()).output().unwrap()
    }

    /// Follows once, with this daemon.
    pub fn follow(&self, daemon: &Daemon, more: &[&str]) -> Output {
        let url = format!("unix:{}", daemon.path("http.sock").display());
        self.following("DIR/published", &[&["--once", "--url", &url], more].concat()).output().unwrap()
    }

    /// The state of the rollout: the step, and the reason.
    pub fn state(&self) -> (String, String) {
        let text = fs::read_to_string(self.path("models/street/rollout.toml")).unwrap_or_default();
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
            line.unwrap_or_default().trim_matches('"').to_owned()
        };
        (value("step"), value("reason"))
    }

    /// Installs version 1, and starts a daemon that uses it.
    pub fn start(&self) -> Daemon {
        self.make("1", &[]);
        assert!(self.install("1", &[]).status.success());
        let mut daemon = self.daemon();
        daemon.wait_until("the first messages", |daemon| daemon.count("out.jsonl") > 10);
        daemon
    }

    pub fn daemon(&self) -> Daemon {
        Daemon::start(&CONFIG.replace("STORE", self.path("models").to_str().unwrap()))
    }

    /// Adds a key to the card, and makes a bundle that keeps what it promises.
    pub fn make_with(&self, version: &str, key: &str) {
        let card = fs::read_to_string(self.path("tiny.toml")).unwrap();
        fs::write(self.path("tiny.toml"), card.replace("[detect]\n", &format!("[detect]\n{key}\n"))).unwrap();
        let _ = fs::remove_file(self.path("expected.json"));
        self.make(version, &[]);
    }
}

pub fn labels(daemon: &Daemon) -> String {
    daemon.messages("out.jsonl").last().map(|message| message["detections"].to_string()).unwrap_or_default()
}

#[test]
fn a_published_version_is_fetched_and_proven_and_the_daemon_uses_it() {
    let desk = Desk::new();
    let mut daemon = desk.start();
    desk.relabel("\"white\"", "\"snow\"");
    fs::remove_file(desk.path("expected.json")).unwrap();
    desk.make("2", &[]);
    desk.publish("2");
    let output = desk.follow(&daemon, &["--watch", "1s"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("street 2 is in use, and watched"), "{}", stderr(&output));
    assert!(stderr(&output).contains("street 2 stays: watched for 1 s, "), "{}", stderr(&output));
    assert_eq!((desk.versions(), desk.state().0.as_str()), ([Some(2), Some(1)], "up_to_date"));
    daemon.wait_until("the second version", |daemon| labels(daemon).contains("snow"));
    let left: Vec<_> =
        fs::read_dir(desk.path("models/street/follow")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, [".lock"], "nothing is left of it");
    // The next time, nothing is to be done.
    let output = desk.follow(&daemon, &[]);
    assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
    refused(&desk.bundle(&["publish", "DIR/street-1.visiond", "DIR/published"]), MODEL, "is not newer than version 2");
}

#[test]
fn a_model_that_is_fast_and_wrong_goes_back_by_itself_and_is_never_tried_again() {
    let desk = Desk::new();
    let mut daemon = desk.start();
    // It keeps its promises, and detects an eighth of what the one before did.
    desk.make_with("2", "max_detections = 1");
    desk.publish("2");
    let output = desk.follow(&daemon, &["--watch", "20s"]);
    assert_eq!(output.status.code(), Some(MODEL), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("street 2 was left for the version before: a frame of gate has 1.00 detections"),
        "{}",
        stderr(&output)
    );
    assert_eq!(desk.versions(), [Some(1), None]);
    let (step, reason) = desk.state();
    assert!(step == "went_back" && reason.contains("detections on average"), "{step}: {reason}");
    daemon.wait_until("the first version again", |daemon| labels(daemon).matches("label").count() > 1);
    let again = desk.follow(&daemon, &["--watch", "1h"]);
    refused(&again, MODEL, "street 2 was left for the version before: a frame of gate has 1.00 detections");
    assert_eq!(desk.state().0, "went_back");
    let listed = desk.succeed(&["list", "--store", "DIR/models"]);
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.contains("2 is refused: a frame of gate has 1.00 detections"), "{listed}");
    assert!(listed.contains("published: 2 was left for the version before: a frame of gate has"), "{listed}");
    let log = daemon.terminate().log;
    assert_eq!(log.matches("reloaded").count(), 2, "{log}");
}

#[test]
fn a_reload_that_is_rejected_goes_back_at_once_but_a_wrong_configuration_is_waited_for() {
    let desk = Desk::new();
    let daemon = desk.start();
    desk.make("2", &[]);
    desk.publish("2");
    let config = CONFIG.replace("STORE", desk.path("models").to_str().unwrap());
    daemon.rewrite("nonsense = 1\n");
    let output = desk.follow(&daemon, &["--watch", "1h"]);
    refused(&output, 3, "street 2 waits: a reload would be rejected now, whatever the model is: ");
    assert!(stderr(&output).contains("visiond.toml:1:1: unknown key `nonsense`"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("1 | nonsense"), "{}", stderr(&output));
    assert_eq!((desk.versions(), desk.state().0.as_str()), ([Some(1), None], "proving"));
    // It is valid, but its socket cannot be opened, which only the reload finds.
    daemon.rewrite(&config.replace("unix:{dir}/http.sock", "unix:{dir}/missing/http.sock"));
    let output = desk.follow(&daemon, &["--watch", "2s"]);
    // The version before is rejected as well, so the new one is not to blame.
    let words = "street 2 waits: a reload is rejected with the version before as well, so it is tried again: ";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
    assert!(!output.status.success(), "{}", stderr(&output));
    assert_eq!((desk.versions(), desk.state().0.as_str()), ([Some(1), None], "proving"));
}

#[test]
fn a_version_is_watched_across_a_kill_and_goes_back_if_the_daemon_was_restarted() {
    let desk = Desk::new();
    let daemon = desk.start();
    desk.make("2", &[]);
    desk.publish("2");
    let url = |daemon: &Daemon| format!("unix:{}", daemon.path("http.sock").display());
    let mut killed = desk.following("DIR/published", &["--url", &url(&daemon), "--watch", "20s"]).spawn().unwrap();
    wait_until("the watch", || desk.state().0 == "watching");
    // Another one does not follow the same bundle.
    refused(&desk.follow(&daemon, &[]), 1, "another `visiond bundle follow` uses");
    killed.kill().unwrap();
    killed.wait().unwrap();
    daemon.terminate();
    let mut other = desk.daemon();
    other.wait_until("its first messages", |daemon| daemon.count("out.jsonl") > 0);
    let output = desk.follow(&other, &["--watch", "20s"]);
    assert_eq!(output.status.code(), Some(MODEL), "{}", stderr(&output));
    assert_eq!(desk.versions(), [Some(1), None]);
    assert_eq!(
        desk.state(),
        ("went_back".to_owned(), "the daemon was restarted while the version was watched".to_owned())
    );
}

#[test]
fn without_a_daemon_a_version_is_installed_and_one_that_breaks_its_promise_is_refused() {
    let desk = Desk::new();
    desk.make("1", &[]);
    desk.publish("1");
    let output = desk.follow_from("DIR/published", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("street 1 is installed, not watched: cannot connect"), "{}", stderr(&output));
    assert_eq!(desk.versions(), [Some(1), None]);
    // The reason stays.
    assert!(stderr(&desk.follow_from("DIR/published", &[])).is_empty());
    let listed = desk.succeed(&["list", "--store", "DIR/models"]);
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.contains("published: 1 is installed, not watched: cannot connect"), "{listed}");
    desk.make("2", &["--max-latency-p99-ms", "0.0001"]);
    desk.publish("2");
    refused(&desk.follow_from("DIR/published", &[]), 8, "street 2 is refused, and the version in use stays: 99 of 100");
    assert_eq!((desk.versions(), desk.state().0.as_str()), ([Some(1), None], "refused"));
    let again = desk.follow_from("DIR/published", &[]);
    refused(&again, MODEL, "street 2 is refused, and the version in use stays: 99 of 100");
    // A model that cannot be loaded is tried three times.
    fs::write(desk.path("tiny.onnx"), "no model").unwrap();
    desk.make("3", &[]);
    desk.publish("3");
    for attempt in 1..=2 {
        let words = format!("street 3 waits: it could not be proven, and is tried again (attempt {attempt} of 3): ");
        refused(&desk.follow_from("DIR/published", &[]), MODEL, &words);
    }
    for _ in 0..2 {
        let words = "street 3 is refused, and the version in use stays: ";
        refused(&desk.follow_from("DIR/published", &[]), MODEL, words);
    }
    // Another key: refused as long as it is not trusted, and without being fetched again.
    desk.succeed(&["keys", "DIR/other", "--no-password"]);
    fs::copy(desk.path("street-1.visiond"), desk.path("street-4.visiond")).unwrap();
    fs::remove_dir_all(desk.path("published")).unwrap();
    desk.publish("4");
    let index = desk.path("published/street/index.toml");
    fs::write(&index, fs::read_to_string(&index).unwrap().replace("version = 1", "version = 4")).unwrap();
    let stranger = ["--key", "DIR/other.pub"];
    let mut follow = command();
    let args = ["bundle", "follow", "street", "--once", "--source", "DIR/published", "--store", "DIR/models"];
    let folder = desk.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    follow.args(args.iter().chain(&stranger).map(|arg| arg.replace("DIR", &folder)));
    refused(&follow.output().unwrap(), MODEL, "which is not trusted here");
    let words = "street 4 is refused, and the version in use stays: its file in the source is the bundle street 1";
    refused(&desk.follow_from("DIR/published", &[]), MODEL, words);
    // Its file is not fetched again.
    fs::remove_file(desk.path("published/street/1.visiond")).unwrap();
    assert_eq!(desk.follow_from("DIR/published", &[]).status.code(), Some(MODEL));
    assert_eq!(desk.versions(), [Some(1), None]);
}

#[test]
fn a_daemon_that_cannot_be_asked_is_waited_for_and_one_that_uses_another_store_is_not_followed() {
    let desk = Desk::new();
    let daemon = desk.start();
    desk.make("2", &[]);
    desk.publish("2");
    // It accepts connections, and is not the daemon.
    let other = Server::start(desk.path("published"), Manner::Whole);
    let output = desk.following("DIR/published", &["--once", "--url", &other.url]).output().unwrap();
    refused(&output, 1, "street 2 waits: http://127.0.0.1:");
    assert_eq!((desk.versions(), desk.state().0.as_str()), ([Some(1), None], "proving"));
    // A key that cannot be read is corrected later.
    let url = format!("unix:{}", daemon.path("http.sock").display());
    fs::write(desk.path("broken.pub"), "no key").unwrap();
    let output =
        desk.following("DIR/published", &["--once", "--url", &url, "--key", "DIR/broken.pub"]).output().unwrap();
    refused(&output, 3, "street 2 waits: ");
    let mut elsewhere = command();
    elsewhere.args(["bundle", "follow", "street", "--once", "--url", &url]).arg("--key").arg(desk.path("team.pub"));
    elsewhere.arg("--store").arg(desk.path("other")).arg("--source").arg(desk.path("published"));
    let words = format!("the daemon's bundles are in {}: use --store", desk.path("models").display());
    refused(&elsewhere.output().unwrap(), 3, &words);
    assert!(!desk.path("other/street/current").exists());
}

#[test]
fn a_version_that_is_rolled_back_by_hand_is_no_longer_watched() {
    let desk = Desk::new();
    let daemon = desk.start();
    desk.make("2", &[]);
    desk.publish("2");
    let url = format!("unix:{}", daemon.path("http.sock").display());
    let args = ["--once", "--url", &url, "--watch", "20s"];
    let follow = desk.following("DIR/published", &args).spawn().unwrap();
    wait_until("the watch", || desk.state().0 == "watching");
    desk.succeed(&["rollback", "street", "--store", "DIR/models"]);
    let output = follow.wait_with_output().unwrap();
    refused(&output, MODEL, "street 2 is no longer watched: it was rolled back by hand (street 1)");
    assert_eq!(desk.state(), ("went_back".to_owned(), "rolled back by hand".to_owned()));
}

#[test]
fn a_misspelt_name_and_a_source_without_its_scheme_are_reported() {
    let desk = Desk::new();
    desk.make("1", &[]);
    desk.publish("1");
    let server = Server::start(desk.path("published"), Manner::Missing);
    let folder = desk.path("published");
    for source in [folder.to_str().unwrap(), &server.url] {
        let mut follow = command();
        follow.args(["bundle", "follow", "stret", "--once", "--source", source, "--store"]).arg(desk.path("models"));
        let words = "the source has no bundle named stret: check the name, or publish it";
        refused(&follow.output().unwrap(), INPUT, words);
    }
    let listed = desk.succeed(&["list", "--store", "DIR/models"]);
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(
        listed.contains("stret                no version yet\n") && listed.contains("  follows http://"),
        "{listed}"
    );
    let output = desk.follow_from("models.example/bundles", &[]);
    refused(&output, 2, "write https://models.example/bundles, or an absolute folder");
}

/// How a web server answers.
#[derive(Clone)]
enum Manner {
    /// As any does, but each connection ends after so many bytes of the body.
    Cut(u64),
    /// Without ranges, the whole file each time.
    Whole,
    /// With a byte of the file changed.
    Changed,
    /// With the file's begin, whatever range is requested.
    Begin,
    /// With this instead of an index.
    Index(String),
    /// With an index that never ends.
    Endless,
    /// With a redirect.
    Redirect,
    /// Without an index.
    Missing,
}

/// A web server of a folder, which counts the bytes of bodies that it sends.
struct Server {
    url: String,
    manner: Arc<Mutex<Manner>>,
    sent: Arc<AtomicU64>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(folder: PathBuf, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (manner, sent, requests) = (Arc::new(Mutex::new(manner)), Arc::default(), Arc::default());
        let server = Self { url, manner, sent, requests };
        let (manner, sent, requests) =
            (Arc::clone(&server.manner), Arc::clone(&server.sent), Arc::clone(&server.requests));
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let manner = manner.lock().unwrap().clone();
                // A client that has enough closes the connection.
                let _ = answer(stream, &folder, &manner, &sent, &requests);
            }
        });
        server
    }

    fn sent(&self) -> u64 {
        self.sent.swap(0, Ordering::Relaxed)
    }
}

fn answer(
    stream: TcpStream,
    folder: &Path,
    manner: &Manner,
    sent: &AtomicU64,
    requests: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut head = Vec::new();
    while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
        head.push(line);
    }
    let path = head[0].split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
    let value = |name: &str| {
        head.iter().find_map(|line| line.to_lowercase().strip_prefix(&format!("{name}: ")).map(str::to_owned))
    };
    requests.lock().unwrap().push(format!("{path} {}", value("if-none-match").unwrap_or_default()));
    let mut stream = stream;
    let bytes = fs::read(folder.join(&path)).unwrap_or_default();
    if path.ends_with("index.toml") {
        let bytes = match manner {
            Manner::Redirect => return write!(stream, "HTTP/1.1 302 Found\r\nLocation: https://elsewhere/a\r\n\r\n"),
            Manner::Missing => return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            Manner::Endless => {
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")?;
                for _ in 0..100_000 {
                    stream.write_all(&[b'#'; 10_000])?;
                    sent.fetch_add(10_000, Ordering::Relaxed);
                }
                return Ok(());
            }
            Manner::Index(text) => text.clone().into_bytes(),
            _ => bytes,
        };
        if value("if-none-match").as_deref() == Some("\"one\"") {
            return write!(stream, "HTTP/1.1 304 Not Modified\r\n\r\n");
        }
        write!(stream, "HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
        return stream.write_all(&bytes);
    }
    let all = bytes.len();
    let begin = value("range").and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse::<usize>().ok());
    let begin = begin.unwrap_or(0);
    let (status, begin, mut body) = match manner {
        Manner::Whole => ("200 OK".to_owned(), 0, bytes),
        Manner::Begin => (format!("206 Partial Content\r\nContent-Range: bytes 0-{}/{all}", all - 1), 0, bytes),
        _ => (
            format!("206 Partial Content\r\nContent-Range: bytes {begin}-{}/{all}", all - 1),
            begin,
            bytes[begin..].to_vec(),
        ),
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", all - begin)?;
    match manner {
        Manner::Cut(most) => body.truncate(usize::try_from(*most).unwrap()),
        Manner::Changed => body[0] ^= 1,
        _ => {}
    }
    for piece in body.chunks(10_000) {
        stream.write_all(piece)?;
        sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Bytes that cannot be compressed.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(bytes / 8).flatten().collect()
}

#[test]
fn a_web_server_that_cuts_every_connection_sends_next_to_nothing_twice() {
    let desk = Desk::new();
    fs::write(desk.path("weights.bin"), noise(40 << 20)).unwrap();
    let weights = ["--with".to_owned(), desk.path("weights.bin").display().to_string()];
    desk.make("1", &[&weights[0], &weights[1]]);
    desk.publish("1");
    let size = fs::metadata(desk.path("street-1.visiond")).unwrap().len();
    assert!(size > 40 << 20, "{size}");
    for cut in [3_333_333, 20_000_000, u64::MAX >> 1] {
        let server = Server::start(desk.path("published"), Manner::Cut(cut));
        let _ = fs::remove_dir_all(desk.path("models"));
        let output = desk.follow_from(&server.url, &[]);
        assert!(output.status.success(), "{cut}: {}", stderr(&output));
        assert!(stderr(&output).contains("cross the network in clear text"), "{}", stderr(&output));
        let sent = server.sent();
        assert!((size..=size + size / 50).contains(&sent), "cut after {cut}: {sent} of {size}");
    }
    // A server without ranges is of use as long as it does not cut.
    let server = Server::start(desk.path("published"), Manner::Whole);
    fs::remove_dir_all(desk.path("models")).unwrap();
    assert!(desk.follow_from(&server.url, &[]).status.success());
    assert_eq!(server.sent(), size);
    // A process that is killed while it fetches, again and again: the next one continues.
    let server = Server::start(desk.path("published"), Manner::Cut(u64::MAX >> 1));
    fs::remove_dir_all(desk.path("models")).unwrap();
    let here = || {
        let files = fs::read_dir(desk.path("models/street/follow")).into_iter().flatten().map_while(Result::ok);
        let bundles = files.filter(|file| file.path().extension().is_some_and(|ending| ending == "visiond"));
        bundles.filter_map(|file| file.metadata().ok()).map(|found| found.len()).sum::<u64>()
    };
    for stage in 1..=3 {
        let mut follow = Killed(desk.following(&server.url, &["--once", "--max-rate", "30MiB"]).spawn().unwrap());
        wait_until("some bytes", || here() > stage * 12_000_000);
        assert!(follow.0.try_wait().unwrap().is_none(), "it ended before it was killed");
    }
    assert!(here() < size);
    let output = desk.follow_from(&server.url, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(desk.versions(), [Some(1), None]);
}

#[test]
fn a_web_server_that_lies_is_asked_again_later_and_changes_nothing() {
    let desk = Desk::new();
    desk.make("1", &[]);
    desk.publish("1");
    let index = fs::read_to_string(desk.path("published/street/index.toml")).unwrap();
    let server = Server::start(desk.path("published"), Manner::Changed);
    let size = fs::metadata(desk.path("street-1.visiond")).unwrap().len();
    let bytes = format!("bytes = {size}");
    assert!(index.contains(&bytes));
    for (manner, words) in [
        (Manner::Changed, "part 1 of street/1.visiond has other contents than its index says"),
        (Manner::Index(index.replace("1.visiond", "../../1.visiond")), "must be the name of a file beside the index"),
        (Manner::Index(index.replace(&bytes, &format!("bytes = {}", size + 9))), "the answer ends 9 bytes early"),
        (
            Manner::Index(index.replace(&bytes, &format!("bytes = {}", size - 9))),
            "part 1 of street/1.visiond has other contents",
        ),
        (Manner::Index(index.replace(&bytes, "bytes = 60000000000")), "60000000000 bytes have 7153"),
        (Manner::Index("<html>".to_owned()), "street/index.toml is no index of bundles"),
        (Manner::Endless, "it has more than 1048576 bytes"),
        (Manner::Redirect, "the server redirects to https://elsewhere/a (HTTP status 302): use that URL"),
        (Manner::Index(index.replace("\"street\"", "\"door\"")), "it is of \"door\""),
    ] {
        *server.manner.lock().unwrap() = manner;
        let output = desk.follow_from(&server.url, &[]);
        refused(&output, INPUT, words);
        assert_eq!(desk.state().0, "unreachable", "{words}");
        // A gigabyte is not read to its end; the rest are what sockets hold.
        assert!(server.sent() < 50_000_000, "{words}");
    }
    // The begin of the file is what is requested first.
    *server.manner.lock().unwrap() = Manner::Begin;
    assert!(desk.follow_from(&server.url, &[]).status.success());
    assert_eq!(desk.versions(), [Some(1), None]);
    let gone = format!("http://127.0.0.1:{}", Port::reserve().number);
    refused(&desk.follow_from(&gone, &[]), INPUT, "Connection refused");
    refused(&desk.follow_from(&format!("{}/no", server.url), &[]), INPUT, "is no index of bundles");
    for (source, words) in [("ftp://a/b", "https://HOST/PATH"), ("https://a:b@c/d", "remove user and password")] {
        refused(&desk.follow_from(source, &[]), 2, words);
    }
    refused(
        &desk.bundle(&["follow", "..", "--source", "DIR", "--store", "DIR/models"]),
        2,
        "a bundle's name must have 1 to 64",
    );
}

#[test]
fn a_service_asks_for_what_has_changed_alone() {
    let desk = Desk::new();
    desk.make("1", &[]);
    desk.publish("1");
    let server = Server::start(desk.path("published"), Manner::Cut(u64::MAX >> 1));
    let nowhere = format!("unix:{}", desk.path("no.sock").display());
    let follow = desk.following(&server.url, &["--url", &nowhere, "--interval", "100ms"]).spawn().unwrap();
    let follow = Killed(follow);
    wait_until("an answer that nothing has changed", || {
        server.requests.lock().unwrap().iter().any(|request| request == "street/index.toml \"one\"")
    });
    wait_until("the installation", || desk.state().0 == "up_to_date");
    drop(follow);
    let files = server.requests.lock().unwrap().iter().filter(|request| request.starts_with("street/1")).count();
    assert_eq!((files, desk.versions()), (1, [Some(1), None]));
}

pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_web_server_with_tls_must_have_a_certificate_that_is_trusted() {
    let desk = Desk::new();
    desk.make("1", &[]);
    desk.publish("1");
    certificates::make(&desk.path(""), "IP:127.0.0.1");
    let port = Port::reserve();
    let mut openssl = Command::new("openssl");
    openssl.args(["s_server", "-WWW", "-quiet", "-accept", &format!("127.0.0.1:{}", port.number)]);
    for name in ["cert", "key"] {
        let file = desk.path(if name == "cert" { "server.pem" } else { "server.key" });
        openssl.arg(format!("-{name}")).arg(file);
    }
    openssl.current_dir(desk.path("published")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Killed(openssl.spawn().unwrap());
    wait_until("the server", || TcpStream::connect(("127.0.0.1", port.number)).is_ok());
    let url = format!("https://127.0.0.1:{}", port.number);
    let nowhere = format!("unix:{}", desk.path("no.sock").display());
    let follow = |ca: &str| {
        let mut follow = desk.following(&url, &["--once", "--url", &nowhere]);
        follow.env("SSL_CERT_FILE", desk.path(ca)).env_remove("SSL_CERT_DIR").output().unwrap()
    };
    refused(
        &follow("other-ca.pem"),
        INPUT,
        "unknown certificate issuer: name the file of the signing CA with SSL_CERT_FILE",
    );
    let output = follow("ca.pem");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(desk.versions(), [Some(1), None]);
}

#[test]
fn a_full_disk_takes_no_bundle_and_keeps_its_reserve() {
    let desk = Desk::new();
    let models = desk.path("models");
    fs::create_dir(&models).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=90m", "none"]).arg(&models).stderr(Stdio::null());
    if !mount.status().is_ok_and(|status| status.success()) {
        skip("this user cannot mount a small disk");
        return;
    }
    let _unmount = Unmounted(models.clone());
    fs::write(desk.path("weights.bin"), noise(20 << 20)).unwrap();
    desk.make("1", &["--with", desk.path("weights.bin").to_str().unwrap()]);
    desk.publish("1");
    let file = models.join("other");
    fs::write(&file, noise(10 << 20)).unwrap();
    refused(&desk.follow_from("DIR/published", &[]), OUTPUT, "MiB are needed in");
    assert_eq!(desk.state().0, "fetching");
    // Now it can be fetched, and not be unpacked as well.
    fs::remove_file(&file).unwrap();
    refused(&desk.follow_from("DIR/published", &[]), OUTPUT, "MiB are needed in");
    assert_eq!(desk.state().0, "proving");
    let mut larger = Command::new("mount");
    assert!(larger.args(["-o", "remount,size=200m"]).arg(&models).status().unwrap().success());
    let output = desk.follow_from("DIR/published", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(desk.versions(), [Some(1), None]);
}

pub struct Unmounted(pub PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
