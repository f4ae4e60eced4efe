//! Rectangles, discs, lines and polygons on an RGB picture. Parts outside the picture are not drawn.

use image::{Rgb, RgbImage};

use super::palette::Color;

/// A rectangle of whole pixels: includes left and top, excludes right and bottom. May reach outside a picture.
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

/// Fills the pixels whose centres are inside of an odd number of `rings`, each x, y, x, y, ... in pixels. Costs the height of
/// each edge, and the filled pixels.
pub fn fill_rings(picture: &mut RgbImage, rings: &[Vec<f32>], color: Color, coverage: f32) {
    let (width, height) = (picture.width() as f32, picture.height() as f32);
    // Row and column of each crossing of an edge and a row's middle.
    let mut crossings: Vec<(u32, f32)> = Vec::new();
    for ring in rings {
        let corners = ring.as_chunks::<2>().0;
        for (from, to) in corners.iter().zip(corners.iter().cycle().skip(1)) {
            let ([x1, y1], [x2, y2]) = if from[1] <= to[1] { (*from, *to) } else { (*to, *from) };
            let slope = (x2 - x1) / (y2 - y1);
            // A middle at the upper end counts, one at the lower end does not, so that each corner counts once.
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
    // A centre that is far away may be beyond what an i32 can hold.
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
    // How far a line outside the picture reaches into it.
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
        // Where the part of the line that is within reach of this row begins and ends.
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

/// Returns the part of a line that lies in a picture grown by `reach`, as Cohen and Sutherland clip: an end outside moves to the
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
