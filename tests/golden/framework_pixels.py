#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 5.0.0.93 and 4.14.0.94, pillow 12.3.0, torch 2.15.0, torchvision 0.29.2, timm 1.0.31,
# transformers 5.23.0, tensorflow-cpu 2.21.0; ultralytics 8.4.190, yolov5 7.0.14, ddddocr 1.6.1, nudenet 3.4.2, mmcv-lite 2.2.0
"""Golden tensors of each training framework's own preprocessing, and of the resamplers that they are made of.

    framework_pixels.py PACKAGES TOOL...        writes the tools' lines into framework_pixels.txt beside itself

TOOL is `opencv4`, `opencv5`, `torch` (Pillow, torchvision, timm and transformers too) or `tensorflow`: OpenCV 4 and 5, and
TensorFlow, each need a virtual environment of their own; the lines of other tools are kept. PACKAGES is placement.py's.

Pictures are made from integers (`picture`), so that both sides can make them. A line is a case, fields are separated by
spaces:

    name picture width height seed parameters in_width in_height order type scale mean std pad check index:value ...

The picture has three channels, red first. The tensor is NCHW with its channels in `order`. Type u8: the values are bytes, to
which `(byte * scale - mean) / std` is still to come, and `check` is the sum of `(index + 1) * byte`. Type f32: the values
are the network's input, all of that done, and `check` is their mean. `pad` is what stands outside the picture, as a byte
(type u8) or as a value of the tensor (f32). `parameters` has numbers separated by commas, or is `-`: the factors fx and fy,
the matrix of a warp by rows (source to input), the short side or the short and the long side, the crop fraction. Lists are
separated by commas.

Pillow 12 and older resize along x first, then along y, with bytes between; Pillow 13 chooses the order itself, which
changes bytes by one or so: the networks were trained with the older. Tests should allow a u8 value to differ by one where
a framework's own result depends on the processor: that is torchvision's uint8 resize, OpenCV 5's warps, and OpenCV's cubic
(`cv2-cubic`, `paddle`), for which PyPI's packages for x86-64 use Intel's library.
"""

import itertools
import pathlib
import random
import sys

import numpy as np

import placement
from preprocess import noise

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "framework_pixels.txt"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SIZES = [
    (1, 1), (1, 97), (131, 1), (2, 3), (7, 5), (16, 16), (31, 17), (33, 250), (64, 48), (97, 61), (100, 75), (120, 160),
    (127, 129), (160, 96), (173, 117), (199, 3), (224, 224), (256, 144), (300, 301), (320, 240), (333, 500), (352, 288),
    (416, 416), (450, 253), (640, 480), (641, 359), (704, 576), (720, 576), (1280, 720), (1280, 1024), (1440, 1080),
    (1920, 1080), (1936, 1216),
]  # fmt: skip
MODERATE = [size for size in SIZES if max(size) <= 20 * min(size)]
KINDS = ("noise", "gradient", "circles")


def picture(kind, w, h, seed):
    """RGB bytes of a picture, (h, w, 3)."""
    if kind == "noise":
        return noise(w * h * 3, seed).reshape(h, w, 3)
    x, y = np.meshgrid(np.arange(w, dtype=np.int64), np.arange(h, dtype=np.int64))
    if kind == "gradient":
        planes = x * 255 // max(w - 1, 1), y * 255 // max(h - 1, 1), (x + y) * 255 // max(w + h - 2, 1)
    else:
        # Rings that get narrower from the middle outwards, other ones in every channel: a wave of triangles.
        square = (2 * x + 1 - w) ** 2 + (2 * y + 1 - h) ** 2
        waves = (square * number // (w * w + h * h) + seed & 511 for number in (1536, 2304, 3328))
        planes = (np.where(wave > 255, 511 - wave, wave) for wave in waves)
    return np.stack(list(planes), 2).astype(np.uint8)


def chw(pixels):
    return np.ascontiguousarray(np.asarray(pixels).transpose(2, 0, 1))


class Case:
    """The fields of a line before its values."""

    def __init__(self, name, function, inp=None, order="rgb", scale=1.0, mean=(0, 0, 0), std=(1, 1, 1), pad=0, parameters=()):
        self.name, self.function, self.inp, self.order, self.pad = name, function, inp, order, pad
        self.scale, self.mean, self.std, self.parameters = scale, mean, std, parameters


def line(case, kind, size, seed):
    rgb = picture(kind, *size, seed)
    pixels = rgb if case.order == "rgb" else np.ascontiguousarray(rgb[:, :, ::-1])
    tensor = case.function(pixels, case)
    assert tensor.ndim == 3 and tensor.shape[0] == 3 and tensor.dtype in (np.uint8, np.float32), case.name
    in_h, in_w = tensor.shape[1:]
    flat = tensor.ravel()
    if tensor.dtype == np.uint8:
        check = str(int((np.arange(1, len(flat) + 1) * flat.astype(np.int64)).sum()))
        text = lambda value: str(int(value))
    else:
        check = f"{flat.astype(np.float64).mean():.8g}"
        text = lambda value: f"{float(value):.8g}"
    draw = random.Random(f"{case.name} {size} {seed}")
    indices = {0, len(flat) - 1, *(draw.randrange(len(flat)) for _ in range(6))}
    # The image's position and its last row and column matter most.
    different = np.flatnonzero(np.abs(flat.astype(np.float64) - case.pad) > 1e-6)
    if len(different):
        indices |= {int(different[0]), int(different[-1]), *(int(draw.choice(different)) for _ in range(6))}
    many = lambda values: ",".join(f"{value:.17g}" for value in values)
    fields = [
        case.name, kind, *size, seed, many(case.parameters) or "-", in_w, in_h, case.order,
        "u8" if tensor.dtype == np.uint8 else "f32", f"{case.scale:.17g}", many(case.mean), many(case.std), f"{case.pad:.17g}", check,
    ]  # fmt: skip
    return " ".join([*map(str, fields), *(f"{i}:{text(flat[i])}" for i in sorted(indices))]) + "\n"


def opencv_frameworks(cv2):
    """Those that need OpenCV and whose bytes are the same with OpenCV 4 and 5."""

    def ultralytics(pixels, case):
        box = placement.compiled("ultralytics-8.4.190", "ultralytics/data/augment.py", "LetterBox", cv2=cv2).LetterBox
        return chw(box(case.inp[::-1], auto=False)(image=pixels[:, :, ::-1].copy())[:, :, ::-1])

    def yolov5(pixels, case):
        letterbox = placement.compiled("yolov5", "yolov5/utils/augmentations.py", "letterbox", cv2=cv2).letterbox
        return chw(letterbox(pixels[:, :, ::-1].copy(), case.inp[::-1], auto=False)[0][:, :, ::-1])

    def megvii_yolox(pixels, case):
        module = placement.compiled("ddddocr", "ddddocr/core/detection_engine.py", "DetectionEngine.preproc", cv2=cv2)
        return module.preproc(None, pixels, case.inp[::-1])[0].astype(np.uint8)

    def nudenet(pixels, case):
        module = placement.compiled("nudenet", "nudenet/nudenet.py", "_read_image", cv2=cv2, _io=__import__("_io"))
        return np.rint(module._read_image(pixels, case.inp[0])[0][0] * 255).astype(np.uint8)

    def mmdet(pixels, case):
        module = placement.compiled("mmcv-lite", "mmcv/image/geometric.py", "_scale_size", "rescale_size")
        size = module.rescale_size(pixels.shape[1::-1], case.inp)
        canvas = np.full((*case.inp[::-1], 3), case.pad, np.uint8)
        canvas[: size[1], : size[0]] = cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)
        return chw(canvas)

    def damo_yolo(pixels, case):
        h, w = pixels.shape[:2]
        ratio = min(case.inp[0] / w, case.inp[1] / h)
        size = int(w * ratio), int(h * ratio)
        canvas = np.zeros((*case.inp[::-1], 3), np.uint8)
        canvas[: size[1], : size[0]] = cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)
        return chw(canvas)

    def centerface(pixels, _case):
        w, h = (int(np.ceil(side / 32) * 32) for side in pixels.shape[1::-1])
        blob = cv2.dnn.blobFromImage(pixels[:, :, ::-1].copy(), 1.0, (w, h), (0, 0, 0), swapRB=True, crop=False)
        return blob[0].astype(np.uint8)

    def stretch(pixels, case):
        return chw(cv2.resize(pixels, case.inp, interpolation=cv2.INTER_LINEAR))

    def paddle(pixels, case):
        h, w = pixels.shape[:2]
        fx, fy = case.inp[0] / float(w), case.inp[1] / float(h)
        return chw(cv2.resize(pixels, None, None, fx=fx, fy=fy, interpolation=cv2.INTER_CUBIC))

    def caffe(pixels, _case):
        return chw(cv2.resize(pixels, (256, 256), interpolation=cv2.INTER_LINEAR)[16:240, 16:240])

    byte = 1 / 255
    small = [(96, 96), (128, 128), (160, 96), (96, 128)]
    for sizes, names in ((SIZES, ("ultralytics",)), (MODERATE, ("yolov5",))):
        for inp in [*small, (320, 320), (640, 640)]:
            for name in names:
                function = ultralytics if name == "ultralytics" else yolov5
                yield Case(name, function, inp, scale=byte, pad=114), sizes, 4 if inp in small else 1
    for inp in [*small, (416, 416)]:
        yield Case("megvii-yolox", megvii_yolox, inp, order="bgr", pad=114), MODERATE, 4 if inp in small else 2
    for inp in [(96, 96), (320, 320)]:
        yield Case("nudenet", nudenet, inp, order="bgr", scale=byte), SIZES, 8 if inp[0] < 320 else 3
    for inp in [(96, 96), (128, 128)]:
        yield Case("mmdet", mmdet, inp, order="bgr", pad=114), MODERATE, 6
        yield Case("damo-yolo", damo_yolo, inp), MODERATE, 4
        yield Case("paddle", paddle, inp, scale=byte, mean=IMAGENET[0], std=IMAGENET[1]), SIZES, 5
    yield Case("centerface", centerface), [size for size in SIZES if max(size) <= 352], 8
    yield Case("ultraface", stretch, (320, 240), mean=(127, 127, 127), std=(128, 128, 128)), SIZES, 5
    yield Case("caffe", caffe, order="bgr", mean=(104, 117, 123)), SIZES, 5


def opencv_samplers(cv2):
    """OpenCV's own resizing; the same bytes with OpenCV 4 and 5."""

    def by_size(code):
        return lambda pixels, case: chw(cv2.resize(pixels, case.inp, interpolation=code))

    def by_factor(pixels, case):
        return chw(cv2.resize(pixels, None, fx=case.parameters[0], fy=case.parameters[1], interpolation=cv2.INTER_LINEAR))

    def plain_cubic(pixels, case):
        """Without Intel's library, which PyPI's packages for x86-64 use for this alone: OpenCV's own, in fixed point."""
        cv2.ipp.setUseIPP(False)
        try:
            return cubic(pixels, case)
        finally:
            cv2.ipp.setUseIPP(True)

    linear, area, cubic = (by_size(code) for code in (cv2.INTER_LINEAR, cv2.INTER_AREA, cv2.INTER_CUBIC))
    for inp in [(1, 1), (7, 5), (32, 24), (61, 40), (96, 96), (160, 120), (320, 240)]:
        yield Case("cv2-linear", linear, inp), SIZES, 4
        yield Case("cv2-area", area, inp), SIZES, 6
        yield Case("cv2-cubic", cubic, inp), SIZES, 4
        yield Case("cv2-cubic-plain", plain_cubic, inp), SIZES, 2
    # Whole factors: means of blocks. Two is what INTER_LINEAR takes INTER_AREA for.
    for size, inp in [
        ((64, 48), (32, 24)), ((320, 240), (160, 120)), ((640, 480), (160, 120)), ((300, 301), (100, 43)), ((352, 288), (88, 96)),
        ((1920, 1080), (640, 360)), ((224, 224), (32, 28)), ((100, 75), (50, 75)), ((160, 96), (160, 48)), ((64, 48), (128, 96)),
    ]:  # fmt: skip
        for name, function in (("cv2-linear", linear), ("cv2-area", area), ("cv2-cubic", cubic)):
            yield Case(name, function, inp), [size], 1
    for factors in [(0.37, 0.37), (0.5, 0.5), (0.3333, 0.3333), (1.7, 1.7), (0.61, 0.83), (2.0, 1.25), (0.9, 0.9)]:
        yield Case("cv2-linear-factor", by_factor, parameters=factors), [size for size in MODERATE if max(size) <= 720], 3


def opencv_warps(cv2):
    """Warps; OpenCV 4's are in fixed point (1/32 of a pixel), OpenCV 5's in float32."""
    version = "cv4" if cv2.__version__.startswith("4.") else "cv5"
    suffix = "" if version == "cv4" else "-cv5"

    def affine(pixels, case):
        matrix = np.array(case.parameters).reshape(2, 3)
        return chw(cv2.warpAffine(pixels, matrix, case.inp, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT))

    def perspective(pixels, case):
        matrix = np.array(case.parameters).reshape(3, 3)
        return chw(cv2.warpPerspective(pixels, matrix, case.inp, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT))

    def nanodet(keep_ratio):
        def run(pixels, case):
            """Source: RangiLyu/nanodet at be9b4a9, nanodet/data/transform/warp.py."""
            (h, w), (iw, ih) = pixels.shape[:2], case.inp
            if keep_ratio:
                ratio = ih / h if w / h < iw / ih else iw / w
                by = np.array([[ratio, 0, 0.5 * iw - ratio * w / 2], [0, ratio, 0.5 * ih - ratio * h / 2], [0, 0, 1]])
            else:
                by = np.diag([iw / w, ih / h, 1.0])
            return chw(cv2.warpPerspective(pixels, by, dsize=case.inp))

        return run

    def centernet(pixels, case):
        """Source: xingyizhou/CenterNet at 4c50fd3, src/lib/utils/image.py, get_affine_transform without rotation."""
        (h, w), (iw, ih) = pixels.shape[:2], case.inp
        centre, side = np.array([w / 2.0, h / 2.0], np.float32), np.float32(max(h, w))
        middle = np.array([iw * 0.5, ih * 0.5], np.float32)
        source = np.array([centre, centre + [0, side * -0.5], centre + [side * -0.5, side * -0.5]], np.float32)
        target = np.array([middle, middle + [0, iw * -0.5], middle + [iw * -0.5, iw * -0.5]], np.float32)
        return chw(cv2.warpAffine(pixels, cv2.getAffineTransform(source, target), case.inp, flags=cv2.INTER_LINEAR))

    def mediapipe(pixels, case):
        """Source: google-ai-edge/mediapipe at 85c0cdc, image_to_tensor_utils.cc and image_to_tensor_converter_opencv.cc.

        With OpenCV 4 the bytes are those of ImageToTensorCalculator in PyPI's mediapipe 0.10.14.
        """
        (h, w), (iw, ih) = pixels.shape[:2], case.inp
        one, w, h = np.float32(1), np.float32(w), np.float32(h)
        aspect = np.float32(ih) / np.float32(iw)
        roi = (w, w * aspect) if aspect > h / w else (h / aspect, h)
        x, y, half_w, half_h = w * one / 2, h * one / 2, roi[0] * one / 2, roi[1] * one / 2
        corners = np.array([[x - half_w, y + half_h], [x - half_w, y - half_h], [x + half_w, y - half_h], [x + half_w, y + half_h]])
        target = np.array([[0, ih], [0, 0], [iw, 0], [iw, ih]])
        matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), target.astype(np.float32))
        return chw(cv2.warpPerspective(pixels, matrix, case.inp, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT))

    for inp in [(96, 96), (128, 96), (160, 96), (416, 416)]:
        count = 5 if inp[0] < 416 else 2
        mean, std = (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)
        yield Case(f"nanodet{suffix}", nanodet(True), inp, order="bgr", mean=mean, std=std), MODERATE, count
        yield Case(f"nanodet-plus{suffix}", nanodet(False), inp, order="bgr", mean=mean, std=std), MODERATE, count - 1
    for inp in [(96, 96), (128, 128), (512, 512)]:
        mean, std = (0.408, 0.447, 0.470), (0.289, 0.274, 0.278)
        count = 5 if inp[0] < 512 else 2
        yield Case(f"centernet{suffix}", centernet, inp, order="bgr", scale=1 / 255, mean=mean, std=std), MODERATE, count
    for inp in [(128, 128), (192, 192), (128, 96)]:
        yield Case(f"mediapipe{suffix}", mediapipe, inp, scale=1 / 127.5, mean=(1, 1, 1)), SIZES, 5
    for matrix in [
        (0.37, 0, 3.3, 0, 0.37, 2.2), (1, 0, 0.5, 0, 1, 0.25), (1.9, 0, -20.125, 0, 1.3, 4.75), (0.25, 0, 0, 0, 0.25, 0),
        (0.5, 0, -0.25, 0, 0.5, -0.25), (0.8, 0.1, 5, -0.1, 0.8, 12),
    ]:  # fmt: skip
        sizes = [size for size in MODERATE if max(size) <= 360]
        yield Case(f"{version}-warp-affine", affine, (96, 80), parameters=matrix), sizes, 3
        yield Case(f"{version}-warp-perspective", perspective, (96, 80), parameters=(*matrix, 0, 0, 1)), sizes, 3


def torch_frameworks():
    import timm.data
    import torch
    import torchvision.transforms.functional as functional
    import torchvision.transforms.v2.functional as functional_v2
    from PIL import Image
    from torchvision.models.detection.transform import GeneralizedRCNNTransform
    from torchvision.transforms._presets import ImageClassification
    from transformers import DetrImageProcessor, RTDetrImageProcessor
    from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil

    bilinear, bicubic = functional.InterpolationMode.BILINEAR, functional.InterpolationMode.BICUBIC
    tensor_of = lambda pixels: torch.from_numpy(chw(pixels))
    bytes_of = lambda tensor: np.rint(np.asarray(tensor, np.float64) * 255).astype(np.uint8)

    def pillow(code):
        return lambda pixels, case: chw(Image.fromarray(pixels).resize(case.inp, code))

    def interpolated(mode, antialias):
        def run(pixels, case):
            return torch.nn.functional.interpolate(
                tensor_of(pixels)[None].float(), size=case.inp[::-1], mode=mode, antialias=antialias, align_corners=False
            )[0].numpy()

        return run

    def of_bytes(module, mode, antialias):
        """The first version computes in float32 and rounds once, the second in bytes by Pillow's method."""

        def run(pixels, case):
            return module.resize(tensor_of(pixels), case.inp[::-1], interpolation=mode, antialias=antialias).numpy()

        return run

    def classification(resize, mode, tensor):
        def run(pixels, case):
            preset = ImageClassification(
                crop_size=case.inp[0], resize_size=resize, interpolation=mode, mean=(0, 0, 0), std=(1, 1, 1)
            )
            return bytes_of(preset(tensor_of(pixels) if tensor else Image.fromarray(pixels)))

        return run

    def ultralytics_classify(pixels, case):
        file, zero, one = "ultralytics/data/augment.py", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
        more = {"torch": torch, "DEFAULT_MEAN": zero, "DEFAULT_STD": one}
        transform = placement.compiled("ultralytics-8.4.190", file, "classify_transforms", **more).classify_transforms
        return bytes_of(transform(case.inp[0])(Image.fromarray(pixels)))

    def by_timm(fraction, mode, crop_mode="center"):
        def run(pixels, case):
            transform = timm.data.create_transform(
                input_size=(3, *case.inp[::-1]), interpolation=mode, crop_pct=fraction, crop_mode=crop_mode, normalize=False,
            )  # fmt: skip
            return np.asarray(transform(Image.fromarray(pixels))).astype(np.uint8)

        return run

    def detection(least, most, mean, std, **more):
        def run(pixels, _case):
            transform = GeneralizedRCNNTransform(least, most, list(mean), list(std), **more).eval()
            return transform([functional.to_tensor(Image.fromarray(pixels))])[0].tensors[0].numpy()

        return run

    def hugging_face(processor, size, pillow=False):
        instance = processor(size=size, do_rescale=False, do_normalize=False, do_pad=False)

        def run(pixels, _case):
            given = Image.fromarray(pixels) if pillow else tensor_of(pixels)
            return np.asarray(instance(given, return_tensors="pt")["pixel_values"][0]).astype(np.uint8)

        return run

    def rt_detr(pixels, case):
        return chw(functional.resize(Image.fromarray(pixels), case.inp[::-1]))

    def rf_detr(antialias):
        """Source: rfdetr 1.11.2, rfdetr/detr.py, predict; up to 1.8.0 with antialias."""

        def run(pixels, case):
            tensor = functional.resize(functional.to_tensor(Image.fromarray(pixels)), case.inp[::-1], antialias=antialias)
            return functional.normalize(tensor, *IMAGENET).numpy()

        return run

    def d_fine_letterbox(pixels, case):
        """Source: Peterande/D-FINE at a1f73a8, tools/inference/onnx_inf.py."""
        (h, w), size = pixels.shape[:2], case.inp[0]
        ratio = min(size / w, size / h)
        new = int(w * ratio), int(h * ratio)
        canvas = Image.new("RGB", (size, size))
        canvas.paste(Image.fromarray(pixels).resize(new, Image.BILINEAR), ((size - new[0]) // 2, (size - new[1]) // 2))
        return chw(canvas)

    normal = {"scale": 1 / 255, "mean": IMAGENET[0], "std": IMAGENET[1]}
    for inp in [(1, 1), (7, 5), (32, 24), (61, 40), (96, 96), (160, 120), (320, 240)]:
        yield Case("pillow-bilinear", pillow(Image.BILINEAR), inp), SIZES, 5
        yield Case("pillow-bicubic", pillow(Image.BICUBIC), inp), SIZES, 5
        yield Case("pillow-nearest", pillow(Image.NEAREST), inp), SIZES, 2
        for mode in ("bilinear", "bicubic"):
            yield Case(f"torch-{mode}", interpolated(mode, False), inp), SIZES, 3
            yield Case(f"torch-{mode}-antialias", interpolated(mode, True), inp), SIZES, 4
        for mode in (bilinear, bicubic):
            for name, module in (("torchvision-u8", functional), ("torchvision-v2-u8", functional_v2)):
                yield Case(f"{name}-{mode.value}", of_bytes(module, mode, False), inp), SIZES, 1
                yield Case(f"{name}-{mode.value}-antialias", of_bytes(module, mode, True), inp), SIZES, 2
    for resize, crop in ((256, 224), (232, 224), (64, 56)):
        case = {"inp": (crop, crop), "parameters": (resize,), **normal}
        yield Case("torchvision-classification", classification(resize, bilinear, False), **case), MODERATE, 4
        yield Case("torchvision-classification-bicubic", classification(resize, bicubic, False), **case), MODERATE, 2
        yield Case("torchvision-classification-tensor", classification(resize, bilinear, True), **case), MODERATE, 3
    for crop in (64, 224):
        yield Case("ultralytics-classify", ultralytics_classify, (crop, crop), scale=1 / 255, parameters=(crop,)), MODERATE, 4
    for fraction, crop in ((0.875, 224), (0.9, 224), (0.95, 96), (1.0, 64)):
        case = {"inp": (crop, crop), "parameters": (fraction,), **normal}
        yield Case("timm", by_timm(fraction, "bicubic"), **case), MODERATE, 3
        yield Case("timm-bilinear", by_timm(fraction, "bilinear"), **case), MODERATE, 2
        yield Case("timm-squash", by_timm(fraction, "bicubic", "squash"), **case), MODERATE, 2
    for sides in ((96, 160), (128, 213)):
        case = {"parameters": sides, "scale": 1 / 255, "mean": IMAGENET[0], "std": IMAGENET[1]}
        yield Case("torchvision-detection", detection(*sides, *IMAGENET), **case), MODERATE, 5
        size = {"shortest_edge": sides[0], "longest_edge": sides[1]}
        yield Case("detr", hugging_face(DetrImageProcessor, size), **case), MODERATE, 5
        yield Case("detr-pillow", hugging_face(DetrImageProcessorPil, size, True), **case), MODERATE, 5
    mean, std = (0.48235, 0.45882, 0.40784), (1 / 255,) * 3
    ssd = detection(300, 300, mean, std, size_divisible=1, fixed_size=(300, 300))
    yield Case("torchvision-ssd", ssd, (300, 300), scale=1 / 255, mean=mean, std=std), SIZES, 5
    for inp in ((96, 96), (160, 160), (640, 640)):
        count = 4 if inp[0] < 640 else 1
        size = {"height": inp[1], "width": inp[0]}
        yield Case("rt-detr-transformers", hugging_face(RTDetrImageProcessor, size), inp, scale=1 / 255), SIZES, count
        yield Case("rt-detr", rt_detr, inp, scale=1 / 255), SIZES, count
        yield Case("rf-detr", rf_detr(False), inp, **normal), SIZES, count
        yield Case("rf-detr-1.8.0", rf_detr(True), inp, **normal), SIZES, count
        yield Case("d-fine-letterbox", d_fine_letterbox, inp, scale=1 / 255), MODERATE, count


def tensorflow_samplers():
    import tensorflow as tf

    def resized(function):
        return lambda pixels, case: chw(function(pixels[None], case.inp[::-1]).numpy()[0])

    v1 = tf.compat.v1.image.resize_bilinear
    samplers = {
        "tf-bilinear": lambda pixels, size: tf.image.resize(pixels, size),
        "tf-bilinear-antialias": lambda pixels, size: tf.image.resize(pixels, size, antialias=True),
        "tf-bicubic": lambda pixels, size: tf.image.resize(pixels, size, method="bicubic"),
        "tf-bicubic-antialias": lambda pixels, size: tf.image.resize(pixels, size, method="bicubic", antialias=True),
        "tf-legacy": lambda pixels, size: v1(pixels, size),
        "tf-legacy-align-corners": lambda pixels, size: v1(pixels, size, align_corners=True),
    }
    for name, function in samplers.items():
        for inp in [(1, 1), (7, 5), (61, 40), (96, 96), (160, 120), (300, 300)]:
            yield Case(name, resized(function), inp), SIZES, 4


def cases_of(tool):
    if tool.startswith("opencv"):
        import cv2

        cv2.setNumThreads(1)
        if not cv2.__version__.startswith(tool[-1]):
            sys.exit(f"{tool} is not OpenCV {cv2.__version__}")
        if tool == "opencv5":
            return itertools.chain(opencv_frameworks(cv2), opencv_samplers(cv2), opencv_warps(cv2))
        return opencv_warps(cv2)
    return torch_frameworks() if tool == "torch" else tensorflow_samplers()


def lines_of(tool):
    """Every case on `count` of its sizes. A case's pictures do not depend on the other cases."""
    for case, sizes, count in cases_of(tool):
        draw = random.Random(f"{case.name} {case.inp} {case.parameters}")
        for size in draw.sample(sizes, count):
            seed = draw.randrange(1, 3000)
            # A picture that the framework refuses (an empty result), or that torch fails on (1x1), has no line.
            try:
                yield line(case, KINDS[seed % 3], size, seed)
            except (ValueError, RuntimeError) as error:
                print(f"{case.name} {size}: {error}")


def main():
    placement.PACKAGES = pathlib.Path(sys.argv[1]).resolve()
    for tool in sys.argv[2:]:
        made = list(lines_of(tool))
        names = {text.split(" ", 1)[0] for text in made}
        old = GOLDEN.read_text(encoding="ascii").splitlines(True) if GOLDEN.exists() else []
        kept = [text for text in old if text.split(" ", 1)[0] not in names]
        # By name, cases of a name in the order of their making.
        GOLDEN.write_text("".join(sorted(kept + made, key=lambda text: text.split(" ", 1)[0])), encoding="ascii")
        print(f"{tool}: {len(made)} cases of {len(names)} names")


if __name__ == "__main__":
    main()
