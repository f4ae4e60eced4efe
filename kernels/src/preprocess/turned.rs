//! Pictures whose rows are columns of the frame.
//!
//! A column of a frame is in as many cache lines as it has pixels, so many neighbouring columns are read at once: a strip of them,
//! line by line. Lines are converted as they lie in the frame. Samplings of two taps mix them into columns of the picture, which are
//! then made rows ([`TurnedRows`]). The others want the pixels of neighbouring rows side by side, as those of a line are
//! (`separable`).

use std::slice::ChunksExactMut;

use super::axis::{Axis, LANES, PAD, Padding, Pairs, PlanKey};
use super::bayer::Mosaic;
use super::convert::{Converter, PixelsOf, Taps};
use super::fetch::{fetch, fetch_row};
use super::number::Number;
use super::simd::{Isa, SliceLoop};
use crate::frame::{FrameView, PixelFormat};

/// The rows of the picture that are made at once.
pub(super) const STRIP: usize = 64;

/// The lines that are read at once: two for each of [`LANES`] columns of the picture.
pub(super) const LINES: usize = 2 * LANES;

/// The columns that are read of a line: more than rows, if columns between those needed are read.
const MOST_LANES: usize = 2 * STRIP;

/// The bytes of a cache line.
const CACHE_LINE: usize = 64;

/// The elements of `size` bytes from one row to the next: an odd number of cache lines, so that a column's are in different sets of
/// the cache.
pub(super) fn odd_stride(len: usize, size: usize) -> usize {
    ((len * size).div_ceil(CACHE_LINE) | 1) * CACHE_LINE / size
}

/// The columns of the frame that are read for some rows of the picture.
pub(super) struct Strip<N> {
    /// The columns, rising: the same for each of [`LINES`] lines, each extended to a multiple of [`LANES`] with the last.
    axis: Axis<N>,
    /// How many there are for a line, and how many of those are not repeated ones.
    pub(super) lanes: usize,
    count: usize,
    /// The first column, if all from there on are read.
    from: Option<usize>,
    /// Which of the columns each row is.
    pub(super) order: Vec<usize>,
}

impl<N: Number> Strip<N> {
    /// Makes it for at most [`STRIP`] rows of the picture, which rise.
    pub(super) fn new(key: PlanKey, rows: &[u32]) -> Self {
        let width = key.size.1;
        let needed = rows.iter().map(|&row| if key.orientation.mirrored[1] { width - 1 - row } else { row });
        let mut columns: Vec<u32> = needed.clone().collect();
        columns.sort_unstable();
        // All between them, from an even one on, are read faster, but are all converted.
        let (first, end) = (columns[0] & !1, columns[columns.len() - 1] + 1);
        let is_run = 2 * (end - first) as usize <= 3 * columns.len();
        if is_run {
            columns = (first..end).collect();
        }
        let order = needed.map(|column| columns.partition_point(|&read| read < column)).collect();
        let count = columns.len();
        let lanes = count.next_multiple_of(LANES);
        let line = || columns.iter().copied().chain(std::iter::repeat(end - 1)).take(lanes);
        let axis = Axis {
            low: (0..LINES).flat_map(|_| line()).collect(),
            high: Vec::new(),
            weights: [Vec::new(), Vec::new()],
            single: true,
            pairs: Pairs::Rising,
        };
        Self { axis, lanes, count, from: is_run.then_some(first as usize), order }
    }

    fn columns(&self) -> &[u32] {
        &self.axis.low[..self.count]
    }
}

/// The pixels of a strip's lines, in planes.
#[derive(Default)]
pub(super) struct StripLines<N> {
    words: Vec<u32>,
    mosaic: Mosaic<N>,
    pub(super) planes: [Vec<N>; 3],
}

impl<N: Number> StripLines<N> {
    /// Makes room. Allocates only for a frame that is wider than any before.
    pub(super) fn reserve(&mut self, width: u32) {
        self.mosaic.reserve(width);
        self.words.resize(LINES * MOST_LANES, 0);
        for plane in &mut self.planes {
            plane.resize(LINES * MOST_LANES, N::NONE);
        }
    }

    /// Reads and converts lines of the frame, after `kept` that are there already: at most [`LINES`] altogether, into one plane of
    /// luma, or red, green and blue.
    pub(super) fn read(
        &mut self,
        source: &Source<'_, N>,
        strip: &Strip<N>,
        lines: impl Iterator<Item = u32>,
        kept: usize,
        of: PixelsOf,
    ) {
        let Source { isa, frame, ref converter, planes } = *source;
        let start = kept * strip.lanes;
        let mut end = start;
        for line in lines.map(|line| line as usize) {
            let at = end..end + strip.lanes;
            end += strip.lanes;
            if let PixelFormat::Bayer(order, depth) = frame.format() {
                self.mosaic.read(
                    isa,
                    frame,
                    (order, depth),
                    line,
                    (strip.columns(), of),
                    (&mut self.planes[..planes], at.start),
                );
                continue;
            }
            let words = &mut self.words[at][..strip.count];
            match strip.from {
                Some(from) => fetch_row(frame, line, from, words),
                None => fetch(frame, line, strip.columns(), words),
            }
        }
        if !matches!(frame.format(), PixelFormat::Bayer(..)) {
            let words = [&self.words[start..end], &[]];
            converter.convert(isa, &Taps { columns: &strip.axis, words }, &mut self.planes[..planes], start..end, of);
        }
    }

    /// Makes line `index` the first.
    fn keep(&mut self, index: usize, strip: &Strip<N>) {
        for plane in &mut self.planes {
            plane.copy_within(index * strip.lanes..(index + 1) * strip.lanes, 0);
        }
    }
}

/// How lines are read.
pub(super) struct Source<'a, N: Number> {
    pub(super) isa: Isa,
    pub(super) frame: &'a FrameView<'a>,
    /// For formats other than mosaics.
    pub(super) converter: Converter<N>,
    pub(super) planes: usize,
}

impl<'a, N: Number> Source<'a, N> {
    /// Reads the rows of `frame` as luma, or as red, green and blue. A grey frame has one plane either way.
    pub(super) fn new(isa: Isa, frame: &'a FrameView<'a>, luma: bool) -> Self {
        let planes = if luma || frame.format().is_grey() { 1 } else { 3 };
        Self { isa, frame, converter: Converter::new(frame.format(), frame.color()), planes }
    }
}

/// The lines of [`LANES`] columns of the picture.
struct Block {
    /// Those that are read, without repetition; none for padding.
    lines: Vec<u32>,
    /// How many of the first were the last ones of the block before.
    kept: usize,
    /// The left and the right line of each column, as indices of `lines`.
    low: [usize; LANES],
    high: [usize; LANES],
}

/// How a turned frame's rows are made by two taps or one.
pub(super) struct TurnedPlan<N> {
    /// The picture's rows that are needed, rising.
    rows: Vec<u32>,
    /// Those of [`STRIP`] of them each. The last is the first of the next, so that neighbours are in the same.
    strips: Vec<Strip<N>>,
    blocks: Vec<Block>,
    /// The values from one row to the next.
    stride: usize,
}

impl<N: Number> TurnedPlan<N> {
    /// Makes the plan for the columns and rows of a picture.
    pub(super) fn new(key: PlanKey, columns: &Axis<N>, rows: &Axis<N>) -> Self {
        let height = key.size.0;
        let line = |x: u32| if key.orientation.mirrored[0] { height - 1 - x } else { x };
        let weight = |x: usize, which: usize| if columns.single { N::NONE } else { columns.weights[which][x] };
        let pairs: Vec<[u32; 2]> = columns
            .low
            .iter()
            .enumerate()
            .map(|(x, &low)| [low, if weight(x, 1) == N::NONE { low } else { columns.high[x] }])
            .collect();
        let mut last = None;
        let blocks = pairs.as_chunks::<LANES>().0.iter().enumerate().map(|(index, pairs)| {
            let is_used = |x| columns.single || weight(x, 0) != N::NONE || weight(x, 1) != N::NONE;
            if !(index * LANES..(index + 1) * LANES).any(is_used) {
                last = None;
                return Block { lines: Vec::new(), kept: 0, low: [0; LANES], high: [0; LANES] };
            }
            let mut lines: Vec<u32> = Vec::with_capacity(LINES);
            let mut index = |x: u32| {
                lines.iter().position(|&known| known == line(x)).unwrap_or_else(|| {
                    lines.push(line(x));
                    lines.len() - 1
                })
            };
            let indices = pairs.map(|pair| pair.map(&mut index));
            let kept = usize::from(last == lines.first().copied());
            last = lines.last().copied();
            Block { lines, kept, low: indices.map(|pair| pair[0]), high: indices.map(|pair| pair[1]) }
        });
        let blocks = blocks.collect();
        let mut needed: Vec<u32> = rows.low.iter().chain(&rows.high).copied().filter(|&row| row != PAD).collect();
        needed.sort_unstable();
        needed.dedup();
        let starts = (0..needed.len()).step_by(STRIP - 1);
        let strips = starts.map(|start| Strip::new(key, &needed[start..(start + STRIP).min(needed.len())])).collect();
        Self { rows: needed, strips, blocks, stride: odd_stride(columns.low.len(), size_of::<N>()) }
    }

    /// Returns the place of a needed row: its strip, and which row of that it is.
    fn place(&self, row: u32) -> (usize, usize) {
        let index = self.rows.partition_point(|&needed| needed < row);
        (index / (STRIP - 1), index % (STRIP - 1))
    }
}

/// The columns and the padding of a picture.
pub(super) struct Mixing<'a, N> {
    pub(super) plan: &'a TurnedPlan<N>,
    pub(super) columns: &'a Axis<N>,
    pub(super) padding: Option<&'a Padding<N>>,
}

/// The horizontally resampled rows of a strip.
#[derive(Default)]
pub(super) struct TurnedRows<N> {
    lines: StripLines<N>,
    /// A block's columns of the picture, in lanes.
    mixed: Vec<N>,
    /// Planes of rows.
    rows: [Vec<N>; 3],
    /// The strip that is held.
    held: Option<usize>,
}

impl<N: Number> TurnedRows<N> {
    /// Forgets the last frame and makes room for the next.
    pub(super) fn start(&mut self, plan: &TurnedPlan<N>, width: u32) {
        self.held = None;
        self.lines.reserve(width);
        self.mixed.resize(LANES * MOST_LANES, N::NONE);
        for plane in &mut self.rows {
            plane.resize(plane.len().max(STRIP * plan.stride), N::NONE);
        }
    }

    /// Makes a needed row of the picture, and the next one, unless they are there.
    pub(super) fn make(&mut self, source: &Source<'_, N>, mixing: &Mixing<'_, N>, row: u32) {
        let (index, _) = mixing.plan.place(row);
        if self.held == Some(index) {
            return;
        }
        self.held = Some(index);
        let Mixing { plan, columns, padding } = *mixing;
        let (strip, stride) = (&plan.strips[index], plan.stride);
        let of = if columns.single { PixelsOf::Row } else { PixelsOf::Mix };
        for (index, block) in plan.blocks.iter().enumerate() {
            let at = index * LANES;
            let pads: [N; LANES] = std::array::from_fn(|k| padding.map_or(N::NONE, |padding| padding.columns[at + k]));
            if block.lines.is_empty() {
                for rows in &mut self.rows[..source.planes] {
                    let rows = rows.chunks_exact_mut(stride).take(strip.order.len());
                    rows.for_each(|row| row[at..at + LANES].copy_from_slice(&pads));
                }
                continue;
            }
            self.lines.read(source, strip, block.lines[block.kept..].iter().copied(), block.kept, of);
            let lanes = strip.lanes;
            let mixed = &mut self.mixed[..LANES * lanes];
            for (pixels, rows) in self.lines.planes.iter().zip(&mut self.rows).take(source.planes) {
                let mut lines = block.low.map(|line| &pixels[line * lanes..][..lanes]);
                if !columns.single || padding.is_some() {
                    let lines_of = [block.low, block.high].map(|of| of.map(|line| &pixels[line * lanes..][..lanes]));
                    let out = mixed.chunks_exact_mut(lanes);
                    source.isa.run(AcrossLines { lines: lines_of, at, columns, pads, out });
                    lines = std::array::from_fn(|k| &mixed[k * lanes..][..lanes]);
                }
                source.isa.run(Turn { lines, order: &strip.order, stride, out: &mut rows[at..] });
            }
            if plan.blocks.get(index + 1).is_some_and(|next| next.kept > 0) {
                self.lines.keep(block.lines.len() - 1, strip);
            }
        }
    }

    /// Returns a row that was [made](Self::make) last, or the one after it: red, green and blue, or one plane for all.
    pub(super) fn row(&self, plan: &TurnedPlan<N>, row: u32, planes: usize) -> [&[N]; 3] {
        let (strip, index) = plan.place(row);
        // The last row of a strip is the first of the next.
        let index = if self.held == Some(strip) { index } else { STRIP - 1 };
        let at = index * plan.stride..(index + 1) * plan.stride;
        std::array::from_fn(|plane| &self.rows[if planes == 1 { 0 } else { plane }][at.clone()])
    }
}

/// Mixes lines into columns of the picture.
struct AcrossLines<'a, N> {
    /// The left and the right line of each column.
    lines: [[&'a [N]; LANES]; 2],
    /// The first column of the picture.
    at: usize,
    columns: &'a Axis<N>,
    /// The padding's part in each column.
    pads: [N; LANES],
    out: ChunksExactMut<'a, N>,
}

impl<N: Number> SliceLoop for AcrossLines<'_, N> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { lines: [low, high], at, columns, pads, out } = self;
        for (k, out) in out.enumerate().take(LANES) {
            let pad = pads[k];
            if columns.single {
                for (out, &low) in out.iter_mut().zip(low[k]) {
                    *out = low + pad;
                }
                continue;
            }
            let weights = columns.weights.each_ref().map(|weights| weights[at + k]);
            for ((out, &low), &high) in out.iter_mut().zip(low[k]).zip(high[k]) {
                *out = N::mixed::<FMA>([low, high].map(N::channel), weights) + pad;
            }
        }
    }
}

/// Makes the lanes of [`LANES`] lines rows.
struct Turn<'a, N> {
    lines: [&'a [N]; LANES],
    /// The lane of each row.
    order: &'a [usize],
    stride: usize,
    out: &'a mut [N],
}

impl<N: Number> SliceLoop for Turn<'_, N> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { lines, order, stride, out } = self;
        // As few words as hold a row's values.
        let per_word = size_of::<u64>() / size_of::<N>();
        let bits = 8 * size_of::<N>() as u32;
        let mut words = [[0_u64; MOST_LANES]; LANES / 2];
        for (index, words) in words.iter_mut().enumerate().take(LANES / per_word) {
            let line = |part: usize| lines[index * per_word + part].iter();
            if per_word == 2 {
                for ((word, &a), &b) in words.iter_mut().zip(line(0)).zip(line(1)) {
                    *word = N::bits(a) | N::bits(b) << bits;
                }
            } else {
                for ((((word, &a), &b), &c), &d) in words.iter_mut().zip(line(0)).zip(line(1)).zip(line(2)).zip(line(3))
                {
                    *word = N::bits(a) | N::bits(b) << bits | N::bits(c) << (2 * bits) | N::bits(d) << (3 * bits);
                }
            }
        }
        for (row, &lane) in out.chunks_mut(stride).zip(order) {
            let Some(row) = row.first_chunk_mut::<LANES>() else { continue };
            for index in 0..LANES / per_word {
                let word = words[index][lane % MOST_LANES];
                for part in 0..per_word {
                    row[index * per_word + part] = N::of_bits(word >> (part as u32 * bits));
                }
            }
        }
    }
}
