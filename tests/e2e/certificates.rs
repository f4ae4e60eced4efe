//! A broker with certificates made as in most tutorials: the message names the fault, and its command makes a correct one.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use visiond_tests::mosquitto::Mosquitto;
use visiond_tests::nats::NatsServer;
use visiond_tests::{Daemon, root};

/// The files that each script makes in an empty folder: `ca.pem` and `ca.key`, `server.pem` and `server.key`.
const CA: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj '/CN=my CA' -keyout ca.key -out ca.pem\n\
                  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key -out server.csr\n\
                  sign='openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -set_serial 7 -out server.pem'\n\
                  between() {\n\
                  touch index; echo 07 >serial; echo subjectAltName=DNS:localhost >ext\n\
                  printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=index\\nserial=serial\\nnew_certs_dir=.\\ndefault_md=sha256\\n\
                  policy=p\\n[p]\\ncommonName=supplied\\n' >ca.conf\n\
                  openssl ca -batch -notext -config ca.conf -cert ca.pem -keyfile ca.key -in server.csr -out server.pem \
                  -startdate $1 -enddate $2 -extfile ext\n}\n";
const CASES: [(&str, &str); 7] = [
    ("$sign -days 30", "is of X.509 version 1, which openssl makes without -extfile: make one with"),
    (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
         -keyout ca.key -out ca.pem; cp ca.key server.key; cp ca.pem server.pem",
        "is that of a CA (CA:TRUE), which no server may show: keep it as the CA for `ca`, and make one with",
    ),
    ("between 20240101000000Z 20250101000000Z", "has expired on 2025-01-01, and this machine's clock says "),
    (
        "between 20900101000000Z 20910101000000Z",
        "is not valid yet: it begins on 2090-01-01, and this machine's clock says ",
    ),
    (
        "echo subjectAltName=DNS:gate.lan,IP:192.0.2.7 >ext; $sign -extfile ext -days 30",
        "is not for localhost but for gate.lan, 192.0.2.7: use",
    ),
    (
        "echo basicConstraints=CA:FALSE >ext; $sign -extfile ext -days 30",
        "has no subjectAltName, so it is not for localhost: make one",
    ),
    (
        "printf 'subjectAltName=DNS:localhost\\nextendedKeyUsage=clientAuth\\n' >ext; $sign -extfile ext -days 30",
        "is not for servers: its extendedKeyUsage has no serverAuth: make one with",
    ),
];

fn bash(folder: &Path, script: &str) {
    let mut bash = Command::new("bash");
    bash.args(["-e", "-c", script]).current_dir(folder).stdin(Stdio::null());
    let output = bash.output().expect("bash runs");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

fn config(sink: &str) -> String {
    let tiny = root().join("tests/vm/tiny.onnx");
    format!(
        "[engine]\nbackend = \"rten\"\nthreads = 1\n[[model]]\nname = \"bars\"\npath = \"{}\"\n[[camera]]\nname = \"door\"\n\
         source = {{ type = \"pattern\", width = 64, height = 64, fps = 5 }}\n[[sink]]\n{sink}",
        tiny.display()
    )
}

/// The command in a message.
fn command(log: &str) -> &str {
    let start = log.find("`openssl req").expect("a command") + 1;
    log[start..].split('`').next().unwrap()
}

#[test]
fn a_wrong_certificate_is_said_in_words_and_the_commands_of_the_message_make_a_right_one() {
    for (script, words) in CASES {
        let mut broker = Mosquitto::start_with(|folder| {
            bash(folder, &format!("{CA}{script}"));
            let file = |name: &str| folder.join(name).display().to_string();
            format!("allow_anonymous true\ncertfile {}\nkeyfile {}\n", file("server.pem"), file("server.key"))
        });
        let ca = broker.path("ca.pem");
        let config = config(&format!(
            "type = \"mqtt\"\nurl = \"mqtts://localhost:{}\"\nca = \"{}\"\n",
            broker.port,
            ca.display()
        ));
        let mut daemon = Daemon::start(&config);
        daemon.wait_for_log(&format!("the broker's certificate {words}"));
        let log = daemon.terminate().log;
        assert!(!log.contains("Other(") && !log.contains("Error("), "{log}");

        if words.starts_with("is not valid yet") {
            // One of the two clocks is wrong, and no new certificate corrects that.
            continue;
        }
        broker.end(libc::SIGTERM);
        bash(broker.folder.path(), command(&log));
        broker.resume();
        let mut daemon = Daemon::start(&config);
        daemon.wait_for_log("connected");
        daemon.terminate();
    }
}

#[test]
fn nats_says_the_same() {
    let (script, words) = CASES[0];
    let server = NatsServer::start_with(|folder| {
        bash(folder, &format!("{CA}{script}"));
        let file = |name: &str| folder.join(name).display().to_string();
        format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}\n", file("server.pem"), file("server.key"))
    });
    let mut daemon = Daemon::start(&config(&format!(
        "type = \"nats\"\nurl = [\"tls://localhost:{}\"]\nca = \"{}\"\n",
        server.port,
        server.path("ca.pem").display()
    )));
    daemon.wait_for_log(&format!("the broker's certificate {words}"));
    daemon.terminate();
}

#[test]
fn a_ca_made_again_under_the_same_name_is_named() {
    let broker = Mosquitto::start_with(|folder| {
        bash(folder, &format!("{CA}echo subjectAltName=DNS:localhost >ext; $sign -extfile ext -days 30"));
        bash(
            folder,
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj '/CN=my CA' -keyout new.key -out new.pem",
        );
        let file = |name: &str| folder.join(name).display().to_string();
        format!("allow_anonymous true\ncertfile {}\nkeyfile {}\n", file("server.pem"), file("server.key"))
    });
    let ca = broker.path("new.pem");
    assert!(fs::exists(&ca).unwrap());
    let mut daemon = Daemon::start(&config(&format!(
        "type = \"mqtt\"\nurl = \"mqtts://localhost:{}\"\nca = \"{}\"\n",
        broker.port,
        ca.display()
    )));
    daemon.wait_for_log("has a wrong signature: copy the broker's CA to `ca` again");
    daemon.terminate();
}
