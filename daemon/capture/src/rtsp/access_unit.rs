//! Assembles access units, each one coded frame, from the payloads of RTP packets: H.264 by RFC 6184, H.265 by RFC 7798.
//! `jpeg_payload` assembles JPEG.
//!
//! A unit ends where the timestamp changes, or earlier at a packet with the marker bit. Some cameras set that bit on every slice:
//! once a frame continues after it, the bit no longer counts in that session. The first key frame waits for the next packet,
//! which shows whether it does. Some cameras give each slice its own timestamp: a slice that starts no frame continues the
//! previous one.
//!
//! All input is untrusted. A unit has at most [`MAX_UNIT_BYTES`]; one that lost a packet or has wrong lengths is dropped and
//! counted. The next complete one says whether it may refer to lost frames: it may not if these are certain to be frames that
//! no other refers to. H.264 numbers its reference frames. In H.265, all lost packets must belong to one frame.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem::Finder;
use visiond_frames::timestamp::Timestamp;

use super::numbering::{Numbering, Position, RecoveryPoint, recovery_point};
pub use visiond_rtsp::codec::Codec;

/// The largest access unit. A key frame of a 4K camera has 1 to 4 MB.
pub const MAX_UNIT_BYTES: usize = 16 << 20;

/// The most bytes to reserve for a unit in advance.
const MOST_RESERVED_BYTES: usize = 64 << 10;

/// The most bytes of parameter sets to keep for key frames without them, and of any data before a frame.
const MAX_SETS_BYTES: usize = 64 << 10;

/// How often a unit may seem complete before its frame arrives: each parameter set may have its own packet with the marker bit.
const MOST_LOOKS: u32 = 16;

/// The most parameter sets of a unit to examine: H.264 has 32 and 256 of its two kinds. Each is compared with the earlier ones.
const MOST_SETS: usize = 512;

/// How many frames in a row must have counted up H.264's frame number before a jump in it counts as a loss. Some cameras write
/// nonsense there.
const TRUSTED_NUMBERS: u32 = 8;

/// The start code before every NAL unit in Annex B.
const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// A NAL unit, reduced to the facts that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nal {
    Slice {
        access: Access,
        is_first: bool,
    },
    Sps,
    /// A picture or video parameter set.
    OtherSet,
    /// Supplemental information about the following frame.
    Information,
    /// The start of an access unit.
    Delimiter,
    Other,
}

impl Nal {
    /// Examines the first bytes of a NAL unit.
    fn of(codec: Codec, nal: &[u8]) -> Self {
        let Some(&first) = nal.first() else { return Self::Other };
        // The first bit after the header of a slice: `first_mb_in_slice` is 0, or `first_slice_segment_in_pic_flag` is set.
        let begins_picture = |header: usize| nal.get(header).is_some_and(|byte| byte & 0x80 != 0);
        match codec {
            Codec::H264 => match first & 0x1F {
                5 => Self::Slice { access: Access::Key, is_first: begins_picture(1) },
                1 | 2 => Self::Slice { access: Access::Inter, is_first: begins_picture(1) },
                6 => Self::Information,
                7 => Self::Sps,
                8 => Self::OtherSet,
                9 => Self::Delimiter,
                _ => Self::Other,
            },
            Codec::H265 => match (first >> 1) & 0x3F {
                6 | 7 => Self::Slice { access: Access::LeadingAlone, is_first: begins_picture(2) },
                8 | 9 => Self::Slice { access: Access::Leading, is_first: begins_picture(2) },
                16..=21 => Self::Slice { access: Access::Key, is_first: begins_picture(2) },
                0..=31 => Self::Slice { access: Access::Inter, is_first: begins_picture(2) },
                33 => Self::Sps,
                32 | 34 => Self::OtherSet,
                35 => Self::Delimiter,
                39 => Self::Information,
                _ => Self::Other,
            },
            Codec::Jpeg => Self::Other,
        }
    }

    /// Whether it comes before a frame.
    fn precedes_picture(self) -> bool {
        match self {
            Self::Slice { is_first, .. } => is_first,
            Self::Sps | Self::OtherSet | Self::Information | Self::Delimiter => true,
            Self::Other => false,
        }
    }
}

/// The other frames that a decoder needs for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// None: decoding can start here.
    Key,
    /// Earlier frames. Decoding can start here, and is correct from that point on.
    Recovery(RecoveryPoint),
    /// Earlier frames.
    Inter,
    /// Frames before the key frame that it follows and that is shown after it (H.265: RASL). It cannot be decoded if decoding
    /// started there.
    Leading,
    /// The key frame that it follows and that is shown after it (H.265: RADL).
    LeadingAlone,
}

/// How to handle the frame that a decoder makes of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Published,
    /// Publish it with the mark that it may show damage.
    PublishedAsDamaged,
    /// The same. The decoder started at a recovery point that is shown after this frame.
    PublishedAsRecovering,
    /// The same, but it does not become a frame: it has been counted as lost.
    Discarded,
}

impl Fate {
    /// Whether the frame is published with the mark that it may show damage.
    pub fn is_damaged(self) -> bool {
        matches!(self, Self::PublishedAsDamaged | Self::PublishedAsRecovering)
    }
}

/// A coded frame.
#[derive(Debug, Clone)]
pub struct AccessUnit {
    pub codec: Codec,
    /// NAL units in Annex B, where a key frame begins with its parameter sets; or a JPEG file. Clips share it, which costs an allocation
    /// of 40 bytes.
    pub data: Arc<Vec<u8>>,
    pub access: Access,
    /// Whether frames that it may refer to were lost since the previous unit.
    pub follows_loss: bool,
    /// `None` if its headers do not say.
    pub position: Option<Position>,
    pub fate: Fate,
    /// When to show it, in RTP time units: only the order matters.
    pub presentation: i64,
    /// When it was captured, or otherwise arrived.
    pub captured: Timestamp,
    /// Counts changes of the parameters for which a decoder is set up.
    pub generation: u64,
}

/// Whether the marker bit ends a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Markers {
    /// The packet after the first key frame will show it.
    Unknown,
    EndPictures,
    EndSlices,
}

/// The losses since the last unit that was delivered.
#[derive(Debug, Default)]
struct Loss {
    /// The maximum number of lost frames.
    pictures: u64,
    /// Whether others may refer to one of them.
    is_of_references: bool,
}

/// Assembles the access units of one stream of H.264 or H.265.
#[derive(Debug)]
pub struct Assembler {
    codec: Codec,
    /// The unit so far, in Annex B.
    unit: Vec<u8>,
    /// How often the unit has been scanned.
    looks: u32,
    /// Its RTP timestamp, and when it was captured.
    time: Option<(i64, Timestamp)>,
    /// The timestamp of its last packet: some cameras give each slice its own.
    latest: i64,
    /// Whether it has a slice.
    has_picture: bool,
    /// Whether it has a marker bit that may end it: the next packet decides.
    is_ended: bool,
    in_fragment: bool,
    /// Whether the camera ends fragments only by the marker bit.
    ends_fragments_by_marker: bool,
    is_broken: bool,
    /// Whether all of its lost packets are certain to be its own.
    lost_inside: bool,
    markers: Markers,
    /// The timestamp of the last unit that was delivered, and its presentation time.
    given: Option<(i64, i64)>,
    loss: Loss,
    /// H.264's frame number of the last reference frame that was delivered.
    number: Option<u32>,
    /// How many frames in a row have counted it up as the standard requires.
    counted: u32,
    /// The latest parameter sets, in Annex B, the sequence parameter sets among them, and how they number frames.
    sets: Vec<u8>,
    sps: Vec<u8>,
    numbering: Option<Numbering>,
    /// The sequence parameter sets of the last key frame.
    used_sps: Vec<u8>,
    generation: u64,
    damaged: u64,
    reason: Option<&'static str>,
}

impl Assembler {
    /// Creates an assembler; `sets` are the parameter sets of the session's description in Annex B, if it has any.
    pub fn new(codec: Codec, sets: &[u8]) -> Self {
        let mut this = Self {
            codec,
            unit: Vec::new(),
            looks: 0,
            time: None,
            latest: 0,
            has_picture: false,
            is_ended: false,
            in_fragment: false,
            ends_fragments_by_marker: false,
            is_broken: false,
            lost_inside: false,
            markers: Markers::Unknown,
            given: None,
            loss: Loss::default(),
            number: None,
            counted: 0,
            sets: Vec::new(),
            sps: Vec::new(),
            numbering: None,
            used_sps: Vec::new(),
            generation: 0,
            damaged: 0,
            reason: None,
        };
        this.learn(&Contents::of(codec, sets));
        this
    }

    /// Takes the payload of a packet; `lost` packets are missing before it. Calls `give` with each complete unit.
    pub fn push(
        &mut self,
        payload: &[u8],
        time: (i64, Timestamp),
        marker: bool,
        lost: u16,
        mut give: impl FnMut(AccessUnit),
    ) {
        if lost > 0 {
            self.lose(lost, time.0);
        }
        // Some cameras use these as keep-alive.
        if payload.is_empty() {
            return;
        }
        let payload = without_start_code(payload);
        self.begin(payload, time, lost > 0, &mut give);
        self.latest = time.0;
        // The start of a unit may be among the lost packets; `finish` checks that.
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
        if marker && self.markers != Markers::EndSlices {
            self.end(&mut give);
        }
    }

    /// Returns how many units were dropped since the last call because they were damaged.
    pub fn take_damaged(&mut self) -> u64 {
        mem::take(&mut self.damaged)
    }

    /// Returns why units are dropped although no packet is lost, if that is known: the camera's fault, and the remedy.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// Notes lost packets before one with the timestamp `time`.
    fn lose(&mut self, lost: u16, time: i64) {
        self.in_fragment = false;
        self.loss.pictures += u64::from(lost);
        match self.time {
            // If timestamps distinguish frames.
            Some(_) if self.latest == time && !self.is_ended && self.given.is_some_and(|(given, _)| given != time) => {
                self.lost_inside = true;
            }
            _ => self.loss.is_of_references = true,
        }
        self.is_broken |= self.time.is_some();
    }

    /// Ends the unit before a payload that does not belong to it, and starts another.
    fn begin(
        &mut self,
        payload: &[u8],
        time: (i64, Timestamp),
        is_behind_loss: bool,
        give: &mut impl FnMut(AccessUnit),
    ) {
        if self.time.is_none() {
            self.time = Some(time);
            return;
        }
        let before = self.latest;
        let next = self.first_nal(payload);
        let continues = matches!(next, Some(Nal::Slice { is_first: false, .. }));
        if self.is_ended && self.in_fragment {
            if next.is_none() && before == time.0 {
                // The marker bit was on a fragment in the middle.
                self.is_ended = false;
                return;
            }
            self.ends_fragments_by_marker = true;
            self.in_fragment = false;
        }
        if self.is_ended && !self.is_broken && self.markers == Markers::Unknown {
            if continues {
                (self.markers, self.is_ended) = (Markers::EndSlices, false);
            } else if next.is_some_and(Nal::precedes_picture) {
                self.markers = Markers::EndPictures;
            }
        }
        let is_over = if before == time.0 {
            // All packets have the same timestamp, or a marker bit was lost.
            (self.is_broken || self.is_ended) && self.has_picture && next.is_some_and(Nal::precedes_picture)
        } else {
            // Some cameras give each packet its own timestamp.
            let goes_on = if self.in_fragment { next.is_none() } else { continues };
            is_behind_loss || self.is_broken || !goes_on || !self.has_picture
        };
        if !is_over {
            return;
        }
        if self.in_fragment {
            self.is_broken = true;
            self.reason = Some(ENDLESS_FRAGMENTS);
        }
        self.finish(give);
        self.time = Some(time);
    }

    /// Ends the unit at a marker bit.
    fn end(&mut self, give: &mut impl FnMut(AccessUnit)) {
        if self.is_ended {
            return;
        }
        // Some cameras mark no fragment as the last one, and others set the bit on each fragment.
        let is_open = self.in_fragment && !self.ends_fragments_by_marker;
        // Nothing is decoded before the first key frame. Scanning the unit is expensive, so do it only if the result matters.
        if is_open || self.markers == Markers::Unknown && !self.is_broken && self.is_entry() {
            self.is_ended = true;
        } else {
            self.in_fragment = false;
            self.finish(give);
        }
    }

    /// Whether decoding may start with the unit so far.
    fn is_entry(&self) -> bool {
        let picture = Contents::of(self.codec, &self.unit).picture;
        picture.is_some_and(|(access, _)| matches!(access, Access::Key | Access::Recovery(_)))
    }

    /// Returns the NAL unit that a payload begins, if it begins one.
    fn first_nal(&self, payload: &[u8]) -> Option<Nal> {
        let header = if self.codec == Codec::H265 { 2 } else { 1 };
        match (self.codec, payload) {
            (Codec::H264, &[first, _, _, ..]) if first & 0x1F == 24 => {
                payload.get(3..).map(|nal| Nal::of(self.codec, without_start_code(nal)))
            }
            (Codec::H264, &[first, fragment, data, ..]) if first & 0x1F == 28 => {
                (fragment & 0x80 != 0).then(|| Nal::of(self.codec, &[(first & 0xE0) | (fragment & 0x1F), data]))
            }
            (Codec::H265, &[first, ..]) if first >> 1 & 0x3F == 48 => {
                payload.get(4..).map(|nal| Nal::of(self.codec, without_start_code(nal)))
            }
            (Codec::H265, &[first, second, fragment, data, ..]) if first >> 1 & 0x3F == 49 => (fragment & 0x80 != 0)
                .then(|| Nal::of(self.codec, &[(first & 0x81) | ((fragment & 0x3F) << 1), second, data])),
            _ => (payload.len() > header).then(|| Nal::of(self.codec, payload)),
        }
    }

    /// Takes an H.264 payload; `None` if it is damaged or in a mode that cameras do not use.
    fn take_h264(&mut self, payload: &[u8]) -> Option<()> {
        let (&header, rest) = payload.split_first()?;
        match header & 0x1F {
            1..=23 => self.whole(payload),
            // STAP-A: several units.
            24 => self.aggregate(rest),
            // STAP-B, MTAP16, MTAP24, FU-B.
            25..=27 | 29 => {
                self.reason = Some(INTERLEAVED);
                None
            }
            // FU-A: a fragment.
            28 => {
                let (&fragment, data) = rest.split_first()?;
                self.fragment(fragment, &[(header & 0xE0) | (fragment & 0x1F)], data)
            }
            // Undefined types, which are not part of a frame.
            _ => Some(()),
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
            // In PACI, a frame's data follows its own header.
            50 => None,
            51.. => Some(()),
            _ => self.whole(payload),
        }
    }

    fn whole(&mut self, nal: &[u8]) -> Option<()> {
        if mem::take(&mut self.in_fragment) {
            self.is_broken = true;
            self.reason = Some(ENDLESS_FRAGMENTS);
        }
        self.has_room(nal)?;
        let nal = without_start_code(nal);
        self.has_picture |= matches!(Nal::of(self.codec, nal), Nal::Slice { .. });
        put(&mut self.unit, nal);
        Some(())
    }

    /// Takes units, each after its length in two bytes. Some cameras insert empty ones, or bytes after the last one: like ffmpeg,
    /// this skips everything there that cannot be a slice.
    fn aggregate(&mut self, mut rest: &[u8]) -> Option<()> {
        let mut has_unit = false;
        while let Some((length, behind)) = rest.split_first_chunk() {
            let Some((nal, behind)) = behind.split_at_checked(u16::from_be_bytes(*length).into()) else {
                let is_slice = matches!(Nal::of(self.codec, behind), Nal::Slice { .. });
                return (has_unit && !is_slice).then_some(());
            };
            if !nal.is_empty() {
                self.whole(nal)?;
            }
            (has_unit, rest) = (true, behind);
        }
        (has_unit || rest.is_empty()).then_some(())
    }

    /// Takes a fragment of a unit; `header` is the whole unit's.
    fn fragment(&mut self, fragment: u8, header: &[u8], data: &[u8]) -> Option<()> {
        let (is_start, is_end) = (fragment & 0x80 != 0, fragment & 0x40 != 0);
        self.has_room(data)?;
        match (is_start, self.in_fragment) {
            (true, _) => {
                if self.in_fragment {
                    self.is_broken = true;
                    self.reason = Some(ENDLESS_FRAGMENTS);
                }
                self.has_picture |= matches!(Nal::of(self.codec, header), Nal::Slice { .. });
                put(&mut self.unit, header);
            }
            (false, true) => {}
            (false, false) => return None,
        }
        self.unit.extend_from_slice(data);
        self.in_fragment = !is_end;
        Some(())
    }

    /// There is no point in growing a broken unit.
    fn has_room(&self, data: &[u8]) -> Option<()> {
        (!self.is_broken && self.unit.len() + data.len() <= MAX_UNIT_BYTES).then_some(())
    }

    /// Ends the unit and delivers it if it is a complete frame. Units without a frame wait for the one that they precede.
    fn finish(&mut self, give: &mut impl FnMut(AccessUnit)) {
        let Some((time, captured)) = self.time else { return };
        let contents = Contents::of(self.codec, &self.unit);
        // It is scanned again with each packet that ends a unit.
        self.looks += 1;
        self.is_broken |= contents.picture.is_none() && (self.unit.len() > MAX_SETS_BYTES || self.looks > MOST_LOOKS);
        let picture = contents.picture.filter(|_| !self.is_broken);
        if picture.is_none() && !self.is_broken {
            return;
        }
        // The next one is about as long, unless this is a key frame. Growing the buffer would copy it.
        let likely = self.unit.len() + self.unit.len() / 2;
        let mut data = mem::replace(&mut self.unit, Vec::with_capacity(likely.min(MOST_RESERVED_BYTES)));
        let lost_inside = mem::take(&mut self.lost_inside);
        (self.looks, self.time) = (0, None);
        (self.has_picture, self.is_ended, self.in_fragment, self.is_broken) = (false, false, false, false);
        // The rest of a frame: its start was lost, or the marker bit came too early.
        let is_rest = picture.is_some_and(|(_, is_first)| !is_first);
        if is_rest && self.loss.pictures == 0 && self.given.is_some_and(|(given, _)| given == time) {
            self.markers = Markers::EndSlices;
        }
        let Some((access, _)) = picture.filter(|_| !is_rest) else {
            self.unit = Vec::new();
            self.damaged += 1;
            self.loss.pictures += 1;
            self.loss.is_of_references |= !(lost_inside && self.is_discardable(contents.slice(&data)));
            return;
        };
        self.learn(&contents);
        let position = self.numbering.and_then(|numbering| numbering.position(contents.slice(&data)));
        let follows_loss = self.judge_loss(access, position) || is_cut(self.codec, contents.slice(&data));
        let access = self.enter(access, &contents, &mut data);
        // It may wait in the queue, whose size in bytes is limited.
        if data.capacity() - data.len() > data.len().min(MOST_RESERVED_BYTES) {
            data.shrink_to_fit();
        }
        // Some cameras give all frames the same timestamp.
        let presentation = match self.given {
            Some((given, presentation)) if given == time => presentation.saturating_add(1),
            _ => time,
        };
        self.given = Some((time, presentation));
        self.reason = None;
        let (codec, generation, fate) = (self.codec, self.generation, Fate::Published);
        let data = Arc::new(data);
        give(AccessUnit { codec, data, access, follows_loss, position, fate, presentation, captured, generation });
    }

    /// Whether no other frame refers to this slice's frame.
    fn is_discardable(&self, slice: &[u8]) -> bool {
        self.numbering.is_some_and(|numbering| numbering.is_discardable(slice))
    }

    /// Decides whether a complete frame may refer to a lost one.
    fn judge_loss(&mut self, access: Access, position: Option<Position>) -> bool {
        let loss = mem::take(&mut self.loss);
        let counts = self.numbering.is_some_and(Numbering::counts_references);
        let place = position.filter(|_| counts).and_then(|position| Some((position, position.number?)));
        let Some((position, (number, modulo))) = place else {
            self.number = None;
            return loss.is_of_references;
        };
        let last = self.number;
        if position.is_reference || access == Access::Key {
            self.number = Some(number);
        }
        if access == Access::Key {
            return loss.is_of_references;
        }
        let is_next = last.is_some_and(|last| last.wrapping_add(1) % modulo == number);
        if loss.pictures > 0 {
            // A lost key frame would have restarted the count. Then more frames would be missing than were lost.
            let is_certain = is_next && self.counted >= TRUSTED_NUMBERS && loss.pictures < u64::from(number);
            return loss.is_of_references && !is_certain;
        }
        let is_leap = last.is_some() && !is_next;
        let is_trusted = self.counted >= TRUSTED_NUMBERS;
        self.counted = if is_leap { 0 } else { self.counted.saturating_add(1) };
        is_leap && is_trusted
    }

    /// If a decoder can start with this frame, makes it an entry point. Returns the references that it then needs.
    fn enter(&mut self, access: Access, contents: &Contents, data: &mut Vec<u8>) -> Access {
        if !matches!(access, Access::Key | Access::Recovery(_)) {
            return access;
        }
        if contents.sps.is_empty() {
            data.splice(0..0, self.sets.iter().copied());
        }
        if self.sps.is_empty() {
            // Without parameters, no decoder can start here.
            return Access::Inter;
        }
        if self.used_sps != self.sps {
            self.used_sps.clone_from(&self.sps);
            self.generation += 1;
        }
        access
    }

    fn learn(&mut self, contents: &Contents) {
        if !contents.sps.is_empty() && contents.sets.len() <= MAX_SETS_BYTES {
            if self.sets != contents.sets {
                self.numbering = Numbering::of(self.codec, nals(&contents.sets));
            }
            self.sps.clone_from(&contents.sps);
            self.sets.clone_from(&contents.sets);
        }
    }
}

/// Why a payload mode of H.264 is not supported.
const INTERLEAVED: &str = "the camera interleaves its packets (packetization-mode 2): set it to another mode";

/// Why the fragments of a unit do not fit together although none is lost.
const ENDLESS_FRAGMENTS: &str = "fragments of a frame have no end: update the camera's firmware";

/// The contents of a unit.
#[derive(Debug, Default)]
struct Contents {
    /// The first slice: its frame's references, and whether it is the frame's first.
    picture: Option<(Access, bool)>,
    /// Where it is in the unit.
    slice: Range<usize>,
    /// All parameter sets, and the sequence parameter sets, in Annex B.
    sets: Vec<u8>,
    sps: Vec<u8>,
}

impl Contents {
    /// Scans a unit in Annex B. It splits at every start code, because some cameras send several NAL units as one.
    fn of(codec: Codec, unit: &[u8]) -> Self {
        let (mut this, mut looked_at, mut point) = (Self::default(), 0, None);
        for nal in nals(unit) {
            let kind = Nal::of(codec, nal);
            match kind {
                Nal::Slice { access, is_first } if this.picture.is_none() => {
                    let access = match (access, point) {
                        (Access::Inter, Some(point)) => Access::Recovery(point),
                        _ => access,
                    };
                    this.picture = Some((access, is_first));
                    let start = nal.as_ptr().addr() - unit.as_ptr().addr();
                    this.slice = start..start + nal.len();
                }
                Nal::Information if this.picture.is_none() && looked_at < MOST_SETS => {
                    looked_at += 1;
                    point = point.or_else(|| recovery_point(codec, nal));
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
                Nal::Slice { .. } | Nal::Sps | Nal::OtherSet | Nal::Information | Nal::Delimiter | Nal::Other => {}
            }
        }
        this
    }

    /// Returns the first slice of the scanned unit, if there is one.
    fn slice<'u>(&self, unit: &'u [u8]) -> &'u [u8] {
        unit.get(self.slice.clone()).unwrap_or_default()
    }
}

/// Whether an H.265 slice belongs to a frame at which the stream was cut (BLA): its leading frames refer to missing ones.
fn is_cut(codec: Codec, slice: &[u8]) -> bool {
    codec == Codec::H265 && slice.first().is_some_and(|first| (16..=18).contains(&(first >> 1 & 0x3F)))
}

/// Returns a NAL unit or payload without the start code that some cameras put before it. None begins with zeros.
fn without_start_code(payload: &[u8]) -> &[u8] {
    payload.strip_prefix(&START_CODE).or_else(|| payload.strip_prefix(&START_CODE[1..])).unwrap_or(payload)
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
    // A zero before it belongs to no unit either.
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
