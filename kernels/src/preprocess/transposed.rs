//! Rows of a picture that are columns of its frame, read as words.
//!
//! A column of a frame is in as many cache lines as it has pixels, so many neighbouring columns are read at once: for each word of
//! the picture's rows, up to [`BAND`] pixels of a row of the frame, which become that word of as many rows of the picture. The band
//! stays in the processor's cache.

use super::fetch::{fetch, fetch_row, words};
use super::simd::{Isa, SliceLoop};
use crate::frame::{FrameView, PixelFormat};
use crate::view::Orientation;

/// The picture's rows that are read at once.
const BAND: usize = 64;

/// The neighbouring columns that are read for a band, if these are at most twice as many as its rows.
const SPAN: usize = 2 * BAND;

/// The words of a row that are made at once.
const LANES: usize = 8;

/// The words of a cache line.
const LINE_WORDS: usize = 16;

/// Which pixels of the frame make which words of the picture's rows.
pub(super) struct TransposedPlan {
    /// The picture's rows that are needed, rising, and the frame's column of each.
    rows: Vec<u32>,
    columns: Vec<u32>,
    /// The frame's row of each word, a multiple of [`LANES`].
    lines: Vec<u32>,
    /// The words from one row of the band to the next.
    stride: usize,
    /// How many needed rows before one that is asked for may be asked for later.
    back: usize,
}

impl TransposedPlan {
    /// Makes the plan for a picture of `size`. `rows` are those of the picture that are needed, in any order, and `words` the
    /// picture's column of each word of a row.
    pub(super) fn new(
        orientation: Orientation,
        size: (u32, u32),
        rows: impl Iterator<Item = u32>,
        words: &[u32],
        back: usize,
    ) -> Self {
        let of = |position: u32, side: u32, mirrored: bool| if mirrored { side - 1 - position } else { position };
        let mut rows: Vec<u32> = rows.collect();
        rows.sort_unstable();
        rows.dedup();
        let columns = rows.iter().map(|&row| of(row, size.1, orientation.mirrored[1])).collect();
        let mut lines: Vec<u32> = words.iter().map(|&column| of(column, size.0, orientation.mirrored[0])).collect();
        let last = lines.last().copied().unwrap_or(0);
        lines.resize(lines.len().next_multiple_of(LANES), last);
        // An odd number of cache lines, so that the words of a column are in different sets of the cache.
        let stride = (lines.len().div_ceil(LINE_WORDS) | 1) * LINE_WORDS;
        Self { rows, columns, lines, stride, back }
    }
}

/// A band of rows. Allocates only for a picture that is wider than any before.
#[derive(Default)]
pub(super) struct TransposedRows {
    words: Vec<u32>,
    /// The first of the plan's rows that are held, and how many.
    first: usize,
    held: usize,
}

impl TransposedRows {
    /// Forgets the last frame.
    pub(super) fn start(&mut self, plan: &TransposedPlan) {
        self.held = 0;
        self.words.resize(self.words.len().max(BAND * plan.stride), 0);
    }

    /// Returns row `y` of the picture, which is one of the plan's; 0.5 to 1 ns for each word.
    ///
    /// Words are as [`fetch`] makes them, those of packed 4:2:2 as of an even column.
    pub(super) fn row(&mut self, isa: Isa, plan: &TransposedPlan, frame: &FrameView<'_>, y: u32) -> &[u32] {
        let index = plan.rows.partition_point(|&row| row < y);
        if !(self.first..self.first + self.held).contains(&index) {
            self.first = index.saturating_sub(plan.back);
            self.held = BAND.min(plan.rows.len() - self.first);
            self.fill(isa, plan, frame);
        }
        &self.words[(index - self.first) * plan.stride..][..plan.stride]
    }

    fn fill(&mut self, isa: Isa, plan: &TransposedPlan, frame: &FrameView<'_>) {
        let columns = &plan.columns[self.first..self.first + self.held];
        let ends = || [columns[0], columns[columns.len() - 1]].map(|column| column as usize);
        let [from, to] = [ends().into_iter().min().unwrap_or(0) & !1, ends().into_iter().max().unwrap_or(0) + 1];
        let is_span = to - from <= SPAN && to - from <= 2 * columns.len();
        // Where each of the columns is among the pixels that are read of a line.
        let mut offsets = [0_u8; BAND];
        for (index, (offset, &column)) in offsets.iter_mut().zip(columns).enumerate() {
            *offset = if is_span { column as usize - from } else { index } as u8;
        }
        let (offsets, count) = (&offsets[..columns.len()], if is_span { to - from } else { columns.len() });
        let is_odd = |index: usize| if is_span { index & 1 == 1 } else { columns[index] & 1 == 1 };
        let luma = is_packed(frame.format()).then(|| 0xff << words(frame.format()).first);
        let mut odd = [0; SPAN];
        odd.iter_mut()
            .enumerate()
            .take(count)
            .for_each(|(index, odd)| *odd = if is_odd(index) { luma.unwrap_or(0) } else { 0 });

        let mut lines = [[0; SPAN]; LANES];
        for (place, block) in plan.lines.chunks_exact(LANES).enumerate() {
            for (index, &line) in block.iter().enumerate() {
                if let Some(known) = block[..index].iter().rposition(|&before| before == line) {
                    lines[index] = lines[known];
                } else if is_span {
                    fetch_row(frame, line as usize, from, &mut lines[index][..count]);
                } else {
                    fetch(frame, line as usize, columns, &mut lines[index][..count]);
                }
            }
            let odd = luma.map(|_| &odd);
            isa.run(Transpose {
                count,
                lines: &mut lines,
                odd,
                offsets,
                stride: plan.stride,
                out: &mut self.words[place * LANES..],
            });
        }
    }
}

fn is_packed(format: PixelFormat) -> bool {
    matches!(format, PixelFormat::Yuyv | PixelFormat::Uyvy | PixelFormat::Yvyu | PixelFormat::Vyuy)
}

/// Makes words of lines neighbours in rows that are `stride` words apart.
struct Transpose<'a> {
    /// The words of a line.
    count: usize,
    lines: &'a mut [[u32; SPAN]; LANES],
    /// The bits of luma in the words of odd columns of packed 4:2:2, 0 for even ones.
    odd: Option<&'a [u32; SPAN]>,
    /// The row of each word.
    offsets: &'a [u8],
    stride: usize,
    out: &'a mut [u32],
}

impl SliceLoop for Transpose<'_> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { count, lines, odd, offsets, stride, out } = self;
        // Whole vectors.
        let count = count.next_multiple_of(LANES).min(SPAN);
        if let Some(odd) = odd {
            for line in lines.iter_mut() {
                for (word, &luma) in line[..count].iter_mut().zip(&odd[..count]) {
                    *word = *word & !luma | (*word >> 16) & luma;
                }
            }
        }
        let mut pairs = [[0_u64; SPAN]; LANES / 2];
        for (pairs, two) in pairs.iter_mut().zip(lines.as_chunks::<2>().0) {
            for ((pair, &low), &high) in pairs[..count].iter_mut().zip(&two[0][..count]).zip(&two[1][..count]) {
                *pair = u64::from(low) | u64::from(high) << 32;
            }
        }
        for (row, &offset) in out.chunks_mut(stride).zip(offsets) {
            let Some(row) = row.first_chunk_mut::<LANES>() else { continue };
            for (words, pairs) in row.as_chunks_mut::<2>().0.iter_mut().zip(&pairs) {
                let pair = pairs[offset as usize % SPAN];
                *words = [pair as u32, (pair >> 32) as u32];
            }
        }
    }
}
