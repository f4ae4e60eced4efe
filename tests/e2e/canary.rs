//! A new model is tried on real frames before it takes over, and refused with a reason if it fails.

use std::process::Output;

use serde_json::Value;
use visiond_tests::{Daemon, fill, root, run};

const CONFIG: &str = r#"
[log]
level = "debug"

[engine]
backend = "rten"
threads = 1

[http]
listen = ["unix:{dir}/http.sock"]

[[model]]
name = "tiny"
path = "{dir}/tiny.onnx"

[[camera]]
name = "bars"
source = { type = "pattern", width = 320, height = 240, fps = 30.0 }

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;

/// The initializer `one` of the tiny model, as the file has it; its value is the last four bytes.
const ONE: &[u8] = b"\x42\x03one\x4a\x04\x00\x00\x80\x3f";
/// The shape of its output: [1, 12, 8].
const OUTPUT: &[u8] = b"\x0a\x02\x08\x01\x0a\x02\x08\x0c\x0a\x02\x08\x08";

/// Starts a daemon whose camera delivers frames.
fn start() -> Daemon {
    let mut daemon = Daemon::start_with(CONFIG, |command| {
        let folder = command.get_args().last().map(std::path::PathBuf::from).unwrap().parent().unwrap().to_owned();
        for name in ["tiny.onnx", "tiny.toml"] {
            std::fs::copy(root().join("tests/vm").join(name), folder.join(name)).unwrap();
        }
    });
    daemon.wait_until("detections", |daemon| daemon.count("out.jsonl") > 5);
    daemon
}

/// Writes the tiny model with some bytes replaced, beside its card.
fn altered(daemon: &Daemon, name: &str, from: &[u8], to: &[u8]) {
    let network = std::fs::read(root().join("tests/vm/tiny.onnx")).unwrap();
    let at = network.windows(from.len()).position(|window| window == from).unwrap();
    let network = [&network[..at], to, &network[at + from.len()..]].concat();
    std::fs::write(daemon.path(&format!("{name}.onnx")), network).unwrap();
    std::fs::copy(daemon.path("tiny.toml"), daemon.path(&format!("{name}.toml"))).unwrap();
}

/// Writes `config` and runs `visiond reload`.
fn reload(daemon: &Daemon, config: &str) -> (Output, Value) {
    let path = daemon.path("visiond.toml");
    std::fs::write(&path, fill(config, daemon.folder.path())).unwrap();
    let output = run(["reload".as_ref(), "--json".as_ref(), path.as_os_str()]);
    let outcome = serde_json::from_slice(&output.stdout);
    let outcome = outcome.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output, outcome)
}

/// Returns the model of the newest message.
fn model_of_newest(daemon: &mut Daemon) -> String {
    let before = daemon.count("out.jsonl");
    daemon.wait_until("more detections", |daemon| daemon.count("out.jsonl") > before + 5);
    let newest = daemon.messages("out.jsonl").pop().unwrap();
    assert!(!newest["detections"].as_array().unwrap().is_empty(), "the bars are seen: {newest}");
    newest["model"]["sha256"].as_str().unwrap().to_owned()
}

#[test]
fn a_model_whose_outputs_are_not_numbers_is_refused_and_the_running_one_stays() {
    let mut daemon = start();
    let running = model_of_newest(&mut daemon);
    let infinite = [&ONE[..ONE.len() - 4], b"\x00\x00\x80\x7f"].concat();
    let no_number = [&ONE[..ONE.len() - 4], b"\x00\x00\xc0\x7f"].concat();
    for (name, to) in [("infinite", infinite), ("no-number", no_number)] {
        altered(&daemon, name, ONE, &to);
        let (output, outcome) = reload(&daemon, &CONFIG.replace("tiny.onnx", &format!("{name}.onnx")));
        assert_eq!((output.status.code(), outcome["applied"].as_bool()), (Some(4), Some(false)), "{outcome}");
        let why = outcome["error"].as_str().unwrap();
        let told = "model tiny: on a frame of camera bars 64 of the 96 numbers of output output are infinite or NaN";
        assert!(why.starts_with(told), "{why}");
        assert_eq!(outcome["exit_status"], 4);
        assert_eq!(model_of_newest(&mut daemon), running);
    }
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert_eq!(ended.log.matches("configuration rejected;").count(), 2, "{}", ended.log);
}

#[test]
fn a_model_whose_outputs_differ_from_its_declaration_is_refused() {
    let mut daemon = start();
    let running = model_of_newest(&mut daemon);
    altered(&daemon, "wider", OUTPUT, &[&OUTPUT[..OUTPUT.len() - 1], b"\x09"].concat());
    let (output, outcome) = reload(&daemon, &CONFIG.replace("tiny.onnx", "wider.onnx"));
    assert_eq!(output.status.code(), Some(4), "{outcome}");
    let why = outcome["error"].as_str().unwrap();
    assert!(why.contains("f32 [1, 12, 8]") && why.contains("[1, 12, 9]"), "{why}");
    assert_eq!(model_of_newest(&mut daemon), running);
}

#[test]
fn a_model_that_takes_too_long_is_refused_until_its_time_limit_is_raised() {
    let mut daemon = start();
    let running = model_of_newest(&mut daemon);
    let slow = CONFIG.replace("{dir}/tiny.onnx", "{model}");
    let (output, outcome) = reload(&daemon, &slow.replace("[engine]", "[engine]\ncanary_timeout = \"1ms\""));
    assert_eq!(output.status.code(), Some(4), "{outcome}");
    let why = outcome["error"].as_str().unwrap();
    assert!(
        why.starts_with("model tiny: no result within 0.001 s on a frame of camera bars: use a faster model"),
        "{why}"
    );
    assert_eq!(model_of_newest(&mut daemon), running);
    let (output, outcome) = reload(&daemon, &slow.replace("[engine]", "[engine]\ncanary_timeout = \"5min\""));
    assert_eq!((output.status.code(), outcome["applied"].as_bool()), (Some(0), Some(true)), "{outcome}");
}

#[test]
fn without_a_camera_frame_the_trial_uses_a_grey_one() {
    let mut daemon = start();
    let infinite = [&ONE[..ONE.len() - 4], b"\x00\x00\x80\x7f"].concat();
    altered(&daemon, "infinite", ONE, &infinite);
    let camera = |model: &str| {
        format!(
            "{}[[model]]\nname = \"new\"\npath = \"{{dir}}/{model}.onnx\"\n[[camera]]\nname = \"new\"\nmodel = \"new\"\n\
             source = {{ type = \"pattern\" }}\n",
            CONFIG.replace("name = \"bars\"", "name = \"bars\"\nmodel = \"tiny\"")
        )
    };
    let (_, outcome) = reload(&daemon, &camera("infinite"));
    let why = outcome["error"].as_str().unwrap();
    assert!(
        why.starts_with("model new: on a grey frame (no camera of the model gives a frame) 64 of the 96 numbers"),
        "{why}"
    );
    let (_, outcome) = reload(&daemon, &camera("tiny"));
    assert_eq!(outcome["applied"], true, "{outcome}");
    daemon.wait_until("the new camera", |daemon| daemon.messages("out.jsonl").iter().any(|m| m["camera"] == "new"));
    let ended = daemon.terminate();
    assert!(ended.log.contains("tried on a grey frame"), "{}", ended.log);
}
