#!/usr/bin/env python3
# Python's standard library alone
"""What a second model on each camera costs, beside its inference: the CPU time of a daemon whose cameras run one model, the other, and
both, with 1, 4 and 16 cameras of the pattern source at 15 frames per second.

    several_models.py [--seconds N] [--rounds N] [--visiond BIN]

Both models are the tests' smallest network, so that the rest of a frame's way is a large part of the time. Prints a table in Markdown:
milliseconds of CPU time per second, the least of the rounds; of the threads of the cameras, and of the whole process. Wants: two models
cost the process no more than each alone together, and the threads of the cameras at most a quarter more than one; no byte is copied.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FPS = 15
HEAD = """
[engine]
backend = "rten"
threads = 1
[[sink]]
type = "file"
path = "/dev/null"
"""
MODEL = """
[[model]]
name = "{name}"
path = "{path}"
"""
CAMERA = """
[[camera]]
name = "{name}"
models = {models}
source = {{ type = "pattern", format = "yuyv", width = 640, height = 480, fps = {fps} }}
"""


def config(models, cameras):
    path = ROOT / "tests/vm/tiny.onnx"
    parts = [HEAD, *(MODEL.format(name=name, path=path) for name in models)]
    parts += [CAMERA.format(name=f"camera-{at}", models=json.dumps(models), fps=FPS) for at in range(cameras)]
    return "".join(parts)


def cpu_ms(pid):
    """Milliseconds that the threads of the cameras, and all threads, were on a CPU, by the kernel."""
    tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    spent = [((task / "comm").read_text(), int((task / "schedstat").read_text().split()[0]) / 1e6) for task in tasks]
    return sum(ms for name, ms in spent if name.startswith("cam ")), sum(ms for _, ms in spent)


def measure(visiond, models, cameras, seconds):
    """CPU milliseconds per second: of the cameras' threads, of the process. Checks that frames were neither lost nor copied."""
    with tempfile.TemporaryDirectory() as folder:
        path, summary = pathlib.Path(folder, "visiond.toml"), pathlib.Path(folder, "summary.json")
        path.write_text(config(models, cameras))
        command = [visiond, "run", str(path), "--summary-json", str(summary)]
        daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        # The first frames in each buffer are drawn whole, and its pages are made.
        time.sleep(3)
        began, before = time.monotonic(), cpu_ms(daemon.pid)
        time.sleep(seconds)
        span, after = time.monotonic() - began, cpu_ms(daemon.pid)
        daemon.terminate()
        if daemon.wait() != 0:
            raise SystemExit(f"visiond ended with status {daemon.returncode}")
        told = json.loads(summary.read_text())["cameras"]
    if any(camera["copied_bytes"] for camera in told):
        raise SystemExit("frames were copied")
    lost = sum(sum(camera["dropped"].values()) for camera in told) / sum(camera["captured"] for camera in told) / len(models)
    return [(now - then) / span for now, then in zip(after, before)], lost


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    args = parser.parse_args()
    print(f"On {os.cpu_count()} cores, in ms of CPU time per second, cameras' threads / process:\n")
    print("| cameras | model a | model b | both | frames lost with both |")
    print("|---|---|---|---|---|")
    good = True
    for cameras in (1, 4, 16):
        best = {}
        for _ in range(args.rounds):
            for models in (["a"], ["b"], ["a", "b"]):
                (capture, process), lost = measure(args.visiond, models, cameras, args.seconds)
                found = (capture, process, lost)
                best["".join(models)] = tuple(map(min, best.get("".join(models), found), found))
        a, b, both = best["a"], best["b"], best["ab"]
        cells = [f"{capture:.1f} / {process:.1f}" for capture, process, _ in (a, b, both)]
        print(f"| {cameras} | {' | '.join(cells)} | {both[2]:.1%} |", flush=True)
        good &= both[1] <= a[1] + b[1] and both[0] <= 1.25 * min(a[0], b[0])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
