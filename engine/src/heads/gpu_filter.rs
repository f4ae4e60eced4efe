//! Describes heads to the GPU's candidate filter, and turns its list into [`Decoded`].
//!
//! `Decoder::filter` describes exactly the arithmetic of `Decoder::decode`; a test compares the two.

use std::ops::Range;

use visiond_kernels::filter::{
    BoxCode, Choice, Corners, FilterSpec, Filtered, Grid, LabelCode, PointCode, Points, Record, ScoreCode, Table,
    Values,
};
use visiond_kernels::nms::Candidate;

use super::decoded::{Decoded, InputKeypoint};
use super::outputs::{ModelOutputs, OutputShape};
use super::spec::{Activation, BoxFormat, BoxUnit, Keypoints};

/// Returns the last dimensions of an output, if all are known.
pub(super) fn known<const N: usize>(shape: OutputShape) -> Option<[usize; N]> {
    let dims = shape.last::<N>()?;
    dims.iter().all(Option::is_some).then(|| dims.map(Option::unwrap_or_default))
}

/// Returns an output's rows and columns as the filter reads them, and how many there are.
pub(super) fn rows_of(outputs: ModelOutputs<'_>, output: usize) -> Option<(Values, usize, usize)> {
    let [rows, width] = known(outputs.shape(output))?;
    Some((Values::rows(output, rows, width), rows, width))
}

/// Creates a table of only scores and boxes.
pub(super) fn table(rows: usize, scores: Values, boxes: Values) -> Table {
    Table {
        first_row: 0,
        rows,
        scores,
        objectness: None,
        labels: None,
        valid_rows: None,
        boxes,
        offsets: None,
        points: None,
        grid: Grid::default(),
        anchor: [0.0; 2],
        centre_scale: 1.0,
    }
}

/// Returns how scores are computed; `Checked` sets the floor for the threshold.
pub(super) fn score_code(activation: Activation) -> ScoreCode {
    match activation {
        Activation::None => ScoreCode::Plain,
        Activation::Sigmoid => ScoreCode::Sigmoid { floor: f32::NEG_INFINITY },
        Activation::Softmax => ScoreCode::Softmax,
    }
}

/// Returns the factors for numbers of a unit.
pub(super) fn scale_of(unit: BoxUnit, input_size: (u32, u32)) -> [f32; 2] {
    match unit {
        BoxUnit::Pixels => [1.0, 1.0],
        BoxUnit::Normalized => [input_size.0 as f32, input_size.1 as f32],
    }
}

/// Describes `corners` of rows.rs.
pub(super) fn plain_box(format: BoxFormat, unit: BoxUnit, input_size: (u32, u32)) -> BoxCode {
    let corners = match format {
        BoxFormat::Xyxy => Corners::Xyxy,
        BoxFormat::Yxyx => Corners::Yxyx,
        BoxFormat::Cxcywh => Corners::Cxcywh,
        BoxFormat::Xywh => Corners::Xywh,
    };
    BoxCode::Plain { corners, scale: scale_of(unit, input_size) }
}

/// Describes points that need no decoding.
pub(super) fn plain_points(keypoints: Keypoints, unit: BoxUnit, input_size: (u32, u32)) -> Points {
    let code = PointCode::Plain { scale: scale_of(unit, input_size), scored: keypoints.scored };
    Points { count: keypoints.count, code }
}

/// Describes the angle of an oriented box.
pub(super) const ANGLE: Points = Points { count: 1, code: PointCode::Angle };

/// Creates a spec for boxes with their best class and plain scores. The families change the parts that differ, and `Checked`
/// sets size and threshold.
pub(super) fn best_of(tables: Vec<Table>, classes: Range<usize>, boxes: BoxCode) -> FilterSpec {
    FilterSpec {
        input_size: (0, 0),
        score_threshold: 0.0,
        tables,
        score_columns: classes.end,
        classes,
        scores: ScoreCode::Plain,
        choice: Choice::BestRaw,
        labels: LabelCode::Plain,
        boxes,
        points: None,
        keep_best: None,
    }
}

impl Decoded {
    /// Copies the filter's candidates in the order in which `decode` finds them.
    pub(super) fn take(&mut self, found: &Filtered<'_>) {
        self.clear();
        self.lost = found.lost;
        let Filtered { records, points, values_per_record, points_scored, are_angles, keep_best, .. } = *found;
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        // The filter's blocks write in the order in which they finish.
        let place = |(index, record): (usize, &Record)| (record.row, record.class_id, index as u32);
        order.extend(records.iter().enumerate().map(place));
        order.sort_unstable();
        for &(_, _, index) in &order {
            let index = index as usize;
            let Record { box_in_input, score, class_id, row, .. } = records[index];
            self.candidates.push(Candidate { box_in_input, score, class_id, row });
            let numbers = &points[index * values_per_record..(index + 1) * values_per_record];
            if are_angles {
                self.push_angle(row as usize, numbers[0]);
            } else if values_per_record > 0 {
                let each = numbers.chunks_exact(if points_scored { 3 } else { 2 });
                let point = |p: &[f32]| InputKeypoint { x: p[0], y: p[1], score: p.get(2).copied() };
                self.push_keypoints(row as usize, each.map(point));
            }
        }
        self.order = order;
        if let Some(best) = keep_best.filter(|&best| self.candidates.len() > best) {
            self.candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
            self.candidates.truncate(best);
        }
    }
}
