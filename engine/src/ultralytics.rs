//! Creates a card from the metadata in Ultralytics' exports.
//!
//! All keys are text (ultralytics `engine/exporter.py`): `author` ("Ultralytics"), `description` ("Ultralytics YOLO11n model
//! trained on coco.yaml"), `task`, `names` (a Python dict: `{0: 'person', 1: 'bicycle'}`), `stride`, `imgsz` (`[height,
//! width]`), `channels`, `version` (`8.4.190`), `kpt_shape` (`[17, 3]`), `kpt_names` (`{0: ['nose', 'left_eye', ...]}`),
//! `end2end`, `args` (`{'batch': 1, 'nms': True}`).
//!
//! Other exporters also write `names`, `task` and `imgsz`, for boxes in another form (LibreYOLO's YOLOv9 has corners in
//! columns). So only `author`, or a `description` that begins with Ultralytics, shows that a file is theirs. YOLOv5
//! (`export.py`), whose form YOLOv9 and Ultralytics' first versions share, writes exactly `names` and `stride`: any third key
//! means another exporter.
//!
//! The head follows from task and output shape:
//! | task | output | head |
//! |---|---|---|
//! | detect | `[1, 4 + classes, N]` | yolov8 |
//! | detect | `[1, N, 5 + classes]` | yolov5 |
//! | detect | `[1, N, 6]`, end to end or `nms=True` | yolo-nms |
//! | detect | `[1, Q, 4 + classes]` | detr (Ultralytics' RT-DETR up to 8.4.46), stretched |
//! | detect | `[1, Q, 6]` of the head RTDETRDecoder | yolo-nms of centre, size, score, class (RT-DETR since), stretched |
//! | pose | as detect, plus `kpt_shape` numbers | with keypoints |
//! | segment | as detect, plus mask coefficients; then `[1, 32, H, W]` | with masks |
//! | obb | as detect, plus an angle | with `oriented` |
//! | classify | `[1, classes]` | classifier, the centre of the frame |
//!
//! Images are RGB divided by 255, letterboxed with grey (114) bars. How boxes map back to the frame depends on `version`:
//! Ultralytics changed it three times (`scale_boxes` in ultralytics/utils/ops.py).

mod python;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use visiond_kernels::preprocess::ChannelOrder;

use self::python::PythonValue;
use crate::backend::{TensorInfo, picture_size};
use crate::card::{Card, InputCard, KeypointCard, MAX_NAME_CHARS, Way, is_too_long};
use crate::heads::spec::{BoxUnit, BoxesSpec, Column, HeadSpec, Keypoints, RowsSpec};
use crate::heads::{Family, two_dimensions};

/// Why an export's metadata cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UltralyticsError {
    /// A value cannot be read.
    #[error("its Ultralytics metadata is damaged: `{key}` is {shown}, {problem}: write a model card")]
    Value {
        /// The key of the value.
        key: &'static str,
        /// The start of the value.
        shown: String,
        /// The reason, as the end of a sentence.
        problem: String,
    },
    /// The task is unknown.
    #[error(
        "its Ultralytics task is `{0}`, which visiond does not support: \
         it reads detect, segment, pose, obb and classify; export such a model, or write a model card"
    )]
    Task(String),
    /// The outputs do not fit the task and the number of classes.
    #[error(
        "its Ultralytics metadata says task `{0}` and {1} classes, but its outputs do not fit: \
         write a model card (`visiond inspect` shows which heads fit)"
    )]
    Shape(String, usize),
}

/// The mask coefficients of YOLOv5's segmentation models, whose metadata does not name the task.
const YOLOV5_MASKS: usize = 32;

/// The minimum score of every detector, RT-DETR included: `conf` in ultralytics `engine/predictor.py`.
const YOLO_SCORE: f32 = 0.25;

/// A limit for the number of classes.
const MOST_CLASSES: usize = 100_000;

fn damaged(key: &'static str, text: &str, problem: impl Into<String>) -> UltralyticsError {
    let mut shown: String = text.chars().take(40).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    UltralyticsError::Value { key, shown: format!("{shown:?}"), problem: problem.into() }
}

fn read(metadata: &BTreeMap<String, String>, key: &'static str) -> Option<Result<PythonValue, UltralyticsError>> {
    let text = metadata.get(key)?;
    Some(python::parse(text).map_err(|problem| damaged(key, text, problem)))
}

fn names(metadata: &BTreeMap<String, String>) -> Result<Vec<String>, UltralyticsError> {
    let text = metadata.get("names").map_or("", String::as_str);
    let wrong = |problem: &str| damaged("names", text, problem);
    let numbered: Vec<(i64, PythonValue)> = match python::parse(text).map_err(|problem| wrong(&problem))? {
        PythonValue::List(values) => (0..).zip(values).collect(),
        PythonValue::Dict(pairs) => pairs
            .into_iter()
            .map(|(key, value)| match key {
                PythonValue::Int(number) => Ok((number, value)),
                PythonValue::Text(text) => Ok((text.parse().map_err(|_| wrong("whose keys are not numbers"))?, value)),
                _ => Err(wrong("whose keys are not numbers")),
            })
            .collect::<Result<_, _>>()?,
        _ => return Err(wrong("not a dict of names")),
    };
    let mut names = Vec::new();
    for (number, value) in numbered {
        let index = usize::try_from(number).ok().filter(|&n| n < MOST_CLASSES);
        let index = index.ok_or_else(|| wrong("with an impossible class number"))?;
        let name = match value {
            PythonValue::Text(name) => name,
            PythonValue::Int(number) => number.to_string(),
            _ => return Err(wrong("with a class name that is not text")),
        };
        if is_too_long(&name) {
            return Err(wrong(&format!("with a class name of more than {MAX_NAME_CHARS} characters")));
        }
        while names.len() <= index {
            names.push(names.len().to_string());
        }
        names[index] = name;
    }
    if names.is_empty() {
        return Err(wrong("which names no class"));
    }
    Ok(names)
}

fn keypoints(metadata: &BTreeMap<String, String>) -> Result<Keypoints, UltralyticsError> {
    let text = metadata.get("kpt_shape").map_or("", String::as_str);
    let wrong = || damaged("kpt_shape", text, "not a number of points and 2 or 3, as in [17, 3]");
    match python::parse(text).map_err(|problem| damaged("kpt_shape", text, problem))? {
        PythonValue::List(values) => match values[..] {
            [PythonValue::Int(count @ 1..=1000), PythonValue::Int(each @ 2..=3)] => {
                Ok(Keypoints { count: count as usize, scored: each == 3 })
            }
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// Returns the names of a pose model's points: of `kpt_names`, `{0: ['nose', ...]}`, which newer versions write for each class,
/// otherwise COCO's of 17 points. Names that differ between classes, or whose number is wrong, are left out.
fn keypoint_names(metadata: &BTreeMap<String, String>, count: usize) -> KeypointCard {
    let text = |value: PythonValue| match value {
        PythonValue::Text(name) => Some(name).filter(|name| !is_too_long(name)),
        _ => None,
    };
    let list = |value: PythonValue| match value {
        PythonValue::List(names) if names.len() == count => names.into_iter().map(text).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let named = match read(metadata, "kpt_names") {
        Some(Ok(PythonValue::Dict(classes))) => {
            let mut lists: Vec<_> = classes.into_iter().map(|(_, names)| list(names)).collect();
            lists.dedup();
            if let [Some(_)] = lists[..] { lists.pop().flatten() } else { None }
        }
        _ => None,
    };
    match named.map(KeypointCard::with_names) {
        Some(KeypointCard { names: None, .. }) | None if count == 17 => KeypointCard::coco(),
        found => found.unwrap_or_default(),
    }
}

/// Reads width and height.
fn image_size(metadata: &BTreeMap<String, String>) -> Result<Option<(u32, u32)>, UltralyticsError> {
    let Some(value) = read(metadata, "imgsz") else { return Ok(None) };
    let text = metadata.get("imgsz").map_or("", String::as_str);
    let side = |number: i64| u32::try_from(number).ok().filter(|n| (1..=16_384).contains(n));
    let size = match value? {
        PythonValue::Int(both) => side(both).map(|s| (s, s)),
        PythonValue::List(values) => match values[..] {
            [PythonValue::Int(both)] => side(both).map(|s| (s, s)),
            [PythonValue::Int(height), PythonValue::Int(width)] => side(width).zip(side(height)),
            _ => None,
        },
        _ => None,
    };
    size.map(Some).ok_or_else(|| damaged("imgsz", text, "not a height and a width in pixels, as in [640, 640]"))
}

/// Whether the metadata says that the export has NMS inside.
fn suppresses(metadata: &BTreeMap<String, String>) -> bool {
    let says = |value: &PythonValue| matches!(value, PythonValue::Bool(true) | PythonValue::Int(1));
    let own = read(metadata, "end2end").is_some_and(|v| v.as_ref().is_ok_and(says));
    let asked = match read(metadata, "args") {
        Some(Ok(PythonValue::Dict(pairs))) => pairs.iter().any(|(key, value)| {
            matches!(key, PythonValue::Text(key) if key == "nms" || key == "end2end") && says(value)
        }),
        _ => false,
    };
    own || asked
}

/// Returns the head of a model that finds boxes.
fn boxes_head(
    metadata: &BTreeMap<String, String>,
    outputs: &[TensorInfo],
    classes: usize,
    task: &str,
) -> Result<HeadSpec, UltralyticsError> {
    let refused = || UltralyticsError::Shape(task.to_owned(), classes);
    let points = if task == "pose" { Some(keypoints(metadata)?) } else { None };
    let oriented = task == "obb";
    let extra = points.map_or(0, |k| k.values()) + usize::from(oriented);
    let segment = task == "segment";
    let described = metadata.get("description").map_or("", String::as_str).to_ascii_lowercase();
    let [a, b] = outputs.iter().find_map(two_dimensions).ok_or_else(refused)?;
    let few = a.is_none_or(|rows| rows <= 1000);
    let suppressed =
        HeadSpec::YoloNms { keypoints: points, unit: BoxUnit::Pixels, oriented, rows: RowsSpec::default() };
    let rows_of_choice = b.is_some_and(|b| b == 6 + extra || (segment && b > 6));
    let decoder = metadata.get("head").is_some_and(|head| head.trim() == "RTDETRDecoder");
    if decoder || described.contains("rt-detr") || described.contains("rtdetr") {
        let chosen = version(metadata).is_some_and(|version| version >= RT_DETR_CHOOSES);
        // With two classes, both have six numbers.
        let rows = b.map_or(chosen, |b| b == 6 && (classes != 2 || chosen));
        return Ok(if rows { rt_detr_rows() } else { HeadSpec::Detr(BoxesSpec::default()) });
    }
    if suppresses(metadata) && (b.is_none() || rows_of_choice) {
        return Ok(suppressed);
    }
    let v8_width = 4 + classes + extra;
    match (a, b) {
        // The mask coefficients of segmentation models follow the classes and fill the rest of the width.
        (Some(width), _) if segment && width > v8_width && b.is_none_or(|rows| rows > width) => {
            Ok(HeadSpec::Yolov8 { keypoints: None, masks: width - v8_width, oriented })
        }
        (Some(width), _) if width == v8_width && b.is_none_or(|rows| rows > 6) => {
            Ok(HeadSpec::Yolov8 { keypoints: points, masks: 0, oriented })
        }
        (_, Some(b)) if few && b == 6 + extra => Ok(suppressed),
        (_, Some(_)) if oriented => Err(refused()),
        (_, Some(b)) if points.is_none() && b == 5 + classes => Ok(HeadSpec::Yolov5 { keypoints: None, masks: 0 }),
        (_, Some(b)) if points.is_none() && b == 5 + classes + YOLOV5_MASKS => {
            Ok(HeadSpec::Yolov5 { keypoints: None, masks: YOLOV5_MASKS })
        }
        (_, Some(b)) if few && segment && b > 6 => Ok(suppressed),
        (_, Some(b)) if few && points.is_none() && b == 4 + classes => Ok(HeadSpec::Detr(BoxesSpec::default())),
        (None, None) => Ok(HeadSpec::Yolov8 { keypoints: points, masks: 0, oriented }),
        _ => Err(refused()),
    }
}

/// The first version whose RT-DETR outputs the best pairs of query and class: `RTDETRDecoder.postprocess`.
const RT_DETR_CHOOSES: (u32, u32, u32) = (8, 4, 47);

/// Returns the head of RT-DETR's rows: centre, size, score, class, in fractions of the input.
fn rt_detr_rows() -> HeadSpec {
    use Column::{CenterX, CenterY, Class, Height, Score, Width};
    let columns = Some(vec![CenterX, CenterY, Width, Height, Score, Class]);
    let rows = RowsSpec { columns, ..RowsSpec::default() };
    HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Normalized, oriented: false, rows }
}

/// Returns the version that wrote the metadata; `None` if there is none or it cannot be read.
fn version(metadata: &BTreeMap<String, String>) -> Option<(u32, u32, u32)> {
    let mut numbers = metadata.get("version")?.trim().split('.').map_while(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next()?, numbers.next()?);
    Some((major, minor, numbers.next().unwrap_or(0)))
}

/// Returns the preprocess and box mapping of the exporter's version.
///
/// YOLOv5 writes no version. One that cannot be read counts as the newest.
fn boxes_way(metadata: &BTreeMap<String, String>) -> Way {
    if !metadata.contains_key("version") {
        return if is_by_ultralytics(metadata) { Way::ULTRALYTICS } else { Way::YOLOV5 };
    }
    let Some(version) = version(metadata) else { return Way::ULTRALYTICS };
    match version {
        version if version <= (8, 0, 107) => Way::YOLOV5,
        version if version <= (8, 4, 24) => Way::ULTRALYTICS_8_0,
        version if version <= (8, 4, 173) => Way::ULTRALYTICS_8_4,
        _ => Way::ULTRALYTICS,
    }
}

/// Creates the card from the metadata of an Ultralytics export; `None` if there is no such metadata.
pub fn card(
    metadata: &BTreeMap<String, String>,
    inputs: &[TensorInfo],
    outputs: &[TensorInfo],
) -> Option<Result<Card, UltralyticsError>> {
    let by_ultralytics = is_by_ultralytics(metadata) && metadata.contains_key("names");
    let is_yolov5 = metadata.keys().map(String::as_str).eq(["names", "stride"]);
    let made = (by_ultralytics || is_yolov5).then(|| make(metadata, inputs, outputs))?;
    // Only these two keys identify YOLOv5, so the outputs must match as well.
    let fits = |card: &Card| matches!(card.head.family(), Family::Yolov5 | Family::Yolov8);
    (by_ultralytics || made.as_ref().is_ok_and(fits)).then_some(made)
}

/// Whether the metadata names Ultralytics as its writer.
fn is_by_ultralytics(metadata: &BTreeMap<String, String>) -> bool {
    let says = |key: &str, fits: fn(&str) -> bool| metadata.get(key).is_some_and(|text| fits(text.trim()));
    says("author", |author| author == "Ultralytics")
        || says("description", |description| description.starts_with("Ultralytics "))
}

/// Returns the class names under the metadata's key `names`, a dict or a list, by any writer; `None` if there are
/// none or they cannot be read.
pub(crate) fn class_names(metadata: &BTreeMap<String, String>) -> Option<Vec<String>> {
    metadata.get("names").and_then(|_| names(metadata).ok())
}

fn make(
    metadata: &BTreeMap<String, String>,
    inputs: &[TensorInfo],
    outputs: &[TensorInfo],
) -> Result<Card, UltralyticsError> {
    let task = metadata.get("task").map_or("detect", |task| task.trim());
    let classes = names(metadata)?;
    let head = match task {
        "detect" | "pose" | "segment" | "obb" => boxes_head(metadata, outputs, classes.len(), task)?,
        "classify" => HeadSpec::Classifier { activation: None, background: Default::default() },
        other => return Err(UltralyticsError::Task(other.to_owned())),
    };
    let way = match head.family() {
        Family::Classifier => Way::ULTRALYTICS_CLASSIFY,
        Family::Detr => Way::STRETCH,
        _ if head == rt_detr_rows() => Way::STRETCH,
        _ => boxes_way(metadata),
    };
    let grey = metadata.get("channels").is_some_and(|channels| channels.trim() == "1");
    let size = if picture_size(inputs).is_some() { None } else { image_size(metadata)? };
    let description = metadata.get("description").map_or("", |d| d.trim());
    let name = description.strip_prefix("Ultralytics ").unwrap_or(description).split(" model").next().unwrap_or("");
    let keypoints = match &head {
        HeadSpec::Yolov8 { keypoints: Some(points), .. } | HeadSpec::YoloNms { keypoints: Some(points), .. } => {
            keypoint_names(metadata, points.count)
        }
        _ => KeypointCard::default(),
    };
    let card = Card::with_head(head);
    Ok(Card {
        keypoints,
        name: if name.is_empty() { "ultralytics".to_owned() } else { name.to_owned() },
        origin: "its Ultralytics metadata".to_owned(),
        input: InputCard { size, order: if grey { ChannelOrder::Grey } else { ChannelOrder::Rgb }, ..way.input() },
        classes,
        score_threshold: if card.head.family() == Family::Detr { YOLO_SCORE } else { card.score_threshold },
        ..card
    })
}
