//! The bytes of a frame that are blanked, and blanking them.
//!
//! A [`MaskPlan`] holds, for one layout, every run of bytes to write; the polygon is converted once per layout. All rounding is
//! outwards: a pixel that a polygon touches at all is blanked, and so is every chroma sample that such a pixel has a part in.

use std::array;
use std::ops::Range;

use crate::color::{ColorDescription, ColorRange, GreyLevels};
use crate::frame::{FrameLayout, PixelFormat};
use crate::polygon::{Polygon, merged};

/// The longer side of a frame has about this many blocks of a mosaic.
const BLOCKS: u32 = 40;
/// The most rows of a block in a plane that its mean is made of. The others are not read, which hides as much.
pub(super) const SAMPLED_ROWS: usize = 8;

/// What masked pixels become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// One colour: red, green, blue.
    Color([u8; 3]),
    /// Blocks of a fortieth of the frame's longer side, each with the mean of some of its rows.
    Mosaic,
}

/// An area of a camera's frames that nobody may see.
#[derive(Debug, Clone, PartialEq)]
pub struct PrivacyMask {
    /// The area.
    pub polygon: Polygon,
    /// What its pixels become.
    pub fill: Fill,
}

/// The writes that blank the masked areas of a frame with one layout: first those of colours, then those of mosaics. No two write the
/// same byte.
#[derive(Debug)]
pub struct MaskPlan {
    pub(super) layout: FrameLayout,
    /// One row of each colour, plane and kind of row.
    pub(super) colors: Vec<Vec<u8>>,
    pub(super) runs: Vec<Run>,
    pub(super) bands: Vec<Band>,
    scratch: Scratch,
}

/// Bytes of a row that become those at the same place of a row of one colour.
#[derive(Debug)]
pub(super) struct Run {
    /// The first byte in the frame.
    pub(super) start: usize,
    /// The bytes of the row.
    pub(super) bytes: Range<usize>,
    /// The index in [`MaskPlan::colors`].
    pub(super) color: usize,
}

/// Blocks of a mosaic that lie side by side, in one plane and, of a mosaic of colours, in every second row.
#[derive(Debug)]
pub(super) struct Band {
    pub(super) cell: Cell,
    /// Where the blocks begin in a row, in bytes, and where the last one ends: one more than blocks.
    pub(super) edges: Vec<usize>,
    /// The rows that the means are made of, by their first bytes in the frame, at equal distances: at most [`SAMPLED_ROWS`].
    pub(super) rows: Vec<usize>,
    /// The bytes that become the means: the first byte of their row in the frame, and the bytes of the row.
    pub(super) masked: Vec<(usize, Range<usize>)>,
}

/// Memory for the means of a band, as long as the longest row.
#[derive(Debug, Default)]
struct Scratch {
    /// The sums of the sampled rows, byte by byte.
    sums: Vec<u16>,
    /// A row of the means.
    row: Vec<u8>,
}

// Eight bytes of 255 are far from the largest sum.
const _: () = assert!(SAMPLED_ROWS * 255 <= u16::MAX as usize);

/// The smallest part of a plane's row whose samples repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    /// Its width in pixels of the frame.
    pixels: usize,
    /// Rows of the frame that share it.
    rows: usize,
    /// Its samples, 1 to 4.
    pub(super) samples: usize,
    /// The bytes of a sample, 1 or 2.
    pub(super) sample_bytes: usize,
}

impl Cell {
    fn of(format: PixelFormat, plane: usize) -> Self {
        let (pixels, samples) = match format {
            PixelFormat::Yuyv | PixelFormat::Uyvy | PixelFormat::Yvyu | PixelFormat::Vyuy => (2, 4),
            PixelFormat::I420 if plane > 0 => (2, 1),
            _ if plane > 0 => (2, 2),
            PixelFormat::Rgb | PixelFormat::Bgr => (1, 3),
            PixelFormat::Rgba | PixelFormat::Bgra => (1, 4),
            PixelFormat::Bayer(..) => (2, 2),
            _ => (1, 1),
        };
        let sample_bytes = match format {
            PixelFormat::P010 => 2,
            _ => format.sample_depth().map_or(1, |depth| depth.sample_bytes()),
        };
        let rows = if plane > 0 { format.rows_per_chroma_row() } else { 1 };
        Self { pixels, rows, samples, sample_bytes }
    }

    pub(super) fn bytes(self) -> usize {
        self.samples * self.sample_bytes
    }
}

/// The pixels of each row that a mask covers.
type Spans = Vec<Vec<Range<u32>>>;

impl MaskPlan {
    /// Plans the writes for frames of `layout`. A colour covers a mosaic and an earlier colour that overlap it.
    pub fn new(masks: &[PrivacyMask], layout: &FrameLayout) -> Self {
        let mut plan = Self {
            layout: *layout,
            colors: Vec::new(),
            runs: Vec::new(),
            bands: Vec::new(),
            scratch: Scratch::default(),
        };
        // All mosaics together, so that none reads what another has written.
        let mut mosaic: Spans = vec![Vec::new(); layout.height() as usize];
        let mut colors = Vec::new();
        for mask in masks {
            let spans = mask.polygon.pixels(layout.width(), layout.height());
            match mask.fill {
                Fill::Color(rgb) => colors.push((rgb, spans)),
                Fill::Mosaic => mosaic.iter_mut().zip(spans).for_each(|(all, row)| all.extend(row)),
            }
        }
        for plane in 0..layout.planes().len() {
            let mut covered = vec![Vec::new(); layout.format().plane_rows(plane, layout.height())];
            for (rgb, spans) in colors.iter().rev() {
                plan.add_color(plane, spans, *rgb, &mut covered);
            }
            plan.add_mosaic(plane, &mosaic, &covered);
        }
        let longest = plan.bands.iter().filter_map(|band| band.edges.last()).max().copied().unwrap_or_default();
        plan.scratch = Scratch { sums: vec![0; longest], row: vec![0; longest] };
        plan
    }

    /// Returns the layout that the plan is for.
    pub fn layout(&self) -> &FrameLayout {
        &self.layout
    }

    /// Blanks the masked areas. Returns `false`, and writes nothing, if `bytes` is too short for the layout.
    ///
    /// Costs one write of the area; a mosaic also reads up to [`SAMPLED_ROWS`] rows of each block. Allocates nothing.
    pub fn apply(&mut self, bytes: &mut [u8]) -> bool {
        if bytes.len() < self.layout.needed_bytes() {
            return false;
        }
        for Run { start, bytes: row, color } in &self.runs {
            bytes[*start..*start + row.len()].copy_from_slice(&self.colors[*color][row.clone()]);
        }
        for band in &self.bands {
            band.apply(bytes, &mut self.scratch);
        }
        true
    }

    /// Adds the writes of a colour, except for bytes that are in `covered`, and adds its own to these.
    fn add_color(&mut self, plane: usize, spans: &Spans, rgb: [u8; 3], covered: &mut [Vec<Range<usize>>]) {
        let (layout, first) = (self.layout, self.colors.len());
        let (format, row_bytes) = (layout.format(), layout.format().row_bytes(plane, layout.width()));
        let kinds = kinds_of_rows(format);
        for row in 0..kinds {
            let cell = color_cell(format, layout.color(), plane, row, rgb);
            self.colors.push(cell.into_iter().cycle().take(row_bytes).collect());
        }
        let cell = Cell::of(format, plane);
        for (row, covered) in covered.iter_mut().enumerate() {
            let own = bytes_of_row(cell, spans, row, row_bytes);
            for bytes in without(&own, covered) {
                let start = self.start_of(plane, row) + bytes.start;
                self.runs.push(Run { start, bytes, color: first + row % kinds });
            }
            covered.extend(own);
            *covered = merged(std::mem::take(covered));
        }
    }

    /// Adds the writes of the mosaics, except for bytes that are in `covered`.
    fn add_mosaic(&mut self, plane: usize, spans: &Spans, covered: &[Vec<Range<usize>>]) {
        let layout = self.layout;
        let row_bytes = layout.format().row_bytes(plane, layout.width());
        let (cell, kinds) = (Cell::of(layout.format(), plane), kinds_of_rows(layout.format()));
        // A multiple of 4, so that a block has whole cells in every plane.
        let side = (layout.width().max(layout.height()).div_ceil(BLOCKS) as usize).next_multiple_of(4);
        let columns =
            edges(layout.width() as usize, side).map(|x| (x.div_ceil(cell.pixels) * cell.bytes()).min(row_bytes));
        let columns: Vec<_> = columns.collect();
        let rows: Vec<_> =
            edges(layout.height() as usize, side).map(|y| y.div_ceil(cell.rows).min(covered.len())).collect();
        for rows in rows.windows(2) {
            for kind in 0..kinds {
                let of_kind: Vec<_> = (rows[0]..rows[1]).filter(|row| row % kinds == kind).collect();
                let masked = of_kind.iter().flat_map(|&row| {
                    let bytes = without(&bytes_of_row(cell, spans, row, row_bytes), &covered[row]);
                    bytes.into_iter().map(move |bytes| (row, bytes))
                });
                let masked: Vec<_> = masked.map(|(row, bytes)| (self.start_of(plane, row), bytes)).collect();
                let (first, last) =
                    (masked.iter().map(|run| run.1.start).min(), masked.iter().map(|run| run.1.end).max());
                let (Some(first), Some(last)) = (first, last) else { continue };
                let mut touched = columns.windows(2).filter(|block| block[0] < last && first < block[1]);
                let mut edges: Vec<_> = touched.clone().map(|block| block[0]).collect();
                edges.extend(touched.next_back().map(|block| block[1]));
                let every = of_kind.len().div_ceil(SAMPLED_ROWS);
                let rows = of_kind.iter().step_by(every).map(|&row| self.start_of(plane, row)).collect();
                self.bands.push(Band { cell, edges, rows, masked });
            }
        }
    }

    fn start_of(&self, plane: usize, row: usize) -> usize {
        let plane = self.layout.planes()[plane];
        plane.offset_bytes + row * plane.pitch_bytes
    }
}

/// Returns how many kinds of rows alternate: the rows of a mosaic of colours have other samples than their neighbours.
fn kinds_of_rows(format: PixelFormat) -> usize {
    if matches!(format, PixelFormat::Bayer(..)) { 2 } else { 1 }
}

/// Returns where the blocks of a side of `length` pixels begin, and where the last one ends. That one takes a rest of less than half a
/// block, so that no block is thin.
fn edges(length: usize, side: usize) -> impl Iterator<Item = usize> {
    let blocks = ((length + side / 2) / side).max(1);
    (0..blocks).map(move |block| block * side).chain([length])
}

/// Returns the bytes of a plane's row that the spans of its frame rows touch, in whole cells.
fn bytes_of_row(cell: Cell, spans: &Spans, row: usize, row_bytes: usize) -> Vec<Range<usize>> {
    let frame_rows = row * cell.rows..((row + 1) * cell.rows).min(spans.len());
    let spans = merged(spans[frame_rows].iter().flatten().cloned().collect());
    let bytes = |span: &Range<u32>| {
        let cells = span.start as usize / cell.pixels..(span.end as usize).div_ceil(cell.pixels);
        cells.start * cell.bytes()..(cells.end * cell.bytes()).min(row_bytes)
    };
    merged(spans.iter().map(bytes).collect())
}

/// Returns the parts of `bytes` that are not in `covered`; both are sorted, and no two ranges of one overlap.
fn without(bytes: &[Range<usize>], covered: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    for whole in bytes {
        let mut start = whole.start;
        for cover in covered.iter().filter(|cover| cover.start < whole.end && whole.start < cover.end) {
            if start < cover.start {
                parts.push(start..cover.start);
            }
            start = cover.end;
        }
        if start < whole.end {
            parts.push(start..whole.end);
        }
    }
    parts
}

impl Band {
    /// Makes the means in `scratch`, and copies them to the masked bytes.
    fn apply(&self, bytes: &mut [u8], scratch: &mut Scratch) {
        let [Some(&first), Some(&last)] = [self.edges.first(), self.edges.last()] else { return };
        let sums = &mut scratch.sums[first..last];
        sums.fill(0);
        for start in &self.rows {
            let row = &bytes[start + first..start + last];
            sums.iter_mut().zip(row).for_each(|(sum, byte)| *sum += u16::from(*byte));
        }
        match self.cell.bytes() {
            1 => self.make_row::<1>(scratch),
            2 => self.make_row::<2>(scratch),
            3 => self.make_row::<3>(scratch),
            _ => self.make_row::<4>(scratch),
        }
        for (start, run) in &self.masked {
            bytes[start + run.start..start + run.end].copy_from_slice(&scratch.row[run.clone()]);
        }
    }

    /// Makes a row of means from the sums; a cell has `N` bytes.
    fn make_row<const N: usize>(&self, scratch: &mut Scratch) {
        for block in self.edges.windows(2) {
            let mean = self.mean::<N>(&scratch.sums[block[0]..block[1]]);
            let mut cells = scratch.row[block[0]..block[1]].chunks_exact_mut(N);
            cells.by_ref().for_each(|cell| cell.copy_from_slice(&mean));
            let rest = cells.into_remainder();
            rest.copy_from_slice(&mean[..rest.len()]);
        }
    }

    /// Returns the mean of each sample of a block, from the sums of its columns, as the bytes of a cell. A cell that the frame cuts off
    /// counts for nothing; a block that has no whole one becomes grey.
    fn mean<const N: usize>(&self, sums: &[u16]) -> [u8; N] {
        let cells = sums.chunks_exact(N);
        let count = (cells.len() * self.rows.len()) as u32;
        if count == 0 {
            return [128; N];
        }
        // A block has at most 618 cells in a row, whose sums are at most 2040.
        let mut totals = [0_u32; N];
        for cell in cells {
            totals.iter_mut().zip(cell).for_each(|(total, sum)| *total += u32::from(*sum));
        }
        if self.cell.sample_bytes == 1 {
            return totals.map(|total| (total / count) as u8);
        }
        // The bytes of a sample are little-endian.
        let mut bytes = [0; N];
        for (mean, totals) in bytes.chunks_exact_mut(2).zip(totals.chunks_exact(2)) {
            mean.copy_from_slice(&(((totals[0] + totals[1] * 256) / count) as u16).to_le_bytes());
        }
        bytes
    }
}

/// Returns the bytes of a cell of one colour; `row` is even or odd.
fn color_cell(format: PixelFormat, color: ColorDescription, plane: usize, row: usize, rgb: [u8; 3]) -> Vec<u8> {
    let [y, cb, cr] = ycbcr(color, rgb);
    let [r, g, b] = rgb;
    match format {
        PixelFormat::Yuyv => vec![y, cb, y, cr],
        PixelFormat::Uyvy => vec![cb, y, cr, y],
        PixelFormat::Yvyu => vec![y, cr, y, cb],
        PixelFormat::Vyuy => vec![cr, y, cb, y],
        PixelFormat::Nv12 | PixelFormat::Nv16 if plane > 0 => vec![cb, cr],
        PixelFormat::Nv21 | PixelFormat::Nv61 if plane > 0 => vec![cr, cb],
        PixelFormat::P010 if plane > 0 => vec![0, cb, 0, cr],
        PixelFormat::P010 => vec![0, y],
        PixelFormat::I420 if plane > 0 => vec![[cb, cr][plane - 1]],
        PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::Nv16 | PixelFormat::Nv61 | PixelFormat::I420 => vec![y],
        PixelFormat::Grey => vec![y],
        PixelFormat::Rgb => vec![r, g, b],
        PixelFormat::Bgr => vec![b, g, r],
        PixelFormat::Rgba => vec![r, g, b, u8::MAX],
        PixelFormat::Bgra => vec![b, g, r, u8::MAX],
        PixelFormat::Grey10 | PixelFormat::Grey12 | PixelFormat::Grey16 => {
            let bits = format.sample_depth().unwrap_or_default().bits();
            let [low, high] = color.levels.unwrap_or(GreyLevels::full(bits)).ends().map(u32::from);
            ((low + ((high - low) * u32::from(y) + 127) / 255) as u16).to_le_bytes().to_vec()
        }
        PixelFormat::Bayer(order, depth) => {
            let red = order.first_red();
            let sample = |column: usize| {
                let value = match (column == red.0, row == red.1) {
                    (true, true) => r,
                    (false, false) => b,
                    _ => g,
                };
                let largest = u32::from(u16::MAX >> (16 - depth.bits()));
                ((largest * u32::from(value) + 127) / 255) as u16
            };
            let bytes = |column| sample(column).to_le_bytes().into_iter().take(depth.sample_bytes());
            (0..2).flat_map(bytes).collect()
        }
    }
}

/// Returns Y, Cb and Cr of a colour, as the recommendations define them.
fn ycbcr(color: ColorDescription, rgb: [u8; 3]) -> [u8; 3] {
    let (kr, kb) = color.matrix.luma_weights();
    let [r, g, b] = rgb.map(f64::from);
    let y = kr * r + (1.0 - kr - kb) * g + kb * b;
    let (low, luma, chroma) = match color.range {
        ColorRange::Limited => (16.0, 219.0 / 255.0, 224.0 / 255.0),
        ColorRange::Full => (0.0, 1.0, 1.0),
    };
    let cb = 128.0 + (b - y) / (2.0 * (1.0 - kb)) * chroma;
    let cr = 128.0 + (r - y) / (2.0 * (1.0 - kr)) * chroma;
    array::from_fn(|i| [low + y * luma, cb, cr][i].round().clamp(0.0, 255.0) as u8)
}

#[cfg(test)]
mod tests;
