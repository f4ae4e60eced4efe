#![allow(clippy::unwrap_used)]

use super::*;

fn at(ns: u64) -> Timestamp {
    Timestamp { monotonic_ns: ns, realtime_ns: 1_700_000_000_000_000_000 + ns, instant: Instant::EndOfFrame }
}

/// NTP's format of a wall clock in ns since 1970.
fn ntp(realtime_ns: u64) -> u64 {
    let seconds = realtime_ns / 1_000_000_000 + 2_208_988_800;
    (seconds << 32) | ((u128::from(realtime_ns % 1_000_000_000) << 32) / 1_000_000_000) as u64
}

#[test]
fn a_sender_report_gives_the_time_of_capture() {
    let mut clock = CameraClock::new(90_000);
    let arrival = at(5_000_000_000);
    assert_eq!(clock.captured(900, arrival), arrival, "no report came yet");
    clock.report(90_000, ntp(at(4_500_000_000).realtime_ns));
    // 0.1 s later by the camera's clock of 90 kHz.
    let captured = clock.captured(99_000, arrival);
    assert!(captured.monotonic_ns.abs_diff(4_600_000_000) <= 1, "{captured:?}");
    assert_eq!(arrival.realtime_ns - captured.realtime_ns, arrival.monotonic_ns - captured.monotonic_ns);
}

#[test]
fn a_camera_whose_clock_is_wrong_is_not_believed() {
    let arrival = at(5_000_000_000);
    for reported_ns in [0, 1_000_000_000, arrival.realtime_ns - 1_000_000_001, arrival.realtime_ns + 1_000_000] {
        let mut clock = CameraClock::new(90_000);
        clock.report(0, ntp(reported_ns));
        assert_eq!(clock.captured(0, arrival), arrival, "{reported_ns}");
    }
    let mut clock = CameraClock::new(0);
    clock.report(i64::MIN, u64::MAX);
    assert_eq!(clock.captured(i64::MAX, arrival), arrival);
}

#[test]
fn times_come_out_in_the_order_of_presentation_and_never_go_back() {
    let mut times = PendingTimes::new(2);
    // I, P, B, B in decoding order.
    for (presentation, ns) in [(0, 1), (3, 2), (1, 3), (2, 4)] {
        times.add(presentation, Some(at(ns)));
    }
    let out: Vec<_> = std::iter::from_fn(|| times.next()).map(|time| time.unwrap().monotonic_ns).collect();
    assert_eq!(out, [1, 2, 2, 2], "what is shown before P was captured before it came");
    // By sender reports, in the order of decoding.
    for (presentation, ns) in [(0, 10), (3, 40), (1, 20), (2, 30)] {
        times.add(presentation, Some(at(ns)));
    }
    let out: Vec<_> = std::iter::from_fn(|| times.next()).map(|time| time.unwrap().monotonic_ns).collect();
    assert_eq!(out, [10, 20, 30, 40]);
}

#[test]
fn the_frames_before_a_recovery_point_are_the_first_and_damage_lasts_as_long_as_the_decoder() {
    let mut times = PendingTimes::new(1);
    // In decoding order: a frame, and two that are shown before it.
    for fate in [Fate::Published, Fate::Discarded, Fate::Discarded] {
        times.add_fate(fate);
    }
    assert_eq!([(); 3].map(|()| times.next_fate()), [Fate::Discarded, Fate::Discarded, Fate::Published]);
    (0..10).for_each(|_| times.add_fate(Fate::Published));
    assert!(!times.has_damage());
    times.add_fate(Fate::PublishedAsDamaged);
    times.add_fate(Fate::Published);
    assert!(times.has_damage());
    let fates: Vec<_> = (0..12).map(|_| times.next_fate()).collect();
    // The decoder may return those that it held back after the damaged one.
    let clean = 10 - 1 - MOST_DROPPED_AT_START;
    assert!(fates[..clean].iter().all(|fate| *fate == Fate::Published), "{fates:?}");
    assert!(fates[clean..].iter().all(|fate| *fate == Fate::PublishedAsDamaged), "{fates:?}");
}

#[test]
fn a_decoder_that_tells_its_frames_gets_the_fate_of_each_back_once() {
    let mut times = ShownTimes::default();
    (0..4).for_each(|n| times.add_fate(n, if n == 2 { Fate::Discarded } else { Fate::Published }));
    assert_eq!(
        [0, 2, 2, 1].map(|n| times.take_fate(n)),
        [Fate::Published, Fate::Discarded, Fate::Published, Fate::Published]
    );
    (0..1000).for_each(|n| times.add_fate(n, Fate::PublishedAsDamaged));
    assert_eq!(times.fates.len(), MAX_REORDERED);
}

#[test]
fn repetitions_for_a_decoder_that_holds_back_frames_are_not_taken_for_a_lag() {
    let mut times = PendingTimes::new(2);
    let mut due = std::collections::VecDeque::new();
    for n in 0..3 * WINDOW as i64 {
        // Each unit three times; the decoder holds back two.
        for captured in [Some(at(n as u64)), None, None] {
            times.add(n, captured);
            due.push_back(captured.map(|captured| captured.monotonic_ns));
            if due.len() > 2 {
                assert_eq!(times.next().unwrap().map(|time| time.monotonic_ns), due.pop_front().unwrap(), "{n}");
            }
        }
    }
}

#[test]
fn frames_that_a_decoder_does_not_return_make_no_lasting_lag() {
    let mut times = PendingTimes::new(1);
    // It holds back one frame and returned none for five.
    (0..6).for_each(|n| times.add(n, Some(at(n as u64))));
    let mut late = 0;
    for n in 6..6 + 2 * WINDOW as i64 {
        times.add(n, Some(at(n as u64)));
        late = n as u64 - times.next().unwrap().unwrap().monotonic_ns;
    }
    assert_eq!(late, 1);
}

#[test]
fn a_decoder_that_returns_nothing_fills_no_memory() {
    let mut times = PendingTimes::new(0);
    (0..10_000).for_each(|n| times.add(-n, None));
    assert_eq!(times.pending.len(), MAX_PENDING);
}

#[test]
fn a_decoder_that_tells_its_frames_may_lose_some_and_its_times_never_go_back() {
    let mut times = ShownTimes::default();
    // I, P, B, B as they are decoded; the first B is lost.
    for (presentation, ns) in [(0, 1), (3, 2), (1, 3), (2, 4)] {
        times.add(presentation, at(ns));
    }
    assert_eq!([0, 2, 3].map(|presentation| times.take(presentation)), [Some(at(1)), Some(at(2)), Some(at(2))]);
    assert_eq!(times.take(4), None, "it was not added");
    // A B-frame after one that was shown at once.
    times.add(9, at(20));
    assert_eq!(times.take(9), Some(at(20)));
    times.add(8, at(15));
    assert_eq!(times.take(8), Some(at(20)));
    // Where the camera's clock goes back, what was not shown before is forgotten.
    times.add(1_000, at(5));
    for n in 0..MAX_REORDERED {
        times.add(n as i64, at(100 + n as u64));
    }
    assert_eq!(times.take(0), Some(at(100)));
}
