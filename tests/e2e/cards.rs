//! A card that contradicts its network is an error before the first frame, and the card that `inspect` proposes is correct.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use visiond_tests::networks::network;
use visiond_tests::{assert_no_panic, backends, command, json_lines, model, picture, stderr};

const CONFIG: i32 = 3;

/// A card and the network that it contradicts.
struct Contradiction {
    network: &'static str,
    card: &'static str,
    /// Line and column in the card; empty if the card does not have the key.
    place: &'static str,
    /// The contradiction between card and network.
    says: &'static str,
    /// What to write.
    write: &'static str,
}

/// A daemon with one camera.
const DAEMON: &str = r#"[[model]]
name = "net"
path = "net.onnx"

[[camera]]
name = "bars"
source = { type = "pattern", width = 64, height = 48, fps = 50.0 }

[[sink]]
type = "file"
path = "out.jsonl"
"#;

/// Runs `visiond ARGS` in `folder`.
fn visiond(folder: &Path, args: &[&str]) -> Output {
    command().args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn write(folder: &Path, name: &str, card: &str) {
    std::fs::write(folder.join("net.onnx"), network(name)).unwrap();
    std::fs::write(folder.join("net.toml"), format!("{card}\n")).unwrap();
    std::fs::write(folder.join("visiond.toml"), DAEMON).unwrap();
}

/// Asserts that every command that uses a model refuses the card in the same words.
fn assert_refused(folder: &Path, wrong: &Contradiction) {
    let Contradiction { network, card, place, says, write: remedy } = wrong;
    write(folder, network, card);
    let picture = picture("chelsea.png");
    let commands: [&[&str]; 4] = [
        &["inspect", "net.onnx"],
        &["check", "visiond.toml"],
        &["detect", "--model", "net.onnx", picture.to_str().unwrap()],
        &["run", "visiond.toml"],
    ];
    for args in commands {
        let output = visiond(folder, args);
        let said =
            if args[0] == "check" { String::from_utf8_lossy(&output.stdout).into_owned() } else { stderr(&output) };
        let context = format!("{args:?} with {network} and\n{card}\n\n{said}");
        assert_no_panic(&said);
        assert_eq!(output.status.code(), Some(CONFIG), "{context}");
        let place = if place.is_empty() { "net.toml: ".to_owned() } else { format!("net.toml:{place}: ") };
        let (_, line) = said.lines().find_map(|line| line.split_once(place.as_str())).expect(&context);
        assert!(line.contains(says), "{context}");
        assert!(line.ends_with(&format!(": {remedy}")), "{context}");
        assert_eq!(said.matches(place.as_str()).count(), 1, "the error is printed once: {context}");
    }
    assert!(!folder.join("out.jsonl").exists(), "a message was written");
}

#[test]
fn a_card_that_contradicts_its_network_is_refused_by_every_command_with_its_place_and_what_to_write() {
    assert!(CONTRADICTIONS.len() >= 40);
    let rest = std::sync::Mutex::new(CONTRADICTIONS.iter());
    let work = || {
        let folder = tempfile::tempdir().unwrap();
        loop {
            let next = rest.lock().unwrap().next();
            match next {
                Some(wrong) => assert_refused(folder.path(), wrong),
                None => break,
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
}

/// Networks, and the lines that the proposed card must have.
const STARTERS: [(&str, &[&str]); 46] = [
    (
        "attributes",
        &[
            "family = \"attributes\"",
            "  { name = \"gender\", output = \"gender\", classes = [\"class 0\", \"class 1\"], activation = \"softmax\" },",
            "  { name = \"age\", output = \"age\", scale = 1, offset = 0 },",
        ],
    ),
    ("embedding", &["family = \"embedding\"", "normalize = true"]),
    ("depth", &["family = \"depth\"", "grid = [8, 6]", "nearer = \"larger\""]),
    ("yolov5", &["family = \"yolov5\""]),
    ("yolov7-nms", &["family = \"yolo-nms\"", "unit = \"pixels\""]),
    ("yolov8", &["family = \"yolov8\""]),
    ("yolov8-open", &["family = \"yolov8\"", "size = [640, 640]"]),
    ("yolov8-pose", &["family = \"yolov8\"", "keypoints = [17, 3]", "names = [\"object\"]"]),
    ("yolov8-seg", &["family = \"yolov8\"", "masks = 32"]),
    ("yolov10", &["family = \"yolo-nms\"", "unit = \"pixels\""]),
    ("yolov10-fractions", &["family = \"yolo-nms\"", "unit = \"normalized\""]),
    ("efficient-nms", &["family = \"yolo-nms\"", "unit = \"pixels\""]),
    ("yolox", &["family = \"yolox\"", "decoded = false", "strides = [8, 16, 32]"]),
    ("yolox-open", &["family = \"yolox\"", "decoded = false", "size = [640, 640]"]),
    ("yolox-decoded", &["family = \"yolox\"", "decoded = true"]),
    ("nanodet", &["family = \"nanodet\"", "reg_max = 10", "sigmoid = false", "strides = [8, 16, 32]"]),
    ("nanodet-logits", &["family = \"nanodet\"", "reg_max = 7", "sigmoid = true"]),
    ("nanodet-open", &["family = \"nanodet\"", "reg_max = 7", "sigmoid = false", "size = [416, 416]"]),
    ("nanodet-plus", &["family = \"nanodet\"", "cell_centre = false", "strides = [8, 16, 32, 64]"]),
    ("ssd", &["family = \"ssd\"", "background = \"first\"", "format = \"xyxy\""]),
    ("ssd-logits", &["family = \"ssd\"", "activation = \"softmax\"", "background = \"first\""]),
    ("ultraface", &["family = \"ssd\"", "background = \"first\"", "unit = \"normalized\"", "names = [\"object\"]"]),
    ("torchvision", &["family = \"ssd\"", "unit = \"pixels\""]),
    ("tensorflow", &["family = \"ssd\"", "format = \"yxyx\"", "unit = \"normalized\"", "size = [320, 320]"]),
    ("detr", &["family = \"detr\"", "activation = \"softmax\"", "background = \"last\"", "preset = \"coco91\""]),
    ("rt-detr", &["family = \"detr\"", "activation = \"sigmoid\"", "preset = \"coco80\""]),
    ("detr-scores", &["family = \"detr\"", "activation = \"none\""]),
    ("rf-detr", &["family = \"detr\"", "activation = \"sigmoid\"", "preset = \"coco91\""]),
    ("d-fine", &["family = \"detr\"", "orig_target_sizes = \"input-size\""]),
    ("d-fine-flag", &["family = \"detr\"", "orig_target_sizes = \"input-size\"", "flag = [1]"]),
    ("centernet", &["family = \"heatmap\"", "style = \"centernet\"", "stride = 4", "sigmoid = true"]),
    ("centernet-scores", &["family = \"heatmap\"", "style = \"centernet\"", "sigmoid = false"]),
    ("centerface", &["family = \"heatmap\"", "style = \"centerface\"", "sigmoid = false"]),
    ("blazeface", &["family = \"blazeface\""]),
    ("scrfd", &["family = \"faces\"", "style = \"scrfd\"", "names = [\"face\"]"]),
    ("yunet", &["family = \"faces\"", "style = \"yunet\"", "names = [\"face\"]"]),
    ("retinaface", &["family = \"faces\"", "style = \"retinaface\"", "names = [\"face\"]"]),
    ("yolov5-face", &["family = \"yolov5\"", "keypoints = [5, 2]", "names = [\"face\"]"]),
    ("classifier", &["family = \"classifier\"", "activation = \"softmax\""]),
    ("classifier-softmax", &["family = \"classifier\"", "activation = \"none\""]),
    ("classifier-open", &["family = \"classifier\"", "size = [224, 224]"]),
    ("semantic", &["family = \"semantic\"", "activation = \"softmax\""]),
    ("text-map", &["family = \"db-text\"", "names = [\"text\"]"]),
    ("grey", &["family = \"classifier\"", "order = \"grey\""]),
    ("bytes", &["family = \"classifier\"", "mean = 0", "std = 1"]),
    // Its metadata is its card; the proposed card is equivalent.
    ("ultralytics", &["family = \"yolov8\""]),
];

/// Returns the proposed card; `None` if no head reads the network.
fn starter(folder: &Path) -> Option<String> {
    let output = visiond(folder, &["inspect", "--json", "net.onnx"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let described: Value = serde_json::from_slice(&output.stdout).unwrap();
    let card = described["heads"][0]["card"].as_str().map(str::to_owned);
    if let (Some(card), false) = (&card, described["card"]["found"].as_bool().unwrap()) {
        let text = visiond(folder, &["inspect", "net.onnx"]).stdout;
        assert!(String::from_utf8_lossy(&text).contains(card), "the text shows the card");
    }
    card
}

#[test]
fn the_card_that_inspect_shows_runs_unchanged_and_has_what_the_graph_says() {
    let folder = tempfile::tempdir().unwrap();
    let picture = picture("chelsea.png");
    for (name, wanted) in STARTERS {
        std::fs::write(folder.path().join("net.onnx"), network(name)).unwrap();
        let _ = std::fs::remove_file(folder.path().join("net.toml"));
        let card = starter(folder.path()).unwrap_or_else(|| panic!("{name} has no card"));
        for line in wanted {
            assert!(card.lines().any(|found| found.split("  #").next() == Some(line)), "{name}: {line}\n{card}");
        }
        // The model fixes its size.
        assert_eq!(card.contains("size = ["), wanted.iter().any(|line| line.starts_with("size")), "{name}:\n{card}");
        std::fs::write(folder.path().join("net.toml"), &card).unwrap();
        for args in [&["inspect", "net.onnx"][..], &["detect", "--model", "net.onnx", picture.to_str().unwrap()]] {
            let output = visiond(folder.path(), args);
            assert_eq!(output.status.code(), Some(0), "{name}, {args:?}: {}\n{card}", stderr(&output));
        }
    }
}

#[test]
fn a_network_that_no_head_reads_gets_no_card_of_another_family() {
    let folder = tempfile::tempdir().unwrap();
    for (name, outputs) in [
        ("matte", "`matte f32 [1, 1, 64, 64]`"),
        ("anchors", "`loc f32 [1, 1200, 4]`, `conf f32 [1, 1200, 3]`"),
        ("blazeface-scores", "`regressors f32 [1, 896, 16]`, `classificators f32 [1, 896, 1]`"),
        ("yolov8-logits", "`output0 f32 [1, 6, 84]`"),
    ] {
        std::fs::write(folder.path().join("net.onnx"), network(name)).unwrap();
        assert_eq!(starter(folder.path()), None, "{name}");
        let text = visiond(folder.path(), &["inspect", "net.onnx"]).stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(&format!("no head of visiond reads the outputs {outputs}")), "{text}");
        assert!(!text.contains("Template"), "{text}");
        let output = visiond(folder.path(), &["detect", "--model", "net.onnx", "no.png"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(CONFIG), "{said}");
        assert!(said.contains(&format!("no head of visiond reads its outputs {outputs}: export the model")), "{said}");
    }
}

#[test]
fn the_sample_network_finds_the_same_with_the_card_that_inspect_shows() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(model(), folder.path().join("net.onnx")).unwrap();
    std::fs::write(folder.path().join("net.toml"), starter(folder.path()).unwrap()).unwrap();
    for backend in backends() {
        for name in ["chelsea.png", "astronaut.png"] {
            let picture = picture(name);
            let found = |path: &Path| {
                let args = ["detect", "--json", "--backend", backend, "--model", path.to_str().unwrap()];
                let output = visiond(folder.path(), &[&args[..], &[picture.to_str().unwrap()]].concat());
                assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
                json_lines(&output.stdout)[0]["detections"].clone()
            };
            let (ours, theirs) = (found(Path::new("net.onnx")), found(&model()));
            assert_eq!(ours, theirs, "{backend}, {name}");
            assert!(!ours.as_array().unwrap().is_empty(), "{backend}, {name}");
        }
    }
}

/// The cards, each with one mistake.
const CONTRADICTIONS: &[Contradiction] = &[
    Contradiction {
        network: "attributes",
        card: "[head]\nfamily = \"attributes\"\n[[head.attribute]]\nname = \"gender\"\noutput = \"sex\"\nclasses = [\"f\", \"m\"]",
        place: "3:1",
        says: "no output is called `sex`, which the attribute `gender` reads",
        write: "write the name of one of them as its `output`",
    },
    Contradiction {
        network: "attributes",
        card: "[head]\nfamily = \"attributes\"\n[[head.attribute]]\nname = \"worn\"\noutput = \"worn\"\nclasses = [\"f\", \"m\"]",
        place: "3:1",
        says: "`worn` has 3 numbers instead of 2, which the attribute `worn` reads",
        write: "name 3 `classes`, or write the first as `column`",
    },
    Contradiction {
        network: "attributes",
        card: "[head]\nfamily = \"attributes\"\n[[head.attribute]]\nname = \"gender\"\noutput = \"gender\"\nclasses = [\"f\", \"m\"]\nactivation = \"none\"",
        place: "3:1",
        says: "of the attribute `gender`, its scores are from -1.00 to 2.00, which are logits and not probabilities",
        write: "write `activation = \"sigmoid\"` or `activation = \"softmax\"` under [[head.attribute]]",
    },
    Contradiction {
        network: "depth",
        card: "[head]\nfamily = \"depth\"\noutput = \"depth\"",
        place: "3:10",
        says: "no output is called `depth`, which the card names as output",
        write: "write the name of one of them, or remove the key",
    },
    Contradiction {
        network: "classifier-softmax",
        card: "[head]\nfamily = \"embedding\"",
        place: "2:10",
        says: "its numbers add up to 1, so they are the scores of a classifier",
        write: "write `family = \"classifier\"` under [head], or name another `output`",
    },
    Contradiction {
        network: "yolov8",
        card: "[input]\nname = \"image\"\n[head]\nfamily = \"yolov8\"",
        place: "2:8",
        says: "the card names the input `image`, but the model has `images f32 [1, 3, 64, 64]`",
        write: "did you mean `images`?",
    },
    Contradiction {
        network: "yolov8",
        card: "[input]\nsize = 32\n[head]\nfamily = \"yolov8\"",
        place: "2:8",
        says: "`size` is 32x32, but the model fixes its input `images f32 [1, 3, 64, 64]`",
        write: "write `size = [64, 64]`, or remove it; to run the model at another size, set `input_shapes` in its [[model]]",
    },
    Contradiction {
        network: "flattened",
        card: "[input]\nsize = 224\n[head]\nfamily = \"classifier\"",
        place: "2:8",
        says: "`size` is 224x224, but the model runs only at the size of its input `images f32 [1, 3, 28, 28]`",
        write: "write `size = [28, 28]`, or remove it",
    },
    Contradiction {
        network: "yolov10",
        card: "[head]\nfamily = \"yolo-nms\"\n[classes]\nnames = [\"a\"]",
        place: "4:9",
        says: "a detection has the class 2, beyond the card's 1 class",
        write: "name at least 3 classes under [classes], from class 0 on",
    },
    Contradiction {
        network: "yolov8-open",
        card: "[input]\nsize = [100, 64]\n[head]\nfamily = \"yolov8\"",
        place: "2:8",
        says: "`size` is 100x64, but the grids of family `yolov8` need sides that are multiples of 32",
        write: "write `size = [96, 64]`",
    },
    Contradiction {
        network: "yolov8-open",
        card: "[head]\nfamily = \"yolov8\"",
        place: "",
        says: "the input `images f32 [1, 3, ?, ?]` has no fixed size",
        write: "write width and height under [input], as in `size = [640, 640]`",
    },
    Contradiction {
        network: "yolov8",
        card: "[input]\nlayout = \"nhwc\"\n[head]\nfamily = \"yolov8\"",
        place: "2:10",
        says: "`layout` is `nhwc`, but the input `images f32 [1, 3, 64, 64]` has its channels first",
        write: "write `layout = \"nchw\"`, or remove it",
    },
    Contradiction {
        network: "bytes",
        card: "[input]\nlayout = \"nchw\"\n[head]\nfamily = \"classifier\"",
        place: "2:10",
        says: "`layout` is `nchw`, but the input `images u8 [1, 64, 64, 3]` has its channels last",
        write: "write `layout = \"nhwc\"`, or remove it",
    },
    Contradiction {
        network: "yolov8",
        card: "[input]\norder = \"grey\"\n[head]\nfamily = \"yolov8\"",
        place: "2:9",
        says: "`order` is `grey`, 1 channel, but the input `images f32 [1, 3, 64, 64]` has 3 channels",
        write: "write `order = \"rgb\"` or `order = \"bgr\"` under [input]",
    },
    Contradiction {
        network: "grey",
        card: "[head]\nfamily = \"classifier\"",
        place: "",
        says: "`order` is `rgb`, 3 channels, but the input `images f32 [1, 1, 28, 28]` has 1 channel",
        write: "write `order = \"grey\"` under [input]",
    },
    Contradiction {
        network: "grey",
        card: "[input]\norder = \"bgr\"\n[head]\nfamily = \"classifier\"",
        place: "2:9",
        says: "`order` is `bgr`, 3 channels, but the input `images f32 [1, 1, 28, 28]` has 1 channel",
        write: "write `order = \"grey\"` under [input]",
    },
    Contradiction {
        network: "bytes",
        card: "[input]\nscale = \"1/255\"\nmean = 0\nstd = 1\n[head]\nfamily = \"classifier\"",
        place: "2:9",
        says: "the input `images u8 [1, 64, 64, 3]` takes whole numbers, but scale 0.003921569 and std 1 leave 1 of 255 steps between black and white",
        write: "write `scale = 1`, `mean = 0` and `std = 1` under [input]",
    },
    Contradiction {
        network: "bytes",
        card: "[input]\nstd = 128\n[head]\nfamily = \"classifier\"",
        place: "2:7",
        says: "the input `images u8 [1, 64, 64, 3]` takes whole numbers, but scale 1 and std 128 leave 2 of 255 steps between black and white",
        write: "write `scale = 1`, `mean = 0` and `std = 1` under [input]",
    },
    Contradiction {
        network: "d-fine",
        card: "[head]\nfamily = \"detr\"",
        place: "",
        says: "the model also needs the input `orig_target_sizes i64 [1, 2]`",
        write: "write its values under [extra_inputs], as in `orig_target_sizes = \"input-size\"`",
    },
    Contradiction {
        network: "d-fine",
        card: "[extra_inputs]\norig_target_size = \"input-size\"\n[head]\nfamily = \"detr\"",
        place: "2:20",
        says: "the card names the input `orig_target_size`, but the model has `images f32 [1, 3, 64, 64]`, `orig_target_sizes i64 [1, 2]`",
        write: "did you mean `orig_target_sizes`?",
    },
    Contradiction {
        network: "d-fine",
        card: "[extra_inputs]\norig_target_sizes = [64, 64, 3]\n[head]\nfamily = \"detr\"",
        place: "2:21",
        says: "the card gives 3 numbers for the input `orig_target_sizes i64 [1, 2]`, which takes [1, 2]",
        write: "write `orig_target_sizes = \"input-size\"` under [extra_inputs]",
    },
    Contradiction {
        network: "d-fine",
        card: "[extra_inputs]\norig_target_sizes = [64, 63.5]\n[head]\nfamily = \"detr\"",
        place: "2:21",
        says: "the card gives 63.5 for the input `orig_target_sizes i64 [1, 2]`, which takes whole numbers",
        write: "write whole numbers there",
    },
    Contradiction {
        network: "d-fine",
        card: "[extra_inputs]\nimages = 1\norig_target_sizes = \"input-size\"\n[head]\nfamily = \"detr\"",
        place: "1:2",
        says: "cannot tell which input takes the image",
        write: "the model has `images f32 [1, 3, 64, 64]`, `orig_target_sizes i64 [1, 2]`; set `name` under [input], and keep that input out of [extra_inputs]",
    },
    Contradiction {
        network: "d-fine-flag",
        card: "[extra_inputs]\norig_target_sizes = \"input-size\"\nflag = 2\n[head]\nfamily = \"detr\"",
        place: "3:8",
        says: "the card gives 2 for the input `flag bool [1]`, which takes 0 or 1",
        write: "write 0 or 1 there",
    },
    Contradiction {
        network: "d-fine",
        card: "[input]\nname = \"orig_target_sizes\"\n[extra_inputs]\nimages = 1\n[head]\nfamily = \"detr\"",
        place: "2:8",
        says: "the input `orig_target_sizes i64 [1, 2]` takes no image, which is f32, f16, u8, i8 or i32 of the shape [batch, channels, height, width] or [batch, height, width, channels]",
        write: "correct `name` under [input], or use another model",
    },
    Contradiction {
        network: "yolov8",
        card: "[head]\nfamily = \"yolov8\"\n[classes]\nnames = [\"a\", \"b\", \"c\"]",
        place: "4:9",
        says: "`output0` has columns of 6 numbers instead of 7: the card's 3 classes and 4 others",
        write: "name 2 classes under [classes], or remove the names",
    },
    Contradiction {
        network: "yolov5",
        card: "[head]\nfamily = \"yolov5\"\n[classes]\npreset = \"coco80\"",
        place: "4:10",
        says: "`output` has rows of 7 numbers instead of 85: the card's 80 classes and 5 others",
        write: "name 2 classes under [classes], or remove the names",
    },
    Contradiction {
        network: "classifier",
        card: "[head]\nfamily = \"classifier\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "4:9",
        says: "`scores` has rows of 10 numbers instead of 2: the card's 2 classes and 0 others",
        write: "name 10 classes under [classes], or remove the names",
    },
    Contradiction {
        network: "blazeface",
        card: "[head]\nfamily = \"blazeface\"\n[classes]\nnames = [\"face\", \"hand\"]",
        place: "4:9",
        says: "the card names 2 classes instead of one",
        write: "name 1 class under [classes], or remove the names",
    },
    Contradiction {
        network: "centernet",
        card: "[head]\nfamily = \"heatmap\"\n[classes]\nnames = [\"a\", \"b\", \"c\"]",
        place: "4:9",
        says: "`hm` has 2 planes instead of 3, one for each of the card's classes",
        write: "name 2 classes under [classes], or remove the names",
    },
    Contradiction {
        network: "nanodet",
        card: "[head]\nfamily = \"yolov8\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "2:10",
        says: "`output` has rows of 46 numbers instead of 6: the card's 2 classes and 4 others",
        write: "write `family = \"nanodet\"`, `strides = [8, 16, 32]`, `reg_max = 10` under [head], or name 42 classes",
    },
    Contradiction {
        network: "yolov8",
        card: "[head]\nfamily = \"nanodet\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "2:10",
        says: "`output0` has rows of 84 numbers instead of 34: the card's 2 classes and 32 others (reg_max = 7)",
        write: "write `family = \"yolov8\"` under [head]",
    },
    Contradiction {
        network: "detr",
        card: "[head]\nfamily = \"yolov5\"",
        place: "2:10",
        says: "its scores are from -9.00 to 3.00, which are logits and not probabilities",
        write: "export the model with its last sigmoid, or correct `family`",
    },
    Contradiction {
        network: "classifier",
        card: "[head]\nfamily = \"ssd\"",
        place: "2:10",
        says: "no output is [1, N, 4]",
        write: "write `family = \"classifier\"` under [head]",
    },
    Contradiction {
        network: "matte",
        card: "[head]\nfamily = \"yolov8\"",
        place: "2:10",
        says: "its scores are from 0.00 to 9.00, which are logits and not probabilities",
        write: "export the model with its last sigmoid, or correct `family`",
    },
    Contradiction {
        network: "yolov8-pose",
        card: "[head]\nfamily = \"yolov8\"\n[classes]\nnames = [\"person\"]",
        place: "2:10",
        says: "`output0` has columns of 56 numbers instead of 5: the card's 1 class and 4 others",
        write: "write `keypoints = [17, 3]` under [head]",
    },
    Contradiction {
        network: "yolov8",
        card: "[head]\nfamily = \"yolov8\"\nkeypoints = [17, 3]\n[classes]\nnames = [\"a\", \"b\"]",
        place: "3:13",
        says: "`output0` has columns of 6 numbers instead of 57: the card's 2 classes and 55 others",
        write: "remove `keypoints` under [head]",
    },
    Contradiction {
        network: "yolov5-face",
        card: "[head]\nfamily = \"yolov5\"\n[classes]\nnames = [\"face\"]",
        place: "2:10",
        says: "`output` has rows of 16 numbers instead of 6: the card's 1 class and 5 others",
        write: "write `keypoints = [5, 2]` under [head], or name 11 classes",
    },
    Contradiction {
        network: "yunet",
        card: "[head]\nfamily = \"faces\"\nstyle = \"scrfd\"",
        place: "3:9",
        says: "there are 12 outputs instead of 6 or 9 for strides [8, 16, 32]",
        write: "write `style = \"yunet\"` under [head]",
    },
    Contradiction {
        network: "scrfd",
        card: "[head]\nfamily = \"nanodet\"\n[classes]\nnames = [\"face\"]",
        place: "2:10",
        says: "instead of 33: the card's 1 class and 32 others",
        write: "write `family = \"faces\"`, `style = \"scrfd\"` under [head]",
    },
    Contradiction {
        network: "retinaface",
        card: "[head]\nfamily = \"faces\"\nstyle = \"retinaface\"\nmin_sizes = [[16], [64], [256]]",
        place: "4:13",
        says: "no such outputs have the 84 rows of strides [8, 16, 32] over 64x64 pixels",
        write: "write the `strides` and `min_sizes` that the model was trained with under [head] (`visiond inspect` shows the usual \
                ones that fit)",
    },
    Contradiction {
        network: "yolov8-seg",
        card: "[head]\nfamily = \"yolov8\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "2:10",
        says: "`output0` has columns of 38 numbers instead of 6: the card's 2 classes and 4 others",
        write: "write `masks = 32` under [head]",
    },
    Contradiction {
        network: "yolov8-seg",
        card: "[head]\nfamily = \"yolov8\"\nmasks = 16\n[classes]\nnames = [\"a\", \"b\"]",
        place: "3:9",
        says: "`output0` has columns of 38 numbers instead of 22: the card's 2 classes and 20 others",
        write: "write `masks = 32` under [head]",
    },
    Contradiction {
        network: "nanodet",
        card: "[head]\nfamily = \"nanodet\"\nstrides = [8, 16]\nreg_max = 10\n[classes]\nnames = [\"a\", \"b\"]",
        place: "3:11",
        says: "`output` has 84 rows instead of 80: grids of strides [8, 16] over 64x64 pixels",
        write: "write `strides = [8, 16, 32]` under [head]",
    },
    Contradiction {
        network: "nanodet",
        card: "[head]\nfamily = \"nanodet\"\nreg_max = 7\n[classes]\nnames = [\"a\", \"b\"]",
        place: "3:11",
        says: "`output` has rows of 46 numbers instead of 34: the card's 2 classes and 32 others (reg_max = 7)",
        write: "write `reg_max = 10` under [head], or name 14 classes",
    },
    Contradiction {
        network: "yolox",
        card: "[head]\nfamily = \"yolox\"\nstrides = [8, 16, 32, 64]\n[classes]\nnames = [\"a\", \"b\"]",
        place: "3:11",
        says: "`output` has 84 rows instead of 85: grids of strides [8, 16, 32, 64] over 64x64 pixels",
        write: "write `strides = [8, 16, 32]` under [head]",
    },
    Contradiction {
        network: "blazeface",
        card: "[head]\nfamily = \"blazeface\"\nstrides = [4]",
        place: "3:11",
        says: "no such pair has the 2048 rows (or [2048] of each grid, or half as many) of strides [4] over 128x128 pixels",
        write: "remove `strides` under [head]",
    },
    Contradiction {
        network: "ssd",
        card: "[head]\nfamily = \"ssd\"\nscores = \"score\"",
        place: "3:10",
        says: "no output is called `score`, which the card names as scores",
        write: "did you mean `scores`?",
    },
    Contradiction {
        network: "ssd",
        card: "[head]\nfamily = \"ssd\"\nboxes = \"scores\"",
        place: "3:9",
        says: "`scores`, which the card names as boxes, has another shape",
        write: "write the name of the right output, or remove the key",
    },
    Contradiction {
        network: "torchvision",
        card: "[head]\nfamily = \"ssd\"\nlabels = \"classes\"",
        place: "3:10",
        says: "no output is called `classes`, which the card names as labels",
        write: "write the name of one of them, or remove the key",
    },
    Contradiction {
        network: "centernet",
        card: "[head]\nfamily = \"heatmap\"\nheat = \"heatmap\"",
        place: "3:8",
        says: "no output is called `heatmap`, which the card names as heat map",
        write: "write the name of one of them, or remove the key",
    },
    Contradiction {
        network: "ssd",
        card: "[head]\nfamily = \"ssd\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "2:10",
        says: "`scores` has rows of 3 numbers instead of 2: the card's 2 classes and 0 others (if one of them is the background, set background = \"first\" or \"last\")",
        write: "write `background = \"first\"` under [head]",
    },
    Contradiction {
        network: "ssd",
        card: "[head]\nfamily = \"ssd\"\nbackground = \"first\"\n[classes]\nnames = [\"a\", \"b\", \"c\"]",
        place: "5:9",
        says: "`scores` has rows of 3 numbers instead of 4: the card's 3 classes and 1 others",
        write: "name 2 classes under [classes], or remove the names",
    },
    Contradiction {
        network: "centerface",
        card: "[head]\nfamily = \"heatmap\"\nstyle = \"centerface\"\nstride = 8",
        place: "4:10",
        says: "`537` has 16x16 cells over an input of 64x64, which does not match the card's stride of 8",
        write: "write `stride = 4` under [head]",
    },
    Contradiction {
        network: "classifier",
        card: "[input]\nfit = \"resize-crop\"\nresize = 50\n[head]\nfamily = \"classifier\"",
        place: "3:10",
        says: "the picture is resized to 50x50, but the input that is cut out of it is 64x64",
        write: "write `resize = 64` under [input], or another `fit`",
    },
    Contradiction {
        network: "nanodet-logits",
        card: "[head]\nfamily = \"nanodet\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "2:10",
        says: "its scores are from -9.00 to 3.00, which are logits and not probabilities",
        write: "write `sigmoid = true` under [head]",
    },
    Contradiction {
        network: "nanodet",
        card: "[head]\nfamily = \"nanodet\"\nreg_max = 10\nsigmoid = true\n[classes]\nnames = [\"a\", \"b\"]",
        place: "4:11",
        says: "its scores are from 0.00 to 0.94, which are already probabilities",
        write: "write `sigmoid = false` under [head]",
    },
    Contradiction {
        network: "detr-scores",
        card: "[head]\nfamily = \"detr\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "2:10",
        says: "its scores are from 0.00 to 0.95, which are already probabilities",
        write: "write `activation = \"none\"` under [head]",
    },
    Contradiction {
        network: "rt-detr",
        card: "[head]\nfamily = \"detr\"\nactivation = \"none\"",
        place: "3:14",
        says: "its scores are from -9.00 to 3.00, which are logits and not probabilities",
        write: "write `activation = \"sigmoid\"` or `activation = \"softmax\"` under [head]",
    },
    Contradiction {
        network: "ssd-logits",
        card: "[head]\nfamily = \"ssd\"\nbackground = \"first\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "2:10",
        says: "its scores are from -9.00 to 3.00, which are logits and not probabilities",
        write: "write `activation = \"sigmoid\"` or `activation = \"softmax\"` under [head]",
    },
    Contradiction {
        network: "ssd",
        card: "[head]\nfamily = \"ssd\"\nbackground = \"first\"\nactivation = \"softmax\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "4:14",
        says: "its scores are already probabilities: those of each row add up to 1",
        write: "write `activation = \"none\"` under [head]",
    },
    Contradiction {
        network: "ssd",
        card: "[head]\nfamily = \"ssd\"\nbackground = \"first\"\nunit = \"pixels\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "4:8",
        says: "its boxes all lie within 2 pixels, so they are fractions of the input",
        write: "write `unit = \"normalized\"` under [head]",
    },
    Contradiction {
        network: "torchvision",
        card: "[head]\nfamily = \"ssd\"\nunit = \"normalized\"",
        place: "3:8",
        says: "its boxes reach 84, which are pixels and not fractions of the input",
        write: "write `unit = \"pixels\"` under [head]",
    },
    Contradiction {
        network: "detr",
        card: "[head]\nfamily = \"detr\"\nactivation = \"softmax\"\nformat = \"xyxy\"",
        place: "4:10",
        says: "many of its boxes end before they begin, so the last two numbers are sizes and not corners",
        write: "write `format = \"cxcywh\"` or `format = \"xywh\"` under [head]",
    },
    Contradiction {
        network: "torchvision",
        card: "[head]\nfamily = \"ssd\"\nbackground = \"first\"",
        place: "3:14",
        says: "a detection has the label 0, so labels count from 0",
        write: "remove `background` under [head]",
    },
    Contradiction {
        network: "yolox-decoded",
        card: "[head]\nfamily = \"yolox\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "2:10",
        says: "its boxes are already in pixels",
        write: "write `decoded = true` under [head]",
    },
    Contradiction {
        network: "yolox",
        card: "[head]\nfamily = \"yolox\"\ndecoded = true\n[classes]\nnames = [\"a\", \"b\"]",
        place: "3:11",
        says: "many of its boxes have a negative size, so they are not decoded",
        write: "write `decoded = false` under [head]",
    },
    Contradiction {
        network: "yolov10",
        card: "[head]\nfamily = \"yolo-nms\"\nunit = \"normalized\"",
        place: "3:8",
        says: "its boxes reach 84, which are pixels and not fractions of the input",
        write: "write `unit = \"pixels\"` under [head]",
    },
    Contradiction {
        network: "yolov10-fractions",
        card: "[head]\nfamily = \"yolo-nms\"",
        place: "2:10",
        says: "its boxes all lie within 2 pixels, so they are fractions of the input",
        write: "write `unit = \"normalized\"` under [head]",
    },
    Contradiction {
        network: "yolov8-logits",
        card: "[head]\nfamily = \"yolov8\"",
        place: "2:10",
        says: "its scores are from -8.95 to 2.99, which are logits and not probabilities",
        write: "export the model with its last sigmoid, or correct `family`",
    },
    Contradiction {
        network: "yolov8-fractions",
        card: "[head]\nfamily = \"yolov8\"",
        place: "2:10",
        says: "its boxes all lie within 2 pixels, so they are not in pixels",
        write: "correct `family` under [head] (`visiond inspect` shows which heads fit), or export the model with boxes in pixels",
    },
    Contradiction {
        network: "blazeface-scores",
        card: "[head]\nfamily = \"blazeface\"",
        place: "2:10",
        says: "its scores are from 0.00 to 0.95, which are already probabilities",
        write: "export the model without its last sigmoid, or correct `family`",
    },
    Contradiction {
        network: "centernet-scores",
        card: "[head]\nfamily = \"heatmap\"\n[classes]\nnames = [\"a\", \"b\"]",
        place: "2:10",
        says: "its scores are from 0.00 to 0.95, which are already probabilities",
        write: "write `sigmoid = false` under [head]",
    },
    Contradiction {
        network: "centerface",
        card: "[head]\nfamily = \"heatmap\"\nstyle = \"centerface\"\nsigmoid = true",
        place: "4:11",
        says: "its scores are from 0.00 to 0.95, which are already probabilities",
        write: "write `sigmoid = false` under [head]",
    },
    Contradiction {
        network: "classifier",
        card: "[head]\nfamily = \"classifier\"\nactivation = \"none\"",
        place: "3:14",
        says: "its scores are from -9.00 to 2.33, which are logits and not probabilities",
        write: "write `activation = \"sigmoid\"` or `activation = \"softmax\"` under [head]",
    },
    Contradiction {
        network: "classifier-softmax",
        card: "[head]\nfamily = \"classifier\"\nactivation = \"sigmoid\"",
        place: "3:14",
        says: "its scores are already probabilities: those of each row add up to 1",
        write: "write `activation = \"none\"` under [head]",
    },
    Contradiction {
        network: "nanodet-open",
        card: "[input]\nsize = 416\n[head]\nfamily = \"nanodet\"\nstrides = [8, 16]",
        place: "5:11",
        says: "`output` has 3549 rows instead of 3380: grids of strides [8, 16] over 416x416 pixels",
        write: "write `strides = [8, 16, 32]` under [head]",
    },
    Contradiction {
        network: "yolov5",
        card: "[head]\nfamily = \"yolov5\"\nmasks = 32",
        place: "3:9",
        says: "`output` has rows of 7 numbers, which leaves no room for a class after 37 others",
        write: "remove `masks` under [head]",
    },
];
