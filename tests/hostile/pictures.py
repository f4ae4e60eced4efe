"""Images that are cut off, have a false size, or unpack to gigabytes, and images and options with hostile names."""

import os
import struct
import subprocess
import zlib

from cases import CONFIG, DONE, INPUT, MODEL, OUTPUT, USAGE, Case, cut, damaged, nasty

SIZES = ((0, 0), (0, 37), (1, 65535), (65535, 1), (65535, 65535), (16384, 16384), (8192, 8192), (0x7FFFFFFF, 1), (0xFFFFFFFF, 0xFFFFFFFF))


def drawn(folder, name, *options):
    """A small image that ffmpeg draws."""
    path = folder / f"good.{name}"
    command = ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc2=s=96x64", "-frames:v", "1", "-bitexact", *options, path]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
    content = path.read_bytes()
    path.unlink()
    return content


def png(width, height, rows=None, depth=8, color=2, interlaced=0, more=(), end=True):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width & 0xFFFFFFFF, height & 0xFFFFFFFF, depth, color, 0, 0, interlaced)
    pixels = rows if rows is not None else zlib.compress((b"\0" + bytes(width * 3)) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*one) for one in more) + chunk(b"IDAT", pixels) + (chunk(b"IEND", b"") if end else b"")


def zeros(size):
    """That many zero bytes, packed, without ever having them in memory."""
    packer, block = zlib.compressobj(1), bytes(1 << 20)
    return b"".join([*(packer.compress(block) for _ in range(size >> 20)), packer.compress(bytes(size & 0xFFFFF)), packer.flush()])


def jpeg_with_size(content, width, height, marker=None):
    """A JPEG whose frame header has another size, or another kind of frame."""
    out, at = bytearray(content), 2
    while at + 9 < len(out):
        if out[at] == 0xFF and out[at + 1] in (0xC0, 0xC1, 0xC2):
            out[at + 1] = marker or out[at + 1]
            struct.pack_into(">HH", out, at + 5, height & 0xFFFF, width & 0xFFFF)
            return bytes(out)
        at += 2 + struct.unpack_from(">H", out, at + 2)[0]
    raise ValueError("no frame header")


def segment(marker, content):
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def exif(orientation, kind=3, count=1):
    return segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHH", 0x112, kind, count, orientation & 0xFFFF, 0) + bytes(4))


def bmp(width, height, bits=24, compression=0, colors=0, offset=54, pixels=b""):
    return b"BM" + struct.pack("<IHHI", 54 + len(pixels), 0, 0, offset) + struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, 0, 0, 0, colors, 0) + pixels


def gif(width, height, frames, colors=2):
    """Frames of one colour; each states a size of its own."""
    out = b"GIF89a" + struct.pack("<HHBBB", width & 0xFFFF, height & 0xFFFF, 0x80, 0, 0) + bytes(3) + b"\xff" * 3
    out += b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"
    for frame_width, frame_height in frames:
        out += b"!\xf9\x04\0\x01\0\0\0" + b"," + struct.pack("<HHHHB", 0, 0, frame_width & 0xFFFF, frame_height & 0xFFFF, 0) + b"\x02\x02\x44\x01\0"
    return out + b";"


def tiff(tags, data=b""):
    """Little-endian, one folder of tags: (tag, kind, count, value)."""
    entries = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4) + data


def plain_tiff(width, height, compression=1, strips=1, offset=200, size=3, bits=8, rows=None):
    return tiff(
        [(256, 4, 1, width & 0xFFFFFFFF), (257, 4, 1, height & 0xFFFFFFFF), (258, 3, 1, bits), (259, 3, 1, compression), (262, 3, 1, 1), (273, 4, strips, offset), (277, 3, 1, 1),
         (278, 4, 1, height & 0xFFFFFFFF if rows is None else rows), (279, 4, strips, size)],
        bytes(400),
    )  # fmt: skip


def webp(*chunks):
    body = b"WEBP" + b"".join(kind + struct.pack("<I", len(content)) + content + bytes(len(content) % 2) for kind, content in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def contents(folder, rng, jpegs):
    formats = {
        "png": drawn(folder, "png", "-pix_fmt", "rgb24"), "jpg": jpegs["420-p0-37x29"], "progressive.jpg": jpegs["420-p1-37x29"], "cmyk.jpg": jpegs["cmyk"], "bmp": drawn(folder, "bmp"),
        "gif": drawn(folder, "gif"), "tiff": drawn(folder, "tiff", "-compression_algo", "deflate"), "lzw.tiff": drawn(folder, "tiff", "-compression_algo", "lzw"),
        "packbits.tiff": drawn(folder, "tiff", "-compression_algo", "packbits"), "webp": drawn(folder, "webp", "-c:v", "libwebp"),
        "lossless.webp": drawn(folder, "webp", "-c:v", "libwebp", "-lossless", "1"), "ppm": drawn(folder, "ppm"), "pgm": drawn(folder, "pgm"), "pam": drawn(folder, "pam"),
        # Formats that visiond leaves to ffmpeg, or refuses.
        "qoi": drawn(folder, "qoi"), "tga": drawn(folder, "tga"), "exr": drawn(folder, "exr"), "xwd": drawn(folder, "xwd"), "sgi": drawn(folder, "sgi"), "pcx": drawn(folder, "pcx"),
    }  # fmt: skip
    for name, content in formats.items():
        for at, part in enumerate(cut(content, rng, 6)):
            yield f"cut-{at}.{name}", part
        for at, part in enumerate(damaged(content, rng, 4)):
            yield f"damaged-{at}.{name}", part
        yield f"tail.{name}", content + b"\x1b[31m" * 1000
    for name, content in {"ico": b"\0\0\1\0\1\0\0\0\0\0\1\0\x20\0\xff\xff\xff\x7f\x16\0\0\0", "hdr": b"#?RADIANCE\n\n-Y 65535 +X 65535\n", "ff": b"farbfeld" + b"\xff" * 8,
                          "dds": b"DDS " + b"\xff" * 124, "avif": b"\0\0\0\x1cftypavif" + bytes(16), "svg": b"<svg width='99999999' height='99999999'/>", "psd": b"8BPS\0\1" + b"\xff" * 30,
                          "jp2": b"\0\0\0\x0cjP  \r\n\x87\n" + b"\xff" * 60, "eps": b"%!PS\n(x) run\n", "pdf": b"%PDF-1.7\n" + bytes(50)}.items():  # fmt: skip
        yield f"other.{name}", content
    # Sizes that lie.
    for width, height in SIZES:
        size = f"{width}x{height}"
        yield f"size-{size}.png", png(width, height, b"")
        yield f"interlaced-{size}.png", png(width, height, zlib.compress(bytes(100)), interlaced=1)
        yield f"deep-{size}.png", png(width, height, zlib.compress(bytes(100)), depth=16, color=6)
        yield f"size-{size}.bmp", bmp(width & 0x7FFFFFFF, height & 0x7FFFFFFF)
        yield f"run-length-{size}.bmp", bmp(width & 0x7FFFFFFF, height & 0x7FFFFFFF, 8, 1, 256, 54 + 1024, bytes(1024) + b"\xff\0" * 100)
        yield f"size-{size}.gif", gif(width, height, [(width, height)])
        yield f"size-{size}.tiff", plain_tiff(width, height)
        yield f"packed-{size}.tiff", plain_tiff(width, height, 8)
        yield f"size-{size}.ppm", b"P6\n%d %d\n255\n" % (width, height)
        yield f"plain-{size}.ppm", b"P3\n%d %d\n65535\n1 2 3" % (width, height)
        yield f"bits-{size}.pbm", b"P4\n%d %d\n" % (width, height)
        yield f"size-{size}.pam", b"P7\nWIDTH %d\nHEIGHT %d\nDEPTH 4\nMAXVAL 65535\nTUPLTYPE RGB_ALPHA\nENDHDR\n" % (width, height)
        if max(width, height) <= 65535:
            for name in ("420-p0-37x29", "420-p1-37x29", "cmyk"):
                yield f"size-{size}-{name}.jpg", jpeg_with_size(jpegs[name], width, height)
        extended = struct.pack("<I", 0x3E)[:4] + struct.pack("<I", (width - 1) & 0xFFFFFF)[:3] + struct.pack("<I", (height - 1) & 0xFFFFFF)[:3]
        yield f"size-{size}.webp", webp((b"VP8X", extended), (b"ANIM", bytes(6)))
        yield f"lossless-{size}.webp", webp((b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) & 0x3FFF | ((height - 1) & 0x3FFF) << 14) + bytes(20)))
    yield "negative.bmp", bmp(-37, -29)
    yield "upside-down.bmp", bmp(37, -0x80000000)
    yield "colors.bmp", bmp(37, 29, 8, 0, 0x7FFFFFFF)
    yield "offset.bmp", bmp(37, 29, offset=0x7FFFFFFF)
    yield "bits.bmp", bmp(37, 29, 0xFFFF)
    # Files that unpack to far more than their size.
    yield "bomb-pixels.png", png(8000, 8000, zeros(8000 * 8001 * 3), color=2)
    yield "bomb-deep.png", png(6700, 6700, zeros(6700 * 6701 * 8), depth=16, color=6)
    bomb = zeros(1 << 30)
    yield "bomb-more-than-pixels.png", png(37, 29, bomb)
    yield "bomb-profile.png", png(37, 29, more=[(b"iCCP", b"x\0\0" + bomb)])
    yield "bomb-text.png", png(37, 29, more=[(b"zTXt", b"x\0\0" + bomb)] * 3)
    yield "bomb-international.png", png(37, 29, more=[(b"iTXt", b"x\0\1\0\0\0" + bomb)])
    yield "bomb-exif.png", png(37, 29, more=[(b"eXIf", bytes(60 << 20))])
    yield "chunk-length.png", png(37, 29)[:33] + struct.pack(">I", 0xFFFFFFFF) + b"IDAT"
    yield "chunks-100000.png", png(37, 29, more=[(b"tEXt", b"a\0b")] * 100_000)
    yield "animation.png", png(37, 29, more=[(b"acTL", struct.pack(">II", 0xFFFFFFFF, 0)), (b"fcTL", struct.pack(">IIIIIHHBB", 0, 0xFFFF, 0xFFFF, 0, 0, 0, 0, 0, 0))])
    yield "no-end.png", png(37, 29, end=False)
    yield "palette-none.png", png(37, 29, zlib.compress(bytes(38 * 29)), color=3)
    yield "frames-100000.gif", gif(1, 1, [(1, 1)] * 100_000)
    yield "frames-large.gif", gif(8192, 8192, [(8192, 8192)] * 1000)
    yield "frame-outside.gif", gif(10, 10, [(65535, 65535)])
    for compression in (5, 6, 7, 8, 32773, 32946, 34925, 50000, 65535):
        yield f"compression-{compression}.tiff", plain_tiff(8000, 8000, compression)
    packed = zeros(64 << 20)
    yield "bomb.tiff", plain_tiff(8000, 8000, 8, size=len(packed), offset=122 + 400) + packed
    yield "strips.tiff", plain_tiff(37, 29, strips=0xFFFFFFFF)
    yield "strips-2.tiff", plain_tiff(37, 29, strips=1 << 26, rows=1)
    yield "offset.tiff", plain_tiff(37, 29, offset=0xFFFFFFFF)
    yield "bits.tiff", plain_tiff(37, 29, bits=65535)
    yield "rows.tiff", plain_tiff(37, 29, rows=0)
    yield "circle.tiff", b"II*\0\x08\0\0\0\0\0\x08\0\0\0"
    yield "directory.tiff", b"II*\0\xff\xff\xff\xff"
    yield "big.tiff", b"II+\0\x08\0\0\0" + struct.pack("<Q", (1 << 64) - 1)
    yield "tags-65535.tiff", tiff([(at, 4, 0x7FFFFFFF, 8) for at in range(1000)])
    yield "chunk.webp", b"RIFF\xff\xff\xff\xffWEBPVP8L\xff\xff\xff\xff"
    yield "metadata.webp", webp((b"VP8X", b"\x20\0\0\0\0\0\0\0\0\0"), (b"ICCP", bytes(30 << 20)))
    yield "number.ppm", b"P6\n" + b"9" * 100_000 + b" 1\n255\n"
    yield "comment.ppm", b"P6\n#" + b"x" * (10 << 20)
    yield "spaces.ppm", b"P6" + b" " * (10 << 20)
    yield "maximum.pgm", b"P2\n2 2\n99999999999\n1 2 3 4"
    yield "header.pam", b"P7\n" + b"WIDTH 1\n" * 100_000
    # JPEG's own ways.
    good = jpegs["420-p0-37x29"]
    for marker in (0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCA, 0xCB, 0xCF):
        yield f"frame-{marker:02x}.jpg", jpeg_with_size(good, 37, 29, marker)
    for orientation in (0, 2, 5, 9, 255, 65535):
        yield f"orientation-{orientation}.jpg", good[:2] + exif(orientation) + good[2:]
    yield "orientation-count.jpg", good[:2] + exif(6, 3, 0xFFFFFFFF) + good[2:]
    yield "orientation-kind.jpg", good[:2] + exif(6, 65535) + good[2:]
    yield "orientation-turned.jpg", good[:2] + exif(6) + jpeg_with_size(good, 8000, 8000)[2:]
    yield "exif-circle.jpg", good[:2] + segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0\0\0\x08\0\0\0") + good[2:]
    yield "exif-offset.jpg", good[:2] + segment(0xE1, b"Exif\0\0MM\0*\xff\xff\xff\xff") + good[2:]
    yield "profile.jpg", good[:2] + b"".join(segment(0xE2, b"ICC_PROFILE\0" + bytes([at % 255 + 1, 255]) + bytes(65000)) for at in range(400)) + good[2:]
    yield "segments-100000.jpg", good[:2] + segment(0xFE, b"x") * 100_000 + good[2:]
    yield "fill-10MB.jpg", good[:2] + b"\xff" * (10 << 20) + good[2:]
    scan = good.index(b"\xff\xda")
    progressive = jpegs["420-p1-37x29"]
    scans = progressive.index(b"\xff\xda")
    yield "scans-20000.jpg", jpeg_with_size(progressive, 2000, 2000)[:scans] + segment(0xDA, b"\x01\x01\x00\x00\x00\x10") * 20_000 + b"\xff\xd9"
    yield "scans-large.jpg", jpeg_with_size(progressive, 6000, 6000)[:scans] + segment(0xDA, b"\x01\x01\x00\x00\x00\x10") * 500 + b"\xff\xd9"
    yield "restarts.jpg", good[:scan] + segment(0xDD, b"\0\1") + good[scan:scan + 14] + b"\xff\xd0" * 100_000 + b"\xff\xd9"
    yield "tables.jpg", good[:2] + segment(0xC4, b"\x00" + b"\xff" * 16 + bytes(4080)) + good[2:]
    yield "quantisers.jpg", good[:2] + segment(0xDB, b"\xff" + bytes(128)) + good[2:]
    yield "twice.jpg", good + good
    yield "html.png", b"<html>\x1b[2J"
    yield "text.jpg", b"\x1b[31mhello\n" * 100
    yield "zeros-10MB.bin", bytes(10 << 20)


def not_files(folder):
    place = folder / "odd"
    place.mkdir()
    os.mkfifo(place / "fifo.png")
    (place / "folder.png").mkdir()
    (place / "circle.png").symlink_to("circle.png")
    (place / "device.png").symlink_to("/dev/zero")
    (place / "random.png").symlink_to("/dev/urandom")
    (place / "memory.png").symlink_to("/proc/self/mem")
    (place / "empty.png").write_bytes(b"")
    for name, head in {"png": png(37, 29), "jpg": b"\xff\xd8\xff\xe0", "zeros": b"", "ppm": b"P6\n8000 8000\n255\n"}.items():
        with open(place / f"sparse.{name}", "wb") as sparse:
            sparse.write(head)
            sparse.truncate(1 << 40)
    (place / "loop").mkdir()
    (place / "loop/again").symlink_to("../loop")
    return [*sorted(place.iterdir()), place / "missing.png"]


def cases(folder, rng, model, jpegs):
    place = folder / "pictures"
    place.mkdir()
    detect = ["detect", "--backend", "rten", "--model", model]
    for name, content in contents(place, rng, jpegs):
        path = place / name
        path.write_bytes(content)
        yield Case("detect: a picture", name, [*detect, path], name, (DONE, INPUT))
    for path in not_files(folder):
        yield Case("detect: no picture at all", path.name, [*detect, path], path.name, (INPUT,))
    # Names.
    good = png(37, 29)
    names = folder / "names"
    names.mkdir()
    for name, text in nasty().items():
        text = text.replace(b"\0", b"").replace(b"/", b"")[:200]
        for kind, content in (("good", good), ("bad", good[:50]), ("no", b"?")):
            path = os.fsencode(names) + b"/" + kind.encode() + b"-" + name.encode() + b"-" + text
            with open(path, "wb") as file:
                file.write(content)
            for format in ([], ["--json"]):
                yield Case("detect: a picture's name", f"{kind}-{name}{''.join(format)}", [*detect, *format, path], f"{kind}-{name}", (DONE, INPUT))
        yield Case("detect: a picture's name", f"missing-{name}", [*detect, os.fsencode(names) + b"/missing-" + name.encode() + b"-" + text], f"missing-{name}", (INPUT,))
    for name in ("-rf", "--help", "--json", "-", "--", "@file", "~", "*", "$(id)", "%n%s", "http:", "a://b"):
        yield Case("detect: a picture's name", f"option {name}", [*detect, "--", name], name, (INPUT,))
    # Pictures that are written.
    (folder / "photo.png").write_bytes(good)
    photo = folder / "photo.png"
    (folder / "a-file").write_bytes(b"")
    (folder / "out-circle").symlink_to("out-circle")
    for name, out in {"file": folder / "a-file", "null": "/dev/null", "process": "/proc/self", "circle": folder / "out-circle", "long": folder / ("x" * 300), "system": "/sys"}.items():
        yield Case("detect: an output", name, [*detect, "--annotate", out, photo], str(out)[:40], (DONE, OUTPUT))
    # Options.
    nasty_texts = {name: text.decode("utf-8", "surrogateescape").replace("\0", "") for name, text in nasty().items() if name != "long"}
    values = {"nan": "NaN", "infinite": "inf", "negative": "-1", "empty": "", "huge": "1e999", "digits": "9" * 10_000, "hex": "0x10", "space": " 1 ", "arabic": "\u0661", **nasty_texts}
    for option in ("--score-threshold", "--classes", "--backend", "--every", "--max-frames", "--load-memory", "--load-timeout", "--input-memory", "--log-level", "--card", "--unknown"):
        for name, text in values.items():
            # A card's name is used unchanged, even if it is empty.
            named = {"--classes": "class", "--card": ""}.get(option, option)
            # For invalid UTF-8, the error does not give the position.
            named = "" if name == "invalid" else named
            yield Case("detect: an option", f"{option}-{name}", [*detect, f"{option}={text}", photo], named, (DONE, USAGE, CONFIG, MODEL))
    yield Case("detect: an option", "memory-1-byte", [*detect, "--load-memory", "1B", photo], "tiny", (USAGE, MODEL))
    yield Case("detect: an option", "memory-huge", [*detect, "--load-memory", "16000000TiB", photo], "--load-memory", (DONE, USAGE, MODEL))
    yield Case("detect: an option", "timeout-1ns", [*detect, "--load-timeout", "1ns", photo], "--load-timeout", (USAGE,))
    yield Case("detect: an option", "files-10000", [*detect, *["missing.png"] * 10_000], "missing.png", (INPUT,))
    yield Case("detect: an option", "classes-10000", [*detect, "--classes", ",".join(f"c{at}" for at in range(10_000)), photo], "class", (MODEL, CONFIG, USAGE))
