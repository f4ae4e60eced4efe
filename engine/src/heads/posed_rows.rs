//! Rows that a model has selected, with their keypoints in a separate output: RTMO and YOLOX-Pose as MMDeploy exports them.
//!
//! - `[1, N, 5]`: left, top, right, bottom, score;
//! - `[1, N, points, 3]`: x, y and score of each point, or `[1, N, points, 2]`.
//!
//! All objects are of the first class.
//!
//! Source: open-mmlab/mmdeploy `codebase/mmpose/models/heads/rtmo_head.py`, `yolox_pose_head.py`.

use super::decoded::{Decoded, InputKeypoint};
use super::end_to_end::OutputEncoding;
use super::gpu_filter::scale_of;
use super::head::HeadInput;
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, OutputShape, Roles, may_agree, may_be};
use super::raw_numbers::{Numbers, not_probabilities, wrong_unit};
use super::rows::{corners, four};
use super::spec::{BoxFormat, Keypoints};

/// The outputs of such a model.
pub(super) struct PosedRows {
    pub(super) boxes: usize,
    points: usize,
    keypoints: Keypoints,
}

/// The numbers of a row: a box and its score.
const ROW: usize = 5;

/// The correction for rows in a different order.
pub(super) const CORRECT_FAMILY: &str = "correct `family` under [head]";

/// Returns N, the number of points, and the numbers per point of an output `[1, N, points, 2 or 3]`.
fn points_of(shape: OutputShape) -> Option<[Option<usize>; 3]> {
    shape.last::<3>().filter(|_| !shape.has_rank(3))
}

/// Returns the keypoints of outputs that look like these in any order: named boxes or detections, and keypoints.
pub(super) fn keypoints_in(outputs: ModelOutputs<'_>) -> Option<Keypoints> {
    let shapes = || (0..outputs.count()).map(|index| outputs.shape(index));
    let [_, count, each] = shapes().find_map(points_of)?;
    let (count, each) = (count?, each?);
    let keypoints = Keypoints { count, scored: each == 3 };
    let is_found = (2..=3).contains(&each) && PosedRows::find(outputs, Some(keypoints)).ok()?.is_some();
    is_found.then_some(keypoints)
}

impl PosedRows {
    /// Finds the two outputs; `None` if they do not look like these.
    pub(super) fn find(outputs: ModelOutputs<'_>, keypoints: Option<Keypoints>) -> Result<Option<Self>, Misfit> {
        let Some(keypoints) = keypoints.filter(|_| outputs.count() == 2) else { return Ok(None) };
        let each = keypoints.values() / keypoints.count.max(1);
        let are_points = |shape: OutputShape| {
            points_of(shape).is_some_and(|[_, count, width]| may_be(count, keypoints.count) && may_be(width, each))
        };
        let are_boxes = |shape: OutputShape| shape.last::<2>().is_some_and(|[_, width]| may_be(width, ROW));
        let mut roles = Roles::new(outputs);
        // Planes of masks may have any shape, so a name or the whole shape must indicate points.
        let points = roles.by_name("keypoints", None, &["keypoint", "kpt", "pose"], are_points)?;
        let is_sure = |shape: OutputShape| {
            points_of(shape).is_some_and(|[_, count, width]| count == Some(keypoints.count) && width == Some(each))
        };
        let points = points.or_else(|| roles.any(|index| is_sure(outputs.shape(index))));
        let Some(points) = points else { return Ok(None) };
        let Some(boxes) = roles.any(|index| are_boxes(outputs.shape(index))) else { return Ok(None) };
        let [rows, _] = outputs.rows_and_columns(boxes);
        let [of_points, ..] = points_of(outputs.shape(points)).unwrap_or_default();
        if !may_agree(rows, of_points) {
            let [boxes, points] = [boxes, points].map(|index| outputs.name(index));
            return Err(format!("`{boxes}` and `{points}` have different numbers of rows").into());
        }
        Ok(Some(Self { boxes, points, keypoints }))
    }

    /// Returns the number of keypoints of each row.
    pub(super) fn count(&self) -> usize {
        self.keypoints.count
    }

    /// Adds the rows that pass the threshold.
    pub(super) fn decode(&self, encoding: OutputEncoding, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[self.boxes].tensor.to_f32();
        let points = input.outputs[self.points].tensor.to_f32();
        let [kx, ky] = scale_of(encoding.unit, input.input_size);
        let (count, all) = (self.keypoints.count.max(1), self.keypoints.values());
        let rows = values.chunks_exact(ROW).zip(points.chunks_exact(all.max(1)));
        for (index, (row, points)) in rows.enumerate() {
            let score = row[ROW - 1];
            let Some(numbers) = four(row, 0).filter(|_| score >= input.score_threshold) else { continue };
            if out.push(index, 0, score, corners(numbers, BoxFormat::Xyxy, encoding.unit, input.input_size)) {
                let each = points.chunks_exact(all / count);
                let point = |p: &[f32]| InputKeypoint { x: p[0] * kx, y: p[1] * ky, score: p.get(2).copied() };
                out.push_keypoints(index, each.map(point));
            }
        }
    }

    /// Returns the first row that contradicts the card.
    pub(super) fn contradiction(&self, encoding: OutputEncoding, input: &HeadInput<'_>) -> Option<Misfit> {
        let values = input.outputs[self.boxes].tensor.to_f32();
        let check = encoding.check(input.score_threshold, input.input_size);
        let rows = values.chunks_exact(ROW).filter_map(|row| Some((row[ROW - 1], 0.0, four(row, 0)?)));
        let corners = |numbers| corners(numbers, BoxFormat::Xyxy, encoding.unit, input.input_size);
        let fault = check.first_fault(rows, corners)?;
        Some(check.misfit(input.outputs[self.boxes].name, fault, CORRECT_FAMILY.to_owned()))
    }

    /// Returns a doubt about the numbers of a run; `unit_key` is the card's key for the unit.
    pub(super) fn doubt(
        &self,
        encoding: OutputEncoding,
        unit_key: &'static str,
        input: &HeadInput<'_>,
    ) -> Option<Misfit> {
        let values = input.outputs[self.boxes].tensor.to_f32();
        let scores = Numbers::of(values.iter().skip(ROW - 1).step_by(ROW));
        if scores.most() > 1.5 {
            return not_probabilities(scores, FAMILY, CORRECT_FAMILY);
        }
        let used = values.chunks_exact(ROW).filter(|row| row[ROW - 1] > 0.0);
        let boxes: Vec<[f32; 4]> = used.filter_map(|row| four(row, 0)).collect();
        wrong_unit(&boxes, encoding.unit, unit_key)
    }
}
