//! Tiles: small objects of a large frame, and objects on the seams.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use visiond_tests::networks::network;
use visiond_tests::{Daemon, json_lines, picture, root, run, stderr, visiond};

use crate::documents::assert_valid;

/// Where the tiles of a frame of 1920x1080 are, with `size = 640`: SAHI's `get_slice_bboxes`.
const TILES: [[f64; 2]; 8] = [
    [0.0, 0.0],
    [512.0, 0.0],
    [1024.0, 0.0],
    [1280.0, 0.0],
    [0.0, 440.0],
    [512.0, 440.0],
    [1024.0, 440.0],
    [1280.0, 440.0],
];

/// A label, a score and corners.
type Found = (String, f64, [f64; 4]);

/// Makes a frame of 1920x1080 with three people of 96 pixels, one of them on a seam, and a cat that three tiles show a part of.
fn street(path: &Path) {
    let filter = "[1]scale=96:96:flags=area,split=3[a][b][c];[2]scale=451:300[k];[0][a]overlay=120:140[x];\
                  [x][b]overlay=980:560[y];[y][c]overlay=540:60[z];[z][k]overlay=1010:640";
    ffmpeg(&["-f", "lavfi", "-i", "color=0x808890:1920x1080"], filter, path);
}

fn ffmpeg(input: &[&str], filter: &str, path: &Path) {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-y"]).args(input).arg("-i").arg(picture("astronaut.png"));
    ffmpeg.arg("-i").arg(picture("chelsea.png")).args(["-filter_complex", filter, "-frames:v", "1"]);
    assert!(ffmpeg.arg(path).status().unwrap().success(), "{filter}");
}

fn config(model: &str, folder: &Path) -> String {
    format!(
        "[engine]\nbackend = \"rten\"\n\n[[model]]\nname = \"objects\"\npath = \"{{model}}\"\nscore_threshold = 0.35\n\n\
         [[camera]]\nname = \"street\"\nmodels = [{{ name = \"objects\"{model} }}]\n\
         source = {{ type = \"images\", path = \"{}\" }}\n\n[[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n",
        folder.display()
    )
}

/// The detections of a message in the place of its frame.
fn found(message: &Value, [left, top]: [f64; 2]) -> Vec<Found> {
    let number = |value: &Value| value.as_f64().unwrap();
    let one = |one: &Value| {
        let (x, y) = (number(&one["box"]["x"]) + left, number(&one["box"]["y"]) + top);
        let corners = [x, y, x + number(&one["box"]["width"]), y + number(&one["box"]["height"])];
        (one["label"].as_str().unwrap().to_owned(), number(&one["score"]), corners)
    };
    message["detections"].as_array().unwrap().iter().map(one).collect()
}

/// The area that two boxes share, as a part of the smaller one.
fn shared(a: [f64; 4], b: [f64; 4]) -> f64 {
    let side = |axis: usize| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis])).max(0.0);
    let area = |[x1, y1, x2, y2]: [f64; 4]| (x2 - x1) * (y2 - y1);
    side(0) * side(1) / area(a).min(area(b))
}

fn of_label<'f>(all: &'f [Found], label: &str) -> Vec<&'f Found> {
    all.iter().filter(|one| one.0 == label).collect()
}

/// Runs the camera on one frame to its end; returns its detections and the log.
fn tiled(keys: &str, folder: &Path) -> (Vec<Found>, String) {
    tiled_by(&config(keys, folder))
}

fn tiled_by(config: &str) -> (Vec<Found>, String) {
    let ended = Daemon::start(config).finish();
    assert!(ended.status.success(), "{}", ended.log);
    let messages = ended.daemon.messages("out.jsonl");
    assert_eq!(messages.len(), 1, "one message, whatever the runs: {}", ended.log);
    messages.iter().for_each(assert_valid);
    (found(&messages[0], [0.0, 0.0]), ended.log)
}

#[test]
fn tiles_find_small_objects_and_an_object_on_a_seam_is_one() {
    let folder = tempfile::tempdir().unwrap();
    street(&folder.path().join("street.png"));
    let (whole, _) = tiled("", folder.path());
    assert_eq!(of_label(&whole, "person").len(), 0, "too small for the whole frame: {whole:?}");
    let (found, log) = tiled(", tiles = { size = 640 }", folder.path());
    // The model of this test takes one view a run.
    assert!(log.contains("1 message"), "{log}");
    let people = of_label(&found, "person");
    let wanted = [[120.0, 140.0, 216.0, 236.0], [980.0, 560.0, 1076.0, 656.0], [540.0, 60.0, 636.0, 156.0]];
    for person in wanted {
        assert_eq!(people.iter().filter(|one| shared(one.2, person) > 0.5).count(), 1, "{person:?} {people:?}");
    }
    assert_eq!(people.len(), wanted.len(), "{people:?}");
    let cats = of_label(&found, "cat");
    assert_eq!(cats.len(), 1, "{cats:?}");
    assert!(cats[0].2[0] < 1024.0 && cats[0].2[2] > 1400.0, "all of it, beyond the tiles that end at 1024: {cats:?}");
}

#[test]
fn tiles_give_what_the_model_finds_on_each_cut_file_merged() {
    let folder = tempfile::tempdir().unwrap();
    street(&folder.path().join("street.png"));
    let (merged, _) = tiled(", tiles = { size = 640, overlap = 0.2 }", folder.path());
    // The same by hand: every tile as a file.
    let files = tempfile::tempdir().unwrap();
    let street = folder.path().join("street.png");
    let mut paths = vec![street.clone()];
    for (index, [x, y]) in TILES.iter().enumerate() {
        let path = files.path().join(format!("{index}.png"));
        ffmpeg(&["-i", street.to_str().unwrap()], &format!("[0]crop=640:640:{x}:{y}"), &path);
        paths.push(path);
    }
    let options = ["detect", "--backend", "rten", "--json", "--score-threshold", "0.35"].map(Path::new);
    let output = run(options.into_iter().chain(paths.iter().map(|path| path.as_path())));
    assert!(output.status.success(), "{}", stderr(&output));
    let places = std::iter::once([0.0, 0.0]).chain(TILES);
    let parts: Vec<Vec<Found>> = json_lines(&output.stdout).iter().zip(places).map(|(m, at)| found(m, at)).collect();
    assert_eq!(parts.len(), 9);
    assert!(parts.iter().filter(|part| !of_label(part, "cat").is_empty()).count() >= 3, "{parts:?}");
    let parts: Vec<Found> = parts.into_iter().flatten().collect();
    // Each part belongs to one object of its label, and each object has the score of its best part and edges of its parts.
    for part in &parts {
        let objects = merged.iter().filter(|one| one.0 == part.0 && shared(one.2, part.2) >= 0.5).count();
        assert_eq!(objects, 1, "{part:?} {merged:?}");
    }
    for object in &merged {
        let own: Vec<_> = parts.iter().filter(|part| part.0 == object.0 && shared(object.2, part.2) >= 0.5).collect();
        assert_eq!(object.1, own.iter().map(|part| part.1).fold(0.0, f64::max), "{object:?} {own:?}");
        for edge in 0..4 {
            // Messages have three decimals.
            let near = |part: &&&Found| (part.2[edge] - object.2[edge]).abs() < 0.003;
            assert!(own.iter().any(|part| near(&part)), "{object:?} {own:?}");
        }
    }
}

#[test]
fn a_grid_lies_in_the_crop_of_the_model_and_turns_with_the_camera() {
    let folder = tempfile::tempdir().unwrap();
    street(&folder.path().join("street.png"));
    let text = config(", crop = [896, 440, 640, 640], tiles = { columns = 2, rows = 1 }", folder.path());
    let (upright, _) = tiled_by(&text.replace("source =", "crop_frame_size = [1920, 1080]\nsource ="));
    let cats = of_label(&upright, "cat");
    assert_eq!(cats.len(), 1, "{upright:?}");
    assert!(upright.iter().all(|one| one.2[0] >= 896.0 && one.2[1] >= 440.0), "{upright:?}");
    // The same frame turned, and the camera turned back.
    let turned = tempfile::tempdir().unwrap();
    ffmpeg(
        &["-i", folder.path().join("street.png").to_str().unwrap()],
        "[0]transpose=cclock",
        &turned.path().join("street.png"),
    );
    let text = config(", crop = [440, 384, 640, 640], tiles = { columns = 2, rows = 1 }", turned.path());
    let ended =
        Daemon::start(&text.replace("source =", "rotate = 90\ncrop_frame_size = [1080, 1920]\nsource =")).finish();
    let messages = ended.daemon.messages("out.jsonl");
    let back: Vec<_> = found(&messages[0], [0.0, 0.0])
        .into_iter()
        .map(|(label, score, [x1, y1, x2, y2])| (label, score, [1920.0 - y2, x1, 1920.0 - y1, x2]))
        .collect();
    assert_eq!(back.len(), upright.len(), "{back:?} {upright:?}");
    for (a, b) in back.iter().zip(&upright) {
        let near = a.2.iter().zip(b.2).all(|(a, b)| (a - b).abs() < 0.003);
        assert!((&a.0, a.1) == (&b.0, b.1) && near, "{a:?} {b:?}");
    }
}

#[test]
fn a_reload_adds_tiles_without_opening_the_camera_and_too_many_fail_the_frames_with_the_reason() {
    let config = |keys: &str| {
        format!(
            "[engine]\nbackend = \"rten\"\n[[model]]\nname = \"tiny\"\npath = \"{}\"\n\n[[camera]]\nname = \"gate\"\n\
             models = [{{ name = \"tiny\"{keys} }}]\n\
             source = {{ type = \"images\", path = \"{{media}}/chelsea.png\", repeat = true, fps = 10 }}\n\n\
             [[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n",
            root().join("tests/vm/tiny.onnx").display()
        )
    };
    let mut daemon = Daemon::start(&config(", tiles = { size = 32 }"));
    daemon.wait_for_log("`tiles` cuts 451x300 pixels into 18 columns and 12 rows, and a frame has at most 63 tiles");
    assert_eq!(daemon.count("out.jsonl"), 0);
    daemon.reconfigure(&config(", tiles = { columns = 3, rows = 2 }"));
    daemon.wait_until("a message", |daemon| daemon.count("out.jsonl") > 0);
    let ended = daemon.terminate();
    assert!(!ended.log.contains("opened again"), "{}", ended.log);
}

#[test]
fn a_model_of_whole_pictures_has_no_tiles() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("net.onnx");
    std::fs::write(&model, network("embedding")).unwrap();
    std::fs::write(folder.path().join("net.toml"), "[head]\nfamily = \"embedding\"\n").unwrap();
    let text = config(", tiles = { size = 640 }", folder.path());
    let text = visiond_tests::fill(&text.replace("{model}", model.to_str().unwrap()), folder.path());
    let file = folder.path().join("visiond.toml");
    std::fs::write(&file, text.replace("score_threshold = 0.35\n", "")).unwrap();
    let wanted =
        "model objects gives results of a whole picture, which tiles cannot be merged into: remove its `tiles`";
    for command in ["check", "run"] {
        let output = Command::new(visiond()).arg(command).arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        assert!(!output.status.success() && text.contains(wanted), "{command}: {text}");
    }
}
