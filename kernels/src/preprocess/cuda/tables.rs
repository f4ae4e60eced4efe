//! The tables that the kernel reads: which source pixels contribute to each pixel of the tensor.
//!
//! They are the CPU reference's own ([`super::super::plan`], [`super::super::taps`]), so that both sample alike to the last bit,
//! and no GPU has to compute positions in double precision, which is slow on small ones. A few KB for each frame size.

use super::job::{AxisTable, Kernel, PIXELS, SumRules, TILE_COLUMNS, TILE_ROWS, TileRules};
use crate::placement::Mapping;
use crate::preprocess::number::Number;
use crate::preprocess::plan::{Axis, PlanKey, PreprocessPlan};
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

/// Makes the tables of one frame size: for columns, then for rows, all lower positions, all upper ones, then their weights if
/// these are separate. One entry per column or row of the tensor; entries outside the picture repeat the nearest. With any
/// number of taps: the positions of every first tap, of every second, and so on, then the weights. For tiles:
/// `kernels/cuda/preprocess_tiles.cuh` has the form.
pub(super) fn make(spec: &PreprocessSpec, key: PlanKey) -> (FrameTables, Vec<u8>) {
    if !spec.is_plain() {
        let TapPlan { mapping, sums } = TapPlan::new(spec, key.size);
        let mapping = (mapping, key);
        let rules = SumRules::new(&sums, spec.sampling);
        return match &sums {
            Sums::Float(tables, _) if Kernel::of(spec) == Kernel::Warp => make_warp(spec, mapping, tables),
            Sums::Pillow(tables) => make_tiles(spec, mapping, tables, rules, weighted_bytes),
            Sums::Linear(tables) => make_taps(spec, mapping, tables, rules, i32::cast_unsigned),
            Sums::Float(tables, _) if Kernel::of(spec) == Kernel::Antialias => {
                make_tiles(spec, mapping, tables, rules, |weights| weights.map(f32::to_bits))
            }
            Sums::Float(tables, _) => make_taps(spec, mapping, tables, rules, f32::to_bits),
        };
    }
    match spec.sampling {
        Sampling::Exact => make_pairs(spec, key, [|position, _| position, |_, weight: f32| weight.to_bits()]),
        // Positions are below 2^14, weights at most 2^11.
        _ => make_pairs(spec, key, [|position, weight: u16| position | u32::from(weight) << 16]),
    }
}

/// `words` are the parts of an entry, from its position and weight.
fn make_pairs<N: Number, const WORDS: usize>(
    spec: &PreprocessSpec,
    key: PlanKey,
    words: [fn(u32, N) -> u32; WORDS],
) -> (FrameTables, Vec<u8>) {
    let plan = PreprocessPlan::<N>::of_picture(spec, key);
    let [x, y, width, height] = plan.mapping.placed().map(|pixels| pixels as usize);
    let [columns, rows] = strides(spec);
    let mut bytes = Vec::with_capacity((columns + rows) * 2 * WORDS * 4);
    let mut append = |axis: &Axis<N>, (side, mirrored): (u32, bool), stride: usize, first: usize, count: usize| {
        for word in words {
            for (positions, weights) in [&axis.low, &axis.high].into_iter().zip(&axis.weights) {
                for i in 0..stride {
                    let i = i.saturating_sub(first).min(count - 1);
                    bytes.extend(word(frame_position(positions[i], side, mirrored), weights[i]).to_le_bytes());
                }
            }
        }
    };
    let [across, down] = sides(key);
    append(&plan.columns, across, columns, x, width);
    append(&plan.rows, down, rows, y, height);
    let taps = [if plan.columns.single { 1 } else { 2 }, 2];
    let column_bytes = columns * 2 * WORDS * 4;
    let rules = SumRules::default();
    (FrameTables { key, mapping: plan.mapping, rules, tiles: TileRules::default(), taps, column_bytes }, bytes)
}

/// Makes pairs of a warp. Taps on padding have no weight: the kernel adds what they leave of it.
fn make_warp(
    spec: &PreprocessSpec,
    (mapping, key): (Mapping, PlanKey),
    tables: &TapTables<f32>,
) -> (FrameTables, Vec<u8>) {
    let [across, down] = sides(key);
    let [columns, rows] = strides(spec);
    let mut bytes = Vec::with_capacity((columns + rows) * 2 * 4);
    for (axis, (size, mirrored), stride) in [(&tables.columns, across, columns), (&tables.rows, down, rows)] {
        for tap in 0..2 {
            for i in 0..stride {
                let (pixel, weight) = axis.pair(i.min(axis.first.len() - 1), size)[tap];
                // Weights are multiples of 1/32, positions below 2^14.
                let entry = pixel
                    .map_or(0, |pixel| frame_position(pixel, size, mirrored) | ((weight * WARP_WEIGHTS) as u32) << 16);
                bytes.extend(entry.to_le_bytes());
            }
        }
    }
    let (rules, tiles) = (SumRules::default(), TileRules::default());
    (
        FrameTables {
            key,
            mapping,
            rules,
            tiles,
            taps: [tables.columns.taps as u32, 2],
            column_bytes: columns * 2 * 4,
        },
        bytes,
    )
}

/// `bits` are a weight's.
fn make_taps<W: Copy>(
    spec: &PreprocessSpec,
    (mapping, key): (Mapping, PlanKey),
    tables: &TapTables<W>,
    rules: SumRules,
    bits: fn(W) -> u32,
) -> (FrameTables, Vec<u8>) {
    let [columns, rows] = strides(spec);
    let [across, down] = sides(key);
    let [x, y, _, _] = mapping.placed().map(|pixels| pixels as usize);
    let column_bytes = columns * tables.columns.taps * 2 * 4;
    let mut bytes = Vec::with_capacity(column_bytes + rows * tables.rows.taps * 2 * 4);
    let mut append = |axis: &TapAxis<W>, (side, mirrored): (u32, bool), stride: usize, first: usize| {
        let order = |k: usize| if axis.descending { axis.taps - 1 - k } else { k };
        let entry = |i: usize| i.saturating_sub(first).min(axis.first.len() - 1);
        let position = |i: usize, k: usize| {
            let position = (axis.first[i] + k as i32).clamp(axis.edges[0], axis.edges[1]);
            let inside = u32::try_from(position).ok().filter(|&position| position < side);
            inside.map_or(PAD, |position| frame_position(position, side, mirrored))
        };
        let words = (0..axis.taps).map(order).flat_map(|k| (0..stride).map(move |i| (entry(i), k)));
        bytes.extend(words.clone().flat_map(|(i, k)| position(i, k).to_le_bytes()));
        bytes.extend(words.flat_map(|(i, k)| bits(axis.weights[i * axis.taps + k]).to_le_bytes()));
    };
    append(&tables.columns, across, columns, x);
    append(&tables.rows, down, rows, y);
    let taps = [tables.columns.taps as u32, tables.rows.taps as u32];
    (FrameTables { key, mapping, rules, tiles: TileRules::default(), taps, column_bytes }, bytes)
}

/// The words of four weights in a tile's table.
type FourWeights<W> = fn([W; 4]) -> [u32; 4];

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
    four: FourWeights<W>,
) -> (FrameTables, Vec<u8>) {
    let (mut words, fours, tile_fours) = tile_columns(spec, &mapping, &tables.columns, four);
    let column_bytes = words.len() * 4;
    let (rows, listed_words) = tile_rows(spec, (&mapping, key), &tables.rows, four);
    words.extend(rows);
    let tiles = TileRules { reach: tables.columns.edges, listed_words: listed_words as u32, tile_fours };
    let bytes = words.into_iter().flat_map(u32::to_le_bytes).collect();
    (FrameTables { key, mapping, rules, tiles, taps: [fours as u32, 0], column_bytes }, bytes)
}

/// Returns the words, the fours of a column, and the most fours of a tile.
fn tile_columns<W: Copy + Default + PartialEq>(
    spec: &PreprocessSpec,
    mapping: &Mapping,
    axis: &TapAxis<W>,
    four: FourWeights<W>,
) -> (Vec<u32>, usize, u32) {
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
    let mut words: Vec<u32> = (0..stride).map(|x| windows[entry(x)].0.cast_unsigned()).collect();
    for k in 0..fours {
        words.extend((0..stride).flat_map(|x| {
            let (_, before, _) = windows[entry(x)];
            let weights = &axis.weights[entry(x) * axis.taps..][..axis.taps];
            let weight =
                |tap: usize| tap.checked_sub(before).and_then(|tap| weights.get(tap)).copied().unwrap_or_default();
            four(std::array::from_fn(|i| weight(4 * k + i)))
        }));
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
    words.resize(words.len().next_multiple_of(4), 0);
    (words, fours, most)
}

/// Returns the words, and how many of them are for a row of tiles.
fn tile_rows<W: Copy + Default + PartialEq>(
    spec: &PreprocessSpec,
    (mapping, key): (&Mapping, PlanKey),
    axis: &TapAxis<W>,
    four: FourWeights<W>,
) -> (Vec<u32>, usize) {
    let tile = TILE_ROWS as usize;
    let [_, placed, _, height] = mapping.placed().map(|pixels| pixels as usize);
    let source = mapping.source().1 as i32;
    // The rows of the frame under a row's taps, each with the number of times that it came before, since an edge is repeated, and
    // the weight. Those beyond the frame are padding, all of one kind.
    let taps = |y: usize| {
        let mut taps: Vec<(i32, usize, W)> = Vec::with_capacity(axis.taps);
        for k in 0..axis.taps {
            let row = (axis.first[y] + k as i32).clamp(axis.edges[0], axis.edges[1]).clamp(-1, source);
            let weight = axis.weights[y * axis.taps + k];
            if weight != W::default() {
                let before = taps.iter().filter(|&&(known, ..)| known == row).count();
                taps.push((row, before, weight));
            }
        }
        taps
    };
    // Whether a row is of the frame, and listed once.
    let once_inside = |&(row, before): &(i32, usize)| (0..source).contains(&row) && before == 0;
    let tiles = (0..spec.height as usize).step_by(tile).map(|first| {
        let inside = first.max(placed)..(first + tile).min(placed + height);
        let lines: Vec<_> = inside.map(|y| (y - first, taps(y - placed))).collect();
        let mut list: Vec<_> = lines.iter().flat_map(|(_, taps)| taps).map(|&(row, before, _)| (row, before)).collect();
        list.sort_unstable();
        list.dedup();
        // Some kernels have taps without weight between others. With them, the rows follow each other.
        if let (Some(&(low, _)), Some(&(high, _))) = (list.first(), list.last())
            && list.iter().all(once_inside)
        {
            list = (low..=high).map(|row| (row, 0)).collect();
        }
        (list, lines)
    });
    let tiles: Vec<_> = tiles.collect();
    let most = tiles.iter().map(|(list, _)| list.len().next_multiple_of(4)).max().unwrap_or(0);
    let header = 4 + 2 * tile;
    let listed_words = header + most * (1 + tile);
    let mut words = vec![0; tiles.len() * listed_words];
    for ((list, lines), words) in tiles.iter().zip(words.chunks_exact_mut(listed_words)) {
        let (header, listed) = words.split_at_mut(header);
        let (listed, weights) = listed.split_at_mut(most);
        header[0] = list.len() as u32;
        // A run is read faster than a list; it is one of the frame's rows, from left to right.
        let is_run = key.orientation == Orientation::UPRIGHT && list.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1);
        let run = list.first().filter(|_| is_run);
        header[1] = run.filter(|_| list.iter().all(once_inside)).map_or(PAD, |&(row, _)| row.cast_unsigned());
        for (word, &(row, _)) in listed.iter_mut().zip(list) {
            let inside = u32::try_from(row).ok().filter(|_| row < source);
            *word = inside.map_or(PAD, |row| frame_position(row, key.size.1, key.orientation.mirrored[1]));
        }
        let mut placed = vec![W::default(); weights.len()];
        for (line, taps) in lines {
            let places = taps.iter().map(|&(row, before, weight)| {
                (list.binary_search(&(row, before)).unwrap_or_else(|place| place), weight)
            });
            let places: Vec<_> = places.collect();
            header[4 + line] = places.first().map_or(0, |&(place, _)| place as u32 / 4);
            header[4 + tile + line] = places.last().map_or(0, |&(place, _)| place as u32 / 4 + 1);
            for (place, weight) in places {
                placed[(place / 4 * tile + line) * 4 + place % 4] = weight;
            }
        }
        for (words, weights) in weights.as_chunks_mut::<4>().0.iter_mut().zip(placed.as_chunks::<4>().0) {
            *words = four(*weights);
        }
    }
    (words, listed_words)
}
