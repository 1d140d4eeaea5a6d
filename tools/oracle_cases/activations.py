"""Activations with and without options."""

import torch.nn.functional as F

from .vectors import Group, bf16, f16, f64, lit, u

INF, NAN = float("inf"), float("nan")
SHAPES = {"matrix": (5, 7), "size1": (1, 1), "odd": (3, 1, 11), "zero_dim": (), "empty": (0, 3), "images": (2, 3, 4, 5)}
# name -> (function of x and options, sets of options, places where it bends)
FUNCTIONS = {
    "leaky_relu": (lambda x, slope: F.leaky_relu(x, slope), [{"slope": 0.01}, {"slope": 0.3}], [0.0]),
    "elu": (lambda x, alpha: F.elu(x, alpha), [{"alpha": 1.0}, {"alpha": 0.5}], [0.0]),
    "gelu": (
        lambda x, approximate: F.gelu(x, approximate=approximate),
        [{"approximate": "none"}, {"approximate": "tanh"}],
        [],
    ),
    "silu": (lambda x: F.silu(x), [{}], []),
    "hardswish": (lambda x: F.hardswish(x), [{}], [-3.0, 0.0, 3.0]),
    "hardsigmoid": (lambda x: F.hardsigmoid(x), [{}], [-3.0, 0.0, 3.0]),
    "relu6": (lambda x: F.relu6(x), [{}], [0.0, 6.0]),
    "softplus": (
        lambda x, beta, threshold: F.softplus(x, beta, threshold),
        [{"beta": 1.0, "threshold": 20.0}, {"beta": 2.5, "threshold": 4.0}],
        [],
    ),
}


def add(group: Group):
    for op, (fn, options, bends) in FUNCTIONS.items():
        for k, option in enumerate(options):
            mark = f"_{k}" if k else ""

            def case(suffix, x, **more):
                group.case(op, suffix + mark, lambda x: fn(x, **option), {"x": x}, option, **more)

            for suffix, shape in SHAPES.items():
                case(suffix, u(*shape, lo=-5, hi=5))
            # PyTorch's gradient of hardsigmoid has 1/6 in single precision.
            case("f64", u(4, 5, lo=-5, hi=5, dtype=f64), tol=5e-8 if op == "hardsigmoid" else 1e-12)
            case("f16", u(3, 4, lo=-5, hi=5, dtype=f16), tol=4e-3)
            case("bf16", u(3, 4, lo=-5, hi=5, dtype=bf16), tol=3.2e-2)
            case("far", lit([-80.0, -30.0, -12.0, 12.0, 30.0, 80.0]))
            case("near", lit([-1e-4, -1e-7, 0.0, 1e-7, 1e-4]))
            if bends:
                case("bends", lit(bends))
            # −∞ times 0 is not a number in some and 0 in others: not compared.
            case("special", lit([INF, NAN]), diff=[], confirm=False)
