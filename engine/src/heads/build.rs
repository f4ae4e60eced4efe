//! Creates the head that a card names.

use super::attributes::Attributes;
use super::blazeface::Blazeface;
use super::boxes_and_scores::BoxesAndScores;
use super::classifier::Classifier;
use super::darknet::Darknet;
use super::db_text::DbText;
use super::depth::Depth;
use super::depth_map::DepthReducer;
use super::embedding::Embedding;
use super::faces::Faces;
use super::fomo::Fomo;
use super::head::{Head, HeadError, checked};
use super::heatmap::Heatmap;
use super::movenet::Movenet;
use super::nanodet::Nanodet;
use super::pose::Pose;
use super::semantic::Semantic;
use super::spec::{HeadSpec, Keypoints};
use super::yolo_nms::YoloNms;
use super::yolov5::Yolov5;
use super::yolov8::Yolov8;
use crate::backend::TensorInfo;

/// Creates the head that the card names and checks it against the model's declared outputs.
///
/// Dynamic dimensions fit anything. If an input's declared shape was replaced, the declared dimensions of the outputs are no
/// longer valid: pass them as dynamic. `class_count` is the number of named classes; 0 derives it from the shape.
pub fn build(
    spec: &HeadSpec,
    outputs: &[TensorInfo],
    size: (u32, u32),
    class_count: usize,
) -> Result<Box<dyn Head>, HeadError> {
    let family = spec.family().name();
    let some_points = |keypoints: Option<Keypoints>| keypoints.filter(|k| k.count > 0);
    match spec.clone() {
        HeadSpec::Yolov5 { keypoints, masks } => {
            let keypoints = some_points(keypoints);
            checked(Yolov5 { class_count, keypoints, masks, strides: None, is_yolox: false }, family, outputs, size)
        }
        HeadSpec::Yolov8 { keypoints, masks, oriented } => {
            checked(Yolov8 { class_count, keypoints: some_points(keypoints), masks, oriented }, family, outputs, size)
        }
        HeadSpec::YoloNms { keypoints, unit, oriented, rows } => {
            let keypoints = some_points(keypoints);
            checked(YoloNms { keypoints, unit, class_count, oriented, rows }, family, outputs, size)
        }
        HeadSpec::Yolox(spec) => {
            let strides = (!spec.decoded).then_some(spec.strides);
            checked(Yolov5 { class_count, keypoints: None, masks: 0, strides, is_yolox: true }, family, outputs, size)
        }
        HeadSpec::Darknet(spec) => checked(Darknet { class_count, spec }, family, outputs, size),
        HeadSpec::Nanodet(spec) => checked(Nanodet { class_count, spec }, family, outputs, size),
        HeadSpec::Ssd(spec) => checked(BoxesAndScores::new(class_count, spec, false), family, outputs, size),
        HeadSpec::Detr(spec) => checked(BoxesAndScores::new(class_count, spec, true), family, outputs, size),
        HeadSpec::Heatmap(spec) => checked(Heatmap { class_count, spec }, family, outputs, size),
        HeadSpec::Blazeface(spec) => checked(Blazeface { class_count, spec }, family, outputs, size),
        HeadSpec::Faces(spec) => checked(Faces { class_count, spec }, family, outputs, size),
        HeadSpec::Fomo => checked(Fomo { class_count, objects: Vec::new() }, family, outputs, size),
        HeadSpec::Movenet => checked(Movenet { class_count }, family, outputs, size),
        HeadSpec::Pose => checked(Pose { class_count }, family, outputs, size),
        HeadSpec::Semantic { activation, background } => {
            checked(Semantic::new(class_count, activation, background), family, outputs, size)
        }
        HeadSpec::DbText(spec) => checked(DbText::new(class_count, spec), family, outputs, size),
        HeadSpec::Classifier { activation, background } => {
            checked(Classifier { class_count, activation, background, scores: Vec::new() }, family, outputs, size)
        }
        HeadSpec::Attributes(attributes) => checked(Attributes::new(class_count, attributes), family, outputs, size),
        HeadSpec::Embedding { output, normalize } => {
            checked(Embedding { class_count, output, normalize }, family, outputs, size)
        }
        HeadSpec::Depth(spec) => {
            checked(Depth { class_count, spec, reducer: DepthReducer::default() }, family, outputs, size)
        }
    }
}
