#!/usr/bin/env python3
"""A device that builds the engine of a newer bundle while its cameras run, and switches to it. For the row `bundle`.

    bundle.py --visiond BIN --model FILE.onnx --card FILE --stream FILE.h264 [--flags FLAGS] [--cameras 64] [--seconds 10] [--fps 30]
              [--decoder nvdec|ffmpeg] [--max-batch N] [--batch-wait TIME]

Installs version 1, whose engine is built here, and starts the cameras on it. Then publishes version 2 and follows it once. Prints a
figure as JSON for each step, as visiond-gpu does: the age of messages before it, while the engine is built, while it is proven, and in
use. Version 2 is built without timings, as the first one on a device is.
"""

import argparse
import http.client
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import streams

ROW = "Bundle"
CONFIG = """
[bundles]
directory = "{folder}/models"
[http]
listen = ["unix:{folder}/http.sock"]
[[model]]
name = "objects"
bundle = "objects"
max_batch = {max_batch}
batch_wait = "{batch_wait}"
[[sink]]
type = "file"
path = "{folder}/messages.jsonl"
rotate_bytes = "1 TiB"
"""
# The longest time for a version to be built, proven and watched.
LIMIT = 170


def figure(what, wanted, seen, passed):
    print(json.dumps({"row": ROW, "what": what, "wanted": wanted, "seen": seen, "pass": passed}), flush=True)


def status(folder):
    """The daemon's status."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(folder / "http.sock"))
    connection.request("GET", "/api/v1/status")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def step(folder):
    """What is done about version 2 now."""
    try:
        text = (folder / "models/objects/rollout.toml").read_text()
    except OSError:
        return None
    return next((line.split('"')[1] for line in text.splitlines() if line.startswith("step = ")), None)


def ages(messages, begin, end):
    """The ages of the messages between two places of the file in ms, sorted, and how many frames are missing between them."""
    with messages.open("rb") as file:
        file.seek(begin)
        if begin:
            file.readline()
        found, missing, newest = [], 0, {}
        while file.tell() < end:
            line = file.readline()
            if not line.endswith(b"\n"):
                break
            message = json.loads(line)
            camera, sequence = message["camera"], message["sequence"]
            missing += max(sequence - newest.get(camera, sequence - 1) - 1, 0)
            newest[camera] = sequence
            found.append(message["timings_us"]["total"] / 1e3)
    return sorted(found), missing


def measure(args, folder):
    bundle = lambda *arguments: subprocess.run(
        [args.visiond, "bundle", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True
    )

    def make(version, flags):
        out = folder / f"objects-{version}.visiond"
        names = ("--name", "objects", "--version", version, "-o", out, "--card", args.card)
        bundle("make", args.model, *names, "--build", f"{args.flags} {flags}")
        bundle("sign", out, "--key", folder / "team.key")
        return out

    named = ("--key", folder / "team.pub", "--store", folder / "models")
    bundle("keys", folder / "team", "--no-password")
    began = time.monotonic()
    bundle("install", make(1, ""), *named)
    took = time.monotonic() - began
    model = (folder / "models/objects/current/model").resolve().name
    figure("version 1 installed on an idle GPU", "an engine", f"{model}, in {took:.1f} s", model == "model.engine")
    bundle("publish", make(2, "--no-timing-cache"), folder / "published")
    servers, ports = streams.serve(args.stream, args.fps, args.cameras)
    daemon = follower = None
    try:
        config, messages = folder / "visiond.toml", folder / "messages.jsonl"
        text = CONFIG.format(folder=folder, max_batch=args.max_batch, batch_wait=args.batch_wait)
        text += "".join(streams.rtsp_camera(n, ports[n // streams.CLIENTS], args.decoder) for n in range(args.cameras))
        config.write_text(text)
        with open(f"{args.log}.daemon", "w") as log:
            daemon = subprocess.Popen([args.visiond, "run", str(config)], stderr=log)
        # Until every camera streams: decoders take 50 ms each to create, one at a time.
        deadline = time.monotonic() + 60
        while not messages.exists() or messages.stat().st_size == 0:
            if daemon.poll() is not None or time.monotonic() > deadline:
                return figure(f"{args.cameras} cameras", "messages", f"none; see {args.log}.daemon", False)
            time.sleep(0.2)
        time.sleep(3 + args.cameras / 8)
        marks = [("before", time.monotonic(), messages.stat().st_size)]
        time.sleep(args.seconds)
        follow = [args.visiond, "bundle", "follow", "objects", "--once", "--source", folder / "published", "--watch", f"{args.seconds:g}s"]
        follow += ["--compare", f"{args.seconds:g}s"]
        with open(f"{args.log}.follow", "w") as log:
            follower = subprocess.Popen([*map(str, follow), *map(str, named), "--url", f"unix:{folder}/http.sock"], stderr=log)
        deadline = time.monotonic() + LIMIT
        while follower.poll() is None and time.monotonic() < deadline:
            now = step(folder)
            if now in ("building", "proving", "comparing", "watching") and now != marks[-1][0]:
                marks.append((now, time.monotonic(), messages.stat().st_size))
            time.sleep(0.02)
        marks.append(("end", time.monotonic(), messages.stat().st_size))
        ended = follower.poll()
        time.sleep(1)
        models = status(folder)["models"]
    finally:
        for process in filter(None, (follower, daemon)):
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        for server in servers:
            server.kill()
    names = {
        "before": "version 1",
        "building": "while the engine is built",
        "proving": "while it is measured and proven",
        "comparing": "while both are compared on live frames",
        "watching": "version 2",
    }
    for (name, since, begin), (_, until, end) in zip(marks, marks[1:]):
        found, missing = ages(messages, begin, end)
        if not found:
            continue
        at = lambda share: found[round(share * (len(found) - 1))]
        seen = (
            f"age p50 {at(.5):.1f} ms, p99 {at(.99):.1f} ms, most {at(1):.1f} ms; {len(found) / (until - since):.0f} messages/s, "
            f"{missing} dropped, {until - since:.1f} s"
        )
        figure(f"{args.cameras} cameras, {args.fps:g} frames/s, {names[name]}", "", seen, True)
    used = [(one["bundle"]["version"], one["backend"], one["file"]) for one in models]
    built = (folder / "models/objects/current/model").resolve().name
    last = pathlib.Path(f"{args.log}.follow").read_text().strip().splitlines()[-1:]
    holds = ended == 0 and [version for version, *_ in used] == [2] and built == "model.engine" and "building" in [name for name, *_ in marks]
    figure("version 2 is in use", "its engine", f"{used}, {built}; follow ended with {ended}: {''.join(last)}", holds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("visiond", "model", "card", "stream"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--flags", default="", help="of `visiond build`")
    parser.add_argument("--cameras", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--decoder", choices=("nvdec", "ffmpeg"), default="nvdec")
    parser.add_argument("--fps", type=float, default=30)
    parser.add_argument("--max-batch", type=int, default=1, metavar="N")
    parser.add_argument("--batch-wait", default="0", metavar="TIME", help='for example "2 ms"')
    parser.add_argument("--log", default="/tmp/bundle.log", help="start of the names of the logs")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="visiond-bundle."))
    try:
        measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
