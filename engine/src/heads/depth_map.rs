//! Reduces a depth map to a grid over the frame.
//!
//! A cell of the grid covers the map's pixels whose centres lie in it; a cell too small for any has the pixel at its centre.
//! Padding belongs to no cell, and the part that a crop cuts off to no pixel. Each pixel is read once unless cells are
//! smaller than pixels, and the median is found by selection, so the time is proportional to the map and the grid. After the
//! first frame nothing is allocated.

use std::ops::Range;

use visiond_kernels::placement::Mapping;

use super::frame_values::DepthGrid;
use super::spec::{DepthSpec, Nearer};

/// Reduces depth maps; its memory is reused.
#[derive(Debug, Default)]
pub(super) struct DepthReducer {
    /// The finite numbers of one cell.
    cell: Vec<f32>,
    /// The pixels of each column of the grid.
    columns: Vec<Range<usize>>,
}

/// How far a pixel's centre may be before the edge of a cell and still count as on it, in pixels of the map.
const ROUNDING: f64 = 1e-6;

impl DepthReducer {
    /// Writes the grid of a map over the frame to `out`. `values` has as many numbers as `size` (width, height) has pixels.
    pub(super) fn reduce(
        &mut self,
        values: &[f32],
        size: [usize; 2],
        spec: &DepthSpec,
        mapping: &Mapping,
        out: &mut DepthGrid,
    ) {
        let Self { cell, columns } = self;
        let ([width, height], grid) = (size, spec.grid);
        out.clear();
        (out.columns, out.rows) = (grid[0] as usize, grid[1] as usize);
        let (source, input) = (mapping.source(), mapping.input());
        // Edges of cells in pixels of the map.
        let per_input = [width as f64 / f64::from(input.0), height as f64 / f64::from(input.1)];
        let at = |axis: usize, part: u32| {
            let source = f64::from([source.0, source.1][axis]) * f64::from(part) / f64::from(grid[axis]);
            let (x, y) = mapping.to_input(source, source);
            [x, y][axis] * per_input[axis]
        };
        let span = |axis: usize, index: u32, pixels: usize| pixels_of(at(axis, index), at(axis, index + 1), pixels);
        columns.clear();
        columns.extend((0..grid[0]).map(|column| span(0, column, width)));
        for row in 0..grid[1] {
            let lines = span(1, row, height);
            for column in columns.iter() {
                cell.clear();
                for line in lines.clone() {
                    let line = &values[line * width..][column.clone()];
                    cell.extend(line.iter().filter(|depth| depth.is_finite()));
                }
                out.nearest.push(match spec.nearer {
                    Nearer::Smaller => cell.iter().copied().reduce(f32::min),
                    Nearer::Larger => cell.iter().copied().reduce(f32::max),
                });
                out.median.push(median(cell));
            }
        }
    }
}

/// Returns the pixels whose centres lie from `start` to below `end`; the one in the middle if there are none; none outside
/// the map.
fn pixels_of(start: f64, end: f64, pixels: usize) -> Range<usize> {
    let first = |edge: f64| ((edge - 0.5 - ROUNDING).ceil().max(0.0) as usize).min(pixels);
    let (from, to) = (first(start), first(end));
    let middle = ((start + end) / 2.0).floor();
    if from >= to && middle >= 0.0 && middle < pixels as f64 {
        let middle = middle as usize;
        return middle..middle + 1;
    }
    from..to.max(from)
}

/// Returns the median, or the mean of the middle two for an even number; changes the order.
fn median(numbers: &mut [f32]) -> Option<f32> {
    let middle = numbers.len() / 2;
    if numbers.is_empty() {
        return None;
    }
    let even = numbers.len().is_multiple_of(2);
    let (below, &mut upper, _) = numbers.select_nth_unstable_by(middle, f32::total_cmp);
    let lower = below.iter().copied().reduce(f32::max).filter(|_| even).unwrap_or(upper);
    Some(((f64::from(lower) + f64::from(upper)) / 2.0) as f32)
}

#[cfg(test)]
mod tests {
    use visiond_kernels::placement::Fit;

    use super::*;

    fn reduced(values: &[f32], size: [usize; 2], grid: [u32; 2], nearer: Nearer, mapping: &Mapping) -> DepthGrid {
        let mut out = DepthGrid::default();
        DepthReducer::default().reduce(values, size, &DepthSpec { output: None, grid, nearer }, mapping, &mut out);
        out
    }

    fn some(numbers: &[f32]) -> Vec<Option<f32>> {
        numbers.iter().copied().map(Some).collect()
    }

    #[test]
    fn each_cell_has_its_nearest_and_its_median() {
        let mapping = Mapping::new(Fit::Stretch, (640, 480), (4, 2));
        let values = [1.0, 2.0, 30.0, 50.0, 3.0, 5.0, 40.0, 90.0];
        let grid = reduced(&values, [4, 2], [2, 1], Nearer::Smaller, &mapping);
        assert_eq!((grid.columns, grid.rows), (2, 1));
        assert_eq!((grid.nearest, grid.median), (some(&[1.0, 30.0]), some(&[2.5, 45.0])));
        let grid = reduced(&values, [4, 2], [1, 2], Nearer::Larger, &mapping);
        assert_eq!((grid.nearest, grid.median), (some(&[50.0, 90.0]), some(&[16.0, 22.5])));
    }

    #[test]
    fn padding_is_in_no_cell() {
        // A frame twice as wide as it is high: a quarter of the input's height is padding at the top, and a quarter at the
        // bottom.
        let mapping = Mapping::new(Fit::Letterbox, (200, 100), (8, 8));
        let values: Vec<f32> =
            (0..8).flat_map(|line| [if (2..6).contains(&line) { line as f32 } else { -99.0 }; 8]).collect();
        let grid = reduced(&values, [8, 8], [1, 2], Nearer::Smaller, &mapping);
        assert_eq!((grid.nearest, grid.median), (some(&[2.0, 4.0]), some(&[2.5, 4.5])));
        // A map of half the input's size.
        let values: Vec<f32> =
            (0..4).flat_map(|line| [if line == 1 || line == 2 { line as f32 } else { -99.0 }; 4]).collect();
        assert_eq!(reduced(&values, [4, 4], [1, 2], Nearer::Smaller, &mapping).nearest, some(&[1.0, 2.0]));
    }

    #[test]
    fn what_a_crop_cuts_off_has_no_depth() {
        // The middle half of the width.
        let mapping = Mapping::new(Fit::Crop { fraction: 1.0 }, (200, 100), (4, 4));
        let grid = reduced(&[7.0; 16], [4, 4], [4, 1], Nearer::Smaller, &mapping);
        assert_eq!(grid.nearest, [None, Some(7.0), Some(7.0), None]);
        assert_eq!(grid.median, grid.nearest);
    }

    #[test]
    fn a_cell_without_a_pixel_centre_has_the_pixel_at_its_own() {
        let mapping = Mapping::new(Fit::Stretch, (80, 10), (2, 2));
        let grid = reduced(&[1.0, 2.0, 1.0, 2.0], [2, 2], [8, 1], Nearer::Smaller, &mapping);
        assert_eq!(grid.median, some(&[1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]));
    }

    #[test]
    fn numbers_that_are_not_finite_are_left_out() {
        let mapping = Mapping::new(Fit::Stretch, (4, 1), (4, 2));
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let values = [nan, 3.0, nan, nan, inf, 1.0, -inf, inf];
        let grid = reduced(&values, [4, 2], [2, 1], Nearer::Larger, &mapping);
        assert_eq!((grid.nearest, grid.median), (vec![Some(3.0), None], vec![Some(2.0), None]));
        let huge = reduced(&[f32::MAX; 8], [4, 2], [1, 1], Nearer::Larger, &mapping);
        assert_eq!((huge.nearest, huge.median), (some(&[f32::MAX]), some(&[f32::MAX])));
    }

    #[test]
    fn the_median_is_that_of_the_sorted_numbers() {
        for count in 1..40_usize {
            let mut numbers: Vec<f32> = (0..count).map(|index| (index as f32 * 0.618_034).fract()).collect();
            let found = median(&mut numbers.clone());
            numbers.sort_by(f32::total_cmp);
            let middle = (numbers[(count - 1) / 2] + numbers[count / 2]) / 2.0;
            assert!(found.is_some_and(|found| (found - middle).abs() < 1e-6), "{count}");
        }
        assert_eq!(median(&mut []), None);
    }
}
