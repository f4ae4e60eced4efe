//! Models on the detections of other models.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use visiond_tests::onnx::{CropNumbers, of_crop};
use visiond_tests::web::Place;
use visiond_tests::{Daemon, exports, picture, root, run, stderr};

use crate::documents::assert_valid;

/// Width and height of the models' images.
const SIDE: u64 = 32;

/// Writes the models on detections: `tint`, a classifier by the mean colour; `vector`, an embedding of three numbers; `body`, a pose.
fn write_models(folder: &Path) {
    let means = of_crop(CropNumbers::Means, SIDE);
    let body = exports::one_person().into_iter().find(|layout| layout.name == "RTMPose").unwrap().bytes;
    for (name, bytes, card) in [
        (
            "tint",
            &means,
            "[head]\nfamily = \"classifier\"\n[classes]\nnames = [\"red\", \"green\", \"blue\"]\n[detect]\nscore_threshold = 0.0\n",
        ),
        ("vector", &means, "[head]\nfamily = \"embedding\"\n"),
        ("body", &body, "[head]\nfamily = \"pose\"\n[keypoints]\nskeleton = [[0, 1]]\n"),
    ] {
        std::fs::write(folder.join(name).with_extension("onnx"), bytes).unwrap();
        std::fs::write(folder.join(name).with_extension("toml"), card).unwrap();
    }
}

/// A model, with more keys.
fn model(name: &str, path: &Path, keys: &str) -> String {
    format!("[[model]]\nname = \"{name}\"\npath = {path:?}\n{keys}\n")
}

/// A sink, and a camera that reads the sample pictures.
fn pictures(keys: &str) -> String {
    format!(
        "[engine]\nbackend = \"rten\"\nthreads = 1\n[[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n\
         [[camera]]\nname = \"door\"\nsource = {{ type = \"images\", path = \"{{media}}\" }}\n{keys}\n"
    )
}

fn objects(keys: &str) -> String {
    model("objects", &root().join("config/models/nanodet-g-416.onnx"), keys)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The crop of a detection as docs/cascades.md has it: x, y, width, height.
fn crop_of(detection: &Value, frame: [f64; 2], margin: f64, square: bool) -> [f64; 4] {
    let part = |key: &str| number(&detection["box"][key]);
    let mut sides = ["width", "height"].map(|side| part(side) * (1.0 + 2.0 * margin));
    if square {
        sides = [sides[0].max(sides[1]); 2];
    }
    let span = |axis: usize| {
        let middle = part(["x", "y"][axis]) + part(["width", "height"][axis]) / 2.0;
        let first = (middle - sides[axis] / 2.0).floor().max(0.0);
        let end = (middle + sides[axis] / 2.0).ceil().min(frame[axis]);
        let first = first - first % 2.0;
        (first, (end + end % 2.0).min(frame[axis]) - first)
    };
    let ((x, width), (y, height)) = (span(0), span(1));
    [x, y, width, height]
}

/// What `visiond detect` finds in a part of a picture.
fn detect(model: &Path, picture: &str, [x, y, width, height]: [f64; 4]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.png");
    let filter = format!("format=rgb24,crop={width}:{height}:{x}:{y}:exact=1");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-i", picture, "-vf", &filter, "-pix_fmt", "rgb24"]).arg(&cut);
    assert!(ffmpeg.status().unwrap().success(), "{filter}");
    let output =
        run(["detect", "--json", "--backend", "rten", "--model", model.to_str().unwrap(), cut.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let message: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!([number(&message["frame"]["width"]), number(&message["frame"]["height"])], [width, height]);
    message
}

/// Asserts that numbers and words are the same, and positions, in thousandths of a pixel, are `found` from `x`, `y` on.
fn assert_moved(found: &Value, alone: &Value, [x, y, ..]: [f64; 4]) {
    let near = |key: &str, offset: f64| {
        let (found, alone) = (number(&found[key]), number(&alone[key]));
        assert!((found - alone - offset).abs() < 0.002, "{key}: {found} and {alone} from {x}, {y} on");
    };
    near("x", x);
    near("y", y);
    if found["width"].is_number() {
        near("width", 0.0);
        near("height", 0.0);
    }
    // A box has none.
    assert_eq!(found["score"], alone["score"]);
}

#[test]
fn results_on_a_crop_are_those_of_the_model_on_the_picture_cut_out() {
    let models = tempfile::tempdir().unwrap();
    write_models(models.path());
    let path = |name: &str| models.path().join(name).with_extension("onnx");
    let tiny = root().join("tests/vm/tiny.onnx");
    let config = [
        objects(""),
        model("tint", &path("tint"), "on = \"objects\"\nmargin = 0.1"),
        model("vector", &path("vector"), "on = \"objects\"\nsquare = true"),
        model("body", &path("body"), "on = \"objects\""),
        model("bars", &tiny, "on = \"objects\"\nmargin = 0.05"),
        model("bar-tint", &path("tint"), "on = \"bars\"\nmax_batch = 8"),
        pictures(""),
    ];
    let ended = Daemon::start(&config.concat()).finish();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let messages = ended.daemon.messages("out.jsonl");
    let sequences: Vec<_> = messages.iter().map(|message| message["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, [0, 1, 2], "one message for each frame, in their order");
    let (mut bars, mut detections) = (0, 0);
    for message in &messages {
        assert_valid(message);
        assert_eq!(
            (&message["model"]["name"], &message["model"]["skeleton"]),
            (&"objects".into(), &serde_json::json!([[0, 1]]))
        );
        let (file, frame) = (message["frame"]["file"].as_str().unwrap(), &message["frame"]);
        let frame = [number(&frame["width"]), number(&frame["height"])];
        for found in message["detections"].as_array().unwrap() {
            detections += 1;
            let tint = detect(&path("tint"), file, crop_of(found, frame, 0.1, false));
            let best = &tint["detections"][0];
            let attribute = &found["attributes"]["tint"];
            assert_eq!([&attribute["label"], &attribute["score"]], [&best["label"], &best["score"]]);

            let vector = detect(&path("vector"), file, crop_of(found, frame, 0.0, true));
            assert_eq!(found["embedding"], vector["embedding"]);

            let crop = crop_of(found, frame, 0.0, false);
            let body = detect(&path("body"), file, crop);
            let points = body["detections"][0]["keypoints"].as_array().unwrap();
            assert_eq!(found["keypoints"].as_array().unwrap().len(), points.len());
            points
                .iter()
                .zip(found["keypoints"].as_array().unwrap())
                .for_each(|(alone, found)| assert_moved(found, alone, crop));

            let crop = crop_of(found, frame, 0.05, false);
            let alone = detect(&tiny, file, crop);
            let (alone, inner) = (alone["detections"].as_array().unwrap(), found["detections"].as_array());
            assert_eq!(inner.map_or(0, Vec::len), alone.len());
            for (alone, inner) in alone.iter().zip(inner.into_iter().flatten()) {
                bars += 1;
                assert_eq!((&inner["label"], &inner["score"]), (&alone["label"], &alone["score"]));
                assert_eq!(inner["model"], "bars");
                assert_moved(&inner["box"], &alone["box"], crop);
                let tint = detect(&path("tint"), file, crop_of(inner, frame, 0.0, false));
                assert_eq!(inner["attributes"]["bar-tint"]["label"], tint["detections"][0]["label"]);
                assert_eq!(inner["attributes"]["bar-tint"]["score"], tint["detections"][0]["score"]);
            }
        }
    }
    assert!(detections >= 3 && bars > 3, "{detections} detections and {bars} bars");
    assert!(ended.log.contains("model bar-tint: "), "{}", ended.log);
    assert!(ended.log.contains(&format!(", for {bars} detections of bars")), "{}", ended.log);
}

/// A detector that finds the same five objects in every image.
fn write_five(folder: &Path) {
    let layout = exports::layouts().into_iter().find(|layout| layout.name == "Ultralytics").unwrap();
    std::fs::write(folder.join("five.onnx"), layout.bytes).unwrap();
}

#[test]
fn tracks_are_looked_at_twice_a_second_and_keep_their_results_between() {
    let models = tempfile::tempdir().unwrap();
    write_models(models.path());
    write_five(models.path());
    let frames = models.path().join("frames");
    std::fs::create_dir(&frames).unwrap();
    // Four seconds of a recording, at the 25 frames a second that a folder has.
    for number in 0..100 {
        std::fs::copy(picture("astronaut.png"), frames.join(format!("{number:03}.png"))).unwrap();
    }
    let five = model("five", &models.path().join("five.onnx"), "");
    let tint =
        |keys: &str| model("tint", &models.path().join("tint.onnx"), &format!("on = \"five\"\nmax_batch = 8\n{keys}"));
    let camera = |keys: &str| pictures(keys).replace("\"{media}\"", &format!("{frames:?}"));
    let runs = |config: String| {
        let ended = Daemon::start(&config).finish();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        let messages = ended.daemon.messages("out.jsonl");
        assert_eq!(messages.len(), 100);
        for message in &messages {
            let all = message["detections"].as_array().unwrap();
            assert_eq!(all.len(), 5);
            assert!(all.iter().all(|found| found["attributes"]["tint"]["label"].is_string()), "{message}");
        }
        let line = ended.log.lines().find(|line| line.contains("model tint: ") && line.contains(", for ")).unwrap();
        let (_, count) = line.split_once("model tint: ").unwrap();
        count.split_once(' ').unwrap().0.parse::<u32>().unwrap()
    };
    assert_eq!(runs([five.clone(), tint(""), camera("")].concat()), 100, "without tracks, each frame has a run");
    let tracked = runs([five.clone(), tint(""), camera("[camera.track]")].concat());
    assert!((4..=9).contains(&tracked), "{tracked} runs in four seconds");
    let rarely = runs([five, tint("refresh = \"1 min\""), camera("[camera.track]")].concat());
    assert!(rarely <= 2, "{rarely} runs");
}

#[test]
fn a_reload_adds_changes_and_removes_a_model_on_detections() {
    let models = tempfile::tempdir().unwrap();
    write_models(models.path());
    write_five(models.path());
    let five = model("five", &models.path().join("five.onnx"), "");
    let with = |more: &str| {
        format!(
            "[http]\nlisten = [\"127.0.0.1:0\", \"unix:{{dir}}/http.sock\"]\n{five}{more}{}",
            pictures("").replace("path = \"{media}\" }", "path = \"{media}\", repeat = true, fps = 20 }")
        )
    };
    let tint = |keys: &str| model("tint", &models.path().join("tint.onnx"), &format!("on = \"five\"\n{keys}"));
    let mut daemon = Daemon::start(&with(""));
    let place = Place::address(&mut daemon);
    let newest = |daemon: &Daemon| daemon.messages("out.jsonl").pop().unwrap_or_default()["detections"].clone();
    let labelled = |detections: &Value| {
        detections
            .as_array()
            .is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["attributes"]["tint"].is_object()))
    };
    daemon.wait_until("a message", |daemon| newest(daemon).is_array());
    assert!(!labelled(&newest(&daemon)));

    daemon.reconfigure(&with(&tint("")));
    daemon.wait_for_log("model five loaded again, model tint added, camera door opened again");
    daemon.wait_until("labels", |daemon| labelled(&newest(daemon)));
    let model_status = || {
        let status = place.get("/api/v1/status").json();
        assert_valid(&status);
        status["models"].as_array().unwrap().iter().find(|model| model["name"] == "tint").cloned().unwrap_or_default()
    };
    let status = model_status();
    assert_eq!(status["on"], "five");
    assert!(status["crops"].as_u64() >= Some(5) && status["crops_left_out"] == 0, "{status}");

    daemon.reconfigure(&with(&tint("max_crops = 2")));
    daemon.wait_for_log("model five loaded again, model tint loaded again");
    assert_eq!(daemon.log().matches("camera door opened again").count(), 1, "{}", daemon.log());
    daemon.wait_until("the fewer crops", |daemon| {
        let all = newest(daemon);
        all.as_array().is_some_and(|all| all.iter().filter(|one| one["attributes"].is_object()).count() == 2)
    });
    daemon.wait_until("counts of the others", |_| model_status()["crops_left_out"].as_u64() >= Some(3));
    let metrics = place.get("/metrics").text();
    assert!(metrics.contains("visiond_model_crops_left_out_total{model=\"tint\"} "), "{metrics}");
    assert!(model_status()["crops"].as_u64() > status["crops"].as_u64(), "counts go on");

    // A model that is refused changes nothing.
    daemon.reconfigure(&with(&model("tint", &models.path().join("none.onnx"), "on = \"five\"")));
    daemon.wait_for_log("model tint: no model at");
    daemon.reconfigure(&with(""));
    daemon.wait_until("no labels", |daemon| {
        newest(daemon)
            .as_array()
            .is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["attributes"].is_null()))
    });
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let sequences: Vec<_> =
        ended.daemon.messages("out.jsonl").iter().map(|m| m["sequence"].as_u64().unwrap()).collect();
    assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "{sequences:?}");
}

#[test]
fn cascades_that_cannot_be_are_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    write_models(folder.path());
    let path = |name: &str| folder.path().join(name).with_extension("onnx");
    let camera = "[engine]\nbackend = \"rten\"\n[[camera]]\nname = \"a\"\nsource.type = \"pattern\"\n[[sink]]\ntype = \"stdout\"\n";
    let tint = model("tint", &path("tint"), "on = \"objects\"");
    for (models, words) in [
        (
            model("tint", &path("tint"), "") + &model("more", &path("vector"), "on = \"tint\""),
            "model more: cannot run on the detections of model tint, which finds no objects: name a detector as `on`",
        ),
        (
            objects("")
                + &model("v", &path("vector"), "on = \"objects\"")
                + &model("w", &path("vector"), "on = \"objects\""),
            "model w: cannot give the detections of model objects an embedding, because model v does: remove one of them",
        ),
        (objects("") + &tint.replace("objects", "people"), "no model has the name \"people\""),
        (objects("on = \"tint\"") + &tint, "models \"objects\", \"tint\" run on each other's detections"),
        (
            objects("") + &tint + "on_classes = [\"persn\"]\n",
            "model objects does not have the class `persn`: did you mean `person`?",
        ),
    ] {
        let file = folder.path().join("v.toml");
        std::fs::write(&file, models + camera).unwrap();
        let output = run(["check", file.to_str().unwrap()]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(words), "{words}: {text}");
        if !words.contains("persn") {
            assert_eq!(output.status.code(), Some(3), "{text}");
        }
    }
}
