use proptest::prelude::*;

use super::*;

/// A packet as it is sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    sequence: u16,
    timestamp: u32,
    ssrc: u32,
    kind: u8,
    marker: bool,
}

impl Sent {
    fn new(sequence: u16, timestamp: u32) -> Self {
        Self { sequence, timestamp, ssrc: 7, kind: 96, marker: true }
    }

    /// Its payload is its number.
    fn bytes(self) -> Vec<u8> {
        let Self { sequence, timestamp, ssrc, kind, marker } = self;
        let sequence = sequence.to_be_bytes();
        let head = [0x80, kind | u8::from(marker) << 7, sequence[0], sequence[1]];
        [&head[..], &timestamp.to_be_bytes(), &ssrc.to_be_bytes(), &sequence].concat()
    }
}

/// An output packet: the number, `lost`, and the timestamp.
type Given = (u16, u16, i64);

struct Stream {
    order: Order,
    now: Instant,
    given: Vec<Given>,
}

impl Stream {
    fn new(delivery: Delivery) -> Self {
        Self { order: Order::new(delivery, 96, 90_000), now: Instant::now(), given: Vec::new() }
    }

    fn push(&mut self, sent: Sent) {
        let given = &mut self.given;
        self.order.push(&sent.bytes(), self.now, |packet| given.push(of(&packet)));
    }

    fn tick(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        let given = &mut self.given;
        self.order.tick(self.now, |packet| given.push(of(&packet)));
    }

    fn numbers(&self) -> Vec<u16> {
        self.given.iter().map(|given| given.0).collect()
    }
}

fn of(packet: &RtpPacket<'_>) -> Given {
    let number = packet.payload.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes));
    (number, packet.lost, packet.timestamp)
}

/// Plays packets that are `(number, timestamp)`, and returns the numbers that were given and the counts.
fn play(delivery: Delivery, packets: impl IntoIterator<Item = (u16, u32)>) -> (Vec<u16>, RtpCounts) {
    let mut stream = Stream::new(delivery);
    packets.into_iter().for_each(|(sequence, timestamp)| stream.push(Sent::new(sequence, timestamp)));
    stream.tick(1000);
    assert!(stream.order.due().is_none() && stream.order.held.is_empty() && stream.order.held_bytes == 0);
    (stream.numbers(), stream.order.counts)
}

#[test]
fn headers_have_everything_that_they_may() {
    let head = |flags: u8| [flags, 0xE0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7];
    for (flags, behind, extension, payload) in [
        (0x80, &b"abc"[..], None, Some(&b"abc"[..])),
        (0x80, b"", None, Some(b"")),
        // Padding of one byte, of four, as long as the packet, too long, and missing although the flag is set.
        (0xA0, b"ab\x01", None, Some(b"ab")),
        (0xA0, b"ab\0\0\0\x04", None, Some(b"ab")),
        (0xA0, b"\0\0\x03", None, Some(b"")),
        (0xA0, b"ab\x09", None, Some(b"ab\x09")),
        (0xA0, b"ab\0", None, Some(b"ab\0")),
        // Contributing sources.
        (0x82, b"11112222abc", None, Some(b"abc")),
        (0x8F, b"abc", None, None),
        // Extensions of one byte and two bytes an element, of ONVIF, and one that is not there.
        (0x90, b"\xbe\xde\0\x01\x10\xff\0\0abc", Some((0xBEDE, &b"\x10\xff\0\0"[..])), Some(b"abc")),
        (0x90, b"\x10\x00\0\0abc", Some((0x1000, b"")), Some(b"abc")),
        (0x91, b"1111\xab\xac\0\x0312345678abcdxyz", Some((0xABAC, b"12345678abcd")), Some(b"xyz")),
        (0xB0, b"\xab\xac\0\0xyz\x02", Some((0xABAC, b"")), Some(b"xy")),
        (0x90, b"\xab\xac\xff\xffabc", None, None),
        (0x90, b"\xab\xac", None, None),
        // Other versions.
        (0x00, b"abc", None, None),
        (0x40, b"abc", None, None),
        (0xC0, b"abc", None, None),
    ] {
        let packet = [&head(flags), behind].concat();
        let header = RtpHeader::parse(&packet);
        assert_eq!(header.is_some(), payload.is_some(), "{flags:x} {behind:?}");
        let mut order = Order::new(Delivery::Reliable, 96, 90_000);
        let mut given = Vec::new();
        order.push(&packet, Instant::now(), |packet| {
            given.push((packet.payload.to_vec(), packet.extension.map(|(profile, bytes)| (profile, bytes.to_vec()))));
        });
        match payload {
            Some(payload) => {
                let header = header.unwrap();
                assert_eq!(
                    (header.payload_type, header.marker, header.sequence, header.timestamp, header.ssrc),
                    (96, true, 5, 6, 7)
                );
                let expected = (payload.to_vec(), extension.map(|(profile, bytes)| (profile, bytes.to_vec())));
                assert_eq!(given, if payload.is_empty() { vec![] } else { vec![expected] }, "{flags:x} {behind:?}");
            }
            None => assert_eq!((given.len(), order.counts.foreign), (0, 1), "{flags:x} {behind:?}"),
        }
    }
    for length in 0..12 {
        assert_eq!(RtpHeader::parse(&head(0x80)[..length]), None);
    }
}

/// Numbers of packets, of which each is a frame of its own; those that are repeated are the same packet again.
#[test]
fn packets_of_a_connection_come_in_order_and_once() {
    let time = |n: u16| (n, u32::from(n) * 3000);
    for (sent, given, late) in [
        (&[1, 2, 3, 4][..], &[1, 2, 3, 4][..], 0),
        (&[1, 3, 2, 4], &[1, 2, 3, 4], 0),
        (&[1, 4, 3, 2, 5], &[1, 2, 3, 4, 5], 0),
        (&[1, 3, 4, 2, 5], &[1, 2, 3, 4, 5], 0),
        (&[1, 1, 2, 2, 3, 3], &[1, 2, 3], 3),
        (&[1, 2, 3, 1, 2, 3, 4], &[1, 2, 3, 4], 3),
        (&[1, 3, 3, 2, 2, 4], &[1, 2, 3, 4], 2),
        (&[1, 2, 5, 6], &[1, 2, 5, 6], 0),
    ] {
        for delivery in [Delivery::Reliable, Delivery::Lossy] {
            let (numbers, counts) = play(delivery, sent.iter().map(|&n| time(n)));
            assert_eq!(numbers, given, "{sent:?}");
            assert_eq!((counts.late, counts.restarts), (late, 0), "{sent:?}");
        }
    }
    let wrapped = [65533, 65535, 65534, 0, 2, 1, 65535, 3];
    let (numbers, counts) = play(Delivery::Reliable, wrapped.map(|n: u16| (n, u32::from(n.wrapping_add(10)) * 3000)));
    assert_eq!(numbers, [65533, 65534, 65535, 0, 1, 2, 3]);
    assert_eq!((counts.lost, counts.late, counts.restarts), (0, 1, 0));
}

#[test]
fn packets_that_come_twice_are_no_new_count_though_pictures_are_not_sent_as_they_are_shown() {
    // I P B B P B B, a packet each.
    let pictures = [(10, 0), (11, 9000), (12, 3000), (13, 6000), (14, 18_000), (15, 12_000), (16, 15_000)];
    for distance in 1..4 {
        let mut sent = pictures.to_vec();
        for at in (0..pictures.len()).rev() {
            sent.insert((at + distance).min(sent.len()), pictures[at]);
        }
        let (numbers, counts) = play(Delivery::Reliable, sent);
        assert_eq!(numbers, [10, 11, 12, 13, 14, 15, 16], "{distance}");
        assert_eq!((counts.late, counts.restarts), (7, 0), "{distance}");
    }
}

/// A new count, at a lower number, goes on at once and without a loss. One that is ahead is a loss.
#[test]
fn cameras_may_count_anew() {
    for (before, after) in
        [(500, 0), (20, 0), (65_400, 0), (100, 99), (100, 20), (100, 40_000), (60_000, 500), (300, 44), (1, 65_000)]
    {
        let mut stream = Stream::new(Delivery::Reliable);
        let numbers = (0..15).map(|n| (before - 14 + n) % 65_536).chain((0..15).map(|n| (after + n) % 65_536));
        let numbers: Vec<u16> = numbers.map(|n: i32| u16::try_from(n.rem_euclid(65_536)).unwrap()).collect();
        for (at, number) in (0..).zip(&numbers) {
            stream.push(Sent::new(*number, at * 3000));
        }
        let (restarts, is_jump) = (stream.order.counts.restarts, (after - before).rem_euclid(65_536) <= 3000);
        stream.tick(100);
        assert_eq!(stream.numbers(), numbers, "{before} {after}");
        assert!(is_jump || restarts == 1, "{before} {after}: {restarts}");
        let lost: u64 = stream.given.iter().map(|given| u64::from(given.1)).sum();
        assert_eq!(lost, stream.order.counts.lost, "{before} {after}");
        assert!(lost == 0 || is_jump, "{before} {after}: {lost}");
    }
}

#[test]
fn a_new_count_in_the_middle_of_a_picture_says_that_it_is_cut() {
    let cut = |markers: bool, next: u32| {
        let mut stream = Stream::new(Delivery::Reliable);
        for (sequence, timestamp, marker) in [(1000, 0, true), (1001, 3000, false), (0, next, true)] {
            stream.push(Sent { marker: marker && markers, ..Sent::new(sequence, timestamp) });
        }
        stream.given[2].1
    };
    assert_eq!((cut(true, 6000), cut(false, 6000)), (1, 0), "a camera that marks no end may end anywhere");
    assert_eq!(cut(true, 3000), 0, "the picture goes on");
    let mut stream = Stream::new(Delivery::Reliable);
    stream.push(Sent::new(1000, 0));
    stream.push(Sent { marker: false, ..Sent::new(1001, 3000) });
    stream.push(Sent { ssrc: 8, ..Sent::new(0, 6000) });
    assert_eq!(stream.given[2].1, 1);
}

#[test]
fn each_group_of_pictures_may_have_its_ssrc() {
    for delivery in [Delivery::Reliable, Delivery::Lossy] {
        for (next, lost) in [(5, 0), (0, 0), (40_000, 0), (3, 0), (7, 2)] {
            let mut stream = Stream::new(delivery);
            (0..5).for_each(|n| stream.push(Sent::new(n, u32::from(n) * 3000)));
            (0..5).for_each(|n| stream.push(Sent { ssrc: 8, ..Sent::new(next + n, u32::from(5 + n) * 3000) }));
            stream.tick(100);
            let numbers: Vec<_> = (0..5).chain(next..next + 5).collect();
            assert_eq!(stream.numbers(), numbers, "{delivery:?} {next}");
            assert_eq!((stream.order.counts.lost, stream.order.counts.restarts), (lost, 1), "{delivery:?} {next}");
            // With datagrams, the losses before a new count are unknown.
            let is_unknown = delivery == Delivery::Lossy && !(5..8).contains(&next);
            assert_eq!(stream.given[5].1, u16::try_from(lost).unwrap() + u16::from(is_unknown), "{delivery:?} {next}");
            assert_eq!(stream.order.last(), Some((8, next + 4)));
        }
    }
}

#[test]
fn one_datagram_with_an_unlikely_number_changes_nothing_and_two_in_turn_do() {
    let mut stream = Stream::new(Delivery::Lossy);
    for (sequence, timestamp) in
        [(10, 0), (40_000, 3000), (11, 3000), (12, 6000), (50_000, 9000), (50_001, 12_000), (50_002, 15_000)]
    {
        stream.push(Sent::new(sequence, timestamp));
    }
    assert_eq!(
        stream.given.iter().map(|given| (given.0, given.1)).collect::<Vec<_>>(),
        [(10, 0), (11, 0), (12, 0), (50_000, 1), (50_001, 0), (50_002, 0)]
    );
    assert_eq!((stream.order.counts.late, stream.order.counts.restarts), (1, 1));
    // A new count among recent numbers.
    let mut stream = Stream::new(Delivery::Lossy);
    (0..100).for_each(|n| stream.push(Sent::new(n, u32::from(n) * 3000)));
    (0..100).for_each(|n| stream.push(Sent::new(n, u32::from(100 + n) * 3000)));
    assert_eq!(stream.numbers(), (0..100).chain(0..100).collect::<Vec<_>>());
    assert_eq!((stream.order.counts.late, stream.order.counts.restarts), (0, 1));
}

#[test]
fn a_packet_waits_for_those_before_it_for_a_while() {
    let mut stream = Stream::new(Delivery::Lossy);
    [1, 3].into_iter().for_each(|n| stream.push(Sent::new(n, 0)));
    stream.tick(59);
    assert_eq!(stream.numbers(), [1]);
    assert_eq!(stream.order.due(), Some(stream.now + Duration::from_millis(1)));
    [5, 6].into_iter().for_each(|n| stream.push(Sent::new(n, 0)));
    stream.tick(1);
    assert_eq!(stream.numbers(), [1, 3]);
    stream.push(Sent::new(2, 0));
    stream.tick(60);
    assert_eq!(stream.given, [(1, 0, 0), (3, 1, 0), (5, 1, 0), (6, 0, 0)]);
    assert_eq!((stream.order.counts.lost, stream.order.counts.late), (2, 1));
}

#[test]
fn few_packets_wait() {
    let mut stream = Stream::new(Delivery::Lossy);
    stream.push(Sent::new(0, 0));
    for n in 2..1000 {
        stream.push(Sent::new(n, 0));
        assert!(stream.order.held.len() <= MOST_HELD);
    }
    assert_eq!(stream.given.len(), 999);
    assert_eq!((stream.given[1].1, stream.order.counts.lost), (1, 1));
    let mut order = Order::new(Delivery::Lossy, 96, 90_000);
    for n in (0..200).map(|n| n * 2) {
        let packet = [Sent::new(n, 0).bytes(), vec![0; 60_000]].concat();
        order.push(&packet, Instant::now(), |_| {});
        assert!(order.held_bytes <= MOST_HELD_BYTES);
    }
}

#[test]
fn packets_of_other_types_are_foreign_unless_there_are_no_others() {
    for (kinds, given) in [
        (&[96, 50, 96][..], &[0, 2][..]),
        (&[105, 105, 105], &[0, 1, 2]),
        (&[105, 107, 105], &[0, 2]),
        (&[105, 96, 105], &[0, 1]),
        (&[72, 76, 0, 8, 26], &[]),
    ] {
        let mut stream = Stream::new(Delivery::Reliable);
        for (n, kind) in (0..).zip(kinds) {
            stream.push(Sent { kind: *kind, ..Sent::new(n, 0) });
        }
        stream.tick(100);
        assert_eq!(stream.numbers(), given, "{kinds:?}");
        assert_eq!(stream.order.counts.foreign, (kinds.len() - given.len()) as u64);
    }
}

#[test]
fn packets_without_a_payload_are_counted_and_not_given() {
    let mut order = Order::new(Delivery::Reliable, 96, 90_000);
    let mut given = Vec::new();
    for n in 0..3 {
        let mut packet = Sent::new(n, 0).bytes();
        packet.truncate(if n == 1 { 12 } else { 14 });
        order.push(&packet, Instant::now(), |packet| given.push((packet.lost, packet.payload.len())));
    }
    assert_eq!(given, [(0, 2), (0, 2)]);
}

#[test]
fn timestamps_go_on_through_wraps_and_jumps() {
    let second = 90_000;
    for (sent, extended) in [
        (&[0, 3000, 6000][..], &[0, 3000, 6000][..]),
        (&[0, 0, 0], &[0, 0, 0]),
        (&[u32::MAX - 999, 2000], &[4_294_966_296, 4_294_969_296]),
        (&[2000, u32::MAX - 999], &[2000, -1000]),
        // Frames that are shown before others.
        (&[0, 9000, 3000], &[0, 9000, 3000]),
        // A clock that is set back by a minute, or set to another time: a frame interval goes by.
        (&[60 * second, 0, 3000], &[5_400_000, 5_403_600, 5_406_600]),
        (&[0, 1 << 30, (1 << 30) + 3000], &[0, 3600, 6600]),
        (&[0, 1 << 31, 0], &[0, 3600, 7200]),
        // An hour without a frame.
        (&[0, 3600 * second], &[0, 324_000_000]),
    ] {
        let mut clock = Extension::new(90_000);
        let found: Vec<_> = sent.iter().map(|&timestamp| clock.extend(timestamp)).collect();
        assert_eq!(found, extended, "{sent:?}");
    }
    for rate_hz in [0, 1, u32::MAX] {
        let mut clock = Extension::new(rate_hz);
        [0, 5, u32::MAX, 1 << 31, 7].into_iter().for_each(|timestamp| _ = clock.extend(timestamp));
    }
}

#[test]
fn reports_have_the_time_of_the_packets_near_them() {
    let mut clock = Extension::new(90_000);
    assert_eq!(clock.near(u32::MAX - 99), 4_294_967_196);
    assert_eq!(clock.extend(100), 4_294_967_396, "the first packet comes behind the report");
    assert_eq!(clock.near(0), 4_294_967_296);
    assert_eq!(clock.near(u32::MAX), 4_294_967_295);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Packets that are moved by less than the window come in order, each once, though some come twice and some are lost.
    #[test]
    fn any_order_within_the_window_is_put_right(
        first in any::<u16>(),
        moved in prop::collection::vec((0..30_u16, 0..20_u8), 2..200),
        is_reliable in any::<bool>(),
    ) {
        let mut sent = Vec::new();
        for (n, (by, fate)) in (0..).zip(&moved) {
            // The first is there: with it the count begins.
            if n == 0 {
                sent.push((0, n));
            } else if *fate > 0 {
                sent.push((n + by, n));
            }
            if *fate == 19 {
                sent.push((n + by + 1, n));
            }
        }
        sent.sort_by_key(|(at, n)| (*n != 0, *at));
        let delivery = if is_reliable { Delivery::Reliable } else { Delivery::Lossy };
        let mut stream = Stream::new(delivery);
        for (_, n) in &sent {
            stream.push(Sent::new(first.wrapping_add(*n), u32::from(*n) * 3000));
        }
        stream.tick(100);
        let mut expected: Vec<u16> = sent.iter().map(|(_, n)| *n).collect();
        expected.sort_unstable();
        expected.dedup();
        let numbers: Vec<_> = stream.numbers().iter().map(|n| n.wrapping_sub(first)).collect();
        prop_assert_eq!(&numbers, &expected);
        let lost: u64 = stream.given.iter().map(|given| u64::from(given.1)).sum();
        let missing = u64::from(*expected.last().unwrap()) + 1 - expected.len() as u64;
        prop_assert_eq!((lost, stream.order.counts.lost), (missing, missing));
        prop_assert_eq!(stream.order.counts.late, (sent.len() - expected.len()) as u64);
        prop_assert!(stream.given.windows(2).all(|pair| pair[0].2 < pair[1].2));
    }

    #[test]
    fn any_packets_are_taken_without_a_panic(
        packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), any::<bool>(), 0..100_u64), 0..100),
        is_reliable in any::<bool>(),
    ) {
        let mut order = Order::new(if is_reliable { Delivery::Reliable } else { Delivery::Lossy }, 96, 90_000);
        let mut now = Instant::now();
        for (mut packet, is_stream, ms) in packets {
            if is_stream && packet.len() > 2 {
                packet[..2].copy_from_slice(&[0x80, 96]);
            }
            now += Duration::from_millis(ms);
            order.push(&packet, now, |_| {});
            order.tick(now, |_| {});
            prop_assert!(order.due().is_none_or(|due| due > now));
        }
    }
}

#[test]
fn numbers_that_say_nothing_are_looked_at_no_more() {
    // None, by two, one for each frame of three packets, and with swapped bytes.
    let numberings: [fn(u16) -> u16; 4] = [|_| 0, |n| n * 2, |n| n / 3, u16::swap_bytes];
    for (at, numbering) in numberings.into_iter().enumerate() {
        let mut stream = Stream::new(Delivery::Reliable);
        for n in 0..2000 {
            stream.push(Sent::new(numbering(n), u32::from(n / 3) * 3000));
            stream.tick(10);
        }
        let is_whole = |given: &[Given]| given.len() == 1000 && given.iter().all(|given| given.1 == 0);
        assert!(is_whole(&stream.given[stream.given.len().saturating_sub(1000)..]), "{at}");
        assert!(stream.given.len() > 1300, "{at}: {}", stream.given.len());
    }
    // Packets that come twice are not of these.
    let mut stream = Stream::new(Delivery::Reliable);
    (0..1000).for_each(|n| [n, n].map(|n| stream.push(Sent::new(n, u32::from(n) * 3000))).into_iter().collect());
    assert_eq!(stream.given.len(), 1000);
}

#[test]
fn a_leap_ahead_over_tcp_may_be_a_loss() {
    let mut stream = Stream::new(Delivery::Reliable);
    (0..3).for_each(|n| stream.push(Sent::new(n, u32::from(n) * 3000)));
    stream.push(Sent::new(5000, 300_000));
    assert_eq!(stream.given.last().map(|given| (given.0, given.1)), Some((5000, 1)));
}
