"""Result dtypes. One case, attributes only:

"tensors"      [a, b, a + b] for 1-d tensors of all pairs
"zero_dim"     [a, b, a + b] for a 1-d `a` and a 0-d `b`
"scalars"      [a, "int" | "float" | "bool", a + scalar]
"div"          [a, b, a / b];  "div_scalars" as "scalars"
"sum", "mean", "exp"   [a, result], where mean of an integer is "error" """

import torch

from .vectors import NAMES, Group


def add(group: Group):
    ones = {name: torch.ones(2, dtype=dtype) for dtype, name in NAMES.items()}
    zero_dim = {name: torch.ones((), dtype=dtype) for dtype, name in NAMES.items()}
    scalars = {"int": 2, "float": 2.5, "bool": True}

    def result(fn, *args):
        try:
            return NAMES[fn(*args).dtype]
        except RuntimeError:
            return "error"

    def pairs(fn, left, right):
        return [[a, b, result(fn, x, y)] for a, x in left.items() for b, y in right.items()]

    group.describe(
        "promotion",
        op="promotion",
        dtype="f32",
        tol=0,
        inputs=[],
        outputs=[],
        attrs={
            "tensors": pairs(torch.add, ones, ones),
            "zero_dim": pairs(torch.add, ones, zero_dim),
            "scalars": pairs(torch.add, ones, scalars),
            "div": pairs(torch.div, ones, ones),
            "div_scalars": pairs(torch.div, ones, scalars),
            "sum": [[a, result(torch.sum, x)] for a, x in ones.items()],
            "mean": [[a, result(torch.mean, x)] for a, x in ones.items()],
            "exp": [[a, result(torch.exp, x)] for a, x in ones.items()],
        },
    )
