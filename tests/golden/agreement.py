#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94, onnxruntime 1.31.1
"""Does visiond detect the same as onnxruntime and OpenCV? For any images and videos, with both backends.

    agreement.py [--visiond BIN] [--frames N] [--write GOLDEN.json] FILE...

Runs NanoDet over every file twice, once by `nanodet_peer.py` and once by `visiond detect --json`, and compares: every peer
detection of score 0.3 or more must be there with the same class, IoU 0.98 or more and a score within 0.01, and nothing
besides. Exit status 1 when one is not. `--write` keeps the peer's detections for the end-to-end tests.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import cv2
import nanodet_peer as peer

SCORE, IOU, SCORE_ERROR = 0.3, 0.98, 0.01
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "config/models/nanodet-g-416.onnx"


def frames(path, limit):
    """A file's frames as OpenCV reads them."""
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is not None:
        yield picture
        return
    video = cv2.VideoCapture(str(path))
    for _ in range(limit):
        ok, frame = video.read()
        if not ok:
            return
        yield frame


def by_visiond(binary, path, limit, backend, more=()):
    """The same by visiond: a list of frames, each a list of detections."""
    command = [binary, "detect", "--json", "--backend", backend, "--score-threshold", str(SCORE - 2 * SCORE_ERROR)]
    out = subprocess.run(command + ["--max-frames", str(limit), *more, str(path)], stdout=subprocess.PIPE, check=True).stdout
    found = []
    for line in out.splitlines():
        boxes = []
        for d in json.loads(line)["detections"]:
            b = d["box"]
            boxes.append((d["class_id"], d["score"], b["x"], b["y"], b["x"] + b["width"], b["y"] + b["height"]))
        found.append(boxes)
    return found


def unmatched(wanted, found):
    """The wanted detections that have no counterpart."""
    free = list(found)
    missing = []
    for d in wanted:
        def fits(e):
            return e[0] == d[0] and peer.overlap(d[2:], e[2:]) >= IOU and abs(e[1] - d[1]) <= SCORE_ERROR
        match = next((e for e in free if fits(e)), None)
        if match is None:
            missing.append(d)
        else:
            free.remove(match)
    return missing


def nearest(d, others):
    """What comes closest, for the report."""
    same = [e for e in others if e[0] == d[0]]
    return max(((peer.overlap(d[2:], e[2:]), e[1] - d[1]) for e in same), default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--frames", type=int, default=100, help="of a video, at most")
    parser.add_argument("--backends", default="onnxruntime,rten")
    parser.add_argument("--write", help="keep the peer's detections in this file")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    run = peer.session(str(MODEL), os.cpu_count())
    golden, bad = {}, 0
    for path in args.files:
        theirs = [peer.detect(run, frame, SCORE - 2 * SCORE_ERROR) for frame in frames(path, args.frames)]
        golden[pathlib.Path(path).name] = [[[d[0]] + [round(v, 4) for v in d[1:]] for d in frame] for frame in theirs]
        for backend in args.backends.split(",") if not args.write else []:
            ours = by_visiond(args.visiond, path, args.frames, backend)
            if len(ours) != len(theirs):
                print(f"{path} {backend}: {len(ours)} frames, {len(theirs)} expected")
                bad += 1
            total = 0
            for number, (a, b) in enumerate(zip(theirs, ours)):
                sure = [d for d in a if d[1] >= SCORE]
                total += len(sure)
                for d in unmatched(sure, b):
                    print(f"{path}:{number} {backend}: missing {peer.COCO[d[0]]} {d[1]:.4f} nearest {nearest(d, b)}")
                    bad += 1
                for d in unmatched([d for d in b if d[1] >= SCORE + SCORE_ERROR], a):
                    print(f"{path}:{number} {backend}: besides {peer.COCO[d[0]]} {d[1]:.4f} nearest {nearest(d, a)}")
                    bad += 1
            print(f"{path} {backend}: {len(theirs)} frames, {total} detections")
    if args.write:
        with open(args.write, "w") as file:
            json.dump({"score": SCORE - 2 * SCORE_ERROR, "files": golden}, file, separators=(",", ":"))
            file.write("\n")
    print(f"{bad} disagreements")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
