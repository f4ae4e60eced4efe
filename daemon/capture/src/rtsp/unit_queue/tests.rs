#![allow(clippy::unwrap_used)]

use visiond_frames::clock::simulated::SimulatedClock;

use super::super::access_unit::Codec;
use super::super::numbering::{Position, RecoveryPoint};
use super::*;

fn unit(access: Access, n: i64) -> AccessUnit {
    let captured = visiond_frames::clock::now(&SimulatedClock::default());
    AccessUnit {
        codec: Codec::H265,
        data: Arc::new(vec![0; 100]),
        access,
        follows_loss: false,
        position: None,
        fate: Fate::Published,
        presentation: n,
        captured,
        generation: 1,
    }
}

/// Pushes `K`ey, `I`nter and `L`eading units, numbered from 0.
fn push(queue: &UnitQueue, kinds: &str) {
    for (n, kind) in kinds.chars().enumerate() {
        let access = match kind {
            'K' => Access::Key,
            'L' => Access::Leading,
            _ => Access::Inter,
        };
        queue.push(unit(access, n as i64));
    }
}

fn drain(queue: &UnitQueue) -> Vec<i64> {
    queue.end(SourceError::transient("over"));
    let next = || match queue.take(1, None, || false, None) {
        Taken::Unit(unit) => Some(unit.presentation),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

fn queue() -> (UnitQueue, Arc<SimulatedClock>) {
    queue_of(DamagedFrames::Drop)
}

fn queue_of(damaged: DamagedFrames) -> (UnitQueue, Arc<SimulatedClock>) {
    let clock = Arc::new(SimulatedClock::default());
    (UnitQueue::new(Arc::clone(&clock) as Arc<dyn Clock>, damaged), clock)
}

#[test]
fn decoding_begins_at_a_key_frame_and_what_came_before_is_no_loss() {
    let (queue, _) = queue();
    queue.count_corrupt(3);
    queue.push(behind_loss(Access::Inter, -1));
    push(&queue, "IIKLLIK");
    assert_eq!(queue.take_loss(), None);
    assert_eq!(drain(&queue), [2, 5, 6]);
}

#[test]
fn a_decoder_that_is_late_goes_on_at_the_newest_key_frame() {
    let (queue, clock) = queue();
    push(&queue, "KIIKLI");
    clock.advance(MAX_AGE + Duration::from_millis(1));
    queue.push(unit(Access::Inter, 9));
    assert_eq!(queue.take_loss(), Some((4, LossCause::Overload)), "the leading picture cannot be decoded any more");
    assert_eq!(queue.take_loss(), None);
    assert_eq!(drain(&queue), [3, 5, 9]);
}

#[test]
fn without_a_newer_key_frame_everything_is_dropped_until_the_next() {
    let (queue, clock) = queue();
    push(&queue, "KII");
    clock.advance(MAX_AGE + Duration::from_millis(1));
    for (access, n) in [(Access::Inter, 7), (Access::Key, 8), (Access::Leading, 9), (Access::Inter, 10)] {
        queue.push(unit(access, n));
    }
    assert_eq!(
        queue.take_loss(),
        Some((5, LossCause::Overload)),
        "three that waited, one before the key frame, one leading"
    );
    assert_eq!(drain(&queue), [8, 10]);
}

#[test]
fn no_more_than_so_many_bytes_wait() {
    let (queue, _) = queue();
    let large = |access, n| AccessUnit { data: Arc::new(vec![0; MAX_BYTES / 2 - 1000]), ..unit(access, n) };
    queue.push(large(Access::Key, 0));
    queue.push(large(Access::Inter, 1));
    queue.push(large(Access::Key, 2));
    assert_eq!(queue.take_loss(), Some((2, LossCause::Overload)));
    // Even a key frame and its followers are dropped if they are too large.
    queue.push(large(Access::Inter, 3));
    queue.push(large(Access::Inter, 4));
    assert_eq!(queue.take_loss(), Some((3, LossCause::Overload)));
    assert!(queue.state.lock().bytes <= MAX_BYTES);
    queue.push(unit(Access::Key, 5));
    assert_eq!(drain(&queue), [5]);
}

#[test]
fn a_unit_with_other_parameters_waits_for_its_decoder() {
    let (queue, _) = queue();
    queue.push(unit(Access::Key, 0));
    queue.push(AccessUnit { generation: 2, ..unit(Access::Key, 1) });
    assert!(matches!(queue.take(1, None, || false, None), Taken::Unit(_)));
    assert!(matches!(queue.take(1, None, || false, None), Taken::OtherParameters));
    assert!(matches!(queue.take(2, None, || false, None), Taken::Unit(_)));
}

#[test]
fn units_of_an_ended_session_are_decoded_before_its_error_counts() {
    let (queue, _) = queue();
    push(&queue, "KI");
    queue.end(SourceError::transient("first"));
    queue.end(SourceError::transient("second"));
    assert_eq!(drain(&queue), [0, 1]);
    assert_eq!(&*queue.ended().unwrap().message, "first");
}

#[test]
fn a_decoder_that_was_long_to_make_begins_at_the_newest_key_frame() {
    let (queue, clock) = queue();
    push(&queue, "KIIKI");
    queue.catch_up();
    clock.advance(MAX_AGE_AT_START);
    queue.catch_up();
    assert_eq!(queue.take_loss(), None, "nothing is late yet");
    clock.advance(Duration::from_millis(1));
    queue.catch_up();
    assert_eq!(queue.take_loss(), Some((3, LossCause::Overload)));
    // The newest key frame stays, however late it is.
    queue.catch_up();
    assert_eq!(queue.take_loss(), None);
    assert_eq!(drain(&queue), [3, 4]);
}

#[test]
fn a_stream_without_a_further_key_frame_ends_the_wait_for_one() {
    let (queue, clock) = queue();
    push(&queue, "KI");
    clock.advance(MAX_AGE + Duration::from_millis(1));
    push(&queue, "III");
    let passed = Some(Instant::now());
    assert!(matches!(queue.take(1, passed, || false, None), Taken::TimedOut));
    assert_eq!(queue.take_loss(), Some((5, LossCause::Overload)));
    // The available units are late, but they are kept.
    push(&queue, "K");
    assert!(matches!(queue.take(1, passed, || false, None), Taken::Unit(_)));
}

#[test]
fn a_unit_for_another_decoder_comes_first_again_or_the_next_key_frame_does() {
    let (queue, _) = queue();
    push(&queue, "KIIKI");
    let next = || match queue.take(1, None, || false, None) {
        Taken::Unit(unit) => unit,
        other => panic!("{other:?}"),
    };
    let key = next();
    queue.put_back(key);
    assert_eq!((next().presentation, queue.take_loss()), (0, None));
    let inter = next();
    queue.put_back(inter);
    assert_eq!(queue.take_loss(), Some((2, LossCause::Overload)));
    assert_eq!((next().presentation, next().presentation), (3, 4));
    // No key frame precedes it: units before a key frame are dropped.
    queue.put_back(unit(Access::Inter, 4));
    push(&queue, "IK");
    assert_eq!(queue.take_loss(), Some((2, LossCause::Overload)));
    assert_eq!(drain(&queue), [1]);
}

#[test]
fn what_a_decoder_took_in_vain_comes_first_again_or_its_newest_key_frame_does_if_that_took_long() {
    let (queue, clock) = queue();
    push(&queue, "KIK");
    let mut taken = Vec::new();
    while let Taken::Unit(unit) = queue.take(1, Some(Instant::now()), || false, None) {
        taken.push(unit);
    }
    push(&queue, "I");
    queue.put_back_all(taken.clone());
    assert_eq!((queue.take_loss(), drain(&queue)), (None, vec![0, 1, 2, 0]));
    clock.advance(MAX_AGE_AT_START + Duration::from_millis(1));
    queue.put_back_all(taken);
    assert_eq!((queue.take_loss(), drain(&queue)), (Some((2, LossCause::Overload)), vec![2]));
}

#[test]
fn the_description_comes_before_all_units_which_wait_for_a_decoder() {
    let (queue, _) = queue();
    let (stop, description) = (Stop::new().unwrap(), Description { codec: Codec::H264, sets: vec![1, 2] });
    queue.describe(description.clone());
    assert!(matches!(queue.first(&stop, Instant::now(), None), First::Description(seen) if seen == description));
    assert!(matches!(queue.first(&stop, Instant::now(), None), First::TimedOut), "it comes once");
    assert!(!queue.accepts_units());
    queue.accept_units();
    assert!(queue.accepts_units());
}

/// A unit that follows a loss.
fn behind_loss(access: Access, n: i64) -> AccessUnit {
    AccessUnit { follows_loss: true, ..unit(access, n) }
}

/// Takes all units, each with its number and what becomes of its frame.
fn fates(queue: &UnitQueue) -> Vec<(i64, Fate)> {
    queue.end(SourceError::transient("over"));
    let (mut generation, mut out) = (1, Vec::new());
    loop {
        match queue.take(generation, None, || false, None) {
            Taken::Unit(unit) => out.push((unit.presentation, unit.fate)),
            Taken::OtherParameters => generation += 1,
            _ => return out,
        }
    }
}

#[test]
fn after_a_loss_nothing_comes_until_the_next_key_frame_and_that_is_counted_as_damage() {
    let (queue, _) = queue();
    push(&queue, "KI");
    queue.count_corrupt(1);
    queue.push(behind_loss(Access::Inter, 3));
    assert!(queue.awaits_entry());
    for (access, n) in [(Access::Inter, 4), (Access::Key, 5), (Access::Leading, 6), (Access::Inter, 7)] {
        queue.push(unit(access, n));
    }
    assert!(!queue.awaits_entry());
    assert_eq!(queue.take_loss(), Some((4, LossCause::Corrupt)), "the lost one, two behind it and the leading one");
    // A key frame needs no earlier unit.
    queue.push(behind_loss(Access::Key, 8));
    queue.push(unit(Access::Inter, 9));
    assert_eq!(queue.take_loss(), None);
    assert_eq!(drain(&queue), [0, 1, 5, 7, 8, 9]);
}

#[test]
fn a_loss_is_marked_if_wanted_but_not_an_overload() {
    let (queue, clock) = queue_of(DamagedFrames::Mark);
    push(&queue, "KI");
    queue.push(behind_loss(Access::Inter, 2));
    queue.push(unit(Access::Inter, 3));
    for (access, n) in [(Access::Key, 4), (Access::Leading, 5), (Access::Inter, 6)] {
        queue.push(unit(access, n));
    }
    assert_eq!(queue.take_loss(), Some((1, LossCause::Corrupt)), "no decoder can make sense of the leading one");
    queue.push(behind_loss(Access::Inter, 7));
    assert_eq!(queue.take_loss(), None);
    clock.advance(MAX_AGE + Duration::from_millis(1));
    queue.push(unit(Access::Inter, 8));
    assert_eq!(queue.take_loss(), Some((4, LossCause::Overload)));
    assert_eq!(
        fates(&queue),
        [4, 6, 7, 8].map(|n| (n, if n > 6 { Fate::PublishedAsDamaged } else { Fate::Published }))
    );
}

#[test]
fn what_an_overload_skips_after_a_loss_is_overload() {
    let (queue, clock) = queue();
    push(&queue, "KI");
    clock.advance(MAX_AGE + Duration::from_millis(1));
    queue.push(unit(Access::Inter, 2));
    queue.push(behind_loss(Access::Inter, 3));
    assert_eq!((queue.take_loss(), queue.take_loss()), (Some((4, LossCause::Overload)), None));
}

#[test]
fn a_gradual_refresh_is_decoded_by_a_new_decoder_and_published_once_it_is_over() {
    let point = Access::Recovery(RecoveryPoint { distance: 1, is_broken_link: false });
    let numbered = |access, n: i64| {
        let position = Some(Position { number: Some((n as u32, 16)), order: None, is_reference: true });
        AccessUnit { position, ..unit(access, n) }
    };
    let stream = |queue: &UnitQueue| {
        queue.push(numbered(Access::Inter, 0));
        (1..6).for_each(|n| queue.push(numbered(if n == 1 { point } else { Access::Inter }, n)));
        queue.push(AccessUnit { follows_loss: true, ..numbered(Access::Inter, 7) });
        (8..13).for_each(|n| queue.push(numbered(if n == 8 { point } else { Access::Inter }, n)));
    };
    use Fate::{Discarded, Published, PublishedAsDamaged, PublishedAsRecovering};
    let (queue, _) = queue();
    stream(&queue);
    assert_eq!(queue.take_loss(), Some((4, LossCause::Corrupt)), "and none of those before the first whole one");
    let expected = [(1, Discarded), (2, Discarded), (3, Discarded), (4, Published), (5, Published)];
    let later = [(8, Discarded), (9, Discarded), (10, Discarded), (11, Published), (12, Published)];
    assert_eq!(fates(&queue), [&expected[..], &later].concat());
    assert_eq!(queue.state.lock().restarts, 2);
    let (queue, _) = queue_of(DamagedFrames::Mark);
    stream(&queue);
    assert_eq!(queue.take_loss(), None);
    let later = [
        (7, PublishedAsDamaged),
        (8, PublishedAsRecovering),
        (9, PublishedAsRecovering),
        (10, PublishedAsRecovering),
        (11, Published),
        (12, Published),
    ];
    assert_eq!(fates(&queue), [&expected[..], &later].concat());
}
