//! A model whose trial finds nothing, and whose rows have another order than its card says.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use visiond_tests::onnx::late_rows;
use visiond_tests::{Daemon, command, json_lines, stderr};

const MODEL: i32 = 4;

/// Rows of PaddleDetection: class, score, box.
const ROWS: [[f32; 6]; 3] = [
    [2.0, 0.92, 100.0, 120.0, 220.0, 260.0],
    [0.0, 0.81, 330.0, 80.0, 420.0, 330.0],
    [1.0, 0.77, 50.0, 400.0, 300.0, 600.0],
];

const CARD: &str = "[head]\nfamily = \"yolo-nms\"\n[classes]\nnames = [\"a\", \"b\", \"c\"]\n";
const COLUMNS: &str = r#"columns = ["class", "score", "x1", "y1", "x2", "y2"]"#;

/// Writes the model, its card, and a white and a grey picture.
fn write(folder: &Path, card: &str) {
    fs::write(folder.join("net.onnx"), late_rows(&ROWS.concat(), 6)).unwrap();
    fs::write(folder.join("net.toml"), card).unwrap();
    let pictures = folder.join("pictures");
    fs::create_dir_all(&pictures).unwrap();
    for (name, level) in [("1-grey", 128), ("2-white", 255), ("3-grey", 128), ("4-white", 255), ("5-white", 255)] {
        grey(&pictures.join(name).with_extension("png"), 640, level);
    }
}

/// Writes a square PNG of one level of grey.
fn grey(path: &Path, side: u32, level: u8) {
    let chunk = |kind: &[u8; 4], data: &[u8]| {
        let mut crc = Crc::new();
        crc.update(kind);
        crc.update(data);
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&length, &kind[..], data, &crc.sum().to_be_bytes()].concat()
    };
    let mut rows = ZlibEncoder::new(Vec::new(), Compression::fast());
    let mut row = vec![level; 1 + side as usize];
    row[0] = 0;
    (0..side).for_each(|_| rows.write_all(&row).unwrap());
    let header = [&side.to_be_bytes()[..], &side.to_be_bytes(), &[8, 0, 0, 0, 0]].concat();
    let chunks = [chunk(b"IHDR", &header), chunk(b"IDAT", &rows.finish().unwrap()), chunk(b"IEND", b"")];
    fs::write(path, [&b"\x89PNG\r\n\x1a\n"[..], &chunks.concat()].concat()).unwrap();
}

fn detect(folder: &Path, name: &str) -> Output {
    let picture = folder.join("pictures").join(name);
    let mut command = command();
    command.args(["detect", "--json", "--model"]).arg(folder.join("net.onnx")).arg(picture);
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_first_row_that_contradicts_the_card_ends_detect_with_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), CARD);
    let nothing = detect(folder.path(), "1-grey.png");
    assert_eq!(nothing.status.code(), Some(0), "{}", stderr(&nothing));
    let refused = detect(folder.path(), "2-white.png");
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(MODEL), "{said}");
    assert!(said.contains("row 0 of `output` gives class 2"), "{said}");
    assert!(said.contains(&format!("write `{COLUMNS}` under [head]")), "{said}");

    write(folder.path(), &CARD.replace("[classes]", &format!("{COLUMNS}\n[classes]")));
    let found = detect(folder.path(), "2-white.png");
    let message = &json_lines(&found.stdout)[0];
    let labels: Vec<_> = message["detections"].as_array().unwrap().iter().map(|found| &found["label"]).collect();
    assert_eq!(labels, ["c", "a", "b"], "{message}");
}

#[test]
fn a_camera_goes_on_with_the_next_frame_and_logs_the_contradiction_once() {
    let config = r#"
[engine]
backend = "rten"
threads = 1

[[model]]
name = "net"
path = "{dir}/net.onnx"

[[camera]]
name = "door"
source = { type = "images", path = "{dir}/pictures" }

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;
    let daemon = Daemon::start_with(config, |command| {
        write(command.get_args().last().map(Path::new).unwrap().parent().unwrap(), CARD);
    });
    let messages = daemon.path("out.jsonl");
    let ended = daemon.finish();
    assert_eq!(ended.log.matches("row 0 of `output` gives class 2").count(), 1, "{}", ended.log);
    let summary = ended.log.lines().rev().find(|line| line.contains("failed 3"));
    assert!(summary.is_some(), "{}", ended.log);
    let sequences: Vec<_> =
        json_lines(&fs::read(messages).unwrap()).iter().map(|message| message["sequence"].clone()).collect();
    assert_eq!(sequences, [0, 2], "the grey pictures");
}
