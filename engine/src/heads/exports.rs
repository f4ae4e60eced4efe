//! Recognises a model's exporter: by metadata that only this exporter writes, or by outputs whose names and shapes only this
//! exporter gives.
//!
//! Names alone or shapes alone prove nothing, so a rule needs both, or a metadata key that only the exporter writes. An
//! export whose boxes no head can read is rejected even if a head of another family fits its shapes. The sources are the
//! exporters' own code:
//!
//! - LibreYOLO: `libreyolo/export/exporter.py`, `export/nms.py`, `models/yolo9/utils.py`, `models/yolox/utils.py`.
//! - Azure Custom Vision and Windows ML: `Image.*` of onnx `docs/MetadataProps.md`; `predict.py` in Custom Vision's exports.
//! - InsightFace `detection/scrfd/tools/scrfd2onnx.py`; opencv_zoo `face_detection_yunet`; biubug6/Pytorch_Retinaface
//!   `convert_to_onnx.py`; deepcam-cn/yolov5-face `export.py`; WongKinYiu/yolov7 (branch pose) `models/export.py`.
//! - zylo117/Yet-Another-EfficientDet-Pytorch; google/automl `efficientdet/tf2/postprocess.py`,
//!   `generate_detections_from_nms_output`.
//! - Caffe SSD `src/caffe/layers/detection_output_layer.cpp`; OpenVINO `DetectionOutput-8`; deepstream_tao_apps
//!   `nvdsinfer_custombboxparser_tao`, `NvDsInferParseCustomNMSTLT`.
//! - Tianxiaomo/pytorch-YOLOv4 `tool/darknet2onnx.py`; ultralytics/yolov3 (archive) `models.py`, `ONNX_EXPORT`;
//!   marcoslucianops/DeepStream-Yolo `utils`.
//! - YOLOv5 `models/yolov5n.yaml`; YOLOv7 has other anchors in the same layers; jkjung-avt/tensorrt_demos `yolo/yolo_to_onnx.py`,
//!   whose
//!   outputs have the numbers of Darknet's layers.
//! - KerasCV `models/object_detection/yolo_v8`; MultimediaTechLab/YOLO `yolo/model/module.py`,
//!   `yolo/utils/deploy_utils.py`.
//! - Edge Impulse's FOMO: edge-impulse-sdk `classifier/ei_fill_result_struct.h`; the names are those of TensorFlow's saved models.
//! - NVIDIA TAO's DetectNet_v2; PaddleDetection `deploy/EXPORT_MODEL.md`; onnx/models `yolov3-10`, `ssd-10`; quic/ai-hub-models.
//! - mmdeploy `configs/mmpose/pose-detection_rtmo_onnxruntime_dynamic.py`; the preprocess is that of Tau-J/rtmlib
//!   `tools/pose_estimation/rtmo.py`.
//! - YOLO-World and YOLOE with prompts: the programs that export ultralytics' `WorldModel` with the input `txt_feats`;
//!   wkentaro/yolo-world-onnx `export_onnx.py`.
//! - torchvision `models/detection`: class 0 is the background. transformers `DetrImageProcessor`.

use std::collections::BTreeMap;

use visiond_kernels::tensor::DType;

use super::anchors;
use super::boxes_and_scores::EFFICIENTDET_D7;
use super::model_facts::ModelFacts;
use super::outputs::ModelOutputs;
use super::pose::{PoseKind, kind_of};
use super::spec::{
    Activation, AnchorKind, Background, BoxFormat, BoxUnit, BoxesSpec, Column, DarknetSpec, GridStyle, HeadSpec,
    HeatmapSpec, HeatmapStyle, NanodetSpec, RowsSpec, YoloxSpec,
};
use crate::backend::{Dim, TensorInfo, one_line, picture_size};

/// A model's exporter, and how visiond reads the export.
#[derive(Debug, Clone, PartialEq)]
pub struct Export {
    /// The exporter, such as "LibreYOLO".
    pub exporter: &'static str,
    /// The information for the user, as a clause: what the outputs are, and the remedy if no head reads them.
    pub note: String,
    pub(super) reading: Reading,
    /// Lines for a card's `[input]` that follow from the export.
    pub(super) input: Vec<String>,
}

/// How the outputs of an export are read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reading {
    /// By their shapes.
    Guessed,
    /// By this head, with this number of classes.
    Head(HeadSpec, Option<usize>),
    /// By this head, if a run does not contradict it; other heads fit as well.
    Also(HeadSpec),
    /// By their shapes; if those are inconclusive, the exporter explains why.
    Hint,
    /// By no head, regardless of the shapes.
    Refused,
}

impl Export {
    fn named(exporter: &'static str, reading: Reading, note: &str) -> Self {
        Self { exporter, note: note.to_owned(), reading, input: Vec::new() }
    }

    fn refused(exporter: &'static str, note: &str) -> Option<Self> {
        Some(Self::named(exporter, Reading::Refused, note))
    }

    /// Whether it only explains why no head fits.
    pub fn is_hint(&self) -> bool {
        self.reading == Reading::Hint
    }

    /// Whether no head reads its outputs, regardless of their shapes.
    pub(super) fn is_refused(&self) -> bool {
        self.reading == Reading::Refused
    }

    /// Returns the information for the user, as a sentence without a full stop.
    pub fn sentence(&self) -> String {
        format!("this is an export of {}: {}", self.exporter, self.note)
    }
}

/// The strides of nearly all grids.
const STRIDES: [u32; 3] = [8, 16, 32];

/// A model's tensors, as the rules query them.
struct Shapes<'a> {
    inputs: &'a [TensorInfo],
    outputs: &'a [TensorInfo],
    size: Option<(u32, u32)>,
}

impl Shapes<'_> {
    fn dims(info: &TensorInfo) -> Vec<Option<usize>> {
        info.shape.iter().flatten().map(Dim::fixed).collect()
    }

    /// Returns the output of this name.
    fn output(&self, name: &str) -> Option<Vec<Option<usize>>> {
        self.outputs.iter().find(|output| output.name == name).map(Self::dims)
    }

    /// Whether these are the names of all outputs, in any order.
    fn are_named(&self, names: &[&str]) -> bool {
        self.outputs.len() == names.len() && names.iter().all(|name| self.output(name).is_some())
    }

    fn has_input(&self, name: &str) -> bool {
        self.inputs.iter().any(|input| input.name == name)
    }

    /// Whether the image has its channels last.
    fn has_channels_last(&self) -> bool {
        self.inputs.first().is_some_and(|input| matches!(Self::dims(input)[..], [_, _, _, Some(3)]))
    }

    /// Returns the last `N` dimensions of every output.
    fn last<const N: usize>(&self) -> Option<Vec<[Option<usize>; N]>> {
        self.outputs.iter().map(|output| Self::dims(output).last_chunk().copied()).collect()
    }

    /// Returns how often each width occurs: the last dimension of the outputs.
    fn widths(&self) -> BTreeMap<usize, usize> {
        let mut widths = BTreeMap::new();
        for [width] in self.last::<1>().unwrap_or_default() {
            *widths.entry(width.unwrap_or(0)).or_default() += 1;
        }
        widths
    }

    /// Returns the number of columns and lines of a grid.
    fn grid(&self, stride: u32) -> Option<[usize; 2]> {
        self.size.map(|(width, height)| [height.div_ceil(stride) as usize, width.div_ceil(stride) as usize])
    }

    /// Whether `rows` are `anchors` for each cell of grids of the usual strides; true if that is unknown.
    fn are_cells(&self, rows: Option<usize>, anchors: usize) -> bool {
        let cells: Option<usize> = STRIDES.iter().map(|&stride| self.grid(stride).map(|[h, w]| h * w)).sum();
        rows.zip(cells).is_none_or(|(rows, cells)| rows == anchors * cells)
    }

    /// Whether lines and columns are those of a grid of a usual stride, or open. Four outputs include one more, with stride
    /// 64.
    fn is_grid(&self, sides: [Option<usize>; 2]) -> bool {
        let [lines, columns] = sides;
        self.size.is_none()
            || STRIDES
                .into_iter()
                .chain((self.outputs.len() == 4).then_some(64))
                .filter_map(|stride| self.grid(stride))
                .any(|[h, w]| lines.is_none_or(|lines| lines == h) && columns.is_none_or(|columns| columns == w))
    }
}

/// Recognises exports other than Ultralytics', whose metadata is their card.
pub fn recognise(facts: ModelFacts<'_>) -> Option<Export> {
    let ModelFacts { inputs, outputs, metadata, .. } = facts;
    if crate::ultralytics::card(metadata, inputs, outputs).is_some() {
        return None;
    }
    let shapes = Shapes { inputs, outputs, size: picture_size(inputs) };
    encoded(&shapes)
        .or_else(|| prompted(&shapes))
        .or_else(|| libreyolo(metadata, &shapes))
        .or_else(|| faces(&shapes))
        .or_else(|| raw_grids(&shapes))
        .or_else(|| anchors(&shapes))
        .or_else(|| finished(&shapes))
        .or_else(|| candidates(&shapes))
        .map(|export| Export { input: export.input.into_iter().chain(pixels(metadata)).collect(), ..export })
        .or_else(|| by_windows_metadata(metadata))
        .or_else(|| by_other_metadata(metadata))
}

/// Reads the pixel format that ONNX documents as `Image.*`, as lines of `[input]`.
fn pixels(metadata: &BTreeMap<String, String>) -> Vec<String> {
    let value = |key: &str| metadata.get(key).map(|value| value.trim().to_ascii_lowercase());
    let order = match value("Image.BitmapPixelFormat").as_deref() {
        Some("bgr8" | "bgra8") => Some("order = \"bgr\""),
        Some("rgb8" | "rgba8") => Some("order = \"rgb\""),
        Some("gray8") => Some("order = \"grey\""),
        _ => None,
    };
    let range = match value("Image.NominalPixelRange").as_deref() {
        Some("nominalrange_0_255") => Some(["scale = 1", "mean = 0", "std = 1"]),
        Some("normalized_0_1") => Some(["scale = \"1/255\"", "mean = 0", "std = 1"]),
        Some("normalized_1_1") => Some(["scale = \"1/127.5\"", "mean = 1", "std = 1"]),
        _ => None,
    };
    order.into_iter().chain(range.into_iter().flatten()).map(str::to_owned).collect()
}

fn by_windows_metadata(metadata: &BTreeMap<String, String>) -> Option<Export> {
    let input = pixels(metadata);
    let note = "its metadata has the order and the range of pixels, but not what its outputs mean";
    (!input.is_empty()).then(|| Export { input, ..Export::named("a tool for Windows ML", Reading::Guessed, note) })
}

/// Metadata with class names from an unknown writer.
fn by_other_metadata(metadata: &BTreeMap<String, String>) -> Option<Export> {
    let keys: Vec<&str> = metadata.keys().map(String::as_str).filter(|key| key.len() <= 40).take(8).collect();
    metadata.contains_key("names").then(|| {
        let note = format!(
            "its metadata ({}) is not Ultralytics', so it says neither how pictures are scaled nor what boxes mean",
            one_line(&keys.join(", "))
        );
        Export { exporter: "a tool that visiond does not know", note, reading: Reading::Guessed, input: Vec::new() }
    })
}

/// An input that takes the bytes of a JPEG file.
fn encoded(shapes: &Shapes<'_>) -> Option<Export> {
    let [input] = shapes.inputs else { return None };
    let is_file = input.dtype == DType::U8 && input.shape.as_ref().is_some_and(|dims| dims.len() == 1);
    is_file.then(|| {
        let note =
            "its input takes the bytes of a JPEG file, not a picture: export it without pre- and post-processing";
        Export::named("onnxruntime-extensions", Reading::Refused, note)
    })
}

/// Detectors of any class: the embeddings of the classes are an input.
fn prompted(shapes: &Shapes<'_>) -> Option<Export> {
    const NAMES: [&str; 6] =
        ["txt_feats", "text_feats", "text_features", "text_embeddings", "prompt_embeddings", "tpe"];
    let is_prompt = |input: &&TensorInfo| NAMES.contains(&&*input.name) && Shapes::dims(input).len() >= 2;
    let prompts = shapes.inputs.iter().find(is_prompt)?;
    let note = format!(
        "the embeddings of its classes are the input `{}`: save them with NumPy beside the card, and name the classes in the same order",
        prompts.name
    );
    // The number of classes is open, and only YOLOv8 has as many columns as cells.
    let columns =
        |output: &TensorInfo| matches!(Shapes::dims(output)[..], [_, None, rows] if shapes.are_cells(rows, 1));
    let reading = match shapes.outputs {
        [first, rest @ ..] if columns(first) => {
            let masks = rest.iter().find_map(|output| match Shapes::dims(output)[..] {
                [_, Some(planes), _, _] => Some(planes),
                _ => None,
            });
            let spec = HeadSpec::Yolov8 { keypoints: None, masks: masks.unwrap_or(0), oriented: false };
            Reading::Head(spec, None)
        }
        _ => Reading::Guessed,
    };
    Some(Export::named("YOLO-World or YOLOE with prompts", reading, &note))
}

/// LibreYOLO, whose metadata looks like that of Ultralytics.
fn libreyolo(metadata: &BTreeMap<String, String>, shapes: &Shapes<'_>) -> Option<Export> {
    const NAME: &str = "LibreYOLO";
    let family = metadata.get("model_family")?;
    metadata.get("libreyolo_version").or_else(|| metadata.get("letterbox_pad"))?;
    let [first, ..] = shapes.outputs else { return None };
    let dims = Shapes::dims(first);
    match (family.as_str(), &dims[..]) {
        ("yolox", [_, _, width]) => {
            let spec = YoloxSpec { decoded: true, strides: STRIDES.to_vec() };
            let classes = width.and_then(|width| width.checked_sub(5));
            let note = "YOLOX with decoded boxes, fed as `megvii-yolox`; it needs a card";
            let input = vec!["preprocess = \"megvii-yolox\"".to_owned()];
            Some(Export { input, ..Export::named(NAME, Reading::Head(HeadSpec::Yolox(spec), classes), note) })
        }
        (family, [_, _, Some(6)]) if family.starts_with("yolo9") && shapes.are_named(&["output", "raw"]) => {
            let spec = rows_spec(None, false);
            let note = "YOLOv9 with NMS inside, whose pictures lie at the top left; it needs a card";
            // `preprocess_numpy` rounds down and divides by one ratio, as YOLOX does, and feeds RGB from 0 to 1.
            let input = ["preprocess = \"megvii-yolox\"", "order = \"rgb\"", "scale = \"1/255\""];
            let input = input.map(str::to_owned).to_vec();
            Some(Export { input, ..Export::named(NAME, Reading::Head(spec, None), note) })
        }
        (family, [_, Some(width), rows]) if family.starts_with("yolo9") && rows.is_none_or(|rows| rows > *width) => {
            let unit = Some(BoxUnit::Pixels);
            let spec = BoxesSpec { format: Some(BoxFormat::Xyxy), unit, ..BoxesSpec::default() };
            let note =
                "YOLOv9 whose boxes are corners in columns, and whose pictures lie at the top left; it needs a card";
            let input = ["preprocess = \"megvii-yolox\"", "order = \"rgb\"", "scale = \"1/255\""];
            let input = input.map(str::to_owned).to_vec();
            let reading = Reading::Head(HeadSpec::Ssd(spec), width.checked_sub(4));
            Some(Export { input, ..Export::named(NAME, reading, note) })
        }
        _ => Some(Export::named(
            NAME,
            Reading::Guessed,
            "its metadata has no preprocess that visiond knows; it needs a card",
        )),
    }
}

/// Detectors of faces with landmarks.
fn faces(shapes: &Shapes<'_>) -> Option<Export> {
    let named = |exporter, style| {
        let note = format!("faces with landmarks; it needs a card with `family = \"faces\"`, `style = \"{style}\"`");
        Some(Export::named(exporter, Reading::Guessed, &note))
    };
    let widths = shapes.widths();
    let count = |width: usize| widths.get(&width).copied().unwrap_or(0);
    let all = shapes.outputs.len();
    let grids = count(1);
    if grids >= 2 && count(4) == grids && (all == 2 * grids || all == 3 * grids && count(10) == grids) {
        return named("InsightFace's SCRFD", "scrfd");
    }
    let part = |name: &str| name.split(['_', '.']).next().unwrap_or("").to_owned();
    let of = |wanted: &str| shapes.outputs.iter().filter(|output| part(&output.name) == wanted).count();
    if all == 12 && ["cls", "obj", "bbox", "kps"].iter().all(|name| of(name) == 3) {
        return named("OpenCV's YuNet", "yunet");
    }
    let rows = shapes.last::<2>().unwrap_or_default();
    let same = rows.windows(2).all(|pair| pair[0][0] == pair[1][0]);
    if all == 3 && same && [4, 2, 10].iter().all(|&width| count(width) == 1) {
        return named("Pytorch_Retinaface", "retinaface");
    }
    // YOLOv5 of 11 or 52 classes also has these shapes: the parts of its rows, or a run, show which it is.
    let [[rows, Some(width)]] = rows[..] else { return None };
    let hint = |exporter, keypoints| {
        let note =
            format!("its rows have keypoints; write `family = \"yolov5\"`, `keypoints = {keypoints}` into a card");
        Some(Export::named(exporter, Reading::Hint, &note))
    };
    if width == 16 && shapes.are_cells(rows, 3) && rows.is_some() && shapes.size.is_some() {
        return hint("yolov5-face", "[5, 2]");
    }
    let four_grids = |(width, height): (u32, u32)| {
        [8, 16, 32, 64].iter().map(|&s| 3 * width.div_ceil(s) as usize * height.div_ceil(s) as usize).sum::<usize>()
    };
    if width == 57 && rows.is_some() && rows == shapes.size.map(four_grids) {
        return hint("YOLOv7-pose", "[17, 3]");
    }
    None
}

/// The anchors of public YOLOs, the grid of the smallest cells first: those that the `mask` of each grid in the .cfg of
/// AlexeyAB/darknet names; YOLOv5's and YOLOv7-tiny's are YOLOv3's, YOLOv7's are YOLOv4's.
const YOLOV3: [[u16; 2]; 9] =
    [[10, 13], [16, 30], [33, 23], [30, 61], [62, 45], [59, 119], [116, 90], [156, 198], [373, 326]];
const YOLOV3_TINY: [[u16; 2]; 6] = [[10, 14], [23, 27], [37, 58], [81, 82], [135, 169], [344, 319]];
pub(super) const YOLOV4: [[u16; 2]; 9] =
    [[12, 16], [19, 36], [40, 28], [36, 75], [76, 55], [72, 146], [142, 110], [192, 243], [459, 401]];
const YOLOV4_TINY: [[u16; 2]; 6] = [[23, 27], [37, 58], [81, 82], [81, 82], [135, 169], [344, 319]];
/// The anchors of YOLOv5's models with four grids, `models/hub/yolov5n6.yaml`.
const YOLOV5_P6: [[u16; 2]; 12] = [
    [19, 27],
    [44, 40],
    [38, 94],
    [96, 68],
    [86, 152],
    [180, 137],
    [140, 301],
    [303, 264],
    [238, 542],
    [436, 615],
    [739, 380],
    [925, 792],
];

fn grid_spec(anchors: &[[u16; 2]], style: GridStyle) -> DarknetSpec {
    let anchors = anchors.iter().map(|pair| pair.map(f32::from)).collect();
    DarknetSpec { anchors, scale_x_y: Vec::new(), activation: Activation::Sigmoid, style }
}

/// The layers of YOLOv5 or YOLOv7, `[1, 3, h, w, 5 + classes]`.
fn yolov5_layers(grids: usize, classes: Option<usize>) -> Export {
    const NAME: &str = "YOLOv5 or YOLOv7 without its last layer";
    let anchors = match grids {
        3 => &YOLOV3[..],
        4 => &YOLOV5_P6,
        _ => {
            let note = "these are the layers before the decoding of boxes, of grids whose anchors are not known: write \
                        `family = \"darknet\"`, `style = \"yolov5\"` and the `anchors` of its .yaml under [head] of a card";
            return Export::named(NAME, Reading::Hint, note);
        }
    };
    let spec = grid_spec(anchors, GridStyle::Yolov5);
    let note = match grids {
        3 => {
            "these are the layers before the decoding of boxes, and nothing shows whose: the card has the anchors of YOLOv5 and \
             YOLOv7-tiny, and beside them those of YOLOv7, so compare `anchors` with the model's .yaml"
        }
        _ => {
            "these are the layers before the decoding of boxes; the card has the anchors of YOLOv5, so compare `anchors` with the \
             model's .yaml"
        }
    };
    let input = vec!["preprocess = \"yolov5\"".to_owned()];
    Export { input, ..Export::named(NAME, Reading::Head(HeadSpec::Darknet(spec), classes), note) }
}

/// Layers of a YOLO before their decoding.
fn raw_grids(shapes: &Shapes<'_>) -> Option<Export> {
    let all = shapes.outputs.len();
    let fives = shapes.last::<5>().unwrap_or_default();
    let raw = |[_, anchors, h, w, width]: &[Option<usize>; 5]| {
        *anchors == Some(3) && width.is_some_and(|width| width > 5) && shapes.is_grid([*h, *w])
    };
    if (2..=4).contains(&all) && fives.len() == all && fives.iter().all(raw) {
        return Some(yolov5_layers(all, fives[0][4].and_then(|width| width.checked_sub(5))));
    }
    let fours = shapes.last::<4>().unwrap_or_default();
    let darknet = |[_, channels, h, w]: &[Option<usize>; 4]| {
        channels.is_some_and(|channels| channels.is_multiple_of(3) && channels > 15) && shapes.is_grid([*h, *w])
    };
    // Each has its own grid.
    let same = fours.windows(2).all(|pair| pair[0][1] == pair[1][1] && pair[0][2] != pair[1][2]);
    if (2..=3).contains(&all) && same && !fours.is_empty() && fours.iter().all(darknet) {
        const NAME: &str = "Darknet's YOLO";
        // The numbers match the layers of the .cfg. Class maps can also have such shapes.
        let are = |layers: &[&str]| {
            let is = |output: &TensorInfo| layers.iter().any(|layer| output.name == format!("{layer}_convolutional"));
            shapes.outputs.iter().all(is)
        };
        let known: Option<(_, &[[u16; 2]], &[f32])> = match all {
            2 if are(&["016", "023"]) => Some(("YOLOv3-tiny", &YOLOV3_TINY, &[])),
            2 if are(&["030", "037"]) => Some(("YOLOv4-tiny", &YOLOV4_TINY, &[1.05, 1.05])),
            3 if are(&["082", "094", "106"]) => Some(("YOLOv3", &YOLOV3, &[])),
            3 if are(&["089", "101", "113"]) => Some(("YOLOv3-spp", &YOLOV3, &[])),
            3 if are(&["139", "150", "161"]) => Some(("YOLOv4", &YOLOV4, &[1.2, 1.1, 1.05])),
            _ => None,
        };
        let Some((whose, anchors, scale_x_y)) = known else {
            let note = "these may be its layers before the decoding of boxes: write `family = \"darknet\"` under [head] of a card, and \
                        the `anchors` of the model's .cfg";
            return Some(Export::named(NAME, Reading::Hint, note));
        };
        let spec = DarknetSpec { scale_x_y: scale_x_y.to_vec(), ..grid_spec(anchors, GridStyle::Darknet) };
        let classes = fours[0][1].and_then(|planes| (planes / 3).checked_sub(5));
        let note = format!(
            "these are the layers before the decoding of boxes; the card has the anchors of {whose}, so compare `anchors` and \
             `scale_x_y` with the model's .cfg"
        );
        return Some(Export::named(NAME, Reading::Head(HeadSpec::Darknet(spec), classes), &note));
    }
    if let ([output], [[_, lines, columns, Some(classes @ 2..)]], Some([_, .., Some(1 | 3)])) =
        (shapes.outputs, &fours[..], shapes.inputs.first().map(Shapes::dims).as_deref())
        && ["StatefulPartitionedCall", "softmax"].iter().any(|name| output.name.starts_with(name))
        && shapes.grid(8).is_some_and(|[h, w]| *lines == Some(h) && *columns == Some(w))
    {
        let note = "scores of cells of 8 pixels, the first of which is the background; the image block says how pictures are fitted";
        let input = vec!["fit = \"stretch\"".to_owned()];
        let reading = Reading::Head(HeadSpec::Fomo, Some(classes - 1));
        return Some(Export { input, ..Export::named("Edge Impulse's FOMO", reading, note) });
    }
    let named = shapes.outputs.iter().all(|output| output.name.starts_with("model_outputs"));
    if let ([[_, Some(channels), _, _]], true) = (&fours[..], named)
        && channels.is_multiple_of(5)
        && *channels > 25
    {
        // `ANCHORS` of the exported `python/object_detection.py`, in cells of 32 pixels.
        let anchors = [[0.573, 0.677], [1.87, 2.06], [3.34, 5.47], [7.88, 3.53], [9.77, 9.17]];
        let anchors = anchors.map(|pair: [f32; 2]| pair.map(|side| (side * 32_000.0).round() / 1000.0)).to_vec();
        let (activation, style) = (Activation::Softmax, GridStyle::Darknet);
        let spec = DarknetSpec { anchors, scale_x_y: Vec::new(), activation, style };
        let note = "YOLOv2's layer before the decoding of boxes, with the anchors of the code that Custom Vision exports; the file has no \
                    names, so take those of its `labels.txt`";
        let input = vec!["fit = \"stretch\"".to_owned()];
        let reading = Reading::Head(HeadSpec::Darknet(spec), (channels / 5).checked_sub(5));
        return Some(Export { input, ..Export::named("Azure Custom Vision", reading, note) });
    }
    let covers = shapes.outputs.iter().any(|output| output.name.starts_with("output_cov"));
    let grids = shapes.last::<3>().unwrap_or_default();
    if grids.len() == 2 && covers && shapes.outputs.iter().any(|output| output.name.starts_with("output_bbox")) {
        const NAME: &str = "TAO's DetectNet_v2";
        let planes = grids.iter().filter_map(|[planes, ..]| *planes);
        let stride = shapes.size.zip(grids[0][1]).and_then(|((_, height), lines)| height.checked_div(lines as u32));
        let style = HeatmapStyle::DetectNet;
        let spec = HeatmapSpec { style, stride: stride.unwrap_or(16), ..HeatmapSpec::default() };
        let note = "scores of cells, and distances from these to the sides of boxes; pictures are stretched";
        return Some(Export::named(NAME, Reading::Head(HeadSpec::Heatmap(spec), planes.min()), note));
    }
    mit_yolo(shapes)
}

/// The scores, bins and distances of each grid, and again for the auxiliary branch.
fn mit_yolo(shapes: &Shapes<'_>) -> Option<Export> {
    const NAME: &str = "MIT YOLO (MultimediaTechLab/YOLO)";
    let dims: Vec<Vec<Option<usize>>> = shapes.outputs.iter().map(Shapes::dims).collect();
    let fives = dims.iter().filter(|dims| dims.len() == 5).count();
    if dims.len() < 9 || dims.len() != 3 * fives {
        return None;
    }
    let is_grid = |grid: &[Vec<Option<usize>>]| matches!(grid, [scores, bins, sides] if scores.len() == 4 && bins.len() == 5 && sides.len() == 4 && sides[1] == Some(4));
    let classes = dims[0].get(1).copied().flatten();
    if !matches!(dims.len(), 9 | 18) || !dims.chunks(3).all(is_grid) {
        let note = "these are the layers before the decoding of boxes, in an order that no head reads: export with the decoding";
        return Export::refused(NAME, note);
    }
    let spec =
        NanodetSpec { strides: STRIDES.to_vec(), reg_max: 0, sigmoid: true, cell_centre: true, multi_label: true };
    let note =
        "the scores of each grid and the distances to the sides of boxes; bins and the auxiliary branch are not read";
    let input = vec!["preprocess = \"yolov5\"".to_owned()];
    Some(Export { input, ..Export::named(NAME, Reading::Head(HeadSpec::Nanodet(spec), classes), note) })
}

/// Offsets from EfficientDet's anchors, and scores after the sigmoid.
fn efficientdet(shapes: &Shapes<'_>) -> Export {
    const NAME: &str = "EfficientDet (Yet-Another-EfficientDet-Pytorch)";
    // zylo117's model takes channels first. Others have the same names and as many anchors, but other sizes and another order
    // of sides.
    if shapes.has_channels_last() {
        let note = "its boxes are offsets from anchors that the file does not show: use an export with the decoding and NMS inside";
        return Export::named("RetinaNet or a Keras EfficientDet", Reading::Refused, note);
    }
    let rows = shapes.output("regression").and_then(|dims| dims[1]);
    if shapes.size.zip(rows).is_some_and(|(size, rows)| rows != anchors::count(AnchorKind::EfficientDet, size)) {
        let note = "its boxes are offsets from other anchors than those of its D0 to D6: use an export with the decoding and NMS inside";
        return Export::named(NAME, Reading::Refused, note);
    }
    if shapes.size == Some(EFFICIENTDET_D7) {
        let note = "D7 has anchors of its own, which no head decodes: use an export with the decoding and NMS inside, or D0 to D6";
        return Export::named(NAME, Reading::Refused, note);
    }
    let anchors = Some(AnchorKind::EfficientDet);
    let spec = BoxesSpec { anchors, multi_label: Some(false), ..BoxesSpec::default() };
    let note = "offsets from anchors of the usual sizes and aspect ratios; if it was trained with others, boxes have wrong sides";
    // `preprocess` of its `utils/utils.py`: bars are 0 after the mean is subtracted, so they have the mean's colour.
    let input = [
        "preprocess = \"damo-yolo\"",
        "pad = 116",
        "scale = \"1/255\"",
        "mean = [0.485, 0.456, 0.406]",
        "std = [0.229, 0.224, 0.225]",
    ];
    let classes = shapes.output("classification").and_then(|dims| *dims.last()?);
    let input = input.map(str::to_owned).to_vec();
    Export { input, ..Export::named(NAME, Reading::Head(HeadSpec::Ssd(spec), classes), note) }
}

/// Boxes that are offsets or bins, beside their scores.
fn anchors(shapes: &Shapes<'_>) -> Option<Export> {
    let is_boxes = |dims: &Vec<Option<usize>>| matches!(dims[..], [_, _, Some(4)]);
    if shapes.are_named(&["regression", "classification"]) && shapes.output("regression").as_ref().is_some_and(is_boxes)
    {
        return Some(efficientdet(shapes));
    }
    let [first, second] = shapes.outputs else { return None };
    let dims = [Shapes::dims(first), Shapes::dims(second)];
    let bins = |dims: &[Option<usize>]| dims.len() == 3 && dims[2].is_some_and(|width| width == 64);
    if shapes.are_named(&["boxes", "classes"])
        && shapes.output("boxes").is_some_and(|dims| bins(&dims) && shapes.are_cells(dims[1], 1))
    {
        let spec = NanodetSpec {
            strides: STRIDES.to_vec(),
            reg_max: 15,
            sigmoid: false,
            cell_centre: true,
            multi_label: false,
        };
        let note = "4 x 16 bins of distances from the cells, and scores; whether pixels are from 0 to 1 or to 255 is its backbone's";
        let classes = shapes.output("classes").and_then(|dims| *dims.last()?);
        let reading = Reading::Head(HeadSpec::Nanodet(spec), classes);
        let input = ["preprocess = \"tensorflow\"", "scale = 1", "mean = 0", "std = 1"].map(str::to_owned).to_vec();
        return Some(Export { input, ..Export::named("KerasCV's YOLOv8", reading, note) });
    }
    if shapes.are_named(&["boxes", "classes"])
        && let [Some([rows, Some(4)]), Some([others, classes])] =
            ["boxes", "classes"].map(|name| shapes.output(name).and_then(|dims| <[_; 2]>::try_from(dims).ok()))
        && rows == others
    {
        let spec =
            BoxesSpec { format: Some(BoxFormat::Cxcywh), unit: Some(BoxUnit::Normalized), ..BoxesSpec::default() };
        let note = "scores, and centres and sizes as fractions of the input, without a batch";
        let input = vec!["preprocess = \"yolov5\"".to_owned()];
        let reading = Reading::Head(HeadSpec::Ssd(spec), classes);
        return Some(Export { input, ..Export::named("YOLOv3 of Ultralytics (archive)", reading, note) });
    }
    let single = dims.iter().any(|dims| matches!(dims[..], [_, _, Some(1), Some(4)]));
    let classes = shapes.output("confs").and_then(|dims| *dims.last()?);
    (single && shapes.are_named(&["boxes", "confs"])).then(|| {
        let unit = Some(BoxUnit::Normalized);
        let spec = BoxesSpec { unit, multi_label: Some(false), ..BoxesSpec::default() };
        let note = "boxes as fractions of the input, `[1, N, 1, 4]`, and scores before NMS; pictures are stretched";
        let reading = Reading::Head(HeadSpec::Ssd(spec), classes);
        let input = vec!["fit = \"stretch\"".to_owned()];
        Export { input, ..Export::named("pytorch-YOLOv4", reading, note) }
    })
}

/// Boxes that the model itself has chosen.
fn finished(shapes: &Shapes<'_>) -> Option<Export> {
    let rank_three = shapes.inputs.iter().any(|input| Shapes::dims(input).len() == 3);
    let boxes = |unit, background| {
        let spec = BoxesSpec { unit: Some(unit), background: Some(background), ..BoxesSpec::default() };
        Reading::Head(HeadSpec::Ssd(spec), None)
    };
    if rank_three && shapes.are_named(&["boxes", "labels", "scores"]) {
        let note = "class 0 is the background, and images are RGB from 0 to 1 at any size";
        let input = ["fit = \"stretch\"", "scale = \"1/255\"", "mean = 0", "std = 1"].map(str::to_owned).to_vec();
        return Some(Export { input, ..Export::named("torchvision", boxes(BoxUnit::Pixels, Background::First), note) });
    }
    let zoo = |name: &str| shapes.output(name).is_some();
    if shapes.are_named(&["bboxes", "labels", "scores"]) && shapes.size == Some((1200, 1200)) {
        let note =
            "the SSD of ONNX's model zoo; its labels count from 1, and images have ImageNet's mean and deviation";
        let input =
            ["fit = \"stretch\"", "scale = \"1/255\"", "mean = [0.485, 0.456, 0.406]", "std = [0.229, 0.224, 0.225]"];
        let input = input.map(str::to_owned).to_vec();
        let reading = boxes(BoxUnit::Normalized, Background::First);
        return Some(Export { input, ..Export::named("MLPerf's SSD-ResNet34", reading, note) });
    }
    if let Some(export) = keras_yolo3(shapes) {
        return Some(export);
    }
    if zoo("detected_boxes") && zoo("detected_scores") && zoo("detected_classes") {
        let note = "final boxes as fractions of the input; the file has no names, so take those of its `labels.txt`";
        let reading = boxes(BoxUnit::Normalized, Background::None);
        let input = vec!["fit = \"stretch\"".to_owned()];
        return Some(Export { input, ..Export::named("Azure Custom Vision", reading, note) });
    }
    if shapes.has_input("pixel_mask") && shapes.are_named(&["logits", "pred_boxes"]) {
        let note =
            "pictures have ImageNet's mean and deviation, and `pixel_mask` is 1 where the picture is: everywhere";
        let input = vec!["preprocess = \"detr\"".to_owned()];
        return Some(Export { input, ..Export::named("Hugging Face's DETR", Reading::Guessed, note) });
    }
    let pose = |exporter, what: &str| {
        let note = format!("{what} of one person, who should fill the picture: it is made for a detector's crops");
        Some(Export::named(exporter, Reading::Guessed, &note))
    };
    match kind_of(ModelOutputs::Declared(shapes.outputs), shapes.size) {
        Some(PoseKind::Axes) => {
            return pose("RTMPose or another SimCC model (mmpose)", "scores of the places of each point");
        }
        Some(PoseKind::Maps) => return pose("HRNet, SimpleBaseline or ViTPose", "a heat map for each point"),
        None => {}
    }
    if shapes.are_named(&["dets", "keypoints"]) {
        let note = "its rows of `dets` are a box and its score, and `keypoints` has the points of each";
        let input = vec!["preprocess = \"megvii-yolox\"".to_owned()];
        return Some(Export { input, ..Export::named("RTMO or YOLOX-Pose (mmdeploy)", Reading::Guessed, note) });
    }
    None
}

/// Boxes and transposed scores of all anchors, and the indices of those that NMS has chosen.
fn keras_yolo3(shapes: &Shapes<'_>) -> Option<Export> {
    const NAME: &str = "keras-yolo3 (ONNX's model zoo)";
    if !shapes.outputs.iter().any(|output| output.name.starts_with("yolonms_layer")) {
        return None;
    }
    let of = |is: fn(&[Option<usize>]) -> bool| shapes.outputs.iter().find(|output| is(&Shapes::dims(output)));
    let boxes = of(|dims| matches!(dims, [_, _, Some(4)]));
    let scores = of(|dims| matches!(dims, [_, Some(5..), None | Some(100..)]));
    let (Some(boxes), Some(scores)) = (boxes, scores) else {
        return Export::refused(NAME, "its outputs are not the boxes and the scores of all anchors");
    };
    let spec = BoxesSpec {
        boxes: Some(boxes.name.clone()),
        scores: Some(scores.name.clone()),
        format: Some(BoxFormat::Yxyx),
        unit: Some(BoxUnit::Pixels),
        ..BoxesSpec::default()
    };
    let note = "boxes and scores of all anchors; its last output has the indices of an NMS of its own, which visiond does itself";
    // `letterbox_image` of keras-yolo3's `yolo3/utils.py`.
    let mut input = vec!["preprocess = \"yolov5\"".to_owned(), "pad = 128".to_owned()];
    if shapes.size.is_none() {
        input.insert(0, "size = [416, 416]  # width, height: the model leaves them open".to_owned());
    }
    let classes = Shapes::dims(scores).get(1).copied().flatten();
    Some(Export { input, ..Export::named(NAME, Reading::Head(HeadSpec::Ssd(spec), classes), note) })
}

/// Rows that the model has chosen, in the order of `columns`, and whether NMS is left.
fn rows_spec(columns: Option<&[Column]>, nms: bool) -> HeadSpec {
    let rows = RowsSpec { columns: columns.map(<[Column]>::to_vec), nms, ..RowsSpec::default() };
    HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: false, rows }
}

/// Rows that the model has chosen, with class numbers that include the background.
fn background_rows(columns: &[Column], unit: BoxUnit, background: Background) -> HeadSpec {
    let rows = RowsSpec { columns: Some(columns.to_vec()), background, ..RowsSpec::default() };
    HeadSpec::YoloNms { keypoints: None, unit, oriented: false, rows }
}

/// Rows `[1, 1, N, 7]` of the layer with that name.
fn detection_output(shapes: &Shapes<'_>) -> Option<Export> {
    use Column::{Batch, Class, Score, X1, X2, Y1, Y2};
    let is_rows = |output: &&TensorInfo| matches!(Shapes::dims(output)[..], [_, Some(1), _, Some(7)]);
    let is_count = |output: &&TensorInfo| matches!(Shapes::dims(output)[..], [_, Some(1), Some(1), Some(1)]);
    let found = shapes.outputs.iter().find(is_rows)?;
    let counts = shapes.outputs.iter().filter(is_count).count();
    if shapes.outputs.len() > 1 + counts {
        return None;
    }
    let is_tao = found.name.starts_with("NMS");
    let (exporter, background, note) = if is_tao {
        let note = "rows of picture, class, score and box as fractions of the input; classes have the places of its labels file, \
                    whose first is often the background";
        ("NVIDIA TAO", Background::None, note)
    } else {
        let note =
            "rows of picture, class, score and box as fractions of the input, of which class 0 is the background";
        ("OpenVINO or Caffe (DetectionOutput)", Background::First, note)
    };
    let spec = background_rows(&[Batch, Class, Score, X1, Y1, X2, Y2], BoxUnit::Normalized, background);
    let input = vec!["fit = \"stretch\"".to_owned()];
    Some(Export { input, ..Export::named(exporter, Reading::Head(spec, None), note) })
}

/// Returns the number of classes of boxes `[1, N, 4]` and scores `[1, classes, N]`.
fn transposed_scores(shapes: &Shapes<'_>) -> Option<usize> {
    let [first, second] = shapes.last::<2>()?[..] else { return None };
    [(first, second), (second, first)].into_iter().find_map(|(boxes, scores)| {
        let [rows, width] = boxes;
        let fits = width == Some(4) && rows.is_some() && scores[1] == rows && scores[0] != rows;
        scores[0].filter(|_| fits)
    })
}

/// Candidates before NMS, and rows with columns of their own.
fn candidates(shapes: &Shapes<'_>) -> Option<Export> {
    use Column::{Batch, Class, Score, X1, X2, Y1, Y2};
    let read = |exporter, spec, note: &str| Some(Export::named(exporter, Reading::Head(spec, None), note));
    let rows = shapes.last::<2>().unwrap_or_default();
    let is_row = |output: &&TensorInfo| Shapes::dims(output).last() == Some(&Some(6));
    // A row for each cell or anchor; for an open input size, only the number of rows shows it.
    let many = |rows: Option<usize>| match shapes.size {
        Some(_) => rows.is_some() && (shapes.are_cells(rows, 1) || shapes.are_cells(rows, 3)),
        None => rows.is_some_and(|count| count > 1000),
    };
    if shapes.has_input("scale_factor") {
        if shapes.outputs.iter().filter(is_row).count() == 1 {
            let spec = rows_spec(Some(&[Class, Score, X1, Y1, X2, Y2]), false);
            let note = "rows of class, score and box; its infer_cfg.yml has the mean and deviation of its pictures, which are \
                        stretched";
            let input = vec!["fit = \"stretch\"".to_owned()];
            return read("PaddleDetection", spec, note).map(|export| Export { input, ..export });
        }
        if let Some(classes) = transposed_scores(shapes) {
            let spec = BoxesSpec { unit: Some(BoxUnit::Pixels), ..BoxesSpec::default() };
            let note = "boxes and transposed scores without NMS; its infer_cfg.yml has the mean and deviation of its \
                        pictures, which are stretched";
            let input = vec!["fit = \"stretch\"".to_owned()];
            let reading = Reading::Head(HeadSpec::Ssd(spec), Some(classes));
            return Some(Export { input, ..Export::named("PaddleDetection", reading, note) });
        }
        let note = "its outputs are neither rows of class, score and box nor boxes and transposed scores: export it \
                    with NMS";
        return Some(Export::named("PaddleDetection", Reading::Refused, note));
    }
    if shapes.output("class_idx").is_some() {
        let note = "boxes, scores and classes of all candidates, so that NMS is left";
        return read("Qualcomm AI Hub", rows_spec(None, true), note);
    }
    if shapes.are_named(&["boxes", "scores", "classes"]) && rows.iter().any(|[rows, _]| many(*rows)) {
        let note = "boxes, scores and classes of all candidates, so that NMS is left";
        return read("DeepStream-Yolo", rows_spec(None, true), note);
    }
    if let ([output], [[rows, Some(6)]]) = (shapes.outputs, &rows[..])
        && output.name == "output"
        && many(*rows)
    {
        // YOLOX of one class has the same name and shape.
        let note =
            "rows of box, score and class of all candidates, so that NMS is left, if it is not YOLOX of one class";
        return Some(Export::named("DeepStream-Yolo", Reading::Also(rows_spec(None, true)), note));
    }
    if let [output] = shapes.outputs {
        let pinto = "PINTO_model_zoo";
        let columns: Option<(&str, [Column; 7], &str)> = match output.name.as_str() {
            name if name.ends_with("batchno_classid_score_x1y1x2y2") => {
                Some((pinto, [Batch, Class, Score, X1, Y1, X2, Y2], "rows of picture, class, score and box"))
            }
            name if name.ends_with("batchno_classid_x1y1x2y2_score") => {
                Some((pinto, [Batch, Class, X1, Y1, X2, Y2, Score], "rows of picture, class, box and score"))
            }
            name if name.ends_with("flat_predictions") => {
                Some(("YOLO-NAS", [Batch, X1, Y1, X2, Y2, Score, Class], "rows of picture, box, score and class"))
            }
            _ => None,
        };
        if let Some((exporter, columns, note)) = columns.filter(|_| rows.iter().all(|[_, width]| *width == Some(7))) {
            return read(exporter, rows_spec(Some(&columns), false), note);
        }
    }
    if let Some(export) = detection_output(shapes) {
        return Some(export);
    }
    if let [output] = shapes.outputs
        && output.name == "detections"
        && matches!(Shapes::dims(output)[..], [_, _, Some(7)])
        && shapes.has_channels_last()
    {
        let spec = background_rows(&[Batch, Y1, X1, Y2, X2, Score, Class], BoxUnit::Pixels, Background::First);
        let note = "rows of picture, top, left, bottom, right, score and class from 1";
        return read("automl's EfficientDet", spec, note);
    }
    let is_joint = shapes.output("dets").is_some_and(|dims| dims.last() == Some(&Some(5)));
    if shapes.are_named(&["dets", "labels"]) && is_joint {
        return read("OpenMMLab (mmdeploy)", rows_spec(None, false), "its rows of `dets` are a box and its score");
    }
    None
}

#[cfg(test)]
mod tests;
