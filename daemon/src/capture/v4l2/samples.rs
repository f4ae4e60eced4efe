//! Where the samples of a mosaic stand in their 16-bit words, told from a frame.

use serde::Serialize;
use visiond_kernels::frame::{BayerDepth, FrameView};

/// Where samples of fewer than 16 bits stand in a word of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the low bits, with zeros above, as V4L2 defines it.
    Bottom,
    /// In the high bits.
    Top,
}

/// Bits that are set in any 16-bit word of some frames.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Bits(pub u16);

impl Bits {
    /// Adds words, little-endian.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 |= bytes.chunks_exact(2).fold(0, |bits, word| bits | u16::from_le_bytes([word[0], word[1]]));
    }

    /// Adds a mosaic's rows, without the padding behind them.
    pub fn add_frame(&mut self, frame: &FrameView<'_>) {
        if let Some(plane) = frame.planes().first() {
            (0..frame.height() as usize).for_each(|y| self.add(plane.row(y)));
        }
    }

    /// Where samples of `depth` stand; `None` of frames that are all black.
    ///
    /// One bit above a sample's is enough: at the bottom there is none. At the top even the black level of a covered sensor, 16
    /// of 1023 or more, has one.
    pub fn place(self, depth: BayerDepth) -> Option<Place> {
        let is_above = u32::from(self.0) >> depth.bits() != 0;
        (self.0 != 0).then_some(if is_above { Place::Top } else { Place::Bottom })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_kernels::color::ColorDescription;
    use visiond_kernels::frame::{BayerDepth, BayerOrder, FrameLayout, PixelFormat};

    use super::*;

    fn place_of(words: [u16; 4], depth: BayerDepth) -> Option<Place> {
        let format = PixelFormat::Bayer(BayerOrder::Rggb, BayerDepth::Bits16);
        let layout = FrameLayout::packed(format, 2, 2, ColorDescription::default()).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bits = Bits::default();
        bits.add_frame(&layout.view(&bytes).unwrap());
        bits.place(depth)
    }

    #[test]
    fn the_highest_bit_says_where_samples_stand() {
        // 0x080 of 10 bits, at both places.
        assert_eq!(place_of([0, 0, 0x0080, 0], BayerDepth::Bits10), Some(Place::Bottom));
        assert_eq!(place_of([0, 0, 0x2008, 0], BayerDepth::Bits10), Some(Place::Top));
        assert_eq!(place_of([0x03ff; 4], BayerDepth::Bits10), Some(Place::Bottom));
        assert_eq!(place_of([0x0fff; 4], BayerDepth::Bits12), Some(Place::Bottom));
        // A covered sensor's black level, 16 of 4095.
        assert_eq!(place_of([0x0100, 0x0110, 0x1001, 0x0100], BayerDepth::Bits12), Some(Place::Top));
        assert_eq!(place_of([0; 4], BayerDepth::Bits10), None);
    }
}
