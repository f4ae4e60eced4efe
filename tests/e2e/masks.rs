//! Masks of objects, from an export with Ultralytics' metadata to the message and the annotated picture.

use std::fs;
use std::path::Path;

use serde_json::Value;
use visiond_tests::networks::{NOISY, network};
use visiond_tests::{Daemon, assert_no_panic, backends, command, json_lines, picture, stderr};

/// Runs `visiond detect` with more arguments on an image, in a folder with the network; returns the detections.
fn detections(folder: &Path, backend: &str, more: &[&str]) -> Vec<Value> {
    let picture = picture("chelsea.png");
    let arguments = ["detect", "--json", "--backend", backend, "--model", "net.onnx", "--score-threshold", "0.5"];
    let output = command().args(arguments).args(more).arg(picture).current_dir(folder).output().unwrap();
    assert_no_panic(&stderr(&output));
    assert!(output.status.success(), "{}", stderr(&output));
    json_lines(&output.stdout)[0]["detections"].as_array().unwrap().clone()
}

/// The area inside rings by the even-odd rule. No ring crosses another; rings inside others run in the opposite direction.
fn area(rings: &Value) -> f64 {
    let ring = |ring: &Value| {
        let numbers: Vec<f64> = ring.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
        let corners = numbers.as_chunks::<2>().0;
        let next = corners.iter().cycle().skip(1);
        corners.iter().zip(next).map(|([x1, y1], [x2, y2])| x1 * y2 - x2 * y1).sum::<f64>() / 2.0
    };
    rings.as_array().unwrap().iter().map(ring).sum::<f64>().abs()
}

/// How many pixels COCO's run lengths mark. A run is written in groups of five bits, lowest first, with a sixth for "more
/// follows"; from the third run on, it is the difference from the one two places before.
fn counted(rle: &Value) -> u64 {
    let mut runs: Vec<i64> = Vec::new();
    let (mut value, mut shift) = (0_i64, 0);
    for byte in rle["counts"].as_str().unwrap().bytes() {
        let bits = i64::from(byte) - 48;
        value |= (bits & 0x1f) << shift;
        shift += 5;
        if bits & 0x20 == 0 {
            if bits & 0x10 != 0 {
                value |= -1 << shift;
            }
            let before = if runs.len() > 2 { runs[runs.len() - 2] } else { 0 };
            runs.push(value + before);
            (value, shift) = (0, 0);
        }
    }
    let pixels = rle["size"][0].as_i64().unwrap() * rle["size"][1].as_i64().unwrap();
    assert_eq!(runs.iter().sum::<i64>(), pixels, "the runs cover the frame");
    runs.iter().skip(1).step_by(2).sum::<i64>() as u64
}

#[test]
fn a_segmentation_model_needs_no_card_and_tells_masks_in_the_forms_that_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.onnx"), network("ultralytics-segment")).unwrap();
    for backend in backends() {
        let both = detections(folder.path(), backend, &["--masks", "both"]);
        assert!(both.len() >= 4, "{backend}: {} detections", both.len());
        let mut pixels = 0;
        for found in &both {
            let own_pixels = found["area"].as_u64().unwrap();
            assert_eq!(counted(&found["mask"]["rle"]), own_pixels, "{backend}");
            assert_eq!(found["mask"]["rle"]["size"], serde_json::json!([300, 451]));
            let polygons = area(&found["segments"]);
            assert!(
                (polygons - own_pixels as f64).abs() <= 0.02 * own_pixels as f64,
                "{backend}: {polygons} of {own_pixels}"
            );
            let bounds = &found["box"];
            let inside = bounds["width"].as_f64().unwrap().ceil() * bounds["height"].as_f64().unwrap().ceil();
            assert!(own_pixels as f64 <= inside + 1.0, "{backend}: {own_pixels} pixels in a box of {inside}");
            pixels += own_pixels;
        }
        assert!(pixels > 1000, "{backend}: {pixels} pixels");
        // Each form alone gives the same, and polygons are the default.
        let strip = |keys: &[&str]| {
            let mut some = both.clone();
            for found in &mut some {
                keys.iter().for_each(|key| drop(found.as_object_mut().unwrap().remove(*key)));
            }
            some
        };
        assert_eq!(detections(folder.path(), backend, &[]), strip(&["mask"]), "{backend}");
        assert_eq!(detections(folder.path(), backend, &["--masks", "polygons"]), strip(&["mask"]), "{backend}");
        assert_eq!(detections(folder.path(), backend, &["--masks", "rle"]), strip(&["segments"]), "{backend}");
        let none = detections(folder.path(), backend, &["--masks", "none"]);
        assert_eq!(none, strip(&["area", "segments", "mask"]), "{backend}");
    }
}

#[test]
fn masks_are_drawn_on_annotated_pictures() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.onnx"), network("ultralytics-segment")).unwrap();
    let drawn = |masks: &str| {
        let out = folder.path().join(masks);
        detections(folder.path(), "rten", &["--masks", masks, "--annotate", out.to_str().unwrap()]);
        fs::read(out.join("chelsea-annotated.jpg")).unwrap()
    };
    assert_ne!(drawn("polygons"), drawn("none"));
}

/// Run lengths, because they are the cheapest in a debug build.
const NOISY_CONFIG: &str = r#"
[engine]
backend = "rten"
threads = 1

[[model]]
name = "noisy"
path = "{dir}/net.onnx"
masks = "rle"

[[camera]]
name = "door"
source = { type = "pattern", width = 640, height = 480, fps = 10 }

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;

#[test]
fn masks_of_noise_leave_boxes_and_neither_hold_up_the_end_nor_cost_a_message() {
    let mut daemon = Daemon::start_with(NOISY_CONFIG, |command| {
        let config = Path::new(command.get_args().last().unwrap());
        let folder = config.parent().unwrap().to_owned();
        fs::write(folder.join("net.onnx"), network("noisy-masks")).unwrap();
        command.arg("--summary-json").arg(folder.join("summary.json"));
    });
    daemon.wait_until("some messages", |daemon| daemon.count("out.jsonl") > 3);
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!ended.log.contains("shutdown did not finish"), "{}", ended.log);
    let messages = ended.daemon.messages("out.jsonl");
    let mut truncated = 0;
    for message in &messages {
        let detections = message["detections"].as_array().unwrap();
        assert_eq!(detections.len() as u64, NOISY);
        for found in detections {
            let is_truncated = found.get("truncated") == Some(&Value::Bool(true));
            assert_eq!(found.get("mask").is_none(), is_truncated, "either the mask or the word");
            assert!(found["area"].as_u64() > Some(10_000) && found["box"]["width"] == 640.0, "{found}");
            truncated += u64::from(is_truncated);
        }
        assert!(detections[0].get("mask").is_some() && detections.last().unwrap().get("mask").is_none());
    }
    let summary: Value = serde_json::from_slice(&fs::read(ended.daemon.path("summary.json")).unwrap()).unwrap();
    let camera = &summary["cameras"][0];
    assert_eq!(camera["published"], messages.len(), "each message that was published is in the file");
    assert_eq!(camera["truncated_masks"], truncated);
    assert!(ended.log.contains("the outlines of its masks are too much for a message: "), "{}", ended.log);
}
