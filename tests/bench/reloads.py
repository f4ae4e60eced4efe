#!/usr/bin/env python3
"""Reloads under load: untouched parts lose nothing, rejected reloads change nothing, and nothing grows.

    reloads.py [--visiond BIN] [--reloads N]

Two cameras and the sink that both write to stay as they are: one that waits for its turn and one at 30 frames a second. Around
them cameras, models, sinks, pictures and tables change with every reload, while two readers follow the stream. Every third
reload is wrong, in one of six ways. Wants: every frame of the first camera in the file, once and in order; of the second
none missing but those that the lane was too busy for, which are counted, and are told beside what a time without
reloads costs on this machine; the configuration in force, the models and each camera's openings the same before and after a
wrong one; threads, descriptors and memory after the last reload as after the first fifth of them.
"""

import argparse
import atexit
import http.client
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GROWTH_KB = 4096
# Without reloads, for comparison; and after each, so that frames come in between.
QUIET_S, PAUSE_S = 10, 0.1
# The initializer `one` of tests/vm/tiny.onnx, the bytes of 1.0, and the NaN that replaces it.
ONE = b"\x42\x03one\x4a\x04\x00\x00\x80\x3f"
NO_NUMBER = b"\x42\x03one\x4a\x04\x00\x00\xc0\x7f"

STAYS = """
[[camera]]
name = "stays"
model = "tiny"
[camera.source]
type = "command"
pace = "fastest"
container = "raw"
format = "grey"
width = 128
height = 64
command = ["sh", "-c", "while :; do head -c 8192 /dev/zero; sleep 0.01; done"]

[[camera]]
name = "steady"
model = "tiny"
source = { type = "pattern", width = 320, height = 240, fps = 30.0 }

[[sink]]
type = "file"
path = "out.jsonl"
cameras = ["stays", "steady"]
queue = 4096
rotate_bytes = 0
"""


def camera(name, model="other", fps=20, more=""):
    """A camera that may change."""
    source = f'{{ type = "pattern", width = 320, height = 240, fps = {fps}.0 }}'
    return f'[[camera]]\nname = "{name}"\nmodel = "{model}"\nsource = {source}\n{more}'


def good(number):
    """Returns a valid configuration that differs from the one before it."""
    kind, odd = number % 7, number // 7 % 2
    pictures = '[camera.annotate]\ndirectory = "pictures"\nevery = 5\nkeep = 5\n'
    network = f"other-{odd if kind == 0 else 0}.onnx"
    parts = [
        camera("other", fps=20 + number % 5),
        camera("third", more=pictures if kind == 1 else "") if kind in (1, 2) else "",
        '[[sink]]\nname = "more"\ntype = "file"\npath = "more.jsonl"\n' if kind == 3 else "",
        '[[sink]]\ntype = "unix"\npath = "d.sock"\n' if kind == 4 else "",
        camera("moves", "other" if odd else "tiny"),
    ]
    http = f'[http]\nlisten = ["unix:http.sock"]\nmax_fps = {5 + number % 3}.0\n'
    log = f'[log]\nlevel = "{"info" if kind == 5 else "warn"}"\n'
    models = '[[model]]\nname = "tiny"\npath = "tiny.onnx"\n' + f'[[model]]\nname = "other"\npath = "{network}"\n'
    engine = '[engine]\nbackend = "rten"\nthreads = 1\n'
    return log + engine + http + models + STAYS + "".join(parts)


def broken(number, now):
    """`now` with a mistake that the daemon finds at another step each time."""
    other = '[[model]]\nname = "new"\npath = "NETWORK"\n' + camera("new", "new")
    kinds = [
        lambda: now + "\nnonsense",
        lambda: now + other.replace("NETWORK", "nowhere.onnx"),
        lambda: now + other.replace("NETWORK", "no-number.onnx"),
        lambda: now + '[[sink]]\nname = "bad"\ntype = "unix"\npath = "/nowhere/d.sock"\n' + camera("new"),
        lambda: now.replace("unix:http.sock", "unix:/nowhere/http.sock") + camera("new"),
        lambda: now + camera("new", more='annotate = { directory = "/proc/no", every = 1 }\n'),
    ]
    return kinds[number % len(kinds)]()


class OverUnix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Daemon:
    """A visiond in its own folder."""

    def __init__(self, binary, folder):
        self.folder = folder
        self.log = open(folder / "log", "wb")
        self.write(good(0))
        command = [binary, "run", "--summary-json", "summary.json", "visiond.toml"]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=self.log, stdin=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if self.ask("GET", "/api/v1/status")[1]["ready"]:
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit((folder / "log").read_text())

    def write(self, text):
        """Replaces the configuration."""
        (self.folder / "next").write_text(text)
        os.replace(self.folder / "next", self.folder / "visiond.toml")

    def ask(self, method, path):
        """Status and JSON."""
        connection = OverUnix(self.folder / "http.sock")
        connection.request(method, path)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        connection.close()
        return answer.status, body

    def unmoved(self):
        """The state that a rejected reload must not change."""
        status = self.ask("GET", "/api/v1/status")[1]
        # A camera of the reload before may still be opening.
        cameras = [(c["name"], c["model"], c["restarts"]) for c in status["cameras"]]
        models = [(m["name"], m["sha256"], m["rebuilds"]) for m in status["models"]]
        sinks = [(s["name"], s["kind"]) for s in status["sinks"]]
        return self.ask("GET", "/api/v1/config")[1], cameras, models, sinks

    def size(self):
        """Threads, descriptors, resident kB."""
        proc = pathlib.Path(f"/proc/{self.process.pid}")
        rss = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("VmRSS"))
        return len(list((proc / "task").iterdir())), len(list((proc / "fd").iterdir())), int(rss.split()[1])


def follow(path, counts):
    """Reads the stream of events to its end."""
    reader = socket.socket(socket.AF_UNIX)
    reader.connect(str(path))
    reader.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    while True:
        try:
            data = reader.recv(65536)
        except OSError:
            return
        if not data:
            return
        counts.append(data.count(b"\ndata:") + data.startswith(b"data:"))


def missing(numbers):
    """The count of missing numbers from 0 to the last; more than all if any occurs twice or out of order."""
    in_order = all(before < after for before, after in zip(numbers, numbers[1:]))
    return numbers[-1] + 1 - len(numbers) if in_order else 10**9


def camera_of(daemon, name):
    """The counters of a camera."""
    return next(c for c in daemon.ask("GET", "/api/v1/status")[1]["cameras"] if c["name"] == name)


def main():
    """Runs it and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", default=os.environ.get("VISIOND_BIN", str(ROOT / "target/release/visiond")))
    parser.add_argument("--reloads", type=int, default=200)
    args = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for network in ("tiny", "other-0", "other-1", "no-number"):
            shutil.copy(ROOT / "tests/vm/tiny.toml", folder / f"{network}.toml")
            data = (ROOT / "tests/vm/tiny.onnx").read_bytes()
            assert data.count(ONE) == 1
            # An unknown field at the end makes another file of the same model.
            data = data.replace(ONE, NO_NUMBER) if network == "no-number" else data + b"\x32\x01" + network[-1:].encode()
            (folder / f"{network}.onnx").write_bytes(data)
        daemon = Daemon(args.visiond, folder)
        # Clean up in any case.
        atexit.register(daemon.process.kill)
        events = []
        for _ in range(2):
            threading.Thread(target=follow, args=(folder / "http.sock", events), daemon=True).start()
        took, refused_took, sizes, now, refusals = [], [], [], good(0), {}
        time.sleep(QUIET_S)
        quiet = camera_of(daemon, "steady")["dropped"]["overload"] / QUIET_S
        began = time.monotonic()
        for number in range(1, args.reloads + 1):
            if number % 3 == 0:
                before = daemon.unmoved()
                daemon.write(broken(number // 3, now))
                status, outcome = daemon.ask("POST", "/api/v1/reload")
                if status != 409 or outcome["applied"] or daemon.unmoved() != before:
                    wrong.append(f"reload {number}: not refused, or something has changed: {outcome}")
                refusals.setdefault((outcome.get("error") or "?").replace(name, "").split("\n")[0][:110], 0)
                refusals[(outcome.get("error") or "?").replace(name, "").split("\n")[0][:110]] += 1
                refused_took.append(outcome["took_ms"])
            else:
                now = good(number)
                daemon.write(now)
                status, outcome = daemon.ask("POST", "/api/v1/reload")
                if status != 200 or not outcome["applied"] or not outcome["changes"]:
                    wrong.append(f"reload {number}: refused: {outcome}")
                took.append(outcome["took_ms"])
            time.sleep(PAUSE_S)
            if number % max(args.reloads // 10, 1) == 0:
                # The same configuration each time, after the replaced parts have ended.
                daemon.write(good(0))
                daemon.ask("POST", "/api/v1/reload")
                now = good(0)
                time.sleep(1)
                sizes.append((number, *daemon.size()))
        seconds = time.monotonic() - began
        daemon.process.terminate()
        code = daemon.process.wait(10)
        # Counted to the last frame.
        summary = json.loads((folder / "summary.json").read_text())
        cameras = {camera["name"]: camera for camera in summary["cameras"]}
        lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
        log = (folder / "log").read_text()
    numbers = {camera: [m["sequence"] for m in lines if m["camera"] == camera] for camera in ("stays", "steady")}

    print(f"{args.reloads} reloads in {seconds:.0f} s: {len(took)} applied, {len(refused_took)} refused")
    print(f"  applied in {statistics.median(took):.0f} ms, at most {max(took)} ms; refused in "
          f"{statistics.median(refused_took):.0f} ms, at most {max(refused_took)} ms")
    for why, count in sorted(refusals.items()):
        print(f"  {count:3} x {why}")
    print(f"  events to two readers: {sum(events)}")
    print("camera   frames  missing  overload  other drops  openings")
    for camera_name, frames in numbers.items():
        dropped = dict(cameras[camera_name]["dropped"])
        overload, openings = dropped.pop("overload"), cameras[camera_name]["restarts"] + 1
        other, lost = sum(dropped.values()), missing(frames)
        print(f"{camera_name:8} {len(frames):6} {lost:8} {overload:9} {other:12} {openings:9}")
        # A camera that waits for its lane drops nothing; at the end, one frame may still be in the mailbox.
        allowed = 0 if camera_name == "stays" else overload
        if lost > allowed or other or openings != 1:
            wrong.append(f"camera {camera_name} was touched")
    print(f"  too busy for {quiet:.1f} frames/s of steady without reloads, {overload / (seconds + QUIET_S):.1f} in all")
    print("reloads  threads  descriptors  resident kB")
    for row in sizes:
        print(f"{row[0]:7} {row[1]:8} {row[2]:12} {row[3]:12}")
    first, last = sizes[min(1, len(sizes) - 1)], sizes[-1]
    if last[1] > first[1] or last[2] > first[2] + 1 or last[3] > first[3] + GROWTH_KB:
        wrong.append("it grows")
    if code != 0 or "stopped by a bug" in log:
        wrong.append(f"it ended with {code}:\n{log[-3000:]}")
    print("\n".join(wrong) or "all as wanted")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
