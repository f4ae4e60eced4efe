//! Decides which frames of a stream may be shown as soon as they are decoded.
//!
//! Every H.265 stream states how far frames are reordered. H.264 need not (annex E.2.1, `bitstream_restriction_flag`), and many
//! cameras do not, although they reorder nothing. A decoder that follows the standard then waits until its memory is full. Like
//! ffmpeg, visiond shows frames of such a stream at once until one is predicted from a later one (a B slice).

use h264_reader::nal::sps::{PicOrderCntType, SeqParameterSet};
use h264_reader::rbsp::{BitReader, decode_nal};
use visiond_kernels::nvdec::Showing;

use super::access_unit::{AccessUnit, Codec, nals};

/// How the frames of one stream are shown.
#[derive(Debug)]
pub struct PictureOrder(Showing);

impl PictureOrder {
    /// Decides for the stream that begins with `first`. Streams of key frames only are shown at once.
    pub fn of(first: &AccessUnit, key_frames_only: bool) -> Self {
        let is_unknown = || first.codec == Codec::H264 && nals(&first.data).any(is_without_order);
        Self(if key_frames_only || is_unknown() { Showing::AtOnce } else { Showing::InOrder })
    }

    /// Whether a B slice can change how frames are shown.
    pub fn may_change(&self) -> bool {
        self.0 == Showing::AtOnce
    }

    /// Decides for the stream's next frame.
    pub fn next(&mut self, unit: &AccessUnit) -> Showing {
        if self.0 == Showing::AtOnce && unit.codec == Codec::H264 && nals(&unit.data).any(is_bidirectional) {
            self.0 = Showing::InOrder;
        }
        self.0
    }
}

/// Whether a NAL unit is a sequence parameter set that does not state how far frames are reordered.
fn is_without_order(nal: &[u8]) -> bool {
    if nal.first().is_none_or(|header| header & 0x1F != 7) {
        return false;
    }
    let Ok(payload) = decode_nal(nal) else { return false };
    let Ok(set) = SeqParameterSet::from_bits(BitReader::new(&payload[..])) else { return false };
    let is_told = set.vui_parameters.is_some_and(|usability| usability.bitstream_restrictions.is_some());
    // Order counts of type 2 equal the decoding order.
    !is_told && !matches!(set.pic_order_cnt, PicOrderCntType::TypeTwo)
}

/// Whether a NAL unit is the first slice of a frame, and a B slice: `first_mb_in_slice` is 0, and `slice_type` 1 or 6.
fn is_bidirectional(nal: &[u8]) -> bool {
    let &[header, start, ..] = nal else { return false };
    matches!(header & 0x1F, 1 | 2) && (start & 0xF0 == 0b1010_0000 || start & 0xFC == 0b1001_1100)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use visiond_frames::clock::{self, simulated::SimulatedClock};

    use super::super::access_unit::{Access, Fate};
    use super::*;

    /// Main profile, 768x576, order counts of type 0, no usability information.
    const WITHOUT_ORDER: &[u8] = &[0x67, 0x4D, 0x40, 0x1F, 0xF2, 0x01, 0x80, 0x24, 0xC8];

    fn unit(codec: Codec, nal: &[u8]) -> AccessUnit {
        let data = Arc::new([&[0, 0, 0, 1], nal].concat());
        let captured = clock::now(&SimulatedClock::default());
        let (access, fate) = (Access::Key, Fate::Published);
        AccessUnit {
            codec,
            data,
            access,
            follows_loss: false,
            position: None,
            fate,
            presentation: 0,
            captured,
            generation: 1,
        }
    }

    #[test]
    fn a_stream_that_leaves_its_order_open_is_shown_at_once_until_a_b_slice() {
        let mut order = PictureOrder::of(&unit(Codec::H264, WITHOUT_ORDER), false);
        let p_slice = unit(Codec::H264, &[0x41, 0b1001_1010, 0]);
        let b_slice = unit(Codec::H264, &[0x01, 0b1001_1110, 0]);
        assert_eq!(order.next(&p_slice), Showing::AtOnce);
        assert_eq!(order.next(&b_slice), Showing::InOrder);
        assert_eq!(order.next(&p_slice), Showing::InOrder);
    }

    #[test]
    fn key_frames_alone_are_shown_at_once() {
        assert_eq!(PictureOrder::of(&unit(Codec::H265, &[0x26, 1, 0xAF]), false).0, Showing::InOrder);
        assert_eq!(PictureOrder::of(&unit(Codec::H265, &[0x26, 1, 0xAF]), true).0, Showing::AtOnce);
    }

    #[test]
    fn damaged_sets_decide_nothing() {
        for length in 0..WITHOUT_ORDER.len() {
            PictureOrder::of(&unit(Codec::H264, &WITHOUT_ORDER[..length]), false);
        }
    }
}
