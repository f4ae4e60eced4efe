//! The mailbox, as cameras and lanes use it.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use proptest::prelude::*;

use super::*;

const LONG: Duration = visiond_system::testing::HANG;

/// A mailbox with a slot for each camera, identified by number.
fn mailbox<T>(cameras: &[Delivery]) -> Mailbox<usize, T> {
    let mailbox = Mailbox::default();
    cameras.iter().enumerate().for_each(|(camera, delivery)| assert_eq!(mailbox.add(camera, *delivery), camera));
    mailbox
}

/// A batch that waits for no other frames.
fn at_most(most: usize) -> Batch {
    Batch { most, wait: Duration::ZERO }
}

fn take_all(mailbox: &Mailbox<usize, u32>, most: usize) -> Vec<(usize, u32)> {
    let mut out = Vec::new();
    assert_eq!(take_unless_called(mailbox, at_most(most), &mut out), TakeResult::Frames);
    out
}

/// Takes again after a call, as a lane does.
fn take_unless_called<T>(mailbox: &Mailbox<usize, T>, batch: Batch, out: &mut Vec<(usize, T)>) -> TakeResult {
    loop {
        let result = mailbox.take(batch, LONG, out);
        if result != TakeResult::Called {
            return result;
        }
    }
}

#[test]
fn the_newest_frame_wins_and_the_old_one_comes_back() {
    let mailbox = mailbox(&[Delivery::NewestWins]);
    assert_eq!(mailbox.put(0, 1), Put::Stored);
    assert_eq!(mailbox.put(0, 2), Put::Displaced(1));
    assert_eq!(mailbox.put(0, 3), Put::Displaced(2));
    assert_eq!(take_all(&mailbox, 4), [(0, 3)]);
}

#[test]
fn every_camera_gets_its_turn() {
    let mailbox = mailbox(&[Delivery::NewestWins; 3]);
    let mut served = Vec::new();
    for round in 0..6 {
        for camera in 0..3 {
            mailbox.put(camera, round);
        }
        served.extend(take_all(&mailbox, 1).into_iter().map(|(camera, _)| camera));
    }
    assert_eq!(served, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_batch_holds_one_frame_of_each_camera_and_goes_on_where_the_last_ended() {
    let mailbox = mailbox(&[Delivery::NewestWins; 3]);
    (0..3).for_each(|camera| assert_eq!(mailbox.put(camera, 0), Put::Stored));
    assert_eq!(take_all(&mailbox, 2), [(0, 0), (1, 0)]);
    let expected = [Put::Stored, Put::Stored, Put::Displaced(0)];
    (0..3).for_each(|camera| assert_eq!(mailbox.put(camera, 1), expected[camera]));
    assert_eq!(take_all(&mailbox, 2), [(2, 1), (0, 1)]);
}

#[test]
fn the_turn_goes_on_when_a_camera_is_removed() {
    // Two of four cameras were served; one is removed, and the others deliver a frame again.
    for (removed, next) in [(0, 2), (1, 2), (2, 3), (3, 2)] {
        let mailbox = mailbox(&[Delivery::NewestWins; 4]);
        (0..4).for_each(|camera| assert_eq!(mailbox.put(camera, 0), Put::Stored));
        assert_eq!(take_all(&mailbox, 2), [(0, 0), (1, 0)]);
        assert_eq!(mailbox.remove(removed), (removed > 1).then_some(0));
        assert_eq!(mailbox.remove(removed), None, "it is gone");
        for camera in (0..4).filter(|camera| *camera != removed) {
            mailbox.put(camera, 1);
        }
        assert_eq!(mailbox.put(removed, 1), Put::Stopped(1));
        assert_eq!(take_all(&mailbox, 1), [(next, 1)], "without {removed}");
    }
}

#[test]
fn an_empty_inbox_times_out() {
    let mailbox = mailbox::<u32>(&[Delivery::NewestWins]);
    assert_eq!(mailbox.take(at_most(1), Duration::from_millis(2), &mut Vec::new()), TakeResult::TimedOut);
}

#[test]
fn a_frame_waits_for_those_of_other_cameras_until_the_batch_is_whole() {
    let mailbox = mailbox(&[Delivery::NewestWins; 4]);
    let (mut out, three) = (Vec::new(), Batch { most: 3, wait: LONG });
    for camera in 0..2 {
        mailbox.put(camera, 0);
        assert!(!mailbox.waits(three));
        assert_eq!(mailbox.take(three, Duration::ZERO, &mut out), TakeResult::TimedOut);
    }
    mailbox.put(1, 1);
    assert!(!mailbox.waits(three), "a camera's newest frame counts once");
    mailbox.put(2, 0);
    mailbox.put(3, 0);
    assert!(mailbox.waits(three));
    assert_eq!(mailbox.take(three, Duration::ZERO, &mut out), TakeResult::Frames);
    assert_eq!(out, [(0, 0), (1, 1), (2, 0)]);
    assert!(!mailbox.waits(three));
}

#[test]
fn a_frame_waits_for_no_camera_that_has_ended_or_is_removed_and_no_longer_than_it_should() {
    let mailbox = mailbox(&[Delivery::NewestWins; 3]);
    let all = Batch { most: 8, wait: LONG };
    mailbox.put(0, 0);
    mailbox.end(1);
    assert!(!mailbox.waits(all));
    mailbox.remove(2);
    assert!(mailbox.waits(all), "no other camera sends frames");
    assert_eq!(mailbox.remove(0), Some(0));
    assert!(!mailbox.waits(all));

    let late = self::mailbox(&[Delivery::NewestWins; 2]);
    late.put(0, 0);
    let mut out = Vec::new();
    assert_eq!(late.take(Batch { most: 2, wait: Duration::from_millis(1) }, LONG, &mut out), TakeResult::Frames);
    assert_eq!(out, [(0, 0)]);
}

#[test]
fn a_frame_that_others_were_taken_before_waits_as_long_as_any() {
    let mailbox = mailbox(&[Delivery::NewestWins; 4]);
    let three = Batch { most: 3, wait: LONG / 2 };
    mailbox.put(0, 0);
    mailbox.put(1, 0);
    assert!(!mailbox.waits(three));
    mailbox.state.lock().slots[0].since -= LONG;
    assert!(mailbox.waits(three), "it has waited long enough");
    assert_eq!(take_all(&mailbox, 1), [(0, 0)]);
    assert!(!mailbox.waits(three), "the other one has not");
}

#[test]
fn a_lane_that_gathers_a_batch_is_woken_when_it_is_whole_or_cameras_end() {
    for is_last_camera_gone in [false, true] {
        let mailbox = Arc::new(mailbox(&[Delivery::NewestWins; 3]));
        mailbox.put(0, 0);
        let lane = thread::spawn({
            let mailbox = Arc::clone(&mailbox);
            move || {
                let mut out = Vec::new();
                (take_unless_called(&mailbox, Batch { most: 8, wait: LONG * 2 }, &mut out), out.len())
            }
        });
        mailbox.put(1, 0);
        if is_last_camera_gone {
            mailbox.end(2);
        } else {
            mailbox.put(2, 0);
        }
        assert_eq!(lane.join().unwrap(), (TakeResult::Frames, 3 - usize::from(is_last_camera_gone)));
    }
}

#[test]
fn the_lane_ends_when_every_camera_has_and_the_last_frame_is_taken() {
    let mailbox = mailbox(&[Delivery::NewestWins, Delivery::Lossless]);
    mailbox.put(0, 7);
    mailbox.end(0);
    mailbox.end(1);
    assert_eq!(take_all(&mailbox, 1), [(0, 7)]);
    assert_eq!(mailbox.take(at_most(1), LONG, &mut Vec::new()), TakeResult::Ended);
}

#[test]
fn the_lane_is_called_once_no_frame_of_a_camera_that_has_ended_is_left() {
    let mailbox = mailbox::<u32>(&[Delivery::NewestWins; 3]);
    let take = |out: &mut Vec<_>| mailbox.take(at_most(1), Duration::ZERO, out);
    let mut out = Vec::new();
    mailbox.put(0, 7);
    mailbox.end(0);
    assert_eq!((take(&mut out), mailbox.ended()), (TakeResult::Frames, vec![0]));
    assert_eq!((take(&mut out), take(&mut out)), (TakeResult::Called, TakeResult::TimedOut));
    mailbox.put(2, 8);
    assert_eq!(mailbox.idle(), [0, 1]);
    mailbox.end(1);
    assert_eq!((take(&mut out), mailbox.ended()), (TakeResult::Called, vec![0, 1]));
    mailbox.end(2);
    assert_eq!((take(&mut out), take(&mut out)), (TakeResult::Frames, TakeResult::Ended));
    assert_eq!(mailbox.ended(), [0, 1, 2]);
}

#[test]
fn stop_wakes_a_lane_that_waits_and_a_camera_that_waits() {
    let idle = Arc::new(mailbox::<u32>(&[Delivery::NewestWins]));
    let full = Arc::new(mailbox(&[Delivery::Lossless]));
    full.put(0, 1);
    let lane = thread::spawn({
        let idle = Arc::clone(&idle);
        move || idle.take(at_most(1), LONG, &mut Vec::new())
    });
    let camera = thread::spawn({
        let full = Arc::clone(&full);
        move || full.put(0, 2)
    });
    idle.stop();
    full.stop();
    assert_eq!(lane.join().unwrap(), TakeResult::Stopped);
    assert_eq!(camera.join().unwrap(), Put::Stopped(2));
    assert_eq!(full.take(at_most(1), LONG, &mut Vec::new()), TakeResult::Stopped);
}

#[test]
fn lossless_cameras_lose_and_repeat_nothing_under_stress() {
    const CAMERAS: usize = 4;
    const FRAMES: u64 = 5_000;
    let mailbox = Arc::new(mailbox(&[Delivery::Lossless; CAMERAS]));
    let cameras: Vec<_> = (0..CAMERAS)
        .map(|camera| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                for n in 0..FRAMES {
                    assert_eq!(mailbox.put(camera, n), Put::Stored);
                }
                mailbox.end(camera);
            })
        })
        .collect();
    let mut next = [0; CAMERAS];
    let mut out = Vec::with_capacity(CAMERAS);
    let room = out.capacity();
    while take_unless_called(&mailbox, at_most(3), &mut out) == TakeResult::Frames {
        assert!(!out.is_empty() && out.len() <= 3);
        for (camera, n) in out.drain(..) {
            assert_eq!(n, next[camera], "camera {camera}");
            next[camera] += 1;
        }
    }
    assert_eq!(out.capacity(), room, "taking allocates nothing");
    assert_eq!(next, [FRAMES; CAMERAS]);
    cameras.into_iter().for_each(|camera| camera.join().unwrap());
}

#[test]
fn with_newest_wins_every_frame_is_either_taken_or_handed_back() {
    let mailbox = Arc::new(mailbox(&[Delivery::NewestWins]));
    let displaced = Arc::new(AtomicU64::new(0));
    let camera = thread::spawn({
        let (mailbox, displaced) = (Arc::clone(&mailbox), Arc::clone(&displaced));
        move || {
            for n in 0..20_000_u64 {
                if let Put::Displaced(_) = mailbox.put(0, n) {
                    displaced.fetch_add(1, Ordering::Relaxed);
                }
            }
            mailbox.end(0);
        }
    });
    let (mut taken, mut last, mut out) = (0, None, Vec::new());
    while mailbox.take(at_most(1), LONG, &mut out) == TakeResult::Frames {
        let (_, n) = out.pop().unwrap();
        assert!(last.is_none_or(|last| n > last), "frames of a camera stay in order");
        (last, taken) = (Some(n), taken + 1);
    }
    camera.join().unwrap();
    assert_eq!(last, Some(19_999), "the newest frame is never lost");
    assert_eq!(taken + displaced.load(Ordering::Relaxed), 20_000);
}

/// A lane that is far slower than its camera: time is counted in frames, not in seconds.
#[test]
fn a_slow_lane_always_looks_at_the_newest_frame() {
    let mailbox = mailbox(&[Delivery::NewestWins]);
    let mut seen = Vec::new();
    for now in 0..600_u32 {
        mailbox.put(0, now);
        // 200 ms of engine at 30 frames/s: free again every sixth frame.
        if now % 6 == 5 {
            let (_, frame) = take_all(&mailbox, 1)[0];
            seen.push(now - frame);
        }
    }
    assert!(seen.iter().all(|&age| age == 0), "waiting frames are never older than the last one that came");
}

#[test]
fn a_lossless_camera_waits_for_the_lane() {
    let mailbox = Arc::new(mailbox(&[Delivery::Lossless]));
    let (told, tells) = mpsc::channel();
    let camera = thread::spawn({
        let mailbox = Arc::clone(&mailbox);
        move || {
            for n in 0..3 {
                mailbox.put(0, n);
                told.send(n).unwrap();
            }
        }
    });
    assert_eq!(tells.recv().unwrap(), 0);
    assert!(tells.recv_timeout(Duration::from_millis(20)).is_err(), "the slot is taken");
    assert_eq!(take_all(&mailbox, 1), [(0, 0)]);
    assert_eq!(tells.recv().unwrap(), 1);
    assert_eq!(take_all(&mailbox, 1), [(0, 1)]);
    camera.join().unwrap();
    assert_eq!(take_all(&mailbox, 1), [(0, 2)]);
}

#[derive(Debug, Clone)]
enum Step {
    Put(usize),
    Take(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![3 => (0..4_usize).prop_map(Step::Put), 1 => (1..6_usize).prop_map(Step::Take)];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// Against a model: slots that hold the newest, nothing twice, and no camera waits longer than one round of turns.
    #[test]
    fn any_order_of_puts_and_takes_keeps_the_newest_and_is_fair(steps in steps()) {
        let mailbox = mailbox(&[Delivery::NewestWins; 4]);
        let mut model = [None; 4];
        let mut passed_over = [0_usize; 4];
        let mut out = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(camera) => {
                    let expected = match model[camera].replace(n) {
                        Some(old) => Put::Displaced(old),
                        None => Put::Stored,
                    };
                    prop_assert_eq!(mailbox.put(camera, n), expected);
                }
                Step::Take(most) => {
                    let waiting = model.iter().flatten().count();
                    out.clear();
                    let taken = mailbox.take(at_most(most), Duration::ZERO, &mut out);
                    prop_assert_eq!(taken == TakeResult::Frames, waiting > 0);
                    prop_assert_eq!(out.len(), waiting.min(most));
                    for &(camera, n) in &out {
                        prop_assert_eq!(model[camera].take(), Some(n));
                        passed_over[camera] = 0;
                    }
                    for camera in 0..4 {
                        passed_over[camera] += out.len() * usize::from(model[camera].is_some());
                        prop_assert!(passed_over[camera] < 4, "camera {} starves", camera);
                    }
                }
            }
        }
    }
}
