#!/usr/bin/env python3
# torch 2.x with CUDA 13
"""Device copy bandwidth by PyTorch, to check visiond-gpu's own by: one JSON line; bytes read and written, in GB/s."""

import json

try:
    import torch

    assert torch.cuda.is_available(), "torch sees no GPU"
except (ImportError, AssertionError) as error:
    print(json.dumps({"skipped": str(error)}))
else:
    source = torch.empty(2 << 30, dtype=torch.uint8, device="cuda").zero_()
    target = torch.empty_like(source)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    best = 0.0
    for _ in range(10):
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        best = max(best, 2 * source.numel() / begin.elapsed_time(end) / 1e6)
    print(json.dumps({"gb_per_s": best}))
