//! The permissions in docs/fleet.md: a device can do its work with them, and no harm.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use visiond_nats::auth::LoginSource;
use visiond_nats::object::{Position, Store};
use visiond_nats::{Client, Options};
use visiond_system::credentials::Login;
use visiond_tests::nats::NatsServer;
use visiond_tests::{assert_no_panic, command, root, stderr, wait_until_or_show};

use super::{NORTH, Office, QUICK};
use crate::bundles::{Desk, refused};

const CONFIG: i32 = 3;

/// What the subjects of JetStream's API begin with in the account of devices.
const PREFIX: &str = "fleet.API";

/// A fleet whose server has the documented accounts, with a second device.
fn guarded() -> Office {
    let documented = fs::read_to_string(root().join("docs/fleet.md")).unwrap();
    let (_, block) = documented.split_once("```nats\n").unwrap();
    let (accounts, _) = block.split_once("```").unwrap();
    let (before, device) = accounts.split_once("{ user: gate-7").unwrap();
    let (device, after) = device.split_once("} }\n").unwrap();
    let device = format!("{{ user: gate-7{device}}} }}\n");
    let both = format!("{before}{device}{}{after}", device.replace("gate-7", "gate-8"));
    let server = NatsServer::start_with(|_| both);
    let office = Office { desk: Desk::new(), server };
    succeed(&office, &["init"]);
    office.desk.make("1", &[]);
    succeed(&office, &["push", "DIR/street-1.visiond"]);
    office
}

/// Runs `visiond fleet ARGS` as the operator.
fn operator(office: &Office, args: &[&str]) -> Output {
    let mut fleet = office.command(args);
    let output = fleet.env("NATS_USER", "operator").env("NATS_PASSWORD", "change-me-too").output().unwrap();
    assert_no_panic(&stderr(&output));
    output
}

fn succeed(office: &Office, args: &[&str]) -> Output {
    let output = operator(office, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    output
}

fn json(office: &Office, args: &[&str]) -> Value {
    serde_json::from_slice(&succeed(office, args).stdout).unwrap()
}

/// Lets a device look once, with the login of `user`.
fn follow(office: &Office, name: &str, user: &str, prefix: &str) -> Output {
    let mut follow = command();
    follow.args(["bundle", "follow", "street", "--group", "north", "--device", name, "--once"]);
    follow
        .args(["--source", &office.url(), "--url", "unix:/nowhere/http.sock", "--key"])
        .arg(office.desk.path("team.pub"));
    follow.arg("--store").arg(office.desk.path(name)).env("NATS_USER", user).env("NATS_PASSWORD", "change-me");
    let output = follow.env("NATS_JS_API_PREFIX", prefix).stdin(Stdio::null()).output().unwrap();
    assert_no_panic(&stderr(&output));
    output
}

#[test]
fn a_device_needs_no_more_than_its_own_permissions() {
    let office = guarded();
    let output = follow(&office, "gate-7", "gate-7", PREFIX);
    assert!(
        output.status.success() && stderr(&output).contains("its group has no version of it yet"),
        "{}",
        stderr(&output)
    );
    succeed(&office, &[&["rollout", "street", "1", "--no-wait", "--waves", "100"], &QUICK[..]].concat());
    let output = follow(&office, "gate-7", "gate-7", PREFIX);
    assert!(output.status.success() && stderr(&output).contains("street 1"), "{}", stderr(&output));
    let devices = json(&office, &["devices", "--json"]);
    assert_eq!((&devices[0]["device"], &devices[0]["bundles"][0]["current"]), (&"gate-7".into(), &1.into()));
    // It cannot speak for another, and not for the operator.
    let output = follow(&office, "gate-9", "gate-7", PREFIX);
    assert!(
        stderr(&output).contains("cannot report to the fleet as") && stderr(&output).contains("allow it"),
        "{}",
        stderr(&output)
    );
    let output = follow(&office, "gate-7", "gate-7", "$JS.API");
    assert!(stderr(&output).contains("NATS_JS_API_PREFIX"), "{}", stderr(&output));
    let output = follow(&office, "gate-7", "gate-7", "fleet API");
    refused(&output, CONFIG, "set NATS_JS_API_PREFIX to words with dots between them");
    let mut pinned = office.command(&["pin", "gate-7", "street"]);
    pinned.env("NATS_USER", "gate-7").env("NATS_PASSWORD", "change-me").env("NATS_JS_API_PREFIX", PREFIX);
    refused(&pinned.output().unwrap(), CONFIG, "this login may not");
    // An interrupted fetch goes on in the middle of the file.
    let file = fs::read(office.desk.path("street-1.visiond")).unwrap();
    let login = LoginSource::Login(Login::new("gate-7".to_owned(), "change-me".to_owned()));
    let options = Options {
        login,
        api_prefix: Some(PREFIX.to_owned()),
        inbox_word: Some("gate-7".to_owned()),
        ..Options::new(vec![office.url()], "visiond test")
    };
    let rest = async {
        let mut client = Client::connect(options).await.unwrap();
        let store = Store::open(&mut client, "visiond-bundles").await.unwrap();
        let info = store.info(&mut client, "street/1.visiond").await.unwrap().unwrap();
        let mut rest = Vec::new();
        let mut take = |piece: &[u8]| {
            rest.extend_from_slice(piece);
            ControlFlow::Continue(())
        };
        let range = file.len() as u64 / 2..info.size;
        store.read_range(&mut client, &info, range, &mut Position::default(), &mut take).await.unwrap();
        rest
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime.block_on(rest) == file[file.len() / 2..]);
}

/// A client that sends what it likes.
struct Hostile(BufReader<TcpStream>);

impl Hostile {
    fn connect(port: u16, user: &str) -> Self {
        let mut client = Self(BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap()));
        let login = json!({ "user": user, "pass": "change-me", "verbose": false, "headers": true });
        client.send(&format!("CONNECT {login}\r\nSUB _INBOX.{user}.> 1\r\n"));
        assert_eq!(client.settle(), "");
        client
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Publishes, and asks for the answer to be sent to `reply`.
    fn publish(&mut self, subject: &str, reply: &str, payload: &str) {
        self.send(&format!("PUB {subject} {reply} {}\r\n{payload}\r\n", payload.len()));
    }

    fn publish_with(&mut self, header: &str, subject: &str, reply: &str, payload: &str) {
        let headers = format!("NATS/1.0\r\n{header}\r\n\r\n");
        let (most, all) = (headers.len(), headers.len() + payload.len());
        self.send(&format!("HPUB {subject} {reply} {most} {all}\r\n{headers}{payload}\r\n"));
    }

    /// Waits until the server has taken what was sent; returns its errors.
    fn settle(&mut self) -> String {
        self.send("PING\r\n");
        let mut errors = String::new();
        loop {
            let line = self.line();
            match line.split_whitespace().next() {
                Some("PONG") => return errors,
                Some("-ERR") => errors += &line,
                Some("MSG" | "HMSG") => drop(self.payload(&line)),
                _ => {}
            }
        }
    }

    /// Returns the next answer.
    fn answer(&mut self) -> String {
        loop {
            let line = self.line();
            if line.starts_with("MSG") || line.starts_with("HMSG") {
                return self.payload(&line);
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the server has ended the connection");
        line
    }

    fn payload(&mut self, line: &str) -> String {
        let bytes: usize = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        let mut payload = vec![0; bytes + 2];
        self.0.read_exact(&mut payload).unwrap();
        String::from_utf8_lossy(&payload).into_owned()
    }
}

#[test]
fn a_stolen_login_cannot_write_or_delete_what_is_not_its_own() {
    let office = guarded();
    succeed(
        &office,
        &[&["rollout", "street", "1", "--no-wait", "--allow-empty", "--waves", "100"], &QUICK[..]].concat(),
    );
    succeed(&office, &[&["pause", "street"], &NORTH[..]].concat());
    assert!(follow(&office, "gate-8", "gate-8", PREFIX).status.success());
    let seen = || (json(&office, &["status", "--json"]), json(&office, &["devices", "--json"]));
    let before = seen();
    let mut hostile = Hostile::connect(office.server.port, "gate-7");
    for subject in [
        "$KV.visiond-desired.group.north.street",
        "$KV.visiond-reported.gate-8",
        "$O.visiond-bundles.M.eA==",
        "$JS.API.STREAM.DELETE.KV_visiond-desired",
        "$JS.API.STREAM.PURGE.KV_visiond-reported",
        "$JS.API.STREAM.UPDATE.OBJ_visiond-bundles",
        "$JS.API.CONSUMER.CREATE.OBJ_visiond-bundles",
        "fleet.API.$KV.visiond-reported.gate-8",
        "fleet.API.$KV.visiond-desired.group.north.street",
        "fleet.API.STREAM.DELETE.KV_visiond-desired",
        "fleet.API.CONSUMER.CREATE.OBJ_visiond-bundles",
    ] {
        hostile.publish(subject, "_INBOX.gate-7.x", "{}");
        let said = hostile.settle();
        assert!(said.contains("Permissions Violation for Publish"), "{subject}: {said}");
    }
    for subject in ["_INBOX.>", "_INBOX.gate-8.>", "$KV.visiond-reported.>", ">"] {
        hostile.send(&format!("SUB {subject} 2\r\n"));
        let said = hostile.settle();
        assert!(said.contains("Permissions Violation for Subscription"), "{subject}: {said}");
    }
    // Answers that the server should write for it.
    let record = "fleet.API.DIRECT.GET.KV_visiond-desired.$KV.visiond-desired.group.north.street";
    let own = "fleet.API.$KV.visiond-reported.gate-7";
    for reply in [
        "$KV.visiond-desired.group.north.street",
        "$KV.visiond-desired.device.gate-8.street",
        "$KV.visiond-reported.gate-8",
        "$O.visiond-bundles.M.eA==",
        "$JS.API.STREAM.DELETE.KV_visiond-desired",
        "$JS.API.STREAM.PURGE.KV_visiond-reported",
        "$JS.API.STREAM.DELETE.OBJ_visiond-bundles",
        "fleet.API.$KV.visiond-reported.gate-8",
        "fleet.API.$KV.visiond-desired.group.north.street",
        "fleet.API.STREAM.DELETE.KV_visiond-desired",
        "fleet.API.$JS.API.STREAM.DELETE.KV_visiond-desired",
    ] {
        hostile.publish("fleet.API.STREAM.INFO.KV_visiond-desired", reply, "");
        hostile.publish(record, reply, "");
        hostile.publish("fleet.API.DIRECT.GET.OBJ_visiond-bundles", reply, r#"{"seq":1}"#);
        hostile.publish(own, reply, "{}");
    }
    // All keys in one go.
    for header in ["Nats-Rollup: all", "Nats-Rollup: sub"] {
        hostile.publish_with(header, own, "_INBOX.gate-7.x", "{}");
        let said = hostile.answer();
        assert!(said.contains("rollup not permitted"), "{said}");
    }
    // The server answers in the order of requests.
    hostile.publish("fleet.API.STREAM.INFO.KV_visiond-desired", "_INBOX.gate-7.x", "");
    assert!(hostile.answer().contains("stream_info_response"));
    let (rollouts, mut devices) = seen();
    // Its own report is what it may write.
    devices.as_array_mut().unwrap().retain(|device| device["device"] != "gate-7");
    assert_eq!((rollouts, devices), before);
    succeed(&office, &["resume", "street", "--group", "north", "--no-wait"]);
    let output = follow(&office, "gate-8", "gate-8", PREFIX);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&office, &["devices", "--json"])[0]["bundles"][0]["current"], 1);
}

#[test]
fn in_the_account_of_the_operators_a_stolen_login_can_replace_any_record() {
    let server = NatsServer::start_with(|_| {
        "authorization { users: [
            { user: operator, password: change-me-too }
            { user: gate-7, password: change-me, permissions: { publish: \"$JS.API.STREAM.INFO.*\", subscribe: \"_INBOX.>\" } } ] }"
            .to_owned()
    });
    let office = Office { desk: Desk::new(), server };
    succeed(&office, &["init"]);
    office.desk.make("1", &[]);
    succeed(&office, &["push", "DIR/street-1.visiond"]);
    succeed(&office, &[&["rollout", "street", "1", "--no-wait", "--allow-empty"], &NORTH[..]].concat());
    let mut hostile = Hostile::connect(office.server.port, "gate-7");
    hostile.publish("$JS.API.STREAM.INFO.KV_visiond-desired", "$KV.visiond-desired.group.north.street", "");
    assert_eq!(hostile.settle(), "");
    wait_until_or_show(
        "the record to be replaced",
        || stderr(&operator(&office, &["status"])).contains("group.north.street is not a record of visiond"),
        String::new,
    );
}
