//! Masks of objects: which pixels of a frame belong to one.

/// The pixels of an object, as bits within a rectangle of the frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mask {
    /// The first column of the rectangle, in pixels of the frame.
    pub left: u32,
    /// The first row.
    pub top: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// [`Self::words_per_row`] words for each row; bit 0 of a word is its leftmost pixel. Bits beyond `width` are 0.
    pub words: Vec<u32>,
}

impl Mask {
    /// Returns the words of each row.
    pub const fn words_per_row(&self) -> usize {
        self.width.div_ceil(32) as usize
    }

    /// Returns how many pixels belong to the object.
    pub fn area(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}
