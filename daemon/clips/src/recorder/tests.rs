#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use visiond_config::types::EventKind;
use visiond_frames::testing::{frame, pool};
use visiond_message::testing::door_message;
use visiond_system::testing::hang;

use super::*;

const STEP: Duration = Duration::from_millis(100);

/// Clips with a second before and after each event.
fn config(directory: &Path) -> ClipsConfig {
    let second = Duration::from_secs(1);
    ClipsConfig { directory: directory.to_owned(), before: second, after: second, ..ClipsConfig::default() }
}

fn start(config: &ClipsConfig, draws: bool) -> ClipRecorder {
    ClipRecorder::start(config, "door", draws, IfUnusable::Refuse).unwrap()
}

fn jpeg(width: u32) -> Arc<Vec<u8>> {
    Arc::new(JpegEncoder::new(80).unwrap().encode_rgb(&vec![90; width as usize * 16 * 3], width, 16).unwrap())
}

/// Puts the frames of these numbers into the ring, ten a second.
fn film(recorder: &ClipRecorder, numbers: std::ops::Range<u32>, file: &Arc<Vec<u8>>) {
    numbers.for_each(|number| recorder.ring.push(CodedFrame::jpeg(Arc::clone(file), STEP * number)));
}

/// Waits until a clip is finished or lost.
fn wait(recorder: &ClipRecorder, done: impl Fn(&ClipCounts) -> bool) {
    let until = hang();
    while !done(&recorder.counts()) {
        assert!(Instant::now() < until, "{:?}", recorder.counts());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// How many frames ffprobe decodes of a clip.
fn frames(path: &Path) -> usize {
    let mut probe = Command::new("ffprobe");
    probe.args(["-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames", "-of", "csv=p=0"]).arg(path);
    let output = probe.output().expect("these tests need ffprobe");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn a_clip_has_what_comes_before_in_and_after_its_event() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, file) = (start(&config(folder.path()), false), jpeg(16));
    assert!(!recorder.draws() && recorder.ring().is_some());
    film(&recorder, 0..50, &file);
    let visit = recorder.begin("0123456789abcdef-e1", ("dock", "zone"), STEP * 48).unwrap();
    let crossing = recorder.begin("0123456789abcdef-e2", ("door", "line"), STEP * 49).unwrap();
    recorder.end(&crossing, STEP * 49);
    assert_eq!(&*visit, "door-0123456789abcdef-e1.mp4");
    film(&recorder, 50..70, &file);
    wait(&recorder, |counts| counts.written == 1);
    assert_eq!(frames(&folder.path().join(&*crossing)), 21, "from 39 to 59");
    film(&recorder, 70..81, &file);
    recorder.end(&visit, STEP * 70);
    film(&recorder, 81..100, &file);
    wait(&recorder, |counts| counts.written == 2);
    assert_eq!(frames(&folder.path().join(&*visit)), 43, "from 38 to 80");
    assert_eq!(names(folder.path()), [&*visit, &*crossing]);
    assert_eq!(recorder.close(hang()), ClipCounts { written: 2, ..ClipCounts::default() });
}

#[test]
fn an_event_that_lasts_is_cut_and_one_under_way_at_the_end_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let longest = Duration::from_secs(5);
    let (recorder, file) = (start(&ClipsConfig { longest, ..config(folder.path()) }, false), jpeg(16));
    film(&recorder, 0..20, &file);
    let long = recorder.begin("0123456789abcdef-e1", ("dock", "zone"), STEP * 19).unwrap();
    film(&recorder, 20..60, &file);
    film(&recorder, 60..70, &file);
    wait(&recorder, |counts| counts.written == 1);
    assert_eq!(frames(&folder.path().join(&*long)), 51);
    // Its end comes later, and changes nothing.
    recorder.end(&long, STEP * 69);
    let last = recorder.begin("0123456789abcdef-e2", ("dock", "zone"), STEP * 69).unwrap();
    assert_eq!(recorder.close(hang()).written, 2);
    assert_eq!(frames(&folder.path().join(&*last)), 11);
    assert!(recorder.begin("0123456789abcdef-e3", ("dock", "zone"), STEP * 69).is_none());
}

#[test]
fn only_the_events_that_are_asked_for_have_clips_and_not_too_many_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let asked = ClipsConfig {
        rules: vec!["dock".to_owned()],
        kinds: vec![EventKind::Dwell, EventKind::WrongWay],
        ..config(folder.path())
    };
    let recorder = start(&asked, false);
    film(&recorder, 0..1, &jpeg(16));
    let begin = |number, rule, kind| recorder.begin(&format!("0123456789abcdef-e{number}"), (rule, kind), STEP);
    assert!(begin(1, "dock", "zone").is_none() && begin(2, "yard", "dwell").is_none());
    assert_eq!(recorder.counts().dropped, 0);
    assert!((0..MOST_UNDER_WAY).all(|number| begin(number, "dock", "wrong_way").is_some()));
    assert!(begin(99, "dock", "dwell").is_none());
    let ClipCounts { written, dropped, failed, .. } = recorder.close(hang());
    assert_eq!((written, dropped, failed), (MOST_UNDER_WAY as u64, 1, 0));
}

#[test]
fn a_stream_that_begins_again_ends_a_clip_or_begins_it() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, file, other) = (start(&config(folder.path()), false), jpeg(16), jpeg(32));
    // Once before the event, and once in it.
    film(&recorder, 0..45, &file);
    recorder.ring.begin_stream();
    film(&recorder, 45..50, &file);
    let clip = recorder.begin("0123456789abcdef-e1", ("dock", "zone"), STEP * 49).unwrap();
    film(&recorder, 50..53, &file);
    recorder.ring.begin_stream();
    film(&recorder, 53..60, &file);
    wait(&recorder, |counts| counts.written == 1);
    assert_eq!(frames(&folder.path().join(&*clip)), 8);
    // Likewise for another size.
    film(&recorder, 60..65, &other);
    let clip = recorder.begin("0123456789abcdef-e2", ("dock", "zone"), STEP * 64).unwrap();
    film(&recorder, 65..67, &other);
    film(&recorder, 67..69, &file);
    wait(&recorder, |counts| counts.written == 2);
    assert_eq!(frames(&folder.path().join(&*clip)), 7);
}

#[test]
fn after_other_masks_nothing_is_left_of_clips_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, file) = (start(&config(folder.path()), false), jpeg(16));
    film(&recorder, 0..20, &file);
    let clip = recorder.begin("0123456789abcdef-e1", ("dock", "zone"), STEP * 19).unwrap();
    let until = hang();
    while names(folder.path()).is_empty() {
        assert!(Instant::now() < until);
    }
    assert!(recorder.forget(hang()));
    assert!(names(folder.path()).is_empty());
    assert_eq!(recorder.ring.entry_at(STEP), None);
    recorder.end(&clip, STEP * 19);
    assert_eq!(recorder.close(hang()), ClipCounts::default());
    assert!(names(folder.path()).is_empty());
}

#[test]
fn what_the_memory_or_the_folder_cannot_hold_is_lost_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let small = ClipsConfig { max_memory_bytes: 10, ..config(folder.path()) };
    let recorder = start(&small, false);
    film(&recorder, 0..20, &jpeg(16));
    let clip = recorder.begin("0123456789abcdef-e1", ("dock", "zone"), STEP * 19).unwrap();
    recorder.end(&clip, STEP * 19);
    assert_eq!(recorder.close(hang()), ClipCounts { dropped: 1, ..ClipCounts::default() });
    assert!(names(folder.path()).is_empty());

    let gone = folder.path().join("gone");
    let recorder = start(&config(&gone), false);
    fs::remove_dir(&gone).unwrap();
    film(&recorder, 0..20, &jpeg(16));
    recorder.begin("0123456789abcdef-e1", ("dock", "zone"), STEP * 19).unwrap();
    wait(&recorder, |counts| counts.failed == 1 && counts.outage.is_some());
    // It works again: the disk is tried at most every five seconds.
    fs::create_dir(&gone).unwrap();
    let until = hang();
    for number in 2.. {
        assert!(Instant::now() < until);
        recorder.begin(&format!("0123456789abcdef-e{number}"), ("dock", "zone"), STEP * 19).unwrap();
        wait(&recorder, |counts| counts.failed == number || names(&gone).len() == 1);
        if names(&gone).len() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let counts = recorder.close(hang());
    assert_eq!((counts.written, counts.outage), (1, None));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = ClipRecorder::start(&config(&file), "door", false, IfUnusable::Refuse).unwrap_err().to_string();
    assert!(
        refused.starts_with("clips of camera door: cannot write to ")
            && ClipRecorder::check(&config(&file), "door").is_err()
    );
}

#[test]
fn of_frames_that_are_drawn_a_clip_has_five_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, pool) = (start(&config(folder.path()), true), pool(8));
    assert!(recorder.draws() && recorder.ring().is_none());
    let offer = |number: u32| {
        let mut drawn = frame(&pool, 0).unwrap();
        drawn.recorded_at = Some(STEP * number);
        recorder.offer_wait(&Arc::new(drawn), Orientation::UPRIGHT, &door_message(number.into(), 1));
    };
    (0..40).for_each(offer);
    let clip = recorder.begin("0123456789abcdef-e1", ("dock", "zone"), STEP * 39).unwrap();
    recorder.end(&clip, STEP * 40);
    (40..60).for_each(offer);
    assert_eq!(recorder.close(hang()), ClipCounts { written: 1, ..ClipCounts::default() });
    // From 2.8 s, the frame before 2.9 s, to 5.0 s.
    assert_eq!(frames(&folder.path().join(&*clip)), 12);
    // A result of another model, and a frame after the end.
    let mut message = Message::clone(&door_message(1, 1));
    message.topic = "door/plates".into();
    recorder.offer(&Arc::new(frame(&pool, 0).unwrap()), Orientation::UPRIGHT, &Arc::new(message));
    offer(61);
}
