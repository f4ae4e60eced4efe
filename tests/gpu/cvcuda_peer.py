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
FORMATS = {"yuyv": ("YUV2RGB_YUY2", (HEIGHT, WIDTH, 2)), "nv12": ("YUV2RGB_NV12", (HEIGHT * 3 // 2, WIDTH, 1))}


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
    placed_height = round(HEIGHT * SIDE / WIDTH)
    top = (SIDE - placed_height) // 2
    for name, (code, shape) in FORMATS.items():
        frame = np.fromfile(folder / f"{name}.frame", np.uint8).reshape(shape)
        source = torch.from_numpy(frame).cuda()[None].repeat(FRAMES, 1, 1, 1).contiguous()
        like = lambda *size, dtype=torch.uint8: torch.empty((FRAMES, *size), dtype=dtype, device="cuda")
        buffers = [
            source, like(HEIGHT, WIDTH, 3), like(placed_height, SIDE, 3), like(SIDE, SIDE, 3), like(SIDE, SIDE, 3, dtype=torch.float16),
        ]  # fmt: skip
        planar = like(3, SIDE, SIDE, dtype=torch.float16)
        source_t, rgb, small, padded, half = (cvcuda.as_tensor(buffer, "NHWC") for buffer in buffers)
        out = cvcuda.as_tensor(planar, "NCHW")
        torch.cuda.synchronize()

        def once():
            cvcuda.cvtcolor_into(rgb, source_t, getattr(cvcuda.ColorConversion, code))
            cvcuda.resize_into(small, rgb, cvcuda.Interp.LINEAR)
            cvcuda.copymakeborder_into(padded, small, cvcuda.Border.CONSTANT, [PAD, PAD, PAD], top=top, left=0)
            cvcuda.convertto_into(half, padded, 1 / 255)
            cvcuda.reformat_into(out, half)

        def loop(runs):
            torch.cuda.synchronize()
            cvcuda.Stream.current.sync()
            started = time.perf_counter()
            for _ in range(runs):
                once()
            cvcuda.Stream.current.sync()
            torch.cuda.synchronize()
            return (time.perf_counter() - started) * 1e3 / runs

        loop(20)
        best = min(loop(200) for _ in range(5))
        ours = np.fromfile(folder / f"{name}.tensor", np.float16).astype(np.float32).reshape(3, SIDE, SIDE)
        difference = float(np.abs(planar[0].float().cpu().numpy() - ours).mean() * 255)
        print(json.dumps({"format": name, "ms": best, "difference": difference, "cvcuda": cvcuda.__version__}))


if __name__ == "__main__":
    main()
