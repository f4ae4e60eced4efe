//! The tables that the kernel reads: which source pixels contribute to each pixel of the tensor.
//!
//! They are the CPU reference's own ([`super::super::plan`], [`super::super::taps`]), so that both sample alike to the last bit,
//! and no GPU has to compute positions in double precision, which is slow on small ones. A few KB for each frame size.

use std::marker::PhantomData;
use std::ops::Range;

use super::job::{AxisTable, Kernel, PIXELS, SumRules, TILE_COLUMNS, TILE_ROWS, TileRules};
use crate::placement::{AxisMap, Mapping};
use crate::preprocess::axis::{PlanKey, pixel_pair};
use crate::preprocess::number::{Along, Number};
use crate::preprocess::simd::{Isa, SliceLoop};
use crate::preprocess::spec::{PreprocessSpec, Sampling};
use crate::preprocess::taps::{Sums, TapAxis, TapPlan, TapTables};
use crate::view::Orientation;

/// The position of a pixel of padding: `PAD` of the kernel.
const PAD: u32 = u32::MAX;

/// The sum of the weights of a warp's position in the kernel: they are 32nds.
const WARP_WEIGHTS: f32 = 32.0;

/// How the kernel reads the tables of one frame size and orientation.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameTables {
    pub(super) key: PlanKey,
    pub(super) mapping: Mapping,
    /// How to finish the sums, for any number of taps.
    pub(super) rules: SumRules,
    /// The additional parameters of tiles.
    pub(super) tiles: TileRules,
    /// The taps of a column and of a row. Of two, 1 if the upper ones of all columns have no weight.
    taps: [u32; 2],
    /// The bytes of the columns' tables, which the rows' follow.
    column_bytes: usize,
}

impl FrameTables {
    /// Returns the columns and rows of tables that begin at `address`.
    pub(super) fn axes(&self, spec: &PreprocessSpec, address: u64) -> [AxisTable; 2] {
        let [columns, rows] = strides(spec).map(|stride| stride as u32);
        let rows_at = address + self.column_bytes as u64;
        [
            AxisTable { entries: address, stride: columns, taps: self.taps[0] },
            AxisTable { entries: rows_at, stride: rows, taps: self.taps[1] },
        ]
    }
}

/// Returns the entries of the columns and of the rows, rounded up to whole groups.
fn strides(spec: &PreprocessSpec) -> [usize; 2] {
    [spec.width, spec.height].map(|side| side.next_multiple_of(PIXELS) as usize)
}

/// Returns the frame's position of one of the picture along an axis. If the picture is transposed, the frame's description is as
/// well, so that the kernel's columns are the frame's rows.
fn frame_position(position: u32, side: u32, mirrored: bool) -> u32 {
    if mirrored { side - 1 - position } else { position }
}

/// Returns the picture's width and height, each with whether that axis is mirrored.
fn sides(key: PlanKey) -> [(u32, bool); 2] {
    let (PlanKey { size: (width, height), .. }, [across, down]) = (key, key.orientation.mirrored);
    [(width, across), (height, down)]
}

/// Makes the tables of one frame size and appends their words: for columns, then for rows, all lower positions, all upper ones, then
/// their weights if these are separate. One entry per column or row of the tensor; entries outside the picture repeat the nearest.
/// With any number of taps: the positions of every first tap, of every second, and so on, then the weights. For tiles:
/// `kernels/cuda/preprocess_tiles.cuh` has the form. The words are a multiple of 4.
pub(super) fn make(spec: &PreprocessSpec, key: PlanKey, words: &mut Vec<u32>) -> FrameTables {
    if !spec.is_plain() {
        let TapPlan { mapping, sums } = TapPlan::new(spec, key.size);
        let mapping = (mapping, key);
        let rules = SumRules::new(&sums, spec.sampling);
        return match &sums {
            Sums::Float(tables, _) if Kernel::of(spec) == Kernel::Warp => make_warp(spec, mapping, tables, words),
            Sums::Pillow(tables) => make_tiles(spec, mapping, tables, rules, weighted_bytes, words),
            Sums::Linear(tables) => make_taps(spec, mapping, tables, rules, i32::cast_unsigned, words),
            Sums::Float(tables, _) if Kernel::of(spec) == Kernel::Antialias => {
                make_tiles(spec, mapping, tables, rules, |weights| weights.map(f32::to_bits), words)
            }
            Sums::Float(tables, _) => make_taps(spec, mapping, tables, rules, f32::to_bits, words),
        };
    }
    match spec.sampling {
        Sampling::Exact => make_pairs::<f32>(spec, key, words),
        _ => make_pairs::<u16>(spec, key, words),
    }
}

/// A weight of two taps, as the kernels read it.
trait PairWeight: Number {
    /// Whether the weights follow the positions, rather than being in the same words.
    const APART: bool;

    /// Returns the word of a position.
    fn word(position: u32, weight: Self) -> u32;

    /// Returns a weight that is apart as a word.
    fn weight_bits(weight: Self) -> u32;
}

impl PairWeight for u16 {
    const APART: bool = false;

    /// Positions are below 2^14, weights at most 2^11.
    #[inline(always)]
    fn word(position: u32, weight: u16) -> u32 {
        position | u32::from(weight) << 16
    }

    #[inline(always)]
    fn weight_bits(weight: u16) -> u32 {
        u32::from(weight)
    }
}

impl PairWeight for f32 {
    const APART: bool = true;

    #[inline(always)]
    fn word(position: u32, _weight: f32) -> u32 {
        position
    }

    #[inline(always)]
    fn weight_bits(weight: f32) -> u32 {
        weight.to_bits()
    }
}

/// Makes the tables of two taps. A model on detections has frames of a new size in every run, so this takes a microsecond and
/// allocates nothing.
fn make_pairs<N: PairWeight>(spec: &PreprocessSpec, key: PlanKey, words: &mut Vec<u32>) -> FrameTables {
    let mapping = Mapping::new(spec.placement, key.size, (spec.width, spec.height));
    let lists = if N::APART { 4 } else { 2 };
    let ([columns, rows], first) = (strides(spec), words.len());
    words.resize(first + (columns + rows) * lists, 0);
    let (column_words, row_words) = words[first..].split_at_mut(columns * lists);
    let ([across, down], isa) = (sides(key), Isa::detect());
    let [mut single, mut single_rows] = [false; 2];
    let axis = |along, picture, words, stride, single| PairLoop::<N> {
        along,
        map: &mapping.axes()[usize::from(along == Along::Y)],
        picture,
        words,
        stride,
        single,
        number: PhantomData,
    };
    isa.run(axis(Along::X, across, column_words, columns, &mut single));
    isa.run(axis(Along::Y, down, row_words, rows, &mut single_rows));
    let taps = [if single { 1 } else { 2 }, 2];
    let (rules, tiles) = (SumRules::default(), TileRules::default());
    FrameTables { key, mapping, rules, tiles, taps, column_bytes: columns * lists * 4 }
}

/// Makes the table of one axis with two taps.
struct PairLoop<'a, N> {
    along: Along,
    map: &'a AxisMap,
    /// The side of the picture, and whether it is mirrored.
    picture: (u32, bool),
    words: &'a mut [u32],
    /// The entries of each list.
    stride: usize,
    /// Set to whether no upper tap has a weight.
    single: &'a mut bool,
    number: PhantomData<N>,
}

impl<N: PairWeight> SliceLoop for PairLoop<'_, N> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { along, picture: (side, mirrored), words, stride, single, .. } = self;
        // A copy, because the compiler must assume that writing words changes what is behind a reference.
        let map = *self.map;
        let (from, count) = (map.at as usize, map.count as usize);
        let (positions, weights) = words.split_at_mut(2 * stride);
        let (low, high) = positions.split_at_mut(stride);
        let (low, high) = (&mut low[from..][..count], &mut high[from..][..count]);
        let [low_weights, high_weights] = match N::APART {
            true => {
                let (low, high) = weights.split_at_mut(stride);
                [&mut low[from..][..count], &mut high[from..][..count]]
            }
            false => [&mut [][..], &mut [][..]],
        };
        let mut upper = false;
        for i in 0..count {
            let (pixels, weights) = pixel_pair::<N>(along, &map, i as u32);
            let pixels = pixels.map(|pixel| frame_position(pixel, side, mirrored));
            low[i] = N::word(pixels[0], weights[0]);
            high[i] = N::word(pixels[1], weights[1]);
            if N::APART {
                low_weights[i] = N::weight_bits(weights[0]);
                high_weights[i] = N::weight_bits(weights[1]);
            }
            upper |= weights[1] != N::NONE;
        }
        *single = !upper;
        for list in words.chunks_exact_mut(stride) {
            let (first, last) = (list[from], list[from + count - 1]);
            list[..from].fill(first);
            list[from + count..].fill(last);
        }
    }
}

/// Makes pairs of a warp. Taps on padding have no weight: the kernel adds what they leave of it.
fn make_warp(
    spec: &PreprocessSpec,
    (mapping, key): (Mapping, PlanKey),
    tables: &TapTables<f32>,
    words: &mut Vec<u32>,
) -> FrameTables {
    let [across, down] = sides(key);
    let [columns, rows] = strides(spec);
    for (axis, (size, mirrored), stride) in [(&tables.columns, across, columns), (&tables.rows, down, rows)] {
        for tap in 0..2 {
            words.extend((0..stride).map(|i| {
                let (pixel, weight) = axis.pair(i.min(axis.first.len() - 1), size)[tap];
                // Weights are multiples of 1/32, positions below 2^14.
                pixel.map_or(0, |pixel| frame_position(pixel, size, mirrored) | ((weight * WARP_WEIGHTS) as u32) << 16)
            }));
        }
    }
    let (rules, tiles) = (SumRules::default(), TileRules::default());
    FrameTables { key, mapping, rules, tiles, taps: [tables.columns.taps as u32, 2], column_bytes: columns * 2 * 4 }
}

/// `bits` are a weight's.
fn make_taps<W: Copy>(
    spec: &PreprocessSpec,
    (mapping, key): (Mapping, PlanKey),
    tables: &TapTables<W>,
    rules: SumRules,
    bits: fn(W) -> u32,
    words: &mut Vec<u32>,
) -> FrameTables {
    let [columns, rows] = strides(spec);
    let [across, down] = sides(key);
    let [x, y, _, _] = mapping.placed().map(|pixels| pixels as usize);
    let mut append = |axis: &TapAxis<W>, (side, mirrored): (u32, bool), stride: usize, first: usize| {
        let order = |k: usize| if axis.descending { axis.taps - 1 - k } else { k };
        let entry = |i: usize| i.saturating_sub(first).min(axis.first.len() - 1);
        let position = |i: usize, k: usize| {
            let position = (axis.first[i] + k as i32).clamp(axis.edges[0], axis.edges[1]);
            let inside = u32::try_from(position).ok().filter(|&position| position < side);
            inside.map_or(PAD, |position| frame_position(position, side, mirrored))
        };
        for k in (0..axis.taps).map(order) {
            words.extend((0..stride).map(|i| position(entry(i), k)));
        }
        for k in (0..axis.taps).map(order) {
            words.extend((0..stride).map(|i| bits(axis.weights[entry(i) * axis.taps + k])));
        }
    };
    append(&tables.columns, across, columns, x);
    append(&tables.rows, down, rows, y);
    let taps = [tables.columns.taps as u32, tables.rows.taps as u32];
    let column_bytes = columns * tables.columns.taps * 2 * 4;
    FrameTables { key, mapping, rules, tiles: TileRules::default(), taps, column_bytes }
}

/// Splits weights of 24 bits into their lower halves, two in a word, and their upper bytes.
fn weighted_bytes(weights: [i32; 4]) -> [u32; 4] {
    let [a, b, c, d] = weights.map(i32::cast_unsigned);
    let halves = |low: u32, high: u32| low & 0xffff | high << 16;
    [halves(a, b), halves(c, d), u32::from_le_bytes([a, b, c, d].map(|weight| (weight >> 16) as u8)), 0]
}

fn make_tiles<W: Copy + Default + PartialEq>(
    spec: &PreprocessSpec,
    (mapping, key): (Mapping, PlanKey),
    tables: &TapTables<W>,
    rules: SumRules,
    // Returns the words of four weights.
    four: impl Fn([W; 4]) -> [u32; 4],
    words: &mut Vec<u32>,
) -> FrameTables {
    let first = words.len();
    let (fours, tile_fours) = tile_columns(spec, &mapping, &tables.columns, &four, words);
    let column_bytes = (words.len() - first) * 4;
    let listed_words = tile_rows(spec, (&mapping, key), &tables.rows, four, words);
    let tiles = TileRules { reach: tables.columns.edges, listed_words: listed_words as u32, tile_fours };
    FrameTables { key, mapping, rules, tiles, taps: [fours as u32, 0], column_bytes }
}

/// Appends the columns' words; returns the fours of a column, and the most fours of a tile.
fn tile_columns<W: Copy + Default + PartialEq>(
    spec: &PreprocessSpec,
    mapping: &Mapping,
    axis: &TapAxis<W>,
    four: impl Fn([W; 4]) -> [u32; 4],
    words: &mut Vec<u32>,
) -> (usize, u32) {
    let stride = strides(spec)[0];
    let placed = mapping.placed()[0] as usize;
    let entry = |x: usize| x.saturating_sub(placed).min(axis.first.len() - 1);
    // The first position, a multiple of 4, the taps without weight before the column's own, and the fours altogether.
    let windows: Vec<(i32, usize, usize)> = (axis.first.iter().zip(axis.weights.chunks_exact(axis.taps)))
        .map(|(&first, weights)| {
            let used = weights.iter().rposition(|&weight| weight != W::default()).map_or(1, |last| last + 1);
            let before = (first & 3) as usize;
            (first - before as i32, before, (before + used).div_ceil(4))
        })
        .collect();
    let fours = windows.iter().map(|&(.., fours)| fours).max().unwrap_or(1);
    words.extend((0..stride).map(|x| windows[entry(x)].0.cast_unsigned()));
    let first = words.len();
    words.resize(first + fours * stride * 4, 0);
    for x in 0..stride {
        let entry = entry(x);
        let (_, before, fours) = windows[entry];
        let weights = &axis.weights[entry * axis.taps..][..axis.taps];
        let place = |k: usize| first + (k * stride + x) * 4;
        write_fours(weights, before, fours, &four, words, place);
    }
    let mut most = 0;
    for x in (0..spec.width as usize).step_by(TILE_COLUMNS as usize) {
        let tile = (x..x + TILE_COLUMNS as usize).map(|x| windows[entry(x)]);
        let (low, high) = tile.fold((i32::MAX, i32::MIN), |(low, high), (first, _, fours)| {
            (low.min(first), high.max(first + 4 * fours as i32))
        });
        let needed = (high - low) as u32 / 4;
        words.extend([low.cast_unsigned(), needed]);
        most = most.max(needed);
    }
    // The words before are whole fours.
    words.resize(words.len().next_multiple_of(4), 0);
    (fours, most)
}

/// Writes the words of a window's weights, `before` places after the beginning of the first of `fours`; `place` is where each four goes.
/// Words of no weight are 0, as they are before.
#[inline(always)]
fn write_fours<W: Copy + Default>(
    weights: &[W],
    before: usize,
    fours: usize,
    four: impl Fn([W; 4]) -> [u32; 4],
    words: &mut [u32],
    place: impl Fn(usize) -> usize,
) {
    for k in 0..fours {
        let weight = |i: usize| (4 * k + i).checked_sub(before).and_then(|tap| weights.get(tap)).copied();
        let weights = std::array::from_fn(|i| weight(i).unwrap_or_default());
        words[place(k)..][..4].copy_from_slice(&four(weights));
    }
}

/// Appends the rows' words; returns how many of them are for a row of tiles.
fn tile_rows<W: Copy + Default + PartialEq>(
    spec: &PreprocessSpec,
    (mapping, key): (&Mapping, PlanKey),
    axis: &TapAxis<W>,
    four: impl Fn([W; 4]) -> [u32; 4],
    words: &mut Vec<u32>,
) -> usize {
    let frame = [0, mapping.source().1 as i32 - 1];
    let lengths: Vec<usize> = { axis.weights.chunks_exact(axis.taps) }
        .map(|weights| weights.iter().rposition(|&weight| weight != W::default()).map_or(0, |last| last + 1))
        .collect();
    if axis.edges == frame && !lengths.contains(&0) {
        tile_frame_rows(spec, (mapping, key), axis, &lengths, four, words)
    } else {
        tile_listed_rows(spec, (mapping, key), axis, four, words)
    }
}

/// The same as [`tile_listed_rows`] if all taps are rows of the frame, which then follow each other. `lengths` are the taps of each row.
/// It sorts and allocates nothing, which counts for a model on detections: its frames have new sizes in every run.
fn tile_frame_rows<W: Copy + Default>(
    spec: &PreprocessSpec,
    (mapping, key): (&Mapping, PlanKey),
    axis: &TapAxis<W>,
    lengths: &[usize],
    four: impl Fn([W; 4]) -> [u32; 4],
    words: &mut Vec<u32>,
) -> usize {
    let (tile, begin) = (TILE_ROWS as usize, words.len());
    let [_, placed, _, height] = mapping.placed().map(|pixels| pixels as usize);
    let lines_of = |first: usize| first.max(placed) - placed..(first + tile).clamp(placed, placed + height) - placed;
    let end_of = |y: usize| axis.first[y] + lengths[y] as i32;
    // The rows of the frame that a tile needs.
    let rows_of = |lines: Range<usize>| {
        let first = lines.clone().map(|y| axis.first[y]).min().unwrap_or(0);
        first..lines.map(end_of).max().unwrap_or(first)
    };
    let tiles = || (0..spec.height as usize).step_by(tile);
    let most = tiles().map(|first| rows_of(lines_of(first)).len().next_multiple_of(4)).max().unwrap_or(0);
    let header = 4 + 2 * tile;
    let listed_words = header + most * (1 + tile);
    words.resize(begin + tiles().count() * listed_words, 0);
    for (first, words) in tiles().zip(words[begin..].chunks_exact_mut(listed_words)) {
        let lines = lines_of(first);
        let rows = rows_of(lines.clone());
        let (header, listed) = words.split_at_mut(header);
        let (listed, weight_words) = listed.split_at_mut(most);
        header[0] = rows.len() as u32;
        let is_run = key.orientation == Orientation::UPRIGHT && !lines.is_empty();
        header[1] = if is_run { rows.start.cast_unsigned() } else { PAD };
        for (word, row) in listed.iter_mut().zip(rows.clone()) {
            *word = frame_position(row.cast_unsigned(), key.size.1, key.orientation.mirrored[1]);
        }
        for y in lines {
            let line = y + placed - first;
            let low = (axis.first[y] - rows.start) as usize;
            let fours = low / 4..(low + lengths[y] - 1) / 4 + 1;
            (header[4 + line], header[4 + tile + line]) = (fours.start as u32, fours.end as u32);
            let weights = &axis.weights[y * axis.taps..][..lengths[y]];
            let place = |k: usize| ((fours.start + k) * tile + line) * 4;
            write_fours(weights, low % 4, fours.len(), &four, weight_words, place);
        }
    }
    listed_words
}

/// Appends the rows' words, of any rows of the frame and padding, in any order; returns how many of them are for a row of tiles.
fn tile_listed_rows<W: Copy + Default + PartialEq>(
    spec: &PreprocessSpec,
    (mapping, key): (&Mapping, PlanKey),
    axis: &TapAxis<W>,
    four: impl Fn([W; 4]) -> [u32; 4],
    words: &mut Vec<u32>,
) -> usize {
    let tile = TILE_ROWS as usize;
    let [_, placed, _, height] = mapping.placed().map(|pixels| pixels as usize);
    let source = mapping.source().1 as i32;
    // The rows of the frame under all rows' taps, each with the number of times that it came before, since an edge is repeated, and
    // the weight. Those beyond the frame are padding, all of one kind. `ends` has the end of each row's.
    let mut taps: Vec<(i32, usize, W)> = Vec::with_capacity(height * axis.taps);
    let mut ends = Vec::with_capacity(height);
    for (&first, weights) in axis.first.iter().zip(axis.weights.chunks_exact(axis.taps)) {
        let begin = taps.len();
        for (row, &weight) in (first..).zip(weights).filter(|&(_, &weight)| weight != W::default()) {
            let row = row.clamp(axis.edges[0], axis.edges[1]).clamp(-1, source);
            // Rows never fall.
            let before = match taps[begin..].last() {
                Some(&(known, before, _)) if known == row => before + 1,
                _ => 0,
            };
            taps.push((row, before, weight));
        }
        ends.push(taps.len());
    }
    let taps_of = |y: usize| &taps[if y == 0 { 0 } else { ends[y - 1] }..ends[y]];
    // The rows of the tensor in a tile that have taps, counted from the picture's first.
    let lines_of = |first: usize| first.max(placed) - placed..(first + tile).clamp(placed, placed + height) - placed;
    let mut tiles = Vec::with_capacity(spec.height.div_ceil(TILE_ROWS) as usize);
    for first in (0..spec.height as usize).step_by(tile) {
        let lines = lines_of(first);
        let taps = || lines.clone().flat_map(taps_of);
        let edges = taps().fold((i32::MAX, i32::MIN), |(low, high), &(row, ..)| (low.min(row), high.max(row)));
        // Some kernels have taps without weight between others. With them, the rows follow each other.
        let is_run = taps().all(|&(row, before, _)| (0..source).contains(&row) && before == 0);
        let list = match edges {
            (low, high) if is_run && low <= high => Listed::Run(low..high + 1),
            _ => {
                let mut list: Vec<_> = taps().map(|&(row, before, _)| (row, before)).collect();
                list.sort_unstable();
                list.dedup();
                Listed::Apart(list)
            }
        };
        tiles.push((first, lines, list));
    }
    let most = tiles.iter().map(|(.., list)| list.len().next_multiple_of(4)).max().unwrap_or(0);
    let header = 4 + 2 * tile;
    let listed_words = header + most * (1 + tile);
    let begin = words.len();
    words.resize(begin + tiles.len() * listed_words, 0);
    let mut weights = vec![W::default(); most * tile];
    for ((first, lines, list), words) in tiles.into_iter().zip(words[begin..].chunks_exact_mut(listed_words)) {
        let (header, listed) = words.split_at_mut(header);
        let (listed, weight_words) = listed.split_at_mut(most);
        header[0] = list.len() as u32;
        // A run is read faster than a list; it is one of the frame's rows, from left to right.
        header[1] = match &list {
            Listed::Run(rows) if key.orientation == Orientation::UPRIGHT => rows.start.cast_unsigned(),
            _ => PAD,
        };
        for (word, row) in listed.iter_mut().zip(list.rows()) {
            let inside = u32::try_from(row).ok().filter(|_| row < source);
            *word = inside.map_or(PAD, |row| frame_position(row, key.size.1, key.orientation.mirrored[1]));
        }
        weights.fill(W::default());
        for y in lines {
            let line = y + placed - first;
            let taps = taps_of(y);
            if let (Some(&low), Some(&high)) = (taps.first(), taps.last()) {
                header[4 + line] = list.place(low) as u32 / 4;
                header[4 + tile + line] = list.place(high) as u32 / 4 + 1;
            }
            for &tap in taps {
                let place = list.place(tap);
                weights[(place / 4 * tile + line) * 4 + place % 4] = tap.2;
            }
        }
        for (words, weights) in weight_words.as_chunks_mut::<4>().0.iter_mut().zip(weights.as_chunks::<4>().0) {
            *words = four(*weights);
        }
    }
    listed_words
}

/// The rows of the frame that a tile lists.
enum Listed {
    /// Rows that follow each other.
    Run(Range<i32>),
    /// Any, in their order, each with the number of times that it came before.
    Apart(Vec<(i32, usize)>),
}

impl Listed {
    fn len(&self) -> usize {
        match self {
            Self::Run(rows) => rows.len(),
            Self::Apart(list) => list.len(),
        }
    }

    fn rows(&self) -> impl Iterator<Item = i32> {
        let (run, list) = match self {
            Self::Run(rows) => (rows.clone(), &[][..]),
            Self::Apart(list) => (0..0, list.as_slice()),
        };
        run.chain(list.iter().map(|&(row, _)| row))
    }

    /// Returns where a tap's row is.
    fn place<W>(&self, (row, before, _): (i32, usize, W)) -> usize {
        match self {
            Self::Run(rows) => (row - rows.start) as usize,
            Self::Apart(list) => list.binary_search(&(row, before)).unwrap_or_else(|place| place),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::placement::Fit;
    use crate::tensor::DType;

    proptest! {
        #[test]
        fn rows_of_the_frame_are_listed_alike(
            width in 1..900_u32, height in 1..900_u32, input in 1..300_u32, cubic: bool, mirrored: bool,
        ) {
            let sampling = if cubic { Sampling::PillowBicubic } else { Sampling::PillowBilinear };
            for fit in [Fit::Stretch, Fit::Crop { fraction: 0.875 }, Fit::Letterbox] {
                let spec = PreprocessSpec { sampling, placement: fit.into(), ..PreprocessSpec::yolo(input, input, DType::F16) };
                let orientation = Orientation { mirrored: [false, mirrored], ..Orientation::UPRIGHT };
                let key = PlanKey { size: (width, height), orientation };
                let TapPlan { mapping, sums: Sums::Pillow(tables) } = TapPlan::new(&spec, key.size) else {
                    unreachable!("a sampling of Pillow")
                };
                let [mut fast, mut listed] = [vec![7], vec![7]];
                let of_fast = tile_rows(&spec, (&mapping, key), &tables.rows, weighted_bytes, &mut fast);
                let of_listed = tile_listed_rows(&spec, (&mapping, key), &tables.rows, weighted_bytes, &mut listed);
                prop_assert_eq!((of_fast, fast), (of_listed, listed));
            }
        }
    }
}
