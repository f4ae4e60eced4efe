//! `visiond reload` and `visiond check --against-running`: commands to the running daemon.

use std::process::Output;

use serde_json::{Value, json};
use visiond_tests::{Daemon, fill, root, run, stderr};

const CONFIG: &str = r#"
[status]
log_interval = "0s"

[engine]
backend = "rten"
threads = 1

[http]
listen = ["unix:{dir}/http.sock"]

[[model]]
name = "tiny"
path = "{dir}/tiny.onnx"

[[camera]]
name = "stays"
[camera.source]
type = "command"
pace = "fastest"
container = "raw"
format = "grey"
width = 128
height = 64
command = ["sh", "-c", "while :; do head -c 8192 /dev/zero; sleep 0.01; done"]

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;

/// A missing camera, and a password in the file.
const GATE: &str =
    "[[camera]]\nname = \"gate\"\nsource = { type = \"video\", url = \"rtsp://admin:swordfish@127.0.0.1:1/1\" }\n";

fn start(config: &str) -> Daemon {
    let mut daemon = Daemon::start_with(config, |command| {
        let folder = command.get_args().last().map(std::path::PathBuf::from).unwrap().parent().unwrap().to_owned();
        for name in ["tiny.onnx", "tiny.toml"] {
            std::fs::copy(root().join("tests/vm").join(name), folder.join(name)).unwrap();
        }
    });
    daemon.wait_until("detections", |daemon| daemon.count("out.jsonl") > 0);
    daemon
}

fn write(daemon: &Daemon, config: &str) {
    std::fs::write(daemon.path("visiond.toml"), fill(config, daemon.folder.path())).unwrap();
}

fn ask(daemon: &Daemon, args: &[&str]) -> Output {
    let path = daemon.path("visiond.toml");
    run(args.iter().map(std::ffi::OsStr::new).chain([path.as_os_str()]))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn pattern(name: &str, fps: u32) -> String {
    format!(
        "[[camera]]\nname = \"{name}\"\nsource = {{ type = \"pattern\", width = 128, height = 64, fps = {fps}.0 }}\n"
    )
}

#[test]
fn twelve_reloads_a_third_of_them_wrong_leave_unchanged_parts_alone() {
    let daemon = start(CONFIG);
    let mut now = CONFIG.to_owned();
    for round in 1..=12 {
        if round % 3 == 0 {
            let wrong =
                ["\nnonsense", "[[sink]]\ntype = \"unix\"\npath = \"/nowhere/d.sock\"\n", "model = 5\n", "[engin]\n"];
            write(&daemon, &format!("{now}{}", wrong[round / 3 - 1]));
            let output = ask(&daemon, &["reload"]);
            let code = if round == 6 { 6 } else { 3 };
            assert_eq!(output.status.code(), Some(code), "{round}: {}", stderr(&output));
            let told = stderr(&output);
            assert!(told.contains("configuration rejected; the running one stays in force:\n"), "{told}");
            assert!(told.contains("visiond.toml:") || told.contains("/nowhere/d.sock"), "{told}");
        } else {
            now = format!("{CONFIG}{}", pattern("other", 10 + round as u32));
            write(&daemon, &now);
            let output = ask(&daemon, &["reload"]);
            assert_eq!(output.status.code(), Some(0), "{round}: {}", stderr(&output));
            let what = if round == 1 {
                "camera other added\nreloaded, in "
            } else {
                "camera other opened again\nreloaded, in "
            };
            assert!(stdout(&output).starts_with(what), "{round}: {}", stdout(&output));
        }
    }
    write(&daemon, &now);
    let same = ask(&daemon, &["reload", "--json"]);
    let outcome: Value = serde_json::from_slice(&same.stdout).unwrap();
    assert_eq!((&outcome["applied"], &outcome["changes"]), (&json!(true), &json!([])), "{outcome}");
    let ended = daemon.terminate();
    let messages = ended.daemon.messages("out.jsonl");
    let stays = messages.iter().filter(|message| message["camera"] == "stays");
    let numbers: Vec<_> = stays.map(|message| message["sequence"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(ended.log.matches("camera stays: ").count(), 2, "opened once, summed up once: {}", ended.log);
}

#[test]
fn check_lists_what_a_reload_would_change_and_changes_nothing() {
    let daemon = start(&format!("{CONFIG}{GATE}"));
    let check = |config: &str| {
        write(&daemon, &format!("{config}{GATE}"));
        ask(&daemon, &["check", "--against-running"])
    };
    let output = check(CONFIG);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).ends_with("\na reload would change nothing\n"), "{}", stdout(&output));

    let output = check(&format!("[device]\nname = \"roof\"\n{CONFIG}{}", pattern("more", 5)));
    assert!(stdout(&output).contains("\na reload would change: camera more added\n"), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("\na reload would not be enough: [device] `name` changes to roof at the next start")
    );

    // Another secret is a change, though it is not printed.
    write(&daemon, &format!("{CONFIG}{}", GATE.replace("swordfish", "mackerel")));
    let output = ask(&daemon, &["check", "--against-running"]);
    assert!(stdout(&output).contains("\na reload would change: camera gate opened again\n"), "{}", stdout(&output));

    write(&daemon, &CONFIG.replace("name = \"stays\"", "name = \"stays\"\nenabled = false"));
    let output = ask(&daemon, &["check", "--against-running"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).contains("a reload would be refused: no camera to run"), "{}", stdout(&output));

    let output = check(&format!("{CONFIG}nonsense"));
    assert_eq!(output.status.code(), Some(3));
    assert!(!stdout(&output).contains("a reload would"), "the file's own mistakes come first: {}", stdout(&output));

    let ended = daemon.terminate();
    assert!(!ended.log.contains("reload"), "{}", ended.log);
}

#[test]
fn a_file_that_is_not_the_daemons_and_a_missing_daemon_are_errors() {
    let daemon = start(CONFIG);
    let other = daemon.path("other.toml");
    std::fs::write(&other, fill(CONFIG, daemon.folder.path())).unwrap();
    let output = run(["reload".as_ref(), other.as_os_str()]);
    assert_eq!(output.status.code(), Some(2));
    let told = format!(", not {}; name its own file", other.display());
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));

    // A file that became unreadable cannot name the daemon's address, but --url can.
    let url = format!("unix:{}", daemon.path("http.sock").display());
    std::fs::remove_file(daemon.path("visiond.toml")).unwrap();
    let output = run(["reload", "--url", &url]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("cannot be read"), "{}", stderr(&output));

    let ended = daemon.terminate();
    let output = run(["reload", "--url", &url]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("cannot connect to visiond at {url}: ")), "{}", stderr(&output));
    drop(ended);
}

#[test]
fn each_of_many_simultaneous_requests_is_answered() {
    let daemon = start(CONFIG);
    write(&daemon, &format!("{CONFIG}{}", pattern("other", 20)));
    let outputs: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(&daemon, &["reload", "--json"]))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    for output in &outputs {
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(outcome["applied"], true, "{outcome}");
    }
    let ended = daemon.terminate();
    assert!(ended.log.contains("camera other added"), "{}", ended.log);
    assert_eq!(ended.log.matches("camera other added").count(), 1, "it was new once: {}", ended.log);
}
