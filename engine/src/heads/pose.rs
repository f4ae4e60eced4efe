//! Decodes the pose of one person: the points of a body, a hand or a face in an image of it.
//!
//! Reads one of
//! - two outputs `[1, points, W]` and `[1, points, H]` (RTMPose and other SimCC models): a score for each position on either
//!   axis, with several positions per pixel. A point lies at the maximum of each axis; its score is the smaller of the two.
//! - one output `[1, points, h, w]` (HRNet, SimpleBaseline, ViTPose): a heat map for each point. It lies at the maximum,
//!   shifted by a quarter of a cell towards the greater neighbour, and the maximum is its score.
//!
//! Such models output neither a box nor a person score, because a detector crops the person for them. Here the image is the
//! whole frame: the box surrounds the points whose score is above 0.2, and the person's score is the mean of these scores, as
//! in mmpose's evaluation. A point without a positive score lies just outside the image, as in the project's code.
//!
//! Source: open-mmlab/mmpose `codecs/simcc_label.py`, `codecs/msra_heatmap.py`, `codecs/utils/post_processing.py`
//! (`get_simcc_maximum`, `get_heatmap_maximum`), `codecs/utils/refinement.py` (`refine_keypoints`),
//! `evaluation/metrics/coco_metric.py` (`keypoint_score_thr`).

use visiond_kernels::filter::FilterSpec;

use super::decoded::{Decoded, InputKeypoint};
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::Misfit;
use super::outputs::{ModelOutputs, OutputShape, classes_text, may_agree};
use super::rows::max_of;

/// Points with at most this score do not count: `keypoint_score_thr`.
const POINT_SCORE: f32 = 0.2;

pub(super) struct Pose {
    /// The number of named classes, or 0.
    pub(super) class_count: usize,
}

/// Where the numbers are.
#[derive(Clone, Copy)]
pub(super) enum PoseLayout {
    /// Scores of the positions on each axis.
    Axes { x: usize, y: usize, points: Option<usize> },
    /// A heat map for each point.
    Maps { output: usize, points: Option<usize>, sides: [usize; 2] },
}

/// Returns the number of points and positions of an output `[1, points, positions]`.
fn axis_of(shape: OutputShape) -> Option<[Option<usize>; 2]> {
    shape.last::<2>().filter(|_| !shape.has_rank(2) && !shape.has_rank(4))
}

/// Returns the number of points, and the sides, of an output `[1, points, h, w]`.
fn maps_of(shape: OutputShape) -> Option<[Option<usize>; 3]> {
    shape.last::<3>().filter(|_| !shape.has_rank(3))
}

/// Whether a number of positions fits a side of the input, which is 0 if unknown: it must be a multiple of the side.
fn may_divide(places: Option<usize>, side: u32) -> bool {
    side == 0 || places.is_none_or(|places| places >= side as usize && places.is_multiple_of(side as usize))
}

/// Whether the name of an output ends in an axis, as in mmpose: `simcc_x`.
fn named(name: &str, axis: char) -> bool {
    name.to_ascii_lowercase().trim_end_matches(|c: char| c.is_ascii_digit()).ends_with(axis)
}

/// The kinds of outputs that shapes and names reveal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoseKind {
    Axes,
    Maps,
}

/// Returns the kind of outputs for an input of `size`; `None` if they may belong to another model.
///
/// Axes have the same number of positions per pixel, at least two. Class maps also have planes, so a name, or the usual
/// number of points and cells of four pixels, must indicate points.
pub(super) fn kind_of(outputs: ModelOutputs<'_>, size: Option<(u32, u32)>) -> Option<PoseKind> {
    /// The numbers of points of COCO's and MPII's bodies, and of whole bodies.
    const BODIES: [usize; 3] = [16, 17, 133];
    const CELL: usize = 4;
    /// Crops of a person are not larger; joints in larger images belong to several people.
    const MOST: u32 = 384;
    let has = |index: usize, words: &[&str]| {
        let name = outputs.name(index).to_ascii_lowercase();
        words.iter().any(|word| name.contains(word))
    };
    match (PoseLayout::find(outputs, size.unwrap_or_default())?, size) {
        (PoseLayout::Axes { .. }, None) => (0..2).all(|index| has(index, &["simcc"])).then_some(PoseKind::Axes),
        (PoseLayout::Axes { x, y, points }, Some((width, height))) => {
            let places = |output: usize, side: u32| {
                let [_, places] = axis_of(outputs.shape(output))?;
                places?.checked_div(side as usize)
            };
            let each = places(x, width).filter(|each| Some(*each) == places(y, height));
            let named = (0..2).all(|index| has(index, &["simcc"]));
            let is_sure = points.is_some() && each.is_some_and(|each| each >= 2);
            (named || is_sure).then_some(PoseKind::Axes)
        }
        (PoseLayout::Maps { points, sides, .. }, size) => {
            let named = has(0, &["heatmap", "keypoint", "kpt"]);
            let fits = size.is_some_and(|(width, height)| {
                sides.iter().zip([height, width]).all(|(side, pixels)| side * CELL == pixels as usize)
            });
            let is_crop = size.is_some_and(|(width, height)| width.max(height) <= MOST);
            let is_body = is_crop && points.is_some_and(|points| BODIES.contains(&points));
            let is_other = has(0, &["seg", "semantic", "logit", "argmax"]);
            (fits && (named || is_body) && !is_other).then_some(PoseKind::Maps)
        }
    }
}

impl PoseLayout {
    /// Finds the outputs: two axes by their names or in this order, or one heat map.
    fn find(outputs: ModelOutputs<'_>, (width, height): (u32, u32)) -> Option<Self> {
        match outputs.count() {
            1 => {
                let [points, lines, columns] = maps_of(outputs.shape(0))?;
                let sides = [lines.unwrap_or(0), columns.unwrap_or(0)];
                let is_map = |side: Option<usize>| side.is_none_or(|side| side > 1);
                (is_map(lines) && is_map(columns)).then_some(Self::Maps { output: 0, points, sides })
            }
            2 => {
                let [first, second] = [axis_of(outputs.shape(0))?, axis_of(outputs.shape(1))?];
                let is_swapped = named(outputs.name(0), 'y') && named(outputs.name(1), 'x');
                let ([x, y], [of_x, of_y]) = match is_swapped {
                    true => ([1, 0], [second, first]),
                    false => ([0, 1], [first, second]),
                };
                let points = of_x[0].or(of_y[0]);
                let fits = may_agree(of_x[0], of_y[0]) && may_divide(of_x[1], width) && may_divide(of_y[1], height);
                fits.then_some(Self::Axes { x, y, points })
            }
            _ => None,
        }
    }

    fn points(self) -> Option<usize> {
        match self {
            Self::Axes { points, .. } | Self::Maps { points, .. } => points,
        }
    }
}

/// Returns the index and the value of the first maximum; `None` if none is above 0.
fn greatest(numbers: &[f32]) -> Option<(usize, f32)> {
    let most = max_of(numbers);
    if most <= 0.0 {
        return None;
    }
    Some((numbers.iter().position(|&number| number == most)?, most))
}

/// The position of an undetected point, in positions of an axis or cells of a map.
const NOWHERE: f32 = -1.0;

/// Makes a point from its position in cells or axis positions, `each` of which make up a pixel.
fn point([x, y]: [f32; 2], score: f32, each: [f32; 2]) -> InputKeypoint {
    // Heat maps may slightly exceed 1, their maximum in training.
    InputKeypoint { x: x * each[0], y: y * each[1], score: Some(score.clamp(0.0, 1.0)) }
}

/// Reads the scores of the positions on each axis.
fn of_axes(x: &[f32], y: &[f32], each: [f32; 2]) -> InputKeypoint {
    match greatest(x).zip(greatest(y)) {
        Some(((x, of_x), (y, of_y))) => point([x as f32, y as f32], of_x.min(of_y), each),
        None => point([NOWHERE; 2], 0.0, each),
    }
}

/// Reads a heat map with lines of `columns` numbers.
fn of_map(map: &[f32], columns: usize, each: [f32; 2]) -> InputKeypoint {
    let Some((index, score)) = greatest(map) else { return point([NOWHERE; 2], 0.0, each) };
    let (x, y, lines) = (index % columns, index / columns, map.len() / columns);
    let step = |before: usize, after: usize| match map[after].partial_cmp(&map[before]) {
        Some(std::cmp::Ordering::Greater) => 0.25,
        Some(std::cmp::Ordering::Less) => -0.25,
        _ => 0.0,
    };
    // The bounds come from the project's code: they exclude the cells at the edges, and one more at the left and at the top.
    let dx = if x > 1 && x + 1 < columns && y > 0 { step(index - 1, index + 1) } else { 0.0 };
    let dy = if y > 1 && y + 1 < lines && x > 0 { step(index - columns, index + columns) } else { 0.0 };
    point([x as f32 + dx, y as f32 + dy], score, each)
}

/// Returns the person's score and the box around the points that count; `None` if none do.
fn person(points: &[InputKeypoint]) -> Option<(f32, [f32; 4])> {
    let (mut sum, mut count) = (0.0_f32, 0.0_f32);
    let mut around = [f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    for &InputKeypoint { x, y, score } in points {
        let Some(score) = score.filter(|score| *score > POINT_SCORE) else { continue };
        (sum, count) = (sum + score, count + 1.0);
        around = [around[0].min(x), around[1].min(y), around[2].max(x), around[3].max(y)];
    }
    (count > 0.0).then(|| (sum / count, around))
}

impl Decoder for Pose {
    type Layout = PoseLayout;

    fn reads(&self) -> &'static str {
        "two outputs [1, points, W] and [1, points, H] with as many numbers for each pixel of the input, or one [1, points, h, w]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<PoseLayout, Misfit> {
        if self.class_count > 1 {
            return Err(format!("the card names {} instead of one", classes_text(self.class_count)).into());
        }
        PoseLayout::find(outputs, input_size).ok_or_else(|| "there are no such outputs".into())
    }

    fn decode(&mut self, layout: &PoseLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = |output: usize| input.outputs[output].tensor.to_f32();
        let size = [input.input_size.0 as f32, input.input_size.1 as f32];
        let points: Vec<InputKeypoint> = match *layout {
            PoseLayout::Axes { x, y, points } => {
                let (of_x, of_y) = (values(x), values(y));
                let count = points.unwrap_or(0).max(1);
                let places = [of_x.len() / count, of_y.len() / count];
                if places.contains(&0) {
                    return;
                }
                let each = [size[0] / places[0] as f32, size[1] / places[1] as f32];
                let rows = of_x.chunks_exact(places[0]).zip(of_y.chunks_exact(places[1]));
                rows.map(|(x, y)| of_axes(x, y, each)).collect()
            }
            PoseLayout::Maps { output, sides: [lines, columns], .. } => {
                let each = [size[0] / columns as f32, size[1] / lines as f32];
                let maps = values(output);
                let cells = lines * columns;
                if cells == 0 {
                    return;
                }
                maps.chunks_exact(cells).map(|map| of_map(map, columns, each)).collect()
            }
        };
        let Some((score, around)) = person(&points).filter(|(score, _)| *score >= input.score_threshold) else {
            return;
        };
        if out.push(0, 0, score, around) {
            out.push_keypoints(0, points.into_iter());
        }
    }

    /// No check is certain: the scores may come from a softmax, or from a training that reaches or exceeds 1.
    fn doubt(&self, _layout: &PoseLayout, _input: &HeadInput<'_>) -> Option<Misfit> {
        None
    }

    /// A filter is not worth it: there is one candidate, and all numbers are compared once.
    fn filter(&self, _: &PoseLayout, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }

    fn suppression(&self, _layout: &PoseLayout) -> Suppression {
        Suppression::None
    }

    fn keypoints(&self, layout: &PoseLayout) -> Option<usize> {
        layout.points()
    }
}
