//! Messages in at one end, readers at the other.

#![allow(clippy::unwrap_used)]

use tokio::time::timeout;
use visiond_message::testing::{message, sized_message};
use visiond_message::{EmbeddingMessage, EventMessage, Message};
use visiond_system::testing::{HANG, at_once};

use super::*;
use crate::Live;

fn published(camera: &str, sequence: u64, labels: &[&str]) -> Arc<Published> {
    Arc::new(Published::new(Arc::new(Message { sequence, ..message(camera, labels) })))
}

/// Runs `test` beside the task that distributes messages, as a server does.
fn served<F: Future<Output = ()>>(live: &Arc<Live>, test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let task = Arc::clone(live);
    runtime.block_on(async move {
        tokio::spawn(async move { task.messages().wake_readers().await });
        test.await;
    });
}

async fn sequences(subscription: &mut Subscription, count: usize) -> Vec<u64> {
    let mut found = Vec::new();
    for _ in 0..count {
        let delivered = timeout(HANG, subscription.next()).await.unwrap();
        found.push(delivered.message.sequence());
    }
    found
}

#[test]
fn every_reader_gets_what_it_wants_in_order_from_the_next_message_on() {
    let live = Live::new();
    let feed = live.messages();
    feed.publish(&published("door", 0, &["cat"]));
    let mut all = feed.subscribe(Filter::default());
    let mut door = feed.subscribe(Filter { cameras: vec!["door".to_owned()], ..Filter::default() });
    let mut seen = feed.subscribe(Filter { only_detections: true, ..Filter::default() });
    served(&live, async {
        for n in 1..7 {
            let camera = if n % 2 == 0 { "door" } else { "yard" };
            feed.publish(&published(camera, n, if n % 3 == 0 { &["cat"] } else { &[] }));
        }
        feed.wake();
        assert_eq!(sequences(&mut all, 6).await, [1, 2, 3, 4, 5, 6]);
        assert_eq!(sequences(&mut door, 3).await, [2, 4, 6]);
        assert_eq!(sequences(&mut seen, 2).await, [3, 6]);
        assert!(all.try_next().is_none() && door.try_next().is_none() && seen.try_next().is_none());
    });
}

#[test]
fn a_reader_that_is_too_slow_loses_the_oldest_is_told_and_costs_the_others_nothing() {
    let live = Live::new();
    let feed = live.messages();
    let (mut slow, mut fast) = (feed.subscribe(Filter::default()), feed.subscribe(Filter::default()));
    let sent = RING as u64 + 40;
    served(&live, async {
        for n in 0..sent {
            feed.publish(&published("door", n, &[]));
            feed.wake();
            assert_eq!(sequences(&mut fast, 1).await, [n]);
        }
        let first = slow.next().await;
        assert_eq!((first.message.sequence(), first.lost), (40, 40));
        let second = slow.next().await;
        assert_eq!((second.message.sequence(), second.lost), (41, 0));
    });
}

#[test]
fn a_reader_gets_events_on_request_and_learns_how_many_it_missed() {
    let live = Live::new();
    let feed = live.messages();
    let event = |sequence| {
        let event = EventMessage { sequence, camera: "door".into(), ..EventMessage::default() };
        Arc::new(Published::of_event(Arc::new(event), None))
    };
    let subscribe =
        |messages, only_detections| feed.subscribe(Filter { messages, only_detections, ..Filter::default() });
    let readers = [(Wanted::Frames, false), (Wanted::Events, false), (Wanted::All, false), (Wanted::All, true)];
    let mut readers = readers.map(|(messages, only_detections)| subscribe(messages, only_detections));
    for n in 0..RING as u64 / 2 + 20 {
        feed.publish(&event(2 * n));
        feed.publish(&published("door", 2 * n + 1, &[]));
    }
    let first = readers.each_mut().map(|reader| reader.try_next().map(|first| (first.message.sequence(), first.lost)));
    assert_eq!(first, [Some((41, 20)), Some((40, 20)), Some((40, 40)), Some((40, 20))]);
    let left = readers.each_mut().map(|reader| std::iter::from_fn(|| reader.try_next()).count());
    assert_eq!(left, [511, 511, 1023, 511]);
}

#[test]
fn large_messages_do_not_fill_the_memory_for_a_slow_reader() {
    let live = Live::new();
    let feed = live.messages();
    let mut reader = feed.subscribe(Filter::default());
    for sequence in 0..20 {
        feed.publish(&Arc::new(Published::new(sized_message("door", sequence, 10 << 20))));
    }
    let first = reader.try_next().unwrap();
    assert_eq!((first.lost, first.message.sequence()), (16, 16), "four of 10 MiB are kept");
    assert_eq!(feed.messages.lock().ring.bytes, 4 * first.message.about_bytes());
    drop((first, reader));
    assert_eq!(feed.messages.lock().ring.bytes, 0);
}

#[test]
fn values_of_the_frame_count_as_something_seen() {
    let live = Live::new();
    let feed = live.messages();
    let mut seen = feed.subscribe(Filter { cameras: Vec::new(), only_detections: true, ..Filter::default() });
    let mut values = message("door", &[]);
    values.embedding = Some(EmbeddingMessage { length: 1, f16: "ADw=".to_owned() });
    feed.publish(&published("door", 0, &[]));
    feed.publish(&Arc::new(Published::new(Arc::new(Message { sequence: 1, ..values }))));
    assert_eq!(seen.try_next().unwrap().message.sequence(), 1);
    assert!(seen.try_next().is_none());
}

#[test]
fn what_a_slow_reader_lost_is_what_it_wanted() {
    let live = Live::new();
    let feed = live.messages();
    let mut early =
        feed.subscribe(Filter { cameras: vec!["door".to_owned()], only_detections: true, ..Filter::default() });
    let send = |numbers: std::ops::Range<u64>| {
        for n in numbers {
            let camera = if n % 2 == 0 { "door" } else { "yard" };
            feed.publish(&published(camera, n, if n % 3 == 0 { &["cat"] } else { &[] }));
        }
    };
    let told = |subscription: &mut Subscription| {
        let delivered = subscription.try_next().unwrap();
        (delivered.message.sequence(), delivered.lost)
    };
    // Every sixth is for it: of 0, 6, 12, ... 294 what it has read and what is still there is not lost.
    send(0..20);
    assert_eq!(told(&mut early), (0, 0));
    send(20..RING as u64 + 100);
    assert_eq!(told(&mut early), (102, 16));
    assert_eq!(told(&mut early), (108, 0));
    // A later reader does not count earlier messages as lost.
    let mut late = feed.subscribe(Filter { cameras: vec!["yard".to_owned()], ..Filter::default() });
    assert!(late.try_next().is_none());
    send(RING as u64 + 100..2 * RING as u64 + 110);
    assert_eq!(told(&mut late), (RING as u64 + 111, 5));
    let passed = (114..RING as u64 + 110).filter(|n| n % 6 == 0).count() as u64;
    assert_eq!(told(&mut early), (RING as u64 + 110, passed));
}

#[test]
fn only_who_waits_for_it_is_woken_for_a_message() {
    let live = Live::new();
    let feed = live.messages();
    let mut mute = feed.subscribe(Filter::default());
    let mut door = feed.subscribe(Filter { cameras: vec!["door".to_owned()], ..Filter::default() });
    // The distributing task runs before this one runs again.
    let handed_round = || tokio::task::yield_now();
    served(&live, async {
        assert!(!feed.publish(&published("door", 1, &[])), "nobody waits");
        assert_eq!(sequences(&mut door, 1).await, [1]);
        assert!(at_once(door.next()).await.is_none());
        // It stopped waiting without a wake; another camera's message does not wake it, and its own wakes it once.
        assert!(feed.publish(&published("yard", 2, &[])));
        feed.wake();
        handed_round().await;
        assert!(feed.publish(&published("door", 3, &[])), "it sleeps on");
        feed.wake();
        handed_round().await;
        assert_eq!(sequences(&mut door, 1).await, [3]);
        assert!(!feed.publish(&published("door", 4, &[])), "nobody waits");
        assert_eq!(sequences(&mut door, 1).await, [4]);
        assert_eq!(sequences(&mut mute, 4).await, [1, 2, 3, 4]);
    });
}

#[test]
fn nothing_is_kept_for_readers_that_are_gone() {
    let live = Live::new();
    let feed = live.messages();
    let before = published("door", 1, &[]);
    feed.publish(&before);
    assert_eq!(Arc::strong_count(&before), 2, "the newest alone");
    let (one, other) = (feed.subscribe(Filter::default()), feed.subscribe(Filter::default()));
    let between = published("door", 2, &[]);
    feed.publish(&between);
    drop(one);
    feed.publish(&published("door", 3, &[]));
    assert_eq!((Arc::strong_count(&before), Arc::strong_count(&between)), (1, 2), "the other may read it");
    drop(other);
    assert_eq!(Arc::strong_count(&between), 1);
    assert_eq!(feed.latest("door").unwrap().sequence(), 3);
    let inner = feed.messages.lock();
    assert!(inner.readers == 0 && inner.asleep.is_empty() && inner.ring.messages.is_empty());
}

#[test]
fn cameras_that_run_no_more_are_forgotten() {
    let live = Live::new();
    live.messages().publish(&published("door", 1, &[]));
    live.set_lanes(Vec::new());
    assert!(live.messages().latest("door").is_none());
    assert!(live.find("door").is_none());
}
