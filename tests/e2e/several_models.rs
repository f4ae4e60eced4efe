//! Several models on one camera.

use serde_json::Value;
use visiond_tests::mosquitto::Mosquitto;
use visiond_tests::web::Place;
use visiond_tests::{Daemon, root, wait_until};

use crate::documents::assert_valid;

/// Two models: a detector, and one that finds the eight colours of the test pattern.
fn models() -> String {
    let tiny = root().join("tests/vm/tiny.onnx");
    format!(
        "[device]\nname = \"gate\"\n[engine]\nbackend = \"rten\"\nthreads = 1\n[[model]]\nname = \"nanodet\"\npath = \"{{model}}\"\n\
         [[model]]\nname = \"tiny\"\npath = \"{}\"\n[[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n",
        tiny.display()
    )
}

/// A camera that reads the sample pictures, and waits for its models.
fn pictures(models: &str) -> String {
    let source = format!("{{ type = \"images\", path = \"{}\" }}", root().join("tests/media").display());
    format!("[[camera]]\nname = \"pictures\"\nsource = {source}\n{models}\n")
}

fn pattern(models: &str, more: &str) -> String {
    let source = format!("{{ type = \"pattern\", width = 128, height = 64, fps = 20.0{more} }}");
    format!("[[camera]]\nname = \"door\"\nsource = {source}\n{models}\n")
}

/// Runs a camera to its end; returns its messages and the log.
fn run(camera: &str) -> (Vec<Value>, String) {
    let ended = Daemon::start(&format!("{}{camera}", models())).finish();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    (ended.daemon.messages("out.jsonl"), ended.log)
}

fn of_model<'m>(messages: &'m [Value], model: &str) -> Vec<&'m Value> {
    messages.iter().filter(|message| message["model"]["name"] == model).collect()
}

/// The number and the detections of each frame, to the last digit.
fn results(messages: &[Value], model: &str) -> Vec<String> {
    of_model(messages, model).iter().map(|m| format!("{} {}", m["sequence"], m["detections"])).collect()
}

#[test]
fn two_models_on_a_camera_find_exactly_what_each_finds_alone() {
    let (both, log) = run(&pictures("models = [\"nanodet\", \"tiny\"]"));
    for model in ["nanodet", "tiny"] {
        let (alone, _) = run(&pictures(&format!("model = \"{model}\"")));
        let found = results(&both, model);
        assert_eq!(found, results(&alone, model));
        assert_eq!(found.len(), 3, "no frame of a source that waits is dropped");
        assert!(found.iter().any(|frame| frame.contains("\"box\"")), "{found:?}");
    }
    // Each frame is captured once.
    assert!(log.contains("camera pictures: 3 frames for 2 models, 6 results"), "{log}");
    assert!(log.contains("  model nanodet: 3 frames processed, none dropped, detections: "), "{log}");
    both.iter().for_each(assert_valid);
}

#[test]
fn each_model_of_a_camera_has_frames_and_detections_of_its_own_choice() {
    let (all, _) = run(&pictures("models = [\"nanodet\"]"));
    let detections = |messages: &[Value]| {
        let all = of_model(messages, "nanodet").into_iter().flat_map(|m| m["detections"].as_array().unwrap().clone());
        all.collect::<Vec<_>>()
    };
    let side = |detection: &Value| {
        let side = |name: &str| detection["box"][name].as_f64().unwrap();
        side("width").max(side("height"))
    };
    let all = detections(&all);
    let label = all[0]["label"].as_str().unwrap();
    for (setting, keeps) in [
        (format!("classes = [\"{label}\"]"), Box::new(|d: &Value| d["label"] == label) as Box<dyn Fn(&Value) -> bool>),
        ("score_threshold = 0.6".to_owned(), Box::new(|d: &Value| d["score"].as_f64().unwrap() >= 0.6)),
        ("min_size = 460".to_owned(), Box::new(move |d: &Value| side(d) >= 460.0)),
        ("max_size = 500".to_owned(), Box::new(move |d: &Value| side(d) <= 500.0)),
    ] {
        let (some, _) = run(&pictures(&format!("models = [\"tiny\", {{ name = \"nanodet\", {setting} }}]")));
        let wanted: Vec<_> = all.iter().filter(|detection| keeps(detection)).cloned().collect();
        assert!(!wanted.is_empty(), "{setting}");
        assert_eq!(detections(&some), wanted, "{setting}");
    }
    let (some, log) = run(&pictures("models = [\"nanodet\", { name = \"tiny\", every = 2 }]"));
    let sequences: Vec<_> = of_model(&some, "tiny").iter().map(|m| m["sequence"].as_u64().unwrap()).collect();
    assert_eq!((sequences, of_model(&some, "nanodet").len()), (vec![0, 2], 3));
    assert!(log.contains("  model tiny: 2 frames processed, dropped 1 (skipped 1)"), "{log}");
    // One frame in a thousand seconds.
    let (some, _) = run(&pattern("models = [\"tiny\", { name = \"nanodet\", max_fps = 0.001 }]", ", max_frames = 6"));
    assert_eq!(of_model(&some, "nanodet").len(), 1);
    assert!(of_model(&some, "tiny").len() > 1);
}

#[test]
fn a_slow_model_drops_its_own_frames_only() {
    let http = "[http]\nlisten = [\"127.0.0.1:0\", \"unix:{dir}/http.sock\"]\n";
    let camera = pattern("models = [\"nanodet\", \"tiny\"]", "").replace("fps = 20.0", "fps = 100.0");
    let mut daemon = Daemon::start(&format!("{}{http}{camera}", models()));
    let place = Place::address(&mut daemon);
    let status = || place.get("/api/v1/cameras/door").json();
    let model = |name: &str| {
        let models = status()["models"].as_array().unwrap().clone();
        models.into_iter().find(|model| model["name"] == name).unwrap()
    };
    daemon.wait_until("drops of the slow one", |_| {
        model("nanodet")["dropped"]["overload"].as_u64() >= Some(50)
            && model("nanodet")["published"].as_u64() >= Some(2)
    });
    let (slow, fast, camera) = (model("nanodet"), model("tiny"), status());
    let count = |of: &Value| of.as_u64().unwrap();
    assert!(count(&fast["published"]) > 2 * count(&slow["published"]), "{fast} {slow}");
    assert!(count(&fast["dropped"]["overload"]) < count(&slow["dropped"]["overload"]), "{fast} {slow}");
    assert_eq!((&camera["copied_bytes"], &camera["model"]), (&0.into(), &"nanodet, tiny".into()));
    let newest =
        |query: &str| place.get(&format!("/api/v1/cameras/door/detections{query}")).json()["model"]["name"].clone();
    assert_eq!([newest(""), newest("?model=tiny")], ["nanodet", "tiny"]);
    assert_eq!(place.get("/api/v1/detections").json().as_array().unwrap().len(), 2);
    let metrics = place.get("/metrics").text();
    for line in [
        "visiond_camera_model_frames_total{camera=\"door\",model=\"tiny\",outcome=\"published\"} ",
        "visiond_camera_model_frames_dropped_total{camera=\"door\",model=\"nanodet\",cause=\"overload\"} ",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn further_models_have_topics_and_entities_of_their_own() {
    let broker = Mosquitto::start();
    let reader = broker.reader("visiond/gate/#", &[]);
    let mqtt = |models: &str| {
        format!(
            "{}[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1:{}\"\nretain = true\nhome_assistant = true\n\
             count_labels = [\"person\", \"red\"]\n{}",
            self::models(),
            broker.port,
            pattern(models, "")
        )
    };
    let ids = || {
        let entities = broker.retained("homeassistant/#");
        let mut ids: Vec<_> = entities.iter().map(|one| one.json()["unique_id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    let mut daemon = Daemon::start(&mqtt("models = [\"nanodet\"]"));
    daemon.wait_until("its entities", |_| ids().len() == 5);
    let before = ids();

    daemon.reconfigure(&mqtt("models = [\"nanodet\", \"tiny\"]"));
    daemon.wait_until("messages of both", |_| {
        !reader.under("/tiny/detections").is_empty() && !reader.under("/door/detections").is_empty()
    });
    let topics = |model: &str| {
        let of_model = reader.under("/detections").into_iter().filter(|m| m.json()["model"]["name"] == model);
        let mut topics: Vec<_> = of_model.map(|message| message.topic).collect();
        topics.dedup();
        topics
    };
    assert_eq!(topics("nanodet"), ["visiond/gate/cameras/door/detections"]);
    assert_eq!(topics("tiny"), ["visiond/gate/cameras/door/tiny/detections"]);
    wait_until("the state of both", || {
        let states = reader.under("/state");
        states.last().is_some_and(|state| state.json()["models"]["tiny"]["counts"]["red"] == 1)
    });
    reader.under("/state").iter().for_each(|state| assert_valid(&state.json()));
    let new = || ids().into_iter().filter(|id| !before.contains(id)).collect::<Vec<_>>();
    daemon.wait_until("more entities", |_| ids().len() == 7);
    assert_eq!(new(), ["visiond_gate_door_model_tiny_count_red", "visiond_gate_door_model_tiny_detections"]);

    daemon.reconfigure(&mqtt("models = [\"nanodet\"]"));
    daemon.wait_until("the first entities", |_| ids() == before);
    daemon.wait_until("its topic to be cleared", |_| {
        !broker.retained("visiond/gate/#").iter().any(|message| message.topic.ends_with("/tiny/detections"))
    });
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

/// The topics of detections that the broker retains.
fn retained_detections(broker: &Mosquitto) -> Vec<String> {
    let retained = broker.retained("visiond/gate/#").into_iter().map(|message| message.topic);
    let mut topics: Vec<_> = retained.filter(|topic| topic.ends_with("/detections")).collect();
    topics.sort();
    topics
}

/// A camera whose messages the broker retains.
fn retaining(broker: &Mosquitto, models: &str, more: &str) -> String {
    format!(
        "{}[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1:{}\"\nretain = true\n{more}{}",
        self::models(),
        broker.port,
        pattern(models, "")
    )
}

const BOTH_TOPICS: [&str; 2] = ["visiond/gate/cameras/door/detections", "visiond/gate/cameras/door/tiny/detections"];

#[test]
fn the_topic_of_a_model_that_was_removed_while_visiond_was_stopped_is_cleared_at_the_next_start() {
    let broker = Mosquitto::start();
    let mut daemon = Daemon::start(&retaining(&broker, "models = [\"nanodet\", \"tiny\"]", ""));
    daemon.wait_until("retained messages of both", |_| retained_detections(&broker) == BOTH_TOPICS);
    assert_eq!(daemon.terminate().status.code(), Some(0));
    assert_eq!(retained_detections(&broker), BOTH_TOPICS, "they stay while visiond is stopped");

    let mut daemon = Daemon::start(&retaining(&broker, "models = [\"nanodet\"]", ""));
    daemon.wait_until("the removed model's topic to be cleared", |_| retained_detections(&broker) == BOTH_TOPICS[..1]);
    assert_eq!(daemon.terminate().status.code(), Some(0));
}

#[test]
fn a_message_that_max_rate_held_back_brings_no_topic_of_a_removed_model_back() {
    let broker = Mosquitto::start();
    let reader = broker.reader("visiond/gate/cameras/door/tiny/detections", &[]);
    // The first message of a model passes; the newest of the others waits for 1000 s, or for the end.
    let held = "max_rate = 0.001\n";
    let mut daemon = Daemon::start(&retaining(&broker, "models = [\"nanodet\", \"tiny\"]", held));
    daemon.wait_until("a message that is held back", |daemon| {
        of_model(&daemon.messages("out.jsonl"), "tiny").len() >= 2 && retained_detections(&broker) == BOTH_TOPICS
    });
    daemon.reconfigure(&retaining(&broker, "models = [\"nanodet\"]", held));
    daemon.wait_until("the topic to be cleared", |_| retained_detections(&broker) == BOTH_TOPICS[..1]);
    assert_eq!(daemon.terminate().status.code(), Some(0));
    wait_until("the message at the end", || {
        reader.messages().iter().filter(|message| !message.payload.is_empty()).count() == 2
    });
    assert_eq!(retained_detections(&broker), BOTH_TOPICS[..1]);
}

#[test]
fn a_grouped_camera_sends_one_message_per_frame_with_what_each_model_finds_alone() {
    let (grouped, log) = run(&pictures("models = [\"nanodet\", \"tiny\"]\ngroup = true"));
    let sequences: Vec<_> = grouped.iter().map(|message| message["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, [0, 1, 2], "in order, and one of each: {log}");
    for model in ["nanodet", "tiny"] {
        let (alone, _) = run(&pictures(&format!("model = \"{model}\"")));
        for (message, alone) in grouped.iter().zip(&alone) {
            let mut own = message["detections"].as_array().unwrap().clone();
            own.retain(|detection| detection["model"] == model);
            own.iter_mut().for_each(|detection| drop(detection.as_object_mut().unwrap().remove("model")));
            assert_eq!(Value::from(own), alone["detections"], "{model}");
        }
    }
    for message in &grouped {
        assert_valid(message);
        let names: Vec<_> = message["models"].as_array().unwrap().iter().map(|model| model["name"].clone()).collect();
        assert_eq!((names, &message["model"]["name"]), (vec!["nanodet".into(), "tiny".into()], &"nanodet".into()));
        let scores: Vec<_> =
            message["detections"].as_array().unwrap().iter().map(|d| d["score"].as_f64().unwrap()).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    }
}

#[test]
fn a_group_does_not_wait_for_a_slow_model_that_dropped_the_frame() {
    let http = "[http]\nlisten = [\"127.0.0.1:0\", \"unix:{dir}/http.sock\"]\n";
    let camera = pattern("models = [\"nanodet\", \"tiny\"]\ngroup = true\ngroup_timeout = \"10 s\"", "");
    let mut daemon = Daemon::start(&format!("{}{http}{camera}", models()));
    let place = Place::address(&mut daemon);
    let models_of = |message: &Value| message["models"].as_array().unwrap().len();
    daemon.wait_until("frames of one and of both", |daemon| {
        let messages = daemon.messages("out.jsonl");
        let of_both = messages.iter().filter(|message| models_of(message) == 2).count();
        of_both >= 2 && messages.len() - of_both >= 20
    });
    let camera = place.get("/api/v1/cameras/door").json();
    assert!(camera["incomplete_groups"].as_u64() >= Some(20), "{camera}");
    let newest =
        |query: &str| place.get(&format!("/api/v1/cameras/door/detections{query}")).json()["model"]["name"].clone();
    assert_eq!([newest(""), newest("?model=tiny")], ["nanodet", "tiny"], "each model's own message");
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let messages = ended.daemon.messages("out.jsonl");
    let sequences: Vec<_> = messages.iter().map(|message| message["sequence"].as_u64().unwrap()).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b), "in order, and never two of one frame: {sequences:?}");
    messages.iter().for_each(assert_valid);
}

#[test]
fn grouped_messages_have_one_topic_and_those_of_the_models_are_cleared() {
    let broker = Mosquitto::start();
    let models = "models = [\"nanodet\", \"tiny\"]";
    let mut daemon = Daemon::start(&retaining(&broker, models, ""));
    daemon.wait_until("retained messages of both", |_| retained_detections(&broker) == BOTH_TOPICS);
    daemon.reconfigure(&retaining(&broker, &format!("{models}\ngroup = true"), ""));
    daemon.wait_until("a joined message alone", |_| {
        let retained = broker.retained(BOTH_TOPICS[0]);
        retained_detections(&broker) == BOTH_TOPICS[..1] && retained.iter().any(|one| one.json()["models"].is_array())
    });
    // States and entities remain those of each model.
    wait_until("the state of both", || {
        let states = broker.retained("visiond/gate/cameras/door/state");
        states.iter().any(|state| state.json()["models"]["tiny"]["counts"]["red"] == 1)
    });
    assert_eq!(daemon.terminate().status.code(), Some(0));
}
