//! Messages in at one end, readers at the other.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::live::Live;
use crate::pipeline::lane::testing::message;
use crate::publish::message::Message;

fn published(camera: &str, sequence: u64, labels: &[&str]) -> Arc<Published> {
    Arc::new(Published::new(Arc::new(Message { sequence, ..message(camera, labels) })))
}

/// Runs `test` beside the task that hands round, as a server does.
fn served<F: Future<Output = ()>>(live: &Arc<Live>, test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let task = Arc::clone(live);
    runtime.block_on(async move {
        tokio::spawn(async move { task.feed().hand_round().await });
        test.await;
    });
}

async fn sequences(subscription: &Subscription, count: usize) -> Vec<u64> {
    let mut found = Vec::new();
    for _ in 0..count {
        let delivered = timeout(Duration::from_secs(10), subscription.next()).await.unwrap();
        found.push(delivered.message.message().sequence);
    }
    found
}

#[test]
fn every_reader_gets_what_it_wants_in_order_from_the_next_message_on() {
    let live = Live::new();
    let feed = live.feed();
    feed.publish(&published("door", 0, &["cat"]));
    let all = feed.subscribe(Filter::default());
    let door = feed.subscribe(Filter { cameras: vec!["door".to_owned()], only_detections: false });
    let seen = feed.subscribe(Filter { cameras: Vec::new(), only_detections: true });
    served(&live, async {
        for n in 1..7 {
            let camera = if n % 2 == 0 { "door" } else { "yard" };
            feed.publish(&published(camera, n, if n % 3 == 0 { &["cat"] } else { &[] }));
        }
        feed.wake();
        assert_eq!(sequences(&all, 6).await, [1, 2, 3, 4, 5, 6]);
        assert_eq!(sequences(&door, 3).await, [2, 4, 6]);
        assert_eq!(sequences(&seen, 2).await, [3, 6]);
        assert!(all.try_next().is_none() && door.try_next().is_none() && seen.try_next().is_none());
    });
}

#[test]
fn a_reader_that_is_too_slow_loses_the_oldest_is_told_and_costs_the_others_nothing() {
    let live = Live::new();
    let feed = live.feed();
    let (slow, fast) = (feed.subscribe(Filter::default()), feed.subscribe(Filter::default()));
    let sent = RING as u64 + 40;
    served(&live, async {
        for n in 0..sent {
            feed.publish(&published("door", n, &[]));
            feed.wake();
            assert_eq!(sequences(&fast, 1).await, [n]);
        }
        let first = slow.next().await;
        assert_eq!((first.message.message().sequence, first.lost), (40, 40));
        let second = slow.next().await;
        assert_eq!((second.message.message().sequence, second.lost), (41, 0));
    });
}

#[test]
fn messages_that_nobody_hands_round_are_bounded_and_told_as_lost() {
    let live = Live::new();
    let feed = live.feed();
    let reader = feed.subscribe(Filter::default());
    for n in 0..WAITING as u64 + 9 {
        feed.publish(&published("door", n, &[]));
    }
    assert_eq!(lock(&feed.inner).waiting.len(), WAITING);
    feed.wake();
    served(&live, async {
        let first = reader.next().await;
        let kept = (WAITING - RING) as u64;
        assert_eq!((first.message.message().sequence, first.lost), (kept + 9, kept + 9));
    });
}

#[test]
fn nothing_is_kept_for_readers_that_are_gone() {
    let live = Live::new();
    let feed = live.feed();
    let before = published("door", 1, &[]);
    feed.publish(&before);
    assert_eq!(Arc::strong_count(&before), 2, "the newest alone");
    drop(feed.subscribe(Filter::default()));
    assert_eq!(feed.readers(), 0);
    feed.publish(&published("door", 2, &[]));
    assert_eq!(Arc::strong_count(&before), 1);
    assert_eq!(feed.latest("door").unwrap().message().sequence, 2);
    assert!(lock(&feed.inner).waiting.is_empty());
}

#[test]
fn cameras_that_run_no_more_are_forgotten() {
    let live = Live::new();
    live.feed().publish(&published("door", 1, &[]));
    live.set_lanes(Vec::new());
    assert!(live.feed().latest("door").is_none());
    assert!(live.find("door").is_none());
}
