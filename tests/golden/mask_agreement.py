#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94, onnx 1.23.2, onnxruntime 1.31.1, pycocotools 2.0.11
"""Do visiond's masks equal the framework's? Uses a network of synthetic instances, and the framework's masks of its outputs.

    mask_agreement.py [--visiond BIN] [--backend NAME] [--seed N] [--head HEAD]

The network has the outputs and metadata of YOLOv8-seg at 640 (or of an export with NMS inside, `--head end-to-end`, or of
YOLOv5-seg, `--head yolov5`): 30 instances whose numbers are constants of the graph, 32 prototypes of 160 x 160. Or each instance
has a plane of its own: logits of 160 x 160, as RF-DETR-seg has them (`--head rf-detr`), or probabilities of 640 x 640 outside
any box 0, as torchvision's Mask R-CNN has them (`--head mask-rcnn`). It runs on pictures of many sizes, so that the letterbox
differs, until there are more than 1,000 instances.

The script computes the expected masks itself, by the formulas of `process_mask_native` and `scale_masks` of ultralytics 8.4.190 `utils/ops.py`
(`retina_masks=True`, the way that gives masks in pixels of the picture) and of `PostProcess.forward` of rfdetr 1.4.0
`models/lwdetr.py`: interpolated to the picture, above 0. torchvision leaves to its user what becomes of the masks if the network
saw a resized picture; here they are interpolated in the same way. OpenCV's INTER_LINEAR on floats is PyTorch's bilinear interpolation.

Prints the least IoU and the largest difference of area, of the run lengths and of the polygons. Status 1 if a mask has an IoU below
0.99, an area that differs by more than 0.5 % and a pixel, or a polygon an IoU below 0.98.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import cv2
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from pycocotools import mask as coco

SIDE, CELLS, CHANNELS, ROWS, FOUND, CLASSES = 640, 160, 32, 8400, 30, 80
# Width and height: landscapes, portraits, a square, odd ones, small and large.
SIZES = [(768, 576), (1280, 720), (1920, 1080), (1080, 1920), (640, 640), (641, 359), (333, 500), (97, 211), (3840, 2160), (500, 499)]
EACH = 4


def made_up(random):
    """Boxes as centre and size in pixels of the input, coefficients and prototypes: smooth, as trained ones are."""
    centre = random.uniform(150, SIDE - 150, (FOUND, 2))
    size = random.uniform(8, 280, (FOUND, 2))
    coarse = random.normal(0, 1, (CHANNELS, 20, 20)).astype(np.float32)
    prototypes = np.stack([cv2.resize(plane, (CELLS, CELLS), interpolation=cv2.INTER_CUBIC) for plane in coarse])
    coefficients = random.normal(0, 0.6, (FOUND, CHANNELS)).astype(np.float32)
    return np.hstack([centre, size]).astype(np.float32), coefficients, prototypes


def network_of_planes(path, head, boxes, planes):
    """Writes a network with a plane for each instance, and its card."""
    scores = np.linspace(0.9, 0.5, FOUND, dtype=np.float32)
    if head == "rf-detr":
        logits = np.full((FOUND, CLASSES), -9, np.float32)
        logits[range(FOUND), range(FOUND)] = np.log(scores / (1 - scores))
        outputs = {"dets": boxes[None] / SIDE, "labels": logits[None], "masks": planes[None]}
    else:
        outputs = {"boxes": corners(boxes), "labels": np.arange(FOUND), "scores": scores, "masks": planes[:, None]}
    nodes, values, constants = [helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0)], [], []
    for name, number in outputs.items():
        # A sum that does not depend on the image, in the type of the output.
        dtype = TensorProto.INT64 if number.dtype == np.int64 else TensorProto.FLOAT
        constants += [numpy_helper.from_array(np.asarray(0, np.float32), f"{name}_zero"), numpy_helper.from_array(number, f"{name}_is")]
        nodes.append(helper.make_node("Mul", ["mean", f"{name}_zero"], [f"{name}_nothing"]))
        nodes.append(helper.make_node("Cast", [f"{name}_nothing"], [f"{name}_typed"], to=dtype))
        nodes.append(helper.make_node("Add", [f"{name}_is", f"{name}_typed"], [name]))
        values.append(helper.make_tensor_value_info(name, dtype, number.shape))
    picture = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, SIDE, SIDE])
    graph = helper.make_graph(nodes, "segment", [picture], values, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    family = "detr" if head == "rf-detr" else "ssd"
    names = [f"c{number}" for number in range(CLASSES)]
    path.with_suffix(".toml").write_text(f'[head]\nfamily = "{family}"\n\n[classes]\nnames = {json.dumps(names)}\n')


def own_planes(head, boxes, random):
    """A plane for each instance: a rough ellipse in its box, which for RF-DETR reaches out of it."""
    cells = CELLS if head == "rf-detr" else SIDE
    rows, columns = np.mgrid[0:cells, 0:cells].astype(np.float32) + 0.5
    for cx, cy, width, height in boxes * (cells / SIDE):
        rough = cv2.resize(random.normal(0, 0.3, (12, 12)).astype(np.float32), (cells, cells), interpolation=cv2.INTER_CUBIC)
        inside = 1.1 - np.hypot((columns - cx) / width * 2, (rows - cy) / height * 2) + rough
        if head == "mask-rcnn":
            in_box = (abs(columns - cx) <= width / 2) & (abs(rows - cy) <= height / 2)
            inside = np.where(in_box, 1 / (1 + np.exp(-4 * np.maximum(inside, -9))), 0)
        yield inside.astype(np.float32)


def corners(boxes):
    """`xywh2xyxy` of utils/ops.py."""
    return np.hstack([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2])


def network(path, head, boxes, coefficients, prototypes):
    """Writes the network; the class of an instance is its number, so that NMS keeps all."""
    scores = np.linspace(0.9, 0.5, FOUND, dtype=np.float32)
    if head == "end-to-end":
        table = np.zeros((300, 6 + CHANNELS), np.float32)
        table[:FOUND] = np.hstack([corners(boxes), scores[:, None], np.arange(FOUND)[:, None], coefficients])
    else:
        first = 5 if head == "yolov5" else 4
        table = np.zeros((ROWS, first + CLASSES + CHANNELS), np.float32)
        for index in range(FOUND):
            row = table[index * 7]
            row[:4], row[first + index], row[first + CLASSES :] = boxes[index], scores[index], coefficients[index]
            row[4:first] = 1
        table = table if head == "yolov5" else table.T
    constants = {"table": table[None], "planes": prototypes[None], "zero": np.float32(0)}
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["table", "nothing"], ["output0"]),
        helper.make_node("Add", ["planes", "nothing"], ["output1"]),
    ]
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes,
        "segment",
        [value("images", [1, 3, SIDE, SIDE])],
        [value("output0", constants["table"].shape), value("output1", constants["planes"].shape)],
        [numpy_helper.from_array(np.asarray(constant), name) for name, constant in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    names = str({number: f"c{number}" for number in range(CLASSES)})
    metadata = {"names": names, "stride": "32"}
    if head != "yolov5":
        metadata |= {"author": "Ultralytics", "task": "segment", "version": "8.4.190", "imgsz": "[640, 640]"}
        metadata |= {"end2end": "True"} if head == "end-to-end" else {}
    helper.set_model_props(model, metadata)
    onnx.save(model, path)


def scaled(boxes, height, width, head):
    """`scale_boxes` for a centred letterbox: in newer versions each side has its own ratio, in YOLOv5 both have the same."""
    gain = min(SIDE / height, SIDE / width)
    content = [max(round(height * gain), 1), max(round(width * gain), 1)]
    if head == "yolov5":
        ratios, pad = [gain, gain], [(SIDE - height * gain) / 2, (SIDE - width * gain) / 2]
    else:
        ratios = [content[0] / height, content[1] / width]
        pad = [round((SIDE - side) / 2 - 0.1) for side in content]
    out = boxes.astype(np.float32).copy()
    out[:, [0, 2]] = np.clip((out[:, [0, 2]] - pad[1]) / ratios[1], 0, width)
    out[:, [1, 3]] = np.clip((out[:, [1, 3]] - pad[0]) / ratios[0], 0, height)
    return out


def expected_of_planes(planes, threshold, height, width):
    """Masks of planes: one per instance, in pixels of the picture."""
    for plane in planes:
        yield cv2.resize(plane, (width, height), interpolation=cv2.INTER_LINEAR) > threshold


def expected(boxes, coefficients, prototypes, height, width):
    """`process_mask_native`: one mask per instance, in pixels of the picture."""
    logits = (coefficients @ prototypes.reshape(CHANNELS, -1)).reshape(-1, CELLS, CELLS)
    gain = min(4 * CELLS / height, 4 * CELLS / width)
    pad = (4 * CELLS - max(round(height * gain), 1)) | (4 * CELLS - max(round(width * gain), 1))
    factor = 4 // math.gcd(4, pad | pad // 2)
    side = CELLS * factor
    gain = min(side / height, side / width)
    content = [max(round(height * gain), 1), max(round(width * gain), 1)]
    top, left = (round((side - length) / 2 - 0.1) for length in content)
    rows, columns = np.arange(height)[:, None], np.arange(width)[None]
    for plane, (x1, y1, x2, y2) in zip(logits, boxes):
        if factor > 1:
            plane = cv2.resize(plane, (side, side), interpolation=cv2.INTER_LINEAR)
        plane = plane[top : top + content[0], left : left + content[1]]
        if plane.shape != (height, width):
            plane = cv2.resize(plane, (width, height), interpolation=cv2.INTER_LINEAR)
        yield (plane > 0) & (columns >= x1) & (columns < x2) & (rows >= y1) & (rows < y2)


def filled(rings, height, width):
    """The pixels whose centres lie inside of an odd number of rings."""
    crossed = np.zeros((height, width + 1), np.int32)
    for ring in rings:
        points = np.array(ring, np.float64).reshape(-1, 2)
        for (x1, y1), (x2, y2) in zip(points, np.roll(points, -1, 0)):
            if y1 == y2:
                continue
            (x1, y1), (x2, y2) = sorted([(x1, y1), (x2, y2)], key=lambda point: point[1])
            for row in range(math.ceil(y1 - 0.5), math.ceil(y2 - 0.5)):
                x = x1 + (row + 0.5 - y1) * (x2 - x1) / (y2 - y1)
                crossed[row, math.ceil(x - 0.5)] += 1
    return np.cumsum(crossed, 1)[:, :width] % 2 == 1


def iou(a, b):
    union = np.count_nonzero(a | b)
    return np.count_nonzero(a & b) / union if union else 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", default="target/debug/visiond")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--head", choices=["yolov8", "end-to-end", "yolov5", "rf-detr", "mask-rcnn"], default="yolov8")
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    ious, areas, polygon_ious, points, missing = [], [], [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for turn in range(EACH):
            boxes, coefficients, prototypes = made_up(random)
            planes = None
            if args.head in ("rf-detr", "mask-rcnn"):
                planes = np.stack(list(own_planes(args.head, boxes, random)))
                network_of_planes(folder / "segment.onnx", args.head, boxes, planes)
            else:
                network(folder / "segment.onnx", args.head, boxes, coefficients, prototypes)
            pictures = []
            for width, height in SIZES:
                pictures.append(folder / f"{width}x{height}.png")
                cv2.imwrite(str(pictures[-1]), np.zeros((height, width, 3), np.uint8))
            command = [args.visiond, "detect", "--json", "--masks", "both", "--backend", args.backend]
            command += ["--model", str(folder / "segment.onnx"), *map(str, pictures)]
            lines = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()
            for (width, height), line in zip(SIZES, lines, strict=True):
                found = {int(told["label"][1:]): told for told in json.loads(line)["detections"]}
                in_picture = scaled(corners(boxes), height, width, args.head)
                if planes is None:
                    wanted = expected(in_picture, coefficients, prototypes, height, width)
                else:
                    wanted = expected_of_planes(planes, 0 if args.head == "rf-detr" else 0.5, height, width)
                    in_picture = corners(boxes) * np.float32([width, height, width, height]) / SIDE
                for index, mask in enumerate(wanted):
                    x1, y1, x2, y2 = in_picture[index]
                    if x2 <= x1 or y2 <= y1:
                        continue
                    told = found.get(index)
                    if told is None:
                        missing += 1
                        continue
                    rle = told["mask"]["rle"]
                    seen = coco.decode({"size": rle["size"], "counts": rle["counts"].encode()}).astype(bool)
                    assert seen.shape == mask.shape and seen.sum() == told["area"]
                    ious.append(iou(mask, seen))
                    area = np.count_nonzero(mask)
                    areas.append(max(0, abs(area - told["area"]) - 1) / max(area, 1))
                    polygon_ious.append(iou(seen, filled(told["segments"], height, width)))
                    points.append(sum(map(len, told["segments"])) / 2)
    least, most, polygons = min(ious), max(areas), min(polygon_ious)
    same = sum(value == 1 for value in ious)
    print(f"{args.head}: {len(ious)} instances, {missing} missing; {same} equal, least IoU {least:.4f}, area differs by {most:.2%} at most")
    print(f"polygons: least IoU with their masks {polygons:.4f}, {np.mean(points):.0f} points on average, {max(points):.0f} at most")
    return int(missing > 0 or least < 0.99 or most > 0.005 or polygons < 0.98)


if __name__ == "__main__":
    sys.exit(main())
