"""Muon against a plain NumPy reference, in f64 and in f32: 50 steps with given gradients.

in0 … are the parameters at the start, and as many inputs after them their gradients [50, …]; out0 … are the parameters
after steps 10, 20, 30, 40, 50. attrs: lr, momentum, nesterov, iterations, coefficients, eps, weight_decay (decoupled),
renormalise (every so many steps, 0: never), match_shape (lr times sqrt(max(1, rows / columns)))."""

import zlib

import numpy as np
import torch

from .vectors import DTYPES, Group, agree, f64, uniform

STEPS = 50
DEFAULTS = {
    "lr": 0.02,
    "momentum": 0.95,
    "nesterov": True,
    "iterations": 5,
    "coefficients": [3.4445, -4.7750, 2.0315],
    "eps": 1e-7,
    "weight_decay": 0.0,
    "renormalise": 0,
    "match_shape": False,
}


def product(a, b):
    """Row by column in order: the same bits on every machine, which a BLAS does not promise."""
    return (a[:, :, None] * b[None]).sum(1)


def newton_schulz(g, iterations, coefficients, eps):
    a, b, c = (g.dtype.type(v) for v in coefficients)
    x = g / (np.sqrt(np.sum(g * g)) + g.dtype.type(eps))
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(iterations):
        square = product(x, x.T)
        x = a * x + product(b * square + c * product(square, square), x)
    return x.T if tall else x


def muon(params, grads, attrs):
    """The parameters after every tenth step."""
    params, buffers, seen = [p.copy() for p in params], [np.zeros_like(p) for p in params], []
    for step in range(STEPS):
        for p, m, gs in zip(params, buffers, grads):
            kind, g, rows = p.dtype.type, gs[step], p.shape[0]
            m[...] = kind(attrs["momentum"]) * m + g
            along = g + kind(attrs["momentum"]) * m if attrs["nesterov"] else m
            flat = newton_schulz(along.reshape(rows, -1), attrs["iterations"], attrs["coefficients"], attrs["eps"])
            if attrs["renormalise"] and step % attrs["renormalise"] == 0:
                p *= kind(np.sqrt(rows)) / np.sqrt(np.sum(p * p))
            p *= kind(1 - attrs["lr"] * attrs["weight_decay"])
            scale = np.sqrt(max(1.0, rows / flat.shape[1])) if attrs["match_shape"] else 1.0
            p -= kind(attrs["lr"] * scale) * flat.reshape(p.shape)
        if step % 10 == 9:
            seen.append([p.copy() for p in params])
    return [np.stack(each) for each in zip(*seen)]


def add(group: Group):
    def case(suffix, shapes, **changes):
        attrs = DEFAULTS | changes
        results = {}
        for dtype, tol in (("f64", 1e-9), ("f32", 1e-4)):
            name = f"muon_{suffix}_{dtype}"
            seed = zlib.crc32(suffix.encode()) * 1000
            kind = DTYPES[dtype]
            params = [uniform(seed + i, s).to(kind) for i, s in enumerate(shapes)]
            grads = [uniform(seed + 100 + i, (STEPS, *s)).to(kind) for i, s in enumerate(shapes)]
            outs = muon([p.numpy() for p in params], [g.numpy() for g in grads], attrs)
            results[dtype] = [torch.from_numpy(o) for o in outs]
            for i, tensor in enumerate(params + grads):
                group.put(name, f"in{i}", tensor)
            for i, tensor in enumerate(results[dtype]):
                assert tensor.dtype == kind
                group.put(name, f"out{i}", tensor)
            inputs = [f"{role}{i}" for role in ("parameter", "gradient") for i in range(len(shapes))]
            outputs = [f"parameter{i}" for i in range(len(shapes))]
            group.describe(name, op="muon", attrs=attrs, dtype=dtype, tol=tol, inputs=inputs, outputs=outputs)
        for narrow, wide in zip(results["f32"], results["f64"]):
            far = agree(narrow.to(f64), wide, 1e-4)
            assert far <= 0.5, f"{suffix}: f32 is {far} tolerances from f64"

    case("default", [(4, 6), (6, 4)])
    case("filters", [(5, 2, 3, 3), (3, 3)], nesterov=False, weight_decay=0.1)
    case(
        "record",
        [(6, 3, 3, 3), (8, 4, 1, 1)],
        lr=0.24,
        momentum=0.6,
        iterations=3,
        renormalise=1,
    )
    case(
        "faster",
        [(6, 3, 2, 2)],
        lr=0.205,
        momentum=0.655,
        iterations=3,
        coefficients=[3.4576, -4.7391, 2.0843],
        renormalise=5,
        weight_decay=0.05,
    )
    case("match_shape", [(9, 4), (4, 9)], match_shape=True, weight_decay=0.1, lr=0.05)
