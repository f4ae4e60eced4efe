//! The picture that a model sees of a frame: a part of it, turned and mirrored.
//!
//! The order is: crop, then rotation, then flip. No pixel moves: [`FrameView::viewed`](crate::frame::FrameView::viewed) describes
//! the picture, and the preprocess reads the frame accordingly. Its tensor equals that of a frame with these pixels, bit for bit,
//! where a frame of the format can have them: see [`crate::preprocess`]. Results are mapped back by [`View`].

use std::f64::consts::FRAC_PI_2;
use std::fmt;

use crate::oriented::OrientedBox;
use crate::tiling::{MAX_VIEWS, TileGrid, Tiling};

/// One of the eight ways to turn and mirror a picture by whole quarters.
///
/// Column `x` and row `y` of the picture, each counted from the other end if that axis is mirrored, are the frame's column and row,
/// or its row and column if they are transposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Orientation {
    /// Whether rows of the picture are columns of the frame.
    pub transposed: bool,
    /// Whether the picture's columns, and its rows, are counted from the other end.
    pub mirrored: [bool; 2],
}

/// A mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flip {
    /// Left becomes right.
    Horizontal,
    /// Top becomes bottom.
    Vertical,
}

impl Flip {
    /// Returns its name in configurations and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Horizontal => "horizontal",
            Self::Vertical => "vertical",
        }
    }
}

impl Orientation {
    /// Unchanged.
    pub const UPRIGHT: Self = Self { transposed: false, mirrored: [false; 2] };

    /// Returns all eight, [`UPRIGHT`](Self::UPRIGHT) first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|bits| Self { transposed: bits & 4 != 0, mirrored: [bits & 1 != 0, bits & 2 != 0] })
    }

    /// Returns this orientation turned clockwise by this many quarters.
    #[must_use]
    pub fn turned(self, quarters: u32) -> Self {
        (0..quarters % 4).fold(self, |before, _| Self {
            transposed: !before.transposed,
            mirrored: [!before.mirrored[1], before.mirrored[0]],
        })
    }

    /// Returns this orientation mirrored.
    #[must_use]
    pub fn flipped(mut self, flip: Flip) -> Self {
        let axis = match flip {
            Flip::Horizontal => 0,
            Flip::Vertical => 1,
        };
        self.mirrored[axis] = !self.mirrored[axis];
        self
    }

    /// Returns the turn, in degrees clockwise, and the mirror after it that make this orientation; the smallest turn of those possible.
    pub fn turn_and_flip(self) -> (u32, Option<Flip>) {
        let flips = [None, Some(Flip::Horizontal), Some(Flip::Vertical)];
        let all = (0..4).flat_map(|quarters| flips.map(|flip| (quarters, flip)));
        let made = |(quarters, flip): (u32, Option<Flip>)| {
            let turned = Self::UPRIGHT.turned(quarters);
            flip.map_or(turned, |flip| turned.flipped(flip))
        };
        let found = all.into_iter().find(|&way| made(way) == self);
        found.map_or((0, None), |(quarters, flip)| (quarters * 90, flip))
    }

    /// Returns where a point of a frame of this size is in the picture of the whole frame. Points count pixel edges.
    pub fn point_to_picture(self, frame: (f32, f32), point: (f32, f32)) -> (f32, f32) {
        let ((x, y), (width, height)) = (self.size_of(point), self.size_of(frame));
        let along = |position: f32, side: f32, mirrored: bool| if mirrored { side - position } else { position };
        (along(x, width, self.mirrored[0]), along(y, height, self.mirrored[1]))
    }

    /// Returns width and height, swapped if the orientation transposes.
    pub fn size_of<T>(self, (width, height): (T, T)) -> (T, T) {
        if self.transposed { (height, width) } else { (width, height) }
    }
}

/// How a picture lies in its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct View {
    /// Width and height of the whole frame.
    frame: (u32, u32),
    /// The part of the frame that is seen: x, y, width, height.
    crop: [u32; 4],
    orientation: Orientation,
}

impl View {
    /// Returns the view of a whole frame of this size, unchanged.
    pub const fn whole(frame: (u32, u32)) -> Self {
        Self { frame, crop: [0, 0, frame.0, frame.1], orientation: Orientation::UPRIGHT }
    }

    /// Returns the view of a part (x, y, width, height) of a frame, turned and mirrored. Its edges move outwards to even pixels, where
    /// chroma and mosaics begin, but not beyond the frame. `None` if the part is empty or reaches beyond the frame.
    pub fn new(frame: (u32, u32), [x, y, width, height]: [u32; 4], orientation: Orientation) -> Option<Self> {
        let span = |from: u32, length: u32, side: u32| {
            let end = from.checked_add(length).filter(|&end| length > 0 && end <= side)?;
            let first = from & !1;
            Some((first, end.next_multiple_of(2).min(side) - first))
        };
        let ((x, width), (y, height)) = (span(x, width, frame.0)?, span(y, height, frame.1)?);
        Some(Self { frame, crop: [x, y, width, height], orientation })
    }

    /// Returns width and height of the whole frame.
    pub fn frame_size(&self) -> (u32, u32) {
        self.frame
    }

    /// Returns the part of the frame that is seen: x, y, width, height.
    pub fn crop(&self) -> [u32; 4] {
        self.crop
    }

    /// Returns how that part is turned and mirrored.
    pub fn orientation(&self) -> Orientation {
        self.orientation
    }

    /// Returns width and height of the picture.
    pub fn picture_size(&self) -> (u32, u32) {
        let [_, _, width, height] = self.crop;
        self.orientation.size_of((width, height))
    }

    /// Whether the picture is the frame.
    pub fn is_whole(&self) -> bool {
        *self == Self::whole(self.frame)
    }

    /// Maps a point of the picture to the frame. Points count pixel edges.
    pub fn point_to_frame(&self, x: f64, y: f64) -> (f64, f64) {
        let Orientation { mirrored, .. } = self.orientation;
        let (width, height) = self.picture_size();
        let along = |position: f64, side: u32, mirrored: bool| {
            if mirrored { f64::from(side) - position } else { position }
        };
        let (x, y) = (along(x, width, mirrored[0]), along(y, height, mirrored[1]));
        let (x, y) = self.orientation.size_of((x, y));
        (x + f64::from(self.crop[0]), y + f64::from(self.crop[1]))
    }

    /// Maps a box (x1, y1, x2, y2) of the picture to the frame.
    pub fn box_to_frame(&self, corners: [f32; 4]) -> [f32; 4] {
        let [x1, y1, x2, y2] = corners.map(f64::from);
        let (ax, ay) = self.point_to_frame(x1, y1);
        let (bx, by) = self.point_to_frame(x2, y2);
        [ax.min(bx), ay.min(by), ax.max(bx), ay.max(by)].map(|edge| edge as f32)
    }

    /// Maps an oriented box of the picture to the frame, regularized.
    pub fn oriented_to_frame(&self, turned: &OrientedBox) -> OrientedBox {
        let [x, y] = turned.center.map(f64::from);
        let (x, y) = self.point_to_frame(x, y);
        let Orientation { transposed, mirrored } = self.orientation;
        // Each mirror reverses the angle: a transposition mirrors about the diagonal.
        let mut angle = f64::from(turned.angle);
        if mirrored[0] != mirrored[1] {
            angle = -angle;
        }
        if transposed {
            angle = FRAC_PI_2 - angle;
        }
        OrientedBox { center: [x as f32, y as f32], size: turned.size, angle: angle as f32 }.regularized()
    }

    /// Puts the cells of a grid over the picture, row by row, in the order of a grid over the part of the frame that is seen.
    /// Returns the columns and rows of that.
    pub fn grid_to_frame<T: Clone>(&self, (columns, rows): (usize, usize), cells: &mut [T]) -> (usize, usize) {
        let (columns_out, rows_out) = self.orientation.size_of((columns, rows));
        let Orientation { transposed, mirrored } = self.orientation;
        let before = cells.to_vec();
        for (index, cell) in cells.iter_mut().enumerate() {
            let (x, y) = (index % columns_out, index / columns_out);
            let (x, y) = if transposed { (y, x) } else { (x, y) };
            let x = if mirrored[0] { columns - 1 - x } else { x };
            let y = if mirrored[1] { rows - 1 - y } else { y };
            cell.clone_from(&before[y * columns + x]);
        }
        (columns_out, rows_out)
    }
}

/// The part of a frame that a model sees: x, y, width, height.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Crop {
    /// In pixels.
    Pixels([u32; 4]),
    /// In fractions of the frame's width and height.
    Fractions([f64; 4]),
}

impl Crop {
    /// Returns the same part in fractions of a frame of this size.
    #[must_use]
    pub fn in_fractions(self, (width, height): (u32, u32)) -> Self {
        let Self::Pixels(part) = self else { return self };
        let sides = [width, height, width, height];
        Self::Fractions(std::array::from_fn(|i| f64::from(part[i]) / f64::from(sides[i].max(1))))
    }

    /// Returns the part of a frame of this size, in pixels; edges between two pixels go to the nearest.
    pub fn of(self, (width, height): (u32, u32)) -> [u32; 4] {
        let [x, y, w, h] = match self {
            Self::Pixels(part) => return part,
            Self::Fractions(part) => part,
        };
        let span = |from: f64, length: f64, side: u32| {
            let at = |part: f64| (part * f64::from(side)).round() as u32;
            (at(from), at((from + length).min(1.0)).saturating_sub(at(from)))
        };
        let ((x, width), (y, height)) = (span(x, w, width), span(y, h, height));
        [x, y, width, height]
    }
}

impl fmt::Display for Crop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pixels(part) => write!(f, "{part:?}"),
            Self::Fractions(part) => write!(f, "{part:?}"),
        }
    }
}

/// How to see frames of any size.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ViewSpec {
    /// The part to see; `None` for all of it.
    pub crop: Option<Crop>,
    /// How to turn and mirror that part.
    pub orientation: Orientation,
    /// How to cut the picture into tiles; `None` sees it once, as a whole.
    pub tiling: Option<Tiling>,
}

/// A part that a frame does not have, or too many tiles.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ViewError {
    /// The frame does not have the part.
    #[error(
        "the crop {crop} is empty or reaches beyond the frame of {width}x{height} pixels: correct the camera's `crop`"
    )]
    Crop {
        /// The part.
        crop: Crop,
        /// Width of the frame.
        width: u32,
        /// Height of the frame.
        height: u32,
    },
    /// The frame has more views than [`MAX_VIEWS`].
    #[error(
        "`tiles` cuts {width}x{height} pixels into {columns} columns and {rows} rows, and a frame has at most {} tiles: raise \
         `size`, or lower `overlap`, `columns` or `rows`",
        MAX_VIEWS - 1
    )]
    Tiles {
        /// Width of the picture that is cut.
        width: u32,
        /// Height of the picture that is cut.
        height: u32,
        /// Columns of tiles.
        columns: u32,
        /// Rows of tiles.
        rows: u32,
    },
}

impl ViewSpec {
    /// Returns the view of a frame of this size, without its tiles.
    ///
    /// # Errors
    /// The frame does not have that part.
    pub fn of(&self, frame: (u32, u32)) -> Result<View, ViewError> {
        let crop = self.crop.unwrap_or(Crop::Pixels([0, 0, frame.0, frame.1]));
        let view = View::new(frame, crop.of(frame), self.orientation);
        view.ok_or(ViewError::Crop { crop, width: frame.0, height: frame.1 })
    }

    /// Returns the views of a frame of this size: the whole picture, then its tiles. Allocates nothing.
    ///
    /// # Errors
    /// The frame does not have that part, or there are more than [`MAX_VIEWS`].
    pub fn views(&self, frame: (u32, u32)) -> Result<FrameViews, ViewError> {
        FrameViews::new(self.of(frame)?, self.tiling)
    }
}

/// How a model sees a frame: as a whole first, then tile by tile, row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameViews {
    whole: View,
    grid: TileGrid,
}

impl FrameViews {
    /// Cuts the picture of a view.
    ///
    /// # Errors
    /// There would be more than [`MAX_VIEWS`] views.
    pub fn new(whole: View, tiling: Option<Tiling>) -> Result<Self, ViewError> {
        let (width, height) = whole.picture_size();
        let grid = TileGrid::new((width, height), tiling);
        let (columns, rows) = grid.size();
        if u64::from(columns) * u64::from(rows) >= MAX_VIEWS as u64 {
            return Err(ViewError::Tiles { width, height, columns, rows });
        }
        Ok(Self { whole, grid })
    }

    /// Returns how many views there are, 1 to [`MAX_VIEWS`]. A picture that is no larger than a tile has one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        let (columns, rows) = self.grid.size();
        match (columns * rows) as usize {
            1 => 1,
            tiles => 1 + tiles,
        }
    }

    /// Returns a view by its number, which is below [`Self::len`].
    pub fn get(&self, index: usize) -> View {
        let Some(tile) = (index as u32).checked_sub(1) else { return self.whole };
        let [left, top, width, height] = self.grid.tile(tile);
        let (ax, ay) = self.whole.point_to_frame(f64::from(left), f64::from(top));
        let (bx, by) = self.whole.point_to_frame(f64::from(left + width), f64::from(top + height));
        let part = [ax.min(bx), ay.min(by), (ax - bx).abs(), (ay - by).abs()].map(|pixels| pixels as u32);
        // A tile is inside of the picture, which is inside of the frame.
        View::new(self.whole.frame, part, self.whole.orientation).unwrap_or(self.whole)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::mask::Mask;

    /// The frame's pixel of a pixel of the picture, by turning a list of pixels as numpy does.
    fn turned(size: (usize, usize), quarters: u32, flip: Option<Flip>) -> (Vec<(usize, usize)>, (usize, usize)) {
        let (mut width, mut height) = size;
        let mut pixels: Vec<_> = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).collect();
        for _ in 0..quarters {
            let before = pixels.clone();
            pixels = (0..width)
                .flat_map(|x| (0..height).rev().map(move |y| (x, y)))
                .map(|(x, y)| before[y * width + x])
                .collect();
            (width, height) = (height, width);
        }
        match flip {
            Some(Flip::Horizontal) => pixels.chunks_exact_mut(width).for_each(<[_]>::reverse),
            Some(Flip::Vertical) => {
                let rows: Vec<_> = pixels.chunks_exact(width).rev().flatten().copied().collect();
                pixels = rows;
            }
            None => {}
        }
        (pixels, (width, height))
    }

    #[test]
    fn a_quarter_turns_clockwise_and_a_flip_comes_after() {
        for quarters in 0..4 {
            for flip in [None, Some(Flip::Horizontal), Some(Flip::Vertical)] {
                let orientation = Orientation::UPRIGHT.turned(quarters);
                let orientation = flip.map_or(orientation, |flip| orientation.flipped(flip));
                let view = View::new((5, 3), [0, 0, 5, 3], orientation).unwrap();
                let (pixels, (width, height)) = turned((5, 3), quarters, flip);
                assert_eq!(view.picture_size(), (width as u32, height as u32));
                for (index, &(x, y)) in pixels.iter().enumerate() {
                    let found = view.point_to_frame((index % width) as f64 + 0.5, (index / width) as f64 + 0.5);
                    assert_eq!(found, (x as f64 + 0.5, y as f64 + 0.5), "{quarters} {flip:?}");
                }
            }
        }
    }

    #[test]
    fn a_point_of_the_frame_has_its_place_in_the_picture_and_each_orientation_a_turn_and_a_flip() {
        for orientation in Orientation::all() {
            let view = View::new((640, 480), [0, 0, 640, 480], orientation).unwrap();
            let (x, y) = orientation.point_to_picture((640.0, 480.0), (100.0, 30.0));
            assert_eq!(view.point_to_frame(f64::from(x), f64::from(y)), (100.0, 30.0));
            let (turn, flip) = orientation.turn_and_flip();
            let turned = Orientation::UPRIGHT.turned(turn / 90);
            assert_eq!(flip.map_or(turned, |flip| turned.flipped(flip)), orientation);
        }
        assert_eq!(Orientation::UPRIGHT.turn_and_flip(), (0, None));
        assert_eq!(Orientation::UPRIGHT.flipped(Flip::Vertical).turn_and_flip(), (0, Some(Flip::Vertical)));
        assert_eq!(Orientation::UPRIGHT.turned(3).turn_and_flip(), (270, None));
    }

    #[test]
    fn a_part_begins_at_even_pixels_and_stays_inside() {
        let part = |crop| View::new((101, 50), crop, Orientation::UPRIGHT).map(|view| view.crop());
        assert_eq!(part([3, 5, 10, 6]), Some([2, 4, 12, 8]));
        assert_eq!(part([100, 0, 1, 50]), Some([100, 0, 1, 50]));
        for refused in [[0, 0, 0, 5], [0, 0, 5, 0], [0, 0, 102, 5], [101, 0, 1, 1], [u32::MAX, 0, 2, 2]] {
            assert_eq!(part(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn a_crop_is_in_pixels_or_in_fractions_of_whatever_size_the_frame_has() {
        let of = |crop, frame| ViewSpec { crop: Some(crop), ..ViewSpec::default() }.of(frame).map(|view| view.crop());
        assert_eq!(of(Crop::Fractions([0.25, 0.0, 0.5, 1.0]), (640, 480)), Ok([160, 0, 320, 480]));
        assert_eq!(of(Crop::Fractions([0.25, 0.0, 0.5, 1.0]), (1920, 1080)), Ok([480, 0, 960, 1080]));
        // The same pixels of the size that they were written for.
        for side in 2..500 {
            let half = (side / 2) & !1;
            let part = Crop::Pixels([half, 0, side - half, 4]);
            assert_eq!(of(part.in_fractions((side, 9)), (side, 9)), of(part, (side, 9)));
        }
        assert_eq!(
            of(Crop::Pixels([480, 0, 960, 1080]).in_fractions((1920, 1080)), (1280, 720)),
            Ok([320, 0, 640, 720])
        );
        // The sum is above 1 in binary.
        assert_eq!(of(Crop::Fractions([0.9, 0.7, 0.1, 0.3]), (100, 100)), Ok([90, 70, 10, 30]));
        assert_eq!(of(Crop::Pixels([480, 0, 960, 1080]), (1920, 1080)), Ok([480, 0, 960, 1080]));
        for (crop, frame) in
            [(Crop::Pixels([480, 0, 960, 1080]), (1280, 720)), (Crop::Fractions([0.5, 0.5, 0.001, 0.5]), (64, 64))]
        {
            let error = of(crop, frame).unwrap_err().to_string();
            assert!(error.contains(&format!("frame of {}x{} pixels", frame.0, frame.1)), "{error}");
        }
        assert!(ViewSpec::default().of((7, 5)).unwrap().is_whole());
    }

    fn views() -> impl Strategy<Value = View> {
        (1..90_u32, 1..90_u32, 0.0..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0, 0..8_usize).prop_map(
            |(w, h, x, y, cw, ch, which)| {
                let at = |part: f64, side: u32| ((part * f64::from(side)) as u32).min(side - 1);
                let (x, y) = (at(x, w), at(y, h));
                let crop = [x, y, 1 + at(cw, w - x), 1 + at(ch, h - y)];
                View::new((w, h), crop, Orientation::all().nth(which).unwrap()).unwrap()
            },
        )
    }

    proptest! {
        #[test]
        fn masks_boxes_and_grids_go_where_their_pixels_go(view in views(), seed: u64) {
            let (width, height) = view.picture_size();
            let (left, top) = ((seed % u64::from(width)) as u32, (seed / 97 % u64::from(height)) as u32);
            let (columns, rows) = (width - left, height - top);
            let per_row = columns.div_ceil(32);
            let mut mask = Mask { left, top, width: columns, height: rows, words: vec![0; (per_row * rows) as usize] };
            let is_set = |x: u32, y: u32| !seed.wrapping_mul(u64::from(x * 31 + y * 17 + 1)).is_multiple_of(3);
            let mut wanted = Vec::new();
            for (x, y) in (0..rows).flat_map(|y| (0..columns).map(move |x| (x, y))).filter(|&(x, y)| is_set(x, y)) {
                mask.words[(y * per_row + x / 32) as usize] |= 1 << (x % 32);
                wanted.push(view.point_to_frame(f64::from(left + x) + 0.5, f64::from(top + y) + 0.5));
            }
            let found = mask.in_frame(&view);
            prop_assert_eq!(found.area(), wanted.len() as u64);
            for (x, y) in wanted {
                let (x, y) = (x as u32 - found.left, y as u32 - found.top);
                prop_assert!(found.words[y as usize * found.words_per_row() + x as usize / 32] >> (x % 32) & 1 == 1);
            }
            let corners = [left, top, left + columns, top + rows].map(|edge| edge as f32);
            let inside = [found.left, found.top, found.left + found.width, found.top + found.height];
            prop_assert_eq!(view.box_to_frame(corners), inside.map(|edge| edge as f32));

            let mut cells: Vec<_> = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).collect();
            let (columns, rows) = view.grid_to_frame((width as usize, height as usize), &mut cells);
            prop_assert_eq!([columns as u32, rows as u32], [view.crop()[2], view.crop()[3]]);
            for (index, (x, y)) in cells.into_iter().enumerate() {
                let [left, top, ..] = view.crop();
                let wanted = (left + (index % columns) as u32, top + (index / columns) as u32);
                let found = view.point_to_frame(f64::from(x) + 0.5, f64::from(y) + 0.5);
                prop_assert_eq!(found, (f64::from(wanted.0) + 0.5, f64::from(wanted.1) + 0.5));
            }
        }

        #[test]
        fn an_oriented_box_has_its_corners_where_they_go(
            view in views(), x in 0.0..90.0_f32, y in 0.0..90.0_f32, w in 1.0..40.0_f32, h in 1.0..40.0_f32, angle in -4.0..4.0_f32,
        ) {
            let turned = OrientedBox { center: [x, y], size: [w, h], angle };
            let found = view.oriented_to_frame(&turned);
            prop_assert!((0.0..FRAC_PI_2 as f32 + 1e-6).contains(&found.angle));
            for [x, y] in turned.corners() {
                let (x, y) = view.point_to_frame(f64::from(x), f64::from(y));
                let near = |corner: &[f32; 2]| (f64::from(corner[0]) - x).hypot(f64::from(corner[1]) - y) < 1e-2;
                prop_assert!(found.corners().iter().any(near), "{turned:?} {found:?} {view:?}");
            }
        }
    }
}
