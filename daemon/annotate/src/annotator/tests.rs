#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use visiond_config::types::PictureFormat;
use visiond_frames::frame::{FrameBytes, FramePool};
use visiond_frames::timestamp::{Instant as Marks, Timestamp};
use visiond_kernels::buffer::Memory;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::view::Orientation;
use visiond_message::testing::door_message as message;
use visiond_message::{BoxMessage, TrackMessage, TrackMessageState};
use visiond_system::testing::{TinyDisk, finishes, hang, make_fifo, wait_until};

use super::*;

fn config(directory: &Path) -> AnnotateConfig {
    AnnotateConfig {
        directory: directory.to_owned(),
        every: 1,
        on_detection: false,
        on_event: false,
        format: PictureFormat::Jpeg,
        keep: 1000,
    }
}

fn frame(pool: &FramePool, sequence: u64) -> Arc<Frame> {
    let layout = FrameLayout::packed(PixelFormat::Nv12, 320, 240, ColorDescription::default()).unwrap();
    let mut buffer = pool.take().unwrap();
    buffer.as_mut_slice().fill(128);
    let timestamp = Timestamp { monotonic_ns: 0, realtime_ns: 0, instant: Marks::EndOfFrame };
    Arc::new(Frame {
        layout,
        buffer: buffer.into(),
        sequence,
        timestamp,
        recorded_at: None,
        damaged: false,
        name: None,
    })
}

fn pool() -> FramePool {
    FramePool::new(&Memory::host(), 4, 320 * 240 * 3 / 2).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_newest_pictures_are_kept_also_over_a_restart_and_beside_other_cameras() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("made/for/it");
    fs::create_dir_all(&directory).unwrap();
    for other in ["door-2-00000001.jpg", "notes.txt", ".door.visiond-part"] {
        fs::write(directory.join(other), "x").unwrap();
    }
    let pool = pool();
    for (format, range) in [(PictureFormat::Jpeg, 0..5), (PictureFormat::Png, 5..7)] {
        let annotator =
            Annotator::start(&AnnotateConfig { keep: 3, format, ..config(&directory) }, "door", IfUnusable::Retry)
                .unwrap();
        for sequence in range {
            annotator.offer_wait(frame(&pool, sequence), Orientation::UPRIGHT, message(sequence, 1), &[]);
        }
        annotator.close(hang());
    }
    assert_eq!(
        names(&directory),
        ["door-00000004.jpg", "door-00000005.png", "door-00000006.png", "door-2-00000001.jpg", "notes.txt"]
    );
    let picture = image::open(directory.join("door-00000004.jpg")).unwrap().to_rgb8();
    assert_eq!(picture.dimensions(), (320, 240));
    assert!(picture.pixels().any(|pixel| pixel.0[1] > 200 && pixel.0[0] < 120), "no box is drawn");
}

#[test]
fn only_what_is_asked_for_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool();
    let asked = AnnotateConfig { every: 4, on_detection: true, ..config(folder.path()) };
    let annotator = Annotator::start(&asked, "door", IfUnusable::Retry).unwrap();
    for sequence in 0..10 {
        annotator.offer_wait(
            frame(&pool, sequence),
            Orientation::UPRIGHT,
            message(sequence, usize::from(sequence == 6)),
            &[],
        );
    }
    assert_eq!(annotator.close(hang()), AnnotateCounts { written: 4, dropped_busy: 0, failed: 0, outage: None });
    assert_eq!(
        names(folder.path()),
        ["door-00000000.jpg", "door-00000004.jpg", "door-00000006.jpg", "door-00000008.jpg"]
    );
}

#[test]
fn an_event_has_the_last_image_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool();
    let asked = AnnotateConfig { every: 0, on_event: true, keep: 2, ..config(folder.path()) };
    let annotator = Annotator::start(&asked, "door", IfUnusable::Retry).unwrap();
    let name = |number: u64| annotator.event_image(&format!("5d0c9f3ab1e2774f-e{number}")).unwrap();
    let image = |number| EventImage { name: name(number), track: None, only_if_sharper: false };
    let bytes = |number| fs::metadata(folder.path().join(&*name(number))).map_or(0, |file| file.len());
    let offer = |sequence, boxes, events: &[EventImage]| {
        annotator.offer_wait(frame(&pool, sequence), Orientation::UPRIGHT, message(sequence, boxes), events);
    };
    offer(0, 0, &[]);
    offer(1, 0, &[image(1)]);
    wait_until("the first image", || bytes(1) > 0);
    let plain = bytes(1);
    offer(2, 1, &[image(1), image(2)]);
    wait_until("the second image", || bytes(2) > 0);
    assert!(bytes(1) == bytes(2) && bytes(1) > plain, "the better one has a box");
    offer(3, 1, &[image(3)]);
    assert_eq!(annotator.close(hang()), AnnotateCounts { written: 4, dropped_busy: 0, failed: 0, outage: None });
    assert_eq!(names(folder.path()), ["door-5d0c9f3ab1e2774f-e2.jpg", "door-5d0c9f3ab1e2774f-e3.jpg"]);
    // They count after a restart as well.
    let numbered = AnnotateConfig { every: 1, on_event: false, ..asked };
    let annotator = Annotator::start(&numbered, "door", IfUnusable::Retry).unwrap();
    assert_eq!(annotator.event_image("5d0c9f3ab1e2774f-e4"), None);
    annotator.offer_wait(frame(&pool, 7), Orientation::UPRIGHT, message(7, 1), &[]);
    annotator.close(hang());
    assert_eq!(names(folder.path()), ["door-00000007.jpg", "door-5d0c9f3ab1e2774f-e3.jpg"]);
}

#[test]
fn an_event_that_finds_another_frame_waiting_gets_the_next_one() {
    let (pool, mut annotator) = (pool(), without_a_thread());
    annotator.every = 0;
    let offer = |sequence, topic: &str, events: &[EventImage]| {
        let message = Message { topic: topic.into(), ..message(sequence, 1).as_ref().clone() };
        annotator.offer(frame(&pool, sequence), Orientation::UPRIGHT, Arc::new(message), events);
    };
    let image = |name: &str| EventImage { name: name.into(), track: None, only_if_sharper: false };
    offer(1, "door", &[image("a")]);
    offer(2, "door", &[image("b"), EventImage { only_if_sharper: true, ..image("d") }, image("c")]);
    assert_eq!(annotator.counts().dropped_busy, 0, "no image is lost");
    let taken = || {
        annotator
            .slot
            .take()
            .map(|(job, _)| {
                (job.message.sequence, job.events.iter().map(|event| &*event.name).collect::<Vec<_>>().join(" "))
            })
            .unwrap()
    };
    assert_eq!(taken(), (1, "a".to_owned()));
    offer(3, "door/plates", &[]);
    offer(4, "door", &[]);
    assert_eq!(taken(), (4, "b c".to_owned()), "of the model that has tracks");
    offer(5, "door", &[]);
    (0..1000).for_each(|event| offer(6, "door", &[image(&event.to_string())]));
    assert!(annotator.slot.state.lock().events.len() <= MOST_WAITING);
}

/// A message with a track whose box moves from the left to the right.
fn moving(sequence: u64) -> Arc<Message> {
    let mut moving = Arc::unwrap_or_clone(message(sequence, 1));
    (moving.frame.width, moving.frame.height) = (320, 240);
    moving.monotonic_ns = sequence * 100_000_000;
    let bounds = BoxMessage { x: 20.0 * sequence as f32, y: 140.0, width: 20.0, height: 60.0 };
    let track = TrackMessage { id: 3, state: TrackMessageState::Confirmed, age_ms: 0, velocity: [200.0, 0.0] };
    (moving.detections[0].bounds, moving.detections[0].track) = (Some(bounds), Some(track));
    Arc::new(moving)
}

#[test]
fn an_event_gets_a_sharper_image_of_its_object() {
    for seen in [Orientation::UPRIGHT, Orientation { transposed: true, mirrored: [true, false] }] {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool();
        let asked = AnnotateConfig { every: 0, on_event: true, ..config(folder.path()) };
        let annotator = Annotator::start(&asked, "door", IfUnusable::Retry).unwrap();
        // Stripes within the box, which is elsewhere in each frame, and flicker outside it.
        let offer = |sequence: u64, contrast: u8, only_if_sharper: bool| {
            let (message, mut frame) = (moving(sequence), Arc::into_inner(frame(&pool, sequence)).unwrap());
            let bounds = message.detections[0].bounds.unwrap();
            let FrameBytes::Pooled(buffer) = &mut frame.buffer else { unreachable!() };
            for (at, luma) in buffer.as_mut_slice()[..320 * 240].iter_mut().enumerate() {
                let (x, y) = ((at % 320) as f32, (at / 320) as f32);
                let inside =
                    x > bounds.x && x < bounds.x + bounds.width && y > bounds.y && y < bounds.y + bounds.height;
                *luma =
                    if !inside { 255 / sequence as u8 * (at % 2) as u8 } else { 100 + contrast * (at / 320 % 2) as u8 };
            }
            let name = annotator.event_image("5d0c9f3ab1e2774f-e1").unwrap();
            let event = EventImage { name, track: Some(3), only_if_sharper };
            annotator.offer_wait(Arc::new(frame), seen, message, &[event]);
        };
        offer(2, 40, true);
        offer(3, 40, false);
        offer(4, 44, true);
        offer(5, 80, true);
        offer(6, 84, true);
        offer(7, 20, false);
        offer(8, 40, true);
        let counts = annotator.close(hang());
        assert_eq!(
            counts,
            AnnotateCounts { written: 4, dropped_busy: 0, failed: 0, outage: None },
            "3, 5, 7 and 8, {seen:?}"
        );
    }
}

#[test]
fn an_object_has_a_tail_of_the_frames_that_were_not_drawn_too() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool();
    let asked = AnnotateConfig { every: 12, format: PictureFormat::Png, ..config(folder.path()) };
    let annotator = Annotator::start(&asked, "door", IfUnusable::Retry).unwrap();
    for sequence in 0..13 {
        annotator.offer_wait(frame(&pool, sequence), Orientation::UPRIGHT, moving(sequence), &[]);
    }
    annotator.close(hang());
    assert_eq!(names(folder.path()), ["door-00000000.png", "door-00000012.png"]);
    // The path lies at row 200, from column 10 on.
    let coloured = |name: &str| {
        let picture = image::open(folder.path().join(name)).unwrap().to_rgb8();
        let is_coloured = |x: u32| {
            (199..=200).any(|y| picture.get_pixel(x, y).0.windows(2).any(|pair| pair[0].abs_diff(pair[1]) > 20))
        };
        (0..320).filter(|&x| is_coloured(x)).collect::<Vec<_>>()
    };
    let without = coloured("door-00000000.png");
    assert!(without.iter().all(|&x| x < 25), "{without:?}");
    let with = coloured("door-00000012.png");
    assert!((15..235).all(|x| with.contains(&x)), "{with:?}");
}

#[test]
fn a_busy_drawer_drops_frames_by_count_and_gives_their_buffers_back() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool();
    let annotator = Annotator::start(&config(folder.path()), "door", IfUnusable::Retry).unwrap();
    let mut offered = 0;
    while annotator.counts().dropped_busy < 20 {
        // The pool of four hang runs dry: one waits, one is being converted.
        annotator.offer(frame(&pool, offered), Orientation::UPRIGHT, message(offered, 1), &[]);
        offered += 1;
    }
    let counts = annotator.close(hang());
    assert_eq!(counts.written + counts.dropped_busy, offered);
    assert!(counts.written >= 1, "{counts:?}");
    assert!((0..4).map(|_| pool.take()).all(|buffer| buffer.is_some()));
}

/// No thread takes a frame, as with a disk that hangs.
fn without_a_thread() -> Annotator {
    Annotator {
        camera: "door".to_owned(),
        every: 1,
        on_detection: false,
        on_event: true,
        extension: "jpg",
        offered: Mutex::default(),
        trails: Mutex::default(),
        counters: Arc::default(),
        slot: Arc::default(),
        thread: Mutex::default(),
    }
}

#[test]
fn models_that_finish_at_once_lose_no_image_to_each_other() {
    let (pool, annotator) = (pool(), without_a_thread());
    let of_model =
        |topic: &str, sequence| Arc::new(Message { topic: topic.into(), ..message(sequence, 1).as_ref().clone() });
    for topic in ["door", "door/plates", "door/faces"] {
        annotator.offer(frame(&pool, 7), Orientation::UPRIGHT, of_model(topic, 7), &[]);
    }
    assert_eq!(annotator.counts().dropped_busy, 0);
    annotator.offer(frame(&pool, 8), Orientation::UPRIGHT, of_model("door/plates", 8), &[]);
    assert_eq!(annotator.counts().dropped_busy, 1, "one of each waits");
    annotator.slot.close();
    let order: Vec<_> =
        std::iter::from_fn(|| annotator.slot.take()).map(|(job, _)| job.message.topic.to_string()).collect();
    assert_eq!(order, ["door", "door/plates", "door/faces"]);
}

#[test]
fn a_lane_that_waits_is_released_by_close() {
    let (pool, annotator) = (pool(), without_a_thread());
    annotator.offer_wait(frame(&pool, 0), Orientation::UPRIGHT, message(0, 1), &[]);
    std::thread::scope(|scope| {
        let (second, annotator) = (frame(&pool, 1), &annotator);
        let lane = scope.spawn(move || annotator.offer_wait(second, Orientation::UPRIGHT, message(1, 1), &[]));
        wait_until("the lane", || annotator.offered.lock().first().is_some_and(|(_, frames)| *frames == 2));
        annotator.close(Instant::now());
        lane.join().unwrap();
    });
    assert_eq!(annotator.counts(), AnnotateCounts { written: 0, dropped_busy: 1, failed: 0, outage: None });
}

#[test]
fn a_folder_that_cannot_be_is_refused_at_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = Annotator::start(&config(&file), "door", IfUnusable::Refuse).unwrap_err().to_string();
    assert!(error.starts_with("annotated images of camera door: ") && error.contains("cannot write to"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_used_costs_pictures_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("out");
    fs::write(&directory, "x").unwrap();
    let pool = pool();
    let annotator = Annotator::start(&config(&directory), "door", IfUnusable::Retry).unwrap();
    wait_until("the outage", || annotator.counts().outage.is_some_and(|reason| reason.contains("File exists")));
    fs::remove_file(&directory).unwrap();
    let mut sequence = 0;
    wait_until("a picture", || {
        annotator.offer_wait(frame(&pool, sequence), Orientation::UPRIGHT, message(sequence, 1), &[]);
        sequence += 1;
        wait_until("the drawer", || annotator.counts().failed + annotator.counts().written == sequence);
        annotator.counts().written == 1
    });
    assert_eq!(annotator.close(hang()).outage, None);
    assert_eq!(names(&directory), [format!("door-{:08}.jpg", sequence - 1)]);
}

#[test]
fn a_fifo_or_a_link_in_the_place_of_the_unfinished_picture_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, precious) = (folder.path().to_owned(), folder.path().join("precious"));
    let unfinished = directory.join(".door.visiond-part");
    fs::write(&precious, "x").unwrap();
    let obstacles: [&dyn Fn(); 2] =
        [&|| make_fifo(&unfinished), &|| std::os::unix::fs::symlink(&precious, &unfinished).unwrap()];
    for obstacle in obstacles {
        obstacle();
        let directory = directory.clone();
        let start = move || Annotator::start(&config(&directory), "door", IfUnusable::Refuse).unwrap();
        let annotator = finishes("the start", start);
        obstacle();
        let pool = pool();
        annotator.offer_wait(frame(&pool, 0), Orientation::UPRIGHT, message(0, 1), &[]);
        wait_until("a picture", || annotator.counts().written == 1);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "x");
    }
}

#[test]
fn a_full_disk_loses_pictures_by_count_and_leaves_no_half_ones() {
    let Some(disk) = TinyDisk::mount(64 * 1024) else { return };
    fs::write(disk.join("ballast"), vec![0; 60 * 1024]).unwrap();
    let directory = disk.join("out");
    let pool = pool();
    let annotator = Annotator::start(&config(&directory), "door", IfUnusable::Retry).unwrap();
    for sequence in 0..3 {
        annotator.offer_wait(frame(&pool, sequence), Orientation::UPRIGHT, message(sequence, 1), &[]);
    }
    wait_until("the full disk", || annotator.counts().failed == 3);
    assert!(names(&directory).is_empty());
    fs::remove_file(disk.join("ballast")).unwrap();
    // The disk is tried again after a pause; images until then are lost.
    let mut sequence = 3;
    wait_until("a picture", || {
        annotator.offer_wait(frame(&pool, sequence), Orientation::UPRIGHT, message(sequence, 1), &[]);
        sequence += 1;
        wait_until("the drawer", || annotator.counts().failed + annotator.counts().written == sequence);
        annotator.counts().written == 1
    });
    assert_eq!(
        annotator.close(hang()),
        AnnotateCounts { written: 1, dropped_busy: 0, failed: sequence - 1, outage: None }
    );
    assert_eq!(names(&directory), [format!("door-{:08}.jpg", sequence - 1)]);
}

#[test]
fn a_frame_that_is_forgotten_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool();
    let asked = AnnotateConfig { format: PictureFormat::Png, ..config(folder.path()) };
    let annotator = Annotator::start(&asked, "door", IfUnusable::Retry).unwrap();
    let slot = Arc::clone(&annotator.slot);
    // Whether it waits, is drawn or is about to be stored.
    for sequence in 0..20 {
        annotator.offer_wait(frame(&pool, sequence), Orientation::UPRIGHT, message(sequence, 1), &[]);
        let before = names(folder.path());
        assert!(annotator.forget(hang()));
        let stored = names(folder.path());
        annotator.offer_wait(frame(&pool, 100 + sequence), Orientation::UPRIGHT, message(100 + sequence, 1), &[]);
        let newest = format!("door-{:08}.png", 100 + sequence);
        wait_until("the next one", || names(folder.path()).contains(&newest));
        let own = format!("door-{sequence:08}.png");
        assert_eq!(stored.contains(&own), names(folder.path()).contains(&own), "{before:?}");
    }
    // A frame that was taken before is not stored after.
    assert!(!slot.begin_storing(0));
    let counts = annotator.close(hang());
    assert_eq!((counts.written + counts.dropped_busy, counts.failed), (40, 0));
}

#[test]
fn a_lane_that_waits_with_a_frame_does_not_store_it_after_all_were_forgotten() {
    let (slot, pool) = (Arc::<Slot>::default(), pool());
    let annotator = Annotator {
        camera: "door".to_owned(),
        every: 1,
        on_detection: false,
        on_event: true,
        extension: "jpg",
        offered: Mutex::default(),
        trails: Mutex::default(),
        counters: Arc::default(),
        slot: Arc::clone(&slot),
        thread: Mutex::default(),
    };
    annotator.offer_wait(frame(&pool, 0), Orientation::UPRIGHT, message(0, 1), &[]);
    let annotator = Arc::new(annotator);
    let (lane, late) = (Arc::clone(&annotator), frame(&pool, 1));
    let lane = std::thread::spawn(move || lane.offer_wait(late, Orientation::UPRIGHT, message(1, 1), &[]));
    // It waits again, because the slot is full.
    wait_until("the lane to wait", || slot.changed.notify_all() == 1);
    assert!(annotator.forget(hang()));
    finishes("the lane", move || lane.join().unwrap());
    assert!(slot.state.lock().waiting.is_empty());
    assert_eq!(annotator.counts().dropped_busy, 2);
}
