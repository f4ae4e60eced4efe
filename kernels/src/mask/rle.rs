//! A mask as COCO's compressed runs.
//!
//! The pixels of the whole frame, column by column, are counted in runs that alternate between 0 and 1 and begin with 0. From
//! the fourth on, a run is written as its difference from the one two before. A number is written from its lowest bits on, five
//! to a character, of which bit 5 means that more follow, plus 48: `rleToString` of pycocotools' common/maskApi.c.

use super::Mask;

/// The most characters of a number: a difference of two runs has 33 bits and a sign.
const MAX_CHARACTERS: u32 = 7;

/// A string that is not a mask of its frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RleError {
    /// A character that does not occur in runs.
    #[error(
        "cannot read the runs of a mask: character {0} is not one of `0` to `o`: write what pycocotools' encode returns"
    )]
    Character(usize),
    /// A number has too many characters, or the last one has too few.
    #[error(
        "cannot read the runs of a mask: the number at character {0} has no end: write all of what pycocotools' encode returns"
    )]
    Number(usize),
    /// A run would be negative.
    #[error("cannot read the runs of a mask: run {0} is negative: write what pycocotools' encode returns")]
    Negative(usize),
    /// The runs do not fill exactly the frame's pixels.
    #[error(
        "cannot read the runs of a mask: they do not fill {width} x {height} pixels: give the height and width that it was encoded for"
    )]
    Size {
        /// The frame's width.
        width: u32,
        /// The frame's height.
        height: u32,
    },
}

/// Writes runs as they come.
#[derive(Debug, Default)]
struct Runs {
    text: String,
    /// How many were written, and the last two.
    count: usize,
    last: [u64; 2],
    /// The pixels of the current run, and whether they are 1.
    length: u64,
    set: bool,
}

impl Runs {
    /// Adds pixels of one value.
    fn add(&mut self, set: bool, pixels: u64) {
        if pixels > 0 && set != self.set {
            self.end();
        }
        self.length += pixels;
    }

    fn end(&mut self) {
        let before = if self.count > 2 { self.last[0] } else { 0 };
        let mut rest = self.length.cast_signed() - before.cast_signed();
        loop {
            let mut bits = (rest & 0x1f) as u8;
            rest >>= 5;
            let more = if bits & 0x10 != 0 { rest != -1 } else { rest != 0 };
            if more {
                bits |= 0x20;
            }
            self.text.push(char::from(bits + 48));
            if !more {
                break;
            }
        }
        self.count += 1;
        self.last = [self.last[1], self.length];
        self.length = 0;
        self.set = !self.set;
    }
}

/// Returns a mask as COCO's compressed runs for a frame of that size, as pycocotools' `encode` does.
///
/// The part of a mask outside the frame is left out.
pub fn rle_encode(mask: &Mask, frame_width: u32, frame_height: u32) -> String {
    let height = u64::from(frame_height);
    let left = mask.left.min(frame_width);
    let right = mask.left.saturating_add(mask.width).clamp(left, frame_width);
    let top = mask.top.min(frame_height);
    let bottom = mask.top.saturating_add(mask.height).clamp(top, frame_height);
    let per_row = mask.words_per_row();
    let (above, below) = (u64::from(top), u64::from(frame_height - bottom));
    let rows = (bottom - top) as usize;
    // 32 columns, whose rows are bits.
    let blocks = rows.div_ceil(32);
    let mut columns = vec![0_u32; 32 * blocks];
    let mut runs = Runs::default();
    runs.add(false, u64::from(left) * height);
    for (word, first) in (left..right).step_by(32).enumerate() {
        for block in 0..blocks {
            let mut square = [0_u32; 32];
            for (i, line) in square.iter_mut().enumerate().take(rows - 32 * block) {
                *line = mask.words.get((32 * block + i) * per_row + word).copied().unwrap_or(0);
            }
            transpose(&mut square);
            for (i, column) in square.into_iter().enumerate() {
                columns[i * blocks + block] = column;
            }
        }
        for column in columns.chunks_exact(blocks.max(1)).take((right - first) as usize) {
            runs.add(false, above);
            let mut left_rows = rows;
            for &bits in column {
                let bits_here = left_rows.min(32) as u32;
                let mut at = 0;
                while at < bits_here {
                    let set = bits >> at & 1 == 1;
                    let rest = if set { !bits } else { bits } >> at;
                    let length = rest.trailing_zeros().min(bits_here - at);
                    runs.add(set, u64::from(length));
                    at += length;
                }
                left_rows -= bits_here as usize;
            }
            runs.add(false, below);
        }
    }
    let drawn = if rows == 0 { left } else { right };
    runs.add(false, u64::from(frame_width - drawn) * height);
    runs.end();
    runs.text
}

/// Transposes a square of bits: bit `i` of line `j` becomes bit `j` of line `i`.
///
/// Hacker's Delight, section 7-3, with the lowest bit as the leftmost.
fn transpose(square: &mut [u32; 32]) {
    let mut mask = 0x0000_ffff_u32;
    let mut step = 16;
    while step != 0 {
        let mut i = 0;
        while i < 32 {
            let swapped = (square[i] >> step ^ square[i + step]) & mask;
            square[i] ^= swapped << step;
            square[i + step] ^= swapped;
            i = (i + step + 1) & !step;
        }
        step >>= 1;
        mask ^= mask << step;
    }
}

/// Returns the mask of a whole frame from COCO's compressed runs.
///
/// It allocates a bit for each pixel of the frame, whatever the string is.
///
/// # Errors
/// The string has an invalid character, an endless number or a negative run, or does not fill the frame exactly.
pub fn rle_decode(text: &str, frame_width: u32, frame_height: u32) -> Result<Mask, RleError> {
    let wrong_size = || RleError::Size { width: frame_width, height: frame_height };
    let pixels = u64::from(frame_width) * u64::from(frame_height);
    let mut mask = Mask { left: 0, top: 0, width: frame_width, height: frame_height, words: Vec::new() };
    let per_row = mask.words_per_row();
    mask.words.resize(per_row.checked_mul(frame_height as usize).ok_or_else(wrong_size)?, 0);
    let (mut at, mut last, mut run, mut set) = (0_u64, [0_i64; 2], 0_usize, false);
    let mut characters = text.bytes().enumerate().peekable();
    while let Some(&(start, _)) = characters.peek() {
        let (mut value, mut shift) = (0_i64, 0);
        loop {
            let (index, byte) = characters.next().ok_or(RleError::Number(start))?;
            let bits = byte.wrapping_sub(48);
            if bits > 0x3f {
                return Err(RleError::Character(index));
            }
            if shift == 5 * MAX_CHARACTERS {
                return Err(RleError::Number(start));
            }
            value |= i64::from(bits & 0x1f) << shift;
            shift += 5;
            if bits & 0x20 == 0 {
                if bits & 0x10 != 0 {
                    value |= -1 << shift;
                }
                break;
            }
        }
        if run > 2 {
            value += last[0];
        }
        last = [last[1], value];
        let length = u64::try_from(value).map_err(|_| RleError::Negative(run))?;
        if length > pixels - at {
            return Err(wrong_size());
        }
        if set {
            let height = u64::from(frame_height);
            let (mut x, mut y) = ((at / height) as usize, (at % height) as usize);
            for _ in 0..length {
                mask.words[y * per_row + x / 32] |= 1 << (x % 32);
                y += 1;
                if y == frame_height as usize {
                    (x, y) = (x + 1, 0);
                }
            }
        }
        at += length;
        run += 1;
        set = !set;
    }
    if at == pixels { Ok(mask) } else { Err(wrong_size()) }
}
