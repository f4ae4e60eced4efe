//! A mask as polygons.

use super::Mask;

/// The maximum number of points of a mask.
///
/// Beyond this, the tolerance is doubled until they fit, and rings smaller than it are dropped. An object at 1080p has some
/// hundred.
pub const MAX_POINTS: usize = 10_000;

/// The points at which a tolerance is doubled before all rings are found: this bounds the memory of a mask of noise.
const MAX_HELD: usize = 16 * MAX_POINTS;

/// The part of its area that the simplification of a ring may move.
const AREA_TOLERANCE: f64 = 0.02;

/// The most that [`smooth_steps`] moves a contour by, in pixels: a step to half of its height.
const SMOOTHED: f64 = 0.5;

/// The part of its area that smoothing may move; a ring of few pixels keeps its steps.
const SMOOTHED_AREA: f64 = 0.01;

/// The tolerance at which points on a line are left out after smoothing.
const STRAIGHT: f64 = 0.01;

/// The divisions of a ring by its farthest points after which it is divided in the middle: this bounds the time.
const MAX_DEPTH: u32 = 48;

/// The contours of a mask: closed rings of points on the edges of pixels, in pixels of the frame.
///
/// Coordinates are edges as in boxes: a mask of the top left pixel has the ring 0,0 1,0 1,1 0,1. There are rings around the
/// object's parts and around its holes; the even-odd rule fills them to the mask. Pixels that touch at a corner only are in
/// rings of their own. Rings around parts are clockwise on the screen, those around holes counterclockwise.
///
/// The memory is reused from mask to mask.
#[derive(Debug, Clone, Default)]
pub struct Polygons {
    points: Vec<[f32; 2]>,
    /// Where each ring ends in `points`.
    ends: Vec<usize>,
    /// The top edges of pixels that were passed.
    passed: Vec<u32>,
    ring: Vec<[f32; 2]>,
    corners: Vec<Corner>,
    smoothed: Vec<[f32; 2]>,
    keep: Vec<bool>,
    stack: Vec<(usize, usize, u32)>,
}

/// The direction of a contour at a point.
#[derive(Debug, Clone, Copy)]
struct Corner {
    /// It turns to the right.
    right: bool,
    /// It continues for one pixel.
    pixel: bool,
}

/// The bits of a mask by signed coordinates relative to its rectangle.
#[derive(Clone, Copy)]
struct Bits<'a> {
    mask: &'a Mask,
    per_row: usize,
}

impl Bits<'_> {
    fn get(&self, x: i64, y: i64) -> bool {
        let inside = x >= 0 && y >= 0 && x < i64::from(self.mask.width) && y < i64::from(self.mask.height);
        inside
            && self
                .mask
                .words
                .get(y as usize * self.per_row + x as usize / 32)
                .is_some_and(|word| word >> (x % 32) & 1 == 1)
    }
}

impl Polygons {
    /// Makes polygons without rings and memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the rings by those of a mask.
    ///
    /// Points are left out (Douglas and Peucker 1973) where the contour stays within `tolerance` pixels, or within less if the
    /// object is small: the area that may change is at most 2 % of the object's and of the ring's. From half a pixel on, steps
    /// of one pixel become slopes through their middles, except around few pixels. With 0 only points on a straight line are left
    /// out. The number of points is at most [`MAX_POINTS`].
    pub fn trace(&mut self, mask: &Mask, tolerance: f32) {
        self.trace_counted(mask, tolerance, mask.edges_within(u64::MAX).unwrap_or(u64::MAX));
    }

    /// Does the same with a mask whose number of edges is known: see [`Mask::edges_within`].
    pub fn trace_counted(&mut self, mask: &Mask, tolerance: f32, edges: u64) {
        self.points.clear();
        self.ends.clear();
        let bits = Bits { mask, per_row: mask.words_per_row() };
        if mask.words.len() != bits.per_row * mask.height as usize || mask.words.is_empty() {
            return;
        }
        let tolerance = f64::from(if tolerance > 0.0 { tolerance } else { 0.0 });
        // A strip of the tolerance's width along every contour is at most this part of the object.
        let strip = AREA_TOLERANCE * mask.area() as f64 / (edges as f64).max(1.0);
        let smooth = tolerance >= SMOOTHED;
        let tolerance = if smooth { (tolerance - SMOOTHED).min(strip) } else { tolerance.min(strip) };
        // The tolerance after doubling, for rings of any size.
        let mut forced = 0.0;
        self.passed.clear();
        self.passed.resize(mask.words.len(), 0);
        for y in 0..mask.height as usize {
            for word in 0..bits.per_row {
                let at = y * bits.per_row + word;
                let above = if y == 0 { 0 } else { mask.words[at - bits.per_row] };
                loop {
                    let open = mask.words[at] & !above & !self.passed[at];
                    if open == 0 {
                        break;
                    }
                    self.follow(bits, [32 * word as i64 + i64::from(open.trailing_zeros()), y as i64]);
                    let smoothed = smooth && self.smooth_ring();
                    self.push_ring(if smoothed { tolerance.max(STRAIGHT) } else { tolerance }, forced);
                    if self.points.len() > MAX_HELD {
                        forced = self.coarsen(forced, MAX_HELD / 2);
                    }
                }
            }
        }
        self.coarsen(forced, MAX_POINTS);
    }

    /// Returns the rings, each without its first point repeated at the end.
    pub fn rings(&self) -> impl ExactSizeIterator<Item = &[[f32; 2]]> {
        self.ends.iter().enumerate().map(|(i, &end)| {
            let start = if i == 0 { 0 } else { self.ends[i - 1] };
            &self.points[start..end]
        })
    }

    /// Follows the contour that begins with the top edge of a pixel, with the object on the right hand, into `ring`.
    fn follow(&mut self, bits: Bits<'_>, start: [i64; 2]) {
        self.ring.clear();
        let (left, top) = (f64::from(bits.mask.left), f64::from(bits.mask.top));
        let ([mut x, mut y], mut step) = (start, [1_i64, 0_i64]);
        loop {
            // A step to the right goes along the top edge of the pixel below.
            if step == [1, 0] {
                self.passed[y as usize * bits.per_row + x as usize / 32] |= 1 << (x % 32);
            }
            x += step[0];
            y += step[1];
            // The pixels ahead, on the right and on the left. Right of (dx, dy) is (-dy, dx), as y goes down.
            let ahead = |side: i64| {
                let (dx, dy) = (step[0] - side * step[1], step[1] + side * step[0]);
                bits.get(x + (dx - 1) / 2, y + (dy - 1) / 2)
            };
            let turned = if !ahead(1) {
                [-step[1], step[0]]
            } else if ahead(-1) {
                [step[1], -step[0]]
            } else {
                continue;
            };
            step = turned;
            self.ring.push([(left + x as f64) as f32, (top + y as f64) as f32]);
            // The topmost and leftmost top edge of a contour follows a turn.
            if [x, y] == start && step == [1, 0] {
                break;
            }
        }
    }

    /// Smooths `ring` and returns `true`, unless that moves a noticeable part of its area.
    fn smooth_ring(&mut self) -> bool {
        smooth_steps(&self.ring, &mut self.corners, &mut self.smoothed);
        let (before, after) = (area_and_length(&self.ring).0, area_and_length(&self.smoothed).0);
        let fits = (before - after).abs() <= SMOOTHED_AREA * before;
        if fits {
            std::mem::swap(&mut self.ring, &mut self.smoothed);
        }
        fits
    }

    /// Appends `ring`, simplified.
    fn push_ring(&mut self, tolerance: f64, forced: f64) {
        let (area, length) = area_and_length(&self.ring);
        let tolerance = tolerance.min((AREA_TOLERANCE * area / length).max(STRAIGHT)).max(forced);
        simplify(&self.ring, tolerance, &mut self.keep, &mut self.stack);
        let start = self.points.len();
        self.points.extend(self.ring.iter().zip(&self.keep).filter(|(_, keep)| **keep).map(|(point, _)| *point));
        self.end_ring(start);
    }

    /// Ends a ring that begins at `start`, or drops it if it encloses nothing.
    fn end_ring(&mut self, start: usize) {
        if self.points.len() < start + 3 {
            self.points.truncate(start);
        } else {
            self.ends.push(self.points.len());
        }
    }

    /// Doubles the tolerance until there are at most `limit` points, and returns it.
    fn coarsen(&mut self, mut forced: f64, limit: usize) -> f64 {
        while self.points.len() > limit {
            forced = if forced == 0.0 { 0.5 } else { forced * 2.0 };
            let points = std::mem::take(&mut self.points);
            let ends = std::mem::take(&mut self.ends);
            let mut start = 0;
            for end in ends {
                let ring = &points[start..end];
                start = end;
                // A ring that the tolerance swallows.
                if area_and_length(ring).0 <= forced * forced {
                    continue;
                }
                simplify(ring, forced, &mut self.keep, &mut self.stack);
                let kept = self.points.len();
                self.points.extend(ring.iter().zip(&self.keep).filter(|(_, keep)| **keep).map(|(point, _)| *point));
                self.end_ring(kept);
            }
        }
        forced
    }
}

/// Replaces steps of one pixel by slopes through the middles of their edges.
///
/// A corner between two edges, of which one is a pixel long, is cut off if the contour turns the other way at their other ends:
/// the slope comes no nearer to the middle of a pixel than 0.35, so it fills the same pixels, and a staircase becomes a line.
fn smooth_steps(ring: &[[f32; 2]], corners: &mut Vec<Corner>, out: &mut Vec<[f32; 2]>) {
    out.clear();
    corners.clear();
    let count = ring.len();
    if count == 0 {
        return;
    }
    // The corners with more at each end, so that every one has its neighbours.
    let padded = |i: usize| ring[(i + count - 2) % count];
    let edge = |a: [f32; 2], b: [f32; 2]| [b[0] - a[0], b[1] - a[1]];
    let mut before = edge(padded(0), padded(1));
    for i in 1..count + 4 {
        let after = edge(padded(i), padded(i + 1));
        corners.push(Corner {
            right: before[0] * after[1] - before[1] * after[0] > 0.0,
            pixel: after[0].abs() + after[1].abs() == 1.0,
        });
        before = after;
    }
    // `corners[i + 1]` is that of point i; it steps if the contour turns the other way at the end of its edge.
    let step = |i: usize| corners[i].right != corners[i + 1].right;
    let cut = |i: usize| step(i - 1) && step(i) && (corners[i - 1].pixel || corners[i].pixel);
    let mut is_cut = cut(1);
    for (i, &point) in ring.iter().enumerate() {
        let next_is_cut = cut(i + 2);
        if !is_cut {
            out.push(point);
        }
        if step(i + 1) && (is_cut || next_is_cut) {
            let next = ring[if i + 1 == count { 0 } else { i + 1 }];
            out.push([f32::midpoint(point[0], next[0]), f32::midpoint(point[1], next[1])]);
        }
        is_cut = next_is_cut;
    }
}

/// Returns the area that a ring encloses and its length.
fn area_and_length(ring: &[[f32; 2]]) -> (f64, f64) {
    let (mut twice, mut length) = (0.0, 0.0);
    let mut before = ring.last().copied().unwrap_or_default().map(f64::from);
    for point in ring {
        let point = point.map(f64::from);
        twice += before[0] * point[1] - point[0] * before[1];
        // Pixels of a frame: no square overflows, which is what `hypot` takes its time for.
        length += ((point[0] - before[0]).powi(2) + (point[1] - before[1]).powi(2)).sqrt();
        before = point;
    }
    (twice.abs() / 2.0, length.max(f64::MIN_POSITIVE))
}

/// Marks the points of a ring that Douglas and Peucker's algorithm keeps: from its first point and the one farthest from it.
fn simplify(ring: &[[f32; 2]], tolerance: f64, keep: &mut Vec<bool>, stack: &mut Vec<(usize, usize, u32)>) {
    keep.clear();
    if tolerance <= 0.0 || ring.len() <= 4 {
        keep.resize(ring.len(), true);
        return;
    }
    keep.resize(ring.len(), false);
    // The end of the last part is the ring's first point.
    let point = |i: usize| ring[if i == ring.len() { 0 } else { i }].map(f64::from);
    let origin = point(0);
    let distance = |i: usize| (point(i)[0] - origin[0]).powi(2) + (point(i)[1] - origin[1]).powi(2);
    let far = (0..ring.len()).max_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(0);
    keep[0] = true;
    keep[far] = true;
    stack.clear();
    stack.extend([(0, far, 0), (far, ring.len(), 0)]);
    while let Some((from, to, depth)) = stack.pop() {
        let (a, b) = (point(from), point(to));
        let along = [b[0] - a[0], b[1] - a[1]];
        let squared = along[0] * along[0] + along[1] * along[1];
        let inverse = if squared > 0.0 { 1.0 / squared } else { 0.0 };
        let (mut worst, mut at) = (tolerance * tolerance, None);
        for (i, point) in ring.iter().enumerate().take(to).skip(from + 1) {
            let p = [f64::from(point[0]) - a[0], f64::from(point[1]) - a[1]];
            // The distance from the segment, squared.
            let part = ((p[0] * along[0] + p[1] * along[1]) * inverse).clamp(0.0, 1.0);
            let away = (p[0] - part * along[0]).powi(2) + (p[1] - part * along[1]).powi(2);
            if away > worst {
                (worst, at) = (away, Some(i));
            }
        }
        let Some(mut at) = at else { continue };
        if depth > MAX_DEPTH {
            at = from.midpoint(to);
        }
        keep[at] = true;
        stack.extend([(from, at, depth + 1), (at, to, depth + 1)]);
    }
}
