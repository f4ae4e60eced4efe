//! Peaks of a heat map: CenterNet and CenterFace.
//!
//! CenterNet (`style = "centernet"`) reads a heat map `[1, classes, h, w]`, sizes `[1, 2, h, w]` (width, height, in cells) and
//! offsets `[1, 2, h, w]` (x, y, inside a cell; half a cell where there is none). A cell that is the greatest of its 3x3
//! neighbourhood is a candidate: centre `(cell + offset) * stride`, size `size * stride`. The heat map wants the sigmoid
//! unless the card says `sigmoid = false`. Nothing is suppressed.
//!
//! CenterFace (`style = "centerface"`) reads a heat map `[1, 1, h, w]` (sigmoid already taken), scales `[1, 2, h, w]` (height,
//! width, as `exp(x) * stride`), offsets `[1, 2, h, w]` (y, x) and landmarks `[1, 10, h, w]` (y, x of five points, in sizes of
//! the box from its corner). Every cell that passes is a candidate with its corner at
//! `(cell + offset + 0.5) * stride - size / 2`, moved into the input; suppressed afterwards.
//!
//! Outputs are found by the card's names, else by theirs (hm, wh, reg), else by their order and channels.
//!
//! Source: `ctdet_decode` in xingyizhou/CenterNet `src/lib/models/decode.py`; `decode` in Star-Clouds/CenterFace
//! `prj-python/centerface.py`, which moves a box that begins outside the input instead of cutting it.

use visiond_kernels::filter::{BoxCode, Choice, FilterSpec, Grid, PointCode, Points, Table, Values};

use super::classes::classes_text;
use super::decoded::{Decoded, InputKeypoint};
use super::decoder::Decoder;
use super::gpu_filter;
use super::head::HeadInput;
use super::roles::Roles;
use super::rows::{logit_floor, sigmoid};
use super::shapes::{Outputs, Shape, may_agree, may_be};
use super::spec::{Activation, Family, HeatmapSpec, HeatmapStyle};

pub(super) struct Heatmap {
    pub(super) class_count: usize,
    pub(super) spec: HeatmapSpec,
}

pub(super) struct OutputLayout {
    style: HeatmapStyle,
    heat: usize,
    size: usize,
    offset: Option<usize>,
    landmarks: Option<usize>,
    classes: usize,
    height: usize,
    width: usize,
}

/// The number of landmarks of a face.
const FACE_POINTS: usize = 5;

/// Whether the cell at (x, y) is the maximum of its neighbourhood.
fn is_peak(plane: &[f32], width: usize, height: usize, x: usize, y: usize) -> bool {
    let value = plane[y * width + x];
    let (top, bottom) = (y.saturating_sub(1), (y + 1).min(height - 1));
    let (left, right) = (x.saturating_sub(1), (x + 1).min(width - 1));
    (top..=bottom).all(|y| plane[y * width + left..=y * width + right].iter().all(|&other| other <= value))
}

impl Heatmap {
    fn centre_face(&self, layout: &OutputLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let heat = input.outputs[layout.heat].tensor.to_f32();
        let size = input.outputs[layout.size].tensor.to_f32();
        let offset = layout.offset.map(|index| input.outputs[index].tensor.to_f32());
        let landmarks = layout.landmarks.map(|index| input.outputs[index].tensor.to_f32());
        let cells = layout.width * layout.height;
        let stride = self.spec.stride as f32;
        let (input_w, input_h) = (input.input_size.0 as f32, input.input_size.1 as f32);
        let threshold = if self.spec.sigmoid { logit_floor(input.score_threshold) } else { input.score_threshold };
        for cell in 0..cells {
            let raw = heat[cell];
            if raw.is_nan() || raw < threshold {
                continue;
            }
            let score = if self.spec.sigmoid { sigmoid(raw) } else { raw };
            if score < input.score_threshold {
                continue;
            }
            let (h, w) = (size[cell].exp() * stride, size[cells + cell].exp() * stride);
            let (dy, dx) = offset.as_ref().map_or((0.0, 0.0), |o| (o[cell], o[cells + cell]));
            let (column, line) = ((cell % layout.width) as f32, (cell / layout.width) as f32);
            let x1 = ((column + dx + 0.5) * stride - w / 2.0).max(0.0).min(input_w);
            let y1 = ((line + dy + 0.5) * stride - h / 2.0).max(0.0).min(input_h);
            let added = out.push(cell, 0, score, [x1, y1, (x1 + w).min(input_w), (y1 + h).min(input_h)]);
            if let (true, Some(points)) = (added, &landmarks) {
                out.push_keypoints(
                    cell,
                    (0..FACE_POINTS).map(|k| InputKeypoint {
                        x: points[(2 * k + 1) * cells + cell] * w + x1,
                        y: points[2 * k * cells + cell] * h + y1,
                        score: None,
                    }),
                );
            }
        }
    }

    fn centre_net(&self, layout: &OutputLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let heat = input.outputs[layout.heat].tensor.to_f32();
        let size = input.outputs[layout.size].tensor.to_f32();
        let offset = layout.offset.map(|index| input.outputs[index].tensor.to_f32());
        let cells = layout.width * layout.height;
        let stride = self.spec.stride as f32;
        let threshold = if self.spec.sigmoid { logit_floor(input.score_threshold) } else { input.score_threshold };
        for (class, plane) in heat.chunks_exact(cells.max(1)).take(layout.classes).enumerate() {
            for (cell, &raw) in plane.iter().enumerate() {
                if raw.is_nan() || raw < threshold {
                    continue;
                }
                let (column, line) = (cell % layout.width, cell / layout.width);
                let score = if self.spec.sigmoid { sigmoid(raw) } else { raw };
                if score < input.score_threshold || !is_peak(plane, layout.width, layout.height, column, line) {
                    continue;
                }
                let (dx, dy) = offset.as_ref().map_or((0.5, 0.5), |o| (o[cell], o[cells + cell]));
                let (x, y) = ((column as f32 + dx) * stride, (line as f32 + dy) * stride);
                let (w, h) = (size[cell] * stride, size[cells + cell] * stride);
                let corners = [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0];
                out.push(class * cells + cell, class as u32, score, corners);
            }
        }
    }
}

impl Decoder for Heatmap {
    type OutputLayout = OutputLayout;

    const FAMILY: Family = Family::Heatmap;
    const READS: &'static str = "a heat map [1, classes, h, w], sizes [1, 2, h, w], offsets [1, 2, h, w], and of CenterFace landmarks [1, 10, h, w]";

    fn layout(&self, outputs: &impl Outputs, _input_size: (u32, u32)) -> Result<OutputLayout, String> {
        let style = self.spec.style;
        let face = style == HeatmapStyle::CenterFace;
        let mut roles = Roles::new(outputs);
        let planes = |shape: Shape, wanted: usize| shape.last::<3>().is_some_and(|[c, ..]| may_be(c, wanted));
        let named = if face { 1 } else { self.class_count };
        let is_heat = |shape: Shape| shape.last::<3>().is_some_and(|[c, ..]| named == 0 || may_be(c, named));
        let heat = roles.find("heat map", self.spec.heat.as_deref(), &["heat", "hm"], is_heat)?.ok_or_else(|| {
            if named == 0 {
                "no output is [1, classes, h, w]".to_owned()
            } else {
                format!("no output is [1, {named}, h, w] for {}", classes_text(named))
            }
        })?;
        let [classes, height, width] = outputs.shape(heat).last::<3>().unwrap_or([None; 3]);
        let alike = |shape: Shape, wanted: usize| {
            planes(shape, wanted)
                && shape.last::<3>().is_some_and(|[_, h, w]| may_agree(h, height) && may_agree(w, width))
        };
        let size = roles
            .find("sizes", self.spec.size.as_deref(), &["wh", "size", "scale"], |s| alike(s, 2))?
            .ok_or_else(|| format!("no output has two planes of sizes like `{}`", outputs.name(heat)))?;
        let offset = roles.find("offsets", self.spec.offset.as_deref(), &["reg", "off"], |s| alike(s, 2))?;
        if face && offset.is_none() {
            return Err(format!("no output has two planes of offsets like `{}`", outputs.name(heat)));
        }
        let landmarks = if face {
            roles.find("landmarks", self.spec.landmarks.as_deref(), &["land", "lm"], |s| alike(s, 2 * FACE_POINTS))?
        } else {
            None
        };
        Ok(OutputLayout {
            style,
            heat,
            size,
            offset,
            landmarks,
            classes: classes.unwrap_or(0),
            height: height.unwrap_or(0),
            width: width.unwrap_or(0),
        })
    }

    fn decode(&mut self, layout: &OutputLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        match layout.style {
            HeatmapStyle::CenterFace => self.centre_face(layout, input, out),
            HeatmapStyle::CenterNet => self.centre_net(layout, input, out),
        }
    }

    fn filter(
        &self,
        layout: &OutputLayout,
        outputs: &impl Outputs,
        input_size: (u32, u32),
        score_threshold: f32,
    ) -> Option<FilterSpec> {
        let [classes, lines, columns] = gpu_filter::known(outputs.shape(layout.heat))?;
        let cells = lines.checked_mul(columns)?;
        let planes = |output: usize, planes: usize| Values::planes(output, planes, cells);
        let face = layout.style == HeatmapStyle::CenterFace;
        let table = Table {
            offsets: layout.offset.map(|output| planes(output, 2)),
            points: layout.landmarks.map(|output| planes(output, 2 * FACE_POINTS)),
            grid: Grid { columns, lines, stride: self.spec.stride as f32, ..Grid::default() },
            ..gpu_filter::table(cells, planes(layout.heat, classes), planes(layout.size, 2))
        };
        let activation = if self.spec.sigmoid { Activation::Sigmoid } else { Activation::None };
        let boxes = if face { BoxCode::Face } else { BoxCode::Peak };
        let classes = if face { 0..1 } else { 0..classes };
        let every = Choice::Every { peaks: true, row_step: cells };
        Some(FilterSpec {
            scores: gpu_filter::score_code(activation, score_threshold),
            choice: if face { Choice::BestRaw } else { every },
            points: layout.landmarks.map(|_| Points { count: FACE_POINTS, code: PointCode::Face }),
            ..gpu_filter::best_of(vec![table], classes, boxes, input_size, score_threshold)
        })
    }

    fn needs_nms(layout: &OutputLayout) -> bool {
        layout.style == HeatmapStyle::CenterFace
    }
}
