//! Samplings with any number of taps: the frame's rows as pixels, filtered along the row, then across rows.
//!
//! [`LANES`] values are worked on at a time: the channels of several rows' pixels in the same column, so that one weight is for all
//! of them and nothing is gathered. Filtered rows stay in a ring that is as long as a column of taps.

use super::axis::{Axis, LANES as PLANE_LANES, Pairs, PlanKey};
use super::bayer::Mosaic;
use super::convert::{Converter, PixelsOf, Taps};
use super::fetch::fetch_row;
use super::number::Number;
use super::simd::{Isa, SliceLoop};
use super::spec::PreprocessSpec;
use super::store::{RowPair, TensorWriter, planes_of};
use super::taps::{Finish, PILLOW_BITS, TapAxis, TapTables};
use super::turned::{LINES, STRIP, Source, Strip, StripLines, odd_stride};
use crate::color::rounded;
use crate::frame::{FrameView, PixelFormat};

/// The values that are worked on at a time.
const LANES: usize = 16;

/// The lanes of a pixel of red, green and blue; the last is unused.
const COLOR_LANES: usize = 4;

/// A channel of a pixel, 0 to 255.
pub(super) trait Pixel: Copy + Default {
    /// The numbers that pixels are converted with.
    type Number: Number;

    /// Converts a converted plane's value.
    fn of(value: Self::Number) -> Self;
    /// Converts the padding.
    fn pad(value: f32) -> Self;
}

/// The numbers that an arithmetic's pixels are converted with.
type NumberOf<A> = <<A as Arithmetic>::Pixel as Pixel>::Number;

/// The arithmetic of a sampling.
pub(super) trait Arithmetic: Copy {
    /// A channel of a pixel, 0 to 255.
    type Pixel: Pixel;
    /// A weight, and a sum of weighted values.
    type Sum: Copy + Default + PartialEq;
    /// A value that was filtered along its row.
    type Row: Copy + Default;

    /// Adds a pixel of a row.
    fn add_column(sum: Self::Sum, weight: Self::Sum, pixel: Self::Pixel) -> Self::Sum;
    /// Returns the filtered value of a sum of pixels.
    fn row(sum: Self::Sum) -> Self::Row;
    /// Adds a value of a filtered row.
    fn add_row(sum: Self::Sum, weight: Self::Sum, row: Self::Row) -> Self::Sum;
    /// Returns the value, 0 to 255 unless the filter overshoots, of a sum of rows.
    fn value(self, sum: Self::Sum) -> f32;
}

impl Pixel for u8 {
    type Number = u16;

    #[inline(always)]
    fn of(value: u16) -> u8 {
        u16::value(value) as u8
    }

    fn pad(value: f32) -> u8 {
        value.round_ties_even() as u8
    }
}

impl Pixel for f32 {
    type Number = f32;

    #[inline(always)]
    fn of(value: f32) -> f32 {
        value
    }

    fn pad(value: f32) -> f32 {
        value
    }
}

/// Pillow's: a byte after columns and after rows.
#[derive(Clone, Copy)]
pub(super) struct Pillow;

impl Pillow {
    #[inline(always)]
    fn rounded(sum: i32) -> u8 {
        ((sum + (1 << (PILLOW_BITS - 1))) >> PILLOW_BITS).clamp(0, 255) as u8
    }
}

impl Arithmetic for Pillow {
    type Pixel = u8;
    type Sum = i32;
    type Row = u8;

    #[inline(always)]
    fn add_column(sum: i32, weight: i32, pixel: u8) -> i32 {
        sum + weight * i32::from(pixel)
    }

    #[inline(always)]
    fn row(sum: i32) -> u8 {
        Self::rounded(sum)
    }

    #[inline(always)]
    fn add_row(sum: i32, weight: i32, row: u8) -> i32 {
        sum + weight * i32::from(row)
    }

    #[inline(always)]
    fn value(self, sum: i32) -> f32 {
        f32::from(Self::rounded(sum))
    }
}

/// OpenCV's `INTER_LINEAR`.
#[derive(Clone, Copy)]
pub(super) struct Linear;

impl Arithmetic for Linear {
    type Pixel = u8;
    type Sum = i32;
    type Row = i32;

    #[inline(always)]
    fn add_column(sum: i32, weight: i32, pixel: u8) -> i32 {
        sum + weight * i32::from(pixel)
    }

    #[inline(always)]
    fn row(sum: i32) -> i32 {
        sum >> 4
    }

    #[inline(always)]
    fn add_row(sum: i32, weight: i32, row: i32) -> i32 {
        sum + ((weight * row) >> 16)
    }

    #[inline(always)]
    fn value(self, sum: i32) -> f32 {
        ((sum + 2) >> 2) as f32
    }
}

/// Floats, of bytes.
#[derive(Clone, Copy)]
pub(super) struct OfBytes(pub(super) Finish);

impl Arithmetic for OfBytes {
    type Pixel = u8;
    type Sum = f32;
    type Row = f32;

    #[inline(always)]
    fn add_column(sum: f32, weight: f32, pixel: u8) -> f32 {
        sum + weight * f32::from(pixel)
    }

    #[inline(always)]
    fn row(sum: f32) -> f32 {
        sum
    }

    #[inline(always)]
    fn add_row(sum: f32, weight: f32, row: f32) -> f32 {
        sum + weight * row
    }

    #[inline(always)]
    fn value(self, sum: f32) -> f32 {
        match self.0 {
            Finish::None => sum,
            Finish::HalfEven { factor } => rounded((sum * factor).clamp(0.0, 255.0)) as f32,
            // Truncated, because it is not negative.
            Finish::HalfUp { factor } => ((sum * factor).clamp(0.0, 255.0) + 0.5) as u8 as f32,
        }
    }
}

/// Floats, of pixels that were not rounded.
#[derive(Clone, Copy)]
pub(super) struct OfFloats;

impl Arithmetic for OfFloats {
    type Pixel = f32;
    type Sum = f32;
    type Row = f32;

    #[inline(always)]
    fn add_column(sum: f32, weight: f32, pixel: f32) -> f32 {
        sum + weight * pixel
    }

    #[inline(always)]
    fn row(sum: f32) -> f32 {
        sum
    }

    #[inline(always)]
    fn add_row(sum: f32, weight: f32, row: f32) -> f32 {
        sum + weight * row
    }

    #[inline(always)]
    fn value(self, sum: f32) -> f32 {
        sum
    }
}

/// The columns, rows and padding of a frame size, in addition to its tables.
pub(super) struct FilterPlan<N> {
    key: PlanKey,
    /// The columns of the frame that are read, one by one, rising; those at the end are repeated.
    columns: Axis<N>,
    /// The first of these that is needed, and how many are.
    skipped: usize,
    width: usize,
    /// The pixels before the first of them that taps have, and the pixels altogether.
    before: usize,
    span: usize,
    /// The first tap of every position, as a pixel of the span.
    first: Vec<usize>,
    /// The rows of the frame that are read, in order.
    rows: Vec<u32>,
    /// The row of every tap, as an index of `rows`; [`PAD`] for the padding.
    row_taps: Vec<usize>,
    /// The filtered rows that are kept at once.
    kept: usize,
    /// How rows are read, if they are columns of the frame.
    turned: Option<TurnedPixels<N>>,
}

/// How the pixels of rows that are columns of the frame are read.
struct TurnedPixels<N> {
    /// Those of [`STRIP`] rows each.
    strips: Vec<Strip<N>>,
    /// The frame's lines that are read, and the column of the picture that each of them is, from the first one that is read on.
    lines: Vec<u32>,
    columns: Vec<usize>,
}

impl<N: Number> TurnedPixels<N> {
    /// Makes it for these of the picture's rows, which rise, and columns, the first of which is `from`.
    fn new(key: PlanKey, rows: &[u32], from: u32, columns: &[u32]) -> Self {
        let height = key.size.0;
        let line = |x: u32| if key.orientation.mirrored[0] { height - 1 - x } else { x };
        let strips = rows.chunks(STRIP).map(|rows| Strip::new(key, rows)).collect();
        let lines = columns.iter().map(|&x| line(x)).collect();
        let columns = columns.iter().map(|&x| (x - from) as usize);
        Self { strips, lines, columns: columns.collect() }
    }
}

/// A row of padding.
const PAD: usize = usize::MAX;

impl<N: Number> FilterPlan<N> {
    pub(super) fn new<W: Default + PartialEq>(tables: &TapTables<W>, key: PlanKey) -> Self {
        let PlanKey { size: (width, height), orientation } = key;
        let TapTables { columns, rows } = tables;
        let pixels = columns.first.iter().map(|&first| (first, first + columns.taps as i32));
        let (low, high) =
            pixels.fold((i32::MAX, i32::MIN), |(low, high), (first, end)| (low.min(first), high.max(end)));
        // At least one column is read, so that there is an edge to repeat, even where all taps are padding.
        // It begins at an even one, where 4:2:2 has a pair.
        let from = low.max(columns.edges[0]).clamp(0, width as i32 - 1) & !1;
        let to = (high.min(columns.edges[1] + 1)).clamp(from + 1, width as i32);
        let (low, high) = (low.min(from), high.max(to));
        // Read as they lie in the frame, also from an even one on.
        let is_mirrored = orientation.mirrored[0] && !orientation.transposed;
        let first = if is_mirrored { width as i32 - to } else { from };
        let (start, skipped) = (first & !1, (first & 1) as usize);
        let padded = ((to - from) as usize + skipped).next_multiple_of(PLANE_LANES);
        let read = Axis {
            low: (start..).take(padded).map(|x| x.min(width as i32 - 1) as u32).collect(),
            high: Vec::new(),
            weights: [Vec::new(), Vec::new()],
            single: true,
            pairs: Pairs::Rising,
        };

        let tap_row = |i: usize, k: usize| {
            let row = (rows.first[i] + k as i32).clamp(rows.edges[0], rows.edges[1]);
            u32::try_from(row).ok().filter(|&row| row < height && rows.weights[i * rows.taps + k] != W::default())
        };
        let all = || (0..rows.first.len()).flat_map(|i| (0..rows.taps).map(move |k| (i, k)));
        let mut needed: Vec<u32> = all().filter_map(|(i, k)| tap_row(i, k)).collect();
        needed.sort_unstable();
        needed.dedup();
        let row_taps: Vec<usize> = all()
            .map(|(i, k)| tap_row(i, k).map_or(PAD, |row| needed.partition_point(|&needed| needed < row)))
            .collect();
        let spans = row_taps.chunks(rows.taps).map(|taps| {
            let real = || taps.iter().filter(|&&row| row != PAD);
            real().max().zip(real().min()).map_or(0, |(most, least)| most - least + 1)
        });
        let kept = spans.max().unwrap_or(0);
        let turned = orientation.transposed.then(|| {
            // Columns without weight are not read.
            let taps = columns.first.iter().zip(columns.weights.chunks(columns.taps));
            let mut used: Vec<u32> = taps
                .flat_map(|(&first, weights)| (first..).zip(weights))
                .filter(|&(_, weight)| *weight != W::default())
                .map(|(x, _)| x.clamp(columns.edges[0], columns.edges[1]).clamp(from, to - 1).cast_unsigned())
                .collect();
            used.sort_unstable();
            used.dedup();
            TurnedPixels::new(key, &needed, from.cast_unsigned(), &used)
        });
        Self {
            key,
            turned,
            columns: read,
            skipped,
            width: (to - from) as usize,
            before: (from - low) as usize,
            span: (high - low) as usize,
            first: columns.first.iter().map(|&first| (first - low) as usize).collect(),
            rows: needed,
            row_taps,
            kept,
        }
    }
}

/// The buffers of one arithmetic.
pub(super) struct Filter<A: Arithmetic> {
    isa: Isa,
    words: Vec<u32>,
    mosaic: Mosaic<NumberOf<A>>,
    turned: StripLines<NumberOf<A>>,
    /// One row of the frame.
    planes: [Vec<NumberOf<A>>; 3],
    /// Rows of the frame, pixel by pixel.
    rows: Vec<A::Pixel>,
    /// The same, [`LANES`] values a column; of a turned frame, those of a strip.
    pixels: Vec<A::Pixel>,
    /// Sums of a row's taps in lanes, and what becomes of them; sums of a column's taps.
    sums: Vec<A::Sum>,
    filtered: Vec<A::Row>,
    /// Filtered rows; the last is of padding.
    ring: Vec<A::Row>,
    /// The rows and weights of one row of the tensor.
    taps: Vec<(usize, A::Sum)>,
    /// One row of the tensor.
    values: [Vec<f32>; 3],
}

/// One frame: what is read, and how.
pub(super) struct Job<'a, A: Arithmetic> {
    pub(super) frame: &'a FrameView<'a>,
    pub(super) plan: &'a FilterPlan<NumberOf<A>>,
    pub(super) tables: &'a TapTables<A::Sum>,
    pub(super) arithmetic: A,
    /// Whether pixels become luma.
    pub(super) luma: bool,
    /// Where the picture is in the tensor: x, y, width, height.
    pub(super) placed: [usize; 4],
}

impl<A: Arithmetic> Filter<A> {
    pub(super) fn new(isa: Isa) -> Self {
        Self {
            isa,
            words: Vec::new(),
            mosaic: Mosaic::default(),
            turned: StripLines::default(),
            planes: Default::default(),
            rows: Vec::new(),
            pixels: Vec::new(),
            sums: Vec::new(),
            filtered: Vec::new(),
            ring: Vec::new(),
            taps: Vec::new(),
            values: Default::default(),
        }
    }

    /// Filters a frame into the placed part of the tensor. Allocates only for a frame size that needs more than any before.
    pub(super) fn run(&mut self, job: &Job<'_, A>, writer: &mut TensorWriter, tensor: &mut [u8]) {
        let color = !(job.luma || job.frame.format().is_grey());
        if color {
            self.run_of::<COLOR_LANES>(job, writer, tensor);
        } else {
            self.run_of::<1>(job, writer, tensor);
        }
    }

    /// `C` is the lanes of a pixel.
    fn run_of<const C: usize>(&mut self, job: &Job<'_, A>, writer: &mut TensorWriter, tensor: &mut [u8]) {
        let Job { plan, tables, .. } = *job;
        let planes = C.min(3);
        let [x, y, width, height] = job.placed;
        let at_once = LANES / C;
        let (row_len, kept) = ((width * C).next_multiple_of(LANES), plan.kept + at_once - 1);
        self.reserve::<C>(job, row_len, kept, planes);

        if tables.rows.edges[0] < 0 || tables.rows.edges[1] >= plan.key.size.1 as i32 {
            let pad = A::Pixel::pad(writer.spec().pad);
            self.pixels[..plan.span * LANES].fill(pad);
            self.filter_rows::<C>(job, 0, row_len, &[kept]);
        }
        let mut done = 0;
        let mut slots = [0; LANES];
        for i in 0..height {
            let taps = i * tables.rows.taps..(i + 1) * tables.rows.taps;
            let (rows, weights) = (&plan.row_taps[taps.clone()], &tables.rows.weights[taps]);
            let end = rows.iter().filter(|&&row| row != PAD).max().map_or(0, |last| last + 1);
            while done < end {
                let now = at_once.min(plan.rows.len() - done);
                slots[..now].iter_mut().enumerate().for_each(|(k, slot)| *slot = (done + k) % kept);
                let start = if let Some(turned) = &plan.turned {
                    if done.is_multiple_of(STRIP) {
                        self.read_strip::<C>(job, turned, done / STRIP);
                    }
                    done % STRIP / at_once * chunk_len(job)
                } else {
                    for k in 0..now {
                        self.read::<C>(job, k, plan.rows[done + k], planes);
                    }
                    self.gather::<C>(job);
                    0
                };
                self.extend(job, start, writer.spec());
                self.filter_rows::<C>(job, start, row_len, &slots[..now]);
                done += now;
            }
            self.taps.clear();
            let used = rows.iter().zip(weights).filter(|&(_, &weight)| weight != A::Sum::default());
            self.taps.extend(used.map(|(&row, &weight)| (if row == PAD { kept } else { row % kept }, weight)));
            if tables.rows.descending {
                self.taps.reverse();
            }
            let values = self.values.each_mut().map(|values| &mut values[..row_len / C]);
            let (ring, taps, sums) = (&self.ring[..], &self.taps[..], &mut self.sums[..row_len]);
            self.isa.run(AcrossRows::<A, C> { arithmetic: job.arithmetic, ring, taps, sums, values });
            let low = planes_of(&self.values, planes);
            let pair = RowPair { low, high: None, weights: [1.0, 0.0], is_exact: false };
            writer.store(&pair, [x, y + i, width], tensor);
        }
    }

    fn reserve<const C: usize>(&mut self, job: &Job<'_, A>, row_len: usize, kept: usize, planes: usize) {
        let read = job.plan.columns.low.len();
        if job.plan.turned.is_some() {
            self.turned.reserve(job.frame.width());
            grow(&mut self.rows, LINES * 2 * STRIP * LANES);
            grow(&mut self.pixels, STRIP * C / LANES * chunk_len(job));
        }
        if let PixelFormat::Bayer(..) = job.frame.format() {
            self.mosaic.reserve(job.frame.width());
        } else {
            grow(&mut self.words, read);
        }
        for plane in &mut self.planes[..planes] {
            grow(plane, read);
        }
        grow(&mut self.rows, read * LANES);
        grow(&mut self.pixels, job.plan.span * LANES);
        let positions = job.tables.columns.first.len();
        grow(&mut self.sums, (positions * LANES).max(row_len));
        grow(&mut self.filtered, positions * LANES);
        grow(&mut self.ring, (kept + 1) * row_len);
        self.taps.clear();
        self.taps.reserve(job.tables.rows.taps);
        for values in &mut self.values {
            grow(values, row_len);
        }
    }

    /// Converts row `y` of the picture into the `k`th of `rows`.
    fn read<const C: usize>(&mut self, job: &Job<'_, A>, k: usize, y: u32, planes: usize) {
        let (frame, plan, columns) = (job.frame, job.plan, &job.plan.columns);
        let row = plan.key.frame_row(y) as usize;
        let planes = &mut self.planes[..planes];
        if let PixelFormat::Bayer(order, depth) = frame.format() {
            self.mosaic.resample(self.isa, frame, (order, depth), row, columns, planes);
        } else {
            let words = &mut self.words[..columns.low.len()];
            fetch_row(frame, row, columns.low[0] as usize, &mut words[..plan.skipped + plan.width]);
            let converter = Converter::<NumberOf<A>>::new(frame.format(), frame.color());
            converter.resample(self.isa, &Taps { columns, words: [words, &[]] }, planes);
        }
        let row = &mut self.rows.as_chunks_mut::<C>().0[k * columns.low.len()..][..plan.width];
        let planes = self.planes.each_ref().map(|plane| plane.get(plan.skipped..).unwrap_or(&[]));
        self.isa.run(Interleave::<A, C> { planes, reversed: plan.key.orientation.mirrored[0], row });
    }

    /// Puts the rows that were read into lanes.
    fn gather<const C: usize>(&mut self, job: &Job<'_, A>) {
        let FilterPlan { width, before, span, .. } = *job.plan;
        let pixels = &mut self.pixels.as_chunks_mut::<LANES>().0[..span];
        let rows = self.rows.as_chunks::<C>().0;
        let stride = job.plan.columns.low.len();
        self.isa.run(Gather::<A, C> { rows, stride, pixels: &mut pixels[before..before + width] });
    }

    /// Reads a strip of a turned frame into lanes.
    fn read_strip<const C: usize>(&mut self, job: &Job<'_, A>, turned: &TurnedPixels<NumberOf<A>>, index: usize) {
        let (strip, chunk_len) = (&turned.strips[index], chunk_len(job));
        let source = Source::new(self.isa, job.frame, job.luma);
        for (lines, columns) in turned.lines.chunks(LINES).zip(turned.columns.chunks(LINES)) {
            self.turned.read(&source, strip, lines.iter().copied(), 0, PixelsOf::Row);
            let rows = &mut self.rows.as_chunks_mut::<C>().0[..lines.len() * strip.lanes];
            let planes = self.turned.planes.each_ref().map(|plane| &plane[..]);
            self.isa.run(Interleave::<A, C> { planes, reversed: false, row: rows });
            let lanes = self.pixels.chunks_mut(chunk_len).zip(strip.order.chunks(LANES / C));
            for (pixels, order) in lanes {
                let pixels = &mut pixels.as_chunks_mut::<LANES>().0[job.plan.before..];
                self.isa.run(Scatter::<A, C> { rows, stride: strip.lanes, order, columns, pixels });
            }
        }
    }

    /// Repeats the edges of rows in lanes, or pads them, to the extent of the taps.
    fn extend(&mut self, job: &Job<'_, A>, start: usize, spec: &PreprocessSpec) {
        let FilterPlan { width, before, span, .. } = *job.plan;
        let pad = [A::Pixel::pad(spec.pad); LANES];
        let pixels = &mut self.pixels[start..].as_chunks_mut::<LANES>().0[..span];
        // Pixels of the frame that are not read are not needed, so the read ones' edges are the frame's wherever it matters.
        let [least, most] = job.tables.columns.edges;
        let padded = [least < 0, most >= job.plan.key.size.0 as i32];
        let [left, right] = [pixels[before], pixels[before + width - 1]];
        for (i, pixel) in pixels.iter_mut().enumerate() {
            if i < before {
                *pixel = if padded[0] { pad } else { left };
            } else if i >= before + width {
                *pixel = if padded[1] { pad } else { right };
            }
        }
    }

    /// Filters the rows in `pixels`, from `start` on, along themselves, into these slots of the ring.
    fn filter_rows<const C: usize>(&mut self, job: &Job<'_, A>, start: usize, row_len: usize, slots: &[usize]) {
        let columns = &job.tables.columns;
        let pixels = &self.pixels[start..].as_chunks::<LANES>().0[..job.plan.span];
        let (first, ring) = (&job.plan.first[..], &mut self.ring[..]);
        let sums = &mut self.sums.as_chunks_mut::<LANES>().0[..first.len()];
        let filtered = &mut self.filtered[..first.len() * LANES];
        self.isa.run(AlongRows::<A, C> { columns, first, pixels, sums, filtered, ring, row_len, slots });
    }
}

/// Returns the values from the lanes of some rows to those of the next, in a strip.
fn chunk_len<A: Arithmetic>(job: &Job<'_, A>) -> usize {
    odd_stride(job.plan.span * LANES, size_of::<A::Pixel>())
}

fn grow<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    buffer.resize(buffer.len().max(len), T::default());
}

/// Puts a row's planes side by side, or those of a mirrored one from the other end.
struct Interleave<'a, A: Arithmetic, const C: usize> {
    planes: [&'a [NumberOf<A>]; 3],
    reversed: bool,
    row: &'a mut [[A::Pixel; C]],
}

impl<A: Arithmetic, const C: usize> SliceLoop for Interleave<'_, A, C> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { planes, reversed, row } = self;
        let pixel = |a, b, c| {
            let channels = [A::Pixel::of(a), A::Pixel::of(b), A::Pixel::of(c), A::Pixel::default()];
            std::array::from_fn(|channel| channels[channel])
        };
        if C == 1 {
            let values = planes[0][..row.len()].iter();
            if reversed {
                row.iter_mut().zip(values.rev()).for_each(|(out, &a)| out[0] = A::Pixel::of(a));
            } else {
                row.iter_mut().zip(values).for_each(|(out, &a)| out[0] = A::Pixel::of(a));
            }
            return;
        }
        let [a, b, c] = planes.map(|plane| &plane[..row.len()]);
        let values = a.iter().zip(b).zip(c);
        if reversed {
            row.iter_mut().zip(values.rev()).for_each(|(out, ((&a, &b), &c))| *out = pixel(a, b, c));
        } else {
            row.iter_mut().zip(values).for_each(|(out, ((&a, &b), &c))| *out = pixel(a, b, c));
        }
    }
}

/// Puts pixels of lines side by side: those of neighbouring rows become the lanes of the line's column.
struct Scatter<'a, A: Arithmetic, const C: usize> {
    /// Lines `stride` pixels apart.
    rows: &'a [[A::Pixel; C]],
    stride: usize,
    /// The pixel of each row.
    order: &'a [usize],
    /// The column of each line.
    columns: &'a [usize],
    pixels: &'a mut [[A::Pixel; LANES]],
}

impl<A: Arithmetic, const C: usize> SliceLoop for Scatter<'_, A, C> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { rows, stride, order, columns, pixels } = self;
        for (line, &column) in rows.chunks_exact(stride).zip(columns) {
            for (lanes, &index) in pixels[column].as_chunks_mut::<C>().0.iter_mut().zip(order) {
                *lanes = line[index];
            }
        }
    }
}

/// Puts rows of pixels side by side: a column's pixels become its lanes.
struct Gather<'a, A: Arithmetic, const C: usize> {
    /// Rows `stride` pixels apart.
    rows: &'a [[A::Pixel; C]],
    stride: usize,
    pixels: &'a mut [[A::Pixel; LANES]],
}

impl<A: Arithmetic, const C: usize> SliceLoop for Gather<'_, A, C> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { rows, stride, pixels } = self;
        for four in 0..LANES / C / 4 {
            let [a, b, c, d] = std::array::from_fn(|k| &rows[(4 * four + k) * stride..][..pixels.len()]);
            for ((((pixel, a), b), c), d) in pixels.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                let lanes = &mut pixel.as_chunks_mut::<C>().0[4 * four..][..4];
                lanes.copy_from_slice(&[*a, *b, *c, *d]);
            }
        }
    }
}

/// Filters pixels along their rows.
struct AlongRows<'a, A: Arithmetic, const C: usize> {
    columns: &'a TapAxis<A::Sum>,
    first: &'a [usize],
    pixels: &'a [[A::Pixel; LANES]],
    sums: &'a mut [[A::Sum; LANES]],
    filtered: &'a mut [A::Row],
    ring: &'a mut [A::Row],
    row_len: usize,
    slots: &'a [usize],
}

impl<A: Arithmetic, const C: usize> SliceLoop for AlongRows<'_, A, C> {
    /// Three loops, each of which becomes vector instructions; one loop for all does not.
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { columns, first, pixels, sums, filtered, ring, row_len, slots } = self;
        for ((sums, &first), weights) in sums.iter_mut().zip(first).zip(columns.weights.chunks_exact(columns.taps)) {
            let mut sum = [A::Sum::default(); LANES];
            let pixels = &pixels[first..][..weights.len()];
            let (fours, rest) = weights.as_chunks::<4>();
            let (pixels, last) = pixels.as_chunks::<4>();
            for (weights, pixels) in fours.iter().zip(pixels) {
                for k in 0..4 {
                    for lane in 0..LANES {
                        sum[lane] = A::add_column(sum[lane], weights[k], pixels[k][lane]);
                    }
                }
            }
            for (&weight, pixel) in rest.iter().zip(last) {
                for lane in 0..LANES {
                    sum[lane] = A::add_column(sum[lane], weight, pixel[lane]);
                }
            }
            *sums = sum;
        }
        for (value, &sum) in filtered.iter_mut().zip(sums.as_flattened()) {
            *value = A::row(sum);
        }
        let filtered = filtered.as_chunks::<LANES>().0;
        for (k, &slot) in slots.iter().enumerate() {
            let row = ring[slot * row_len..][..row_len].as_chunks_mut::<C>().0;
            for (pixel, lanes) in row.iter_mut().zip(filtered) {
                pixel.copy_from_slice(&lanes[k * C..][..C]);
            }
        }
    }
}

/// Filters across filtered rows.
struct AcrossRows<'a, A: Arithmetic, const C: usize> {
    arithmetic: A,
    ring: &'a [A::Row],
    taps: &'a [(usize, A::Sum)],
    sums: &'a mut [A::Sum],
    values: [&'a mut [f32]; 3],
}

impl<A: Arithmetic, const C: usize> SliceLoop for AcrossRows<'_, A, C> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { arithmetic, ring, taps, sums, values } = self;
        let row_len = sums.len();
        sums.fill(A::Sum::default());
        for &(slot, weight) in taps {
            for (sum, &row) in sums.iter_mut().zip(&ring[slot * row_len..][..row_len]) {
                *sum = A::add_row(*sum, weight, row);
            }
        }
        let [a, b, c] = values;
        if C == 1 {
            for (value, &sum) in a.iter_mut().zip(&*sums) {
                *value = arithmetic.value(sum);
            }
            return;
        }
        for (((a, b), c), sums) in a.iter_mut().zip(b).zip(c).zip(sums.as_chunks::<COLOR_LANES>().0) {
            *a = arithmetic.value(sums[0]);
            *b = arithmetic.value(sums[1]);
            *c = arithmetic.value(sums[2]);
        }
    }
}
