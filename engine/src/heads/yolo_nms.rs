//! YOLO with NMS inside: YOLOv10, YOLO26, exports with `nms=True`, YOLOv7 `--end2end`, EfficientNMS.
//!
//! Reads one of
//! - `[1, N, 6 (+ keypoints) (+ masks)]`: left, top, right, bottom, score, class (Ultralytics end-to-end and `nms=True`);
//!   then `x, y` or `x, y, score` per keypoint, or mask coefficients for the prototypes in a second output
//!   ([`super::masks`]). Unused rows have score 0.
//! - `[1, N, 7]` of oriented models: centre x, centre y, width, height, score, class, angle in radians.
//! - `[N, 7]`: frame of the batch, left, top, right, bottom, class, score (YOLOv7 `--end2end` for ONNX Runtime).
//! - four outputs: number of detections `[1, 1]`, boxes `[1, N, 4]`, scores `[1, N]`, classes `[1, N]` (TensorRT's
//!   EfficientNMS, YOLOv7 and YOLOv8 exports with it); the same three without the number; two with boxes and scores in `[1,
//!   N, 5]` (MMDeploy, OpenVINO's training extensions).
//! - rows in any other order, which the card states as `columns`: PaddleDetection, PINTO_model_zoo, YOLO-NAS; `[1, 1, N, 7]`
//!   of DetectionOutput (Caffe, OpenVINO, TAO); with centre and size instead of corners, Ultralytics' RT-DETR.
//! - boxes with scores, and the keypoints of each in a second output ([`super::posed_rows`]): RTMO.
//!
//! Boxes are in pixels of the input unless the card sets `unit = "normalized"`. It needs no NMS unless the card sets `nms =
//! true`: then the model has only chosen the best class of each cell (DeepStream-Yolo, Qualcomm AI Hub).
//!
//! Source: ultralytics `utils/nms.py` (the branch for end-to-end models) and `engine/exporter.py` (`NMSModel`);
//! WongKinYiu/yolov7 `models/experimental.py`; TensorRT `plugin/efficientNMSPlugin/README.md`.

use visiond_kernels::filter::{FilterSpec, Record, Table};
use visiond_kernels::mask::MaskSpec;
use visiond_kernels::nms::Overlap;

use super::decoded::{Decoded, InputKeypoint};
use super::end_to_end::{EndToEndOutputs, OutputEncoding, ROLES, not_all_cells};
use super::finished_rows::{BATCH_BOX_CLASS_SCORE, BOX_SCORE_CLASS, KEY, RowColumns, any_order, order_of};
use super::gpu_filter::{ANGLE, best_of, plain_box, plain_points, rows_of, scale_of, table};
use super::head::{Decoder, HeadInput, Suppression};
use super::masks;
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, may_be};
use super::posed_rows::{CORRECT_FAMILY, PosedRows};
use super::raw_numbers::{Numbers, not_probabilities, not_radians, wrong_labels, wrong_unit};
use super::rows::{class_number, class_of, corners};
use super::spec::{Background, BoxFormat, BoxUnit, BoxesSpec, Keypoints, RowsSpec};

pub(super) struct YoloNms {
    pub(super) keypoints: Option<Keypoints>,
    pub(super) unit: BoxUnit,
    /// The number of named classes, or 0.
    pub(super) class_count: usize,
    /// Whether boxes are centre and size, rotated by the number after the class.
    pub(super) oriented: bool,
    pub(super) rows: RowsSpec,
}

pub(super) enum YoloNmsLayout {
    Rows {
        output: usize,
        width: usize,
        at: RowColumns,
        /// Whether keypoints, an angle or mask coefficients may follow.
        with_rest: bool,
    },
    EndToEnd(EndToEndOutputs),
    Posed(PosedRows),
}

/// The correction for oriented boxes whose rows contradict the card: there is only one order.
const ORIENTED: &str = "remove `oriented` under [head], or correct `family`";

/// The correction for rows whose duplicates were not removed.
const NMS: &str = "write `nms = true` under [head]";

/// The number of mask coefficients of Ultralytics' models, which an export may keep without the masks.
const MASKS: usize = 32;

impl YoloNms {
    /// Checks the numbers after a row's class, and after keypoints if the card has them, if no other output can hold masks.
    fn check_keypoints(&self, name: &str, width: usize, rest: usize) -> Result<(), Misfit> {
        let points = width - 6;
        let counted = |each: usize| points.is_multiple_of(each).then_some((points / each, each));
        // A point and its score, or at least two points.
        let Some((count, each)) = counted(3).or(counted(2)).filter(|_| points >= 4 && rest != MASKS) else {
            return Ok(());
        };
        let problem = match self.keypoints {
            None => {
                format!("`{name}` has {points} numbers after the class of each row, which the card does not mention")
            }
            Some(k) => format!(
                "`{name}` has {points} numbers after the class of each row, but the card's {} keypoints have {}",
                k.count,
                k.values()
            ),
        };
        Err(Misfit::at("head.keypoints", problem, format!("write `keypoints = [{count}, {each}]` under [head]")))
    }

    /// Finds the rows, or the outputs with boxes, scores and classes.
    fn find(&self, outputs: ModelOutputs<'_>) -> Result<YoloNmsLayout, Misfit> {
        if self.oriented {
            return outputs.table(|output, [_, width]| match width {
                Some(width) if width != 7 => Err(format!("has rows of {width} numbers, not 7")),
                _ => Ok(YoloNmsLayout::Rows { output, width: 7, at: BOX_SCORE_CLASS, with_rest: true }),
            });
        }
        if let Some(at) = self.rows.columns.as_deref().and_then(RowColumns::of) {
            let named = |[_, width]: [Option<usize>; 2]| may_be(width, at.width);
            return outputs
                .table(|output, dims| match named(dims) {
                    true => Ok(YoloNmsLayout::Rows { output, width: at.width, at, with_rest: false }),
                    false => {
                        let width = dims[1].unwrap_or_default();
                        Err(format!("has rows of {width} numbers, but the card's `columns` are {}", at.width))
                    }
                })
                .map_err(|misfit| {
                    Misfit::at(KEY, misfit.problem, "write a name for each number of a row as `columns`")
                });
        }
        if let Some(found) = PosedRows::find(outputs, self.keypoints)? {
            return Ok(YoloNmsLayout::Posed(found));
        }
        let RowsSpec { boxes, scores, labels, .. } = self.rows.clone();
        if let Some(found) =
            EndToEndOutputs::find(outputs, &BoxesSpec { boxes, scores, labels, ..BoxesSpec::default() })?
        {
            return Ok(YoloNmsLayout::EndToEnd(found));
        }
        let wanted = 6 + self.keypoints.map_or(0, |k| k.values());
        let found = outputs.table(|output, [rows, width]| match width {
            Some(7) if self.keypoints.is_none() => {
                Ok(YoloNmsLayout::Rows { output, width: 7, at: BATCH_BOX_CLASS_SCORE, with_rest: false })
            }
            Some(width) if width < wanted => Err(format!("has rows of {width} numbers, but needs {wanted} or more")),
            // A single row without a batch dimension.
            Some(_) if rows == Some(1) && outputs.is_vector(output) => {
                Err("is one row of numbers, like a classifier's scores".to_owned())
            }
            // One of several, such as labels beside boxes.
            None if outputs.count() > 1 && outputs.is_vector(output) => {
                Err("leaves open how many numbers a row has".to_owned())
            }
            width => {
                Ok(YoloNmsLayout::Rows { output, width: width.unwrap_or(0), at: BOX_SCORE_CLASS, with_rest: true })
            }
        })?;
        if let YoloNmsLayout::Rows { output, width, with_rest: true, .. } = found
            && let Some(rest) = width.checked_sub(wanted).filter(|rest| *rest > 0 && outputs.count() == 1)
        {
            self.check_keypoints(outputs.name(output), width, rest)?;
        }
        Ok(found)
    }

    /// Centre and size for oriented models, `OBB` in ultralytics `nn/modules/head.py` and `NMSModel` in `engine/exporter.py`;
    /// for other models the format in `columns`, or corners.
    fn format(&self) -> BoxFormat {
        let of_columns = || self.rows.columns.as_deref().and_then(RowColumns::of).map(|at| at.format);
        if self.oriented { BoxFormat::Cxcywh } else { of_columns().unwrap_or(BoxFormat::Xyxy) }
    }

    fn encoding(&self) -> OutputEncoding {
        OutputEncoding {
            format: self.format(),
            unit: self.unit,
            background: self.rows.background,
            class_count: self.class_count,
        }
    }
}

impl Decoder for YoloNms {
    type Layout = YoloNmsLayout;

    fn reads(&self) -> &'static str {
        if self.oriented {
            return "one output [1, N, 7] of centre, size, score, class and angle";
        }
        if self.rows.columns.is_some() {
            return "one output [1, N, columns] or [N, columns]";
        }
        "one output [1, N, 6 + 2 or 3 a keypoint] or [N, 7], or several: count [1, 1] or none, boxes [1, N, 4], scores [1, N] and \
         classes [1, N]; or boxes with scores [1, N, 5] and keypoints [1, N, points, 2 or 3]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<YoloNmsLayout, Misfit> {
        let found = self.find(outputs)?;
        match &found {
            _ if self.rows.nms => {}
            YoloNmsLayout::EndToEnd(found) => found.check_chosen(outputs, input_size, NMS)?,
            &YoloNmsLayout::Rows { output, .. } | &YoloNmsLayout::Posed(PosedRows { boxes: output, .. }) => {
                let [rows, _] = outputs.rows_and_columns(output);
                not_all_cells(outputs.name(output), rows, input_size, NMS)?;
            }
        }
        Ok(found)
    }

    fn decode(&mut self, layout: &YoloNmsLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let (output, width, at, with_rest) = match *layout {
            YoloNmsLayout::Rows { output, width, at, with_rest } => (output, width, at, with_rest),
            YoloNmsLayout::EndToEnd(ref found) => return found.decode(self.encoding(), input, out),
            YoloNmsLayout::Posed(ref found) => return found.decode(self.encoding(), input, out),
        };
        let width = width.max(at.width);
        let values = input.outputs[output].tensor.to_f32();
        let (format, unit, size) = (self.format(), self.unit, input.input_size);
        let score_threshold = input.score_threshold;
        let [kx, ky] = scale_of(unit, size);
        for (index, row) in values.chunks_exact(width).enumerate() {
            let score = row[at.score];
            // False for NaN.
            let passes = score >= score_threshold;
            if !passes {
                continue;
            }
            let class = class_number(row[at.class]).and_then(|n| class_of(n, self.rows.background, self.class_count));
            let Some(class) = class else { continue };
            let added = out.push(index, class, score, corners(at.four(row), format, unit, size)) && with_rest;
            if added && self.oriented {
                out.push_angle(index, row[6]);
            } else if let (true, Some(points)) = (added, self.keypoints) {
                let each = row[6..6 + points.values()].chunks_exact(points.values() / points.count.max(1));
                out.push_keypoints(
                    index,
                    each.map(|p| InputKeypoint { x: p[0] * kx, y: p[1] * ky, score: p.get(2).copied() }),
                );
            }
        }
    }

    fn contradiction(&self, layout: &YoloNmsLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let (output, width, at) = match *layout {
            YoloNmsLayout::Rows { output, width, at, .. } => (output, width, at),
            YoloNmsLayout::EndToEnd(ref found) => return found.contradiction(self.encoding(), input),
            YoloNmsLayout::Posed(ref found) => return found.contradiction(self.encoding(), input),
        };
        let width = width.max(at.width);
        let values = input.outputs[output].tensor.to_f32();
        let check = self.encoding().check(input.score_threshold, input.input_size);
        let format = self.format();
        let corners = |numbers: [f32; 4], format| corners(numbers, format, self.unit, input.input_size);
        let rows = values.chunks_exact(width).map(|row| (row[at.score], row[at.class], row));
        let fault = check.first_fault(rows, |row| corners(at.four(row), format))?;
        let remedy = if self.oriented { ORIENTED.to_owned() } else { order_of(&values, width, corners, &check) };
        Some(check.misfit(input.outputs[output].name, fault, remedy))
    }

    fn contradiction_of_records(
        &self,
        layout: &YoloNmsLayout,
        outputs: ModelOutputs<'_>,
        (records, score_threshold, input_size): (&[Record], f32, (u32, u32)),
    ) -> Option<Misfit> {
        let check = self.encoding().check(score_threshold, input_size);
        let fault = check.fault_of_records(records)?;
        let (output, remedy) = match layout {
            &YoloNmsLayout::Rows { output, .. } if self.oriented => (output, ORIENTED.to_owned()),
            &YoloNmsLayout::Rows { output, width, at, .. } => (output, any_order(width.max(at.width))),
            YoloNmsLayout::EndToEnd(found) => (found.boxes, ROLES.to_owned()),
            // Without a filter, it has no records.
            YoloNmsLayout::Posed(found) => (found.boxes, CORRECT_FAMILY.to_owned()),
        };
        Some(check.misfit(outputs.name(output), fault, remedy))
    }

    fn doubt(&self, layout: &YoloNmsLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        const UNIT: &str = "head.unit";
        let (output, width, at) = match *layout {
            YoloNmsLayout::Rows { output, width, at, .. } => (output, width, at),
            YoloNmsLayout::EndToEnd(ref found) => return found.doubt(self.encoding(), UNIT, input),
            YoloNmsLayout::Posed(ref found) => return found.doubt(self.encoding(), UNIT, input),
        };
        let width = width.max(at.width);
        let values = input.outputs[output].tensor.to_f32();
        let rows = || values.chunks_exact(width);
        let scores = Numbers::of(rows().map(|row| &row[at.score]));
        // Unused rows may have the score -1.
        if scores.most() > 1.5 {
            return not_probabilities(scores, FAMILY, "correct `family` under [head]");
        }
        // Unused rows may hold any boxes, but their scores are not above 0.
        let used = rows().filter(|row| row[at.score] > 0.0);
        let boxes: Vec<[f32; 4]> = used.map(|row| at.four(row)).collect();
        let found = rows().map(|row| (row[at.score], row[at.class]));
        let first = u32::from(self.rows.background == Background::First);
        wrong_labels(found, first, self.class_count, input.score_threshold)
            .or_else(|| wrong_unit(&boxes, self.unit, UNIT))
            .or_else(|| not_radians(rows().filter(|row| self.oriented && row[at.score] > 0.0).map(|row| &row[6])))
    }

    fn masks(&self, layout: &YoloNmsLayout, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Option<MaskSpec> {
        let &YoloNmsLayout::Rows { output, with_rest: true, .. } = layout else { return None };
        let (values, _, width) = rows_of(outputs, output)?;
        let first = 6 + self.keypoints.map_or(0, |k| k.values());
        masks::of_prototypes(outputs, width.checked_sub(first)?, values.from_column(first))
    }

    fn filter(&self, layout: &YoloNmsLayout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec> {
        let (output, at, with_rest) = match *layout {
            YoloNmsLayout::Rows { output, at, with_rest, .. } => (output, at, with_rest),
            YoloNmsLayout::EndToEnd(ref found) => return found.filter(self.encoding(), outputs, input_size),
            // The filter detects faulty rows by their labels, and these have none. There are few, so they are decoded on the
            // CPU.
            YoloNmsLayout::Posed(_) => return None,
        };
        // The filter reads a box's four numbers as adjacent ones.
        let first = at.box_at[0].min(at.box_at[1]);
        let format = match at.box_at.map(|column| column.wrapping_sub(first)) {
            [0, 1, 2, 3] => self.format(),
            [1, 0, 3, 2] if self.format() == BoxFormat::Xyxy => BoxFormat::Yxyx,
            _ => return None,
        };
        let (values, rows, _) = rows_of(outputs, output)?;
        let labels = Some(values.from_column(at.class));
        let points = match self.keypoints {
            _ if self.oriented => Some(ANGLE),
            keypoints => keypoints.filter(|_| with_rest).map(|k| plain_points(k, self.unit, input_size)),
        };
        let scores = values.from_column(at.score);
        let table = Table {
            labels,
            points: points.map(|_| values.from_column(6)),
            ..table(rows, scores, values.from_column(first))
        };
        let labels = self.encoding().label_code();
        Some(FilterSpec { points, labels, ..best_of(vec![table], 0..1, plain_box(format, self.unit, input_size)) })
    }

    fn suppression(&self, _layout: &YoloNmsLayout) -> Suppression {
        match (self.rows.nms, self.oriented) {
            (false, _) => Suppression::None,
            (true, false) => Suppression::Best(Overlap::Points),
            (true, true) => Suppression::Oriented,
        }
    }

    fn keypoints(&self, layout: &YoloNmsLayout) -> Option<usize> {
        Some(match layout {
            YoloNmsLayout::Rows { with_rest: true, .. } => self.keypoints.map_or(0, |points| points.count),
            YoloNmsLayout::Posed(found) => found.count(),
            YoloNmsLayout::Rows { .. } | YoloNmsLayout::EndToEnd(_) => 0,
        })
    }
}
