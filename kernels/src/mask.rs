//! Masks of objects: the pixels of a frame that belong to one.
//!
//! - [`Mask`]: the pixels of one object.
//! - [`MaskAssembler`]: computes masks from a model's outputs: prototypes and coefficients, or a plane for each object.
//! - [`CudaMasks`]: the same on the GPU.
//! - [`ClassMapper`]: computes a [`ClassMap`], which yields masks, from the scores or class numbers of a semantic segmentation.
//! - [`Polygons`]: a mask as polygons.
//! - [`rle_encode`], [`rle_decode`]: a mask as COCO's compressed runs.

mod assemble;
mod class_map;
mod cuda;
mod in_frame;
mod launch;
mod polygons;
mod rle;
mod spec;

#[cfg(test)]
mod tests;

pub use assemble::MaskAssembler;
pub use class_map::{ClassMap, ClassMapper, ClassPlanes, ClassRegion, ClassScores};
pub use cuda::{CudaMasks, MaskError};
pub use polygons::{MAX_POINTS, Polygons};
pub use rle::{RleError, rle_decode, rle_encode};
pub use spec::{MaskAxis, MaskFrame, MaskJob, MaskParts, MaskSpec, MaskSpecError};

/// The pixels of an object, as bits within a rectangle of the frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mask {
    /// The first column of the rectangle, in pixels of the frame.
    pub left: u32,
    /// The first row, in pixels of the frame.
    pub top: u32,
    /// Width of the rectangle in pixels.
    pub width: u32,
    /// Height of the rectangle in pixels.
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

    /// Returns how many pixel edges its contours have; `None` if there are more than `most`, which it detects without reading the
    /// rest of the mask.
    ///
    /// One read of the words. The cost of tracing and encoding a mask grows with this number.
    pub fn edges_within(&self, most: u64) -> Option<u64> {
        let per_row = self.words_per_row().max(1);
        let mut edges = 0;
        let mut above: &[u32] = &[];
        for row in self.words.chunks_exact(per_row) {
            let mut before = 0;
            for (at, &word) in row.iter().enumerate() {
                let tops = word & !above.get(at).copied().unwrap_or(0);
                let lefts = word & !(word << 1 | before >> 31);
                before = word;
                // Within an object and far from it there are none.
                if tops | lefts != 0 {
                    // Every contour has as many edges to the right as to the left, and as many down as up.
                    edges += 2 * u64::from((u64::from(tops) | u64::from(lefts) << 32).count_ones());
                }
            }
            if edges > most {
                return None;
            }
            above = row;
        }
        Some(edges)
    }

    /// Returns the same mask within the smallest rectangle of whole words and rows.
    #[must_use]
    pub fn cropped(&self) -> Self {
        let per_row = self.words_per_row().max(1);
        let rows = || self.words.chunks_exact(per_row).enumerate().filter(|(_, row)| row.iter().any(|word| *word != 0));
        let (Some((top, _)), Some((bottom, _))) = (rows().next(), rows().next_back()) else { return Self::default() };
        let used = |at: &usize| rows().any(|(_, row)| row[*at] != 0);
        let (first, last) = ((0..per_row).find(used).unwrap_or(0), (0..per_row).rfind(used).unwrap_or(0));
        let end = (32 * (last as u32 + 1)).min(self.width);
        let kept = self.words.chunks_exact(per_row).take(bottom + 1).skip(top);
        Self {
            left: self.left + 32 * first as u32,
            top: self.top + top as u32,
            width: end - 32 * first as u32,
            height: (bottom + 1 - top) as u32,
            words: kept.flat_map(|row| &row[first..=last]).copied().collect(),
        }
    }

    /// Returns the intersection over union with another mask of the same frame: 0 if both are empty.
    pub fn iou(&self, other: &Self) -> f64 {
        let mut common = 0_u64;
        for (row, words) in self.words.chunks_exact(self.words_per_row().max(1)).enumerate() {
            let y = i64::from(self.top) + row as i64 - i64::from(other.top);
            for (at, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
                let x = i64::from(self.left) + 32 * at as i64 - i64::from(other.left);
                common += u64::from((word & other.bits_at(x, y)).count_ones());
            }
        }
        let union = self.area() + other.area() - common;
        if union == 0 { 0.0 } else { common as f64 / union as f64 }
    }

    /// Returns the pixels of this mask and of another of the same frame.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        if self.words.is_empty() || other.words.is_empty() {
            return if self.words.is_empty() { other.clone() } else { self.clone() };
        }
        let (left, top) = (self.left.min(other.left), self.top.min(other.top));
        let right = (self.left + self.width).max(other.left + other.width);
        let bottom = (self.top + self.height).max(other.top + other.height);
        let mut joined = Self::default();
        joined.clear([left, top, right, bottom]);
        let per_row = joined.words_per_row();
        for (row, words) in joined.words.chunks_exact_mut(per_row).enumerate() {
            let y = i64::from(top) + row as i64;
            for (at, word) in words.iter_mut().enumerate() {
                let x = i64::from(left) + 32 * at as i64;
                let of = |mask: &Self| mask.bits_at(x - i64::from(mask.left), y - i64::from(mask.top));
                *word = of(self) | of(other);
            }
        }
        joined
    }

    /// Returns the 32 pixels from column `x` of row `y` on, relative to the rectangle; those outside are 0.
    fn bits_at(&self, x: i64, y: i64) -> u32 {
        let per_row = self.words_per_row();
        let word = |index: i64| match (usize::try_from(y), usize::try_from(index)) {
            (Ok(row), Ok(column)) if column < per_row => self.words.get(row * per_row + column).copied().unwrap_or(0),
            _ => 0,
        };
        let (first, shift) = (x.div_euclid(32), x.rem_euclid(32) as u32);
        let both = u64::from(word(first)) | u64::from(word(first + 1)) << 32;
        (both >> shift) as u32
    }

    /// Adds its words to `words`, or makes it the empty mask and returns `false` if there would be more than 64 MiB of
    /// them: the limit for all masks of a frame.
    pub fn fits(&mut self, words: &mut usize) -> bool {
        let fits = *words + self.words.len() <= spec::MAX_WORDS;
        if fits {
            *words += self.words.len();
        } else {
            *self = Self::default();
        }
        fits
    }

    /// Makes this the empty mask of a rectangle, and keeps the memory.
    fn clear(&mut self, [left, top, right, bottom]: [u32; 4]) {
        (self.left, self.top) = (left, top);
        (self.width, self.height) = (right.saturating_sub(left), bottom.saturating_sub(top));
        if self.width == 0 || self.height == 0 {
            (self.left, self.top, self.width, self.height) = (0, 0, 0, 0);
        }
        let words = self.words_per_row() * self.height as usize;
        self.words.clear();
        self.words.resize(words, 0);
    }
}
