# numpy 2.4.6; shapely 2.2.0; python 3.11
"""Golden data of turned boxes: `python tests/golden/oriented.py` writes oriented.txt, which kernels/tests/oriented_golden.rs reads.

Nothing here is taken from the Rust: the formulas are written anew from the functions of ultralytics 8.4.190 that the comments
name, in float64. The IoU of rectangles is shapely's. Seeded, so that a run without changes changes nothing.
"""
import math
import pathlib

import numpy as np
import shapely

rng = np.random.default_rng(20261125)


def f32(a, digits=4):
    """Numbers that survive being written as short decimals, as float32."""
    return np.round(np.asarray(a, np.float64), digits).astype(np.float32).astype(np.float64)


def regularized(box):
    """regularize_rboxes in ultralytics/utils/ops.py; Python's % is that of torch."""
    x, y, w, h, t = box
    if t % math.pi >= math.pi / 2:
        w, h = h, w
    return x, y, w, h, t % (math.pi / 2)


def covariance(box):
    """_get_covariance_matrix in ultralytics/utils/metrics.py, as a matrix."""
    c, s = math.cos(box[4]), math.sin(box[4])
    turn = np.array([[c, -s], [s, c]])
    return turn @ np.diag([box[2] ** 2 / 12, box[3] ** 2 / 12]) @ turn.T


def probiou(p, q, eps=1e-7):
    """batch_probiou in ultralytics/utils/metrics.py: the Bhattacharyya distance of two normal distributions, with its epsilons."""
    a, b = covariance(p), covariance(q)
    both, d = a + b, np.array([p[0] - q[0], p[1] - q[1]])
    det = np.linalg.det(both)
    adjugate = np.array([[both[1, 1], -both[0, 1]], [-both[0, 1], both[0, 0]]])
    distance = d @ adjugate @ d / (det + eps) / 4
    distance += math.log(det / (4 * math.sqrt(max(np.linalg.det(a), 0) * max(np.linalg.det(b), 0)) + eps) + eps) / 2
    return 1 - math.sqrt(1 - math.exp(-min(max(distance, eps), 100)) + eps)


def corners(box):
    """xywhr2xyxyxyxy in ultralytics/utils/ops.py: the centre, plus and minus half of each side's vector."""
    x, y, w, h, t = box
    c, s = math.cos(t), math.sin(t)
    u, v = np.array([w / 2 * c, w / 2 * s]), np.array([-h / 2 * s, h / 2 * c])
    return [np.array([x, y]) + i * u + j * v for i, j in ((1, 1), (-1, 1), (-1, -1), (1, -1))]


def fast_nms(boxes, scores, classes, threshold, agnostic):
    """TorchNMS.fast_nms in ultralytics/utils/nms.py: a box is removed if any better one, kept or not, overlaps it too much."""
    order = sorted(range(len(boxes)), key=lambda i: -scores[i])
    kept = []
    for place, i in enumerate(order):
        likeness = [probiou(boxes[j], boxes[i]) for j in order[:place] if agnostic or classes[i] == classes[j]]
        assert all(abs(p - threshold) > 1e-6 for p in likeness), "a likeness at the threshold proves nothing"
        if not any(p > threshold for p in likeness):
            kept.append(i)
    return kept


def text(numbers, digits=9):
    return " ".join(f"{n:.{digits}g}" for n in numbers)


def main():
    lines = ["# Made by oriented.py: numpy 2.4.6; shapely 2.2.0; python 3.11",
             "# pair: two boxes (x y w h angle), probiou, IoU, the first regularized, its corners"]
    for _ in range(200):
        p = f32([*rng.uniform(0, 100, 2), *rng.uniform(2, 80, 2), rng.uniform(-7, 7)])
        q = f32([*(p[:2] + rng.normal(0, 15, 2)), *(p[2:4] * rng.uniform(0.5, 2, 2)), p[4] + rng.normal(0, 0.6)])
        shapes = [shapely.Polygon(corners(box)) for box in (p, q)]
        iou = shapes[0].intersection(shapes[1]).area / shapes[0].union(shapes[1]).area
        lines.append("pair " + text([*p, *q, probiou(p, q), iou, *regularized(p), *np.ravel(corners(p))]))
    lines.append("# nms: threshold, agnostic, survivors by score; then the boxes: x y w h angle score class")
    for threshold, agnostic in ((0.45, 0), (0.7, 0), (0.3, 1), (0.7, 1)):
        objects = np.concatenate([rng.uniform(0, 600, (40, 2)), rng.uniform(8, 90, (40, 2)), rng.uniform(-0.78, 2.35, (40, 1))], 1)
        near = np.repeat(objects, 8, 0) + rng.normal(0, 1, (320, 5)) * [3, 3, 4, 4, 0.1]
        near[:, 2:4] = np.maximum(near[:, 2:4], 2)
        boxes, scores = f32(near), f32(rng.permutation(320) / 400 + 0.1)
        classes = np.repeat(rng.integers(0, 3, 40), 8)
        classes[rng.random(320) < 0.1] = 1
        kept = fast_nms(boxes, scores, classes, threshold, agnostic)
        greedy = []
        for i in sorted(range(320), key=lambda i: -scores[i]):
            if not any((agnostic or classes[i] == classes[j]) and probiou(boxes[j], boxes[i]) > threshold for j in greedy):
                greedy.append(i)
        assert len(greedy) > len(kept) > 20, "greedy suppression must differ"
        lines.append(f"nms {threshold} {agnostic} " + " ".join(map(str, kept)))
        lines += ["box " + text([*b, s, c], 7) for b, s, c in zip(boxes, scores, classes)]
    path = pathlib.Path(__file__).with_name("oriented.txt")
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} lines, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
