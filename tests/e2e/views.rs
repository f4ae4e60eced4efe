//! Cameras that are mounted on their side, upside down or too wide: `crop`, `rotate` and `flip`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use visiond_tests::web::Place;
use visiond_tests::{Daemon, root, video};

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

/// An image's width and height, and its pixels, decoded by ffmpeg.
fn rgb(image: &[u8]) -> ([usize; 2], Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, image).unwrap();
    let mut decode = Command::new("ffmpeg");
    decode.args(["-v", "error", "-i"]).arg(&path).args(["-f", "image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "-"]);
    let decoded = decode.output().unwrap();
    assert!(decoded.status.success(), "{}", String::from_utf8_lossy(&decoded.stderr));
    // The head: "P6", width and height, the largest value.
    let mut parts = decoded.stdout.splitn(4, |&byte| byte == b'\n');
    let [_, size, _, pixels] = std::array::from_fn(|_| parts.next().unwrap());
    let mut sides = std::str::from_utf8(size).unwrap().split(' ').map(|side| side.parse().unwrap());
    (std::array::from_fn(|_| sides.next().unwrap()), pixels.to_vec())
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
        let annotate = format!("{{ directory = \"{{dir}}/{name}\", every = 1, format = \"png\" }}");
        config += &format!("\n[[camera]]\nname = \"{name}\"\n{keys}\nsource = {source}\nannotate = {annotate}\n");
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
    // The stored images are those of the upright film, with its boxes and labels. The camera `framed` shows the whole frame.
    let image = |camera: &str, frame: usize| {
        let path = ended.daemon.path(camera).join(format!("{camera}-{frame:08}.png"));
        rgb(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    for (name, ..) in &cases[1..5] {
        for frame in 0..FRAMES {
            let (wanted, found) = (image("upright", frame), image(name, frame));
            assert_eq!(found.0, wanted.0, "{name}");
            let differs = |(a, b): &(&u8, &u8)| a.abs_diff(**b) > 8;
            let differing = wanted.1.iter().zip(&found.1).filter(differs).count();
            // The edge of a box may be rounded to the next pixel.
            assert!(differing < wanted.1.len() / 500, "{name}, frame {frame}: {differing} of the bytes differ");
        }
    }
    assert_eq!(image("framed", 0).0, [1000, 700]);
}

#[test]
fn a_turned_cameras_live_images_are_turned_and_its_status_says_so() {
    let camera = |name: &str, keys: &str| {
        let source = "{ type = \"pattern\", width = 320, height = 240, fps = 20.0 }";
        format!("[[camera]]\nname = \"{name}\"\nsource = {source}\n{keys}\n")
    };
    let config = format!(
        "[engine]\nbackend = \"rten\"\n[http]\nlisten = [\"unix:{{dir}}/http.sock\"]\nmax_fps = 20.0\n\
         [[model]]\nname = \"tiny\"\npath = \"{}\"\n{}{}",
        root().join("tests/vm/tiny.onnx").display(),
        camera("as-is", ""),
        camera("turned", "rotate = 90\nflip = \"horizontal\""),
    );
    let mut daemon = Daemon::start(&config);
    let place = Place::socket(&mut daemon);
    let status = |camera: &str| {
        let status = place.get(&format!("/api/v1/cameras/{camera}")).json();
        [status["rotate"].clone(), status["flip"].clone()]
    };
    assert_eq!(status("as-is"), [Value::from(0), Value::Null]);
    assert_eq!(status("turned"), [Value::from(90), Value::from("horizontal")]);
    for overlay in ["", "?overlay=1"] {
        let picture = |camera: &str| {
            let answer = place.get(&format!("/cameras/{camera}/snapshot.jpg{overlay}"));
            rgb(&answer.body)
        };
        let (plain, turned) = (picture("as-is"), picture("turned"));
        assert_eq!((plain.0, turned.0), ([320, 240], [240, 320]));
        // Turned clockwise and then mirrored, the frame's rows are columns. The pattern's eight bars are where they belong: a marker
        // moves over them, and JPEG changes colours a little.
        let pixel = |(size, bytes): &([usize; 2], Vec<u8>), x: usize, y: usize| {
            let at = (y * size[0] + x) * 3;
            [bytes[at], bytes[at + 1], bytes[at + 2]]
        };
        let near = |x, y| pixel(&plain, x, y).iter().zip(pixel(&turned, y, x)).all(|(a, b)| a.abs_diff(b) < 40);
        let bars = (0..8).filter(|bar| near(bar * 40 + 20, 200)).count();
        assert!(bars >= 6, "{bars} of 8 bars have their colours");
    }
    assert_eq!(daemon.terminate().status.code(), Some(0));
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
