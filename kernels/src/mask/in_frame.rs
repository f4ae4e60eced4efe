//! A mask of the picture that a model sees, in the camera's frame.

use super::Mask;
use crate::view::{Orientation, View};

impl Mask {
    /// Maps a mask of a view's picture to the frame.
    ///
    /// If the view only crops, the mask is moved; otherwise pixel by pixel, about 1 ns for each that is set.
    #[must_use]
    pub fn in_frame(self, view: &View) -> Self {
        let Orientation { transposed, mirrored } = view.orientation();
        let ((width, height), [crop_left, crop_top, ..]) = (view.picture_size(), view.crop());
        let Self { left, top, width: columns, height: rows, .. } = self;
        if self.words.is_empty() {
            return self;
        }
        if view.orientation() == Orientation::UPRIGHT {
            return Self { left: left + crop_left, top: top + crop_top, ..self };
        }
        let first = |from: u32, length: u32, side: u32, mirrored: bool| {
            if mirrored { side.saturating_sub(from + length) } else { from }
        };
        let at = (first(left, columns, width, mirrored[0]), first(top, rows, height, mirrored[1]));
        let (left, top) = view.orientation().size_of(at);
        let (columns_out, rows_out) = view.orientation().size_of((columns, rows));
        let per_row = self.words_per_row();
        let mut out = Self {
            left: left + crop_left,
            top: top + crop_top,
            width: columns_out,
            height: rows_out,
            words: vec![0; columns_out.div_ceil(32) as usize * rows_out as usize],
        };
        let per_row_out = out.words_per_row();
        for (y, row) in (0..rows).zip(self.words.chunks_exact(per_row)) {
            let y = if mirrored[1] { rows - 1 - y } else { y };
            for (index, &word) in row.iter().enumerate() {
                let mut rest = word;
                while rest != 0 {
                    let x = 32 * index as u32 + rest.trailing_zeros();
                    rest &= rest - 1;
                    let x = if mirrored[0] { columns - 1 - x } else { x };
                    let (x, y) = if transposed { (y, x) } else { (x, y) };
                    out.words[y as usize * per_row_out + x as usize / 32] |= 1 << (x % 32);
                }
            }
        }
        out
    }
}
