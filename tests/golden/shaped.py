# numpy 2.4.6, onnx 1.23.2
"""Models for framework_boxes.py that no package has.

CenterFace, wrapped in ONNX operators, becomes a CenterNet that finds real faces. EfficientNet-Lite0 is built from its weights
without PyTorch.
"""

import collections
import pathlib
import pickle
import types

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# CenterNet's, in the order blue, green, red: xingyizhou/CenterNet at 4c50fd3, src/lib/opts.py.
CENTERNET_MEAN = np.array([0.408, 0.447, 0.470], np.float32)
CENTERNET_STD = np.array([0.289, 0.274, 0.278], np.float32)
MOST = 100


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def loaded(source):
    """CenterFace without the constants that no operator uses."""
    model = onnx.load(source)
    used = {name for operator in model.graph.node for name in operator.input}
    for values in (model.graph.input, model.graph.initializer):
        kept = [value for value in values if value.name in used]
        del values[:]
        values.extend(kept)
    return model


def centerface(source, path, size):
    """CenterFace for one picture of a size: the file declares 10 of 32x32."""
    model, (w, h) = loaded(source), size
    for value in [model.graph.input[0], *model.graph.output]:
        for dim, now in zip(value.type.tensor_type.shape.dim, (1, None, h, w)):
            if now:
                dim.dim_value = now if value is model.graph.input[0] or now == 1 else now // 4
    onnx.save(model, path)


def centernet(source, path, size):
    """CenterNet's outputs (hm, wh and reg, as its ONNX exports have them) of a picture in blue, green and red, normalised."""
    constants = {
        "c_reversed": np.array([2, 1, 0], np.int64),
        "c_swapped": np.array([1, 0], np.int64),
        "c_mean": CENTERNET_MEAN.reshape(1, 3, 1, 1),
        "c_std": CENTERNET_STD.reshape(1, 3, 1, 1),
        "c_255": np.float32(255),
        "c_half": np.float32(0.5),
    }
    before = [
        node("Mul", "images c_std", "c_scaled"),
        node("Add", "c_scaled c_mean", "c_units"),
        node("Mul", "c_units c_255", "c_bytes"),
        node("Gather", "c_bytes c_reversed", "input.1", axis=1),
    ]
    after = [
        node("Identity", "536", "hm"),
        node("Gather", "538 c_swapped", "c_logs", axis=1),
        node("Exp", "c_logs", "wh"),
        node("Gather", "539 c_swapped", "c_offset", axis=1),
        node("Add", "c_offset c_half", "reg"),
    ]
    w, h = size
    outputs = {"hm": [1, 1, h // 4, w // 4], "wh": [1, 2, h // 4, w // 4], "reg": [1, 2, h // 4, w // 4]}
    wrapped(source, path, before, after, constants, [1, 3, h, w], outputs)


def centernet_decoded(source, path, size):
    """What mobilenetv3_centernet freezes: RGB bytes as NHWC floats in; 100 rows x1, y1, x2, y2, score, class out.

    Source: 610265158/mobilenetv3_centernet at 0738c4c, lib/core/model/centernet.py, postprocess.
    """
    w, h = size
    columns, lines = w // 4, h // 4
    places = np.stack(np.meshgrid(np.arange(columns), np.arange(lines)), 0).reshape(1, 2, -1) * 4
    constants = {
        "c_swapped": np.array([1, 0], np.int64),
        "c_cells": np.array([1, -1], np.int64),
        "c_pairs": np.array([1, 2, -1], np.int64),
        "c_most": np.array([MOST], np.int64),
        "c_flat": np.array([-1], np.int64),
        "c_column": np.array([1, MOST, 1], np.int64),
        "c_places": places.astype(np.float32),
        "c_half": np.float32(0.5),
        "c_two": np.float32(2),
        "c_stride": np.float32(4),
        "c_class": np.zeros((1, MOST, 1), np.float32),
    }
    before = [node("Transpose", "images", "input.1", perm=[0, 3, 1, 2])]
    after = [
        node("MaxPool", "537", "c_greatest", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        node("Equal", "537 c_greatest", "c_is_peak"),
        node("Cast", "c_is_peak", "c_peak", to=TensorProto.FLOAT),
        node("Mul", "537 c_peak", "c_heat"),
        node("Reshape", "c_heat c_cells", "c_scores"),
        node("TopK", "c_scores c_most", "c_best c_which_rows", axis=1),
        node("Reshape", "c_which_rows c_flat", "c_which"),
        node("Gather", "538 c_swapped", "c_logs", axis=1),
        node("Exp", "c_logs", "c_sizes"),
        node("Gather", "539 c_swapped", "c_offset", axis=1),
        node("Add", "c_offset c_half", "c_centred"),
        # Distances from a cell's corner to the four sides, in pixels.
        node("Mul", "c_sizes c_two", "c_halves"),
        node("Mul", "c_centred c_stride", "c_inside"),
        node("Sub", "c_halves c_inside", "c_near"),
        node("Add", "c_halves c_inside", "c_far"),
        node("Reshape", "c_near c_pairs", "c_near_cells"),
        node("Reshape", "c_far c_pairs", "c_far_cells"),
        node("Sub", "c_places c_near_cells", "c_first"),
        node("Add", "c_places c_far_cells", "c_last"),
        node("Concat", "c_first c_last", "c_boxes", axis=1),
        node("Gather", "c_boxes c_which", "c_kept", axis=2),
        node("Transpose", "c_kept", "c_rows", perm=[0, 2, 1]),
        node("Reshape", "c_best c_column", "c_score"),
        node("Concat", "c_rows c_score c_class", "detections", axis=2),
    ]
    wrapped(source, path, before, after, constants, [1, h, w, 3], {"detections": [1, MOST, 6]})


def wrapped(source, path, before, after, constants, shape, outputs):
    """Writes CenterFace with operators before and after it."""
    model = loaded(source)
    graph = model.graph
    own = list(graph.node)
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(before + own + after)
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items())
    value = helper.make_tensor_value_info
    graph.input.append(value("images", TensorProto.FLOAT, shape))
    graph.output.extend(value(name, TensorProto.FLOAT, shape) for name, shape in outputs.items())
    model.opset_import[0].version = 13
    onnx.checker.check_model(model)
    onnx.save(model, path)


def weights(path):
    """Arrays by name from a file of torch.save before PyTorch 1.6."""
    kinds = {"FloatStorage": np.float32, "LongStorage": np.int64}
    storages, views = {}, {}

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            if (module, name) == ("collections", "OrderedDict"):
                return collections.OrderedDict
            if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
                return lambda *parts: parts[:4]
            if module == "torch" and name in kinds:
                return kinds[name]
            raise pickle.UnpicklingError(f"{module}.{name} is not expected")

        def persistent_load(self, saved):
            _, kind, key, _, _, _ = saved
            views[key] = kind
            return key

    with open(path, "rb") as file:
        for _ in range(3):  # magic number, version, sizes of types
            pickle.load(file)
        tensors = Reader(file).load()
        for key in pickle.load(file):
            count = int(np.fromfile(file, np.int64, 1)[0])
            storages[key] = np.fromfile(file, views[key], count)
    def array(key, offset, size, steps):
        flat = storages[key][offset:]
        return np.lib.stride_tricks.as_strided(flat, size, [step * flat.itemsize for step in steps])

    return {name: array(*parts) for name, parts in tensors.items()}


def efficientnet_lite0(source, path):
    """A classifier of ImageNet's 1000 classes.

    Source: efficientnet-lite-pytorch 0.1.0, model.py and utils.py: the same layers with the padding that TensorFlow calls SAME.
    """
    values = weights(source)
    nodes, initializers = [], []
    state = types.SimpleNamespace(name="images", side=224)

    def constant(name):
        initializers.append(numpy_helper.from_array(np.ascontiguousarray(values[name]), name))
        return name

    def convolution(name, norm, stride=1, active=True):
        channels, per_group, kernel, _ = values[f"{name}.weight"].shape
        to = -(-state.side // stride)
        padding = max((to - 1) * stride + kernel - state.side, 0)
        groups = channels if per_group == 1 else 1
        pads = [padding // 2] * 2 + [padding - padding // 2] * 2
        inputs = [state.name, constant(f"{name}.weight")]
        nodes.append(
            helper.make_node("Conv", inputs, [name], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=groups)
        )
        parts = [constant(f"{norm}.{part}") for part in ("weight", "bias", "running_mean", "running_var")]
        nodes.append(helper.make_node("BatchNormalization", [name, *parts], [norm], epsilon=1e-3))
        state.name, state.side = norm, to
        if active:
            nodes.append(helper.make_node("Clip", [norm, "zero", "six"], [f"{norm}.active"]))
            state.name = f"{norm}.active"

    initializers += [numpy_helper.from_array(np.float32(value), name) for name, value in (("zero", 0), ("six", 6))]
    convolution("_conv_stem", "_bn0", 2)
    number = 0
    for repeats, stride in ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1)):
        for repeat in range(repeats):
            block, before = f"_blocks.{number}", state.name
            if f"{block}._expand_conv.weight" in values:
                convolution(f"{block}._expand_conv", f"{block}._bn0")
            convolution(f"{block}._depthwise_conv", f"{block}._bn1", 1 if repeat else stride)
            convolution(f"{block}._project_conv", f"{block}._bn2", active=False)
            if repeat:
                nodes.append(helper.make_node("Add", [state.name, before], [block]))
                state.name = block
            number += 1
    convolution("_conv_head", "_bn1")
    nodes.append(helper.make_node("GlobalAveragePool", [state.name], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", constant("_fc.weight"), constant("_fc.bias")], ["logits"], transB=1))
    value = helper.make_tensor_value_info
    inputs, outputs = [value("images", TensorProto.FLOAT, [1, 3, 224, 224])], [value("logits", TensorProto.FLOAT, [1, 1000])]
    graph = helper.make_graph(nodes, pathlib.Path(path).stem, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
