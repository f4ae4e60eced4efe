"""ONNX files, written field by field: valid ones, and every kind of malicious one."""

import os
import struct

from cases import CONFIG, DONE, MODEL, Case, cut, damaged, nasty

FLOAT, INT64, STRING, BOOL = 1, 7, 8, 9
# Attributes' kinds.
INT, GRAPH = 2, 5
CARD = b'name = "hostile"\n[head]\nfamily = "classifier"\n[classes]\nnames = ["a", "b", "c"]\n'


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def node(operator, inputs, outputs, *attributes, domain=""):
    parts = [*(message(1, name) for name in inputs), *(message(2, name) for name in outputs), message(4, operator)]
    return b"".join([*parts, *(message(5, attribute) for attribute in attributes), message(7, domain) if domain else b""])


def attribute(name, kind, field, value):
    return message(1, name) + (number(field, value) if isinstance(value, int) else message(field, value)) + number(20, kind)


def tensor(name, kind, dims, data=b"", *more):
    return b"".join([*(number(1, size) for size in dims), number(2, kind), message(8, name), message(9, data) if data else b"", *more])


def value(name, dims=(1, 3, 32, 32), kind=FLOAT):
    shape = b"".join(message(1, number(1, size) if isinstance(size, int) else message(2, size)) for size in dims)
    return message(1, name) + message(2, message(1, number(1, kind) + message(2, shape)))


def external(name, place, **entries):
    """A tensor whose data is in another file."""
    pairs = {"location": place, **entries}
    return tensor(name, FLOAT, (4,), b"", *(message(13, message(1, key) + message(2, str(text) if not isinstance(text, bytes) else text)) for key, text in pairs.items()), number(14, 1))


def model(nodes=(), weights=(), *, inputs=None, outputs=None, values=(), graph=b"", more=b"", opset=13, producer="hostile", extra="means"):
    """A classifier of 32 x 32 pictures with three classes, and what is added."""
    base = [node("GlobalAveragePool", ["images"], ["means"]), node("Flatten", ["means"], ["scores"]), *nodes]
    base.append(node("Identity", ["scores"], ["output"]) if extra == "means" else node("Add", ["scores", extra], ["output"]))
    inputs = [value("images")] if inputs is None else inputs
    outputs = [value("output", (1, 3))] if outputs is None else outputs
    lists = [(1, base), (5, weights), (11, inputs), (12, outputs), (13, values)]
    content = b"".join(message(field, one) for field, ones in lists for one in ones) + message(2, "hostile") + graph
    return number(1, 8) + message(2, producer) + message(7, content) + message(8, message(1, "") + number(2, opset)) + more


def nested_type(levels):
    kind = message(1, number(1, FLOAT))
    for _ in range(levels):
        kind = message(4, message(1, kind))
    return kind


def nested_graph(levels):
    graph = message(1, node("Identity", ["a"], ["b"]))
    for _ in range(levels):
        graph = message(1, node("If", ["yes"], ["b"], attribute("then_branch", GRAPH, 6, graph)))
    return graph


def functions(*bodies):
    """Functions of the domain `f`: name and nodes of each."""
    opset = message(9, message(1, "") + number(2, 13))
    listed = [message(1, name) + message(10, "f") + message(4, "x") + message(5, "y") + b"".join(message(7, one) for one in nodes) + opset for name, nodes in bodies]
    return b"".join(message(25, one) for one in listed) + message(8, message(1, "f") + number(2, 1))


def call(name, first="x", last="y"):
    return node(name, [first], [last], domain="f")


def props(**pairs):
    return b"".join(message(14, message(1, key) + message(2, text)) for key, text in pairs.items())


def ints(name, *numbers):
    return tensor(name, INT64, (len(numbers),), struct.pack(f"<{len(numbers)}q", *numbers))


def body(condition, operators=()):
    """The body of a loop that continues while `condition` holds."""
    inputs, outputs = [value("round", (), INT64), value("go", (), BOOL), value("state", ())], [value("on", (), BOOL), value("next", ())]
    nodes = [node("Identity", [condition], ["on"]), *(operators or [node("Identity", ["state"], ["next"])])]
    lists = [(1, nodes), (11, inputs), (12, outputs)]
    return attribute("body", GRAPH, 6, b"".join(message(field, one) for field, ones in lists for one in ones) + message(2, "body"))


def shapes():
    """Models whose memory or time is known only when they run."""
    zero, one, yes = tensor("zero", FLOAT, (), struct.pack("<f", 0)), tensor("first", INT64, (), struct.pack("<q", 0)), tensor("yes", BOOL, (), b"\1")
    nothing = [node("ReduceMax", ["images"], ["most"], attribute("keepdims", INT, 3, 0)), node("Mul", ["most", "zero"], ["nothing"])]
    count = [
        *nothing, node("Add", ["nothing", "count"], ["large"]), node("Cast", ["large"], ["whole"], attribute("to", INT, 3, INT64)),
        node("Reshape", ["whole", "one"], ["shape"]),
    ]  # fmt: skip
    weights = lambda size: [zero, one, yes, ints("one", 1), tensor("count", FLOAT, (), struct.pack("<f", size))]
    taken = node("Gather", ["many", "first"], ["extra"])
    for size in (2e9, 1e12, 4e18):
        yield f"fill-{size:.0e}", model([*count, node("ConstantOfShape", ["shape"], ["many"]), taken], weights(size), extra="extra")
        yield f"expand-{size:.0e}", model([*count, node("Expand", ["nothing", "shape"], ["many"]), taken], weights(size), extra="extra")
    flat = [*nothing, node("Reshape", ["nothing", "one"], ["flat"])]
    yield "tile", model([*flat, node("Tile", ["flat", "times"], ["many"]), taken], [zero, one, ints("one", 1), ints("times", 1 << 40)], extra="extra")
    yield "tile-negative", model([*flat, node("Tile", ["flat", "times"], ["many"]), taken], [zero, one, ints("one", 1), ints("times", -1)], extra="extra")
    limits = lambda step: [zero, one, *(tensor(name, FLOAT, (), struct.pack("<f", x)) for name, x in (("end", 1e12), ("step", step)))]
    for name, step in (("range", 1), ("range-still", 0), ("range-nan", float("nan")), ("range-tiny", 1e-38)):
        yield name, model([*nothing, node("Range", ["nothing", "end", "step"], ["many"]), taken], limits(step), extra="extra")
    for name, scale in (("resize", 1e6), ("resize-negative", -4.0), ("resize-nan", float("nan")), ("resize-inf", float("inf"))):
        scales = tensor("scales", FLOAT, (4,), struct.pack("<4f", 1, 1, scale, scale))
        yield name, model([node("Resize", ["images", "", "scales"], ["large"]), node("ReduceMax", ["large"], ["extra"], attribute("keepdims", INT, 3, 0))], [scales], extra="extra")
    pads = ints("pads", 0, 0, 0, 0, 0, 0, 1 << 24, 1 << 24)
    yield "pad", model([node("Pad", ["images", "pads"], ["large"]), node("ReduceMax", ["large"], ["extra"], attribute("keepdims", INT, 3, 0))], [pads], extra="extra")
    yield "reshape-huge", model([node("Reshape", ["scores", "to"], ["wide"])], [ints("to", 1 << 62, -1)])
    yield "one-hot", model(
        [*nothing, node("Cast", ["nothing"], ["whole"], attribute("to", INT, 3, INT64)), node("Reshape", ["whole", "one"], ["at"]),
         node("OneHot", ["at", "depth", "pair"], ["many2"]), node("ReduceMax", ["many2"], ["extra"], attribute("keepdims", INT, 3, 0))],
        [zero, ints("one", 1), tensor("depth", INT64, (), struct.pack("<q", 1 << 40)), tensor("pair", FLOAT, (2,), struct.pack("<2f", 0, 1))], extra="extra",
    )  # fmt: skip
    yield "loop", model([*nothing, node("Loop", ["", "yes", "nothing"], ["extra"], body("go"))], [zero, yes], extra="extra")
    growing = [node("Concat", ["state", "state"], ["next"], attribute("axis", INT, 3, 0))]
    yield "loop-grows", model(
        [*flat, node("Loop", ["", "yes", "flat"], ["many"], body("go", growing)), taken], [zero, one, yes, ints("one", 1)], extra="extra"
    )
    yield "loop-count", model([*nothing, node("Loop", ["rounds", "", "nothing"], ["extra"], body("go"))], [zero, tensor("rounds", INT64, (), struct.pack("<q", 1 << 62))], extra="extra")
    scan = message(1, node("Identity", ["state"], ["next"])) + message(2, "scan") + message(11, value("state", ())) + message(11, value("row", ())) + message(12, value("next", ()))
    yield "scan", model(
        [*count, node("ConstantOfShape", ["shape"], ["many"]), node("Scan", ["nothing", "many"], ["extra"], attribute("body", GRAPH, 6, scan), attribute("num_scan_inputs", INT, 3, 1))],
        weights(1e10), extra="extra",
    )  # fmt: skip
    yield "if-without-branches", model([*nothing, node("If", ["yes"], ["extra"])], [zero, yes], extra="extra")
    branch = message(1, node("ConstantOfShape", ["far"], ["b"])) + message(2, "b") + message(5, ints("far", 1 << 40)) + message(12, value("b", ("n",)))
    both = [attribute(name, GRAPH, 6, branch) for name in ("then_branch", "else_branch")]
    yield "if", model([*nothing, node("If", ["yes"], ["many"], *both), taken], [zero, one, yes], extra="extra")
    yield "matmul", model(
        [*count, node("ConstantOfShape", ["shape"], ["many"]), node("Unsqueeze", ["many", "first1"], ["row"]), node("Transpose", ["row"], ["column"]),
         node("MatMul", ["column", "row"], ["square"]), node("ReduceMax", ["square"], ["extra"], attribute("keepdims", INT, 3, 0))],
        [*weights(1e6), ints("first1", 0)], extra="extra",
    )  # fmt: skip


def wrong(rng):
    """Files that are invalid, or contradict themselves."""
    good = model([node("Add", ["scores", "bias"], ["more"])], [tensor("bias", FLOAT, (1, 3), bytes(12))], more=props(names="{0: 'a', 1: 'b', 2: 'c'}", task="classify"))
    for at, content in enumerate(cut(good, rng, 16)):
        yield f"cut-{at:02}", content
    for at, content in enumerate(damaged(good, rng, 24)):
        yield f"damaged-{at:02}", content
    # Each field of the model with a value of another kind.
    for field in (1, 2, 7, 8, 14, 20, 25):
        yield f"wire-number-{field}", number(1, 8) + number(field, 1 << 63) + good
        yield f"wire-eight-{field}", good + varint(field << 3 | 1) + bytes(8)
        yield f"wire-length-{field}", good + varint(field << 3 | 2) + varint((1 << 64) - 1)
    for name, tag in (("group", 3), ("reserved", 7), ("field-zero", 2), ("field-huge", (1 << 35) | 2)):
        yield f"wire-{name}", good + varint(tag) + b"\1\1"
    yield "varint-endless", good + b"\xff" * 64
    yield "ir-zero", number(1, 0) + good[2:]
    yield "ir-huge", number(1, (1 << 63) - 1) + good[2:]
    for size in (0, -1, 1 << 31, (1 << 63) - 1):
        yield f"input-{size}", model(inputs=[value("images", (1, 3, size, size))])
        yield f"output-{size}", model(outputs=[value("output", (1, size))])
    yield "input-rank-0", model(inputs=[value("images", ())])
    yield "input-rank-100000", model(inputs=[value("images", (1,) * 100_000)])
    yield "inputs-100000", model(inputs=[value("images"), *(value(f"i{at}") for at in range(100_000))])
    yield "outputs-100000", model(outputs=[value(f"o{at}", (1, 84, 8400)) for at in range(100_000)])
    yield "outputs-none", model(outputs=[])
    yield "inputs-none", model(inputs=[])
    yield "nodes-100000", model([node("Identity", ["scores"], [f"n{at}"]) for at in range(100_000)])
    yield "metadata-100000", model(more=b"".join(message(14, message(1, f"k{at}") + message(2, "v")) for at in range(100_000)))
    yield "operators-100000", model([node(f"Op{at}", ["scores"], [f"n{at}"]) for at in range(100_000)])
    yield "padding-10MB", model(more=message(6, b"\x1b[31m" * (2 << 20)))
    yield "types-nested", model(values=[message(1, "deep") + message(2, nested_type(20_000))])
    yield "graphs-nested", model(nodes=[node("If", ["yes"], ["x"], attribute("then_branch", GRAPH, 6, nested_graph(5_000)))])
    yield "attributes-nested", model(nodes=[node("If", ["yes"], ["x"], attribute("then_branch", GRAPH, 6, nested_graph(31)))])
    yield "function-calls-itself", model([call("a", "scores", "z")], more=functions(("a", [call("a")])))
    yield "functions-in-a-circle", model([call("a", "scores", "z")], more=functions(("a", [call("b")]), ("b", [call("a")])))
    tower = [(f"f{at}", [call(f"f{at + 1}"), call(f"f{at + 1}")]) for at in range(30)]
    yield "functions-double", model([call("f0", "scores", "z")], more=functions(*tower, ("f30", [node("Identity", ["x"], ["y"])])))
    chain = [(f"f{at}", [call(f"f{at + 1}")]) for at in range(5_000)]
    yield "functions-chain", model([call("f0", "scores", "z")], more=functions(*chain, ("f5000", [node("Identity", ["x"], ["y"])])))
    yield "two-graphs", good + good[2:]
    yield "graph-in-itself", number(1, 8) + message(7, good) + message(8, number(2, 13))
    yield "names-twice", model([node("Identity", ["scores"], ["means"])], [tensor("bias", FLOAT, (1,), bytes(4)) for _ in range(2)], inputs=[value("images"), value("images")])
    yield "cycle", model([node("Add", ["scores", "later"], ["sooner"]), node("Identity", ["sooner"], ["later"])], extra="later")
    yield "node-of-itself", model([node("Add", ["scores", "self"], ["self"])], extra="self")
    yield "unknown-input", model([node("Identity", ["nowhere"], ["extra"])], extra="extra")
    yield "unknown-operator", model([node("Shell", ["scores"], ["extra"], attribute("command", 3, 4, "rm -rf /"))], extra="extra")
    for opset in (0, -1, 1_000_000_000, (1 << 63) - 1):
        yield f"opset-{opset}", model(opset=opset)
    # Weights of every type: short, long, and in another type's field.
    for kind in (*range(27), 99, 1 << 31, -1):
        yield f"weights-type-{kind}", model(weights=[tensor("w", kind, (3, 5), b"\1" * 7)])
    for kind in (FLOAT, INT64, STRING, BOOL):
        yield f"weights-field-{kind}", model(weights=[tensor("w", kind, (2,), b"", message(10, bytes(16)))])
        yield f"weights-overflow-{kind}", model(weights=[tensor("w", kind, (1 << 32, 1 << 32, 4), b"")])
        yield f"weights-negative-{kind}", model(weights=[tensor("w", kind, (-1, 4), bytes(16))])
    yield "weights-rank", model(weights=[tensor("w", FLOAT, (1,) * 5_000, bytes(4))])
    yield "weights-empty-huge", model(weights=[tensor("w", FLOAT, (0, 1 << 62), b"")])
    sparse = lambda indices, dims: message(1, tensor("values", FLOAT, (1,), bytes(4))) + message(2, indices) + b"".join(number(3, size) for size in dims)
    yield "sparse-outside", model(graph=message(15, sparse(ints("at", 1 << 40), (4,))))
    yield "sparse-huge", model(graph=message(15, sparse(ints("at", 0), (1 << 40, 1 << 40))))
    # Python's dict as Ultralytics writes it, and everything but that.
    ultralytics = dict(author="Ultralytics", task="detect", stride="32", imgsz="[32, 32]", names="{0: 'a'}")
    for key, texts in {
        "names": [
            "{", "{0: 'a'", "{0: 'a\\", "{" * 100_000, "{0: " * 50_000, "[" * 100_000, "{99999999999999999999: 'a'}", "{4294967295: 'a'}", "{-1: 'a'}", "{0: 'a', 0: 'b'}",
            "{0: '\\ud800\\U7fffffff\\N{BULLET}'}", "{0: '\x1b[31m\x1b]0;x\x07', 1: '\u202e', 2: '\x9b2J'}", "{0: __import__('os').system('id')}", "{1e999: 'a'}", "{True: None}",
            str({at: "x" for at in range(100_000)}), "{0: '" + "x" * (1 << 20) + "'}", "['a', ['b']]", "",
        ],
        "imgsz": ["[-1, -1]", "[99999999999, 99999999999]", "[0, 0]", "[32]", "[32, 32, 32]", "32.5", "[1e9, NaN]", "[[[[", "x" * 100_000],
        "stride": ["0", "-32", "99999999999999999999", "NaN", "{}"],
        "task": ["", "destroy", "\x1b[2J", "detect\0"],
        "kpt_shape": ["[0, 0]", "[99999999, 3]", "[-17, 3]", "[17]"],
        "channels": ["0", "-1", "99999999999"],
        "end2end": ["maybe", "[" * 10_000],
        "args": ["{'nms': " * 10_000, "{'nms': True, 'batch': -1}"],
    }.items():  # fmt: skip
        for at, text in enumerate(texts):
            outputs = [value("output", (1, 56 if key == "kpt_shape" else 5, 21))]
            yield f"ultralytics-{key}-{at:02}", model(outputs=outputs, more=props(**{**ultralytics, "task": "pose" if key == "kpt_shape" else "detect", key: text}))
    # Names that a terminal would act on, everywhere.
    for name, text in nasty().items():
        yield f"name-input-{name}", model(inputs=[value("images"), value(text)])
        yield f"name-output-{name}", model(outputs=[value("output", (1, 3)), value(text, (1, 3))])
        yield f"name-dimension-{name}", model(inputs=[value("images", (1, 3, text, text))])
        yield f"name-operator-{name}", model([node(text, ["scores"], ["z"], domain=text)])
        yield f"name-producer-{name}", model(producer=text, more=props(author=text) + message(14, message(1, text) + message(2, text)))
        yield f"name-opset-{name}", model(more=message(8, message(1, text) + number(2, 1)))
        yield f"name-weights-{name}", model(weights=[tensor(text, FLOAT, (3,), b"\1")])
        yield f"name-type-{name}", model(inputs=[value(text, (1,), 11), value("images")])


def beside(folder):
    """Models whose weights are said to be in another file."""
    secret = folder / "outside/secret.bin"
    secret.parent.mkdir(exist_ok=True)
    secret.write_bytes(b"secret" * 100)
    home = folder / "beside"
    home.mkdir()
    (home / "weights.bin").write_bytes(bytes(16))
    (home / "folder").mkdir()
    os.mkfifo(home / "fifo")
    (home / "link").symlink_to(secret)
    (home / "device").symlink_to("/dev/zero")
    (home / "circle").symlink_to("circle")
    with open(home / "sparse.bin", "wb") as sparse:
        sparse.truncate(1 << 40)
    places = {
        "parent": "../outside/secret.bin", "absolute": str(secret), "zero": "/dev/zero", "memory": "/proc/self/mem", "fifo": "fifo", "link": "link", "device": "device",
        "circle": "circle", "folder": "folder", "missing": "missing.bin", "empty": "", "dot": ".", "null": "weights.bin\0.png", "in-memory": "*/_ORT_MEM_ADDR_/*", "url": "file:///etc/passwd",
        "long": "x" * 100_000, "dots": "./folder/../../outside/secret.bin", "tilde": "~/.ssh/id_rsa",
    }  # fmt: skip
    for name, place in places.items():
        yield home, f"outside-{name}", model(weights=[external("w", place)])
    for name, text in nasty().items():
        yield home, f"outside-name-{name}", model(weights=[external("w", text)])
    numbers = {"offset": dict(offset=1 << 62), "offset-end": dict(offset=(1 << 64) - 1), "offset-negative": dict(offset=-8), "length": dict(length=1 << 62), "length-short": dict(length=1),
               "text": dict(offset="one"), "float": dict(offset="1e3", length="0x10"), "past": dict(offset=4096), "huge": dict(offset=10**40)}  # fmt: skip
    for name, entries in numbers.items():
        yield home, f"place-{name}", model(weights=[external("w", "weights.bin", **entries)])
    large = [*(number(1, size) for size in (1 << 37,)), number(2, FLOAT), message(8, "w"), message(13, message(1, "location") + message(2, "sparse.bin")), number(14, 1)]
    yield home, "sparse-terabyte", model(weights=[b"".join(large)])


def not_files(folder):
    """Paths that are not files, and files that cannot be read to the end."""
    place = folder / "nothing"
    place.mkdir()
    (place / "folder.onnx").mkdir()
    os.mkfifo(place / "fifo.onnx")
    (place / "circle.onnx").symlink_to("circle.onnx")
    (place / "device.onnx").symlink_to("/dev/zero")
    (place / "memory.onnx").symlink_to("/proc/self/mem")
    (place / "endless.onnx").symlink_to("/proc/kcore")
    (place / "empty.onnx").write_bytes(b"")
    (place / "locked.onnx").write_bytes(model())
    (place / "locked.onnx").chmod(0)
    for name, head in (("zeros", b""), ("ends-nowhere", model() + message(6, b"")[:1] + varint(3 << 30)), ("engine", b"ftrt" + bytes(20) + bytes([10, 3, 0, 1]))):
        with open(place / f"sparse-{name}.onnx", "wb") as sparse:
            sparse.write(head)
            sparse.truncate(64 << 30)
    (place / "picture.onnx").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    (place / "script.onnx").write_bytes(b"#!/bin/sh\nid\n")
    (place / "zip.onnx").write_bytes(b"PK\3\4" + bytes(64))
    (place / "pickle.onnx").write_bytes(b"\x80\x02cos\nsystem\n(S'id'\ntR.")
    (place / "hdf5.onnx").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))
    (place / "missing.onnx").unlink(missing_ok=True)
    for path in sorted([*place.iterdir(), place / "missing.onnx"]):
        yield path


def files(folder, rng):
    """Writes every file; yields the kind and the path."""
    place = folder / "models"
    place.mkdir()
    for kind, home, name, content in [
        *(("a wrong ONNX file", place, name, content) for name, content in wrong(rng)),
        *(("ONNX that asks for too much as it runs", place, name, content) for name, content in shapes()),
        *(("ONNX with weights elsewhere", *one) for one in beside(folder)),
    ]:
        path = home / f"{name}.onnx"
        path.write_bytes(content)
        yield kind, path
    for path in not_files(folder):
        yield "no model at all", path


def cases(folder, rng, picture, backends):
    """Every file for `inspect`, as text and JSON, and for `detect`."""
    card = folder / "classifier.toml"
    card.write_bytes(CARD)
    for kind, path in files(folder, rng):
        for format in ([], ["--json"]):
            yield Case(f"inspect: {kind}", f"{path.stem}{''.join(format)}", ["inspect", *format, path], path.stem, (DONE, CONFIG, MODEL))
        # A model that only looks wrong runs; of each kind of fault that damage makes, a few are enough.
        if path.stem.startswith(("cut-", "damaged-")) and int(path.stem[-2:]) % 4:
            continue
        for backend in backends:
            with_card = [] if path.stem.startswith("ultralytics-") else ["--card", card]
            arguments = ["detect", "--backend", backend, "--load-timeout", "3s", "--model", path, *with_card, picture]
            yield Case(f"detect: {kind}", f"{path.stem}-{backend}", arguments, path.stem, (DONE, CONFIG, MODEL))
