//! The description of a head in a card: its family and its options.

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
    /// Darknet's YOLO before the decoding of boxes: YOLOv2, YOLOv3, YOLOv4.
    Darknet,
    /// NanoDet and NanoDet-Plus: class scores and distance distributions.
    Nanodet,
    /// Boxes and scores: SSD, UltraFace, torchvision, TensorFlow's detection API.
    Ssd,
    /// Queries: DETR, RT-DETR, D-FINE, RF-DETR.
    Detr,
    /// Peaks of a heat map: CenterNet, TTFNet, CenterFace; its cells: DetectNet_v2.
    Heatmap,
    /// Offsets from anchors of one size: BlazeFace and MediaPipe's other detectors.
    Blazeface,
    /// Faces with five landmarks on grids: SCRFD, YuNet, RetinaFace.
    Faces,
    /// Edge Impulse's FOMO: cells of a grid, merged into objects.
    Fomo,
    /// MoveNet: bodies of 17 points.
    Movenet,
    /// The points of one person that fills the image: RTMPose, HRNet, SimpleBaseline, ViTPose.
    Pose,
    /// Semantic segmentation, a class for each pixel: SegFormer, DeepLab, FCN, BiSeNet, PP-LiteSeg.
    Semantic,
    /// A map of text: PaddleOCR's text detection.
    DbText,
    /// One score per class for the whole frame.
    Classifier,
    /// Several classifiers and numbers of the whole frame in one model: age, gender, colour.
    Attributes,
    /// A vector of the whole frame, to compare it with others.
    Embedding,
    /// The depth of each pixel, as a grid over the frame.
    Depth,
}

impl Family {
    /// Whether detections are objects, each with a box, rather than facts of the whole picture.
    pub const fn finds_objects(self) -> bool {
        !matches!(self, Self::Semantic | Self::Classifier | Self::Attributes | Self::Embedding | Self::Depth)
    }

    /// Whether results of parts of a picture can be merged. A pose head finds one person in any picture.
    pub const fn can_tile(self) -> bool {
        self.finds_objects() && !matches!(self, Self::Pose)
    }
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

/// The points of YOLOv5-face.
pub(super) const FACE_POINTS: Keypoints = Keypoints { count: 5, scored: false };

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

/// Options of [`Family::Darknet`].
#[derive(Debug, Clone, PartialEq)]
pub struct DarknetSpec {
    /// Width and height of each anchor in pixels of the input, the same number for each grid; the grid of the smallest cells
    /// first.
    pub anchors: Vec<[f32; 2]>,
    /// `scale_x_y` of each grid, in the same order; 1 if there is none.
    pub scale_x_y: Vec<f32>,
    /// How raw numbers become scores: the sigmoid, or the softmax of YOLOv2.
    pub activation: Activation,
    /// How raw numbers become boxes.
    pub style: GridStyle,
}

/// How the raw numbers of a grid's cells become boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GridStyle {
    /// Sizes as exp(x), and every class that passes: Darknet.
    #[default]
    Darknet,
    /// Squares of sigmoids, and the best class: YOLOv5, YOLOv7.
    Yolov5,
}

/// Known kinds of anchors that boxes are offsets from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnchorKind {
    /// Nine per cell on grids of strides 8 to 128: EfficientDet.
    EfficientDet,
}

/// Options of [`Family::Nanodet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NanodetSpec {
    /// Input pixels per grid cell, one entry per grid.
    pub strides: Vec<u32>,
    /// The last bin of a distance's distribution; 0 if the outputs contain the distances themselves.
    pub reg_max: usize,
    /// Whether the scores still need the sigmoid.
    pub sigmoid: bool,
    /// Whether distances start at a cell's centre (x + 0.5) instead of its corner.
    pub cell_centre: bool,
    /// Whether a cell may have several classes.
    pub multi_label: bool,
}

/// One number of a row that a model has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The frame's index in the batch, which is ignored.
    Batch,
    /// The class, from 0.
    Class,
    /// The confidence, 0 to 1.
    Score,
    /// The box's left side.
    X1,
    /// The box's top.
    Y1,
    /// The box's right side.
    X2,
    /// The box's bottom.
    Y2,
    /// The x of the box's centre.
    CenterX,
    /// The y of the box's centre.
    CenterY,
    /// The box's width.
    Width,
    /// The box's height.
    Height,
    /// A number that is ignored.
    Skipped,
}

impl Column {
    /// Returns a list of columns in a card's notation.
    pub(crate) fn list(columns: &[Self]) -> String {
        let names: Vec<String> = columns.iter().map(|column| word(&COLUMNS, column)).collect();
        format!("[{}]", names.join(", "))
    }
}

/// How [`Family::YoloNms`] finds the model's final rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowsSpec {
    /// The numbers of a row; `None` is box, score, class, or for rows of seven the frame, box, class, score.
    pub columns: Option<Vec<Column>>,
    /// Whether the model only chooses a class for each box, so that NMS is needed.
    pub nms: bool,
    /// Where the background class is among the class numbers.
    pub background: Background,
    /// The output with the boxes, if scores and classes have separate outputs; found by name or shape if not given.
    pub boxes: Option<String>,
    /// The output with the scores.
    pub scores: Option<String>,
    /// The output with the classes.
    pub labels: Option<String>,
}

/// Options of [`Family::Ssd`] and [`Family::Detr`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BoxesSpec {
    /// The output with the boxes; found by name or shape if not given.
    pub boxes: Option<String>,
    /// The output with the scores or logits.
    pub scores: Option<String>,
    /// The output with the classes, for end-to-end models.
    pub labels: Option<String>,
    /// The output with the number of valid rows; `Ssd` only.
    pub count: Option<String>,
    /// How raw numbers become scores; `None` is the sigmoid for the logits of `Detr`, otherwise no activation.
    pub activation: Option<Activation>,
    /// The four numbers of a box; `None` is centre and size for `Detr` unless it is end to end, otherwise corners.
    pub format: Option<BoxFormat>,
    /// Their unit; `None` is pixels for end-to-end models, otherwise fractions of the input.
    pub unit: Option<BoxUnit>,
    /// Where the background class is; `None` is last for `Detr` with softmax, otherwise there is none.
    pub background: Option<Background>,
    /// Whether one box may have several classes; `None` is no for softmax and single outputs of `Detr`, otherwise yes.
    pub multi_label: Option<bool>,
    /// The anchors from which boxes are offsets; `Ssd` only.
    pub anchors: Option<AnchorKind>,
}

/// The kind of heat map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeatmapStyle {
    /// Peaks of 3x3, sizes in cells.
    #[default]
    CenterNet,
    /// Peaks of 3x3, distances to the sides in pixels.
    TtfNet,
    /// Every cell, sizes as exp(x) times the stride, five landmarks, NMS afterwards.
    CenterFace,
    /// Every cell, distances to the sides for each class in units of 35 pixels, NMS afterwards.
    DetectNet,
}

/// Options of [`Family::Heatmap`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

/// The kind of faces on grids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FacesStyle {
    /// InsightFace's SCRFD: distances to the sides, one or two anchors per cell.
    #[default]
    Scrfd,
    /// OpenCV Zoo's YuNet: class and objectness.
    Yunet,
    /// biubug6's RetinaFace: offsets from prior boxes.
    Retinaface,
}

/// Options of [`Family::Faces`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FacesSpec {
    /// The kind of faces.
    pub style: FacesStyle,
    /// Input pixels per grid cell, one entry per grid.
    pub strides: Vec<u32>,
    /// The sides of the prior boxes of each grid's cells in pixels of the input; `Retinaface` only.
    pub min_sizes: Vec<Vec<u32>>,
}

impl Default for FacesSpec {
    fn default() -> Self {
        Self {
            style: FacesStyle::default(),
            strides: vec![8, 16, 32],
            min_sizes: vec![vec![16, 32], vec![64, 128], vec![256, 512]],
        }
    }
}

/// Options of [`Family::DbText`]; the names are PaddleOCR's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DbTextSpec {
    /// The probability above which a cell belongs to text.
    pub thresh: f32,
    /// How far a text box grows: its area times this, divided by its perimeter.
    pub unclip_ratio: f32,
    /// How many texts to process: those with the most cells.
    pub max_candidates: usize,
    /// Whether the map still needs the sigmoid.
    pub sigmoid: bool,
}

impl Default for DbTextSpec {
    fn default() -> Self {
        Self { thresh: 0.3, unclip_ratio: 1.5, max_candidates: 1000, sigmoid: false }
    }
}

/// One attribute of [`Family::Attributes`].
#[derive(Debug, Clone, PartialEq)]
pub struct AttributeSpec {
    /// Its name in messages.
    pub name: String,
    /// The output that contains its numbers.
    pub output: String,
    /// Where its numbers begin in the output; `None` if they are the whole output.
    pub column: Option<usize>,
    /// The meaning of its numbers.
    pub kind: AttributeKind,
}

/// The meaning of an attribute's numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeKind {
    /// One score per label; or the score of the second of two labels.
    Labels {
        /// The labels.
        names: Vec<String>,
        /// How raw numbers become scores. `None` is the sigmoid for one number and for several labels; otherwise it checks
        /// whether they are probabilities, and applies the softmax if not.
        activation: Option<Activation>,
        /// Whether every label that passes the threshold counts, instead of the best one.
        multi_label: bool,
    },
    /// A number, times `scale`, plus `offset`.
    Number {
        /// The factor.
        scale: f32,
        /// The offset, added after `scale`.
        offset: f32,
    },
}

/// Which end of a depth map is near.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nearer {
    /// Smaller numbers: distances, such as metres.
    Smaller,
    /// Larger numbers: inverse depth, as from MiDaS and Depth Anything.
    #[default]
    Larger,
}

/// Options of [`Family::Depth`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepthSpec {
    /// The output with the map; found by shape if not given.
    pub output: Option<String>,
    /// Columns and rows of the grid in messages.
    pub grid: [u32; 2],
    /// Which end is near.
    pub nearer: Nearer,
}

/// The most columns or rows of a depth grid.
pub(crate) const MAX_GRID: u32 = 64;

impl Default for DepthSpec {
    fn default() -> Self {
        Self { output: None, grid: [8, 6], nearer: Nearer::default() }
    }
}

/// The description of the head in a card.
#[derive(Debug, Clone, PartialEq)]
pub enum HeadSpec {
    /// See [`Family::Yolov5`].
    Yolov5 {
        /// Keypoints: after the objectness if a point is x and y (YOLOv5-face), after the classes if it has a score (YOLOv7-pose).
        keypoints: Option<Keypoints>,
        /// Mask coefficients at the end of a row.
        masks: usize,
    },
    /// See [`Family::Yolov8`].
    Yolov8 {
        /// Keypoints after the classes.
        keypoints: Option<Keypoints>,
        /// Mask coefficients after the classes.
        masks: usize,
        /// Whether boxes are oriented: the last number of each is its angle in radians.
        oriented: bool,
    },
    /// See [`Family::YoloNms`].
    YoloNms {
        /// Keypoints after box, score and class.
        keypoints: Option<Keypoints>,
        /// The unit of the boxes.
        unit: BoxUnit,
        /// Whether boxes are oriented: centre and size, and their angle in radians after the class.
        oriented: bool,
        /// The order of a row's numbers, and the remaining steps.
        rows: RowsSpec,
    },
    /// See [`Family::Yolox`].
    Yolox(YoloxSpec),
    /// See [`Family::Darknet`].
    Darknet(DarknetSpec),
    /// See [`Family::Nanodet`].
    Nanodet(NanodetSpec),
    /// See [`Family::Ssd`].
    Ssd(BoxesSpec),
    /// See [`Family::Detr`].
    Detr(BoxesSpec),
    /// See [`Family::Heatmap`].
    Heatmap(HeatmapSpec),
    /// See [`Family::Blazeface`].
    Blazeface(BlazefaceSpec),
    /// See [`Family::Faces`].
    Faces(FacesSpec),
    /// See [`Family::Fomo`].
    Fomo,
    /// See [`Family::Movenet`].
    Movenet,
    /// See [`Family::Pose`].
    Pose,
    /// See [`Family::Semantic`].
    Semantic {
        /// How raw numbers become scores; `None` checks whether they are probabilities and otherwise applies the softmax.
        activation: Option<Activation>,
        /// Where the background class is, which is not reported.
        background: Background,
    },
    /// See [`Family::DbText`].
    DbText(DbTextSpec),
    /// See [`Family::Classifier`].
    Classifier {
        /// How raw numbers become scores; `None` checks whether they are probabilities and otherwise applies the softmax.
        activation: Option<Activation>,
        /// Where the background class is.
        background: Background,
    },
    /// See [`Family::Attributes`].
    Attributes(Vec<AttributeSpec>),
    /// See [`Family::Embedding`].
    Embedding {
        /// The output with the vector; found by shape if not given.
        output: Option<String>,
        /// Whether to divide it by its length.
        normalize: bool,
    },
    /// See [`Family::Depth`].
    Depth(DepthSpec),
}

impl Family {
    /// Every family with its name in cards, in the order of the variants.
    pub const ALL: [(&'static str, Self); 20] = [
        (Self::Yolov5.name(), Self::Yolov5),
        (Self::Yolov8.name(), Self::Yolov8),
        (Self::YoloNms.name(), Self::YoloNms),
        (Self::Yolox.name(), Self::Yolox),
        (Self::Darknet.name(), Self::Darknet),
        (Self::Nanodet.name(), Self::Nanodet),
        (Self::Ssd.name(), Self::Ssd),
        (Self::Detr.name(), Self::Detr),
        (Self::Heatmap.name(), Self::Heatmap),
        (Self::Blazeface.name(), Self::Blazeface),
        (Self::Faces.name(), Self::Faces),
        (Self::Fomo.name(), Self::Fomo),
        (Self::Movenet.name(), Self::Movenet),
        (Self::Pose.name(), Self::Pose),
        (Self::Semantic.name(), Self::Semantic),
        (Self::DbText.name(), Self::DbText),
        (Self::Classifier.name(), Self::Classifier),
        (Self::Attributes.name(), Self::Attributes),
        (Self::Embedding.name(), Self::Embedding),
        (Self::Depth.name(), Self::Depth),
    ];

    /// Returns the name used in cards.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yolov5 => "yolov5",
            Self::Yolov8 => "yolov8",
            Self::YoloNms => "yolo-nms",
            Self::Yolox => "yolox",
            Self::Darknet => "darknet",
            Self::Nanodet => "nanodet",
            Self::Ssd => "ssd",
            Self::Detr => "detr",
            Self::Heatmap => "heatmap",
            Self::Blazeface => "blazeface",
            Self::Faces => "faces",
            Self::Fomo => "fomo",
            Self::Movenet => "movenet",
            Self::Pose => "pose",
            Self::Semantic => "semantic",
            Self::DbText => "db-text",
            Self::Classifier => "classifier",
            Self::Attributes => "attributes",
            Self::Embedding => "embedding",
            Self::Depth => "depth",
        }
    }

    /// Whether the result is values of the whole frame instead of detections.
    pub const fn gives_values(self) -> bool {
        matches!(self, Self::Attributes | Self::Embedding | Self::Depth)
    }
}

impl HeadSpec {
    /// Whether boxes are turned.
    pub const fn is_oriented(&self) -> bool {
        matches!(self, Self::Yolov8 { oriented: true, .. } | Self::YoloNms { oriented: true, .. } | Self::DbText(_))
    }

    /// Returns the family.
    pub const fn family(&self) -> Family {
        match self {
            Self::Yolov5 { .. } => Family::Yolov5,
            Self::Yolov8 { .. } => Family::Yolov8,
            Self::YoloNms { .. } => Family::YoloNms,
            Self::Yolox(_) => Family::Yolox,
            Self::Darknet(_) => Family::Darknet,
            Self::Nanodet(_) => Family::Nanodet,
            Self::Ssd(_) => Family::Ssd,
            Self::Detr(_) => Family::Detr,
            Self::Heatmap(_) => Family::Heatmap,
            Self::Blazeface(_) => Family::Blazeface,
            Self::Faces(_) => Family::Faces,
            Self::Fomo => Family::Fomo,
            Self::Movenet => Family::Movenet,
            Self::Pose => Family::Pose,
            Self::Semantic { .. } => Family::Semantic,
            Self::DbText(_) => Family::DbText,
            Self::Classifier { .. } => Family::Classifier,
            Self::Attributes(_) => Family::Attributes,
            Self::Embedding { .. } => Family::Embedding,
            Self::Depth(_) => Family::Depth,
        }
    }
}

/// Finds the card's word for an option's value.
fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> String {
    let found = words.iter().find(|(_, known)| known == value);
    format!("{:?}", found.map_or("", |(word, _)| word))
}

/// The words of cards for the position of the background class.
pub(crate) const BACKGROUNDS: [(&str, Background); 3] =
    [("none", Background::None), ("first", Background::First), ("last", Background::Last)];
/// The words of cards for activations.
pub(crate) const ACTIVATIONS: [(&str, Activation); 3] =
    [("none", Activation::None), ("sigmoid", Activation::Sigmoid), ("softmax", Activation::Softmax)];
/// The words of cards for units.
pub(crate) const UNITS: [(&str, BoxUnit); 2] = [("pixels", BoxUnit::Pixels), ("normalized", BoxUnit::Normalized)];
/// The words of cards for the four numbers of a box.
pub(crate) const FORMATS: [(&str, BoxFormat); 4] =
    [("xyxy", BoxFormat::Xyxy), ("yxyx", BoxFormat::Yxyx), ("cxcywh", BoxFormat::Cxcywh), ("xywh", BoxFormat::Xywh)];
/// The words of cards for kinds of heat maps.
pub(crate) const STYLES: [(&str, HeatmapStyle); 4] = [
    ("centernet", HeatmapStyle::CenterNet),
    ("ttfnet", HeatmapStyle::TtfNet),
    ("centerface", HeatmapStyle::CenterFace),
    ("detectnet", HeatmapStyle::DetectNet),
];
/// The words of cards for kinds of faces.
pub(crate) const FACES: [(&str, FacesStyle); 3] =
    [("scrfd", FacesStyle::Scrfd), ("yunet", FacesStyle::Yunet), ("retinaface", FacesStyle::Retinaface)];
/// The words of cards for the numbers of a row.
pub(crate) const COLUMNS: [(&str, Column); 12] = [
    ("batch", Column::Batch),
    ("class", Column::Class),
    ("score", Column::Score),
    ("x1", Column::X1),
    ("y1", Column::Y1),
    ("x2", Column::X2),
    ("y2", Column::Y2),
    ("cx", Column::CenterX),
    ("cy", Column::CenterY),
    ("w", Column::Width),
    ("h", Column::Height),
    ("_", Column::Skipped),
];
/// The words of cards for how raw numbers become boxes.
pub(crate) const GRID_STYLES: [(&str, GridStyle); 2] = [("darknet", GridStyle::Darknet), ("yolov5", GridStyle::Yolov5)];
/// The words of cards for kinds of anchors.
pub(crate) const ANCHORS: [(&str, AnchorKind); 1] = [("efficientdet", AnchorKind::EfficientDet)];
/// The words of cards for the end of a depth map that is near.
pub(crate) const NEARER: [(&str, Nearer); 2] = [("smaller", Nearer::Smaller), ("larger", Nearer::Larger)];

/// Returns an attribute as an inline table of a card.
fn attribute_text(AttributeSpec { name, output, column, kind }: &AttributeSpec) -> String {
    let mut keys = vec![format!("name = {name:?}"), format!("output = {output:?}")];
    keys.extend(column.map(|column| format!("column = {column}")));
    match kind {
        AttributeKind::Labels { names, activation, multi_label } => {
            keys.push(format!("classes = {names:?}"));
            keys.extend(activation.map(|activation| format!("activation = {}", word(&ACTIVATIONS, &activation))));
            keys.extend(multi_label.then(|| "multi_label = true".to_owned()));
        }
        AttributeKind::Number { scale, offset } => {
            keys.extend([format!("scale = {scale}"), format!("offset = {offset}")])
        }
    }
    format!("  {{ {} }},\n", keys.join(", "))
}

impl HeadSpec {
    /// Returns the options in a card's notation, as key and value, without those that are not set.
    pub(crate) fn options(&self) -> Vec<(&'static str, String)> {
        let number = |key, count: usize| (count > 0).then(|| (key, count.to_string()));
        let points = |keypoints: &Option<Keypoints>| {
            let each = |k: Keypoints| if k.scored { 3 } else { 2 };
            keypoints.map(|k| ("keypoints", format!("[{}, {}]", k.count, each(k))))
        };
        let set = |key, flag: bool| flag.then(|| (key, "true".to_owned()));
        let name = |key, name: &Option<String>| name.as_ref().map(|name| (key, format!("{name:?}")));
        let options = match self {
            Self::Yolov5 { keypoints, masks } => vec![points(keypoints), number("masks", *masks)],
            Self::Yolov8 { keypoints, masks, oriented } => {
                vec![points(keypoints), number("masks", *masks), set("oriented", *oriented)]
            }
            Self::YoloNms { keypoints, unit, oriented, rows } => vec![
                points(keypoints),
                Some(("unit", word(&UNITS, unit))),
                set("oriented", *oriented),
                rows.columns.as_ref().map(|columns| ("columns", Column::list(columns))),
                set("nms", rows.nms),
                (rows.background != Background::None).then(|| ("background", word(&BACKGROUNDS, &rows.background))),
                name("boxes", &rows.boxes),
                name("scores", &rows.scores),
                name("labels", &rows.labels),
            ],
            Self::Yolox(spec) => vec![
                Some(("decoded", spec.decoded.to_string())),
                // Decoded boxes need no grid.
                (!spec.decoded).then(|| ("strides", format!("{:?}", spec.strides))),
            ],
            Self::Darknet(spec) => vec![
                Some(("anchors", format!("{:?}", spec.anchors.as_flattened()))),
                (!spec.scale_x_y.is_empty()).then(|| ("scale_x_y", format!("{:?}", spec.scale_x_y))),
                (spec.activation != Activation::Sigmoid).then(|| ("activation", word(&ACTIVATIONS, &spec.activation))),
                (spec.style != GridStyle::Darknet).then(|| ("style", word(&GRID_STYLES, &spec.style))),
            ],
            Self::Nanodet(spec) => vec![
                Some(("strides", format!("{:?}", spec.strides))),
                Some(("reg_max", spec.reg_max.to_string())),
                Some(("cell_centre", spec.cell_centre.to_string())),
                Some(("sigmoid", spec.sigmoid.to_string())),
                (!spec.multi_label).then(|| ("multi_label", "false".to_owned())),
            ],
            Self::Ssd(spec) | Self::Detr(spec) => vec![
                name("boxes", &spec.boxes),
                name("scores", &spec.scores),
                name("labels", &spec.labels),
                name("count", &spec.count),
                spec.activation.map(|activation| ("activation", word(&ACTIVATIONS, &activation))),
                spec.format.map(|format| ("format", word(&FORMATS, &format))),
                spec.unit.map(|unit| ("unit", word(&UNITS, &unit))),
                spec.background.map(|background| ("background", word(&BACKGROUNDS, &background))),
                spec.multi_label.map(|several| ("multi_label", several.to_string())),
                spec.anchors.map(|anchors| ("anchors", word(&ANCHORS, &anchors))),
            ],
            Self::Heatmap(spec) => vec![
                Some(("style", word(&STYLES, &spec.style))),
                Some(("stride", spec.stride.to_string())),
                Some(("sigmoid", spec.sigmoid.to_string())),
                name("heat", &spec.heat),
                name("size", &spec.size),
                name("offset", &spec.offset),
                name("landmarks", &spec.landmarks),
            ],
            Self::Blazeface(spec) => {
                vec![spec.strides.as_ref().map(|strides| ("strides", format!("{strides:?}")))]
            }
            Self::Faces(spec) => {
                let plain = FacesSpec::default();
                let (strides, sizes) = (&spec.strides, &spec.min_sizes);
                vec![
                    Some(("style", word(&FACES, &spec.style))),
                    (*strides != plain.strides).then(|| ("strides", format!("{strides:?}"))),
                    (*sizes != plain.min_sizes).then(|| ("min_sizes", format!("{sizes:?}"))),
                ]
            }
            Self::Fomo | Self::Movenet | Self::Pose => Vec::new(),
            Self::DbText(spec) => {
                let plain = DbTextSpec::default();
                let other = |key, number: f32, usual: f32| (number != usual).then(|| (key, format!("{number}")));
                let candidates = spec.max_candidates;
                vec![
                    other("thresh", spec.thresh, plain.thresh),
                    other("unclip_ratio", spec.unclip_ratio, plain.unclip_ratio),
                    (candidates != plain.max_candidates).then(|| ("max_candidates", candidates.to_string())),
                    set("sigmoid", spec.sigmoid),
                ]
            }
            Self::Semantic { activation, background } | Self::Classifier { activation, background } => vec![
                activation.map(|activation| ("activation", word(&ACTIVATIONS, &activation))),
                (*background != Background::None).then(|| ("background", word(&BACKGROUNDS, background))),
            ],
            Self::Attributes(attributes) => {
                let tables: String = attributes.iter().map(attribute_text).collect();
                vec![Some(("attribute", format!("[\n{tables}]")))]
            }
            Self::Embedding { output, normalize } => {
                vec![name("output", output), Some(("normalize", normalize.to_string()))]
            }
            Self::Depth(DepthSpec { output, grid, nearer }) => vec![
                name("output", output),
                Some(("grid", format!("{grid:?}"))),
                Some(("nearer", word(&NEARER, nearer))),
            ],
        };
        options.into_iter().flatten().collect()
    }

    /// Returns the width and height that most models of the family are trained with, for models that leave them open.
    pub(crate) const fn usual_size(&self) -> (u32, u32) {
        match self {
            Self::Darknet(_) | Self::Nanodet(_) => (416, 416),
            Self::Ssd(_) => (320, 320),
            Self::Heatmap(HeatmapSpec { style: HeatmapStyle::CenterFace, .. }) => (640, 480),
            // NVIDIA's PeopleNet, TrafficCamNet and DashCamNet.
            Self::Heatmap(HeatmapSpec { style: HeatmapStyle::DetectNet, .. }) => (960, 544),
            Self::Heatmap(_) => (512, 512),
            Self::Blazeface(_) => (128, 128),
            Self::Fomo => (96, 96),
            Self::Movenet => (256, 256),
            // Width and height of mmpose's body models.
            Self::Pose => (192, 256),
            Self::Semantic { .. } => (512, 512),
            // PaddleOCR's `limit_side_len`.
            Self::DbText(_) => (960, 960),
            Self::Classifier { .. } | Self::Attributes(_) => (224, 224),
            Self::Embedding { .. } => (128, 256),
            Self::Depth(_) => (518, 518),
            Self::Yolov5 { .. }
            | Self::Yolov8 { .. }
            | Self::YoloNms { .. }
            | Self::Yolox(_)
            | Self::Detr(_)
            | Self::Faces(_) => (640, 640),
        }
    }
}
