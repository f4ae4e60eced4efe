//! Bad input gets a clear message and the documented exit status; nothing else is lost, nothing panics.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use visiond_tests::{Daemon, assert_no_panic, backends, json_lines, model, picture, root, run, stderr, video, visiond};

const INPUT: i32 = 5;
const MODEL: i32 = 4;
const CONFIG: i32 = 3;

/// Asserts that the command ended with that status and a message that names `place`, and did not panic.
fn assert_refused(output: &Output, status: i32, place: &str) {
    let said = stderr(output);
    assert_no_panic(&said);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(place), "{place} is not named in:\n{said}");
}

fn detect(files: &[&Path]) -> Output {
    run(["detect", "--json", "--backend", "rten"]
        .map(PathBuf::from)
        .iter()
        .map(PathBuf::as_path)
        .chain(files.iter().copied()))
}

fn with_model(path: &Path, backend: &str) -> Output {
    let mut command = Command::new(visiond());
    command.args(["detect", "--backend", backend, "--card"]).arg(root().join("config/models/nanodet-g-416.toml"));
    command.arg("--model").arg(path).arg(picture("chelsea.png")).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn one_bad_picture_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(picture("coffee.png")).unwrap();
    let bad = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let files = [
        bad("truncated.png", &whole[..whole.len() / 2]),
        bad("empty.jpg", b""),
        bad("text.jpg", b"this is no picture"),
        bad("header.jpg", &[0xff, 0xd8, 0xff, 0xe0, 0, 16]),
        folder.path().join("missing.png"),
    ];
    let chelsea = picture("chelsea.png");
    let mut all: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    all.push(&chelsea);
    let output = detect(&all);
    for file in &files {
        assert_refused(&output, INPUT, file.file_name().unwrap().to_str().unwrap());
    }
    let messages = json_lines(&output.stdout);
    assert_eq!(messages.len(), 1, "the good one is still looked at");
    assert_eq!(messages[0]["detections"][0]["label"], "cat");
}

#[test]
fn a_truncated_video_gives_the_frames_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.avi");
    let whole = std::fs::read(video()).unwrap();
    std::fs::write(&path, &whole[..300_000]).unwrap();
    let output = detect(&[&path]);
    assert_no_panic(&stderr(&output));
    let frames = json_lines(&output.stdout).len();
    assert!((5..100).contains(&frames), "{frames} frames");
}

#[test]
fn a_file_that_is_not_a_model_is_refused_with_that_reason() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let network = std::fs::read(model()).unwrap();
    let files = [
        write("empty.onnx", b""),
        write("text.onnx", b"not a network at all"),
        write("picture.onnx", &std::fs::read(picture("chelsea.png")).unwrap()),
        write("truncated.onnx", &network[..network.len() / 2]),
        folder.path().join("missing.onnx"),
        folder.path().to_path_buf(),
    ];
    for backend in backends() {
        for file in &files {
            assert_refused(&with_model(file, backend), MODEL, file.to_str().unwrap());
        }
    }
}

#[test]
fn a_card_that_does_not_fit_its_model_shows_both_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let card = folder.path().join("wrong.toml");
    std::fs::write(&card, "name = \"wrong\"\n[head]\nfamily = \"yolov8\"\n[classes]\npreset = \"coco80\"\n").unwrap();
    let output = run([
        "detect".as_ref(),
        "--card".as_ref(),
        card.as_os_str(),
        "--model".as_ref(),
        model().as_os_str(),
        picture("chelsea.png").as_os_str(),
    ]);
    let said = stderr(&output);
    assert_no_panic(&said);
    assert!([MODEL, CONFIG].contains(&output.status.code().unwrap()), "{said}");
    assert!(said.contains("3549") && said.contains("124"), "the shape found is shown:\n{said}");
}

#[test]
fn a_configuration_with_ten_errors_shows_ten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ten.toml");
    let text = r#"[log]
level = "loud"
[engine]
backnd = "auto"
threads = -1
[[model]]
name = "nano det"
path = 5
[[camera]]
name = "a"
model = "other"
[camera.source]
type = "vidio"
[[camera]]
name = "b"
[camera.source]
type = "pattern"
fps = 0
width = "wide"
[[sink]]
type = "file"
rotate_bytes = "64 MiBB"
"#;
    std::fs::write(&path, text).unwrap();
    for command in ["check", "run"] {
        let output = run([command.as_ref(), path.as_os_str()]);
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_no_panic(&said);
        assert_eq!(output.status.code(), Some(CONFIG), "{said}");
        for line in [2, 4, 5, 7, 8, 13, 18, 19, 20, 22] {
            assert!(said.contains(&format!("ten.toml:{line}:")), "line {line} is not named in:\n{said}");
        }
        for near in ["backend", "video"] {
            assert!(said.contains(near), "`{near}` is not suggested in:\n{said}");
        }
    }
}

#[test]
fn a_closed_pipe_ends_detect_quietly() {
    let mut child = Command::new(visiond())
        .args(["detect", "--json", "--backend", "rten", "--max-frames", "30"])
        .arg(video())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_no_panic(&said);
    assert!(!said.to_lowercase().contains("broken pipe"), "{said}");
}

#[test]
fn a_full_disk_affects_only_its_sink() {
    let tiny = root().join("tests/vm/tiny.onnx");
    let mut daemon = Daemon::start(&format!(
        r#"
[engine]
backend = "rten"
[[model]]
name = "bars"
path = "{}"
[[camera]]
name = "bars"
[camera.source]
type = "pattern"
width = 320
height = 240
[[sink]]
name = "full"
type = "file"
path = "/dev/full"
rotate_bytes = 0
[[sink]]
name = "good"
type = "file"
path = "{{dir}}/out.jsonl"
"#,
        tiny.display()
    ));
    daemon.wait_until("messages in the good sink", |d| d.count("out.jsonl") >= 30);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let complaints = ended.log.lines().filter(|l| l.contains("/dev/full") && l.contains("No space left")).count();
    assert!(complaints >= 1, "the full disk is told:\n{}", ended.log);
    let written = ended.daemon.count("out.jsonl");
    assert!(complaints < written / 2, "but not for every one of {written} messages:\n{}", ended.log);
}

#[test]
fn a_source_that_can_never_work_ends_the_daemon_with_an_error() {
    let daemon = Daemon::start(
        "[engine]\nbackend = \"rten\"\n[[model]]\nname = \"n\"\npath = \"{model}\"\n[[camera]]\nname = \"gone\"\n\
         [camera.source]\ntype = \"video\"\nurl = \"{dir}/no-such.mp4\"\n[[sink]]\ntype = \"file\"\npath = \"{dir}/o\"\n",
    );
    let ended = daemon.finish();
    assert_eq!(ended.status.code(), Some(INPUT), "{}", ended.log);
    assert!(ended.log.contains("no-such.mp4"), "{}", ended.log);
}
