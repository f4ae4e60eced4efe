//! MoveNet: bodies of COCO's 17 points.
//!
//! Reads one of
//! - `[1, 1, 17, 3]` (single pose): y, x and score of each point;
//! - `[1, N, 56]` (multi pose, N is 6): the same for 17 points, then top, left, bottom and right of the box, and the person's
//!   score.
//!
//! All numbers but the scores are fractions of the input's height and width. Single pose has neither a box nor a person
//! score: the score is the mean of the points' scores above 0.1, as in the project's code, and the box surrounds these
//! points. (The project's code uses the box around all points, including guesses, and follows one person from frame to frame
//! with a crop; here the model sees the whole frame.)
//!
//! Source: the model pages `google/movenet` of TensorFlow Hub; tensorflow/examples `lite/examples/pose_estimation/raspberry_pi`:
//! `data.py` (`person_from_keypoints_with_scores`), `ml/movenet_multipose.py` (`_postprocess`).

use visiond_kernels::filter::FilterSpec;

use super::decoded::{Decoded, InputKeypoint};
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, classes_text, may_be};
use super::raw_numbers::{Numbers, not_probabilities};
use super::rows::{corners, four};
use super::spec::{BoxFormat, BoxUnit};

/// COCO's points.
pub(super) const POINTS: usize = 17;

/// Numbers of a row of multi pose: 17 points, a box and a score.
pub(super) const ROW: usize = 3 * POINTS + 5;

/// Points with at most this score do not count: `keypoint_score_threshold`.
const POINT_SCORE: f32 = 0.1;

pub(super) struct Movenet {
    /// The number of named classes, or 0.
    pub(super) class_count: usize,
}

pub(super) struct MovenetLayout {
    output: usize,
    /// Whether rows have a box and a score of their own.
    has_boxes: bool,
}

/// Returns the box around the points that count, and the mean of their scores; `None` if none counts.
fn person(points: &[[f32; 3]]) -> Option<(f32, [f32; 4])> {
    let (mut sum, mut count) = (0.0_f32, 0_u8);
    let mut around = [f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    for &[y, x, score] in points.iter().filter(|[.., score]| *score > POINT_SCORE) {
        (sum, count) = (sum + score, count + 1);
        around = [around[0].min(y), around[1].min(x), around[2].max(y), around[3].max(x)];
    }
    (count > 0).then(|| (sum / f32::from(count), around))
}

impl Decoder for Movenet {
    type Layout = MovenetLayout;

    fn reads(&self) -> &'static str {
        "one output [1, 1, 17, 3] or [1, N, 56]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<MovenetLayout, Misfit> {
        if self.class_count > 1 {
            return Err(format!("the card names {} instead of one", classes_text(self.class_count)).into());
        }
        outputs.table(|output, [rows, width]| match width {
            _ if may_be(width, ROW) => Ok(MovenetLayout { output, has_boxes: true }),
            Some(3) if may_be(rows, POINTS) => Ok(MovenetLayout { output, has_boxes: false }),
            _ => Err("is neither 17 points of 3 numbers nor rows of 56".to_owned()),
        })
    }

    fn decode(&mut self, layout: &MovenetLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        let (width, height) = (input.input_size.0 as f32, input.input_size.1 as f32);
        let row_length = if layout.has_boxes { ROW } else { 3 * POINTS };
        for (index, row) in values.chunks_exact(row_length).enumerate() {
            let (points, _) = row[..3 * POINTS].as_chunks::<3>();
            let own = || Some((row[ROW - 1], four(row, 3 * POINTS)?));
            let Some((score, around)) = (if layout.has_boxes { own() } else { person(points) }) else { continue };
            if score.is_nan() || score < input.score_threshold {
                continue;
            }
            let bounds = corners(around, BoxFormat::Yxyx, BoxUnit::Normalized, input.input_size);
            if out.push(index, 0, score, bounds) {
                let point =
                    |&[y, x, score]: &[f32; 3]| InputKeypoint { x: x * width, y: y * height, score: Some(score) };
                out.push_keypoints(index, points.iter().map(point));
            }
        }
    }

    fn doubt(&self, layout: &MovenetLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let values = input.outputs[layout.output].tensor.to_f32();
        let rows = values.chunks(if layout.has_boxes { ROW } else { 3 * POINTS });
        let scores = Numbers::of(rows.flat_map(|row| row[..row.len().min(3 * POINTS)].iter().skip(2).step_by(3)));
        not_probabilities(scores, FAMILY, "correct `family` under [head]")
    }

    /// Not worth a filter: the outputs are smaller than a list of candidates.
    fn filter(&self, _: &MovenetLayout, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }

    fn suppression(&self, _layout: &MovenetLayout) -> Suppression {
        Suppression::None
    }

    fn keypoints(&self, _layout: &MovenetLayout) -> Option<usize> {
        Some(POINTS)
    }
}
