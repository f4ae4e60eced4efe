#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94, pycocotools 2.0.11
"""Golden masks of objects: numpy from the definition, pycocotools for the runs.

    masks.py [--cases N] [--out FILE]    writes masks.txt beside itself, or N cases to FILE
    masks.py --polygons FILE             compares polygons that kernels/tests/mask_golden.rs wrote with their masks

The definition is that of Ultralytics 8.4's `process_mask_native`: the logits are the sum of the prototypes times the
coefficients; if the letterbox's padding ends inside cells, these are refined by 2 or 4; the padding is cut off; the rest is
interpolated to the frame (PyTorch's `interpolate`, bilinear, in f32: along rows first); a pixel belongs to the object if it is
inside the box and its logit is above 0.

Prototypes are slopes and coefficients sixty-fourths that both sides make from a seed (`numbers`), so that logits are exact. A
line is an object, fields are separated by spaces:

    fit width height in_width in_height cells_x cells_y channels seed x1,y1,x2,y2 area hash runs

`hash` is 64-bit FNV-1a of pycocotools' runs, `runs` are these if they have at most 100 characters, else `-`.
"""

import argparse
import pathlib

import cv2
import numpy as np
from pycocotools import mask as coco

HERE = pathlib.Path(__file__).resolve().parent
F = np.float32
SIZES = [(1920, 1080), (1080, 1920), (1280, 720), (640, 480), (427, 640), (640, 356), (641, 479), (3840, 2160), (810, 1080),
         (160, 160), (150, 120), (33, 17), (7, 5), (1, 1), (1366, 768), (500, 333)]
FITS = ["letterbox", "letterbox", "letterbox", "top-left", "stretch"]


def numbers(seed):
    """Returns a function that gives the upper 24 bits of the next number."""
    state = seed

    def following():
        nonlocal state
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        return state >> 8

    return following


def model(seed, channels, cells_x, cells_y):
    """Returns prototypes and coefficients."""
    number = numbers(seed)
    x, y = np.meshgrid(np.arange(cells_x), np.arange(cells_y))
    prototypes, coefficients = [], []
    for _ in range(channels):
        a, b, c = number() % 7, number() % 7, number() % 256
        t = (a * x + b * y + c) % 256
        prototypes.append((np.where(t < 128, t, 255 - t).astype(F) - F(63.5)) / F(64))
        coefficients.append(F(number() % 129 - 64.0) / F(64))
    return np.array(prototypes, F), np.array(coefficients, F)


def taps(size, out, step):
    at = np.maximum(F(step) * (np.arange(out).astype(F) + F(0.5)) - F(0.5), F(0))
    first = np.minimum(at.astype(np.int64), size - 1)
    second = np.minimum(first + 1, size - 1)
    weight = np.clip(at - first.astype(F), F(0), F(1))
    return first, second, F(1) - weight, weight


def interpolate(image, width, height, step_x, step_y):
    x0, x1, a0, a1 = taps(image.shape[1], width, step_x)
    y0, y1, b0, b1 = taps(image.shape[0], height, step_y)
    rows = image[:, x0] * a0 + image[:, x1] * a1
    return rows[y0] * b0[:, None] + rows[y1] * b1[:, None]


def native(logits, fit, width, height, stride):
    """Returns the logits of the frame's pixels."""
    cells_y, cells_x = logits.shape
    if fit == "stretch":
        left = top = 0
        right, bottom = cells_x, cells_y
    else:
        gain = min(stride * cells_y / height, stride * cells_x / width)
        shown = [max(round(side * gain), 1) for side in (width, height)]
        pad = [stride * cells - part for cells, part in zip((cells_x, cells_y), shown)]
        start = [0, 0] if fit == "top-left" else [round(p / 2 - 0.1) for p in pad]
        # Where the padding ends within cells, these are refined.
        factor = next(f for f in (1, 2, 4) if all(edge * f % stride == 0 for edge in shown + start))
        if factor > 1:
            logits = interpolate(logits, factor * cells_x, factor * cells_y, 1 / factor, 1 / factor)
            cells_y, cells_x = logits.shape
        gain = min(cells_y / height, cells_x / width)
        across, down = (max(round(side * gain), 1) for side in (width, height))
        left, top = 0, 0
        if fit != "top-left":
            left, top = (round((cells - part) / 2 - 0.1) for cells, part in ((cells_x, across), (cells_y, down)))
        right, bottom = left + across, top + down
    part = np.ascontiguousarray(logits[top:bottom, left:right])
    return part, interpolate(part, width, height, F(part.shape[1]) / F(width), F(part.shape[0]) / F(height))


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def cases(count):
    """Returns lines, and the largest difference from OpenCV's interpolation."""
    lines, worst, flipped = [], 0.0, 0
    for index in range(count):
        seed = 1000 + index
        number = numbers(seed ^ 0x5A5A5A5A)
        width, height = SIZES[index % len(SIZES)] if index < 2 * len(SIZES) else (number() % 1000 + 1, number() % 1000 + 1)
        fit = FITS[number() % len(FITS)] if index >= len(SIZES) else "letterbox"
        cells_x, cells_y = [(160, 160), (160, 160), (96, 160), (80, 64)][number() % 4] if index >= len(SIZES) else (160, 160)
        channels = [32, 32, 8, 1][number() % 4]
        prototypes, coefficients = model(seed, channels, cells_x, cells_y)
        logits = np.zeros((cells_y, cells_x), F)
        for k in range(channels):
            logits = logits + coefficients[k] * prototypes[k]
        part, values = native(logits, fit, width, height, 4)
        peer = cv2.resize(part, (width, height), interpolation=cv2.INTER_LINEAR)
        worst = max(worst, float(np.abs(peer - values).max()))
        # Sixteenths of a pixel; the first cases take the whole frame.
        x = sorted(number() % (16 * width + 40) / 16 for _ in range(2))
        y = sorted(number() % (16 * height + 40) / 16 for _ in range(2))
        box = [0.0, 0.0, float(width), float(height)] if index % 8 == 0 else [x[0], y[0], x[1], y[1]]
        across, down = np.arange(width).astype(F), np.arange(height).astype(F)
        inside = ((across >= F(box[0])) & (across < F(box[2])))[None, :] & ((down >= F(box[1])) & (down < F(box[3])))[:, None]
        mask = (values > 0) & inside
        flipped += int((((peer > 0) & inside) != mask).sum())
        runs = coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"]
        text = ",".join(f"{edge}" for edge in box)
        # `-` would be a run of its own, but no mask has it.
        shown = runs.decode() if len(runs) <= 100 else "-"
        lines.append(f"{fit} {width} {height} {4 * cells_x} {4 * cells_y} {cells_x} {cells_y} {channels} {seed} "
                     f"{text} {int(mask.sum())} {fnv(runs):016x} {shown}")
    return lines, worst, flipped


def polygons(file):
    """Fills polygons with OpenCV and pycocotools: a line has the frame's size, the runs, and rings."""
    least = {"cv2": 1.0, "pycocotools": 1.0}
    bad, count, differences = 0, 0, []
    for line in pathlib.Path(file).read_text().splitlines():
        size, runs, *rings = line.split()
        width, height = map(int, size.split("x"))
        mask = coco.decode({"size": [height, width], "counts": runs.encode()}).astype(bool)
        rings = [np.array(ring.split(","), float).reshape(-1, 2) for ring in rings]
        if not mask.any():
            assert not rings
            continue
        count += 1
        # OpenCV fills integer points and their edges: 8 times as fine, point 4 is the middle of a pixel.
        scale = 8
        fine = np.zeros((height * scale, width * scale), np.uint8)
        cv2.fillPoly(fine, [np.round(ring * scale).astype(np.int32) for ring in rings], 1)
        middle = fine[scale // 2::scale, scale // 2::scale].astype(bool)
        results = {"cv2": middle}
        # pycocotools has no holes: those rings are counterclockwise.
        signed = [np.sum(r[:, 0] * np.roll(r[:, 1], -1) - np.roll(r[:, 0], -1) * r[:, 1]) for r in rings]
        if all(area > 0 for area in signed):
            parts = coco.frPyObjects([ring.ravel().tolist() for ring in rings], height, width)
            results["pycocotools"] = coco.decode(coco.merge(parts)).astype(bool)
        area = sum(signed) / 2
        differences.append(abs(area - mask.sum()) / mask.sum())
        for name, filled in results.items():
            iou = (filled & mask).sum() / (filled | mask).sum()
            if name == "pycocotools" and mask.sum() < 100:
                continue  # It rounds to whole pixels.
            least[name] = min(least[name], iou)
            bad += iou < 0.98
            if iou < 0.98:
                print(f"{name}: IoU {iou:.4f} of {mask.sum()} pixels in {size}, {len(rings)} rings")
    print(f"{count} masks: least IoU {least}, {bad} below 0.98; "
          f"areas of polygons differ by {max(differences):.4f} at most, {np.mean(differences):.5f} on average")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=64)
    parser.add_argument("--out", default=HERE / "masks.txt")
    parser.add_argument("--polygons")
    arguments = parser.parse_args()
    if arguments.polygons:
        return polygons(arguments.polygons)
    lines, worst, flipped = cases(arguments.cases)
    pathlib.Path(arguments.out).write_text("".join(line + "\n" for line in lines))
    print(f"{len(lines)} masks; OpenCV's interpolation differs by {worst:.2e} at most, {flipped} pixels are on another side of 0")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
