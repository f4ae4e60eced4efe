//! Cameras that are mounted on their side, upside down or too wide: `crop`, `rotate` and `flip`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use visiond_tests::{Daemon, video};

/// The films' frames.
const FRAMES: usize = 6;

/// Width and height of the sample video.
const SIZE: [f64; 2] = [768.0, 576.0];

/// Makes a film without loss of the sample video's first frames.
fn film(path: &Path, filter: &str) {
    let frames = FRAMES.to_string();
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-y", "-i"]).arg(video()).args(["-frames:v", &frames, "-vf", filter, "-c:v", "ffv1"]);
    assert!(ffmpeg.arg(path).status().unwrap().success(), "{filter}");
}

/// A camera's detections by frame: class, score and corners.
fn seen(messages: &[Value], camera: &str) -> Vec<Vec<(u64, f64, [f64; 4])>> {
    let number = |value: &Value| value.as_f64().unwrap();
    let detection = |found: &Value| {
        let (x, y) = (number(&found["box"]["x"]), number(&found["box"]["y"]));
        let corners = [x, y, x + number(&found["box"]["width"]), y + number(&found["box"]["height"])];
        (found["class_id"].as_u64().unwrap(), number(&found["score"]), corners)
    };
    let messages = messages.iter().filter(|message| message["camera"] == camera);
    messages.map(|message| message["detections"].as_array().unwrap().iter().map(detection).collect()).collect()
}

#[test]
fn a_turned_film_has_the_detections_of_the_upright_one_in_its_own_pixels() {
    let [width, height] = SIZE;
    let upright = |corners: [f64; 4]| corners;
    // Where the upright film's boxes are in the turned one.
    let left = move |[x1, y1, x2, y2]: [f64; 4]| [y1, width - x2, y2, width - x1];
    let right = move |[x1, y1, x2, y2]: [f64; 4]| [height - y2, x1, height - y1, x2];
    let around = move |[x1, y1, x2, y2]: [f64; 4]| [width - x2, height - y2, width - x1, height - y1];
    let mirrored = move |[x1, y1, x2, y2]: [f64; 4]| [width - x2, y1, width - x1, y2];
    let framed = |[x1, y1, x2, y2]: [f64; 4]| [x1 + 100.0, y1 + 40.0, x2 + 100.0, y2 + 40.0];
    type Moved<'a> = &'a dyn Fn([f64; 4]) -> [f64; 4];
    let cases: [(&str, &str, &str, Moved<'_>); 6] = [
        ("upright", "null", "", &upright),
        ("left", "transpose=cclock", "rotate = 90", &left),
        ("right", "transpose=clock", "rotate = 270", &right),
        ("around", "hflip,vflip", "rotate = 180", &around),
        ("mirrored", "hflip", "flip = \"horizontal\"", &mirrored),
        ("framed", "pad=1000:700:100:40:red", "crop = [100, 40, 768, 576]\ncrop_frame_size = [1000, 700]", &framed),
    ];
    let films = tempfile::tempdir().unwrap();
    let mut config = "[[model]]\nname = \"objects\"\npath = \"{model}\"\nscore_threshold = 0.3\n\n\
                      [engine]\nbackend = \"rten\"\n\n[[sink]]\ntype = \"file\"\npath = \"{dir}/out.jsonl\"\n"
        .to_owned();
    for (name, filter, keys, _) in cases {
        let path = films.path().join(name).with_extension("mkv");
        film(&path, filter);
        let source = format!("{{ type = \"video\", url = {path:?}, pace = \"fastest\" }}");
        config += &format!("\n[[camera]]\nname = \"{name}\"\n{keys}\nsource = {source}\n");
    }
    let ended = Daemon::start(&config).finish();
    assert!(ended.status.success(), "{}", ended.log);
    let messages = ended.daemon.messages("out.jsonl");
    let wanted = seen(&messages, "upright");
    assert!(wanted.len() == FRAMES && wanted.iter().all(|frame| frame.len() > 1), "{wanted:?}");
    for (name, _, _, moved) in cases {
        let found = seen(&messages, name);
        assert_eq!(found.len(), FRAMES, "{name}");
        for (frame, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
            assert_eq!(wanted.len(), found.len(), "{name}, frame {frame}: {wanted:?} {found:?}");
            for (wanted, found) in wanted.iter().zip(found) {
                let moved = moved(wanted.2);
                // Messages have three decimals.
                let near = moved.iter().zip(found.2).all(|(a, b)| (a - b).abs() < 0.003);
                assert!(
                    wanted.0 == found.0 && wanted.1 == found.1 && near,
                    "{name}, frame {frame}: {moved:?} {found:?}"
                );
            }
        }
    }
    let size = |camera: &str| {
        let message = messages.iter().find(|message| message["camera"] == camera).unwrap();
        [&message["frame"]["width"], &message["frame"]["height"]].map(|side| side.as_f64().unwrap())
    };
    assert_eq!([size("upright"), size("left"), size("framed")], [SIZE, [height, width], [1000.0, 700.0]]);
}

#[test]
fn an_empty_crop_fails_its_frames_with_the_reason_and_a_reload_mends_it() {
    let config = |crop: &str| {
        format!(
            "[[model]]\nname = \"objects\"\npath = \"{{model}}\"\nscore_threshold = 0.3\n\n[engine]\nbackend = \"rten\"\n\n\
             [[camera]]\nname = \"gate\"\ncrop = {crop}\n\
             source = {{ type = \"images\", path = \"{{media}}/chelsea.png\", repeat = true, fps = 10 }}\n\n\
             [[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n"
        )
    };
    let mut daemon = Daemon::start(&config("[0.5, 0.0, 0.0005, 1.0]"));
    daemon.wait_for_log("the crop [0.5, 0.0, 0.0005, 1.0] is empty or reaches beyond the frame of 451x300 pixels");
    assert_eq!(daemon.count("out.jsonl"), 0);
    daemon.reconfigure(&config("[0.0, 0.0, 1.0, 1.0]"));
    daemon.wait_until("a message", |daemon| daemon.count("out.jsonl") > 0);
    daemon.terminate();
}
