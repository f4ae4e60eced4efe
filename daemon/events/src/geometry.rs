//! Points, lines and polygons in whole units of 1/256 px, so that every decision is exact.
//!
//! All coordinates are within ±[`LIMIT`], 2^24 units. A cross product of differences is then below 2^52 and fits an `i64`.

/// Units per pixel.
pub(crate) const UNITS: f32 = 256.0;
/// The largest coordinate, in units: 65,536 px.
pub(crate) const LIMIT: i32 = 1 << 24;

/// A point in units of 1/256 px.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) x: i32,
    pub(crate) y: i32,
}

/// The nearest unit to a number of pixels, within the limit; `None` for NaN.
pub(crate) fn snap(pixels: f32) -> Option<i32> {
    // A cast saturates, and the limit is far below an i32's.
    (!pixels.is_nan()).then(|| ((pixels * UNITS).round() as i32).clamp(-LIMIT, LIMIT))
}

/// A difference of two points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vector {
    pub(crate) x: i64,
    pub(crate) y: i64,
}

impl Vector {
    pub(crate) fn cross(self, other: Self) -> i64 {
        self.x * other.y - self.y * other.x
    }

    pub(crate) fn dot(self, other: Self) -> i64 {
        self.x * other.x + self.y * other.y
    }

    pub(crate) fn squared(self) -> i64 {
        self.dot(self)
    }

    /// The side of this direction, 1 for the right in an image, on which a point of its line lies after an infinitesimal move to the right
    /// and, infinitesimally less, down; 0 for no direction.
    fn side_after_nudge(self) -> i64 {
        if self.y != 0 { -self.y.signum() } else { self.x.signum() }
    }
}

impl Point {
    pub(crate) fn minus(self, other: Self) -> Vector {
        Vector { x: i64::from(self.x) - i64::from(other.x), y: i64::from(self.y) - i64::from(other.y) }
    }

    /// Whether the other point is at most `distance` units away.
    pub(crate) fn is_within(self, other: Self, distance: i64) -> bool {
        self.minus(other).squared() <= distance * distance
    }
}

/// Twice the signed area of a triangle: positive if `p` is to the right of `a` to `b` in an image, whose y axis points down.
fn turn(a: Point, b: Point, p: Point) -> i64 {
    b.minus(a).cross(p.minus(a))
}

/// The smallest upright box around points, edges included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) left: i32,
    pub(crate) top: i32,
    pub(crate) right: i32,
    pub(crate) bottom: i32,
}

impl Bounds {
    pub(crate) fn of(points: &[Point]) -> Self {
        let empty = Self { left: i32::MAX, top: i32::MAX, right: i32::MIN, bottom: i32::MIN };
        points.iter().fold(empty, |bounds, point| bounds.with(*point))
    }

    /// The smallest box around this one and a point.
    pub(crate) fn with(&self, point: Point) -> Self {
        Self {
            left: self.left.min(point.x),
            top: self.top.min(point.y),
            right: self.right.max(point.x),
            bottom: self.bottom.max(point.y),
        }
    }

    /// Whether neither side is longer than `length` units.
    pub(crate) fn is_within(&self, length: i64) -> bool {
        i64::from(self.right) - i64::from(self.left) <= length && i64::from(self.bottom) - i64::from(self.top) <= length
    }

    pub(crate) fn contains(&self, p: Point) -> bool {
        (self.left..=self.right).contains(&p.x) && (self.top..=self.bottom).contains(&p.y)
    }

    pub(crate) fn touches(&self, other: &Self) -> bool {
        self.left <= other.right && other.left <= self.right && self.top <= other.bottom && other.top <= self.bottom
    }

    fn area(&self) -> i64 {
        (i64::from(self.right) - i64::from(self.left)) * (i64::from(self.bottom) - i64::from(self.top))
    }

    /// The area that two boxes share.
    fn shared(&self, other: &Self) -> i64 {
        let (left, right) = (self.left.max(other.left), self.right.min(other.right));
        let (top, bottom) = (self.top.max(other.top), self.bottom.min(other.bottom));
        if left > right || top > bottom { 0 } else { Self { left, top, right, bottom }.area() }
    }

    /// Whether two boxes have an IoU of a half or more.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        let shared = self.shared(other);
        2 * shared >= self.area() + other.area() - shared
    }

    /// Whether three quarters of this box are in another one, which is at most four times as large.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        4 * self.shared(other) >= 3 * self.area() && 4 * self.area() >= other.area()
    }
}

fn is_on_segment(a: Point, b: Point, p: Point) -> bool {
    Bounds::of(&[a, b]).contains(p) && turn(a, b, p) == 0
}

/// The segments between successive points.
fn segments(points: &[Point]) -> impl Iterator<Item = (Point, Point)> + '_ {
    points.iter().copied().zip(points.iter().copied().skip(1))
}

/// Whether two segments have a point in common.
fn segments_touch(a: Point, b: Point, c: Point, d: Point) -> bool {
    if !Bounds::of(&[a, b]).touches(&Bounds::of(&[c, d])) {
        return false;
    }
    let separated = |a, b, c, d| turn(a, b, c).signum() * turn(a, b, d).signum() > 0;
    !separated(a, b, c, d) && !separated(c, d, a, b)
}

/// A zone: a polygon with its edge. Where it crosses itself, areas inside an even number of its loops are outside.
#[derive(Debug, Clone)]
pub(crate) struct Polygon {
    /// The corners, the first one at the end again.
    points: Vec<Point>,
    bounds: Bounds,
}

impl Polygon {
    pub(crate) fn new(mut points: Vec<Point>) -> Self {
        points.extend(points.first().copied());
        Self { bounds: Bounds::of(&points), points }
    }

    fn edges(&self) -> impl Iterator<Item = (Point, Point)> + '_ {
        segments(&self.points)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether not all points lie on one line.
    pub(crate) fn has_area(&self) -> bool {
        let Some(&first) = self.points.first() else { return false };
        let Some(&second) = self.points.iter().find(|&&point| point != first) else { return false };
        self.points.iter().any(|&point| turn(first, second, point) != 0)
    }

    /// Whether a point is inside or on the edge.
    ///
    /// Two comparisons for a point outside the bounding box, otherwise a cross product for each edge at the point's height.
    pub(crate) fn contains(&self, p: Point) -> bool {
        if !self.bounds.contains(p) {
            return false;
        }
        let mut inside = false;
        for (a, b) in self.edges() {
            // Most edges of a zone with many points are all above or all below.
            if (a.y < p.y && b.y < p.y) || (a.y > p.y && b.y > p.y) {
                continue;
            }
            let turn = turn(a, b, p);
            if turn == 0 && Bounds::of(&[a, b]).contains(p) {
                return true;
            }
            // A ray to the left: each edge has its upper end and not its lower one.
            if (a.y > p.y) != (b.y > p.y) {
                inside ^= (turn < 0) == (a.y < b.y);
            }
        }
        inside
    }

    /// Whether a straight path between two points outside touches the zone.
    pub(crate) fn is_touched(&self, from: Point, to: Point) -> bool {
        self.bounds.touches(&Bounds::of(&[from, to])) && self.edges().any(|(a, b)| segments_touch(a, b, from, to))
    }
}

/// A line of one or more segments, its ends included.
#[derive(Debug, Clone)]
pub(crate) struct Polyline {
    points: Vec<Point>,
    bounds: Bounds,
    closed: bool,
}

impl Polyline {
    pub(crate) fn new(mut points: Vec<Point>) -> Self {
        points.dedup();
        let closed = points.len() > 2 && points.first() == points.last();
        Self { bounds: Bounds::of(&points), points, closed }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether the line has a length.
    pub(crate) fn has_length(&self) -> bool {
        self.points.len() > 1
    }

    /// Whether a point is exactly on the line.
    pub(crate) fn contains(&self, p: Point) -> bool {
        self.bounds.contains(p) && segments(&self.points).any(|(a, b)| is_on_segment(a, b, p))
    }

    /// How many times a straight path crosses the line to its right, seen along the line, less the times to its left.
    ///
    /// Points on the line or in line with it are decided as if the path had moved by an infinitesimal distance, the same for every path, so that
    /// the sums over a path of several steps are right wherever its points lie. The ends of the line reach an infinitesimal distance
    /// further, far greater than that of the path, so that a path through an end crosses the line.
    ///
    /// Two comparisons for a path beside the bounding box, otherwise four cross products for each segment near it.
    pub(crate) fn crossings(&self, from: Point, to: Point) -> i32 {
        let near = Bounds::of(&[from, to]);
        if from == to || !self.bounds.touches(&near) {
            return 0;
        }
        let path = to.minus(from);
        let last = self.points.len().saturating_sub(2);
        let mut net = 0;
        for (index, (a, b)) in segments(&self.points).enumerate() {
            if !near.touches(&Bounds::of(&[a, b])) {
                continue;
            }
            let line = b.minus(a);
            let side = |p: Point| match turn(a, b, p).signum() {
                0 => line.side_after_nudge(),
                side => side,
            };
            let (begin, end) = (side(from), side(to));
            if begin == end {
                continue;
            }
            let side_of_path = |corner: Point, outwards: Option<i64>| {
                let side = turn(from, to, corner).signum();
                if side != 0 {
                    return side;
                }
                match outwards.unwrap_or_default() {
                    0 => -path.side_after_nudge(),
                    side => side,
                }
            };
            let towards_end = path.cross(line).signum();
            let of_a = side_of_path(a, (index == 0 && !self.closed).then_some(-towards_end));
            let of_b = side_of_path(b, (index == last && !self.closed).then_some(towards_end));
            if of_a != of_b {
                net += if end > 0 { 1 } else { -1 };
            }
        }
        net
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: i32, y: i32) -> Point {
        Point { x, y }
    }

    fn line(points: &[(i32, i32)]) -> Polyline {
        Polyline::new(points.iter().map(|&(x, y)| at(x, y)).collect())
    }

    /// The sum over a path.
    fn along(line: &Polyline, path: &[(i32, i32)]) -> i32 {
        path.windows(2).map(|pair| line.crossings(at(pair[0].0, pair[0].1), at(pair[1].0, pair[1].1))).sum()
    }

    #[test]
    fn the_edge_and_the_corners_of_a_zone_are_inside() {
        let zone = Polygon::new(vec![at(0, 0), at(10, 0), at(10, 10), at(5, 5), at(0, 10)]);
        for (x, y) in [(0, 0), (10, 10), (5, 5), (3, 7), (10, 4), (5, 0), (1, 8)] {
            assert!(zone.contains(at(x, y)), "{x} {y}");
        }
        for (x, y) in [(5, 6), (-1, 0), (11, 10), (4, 7), (5, 10)] {
            assert!(!zone.contains(at(x, y)), "{x} {y}");
        }
    }

    #[test]
    fn a_path_through_or_along_an_end_crosses_and_one_beside_it_does_not() {
        let line = line(&[(100, 300), (500, 300)]);
        for x in [100, 300, 500] {
            assert_eq!(along(&line, &[(x, 200), (x, 400)]), 1, "{x}");
            assert_eq!(along(&line, &[(x, 400), (x, 300), (x, 200)]), -1, "{x}");
            assert_eq!(along(&line, &[(x, 200), (x, 300), (x, 200)]), 0, "{x}");
            assert_eq!(along(&line, &[(x, 400), (x, 300), (x, 400)]), 0, "{x}");
        }
        assert_eq!(along(&line, &[(99, 200), (99, 400)]), 0);
        assert_eq!(along(&line, &[(501, 200), (501, 400)]), 0);
        assert_eq!(along(&line, &[(0, 200), (100, 300), (300, 300), (500, 300), (600, 400)]), 1);
        assert_eq!(along(&line, &[(0, 200), (100, 300), (300, 300), (600, 200)]), 0);
    }

    #[test]
    fn a_path_through_a_corner_of_a_line_crosses_once() {
        let line = line(&[(0, 0), (100, 100), (200, 0)]);
        assert_eq!(along(&line, &[(100, 50), (100, 150)]), 1);
        assert_eq!(along(&line, &[(100, 50), (100, 100), (100, 150)]), 1);
        assert_eq!(along(&line, &[(0, 100), (100, 100), (200, 100)]), 0);
        assert_eq!(along(&line, &[(-10, 50), (210, 50)]), 0);
    }

    #[test]
    fn a_closed_line_is_crossed_once_where_it_closes() {
        let line = line(&[(0, 0), (100, 0), (100, 100), (0, 100), (0, 0)]);
        assert_eq!(along(&line, &[(-50, -50), (50, 50)]).abs(), 1);
        assert_eq!(along(&line, &[(-50, -50), (150, 150)]), 0);
    }
}
