# Made with Python 3.11, numpy 2.4.6, opencv-python-headless 5.0.0.93 (libtiff 4.7.1, libavif 1.4.2), Pillow 13.0.0.
"""Writes golden.txt: small pictures of every format, and what OpenCV decodes them to.

Run: python golden.py > golden.txt
A line: name, width, height, 64-bit FNV-1a of the RGB bytes that cv2.imread(IMREAD_COLOR) gives, the file in hex; "0 0 -" if
OpenCV does not read the file. Kinds of JPEG are in kernels/src/jpeg/golden.py.
"""
import io
import os
import tempfile

import cv2
import numpy as np
from PIL import Image

rng = np.random.default_rng(7)
WIDTH, HEIGHT = 13, 11
FOLDER = tempfile.TemporaryDirectory()


def emit(name, file):
    path = os.path.join(FOLDER.name, name)
    with open(path, "wb") as out:
        out.write(file)
    bgr = cv2.imread(path, cv2.IMREAD_COLOR)
    if bgr is None:
        print(name, 0, 0, "-", file.hex())
        return
    value = 0xCBF29CE484222325
    for byte in cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB).tobytes():
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    print(name, bgr.shape[1], bgr.shape[0], f"{value:016x}", file.hex())


def pillow(name, picture, **options):
    file = io.BytesIO()
    ending = name.split(".")[1]
    kind = {"jpg": "JPEG", "tif": "TIFF", "pgm": "PPM", "pbm": "PPM"}.get(ending, ending)
    picture.save(file, kind, **options)
    emit(name, file.getvalue())


def opencv(name, samples):
    emit(name, cv2.imencode("." + name.split(".")[1], samples)[1].tobytes())


y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
colours = np.stack([x * 255 // (WIDTH - 1), y * 255 // (HEIGHT - 1), (x * 70 + y * 13) % 256], axis=2).astype(np.uint8)
colours[(x // 3 + y // 2) % 4 == 0] = (255, 0, 0)
alphas = rng.integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)
alphas[:2], alphas[2:4] = 0, 255
rgb = Image.fromarray(colours)
rgba = Image.fromarray(np.dstack([colours, alphas]))
grey = rgb.convert("L")
grey_alpha = Image.merge("LA", [grey, Image.fromarray(alphas)])
palette = rgb.quantize(32)
deep = rng.integers(0, 65536, (HEIGHT, WIDTH, 4), dtype=np.uint16)
deep[:2, :, 3], deep[2:4, :, 3] = 0, 65535

# Alpha, and one colour or entries of a palette that are transparent.
for ending in ("png", "webp", "tif"):
    options = {"lossless": True, "exact": True} if ending == "webp" else {}
    pillow(f"rgb.{ending}", rgb, **options)
    pillow(f"rgba.{ending}", rgba, **options)
pillow("hidden.webp", rgba, lossless=True)
pillow("lossy.webp", rgb, quality=80)
pillow("lossy-alpha.webp", rgba, quality=80)
pillow("animation.webp", rgba, save_all=True, append_images=[rgba.rotate(90)], lossless=True)
pillow("grey-alpha.png", grey_alpha)
pillow("colour-transparent.png", rgb, transparency=tuple(colours[5, 5].tolist()))
pillow("grey-transparent.png", grey, transparency=int(np.array(grey)[5, 5]))
pillow("entry-transparent.png", palette, transparency=3)
pillow("entries-transparent.png", palette, transparency=bytes(range(0, 256, 8)))
for bits in (1, 2, 4):
    pillow(f"palette-{bits}.png", rgb.quantize(2**bits), bits=bits)
    pillow(f"palette-{bits}-transparent.png", rgb.quantize(2**bits), bits=bits, transparency=1)
pillow("one-bit.png", rgb.convert("1"))

# 16 bits a sample.
for ending in ("png", "tif"):
    opencv(f"deep.{ending}", deep[:, :, :3])
    opencv(f"deep-alpha.{ending}", deep)
    opencv(f"deep-grey.{ending}", deep[:, :, 0])
opencv("deep.ppm", deep[:, :, :3])
opencv("deep.pgm", deep[:, :, 0])

# TIFF.
pillow("grey.tif", grey)
pillow("one-bit.tif", rgb.convert("1"))
pillow("cmyk.tif", rgb.convert("CMYK"))
pillow("lzw.tif", rgb, compression="tiff_lzw")
pillow("lzw-alpha.tif", rgba, compression="tiff_lzw")
pillow("deflate.tif", rgb, compression="tiff_adobe_deflate")
pillow("fax.tif", rgb.convert("1"), compression="group4")
pillow("jpeg.tif", rgb, compression="jpeg")
pillow("palette.tif", palette)
pillow("grey-alpha.tif", grey_alpha)
# The alpha of the same samples multiplied in already, and with 16 bits.
for name, samples, alpha in (
    ("associated.tif", np.array(rgba), 1),
    ("unknown-alpha.tif", np.array(rgba), 0),
    ("deep-unassociated.tif", deep, 2),
    ("deep-associated.tif", deep, 1),
):
    bits = samples.itemsize * 8
    entries = [
        (256, 3, 1, WIDTH), (257, 3, 1, HEIGHT), (258, 3, 4, 134), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 142),
        (277, 3, 1, 4), (278, 3, 1, HEIGHT), (279, 4, 1, samples.nbytes), (338, 3, 1, alpha),
    ]  # fmt: skip
    number = lambda value, size: int(value).to_bytes(size, "little")
    directory = b"".join(number(a, 2) + number(b, 2) + number(c, 4) + number(d, 4) for a, b, c, d in entries)
    head = b"II*\0" + number(8, 4) + number(len(entries), 2) + directory + number(0, 4)
    emit(name, head + number(bits, 2) * 4 + samples.tobytes())

# GIF: the first frame on the screen's background.
pillow("palette.gif", palette)
pillow("grey.gif", grey)
pillow("interlaced.gif", palette, interlace=1)
pillow("alpha.gif", rgba)
pillow("background.gif", palette, background=5)
pillow("transparent.gif", palette, transparency=3)
pillow("animation.gif", palette, save_all=True, append_images=[rgb.rotate(90).quantize(16)], transparency=3, disposal=2)


def gif_on_screen(name, transparent, background, has_table=True):
    """The frame in the middle of a larger screen."""
    options = {} if transparent is None else {"transparency": transparent}
    file = io.BytesIO()
    palette.save(file, "GIF", interlace=0, **options)
    gif = bytearray(file.getvalue())
    gif[6:8], gif[8:10], gif[11] = (20).to_bytes(2, "little"), (16).to_bytes(2, "little"), background
    table_end = 13 + 3 * (2 << (gif[10] & 7))
    at = table_end
    while gif[at] == 0x21:
        at += 2
        while gif[at]:
            at += gif[at] + 1
        at += 1
    gif[at + 1 : at + 3], gif[at + 3 : at + 5] = (6).to_bytes(2, "little"), (4).to_bytes(2, "little")
    if not has_table:
        # The table moves into the frame.
        gif[at + 9] |= 0x80 | (gif[10] & 7)
        gif[10] &= 0x7F
        gif = gif[:13] + gif[table_end : at + 10] + gif[13:table_end] + gif[at + 10 :]
    emit(name, bytes(gif))


gif_on_screen("screen.gif", None, 5)
gif_on_screen("screen-transparent.gif", 3, 5)
gif_on_screen("screen-without-table.gif", 3, 0, has_table=False)
gif_on_screen("screen-outside-table.gif", 3, 200)

# BMP and PNM.
pillow("rgb.bmp", rgb)
pillow("rgba.bmp", rgba)
pillow("palette.bmp", palette)
pillow("grey.bmp", grey)
pillow("one-bit.bmp", rgb.convert("1"))
pillow("rgb.ppm", rgb)
pillow("grey.pgm", grey)
pillow("one-bit.pbm", rgb.convert("1"))
emit("text.pgm", b"P2\n# a comment\n4 3\n255\n" + b" ".join(b"%d" % (20 * i) for i in range(12)) + b"\n")
emit("text.ppm", b"P3\n2 2\n255\n" + b" ".join(b"%d" % (20 * i) for i in range(12)) + b"\n")
emit("text.pbm", b"P1\n4 3\n1 0 1 1\n0 0 1 0\n1 1 1 0\n")
emit("max-100.pgm", b"P5\n4 3\n100\n" + bytes(range(0, 96, 8)))
emit("max-1000.pgm", b"P5\n4 3\n1000\n" + b"".join((80 * i).to_bytes(2, "big") for i in range(12)))

# Orientation.
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[274] = orientation
    pillow(f"exif-{orientation}.jpg", rgb, exif=exif)
    pillow(f"exif-{orientation}.png", rgb, exif=exif)
    pillow(f"exif-{orientation}.webp", rgb, exif=exif, lossless=True)
    pillow(f"exif-{orientation}.tif", rgb, exif=exif)

# Other formats, and files that were cut off.
pillow("cmyk.jpg", rgb.convert("CMYK"))
pillow("rgb.avif", rgb)
for name, options in (("sequential", {}), ("progressive", {"progressive": True})):
    file = io.BytesIO()
    Image.fromarray(np.kron(colours, np.ones((4, 4, 1), np.uint8))).save(file, "JPEG", **options)
    for percent in (80, 95):
        emit(f"cut-{name}-{percent}.jpg", file.getvalue()[: len(file.getvalue()) * percent // 100])
for name, picture in (("png", rgb), ("gif", palette), ("tif", rgb), ("webp", rgb), ("bmp", rgb), ("ppm", rgb)):
    file = io.BytesIO()
    picture.save(file, {"tif": "TIFF"}.get(name, name))
    emit(f"cut.{name}", file.getvalue()[: len(file.getvalue()) * 9 // 10])
