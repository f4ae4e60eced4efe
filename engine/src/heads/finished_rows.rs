//! Checks, frame by frame, whether model-selected rows are consistent with the card.
//!
//! One exporter's rows have the class where another's have the score, and a trial on a test image may find no rows. So every
//! frame is checked. A row that contradicts the card is an error, because all other rows are misread as well.
//!
//! The GPU's filter keeps such rows with the class `visiond_kernels::filter::ODD`, so that both see the same.

use visiond_kernels::filter::Record;

use super::misfit::Misfit;
use super::outputs::classes_text;
use super::raw_numbers::BEYOND;
use super::rows::class_of;
use super::spec::{Background, BoxFormat, Column};

/// The greatest score, with the rounding of f16.
const MOST_SCORE: f32 = 1.001;

/// How far a class may be from a whole number. The GPU's filter uses the same value.
const WHOLE: f32 = 0.01;
/// The same distance below the next whole number.
const NEXT: f32 = 0.99;

/// Numbers from here on are not classes: f32 cannot represent every integer. The GPU's filter uses the same value.
const MOST_CLASS: f32 = 16_777_216.0;

/// How far a box may end before it begins, as a fraction of the input's side: more than f16's rounding.
const ROUNDING: f32 = 1.0 / 256.0;

/// The key of a row that contradicts the card.
pub(super) const KEY: &str = "head.columns";

/// One row, read according to the card.
#[derive(Debug, Clone, Copy)]
pub(super) struct FinishedRow {
    pub(super) score: f32,
    /// The class as the model wrote it.
    pub(super) label: f32,
    /// Left, top, right, bottom in pixels of the input.
    pub(super) corners: [f32; 4],
}

impl From<&Record> for FinishedRow {
    fn from(record: &Record) -> Self {
        Self { score: record.score, label: record.label, corners: record.box_in_input }
    }
}

/// The expectations that rows are checked against.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowCheck {
    pub(super) score_threshold: f32,
    pub(super) background: Background,
    /// The number of named classes; 0 if unknown.
    pub(super) class_count: usize,
    pub(super) input_size: (u32, u32),
}

/// The fault of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RowFault {
    Score,
    Class,
    /// A class beyond the card's names, counted without the background.
    Unnamed(u32),
    Box,
}

impl RowCheck {
    /// Returns the fault of a row; unused rows, whose score is 0 or less, may hold any box.
    #[inline]
    pub(super) fn fault(&self, row: FinishedRow) -> Option<RowFault> {
        let FinishedRow { score, label, corners } = row;
        if score.is_nan() {
            return Some(RowFault::Score);
        }
        if !is_whole(label) {
            return Some(RowFault::Class);
        }
        if score < self.score_threshold || score <= 0.0 {
            return None;
        }
        if !(-0.5..MOST_CLASS).contains(&label) {
            return Some(RowFault::Class);
        }
        let class = class_of(label.round() as u32, self.background, self.class_count)?;
        if score > MOST_SCORE {
            return Some(RowFault::Score);
        }
        if self.class_count > 0 && class as usize >= self.class_count {
            return Some(RowFault::Unnamed(class));
        }
        let [x1, y1, x2, y2] = corners;
        let (width, height) = (self.input_size.0 as f32, self.input_size.1 as f32);
        let is_box = x2 - x1 >= -ROUNDING * width && y2 - y1 >= -ROUNDING * height;
        // The comparisons are false for NaN, but not for infinity.
        (!is_box || !corners.iter().all(|corner| corner.is_finite())).then_some(RowFault::Box)
    }

    /// Returns the first faulty row. A row is its score, its label, and the input of `corners`, which returns its box.
    ///
    /// It runs on every frame, so a single branch ends most rows.
    #[inline]
    pub(super) fn first_fault<R>(
        &self,
        rows: impl Iterator<Item = (f32, f32, R)>,
        corners: impl Fn(R) -> [f32; 4],
    ) -> Option<(usize, FinishedRow, RowFault)> {
        rows.enumerate().find_map(|(index, (score, label, numbers))| {
            // Both are false for NaN, and neither waits for the other.
            if (score < self.score_threshold) & is_surely_whole(label) {
                return None;
            }
            let row = FinishedRow { score, label, corners: corners(numbers) };
            Some((index, row, self.fault(row)?))
        })
    }

    /// Returns the first faulty row among those that the GPU's filter found.
    pub(super) fn fault_of_records(&self, records: &[Record]) -> Option<(usize, FinishedRow, RowFault)> {
        let faults = records.iter().filter_map(|record| {
            let row = FinishedRow::from(record);
            Some((record.row as usize, row, self.fault(row)?))
        });
        faults.min_by_key(|(index, ..)| *index)
    }

    /// Returns the error for a faulty row. `remedy` is the correction if its numbers are in a different order.
    pub(super) fn misfit(
        &self,
        output: &str,
        (index, row, fault): (usize, FinishedRow, RowFault),
        remedy: String,
    ) -> Misfit {
        let FinishedRow { score, label, corners: [x1, y1, x2, y2] } = row;
        let read = format!("class {label}, score {score} and the box {x1:.1}, {y1:.1}, {x2:.1}, {y2:.1}");
        let (of_row, remedy) = match fault {
            RowFault::Score => ("a score is from 0 to 1", remedy),
            RowFault::Class => ("a class is a whole number from 0 on", remedy),
            RowFault::Box => ("a box is finite and ends after it begins", remedy),
            // This many distinct values cannot be classes.
            RowFault::Unnamed(class) if class >= 10_000 => (UNNAMED, remedy),
            RowFault::Unnamed(class) => {
                let names = classes_text(class as usize + 1);
                (UNNAMED, format!("{remedy}, or name at least {names} under [classes], from class 0 on"))
            }
        };
        let problem = format!("row {index} of `{output}` gives {read}: {of_row}");
        Misfit { of_row: Some(of_row), ..Misfit::at(KEY, problem, remedy) }
    }
}

/// Whether a label is a whole number; NaN, which is a fault of a used row only, counts as one. The GPU's filter computes the same.
#[inline]
fn is_whole(label: f32) -> bool {
    /// From here on, f32 has no fractions; below, a number fits into an i32, whose conversion is faster than `trunc`.
    const NO_FRACTIONS: f32 = 8_388_608.0;
    let off = (label - label as i32 as f32).abs();
    let between = off > WHOLE && off < NEXT;
    !between || label.abs() >= NO_FRACTIONS
}

/// Whether a label is a whole number beyond doubt, at half the cost of [`is_whole`]: false for NaN, and for some from 2^22 on.
#[inline]
fn is_surely_whole(label: f32) -> bool {
    /// 1.5 * 2^23: adding this to a non-negative number leaves no bits for fractions, so the sum is rounded to a whole
    /// number.
    const TO_WHOLE: f32 = 12_582_912.0;
    let label = label.abs();
    (label - ((label + TO_WHOLE) - TO_WHOLE)).abs() <= WHOLE
}

/// The fault of a class without a name.
const UNNAMED: &str = "the card names fewer classes";

/// The position of each number in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowColumns {
    /// The four numbers of the format.
    pub(super) box_at: [usize; 4],
    pub(super) format: BoxFormat,
    pub(super) score: usize,
    pub(super) class: usize,
    /// The minimum number of columns.
    pub(super) width: usize,
}

/// Box, score, class.
pub(super) const BOX_SCORE_CLASS: RowColumns =
    RowColumns { box_at: [0, 1, 2, 3], format: BoxFormat::Xyxy, score: 4, class: 5, width: 6 };
/// Frame of the batch, box, class, score.
pub(super) const BATCH_BOX_CLASS_SCORE: RowColumns =
    RowColumns { box_at: [1, 2, 3, 4], format: BoxFormat::Xyxy, score: 6, class: 5, width: 7 };

/// The orders of public exports that a card need not state: Ultralytics; YOLOv7.
const USUAL_ORDERS: [&[Column]; 2] = {
    use Column::{Batch, Class, Score, X1, X2, Y1, Y2};
    [&[X1, Y1, X2, Y2, Score, Class], &[Batch, X1, Y1, X2, Y2, Class, Score]]
};

/// The other orders of public exports: PaddleDetection; YOLO-NAS flat; PINTO_model_zoo, two kinds; RT-DETR of Ultralytics from
/// 8.4.47 on.
const OTHER_ORDERS: [&[Column]; 6] = {
    use Column::{Batch, CenterX, CenterY, Class, Height, Score, Width, X1, X2, Y1, Y2};
    [
        &[Class, Score, X1, Y1, X2, Y2],
        &[X1, Y1, X2, Y2, Class, Score],
        &[Batch, X1, Y1, X2, Y2, Score, Class],
        &[Batch, Class, Score, X1, Y1, X2, Y2],
        &[Batch, Class, X1, Y1, X2, Y2, Score],
        &[CenterX, CenterY, Width, Height, Score, Class],
    ]
};

impl RowColumns {
    /// Returns the positions of `columns`; `None` if one of the numbers is missing.
    pub(super) fn of(columns: &[Column]) -> Option<Self> {
        let at = |wanted: Column| columns.iter().position(|column| *column == wanted);
        let all = |columns: [Column; 4]| {
            let [a, b, c, d] = columns.map(at);
            Some([a?, b?, c?, d?])
        };
        let (box_at, format) = match all([Column::X1, Column::Y1, Column::X2, Column::Y2]) {
            Some(corners) => (corners, BoxFormat::Xyxy),
            None => (all([Column::CenterX, Column::CenterY, Column::Width, Column::Height])?, BoxFormat::Cxcywh),
        };
        Some(Self { box_at, format, score: at(Column::Score)?, class: at(Column::Class)?, width: columns.len() })
    }

    /// Returns the four numbers of a row's box.
    #[inline]
    pub(super) fn four(&self, row: &[f32]) -> [f32; 4] {
        self.box_at.map(|column| row[column])
    }
}

/// Returns the known orders of rows of `width` numbers.
pub(super) fn orders_of(width: usize) -> impl Iterator<Item = &'static [Column]> {
    USUAL_ORDERS.into_iter().chain(OTHER_ORDERS).filter(move |columns| columns.len() == width)
}

/// Returns an order in a card's notation; `None` for one that it need not state.
pub(super) fn written_order(columns: &[Column]) -> Option<Vec<Column>> {
    (!USUAL_ORDERS.contains(&columns)).then(|| columns.to_vec())
}

/// Returns the correction for rows that contradict the card: their order, if it is the only known one that fits all of them.
pub(super) fn order_of(
    values: &[f32],
    width: usize,
    corners: impl Fn([f32; 4], BoxFormat) -> [f32; 4],
    check: &RowCheck,
) -> String {
    let (far_x, far_y) = (BEYOND * check.input_size.0 as f32, BEYOND * check.input_size.1 as f32);
    let fits = |columns: &&&[Column]| {
        let Some(places) = RowColumns::of(columns).filter(|places| places.width == width) else { return false };
        let rows = values.chunks_exact(width).map(|row| (row[places.score], row[places.class], row));
        // A score or class that is 0 in all rows fits any order.
        let any = values.chunks_exact(width).any(|row| row[places.score] > 0.0);
        let read = |row: &[f32]| {
            let found = corners(places.four(row), places.format);
            let [x1, y1, x2, y2] = found;
            let (right, bottom) = (check.input_size.0 as f32 + far_x, check.input_size.1 as f32 + far_y);
            // Corners read as sizes are no contradiction by themselves, but such boxes extend beyond the input.
            let is_inside = x1 >= -far_x && y1 >= -far_y && x2 <= right && y2 <= bottom;
            if places.format == BoxFormat::Xyxy || is_inside { found } else { [f32::NAN; 4] }
        };
        any && check.first_fault(rows, read).is_none()
    };
    let fitting: Vec<&[Column]> = OTHER_ORDERS.iter().filter(fits).copied().collect();
    match fitting[..] {
        [columns] => format!("write `columns = {}` under [head]", Column::list(columns)),
        _ => any_order(width),
    }
}

/// Returns the correction for rows whose order is unknown.
pub(super) fn any_order(width: usize) -> String {
    let example = OTHER_ORDERS.iter().find(|columns| columns.len() == width).unwrap_or(&OTHER_ORDERS[0]);
    format!("write the order of the model's numbers as `columns` under [head], such as {}", Column::list(example))
}

/// Whether this number of rows covers every cell of grids with the usual strides, with one or three rows each: then the model
/// has not filtered them.
pub(super) fn are_all_cells(rows: usize, (width, height): (u32, u32)) -> bool {
    let cells = |strides: &[u32]| -> usize {
        strides.iter().map(|&stride| width.div_ceil(stride) as usize * height.div_ceil(stride) as usize).sum()
    };
    let grids: [&[u32]; 3] = [&[8, 16, 32], &[8, 16, 32, 64], &[4, 8, 16, 32]];
    grids.iter().any(|strides| rows > 0 && [1, 3].iter().any(|each| each * cells(strides) == rows))
}

#[cfg(test)]
mod tests;
