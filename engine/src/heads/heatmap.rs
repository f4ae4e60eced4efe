//! Peaks of a heat map: CenterNet, TTFNet and CenterFace; and its cells: DetectNet_v2.
//!
//! CenterNet (`style = "centernet"`) reads a heat map `[1, classes, h, w]`, sizes `[1, 2, h, w]` (width, height, in cells) and
//! offsets `[1, 2, h, w]` (x, y, inside a cell; half a cell where there is none). A cell that is the greatest of its 3x3
//! neighbourhood is a candidate: centre `(cell + offset) * stride`, size `size * stride`. The heat map still needs the
//! sigmoid unless the card sets `sigmoid = false`. It needs no NMS.
//!
//! TTFNet (`style = "ttfnet"`) reads a heat map like CenterNet's and the distances from the corner of a peak's cell to the
//! sides of the box, `[1, 4, h, w]` (left, top, right, bottom, in pixels).
//!
//! CenterFace (`style = "centerface"`) reads a heat map `[1, 1, h, w]` (after the sigmoid), scales `[1, 2, h, w]` (height,
//! width, as `exp(x) * stride`), offsets `[1, 2, h, w]` (y, x) and landmarks `[1, 10, h, w]` (y, x of five points, in sizes of
//! the box from its corner). Every cell whose score passes is a candidate with its corner at
//! `(cell + offset + 0.5) * stride - size / 2`, moved into the input; the following NMS counts corner pixels as part of the
//! box.
//!
//! DetectNet_v2 of NVIDIA TAO (`style = "detectnet"`) reads a heat map `[1, classes, h, w]` (after the sigmoid) and the distances
//! from a cell to the sides of the box, `[1, 4 * classes, h, w]` (left, top, right, bottom of the first class, then of the next).
//! Distances are in units of 35 pixels and start half a pixel after the cell's corner. Every cell whose score passes is a
//! candidate, clipped to the input; NMS follows. The GPU's filter reads one box per cell, so these outputs are copied and
//! decoded on the CPU: they are small.
//!
//! Outputs are found by the card's names, otherwise by their own (hm or cov, wh or bbox, reg), otherwise by order and channels.
//!
//! Source: `ctdet_decode` in xingyizhou/CenterNet `src/lib/models/decode.py`; `get_bboxes` in ZJULearning/ttfnet
//! `mmdet/models/anchor_heads/ttf_head.py`; `decode` in Star-Clouds/CenterFace
//! `prj-python/centerface.py`; `NvDsInferParseCustomResnet` of DeepStream `nvdsinfer_custombboxparser.cpp`, which clips to the last
//! pixel and adds one to the sides. CenterFace moves a box that starts outside the input instead of clipping it.

use visiond_kernels::filter::{BoxCode, Choice, FilterSpec, Grid, PointCode, Points, Table, Values};
use visiond_kernels::nms::Overlap;

use super::decoded::{Decoded, InputKeypoint};
use super::gpu_filter::{best_of, known, score_code, table};
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::Misfit;
use super::outputs::{ModelOutputs, OutputShape, Roles, classes_text, may_agree, may_be};
use super::raw_numbers::{Numbers, not_logits, not_probabilities};
use super::rows::{logit_floor, sigmoid};
use super::spec::{Activation, HeatmapSpec, HeatmapStyle};

pub(super) struct Heatmap {
    pub(super) class_count: usize,
    pub(super) spec: HeatmapSpec,
}

pub(super) struct HeatmapLayout {
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

/// The unit of DetectNet_v2's distances in pixels, and their origin within a cell: `bboxNormX` and the offset of
/// `gcCentersX`.
const DETECTNET_SCALE: f32 = 35.0;
const DETECTNET_OFFSET: f32 = 0.5;

/// Whether the cell at (x, y) is the maximum of its neighbourhood.
fn is_peak(plane: &[f32], width: usize, height: usize, x: usize, y: usize) -> bool {
    let value = plane[y * width + x];
    let (top, bottom) = (y.saturating_sub(1), (y + 1).min(height - 1));
    let (left, right) = (x.saturating_sub(1), (x + 1).min(width - 1));
    (top..=bottom).all(|y| plane[y * width + left..=y * width + right].iter().all(|&other| other <= value))
}

impl Heatmap {
    fn is_face(&self) -> bool {
        self.spec.style == HeatmapStyle::CenterFace
    }

    /// Whether every cell is a candidate, so that NMS is needed.
    fn needs_nms(&self) -> bool {
        matches!(self.spec.style, HeatmapStyle::CenterFace | HeatmapStyle::DetectNet)
    }

    /// Returns how many planes the sizes have; `None` if it depends on a number of classes that is unknown.
    fn size_planes(&self, classes: Option<usize>) -> Option<usize> {
        match self.spec.style {
            HeatmapStyle::DetectNet => classes.map(|classes| classes.saturating_mul(4)),
            HeatmapStyle::TtfNet => Some(4),
            HeatmapStyle::CenterNet | HeatmapStyle::CenterFace => Some(2),
        }
    }

    /// Finds the heat map by the card, by its own name, by a number of planes that no other role has, by the number of
    /// classes, or by position. It accepts a number of planes that differs from the card's classes, so that no other output
    /// is mistaken for it.
    fn heat(&self, outputs: ModelOutputs<'_>, roles: &mut Roles<'_>, named: usize) -> Result<Option<usize>, Misfit> {
        const HINTS: [&str; 3] = ["heat", "hm", "cov"];
        let planes = |index: usize| outputs.shape(index).last::<3>().map(|[planes, ..]| planes);
        let fits = |planes: Option<usize>| named == 0 || may_be(planes, named);
        let is_map = |shape: OutputShape| shape.last::<3>().is_some();
        let card = self.spec.heat.as_deref();
        if card.is_some() {
            return roles.by_name("heat map", card, &HINTS, is_map);
        }
        let of_classes = |shape: OutputShape| shape.last::<3>().is_some_and(|[planes, ..]| fits(planes));
        if let Some(found) = roles.by_name("heat map", None, &HINTS, of_classes)? {
            return Ok(Some(found));
        }
        if let Some(found) = roles.by_name("heat map", None, &HINTS, is_map)? {
            return Ok(Some(found));
        }
        let sizes = self.size_planes((named > 0).then_some(named));
        let of_another = |count: usize| Some(count) == sizes || (self.is_face() && count == 2 * FACE_POINTS);
        let mut own = (0..outputs.count()).filter(|&index| planes(index).flatten().is_some_and(|n| !of_another(n)));
        let only = own.next().filter(|_| own.next().is_none());
        Ok(roles.any(|index| Some(index) == only).or_else(|| roles.any(|index| planes(index).is_some_and(fits))))
    }

    /// Checks the planes of a heat map against the card's classes.
    fn check_classes(&self, name: &str, planes: Option<usize>) -> Result<(), Misfit> {
        let (named, faces) = (self.class_count, self.is_face());
        let found = if faces { 1 } else { planes.unwrap_or(named) };
        if named == 0 || named == found {
            return Ok(());
        }
        let problem = if faces {
            format!("the card names {} instead of one", classes_text(named))
        } else {
            format!("`{name}` has {} instead of {named}, one for each of the card's classes", planes_text(found))
        };
        let remedy = format!("name {} under [classes], or remove the names", classes_text(found));
        Err(Misfit::at("classes", problem, remedy))
    }

    /// Checks the stride against the cells of a heat map, which may have one more if the side is not a multiple of the
    /// stride.
    fn check_stride(
        &self,
        name: &str,
        (width, height): (Option<usize>, Option<usize>),
        input_size: (u32, u32),
    ) -> Result<(), Misfit> {
        let (Some(width), Some(height)) = (width.filter(|n| *n > 0), height.filter(|n| *n > 0)) else { return Ok(()) };
        let (input_w, input_h) = (input_size.0 as usize, input_size.1 as usize);
        let stride = self.spec.stride.max(1) as usize;
        let fits = |side: usize, cells: usize| side / stride == cells || side.div_ceil(stride) == cells;
        if fits(input_w, width) && fits(input_h, height) {
            return Ok(());
        }
        let problem = format!(
            "`{name}` has {width}x{height} cells over an input of {input_w}x{input_h}, which does not match the card's stride of {stride}"
        );
        let right = input_w / width;
        if right > 0 && right * width == input_w && right * height == input_h {
            return Err(Misfit::at("head.stride", problem, format!("write `stride = {right}` under [head]")));
        }
        Err(problem.into())
    }
}

/// Returns "1 plane" or "N planes".
fn planes_text(count: usize) -> String {
    if count == 1 { "1 plane".to_owned() } else { format!("{count} planes") }
}

impl Decoder for Heatmap {
    type Layout = HeatmapLayout;

    fn reads(&self) -> &'static str {
        match self.spec.style {
            HeatmapStyle::TtfNet => "a heat map [1, classes, h, w] and distances [1, 4, h, w]",
            HeatmapStyle::DetectNet => "a heat map [1, classes, h, w] and distances [1, 4 * classes, h, w]",
            _ => {
                "a heat map [1, classes, h, w], sizes [1, 2, h, w], offsets [1, 2, h, w], and of CenterFace landmarks [1, 10, h, w]"
            }
        }
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<HeatmapLayout, Misfit> {
        let face = self.is_face();
        let mut roles = Roles::new(outputs);
        let named = if face { 1 } else { self.class_count };
        let no_heat = || {
            if named == 0 {
                "no output is [1, classes, h, w]".to_owned()
            } else {
                format!("no output is [1, {named}, h, w] for {}", classes_text(named))
            }
        };
        let heat = self.heat(outputs, &mut roles, named)?.ok_or_else(no_heat)?;
        let [classes, height, width] = outputs.shape(heat).last::<3>().unwrap_or([None; 3]);
        let is_other = named > 0 && !may_be(classes, named);
        if face && is_other {
            return Err(no_heat().into());
        }
        let alike = |shape: OutputShape, wanted: Option<usize>| {
            let fits = |[c, h, w]: [_; 3]| may_agree(c, wanted) && may_agree(h, height) && may_agree(w, width);
            shape.last::<3>().is_some_and(fits)
        };
        let sizes = self.size_planes(classes);
        let size = roles
            .find("sizes", self.spec.size.as_deref(), &["wh", "size", "scale", "bbox"], |s| alike(s, sizes))?
            .ok_or_else(|| {
                let planes = sizes.map_or_else(String::new, |sizes| format!("{sizes} "));
                let no_sizes = || format!("no output has {planes}planes of sizes like `{}`", outputs.name(heat));
                if is_other { no_heat() } else { no_sizes() }
            })?;
        let offset = match self.spec.style {
            HeatmapStyle::TtfNet | HeatmapStyle::DetectNet => None,
            _ => roles.find("offsets", self.spec.offset.as_deref(), &["reg", "off"], |s| alike(s, Some(2)))?,
        };
        if face && offset.is_none() {
            return Err(format!("no output has two planes of offsets like `{}`", outputs.name(heat)).into());
        }
        let landmarks = if face {
            roles.find("landmarks", self.spec.landmarks.as_deref(), &["land", "lm"], |s| {
                alike(s, Some(2 * FACE_POINTS))
            })?
        } else {
            None
        };
        self.check_classes(outputs.name(heat), classes)?;
        self.check_stride(outputs.name(heat), (width, height), input_size)?;
        Ok(HeatmapLayout {
            heat,
            size,
            offset,
            landmarks,
            classes: classes.unwrap_or(0),
            height: height.unwrap_or(0),
            width: width.unwrap_or(0),
        })
    }

    fn decode(&mut self, layout: &HeatmapLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let read = |index: usize| input.outputs[index].tensor.to_f32();
        let (heat, size) = (read(layout.heat), read(layout.size));
        let (offset, landmarks) = (layout.offset.map(read), layout.landmarks.map(read));
        let cells = layout.width * layout.height;
        let stride = self.spec.stride as f32;
        let (input_w, input_h) = (input.input_size.0 as f32, input.input_size.1 as f32);
        let threshold = if self.spec.sigmoid { logit_floor(input.score_threshold) } else { input.score_threshold };
        let rows = heat.chunks_exact(cells.max(1)).take(layout.classes).enumerate();
        for (class, plane) in rows {
            for (cell, &raw) in plane.iter().enumerate() {
                if raw.is_nan() || raw < threshold {
                    continue;
                }
                let (column, line) = (cell % layout.width, cell / layout.width);
                let score = if self.spec.sigmoid { sigmoid(raw) } else { raw };
                let stands = || self.needs_nms() || is_peak(plane, layout.width, layout.height, column, line);
                if score < input.score_threshold || !stands() {
                    continue;
                }
                let pair = |planes: &[f32]| (planes[cell], planes[cells + cell]);
                let (column, line, row) = (column as f32, line as f32, class * cells + cell);
                if self.spec.style == HeatmapStyle::DetectNet {
                    let side = |side: usize| size[(4 * class + side) * cells + cell] * DETECTNET_SCALE;
                    let (x, y) = (column * stride + DETECTNET_OFFSET, line * stride + DETECTNET_OFFSET);
                    out.push(row, class as u32, score, [x - side(0), y - side(1), x + side(2), y + side(3)]);
                    continue;
                }
                if self.spec.style == HeatmapStyle::TtfNet {
                    let [left, top, right, bottom] = std::array::from_fn(|side| size[side * cells + cell]);
                    let (x, y) = (column * stride, line * stride);
                    out.push(row, class as u32, score, [x - left, y - top, x + right, y + bottom]);
                    continue;
                }
                if !self.is_face() {
                    let (dx, dy) = offset.as_deref().map_or((0.5, 0.5), pair);
                    let (x, y) = ((column + dx) * stride, (line + dy) * stride);
                    let (w, h) = (size[cell] * stride, size[cells + cell] * stride);
                    out.push(row, class as u32, score, [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0]);
                    continue;
                }
                let (h, w) = (size[cell].exp() * stride, size[cells + cell].exp() * stride);
                let (dy, dx) = offset.as_deref().map_or((0.0, 0.0), pair);
                let x1 = ((column + dx + 0.5) * stride - w / 2.0).max(0.0).min(input_w);
                let y1 = ((line + dy + 0.5) * stride - h / 2.0).max(0.0).min(input_h);
                let added = out.push(row, 0, score, [x1, y1, (x1 + w).min(input_w), (y1 + h).min(input_h)]);
                if let (true, Some(points)) = (added, &landmarks) {
                    let point = |k: usize| InputKeypoint {
                        x: points[(2 * k + 1) * cells + cell] * w + x1,
                        y: points[2 * k * cells + cell] * h + y1,
                        score: None,
                    };
                    out.push_keypoints(row, (0..FACE_POINTS).map(point));
                }
            }
        }
    }

    fn doubt(&self, layout: &HeatmapLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        const KEY: &str = "head.sigmoid";
        let heat = Numbers::of(&*input.outputs[layout.heat].tensor.to_f32());
        if self.spec.sigmoid {
            not_logits(heat, KEY, "write `sigmoid = false` under [head]")
        } else {
            not_probabilities(heat, KEY, "write `sigmoid = true` under [head]")
        }
    }

    fn filter(&self, layout: &HeatmapLayout, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Option<FilterSpec> {
        let [classes, lines, columns] = known(outputs.shape(layout.heat))?;
        let cells = lines.checked_mul(columns)?;
        let sizes = self.size_planes(Some(classes))?;
        let planes = |output: usize, planes: usize| Values::planes(output, planes, cells);
        let face = self.is_face();
        let table = Table {
            offsets: layout.offset.map(|output| planes(output, 2)),
            points: layout.landmarks.map(|output| planes(output, 2 * FACE_POINTS)),
            grid: Grid { columns, lines, stride: self.spec.stride as f32, ..Grid::default() },
            ..table(cells, planes(layout.heat, classes), planes(layout.size, sizes))
        };
        let activation = if self.spec.sigmoid { Activation::Sigmoid } else { Activation::None };
        let boxes = match self.spec.style {
            HeatmapStyle::CenterNet => BoxCode::Peak,
            HeatmapStyle::TtfNet => BoxCode::Sides,
            HeatmapStyle::CenterFace => BoxCode::Face,
            // Each class has its own box.
            HeatmapStyle::DetectNet => return None,
        };
        let classes = if face { 0..1 } else { 0..classes };
        let every = Choice::Every { peaks: true, row_step: cells };
        Some(FilterSpec {
            scores: score_code(activation),
            choice: if face { Choice::BestRaw } else { every },
            points: layout.landmarks.map(|_| Points { count: FACE_POINTS, code: PointCode::Face }),
            ..best_of(vec![table], classes, boxes)
        })
    }

    fn suppression(&self, _layout: &HeatmapLayout) -> Suppression {
        match self.spec.style {
            HeatmapStyle::CenterFace => Suppression::Best(Overlap::Pixels),
            HeatmapStyle::DetectNet => Suppression::Best(Overlap::Points),
            HeatmapStyle::CenterNet | HeatmapStyle::TtfNet => Suppression::None,
        }
    }

    fn clips(&self) -> bool {
        self.spec.style == HeatmapStyle::DetectNet
    }

    fn keypoints(&self, layout: &HeatmapLayout) -> Option<usize> {
        Some(layout.landmarks.map_or(0, |_| FACE_POINTS))
    }
}
