"""Layers: PyTorch's defaults and initialisers; attributes only, no tensors.

"parameters"/"buffers": for each name its shape, dtype and how it begins:
{"init": "uniform", "bound": b, "std": b / sqrt(3)} means uniform in [-b, b);
{"init": "constant", "value": v}. "defaults" are the constructor's defaults.
Bounds come from the formula 1 / sqrt(fan_in) and are confirmed here on PyTorch's own layers."""

import inspect
import math

import torch
from torch import nn

from .vectors import NAMES, Group

WANTED = {
    "conv2d_3_6_5": (nn.Conv2d, [3, 6, 5], 3 * 5 * 5),
    "conv2d_3_64_3_no_bias": (nn.Conv2d, [3, 64, 3, 1, 1, 1, 1, False], 3 * 3 * 3),
    "conv2d_8_16_3_groups_4": (nn.Conv2d, [8, 16, 3, 1, 1, 1, 4], 2 * 3 * 3),
    "linear_400_120": (nn.Linear, [400, 120], 400),
    "linear_2_8": (nn.Linear, [2, 8], 2),
    "linear_512_10_no_bias": (nn.Linear, [512, 10, False], 512),
    "batch_norm1d_5": (nn.BatchNorm1d, [5], None),
    "batch_norm2d_16": (nn.BatchNorm2d, [16], None),
    "batch_norm2d_16_no_affine": (nn.BatchNorm2d, [16, 1e-5, 0.1, False], None),
    "max_pool2d_2": (nn.MaxPool2d, [2], None),
    "dropout": (nn.Dropout, [], None),
}
HIDDEN = {"device", "dtype", "padding_mode", "return_indices", "inplace"}


def add(group: Group):
    for case, (maker, args, fan_in) in WANTED.items():
        torch.manual_seed(0)
        made = [maker(*args) for _ in range(200 if fan_in else 1)]
        signature = inspect.signature(maker.__init__).parameters
        names = [n for n in signature if n not in HIDDEN | {"self"}]
        attrs = {
            "layer": maker.__name__,
            "arguments": dict(zip(names, args)),
            "defaults": {n: signature[n].default for n in names if signature[n].default is not inspect.Parameter.empty},
            "parameters": {
                n: {"shape": list(p.shape), "dtype": NAMES[p.dtype]}
                | start(case, n, [dict(m.named_parameters())[n] for m in made], fan_in)
                for n, p in made[0].named_parameters()
            },
            "buffers": {
                n: {"shape": list(b.shape), "dtype": NAMES[b.dtype], "init": "constant", "value": constant(b)}
                for n, b in made[0].named_buffers()
            },
        }
        group.describe(case, op="init", attrs=attrs, dtype="f32", tol=0.05, inputs=[], outputs=[])


def constant(tensor):
    assert tensor.min() == tensor.max()
    return tensor.reshape(-1)[0].item()


def start(case, name, samples, fan_in):
    samples = torch.stack([s.detach() for s in samples]).double()
    if fan_in is None:
        return {"init": "constant", "value": constant(samples)}
    bound = 1 / math.sqrt(fan_in)
    std = bound / math.sqrt(3)
    assert samples.abs().max() <= bound * (1 + 1e-6) and samples.abs().max() > 0.98 * bound, (case, name)
    assert abs(samples.std().item() - std) < 0.03 * std and abs(samples.mean().item()) < 0.05 * std, (case, name)
    return {"init": "uniform", "fan_in": fan_in, "bound": bound, "std": std}
