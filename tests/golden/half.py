#!/usr/bin/env python3
"""Makes half.onnx, the network that the rewriting in half precision is tested with (onnx 1.23.2, numpy 2.4.6).

Like a small YOLOv8, with the parts that such rewriting may break: Resize's scales, a normalisation taken apart, a grid out of
shapes, bins of distances, a branch that uses a value of the graph around it, bounds beyond FP16, vanishing weights, TopK.

    python3 tests/golden/half.py
"""
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(0)
weights, nodes = [], []
BINS, CLASSES = 8, 6


def const(name, array):
    weights.append(numpy_helper.from_array(np.asarray(array), name))
    return name


def random(name, *shape, scale=None):
    scale = scale or 1 / np.sqrt(np.prod(shape[1:]))
    return const(name, rng.normal(0, scale, shape).astype(np.float32))


def node(operator, inputs, outputs, name=None, **attributes):
    outputs = [outputs] if isinstance(outputs, str) else outputs
    nodes.append(helper.make_node(operator, inputs, outputs, name=name, **attributes))
    return outputs[0]


def block(x, name, channels_in, channels, size=3, stride=2):
    kernel, bias = random(name + ".w", channels, channels_in, size, size), random(name + ".b", channels, scale=0.1)
    x = node("Conv", [x, kernel, bias], name + ".c", f"/{name}/Conv", strides=[stride] * 2, pads=[size // 2] * 4)
    return node("Mul", [x, node("Sigmoid", [x], name + ".s", f"/{name}/Sigmoid")], name, f"/{name}/Mul")


def branch(operator, name):
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(operator, ["c3"], [name])], name, [], [value])


c2 = block(block("images", "c1", 3, 8), "c2", 8, 16)
c3 = block(c2, "c3", 16, 16)
up = node("Resize", [c3, "", const("scales", np.array([1, 1, 2, 2], np.float32))], "up", "/up", mode="nearest")
both = node("Concat", [up, c2], "both", "/both", axis=1)
centred = node("Sub", [both, node("ReduceMean", [both], "mean", "/norm/mean", axes=[1])], "centred", "/norm/sub")
squares = node("Pow", [centred, const("two", np.float32(2))], "squares", "/norm/pow")
variance = node("ReduceMean", [squares], "variance", "/norm/variance", axes=[1])
above = node("Add", [variance, const("epsilon", np.float32(1e-5))], "above", "/norm/add")
normal = node("Div", [centred, node("Sqrt", [above], "deviation", "/norm/sqrt")], "normal", "/norm/div")
x = block(normal, "h1", 32, 16, 1, 1)
box = node("Conv", [x, random("box.w", 4 * BINS, 16, 1, 1), random("box.b", 4 * BINS, scale=0.1)], "box", "/head/box")
cls = node("Conv", [x, random("cls.w", CLASSES, 16, 1, 1), random("cls.b", CLASSES, scale=0.1)], "cls", "/head/cls")
shape = node("Constant", [], "sides", value=numpy_helper.from_array(np.array([0, 4, BINS, -1], np.int64)))
x = node("Transpose", [node("Reshape", [box, shape], "by side")], "turned", perm=[0, 2, 1, 3])
x = node("Softmax", [x], "likely", "/dfl/Softmax", axis=1)
x = node("Conv", [x, const("bins", np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1))], "bin", "/dfl/conv")
sides = node("Reshape", [x, const("four", np.array([0, 4, -1], np.int64))], "distances")

extent = node("Shape", [cls], "extent")
height = node("Gather", [extent, const("second", np.int64(2))], "height", axis=0)
width = node("Gather", [extent, const("third", np.int64(3))], "width", axis=0)
zero, one = const("zero", np.float32(0)), const("one", np.float32(1))
columns = node("Range", [zero, node("Cast", [width], "width as float", to=1), one], "columns")
rows = node("Range", [zero, node("Cast", [height], "height as float", to=1), one], "rows")
first = const("first axis", np.array([0], np.int64))
area = node("Concat", [node("Unsqueeze", [height, first], "height alone"), node("Unsqueeze", [width, first], "width alone")], "area", axis=0)
rows = node("Unsqueeze", [rows, const("second axis", np.array([1], np.int64))], "rows down")
row = const("row", np.array([1, 1, -1], np.int64))
across = node("Reshape", [node("Expand", [columns, area], "across"), row], "across in a row")
down = node("Reshape", [node("Expand", [rows, area], "down"), row], "down in a row")
grid = node("Concat", [across, down], "grid", axis=1)
centres = node("Add", [grid, const("middle", np.float32(0.5))], "centres")

node("Split", [sides, const("two each", np.array([2, 2], np.int64))], ["near", "far"], axis=1)
corners = [node("Sub", [centres, "near"], "x1", "/boxes/sub"), node("Add", [centres, "far"], "x2", "/boxes/add")]
boxes = node("Mul", [node("Concat", corners, "corners", axis=1), const("stride", np.float32(40))], "boxes", "/boxes/mul")
scores = node("Reshape", [cls, const("by class", np.array([0, CLASSES, -1], np.int64))], "logits")
node("Concat", [boxes, node("Sigmoid", [scores], "scores", "/scores")], "output0", "/out", axis=1)

bright = node("Greater", [node("ReduceMax", [c3], "brightest", keepdims=0), zero], "is bright")
picked = node("If", [bright], "picked", "/if", then_branch=branch("Relu", "then"), else_branch=branch("Neg", "else"))
x = node("Conv", [picked, random("aux.w", 2, 16, 1, 1)], "aux", "/aux/Conv")
x = node("Clip", [x, const("least", np.float32(-3.4e38)), const("most", np.float32(1e6))], "bounded", "/aux/Clip")
x = node("Conv", [x, random("tiny.w", 40, 2, 3, 3, scale=1e-9)], "tiny", "/aux/tiny")
node("TopK", [x, const("k", np.array([2], np.int64))], ["top", "top index"], "/top", axis=1)

info = helper.make_tensor_value_info
graph = helper.make_graph(
    nodes, "half", [info("images", TensorProto.FLOAT, [1, 3, 64, 64])],
    [info("output0", TensorProto.FLOAT, None), info("top", TensorProto.FLOAT, None), info("top index", TensorProto.INT64, None)],
    initializer=weights,
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="half.py")
onnx.save(model, Path(__file__).with_name("half.onnx"))
