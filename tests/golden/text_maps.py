#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94, shapely 2.2.0
"""Golden texts in maps of probabilities: OpenCV and shapely, as PaddleOCR's `DBPostProcess` has it.

    text_maps.py    writes text_maps.txt beside itself

The steps are those of `boxes_from_bitmap` in ppocr/postprocess/db_postprocess.py: `findContours` of the cells above `thresh`,
the `minAreaRect` of each outline, its shortest side at least 3, its mean probability (`box_score_fast`) at least `box_thresh`,
the outline of the rectangle offset by area * ratio / perimeter with round corners, the `minAreaRect` of that, its shortest side
at least 5. PaddleOCR offsets with pyclipper in whole cells; shapely does not round, and neither does visiond. Outlines of holes
are left out (`RETR_EXTERNAL` and holes' own contents by connected components): PaddleOCR looks at them, but their score is that
of what is not text.

Maps are turned rectangles of whole numbers that both sides make from a seed (`drawn`). A map is a line "width height shapes seed
thresh box_thresh unclip_ratio count", followed by a line per text: whether the rectangle is in
the map before it grows (OpenCV draws the edges of others in another way), score, and x and y of the four corners.
"""

import pathlib

import cv2
import numpy as np
from shapely.geometry import Polygon

HERE = pathlib.Path(__file__).resolve().parent


def drawn(seed, width, height, shapes):
    """Draws rectangles, later ones over earlier ones, and a tenth of the cells' noise."""
    state = seed

    def number():
        nonlocal state
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        return state >> 8

    x, y = np.meshgrid(np.arange(width), np.arange(height))
    cells = np.zeros((height, width), np.int64)
    for _ in range(shapes):
        cx, cy, a, b = number() % width, number() % height, number() % 33 - 16, number() % 33 - 16
        half_length, half_width, level = number() % (width // 5) + 2, number() % 12 + 1, number() % 200 + 56
        # The direction (a, b) is not of length 1, so limits are compared in squares.
        square = a * a + b * b
        along, across = (x - cx) * a + (y - cy) * b, (y - cy) * a - (x - cx) * b
        inside = (along * along <= half_length * half_length * square) & (across * across <= half_width * half_width * square)
        cells = np.where(inside, level, cells)
    # A pattern that lowers and raises levels a little.
    return (cells * 16 + (x * 7 + y * 13) % 16).astype(np.float32) / np.float32(4096)


def mini_box(points):
    rectangle = cv2.minAreaRect(points)
    return cv2.boxPoints(rectangle), min(rectangle[1])


def score_fast(cells, box):
    height, width = cells.shape
    # Corners are often cells; float rounding must not decide on which side they are.
    box = box + np.float32(1e-3)
    xmin = np.clip(np.floor(box[:, 0].min()).astype("int32"), 0, width - 1)
    xmax = np.clip(np.ceil(box[:, 0].max()).astype("int32"), 0, width - 1)
    ymin = np.clip(np.floor(box[:, 1].min()).astype("int32"), 0, height - 1)
    ymax = np.clip(np.ceil(box[:, 1].max()).astype("int32"), 0, height - 1)
    mask = np.zeros((ymax - ymin + 1, xmax - xmin + 1), np.uint8)
    box[:, 0] -= xmin
    box[:, 1] -= ymin
    cv2.fillPoly(mask, box.reshape(1, -1, 2).astype("int32"), 1)
    return cv2.mean(cells[ymin:ymax + 1, xmin:xmax + 1], mask)[0]


def texts(cells, thresh, box_thresh, ratio):
    count, labels = cv2.connectedComponents((cells > thresh).astype(np.uint8), connectivity=8)
    found = []
    for label in range(1, count):
        contours, _ = cv2.findContours((labels == label).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        box, side = mini_box(contours[0])
        if side < 3:
            continue
        score = score_fast(cells, box)
        # Too close to the limit to be sure of.
        if abs(score - box_thresh) < 0.01:
            return None
        if score < box_thresh:
            continue
        inside = (box >= 0).all() and (box <= [cells.shape[1] - 1, cells.shape[0] - 1]).all()
        polygon = Polygon(box)
        grown = polygon.buffer(polygon.area * ratio / polygon.length, quad_segs=64)
        box, side = mini_box(np.array(grown.exterior.coords, np.float32))
        if side < 5:
            continue
        found.append(("in" if inside else "out", score, box))
    return found


def main():
    lines, seed = [], 7000
    options = [(0.3, 0.6, 1.5), (0.3, 0.5, 2.0), (0.5, 0.7, 1.5)]
    sizes = [(160, 96, 8), (320, 320, 25), (96, 160, 4), (640, 384, 60), (33, 17, 2), (200, 200, 40)]
    while len([line for line in lines if line[0] != " "]) < 90:
        (width, height, shapes), (thresh, box_thresh, ratio) = sizes[seed % 6], options[seed % 3]
        found = texts(drawn(seed, width, height, shapes), thresh, box_thresh, ratio)
        if found is not None:
            lines.append(f"{width} {height} {shapes} {seed} {thresh} {box_thresh} {ratio} {len(found)}")
            for inside, score, box in found:
                lines.append(f" {inside} {score:.4f} " + " ".join(f"{n:.3f}" for n in box.ravel()))
        seed += 1
    (HERE / "text_maps.txt").write_text("\n".join(lines) + "\n")


main()
