//! Frames given to a view, and the images that watchers get.

#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::Duration;

use visiond_frames::frame::FramePool;
use visiond_frames::testing::{frame, pool};
use visiond_kernels::frame::FrameLayout;
use visiond_kernels::jpeg::JpegDecoder;
use visiond_message::testing::message;
use visiond_system::testing::{HANG, at_once, hang, wait_until};

use super::*;
use crate::{Live, ViewError};

/// A lane that leaves frames until it is told to end.
struct Lane {
    end: std::sync::mpsc::Sender<()>,
    thread: thread::JoinHandle<u64>,
}

impl Lane {
    fn start(view: &Arc<CameraView>, pool: FramePool, every: Duration) -> Self {
        let (end, ended) = std::sync::mpsc::channel();
        let view = Arc::clone(view);
        let thread = thread::spawn(move || {
            let mut sequence = 0;
            while ended.recv_timeout(every).is_err() {
                offer(&view, &pool, sequence);
                sequence += 1;
            }
            sequence
        });
        Self { end, thread }
    }

    fn end(self) -> u64 {
        self.end.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

fn offer(view: &Arc<CameraView>, pool: &FramePool, sequence: u64) {
    if let Some(frame) = frame(pool, sequence) {
        let message = Message { sequence, ..message(&view.name, &["cat"]) };
        view.offer(&Arc::new(frame), &Arc::new(message));
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// Every buffer of `pool` is there.
fn all_back(pool: &FramePool, count: usize) -> bool {
    (0..count).map(|n| frame(pool, n as u64)).filter(Option::is_some).count() == count
}

#[test]
fn nobody_watches_nothing_is_kept_and_no_thread_is_started() {
    let live = Live::new();
    let (view, pool) = (live.view("door"), pool(2));
    assert!(!view.wanted());
    let frame = Arc::new(frame(&pool, 0).unwrap());
    view.offer(&frame, &Arc::new(message("door", &[])));
    assert_eq!(Arc::strong_count(&frame), 1);
    drop(frame);
    assert!(all_back(&pool, 2));
}

#[test]
fn a_snapshot_is_the_next_frame_and_its_buffer_comes_back() {
    let live = Live::new();
    let view = live.view("door");
    let pool = pool(2);
    for overlay in [false, true] {
        let picture = block_on(async {
            let jpeg = view.jpeg(PictureStream::Shown, overlay, HANG);
            let lane = async {
                // Before it is asked for, no frame is wanted.
                tokio::task::yield_now().await;
                while !view.wanted() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                while view.wanted() {
                    offer(&view, &pool, 200);
                }
            };
            tokio::join!(jpeg, lane).0.unwrap()
        });
        assert_eq!(picture.sequence, Some(200));
        let mut rgb = vec![0; 4 * 2 * 3];
        let layout = JpegDecoder::new().decode(&picture.jpeg, &mut rgb).unwrap();
        assert_eq!((layout.width(), layout.height()), (4, 2));
        // 200 in limited range is 214; the label covers the image.
        assert_eq!(rgb.iter().all(|value| value.abs_diff(214) <= 3), !overlay, "{rgb:?}");
    }
    assert_eq!(view.watchers(), 0);
    wait_until("every buffer", || all_back(&pool, 2));
}

#[test]
fn the_next_picture_is_due_in_step_with_the_last_unless_frames_stayed_away() {
    let interval_ns = 50;
    assert_eq!(next_due_ns(0, 1000, interval_ns), 1050, "the first");
    assert_eq!(next_due_ns(1050, 1050, interval_ns), 1100);
    assert_eq!(next_due_ns(1050, 1099, interval_ns), 1100, "a late frame costs none");
    assert_eq!(next_due_ns(1050, 1100, interval_ns), 1150);
    assert_eq!(next_due_ns(1050, 5000, interval_ns), 5050, "a pause is not made up for");
}

#[test]
fn a_picture_is_made_once_for_all_watchers() {
    let live = Live::new();
    live.set_max_fps(20.0);
    let view = live.view("door");
    let mut watches: Vec<_> = (0..5).map(|_| view.watch(PictureStream::Shown, false).unwrap()).collect();
    let lane = Lane::start(&view, pool(4), Duration::from_millis(4));
    let last = block_on(async {
        let mut last = Vec::new();
        for _ in 0..10 {
            last.clear();
            for watch in &mut watches {
                last.push(watch.next().await.unwrap());
            }
        }
        last
    });
    // The next is 50 ms away, unless the machine has taken its time since.
    let same = last.iter().filter(|picture| Arc::ptr_eq(picture, &last[0])).count();
    assert!(same >= 1 && last.iter().all(|picture| picture.sequence >= last[0].sequence));
    drop(watches);
    assert_eq!(view.watchers(), 0);
    // One more frame at most is taken.
    wait_until("the view to want no frame", || !view.wanted());
    lane.end();
    assert!(!view.wanted());
}

#[test]
fn a_client_gets_a_frame_of_the_model_that_it_wants_and_leaves_nothing_behind() {
    let live = Live::new();
    let (view, pool) = (live.view("door"), pool(4));
    let wanted = "plates";
    let offer_of = |model: &str, sequence: u64| {
        let model = Arc::new(visiond_message::MessageModel { name: model.to_owned(), ..Default::default() });
        let message = Message { sequence, model, ..message("door", &["cat"]) };
        if let Some(frame) = frame(&pool, sequence) {
            view.offer(&Arc::new(frame), &Arc::new(message));
        }
    };
    let client = {
        let view = Arc::clone(&view);
        thread::spawn(move || view.frame_of(wanted, HANG))
    };
    wait_until("a frame to be wanted", || view.wanted());
    for sequence in 0..10 {
        offer_of("people", sequence);
        assert!(view.wanted(), "a frame of another model is left alone");
    }
    wait_until("the client to have its frame", || {
        offer_of("people", 10);
        offer_of(wanted, 11);
        client.is_finished()
    });
    let got = client.join().unwrap().unwrap();
    assert_eq!((&*got.message.model.name, got.message.sequence), (wanted, 11));
    let (width, height, pixels) = got.rgb().unwrap();
    assert_eq!(pixels.len(), (width * height * 3) as usize);
    assert!(view.frame_of("none", Duration::from_millis(1)).is_none());
    assert!(view.state.lock().copies.is_empty(), "nobody waits any more");
    wait_until("every buffer", || all_back(&pool, 4));
}

#[test]
fn a_slow_models_frame_is_not_shown_after_a_newer_one_of_a_fast_model() {
    let live = Live::new();
    live.set_max_fps(1000.0);
    let (view, pool) = (live.view("door"), pool(4));
    let mut watch = view.watch(PictureStream::Shown, false).unwrap();
    let slow = Arc::new(frame(&pool, 5).unwrap());
    // The encoder may hold the view's lock, so a frame is offered until it is shown.
    let mut show = |sequence| {
        block_on(async {
            loop {
                offer(&view, &pool, sequence);
                if let Ok(picture) = tokio::time::timeout(Duration::from_millis(50), watch.next()).await {
                    break picture.unwrap().sequence;
                }
            }
        })
    };
    assert_eq!(show(6), Some(6));
    let waiting = WaitingClient::new(&view, PictureStream::Shown);
    for _ in 0..10 {
        wait_until("a frame to be wanted", || view.wanted());
        view.offer(&slow, &Arc::new(message("door", &[])));
        assert!(view.wanted(), "it was not taken");
    }
    drop(waiting);
    assert_eq!(show(7), Some(7));
    // A camera that was removed and added again.
    while show(0) != Some(0) {}
}

#[test]
fn for_a_watcher_that_does_not_read_one_picture_is_made_and_forgotten_with_it() {
    let live = Live::new();
    live.set_max_fps(1000.0);
    let view = live.view("door");
    let mut watch = view.watch(PictureStream::Shown, false).unwrap();
    let lane = Lane::start(&view, pool(3), Duration::from_millis(1));
    let newest = || view.newest(PictureStream::Shown).plain.borrow().as_ref().map(|picture| picture.sequence.unwrap());
    wait_until("a picture", || newest().is_some() && !view.state.lock().busy);
    let first = newest().unwrap();
    // Nobody waits for the next, so the lane keeps no frame.
    assert!(!view.wanted());
    assert_eq!(newest(), Some(first), "another was made that nobody takes");
    while block_on(watch.next()).unwrap().sequence <= Some(first) {}
    drop(watch);
    lane.end();
    wait_until("the picture to be forgotten", || view.newest(PictureStream::Shown).plain.borrow().is_none());
}

#[test]
fn a_lane_waits_for_nobody_who_is_at_the_view_or_at_the_encoder() {
    let live = Live::new();
    let (view, pool) = (live.view("door"), pool(3));
    let mut watch = view.watch(PictureStream::Shown, false).unwrap();
    let offer_soon = |sequence| {
        let (view, frame) = (Arc::clone(&view), Arc::new(frame(&pool, sequence).unwrap()));
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || {
            view.offer(&frame, &Arc::new(Message { sequence, ..message("door", &[]) }));
            tell.send(()).unwrap();
        });
        told.recv_timeout(HANG).expect("the lane waits");
    };
    let held = view.state.lock();
    offer_soon(0);
    drop(held);
    let held = view.queue.hold();
    offer_soon(1);
    drop(held);
    assert!(view.wanted(), "the next frame is wanted in their place");
    // The thread may be at its queue as it starts.
    while view.wanted() {
        offer_soon(2);
    }
    let picture = block_on(async { tokio::time::timeout(HANG, watch.next()).await });
    assert_eq!(picture.unwrap().unwrap().sequence, Some(2));
}

#[test]
fn the_trial_of_a_model_gets_the_next_frame_in_memory_of_its_own() {
    let live = Live::new();
    let view = live.view("door");
    assert!(view.frame(Duration::from_millis(5)).is_none(), "no camera gives one");
    let lane = Lane::start(&view, pool(2), Duration::from_millis(2));
    let copy = view.frame(HANG).unwrap();
    let pixels = copy.view().unwrap();
    assert_eq!((pixels.width(), pixels.height()), (4, 2));
    let value = copy.buffer.as_slice()[0];
    assert!(copy.buffer.as_slice()[..8].iter().all(|&byte| byte == value));
    lane.end();
}

#[test]
fn a_camera_that_gives_no_frame_is_told_by_name() {
    let live = Live::new();
    let view = live.view("door");
    let error = block_on(view.jpeg(PictureStream::Shown, true, Duration::from_millis(20))).unwrap_err();
    assert!(error.to_string().starts_with("camera door delivered no frame"), "{error}");
}

#[test]
fn a_frame_that_cannot_be_shown_costs_that_picture_alone() {
    let live = Live::new();
    live.set_max_fps(1000.0);
    let view = live.view("door");
    let pool = FramePool::new(&visiond_kernels::buffer::Memory::host(), 2, 3).unwrap();
    let mut watch = view.watch(PictureStream::Shown, false).unwrap();
    // Eight bytes are its size, three its buffer's.
    let layout = copy_layout();
    let frame = visiond_frames::frame::Frame {
        layout,
        buffer: pool.take().unwrap().into(),
        sequence: 0,
        timestamp: visiond_frames::clock::now(&SystemClock),
        recorded_at: None,
        damaged: false,
        name: None,
    };
    view.offer(&Arc::new(frame), &Arc::new(message("door", &[])));
    let good = visiond_frames::testing::pool(2);
    let lane = Lane::start(&view, good, Duration::from_millis(2));
    assert!(block_on(async { tokio::time::timeout(HANG, watch.next()).await }).unwrap().is_some());
    lane.end();
}

fn copy_layout() -> FrameLayout {
    use visiond_kernels::color::ColorDescription;
    use visiond_kernels::frame::PixelFormat;
    FrameLayout::packed(PixelFormat::Grey, 4, 2, ColorDescription::default()).unwrap()
}

#[test]
fn closing_gives_every_frame_back_and_refuses_watchers() {
    let live = Live::new();
    let (view, pool) = (live.view("door"), pool(3));
    let mut watch = view.watch(PictureStream::Shown, false).unwrap();
    offer(&view, &pool, 1);
    live.close(hang());
    wait_until("every buffer", || all_back(&pool, 3));
    offer(&view, &pool, 2);
    assert!(all_back(&pool, 3) && !view.wanted());
    assert!(matches!(view.watch(PictureStream::Shown, true), Err(ViewError::NoEncoder { .. })));
    // Images made before it ended may still arrive, but no more.
    let ended = block_on(at_once(async { while watch.next().await.is_some() {} }));
    assert!(ended.is_none());
}

/// A view whose preview has been opened for a watcher.
fn with_preview() -> (Arc<Live>, Arc<CameraView>, Watch) {
    let live = Live::new();
    let view = live.view("door");
    view.attach_preview(&Arc::new(WakePipe::new().unwrap()));
    let watch = view.watch(PictureStream::Shown, true).unwrap();
    (live, view, watch)
}

#[test]
fn while_a_preview_waits_its_watchers_get_the_models_frames() {
    let (_live, view, _watch) = with_preview();
    assert_eq!(view.preview().unwrap().phase, PreviewPhase::Opening);
    assert!(view.wants_preview());
    view.set_preview(PreviewStatus { phase: PreviewPhase::Waiting, ..PreviewStatus::default() });
    assert!(view.wanted() && !view.wants_preview());
}

#[test]
fn once_a_preview_streams_its_frames_are_for_those_who_wait() {
    let (_live, view, _watch) = with_preview();
    let stream = || {
        view.preview_due_ns.store(NEVER, Ordering::Relaxed);
        view.set_preview(PreviewStatus { phase: PreviewPhase::Streaming, ..PreviewStatus::default() });
        view.wants_preview()
    };
    assert!(!stream(), "the watcher has a picture and does not wait for the next");
    let _waiting = WaitingClient::new(&view, PictureStream::Shown);
    assert!(stream());
}

#[test]
fn a_client_of_the_models_frames_comes_before_the_preview() {
    let (_live, view, _watch) = with_preview();
    let due = || {
        view.preview_due_ns.store(NEVER, Ordering::Relaxed);
        drop(WaitingClient::new(&view, PictureStream::Shown));
        view.preview_due_ns.load(Ordering::Relaxed)
    };
    let next_ns = view.state.lock().next_ns;
    assert_eq!(due(), next_ns);
    let waiting = WaitingClient::new(&view, PictureStream::Model);
    assert_eq!(due(), next_ns + MODEL_FIRST.as_nanos() as u64);
    drop(waiting);
    assert_eq!(due(), next_ns);
}

#[test]
fn a_preview_stays_open_for_a_while_after_its_last_watcher() {
    for (stream, is_person) in [(PictureStream::Shown, true), (PictureStream::Model, false)] {
        let live = Live::new();
        let view = live.view("door");
        let watch = view.watch(stream, false).unwrap();
        view.watched_ns.store(0, Ordering::Relaxed);
        let before_ns = SystemClock.monotonic_ns();
        drop(watch);
        let watched_ns = view.watched_ns.load(Ordering::Relaxed);
        assert_eq!((watched_ns >= before_ns, watched_ns == 0), (is_person, !is_person));
        view.watched_ns.store(1, Ordering::Relaxed);
        assert!(!view.is_preview_watched(), "long ago");
        assert!(view.close_unwatched_preview());
    }
}

#[test]
fn boxes_are_drawn_on_a_preview_at_its_own_size() {
    let memory = visiond_kernels::buffer::Memory::host();
    let color = visiond_kernels::color::ColorDescription::default();
    let layout = FrameLayout::packed(visiond_kernels::frame::PixelFormat::Grey, 128, 128, color).unwrap();
    let pool = FramePool::new(&memory, 1, layout.needed_bytes()).unwrap();
    // The model's frames are twice as large, and the box is in their lower right quarter.
    let mut message = message("door", &["cat"]);
    (message.frame.width, message.frame.height) = (256, 256);
    message.detections[0].bounds =
        Some(visiond_message::BoxMessage { x: 140.0, y: 140.0, width: 100.0, height: 100.0 });
    let message = Arc::new(message);
    // How many pixels of the lower right quarter are drawn on.
    let drawn = |is_preview: bool| {
        let live = Live::new();
        let view = live.view("door");
        let mut watch = view.watch(PictureStream::Shown, true).unwrap();
        let offer = |mut buffer: visiond_frames::frame::PooledBuffer| {
            buffer.as_mut_slice().fill(100);
            let timestamp = visiond_frames::clock::now(&SystemClock);
            let frame = Frame {
                layout,
                buffer: buffer.into(),
                sequence: 0,
                timestamp,
                recorded_at: None,
                damaged: false,
                name: None,
            };
            match is_preview {
                true => view.offer_preview(frame, Some(Arc::clone(&message))),
                false => view.offer(&Arc::new(frame), &message),
            }
        };
        // An image that has waited for long is not delivered, so new ones are made until one is taken.
        let picture = block_on(async {
            loop {
                // None while the encoder has it.
                pool.take().into_iter().for_each(offer);
                if let Ok(picture) = tokio::time::timeout(Duration::from_millis(50), watch.next()).await {
                    break picture.unwrap();
                }
            }
        });
        assert_eq!(picture.sequence, Some(0));
        let mut rgb = vec![0; 128 * 128 * 3];
        JpegDecoder::new().decode(&picture.jpeg, &mut rgb).unwrap();
        let pixels = rgb.as_chunks::<3>().0;
        let is_drawn = |pixel: &[u8; 3]| pixel.iter().zip(pixels[0]).any(|(a, b)| a.abs_diff(b) > 40);
        // Right of the middle, and neither at the upper side of the box, where its label is, nor at the image's edge.
        let rows = (75..110).flat_map(|y| &pixels[y * 128 + 64..y * 128 + 128]);
        rows.filter(|pixel| is_drawn(pixel)).count()
    };
    let (on_preview, on_frame) = (drawn(true), drawn(false));
    // The upright sides of a box of 50x50.
    assert!(on_preview >= 2 * 35, "{on_preview}");
    assert_eq!(on_frame, 0, "there it is outside");
    wait_until("every buffer", || pool.take().is_some());
}

#[test]
fn who_gets_pictures_as_they_come_sees_where_an_object_came_from() {
    let memory = visiond_kernels::buffer::Memory::host();
    let color = visiond_kernels::color::ColorDescription::default();
    let layout = FrameLayout::packed(visiond_kernels::frame::PixelFormat::Grey, 128, 128, color).unwrap();
    let (pool, small) = (FramePool::new(&memory, 1, layout.needed_bytes()).unwrap(), pool(1));
    // A track whose box moves a quarter of the frame to the right in each message; its lower side is in the middle.
    let message = |sequence: u64| {
        let mut message = message("door", &["cat"]);
        (message.sequence, message.monotonic_ns) = (sequence, sequence * 100_000_000);
        (message.frame.width, message.frame.height) = (128, 128);
        let state = visiond_message::TrackMessageState::Confirmed;
        message.detections[0].track =
            Some(visiond_message::TrackMessage { id: 3, state, age_ms: 0, velocity: [0.0, 0.0] });
        let x = 8.0 + 32.0 * sequence as f32;
        message.detections[0].bounds = Some(visiond_message::BoxMessage { x, y: 40.0, width: 16.0, height: 24.0 });
        Arc::new(message)
    };
    // Each time the first picture of the third message, after `before` have been watched, with boxes or without.
    let drawn = |is_preview: bool, before: &[(u64, bool)]| {
        let live = Live::new();
        let view = live.view("door");
        let mut last = None;
        for &(sequence, overlay) in before.iter().chain(&[(3, true)]) {
            let mut watch = view.watch(PictureStream::Shown, overlay).unwrap();
            let offer = |mut buffer: visiond_frames::frame::PooledBuffer| {
                buffer.as_mut_slice().fill(100);
                let any = frame(&small, sequence).unwrap();
                let frame = Frame { layout, buffer: buffer.into(), ..any };
                match is_preview {
                    true => view.offer_preview(frame, Some(message(sequence))),
                    false => view.offer(&Arc::new(frame), &message(sequence)),
                }
            };
            last = Some(block_on(async {
                loop {
                    pool.take().into_iter().for_each(offer);
                    match tokio::time::timeout(Duration::from_millis(50), watch.next()).await {
                        Ok(picture) if picture.as_ref().unwrap().sequence == Some(sequence) => break picture.unwrap(),
                        _ => {}
                    }
                }
            }));
        }
        let mut rgb = vec![0; 128 * 128 * 3];
        JpegDecoder::new().decode(&last.unwrap().jpeg, &mut rgb).unwrap();
        let pixels = rgb.as_chunks::<3>().0;
        // Columns left of the box with a pixel on the path that is not as the background is.
        let is_drawn =
            |x: usize| (61..68).any(|y| pixels[y * 128 + x].iter().zip(pixels[0]).any(|(a, b)| a.abs_diff(b) > 40));
        (0..100).filter(|&x| is_drawn(x)).count()
    };
    for is_preview in [false, true] {
        assert_eq!(drawn(is_preview, &[]), 0, "a single picture");
        // From column 48 to the box at 104; one of them has boxes, the other has none.
        let columns = drawn(is_preview, &[(1, false), (2, true)]);
        assert!((50..=56).contains(&columns), "{columns}");
    }
    wait_until("every buffer", || pool.take().is_some());
}

#[test]
fn a_change_of_masks_takes_every_earlier_frame_and_picture_away() {
    let live = Live::new();
    live.set_max_fps(1e6);
    let (view, pool) = (live.view("door"), pool(4));
    let picture = |taken: &TakenFrame| Picture {
        jpeg: Bytes::new(),
        sequence: Some(taken.frame.sequence),
        made: Instant::now(),
        mask_changes: taken.mask_changes,
    };
    // Without a call of `watch`, there is no thread of the encoder: the test takes the frames.
    let mut watch = Watch {
        pictures: view.newest(PictureStream::Shown).of(false).subscribe(),
        view: Arc::clone(&view),
        stream: PictureStream::Shown,
    };
    let wanted = |sequence| {
        view.request_frame(&view.state.lock(), PictureStream::Shown);
        wait_until("a frame to be wanted", || view.wanted());
        offer(&view, &pool, sequence);
    };
    // One image is there, and the next frame waits.
    wanted(1);
    let taken = view.take().unwrap();
    view.show(&taken.plain, false, picture(&taken));
    view.done();
    drop(taken);
    wanted(2);
    view.change_masks();
    assert!(view.take().is_none(), "it waited");
    assert!(watch.pictures.borrow_and_update().is_none(), "the newest image");
    // A frame is being encoded.
    wanted(3);
    let taken = view.take().unwrap();
    view.change_masks();
    view.show(&taken.plain, false, picture(&taken));
    view.done();
    assert!(watch.pictures.borrow_and_update().is_none(), "its image is dropped");
    drop(taken);
    wanted(4);
    let taken = view.take().unwrap();
    view.show(&taken.plain, false, picture(&taken));
    view.done();
    drop(taken);
    assert_eq!(block_on(watch.next()).unwrap().sequence, Some(4));
    assert!(all_back(&pool, 4));
}
