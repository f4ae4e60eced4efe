//! `visiond compare`, and what `follow` does with it: a new model beside the one that the daemon runs, on live frames.

use std::fs;
use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use visiond_tests::web::Place;
use visiond_tests::{Daemon, command, root, stderr};

use crate::bundles::{Desk, refused};
use crate::follow::labels;

const DIFFERS: i32 = 8;
const INPUT: i32 = 5;
const USAGE: i32 = 2;

/// Two cameras that see colours: one as it is; one turned, cut and in tiles.
const CAMERAS: &str = r#"
[engine]
backend = "rten"
threads = 1

[http]
listen = ["unix:{dir}/http.sock"]

[[model]]
name = "tiny"
path = "MEDIA/tiny.onnx"

[[model]]
name = "other"
path = "MEDIA/tiny.onnx"

[[camera]]
name = "gate"
models = ["tiny", "other"]
source = { type = "pattern", width = 128, height = 64, fps = 50.0 }

[[camera]]
name = "yard"
models = [{ name = "tiny", tiles = { columns = 2, rows = 1 }, classes = ["white", "red", "green", "blue"] }]
rotate = 90
crop = [0.0, 0.0, 1.0, 0.9]
source = { type = "pattern", width = 256, height = 128, fps = 50.0 }

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;

fn start() -> Daemon {
    let media = root().join("tests/vm");
    let mut daemon = Daemon::start(&CAMERAS.replace("MEDIA", media.to_str().unwrap()));
    daemon.wait_until("the first messages", |daemon| daemon.count("out.jsonl") > 10);
    daemon
}

/// Compares a model with one of the daemon; returns the status, the report or nothing, and the errors.
fn compare(daemon: &Daemon, model: &str, more: &[&str]) -> (i32, Value, String) {
    let url = format!("unix:{}", daemon.path("http.sock").display());
    let mut compare = command();
    compare.args(["compare", "--json", "--url", &url, "--max-fps", "100", model]).args(more);
    let output = compare.output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap(), report, stderr(&output))
}

#[test]
fn a_model_agrees_with_itself_however_its_cameras_are_turned_cut_and_tiled() {
    let daemon = start();
    let tiny = root().join("tests/vm/tiny.onnx");
    let tiny = tiny.to_str().unwrap();
    let (status, report, errors) = compare(&daemon, tiny, &["--with", "tiny", "--time", "10min", "--frames", "24"]);
    assert_eq!(status, 0, "{report}\n{errors}");
    assert!(report["cameras"]["gate"].as_u64() > Some(0) && report["cameras"]["yard"].as_u64() > Some(0), "{report}");
    assert_eq!(
        (&report["found_share"], &report["agree"], &report["judged"]),
        (&1.0.into(), &true.into(), &true.into())
    );
    assert_eq!(report["detections"]["new"], report["detections"]["running"], "{report}");
    assert_eq!(report["running"]["sha256"], report["new"]["sha256"]);

    let (status, _, errors) = compare(&daemon, tiny, &[]);
    assert_eq!(status, USAGE);
    assert!(errors.contains("the daemon runs several models: choose one of tiny, other by --with"), "{errors}");
    let (status, _, errors) = compare(&daemon, tiny, &["--with", "none"]);
    assert_eq!(status, USAGE);
    assert!(errors.contains("the daemon runs no model none: use tiny, other"), "{errors}");
}

#[test]
fn a_model_that_finds_less_is_named_with_its_share() {
    let daemon = start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let media = root().join("tests/vm");
    fs::copy(media.join("tiny.onnx"), path("new.onnx")).unwrap();
    let card = fs::read_to_string(media.join("tiny.toml")).unwrap();
    fs::write(path("new.toml"), card.replace("[detect]\n", "[detect]\nmax_detections = 1\n")).unwrap();
    let new = path("new.onnx");
    let (status, report, errors) =
        compare(&daemon, new.to_str().unwrap(), &["--with", "other", "--time", "10min", "--frames", "24"]);
    assert_eq!(status, DIFFERS, "{report}\n{errors}");
    assert!(report["found_share"].as_f64() < Some(0.2) && report["cameras"]["yard"].is_null(), "{report}");
    let reason = report["reasons"][0].as_str().unwrap();
    assert!(reason.starts_with("on live frames it finds ") && reason.ends_with(", and 50 % are required"), "{reason}");
    let allowed = ["--with", "other", "--time", "10min", "--frames", "12", "--min-found", "0.1"];
    assert_eq!(compare(&daemon, new.to_str().unwrap(), &allowed).0, 0);
    // The same network with other names for its classes.
    fs::write(path("new.toml"), card.replace("\"red\"", "\"fire\"")).unwrap();
    let (status, report, _) =
        compare(&daemon, new.to_str().unwrap(), &["--with", "other", "--time", "10min", "--frames", "12"]);
    let of = |label: &str| {
        let class = report["classes"].as_array().unwrap().iter().find(|class| class["label"] == *label).unwrap();
        ["running", "new", "found"].map(|key| class[key].as_u64().unwrap() > 0)
    };
    assert_eq!((status, of("red"), of("fire")), (0, [true, false, false], [false, true, false]), "{report}");
}

#[test]
fn without_frames_nothing_is_compared() {
    let media = root().join("tests/vm");
    let away = "[[camera]]\nname = \"away\"\nmodel = \"tiny\"\nsource = { type = \"rtsp\", url = \"rtsp://127.0.0.1:1/x\" }\n\n[[sink]]";
    let (head, cameras) = CAMERAS.split_once("[[camera]]").unwrap();
    let sink = cameras.split_once("[[sink]]").unwrap().1;
    let config = format!("{head}{away}{sink}").replace("MEDIA", media.to_str().unwrap());
    let mut daemon = Daemon::start(&config);
    Place::socket(&mut daemon);
    let (status, _, errors) = compare(&daemon, media.join("tiny.onnx").to_str().unwrap(), &["--with", "tiny"]);
    assert_eq!(status, INPUT, "{errors}");
    assert!(errors.contains("no camera gives frames to the model tiny now: see `visiond top`"), "{errors}");
}

#[test]
fn a_frame_comes_as_the_model_saw_it_with_its_message() {
    let mut daemon = start();
    let place = Place::socket(&mut daemon);
    for (camera, model) in [("gate", "tiny"), ("gate", "other"), ("yard", "tiny")] {
        let answer = place.get(&format!("/api/v1/cameras/{camera}/frame?model={model}")).json();
        let message = &answer["message"];
        assert_eq!((&message["camera"], &message["model"]["name"]), (&camera.into(), &model.into()));
        assert_eq!((&message["frame"]["width"], &message["frame"]["height"]), (&answer["width"], &answer["height"]));
        let pixels = STANDARD.decode(answer["rgb"].as_str().unwrap()).unwrap();
        let [width, height] = ["width", "height"].map(|key| answer[key].as_u64().unwrap() as usize);
        assert_eq!(pixels.len(), width * height * 3);
        // The bars begin with white and end with black, in the middle of their height.
        let row = height / 2 * width * 3;
        let (first, last) = (&pixels[row..row + 3], &pixels[row + width * 3 - 3..row + width * 3]);
        assert!(first.iter().all(|&value| value > 150) && last.iter().all(|&value| value < 40), "{first:?} {last:?}");
    }
    let first = place.get("/api/v1/cameras/gate/frame").json();
    assert_eq!(first["message"]["model"]["name"], "tiny", "the camera's first model");
    let unknown = place.get("/api/v1/cameras/yard/frame?model=other");
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("camera yard has no such model on its frames: it has tiny"), "{}", unknown.text());
    assert_eq!(place.get("/api/v1/cameras/none/frame").status, 404);
}

#[test]
fn a_version_that_finds_something_else_on_live_frames_is_never_used() {
    let desk = Desk::new();
    let mut daemon = desk.start();
    // It keeps its promises, and detects an eighth of what the one before does.
    desk.make_with("2", "max_detections = 1");
    desk.publish("2");
    let output = desk.follow(&daemon, &["--watch", "3s", "--compare", "15s"]);
    refused(&output, DIFFERS, "street 2 is refused, and the version in use stays: on live frames it finds ");
    assert!(stderr(&output).contains("street 2 is compared with the version in use"), "{}", stderr(&output));
    assert_eq!((desk.versions(), desk.state().0.as_str()), ([Some(1), None], "refused"));
    let count = |daemon: &Daemon| labels(daemon).matches("label").count();
    assert!(count(&daemon) > 1, "{}", labels(&daemon));
    // Its maker may say that it is meant to.
    let _ = fs::remove_file(desk.path("expected.json"));
    desk.make("3", &["--min-found", "0.05"]);
    desk.publish("3");
    let output = desk.follow(&daemon, &["--watch", "0", "--compare", "3s"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("street 3: compared for 3 s on ") && said.contains(" of what the version in use detects"),
        "{said}"
    );
    assert_eq!(desk.versions(), [Some(3), Some(1)]);
    daemon.wait_until("version 3", |daemon| count(daemon) == 1);
    let log = daemon.terminate().log;
    assert_eq!(log.matches("reloaded").count(), 1, "version 2 was never loaded: {log}");
}

#[test]
fn clients_that_do_not_read_their_frames_keep_others_waiting_and_memory_small() {
    let config = CAMERAS
        .replace("MEDIA", root().join("tests/vm").to_str().unwrap())
        .replace("width = 256, height = 128, fps = 50.0", "width = 1920, height = 1080, fps = 5.0");
    let mut daemon = Daemon::start(&config);
    let place = Place::socket(&mut daemon);
    let request = b"GET /api/v1/cameras/yard/frame HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut idle: Vec<_> = (0..2).map(|_| place.connect()).collect();
    for client in &mut idle {
        client.write_all(request).unwrap();
        let mut first = [0; 12];
        client.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    let refused = place.get("/api/v1/cameras/gate/frame");
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("other clients get frames just now: ask again"), "{}", refused.text());
    // A mask that comes meanwhile ends what is being sent.
    let mask = "\n[[camera.privacy]]\npolygon = [[0, 0], [1, 0], [1, 1], [0, 1]]\n\n[[sink]]";
    let config = fs::read_to_string(daemon.path("visiond.toml")).unwrap();
    daemon.rewrite(&config.replacen("\n[[sink]]", mask, 1));
    let reloaded = place.ask("POST", "/api/v1/reload", &[], "");
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    let mut rest = Vec::new();
    let _ = idle[0].read_to_end(&mut rest);
    let whole = 1920 * 1080 * 4;
    assert!(rest.len() < whole, "{} bytes of a frame without the mask", rest.len());
    // A client that leaves makes room.
    idle.pop();
    daemon.wait_until("the next turn", |_| place.get("/api/v1/cameras/gate/frame").status == 200);
}
