#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94, onnx 1.23.2, onnxruntime 1.32.0, pillow 13.0.0, torch 2.15.0; ultralytics
# 8.4.190, yolov5 7.0.14, yolov7detect 1.0.1, yolox 0.3.0, super-gradients 3.7.1, rfdetr 1.11.2, insightface 2.1,
# paddlepaddle 3.3.1, torchvision 0.29.2, transformers 5.24.0
"""Does each head find the same as its project's own code in the same outputs? 60 pictures of 30 sizes for each head.

    head_agreement.py [--visiond BIN] [--backend NAMES] [--seed N] [--only NAME] PACKAGES

A network is made for each head whose outputs are those of a scene: clusters of objects, several boxes for each, some with the
same score, some with a score near the threshold, in noise. Each picture is one grey, by which the network knows its scene.
`visiond detect --json` runs it with the card in this file; the project's own code for what comes after the network gets the
same outputs and the size of the picture.

PACKAGES is placement.py's folder. Each package of the lines above up to insightface is one folder in it, the others are
installed. These repositories, cloned, are folders of their names in it:

    CenterNet       xingyizhou/CenterNet at 4c50fd3          nanodet             RangiLyu/nanodet at be9b4a9
    CenterFace      Star-Clouds/CenterFace at b82ec0c        pytorch-YOLOv4      Tianxiaomo/pytorch-YOLOv4 at a65d219
    ttfnet          ZJULearning/ttfnet at 700ad90            Pytorch_Retinaface  biubug6/Pytorch_Retinaface at b984b4b
    yolov5-face     deepcam-cn/yolov5-face at 84ef013        Ultra-Light-Fast-Generic-Face-Detector-1MB  Linzaer/... at dffddda

A line is a head and a backend, with the figures of framework_boxes.py. Heads whose project's code is in none of these are
decoded here in numpy, and marked so.
"""

import argparse
import functools
import importlib
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
import types

import cv2
import numpy as np
import onnx
import torch
import torchvision
from onnx import TensorProto, helper, numpy_helper

import placement
from framework_boxes import Tally, boxes_of
from nanodet_peer import overlap, suppress

ROOT = pathlib.Path(__file__).resolve().parents[2]
COUNT = 60  # pictures
SIZES = placement.CAMERAS[:10] + [(1080, 1920), (480, 640), (352, 288), (3840, 2160), (641, 359), (333, 500), (451, 300)]
SIZES += [(799, 601), (1279, 719), (427, 640), (416, 320), (320, 320), (1600, 90), (97, 1200), (1000, 251), (130, 901)]
SIZES += [(33, 47), (96, 96), (127, 65), (2048, 1536)]
CLASSES = 6
DARKEST, STEP = 8, 4  # the grey of the first picture, and how much brighter each next one is


# --- Scenes -----------------------------------------------------------------------------------------------------------------
def placed(source, size, fit):
    """About where a picture is in the input: x1, y1, x2, y2."""
    (sw, sh), (w, h) = source, size
    if fit in ("stretch", "crop"):
        return 0, 0, w, h
    ratio = min(w / sw, h / sh)
    w_in, h_in = sw * ratio, sh * ratio
    left, top = (0, 0) if fit == "letterbox-top-left" else ((w - w_in) / 2, (h - h_in) / 2)
    return left, top, left + w_in, top + h_in


def objects(rng, area, classes):
    """Clusters of objects: centre, size, class, score."""
    x1, y1, x2, y2 = area
    found = []
    for _ in range(rng.integers(2, 6)):
        middle, kind = rng.uniform((x1, y1), (x2, y2)), rng.integers(0, classes)
        side = np.exp(rng.uniform(np.log(8), np.log(max(min(x2 - x1, y2 - y1), 16) * 0.6)))
        for _ in range(rng.integers(1, 7)):
            centre = np.clip(middle + rng.normal(0, side, 2), (x1, y1), (x2, y2))
            size = side * np.exp(rng.normal(0, 0.3, 2))
            found.append((*centre, *size, kind if rng.random() < 0.7 else rng.integers(0, classes), rng.uniform(0.3, 0.97)))
    return found


def cells(size, strides, each=1, centre=0.5):
    """Cells of grids: x, y, stride, `each` times."""
    w, h = size
    grids = []
    for stride in strides:
        x, y = np.meshgrid(np.arange(math.ceil(w / stride)), np.arange(math.ceil(h / stride)))
        one = np.stack([(x.ravel() + centre) * stride, (y.ravel() + centre) * stride, np.full(x.size, stride)], 1)
        grids.append(np.repeat(one, each, 0))
    return np.concatenate(grids).astype(np.float64)


def dense(rng, area, at, threshold, classes=CLASSES, ties=True):
    """Boxes x1, y1, x2, y2 and scores of every cell, as a detector that looks everywhere gives them."""
    scores = rng.random((len(at), classes)) ** 3 * threshold * 0.9
    near = np.flatnonzero(rng.random(len(at)) < 8 / len(at))
    off = rng.choice((-1, 1), len(near)) * rng.uniform(0.002, 0.03, len(near))
    scores[near, rng.integers(0, classes, len(near))] = threshold + off
    size = at[:, 2:3] * np.exp(rng.normal(1, 0.4, (len(at), 2)))
    centre = at[:, :2] + rng.normal(0, 0.3, (len(at), 2)) * at[:, 2:3]
    for cx, cy, w, h, kind, best in objects(rng, area, classes):
        stride = min(set(at[:, 2]), key=lambda s: abs(np.log(s * 5 / max(w, h))))
        far = np.abs(at[:, :2] - (cx, cy)).max(1) + np.where(at[:, 2] == stride, 0, 1e6)
        for cell in np.argsort(far, kind="stable")[: rng.integers(3, 12)]:
            centre[cell] = (cx, cy) + rng.normal(0, 0.05, 2) * (w, h)
            size[cell] = (w, h) * np.exp(rng.normal(0, 0.08, 2))
            scores[cell, kind] = best * rng.uniform(0.6, 1)
            if ties:
                # Steps of 1/128, so that some are the same, as those of f16 and of int8 are.
                scores[cell, kind] = round(scores[cell, kind] * 128) / 128
            if rng.random() < 0.2:
                scores[cell, rng.integers(0, classes)] = best * rng.uniform(0.3, 0.9)
    scores = np.where(np.abs(scores - threshold) < 1e-4, threshold + 2e-4, scores)
    return np.concatenate([centre - size / 2, centre + size / 2], 1), scores.clip(0, 0.99)


def rows_of(boxes, scores, count, threshold):
    """The boxes that a network with NMS inside gives: x1, y1, x2, y2, score, class; unused ones are 0."""
    kinds, best = scores.argmax(1), scores.max(1)
    sure = np.flatnonzero(best > threshold / 3)
    kept = sure[suppress(boxes[sure], best[sure], kinds[sure], 0.7, count)]
    rows = np.zeros((count, 6))
    rows[: len(kept)] = np.concatenate([boxes[kept], best[kept, None], kinds[kept, None]], 1)
    return rows


def cxcywh(boxes):
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)


def logit(p):
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return np.log(p / (1 - p))


# --- Networks ---------------------------------------------------------------------------------------------------------------
def network(path, size, scenes):
    """Writes a network that gives the outputs of the scene whose grey is the brightest of the picture."""
    tables = {name: np.stack([scene[name] for scene in scenes]) for name in scenes[0]}
    numbers = {
        "darkest": np.float32(DARKEST - STEP / 2),
        "step": np.float32(STEP),
        "first": np.float32(0),
        "last": np.float32(len(scenes) - 1),
    }
    nodes = [
        helper.make_node("ReduceMax", ["images"], ["grey"], keepdims=0),
        helper.make_node("Sub", ["grey", "darkest"], ["above"]),
        helper.make_node("Div", ["above", "step"], ["number"]),
        helper.make_node("Clip", ["number", "first", "last"], ["clipped"]),
        helper.make_node("Cast", ["clipped"], ["scene"], to=TensorProto.INT64),
        *(helper.make_node("Gather", [f"all_{name}", "scene"], [name], axis=0) for name in tables),
    ]
    value = helper.make_tensor_value_info
    kind = lambda array: helper.np_dtype_to_tensor_dtype(array.dtype)
    graph = helper.make_graph(
        nodes,
        "scenes",
        [value("images", TensorProto.FLOAT, [1, 3, size[1], size[0]])],
        [value(name, kind(table), table.shape[1:]) for name, table in tables.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()]
        + [numpy_helper.from_array(table, f"all_{name}") for name, table in tables.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def f32(array):
    return np.ascontiguousarray(array, np.float32)


def tensor(array):
    return torch.from_numpy(np.array(array))


def code(package, file, *names, **more):
    modules = {"torch": torch, "torchvision": torchvision, "time": time, "cv2": cv2, "math": math}
    return placement.compiled(package, file, *names, **modules, **more)


def found_in(rows):
    """Detections of rows x1, y1, x2, y2, score, class."""
    return [(int(r[5]), float(r[4]), *map(float, r[:4])) for r in np.asarray(rows, np.float64)]


class Head:
    """One head, and the code of its project."""

    size, fit, strides, threshold, classes = (416, 320), "letterbox", (8, 16, 32), 0.25, CLASSES
    numpy = False  # whether the code is part of this file
    ties = True  # whether its order of equal scores is known: `argsort` of numpy and PyTorch does not say which is first
    input = "pad = 0\nscale = 1"  # preprocessing that does not change the grey
    centre = 0.5  # of a cell, in cells
    head = detect = ""

    def card(self):
        names = ", ".join(f'"c{number}"' for number in range(self.classes))
        limit = f"score_threshold = {self.threshold}\n{self.detect}"
        return f"[input]\n{self.input}\n[head]\n{self.head}\n[detect]\n{limit}\n[classes]\nnames = [{names}]\n"

    def scene(self, rng, source):
        at = cells(self.size, self.strides, 1, self.centre)
        area = placed(source, self.size, self.fit)
        return self.outputs(rng, at, *dense(rng, area, at, self.threshold, self.classes, self.ties))


# --- YOLO -------------------------------------------------------------------------------------------------------------------
def ultralytics(file, *names, **more):
    return code("ultralytics", f"ultralytics/{file}", *names, **more)


def ultralytics_nms():
    ops = ultralytics("utils/ops.py", "xywh2xyxy", "empty_like")
    probiou = ultralytics("utils/metrics.py", "_get_covariance_matrix", "batch_probiou", "box_iou")
    names = {"xywh2xyxy": ops.xywh2xyxy, **vars(probiou), "sys": sys}
    return ultralytics("utils/nms.py", "TorchNMS", "non_max_suppression", **names).non_max_suppression


def scale_boxes():
    return ultralytics("utils/ops.py", "clip_boxes", "scale_boxes", NOT_MACOS14=True).scale_boxes


class YoloV8(Head):
    name, head = "yolov8: Ultralytics 8.4.190, `non_max_suppression`, `scale_boxes`", 'family = "yolov8"'

    def outputs(self, rng, at, boxes, scores):
        return {"output0": f32(np.concatenate([cxcywh(boxes), scores], 1).T[None])}

    def peer(self, outputs, source):
        rows = ultralytics_nms()(tensor(outputs["output0"]), self.threshold, 0.7, max_det=300, nc=self.classes)[0]
        back = scale_boxes()
        rows[:, :4] = back(self.size[::-1], rows[:, :4], source[::-1])
        return found_in(rows)


class YoloV8Crop(YoloV8):
    name, fit, input = "the same, the middle of the picture: way back in numpy", "crop", 'fit = "crop"\nscale = 1'

    def peer(self, outputs, source):
        rows = ultralytics_nms()(tensor(outputs["output0"]), self.threshold, 0.7, max_det=300, nc=self.classes)[0]
        (sw, sh), (w, h) = source, self.size
        step = min(sw / w, sh / h)
        rows[:, :4] = rows[:, :4] * step + torch.tensor([(sw - w * step) / 2, (sh - h * step) / 2] * 2)
        return found_in(rows)


class YoloV8Pose(YoloV8):
    name, head, classes = "yolov8 pose: the same", 'family = "yolov8"\nkeypoints = [17, 3]', 1

    def outputs(self, rng, at, boxes, scores):
        points = rng.uniform(0, self.size[1], (len(at), 51))
        return {"output0": f32(np.concatenate([cxcywh(boxes), scores, points], 1).T[None])}


class YoloV8Obb(YoloV8):
    ties = False
    name, head = "yolov8 oriented: the same, the upright boxes around the turned ones", 'family = "yolov8"\noriented = true'

    def outputs(self, rng, at, boxes, scores):
        angles = rng.uniform(-0.78, 2.35, (len(at), 1))
        return {"output0": f32(np.concatenate([cxcywh(boxes), scores, angles], 1).T[None])}

    def peer(self, outputs, source):
        limits = {"max_det": 300, "nc": self.classes, "rotated": True}
        rows = ultralytics_nms()(tensor(outputs["output0"]), self.threshold, 0.7, **limits)[0]
        rows[:, :4] = scale_boxes()(self.size[::-1], rows[:, :4], source[::-1], xywh=True)
        sides, sin, cos = rows[:, 2:4] / 2, rows[:, 6:].sin().abs(), rows[:, 6:].cos().abs()
        half = sides * cos + sides[:, [1, 0]] * sin
        return found_in(torch.cat([rows[:, :2] - half, rows[:, :2] + half, rows[:, 4:6]], 1))


class YoloV5(Head):
    ties = False
    name, head = "yolov5: YOLOv5 7.0.14, `non_max_suppression`, `scale_boxes`", 'family = "yolov5"'

    def outputs(self, rng, at, boxes, scores):
        objectness = np.sqrt(scores.max(1, keepdims=True))
        return {"output0": f32(np.concatenate([cxcywh(boxes), objectness, scores / objectness], 1)[None])}

    def peer(self, outputs, source):
        ops = code("yolov5-7", "yolov5/utils/general.py", "xywh2xyxy", "clip_boxes", "scale_boxes", "non_max_suppression")
        rows = ops.non_max_suppression(tensor(outputs["output0"]), self.threshold, 0.45, max_det=1000)[0]
        rows[:, :4] = ops.scale_boxes(self.size[::-1], rows[:, :4], source[::-1])
        return found_in(rows)


class YoloV7(YoloV5):
    ties = True
    name = "yolov5: YOLOv7 of yolov7detect 1.0.1, `non_max_suppression`, `scale_coords`"

    def peer(self, outputs, source):
        names = "xywh2xyxy", "clip_coords", "scale_coords", "non_max_suppression"
        ops = code("yolov7detect", "yolov7/utils/general.py", *names)
        rows = ops.non_max_suppression(tensor(outputs["output0"]), self.threshold, 0.45)[0]
        rows[:, :4] = ops.scale_coords(self.size[::-1], rows[:, :4], source[::-1])
        return found_in(rows)


class YoloV5Face(YoloV5):
    ties = True
    name, head, classes = "yolov5 face: yolov5-face, `non_max_suppression_face`", 'family = "yolov5"\nkeypoints = [5, 2]', 1

    def outputs(self, rng, at, boxes, scores):
        objectness, points = np.sqrt(scores), rng.uniform(0, self.size[1], (len(at), 10))
        return {"output": f32(np.concatenate([cxcywh(boxes), objectness, points, objectness], 1)[None])}

    def peer(self, outputs, source):
        names = "xywh2xyxy", "clip_coords", "scale_coords", "non_max_suppression_face"
        ops = code("yolov5-face", "utils/general.py", *names)
        rows = ops.non_max_suppression_face(tensor(outputs["output"]), self.threshold, 0.45)[0]
        rows[:, :4] = ops.scale_coords(self.size[::-1], rows[:, :4], source[::-1])
        return [(0, float(r[4]), *map(float, r[:4])) for r in rows]


class YoloNms(Head):
    name, head = "yolo-nms: Ultralytics 8.4.190, `non_max_suppression` end to end", 'family = "yolo-nms"'

    def outputs(self, rng, at, boxes, scores):
        return {"output0": f32(rows_of(boxes, scores, 300, self.threshold)[None])}

    def peer(self, outputs, source):
        rows = ultralytics_nms()(tensor(outputs["output0"]), self.threshold, 0.7, max_det=300, end2end=True)[0]
        back = scale_boxes()
        rows[:, :4] = back(self.size[::-1], rows[:, :4], source[::-1])
        return found_in(rows)


class PaddleRows(Head):
    name, numpy = "yolo-nms: rows of PaddleDetection (PP-YOLOE)", True
    fit, input = "stretch", 'preprocess = "paddle"\nscale = 1\nmean = 0\nstd = 1'
    head = 'family = "yolo-nms"\ncolumns = ["class", "score", "x1", "y1", "x2", "y2"]'

    def outputs(self, rng, at, boxes, scores):
        return {"rows": f32(rows_of(boxes, scores, 300, self.threshold)[:, [5, 4, 0, 1, 2, 3]])}

    def peer(self, outputs, source):
        # The network divides by `scale_factor`: input size by size of the picture.
        scale = np.tile(np.divide(self.size, source), 2)
        return [(int(r[0]), float(r[1]), *(r[2:] / scale)) for r in outputs["rows"] if r[1] >= self.threshold]


class RtmDet(Head):
    name, numpy = "yolo-nms: boxes with scores, and classes, of MMDeploy (RTMDet)", True
    fit, input = "letterbox-top-left", 'preprocess = "rtmdet"\npad = 0\nscale = 1\nmean = 0\nstd = 1'
    head, threshold = 'family = "yolo-nms"', 0.3

    def outputs(self, rng, at, boxes, scores):
        rows = rows_of(boxes, scores, 100, self.threshold)
        return {"dets": f32(rows[None, :, :5]), "labels": rows[None, :, 5].astype(np.int64)}

    def peer(self, outputs, source):
        # mmcv.imrescale: `int(side * scale + 0.5)`; each axis has the factor of its whole number of pixels.
        ratio = min(self.size[0] / source[0], self.size[1] / source[1])
        scale = np.tile([int(side * ratio + 0.5) / side for side in source], 2)
        kinds, rows = outputs["labels"][0], outputs["dets"][0]
        return [(int(k), float(r[4]), *(r[:4] / scale)) for k, r in zip(kinds, rows) if r[4] >= self.threshold]


class YoloX(Head):
    name, head = "yolox: YOLOX 0.3.0, `demo_postprocess`, `postprocess`", 'family = "yolox"'
    fit, threshold = "letterbox-top-left", 0.3

    def outputs(self, rng, at, boxes, scores):
        raw, objectness = cxcywh(boxes), np.sqrt(scores.max(1, keepdims=True))
        raw[:, :2] = raw[:, :2] / at[:, 2:] - np.floor(at[:, :2] / at[:, 2:])
        raw[:, 2:] = np.log(raw[:, 2:] / at[:, 2:])
        return {"output": f32(np.concatenate([raw, objectness, scores / objectness], 1)[None])}

    def peer(self, outputs, source):
        decode = code("yolox", "yolox/utils/demo_utils.py", "demo_postprocess").demo_postprocess
        finish = code("yolox", "yolox/utils/boxes.py", "postprocess").postprocess
        decoded = decode(outputs["output"].copy(), self.size[::-1])
        rows = finish(tensor(decoded), self.classes, self.threshold, 0.45)[0]
        if rows is None:
            return []
        ratio = min(self.size[1] / source[1], self.size[0] / source[0])
        return [(int(r[6]), float(r[4] * r[5]), *map(float, r[:4] / ratio)) for r in rows]


# --- NanoDet ----------------------------------------------------------------------------------------------------------------
class NanoDet(Head):
    name, head = "nanodet: nanodet, `GFLHead.get_bboxes`, `warp_boxes`", 'family = "nanodet"\nreg_max = 7\nsigmoid = true'
    file, kind, threshold, plus = "gfl_head", "GFLHead", 0.35, False
    input = "scale = 1\nmean = 0\nstd = 1"

    def outputs(self, rng, at, boxes, scores):
        # A distance is the mean of the bins 0 to 7; two neighbours share it.
        sides = np.concatenate([at[:, :2] - boxes[:, :2], boxes[:, 2:] - at[:, :2]], 1) / at[:, 2:]
        sides = sides.clip(0.01, 6.99)
        bins = np.maximum(1 - np.abs(sides[..., None] - np.arange(8)), 1e-5)
        return {"output": f32(np.concatenate([logit(scores), np.log(bins).reshape(len(at), 32)], 1)[None])}

    def peer(self, outputs, source):
        functional = torch.nn.functional
        folder = "nanodet/model"
        nms = code("nanodet", f"{folder}/module/nms.py", "batched_nms", "multiclass_nms", nms=torchvision.ops.nms)
        bbox = code("nanodet", "nanodet/util/box_transform.py", "distance2bbox").distance2bbox
        warp = code("nanodet", "nanodet/data/transform/warp.py", "warp_boxes", "get_resize_matrix")
        names = {"multiclass_nms": nms.multiclass_nms, "distance2bbox": bbox, "warp_boxes": warp.warp_boxes, "F": functional}
        make = [f"{self.kind}.{name}" for name in ("get_bboxes", "post_process")]
        make.append(f"{self.kind}.get_single_level_center_p" + ("riors" if self.plus else "oint"))
        head = code("nanodet", f"{folder}/head/{self.file}.py", *make, **names)
        integral = code("nanodet", f"{folder}/head/gfl_head.py", "Integral.forward", F=functional)
        project = types.SimpleNamespace(reg_max=7, project=torch.arange(8.0))
        this = types.SimpleNamespace(num_classes=self.classes, reg_max=7, strides=self.strides)
        this.distribution_project = lambda x: integral.forward(project, x)
        for name, function in vars(head).items():
            setattr(this, name, functools.partial(function, this))
        matrix = warp.get_resize_matrix(source, self.size, not self.plus)
        info = {"height": [source[1]], "width": [source[0]], "id": [0]}
        meta = {"img": np.zeros((1, 3, *self.size[::-1])), "warp_matrix": [matrix], "img_info": info}
        found = this.post_process(tensor(outputs["output"]), meta)[0]
        return [(kind, r[4], *r[:4]) for kind, rows in found.items() for r in rows if r[4] >= self.threshold]


class NanoDetPlus(NanoDet):
    name, fit = "nanodet: nanodet, `NanoDetPlusHead.get_bboxes`, `keep_ratio: False`", "stretch"
    file, kind, centre, plus, strides = "nanodet_plus_head", "NanoDetPlusHead", 0, True, (8, 16, 32, 64)
    input = 'preprocess = "nanodet-plus"\nscale = 1\nmean = 0\nstd = 1'
    head = 'family = "nanodet"\nreg_max = 7\nsigmoid = true\ncell_centre = false\nstrides = [8, 16, 32, 64]'


# --- Boxes and scores -------------------------------------------------------------------------------------------------------
class UltraFace(Head):
    ties = False
    name, head = "ssd: UltraFace, `hard_nms` of all candidates", 'family = "ssd"\nunit = "normalized"\nbackground = "first"'
    classes, threshold, detect, fit = 1, 0.7, "iou_threshold = 0.3", "stretch"
    input = 'preprocess = "ultraface"\nmean = 0\nstd = 1'

    def outputs(self, rng, at, boxes, scores):
        part = boxes / np.tile(self.size, 2)
        return {"scores": f32(np.concatenate([1 - scores, scores], 1)[None]), "boxes": f32(part[None])}

    def peer(self, outputs, source):
        file = "vision/utils/box_utils_numpy.py"
        nms = code("Ultra-Light-Fast-Generic-Face-Detector-1MB", file, "area_of", "iou_of", "hard_nms").hard_nms
        scores, boxes = outputs["scores"][0][:, 1], outputs["boxes"][0]
        sure = scores > self.threshold
        rows = np.concatenate([boxes[sure], scores[sure, None]], 1)
        rows = nms(rows, 0.3, -1, len(rows)) if len(rows) else rows
        return [(0, float(r[4]), *(r[:4] * np.tile(source, 2))) for r in rows]


class PytorchYoloV4(Head):
    ties = False
    name = "ssd: pytorch-YOLOv4, `post_processing`"
    head, threshold, detect = 'family = "ssd"\nunit = "normalized"\nmulti_label = false', 0.4, "iou_threshold = 0.6"
    fit, input = "stretch", "scale = 1"

    def outputs(self, rng, at, boxes, scores):
        return {"boxes": f32((boxes / np.tile(self.size, 2))[None, :, None]), "confs": f32(scores[None])}

    def peer(self, outputs, source):
        code_of = code("pytorch-YOLOv4", "tool/utils.py", "nms_cpu", "post_processing", print=lambda *_: None)
        rows = code_of.post_processing(None, self.threshold, 0.6, (outputs["boxes"], outputs["confs"]))[0]
        return [(int(r[6]), float(r[5]), *(np.array(r[:4]) * np.tile(source, 2))) for r in rows]


class YoloNas(Head):
    name = "ssd: YOLO-NAS, PPYoloEPostPredictionCallback of super-gradients 3.7.1"
    head, detect = 'family = "ssd"\nunit = "pixels"', "iou_threshold = 0.7\nmax_detections = 300"
    input = 'fit = "letterbox"\nrounding = "half-even"\nway_back = "ratio"\npad = 0\nscale = 1'

    def outputs(self, rng, at, boxes, scores):
        return {"boxes": f32(boxes[None]), "scores": f32(scores[None])}

    def peer(self, outputs, source):
        folder = "super_gradients/training"
        file = f"{folder}/models/detection_models/pp_yolo_e/post_prediction_callback.py"
        callback = code("super-gradients", file, "PPYoloEPostPredictionCallback").PPYoloEPostPredictionCallback
        limits = {"score_threshold": self.threshold, "nms_threshold": 0.7, "nms_top_k": 100_000, "max_predictions": 300}
        rows = callback(**limits).forward((tensor(outputs["boxes"]), tensor(outputs["scores"])))[0].numpy()
        # DetectionLongestMaxSizeRescale and DetectionCenterPadding.
        transforms = code("super-gradients", f"{folder}/transforms/utils.py", "_rescale_bboxes", "_shift_bboxes_xyxy")
        ratio = min(self.size[1] / source[1], self.size[0] / source[0])
        w, h = round(source[0] * ratio), round(source[1] * ratio)
        left, top = (self.size[0] - w) // 2, (self.size[1] - h) // 2
        rows[:, :4] = transforms._shift_bboxes_xyxy(rows[:, :4], shift_w=-left, shift_h=-top)
        rows[:, :4] = transforms._rescale_bboxes(rows[:, :4], (1 / ratio, 1 / ratio))
        return found_in(rows)


class PpYoloE(Head):
    name = "ssd: PP-YOLOE without NMS, multiclass_nms3 of paddlepaddle 3.3.1"
    head, detect = 'family = "ssd"\nunit = "pixels"', "iou_threshold = 0.7\nmax_detections = 300"
    fit, input = "stretch", 'preprocess = "paddle"\nscale = 1\nmean = 0\nstd = 1'

    def outputs(self, rng, at, boxes, scores):
        return {"boxes": f32(boxes[None]), "scores": f32(scores.T[None])}

    def peer(self, outputs, source):
        import paddle

        # As configs/ppyoloe/_base_/ppyoloe_crn.yml has it, but for the limits of candidates and the threshold.
        back = np.tile(np.divide(source, self.size), 2).astype(np.float32)
        boxes, scores = (paddle.to_tensor(array) for array in (outputs["boxes"] * back, outputs["scores"]))
        limits = (self.threshold, 10_000, 300, 0.7, True, 1.0, -1)
        rows = paddle._C_ops.multiclass_nms3(boxes, scores, None, *limits)[0].numpy()
        return [(int(r[0]), float(r[1]), *map(float, r[2:])) for r in rows]


class TorchvisionSsd(Head):
    name = "ssd, labelled: torchvision 0.29.2, `resize_boxes`"
    head, input, fit, threshold = 'family = "ssd"', "scale = 1", "stretch", 0.5

    def outputs(self, rng, at, boxes, scores):
        rows = rows_of(boxes.clip(0, np.tile(self.size, 2)), scores, 200, self.threshold)
        return {"boxes": f32(rows[:, :4]), "scores": f32(rows[:, 4]), "labels": rows[:, 5].astype(np.int64)}

    def peer(self, outputs, source):
        from torchvision.models.detection.transform import resize_boxes

        boxes = resize_boxes(tensor(outputs["boxes"]), self.size[::-1], source[::-1])
        found = zip(outputs["labels"], outputs["scores"], boxes)
        return [(int(k), float(s), *map(float, b)) for k, s, b in found if s >= self.threshold]


class TensorFlow(Head):
    name, numpy, input, fit, threshold = "ssd, labelled: TensorFlow's detection API", True, "scale = 1", "stretch", 0.5
    head = 'family = "ssd"\nformat = "yxyx"\nunit = "normalized"\nbackground = "first"'

    def outputs(self, rng, at, boxes, scores):
        rows = rows_of(boxes.clip(0, np.tile(self.size, 2)), scores, 100, self.threshold)
        part = rows[:, [1, 0, 3, 2]] / np.tile(self.size[::-1], 2)
        count = f32([(rows[:, 4] > 0).sum()])
        parts = {"boxes": part, "scores": rows[:, 4], "classes": rows[:, 5] + 1}
        return {f"detection_{name}": f32(array[None]) for name, array in parts.items()} | {"num_detections": count}

    def peer(self, outputs, source):
        boxes, scores, kinds, count = (array[0] for array in outputs.values())
        found = list(zip(kinds, scores, boxes[:, [1, 0, 3, 2]] * np.tile(source, 2)))[: int(count)]
        return [(int(k) - 1, float(s), *map(float, b)) for k, s, b in found if s >= self.threshold]


# --- DETR -------------------------------------------------------------------------------------------------------------------
class Detr(Head):
    """Queries at the places where a dense detector finds the most."""

    name, queries = "detr: DETR, transformers 5.24.0, `post_process_object_detection`", 100
    head, fit, threshold = 'family = "detr"\nactivation = "softmax"', "stretch", 0.5
    input = 'preprocess = "detr"\nscale = 1\nmean = 0\nstd = 1'
    module, kind, none = "detr", "DetrImageProcessor", 1

    def outputs(self, rng, at, boxes, scores):
        best = np.sort(rng.permutation(np.argsort(-scores.max(1), kind="stable")[: self.queries]))
        boxes, scores = cxcywh(boxes[best]) / np.tile(self.size, 2), scores[best]
        if self.none:
            # Probabilities of a softmax add up to 1.
            scores = scores / np.maximum(scores.sum(1, keepdims=True), 0.98) * 0.98
            logits = np.log(np.concatenate([scores, 1 - scores.sum(1, keepdims=True)], 1).clip(1e-6))
        else:
            logits = logit(scores)
        return {"logits": f32(logits[None]), "pred_boxes": f32(boxes[None])}

    def peer(self, outputs, source):
        module = importlib.import_module(f"transformers.models.{self.module}.image_processing_{self.module}")
        given = types.SimpleNamespace(logits=tensor(outputs["logits"]), pred_boxes=tensor(outputs["pred_boxes"]))
        post = getattr(module, self.kind).post_process_object_detection
        found = post(None, given, threshold=self.threshold, target_sizes=[source[::-1]])[0]
        rows = zip(found["labels"], found["scores"], found["boxes"])
        return [(int(k), float(s), *map(float, b)) for k, s, b in rows]


class Yolos(Detr):
    name, module, kind = "detr: YOLOS, the same", "yolos", "YolosImageProcessor"


class RtDetr(Detr):
    name, none, module, kind = "detr: RT-DETR and D-FINE, the same", 0, "rt_detr", "RTDetrImageProcessor"
    head, input = 'family = "detr"', 'preprocess = "rt-detr"\nscale = 1'


class DeformableDetr(RtDetr):
    name, module, kind = "detr: Deformable DETR, the same", "deformable_detr", "DeformableDetrImageProcessor"


class RfDetr(RtDetr):
    name, input = "detr: RF-DETR 1.11.2, `PostProcess`", 'preprocess = "rf-detr"\nscale = 1\nmean = 0\nstd = 1'

    def peer(self, outputs, source):
        ops = code("rfdetr", "rfdetr/utilities/box_ops.py", "box_cxcywh_to_xyxy")
        post = code("rfdetr", "rfdetr/models/postprocess.py", "PostProcess", box_ops=ops).PostProcess(num_select=100)
        given = {"pred_logits": tensor(outputs["logits"]), "pred_boxes": tensor(outputs["pred_boxes"])}
        found = post.forward(given, torch.tensor([source[::-1]]))[0]
        rows = zip(found["labels"], found["scores"], found["boxes"])
        return [(int(k), float(s), *map(float, b)) for k, s, b in rows if s >= self.threshold]


class UltralyticsRtDetr(Head):
    name = "yolo-nms: RT-DETR of Ultralytics 8.4.190, `RTDETRDecoder.postprocess`, `RTDETRPredictor.postprocess`"
    head = 'family = "yolo-nms"\nunit = "normalized"\ncolumns = ["cx", "cy", "w", "h", "score", "class"]'
    fit, input = "stretch", 'fit = "stretch"\nscale = 1'

    def outputs(self, rng, at, boxes, scores):
        best = np.argsort(-scores.max(1), kind="stable")[:300]
        detect = ultralytics("nn/modules/head.py", "Detect._grouped_topk")
        file, names = "nn/modules/head.py", {"Detect": detect}
        decoder = ultralytics(file, "RTDETRDecoder.postprocess", **names)
        this = types.SimpleNamespace(export=True, num_queries=300, max_det=300, dynamic=False, format="onnx", nc=self.classes)
        parts = [torch.from_numpy(f32(part[None])) for part in (cxcywh(boxes[best]) / np.tile(self.size, 2), scores[best])]
        return {"output0": decoder.postprocess(this, *parts).numpy()}

    def peer(self, outputs, source):
        ops = ultralytics("utils/ops.py", "empty_like", "xywh2xyxy")
        names = {"ops": ops, "Results": lambda *_, boxes, **__: boxes}
        predictor = ultralytics("models/rtdetr/predict.py", "RTDETRPredictor.postprocess", **names)
        args = types.SimpleNamespace(conf=self.threshold, classes=None, max_det=300)
        this = types.SimpleNamespace(args=args, batch=[[""]], model=types.SimpleNamespace(names=None))
        picture = np.broadcast_to(np.uint8(0), (*source[::-1], 3))
        return found_in(predictor.postprocess(this, tensor(outputs["output0"]), None, [picture])[0])


# --- Heat maps --------------------------------------------------------------------------------------------------------------
class HeatMap(Head):
    stride, strides, threshold = 4, (4,), 0.3

    def maps(self, rng, area, logits=True):
        """Peaks of each class that fall off around; the sizes and offsets there."""
        w, h = self.size[0] // self.stride, self.size[1] // self.stride
        heat, sizes = rng.random((self.classes, h, w)) ** 3 * self.threshold, rng.uniform(1, 20, (2, h, w))
        offset = rng.random((2, h, w))
        for cx, cy, bw, bh, kind, score in objects(rng, area, self.classes):
            x, y = int(min(cx / self.stride, w - 1)), int(min(cy / self.stride, h - 1))
            score = round(score * 128) / 128 + 1e-4 if self.ties else score
            for dy, dx in np.ndindex(3, 3):
                if 0 <= y + dy - 1 < h and 0 <= x + dx - 1 < w:
                    at = kind, y + dy - 1, x + dx - 1
                    heat[at] = max(heat[at], score * (1 if dx == dy == 1 else 0.8 - 0.01 * (3 * dx + dy)))
                    sizes[:, at[1], at[2]] = bw / self.stride, bh / self.stride
                    offset[:, at[1], at[2]] = cx / self.stride - x - dx + 1, cy / self.stride - y - dy + 1
        return logit(heat) if logits else heat.clip(0, 1), sizes, offset

    def scene(self, rng, source):
        return self.outputs(rng, placed(source, self.size, self.fit))


class CenterNet(HeatMap):
    name, head, size = "heatmap: CenterNet, `ctdet_decode`, `ctdet_post_process`", 'family = "heatmap"', (320, 320)
    input = "scale = 1\nmean = 0\nstd = 1"

    def outputs(self, rng, area):
        heat, sizes, offset = self.maps(rng, area)
        return {"hm": f32(heat[None]), "wh": f32(sizes[None]), "reg": f32(offset[None])}

    def peer(self, outputs, source):
        gather = code("CenterNet", "src/lib/models/utils.py", "_gather_feat", "_transpose_and_gather_feat")
        decode = code("CenterNet", "src/lib/models/decode.py", "_nms", "_topk", "ctdet_decode", nn=torch.nn, **vars(gather))
        names = "get_3rd_point", "get_dir", "affine_transform", "get_affine_transform", "transform_preds"
        image = code("CenterNet", "src/lib/utils/image.py", *names)
        post = code("CenterNet", "src/lib/utils/post_process.py", "ctdet_post_process", transform_preds=image.transform_preds)
        heat, sizes, offset = map(tensor, outputs.values())
        rows = decode.ctdet_decode(heat.sigmoid(), sizes, offset, K=100).numpy()
        centre, scale = np.array([source[0] / 2, source[1] / 2], np.float32), max(source) * 1.0
        w, h = (side // 4 for side in self.size)
        found = post.ctdet_post_process(rows, [centre], [scale], h, w, self.classes)[0]
        return [(kind - 1, r[4], *r[:4]) for kind, rows in found.items() for r in rows if r[4] >= self.threshold]


class TtfNet(HeatMap):
    name, head = "heatmap: TTFNet, `TTFHead.get_bboxes`", 'family = "heatmap"\nstyle = "ttfnet"'
    fit, input = "stretch", "scale = 1\nmean = 0\nstd = 1"

    def outputs(self, rng, area):
        heat, (bw, bh), (x, y) = self.maps(rng, area)
        near = np.stack([bw / 2 - x, bh / 2 - y, bw / 2 + x, bh / 2 + y]).clip(0.1) * self.stride
        return {"hm": f32(heat[None]), "wh": f32(near[None])}

    def peer(self, outputs, source):
        nms = code("ttfnet", "mmdet/ops/nms/nms_wrapper.py", "simple_nms", nn=torch.nn).simple_nms
        file = "mmdet/models/anchor_heads/ttf_head.py"
        head = code("ttfnet", file, "TTFHead._topk", "TTFHead.get_bboxes", simple_nms=nms)
        this = types.SimpleNamespace(down_ratio=4, wh_agnostic=True, _topk=functools.partial(head._topk, None))
        limits = types.SimpleNamespace(max_per_img=100, score_thr=self.threshold)
        scale = np.tile(np.divide(self.size, source), 2)
        # It clips to the input's last pixel, which is less than all of it: `pad_shape[1] - 1`.
        meta = {"pad_shape": (self.size[1] + 1, self.size[0] + 1, 3), "scale_factor": scale}
        rows, kinds = head.get_bboxes(this, *map(tensor, outputs.values()), [meta], limits, rescale=True)[0]
        return [(int(k), float(r[4]), *map(float, r[:4])) for k, r in zip(kinds, rows)]


class CenterFace(HeatMap):
    ties = False
    name, head = "heatmap: CenterFace, `decode`, `nms`", 'family = "heatmap"\nstyle = "centerface"'
    classes, threshold, fit, input = 1, 0.5, "stretch", "scale = 1"

    def outputs(self, rng, area):
        heat, (bw, bh), (x, y) = self.maps(rng, area, False)
        sizes, offset = np.log(np.stack([bh, bw]).clip(0.5)), np.stack([y, x]) - 0.5
        points = rng.random((10, *bw.shape))
        return {name: f32(array[None]) for name, array in zip(("537", "538", "539", "540"), (heat, sizes, offset, points))}

    def peer(self, outputs, source):
        made = code("CenterFace", "prj-python/centerface.py", "CenterFace", datetime=None).CenterFace
        this = object.__new__(made)
        this.landmarks = True
        (this.img_w_new, this.img_h_new), (w, h) = self.size, source
        this.scale_w, this.scale_h = self.size[0] / w, self.size[1] / h
        heat, sizes, offset, points = outputs.values()
        rows = this.postprocess(heat, points, offset, sizes, self.threshold)[0]
        return [(0, float(r[4]), *map(float, r[:4])) for r in rows]


# --- Faces ------------------------------------------------------------------------------------------------------------------
class Scrfd(Head):
    name, head = "faces: InsightFace 2.1, `SCRFD.detect`", 'family = "faces"\nstyle = "scrfd"'
    classes, threshold, fit = 1, 0.5, "letterbox-top-left"
    input = "scale = 1\nmean = 0\nstd = 1"

    def scene(self, rng, source):
        parts = {}
        at = cells(self.size, self.strides, 2, 0)
        boxes, scores = dense(rng, placed(source, self.size, self.fit), at, self.threshold, 1)
        sides = np.concatenate([at[:, :2] - boxes[:, :2], boxes[:, 2:] - at[:, :2]], 1) / at[:, 2:]
        for number, part in enumerate((scores, sides, rng.normal(0, 1, (len(at), 10)))):
            parts |= {f"{number}_{stride}": f32(part[at[:, 2] == stride]) for stride in self.strides}
        return parts

    def peer(self, outputs, source):
        file = "insightface/model_zoo/scrfd.py"
        made = code("insightface", file, "distance2bbox", "distance2kps", "SCRFD", DEFAULT_DET_SIZES=None).SCRFD
        this = object.__new__(made)
        vars(this).update(fmc=3, _feat_stride_fpn=self.strides, _num_anchors=2, batched=False, use_kps=True, center_cache={})
        vars(this).update(nms_thresh=0.4, det_thresh=self.threshold, static_input_size=self.size)
        vars(this).update(output_names=None, input_name="")
        this._prepare_input_blob = lambda _picture, size: np.zeros((1, 3, *size[::-1]))
        this._session_for_input_size = lambda _: types.SimpleNamespace(run=lambda *_: list(outputs.values()))
        rows = this.detect(np.zeros((*source[::-1], 3), np.uint8))[0]
        return [(0, float(r[4]), *map(float, r[:4])) for r in rows]


class YuNet(Head):
    name, head = "faces: OpenCV 4.14.0, `FaceDetectorYN`", 'family = "faces"\nstyle = "yunet"'
    classes, threshold, fit, input = 1, 0.6, "letterbox-top-left", "scale = 1"

    def outputs(self, rng, at, boxes, scores):
        raw = cxcywh(boxes)
        raw[:, :2] = raw[:, :2] / at[:, 2:] - np.floor(at[:, :2] / at[:, 2:])
        raw[:, 2:] = np.log(raw[:, 2:] / at[:, 2:])
        parts = {"cls": scores, "obj": scores, "bbox": raw, "kps": rng.normal(0, 1, (len(at), 10))}
        return {f"{n}_{s}": f32(part[at[:, 2] == s][None]) for n, part in parts.items() for s in self.strides}

    def peer(self, outputs, source):
        nodes = [helper.make_node("ReduceSum", ["input", "axes"], ["sum"]), helper.make_node("Mul", ["sum", "zero"], ["none"])]
        nodes += [helper.make_node("Add", ["none", f"all_{name}"], [name]) for name in outputs]
        constants = {"axes": np.array([1, 2, 3]), "zero": np.zeros((1, 1, 1, 1), np.float32)}
        constants |= {f"all_{name}": array[None] for name, array in outputs.items()}
        value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graph = helper.make_graph(
            nodes,
            "yunet",
            [value("input", [1, 3, *self.size[::-1]])],
            [value(name, [1, *array.shape]) for name, array in outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        bytes_of = np.frombuffer(model.SerializeToString(), np.uint8)
        detector = cv2.FaceDetectorYN.create("onnx", bytes_of, np.zeros(0, np.uint8), self.size, self.threshold, 0.3, 5000)
        rows = detector.detect(np.zeros((*self.size[::-1], 3), np.uint8))[1]
        ratio = min(self.size[0] / source[0], self.size[1] / source[1])
        scale = np.tile([int(side * ratio) / side for side in source], 2)
        rows = [] if rows is None else rows
        return [(0, float(r[14]), *(np.concatenate([r[:2], r[:2] + r[2:4]]) / scale)) for r in rows]


class RetinaFace(Head):
    ties = False
    name, head = "faces: Pytorch_Retinaface, `PriorBox`, `decode`, `py_cpu_nms`", 'family = "faces"\nstyle = "retinaface"'
    classes, threshold, fit, input = 1, 0.6, "letterbox-top-left", "scale = 1\nmean = 0\nstd = 1"
    sides = ((16, 32), (64, 128), (256, 512))

    def scene(self, rng, source):
        at = cells(self.size, self.strides, 2)
        boxes, scores = dense(rng, placed(source, self.size, self.fit), at, self.threshold, 1, self.ties)
        many = [(at[:, 2] == stride).sum() // 2 for stride in self.strides]
        prior = np.concatenate([np.tile(sides, count) for sides, count in zip(self.sides, many)])
        raw = cxcywh(boxes)
        raw = np.concatenate([(raw[:, :2] - at[:, :2]) / prior[:, None] / 0.1, np.log(raw[:, 2:] / prior[:, None]) / 0.2], 1)
        parts = {"loc": raw, "conf": np.concatenate([1 - scores, scores], 1), "landms": rng.normal(0, 1, (len(at), 10))}
        return {name: f32(array[None]) for name, array in parts.items()}

    def peer(self, outputs, source):
        names = {"product": itertools.product, "ceil": math.ceil}
        priors = code("Pytorch_Retinaface", "layers/functions/prior_box.py", "PriorBox", **names)
        settings = {"min_sizes": self.sides, "steps": self.strides, "clip": False}
        settings = priors.PriorBox(settings, image_size=self.size[::-1]).forward()
        decode = code("Pytorch_Retinaface", "utils/box_utils.py", "decode").decode
        nms = code("Pytorch_Retinaface", "utils/nms/py_cpu_nms.py", "py_cpu_nms").py_cpu_nms
        boxes = decode(tensor(outputs["loc"])[0], settings, (0.1, 0.2)).numpy() * np.tile(self.size, 2)
        scores = outputs["conf"][0][:, 1]
        sure = np.flatnonzero(scores > 0.02)
        sure = sure[scores[sure].argsort()[::-1][:5000]]
        rows = np.hstack((boxes[sure], scores[sure, None])).astype(np.float32)
        rows = rows[nms(rows, 0.4)][:750]
        ratio = min(self.size[0] / source[0], self.size[1] / source[1])
        scale = np.tile([int(side * ratio) / side for side in source], 2)
        return [(0, float(r[4]), *(r[:4] / scale)) for r in rows if r[4] >= self.threshold]


# --- Projects with code in C++ or in their own runtimes ------------------------------------------------------------------
class Darknet(Head):
    name = "darknet: OpenCV 4.14.0, `readNetFromDarknet`, and NMS in numpy"
    anchors, ties = ((10, 14), (23, 27), (37, 58), (81, 82), (135, 169), (344, 319)), False
    head = f'family = "darknet"\nanchors = {[side for pair in anchors for side in pair]}\nscale_x_y = [1.05, 1.2]'
    strides, fit, input = (16, 32), "stretch", "scale = 1"

    def scene(self, rng, source):
        at, sides, parts = cells(self.size, self.strides, 3), np.array(self.anchors, np.float64).reshape(2, 3, 2), {}
        boxes, scores = dense(rng, placed(source, self.size, self.fit), at, self.threshold, self.classes, self.ties)
        for stride, scale, anchors in zip(self.strides, (1.05, 1.2), sides):
            here = at[:, 2] == stride
            (x, y, w, h), best = cxcywh(boxes[here]).T, np.sqrt(scores[here].max(1, keepdims=True))
            cell = np.floor(at[here, :2] / stride)
            middle = (np.stack([x, y], 1) / stride - cell + 0.5 * (scale - 1)) / scale
            raw = [logit(middle.clip(0.01, 0.99)), np.log(np.stack([w, h], 1) / np.tile(anchors, (len(cell) // 3, 1)))]
            rows = np.concatenate([*raw, logit(best), logit(scores[here] / best)], 1)
            lines, columns = self.size[1] // stride, self.size[0] // stride
            parts[f"map_{stride}"] = f32(rows.reshape(1, lines, columns, -1).transpose(0, 3, 1, 2))
        return parts

    def peer(self, outputs, source):
        rows = []
        for (name, array), scale, first in zip(outputs.items(), (1.05, 1.2), (0, 3)):
            _, channels, lines, columns = array.shape
            stride = self.size[0] / columns
            anchors = ",".join(str(side / stride) for pair in self.anchors[first : first + 3] for side in pair)
            config = f"[net]\nwidth={columns}\nheight={lines}\nchannels={channels}\n[yolo]\nmask=0,1,2\nanchors={anchors}\n"
            config += f"classes={self.classes}\nnum=3\nscale_x_y={scale}\nthresh={self.threshold}\nnms_threshold=0\n"
            net = cv2.dnn.readNetFromDarknet(np.frombuffer(config.encode(), np.uint8), np.zeros(20, np.uint8))
            net.setInput(array)
            rows.append(net.forward())
        rows = np.concatenate(rows).reshape(-1, 5 + self.classes)
        which, kinds = np.nonzero(rows[:, 5:] > self.threshold)
        scores, boxes = rows[which, 5 + kinds], rows[which, :4] * np.tile(self.size, 2)
        boxes = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
        back = np.tile(np.divide(source, self.size), 2)
        return [(int(kinds[i]), float(scores[i]), *(boxes[i] * back)) for i in suppress(boxes, scores, kinds, 0.45, 1000)]


class DetectNet(HeatMap):
    name, numpy = "heatmap: DetectNet_v2, DeepStream's `NvDsInferParseCustomResnet` without its last pixel", True
    head, stride, strides, threshold = 'family = "heatmap"\nstyle = "detectnet"', 16, (16,), 0.4
    fit, input, ties = "stretch", "scale = 1", False

    def outputs(self, rng, area):
        heat, (bw, bh), (x, y) = self.maps(rng, area, False)
        # Distances from a cell to the box's sides, in 35 pixels.
        sides = np.stack([bw / 2 - x, bh / 2 - y, bw / 2 + x, bh / 2 + y]) * 16 / 35
        return {"output_bbox": f32(np.tile(sides, (self.classes, 1, 1))[None]), "output_cov": f32(heat[None])}

    def peer(self, outputs, source):
        bbox, cov = (array[0] for array in outputs.values())
        kinds, y, x = np.nonzero(cov >= self.threshold)
        cx, cy = ((side * 16 + 0.5) / 35 for side in (x, y))
        left, top, right, bottom = (bbox[4 * kinds + number, y, x] for number in range(4))
        boxes = np.stack([cx - left, cy - top, cx + right, cy + bottom], 1) * 35
        boxes, scores = boxes.clip(0, np.tile(self.size, 2)), cov[kinds, y, x]
        back = np.tile(np.divide(source, self.size), 2)
        return [(int(kinds[i]), float(scores[i]), *(boxes[i] * back)) for i in suppress(boxes, scores, kinds, 0.5, 1000)]


class BlazeFace(Head):
    name, numpy = "blazeface: MediaPipe's calculators", True
    head, size, classes, threshold = 'family = "blazeface"', (128, 128), 1, 0.5
    fit, input, ties = "letterbox", "scale = 1\nmean = 0\nstd = 1", False

    def anchors(self):
        return np.concatenate([cells(self.size, (8,), 2), cells(self.size, (16,), 6)])

    def scene(self, rng, source):
        at = self.anchors()
        boxes, scores = dense(rng, placed(source, self.size, self.fit), at, self.threshold, 1, self.ties)
        raw = cxcywh(boxes)
        raw[:, :2] -= at[:, :2]
        rows = np.concatenate([raw, rng.normal(0, 10, (len(at), 12))], 1)
        return {"regressors": f32(rows[None]), "classificators": f32(logit(scores)[None])}

    def peer(self, outputs, source):
        raw, at = outputs["regressors"][0].astype(np.float64), self.anchors()
        scores = 1 / (1 + np.exp(-outputs["classificators"][0, :, 0].astype(np.float64)))
        centre, half = raw[:, :2] + at[:, :2], raw[:, 2:4] / 2
        boxes, found = np.concatenate([centre - half, centre + half], 1), []
        left = [i for i in np.argsort(-scores, kind="stable") if scores[i] >= self.threshold]
        side = max(source)
        while left:
            # Boxes that overlap the best one are averaged by score.
            same = [i for i in left if i == left[0] or overlap(boxes[left[0]], boxes[i]) > 0.3]
            box = (boxes[same] * scores[same, None]).sum(0) / scores[same].sum() * side / 128
            found.append((0, float(scores[left[0]]), *(box - np.tile([(side - each) / 2 for each in source], 2))))
            left = [i for i in left if i not in same]
        return found


class Fomo(Head):
    name, numpy = "fomo: `fill_result_struct_f32_fomo` of edge-impulse-sdk", True
    head, fit, input, threshold, classes = 'family = "fomo"', "stretch", "scale = 1", 0.5, 3

    def scene(self, rng, source):
        found = np.zeros((self.size[1] // 8, self.size[0] // 8, self.classes))
        for cx, cy, w, h, kind, score in objects(rng, placed(source, self.size, self.fit), self.classes):
            x, y = int(min(cx, self.size[0] - 1) / 8), int(min(cy, self.size[1] - 1) / 8)
            found[y : y + int(min(h / 40, 3)) + 1, x : x + int(min(w / 40, 3)) + 1] = 0
            found[y : y + int(min(h / 40, 3)) + 1, x : x + int(min(w / 40, 3)) + 1, kind] = score
        return {"scores": f32(np.concatenate([1 - found.sum(2, keepdims=True), found], 2)[None])}

    def peer(self, outputs, source):
        def merged(cubes):
            kept = []
            for one in cubes:
                x1, y1, x2, y2, kind, score = one
                for cube in kept:
                    if cube[4] == kind and cube[0] <= x2 and cube[2] >= x1 and cube[1] <= y2 and cube[3] >= y1:
                        # The SDK moves the near sides and leaves the sizes as they are, then moves the far sides.
                        w, h = cube[2] - cube[0], cube[3] - cube[1]
                        cube[0], cube[1] = min(cube[0], x1), min(cube[1], y1)
                        cube[2], cube[3] = max(cube[0] + w, x2), max(cube[1] + h, y2)
                        cube[5] = max(cube[5], score)
                        break
                else:
                    kept.append(list(one))
            return kept

        data = outputs["scores"][0]
        hot = np.argwhere(data[..., 1:] >= self.threshold)
        cubes = merged([(x, y, x + 1, y + 1, kind, float(data[y, x, kind + 1])) for y, x, kind in hot])
        back = 8 * np.tile(np.divide(source, self.size), 2)
        return [(int(cube[4]), cube[5], *(np.array(cube[:4]) * back)) for cube in merged(cubes)]


class MoveNet(Head):
    name, numpy = "movenet: `_postprocess` of movenet_multipose.py in tensorflow/examples", True
    head, size, classes, threshold = 'family = "movenet"', (256, 256), 1, 0.11
    input = "pad = 0"

    def scene(self, rng, source):
        x1, y1, x2, y2 = np.array(placed(source, self.size, self.fit)) / 256
        rows = rng.random((6, 56))
        for row in rows:
            (top, bottom), (left, right) = np.sort(rng.uniform(y1, y2, 2)), np.sort(rng.uniform(x1, x2, 2))
            row[51:] = top, left, bottom, right, rng.choice((0.05, 0.3, 0.7)) * rng.uniform(0.9, 1.1)
        return {"output_0": f32(rows[None])}

    def peer(self, outputs, source):
        # The frame is padded to a square, then resized: `keep_aspect_ratio` of the same file's `detect`.
        side, (w, h) = max(source), source
        shift = np.array([(side - w) // 2, (side - h) // 2] * 2)
        rows = [r for r in outputs["output_0"][0] if r[55] >= self.threshold]
        return [(0, float(r[55]), *(r[[52, 51, 54, 53]] * side - shift)) for r in rows]


# --- The comparison ---------------------------------------------------------------------------------------------------------
HEADS = [YoloV8, YoloV8Crop, YoloV8Pose, YoloV8Obb, YoloV5, YoloV7, YoloV5Face, YoloNms, UltralyticsRtDetr, PaddleRows, RtmDet]
HEADS += [YoloX, NanoDet, NanoDetPlus, UltraFace, PytorchYoloV4, YoloNas, PpYoloE, TorchvisionSsd, TensorFlow, Detr, Yolos]
HEADS += [RtDetr, DeformableDetr, RfDetr, CenterNet, TtfNet, CenterFace, DetectNet, Scrfd, YuNet, RetinaFace, BlazeFace]
HEADS += [Darknet, Fomo, MoveNet]


def pictures(folder):
    """One grey each; the first 30 sizes twice."""
    paths = []
    for number in range(COUNT):
        w, h = SIZES[number % len(SIZES)]
        paths.append(folder / f"{number:02}.png")
        cv2.imwrite(str(paths[-1]), np.full((h, w, 3), DARKEST + STEP * number, np.uint8))
    return paths


def clipped(found, source):
    """The boxes that remain in the image."""
    kept = [(kind, score, *np.clip(box, 0, np.tile(source, 2))) for kind, score, *box in found]
    return [d for d in kept if d[4] > d[2] and d[5] > d[3]]


def compared(args, head, folder, paths):
    """Compares one head with each backend; the number of disagreements."""
    rng = np.random.default_rng(args.seed)
    sources = [SIZES[number % len(SIZES)] for number in range(COUNT)]
    scenes = [head.scene(rng, source) for source in sources]
    theirs = [clipped(head.peer(scene, source), source) for scene, source in zip(scenes, sources)]
    model, card = folder / "head.onnx", folder / "card.toml"
    network(model, head.size, scenes)
    card.write_text(head.card(), encoding="utf-8")
    bad = 0
    for backend in args.backend.split(","):
        command = [args.visiond, "detect", "--json", "--backend", backend, "--model", model, "--card", card, *paths]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            print(f"{head.name}: {done.stderr.strip()[-600:]}", flush=True)
            return 1
        tally = Tally()
        for one, line in zip(theirs, done.stdout.splitlines(), strict=True):
            tally.add(one, boxes_of(json.loads(line)["detections"]), head.threshold)
        print(f"{head.name}{', in numpy' if head.numpy else ''}, {backend}: {tally}", flush=True)
        bad += tally.close < 0.995 * tally.total or tally.extra > 0.005 * tally.total
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--backend", default="onnxruntime,rten", help="those to compare, by commas")
    parser.add_argument("--seed", type=int, default=1, help="of the scenes")
    parser.add_argument("--only", default="", help="the heads in whose names this is")
    parser.add_argument("packages", metavar="PACKAGES")
    args = parser.parse_args()
    placement.PACKAGES = pathlib.Path(args.packages).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        paths = pictures(folder)
        heads = [head() for head in HEADS]
        bad = [head.name for head in heads if args.only in head.name and compared(args, head, folder, paths)]
    print(f"{len(bad)} heads disagree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
