//! Whose frames people get, and when a preview is opened and closed.

#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::Duration;

use visiond_frames::frame::FramePool;
use visiond_frames::testing::{frame, pool};
use visiond_kernels::jpeg::JpegDecoder;
use visiond_message::testing::{door_message, message};
use visiond_system::testing::{HANG, stopped_while_it_waits, wait_until, while_it_waits};

use super::*;
use crate::{Live, Picture, PictureStream, Watch};

/// Pixels of the lane's frames and of the preview's, which differ in the images.
const LANE: u64 = 60;
const PREVIEW: u64 = 200;

/// A camera with a preview.
struct Bench {
    view: Arc<CameraView>,
    feed: PreviewFeed,
    pool: FramePool,
    _live: Arc<Live>,
}

impl Bench {
    fn new() -> Self {
        let live = Live::new();
        live.set_max_fps(1000.0);
        let view = live.view("door");
        Self { feed: PreviewFeed::new(&view).unwrap(), view, pool: pool(6), _live: live }
    }

    /// The lane and the preview each leave a frame.
    fn offer_both(&mut self) {
        if let Some(frame) = frame(&self.pool, LANE) {
            let message = Message { sequence: LANE, ..message("door", &[]) };
            self.view.offer(&Arc::new(frame), &Arc::new(message));
        }
        self.offer_preview(door_result);
    }

    fn offer_preview(&mut self, latest: impl FnOnce(u64) -> Vec<Arc<Message>>) {
        if let Some(frame) = frame(&self.pool, PREVIEW) {
            let captured_ns = frame.timestamp.monotonic_ns;
            self.feed.offer(frame, || latest(captured_ns));
        }
    }

    /// Waits for the next image while `offer` leaves frames.
    fn next(&mut self, watch: &mut Watch, offer: impl Fn(&mut Self)) -> Arc<Picture> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let offers = async {
                loop {
                    offer(self);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                picture = tokio::time::timeout(HANG, watch.next()) => picture.unwrap().unwrap(),
                () = offers => unreachable!(),
            }
        })
    }
}

/// A result for a frame that was captured just before.
fn door_result(captured_ns: u64) -> Vec<Arc<Message>> {
    let message = door_message(7, 0);
    vec![Arc::new(Message { monotonic_ns: captured_ns - 1, ..Message::clone(&message) })]
}

/// The source of the frame in an image without boxes.
fn origin(picture: &Picture) -> u64 {
    let mut rgb = vec![0; 4 * 2 * 3];
    JpegDecoder::new().decode(&picture.jpeg, &mut rgb).unwrap();
    if rgb[0] < 128 { LANE } else { PREVIEW }
}

#[test]
fn people_get_the_preview_and_what_belongs_to_detections_is_of_the_models_frames() {
    let mut bench = Bench::new();
    let view = Arc::clone(&bench.view);
    let mut people = view.watch(PictureStream::Shown, false).unwrap();
    assert!(!view.wanted(), "the preview is being opened, and the lane is not asked");
    for _ in 0..5 {
        let picture = bench.next(&mut people, Bench::offer_both);
        assert_eq!((origin(&picture), picture.sequence), (PREVIEW, Some(7)));
    }
    let mut evidence = view.watch(PictureStream::Model, false).unwrap();
    for _ in 0..5 {
        let picture = bench.next(&mut evidence, Bench::offer_both);
        assert_eq!((origin(&picture), picture.sequence), (LANE, Some(LANE)));
        assert_eq!(origin(&bench.next(&mut people, Bench::offer_both)), PREVIEW);
    }
    // The trial of a model, too.
    let copies = loop {
        let view = Arc::clone(&view);
        let copies = thread::spawn(move || view.frame(HANG).unwrap().buffer.as_slice()[0]);
        // It may get a frame that already waits at the encoder.
        wait_until("its request", || bench.view.wanted() || copies.is_finished());
        if !copies.is_finished() {
            break copies;
        }
    };
    for _ in 0..2 {
        // The lane may go first, but not forever.
        let picture = bench.next(&mut people, |bench| bench.offer_preview(door_result));
        assert_eq!(origin(&picture), PREVIEW);
    }
    assert!(!copies.is_finished(), "a frame of the preview is none");
    while !copies.is_finished() {
        bench.offer_both();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(u64::from(copies.join().unwrap()), LANE);
    assert_eq!(view.watchers(), 2);
}

#[test]
fn without_a_preview_that_plays_people_get_the_models_frames() {
    let mut bench = Bench::new();
    let view = Arc::clone(&bench.view);
    let mut people = view.watch(PictureStream::Shown, false).unwrap();
    assert_eq!(origin(&bench.next(&mut people, Bench::offer_both)), PREVIEW);
    bench.feed.failed(&"it is gone".into());
    let only_lane = |bench: &mut Bench| {
        if let Some(frame) = frame(&bench.pool, LANE) {
            bench.view.offer(&Arc::new(frame), &Arc::new(message("door", &[])));
        }
    };
    // A frame of the preview may still wait at the encoder.
    while origin(&bench.next(&mut people, only_lane)) != LANE {}
    let status = view.preview().unwrap();
    assert_eq!((status.phase, status.reason.as_deref()), (PreviewPhase::Waiting, Some("it is gone")));
    // It comes back.
    while origin(&bench.next(&mut people, Bench::offer_both)) != PREVIEW {}
    // It stalls, and its source has not noticed yet.
    while origin(&bench.next(&mut people, only_lane)) != LANE {}
    // It is taken away.
    while origin(&bench.next(&mut people, Bench::offer_both)) != PREVIEW {}
    let other = PreviewFeed::new(&view).unwrap();
    drop(std::mem::replace(&mut bench.feed, other));
    assert!(view.preview().is_some(), "the other one stays");
    bench.feed = PreviewFeed::new(&Live::new().view("yard")).unwrap();
    assert!(view.preview().is_none());
    while origin(&bench.next(&mut people, only_lane)) != LANE {}
}

#[test]
fn an_old_result_is_not_drawn() {
    let mut bench = Bench::new();
    let mut people = bench.view.watch(PictureStream::Shown, true).unwrap();
    let old = |captured_ns: u64| {
        let message = message("door", &["cat"]);
        vec![Arc::new(Message { monotonic_ns: captured_ns.saturating_sub(6_000_000_000), ..message })]
    };
    let picture = bench.next(&mut people, |bench| bench.offer_preview(old));
    assert_eq!((origin(&picture), picture.sequence), (PREVIEW, None));
    let picture = bench.next(&mut people, |bench| bench.offer_preview(|_| Vec::new()));
    assert_eq!((origin(&picture), picture.sequence), (PREVIEW, None));
    // Another model still gives results.
    let other = |captured_ns| [old(captured_ns), door_result(captured_ns)].concat();
    // An earlier frame may still wait at the encoder.
    while bench.next(&mut people, |bench| bench.offer_preview(other)).sequence != Some(7) {}
    assert!(is_near(9_000_000_000, 4_000_000_000) && !is_near(9_000_000_001, 4_000_000_000));
    assert!(is_near(1, 2), "a result may be for a later frame");
}

#[test]
fn a_person_opens_the_preview_and_it_is_closed_some_seconds_after_the_last_one() {
    let bench = Bench::new();
    let view = Arc::clone(&bench.view);
    assert!(!bench.feed.is_watched());
    assert_eq!(view.preview().unwrap().phase, PreviewPhase::Idle);
    let evidence = view.watch(PictureStream::Model, false).unwrap();
    assert!(!bench.feed.is_watched(), "only people count");
    drop(evidence);
    let Bench { feed, .. } = bench;
    let feed = Arc::new(feed);
    let waiting = Arc::clone(&feed);
    let mut people = None;
    let opened = while_it_waits(
        move |stop| waiting.wait_for_watcher(stop),
        |_| people = view.watch(PictureStream::Shown, false).ok(),
    );
    assert!(opened && feed.is_watched());
    assert_eq!(view.preview().unwrap().phase, PreviewPhase::Opening);
    drop(people);
    assert!(feed.is_watched(), "for some seconds");
    wait_until("the end of these", || !feed.is_watched());
    let waiting = Arc::clone(&feed);
    assert!(stopped_while_it_waits(move |stop| !waiting.wait_for_watcher(stop)));
    assert_eq!(view.preview().unwrap().phase, PreviewPhase::Idle);
}

#[test]
fn who_waits_while_both_streams_are_away_gets_the_preview_when_it_returns_alone() {
    let mut bench = Bench::new();
    let mut people = bench.view.watch(PictureStream::Shown, false).unwrap();
    bench.next(&mut people, |bench| bench.offer_preview(door_result));
    bench.feed.failed(&Arc::from("away"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let picture = runtime.block_on(async {
        // The image that was in progress.
        while tokio::time::timeout(Duration::from_millis(200), people.next()).await.is_ok() {}
        let returns = async {
            loop {
                bench.offer_preview(door_result);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            // The wait begins while it is away.
            biased;
            picture = tokio::time::timeout(HANG, people.next()) => picture.unwrap().unwrap(),
            () = returns => unreachable!(),
        }
    });
    assert_eq!(origin(&picture), PREVIEW);
}
