//! Folders like those of users: numbered, damaged, growing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;
use visiond_flow::clock::SystemClock;
use visiond_flow::clock::simulated::SimulatedClock;
use visiond_flow::frame::Frame;
use visiond_kernels::buffer::KEPT_BYTES;
use visiond_system::testing::{EVER, stopped_while_it_waits};

use super::*;

fn config(path: &Path) -> ImagesConfig {
    ImagesConfig {
        path: path.to_owned(),
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
    assert!(empty.to_string().contains("there is no picture in the folder") && !empty.retry, "{empty}");
    let missing = config(&folder.path().join("missing"));
    let error = open(&missing, Arc::new(SystemClock)).err().unwrap();
    assert!(error.to_string().contains("no such file or folder") && !error.retry, "{error}");
    let awaited = open(&ImagesConfig { watch: true, ..missing }, Arc::new(SystemClock)).err().unwrap();
    assert!(awaited.retry);
}

#[test]
fn a_watched_folder_gives_each_picture_once_when_it_is_complete() {
    let folder = TempDir::new().unwrap();
    picture(&folder, "a.png", 3);
    let watched = ImagesConfig { watch: true, ..config(folder.path()) };
    let mut source = open(&watched, Arc::new(SimulatedClock::default())).unwrap();
    assert_eq!(source.waiting.len(), 1);
    source.waiting.clear();

    let whole = fs::read(picture(&folder, "b.png", 4)).unwrap();
    let growing = folder.path().join("b.png");
    fs::write(&growing, &whole[..20]).unwrap();
    source.scan().unwrap();
    assert!(source.waiting.is_empty(), "seen once: it may be growing");
    fs::write(&growing, &whole).unwrap();
    source.scan().unwrap();
    assert!(source.waiting.is_empty(), "it has grown");
    source.scan().unwrap();
    assert_eq!(source.waiting.pop_front(), Some(growing.clone()));
    source.scan().unwrap();
    assert!(source.waiting.is_empty(), "handed out once");

    // A replaced picture counts as new.
    picture(&folder, "b.png", 40);
    source.scan().unwrap();
    source.scan().unwrap();
    assert_eq!(source.waiting.pop_front(), Some(growing));
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
        assert!(error.to_string().contains("no picture left") && !error.retry, "{error}");
    }
    picture(&folder, "good.png", 3);
    assert_eq!(names(&mut open(&config(folder.path())).unwrap()), ["good.png"]);
    let mut watching = open(&ImagesConfig { watch: true, ..config(folder.path()) }).unwrap();
    assert_eq!(watching.waiting.len(), 1);
    watching.waiting.clear();
    picture(&folder, "bad.png", 40);
    watching.scan().unwrap();
    watching.scan().unwrap();
    assert_eq!(watching.waiting.pop_front(), Some(bad.clone()));
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
    // The folder is empty: the next frame is that of a picture which comes while it waits.
    picture(&folder, "a.png", 3);
    assert!(matches!(source.next(&Stop::new().unwrap()).unwrap(), Next::Frame(_)));
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

proptest! {
    #[test]
    fn natural_order_is_a_total_order(a in "[a-c0-9]{0,6}", b in "[a-c0-9]{0,6}", c in "[a-c0-9]{0,6}") {
        prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
        prop_assert_eq!(natural(&a, &b) == Ordering::Equal, a == b);
        if natural(&a, &b).is_le() && natural(&b, &c).is_le() {
            prop_assert!(natural(&a, &c).is_le());
        }
    }
}
