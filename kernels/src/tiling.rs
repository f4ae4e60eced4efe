//! Cuts the picture that a model sees into tiles, for objects that are too small in the whole.
//!
//! The tiles are of the picture after the crop, the rotation and the flip, so columns are those that the model sees. All tiles of a
//! picture have the same size, and the last column and row move inwards instead of reaching beyond the picture, as in `get_slice_bboxes`
//! of SAHI's `slicing.py`. Sizes and steps are even, because chroma and mosaics begin at even pixels.

/// The most views of a frame: its tiles, and the whole.
pub const MAX_VIEWS: usize = 64;

/// How to cut a picture into tiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tiling {
    /// As many squares as cover the picture.
    Size {
        /// Width and height of a tile in pixels, at least 1. An odd number is raised by 1.
        size: u32,
        /// The part of a tile that its neighbour also has, 0 to below 1.
        overlap: f64,
    },
    /// A number of tiles.
    Grid {
        /// Tiles side by side, at least 1.
        columns: u32,
        /// Tiles on top of each other, at least 1.
        rows: u32,
        /// The part of a tile that its neighbour also has, 0 to below 1.
        overlap: f64,
    },
}

/// One direction of a grid of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TileAxis {
    /// The picture's side in pixels.
    side: u32,
    /// The side of a tile.
    tile: u32,
    /// From the start of a tile to that of the next.
    step: u32,
    /// The number of tiles.
    count: u32,
}

impl TileAxis {
    /// Returns the axis with a single tile.
    const fn whole(side: u32) -> Self {
        Self { side, tile: side, step: side, count: 1 }
    }

    /// Covers a side by tiles of one size. A tile that lacks a single pixel is the whole: a view moves an odd edge outwards.
    fn of_size(side: u32, size: u32, overlap: f64) -> Self {
        let tile = size.min(side).next_multiple_of(2);
        if tile + 1 >= side {
            return Self::whole(side);
        }
        let shared = (f64::from(tile) * overlap) as u32;
        let step = ((tile - shared) & !1).max(2);
        Self { side, tile, step, count: (side - tile).div_ceil(step) + 1 }
    }

    /// Cuts a side into this many tiles, or fewer if it is that short.
    fn of_count(side: u32, count: u32, overlap: f64) -> Self {
        let tiles = f64::from(count.max(1));
        let tile = (f64::from(side) / (tiles - (tiles - 1.0) * overlap)).ceil() as u32;
        let tile = tile.next_multiple_of(2);
        if count <= 1 || tile + 1 >= side {
            return Self::whole(side);
        }
        let step = (side - tile).div_ceil(count - 1).next_multiple_of(2);
        Self { side, tile, step, count: (side - tile).div_ceil(step) + 1 }
    }

    /// Returns where a tile starts.
    fn start(&self, index: u32) -> u32 {
        (index * self.step).min(self.side - self.tile)
    }
}

/// The tiles of a picture, row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileGrid {
    columns: TileAxis,
    rows: TileAxis,
}

impl TileGrid {
    /// Cuts a picture of this width and height; without a tiling, it is its only tile.
    pub fn new((width, height): (u32, u32), tiling: Option<Tiling>) -> Self {
        let axis = |side: u32, is_row: bool| match tiling {
            None => TileAxis::whole(side),
            Some(Tiling::Size { size, overlap }) => TileAxis::of_size(side, size, overlap),
            Some(Tiling::Grid { columns, rows, overlap }) => {
                TileAxis::of_count(side, if is_row { rows } else { columns }, overlap)
            }
        };
        Self { columns: axis(width, false), rows: axis(height, true) }
    }

    /// Returns the numbers of columns and rows.
    pub fn size(&self) -> (u32, u32) {
        (self.columns.count, self.rows.count)
    }

    /// Returns left, top, width and height of a tile.
    pub fn tile(&self, index: u32) -> [u32; 4] {
        let (column, row) = (index % self.columns.count, index / self.columns.count);
        [self.columns.start(column), self.rows.start(row), self.columns.tile, self.rows.tile]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::view::{Crop, Flip, FrameViews, Orientation, View, ViewSpec};

    fn views(frame: (u32, u32), tiling: Tiling) -> FrameViews {
        FrameViews::new(View::whole(frame), Some(tiling)).unwrap()
    }

    /// Left, top, width and height of each view.
    fn parts(views: &FrameViews) -> Vec<[u32; 4]> {
        (0..views.len()).map(|index| views.get(index).crop()).collect()
    }

    #[test]
    fn tiles_of_a_size_are_those_of_sahi_after_the_whole_frame() {
        // sahi.slicing.get_slice_bboxes(720, 1280, slice_height=640, slice_width=640), with an overlap of 0.2.
        let found = parts(&views((1280, 720), Tiling::Size { size: 640, overlap: 0.2 }));
        let sahi = [[0, 0], [512, 0], [640, 0], [0, 80], [512, 80], [640, 80]].map(|[x, y]| [x, y, 640, 640]);
        assert_eq!(found[0], [0, 0, 1280, 720]);
        assert_eq!(found[1..], sahi);
        assert_eq!(views((3840, 2160), Tiling::Size { size: 640, overlap: 0.2 }).len(), 1 + 8 * 4);
        // A tile that reaches the edge exactly is the last.
        assert_eq!(views((1152, 640), Tiling::Size { size: 640, overlap: 0.2 }).len(), 3);
        // A second tile of a picture that is one pixel wider would be all of it.
        assert_eq!(views((641, 640), Tiling::Size { size: 640, overlap: 0.2 }).len(), 1);
        assert_eq!(views((640, 640), Tiling::Size { size: u32::MAX, overlap: 0.2 }).len(), 1);
        assert_eq!(views((643, 640), Tiling::Size { size: 640, overlap: 0.2 }).len(), 3);
    }

    #[test]
    fn a_grid_has_its_columns_and_rows_with_the_overlap() {
        let found = parts(&views((1920, 1080), Tiling::Grid { columns: 3, rows: 2, overlap: 0.2 }));
        assert_eq!(found.len(), 7);
        assert_eq!(found[1..4], [[0, 0, 740, 600], [590, 0, 740, 600], [1180, 0, 740, 600]]);
        assert_eq!(found[4..], [[0, 480, 740, 600], [590, 480, 740, 600], [1180, 480, 740, 600]]);
    }

    #[test]
    fn a_picture_no_larger_than_a_tile_is_seen_once() {
        assert_eq!(parts(&views((640, 480), Tiling::Size { size: 640, overlap: 0.2 })), [[0, 0, 640, 480]]);
        assert_eq!(parts(&views((640, 480), Tiling::Grid { columns: 1, rows: 1, overlap: 0.2 })), [[0, 0, 640, 480]]);
        let flat = parts(&views((1280, 480), Tiling::Size { size: 640, overlap: 0.0 }));
        assert_eq!(flat, [[0, 0, 1280, 480], [0, 0, 640, 480], [640, 0, 640, 480]]);
    }

    #[test]
    fn more_than_64_views_are_refused_with_their_number() {
        let tiling = Some(Tiling::Size { size: 416, overlap: 0.2 });
        let error = ViewSpec { tiling, ..ViewSpec::default() }.views((3840, 2160)).unwrap_err().to_string();
        assert!(error.contains("3840x2160 pixels into 12 columns and 7 rows") && error.contains("63 tiles"), "{error}");
        let most = Tiling::Grid { columns: 9, rows: 7, overlap: 0.0 };
        assert_eq!(views((3840, 2160), most).len(), MAX_VIEWS);
    }

    #[test]
    fn tiles_are_inside_the_crop_and_turned_as_a_whole() {
        let orientation = Orientation::UPRIGHT.turned(1).flipped(Flip::Vertical);
        let tiling = Some(Tiling::Grid { columns: 1, rows: 2, overlap: 0.0 });
        let crop = Some(Crop::Pixels([100, 50, 800, 400]));
        let views = ViewSpec { crop, orientation, tiling }.views((1920, 1080)).unwrap();
        // The picture is 400 wide and 800 high; turned clockwise, the frame's left is above, and mirrored below.
        assert_eq!(views.get(1).crop(), [500, 50, 400, 400]);
        assert_eq!(views.get(2).crop(), [100, 50, 400, 400]);
        assert!((0..3).all(|index| views.get(index).orientation() == orientation));
    }

    fn tilings() -> impl Strategy<Value = Tiling> {
        prop_oneof![
            (1..700_u32, 0.0..0.9).prop_map(|(size, overlap)| Tiling::Size { size, overlap }),
            (1..9_u32, 1..8_u32, 0.0..0.9).prop_map(|(columns, rows, overlap)| Tiling::Grid { columns, rows, overlap }),
        ]
    }

    proptest! {
        #[test]
        fn tiles_cover_the_picture_and_overlap_as_asked(
            width in 1..2000_u32, height in 1..2000_u32, tiling in tilings(), which in 0..8_usize,
        ) {
            let orientation = Orientation::all().nth(which).unwrap();
            let whole = View::new((width, height), [0, 0, width, height], orientation).unwrap();
            let Ok(views) = FrameViews::new(whole, Some(tiling)) else { return Ok(()) };
            prop_assert!((1..=MAX_VIEWS).contains(&views.len()));
            prop_assert_eq!(views.get(0), whole);
            let (picture_width, picture_height) = whole.picture_size();
            let grid = TileGrid::new(whole.picture_size(), Some(tiling));
            for (axis, side) in [(grid.columns, picture_width), (grid.rows, picture_height)] {
                let starts: Vec<_> = (0..axis.count).map(|index| axis.start(index)).collect();
                prop_assert_eq!(starts[0], 0);
                prop_assert_eq!(starts[starts.len() - 1] + axis.tile, side);
                let (Tiling::Size { overlap, .. } | Tiling::Grid { overlap, .. }) = tiling;
                for pair in starts.windows(2) {
                    prop_assert!(pair[0] < pair[1]);
                    let shared = f64::from((pair[0] + axis.tile).saturating_sub(pair[1]));
                    // A whole number of pixels, and even ones.
                    prop_assert!(shared + 3.0 >= overlap * f64::from(axis.tile), "{axis:?}");
                }
            }
            if let Tiling::Grid { columns, rows, .. } = tiling {
                prop_assert!(grid.columns.count <= columns && grid.rows.count <= rows);
            }
            // As each pixel of the frame is in a tile, no tile was replaced by the whole.
            let tiles: Vec<_> = (1..views.len()).map(|index| views.get(index).crop()).collect();
            for (x, y) in [(0, 0), (width - 1, 0), (width / 2, height / 3), (width - 1, height - 1)] {
                let has = |&[left, top, w, h]: &[u32; 4]| (left..left + w).contains(&x) && (top..top + h).contains(&y);
                prop_assert!(tiles.is_empty() || tiles.iter().any(has));
            }
            prop_assert!(tiles.iter().all(|tile| *tile != whole.crop() || views.len() == 2));
        }
    }
}
