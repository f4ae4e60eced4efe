#!/usr/bin/env python3
"""Opens the batch of NanoDet-g, which was exported for one picture: as an export with an open batch would be. Needs Python alone.

    open_batch.py MODEL.onnx OUT.onnx

The first dimension of input and output becomes "batch", that of each Reshape 0, which is "as it is", and Resize gets factors instead of
sizes. https://github.com/onnx/onnx/blob/main/onnx/onnx.proto has the numbers of the fields.
"""

import struct
import sys

GRAPH, NODE, INITIALIZER, INPUT, OUTPUT, VALUE = 7, 1, 5, 11, 12, 13
NODE_INPUT, NODE_TYPE = 1, 4
TENSOR_DIMS, TENSOR_TYPE, TENSOR_INT64, TENSOR_NAME, TENSOR_RAW = 1, 2, 7, 8, 9
FLOAT, INT64 = 1, 7


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def number(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def fields(message):
    """Number, kind and value of each field: bytes of kind 2, else a number."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(message, at)
        else:
            size, at = varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = message[at : at + size], at + size
        yield key >> 3, kind, value


def written(message):
    out = bytearray()
    for field, kind, value in message:
        out += number(field << 3 | kind)
        if kind == 0:
            out += number(value)
        else:
            out += (number(len(value)) if kind == 2 else b"") + value
    return bytes(out)


def within(message, path, new):
    """The message with `new` of the first field that the path of numbers leads to."""
    fields_now, (first, *rest) = list(fields(message)), path
    index = next(at for at, field in enumerate(fields_now) if field[0] == first)
    value = fields_now[index][2]
    fields_now[index] = (first, 2, within(value, rest, new) if rest else new(value))
    return written(fields_now)


def text(message, wanted):
    return [value.decode() for field, _, value in fields(message) if field == wanted]


def integers(tensor):
    values = []
    for field, kind, value in fields(tensor):
        if field == TENSOR_RAW:
            values += struct.unpack(f"<{len(value) // 8}q", value)
        elif field == TENSOR_INT64 and kind == 0:
            values.append(value)
        elif field == TENSOR_INT64:
            at = 0
            while at < len(value):
                one, at = varint(value, at)
                values.append(one)
    return values


def tensor(name, kind, raw, count):
    return written([(TENSOR_DIMS, 0, count), (TENSOR_TYPE, 0, kind), (TENSOR_NAME, 2, name.encode()), (TENSOR_RAW, 2, raw)])


def opened(graph):
    graph = list(fields(graph))
    shapes = {text(value, TENSOR_NAME)[0]: integers(value) for field, _, value in graph if field == INITIALIZER}
    is_of = lambda node, operator: text(node, NODE_TYPE) == [operator]
    constants, before, out = {}, None, []
    for field, kind, value in graph:
        if field in (INPUT, OUTPUT):
            # Type, tensor, shape, the first dimension.
            value = within(value, [2, 1, 2, 1], lambda _: written([(2, 2, b"batch")]))
        elif field == NODE and is_of(value, "Reshape"):
            name = text(value, NODE_INPUT)[1]
            shape = [0, *shapes[name][1:]]
            constants[name] = tensor(name, INT64, struct.pack(f"<{len(shape)}q", *shape), len(shape))
        elif field == NODE and is_of(value, "Resize"):
            # The smallest map is enlarged step by step, and the largest made small again.
            picture, _, _, sizes = text(value, NODE_INPUT)
            size = shapes[sizes][2]
            factor = size / (before or size / 2)
            before, name = size, f"times_{factor}"
            constants[name] = tensor(name, FLOAT, struct.pack("<4f", 1, 1, factor, factor), 4)
            others = [field for field in fields(value) if field[0] != NODE_INPUT]
            value = written([(NODE_INPUT, 2, name.encode()) for name in (picture, "", name)] + others)
        is_replaced = field == INITIALIZER and text(value, TENSOR_NAME)[0] in constants
        # Shapes that follow from the input's need not be stated.
        if field != VALUE and not is_replaced:
            out.append((field, kind, value))
    return written(out + [(INITIALIZER, 2, constant) for constant in constants.values()])


def main():
    model, out = sys.argv[1:]
    with open(model, "rb") as file:
        before = file.read()
    try:
        changed = within(before, [GRAPH], opened)
    except (struct.error, ValueError, LookupError, StopIteration):
        sys.exit(f"{model} is not NanoDet-g as it was exported: name config/models/nanodet-g-416.onnx")
    with open(out, "wb") as file:
        file.write(changed)


if __name__ == "__main__":
    main()
