//! Guesses which heads fit a model from the shapes of its outputs and its last operators. Used by `inspect`, the error about
//! a missing card, and the correction of a card that does not fit.

use visiond_kernels::tensor::DType;

use super::build::build;
use super::end_to_end::EndToEndOutputs;
use super::exports::{Reading, recognise};
use super::guess_card::card_text;
use super::guess_values::{guess_values, named_like_no_scores};
use super::model_facts::{ModelFacts, likely_size, picture};
use super::movenet;
use super::outputs::{ModelOutputs, four_columns, two_dimensions};
use super::pose::{PoseKind, kind_of};
use super::posed_rows::keypoints_in;
use super::row_parts::RowParts;
use super::semantic::covers;
use super::spec::{
    Activation, Background, BlazefaceSpec, BoxFormat, BoxUnit, BoxesSpec, DbTextSpec, FACE_POINTS, FACES, FacesSpec,
    FacesStyle, Family, HeadSpec, HeatmapSpec, HeatmapStyle, Keypoints, NanodetSpec, RowsSpec, YoloxSpec,
};
use super::unread::unread;
use crate::backend::{Dim, TensorInfo, picture_size};
use crate::onnx::OutputTail;
use crate::ultralytics::UltralyticsError;

/// A head that fits a model's outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadGuess {
    /// The family of the head, for a card's `family`.
    pub family: Family,
    /// The number of classes that the shape implies, if known.
    pub class_count: Option<usize>,
    /// Why it fits, in words.
    pub reason: String,
    /// Whether another head fits as well as this one, so that only a run or the model's documentation can decide.
    pub tied: bool,
    /// A card to start from, in TOML.
    pub card: String,
}

/// A guess before it is tried.
pub(super) struct HeadProposal {
    /// A lower rank is more likely.
    rank: u8,
    pub(super) spec: HeadSpec,
    pub(super) classes: Option<usize>,
    reason: String,
}

/// The grids of known models, the usual ones first.
const GRIDS: [&[u32]; 8] =
    [&[8, 16, 32], &[8, 16, 32, 64], &[4, 8, 16, 32], &[8, 16, 32, 64, 128], &[16, 32, 64], &[16, 32], &[8, 16], &[32]];

/// The numbers of keypoints in data sets: MediaPipe's and WIDER's faces, COCO's bodies, hands, faces, whole bodies.
const POINTS: [usize; 5] = [5, 17, 21, 68, 133];

fn cells(size: (u32, u32), strides: &[u32]) -> usize {
    strides.iter().map(|&s| (size.0.div_ceil(s) as usize) * (size.1.div_ceil(s) as usize)).sum()
}

/// Returns `usual` if the number of classes is a common one, otherwise `unusual`.
fn rank_of(classes: usize, usual: u8, unusual: u8) -> u8 {
    if matches!(classes, 1 | 20 | 80 | 90 | 91 | 365) { usual } else { unusual }
}

/// The input of a guess.
struct Evidence<'a> {
    facts: ModelFacts<'a>,
    size: Option<(u32, u32)>,
    /// The number of classes that a card names; 0 if there is no card.
    named: usize,
    proposals: Vec<HeadProposal>,
}

impl Evidence<'_> {
    fn add(&mut self, rank: u8, spec: HeadSpec, classes: Option<usize>, reason: impl Into<String>) {
        self.proposals.push(HeadProposal { rank, spec, classes, reason: reason.into() });
    }

    /// Returns the tail of an output; an unknown tail if the graph is unknown.
    fn tail(&self, output: usize) -> OutputTail {
        self.facts.tails.get(&self.facts.outputs[output].name).cloned().unwrap_or_default()
    }

    /// Returns the keypoints that this many `numbers` per box can represent.
    fn points(&self, numbers: usize, tail: &OutputTail) -> Option<Keypoints> {
        let seen = |count: usize| tail.widths.contains(&count) && tail.widths.contains(&numbers);
        let fits = |each: usize| {
            let count = numbers / each;
            numbers > 0 && numbers.is_multiple_of(each) && (POINTS.contains(&count) || seen(count))
        };
        [3, 2].into_iter().find(|&each| fits(each)).map(|each| Keypoints { count: numbers / each, scored: each == 3 })
    }

    /// Returns how many numbers per box are mask coefficients: the number of planes of an output that is not a table.
    fn masks(&self) -> usize {
        let planes = |index| ModelOutputs::Declared(self.facts.outputs).shape(index).last::<3>();
        let masks = (0..self.facts.outputs.len()).filter_map(planes).find_map(|[count, height, _]| {
            let count = count.filter(|count| (8..=256).contains(count))?;
            height.is_none_or(|height| height > 1).then_some(count)
        });
        masks.unwrap_or(0)
    }

    /// Splits the numbers after the box and the objectness of a YOLO into classes, keypoints and mask coefficients.
    fn parts(&self, numbers: usize, tail: &OutputTail) -> (usize, Option<Keypoints>, usize) {
        let masks = self.masks();
        let rest = numbers.saturating_sub(self.named);
        if self.named > 0 && rest > 0 {
            if rest == masks {
                return (self.named, None, masks);
            }
            if let Some(points) = self.points(rest, tail) {
                return (self.named, Some(points), 0);
            }
        }
        if masks > 0 && masks < numbers {
            return (numbers - masks, None, masks);
        }
        // One class, such as people, with the only number of points that is hardly ever a number of classes.
        let one = numbers.checked_sub(1).and_then(|rest| self.points(rest, tail));
        let person = Keypoints { count: 17, scored: true };
        match one.filter(|points| *points == person || tail.widths.contains(&points.count)) {
            Some(points) => (1, Some(points), 0),
            None => (numbers, None, 0),
        }
    }

    /// Returns the possible values of `reg_max` for NanoDet's rows of `width` numbers, most likely first.
    fn bins(&self, width: usize, tail: &OutputTail) -> Vec<usize> {
        let distances = |reg_max: usize| 4 * (reg_max + 1);
        let mut found: Vec<usize> = (1..=64).filter(|&reg_max| tail.widths.contains(&distances(reg_max))).collect();
        // One layer may output scores and distances together; then their number is inconclusive.
        found.retain(|&reg_max| width > distances(reg_max) && tail.widths.contains(&(width - distances(reg_max))));
        if let RowParts::ScoresFirst { rest, .. } = RowParts::of(tail, Some(width)) {
            found.extend((1..=64).filter(|&reg_max| rest == distances(reg_max)));
        }
        if self.named > 0 {
            found.extend((1..=64).filter(|&reg_max| width == self.named + distances(reg_max)));
        }
        found.extend([7, 10, 16]);
        found.retain(|&reg_max| width > distances(reg_max));
        found
    }
}

fn propose_from_table(evidence: &mut Evidence<'_>, output: usize, [a, b]: [Option<usize>; 2]) {
    let tail = evidence.tail(output);
    let several = evidence.facts.outputs.len() > 1;
    let masks = evidence.masks();
    // Every YOLO applies a sigmoid: scores straight from a layer, or from a softmax, belong to another network.
    let scored = !tail.seen || tail.sigmoid;
    let (rows, columns) = (RowParts::of(&tail, b), RowParts::of(&tail, a));
    let size = evidence.size;
    for (index, strides) in GRIDS.into_iter().enumerate() {
        let Some(size) = size else { break };
        let (unusual, count) = (u8::from(index > 1), cells(size, strides));
        // A walk that did not see every path may have missed the sigmoid, and a quantised graph has other operators. The
        // usual grids still indicate a YOLO, and a run shows whether its scores are valid.
        let computed = !tail.is_raw() && !tail.softmax && rows != RowParts::Other && columns != RowParts::Other;
        let scored = scored || index < 2 && (!tail.known || computed);
        let (of_cells, of_anchors) = (a == Some(count), a == Some(3 * count));
        if let Some(b) = b.filter(|_| of_cells) {
            propose_nanodet(evidence, &tail, b, strides, unusual, &format!("one row for each of {count} cells"));
        }
        if let Some(b) = b.filter(|&b| scored && of_cells && b > 5)
            && let Some(decoded) = rows.yolox_decoded(&tail)
        {
            let reason = format!("one row for each of {count} cells, objectness and {}", scores_text(b - 5));
            let spec = HeadSpec::Yolox(YoloxSpec { decoded, strides: strides.to_vec() });
            let sure = decoded || rows != RowParts::Hidden;
            let rank = if sure { 0 } else { rank_of(b - 5, 1, 4) };
            evidence.add(rank + unusual, spec, Some(b - 5), reason);
        }
        // Decoded boxes with a separate objectness: YOLOv6.
        let apart = matches!(rows, RowParts::BoxFirst { exp: false, objectness: true, .. });
        if let Some(b) = b.filter(|_| of_cells && apart && rows.may_be_yolov5(masks)) {
            propose_yolov5(evidence, &tail, b, unusual, &format!("one row for each of {count} cells"));
        }
        // The same if the graph does not show the parts.
        let hidden = rows == RowParts::Hidden && tail.known && tail.arithmetic && !tail.exp;
        if let Some(b) = b.filter(|&b| scored && of_cells && hidden && b > 5) {
            let rank = rank_of(b - 5, 3, 5) + unusual;
            propose_yolov5(evidence, &tail, b, rank, &format!("one row for each of {count} cells"));
        }
        if let Some(b) = b.filter(|&b| scored && of_anchors && b > 5 && rows.may_be_yolov5(masks)) {
            propose_yolov5(evidence, &tail, b, 1 + unusual, &format!("one row for each of {} anchors", 3 * count));
        }
        if let Some(a) = a.filter(|&a| scored && b == Some(count) && a > 4 && columns.may_be_yolov8()) {
            propose_yolov8(evidence, &tail, a, 1 + unusual, &format!("one column for each of {count} cells"));
        }
        if let Some(b) = b.filter(|&b| scored && of_cells && b > 4 && rows.may_be_yolov8()) {
            let rank = rank_of(b - 4, 2, 5) + unusual;
            propose_yolov8(evidence, &tail, b, rank, &format!("one row for each of {count} cells"));
        }
    }
    // MoveNet finds one body or six.
    match (a, b) {
        (Some(movenet::POINTS), Some(3)) => {
            evidence.add(0, HeadSpec::Movenet, Some(1), "17 points of y, x and score");
        }
        (Some(6), Some(movenet::ROW)) => {
            evidence.add(0, HeadSpec::Movenet, Some(1), "6 rows of 17 points, box and score");
        }
        _ => {}
    }
    let few = a.is_none_or(|rows| rows <= 1000);
    let chosen = rows.may_be_chosen(&tail);
    // Rows of seven numbers begin with the frame's index, and the output has no batch dimension.
    let batched = b == Some(7) && evidence.facts.outputs[output].shape.as_ref().is_none_or(|dims| dims.len() == 2);
    if chosen && few && (b == Some(6) || batched) {
        // Unfiltered rows may also come from YOLOv5 or YOLOX with one class.
        let on_grid = evidence.proposals.iter().any(|proposal| proposal.rank <= 1);
        let open = (a.is_none() || on_grid) && !batched && !tail.chosen && tail.known;
        let unit = unit_of(&tail).unwrap_or(BoxUnit::Pixels);
        let rows = a.map_or_else(String::new, |a| format!("{a} "));
        let reason = format!("{rows}rows of box, score and class");
        evidence.add(
            if open { 4 } else { 1 },
            HeadSpec::YoloNms { keypoints: None, unit, oriented: false, rows: RowsSpec::default() },
            None,
            reason,
        );
    }
    if chosen && few && b == Some(7) && !batched && tail.chosen {
        let spec =
            HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: true, rows: RowsSpec::default() };
        evidence.add(1, spec, None, "rows of centre, size, score, class and angle");
    }
    if let Some(b) = b.filter(|&b| chosen && few && b > 7 && tail.chosen)
        && let Some(points) = evidence.points(b - 6, &tail)
    {
        let unit = unit_of(&tail).unwrap_or(BoxUnit::Pixels);
        let reason = format!("rows of box, score, class and {} keypoints", points.count);
        evidence.add(
            1,
            HeadSpec::YoloNms { keypoints: Some(points), unit, oriented: false, rows: RowsSpec::default() },
            None,
            reason,
        );
    }
    let in_columns = evidence.proposals.iter().any(|p| p.spec.family() == Family::Yolov8 && a < b);
    // If the parts are in columns, the output does not consist of rows.
    let in_rows = rows != RowParts::Hidden || columns == RowParts::Hidden;
    let queries = !several && scored && !in_columns && in_rows && rows.may_be_detr(&tail);
    let least = if rows == RowParts::Hidden { 6 } else { 5 };
    if let Some((a, b)) = a.zip(b).filter(|&(a, b)| queries && a <= 1000 && b >= least) {
        let reason = format!("{a} queries of a box and {}", scores_text(b - 4));
        evidence.add(rank_of(b - 4, 2, 5), HeadSpec::Detr(BoxesSpec::default()), Some(b - 4), reason);
    }
    let rows_first = a.is_none_or(|a| b.is_some_and(|b| a > b));
    if let Some(b) = b.filter(|&b| size.is_none() && rows_first && b > 5) {
        let strides = GRIDS[0];
        let plain = a.is_none() && tail.known;
        if plain {
            propose_nanodet(evidence, &tail, b, strides, 1, "rows");
        }
        if let Some(decoded) = rows.yolox_decoded(&tail).filter(|decoded| scored && (plain || *decoded)) {
            let spec = HeadSpec::Yolox(YoloxSpec { decoded, strides: strides.to_vec() });
            evidence.add(2, spec, Some(b - 5), format!("rows of box, objectness and {}", scores_text(b - 5)));
        }
        if scored && rows.may_be_yolov5(masks) {
            propose_yolov5(evidence, &tail, b, rank_of(b - 5, 3, 6), "rows");
        }
    }
    let columns_last = b.is_none_or(|b| a.is_some_and(|a| b > a));
    if let Some(a) = a.filter(|&a| size.is_none() && scored && columns_last && a > 4 && columns.may_be_yolov8()) {
        propose_yolov8(evidence, &tail, a, 3, "columns");
    }
}

fn propose_nanodet(
    evidence: &mut Evidence<'_>,
    tail: &OutputTail,
    width: usize,
    strides: &[u32],
    unusual: u8,
    rows: &str,
) {
    let parts = RowParts::of(tail, Some(width));
    for reg_max in evidence.bins(width, tail) {
        let distances = 4 * (reg_max + 1);
        let classes = width - distances;
        if !parts.may_be_nanodet(distances) {
            continue;
        }
        let sure = matches!(parts, RowParts::ScoresFirst { .. })
            || tail.widths.contains(&distances) && tail.widths.contains(&classes);
        let rank = if sure { 0 } else { rank_of(classes, 1, 6) };
        // NanoDet-Plus has a fourth grid.
        let cell_centre = strides.len() != 4;
        let sigmoid = match parts {
            RowParts::ScoresFirst { logits, .. } => logits,
            _ => tail.known && !tail.sigmoid,
        };
        let spec = NanodetSpec { strides: strides.to_vec(), reg_max, sigmoid, cell_centre, multi_label: true };
        let reason = format!("{rows}, {} and {distances} distances", scores_text(classes));
        evidence.add(rank + unusual, HeadSpec::Nanodet(spec), Some(classes), reason);
    }
}

/// The columns of YOLOv5-face's rows.
const YOLOV5_FACE: usize = 16;

fn propose_yolov5(evidence: &mut Evidence<'_>, tail: &OutputTail, width: usize, rank: u8, rows: &str) {
    let (classes, points, masks) = match RowParts::of(tail, Some(width)) {
        // YOLOv5-face: five points and the score of the only class follow the objectness.
        RowParts::BoxFirst { scores: 1, .. } => (1, Some(FACE_POINTS), 0),
        RowParts::BoxFirst { scores, rest, rest_scored: true, .. } if rest > 0 && rest.is_multiple_of(3) => {
            (scores - 1, Some(Keypoints { count: rest / 3, scored: true }), 0)
        }
        RowParts::BoxFirst { scores, rest, .. } => (scores - 1, None, rest),
        // Hardly any other model has this many numbers.
        _ if width == YOLOV5_FACE => (1, Some(FACE_POINTS), 0),
        _ => evidence.parts(width - 5, tail),
    };
    let shown = RowParts::of(tail, Some(width)) != RowParts::Hidden;
    let scores = scores_text(classes);
    let reason = match points {
        None => format!("{rows} of box, objectness and {scores}"),
        Some(points) if shown => format!("{rows} of box, objectness, {scores} and {} keypoints", points.count),
        Some(points) => format!(
            "{rows} of box, objectness, {scores} and {} keypoints, or of {} scores without `keypoints`",
            points.count,
            width - 5
        ),
    };
    evidence.add(rank, HeadSpec::Yolov5 { keypoints: points, masks }, Some(classes), reason);
    if points.is_some() && !shown {
        let reason = format!("{rows} of box, objectness and {}", scores_text(width - 5));
        evidence.add(rank + 1, HeadSpec::Yolov5 { keypoints: None, masks: 0 }, Some(width - 5), reason);
    }
}

fn propose_yolov8(evidence: &mut Evidence<'_>, tail: &OutputTail, width: usize, rank: u8, candidates: &str) {
    let mut oriented = false;
    let (classes, keypoints, masks) = match RowParts::of(tail, Some(width)) {
        RowParts::BoxFirst { scores, rest: 0, .. } => (scores, None, 0),
        // A single number is an angle. YOLO26 outputs it straight from a layer.
        RowParts::BoxFirst { scores, rest: 1, .. } => {
            oriented = true;
            (scores, None, 0)
        }
        RowParts::BoxFirst { scores, rest, rest_raw: true, .. } if rest == evidence.masks() => (scores, None, rest),
        RowParts::BoxFirst { scores, rest, rest_raw, rest_scored, .. } => {
            let each = if rest_scored && rest.is_multiple_of(3) { 3 } else { 2 };
            if rest_raw || !rest.is_multiple_of(each) || rest < 2 * each {
                return;
            }
            (scores, Some(Keypoints { count: rest / each, scored: each == 3 }), 0)
        }
        _ => evidence.parts(width - 4, tail),
    };
    let mut rest = keypoints.map_or_else(String::new, |points| format!(" and {} keypoints", points.count));
    if oriented {
        rest = " and an angle".to_owned();
    }
    let reason = format!("{candidates}, {}{rest}", scores_text(classes));
    evidence.add(rank, HeadSpec::Yolov8 { keypoints, masks, oriented }, Some(classes), reason);
}

/// Returns the unit of boxes that the graph implies: pixels need a large factor, fractions follow directly from a sigmoid or
/// exp(x).
fn unit_of(tail: &OutputTail) -> Option<BoxUnit> {
    match tail.pixels {
        Some(true) => Some(BoxUnit::Pixels),
        Some(false) => Some(BoxUnit::Normalized),
        None if tail.known && !tail.scaled && !tail.is_raw() => Some(BoxUnit::Normalized),
        None => None,
    }
}

/// Returns "1 score" or "N scores".
fn scores_text(count: usize) -> String {
    if count == 1 { "1 score".to_owned() } else { format!("{count} scores") }
}

/// The strides of MediaPipe's detectors other than BlazeFace: full-range faces, palms, bodies.
const MEDIAPIPE_STRIDES: [&[u32]; 3] = [&[4], &[8, 16, 16, 16], &[8, 16, 32, 32, 32]];

/// The most rows of final boxes.
const MOST_FINAL: usize = 2_000;

/// Adds guesses for models with several outputs.
fn propose_from_several(evidence: &mut Evidence<'_>) {
    let ModelFacts { outputs, inputs, .. } = evidence.facts;
    let shape = |index| ModelOutputs::Declared(outputs).shape(index);
    let tables: Vec<(usize, [Option<usize>; 2])> =
        (0..outputs.len()).filter_map(|index| Some((index, shape(index).last()?))).collect();
    if propose_faces(evidence, &tables) {
        return;
    }
    if let Some(points) = keypoints_in(ModelOutputs::Declared(outputs)) {
        let unit = BoxUnit::Pixels;
        let spec = HeadSpec::YoloNms { keypoints: Some(points), unit, oriented: false, rows: RowsSpec::default() };
        let reason = format!("rows of box and score, and {} keypoints of each in another output", points.count);
        return evidence.add(1, spec, Some(1), reason);
    }
    if let Ok(Some(found)) = EndToEndOutputs::find(ModelOutputs::Declared(outputs), &BoxesSpec::default()) {
        let [rows, _] = ModelOutputs::Declared(outputs).rows_and_columns(found.boxes);
        // More rows than a model selects: these are all candidates, without suppression.
        if rows.is_none_or(|rows| rows <= MOST_FINAL) {
            propose_end_to_end(evidence, &found, inputs);
        }
        return;
    }
    propose_nanodet_split(evidence, &tables);
    // Among several tables of four columns, the name or the graph shows which one holds the boxes.
    let unlikely = |index: usize| {
        let tail = evidence.tail(index);
        let computed = !tail.softmax && (tail.format.is_some() || tail.arithmetic || tail.sigmoid);
        (!named_like(&outputs[index], "box"), tail.seen && !computed)
    };
    let fours = tables.iter().filter(|(_, [_, width])| *width == Some(4));
    let boxes = fours.min_by_key(|(index, _)| unlikely(*index));
    let scores = tables.iter().find(|(index, [rows, _])| boxes.is_some_and(|b| b.0 != *index && b.1[0] == *rows));
    if let (Some(&(boxes, [rows, _])), Some(&(scores, [_, classes]))) = (boxes, scores) {
        propose_boxes_and_scores(evidence, boxes, scores, rows, classes);
    }
    let one = tables.iter().find(|(_, [_, width])| *width == Some(1));
    let pointed = tables.iter().any(|(_, [_, width])| width.is_some_and(|w| w > 4 && w % 2 == 0));
    // The head applies the sigmoid itself.
    if let Some((_, _)) = one.filter(|(index, _)| pointed && !evidence.tail(*index).sigmoid) {
        let reason = "one score a row, and boxes with keypoints";
        evidence.add(1, HeadSpec::Blazeface(BlazefaceSpec::default()), Some(1), reason);
        for strides in MEDIAPIPE_STRIDES {
            let spec = BlazefaceSpec { strides: Some(strides.to_vec()) };
            evidence.add(1, HeadSpec::Blazeface(spec), Some(1), reason);
        }
    }
    let planes: Vec<(usize, [Option<usize>; 3])> =
        (0..outputs.len()).filter_map(|index| Some((index, shape(index).last()?))).collect();
    let count = |wanted: usize| planes.iter().filter(|(_, [c, ..])| *c == Some(wanted)).count();
    let named = |index: usize, parts: &[&str]| parts.iter().any(|part| named_like(&outputs[index], part));
    let heat = planes.iter().find(|(index, _)| named(*index, &["hm", "heat"]));
    let is_named = heat.is_some();
    let heat = heat.or_else(|| planes.iter().find(|(_, [c, ..])| !matches!(c, Some(2 | 10))));
    let Some(&(heat, [classes, lines, columns])) = heat else { return };
    // Optical flow, or a second output of a segmentation, also has two planes. So unless names identify them, sizes and
    // offsets must be two such outputs, all as large as the heat map.
    let twos =
        planes.iter().filter(|(index, [c, h, w])| *index != heat && *c == Some(2) && [*h, *w] == [lines, columns]);
    let all_sides = |&(index, [c, h, w]): &(usize, [Option<usize>; 3])| {
        index != heat && c == Some(4) && [h, w] == [lines, columns] && named(index, &["wh", "size"])
    };
    let sides = outputs.len() == 2 && is_named && planes.iter().any(all_sides);
    let two_named = twos.clone().any(|(index, _)| named(*index, &["wh", "size", "scale", "reg", "off"]));
    let sizes_and_offsets = twos.count() == 2 && matches!(outputs.len(), 3 | 4);
    if evidence.tail(heat).softmax || !(is_named && two_named || sizes_and_offsets || sides) {
        return;
    }
    let tail = evidence.tail(heat);
    let cells = lines.zip(evidence.size).filter(|(lines, size)| *lines > 0 && (size.1 as usize).is_multiple_of(*lines));
    let stride = cells.map_or(4, |(lines, size)| size.1 / lines as u32);
    let spec = |style, usual: bool| {
        let sigmoid = if tail.known { !tail.sigmoid } else { usual };
        HeadSpec::Heatmap(HeatmapSpec { style, stride, sigmoid, ..HeatmapSpec::default() })
    };
    if sides {
        return evidence.add(1, spec(HeatmapStyle::TtfNet, true), classes, "a heat map, and distances to four sides");
    }
    if classes == Some(1) && count(2) >= 2 && count(10) == 1 {
        let reason = "a heat map, sizes, offsets and ten planes of landmarks";
        evidence.add(1, spec(HeatmapStyle::CenterFace, false), Some(1), reason);
    }
    evidence.add(3, spec(HeatmapStyle::CenterNet, true), classes, "a heat map, sizes and offsets");
}

/// The strides and prior boxes of faces: the default ones, SCRFD's with five grids, and those of Face-Detector-1MB, which is
/// decoded like RetinaFace.
fn face_specs(style: FacesStyle) -> Vec<FacesSpec> {
    let usual = FacesSpec { style, ..FacesSpec::default() };
    let other = match style {
        FacesStyle::Yunet => None,
        FacesStyle::Scrfd => Some(FacesSpec { strides: vec![8, 16, 32, 64, 128], ..usual.clone() }),
        FacesStyle::Retinaface => Some(FacesSpec {
            strides: vec![8, 16, 32, 64],
            min_sizes: vec![vec![10, 16, 24], vec![32, 48], vec![64, 96], vec![128, 192, 256]],
            ..usual.clone()
        }),
    };
    std::iter::once(usual).chain(other).collect()
}

/// Adds the guess of faces with landmarks on grids, whose shapes or names no other head has. Returns whether it did.
fn propose_faces(evidence: &mut Evidence<'_>, tables: &[(usize, [Option<usize>; 2])]) -> bool {
    let of_width = |width: usize| tables.iter().filter(|(_, [_, w])| *w == Some(width)).count();
    let (scores, boxes, points) = (of_width(1), of_width(4), of_width(10));
    let size = evidence.size.unwrap_or(HeadSpec::Faces(FacesSpec::default()).usual_size());
    let paired = tables.iter().any(|(_, dims)| *dims == [Some(2 * cells(size, &[8])), Some(1)]);
    let outputs = evidence.facts.outputs;
    let named = |part: &str| outputs.iter().any(|output| named_like(output, part));
    let style = match (scores, of_width(2), boxes, points) {
        (0, 1, 1, 1) => FacesStyle::Retinaface,
        // Others have one box per cell.
        (3, 0, 3, 0) if paired => FacesStyle::Scrfd,
        (5, 0, 5, 0) => FacesStyle::Scrfd,
        (3 | 5, 0, grids, marked) if grids == scores && grids == marked => FacesStyle::Scrfd,
        (6, 0, 3, 3) => FacesStyle::Yunet,
        // Exports with open shapes use their project's own names.
        _ if outputs.len() == 3 && ["loc", "conf", "landm"].into_iter().all(named) => FacesStyle::Retinaface,
        _ if outputs.len() == 12 && ["cls_8", "obj_8", "bbox_8", "kps_8"].into_iter().all(named) => FacesStyle::Yunet,
        _ => return false,
    };
    let fits = |spec: &FacesSpec| build(&HeadSpec::Faces(spec.clone()), outputs, size, 1).is_ok();
    let Some(spec) = face_specs(style).into_iter().find(fits) else { return false };
    let name = FACES.iter().find(|(_, known)| *known == style).map_or("", |(name, _)| name);
    let reason = format!("scores, boxes and landmarks of faces as {name} gives them");
    evidence.add(0, HeadSpec::Faces(spec), Some(1), reason);
    true
}

/// Adds the guess of NanoDet with a table of scores and one of distances for each grid.
fn propose_nanodet_split(evidence: &mut Evidence<'_>, tables: &[(usize, [Option<usize>; 2])]) {
    let mut widths: Vec<usize> = tables.iter().filter_map(|(_, [_, width])| *width).collect();
    let (count, grids) = (widths.len(), tables.len() / 2);
    widths.sort_unstable();
    widths.dedup();
    let &[narrow, wide] = &widths[..] else { return };
    let of_width = |width: usize| tables.iter().filter(move |(_, [_, w])| *w == Some(width));
    if count != tables.len() || grids < 2 || of_width(narrow).count() != of_width(wide).count() {
        return;
    }
    let tail_of = |width: usize| of_width(width).map(|(index, _)| evidence.tail(*index)).collect::<Vec<_>>();
    // Distances are logits of bins; the usual number of bins takes precedence.
    let may_be = |(classes, distances): &(usize, usize)| {
        let tails = tail_of(*distances);
        let raw = tails.iter().all(|tail| !tail.seen || tail.is_raw());
        let scores = tail_of(*classes);
        let scored = scores.iter().all(|tail| !tail.seen || !tail.softmax && (tail.sigmoid || tail.is_raw()));
        distances.is_multiple_of(4) && (8..=260).contains(distances) && raw && scored
    };
    let mut ways: Vec<(usize, usize)> = [(narrow, wide), (wide, narrow)].into_iter().filter(may_be).collect();
    ways.sort_by_key(|(_, distances)| ![32, 44, 68].contains(distances));
    let Some(&(classes, distances)) = ways.first() else { return };
    let strides = GRIDS.into_iter().find(|strides| {
        let fits = |(stride, rows): (&u32, Option<usize>)| match (evidence.size, rows) {
            (Some(size), Some(rows)) => rows == cells(size, &[*stride]),
            _ => true,
        };
        let rows = |width: usize| of_width(width).map(|(_, [rows, _])| *rows);
        strides.len() == grids && [classes, distances].iter().all(|width| strides.iter().zip(rows(*width)).all(fits))
    });
    let Some(strides) = strides else { return };
    let sigmoid = tail_of(classes).iter().any(|tail| tail.known && !tail.sigmoid);
    let (reg_max, cell_centre) = (distances / 4 - 1, strides.len() != 4);
    let spec = NanodetSpec { strides: strides.to_vec(), reg_max, sigmoid, cell_centre, multi_label: true };
    let reason = format!("{} and {distances} distances for each cell of {grids} grids", scores_text(classes));
    evidence.add(0, HeadSpec::Nanodet(spec), Some(classes), reason);
}

fn named_like(output: &TensorInfo, part: &str) -> bool {
    output.name.to_ascii_lowercase().contains(part)
}

fn propose_end_to_end(evidence: &mut Evidence<'_>, found: &EndToEndOutputs, inputs: &[TensorInfo]) {
    let reason = "final boxes, scores and classes";
    let outputs = evidence.facts.outputs;
    let counted = found.count.is_some();
    let deployed = inputs.iter().any(|i| i.name.contains("target_size"));
    let tail = evidence.tail(found.boxes);
    // TensorFlow's detection API: y comes first, as fractions of the input, and labels are numbered like COCO's annotations.
    let tensorflow = named_like(&outputs[found.boxes], "detection_boxes");
    if counted && !tensorflow {
        let unit = unit_of(&tail).unwrap_or(BoxUnit::Pixels);
        evidence.add(
            1,
            HeadSpec::YoloNms { keypoints: None, unit, oriented: false, rows: RowsSpec::default() },
            None,
            reason,
        );
    }
    let unit = unit_of(&tail);
    if deployed {
        let spec = BoxesSpec { unit, ..BoxesSpec::default() };
        evidence.add(1, HeadSpec::Detr(spec), None, reason);
    }
    let rank = if counted && !tensorflow || deployed { 3 } else { 1 };
    let spec = if tensorflow {
        BoxesSpec { format: Some(BoxFormat::Yxyx), unit: Some(BoxUnit::Normalized), ..BoxesSpec::default() }
    } else {
        BoxesSpec { unit, ..BoxesSpec::default() }
    };
    evidence.add(rank, HeadSpec::Ssd(spec), None, reason);
    if !deployed && outputs[found.labels].dtype == DType::I64 {
        evidence.add(2, HeadSpec::Detr(BoxesSpec { unit, ..BoxesSpec::default() }), None, reason);
    }
}

/// The queries of DETR, with COCO's classes, a no-object class and a softmax. Its successors have 300 queries and sigmoids.
const DETR_QUERIES: usize = 100;
const DETR_SCORES: usize = 92;

/// The numbers of classes of VOC, COCO and Objects365, without the background.
const FULL: [usize; 3] = [20, 80, 365];

fn propose_boxes_and_scores(
    evidence: &mut Evidence<'_>,
    boxes: usize,
    scores: usize,
    rows: Option<usize>,
    width: Option<usize>,
) {
    let reason = "boxes, and scores for each of them";
    let (box_tail, score_tail) = (evidence.tail(boxes), evidence.tail(scores));
    // Offsets from anchors, which no head decodes.
    if box_tail.is_raw() {
        return;
    }
    let few = rows.is_none_or(|rows| rows <= 1000);
    let made = |tail: &OutputTail| match (tail.softmax, tail.sigmoid) {
        (true, _) => Some(Activation::Softmax),
        (_, true) => Some(Activation::Sigmoid),
        _ => None,
    };
    let real = |background: Background| {
        let others = usize::from(background != Background::None);
        width.map(|width| width.saturating_sub(others)).filter(|classes| *classes > 0)
    };
    let unit = unit_of(&box_tail);
    let outputs = evidence.facts.outputs;
    // If the names are inconclusive, a head uses the first table of four columns as the boxes.
    let fours = |index: &usize| four_columns(ModelOutputs::Declared(outputs).shape(*index));
    let fours: Vec<usize> = (0..outputs.len()).filter(fours).collect();
    let hinted = fours.iter().find(|index| named_like(&outputs[**index], "box")).or(fours.first());
    let named = |index: usize| (hinted != Some(&boxes)).then(|| outputs[index].name.clone());
    // Queries: logits unless the graph shows otherwise.
    let softmax = match made(&score_tail) {
        Some(activation) => activation == Activation::Softmax,
        None => score_tail.known && (rows == Some(DETR_QUERIES) || width == Some(DETR_SCORES)),
    };
    let applied = made(&score_tail).map(|_| Activation::None);
    let own = if softmax { Activation::Softmax } else { Activation::Sigmoid };
    let background = if softmax { Background::Last } else { Background::None };
    let format = box_tail.format.filter(|format| *format != BoxFormat::Cxcywh);
    let activation = applied.unwrap_or(own);
    let queries = BoxesSpec {
        activation: (activation != Activation::Sigmoid || score_tail.known).then_some(activation),
        background: softmax.then_some(background),
        format,
        unit,
        boxes: named(boxes),
        scores: named(scores),
        ..BoxesSpec::default()
    };
    // Queries have centres and sizes; boxes whose corners the graph computes are an SSD's.
    let few = few && format.is_none();
    // Only a name shows whether the four numbers are centre and size, or corners.
    let called = |index: usize, parts: &[&str]| parts.iter().any(|part| named_like(&outputs[index], part));
    let is_detr = called(boxes, &["pred_boxes", "dets"]) || called(scores, &["logit"]);
    let second = if few && !is_detr && box_tail.format.is_none() { 1 } else { 2 };
    evidence.add(if few { 1 } else { 3 }, HeadSpec::Detr(queries), real(background), reason);
    // An SSD's first score is the background's, unless each score has its own sigmoid.
    let sigmoid = made(&score_tail) == Some(Activation::Sigmoid);
    let logits = score_tail.is_raw();
    // The same applies if there are exactly as many scores as a data set has classes, as in YOLO-NAS.
    let is_full = made(&score_tail).is_none() && !logits && width.is_some_and(|width| FULL.contains(&width));
    let background = if sigmoid || is_full || width == Some(1) { Background::None } else { Background::First };
    let anchors = BoxesSpec {
        activation: logits.then_some(if background == Background::None {
            Activation::Sigmoid
        } else {
            Activation::Softmax
        }),
        background: (background != Background::None).then_some(background),
        format: box_tail.format,
        unit,
        boxes: named(boxes),
        scores: named(scores),
        ..BoxesSpec::default()
    };
    evidence.add(if few { second } else { 1 }, HeadSpec::Ssd(anchors), real(background), reason);
}

fn propose_classifier(evidence: &mut Evidence<'_>) {
    let Some(Some(classes @ 2..)) = ModelOutputs::Declared(evidence.facts.outputs).shape(0).vector() else { return };
    if is_rows(evidence.facts) {
        return;
    }
    let tail = evidence.tail(0);
    // A softmax written as exp(x) divided by its sum.
    let scored = tail.softmax || tail.sigmoid || tail.exp && tail.scaled;
    if !scored && (tail.embedded || tail.seen && named_like_no_scores(&evidence.facts.outputs[0].name)) {
        return;
    }
    // If the last operator is unknown, the head checks the numbers.
    let activation = match (scored, tail.known) {
        (true, _) => Some(Activation::None),
        (false, true) => Some(Activation::Softmax),
        (false, false) => None,
    };
    let spec = HeadSpec::Classifier { activation, background: Background::None };
    evidence.add(1, spec, Some(classes), format!("one row of {classes} scores"));
}

/// Whether the first output has one row per object instead of one per frame: rows as wide as box, score and class, whose
/// count is open while the batch is fixed or has a different name.
fn is_rows(facts: ModelFacts<'_>) -> bool {
    let first = |info: Option<&TensorInfo>| info.and_then(|info| info.shape.as_ref()?.first().cloned());
    let width = facts.outputs.first().and_then(|output| output.shape.as_ref()?.last()?.fixed());
    let batch = picture(facts.inputs).filter(|info| info.shape.as_ref().is_some_and(|dims| dims.len() == 4));
    match (first(batch), first(facts.outputs.first())) {
        _ if !matches!(width, Some(6 | 7)) => false,
        (Some(Dim::Fixed(_)), Some(Dim::Dynamic(_))) => true,
        (Some(Dim::Dynamic(batch)), Some(Dim::Dynamic(rows))) => batch != rows && !batch.is_empty() && !rows.is_empty(),
        _ => false,
    }
}

/// The fewest cells of a map of classes or texts.
const LEAST_CELLS: usize = 4;

/// Whether these can be the sides of a map of the image.
fn are_of_map(sides: [Option<usize>; 2], size: Option<(u32, u32)>) -> bool {
    let enough = sides.iter().all(|side| side.is_none_or(|side| side >= LEAST_CELLS));
    enough && size.is_none_or(|size| covers(sides, size))
}

/// Whether the name of an output indicates a segmentation.
fn named_like_map(output: &TensorInfo) -> bool {
    ["seg", "semantic", "logit", "argmax"].iter().any(|part| named_like(output, part))
}

/// Adds the guess of a map of integer class numbers, if the first output is one. Returns whether it did, because no other
/// head reads only integers.
fn propose_class_numbers(evidence: &mut Evidence<'_>) -> bool {
    let Some(output) = evidence.facts.outputs.first() else { return false };
    let shape = ModelOutputs::Declared(evidence.facts.outputs).shape(0);
    let sides = match (shape.last::<2>().filter(|_| !shape.has_rank(2)), shape.last::<3>()) {
        (None, Some([height, width, Some(1)])) => [height, width],
        (Some(sides), _) => sides,
        _ => return false,
    };
    let is_known = sides.iter().all(Option::is_some) && evidence.size.is_some();
    let is_integer = matches!(output.dtype, DType::U8 | DType::I8 | DType::I32 | DType::I64);
    let found = is_integer && are_of_map(sides, evidence.size) && (is_known || named_like_map(output));
    if found {
        let spec = HeadSpec::Semantic { activation: None, background: Background::None };
        evidence.add(1, spec, None, "the number of a class for each cell of a map");
    }
    found
}

/// Adds the guess of a map of class scores.
///
/// Feature maps, images, optical flow and heat maps of joints also have planes, so a softmax, the output's name, or many
/// planes of the input's size must indicate scores.
fn propose_class_scores(evidence: &mut Evidence<'_>) {
    let outputs = evidence.facts.outputs;
    for (index, output) in outputs.iter().enumerate() {
        let shape = ModelOutputs::Declared(outputs).shape(index);
        let Some([a, b, c]) = shape.last::<3>().filter(|_| !shape.has_rank(3)) else { continue };
        let tail = evidence.tail(index);
        let size = evidence.size.map(|(width, height)| [height, width].map(|side| Some(side as usize)));
        for (classes, sides) in [(a, [b, c]), (c, [a, b])] {
            let Some(classes) = classes.filter(|classes| *classes > 1 && are_of_map(sides, evidence.size)) else {
                continue;
            };
            let many = classes > 4 && (Some(sides) == size || output.name.eq_ignore_ascii_case("out"));
            if !(tail.softmax || many || named_like_map(output)) || tail.embedded {
                continue;
            }
            let activation = match (tail.softmax || tail.sigmoid, tail.known) {
                (true, _) => Some(Activation::None),
                (_, true) => Some(Activation::Softmax),
                _ => None,
            };
            let spec = HeadSpec::Semantic { activation, background: Background::None };
            return evidence.add(2, spec, Some(classes), format!("{} for each cell of a map", scores_text(classes)));
        }
    }
}

/// Adds the guess of a text map: one plane of probabilities, as large as the input. Depth, mattes and masks are also planes,
/// so the last operator must be a sigmoid and the name must not indicate one of these, or the name must be PaddleOCR's.
/// Returns whether it did, because no table is as large as the input.
fn propose_db_text(evidence: &mut Evidence<'_>) -> bool {
    let [output] = evidence.facts.outputs else { return false };
    let shape = ModelOutputs::Declared(evidence.facts.outputs).shape(0);
    let Some(sides) = shape.last::<2>().filter(|_| shape.has_rank(4)) else { return false };
    let is_whole = evidence.size.is_none_or(|(width, height)| {
        [height, width].iter().zip(sides).all(|(wanted, side)| side.is_none_or(|side| side == *wanted as usize))
    });
    let is_float = matches!(output.dtype, DType::F32 | DType::F16);
    let is_other = ["depth", "disp", "mask", "alpha", "matte", "salien", "seg", "heat"];
    let is_other = is_other.iter().any(|part| named_like(output, part));
    let tail = evidence.tail(0);
    // `sigmoid_0.tmp_0` of paddle2onnx, because engines have no operators to examine.
    let scored = tail.sigmoid || !tail.seen && named_like(output, "sigmoid");
    let found = is_whole && is_float && scored && !is_other;
    if found {
        let spec = HeadSpec::DbText(DbTextSpec::default());
        evidence.add(3, spec, Some(1), "a probability for each pixel of the input");
    }
    found
}

/// Adds the guess of a person's points. Returns whether it did, because no other head reads such outputs.
fn propose_pose(evidence: &mut Evidence<'_>) -> bool {
    let kind = kind_of(ModelOutputs::Declared(evidence.facts.outputs), evidence.size);
    let reason = match kind {
        Some(PoseKind::Axes) => "scores of places on both axes for each point of a person",
        // A softmax over planes indicates classes.
        Some(PoseKind::Maps) if !evidence.tail(0).softmax => "a heat map for each point of a person",
        _ => return false,
    };
    evidence.add(0, HeadSpec::Pose, Some(1), reason);
    true
}

/// Returns the heads that fit the outputs for an input of `size`, most likely first. `named` is the number of classes that a
/// card names, or 0.
pub(super) fn proposals(facts: ModelFacts<'_>, size: Option<(u32, u32)>, named: usize) -> Vec<HeadProposal> {
    let outputs = facts.outputs;
    let mut evidence = Evidence { facts, size, named, proposals: Vec::new() };
    // A single row is a classifier's output, not a table.
    let is_table = |(index, output): (usize, &TensorInfo)| {
        let [a, b] = two_dimensions(output)?;
        let fixed = a.or(b).is_some() && a != Some(1);
        (fixed && !(outputs.len() > 1 && four_columns(ModelOutputs::Declared(outputs).shape(index))))
            .then_some((index, [a, b]))
    };
    let is_map = propose_class_numbers(&mut evidence) || propose_db_text(&mut evidence) || propose_pose(&mut evidence);
    if let Some((index, dims)) = outputs.iter().enumerate().find_map(is_table).filter(|_| !is_map) {
        propose_from_table(&mut evidence, index, dims);
    }
    if outputs.len() > 1 && !is_map {
        propose_from_several(&mut evidence);
    }
    if evidence.proposals.is_empty() {
        propose_class_scores(&mut evidence);
    }
    if evidence.proposals.is_empty() && outputs.len() == 1 {
        propose_classifier(&mut evidence);
    }
    let values = guess_values(outputs, facts.tails, evidence.proposals.is_empty());
    values.into_iter().for_each(|(spec, reason)| evidence.add(0, spec, None, reason));
    let mut proposals = evidence.proposals;
    proposals.sort_by_key(|proposal| proposal.rank);
    proposals.retain_mut(|proposal| {
        let size = size.unwrap_or_else(|| likely_size(&proposal.spec, facts.inputs));
        let classes = proposal.classes.unwrap_or(0);
        let fits = build(&proposal.spec, outputs, size, classes).is_ok();
        let Some(unread) = fits.then(|| unread(&proposal.spec, classes, outputs, size)).flatten() else { return false };
        if !unread.is_empty() {
            let names: Vec<String> = unread.iter().map(|&index| format!("`{}`", outputs[index].name)).collect();
            proposal.reason += &format!("; it does not read {}", names.join(", "));
        }
        true
    });
    proposals
}

/// A rank after all others.
const LAST: u8 = u8::MAX;

/// Returns the heads that fit a model's outputs, most likely first.
///
/// These are guesses: several families have the same shapes, and nothing shows how the image must be scaled. A known export
/// is read as its exporter specifies, or by no head.
pub fn guess_heads(facts: ModelFacts<'_>) -> Vec<HeadGuess> {
    let ModelFacts { inputs, outputs, metadata, .. } = facts;
    let size = picture_size(inputs);
    let mut guesses = Vec::new();
    match crate::ultralytics::card(metadata, inputs, outputs) {
        Some(Ok(card)) => guesses.push(HeadGuess {
            family: card.head.family(),
            class_count: (!card.classes.is_empty()).then_some(card.classes.len()),
            reason: "its Ultralytics metadata says so: it needs no card".to_owned(),
            tied: false,
            card: card_text(&card.head, Some(card.classes.len()), facts, card.input.size, None),
        }),
        // Oriented boxes have the same shape as other outputs.
        Some(Err(UltralyticsError::Task(_))) => return guesses,
        Some(Err(_)) | None => {}
    }
    let export = guesses.is_empty().then(|| recognise(facts)).flatten();
    let mut fitting = proposals(facts, size, 0);
    match export.as_ref().map(|export| (&export.reading, export.exporter)) {
        Some((Reading::Refused, _)) => return guesses,
        Some((Reading::Head(spec, classes), exporter)) => {
            fitting.retain(|other| other.spec.family() == spec.family());
            let known = HeadProposal {
                rank: 0,
                spec: spec.clone(),
                classes: *classes,
                reason: format!("the export of {exporter}"),
            };
            let size = size.unwrap_or_else(|| likely_size(spec, inputs));
            if build(spec, outputs, size, classes.unwrap_or(0)).is_ok() {
                fitting = vec![known];
            }
        }
        Some((Reading::Also(spec), exporter)) => {
            let reason = format!("the export of {exporter}");
            let also = HeadProposal { rank: LAST, spec: spec.clone(), classes: None, reason };
            let size = size.unwrap_or_else(|| likely_size(spec, inputs));
            // The parts of a YOLO's row do not contain a class chosen by the graph.
            let shown = outputs.iter().any(|output| {
                let width = output.shape.as_ref().and_then(|dims| dims.last()?.fixed());
                let tail = facts.tails.get(&output.name);
                tail.is_some_and(|tail| !matches!(RowParts::of(tail, width), RowParts::Hidden | RowParts::Other))
            });
            fitting.extend((!shown && build(spec, outputs, size, 0).is_ok()).then_some(also));
        }
        Some((Reading::Guessed | Reading::Hint, _)) | None => {}
    }
    let least = fitting.first().map(|first| first.rank);
    let first = fitting.first().map(|first| first.spec.family());
    let tie = fitting.iter().any(|other| Some(other.rank) == least && Some(other.spec.family()) != first);
    for HeadProposal { rank, spec, classes, reason } in fitting {
        let family = spec.family();
        if guesses.iter().all(|g: &HeadGuess| g.family != family) {
            let card = card_text(&spec, classes, facts, None, export.as_ref());
            guesses.push(HeadGuess { family, class_count: classes, reason, tied: tie && Some(rank) == least, card });
        }
    }
    guesses
}

#[cfg(test)]
pub(super) mod tests;
