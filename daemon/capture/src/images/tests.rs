//! Folders like those of users: numbered, damaged, growing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use tempfile::TempDir;
use visiond_frames::clock::SystemClock;
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::frame::Frame;
use visiond_kernels::buffer::KEPT_BYTES;
use visiond_system::testing::{EVER, stopped_while_it_waits};

use super::*;

fn config(path: &Path) -> ImagesConfig {
    ImagesConfig {
        path: path.to_owned(),
        recursive: false,
        watch: false,
        watch_interval: Duration::from_millis(500),
        repeat: false,
        fps: None,
    }
}

fn open(config: &ImagesConfig, clock: Arc<dyn Clock>) -> Result<ImagesSource, SourceError> {
    ImagesSource::open(config, "test", &Buffers::host(3), None, clock)
}

fn picture(folder: &TempDir, name: &str, width: u32) -> PathBuf {
    let path = folder.path().join(name);
    image::RgbImage::from_pixel(width, 2, image::Rgb([9, 8, 7])).save(&path).unwrap();
    path
}

fn names(source: &mut ImagesSource) -> Vec<String> {
    let stop = Stop::new().unwrap();
    let mut names = Vec::new();
    loop {
        match source.next(&stop).unwrap() {
            Next::Frame(frame) => names.push(name(&frame)),
            Next::Lost { cause, .. } => names.push(format!("{cause:?}")),
            _ => return names,
        }
    }
}

fn name(frame: &Frame) -> String {
    Path::new(&**frame.name.as_ref().unwrap()).file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn a_folder_is_read_in_natural_order_and_damage_is_passed_over() {
    let folder = TempDir::new().unwrap();
    for (i, file) in ["img10.png", "img2.png", "IMG1.PNG", "img02.png"].iter().enumerate() {
        picture(&folder, file, 3 + i as u32);
    }
    fs::write(folder.path().join("img3.jpg"), b"no picture").unwrap();
    fs::write(folder.path().join("notes.txt"), b"text").unwrap();
    fs::write(folder.path().join(".hidden.png"), b"").unwrap();
    let mut source = open(&config(folder.path()), Arc::new(SystemClock)).unwrap();
    assert_eq!(names(&mut source), ["IMG1.PNG", "img02.png", "img2.png", "Corrupt", "img10.png"]);
}

#[test]
fn one_picture_is_enough_and_may_be_repeated() {
    let folder = TempDir::new().unwrap();
    let path = picture(&folder, "one.png", 5);
    let mut source = open(&config(&path), Arc::new(SystemClock)).unwrap();
    assert_eq!(names(&mut source), ["one.png"]);

    let stop = Stop::new().unwrap();
    let clock = Arc::new(SimulatedClock::default());
    let repeated = ImagesConfig { repeat: true, fps: Some(10.0), ..config(&path) };
    let mut source = open(&repeated, clock.clone()).unwrap();
    for sequence in 0..5 {
        let Next::Frame(frame) = source.next(&stop).unwrap() else { panic!("no frame") };
        assert_eq!((frame.sequence, frame.timestamp.monotonic_ns), (sequence, sequence * 100_000_000));
    }
}

#[test]
fn a_folder_of_damaged_pictures_is_not_repeated_for_ever() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.jpg"), b"no picture").unwrap();
    let mut source = open(&ImagesConfig { repeat: true, ..config(folder.path()) }, Arc::new(SystemClock)).unwrap();
    assert_eq!(names(&mut source), ["Corrupt"]);
}

#[test]
fn what_is_not_there_is_a_sentence() {
    let folder = TempDir::new().unwrap();
    let empty = open(&config(folder.path()), Arc::new(SystemClock)).err().unwrap();
    assert!(empty.to_string().contains("there is no image in the folder") && !empty.may_pass(), "{empty}");
    let missing = config(&folder.path().join("missing"));
    let error = open(&missing, Arc::new(SystemClock)).err().unwrap();
    assert!(error.to_string().contains("no such file or folder") && !error.may_pass(), "{error}");
    let awaited = open(&ImagesConfig { watch: true, ..missing }, Arc::new(SystemClock)).err().unwrap();
    assert!(awaited.may_pass());
}

/// Returns the names of the images that a watched source has, and how many were lost.
fn news(source: &mut ImagesSource) -> (Vec<String>, u64) {
    let stop = Stop::new().unwrap();
    let (mut names, mut lost) = (Vec::new(), 0);
    loop {
        match source.refresh() {
            Some(Next::Lost { frames, .. }) => lost += frames,
            Some(other) => panic!("{other:?}"),
            None if source.waiting.is_empty() => return (names, lost),
            None => {}
        }
        if source.waiting.is_empty() {
            continue;
        }
        match source.next(&stop).unwrap() {
            Next::Frame(frame) => names.push(name(&frame)),
            Next::Lost { frames, .. } => lost += frames,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn of_a_watched_folder_each_picture_is_read_once_as_soon_as_it_is_complete() {
    let folder = TempDir::new().unwrap();
    for name in ["b10.png", "b9.png"] {
        picture(&folder, name, 3);
    }
    let watched = ImagesConfig { watch: true, ..config(folder.path()) };
    let mut source = open(&watched, Arc::new(SimulatedClock::default())).unwrap();
    assert_eq!(source.describe(), format!("folder {}, watched for new pictures", folder.path().display()));
    assert_eq!(news(&mut source).0, ["b9.png", "b10.png"]);
    picture(&folder, "c.png", 4);
    picture(&folder, "a.png", 4);
    assert_eq!(news(&mut source).0, ["a.png", "c.png"], "what arrives together comes in the order of its names");
    // Like a camera that replaces its image faster than any scan.
    let bytes = fs::read(folder.path().join("a.png")).unwrap();
    for _ in 0..35 {
        fs::write(folder.path().join("latest.tmp"), &bytes).unwrap();
        fs::rename(folder.path().join("latest.tmp"), folder.path().join("latest.png")).unwrap();
        assert_eq!(news(&mut source), (vec!["latest.png".to_owned()], 0));
    }
    assert_eq!(news(&mut source), (vec![], 0));
}

#[test]
fn one_watched_picture_is_read_again_each_time_it_is_replaced_or_rewritten() {
    let folder = TempDir::new().unwrap();
    let path = picture(&folder, "latest.png", 3);
    let watched = ImagesConfig { watch: true, ..config(&path) };
    let mut source = open(&watched, Arc::new(SimulatedClock::default())).unwrap();
    assert!(source.describe().ends_with("latest.png, read again when it is replaced"), "{}", source.describe());
    assert_eq!(news(&mut source).0, ["latest.png"]);
    for width in 4..9 {
        picture(&folder, "other.png", width);
        fs::rename(folder.path().join("other.png"), &path).unwrap();
        assert_eq!(news(&mut source), (vec!["latest.png".to_owned()], 0));
        picture(&folder, "latest.png", width + 10);
        assert_eq!(news(&mut source), (vec!["latest.png".to_owned()], 0));
    }
    fs::remove_file(&path).unwrap();
    picture(&folder, "other.png", 3);
    assert_eq!(news(&mut source), (vec![], 0));
    picture(&folder, "latest.png", 3);
    assert_eq!(news(&mut source).0, ["latest.png"]);
}

#[test]
fn the_pictures_of_subfolders_are_read_if_they_are_asked_for() {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("2024/05/.thumbnails")).unwrap();
    for name in ["2024/05/b.png", "2024/a.png", "z.png", "2024/05/.thumbnails/b.png"] {
        picture(&folder, name, 3);
    }
    let mut flat = open(&config(folder.path()), Arc::new(SystemClock)).unwrap();
    assert_eq!(names(&mut flat), ["z.png"]);
    let all = ImagesConfig { recursive: true, ..config(folder.path()) };
    assert_eq!(names(&mut open(&all, Arc::new(SystemClock)).unwrap()), ["b.png", "a.png", "z.png"]);
    // Neither a circle nor a way out.
    let (outside, links) = (TempDir::new().unwrap(), folder.path().join("links"));
    picture(&outside, "secret.png", 3);
    fs::create_dir(&links).unwrap();
    for (name, target) in [("up", folder.path()), ("out", outside.path())] {
        std::os::unix::fs::symlink(target, links.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(outside.path().join("secret.png"), links.join("secret.png")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("z.png"), links.join("inside.png")).unwrap();
    assert_eq!(names(&mut open(&all, Arc::new(SystemClock)).unwrap()), ["b.png", "a.png", "inside.png", "z.png"]);
    let watched = ImagesConfig { watch: true, ..all };
    let mut source = open(&watched, Arc::new(SimulatedClock::default())).unwrap();
    assert_eq!(news(&mut source).0, ["b.png", "a.png", "inside.png", "z.png"]);
}

#[test]
fn a_watched_folder_that_is_away_is_waited_for_and_what_was_read_is_not_read_again() {
    let parent = TempDir::new().unwrap();
    let (path, aside) = (parent.path().join("inbox"), parent.path().join("aside"));
    fs::create_dir(&path).unwrap();
    picture(&parent, "inbox/a.png", 3);
    let clock = Arc::new(SimulatedClock::default());
    let mut source = open(&ImagesConfig { watch: true, ..config(&path) }, clock.clone()).unwrap();
    assert_eq!(news(&mut source).0, ["a.png"]);
    fs::rename(&path, &aside).unwrap();
    let stop = Stop::new().unwrap();
    let Next::Waiting { reason } = source.next(&stop).unwrap() else { panic!("not waiting") };
    assert_eq!(&*reason, format!("cannot read images from {}: no such file or folder", path.display()));
    for _ in 0..5 {
        // It is reported once, between the scans and by them.
        assert!(source.refresh().is_none());
        assert!(source.refresh().is_none());
        assert!(!source.wait(&stop));
    }
    picture(&parent, "aside/b.png", 3);
    fs::rename(&aside, &path).unwrap();
    let Next::Frame(frame) = source.next(&stop).unwrap() else { panic!("no frame") };
    assert_eq!(name(&frame), "b.png");
    picture(&parent, "inbox/c.png", 3);
    let Next::Frame(frame) = source.next(&stop).unwrap() else { panic!("no frame") };
    assert_eq!(name(&frame), "c.png");
}

#[test]
fn a_picture_that_ended_visiond_is_passed_over_until_it_is_replaced() {
    let (folder, state) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let open = |config: &ImagesConfig| {
        let clock = Arc::new(SimulatedClock::default());
        ImagesSource::open(config, "test", &Buffers::host(3), Some(state.path()), clock)
    };
    let bad = picture(&folder, "bad.png", 3);
    Quarantine::open(Some(state.path()), "test").begin(&bad);
    for path in [folder.path(), &bad] {
        let error = open(&config(path)).err().unwrap();
        assert!(error.to_string().contains("no image left") && !error.may_pass(), "{error}");
    }
    picture(&folder, "good.png", 3);
    assert_eq!(names(&mut open(&config(folder.path())).unwrap()), ["good.png"]);
    let mut watching = open(&ImagesConfig { watch: true, ..config(folder.path()) }).unwrap();
    assert_eq!(news(&mut watching), (vec!["good.png".to_owned()], 0));
    picture(&folder, "bad.png", 40);
    assert_eq!(news(&mut watching), (vec!["bad.png".to_owned()], 0));
    assert_eq!(names(&mut open(&config(folder.path())).unwrap()), ["bad.png", "good.png"]);
}

#[test]
fn while_a_watched_folder_has_no_new_picture_a_large_one_costs_nothing() {
    let folder = TempDir::new().unwrap();
    let watched = ImagesConfig { watch: true, ..config(folder.path()) };
    let clock = Arc::new(SimulatedClock::default());
    let mut source = open(&watched, clock).unwrap();
    let mut buffer = source.pool.take().unwrap();
    buffer.refit(2 * KEPT_BYTES).unwrap();
    drop(buffer);
    // The folder is empty: the next frame is an image that arrives while it waits.
    let stop = Stop::new().unwrap();
    assert!(!source.wait(&stop));
    picture(&folder, "a.png", 3);
    assert!(matches!(source.next(&stop).unwrap(), Next::Frame(_)));
    let free: Vec<_> = std::iter::from_fn(|| source.pool.take()).collect();
    let sizes: Vec<_> = free.iter().map(|buffer| buffer.as_slice().len()).collect();
    assert!(sizes.iter().all(|&bytes| bytes <= 18), "{sizes:?}");
}

#[test]
fn stop_ends_the_watch() {
    let folder = TempDir::new().unwrap();
    let watched = ImagesConfig { watch: true, watch_interval: EVER, ..config(folder.path()) };
    let mut source = open(&watched, Arc::new(SystemClock)).unwrap();
    assert!(matches!(stopped_while_it_waits(move |stop| source.next(stop)).unwrap(), Next::Stopped));
}
