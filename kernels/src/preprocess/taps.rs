//! Tables of samplings with any number of taps: which source pixels contribute to each destination pixel, and how they are added.
//!
//! Columns come first, then rows: `sum of weight * pixel` along a row of the frame, [`Sums`]' rounding, the same along a
//! column of those. Weights are integers or floats as in the library that a sampling equals.

use super::number::{Along, Number};
use super::simd::{Isa, SliceLoop};
use super::spec::{PreprocessSpec, Sampling};
use crate::placement::{AxisMap, Mapping};

/// The bits of Pillow's weights.
pub(super) const PILLOW_BITS: u32 = 22;

/// The positions per pixel that OpenCV 4's warps know.
const WARP_POSITIONS: f64 = 32.0;

/// The parts of a pixel that `warpAffine` adds positions in.
const WARP_AFFINE: f64 = 1024.0;

/// Windows with more taps than this have their padding merged into one tap on either side.
const MOST_PADS: usize = 4;

/// A part of a pixel that OpenCV's `INTER_AREA` leaves out.
const AREA_SLIVER: f64 = 1e-3;

/// The taps of every position along one axis.
///
/// Tap `k` of position `i` is pixel `(first[i] + k).clamp(edges[0], edges[1])` of the frame, or the padding where that is
/// below 0 or at least the frame's size. Its weight is `weights[i * taps + k]`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TapAxis<W> {
    /// The taps of a position; those that it does not need have no weight.
    pub(super) taps: usize,
    /// The first tap's pixel; from `-taps` to the frame's size + `taps`.
    pub(super) first: Vec<i32>,
    /// The weights, position by position.
    pub(super) weights: Vec<W>,
    /// The first and the last pixel of frame and padding, counted from the frame's first.
    pub(super) edges: [i32; 2],
    /// Whether floats are added from the last tap to the first.
    pub(super) descending: bool,
}

/// The tables of one frame size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TapTables<W> {
    pub(super) columns: TapAxis<W>,
    pub(super) rows: TapAxis<W>,
}

/// How taps are added.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Sums {
    /// Pillow's: after columns and after rows, half of 2^22 is added, the sum shifted by 22 bits and saturated to a byte.
    Pillow(TapTables<i32>),
    /// OpenCV's `INTER_LINEAR`, weights times 2^11: sums of columns are shifted by 4 bits, each row's product by 16; 2 is added
    /// to the sum of these, which is shifted by 2 bits.
    Linear(TapTables<i32>),
    /// Floats, unfused: nothing after columns, [`Finish`] after rows.
    Float(TapTables<f32>, Finish),
}

/// How a sum of floats becomes a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Finish {
    /// The value is the sum.
    None,
    /// `sum * factor`, rounded half to even, saturated to a byte.
    HalfEven { factor: f32 },
    /// `floor(sum * factor + 0.5)`, saturated to a byte.
    HalfUp { factor: f32 },
}

/// Everything that depends on the frame's size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TapPlan {
    /// Where the frame is placed.
    pub(super) mapping: Mapping,
    pub(super) sums: Sums,
}

impl TapPlan {
    /// Makes the tables for a frame of `source` (width, height).
    pub(super) fn new(spec: &PreprocessSpec, source: (u32, u32)) -> Self {
        let mapping = Mapping::new(spec.placement, source, (spec.width, spec.height));
        let axes = mapping.axes();
        let float = |filter: Filter, finish| Sums::Float(taps(axes, filter), finish);
        let sums = match spec.sampling {
            Sampling::Opencv => Sums::Linear(taps(axes, Filter::OpencvLinear)),
            Sampling::Exact => float(Filter::Linear, Finish::None),
            Sampling::OpencvWarp | Sampling::OpencvWarpAffine => {
                Sums::Float(TapTables::of_warp(axes, spec.sampling), Finish::HalfUp { factor: 1.0 })
            }
            Sampling::OpencvArea => area(axes),
            Sampling::OpencvCubic => float(Filter::OpencvCubic, Finish::HalfEven { factor: 1.0 }),
            Sampling::PillowBilinear => Sums::Pillow(taps(axes, Filter::Pillow(Kernel::Triangle))),
            Sampling::PillowBicubic => Sums::Pillow(taps(axes, Filter::Pillow(Kernel::Cubic))),
            Sampling::Torch => float(Filter::Torch, Finish::None),
            Sampling::TorchAntialias => float(Filter::Antialias(Kernel::Triangle), Finish::None),
            Sampling::TorchAntialiasBicubic => float(Filter::Antialias(Kernel::Cubic), Finish::None),
            Sampling::TensorflowLegacy => float(Filter::TensorflowLegacy, Finish::None),
        };
        Self { mapping, sums }
    }
}

/// OpenCV's choice for `INTER_AREA`: means of whole pixels, means of parts of pixels, or linear if an axis is enlarged.
fn area(axes: &[AxisMap; 2]) -> Sums {
    if axes.iter().any(|map| map.step < 1.0) {
        return Sums::Linear(taps(axes, Filter::AreaEnlarged));
    }
    let cells = axes.each_ref().map(|map| map.step.round_ties_even());
    let whole = axes.iter().zip(cells).all(|(map, cell)| (map.step - cell).abs() < f64::EPSILON && map.from == 0.0);
    if !whole {
        return Sums::Float(taps(axes, Filter::Area), Finish::HalfEven { factor: 1.0 });
    }
    let factor = (1.0 / (cells[0] * cells[1])) as f32;
    let finish = if cells == [2.0, 2.0] { Finish::HalfUp { factor } } else { Finish::HalfEven { factor } };
    Sums::Float(taps(axes, Filter::Sum), finish)
}

/// A way to find the taps of a position.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Filter {
    /// The two nearest pixels, in double precision.
    Linear,
    /// The same as OpenCV has it, times 2^11.
    OpencvLinear,
    /// The two nearest pixels; positions count pixel centres and are rounded to 1/32 of a pixel.
    WarpPerspective,
    /// The same; positions are sums of two that are rounded to 1/1024 of a pixel.
    WarpAffine,
    /// The whole pixels that become one, with a weight of 1.
    Sum,
    /// The shares of the pixels that become one.
    Area,
    /// The two nearest pixels, as `INTER_AREA` has it when it enlarges, times 2^11.
    AreaEnlarged,
    /// The four nearest pixels: columns times 2^11; rows divided by it, so that sums are bytes again.
    OpencvCubic,
    /// A kernel as wide as a step, at least as a pixel, times 2^22.
    Pillow(Kernel),
    /// The same in floats.
    Antialias(Kernel),
    /// The two nearest pixels, positions in single precision.
    Torch,
    /// The two nearest pixels; position `i` is at pixel `i * step`, in single precision.
    TensorflowLegacy,
}

/// The shape of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kernel {
    /// Two pixels wide.
    Triangle,
    /// Four pixels wide, a = -0.5.
    Cubic,
}

impl Kernel {
    /// Half of its width.
    fn support(self) -> f64 {
        match self {
            Self::Triangle => 1.0,
            Self::Cubic => 2.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        match self {
            Self::Triangle => (1.0 - x).max(0.0),
            Self::Cubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Self::Cubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            Self::Cubic => 0.0,
        }
    }
}

/// A weight: `i32` or `f32`.
pub(super) trait Weight: Copy + Default {
    /// Converts a weight that was rounded already if it is an integer.
    fn from_f64(weight: f64) -> Self;
}

impl Weight for i32 {
    fn from_f64(weight: f64) -> Self {
        weight as Self
    }
}

impl Weight for f32 {
    fn from_f64(weight: f64) -> Self {
        weight as Self
    }
}

fn taps<W: Weight>([columns, rows]: &[AxisMap; 2], filter: Filter) -> TapTables<W> {
    TapTables { columns: TapAxis::new(Along::X, columns, filter), rows: TapAxis::new(Along::Y, rows, filter) }
}

impl TapTables<f32> {
    /// Makes the tables of OpenCV's warps. Weights are multiples of 1/32.
    pub(super) fn of_warp(axes: &[AxisMap; 2], sampling: Sampling) -> Self {
        taps(axes, if sampling == Sampling::OpencvWarpAffine { Filter::WarpAffine } else { Filter::WarpPerspective })
    }
}

impl TapAxis<f32> {
    /// Returns the pixels of a frame of `size` that a position has, `None` for padding, and their weights, if they are two at most.
    pub(super) fn pair(&self, position: usize, size: u32) -> [(Option<u32>, f32); 2] {
        std::array::from_fn(|k| {
            let pixel = (self.first[position] + k as i32).clamp(self.edges[0], self.edges[1]);
            let weight = if k < self.taps { self.weights[position * self.taps + k] } else { 0.0 };
            (u32::try_from(pixel).ok().filter(|&pixel| pixel < size), weight)
        })
    }
}

impl<W: Weight> TapAxis<W> {
    fn new(along: Along, map: &AxisMap, filter: Filter) -> Self {
        let (source, lead) = (i64::from(map.source), i64::from(map.lead));
        // A warp sees padding at any distance; otherwise frame and padding have edges.
        let far = 1 << 30;
        let edges = if map.warped { [-far, far] } else { [-lead, i64::from(map.canvas) - lead - 1] };
        if edges == [0, source - 1] {
            match filter {
                Filter::Pillow(kernel) => return KernelWindows::new(map, kernel, true).axis(),
                Filter::Antialias(kernel) => return KernelWindows::new(map, kernel, false).axis(),
                _ => {}
            }
        }
        Self::one_by_one(along, map, filter, edges)
    }

    /// Makes one window after another, of any filter.
    fn one_by_one(along: Along, map: &AxisMap, filter: Filter, edges: [i64; 2]) -> Self {
        let (source, lead) = (i64::from(map.source), i64::from(map.lead));
        // The windows of all positions, each with its first tap and the end of its weights in `all`.
        let (mut all, mut window) = (Vec::with_capacity(2 * map.count as usize), Vec::new());
        let mut windows = Vec::with_capacity(map.count as usize);
        let mut taps = 1;
        for i in 0..map.count {
            window.clear();
            let first = filter.window(along, map, i, &mut window);
            let first = clip(first - lead, &mut window, source, edges);
            taps = taps.max(window.len());
            all.extend_from_slice(&window);
            windows.push((first, all.len()));
        }
        let mut axis = Self {
            taps,
            first: Vec::with_capacity(windows.len()),
            weights: Vec::with_capacity(windows.len() * taps),
            edges: edges.map(|edge| edge as i32),
            descending: filter == Filter::OpencvCubic && along == Along::Y,
        };
        let mut begin = 0;
        for (first, end) in windows {
            let weights = &all[begin..end];
            begin = end;
            // A window that is in the padding alone may be anywhere there.
            let least = if edges[0] < 0 { -(taps as i64) } else { first };
            let most = if edges[1] >= source { source } else { first };
            axis.first.push(first.max(least).min(most.max(least)) as i32);
            let unused = taps - weights.len();
            axis.weights.extend(weights.iter().map(|&weight| W::from_f64(weight)));
            axis.weights.extend(std::iter::repeat_n(W::default(), unused));
        }
        axis
    }
}

/// Removes taps without weight from both ends of a window, and merges the padding on either side of the frame. Returns the first tap.
fn clip(mut first: i64, weights: &mut Vec<f64>, source: i64, edges: [i64; 2]) -> i64 {
    while weights.len() > 1 && weights.last() == Some(&0.0) {
        weights.pop();
    }
    let unused = weights.iter().take_while(|&&weight| weight == 0.0).count().min(weights.len() - 1);
    weights.drain(..unused);
    first += unused as i64;
    if weights.len() > MOST_PADS {
        if edges[1] >= source && first + weights.len() as i64 > source + 1 {
            let kept = (source + 1 - first).max(1) as usize;
            let merged: f64 = weights.drain(kept..).sum();
            weights[kept - 1] += merged;
        }
        if edges[0] < 0 && first < -1 {
            let before = ((-1 - first) as usize).min(weights.len() - 1);
            let merged: f64 = weights.drain(..before).sum();
            weights[0] += merged;
            first += before as i64;
        }
    }
    first
}

impl Filter {
    /// Returns the first tap of the window of position `i`, in pixels of the canvas, and puts its weights into `weights`, which is empty.
    fn window(self, along: Along, map: &AxisMap, i: u32, weights: &mut Vec<f64>) -> i64 {
        let index = f64::from(map.first + i);
        let shifted = if map.warped { 0.0 } else { 0.5 };
        let position = (index + shifted) * map.step - shifted + map.from;
        let canvas = f64::from(map.canvas);
        let mut two = |low: f64, weight: f64| {
            weights.extend([1.0 - weight, weight]);
            low as i64
        };
        // Beyond the canvas a warp sees padding; otherwise the edge is repeated.
        let within = |position: f64| if map.warped { position } else { position.clamp(0.0, canvas - 1.0) };
        match self {
            Self::Linear => {
                let position = within(position);
                two(position.floor(), position - position.floor())
            }
            Self::OpencvLinear if map.warped => {
                fixed_pair(position.floor(), (position - position.floor()) as f32, weights)
            }
            Self::OpencvLinear => {
                let (low, fixed) = u16::taps(position, map.canvas, along);
                weights.extend(fixed.map(f64::from));
                i64::from(low)
            }
            Self::WarpPerspective => {
                let position = (position * WARP_POSITIONS).round_ties_even() / WARP_POSITIONS;
                two(position.floor(), position - position.floor())
            }
            Self::WarpAffine => {
                let [at, from] = [index * map.step, map.from].map(|part| (part * WARP_AFFINE).round_ties_even());
                let position = ((at + from) / WARP_AFFINE * WARP_POSITIONS + 0.5).floor() / WARP_POSITIONS;
                two(position.floor(), position - position.floor())
            }
            Self::Sum => {
                weights.resize(map.step.round_ties_even() as usize, 1.0);
                (index * map.step) as i64
            }
            Self::Area => area_window(map, index, weights),
            Self::AreaEnlarged => {
                let low = (index * map.step + map.from).floor();
                let part = ((index + 1.0) - (low + 1.0 - map.from) / map.step) as f32;
                let part = if part <= 0.0 { 0.0 } else { part - part.floor() };
                // As for any linear sampling, columns beyond the edges lose their weight.
                let last = canvas - 1.0;
                let beyond = along == Along::X && (low < 0.0 || low >= last);
                fixed_pair(if beyond { low.clamp(0.0, last) } else { low }, if beyond { 0.0 } else { part }, weights)
            }
            Self::OpencvCubic => {
                let position = position as f32;
                let scale = if along == Along::X { 1.0 } else { f64::from(1 << 22).recip() };
                let cubic = opencv_cubic(position - position.floor());
                weights.extend(cubic.map(|weight| f64::from((weight * 2048.0).round_ties_even()) * scale));
                position.floor() as i64 - 1
            }
            Self::Pillow(kernel) => {
                let first = kernel_window(map, index, kernel, weights);
                let one = f64::from(1 << PILLOW_BITS);
                // Half away from zero.
                weights.iter_mut().for_each(|weight| *weight = (*weight * one).round());
                first
            }
            Self::Antialias(kernel) => kernel_window(map, index, kernel, weights),
            Self::Torch => {
                let position = ((index as f32 + 0.5) * map.step as f32 - 0.5) + map.from as f32;
                let position = within(f64::from(position));
                two(position.floor(), position - position.floor())
            }
            Self::TensorflowLegacy => {
                let position = within(f64::from(index as f32 * map.step as f32 + map.from as f32));
                two(position.floor(), position - position.floor())
            }
        }
    }
}

/// Puts OpenCV's weights of two pixels into `weights`; returns the lower one.
fn fixed_pair(low: f64, weight: f32, weights: &mut Vec<f64>) -> i64 {
    weights.extend([1.0 - weight, weight].map(|weight| f64::from((weight * 2048.0).round_ties_even())));
    low as i64
}

/// OpenCV's `interpolateCubic`: a = -0.75.
fn opencv_cubic(x: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let before = ((A * (x + 1.0) - 5.0 * A) * (x + 1.0) + 8.0 * A) * (x + 1.0) - 4.0 * A;
    let low = ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let high = ((A + 2.0) * (1.0 - x) - (A + 3.0)) * (1.0 - x) * (1.0 - x) + 1.0;
    [before, low, high, 1.0 - before - low - high]
}

/// OpenCV's `computeResizeAreaTab`: puts the weights into `weights`, and returns the first tap.
fn area_window(map: &AxisMap, index: f64, weights: &mut Vec<f64>) -> i64 {
    let canvas = f64::from(map.canvas);
    let from = index * map.step + map.from;
    let to = from + map.step;
    let cell = map.step.min(canvas - from);
    let high = to.floor().min(canvas - 1.0);
    let low = from.ceil().min(high);
    let share = |part: f64| f64::from((part / cell) as f32);
    let before = low - from > AREA_SLIVER;
    if before {
        weights.push(share(low - from));
    }
    weights.extend(std::iter::repeat_n(share(1.0), (high - low) as usize));
    if to - high > AREA_SLIVER {
        weights.push(share((to - high).min(1.0).min(cell)));
    }
    (low as i64) - i64::from(before)
}

/// Positions whose windows are made side by side.
const LANES: usize = 8;

/// The windows of a kernel on a frame without padding, as [`kernel_window`] makes them one by one. A model on detections has frames of new
/// sizes in every run, which waits for them.
struct KernelWindows {
    /// The most taps of a window, with those at its ends that have no weight.
    taps: usize,
    first: Vec<i32>,
    /// The weights, position by position, and the number of each.
    weights: Vec<f64>,
    lengths: Vec<usize>,
    edges: [i32; 2],
}

impl KernelWindows {
    fn new(map: &AxisMap, kernel: Kernel, fixed: bool) -> Self {
        let step = map.extent / f64::from(map.resized);
        let support = kernel.support() * step.max(1.0);
        let (count, taps) = (map.count as usize, (2.0 * support).ceil() as usize + 1);
        let rounded = count.next_multiple_of(LANES);
        let mut windows = Self {
            taps,
            first: vec![0; rounded],
            weights: vec![0.0; rounded * taps],
            lengths: vec![0; rounded],
            edges: [0, map.source as i32 - 1],
        };
        let mut column = vec![[0.0; LANES]; taps];
        let (column, windows_of) = (&mut column, &mut windows);
        match kernel {
            Kernel::Triangle => {
                let at = |x: f64| (1.0 - x.abs()).max(0.0);
                Isa::detect().run(WindowLoop { map, step, support, fixed, column, windows: windows_of, at });
            }
            Kernel::Cubic => {
                let at = |x: f64| Kernel::Cubic.at(x);
                Isa::detect().run(WindowLoop { map, step, support, fixed, column, windows: windows_of, at });
            }
        }
        windows.first.truncate(count);
        windows.lengths.truncate(count);
        windows
    }

    /// Returns the table.
    fn axis<W: Weight>(self) -> TapAxis<W> {
        let taps = self.lengths.iter().copied().max().unwrap_or(1);
        let mut weights = vec![W::default(); self.first.len() * taps];
        for (to, from) in weights.chunks_exact_mut(taps).zip(self.weights.chunks_exact(self.taps)) {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = W::from_f64(from));
        }
        TapAxis { taps, first: self.first, weights, edges: self.edges, descending: false }
    }
}

/// Makes the windows of [`KernelWindows`].
struct WindowLoop<'a, K> {
    map: &'a AxisMap,
    step: f64,
    support: f64,
    /// Whether weights are whole numbers, times 2^22.
    fixed: bool,
    column: &'a mut [[f64; LANES]],
    windows: &'a mut KernelWindows,
    /// The kernel.
    at: K,
}

impl<K: Fn(f64) -> f64> SliceLoop for WindowLoop<'_, K> {
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { map, step, support, fixed, column, windows, at } = self;
        let (canvas, inverse, one) = (f64::from(map.canvas), 1.0 / step.max(1.0), f64::from(1 << PILLOW_BITS));
        let (from, taps, mut index) = (map.from, windows.taps, f64::from(map.first));
        let places = windows.first.chunks_exact_mut(LANES).zip(windows.lengths.chunks_exact_mut(LANES));
        for ((firsts, lengths), weights) in places.zip(windows.weights.chunks_exact_mut(LANES * taps)) {
            let [mut centre, mut first, mut count, mut sum] = [[0.0; LANES]; 4];
            for lane in 0..LANES {
                centre[lane] = from + (index + lane as f64 + 0.5) * step;
                first[lane] = (centre[lane] - support + 0.5).max(0.0).floor();
                let end = (centre[lane] + support + 0.5).floor().min(canvas);
                count[lane] = (end - first[lane]).max(0.0);
            }
            index += LANES as f64;
            for (k, tap) in column.iter_mut().enumerate() {
                let k = k as f64;
                for lane in 0..LANES {
                    let weight = at((k + first[lane] - centre[lane] + 0.5) * inverse);
                    tap[lane] = if k < count[lane] { weight } else { 0.0 };
                    sum[lane] += tap[lane];
                }
            }
            for tap in column.iter_mut() {
                for lane in 0..LANES {
                    let weight = if sum[lane] != 0.0 { tap[lane] / sum[lane] } else { tap[lane] };
                    // Half away from zero; `round` is a call on processors without an instruction for it.
                    let large = weight * one;
                    let whole = large.trunc();
                    let away = if (large - whole).abs() >= 0.5 { 1.0_f64.copysign(large) } else { 0.0 };
                    tap[lane] = if fixed { whole + away } else { weight };
                }
            }
            for (lane, weights) in weights.chunks_exact_mut(taps).enumerate() {
                if count[lane] == 0.0 {
                    column[0][lane] = if fixed { one } else { 1.0 };
                }
                let has = |k: &usize| column[*k][lane] != 0.0;
                let end = (0..taps).rev().find(has).map_or(1, |last| last + 1);
                let unused = (0..end).find(has).unwrap_or(0);
                weights.iter_mut().zip(&column[unused..end]).for_each(|(weight, tap)| *weight = tap[lane]);
                (firsts[lane], lengths[lane]) = (first[lane] as i32 + unused as i32, end - unused);
            }
        }
    }
}

/// Pillow's `precompute_coeffs`, without rounding; PyTorch's are the same. Puts the weights into `weights`, and
/// returns the first tap.
fn kernel_window(map: &AxisMap, index: f64, kernel: Kernel, weights: &mut Vec<f64>) -> i64 {
    let step = map.extent / f64::from(map.resized);
    let width = step.max(1.0);
    let support = kernel.support() * width;
    let centre = map.from + (index + 0.5) * step;
    let first = (centre - support + 0.5).max(0.0).floor();
    let end = (centre + support + 0.5).floor().min(f64::from(map.canvas));
    let count = (end - first).max(0.0) as usize;
    weights.extend((0..count).map(|k| kernel.at((k as f64 + first - centre + 0.5) * (1.0 / width))));
    let sum: f64 = weights.iter().sum();
    if sum != 0.0 {
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    if weights.is_empty() {
        weights.push(1.0);
    }
    first as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::placement::{Fit, Placement};

    proptest! {
        #[test]
        fn windows_that_are_made_side_by_side_are_the_same(
            source in 1..3000_u32, input in 1..500_u32, part in 0.1..1.0_f64, cubic: bool, fixed: bool,
        ) {
            let kernel = if cubic { Kernel::Cubic } else { Kernel::Triangle };
            let filter = if fixed { Filter::Pillow(kernel) } else { Filter::Antialias(kernel) };
            for fit in [Fit::Stretch, Fit::Crop { fraction: part }] {
                let map = Mapping::new(Placement::new(fit), (source, source), (input, input)).axes()[0];
                prop_assume!(map.lead == 0 && map.canvas == map.source);
                let edges = [0, i64::from(source) - 1];
                let slow = TapAxis::<f32>::one_by_one(Along::X, &map, filter, edges);
                prop_assert_eq!(TapAxis::<f32>::new(Along::X, &map, filter), slow);
                let slow = TapAxis::<i32>::one_by_one(Along::X, &map, filter, edges);
                prop_assert_eq!(TapAxis::<i32>::new(Along::X, &map, filter), slow);
            }
        }
    }
}
