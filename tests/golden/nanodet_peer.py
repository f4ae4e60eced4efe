# numpy 2.4.6, opencv-python-headless 4.14.0.94, onnxruntime 1.31.1
"""NanoDet-g by other means: OpenCV's warp, onnxruntime, and a decode in numpy.

What visiond's detections are compared with. It shares no code with visiond: the resampling, the normalisation, the
decode and the NMS are OpenCV's or written here from the papers (Generalized Focal Loss, https://arxiv.org/abs/2006.04388).
"""

import os

import cv2
import numpy as np

# Its telemetry writes to the home folder and would be sent.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime  # noqa: E402

SIZE = 416
STRIDES = (8, 16, 32)
BINS = 11
MEAN = np.array([103.53, 116.28, 123.675], np.float32)
STD = np.array([57.375, 57.12, 58.395], np.float32)
COCO = (
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,"
    "bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,skis,"
    "snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,cup,fork,"
    "knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,potted plant,bed,"
    "dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,refrigerator,book,clock,"
    "vase,scissors,teddy bear,hair drier,toothbrush"
).split(",")


def session(model, threads=1):
    """An onnxruntime session with `threads` threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def preprocess(bgr):
    """The input tensor of an image, and the image's place in it: ratio, x, y.

    As NanoDet does it (warp_and_resize in nanodet/data/transform/warp.py). OpenCV 5 warps in floats: a few levels differ.
    """
    height, width = bgr.shape[:2]
    ratio = min(SIZE / height, SIZE / width)
    x, y = SIZE / 2 - ratio * width / 2, SIZE / 2 - ratio * height / 2
    canvas = cv2.warpPerspective(bgr, np.array([[ratio, 0, x], [0, ratio, y], [0, 0, 1]]), dsize=(SIZE, SIZE))
    tensor = (canvas.astype(np.float32) - MEAN) / STD
    return np.ascontiguousarray(tensor.transpose(2, 0, 1)[None]), (ratio, x, y)


def _centres():
    points, strides = [], []
    for stride in STRIDES:
        n = -(-SIZE // stride)
        rows, columns = np.mgrid[:n, :n]
        points.append(np.stack([(columns.ravel() + 0.5) * stride, (rows.ravel() + 0.5) * stride], 1))
        strides.append(np.full((n * n, 1), stride))
    return np.concatenate(points), np.concatenate(strides)


CENTRES, CENTRE_STRIDES = _centres()


def decode(output, placed, source, threshold, iou=0.6, most=100):
    """Detections as (class, score, x1, y1, x2, y2) in source pixels, best first."""
    rows = output[0]
    # As NanoDet's own code, multiclass_nms: a box for every class that passes.
    keep, classes = np.nonzero(rows[:, : len(COCO)] >= threshold)
    scores = rows[keep, classes]
    logits = rows[keep, len(COCO) :].reshape(-1, 4, BINS)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    distances = (weights * np.arange(BINS)).sum(-1) * CENTRE_STRIDES[keep]
    centres = CENTRES[keep]
    # NanoDet clips to the input before the suppression (distance2bbox with max_shape).
    boxes = np.concatenate([centres - distances[:, :2], centres + distances[:, 2:]], 1).clip(0, SIZE)
    kept = suppress(boxes, scores, classes, iou, most)
    ratio, x, y = placed
    width, height = source
    found = []
    for i in kept:
        x1, x2 = np.clip((boxes[i, [0, 2]] - x) / ratio, 0, width)
        y1, y2 = np.clip((boxes[i, [1, 3]] - y) / ratio, 0, height)
        found.append((int(classes[i]), float(scores[i]), float(x1), float(y1), float(x2), float(y2)))
    return found


def suppress(boxes, scores, classes, threshold, most):
    """Greedy class-wise NMS; the indices that stay, best first."""
    order = list(np.argsort(-scores, kind="stable"))
    kept = []
    while order and len(kept) < most:
        best = order.pop(0)
        kept.append(best)
        order = [i for i in order if classes[i] != classes[best] or overlap(boxes[best], boxes[i]) <= threshold]
    return kept


def overlap(a, b):
    """IoU of two boxes (x1, y1, x2, y2)."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def detect(run, bgr, threshold):
    """All of it: a BGR picture's detections of at least `threshold`."""
    tensor, placed = preprocess(bgr)
    output = run.run(None, {run.get_inputs()[0].name: tensor})[0]
    return decode(output, placed, (bgr.shape[1], bgr.shape[0]), threshold)
