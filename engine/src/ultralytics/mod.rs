//! Makes a card of the metadata in Ultralytics' exports.
//!
//! All keys are text (ultralytics `engine/exporter.py`): `author` ("Ultralytics"), `description` ("Ultralytics YOLO11n model
//! trained on coco.yaml"), `task`, `names` (a Python dict: `{0: 'person', 1: 'bicycle'}`), `stride`, `imgsz` (`[height,
//! width]`), `channels`, `kpt_shape` (`[17, 3]`), `end2end`, `args` (`{'batch': 1, 'nms': True}`). YOLOv5 writes only `names`
//! and `stride`.
//!
//! The head follows from task and output shape:
//! | task | output | head |
//! |---|---|---|
//! | detect | `[1, 4 + classes, N]` | yolov8 |
//! | detect | `[1, N, 5 + classes]` | yolov5 |
//! | detect | `[1, N, 6]`, end to end or `nms=True` | yolo-nms |
//! | detect | `[1, Q, 4 + classes]` | detr (Ultralytics' RT-DETR), stretched |
//! | pose | as detect, and `kpt_shape` numbers more | with keypoints |
//! | segment | as detect, and mask coefficients more | boxes only: the masks are not read |
//! | classify | `[1, classes]` | classifier, the centre of the frame |
//!
//! Pictures are RGB divided by 255, letterboxed with grey (114) bars.

mod metadata;
mod python;
#[cfg(test)]
mod tests;

pub use metadata::{UltralyticsError, card};
