//! Assembles access units, each one coded picture, from the payloads of RTP packets: H.264 by RFC 6184, H.265 by RFC 7798. JPEG's
//! are assembled elsewhere (`jpeg_payload`).
//!
//! A unit ends where the timestamp changes, or earlier at a packet with the marker bit. Some cameras set that bit on every slice:
//! once a picture goes on behind it, the bit counts no more in that session.
//!
//! Nothing is trusted. A unit has at most [`MAX_UNIT_BYTES`], and one that lost a packet or whose lengths lie is dropped and
//! counted.

use std::mem;

use memchr::memmem::Finder;
use visiond_flow::timestamp::Timestamp;

/// The largest access unit. A key frame of a 4K camera has 1 to 4 MB.
pub const MAX_UNIT_BYTES: usize = 16 << 20;

/// The most bytes that are reserved for a unit before it comes.
const MOST_RESERVED_BYTES: usize = 64 << 10;

/// The most bytes of parameter sets that are kept for key frames without them, and of anything before a picture.
const MAX_SETS_BYTES: usize = 64 << 10;

/// How often a unit may seem to be over before its picture comes: each parameter set may have a packet of its own with the marker bit.
const MOST_LOOKS: u32 = 64;

/// The most parameter sets of a unit that are looked at: H.264 has 32 and 256 of its two kinds. Each is compared with those before.
const MOST_SETS: usize = 512;

/// What precedes every NAL unit in Annex B.
const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// A codec of network cameras.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    H264,
    H265,
    Jpeg,
}

impl Codec {
    /// Returns the codec by its name in SDP.
    pub fn of_encoding(name: &str) -> Option<Self> {
        match name {
            "h264" => Some(Self::H264),
            "h265" => Some(Self::H265),
            "jpeg" => Some(Self::Jpeg),
            _ => None,
        }
    }

    /// Returns ffmpeg's name of the codec's bitstream.
    pub const fn demuxer(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::H265 => "hevc",
            Self::Jpeg => "mjpeg",
        }
    }

    /// Returns the access unit delimiter in Annex B. It ends the unit before it: without it, a decoder learns that a unit is over
    /// only from the next one, a frame interval later.
    pub const fn delimiter(self) -> &'static [u8] {
        match self {
            Self::H264 => &[0, 0, 0, 1, 0x09, 0xF0],
            Self::H265 => &[0, 0, 0, 1, 0x46, 0x01, 0x50],
            // A picture has an end.
            Self::Jpeg => &[],
        }
    }

    fn nal(self, nal: &[u8]) -> Nal {
        let Some(&first) = nal.first() else { return Nal::Other };
        // The first bit behind the header of a slice: `first_mb_in_slice` is 0, or `first_slice_segment_in_pic_flag` is set.
        let begins_picture = |header: usize| nal.get(header).is_some_and(|byte| byte & 0x80 != 0);
        match self {
            Self::H264 => match first & 0x1F {
                5 => Nal::Slice { access: Access::Key, is_first: begins_picture(1) },
                1 | 2 => Nal::Slice { access: Access::Inter, is_first: begins_picture(1) },
                7 => Nal::Sps,
                8 => Nal::OtherSet,
                _ => Nal::Other,
            },
            Self::H265 => match (first >> 1) & 0x3F {
                8 | 9 => Nal::Slice { access: Access::Leading, is_first: begins_picture(2) },
                16..=21 => Nal::Slice { access: Access::Key, is_first: begins_picture(2) },
                0..=31 => Nal::Slice { access: Access::Inter, is_first: begins_picture(2) },
                33 => Nal::Sps,
                32 | 34 => Nal::OtherSet,
                _ => Nal::Other,
            },
            Self::Jpeg => Nal::Other,
        }
    }
}

/// A NAL unit, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nal {
    Slice {
        access: Access,
        is_first: bool,
    },
    Sps,
    /// A picture or video parameter set.
    OtherSet,
    Other,
}

/// Which other pictures a decoder needs for a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// None: decoding can begin here.
    Key,
    /// Pictures before it.
    Inter,
    /// Pictures before the key frame that it follows, ahead of which it is shown (H.265: RASL). Undecodable if decoding began
    /// there.
    Leading,
}

/// A coded picture.
#[derive(Debug, Clone)]
pub struct AccessUnit {
    pub codec: Codec,
    /// NAL units in Annex B, where a key frame begins with its parameter sets; or a JPEG file.
    pub data: Vec<u8>,
    pub access: Access,
    /// When it is to be shown, in units of RTP: only the order matters.
    pub presentation: i64,
    /// When it was captured, or arrived.
    pub captured: Timestamp,
    /// Counts changes of the parameters that a decoder is set up with.
    pub generation: u64,
}

/// Assembles the access units of one stream of H.264 or H.265.
#[derive(Debug)]
pub struct Assembler {
    codec: Codec,
    /// The unit so far, in Annex B.
    unit: Vec<u8>,
    /// How often it was looked through since it began.
    looks: u32,
    /// Its RTP timestamp, and when it was captured.
    time: Option<(i64, Timestamp)>,
    in_fragment: bool,
    is_broken: bool,
    trusts_marker: bool,
    /// The timestamp of the last unit that was returned.
    returned: Option<i64>,
    /// The latest parameter sets, in Annex B, and the sequence parameter sets among them.
    sets: Vec<u8>,
    sps: Vec<u8>,
    /// The sequence parameter sets of the last key frame.
    used_sps: Vec<u8>,
    generation: u64,
    damaged: u64,
}

impl Assembler {
    /// Creates an assembler; `sets` are the parameter sets of the session's description in Annex B, if it has any.
    pub fn new(codec: Codec, sets: &[u8]) -> Self {
        let mut this = Self {
            codec,
            unit: Vec::new(),
            looks: 0,
            time: None,
            in_fragment: false,
            is_broken: false,
            trusts_marker: true,
            returned: None,
            sets: Vec::new(),
            sps: Vec::new(),
            used_sps: Vec::new(),
            generation: 0,
            damaged: 0,
        };
        this.learn(&Contents::of(codec, sets));
        this
    }

    /// Takes the payload of a packet; `lost` packets are missing before it. Calls `give` with each unit that it completes.
    pub fn push(
        &mut self,
        payload: &[u8],
        time: (i64, Timestamp),
        marker: bool,
        lost: u16,
        mut give: impl FnMut(AccessUnit),
    ) {
        if lost > 0 {
            self.in_fragment = false;
            self.is_broken |= self.time.is_some();
        }
        if self.time.is_none_or(|(before, _)| before != time.0) {
            self.is_broken |= self.in_fragment;
            self.finish(&mut give);
            self.time = Some(time);
        }
        // The start of a unit may be among the lost packets; `finish` sees whether it is there.
        let taken = match self.codec {
            Codec::H264 => self.take_h264(payload),
            Codec::H265 => self.take_h265(payload),
            // It has no NAL units.
            Codec::Jpeg => None,
        };
        if taken.is_none() {
            self.is_broken = true;
            self.in_fragment = false;
        }
        if marker && self.trusts_marker && !self.in_fragment {
            self.finish(&mut give);
        }
    }

    /// Returns how many units were dropped since the last call because they were damaged.
    pub fn take_damaged(&mut self) -> u64 {
        mem::take(&mut self.damaged)
    }

    /// Takes an H.264 payload; `None` if it is damaged or of a mode that cameras do not use.
    fn take_h264(&mut self, payload: &[u8]) -> Option<()> {
        let (&header, rest) = payload.split_first()?;
        match header & 0x1F {
            1..=23 => self.whole(payload),
            // STAP-A: several units.
            24 => self.aggregate(rest),
            // FU-A: a piece of one.
            28 => {
                let (&fragment, data) = rest.split_first()?;
                self.fragment(fragment, &[(header & 0xE0) | (fragment & 0x1F)], data)
            }
            _ => None,
        }
    }

    /// Takes an H.265 payload; `None` if it is damaged.
    fn take_h265(&mut self, payload: &[u8]) -> Option<()> {
        let (&[first, second], rest) = payload.split_first_chunk()?;
        match (first >> 1) & 0x3F {
            48 => self.aggregate(rest),
            49 => {
                let (&fragment, data) = rest.split_first()?;
                self.fragment(fragment, &[(first & 0x81) | ((fragment & 0x3F) << 1), second], data)
            }
            50.. => None,
            _ => self.whole(payload),
        }
    }

    fn whole(&mut self, nal: &[u8]) -> Option<()> {
        self.is_broken |= mem::take(&mut self.in_fragment);
        self.has_room(nal)?;
        put(&mut self.unit, nal);
        Some(())
    }

    /// Takes units, each behind its length in two bytes.
    fn aggregate(&mut self, mut rest: &[u8]) -> Option<()> {
        while !rest.is_empty() {
            let (length, behind) = rest.split_first_chunk()?;
            let (nal, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
            self.whole(nal)?;
            rest = behind;
        }
        Some(())
    }

    /// Takes a piece of a unit; `header` is the whole unit's.
    fn fragment(&mut self, fragment: u8, header: &[u8], data: &[u8]) -> Option<()> {
        let (is_start, is_end) = (fragment & 0x80 != 0, fragment & 0x40 != 0);
        self.has_room(data)?;
        match (is_start, self.in_fragment) {
            (true, _) => {
                self.is_broken |= self.in_fragment;
                put(&mut self.unit, header);
            }
            (false, true) => {}
            (false, false) => return None,
        }
        self.unit.extend_from_slice(data);
        self.in_fragment = !is_end;
        Some(())
    }

    /// A unit that is broken anyway need not grow.
    fn has_room(&self, data: &[u8]) -> Option<()> {
        (!self.is_broken && self.unit.len() + data.len() <= MAX_UNIT_BYTES).then_some(())
    }

    /// Ends the unit and gives it away if it is a whole picture. Units without a picture wait for the one that they precede.
    fn finish(&mut self, give: &mut impl FnMut(AccessUnit)) {
        let Some((presentation, captured)) = self.time else { return };
        let contents = Contents::of(self.codec, &self.unit);
        // It is looked through again with each packet that ends a unit.
        self.looks += 1;
        self.is_broken |= contents.picture.is_none() && (self.unit.len() > MAX_SETS_BYTES || self.looks > MOST_LOOKS);
        let Some((access, is_first)) = contents.picture.filter(|_| !self.is_broken) else {
            if mem::take(&mut self.is_broken) {
                self.unit = Vec::new();
                self.looks = 0;
                self.damaged += 1;
                self.time = None;
                self.in_fragment = false;
            }
            return;
        };
        self.looks = 0;
        self.learn(&contents);
        // The next one is about as long, unless this is a key frame. Growing would copy it.
        let likely = self.unit.len() + self.unit.len() / 2;
        let mut data = mem::replace(&mut self.unit, Vec::with_capacity(likely.min(MOST_RESERVED_BYTES)));
        // It may wait in the queue, whose bytes are bounded.
        if data.capacity() - data.len() > data.len().min(MOST_RESERVED_BYTES) {
            data.shrink_to_fit();
        }
        self.time = None;
        if !is_first {
            // The rest of a picture: its start was lost, or the marker bit came too early.
            self.trusts_marker &= self.returned != Some(presentation);
            self.damaged += 1;
            return;
        }
        self.returned = Some(presentation);
        let mut access = access;
        if access == Access::Key {
            if contents.sps.is_empty() {
                data.splice(0..0, self.sets.iter().copied());
            }
            if self.sps.is_empty() {
                // Without parameters, no decoder can begin here.
                access = Access::Inter;
            } else if self.used_sps != self.sps {
                self.used_sps.clone_from(&self.sps);
                self.generation += 1;
            }
        }
        give(AccessUnit { codec: self.codec, data, access, presentation, captured, generation: self.generation });
    }

    fn learn(&mut self, contents: &Contents) {
        if !contents.sps.is_empty() && contents.sets.len() <= MAX_SETS_BYTES {
            self.sps.clone_from(&contents.sps);
            self.sets.clone_from(&contents.sets);
        }
    }
}

/// The contents of a unit.
#[derive(Debug, Default)]
struct Contents {
    /// The first slice: what its picture needs, and whether it is the picture's first.
    picture: Option<(Access, bool)>,
    /// All parameter sets, and the sequence parameter sets, in Annex B.
    sets: Vec<u8>,
    sps: Vec<u8>,
}

impl Contents {
    /// Looks through a unit in Annex B. It splits at every start code, because some cameras send several NAL units as one.
    fn of(codec: Codec, unit: &[u8]) -> Self {
        let (mut this, mut looked_at) = (Self::default(), 0);
        for nal in nals(unit) {
            let kind = codec.nal(nal);
            match kind {
                Nal::Slice { access, is_first } => {
                    this.picture.get_or_insert((access, is_first));
                }
                Nal::Sps | Nal::OtherSet if looked_at < MOST_SETS && this.sets.len() <= MAX_SETS_BYTES => {
                    looked_at += 1;
                    // Some cameras send a set twice.
                    if nals(&this.sets).any(|set| set == nal) {
                        continue;
                    }
                    if kind == Nal::Sps {
                        put(&mut this.sps, nal);
                    }
                    put(&mut this.sets, nal);
                }
                Nal::Sps | Nal::OtherSet | Nal::Other => {}
            }
        }
        this
    }
}

/// Appends a NAL unit, unless it is empty, to a unit in Annex B.
pub(super) fn put(unit: &mut Vec<u8>, nal: &[u8]) {
    if !nal.is_empty() {
        unit.extend_from_slice(&START_CODE);
        unit.extend_from_slice(nal);
    }
}

/// Returns the NAL units of a unit in Annex B.
pub(super) fn nals(unit: &[u8]) -> impl Iterator<Item = &[u8]> {
    // A zero before it belongs to no unit, either.
    let start_code = Finder::new(&[0, 0, 1]);
    let mut rest = start_code.find(unit).map(|at| &unit[at + 3..]);
    std::iter::from_fn(move || {
        let from = rest?;
        let next = start_code.find(from);
        rest = next.map(|at| &from[at + 3..]);
        let nal = &from[..next.unwrap_or(from.len())];
        let zeros = nal.iter().rev().take_while(|&&byte| byte == 0).count();
        Some(&nal[..nal.len() - zeros])
    })
}

#[cfg(test)]
mod tests;
