#!/usr/bin/env python3
# cvcuda-cu13 0.19.0, torch 2.x with CUDA 13
"""CV-CUDA's way of feeding a detector, on the frames that visiond-gpu wrote: one JSON line a format, times in milliseconds.

    cvcuda_peer.py FOLDER     holds FORMAT.frame (one 1080p frame) and FORMAT.tensor (our f16 NCHW tensor of it)

32 frames: cvtcolor, resize, copymakeborder, convertto, reformat, each into a buffer made beforehand. CV-CUDA runs on a stream of
its own, so whole loops are timed between two synchronisations; a loop's time by 32 frames is one figure, the best of five counts.
`difference` is the mean distance to our tensor in levels of 255: both do the same job when it is about one.
"""

import json
import pathlib
import sys
import time

FRAMES, WIDTH, HEIGHT, SIDE, PAD = 32, 1920, 1080, 640, 114
# Of each format its code and the shapes that a frame may have; versions differ in which they take.
FORMATS = {
    "yuyv": ("YUV2RGB_YUY2", [(HEIGHT, WIDTH * 2, 1), (HEIGHT, WIDTH, 2), (HEIGHT * 2, WIDTH, 1)]),
    "nv12": ("YUV2RGB_NV12", [(HEIGHT * 3 // 2, WIDTH, 1)]),
}
# Mean distance, in levels, of two samplings of one picture.
SAME_PICTURE = 8


def main():
    folder = pathlib.Path(sys.argv[1])
    try:
        import cvcuda
        import numpy as np
        import torch
    except ImportError as error:
        print(json.dumps({"skipped": f"{error}"}))
        return
    if not torch.cuda.is_available():
        print(json.dumps({"skipped": "torch sees no GPU"}))
        return
    for name, (code, shapes) in FORMATS.items():
        ours = np.fromfile(folder / f"{name}.tensor", np.float16).astype(np.float32).reshape(3, SIDE, SIDE)
        refused = "no shape of a frame gives its picture"
        for shape in shapes:
            try:
                frame = np.fromfile(folder / f"{name}.frame", np.uint8).reshape(shape)
                milliseconds, theirs = measure(cvcuda, torch, frame, getattr(cvcuda.ColorConversion, code))
            except RuntimeError as error:
                refused = str(error)
                continue
            difference = float(np.abs(theirs - ours).mean() * 255)
            if difference < SAME_PICTURE:
                version = cvcuda.__version__
                print(json.dumps({"format": name, "ms": milliseconds, "difference": difference, "cvcuda": version}))
                break
            refused = f"shape {shape} gives another picture: mean difference {difference:.1f}"
        else:
            print(json.dumps({"format": name, "failed": refused}))


def measure(cvcuda, torch, frame, code):
    """Milliseconds for the 32 frames, and the first one's tensor."""
    placed_height = round(HEIGHT * SIDE / WIDTH)
    top = (SIDE - placed_height) // 2

    def like(*size, dtype=torch.uint8):
        return torch.empty((FRAMES, *size), dtype=dtype, device="cuda")

    source = torch.from_numpy(frame).cuda()[None].repeat(FRAMES, 1, 1, 1).contiguous()
    planar = like(3, SIDE, SIDE, dtype=torch.float16)
    buffers = [source, like(HEIGHT, WIDTH, 3), like(placed_height, SIDE, 3), like(SIDE, SIDE, 3)]
    buffers.append(like(SIDE, SIDE, 3, dtype=torch.float16))
    frames, rgb, small, padded, half = (cvcuda.as_tensor(buffer, "NHWC") for buffer in buffers)
    out = cvcuda.as_tensor(planar, "NCHW")

    def loop(runs):
        torch.cuda.synchronize()
        cvcuda.Stream.current.sync()
        started = time.perf_counter()
        for _ in range(runs):
            cvcuda.cvtcolor_into(rgb, frames, code)
            cvcuda.resize_into(small, rgb, cvcuda.Interp.LINEAR)
            cvcuda.copymakeborder_into(padded, small, cvcuda.Border.CONSTANT, [PAD, PAD, PAD], top=top, left=0)
            cvcuda.convertto_into(half, padded, 1 / 255)
            cvcuda.reformat_into(out, half)
        cvcuda.Stream.current.sync()
        torch.cuda.synchronize()
        return (time.perf_counter() - started) * 1e3 / runs

    loop(20)
    milliseconds = min(loop(200) for _ in range(5))
    return milliseconds, planar[0].float().cpu().numpy()


if __name__ == "__main__":
    main()
