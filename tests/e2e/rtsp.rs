//! Network cameras, played by `tests/rtsp/server.py`: detections, logins, a camera that goes away and returns, and hostile
//! ones.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use visiond_tests::port::Port;
use visiond_tests::{Daemon, root, run, skip, stderr, video};

/// By how much the memory may grow with nine hostile cameras, which send more than 1 GB. Three of them play, at some 15 MiB each.
const MOST_GROWN: u64 = 200 << 20;

/// A server; killed when dropped.
pub struct Server {
    child: Child,
    pub port: u16,
    said: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn start(file: &Path, args: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command.arg(root().join("tests/rtsp/server.py")).arg(file).args(args).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.next().unwrap().strip_prefix("port ").unwrap().parse().unwrap();
        let said = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&said);
        std::thread::spawn(move || lines.for_each(|line| kept.lock().unwrap().push(line)));
        Self { child, port, said }
    }

    pub fn heard(&self, line: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|said| *said == line).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a stream in Annex B of the sample video's first 40 frames, with B-frames.
fn stream(path: &Path, codec: &[&str]) {
    let args =
        ["-v", "error", "-frames:v", "40", "-vf", "scale=384:288", "-pix_fmt", "yuv420p", "-g", "10", "-bf", "2"];
    let made = Command::new("ffmpeg").arg("-i").arg(video()).args(args).args(codec).arg(path).status();
    assert!(made.unwrap().success());
}

const H264: [&str; 4] = ["-c:v", "libx264", "-f", "h264"];

fn config(model: &str, camera: &str) -> String {
    format!(
        "[engine]\nbackend = \"rten\"\nthreads = 1\n[[model]]\nname = \"objects\"\npath = \"{model}\"\n\
         [[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n{camera}"
    )
}

fn tiny() -> String {
    root().join("tests/vm/tiny.onnx").display().to_string()
}

/// The detections of each frame, by its number.
fn detections(messages: &[Value]) -> BTreeMap<u64, Value> {
    messages.iter().map(|message| (message["sequence"].as_u64().unwrap(), message["detections"].clone())).collect()
}

#[test]
fn a_camera_gives_the_detections_of_its_video_and_its_login_stays_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("street.h264");
    stream(&file, &H264);
    let film = format!(
        "[[camera]]\nname = \"gate\"\nsource = {{ type = \"video\", url = \"{}\", pace = \"fastest\" }}\n",
        file.display()
    );
    let expected = Daemon::start(&config("{model}", &film)).finish();
    let expected = detections(&expected.daemon.messages("out.jsonl"));
    assert_eq!(expected.len(), 40);

    // Slow enough that a busy machine has its messages before the stream ends. The word occurs in no other test's or run's
    // arguments.
    let password = format!("swordfish-{}", std::process::id());
    let server = Server::start(&file, &["--fps", "0.5", "--user", "gate", "--password", &password]);
    let login = folder.path().join("login");
    fs::write(&login, "gate:w0rdless\n").unwrap();
    let camera = format!(
        "[log]\nlevel = \"debug\"\n[[camera]]\nname = \"gate\"\n\
         source = {{ type = \"rtsp\", url = \"rtsp://127.0.0.1:{}/live\", login = \"{}\", timeout = \"5min\" }}\n",
        server.port,
        login.display()
    );
    let mut daemon = Daemon::start(&config("{model}", &camera));
    daemon.wait_for_log("the camera refuses the user or password (401): correct `login`");
    fs::write(&login, format!("gate:{password}\n")).unwrap();
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") >= 2);
    let command_lines = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect::<Vec<_>>()
    };
    // The server has it as an argument. No other program may.
    let with_password: Vec<_> = command_lines().into_iter().filter(|line| line.contains(&password)).collect();
    assert!(with_password.iter().all(|line| line.contains("server.py")), "{with_password:?}");
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    for secret in ["swordfish", "w0rdless"] {
        assert!(!ended.log.contains(secret), "{}", ended.log);
    }
    assert_eq!(server.heard("PLAY login"), 1, "{}", ended.log);
    visiond_tests::wait_until("the end of the session", || server.heard("TEARDOWN login") == 1);
    for (sequence, found) in detections(&ended.daemon.messages("out.jsonl")) {
        assert_eq!(Some(&found), expected.get(&sequence), "frame {sequence}");
    }
}

#[test]
fn a_camera_of_jpeg_gives_the_detections_of_the_same_pictures_and_needs_no_ffmpeg() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().join("pictures");
    fs::create_dir(&pictures).unwrap();
    let args = ["-v", "error", "-frames:v", "12", "-vf", "scale=384:288", "-pix_fmt", "yuvj420p", "-q:v", "3"];
    let mut made = Command::new("ffmpeg");
    made.arg("-i").arg(video()).args(args).args(["-c:v", "mjpeg", "-huffman", "default"]);
    assert!(made.arg(pictures.join("%03d.jpg")).status().unwrap().success());
    let files = (1..=12).map(|n| fs::read(pictures.join(format!("{n:03}.jpg"))).unwrap());
    let file = folder.path().join("street.mjpeg");
    fs::write(&file, files.collect::<Vec<_>>().concat()).unwrap();
    let still =
        format!("[[camera]]\nname = \"gate\"\nsource = {{ type = \"images\", path = \"{}\" }}\n", pictures.display());
    let expected = Daemon::start(&config("{model}", &still)).finish();
    let expected = detections(&expected.daemon.messages("out.jsonl"));
    assert_eq!(expected.len(), 12);
    assert!(expected.values().any(|found| found.as_array().is_some_and(|found| !found.is_empty())));

    let server = Server::start(&file, &["--fps", "2", "--jpeg-q", "128", "--at-end", "loop"]);
    let camera = format!(
        "[[camera]]\nname = \"gate\"\nsource = {{ type = \"rtsp\", url = \"rtsp://127.0.0.1:{}/live\", timeout = \"5min\" }}\n\
         [ffmpeg]\nprogram = \"/nonexistent/ffmpeg\"\n",
        server.port
    );
    let mut daemon = Daemon::start(&config("{model}", &camera));
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") >= 5);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!ended.log.contains("ffmpeg"), "{}", ended.log);
    for (sequence, found) in detections(&ended.daemon.messages("out.jsonl")) {
        assert_eq!(Some(&found), expected.get(&(sequence % 12)), "frame {sequence}");
    }
    let url = format!("rtsp://127.0.0.1:{}/live", server.port);
    let told = run(["probe", "--json", "--rtsp", &url, "--watch", "2s"]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap_or_else(|_| panic!("{}", stderr(&told)));
    let offered = &told["streams"][0];
    assert_eq!((&offered["encoding"], &offered["played"]), (&json!("jpeg"), &json!(true)), "{told}");
}

#[test]
fn a_camera_that_comes_back_is_played_again_and_every_restart_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("street.h264");
    stream(&file, &H264);
    let port = Port::reserve();
    let number = port.number.to_string();
    let args = ["--port", &number, "--fps", "20", "--at-end", "loop"];
    let server = Server::start(&file, &args);
    let camera = format!(
        "[[camera]]\nname = \"gate\"\nsource = {{ type = \"rtsp\", url = \"rtsp://127.0.0.1:{number}/live\" }}\n"
    );
    let mut daemon = Daemon::start(&config(&tiny(), &camera));
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") >= 5);
    drop(server);
    daemon.wait_for_log("cannot play rtsp://");
    let before = daemon.count("out.jsonl");
    let server = Server::start(&file, &args);
    daemon.wait_until("more messages", |daemon| daemon.count("out.jsonl") >= before + 5);
    assert_eq!(server.heard("PLAY"), 1);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    // Each failure is one attempt of the camera's thread to open the source.
    let line = ended.log.lines().find(|line| line.contains("failed ")).expect("a summary");
    let number = |word: &str| -> u64 {
        let behind = line.split_once(word).expect("a count").1;
        behind.split(' ').next().unwrap().parse().unwrap()
    };
    assert!(number("failed ") >= 1 && number("failed ") == number("reopened "), "{line}");
}

#[test]
fn a_camera_that_gstreamer_decodes_gives_the_detections_of_its_video() {
    let folder = tempfile::tempdir().unwrap();
    let has = |element: &&str| {
        let inspect = Command::new("gst-inspect-1.0").arg(element).output();
        inspect.is_ok_and(|output| output.status.success())
    };
    if let Some(missing) = ["h264parse", "avdec_h264", "videoconvert", "gdppay"].iter().find(|element| !has(element)) {
        skip(&format!("GStreamer or its element {missing} is missing"));
        return;
    }
    // The daemon finds it before the real one, which it runs with software elements in place of NVIDIA's.
    let program = folder.path().join("gst-launch-1.0");
    let script = "#!/bin/sh\necho NvMMLiteOpen\nfor argument; do\n  shift\n  case $argument in\n    \
                  nvv4l2decoder) set -- \"$@\" avdec_h264 max-threads=1 ;;\n    disable-dpb=true) ;;\n    \
                  nvvidconv) set -- \"$@\" videoconvert ;;\n    *) set -- \"$@\" \"$argument\" ;;\n  esac\ndone\n\
                  PATH=${PATH#*:} exec gst-launch-1.0 \"$@\"\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let file = folder.path().join("street.h264");
    stream(&file, &H264);
    let film = format!(
        "[[camera]]\nname = \"gate\"\nsource = {{ type = \"video\", url = \"{}\", pace = \"fastest\" }}\n",
        file.display()
    );
    let expected = detections(&Daemon::start(&config("{model}", &film)).finish().daemon.messages("out.jsonl"));
    assert_eq!(expected.len(), 40);
    let server = Server::start(&file, &["--fps", "10", "--at-end", "loop"]);
    let camera = format!(
        "[[camera]]\nname = \"gate\"\nsource = {{ type = \"rtsp\", url = \"rtsp://127.0.0.1:{}/live\", timeout = \"5min\", \
         decoder = \"gstreamer\" }}\n",
        server.port
    );
    let mut daemon = Daemon::start_with(&config("{model}", &camera), |command| {
        command
            .env("PATH", &path)
            .env("DISPLAY", ":77")
            .env("XDG_CACHE_HOME", folder.path())
            .env_remove("GST_REGISTRY");
    });
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") >= 5);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.contains("h264 yuv420p, 384x288, by GStreamer as nv12"), "{}", ended.log);
    assert!(folder.path().join("visiond/gstreamer.bin").exists(), "the list of plugins is kept");
    // While GStreamer starts on a busy machine, the oldest frames are dropped: the first one may be any of the film.
    for (sequence, found) in detections(&ended.daemon.messages("out.jsonl")) {
        assert!(expected.values().any(|wanted| *wanted == found), "frame {sequence}: {found}");
    }
}

/// The number of messages of a camera.
fn of_camera(daemon: &Daemon, name: &str) -> usize {
    daemon.messages("out.jsonl").iter().filter(|message| message["camera"] == name).count()
}

#[test]
fn hostile_servers_cost_little_memory_and_no_other_camera() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("street.h264");
    stream(&file, &H264);
    let tricks = ["headers", "line", "body", "sdp", "text", "endless", "lengths", "noise", "backwards"];
    // Two keep playing, and have minutes for a frame on a busy machine; the others deliver nothing.
    let is_played = |trick: &str| ["lengths", "backwards"].contains(&trick);
    let servers = tricks.map(|trick| {
        let end = if is_played(trick) { "loop" } else { "hold" };
        Server::start(&file, &["--trick", trick, "--most-sent", "200000000", "--at-end", end])
    });
    let steady = "[[camera]]\nname = \"door\"\nsource = { type = \"pattern\", width = 128, height = 64, fps = 20 }\n";
    let mut daemon = Daemon::start(&config(&tiny(), steady));
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") >= 20);
    let before = daemon.memory_kib("VmHWM") << 10;
    let hostile: String = tricks
        .iter()
        .zip(&servers)
        .map(|(trick, server)| {
            let url = format!("rtsp://127.0.0.1:{}/live", server.port);
            let timeout = if is_played(trick) { "5min" } else { "2 s" };
            format!(
                "[[camera]]\nname = \"{trick}\"\nsource = {{ type = \"rtsp\", url = \"{url}\", timeout = \"{timeout}\" }}\n"
            )
        })
        .collect();
    daemon.reconfigure(&config(&tiny(), &format!("{steady}{hostile}")));
    daemon.wait_until("several connections", |daemon| {
        let several = |trick: &str, server: &Server| match trick {
            // It keeps playing, with damaged frames in between.
            "lengths" | "backwards" => of_camera(daemon, trick) >= 3,
            "endless" => server.heard("flooded") >= 1 && server.heard("connected") >= 2,
            "noise" => server.heard("connected") >= 1,
            _ => server.heard("connected") >= 3,
        };
        tricks.iter().zip(&servers).all(|(trick, server)| several(trick, server))
    });
    let grown = (daemon.memory_kib("VmHWM") << 10).saturating_sub(before);
    assert!(grown < MOST_GROWN, "{} MiB more", grown >> 20);
    for (trick, server) in tricks.iter().zip(&servers) {
        assert!(*trick == "endless" || server.heard("flooded") == 0, "{trick}: all was read");
    }
    let count = of_camera(&daemon, "door");
    daemon.wait_until("further messages", |daemon| of_camera(daemon, "door") >= count + 20);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    println!("{} MiB more for {} hostile servers", grown >> 20, tricks.len());
}

#[test]
fn probe_tells_what_a_camera_offers_and_how_its_video_comes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("street.h264");
    stream(&file, &H264);
    let server = Server::start(
        &file,
        &["--user", "gate", "--password", "swordfish", "--sets", "sdp", "--fps", "20", "--at-end", "loop"],
    );
    let url = format!("rtsp://127.0.0.1:{}/live", server.port);
    let login = folder.path().join("login");
    fs::write(&login, "gate:swordfish\n").unwrap();
    let login = login.display().to_string();
    let told = run(["probe", "--json", "--rtsp", &url, "--login", &login, "--watch", "10s"]);
    assert!(told.status.success(), "{}", stderr(&told));
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["url"], url.as_str());
    let expected = json!([{
        "media": "video", "encoding": "h264", "width": 384, "height": 288, "readable": true, "played": true,
    }]);
    assert_eq!(told["streams"], expected);
    // By the camera's clock, so that this machine's speed does not matter.
    let watched = &told["watched"];
    assert_eq!((&watched["fps"], &watched["key_frame_interval_s"]), (&json!(20.0), &json!(0.5)), "{watched}");
    assert_eq!((&watched["damaged"], &watched["times"]), (&json!(0), &json!("sender reports")));
    visiond_tests::wait_until("the end of the session", || server.heard("TEARDOWN login") == 1);
    // The proposed configuration is valid and has no password.
    let toml = told["toml"].as_str().unwrap();
    assert!(!toml.contains("swordfish"));
    let proposed = folder.path().join("visiond.toml");
    let toml = toml.replace("/etc/visiond/camera.login", &login);
    fs::write(&proposed, format!("[[model]]\nname = \"m\"\npath = \"{}\"\n{toml}", tiny())).unwrap();
    let checked = run(["check", &proposed.display().to_string()]);
    assert!(checked.status.success(), "{}", stderr(&checked));

    let refused = run(["probe", "--rtsp", &url]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(
        stderr(&refused).contains("requires a user and password (401): set `login` (for this command: --login FILE)"),
        "{}",
        stderr(&refused)
    );
    let vp8 = Server::start(&file, &["--trick", "vp8"]);
    let other = run(["probe", "--rtsp", &format!("rtsp://127.0.0.1:{}/live", vp8.port)]);
    assert_eq!(other.status.code(), Some(5));
    assert!(stderr(&other).contains("the camera offers video/vp8"), "{}", stderr(&other));
    assert_eq!(run(["probe", "--rtsp", "http://camera/"]).status.code(), Some(2));
    // It plays, but sends nothing.
    let silent = Server::start(&file, &["--trick", "silent"]);
    let nothing = run(["probe", "--rtsp", &format!("rtsp://127.0.0.1:{}/live", silent.port), "--watch", "1s"]);
    assert_eq!(nothing.status.code(), Some(5));
    assert!(stderr(&nothing).contains("no video from rtsp://127.0.0.1"), "{}", stderr(&nothing));
    // It ends while visiond reads it; text in the URL that looks like a secret is not shown.
    let short = Server::start(&file, &["--fps", "40", "--at-end", "close"]);
    let url = format!("rtsp://127.0.0.1:{}/live?token=swordfish", short.port);
    let ended = run(["probe", "--rtsp", &url, "--watch", "5min"]);
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && !told.contains("swordfish"), "{told}");
    assert!(told.contains("40 frames in 0.98 s, 40 a second"), "{told}");
    assert!(told.contains("ended        cannot play rtsp://") && told.contains("the video ended while"), "{told}");
    assert!(told.contains("# replace *** by what is there"), "{told}");
}
