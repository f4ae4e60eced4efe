//! A polygon on a camera's frame, in fractions of its width and height, so that it fits every size of the same view.
//!
//! Each of [`Polygon::new`]'s rules keeps out a polygon that would silently cover something else than its author meant.

use std::ops::{Range, RangeInclusive};

/// The fewest and the most points of a polygon.
const POINTS: RangeInclusive<usize> = 3..=64;

/// A corner that is this close to the border between two pixels, in pixels, is on it: few pixels are exact as fractions.
const ON_BORDER: f64 = 1e-3;

/// Why points are no polygon. The texts follow the name of the key.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum PolygonError {
    /// Too few points.
    #[error("has {0} points, and an area needs at least 3: add more")]
    TooFew(usize),
    /// Too many points.
    #[error("has {0} points, more than 64: leave out corners, or use several polygons")]
    TooMany(usize),
    /// A point is not on the frame.
    #[error(
        "has the point [{0}, {1}] outside the frame: fractions are 0 to 1; for pixels, set `frame_size = [WIDTH, HEIGHT]`"
    )]
    Outside(f64, f64),
    /// A point is not on a frame of the given size.
    #[error("has the point [{0}, {1}] outside the frame of {2}x{3} pixels: correct the point, or `frame_size`")]
    OutsidePixels(f64, f64, u32, u32),
    /// Pixels that are probably fractions.
    #[error("lies within one pixel of the frame, so its numbers are fractions: remove `frame_size`")]
    WithinOnePixel,
    /// Two points are the same.
    #[error("has the same point twice, at positions {0} and {1}: remove one; the last point joins the first by itself")]
    SamePoint(usize, usize),
    /// Two edges touch.
    #[error(
        "crosses or touches itself: the edge from point {0} meets the edge from point {1}; put the corners in order"
    )]
    Crossing(usize, usize),
}

/// A polygon without crossings, of 3 to 64 points on the frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Polygon {
    points: Vec<[f64; 2]>,
}

impl Polygon {
    /// Makes a polygon of its corners in order: in pixels of a frame of `frame_size`, otherwise in fractions of the frame. Corners in the
    /// last column or row of pixels are moved by [`to_edges`].
    ///
    /// # Errors
    /// There are too few or too many points, one is outside the frame, or the edges cross or touch.
    pub fn new(points: &[[f64; 2]], frame_size: Option<[u32; 2]>) -> Result<Self, PolygonError> {
        if points.len() < *POINTS.start() {
            return Err(PolygonError::TooFew(points.len()));
        }
        if points.len() > *POINTS.end() {
            return Err(PolygonError::TooMany(points.len()));
        }
        let size = frame_size.unwrap_or([1, 1]);
        // NaN is in no range.
        let is_inside =
            |[x, y]: &&[f64; 2]| (0.0..=f64::from(size[0])).contains(x) && (0.0..=f64::from(size[1])).contains(y);
        if let Some(&[x, y]) = points.iter().find(|point| !is_inside(point)) {
            return Err(match frame_size {
                None => PolygonError::Outside(x, y),
                Some([width, height]) => PolygonError::OutsidePixels(x, y, width, height),
            });
        }
        if frame_size.is_some_and(|size| size != [1, 1]) && points.iter().flatten().all(|&number| number <= 1.0) {
            return Err(PolygonError::WithinOnePixel);
        }
        let mut moved = to_edges(points, frame_size);
        let points: Vec<_> = points.iter().map(|point| fraction(*point, size)).collect();
        for (first, point) in points.iter().enumerate() {
            if let Some(more) = points[first + 1..].iter().position(|other| other == point) {
                return Err(PolygonError::SamePoint(first + 1, first + more + 2));
            }
        }
        let mut polygon = Self { points };
        let edges: Vec<_> = polygon.edges().collect();
        for (i, &first) in edges.iter().enumerate() {
            for (j, &second) in edges.iter().enumerate().skip(i + 1) {
                let meets = if j == i + 1 {
                    folds_back(first, second)
                } else if i == 0 && j == edges.len() - 1 {
                    folds_back(second, first)
                } else {
                    touches(first, second)
                };
                if meets {
                    return Err(PolygonError::Crossing(i + 1, j + 1));
                }
            }
        }
        // Two corners in one last pixel are one corner on the edge.
        moved.dedup();
        if moved.len() > *POINTS.start() && moved.first() == moved.last() {
            moved.pop();
        }
        if moved.len() >= *POINTS.start() {
            polygon.points = moved;
        }
        Ok(polygon)
    }

    /// Returns the corners, in fractions of the frame.
    pub fn points(&self) -> &[[f64; 2]] {
        &self.points
    }

    /// Returns each edge: the last one leads back to the first corner.
    pub fn edges(&self) -> impl Iterator<Item = [[f64; 2]; 2]> {
        let ends = self.points.iter().skip(1).chain(self.points.first());
        self.points.iter().zip(ends).map(|(&from, &to)| [from, to])
    }

    /// Returns the part of the frame inside the polygon, 0 to 1.
    pub fn area(&self) -> f64 {
        self.edges().map(|[[x1, y1], [x2, y2]]| x1 * y2 - x2 * y1).sum::<f64>().abs() / 2.0
    }

    /// Returns, for each row of a frame of this size, the spans of pixels that the polygon covers any part of, from left to right.
    /// A corner within a thousandth of a pixel of a pixel's border is taken to be on it.
    pub fn pixels(&self, width: u32, height: u32) -> Vec<Vec<Range<u32>>> {
        let scale = |[x, y]: [f64; 2]| [x * f64::from(width), y * f64::from(height)];
        let exact: Vec<_> = self.edges().map(|ends| ends.map(scale)).collect();
        let mut edges: Vec<_> = exact.iter().map(|ends| ends.map(|corner| corner.map(to_border))).collect();
        // A polygon between two borders that both move to one would cover nothing.
        if (0..2).any(|axis| edges.iter().all(|ends| ends[0][axis] == edges[0][0][axis])) {
            edges = exact;
        }
        (0..height).map(|row| spans(&edges, f64::from(row), width)).collect()
    }

    /// Whether a point, in fractions of the frame, is inside. A point on an edge counts as inside or outside.
    pub fn contains(&self, [x, y]: [f64; 2]) -> bool {
        self.edges().filter(|&edge| crossing(edge, y).is_some_and(|at| x < at)).count() % 2 == 1
    }
}

/// Returns points as fractions of the frame. A point in the last column or row of pixels of `frame_size` is on the edge of the frame,
/// because an area that is drawn up to the last pixel is meant to have it. Points that are all in that column or row stay where they
/// are, so that a line along it remains on the frame.
pub fn to_edges(points: &[[f64; 2]], frame_size: Option<[u32; 2]>) -> Vec<[f64; 2]> {
    let size = frame_size.unwrap_or([1, 1]);
    let mut fractions: Vec<_> = points.iter().map(|point| fraction(*point, size)).collect();
    for (axis, side) in size.map(f64::from).into_iter().enumerate() {
        let is_last = |point: &[f64; 2]| side > 1.0 && point[axis] >= side - 1.0;
        if !points.iter().all(is_last) {
            let last = fractions.iter_mut().zip(points).filter(|(_, point)| is_last(point));
            last.for_each(|(fraction, _)| fraction[axis] = 1.0);
        }
    }
    fractions
}

/// Returns a point of a frame of this size as fractions of it.
fn fraction([x, y]: [f64; 2], size: [u32; 2]) -> [f64; 2] {
    [x / f64::from(size[0]), y / f64::from(size[1])]
}

/// Returns where an edge crosses the line at `y`. The lower end belongs to the edge, the upper one to the next.
pub(crate) fn crossing([[x1, y1], [x2, y2]]: [[f64; 2]; 2], y: f64) -> Option<f64> {
    ((y1 <= y) != (y2 <= y)).then(|| x1 + (y - y1) / (y2 - y1) * (x2 - x1))
}

/// Returns a coordinate in pixels, moved to the border between two pixels if it is [`ON_BORDER`].
fn to_border(at: f64) -> f64 {
    let border = at.round();
    if (at - border).abs() < ON_BORDER { border } else { at }
}

/// Returns the spans of the row of pixels from `top` to `top + 1`.
///
/// A pixel that no edge passes through is entirely inside or outside, which the line through the row's middle shows.
fn spans(edges: &[[[f64; 2]; 2]], top: f64, width: u32) -> Vec<Range<u32>> {
    let mut ranges: Vec<_> = edges.iter().filter_map(|&edge| x_range_in_row(edge, top)).collect();
    let mut crossings: Vec<_> = edges.iter().filter_map(|&edge| crossing(edge, top + 0.5)).collect();
    crossings.sort_by(f64::total_cmp);
    ranges.extend(crossings.chunks_exact(2).map(|ends| (ends[0], ends[1])));
    let pixels = |(left, right): (f64, f64)| left.max(0.0).floor() as u32..(right.ceil() as u32).min(width);
    merged(ranges.into_iter().map(pixels).filter(|span| !span.is_empty()).collect())
}

/// Sorts spans, and joins those that overlap or meet.
pub(crate) fn merged<T: Copy + Ord>(mut spans: Vec<Range<T>>) -> Vec<Range<T>> {
    spans.sort_by_key(|span| span.start);
    spans.into_iter().fold(Vec::new(), |mut merged: Vec<Range<T>>, span| {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
        merged
    })
}

/// Returns the least and the largest x of an edge's part inside the row of pixels at `top`.
fn x_range_in_row([[x1, y1], [x2, y2]]: [[f64; 2]; 2], top: f64) -> Option<(f64, f64)> {
    let (low, high) = (y1.min(y2).max(top), y1.max(y2).min(top + 1.0));
    if y1 == y2 {
        return (top < y1 && y1 < top + 1.0).then(|| (x1.min(x2), x1.max(x2)));
    }
    let x_at = |y: f64| x1 + (y - y1) / (y2 - y1) * (x2 - x1);
    (low < high).then(|| (x_at(low).min(x_at(high)), x_at(low).max(x_at(high))))
}

/// Returns on which side of the line from `a` to `b` a point lies: positive, negative, or 0 on the line.
fn side([a, b]: [[f64; 2]; 2], [x, y]: [f64; 2]) -> f64 {
    (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0])
}

/// Whether an edge goes back over the one before it.
fn folds_back(before: [[f64; 2]; 2], after: [[f64; 2]; 2]) -> bool {
    let along = |[a, b]: [[f64; 2]; 2]| [b[0] - a[0], b[1] - a[1]];
    let (first, second) = (along(before), along(after));
    side(before, after[1]) == 0.0 && first[0] * second[0] + first[1] * second[1] < 0.0
}

/// Whether two edges without a common corner cross or touch.
fn touches(first: [[f64; 2]; 2], second: [[f64; 2]; 2]) -> bool {
    let apart = |axis: usize| {
        let range = |edge: [[f64; 2]; 2]| (edge[0][axis].min(edge[1][axis]), edge[0][axis].max(edge[1][axis]));
        let ((low, high), (other_low, other_high)) = (range(first), range(second));
        high < other_low || other_high < low
    };
    let straddles = |line: [[f64; 2]; 2], edge: [[f64; 2]; 2]| side(line, edge[0]) * side(line, edge[1]) <= 0.0;
    !apart(0) && !apart(1) && straddles(first, second) && straddles(second, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUARE: [[f64; 2]; 4] = [[0.25, 0.25], [0.75, 0.25], [0.75, 0.75], [0.25, 0.75]];

    fn error(points: &[[f64; 2]]) -> PolygonError {
        Polygon::new(points, None).unwrap_err()
    }

    #[test]
    fn pixels_and_fractions_make_the_same_polygon() {
        let pixels = SQUARE.map(|[x, y]| [x * 1920.0, y * 1080.0]);
        let polygon = Polygon::new(&SQUARE, None).unwrap();
        assert_eq!(Polygon::new(&pixels, Some([1920, 1080])), Ok(polygon.clone()));
        assert_eq!((polygon.points(), polygon.area()), (&SQUARE[..], 0.25));
        let points = [[0.5, 0.5], [0.26, 0.74], [0.2, 0.5], [0.5, 0.8], [0.8, 0.2]];
        assert_eq!(points.map(|point| polygon.contains(point)), [true, true, false, false, false]);
    }

    #[test]
    fn corners_between_two_pixels_cover_neither_neighbour_however_they_are_written() {
        let columns = |polygon: Polygon, width| polygon.pixels(width, 1).concat();
        for size in [49, 360, 451, 1080, 1920, 16384] {
            // `pixel / size * size` is often a little less or more than `pixel`.
            // Drawn in pixels, the last but one would reach the frame's edge.
            for pixel in (1..size).filter(|pixel| *pixel != size - 2) {
                let corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(|[x, y]| [f64::from(pixel + x), f64::from(y)]);
                let decimals = corners.map(|[x, y]| [(x / f64::from(size) * 1e7).round() / 1e7, y]);
                for column in [Polygon::new(&corners, Some([size, 1])), Polygon::new(&decimals, None)] {
                    assert_eq!(columns(column.unwrap(), size), vec![pixel..pixel + 1; 1], "of {size}");
                }
                if size <= 1080 {
                    let row = Polygon::new(&decimals.map(|[x, y]| [y, x]), None).unwrap().pixels(1, size);
                    let covered = (0..size).filter(|&row_at| !row[row_at as usize].is_empty());
                    assert_eq!(covered.collect::<Vec<_>>(), [pixel], "of {size}");
                }
            }
        }
        // A part of a pixel is still the whole pixel.
        let part = Polygon::new(&[[0.09998, 0.0], [0.2, 0.0], [0.2, 1.0], [0.09998, 1.0]], None).unwrap();
        assert_eq!(columns(part, 100), vec![9..20; 1]);
    }

    #[test]
    fn a_polygon_that_is_drawn_up_to_the_last_pixel_reaches_the_edges_of_the_frame() {
        let covered = |points: &[[f64; 2]], size: [u32; 2]| {
            let rows = Polygon::new(points, Some(size)).unwrap().pixels(size[0], size[1]);
            rows.into_iter().flatten().map(|span| span.len()).sum::<usize>()
        };
        for size in [[64, 48], [1279, 719], [1920, 1080]] {
            let [right, bottom] = size.map(|side| f64::from(side - 1));
            let all = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]];
            assert_eq!(covered(&all, size), (size[0] * size[1]) as usize, "{size:?}");
            let last_row = [[0.0, bottom - 1.0], [right, bottom - 1.0], [right, bottom], [0.0, bottom]];
            assert_eq!(covered(&last_row, size), (2 * size[0]) as usize, "{size:?}");
            // Neither the last pixel but one, nor fractions are moved.
            let before = all.map(|point| point.map(|at| (at - 1.0).max(0.0)));
            assert_eq!(covered(&before, size), ((size[0] - 2) * (size[1] - 2)) as usize, "{size:?}");
        }
        let fractions = [[0.0, 0.0], [0.999, 0.0], [0.999, 1.0], [0.0, 1.0]];
        assert_eq!(Polygon::new(&fractions, None).unwrap().points(), fractions);
        // Corners that fall together on the edge are one.
        let corner = [[0.0, 0.0], [639.2, 0.0], [640.0, 0.0], [640.0, 479.0], [639.5, 480.0]];
        assert_eq!(Polygon::new(&corner, Some([640, 480])).unwrap().points(), [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]);
        let closing = [[639.5, 0.0], [0.0, 0.0], [0.0, 480.0], [640.0, 0.0]];
        assert_eq!(Polygon::new(&closing, Some([640, 480])).unwrap().points(), [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]);
        let tiny = [[639.1, 479.1], [639.9, 479.2], [639.5, 479.9]];
        assert_eq!(covered(&tiny, [640, 480]), 1);
    }

    #[test]
    fn a_concave_polygon_contains_its_arms_only() {
        let u = [[0.0, 0.0], [0.3, 0.0], [0.3, 0.7], [0.7, 0.7], [0.7, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
        let u = Polygon::new(&u, None).unwrap();
        let points = [[0.1, 0.1], [0.5, 0.1], [0.9, 0.1], [0.5, 0.9]];
        assert_eq!(points.map(|point| u.contains(point)), [true, false, true, true]);
        assert!((u.area() - 0.72).abs() < 1e-12);
    }

    #[test]
    fn each_wrong_polygon_is_refused_for_its_own_reason() {
        use PolygonError::*;
        assert_eq!(error(&SQUARE[..2]), TooFew(2));
        assert_eq!(error(&[[0.5; 2]; 65]), TooMany(65));
        assert_eq!(error(&[[0.0, 0.0], [640.0, 0.0], [640.0, 480.0]]), Outside(640.0, 0.0));
        assert!(matches!(error(&[[0.0, 0.0], [f64::NAN, 0.0], [1.0, 1.0]]), Outside(..)));
        let pixels = |points: &[[f64; 2]]| Polygon::new(points, Some([640, 480])).unwrap_err();
        assert_eq!(pixels(&[[0.0, 0.0], [640.0, 0.0], [0.0, 481.0]]), OutsidePixels(0.0, 481.0, 640, 480));
        assert_eq!(pixels(&SQUARE), WithinOnePixel);
        let closed = [SQUARE[0], SQUARE[1], SQUARE[2], SQUARE[0]];
        assert_eq!(error(&closed), SamePoint(1, 4));
        assert_eq!(error(&[SQUARE[0], SQUARE[2], SQUARE[1], SQUARE[3]]), Crossing(1, 3), "a bow tie");
        assert_eq!(error(&[[0.0, 0.0], [0.5, 0.0], [1.0, 0.0]]), Crossing(1, 3), "a line");
        assert_eq!(error(&[[0.0, 0.0], [1.0, 0.0], [0.5, 0.0], [0.5, 1.0]]), Crossing(1, 2), "a spike");
        let touching = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.5, 0.0], [0.0, 1.0]];
        assert_eq!(error(&touching), Crossing(1, 3), "a corner on an edge");
    }
}
