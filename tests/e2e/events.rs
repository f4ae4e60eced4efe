//! Lines and zones: what a walk through the picture reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use visiond_tests::mosquitto::{Message, Mosquitto};
use visiond_tests::{Daemon, picture, wait_until};

use crate::clips::decoded;
use crate::documents::assert_valid;

/// Films a person whose middle goes from the right quarter of the picture to the left one in two seconds, and back.
pub fn film(folder: &Path) -> String {
    let film = folder.join("walk.mkv").display().to_string();
    let picture = picture("astronaut.png");
    // The frame moves over a wide grey picture with the person in its middle.
    let filter = "pad=1472:512:480:0:gray,crop=960:512:'480*(1-abs(1-t/2))':0,fps=10";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-framerate", "10", "-loop", "1", "-t", "4", "-i"]).arg(picture);
    ffmpeg.args(["-vf", filter, "-c:v", "ffv1", &film]);
    assert!(ffmpeg.status().unwrap().success());
    film
}

/// A camera that sees the film once, with these lines and zones.
fn config(film: &str, rules: &str) -> String {
    format!(
        "[engine]\nbackend = \"rten\"\n[device]\nname = \"gate\"\n[[model]]\nname = \"objects\"\npath = \"{{model}}\"\nscore_threshold = 0.3\n\
         [[camera]]\nname = \"door\"\n[camera.source]\ntype = \"video\"\nurl = {film:?}\nrepeat = false\npace = \"fastest\"\n\
         [camera.track]\nclasses = [\"person\", \"car\"]\n{rules}\
         [[sink]]\nname = \"frames\"\ntype = \"file\"\npath = \"{{dir}}/frames.jsonl\"\nmessages = [\"frames\"]\n\
         [[sink]]\nname = \"events\"\ntype = \"file\"\npath = \"{{dir}}/events.jsonl\"\nmessages = [\"events\"]\n"
    )
}

const RULES: &str = "[camera.clips]\ndirectory = \"{dir}/clips\"\n[camera.annotate]\ndirectory = \"{dir}/images\"\non_event = true\n[[camera.line]]\nname = \"middle\"\npoints = [[0.5, 0.0], [0.5, 1.0]]\nsides = [\"east\", \"west\"]\n\
    [[camera.line]]\nname = \"beside\"\npoints = [[0.5, 0.0], [0.5, 0.5]]\n\
    [[camera.zone]]\nname = \"left\"\npolygon = [[0, 0], [240, 0], [240, 256], [0, 256]]\nframe_size = [480, 256]\n\
    occupancy = { at_least = 1, lasting = \"0.5 s\" }\n\
    [[camera.zone]]\nname = \"cars\"\nclasses = [\"car\"]\n";

/// Rule, kind, phase and side of each event.
fn told(events: &[Value]) -> Vec<String> {
    let word = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let told =
        |event| ["rule", "kind", "phase", "to", "reason"].map(|key| word(event, key)).join(" ").trim_end().to_owned();
    events.iter().map(told).collect()
}

#[test]
fn a_walk_to_the_left_and_back_is_two_crossings_and_a_visit() {
    let folder = tempfile::tempdir().unwrap();
    let film = film(folder.path());
    let ended = Daemon::start(&config(&film, RULES)).finish();
    assert!(ended.status.success(), "{}", ended.log);
    let (events, frames) = (ended.daemon.messages("events.jsonl"), ended.daemon.messages("frames.jsonl"));
    assert_eq!(frames.len(), 40);
    assert!(frames.iter().all(|frame| frame["schema"] == "visiond/1"));
    assert_eq!(
        told(&events),
        [
            "middle line moment west",
            "left zone begin",
            "left occupancy begin",
            "middle line moment east",
            "left zone end  over",
            "left occupancy end  over",
        ]
    );
    events.iter().for_each(assert_valid);
    let tracks: Vec<_> = events.iter().filter_map(|event| event["track"].as_u64()).collect();
    assert_eq!(tracks, [1; 4], "of one person; a count has no track");
    assert_eq!([&events[1]["event"], &events[2]["event"]], [&events[4]["event"], &events[5]["event"]]);
    assert_eq!((&events[0]["totals"]["begun"], &events[1]["totals"]["inside"]), (&1.into(), &1.into()));
    assert_eq!((&events[0]["label"], &events[2]["count"]), (&"person".into(), &1.into()));
    // The film has a second at each end and in its middle to settle, so the crossing is at the middle of each half.
    let at = |event: &Value| event["sequence"].as_u64().unwrap();
    assert!((5..=18).contains(&at(&events[0])) && (25..=38).contains(&at(&events[3])), "{:?}", told(&events));
    let mut images: Vec<_> = events.iter().map(|event| event["image"].as_str().unwrap().to_owned()).collect();
    images.sort();
    images.dedup();
    let mut stored: Vec<_> = std::fs::read_dir(ended.daemon.path("images"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    stored.sort();
    assert_eq!((images.len(), &images), (4, &stored), "one of each event");
    for event in &events {
        let clip = ended.daemon.path("clips").join(event["clip"].as_str().unwrap());
        // The source waits for them, so the whole film is in each.
        assert_eq!(decoded(&clip), ("mjpeg 960x512".to_owned(), 20));
    }
    assert_eq!(fs::read_dir(ended.daemon.path("clips")).unwrap().count(), 4);
    let log = ended.log;
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    for line in [
        "line middle: 1 to east, 1 to west",
        "line beside: 0 to ",
        "zone in left: 1",
        "occupancy in left: 1",
        "zone in cars: 0",
    ] {
        assert!(log.contains(line), "{line} is not in {log}");
    }
}

#[test]
fn the_events_of_a_camera_that_is_away_end() {
    let folder = tempfile::tempdir().unwrap();
    let film = film(folder.path());
    // It repeats its film until the file `away` exists, and from then on it fails.
    let camera = format!("exec ffmpeg -v error -re -stream_loop -1 -i {film} -pix_fmt yuv420p -f yuv4mpegpipe -");
    let script = format!("[ ! -e {{dir}}/away ] || exit 1; echo $$ >{{dir}}/pid; {camera}");
    let config = config(&film, "[[camera.zone]]\nname = \"here\"\nsettle = \"0 s\"\nhold = \"10 s\"\n");
    let (before, source) = config.split_once("type = \"video\"").unwrap();
    let (_, after) = source.split_once("[camera.track]").unwrap();
    let source = format!("type = \"command\"\ncommand = [\"sh\", \"-c\", {script:?}]\ncontainer = \"y4m\"\n");
    let mut daemon = Daemon::start(&format!("{before}{source}[camera.track]{after}"));
    let has = |daemon: &Daemon, wanted: &str| told(&daemon.messages("events.jsonl")).iter().any(|told| told == wanted);
    daemon.wait_until("a visit", |daemon| has(daemon, "here zone begin"));
    fs::write(daemon.path("away"), "").unwrap();
    let camera = fs::read_to_string(daemon.path("pid")).unwrap();
    assert!(Command::new("kill").arg(camera.trim()).status().unwrap().success());
    daemon.wait_until("its end", |daemon| has(daemon, "here zone end  frames_missing"));
    let ended = daemon.terminate();
    let told = told(&ended.daemon.messages("events.jsonl"));
    let count = |wanted: &str| told.iter().filter(|told| told.contains(wanted)).count();
    assert_eq!(count(" begin"), count(" end "), "each ends once: {told:?}");
}

#[test]
fn the_events_of_a_camera_that_ends_or_gets_no_more_images_end() {
    let folder = tempfile::tempdir().unwrap();
    let film = film(folder.path());
    // A person stays, up to the last frame.
    let still = folder.path().join("still.mkv").display().to_string();
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-framerate", "10", "-loop", "1", "-t", "2", "-i"]).arg(picture("astronaut.png"));
    assert!(ffmpeg.args(["-c:v", "ffv1", &still]).status().unwrap().success());
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    let zone =
        "[camera.track]\nclasses = [\"person\"]\n[[camera.zone]]\nname = \"here\"\nsettle = \"0 s\"\nhold = \"3 s\"\n";
    let watched = format!("type = \"images\"\npath = {:?}\nwatch = true\n", images.display().to_string());
    let goes_on = format!("type = \"video\"\nurl = {film:?}\nrepeat = true\n");
    let others = format!(
        "{zone}[[camera]]\nname = \"still\"\n[camera.source]\n{watched}{zone}[[camera]]\nname = \"other\"\n[camera.source]\n{goes_on}"
    );
    let config = config(&still, &others).replacen("[camera.track]\nclasses = [\"person\", \"car\"]\n", "", 1);
    let mut daemon = Daemon::start(&config);
    let of = |daemon: &Daemon, camera: &str| -> Vec<String> {
        told(&daemon.messages("events.jsonl").into_iter().filter(|event| event["camera"] == camera).collect::<Vec<_>>())
    };
    daemon.wait_until("the end of the film", |daemon| {
        of(daemon, "door") == ["here zone begin", "here zone end  camera_gone"]
    });
    let mut number = 0;
    daemon.wait_until("a visit in images", |daemon| {
        let frames = daemon.messages("frames.jsonl");
        if frames.iter().filter(|frame| frame["camera"] == "still").count() < number {
            return false;
        }
        number += 1;
        let partial = folder.path().join("partial.png");
        fs::copy(picture("astronaut.png"), &partial).unwrap();
        fs::rename(partial, images.join(format!("{number}.png"))).unwrap();
        !of(daemon, "still").is_empty()
    });
    daemon.wait_until("its end", |daemon| {
        of(daemon, "still").last().is_some_and(|last| last == "here zone end  frames_missing")
    });
    let ended = daemon.terminate();
    ended.daemon.messages("events.jsonl").iter().for_each(assert_valid);
}

#[test]
fn an_event_ends_after_a_crash_although_its_zone_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    let film = film(folder.path());
    let zone = "[[camera.zone]]\nname = \"here\"\nsettle = \"0 s\"\nhold = \"10 s\"\n[camera.annotate]\ndirectory = \"{dir}/images\"\non_event = true\n";
    let with = |rules: &str| {
        let config = config(&film, rules).replace("repeat = false", "repeat = true").replace("fastest", "realtime");
        format!("[events]\ndirectory = \"{{dir}}/state\"\n{config}")
            .replace("{dir}", &folder.path().display().to_string())
    };
    let file = folder.path().join("events.jsonl").display().to_string();
    let mut daemon = Daemon::start(&with(zone));
    daemon.wait_until("a visit", |daemon| daemon.count(&file) > 0);
    daemon.signal(libc::SIGKILL);
    drop(daemon);
    let mut daemon = Daemon::start(&with(""));
    daemon.wait_until("its end", |daemon| {
        told(&daemon.messages(&file)).last().is_some_and(|last| last == "here zone end  restart")
    });
    let ended = daemon.terminate();
    let events = ended.daemon.messages(&file);
    let [begin, end] = [events.first(), events.last()].map(Option::unwrap);
    assert!(begin["image"].is_string());
    assert_eq!((&begin["event"], &begin["image"]), (&end["event"], &end["image"]));
    events.iter().for_each(assert_valid);
}

/// Kills the daemon again and again while eight cameras have events.
#[test]
fn killed_at_any_moment_it_ends_every_event_and_counts_each_once() {
    const CAMERAS: usize = 8;
    // `VISIOND_KILLS=50` makes it a longer run.
    let kills = std::env::var("VISIOND_KILLS").map_or(4, |kills| kills.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let film = film(folder.path());
    let rules = "[[camera.line]]\nname = \"middle\"\npoints = [[0.5, 0.0], [0.5, 1.0]]\nsettle = \"0 s\"\nhold = \"10 s\"\n\
        [[camera.zone]]\nname = \"left\"\npolygon = [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]\nsettle = \"0 s\"\nhold = \"10 s\"\n\
        occupancy = { at_least = 1, lasting = \"0 s\" }\n";
    let one = config(&film, rules).replace("repeat = false", "repeat = true").replace("fastest", "realtime");
    let (before, camera) = one.split_once("[[camera]]").unwrap();
    let (camera, after) = camera.split_once("[[sink]]").unwrap();
    // One has clips of each visit and crossing.
    let clips = "[camera.clips]\ndirectory = \"{dir}/clips\"\nbefore = \"1 s\"\nafter = \"0 s\"\n";
    let with_clips = |n| if n == 0 { clips } else { "" };
    let cameras: String = (0..CAMERAS)
        .map(|n| format!("[[camera]]{}{}", camera.replace("door", &format!("door{n}")), with_clips(n)))
        .collect();
    let config = format!("[events]\ndirectory = \"{{dir}}/state/events\"\n{before}{cameras}[[sink]]{after}")
        .replace("{dir}", &folder.path().display().to_string());
    let file = folder.path().join("events.jsonl").display().to_string();
    let mut daemon = Daemon::start(&config);
    for kill in 0..kills {
        let enough = daemon.count(&file) + 8 + 5 * (kill % 4);
        daemon.wait_until("events", |daemon| daemon.count(&file) >= enough);
        daemon.signal(libc::SIGKILL);
        daemon = Daemon::start(&config);
    }
    let enough = daemon.count(&file) + 20;
    daemon.wait_until("events after the last kill", |daemon| daemon.count(&file) >= enough);
    let stored = || fs::read_dir(folder.path().join("clips")).into_iter().flatten().map(|entry| entry.unwrap().path());
    let is_clip = |path: &Path| path.extension().is_some_and(|extension| extension == "mp4");
    daemon.wait_until("a clip", |_| stored().any(|path| is_clip(&path)));
    let ended = daemon.terminate();
    for path in stored() {
        // A slow machine may not finish the last ones in time.
        assert!(is_clip(&path) || ended.log.contains("not stored in time"), "{} is left", path.display());
    }
    for path in stored().filter(|path| is_clip(path)) {
        assert!(decoded(&path).1 > 0, "{} can be played", path.display());
    }
    let mut ids = BTreeSet::new();
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    // A message that may not have arrived is sent again with the same id.
    let events: Vec<_> =
        ended.daemon.messages(&file).into_iter().filter(|event| ids.insert(text(event, "id"))).collect();
    events.iter().for_each(assert_valid);
    let of = |phase: &str| -> Vec<_> {
        let mut of: Vec<_> =
            events.iter().filter(|event| event["phase"] == phase).map(|event| text(event, "event")).collect();
        of.sort();
        of
    };
    assert_eq!(of("begin"), of("end"), "each begin has one end");
    assert!(events.iter().any(|event| event["reason"] == "restart"));
    let mut totals = BTreeMap::<_, Vec<_>>::new();
    for event in events.iter().filter(|event| event["phase"] == "begin" || event["phase"] == "moment") {
        let rule = ["camera", "rule", "kind", "to"].map(|key| text(event, key));
        totals.entry(rule).or_default().push(event["totals"]["begun"].as_u64().unwrap());
    }
    assert_eq!(totals.keys().map(|rule| &rule[0]).collect::<BTreeSet<_>>().len(), CAMERAS);
    for (rule, totals) in totals {
        assert_eq!(totals, (1..=totals.len() as u64).collect::<Vec<_>>(), "{rule:?} counts each once");
    }
}

#[test]
fn an_event_that_is_under_way_ends_with_the_daemon_its_rule_and_its_tracks() {
    let folder = tempfile::tempdir().unwrap();
    let film = film(folder.path());
    let broker = Mosquitto::start();
    let mqtt = format!("[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1:{}\"\n", broker.port);
    let with = |zones: &str| {
        let config = config(&film, zones).replace("repeat = false", "repeat = true").replace("fastest", "realtime");
        format!("{config}{mqtt}")
    };
    let whole = |name: &str| format!("[[camera.zone]]\nname = \"{name}\"\nhold = \"10 s\"\n");
    let reader = broker.reader("visiond/gate/cameras/door/#", &["-q", "1"]);
    let mut daemon = Daemon::start(&with(&whole("here")));
    let seen = |daemon: &Daemon, wanted: &str| told(&daemon.messages("events.jsonl")).iter().any(|told| told == wanted);
    daemon.wait_until("a visit", |daemon| seen(daemon, "here zone begin"));
    daemon.reconfigure(&with(&whole("there")));
    daemon.wait_until("its end, and another", |daemon| {
        seen(daemon, "here zone end  rule_removed") && seen(daemon, "there zone begin")
    });
    daemon.reconfigure(&with(&whole("there")).replace(
        "classes = [\"person\", \"car\"]\n",
        "classes = [\"person\", \"car\"]\n[[camera.privacy]]\npolygon = [[0, 0], [0.01, 0], [0.01, 0.01]]\n",
    ));
    daemon.wait_until("the end of the old tracks, and new ones", |daemon| {
        let told = told(&daemon.messages("events.jsonl"));
        told.iter().filter(|told| **told == "there zone begin").count() == 2
    });
    assert!(seen(&daemon, "there zone end  camera_gone"));
    let ended = daemon.terminate();
    let events = ended.daemon.messages("events.jsonl");
    assert_eq!(told(&events).last().unwrap(), "there zone end  shutdown");
    let begun: Vec<_> = events.iter().filter(|event| event["phase"] == "begin").map(|event| &event["event"]).collect();
    let over: Vec<_> = events.iter().filter(|event| event["phase"] == "end").map(|event| &event["event"]).collect();
    assert_eq!(begun, over);
    events.iter().for_each(assert_valid);
    let heard = || reader.under("/events").iter().map(Message::json).collect::<Vec<_>>();
    wait_until("the events at the broker", || heard().len() >= events.len());
    assert_eq!(heard(), events);
    assert!(broker.retained("visiond/gate/cameras/door/events").is_empty());
}

#[test]
fn home_assistant_gets_the_totals_of_lines_and_zones() {
    let folder = tempfile::tempdir().unwrap();
    let film = film(folder.path());
    let broker = Mosquitto::start();
    let mqtt = format!(
        "[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1:{}\"\nhome_assistant = true\nmessages = [\"events\"]\n",
        broker.port
    );
    let with = |rules: &str| {
        let config = config(&film, rules).replace("repeat = false", "repeat = true").replace("fastest", "realtime");
        format!("{config}{mqtt}")
    };
    let mut daemon = Daemon::start(&with(RULES));
    let state = || broker.retained("visiond/gate/cameras/door/state").pop().map_or(Value::Null, |state| state.json());
    daemon.wait_until("a visit to the left and the way back", |_| {
        let (lines, zone) = (&state()["lines"]["middle"], &state()["zones"]["left"]);
        lines["west"].as_u64() >= Some(1) && lines["east"].as_u64() >= Some(1) && zone["events"]["zone"]["begun"] == 1
    });
    assert_valid(&state());
    assert_eq!(state()["zones"]["cars"]["inside"], 0);
    let rules = || {
        let kept = broker.retained("homeassistant/#").into_iter();
        kept.filter(|message| message.topic.contains("rule--")).collect::<Vec<_>>()
    };
    // Of each line both sides and the event; of the zones the objects and whether there are any; of `left` its other kind.
    assert_eq!(rules().len(), 2 * 3 + 2 * 2 + 1, "{:?}", rules());
    let crossing = rules().into_iter().find(|message| message.topic.contains("/event/")).unwrap().json();
    assert_eq!(crossing["state_topic"], "visiond/gate/cameras/door/events");
    daemon.reconfigure(&with(""));
    daemon.wait_until("the entities to go", |_| rules().is_empty());
    daemon.wait_until("the totals to go", |_| state().get("lines").is_none() && state().get("zones").is_none());
}
