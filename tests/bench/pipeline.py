#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94, onnxruntime 1.32.0
"""The whole way of a frame, ours against Python's: the same frames, model, ONNX Runtime and one thread each.

    pipeline.py VIDEO [--visiond BIN] [--frames N] [--rounds N]

Decoding is left out on both sides. The two take turns, so that other load on the machine affects both; the figures are
medians over the rounds. Wants: frames/s at least 1.1 times the peer's, everything but the inference at most 8 % of it.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import cv2

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden"))
import nanodet_peer as peer  # noqa: E402

MODEL = str(ROOT / "config/models/nanodet-g-416.onnx")


def peer_round(run, frames, threshold):
    """Median microseconds of a frame, from picture to boxes, and of the inference alone."""
    name = run.get_inputs()[0].name
    whole, inference = [], []
    for frame in frames:
        begin = time.perf_counter()
        tensor, placed = peer.preprocess(frame)
        before = time.perf_counter()
        output = run.run(None, {name: tensor})[0]
        after = time.perf_counter()
        peer.decode(output, placed, (frame.shape[1], frame.shape[0]), threshold)
        whole.append((time.perf_counter() - begin) * 1e6)
        inference.append((after - before) * 1e6)
    return statistics.median(whole), statistics.median(inference)


def our_round(binary, video, frames):
    """The same by `visiond bench`, and everything but the inference."""
    command = [binary, "bench", "--json", "--source", video, "--frames", str(frames), "--warmup", "20", "--threads", "1"]
    out = subprocess.run(command + ["--backend", "onnxruntime"], stdout=subprocess.PIPE, check=True).stdout
    stages = json.loads(out)["stages_us"]
    rest = stages["preprocess"]["median"] + stages["postprocess"]["median"]
    return stages["total"]["median"], stages["infer"]["median"], rest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video")
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    cv2.setNumThreads(1)
    video = cv2.VideoCapture(args.video)
    frames = [frame for ok, frame in (video.read() for _ in range(args.frames)) if ok]
    run = peer.session(MODEL, 1)
    peer_round(run, frames[:20], 0.4)
    if not os.environ.get("ORT_DYLIB_PATH"):
        # The same library that the peer uses.
        import onnxruntime

        folder = pathlib.Path(onnxruntime.__file__).parent / "capi"
        os.environ["ORT_DYLIB_PATH"] = str(next(folder.glob("libonnxruntime.so.*")))
    rounds = []
    for _ in range(args.rounds):
        rounds.append(peer_round(run, frames, 0.4) + our_round(args.visiond, args.video, len(frames)))
    theirs, their_network, ours, our_network, rest = (statistics.median(column) for column in zip(*rounds))
    ratio = statistics.median(r[0] / r[2] for r in rounds)
    share = statistics.median(r[4] / r[3] for r in rounds)
    print(f"{'':24}{'peer':>10}{'visiond':>10}")
    print(f"{'whole frame, us':24}{theirs:10.0f}{ours:10.0f}")
    print(f"{'inference, us':24}{their_network:10.0f}{our_network:10.0f}")
    print(f"{'all but inference, us':24}{theirs - their_network:10.0f}{rest:10.0f}")
    print(f"frames/s, visiond to peer: {ratio:.3f} (wanted: 1.1)")
    print(f"all but the inference: {share:.1%} of it (wanted: 8 % at most)")
    return 0 if ratio >= 1.1 and share <= 0.08 else 1


if __name__ == "__main__":
    sys.exit(main())
