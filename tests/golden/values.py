# numpy 2.4.6; python 3.11
"""Golden data for values of whole frames: synthetic outputs, and their attributes, embeddings and depths.

`python tests/golden/values.py` writes values.json beside itself; engine/tests/values_golden.rs reads it. Nothing here is taken from
the Rust: a depth cell collects the map's pixels one by one, by where each centre lies in the frame. Seeded, so that a run without
changes changes nothing.
"""
import base64
import json
import math
import pathlib

import numpy as np

rng = np.random.default_rng(20261126)
CASES = []


def number(v):
    """JSON has no infinities and no NaN."""
    v = float(v)
    return float(f"{v:.7g}") if math.isfinite(v) else str(v)


def case(name, card, size, outputs, **expected):
    CASES.append({
        "name": name, "card": card, "size": size,
        "outputs": [{"name": n, "dtype": d, "shape": list(a.shape), "data": [number(v) for v in a.ravel()]} for n, d, a in outputs],
        **expected,
    })


def short(a, digits=4):
    """Numbers that survive being written as short decimals, as float32."""
    return np.round(np.asarray(a, np.float64), digits).astype(np.float32)


def softmax(x):
    e = np.exp(np.asarray(x, np.float64) - np.max(x))
    return e / e.sum()


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


# --- Attributes -----------------------------------------------------------------------------------------------------------------
def attribute(name, output, **keys):
    """A table of the card."""
    lines = [f"[[head.attribute]]\nname = {json.dumps(name)}\noutput = {json.dumps(output)}\n"]
    return "".join(lines + [f"{key} = {json.dumps(value)}\n" for key, value in keys.items()])


HEAD = '[head]\nfamily = "attributes"\n'
colors, kinds = ["white", "grey", "yellow", "red", "green", "blue", "black"], ["car", "bus", "truck", "van"]

# OpenVINO's vehicle-attributes-recognition-barrier-0039: two softmaxes [1, N, 1, 1].
color, kind = softmax(short(rng.standard_normal(7) * 2)).astype(np.float32), softmax(short(rng.standard_normal(4) * 2)).astype(np.float32)
best = lambda scores, names: {"label": names[int(np.argmax(scores))], "score": float(np.max(scores))}
case("a vehicle's colour and type", HEAD + attribute("type", "type", classes=kinds) + attribute("color", "color", classes=colors),
     [72, 72], [("color", "f32", color.reshape(1, 7, 1, 1)), ("type", "f32", kind.reshape(1, 4, 1, 1))],
     attributes=[["type", best(kind, kinds)], ["color", best(color, colors)]])

# deepinsight/insightface python-package/insightface/model_zoo/attribute.py: gender = argmax(pred[:2]), age = pred[2] * 100.
face = short([-0.8, 1.4, 0.2731])
case("a face's gender and age", HEAD + attribute("gender", "fc1", classes=["female", "male"], column=0)
     + attribute("age", "fc1", column=2, scale=100), [96, 96], [("fc1", "f32", face.reshape(1, 3))],
     attributes=[["gender", best(softmax(face[:2]), ["female", "male"])], ["age", {"value": float(np.float64(face[2]) * 100)}]])

# Clothes of a person: a sigmoid each, in f16; a single one; a temperature with an offset.
worn, hat, heat = short(rng.standard_normal(6) * 2, 2).astype(np.float16), np.float16(-0.7), np.float16(2.5)
names = [f"w{i}" for i in range(6)]
passed = sorted(((float(s), n) for s, n in zip(sigmoid(worn), names) if s >= 0.4), reverse=True)
assert 2 <= len(passed) <= 5
case("clothes", HEAD + attribute("worn", "worn", classes=names, multi_label=True) + attribute("hat", "hat", classes=["no", "yes"])
     + attribute("heat", "heat", scale=-2, offset=20) + "[detect]\nscore_threshold = 0.4\n", [64, 128],
     [("worn", "f16", worn.reshape(1, 6)), ("hat", "f16", hat.reshape(1, 1)), ("heat", "f16", heat.reshape(1))],
     attributes=[["worn", {"labels": [{"label": n, "score": s} for s, n in passed]}],
                 ["hat", {"label": "no", "score": float(1 - sigmoid(hat))}], ["heat", {"value": 15.0}]])

# --- Embeddings -----------------------------------------------------------------------------------------------------------------
def halves(vector):
    return base64.b64encode(vector.astype(np.float32).astype("<f2").tobytes()).decode()


for name, dtype, size in (("an embedding", np.float32, 512), ("an embedding of halves", np.float16, 128)):
    vector = short(rng.standard_normal(size) * 3, 2).astype(dtype)
    wide = vector.astype(np.float64)
    kind = "f16" if dtype is np.float16 else "f32"
    case(name, '[head]\nfamily = "embedding"\n', [128, 256], [("e", kind, vector.reshape(1, size, 1, 1))],
         embedding=halves(wide / np.linalg.norm(wide)))
    case(name + " as it is", '[head]\nfamily = "embedding"\nnormalize = false\n', [128, 256], [("e", kind, vector[None])],
         embedding=halves(wide))
    # The tolerance that docs/models.md states for 16 bits.
    other = rng.standard_normal(size)
    cosine = lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    half = lambda a: (a / np.linalg.norm(a)).astype(np.float16).astype(np.float64)
    assert abs(cosine(wide, other) - cosine(half(wide), half(other))) < 1e-3


# --- Depth ----------------------------------------------------------------------------------------------------------------------
def stretched(source, size):
    return lambda axis, at: at / size[axis] * source[axis]


def letterboxed(source, size):
    """Ultralytics' LetterBox: rounded sides, bars on both sides."""
    ratio = min(size[0] / source[0], size[1] / source[1])
    sides = [round(side * ratio) for side in source]
    return lambda axis, at: (at - (size[axis] - sides[axis]) // 2) / sides[axis] * source[axis]


def cropped(source, size):
    """The largest middle of the input's shape."""
    ratio = max(size[0] / source[0], size[1] / source[1])
    kept = [side / ratio for side in size]
    return lambda axis, at: (source[axis] - kept[axis]) / 2 + at / size[axis] * kept[axis]


def reduced(depth, source, size, grid, near, back):
    """Pixel by pixel: `back` maps a place in the input to the frame."""
    height, width = depth.shape
    cells = [[] for _ in range(grid[0] * grid[1])]
    for y in range(height):
        for x in range(width):
            places = [back(0, (x + 0.5) / width * size[0]), back(1, (y + 0.5) / height * size[1])]
            parts = [place / side * count for place, side, count in zip(places, source, grid)]
            assert all(abs(part - round(part)) > 1e-4 for part in parts), "a centre on an edge proves nothing"
            if all(0 < part < count for part, count in zip(parts, grid)) and math.isfinite(depth[y, x]):
                cells[int(parts[1]) * grid[0] + int(parts[0])].append(depth[y, x])
    at = lambda f: [float(f(np.array(cell, np.float64))) if cell else None for cell in cells]
    return {"columns": grid[0], "rows": grid[1], "nearest": at(np.min if near == "smaller" else np.max), "median": at(np.median)}


def hills(width, height):
    y, x = np.mgrid[0:height, 0:width]
    return short(5 + 3 * np.sin(x / 5) + 2 * np.cos(y / 4) + rng.random((height, width)))


def depth_case(name, source, size, shape, grid, near, fit, back, dtype="f32", holes=0, keys=""):
    width, height = max(shape[-1], 1) if shape[-1] != 1 else shape[-2], shape[-2] if shape[-1] != 1 else shape[-3]
    depth = hills(width, height)
    for kind in (np.nan, np.inf, -np.inf):
        for _ in range(holes):
            depth[rng.integers(height), rng.integers(width)] = kind
    depth = depth.astype(np.float16 if dtype == "f16" else np.float32)
    card = f'[head]\nfamily = "depth"\ngrid = {list(grid)}\nnearer = "{near}"\n[input]\nfit = "{fit}"\n{keys}'
    case(name, card, list(size), [("depth", dtype, depth.reshape(shape))], source=list(source),
         depth=reduced(depth, source, size, grid, near, back(source, size)))


depth_case("depth, stretched", (1280, 720), (74, 42), (1, 36, 40), (8, 6), "larger", "stretch", stretched)
depth_case("depth in a letterbox", (333, 187), (80, 80), (1, 1, 39, 40), (5, 4), "smaller", "letterbox", letterboxed, holes=30)
depth_case("depth in a letterbox of a high frame", (187, 411), (96, 64), (1, 31, 47, 1), (3, 7), "larger", "letterbox", letterboxed, "f16")
depth_case("depth in a crop", (1000, 400), (50, 50), (1, 28, 28), (9, 4), "smaller", "crop", cropped)

path = pathlib.Path(__file__).with_name("values.json")
path.write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in CASES) + "\n]\n")
print(f"{len(CASES)} cases, {path.stat().st_size} bytes")
