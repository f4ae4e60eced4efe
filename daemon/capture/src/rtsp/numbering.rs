//! Reads a frame's position in decoding order and output order from its slice headers, and finds recovery points.
//!
//! Reads only the fields that distinguish clean entry points and reveal missing access units. For a stream with several
//! sequence parameter sets, or with each field in its own picture, it reads no numbers: then only key frames are entry
//! points.

use h264_reader::nal::sps::{FrameMbsFlags, PicOrderCntType, SeqParameterSet};
use h264_reader::rbsp::{BitRead, BitReader};

use visiond_rtsp::codec::Codec;

/// How much of a NAL unit to read for a slice's numbers, which are at its start.
const SLICE_START_BYTES: usize = 64;

/// How much of a parameter set or of supplemental information to read.
const SET_BYTES: usize = 1 << 10;

/// The most bits of a frame's number in either standard.
const MOST_BITS: u32 = 16;

/// The position of an access unit in decoding order and in output order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// H.264's `frame_num`, which counts reference frames modulo the second number.
    pub number: Option<(u32, u32)>,
    /// The low bits of the frame's order count, and their modulus. `None` if frames are shown in decoding order.
    pub order: Option<(u32, u32)>,
    /// Whether others may refer to it.
    pub is_reference: bool,
}

/// A point from which frames are correct even if decoding started at its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryPoint {
    /// The distance from the message. H.264: in reference frames; H.265: in order count.
    pub distance: i32,
    /// Whether frames before it in output order are wrong even if decoding started earlier, because the stream was cut
    /// here.
    pub is_broken_link: bool,
}

/// How the slices of a stream number their frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    H264 {
        number_bits: u32,
        /// `None` if frames are shown in decoding order.
        order_bits: Option<u32>,
        has_planes: bool,
        is_progressive: bool,
        /// Whether `frame_num` may skip numbers although nothing was lost.
        allows_gaps: bool,
    },
    H265 {
        order_bits: u32,
        has_planes: bool,
        has_output_flag: bool,
        extra_bits: u32,
        sub_layers: u8,
    },
}

impl Numbering {
    /// Reads parameter sets; `None` unless exactly one sequence parameter set can be read.
    pub fn of<'n>(codec: Codec, nals: impl Iterator<Item = &'n [u8]>) -> Option<Self> {
        match codec {
            Codec::H264 => {
                let mut sets = nals.filter(|nal| nal.first().is_some_and(|first| first & 0x1F == 7));
                let set = sets.next().filter(|_| sets.next().is_none())?;
                Self::of_h264(&unescaped(set, 1, SET_BYTES))
            }
            Codec::H265 => {
                let (mut sequence, mut picture) = (None, None);
                for nal in nals {
                    let of_kind = match nal.first().map(|first| first >> 1 & 0x3F) {
                        Some(33) => &mut sequence,
                        Some(34) => &mut picture,
                        _ => continue,
                    };
                    if of_kind.replace(nal).is_some() {
                        return None;
                    }
                }
                Self::of_h265(&unescaped(sequence?, 2, SET_BYTES), &unescaped(picture?, 2, SET_BYTES))
            }
            Codec::Jpeg => None,
        }
    }

    fn of_h264(set: &[u8]) -> Option<Self> {
        let set = SeqParameterSet::from_bits(BitReader::new(set)).ok()?;
        let order_bits = match set.pic_order_cnt {
            PicOrderCntType::TypeZero { log2_max_pic_order_cnt_lsb_minus4 } => {
                Some(u32::from(log2_max_pic_order_cnt_lsb_minus4) + 4)
            }
            PicOrderCntType::TypeTwo => None,
            PicOrderCntType::TypeOne { .. } => return None,
        };
        let number_bits = u32::from(set.log2_max_frame_num_minus4) + 4;
        if number_bits > MOST_BITS || order_bits.is_some_and(|bits| bits > MOST_BITS) {
            return None;
        }
        Some(Self::H264 {
            number_bits,
            order_bits,
            has_planes: set.chroma_info.separate_colour_plane_flag,
            is_progressive: matches!(set.frame_mbs_flags, FrameMbsFlags::Frames),
            allows_gaps: set.gaps_in_frame_num_value_allowed_flag,
        })
    }

    /// By ITU-T H.265, sections 7.3.2.2, 7.3.2.3 and 7.3.3.
    fn of_h265(sequence: &[u8], picture: &[u8]) -> Option<Self> {
        let mut bits = BitReader::new(sequence);
        bits.skip(4, "id of the video set").ok()?;
        let sub_layers: u8 = bits.read(3, "sub-layers").ok()?;
        // The general profile and level, then flags for the sub-layers that have their own.
        bits.skip(1 + 88 + 8, "profile").ok()?;
        let mut bits_of_layers = 0;
        for _ in 0..sub_layers {
            let has_profile = bits.read_bool("profile present").ok()?;
            let has_level = bits.read_bool("level present").ok()?;
            bits_of_layers += if has_profile { 88 } else { 0 } + if has_level { 8 } else { 0 };
        }
        if sub_layers > 0 {
            bits.skip(u32::from(8_u8.saturating_sub(sub_layers)) * 2, "reserved").ok()?;
        }
        bits.skip(bits_of_layers, "profiles of sub-layers").ok()?;
        bits.read_ue("id").ok()?;
        let has_planes = bits.read_ue("chroma format").ok()? == 3 && bits.read_bool("planes").ok()?;
        bits.read_ue("width").ok()?;
        bits.read_ue("height").ok()?;
        if bits.read_bool("window").ok()? {
            for _ in 0..4 {
                bits.read_ue("offset").ok()?;
            }
        }
        bits.read_ue("bit depth of luma").ok()?;
        bits.read_ue("bit depth of chroma").ok()?;
        let order_bits =
            bits.read_ue("bits of the order count").ok()?.checked_add(4).filter(|bits| *bits <= MOST_BITS)?;
        let mut bits = BitReader::new(picture);
        bits.read_ue("id").ok()?;
        bits.read_ue("id of the sequence set").ok()?;
        bits.skip(1, "dependent slices").ok()?;
        let has_output_flag = bits.read_bool("output flag").ok()?;
        let extra_bits = bits.read(3, "extra bits").ok()?;
        Some(Self::H265 { order_bits, has_planes, has_output_flag, extra_bits, sub_layers })
    }

    /// Whether H.264's frame numbers have no gap unless a reference frame is missing.
    pub fn counts_references(self) -> bool {
        matches!(self, Self::H264 { is_progressive: true, allows_gaps: false, .. })
    }

    /// Returns the position of the access unit that starts with this slice.
    pub fn position(self, nal: &[u8]) -> Option<Position> {
        let &first = nal.first()?;
        match self {
            Self::H264 { number_bits, order_bits, has_planes, is_progressive, .. } => {
                let start = unescaped(nal, 1, SLICE_START_BYTES);
                let mut bits = BitReader::new(&start[..]);
                for name in ["first macroblock", "slice type", "id of the picture set"] {
                    bits.read_ue(name).ok()?;
                }
                if has_planes {
                    bits.skip(2, "plane").ok()?;
                }
                let number = bits.read(number_bits, "frame_num").ok()?;
                if !is_progressive && bits.read_bool("field").ok()? {
                    return None;
                }
                if first & 0x1F == 5 {
                    bits.read_ue("id of the key frame").ok()?;
                }
                let order = match order_bits {
                    Some(count) => Some((bits.read(count, "order count").ok()?, 1 << count)),
                    None => None,
                };
                Some(Position { number: Some((number, 1 << number_bits)), order, is_reference: first & 0x60 != 0 })
            }
            Self::H265 { order_bits, has_planes, has_output_flag, extra_bits, .. } => {
                let kind = first >> 1 & 0x3F;
                let start = unescaped(nal, 2, SLICE_START_BYTES);
                let mut bits = BitReader::new(&start[..]);
                bits.skip(1, "first slice").ok()?;
                if (16..=23).contains(&kind) {
                    bits.skip(1, "earlier pictures").ok()?;
                }
                bits.read_ue("id of the picture set").ok()?;
                bits.skip(extra_bits, "extra bits").ok()?;
                bits.read_ue("slice type").ok()?;
                if has_output_flag {
                    bits.skip(1, "output").ok()?;
                }
                if has_planes {
                    bits.skip(2, "plane").ok()?;
                }
                let is_instant = matches!(kind, 19 | 20);
                let order = if is_instant { 0 } else { bits.read(order_bits, "order count").ok()? };
                Some(Position {
                    number: None,
                    order: Some((order, 1 << order_bits)),
                    is_reference: !self.is_discardable(nal),
                })
            }
        }
    }

    /// Whether no other frame refers to this H.265 slice's frame: it is not a reference within its temporal layer, and
    /// that layer is the highest.
    pub fn is_discardable(self, nal: &[u8]) -> bool {
        match (self, nal) {
            (Self::H265 { sub_layers, .. }, &[first, second, ..]) => {
                let (kind, layer) = (first >> 1 & 0x3F, (second & 7).saturating_sub(1));
                kind < 16 && kind % 2 == 0 && layer >= sub_layers
            }
            _ => false,
        }
    }
}

/// Returns the recovery point in a NAL unit of supplemental information (H.264: D.1.8; H.265: D.2.8), if it has one.
pub fn recovery_point(codec: Codec, nal: &[u8]) -> Option<RecoveryPoint> {
    let header = if codec == Codec::H265 { 2 } else { 1 };
    let information = unescaped(nal, header, SET_BYTES);
    let mut rest = &information[..];
    loop {
        let mut numbers = [0_usize; 2];
        for number in &mut numbers {
            loop {
                let (&byte, behind) = rest.split_first()?;
                rest = behind;
                *number += usize::from(byte);
                if byte != 0xFF {
                    break;
                }
            }
        }
        let [kind, length] = numbers;
        let (message, behind) = rest.split_at_checked(length)?;
        rest = behind;
        if kind == 6 {
            let mut bits = BitReader::new(message);
            let distance = match codec {
                Codec::H265 => bits.read_se("recovery_poc_cnt").ok()?,
                _ => i32::try_from(bits.read_ue("recovery_frame_cnt").ok()?).ok()?,
            };
            bits.skip(1, "exact_match_flag").ok()?;
            return Some(RecoveryPoint { distance, is_broken_link: bits.read_bool("broken_link_flag").ok()? });
        }
    }
}

/// Returns the start of a NAL unit after its header, without the emulation prevention bytes.
fn unescaped(nal: &[u8], header: usize, most: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(nal.len().min(most));
    let mut zeros = 0;
    for &byte in nal.iter().skip(header).take(most) {
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
    out
}

#[cfg(test)]
mod tests;
