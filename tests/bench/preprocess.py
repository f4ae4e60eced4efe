#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94
"""The usual preprocess with OpenCV and numpy, one thread: one JSON line a case, times in microseconds.

    preprocess.py [--runs N]
    preprocess.py --compare PEER OURS EXACT     prints a table of such lines, collected in files

The cases are those of kernels/examples/preprocess_bench.rs. The code is what detectors' Python front ends do (Ultralytics'
LetterBox and preprocess): cvtColor, resize, copyMakeBorder, float32, scale, transpose; buffers are reused where OpenCV and
numpy can.
"""

import argparse
import json
import time

import cv2
import numpy as np

CASES = [
    ("yuyv", (1920, 1080), (640, 640), "f32"), ("nv12", (1920, 1080), (640, 640), "f32"),
    ("yuyv", (1920, 1080), (640, 640), "f16"), ("nv12", (1920, 1080), (640, 640), "u8"),
    ("yuyv", (1920, 1080), (416, 416), "f32"), ("nv12", (1920, 1080), (416, 416), "f32"),
    ("i420", (768, 576), (416, 416), "f32"), ("bgr", (768, 576), (416, 416), "f32"),
    ("rgb", (768, 576), (416, 416), "f32"), ("bgr", (1280, 720), (640, 640), "f32"),
    ("yuyv", (640, 480), (1280, 720), "f32"), ("bgr", (640, 480), (1280, 720), "f32"),
    ("rggb8", (1920, 1080), (640, 640), "f32"), ("rggb10", (1920, 1080), (640, 640), "f32"),
]  # fmt: skip
# The shape of OpenCV's picture for (width, height), and the conversion to RGB. OpenCV names mosaics by their second row.
SOURCES = {
    "yuyv": (lambda w, h: (h, w, 2), cv2.COLOR_YUV2RGB_YUYV),
    "nv12": (lambda w, h: (h * 3 // 2, w), cv2.COLOR_YUV2RGB_NV12),
    "i420": (lambda w, h: (h * 3 // 2, w), cv2.COLOR_YUV2RGB_I420),
    "bgr": (lambda w, h: (h, w, 3), cv2.COLOR_BGR2RGB),
    "rgb": (lambda w, h: (h, w, 3), None),
    "rggb8": (lambda w, h: (h, w), cv2.COLOR_BayerRGGB2RGB),
    "rggb10": (lambda w, h: (h, w), cv2.COLOR_BayerRGGB2RGB),
}


class Preprocess:
    """Frames of one format and size into an RGB NCHW tensor."""

    def __init__(self, code, source, size, dtype, bits):
        (sw, sh), (self.width, self.height) = source, size
        ratio = min(self.width / sw, self.height / sh)
        self.placed = round(sw * ratio), round(sh * ratio)
        x, y = (self.width - self.placed[0]) // 2, (self.height - self.placed[1]) // 2
        self.border = y, self.height - self.placed[1] - y, x, self.width - self.placed[0] - x
        self.code, self.dtype, self.gain = code, dtype, 255 / (2**bits - 1)
        self.tensor = np.empty((3, self.height, self.width), {"f32": np.float32, "f16": np.float16, "u8": np.uint8}[dtype])
        self.rgb = self.small = None

    def __call__(self, frame):
        if frame.dtype != np.uint8:
            frame = cv2.convertScaleAbs(frame, alpha=self.gain)
        # BGR's channels are swapped at the end, where fewer pixels are left.
        late = self.code == cv2.COLOR_BGR2RGB
        if self.code is not None and not late:
            frame = self.rgb = cv2.cvtColor(frame, self.code, dst=self.rgb)
        self.small = cv2.resize(frame, self.placed, dst=self.small, interpolation=cv2.INTER_LINEAR)
        picture = cv2.copyMakeBorder(self.small, *self.border, cv2.BORDER_CONSTANT, value=(114, 114, 114))
        if late:
            picture = picture[:, :, ::-1]
        planar = picture.transpose(2, 0, 1)
        if self.dtype == "u8":
            np.copyto(self.tensor, planar)
        else:
            np.multiply(planar, np.float32(1 / 255), out=self.tensor, casting="same_kind", dtype=np.float32)
        return self.tensor


class PreprocessByBlob(Preprocess):
    """The same through cv2.dnn.blobFromImage, OpenCV's own way into a float32 tensor."""

    def __call__(self, frame):
        if frame.dtype != np.uint8:
            frame = cv2.convertScaleAbs(frame, alpha=self.gain)
        late = self.code == cv2.COLOR_BGR2RGB
        if self.code is not None and not late:
            frame = self.rgb = cv2.cvtColor(frame, self.code, dst=self.rgb)
        self.small = cv2.resize(frame, self.placed, dst=self.small, interpolation=cv2.INTER_LINEAR)
        picture = cv2.copyMakeBorder(self.small, *self.border, cv2.BORDER_CONSTANT, value=(114, 114, 114))
        return cv2.dnn.blobFromImage(picture, 1 / 255, swapRB=late)


def measure(preprocess, frame, runs):
    times = []
    for run in range(runs + 3):
        started = time.perf_counter()
        preprocess(frame)
        if run >= 3:
            times.append((time.perf_counter() - started) * 1e6)
    return sorted(times)


def compare(paths):
    """A table of the peer's times and ours, with ratios, in both samplings."""
    best = []
    for path in paths:
        cases = {}
        with open(path, encoding="ascii") as file:
            for line in map(json.loads, file):
                cases.setdefault(tuple(line[key] for key in ("format", "frame", "input", "dtype")), []).append(line)
        best.append({case: [f([l[k] for l in lines]) for k, f in (("min_us", min), ("median_us", np.median))]
                     for case, lines in cases.items()})  # fmt: skip
    peer, ours, exact = best
    print(f"{'':34}{'best, us':^36}{'median, us':^36}")
    print(f"{'':34}" + f"{'OpenCV':>8}{'ours':>8}{'':6}{'exact':>8}{'':6}" * 2)
    for case, theirs in peer.items():
        row = f"{' '.join(case):34}"
        for i in (0, 1):
            row += f"{theirs[i]:8.0f}"
            for times in (ours[case], exact[case]):
                row += f"{times[i]:8.0f}{theirs[i] / times[i]:5.1f}x"
        print(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--compare", nargs=3, metavar=("PEER", "OURS", "EXACT"))
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.compare)
        return
    runs = arguments.runs
    cv2.setNumThreads(1)
    rng = np.random.default_rng(1)
    for fmt, source, size, dtype in CASES:
        shape, code = SOURCES[fmt]
        bits = 10 if fmt == "rggb10" else 8
        frame = rng.integers(0, 2**bits, shape(*source), np.uint16 if bits > 8 else np.uint8)
        ways = {"numpy": Preprocess}
        if dtype == "f32":
            ways["blob"] = PreprocessByBlob
        # The faster of the ways is the peer.
        best = {name: measure(way(code, source, size, dtype, bits), frame, runs) for name, way in ways.items()}
        name, times = min(best.items(), key=lambda item: item[1][runs // 2])
        print(json.dumps({
            "format": fmt, "frame": "%dx%d" % source, "input": "%dx%d" % size, "dtype": dtype, "way": name,
            "min_us": round(times[0], 1), "median_us": round(times[runs // 2], 1), "p90_us": round(times[runs * 9 // 10], 1),
        }))  # fmt: skip


if __name__ == "__main__":
    main()
