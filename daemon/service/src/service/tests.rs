//! Whole services in this process: test patterns, a tiny model on rten, files; and their change to another configuration.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::Value;
use tempfile::TempDir;
use visiond_config::command::{SettingsChange, Target};
use visiond_config::diff::Change;
use visiond_config::types::HttpConfig;
use visiond_publish::Commander as _;
use visiond_system::exit::Exit;
use visiond_system::stop::Wake;
use visiond_system::testing::{finishes, hang, wait_until};
use visiond_system::wake_pipe::WakePipe;

use super::*;
use crate::http_server::HttpError;
use crate::reload::{Finished, FinishedReload, Preview, Proposal, ReloadOutcome, Reloader};

/// A folder with the tiny model; `{dir}` in a configuration is its path.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm");
        for name in ["tiny.onnx", "tiny.toml"] {
            fs::copy(tests.join(name), folder.path().join(name)).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, parts: &[&str]) -> String {
        [&[HEAD], parts].concat().concat().replace("{dir}", self.0.path().to_str().unwrap())
    }

    fn config(&self, parts: &[&str]) -> Config {
        Config::parse(&self.text(parts), &self.path("visiond.toml")).unwrap()
    }

    fn messages(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        // The last line may be half written.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn count(&self, camera: &str) -> usize {
        self.messages("out.jsonl").iter().filter(|message| message["camera"] == camera).count()
    }

    /// Waits for more messages of a camera.
    fn see(&self, camera: &str) {
        let before = self.count(camera);
        wait_until("more messages", || self.count(camera) > before + 2);
    }

    /// Whether this process has a file of this folder open.
    fn has_open(&self, name: &str) -> bool {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        open.into_iter().any(|path| path == self.path(name).canonicalize().unwrap())
    }
}

/// Every test has this level, because it is one for the process; a start leaves it as it is.
const HEAD: &str = r#"
[log]
level = "debug"
[engine]
backend = "rten"
threads = 1
canary_timeout = "5min"
[[model]]
name = "tiny"
path = "{dir}/tiny.onnx"
[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;
const STAYS: &str = "
[[camera]]
name = \"stays\"
model = \"tiny\"
source = { type = \"pattern\", width = 128, height = 64, fps = 50.0 }
";
const OTHER: &str = "
[[camera]]
name = \"other\"
model = \"tiny\"
source = { type = \"pattern\", width = 128, height = 64, fps = 40.0 }
";
const DRAWN: &str = "
[[camera]]
name = \"drawn\"
model = \"tiny\"
source = { type = \"pattern\", width = 128, height = 64, fps = 20.0 }
annotate = { directory = \"{dir}/pictures\", every = 1, keep = 3 }
";
const MORE: &str = "
[[sink]]
name = \"more\"
type = \"file\"
path = \"{dir}/more.jsonl\"
";
fn start(config: Config) -> (Arc<Service>, Stop) {
    let stop = Stop::new().unwrap();
    (Arc::new(Service::start(config, None, &stop).unwrap()), stop)
}

fn end(service: Arc<Service>, stop: &Stop) {
    stop.raise();
    finishes("the end", move || drop(service.end(hang(), 1.0)));
}

#[test]
fn a_run_sums_up_what_its_cameras_showed_and_its_outputs_got() {
    let (place, stop) = (Place::new(), Stop::new().unwrap());
    let service = Service::start(place.config(&[DRAWN]), Some(5), &stop).unwrap();
    wait_until("five messages", || stop.is_raised());
    assert_eq!((service.broken(), service.needs_restart()), (None, None));
    assert!(service.sink_failure().is_none());
    assert!(service.first_message().is_some_and(|age| age > Duration::ZERO));
    let snapshot = service.snapshot();
    assert_eq!((snapshot.models.len(), snapshot.lanes.len()), (1, 1));
    assert!(snapshot.models[0].facts.input.contains("f32 [1, 3, "), "{}", snapshot.models[0].facts.input);
    assert_eq!(service.status(), service.config().status);

    let parts = service.end(hang(), 2.0);
    let messages = place.messages("out.jsonl");
    assert_eq!(messages.len(), 5);
    assert_eq!(messages[0]["model"]["name"], "tiny");
    assert_eq!(messages[0]["model"]["sha256"], snapshot.models[0].facts.sha256);
    let camera = &parts.cameras[0];
    assert_eq!((camera.name.as_str(), camera.published, camera.frames_per_second), ("drawn", 5, 2.5));
    let pictures = camera.pictures.as_ref().unwrap();
    assert_eq!((pictures.written + pictures.lost, Path::new(&pictures.directory)), (5, &*place.path("pictures")));
    let stored = fs::read_dir(place.path("pictures")).unwrap().count();
    assert_eq!(stored as u64, pictures.written.min(3), "the last one is stored before it ends");
    let model = &parts.models[0];
    assert_eq!((model.name.as_str(), model.backend.split(' ').next()), ("tiny", Some("rten")));
    assert_eq!((parts.sinks.len(), parts.sinks[0].written, parts.sinks[0].lost), (1, 5, 0));
}

/// Records the changes of a reload to the server. It refuses an address with this port.
#[derive(Default)]
struct Server(Mutex<Vec<&'static str>>);

const REFUSED: &str = "
[http]
listen = [\"127.0.0.1:9\"]
";

impl HttpServer for Server {
    fn prepare(&self, config: &HttpConfig) -> Result<Box<dyn FnOnce() + '_>, HttpError> {
        if let Some(address) = config.listen.iter().find(|address| address.to_string() == "127.0.0.1:9") {
            let error = io::Error::from(io::ErrorKind::AddrInUse);
            return Err(HttpError::Bind { address: address.clone(), error });
        }
        self.0.lock().unwrap().push("prepared");
        Ok(Box::new(|| self.0.lock().unwrap().push("served")))
    }
}

#[test]
fn a_change_touches_what_differs_and_nothing_else() {
    let place = Place::new();
    let (service, stop) = start(place.config(&[STAYS, DRAWN, OTHER, MORE]));
    let server = Arc::new(Server::default());
    service.is_served_by(Arc::<Server>::clone(&server));
    wait_until("messages in both files", || place.count("stays") > 2 && !place.messages("more.jsonl").is_empty());
    let before = service.snapshot();
    let annotator = Arc::clone(&before.pictures[0].annotator);

    let next = place.config(&[STAYS, DRAWN, &OTHER.replace("40.0", "30.0")]);
    let previewed = service.preview(&next).unwrap();
    assert_eq!(service.config(), before_config(&place));
    let changes = service.apply(next.clone()).unwrap();
    assert_eq!(changes, previewed);
    assert_eq!(changes.cameras.iter().collect::<Vec<_>>(), [(&"other".to_owned(), &Change::Changed)]);
    assert_eq!(changes.sinks.get("more"), Some(&Change::Removed));
    assert_eq!((changes.models.len(), changes.pictures.len()), (0, 0));
    assert_eq!(log::max_level(), log::LevelFilter::Debug);
    assert_eq!(*server.0.lock().unwrap(), ["prepared", "served"]);
    wait_until("the sink that is gone to end", || !place.has_open("more.jsonl"));
    assert!(place.has_open("out.jsonl"));

    let after = service.snapshot();
    assert!(Arc::ptr_eq(&after.pictures[0].annotator, &annotator), "unchanged pictures go on");
    let drawn = annotator.counts().written;
    wait_until("more pictures", || annotator.counts().written > drawn);
    let names = |lanes: &[visiond_telemetry::metrics::LaneView]| {
        lanes.iter().flat_map(|lane| &lane.cameras).map(|camera| camera.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&after.lanes), ["stays", "drawn", "other"]);
    assert_eq!((names(&service.lanes()), names(&service.live().lanes())), (names(&after.lanes), names(&after.lanes)));
    assert_eq!(service.config(), next);
    let sinks = service.sinks();
    assert_eq!((sinks.len(), &*sinks[0].kind), (1, "file"));
    assert!(sinks[0].queued > 0 && sinks[0].to.ends_with("out.jsonl"), "{:?}", sinks[0]);

    // Annotated images end, and the camera continues.
    let plain = DRAWN.replace("annotate", "# annotate");
    let changes = service.apply(place.config(&[STAYS, &plain])).unwrap();
    assert_eq!(changes.pictures.get("drawn"), Some(&Change::Removed));
    assert_eq!(changes.cameras.get("other"), Some(&Change::Removed));
    assert!(service.snapshot().pictures.is_empty());
    assert!(service.live().find("other").is_none() && service.live().find("drawn").is_some());
    place.see("drawn");
    drop((before, after));
    wait_until("the pictures to be let go", || Arc::strong_count(&annotator) == 1);
    end(service, &stop);
    let sequences: Vec<_> =
        place.messages("out.jsonl").iter().filter(|message| message["camera"] == "stays").count_up();
    assert!(sequences.len() > 5);
}

fn before_config(place: &Place) -> Config {
    place.config(&[STAYS, DRAWN, OTHER, MORE])
}

/// The sequence numbers of messages, of which none came twice.
trait CountUp {
    fn count_up(self) -> Vec<u64>;
}

impl<'m, I: Iterator<Item = &'m Value>> CountUp for I {
    fn count_up(self) -> Vec<u64> {
        let numbers: Vec<_> = self.map(|message| message["sequence"].as_u64().unwrap()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        numbers
    }
}

#[test]
fn a_configuration_that_cannot_run_changes_nothing() {
    let place = Place::new();
    let config = place.config(&[STAYS]);
    let (service, stop) = start(config.clone());
    let server = Arc::new(Server::default());
    service.is_served_by(Arc::<Server>::clone(&server));
    place.see("stays");
    let before = service.snapshot();
    let missing = place.text(&[STAYS]).replace("tiny.onnx", "nowhere.onnx");
    let missing = Config::parse(&missing, &place.path("visiond.toml")).unwrap();
    for (wrong, exit, why) in [
        (missing, Exit::Model, "model tiny: no model at "),
        (place.config(&[&STAYS.replace("source", "enabled = false\nsource")]), Exit::Config, "no camera to run"),
        (place.config(&[STAYS, &DRAWN.replace("{dir}/pictures", "/proc/no")]), Exit::Output, "images of camera drawn"),
        (
            place.config(&[STAYS, "[[sink]]\ntype = \"unix\"\npath = \"/nowhere/d.sock\"\n"]),
            Exit::Output,
            "cannot create the socket /nowhere/d.sock",
        ),
        (place.config(&[STAYS, OTHER, REFUSED]), Exit::Output, "cannot listen on 127.0.0.1:9"),
    ] {
        let error = service.apply(wrong.clone()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(error.exit(), exit, "{error}");
        if matches!(error, ServiceError::NoCamera) {
            assert!(matches!(service.preview(&wrong), Err(ServiceError::NoCamera)));
        }
        assert!(Arc::ptr_eq(&service.snapshot(), &before));
        assert_eq!(service.config(), config);
    }
    assert!(server.0.lock().unwrap().is_empty());
    place.see("stays");
    stop.raise();
    assert!(matches!(service.apply(config), Err(ServiceError::Ending)));
    finishes("the end", move || drop(service.end(hang(), 1.0)));
    assert!(!place.messages("out.jsonl").iter().count_up().is_empty());
}

#[test]
fn a_new_model_is_tried_on_a_frame_of_each_of_its_cameras_that_gives_one() {
    let place = Place::new();
    let missing =
        "[[camera]]\nname = \"attic\"\nmodel = \"tiny\"\nsource = { type = \"images\", path = \"/nowhere\" }\n";
    let (service, stop) = start(place.config(&[STAYS, OTHER, missing]));
    place.see("stays");
    place.see("other");
    // A camera that has no frame, and one of another model, are not waited for.
    let tried = |cameras: &[&str]| {
        let (samples, fps) = crate::canary::samples(service.live(), "tiny", (8, 6), cameras).unwrap();
        let samples: Vec<_> = samples.into_iter().map(|sample| (sample.size(), sample.name)).collect();
        (samples, fps > 0.0)
    };
    let frame = |name: &str| ((128, 64), format!("a frame of camera {name}"));
    // A busy machine may have no frame of a camera in the second that a trial waits for it.
    wait_until("a frame of one", || tried(&["stays", "attic"]).0 == [frame("stays")]);
    wait_until("a frame of each", || tried(&["stays", "other"]).0 == [frame("stays"), frame("other")]);
    let (samples, has_rate) = tried(&["attic", "new"]);
    assert_eq!((samples[0].0, samples.len(), has_rate), ((8, 6), 1, false));
    assert!(samples[0].1.starts_with("a grey frame"), "{}", samples[0].1);
    end(service, &stop);
}

#[test]
fn an_edited_card_and_another_file_of_the_same_name_are_changes_of_the_model() {
    let place = Place::new();
    let config = place.config(&[STAYS]);
    let (service, stop) = start(config.clone());
    let own = place.path("visiond.toml");
    let propose = |text: String| Preview::new(&service, &own, &Proposal { path: own.clone(), text, settings: None });
    let same = propose(place.text(&[STAYS]));
    assert!(same.valid && same.changes.is_empty() && same.error.is_none(), "{same:?}");
    assert!(service.apply(config.clone()).unwrap().differences().is_empty());

    let card = fs::read_to_string(place.path("tiny.toml")).unwrap();
    fs::write(place.path("part"), card.replace("\"white\"", "\"snow\"")).unwrap();
    fs::rename(place.path("part"), place.path("tiny.toml")).unwrap();
    let changed = propose(place.text(&[STAYS]));
    assert_eq!(changed.changes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["model tiny loaded again"]);
    assert_eq!(service.apply(config.clone()).unwrap().differences(), changed.changes);
    wait_until("the new names", || {
        let newest = place.messages("out.jsonl").pop();
        newest.is_some_and(|message| message["detections"].to_string().contains("\"snow\""))
    });

    // An unknown field is harmless.
    let mut network = fs::read(place.path("tiny.onnx")).unwrap();
    let tried = service.snapshot().models[0].facts.sha256.clone();
    network.extend([0x32, 1, b'a']);
    fs::write(place.path("part"), network).unwrap();
    fs::rename(place.path("part"), place.path("tiny.onnx")).unwrap();
    assert_eq!(service.apply(config).unwrap().models.get("tiny"), Some(&Change::Changed));
    assert_ne!(service.snapshot().models[0].facts.sha256, tried);

    let wrong = propose("nonsense".to_owned());
    assert!(!wrong.valid && wrong.error.unwrap().contains("visiond.toml:1"));
    let device = propose(place.text(&[STAYS, "[device]\nname = \"gate\"\n"]));
    assert!(device.restart_needed[0].starts_with("[device] `name` changes to gate at the next start"));
    assert!(device.valid);
    // Until then, each reload reports it again.
    for _ in 0..2 {
        let changes = service.apply(place.config(&[STAYS, "[device]\nname = \"gate\"\n"])).unwrap();
        assert_eq!((changes.restart_needed.len(), &service.config().device), (1, &place.config(&[STAYS]).device));
    }
    end(service, &stop);
}

/// A service with a file that reloads read. The file is a pipe where a test wants to know when that happens.
struct Reloads {
    place: Place,
    service: Arc<Service>,
    stop: Stop,
    wake: Arc<WakePipe>,
    reloader: Reloader,
}

impl Reloads {
    fn start() -> Self {
        let place = Place::new();
        let (service, stop) = start(place.config(&[STAYS]));
        let wake = Arc::new(WakePipe::new().unwrap());
        let reloader = Reloader::new(place.path("visiond.toml"), &service, Arc::clone(&wake));
        Self { place, service, stop, wake, reloader }
    }

    /// Waits until the main thread is woken, and a reload has ended.
    fn finish(&mut self) -> FinishedReload {
        loop {
            let woken = self.stop.wait_readable(self.wake.reader.as_fd(), Some(visiond_system::testing::HANG));
            assert_eq!(woken.unwrap(), Wake::Ready);
            self.wake.clear();
            match self.reloader.finished() {
                Some(Finished::Reload(finished)) => return *finished,
                Some(Finished::Commands(_)) => panic!("no command waits"),
                None => {}
            }
        }
    }

    fn is_woken(&self) -> bool {
        let woken = self.stop.wait_readable(self.wake.reader.as_fd(), Some(std::time::Duration::ZERO));
        woken.unwrap() == Wake::Ready
    }

    fn write(&self, parts: &[&str]) {
        let (text, path) = (self.place.text(parts), self.place.path("visiond.toml"));
        finishes("the file to be written", move || fs::write(path, text).unwrap());
    }

    fn end(self) {
        end(self.service, &self.stop);
    }
}

#[test]
fn a_request_is_answered_with_what_the_reload_has_changed() {
    let mut reloads = Reloads::start();
    assert!(!reloads.reloader.is_asked() && !reloads.is_woken() && reloads.reloader.finished().is_none());
    reloads.write(&[STAYS, OTHER]);
    let outcome = reloads.reloader.reloads.request();
    assert!(reloads.reloader.is_asked() && reloads.is_woken());
    reloads.reloader.begin();
    assert!(reloads.reloader.is_busy() && !reloads.reloader.is_asked());
    let finished = reloads.finish();
    assert!(!reloads.reloader.is_busy() && finished.result.is_ok());
    assert!(reloads.reloader.wait(Instant::now()));
    reloads.reloader.answer(finished);
    let ReloadOutcome { at, applied, changes, restart_needed, error, exit_status, .. } =
        outcome.blocking_recv().unwrap();
    assert!(at.parse::<jiff::Timestamp>().is_ok());
    assert_eq!(changes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["camera other added"]);
    assert_eq!((applied, restart_needed.len(), error, exit_status), (true, 0, None, 0));

    reloads.write(&["nonsense\n"]);
    let outcome = reloads.reloader.reloads.request();
    reloads.reloader.begin();
    let finished = reloads.finish();
    assert_eq!(finished.result.as_ref().unwrap_err().exit, Exit::Config);
    reloads.reloader.answer(finished);
    let ReloadOutcome { applied, changes, error, exit_status, .. } = outcome.blocking_recv().unwrap();
    assert_eq!((applied, changes.len(), exit_status), (false, 0, Exit::Config.code()));
    let error = error.unwrap();
    assert!(error.contains("visiond.toml:") && error.trim_end() == error, "{error:?}");
    assert_eq!(reloads.service.config(), reloads.place.config(&[STAYS, OTHER]));
    reloads.end();
}

#[test]
fn a_request_during_a_reload_is_answered_by_the_next_one() {
    let mut reloads = Reloads::start();
    // Reading it waits for a writer.
    visiond_system::testing::make_fifo(&reloads.place.path("visiond.toml"));
    let mut first = reloads.reloader.reloads.request();
    reloads.reloader.begin();
    let mut second = reloads.reloader.reloads.request();
    assert!(reloads.reloader.is_asked() && !reloads.reloader.wait(Instant::now()));
    reloads.reloader.begin();
    assert!(!reloads.reloader.is_asked(), "it is known");
    assert!(reloads.reloader.finished().is_none());
    reloads.write(&[STAYS, OTHER]);
    let finished = reloads.finish();
    assert!(reloads.reloader.is_busy(), "the next has begun");
    reloads.reloader.answer(finished);
    assert_eq!(first.try_recv().unwrap().changes.len(), 1);
    assert!(second.try_recv().is_err());
    reloads.write(&[STAYS]);
    let finished = reloads.finish();
    assert!(!reloads.reloader.is_busy());
    reloads.reloader.answer(finished);
    let outcome = second.try_recv().unwrap();
    assert_eq!(outcome.changes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["camera other removed"]);

    // A daemon that is ending rejects requests at once.
    let waits = reloads.reloader.reloads.request();
    reloads.reloader.close();
    assert!(waits.blocking_recv().is_err() && reloads.reloader.reloads.request().blocking_recv().is_err());
    assert!(!reloads.reloader.is_asked());
    reloads.end();
}

/// A zone of the camera before it.
const DOCK: &str = "track = {}
[[camera.zone]]
name = \"dock\"
";

fn set(camera: &str, rule: Option<&str>, enabled: Option<bool>, min_score: Option<f64>) -> Command {
    let target = Target { camera: camera.to_owned(), rule: rule.map(str::to_owned) };
    Command { target, action: Action::Set(SettingsChange { enabled, min_score }) }
}

#[test]
fn a_command_switches_a_camera_off_and_on_and_touches_no_other() {
    let place = Place::new();
    let (service, stop) = start(place.config(&[STAYS, OTHER]));
    place.see("stays");
    place.see("other");
    let changes = service.command(&set("other", None, Some(false), None)).unwrap();
    assert_eq!(changes.to_string(), "camera other removed");
    let names = |service: &Service| -> Vec<_> {
        cameras_of(&service.snapshot().lanes).iter().map(|known| known.camera.name.to_string()).collect()
    };
    assert_eq!(names(&service), ["stays"]);
    let off: Vec<_> = service.snapshot().switched_off.clone();
    assert_eq!(off.iter().map(|camera| (&*camera.name, &*camera.phase)).collect::<Vec<_>>(), [("other", "disabled")]);
    let before = place.count("other");
    place.see("stays");
    assert_eq!(place.count("other"), before);
    assert_eq!(service.commands().settings_of("other").map(|settings| settings.enabled), Some(false));
    // A reload of the same file keeps it off; one that changes its keys, but not this one, as well.
    assert_eq!(service.apply(place.config(&[STAYS, OTHER])).unwrap().to_string(), "nothing has changed");
    let slower = OTHER.replace("40.0", "30.0");
    assert_eq!(service.preview(&place.config(&[STAYS, &slower])).unwrap().to_string(), "nothing has changed");
    service.apply(place.config(&[STAYS, &slower])).unwrap();
    assert_eq!(names(&service), ["stays"]);
    assert_eq!(service.command(&set("other", None, Some(true), None)).unwrap().to_string(), "camera other added");
    place.see("other");
    assert_eq!(service.command(&set("other", None, Some(true), None)).unwrap(), ConfigDiff::default());
    end(service, &stop);
}

#[test]
fn the_last_camera_can_be_switched_off_and_on_again() {
    let place = Place::new();
    let (service, stop) = start(place.config(&[STAYS]));
    place.see("stays");
    for _ in 0..2 {
        service.command(&set("stays", None, Some(false), None)).unwrap();
        assert!(service.snapshot().lanes.is_empty() && !stop.is_raised());
        assert_eq!(service.apply(place.config(&[STAYS])).unwrap(), ConfigDiff::default());
        service.command(&set("stays", None, Some(true), None)).unwrap();
        place.see("stays");
    }
    service.command(&set("stays", None, Some(false), None)).unwrap();
    // The file decides once it changes the key; then no camera is left.
    let off = STAYS.replace("model =", "enabled = false\nmodel =");
    assert!(matches!(service.apply(place.config(&[&off])), Err(ServiceError::NoCamera)));
    end(service, &stop);
}

#[test]
fn scores_and_rules_change_without_the_camera_being_opened_again() {
    let place = Place::new();
    let (service, stop) = start(place.config(&[STAYS, DOCK]));
    place.see("stays");
    for (command, wanted) in [
        (set("stays", None, None, Some(1.0)), "filters of camera stays changed"),
        (set("stays", Some("dock"), Some(false), Some(0.5)), "tracks of camera stays changed"),
        (set("stays", Some("dock"), Some(false), Some(0.5)), "nothing has changed"),
    ] {
        assert_eq!(service.command(&command).unwrap().to_string(), wanted, "{command}");
    }
    wait_until("no detection", || {
        place.messages("out.jsonl").last().is_some_and(|message| message["detections"] == serde_json::json!([]))
    });
    let config = service.config();
    assert_eq!(config.cameras[0].score_threshold, Some(1.0));
    assert_eq!((config.cameras[0].zone[0].enabled, config.cameras[0].zone[0].min_score), (false, 0.5));
    let reset = Command { action: Action::Reset, ..set("stays", Some("dock"), None, None) };
    assert_eq!(service.command(&reset).unwrap(), ConfigDiff::default());
    let gone = Command { action: Action::Reset, ..set("stays", Some("gone"), None, None) };
    assert!(matches!(service.command(&gone), Err(ServiceError::Command(_))));
    end(service, &stop);
}

#[test]
fn a_command_that_fails_changes_nothing_and_one_loads_no_other_file() {
    let place = Place::new();
    let (service, stop) = start(place.config(&[STAYS, OTHER]));
    place.see("stays");
    // The model's file is damaged, which a reload would find.
    fs::write(place.path("tiny.onnx"), "no model").unwrap();
    service.command(&set("other", None, Some(false), None)).unwrap();
    service.command(&set("other", None, Some(true), None)).unwrap();
    place.see("other");
    service.command(&set("other", None, Some(false), None)).unwrap();
    service.command(&set("stays", None, Some(false), None)).unwrap();
    let error = service.command(&set("stays", None, Some(true), None)).unwrap_err();
    assert!(matches!(error, ServiceError::Model { .. }), "{error}");
    assert_eq!(service.commands().settings_of("stays").map(|settings| settings.enabled), Some(false));
    assert!(!stop.is_raised());
    end(service, &stop);
}

#[test]
fn commands_that_wait_are_one_change_and_each_is_answered() {
    let mut reloads = Reloads::start();
    let finish = |reloads: &mut Reloads| loop {
        if let Some(Finished::Commands(finished)) = reloads.reloader.finished() {
            break finished;
        }
        std::thread::yield_now();
    };
    let ask = |command: Command| reloads.service.commands().ask(command).unwrap();
    let answers = [0.75, 0.5].map(|score| ask(set("stays", None, None, Some(score))));
    let now = Instant::now();
    reloads.reloader.begin_commands(now);
    assert!(!reloads.reloader.is_busy(), "no reload is in progress");
    let finished = finish(&mut reloads);
    assert_eq!(finished.len(), 1);
    finished.into_iter().for_each(crate::reload::FinishedCommand::answer);
    for mut answer in answers {
        answer.try_recv().unwrap().unwrap();
    }
    assert_eq!(reloads.service.config().cameras[0].score_threshold, Some(0.5));
    reloads.reloader.begin_commands(now);
    assert!(reloads.reloader.finished().is_none() && reloads.reloader.commands_due(now).is_none(), "none waits");

    // Others wait for a while, so that they are carried out together.
    reloads.service.commands().request(set("stays", None, None, Some(0.25))).unwrap();
    let due = reloads.reloader.commands_due(now).unwrap();
    assert!(due > now);
    reloads.reloader.begin_commands(now);
    assert_eq!(reloads.service.config().cameras[0].score_threshold, Some(0.5));
    reloads.reloader.begin_commands(due);
    finish(&mut reloads);
    assert_eq!(reloads.service.config().cameras[0].score_threshold, Some(0.25));
    reloads.end();
}

#[test]
fn a_command_that_fails_does_not_cost_those_that_came_with_it() {
    let place = Place::new();
    let (service, stop) = start(place.config(&[STAYS, OTHER]));
    place.see("stays");
    let both_off = ["stays", "other"].map(|camera| set(camera, None, Some(false), None));
    assert!(service.carry_out(&both_off).iter().all(Result::is_ok));
    assert!(service.snapshot().lanes.is_empty());
    fs::write(place.path("tiny.onnx"), "no model").unwrap();
    let results = service.carry_out(&[
        set("stays", None, Some(true), None),
        set("other", None, None, Some(0.5)),
        set("gone", None, Some(true), None),
    ]);
    assert!(matches!(results[0], Err(ServiceError::Model { .. })), "{results:?}");
    assert!(results[1].is_ok() && matches!(results[2], Err(ServiceError::Command(_))), "{results:?}");
    let settings = |camera: &str| service.commands().settings_of(camera).unwrap();
    assert_eq!((settings("stays").enabled, settings("other").score_threshold), (false, 0.5));
    end(service, &stop);
}
