//! `visiond trace` against a running daemon.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;
use visiond_tests::{Daemon, root, run, stderr};

fn daemon() -> Daemon {
    let tiny = root().join("tests/vm/tiny.onnx");
    let mut daemon = Daemon::start(&format!(
        r#"
[http]
listen = ["unix:{{dir}}/http.sock"]
[engine]
backend = "rten"
threads = 1
[[model]]
name = "bars"
path = "{}"
[[camera]]
name = "door"
source = {{ type = "pattern", width = 128, height = 64, fps = 20 }}
[[sink]]
type = "file"
path = "{{dir}}/out.jsonl"
"#,
        tiny.display()
    ));
    daemon.wait_until("messages", |d| d.count("out.jsonl") >= 5);
    daemon
}

fn events(path: &Path) -> Vec<Value> {
    let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(trace["otherData"]["events_lost"], 0);
    trace["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn a_trace_follows_frames_from_the_camera_over_the_lane_to_the_sink() {
    let daemon = daemon();
    let (config, out) = (daemon.path("visiond.toml"), daemon.path("trace.json"));
    let (config, out_text) = (config.to_str().unwrap(), out.to_str().unwrap());
    let ended = run(["trace", "--seconds", "5", "-o", out_text, config]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    let events = events(&out);
    let threads: HashMap<_, _> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["tid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
        .collect();
    // A frame that was delivered, inferred and written: each on its own thread, with an arrow through all. The first ones written
    // were inferred before the recording began.
    let shows = |name: &str, thread: &str, frame: &Value| {
        events.iter().any(|event| {
            event["name"] == name
                && event["ph"] == "X"
                && event["args"] == *frame
                && threads[&event["tid"].as_u64().unwrap()] == thread
        })
    };
    let followed = events.iter().filter(|event| event["name"] == "write" && event["ph"] == "X").any(|written| {
        let frame = &written["args"];
        shows("write", "sink file", frame) && shows("read", "lane bars", frame) && shows("publish", "lane bars", frame)
    });
    assert!(followed, "{events:?}");
    let begins = |ph: &str| events.iter().filter(|event| event["ph"] == ph && event["cat"] == "flow").count();
    assert!(begins("s") >= 1 && begins("s") == begins("f"), "{} {}", begins("s"), begins("f"));
    for stage in ["door", "capture", "queue", "preprocess", "infer", "postprocess"] {
        let edges = |ph: &str| events.iter().filter(|event| event["ph"] == ph && event["name"] == stage).count();
        assert!(edges("b") >= 1 && edges("b") == edges("e"), "{stage}");
    }
    assert_eq!(daemon.terminate().status.code(), Some(0));
}

#[test]
fn a_second_recording_and_a_missing_daemon_are_errors_of_one_line() {
    let mut daemon = daemon();
    let config = daemon.path("visiond.toml");
    let config = config.to_str().unwrap();
    // Records while the client waits for the response. The daemon accepts connections in order, so this one is first.
    let mut first = UnixStream::connect(daemon.path("http.sock")).unwrap();
    first.write_all(b"POST /api/v1/trace?seconds=60 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").unwrap();
    let second = run(["trace", "-o", "-", config]);
    assert!(!second.status.success());
    assert!(
        stderr(&second).contains("a trace is already being recorded: wait until it is done"),
        "{}",
        stderr(&second)
    );
    // A client that leaves ends its recording.
    drop(first);
    daemon.wait_until("another trace", |_| {
        let third = run(["trace", "--seconds", "1", "-o", "-", config]);
        third.status.success() && third.stdout.starts_with(b"{\"displayTimeUnit\"")
    });
    assert_eq!(daemon.terminate().status.code(), Some(0));
    let nobody = run(["trace", "-o", "-", config]);
    assert!(stderr(&nobody).contains("cannot connect to visiond at unix:"), "{}", stderr(&nobody));
}
