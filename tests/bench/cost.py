#!/usr/bin/env python3
# Python's standard library alone; mosquitto and nats-server
"""The cost of sinks and the HTTP interface while nothing is published and nobody watches: CPU time and memory of the process
with all of
them connected, less those of the process without.

    cost.py [--visiond BIN] [--seconds N] [--rounds N]

The camera of the sinks waits for a device that is not there. Wants: 1 % of a core and 10 MB at most.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from brokers import ALL_SINKS, Mosquitto, Nats, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = """
[[model]]
name = "bars"
path = "{root}/tests/vm/tiny.onnx"
card = "{root}/tests/vm/tiny.toml"
[[camera]]
name = "away"
[camera.source]
type = "v4l2"
device = "{folder}/no-camera"
"""
HTTP = """
[http]
listen = ["127.0.0.1:{port}", "unix:{folder}/http.sock"]
"""


def measured(args, folder, sinks):
    """Share of a core, and resident bytes at the end."""
    config = pathlib.Path(folder, "visiond.toml")
    config.write_text(BASE.format(root=ROOT, folder=folder) + sinks)
    with open(pathlib.Path(folder, "visiond.log"), "ab") as log:
        daemon = subprocess.Popen([args.visiond, "run", str(config)], stderr=log)
    time.sleep(4)
    proc = pathlib.Path(f"/proc/{daemon.pid}")

    def cpu():
        # Of all threads, by the kernel, in nanoseconds.
        return sum(int((task / "schedstat").read_text().split()[0]) for task in (proc / "task").iterdir())

    before, began = cpu(), time.monotonic()
    time.sleep(args.seconds)
    share = (cpu() - before) / 1e9 / (time.monotonic() - began)
    resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    daemon.terminate()
    if daemon.wait(timeout=20) not in (0, 143):
        raise SystemExit(pathlib.Path(folder, "visiond.log").read_text()[-2000:])
    return share, resident


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    cpu, memory = [], []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            without = measured(args, folder, "")
        with tempfile.TemporaryDirectory() as folder, Mosquitto(folder) as mqtt, Nats(folder) as nats:
            sinks = HTTP.format(folder=folder, port=free_port()) + ALL_SINKS.format(folder=folder, mqtt=mqtt.url, nats=nats.url)
            having = measured(args, folder, sinks)
        cpu.append(having[0] - without[0])
        memory.append(having[1] - without[1])
        print(
            f"without {100 * without[0]:.2f} % of a core, {without[1] / 1e6:.1f} MB; "
            f"with {100 * having[0]:.2f} %, {having[1] / 1e6:.1f} MB",
            flush=True,
        )
    print(
        f"all sinks and HTTP, idle: {100 * statistics.median(cpu):.2f} % of a core (wanted: 1 % at most), "
        f"{statistics.median(memory) / 1e6:.1f} MB (wanted: 10 MB at most)"
    )


if __name__ == "__main__":
    main()
