#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94, onnxruntime 1.32.0; ffmpeg 5.1
"""The colours of videos: how far each way of making RGB is from OpenCV's VideoCapture, in levels and in boxes, and what it costs.

    colours.py [--visiond BIN] [--frames N] [--boxes N] [--peer PYTHON]... VIDEO

Makes videos of VIDEO with other formats, matrices, ranges and sizes, and reads them as OpenCV does, as BGR that ffmpeg makes,
which `pixels = "bgr"` equals, and as it would with accurate rounding, and as the planes of `pixels = "native"` with the formulas of BT.601
and BT.709. Boxes are NanoDet's: `visiond run` with both settings, and the peer of tests/golden on OpenCV's frames. `--peer`
names a Python with another version of OpenCV. Costs are CPU time and bytes of ffmpeg, less those of decoding.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import cv2
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden"))
import agreement  # noqa: E402
import nanodet_peer as peer  # noqa: E402

X264 = ["-c:v", "libx264", "-preset", "fast", "-crf", "18"]
BT709 = ["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv"]
VIDEOS = {
    "420-untagged.mp4": ["-vf", "scale=in_range=tv", *X264, "-pix_fmt", "yuv420p"],
    "420-bt709.mp4": ["-vf", "scale=out_color_matrix=bt709:out_range=tv", *X264, "-pix_fmt", "yuv420p", *BT709],
    "420-full.mp4": ["-vf", "scale=out_range=pc", *X264, "-pix_fmt", "yuvj420p", "-color_range", "pc"],
    "422.mp4": [*X264, "-pix_fmt", "yuv422p"],
    "444.mp4": [*X264, "-pix_fmt", "yuv444p"],
    "mjpeg-422.avi": ["-c:v", "mjpeg", "-q:v", "3", "-pix_fmt", "yuvj422p"],
    "420-odd.mkv": ["-vf", "scale=767:575", "-c:v", "ffv1", "-pix_fmt", "yuv420p"],
    "420-odd-left.mkv": ["-vf", "scale=767:575", "-c:v", "ffv1", "-pix_fmt", "yuv420p", "-chroma_sample_location", "left"],
    "420-10-bit.mp4": ["-vf", "scale=960:540", *X264, "-pix_fmt", "yuv420p10le"],
    "1080p-bt709.mp4": ["-vf", "scale=1920:1080:out_color_matrix=bt709:out_range=tv", *X264, "-pix_fmt", "yuv420p", *BT709],
}
# As daemon/capture/src/video.rs has them.
CHROMA = {"left": ":in_h_chr_pos=0", "topleft": ":in_h_chr_pos=0:in_v_chr_pos=0", "top": ":in_h_chr_pos=128:in_v_chr_pos=0"}
PLANES = {"yuv420p": ("yuv420p", 2, 2), "yuvj420p": ("yuv420p", 2, 2), "yuv422p": ("yuv422p", 2, 1), "yuvj422p": ("yuv422p", 2, 1)}
CONFIG = """
[[model]]
name = "nanodet"
path = "{root}/config/models/nanodet-g-416.onnx"
score_threshold = 0.28
[[camera]]
name = "video"
source = {{ type = "video", url = "{video}", pace = "fastest", max_frames = {frames}, pixels = "{pixels}" }}
[[sink]]
type = "file"
path = "{folder}/out.jsonl"
"""
READ = """
import sys, cv2, numpy
video, frames = cv2.VideoCapture(sys.argv[1]), []
while len(frames) < int(sys.argv[3]):
    ok, frame = video.read()
    if not ok: break
    frames.append(frame)
numpy.save(sys.argv[2], numpy.stack(frames))
print(cv2.__version__)
"""


def stream(path):
    command = ["ffprobe", "-v", "error", "-select_streams", "v", "-show_streams", "-of", "json", str(path)]
    return json.loads(subprocess.check_output(command))["streams"][0]


def ffmpeg(path, frames, more, output="pipe:1"):
    """Output, and CPU seconds."""
    command = ["ffmpeg", "-nostdin", "-v", "error", "-threads", "1", "-flags", "bitexact", "-i", str(path), "-map", "0:V:0"]
    child = subprocess.Popen([*command, *more, "-frames:v", str(frames), "-f", "rawvideo" if output else "null", output or "-"],
                             stdout=subprocess.PIPE)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    if status:
        raise SystemExit(f"ffmpeg failed on {path}")
    return np.frombuffer(out, np.uint8), usage.ru_utime + usage.ru_stime


def converted(planes, info, sx, sy):
    """BGR by the formulas of ITU-R BT.601 and BT.709, with every chroma sample for all of its pixels."""
    w, h = info["width"], info["height"]
    cw, ch = -(-w // sx), -(-h // sy)
    frames = planes.reshape(-1, w * h + 2 * cw * ch).astype(np.float64)
    full = info["pix_fmt"].startswith("yuvj") or info.get("color_range") == "pc"
    kr, kb = (0.2126, 0.0722) if info.get("color_space") == "bt709" else (0.299, 0.114)
    low, y_span, c_span = (0, 255, 255) if full else (16, 219, 224)
    y = (frames[:, :w * h].reshape(-1, h, w) - low) * 255 / y_span
    cb, cr = (part.reshape(-1, ch, cw).repeat(sx, 2).repeat(sy, 1)[:, :h, :w] - 128
              for part in np.split(frames[:, w * h:], 2, 1))
    cb, cr = cb * 255 / c_span, cr * 255 / c_span
    green = y - (2 * kb * (1 - kb) * cb + 2 * kr * (1 - kr) * cr) / (1 - kr - kb)
    return np.clip(np.rint(np.stack([y + 2 * (1 - kb) * cb, green, y + 2 * (1 - kr) * cr], 3)), 0, 255)


def levels(found, wanted):
    """Mean, greatest and signed mean difference for blue, green and red."""
    off = found.astype(np.float32) - wanted
    signed = " ".join(f"{v:+.2f}" for v in off.mean((0, 1, 2)))
    return "equal" if not off.any() else f"mean {np.abs(off).mean():.2f}, at most {np.abs(off).max():.0f} (b g r {signed})"


def boxes(args, path, pixels, folder):
    out = pathlib.Path(folder, "out.jsonl")
    out.unlink(missing_ok=True)
    config = pathlib.Path(folder, "visiond.toml")
    config.write_text(CONFIG.format(root=ROOT, video=path, frames=args.boxes, pixels=pixels, folder=folder))
    subprocess.run([args.visiond, "run", str(config)], check=True, stderr=subprocess.DEVNULL)
    frames = []
    for line in out.read_text().splitlines():
        message = json.loads(line)
        if "detections" in message:
            frames.append([(d["class_id"], d["score"], d["box"]["x"], d["box"]["y"], d["box"]["x"] + d["box"]["width"],
                            d["box"]["y"] + d["box"]["height"]) for d in message["detections"]])
    return frames


def agreeing(wanted, found):
    """Counterparts within IoU 0.98 and 0.01 of score, and the least IoU and greatest difference of score of the others."""
    total = missing = 0
    worst_iou, worst_score = 1.0, 0.0
    for a, b in zip(wanted, found, strict=True):
        sure = [d for d in a if d[1] >= agreement.SCORE]
        total += len(sure)
        for d in agreement.unmatched(sure, b):
            missing += 1
            near = agreement.nearest(d, b)
            if near:
                worst_iou, worst_score = min(worst_iou, near[0]), max(worst_score, abs(near[1]))
    return f"{total - missing} of {total}, worst {worst_iou:.3f} / {worst_score:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--frames", type=int, default=4, help="to compare in levels")
    parser.add_argument("--boxes", type=int, default=30, help="frames to compare in boxes; 0 for none")
    parser.add_argument("--peer", action="append", default=[], help="a Python with another OpenCV")
    parser.add_argument("video")
    args = parser.parse_args()
    run = peer.session(str(agreement.MODEL), os.cpu_count())
    count = max(args.frames, args.boxes)
    print(f"OpenCV {cv2.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(args.video).resolve()]
        for name, options in VIDEOS.items():
            paths.append(pathlib.Path(folder, name))
            subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-y", "-i", args.video, "-frames:v", str(count), *options,
                            str(paths[-1])], check=True)
        for path in paths:
            info = stream(path)
            theirs = np.stack(list(agreement.frames(path, count)))
            print(f"\n{path.name}: {info['width']}x{info['height']} {info['pix_fmt']}, matrix {info.get('color_space')}, "
                  f"range {info.get('color_range')}, chroma {info.get('chroma_location')}", flush=True)
            few = theirs[:args.frames]
            for python in args.peer:
                saved = pathlib.Path(folder, "peer.npy")
                version = subprocess.check_output([python, "-c", READ, str(path), str(saved), str(args.frames)], text=True).strip()
                print(f"  OpenCV {version:17} {levels(np.load(saved), few)}")
            size = f"scale={info['width']}:{info['height']}"
            ways = {
                'pixels = "bgr"': ["-vf", size + CHROMA.get(info.get("chroma_location"), ""), "-pix_fmt", "bgr24"],
                "ffmpeg, accurate": ["-vf", size + ":flags=bicubic+accurate_rnd+full_chroma_int", "-pix_fmt", "bgr24"],
            }
            if info["pix_fmt"] in PLANES:
                planes, sx, sy = PLANES[info["pix_fmt"]]
                full = info["pix_fmt"].startswith("yuvj") or info.get("color_range") == "pc"
                of = "pc" if full else "tv"
                ways['pixels = "native"'] = ["-vf", f"{size}:in_range={of}:out_range={of}", "-pix_fmt", planes]
            _, decoding = ffmpeg(path, count, [], output=None)
            for name, options in ways.items():
                out, seconds = ffmpeg(path, count, options)
                each = len(out) // len(theirs)
                cost = f"{(seconds - decoding) / len(theirs) * 1e3:5.2f} ms, {each / 1e6:.2f} MB"
                out = out[:each * len(few)]
                found = converted(out, info, sx, sy) if "native" in name else out.reshape(few.shape)
                print(f"  {name:24} {cost:16} {levels(found, few)}", flush=True)
            if args.boxes:
                wanted = [peer.detect(run, frame, agreement.SCORE - 2 * agreement.SCORE_ERROR) for frame in theirs[:args.boxes]]
                for pixels in ["bgr", "native"] if info["pix_fmt"] in PLANES else ["bgr"]:
                    print(f"  boxes, {pixels:7} {agreeing(wanted, boxes(args, path, pixels, folder))}", flush=True)


if __name__ == "__main__":
    main()
