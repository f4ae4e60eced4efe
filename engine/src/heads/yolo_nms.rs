//! YOLO with NMS inside: YOLOv10, YOLO26, exports with `nms=True`, YOLOv7 `--end2end`, EfficientNMS.
//!
//! Reads one of
//! - `[1, N, 6 (+ keypoints) (+ masks)]`: left, top, right, bottom, score, class (Ultralytics end-to-end and `nms=True`);
//!   then `x, y` or `x, y, score` per keypoint, or mask coefficients for the prototypes in a second output
//!   ([`super::masks`]). Unused rows have score 0.
//! - `[1, N, 7]` of oriented models: centre x, centre y, width, height, score, class, angle in radians.
//! - `[N, 7]`: frame of the batch, left, top, right, bottom, class, score (YOLOv7 `--end2end` for ONNX Runtime).
//! - four outputs: number of detections `[1, 1]`, boxes `[1, N, 4]`, scores `[1, N]`, classes `[1, N]` (TensorRT's
//!   EfficientNMS, YOLOv7 and YOLOv8 exports with it).
//!
//! Boxes are in pixels of the input unless the card sets `unit = "normalized"`. Needs no NMS.
//!
//! Source: ultralytics `utils/nms.py` (the branch for end-to-end models) and `engine/exporter.py` (`NMSModel`);
//! WongKinYiu/yolov7 `models/experimental.py`; TensorRT `plugin/efficientNMSPlugin/README.md`.

use visiond_kernels::filter::{FilterSpec, Table};
use visiond_kernels::mask::MaskSpec;

use super::decoded::{Decoded, InputKeypoint};
use super::end_to_end::{EndToEndOutputs, OutputEncoding};
use super::gpu_filter::{ANGLE, best_of, plain_box, plain_points, rows_of, scale_of, table};
use super::head::{Decoder, HeadInput, Suppression};
use super::masks;
use super::misfit::{FAMILY, Misfit};
use super::outputs::ModelOutputs;
use super::raw_numbers::{Numbers, not_probabilities, not_radians, wrong_labels, wrong_unit};
use super::rows::{class_number, corners, four};
use super::spec::{Background, BoxFormat, BoxUnit, BoxesSpec, Keypoints};

pub(super) struct YoloNms {
    pub(super) keypoints: Option<Keypoints>,
    pub(super) unit: BoxUnit,
    /// The number of named classes, or 0.
    pub(super) class_count: usize,
    /// Whether boxes are centre and size, and turned by the number after the class.
    pub(super) oriented: bool,
}

pub(super) enum YoloNmsLayout {
    Rows {
        output: usize,
        width: usize,
    },
    /// The columns of YOLOv7's rows.
    BatchRows {
        output: usize,
    },
    EndToEnd(EndToEndOutputs),
}

/// The mask coefficients of Ultralytics' models, which an export may keep without the masks.
const MASKS: usize = 32;

impl YoloNms {
    /// Checks what follows a row's class, and keypoints if the card has them, where no other output is there for masks.
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

    /// The rows of oriented models: `OBB` in ultralytics `nn/modules/head.py`, `NMSModel` in `engine/exporter.py`.
    fn format(&self) -> BoxFormat {
        if self.oriented { BoxFormat::Cxcywh } else { BoxFormat::Xyxy }
    }

    fn encoding(&self) -> OutputEncoding {
        OutputEncoding {
            format: self.format(),
            unit: self.unit,
            background: Background::None,
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
        "one output [1, N, 6 + 2 or 3 a keypoint] or [N, 7], or four: count [1, 1], boxes [1, N, 4], scores [1, N] and classes [1, N]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<YoloNmsLayout, Misfit> {
        if self.oriented {
            return outputs.table(|output, [_, width]| match width {
                Some(width) if width != 7 => Err(format!("has rows of {width} numbers, not 7")),
                _ => Ok(YoloNmsLayout::Rows { output, width: 7 }),
            });
        }
        if let Some(found) = EndToEndOutputs::find(outputs, &BoxesSpec::default())? {
            return Ok(YoloNmsLayout::EndToEnd(found));
        }
        let wanted = 6 + self.keypoints.map_or(0, |k| k.values());
        let found = outputs.table(|output, [rows, width]| match width {
            Some(7) if self.keypoints.is_none() => Ok(YoloNmsLayout::BatchRows { output }),
            Some(width) if width < wanted => Err(format!("has rows of {width} numbers, but needs {wanted} or more")),
            // A batch of one row without a dimension for it.
            Some(_) if rows == Some(1) && outputs.is_vector(output) => {
                Err("is one row of numbers, as a classifier's scores are".to_owned())
            }
            width => Ok(YoloNmsLayout::Rows { output, width: width.unwrap_or(0) }),
        })?;
        if let YoloNmsLayout::Rows { output, width } = found
            && let Some(rest) = width.checked_sub(wanted).filter(|rest| *rest > 0 && outputs.count() == 1)
        {
            self.check_keypoints(outputs.name(output), width, rest)?;
        }
        Ok(found)
    }

    fn decode(&mut self, layout: &YoloNmsLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let (output, width, box_at, score_at, class_at) = match layout {
            YoloNmsLayout::EndToEnd(found) => return found.decode(self.encoding(), input, out),
            &YoloNmsLayout::Rows { output, width } => (output, width.max(6), 0, 4, 5),
            &YoloNmsLayout::BatchRows { output } => (output, 7, 1, 6, 5),
        };
        let values = input.outputs[output].tensor.to_f32();
        let (unit, size) = (self.unit, input.input_size);
        let [kx, ky] = scale_of(unit, size);
        for (index, row) in values.chunks_exact(width).enumerate() {
            let score = row[score_at];
            if score.is_nan() || score < input.score_threshold {
                continue;
            }
            let (Some(class), Some(numbers)) = (class_number(row[class_at]), four(row, box_at)) else { continue };
            let added = out.push(index, class, score, corners(numbers, self.format(), unit, size));
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

    fn doubt(&self, layout: &YoloNmsLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        const KEY: &str = "head.unit";
        let (output, width, box_at, score_at, class_at) = match layout {
            YoloNmsLayout::EndToEnd(found) => return found.doubt(self.encoding(), KEY, input),
            &YoloNmsLayout::Rows { output, width } => (output, width.max(6), 0, 4, 5),
            &YoloNmsLayout::BatchRows { output } => (output, 7, 1, 6, 5),
        };
        let values = input.outputs[output].tensor.to_f32();
        let rows = || values.chunks_exact(width);
        let scores = Numbers::of(rows().map(|row| &row[score_at]));
        // Unused rows may have the score -1.
        if scores.most() > 1.5 {
            return not_probabilities(scores, FAMILY, "correct `family` under [head]");
        }
        // Whatever fills the boxes of unused rows, their scores are not above 0.
        let used = rows().filter(|row| row[score_at] > 0.0);
        let boxes: Vec<[f32; 4]> = used.filter_map(|row| four(row, box_at)).collect();
        let found = rows().map(|row| (row[score_at], row[class_at]));
        wrong_labels(found, 0, self.class_count, input.score_threshold)
            .or_else(|| wrong_unit(&boxes, self.unit, KEY))
            .or_else(|| not_radians(rows().filter(|row| self.oriented && row[score_at] > 0.0).map(|row| &row[6])))
    }

    fn masks(&self, layout: &YoloNmsLayout, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Option<MaskSpec> {
        let &YoloNmsLayout::Rows { output, .. } = layout else { return None };
        let (values, _, width) = rows_of(outputs, output)?;
        let first = 6 + self.keypoints.map_or(0, |k| k.values());
        masks::of_prototypes(outputs, width.checked_sub(first)?, values.from_column(first))
    }

    fn filter(&self, layout: &YoloNmsLayout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec> {
        let (output, box_at, score_at, class_at) = match layout {
            YoloNmsLayout::EndToEnd(found) => return found.filter(self.encoding(), outputs, input_size),
            &YoloNmsLayout::Rows { output, .. } => (output, 0, 4, 5),
            &YoloNmsLayout::BatchRows { output } => (output, 1, 6, 5),
        };
        let (values, rows, _) = rows_of(outputs, output)?;
        let labels = Some(values.from_column(class_at));
        let points = match self.keypoints {
            _ if self.oriented => Some(ANGLE),
            keypoints => keypoints.map(|k| plain_points(k, self.unit, input_size)),
        };
        let scores = values.from_column(score_at);
        let table = Table {
            labels,
            points: points.map(|_| values.from_column(6)),
            ..table(rows, scores, values.from_column(box_at))
        };
        Some(FilterSpec { points, ..best_of(vec![table], 0..1, plain_box(self.format(), self.unit, input_size)) })
    }

    fn suppression(&self, _layout: &YoloNmsLayout) -> Suppression {
        Suppression::None
    }

    fn keypoints(&self, layout: &YoloNmsLayout) -> Option<usize> {
        Some(match layout {
            YoloNmsLayout::Rows { .. } => self.keypoints.map_or(0, |points| points.count),
            YoloNmsLayout::BatchRows { .. } | YoloNmsLayout::EndToEnd(_) => 0,
        })
    }
}
