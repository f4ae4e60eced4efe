#!/usr/bin/env python3
# numpy 2.4.6, onnx 1.23.2
"""Makes dynamic.onnx, a model with open sizes, an input in bytes and outputs of five types, for `visiond-gpu abi`."""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto as types
from onnx import helper, numpy_helper

rng = np.random.default_rng(5)
constants = {
    "weights": (rng.standard_normal((4, 3, 3, 3)) * 0.2).astype(np.float32),
    "bias": np.array([0.1, -0.1, 0.2, 0.0], np.float32),
    "scale": np.array(1 / 255, np.float32),
    "zero": np.array(0.05, np.float32),
}
nodes = [
    helper.make_node("Cast", ["images"], ["floats"], to=types.FLOAT),
    helper.make_node("Mul", ["floats", "scale"], ["scaled"]),
    helper.make_node("Conv", ["scaled", "weights", "bias"], ["features"], strides=[2, 2], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
    helper.make_node("ArgMax", ["features"], ["best"], axis=1, keepdims=0),
    helper.make_node("Greater", ["features", "zero"], ["positive"]),
    helper.make_node("Cast", ["best"], ["best32"], to=types.INT32),
    helper.make_node("Cast", ["features"], ["half"], to=types.FLOAT16),
]
value = helper.make_tensor_value_info
graph = helper.make_graph(
    nodes,
    "dynamic",
    [value("images", types.UINT8, ["batch", 3, "height", "width"])],
    [
        value("features", types.FLOAT, ["batch", 4, None, None]),
        value("best", types.INT64, ["batch", None, None]),
        value("positive", types.BOOL, ["batch", 4, None, None]),
        value("best32", types.INT32, ["batch", None, None]),
        value("half", types.FLOAT16, ["batch", 4, None, None]),
    ],
    [numpy_helper.from_array(array, name) for name, array in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="dynamic.py")
onnx.checker.check_model(model)
onnx.save(model, pathlib.Path(__file__).with_suffix(".onnx"))
