//! The boxes equal those of onnxruntime with OpenCV's preprocessing: class, place and score.
//!
//! `tests/golden/agreement.py --write` made the golden detections; the same script compares any other files.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;
use visiond_tests::{backends, json_lines, picture, root, run, stderr, video};

const SCORE: f64 = 0.3;
const IOU: f64 = 0.98;
const SCORE_ERROR: f64 = 0.01;

#[derive(Debug, Clone, Copy)]
struct Seen {
    class_id: u64,
    score: f64,
    corners: [f64; 4],
}

fn overlap(a: [f64; 4], b: [f64; 4]) -> f64 {
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let area = |r: [f64; 4]| (r[2] - r[0]) * (r[3] - r[1]);
    width * height / (area(a) + area(b) - width * height)
}

fn agrees(a: &Seen, b: &Seen) -> bool {
    a.class_id == b.class_id && overlap(a.corners, b.corners) >= IOU && (a.score - b.score).abs() <= SCORE_ERROR
}

fn golden(file: &str) -> Vec<Vec<Seen>> {
    let text = std::fs::read_to_string(root().join("tests/golden/nanodet.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let number = |v: &Value| v.as_f64().unwrap();
    let seen = |d: &Value| Seen {
        class_id: d[0].as_u64().unwrap(),
        score: number(&d[1]),
        corners: [2, 3, 4, 5].map(|i| number(&d[i])),
    };
    let frames = all["files"][file].as_array().unwrap();
    frames.iter().map(|frame| frame.as_array().unwrap().iter().map(seen).collect()).collect()
}

fn ours(message: &Value) -> Vec<Seen> {
    let number = |v: &Value| v.as_f64().unwrap();
    let seen = |d: &Value| {
        let (x, y) = (number(&d["box"]["x"]), number(&d["box"]["y"]));
        let corners = [x, y, x + number(&d["box"]["width"]), y + number(&d["box"]["height"])];
        Seen { class_id: d["class_id"].as_u64().unwrap(), score: number(&d["score"]), corners }
    };
    message["detections"].as_array().unwrap().iter().map(seen).collect()
}

/// Asserts that each item of `wanted` has its own counterpart in `found`.
fn assert_all_in(wanted: impl Iterator<Item = Seen>, found: &[Seen], place: &str) {
    let mut free = found.to_vec();
    for d in wanted {
        let Some(at) = free.iter().position(|e| agrees(&d, e)) else {
            panic!("{place}: {d:?} has no counterpart in {found:?}");
        };
        free.swap_remove(at);
    }
}

fn compare(file: &Path, frames: usize) {
    let name = file.file_name().unwrap().to_str().unwrap();
    let theirs = golden(name);
    for backend in backends() {
        let threshold = (SCORE - 2.0 * SCORE_ERROR).to_string();
        let limit = frames.to_string();
        let options =
            ["detect", "--json", "--backend", backend, "--score-threshold", &threshold, "--max-frames", &limit];
        let output = run(options.map(OsString::from).into_iter().chain([file.as_os_str().to_owned()]));
        assert!(output.status.success(), "{}", stderr(&output));
        let messages = json_lines(&output.stdout);
        assert_eq!(messages.len(), theirs.len(), "{name} by {backend}: frames");
        for (number, (message, theirs)) in messages.iter().zip(&theirs).enumerate() {
            let place = format!("{name} frame {number} by {backend}");
            let ours = ours(message);
            assert_all_in(theirs.iter().copied().filter(|d| d.score >= SCORE), &ours, &place);
            assert_all_in(ours.iter().copied().filter(|d| d.score >= SCORE + SCORE_ERROR), theirs, &place);
        }
    }
}

#[test]
fn the_sample_pictures_give_the_peers_boxes() {
    for name in ["astronaut.png", "chelsea.png", "coffee.png"] {
        compare(&picture(name), 1);
    }
}

#[test]
fn a_hundred_frames_of_the_sample_video_give_the_peers_boxes() {
    compare(&video(), 100);
}
