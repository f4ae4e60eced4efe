//! SIGHUP: a new configuration takes effect while the rest of the daemon keeps running, or it is rejected with a reason.

use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use visiond_tests::{Daemon, Finished, root, wait_until_or_show};

/// The tiny model is fast, so that only a reload could lose a frame.
const HEAD: &str = r#"
[engine]
backend = "rten"
threads = 1

[status]
log_interval = "0s"

[[model]]
name = "tiny"
path = "{dir}/tiny.onnx"
"#;

/// A camera that loses nothing: its program waits while a frame is in the mailbox.
const STAYS: &str = r#"
[[camera]]
name = "stays"
model = "tiny"
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

fn pattern(name: &str, fps: u32) -> String {
    let source = format!("{{ type = \"pattern\", width = 128, height = 64, fps = {fps}.0 }}");
    format!("[[camera]]\nname = \"{name}\"\nmodel = \"tiny\"\nsource = {source}\n")
}

/// A daemon, and a stand-in for systemd.
struct Managed {
    daemon: Daemon,
    /// Every datagram, and how many of them were read.
    said: Arc<Mutex<Vec<String>>>,
    heard: usize,
    _folder: tempfile::TempDir,
}

impl Managed {
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let listener = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(n) = socket.recv(&mut buffer) {
                listener.lock().unwrap().push(String::from_utf8_lossy(&buffer[..n]).into_owned());
            }
        });
        let daemon = Daemon::start_with(config, |command| {
            command.env("NOTIFY_SOCKET", &path);
            // Beside the configuration, so that a test may replace it.
            let folder = PathBuf::from(command.get_args().last().unwrap()).parent().unwrap().to_owned();
            for name in ["tiny.onnx", "tiny.toml"] {
                std::fs::copy(root().join("tests/vm").join(name), folder.join(name)).unwrap();
            }
        });
        let mut this = Self { daemon, said, heard: 0, _folder: folder };
        this.hear("READY=1");
        this
    }

    /// Waits until systemd gets a text with this start; returns it.
    fn hear(&mut self, beginning: &str) -> String {
        let (said, log) = (&self.said, || self.said.lock().unwrap().join("\n"));
        let at = || {
            let said = said.lock().unwrap();
            said[self.heard..].iter().position(|said| said.starts_with(beginning))
        };
        wait_until_or_show(&format!("systemd to hear {beginning}"), || at().is_some(), log);
        self.heard += at().unwrap() + 1;
        self.said.lock().unwrap()[self.heard - 1].clone()
    }

    /// Reloads and waits for its end; returns the status that systemd gets then.
    fn reload(&mut self, config: &str) -> String {
        self.daemon.reconfigure(config);
        self.end_of_reload()
    }

    /// Waits for the end of a reload; returns the first status after it.
    fn end_of_reload(&mut self) -> String {
        let reloading = self.hear("RELOADING=1");
        assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
        self.hear("READY=1");
        self.hear("STATUS=")
    }

    fn messages(&self, camera: &str) -> Vec<Value> {
        let messages = self.daemon.messages("out.jsonl");
        messages.into_iter().filter(|message| message["camera"] == camera).collect()
    }

    /// Waits for `count` more messages of a camera.
    fn see(&mut self, camera: &str, more: usize) {
        let of = |daemon: &Daemon| daemon.messages("out.jsonl").iter().filter(|m| m["camera"] == camera).count();
        let before = of(&self.daemon);
        self.daemon.wait_until("more messages", |daemon| of(daemon) >= before + more);
    }

    fn end(self) -> Finished {
        let ended = self.daemon.terminate();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        ended
    }

    /// Returns the programs that it runs.
    fn children(&self) -> Vec<i32> {
        let pid = self.daemon.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let of_threads = std::fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .flatten()
            .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        let all = of_threads.chain([children]).collect::<Vec<_>>().join(" ");
        let mut pids: Vec<_> = all.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// Reads a daemon's threads, descriptors and resident kilobytes in `/proc`.
fn size(daemon: &Daemon) -> (usize, usize, u64) {
    let count = |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", daemon.pid())).unwrap().count();
    (count("task"), count("fd"), daemon.memory_kib("VmRSS"))
}

fn sequences(messages: &[Value]) -> Vec<u64> {
    messages.iter().map(|message| message["sequence"].as_u64().unwrap()).collect()
}

/// Asserts that every frame from the first on is there once, in order.
fn assert_whole(messages: &[Value]) {
    let sequences = sequences(messages);
    assert_eq!(sequences, (0..sequences.len() as u64).collect::<Vec<_>>());
}

#[test]
fn unchanged_parts_keep_running_while_everything_else_changes() {
    let socket = "[[sink]]\ntype = \"unix\"\npath = \"{dir}/d.sock\"\ncameras = [\"stays\"]\nqueue = 1000\n";
    let mut managed = Managed::start(&format!("{HEAD}{STAYS}{socket}{}", pattern("other", 50)));
    let reader = UnixStream::connect(managed.daemon.path("d.sock")).unwrap();
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(reader).lines().map_while(Result::ok);
        lines.map(|line| serde_json::from_str::<Value>(&line).unwrap()).collect::<Vec<_>>()
    });
    // By then its program runs, and what ends the program.
    managed.see("stays", 1);
    let children = managed.children();
    assert_eq!(children.len(), 2, "its program, and what ends that should visiond be killed");
    for round in 0..20 {
        let other = pattern("other", 50 + round % 4);
        let more = match round % 5 {
            0 => String::new(),
            1 => pattern("third", 20),
            2 => format!(
                "{}[camera.annotate]\ndirectory = \"{{dir}}/pictures\"\nevery = 1\nkeep = 5\n",
                pattern("third", 20)
            ),
            3 => "[[sink]]\nname = \"more\"\ntype = \"file\"\npath = \"{dir}/more.jsonl\"\n".to_owned(),
            _ => "[log]\nlevel = \"debug\"\n".to_owned(),
        };
        let socket = socket.replace("1000", &format!("{}", 1000 + round));
        let status = managed.reload(&format!("{HEAD}{STAYS}{socket}{other}{more}"));
        assert!(!status.contains("rejected"), "{status}");
        assert_eq!(status.contains("third"), matches!(round % 5, 1 | 2), "{status}");
        managed.see("stays", 5);
        managed.see("other", 1);
    }
    assert_eq!(managed.children(), children, "its program is the same");
    let ended = managed.end();
    let messages = ended.daemon.messages("out.jsonl");
    let of = |camera: &str| messages.iter().filter(|m| m["camera"] == camera).cloned().collect::<Vec<_>>();
    assert_whole(&of("stays"));
    let other = sequences(&of("other"));
    assert!(other.windows(2).all(|pair| pair[0] < pair[1]), "numbers go on: {other:?}");
    assert!(std::fs::read_dir(ended.daemon.path("pictures")).unwrap().count() > 0);
    assert!(ended.daemon.count("more.jsonl") > 5);
    let heard = sequences(&reader.join().unwrap());
    assert!(
        heard.windows(2).all(|pair| pair[0] + 1 == pair[1]) && heard.len() >= 100,
        "the reader missed none: {heard:?}"
    );
    assert_eq!(ended.log.matches("camera stays: ").count(), 2, "opened once, summed up once: {}", ended.log);
}

#[test]
fn a_second_model_comes_and_goes_while_other_cameras_lose_no_frame_and_tracks_go_on() {
    // The model finds the same eight boxes in every frame. Few frames: each wait below reads all messages so far.
    let stays = STAYS.replace("sleep 0.01", "sleep 0.05");
    let (camera, sink) = stays.split_once("[[sink]]").unwrap();
    let changes = camera.replace("\"stays\"", "\"changes\"");
    let changes = |models: &str| changes.replace("model = \"tiny\"", &format!("models = {models}\ntrack = {{}}"));
    let two = "[[model]]\nname = \"two\"\npath = \"{dir}/tiny.onnx\"\n";
    let config = |models: &str| format!("{HEAD}{two}{camera}{}[[sink]]{sink}", changes(models));
    let mut managed = Managed::start(&config("[\"tiny\"]"));
    managed.see("stays", 1);
    let of = |managed: &Managed, model: &str| {
        let messages = managed.messages("changes").into_iter();
        messages.filter(|message| message["model"]["name"] == model).collect::<Vec<_>>()
    };
    // `VISIOND_RELOADS=200` makes it a longer run.
    let reloads = std::env::var("VISIOND_RELOADS").map_or(20, |reloads| reloads.parse().unwrap());
    for round in 0..reloads {
        let models = ["[\"tiny\", \"two\"]", "[\"tiny\"]"][round % 2];
        let before = of(&managed, "two").len();
        let status = managed.reload(&config(models));
        assert!(!status.contains("rejected"), "{status}");
        managed.see("stays", 3);
        managed.see("changes", 3);
        if round % 2 == 0 {
            managed.daemon.wait_until("the second model", |daemon| {
                let messages = daemon.messages("out.jsonl");
                messages.iter().filter(|message| message["model"]["name"] == "two").count() > before
            });
        }
    }
    // Before the filters, which take the objects from their tracks.
    let tracked = |message: &Value| {
        let detections = message["detections"].as_array().unwrap().clone();
        let mut ids: Vec<_> = detections.iter().map(|one| one["track"]["id"].as_u64()).collect();
        ids.sort_unstable();
        ids
    };
    let first: Vec<_> = (1..9).map(Some).collect();
    let tiny = of(&managed, "tiny");
    assert_eq!([tracked(&tiny[0]), tracked(tiny.last().unwrap())], [first.clone(), first], "their ids stay");
    assert!(
        of(&managed, "two").iter().all(|message| tracked(message) == vec![None; 8]),
        "tracks are of the first model"
    );
    // A setting of a running model opens nothing again.
    let opened = |managed: &Managed| managed.daemon.log().matches("camera changes: /").count();
    let filtered = |classes: &str| config(&format!("[{{ name = \"tiny\", classes = [{classes}] }}]"));
    let before = opened(&managed);
    managed.reload(&filtered("\"white\""));
    managed.see("changes", 2);
    assert!(managed.messages("changes").last().unwrap()["detections"].as_array().unwrap().is_empty());
    assert_eq!(opened(&managed), before);
    managed.reload(&filtered(""));
    managed.see("changes", 2);
    let log = managed.daemon.log();
    assert!(log.contains("filters of camera changes changed"), "{log}");
    let ended = managed.end();
    let messages = ended.daemon.messages("out.jsonl");
    assert_whole(&messages.into_iter().filter(|m| m["camera"] == "stays").collect::<Vec<_>>());
    assert_eq!(ended.log.matches("camera stays: ").count(), 2, "opened once, summed up once: {}", ended.log);
}

#[test]
fn tracks_keep_their_ids_over_reloads_and_no_id_comes_back() {
    // The model finds the same eight boxes in every frame: "black".
    let with = |track: &str, more: &str| {
        let stays = STAYS.replace("[camera.source]", &format!("{track}\n[camera.source]\n{more}"));
        format!("{HEAD}{stays}")
    };
    let tracked = with("track = {}", "");
    let mut managed = Managed::start(&tracked);
    managed.see("stays", 5);
    let ids = |managed: &Managed| {
        let messages = managed.messages("stays");
        let tracks = messages.last().unwrap()["detections"].as_array().unwrap().iter().map(|one| one["track"].clone());
        let mut ids: Vec<_> = tracks.map(|track| track["id"].as_u64()).collect();
        ids.sort_unstable();
        ids
    };
    let from = |first: u64| (first..first + 8).map(Some).collect::<Vec<_>>();
    assert_eq!(ids(&managed), from(1));
    let slow = |config: &str| config.replace("sleep 0.01", "sleep 0.02");
    let opened_again = with("track = {}", "timeout = \"7 s\"");
    let longer = with("track = { unseen = \"5 s\", classes = [\"black\"] }", "timeout = \"7 s\"");
    let none = with("track = { classes = [\"white\", \"yellow\"] }", "timeout = \"7 s\"");
    for (config, change, wanted) in [
        (format!("{tracked}{}", pattern("other", 20)), "another camera", from(1)),
        (opened_again, "the camera opened again", from(1)),
        (longer.clone(), "other settings", from(1)),
        (none, "other classes", vec![None; 8]),
        (with("", "timeout = \"7 s\""), "no tracks", vec![None; 8]),
        (longer.clone(), "tracks again", from(9)),
        (slow(&longer), "another program", from(17)),
    ] {
        let status = managed.reload(&config);
        assert!(!status.contains("rejected"), "{status}");
        managed.see("stays", 5);
        assert_eq!(ids(&managed), wanted, "after {change}");
    }
    // Other labels: the numbers of the classes mean something else.
    let card = std::fs::read_to_string(managed.daemon.path("tiny.toml")).unwrap();
    std::fs::write(managed.daemon.path("tiny.toml"), card.replace("\"white\"", "\"snow\"")).unwrap();
    managed.reload(&slow(&longer));
    managed.see("stays", 5);
    assert_eq!(ids(&managed), from(25));
    let ended = managed.end();
    assert!(ended.log.contains("reloaded: tracks of camera stays removed"), "{}", ended.log);
}

#[test]
fn a_model_is_replaced_between_two_frames() {
    let config = format!("{HEAD}{STAYS}");
    let mut managed = Managed::start(&config);
    managed.see("stays", 10);
    let children = managed.children();
    let mut known = 1;
    for round in 0..6 {
        // Another file under another name, or in its place, as `visiond build` writes one; an unknown field is harmless.
        let mut network = std::fs::read(root().join("tests/vm/tiny.onnx")).unwrap();
        network.extend([0x32, 1, b'a' + round]);
        let name = if round % 2 == 0 { format!("{round}.onnx") } else { "tiny.onnx".to_owned() };
        std::fs::write(managed.daemon.path("part"), network).unwrap();
        std::fs::rename(managed.daemon.path("part"), managed.daemon.path(&name)).unwrap();
        let _ = std::fs::copy(managed.daemon.path("tiny.toml"), managed.daemon.path(&format!("{round}.toml")));
        let status = managed.reload(&config.replace("tiny.onnx", &name));
        assert!(!status.contains("rejected"), "{status}");
        managed.see("stays", 5);
        let messages = managed.messages("stays");
        let mut models: Vec<_> = messages.iter().map(|m| m["model"]["sha256"].as_str().unwrap().to_owned()).collect();
        models.dedup();
        known += 1;
        assert_eq!(models.len(), known, "each network looked at its frames, one after the other");
    }
    assert_eq!(managed.children(), children, "the camera was not touched");
    let ended = managed.end();
    assert_whole(&ended.daemon.messages("out.jsonl"));
    assert_eq!(ended.log.matches("reloaded: model tiny loaded again\n").count(), 6, "{}", ended.log);
}

#[test]
fn an_edited_card_a_log_level_a_device_name_and_unchanged_pictures_are_as_documented() {
    let drawn =
        format!("{}[camera.annotate]\ndirectory = \"{{dir}}/pictures\"\nevery = 1\nkeep = 3\n", pattern("drawn", 25));
    let config = format!("{HEAD}{STAYS}{drawn}");
    let mut managed = Managed::start(&config);
    managed.see("drawn", 1);
    let changed = format!("{config}[log]\nlevel = \"debug\"\n[device]\nname = \"gate\"\n");
    managed.reload(&changed);

    // Only the model's card.
    let card = std::fs::read_to_string(managed.daemon.path("tiny.toml")).unwrap();
    std::fs::write(managed.daemon.path("part"), card.replace("\"white\"", "\"snow\"")).unwrap();
    std::fs::rename(managed.daemon.path("part"), managed.daemon.path("tiny.toml")).unwrap();
    let status = managed.reload(&changed);
    assert!(!status.contains("rejected"), "{status}");
    // A frame may have been processed before.
    managed.see("drawn", 3);
    let newest = managed.messages("drawn").pop().unwrap();
    let labels: Vec<_> = newest["detections"].as_array().unwrap().iter().map(|one| one["label"].clone()).collect();
    assert!(labels.contains(&"snow".into()) && !labels.contains(&"white".into()), "{labels:?}");

    let pictures = |daemon: &Daemon| {
        let names = std::fs::read_dir(daemon.path("pictures")).unwrap().flatten().map(|file| file.file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = pictures(&managed.daemon);
    managed.daemon.wait_until("other pictures", |daemon| pictures(daemon).is_disjoint(&before));

    let ended = managed.end();
    assert!(ended.log.contains("DEBUG"), "the level is in force: {}", ended.log);
    let said = ended.log.matches("[device] `name` changes to gate at the next start").count();
    assert_eq!(said, 2, "each reload says what is not in force yet: {}", ended.log);
}

#[test]
fn a_wrong_configuration_is_refused_with_its_reason_and_the_running_one_stays() {
    let config = format!("{HEAD}{STAYS}");
    let mut managed = Managed::start(&config);
    let children = managed.children();
    let wrong = [
        (format!("{config}\nnonsense"), "visiond.toml:"),
        (config.replace("tiny.onnx", "nowhere.onnx"), "model tiny: no model at "),
        (
            format!("{config}\n[[sink]]\ntype = \"unix\"\npath = \"/nowhere/d.sock\"\n"),
            "sink unix: cannot create the socket /nowhere/d.sock",
        ),
        (config.replace("name = \"stays\"", "name = \"stays\"\nenabled = false"), "no camera to run"),
        (
            config.replace("[camera.source]", "annotate = { directory = \"/proc/no\", every = 1 }\n[camera.source]"),
            "annotated images of camera stays",
        ),
    ];
    for (wrong, why) in &wrong {
        let status = managed.reload(wrong);
        assert!(status.starts_with("STATUS=reload rejected: ") && status.contains(why), "{status}");
        managed.see("stays", 3);
    }
    let status = managed.reload(&config);
    assert!(status.starts_with("STATUS=stays "), "all is well again: {status}");
    std::fs::remove_file(managed.daemon.path("visiond.toml")).unwrap();
    managed.daemon.signal(libc::SIGHUP);
    let status = managed.end_of_reload();
    assert!(status.contains("cannot be read"), "{status}");
    assert_eq!(managed.children(), children, "nothing was touched");
    let ended = managed.end();
    assert_whole(&ended.daemon.messages("out.jsonl"));
    let told = "configuration rejected; the running one stays in force:";
    assert_eq!(ended.log.matches(told).count(), wrong.len() + 1, "{}", ended.log);
    for (_, why) in &wrong {
        assert!(ended.log.contains(why), "{why}:\n{}", ended.log);
    }
}

#[test]
fn a_camera_moves_to_another_model_and_an_ended_lane_starts_again() {
    let two = format!("{HEAD}[[model]]\nname = \"second\"\npath = \"{{dir}}/tiny.onnx\"\n{STAYS}");
    let moves = |model: &str| pattern("moves", 20).replace("\"tiny\"", &format!("{model:?}"));
    let mut managed = Managed::start(&format!("{two}{}", moves("tiny")));
    let by = |managed: &Managed, model: &str| {
        managed.messages("moves").iter().filter(|message| message["model"]["name"] == model).count()
    };
    for round in 1..=3 {
        // The second lane starts and ends with its only camera.
        for model in ["second", "tiny"] {
            let before = by(&managed, model);
            managed.reload(&format!("{two}{}", moves(model)));
            managed.see("moves", 3);
            assert!(by(&managed, model) > before, "round {round}, {model}");
        }
    }
    // The end of a file ends its lane; a camera with that model loads it again.
    let film = "[[camera]]\nname = \"film\"\nmodel = \"second\"\nsource = { type = \"command\", container = \"raw\", format = \
                \"grey\", width = 128, height = 64, pace = \"fastest\", command = [\"head\", \"-c\", \"81920\", \"/dev/zero\"], \
                repeat = false }\n";
    managed.reload(&format!("{two}{film}"));
    managed
        .daemon
        .wait_until("the film", |d| d.messages("out.jsonl").iter().filter(|m| m["camera"] == "film").count() >= 10);
    managed.reload(&format!("{two}{film}{}", moves("second")));
    managed.see("moves", 3);
    let ended = managed.end();
    let messages = ended.daemon.messages("out.jsonl");
    let of = |camera: &str| messages.iter().filter(|m| m["camera"] == camera).cloned().collect::<Vec<_>>();
    assert_whole(&of("stays"));
    let moves = sequences(&of("moves"));
    assert!(moves.len() > 10, "{moves:?}");
}

#[test]
fn sigterm_in_the_middle_of_a_reload_ends_it_in_order() {
    // Another model that takes a while to load.
    let slow = HEAD.replace("{dir}/tiny.onnx", "{model}");
    for delay_ms in [0, 3, 20, 100, 300] {
        let managed = Managed::start(&format!("{HEAD}{STAYS}{}", pattern("other", 50)));
        let camera = pattern("other", 40);
        managed
            .daemon
            .reconfigure(&format!("{slow}{STAYS}{camera}[[sink]]\ntype = \"unix\"\npath = \"{{dir}}/d.sock\"\n"));
        // The reload may be at any step by then.
        std::thread::sleep(Duration::from_millis(delay_ms));
        let ended = managed.end();
        let messages = ended.daemon.messages("out.jsonl");
        assert_whole(&messages.iter().filter(|m| m["camera"] == "stays").cloned().collect::<Vec<_>>());
        assert!(!ended.daemon.path("d.sock").exists(), "the socket is removed: {}", ended.log);
    }
}

#[test]
fn signals_in_a_row_end_with_the_newest_configuration() {
    let mut managed = Managed::start(&format!("{HEAD}{STAYS}"));
    for round in 0..30 {
        managed.daemon.reconfigure(&format!("{HEAD}{STAYS}{}", pattern(&format!("c{round}"), 20)));
    }
    managed.see("c29", 2);
    let ended = managed.end();
    let messages = ended.daemon.messages("out.jsonl");
    assert_whole(&messages.iter().filter(|m| m["camera"] == "stays").cloned().collect::<Vec<_>>());
    assert!(!ended.log.contains("panic"), "{}", ended.log);
}

#[test]
fn a_hundred_reloads_leave_memory_threads_and_descriptors_as_they_were() {
    let one = format!("{HEAD}{STAYS}{}", pattern("other", 20));
    let annotated = "[camera.annotate]\ndirectory = \"{dir}/pictures\"\nevery = 100\nkeep = 5\n";
    let two = format!(
        "{}{STAYS}{}{annotated}{}[[sink]]\ntype = \"unix\"\npath = \"{{dir}}/d.sock\"\n",
        HEAD.replace("threads = 1", "threads = 2"),
        pattern("other", 25),
        pattern("third", 20),
    );
    let mut managed = Managed::start(&one);
    let mut sizes = Vec::new();
    for round in 1..=100 {
        managed.reload(&two);
        if round % 2 == 1 {
            managed.reload(&format!("{two}nonsense"));
        }
        managed.reload(&one);
        if round % 20 == 0 {
            sizes.push(size(&managed.daemon));
        }
    }
    println!("threads, descriptors, resident kB after each 20 pairs: {sizes:?}");
    let first = sizes[0];
    // The part that was replaced last may still be ending.
    let daemon = &managed.daemon;
    let log = || format!("{:?} after {sizes:?}", size(daemon));
    wait_until_or_show(
        "threads, descriptors and memory to be as before",
        || {
            let last = size(daemon);
            // A descriptor may be open for a moment, such as /proc's for the log of memory.
            last.0 <= first.0 && last.1 <= first.1 + 1 && last.2 <= first.2 + 3_000
        },
        log,
    );
    let ended = managed.end();
    let messages = ended.daemon.messages("out.jsonl");
    assert_whole(&messages.iter().filter(|m| m["camera"] == "stays").cloned().collect::<Vec<_>>());
}
