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

/// What masked pixels become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// One colour: red, green, blue.
    Color([u8; 3]),
    /// Blocks of a fortieth of the frame's longer side, each with the mean of its pixels.
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

/// The writes that blank the masked areas of a frame with one layout.
#[derive(Debug)]
pub struct MaskPlan {
    pub(super) layout: FrameLayout,
    /// One row of each colour, plane and kind of row.
    pub(super) colors: Vec<Vec<u8>>,
    pub(super) runs: Vec<Run>,
    pub(super) tiles: Vec<Tile>,
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

/// The part of a mosaic's block in one plane.
#[derive(Debug)]
pub(super) struct Tile {
    pub(super) cell: Cell,
    /// The bytes of each row of the block, as offsets in the frame: those that the mean is made of.
    pub(super) rows: Vec<Range<usize>>,
    /// The bytes that become the mean.
    pub(super) masked: Vec<Range<usize>>,
}

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

    fn bytes(self) -> usize {
        self.samples * self.sample_bytes
    }
}

impl MaskPlan {
    /// Plans the writes for frames of `layout`. A colour covers a mosaic that overlaps it.
    pub fn new(masks: &[PrivacyMask], layout: &FrameLayout) -> Self {
        let mut plan = Self { layout: *layout, colors: Vec::new(), runs: Vec::new(), tiles: Vec::new() };
        for mask in masks {
            let spans = mask.polygon.pixels(layout.width(), layout.height());
            for plane in 0..layout.planes().len() {
                match mask.fill {
                    Fill::Color(rgb) => plan.add_color(plane, &spans, rgb),
                    Fill::Mosaic => plan.add_mosaic(plane, &spans),
                }
            }
        }
        plan
    }

    /// Returns the layout that the plan is for.
    pub fn layout(&self) -> &FrameLayout {
        &self.layout
    }

    /// Blanks the masked areas. Returns `false`, and writes nothing, if `bytes` is too short for the layout.
    ///
    /// A colour costs one write of the area and no read; a mosaic also reads its blocks. Allocates nothing.
    pub fn apply(&self, bytes: &mut [u8]) -> bool {
        if bytes.len() < self.layout.needed_bytes() {
            return false;
        }
        self.tiles.iter().for_each(|tile| tile.apply(bytes));
        for Run { start, bytes: row, color } in &self.runs {
            bytes[*start..*start + row.len()].copy_from_slice(&self.colors[*color][row.clone()]);
        }
        true
    }

    fn add_color(&mut self, plane: usize, spans: &[Vec<Range<u32>>], rgb: [u8; 3]) {
        let (layout, first) = (self.layout, self.colors.len());
        let (format, row_bytes) = (layout.format(), layout.format().row_bytes(plane, layout.width()));
        // The rows of a mosaic of colours alternate.
        let kinds = if matches!(format, PixelFormat::Bayer(..)) { 2 } else { 1 };
        for row in 0..kinds {
            let cell = color_cell(format, layout.color(), plane, row, rgb);
            self.colors.push(cell.into_iter().cycle().take(row_bytes).collect());
        }
        let cell = Cell::of(format, plane);
        for row in 0..format.plane_rows(plane, layout.height()) {
            for bytes in bytes_of_row(cell, spans, row, row_bytes) {
                let start = self.start_of(plane, row) + bytes.start;
                self.runs.push(Run { start, bytes, color: first + row % kinds });
            }
        }
    }

    fn add_mosaic(&mut self, plane: usize, spans: &[Vec<Range<u32>>]) {
        let layout = self.layout;
        let (width, height) = (layout.width() as usize, layout.height() as usize);
        let row_bytes = layout.format().row_bytes(plane, layout.width());
        let cell = Cell::of(layout.format(), plane);
        // A multiple of 4, so that a block has whole cells in every plane.
        let side = (layout.width().max(layout.height()).div_ceil(BLOCKS) as usize).next_multiple_of(4);
        let kinds = if matches!(layout.format(), PixelFormat::Bayer(..)) { 2 } else { 1 };
        let plane_rows = layout.format().plane_rows(plane, layout.height());
        for top in (0..height).step_by(side) {
            let rows = top / cell.rows..((top + side) / cell.rows).min(plane_rows);
            let masked: Vec<Vec<_>> = rows.clone().map(|row| bytes_of_row(cell, spans, row, row_bytes)).collect();
            for left in (0..width).step_by(side) {
                let block =
                    left / cell.pixels * cell.bytes()..((left + side) / cell.pixels * cell.bytes()).min(row_bytes);
                for kind in 0..kinds {
                    let of_kind = || rows.clone().zip(&masked).filter(|(row, _)| row % kinds == kind);
                    let at = |row: usize, bytes: &Range<usize>| {
                        let start = self.start_of(plane, row);
                        start + bytes.start.max(block.start)..start + bytes.end.min(block.end)
                    };
                    let masked: Vec<_> = of_kind()
                        .flat_map(|(row, runs)| runs.iter().map(move |run| at(row, run)))
                        .filter(|run| !run.is_empty())
                        .collect();
                    if !masked.is_empty() {
                        let rows = of_kind().map(|(row, _)| at(row, &block)).collect();
                        self.tiles.push(Tile { cell, rows, masked });
                    }
                }
            }
        }
    }

    fn start_of(&self, plane: usize, row: usize) -> usize {
        let plane = self.layout.planes()[plane];
        plane.offset_bytes + row * plane.pitch_bytes
    }
}

/// Returns the bytes of a plane's row that the spans of its frame rows touch, in whole cells.
fn bytes_of_row(cell: Cell, spans: &[Vec<Range<u32>>], row: usize, row_bytes: usize) -> Vec<Range<usize>> {
    let frame_rows = row * cell.rows..((row + 1) * cell.rows).min(spans.len());
    let spans = merged(spans[frame_rows].iter().flatten().cloned().collect());
    let bytes = |span: &Range<u32>| {
        let cells = span.start as usize / cell.pixels..(span.end as usize).div_ceil(cell.pixels);
        cells.start * cell.bytes()..(cells.end * cell.bytes()).min(row_bytes)
    };
    spans.iter().map(bytes).collect()
}

impl Tile {
    fn apply(&self, bytes: &mut [u8]) {
        let cell = self.cell;
        let rows = self.rows.iter().map(|row| &bytes[row.clone()]);
        let mean = match (cell.sample_bytes, cell.samples) {
            (1, 1) => mean::<1, 1>(rows),
            (1, 2) => mean::<1, 2>(rows),
            (1, 3) => mean::<1, 3>(rows),
            (1, _) => mean::<1, 4>(rows),
            (_, 1) => mean::<2, 1>(rows),
            (_, _) => mean::<2, 2>(rows),
        };
        for run in &self.masked {
            for part in bytes[run.clone()].chunks_mut(cell.bytes()) {
                part.copy_from_slice(&mean[..part.len()]);
            }
        }
    }
}

/// Returns the mean of each of the `N` samples of a cell, of `BYTES` each, as the bytes of a cell. A cell that the frame cuts off
/// counts for nothing, unless there is no whole one.
fn mean<'a, const BYTES: usize, const N: usize>(rows: impl Iterator<Item = &'a [u8]> + Clone) -> [u8; 4] {
    let mut sums = [0_u64; N];
    let mut cells = 0;
    let mut cut_off = [0; 4];
    for row in rows {
        // A row of a block has at most 412 cells, so the sums of bytes fit.
        let mut of_row = [0_u32; N];
        let whole = row.chunks_exact(BYTES * N);
        let rest = whole.remainder();
        cut_off[..rest.len()].copy_from_slice(rest);
        for cell in whole {
            cells += 1;
            for (sum, sample) in of_row.iter_mut().zip(cell.chunks_exact(BYTES)) {
                *sum +=
                    if BYTES == 1 { u32::from(sample[0]) } else { u32::from(sample[0]) | u32::from(sample[1]) << 8 };
            }
        }
        sums.iter_mut().zip(of_row).for_each(|(sum, row)| *sum += u64::from(row));
    }
    if cells == 0 {
        return cut_off;
    }
    let mut bytes = [0; 4];
    for (place, sum) in bytes.chunks_exact_mut(BYTES).zip(sums) {
        place.copy_from_slice(&((sum / cells) as u16).to_le_bytes()[..BYTES]);
    }
    bytes
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
