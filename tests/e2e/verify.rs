//! `visiond verify`: two builds of a model, compared as a user would.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use visiond_tests::networks::{BODY, network};
use visiond_tests::{assert_no_panic, backends, model, picture, root, run, stderr, video};

const CONFIG: i32 = 3;
const MODEL: i32 = 4;
const INPUT: i32 = 5;
const DIFFERS: i32 = 8;

fn verify(first: &Path, second: &Path, options: &[&str]) -> Output {
    let files = [first, second].map(|path| path.as_os_str().to_owned());
    let output = run([OsString::from("verify")].into_iter().chain(files).chain(options.iter().map(OsString::from)));
    assert_no_panic(&stderr(&output));
    output
}

fn media() -> String {
    root().join("tests/media").display().to_string()
}

/// A number in protobuf's base 128, and what follows it.
fn varint(bytes: &[u8]) -> (usize, usize) {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
    let number = bytes[..=end].iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f));
    (number, end + 1)
}

/// Calls `found` with each field of type "bytes" and its number; it may change the bytes.
fn each_field(message: &mut [u8], found: &mut dyn FnMut(usize, &mut [u8])) {
    let mut at = 0;
    while at < message.len() {
        let (tag, length) = varint(&message[at..]);
        at += length;
        let (number, length) = match tag & 7 {
            1 => (0, 8),
            5 => (0, 4),
            _ => varint(&message[at..]),
        };
        at += length;
        if tag & 7 == 2 {
            found(tag >> 3, &mut message[at..at + number]);
            at += number;
        }
    }
}

/// Writes the sample model into a folder of its own, with its card and only the bits `kept` of every large weight (they are f16).
fn perturbed(folder: &Path, kept: u16) -> PathBuf {
    const GRAPH: usize = 7;
    const INITIALIZER: usize = 5;
    const RAW_DATA: usize = 9;
    let mut bytes = fs::read(model()).unwrap();
    let mut changed = 0;
    each_field(&mut bytes, &mut |number, graph| {
        if number == GRAPH {
            each_field(graph, &mut |number, tensor| {
                if number == INITIALIZER {
                    each_field(tensor, &mut |number, data| {
                        // Smaller ones may be shapes.
                        if number == RAW_DATA && data.len() > 4096 {
                            for weight in data.as_chunks_mut::<2>().0 {
                                *weight = (u16::from_le_bytes(*weight) & kept).to_le_bytes();
                            }
                            changed += 1;
                        }
                    });
                }
            });
        }
    });
    assert!(changed > 10, "{changed} weights were changed");
    let path = folder.join("perturbed.onnx");
    fs::write(&path, bytes).unwrap();
    fs::copy(model().with_extension("toml"), path.with_extension("toml")).unwrap();
    path
}

#[test]
fn two_engines_of_one_model_agree() {
    for backend in backends() {
        let options = ["--images", &media(), "--backend-a", backend, "--backend-b", "rten", "--json"];
        let output = verify(&model(), &model(), &options);
        assert!(output.status.success(), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["agree"], true);
        assert_eq!(report["pictures"], 3);
        assert_eq!(report["outputs"][0]["name"], "output");
        assert!(report["outputs"][0]["max_abs"].as_f64().unwrap() < 1e-3);
        assert_eq!(report["detections"]["matched"], 3);
        assert!(report["detections"]["min_iou"]["value"].as_f64().unwrap() > 0.999);
        assert_eq!(report["classes"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn a_video_is_compared_too() {
    let video = video().display().to_string();
    let options = ["--video", &video, "--max-frames", "5", "--every", "2", "--backend-b", "rten"];
    let output = verify(&model(), &model(), &options);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("3 pictures") && text.contains("the models agree"), "{text}");
}

#[test]
fn a_model_with_other_results_has_its_exit_status_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let slightly = perturbed(folder.path(), 0xffc0);
    let output = verify(&model(), &slightly, &["--images", &media(), "--min-cosine", "0.999999"]);
    assert_eq!(output.status.code(), Some(DIFFERS), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("the models do not agree:") && text.contains("exceed"), "{text}");
    assert!(text.contains("output output has a cosine of 0.9"), "{text}");
    // The user chooses the limits.
    let lax = ["--min-iou", "0.5", "--max-score-difference", "0.5", "--max-outside", "1", "--images", &media()];
    assert!(verify(&model(), &slightly, &lax).status.success());
    let broken = perturbed(folder.path(), 0);
    let output = verify(&model(), &broken, &["--images", &media(), "--json"]);
    assert_eq!(output.status.code(), Some(DIFFERS));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["agree"], false);
    assert!(report["detections"]["missing"].as_u64().unwrap() > 0);
    assert!(report["reasons"][0].as_str().unwrap().contains("missing"));
}

#[test]
fn models_that_cannot_be_compared_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.onnx");
    fs::copy(model(), &other).unwrap();
    let card = fs::read_to_string(model().with_extension("toml")).unwrap();
    fs::write(other.with_extension("toml"), card.replace("\"nanodet\"\n\n", "\"nanodet\"\norder = \"rgb\"\n\n"))
        .unwrap();
    let output = verify(&model(), &other, &["--images", &media()]);
    assert_eq!(output.status.code(), Some(MODEL));
    assert!(stderr(&output).contains("`order` is bgr in the first and rgb in the second"), "{}", stderr(&output));

    // The card of one also serves the other.
    fs::remove_file(other.with_extension("toml")).unwrap();
    assert!(verify(&other, &model(), &["--images", &media()]).status.success());
    assert!(verify(&model(), &other, &["--images", &media()]).status.success());
    let output = verify(&other, &other, &["--images", &media()]);
    assert_eq!(output.status.code(), Some(CONFIG), "{}", stderr(&output));
}

#[test]
fn pictures_that_show_nothing_prove_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().display().to_string();
    let output = verify(&model(), &model(), &["--images", &images]);
    assert_eq!(output.status.code(), Some(INPUT));
    assert!(stderr(&output).contains("has no images"), "{}", stderr(&output));
    fs::write(folder.path().join("grey.ppm"), b"P6 2 2 255\n\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80").unwrap();
    let output = verify(&model(), &model(), &["--images", &images]);
    assert_eq!(output.status.code(), Some(INPUT));
    assert!(stderr(&output).contains("neither model detects anything"), "{}", stderr(&output));
    assert_eq!(verdict(&output), "agreement is not shown:");
    // An image that cannot be read is reported; the others are compared.
    fs::write(folder.path().join("broken.png"), b"\x89PNG\r\n\x1a\nrubbish").unwrap();
    let output = verify(&model(), &model(), &["--images", &images, "--images", &media()]);
    assert_eq!(output.status.code(), Some(INPUT));
    assert!(stderr(&output).contains("broken.png"), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("4 pictures"));
}

/// Detections of onnxruntime with OpenCV in the sample images, as COCO results: tests/golden/nanodet.json has corners.
fn peer_results() -> Vec<Value> {
    let golden = fs::read_to_string(root().join("tests/golden/nanodet.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let mut results = Vec::new();
    for name in ["astronaut.png", "chelsea.png", "coffee.png"] {
        for found in golden["files"][name][0].as_array().unwrap() {
            let [x, y, right, bottom] = [2, 3, 4, 5].map(|index| found[index].as_f64().unwrap());
            results.push(serde_json::json!({
                "image_id": name, "category_id": found[0], "bbox": [x, y, right - x, bottom - y], "score": found[1],
            }));
        }
    }
    results
}

/// Compares the sample model with `reference`, written to a file, on the sample images.
fn verify_reference(reference: &str, options: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reference.json");
    fs::write(&file, reference).unwrap();
    let file = file.display().to_string();
    let options = [&["--reference", &file], options].concat();
    verify(&model(), &root().join("tests/media"), &options)
}

#[test]
fn another_programs_detections_agree_with_the_models() {
    let results = peer_results();
    let lines: Vec<_> = results.iter().map(Value::to_string).collect();
    for reference in [Value::from(results.clone()).to_string(), lines.join("\n")] {
        let output = verify_reference(&reference, &["--json", "-s", "0.3"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["agree"], &report["pictures"]), (&true.into(), &3.into()));
        assert_eq!(report["reference"]["category_ids"], "from-0");
        assert_eq!(report["reference"]["detections"], 5);
        assert_eq!(report["detections"]["matched"], 5);
        assert_eq!(report["within"][0]["max_score_difference"], 0.01);
        assert_eq!(report["within"][1]["share"], 1.0);
    }
    // visiond's own messages, and the images by name instead of their folder.
    let pictures = ["astronaut.png", "chelsea.png", "coffee.png"].map(picture);
    let messages = run([OsString::from("detect"), "--json".into()].into_iter().chain(pictures.map(OsString::from)));
    let output = verify_reference(&String::from_utf8(messages.stdout).unwrap(), &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("reference.json: messages of visiond\n") && text.contains("IoU 0.99, score 0.005"), "{text}");
    assert!(text.ends_with("\nthe detections agree\n"), "{text}");
}

#[test]
fn a_reference_that_differs_has_its_exit_status_the_worst_picture_and_the_likely_cause() {
    let differs = |results: Vec<Value>, options: &[&str]| {
        let output = verify_reference(&Value::from(results).to_string(), &[&["--json"], options].concat());
        assert_eq!(output.status.code(), Some(DIFFERS), "{}", stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    // A box that is 12 of 440 pixels off has an IoU of 0.95.
    let mut results = peer_results();
    let chelsea = results.iter().position(|found| found["image_id"] == "chelsea.png").unwrap();
    results[chelsea]["bbox"][0] = 14.into();
    let report = differs(results, &[]);
    assert_eq!(report["detections"]["outside"], 1);
    let worst = &report["detections"]["min_iou"];
    assert!(worst["picture"].as_str().unwrap().ends_with("chelsea.png") && worst["value"].as_f64().unwrap() < 0.98);

    // COCO's numbers: a person is 1, a cat 17, a dog 18, a dining table 67, a cup 47, a chair 62.
    let mut results = peer_results();
    for found in &mut results {
        let id = match found["category_id"].as_u64().unwrap() {
            0 => 1,
            15 => 17,
            16 => 18,
            60 => 67,
            41 => 47,
            56 => 62,
            other => panic!("{other}"),
        };
        found["category_id"] = id.into();
    }
    let report = differs(results.clone(), &[]);
    let cause = report["reasons"][1].as_str().unwrap();
    assert_eq!(cause, "3 boxes of the reference are where visiond sees another class: pass --category-ids coco");
    let output = verify_reference(&Value::from(results).to_string(), &["--category-ids", "coco"]);
    assert!(output.status.success(), "{}", stderr(&output));

    // Made with a higher threshold than the card's 0.4.
    let sure: Vec<_> = peer_results().into_iter().filter(|found| found["score"].as_f64().unwrap() > 0.55).collect();
    let report = differs(sure.clone(), &[]);
    let cause = report["reasons"][1].as_str().unwrap();
    assert!(cause.contains("no score below 0.5738") && cause.contains("--score-threshold"), "{cause}");
    let output = verify_reference(&Value::from(sure).to_string(), &["-s", "0.55"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_detection_close_to_the_threshold_is_neither_missing_nor_extra() {
    let with_score = |score: f64| {
        let mut results = peer_results();
        results.push(serde_json::json!({
            "image_id": "coffee.png", "category_id": 9, "bbox": [5, 5, 50, 50], "score": score,
        }));
        verify_reference(&Value::from(results).to_string(), &[]).status.code()
    };
    // The threshold is 0.4.
    assert_eq!([0.3, 0.405, 0.42].map(with_score), [Some(0), Some(0), Some(DIFFERS)]);
    // visiond's detection with a score of 0.3266 is not in a reference made with the threshold 0.32.
    let without: Vec<_> = peer_results().into_iter().filter(|found| found["category_id"] != 56).collect();
    let reference = Value::from(without).to_string();
    assert!(verify_reference(&reference, &["-s", "0.32"]).status.success());
    assert_eq!(verify_reference(&reference, &["-s", "0.3"]).status.code(), Some(DIFFERS));
}

#[test]
fn a_reference_that_cannot_be_used_is_refused_with_its_line() {
    let refusal = |reference: &str, options: &[&str]| {
        let output = verify_reference(reference, options);
        assert_eq!(output.status.code(), Some(INPUT), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
        stderr(&output)
    };
    let lines: Vec<_> = peer_results().iter().map(Value::to_string).collect();
    let nan = lines.join("\n").replacen("0.5738", "NaN", 1);
    assert!(refusal(&nan, &[]).contains("reference.json, line 3: column "), "{}", refusal(&nan, &[]));
    let unknown = lines.join("\n").replace("coffee", "tea");
    let message = refusal(&unknown, &[]);
    assert!(message.contains("line 5: the picture tea.png is not among those given"), "{message}");
    let message = refusal(r#"{"image":"coffee.png","scores":{"person":0.1,"cup":0.9}}"#, &[]);
    assert!(message.contains("it has scores of whole pictures, but the model's head gives boxes"), "{message}");
    // Without any detection, nothing is proved.
    let output = verify_reference("[]", &["-s", "0.99"]);
    assert_eq!((output.status.code(), verdict(&output).as_str()), (Some(INPUT), "agreement is not shown:"));

    for options in [&["--reference", "r.json"][..], &[]] {
        let output =
            run([OsString::from("verify"), model().into()].into_iter().chain(options.iter().map(OsString::from)));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
}

/// Returns the line of the report that says whether the models agree; a report has one.
fn verdict(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let verdicts: Vec<_> = text.lines().filter(|line| line.contains("agree")).collect();
    assert_eq!(verdicts.len(), 1, "{text}");
    verdicts[0].to_owned()
}

#[test]
fn a_threshold_above_every_score_shows_no_agreement() {
    let options = ["--images", &media(), "-s", "0.99"];
    let output = verify(&model(), &model(), &options);
    assert_eq!(output.status.code(), Some(INPUT), "{}", stderr(&output));
    assert_eq!(verdict(&output), "agreement is not shown:");
    let reason = "neither model detects anything with a score of 0.99 or more on these pictures";
    assert!(String::from_utf8_lossy(&output.stdout).ends_with(&format!("{reason}\n")), "{output:?}");
    let error = stderr(&output);
    assert!(error.contains(reason) && error.contains("lower --score-threshold"), "{error}");

    let output = verify(&model(), &model(), &[&options[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(INPUT), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["agree"], false);
    assert_eq!(report["reasons"], serde_json::json!([reason]));

    // Outputs that differ are a difference, also without detections.
    let folder = tempfile::tempdir().unwrap();
    let slightly = perturbed(folder.path(), 0xffc0);
    let output = verify(&model(), &slightly, &[&options[..], &["--min-cosine", "0.999999"]].concat());
    assert_eq!(output.status.code(), Some(DIFFERS), "{}", stderr(&output));
    assert_eq!(verdict(&output), "the models do not agree:");
}

#[test]
fn keypoints_are_compared_with_a_reference() {
    let folder = tempfile::tempdir().unwrap();
    let (net, reference) = (folder.path().join("net.onnx"), folder.path().join("reference.json"));
    fs::write(&net, network("pose")).unwrap();
    let picture = folder.path().join("white.ppm");
    fs::write(&picture, [b"P6\n64 64\n255\n".as_slice(), &[255; 3 * 64 * 64]].concat()).unwrap();
    let report = |moved: f32, options: &[&str]| {
        let keypoints: Vec<f32> = BODY.into_iter().flat_map(|[x, y, score]| [x + moved, y, score]).collect();
        let entry = serde_json::json!({
            "image_id": "white.ppm", "category_id": 0, "bbox": [10, 4, 44, 58], "score": 0.9, "keypoints": keypoints,
        });
        fs::write(&reference, format!("{entry}\n")).unwrap();
        let paths = ["verify", "--json", "--reference"].map(OsString::from).into_iter();
        let paths = paths.chain([&reference, &net, &picture].map(|path| path.clone().into_os_string()));
        let output = run(paths.chain(options.iter().map(OsString::from)));
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let (code, same) = report(0.0, &["--min-oks", "0.999"]);
    assert_eq!((code, same["detections"]["min_oks"]["value"].as_f64()), (Some(0), Some(1.0)), "{same}");
    let (code, moved) = report(1.0, &[]);
    let oks = moved["detections"]["min_oks"]["value"].as_f64().unwrap();
    assert!(code == Some(0) && oks > 0.9 && oks < 0.97, "shown, not required: {moved}");
    let (code, moved) = report(1.0, &["--min-oks", "0.97"]);
    let reason = moved["reasons"][0].as_str().unwrap();
    assert!(code == Some(DIFFERS) && reason.contains("or OKS 0.97 (worst 0."), "{moved}");
}

#[test]
fn two_builds_are_compared_by_what_they_say_of_whole_frames() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a.onnx"), folder.path().join("b.onnx"));
    let compared = |networks: [&str; 2], card: &str| {
        for (path, name) in [&first, &second].into_iter().zip(networks) {
            fs::write(path, network(name)).unwrap();
            fs::write(path.with_extension("toml"), card).unwrap();
        }
        let output = verify(&first, &second, &["--json", "--images", &media()]);
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let card = "[head]\nfamily = \"attributes\"\n[[head.attribute]]\nname = \"gender\"\noutput = \"gender\"\n\
        classes = [\"f\", \"m\"]\n[[head.attribute]]\nname = \"age\"\noutput = \"age\"\n";
    let (code, report) = compared(["attributes"; 2], card);
    assert_eq!((code, &report["agree"]), (Some(0), &true.into()), "{report}");
    assert_eq!((&report["values"][0]["name"], &report["values"][0]["outside"]), (&"gender".into(), &0.into()));
    let (code, report) = compared(["attributes", "attributes-other"], card);
    assert_eq!((code, &report["agree"]), (Some(DIFFERS), &false.into()), "{report}");
    let gender = &report["values"][0];
    assert_eq!((&gender["frames"], &gender["outside"], &gender["other_labels"]), (&3.into(), &3.into(), &3.into()));
    assert_eq!(report["values"][1]["outside"], 0);
    assert!(report["reasons"][0].as_str().unwrap().contains("of 6 values of whole frames 3 differ"), "{report}");
    for name in ["embedding", "depth"] {
        let (code, report) = compared([name; 2], &format!("[head]\nfamily = \"{name}\"\n"));
        assert_eq!(
            (code, &report["agree"], &report["values"][0]["name"]),
            (Some(0), &true.into(), &name.into()),
            "{report}"
        );
    }
    // A reference has detections.
    let reference = folder.path().join("reference.jsonl");
    fs::write(&reference, "").unwrap();
    let output = verify(&first, &root().join("tests/media"), &["--reference", reference.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("a model of family `depth` has no detections to compare"), "{}", stderr(&output));
}
