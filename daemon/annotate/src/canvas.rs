//! Rectangles, discs, lines and polygons on an RGB image. Parts outside the image are not drawn.

use image::{Rgb, RgbImage};

use super::palette::Color;

/// A rectangle of whole pixels: includes left and top, excludes right and bottom. May reach outside an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    pub left: i32,
    pub top: i32,
    pub right: i32,
    pub bottom: i32,
}

impl Rect {
    pub fn new(left: i32, top: i32, width: i32, height: i32) -> Self {
        Self { left, top, right: left + width, bottom: top + height }
    }

    pub fn width(&self) -> i32 {
        self.right - self.left
    }

    pub fn height(&self) -> i32 {
        self.bottom - self.top
    }

    /// Returns the rectangle grown by `pixels` on every side; shrunk if negative.
    pub fn grown(&self, pixels: i32) -> Self {
        Self {
            left: self.left - pixels,
            top: self.top - pixels,
            right: self.right + pixels,
            bottom: self.bottom + pixels,
        }
    }

    /// Returns the area that it shares with another.
    pub fn overlap(&self, other: &Self) -> i64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        i64::from(width.max(0)) * i64::from(height.max(0))
    }

    fn clipped(&self, picture: &RgbImage) -> Self {
        let (width, height) = (picture.width() as i32, picture.height() as i32);
        Self {
            left: self.left.clamp(0, width),
            top: self.top.clamp(0, height),
            right: self.right.clamp(0, width),
            bottom: self.bottom.clamp(0, height),
        }
    }
}

/// Mixes `color` into a pixel; `coverage` 1 replaces it.
pub fn blend(picture: &mut RgbImage, x: i32, y: i32, color: Color, coverage: f32) {
    if x < 0 || y < 0 || x >= picture.width() as i32 || y >= picture.height() as i32 {
        return;
    }
    let Rgb(pixel) = picture.get_pixel_mut(x as u32, y as u32);
    for (old, new) in pixel.iter_mut().zip(color) {
        *old = (f32::from(*old) + (f32::from(new) - f32::from(*old)) * coverage).round() as u8;
    }
}

/// Fills a rectangle.
pub fn fill(picture: &mut RgbImage, rect: Rect, color: Color, coverage: f32) {
    let rect = rect.clipped(picture);
    for y in rect.top..rect.bottom {
        for x in rect.left..rect.right {
            blend(picture, x, y, color, coverage);
        }
    }
}

/// Fills the pixels whose centres are inside an odd number of `rings`, each x, y, x, y, ... in pixels. The cost grows with
/// the height of the edges and the number of filled pixels.
pub fn fill_rings(picture: &mut RgbImage, rings: &[Vec<f32>], color: Color, coverage: f32) {
    let (width, height) = (picture.width() as f32, picture.height() as f32);
    // Row and column of each crossing of an edge and a row's middle.
    let mut crossings: Vec<(u32, f32)> = Vec::new();
    for ring in rings {
        let corners = ring.as_chunks::<2>().0;
        for (from, to) in corners.iter().zip(corners.iter().cycle().skip(1)) {
            let ([x1, y1], [x2, y2]) = if from[1] <= to[1] { (*from, *to) } else { (*to, *from) };
            let slope = (x2 - x1) / (y2 - y1);
            // The upper end of an edge is inclusive and the lower end exclusive, so that each corner counts once.
            let first_below = |y: f32| (y - 0.5).ceil().clamp(0.0, height) as u32;
            crossings.extend((first_below(y1)..first_below(y2)).map(|row| (row, x1 + (row as f32 + 0.5 - y1) * slope)));
        }
    }
    crossings.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    for pair in crossings.chunk_by(|a, b| a.0 == b.0).flat_map(|row| row.chunks_exact(2)) {
        let (row, [left, right]) = (pair[0].0, [pair[0].1, pair[1].1].map(|x| (x - 0.5).ceil().clamp(0.0, width)));
        for x in left as i32..right as i32 {
            blend(picture, x, row as i32, color, coverage);
        }
    }
}

/// Draws a rectangle's edge, `line` pixels wide, inwards.
pub fn outline(picture: &mut RgbImage, rect: Rect, line: i32, color: Color, coverage: f32) {
    let line = line.min(rect.width() / 2).min(rect.height() / 2).max(1);
    let Rect { left, top, right, bottom } = rect;
    fill(picture, Rect { bottom: top + line, ..rect }, color, coverage);
    fill(picture, Rect { top: bottom - line, ..rect }, color, coverage);
    let between = Rect { top: top + line, bottom: bottom - line, ..rect };
    fill(picture, Rect { right: left + line, ..between }, color, coverage);
    fill(picture, Rect { left: right - line, ..between }, color, coverage);
}

/// Fills a disc with a soft edge.
pub fn disc(picture: &mut RgbImage, x: f32, y: f32, radius: f32, color: Color) {
    let reach = radius.ceil() as i32 + 1;
    // The coordinates of a distant centre may overflow an i32.
    let near = |at: f32, side: u32| at >= -(reach as f32) && at <= side as f32 + reach as f32;
    if !near(x, picture.width()) || !near(y, picture.height()) {
        return;
    }
    let (middle_x, middle_y) = (x.floor() as i32, y.floor() as i32);
    for py in middle_y - reach..=middle_y + reach {
        for px in middle_x - reach..=middle_x + reach {
            let distance = (px as f32 + 0.5 - x).hypot(py as f32 + 0.5 - y);
            let coverage = (radius + 0.5 - distance).clamp(0.0, 1.0);
            if coverage > 0.0 {
                blend(picture, px, py, color, coverage);
            }
        }
    }
}

/// Draws a line with round ends and a soft edge, `2 * radius` pixels wide. `coverage` 1 hides what is below.
///
/// Touches about as many pixels as the visible part of the line covers, however far away its ends are.
pub fn line(picture: &mut RgbImage, ends: [[f32; 2]; 2], radius: f32, color: Color, coverage: f32) {
    let (width, height) = (f64::from(picture.width()), f64::from(picture.height()));
    // How far a line that is outside the image extends into it.
    let reach = f64::from(radius) + 1.0;
    let Some([[x1, y1], [x2, y2]]) = clipped(ends.map(|end| end.map(f64::from)), reach, width, height) else { return };
    let (dx, dy) = (x2 - x1, y2 - y1);
    let length = dx * dx + dy * dy;
    // The part of the line that is nearest to a point: 0 at the first end, 1 at the second.
    let nearest = |x: f64, y: f64| {
        if length > 0.0 { (((x - x1) * dx + (y - y1) * dy) / length).clamp(0.0, 1.0) } else { 0.0 }
    };
    let top = (y1.min(y2) - reach).floor().max(0.0) as i32;
    let bottom = (y1.max(y2) + reach).ceil().min(height) as i32;
    for py in top..bottom {
        let y = f64::from(py) + 0.5;
        // The start and end of the part of the line that this row can touch.
        let x_at = |row: f64| if dy == 0.0 { x1 } else { x1 + ((row - y1) / dy).clamp(0.0, 1.0) * dx };
        let [from, to] = if dy == 0.0 { [x1, x2] } else { [x_at(y - reach), x_at(y + reach)] };
        let left = (from.min(to) - reach).floor().max(0.0) as i32;
        let right = (from.max(to) + reach).ceil().min(width) as i32;
        for px in left..right {
            let x = f64::from(px) + 0.5;
            let part = nearest(x, y);
            let distance = (x - x1 - part * dx).hypot(y - y1 - part * dy) as f32;
            let edge = (radius + 0.5 - distance).clamp(0.0, 1.0);
            if edge > 0.0 {
                blend(picture, px, py, color, edge * coverage);
            }
        }
    }
}

/// Returns the part of a line that lies in an image grown by `reach`, as Cohen and Sutherland clip: an end outside moves to the
/// edge along the line. `None` if no part does, or an end is not finite.
fn clipped(mut ends: [[f64; 2]; 2], reach: f64, width: f64, height: f64) -> Option<[[f64; 2]; 2]> {
    if !ends.as_flattened().iter().all(|v| v.is_finite()) {
        return None;
    }
    for (axis, side) in [(0, width), (1, height)] {
        let (low, high) = (-reach, side + reach);
        for (this, that) in [(0, 1), (1, 0)] {
            let (from, to) = (ends[this][axis], ends[that][axis]);
            let edge = from.clamp(low, high);
            if edge == from {
                continue;
            }
            if (to < low) == (from < low) && (to > high) == (from > high) {
                return None;
            }
            let other = 1 - axis;
            ends[this][other] += (edge - from) / (to - from) * (ends[that][other] - ends[this][other]);
            ends[this][axis] = edge;
        }
    }
    Some(ends)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const WHITE: Color = [255; 3];

    /// Draws in white on black, and returns the rows: `#` for white, `.` for black, `+` for between.
    fn rows(width: u32, height: u32, draw: impl FnOnce(&mut RgbImage)) -> Vec<String> {
        let mut picture = RgbImage::new(width, height);
        draw(&mut picture);
        let sign = |Rgb([value, ..]): &Rgb<u8>| match value {
            255 => '#',
            0 => '.',
            _ => '+',
        };
        picture.rows().map(|row| row.map(sign).collect()).collect()
    }

    /// Compares a white drawing on black with the expected coverage at the centre of each pixel.
    fn covers(picture: &RgbImage, what: &str, coverage: impl Fn(f64, f64) -> f64) {
        for (x, y, pixel) in picture.enumerate_pixels() {
            let wanted = 255.0 * coverage(f64::from(x) + 0.5, f64::from(y) + 0.5).clamp(0.0, 1.0);
            assert!((f64::from(pixel.0[0]) - wanted).abs() < 1.5, "{what} at {x} {y}: {pixel:?}, {wanted}");
        }
    }

    #[test]
    fn a_rectangle_has_its_sides_and_shares_an_area() {
        let rect = Rect::new(3, -2, 10, 5);
        assert_eq!(rect, Rect { left: 3, top: -2, right: 13, bottom: 3 });
        assert_eq!((rect.width(), rect.height()), (10, 5));
        assert_eq!(rect.grown(2), Rect { left: 1, top: -4, right: 15, bottom: 5 });
        assert_eq!(rect.grown(-2), Rect { left: 5, top: 0, right: 11, bottom: 1 });
        for (other, area) in [
            (rect, 50),
            (Rect::new(10, 1, 7, 7), 3 * 2),
            (Rect::new(0, -9, 5, 9), 2 * 2),
            (Rect::new(13, -2, 4, 4), 0),
            (Rect::new(20, 20, 4, 4), 0),
            (Rect::new(3, 3, 10, 4), 0),
        ] {
            assert_eq!((rect.overlap(&other), other.overlap(&rect)), (area, area), "{other:?}");
        }
    }

    #[test]
    fn a_pixel_is_mixed_by_its_coverage_and_outside_nothing_is() {
        let mut picture = RgbImage::from_pixel(3, 2, Rgb([100, 200, 0]));
        blend(&mut picture, 1, 1, [200, 100, 255], 0.25);
        assert_eq!(*picture.get_pixel(1, 1), Rgb([125, 175, 64]));
        let before = picture.clone();
        for (x, y) in [(-1, 0), (0, -1), (3, 0), (0, 2), (i32::MIN, i32::MAX)] {
            blend(&mut picture, x, y, WHITE, 1.0);
        }
        assert_eq!(picture, before);
        for (x, y) in [(0, 0), (2, 1), (2, 0), (0, 1)] {
            blend(&mut picture, x, y, WHITE, 1.0);
            assert_eq!(*picture.get_pixel(x as u32, y as u32), Rgb(WHITE));
        }
    }

    #[test]
    fn a_rectangle_is_filled_and_outlined_inwards() {
        assert_eq!(rows(4, 3, |picture| fill(picture, Rect::new(-3, 1, 5, 9), WHITE, 1.0)), ["....", "##..", "##.."]);
        let outlined = |line| rows(7, 6, |picture| outline(picture, Rect::new(1, 0, 6, 5), line, WHITE, 1.0));
        assert_eq!(outlined(1), [".######", ".#....#", ".#....#", ".#....#", ".######", "......."]);
        let two = [".######", ".######", ".##..##", ".######", ".######", "......."];
        // A line is at most half as wide as the shorter side.
        assert_eq!([outlined(2), outlined(9)], [two, two]);
        // Where it is transparent, no pixel is mixed twice.
        let thin = rows(3, 3, |picture| outline(picture, Rect::new(0, 0, 3, 3), 1, [200; 3], 0.5));
        assert_eq!(thin, ["+++", "+.+", "+++"]);
        let mut half = RgbImage::new(3, 3);
        outline(&mut half, Rect::new(0, 0, 3, 3), 1, [200; 3], 0.5);
        assert!(half.pixels().all(|pixel| [0, 100].contains(&pixel.0[0])));
    }

    #[test]
    fn a_ring_covers_the_pixels_whose_middles_are_inside() {
        let filled = |ring: &[f32]| rows(9, 4, |picture| fill_rings(picture, &[ring.to_vec()], WHITE, 1.0));
        // The long side falls three columns a row; it passes 7.5, 4.5 and 1.5 at the rows' middles.
        let falling = ["#######..", "####.....", "#........", "........."];
        assert_eq!(filled(&[0.0, 0.0, 9.0, 0.0, 0.0, 3.0]), falling);
        assert_eq!(filled(&[0.0, 3.0, 9.0, 0.0, 0.0, 0.0]), falling, "the other way round");
        let rising = [".########", "....#####", ".......##", "........."];
        assert_eq!(filled(&[9.0, 0.0, 0.0, 0.0, 9.0, 3.0]), rising);
        // A trapezium whose sides are not upright, away from the edges.
        assert_eq!(
            filled(&[3.0, 1.0, 6.0, 1.0, 8.0, 3.0, 1.0, 3.0]),
            [".........", "..####...", ".######..", "........."]
        );
    }

    #[test]
    fn a_disc_covers_what_is_within_its_radius() {
        for (x, y, radius) in
            [(8.0, 6.0, 3.0), (7.3, 5.9, 2.4), (0.0, 0.0, 4.0), (-1.5, 5.0, 3.25), (17.5, 13.0, 3.0), (8.5, 6.5, 0.4)]
        {
            let mut picture = RgbImage::new(16, 12);
            disc(&mut picture, x as f32, y as f32, radius as f32, WHITE);
            covers(&picture, &format!("{x} {y} {radius}"), |px, py| radius + 0.5 - (px - x).hypot(py - y));
        }
        for [x, y] in [[1e30, 5.0], [5.0, -1e30], [f32::NAN, 5.0], [f32::INFINITY, f32::INFINITY]] {
            assert_eq!(rows(4, 2, |picture| disc(picture, x, y, 2.0, WHITE)), ["....", "...."]);
        }
    }

    #[test]
    fn a_line_covers_what_is_within_its_radius_of_any_of_its_points() {
        for ([[x1, y1], [x2, y2]], radius) in [
            // Level, upright, a point, steep, flat, from outside, and across a corner.
            ([[3.0, 6.0], [12.0, 6.0]], 1.0),
            ([[12.0, 6.3], [3.0, 6.3]], 2.5),
            ([[5.5, 2.0], [5.5, 9.0]], 1.5),
            ([[8.0, 6.0], [8.0, 6.0]], 2.0),
            ([[4.0, 1.0], [6.0, 11.0]], 0.5),
            ([[1.0, 3.0], [14.0, 8.0]], 0.75),
            ([[-20.0, 5.0], [30.0, 9.0]], 1.0),
            ([[-3.0, 2.0], [3.0, -4.0]], 2.0),
            ([[-1.0, 15.0], [-1.0, -5.0]], 2.0),
        ] {
            let mut picture = RgbImage::new(16, 12);
            line(&mut picture, [[x1 as f32, y1 as f32], [x2 as f32, y2 as f32]], radius as f32, WHITE, 1.0);
            covers(&picture, &format!("{x1} {y1} {x2} {y2} {radius}"), |x, y| {
                let (dx, dy): (f64, f64) = (x2 - x1, y2 - y1);
                let length = dx * dx + dy * dy;
                let part = if length > 0.0 { ((x - x1) * dx + (y - y1) * dy) / length } else { 0.0 }.clamp(0.0, 1.0);
                radius + 0.5 - (x - x1 - part * dx).hypot(y - y1 - part * dy)
            });
        }
        let mut half = RgbImage::new(16, 12);
        line(&mut half, [[3.0, 6.0], [12.0, 6.0]], 2.0, WHITE, 0.4);
        assert_eq!(*half.get_pixel(8, 6), Rgb([102; 3]));
    }

    #[test]
    fn a_line_is_clipped_along_itself() {
        // An image of 10x8, grown by 2 on every side.
        let clip = |ends| clipped(ends, 2.0, 10.0, 8.0);
        for (ends, wanted) in [
            ([[1.0, 2.0], [9.0, 7.0]], Some([[1.0, 2.0], [9.0, 7.0]])),
            ([[-2.0, -2.0], [12.0, 10.0]], Some([[-2.0, -2.0], [12.0, 10.0]])),
            // Halfway from -6 to 2; a quarter of the way from 16 back to 0.
            ([[-6.0, 0.0], [2.0, 4.0]], Some([[-2.0, 2.0], [2.0, 4.0]])),
            ([[2.0, 4.0], [-6.0, 0.0]], Some([[2.0, 4.0], [-2.0, 2.0]])),
            ([[16.0, 0.0], [0.0, 8.0]], Some([[12.0, 2.0], [0.0, 8.0]])),
            ([[4.0, -6.0], [8.0, 2.0]], Some([[6.0, -2.0], [8.0, 2.0]])),
            ([[4.0, 14.0], [8.0, 6.0]], Some([[6.0, 10.0], [8.0, 6.0]])),
            // Both ends are outside.
            ([[-16.0, 4.0], [24.0, 4.0]], Some([[-2.0, 4.0], [12.0, 4.0]])),
            // On one side, and past a corner.
            ([[-5.0, 1.0], [-3.0, 6.0]], None),
            ([[13.0, 1.0], [15.0, 6.0]], None),
            ([[1.0, -9.0], [6.0, -3.0]], None),
            ([[1.0, 11.0], [6.0, 12.0]], None),
            ([[-8.0, 1.0], [1.0, -8.0]], None),
            ([[f64::NAN, 1.0], [1.0, 2.0]], None),
            ([[1.0, 1.0], [f64::INFINITY, 2.0]], None),
        ] {
            assert_eq!(clip(ends), wanted, "{ends:?}");
        }
    }
}
