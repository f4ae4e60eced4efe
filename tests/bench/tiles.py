#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 4.14.0.94, onnxruntime 1.32.0, sahi 0.12.8
"""Tiles, ours against SAHI's: 20 frames of 4K with 500 small objects, the same model, ONNX Runtime, tiles and threads.

    tiles.py [--visiond BIN] [--frames N] [--size N] [--threads N] [--keep FOLDER]

The objects are the astronaut and the cat of tests/media, 50 to 110 pixels high, on a smooth ground. Every second one lies on the seam of
two tiles. The cost is CPU time, which other load on the machine changes least: of SAHI's prediction by views, and of what the tiles add
to a run of the daemon. Wants: recall at least SAHI's, no more doubles than SAHI has, and 3 times its speed.

tests/bench/run does not run it: SAHI is not among its packages. In the same virtual environment, after it,
    pip install --no-deps sahi==0.12.8 && pip install click fire pillow pyyaml requests shapely termcolor tqdm
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import cv2
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden"))
import nanodet_peer as peer  # noqa: E402
from sahi.models.base import DetectionModel  # noqa: E402
from sahi.predict import get_sliced_prediction  # noqa: E402
from sahi.prediction import ObjectPrediction  # noqa: E402
from sahi.slicing import get_slice_bboxes  # noqa: E402
from sahi.utils.compatibility import fix_full_shape_list, fix_shift_amount_list  # noqa: E402

MODEL = ROOT / "config/models/nanodet-g-416.onnx"
WIDTH, HEIGHT, OBJECTS, OVERLAP, THRESHOLD = 3840, 2160, 25, 0.2, 0.4
# Of each picture: the label, and the object in it.
OBJECT_OF = {"astronaut.png": ("person", (14, 14, 364, 508)), "chelsea.png": ("cat", (0, 0, 451, 300))}


def make(folder, number, size):
    """Writes a frame; returns its objects as (label, x1, y1, x2, y2)."""
    random = np.random.default_rng(number)
    ground = cv2.imread(str(ROOT / "tests/media/coffee.png"))
    ground = cv2.GaussianBlur(cv2.resize(ground, (WIDTH // 8, HEIGHT // 8)), (0, 0), 12)
    frame = cv2.resize(ground, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    step = size - int(size * OVERLAP)
    objects = []
    while len(objects) < OBJECTS:
        name = ["astronaut.png", "chelsea.png"][random.integers(2)]
        picture = cv2.imread(str(ROOT / "tests/media" / name))
        label, (left, top, right, bottom) = OBJECT_OF[name]
        scale = random.uniform(50, 110) / (bottom - top)
        small = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        height, width = small.shape[:2]
        x, y = int(random.integers(0, WIDTH - width)), int(random.integers(0, HEIGHT - height))
        if len(objects) % 2:
            # The edge of a tile goes through it.
            seam = int(random.integers(1, (WIDTH - size) // step + 1)) * step + size * int(random.integers(2)) - step
            x = int(np.clip(seam - random.uniform(0.2, 0.8) * width, 0, WIDTH - width))
        box = [x + left * scale, y + top * scale, x + right * scale, y + bottom * scale]
        near = 16
        if any(x - near < b[3] and b[1] < x + width + near and y - near < b[4] and b[2] < y + height + near for b in objects):
            continue
        frame[y : y + height, x : x + width] = small
        objects.append((label, *box))
    cv2.imwrite(str(folder / f"{number:02}.png"), frame, [cv2.IMWRITE_PNG_COMPRESSION, 1])
    return objects


class NanoDet(DetectionModel):
    """NanoDet on ONNX Runtime for SAHI, by the code that visiond's boxes are compared with."""

    threads = 0

    def check_dependencies(self, packages=None):
        pass

    def set_device(self, device=None):
        self.device = "cpu"

    def load_model(self):
        self.model = peer.session(self.model_path, self.threads)
        self.category_mapping = {str(index): name for index, name in enumerate(peer.COCO)}

    def perform_inference(self, image):
        tensor, placed = peer.preprocess(image[:, :, ::-1])
        output = self.model.run(None, {self.model.get_inputs()[0].name: tensor})[0]
        size = (image.shape[1], image.shape[0])
        self._original_predictions = peer.decode(output, placed, size, self.confidence_threshold)

    def perform_batch_inference(self, images):
        self.perform_inference(images[0])

    def _create_object_prediction_list_from_original_predictions(self, shift_amount_list=None, full_shape_list=None):
        shift, shape = fix_shift_amount_list(shift_amount_list)[0], fix_full_shape_list(full_shape_list)[0]
        found = [
            ObjectPrediction(
                bbox=list(box),
                category_id=label,
                category_name=peer.COCO[label],
                score=score,
                shift_amount=shift,
                full_shape=shape,
            )
            for label, score, *box in self._original_predictions
        ]
        self._object_prediction_list_per_image = [found]


def by_sahi(folder, numbers, size, threads):
    """Detections of each frame as (label, score, x1, y1, x2, y2), and CPU seconds of all."""
    NanoDet.threads = threads
    model = NanoDet(model_path=str(MODEL), confidence_threshold=THRESHOLD)
    found, took = [], 0
    for number in numbers:
        image = cv2.cvtColor(cv2.imread(str(folder / f"{number:02}.png")), cv2.COLOR_BGR2RGB)
        begin = time.process_time()
        result = get_sliced_prediction(image, model, size, size, OVERLAP, OVERLAP, verbose=0)
        took += time.process_time() - begin
        boxes = [(one.category.name, one.score.value, *one.bbox.to_xyxy()) for one in result.object_prediction_list]
        found.append(boxes)
    return found, took


CONFIG = """
[engine]
backend = "onnxruntime"
threads = {threads}
[[model]]
name = "objects"
path = "{model}"
score_threshold = {threshold}
[[camera]]
name = "frames"
models = [{{ name = "objects"{tiles} }}]
source = {{ type = "images", path = "{folder}" }}
[[sink]]
type = "file"
path = "{out}/out.jsonl"
"""


def by_visiond(binary, folder, tiles, threads):
    """The same by the daemon."""
    used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before = used()
    with tempfile.TemporaryDirectory() as out:
        config = pathlib.Path(out, "visiond.toml")
        settings = dict(threads=threads, model=MODEL, threshold=THRESHOLD, tiles=tiles, folder=folder, out=out)
        config.write_text(CONFIG.format(**settings))
        subprocess.run([binary, "run", str(config)], check=True, stderr=subprocess.PIPE)
        messages = [json.loads(line) for line in pathlib.Path(out, "out.jsonl").read_text().splitlines()]
    took, found = used() - before, []
    for message in messages:
        boxes = []
        for one in message["detections"]:
            box = one["box"]
            corners = (box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"])
            boxes.append((one["label"], one["score"], *corners))
        found.append(boxes)
    return found, took


def shares(a, b):
    """Intersection over union, and over the smaller box."""
    shared = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return shared / (sum(areas) - shared), shared / min(areas)


def judge(objects, found):
    """How many objects were found with an IoU of 0.5, their mean IoU, how many have a second box, and how many boxes show none."""
    hits, overlaps, doubles, strays = 0, [], 0, 0
    for wanted, boxes in zip(objects, found):
        for label, *box in wanted:
            near = [shares(box, one[2:]) for one in boxes if one[0] == label]
            best = max((iou for iou, _ in near), default=0)
            hits += best >= 0.5
            overlaps += [best] if best >= 0.5 else []
            doubles += sum(of_smaller >= 0.5 for _, of_smaller in near) > 1
        for label, _, *box in boxes:
            strays += not any(name == label and shares(box, known)[1] >= 0.5 for name, *known in wanted)
    return hits, statistics.mean(overlaps or [0]), doubles, strays


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep", help="write the frames to this folder and keep them")
    args = parser.parse_args()
    if not os.environ.get("ORT_DYLIB_PATH"):
        # The same library that the peer uses.
        import onnxruntime

        folder = pathlib.Path(onnxruntime.__file__).parent / "capi"
        os.environ["ORT_DYLIB_PATH"] = str(next(folder.glob("libonnxruntime.so.*")))
    cv2.setNumThreads(args.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.keep or temporary)
        folder.mkdir(exist_ok=True)
        numbers = range(args.frames)
        objects = [make(folder, number, args.size) for number in numbers]
        tiles = f", tiles = {{ size = {args.size}, overlap = {OVERLAP} }}"
        rows = {
            "SAHI": by_sahi(folder, numbers, args.size, args.threads),
            "visiond": by_visiond(args.visiond, folder, tiles, args.threads),
            "visiond, no tiles": by_visiond(args.visiond, folder, "", args.threads),
        }
    total = sum(map(len, objects))
    print(f"{'':20}{'found':>8}{'recall':>8}{'IoU':>8}{'doubles':>9}{'strays':>8}")
    judged = {}
    for name, (found, _) in rows.items():
        hits, overlap, doubles, strays = judged[name] = judge(objects, found)
        print(f"{name:20}{hits:8}{hits / total:8.3f}{overlap:8.3f}{doubles:9}{strays:8}")
    tiles = args.frames * len(get_slice_bboxes(HEIGHT, WIDTH, args.size, args.size, False, OVERLAP, OVERLAP))
    theirs = 1e3 * rows["SAHI"][1] / (tiles + args.frames)
    ours = 1e3 * (rows["visiond"][1] - rows["visiond, no tiles"][1]) / tiles
    ratio = theirs / ours
    print(f"CPU ms a tile: SAHI {theirs:.1f}, visiond {ours:.1f}, ratio {ratio:.2f} (wanted: 3)")
    good = judged["visiond"][0] >= judged["SAHI"][0] and judged["visiond"][2] <= judged["SAHI"][2]
    return 0 if good and ratio >= 3 else 1


if __name__ == "__main__":
    sys.exit(main())
