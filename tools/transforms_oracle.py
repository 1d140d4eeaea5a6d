#!/usr/bin/env python3
"""What torchvision makes of small images: crates/neurona/tests/oracle/transforms.safetensors.

    python3 -m venv V && V/bin/pip install torch torchvision numpy pillow safetensors
    V/bin/python tools/transforms_oracle.py

The form is that of tools/oracle.py. The inputs stand once, in the case `images`, and a case names the one it takes;
`out0` is `[h, w, c]` bytes (`[c, h, w]` floats for `to_tensor` and `normalize`). `tol` counts grey levels."""

import json
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save_file
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

TARGET = Path(__file__).resolve().parent.parent / "crates/neurona/tests/oracle/transforms.safetensors"


def picture(height, width, channels, seed):
    """Slopes, waves and some noise: every kind of neighbourhood in a few pixels."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    waves = 90 * np.sin(0.37 * x + c + seed) * np.cos(0.23 * y - c) + 3 * x - 2 * y + 110
    noise = np.random.default_rng(seed).normal(0, 12, waves.shape)
    return np.clip(waves + noise, 0, 255).astype(np.uint8)


IMAGES = {
    "colour": picture(19, 26, 3, 1),
    "grey": picture(18, 13, 1, 2),
    "square": picture(16, 16, 3, 3),
    "large": picture(60, 77, 3, 4),
    "dot": picture(1, 1, 3, 5),
    "line": picture(1, 9, 1, 6),
    "column": picture(7, 1, 3, 7),
    "flat": np.full((5, 6, 3), 77, np.uint8),
    "narrow": (picture(12, 20, 3, 8) // 4 + 60).astype(np.uint8),
}
tensors = {f"images/{name}": array for name, array in IMAGES.items()}
about = {"images": {"op": "images", "attrs": {}, "tol": 0}}


def pil(name):
    array = IMAGES[name]
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def case(op, image, make, tol=0, **attrs):
    made = make(pil(image))
    if not isinstance(made, np.ndarray):
        made = np.asarray(made)
        made = made[:, :, None] if made.ndim == 2 else made
    name = f"{op}_{sum(a['op'] == op for a in about.values()):02}"
    tensors[f"{name}/out0"] = np.ascontiguousarray(made)
    about[name] = {"op": op, "attrs": {"image": image, **attrs}, "tol": tol}


MODES = {m.value: m for m in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)}


def windows():
    for image, window in [("colour", (3, 5, 7, 9)), ("grey", (-2, -3, 25, 11)), ("dot", (0, 0, 3, 2)), ("line", (-4, 3, 3, 3))]:
        top, left, height, width = window
        case("crop", image, lambda i: F.crop(i, *window), top=top, left=left, height=height, width=width)
    for mode in ("constant", "edge", "reflect", "symmetric"):
        for image, border in [("colour", [3, 1, 2, 4]), ("grey", [0, 5, 6, 0]), ("line", [12, 2, 20, 1]), ("dot", [1, 2, 3, 4])]:
            fill = 9 if mode == "constant" else 0
            case("pad", image, lambda i: F.pad(i, border, fill, mode), padding=border, fill=fill, mode=mode)
    for image, size in [("colour", [8, 9]), ("colour", [30, 7]), ("grey", [5, 20]), ("dot", [4, 3]), ("square", [15, 13]), ("square", [13, 11])]:
        case("center_crop", image, lambda i: F.center_crop(i, size), size=size)
    for op, change in [("hflip", F.hflip), ("vflip", F.vflip)]:
        for image in ("colour", "grey", "line", "column"):
            case(op, image, change)


def sizes():
    for mode in MODES:
        for image, size in [("colour", [11, 13]), ("colour", [30, 40]), ("colour", [7, 41]), ("grey", [9, 25]), ("large", [16, 16]),
                            ("large", [5, 3]), ("large", [59, 20]), ("large", [20, 70]), ("dot", [4, 5]), ("line", [3, 4]), ("column", [3, 3])]:
            case("resize", image, lambda i: F.resize(i, size, MODES[mode]), size=size, mode=mode)
        for image, part in [("large", (7, 11, 33, 40)), ("large", (0, 0, 60, 77)), ("large", (20, 30, 10, 12)), ("grey", (3, 2, 10, 8))]:
            case("resized_crop", image, lambda i: F.resized_crop(i, *part, [14, 12], MODES[mode]), part=part, size=[14, 12], mode=mode)
    for image, size, most in [("colour", 12, None), ("grey", 12, None), ("large", 20, 22), ("line", 4, None), ("square", 16, None), ("large", 60, None)]:
        case("resize_side", image, lambda i: F.resize(i, size, max_size=most), size=size, max_size=most)


def turns():
    for mode in ("nearest", "bilinear"):
        for image, angle, expand, center, fill in [
            ("colour", 30.0, False, None, 0), ("colour", -77.5, False, None, 50), ("grey", 13.0, True, None, 9),
            ("colour", 90.0, False, None, 0), ("colour", 90.0, True, None, 0), ("square", 270.0, False, None, 0),
            ("grey", 180.0, False, None, 0), ("square", 360.0, False, None, 0), ("colour", 45.0, False, [3.0, 4.0], 7),
            ("square", 90.0, False, [8.0, 8.0], 7), ("dot", 20.0, False, None, 0), ("line", 61.0, True, None, 3), ("colour", 200.0, True, None, 1)]:
            case("rotate", image, lambda i: F.rotate(i, angle, MODES[mode], expand, center, fill), angle=angle, mode=mode, expand=expand, center=center, fill=fill)
        for image, angle, translate, scale, shear, center in [
            ("colour", 0.0, [3, -2], 1.0, [0.0, 0.0], None), ("colour", 25.0, [0, 0], 1.0, [0.0, 0.0], None), ("colour", -10.0, [2, 1], 0.8, [12.0, 0.0], None),
            ("grey", 5.0, [-1, 4], 1.3, [-8.0, 15.0], None), ("square", 0.0, [0, 0], 1.7, [0.0, 0.0], None), ("square", 0.0, [0, 0], 1.0, [math.degrees(math.atan(0.3)), 0.0], [0, 0]),
            ("square", 0.0, [0, 0], 1.0, [0.0, math.degrees(math.atan(-0.99))], [0, 0]), ("dot", 33.0, [0, 0], 1.1, [3.0, 0.0], None)]:
            case("affine", image, lambda i: F.affine(i, angle, translate, scale, shear, MODES[mode], 5, center),
                 angle=angle, translate=translate, scale=scale, shear=shear, mode=mode, center=center, fill=5)


def colours():
    for image in ("colour", "grey", "dot", "narrow"):
        for factor in (0.0, 0.35, 1.0, 1.9):
            case("adjust_brightness", image, lambda i: F.adjust_brightness(i, factor), factor=factor)
            case("adjust_contrast", image, lambda i: F.adjust_contrast(i, factor), factor=factor)
            case("adjust_saturation", image, lambda i: F.adjust_saturation(i, factor), factor=factor)
            case("adjust_sharpness", image, lambda i: F.adjust_sharpness(i, factor), factor=factor)
        for factor in (-0.5, -0.13, 0.0, 0.27, 0.5):
            case("adjust_hue", image, lambda i: F.adjust_hue(i, factor), factor=factor)
    for image in ("line", "column"):
        case("adjust_sharpness", image, lambda i: F.adjust_sharpness(i, 0.4), factor=0.4)
    for image in ("colour", "grey", "narrow"):
        for bits in (1, 2, 4, 8):
            case("posterize", image, lambda i: F.posterize(i, bits), bits=bits)
        for threshold in (0.0, 127.5, 255.0):
            case("solarize", image, lambda i: F.solarize(i, threshold), threshold=threshold)
    for image in IMAGES:
        case("autocontrast", image, F.autocontrast)
        case("equalize", image, F.equalize)
        case("invert", image, F.invert)
        for channels in (1, 3):
            case("grayscale", image, lambda i: F.rgb_to_grayscale(i, channels) if i.mode == "RGB" else T.Grayscale(channels)(i), channels=channels)
    for image, size, sigma in [("colour", 3, 0.8), ("grey", 5, 2.0), ("square", 9, 1.3)]:
        case("gaussian_blur", image, lambda i: F.gaussian_blur(i, size, sigma), tol=1, kernel_size=size, sigma=sigma)


def numbers():
    for image in ("colour", "grey"):
        case("to_tensor", image, lambda i: F.to_tensor(i).numpy())
        mean, std = ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]) if image == "colour" else ([0.2860], [0.3530])
        case("normalize", image, lambda i: F.normalize(F.to_tensor(i), mean, std).numpy(), mean=mean, std=std)


def magnitudes():
    """The tables of the augmentations: one row an op, one column a bin; ops without a magnitude have zeros."""
    wide, rand = T.TrivialAugmentWide(), T.RandAugment()
    spaces = {"wide_31": wide._augmentation_space(31), "wide_10": wide._augmentation_space(10), "rand_31": rand._augmentation_space(31, (24, 40))}
    for name, space in spaces.items():
        bins = int(name[-2:])
        rows = [m.float() if m.ndim else torch.zeros(bins) for m, _ in space.values()]
        tensors[f"{name}/out0"] = torch.stack(rows).numpy()
        about[name] = {"op": "magnitudes", "attrs": {"ops": list(space), "signed": [s for _, s in space.values()], "height": 24, "width": 40}, "tol": 0}


for group in (windows, sizes, turns, colours, numbers, magnitudes):
    group()
save_file(tensors, TARGET, {name: json.dumps(a) for name, a in sorted(about.items())})
print(f"{TARGET.name}: {len(about)} cases, {TARGET.stat().st_size} bytes")
