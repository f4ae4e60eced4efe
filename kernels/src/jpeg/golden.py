# Made with Python 3.11, numpy 2.4.6, opencv-python-headless 5.0.0.93 (libjpeg-turbo 3.1.2), Pillow 13.0.0.
"""Writes golden.txt: small JPEG pictures of every kind, and what OpenCV decodes them to.

Run: python golden.py > golden.txt
A line: name, width, height, 64-bit FNV-1a of the RGB bytes that cv2.imdecode(IMREAD_COLOR) gives, the JPEG in hex.
"""
import io

import cv2
import numpy as np
from PIL import Image

rng = np.random.default_rng(7)


def scene(width, height):
    """Edges, a gradient, saturated colours and noise: every path of upsampling and clamping."""
    y, x = np.mgrid[0:height, 0:width]
    picture = np.stack([x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x * 7 + y * 13) % 256], axis=2)
    picture[(x // 5 + y // 3) % 4 == 0] = (255, 0, 0)
    picture[(x // 4 + y // 6) % 5 == 0] = (0, 255, 40)
    return np.clip(picture + rng.integers(-20, 20, picture.shape), 0, 255).astype(np.uint8)


def emit(name, jpeg):
    rgb = cv2.cvtColor(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    value = 0xCBF29CE484222325
    for byte in rgb.tobytes():
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    print(name, rgb.shape[1], rgb.shape[0], f"{value:016x}", jpeg.hex())


def opencv(name, picture, *options):
    emit(name, cv2.imencode(".jpg", picture, list(options))[1].tobytes())


SAMPLING = {kind: getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{kind}") for kind in ("411", "420", "422", "440", "444")}
for kind, factor in SAMPLING.items():
    for progressive in (0, 1):
        for width, height in ((37, 29), (16, 32)):
            options = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive)
            opencv(f"{kind}-p{progressive}-{width}x{height}", scene(width, height), *options, cv2.IMWRITE_JPEG_QUALITY, 90)
    for width, height in ((1, 1), (3, 2), (5, 5)):
        opencv(f"{kind}-{width}x{height}", scene(width, height), cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor)
opencv("grey", scene(37, 29)[:, :, 0])
opencv("restart", scene(50, 40), cv2.IMWRITE_JPEG_RST_INTERVAL, 3)
opencv("optimized", scene(37, 29), cv2.IMWRITE_JPEG_OPTIMIZE, 1, cv2.IMWRITE_JPEG_QUALITY, 99)
opencv("coarse", scene(37, 29), cv2.IMWRITE_JPEG_QUALITY, 3)


def pillow(name, picture, **options):
    file = io.BytesIO()
    picture.save(file, "JPEG", **options)
    emit(name, file.getvalue())


cmyk = np.concatenate([scene(21, 19), rng.integers(0, 255, (19, 21, 1)).astype(np.uint8)], axis=2)
pillow("cmyk", Image.fromarray(cmyk, "CMYK"), quality=90)
pillow("rgb", Image.fromarray(scene(21, 19)), quality=90, keep_rgb=True)
