//! Metrics, dashboard, alerts and `visiond top`, checked by promtool and in a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use visiond_tests::{Daemon, root, visiond, wait_until_or_show};

/// A camera that streams and one that is missing, on the tiny model as a bundle; a broker that does not answer.
const CONFIG: &str = r#"
[device]
name = "gate-7"

[engine]
backend = "rten"
threads = 1

[http]
listen = ["unix:{dir}/http.sock"]

[[model]]
name = "tiny"
bundle = "street"

[bundles]
directory = "{dir}/models"

[[camera]]
name = "bars"
model = "tiny"
source = { type = "pattern", width = 128, height = 64, fps = 30.0 }
annotate = { directory = "{dir}/pictures", every = 10 }

[[camera]]
name = "gone"
model = "tiny"
source = { type = "v4l2", device = "{dir}/no-such-device" }

[[sink]]
type = "file"
path = "{dir}/out.jsonl"

# Nobody listens there.
[[sink]]
type = "mqtt"
name = "fleet"
url = "mqtt://127.0.0.1:1"
durable = true
spool_directory = "{dir}/spool"
"#;

fn start() -> Daemon {
    start_with(|_| {})
}

/// Puts the tiny model into the store of this folder, as the bundle street 7, of which the source has nothing newer.
fn install(folder: &Path) {
    let version = folder.join("models/street/7");
    fs::create_dir_all(&version).unwrap();
    for (from, to) in [("tiny.onnx", "model"), ("tiny.toml", "model.toml")] {
        fs::copy(root().join("tests/vm").join(from), version.join(to)).unwrap();
    }
    let manifest = format!(
        "format = 1\nname = \"street\"\nversion = 7\n[[model]]\nfile = \"m.onnx\"\n[[file]]\npath = \"m.onnx\"\nbytes = 1\nsha256 = \"{}\"\n",
        "0".repeat(64)
    );
    fs::write(version.join("manifest.toml"), manifest).unwrap();
    std::os::unix::fs::symlink("7", folder.join("models/street/current")).unwrap();
    let rollout = "source = \"/srv/bundles\"\nstep = \"up_to_date\"\nnewest = 7\nsince_unix_s = 1790000000\n";
    fs::write(folder.join("models/street/rollout.toml"), rollout).unwrap();
}

fn start_with(adapt: impl FnOnce(&mut Command)) -> Daemon {
    let mut daemon = Daemon::start_with(CONFIG, |command| {
        // The last argument is the configuration.
        install(Path::new(command.get_args().last().unwrap()).parent().unwrap());
        adapt(command);
    });
    daemon.wait_until("frames and a camera that is away", |daemon| {
        let Ok(status) = UnixStream::connect(daemon.path("http.sock")).map(|_| status(daemon)) else { return false };
        let cameras = status["cameras"].as_array().unwrap().clone();
        let published = cameras.iter().filter_map(|camera| camera["published"].as_u64()).sum::<u64>();
        let away = cameras.iter().any(|camera| !camera["reason"].is_null());
        let follows = status["models"][0]["bundle"]["rollout"].is_object();
        published > 20
            && away
            && follows
            && samples(&get(daemon, "/metrics"))["visiond_spool_messages{sink=\"fleet\"}"] > 0.0
    });
    daemon
}

/// Returns the body at `path`; the status must be 200.
fn get(daemon: &Daemon, path: &str) -> String {
    let mut stream = UnixStream::connect(daemon.path("http.sock")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    body.to_owned()
}

fn status(daemon: &Daemon) -> Value {
    serde_json::from_str(&get(daemon, "/api/v1/status")).unwrap()
}

/// Returns the value of each sample by its name with labels.
fn samples(scrape: &str) -> BTreeMap<&str, f64> {
    let lines = scrape.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).map(|(name, value)| (name, value.parse().unwrap())).collect()
}

/// `promtool ARGS`, with `input` to read.
fn promtool(args: &[&str], folder: &Path, input: &str) -> Output {
    let file = folder.join("input");
    fs::write(&file, input).unwrap();
    let mut command = Command::new("promtool");
    command.args(args).stdin(File::open(&file).unwrap());
    command.output().unwrap_or_else(|error| panic!("promtool does not start ({error}): run tests/setup --test"))
}

fn assert_content(output: &Output) {
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", told(&output.stdout), told(&output.stderr));
}

/// Our metrics and labels in a PromQL expression.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("visiond_") || word.starts_with("process_")).map(str::to_owned).collect()
}

/// Every `key` of an object, however deep, whose value is text.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get(key).and_then(Value::as_str));
            map.values().for_each(|value| texts(value, key, found));
        }
        Value::Array(list) => list.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

/// A folder that looks like a Jetson's `/`.
fn jetson() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in [
        ("sys/firmware/devicetree/base/compatible", "nvidia,p3768-0000+p3767-0005\0nvidia,tegra234\0"),
        ("sys/class/thermal/thermal_zone0/type", "gpu-thermal\n"),
        ("sys/class/thermal/thermal_zone0/temp", "52468\n"),
        ("sys/class/devfreq/17000000.gpu/device/load", "453\n"),
        ("var/lib/nvpmodel/status", "pmode:0002\n"),
        ("etc/nvpmodel.conf", "< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n"),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn a_scrape_passes_promtool_and_agrees_with_the_status() {
    let mut daemon = start();
    let scrape = get(&daemon, "/metrics");
    let checked = promtool(&["check", "metrics"], daemon.folder.path(), &scrape);
    assert_content(&checked);
    assert_eq!(String::from_utf8_lossy(&checked.stderr), "", "promtool complains");

    let first = samples(&scrape);
    let status = status(&daemon);
    let camera = &status["cameras"][0];
    assert_eq!(camera["name"], "bars");
    let of = |name: &str, labels: &str| first[format!("{name}{{camera=\"bars\"{labels}}}").as_str()];
    let published = of("visiond_frames_total", ",outcome=\"published\"");
    assert!(published > 20.0 && published <= camera["published"].as_f64().unwrap());
    assert!(of("visiond_capture_to_publish_seconds_count", "") >= 20.0);
    assert_eq!(
        of("visiond_capture_to_publish_seconds_bucket", ",le=\"+Inf\""),
        of("visiond_capture_to_publish_seconds_count", "")
    );
    let seconds = of("visiond_capture_to_publish_seconds_sum", "") / published;
    assert!((1e-5..5.0).contains(&seconds), "{seconds} s a frame");
    assert_eq!(first["visiond_camera_phase{camera=\"gone\",phase=\"streaming\"}"], 0.0);
    assert!(first["visiond_camera_errors_total{camera=\"gone\"}"] >= 1.0);
    assert_eq!(first["visiond_sink_connected{sink=\"fleet\"}"], 0.0);
    assert!(first["visiond_spool_messages{sink=\"fleet\"}"] > 0.0);
    assert!(first["process_resident_memory_bytes"] > 1e6 && first["process_open_fds"] > 3.0);
    assert_eq!(camera["format"], "nv12");
    assert_eq!((camera["width"].as_u64(), camera["height"].as_u64()), (Some(128), Some(64)));
    assert!(status["cameras"][1]["reason"].as_str().unwrap().contains("no-such-device"), "{}", status["cameras"][1]);
    assert_eq!(status["models"][0]["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(status["device"], "gate-7");

    let frames = "visiond_frames_total{camera=\"bars\",outcome=\"published\"}";
    daemon.wait_until("more frames", |daemon| samples(&get(daemon, "/metrics"))[frames] > first[frames]);
    let later = get(&daemon, "/metrics");
    let later = samples(&later);
    for (name, before) in first.iter().filter(|(name, _)| name.contains("_total") || name.contains("_bucket")) {
        assert!(later[name] >= *before, "{name} fell from {before} to {}", later[name]);
    }
}

#[test]
fn the_dashboard_and_the_alerts_name_existing_metrics() {
    let board: Value =
        serde_json::from_str(&fs::read_to_string(root().join("docs/grafana/visiond.json")).unwrap()).unwrap();
    let mut expressions = Vec::new();
    texts(&board, "expr", &mut expressions);
    assert!(expressions.len() > 30, "{}", expressions.len());
    let mut asked = expressions.clone();
    texts(&board["templating"], "definition", &mut asked);
    let alerts = fs::read_to_string(root().join("docs/prometheus/alerts.yml")).unwrap();
    asked.push(&alerts);

    let jetson = jetson();
    let daemon = start_with(|command| {
        command.env("VISIOND_SYSTEM_ROOT", jetson.path());
    });
    let scrape = get(&daemon, "/metrics");
    let there: BTreeSet<_> =
        scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for metric in asked.iter().flat_map(|expression| metrics_in(expression)) {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| metric.strip_suffix(part)).unwrap_or(&metric);
        assert!(there.contains(metric.as_str()) || there.contains(family), "{metric} is not in the scrape:\n{scrape}");
    }

    // As rules, because promtool reads expressions only there.
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, expression) in expressions.iter().enumerate() {
        let expression =
            expression.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$camera", ".*");
        rules += &format!("  - record: visiond:panel{number}\n    expr: {}\n", Value::from(expression));
    }
    let path = daemon.path("dashboard.yml");
    fs::write(&path, rules).unwrap();
    assert_content(&promtool(&["check", "rules", path.to_str().unwrap()], daemon.folder.path(), ""));
}

#[test]
fn each_alert_fires_at_its_threshold_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let docs = root().join("docs/prometheus");
    let at = |name: &str| docs.join(name).display().to_string();
    assert_content(&promtool(&["check", "rules", &at("alerts.yml")], folder.path(), ""));
    assert_content(&promtool(&["test", "rules", &at("alerts_test.yml")], folder.path(), ""));
    let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
    for alert in read("alerts.yml").lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let tested = format!("- alertname: {alert}\n");
        assert!(read("alerts_test.yml").contains(&tested), "{alert} is not tested");
    }
}

#[test]
fn the_newest_lines_of_the_log_are_returned_once_each() {
    let daemon = start();
    let tail =
        |after: u64| -> Value { serde_json::from_str(&get(&daemon, &format!("/api/v1/log?after={after}"))).unwrap() };
    let all = tail(0);
    let lines = all["lines"].as_array().unwrap();
    let gone = lines.iter().find(|line| line["message"].as_str().unwrap().contains("no-such-device")).unwrap();
    assert_eq!(gone["about"], serde_json::json!(["camera", "gone"]));
    assert!(["warn", "error"].contains(&gone["level"].as_str().unwrap()), "{gone}");
    assert!(gone["at"].as_str().unwrap().ends_with('Z'));
    let last = all["last"].as_u64().unwrap();
    assert_eq!(lines.last().unwrap()["number"], last);
    assert!(tail(last)["lines"].as_array().unwrap().iter().all(|line| line["number"].as_u64() > Some(last)));
}

#[test]
fn top_prints_a_table_without_a_terminal() {
    let daemon = start();
    let url = format!("unix:{}", daemon.path("http.sock").display());
    let once = |args: &[&str]| {
        let output = visiond_tests::run([&["top", "--url", &url], args].concat());
        assert_content(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    for text in [once(&["--once"]), once(&["--sort", "fps"])] {
        let row =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(row("visiond ").contains("up "), "{text}");
        assert!(row("bars").contains("streaming"), "{text}");
        assert!(row("gone").contains("no-such-device"), "{text}");
        assert!(row("tiny").contains("street 7") && row("file").contains("out.jsonl"), "{text}");
        assert!(row("fleet").contains("waiting, messages are kept on disk"), "{text}");
        assert!(text.contains(" MiB, "), "{text}");
    }
    let gone = visiond_tests::run(["top", "--once", "--url", "unix:/nowhere/http.sock"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(visiond_tests::stderr(&gone).contains("cannot connect to visiond at unix:/nowhere/http.sock"));
}

#[test]
fn a_refused_file_is_reported_without_its_secrets() {
    let mut daemon = start();
    let secret = "[[camera]]\nname = \"x\"\nsource = { type = \"video\", urll = \"rtsp://user:s3cret@10.0.0.1/1\" }\n";
    daemon.reconfigure(&format!("{CONFIG}{secret}"));
    daemon.wait_until("the refusal", |daemon| status(daemon)["reloads"]["refused"] == 1);
    let told = [get(&daemon, "/api/v1/status"), get(&daemon, "/api/v1/log?after=0")];
    for text in &told {
        assert!(text.contains("did you mean") && text.contains("rtsp://***********@10.0.0.1"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert_eq!(samples(&get(&daemon, "/metrics"))["visiond_reload_last_applied"], 0.0);
    assert!(!daemon.terminate().log.contains("s3cret"));
}

/// Both ends of a terminal of this size.
fn terminal(columns: u16, rows: u16) -> (File, OwnedFd) {
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: openpty(3) writes a descriptor through each of the first two pointers and reads one winsize through the last,
    // which is valid; a null name and a null termios are allowed.
    let result = unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(result, 0, "openpty");
    // SAFETY: both are open and owned by no other value, since openpty just returned them.
    let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    // No program inherits the clone, so that a failed test hangs up and `top` ends.
    (master.try_clone().unwrap(), slave)
}

/// Returns `visiond top` of this daemon in this terminal.
fn top_in(terminal: &OwnedFd, daemon: &Daemon) -> Command {
    let end = || Stdio::from(terminal.try_clone().unwrap());
    let mut top = Command::new(visiond());
    top.args(["top", "--interval", "200ms", "--url", &format!("unix:{}", daemon.path("http.sock").display())])
        .env("TERM", "xterm-256color")
        .stdin(end())
        .stdout(end())
        .stderr(end());
    top
}

/// The bytes drawn on a terminal so far.
struct Drawn(Arc<Mutex<String>>);

impl Drawn {
    fn on(master: &File) -> Self {
        let drawn: Arc<Mutex<String>> = Arc::default();
        let (screen, mut reader) = (Arc::clone(&drawn), master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                screen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Self(drawn)
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    fn see(&self, what: &str) {
        wait_until_or_show(
            &format!("{what} to be drawn"),
            || self.text().contains(what),
            || format!("{:?}", self.text()),
        );
    }
}

fn line_discipline(terminal: &OwnedFd) -> libc::tcflag_t {
    // SAFETY: a termios is plain numbers, for which zero is valid.
    let mut termios: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: tcgetattr(3) writes one termios through the pointer, which `termios` is; the descriptor is open.
    assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &mut termios) }, 0);
    termios.c_lflag
}

#[test]
fn top_lives_in_a_terminal_outlives_the_daemon_and_leaves_the_terminal_as_it_was() {
    let daemon = start();
    let (mut master, slave) = terminal(120, 40);
    let before = line_discipline(&slave);
    let mut top = top_in(&slave, &daemon).spawn().unwrap();
    let drawn = Drawn::on(&master);
    let see = |what: &str| drawn.see(what);
    see("streaming");
    see("no-such-device");
    assert_ne!(line_discipline(&slave), before, "keys come one by one");
    assert!(!drawn.text().contains("preprocess"));
    master.write_all(b"\x1b[B").unwrap();
    see("preprocess");
    master.write_all(b"s").unwrap();
    see("fps");
    master.write_all(b"?").unwrap();
    // Only cells that change are drawn: this word of "any key leaves this help" has no letter of the key line in its place.
    see("leaves");
    // This key leaves the help, and does nothing else.
    master.write_all(b"q").unwrap();
    drop(daemon);
    see("answer");
    master.write_all(b"q").unwrap();
    let status = top.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(line_discipline(&slave), before, "the terminal is as it was");
    see("\x1b[?1049l");
}

#[test]
fn top_assumes_80_x_24_on_a_terminal_that_does_not_know_its_size() {
    let daemon = start();
    let (mut master, slave) = terminal(0, 0);
    let mut top = top_in(&slave, &daemon).spawn().unwrap();
    let drawn = Drawn::on(&master);
    drawn.see("streaming");
    drawn.see("? help");
    // The key line is the last of 24 rows.
    drawn.see("\x1b[24;1H");
    assert!(!drawn.text().contains("\x1b[25;"), "{:?}", drawn.text());
    master.write_all(b"q").unwrap();
    assert_eq!(top.wait().unwrap().code(), Some(0));
}

#[test]
fn top_refuses_a_terminal_without_escape_codes_and_prints_once_there() {
    let daemon = start();
    for (name, reason) in [(Some("dumb"), "TERM is `dumb`"), (Some(""), "TERM is not set"), (None, "TERM is not set")] {
        let (master, slave) = terminal(120, 40);
        let drawn = Drawn::on(&master);
        let in_terminal = |options: &[&str]| {
            let mut top = top_in(&slave, &daemon);
            top.args(options).env_remove("TERM");
            name.map(|name| top.env("TERM", name));
            top.spawn().unwrap()
        };
        let mut refused = in_terminal(&[]);
        let refusal = format!("visiond: cannot draw on this terminal: {reason}; `visiond top --once` prints text");
        drawn.see(&refusal);
        assert_eq!(refused.wait().unwrap().code(), Some(6));
        assert_eq!(in_terminal(&["--once"]).wait().unwrap().code(), Some(0));
        drawn.see("streaming");
        assert!(!drawn.text().contains('\x1b'), "{:?}", drawn.text());
    }
}
