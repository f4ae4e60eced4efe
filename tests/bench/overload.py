#!/usr/bin/env python3
# numpy 2.4.6, onnx 1.23.2, onnxruntime 1.32.0
"""More frames than the engine can process: how old are the published results, and does memory stay flat?

    overload.py [--visiond BIN] [--minutes M]

Makes a model that takes 200 ms a frame on this machine (NanoDet behind as many convolutions as that needs), feeds it
30 frames/s of the test pattern, and requires that the age at publishing at p99 is at most one engine time (p99 too) plus two
frame intervals, and a resident set that does not grow.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import helper, numpy_helper

# Its telemetry writes to the home folder and would be sent.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "config/models/nanodet-g-416.onnx"
FPS, ENGINE_MS = 30, 200
CONFIG = """
[engine]
threads = 1
[[model]]
name = "slow"
path = "slow.onnx"
card = "nanodet.toml"
[[camera]]
name = "pattern"
[camera.source]
type = "pattern"
width = 1280
height = 720
fps = 30
[[sink]]
type = "file"
path = "out.jsonl"
"""


def slowed(convolutions, path):
    """NanoDet whose input has passed through `convolutions` that change nothing."""
    model = onnx.load(MODEL)
    graph = model.graph
    source = graph.input[0].name
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name == source:
                node.input[i] = "fed"
    rng = np.random.default_rng(0)

    def weight(name, *shape):
        return numpy_helper.from_array((rng.standard_normal(shape) * 0.05).astype(np.float32), name)

    zero = numpy_helper.from_array(np.float32(0), "slow_zero")
    extra = [weight("slow_w0", 16, 3, 3, 3), weight("slow_w", 16, 16, 3, 3), zero]
    nodes = [helper.make_node("Conv", [source, "slow_w0"], ["slow_0"], pads=[1, 1, 1, 1])]
    for i in range(convolutions):
        nodes.append(helper.make_node("Conv", [f"slow_{i}", "slow_w"], [f"slow_{i + 1}"], pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("ReduceMean", [f"slow_{convolutions}"], ["slow_mean"], keepdims=1, axes=[1, 2, 3]))
    nodes.append(helper.make_node("Mul", ["slow_mean", "slow_zero"], ["slow_nothing"]))
    nodes.append(helper.make_node("Add", [source, "slow_nothing"], ["fed"]))
    old = list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes + old)
    graph.initializer.extend(extra)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def run_ms(path):
    """Median milliseconds of one run, one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: np.zeros((1, 3, 416, 416), np.float32)}
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        session.run(None, feed)
        times.append((time.perf_counter() - begin) * 1e3)
    return sorted(times)[3]


def resident_kib(pid):
    """VmRSS."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--minutes", type=float, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        slowed(1, folder / "one.onnx")
        slowed(11, folder / "eleven.onnx")
        base = run_ms(folder / "one.onnx")
        each = (run_ms(folder / "eleven.onnx") - base) / 10
        slowed(max(1, 1 + round((ENGINE_MS - base) / each)), folder / "slow.onnx")
        print(f"the model takes {run_ms(folder / 'slow.onnx'):.0f} ms", flush=True)
        shutil.copy(MODEL.with_suffix(".toml"), folder / "nanodet.toml")
        (folder / "visiond.toml").write_text(CONFIG)
        daemon = subprocess.Popen([args.visiond, "run", str(folder / "visiond.toml")], stderr=subprocess.DEVNULL)
        resident = []
        until = time.monotonic() + args.minutes * 60
        try:
            while time.monotonic() < until:
                time.sleep(1)
                if daemon.poll() is not None:
                    print(f"visiond ended with status {daemon.returncode}")
                    return 1
                resident.append(resident_kib(daemon.pid))
        finally:
            daemon.terminate()
            daemon.wait()
        messages = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()][5:]
    ages = np.array([m["timings_us"]["total"] for m in messages]) / 1e3
    engine = np.array([m["timings_us"]["infer"] for m in messages]) / 1e3
    bound = np.percentile(engine, 99) + 2e3 / FPS
    age = np.percentile(ages, 99)
    # The first tenth is start-up.
    steady = np.array(resident[max(5, len(resident) // 10) :], float)
    fifth = len(steady) // 5 + 1
    growth = np.median(steady[-fifth:]) - np.median(steady[:fifth])
    print(f"{len(messages)} messages; engine p50 {np.median(engine):.0f} ms, p99 {np.percentile(engine, 99):.0f} ms")
    print(f"age at publishing p50 {np.median(ages):.0f} ms, p99 {age:.0f} ms (wanted: {bound:.0f} at most)")
    print(f"resident {steady[-1] / 1024:.1f} MiB after {args.minutes:g} min, grown by {growth:.0f} KiB since the first tenth")
    return 0 if age <= bound and growth < 512 else 1


if __name__ == "__main__":
    sys.exit(main())
