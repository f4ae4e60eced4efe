//! Recordings: their contents, and the cost when there is none.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use visiond_message::Timings;
use visiond_message::testing::door_message as message;

use super::*;

fn json(trace: &Trace) -> Vec<Value> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    let mut whole: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(whole["otherData"]["events_lost"], trace.lost);
    whole["traceEvents"].as_array_mut().unwrap().drain(..).collect()
}

fn of<'a>(events: &'a [Value], ph: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == ph).collect()
}

/// The recorder is the process's: one test does all that records. Other tests' cameras, lanes and sinks may run beside it
/// and are recorded with it, so what is looked for has names that only this test says.
#[test]
fn a_recording_holds_what_threads_do_follows_frames_and_is_bounded() {
    let camera: Arc<str> = "door \"1\"".into();
    drop(work_on("test before", &camera, 1));
    let recording = start().unwrap();
    assert_eq!(start().unwrap_err(), Busy);
    let capture = {
        let camera = Arc::clone(&camera);
        std::thread::Builder::new().name("camera door".into()).spawn(move || drop(work_on("test deliver", &camera, 7)))
    };
    capture.unwrap().join().unwrap();
    {
        let begin = work("test begin");
        begin.frame(&camera, 7);
        drop(work("test preprocess"));
    }
    let end_ns = SystemClock.monotonic_ns();
    let timings_us =
        Timings { capture: 1_000, queue: 2_000, preprocess: 500, infer: 3_000, postprocess: 100, total: 9_000 };
    let seen = message(7, 0).as_ref().clone();
    let monotonic_ns = end_ns - 9_000_000;
    frame(&Message { topic: Arc::clone(&camera), monotonic_ns, timings_us, ..seen }, end_ns);
    std::thread::spawn({
        let camera = Arc::clone(&camera);
        move || {
            logging::about(Subject::Sink, "events");
            drop(work_on("test write", &camera, 7));
        }
    })
    .join()
    .unwrap();
    let trace = recording.finish();
    drop(work_on("test after", &camera, 8));

    let events = json(&trace);
    let ours = |event: &&Value| event["name"].as_str().unwrap().starts_with("test ");
    let slices: Vec<_> = of(&events, "X").into_iter().filter(ours).collect();
    let names: Vec<_> = slices.iter().map(|slice| slice["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["test deliver", "test preprocess", "test begin", "test write"],
        "in the order in which they ended"
    );
    assert!(!events.iter().any(|event| event["name"] == "test before" || event["name"] == "test after"));
    assert_eq!(slices[0]["args"], serde_json::json!({"camera": "door \"1\"", "frame": 7}));
    let (inner, outer) = (slices[1], slices[2]);
    let span = |slice: &Value| {
        let from = slice["ts"].as_f64().unwrap();
        (from, from + slice["dur"].as_f64().unwrap())
    };
    assert!(span(outer).0 <= span(inner).0 && span(inner).1 <= span(outer).1 + 1e-3);

    let threads: Vec<_> = of(&events, "M").iter().map(|entry| entry["args"]["name"].as_str().unwrap()).collect();
    assert!(threads.contains(&"visiond") && threads.contains(&"camera door") && threads.contains(&"sink events"));

    // The arrow goes from the camera's thread over the lane's to the sink's, at an instant inside each one's slice.
    // Lanes of other tests may run beside this one.
    let id = &events.iter().find(|event| event["ph"] == "b" && event["name"] == *camera).unwrap()["id"];
    // The CRC-32 of the camera's name, as zlib computes it, and the frame's number.
    assert_eq!(id, "0xbe0b38e200000007");
    let of = |ph: &str| of(&events, ph).into_iter().filter(|event| event["id"] == *id).collect::<Vec<_>>();
    let arrows: Vec<_> = ["s", "t", "f"].into_iter().flat_map(of).collect();
    assert_eq!(["s", "t", "f"].map(|ph| of(ph).len()), [1; 3], "it begins, goes on and ends");
    assert_eq!(arrows.iter().map(|arrow| arrow["bp"].as_str()).collect::<Vec<_>>(), [None, None, Some("e")]);
    for (arrow, slice) in arrows.iter().zip([slices[0], slices[2], slices[3]]) {
        assert_eq!(arrow["tid"], slice["tid"]);
        let (from, to) = span(slice);
        let at = arrow["ts"].as_f64().unwrap();
        assert!(from <= at && at <= to);
    }

    // The frame encloses its stages, which do not overlap.
    let begins: Vec<_> = of("b").iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(begins, ["door \"1\"", "capture", "queue", "preprocess", "infer", "postprocess"]);
    let ends: Vec<_> = of("e").iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(ends, ["capture", "queue", "preprocess", "infer", "postprocess", "door \"1\""]);
    let at = |ph: &str, name: &str| {
        of(ph).into_iter().find(|event| event["name"] == name).and_then(|event| event["ts"].as_f64()).unwrap()
    };
    for (name, us) in [
        ("capture", 1_000.0),
        ("queue", 2_000.0),
        ("preprocess", 500.0),
        ("infer", 3_000.0),
        ("postprocess", 100.0),
        ("door \"1\"", 9_000.0),
    ] {
        assert!((at("e", name) - at("b", name) - us).abs() < 0.01, "{name}");
    }
    assert_eq!(at("e", "capture"), at("b", "queue"));

    // Two models share the delivery of a frame, and nothing else.
    let recording = start().unwrap();
    let topics: [Arc<str>; 2] = ["test yard".into(), "test yard/plates".into()];
    drop(work_on(DELIVER, &topics[0], 3));
    for topic in &topics {
        let seen = message(3, 0).as_ref().clone();
        let end_ns = SystemClock.monotonic_ns();
        drop(work_on("test read", topic, 3));
        frame(&Message { topic: Arc::clone(topic), monotonic_ns: end_ns, ..seen }, end_ns);
    }
    let events = json(&recording.finish());
    let ids = topics.iter().map(|topic| {
        let begins = |event: &&Value| event["ph"] == "b" && event["name"] == **topic;
        let found: Vec<_> = events.iter().filter(begins).collect();
        assert_eq!(found.len(), 1, "{topic}");
        found[0]["id"].clone()
    });
    let ids: Vec<_> = ids.collect();
    assert_ne!(ids[0], ids[1]);
    for id in ids {
        let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph && event["id"] == id).count();
        assert_eq!(["s", "t", "f", "b", "e"].map(of), [1, 0, 1, 6, 6], "from its delivery to its model");
    }
    let read = events.iter().rfind(|event| event["name"] == "test read").unwrap();
    assert_eq!(read["args"], serde_json::json!({"camera": "test yard", "model": "plates", "frame": 3}));

    let recording = start().unwrap();
    for sequence in 0..MOST_EVENTS as u64 + 10 {
        drop(work_on("write", &camera, sequence));
    }
    let trace = recording.finish();
    assert!(trace.events.len() == MOST_EVENTS && trace.lost >= 10);
    drop(start().unwrap());
    assert!(start().is_ok(), "a recording that is given up is over");
}
