#!/usr/bin/env python3
# numpy 2.4.6, onnx 1.23.2
"""Makes the tiny models of engine/src/onnx/known_faults.rs, and prints their outputs over an input of ones, by numpy.

    python3 tests/golden/known_faults.py
"""
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).parents[2] / "engine/src/onnx/known_faults"


def save(name, nodes, weights, expected):
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    weights = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, name, [value("x", [1, 1, 3, 3])], [value("y", expected.shape)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, FOLDER / f"{name}.onnx")
    print(name, [float(number) for number in expected.ravel()])


def windows(picture):
    """The 2x2 windows of a padded picture."""
    rows, columns = picture.shape
    return [[picture[y : y + 2, x : x + 2] for x in range(columns - 1)] for y in range(rows - 1)]


ones = np.ones((3, 3), np.float32)

# Darknet's tiny models: ZeroPad2d([0, 1, 0, 1]), then MaxPool(2, 1), after numbers below 0.
padded = np.pad(-ones, ((0, 1), (0, 1)))
save(
    "pad_maxpool",
    [
        helper.make_node("Neg", ["x"], ["negative"]),
        helper.make_node("Pad", ["negative", "pads"], ["padded"], mode="constant"),
        helper.make_node("MaxPool", ["padded"], ["y"], kernel_shape=[2, 2], strides=[1, 1]),
    ],
    {"pads": np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int64)},
    np.array([[[[window.max() for window in row] for row in windows(padded)]]]),
)

# Every attribute that has a default is left out, so that the size of the kernel is that of the weights.
kernel = np.array([[1, 2], [3, 4]], np.float32)
padded = np.pad(ones, ((0, 1), (0, 1)))
save(
    "conv_without_kernel_shape",
    [helper.make_node("Conv", ["x", "kernel"], ["y"], pads=[0, 0, 1, 1])],
    {"kernel": kernel[None, None]},
    np.array([[[[(window * kernel).sum() for window in row] for row in windows(padded)]]]),
)

# The odd pixel of padding comes first.
padded = np.pad(ones, ((1, 0), (1, 0)))
save(
    "same_lower",
    [helper.make_node("Conv", ["x", "kernel"], ["y"], kernel_shape=[2, 2], auto_pad="SAME_LOWER")],
    {"kernel": kernel[None, None]},
    np.array([[[[(window * kernel).sum() for window in row] for row in windows(padded)]]]),
)

# Strides are 1 where they are left out.
save(
    "pool_without_strides",
    [helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2])],
    {},
    np.array([[[[window.mean() for window in row] for row in windows(ones)]]]),
)
