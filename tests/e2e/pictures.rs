//! A watched folder with arbitrary files: the cost of a large image, and an image that crashes visiond.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use tempfile::TempDir;
use visiond_tests::{Daemon, picture};

/// The largest square of 16-bit RGBA that the default limits allow is a little larger.
const LARGE: u32 = 5800;

/// Watches a folder; the images' messages are in out.jsonl.
fn watch(pictures: &TempDir, state: &TempDir) -> Daemon {
    let config = r#"
[engine]
backend = "rten"
threads = 1

[[model]]
name = "nanodet"
path = "{model}"

[[camera]]
name = "door"
source = { type = "images", path = "{pictures}", recursive = true, watch = true, watch_interval = "50 ms" }

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;
    let config = config.replace("{pictures}", &pictures.path().display().to_string());
    Daemon::start_with(&config, |command| {
        command.env("STATE_DIRECTORY", state.path());
    })
}

/// Writes a black PNG of 16-bit RGBA: some hundred times smaller than its pixels.
fn black(path: &Path, side: u32) {
    fn chunk(file: &mut fs::File, kind: &[u8; 4], data: &[u8]) {
        let mut crc = Crc::new();
        crc.update(kind);
        crc.update(data);
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        file.write_all(&[&length, &kind[..], data, &crc.sum().to_be_bytes()].concat()).unwrap();
    }
    let mut rows = ZlibEncoder::new(Vec::new(), Compression::fast());
    let row = vec![0; 1 + 8 * side as usize];
    (0..side).for_each(|_| rows.write_all(&row).unwrap());
    // Under its final name, the file is complete from the start.
    let temporary = path.with_extension("new");
    let mut file = fs::File::create(&temporary).unwrap();
    file.write_all(b"\x89PNG\r\n\x1a\n").unwrap();
    chunk(&mut file, b"IHDR", &[&side.to_be_bytes()[..], &side.to_be_bytes(), &[16, 6, 0, 0, 0]].concat());
    chunk(&mut file, b"IDAT", &rows.finish().unwrap());
    chunk(&mut file, b"IEND", b"");
    fs::rename(temporary, path).unwrap();
}

fn put(folder: &TempDir, name: &str, media: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::copy(picture(media), &path).unwrap();
    path
}

#[test]
fn a_large_picture_costs_half_a_gibibyte_at_most_and_nothing_for_good() {
    let (pictures, state) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    put(&pictures, "a.png", "chelsea.png");
    let mut daemon = watch(&pictures, &state);
    daemon.wait_until("the first picture", |daemon| daemon.count("out.jsonl") == 1);
    let before = daemon.memory_kib("VmHWM") / 1024;
    black(&pictures.path().join("b.png"), LARGE);
    daemon.wait_until("the large picture", |daemon| daemon.count("out.jsonl") == 2);
    // A gibibyte of pixels in a file of 5 MB.
    black(&pictures.path().join("c.png"), 11_500);
    daemon.wait_for_log(
        "it has 132250000 pixels (11500x11500), more than 67108864: make it smaller, or raise `max_pixels`",
    );
    let most = daemon.memory_kib("VmHWM") / 1024 - before;
    assert!(most <= 512, "reading took {most} MiB");
    daemon
        .wait_until("the end of the large picture's memory", |daemon| daemon.memory_kib("VmRSS") / 1024 < before + 64);
    put(&pictures, "d.png", "coffee.png");
    daemon.wait_until("the next picture", |daemon| daemon.count("out.jsonl") == 3);
}

#[test]
fn a_picture_that_ended_visiond_is_skipped_after_the_restart_until_it_is_replaced() {
    let (pictures, state) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bad = pictures.path().join("bad.png");
    black(&bad, LARGE);
    let mut daemon = watch(&pictures, &state);
    // As the kernel would when memory runs out.
    let note = state.path().join("pictures/door.reading");
    daemon.wait_until("the large picture", |_| fs::metadata(&note).is_ok_and(|note| note.len() > 0));
    daemon.signal(libc::SIGKILL);
    drop(daemon);

    put(&pictures, "good.png", "chelsea.png");
    for _ in 0..2 {
        let mut daemon = watch(&pictures, &state);
        let words = format!("camera door: skipping {}: visiond ended while it read this image", bad.display());
        daemon.wait_for_log(&words);
        daemon.wait_until("the other picture", |daemon| daemon.count("out.jsonl") == 1);
        assert_eq!(
            daemon.messages("out.jsonl")[0]["frame"]["file"].as_str(),
            pictures.path().join("good.png").to_str()
        );
        assert_eq!(daemon.terminate().status.code(), Some(0));
    }
    let mut daemon = watch(&pictures, &state);
    daemon.wait_until("the other picture", |daemon| daemon.count("out.jsonl") == 1);
    put(&pictures, "bad.png", "coffee.png");
    daemon.wait_until("the replaced picture", |daemon| daemon.count("out.jsonl") == 2);
    assert_eq!(daemon.messages("out.jsonl")[1]["frame"]["file"].as_str(), bad.to_str());
}

#[test]
fn each_replaced_picture_and_those_of_a_new_dated_folder_are_read_once() {
    let (pictures, state) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    put(&pictures, "a.png", "chelsea.png");
    let mut daemon = watch(&pictures, &state);
    daemon.wait_until("the first picture", |daemon| daemon.count("out.jsonl") == 1);
    for read in 2..12 {
        // Like a camera that keeps its newest image under one name.
        let temporary = put(&pictures, "latest.tmp", "coffee.png");
        fs::rename(temporary, pictures.path().join("latest.png")).unwrap();
        daemon.wait_until("the replaced picture", |daemon| daemon.count("out.jsonl") == read);
    }
    fs::create_dir_all(pictures.path().join("2024/05")).unwrap();
    put(&pictures, "2024/05/b.png", "chelsea.png");
    daemon.wait_until("the picture in the new folder", |daemon| daemon.count("out.jsonl") == 12);
    let last = daemon.messages("out.jsonl")[11]["frame"]["file"].clone();
    assert_eq!(last.as_str(), pictures.path().join("2024/05/b.png").to_str());
    let ended = daemon.terminate();
    assert_eq!(ended.daemon.count("out.jsonl"), 12, "{}", ended.log);
}
