//! `visiond check` finds what `visiond run` refuses, in the same words, and changes nothing.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use visiond_tests::exports::classifier_of_bytes;
use visiond_tests::{Daemon, assert_no_panic, certificates, fill, root, run, skip, stderr, visiond};

/// Runs `visiond COMMAND c.toml` in `folder`.
fn in_folder(folder: &Path, command: &str) -> Output {
    let mut visiond = Command::new(visiond());
    visiond.args([command, "c.toml"]).current_dir(folder).stdin(Stdio::null());
    visiond.env_remove("ORT_DYLIB_PATH").env_remove("STATE_DIRECTORY").env_remove("CREDENTIALS_DIRECTORY");
    visiond.output().unwrap()
}

/// Everything that a command printed.
fn said(output: &Output) -> String {
    let said = stderr(output) + &String::from_utf8_lossy(&output.stdout);
    assert_no_panic(&said);
    said
}

const MODEL: &str = "[[model]]\nname = \"n\"\npath = \"{model}\"\n";
const PATTERN: &str = "[[camera]]\nname = \"p\"\n[camera.source]\ntype = \"pattern\"\nmax_frames = 3\n";

#[test]
fn a_library_named_without_a_folder_is_beside_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let library = format!("[engine]\nonnxruntime_library = \"{name}\"\n");
        let text = fill(&(library + MODEL + PATTERN), folder.path());
        fs::write(folder.path().join("c.toml"), text).unwrap();
    };
    // The system's loader would find this one.
    write("libc.so.6");
    for command in ["check", "run"] {
        let output = in_folder(folder.path(), command);
        assert_eq!(output.status.code(), Some(if command == "run" { 4 } else { 3 }));
        assert!(said(&output).contains("./libc.so.6: cannot open shared object file"), "{}", said(&output));
    }
    let Some(library) = std::env::var_os("ORT_DYLIB_PATH") else {
        skip("ORT_DYLIB_PATH names no library of ONNX Runtime");
        return;
    };
    std::os::unix::fs::symlink(library, folder.path().join("ort.so")).unwrap();
    write("ort.so");
    for command in ["check", "run"] {
        let output = in_folder(folder.path(), command);
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn the_effective_configuration_shows_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let write = |more: &str| {
        let text = r#"
[[camera]]
name = "gate"
source = { type = "video", url = "rtsp://admin:hush@192.0.2.1/1", input_args = ["-headers", "Authorization: Basic hush"] }
[[camera]]
name = "yard"
source = { type = "command", command = ["sh", "-c", "exit", "--password", "hush", "token=hush"] }
"#;
        let text = fill(&format!("{MODEL}{text}{more}"), folder.path());
        fs::write(folder.path().join("c.toml"), text).unwrap();
    };
    write("");
    let check = |option: &str| {
        let mut check = Command::new(visiond());
        said(&check.args(["check", "--file-only", option, "c.toml"]).current_dir(folder.path()).output().unwrap())
    };
    let shown = check("--effective");
    assert!(shown.contains(r#"url = "rtsp://***@192.0.2.1/1""#) && !shown.contains("hush"), "{shown}");
    // An invalid one is not printed, and neither is the password in the line of its error.
    write("[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://admin:hush@broker\"\n");
    for option in ["--effective", "--json"] {
        let shown = check(option);
        assert!(shown.contains("use `login`") && !shown.contains("hush"), "{shown}");
    }
}

/// Every file and folder below `folder` with its size and time.
fn contents(folder: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let facts = entry.metadata().unwrap();
        if facts.is_dir() {
            found.extend(contents(&entry.path()));
        }
        found.insert(entry.path(), (facts.len(), facts.modified().unwrap()));
    }
    found
}

#[test]
fn what_run_refuses_check_reports_in_the_same_words_at_its_line() {
    const ERROR: &str = "";
    const WARNING: &str = "warning: ";
    const MQTT: &str = "[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://localhost:9\"\n";
    const MQTTS: &str = "[[sink]]\ntype = \"mqtt\"\nurl = \"mqtts://localhost:9\"\n";
    const NATS: &str = "[[sink]]\ntype = \"nats\"\nurl = [\"nats://localhost:9\"]\n";
    const FILE: &str = "[[sink]]\ntype = \"file\"\n";
    const HTTP: &str = "[http]\nlisten = [\"127.0.0.1:0\"]\n";
    const PICTURES: &str = "[camera.annotate]\nevery = 1\n";
    const DURABLE: &str = "durable = true\nspool_directory = ";

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    certificates::make(folder.path(), "DNS:localhost");
    for (name, text) in [
        ("short", "hunter2\n"),
        ("good", "0123456789abcdef\n"),
        ("two", "user:pw\nmore\n"),
        ("file", "text"),
        ("text.pem", "text"),
    ] {
        fs::write(at(name), text).unwrap();
    }
    for name in ["folder", "locked"] {
        fs::create_dir(at(name)).unwrap();
    }
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = tcp.local_addr().unwrap();
    let _served = UnixListener::bind(at("served")).unwrap();
    let _datagrams = UnixDatagram::bind(at("datagrams")).unwrap();
    symlink("gone/d", at("link")).unwrap();
    let lock = File::create(at("locked/lock")).unwrap();
    lock.lock().unwrap();

    // The configuration after the model and the camera (from line 7 on), the line of the finding, its kind, the status of
    // `run`, the text.
    let in_use = format!("http: cannot listen on {busy}: Address already in use");
    let cases = [
        (format!("{HTTP}token = \"./short\"\n"), 11, ERROR, 3, "the token ./short must be one line of 16 to 256"),
        (format!("{HTTP}token = \"./gone\"\n"), 11, ERROR, 3, "http: cannot read the token ./gone: No such file"),
        (
            format!("{HTTP}token = \"web\"\n"),
            11,
            WARNING,
            3,
            "the token \"web\" is a systemd credential, and visiond got",
        ),
        (format!("[http]\nlisten = [\"127.0.0.1:0\", \"{busy}\"]\n"), 10, ERROR, 6, &*in_use),
        (
            "[http]\nlisten = [\"192.0.2.1:8790\"]\ntoken = \"./good\"\n".into(),
            10,
            ERROR,
            6,
            "no interface of this machine has this address",
        ),
        ("[http]\nlisten = [\"unix:file\"]\n".into(), 10, ERROR, 6, "http: file exists and is not a socket"),
        ("[http]\nlisten = [\"unix:served\"]\n".into(), 10, ERROR, 6, "http: served is served by another process"),
        (
            "[http]\nlisten = [\"unix:gone/h\"]\n".into(),
            10,
            ERROR,
            6,
            "http: cannot create the socket gone/h: No such file",
        ),
        (format!("{PICTURES}directory = \"file\"\n"), 11, ERROR, 0, "cannot write to file: File exists"),
        (format!("{PICTURES}directory = \"file/x\"\n"), 11, ERROR, 0, "cannot write to file/x: Not a directory"),
        (format!("{FILE}path = \"gone/d\"\n"), 11, ERROR, 0, "sink file: cannot write gone/d: No such file"),
        (format!("{FILE}path = \"link\"\n"), 11, ERROR, 0, "sink file: cannot write link: No such file"),
        (
            "[[sink]]\ntype = \"unix\"\npath = \"datagrams\"\n".into(),
            11,
            ERROR,
            6,
            "cannot check whether another process serves datagrams: Protocol wrong type",
        ),
        (format!("{FILE}path = \"folder\"\n"), 11, ERROR, 0, "sink file: cannot write folder: Is a directory"),
        (format!("{FILE}path = \"file/d\"\n"), 11, ERROR, 0, "sink file: cannot write file/d: Not a directory"),
        (
            "[[sink]]\ntype = \"unix\"\npath = \"file\"\n".into(),
            11,
            ERROR,
            6,
            "sink unix: file exists and is not a socket",
        ),
        (
            "[[sink]]\ntype = \"unix\"\npath = \"served\"\n".into(),
            11,
            ERROR,
            6,
            "sink unix: served is served by another",
        ),
        (
            "[[sink]]\ntype = \"unix\"\npath = \"gone/d\"\n".into(),
            11,
            ERROR,
            6,
            "cannot create the socket gone/d: No such",
        ),
        (
            format!("{MQTT}login = \"./two\"\n"),
            12,
            ERROR,
            6,
            "sink mqtt: the login ./two must be one line, `user:password`",
        ),
        (format!("{MQTT}login = \"./gone\"\n"), 12, ERROR, 6, "sink mqtt: cannot read the login ./gone: No such file"),
        (
            format!("{MQTT}login = \"mqtt\"\n"),
            12,
            WARNING,
            6,
            "the login \"mqtt\" is a systemd credential, and visiond got",
        ),
        (
            format!("{MQTT}durable = true\n"),
            12,
            WARNING,
            6,
            "sink mqtt: `durable` needs a folder, and $STATE_DIRECTORY",
        ),
        (format!("{MQTT}{DURABLE}\"file\"\n"), 13, ERROR, 0, "sink mqtt: cannot open the spool file: File exists"),
        (format!("{MQTT}{DURABLE}\"locked\"\n"), 13, ERROR, 0, "cannot open the spool locked: it is in use by another"),
        (format!("{MQTTS}ca = \"gone.pem\"\n"), 12, ERROR, 6, "sink mqtt: cannot read gone.pem: No such file"),
        (format!("{MQTTS}ca = \"text.pem\"\n"), 12, ERROR, 6, "text.pem has no certificate in PEM format"),
        (
            format!("{MQTTS}ca = \"ca.pem\"\ncertificate = \"device.pem\"\nkey = \"server.key\"\n"),
            14,
            ERROR,
            6,
            "device.pem and server.key do not belong together",
        ),
        (format!("{NATS}credentials = \"./two\"\n"), 12, ERROR, 6, "sink nats: ./two holds no NATS credentials"),
        (
            format!("{NATS}credentials = \"./gone\"\n"),
            12,
            ERROR,
            6,
            "sink nats: cannot read the credentials ./gone: No",
        ),
        (format!("{NATS}login = \"./two\"\n"), 12, ERROR, 6, "sink nats: the login ./two must be one line"),
        (format!("{NATS}ca = \"gone.pem\"\n"), 12, ERROR, 6, "sink nats: cannot read gone.pem: No such file"),
    ];
    let lines = fill(&format!("{MODEL}{PATTERN}"), folder.path()).lines().count();
    assert_eq!(lines, 8, "the numbers below count from here");
    for (more, line, kind, status, words) in &cases {
        fs::write(at("c.toml"), fill(&format!("{MODEL}{PATTERN}{more}"), folder.path())).unwrap();
        let before = contents(folder.path());
        let output = in_folder(folder.path(), "check");
        let found = said(&output);
        assert_eq!(contents(folder.path()), before, "check changed something with\n{more}");
        let valid = if *kind == ERROR { 3 } else { 0 };
        assert_eq!(output.status.code(), Some(valid), "{more}\n{found}");
        let place = format!("c.toml:{line}:");
        let at_place =
            |said: &&str| said.starts_with(&place) && said.contains(&format!(": {kind}")) && said.contains(words);
        assert_eq!(found.lines().filter(at_place).count(), 1, "{place} {kind}{words}\n{found}");

        let output = in_folder(folder.path(), "run");
        let refused = said(&output);
        assert_eq!(output.status.code(), Some(*status), "{more}\n{refused}");
        // Missing files of a sink or image folders lose messages, but do not prevent the start.
        let reason = words.rsplit_once(": ").map_or(*words, |(_, reason)| reason);
        let goes_on = |line: &str| line.contains("cannot be written: ") && line.contains(reason);
        let found = refused.lines().any(|line| line.contains(words) || *status == 0 && goes_on(line));
        assert!(found, "{words}\n{refused}");
    }
}

#[test]
fn a_source_that_run_gives_up_check_reports_in_the_same_words_at_its_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text"), "no program").unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    for (source, words) in [
        ("type = \"video\"\nurl = \"gone.mp4\"", "cannot open the video gone.mp4: there is no such file"),
        (
            "type = \"video\"\nurl = \"file:///nowhere/gone.mp4\"",
            "cannot open the video file:///nowhere/gone.mp4: there is no such file",
        ),
        ("type = \"video\"\nurl = \"empty\"", "cannot open the video empty: it is a folder; name a file in it"),
        (
            "type = \"video\"\nurl = \"text\"\n[ffmpeg]\nprogram = \"no/ffmpeg\"",
            "the program no/ffprobe, which reads videos, is missing",
        ),
        ("type = \"video\"\nurl = \"rtsp://192.0.2.1/\"\nlogin = \"./text\"", "the login ./text must be one line"),
        ("type = \"command\"\ncommand = [\"no-such-program\"]", "cannot start no-such-program: no such program"),
        ("type = \"command\"\ncommand = [\"./text\"]", "cannot start ./text: this user may not execute it"),
        ("type = \"images\"\npath = \"gone\"", "cannot read images from gone: no such file or folder"),
        ("type = \"images\"\npath = \"empty\"", "there is no image in the folder empty"),
        ("type = \"images\"\npath = \"text\"", "cannot read the image text: not a supported image"),
    ] {
        let camera = format!("[[camera]]\nname = \"c\"\n[camera.source]\n{source}\n");
        let text = fill(&format!("{MODEL}{camera}[[sink]]\ntype = \"stdout\"\n"), folder.path());
        fs::write(folder.path().join("c.toml"), text).unwrap();
        let (checked, ran) = (in_folder(folder.path(), "check"), in_folder(folder.path(), "run"));
        assert_eq!((checked.status.code(), ran.status.code()), (Some(3), Some(5)), "{}{}", said(&checked), said(&ran));
        let at_source = |line: &&str| line.starts_with("c.toml:") && line.contains(words);
        assert_eq!(said(&checked).lines().filter(at_source).count(), 1, "{words}\n{}", said(&checked));
        assert!(said(&ran).contains(words), "{words}\n{}", said(&ran));
    }
}

#[test]
fn a_video_that_is_no_plain_file_is_left_to_ffmpeg() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("seq")).unwrap();
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-f", "lavfi", "-i", "testsrc=size=64x48:rate=5:duration=1", "seq/f%03d.png"]);
    assert!(ffmpeg.current_dir(folder.path()).status().unwrap().success());
    for source in [
        r#"url = "seq/f%03d.png""#,
        r#"url = "file:seq/f001.png""#,
        r#"url = "seq/*.png", input_args = ["-f", "image2", "-pattern_type", "glob"]"#,
        r#"url = "testsrc=duration=1:size=64x48:rate=5", input_args = ["-f", "lavfi"]"#,
        r#"url = "nullsrc", input_args = ["-f", "lavfi"], max_frames = 3"#,
    ] {
        let camera =
            format!("[[camera]]\nname = \"c\"\nsource = {{ type = \"video\", pace = \"fastest\", {source} }}\n");
        let text = fill(&format!("{MODEL}{camera}[[sink]]\ntype = \"stdout\"\n"), folder.path());
        fs::write(folder.path().join("c.toml"), text).unwrap();
        let (checked, ran) = (in_folder(folder.path(), "check"), in_folder(folder.path(), "run"));
        assert_eq!((checked.status.code(), ran.status.code()), (Some(0), Some(0)), "{}{}", said(&checked), said(&ran));
        assert!(said(&checked).starts_with("c.toml: no error, 1 model"), "{source}: {}", said(&checked));
    }
}

#[test]
fn a_file_that_only_another_user_may_read_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let private = folder.path().join("private");
    fs::create_dir(&private).unwrap();
    let program = "source = { type = \"command\", command = [\"./private/grab\"] }";
    let video = "source = { type = \"video\", url = \"private/v.mp4\" }\n[ffmpeg]\nprogram = \"private/ffmpeg\"";
    let picture = "source = { type = \"images\", path = \"v.jpg\" }";
    let text = format!(
        "[[model]]\nname = \"n\"\npath = \"private/n.onnx\"\n[[camera]]\nname = \"a\"\n{program}\n\
         [[camera]]\nname = \"b\"\n{video}\n[[camera]]\nname = \"c\"\n{picture}\n\
         annotate = {{ every = 1, directory = \"unlisted\" }}\n[[sink]]\ntype = \"stdout\"\n"
    );
    fs::write(folder.path().join("c.toml"), text).unwrap();
    fs::write(folder.path().join("v.jpg"), "").unwrap();
    fs::create_dir(folder.path().join("unlisted")).unwrap();
    for (name, mode) in [("private", 0), ("v.jpg", 0), ("unlisted", 0o300)] {
        fs::set_permissions(folder.path().join(name), Permissions::from_mode(mode)).unwrap();
    }
    // SAFETY: geteuid(2) has no conditions and cannot fail.
    let mut check = if unsafe { libc::geteuid() } == 0 {
        // Without these capabilities, file modes also apply to root.
        let mut check = Command::new("setpriv");
        check.args(["--bounding-set", "-dac_override,-dac_read_search"]).arg(visiond());
        check
    } else {
        Command::new(visiond())
    };
    let output = check.args(["check", "c.toml"]).current_dir(folder.path()).output().unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    for words in [
        "model n: cannot read the model private/n.onnx: Permission denied",
        "cannot start ./private/grab: this user may not execute it",
        "cannot open the video private/v.mp4: Permission denied",
        "cannot start private/ffprobe: Permission denied",
        "cannot read the image v.jpg: Permission denied",
        "annotated images of camera c: cannot write to unlisted: Permission denied",
    ] {
        let found = said(&output);
        let line = found.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}\n{found}"));
        assert!(line.contains(": warning: "), "{line}");
        assert!(line.ends_with("; visiond.service may not have this problem"), "{line}");
    }
}

#[test]
fn what_the_running_daemon_uses_is_no_error_of_its_configuration() {
    let sinks = "[[sink]]\ntype = \"unix\"\npath = \"{dir}/d.sock\"\n[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://localhost:9\"\n\
                 durable = true\nspool_directory = \"{dir}/spool\"\n[http]\nlisten = [\"unix:{dir}/h.sock\"]\n";
    let camera = PATTERN.replace("max_frames = 3\n", "");
    let mut daemon = Daemon::start(&format!("{MODEL}{camera}{sinks}"));
    daemon.wait_for_log("sink mqtt: not connected");
    let config = daemon.path("visiond.toml");
    let output = run(["check".as_ref(), config.as_os_str()]);
    let found = said(&output);
    assert!(output.status.success(), "{found}");
    // No remedy, because there is no program to stop.
    let user = format!(" is in use: process {}, visiond, runs this configuration", daemon.pid());
    for words in ["h.sock is in use", "d.sock is in use", "spool/lock is in use"] {
        let line = found.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}\n{found}"));
        assert!(line.contains(": warning: ") && line.ends_with(&user), "{line}");
    }
    // Another configuration cannot use them, and `run` would refuse it.
    let other = daemon.path("other.toml");
    fs::copy(config, &other).unwrap();
    for command in ["check", "run"] {
        let output = run([command.as_ref(), other.as_os_str()]);
        assert!(!output.status.success(), "{command}: {}", said(&output));
    }
    assert_eq!(daemon.terminate().status.code(), Some(0));
}

#[test]
fn without_a_sink_check_warns_as_run_does() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{MODEL}{PATTERN}[camera.annotate]\nevery = 1\ndirectory = \"pictures\"\n");
    fs::write(folder.path().join("c.toml"), fill(&text, folder.path())).unwrap();
    for command in ["check", "run"] {
        let output = in_folder(folder.path(), command);
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("no [[sink]] is configured"), "{command}: {}", said(&output));
    }
}

#[test]
fn with_the_shipped_configuration_nothing_would_run() {
    let config = root().join("config/visiond.toml");
    for (command, status) in [("check", 0), ("run", 3)] {
        let output = run([command.as_ref(), config.as_os_str()]);
        assert_eq!(output.status.code(), Some(status));
        let words = "no camera to run: add a [[camera]], or set `enabled` of one to true";
        assert!(said(&output).contains(words), "{command}: {}", said(&output));
    }
}

#[test]
fn a_label_to_track_that_the_model_does_not_have_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let warnings = |track: &str| {
        let text = format!("{MODEL}{PATTERN}[camera.track]\n{track}");
        fs::write(folder.path().join("c.toml"), fill(&text, folder.path())).unwrap();
        let output = in_folder(folder.path(), "check");
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    let said = warnings("classes = [\"Person\", \"car\"]\n");
    assert!(said.contains("the camera's model does not have the class `Person`: did you mean `person`?"), "{said}");
    assert_eq!(said.matches("the camera's model").count(), 1, "{said}");
    assert!(!warnings("").contains("the camera's model"));
}

#[test]
fn a_model_without_objects_has_nothing_to_track() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.onnx"), classifier_of_bytes()).unwrap();
    let card =
        "[input]\npreprocess = \"torchvision\"\n[head]\nfamily = \"classifier\"\n[classes]\nnames = [\"a\", \"b\"]\n";
    fs::write(folder.path().join("net.toml"), card).unwrap();
    let text = format!("[[model]]\nname = \"n\"\npath = \"net.onnx\"\n{PATTERN}[camera.track]\n");
    fs::write(folder.path().join("c.toml"), text).unwrap();
    let said = said(&in_folder(folder.path(), "check"));
    assert!(said.contains("model n finds no objects, so there is nothing to track: remove this table"), "{said}");
}

#[test]
fn a_label_to_count_that_no_model_has_is_a_warning_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let sink =
        |labels: &str| format!("[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1\"\ncount_labels = [{labels}]\n");
    for (labels, words) in
        [("\"Person\", \"car\"", Some("no model has the class `Person`: did you mean `person`?")), ("\"car\"", None)]
    {
        fs::write(folder.path().join("c.toml"), fill(&format!("{MODEL}{PATTERN}{}", sink(labels)), folder.path()))
            .unwrap();
        let output = in_folder(folder.path(), "check");
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(
            said(&output).matches("no model has the class").count(),
            usize::from(words.is_some()),
            "{}",
            said(&output)
        );
        assert!(words.is_none_or(|words| said(&output).contains(words)), "{}", said(&output));
    }
}
