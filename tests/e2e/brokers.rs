//! Brokers with other settings than visiond's: each connects, or the log says what to change. `--nocapture` shows the table.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use visiond_tests::mosquitto::{Mosquitto, Reader};
use visiond_tests::nats::NatsServer;
use visiond_tests::{Daemon, root, skip};

use crate::nats::{make_stream, stored};

/// The log, and the messages of the camera `door`, whose topic no broker refuses.
struct Outcome {
    arrives: bool,
    says: &'static str,
}

const fn arrives(says: &'static str) -> Outcome {
    Outcome { arrives: true, says }
}

/// No message has to arrive; the log gives the reason.
const fn says(says: &'static str) -> Outcome {
    Outcome { arrives: false, says }
}

/// MQTT 3.1.1 can refuse only in this way.
const BY_CLOSING: &str = "with MQTT 3.1.1 it can refuse a topic, a QoS or a size only by closing";

/// A device called gate with the cameras door and yard, and a sink with these keys.
fn config(sink: &str) -> String {
    let tiny = root().join("tests/vm/tiny.onnx");
    let camera = |name| {
        format!(
            "[[camera]]\nname = \"{name}\"\nsource = {{ type = \"pattern\", width = 128, height = 64, fps = 20 }}\n"
        )
    };
    format!(
        "[device]\nname = \"gate\"\n[engine]\nbackend = \"rten\"\nthreads = 1\n[[model]]\nname = \"bars\"\npath = \"{}\"\n{}{}\
         [[sink]]\n{sink}",
        tiny.display(),
        camera("door"),
        camera("yard"),
    )
}

/// Runs a daemon until it has the expected outcome, and prints a row.
fn cell(broker: &str, setting: &str, sink: &str, wanted: &Outcome, mut arrived: impl FnMut() -> usize) {
    let Outcome { arrives, says } = *wanted;
    let mut daemon = Daemon::start(&config(sink));
    let what = format!("{broker}, {setting}: {says}");
    daemon.wait_until(&what, |daemon| (!arrives || arrived() >= 5) && daemon.log().contains(says));
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let arrives = if arrives { "arrives" } else { "says what to change" };
    println!("| {broker} | {} | {arrives} | {says} |", setting.trim());
}

/// The table's cell for an MQTT broker on `port`.
fn mqtt_cell(broker: &str, setting: &str, port: u16, protocol: &str, keys: &str, wanted: &Outcome) {
    let reader = Reader::at(port, "visiond/gate/cameras/door/detections", &["-V", "mqttv311", "-q", "0"]);
    let sink = format!("type = \"mqtt\"\nurl = \"mqtt://127.0.0.1:{port}\"\nprotocol = \"{protocol}\"\n{keys}");
    cell(&format!("{broker}, MQTT {protocol}"), setting, &sink, wanted, || reader.messages().len());
}

/// The rights of a user who may not publish messages of the camera yard.
const ONLY_DOOR: &str =
    "topic read #\ntopic write visiond/gate/availability\ntopic write visiond/gate/cameras/door/#\n";

#[test]
fn mosquitto_with_other_settings_gets_the_detections_or_the_log_says_what_to_change() {
    for (setting, keys, version_5, version_3) in [
        ("", "", arrives("connected"), Some(arrives("connected"))),
        (
            "retain_available false",
            "",
            arrives("the broker retains nothing"),
            Some(arrives("the broker retains nothing")),
        ),
        ("max_qos 0", "", arrives("the broker has QoS 0 only"), Some(arrives("the broker has QoS 0 only"))),
        ("max_qos 1", "qos_detections = 2\n", arrives("connected"), Some(says(BY_CLOSING))),
        (
            "acl_file {dir}/only_door",
            "",
            arrives("cameras/yard/detections: not authorized; allow this user to publish there"),
            // Mosquitto acknowledges messages that it drops.
            Some(arrives("connected")),
        ),
        ("max_packet_size 300", "", says("the broker accepts at most 300"), Some(says(BY_CLOSING))),
        (
            "message_size_limit 100",
            "",
            says("packet too large; raise its limit (Mosquitto: `message_size_limit`)"),
            // Mosquitto acknowledges messages that it drops.
            None,
        ),
        // With 3.1.1, it accepts a longer one or refuses the session, depending on its version.
        ("max_keepalive 10", "", arrives("connected"), None),
    ] {
        for (protocol, wanted) in [("5", Some(version_5)), ("3.1.1", version_3)] {
            let Some(wanted) = wanted else { continue };
            let broker = Mosquitto::start_with(|folder| {
                std::fs::write(folder.join("only_door"), ONLY_DOOR).unwrap();
                format!("allow_anonymous true\n{}\n", setting.replace("{dir}", &folder.display().to_string()))
            });
            mqtt_cell("Mosquitto", &format!("{setting} {keys}"), broker.port, protocol, keys, &wanted);
        }
    }
}

#[test]
fn nats_server_with_other_settings_gets_the_detections_or_the_log_says_what_to_change() {
    let made = "stream = \"visiond\"\ncreate_stream = true\n";
    let rights = "authorization { users = [ { user: jet, password: s3cret, permissions: { publish: [\"visiond.gate.door.>\"], \
                  subscribe: \"_INBOX.>\" } }, { user: all, password: all } ] }\nno_auth_user: all\n";
    for (setting, lines, keys, wanted) in [
        ("its defaults, with -js", Some(""), made, arrives("connected")),
        ("its defaults, without -js", None, made, says("start the server with -js")),
        (
            "permissions without yard",
            Some(rights),
            "login = \"{server}/login\"\n",
            arrives("Permissions Violation for Publish to \"visiond.gate.yard.detections\""),
        ),
        ("max_payload 1000", Some("max_payload: 1000\n"), made, says("as too large; raise max_payload there")),
        ("ping_interval 100ms", Some("ping_interval: \"100ms\"\nping_max: 1\n"), made, arrives("connected")),
    ] {
        let server = match lines {
            Some(lines) => NatsServer::start_with(|_| lines.to_owned()),
            None => NatsServer::start_bare(|_| String::new()),
        };
        std::fs::write(server.path("login"), "jet:s3cret\n").unwrap();
        if lines == Some(rights) {
            make_stream(server.port, &["visiond.>"]);
        }
        let keys = keys.replace("{server}", &server.folder.path().display().to_string());
        let sink = format!("type = \"nats\"\nurl = [\"nats://127.0.0.1:{}\"]\n{keys}", server.port);
        let of_door = |message: &&crate::nats::Stored| message.subject == "visiond.gate.door.detections";
        cell("nats-server", setting, &sink, &wanted, || stored(server.port).iter().filter(of_door).count());
    }
}

/// Aedes, an MQTT 3.1.1 broker for Node.js; it prints its port.
const AEDES: &str = r#"
import { createServer } from 'node:net'
const { Aedes } = await import(process.argv[2] + '/aedes.js')
const setting = process.argv[3]
const aedes = await Aedes.createBroker({ keepaliveLimit: setting === 'keepaliveLimit 10' ? 10 : 0 })
aedes.authorizePublish = (client, packet, callback) => {
  const refused = {
    'refuses yard': packet.topic.includes('/yard/'),
    'refuses QoS above 0': packet.qos > 0,
    'refuses payloads above 100 bytes': packet.payload.length > 100
  }[setting]
  if (setting === 'retains nothing') packet.retain = false
  callback(refused ? new Error('refused') : null)
}
const server = createServer(aedes.handle)
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
"#;

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `./test` omits this one. To run it by hand: `npm install aedes`, then `VISIOND_TEST_AEDES=$PWD/node_modules/aedes cargo
/// test -p visiond-tests --test e2e aedes -- --nocapture`.
#[test]
fn aedes_with_other_settings_gets_the_detections_or_the_log_says_what_to_change() {
    let Some(package) = std::env::var_os("VISIOND_TEST_AEDES") else {
        skip("Aedes: `npm install aedes`, and set VISIOND_TEST_AEDES to the path of node_modules/aedes");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("broker.mjs");
    std::fs::write(&script, AEDES).unwrap();
    for (setting, protocol, wanted) in [
        ("its defaults", "3.1.1", arrives("connected")),
        ("its defaults", "5", says("if it speaks only MQTT 3.1.1, set `protocol = \"3.1.1\"`")),
        ("retains nothing", "3.1.1", arrives("connected")),
        // It closes the connection.
        ("refuses yard", "3.1.1", says(BY_CLOSING)),
        ("refuses QoS above 0", "3.1.1", says(BY_CLOSING)),
        ("refuses payloads above 100 bytes", "3.1.1", says(BY_CLOSING)),
        ("keepaliveLimit 10", "3.1.1", says("if it limits the keep-alive, set a shorter `keep_alive`")),
    ] {
        let mut command = Command::new("node");
        command.arg(&script).arg(&package).arg(setting).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut broker = Killed(command.spawn().expect("node starts: tests/setup --test installs it"));
        let mut port = String::new();
        BufReader::new(broker.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let port = port.trim().parse().expect("the broker's port: its error is above");
        mqtt_cell("Aedes", setting, port, protocol, "", &wanted);
    }
}
