//! RTP packets (RFC 3550 section 5): their headers, their order, and how many are missing.
//!
//! Over UDP, packets arrive late, twice, or not at all; over TCP, some cameras swap packets, repeat them, or restart their
//! count. An early packet waits for its predecessors for at most [`LONGEST_WAIT`], and only while few packets wait.

use std::ops::Range;
use std::time::{Duration, Instant};

/// How long an early packet waits for its predecessors. Datagrams on one network overtake each other by a few ms.
const LONGEST_WAIT: Duration = Duration::from_millis(60);

/// Over TCP, sequence numbers are ignored once the wrong ones outnumber the right ones by this many.
const MOST_DISORDER: u32 = 64;

/// The most packets that may wait, and their bytes.
const MOST_HELD: usize = 64;
const MOST_HELD_BYTES: usize = 512 << 10;

/// How far back a number may be to belong to a late or repeated packet.
const MOST_LATE: u16 = 256;

/// How many recent packets to remember, to distinguish a repeated packet from a restarted count.
const REMEMBERED: usize = 256;

/// How far ahead a number may be to belong to a later packet. RFC 3550 (A.1) uses 3000.
const MOST_AHEAD: u16 = 3000;

/// The header of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtpHeader {
    pub payload_type: u8,
    pub marker: bool,
    pub sequence: u16,
    pub timestamp: u32,
    pub ssrc: u32,
    /// Profile of the header extension, and the range of its bytes.
    extension: Option<(u16, Range<usize>)>,
    /// Where the payload is.
    payload: Range<usize>,
}

impl RtpHeader {
    /// Reads the header of a packet; `None` if this is not an RTP packet.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (&[flags, kind, s0, s1, t0, t1, t2, t3, r0, r1, r2, r3], _) = packet.split_first_chunk::<12>()?;
        if flags >> 6 != 2 {
            return None;
        }
        let mut at = 12 + usize::from(flags & 0x0F) * 4;
        let extension = if flags & 0x10 != 0 {
            let &[p0, p1, l0, l1] = packet.get(at..)?.first_chunk()?;
            let length = usize::from(u16::from_be_bytes([l0, l1])) * 4;
            at += 4 + length;
            Some((u16::from_be_bytes([p0, p1]), at - length..at))
        } else {
            None
        };
        let padding = if flags & 0x20 != 0 { usize::from(*packet.last()?) } else { 0 };
        // Padding longer than the packet means that the camera set the flag wrongly.
        let end = packet.len().checked_sub(padding).filter(|end| *end >= at).unwrap_or(packet.len());
        (at <= packet.len()).then_some(Self {
            payload_type: kind & 0x7F,
            marker: kind & 0x80 != 0,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([r0, r1, r2, r3]),
            extension,
            payload: at..end,
        })
    }
}

/// A packet, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpPacket<'a> {
    /// Whether the camera marks it as the last of an access unit.
    pub marker: bool,
    /// RTP's timestamp without wraps. After a jump of the camera's clock, it continues from the previous one.
    pub timestamp: i64,
    /// The minimum number of packets missing before it.
    pub lost: u16,
    /// Profile and bytes of the header extension.
    pub extension: Option<(u16, &'a [u8])>,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

/// What happened to a stream's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RtpCounts {
    /// Packets of the stream.
    pub received: u64,
    /// Packets that are missing.
    pub lost: u64,
    /// Repeated packets, and those that arrived after later ones were released.
    pub late: u64,
    /// The camera restarted its count, or changed its SSRC.
    pub restarts: u64,
    /// Packets that do not belong to the stream.
    pub foreign: u64,
}

/// Whether packets can be lost in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// TCP.
    Reliable,
    /// UDP.
    Lossy,
}

/// Puts the packets of one stream in order.
#[derive(Debug)]
pub struct Order {
    delivery: Delivery,
    payload_type: u8,
    /// Whether packets of the described type have arrived: then others are foreign.
    has_described_type: bool,
    /// The type that arrived instead of the described one.
    other_type: Option<u8>,
    /// Types that the session describes for something else, such as audio: they never replace this stream's type.
    foreign_types: Vec<u8>,
    ssrc: Option<u32>,
    /// The number that comes next; `None` before the first.
    next: Option<u16>,
    /// Early packets, in ascending order of their distance from `next`.
    held: Vec<Held>,
    held_bytes: usize,
    /// A packet with an unlikely number: two consecutive ones mean that the camera restarted its count.
    unlikely: Option<(RtpHeader, Vec<u8>)>,
    /// The number of packets that were repeated, late or after a gap, minus those in order.
    disorder: u32,
    /// Whether the camera marked the last released packet as the end of an access unit.
    is_between: bool,
    /// Whether the camera marks the ends of frames.
    has_markers: bool,
    /// Number and timestamp of the last packets, indexed by number.
    given: Vec<(u16, u32)>,
    clock: Extension,
    pub counts: RtpCounts,
}

#[derive(Debug)]
struct Held {
    header: RtpHeader,
    packet: Vec<u8>,
    since: Instant,
}

impl Order {
    pub fn new(delivery: Delivery, payload_type: u8, rate_hz: u32) -> Self {
        Self {
            delivery,
            payload_type,
            has_described_type: false,
            other_type: None,
            foreign_types: Vec::new(),
            ssrc: None,
            next: None,
            held: Vec::new(),
            held_bytes: 0,
            unlikely: None,
            is_between: true,
            disorder: 0,
            has_markers: false,
            given: vec![(0, 0); REMEMBERED],
            clock: Extension::new(rate_hz),
            counts: RtpCounts::default(),
        }
    }

    /// Ignores packets of these types, if they are not this stream's.
    pub fn ignoring(self, foreign_types: Vec<u8>) -> Self {
        Self { foreign_types, ..self }
    }

    /// Takes a packet that arrived at `now`, and calls `give` with the packets whose turn it is.
    pub fn push(&mut self, packet: &[u8], now: Instant, mut give: impl FnMut(RtpPacket<'_>)) {
        let Some(header) = RtpHeader::parse(packet).filter(|header| self.is_of_stream(header)) else {
            self.counts.foreign += 1;
            return;
        };
        self.counts.received += 1;
        if self.has_useless_numbers() {
            self.release_all(&mut give);
            self.give(&header, packet, 0, &mut give);
            return;
        }
        if self.given_with(header.sequence) == Some(header.timestamp) {
            self.counts.late += 1;
            self.count_disorder();
            return;
        }
        if self.ssrc.replace(header.ssrc).is_some_and(|before| before != header.ssrc) {
            // Some cameras change it with each group of pictures, and continue or restart the count.
            self.counts.restarts += 1;
            if self.next.is_none_or(|next| usize::from(header.sequence.wrapping_sub(next)) > MOST_HELD) {
                self.release_all(&mut give);
                let lost = u16::from(self.delivery == Delivery::Lossy || self.is_cut(&header));
                self.give(&header, packet, lost, &mut give);
                return;
            }
        }
        let next = *self.next.get_or_insert(header.sequence);
        let ahead = header.sequence.wrapping_sub(next);
        if ahead == 0 {
            self.disorder = self.disorder.saturating_sub(1);
            self.give(&header, packet, 0, &mut give);
            self.release_next(&mut give);
        } else if ahead <= MOST_AHEAD {
            self.hold(header, packet, now);
            if self.held.len() > MOST_HELD || self.held_bytes > MOST_HELD_BYTES {
                self.release_first(&mut give);
            }
        } else if self.is_new_count(&header, ahead) {
            self.release_all(&mut give);
            self.counts.restarts += 1;
            self.count_disorder();
            let first = self.unlikely.take();
            let begin = first.as_ref().map_or(&header, |(first, _)| first);
            // A jump ahead may come from a camera that could not send for seconds.
            let is_leap = ahead < 0x8000 && header.sequence > next;
            let lost = u16::from(is_leap || self.delivery == Delivery::Lossy || self.is_cut(begin));
            match first {
                Some((first, first_packet)) => {
                    // It was already counted as late.
                    self.counts.late -= 1;
                    self.give(&first, &first_packet, lost, &mut give);
                    self.give(&header, packet, 0, &mut give);
                }
                None => self.give(&header, packet, lost, &mut give),
            }
        } else {
            self.counts.late += 1;
            self.count_disorder();
            self.unlikely = (self.delivery == Delivery::Lossy).then(|| (header, packet.to_vec()));
        }
    }

    /// Whether the camera's numbers do not reflect the order of packets. Some cameras number frames, count by two, or do
    /// not count.
    fn has_useless_numbers(&self) -> bool {
        self.delivery == Delivery::Reliable && self.disorder > MOST_DISORDER
    }

    /// Counts a packet that was repeated, late, or after a gap.
    const fn count_disorder(&mut self) {
        if self.disorder <= MOST_DISORDER {
            self.disorder += 1;
        }
    }

    /// Returns when [`tick`](Self::tick) has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.since).min().map(|since| since + LONGEST_WAIT)
    }

    /// Releases packets that have waited long enough.
    pub fn tick(&mut self, now: Instant, mut give: impl FnMut(RtpPacket<'_>)) {
        while self.due().is_some_and(|due| due <= now) {
            self.release_first(&mut give);
        }
    }

    /// Returns the number of the last released packet, and the SSRC, for a receiver report.
    pub fn last(&self) -> Option<(u32, u16)> {
        Some((self.ssrc?, self.next?.wrapping_sub(1)))
    }

    /// Returns the unwrapped RTP timestamp of a report.
    pub const fn report_time(&mut self, timestamp: u32) -> i64 {
        self.clock.near(timestamp)
    }

    fn is_of_stream(&mut self, header: &RtpHeader) -> bool {
        if header.payload_type == self.payload_type {
            self.has_described_type = true;
            return true;
        }
        // Some cameras send a different type than they describe. RTCP in RTP's channel would have 72 to 76.
        !self.has_described_type
            && header.payload_type >= 96
            && !self.foreign_types.contains(&header.payload_type)
            && *self.other_type.get_or_insert(header.payload_type) == header.payload_type
    }

    /// Returns the timestamp of the last released packet with this number, if it is recent.
    fn given_with(&self, sequence: u16) -> Option<u32> {
        let is_recent = self.next.is_some_and(|next| usize::from(next.wrapping_sub(sequence)) <= REMEMBERED);
        let &(other, timestamp) = self.given.get(usize::from(sequence) % REMEMBERED)?;
        (is_recent && other == sequence).then_some(timestamp)
    }

    /// Whether a packet with an unlikely number starts a new count. Over TCP nothing arrives late: a packet that seems late
    /// belongs to a later frame. With datagrams, two consecutive ones are believed, and the number of one that seems late
    /// must have occurred before.
    fn is_new_count(&self, header: &RtpHeader, ahead: u16) -> bool {
        let is_late = ahead.wrapping_neg() <= MOST_LATE;
        let is_likely = match self.delivery {
            Delivery::Reliable => true,
            Delivery::Lossy => {
                let follows = |(first, _): &(RtpHeader, Vec<u8>)| first.sequence.wrapping_add(1) == header.sequence;
                self.unlikely.as_ref().is_some_and(follows) && (!is_late || self.given_with(header.sequence).is_some())
            }
        };
        is_likely && (!is_late || self.clock.is_later(header.timestamp))
    }

    /// Whether the last packet was in the middle of a frame that this one, with a new count, does not continue.
    fn is_cut(&self, header: &RtpHeader) -> bool {
        let is_same = self.clock.last.is_some_and(|(before, _)| before == header.timestamp);
        self.has_markers && !self.is_between && !is_same
    }

    fn hold(&mut self, header: RtpHeader, packet: &[u8], now: Instant) {
        let Some(next) = self.next else { return };
        let ahead = |sequence: u16| sequence.wrapping_sub(next);
        let at = self.held.partition_point(|held| ahead(held.header.sequence) < ahead(header.sequence));
        if self.held.get(at).is_some_and(|held| held.header.sequence == header.sequence) {
            self.counts.late += 1;
            return;
        }
        self.held_bytes += packet.len();
        self.held.insert(at, Held { header, packet: packet.to_vec(), since: now });
    }

    /// Releases the packets that no longer wait for others.
    fn release_next(&mut self, give: &mut impl FnMut(RtpPacket<'_>)) {
        while self.held.first().is_some_and(|held| Some(held.header.sequence) == self.next) {
            self.release_first(give);
        }
    }

    /// Releases the first waiting packet, although others are missing before it, and those that follow it.
    fn release_first(&mut self, give: &mut impl FnMut(RtpPacket<'_>)) {
        loop {
            let Some(next) = self.next.filter(|_| !self.held.is_empty()) else { return };
            let held = self.held.remove(0);
            self.held_bytes -= held.packet.len();
            let lost = held.header.sequence.wrapping_sub(next);
            self.counts.lost += u64::from(lost);
            if lost > 0 {
                self.count_disorder();
            }
            self.give(&held.header, &held.packet, lost, give);
            if self.held.first().is_none_or(|held| Some(held.header.sequence) != self.next) {
                return;
            }
        }
    }

    fn release_all(&mut self, give: &mut impl FnMut(RtpPacket<'_>)) {
        while !self.held.is_empty() {
            self.release_first(give);
        }
    }

    fn give(&mut self, header: &RtpHeader, packet: &[u8], lost: u16, give: &mut impl FnMut(RtpPacket<'_>)) {
        self.next = Some(header.sequence.wrapping_add(1));
        self.unlikely = None;
        if let Some(place) = self.given.get_mut(usize::from(header.sequence) % REMEMBERED) {
            *place = (header.sequence, header.timestamp);
        }
        let payload = &packet[header.payload.clone()];
        // Packets without a payload keep a path through a router open.
        if payload.is_empty() && lost == 0 {
            return;
        }
        self.is_between = header.marker;
        self.has_markers |= header.marker;
        give(RtpPacket {
            marker: header.marker,
            timestamp: self.clock.extend(header.timestamp),
            lost,
            extension: header.extension.as_ref().map(|(profile, range)| (*profile, &packet[range.clone()])),
            payload,
        });
    }
}

/// Extends RTP's timestamps of 32 bits, which wrap after 13 hours.
#[derive(Debug)]
struct Extension {
    rate_hz: u32,
    /// The last timestamp as received, and extended.
    last: Option<(u32, i64)>,
    /// A timestamp that was requested before the first one arrived.
    expected: Option<u32>,
}

/// How far a timestamp may be from the previous one. A camera that sends a frame only when something moves may be silent
/// for long; one whose clock is set back by a minute would deliver frames in the wrong order.
const MOST_BACK_S: i64 = 10;
const MOST_FORTH_S: i64 = 3600;

impl Extension {
    const fn new(rate_hz: u32) -> Self {
        Self { rate_hz, last: None, expected: None }
    }

    /// Takes the timestamp of the next packet.
    fn extend(&mut self, timestamp: u32) -> i64 {
        let rate = i64::from(self.rate_hz.max(1));
        let extended = match self.last {
            None => {
                let expected = self.expected.unwrap_or(timestamp);
                i64::from(expected) + i64::from(timestamp.wrapping_sub(expected).cast_signed())
            }
            Some((before, extended)) => {
                let step = i64::from(timestamp.wrapping_sub(before).cast_signed());
                // After a jump, the time continues with a usual frame interval.
                if (-MOST_BACK_S * rate..=MOST_FORTH_S * rate).contains(&step) {
                    extended.saturating_add(step)
                } else {
                    extended.saturating_add(rate / 25)
                }
            }
        };
        self.last = Some((timestamp, extended));
        extended
    }

    /// Whether a timestamp is later than the last one, by less than a jump.
    fn is_later(&self, timestamp: u32) -> bool {
        let most = MOST_FORTH_S * i64::from(self.rate_hz.max(1));
        self.last
            .is_some_and(|(before, _)| (1..=most).contains(&i64::from(timestamp.wrapping_sub(before).cast_signed())))
    }

    /// Returns a timestamp near the last one, extended. Before the first packet, extends that packet's time from this one.
    const fn near(&mut self, timestamp: u32) -> i64 {
        match self.last {
            Some((before, extended)) => extended.saturating_add(timestamp.wrapping_sub(before).cast_signed() as i64),
            None => {
                self.expected = Some(timestamp);
                timestamp as i64
            }
        }
    }
}

#[cfg(test)]
mod tests;
