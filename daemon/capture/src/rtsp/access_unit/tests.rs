#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use visiond_frames::clock::{self, simulated::SimulatedClock};
use visiond_system::testing::finishes;

use super::*;

const SPS: &[u8] = &[0x67, 1, 2, 3];
const PPS: &[u8] = &[0x68, 4];
const IDR: &[u8] = &[0x65, 0x88, 9];
const INTER: &[u8] = &[0x41, 0x9A, 8];

/// A packet: payload, timestamp, marker, and how many were lost before it.
type Packet<'p> = (&'p [u8], i64, bool, u16);

/// What comes of packets.
fn assemble(assembler: &mut Assembler, packets: &[Packet<'_>]) -> Vec<AccessUnit> {
    let now = clock::now(&SimulatedClock::default());
    let mut units = Vec::new();
    for &(payload, time, marker, lost) in packets {
        assembler.push(payload, (time, now), marker, lost, |unit| units.push(unit));
    }
    units
}

fn h264() -> Assembler {
    Assembler::new(Codec::H264, &[])
}

fn annex_b(nals: &[&[u8]]) -> Vec<u8> {
    nals.iter().flat_map(|nal| [&START_CODE, *nal].concat()).collect()
}

#[test]
fn single_units_aggregates_and_fragments_make_the_same_picture() {
    let aggregate = [&[0x78, 0, 4], SPS, &[0, 2], PPS].concat();
    let ways: [&[Packet<'_>]; 2] = [
        &[(SPS, 1, false, 0), (PPS, 1, false, 0), (IDR, 1, true, 0)],
        &[(&aggregate, 1, false, 0), (&[0x7C, 0x85, 0x88], 1, false, 0), (&[0x7C, 0x45, 9], 1, true, 0)],
    ];
    for packets in ways {
        // The packet after the first key frame shows that the marker bit has ended it.
        let units = assemble(&mut h264(), &[packets, &[(INTER, 2, false, 0)]].concat());
        assert_eq!(units.len(), 1);
        assert_eq!(*units[0].data, annex_b(&[SPS, PPS, IDR]));
        assert_eq!((units[0].access, units[0].generation), (Access::Key, 1));
    }
}

#[test]
fn empty_units_and_further_bytes_of_an_aggregate_are_passed_over_and_a_slice_that_is_cut_is_not() {
    let whole = [&[0x78, 0, 0, 0, 4], SPS, &[0, 2], PPS, &[0, 0]].concat();
    for (rest, pictures) in [
        (&[][..], 1),
        // Half a length.
        (&[0], 1),
        // A length of more than there is: of nothing, of a parameter set, and of a slice.
        (&[0, 9], 1),
        (&[0, 9, SPS[0], 0x42], 1),
        (&[0, 9, IDR[0], 0x88], 0),
    ] {
        let aggregate = [&whole, rest].concat();
        let packets: &[Packet<'_>] = &[(&aggregate, 1, false, 0), (IDR, 1, true, 0), (INTER, 2, false, 0)];
        let mut assembler = h264();
        let units = assemble(&mut assembler, packets);
        assert_eq!((units.len(), assembler.take_damaged()), (pictures, 1 - pictures as u64), "{rest:?}");
        assert!(units.iter().all(|unit| *unit.data == annex_b(&[SPS, PPS, IDR])));
    }
}

#[test]
fn h265_is_assembled_likewise() {
    let (vps, sps, pps): (&[u8], &[u8], &[u8]) = (&[0x40, 1, 7], &[0x42, 1, 8], &[0x44, 1, 9]);
    let aggregate = [&[0x60, 1, 0, 3], vps, &[0, 3], sps, &[0, 3], pps].concat();
    let packets: &[Packet<'_>] = &[
        (&aggregate, 1, false, 0),
        (&[0x62, 1, 0x80 | 19, 0x80, 5], 1, false, 0),
        (&[0x62, 1, 0x40 | 19, 6], 1, true, 0),
        (&[0x10, 1, 0x80], 2, true, 0),
        (&[0x02, 1, 0x80], 3, true, 0),
    ];
    let units = assemble(&mut Assembler::new(Codec::H265, &[]), packets);
    assert_eq!(*units[0].data, annex_b(&[vps, sps, pps, &[0x26, 1, 0x80, 5, 6]]));
    let access: Vec<_> = units.iter().map(|unit| unit.access).collect();
    assert_eq!(access, [Access::Key, Access::Leading, Access::Inter]);
    let radl = assemble(&mut Assembler::new(Codec::H265, &[]), &[(&[0x0C, 1, 0x80], 1, true, 0)]);
    assert_eq!(radl[0].access, Access::LeadingAlone);
}

#[test]
fn a_key_frame_without_parameter_sets_gets_those_of_the_description() {
    let units =
        assemble(&mut Assembler::new(Codec::H264, &annex_b(&[SPS, PPS])), &[(IDR, 1, true, 0), (INTER, 2, true, 0)]);
    assert_eq!(*units[0].data, annex_b(&[SPS, PPS, IDR]));
    assert_eq!(*units[1].data, annex_b(&[INTER]));
    assert_eq!(
        assemble(&mut h264(), &[(IDR, 1, true, 0), (INTER, 2, true, 0)])[0].access,
        Access::Inter,
        "no decoder can begin without any"
    );
}

#[test]
fn only_other_sequence_parameters_are_another_generation() {
    let mut assembler = Assembler::new(Codec::H264, &annex_b(&[SPS, PPS]));
    let sets: [&[u8]; 4] = [SPS, PPS, &[0x68, 5], &[0x67, 9]];
    let packets: Vec<_> = sets.iter().flat_map(|&set| [(set, 0, false, 0), (IDR, 0, true, 0)]).collect();
    let mut packets = packets;
    packets.iter_mut().enumerate().for_each(|(n, packet)| packet.1 = n as i64 / 2);
    let generations: Vec<_> = assemble(&mut assembler, &packets).iter().map(|unit| unit.generation).collect();
    assert_eq!(generations, [1, 1, 1, 2]);
}

#[test]
fn without_markers_the_timestamp_ends_a_unit() {
    let units =
        assemble(&mut h264(), &[(SPS, 0, false, 0), (IDR, 1, false, 0), (INTER, 2, false, 0), (INTER, 3, false, 0)]);
    assert_eq!(units.len(), 2);
    assert_eq!(*units[0].data, annex_b(&[SPS, IDR]), "parameter sets with a timestamp of their own");
}

#[test]
fn a_marker_on_every_slice_is_believed_once() {
    let second: &[u8] = &[0x41, 0x1A, 8];
    let mut assembler = h264();
    let picture = |time| [(INTER, time, true, 0), (second, time, true, 0)];
    let packets: Vec<_> = (0..4).flat_map(picture).collect();
    let units = assemble(&mut assembler, &packets);
    assert_eq!(assembler.take_damaged(), 1);
    assert!(units[1].follows_loss, "the first picture was given away without its rest");
    assert!(units[1..].iter().all(|unit| *unit.data == annex_b(&[INTER, second])), "{units:?}");
    assert_eq!(units.len(), 3, "the last one has not ended");
}

#[test]
fn a_lost_packet_costs_its_picture_and_no_other() {
    let start: &[u8] = &[0x7C, 0x81, 0x9A];
    let (middle, end): (&[u8], &[u8]) = (&[0x7C, 0x01, 1], &[0x7C, 0x41, 2]);
    for lossy in [
        [(start, 2, false, 0), (end, 2, true, 1)],
        [(middle, 2, false, 1), (end, 2, true, 0)],
        [(start, 2, false, 0), (INTER, 3, true, 1)],
    ] {
        let mut assembler = h264();
        let units = assemble(&mut assembler, &[&[(INTER, 1, true, 0)], &lossy[..], &[(INTER, 4, true, 0)]].concat());
        assert_eq!(assembler.take_damaged(), 1, "{lossy:?}");
        let times: Vec<_> = units.iter().map(|unit| unit.presentation).filter(|time| *time != 3).collect();
        assert_eq!(times, [1, 4], "{lossy:?}");
        assert!(units[1].follows_loss, "{lossy:?}: the next one may refer to it");
    }
}

#[test]
fn lengths_that_lie_are_damage() {
    for payload in [&[0x78, 0xFF, 0xFF, 0x67][..], &[0x78, 0], &[0x7C], &[0x7C, 0x05, 1], &[0x1D, 1]] {
        let mut assembler = h264();
        let units = assemble(&mut assembler, &[(payload, 1, false, 0), (IDR, 1, true, 0), (INTER, 2, true, 0)]);
        assert_eq!((units.len(), assembler.take_damaged()), (1, 1), "{payload:?}");
    }
}

#[test]
fn a_unit_that_seems_over_again_and_again_is_given_up() {
    let mut assembler = h264();
    let mut packets = vec![(&[0x06, 1][..], 1, true, 0); 1 + MOST_LOOKS as usize];
    packets.extend([(IDR, 1, true, 0), (INTER, 2, false, 0)]);
    assert_eq!((assemble(&mut assembler, &packets).len(), assembler.take_damaged()), (1, 1));
}

#[test]
fn a_unit_without_end_is_given_up() {
    let mut assembler = h264();
    let piece = [&[0x7C, 0x05][..], &[1; 60_000]].concat();
    let packets: Vec<_> = std::iter::once((&[0x7C, 0x85, 0x88][..], 1, false, 0))
        .chain((0..600).map(|_| (&piece[..], 1, false, 0)))
        .collect();
    assert_eq!(assemble(&mut assembler, &packets).len(), 0);
    assert!((MAX_UNIT_BYTES / 2..=MAX_UNIT_BYTES).contains(&assembler.unit.len()), "{}", assembler.unit.len());
    let units = assemble(&mut assembler, &[(INTER, 2, true, 0)]);
    assert_eq!((units.len(), assembler.take_damaged()), (1, 1));
    assert!(assembler.unit.capacity() < 1000, "{}", assembler.unit.capacity());
}

#[test]
fn a_picture_with_a_million_parameter_sets_costs_no_time() {
    let mut sets = Vec::new();
    for number in 0..1_000_000_u32 {
        put(&mut sets, &[&[0x67][..], &number.to_be_bytes(), &[1]].concat());
    }
    let mut picture = annex_b(&[IDR]);
    picture.extend(sets);
    // As one NAL unit, which is split again: some cameras send several as one.
    let units = finishes("the unit", move || {
        assemble(
            &mut Assembler::new(Codec::H264, &annex_b(&[SPS, PPS])),
            &[(&picture[4..], 1, true, 0), (INTER, 2, true, 0)],
        )
    });
    assert_eq!(units.len(), 2);
}

#[test]
fn start_codes_are_found_wherever_they_are() {
    for zeros in 2..6 {
        for before in 0..7 {
            let unit = [vec![9; before], vec![0; zeros], vec![1, 7, 7]].concat();
            assert_eq!(nals(&unit).collect::<Vec<_>>(), [[7, 7]], "{unit:?}");
        }
    }
    assert_eq!(nals(&annex_b(&[SPS, &[], PPS])).collect::<Vec<_>>(), [SPS, &[], PPS]);
    assert_eq!(nals(&[0, 0, 2, 1, 0]).count(), 0);
}

#[test]
fn slices_with_markers_or_timestamps_of_their_own_are_one_picture_from_the_first_on() {
    let (second, inter_second): (&[u8], &[u8]) = (&[0x65, 0x1A, 8], &[0x41, 0x1A, 8]);
    // The second slice of each frame comes in fragments.
    let fragments: [[&[u8]; 2]; 2] = [[&[0x7C, 0x85, 0x1A], &[0x7C, 0x45, 8]], [&[0x5C, 0x81, 0x1A], &[0x5C, 0x41, 8]]];
    let mut marked = Vec::new();
    for time in 1..4 {
        let [start, end] = fragments[usize::from(time > 1)];
        marked.extend([
            (if time == 1 { IDR } else { INTER }, time, true, 0),
            (start, time, false, 0),
            (end, time, true, 0),
        ]);
    }
    let mut timed = marked.clone();
    timed.iter_mut().enumerate().for_each(|(n, packet)| packet.1 = packet.1 * 90 + i64::from(n % 3 > 0));
    let mut each = marked.clone();
    each.iter_mut().enumerate().for_each(|(n, packet)| packet.1 = packet.1 * 90 + n as i64 % 3);
    for packets in [marked, timed, each] {
        let mut assembler = Assembler::new(Codec::H264, &annex_b(&[SPS, PPS]));
        let units = assemble(&mut assembler, &packets);
        assert_eq!((units.len(), assembler.take_damaged()), (2, 0), "the last one has not ended");
        assert_eq!(*units[0].data, annex_b(&[SPS, PPS, IDR, second]));
        assert_eq!(*units[1].data, annex_b(&[INTER, inter_second]));
        assert!(!units[1].follows_loss);
    }
}

#[test]
fn the_first_key_frame_is_dropped_if_other_slices_of_it_may_be_lost() {
    let mut assembler = Assembler::new(Codec::H264, &annex_b(&[SPS, PPS]));
    let units = assemble(&mut assembler, &[(IDR, 1, true, 0), (INTER, 2, true, 1), (INTER, 3, true, 0)]);
    assert_eq!(assembler.take_damaged(), 1);
    assert!(units.iter().all(|unit| unit.access == Access::Inter) && units[0].follows_loss, "{units:?}");
}

#[test]
fn sets_with_a_timestamp_and_a_marker_of_their_own_belong_to_their_key_frame() {
    let packets = [(SPS, 8, true, 0), (PPS, 8, true, 0), (IDR, 9, true, 0), (INTER, 18, true, 0)];
    let units = assemble(&mut h264(), &packets);
    assert_eq!(*units[0].data, annex_b(&[SPS, PPS, IDR]));
    assert_eq!((units.len(), units[0].presentation), (2, 9));
}

#[test]
fn pictures_that_share_a_timestamp_are_told_apart_by_the_marker() {
    let mut assembler = Assembler::new(Codec::H264, &annex_b(&[SPS, PPS]));
    let mut packets = vec![(IDR, 0, true, 0)];
    packets.extend([(INTER, 0, true, 0); 3]);
    // The packet with the marker bit is lost.
    packets.extend([(&[0x7C, 0x81, 0x9A][..], 0, false, 0), (INTER, 0, true, 1), (INTER, 0, true, 0)]);
    let units = assemble(&mut assembler, &packets);
    assert_eq!((units.len(), assembler.take_damaged()), (6, 1));
    let presentations: Vec<_> = units.iter().map(|unit| unit.presentation).collect();
    assert_eq!(presentations, [0, 1, 2, 3, 4, 5], "in the order of decoding");
    let losses: Vec<_> = units.iter().map(|unit| unit.follows_loss).collect();
    assert_eq!(losses, [false, false, false, false, true, false]);
}

#[test]
fn start_codes_in_payloads_and_empty_payloads_do_no_harm() {
    let led = |nal: &[u8]| [&START_CODE, nal].concat();
    let joined = [SPS, &START_CODE, PPS, &START_CODE, IDR].concat();
    let (sps, pps, idr) = (led(SPS), led(PPS), led(IDR));
    let ways: [&[Packet<'_>]; 2] = [
        &[(&sps, 1, false, 0), (&[], 1, false, 0), (&pps, 1, false, 0), (&idr, 1, true, 0)],
        &[(&joined, 1, true, 0), (&[], 7, true, 0)],
    ];
    for packets in ways {
        let mut assembler = h264();
        let units = assemble(&mut assembler, &[packets, &[(INTER, 2, true, 0)]].concat());
        assert_eq!((units.len(), assembler.take_damaged()), (2, 0), "{packets:?}");
        assert_eq!(*units[0].data, annex_b(&[SPS, PPS, IDR]));
        assert_eq!(units[0].access, Access::Key);
    }
}

#[test]
fn fragments_may_have_both_ends_in_one_packet_or_be_ended_by_the_marker() {
    let both = [
        (&[0x7C, 0xC7, 1, 2, 3][..], 1, false, 0),
        (&[0x7C, 0xC8, 4], 1, false, 0),
        (&[0x7C, 0xC5, 0x88, 9], 1, true, 0),
    ];
    let mut assembler = h264();
    let units = assemble(&mut assembler, &[&both[..], &[(INTER, 2, true, 0)]].concat());
    assert_eq!((units[0].data.to_vec(), assembler.take_damaged()), (annex_b(&[SPS, PPS, IDR]), 0));
    // No piece has the bit that ends a fragment.
    let (start, rest): (&[u8], &[u8]) = (&[0x7C, 0x81, 0x9A], &[0x7C, 0x01, 8]);
    let packets: Vec<_> = (3..6).flat_map(|n| [(start, n, false, 0), (rest, n, true, 0)]).collect();
    let units = assemble(&mut assembler, &packets);
    assert_eq!((units.len(), assembler.take_damaged()), (3, 0), "only the first waits for the packet behind it");
    assert!(units.iter().all(|unit| *unit.data == annex_b(&[&[0x61, 0x9A, 8]])), "{units:?}");
    // And each has the marker bit.
    let mut assembler = Assembler::new(Codec::H264, &annex_b(&[SPS, PPS]));
    let end: &[u8] = &[0x7C, 0x41, 8];
    let packets: Vec<_> = (3..6).flat_map(|n| [(start, n, true, 0), (rest, n, true, 0), (end, n, true, 0)]).collect();
    let units = assemble(&mut assembler, &packets);
    assert_eq!((units.len(), assembler.take_damaged()), (3, 0));
    // H.265.
    let mut assembler = Assembler::new(Codec::H265, &[]);
    let (start, rest): (&[u8], &[u8]) = (&[0x62, 1, 0x81, 0x80], &[0x62, 1, 1, 6]);
    let packets: Vec<_> = (3..6).flat_map(|n| [(start, n, false, 0), (rest, n, true, 0)]).collect();
    assert_eq!((assemble(&mut assembler, &packets).len(), assembler.take_damaged()), (3, 0));
}

#[test]
fn what_no_picture_can_be_made_of_has_a_reason() {
    for kind in [25, 26, 27, 29] {
        let mut assembler = h264();
        assemble(&mut assembler, &[(&[kind, 0, 0, 1], 1, true, 0)]);
        assert_eq!((assembler.take_damaged(), assembler.reason()), (1, Some(INTERLEAVED)));
    }
    let mut assembler = h264();
    let start: &[u8] = &[0x7C, 0x81, 0x9A];
    assemble(&mut assembler, &[(start, 1, false, 0), (start, 2, false, 0)]);
    assert_eq!((assembler.take_damaged(), assembler.reason()), (1, Some(ENDLESS_FRAGMENTS)));
    assemble(&mut assembler, &[(&[0x7C, 0x41, 8], 2, true, 0)]);
    assert_eq!(assembler.reason(), None, "a whole picture came");
}

/// Packs bits and the stop bit after a header.
fn pack(header: &[u8], bits: &str) -> Vec<u8> {
    let mut bits = format!("{bits}1");
    bits.extend(std::iter::repeat_n('0', bits.len().wrapping_neg() % 8));
    let bytes = bits.as_bytes().chunks(8).map(|byte| u8::from_str_radix(str::from_utf8(byte).unwrap(), 2).unwrap());
    header.iter().copied().chain(bytes).collect()
}

/// Parameters with frame numbers and order counts of four bits; the second leaves out frame numbers.
const COUNTED: &[u8] = &[0x67, 0x42, 0x00, 0x1E, 0xF2, 0x82, 0x83, 0xF2];
const GAPS: &[u8] = &[0x67, 0x42, 0x00, 0x1E, 0xF2, 0xC2, 0x83, 0xF2];

/// The first slice of a frame with this frame number.
fn numbered(header: u8, number: u32) -> Vec<u8> {
    // The first macroblock, a P slice, the picture set; and the number of a key frame.
    let key = if header & 0x1F == 5 { "1" } else { "" };
    pack(&[header], &format!("1001101{:04b}{key}0000", number % 16))
}

/// Plays a key frame and twelve reference frames, then frames with these numbers, each after this many lost packets. Returns
/// whether each follows a loss.
fn losses(sps: &[u8], pictures: &[(u8, u32, u16)]) -> Vec<bool> {
    let mut assembler = Assembler::new(Codec::H264, &annex_b(&[sps, PPS]));
    let begin = (0..13).map(|number| (numbered(if number == 0 { 0x65 } else { 0x41 }, number), 0));
    let packets: Vec<_> =
        begin.chain(pictures.iter().map(|&(header, number, lost)| (numbered(header, number), lost))).collect();
    let packets: Vec<_> =
        packets.iter().enumerate().map(|(n, (payload, lost))| (&payload[..], n as i64, true, *lost)).collect();
    let units = assemble(&mut assembler, &packets);
    units[13..].iter().map(|unit| unit.follows_loss).collect()
}

#[test]
fn frame_numbers_show_whether_a_reference_picture_is_among_the_lost() {
    let (reference, other, key) = (0x41, 0x01, 0x65);
    assert_eq!(losses(COUNTED, &[(other, 13, 0), (reference, 13, 0), (reference, 14, 0)]), [false; 3]);
    // Frames that no other frame refers to.
    assert_eq!(losses(COUNTED, &[(reference, 13, 3), (reference, 14, 0)]), [false; 2]);
    assert_eq!(losses(GAPS, &[(reference, 13, 3)]), [true], "here the numbers prove nothing");
    // A reference frame.
    assert_eq!(losses(COUNTED, &[(reference, 14, 1), (reference, 15, 0)]), [true, false]);
    // Sixteen, after which the number is the same; or a key frame and as many as it counts.
    assert_eq!(losses(COUNTED, &[(reference, 13, 16)]), [true]);
    assert_eq!(losses(COUNTED, &[(key, 0, 0), (reference, 1, 1)]), [false, true]);
    // Lost in the camera.
    assert_eq!(losses(COUNTED, &[(reference, 15, 0)]), [true]);
    assert_eq!(losses(GAPS, &[(reference, 15, 0)]), [false]);
    // Nonsense is believed once.
    assert_eq!(losses(COUNTED, &[(reference, 3, 0), (reference, 9, 0), (reference, 2, 0)]), [true, false, false]);
}

#[test]
fn a_lost_slice_of_an_unreferenced_picture_costs_only_that() {
    let mut assembler = Assembler::new(Codec::H264, &annex_b(&[COUNTED, PPS]));
    let mut payloads: Vec<_> =
        (0..13).map(|number| (numbered(if number == 0 { 0x65 } else { 0x41 }, number), 0)).collect();
    payloads.extend([(numbered(0x01, 13), 0), (vec![0x01, 0x1A, 8], 1), (numbered(0x41, 13), 0)]);
    let times = (0..14).chain([13, 14]);
    let packets: Vec<_> =
        payloads.iter().zip(times).map(|((payload, lost), time)| (&payload[..], time, time != 13, *lost)).collect();
    let units = assemble(&mut assembler, &packets);
    assert_eq!((units.len(), assembler.take_damaged()), (14, 1));
    assert!(!units[13].follows_loss);
}

#[test]
fn supplemental_information_makes_a_recovery_point() {
    // Six frames later, exact, not cut; after another message.
    let point = pack(&[0x06, 5, 1, 0x55, 6, 1], "0011110");
    let packets: [Packet<'_>; 3] = [(&point, 1, false, 0), (INTER, 1, true, 0), (INTER, 2, true, 0)];
    let units = assemble(&mut Assembler::new(Codec::H264, &annex_b(&[SPS, PPS])), &packets);
    let expected = RecoveryPoint { distance: 6, is_broken_link: false };
    assert_eq!(units[0].access, Access::Recovery(expected));
    assert_eq!(*units[0].data, annex_b(&[SPS, PPS, &point, INTER]), "a decoder may begin here");
    assert_eq!(assemble(&mut h264(), &packets)[0].access, Access::Inter, "without parameters none can");
}

proptest! {
    #[test]
    fn no_payload_makes_it_panic_or_grow(
        codec in prop_oneof![Just(Codec::H264), Just(Codec::H265)],
        packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), 0..4_i64, any::<bool>(), 0..2_u16), 0..40),
    ) {
        let mut assembler = Assembler::new(codec, &[]);
        let packets: Vec<_> = packets.iter().map(|(payload, time, marker, lost)| (&payload[..], *time, *marker, *lost)).collect();
        for unit in assemble(&mut assembler, &packets) {
            prop_assert!(unit.data.len() <= 44 * 40 * 2 + MAX_SETS_BYTES);
        }
    }
}

#[test]
fn decoding_begins_at_the_pictures_that_the_standards_call_random_access_points() {
    let access = |codec, nal: &[u8]| match Nal::of(codec, nal) {
        Nal::Slice { access, is_first: true } => Some(access),
        Nal::Slice { .. } => panic!("it begins a picture"),
        _ => None,
    };
    // H.264, table 7-1.
    let types: Vec<_> = (0..32).map(|kind| access(Codec::H264, &[kind | 0x60, 0x80])).collect();
    let mut expected = vec![None; 32];
    expected[1] = Some(Access::Inter);
    expected[2] = Some(Access::Inter);
    expected[5] = Some(Access::Key);
    assert_eq!(types, expected);
    // H.265, table 7-1: 8 and 9 are RASL, 6 and 7 RADL, 16 to 21 BLA, IDR and CRA; from 32 on there are no slices.
    let types: Vec<_> = (0..64).map(|kind| access(Codec::H265, &[kind << 1, 1, 0x80])).collect();
    let mut expected = [[Some(Access::Inter); 32], [None; 32]].concat();
    expected[6..8].fill(Some(Access::LeadingAlone));
    expected[8..10].fill(Some(Access::Leading));
    expected[16..22].fill(Some(Access::Key));
    assert_eq!(types, expected);
}
