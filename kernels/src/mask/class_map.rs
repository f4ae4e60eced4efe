//! The class of each pixel of a frame, from the scores of cells: semantic segmentation.
//!
//! A pixel has the class with the greatest score at its centre, with the scores interpolated bilinearly between the centres of the
//! cells. Interpolation is a weighted mean, so most pixels need none:
//! - where the four cells around have the same best class, it is the class of all pixels between them;
//! - elsewhere only a class whose greatest of the four scores reaches every other class's least one can be the best;
//! - along a line between two columns of cells the scores are linear, so the pixels of a class are one stretch, whose end is
//!   found by halving.
//!
//! Source: `post_process_semantic_segmentation` in transformers `models/segformer/image_processing_segformer.py`:
//! `interpolate(logits, size=frame, mode="bilinear", align_corners=False)`, then `argmax`.

use super::spec::{MAX_WORDS, MaskAxis, Tap};
use super::{Mask, MaskFrame};
use crate::placement::Mapping;

/// The number that stands for no class.
const NO_CLASS: u16 = u16::MAX;

/// A group of pixels that must be examined one by one.
const MIXED: u16 = u16::MAX - 1;

/// The most comparisons of interpolated scores in a frame, about 0.2 s. A frame of 1920x1080 with 150 classes takes some millions,
/// one of 3840x2160 up to 25 million, and noise 160 million and more. Beyond it, pixels that need more have the class of the
/// nearest cell.
const MOST_COMPARISONS: u64 = 1 << 27;

/// Where the scores of the classes are in a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassPlanes {
    /// The number of classes.
    pub classes: usize,
    /// The lines of cells.
    pub height: usize,
    /// The cells of a line.
    pub width: usize,
    /// Whether the scores of a cell are side by side (`[h, w, classes]`) instead of in planes (`[classes, h, w]`).
    pub interleaved: bool,
}

impl ClassPlanes {
    /// The most classes. LVIS, the largest data set in use, has 1,203.
    pub const MAX_CLASSES: usize = 4096;

    /// The greatest width or height in cells.
    pub const MAX_SIDE: usize = super::spec::MAX_SIDE;

    /// Returns by how much the index of a score grows per cell and per class.
    const fn steps(&self) -> [usize; 2] {
        if self.interleaved { [self.classes, 1] } else { [1, self.width * self.height] }
    }

    /// Whether the sizes are sensible and `len` numbers are enough.
    fn fit(&self, len: usize) -> bool {
        let sides = 1..=Self::MAX_SIDE;
        sides.contains(&self.width)
            && sides.contains(&self.height)
            && (1..=Self::MAX_CLASSES).contains(&self.classes)
            && (self.width * self.height).checked_mul(self.classes).is_some_and(|needed| needed <= len)
    }
}

/// How the score of a cell's best class becomes a probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassScores {
    /// It is already one.
    Probabilities,
    /// By the softmax over the classes.
    Softmax,
    /// By the sigmoid.
    Sigmoid,
}

/// The pixels of one class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassRegion {
    /// The class, in the model's numbering.
    pub class: u16,
    /// The number of pixels, at least 1.
    pub area: u64,
    /// The smallest rectangle around them: left, top, right, bottom, in pixels of the frame.
    pub bounds: [u32; 4],
    /// The mean probability of the class over the cells where it is the best; 1 where the model gives only numbers of classes.
    pub score: f32,
    /// Column and row of its first pixel.
    first: [u32; 2],
}

/// Pixels of a line that have the same class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    class: u16,
    /// The column after the last.
    end: u16,
}

/// The class of each pixel of a frame, as runs: a few bytes for each change along a line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClassMap {
    /// Width and height of the frame.
    size: [u32; 2],
    /// The runs of all lines, from left to right and from top to bottom.
    runs: Vec<Run>,
    /// The number of runs up to the end of each line.
    ends: Vec<u32>,
    regions: Vec<ClassRegion>,
    /// The index of each class in the list of masks being made.
    places: Vec<u32>,
}

impl ClassMap {
    /// Returns the classes that cover at least a pixel, in the order of their numbers.
    pub fn regions(&self) -> &[ClassRegion] {
        &self.regions
    }

    /// Returns which part of the frame a region covers, 0 to 1.
    pub fn fraction(&self, region: &ClassRegion) -> f64 {
        region.area as f64 / (f64::from(self.size[0]) * f64::from(self.size[1])).max(1.0)
    }

    /// Returns the class of a pixel; `None` if it has none, or the model did not see it.
    pub fn class_at(&self, x: u32, y: u32) -> Option<u16> {
        let mut runs = self.line(y as usize).iter();
        runs.find(|run| x < u32::from(run.end)).map(|run| run.class).filter(|class| *class != NO_CLASS)
    }

    fn line(&self, y: usize) -> &[Run] {
        let end = |line: usize| self.ends.get(line).map_or(0, |&end| end as usize);
        self.runs.get(if y == 0 { 0 } else { end(y - 1) }..end(y)).unwrap_or(&[])
    }

    /// Makes the masks of some of the [regions](Self::regions), in their order; the memory of masks in `out` is reused. Returns
    /// how many are empty because there is no room for them: beyond 64 MiB of masks.
    pub fn masks(&mut self, regions: &[ClassRegion], out: &mut Vec<Mask>) -> usize {
        const NOWHERE: u32 = u32::MAX;
        out.resize_with(regions.len(), Mask::default);
        self.places.clear();
        let (mut words, mut lost) = (0, 0);
        for (place, (region, mask)) in regions.iter().zip(&mut *out).enumerate() {
            let [left, top, right, bottom] = region.bounds;
            let needed = right.saturating_sub(left).div_ceil(32) as usize * bottom.saturating_sub(top) as usize;
            if words + needed > MAX_WORDS {
                mask.clear([0; 4]);
                lost += 1;
                continue;
            }
            words += needed;
            mask.clear(region.bounds);
            let class = usize::from(region.class);
            self.places.resize(self.places.len().max(class + 1), NOWHERE);
            self.places[class] = place as u32;
        }
        for y in 0..self.ends.len() {
            let mut start = 0;
            for run in self.line(y) {
                let from = std::mem::replace(&mut start, u32::from(run.end));
                let place = self.places.get(usize::from(run.class)).copied().unwrap_or(NOWHERE);
                if let Some(mask) = out.get_mut(place as usize) {
                    mask.fill(y as u32, from..u32::from(run.end));
                }
            }
        }
        lost
    }

    fn begin(&mut self, size: (u32, u32)) {
        self.size = [size.0, size.1];
        self.runs.clear();
        self.ends.clear();
        self.regions.clear();
    }

    /// Gives the pixels up to `end`, which are not in a run yet, a class.
    fn push(&mut self, class: u16, end: u32) {
        let begun = self.ends.last().map_or(0, |&end| end as usize);
        // A side of a frame is at most 16,384 pixels.
        let end = end as u16;
        let last = self.runs.get_mut(begun..).and_then(<[Run]>::last_mut);
        let (is_new, is_same) = last.as_ref().map_or((true, false), |last| (end > last.end, last.class == class));
        match last {
            Some(last) if is_same => last.end = last.end.max(end),
            _ if is_new && end > 0 => self.runs.push(Run { class, end }),
            _ => {}
        }
    }

    fn end_line(&mut self) {
        self.ends.push(self.runs.len() as u32);
    }

    /// Adds a line that is the same as the one above.
    fn repeat_line(&mut self) {
        let above = match self.ends[..] {
            [.., before, last] => before as usize..last as usize,
            [last] => 0..last as usize,
            [] => 0..0,
        };
        self.runs.extend_from_within(above);
        self.end_line();
    }
}

impl Mask {
    /// Adds the pixels of a row, in coordinates of the frame, that lie in the rectangle.
    fn fill(&mut self, y: u32, columns: std::ops::Range<u32>) {
        let Some(row) = y.checked_sub(self.top).filter(|row| *row < self.height) else { return };
        let per_row = self.words_per_row();
        let from = columns.start.saturating_sub(self.left).min(self.width);
        let end = columns.end.saturating_sub(self.left).min(self.width);
        if from >= end {
            return;
        }
        let words = &mut self.words[row as usize * per_row..][..per_row];
        let (first, last) = ((from / 32) as usize, ((end - 1) / 32) as usize);
        let (head, tail) = (!0_u32 << (from % 32), !0_u32 >> (31 - (end - 1) % 32));
        if first == last {
            words[first] |= head & tail;
        } else {
            words[first] |= head;
            words[first + 1..last].fill(!0);
            words[last] |= tail;
        }
    }
}

/// Pixels of a line between the same two columns of cells.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// The columns of cells.
    at: [u32; 2],
    /// The column after its last pixel.
    end: u32,
    /// The class of all of its pixels between the two lines of cells at hand, or [`MIXED`].
    class: u16,
    /// Where its candidates begin.
    first: u32,
    /// How many candidates it has.
    count: u32,
}

/// A class that may be the best of some pixels, with its scores in the four cells around.
#[derive(Debug, Clone, Copy, Default)]
struct Rival {
    class: u16,
    /// Top left, top right, bottom left, bottom right.
    corners: [f32; 4],
}

/// A class's scores where a line of pixels crosses two columns of cells.
#[derive(Debug, Clone, Copy)]
struct Slope {
    class: u16,
    ends: [f32; 2],
}

/// The counters of a class.
#[derive(Debug, Clone, Copy)]
struct Count {
    area: u64,
    bounds: [u32; 4],
    first: [u32; 2],
    /// The probabilities of the cells where it is the best.
    sum: f64,
    cells: u32,
}

impl Count {
    const NOTHING: Self = Self { area: 0, bounds: [u32::MAX, u32::MAX, 0, 0], first: [0; 2], sum: 0.0, cells: 0 };
}

/// Makes class maps. The memory is reused, so that nothing is allocated once it has grown to the busiest frame.
#[derive(Debug, Default)]
pub struct ClassMapper {
    /// The best class of each cell.
    winners: Vec<u16>,
    /// Of a line of cells: the best class, its score, and the sum of the softmax.
    best: Vec<u32>,
    greatest: Vec<f32>,
    sums: Vec<f32>,
    taps: Vec<Tap>,
    groups: Vec<Group>,
    /// The indices of the mixed groups, and the score that a class must reach in each.
    mixed: Vec<(u32, f32)>,
    rivals: Vec<Rival>,
    slopes: Vec<Slope>,
    counts: Vec<Count>,
    /// Comparisons of interpolated scores in this frame.
    compared: u64,
}

impl ClassMapper {
    /// Makes the mapper without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes a frame's map from scores. Of equal scores the first class wins; a NaN score never wins.
    ///
    /// The map is empty if `values` are fewer than `planes` has, or `planes` has no sensible size.
    pub fn from_scores(
        &mut self,
        values: &[f32],
        planes: &ClassPlanes,
        scores: ClassScores,
        mapping: &Mapping,
        out: &mut ClassMap,
    ) {
        out.begin(mapping.source());
        if !planes.fit(values.len()) {
            return;
        }
        let [x, y] = MaskFrame::sampled(mapping, (planes.width, planes.height)).axes;
        self.group(&x);
        self.counts.clear();
        self.counts.resize(planes.classes, Count::NOTHING);
        self.compared = 0;
        self.find_winners(values, planes, scores, [&x, &y]);
        let mut band = [u32::MAX; 2];
        for row in 0..y.source {
            if x.seen[0] < x.seen[1] && (y.seen[0]..y.seen[1]).contains(&row) {
                let Tap { at, weight } = y.tap(row);
                if at != band {
                    self.compare(values, planes, at);
                    band = at;
                }
                out.push(NO_CLASS, x.seen[0]);
                let nearest = at[usize::from(weight[1] > weight[0])] as usize * planes.width;
                self.classify(weight, x.seen[0], nearest, out);
                out.push(NO_CLASS, x.source);
            } else {
                out.push(NO_CLASS, x.source);
            }
            out.end_line();
        }
        self.count(out);
        self.collect(out, |count, class| match count.cells {
            0 => probability_at(values, planes, scores, [x.tap(count.first[0]), y.tap(count.first[1])], class),
            cells => (count.sum / f64::from(cells)) as f32,
        });
    }

    /// Computes a frame's map from class numbers: each pixel has that of the cell in which its centre lies. Numbers are rounded;
    /// those that are negative, not finite or 65,534 and more count as no class.
    ///
    /// The map is empty if `values` are fewer than the cells of `width` and `height`, or these are not sensible.
    pub fn from_numbers(
        &mut self,
        values: &[f32],
        (width, height): (usize, usize),
        mapping: &Mapping,
        out: &mut ClassMap,
    ) {
        out.begin(mapping.source());
        if !(ClassPlanes { classes: 1, height, width, interleaved: false }).fit(values.len()) {
            return;
        }
        let [x, y] = MaskFrame::sampled(mapping, (width, height)).axes;
        self.group_nearest(&x);
        let mut above = None;
        for row in 0..y.source {
            let line = (x.seen[0] < x.seen[1] && (y.seen[0]..y.seen[1]).contains(&row)).then(|| nearest(&y, row));
            if above == Some(line) {
                out.repeat_line();
                continue;
            }
            above = Some(line);
            if let Some(line) = line {
                let line = &values[line as usize * width..][..width];
                out.push(NO_CLASS, x.seen[0]);
                for group in &self.groups {
                    out.push(class_of(line[group.at[0] as usize]), group.end);
                }
            }
            out.push(NO_CLASS, x.source);
            out.end_line();
        }
        let most = out.runs.iter().map(|run| run.class).filter(|class| *class != NO_CLASS).max();
        self.counts.clear();
        self.counts.resize(most.map_or(0, |most| usize::from(most) + 1), Count::NOTHING);
        self.count(out);
        self.collect(out, |_, _| 1.0);
    }

    /// Groups the pixels of a line by the columns of cells that they lie between.
    fn group(&mut self, x: &MaskAxis) {
        self.taps.clear();
        self.taps.extend((0..x.source).map(|pixel| x.tap(pixel)));
        self.groups.clear();
        for pixel in x.seen[0]..x.seen[1] {
            self.extend_groups(self.taps[pixel as usize].at, pixel);
        }
    }

    /// Groups the pixels of a line by the cell that they lie in.
    fn group_nearest(&mut self, x: &MaskAxis) {
        self.groups.clear();
        for pixel in x.seen[0]..x.seen[1] {
            self.extend_groups([nearest(x, pixel); 2], pixel);
        }
    }

    fn extend_groups(&mut self, at: [u32; 2], pixel: u32) {
        match self.groups.last_mut() {
            Some(last) if last.at == at => last.end = pixel + 1,
            _ => self.groups.push(Group { at, end: pixel + 1, class: NO_CLASS, first: 0, count: 0 }),
        }
    }

    /// Finds the best class of each cell, and adds up the probabilities of the cells that a pixel is made of.
    fn find_winners(&mut self, values: &[f32], planes: &ClassPlanes, scores: ClassScores, axes: [&MaskAxis; 2]) {
        let ([cell_step, class_step], width) = (planes.steps(), planes.width);
        let used = axes.map(|axis| match axis.seen {
            [first, end] if first < end => axis.tap(first).at[0]..axis.tap(end - 1).at[1] + 1,
            _ => 0..0,
        });
        self.winners.clear();
        self.winners.resize(width * planes.height, NO_CLASS);
        for line in used[1].clone() {
            let start = line as usize * width;
            self.best.clear();
            self.best.resize(width, u32::from(NO_CLASS));
            self.greatest.clear();
            self.greatest.resize(width, f32::NEG_INFINITY);
            self.sums.clear();
            self.sums.resize(width, 0.0);
            if planes.interleaved {
                for (cell, of_cell) in values[start * cell_step..].chunks_exact(cell_step).take(width).enumerate() {
                    let none = (f32::NEG_INFINITY, u32::from(NO_CLASS));
                    let (greatest, best) = of_cell
                        .iter()
                        .zip(0_u32..)
                        .fold(none, |best, (&value, class)| if value > best.0 { (value, class) } else { best });
                    (self.greatest[cell], self.best[cell]) = (greatest, best);
                    if scores == ClassScores::Softmax {
                        self.sums[cell] = of_cell.iter().map(|value| exp(value - greatest)).sum();
                    }
                }
            } else {
                let plane = |class: usize| &values[class * class_step + start..][..width];
                for class in 0..planes.classes {
                    let best = self.greatest.iter_mut().zip(&mut self.best);
                    for ((greatest, best), &value) in best.zip(plane(class)) {
                        let is_better = value > *greatest;
                        *greatest = if is_better { value } else { *greatest };
                        *best = if is_better { class as u32 } else { *best };
                    }
                }
                if scores == ClassScores::Softmax {
                    for class in 0..planes.classes {
                        for ((sum, &greatest), &value) in self.sums.iter_mut().zip(&self.greatest).zip(plane(class)) {
                            *sum += exp(value - greatest);
                        }
                    }
                }
            }
            for (cell, &best) in self.best.iter().enumerate() {
                let class = best as u16;
                self.winners[start + cell] = class;
                if used[0].contains(&(cell as u32))
                    && let Some(count) = self.counts.get_mut(usize::from(class))
                {
                    count.sum += f64::from(probability(self.greatest[cell], self.sums[cell], scores));
                    count.cells += 1;
                }
            }
        }
    }

    /// Compares the classes in each group between two lines of cells.
    fn compare(&mut self, values: &[f32], planes: &ClassPlanes, lines: [u32; 2]) {
        let [cell_step, class_step] = planes.steps();
        let starts = lines.map(|line| line as usize * planes.width);
        self.mixed.clear();
        for (index, group) in self.groups.iter_mut().enumerate() {
            let winner = |line: usize, side: usize| self.winners[starts[line] + group.at[side] as usize];
            let class = winner(0, 0);
            let is_same = class == winner(0, 1) && class == winner(1, 0) && class == winner(1, 1);
            group.class = if is_same && class != NO_CLASS { class } else { MIXED };
            (group.first, group.count) = ((self.mixed.len() * planes.classes) as u32, 0);
            if group.class == MIXED {
                self.mixed.push((index as u32, f32::NEG_INFINITY));
            }
        }
        let groups = &mut self.groups;
        let corners = |group: &Group, class: usize| {
            let at = |line: usize, side: usize| {
                values[(starts[line] + group.at[side] as usize) * cell_step + class * class_step]
            };
            [at(0, 0), at(0, 1), at(1, 0), at(1, 1)]
        };
        // Planes are read in order.
        for class in 0..planes.classes {
            for (index, floor) in &mut self.mixed {
                let [a, b, c, d] = corners(&groups[*index as usize], class);
                let least = a.min(b).min(c.min(d));
                // A class with NaN never wins.
                if least > *floor && !(a + b + c + d).is_nan() {
                    *floor = least;
                }
            }
        }
        self.rivals.resize(self.rivals.len().max(self.mixed.len() * planes.classes), Rival::default());
        for class in 0..planes.classes {
            for &(index, floor) in &self.mixed {
                let group = &mut groups[index as usize];
                let corners = corners(group, class);
                let [a, b, c, d] = corners;
                if a.max(b).max(c.max(d)) >= floor {
                    self.rivals[(group.first + group.count) as usize] = Rival { class: class as u16, corners };
                    group.count += 1;
                }
            }
        }
    }

    /// Adds the runs of a line of pixels that lies between the two lines of cells with these weights. The winners of the nearer one
    /// begin at `nearest`.
    fn classify(&mut self, weight: [f32; 2], first: u32, nearest: usize, out: &mut ClassMap) {
        let mut from = first;
        for group in &self.groups {
            let begin = std::mem::replace(&mut from, group.end);
            if group.class != MIXED {
                out.push(group.class, group.end);
                continue;
            }
            if self.compared > MOST_COMPARISONS {
                for pixel in begin..group.end {
                    let [left, right] = self.taps[pixel as usize].weight;
                    let cell = group.at[usize::from(right > left)] as usize;
                    out.push(self.winners[nearest + cell], pixel + 1);
                }
                continue;
            }
            let rivals = &self.rivals[group.first as usize..][..group.count as usize];
            let between = |upper: f32, lower: f32| upper * weight[0] + lower * weight[1];
            self.slopes.clear();
            self.slopes.extend(
                rivals.iter().map(|&Rival { class, corners: [a, b, c, d] }| Slope {
                    class,
                    ends: [between(a, c), between(b, d)],
                }),
            );
            let (taps, slopes) = (&self.taps, &self.slopes);
            let compared = &mut self.compared;
            let mut best = |pixel: u32| {
                *compared += slopes.len() as u64;
                best_of(slopes, taps[pixel as usize].weight)
            };
            let (mut at, last) = (begin, best(group.end - 1));
            while at < group.end {
                let class = best(at);
                if class == last {
                    out.push(class, group.end);
                    break;
                }
                // The first pixel of another class is in `low..=high`.
                let (mut low, mut high) = (at + 1, group.end - 1);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if best(middle) == class { low = middle + 1 } else { high = middle }
                }
                out.push(class, low);
                at = low;
            }
        }
    }

    /// Counts the pixels of each class.
    fn count(&mut self, map: &ClassMap) {
        for y in 0..map.ends.len() {
            let mut start = 0;
            for run in map.line(y) {
                let (from, end) = (std::mem::replace(&mut start, u32::from(run.end)), u32::from(run.end));
                let Some(count) = self.counts.get_mut(usize::from(run.class)) else { continue };
                let y = y as u32;
                if count.area == 0 {
                    count.first = [from, y];
                }
                count.area += u64::from(end - from);
                let [left, top, right, bottom] = count.bounds;
                count.bounds = [left.min(from), top.min(y), right.max(end), bottom.max(y + 1)];
            }
        }
    }

    fn collect(&self, out: &mut ClassMap, score: impl Fn(&Count, usize) -> f32) {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| count.area > 0);
        out.regions.extend(counted.map(|(class, count)| {
            let score = score(count, class);
            ClassRegion {
                class: class as u16,
                area: count.area,
                bounds: count.bounds,
                score: if score.is_nan() { 0.0 } else { score.clamp(0.0, 1.0) },
                first: count.first,
            }
        }));
    }
}

/// Returns the best class at a place between two columns of cells; [`NO_CLASS`] if all scores are NaN or minus infinity.
fn best_of(slopes: &[Slope], weight: [f32; 2]) -> u16 {
    let none = (NO_CLASS, f32::NEG_INFINITY);
    let best = slopes.iter().fold(none, |best, &Slope { class, ends: [left, right] }| {
        let value = left * weight[0] + right * weight[1];
        if value > best.1 { (class, value) } else { best }
    });
    best.0
}

/// Returns the cell that a pixel lies in.
fn nearest(axis: &MaskAxis, pixel: u32) -> u32 {
    let at = axis.step * (pixel as f32 + 0.5) + axis.origin;
    // A conversion to an integer saturates.
    (at as u32).min(axis.cells.saturating_sub(1))
}

/// Returns the class of a number.
fn class_of(number: f32) -> u16 {
    let rounded = number.round();
    if (0.0..f32::from(MIXED)).contains(&rounded) { rounded as u16 } else { NO_CLASS }
}

/// Returns the probability of a cell's best class, of which `greatest` is the score and `sum` the softmax's sum.
fn probability(greatest: f32, sum: f32, scores: ClassScores) -> f32 {
    let probability = match scores {
        ClassScores::Probabilities => greatest,
        ClassScores::Sigmoid => 1.0 / (1.0 + (-greatest).exp()),
        ClassScores::Softmax => 1.0 / sum.max(1.0),
    };
    if probability.is_nan() { 0.0 } else { probability.clamp(0.0, 1.0) }
}

/// Returns the probability of a class at a pixel.
fn probability_at(values: &[f32], planes: &ClassPlanes, scores: ClassScores, [x, y]: [Tap; 2], class: usize) -> f32 {
    let [cell_step, class_step] = planes.steps();
    let at = |class: usize| {
        let line = |line: u32| {
            let cell =
                |column: u32| values[(line as usize * planes.width + column as usize) * cell_step + class * class_step];
            cell(x.at[0]) * x.weight[0] + cell(x.at[1]) * x.weight[1]
        };
        line(y.at[0]) * y.weight[0] + line(y.at[1]) * y.weight[1]
    };
    let own = at(class);
    let sum = match scores {
        ClassScores::Softmax => (0..planes.classes).map(|class| exp(at(class) - own)).sum(),
        _ => 1.0,
    };
    probability(own, sum, scores)
}

/// Returns exp(x) of numbers up to 0 within 1e-6 of it; almost 0 below -87 and for NaN. The loop around it is vectorised.
#[expect(clippy::manual_clamp, reason = "`max` and `min` turn NaN into a number, which `clamp` would keep")]
fn exp(x: f32) -> f32 {
    /// 1.5 * 2^23: adding it rounds to a whole number, which is in the last bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.max(-87.0).min(0.0);
    let scaled = x * std::f32::consts::LOG2_E;
    let shifted = scaled + ROUND;
    let rest = (scaled - (shifted - ROUND)) * std::f32::consts::LN_2;
    // The series of exp(x) for |x| <= ln(2) / 2; the first term left out is below 3e-7.
    let series = 1.0
        + rest * (1.0 + rest * (0.5 + rest * (1.0 / 6.0 + rest * (1.0 / 24.0 + rest * (1.0 / 120.0 + rest / 720.0)))));
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127);
    series * f32::from_bits(exponent << 23)
}

#[cfg(test)]
mod tests;
