use std::sync::Arc;

use visiond_frames::clock::{self, simulated::SimulatedClock};

use super::super::access_unit::{Codec, Fate};
use super::*;

use super::Verdict::{Damaged, Recovering, Undecodable, Whole};

fn unit(access: Access, position: Option<Position>) -> AccessUnit {
    AccessUnit {
        codec: Codec::H264,
        data: Arc::default(),
        access,
        follows_loss: false,
        position,
        fate: Fate::Published,
        presentation: 0,
        captured: clock::now(&SimulatedClock::default()),
        generation: 1,
    }
}

/// A frame with this frame number and order count, both modulo 16.
fn at(number: u32, order: i64, is_reference: bool) -> Option<Position> {
    Some(Position { number: Some((number % 16, 16)), order: Some((order.rem_euclid(16) as u32, 16)), is_reference })
}

fn point(distance: i32) -> Access {
    Access::Recovery(RecoveryPoint { distance, is_broken_link: false })
}

fn judge(continuity: &mut Continuity, units: &[(Access, Option<Position>)]) -> Vec<Verdict> {
    units.iter().map(|&(access, position)| continuity.next(&unit(access, position)).0).collect()
}

#[test]
fn leading_pictures_of_a_key_frame_are_decodable_only_if_decoding_began_before() {
    let mut continuity = Continuity::default();
    let stream =
        [Access::Inter, Access::Key, Access::LeadingAlone, Access::Leading, Access::Inter].map(|access| (access, None));
    assert_eq!(judge(&mut continuity, &stream), [Damaged, Whole, Whole, Undecodable, Whole]);
    assert_eq!(judge(&mut continuity, &stream), [Whole; 5]);
    continuity.lose();
    assert_eq!(judge(&mut continuity, &stream), [Damaged, Whole, Whole, Undecodable, Whole]);
}

#[test]
fn pictures_that_are_shown_before_an_open_recovery_point_are_not_whole() {
    let mut continuity = Continuity::default();
    // I, and two B-frames in front of it, of which one is a reference; P and its own. The order counts pass 16.
    let stream = [
        (point(0), at(5, 12, true)),
        (Access::Inter, at(6, 11, true)),
        (Access::Inter, at(7, 10, false)),
        (Access::Inter, at(7, 18, true)),
        (Access::Inter, at(8, 14, false)),
    ];
    assert_eq!(continuity.next(&unit(stream[0].0, stream[0].1)), (Whole, true));
    assert_eq!(judge(&mut continuity, &stream[1..]), [Recovering, Recovering, Whole, Whole]);
    // The loss is over once enough frames have arrived that none can be shown earlier.
    let more: Vec<_> =
        (9..9 + u32::from(MOST_REORDERED)).map(|n| (Access::Inter, at(n, i64::from(n) * 2 + 2, true))).collect();
    assert!(judge(&mut continuity, &more).iter().all(|verdict| *verdict == Whole));
    assert!(matches!(continuity.0, State::Whole));
}

#[test]
fn a_gradual_refresh_is_over_at_the_reference_picture_that_it_names() {
    let mut continuity = Continuity::default();
    let stream = [
        (point(1), at(15, 0, true)),
        (Access::Inter, at(16, 2, true)),
        (Access::Inter, at(17, 8, true)),
        (Access::Inter, at(18, 4, false)),
        // It is shown before the last reference frame.
        (Access::Inter, at(18, 6, true)),
        (Access::Inter, at(19, 5, false)),
        (Access::Inter, at(19, 10, true)),
    ];
    let expected = [Recovering, Recovering, Recovering, Recovering, Whole, Recovering, Whole];
    assert_eq!(judge(&mut continuity, &stream), expected);
    // A loss in the middle starts the wait again.
    continuity.lose();
    assert_eq!(judge(&mut continuity, &stream[..2]), [Recovering; 2]);
    let lost = AccessUnit { follows_loss: true, ..unit(Access::Inter, at(18, 6, true)) };
    assert_eq!(continuity.next(&lost), (Damaged, false));
    assert_eq!(judge(&mut continuity, &stream), expected);
}

#[test]
fn a_recovery_point_counts_only_where_it_can_be_followed() {
    let mut continuity = Continuity::default();
    assert_eq!(continuity.next(&unit(point(0), None)), (Damaged, false), "its pictures have no numbers");
    assert_eq!(continuity.next(&unit(point(16), at(1, 0, true))), (Damaged, false), "farther than it can count");
    // H.265 counts in the order of output.
    let order = |order| Some(Position { number: None, order: Some((order, 256)), is_reference: true });
    assert_eq!(continuity.next(&unit(point(2), order(255))), (Recovering, true));
    let verdicts = judge(&mut continuity, &[0, 3, 4].map(|at| (Access::Inter, order(at))));
    assert_eq!(verdicts, [Recovering, Recovering, Whole]);
    assert_eq!(judge(&mut continuity, &[(Access::Inter, None)]), [Damaged]);
}

#[test]
fn a_stream_that_was_cut_goes_on_as_after_a_loss() {
    let mut continuity = Continuity::default();
    assert_eq!(judge(&mut continuity, &[(Access::Key, at(0, 0, true)), (point(0), at(1, 2, true))]), [Whole, Whole]);
    let cut = Access::Recovery(RecoveryPoint { distance: 0, is_broken_link: true });
    assert_eq!(continuity.next(&unit(cut, at(2, 8, true))), (Whole, true));
    assert_eq!(judge(&mut continuity, &[(Access::Inter, at(3, 6, false))]), [Recovering]);
}
