#!/usr/bin/env python3
"""Frames in shared memory that the GPU reads in place: the boxes of the same frames through a pipe. For the row `shared`.

    shared_memory.py --visiond BIN --engine FILE --card FILE --frames FILE.bgr [--width N] [--height N]

Prints a figure as JSON, as visiond-gpu does. The program that writes the frames is this one; it speaks as GStreamer's shmsink does,
which is not here: see daemon/capture/src/shared_memory.rs.
"""

import argparse
import json
import mmap
import os
import pathlib
import resource
import select
import socket
import struct
import subprocess
import sys
import tempfile

MESSAGE = struct.Struct("=IIQQ")
NEW_AREA, FRAME = 1, 3
# Frames in the area, and in all.
PLACES, COUNT = 8, 200
CONFIG = """
[[model]]
name = "objects"
path = "{engine}"
card = "{card}"
[[camera]]
name = "frames"
[camera.source]
type = "command"
command = {command}
container = "{container}"
format = "bgr"
width = {width}
height = {height}
pace = "fastest"
repeat = false
max_frames = {count}
[[sink]]
type = "file"
path = "{folder}/{container}.jsonl"
[http]
listen = []
"""


def feed(path, frames, size):
    """Writes frames into shared memory until visiond has had enough."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    connection, _ = listener.accept()
    name = f"/visiond-gpu.{os.getpid()}"
    file = f"/dev/shm{name}"
    with open(file, "w+b") as area, open(frames, "rb") as source:
        try:
            area.truncate(PLACES * size)
            memory = mmap.mmap(area.fileno(), PLACES * size)
            connection.sendall(MESSAGE.pack(NEW_AREA, 1, PLACES * size, len(name) + 1) + name.encode() + b"\0")
            free = list(range(PLACES))
            while True:
                while not free or select.select([connection], [], [], 0)[0]:
                    message = connection.recv(MESSAGE.size, socket.MSG_WAITALL)
                    if not message:
                        return
                    free.append(MESSAGE.unpack(message)[2] // size)
                pixels = source.read(size)
                if len(pixels) < size:
                    source.seek(0)
                    continue
                place = free.pop(0)
                memory[place * size : (place + 1) * size] = pixels
                connection.sendall(MESSAGE.pack(FRAME, 1, place * size, size))
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            os.unlink(file)


def detections(args, folder, container, command):
    """The detections of each frame, and the CPU time of visiond and the program in seconds a frame."""
    config = folder / f"{container}.toml"
    size = {key: getattr(args, key) for key in ("engine", "card", "width", "height")}
    config.write_text(CONFIG.format(command=json.dumps(command), container=container, folder=folder, count=COUNT, **size))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([args.visiond, "run", config], check=True, timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = (folder / f"{container}.jsonl").read_text().splitlines()
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [json.loads(line)["detections"] for line in lines], spent / max(len(lines), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("visiond", "engine", "card", "frames"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--height", type=int, default=576)
    args = parser.parse_args()
    args.engine, args.card, args.frames = (str(pathlib.Path(path).resolve()) for path in (args.engine, args.card, args.frames))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        size = args.width * args.height * 3
        piped, pipe_cpu = detections(args, folder, "raw", ["cat", args.frames])
        command = [sys.executable, os.path.abspath(__file__), "feed", "{socket}", args.frames, str(size)]
        shared, cpu = detections(args, folder, "shm", command)
    equal = sum(a == b for a, b in zip(piped, shared))
    boxes = sum(map(len, shared))
    seen = f"{equal} of {COUNT} frames, {boxes} boxes; {cpu * 1e3:.2f} ms of CPU a frame, its writer included, {pipe_cpu * 1e3:.2f} ms by the pipe"
    print(json.dumps({"row": "Same boxes", "what": "frames in shared memory, read in place", "wanted": "as of a pipe", "seen": seen,
                      "pass": equal == len(piped) == len(shared) == COUNT and boxes > 0}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["feed"]:
        feed(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
