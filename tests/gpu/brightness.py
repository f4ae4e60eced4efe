#!/usr/bin/env python3
# numpy 2.4.6, onnx 1.23.2
"""Makes brightness-open.onnx and brightness-fixed.onnx, for `visiond-gpu flights`.

A model whose boxes have a 4x4 picture's brightness as their score, so that a result of another slot shows. One leaves the number
of frames open, one has three.
"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def make(batch, name):
    tensor = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *shape])
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1, 2, 3], keepdims=1),
        helper.make_node("Reshape", ["mean", "rows"], ["score"]),
        helper.make_node("Mul", ["score", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "places"], ["boxes"]),
        helper.make_node("Mul", ["score", "strengths"], ["scores"]),
    ]
    places = np.array([0, 1, 2, 3, 0, 1, 1.9, 3, 0, 0, 4, 0.5], np.float32).reshape(1, 3, 4)
    strengths = np.array([1, 0.5, 0.9, 0, 1, 0], np.float32).reshape(1, 3, 2)
    constants = {"rows": np.array([-1, 1, 1], np.int64), "zero": np.zeros(1, np.float32), "places": places}
    graph = helper.make_graph(
        nodes,
        "brightness",
        [tensor("x", 3, 4, 4)],
        [tensor("boxes", 3, 4), tensor("scores", 3, 2)],
        [numpy_helper.from_array(value, name) for name, value in {**constants, "strengths": strengths}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, pathlib.Path(__file__).with_name(name))


make("n", "brightness-open.onnx")
make(3, "brightness-fixed.onnx")
