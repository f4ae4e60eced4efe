//! Guesses which heads fit a model, from the shapes of its outputs: for `inspect`, and for the error about a missing card.

use std::collections::BTreeMap;

use visiond_kernels::tensor::DType;

use super::build::build;
use super::end_to_end::EndToEndOutputs;
use super::outputs::{ModelOutputs, two_dimensions};
use super::spec::{
    Background, BlazefaceSpec, BoxUnit, BoxesSpec, Family, HeadSpec, HeatmapSpec, HeatmapStyle, NanodetSpec, YoloxSpec,
};
use crate::backend::{TensorInfo, picture_size};

/// A head that fits a model's outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadGuess {
    /// The family.
    pub family: Family,
    /// The number of classes that the shape has room for, if known.
    pub class_count: Option<usize>,
    /// Why it fits, in words.
    pub reason: String,
    /// A card to start from, in TOML.
    pub card: String,
}

/// A guess before it is tried.
struct HeadProposal {
    /// A smaller rank is likelier.
    rank: u8,
    spec: HeadSpec,
    options: String,
    classes: Option<usize>,
    reason: String,
}

fn cells(size: (u32, u32), strides: &[u32]) -> usize {
    strides.iter().map(|&s| (size.0.div_ceil(s) as usize) * (size.1.div_ceil(s) as usize)).sum()
}

/// Returns `usual` if the number of classes is a common one, otherwise `unusual`.
fn rank_of(classes: usize, usual: u8, unusual: u8) -> u8 {
    if matches!(classes, 1 | 20 | 80 | 90 | 91 | 365) { usual } else { unusual }
}

fn propose_from_table(a: usize, b: usize, size: Option<(u32, u32)>, several: bool, proposals: &mut Vec<HeadProposal>) {
    let mut add = |rank, spec, options: &str, classes: Option<usize>, reason: String| {
        proposals.push(HeadProposal { rank, spec, options: options.to_owned(), classes, reason });
    };
    let grids: [&[u32]; 2] = [&[8, 16, 32], &[8, 16, 32, 64]];
    if let Some(size) = size {
        for strides in grids {
            let count = cells(size, strides);
            for reg_max in [7, 10, 16] {
                let distances = 4 * (reg_max + 1);
                if a == count && b > distances {
                    let classes = b - distances;
                    let plus = strides.len() == 4;
                    let spec = NanodetSpec { strides: strides.to_vec(), reg_max, sigmoid: false, cell_centre: !plus };
                    let options = format!("strides = {strides:?}\nreg_max = {reg_max}\ncell_centre = {}\n", !plus);
                    let reason =
                        format!("one row for each of {count} cells, {classes} scores and {distances} distances");
                    add(rank_of(classes, 1, 6), HeadSpec::Nanodet(spec), &options, Some(classes), reason);
                }
            }
            if a == count && b > 5 {
                let spec = HeadSpec::Yolox(YoloxSpec { decoded: false, strides: strides.to_vec() });
                let options = if strides.len() == 4 { "strides = [8, 16, 32, 64]\n" } else { "" };
                let reason = format!("one row for each of {count} cells, objectness and {} scores", b - 5);
                add(rank_of(b - 5, 1, 4), spec, options, Some(b - 5), reason);
            }
            if a == 3 * count && b > 5 {
                let reason = format!("one row for each of {a} anchors, objectness and {} scores", b - 5);
                add(1, HeadSpec::Yolov5 { masks: 0 }, "", Some(b - 5), reason);
            }
            if b == count && a > 4 {
                let reason = format!("one column for each of {count} cells, {} scores", a - 4);
                add(1, HeadSpec::Yolov8 { keypoints: None, masks: 0 }, "", Some(a - 4), reason);
            }
            if a == count && b > 4 {
                let reason = format!("one row for each of {count} cells, {} scores", b - 4);
                add(rank_of(b - 4, 2, 5), HeadSpec::Yolov8 { keypoints: None, masks: 0 }, "", Some(b - 4), reason);
            }
        }
    }
    if (b == 6 || b == 7) && a <= 1000 {
        let reason = format!("{a} rows of box, score and class");
        add(1, HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels }, "", None, reason);
    }
    if !several && a <= 1000 && b > 5 {
        let reason = format!("{a} queries of a box and {} scores", b - 4);
        add(rank_of(b - 4, 2, 5), HeadSpec::Detr(BoxesSpec::default()), "", Some(b - 4), reason);
    }
    if size.is_none() && a > b && b > 5 {
        let reason = format!("rows of box, objectness and {} scores", b - 5);
        add(rank_of(b - 5, 3, 6), HeadSpec::Yolov5 { masks: 0 }, "", Some(b - 5), reason);
    }
    if size.is_none() && b > a && a > 4 {
        let reason = format!("columns of box and {} scores", a - 4);
        add(3, HeadSpec::Yolov8 { keypoints: None, masks: 0 }, "", Some(a - 4), reason);
    }
}

/// The strides of MediaPipe's detectors other than BlazeFace: full-range faces, palms, bodies.
const MEDIAPIPE_STRIDES: [&[u32]; 3] = [&[4], &[8, 16, 16, 16], &[8, 16, 32, 32, 32]];

/// Adds guesses for models with several outputs.
fn propose_from_several(outputs: &[TensorInfo], inputs: &[TensorInfo], proposals: &mut Vec<HeadProposal>) {
    let mut add = |rank, spec, options: &str, classes: Option<usize>, reason: &str| {
        proposals.push(HeadProposal { rank, spec, options: options.to_owned(), classes, reason: reason.to_owned() });
    };
    if let Ok(Some(found)) = EndToEndOutputs::find(ModelOutputs::Declared(outputs), &BoxesSpec::default()) {
        let reason = "final boxes, scores and classes";
        let counted = found.count.is_some();
        let deployed = inputs.iter().any(|i| i.name.contains("target_size"));
        if counted {
            add(1, HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels }, "", None, reason);
        }
        if deployed {
            add(1, HeadSpec::Detr(BoxesSpec::default()), "", None, reason);
        }
        let integers = outputs[found.labels].dtype == DType::I64;
        add(if counted || deployed { 3 } else { 1 }, HeadSpec::Ssd(BoxesSpec::default()), "", None, reason);
        if !deployed && integers {
            add(2, HeadSpec::Detr(BoxesSpec::default()), "", None, reason);
        }
        return;
    }
    let shapes = || (0..outputs.len()).map(|index| ModelOutputs::Declared(outputs).shape(index));
    let tables: Vec<[Option<usize>; 2]> = shapes().filter_map(|shape| shape.last()).collect();
    let boxes = tables.iter().find(|[_, width]| *width == Some(4));
    let scores = tables.iter().find(|[rows, width]| *width != Some(4) && boxes.is_some_and(|b| b[0] == *rows));
    if let (Some([rows, _]), Some([_, classes])) = (boxes, scores) {
        let few = rows.is_some_and(|rows| rows <= 1000);
        let reason = "boxes, and scores for each of them";
        add(if few { 1 } else { 3 }, HeadSpec::Detr(BoxesSpec::default()), "", *classes, reason);
        let spec = BoxesSpec { background: Some(Background::First), ..BoxesSpec::default() };
        let real = classes.map(|n| n.saturating_sub(1));
        add(if few { 2 } else { 1 }, HeadSpec::Ssd(spec), "background = \"first\"\n", real, reason);
    }
    let pointed = tables.iter().any(|[_, width]| width.is_some_and(|w| w > 4 && w % 2 == 0));
    if pointed && tables.iter().any(|[_, width]| *width == Some(1)) {
        let reason = "one score a row, and boxes with keypoints";
        add(1, HeadSpec::Blazeface(BlazefaceSpec::default()), "", Some(1), reason);
        for strides in MEDIAPIPE_STRIDES {
            let spec = BlazefaceSpec { strides: Some(strides.to_vec()) };
            add(1, HeadSpec::Blazeface(spec), &format!("strides = {strides:?}\n"), Some(1), reason);
        }
    }
    let heat = |style, sigmoid| HeadSpec::Heatmap(HeatmapSpec { style, stride: 4, sigmoid, ..HeatmapSpec::default() });
    let planes: Vec<Option<usize>> = shapes().filter_map(|shape| shape.last::<3>()).map(|[c, ..]| c).collect();
    if planes.len() >= 3 && planes.contains(&Some(2)) {
        if planes.contains(&Some(1)) && planes.contains(&Some(10)) {
            let reason = "a heat map, sizes, offsets and ten planes of landmarks";
            add(1, heat(HeatmapStyle::CenterFace, false), "style = \"centerface\"\n", Some(1), reason);
        }
        let classes = planes.iter().copied().find(|c| *c != Some(2)).flatten();
        let reason = "a heat map, sizes and offsets";
        add(3, heat(HeatmapStyle::CenterNet, true), "style = \"centernet\"\n", classes, reason);
    }
}

/// Returns a card to start from.
fn card_text(family: Family, options: &str, classes: Option<usize>, size: Option<(u32, u32)>) -> String {
    let size = match size {
        None => "[input]\nsize = [640, 640]  # width, height: the model leaves them open\n\n",
        Some(_) => "",
    };
    let classes = match classes {
        Some(n @ (80 | 91)) => format!("preset = \"coco{n}\"  # or names = [...], or file = \"names.txt\""),
        Some(1) => "names = [\"object\"]  # the name of its one class".to_owned(),
        Some(n) => format!("file = \"names.txt\"  # the names of its {n} classes, one a line; or names = [...]"),
        None => "file = \"names.txt\"  # the names of its classes, one a line; or names = [...]".to_owned(),
    };
    format!("{size}[head]\nfamily = \"{}\"\n{options}\n[classes]\n{classes}\n", family.name())
}

/// Returns the heads that fit a model's outputs, the likeliest first.
///
/// These are guesses: several families have the same shapes, and no shape shows how the picture must be scaled.
pub fn guess_heads(
    outputs: &[TensorInfo],
    inputs: &[TensorInfo],
    metadata: &BTreeMap<String, String>,
) -> Vec<HeadGuess> {
    let size = picture_size(inputs);
    let mut guesses = Vec::new();
    if let Some(Ok(card)) = crate::ultralytics::card(metadata, inputs, outputs) {
        let family = card.head.family();
        guesses.push(HeadGuess {
            family,
            class_count: (!card.classes.is_empty()).then_some(card.classes.len()),
            reason: "its Ultralytics metadata says so: it needs no card".to_owned(),
            card: card_text(family, "", Some(card.classes.len()), Some((0, 0))),
        });
    }
    let mut proposals = Vec::new();
    // A single row is a classifier's output, not a table.
    let is_table = |output| two_dimensions(output).and_then(|[a, b]| a.filter(|a| *a > 1).zip(b));
    if let Some((a, b)) = outputs.iter().find_map(is_table) {
        propose_from_table(a, b, size, outputs.len() > 1, &mut proposals);
    }
    if outputs.len() > 1 {
        propose_from_several(outputs, inputs, &mut proposals);
    }
    if proposals.is_empty()
        && outputs.len() == 1
        && let Some(Some(classes @ 2..)) = ModelOutputs::Declared(outputs).shape(0).vector()
    {
        proposals.push(HeadProposal {
            rank: 1,
            spec: HeadSpec::Classifier { activation: None, background: Background::None },
            options: String::new(),
            classes: Some(classes),
            reason: format!("one row of {classes} scores"),
        });
    }
    proposals.sort_by_key(|proposal| proposal.rank);
    for proposal in proposals {
        let family = proposal.spec.family();
        let fits = build(&proposal.spec, outputs, size.unwrap_or((640, 640)), proposal.classes.unwrap_or(0)).is_ok();
        if fits && guesses.iter().all(|g: &HeadGuess| g.family != family) {
            let card = card_text(family, &proposal.options, proposal.classes, size);
            guesses.push(HeadGuess { family, class_count: proposal.classes, reason: proposal.reason, card });
        }
    }
    guesses
}
