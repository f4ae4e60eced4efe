//! References as people and their programs write them: right, mistaken and hostile.

#![allow(clippy::unwrap_used)]

use super::*;

const LABELS: [&str; 3] = ["cat", "dog", "cow"];

fn read_as(text: &str, pictures: &[&str], labels: &[&str], ids: CategoryIds) -> Result<Reference, String> {
    let pictures: Vec<_> = pictures.iter().map(PathBuf::from).collect();
    parse(text.as_bytes(), &pictures, labels, ids).map_err(|error| error.message(Path::new("r.json")))
}

fn read(text: &str) -> Result<Reference, String> {
    read_as(text, &["in/a.jpg", "in/b.png"], &LABELS, CategoryIds::Auto)
}

fn refusal(text: &str) -> String {
    let message = read(text).unwrap_err();
    message.strip_prefix("cannot use the reference r.json").unwrap_or_else(|| panic!("{message}")).to_owned()
}

fn coco(image: &str, category: u32, score: f64) -> String {
    format!(r#"{{"image_id":{image},"category_id":{category},"bbox":[1,2,30,40],"score":{score},"id":7,"iscrowd":0}}"#)
}

#[test]
fn coco_results_are_an_array_or_lines_and_come_best_first() {
    let [a, b, c] = [coco("\"a.jpg\"", 0, 0.25), coco("\"b.png\"", 2, 0.5), coco("\"a.jpg\"", 1, 0.75)];
    for text in [format!("[{a},\n{b},{c}]"), format!("{a}\n\n{b}\r\n{c}\n")] {
        let reference = read(&text).unwrap();
        assert_eq!(
            (reference.form, reference.category_ids, reference.has_boxes),
            (Form::Coco, CategoryIds::From0, true)
        );
        let [first, second] = &reference.pictures[..] else { panic!() };
        assert_eq!((first.detections.len(), second.detections.len(), first.ids.clone()), (2, 1, vec![1, 0]));
        let best = &first.detections[0];
        assert_eq!((best.class_id, best.score, best.box_in_source), (1, 0.75, Some([1.0, 2.0, 31.0, 42.0])));
    }
    assert!(read("[]").unwrap().is_empty());
}

#[test]
fn masks_are_run_lengths() {
    // Two pixels of a frame of 40 columns and 3 rows: (33, 1) and (33, 2). 100 pixels are not in it, 2 are, 18 are not.
    let runs = r#"{"size":[3,40],"counts":"T32b0"}"#;
    let results = coco("\"a.jpg\"", 0, 0.5).replace("\"id\"", &format!("\"segmentation\":{runs},\"id\""));
    let message = format!(
        r#"{{"schema":"visiond/1","frame":{{"file":"a.jpg"}},"detections":[{{"class_id":0,"score":0.5,"mask":{{"rle":{runs}}}}}]}}"#
    );
    for text in [results.clone(), message] {
        let reference = read(&text).unwrap();
        let mask = reference.pictures[0].detections[0].mask.as_ref().unwrap();
        assert_eq!((mask.left, mask.top, mask.width, mask.height, mask.area()), (32, 1, 8, 2, 2), "{text}");
    }
    // Polygons are not compared.
    let polygons = read(&results.replace(runs, "[[1,2,3,4,5,6]]")).unwrap();
    assert_eq!(polygons.pictures[0].detections[0].mask, None);
    assert!(refusal(&results.replace("[3,40]", "[3,41]")).contains("they do not fill 41 x 3 pixels: give"));
    assert!(refusal(&results.replace("T32b0", "T32 ")).contains("character 3 is not one of"));
    assert!(refusal(&results.replace("[3,40]", "[0,40]")).contains("its mask is of 40 x 0 pixels"));
    assert!(
        refusal(&results.replace("[3,40]", "[20000,20000]"))
            .contains("its mask is of 20000 x 20000 pixels: give `size`")
    );
}

#[test]
fn messages_of_visiond_are_a_reference() {
    let message = r#"{"schema":"visiond/1","camera":"detect","frame":{"width":9,"height":9,"file":"/elsewhere/b.png"},
        "detections":[{"class_id":2,"label":"cow","score":0.5,"box":{"x":1,"y":2,"width":3,"height":4},
        "oriented":{"x":5,"y":6,"width":4,"height":2,"angle":0.5,"corners":[]},"keypoints":[{"x":1.5,"y":2.5}]}]}"#
        .replace('\n', "");
    let reference = read(&message).unwrap();
    let found = &reference.pictures[1].detections[0];
    assert_eq!((found.class_id, found.box_in_source), (2, Some([1.0, 2.0, 4.0, 6.0])));
    assert_eq!(found.oriented, Some(OrientedBox { center: [5.0, 6.0], size: [4.0, 2.0], angle: 0.5 }));
    assert_eq!(found.keypoints, [Keypoint { x: 1.5, y: 2.5, score: None }]);
    let twice = refusal(&format!("{message}\n{message}\n"));
    assert_eq!(twice, ", line 2: it is the second about in/b.png: keep one");
    assert!(refusal(&message.replace("/1", "/2")).starts_with(", line 1: its schema is `visiond/2`"));
    assert!(refusal(&message.replace("\"file\"", "\"name\"")).contains("it lacks `frame.file`"));
    assert!(
        refusal(&message.replace("class_id\":2", "class_id\":3"))
            .contains("class 3 is not one of the model's 3 classes")
    );
}

#[test]
fn scores_of_classes_go_by_number_or_by_label() {
    for scores in ["[0.1,0.2,0.7]", r#"{"cow":0.7,"cat":0.1,"1":0.2}"#] {
        let reference = read(&format!(r#"{{"image":"a.jpg","scores":{scores}}}"#)).unwrap();
        let found: Vec<_> = reference.pictures[0].detections.iter().map(|d| (d.class_id, d.score)).collect();
        assert_eq!(found, [(2, 0.7), (1, 0.2), (0, 0.1)]);
        assert!(!reference.has_boxes);
    }
    assert!(refusal(r#"{"image":"a.jpg","scores":{"emu":1}}"#).contains("`emu` is not one of the model's classes"));
    assert!(
        refusal(r#"{"image":"a.jpg","scores":[0,0,0,1]}"#)
            .contains("`scores` has 4 numbers, but the model has 3 classes")
    );
    assert!(
        refusal(r#"{"image":"a.jpg","scores":[0,1]}"#).contains("`scores` has 2 numbers, but the model has 3 classes")
    );
    assert!(refusal(r#"{"image":"a.jpg","scores":7}"#).contains("`scores` must be a list of numbers"));
}

#[test]
fn a_file_may_begin_with_the_mark_of_utf_8() {
    for text in [coco("\"a.jpg\"", 0, 0.5), format!("[{}]", coco("\"a.jpg\"", 0, 0.5))] {
        assert_eq!(read(&format!("\u{feff}{text}")).unwrap().pictures[0].detections.len(), 1);
    }
}

#[test]
fn an_entry_that_is_no_object_is_told_what_one_is() {
    for (entry, found) in [("null", "null"), ("5", "integer `5`"), ("\"a\"", "string \"a\"")] {
        for text in [entry.to_owned(), format!("[{entry}]")] {
            let error = refusal(&text);
            assert!(
                error.contains(&format!("invalid type: {found}, expected an object like {{\"image_id\"")),
                "{error}"
            );
        }
    }
}

#[test]
fn a_picture_goes_by_path_name_stem_or_number() {
    let index = |pictures: &[&str], id: &str| {
        let reference = read_as(&coco(id, 0, 0.5), pictures, &LABELS, CategoryIds::Auto)?;
        Ok::<_, String>(reference.pictures.iter().position(|picture| !picture.detections.is_empty()).unwrap())
    };
    let plain = ["in/a.jpg", "in/b.png"];
    for id in ["\"in/b.png\"", "\"b.png\"", "\"b\"", "\"/data/b.png\"", "1"] {
        assert_eq!(index(&plain, id), Ok(1), "{id}");
    }
    let message = index(&plain, "2").unwrap_err();
    assert!(message.contains("there is no picture 2: give a name, or a number below 2"), "{message}");
    // COCO's numbers are those in the files' names.
    let numbered = ["000000000139.jpg", "000000000001.jpg"];
    assert_eq!((index(&numbered, "1"), index(&numbered, "139")), (Ok(1), Ok(0)));
    assert!(index(&numbered, "0").unwrap_err().contains("the picture 0 is not among those given"));
    let message = index(&["x/a.jpg", "y/a.jpg"], "\"a.jpg\"").unwrap_err();
    assert!(message.contains("the picture a.jpg may be x/a.jpg or y/a.jpg"), "{message}");
    assert_eq!(index(&["x/a.jpg", "y/a.jpg"], "\"y/a.jpg\""), Ok(1));
    assert!(index(&plain, "-1").unwrap_err().contains("a picture must be a file's name or a whole number"));
    assert!(index(&plain, "\"c\\u001b\\n.jpg\"").unwrap_err().contains("the picture c\\u{1b}\\n.jpg is not among"));
}

#[test]
fn category_ids_are_cocos_where_they_cannot_be_anything_else_or_where_the_user_says_so() {
    let coco80: Vec<String> = (0..91).filter_map(coco_class).map(|class| class.to_string()).collect();
    assert_eq!(coco80.len(), 80);
    let names =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/src/card/presets.rs")).unwrap();
    let names = names.split("COCO80: &str = \"").nth(1).unwrap().split('"').next().unwrap().replace("\\\n", "");
    let names: Vec<_> = names.split(',').map(str::trim).collect();
    let classes = |ids: &[u32], how| {
        let lines: Vec<_> = ids.iter().map(|id| coco("\"a.jpg\"", *id, 0.5)).collect();
        let reference = read_as(&lines.join("\n"), &["a.jpg"], &names, how)?;
        let classes: Vec<_> = reference.pictures[0].detections.iter().map(|d| d.class_id).collect();
        Ok::<_, String>((reference.category_ids, classes))
    };
    let auto = CategoryIds::Auto;
    assert_eq!(classes(&[1, 17], auto), Ok((CategoryIds::From0, vec![1, 17])));
    assert_eq!(classes(&[1, 90], auto), Ok((CategoryIds::Coco, vec![0, 79])));
    assert_eq!(classes(&[1, 17], CategoryIds::Coco), Ok((CategoryIds::Coco, vec![0, 15])));
    assert_eq!(classes(&[1, 80], CategoryIds::From1), Ok((CategoryIds::From1, vec![0, 79])));
    let message = classes(&[0, 90], auto).unwrap_err();
    assert_eq!(
        message,
        "cannot use the reference r.json, line 2: category 90 is not one of the model's 80 classes, numbered 0 to 79: say how \
         the file counts them with --category-ids"
    );
    assert!(classes(&[12], CategoryIds::Coco).unwrap_err().contains("category 12 is not one of COCO's 80"));
    assert!(classes(&[0], CategoryIds::From1).unwrap_err().contains("numbered 1 to 80"));
    let message = read_as(&coco("\"a.jpg\"", 1, 0.5), &["a.jpg"], &LABELS, CategoryIds::Coco).unwrap_err();
    assert!(message.contains("the model's classes are not COCO's 80"), "{message}");

    // The numbering that fits the model's classes better is found.
    let pairs = BTreeMap::from([((17, 15), 3), ((1, 0), 2), ((3, 9), 1)]);
    assert_eq!(CategoryIds::From0.better(&pairs, &names), Some(CategoryIds::Coco));
    assert_eq!(CategoryIds::Coco.better(&pairs, &names), None);
    let of_first = BTreeMap::from([((1, 0), 2)]);
    assert_eq!(CategoryIds::From0.better(&of_first, &names), Some(CategoryIds::Coco));
    assert_eq!(CategoryIds::From0.better(&of_first, &LABELS), Some(CategoryIds::From1));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let good = coco("\"a.jpg\"", 0, 0.5);
    let in_line_2 = |wrong: &str| {
        let message = refusal(&format!("{good}\n{wrong}\n{good}\n"));
        message.strip_prefix(", line 2: ").unwrap_or_else(|| panic!("{message}")).to_owned()
    };
    assert!(refusal(" \n").starts_with(": it is empty: "));
    assert!(in_line_2("hello").starts_with("this is not JSON: expected value, column 1"));
    assert!(in_line_2("{\"image_id\":").starts_with("this is not JSON: EOF while parsing"));
    assert_eq!(
        in_line_2(&good.replace("0.5", "NaN")),
        "column 64 has NaN or Infinity, which JSON does not have: leave such boxes out"
    );
    assert!(in_line_2(&good.replace("30", "-Infinity")).contains("has NaN or Infinity"));
    assert!(in_line_2(&good.replace("0.5", "1e999")).starts_with("this is not JSON: number out of range"));
    assert_eq!(in_line_2(&good.replace("0.5", "50")), "the score 50 is not from 0 to 1");
    assert!(in_line_2(&good.replace("30", "-30")).contains("1, 2, -30, 40 is no box"));
    assert!(in_line_2(&good.replace("30", "1e300")).contains("is no box"));
    assert!(in_line_2(&good.replace("[1,2,30,40]", "[1,2,30]")).contains("invalid length 3"));
    assert!(
        in_line_2(&good.replace("score", "confidence")).starts_with("it lacks `score`: COCO results have image_id")
    );
    assert!(
        in_line_2(&good.replace("\"category_id\":0", "\"category_id\":-1")).contains("invalid value: integer `-1`")
    );
    assert!(in_line_2("{\"boxes\":[]}").starts_with("it has neither the keys of COCO results"));
    assert!(in_line_2("{\"images\":[],\"annotations\":[{}]}").starts_with("it has COCO's annotations, not results"));
    assert!(in_line_2(&good.replace("a.jpg", "c.jpg")).starts_with("the picture c.jpg is not among those given"));
    assert!(in_line_2(r#"{"image":"b.png","scores":[1]}"#).starts_with("it belongs to scores of classes"));
    assert!(in_line_2(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000))).contains("column 1"));

    let wrong = good.replace("a.jpg", "c.jpg");
    assert!(refusal(&format!("[{good},{wrong}]")).starts_with(", entry 2: the picture c.jpg"));
    assert!(refusal(&format!("[{good},\n{good}\n")).starts_with(", line 3: this is not JSON: EOF while parsing"));
    assert!(refusal(&format!("[{good}]\n[{good}]")).starts_with(", line 2: this is not JSON: trailing characters"));
    assert!(refusal(&format!("[\n{}]", good.replace("0.5", "NaN"))).starts_with(", line 2: column 64 has NaN"));
    let share = good.replace("[1,2,30,40]", "[0.1,0.2,0.3,0.4]");
    assert!(refusal(&share).starts_with(": all its boxes lie within the first pixel"));
}

#[test]
fn a_file_is_read_up_to_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.json");
    File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
    assert!(read_file(&path).unwrap_err().starts_with("it is larger than 256 MiB"));
    assert!(read_file(&folder.path().join("none")).unwrap_err().contains("No such file"));
    assert!(read_file(folder.path()).unwrap_err().contains("Is a directory"));
}

#[test]
fn coco_results_may_have_keypoints() {
    let with = |points: &str| coco("\"a.jpg\"", 0, 0.5).replace("\"id\":7", &format!("\"keypoints\":[{points}]"));
    let reference = read(&with("1.5,2,0.25,3,4,2")).unwrap();
    let points = [Keypoint { x: 1.5, y: 2.0, score: Some(0.25) }, Keypoint { x: 3.0, y: 4.0, score: Some(2.0) }];
    assert_eq!(reference.pictures[0].detections[0].keypoints, points);
    assert!(read(&with("")).unwrap().pictures[0].detections[0].keypoints.is_empty());
    for wrong in ["1,2", "1,2,1,3", "1e7,2,1"] {
        assert!(refusal(&with(wrong)).contains("`keypoints` must be x, y and score"), "{wrong}");
    }
}
