//! Detects from a frame where the samples of a mosaic or of grey are in their 16-bit words.

use serde::Serialize;
use visiond_kernels::frame::{BayerDepth, FrameView};

/// Where samples of fewer than 16 bits are in a 16-bit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleAlignment {
    /// In the low bits, with zeros above, as V4L2 defines it.
    Bottom,
    /// In the high bits.
    Top,
}

/// Statistics of the 16-bit words of some frames.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SampleBits {
    set: u16,
    /// The bits in which a word's lowest bits differ from its highest: for samples of 10 bits, and of 12.
    unlike: [u16; 2],
}

impl SampleBits {
    /// Adds little-endian words.
    pub fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(2) {
            let word = u16::from_le_bytes([pair[0], pair[1]]);
            self.set |= word;
            self.unlike[0] |= (word ^ (word >> 10)) & 0x003f;
            self.unlike[1] |= (word ^ (word >> 12)) & 0x000f;
        }
    }

    /// Adds the rows of a mosaic or of grey, without their padding.
    pub fn add_frame(&mut self, frame: &FrameView<'_>) {
        let row_bytes = frame.format().row_bytes(0, frame.width());
        if let Some(plane) = frame.planes().first() {
            (0..frame.height() as usize).for_each(|y| self.add(&plane.row(y)[..row_bytes]));
        }
    }

    /// Returns the bits that were set in any word.
    pub fn set(self) -> u16 {
        self.set
    }

    /// Returns where samples of `depth`, 10 or 12 bits, are; `None` if the frames are too dark.
    ///
    /// A bit above the sample's depth is set only with samples in the high bits. Without such a bit, a dark frame in the high
    /// bits has words whose lowest bits are zeros, like their highest; in the low bits, some sample has one of its own lowest
    /// bits set.
    pub fn alignment(self, depth: BayerDepth) -> Option<SampleAlignment> {
        let unlike = self.unlike[usize::from(depth != BayerDepth::Bits10)];
        match (u32::from(self.set) >> depth.bits() != 0, unlike != 0) {
            (true, _) => Some(SampleAlignment::Top),
            (false, true) => Some(SampleAlignment::Bottom),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_kernels::color::ColorDescription;
    use visiond_kernels::frame::{BayerDepth, BayerOrder, FrameLayout, PixelFormat};

    use super::*;

    fn place_of(words: [u16; 4], depth: BayerDepth) -> Option<SampleAlignment> {
        let format = PixelFormat::Bayer(BayerOrder::Rggb, BayerDepth::Bits16);
        let layout = FrameLayout::packed(format, 2, 2, ColorDescription::default()).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bits = SampleBits::default();
        bits.add_frame(&layout.view(&bytes).unwrap());
        bits.alignment(depth)
    }

    #[test]
    fn words_say_where_samples_stand() {
        // 0x081 of 10 bits in the low bits, 0x080 in the high bits.
        assert_eq!(place_of([0, 0, 0x0081, 0], BayerDepth::Bits10), Some(SampleAlignment::Bottom));
        assert_eq!(place_of([0, 0, 0x2008, 0], BayerDepth::Bits10), Some(SampleAlignment::Top));
        assert_eq!(place_of([0x03ff; 4], BayerDepth::Bits10), Some(SampleAlignment::Bottom));
        assert_eq!(place_of([0x0fff; 4], BayerDepth::Bits12), Some(SampleAlignment::Bottom));
        // The black level of a covered sensor: 64 of 1023, 256 of 4095.
        assert_eq!(place_of([0x1004; 4], BayerDepth::Bits10), Some(SampleAlignment::Top));
        assert_eq!(place_of([0x1001; 4], BayerDepth::Bits12), Some(SampleAlignment::Top));
        // 240 of 4095 in the high bits sets no bit above the depth.
        assert_eq!(place_of([0x0f00; 4], BayerDepth::Bits12), None);
        assert_eq!(place_of([0x00f1, 0x0f00, 0x0f00, 0x0f00], BayerDepth::Bits12), Some(SampleAlignment::Bottom));
        assert_eq!(place_of([0; 4], BayerDepth::Bits10), None);
    }
}
