//! The ways in which training frameworks prepare a model's input, by name: the values of `preprocess` in a card's `[input]`.
//!
//! docs/models.md has the sources and versions. A preprocess covers the framework's own code between a decoded image and the
//! model, and the mapping of the boxes back.

use visiond_kernels::placement::{Fit, Placement, Resize, Rounding, WayBack};
use visiond_kernels::preprocess::{ChannelOrder, Sampling};

use super::InputCard;

/// The mean and the standard deviation of ImageNet's images, 0 to 1, in the order of red, green and blue.
const IMAGENET: ([f32; 3], [f32; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

/// The same from 0 to 255, in the order of blue, green and red, as in OpenMMLab.
const IMAGENET_BGR: ([f32; 3], [f32; 3]) = ([103.53, 116.28, 123.675], [57.375, 57.12, 58.395]);

/// The same in the order of red, green and blue.
const IMAGENET_RGB_BYTES: ([f32; 3], [f32; 3]) = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375]);

const BYTE: f32 = 1.0 / 255.0;

/// How a framework prepares a model's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Way {
    placement: Placement,
    sampling: Sampling,
    pad: f32,
    order: ChannelOrder,
    scale: f32,
    mean: [f32; 3],
    std: [f32; 3],
}

impl Way {
    /// Ultralytics since 8.4.174: a centred letterbox, RGB.
    pub(crate) const ULTRALYTICS: Self = Self {
        placement: Placement::new(Fit::Letterbox),
        sampling: Sampling::Opencv,
        pad: 114.0,
        order: ChannelOrder::Rgb,
        scale: BYTE,
        mean: [0.0; 3],
        std: [1.0; 3],
    };

    /// Ultralytics 8.4.25 to 8.4.173.
    pub(crate) const ULTRALYTICS_8_4: Self = Self::ULTRALYTICS.back(WayBack::Ratio);

    /// Ultralytics 8.0.108 to 8.4.24: the time of YOLOv8 and YOLO11.
    pub(crate) const ULTRALYTICS_8_0: Self = Self::ULTRALYTICS.back(WayBack::RatioFromRoundedMiddle);

    /// YOLOv5, YOLOv7, and Ultralytics up to 8.0.107.
    pub(crate) const YOLOV5: Self = Self::ULTRALYTICS.back(WayBack::RatioFromMiddle);

    /// Ultralytics' classifiers: the shorter side is resized to the input's, then the centre is cropped.
    pub(crate) const ULTRALYTICS_CLASSIFY: Self =
        Self::ULTRALYTICS.fit(Fit::ResizeCrop(Resize::Fraction(1.0))).sampled(Sampling::PillowBilinear);

    /// Megvii's YOLOX: sizes rounded down, boxes divided by one ratio.
    pub(crate) const MEGVII_YOLOX: Self = Self {
        placement: Placement {
            rounding: Rounding::Down,
            way_back: WayBack::Ratio,
            ..Placement::new(Fit::LetterboxTopLeft)
        },
        order: ChannelOrder::Bgr,
        scale: 1.0,
        ..Self::ULTRALYTICS
    };

    /// OpenMMLab's YOLOX.
    const MMDET: Self = Self {
        placement: Placement { rounding: Rounding::HalfUp, ..Placement::new(Fit::LetterboxTopLeft) },
        ..Self::MEGVII_YOLOX
    };

    /// OpenMMLab's RTMDet.
    const RTMDET: Self = Self::MMDET.normalised(IMAGENET_BGR);

    /// NanoDet, which warps.
    pub(crate) const NANODET: Self = Self {
        placement: Placement::new(Fit::Warp),
        sampling: Sampling::OpencvWarp,
        pad: 0.0,
        order: ChannelOrder::Bgr,
        scale: 1.0,
        ..Self::ULTRALYTICS
    }
    .normalised(IMAGENET_BGR);

    /// NanoDet-Plus, which does not keep the aspect ratio.
    const NANODET_PLUS: Self = Self::NANODET.fit(Fit::WarpStretch);

    /// CenterNet's own code, with `--fix_res`.
    pub(crate) const CENTERNET: Self = Self { scale: BYTE, sampling: Sampling::OpencvWarpAffine, ..Self::NANODET }
        .normalised(([0.408, 0.447, 0.47], [0.289, 0.274, 0.278]));

    /// TTFNet, with OpenMMLab's transforms of 2019: resized without keeping the aspect ratio.
    pub(crate) const TTFNET: Self = Self { scale: 1.0, ..Self::STRETCH }.normalised(IMAGENET_RGB_BYTES);

    /// CenterFace.
    pub(crate) const CENTERFACE: Self = Self { scale: 1.0, ..Self::STRETCH };

    /// The whole input, RGB from 0 to 1, by OpenCV: the usual choice of custom code.
    pub(crate) const STRETCH: Self = Self::ULTRALYTICS.fit(Fit::Stretch);

    /// NudeNet, which pads before it resizes.
    const NUDENET: Self = Self {
        placement: Placement { pad_first: true, ..Placement::new(Fit::LetterboxTopLeft) },
        pad: 0.0,
        order: ChannelOrder::Bgr,
        ..Self::ULTRALYTICS
    };

    /// torchvision's classifiers.
    pub(crate) const TORCHVISION: Self =
        Self::ULTRALYTICS_CLASSIFY.fit(Fit::ResizeCrop(Resize::Fraction(0.875))).normalised(IMAGENET);

    /// timm's classifiers, most of which are bicubic.
    const TIMM: Self = Self {
        placement: Placement { rounding: Rounding::Down, ..Self::TORCHVISION.placement },
        sampling: Sampling::PillowBicubic,
        ..Self::TORCHVISION
    };

    /// DETR's own code and Hugging Face's.
    pub(crate) const DETR: Self = Self::RT_DETR.normalised(IMAGENET);

    /// RT-DETR and D-FINE.
    pub(crate) const RT_DETR: Self = Self::STRETCH.sampled(Sampling::PillowBilinear);

    /// RF-DETR since 1.4.
    const RF_DETR: Self = Self::STRETCH.sampled(Sampling::Exact).normalised(IMAGENET);

    /// MediaPipe.
    pub(crate) const MEDIAPIPE: Self =
        Self { order: ChannelOrder::Rgb, scale: 1.0 / 127.5, ..Self::NANODET }.normalised(([1.0; 3], [1.0; 3]));

    /// MoveNet: the frame is padded to a square with black, then resized by OpenCV; bytes stay as they are. Source:
    /// tensorflow/examples `pose_estimation/raspberry_pi/ml/movenet.py`, `init_crop_region`, `_crop_and_resize`.
    pub(crate) const MOVENET: Self = Self {
        placement: Placement { pad_first: true, ..Placement::new(Fit::Letterbox) },
        pad: 0.0,
        scale: 1.0,
        ..Self::ULTRALYTICS
    };

    /// mmpose's top-down models on the whole frame: the aspect ratio is kept, with black around it. Source: open-mmlab/mmpose
    /// `datasets/transforms/topdown_transforms.py`, `TopdownAffine`, without the margin of a detector's box.
    pub(crate) const MMPOSE: Self =
        Self { order: ChannelOrder::Rgb, scale: 1.0, ..Self::CENTERNET }.normalised(IMAGENET_RGB_BYTES);

    /// `tf.image.resize` and Keras' `Resizing`.
    const TENSORFLOW: Self =
        Self { scale: 1.0 / 127.5, ..Self::STRETCH.sampled(Sampling::Exact) }.normalised(([1.0; 3], [1.0; 3]));

    /// `resize_bilinear` of TensorFlow 1, which its detection API uses.
    const TENSORFLOW_LEGACY: Self = Self::TENSORFLOW.sampled(Sampling::TensorflowLegacy);

    /// Caffe's classifiers, and Keras classifiers trained the same way.
    const CAFFE: Self =
        Self { order: ChannelOrder::Bgr, scale: 1.0, ..Self::STRETCH.fit(Fit::ResizeCrop(Resize::Stretch(256, 256))) }
            .normalised(([103.939, 116.779, 123.68], [1.0; 3]));

    /// PaddleDetection.
    pub(crate) const PADDLE: Self = Self::STRETCH.sampled(Sampling::OpencvCubic).normalised(IMAGENET);

    /// PaddleOCR's text detection, which normalises blue with the mean of red: the image is BGR, but the numbers are for RGB.
    /// Its own code resizes to the image's aspect ratio; a fixed input pads on the right and at the bottom.
    pub(crate) const PADDLE_OCR: Self = Self {
        placement: Placement::new(Fit::LetterboxTopLeft),
        pad: 0.0,
        order: ChannelOrder::Bgr,
        ..Self::ULTRALYTICS
    }
    .normalised(IMAGENET);

    /// DAMO-YOLO.
    const DAMO_YOLO: Self = Self {
        placement: Placement { way_back: WayBack::Axes, ..Self::MEGVII_YOLOX.placement },
        pad: 0.0,
        order: ChannelOrder::Rgb,
        ..Self::MEGVII_YOLOX
    };

    /// UltraFace.
    const ULTRAFACE: Self = Self { scale: 1.0, ..Self::STRETCH }.normalised(([127.0; 3], [128.0; 3]));

    /// InsightFace's SCRFD: the frame in the top left corner, sizes rounded down, black around it.
    pub(crate) const SCRFD: Self = Self {
        placement: Placement {
            rounding: Rounding::Down,
            way_back: WayBack::Height,
            ..Placement::new(Fit::LetterboxTopLeft)
        },
        pad: 0.0,
        scale: 1.0,
        ..Self::ULTRALYTICS
    }
    .normalised(([127.5; 3], [128.0; 3]));

    /// YuNet. OpenCV pads a frame of any size on the right and at the bottom; an input of a fixed size resizes it first.
    pub(crate) const YUNET: Self =
        Self { order: ChannelOrder::Bgr, ..Self::SCRFD }.back(WayBack::Axes).normalised(([0.0; 3], [1.0; 3]));

    /// biubug6's RetinaFace, which accepts frames of any size.
    pub(crate) const RETINAFACE: Self = Self::YUNET.normalised(([104.0, 117.0, 123.0], [1.0; 3]));

    /// Every preprocess by its name in cards.
    pub(crate) const ALL: [(&'static str, Self); 31] = [
        ("ultralytics", Self::ULTRALYTICS),
        ("ultralytics-8.4", Self::ULTRALYTICS_8_4),
        ("ultralytics-8.0", Self::ULTRALYTICS_8_0),
        ("ultralytics-classify", Self::ULTRALYTICS_CLASSIFY),
        ("yolov5", Self::YOLOV5),
        ("megvii-yolox", Self::MEGVII_YOLOX),
        ("mmdet", Self::MMDET),
        ("rtmdet", Self::RTMDET),
        ("paddle-ocr", Self::PADDLE_OCR),
        ("damo-yolo", Self::DAMO_YOLO),
        ("nanodet", Self::NANODET),
        ("nanodet-plus", Self::NANODET_PLUS),
        ("centernet", Self::CENTERNET),
        ("ttfnet", Self::TTFNET),
        ("centerface", Self::CENTERFACE),
        ("mmpose", Self::MMPOSE),
        ("ultraface", Self::ULTRAFACE),
        ("scrfd", Self::SCRFD),
        ("yunet", Self::YUNET),
        ("retinaface", Self::RETINAFACE),
        ("nudenet", Self::NUDENET),
        ("detr", Self::DETR),
        ("rt-detr", Self::RT_DETR),
        ("rf-detr", Self::RF_DETR),
        ("paddle", Self::PADDLE),
        ("mediapipe", Self::MEDIAPIPE),
        ("tensorflow", Self::TENSORFLOW),
        ("tensorflow-legacy", Self::TENSORFLOW_LEGACY),
        ("torchvision", Self::TORCHVISION),
        ("timm", Self::TIMM),
        ("caffe", Self::CAFFE),
    ];

    const fn fit(self, fit: Fit) -> Self {
        Self { placement: Placement::new(fit), ..self }
    }

    const fn back(self, way_back: WayBack) -> Self {
        Self { placement: Placement { way_back, ..self.placement }, ..self }
    }

    const fn sampled(self, sampling: Sampling) -> Self {
        Self { sampling, ..self }
    }

    const fn normalised(self, (mean, std): ([f32; 3], [f32; 3])) -> Self {
        Self { mean, std, ..self }
    }

    /// Returns an input with this preprocess; its name, size and layout come from the model.
    pub(crate) fn input(self) -> InputCard {
        let Self { placement, sampling, pad, order, scale, mean, std } = self;
        InputCard { name: None, size: None, layout: None, placement, sampling, pad, order, scale, mean, std }
    }
}
