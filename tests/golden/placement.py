#!/usr/bin/env python3
# numpy 2.4.6; ultralytics 8.0.107, 8.4.24, 8.4.173, 8.4.190, yolov5 7.0.14, ddddocr 1.6.1, nudenet 3.4.2,
# mmcv-lite 2.2.0, super-gradients 3.7.1, transformers 5.23.0, torchvision 0.29.2
"""Golden placement: where each training framework puts a picture in its input, and how it maps points back.

    placement.py PACKAGES        writes placement.txt beside itself

PACKAGES is a folder with one folder for each package, named `NAME-VERSION`, made by

    pip install --no-deps --target PACKAGES/ultralytics-8.4.190 ultralytics==8.4.190

for every package above but torchvision, whose formulas are written out here, like those of the projects that have no
package (`Source` in each function's text). Only the few functions that are needed are compiled out of a package's files:
the arithmetic is the framework's, with a stand-in for OpenCV that notes what it is asked to do.

A line is a case, fields are separated by spaces:

    framework source_width source_height input_width input_height resized_width resized_height left top x,y>X,Y ...

The whole source is resized to `resized` and stands at `left`, `top` of the input; both can be fractions, and negative
where the input shows a part of the resized picture only. A point x, y of the input is X, Y in the source, before
clipping, in float64 with the framework's own order of operations; numbers are Python's shortest that read back the same.
A name without a version holds for all that are known; `ultralytics-V` holds up to version V, down to the one listed before.
"""

import ast
import functools
import pathlib
import random
import sys
import types

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = pathlib.Path()
CAMERAS = [
    (640, 480), (1280, 720), (1920, 1080), (1280, 1024), (720, 576), (1440, 1080), (4056, 3040), (704, 576), (1936, 1216),
    (2592, 1944), (3840, 2160), (352, 288), (800, 600), (1024, 768), (768, 576), (2048, 1536), (1080, 1920), (480, 640),
]  # fmt: skip
INPUTS = [(320, 320), (416, 416), (640, 640), (224, 224), (300, 300), (512, 288), (640, 384), (320, 240), (512, 512)]
SQUARES = [(320, 320), (416, 416), (640, 640), (512, 512), (608, 608)]
CASES = 40  # of each framework
TIES = 6  # cases of each framework whose height is half a pixel more than a whole one


@functools.cache
def code_of(package, file, names):
    """The compiled functions and classes of a package's file, without what they inherit and without annotations."""
    path = next(PACKAGES.glob(f"{package}*")) / file
    body = []
    for name in names:
        nodes = ast.parse(path.read_text(encoding="utf-8")).body
        for part in name.split("."):
            node = next(n for n in nodes if getattr(n, "name", None) == part)
            nodes = node.body
        node.decorator_list = []
        for part in ast.walk(node):
            if isinstance(part, ast.ClassDef):
                part.bases = []
            elif isinstance(part, ast.arg):
                part.annotation = None
            elif isinstance(part, ast.FunctionDef):
                part.returns = None
        body.append(node)
    return compile(ast.Module(body, []), str(path), "exec")


def compiled(package, file, *names, **namespace):
    """Functions and classes of a package's file by name, without importing the package. `Class.method` is one method."""
    namespace |= {"np": np}
    exec(code_of(package, file, names), namespace)
    return types.SimpleNamespace(**{name.split(".")[-1]: namespace[name.split(".")[-1]] for name in names})


class NotedOpenCv:
    """A stand-in for `cv2`: records sizes and borders, and returns images that take no memory."""

    INTER_LINEAR = BORDER_CONSTANT = COLOR_RGBA2BGR = 0

    def __init__(self):
        self.size = self.left = self.top = None
        self.dnn = types.SimpleNamespace(blobFromImage=lambda picture, *_, **__: picture)

    def resize(self, _picture, dsize, interpolation=None):
        if min(dsize) < 1:
            raise ValueError("OpenCV refuses an empty picture")
        self.size = dsize
        return picture_of(*dsize)

    def copyMakeBorder(self, picture, top, bottom, left, right, *_, **__):
        self.left, self.top = left, top
        return picture_of(picture.shape[1] + left + right, picture.shape[0] + top + bottom)

    def cvtColor(self, picture, _code):
        return picture


def picture_of(w, h):
    """A black image of any size that takes one byte."""
    return np.broadcast_to(np.uint8(0), (h, w, 3))


def scaled_back(function, source, inp):
    """Way back of a `scale_boxes`, which works in place on boxes of x1, y1, x2, y2."""
    return lambda x, y: tuple(function(inp[::-1], np.array([[x, y, x, y]]), source[::-1])[0, :2].tolist())


NO_CLIP = {"clip_boxes": lambda boxes, _shape: boxes}


def ultralytics(version):
    ops = "ultralytics/utils/ops.py" if version != "8.0.107" else "ultralytics/yolo/utils/ops.py"
    augment = "ultralytics/data/augment.py" if version != "8.0.107" else "ultralytics/yolo/data/augment.py"
    package = f"ultralytics-{version}"

    def place(source, inp):
        cv2 = NotedOpenCv()
        box = compiled(package, augment, "LetterBox", cv2=cv2).LetterBox
        box(inp[::-1], auto=False)(image=picture_of(*source))
        back = compiled(package, ops, "scale_boxes", **NO_CLIP).scale_boxes
        return inp, cv2.size or source, (cv2.left, cv2.top), scaled_back(back, source, inp)

    return place


def yolov5(source, inp):
    cv2 = NotedOpenCv()
    letterbox = compiled("yolov5", "yolov5/utils/augmentations.py", "letterbox", cv2=cv2).letterbox
    letterbox(picture_of(*source), inp[::-1], auto=False)
    back = compiled("yolov5", "yolov5/utils/general.py", "scale_boxes", **NO_CLIP).scale_boxes
    return inp, cv2.size or source, (cv2.left, cv2.top), scaled_back(back, source, inp)


def megvii_yolox(source, inp):
    """ddddocr has YOLOX's own `preproc`, and divides boxes by its ratio as YOLOX's demo does."""
    cv2 = NotedOpenCv()
    file = "ddddocr/core/detection_engine.py"
    _, ratio = compiled("ddddocr", file, "DetectionEngine.preproc", cv2=cv2).preproc(None, picture_of(*source), inp[::-1])
    return inp, cv2.size, (0, 0), lambda x, y: (x / ratio, y / ratio)


def nanodet(source, inp):
    """Source: RangiLyu/nanodet at be9b4a9, nanodet/data/transform/warp.py, keep_ratio."""
    (w, h), (iw, ih) = source, inp
    ratio = ih / h if w / h < iw / ih else iw / w
    left, top = ratio * (-w / 2) + 0.5 * iw, ratio * (-h / 2) + 0.5 * ih
    inverse = 1 / ratio  # as LAPACK inverts the matrix
    back = lambda x, y: (x * inverse + -left * inverse, y * inverse + -top * inverse)
    return inp, (ratio * w, ratio * h), (left, top), back


def centernet(source, inp):
    """Source: xingyizhou/CenterNet at 4c50fd3, src/lib/utils/image.py, fix_res. Its own points are float32."""
    (w, h), (iw, ih) = source, inp
    ratio = iw / max(w, h)
    left, top = iw * 0.5 - ratio * (w / 2), ih * 0.5 - ratio * (h / 2)
    return inp, (ratio * w, ratio * h), (left, top), lambda x, y: ((x - left) / ratio, (y - top) / ratio)


def centerface(source, _inp):
    """Source: Star-Clouds/CenterFace at b82ec0c, prj-python/centerface.py."""
    inp = tuple(int(np.ceil(side / 32) * 32) for side in source)
    scale_w, scale_h = inp[0] / source[0], inp[1] / source[1]
    return inp, inp, (0, 0), lambda x, y: (x / scale_w, y / scale_h)


def nudenet(source, inp):
    cv2 = NotedOpenCv()
    file = "nudenet/nudenet.py"
    _, _, _, x_pad, y_pad, w, h = compiled("nudenet", file, "_read_image", cv2=cv2, _io=__import__("_io"))._read_image(
        picture_of(*source), inp[0]
    )
    resized = w * inp[0] / (w + x_pad), h * inp[1] / (h + y_pad)
    return inp, resized, (0, 0), lambda x, y: (x * (w + x_pad) / inp[0], y * (h + y_pad) / inp[1])


def mmdet(source, inp):
    """Source of the way back: mmdet 3.3.0, mmdet/models/dense_heads/base_dense_head.py, _bbox_post_process."""
    file = "mmcv/image/geometric.py"
    module = compiled("mmcv-lite-2.2.0", file, "_scale_size", "rescale_size")
    size = module.rescale_size(source, inp)
    if min(size) < 1:
        raise ValueError("OpenCV refuses an empty picture")
    by = [1 / (new / old) for new, old in zip(size, source)]
    return inp, size, (0, 0), lambda x, y: (x * by[0], y * by[1])


def yolo_nas(source, inp):
    """Picture of 4 pixels less than the input, centred (default_yolo_nas_coco_processing_params)."""
    cv2 = NotedOpenCv()
    utils = compiled(
        "super-gradients-3.7.1", "super_gradients/training/transforms/utils.py",
        "_rescale_image", "_get_center_padding_coordinates", cv2=cv2, PaddingCoordinates=types.SimpleNamespace,
        Optional=None,
    )  # fmt: skip
    rescale = compiled(
        "super-gradients-3.7.1", "super_gradients/training/processing/processing.py", "_LongestMaxSizeRescale",
        _rescale_image=utils._rescale_image, RescaleMetadata=types.SimpleNamespace,
    )._LongestMaxSizeRescale  # fmt: skip
    _, metadata = rescale((inp[1] - 4, inp[0] - 4)).preprocess_image(picture_of(*source))
    size = cv2.size or source
    pad = utils._get_center_padding_coordinates(size[::-1], inp[::-1])
    by_w, by_h = 1 / metadata.scale_factor_w, 1 / metadata.scale_factor_h
    return inp, size, (pad.left, pad.top), lambda x, y: ((x - pad.left) * by_w, (y - pad.top) * by_h)


def torchvision_detection(least, most):
    """Source: torchvision 0.29.2, models/detection/transform.py, GeneralizedRCNNTransform."""

    def place(source, _inp):
        (w, h) = source
        scale = min(least / min(w, h), most / max(w, h))
        size = int(np.floor(float(w) * scale)), int(np.floor(float(h) * scale))
        if min(size) < 1:
            raise ValueError("torch refuses an empty picture")
        inp = tuple(int(np.ceil(float(side) / 32.0) * 32.0) for side in size)
        return inp, size, (0, 0), lambda x, y: (x * (w / size[0]), y * (h / size[1]))

    return place


def cropped(short, crop):
    """Source: torchvision 0.29.2, transforms/functional.py, _compute_resized_output_size and center_crop."""

    def place(source, _inp):
        (w, h) = source
        long = int(short * max(w, h) / min(w, h))
        size = (short, long) if w <= h else (long, short)
        left, top = -int(round((size[0] - crop) / 2.0)), -int(round((size[1] - crop) / 2.0))
        return (crop, crop), size, (left, top), lambda x, y: ((x - left) * (w / size[0]), (y - top) * (h / size[1]))

    return place


def detr(source, _inp):
    file = "transformers/image_transforms.py"
    h, w = compiled("transformers", file, "get_size_with_aspect_ratio").get_size_with_aspect_ratio(source[::-1], 800, 1333)
    if min(w, h) < 1:
        raise ValueError("torch refuses an empty picture")
    return (w, h), (w, h), (0, 0), lambda x, y: (x / w * source[0], y / h * source[1])


def stretched(source, inp):
    """Boxes are parts of the input, times the source's size: RT-DETR, D-FINE, RF-DETR, UltraFace, TensorFlow."""
    return inp, inp, (0, 0), lambda x, y: (x / inp[0] * source[0], y / inp[1] * source[1])


def d_fine_letterbox(source, inp):
    """Source: Peterande/D-FINE at a1f73a8, tools/inference/onnx_inf.py."""
    (w, h), size = source, inp[0]
    ratio = min(size / w, size / h)
    new = int(w * ratio), int(h * ratio)
    if min(new) < 1:
        raise ValueError("Pillow refuses an empty picture")
    left, top = (size - new[0]) // 2, (size - new[1]) // 2
    return inp, new, (left, top), lambda x, y: ((x - left) / ratio, (y - top) / ratio)


def mediapipe(source, inp):
    """Source: google-ai-edge/mediapipe at 85c0cdc, calculators/tensor/image_to_tensor_utils.cc. Its own are float32."""
    (w, h), (iw, ih) = source, inp
    aspect = ih / iw
    roi_w, roi_h = (w, w * aspect) if aspect > h / w else (h / aspect, h)
    left, top = (roi_w - w) / 2 * iw / roi_w, (roi_h - h) / 2 * ih / roi_h
    back = lambda x, y: (x / iw * roi_w + (w - roi_w) / 2, y / ih * roi_h + (h - roi_h) / 2)
    return inp, (w * iw / roi_w, h * ih / roi_h), (left, top), back


def caffe(source, _inp):
    """Stretched to 256x256, the middle 224x224 is used."""
    (w, h) = source
    return (224, 224), (256, 256), (-16, -16), lambda x, y: ((x + 16) * w / 256, (y + 16) * h / 256)


def paddle(source, inp):
    """Source: PaddlePaddle/PaddleDetection at 666f597, deploy/python/preprocess.py, keep_ratio false."""
    by = inp[0] / float(source[0]), inp[1] / float(source[1])
    return inp, inp, (0, 0), lambda x, y: (x / by[0], y / by[1])


def paddle_keep_ratio(source, _inp):
    """Source: PaddlePaddle/PaddleDetection at 666f597, deploy/python/preprocess.py, keep_ratio, 800 and 1333; padded to 32."""
    scale = 800.0 / float(min(source))
    if np.round(scale * max(source)) > 1333:
        scale = 1333.0 / float(max(source))
    size = round(source[0] * scale), round(source[1] * scale)
    if min(size) < 1:
        raise ValueError("OpenCV refuses an empty picture")
    inp = tuple(int(np.ceil(side / 32) * 32) for side in size)
    return inp, size, (0, 0), lambda x, y: (x / scale, y / scale)


def damo_yolo(source, inp):
    """Source: tinyvision/DAMO-YOLO at 319572e, damo/dataset/transforms/transforms.py and damo/structures/bounding_box.py."""
    (w, h) = source
    ratio = min(inp[0] / w, inp[1] / h)
    size = int(w * ratio), int(h * ratio)
    if min(size) < 1:
        raise ValueError("OpenCV refuses an empty picture")
    return inp, size, (0, 0), lambda x, y: (x * (float(w) / float(size[0])), y * (float(h) / float(size[1])))


FRAMEWORKS = {
    "ultralytics-8.0.107": (ultralytics("8.0.107"), INPUTS),
    "ultralytics-8.4.24": (ultralytics("8.4.24"), INPUTS),
    "ultralytics-8.4.173": (ultralytics("8.4.173"), INPUTS),
    "ultralytics": (ultralytics("8.4.190"), INPUTS),
    "yolov5": (yolov5, INPUTS),
    "megvii-yolox": (megvii_yolox, INPUTS),
    "nanodet": (nanodet, INPUTS),
    "centernet": (centernet, SQUARES),
    "centerface": (centerface, SQUARES),
    "nudenet": (nudenet, [(320, 320), (640, 640)]),
    "mmdet": (mmdet, SQUARES),
    "yolo-nas": (yolo_nas, [(640, 640)]),
    "torchvision-detection": (torchvision_detection(800, 1333), SQUARES),
    "torchvision-classification": (cropped(256, 224), SQUARES),
    "torchvision-classification-v2": (cropped(232, 224), SQUARES),
    "ultralytics-classify": (cropped(224, 224), SQUARES),
    "timm-0.9": (cropped(248, 224), SQUARES),
    "timm-0.95": (cropped(235, 224), SQUARES),
    "detr": (detr, SQUARES),
    "stretch": (stretched, INPUTS),
    "d-fine-letterbox": (d_fine_letterbox, SQUARES),
    "mediapipe": (mediapipe, [(128, 128), (192, 192), (256, 256), (320, 192)]),
    "caffe": (caffe, SQUARES),
    "paddle": (paddle, INPUTS),
    "paddle-keep-ratio": (paddle_keep_ratio, SQUARES),
    "damo-yolo": (damo_yolo, INPUTS),
}


def sources(draw):
    """An endless series of sizes: a camera's, odd ones, slivers."""
    while True:
        kind = draw.random()
        if kind < 0.4:
            yield draw.choice(CAMERAS)
        elif kind < 0.8:
            yield draw.randint(2, 2500), draw.randint(2, 2500)
        elif kind < 0.9:
            yield draw.randint(1, 64), draw.randint(1, 64)
        else:
            sliver = draw.randint(1, 3), draw.randint(1, 2000)
            yield sliver if draw.random() < 0.5 else sliver[::-1]


def number(value):
    """The shortest text that reads back the same; a whole number without a point."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def case(name, place, source, inp, draw):
    inp, resized, (left, top), back = place(source, inp)
    points = []
    for _ in range(2):
        # Sixteenths of a pixel between the corners of the visible part.
        x1, x2 = max(0, left), min(inp[0], left + resized[0])
        y1, y2 = max(0, top), min(inp[1], top + resized[1])
        x, y = (round(draw.uniform(*side) * 16) / 16 for side in ((x1, x2), (y1, y2)))
        points.append(",".join(map(number, (x, y))) + ">" + ",".join(map(number, back(x, y))))
    return " ".join([name, *map(number, (*source, *inp, *resized, left, top)), *points]) + "\n"


def main():
    global PACKAGES
    PACKAGES = pathlib.Path(sys.argv[1]).resolve()
    lines, refused = [], {}
    for name, (place, inputs) in FRAMEWORKS.items():
        draw = random.Random(name)
        stream, made = sources(draw), 0
        while made < CASES:
            source, inp = next(stream), draw.choice(inputs)
            if made < TIES:
                source = 2 * inp[0], 2 * draw.randint(1, inp[1]) - 1
            try:
                lines.append(case(name, place, source, inp, draw))
                made += 1
            except ValueError as error:
                refused.setdefault(f"{name}: {error}", []).append(source)
    (HERE / "placement.txt").write_text("".join(lines), encoding="ascii")
    for reason, which in refused.items():
        print(f"left out {len(which)} sizes, such as {which[0]}: {reason}")


if __name__ == "__main__":
    main()
