//! Text boxes in a probability map, as DB models (differentiable binarisation) output it.
//!
//! Cells above a threshold that touch each other, corners included, are one text. Its box is the turned rectangle of the least
//! area around the middles of its cells, grown on all sides by its area, times a ratio, divided by its perimeter. Its score is
//! the mean probability in the rectangle before it grows.
//!
//! Source: `DBPostProcess` in PaddleOCR `ppocr/postprocess/db_postprocess.py` (`boxes_from_bitmap`, `box_score_fast`,
//! `get_mini_boxes`, `unclip`). PaddleOCR grows the rectangle in whole cells with round corners and takes the rectangle around
//! that, which is the same within a cell; rounds corners to whole pixels; also looks for boxes in the holes of texts, whose scores
//! seldom pass; and of too many texts keeps the first ones, not the largest.

use crate::oriented::{OrientedBox, min_area_rectangle};

/// The shortest side of a text, in cells: `min_size`.
const LEAST_SIDE: f64 = 3.0;

/// The shortest side of a grown text box.
const LEAST_GROWN_SIDE: f64 = LEAST_SIDE + 2.0;

/// How texts are found; the names are PaddleOCR's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextMapOptions {
    /// The probability above which a cell belongs to a text.
    pub thresh: f32,
    /// The least mean probability of a text.
    pub box_thresh: f32,
    /// How far a text grows.
    pub unclip_ratio: f32,
    /// How many texts to examine: those with the most cells.
    pub max_candidates: usize,
    /// Whether the map is logits, which still need the sigmoid.
    pub sigmoid: bool,
}

/// A text in a map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextBox {
    /// Where it is, in cells; their middles have whole coordinates, as in PaddleOCR.
    pub oriented: OrientedBox,
    /// The mean probability in it, 0 to 1.
    pub score: f32,
}

/// Cells of a line that belong to a text.
#[derive(Debug, Clone, Copy)]
struct Run {
    line: u32,
    /// The first and the last cell.
    cells: [u32; 2],
    /// An earlier run of the same text, or itself: the root.
    parent: u32,
}

/// The cells of a text.
#[derive(Debug, Clone, Copy)]
struct Text {
    /// The index of its first run.
    root: u32,
    cells: u32,
}

/// Finds texts. The memory is reused, so that nothing is allocated once it has grown to the busiest map.
#[derive(Debug, Default)]
pub struct TextFinder {
    runs: Vec<Run>,
    texts: Vec<Text>,
    /// The number of cells of each root, later the place of its text.
    counts: Vec<u32>,
    /// The runs of the texts to examine, text by text.
    members: Vec<(u32, u32)>,
    points: Vec<[f64; 2]>,
    hull: Vec<[f64; 2]>,
    /// The sums of the probabilities of a line up to each cell.
    sums: Vec<f64>,
    /// First and last cell of each line of a rectangle.
    spans: Vec<[i64; 2]>,
}

impl TextFinder {
    /// Makes the finder without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces `out` by the texts in a map, in the order of their first cells. A number that is not finite belongs to no text and
    /// counts as 0; `out` is empty if `values` are fewer than the cells.
    ///
    /// The time grows with the cells, and for each text that is looked at with its lines and the square of its hull's corners, of
    /// which a map of 1000x1000 cells has at most some hundreds.
    pub fn run(
        &mut self,
        values: &[f32],
        (width, height): (usize, usize),
        options: &TextMapOptions,
        out: &mut Vec<TextBox>,
    ) {
        out.clear();
        let needed = width.checked_mul(height).filter(|&needed| needed > 0 && needed <= values.len());
        // Runs are counted in 32 bits.
        let Some(needed) = needed.filter(|&needed| u32::try_from(needed).is_ok()) else { return };
        let values = &values[..needed];
        self.find_runs(values, width, options);
        self.choose(options.max_candidates);
        if self.texts.is_empty() {
            return;
        }
        self.add_up(values, width, options.sigmoid);
        let mut start = 0;
        for place in 0..self.texts.len() as u32 {
            let own = self.members[start..].partition_point(|(text, _)| *text == place);
            self.points.clear();
            for (_, run) in &self.members[start..start + own] {
                let Run { line, cells: [first, last], .. } = self.runs[*run as usize];
                self.points.push([f64::from(first), f64::from(line)]);
                if last > first {
                    self.points.push([f64::from(last), f64::from(line)]);
                }
            }
            start += own;
            convex_hull(&self.points, &mut self.hull);
            let Some(found) = min_area_rectangle(&self.hull) else { continue };
            let [across, down] = found.size.map(f64::from);
            if across.min(down) < LEAST_SIDE {
                continue;
            }
            let score = self.mean(&found, width, height) as f32;
            if score < options.box_thresh {
                continue;
            }
            // The offset of `pyclipper`, on all four sides.
            let distance = across * down * f64::from(options.unclip_ratio) / (2.0 * (across + down));
            let size = [across + 2.0 * distance, down + 2.0 * distance];
            if size[0].min(size[1]) >= LEAST_GROWN_SIDE {
                let oriented = OrientedBox { size: size.map(|side| side as f32), ..found };
                out.push(TextBox { oriented, score });
            }
        }
    }

    /// Finds the runs of cells above the threshold, and which of them touch.
    fn find_runs(&mut self, values: &[f32], width: usize, options: &TextMapOptions) {
        let thresh = if options.sigmoid { logit(options.thresh) } else { options.thresh };
        self.runs.clear();
        // The runs of the line above that may still touch one of this line.
        let (mut above, mut end) = (0, 0);
        for (line, cells) in values.chunks_exact(width).enumerate() {
            let begin = self.runs.len();
            let mut at = 0;
            let is_text = |value: &f32| value.is_finite() && *value > thresh;
            while let Some(first) = cells[at..].iter().position(is_text) {
                let first = at + first;
                let length = cells[first..].iter().position(|value| !is_text(value));
                at = length.map_or(width, |length| first + length);
                let index = self.runs.len();
                let found = [first as u32, at as u32 - 1];
                self.runs.push(Run { line: line as u32, cells: found, parent: index as u32 });
                while above < end && self.runs[above].cells[1] + 1 < found[0] {
                    above += 1;
                }
                let mut other = above;
                while other < end && self.runs[other].cells[0] <= found[1] + 1 {
                    self.join(other as u32, index as u32);
                    other += 1;
                }
            }
            (above, end) = (begin, self.runs.len());
        }
    }

    fn root(&mut self, mut run: u32) -> u32 {
        while self.runs[run as usize].parent != run {
            let grandparent = self.runs[self.runs[run as usize].parent as usize].parent;
            self.runs[run as usize].parent = grandparent;
            run = grandparent;
        }
        run
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        // The first run of a text is its root.
        self.runs[a.max(b) as usize].parent = a.min(b);
    }

    /// Chooses the texts with the most cells, and lists their runs.
    fn choose(&mut self, most: usize) {
        const NOWHERE: u32 = u32::MAX;
        self.counts.clear();
        self.counts.resize(self.runs.len(), 0);
        for run in 0..self.runs.len() as u32 {
            let root = self.root(run);
            let [first, last] = self.runs[run as usize].cells;
            self.counts[root as usize] += last - first + 1;
        }
        self.texts.clear();
        let roots = (0..).zip(&self.counts).filter(|(_, cells)| **cells > 0);
        self.texts.extend(roots.map(|(root, &cells)| Text { root, cells }));
        if self.texts.len() > most {
            self.texts.sort_unstable_by_key(|text| (std::cmp::Reverse(text.cells), text.root));
            self.texts.truncate(most);
            self.texts.sort_unstable_by_key(|text| text.root);
        }
        self.counts.fill(NOWHERE);
        for (place, text) in (0..).zip(&self.texts) {
            self.counts[text.root as usize] = place;
        }
        self.members.clear();
        for run in 0..self.runs.len() as u32 {
            let root = self.root(run);
            let place = self.counts[root as usize];
            if place != NOWHERE {
                self.members.push((place, run));
            }
        }
        self.members.sort_unstable();
    }

    /// Adds up the probabilities of each line.
    fn add_up(&mut self, values: &[f32], width: usize, has_sigmoid: bool) {
        self.sums.clear();
        for line in values.chunks_exact(width) {
            let mut sum = 0.0;
            self.sums.push(sum);
            for &value in line {
                let probability = if has_sigmoid { 1.0 / (1.0 + (-value).exp()) } else { value };
                sum += if probability.is_finite() { f64::from(probability.clamp(0.0, 1.0)) } else { 0.0 };
                self.sums.push(sum);
            }
        }
    }

    /// Returns the mean probability in a rectangle whose corners are rounded down to cells: `box_score_fast`, which fills it with
    /// `cv2.fillPoly`, edges included.
    fn mean(&mut self, found: &OrientedBox, width: usize, height: usize) -> f64 {
        // Corners often are cells; rounding must not decide on which side of one they lie.
        let corners = found.corners().map(|corner| corner.map(|number| f64::from(number) + 1e-3));
        let last = [width as i64 - 1, height as i64 - 1];
        let limit = |axis: usize, value: f64| (value as i64).clamp(0, last[axis]);
        let bound = |axis: usize| {
            let least = corners.iter().map(|corner| corner[axis]).fold(f64::INFINITY, f64::min);
            let most = corners.iter().map(|corner| corner[axis]).fold(f64::NEG_INFINITY, f64::max);
            [limit(axis, least.floor()), limit(axis, most.ceil())]
        };
        let [columns, lines] = [bound(0), bound(1)];
        // Rounded towards the bounds' first cell.
        let cells = corners.map(|[x, y]| {
            let from = |value: f64, first: i64| first + (value - first as f64) as i64;
            [from(x, columns[0]), from(y, lines[0])]
        });
        self.spans.clear();
        self.spans.resize((lines[1] - lines[0] + 1) as usize, [i64::MAX, i64::MIN]);
        for (a, b) in cells.iter().zip(cells.iter().cycle().skip(1)) {
            self.walk(*a, *b, lines[0]);
        }
        let (mut sum, mut count) = (0.0, 0_i64);
        for (line, &[first, end]) in (lines[0]..).zip(&self.spans) {
            let (first, end) = (first.max(columns[0]), end.min(columns[1]));
            if first <= end {
                let start = line as usize * (width + 1);
                sum += self.sums[start + end as usize + 1] - self.sums[start + first as usize];
                count += end - first + 1;
            }
        }
        if count > 0 { sum / count as f64 } else { 0.0 }
    }

    /// Extends the spans of lines by the cells of an edge: a cell for each step along its longer direction, from left to right,
    /// with halves rounded back: OpenCV's `LineIterator`.
    fn walk(&mut self, a: [i64; 2], b: [i64; 2], first_line: i64) {
        let (a, b) = if b[0] < a[0] { (b, a) } else { (a, b) };
        let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
        let steps = dx.max(dy.abs()).max(1);
        for step in 0..=steps {
            let along = |from: i64, by: i64| from + by.signum() * ((2 * by.abs() * step + steps - 1) / (2 * steps));
            let (x, y) = (along(a[0], dx), along(a[1], dy));
            if let Some(span) = usize::try_from(y - first_line).ok().and_then(|line| self.spans.get_mut(line)) {
                *span = [span[0].min(x), span[1].max(x)];
            }
        }
    }
}

/// Returns the logit of a probability.
fn logit(probability: f32) -> f32 {
    (probability / (1.0 - probability)).ln()
}

/// Finds the corners of the convex hull of points that come line by line and from left to right: Andrew's monotone chain.
fn convex_hull(points: &[[f64; 2]], hull: &mut Vec<[f64; 2]>) {
    let turn = |a: [f64; 2], b: [f64; 2], c: [f64; 2]| (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
    let add = |hull: &mut Vec<[f64; 2]>, least: usize, point: [f64; 2]| {
        while hull.len() >= least + 2 && turn(hull[hull.len() - 2], hull[hull.len() - 1], point) <= 0.0 {
            hull.pop();
        }
        hull.push(point);
    };
    hull.clear();
    for &point in points {
        add(hull, 0, point);
    }
    let least = hull.len().saturating_sub(1);
    for &point in points.iter().rev().skip(1) {
        add(hull, least, point);
    }
    if hull.len() > 1 {
        hull.pop();
    }
}

#[cfg(test)]
mod tests;
