#!/usr/bin/env python3
"""Makes the streams that the rows `video` and `streams` decode, with the checksums of ffmpeg's own frames, and boxes.bgr.xz, its frames
of one stream as BGR. Needs ffmpeg with libx264 and libx265.

    video_media.py VIDEO FOLDER

Each NAME.h264 or NAME.h265 is in Annex B, with a delimiter before each picture; NAME.txt has width and height, then the Adler-32 of
each frame as NV12, in the order of display. Frames of 10 bits count by their upper eight: ffmpeg's P010, without the lower byte.
"""

import lzma
import os
import subprocess
import sys
import zlib

X264 = ["-c:v", "libx264", "-preset", "veryfast"]
X265 = ["-c:v", "libx265", "-preset", "veryfast"]
AUD = {"h264": "aud=1", "h265": "aud=1:log-level=none"}

# Name, codec, frames, scale, ffmpeg's arguments, parameters of the encoder.
STREAMS = [
    ("baseline", "h264", 150, None, X264 + ["-profile:v", "baseline"], ""),
    ("no-reorder", "h264", 100, None, X264 + ["-profile:v", "main", "-bf", "0"], ""),
    ("no-vui", "h264", 100, None, X264 + ["-profile:v", "main", "-bf", "1", "-g", "50"], "b-adapt=1:b-bias=-100:ref=3"),
    ("main-b", "h264", 200, None, X264 + ["-profile:v", "main", "-bf", "2"], ""),
    ("high-pyramid", "h264", 150, None, X264 + ["-bf", "5"], "b-pyramid=normal:ref=6"),
    ("slices", "h264", 100, None, X264 + ["-tune", "zerolatency"], "slices=4"),
    ("intra-refresh", "h264", 100, None, X264 + ["-bf", "0"], "intra-refresh=1:keyint=30"),
    ("cropped", "h264", 60, "638:358", X264, ""),
    ("tiny", "h264", 60, "162:122", X264, ""),
    ("full-range", "h264", 60, "in_range=tv:out_range=pc", X264 + ["-color_range", "pc", "-colorspace", "bt709"], ""),
    ("hd", "h264", 120, "1920:1080", X264 + ["-b:v", "4M"], "keyint=30"),
    ("camera", "h264", 120, "1920:1080", X264 + ["-b:v", "4M", "-bf", "0"], "keyint=30:scenecut=0"),
    ("boxes", "h264", 24, None, X264 + ["-bf", "0"], ""),
    ("hevc", "h265", 150, None, X265, ""),
    ("hevc-hd", "h265", 60, "1920:1080", X265, ""),
    ("hevc-cropped", "h265", 60, "638:358", X265, ""),
    ("hevc-10", "h265", 60, None, X265 + ["-pix_fmt", "yuv420p10le"], ""),
    # Small frames, so that each needs few packets, and many key frames. Of two frames that are displayed at once, as before a
    # key frame with a pyramid of B-frames, only the newest would be processed.
    ("losses", "h264", 120, "320:240", X264 + ["-bf", "0"], "keyint=10"),
    ("losses-b", "h264", 120, "320:240", X264 + ["-bf", "3"], "keyint=10:b-pyramid=none"),
    ("losses-refresh", "h264", 120, "320:240", X264 + ["-bf", "0"], "intra-refresh=1:keyint=15"),
    ("losses-hevc", "h265", 120, "320:240", X265 + ["-bf", "3"], "keyint=10:b-pyramid=0"),
]


class Bits:
    """Bits of a parameter set, read by the codes of H.264's section 9.1."""

    def __init__(self, data):
        self.text = "".join(f"{byte:08b}" for byte in data)
        self.at = 0

    def fixed(self, count):
        self.at += count
        return int(self.text[self.at - count : self.at], 2)

    def golomb(self):
        zeros = self.text.index("1", self.at) - self.at
        self.at += zeros
        return self.fixed(zeros + 1) - 1


def without_vui(stream):
    """Removes the usability information, which says that no frame is reordered, from the sequence parameter sets of main
    profile."""
    out = []
    for nal in stream.split(b"\0\0\1")[1:]:
        if nal[0] & 0x1F == 7:
            bits = Bits(nal.rstrip(b"\0").replace(b"\0\0\3", b"\0\0")[1:])
            profile, _, _, _ = bits.fixed(8), bits.fixed(16), bits.golomb(), bits.golomb()
            if profile != 77 or bits.golomb() != 0:
                raise ValueError("not main profile with order counts of type 0")
            bits.golomb(), bits.golomb(), bits.fixed(1), bits.golomb(), bits.golomb()
            if not bits.fixed(1):
                bits.fixed(1)
            bits.fixed(1)
            if bits.fixed(1):
                [bits.golomb() for _ in range(4)]
            kept = bits.text[: bits.at] + "0" + "1"
            kept += "0" * (-len(kept) % 8)
            nal = nal[:1] + bytes(int(kept[at : at + 8], 2) for at in range(0, len(kept), 8))
        out.append(b"\0\0\0\1" + nal.rstrip(b"\0"))
    return b"".join(out)


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def checksums(path, ten_bits):
    size = run("ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "stream=width,height", "-of", "csv=p=0", path)
    width, height = map(int, size.decode().split()[0].split(",")[:2])
    pixels = "p010le" if ten_bits else "nv12"
    # The flag leaves the samples unchanged if only their order changes.
    frames = run("ffmpeg", "-v", "error", "-i", path, "-vf", "scale=in_range=tv:out_range=tv", "-fps_mode", "passthrough",
                 "-f", "rawvideo", "-pix_fmt", pixels, "-")
    if ten_bits:
        frames = frames[1::2]
    step = width * height * 3 // 2
    return width, height, [zlib.adler32(frames[at : at + step]) for at in range(0, len(frames), step)]


def main():
    video, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    for name, codec, count, scale, arguments, parameters in STREAMS:
        path = os.path.join(folder, f"{name}.{codec}")
        scaled = ["-vf", f"scale={scale}"] if scale else []
        joined = ":".join(filter(None, [AUD[codec], parameters]))
        if "-pix_fmt" not in arguments:
            arguments = arguments + ["-pix_fmt", "yuv420p"]
        run("ffmpeg", "-v", "error", "-y", "-stream_loop", "-1", "-i", video, "-frames:v", str(count), *scaled, *arguments,
            "-x264-params" if codec == "h264" else "-x265-params", joined, "-f", "h264" if codec == "h264" else "hevc", path)
        if name == "no-vui":
            with open(path, "rb") as file:
                stream = without_vui(file.read())
            with open(path, "wb") as file:
                file.write(stream)
        if name == "boxes":
            with lzma.open(os.path.join(folder, "boxes.bgr.xz"), "wb") as file:
                file.write(run("ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "bgr24", "-"))
        width, height, sums = checksums(path, name == "hevc-10")
        with open(os.path.join(folder, f"{name}.txt"), "w") as out:
            out.write(f"{width} {height}\n" + "".join(f"{number}\n" for number in sums))
        print(f"{name}: {len(sums)} frames of {width}x{height}, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
