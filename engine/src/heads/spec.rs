//! What a card says about a head: its family and its options.

use visiond_kernels::letterbox::Fit;
use visiond_kernels::preprocess::ChannelOrder;

/// A family of models whose outputs are decoded in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// YOLOv5 and YOLOv7: rows of box, objectness, classes.
    Yolov5,
    /// YOLOv8, 9, 11 and 12: columns of box, classes, keypoints.
    Yolov8,
    /// Models with NMS inside: YOLOv10, YOLO26, `nms=True` exports, EfficientNMS.
    YoloNms,
    /// YOLOX: like YOLOv5, relative to a grid.
    Yolox,
    /// NanoDet and NanoDet-Plus: class scores and distance distributions.
    Nanodet,
    /// Boxes and scores: SSD, UltraFace, torchvision, TensorFlow's detection API.
    Ssd,
    /// Queries: DETR, RT-DETR, D-FINE, RF-DETR.
    Detr,
    /// Peaks of a heat map: CenterNet, CenterFace.
    Heatmap,
    /// Offsets from anchors of one size: BlazeFace and MediaPipe's other detectors.
    Blazeface,
    /// One score per class for the whole frame.
    Classifier,
}

/// Keypoints of each box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keypoints {
    /// The number of keypoints per box.
    pub count: usize,
    /// Whether each keypoint has a score beside x and y.
    pub scored: bool,
}

impl Keypoints {
    /// Returns the numbers per box.
    pub const fn values(self) -> usize {
        self.count * if self.scored { 3 } else { 2 }
    }
}

/// Where a model puts the background class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Background {
    /// There is no background: the first number is the first class.
    #[default]
    None,
    /// First: number 0 is the background, number 1 is the first class.
    First,
    /// Last, after the classes.
    Last,
}

/// How raw numbers become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// They already are scores.
    #[default]
    None,
    /// 1 / (1 + exp(-x)), for each number.
    Sigmoid,
    /// exp(x) / sum of exp, over the classes.
    Softmax,
}

/// The four numbers of a box.
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

/// The unit of a box's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoxUnit {
    /// Fractions of the input's width and height.
    Normalized,
    /// Pixels of the input.
    Pixels,
}

/// Options of [`Family::Yolox`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YoloxSpec {
    /// Whether the export decodes the grid (`--decode_in_inference`).
    pub decoded: bool,
    /// Input pixels per grid cell, one entry per grid.
    pub strides: Vec<u32>,
}

/// Options of [`Family::Nanodet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NanodetSpec {
    /// Input pixels per grid cell, one entry per grid.
    pub strides: Vec<u32>,
    /// The last bin of a distance's distribution.
    pub reg_max: usize,
    /// Whether the scores still need the sigmoid.
    pub sigmoid: bool,
    /// Whether distances start at a cell's centre (x + 0.5) instead of its corner.
    pub cell_centre: bool,
}

/// Options of [`Family::Ssd`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SsdSpec {
    /// The output with the boxes; found by shape and name if not given.
    pub boxes: Option<String>,
    /// The output with the scores.
    pub scores: Option<String>,
    /// The output with the classes, for end-to-end models.
    pub labels: Option<String>,
    /// The output with the number of valid rows.
    pub count: Option<String>,
    /// The four numbers of a box.
    pub format: BoxFormat,
    /// Their unit; `None` is pixels if there are labels, otherwise fractions of the input.
    pub unit: Option<BoxUnit>,
    /// Where the background class is.
    pub background: Background,
    /// How raw numbers become scores.
    pub activation: Activation,
}

/// Options of [`Family::Detr`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DetrSpec {
    /// The output with the boxes; found by name or shape if not given.
    pub boxes: Option<String>,
    /// The output with the logits or scores.
    pub scores: Option<String>,
    /// The output with the classes, for end-to-end models.
    pub labels: Option<String>,
    /// How raw numbers become scores; `None` is the sigmoid, or nothing for end-to-end models.
    pub activation: Option<Activation>,
    /// The four numbers of a box; `None` is corners for end-to-end models, otherwise centre and size.
    pub format: Option<BoxFormat>,
    /// Their unit; `None` is pixels for end-to-end models, otherwise fractions of the input.
    pub unit: Option<BoxUnit>,
    /// Where the background class is; `None` is last with softmax, otherwise there is none.
    pub background: Option<Background>,
    /// Whether one query may have several classes; `None` is yes with sigmoid, otherwise no.
    pub multi_label: Option<bool>,
}

/// The kind of heat map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeatmapStyle {
    /// Peaks of 3x3, sizes in cells.
    CenterNet,
    /// Every cell, sizes as exp(x) times the stride, five landmarks, NMS afterwards.
    CenterFace,
}

/// Options of [`Family::Heatmap`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatmapSpec {
    /// The kind of heat map.
    pub style: HeatmapStyle,
    /// Input pixels per cell.
    pub stride: u32,
    /// Whether the heat map still needs the sigmoid.
    pub sigmoid: bool,
    /// The output with the heat map; found by name or order if not given.
    pub heat: Option<String>,
    /// The output with the sizes.
    pub size: Option<String>,
    /// The output with the offsets inside a cell.
    pub offset: Option<String>,
    /// The output with the landmarks.
    pub landmarks: Option<String>,
}

/// Options of [`Family::Blazeface`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlazefaceSpec {
    /// Input pixels per grid cell, one entry per layer; `None` is BlazeFace's own strides, which depend on the input's width.
    pub strides: Option<Vec<u32>>,
}

/// What a card says about the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadSpec {
    /// See [`Family::Yolov5`].
    Yolov5 {
        /// Mask coefficients at the end of a row, which are ignored.
        masks: usize,
    },
    /// See [`Family::Yolov8`].
    Yolov8 {
        /// Keypoints after the classes.
        keypoints: Option<Keypoints>,
        /// Mask coefficients after the classes, which are ignored.
        masks: usize,
    },
    /// See [`Family::YoloNms`].
    YoloNms {
        /// Keypoints after box, score and class.
        keypoints: Option<Keypoints>,
        /// The unit of the boxes.
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
        /// How raw numbers become scores; `None` checks whether they are probabilities and otherwise takes the softmax.
        activation: Option<Activation>,
        /// Where the background class is.
        background: Background,
    },
}

/// The defaults of a family's cards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyDefaults {
    /// How the frame is fitted into the input.
    pub fit: Fit,
    /// The padding value, 0 to 255.
    pub pad: f32,
    /// The channel order.
    pub order: ChannelOrder,
    /// The factor for a pixel.
    pub scale: f32,
    /// Subtracted after `scale`.
    pub mean: [f32; 3],
    /// The divisor after `mean`.
    pub std: [f32; 3],
    /// The minimum score.
    pub score_threshold: f32,
    /// IoU above which NMS removes the lower-scoring box.
    pub iou_threshold: f32,
    /// The maximum number of detections.
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

    /// Returns the name used in cards.
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

    /// Returns the defaults of the family's cards.
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
    /// Returns the family.
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
