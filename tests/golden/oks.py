#!/usr/bin/env python3
# numpy 2.4.6, pycocotools 2.0.11
"""Prints the OKS that engine/src/compare/tests.rs expects: pycocotools' own computeOks for its two persons.

    tests/golden/oks.py
"""

import collections

import numpy as np
from pycocotools.cocoeval import COCOeval

COUNT, BOX = 17, [0, 0, 80, 120]


def points(step, seen):
    """Points along x, each moved by `step` more; the last of those seen has no label."""
    rows = [(20 + (3 + step) * i, 30, 0 if seen and i + 1 == COUNT else 2) for i in range(COUNT)]
    return [float(v) for row in rows for v in row]


for name, sigmas in (("coco", None), ("others", np.ones(COUNT) / COUNT)):
    evaluation = COCOeval(iouType="keypoints")
    if sigmas is not None:
        evaluation.params.kpt_oks_sigmas = sigmas
    truth = {"keypoints": points(0, True), "bbox": BOX, "area": 0.53 * BOX[2] * BOX[3], "ignore": 0}
    evaluation._gts = collections.defaultdict(list, {(0, 0): [truth]})
    evaluation._dts = collections.defaultdict(list, {(0, 0): [{"keypoints": points(0.25, False), "score": 1.0}]})
    print(name, evaluation.computeOks(0, 0)[0][0])
