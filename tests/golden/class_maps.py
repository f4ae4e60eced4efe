#!/usr/bin/env python3
# numpy 2.4.6
"""Golden maps of classes: numpy from the definition.

    class_maps.py    writes class_maps.txt beside itself

The definition is that of Hugging Face's `post_process_semantic_segmentation`: the scores are interpolated to the frame
(PyTorch's `interpolate`, bilinear, `align_corners=False`), and a pixel has the class with the greatest one. Where the frame is
letterboxed, cropped or resized without its aspect ratio, the middle of a pixel is first mapped to the model's input. All in
f64; pixels whose two best classes differ by less than 1e-4 are listed, since f32 may choose either.

Scores are slopes that both sides make from a seed (`scores`), multiples of 1/64. A line is a frame, fields are separated by
spaces:

    fit width height in_width in_height cells_x cells_y classes seed close hash class:area:score,...

`close` are the indices of the pixels that are too close to call, `hash` is 64-bit FNV-1a of the classes of all others as bytes
(255: the model did not see the pixel), `area` counts all pixels, `score` is the mean of the softmax over the cells where the
class is the best, of those that pixels are made of ("-" if there are none).
"""

import pathlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
F = np.float32


def scores(seed, classes, cells_x, cells_y):
    state = seed

    def number():
        nonlocal state
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        return state >> 8

    x, y = np.meshgrid(np.arange(cells_x), np.arange(cells_y))
    planes = []
    for _ in range(classes):
        a, b, c, d = number() % 23, number() % 23, number() % 256, number() % 64
        t = (a * x + b * y + c) % 256
        planes.append((np.where(t < 128, t, 255 - t) * 2 + d) / 64)
    return np.array(planes, np.float64)


def placed(fit, source, size):
    """Returns scale and shift from a frame's x and y to the input's."""
    (sw, sh), (iw, ih) = source, size
    if fit == "stretch":
        return [(iw / sw, 0.0), (ih / sh, 0.0)]
    if fit == "crop":
        ratio = max(iw / sw, ih / sh)
        w, h = iw / ratio, ih / ratio
        return [(ratio, -(sw - w) / 2 * ratio), (ratio, -(sh - h) / 2 * ratio)]
    ratio = min(iw / sw, ih / sh)
    axes = []
    for source_side, side in ((sw, iw), (sh, ih)):
        resized = min(max(round(source_side * ratio), 1), side)
        axes.append((resized / source_side, (side - resized) // 2 if fit == "letterbox" else 0))
    return axes


def taps(source_side, scale, shift, side, cells):
    """Returns the two cells and the second one's weight for each pixel, and which pixels lie in the input."""
    middle = (np.arange(source_side) + 0.5) * scale + shift
    seen = (middle >= 0) & (middle < side)
    at = np.clip(middle * cells / side - 0.5, 0, cells - 1)
    first = np.floor(at).astype(int)
    return first, np.minimum(first + 1, cells - 1), at - first, seen


def case(fit, width, height, in_width, in_height, cells_x, cells_y, classes, seed):
    planes = scores(seed, classes, cells_x, cells_y)
    (scale_x, shift_x), (scale_y, shift_y) = placed(fit, (width, height), (in_width, in_height))
    x0, x1, wx, seen_x = taps(width, scale_x, shift_x, in_width, cells_x)
    y0, y1, wy, seen_y = taps(height, scale_y, shift_y, in_height, cells_y)
    wy = wy[:, None]
    upper = planes[:, y0][:, :, x0] * (1 - wx) + planes[:, y0][:, :, x1] * wx
    lower = planes[:, y1][:, :, x0] * (1 - wx) + planes[:, y1][:, :, x1] * wx
    full = upper * (1 - wy) + lower * wy
    best = full.argmax(0).astype(np.uint8)
    ordered = np.sort(full, 0)
    seen = seen_y[:, None] & seen_x
    close = seen & (ordered[-1] - ordered[-2] < 1e-4) if classes > 1 else np.zeros_like(seen)
    best[~seen] = 255
    hashed = 0xCBF29CE484222325
    for byte in best[~close]:
        hashed = ((hashed ^ int(byte)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    winners = planes.argmax(0)
    softmax = 1 / np.exp(planes - planes.max(0)).sum(0)
    used = np.zeros((cells_y, cells_x), bool)
    used[min(y0[seen_y]):max(y1[seen_y]) + 1, min(x0[seen_x]):max(x1[seen_x]) + 1] = True
    parts = []
    for k in range(classes):
        own = used & (winners == k)
        score = f"{softmax[own].mean():.6f}" if own.any() else "-"
        if (area := int((best == k).sum())):
            parts.append(f"{k}:{area}:{score}")
    listed = ",".join(map(str, np.flatnonzero(close.ravel()))) or "-"
    return f"{fit} {width} {height} {in_width} {in_height} {cells_x} {cells_y} {classes} {seed} {listed} {hashed:016x} {','.join(parts)}"


def main():
    frames = [(320, 180), (180, 320), (321, 241), (33, 17), (1, 1), (97, 64), (128, 128), (500, 376), (640, 356)]
    inputs = [(128, 128, 32, 32), (128, 128, 16, 16), (160, 96, 160, 96), (96, 96, 12, 12), (513, 513, 65, 65), (64, 64, 64, 64)]
    lines, seed = [], 4000
    for fit in ("stretch", "letterbox", "top-left", "crop"):
        for index, frame in enumerate(frames):
            for size in (inputs[index % 6], inputs[(index + 3) % 6]):
                classes = [1, 2, 3, 5, 19, 21, 60][seed % 7]
                lines.append(case(fit, *frame, *size, classes, seed))
                seed += 1
    (HERE / "class_maps.txt").write_text("\n".join(lines) + "\n")


main()
