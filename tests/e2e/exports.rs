//! Exports of many projects: each is read correctly, without a card or with the one that `inspect` prints, or rejected by
//! name. None silently gives other objects.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use visiond_tests::exports::{
    BODY, Layout, OBJECTS, Wanted, body, classifier_of_bytes, followed, layouts, of_bytes, of_person, of_rows,
    one_person, points_of, poses, prompted, prompts,
};
use visiond_tests::networks::{SIDE, network};
use visiond_tests::{assert_no_panic, command, json_lines, picture, root, stderr};

const CONFIG: i32 = 3;

/// The side of the image, which is square, so that every fit gives the same placement.
const PICTURE_SIDE: f64 = 512.0;

/// How many pieces of advice the test follows at most.
const STEPS: usize = 6;

fn visiond(folder: &Path, args: &[&str]) -> Output {
    let output = command().args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    assert_no_panic(&stderr(&output));
    output
}

fn detect(folder: &Path) -> Result<Vec<Value>, String> {
    let picture = picture("astronaut.png");
    let output = visiond(folder, &["detect", "--json", "--model", "net.onnx", picture.to_str().unwrap()]);
    match output.status.code() {
        Some(0) => Ok(json_lines(&output.stdout)[0]["detections"].as_array().unwrap().clone()),
        Some(CONFIG) => Err(stderr(&output)),
        code => panic!("status {code:?}: {}", stderr(&output)),
    }
}

/// Whether the detections are the objects, and no others.
fn are_objects(found: &[Value]) -> bool {
    are(found, &OBJECTS)
}

/// Whether the detections are the objects as people, with the keypoints of each.
fn are_people(found: &[Value]) -> bool {
    let scale = PICTURE_SIDE / SIDE as f64;
    let people = OBJECTS.map(|[x1, y1, x2, y2, score, _]| [x1, y1, x2, y2, score, 0.0]);
    let has_points = |one: &Value| {
        let of = |object: &&[f32; 6]| (one["score"].as_f64().unwrap() - f64::from(object[4])).abs() < 0.03;
        let Some(object) = people.iter().find(of) else { return false };
        let points = one["keypoints"].as_array().cloned().unwrap_or_default();
        let near = |found: &Value, wanted: f32, limit: f64| (found.as_f64().unwrap() - f64::from(wanted)).abs() < limit;
        let is = |found: &Value, [x, y, score]: [f32; 3]| {
            let scale = scale as f32;
            near(&found["x"], x * scale, 4.0) && near(&found["y"], y * scale, 4.0) && near(&found["score"], score, 0.03)
        };
        points.len() == BODY && points.iter().zip(points_of(*object, BODY)).all(|(found, wanted)| is(found, wanted))
    };
    are(found, &people) && found.iter().all(has_points)
}

/// Whether the only detection is the person, with its points.
fn is_the_person(found: &[Value]) -> bool {
    let scale = PICTURE_SIDE / SIDE as f64;
    let side = |axis: usize| {
        let places = || body().into_iter().map(move |point| f64::from(point[axis]) * scale);
        [places().fold(f64::INFINITY, f64::min), places().fold(0.0, f64::max)]
    };
    let near =
        |found: &Value, wanted: f64, limit: f64| found.as_f64().is_some_and(|found| (found - wanted).abs() < limit);
    let ([x1, x2], [y1, y2]) = (side(0), side(1));
    let [one] = found else { return false };
    let points = one["keypoints"].as_array().cloned().unwrap_or_default();
    let is = |(found, [x, y, score]): (&Value, [f32; 3])| {
        let [x, y, score] = [x, y, score].map(f64::from);
        near(&found["x"], x * scale, 4.0) && near(&found["y"], y * scale, 4.0) && near(&found["score"], score, 0.01)
    };
    let corners = [("x", x1), ("y", y1), ("width", x2 - x1), ("height", y2 - y1)];
    corners.iter().all(|(key, wanted)| near(&one["box"][key], *wanted, 4.0))
        && near(&one["score"], 0.9, 0.01)
        && one["label"] == "person"
        && points.len() == BODY
        && points.iter().zip(body()).all(is)
}

/// Whether the detections are these objects, and no others.
fn are(found: &[Value], objects: &[[f32; 6]]) -> bool {
    let scale = PICTURE_SIDE / SIDE as f64;
    let is = |object: &[f32; 6], one: &Value| {
        let [x1, y1, x2, y2, score, class] = object.map(f64::from);
        let number = |key: &str| one["box"][key].as_f64().unwrap();
        let near = |key: &str, wanted: f64| (number(key) - wanted * scale).abs() < 4.0;
        near("x", x1)
            && near("y", y1)
            && near("width", x2 - x1)
            && near("height", y2 - y1)
            && (one["score"].as_f64().unwrap() - score).abs() < 0.03
            && one["class_id"].as_f64() == Some(class)
    };
    found.len() == objects.len() && objects.iter().all(|object| found.iter().any(|one| is(object, one)))
}

/// Returns the outcome of an export if a user follows visiond's advice, and the steps.
fn outcome(folder: &Path, layout: &Layout, is_right: fn(&[Value]) -> bool) -> (String, Option<Wanted>) {
    std::fs::write(folder.join("net.onnx"), &layout.bytes).unwrap();
    let _ = std::fs::remove_file(folder.join("net.toml"));
    let judged = |found: Vec<Value>, right| match is_right(&found) {
        true => ("right".to_owned(), Some(right)),
        false => (format!("WRONG: {found:?}"), None),
    };
    let error = match detect(folder) {
        Ok(found) => return judged(found, Wanted::NoCard),
        Err(error) => error,
    };
    let output = visiond(folder, &["inspect", "--json", "net.onnx"]);
    assert_eq!(output.status.code(), Some(0), "{}: {}", layout.name, stderr(&output));
    let described: Value = serde_json::from_slice(&output.stdout).unwrap();
    let exporter = described["export"]["exporter"].as_str().unwrap_or_default();
    let Some(card) = described["heads"][0]["card"].as_str() else {
        let Wanted::Refused(name) = layout.wanted else { return (format!("refused: {error}"), None) };
        let text = String::from_utf8(visiond(folder, &["inspect", "net.onnx"]).stdout).unwrap();
        let is_named = exporter.contains(name) && text.contains(name) && error.contains(name);
        return (format!("refused: {exporter}"), is_named.then_some(layout.wanted));
    };
    let mut card = card.replace("size = [800, 800]", "size = [64, 64]");
    for step in 0..STEPS {
        std::fs::write(folder.join("net.toml"), &card).unwrap();
        let error = match detect(folder) {
            Ok(found) => {
                let (text, wanted) = judged(found, Wanted::Card);
                return (format!("{text}, with\n{card}"), wanted);
            }
            Err(error) => error,
        };
        match followed(&card, &error) {
            Some(new) => card = new,
            None => return (format!("STUCK after {step}: {error}\n{card}"), None),
        }
    }
    (format!("ENDLESS: {card}"), None)
}

#[test]
fn inspect_says_which_preprocess_finds_what_the_assumed_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("net.onnx"), of_bytes()).unwrap();
    let text = String::from_utf8(visiond(folder.path(), &["inspect", "net.onnx"]).stdout).unwrap();
    assert!(text.contains("# Assumed, since the file does not say it: RGB from 0 to 1."), "{text}");
    let said = "with the card below it finds nothing in an image of a person, and 5 objects (score up to 0.92) with `scale = 1`";
    assert!(text.contains(said), "{text}");
}

#[test]
fn inspect_proposes_no_order_of_rows_that_no_picture_has_shown_and_shows_a_tie_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let inspect = |rows: &[[f32; 6]]| {
        std::fs::write(folder.path().join("net.onnx"), of_rows(rows)).unwrap();
        String::from_utf8(visiond(folder.path(), &["inspect", "net.onnx"]).stdout).unwrap()
    };
    let text = inspect(&[[0.0; 6]; 3]);
    assert!(text.contains("not        yolo-nms: no test image gives a row, so nothing shows the order"), "{text}");
    assert!(text.contains("no head of visiond reads the outputs") && !text.contains("[head]\n"), "{text}");
    // A score of 1 and class 1.
    let text = inspect(&[[8.0, 8.0, 24.0, 32.0, 1.0, 1.0]]);
    assert!(text.contains("tie        these ways to read yolo-nms fit equally well"), "{text}");
    // A score beyond 1 in every order.
    let text = inspect(&[[8.0, 8.0, 24.0, 32.0, 1.3, 1.4]]);
    assert!(text.contains("not        yolo-nms: none of the known orders of `columns` fits: "), "{text}");
}

#[test]
fn inspect_tells_centre_and_size_from_corners_where_both_are_boxes_of_the_whole_picture() {
    let folder = tempfile::tempdir().unwrap();
    let centre = "columns = [\"cx\", \"cy\", \"w\", \"h\", \"score\", \"class\"]";
    for (is_centre, unit) in [(true, 1.0), (true, 1.0 / SIDE as f32), (false, 1.0)] {
        std::fs::write(folder.path().join("net.onnx"), of_person(is_centre, unit)).unwrap();
        let text = String::from_utf8(visiond(folder.path(), &["inspect", "net.onnx"]).stdout).unwrap();
        assert_eq!(text.matches("[head]\n").count(), 1, "{text}");
        assert_eq!(text.contains(centre), is_centre, "{text}");
        assert_eq!(text.contains("unit = \"normalized\""), unit < 1.0, "{text}");
        assert!(text.contains("family = \"yolo-nms\"") && !text.contains("tie        "), "{text}");
    }
}

/// Returns how docs/models.md differs for an export: in what visiond needs, or by a line that the card does not have.
fn undocumented(layout: &Layout, text: &str) -> Option<String> {
    let manual = std::fs::read_to_string(root().join("docs/models.md")).unwrap();
    let (_, section) = manual.split_once("## Exports of other projects\n").unwrap();
    let Some(row) = section.lines().find(|line| line.starts_with(&format!("| {} |", layout.name))) else {
        return Some("docs/models.md has no row of it".to_owned());
    };
    let needs = match layout.wanted {
        Wanted::NoCard => "nothing",
        Wanted::Card => "a card",
        Wanted::Refused(_) => "not read",
    };
    let columns: Vec<&str> = row.split(" | ").collect();
    let is_line = |part: &&str| part.contains(" = ");
    let missing = row.split('`').filter(is_line).find(|line| layout.wanted == Wanted::Card && !text.contains(line));
    if columns.get(1) != Some(&needs) {
        return Some(format!("docs/models.md says {:?}", columns.get(1)));
    }
    missing.map(|line| format!("the card has no `{line}`, which docs/models.md has: {text}"))
}

#[test]
fn every_export_is_read_rightly_or_refused_by_its_name() {
    let layouts = layouts();
    let rest = std::sync::Mutex::new(layouts.iter());
    let table = std::sync::Mutex::new(Vec::new());
    let work = || {
        let folder = tempfile::tempdir().unwrap();
        loop {
            let Some(layout) = rest.lock().unwrap().next() else { break };
            let (mut text, mut found) = outcome(folder.path(), layout, are_objects);
            if let Some(wrong) = undocumented(layout, &text) {
                (found, text) = (None, wrong);
            }
            table.lock().unwrap().push((layout.name, found == Some(layout.wanted), text));
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let table = table.into_inner().unwrap();
    let lines: Vec<String> = table.iter().map(|(name, ok, text)| format!("{ok:5}  {name:32}  {text}")).collect();
    println!("{}", lines.join("\n"));
    assert_eq!(table.len(), layouts.len());
    assert!(table.iter().all(|(_, ok, _)| *ok), "\n{}", lines.join("\n"));
}

#[test]
fn people_with_keypoints_are_read_rightly_with_the_card_that_inspect_prints() {
    let folder = tempfile::tempdir().unwrap();
    for layout in poses() {
        let (text, found) = outcome(folder.path(), &layout, are_people);
        assert_eq!(found, Some(layout.wanted), "{}: {text}", layout.name);
        assert_eq!(undocumented(&layout, &text), None, "{}", layout.name);
    }
}

#[test]
fn the_points_of_one_person_are_read_rightly_with_the_card_that_inspect_prints() {
    let folder = tempfile::tempdir().unwrap();
    for layout in one_person() {
        let (text, found) = outcome(folder.path(), &layout, is_the_person);
        assert_eq!(found, Some(layout.wanted), "{}: {text}", layout.name);
        assert_eq!(undocumented(&layout, &text), None, "{}", layout.name);
    }
}

#[test]
fn a_detector_of_any_class_finds_what_the_prompts_in_a_file_beside_its_card_name() {
    let folder = tempfile::tempdir().unwrap();
    let layout = prompted();
    let write = |classes: &[usize], half| {
        std::fs::write(folder.path().join("txt_feats.npy"), prompts(classes, half)).unwrap();
    };
    write(&[0, 1, 2, 3], false);
    let (text, found) = outcome(folder.path(), &layout, are_objects);
    assert_eq!(found, Some(layout.wanted), "{text}");
    assert_eq!(undocumented(&layout, &text), None);
    let card = std::fs::read_to_string(folder.path().join("net.toml")).unwrap();
    // Other prompts, in another order: only the names also change.
    for half in [false, true] {
        write(&[3, 0], half);
        let named = card.replace("# names = [...]", "names = [\"cat\", \"person\"]");
        std::fs::write(folder.path().join("net.toml"), named).unwrap();
        let found = detect(folder.path()).unwrap();
        let labels: Vec<&str> = found.iter().filter_map(|one| one["label"].as_str()).collect();
        assert_eq!(labels, ["person", "cat"], "{found:?}");
        let wanted = [OBJECTS[1], OBJECTS[3]]
            .map(|[x1, y1, x2, y2, score, class]| [x1, y1, x2, y2, score, if class == 3.0 { 0.0 } else { 1.0 }]);
        assert!(are(&found, &wanted), "{found:?}");
    }
    let refused = |card: &str, words: &str| {
        std::fs::write(folder.path().join("net.toml"), card).unwrap();
        let error = detect(folder.path()).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    let three = card.replace("# names = [...]", "names = [\"a\", \"b\", \"c\"]");
    refused(&three, "has columns of 6 numbers instead of 7");
    refused(&card.replace("txt_feats.npy", "../txt_feats.npy"), "it is not in the folder of the card; copy it there");
    refused(&card.replace("txt_feats.npy", "other.npy"), "cannot read the extra input `txt_feats` from other.npy");
    std::fs::write(folder.path().join("txt_feats.npy"), prompts(&[0], false).split_at(200).0).unwrap();
    refused(&card, "it is no file of numpy.save, or not all of it; save it again");
}

#[test]
fn inspect_lists_what_a_classifier_answers_with_each_preprocess_where_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("net.onnx"), classifier_of_bytes()).unwrap();
    let text = String::from_utf8(visiond(folder.path(), &["inspect", "net.onnx"]).stdout).unwrap();
    let said = "this one says for an image of a person: class 0 (0.95) with the card below, ";
    assert!(text.contains(said), "{text}");
    assert!(text.contains("class 1 (0.95) with `scale = 1`, `mean = 0`, `std = 1`"), "{text}");
    assert!(text.contains("Nothing shows it if\n# that is wrong: compare with the code"), "{text}");
    // For a network that ignores its pixels, there is nothing to compare.
    std::fs::write(folder.path().join("net.onnx"), network("classifier")).unwrap();
    let text = String::from_utf8(visiond(folder.path(), &["inspect", "net.onnx"]).stdout).unwrap();
    assert!(text.contains("fits       classifier") && !text.contains("compare    "), "{text}");
}
