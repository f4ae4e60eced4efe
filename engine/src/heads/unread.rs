//! Which outputs of a model a head leaves unread, and whether that is right.
//!
//! A head that reads two of three outputs may be the wrong one: if a third output has landmarks, boxes and scores belong to a
//! face detector, whose boxes are offsets. So a guess must explain every output.

use super::build::build;
use super::end_to_end::EndToEndOutputs;
use super::outputs::{ModelOutputs, two_dimensions};
use super::spec::{BoxesSpec, Family, HeadSpec, HeatmapStyle};
use crate::backend::{Dim, TensorInfo};

/// The strides of the grids whose raw layers some exports output in addition to the decoded boxes.
const STRIDES: [u32; 4] = [8, 16, 32, 64];

/// More outputs than any head reads.
const MAX_OUTPUTS: usize = 64;

/// Returns the outputs that a head does not need, and whether it may leave them unread; `None` if they contradict it.
pub(super) fn unread(spec: &HeadSpec, classes: usize, outputs: &[TensorInfo], size: (u32, u32)) -> Option<Vec<usize>> {
    if outputs.len() < 2 {
        return Some(Vec::new());
    }
    if outputs.len() > MAX_OUTPUTS {
        return None;
    }
    // Cards for values of the frame name their outputs, and a network may have more outputs than those.
    if matches!(spec.family(), Family::Attributes | Family::Embedding | Family::Depth) {
        return Some(Vec::new());
    }
    // These read an output if there is one, so an unread output proves nothing.
    if let HeadSpec::Heatmap(heatmap) = spec {
        let most = match heatmap.style {
            HeatmapStyle::TtfNet | HeatmapStyle::DetectNet => 2,
            HeatmapStyle::CenterNet => 3,
            HeatmapStyle::CenterFace => 4,
        };
        return (outputs.len() <= most).then(Vec::new);
    }
    if matches!(spec, HeadSpec::Ssd(_) | HeadSpec::Detr(_) | HeadSpec::YoloNms { .. })
        && let Ok(Some(found)) = EndToEndOutputs::find(ModelOutputs::Declared(outputs), &names_of(spec))
    {
        let masks = |kept: &[usize]| {
            let outputs: Vec<TensorInfo> = kept.iter().map(|&index| outputs[index].clone()).collect();
            build(spec, &outputs, size, classes).is_ok_and(|head| head.masks(&outputs, size).is_some())
        };
        let all: Vec<usize> = (0..outputs.len()).collect();
        let mut rest: Vec<usize> = all.iter().copied().filter(|&index| !found.reads(index)).collect();
        let has_masks = masks(&all);
        let without = |index: usize| all.iter().copied().filter(|&other| other != index).collect::<Vec<_>>();
        rest.retain(|&index| !has_masks || masks(&without(index)));
        let harmless = |&index: &usize| is_harmless(spec, outputs, index, &[], size);
        return rest.iter().all(harmless).then_some(rest);
    }
    let of = |kept: &[usize]| kept.iter().map(|&index| outputs[index].clone()).collect::<Vec<_>>();
    let reads = |kept: &[usize]| {
        // One output alone is another layout of this family, and does not prove that the others are unread.
        if matches!(spec, HeadSpec::Ssd(_)) && kept.len() == 1 {
            return None;
        }
        let outputs = of(kept);
        let head = build(spec, &outputs, size, classes).ok()?;
        Some((head.masks(&outputs, size).is_some(), head.keypoints()))
    };
    let mut kept: Vec<usize> = (0..outputs.len()).collect();
    let all = reads(&kept)?;
    let mut unread = Vec::new();
    // If either of two outputs would fit, the head takes the first.
    for index in (0..outputs.len()).rev() {
        let fewer: Vec<usize> = kept.iter().copied().filter(|&other| other != index).collect();
        if !fewer.is_empty() && reads(&fewer) == Some(all) {
            kept = fewer;
            unread.push(index);
        }
    }
    unread.retain(|&index| !is_count(outputs, index));
    unread.reverse();
    let harmless = |index: &usize| is_harmless(spec, outputs, *index, &kept, size);
    unread.iter().all(harmless).then_some(unread)
}

/// Returns the output names in the card of such a head.
fn names_of(spec: &HeadSpec) -> BoxesSpec {
    match spec {
        HeadSpec::Ssd(spec) | HeadSpec::Detr(spec) => spec.clone(),
        _ => BoxesSpec::default(),
    }
}

/// Whether an output is the number of valid rows, which heads read if there is one.
fn is_count(outputs: &[TensorInfo], index: usize) -> bool {
    let one = ModelOutputs::Declared(outputs).shape(index).vector();
    one.is_some_and(|length| length.is_none_or(|length| length == 1))
        && outputs[index].name.to_ascii_lowercase().contains("num")
}

/// Whether an unread output is consistent with a head.
fn is_harmless(spec: &HeadSpec, outputs: &[TensorInfo], index: usize, read: &[usize], size: (u32, u32)) -> bool {
    /// The other outputs of TensorFlow's detection API, and the indices of a suppression whose input is read.
    const KNOWN: [&str; 5] = [
        "raw_detection_boxes",
        "raw_detection_scores",
        "detection_anchor_indices",
        "detection_multiclass_scores",
        "selected_indices",
    ];
    let output = &outputs[index];
    if KNOWN.contains(&output.name.as_str()) {
        return true;
    }
    // YOLOv9 also outputs the boxes of its auxiliary branch.
    let is_twin = |&other: &usize| {
        outputs[other].shape.is_some() && outputs[other].shape == output.shape && outputs[other].dtype == output.dtype
    };
    let grids = matches!(spec.family(), Family::Yolov5 | Family::Yolov8 | Family::YoloNms | Family::Yolox);
    match spec.family() {
        Family::Yolov5 | Family::Yolov8 if read.iter().any(is_twin) => true,
        // A multi-task network may also output a class map.
        Family::Semantic => true,
        _ => grids && (is_layer(output, size) || two_dimensions(output).is_none() && is_open(output)),
    }
}

fn is_open(output: &TensorInfo) -> bool {
    output.shape.as_ref().is_some_and(|dims| dims.len() > 3 && dims.iter().skip(2).all(|dim| dim.fixed().is_none()))
}

/// Whether an output is the layer of a grid before its decoding: `[1, channels, h, w]`, or `[1, 3, h, w, numbers]` of YOLOv5.
fn is_layer(output: &TensorInfo, (width, height): (u32, u32)) -> bool {
    let dims: Vec<Option<usize>> = output.shape.iter().flatten().map(Dim::fixed).collect();
    let sides = match dims[..] {
        [_, Some(3), lines, columns, Some(6..)] | [_, Some(5..), lines, columns] => [lines, columns],
        _ => return false,
    };
    STRIDES.iter().any(|&stride| {
        let grid = [height.div_ceil(stride) as usize, width.div_ceil(stride) as usize];
        sides.iter().zip(grid).all(|(side, cells)| side.is_none_or(|side| side == cells))
    })
}
