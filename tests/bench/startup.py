#!/usr/bin/env python3
# Python's standard library alone
"""With the embedded engine: the time to the first detection and to the daemon's end, its memory.

    startup.py PICTURE [--visiond BIN]

Wants: 0.5 s, 2 s after SIGTERM though a camera's program ignores it, 120 MB.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
[engine]
backend = "rten"
[[model]]
name = "nanodet"
path = "{model}"
[[camera]]
name = "picture"
[camera.source]
type = "images"
path = "{picture}"
repeat = true
fps = 5
[[sink]]
type = "stdout"
"""
# A program that ignores SIGTERM.
DEAF = """
[[camera]]
name = "deaf"
[camera.source]
type = "command"
container = "raw"
format = "grey"
width = 64
height = 48
command = ["sh", "-c", "trap '' TERM; head -c 3072 /dev/zero; while :; do sleep 1; done"]
"""


def ending(binary, config):
    """Seconds from SIGTERM to the end, after ten messages."""
    daemon = subprocess.Popen([binary, "run", config], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for _ in range(10):
        daemon.stdout.readline()
    begin = time.perf_counter()
    daemon.terminate()
    daemon.wait()
    return time.perf_counter() - begin


def once(binary, config):
    """Seconds to the first message, and the peak resident set in MB after ten."""
    begin = time.perf_counter()
    daemon = subprocess.Popen([binary, "run", config], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    daemon.stdout.readline()
    first = time.perf_counter() - begin
    for _ in range(9):
        daemon.stdout.readline()
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024 / 1e6
    daemon.terminate()
    daemon.wait()
    return first, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture")
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "visiond.toml"
        model = ROOT / "config/models/nanodet-g-416.onnx"
        path.write_text(CONFIG.format(model=model, picture=pathlib.Path(args.picture).resolve()))
        runs = [once(args.visiond, str(path)) for _ in range(7)]
        path.write_text(path.read_text() + DEAF)
        end = max(ending(args.visiond, str(path)) for _ in range(7))
    first, peak = statistics.median(r[0] for r in runs), max(r[1] for r in runs)
    print(f"first detection after {first:.3f} s (wanted: 0.5), slowest {max(r[0] for r in runs):.3f} s")
    print(f"ends at most {end:.3f} s after SIGTERM (wanted: 2)")
    print(f"resident at most {peak:.0f} MB (wanted: 120)")
    return 0 if first <= 0.5 and end <= 2 and peak <= 120 else 1


if __name__ == "__main__":
    sys.exit(main())
