# Made with Python 3.11, numpy 2.4.6, opencv-python-headless 5.0.0.93 (libjpeg-turbo 3.1.2).
"""JPEG decoding, ours compared with OpenCV's (libjpeg-turbo): time on one thread, and difference of pixels.

Run: python tests/bench/jpeg.py [FILE...]
Without files: a photo at 1080p in the qualities and samplings of MJPEG cameras.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

import cv2
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUNDS = 15


def frames(folder):
    photo = cv2.imread(str(ROOT / "tests/media/coffee.png"))
    photo = cv2.resize(photo, (1920, 1080), interpolation=cv2.INTER_CUBIC)
    for kind in ("420", "422", "444"):
        factor = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{kind}")
        for quality in (80, 90, 95):
            path = folder / f"1080p-{kind}-q{quality}.jpg"
            options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor, cv2.IMWRITE_JPEG_QUALITY, quality]
            cv2.imwrite(str(path), photo, options)
            yield path


def peer(path):
    data = np.fromfile(path, np.uint8)
    times = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        picture = cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        times.append((time.thread_time() - start) * 1e3)
    return sorted(times)[ROUNDS // 2], picture


def main():
    cv2.setNumThreads(1)
    cargo = ["cargo", "build", "--release", "--quiet", "-p", "visiond-kernels", "--example", "jpeg"]
    subprocess.run(cargo, cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        files = [pathlib.Path(name) for name in sys.argv[1:]] or list(frames(folder))
        program = [str(ROOT / "target/release/examples/jpeg"), str(folder), *map(str, files)]
        ours = dict(line.split() for line in subprocess.check_output(program, text=True).splitlines())
        print(f"{'picture':<28}{'ours ms':>9}{'cv2 ms':>9}{'ratio':>7}{'max diff':>10}")
        for path in files:
            peer_ms, theirs = peer(path)
            picture = np.fromfile(folder / f"{path.name}.rgb", np.uint8).reshape(theirs.shape)[:, :, ::-1]
            difference = int(np.abs(picture.astype(np.int16) - theirs).max())
            ours_ms = float(ours[path.name])
            print(f"{path.name:<28}{ours_ms:9.2f}{peer_ms:9.2f}{peer_ms / ours_ms:7.2f}{difference:10d}")


if __name__ == "__main__":
    main()
