//! The placement of an image by each framework, and the mapping of boxes back, compared with the frameworks' own code:
//! tests/golden/placement.py.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

use visiond_engine::card::Card;
use visiond_kernels::placement::{AxisMap, Mapping};

/// Each framework of the golden file, and the `[input]` that feeds like it.
const FRAMEWORKS: [(&str, &str); 23] = [
    ("ultralytics", r#"preprocess = "ultralytics""#),
    ("ultralytics-8.4.173", r#"preprocess = "ultralytics-8.4""#),
    ("ultralytics-8.4.24", r#"preprocess = "ultralytics-8.0""#),
    ("ultralytics-8.0.107", r#"preprocess = "yolov5""#),
    ("ultralytics-classify", r#"preprocess = "ultralytics-classify""#),
    ("yolov5", r#"preprocess = "yolov5""#),
    ("megvii-yolox", r#"preprocess = "megvii-yolox""#),
    ("mmdet", r#"preprocess = "mmdet""#),
    ("damo-yolo", r#"preprocess = "damo-yolo""#),
    ("nanodet", r#"preprocess = "nanodet""#),
    ("centernet", r#"preprocess = "centernet""#),
    ("centerface", r#"preprocess = "centerface""#),
    ("nudenet", r#"preprocess = "nudenet""#),
    ("mediapipe", r#"preprocess = "mediapipe""#),
    ("stretch", r#"preprocess = "rt-detr""#),
    ("detr", r#"preprocess = "detr""#),
    ("paddle", r#"preprocess = "paddle""#),
    ("caffe", r#"preprocess = "caffe""#),
    ("torchvision-classification", r#"preprocess = "torchvision""#),
    ("torchvision-classification-v2", "preprocess = \"torchvision\"\nresize = 232"),
    ("timm-0.9", "preprocess = \"timm\"\ncrop_fraction = 0.9"),
    ("timm-0.95", "preprocess = \"timm\"\ncrop_fraction = 0.95"),
    ("d-fine-letterbox", "fit = \"letterbox\"\nrounding = \"down\"\nway_back = \"ratio\""),
];

/// These choose the input's size by the image's, or do not fill it.
const NOT_PLACED: [&str; 3] = ["yolo-nas", "torchvision-detection", "paddle-keep-ratio"];

/// What the order of a formula's steps may change.
const LAST_BITS: f64 = 4.0 * f64::EPSILON;

fn close(found: f64, wanted: f64, largest: f64) -> bool {
    (found - wanted).abs() <= LAST_BITS * largest
}

/// Where the resized image begins in the input: negative where only a part of it is used.
fn begins(axis: &AxisMap) -> f64 {
    if axis.warped { -axis.from / axis.step } else { f64::from(axis.at) - f64::from(axis.first) }
}

/// Its size in the input.
fn resized(axis: &AxisMap) -> f64 {
    if axis.warped {
        f64::from(axis.source) / axis.step
    } else {
        f64::from(axis.resized) * f64::from(axis.source) / f64::from(axis.canvas)
    }
}

#[test]
fn every_framework_puts_pictures_and_boxes_where_its_own_code_does() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/placement.txt");
    let golden = std::fs::read_to_string(golden).unwrap();
    let inputs: BTreeMap<&str, &str> = FRAMEWORKS.into();
    let mut cases = BTreeMap::new();
    for line in golden.lines() {
        let mut fields = line.split(' ');
        let framework = fields.next().unwrap();
        if NOT_PLACED.contains(&framework) {
            continue;
        }
        let input = inputs[framework];
        let card = format!("[head]\nfamily = \"ssd\"\n[input]\n{input}\n");
        let placement = Card::from_toml(&card, Path::new("golden.toml")).unwrap().input.placement;
        let numbers: Vec<f64> = fields.by_ref().take(8).map(|number| number.parse().unwrap()).collect();
        let [sw, sh, iw, ih, width, height, left, top] = numbers[..] else { panic!("{line}") };
        let mapping = Mapping::new(placement, (sw as u32, sh as u32), (iw as u32, ih as u32));
        let largest = sw.max(sh).max(iw).max(ih) * 2.0;
        for (axis, size, start) in [(&mapping.axes()[0], width, left), (&mapping.axes()[1], height, top)] {
            assert!(close(resized(axis), size, largest), "{line}: {axis:?} is resized to {}", resized(axis));
            assert!(close(begins(axis), start, largest), "{line}: {axis:?} begins at {}", begins(axis));
        }
        for point in fields {
            let (from, to) = point.split_once('>').unwrap();
            let pair = |text: &str| {
                let (x, y) = text.split_once(',').unwrap();
                (x.parse::<f64>().unwrap(), y.parse::<f64>().unwrap())
            };
            let ((x, y), wanted) = (pair(from), pair(to));
            let found = mapping.to_source(x, y);
            let same = close(found.0, wanted.0, largest) && close(found.1, wanted.1, largest);
            assert!(same, "{line}: {x}, {y} comes back as {found:?}, not as {wanted:?}");
        }
        *cases.entry(framework).or_insert(0) += 1;
    }
    assert_eq!(cases.len(), FRAMEWORKS.len(), "{cases:?}");
    assert!(cases.values().all(|&count| count == 40), "{cases:?}");
}
