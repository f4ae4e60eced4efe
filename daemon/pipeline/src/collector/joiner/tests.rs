//! Which messages a camera with `group = true` sends, and when.

#![allow(clippy::unwrap_used)]

use std::sync::mpsc::{Receiver, sync_channel};

use visiond_frames::clock::simulated::SimulatedClock;
use visiond_message::testing::{door_message, model};
use visiond_system::stop::Stop;

use super::*;
use crate::lane::testing::{message_channel, outlet};
use crate::outlet::PublishFn;

/// A camera whose models are called a and b, in that order.
struct Bench {
    joiner: Joiner,
    clock: Arc<SimulatedClock>,
    messages: Receiver<Arc<Message>>,
    metrics: Arc<CameraMetrics>,
}

const MS: fn(u64) -> Duration = Duration::from_millis;

impl Bench {
    fn new(timeout: Option<Duration>) -> Self {
        let (publish, messages) = message_channel();
        Self::to(publish, messages, timeout)
    }

    fn to(publish: PublishFn, messages: Receiver<Arc<Message>>, timeout: Option<Duration>) -> Self {
        let clock = Arc::new(SimulatedClock::default());
        let metrics = Arc::new(CameraMetrics::new("door".into()));
        let outlet = outlet(publish, None, Arc::clone(&clock) as Arc<_>, &Stop::new().unwrap());
        let joiner = Joiner::new(&metrics, &outlet);
        joiner.set_timeout(timeout);
        Self { joiner, clock, messages, metrics }
    }

    /// The tickets of a frame's lanes.
    fn announce(&self, sequence: u64, lanes: usize) -> Vec<Ticket> {
        let ticket = self.joiner.announce(sequence);
        (0..lanes).map(|_| ticket.lend()).collect()
    }

    /// The model at this place has a result, with a detection of this score.
    fn finish(&self, place: usize, sequence: u64, score: f32, ticket: Ticket) {
        let mut message = Arc::unwrap_or_clone(door_message(sequence, 1));
        let name = ["a", "b"][place];
        (message.model, message.detections[0].score) = (model(name), score);
        message.topic = if place == 0 { "door".into() } else { format!("door/{name}").into() };
        self.joiner.add(place, &Arc::new(message));
        drop(ticket);
        self.joiner.flush();
    }

    /// Of each new message: its frame and the models of its detections.
    fn sent(&self) -> Vec<(u64, String)> {
        let models = |message: &Message| {
            message.detections.iter().filter_map(|d| d.model.as_deref()).collect::<Vec<_>>().concat()
        };
        self.messages.try_iter().map(|message| (message.sequence, models(&message))).collect()
    }

    fn counts(&self) -> (u64, u64) {
        let overload = self.metrics.snapshot().dropped[DropCause::Overload as usize];
        (self.metrics.incomplete_groups.get(), overload)
    }
}

#[test]
fn a_frame_has_one_message_with_the_detections_of_all_models_best_first() {
    let bench = Bench::new(Some(MS(200)));
    let mut lanes = bench.announce(5, 2);
    bench.finish(1, 5, 0.9, lanes.pop().unwrap());
    assert_eq!(bench.sent(), [], "it waits for the other model");
    bench.clock.advance(MS(3));
    bench.finish(0, 5, 0.4, lanes.pop().unwrap());
    let message = bench.messages.try_recv().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&message.to_line()).unwrap();
    let of =
        |at: usize| (shown["detections"][at]["model"].as_str().unwrap(), shown["detections"][at]["score"].as_f64());
    assert_eq!((of(0).0, of(1).0, shown["detections"].as_array().unwrap().len()), ("b", "a", 2));
    assert_eq!((&shown["model"]["name"], &*message.topic), (&"a".into(), "door"));
    assert_eq!((&shown["models"][0]["name"], &shown["models"][1]["name"]), (&"a".into(), &"b".into()));
    assert!(
        shown["models"][1]["timings_us"]["total"].is_u64() && shown["models"].as_array().unwrap().len() == 2,
        "{shown}"
    );
    assert_eq!((bench.counts(), bench.metrics.published()), ((0, 0), 2));
}

#[test]
fn a_lane_that_dropped_the_frame_is_not_waited_for_and_the_order_holds() {
    let bench = Bench::new(Some(MS(200)));
    let mut first = bench.announce(1, 2);
    let mut second = bench.announce(2, 2);
    bench.finish(0, 1, 0.5, first.remove(0));
    bench.finish(0, 2, 0.5, second.remove(0));
    // The second frame displaced the third, which is no turn of model b.
    bench.finish(0, 3, 0.5, bench.announce(3, 1).remove(0));
    drop(second);
    bench.joiner.flush();
    assert_eq!(bench.sent(), [], "the first frame still waits");
    bench.finish(1, 1, 0.4, first.remove(0));
    assert_eq!(bench.sent(), [(1, "ab".into()), (2, "a".into()), (3, "a".into())]);
    assert_eq!(bench.counts(), (1, 0), "the third is complete");
    // All drop it.
    drop(bench.announce(4, 2));
    bench.joiner.flush();
    assert_eq!((bench.sent(), bench.counts()), (vec![], (1, 0)));
}

#[test]
fn a_frame_waits_no_longer_than_the_timeout_and_has_no_second_message() {
    let bench = Bench::new(Some(MS(200)));
    let mut lanes = bench.announce(1, 2);
    let mut next = bench.announce(2, 2);
    bench.finish(0, 1, 0.5, lanes.remove(0));
    bench.clock.advance(MS(199));
    bench.joiner.flush();
    assert_eq!(bench.sent(), []);
    bench.clock.advance(MS(1));
    bench.joiner.flush();
    assert_eq!((bench.sent(), bench.counts()), (vec![(1, "a".into())], (1, 0)));
    bench.finish(1, 1, 0.4, lanes.remove(0));
    assert_eq!((bench.sent(), bench.counts()), (vec![], (1, 1)), "it is late, and counted");
    // The second frame had the same time: it goes out with the first result that there is.
    bench.joiner.flush();
    assert_eq!(bench.sent(), []);
    bench.finish(0, 2, 0.5, next.remove(0));
    assert_eq!((bench.sent(), bench.counts()), (vec![(2, "a".into())], (2, 1)));
}

#[test]
fn a_source_that_waits_has_no_timeout_and_the_end_sends_what_is_left() {
    let bench = Bench::new(None);
    let mut lanes = bench.announce(1, 2);
    bench.finish(0, 1, 0.5, lanes.remove(0));
    bench.clock.advance(Duration::from_secs(3600));
    bench.joiner.flush();
    assert_eq!(bench.sent(), []);
    bench.joiner.flush_all();
    assert_eq!((bench.sent(), bench.counts()), (vec![(1, "a".into())], (1, 0)));
}

#[test]
fn the_end_does_not_wait_for_a_sink_that_blocks_another_thread() {
    let (send, messages) = sync_channel(0);
    let send = Mutex::new(send);
    let publish = Arc::new(move |message: &Arc<Message>| send.lock().send(Arc::clone(message)).unwrap());
    let bench = Bench::to(publish, messages, None);
    let (first, mut second) = (bench.announce(1, 1), bench.announce(2, 2));
    bench.joiner.add(0, &door_message(1, 1));
    bench.finish(0, 2, 0.5, second.pop().unwrap());
    drop(first);
    let joiner = &bench.joiner;
    std::thread::scope(|scope| {
        let lane = scope.spawn(|| joiner.flush());
        while !joiner.order.is_locked() {
            std::thread::yield_now();
        }
        joiner.flush_all();
        assert_eq!([(); 2].map(|()| bench.messages.recv().unwrap().sequence), [1, 2]);
        lane.join().unwrap();
    });
}

#[test]
fn a_lane_that_hangs_fills_no_memory() {
    let bench = Bench::new(Some(Duration::from_secs(3600)));
    let hangs = (0..1000).map(|sequence| {
        let mut lanes = bench.announce(sequence, 2);
        bench.finish(0, sequence, 0.5, lanes.remove(0));
        lanes
    });
    let hangs: Vec<_> = hangs.collect();
    assert_eq!(bench.joiner.state.lock().groups.len(), MOST_WAITING);
    assert_eq!(bench.sent().len(), 1000 - MOST_WAITING);
    drop(hangs);
    bench.joiner.flush();
    assert_eq!(bench.sent().len(), MOST_WAITING);
}

#[test]
fn a_source_that_waits_for_its_models_loses_no_result_and_waits_for_room() {
    let bench = Bench::new(None);
    let mut slow = bench.announce(0, 2);
    bench.finish(0, 0, 0.5, slow.pop().unwrap());
    for sequence in 1..MOST_WAITING as u64 {
        let fast = bench.announce(sequence, 1).pop().unwrap();
        bench.clock.advance(MS(100));
        bench.finish(0, sequence, 0.5, fast);
    }
    assert_eq!(bench.sent(), [], "the first frame waits for its second model");
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let camera = scope.spawn(|| bench.joiner.wait_for_room(&stop));
        assert!(!camera.is_finished());
        bench.finish(1, 0, 0.9, slow.pop().unwrap());
        camera.join().unwrap();
    });
    let sent = bench.sent();
    assert_eq!((sent.len(), &*sent[0].1), (MOST_WAITING, "ba"));
    assert_eq!(bench.counts(), (0, 0));
}

#[test]
fn results_of_frames_with_old_masks_are_dropped() {
    let bench = Bench::new(Some(MS(200)));
    let mut lanes = bench.announce(1, 2);
    bench.finish(0, 1, 0.5, lanes.pop().unwrap());
    bench.joiner.forget();
    drop(lanes);
    bench.joiner.flush_all();
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.metrics.snapshot().dropped[DropCause::Unmasked as usize], 1);
}
