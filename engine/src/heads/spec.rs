//! What a card says of a head: the family, and the options of its members.

use visiond_kernels::letterbox::Fit;
use visiond_kernels::preprocess::ChannelOrder;

/// A family of networks whose outputs are read alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// YOLOv5, YOLOv7: rows of box, objectness, classes.
    Yolov5,
    /// YOLOv8, 9, 11, 12: columns of box, classes, keypoints.
    Yolov8,
    /// Networks with the suppression inside: YOLOv10, YOLO26, `nms=True` exports, EfficientNMS.
    YoloNms,
    /// YOLOX: as YOLOv5, relative to a grid.
    Yolox,
    /// NanoDet and NanoDet-Plus: class scores and distance distributions.
    Nanodet,
    /// Boxes and scores: SSD, UltraFace, torchvision, TensorFlow's detection API.
    Ssd,
    /// Queries: DETR, RT-DETR, D-FINE, RF-DETR.
    Detr,
    /// Peaks of a heat map: CenterNet, CenterFace.
    Heatmap,
    /// Offsets from anchors of one size: BlazeFace, MediaPipe's other detectors.
    Blazeface,
    /// One score a class for the whole frame.
    Classifier,
}

/// Points that belong to each box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keypoints {
    /// Points of one box.
    pub count: usize,
    /// Whether each has a score beside x and y.
    pub scored: bool,
}

impl Keypoints {
    /// Numbers of one box.
    pub const fn values(self) -> usize {
        self.count * if self.scored { 3 } else { 2 }
    }
}

/// Where a network puts the class that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Background {
    /// There is no such class: the first number is the first class.
    #[default]
    None,
    /// Before the classes: number 0 is nothing, number 1 is the first class.
    First,
    /// After the classes.
    Last,
}

/// How a network's raw numbers become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// They are scores already.
    #[default]
    None,
    /// 1 / (1 + exp(-x)), each for itself.
    Sigmoid,
    /// exp(x) / sum of exp, over the classes.
    Softmax,
}

/// The numbers of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Xyxy,
    /// Top, left, bottom, right.
    Yxyx,
    /// Centre x, centre y, width, height.
    Cxcywh,
    /// Left, top, width, height.
    Xywh,
}

/// What the numbers of a box count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoxUnit {
    /// Parts of the input's width and height.
    Normalized,
    /// Pixels of the input.
    Pixels,
}

/// Options of [`Family::Yolox`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YoloxSpec {
    /// Whether the export has decoded the grid already (`--decode_in_inference`).
    pub decoded: bool,
    /// Input pixels of a grid cell, a grid each.
    pub strides: Vec<u32>,
}

/// Options of [`Family::Nanodet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NanodetSpec {
    /// Input pixels of a grid cell, a grid each.
    pub strides: Vec<u32>,
    /// Last bin of a distance's distribution.
    pub reg_max: usize,
    /// Whether the scores still want the sigmoid.
    pub sigmoid: bool,
    /// Whether distances count from a cell's centre (x + 0.5) instead of its corner.
    pub cell_centre: bool,
}

/// Options of [`Family::Ssd`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SsdSpec {
    /// Output with the boxes; found by its shape and name if not given.
    pub boxes: Option<String>,
    /// Output with the scores.
    pub scores: Option<String>,
    /// Output with the classes, of networks that have chosen already.
    pub labels: Option<String>,
    /// Output with the number of valid rows.
    pub count: Option<String>,
    /// Numbers of a box.
    pub format: BoxFormat,
    /// What they count; `None` for pixels where there are labels, else parts of the input.
    pub unit: Option<BoxUnit>,
    /// Where the class that is none stands.
    pub background: Background,
    /// How the scores come about.
    pub activation: Activation,
}

/// Options of [`Family::Detr`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DetrSpec {
    /// Output with the boxes; found by its name or shape if not given.
    pub boxes: Option<String>,
    /// Output with the logits or scores.
    pub scores: Option<String>,
    /// Output with the classes, of networks that have chosen already.
    pub labels: Option<String>,
    /// How the scores come about; `None` for the sigmoid of logits, and as they are where classes are chosen already.
    pub activation: Option<Activation>,
    /// Numbers of a box; `None` for corners where classes are chosen already, else centre and size.
    pub format: Option<BoxFormat>,
    /// What they count; `None` for pixels where classes are chosen already, else parts of the input.
    pub unit: Option<BoxUnit>,
    /// Where the class that is none stands; `None` for last with softmax, else no such class.
    pub background: Option<Background>,
    /// Whether one query may stand for several classes; `None` for yes with sigmoid.
    pub multi_label: Option<bool>,
}

/// Which kind of heat map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeatmapStyle {
    /// Peaks of 3x3, sizes in cells.
    CenterNet,
    /// Every cell, sizes as exp(x) times the stride, five landmarks, suppression afterwards.
    CenterFace,
}

/// Options of [`Family::Heatmap`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatmapSpec {
    /// Which kind.
    pub style: HeatmapStyle,
    /// Input pixels of a cell.
    pub stride: u32,
    /// Whether the heat map still wants the sigmoid.
    pub sigmoid: bool,
    /// Output with the heat map; found by name or order if not given.
    pub heat: Option<String>,
    /// Output with the sizes.
    pub size: Option<String>,
    /// Output with the offsets inside a cell.
    pub offset: Option<String>,
    /// Output with the landmarks.
    pub landmarks: Option<String>,
}

/// Options of [`Family::Blazeface`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlazefaceSpec {
    /// Input pixels of a grid cell, a layer each; `None` for BlazeFace's own, which go with the input's width.
    pub strides: Option<Vec<u32>>,
}

/// What a card says of the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadSpec {
    /// See [`Family::Yolov5`].
    Yolov5 {
        /// Mask coefficients at a row's end, which are not read.
        masks: usize,
    },
    /// See [`Family::Yolov8`].
    Yolov8 {
        /// Points after the classes.
        keypoints: Option<Keypoints>,
        /// Mask coefficients after the classes, which are not read.
        masks: usize,
    },
    /// See [`Family::YoloNms`].
    YoloNms {
        /// Points after box, score and class.
        keypoints: Option<Keypoints>,
        /// What the boxes count.
        unit: BoxUnit,
    },
    /// See [`Family::Yolox`].
    Yolox(YoloxSpec),
    /// See [`Family::Nanodet`].
    Nanodet(NanodetSpec),
    /// See [`Family::Ssd`].
    Ssd(SsdSpec),
    /// See [`Family::Detr`].
    Detr(DetrSpec),
    /// See [`Family::Heatmap`].
    Heatmap(HeatmapSpec),
    /// See [`Family::Blazeface`].
    Blazeface(BlazefaceSpec),
    /// See [`Family::Classifier`].
    Classifier {
        /// How the scores come about; `None` looks whether they are probabilities already and else takes the softmax.
        activation: Option<Activation>,
        /// Where the class that is none stands.
        background: Background,
    },
}

/// What a family's cards need not say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyDefaults {
    /// How the frame is fitted.
    pub fit: Fit,
    /// Padding, 0 to 255.
    pub pad: f32,
    /// Channel order.
    pub order: ChannelOrder,
    /// Multiplies a pixel.
    pub scale: f32,
    /// Subtracted after `scale`.
    pub mean: [f32; 3],
    /// Divides last.
    pub std: [f32; 3],
    /// What scores less is left out.
    pub score_threshold: f32,
    /// Overlap above which the lesser box goes.
    pub iou_threshold: f32,
    /// At most so many stay.
    pub max_detections: usize,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 10] = [
        Self::Yolov5,
        Self::Yolov8,
        Self::YoloNms,
        Self::Yolox,
        Self::Nanodet,
        Self::Ssd,
        Self::Detr,
        Self::Heatmap,
        Self::Blazeface,
        Self::Classifier,
    ];

    /// The name used in cards.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yolov5 => "yolov5",
            Self::Yolov8 => "yolov8",
            Self::YoloNms => "yolo-nms",
            Self::Yolox => "yolox",
            Self::Nanodet => "nanodet",
            Self::Ssd => "ssd",
            Self::Detr => "detr",
            Self::Heatmap => "heatmap",
            Self::Blazeface => "blazeface",
            Self::Classifier => "classifier",
        }
    }

    /// What its cards need not say.
    pub const fn defaults(self) -> FamilyDefaults {
        let yolo = FamilyDefaults {
            fit: Fit::Letterbox,
            pad: 114.0,
            order: ChannelOrder::Rgb,
            scale: 1.0 / 255.0,
            mean: [0.0; 3],
            std: [1.0; 3],
            score_threshold: 0.25,
            iou_threshold: 0.45,
            max_detections: 300,
        };
        match self {
            Self::Yolov5 => yolo,
            Self::Yolov8 | Self::YoloNms => FamilyDefaults { iou_threshold: 0.7, ..yolo },
            Self::Yolox => FamilyDefaults {
                fit: Fit::LetterboxTopLeft,
                order: ChannelOrder::Bgr,
                scale: 1.0,
                score_threshold: 0.3,
                ..yolo
            },
            Self::Nanodet => FamilyDefaults {
                pad: 0.0,
                order: ChannelOrder::Bgr,
                scale: 1.0,
                mean: [103.53, 116.28, 123.675],
                std: [57.375, 57.12, 58.395],
                score_threshold: 0.4,
                iou_threshold: 0.6,
                max_detections: 100,
                ..yolo
            },
            Self::Ssd => FamilyDefaults {
                fit: Fit::Stretch,
                score_threshold: 0.5,
                iou_threshold: 0.5,
                max_detections: 200,
                ..yolo
            },
            Self::Detr => FamilyDefaults { fit: Fit::Stretch, score_threshold: 0.5, ..yolo },
            Self::Heatmap => FamilyDefaults {
                fit: Fit::Stretch,
                scale: 1.0,
                score_threshold: 0.4,
                iou_threshold: 0.3,
                max_detections: 100,
                ..yolo
            },
            Self::Blazeface => FamilyDefaults {
                pad: 0.0,
                scale: 1.0 / 127.5,
                mean: [1.0; 3],
                score_threshold: 0.5,
                iou_threshold: 0.3,
                max_detections: 100,
                ..yolo
            },
            Self::Classifier => FamilyDefaults {
                fit: Fit::Crop { fraction: 0.875 },
                mean: [0.485, 0.456, 0.406],
                std: [0.229, 0.224, 0.225],
                score_threshold: 0.1,
                max_detections: 5,
                ..yolo
            },
        }
    }
}

impl HeadSpec {
    /// The family.
    pub const fn family(&self) -> Family {
        match self {
            Self::Yolov5 { .. } => Family::Yolov5,
            Self::Yolov8 { .. } => Family::Yolov8,
            Self::YoloNms { .. } => Family::YoloNms,
            Self::Yolox(_) => Family::Yolox,
            Self::Nanodet(_) => Family::Nanodet,
            Self::Ssd(_) => Family::Ssd,
            Self::Detr(_) => Family::Detr,
            Self::Heatmap(_) => Family::Heatmap,
            Self::Blazeface(_) => Family::Blazeface,
            Self::Classifier { .. } => Family::Classifier,
        }
    }
}
