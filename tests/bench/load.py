#!/usr/bin/env python3
# Python's standard library alone; mosquitto, nats-server and chromium
"""Eight cameras at 30 frames/s through a trivial network: what a frame's way from camera to publishing takes without any sink, and
with all of them and the live page open.

    load.py [--visiond BIN] [--seconds N] [--rounds N] [--no-browser]

Runs take turns, without and with. On: file, Unix socket with a reader, MQTT and NATS (both durable), the live page in Chromium with
eight moving pictures. Brokers, reader and browser are niced: in a plant they are other machines. Wants: the 99th percentile within
10 % of that without.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from brokers import Mosquitto, Nats, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAMERAS = 8
BASE = """
[[model]]
name = "bars"
path = "{root}/tests/vm/tiny.onnx"
card = "{root}/tests/vm/tiny.toml"
"""
CAMERA = """
[[camera]]
name = "camera{n}"
[camera.source]
type = "pattern"
width = 1280
height = 720
fps = 30
"""
SINKS = """
[http]
listen = ["127.0.0.1:{port}"]
[[sink]]
type = "file"
path = "{folder}/out.jsonl"
[[sink]]
type = "unix"
path = "{folder}/out.sock"
[[sink]]
type = "mqtt"
url = "{mqtt}"
durable = true
spool_directory = "{folder}/spool-mqtt"
[[sink]]
type = "nats"
url = ["{nats}"]
stream = "VISIOND"
create_stream = true
durable = true
spool_directory = "{folder}/spool-nats"
"""


def niced():
    """As another machine's work: what is left of this one."""
    os.nice(19)


def run(args, folder, extra, around):
    """One run: its summary. `around(process)` begins when the daemon does and returns what is to be ended."""
    config, summary = pathlib.Path(folder, "visiond.toml"), pathlib.Path(folder, "summary.json")
    cameras = "".join(CAMERA.format(n=n) for n in range(CAMERAS))
    config.write_text(BASE.format(root=ROOT) + cameras + extra)
    with open(pathlib.Path(folder, "visiond.log"), "ab") as log:
        daemon = subprocess.Popen([args.visiond, "run", str(config), "--summary-json", str(summary)], stderr=log)
        time.sleep(1)
        helpers = around()
        time.sleep(args.seconds)
        daemon.terminate()
        status = daemon.wait(timeout=20)
        for helper in helpers:
            helper.kill()
            helper.wait()
    if status != 0:
        raise SystemExit(f"visiond ended with {status}: {pathlib.Path(folder, 'visiond.log').read_text()[-2000:]}")
    return json.loads(summary.read_text())


def latency(summary):
    """Median and 99th percentile of capture to publishing in microseconds, frames, and frames lost: over all cameras."""
    cameras = summary["cameras"]
    stage = [camera["stages_us"]["total"] for camera in cameras]
    lost = sum(sum(camera["dropped"].values()) for camera in cameras)
    frames = sum(camera["published"] for camera in cameras)
    return statistics.mean(s["p50"] for s in stage), statistics.mean(s["p99"] for s in stage), frames, lost


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-browser", action="store_true")
    args = parser.parse_args()
    off, on = [], []
    for number in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            off.append(latency(run(args, folder, "", lambda: [])))
        with tempfile.TemporaryDirectory() as folder, Mosquitto(folder) as mqtt, Nats(folder) as nats:
            port = free_port()

            def around():
                reader = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nwhile s.recv(1<<16): pass"
                helpers = [subprocess.Popen(["python3", "-c", reader, f"{folder}/out.sock"], preexec_fn=niced)]
                if not args.no_browser:
                    browser = [
                        shutil.which("chromium") or "chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
                        f"--user-data-dir={folder}/browser", f"http://127.0.0.1:{port}/",
                    ]
                    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                    helpers.append(subprocess.Popen([*browser, "--remote-debugging-port=0"], preexec_fn=niced, **quiet))
                return helpers

            summary = run(args, folder, SINKS.format(folder=folder, port=port, mqtt=mqtt.url, nats=nats.url), around)
            on.append(latency(summary))
            sinks = ", ".join(f"{sink['name']} {sink['written']} ({sink['lost']} lost)" for sink in summary["sinks"])
        for name, rows in (("without", off), ("with", on)):
            p50, p99, frames, lost = rows[-1]
            print(f"round {number + 1} {name:8} p50 {p50:6.0f} us  p99 {p99:6.0f} us  {frames} frames, {lost} lost")
        print(f"        sinks: {sinks}", flush=True)
    without, having = (statistics.median(row[1] for row in rows) for rows in (off, on))
    print(f"p99 without {without:.0f} us, with {having:.0f} us: {100 * (having / without - 1):+.1f} % (wanted: 10 % at most)")


if __name__ == "__main__":
    main()
