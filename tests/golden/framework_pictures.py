#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94
"""Pictures of many sizes for framework_boxes.py: of cameras, odd ones, slivers, tiny ones.

    framework_pictures.py [--seed N] FOLDER SOURCE...

Writes 75 PNGs of 39 sizes into FOLDER, cut and scaled from the sources, which are pictures and videos. A picture is a row, a
column or a grid of cells; each shows a random part of a random source. The same sources and seed give the same pictures.

The figures in docs/figures.md are of tests/media/*.png, ultralytics/assets/*.jpg of ultralytics 8.4.190, imgs/*.jpg of
Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB at dffddda, and vtest.avi, in this order.
"""

import argparse
import pathlib
import random

import cv2
import numpy as np

import placement

ODD = [
    (641, 359), (333, 500), (451, 300), (799, 601), (1279, 719), (427, 640), (1001, 667), (613, 461), (416, 416), (640, 640),
]  # fmt: skip
EXTREME = [(1600, 90), (97, 1200), (1920, 240), (240, 1920), (1000, 251), (130, 901)]
TINY = [(33, 47), (64, 48), (47, 33), (96, 96), (127, 65)]
SIZES = placement.CAMERAS + ODD + EXTREME + TINY
LARGE = 4_000_000  # pixels; one picture of such a size, two of the others


def frames(path, every=40):
    """A picture, or some frames of a video."""
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is not None:
        return [picture]
    video, found, number = cv2.VideoCapture(str(path)), [], 0
    while video.grab():
        if number % every == 0:
            found.append(video.retrieve()[1])
        number += 1
    return found


def part(draw, source, w, h):
    """A random part of the source that has the cell's aspect ratio, scaled to the cell."""
    height, width = source.shape[:2]
    most = min(width / w, height / h)
    scale = most * draw.uniform(0.6, 1)
    cut_w, cut_h = max(1, int(w * scale)), max(1, int(h * scale))
    x, y = draw.randint(0, width - cut_w), draw.randint(0, height - cut_h)
    cut = source[y : y + cut_h, x : x + cut_w]
    return cv2.resize(cut, (w, h), interpolation=cv2.INTER_AREA if scale > 1 else cv2.INTER_LINEAR)


def composed(draw, sources, w, h):
    """A picture of cells."""
    more = 1 if min(w, h) < 200 else draw.choice((1, 1, 2))
    columns, rows = more * max(1, round(w / h)), more * max(1, round(h / w))
    picture = np.zeros((h, w, 3), np.uint8)
    for row in range(rows):
        for column in range(columns):
            x1, x2 = w * column // columns, w * (column + 1) // columns
            y1, y2 = h * row // rows, h * (row + 1) // rows
            picture[y1:y2, x1:x2] = part(draw, draw.choice(draw.choice(sources)), x2 - x1, y2 - y1)
    return picture


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    args = parser.parse_args()
    draw, sources = random.Random(args.seed), [frames(path) for path in args.sources]
    args.folder.mkdir(parents=True, exist_ok=True)
    for w, h in SIZES:
        for number in range(1 if w * h > LARGE else 2):
            cv2.imwrite(str(args.folder / f"{w}x{h}-{number}.png"), composed(draw, sources, w, h))


if __name__ == "__main__":
    main()
