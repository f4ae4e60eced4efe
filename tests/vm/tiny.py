#!/usr/bin/env python3
# numpy 2.4.6, onnx 1.23.2
"""Makes tiny.onnx, the model of the virtual machines: it finds the bars of a test picture by their colour.

The picture is cut into eight upright parts. Each is a box; its score in a class is how near its mean colour is to the class's.
It is only one mean and one subtraction, so that an emulated processor keeps up with its cameras. Outputs as
a YOLOv8's: [1, 4 + classes, boxes]. Its card is tiny.toml.

    python3 tests/vm/tiny.py
"""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEIGHT, PARTS = 128, 64, 8
# As tiny.toml has them.
COLOURS = [(1, 1, 1), (1, 1, 0), (0, 1, 1), (0, 1, 0), (1, 0, 1), (1, 0, 0), (0, 0, 1), (0, 0, 0)]

side = WIDTH / PARTS
boxes = np.array([[side * (i + 0.5), HEIGHT / 2, side, HEIGHT] for i in range(PARTS)], np.float32)
constants = {
    "columns": np.array([1, 3, 1, PARTS], np.int64),
    "colours": np.array(COLOURS, np.float32).T.reshape(1, 3, len(COLOURS), 1),
    "one": np.float32(1),
    "boxes": boxes.T.reshape(1, 4, PARTS),
}
nodes = [
    helper.make_node("AveragePool", ["picture"], ["means"], kernel_shape=[HEIGHT, int(side)], strides=[HEIGHT, int(side)]),
    helper.make_node("Reshape", ["means", "columns"], ["parts"]),
    helper.make_node("Sub", ["parts", "colours"], ["differences"]),
    helper.make_node("Abs", ["differences"], ["distances"]),
    # The largest of the three channels' differences.
    helper.make_node("ReduceMax", ["distances"], ["distance"], axes=[1], keepdims=0),
    helper.make_node("Sub", ["one", "distance"], ["scores"]),
    helper.make_node("Concat", ["boxes", "scores"], ["output"], axis=1),
]
value = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
graph = helper.make_graph(
    nodes,
    "tiny",
    [value("picture", 1, 3, HEIGHT, WIDTH)],
    [value("output", 1, 4 + len(COLOURS), PARTS)],
    [numpy_helper.from_array(array, name) for name, array in constants.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, pathlib.Path(__file__).with_name("tiny.onnx"))
