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

/// Where the samples of `depth` stand; `None` of a frame that is all black, or has no such samples.
///
/// One word above the largest sample is enough: at the bottom there is none. At the top even the black level of a covered sensor,
/// 16 of 1023 or more, is one.
pub fn place(frame: &FrameView<'_>, depth: BayerDepth) -> Option<Place> {
    let plane = frame.planes().first().filter(|_| matches!(depth, BayerDepth::Bits10 | BayerDepth::Bits12))?;
    let largest = (1_u32 << depth.bits()) - 1;
    let rows = (0..frame.height() as usize).map(|y| plane.row(y));
    let highest = rows.flat_map(|row| row.chunks_exact(2)).map(|word| u16::from_le_bytes([word[0], word[1]])).max()?;
    match u32::from(highest) {
        0 => None,
        highest if highest > largest => Some(Place::Top),
        _ => Some(Place::Bottom),
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
        place(&layout.view(&bytes).unwrap(), depth)
    }

    #[test]
    fn the_highest_word_says_where_samples_stand() {
        // 0x080 of 10 bits, at both places.
        assert_eq!(place_of([0, 0, 0x0080, 0], BayerDepth::Bits10), Some(Place::Bottom));
        assert_eq!(place_of([0, 0, 0x2008, 0], BayerDepth::Bits10), Some(Place::Top));
        assert_eq!(place_of([0x03ff; 4], BayerDepth::Bits10), Some(Place::Bottom));
        assert_eq!(place_of([0x0fff; 4], BayerDepth::Bits12), Some(Place::Bottom));
        // A covered sensor's black level, 16 of 4095.
        assert_eq!(place_of([0x0100, 0x0110, 0x1001, 0x0100], BayerDepth::Bits12), Some(Place::Top));
        assert_eq!(place_of([0; 4], BayerDepth::Bits10), None);
        assert_eq!(place_of([9; 4], BayerDepth::Bits8), None);
    }
}
