#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use visiond_flow::clock::{self, simulated::SimulatedClock};
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
        let units = assemble(&mut h264(), packets);
        assert_eq!(units.len(), 1);
        assert_eq!(units[0].data, annex_b(&[SPS, PPS, IDR]));
        assert_eq!((units[0].access, units[0].generation), (Access::Key, 1));
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
    assert_eq!(units[0].data, annex_b(&[vps, sps, pps, &[0x26, 1, 0x80, 5, 6]]));
    let access: Vec<_> = units.iter().map(|unit| unit.access).collect();
    assert_eq!(access, [Access::Key, Access::Leading, Access::Inter]);
}

#[test]
fn a_key_frame_without_parameter_sets_gets_those_of_the_description() {
    let units =
        assemble(&mut Assembler::new(Codec::H264, &annex_b(&[SPS, PPS])), &[(IDR, 1, true, 0), (INTER, 2, true, 0)]);
    assert_eq!(units[0].data, annex_b(&[SPS, PPS, IDR]));
    assert_eq!(units[1].data, annex_b(&[INTER]));
    assert_eq!(
        assemble(&mut h264(), &[(IDR, 1, true, 0)])[0].access,
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
    assert_eq!(units[0].data, annex_b(&[SPS, IDR]), "parameter sets with a timestamp of their own");
}

#[test]
fn a_marker_on_every_slice_is_believed_once() {
    let second: &[u8] = &[0x41, 0x1A, 8];
    let mut assembler = h264();
    let picture = |time| [(INTER, time, true, 0), (second, time, true, 0)];
    let packets: Vec<_> = (0..4).flat_map(picture).collect();
    let units = assemble(&mut assembler, &packets);
    assert_eq!(assembler.take_damaged(), 1);
    assert!(units[1..].iter().all(|unit| unit.data == annex_b(&[INTER, second])), "{units:?}");
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
    }
}

#[test]
fn lengths_that_lie_are_damage() {
    for payload in [&[0x78, 0xFF, 0xFF, 0x67][..], &[0x78, 0], &[0x7C], &[0x7C, 0x05, 1], &[0x1D, 1], &[]] {
        let mut assembler = h264();
        let units = assemble(&mut assembler, &[(payload, 1, false, 0), (IDR, 1, true, 0), (INTER, 2, true, 0)]);
        assert_eq!((units.len(), assembler.take_damaged()), (1, 1), "{payload:?}");
    }
}

#[test]
fn a_unit_that_seems_over_again_and_again_is_given_up() {
    let mut assembler = h264();
    let mut packets = vec![(&[0x06, 1][..], 1, true, 0); 1 + MOST_LOOKS as usize];
    packets.push((IDR, 1, true, 0));
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
        assemble(&mut Assembler::new(Codec::H264, &annex_b(&[SPS, PPS])), &[(&picture[4..], 1, true, 0)])
    });
    assert_eq!(units.len(), 1);
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
