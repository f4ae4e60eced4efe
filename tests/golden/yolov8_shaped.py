#!/usr/bin/env python3
# numpy 2.4.6, onnx 1.23.2, opencv-python-headless 4.14.0.94, onnxruntime 1.31.1
"""Does visiond read a YOLOv8 export by its metadata alone? Uses a network with such outputs and metadata that detects real
objects.

    yolov8_shaped.py [--visiond BIN] [--frames N] FILE...

NanoDet, wrapped in ONNX operators so that it takes RGB in 0 to 1 and gives YOLOv8's [1, 84, N], with the metadata that
Ultralytics writes and no card. Compared as `agreement.py` does, with YOLOv8's letterbox (pad 114) and NMS (IoU 0.7).
"""

import argparse
import pathlib
import sys
import tempfile

import agreement
import cv2
import nanodet_peer as peer
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE, ROWS = peer.SIZE, len(peer.CENTRES)


def wrapped(path, version=None, objectness=False):
    """Writes the network, with the metadata of an Ultralytics version, or with YOLOv5's objectness and without metadata."""
    model = onnx.load(agreement.MODEL)
    graph = model.graph
    for node in graph.node:
        node.input[:] = ["fed" if name == "images" else name for name in node.input]
        node.output[:] = ["raw" if name == "output" else name for name in node.output]
    constants = {
        "w_reversed": np.array([2, 1, 0], np.int64),
        "w_255": np.float32(255),
        "w_mean": peer.MEAN.reshape(1, 3, 1, 1),
        "w_std": peer.STD.reshape(1, 3, 1, 1),
        "w_parts": np.array([len(peer.COCO), 4 * peer.BINS], np.int64),
        "w_bins_shape": np.array([1, ROWS, 4, peer.BINS], np.int64),
        "w_bins": np.arange(peer.BINS, dtype=np.float32).reshape(-1, 1),
        "w_sides_shape": np.array([1, ROWS, 4], np.int64),
        "w_strides": peer.CENTRE_STRIDES.astype(np.float32)[None],
        "w_centres": peer.CENTRES.astype(np.float32)[None],
        "w_halves": np.array([2, 2], np.int64),
        "w_half": np.float32(0.5),
    }
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items())

    def node(operator, inputs, outputs, **attributes):
        return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)

    before = [
        node("Gather", "images w_reversed", "w_bgr", axis=1),
        node("Mul", "w_bgr w_255", "w_bytes"),
        node("Sub", "w_bytes w_mean", "w_centred"),
        node("Div", "w_centred w_std", "fed"),
    ]
    after = [
        node("Split", "raw w_parts", "w_scores w_logits", axis=2),
        node("Reshape", "w_logits w_bins_shape", "w_by_bin"),
        node("Softmax", "w_by_bin", "w_weights", axis=3),
        node("MatMul", "w_weights w_bins", "w_cells"),
        node("Reshape", "w_cells w_sides_shape", "w_sides"),
        node("Mul", "w_sides w_strides", "w_distances"),
        node("Split", "w_distances w_halves", "w_near w_far", axis=2),
        node("Sub", "w_centres w_near", "w_first"),
        node("Add", "w_centres w_far", "w_last"),
        node("Add", "w_first w_last", "w_sum"),
        node("Mul", "w_sum w_half", "w_middle"),
        node("Sub", "w_last w_first", "w_extent"),
    ]
    if objectness:
        # Both factors of the score are its square root for the best class.
        after += [
            node("ReduceMax", "w_scores", "w_best", axes=[2], keepdims=1),
            node("Sqrt", "w_best", "w_objectness"),
            node("Div", "w_scores w_objectness", "w_classes"),
            node("Concat", "w_middle w_extent w_objectness w_classes", "output0", axis=2),
        ]
    else:
        after += [
            node("Concat", "w_middle w_extent w_scores", "w_rows", axis=2),
            node("Transpose", "w_rows", "output0", perm=[0, 2, 1]),
        ]
    own = list(graph.node)
    del graph.node[:]
    graph.node.extend(before + own + after)
    del graph.output[:]
    shape = [1, ROWS, 5 + len(peer.COCO)] if objectness else [1, 4 + len(peer.COCO), ROWS]
    graph.output.append(helper.make_tensor_value_info("output0", TensorProto.FLOAT, shape))
    del model.metadata_props[:]
    metadata = {
        "description": "Ultralytics YOLOv8n model trained on coco.yaml",
        "author": "Ultralytics",
        "stride": "32",
        "task": "detect",
        "batch": "1",
        "imgsz": f"[{SIZE}, {SIZE}]",
        "names": str(dict(enumerate(peer.COCO))),
    }
    if version:
        metadata["version"] = version
    if not objectness:
        helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def detect(run, bgr, threshold):
    """The peer: OpenCV's letterbox, onnxruntime, best class of each column, greedy NMS."""
    height, width = bgr.shape[:2]
    ratio = min(SIZE / height, SIZE / width)
    w, h = round(width * ratio), round(height * ratio)
    x, y = (SIZE - w) // 2, (SIZE - h) // 2
    canvas = np.full((SIZE, SIZE, 3), 114, np.uint8)
    canvas[y : y + h, x : x + w] = cv2.resize(bgr, (w, h), interpolation=cv2.INTER_LINEAR)
    tensor = np.ascontiguousarray(canvas[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 255)
    rows = run.run(None, {"images": tensor})[0][0].T
    scores, classes = rows[:, 4:].max(1), rows[:, 4:].argmax(1)
    rows, scores, classes = (values[scores >= threshold] for values in (rows, scores, classes))
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1)
    scale = np.array([width / w, height / h] * 2)
    found = []
    for i in peer.suppress(boxes, scores, classes, 0.7, 300):
        corners = np.clip((boxes[i] - [x, y, x, y]) * scale, 0, [width, height] * 2)
        found.append((int(classes[i]), float(scores[i]), *map(float, corners)))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(agreement.ROOT / "target/release/visiond"))
    parser.add_argument("--frames", type=int, default=40, help="of a video, at most")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    total = bad = 0
    low = agreement.SCORE - 2 * agreement.SCORE_ERROR
    with tempfile.TemporaryDirectory() as folder:
        model = str(pathlib.Path(folder) / "yolov8.onnx")
        wrapped(model)
        run = peer.session(model)
        for path in args.files:
            theirs = [detect(run, frame, low) for frame in agreement.frames(path, args.frames)]
            for backend in ("onnxruntime", "rten"):
                ours = agreement.by_visiond(args.visiond, path, args.frames, backend, ["--model", model])
                bad += len(ours) != len(theirs)
                for a, b in zip(theirs, ours):
                    sure = [d for d in a if d[1] >= agreement.SCORE]
                    total += len(sure)
                    bad += len(agreement.unmatched(sure, b))
                    extra = [d for d in b if d[1] >= agreement.SCORE + agreement.SCORE_ERROR]
                    bad += len(agreement.unmatched(extra, a))
    print(f"{total} detections, {bad} disagreements")
    return 1 if bad or not total else 0


if __name__ == "__main__":
    sys.exit(main())
