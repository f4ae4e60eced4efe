//! `visiond detect` as a newcomer tries it: files in, a table or messages and pictures out.

use std::collections::{BTreeMap, BTreeSet};
use std::f32::consts::FRAC_PI_2;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, Stdio};

use visiond_tests::networks::{BODY, EMBEDDING, FACE, FACE_POINTS, GENDER, TAGS, TURNED, WORN, depth_at, network};
use visiond_tests::{assert_no_panic, json_lines, picture, root, run, stderr, video, visiond};

const USAGE: i32 = 2;
const INPUT: i32 = 5;
const OUTPUT: i32 = 6;

fn detect(arguments: &[&Path]) -> std::process::Output {
    let options = ["detect", "--backend", "rten"].map(Path::new);
    run(options.iter().chain(arguments).map(|argument| argument.as_os_str()))
}

fn path(text: &str) -> &Path {
    Path::new(text)
}

#[test]
fn a_table_names_what_is_on_each_picture() {
    let (cat, cup) = (picture("chelsea.png"), picture("coffee.png"));
    let output = detect(&[&cat, &cup]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    let mut lines = table.lines();
    let header: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["FILE", "FRAME", "LABEL", "SCORE", "X", "Y", "WIDTH", "HEIGHT"]);
    let row: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(row[..3], [cat.to_str().unwrap(), "0", "cat"]);
    assert_eq!(row.len(), 8);
    assert!(table.contains(cup.to_str().unwrap()));
    // If detection takes long, progress is also reported.
    let said = stderr(&output);
    assert!(said.lines().all(|line| line.contains(" frames")), "nothing but the table is said: {said}");
}

#[test]
fn a_picture_without_detections_is_listed_too() {
    let cat = picture("chelsea.png");
    let output = detect(&[path("--score-threshold"), path("1"), &cat]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(table.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>(), [cat.to_str().unwrap(), "0", "-"]);
    let output = detect(&[path("--json"), path("--classes"), path("car"), &cat]);
    assert_eq!(json_lines(&output.stdout)[0]["detections"].as_array().unwrap().len(), 0);
}

#[test]
fn messages_name_the_file_and_count_a_videos_frames() {
    let output = detect(&[path("--json"), path("--max-frames"), path("7"), path("--every"), path("3"), &video()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let messages = json_lines(&output.stdout);
    let sequences: Vec<_> = messages.iter().map(|message| message["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, [0, 3, 6]);
    for message in &messages {
        assert_eq!(message["camera"], "detect");
        assert_eq!(message["frame"]["file"], video().to_str().unwrap());
        assert_eq!(message["model"]["name"], "nanodet-g-416");
        let timings = &message["timings_us"];
        let part = |name: &str| timings[name].as_u64().unwrap();
        assert!(part("total") >= part("preprocess") + part("infer") + part("postprocess"), "{timings}");
    }
}

/// The tracks in a message: the id, the box and the score of each detection that has a track in this state.
fn tracks_of(message: &serde_json::Value, state: &str) -> Vec<(u64, [f64; 5])> {
    let detections = message["detections"].as_array().unwrap().iter();
    let tracked = detections.filter(|found| found["track"]["state"] == state);
    let numbers = |found: &serde_json::Value| {
        let side = |key: &str| found["box"][key].as_f64().unwrap();
        [side("x"), side("y"), side("width"), side("height"), found["score"].as_f64().unwrap()]
    };
    tracked.map(|found| (found["track"]["id"].as_u64().unwrap(), numbers(found))).collect()
}

#[test]
fn objects_keep_their_tracks_in_a_video_and_a_mot_file_has_those_of_the_messages() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tracks.txt");
    let arguments = ["--json", "--classes", "person", "--max-frames", "60", "--mot"].map(path);
    let output = detect(&[&arguments[..], &[&file, &video()]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let messages = json_lines(&output.stdout);
    assert_eq!(messages.len(), 60);
    let mut frames_of = BTreeMap::<u64, usize>::new();
    let mut wanted = Vec::new();
    for message in &messages {
        let confirmed = tracks_of(message, "confirmed");
        let all = confirmed.iter().chain(&tracks_of(message, "tentative")).map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "an id twice in a frame: {message}");
        all.iter().for_each(|id| *frames_of.entry(*id).or_default() += 1);
        let frame = message["sequence"].as_u64().unwrap() + 1;
        wanted.extend(confirmed.into_iter().map(|(id, numbers)| (frame, id, numbers)));
    }
    // People walk in view all the time.
    assert!(frames_of.values().any(|frames| *frames > 40), "{frames_of:?}");
    assert!(frames_of.len() < wanted.len() / 10, "{frames_of:?}");
    let rows = fs::read_to_string(&file).unwrap();
    let parsed: Vec<(u64, u64, [f64; 5])> = rows
        .lines()
        .map(|row| {
            let cells: Vec<&str> = row.split(',').collect();
            assert_eq!((cells.len(), &cells[7..]), (10, &["-1"; 3][..]), "{row}");
            let numbers = [2, 3, 4, 5, 6].map(|cell| cells[cell].parse().unwrap());
            (cells[0].parse().unwrap(), cells[1].parse().unwrap(), numbers)
        })
        .collect();
    assert_eq!(parsed, wanted);
}

#[test]
fn tracks_are_a_column_of_the_table_and_those_of_another_video_are_others() {
    let table = |arguments: &[&Path]| -> Vec<Vec<String>> {
        let output = detect(arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        let table = String::from_utf8(output.stdout).unwrap();
        table.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let clip = [path("--max-frames"), path("12"), path("--every"), path("3")];
    let (cat, clip_file) = (picture("chelsea.png"), video());
    let rows = table(&[&clip[..], &[path("--track"), &cat, &clip_file, &clip_file]].concat());
    assert_eq!(rows[0][..4], ["FILE", "FRAME", "ID", "LABEL"]);
    // A picture shows no track.
    assert_eq!(rows[1][..4], [cat.to_str().unwrap(), "0", "-", "cat"]);
    let mut videos = vec![BTreeMap::<u64, BTreeSet<u64>>::new()];
    let mut last = 0;
    for row in &rows[2..] {
        let frame: u64 = row[1].parse().unwrap();
        if frame < last {
            videos.push(BTreeMap::new());
        }
        last = frame;
        if row[2] != "-" {
            videos.last_mut().unwrap().entry(row[2].parse().unwrap()).or_default().insert(frame);
        }
    }
    let [first, second] = &videos[..] else { panic!("{rows:?}") };
    for tracks in [first, second] {
        // Of the frames 0, 3, 6 and 9.
        assert!(tracks.values().any(|frames| *frames == BTreeSet::from([0, 3, 6, 9])), "{tracks:?}");
    }
    assert!(first.keys().max() < second.keys().min(), "{videos:?}");
    // Without tracks, as without a score that is high enough for any.
    let rows = table(&[&clip[..], &[&clip_file]].concat());
    assert_eq!(rows[0][..3], ["FILE", "FRAME", "LABEL"]);
    let rows = table(&[&clip[..], &[path("--track-score"), path("1"), &clip_file]].concat());
    assert!(rows.len() > 4 && rows[1..].iter().all(|row| row[2] == "-"), "{rows:?}");
}

#[test]
fn a_mot_file_is_for_one_video_and_never_replaces_it() {
    let folder = tempfile::tempdir().unwrap();
    let (file, clip) = (folder.path().join("tracks.txt"), folder.path().join("clip.avi"));
    fs::copy(video(), &clip).unwrap();
    let refused = |file: &Path, inputs: &[&Path]| {
        let output = detect(&[&[path("--max-frames"), path("1"), path("--mot"), file], inputs].concat());
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code().unwrap(), stderr(&output))
    };
    let (status, error) = refused(&file, &[&clip, &clip]);
    assert!(status == USAGE && error.contains("run the command once for each video"), "{error}");
    let (status, error) = refused(&clip, &[&clip]);
    assert!(status == USAGE && error.contains("name another file"), "{error}");
    assert_eq!(fs::metadata(&clip).unwrap().len(), fs::metadata(video()).unwrap().len());
    let (status, error) = refused(&file, &[&picture("chelsea.png")]);
    assert!(status == INPUT && error.contains("chelsea.png is an image"), "{error}");
    // A run that fails before its first frame leaves older tracks as they are.
    fs::write(&file, "1,1,2,3,4,5,0.9,-1,-1,-1\n").unwrap();
    let (status, _) = refused(&file, &[path("--model"), &folder.path().join("none.onnx"), &clip]);
    assert_ne!(status, 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "1,1,2,3,4,5,0.9,-1,-1,-1\n");
    let (status, error) = refused(&folder.path().join("none/tracks.txt"), &[&clip]);
    assert!(status == OUTPUT && error.contains("none/tracks.txt: No such file"), "{error}");
}

#[test]
fn annotated_pictures_are_named_after_their_files_and_replace_none_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made");
    let source = folder.path().join("cat.png");
    fs::copy(picture("chelsea.png"), &source).unwrap();
    let before = fs::read(&source).unwrap();
    let output = detect(&[
        path("--annotate"),
        &out,
        path("--max-frames"),
        path("2"),
        &source,
        &picture("chelsea.png"),
        &video(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut names: Vec<_> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(
        names,
        ["cat-annotated.jpg", "chelsea-annotated.jpg", "vtest-annotated-00000000.jpg", "vtest-annotated-00000001.jpg"]
    );
    assert_eq!(fs::read(&source).unwrap(), before);
    // An annotated image is also a valid input.
    let again = detect(&[path("--annotate"), &out, &out.join("cat-annotated.jpg")]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert!(out.join("cat-annotated-annotated.jpg").is_file());
}

#[test]
fn an_impossible_folder_for_pictures_is_an_early_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let output = detect(&[path("--annotate"), &file, &picture("chelsea.png")]);
    assert_eq!(output.status.code(), Some(OUTPUT));
    assert!(stderr(&output).contains(file.to_str().unwrap()), "{}", stderr(&output));
}

#[test]
fn content_decides_what_a_file_is_not_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (renamed, clip) = (folder.path().join("cat.mp4"), folder.path().join("street.jpg"));
    fs::copy(picture("chelsea.png"), &renamed).unwrap();
    fs::copy(video(), &clip).unwrap();
    let output = detect(&[path("--json"), path("--max-frames"), path("2"), &renamed, &clip]);
    assert!(output.status.success(), "{}", stderr(&output));
    let messages = json_lines(&output.stdout);
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[0]["detections"][0]["label"], "cat");
}

#[test]
fn a_folder_or_a_damaged_video_is_an_input_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = detect(&[folder.path()]);
    assert_eq!(output.status.code(), Some(INPUT), "{}", stderr(&output));
    let cut = folder.path().join("cut.avi");
    fs::write(&cut, &fs::read(video()).unwrap()[..300_000]).unwrap();
    let output = detect(&[path("--json"), &cut]);
    assert_eq!(output.status.code(), Some(INPUT), "{}", stderr(&output));
    assert!(!json_lines(&output.stdout).is_empty());
    assert_no_panic(&stderr(&output));
}

#[test]
fn a_video_whose_name_is_not_text_and_one_that_was_trimmed_are_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let ffmpeg = |arguments: &[&str], path: &Path| {
        let status = Command::new("ffmpeg").args(["-v", "error", "-y"]).args(arguments).arg(path).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    let (long, trim) = (folder.path().join("long.mp4"), folder.path().join("trim.mp4"));
    ffmpeg(&["-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=2", "-c:v", "mpeg4", "-g", "100"], &long);
    // The frames before the cut stay in the file, and its edit list hides them.
    ffmpeg(&["-ss", "1.05", "-i", long.to_str().unwrap(), "-c", "copy"], &trim);
    let odd = folder.path().join(OsString::from_vec(b"caf\xe9.mp4".to_vec()));
    fs::rename(&long, &odd).unwrap();
    let output = detect(&[path("--json"), &odd, &trim]);
    assert!(output.status.success(), "{}", stderr(&output));
    let messages = json_lines(&output.stdout);
    let of = |name: &str| messages.iter().filter(|m| m["frame"]["file"].as_str().unwrap().ends_with(name)).count();
    assert_eq!(of("caf\u{fffd}.mp4"), 20);
    assert!((8..=10).contains(&of("trim.mp4")), "{}", of("trim.mp4"));
    // The error names the file, not the link that ffmpeg reads.
    fs::write(&odd, [0; 4096]).unwrap();
    let output = detect(&[&odd]);
    assert_eq!(output.status.code(), Some(INPUT));
    assert!(stderr(&output).contains("caf\u{fffd}.mp4: not a video"), "{}", stderr(&output));
}

#[test]
fn a_full_standard_output_has_its_exit_status() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(visiond());
    command.args(["detect", "--backend", "rten"]).arg(picture("chelsea.png")).current_dir(root());
    let output = command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(OUTPUT));
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
}

/// Writes `network` and a white image of 64x64, and returns the frame's message.
fn message_of(folder: &Path, network: &[u8]) -> serde_json::Value {
    fs::write(folder.join("net.onnx"), network).unwrap();
    let white: Vec<u8> = [b"P6\n64 64\n255\n".as_slice(), &[255; 3 * 64 * 64]].concat();
    fs::write(folder.join("white.ppm"), white).unwrap();
    let (model, out) = (folder.join("net.onnx"), folder.join("out"));
    let output =
        detect(&[path("--json"), path("--annotate"), &out, path("--model"), &model, &folder.join("white.ppm")]);
    assert!(output.status.success(), "{}", stderr(&output));
    json_lines(&output.stdout).remove(0)
}

#[test]
fn the_points_of_a_body_have_names_and_are_drawn_as_a_skeleton() {
    let folder = tempfile::tempdir().unwrap();
    let message = message_of(folder.path(), &network("pose"));
    let body = &message["detections"][0];
    assert_eq!(body["label"], "person");
    let points = body["keypoints"].as_array().unwrap();
    for (found, [x, y, score]) in points.iter().zip(BODY) {
        let number = |key: &str| found[key].as_f64().unwrap() as f32;
        assert_eq!([number("x"), number("y"), number("score")], [x, y, score], "{found}");
    }
    let name = |index: usize| points[index]["name"].as_str().unwrap();
    assert_eq!((points.len(), name(0), name(9), name(16)), (17, "nose", "left_wrist", "right_ankle"));
    let skeleton = message["model"]["skeleton"].as_array().unwrap();
    assert_eq!((skeleton.len(), &skeleton[0]), (19, &serde_json::json!([15, 13])));
    let picture = || fs::read(folder.path().join("out/white-annotated.jpg")).unwrap();
    let with_lines = picture();

    let inspected = run([OsString::from("inspect"), folder.path().join("net.onnx").into()]);
    let text = String::from_utf8_lossy(&inspected.stdout).into_owned();
    assert!(text.contains("keypoints  nose, left_eye, right_eye,"), "{text}");

    let message = message_of(folder.path(), &network("pose-named"));
    assert_eq!(message["detections"][0]["keypoints"][16]["name"], "joint 16");
    assert_eq!(message["model"].get("skeleton"), None, "nothing says which of these points belong together");
    assert!(picture() != with_lines, "the lines are drawn");
}

#[test]
fn a_movenet_that_takes_whole_numbers_runs_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let card = "[head]\nfamily = \"movenet\"\n[classes]\nnames = [\"person\"]\n";
    fs::write(folder.path().join("net.toml"), card).unwrap();
    let message = message_of(folder.path(), &network("movenet"));
    let body = &message["detections"][0];
    assert_eq!(body["label"], "person", "{message}");
    for (found, [x, y, _]) in body["keypoints"].as_array().unwrap().iter().zip(BODY) {
        assert_eq!([found["x"].as_f64().unwrap() as f32, found["y"].as_f64().unwrap() as f32], [x, y], "{found}");
    }
    // The box is around the visible points, without the hidden right foot.
    let number = |key: &str| body["box"][key].as_f64().unwrap();
    assert_eq!(["x", "y", "width", "height"].map(number), [17.0, 6.0, 35.0, 52.0]);
}

#[test]
fn a_face_detector_finds_its_face_and_names_its_points_with_the_card_that_inspect_proposes() {
    for name in ["scrfd", "yunet", "retinaface", "yolov5-face"] {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("net.onnx");
        fs::write(&model, network(name)).unwrap();
        let described = run([OsString::from("inspect"), OsString::from("--json"), model.into()]);
        let described: serde_json::Value = serde_json::from_slice(&described.stdout).unwrap();
        let heads = described["heads"].as_array().unwrap();
        // Because there are few rows, they may also be queries.
        assert!(heads.len() == 1 || name == "yolov5-face", "{name}: {described}");
        fs::write(folder.path().join("net.toml"), heads[0]["card"].as_str().unwrap()).unwrap();

        let message = message_of(folder.path(), &network(name));
        let faces = message["detections"].as_array().unwrap();
        assert_eq!(faces.len(), 1, "{name}: {message}");
        let face = &faces[0];
        assert_eq!(face["label"], "face");
        let near = |found: &serde_json::Value, wanted: f32| (found.as_f64().unwrap() as f32 - wanted).abs() < 0.01;
        let [left, top, right, bottom] = FACE;
        for (key, wanted) in [("x", left), ("y", top), ("width", right - left), ("height", bottom - top)] {
            assert!(near(&face["box"][key], wanted), "{name}, {key}: {face}");
        }
        let score = face["score"].as_f64().unwrap();
        assert!((score - 0.96).abs() < 1e-3, "{name}: {score}");
        let points = face["keypoints"].as_array().unwrap();
        let names: Vec<&str> = points.iter().map(|point| point["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["right_eye", "left_eye", "nose", "right_mouth", "left_mouth"], "{name}");
        for (point, [x, y]) in points.iter().zip(FACE_POINTS) {
            assert!(near(&point["x"], x) && near(&point["y"], y), "{name}: {face}");
        }
    }
}

#[test]
fn turned_boxes_keep_their_turn_and_hide_only_their_like() {
    let folder = tempfile::tempdir().unwrap();
    let message = message_of(folder.path(), &network("obb"));
    let found = message["detections"].as_array().unwrap();
    let expected = [TURNED[0], TURNED[2], TURNED[3]];
    assert_eq!(found.len(), expected.len(), "{message}");
    for (found, [x, y, width, height, ship, harbor, angle]) in found.iter().zip(expected) {
        assert_eq!(found["label"], if ship > harbor { "ship" } else { "harbor" });
        let number = |key: &str| found["oriented"][key].as_f64().unwrap() as f32;
        // The angle is from 0 to below a quarter turn; a quarter turn more or less swaps the sides.
        let turn = angle.rem_euclid(FRAC_PI_2);
        let (width, height) = if (angle - turn).abs() > 1.0 { (height, width) } else { (width, height) };
        for (key, expected) in [("x", x), ("y", y), ("width", width), ("height", height), ("angle", turn)] {
            assert!((number(key) - expected).abs() < 1e-3, "{key}: {found}");
        }
        // The upright box is the corners' bounds.
        let corners = found["oriented"]["corners"].as_array().unwrap().iter();
        let left = corners.map(|corner| corner[0].as_f64().unwrap()).fold(f64::MAX, f64::min);
        assert!((found["box"]["x"].as_f64().unwrap() - left).abs() < 2e-3, "{found}");
    }

    // The table for people has the angles in degrees.
    let (model, white) = (folder.path().join("net.onnx"), folder.path().join("white.ppm"));
    let output = detect(&[path("--model"), &model, &white]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("ANGLE"), "{table}");
    assert_eq!(table.matches("ship").count(), 2, "{table}");
}

#[test]
fn a_card_names_points_and_lines() {
    const CARD: &str = "[head]\nfamily = \"yolov8\"\nkeypoints = [17, 3]\n[classes]\nnames = [\"a\"]\n[keypoints]\n";
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..17).map(|point| format!("\"p{point}\"")).collect();
    let card = format!("{CARD}names = [{}]\nskeleton = [[9, 0]]", names.join(", "));
    fs::write(folder.path().join("net.toml"), card).unwrap();
    let message = message_of(folder.path(), &network("pose"));
    assert_eq!(message["model"]["skeleton"], serde_json::json!([[9, 0]]));
    assert_eq!(message["detections"][0]["keypoints"][9]["name"], "p9");
    for (keys, wanted) in [
        ("names = [\"a\"]", "net.toml:7:9: `names` has 1 names, but the model's detections have 17 keypoints"),
        ("skeleton = [[3, 17]]", "net.toml:7:12: the line [3, 17] of `skeleton` needs a point that the model lacks"),
    ] {
        fs::write(folder.path().join("net.toml"), format!("{CARD}{keys}\n")).unwrap();
        let (model, white) = (folder.path().join("net.onnx"), folder.path().join("white.ppm"));
        let output = detect(&[path("--model"), &model, &white]);
        assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(3));
    }
}

#[test]
fn each_class_of_a_map_is_a_detection_with_its_part_of_the_frame() {
    let folder = tempfile::tempdir().unwrap();
    let card = "[head]\nfamily = \"semantic\"\n[classes]\nnames = [\"road\", \"sky\", \"car\"]\n";
    fs::write(folder.path().join("net.toml"), card).unwrap();
    let message = message_of(folder.path(), &network("semantic"));
    // Between columns 30 and 34 one score falls from 2 to 0, and the other rises from 0 to 4.
    let wanted = serde_json::json!([
        {"class_id": 2, "label": "car", "score": 0.9647, "box": {"x": 31.0, "y": 0.0, "width": 33.0, "height": 64.0},
         "fraction": 0.515625, "area": 2112, "segments": [[64.0, 0.0, 64.0, 64.0, 31.0, 64.0, 31.0, 0.0]]},
        {"class_id": 0, "label": "road", "score": 0.787, "box": {"x": 0.0, "y": 0.0, "width": 31.0, "height": 64.0},
         "fraction": 0.484375, "area": 1984, "segments": [[31.0, 0.0, 31.0, 64.0, 0.0, 64.0, 0.0, 0.0]]},
    ]);
    assert_eq!(message["detections"], wanted);
    let (model, white) = (folder.path().join("net.onnx"), folder.path().join("white.ppm"));
    let only = |arguments: &[&str]| {
        let arguments: Vec<&Path> =
            arguments.iter().map(|text| path(text)).chain([path("--model"), &model, &white]).collect();
        let output = detect(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        output.stdout
    };
    let mut road = wanted[1].clone();
    assert_eq!(json_lines(&only(&["--json", "--classes", "road"]))[0]["detections"], serde_json::json!([road]));
    ["area", "segments"].iter().for_each(|key| drop(road.as_object_mut().unwrap().remove(*key)));
    let found = only(&["--json", "--classes", "road", "--masks", "none"]);
    assert_eq!(json_lines(&found)[0]["detections"], serde_json::json!([road]));
    let table = String::from_utf8(only(&[])).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        (rows[0][8], &rows[1][2..], rows[2][8]),
        ("COVERS", &["car", "0.96", "31", "0", "33", "64", "51.6%"][..], "48.4%")
    );
}

#[test]
fn text_is_found_as_turned_boxes_without_names_in_the_card() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.toml"), "[head]\nfamily = \"db-text\"\n").unwrap();
    let message = message_of(folder.path(), &network("text-map"));
    // 40 x 10 between the middles of its outer pixels, grown by 400 * 1.5 / 100 on all sides.
    let wanted = serde_json::json!([{
        "class_id": 0, "label": "text", "score": 0.9526,
        "box": {"x": 4.0, "y": 14.0, "width": 52.0, "height": 22.0},
        "oriented": {"x": 30.0, "y": 25.0, "width": 52.0, "height": 22.0, "angle": 0.0,
            "corners": [[56.0, 36.0], [4.0, 36.0], [4.0, 14.0], [56.0, 14.0]]},
    }]);
    assert_eq!(message["detections"], wanted);
    fs::write(folder.path().join("net.toml"), "[head]\nfamily = \"db-text\"\nsigmoid = true\n").unwrap();
    let output = detect(&[path("--model"), &folder.path().join("net.onnx"), &folder.path().join("white.ppm")]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("remove `sigmoid` under [head]"), "{}", stderr(&output));
}

#[test]
fn a_classifier_gives_every_class_that_passes_but_the_best_ones_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let found = |activation: &str, detect: &str| -> Vec<(String, f64)> {
        let card = format!(
            "[head]\nfamily = \"classifier\"\nactivation = \"{activation}\"\n[detect]\n{detect}\n\
             [classes]\nnames = [\"hat\", \"bag\", \"coat\", \"dog\"]\n"
        );
        fs::write(folder.path().join("net.toml"), card).unwrap();
        let message = message_of(folder.path(), &network("tags"));
        let detections = message["detections"].as_array().unwrap().clone();
        assert!(detections.iter().all(|one| one.get("box").is_none()), "{message}");
        let label = |one: &serde_json::Value| one["label"].as_str().unwrap().to_owned();
        detections.iter().map(|one| (label(one), one["score"].as_f64().unwrap())).collect()
    };
    let four = |score: f64| (score * 1e4).round() / 1e4;
    let sigmoid = |class: usize| four(1.0 / (1.0 + f64::from(-TAGS[class]).exp()));
    let sum: f64 = TAGS.iter().map(|&logit| f64::from(logit).exp()).sum();
    let softmax = |class: usize| four(f64::from(TAGS[class]).exp() / sum);
    let [hat, bag, coat, dog] = ["hat", "bag", "coat", "dog"].map(str::to_owned);
    // Several labels: each is judged by itself.
    let both = vec![(hat.clone(), sigmoid(0)), (coat.clone(), sigmoid(2))];
    assert_eq!(found("sigmoid", "score_threshold = 0.5"), both);
    assert_eq!(found("sigmoid", "score_threshold = 0.5\nmax_detections = 1"), both[..1]);
    assert_eq!(found("sigmoid", "score_threshold = 0.95"), []);
    // One label: the best, the best two, all.
    let all = [(hat, softmax(0)), (coat, softmax(2)), (dog, softmax(3)), (bag, softmax(1))];
    assert_eq!(found("softmax", "score_threshold = 0\nmax_detections = 1"), all[..1]);
    assert_eq!(found("softmax", "score_threshold = 0\nmax_detections = 2"), all[..2]);
    assert_eq!(found("softmax", "score_threshold = 0"), all);
    assert_eq!(found("softmax", ""), all[..2], "those of 0.1 and more");
}

/// Returns the table for the network and the image that `message_of` has written, as rows of words.
fn table_of(folder: &Path) -> Vec<String> {
    let output = detect(&[path("--model"), &folder.join("net.onnx"), &folder.join("white.ppm")]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = |line: &str| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
    table.lines().skip(1).map(words).collect()
}

#[test]
fn attributes_come_in_the_cards_order_and_are_written_on_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let card = |rest: &str| {
        let card = format!(
            "[head]\nfamily = \"attributes\"\n\
             [[head.attribute]]\nname = \"worn\"\noutput = \"worn\"\nclasses = [\"hat\", \"bag\", \"coat\"]\nmulti_label = true\n\
             activation = \"none\"\n\
             [[head.attribute]]\nname = \"gender\"\noutput = \"gender\"\nclasses = [\"female\", \"male\"]\n{rest}"
        );
        fs::write(folder.path().join("net.toml"), card).unwrap();
    };
    let picture = || fs::read(folder.path().join("out/white-annotated.jpg")).unwrap();
    let age = "[[head.attribute]]\nname = \"age\"\noutput = \"age\"\nscale = 100\n";
    card(age);
    let message = message_of(folder.path(), &network("attributes"));
    let with_age = picture();
    let four = |score: f64| (score * 1e4).round() / 1e4;
    let sigmoid = |logit: f32| four(1.0 / (1.0 + f64::from(-logit).exp()));
    let [a, b] = GENDER.map(|logit| f64::from(logit).exp());
    let label = |label: &str, score: f64| serde_json::json!({"label": label, "score": score});
    let worn = [label("hat", sigmoid(WORN[0])), label("coat", sigmoid(WORN[2]))];
    assert_eq!(message["detections"], serde_json::json!([]));
    assert_eq!(message["attributes"]["worn"], serde_json::json!({"labels": worn}));
    assert_eq!(message["attributes"]["gender"], label("female", four(a / (a + b))));
    assert_eq!(message["attributes"]["age"], serde_json::json!({"value": 31.2}));
    assert_eq!(table_of(folder.path()), ["worn: hat 0.88", "worn: coat 0.62", "gender: female 0.95", "age: 31.2"]);
    card("");
    let message = message_of(folder.path(), &network("attributes"));
    assert_eq!(message["attributes"].as_object().unwrap().len(), 2);
    assert!(picture() != with_age, "the age is written on the picture");
    card(&format!("{age}[detect]\nscore_threshold = 0.99\n"));
    let message = message_of(folder.path(), &network("attributes"));
    assert_eq!(message["attributes"]["worn"], serde_json::json!({"labels": []}));
    assert_eq!(table_of(folder.path())[0], "worn: none");
}

#[test]
fn an_embedding_is_written_as_halves_of_length_1() {
    use base64::prelude::{BASE64_STANDARD, Engine};
    let folder = tempfile::tempdir().unwrap();
    let vector = |options: &str| -> Vec<f32> {
        fs::write(folder.path().join("net.toml"), format!("[head]\nfamily = \"embedding\"\n{options}")).unwrap();
        let message = message_of(folder.path(), &network("embedding"));
        assert_eq!(message["embedding"]["length"], EMBEDDING.len());
        let bytes = BASE64_STANDARD.decode(message["embedding"]["f16"].as_str().unwrap()).unwrap();
        bytes.as_chunks().0.iter().map(|&bytes| half::f16::from_le_bytes(bytes).to_f32()).collect()
    };
    assert_eq!(vector("normalize = false\n"), EMBEDDING);
    // Its length is 13.
    for (found, wanted) in vector("").iter().zip(EMBEDDING) {
        assert!((found - wanted / 13.0).abs() < 5e-4, "{found} instead of {wanted} / 13");
    }
    assert_eq!(table_of(folder.path()), ["embedding of 16 numbers"]);
}

#[test]
fn depth_is_a_grid_over_the_frame_without_its_padding() {
    let folder = tempfile::tempdir().unwrap();
    let depth = |card: &str| {
        fs::write(folder.path().join("net.toml"), format!("[head]\nfamily = \"depth\"\n{card}")).unwrap();
        message_of(folder.path(), &network("depth"))["depth"].clone()
    };
    // Each cell has 8 x 4 of the map's 16 x 16 pixels.
    let found = depth("grid = [2, 4]\nnearer = \"smaller\"\n");
    assert_eq!((&found["columns"], &found["rows"]), (&2.into(), &4.into()));
    let cells = |number: fn(usize, usize) -> f32| -> Vec<f32> {
        (0..8).map(|cell| number(8 * (cell % 2), 4 * (cell / 2))).collect()
    };
    let numbers = |value: &serde_json::Value| -> Vec<f32> {
        value.as_array().unwrap().iter().map(|cell| cell.as_f64().unwrap() as f32).collect()
    };
    assert_eq!(numbers(&found["nearest"]), cells(depth_at));
    // Half of a cell's numbers lie in its first two lines.
    assert_eq!(numbers(&found["median"]), cells(|x, y| (depth_at(x + 7, y + 1) + depth_at(x, y + 2)) / 2.0));
    assert_eq!(table_of(folder.path()), ["depth in 2x4 cells, medians from 153.5 to 1361.5"]);
    let found = depth("grid = [2, 4]\n");
    assert_eq!(numbers(&found["nearest"]), cells(|x, y| depth_at(x + 7, y + 3)));
    // The crop leaves out a quarter of the frame at each side.
    let found = depth("grid = [4, 4]\n[input]\nfit = \"crop\"\ncrop_fraction = 0.5\n");
    let nulls: Vec<bool> = found["median"].as_array().unwrap().iter().map(serde_json::Value::is_null).collect();
    let inside = |cell: usize| (1..3).contains(&(cell % 4)) && (1..3).contains(&(cell / 4));
    assert_eq!(nulls, (0..16).map(|cell| !inside(cell)).collect::<Vec<_>>());
    assert_eq!(found["median"][5], serde_json::json!(353.5));
}
