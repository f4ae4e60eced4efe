//! The other commands as a newcomer uses them: help, inspect, probe, bench, completions, check; and the message's schema.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use serde_json::Value;
use visiond_tests::{Daemon, json_lines, model, picture, root, run, skip, stderr};

use crate::documents::{assert_valid, errors};

#[test]
fn every_command_explains_itself_and_the_exit_status() {
    for command in
        ["run", "detect", "check", "probe", "capture", "build", "inspect", "bench", "verify", "selftest", "completions"]
    {
        let output = run([command, "--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        assert!(text.contains("Usage:") && text.contains("Exit status:"), "{command}:\n{text}");
    }
    let output = run(["--no-such-option"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn with_json_and_no_terminal_standard_error_has_errors_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (model, picture) = (model().display().to_string(), picture("chelsea.png").display().to_string());
    // Reading this configuration gives a warning, and so does falling back to rten.
    std::fs::write(path("no.so"), "no library").unwrap();
    let config = format!(
        "[[model]]\nname = \"nanodet\"\npath = \"{model}\"\n\n[[camera]]\nname = \"door\"\n\
         source = {{ type = \"v4l2\", device = \"/dev/video99\" }}\n\n\
         [[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://broker.invalid:1883\"\nlogin = \"{}\"\n",
        path("login")
    );
    std::fs::write(path("login"), "a:b").unwrap();
    std::fs::write(path("visiond.toml"), config).unwrap();
    std::fs::write(path("reference.json"), "[]").unwrap();
    let (config, missing, images) = (path("visiond.toml"), path("missing.onnx"), path("pictures"));
    std::fs::create_dir(&images).unwrap();
    std::fs::copy(&picture, path("pictures/a.png")).unwrap();
    let reference = path("reference.json");
    // The text that each prints there without --json: part of a note or warning, if this machine produces one, and of the
    // error.
    let cases: [(&[&str], &str, &str); 11] = [
        (&["detect", &picture], "using rten instead", ""),
        (&["bench", "--model", &model, "-n", "1", "--warmup", "0"], "using rten instead", ""),
        (&["verify", &model, &model, "--images", &images], "using rten instead", ""),
        (
            &["verify", "--reference", &reference, &model, &images, "-s", "0.99"],
            "using rten instead",
            "agreement is not shown",
        ),
        (&["check", &config], "using rten instead", ""),
        (&["capture", "--config", &config, "-o", &images], "cross the network in clear text", "/dev/video99"),
        (&["selftest", "--only", "board", "--report", &path("report.tar.gz")], "testing board", ""),
        (&["probe"], "", ""),
        (&["inspect", &model], "", ""),
        (&["build", &missing], "", "missing.onnx"),
        (&["reload", &config], "", "cannot connect"),
    ];
    for (arguments, note, error) in cases {
        let stderr_of = |more: &[&str]| {
            let mut command = Command::new(visiond_tests::visiond());
            command.args(arguments).args(more).env("ORT_DYLIB_PATH", path("no.so")).stdin(Stdio::null());
            stderr(&command.output().unwrap())
        };
        let with_notes = stderr_of(&[]);
        assert!(with_notes.contains(note), "{arguments:?}: {with_notes}");
        let alone = stderr_of(&["--json"]);
        if error.is_empty() {
            assert_eq!(alone, "", "{arguments:?}");
        } else {
            let is_error = alone.starts_with("visiond: ") && alone.lines().count() == 1;
            assert!(is_error && alone.contains(error), "{arguments:?}: {alone}");
        }
        // A larger value is also accepted.
        if arguments[0] == "selftest" {
            assert!(stderr_of(&["--json", "-v"]).contains(note), "{arguments:?}");
        }
    }
}

/// Returns the possible indents of the next line of a paragraph: its own, that of the text beside an option, or that of a
/// list item. A line with two columns starts an entry, so its text does not continue at its own indent.
fn continuations(line: &str) -> Vec<usize> {
    let indent = line.len() - line.trim_start().len();
    match line.trim_start().split_once("  ") {
        Some((head, text)) => vec![indent + head.len() + 2 + (text.len() - text.trim_start().len())],
        None => vec![indent],
    }
    .into_iter()
    .chain(line.trim_start().starts_with("- ").then_some(indent + 2))
    .collect()
}

#[test]
fn help_fills_its_lines_up_to_the_width() {
    let root = String::from_utf8(run(["--help"]).stdout).unwrap();
    let list = root.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let commands: Vec<_> = names.filter(|name| *name != "help").map(Some).chain([None]).collect();
    assert_eq!(commands.len(), 20, "{commands:?}");
    // Without a terminal and COLUMNS, 80 columns; at most 100.
    for (columns, width) in [(None, 80), (Some("90"), 90), (Some("120"), 100)] {
        for (command, option) in commands.iter().flat_map(|command| [(command, "-h"), (command, "--help")]) {
            let mut program = Command::new(visiond_tests::visiond());
            program.args(*command).arg(option).env_remove("COLUMNS").stdin(Stdio::null());
            let output = program.envs(columns.map(|columns| ("COLUMNS", columns))).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let lines: Vec<_> = text.lines().map(str::trim_end).collect();
            for pair in lines.windows(2) {
                let (line, next) = (pair[0], pair[1].trim_start());
                let whose = || format!("visiond {} {option}, {columns:?} columns: {line}", command.unwrap_or_default());
                assert!(line.chars().count() <= width, "too long: {}", whose());
                let indent = pair[1].len() - next.len();
                // Entries of tables and examples are indented by 2, with or without a second column.
                let entry = indent == 2 || next.starts_with('-') || next.contains("  ");
                if line.is_empty() || next.is_empty() || entry || !continuations(line).contains(&indent) {
                    continue;
                }
                let word = next.split_whitespace().next().unwrap().chars().count();
                assert!(line.chars().count() + 1 + word > width, "ends before `{next}`: {}", whose());
            }
        }
    }
}

#[test]
fn man_writes_pages_by_section_which_mandoc_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("share/man");
    let man = |date| {
        let mut program = Command::new(visiond_tests::visiond());
        program.args([OsStr::new("man"), OsStr::new("--directory"), directory.as_os_str()]);
        program.env("SOURCE_DATE_EPOCH", date).output().unwrap()
    };
    let output = man("1767225600");
    assert!(output.status.success(), "{}", stderr(&output));
    let mut pages: Vec<_> = ["man1", "man5"]
        .iter()
        .flat_map(|section| std::fs::read_dir(directory.join(section)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    pages.sort();
    let expected = ["man1/visiond.1", "man1/visiond-run.1", "man5/visiond.toml.5"];
    assert!(expected.iter().all(|page| pages.contains(&directory.join(page))) && pages.len() == 45, "{pages:?}");
    assert!(std::fs::read_to_string(&pages[0]).unwrap().contains(" 1 2026-01-01 "));
    let lint = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(&pages).output();
    let lint = lint.expect("mandoc checks the manual pages: tests/setup --test installs it");
    let findings = String::from_utf8_lossy(&lint.stdout).into_owned() + &stderr(&lint);
    assert!(lint.status.success() && findings.is_empty(), "{findings}");

    let output = man("yesterday");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("set it to seconds since 1970, or unset it"), "{}", stderr(&output));
}

#[test]
fn systemd_unit_prints_a_unit_that_systemd_accepts() {
    // A program that exists, outside of the folders that the unit hides.
    let output = run(["systemd-unit", "--program", "/bin/sh", "/etc/visiond/gate.toml"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let unit = String::from_utf8(output.stdout).unwrap();
    assert!(
        unit.contains("\nExecStart=/bin/sh run /etc/visiond/gate.toml\n") && unit.contains("\nWatchdogSec="),
        "{unit}"
    );
    let refused = run(["systemd-unit", "--program", "/home/a/visiond"]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("visiond.service");
    std::fs::write(&file, unit).unwrap();
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output() {
        Ok(verified) => assert!(verified.status.success(), "{}", stderr(&verified)),
        Err(error) => skip(&format!("systemd-analyze verify: {error}")),
    }
}

#[test]
fn completions_exist_for_the_usual_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(["completions", shell]);
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("visiond"), "{shell}");
    }
}

#[test]
fn inspect_describes_a_model() {
    let output = run([OsStr::new("inspect"), OsStr::new("--json"), model().as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let facts: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(facts["inputs"][0]["name"], "images");
    assert!(text.contains("c56a49a7981b"), "the SHA-256 is there:\n{text}");
    assert!(text.contains("nanodet"), "the head that fits is there:\n{text}");
}

#[test]
fn inspect_describes_an_engine_that_cannot_run_here() {
    let folder = tempfile::tempdir().unwrap();
    let engine = folder.path().join("net.engine");
    let mut bytes = vec![0; 256];
    bytes[..4].copy_from_slice(b"ftrt");
    bytes[24..28].copy_from_slice(&[8, 6, 2, 3]);
    let notes = br#"{"author": "Ultralytics", "task": "detect", "names": {"0": "gate"}, "stride": 32}"#;
    let wrapped = [&(notes.len() as u32).to_le_bytes()[..], notes, &bytes].concat();
    std::fs::write(&engine, &wrapped).unwrap();
    let output = run([OsStr::new("inspect"), engine.as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["built by TensorRT 8.6.2", "metadata   task = detect", "runs here  no: ", "sidecar    none"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let output = run([OsStr::new("inspect"), OsStr::new("--json"), engine.as_os_str()]);
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&facts["built_by"], &facts["loaded"]), (&Value::from("TensorRT 8.6.2"), &Value::Null));

    std::fs::write(&engine, "an engine by name alone").unwrap();
    let output = run([OsStr::new("inspect"), engine.as_os_str()]);
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("is not a TensorRT engine"), "{}", stderr(&output));
}

#[test]
fn bench_by_time_ends_in_time_and_layers_are_an_engines() {
    let output = run(["bench", "--json", "--duration", "300ms", "--warmup", "0", "--backend", "rten"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["frames"].as_u64().unwrap() >= 1 && report.get("engine").is_none());
    let output = run(["bench", "--layers", "--frames", "1", "--warmup", "0", "--backend", "rten"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("build one with `visiond build`"), "{}", stderr(&output));
    assert_eq!(run(["bench", "--memory", "fast"]).status.code(), Some(2));
}

#[test]
fn probe_answers_in_text_and_json() {
    assert!(run(["probe"]).status.success());
    let output = run(["probe", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(facts.is_object());
}

#[test]
fn probe_without_onnx_runtime_points_to_its_installation() {
    let home = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(visiond_tests::visiond())
        .arg("probe")
        .env("HOME", home.path())
        .env_remove("XDG_CACHE_HOME")
        .env_remove("ORT_DYLIB_PATH")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |head: &str| text.lines().find(|line| line.starts_with(head)).unwrap_or_default().to_owned();
    if line("onnxruntime").contains("not available") {
        assert!(line("onnxruntime").contains("docs/operations.md (section \"ONNX Runtime\")"), "{text}");
        assert!(text.contains(".onnx files with rten, two to five times slower"), "{text}");
    }
    // The section installs the version that the tests run with.
    let file = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (setup, document) = (file("tests/setup"), file("docs/operations.md"));
    let section = document.split("\n### ONNX Runtime\n").nth(1).unwrap().split("\n### ").next().unwrap();
    let pinned = |key: &str| setup.lines().filter_map(|line| line.trim().strip_prefix(key)).collect::<Vec<_>>();
    let values = [pinned("ort_version="), pinned("ort_wheel_sha256=")].concat();
    assert_eq!(values.len(), 3, "{values:?}");
    for value in values {
        assert!(section.contains(value), "docs/operations.md does not have {value} of tests/setup");
    }
}

#[test]
fn bench_measures_every_stage() {
    let output = run(["bench", "--json", "--frames", "5", "--warmup", "1", "--backend", "rten"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let _: Value = serde_json::from_str(&text).unwrap();
    for word in ["preprocess", "infer", "postprocess", "median", "p90", "p99"] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
}

#[test]
fn the_shipped_configurations_are_valid() {
    for file in ["config/visiond.toml", "config/demo.toml"] {
        // The demo's video and folder are made by `./demo`.
        let output = run([OsStr::new("check"), OsStr::new("--file-only"), root().join(file).as_os_str()]);
        assert!(output.status.success(), "{file}:\n{}{}", stderr(&output), String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn nothing_is_written_to_the_home_folder_and_no_backend_reports_home() {
    for backend in visiond_tests::backends() {
        let home = tempfile::tempdir().unwrap();
        let output = std::process::Command::new(visiond_tests::visiond())
            .args(["detect", "--json", "--backend", backend])
            .arg(picture("chelsea.png"))
            .env("HOME", home.path())
            .env_remove("XDG_CACHE_HOME")
            .env_remove("ORT_DISABLE_TELEMETRY")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().flatten().map(|e| e.path()).collect();
        assert!(left.is_empty(), "{backend} left {left:?}");
    }
}

#[test]
fn published_messages_match_the_schema() {
    let output = run([
        OsStr::new("detect"),
        OsStr::new("--json"),
        picture("astronaut.png").as_os_str(),
        picture("coffee.png").as_os_str(),
    ]);
    let messages = json_lines(&output.stdout);
    assert_eq!(messages.len(), 2);
    messages.iter().for_each(assert_valid);
    // Proves that the check can fail.
    let mut wrong = messages[0].clone();
    wrong["frame"]["widht"] = 5.into();
    assert!(!errors(&wrong).is_empty());

    let mut daemon = Daemon::start(
        "[engine]\nbackend = \"rten\"\n[[model]]\nname = \"n\"\npath = \"{model}\"\n[[camera]]\nname = \"cat\"\n\
         [camera.source]\ntype = \"images\"\npath = \"{media}\"\nrepeat = true\nfps = 10\n\
         [[sink]]\ntype = \"file\"\npath = \"{dir}/out.jsonl\"\n",
    );
    daemon.wait_until("six messages", |d| d.count("out.jsonl") >= 6);
    let ended = daemon.terminate();
    ended.daemon.messages("out.jsonl").iter().for_each(assert_valid);
}
