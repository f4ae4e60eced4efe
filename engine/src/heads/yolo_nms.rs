//! YOLO with NMS inside: YOLOv10, YOLO26, exports with `nms=True`, YOLOv7 `--end2end`, EfficientNMS.
//!
//! Reads one of
//! - `[1, N, 6 (+ keypoints) (+ masks)]`: left, top, right, bottom, score, class (Ultralytics end-to-end and `nms=True`);
//!   then `x, y` or `x, y, score` per keypoint; mask coefficients are ignored. Unused rows have score 0.
//! - `[N, 7]`: frame of the batch, left, top, right, bottom, class, score (YOLOv7 `--end2end` for ONNX Runtime).
//! - four outputs: number of detections `[1, 1]`, boxes `[1, N, 4]`, scores `[1, N]`, classes `[1, N]` (TensorRT's
//!   EfficientNMS, YOLOv7 and YOLOv8 exports with it).
//!
//! Boxes are in pixels of the input unless the card sets `unit = "normalized"`. Needs no NMS.
//!
//! Source: ultralytics `utils/nms.py` (the branch for end-to-end models) and `engine/exporter.py` (`NMSModel`);
//! WongKinYiu/yolov7 `models/experimental.py`; TensorRT `plugin/efficientNMSPlugin/README.md`.

use visiond_kernels::filter::{FilterSpec, Table};

use super::decoded::{Decoded, InputKeypoint};
use super::end_to_end::{EndToEndOutputs, OutputEncoding};
use super::gpu_filter::{best_of, plain_box, plain_points, rows_of, scale_of, table};
use super::head::{Decoder, HeadInput};
use super::outputs::ModelOutputs;
use super::rows::{class_number, corners, four};
use super::spec::{Background, BoxFormat, BoxUnit, BoxesSpec, Keypoints};

pub(super) struct YoloNms {
    pub(super) keypoints: Option<Keypoints>,
    pub(super) unit: BoxUnit,
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

impl YoloNms {
    fn encoding(&self) -> OutputEncoding {
        OutputEncoding { format: BoxFormat::Xyxy, unit: self.unit, background: Background::None, class_count: 0 }
    }
}

impl Decoder for YoloNms {
    type Layout = YoloNmsLayout;

    fn reads(&self) -> &'static str {
        "one output [1, N, 6 + 2 or 3 a keypoint] or [N, 7], or four: count [1, 1], boxes [1, N, 4], scores [1, N] and classes [1, N]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<YoloNmsLayout, String> {
        if let Some(found) = EndToEndOutputs::find(outputs, &BoxesSpec::default())? {
            return Ok(YoloNmsLayout::EndToEnd(found));
        }
        let wanted = 6 + self.keypoints.map_or(0, |k| k.values());
        outputs.table(|output, [_, width]| match width {
            Some(7) if self.keypoints.is_none() => Ok(YoloNmsLayout::BatchRows { output }),
            Some(width) if width < wanted => Err(format!("has rows of {width} numbers, but needs {wanted} or more")),
            width => Ok(YoloNmsLayout::Rows { output, width: width.unwrap_or(0) }),
        })
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
            let added = out.push(index, class, score, corners(numbers, BoxFormat::Xyxy, unit, size));
            if let (true, Some(points)) = (added, self.keypoints) {
                let each = row[6..6 + points.values()].chunks_exact(points.values() / points.count.max(1));
                out.push_keypoints(
                    index,
                    each.map(|p| InputKeypoint { x: p[0] * kx, y: p[1] * ky, score: p.get(2).copied() }),
                );
            }
        }
    }

    fn filter(&self, layout: &YoloNmsLayout, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Option<FilterSpec> {
        let (output, box_at, score_at, class_at) = match layout {
            YoloNmsLayout::EndToEnd(found) => return found.filter(self.encoding(), outputs, input_size),
            &YoloNmsLayout::Rows { output, .. } => (output, 0, 4, 5),
            &YoloNmsLayout::BatchRows { output } => (output, 1, 6, 5),
        };
        let (values, rows, _) = rows_of(outputs, output)?;
        let labels = Some(values.from_column(class_at));
        let points = self.keypoints.map(|_| values.from_column(6));
        let scores = values.from_column(score_at);
        let table = Table { labels, points, ..table(rows, scores, values.from_column(box_at)) };
        Some(FilterSpec {
            points: self.keypoints.map(|k| plain_points(k, self.unit, input_size)),
            ..best_of(vec![table], 0..1, plain_box(BoxFormat::Xyxy, self.unit, input_size))
        })
    }

    fn needs_nms(&self, _layout: &YoloNmsLayout) -> bool {
        false
    }
}
