//! The head that a card asks for.

use super::decoder::{Checked, Decoder};
use super::head::{Head, HeadError};
use super::spec::{HeadSpec, Keypoints};
use super::{blazeface, classifier, detr, heatmap, nanodet, ssd, yolo_nms, yolov5, yolov8, yolox};
use crate::backend::TensorInfo;

/// Makes the head that the card asks for and checks it against the outputs that the model declares.
///
/// Dynamic dimensions fit anything. If an input's declared shape was replaced, the declared dimensions of the outputs are no
/// longer valid: pass them as dynamic. `class_count` is the number of named classes; 0 uses what the shape says.
pub fn build(
    spec: &HeadSpec,
    outputs: &[TensorInfo],
    input_size: (u32, u32),
    class_count: usize,
) -> Result<Box<dyn Head>, HeadError> {
    fn checked<D: Decoder + 'static>(
        decoder: D,
        outputs: &[TensorInfo],
        input_size: (u32, u32),
    ) -> Result<Box<dyn Head>, HeadError> {
        let mut head = Checked { decoder, needs_nms: true };
        head.needs_nms = D::needs_nms(&head.layout(&outputs, input_size)?);
        Ok(Box::new(head))
    }
    let some_points = |keypoints: Option<Keypoints>| keypoints.filter(|k| k.count > 0);
    match spec {
        &HeadSpec::Yolov5 { masks } => checked(yolov5::Yolov5 { class_count, masks }, outputs, input_size),
        &HeadSpec::Yolov8 { keypoints, masks } => {
            checked(yolov8::Yolov8 { class_count, keypoints: some_points(keypoints), masks }, outputs, input_size)
        }
        &HeadSpec::YoloNms { keypoints, unit } => {
            checked(yolo_nms::YoloNms { keypoints: some_points(keypoints), unit }, outputs, input_size)
        }
        HeadSpec::Yolox(spec) => checked(yolox::Yolox { class_count, spec: spec.clone() }, outputs, input_size),
        HeadSpec::Nanodet(spec) => checked(nanodet::Nanodet { class_count, spec: spec.clone() }, outputs, input_size),
        HeadSpec::Ssd(spec) => checked(ssd::Ssd::new(class_count, spec.clone()), outputs, input_size),
        HeadSpec::Detr(spec) => checked(detr::Detr::new(class_count, spec.clone()), outputs, input_size),
        HeadSpec::Heatmap(spec) => checked(heatmap::Heatmap { class_count, spec: spec.clone() }, outputs, input_size),
        HeadSpec::Blazeface(spec) => {
            checked(blazeface::Blazeface { class_count, spec: spec.clone() }, outputs, input_size)
        }
        &HeadSpec::Classifier { activation, background } => {
            checked(classifier::Classifier::new(class_count, activation, background), outputs, input_size)
        }
    }
}
