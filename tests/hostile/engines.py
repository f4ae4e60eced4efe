"""TensorRT engine files with false headers, and the files beside them."""

import json
import os
import struct

from cases import CONFIG, DONE, INPUT, MODEL, Case, cut, nasty


def plan(magic=b"ftrt", version=(10, 3, 0, 1), size=64, gpus=9):
    return magic + bytes(12) + struct.pack("<Q", size) + bytes(version) + bytes(4) + struct.pack("<Q", gpus) + bytes(24)


def wrapped(notes, engine):
    """As Ultralytics writes it: the notes' length, the notes, the engine."""
    notes = notes if isinstance(notes, bytes) else json.dumps(notes).encode()
    return struct.pack("<I", len(notes)) + notes + engine


def sidecar(**changes):
    told = {
        "visiond": "0.1.0", "built_at": "2026-01-31T12:00:00Z", "build_seconds": 12.5, "engine": {"sha256": "ab"}, "tensorrt": "TensorRT 10.3.0",
        "cuda": "12.6", "gpu": "Orin", "sm": "8.7", "compute_capabilities": [], "options": ["--fp16"], "onnx": {"path": "net.onnx", "sha256": "cd"},
        "profiles": [{"images": "1x3x640x640"}], "precision": "fp16", "metadata": {"names": "{0: 'person'}"},
    }  # fmt: skip
    return json.dumps({**told, **changes}).encode()


def contents(rng):
    for at, content in enumerate(cut(plan(), rng, 10)):
        yield f"cut-{at:02}", content
    for magic in (b"ftrt", b"ptrt", b"vtrt"):
        for version in ((0, 0, 0, 0), (255, 255, 255, 255), (8, 6, 1, 0)):
            yield f"version-{magic.decode()}-{version[0]}", plan(magic, version)
    for size in (0, 1, 1 << 40, (1 << 64) - 1):
        yield f"size-{size}", plan(b"vtrt", size=size)
    yield "gpus-all", plan(b"vtrt", gpus=(1 << 64) - 1)
    notes = {"names": {"0": "person"}, "stride": 32, "task": "detect"}
    for at, content in enumerate(cut(wrapped(notes, plan()), rng, 10)):
        yield f"wrapped-cut-{at:02}", content
    for length in (0, 15 << 20, 17 << 20, (1 << 32) - 1):
        yield f"wrapped-length-{length}", struct.pack("<I", length) + wrapped(notes, plan())[4:]
    yield "wrapped-twice", wrapped(notes, wrapped(notes, plan()))
    yield "wrapped-nested", wrapped(b'{"a":' * 100_000 + b"0" + b"}" * 100_000, plan())
    yield "wrapped-array", wrapped(b'{"names": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", plan())
    yield "wrapped-numbers", wrapped(b'{"stride": 1e999, "imgsz": [99999999999999999999999, -1], "names": {"-1": 1}}', plan())
    for name, text in nasty().items():
        text = text.decode("utf-8", "replace")
        yield f"wrapped-name-{name}", wrapped({**notes, "names": {"0": text}, text: text, "author": "Ultralytics"}, plan())


def beside():
    """Sidecars."""
    for name, content in {
        "empty": b"", "text": b"hello", "number": b"1e999", "list": b"[]", "nested": b"[" * 200_000, "nested-object": b'{"a":' * 200_000, "cut": sidecar()[:100], "null": b"\0" * 100,
        "utf16": b"\xff\xfe" + "{}".encode("utf-16-le"), "twice": sidecar()[:-1] + b',"gpu":"x"}', "seconds": sidecar(build_seconds=1e308), "negative": sidecar(build_seconds=-1),
        "types": sidecar(options="x"), "options-100000": sidecar(options=["x"] * 100_000), "10MB": sidecar(gpu="x" * (10 << 20)), "path": sidecar(onnx={"path": "../../../../etc/passwd", "sha256": ""}),
    }.items():  # fmt: skip
        yield name, content
    for name, text in nasty().items():
        text = text.decode("utf-8", "replace")
        yield f"name-{name}", sidecar(visiond=text, built_at=text, tensorrt=text, gpu=text, sm=text, cuda=text, options=[text], precision=text, onnx={"path": text, "sha256": text}, metadata={text: text})


def cases(folder, rng, picture):
    place = folder / "engines"
    place.mkdir()
    paths = []

    def write(name, content, told=None):
        path = place / f"{name}.engine"
        path.write_bytes(content)
        if told is not None:
            (place / f"{name}.engine.json").write_bytes(told)
        paths.append(("an engine file", path))

    for name, content in contents(rng):
        write(name, content)
    write("empty", b"")
    write("onnx", b"\x08\x08\x12\x01x")
    for name, told in beside():
        write(f"sidecar-{name}", plan(), told)
        paths[-1] = ("an engine's sidecar", paths[-1][1])
    for name, make in {
        "fifo": os.mkfifo, "folder": os.mkdir, "device": lambda path: os.symlink("/dev/zero", path), "circle": lambda path: os.symlink(path, path),
        "memory": lambda path: os.symlink("/proc/self/mem", path),
    }.items():  # fmt: skip
        write(f"sidecar-{name}", plan())
        make(place / f"sidecar-{name}.engine.json")
        paths[-1] = ("an engine's sidecar", paths[-1][1])
    for kind, path in paths:
        for format in ([], ["--json"], ["--layers"]):
            yield Case(f"inspect: {kind}", f"{path.stem}{''.join(format)}", ["inspect", *format, path], path.name, (DONE, MODEL))
        yield Case(f"detect: {kind}", path.stem, ["detect", "--model", path, picture], path.name, (CONFIG, MODEL, INPUT))
