#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 5.0.0.93
"""Golden tensors of crops: 10,000 boxes that lie in a frame, touch its edges or leave it, cut out and resized by OpenCV.

    crops.py            writes crops.txt beside itself

Shares no code with visiond; frame and boxes are noise that both sides make from a seed (`noise`, as in preprocess.py). A line is
`check crops`: the sum of `(index + 1) * value` over the bytes of all tensors of 100 boxes, and how many of these have a crop.
"""

import math
import pathlib

import cv2
import numpy as np

WIDTH, HEIGHT, SIDE, BOXES, PER_LINE = 161, 119, 24, 10_000, 100


def noise(count, seed):
    """Bytes from a seed: a multiply-xorshift hash of the byte's number."""
    with np.errstate(over="ignore"):
        z = (np.arange(count, dtype=np.uint64) + np.uint64(seed) * np.uint64(0x100000001)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        return ((z ^ (z >> np.uint64(32))) & np.uint64(0xFF)).astype(np.uint8)


def edges(low, high, side):
    """The whole, even pixels of the frame from `low` to `high`."""
    first, end = (min(max(edge, 0), side) for edge in (math.floor(low), math.ceil(high)))
    return None if end <= first else (first & ~1, min(end + end % 2, side))


def crop(x1, y1, x2, y2, margin, square):
    width, height = (x2 - x1) * (1 + 2 * margin), (y2 - y1) * (1 + 2 * margin)
    if square:
        width = height = max(width, height)
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    return edges(x - width / 2, x + width / 2, WIDTH), edges(y - height / 2, y + height / 2, HEIGHT)


def main():
    frame = noise(WIDTH * HEIGHT * 3, 1).reshape(HEIGHT, WIDTH, 3)
    words = noise(BOXES * 8, 2).astype(np.int64)
    lines, check, crops = [], 0, 0
    for index in range(BOXES):
        a, b, c, d = (int(words[8 * index + 2 * i]) * 256 + int(words[8 * index + 2 * i + 1]) for i in range(4))
        # In quarters of a pixel, which every float holds: from 32 pixels left of and above the frame on, up to 96 pixels wide.
        left, top = a % (4 * (WIDTH + 64)) / 4 - 32, b % (4 * (HEIGHT + 64)) / 4 - 32
        box = left, top, left + (c % 384 + 1) / 4, top + (d % 384 + 1) / 4
        x, y = crop(*box, margin=index % 3 * 0.125, square=index % 2 == 1)
        if x and y:
            resized = cv2.resize(frame[y[0] : y[1], x[0] : x[1]], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
            flat = resized.astype(np.int64).ravel()
            check += int((flat * np.arange(1, flat.size + 1)).sum())
            crops += 1
        if index % PER_LINE == PER_LINE - 1:
            lines.append(f"{check} {crops}\n")
            check, crops = 0, 0
    pathlib.Path(__file__).with_name("crops.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
