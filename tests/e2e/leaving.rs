//! No output contains a secret of the configuration, or anything that a terminal would act on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use visiond_tests::web::Place;
use visiond_tests::{Daemon, assert_no_panic, model, picture, stderr, visiond};

/// Every secret in the configurations below contains it.
const SECRET: &str = "hush";

/// Cameras with a secret in every place that a user might put one. `{tools}` has programs that print what they were given.
const CAMERAS: &str = r#"
[ffmpeg]
program = "{tools}/ffmpeg"
[[camera]]
name = "user"
source = { type = "video", url = "rtsp://admin:it's-hush@127.0.0.1:9/1" }
[[camera]]
name = "query"
source = { type = "video", url = "http://127.0.0.1:9/a?user=x&pwd=hush&x=1&TOKEN=hush#api_key=hush" }
[[camera]]
name = "arguments"
source = { type = "video", url = "srt://127.0.0.1:9?passphrase=hush", input_args = ["-headers", "Authorization: Basic hush", "-cookies", "id=hush; path=/", "-user-agent", "x"] }
[[camera]]
name = "plays"
source = { type = "video", url = "http://admin:hush@127.0.0.1:9/plays?token=hush", repeat = true }
[[camera]]
name = "pipeline"
source = { type = "command", command = ["{tools}/echo", "rtspsrc", "location=rtsp://admin:hush@[::1]:9/1", "user-id=admin", "user-pw=hush", "!", "fdsink"] }
[[camera]]
name = "shell"
source = { type = "command", command = ["{tools}/echo", "curl -u admin:hush 'http://h/?a=1;password=hush' --header 'X-Api-Key: hush'", "--password", "hush hush", "-uadmin:hush"] }
[[camera]]
name = "raw"
source = { type = "command", container = "raw", format = "grey", width = 64, height = 64, command = ["{tools}/raw", "--token", "hush"] }
"#;

fn tools() -> tempfile::TempDir {
    let tools = tempfile::tempdir().unwrap();
    let program = |name: &str, script: &str| {
        let path = tools.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // The output of ffmpeg and GStreamer about their arguments, also in a line that is too long.
    let say = "echo \"cannot use $*: 401 Unauthorized\" >&2; printf 'x%4060s rtsp://admin:hushhushhush@cam: bad\\n' ' ' >&2\n";
    let answer =
        r#"{"streams":[{"codec_name":"x","width":16,"height":16,"pix_fmt":"yuv420p"}],"format":{"duration":"1"}}"#;
    program("ffprobe", &format!("case \"$*\" in *plays*) echo '{answer}'; exit 0 ;; esac\n{say}exit 1"));
    program("ffmpeg", &format!("{say}head -c 768 /dev/zero; sleep 0.2"));
    program("echo", &format!("{say}exit 1"));
    program("raw", "printf 'Opening the camera rtsp://admin:hush@cam password=hush\\n'; head -c 9000 /dev/zero");
    tools
}

fn shows_none(what: &str, text: &str) {
    let at = text.find(SECRET).map(|at| {
        let from = text.floor_char_boundary(at.saturating_sub(200));
        text[from..text.floor_char_boundary(at + 100)].to_owned()
    });
    assert_eq!(at, None, "{what} shows a secret");
}

#[test]
fn no_secret_of_the_configuration_leaves_the_process() {
    let tools = tools();
    let folder = tools.path().to_str().unwrap();
    let config = |cameras: &str| {
        format!(
            "[log]\nlevel = \"trace\"\n[http]\nlisten = [\"unix:{{dir}}/http.sock\"]\n[engine]\nbackend = \"rten\"\n\
             [[model]]\nname = \"n\"\npath = \"{{model}}\"\n\
             [[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n{}",
            cameras.replace("{tools}", folder)
        )
    };
    let whole = config(CAMERAS);
    let mut daemon = Daemon::start_with(&whole, |command| {
        command.arg("--summary-json").arg(format!("{folder}/summary.json"));
    });
    let names = ["user", "query", "arguments", "pipeline", "shell", "raw"];
    daemon.wait_until("every camera to fail", |daemon| {
        names.iter().all(|name| daemon.log().matches(&format!("camera {name}: ")).count() >= 2)
    });
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") > 0);
    let paths = [
        "/",
        "/metrics",
        "/healthz",
        "/readyz",
        "/api/v1/status",
        "/api/v1/cameras",
        "/api/v1/config",
        "/api/v1/log",
        "/api/v1/detections",
        "/api/v1/cameras/user",
        "/api/v1/cameras/shell",
    ];
    let place = Place::socket(&mut daemon);
    let everywhere = || {
        for path in paths {
            let answer = place.get(path);
            assert!([200, 503].contains(&answer.status), "{path}: {}", answer.status);
            shows_none(path, &answer.text());
        }
    };
    everywhere();
    // The output of a reload, a valid one and one with errors in the lines with secrets.
    let changed = whole.replace("x=1", "x=2").replace("user-id=admin", "user-id=other");
    let wrong = changed.replace("url = ", "ulr = ").replace("type = \"command\"", "type = \"comand\"");
    for (text, said) in [(&wrong, "rejected"), (&changed, "reload")] {
        let proposal = serde_json::json!({ "path": daemon.path("visiond.toml"), "text": visiond_tests::fill(text, daemon.folder.path()) });
        let json = ["Content-Type: application/json"];
        shows_none("/api/v1/changes", &place.ask("POST", "/api/v1/changes", &json, &proposal.to_string()).text());
        let before = daemon.log().matches(said).count();
        daemon.reconfigure(text);
        daemon.wait_until("the reload", |daemon| daemon.log().matches(said).count() > before);
        everywhere();
    }
    let path = daemon.path("visiond.toml");
    for arguments in
        [&["check"][..], &["check", "--json"], &["check", "--effective"], &["check", "--file-only", "--effective"]]
    {
        for text in [&changed, &wrong] {
            let copy = path.with_file_name("copy.toml");
            fs::write(&copy, visiond_tests::fill(text, daemon.folder.path())).unwrap();
            let output = Command::new(visiond()).args(arguments).arg(&copy).output().unwrap();
            shows_none(
                &arguments.join(" "),
                &format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output)),
            );
        }
    }
    let finished = daemon.terminate();
    shows_none("the log", &finished.log);
    shows_none("the messages", &fs::read_to_string(finished.daemon.path("out.jsonl")).unwrap());
    shows_none("the summary", &fs::read_to_string(format!("{folder}/summary.json")).unwrap());
}

#[test]
fn detect_shows_no_secret_of_a_url() {
    let tools = tools();
    let pictures = tools.path().join("pictures");
    // ffmpeg is taken from PATH, and the model finds something in any frame.
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    for json in [true, false] {
        let mut command = Command::new(visiond());
        command
            .args(["detect", "--log-level", "trace", "--backend", "rten", "--model"])
            .arg(model())
            .env("PATH", &path);
        command.args(["--score-threshold", "0.001", "--max-frames", "2", "--annotate"]).arg(&pictures);
        command.args(json.then_some("--json")).arg("http://admin:hush@127.0.0.1:9/plays?token=hush");
        let output = command.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        assert_no_panic(&said);
        assert!(said.contains("***"), "{said}");
        shows_none("detect", &said);
    }
    for entry in fs::read_dir(&pictures).unwrap() {
        shows_none("a picture's name", &entry.unwrap().file_name().to_string_lossy());
    }
}

/// Escape, bell, a C1 code, line ends and bidirectional marks, in place of a name's letters.
const HOSTILE: &str = "\u{1b}[2J\u{7}\u{9b}7m\u{202e}\r\n";

/// Replaces bytes of the sample model by others of the same number.
fn hostile_model(folder: &std::path::Path) -> std::path::PathBuf {
    let mut bytes = fs::read(model()).unwrap();
    let mut replace = |from: &str| {
        let mut hostile: Vec<u8> = HOSTILE.bytes().take(from.len()).collect();
        while std::str::from_utf8(&hostile).is_err() {
            hostile.pop();
        }
        hostile.resize(from.len(), b'x');
        let at: Vec<_> = (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from.as_bytes())).collect();
        assert!(!at.is_empty(), "{from}");
        at.iter().for_each(|&at| bytes[at..at + from.len()].copy_from_slice(&hostile));
    };
    for name in ["tfjs2onnx", "Apache-2.0 (RangiLyu/nanodet)", "npm @vladmandic/human"] {
        replace(name);
    }
    let path = folder.join("hostile\u{1b}[31m\u{202e}.onnx");
    fs::write(&path, bytes).unwrap();
    let card = fs::read_to_string(model().with_extension("toml")).unwrap();
    let names: Vec<_> = (0..80).map(|n| format!("\"\\u001b[2J\\u0007\\u009b7m\\u202e{n}\"")).collect();
    let card = card.replace("preset = \"coco80\"", &format!("names = [{}]", names.join(", ")));
    fs::write(path.with_extension("toml"), card).unwrap();
    path
}

fn is_harmless(what: &str, text: &str) {
    let acts = |c: char| c.is_control() && !"\n\t".contains(c) || ('\u{2028}'..='\u{202e}').contains(&c);
    let found: Vec<_> = text.chars().filter(|c| acts(*c)).collect();
    assert!(found.is_empty(), "{what} has {found:?}: {text:?}");
}

#[test]
fn names_of_a_model_and_of_files_do_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = hostile_model(folder.path());
    let film = folder.path().join("film\u{1b}[2J\u{9b}7m.png");
    fs::copy(picture("astronaut.png"), &film).unwrap();
    let config = folder.path().join("c\u{1b}[2J.toml");
    let quoted = |path: &std::path::Path| toml_string(path.to_str().unwrap());
    let text = |more: &str| {
        format!(
            "{more}[engine]\nbackend = \"rten\"\n[[model]]\nname = \"n\"\npath = {}\n[[camera]]\nname = \"c\"\n\
             source = {{ type = \"images\", path = {} }}\n[[sink]]\ntype = \"file\"\npath = {}\n",
            quoted(&hostile),
            quoted(&film),
            quoted(&folder.path().join("out\u{1b}[2J.jsonl"))
        )
    };
    let run = |arguments: &[&str], files: &[&std::path::Path]| {
        let output = Command::new(visiond()).args(arguments).args(files).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        assert_no_panic(&said);
        is_harmless(&arguments.join(" "), &said);
        said
    };
    let (hostile, film) = (hostile.as_path(), film.as_path());
    let missing = folder.path().join("gone\u{1b}[2J\u{202e}\u{9b}.onnx");
    assert!(run(&["inspect"], &[hostile]).contains("\\u{1b}[2J"));
    run(&["inspect", "--json"], &[hostile]);
    run(&["inspect"], &[&missing]);
    run(&["bench", "--backend", "rten", "--frames", "1", "--warmup", "0", "--model"], &[hostile]);
    run(&["verify", "--images", film.to_str().unwrap()], &[hostile, &model()]);
    run(&["verify"], &[hostile, &missing]);
    let all = ["detect", "--backend", "rten", "--score-threshold", "0.1", "--model", hostile.to_str().unwrap()];
    assert!(run(&all, &[film, &missing]).contains("\\u{1b}[2J"));
    run(&[&all[..], &["--json"]].concat(), &[film]);
    for more in ["", "\"\\u001b[2J\\u009b\" = 1\n", "[log]\nlevel = \"\\u001b\\u202e\"\n"] {
        fs::write(&config, text(more)).unwrap();
        for arguments in
            [&["check"][..], &["check", "--json"], &["check", "--effective"], &["--log-level", "trace", "run"]]
        {
            run(arguments, &[&config]);
        }
    }
    run(&["\u{1b}[2J"], &[]);
    run(&["run"], &[&missing]);
    run(&["reload", "--url", "unix:/\u{1b}[2J\u{9b}"], &[]);
}

fn toml_string(text: &str) -> String {
    let escaped =
        |c: char| if c.is_control() || c == '\u{202e}' { format!("\\u{:04X}", u32::from(c)) } else { c.to_string() };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}
