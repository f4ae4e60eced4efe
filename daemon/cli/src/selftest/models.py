#!/usr/bin/env python3
# numpy 2.4.6, onnx 1.23.2
"""Makes the two models of `visiond selftest`: known.onnx, which the CPU can run, too, and nms.onnx, which is only TensorRT's
plugin EfficientNMS_TRT.

    python3 daemon/cli/src/selftest/models.py
"""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
value = lambda name, kind, *shape: helper.make_tensor_value_info(name, kind, shape)

# A picture of 3x16x16: convolution, activation, pooling, and a matrix product whose rows become shares.
random = np.random.default_rng(12)
weights = {
    "kernels": random.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32),
    "biases": random.normal(0, 0.1, 4).astype(np.float32),
    "columns": np.array([1, 4 * 8 * 8], np.int64),
    "matrix": random.normal(0, 0.1, (4 * 8 * 8, 5)).astype(np.float32),
}
nodes = [
    helper.make_node("Conv", ["picture", "kernels", "biases"], ["convolved"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
    helper.make_node("Relu", ["convolved"], ["positive"]),
    helper.make_node("MaxPool", ["positive"], ["features"], kernel_shape=[2, 2], strides=[2, 2]),
    helper.make_node("Reshape", ["features", "columns"], ["row"]),
    helper.make_node("MatMul", ["row", "matrix"], ["sums"]),
    helper.make_node("Softmax", ["sums"], ["shares"], axis=1),
]
graph = helper.make_graph(
    nodes,
    "known",
    [value("picture", TensorProto.FLOAT, 1, 3, 16, 16)],
    [value("features", TensorProto.FLOAT, 1, 4, 8, 8), value("shares", TensorProto.FLOAT, 1, 5)],
    [numpy_helper.from_array(array, name) for name, array in weights.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, HERE / "known.onnx")

# Attributes: plugin/efficientNMSPlugin/README.md of TensorRT's sources.
BOXES, CLASSES, MOST = 4, 2, 4
node = helper.make_node(
    "EfficientNMS_TRT",
    ["boxes", "scores"],
    ["count", "kept_boxes", "kept_scores", "kept_classes"],
    domain="TRT",
    plugin_version="1",
    score_threshold=0.25,
    iou_threshold=0.5,
    max_output_boxes=MOST,
    background_class=-1,
    score_activation=0,
    class_agnostic=0,
    box_coding=0,
)
graph = helper.make_graph(
    [node],
    "nms",
    [value("boxes", TensorProto.FLOAT, 1, BOXES, 4), value("scores", TensorProto.FLOAT, 1, BOXES, CLASSES)],
    [
        value("count", TensorProto.INT32, 1, 1),
        value("kept_boxes", TensorProto.FLOAT, 1, MOST, 4),
        value("kept_scores", TensorProto.FLOAT, 1, MOST),
        value("kept_classes", TensorProto.INT32, 1, MOST),
    ],
)
opsets = [helper.make_opsetid("", 13), helper.make_opsetid("TRT", 1)]
onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), HERE / "nms.onnx")
