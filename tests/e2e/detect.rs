//! `visiond detect` as a newcomer tries it: files in, a table or messages and pictures out.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use visiond_tests::{assert_no_panic, json_lines, picture, root, run, stderr, video, visiond};

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
    // Where detection takes long, progress is reported, too.
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
    // An annotated picture is a valid input, too.
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
fn a_full_standard_output_has_its_exit_status() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(visiond());
    command.args(["detect", "--backend", "rten"]).arg(picture("chelsea.png")).current_dir(root());
    let output = command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(OUTPUT));
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
}
