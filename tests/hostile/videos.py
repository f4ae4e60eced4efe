"""Videos: containers with false headers, streams that change their size, and lists that make ffmpeg read other files."""

import os
import struct
import subprocess

from cases import DONE, INPUT, USAGE, Case, cut, damaged, nasty

# The containers' contents, and ffmpeg's options to make them.
SMALL = "96x64"
KINDS = {
    "avi": ("avi", "-c:v", "mjpeg"), "mp4": ("mp4", "-c:v", "mpeg4"), "mkv": ("matroska", "-c:v", "mpeg4"), "ts": ("mpegts", "-c:v", "mpeg2video"), "flv": ("flv", "-c:v", "flv1"),
    "mpg": ("mpeg", "-c:v", "mpeg1video"), "nut": ("nut", "-c:v", "ffv1"), "y4m": ("yuv4mpegpipe",), "mov": ("mov", "-c:v", "png"), "m4v": ("m4v", "-c:v", "mpeg4"),
}  # fmt: skip


def film(folder, name, form, *options, size=SMALL, frames=10):
    """A short video that ffmpeg makes, the same each time."""
    path = folder / f"made-{name}"
    # A large one of one colour is made faster.
    picture = "testsrc2=" if size == SMALL else "color=red:"
    source = ["-f", "lavfi", "-i", f"{picture}s={size}:r=25"]
    command = ["ffmpeg", "-v", "error", "-y", *source, "-frames:v", str(frames), "-fflags", "+bitexact", "-flags", "+bitexact", *options, "-f", form, path]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
    content = path.read_bytes()
    path.unlink()
    return content


def replaced(content, name, find, *changes):
    """Copies with the bytes after each `find` changed: (distance, bytes)."""
    for at, (distance, new) in enumerate(changes):
        place = content.find(find)
        if place >= 0:
            start = place + distance
            yield f"{name}-{at}", content[:start] + new + content[start + len(new) :]


def contents(folder, rng):
    good = {}
    for name, (form, *options) in KINDS.items():
        good[name] = film(folder, name, form, *options)
        for at, part in enumerate(cut(good[name], rng, 5)):
            yield f"cut-{at}.{name}", part
        for at, part in enumerate(damaged(good[name], rng, 4)):
            yield f"damaged-{at}.{name}", part
    most = b"\xff\xff\xff\x7f"
    avi = good["avi"]
    for name, content in [
        # Microseconds per frame, number of frames, width and height, and of the stream its scale, rate and length.
        *replaced(avi, "header", b"avih", (8, bytes(4)), (8, most), (24, most), (40, most + most), (40, bytes(8))),
        *replaced(avi, "stream", b"strh", (28, bytes(8)), (28, most + b"\1\0\0\0"), (40, most)),
        *replaced(avi, "format", b"strf", (12, most + most), (12, struct.pack("<ii", 16000, 16000)), (12, struct.pack("<ii", 65500, 65500)), (16, struct.pack("<i", -64)), (12, bytes(8))),
        *replaced(avi, "list", b"movi", (-4, most), (4, b"00dc" + most)),
    ]:
        yield f"{name}.avi", content
    for name, content in [
        *replaced(good["mp4"], "track", b"tkhd", (80, b"\xff\xff\0\0" * 2), (4, b"\xff" * 84)),
        *replaced(good["mp4"], "times", b"stts", (8, b"\xff" * 4), (12, b"\xff" * 4), (16, b"\xff" * 4)),
        *replaced(good["mp4"], "sizes", b"stsz", (8, b"\xff" * 4), (12, b"\xff" * 4)),
        *replaced(good["mp4"], "chunks", b"stco", (8, b"\xff" * 4), (12, b"\xff" * 4)),
        *replaced(good["mp4"], "map", b"stsc", (8, b"\xff" * 4), (12, b"\xff" * 12)),
        *replaced(good["mp4"], "scale", b"mdhd", (16, bytes(4)), (16, b"\xff" * 8)),
        *replaced(good["mp4"], "atom", b"moov", (-4, bytes(4)), (-4, b"\0\0\0\1"), (-4, b"\xff" * 4)),
    ]:
        yield f"{name}.mp4", content
    atom = lambda kind, content: struct.pack(">I", len(content) + 8) + kind + content
    nested = b""
    for _ in range(20_000):
        nested = atom(b"moov", nested) if len(nested) < 4_000_000 else nested
    yield "nested.mp4", atom(b"ftyp", b"isom\0\0\2\0isom") + nested
    header = lambda text, data=b"FRAME\n" + bytes(9216): b"YUV4MPEG2 " + text + b"\n" + data
    for name, text in {
        "size-0": b"W0 H0 F10:1", "size-1x65535": b"W1 H65535 F10:1", "size-65535": b"W65535 H65535 F10:1", "size-8192": b"W8192 H8192 F10:1", "size-negative": b"W-96 H-64 F10:1",
        "size-huge": b"W99999999999 H1 F1:1", "rate-0": b"W96 H64 F0:0", "rate-huge": b"W96 H64 F4294967295:1", "rate-negative": b"W96 H64 F-10:1", "color": b"W96 H64 F10:1 Cxxx",
        "long": b"W96 H64 F10:1 X" + b"x" * (1 << 20), "escape": b"W96 H64 F10:1 X\x1b[2J C\x1b[31m", "none": b"",
    }.items():  # fmt: skip
        yield f"{name}.y4m", header(text)
    yield "frames-none.y4m", header(b"W96 H64 F10:1", b"")
    yield "frame-parameters.y4m", header(b"W96 H64 F10:1", b"FRAME " + b"x" * 100_000)
    yield "frames-empty.y4m", header(b"W96 H64 F10:1", b"FRAME\n" * 100_000)
    yield "frames-many.y4m", header(b"W2 H2 F10:1 Cmono", (b"FRAME\n" + bytes(4)) * 3_000)
    # A stream that grows after its first frame: no header in front states the larger size.
    small = film(folder, "small", "mjpeg", "-c:v", "mjpeg", frames=2)
    for size in ("8000x8000", "12000x12000"):
        yield f"grows-{size}.mjpeg", small + film(folder, "large", "mjpeg", "-c:v", "mjpeg", size=size, frames=2)
    h264 = ("h264", "-c:v", "libx264", "-g", "1", "-preset", "ultrafast")
    yield "grows.h264", film(folder, "small", *h264, frames=2) + film(folder, "large", *h264, size="9000x4096", frames=3)
    for size, options in {
        "8192x8192": ("-c:v", "mjpeg"), "8000x8000": ("-c:v", "ffv1"), "7680x4320": ("-c:v", "libx264", "-preset", "ultrafast"), "7680x4300": ("-c:v", "mjpeg"),
        "3840x2160": ("-c:v", "libx264", "-preset", "ultrafast"), "16000x16": ("-c:v", "mjpeg"), "16x16000": ("-c:v", "mjpeg"),
    }.items():  # fmt: skip
        yield f"size-{size}.mkv", film(folder, "size", "matroska", *options, size=size, frames=5)
    titles = ["-metadata", "title=\x1b[2J\x1b]0;x\x07\u202e", "-metadata:s:v", "handler_name=\x1b[31m"]
    yield "titles.mkv", film(folder, "titles", "matroska", "-c:v", "mpeg4", *titles)
    yield "rotated.mp4", replace_matrix(good["mp4"])
    yield "subtitles.ass", b"[Script Info]\n" + b"\x1b[2J" * 1000
    yield "play-list.pls", b"[playlist]\nFile1=/etc/passwd\n"
    yield "music.wav", b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xffdata\xff\xff\xff\xff"


def replace_matrix(content):
    """An MP4 whose display matrix is not a rotation."""
    place = content.index(b"tkhd") + 4 + 40
    return content[:place] + b"\x7f\xff\xff\xff" * 9 + content[place + 36 :]


def lists(place, secret, port):
    """Lists and commands that name other files and hosts; `secret` is a video that must not be read."""
    segment = lambda target, more="": f"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n{more}#EXTINF:1,\n{target}\n#EXT-X-ENDLIST\n"
    web = f"http://127.0.0.1:{port}/"
    targets = {
        "absolute": secret, "file": f"file://{secret}", "parent": f"../outside/{secret.name}", "passwd": "file:///etc/passwd", "concat": f"concat:{secret}", "subfile": f"subfile,,start,0,end,0,,:{secret}",
        "crypto": f"crypto:{secret}", "http": f"{web}a.ts", "tcp": f"tcp://127.0.0.1:{port}", "udp": "udp://127.0.0.1:9", "unix": "unix:/run/x.sock", "pipe": "pipe:0", "device": "/dev/zero",
        "memory": "/proc/self/environ", "cache": f"cache:{secret}", "async": f"async:{secret}", "gopher": f"gopher://127.0.0.1:{port}/", "data": "data:;base64,AAAA", "itself": "{name}", "long": "x" * 100_000,
        "escape": "\x1b[2Ja.ts",
    }  # fmt: skip
    for name, target in targets.items():
        yield f"segment-{name}.m3u8", segment(target).replace("{name}", f"segment-{name}.m3u8")
    yield "key.m3u8", segment("a.ts", f'#EXT-X-KEY:METHOD=AES-128,URI="{secret}"\n')
    yield "map.m3u8", segment("a.ts", f'#EXT-X-MAP:URI="{secret}"\n')
    yield "variants.m3u8", "#EXTM3U\n" + "".join(f"#EXT-X-STREAM-INF:BANDWIDTH={at}\nvariants.m3u8\n" for at in range(1000))
    yield "segments-100000.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n" + "#EXTINF:1,\nmissing.ts\n" * 100_000 + "#EXT-X-ENDLIST\n"
    yield "endless.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:9999999\n#EXTINF:1,\nmissing.ts\n"
    yield "live.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n"
    for name, target in {"absolute": secret, "parent": f"../outside/{secret.name}", "http": f"{web}a.ts", "itself": "concat-itself.ffconcat", "passwd": "/etc/passwd"}.items():
        yield f"concat-{name}.ffconcat", f"ffconcat version 1.0\nfile '{target}'\n"
    yield "concat-lines.ffconcat", "ffconcat version 1.0\n" + "file 'missing.ts'\n" * 100_000
    for name, url in {"file": f"file://{secret}", "http": web}.items():
        yield f"dash-{name}.mpd", (
            '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd"><!ENTITY b "&a;&a;">]><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT1S">'
            f'<Period><AdaptationSet mimeType="video/mp4"><Representation id="&b;" bandwidth="1"><BaseURL>{url}</BaseURL></Representation></AdaptationSet></Period></MPD>'
        )
    yield "session.sdp", f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\na=rtpmap:96 H264/90000\n"
    yield "reference.mov", struct.pack(">I4sI4sI4sI4s", 64, b"moov", 56, b"rmra", 48, b"rmda", 40, b"rdrf") + struct.pack(">I4sI", 0, b"url ", 24) + str(secret).encode()[:24]


def cases(folder, rng, model, port):
    place, outside = folder / "videos", folder / "outside"
    place.mkdir()
    outside.mkdir(exist_ok=True)
    secret = outside / "secret.ts"
    secret.write_bytes(film(outside, "secret", "mpegts", "-c:v", "mpeg2video"))
    detect = ["detect", "--backend", "rten", "--max-frames", "50", "--model", model]
    for name, content in contents(place, rng):
        path = place / name
        path.write_bytes(content)
        yield Case("detect: a video", name, [*detect, path], name, (DONE, INPUT))
    for name, text in lists(place, secret, port):
        path = place / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        yield Case("detect: a list of videos", name, [*detect, path], name, (INPUT,), needs_landlock=True)
    urls = {
        "concat": f"concat:{secret}", "subfile": f"subfile,,start,0,end,0,,:{secret}", "pattern": f"{place}/%d.png", "http": f"http://127.0.0.1:{port}/a.mp4", "lavfi": "lavfi://testsrc",
        "hls": f"hls+file://{place}/segment-absolute.m3u8", "movie": f"movie={secret}", "options": "-f lavfi", "user": f"http://user:secret-word@127.0.0.1:{port}/", "rtsp": f"rtsp://127.0.0.1:{port}/",
        "udp": "udp://127.0.0.1:99999/", "scheme": "\x1b[2J://x", "long": "http://" + "x" * 100_000, "unix": "unix:///run/x.sock", "file": "file:///nowhere/at/all.mp4",
    }  # fmt: skip
    for name, url in urls.items():
        yield Case("detect: a URL", name, [*detect, "--", url], "", (INPUT,))
    good = film(place, "named", "avi", "-c:v", "mjpeg", frames=2)
    for name, text in nasty().items():
        text = text.replace(b"\0", b"").replace(b"/", b"")[:200]
        for kind, content in (("video", good), ("no-video", good[:2000])):
            path = os.fsencode(place) + b"/" + kind.encode() + b"-" + name.encode() + b"-" + text
            with open(path, "wb") as file:
                file.write(content)
            yield Case("detect: a video's name", f"{kind}-{name}", [*detect, path], f"{kind}-{name}", (DONE, INPUT))
    for option, value in (("--every", "18446744073709551615"), ("--max-frames", "0"), ("--max-frames", "18446744073709551615"), ("--every", "0"), ("--every", "18446744073709551616")):
        yield Case("detect: an option", f"video{option}-{value}", [*detect[:3], "--model", model, option, value, place / "cut-0.avi"], f"{option}|cut-0.avi", (DONE, USAGE, INPUT))
