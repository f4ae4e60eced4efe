# numpy 2.4.6; shapely 2.2.0; python 3.11
"""Golden data of the heads: synthetic raw outputs, and the results of each project's own post-processing.

`python tests/golden/heads.py` writes heads.json beside itself; engine/tests/heads_golden.rs reads it. Nothing here is taken
from the heads' Rust: every function follows the post-processing of the project that its comment names, in float64: first up
to non-maximum suppression ("expected"), then with it ("kept"). Seeded, so that a run without changes changes nothing.
"""
import json
import math
import pathlib

import numpy as np

import oriented

rng = np.random.default_rng(20261121)
CASES = []


def rounded(a, digits=4):
    """Numbers that survive being written as short decimals, as float32."""
    return np.round(np.asarray(a, np.float64), digits).astype(np.float32)


# --- Suppression ------------------------------------------------------------------------------------------------------------
def overlap(a, b, iou, one=0):
    """Intersection over union of two boxes, whose sides are `one` longer."""
    w = max(0.0, min(a[2], b[2]) - max(a[0], b[0]) + one)
    h = max(0.0, min(a[3], b[3]) - max(a[1], b[1]) + one)
    area_a, area_b = ((r[2] - r[0] + one) * (r[3] - r[1] + one) for r in (a, b))
    found = w * h / (area_a + area_b - w * h)
    assert abs(found - iou) > 1e-5, "an overlap at the threshold proves nothing"
    return found


def batched_nms(iou, limit):
    """torchvision.ops.batched_nms, then the best `limit`: class by class, and what overlaps a better box by more is removed."""
    def run(found, points):
        order, kept = sorted(range(len(found)), key=lambda i: -found[i][4]), []
        for i in order:
            if all(found[k][5] != found[i][5] or overlap(found[k], found[i], iou) <= iou for k in kept):
                kept.append(i)
        return [found[k] for k in kept[:limit]], points and [points[k] for k in kept[:limit]]
    return run


def centerface_nms(iou):
    """Star-Clouds/CenterFace prj-python/centerface.py, nms: corners are pixels of the box, and the threshold is too much."""
    def run(found, points):
        order, kept = sorted(range(len(found)), key=lambda i: -found[i][4]), []
        while order:
            best = order.pop(0)
            kept.append(best)
            order = [i for i in order if overlap(found[best], found[i], iou, 1) < iou]
        return [found[k] for k in kept], points and [points[k] for k in kept]
    return run


def mediapipe_nms(iou):
    """mediapipe/calculators/util/non_max_suppression_calculator.cc, WeightedNonMaxSuppression."""
    def run(found, points):
        order, boxes, blended = sorted(range(len(found)), key=lambda i: -found[i][4]), [], []
        while order:
            best = order[0]
            near = [i for i in order if i == best or overlap(found[best], found[i], iou) > iou]
            weights = np.array([found[i][4] for i in near], np.float64)
            boxes.append((*np.average([found[i][:4] for i in near], 0, weights), *found[best][4:]))
            blended.append(np.average([points[i] for i in near], 0, weights))
            order = [i for i in order if i not in near]
        return boxes, blended
    return run


def oriented_nms(iou, limit):
    """TorchNMS.fast_nms of ultralytics utils/nms.py, on boxes that `angles` turn."""
    def run(found, angles):
        turned = [((f[0] + f[2]) / 2, (f[1] + f[3]) / 2, f[2] - f[0], f[3] - f[1], a) for f, a in zip(found, angles)]
        kept = oriented.fast_nms(turned, [f[4] for f in found], [f[5] for f in found], iou, False)[:limit]
        return [found[k] for k in kept], [angles[k] for k in kept]
    return run


def case(name, card, size, outputs, expected, threshold, keypoints=None, nms=None, least=3, angles=None):
    """outputs: [(name, dtype, array)]; expected: [(x1, y1, x2, y2, score, class)]; keypoints: one list of points each.

    The boxes of a model with `angles` are those before they are turned about their centres.
    """
    kept, kept_points = nms(expected, angles or keypoints) if nms else (None, None)
    turned = {"angles": angles, "kept_angles": kept_points} if angles else {}
    kept_points = None if angles else kept_points
    for e in expected:
        assert abs(e[4] - threshold) > 1e-5, (name, "a score on the threshold proves nothing")
    assert len(expected) >= least, (name, len(expected))
    CASES.append({
        "name": name,
        "card": card,
        "size": size,
        "threshold": threshold,
        "outputs": [{"name": n, "dtype": d, "shape": list(a.shape), "data": [number(v) for v in a.ravel()]}
                    for n, d, a in outputs],
        "expected": boxes_of(expected),
        "keypoints": points_of(keypoints),
        "kept": boxes_of(kept),
        "kept_keypoints": points_of(kept_points),
        **turned,
    })


def boxes_of(boxes):
    return boxes and [[round(float(v), 6) for v in e] for e in boxes]


def points_of(lists):
    return lists and [[[round(float(v), 5) for v in p] for p in points] for points in lists]


def number(v):
    if isinstance(v, (np.integer, int)):
        return int(v)
    v = float(v)
    return int(v) if v == int(v) else float(f"{v:.7g}")


def names(count):
    return "[classes]\nnames = [" + ", ".join(f'"c{i}"' for i in range(count)) + "]\n"


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def softmax(x):
    e = np.exp(np.asarray(x, np.float64) - np.max(x, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def xywh2xyxy(b):
    return np.concatenate([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)


def scores(rows, classes, hot=0.15):
    """Mostly small, some high, as networks give them."""
    s = rng.random((rows, classes)) * 0.2
    high = rng.random((rows, classes)) < hot
    return rounded(np.where(high, 0.3 + 0.69 * rng.random((rows, classes)), s))


def cxcywh(rows, w, h):
    return rounded(np.stack([rng.random(rows) * w, rng.random(rows) * h, 5 + rng.random(rows) * w / 2,
                             5 + rng.random(rows) * h / 2], 1), 3)


def corner_boxes(rows, w, h):
    return rounded(xywh2xyxy(cxcywh(rows, w, h)), 3)


# --- YOLOv5, YOLOv7: ultralytics/yolov5 utils/general.py, non_max_suppression with multi_label=False ------------------------
def yolov5(p, nc, thr):
    p = p.astype(np.float64)
    p = p[p[:, 4] > thr]
    conf = p[:, 5:5 + nc] * p[:, 4:5]
    box = xywh2xyxy(p[:, :4])
    j = conf.argmax(1)
    c = conf.max(1)
    return [(*b, s, k) for b, s, k in zip(box, c, j) if s > thr]


for name, nc, masks, rows in [("yolov5", 3, 0, 90), ("yolov5 segment", 2, 6, 40)]:
    p = np.concatenate([cxcywh(rows, 320, 256), scores(rows, 1, 0.5), scores(rows, nc, 0.4), rounded(rng.standard_normal((rows, masks)))], 1)
    card = f'[head]\nfamily = "yolov5"\n{"masks = 6" if masks else ""}\n' + names(nc)
    case(name, card, [320, 256], [("output0", "f32", p[None])], yolov5(p, nc, 0.25), 0.25, nms=batched_nms(0.45, 1000))
# Old exports have raw grids before or after the decoded output; these are ignored.
p = np.concatenate([cxcywh(20, 320, 320), scores(20, 1, 0.7), scores(20, 2, 0.6)], 1)
case("yolov5 with raw grids", '[head]\nfamily = "yolov5"\n' + names(2), [320, 320],
     [("raw", "f32", rounded(rng.standard_normal((1, 3, 2, 2, 7)))), ("output", "f32", p[None])], yolov5(p, 2, 0.25), 0.25, nms=batched_nms(0.45, 1000))


# --- YOLOv8 to 12: ultralytics utils/nms.py with multi_label=False; points: (x, y, conf) after the classes -------------------
def yolov8(p, nc, thr, kpt=None):
    """p: [N, 4 + nc + ...]"""
    p = p.astype(np.float64)
    cls = p[:, 4:4 + nc]
    keep = cls.max(1) > thr
    p, cls = p[keep], cls[keep]
    det = [(*b, s, k) for b, s, k in zip(xywh2xyxy(p[:, :4]), cls.max(1), cls.argmax(1))]
    pts = None if kpt is None else [list(r.reshape(kpt)) for r in p[:, 4 + nc:4 + nc + kpt[0] * kpt[1]]]
    return det, pts


p = np.concatenate([cxcywh(1100, 640, 480), scores(1100, 2, 0.02)], 1)
case("yolov8 of more than one block", '[head]\nfamily = "yolov8"\n' + names(2), [640, 480],
     [("output0", "f32", np.ascontiguousarray(p.T[None]))], yolov8(p, 2, 0.3)[0], 0.3, nms=batched_nms(0.7, 300))
p = np.concatenate([cxcywh(60, 640, 480), scores(60, 6, 0.1)], 1)
case("yolov8 turned", '[head]\nfamily = "yolov8"\n' + names(6), [640, 480], [("output0", "f32", p[None])], yolov8(p, 6, 0.3)[0], 0.3, nms=batched_nms(0.7, 300))
case("yolov8 without names", '[head]\nfamily = "yolov8"\n', [640, 480],
     [("output0", "f32", np.ascontiguousarray(p.T[None]))], yolov8(p, 6, 0.3)[0], 0.3, nms=batched_nms(0.7, 300))
p16 = p.astype(np.float16).astype(np.float32)
case("yolov8 in f16", '[head]\nfamily = "yolov8"\n' + names(6), [640, 480],
     [("output0", "f16", np.ascontiguousarray(p16.T[None]))], yolov8(p16, 6, 0.3)[0], 0.3, nms=batched_nms(0.7, 300))
for each in (3, 2):
    pts = rounded(rng.random((50, 5 * each)) * 300, 2)
    p = np.concatenate([cxcywh(50, 640, 480), scores(50, 1, 0.3), pts], 1)
    det, kp = yolov8(p, 1, 0.3, (5, each))
    case(f"yolov8 pose of {each}", f'[head]\nfamily = "yolov8"\nkeypoints = [5, {each}]\n' + names(1), [640, 480],
         [("output0", "f32", np.ascontiguousarray(p.T[None]))], det, 0.3, kp, batched_nms(0.7, 300))
p = np.concatenate([cxcywh(60, 640, 480), scores(60, 3, 0.2), rounded(rng.standard_normal((60, 8)))], 1)
case("yolov8 segment", '[head]\nfamily = "yolov8"\nmasks = 8\n' + names(3), [640, 480],
     [("output0", "f32", np.ascontiguousarray(p.T[None])), ("output1", "f32", np.zeros((1, 8, 2, 2), np.float32))],
     yolov8(p, 3, 0.3)[0], 0.3, nms=batched_nms(0.7, 300))

# --- End to end: ultralytics utils/nms.py, `if prediction.shape[-1] == 6 or end2end`: rows whose conf passes -----------------
for extra, option in [(0, ""), (6, "keypoints = [2, 3]")]:
    p = np.concatenate([corner_boxes(30, 640, 640), np.sort(scores(30, 1, 0.4), 0)[::-1],
                        rng.integers(0, 80, (30, 1)).astype(np.float32), rounded(rng.random((30, extra)) * 640, 2)], 1)
    p[20:] = 0
    keep = p[p[:, 4] > 0.25].astype(np.float64)
    case("end to end" + (" pose" if extra else ""), f'[head]\nfamily = "yolo-nms"\n{option}\n', [640, 640], [("output0", "f32", p[None])],
         [tuple(r[:6]) for r in keep], 0.25, [list(r[6:].reshape(2, 3)) for r in keep] if extra else None)
# WongKinYiu/yolov7 README, "ONNX export": batch_id, x0, y0, x1, y1, cls_id, score
p = np.concatenate([np.zeros((15, 1), np.float32), corner_boxes(15, 640, 640), rng.integers(0, 80, (15, 1)).astype(np.float32),
                    scores(15, 1, 0.6)], 1)
case("yolov7 end to end", '[head]\nfamily = "yolo-nms"\n', [640, 640], [("output", "f32", p)],
     [(*r[1:5], r[6], r[5]) for r in p.astype(np.float64) if r[6] > 0.25], 0.25)
# EfficientNMS_TRT: rows from num_dets on are garbage.
b, s, c = corner_boxes(20, 640, 640), scores(20, 1, 0.9)[:, 0], rng.integers(0, 80, 20).astype(np.int32)
case("EfficientNMS", '[head]\nfamily = "yolo-nms"\n', [640, 640],
     [("num_dets", "i32", np.array([[8]], np.int32)), ("det_boxes", "f32", b[None]), ("det_scores", "f32", s[None]),
      ("det_classes", "i32", c[None])],
     [(*b[i], s[i], c[i]) for i in range(8) if s[i] > 0.25], 0.25)


# --- YOLOX: Megvii-BaseDetection/YOLOX yolox/utils/demo_utils.py, demo_postprocess; boxes.py, postprocess --------------------
def yolox_grid(p, w, h):
    p = p.astype(np.float64).copy()
    grids, strides = [], []
    for stride in (8, 16, 32):
        hs, ws = h // stride, w // stride
        xv, yv = np.meshgrid(np.arange(ws), np.arange(hs))
        grids.append(np.stack((xv, yv), 2).reshape(-1, 2))
        strides.append(np.full((hs * ws, 1), stride))
    grids, strides = np.concatenate(grids), np.concatenate(strides)
    p[:, :2] = (p[:, :2] + grids) * strides
    p[:, 2:4] = np.exp(p[:, 2:4]) * strides
    return p


def yolox(p, nc, thr):
    conf = p[:, 5:5 + nc].max(1) * p[:, 4]
    cls = p[:, 5:5 + nc].argmax(1)
    return [(*b, s, k) for b, s, k in zip(xywh2xyxy(p[:, :4]), conf, cls) if s > thr]


rows = (96 * 64) // 64 + (96 * 64) // 256 + (96 * 64) // 1024
p = np.concatenate([rounded(rng.standard_normal((rows, 4))), scores(rows, 1, 0.5), scores(rows, 3, 0.4)], 1)
case("yolox", '[head]\nfamily = "yolox"\n' + names(3), [96, 64], [("output", "f32", p[None])], yolox(yolox_grid(p, 96, 64), 3, 0.3), 0.3,
     nms=batched_nms(0.45, 1000))
p = np.concatenate([cxcywh(rows, 96, 64), scores(rows, 1, 0.5), scores(rows, 3, 0.4)], 1)
case("yolox decoded", '[head]\nfamily = "yolox"\ndecoded = true\n' + names(3), [96, 64], [("output", "f32", p[None])],
     yolox(p.astype(np.float64), 3, 0.3), 0.3, nms=batched_nms(0.45, 1000))


# --- NanoDet: RangiLyu/nanodet gfl_head.py / nanodet_plus_head.py, get_bboxes: every class of a box that passes ---------------
def nanodet(cls, reg, w, h, strides, reg_max, thr, centre, best=False):
    centres, per = [], []
    for s in strides:
        fh, fw = math.ceil(h / s), math.ceil(w / s)
        y, x = np.meshgrid((np.arange(fh) + centre) * s, (np.arange(fw) + centre) * s, indexing="ij")
        centres.append(np.stack([x.ravel(), y.ravel()], 1))
        per.append(np.full((fh * fw, 1), s))
    centres, per = np.concatenate(centres), np.concatenate(per)
    d = (softmax(reg.reshape(-1, 4, reg_max + 1)) * np.arange(reg_max + 1)).sum(-1) * per
    box = np.concatenate([centres - d[:, :2], centres + d[:, 2:]], 1).clip(0, [w, h, w, h])
    cls = cls.astype(np.float64)
    if best:  # NanoDet's C++ demos
        return [(*b, s.max(), s.argmax()) for b, s in zip(box, cls) if s.max() > thr]
    return [(*b, s[k], k) for b, s in zip(box, cls) for k in range(len(s)) if s[k] > thr]


def nanodet_rows(w, h, strides):
    return sum(math.ceil(w / s) * math.ceil(h / s) for s in strides)


for name, w, h, strides, reg_max, centre in [("nanodet", 96, 64, [8, 16, 32], 10, True), ("nanodet-plus of an odd size", 100, 52, [8, 16, 32, 64], 7, False)]:
    rows = nanodet_rows(w, h, strides)
    cls, reg = scores(rows, 4, 0.1), rounded(rng.standard_normal((rows, 4 * (reg_max + 1))) * 2, 3)
    head = f'[head]\nfamily = "nanodet"\nstrides = {strides}\nreg_max = {reg_max}\ncell_centre = {str(centre).lower()}\n'
    expected = nanodet(cls, reg, w, h, strides, reg_max, 0.35, 0.5 if centre else 0.0)
    case(name, head + names(4), [w, h], [("output", "f32", np.concatenate([cls, reg], 1)[None])], expected, 0.35, nms=batched_nms(0.6, 100))
rows = nanodet_rows(64, 64, [8, 16, 32])
cls, reg = rounded(rng.standard_normal((rows, 3)) * 2 - 1), rounded(rng.standard_normal((rows, 32)) * 2, 3)
parts, at = [], 0
for s in (8, 16, 32):
    n = (64 // s) ** 2
    parts.append((f"cls_{s}", "f32", cls[None, at:at + n]))
    parts.append((f"dis_{s}", "f32", reg[None, at:at + n]))
    at += n
case("nanodet in six outputs, logits", '[head]\nfamily = "nanodet"\nsigmoid = true\n' + names(3), [64, 64], parts[::2] + parts[1::2],
     nanodet(sigmoid(cls), reg, 64, 64, [8, 16, 32], 7, 0.6, 0.5), 0.6, nms=batched_nms(0.6, 100))


# --- SSD: every class whose score passes is a candidate (torchvision ssd.py; vision/ssd/predictor.py of UltraFace) -----------
def multi_label(box, s, thr, first):
    return [(*b, r[k], k - first) for b, r in zip(box, s) for k in range(first, len(r)) if r[k] > thr]


norm = rounded(corner_boxes(70, 320, 240) / np.array([320, 240, 320, 240]), 5)
scale = np.array([320, 240, 320, 240])
s = scores(70, 1, 0.2)
s = rounded(np.concatenate([1 - s, s], 1))
case("ultraface", '[head]\nfamily = "ssd"\nbackground = "first"\n[classes]\nnames = ["face"]\n', [320, 240],
     [("scores", "f32", s[None]), ("boxes", "f32", norm[None])], multi_label(norm.astype(np.float64) * scale, s, 0.4, 1), 0.4, nms=batched_nms(0.5, 300))
logits = rounded(rng.standard_normal((70, 4)) * 2)
centre = rounded(cxcywh(70, 320, 240), 3)
case("ssd logits, centres, pixels", '[head]\nfamily = "ssd"\nbackground = "last"\nactivation = "softmax"\nformat = "cxcywh"\nunit = "pixels"\n' + names(3),
     [320, 240], [("loc", "f32", centre[None]), ("conf", "f32", logits[None])],
     [e for e in multi_label(xywh2xyxy(centre.astype(np.float64)), softmax(logits), 0.3, 0) if e[5] < 3], 0.3, nms=batched_nms(0.5, 300))
logits = rounded(rng.standard_normal((40, 3)) * 2 - 1)
case("ssd sigmoid", '[head]\nfamily = "ssd"\nactivation = "sigmoid"\nformat = "xywh"\n' + names(3), [320, 240],
     [("a", "f32", norm[None, :40]), ("b", "f32", logits[None])],
     multi_label(np.concatenate([norm[:40, :2], norm[:40, :2].astype(np.float64) + norm[:40, 2:]], 1) * scale, sigmoid(logits), 0.5, 0), 0.5,
     nms=batched_nms(0.5, 300))
# torchvision: {boxes: [N, 4] pixels, labels: [N], scores: [N]}
b, s, c = corner_boxes(12, 320, 240), scores(12, 1, 0.6)[:, 0], rng.integers(1, 91, 12).astype(np.int64)
case("torchvision", '[head]\nfamily = "ssd"\n[classes]\npreset = "coco91"\n', [320, 240],
     [("1234", "f32", b), ("1235", "f32", s), ("1236", "i64", c)], [(*b[i], s[i], c[i]) for i in range(12) if s[i] > 0.4], 0.4)
# TensorFlow's detection API: [ymin, xmin, ymax, xmax] of the input, classes from 1, num_detections
case("tensorflow", '[head]\nfamily = "ssd"\nformat = "yxyx"\nunit = "normalized"\nbackground = "first"\n', [320, 240],
     [("detection_anchor_indices", "f32", np.zeros((1, 70), np.float32)), ("detection_boxes", "f32", norm[None, :12][..., [1, 0, 3, 2]].copy()),
      ("detection_classes", "f32", c[None].astype(np.float32)), ("detection_multiclass_scores", "f32", np.zeros((1, 12, 3), np.float32)),
      ("detection_scores", "f32", s[None]), ("num_detections", "f32", np.array([9], np.float32)),
      ("raw_detection_boxes", "f32", np.zeros((1, 70, 4), np.float32)), ("raw_detection_scores", "f32", np.zeros((1, 70, 3), np.float32))],
     [(*(norm[i].astype(np.float64) * scale), s[i], c[i] - 1) for i in range(9) if s[i] > 0.4], 0.4)


# --- DETR and its kin -------------------------------------------------------------------------------------------------------
def focal(logits, boxes, w, h, thr):
    """transformers RTDetrImageProcessor.post_process_object_detection, use_focal_loss=True; rf-detr's PostProcess alike."""
    q, c = logits.shape
    p = sigmoid(logits).reshape(-1)
    top = np.argsort(-p, kind="stable")[:q]
    box = xywh2xyxy(boxes.astype(np.float64)) * np.array([w, h, w, h])
    return [(*box[i // c], p[i], i % c) for i in top if p[i] > thr]


def detr_boxes(q):
    return rounded(np.stack([rng.random(q), rng.random(q), 0.05 + rng.random(q) / 2, 0.05 + rng.random(q) / 2], 1), 5)


q = 10
logits, boxes = rounded(rng.standard_normal((q, 6)) * 1.5), detr_boxes(q)
assert (sigmoid(logits) > 0.3).sum() > q
case("rt-detr, more pairs than queries", '[head]\nfamily = "detr"\n' + names(6), [640, 480],
     [("logits", "f32", logits[None]), ("pred_boxes", "f32", boxes[None])], focal(logits, boxes, 640, 480, 0.3), 0.3)
# rf-detr: dets, labels; a fine-tuned network has one logit more than classes, which is dropped
dropped = rounded(np.concatenate([logits[:, :5], logits[:, 5:] - 9], 1))
case("rf-detr", '[head]\nfamily = "detr"\nbackground = "last"\n' + names(5), [640, 480],
     [("dets", "f32", boxes[None]), ("labels", "f32", dropped[None])], focal(dropped, boxes, 640, 480, 0.3), 0.3)
# transformers DetrImageProcessor: softmax, the last class is none, the best other one stands
logits, boxes = rounded(rng.standard_normal((30, 6)) * 2), detr_boxes(30)
prob = softmax(logits)[:, :-1]
box = xywh2xyxy(boxes.astype(np.float64)) * np.array([640, 480, 640, 480])
case("detr", '[head]\nfamily = "detr"\nactivation = "softmax"\n' + names(5), [640, 480],
     [("logits", "f32", logits[None]), ("pred_boxes", "f32", boxes[None]), ("last_hidden_state", "f32", np.zeros((1, 30, 8), np.float32))],
     [(*b, p.max(), p.argmax()) for b, p in zip(box, prob) if p.max() > 0.5], 0.5)
# D-FINE and RT-DETR deployed: labels, boxes (of orig_target_sizes), scores
b, s, c = corner_boxes(20, 640, 480), scores(20, 1, 0.5)[:, 0], rng.integers(0, 80, 20).astype(np.int64)
case("d-fine", '[extra_inputs]\norig_target_sizes = "input-size"\n[head]\nfamily = "detr"\n[classes]\npreset = "coco80"\n', [640, 480],
     [("labels", "i64", c[None]), ("boxes", "f32", b[None]), ("scores", "f32", s[None])],
     [(*b[i], s[i], c[i]) for i in range(20) if s[i] > 0.4], 0.4)
# ultralytics models/rtdetr/predict.py: bboxes, scores = split((4, nd - 4)); the best class of a query
s, boxes = scores(25, 4, 0.2), detr_boxes(25)
box = xywh2xyxy(boxes.astype(np.float64)) * np.array([640, 480, 640, 480])
case("rt-detr of ultralytics", '[head]\nfamily = "detr"\n' + names(4), [640, 480], [("output0", "f32", np.concatenate([boxes, s], 1)[None])],
     [(*b, r.max(), r.argmax()) for b, r in zip(box, s) if r.max() > 0.25], 0.25)


# --- CenterNet: xingyizhou/CenterNet src/lib/models/decode.py, ctdet_decode, without its top K --------------------------------
def centernet(hm, wh, reg, thr):
    hm = sigmoid(hm)
    padded = np.pad(hm, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    c, h, w = hm.shape
    peak = np.max([padded[:, y:y + h, x:x + w] for y in range(3) for x in range(3)], 0)
    found = []
    for k, y, x in zip(*np.where((peak == hm) & (hm > thr))):
        cx, cy = (x + reg[0, y, x], y + reg[1, y, x]) if reg is not None else (x + 0.5, y + 0.5)
        bw, bh = wh[0, y, x], wh[1, y, x]
        found.append((*(4 * np.array([cx - bw / 2, cy - bh / 2, cx + bw / 2, cy + bh / 2], np.float64)), hm[k, y, x], k))
    return found


hm = rounded(rng.standard_normal((3, 12, 16)) * 1.5 - 1)
wh, reg = rounded(rng.random((2, 12, 16)) * 8, 3), rounded(rng.random((2, 12, 16)), 3)
style = '[head]\nfamily = "heatmap"\nstyle = "centernet"\n'
case("centernet", style + names(3), [64, 48],
     [("hm", "f32", hm[None]), ("wh", "f32", wh[None]), ("reg", "f32", reg[None])], centernet(hm, wh, reg, 0.3), 0.3)
case("centernet without offsets", style + names(3), [64, 48], [("hm", "f32", hm[None]), ("wh", "f32", wh[None])], centernet(hm, wh, None, 0.3), 0.3)


# --- CenterFace: Star-Clouds/CenterFace prj-python/centerface.py, decode ------------------------------------------------------
def centerface(heat, scale, offset, lms, w, h, thr):
    found, points = [], []
    for y, x in zip(*np.where(heat[0] > thr)):
        s0, s1 = np.exp(float(scale[0, y, x])) * 4, np.exp(float(scale[1, y, x])) * 4
        o0, o1 = float(offset[0, y, x]), float(offset[1, y, x])
        x1, y1 = max(0, (x + o1 + 0.5) * 4 - s1 / 2), max(0, (y + o0 + 0.5) * 4 - s0 / 2)
        x1, y1 = min(x1, w), min(y1, h)
        found.append((x1, y1, min(x1 + s1, w), min(y1 + s0, h), heat[0, y, x], 0))
        points.append([(lms[2 * j + 1, y, x] * s1 + x1, lms[2 * j, y, x] * s0 + y1) for j in range(5)])
    return found, points


heat = scores(12 * 16, 1, 0.1).reshape(1, 12, 16)
scale, offset = rounded(rng.standard_normal((2, 12, 16))), rounded(rng.random((2, 12, 16)), 3)
lms = rounded(rng.random((10, 12, 16)), 3)
found, points = centerface(heat, scale, offset, lms, 64, 48, 0.35)
case("centerface", '[head]\nfamily = "heatmap"\nstyle = "centerface"\n' + names(1), [64, 48],
     [(n, "f32", a[None]) for n, a in zip(("537", "538", "539", "540"), (heat, scale, offset, lms))], found, 0.35, points, centerface_nms(0.3))

# --- Classifiers ------------------------------------------------------------------------------------------------------------
logits = rounded(rng.standard_normal(12) * 2)
for name, raw, prob, option, shape in [
    ("classifier of logits", logits, softmax(logits), "", (1, 12)),
    ("classifier of probabilities", rounded(softmax(logits), 7), rounded(softmax(logits), 7), "", (1, 12, 1, 1)),
    ("classifier of many labels", logits, sigmoid(logits), 'activation = "sigmoid"', (1, 12)),
]:
    case(name, f'[head]\nfamily = "classifier"\n{option}\n' + names(12), [224, 224], [("logits", "f32", raw.reshape(shape))],
         sorted([(0, 0, 0, 0, p, k) for k, p in enumerate(prob) if p > 0.05], key=lambda e: -e[4]), 0.05)
prob = softmax(logits)
case("classifier with a background", '[head]\nfamily = "classifier"\nbackground = "first"\n' + names(11), [224, 224],
     [("logits", "f32", logits[None])], [(0, 0, 0, 0, p, k - 1) for k, p in enumerate(prob) if p > 0.02 and k > 0], 0.02)


# --- BlazeFace: MediaPipe ssd_anchors_calculator.cc (fixed_anchor_size) and tensors_to_detections_calculator.cc ----------------
def mediapipe_anchors(w, h, strides, interpolated):
    anchors, layer = [], 0
    while layer < len(strides):
        last, boxes = layer, 0
        while last < len(strides) and strides[last] == strides[layer]:
            boxes += 1 + interpolated
            last += 1
        rows, columns = math.ceil(h / strides[layer]), math.ceil(w / strides[layer])
        anchors += [((x + 0.5) / columns, (y + 0.5) / rows) for y in range(rows) for x in range(columns) for _ in range(boxes)]
        layer = last
    return np.array(anchors)


def blazeface(logits, raw, w, h, strides, interpolated, thr):
    p = sigmoid(np.clip(logits[:, 0].astype(np.float64), -100, 100))
    found, points = [], []
    for i, (ax, ay) in enumerate(mediapipe_anchors(w, h, strides, interpolated)):
        cx, cy, bw, bh = raw[i, 0] / w + ax, raw[i, 1] / h + ay, raw[i, 2] / w, raw[i, 3] / h
        if p[i] < thr or bw < 0 or bh < 0:
            continue
        found.append(((cx - bw / 2) * w, (cy - bh / 2) * h, (cx + bw / 2) * w, (cy + bh / 2) * h, p[i], 0))
        points.append([((raw[i, j] / w + ax) * w, (raw[i, j + 1] / h + ay) * h) for j in range(4, raw.shape[1], 2)])
    return found, points


def blazeface_rows(n, values, w):
    logits, raw = rng.standard_normal((n, 1)) * 3 - 5, rng.standard_normal((n, values)) * w / 8
    logits[rng.integers(0, n)] = 150
    raw[:, 2:4] = 2 + rng.random((n, 2)) * w / 3
    hot = np.flatnonzero(logits[:, 0] > 0)
    raw[hot[0], 3] = -1
    # Values that do not count are shortened.
    raw[logits[:, 0] < -1] = 0
    return rounded(logits, 3), rounded(raw, 2)


face = '[head]\nfamily = "blazeface"\n[classes]\nnames = ["face"]\n'
logits, raw = blazeface_rows(896, 16, 128)
found, points = blazeface(logits, raw, 128, 128, [8, 16, 16, 16], 1, 0.5)
case("blazeface front, four outputs", face, [128, 128],
     [("Identity:0", "f32", logits[None, :512]), ("Identity_1:0", "f32", logits[None, 512:]),
      ("Identity_2:0", "f32", raw[None, :512]), ("Identity_3:0", "f32", raw[None, 512:])], found, 0.5, points, mediapipe_nms(0.3))
logits, raw = blazeface_rows(896, 16, 256)
found, points = blazeface(logits, raw, 256, 256, [16, 32, 32, 32], 1, 0.5)
case("blazeface back, two outputs", face, [256, 256], [("regressors", "f32", raw[None]), ("classificators", "f32", logits[None])],
     found, 0.5, points, mediapipe_nms(0.3))
for name, (w, h), strides, interpolated, values in [("full range", (24, 24), [4], 0, 16), ("pose, sides that strides do not divide", (70, 52), [8, 16, 32, 32, 32], 1, 12)]:
    logits, raw = blazeface_rows(len(mediapipe_anchors(w, h, strides, interpolated)), values, w)
    found, points = blazeface(logits, raw, w, h, strides, interpolated, 0.3)
    case(f"mediapipe {name}", face.replace("[classes]", f"strides = {strides}\n[classes]"), [w, h],
         [("regressors", "f32", raw[None]), ("classificators", "f32", logits[None])], found, 0.3, points, mediapipe_nms(0.3))

# --- Crowds: many boxes of each object, and more objects than some families' limits -------------------------------------------
def crowd(columns, lines, step, classes):
    """Boxes cx cy w h of a grid of objects, some of which have several or overlap their neighbours."""
    x, y = np.meshgrid(step * (0.5 + np.arange(columns)), step * (0.5 + np.arange(lines)))
    one = np.stack([x.ravel(), y.ravel(), *(step * (0.6 + 0.8 * rng.random((2, columns * lines))))], 1)
    more = np.repeat(one[::8], 2, 0)
    more[:, :2] += step / 5 * rng.standard_normal((len(more), 2))
    boxes = np.concatenate([one, more])
    found = 0.3 + 0.69 * rng.random(len(boxes))
    return rounded(boxes, 1), rounded(np.where(rng.integers(0, classes, (len(boxes), 1)) == np.arange(classes), found[:, None], 0.05), 3)


boxes, s = crowd(20, 17, 20, 2)
p = np.concatenate([boxes, s], 1)
found = yolov8(p, 2, 0.25)[0]
assert len(batched_nms(0.7, 10000)(found, None)[0]) > 300
case("yolov8, a crowd", '[head]\nfamily = "yolov8"\n' + names(2), [400, 340], [("output0", "f32", p.T[None].copy())], found, 0.25,
     nms=batched_nms(0.7, 300))
p = np.concatenate([boxes, np.full((len(boxes), 1), 0.96875, np.float32), s], 1)
for family, option, found in [("yolov5", "", yolov5(p, 2, 0.27)), ("yolox", "decoded = true", yolox(p.astype(np.float64), 2, 0.27))]:
    assert 300 < len(batched_nms(0.45, 10000)(found, None)[0]) < 1000
    case(f"{family}, a crowd", f'[head]\nfamily = "{family}"\n{option}\n' + names(2), [400, 340], [("output", "f32", p[None])],
         found, 0.27, nms=batched_nms(0.45, 1000))
# A crowd of faces of a few pixels: the pixel that CenterFace adds to their sides counts.
heat = np.where(rng.random((1, 24, 32)) < 0.35, rounded(0.4 + 0.5 * rng.random((1, 24, 32))), np.float32(0))
scale, offset = rounded(np.log(0.8 + 1.4 * rng.random((2, 24, 32))), 2), rounded(rng.random((2, 24, 32)) * 0.5, 1)
found = centerface(heat, scale, offset, np.zeros((10, 24, 32)), 128, 96, 0.35)[0]
kept = centerface_nms(0.3)(found, None)[0]
assert 100 < len(kept) < len(batched_nms(0.3, 1000)(found, None)[0]) - 10
case("centerface, a crowd", '[head]\nfamily = "heatmap"\nstyle = "centerface"\n' + names(1), [128, 96],
     [(n, "f32", a[None]) for n, a in zip(("535", "536", "537"), (heat, scale, offset))], found, 0.35, nms=centerface_nms(0.3))
# One face that several anchors found.
logits, raw = np.full((896, 1), -9.0), np.zeros((896, 16))
for cell in range(0, 256, 17):
    for anchor in (2 * cell, 2 * cell + 1, 2 * cell + 2):
        logits[anchor] = 3 * rng.random()
        raw[anchor] = [*(2 * rng.standard_normal(2)), *(22 + 6 * rng.random(2)), *(8 * rng.standard_normal(12))]
logits, raw = rounded(logits, 3), rounded(raw, 2)
found, points = blazeface(logits, raw, 128, 128, [8, 16, 16, 16], 1, 0.5)
case("blazeface, several boxes of a face", face, [128, 128],
     [("regressors", "f32", raw[None]), ("classificators", "f32", logits[None])], found, 0.5, points, mediapipe_nms(0.3))
# NanoDet clips to its input before the suppression: these pairs overlap too much only then, or no longer.
rows = nanodet_rows(64, 64, [16])
cls, reg = np.full((rows, 1), 0.01, np.float32), rounded(rng.standard_normal((rows, 32)) * 4, 3)
cls[:, 0] = rounded(0.4 + 0.5 * rng.random(rows))
found = nanodet(cls, reg, 64, 64, [16], 7, 0.35, 0.5)
case("nanodet at the edges", '[head]\nfamily = "nanodet"\nstrides = [16]\n' + names(1), [64, 64],
     [("output", "f32", np.concatenate([cls, reg], 1)[None])], found, 0.35, nms=batched_nms(0.6, 100))

rows = nanodet_rows(64, 64, [8, 16])
cls, reg = rounded(0.8 * rng.random((rows, 3))), rounded(rng.standard_normal((rows, 32)) * 2, 3)
for best in (False, True):
    head = '[head]\nfamily = "nanodet"\nstrides = [8, 16]\n' + ("multi_label = false\n" if best else "")
    case("nanodet, boxes of several classes" + (", the best" if best else ""), head + names(3), [64, 64],
         [("output", "f32", np.concatenate([cls, reg], 1)[None])],
         nanodet(cls, reg, 64, 64, [8, 16], 7, 0.6, 0.5, best), 0.6, nms=batched_nms(0.6, 100))

# --- Oriented boxes: OBB in ultralytics nn/modules/head.py appends the angle; the rows of postprocess there and of NMSModel in
# engine/exporter.py are centre, size, score, class, angle. utils/nms.py suppresses with rotated=True.
def oriented_rows(objects, nc):
    """Ten boxes for each object, as [x, y, w, h, scores, angle]."""
    one = np.concatenate([rng.uniform(20, 600, (objects, 2)), rng.uniform(8, 120, (objects, 2)), rng.uniform(-0.78, 2.35, (objects, 1))], 1)
    near = np.repeat(one, 10, 0) + rng.normal(0, 1, (10 * objects, 5)) * [3, 3, 4, 4, 0.1]
    near[:, 2:4] = np.maximum(near[:, 2:4], 2)
    return rounded(np.concatenate([near[:, :4], scores(10 * objects, nc, 0.5), near[:, 4:]], 1))


p = oriented_rows(20, 3)
found = yolov8(p, 3, 0.25)[0]
angles = [float(row[7]) for row in p if row[4:7].max() > 0.25]
card = '[head]\nfamily = "yolov8"\noriented = true\n' + names(3)
for name, output in (("oriented", np.ascontiguousarray(p.T[None])), ("oriented in rows", p[None])):
    case(name, card, [640, 480], [("output0", "f32", output)], found, 0.25, nms=oriented_nms(0.7, 300), angles=angles)
p = oriented_rows(3, 1)
rows = np.concatenate([p[:, :5], rng.integers(0, 15, (30, 1)).astype(np.float32), p[:, 5:]], 1)
rows[25:] = 0
keep = rows[rows[:, 4] > 0.25].astype(np.float64)
case("oriented end to end", '[head]\nfamily = "yolo-nms"\noriented = true\n', [640, 640], [("output0", "f32", rows[None])],
     [(*box, r[4], r[5]) for box, r in zip(xywh2xyxy(keep[:, :4]), keep)], 0.25, angles=[float(r[6]) for r in keep])


# --- MoveNet: tensorflow/examples lite/examples/pose_estimation/raspberry_pi ------------------------------------------------------
def movenet(rows, w, h, thr):
    """ml/movenet_multipose.py, _postprocess; for rows without a box and a score data.py, person_from_keypoints_with_scores, with
    the box around the points that count there for the score."""
    found, points = [], []
    for row in np.asarray(rows, np.float64):
        y, x, s = row[:51].reshape(17, 3).T
        if len(row) == 56:
            (top, left, bottom, right), score = row[51:55], row[55]
        else:
            counted = s > 0.1
            if not counted.any():
                continue
            top, left, bottom, right = y[counted].min(), x[counted].min(), y[counted].max(), x[counted].max()
            score = np.average(s[counted])
        if score >= thr:
            found.append((left * w, top * h, right * w, bottom * h, score, 0))
            points.append(list(np.stack([x * w, y * h, s], 1)))
    return found, points


body = '[head]\nfamily = "movenet"\n[classes]\nnames = ["person"]\n'
rows = rounded(rng.random((6, 56)))
rows[:, 55] = [0.9, 0.5, 0.12, 0.1, 0.05, 0.3]
found, points = movenet(rows, 256, 192, 0.11)
case("movenet of several", body, [256, 192], [("output_0", "f32", rows[None])], found, 0.11, points)
# One body, four of whose points are guesses at the edge.
one = rounded(0.2 + 0.5 * rng.random((17, 3)))
one[13:] = [0.999, 0.001, 0.05]
found, points = movenet(one.reshape(1, 51), 192, 192, 0.11)
case("movenet of one", body, [192, 192], [("output_0", "f32", one[None, None])], found, 0.11, points, least=1)


# --- TTFNet: ZJULearning/ttfnet mmdet/models/anchor_heads/ttf_head.py, get_bboxes, without its top K ---------------------------
def ttfnet(hm, wh, thr):
    found = centernet(hm, wh[:2], None, thr)
    cells = [(round(((x1 + x2) / 2 / 4) - 0.5), round(((y1 + y2) / 2 / 4) - 0.5)) for x1, y1, x2, y2, *_ in found]
    return [(4 * x - wh[0, y, x], 4 * y - wh[1, y, x], 4 * x + wh[2, y, x], 4 * y + wh[3, y, x], *told)
            for (x, y), (*_, score, k) in zip(cells, found) for told in [(score, k)]]


rng = np.random.default_rng(20261125)
hm, wh = rounded(rng.standard_normal((3, 12, 16)) * 1.5 - 1), rounded(rng.random((4, 12, 16)) * 30, 3)
case("ttfnet", '[head]\nfamily = "heatmap"\nstyle = "ttfnet"\n' + names(3), [64, 48], [("hm", "f32", hm[None]), ("wh", "f32", wh[None])],
     ttfnet(hm, wh, 0.3), 0.3)

# --- Rows in other orders, and rows among which only a class was chosen -------------------------------------------------------
def chosen(columns, nms=None):
    """Rows of `columns`, as PaddleDetection's multiclass_nms3 (label, score, box), super_gradients' flat predictions (batch, box, score,
    label), PINTO_model_zoo's batchno_classid_score_x1y1x2y2 and DeepStream-Yolo (box, score, label) have them."""
    rows = 3 * 12
    box = np.repeat(corner_boxes(12, 640, 480), 3, 0) + rounded(rng.normal(0, 2, (rows, 4)), 2)
    number = {"batch": np.zeros(rows), "_": rounded(rng.random(rows)), "score": scores(rows, 1, 0.6)[:, 0],
              "class": np.repeat(rng.integers(0, 3, 12), 3)} | dict(zip(("x1", "y1", "x2", "y2"), box.T))
    p = np.stack([number[c] for c in columns], 1).astype(np.float32)
    at = [columns.index(c) for c in ("x1", "y1", "x2", "y2", "score", "class")]
    return p, [tuple(r[at]) for r in p.astype(np.float64) if r[at[4]] > 0.25]


rng = np.random.default_rng(20261128)
BOX = ["x1", "y1", "x2", "y2"]
for name, columns, batch in [
    ("paddle", ["class", "score", *BOX], False),
    ("yolo-nas flat", ["batch", *BOX, "score", "class"], False),
    ("pinto", ["batch", "class", "score", *BOX], False),
    ("pinto with the score last", ["batch", "class", *BOX, "score"], False),
    ("y first, and one that is not read", ["_", "y1", "x1", "y2", "x2", "class", "score"], True),
]:
    p, found = chosen(columns)
    card = f'[head]\nfamily = "yolo-nms"\ncolumns = {json.dumps(columns)}\n' + names(3)
    case(f"columns of {name}", card, [640, 480], [("output", "f32", p[None] if batch else p)], found, 0.25)
p, found = chosen([*BOX, "score", "class"])
card = '[head]\nfamily = "yolo-nms"\nnms = true\n' + names(3)
case("best classes in rows", card, [640, 480], [("output", "f32", p[None])], found, 0.25, nms=batched_nms(0.7, 300))
# Boxes, scores and classes in outputs of their own: Qualcomm AI Hub; DeepStream-Yolo of 2023 has [1, N, 1] of scores and classes.
for name, last in [("Qualcomm AI Hub", ()), ("DeepStream-Yolo 2023", (1,))]:
    p, found = chosen([*BOX, "score", "class"])
    column = lambda at, dtype: p[:, at].reshape(1, -1, *last).astype(dtype)
    case(f"best classes of {name}", card, [640, 480],
         [("boxes", "f32", p[None, :, :4]), ("scores", "f32", column(4, np.float32)), ("classes", "i32", column(5, np.int32))],
         found, 0.25, nms=batched_nms(0.7, 300))
# open-mmlab/mmdeploy and OpenVINO's training extensions: dets [1, N, 5] with the score, labels [1, N].
p, found = chosen([*BOX, "score", "class"])
outputs = [("dets", "f32", p[None, :, :5]), ("labels", "i64", p[None, :, 5].astype(np.int64))]
case("mmdeploy", '[head]\nfamily = "yolo-nms"\n' + names(3), [640, 480], outputs, found, 0.25)
case("ssd of mmdeploy", '[head]\nfamily = "ssd"\n' + names(3), [640, 480], outputs, found, 0.25)

# --- Faces with landmarks on grids --------------------------------------------------------------------------------------------
# Each function is written in numpy after the code of the project that it names, of which nothing is copied.
def faces_nms(iou):
    """SCRFD.nms of insightface model_zoo/scrfd.py, py_cpu_nms of Pytorch_Retinaface: sides are one pixel longer."""
    def run(found, points):
        order, kept = sorted(range(len(found)), key=lambda i: -found[i][4]), []
        while order:
            best = order.pop(0)
            kept.append(best)
            order = [i for i in order if overlap(found[best], found[i], iou, 1) <= iou]
        return [found[k] for k in kept], points and [points[k] for k in kept]
    return run


def found_faces(score, box, kps, thr):
    """Boxes [N, 4] and points [N, 10] of which those stay whose score passes."""
    hot = np.flatnonzero(score >= thr)
    return [(*box[i], score[i], 0) for i in hot], None if kps is None else [list(kps[i].reshape(-1, 2)) for i in hot]


def scrfd(levels, w, h, thr, anchors):
    """deepinsight/insightface python-package/insightface/model_zoo/scrfd.py, forward; levels: (stride, scores, boxes, points)."""
    score, box, kps = [], [], []
    for stride, s, b, k in levels:
        centres = np.stack(np.mgrid[:h // stride, :w // stride][::-1], -1).reshape(-1, 2).astype(np.float64) * stride
        centres = np.repeat(centres, anchors, 0)
        b = b.astype(np.float64) * stride
        score.append(s[:, 0].astype(np.float64))
        box.append(np.concatenate([centres - b[:, :2], centres + b[:, 2:]], 1))
        if k is not None:
            kps.append((k.astype(np.float64) * stride).reshape(len(k), -1, 2) + centres[:, None])
    return found_faces(np.concatenate(score), np.concatenate(box), np.concatenate(kps) if kps else None, thr)


def scrfd_levels(w, h, strides, anchors, points, hot=0.15):
    for stride in strides:
        n = (w // stride) * (h // stride) * anchors
        yield (stride, scores(n, 1, hot), rounded(0.2 + 2 * rng.random((n, 4)), 3),
               rounded(rng.standard_normal((n, 10)), 3) if points else None)


FACES = '[head]\nfamily = "faces"\n'
levels = list(scrfd_levels(96, 64, [8, 16, 32], 2, True))
found, points = scrfd(levels, 96, 64, 0.5, 2)
# InsightFace's models have no batch dimension and name their outputs by numbers.
order = [a for part in (1, 2, 3) for a in (level[part] for level in levels)]
case("faces of scrfd", FACES + 'style = "scrfd"\n', [96, 64], [(str(443 + 3 * i), "f32", a) for i, a in enumerate(order)], found, 0.5, points,
     faces_nms(0.4))
# A batch dimension, in f16, in another order.
levels = [(s, *(a.astype(np.float16).astype(np.float32) for a in rest)) for s, *rest in scrfd_levels(64, 64, [8, 16, 32], 2, True)]
found, points = scrfd(levels, 64, 64, 0.5, 2)
shuffled = [(f"{part}_{level[0]}", "f16", level[1 + at][None]) for level in levels for at, part in reversed(list(enumerate(["score", "bbox", "kps"])))]
case("faces of scrfd, batched, grid by grid, in f16", FACES, [64, 64], shuffled, found, 0.5, points, faces_nms(0.4))
levels = list(scrfd_levels(128, 128, [8, 16, 32, 64, 128], 1, False))
found, _ = scrfd(levels, 128, 128, 0.5, 1)
case("faces of scrfd, five grids of one anchor without points", FACES + "strides = [8, 16, 32, 64, 128]\n", [128, 128],
     [(f"o{i}", "f32", a) for i, a in enumerate([level[part] for part in (1, 2) for level in levels])], found, 0.5, nms=faces_nms(0.4))


def yunet(levels, w, h, thr):
    """opencv/opencv modules/objdetect/src/face_detect.cpp, postProcess; levels: (stride, classes, objectness, boxes, points)."""
    found, points = [], []
    for stride, cls, obj, bbox, kps in levels:
        cols, rows = w // stride, h // stride
        for r in range(rows):
            for c in range(cols):
                i = r * cols + c
                score = math.sqrt(min(max(float(cls[i, 0]), 0), 1) * min(max(float(obj[i, 0]), 0), 1))
                if score < thr:
                    continue
                x, y, bw, bh = (float(v) for v in bbox[i])
                cx, cy, bw, bh = (c + x) * stride, (r + y) * stride, math.exp(bw) * stride, math.exp(bh) * stride
                x1, y1 = cx - bw / 2, cy - bh / 2
                found.append((x1, y1, x1 + bw, y1 + bh, score, 0))
                points.append([((float(kps[i, 2 * n]) + c) * stride, (float(kps[i, 2 * n + 1]) + r) * stride) for n in range(5)])
    return found, points


levels = []
for stride in (8, 16, 32):
    n = (96 // stride) * (64 // stride)
    levels.append((stride, scores(n, 1, 0.8), scores(n, 1, 0.8), rounded(rng.standard_normal((n, 4)) * 0.5 - [0, 0, 0.3, 0.3], 3),
                   rounded(rng.standard_normal((n, 10)), 3)))
# Beyond 0 to 1, as quantised models have them.
levels[0][1][5], levels[0][2][5], levels[0][1][6], levels[0][2][6] = 1.02, 0.64, -0.02, 0.9
found, points = yunet(levels, 96, 64, 0.45)
assert len(batched_nms(0.3, 1000)(found, None)[0]) > len(faces_nms(0.3)(found, None)[0])
case("faces of yunet", FACES + 'style = "yunet"\n', [96, 64],
     [(f"{part}_{level[0]}", "f32", level[1 + at][None]) for at, part in enumerate(["cls", "obj", "bbox", "kps"]) for level in levels], found, 0.45,
     points, batched_nms(0.3, 1000))


def retinaface(loc, conf, landms, w, h, steps, min_sizes, thr):
    """biubug6/Pytorch_Retinaface layers/functions/prior_box.py, PriorBox; utils/box_utils.py, decode and decode_landm; detect.py."""
    priors = []
    for step, sizes in zip(steps, min_sizes):
        for i in range(math.ceil(h / step)):
            for j in range(math.ceil(w / step)):
                priors += [((j + 0.5) * step / w, (i + 0.5) * step / h, size / w, size / h) for size in sizes]
    priors, loc, landms = np.array(priors), loc.astype(np.float64), landms.astype(np.float64)
    assert len(priors) == len(loc)
    variances = (0.1, 0.2)
    centre, size = priors[:, :2] + loc[:, :2] * variances[0] * priors[:, 2:], priors[:, 2:] * np.exp(loc[:, 2:] * variances[1])
    box = np.concatenate([centre - size / 2, centre + size / 2], 1) * [w, h, w, h]
    kps = priors[:, None, :2] + landms.reshape(-1, 5, 2) * variances[0] * priors[:, None, 2:]
    return found_faces(conf[:, 1].astype(np.float64), box, (kps * [w, h]).reshape(-1, 10), thr)


def retinaface_rows(w, h, steps, min_sizes):
    n = sum(math.ceil(w / s) * math.ceil(h / s) * len(sizes) for s, sizes in zip(steps, min_sizes))
    logits = rng.standard_normal((n, 2)) * 2 + [1.5, 0]
    return rounded(rng.standard_normal((n, 4)) * 2, 3), rounded(softmax(logits)), rounded(rng.standard_normal((n, 10)) * 4, 3)


sizes = [[16, 32], [64, 128], [256, 512]]
loc, conf, landms = retinaface_rows(100, 52, [8, 16, 32], sizes)
found, points = retinaface(loc, conf, landms, 100, 52, [8, 16, 32], sizes, 0.6)
case("faces of retinaface, sides that strides do not divide", FACES + 'style = "retinaface"\n', [100, 52],
     [("output0", "f32", loc[None]), ("586", "f32", conf[None]), ("585", "f32", landms[None])], found, 0.6, points, faces_nms(0.4))
# biubug6/Face-Detector-1MB-with-landmark data/config.py, cfg_slim: more prior boxes, decoded alike.
sizes = [[10, 16, 24], [32, 48], [64, 96], [128, 192, 256]]
loc, conf, landms = retinaface_rows(64, 64, [8, 16, 32, 64], sizes)
found, points = retinaface(loc, conf, landms, 64, 64, [8, 16, 32, 64], sizes, 0.6)
case("faces of retinaface, prior boxes of the card", FACES + f'style = "retinaface"\nstrides = [8, 16, 32, 64]\nmin_sizes = {sizes}\n', [64, 64],
     [("landms", "f32", landms[None]), ("conf", "f32", conf[None]), ("loc", "f32", loc[None])], found, 0.6, points, faces_nms(0.4))


# deepcam-cn/yolov5-face utils/general.py, non_max_suppression_face: points at 5 to 14, classes from 15 on.
p = np.concatenate([cxcywh(60, 320, 256), scores(60, 1, 0.6), rounded(rng.random((60, 10)) * 300, 2), scores(60, 1, 0.6)], 1)
found, points = [], []
for row in p[p[:, 4] > 0.3].astype(np.float64):
    conf = row[15:] * row[4]
    if conf.max() > 0.3:
        found.append((*xywh2xyxy(row[:4]), conf.max(), conf.argmax()))
        points.append(list(row[5:15].reshape(5, 2)))
case("yolov5 face", '[head]\nfamily = "yolov5"\nkeypoints = [5, 2]\n[classes]\nnames = ["face"]\n', [320, 256], [("output", "f32", p[None])],
     found, 0.3, points, batched_nms(0.45, 1000))
# WongKinYiu/yolov7, branch pose, utils/general.py, non_max_suppression with kpt_label: the score of the person at 5, then points.
for nc, each in [(1, 17), (2, 4)]:
    p = np.concatenate([cxcywh(50, 320, 256), scores(50, 1, 0.6), scores(50, nc, 0.6), rounded(rng.random((50, 3 * each)) * 300, 2)], 1)
    found, points = [], []
    for row in p[p[:, 4] > 0.3].astype(np.float64):
        conf = row[5:5 + nc] * row[4]
        if conf.max() > 0.3:
            found.append((*xywh2xyxy(row[:4]), conf.max(), conf.argmax()))
            points.append(list(row[5 + nc:].reshape(each, 3)))
    case(f"yolov5 pose of {each}", f'[head]\nfamily = "yolov5"\nkeypoints = [{each}, 3]\n' + names(nc), [320, 256], [("output", "f32", p[None])],
         found, 0.3, points, batched_nms(0.45, 1000))

# --- SSDs whose tables have other shapes ------------------------------------------------------------------------------------------
rng = np.random.default_rng(20261129)
# Tianxiaomo/pytorch-YOLOv4 tool/utils.py, post_processing: the class of the greatest score, where that is above the threshold, and
# `nms_cpu` class by class. Boxes are [1, N, 1, 4].
whole = np.array([320, 240, 320, 240])
norm, s = rounded(corner_boxes(60, 320, 240) / whole, 5), scores(60, 4, 0.3)
found = [(*(b * whole), r.max(), r.argmax()) for b, r in zip(norm.astype(np.float64), s.astype(np.float64)) if r.max() > 0.4]
case("ssd of pytorch-YOLOv4", '[head]\nfamily = "ssd"\nunit = "normalized"\nmulti_label = false\n' + names(4), [320, 240],
     [("boxes", "f32", norm[None, :, None]), ("confs", "f32", s[None])], found, 0.4, nms=batched_nms(0.5, 300))
# PaddleDetection ppdet/modeling/heads/ppyoloe_head.py, post_process with `exclude_nms`: boxes in pixels, scores [1, classes, N].
box, s = rounded(corner_boxes(60, 320, 240), 3), scores(60, 4, 0.3)
case("ssd of PaddleDetection", '[head]\nfamily = "ssd"\nunit = "pixels"\n' + names(4), [320, 240],
     [("tmp_17", "f32", box[None]), ("concat_14.tmp_0", "f32", s.T[None].copy())], multi_label(box.astype(np.float64), s, 0.4, 0), 0.4,
     nms=batched_nms(0.5, 300))


# --- DetectNet_v2: DeepStream nvdsinfer_custombboxparser.cpp, NvDsInferParseCustomResnet; its NMS is cluster-mode 2 ------------------
def detectnet(cov, bbox, w, h, thr):
    """Boxes are clipped to the whole input, not to its last pixel with one added to the sides."""
    found, (classes, lines, columns) = [], cov.shape
    stride, norm = -(-w // columns), 35.0
    centres = [np.array([(i * stride + 0.5) / norm for i in range(n)]) for n in (columns, lines)]
    for c, y, x in np.ndindex(classes, lines, columns):
        if cov[c, y, x] >= thr:
            left, top, right, bottom = bbox.astype(np.float64)[4 * c:4 * c + 4, y, x]
            corners = [(left - centres[0][x]) * -norm, (top - centres[1][y]) * -norm, (right + centres[0][x]) * norm,
                       (bottom + centres[1][y]) * norm]
            found.append((*np.clip(corners, 0, [w, h, w, h]), cov[c, y, x], c))
    return found


rng = np.random.default_rng(20261130)
cov, bbox = rounded(rng.random((3, 6, 8)) ** 4), rounded(rng.random((12, 6, 8)) * 1.5, 3)
case("detectnet", '[head]\nfamily = "heatmap"\nstyle = "detectnet"\n' + names(3), [128, 96],
     [("output_bbox/BiasAdd", "f32", bbox[None]), ("output_cov/Sigmoid", "f32", cov[None])], detectnet(cov, bbox, 128, 96, 0.4), 0.4,
     nms=batched_nms(0.5, 1000))


# --- FOMO: edge-impulse-sdk classifier/ei_fill_result_struct.h, fill_result_struct_f32_fomo ------------------------------------------
def fomo(data, w, h, thr):
    def overlaps(c, x, y, width, height, confidence):
        if c["x"] + c["width"] < x or c["y"] + c["height"] < y or c["x"] > x + width or c["y"] > y + height:
            return False
        if x < c["x"]:
            c["x"] = x
            c["width"] += c["x"] - x  # No detections, as in the original.
        if y < c["y"]:
            c["y"] = y
            c["height"] += c["y"] - y
        if x + width > c["x"] + c["width"]:
            c["width"] += (x + width) - (c["x"] + c["width"])
        if y + height > c["y"] + c["height"]:
            c["height"] += (y + height) - (c["y"] + c["height"])
        c["confidence"] = max(c["confidence"], confidence)
        return True

    cubes, boxes = [], []
    lines, columns, labels = data.shape
    for y, x, label in np.ndindex(lines, columns, labels - 1):
        v = float(data[y, x, label + 1])
        if v >= thr and not any(c["label"] == label and overlaps(c, x, y, 1, 1, v) for c in cubes):
            cubes.append(dict(x=x, y=y, width=1, height=1, confidence=v, label=label))
    for s in cubes:
        if not any(c["label"] == s["label"] and overlaps(c, s["x"], s["y"], s["width"], s["height"], s["confidence"]) for c in boxes):
            boxes.append(s)
    factor = w // columns
    return [(c["x"] * factor, c["y"] * factor, (c["x"] + c["width"]) * factor, (c["y"] + c["height"]) * factor, c["confidence"],
             c["label"]) for c in boxes]


rng = np.random.default_rng(20261131)
cells = rounded(softmax(rng.standard_normal((16, 24, 4)) * 2.5 + np.array([3, 0, 0, 0])))
found = fomo(cells, 192, 128, 0.5)
assert any(e[2] - e[0] > 8 for e in found) and any(e[2] - e[0] == 8 and e[3] - e[1] > 8 for e in found)
case("fomo", '[head]\nfamily = "fomo"\n' + names(3), [192, 128], [("StatefulPartitionedCall:0", "f32", cells[None])], found, 0.5)


# --- Darknet: AlexeyAB/darknet src/yolo_layer.c, forward_yolo_layer, get_yolo_box, get_yolo_detections; src/region_layer.c --------------
def darknet(maps, anchors, scales, w, h, thr, act):
    """Maps of the smallest cells first; `anchors` in pixels of the input."""
    found, each = [], len(anchors) // len(maps)
    for level, (m, scale) in enumerate(zip(maps, scales)):
        _, lines, columns = m.shape
        x = m.astype(np.float64).reshape(each, -1, lines, columns)
        for a, i, j in np.ndindex(each, lines, columns):
            p, biases = x[a, :, i, j], anchors[level * each + a]
            objectness = sigmoid(p[4])
            if objectness <= thr:
                continue
            bx = (j + sigmoid(p[0]) * scale - 0.5 * (scale - 1)) / columns
            by = (i + sigmoid(p[1]) * scale - 0.5 * (scale - 1)) / lines
            bw, bh = math.exp(p[2]) * biases[0] / w, math.exp(p[3]) * biases[1] / h
            for k, prob in enumerate(objectness * act(p[5:])):
                if prob > thr:
                    found.append(((bx - bw / 2) * w, (by - bh / 2) * h, (bx + bw / 2) * w, (by + bh / 2) * h, prob, k))
    return found


rng = np.random.default_rng(20261132)
for name, anchors, scales, sizes, extra, act in [
    ("darknet's YOLOv3", [(10, 13), (16, 30), (33, 23), (30, 61), (62, 45), (59, 119), (116, 90), (156, 198), (373, 326)], [1, 1, 1],
     [(8, 12), (4, 6), (2, 3)], "", sigmoid),
    ("darknet's YOLOv4-tiny", [(23, 27), (37, 58), (81, 82), (81, 82), (135, 169), (344, 319)], [1.2, 1.05], [(4, 6), (2, 3)],
     "scale_x_y = [1.2, 1.05]\n", sigmoid),
    ("darknet's YOLOv2", [(18.34, 21.66), (59.84, 65.92), (106.88, 175.04), (252.16, 112.96), (312.64, 293.44)], [1], [(4, 6)],
     'activation = "softmax"\n', softmax),
]:
    each = len(anchors) // len(sizes)
    maps = [rounded(rng.standard_normal((each * 8, *size)) * 1.5, 3) for size in sizes]
    found = darknet(maps, anchors, scales, 96, 64, 0.55, act)
    ordered = sorted((e[5], e[4]) for e in found)
    assert all(a[0] != b[0] or b[1] - a[1] > 2e-5 for a, b in zip(ordered, ordered[1:])), "scores too close to tell boxes apart"
    card = f'[head]\nfamily = "darknet"\nanchors = {json.dumps([side for pair in anchors for side in pair])}\n{extra}' + names(3)
    # The exporters of Darknet write the grid of the largest cells first.
    outputs = [(f"{i}_convolutional", "f32", m[None]) for i, m in enumerate(maps)][::-1]
    case(name.replace("darknet's", "darknet:"), card, [96, 64], outputs, found, 0.55, nms=batched_nms(0.45, 1000))


# --- Rows with the background among their classes ---------------------------------------------------------------------------------
def detection_output(rows, w, h, thr, first):
    """weiliu89/caffe (ssd) src/caffe/layers/detection_output_layer.cpp, Forward_cpu: picture, label, score, left, top, right, bottom as
    fractions; the rows of a batch without a detection are -1. Its labels count from 1, since 0 is `background_label_id`;
    NvDsInferParseCustomNMSTLT of NVIDIA-AI-IOT/deepstream_tao_apps takes the same rows, and their labels as they are."""
    return [(r[3] * w, r[4] * h, r[5] * w, r[6] * h, r[2], r[1] - first) for r in rows.astype(np.float64) if r[0] >= 0 and r[2] > thr]


rng = np.random.default_rng(20261133)
DETECTION_OUTPUT = '[head]\nfamily = "yolo-nms"\nunit = "normalized"\ncolumns = ["batch", "class", "score", "x1", "y1", "x2", "y2"]\n'
for name, first, option in [("caffe", 1, 'background = "first"\n'), ("tao", 0, "")]:
    box = rounded(corner_boxes(20, 320, 240) / [320, 240, 320, 240], 5)
    rows = np.concatenate([np.zeros((20, 1)), first + rng.integers(0, 3, (20, 1)), scores(20, 1, 0.6), box], 1).astype(np.float32)
    rows[15:] = [-1, -1, 0, 0, 0, 0, 0] if name == "tao" else -1
    case(f"detection output of {name}", DETECTION_OUTPUT + option + names(3), [320, 240], [("out", "f32", rows[None, None])],
         detection_output(rows, 320, 240, 0.25, first), 0.25)
# google/automl efficientdet/tf2/postprocess.py, generate_detections_from_nms_output: the frame, top, left, bottom, right, score, and the
# class with CLASS_OFFSET, 1. efficientdet/inference.py, visualize_image_prediction, reads them.
box = corner_boxes(20, 512, 512)
rows = np.concatenate([np.zeros((20, 1)), box[:, [1, 0, 3, 2]], scores(20, 1, 0.6), 1 + rng.integers(0, 3, (20, 1))], 1).astype(np.float32)
rows[15:] = 0
found = [(r[2], r[1], r[4], r[3], r[5], r[6] - 1) for r in rows.astype(np.float64) if r[5] > 0.25]
case("efficientdet of automl", '[head]\nfamily = "yolo-nms"\ncolumns = ["batch", "y1", "x1", "y2", "x2", "score", "class"]\n'
     'background = "first"\n' + names(3), [512, 512], [("detections", "f32", rows[None])], found, 0.25)


# --- YOLOs whose last layers a head of another family reads -----------------------------------------------------------------------
# ultralytics/yolov3 (archive) models.py, YOLOLayer and Darknet with ONNX_EXPORT: scores, and centres and sizes as fractions; utils.py,
# non_max_suppression with several labels a box.
norm, s = rounded(cxcywh(60, 320, 256) / [320, 256, 320, 256], 5), scores(60, 4, 0.3)
case("ssd of YOLOv3", '[head]\nfamily = "ssd"\nformat = "cxcywh"\nunit = "normalized"\n' + names(4), [320, 256],
     [("classes", "f32", s), ("boxes", "f32", norm)],
     multi_label(xywh2xyxy(norm.astype(np.float64)) * [320, 256, 320, 256], s, 0.4, 0), 0.4, nms=batched_nms(0.5, 300))
# qqwweee/keras-yolo3 yolo3/model.py, yolo_correct_boxes and yolo_boxes_and_scores, with the input's size as `image_shape`: top, left,
# bottom, right in pixels; scores are transposed in onnx/models' yolov3-10.
box, s = rounded(corner_boxes(60, 416, 416), 3), scores(60, 4, 0.3)
case("ssd of keras-yolo3", '[head]\nfamily = "ssd"\nformat = "yxyx"\nunit = "pixels"\n' + names(4), [416, 416],
     [("yolonms_layer_1/ExpandDims_1:0", "f32", box[None][:, :, [1, 0, 3, 2]]), ("yolonms_layer_1/ExpandDims_3:0", "f32", s.T[None].copy())],
     multi_label(box.astype(np.float64), s, 0.4, 0), 0.4, nms=batched_nms(0.5, 300))


def custom_vision(p, thr):
    """`_extract_bb` of the python/object_detection.py in Azure Custom Vision's exports: ANCHORS in cells, the softmax of the classes."""
    anchors = np.array([[0.573, 0.677], [1.87, 2.06], [3.34, 5.47], [7.88, 3.53], [9.77, 9.17]])
    lines, columns = p.shape[1:]
    o = p.astype(np.float64).transpose(1, 2, 0).reshape(lines, columns, 5, -1)
    x = (sigmoid(o[..., 0]) + np.arange(columns)[None, :, None]) / columns
    y = (sigmoid(o[..., 1]) + np.arange(lines)[:, None, None]) / lines
    w, h = np.exp(o[..., 2]) * anchors[:, 0] / columns, np.exp(o[..., 3]) * anchors[:, 1] / lines
    probs = softmax(o[..., 5:]) * sigmoid(o[..., 4])[..., None]
    size = [32 * columns, 32 * lines] * 2
    # In the order of the anchors, then of the cells.
    return [(*([(x - w / 2)[at], (y - h / 2)[at], (x + w / 2)[at], (y + h / 2)[at]] * np.array(size)), probs[at][k], k)
            for a in range(5) for at in ((i, j, a) for i in range(lines) for j in range(columns)) for k in range(probs.shape[-1])
            if probs[at][k] > thr]


p = rounded(rng.standard_normal((45, 4, 6)) * 1.5, 3)
anchors = [18.336, 21.664, 59.84, 65.92, 106.88, 175.04, 252.16, 112.96, 312.64, 293.44]
case("darknet of Custom Vision", f'[head]\nfamily = "darknet"\nactivation = "softmax"\nanchors = {anchors}\n' + names(4), [192, 128],
     [("model_outputs0", "f32", p[None])], custom_vision(p, 0.55), 0.55, nms=batched_nms(0.45, 1000))


def yolov5_layers(maps, anchors, w, h, thr):
    """ultralytics/yolov5 models/yolo.py, Detect.forward and _make_grid, then utils/general.py, non_max_suppression up to NMS."""
    found, each = [], len(anchors) // len(maps)
    for level, m in enumerate(maps):
        _, lines, columns, _ = m.shape
        stride = w // columns
        for a, i, j in np.ndindex(each, lines, columns):
            y = sigmoid(m[a, i, j])
            xy = (y[:2] * 2 + np.array([j, i]) - 0.5) * stride
            wh = (y[2:4] * 2) ** 2 * anchors[level * each + a]
            conf = y[5:] * y[4]
            if y[4] > thr and conf.max() > thr:
                found.append((*(xy - wh / 2), *(xy + wh / 2), conf.max(), conf.argmax()))
    return found


rng = np.random.default_rng(20261134)
anchors = [(10, 13), (16, 30), (33, 23), (30, 61), (62, 45), (59, 119), (116, 90), (156, 198), (373, 326)]
maps = [rounded(rng.standard_normal((3, *size, 8)) * 1.5, 3) for size in [(8, 12), (4, 6), (2, 3)]]
card = f'[head]\nfamily = "darknet"\nstyle = "yolov5"\nanchors = {json.dumps([side for pair in anchors for side in pair])}\n' + names(3)
case("darknet: layers of YOLOv5", card, [96, 64], [(n, "f32", m[None]) for n, m in zip(["output", "354", "366"], maps)],
     yolov5_layers(maps, anchors, 96, 64, 0.5), 0.5, nms=batched_nms(0.45, 1000))

# LibreYOLO/libreyolo libreyolo/models/yolo9/utils.py, postprocess: corners in columns, and every class that passes.
box, s = rounded(corner_boxes(60, 320, 256), 3), scores(60, 4, 0.3)
case("ssd of LibreYOLO's YOLOv9", '[head]\nfamily = "ssd"\nunit = "pixels"\n' + names(4), [320, 256],
     [("output", "f32", np.concatenate([box, s], 1).T[None].copy())], multi_label(box.astype(np.float64), s, 0.4, 0), 0.4,
     nms=batched_nms(0.5, 300))


def keras_cv(bins, s, w, h, thr):
    """keras_cv/models/object_detection/yolo_v8/yolo_v8_detector.py: get_anchors, decode_regression_to_boxes, dist2bbox, and the class of
    the greatest score as NonMaxSuppression takes it; boxes clipped to the picture as visiond does before NMS."""
    points = [((x + 0.5), (y + 0.5), stride) for stride in (8, 16, 32) for y in range(h // stride) for x in range(w // stride)]
    distances = (softmax(bins.astype(np.float64).reshape(-1, 4, 16)) * np.arange(16)).sum(-1)
    found = []
    for (x, y, stride), (left, top, right, bottom), row in zip(points, distances, s.astype(np.float64)):
        if row.max() > thr:
            found.append((*np.clip([(x - left) * stride, (y - top) * stride, (x + right) * stride, (y + bottom) * stride], 0,
                                   [w, h, w, h]), row.max(), row.argmax()))
    return found


count = 12 * 8 + 6 * 4 + 3 * 2
bins, s = rounded(rng.standard_normal((count, 64)) * 2, 3), scores(count, 3, 0.2)
case("nanodet of KerasCV's YOLOv8", '[head]\nfamily = "nanodet"\nreg_max = 15\nmulti_label = false\n' + names(3), [96, 64],
     [("boxes", "f32", bins[None]), ("classes", "f32", s[None])], keras_cv(bins, s, 96, 64, 0.4), 0.4, nms=batched_nms(0.6, 100))


def efficientdet(regression, classification, size, thr):
    """zylo117/Yet-Another-EfficientDet-Pytorch efficientdet/utils.py, Anchors, BBoxTransform and ClipBoxes; utils/utils.py, postprocess."""
    anchors = []
    for stride in (8, 16, 32, 64, 128):
        centres = np.arange(stride / 2, size, stride)
        xv, yv = (grid.reshape(-1) for grid in np.meshgrid(centres, centres))
        level = []
        for scale in (1.0, 2 ** (1 / 3), 2 ** (2 / 3)):
            for rx, ry in ((1.0, 1.0), (1.4, 0.7), (0.7, 1.4)):
                sx, sy = 4.0 * stride * scale * rx / 2, 4.0 * stride * scale * ry / 2
                level.append(np.stack([yv - sy, xv - sx, yv + sy, xv + sx], 1)[:, None])
        anchors.append(np.concatenate(level, 1).reshape(-1, 4))
    a, r = np.concatenate(anchors), regression.astype(np.float64)
    assert len(a) == len(r)
    ha, wa = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1]
    y, x = r[:, 0] * ha + (a[:, 0] + a[:, 2]) / 2, r[:, 1] * wa + (a[:, 1] + a[:, 3]) / 2
    h, w = np.exp(r[:, 2]) * ha, np.exp(r[:, 3]) * wa
    box = np.stack([np.maximum(x - w / 2, 0), np.maximum(y - h / 2, 0), np.minimum(x + w / 2, size), np.minimum(y + h / 2, size)], 1)
    return [(*b, row.max(), row.argmax()) for b, row in zip(box, classification.astype(np.float64)) if row.max() > thr]


count = 9 * (256 + 64 + 16 + 4 + 1)
regression = rounded(rng.standard_normal((count, 4)) * 0.3, 3)
classification = np.zeros((count, 3), np.float32)
hot = rng.permutation(count)[:60]
classification[hot] = scores(60, 3, 0.5)
# A box that lies outside the picture has no meaning after ClipBoxes.
outside = [e[4] for e in efficientdet(regression, classification, 128, 0.4) if e[2] <= e[0] or e[3] <= e[1]]
classification[[row.max() in [np.float32(score) for score in outside] for row in classification]] = 0
case("offsets of efficientdet", '[head]\nfamily = "ssd"\nanchors = "efficientdet"\nmulti_label = false\n' + names(3), [128, 128],
     [("regression", "f32", regression[None]), ("classification", "f32", classification[None])],
     efficientdet(regression, classification, 128, 0.4), 0.4, nms=batched_nms(0.5, 300))
# --- Poses: keypoints in an output of their own ---------------------------------------------------------------------------------------
# open-mmlab/mmdeploy codebase/mmpose/models/heads/rtmo_head.py, predict; Tau-J/rtmlib tools/pose_estimation/rtmo.py, postprocess:
# `dets` are corners and score, `keypoints` x, y and score of each; the model has run NMS.
rng = np.random.default_rng(20261201)
for each, unused in [(17, 2), (5, 0)]:
    dets = np.concatenate([corner_boxes(12, 640, 480), rounded(rng.random((12, 1)))], 1)
    dets[12 - unused:] = 0
    kps = rounded(rng.random((12, each, 3)) * [640, 480, 1], 3)
    hot = [i for i in range(12) if dets[i, 4] > 0.3]
    case(f"rtmo of {each}", f'[head]\nfamily = "yolo-nms"\nkeypoints = [{each}, 3]\n[classes]\nnames = ["person"]\n', [640, 480],
         [("dets", "f32", dets[None]), ("keypoints", "f32", kps[None])], [(*dets[i].astype(np.float64), 0) for i in hot], 0.3,
         [list(kps[i].astype(np.float64)) for i in hot])


# --- One person: open-mmlab/mmpose codecs/utils/post_processing.py, codecs/utils/refinement.py, evaluation/metrics/coco_metric.py ------
def whole(points, scores, thr):
    """The box around the points that count for the score in `compute_metrics` (keypoint_score_thr=0.2), and the mean of their scores,
    which may not pass 1 here."""
    scores = np.clip(scores, 0, 1)
    valid = scores > 0.2
    if not valid.any() or scores[valid].mean() < thr:
        return [], []
    box = (*points[valid].min(0), *points[valid].max(0))
    return [(*box, scores[valid].mean(), 0)], [list(np.concatenate([points, scores[:, None]], 1))]


def simcc(x, y, ratio):
    """get_simcc_maximum, and SimCCLabel.decode with its simcc_split_ratio."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    vals = np.minimum(x.max(1), y.max(1))
    locs = np.stack([x.argmax(1), y.argmax(1)], 1).astype(np.float64)
    locs[vals <= 0] = -1
    return locs / ratio, vals


def heat_maps(maps, w, h):
    """get_heatmap_maximum, refine_keypoints, and the scale_factor of MSRAHeatmap.decode."""
    maps = maps.astype(np.float64)
    k, lines, columns = maps.shape
    flat = maps.reshape(k, -1)
    vals = flat.max(1)
    locs = np.stack(np.unravel_index(flat.argmax(1), (lines, columns))[::-1], 1).astype(np.float64)
    locs[vals <= 0] = -1
    for i, (x, y) in enumerate(locs.astype(int)):
        dx = np.sign(maps[i, y, x + 1] - maps[i, y, x - 1]) if 1 < x < columns - 1 and 0 < y < lines else 0
        dy = np.sign(maps[i, y + 1, x] - maps[i, y - 1, x]) if 1 < y < lines - 1 and 0 < x < columns else 0
        locs[i] += 0.25 * np.array([dx, dy])
    return locs * [w / columns, h / lines], vals


rng = np.random.default_rng(20261202)
person = '[head]\nfamily = "pose"\n[classes]\nnames = ["person"]\n'
x, y = rounded(rng.random((17, 2 * 48)) * 0.9, 3), rounded(rng.random((17, 2 * 64)) * 0.9, 3)
# A place without a score, the first and the last place, a tie, and two points that do not count.
x[2], x[3, 0], y[3, 0], x[4, -1], y[4, -1], x[5, [7, 90]] = -0.1, 0.97, 0.98, 0.96, 0.99, 0.95
x[6], y[7] = rounded(x[6] * 0.15), rounded(y[7] * 0.2)
points, s = simcc(x, y, 2)
found, points = whole(points, s, 0.3)
case("pose of SimCC", person, [48, 64], [("simcc_x", "f32", x[None]), ("simcc_y", "f32", y[None])], found, 0.3, points, least=1)
case("pose of SimCC, y first", person, [48, 64], [("simcc_y", "f32", y[None]), ("simcc_x", "f32", x[None])], found, 0.3, points, least=1)
maps = rounded(rng.random((17, 16, 12)) * 0.6, 3)
peaks = [(0, 0), (11, 15), (1, 5), (2, 5), (10, 5), (9, 5), (5, 1), (5, 2), (5, 14), (5, 13), (0, 5), (11, 7), (7, 0), (7, 15), (6, 6)]
for i, (px, py) in enumerate(peaks):
    maps[i, py, px] = 0.7 + 0.02 * i
maps[1, 15, 11], maps[15], maps[16] = 1.03, -0.01, rounded(maps[16] * 0.2)
points, s = heat_maps(maps, 48, 64)
found, points = whole(points, s, 0.3)
case("pose of heat maps", person, [48, 64], [("output", "f32", maps[None])], found, 0.3, points, least=1)
half = maps.astype(np.float16).astype(np.float32)
points, s = heat_maps(half, 48, 64)
found, points = whole(points, s, 0.3)
case("pose of heat maps in f16", person, [48, 64], [("output", "f16", half[None])], found, 0.3, points, least=1)
# --- Rows with centre and size: ultralytics nn/modules/head.py, RTDETRDecoder.postprocess; models/rtdetr/predict.py -------------------
rng = np.random.default_rng(20261133)
p = np.concatenate([detr_boxes(30), scores(30, 1, 0.5), rng.integers(0, 3, (30, 1)).astype(np.float32)], 1)
box = xywh2xyxy(p[:, :4].astype(np.float64)) * np.array([640, 480, 640, 480])
for name, order in [("rt-detr", [0, 1, 2, 3, 4, 5]), ("another order", [5, 4, 0, 1, 2, 3])]:
    columns = json.dumps([("cx", "cy", "w", "h", "score", "class")[i] for i in order])
    case(f"columns of {name}, centre and size", f'[head]\nfamily = "yolo-nms"\nunit = "normalized"\ncolumns = {columns}\n' + names(3),
         [640, 480], [("output0", "f32", p[None][..., order].copy())], [(*b, r[4], r[5]) for b, r in zip(box, p) if r[4] > 0.25], 0.25)


def mit_yolo(grids, w, h, thr):
    """MultimediaTechLab/YOLO yolo/utils/bounding_box_utils.py, generate_anchors, Vec2Box and bbox_nms up to NMS; boxes clipped to the
    picture as visiond does before NMS."""
    found = []
    for stride, cls, vector in grids:
        for i, j in np.ndindex(h // stride, w // stride):
            x, y, row = j * stride + stride // 2, i * stride + stride // 2, sigmoid(cls[:, i, j])
            left, top, right, bottom = vector[:, i, j].astype(np.float64) * stride
            box = np.clip([x - left, y - top, x + right, y + bottom], 0, [w, h, w, h])
            found += [(*box, row[k], k) for k in range(len(row)) if row[k] > thr]
    return found


rng = np.random.default_rng(20261135)
grids = [(s, rounded(rng.standard_normal((3, 64 // s, 96 // s)) * 1.5 - 1.5, 3), rounded(0.2 + 3 * rng.random((4, 64 // s, 96 // s)), 3))
         for s in (8, 16, 32)]
outputs = []
# The auxiliary branch follows, with other numbers.
for branch in (0, 1):
    for s, cls, vector in grids:
        bins = rounded(rng.standard_normal((16, 4, *cls.shape[1:])), 2)
        outputs += [cls - 2 * branch, bins, vector + branch]
case("maps of MIT YOLO", '[head]\nfamily = "nanodet"\nreg_max = 0\nsigmoid = true\n' + names(3), [96, 64],
     [(f"output{i}", "f32", a[None].astype(np.float32)) for i, a in enumerate(outputs)], mit_yolo(grids, 96, 64, 0.5), 0.5,
     nms=batched_nms(0.6, 100))

path = pathlib.Path(__file__).with_name("heads.json")
path.write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in CASES) + "\n]\n")
print(f"{len(CASES)} cases, {path.stat().st_size} bytes")
