#!/usr/bin/env python3
# Python's standard library alone
"""What a camera's thread costs at 1080p30 YUYV without a copy: the pattern source, which fills a buffer as cheaply as a driver does,
through the code that every source's frames take (wait, buffer, timestamp, mailbox).

    capture.py [--seconds N] [--visiond BIN] [--model FILE]

Told by visiond's own summary and by the kernel's count of that thread's time on a CPU. Wants: 1 % of a core.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
[engine]
backend = "rten"
threads = 1
[[model]]
name = "nanodet"
path = "{model}"
[[camera]]
name = "bars"
[camera.source]
type = "pattern"
format = "yuyv"
width = 1920
height = 1080
fps = 30
[[sink]]
type = "file"
path = "{folder}/out.jsonl"
"""


def on_cpu_ns(pid, name):
    """Nanoseconds that the thread of that name was on a CPU, by the kernel."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int((task / "schedstat").read_text().split()[0])
    raise SystemExit(f"visiond has no thread {name!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--model", default=str(ROOT / "config/models/nanodet-g-416.onnx"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config, summary = pathlib.Path(folder, "visiond.toml"), pathlib.Path(folder, "summary.json")
        config.write_text(CONFIG.format(model=pathlib.Path(args.model).resolve(), folder=folder))
        daemon = subprocess.Popen(
            [args.visiond, "run", str(config), "--summary-json", str(summary)], stderr=subprocess.DEVNULL
        )
        # The first pictures in each buffer are drawn whole, and its pages are made.
        time.sleep(3)
        began, before = time.monotonic(), on_cpu_ns(daemon.pid, "cam bars")
        time.sleep(args.seconds)
        share = (on_cpu_ns(daemon.pid, "cam bars") - before) / 1e9 / (time.monotonic() - began)
        daemon.terminate()
        if daemon.wait() != 0:
            raise SystemExit(f"visiond ended with status {daemon.returncode}")
        camera = json.loads(summary.read_text())["cameras"][0]
    frames = camera["captured"] + camera["dropped"]["overload"]
    print(f"{share:.2%} of a core by the kernel's count (wanted: 1 %)")
    print(f"{camera['capture_cpu_us']:.0f} us a frame by the summary, {camera['capture_cpu_us'] * 30 / 1e6:.2%} of a core at 30 frames/s")
    print(f"{camera['copied_bytes']} bytes copied in {camera['captured']} frames")
    return 0 if share <= 0.01 and camera["copied_bytes"] == 0 and frames >= 30 * args.seconds * 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
