#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 5.0.0.93
"""Golden tensors for the preprocess: float64 numpy for exact sampling, OpenCV itself for OpenCV's.

    preprocess.py            writes preprocess_exact.txt, preprocess_opencv.txt and grey_levels.txt beside itself

Shares no code with visiond; frames are noise that both sides make from a seed (`noise`). A line is a case, fields are
separated by spaces:

    format width height pitches matrix range fit fraction in_width in_height order layout dtype scale mean std pad seed
    check index:value ...

`check` is the tensor's mean (exact) or the sum of `(index + 1) * value` of its bytes (opencv, u8), so that every element
counts; the values are elements at those indices. Lists within a field are separated by commas. `range` is limited, full, or
LOW-HIGH: the samples of grey10, grey12 or grey16 that become black and white.

A line of grey_levels.txt is `low high check`: the sum of `(sample + 1) * byte` of all 65,536 samples of grey16.
"""

import itertools
import pathlib
import random

import cv2
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
PACKED = {"rgb": (0, 1, 2, 3), "bgr": (2, 1, 0, 3), "rgba": (0, 1, 2, 4), "bgra": (2, 1, 0, 4)}
ORDERS = {"rggb": (0, 0), "grbg": (1, 0), "gbrg": (0, 1), "bggr": (1, 1)}  # the position of red: x, y
# Grey in words of 16 bits.
DEEP = ["grey10", "grey12", "grey16"]
BAYER = [order + bits for bits in ("8", "10", "12", "16") for order in ORDERS]
# Positions of Y, Cb and Cr of two neighbours in four bytes; whether Cb comes first, and rows that share a row of chroma.
QUADS = {"yuyv": ([0, 2], 1, 3), "uyvy": ([1, 3], 0, 2), "yvyu": ([0, 2], 3, 1), "vyuy": ([1, 3], 2, 0)}
PAIRS = {"nv12": (True, 2), "nv21": (False, 2), "nv16": (True, 1), "nv61": (False, 1)}
# Add new cases at the end: every later case gets other random numbers.
FORMATS = ["yuyv", "uyvy", "nv12", "nv21", "i420", *PACKED, "grey", *BAYER, "yvyu", "vyuy", "nv16", "nv61", *DEEP]
WEIGHTS = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
FITS = [("letterbox", 0), ("top-left", 0), ("stretch", 0), ("crop", 1.0), ("crop", 0.625)]
SIZES = [(1, 1), (1, 7), (8, 1), (2, 2), (3, 5), (16, 16), (17, 31), (33, 18), (48, 36), (64, 27), (90, 60), (101, 77)]
LARGE = [
    ("yuyv", (1920, 1080), (640, 640)), ("nv12", (1920, 1080), (640, 640)), ("bgr", (768, 576), (416, 416)),
    ("i420", (768, 576), (416, 416)), ("rgb", (1279, 717), (641, 355)), ("uyvy", (853, 479), (1280, 720)),
    ("grey", (16384, 3), (1000, 7)), ("bgra", (3, 16384), (5, 999)), ("i420", (1, 2047), (64, 640)),
    ("nv21", (2047, 1), (640, 64)), ("rggb10", (1281, 721), (320, 320)), ("gbrg8", (640, 480), (512, 512)),
    ("vyuy", (1920, 1080), (640, 640)), ("nv16", (1920, 1080), (640, 640)), ("yvyu", (853, 479), (1280, 720)),
    ("grey12", (1281, 721), (320, 320)),
]  # fmt: skip
INPUTS = [(1, 1), (5, 3), (16, 16), (17, 9), (20, 30), (30, 10), (32, 32), (33, 21)]


def noise(count, seed):
    """Bytes from a seed: a multiply-xorshift hash of the byte's number."""
    with np.errstate(over="ignore"):
        z = (np.arange(count, dtype=np.uint64) + np.uint64(seed) * np.uint64(0x100000001)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        return ((z ^ (z >> np.uint64(32))) & np.uint64(0xFF)).astype(np.uint8)


def planes_of(fmt, w, h):
    """Bytes of a row and rows, by plane."""
    cw, ch = -(-w // 2), -(-h // 2)
    if fmt in QUADS:
        return [(4 * cw, h)]
    if fmt in PAIRS:
        return [(w, h), (2 * cw, -(-h // PAIRS[fmt][1]))]
    if fmt == "i420":
        return [(w, h), (cw, ch), (cw, ch)]
    if fmt in PACKED:
        return [(w * PACKED[fmt][3], h)]
    if fmt == "grey":
        return [(w, h)]
    return [(w if bits_of(fmt) == 8 else 2 * w, h)]


def bits_of(fmt):
    """Bits of a sample of a mosaic or of deep grey."""
    return int(fmt[4:])


def frame_of(fmt, w, h, pitches, seed):
    """The planes' bytes without padding, one array (rows, bytes) a plane."""
    data = noise(sum(pitch * rows for pitch, (_, rows) in zip(pitches, planes_of(fmt, w, h))), seed)
    planes, start = [], 0
    for pitch, (row, rows) in zip(pitches, planes_of(fmt, w, h)):
        plane = data[start : start + pitch * rows].reshape(rows, pitch)[:, :row].copy()
        if fmt in [*BAYER, *DEEP] and bits_of(fmt) > 8:
            plane[:, 1::2] &= (1 << (bits_of(fmt) - 8)) - 1
        planes.append(plane)
        start += pitch * rows
    return planes


def yuv_of(fmt, w, h, planes):
    """Y, Cb and Cr of every pixel, chroma replicated."""
    if fmt in QUADS:
        quads = planes[0].reshape(h, -1, 4)
        y, cb, cr = QUADS[fmt]
        luma = quads[:, :, y].reshape(h, -1)
        return luma[:, :w], np.repeat(quads[:, :, cb], 2, 1)[:, :w], np.repeat(quads[:, :, cr], 2, 1)[:, :w]
    if fmt == "i420":
        chroma, shared = planes[1:], 2
    else:
        cb_first, shared = PAIRS[fmt]
        pairs = planes[1].reshape(planes[1].shape[0], -1, 2)
        chroma = [pairs[:, :, 0], pairs[:, :, 1]] if cb_first else [pairs[:, :, 1], pairs[:, :, 0]]
    cb, cr = (np.repeat(np.repeat(c, shared, 0), 2, 1)[:h, :w] for c in chroma)
    return planes[0], cb, cr


def coefficients(matrix, full):
    kr, kb = WEIGHTS[matrix]
    kg = 1 - kr - kb
    y0, ys, cs = (0, 255, 255) if full else (16, 219, 224)
    c = 255 / cs
    return (
        y0, 255 / ys, 2 * (1 - kr) * c, -2 * kb * (1 - kb) / kg * c, -2 * kr * (1 - kr) / kg * c, 2 * (1 - kb) * c,
    )  # fmt: skip


def samples_of(fmt, planes):
    """Raw samples of a mosaic or of deep grey."""
    if bits_of(fmt) == 8:
        return planes[0].astype(np.int64)
    return planes[0][:, 0::2].astype(np.int64) | planes[0][:, 1::2].astype(np.int64) << 8


def grey_of(samples, low, high):
    """Bytes by OpenCV's convertTo(CV_8U, gain, bias). Python has it as convertScaleAbs, so nothing may become negative."""
    gain = 255 / (high - low)
    return cv2.convertScaleAbs(np.maximum(samples, low).astype(np.uint16), alpha=gain, beta=-low * gain)


def demosaic(fmt, samples, mean):
    """Each missing colour is `mean` of its nearest samples, the frame mirrored without its edge."""
    h, w = samples.shape
    p = samples
    for axis, n in ((0, h), (1, w)):
        if n > 1:
            p = np.pad(p, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], mode="reflect")
        else:
            p = np.repeat(p, 3, axis)
    at = lambda dx, dy: p[1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]
    cross = mean([at(-1, 0), at(1, 0), at(0, -1), at(0, 1)])
    corners = mean([at(-1, -1), at(1, -1), at(-1, 1), at(1, 1)])
    beside, over = mean([at(-1, 0), at(1, 0)]), mean([at(0, -1), at(0, 1)])
    rx, ry = ORDERS[fmt[:4]]
    x, y = np.meshgrid(np.arange(w), np.arange(h))
    red_x, red_y = x % 2 == rx, y % 2 == ry
    red = np.select([red_x & red_y, red_y, red_x], [samples, beside, over], corners)
    blue = np.select([~red_x & ~red_y, ~red_y, ~red_x], [samples, beside, over], corners)
    green = np.where(red_x == red_y, cross, samples)
    return np.stack([red, green, blue], 2)


def exact_rgb(fmt, w, h, planes, matrix, full):
    """float64, 0 to 255, not rounded."""
    if fmt in PACKED:
        r, g, b, n = PACKED[fmt]
        return planes[0].reshape(h, w, n)[:, :, [r, g, b]].astype(np.float64)
    y0, gain, rcr, gcb, gcr, bcb = coefficients(matrix, full)
    if fmt == "grey":
        grey = np.clip((planes[0].astype(np.float64) - y0) * gain, 0, 255)
        return np.stack([grey] * 3, 2)
    if fmt in BAYER:
        scaled = samples_of(fmt, planes) * (255 / (2 ** bits_of(fmt) - 1))
        return demosaic(fmt, scaled, lambda near: sum(near) / len(near))
    y, cb, cr = (c.astype(np.float64) for c in yuv_of(fmt, w, h, planes))
    y, cb, cr = gain * (y - y0), cb - 128, cr - 128
    return np.clip(np.stack([y + rcr * cr, y + gcb * cb + gcr * cr, y + bcb * cb], 2), 0, 255)


CV_CODES = {
    "yuyv": cv2.COLOR_YUV2RGB_YUYV, "uyvy": cv2.COLOR_YUV2RGB_UYVY, "nv12": cv2.COLOR_YUV2RGB_NV12,
    "nv21": cv2.COLOR_YUV2RGB_NV21, "i420": cv2.COLOR_YUV2RGB_I420, "yvyu": cv2.COLOR_YUV2RGB_YVYU,
}  # fmt: skip


def opencv_rgb(fmt, w, h, planes, matrix, full):
    """uint8, by cv2.cvtColor where it knows the format and size, else by the same fixed point."""
    if fmt in PACKED:
        codes = {"bgr": cv2.COLOR_BGR2RGB, "rgba": cv2.COLOR_RGBA2RGB, "bgra": cv2.COLOR_BGRA2RGB}
        picture = planes[0].reshape(h, w, -1)
        return cv2.cvtColor(picture, codes[fmt]) if fmt in codes else picture
    if fmt == "grey":
        return cv2.cvtColor(planes[0], cv2.COLOR_GRAY2RGB)
    if fmt in BAYER:
        white = 2 ** bits_of(fmt) - 1
        bytes_ = np.rint(samples_of(fmt, planes) * 255 / white).astype(np.int64)
        return demosaic(fmt, bytes_, lambda near: (sum(near) + len(near) // 2) // len(near)).astype(np.uint8)
    y, cb, cr = (c.astype(np.int64) for c in yuv_of(fmt, w, h, planes))
    y0, *gains = coefficients(matrix, full)
    gains = [int(np.rint(gain * 2**20)) for gain in gains]
    standard = matrix == "bt601" and not full
    if standard:
        gains = [1220542, 1673527, -409993, -852492, 2116026]
    gain, rcr, gcb, gcr, bcb = gains
    y, cb, cr = np.maximum(y - y0, 0) * gain + (1 << 19), cb - 128, cr - 128
    rgb = np.stack([y + rcr * cr, y + gcb * cb + gcr * cr, y + bcb * cb], 2) >> 20
    rgb = np.clip(rgb, 0, 255).astype(np.uint8)
    if fmt in CV_CODES and standard and w % 2 == 0 and (h % 2 == 0 or fmt in QUADS):
        if fmt in QUADS:
            picture = planes[0].reshape(h, w, 2)
        else:
            picture = np.concatenate([p.ravel() for p in planes]).reshape(h * 3 // 2, w)
        by_opencv = cv2.cvtColor(picture, CV_CODES[fmt])
        assert (by_opencv == rgb).all(), (fmt, w, h)
        return by_opencv
    return rgb


def geometry(fit, fraction, source, size):
    """(the seen part of the source: x, y, width, height), (where it lands)."""
    (sw, sh), (iw, ih) = source, size
    if fit == "stretch":
        return (0, 0, sw, sh), (0, 0, iw, ih)
    if fit == "crop":
        ratio = max(iw / sw, ih / sh)
        w, h = iw / ratio * fraction, ih / ratio * fraction
        return ((sw - w) / 2, (sh - h) / 2, w, h), (0, 0, iw, ih)
    ratio = min(iw / sw, ih / sh)
    w, h = max(1, min(iw, round(sw * ratio))), max(1, min(ih, round(sh * ratio)))
    x, y = ((iw - w) // 2, (ih - h) // 2) if fit == "letterbox" else (0, 0)
    return (0, 0, sw, sh), (x, y, w, h)


def exact_resize(picture, seen, width, height):
    def axis(count, origin, extent, size):
        s = np.clip((np.arange(count) + 0.5) * extent / count + origin - 0.5, 0, size - 1)
        low = np.floor(s).astype(int)
        return low, np.minimum(low + 1, size - 1), s - low

    x0, x1, fx = axis(width, seen[0], seen[2], picture.shape[1])
    y0, y1, fy = axis(height, seen[1], seen[3], picture.shape[0])
    fx, fy = fx[None, :, None], fy[:, None, None]
    rows = lambda y: picture[y][:, x0] * (1 - fx) + picture[y][:, x1] * fx
    return rows(y0) * (1 - fy) + rows(y1) * fy


def opencv_resize(picture, seen, width, height):
    """cv2.resize; for a part of the source, which it cannot see, its fixed point in numpy."""

    def axis(count, origin, extent, size, columns):
        step = 1 / (count / extent)
        f = np.float32((np.arange(count) + 0.5) * step + origin - 0.5)
        low = np.floor(f).astype(np.int64)
        f = f - low.astype(np.float32)
        if columns:
            off = (low < 0) | (low >= size - 1)
            f[off] = 0
            low = np.clip(low, 0, size - 1)
        weights = [np.rint((np.float32(1) - f) * 2048).astype(np.int64), np.rint(f * 2048).astype(np.int64)]
        return np.clip(low, 0, size - 1), np.clip(low + 1, 0, size - 1), weights

    h, w = picture.shape[:2]
    x0, x1, (a0, a1) = axis(width, seen[0], seen[2], w, True)
    y0, y1, (b0, b1) = axis(height, seen[1], seen[3], h, False)
    wide = picture.astype(np.int64)
    rows = wide[:, x0] * a0[None, :, None] + wide[:, x1] * a1[None, :, None]
    b0, b1 = b0[:, None, None], b1[:, None, None]
    out = ((b0 * (rows[y0] >> 4) >> 16) + (b1 * (rows[y1] >> 4) >> 16) + 2) >> 2
    out = np.clip(out, 0, 255).astype(np.uint8)
    if tuple(seen) == (0, 0, w, h):
        by_opencv = cv2.resize(picture, (width, height), interpolation=cv2.INTER_LINEAR).reshape(out.shape)
        assert (by_opencv == out).all(), (picture.shape, width, height, np.abs(by_opencv.astype(int) - out).max())
        return by_opencv
    return out


def stored(values, dtype):
    """float64 values as the tensor's type holds them."""
    if dtype == "f16":
        return values.astype(np.float16)
    if dtype in ("u8", "i8"):
        low, high = (0, 255) if dtype == "u8" else (-128, 127)
        return np.clip(np.rint(values), low, high)
    return values


def tensor_of(case, sampling):
    fmt, w, h = case["format"], case["width"], case["height"]
    planes = frame_of(fmt, w, h, case["pitches"], case["seed"])
    seen, (x, y, pw, ph) = geometry(case["fit"], case["fraction"], (w, h), (case["in_width"], case["in_height"]))
    if fmt in DEEP:
        levels = case["range"].split("-") if "-" in case["range"] else (0, 2 ** bits_of(fmt) - 1)
        fmt, planes = "grey", [grey_of(samples_of(fmt, planes), *map(int, levels))]
    color = (case["matrix"], case["range"] != "limited")
    grey = case["order"] == "grey"
    if sampling == "exact":
        picture = exact_rgb(fmt, w, h, planes, *color)
        if grey:
            picture = (picture @ [0.299, 0.587, 0.114])[:, :, None]
        placed = exact_resize(picture, seen, pw, ph)
    else:
        picture = opencv_rgb(fmt, w, h, planes, *color)
        if grey:
            grey_in = fmt == "grey"
            picture = (planes[0] if grey_in else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY))[:, :, None]
        placed = opencv_resize(np.ascontiguousarray(picture), seen, pw, ph).astype(np.float64)
    canvas = np.full((case["in_height"], case["in_width"], placed.shape[2]), case["pad"], np.float64)
    canvas[y : y + ph, x : x + pw] = placed
    if case["order"] == "bgr":
        canvas = canvas[:, :, ::-1]
    channels = canvas.shape[2]
    values = (canvas * np.float64(np.float32(case["scale"])) - case["mean"][:channels]) / case["std"][:channels]
    if case["layout"] == "nchw":
        values = values.transpose(2, 0, 1)
    return stored(values, case["dtype"]).ravel()


NORMS = {
    "f32": [(1 / 255, (0, 0, 0), (1, 1, 1)), (1, (103.5, 116.25, 123.75), (57.375, 57.125, 58.5)),
            (1 / 255, (0.5, 0.4375, 0.40625), (0.25, 0.21875, 0.234375))],
    "f16": [(1 / 255, (0, 0, 0), (1, 1, 1)), (1 / 255, (0.5, 0.4375, 0.40625), (0.25, 0.21875, 0.234375))],
    "u8": [(1, (0, 0, 0), (1, 1, 1))],
    "i8": [(1, (128, 128, 128), (1, 1, 1)), (0.5, (0, 0, 0), (1, 1, 1))],
}  # fmt: skip


def cases(sampling):
    """Every format, fit, order and layout; sizes, pitches, colours, types and scales drawn."""
    draw = random.Random(1)
    plain = itertools.product(FORMATS, FITS, ("rgb", "bgr", "grey"), ("nchw", "nhwc"))
    for seed, (fmt, (fit, fraction), order, layout) in enumerate(plain):
        w, h = draw.choice(SIZES)
        in_w, in_h = draw.choice(INPUTS)
        if draw.random() < 0.15:
            in_w, in_h = max(1, w // 2), max(1, h // 2)
        elif draw.random() < 0.15:
            in_w, in_h = max(1, w // 3), max(1, h // 3)
        elif draw.random() < 0.1:
            in_w, in_h = w, h
        pad_bytes = draw.choice([0, 0, 1, 5, 64])
        dtype = draw.choice(["f32", "f32", "f16", "u8", "i8"]) if sampling == "exact" else draw.choice(["u8"] * 9 + ["f32"])
        scale, mean, std = draw.choice(NORMS[dtype])
        common = sampling == "opencv" and draw.random() < 0.5
        ranges = ["limited", "full"]
        if fmt in DEEP:
            low, high = sorted(draw.sample(range(2 ** bits_of(fmt)), 2))
            ranges += [f"{low}-{high}", f"{low}-{low + 1 + draw.randrange(high - low)}"]
        yield {
            "format": fmt, "width": w, "height": h, "pitches": [row + pad_bytes for row, _ in planes_of(fmt, w, h)],
            "matrix": "bt601" if common else draw.choice(list(WEIGHTS)),
            "range": "limited" if common and fmt not in DEEP else draw.choice(ranges),
            "fit": fit, "fraction": fraction, "in_width": in_w, "in_height": in_h, "order": order, "layout": layout,
            "dtype": dtype, "scale": scale, "mean": mean, "std": std, "pad": draw.choice([0, 114, 127.5, 255])
            if dtype in ("f32", "f16") else draw.choice([0, 114, 255]), "seed": seed,
        }  # fmt: skip


def large_cases(sampling):
    """Sizes of real frames and of the limits."""
    for i, (fmt, (w, h), (in_w, in_h)) in enumerate(LARGE):
        for fit, fraction in FITS[::2]:
            dtype = "f32" if sampling == "exact" else "u8"
            scale, mean, std = NORMS[dtype][0]
            yield {
                "format": fmt, "width": w, "height": h, "pitches": [row for row, _ in planes_of(fmt, w, h)],
                "matrix": "bt601", "range": "limited", "fit": fit, "fraction": fraction, "in_width": in_w,
                "in_height": in_h, "order": "bgr", "layout": "nchw", "dtype": dtype, "scale": scale, "mean": mean,
                "std": std, "pad": 114, "seed": 1000 + i,
            }  # fmt: skip


def line(case, sampling, count):
    tensor = tensor_of(case, sampling)
    if case["dtype"] == "u8" and sampling == "opencv":
        check = str(int((np.arange(1, len(tensor) + 1) * tensor).sum()))
    else:
        check = f"{tensor.astype(np.float64).mean():.7g}"
    step = np.random.default_rng(case["seed"])
    indices = np.unique(np.concatenate([[0, len(tensor) - 1], step.integers(0, len(tensor), count)]))
    fields = [",".join(map(str, v)) if isinstance(v, (list, tuple)) else str(v) for v in case.values()]
    return " ".join(fields + [check] + [f"{i}:{float(tensor[i]):.7g}" for i in indices]) + "\n"


def levels_lines():
    """Those of each depth, of a sensor's usual black, narrow and any others."""
    draw = random.Random(2)
    samples = np.arange(65536)
    levels = [(0, 1023), (0, 4095), (0, 65535), (64, 1023), (256, 4095), (0, 510), (65534, 65535), (30000, 30007)]
    levels += [sorted(draw.sample(range(65536), 2)) for _ in range(32)]
    for low, high in levels:
        grey = grey_of(samples[None], low, high)
        # Minimum and maximum of the samples are the levels, and this calls convertTo itself.
        inside = np.clip(samples[None], low, high).astype(np.uint16)
        assert (cv2.normalize(inside, None, 0, 255, cv2.NORM_MINMAX, cv2.CV_8U) == grey).all(), (low, high)
        yield f"{low} {high} {((samples + 1) * grey[0]).sum()}\n"


def main():
    cv2.setNumThreads(1)
    with open(HERE / "grey_levels.txt", "w", encoding="ascii") as file:
        file.writelines(levels_lines())
    for sampling, count in (("exact", 40), ("opencv", 8)):
        with open(HERE / f"preprocess_{sampling}.txt", "w", encoding="ascii") as file:
            file.writelines(line(case, sampling, count) for case in [*cases(sampling), *large_cases(sampling)])


if __name__ == "__main__":
    main()
