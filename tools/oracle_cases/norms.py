"""Layer and group normalisation. "affine": how many of weight and bias there are (a bias only after a weight)."""

import torch.nn.functional as F

from .vectors import Group, f64, u


def add(group: Group):
    layer_norm(group)
    group_norm(group)


def layer_norm(group):
    def case(suffix, shape, normalized, affine=2, eps=1e-5, lo=-2, hi=2, dtype=None, **more):
        kinds = {"dtype": dtype} if dtype else {}
        inputs = {"x": u(*shape, lo=lo, hi=hi, **kinds)}
        names = {0: [], 1: ["weight"], 2: ["weight", "bias"]}[affine]
        inputs |= {name: u(*normalized, lo=0.5, hi=1.5, **kinds) for name in names}
        run = lambda x, w=None, b=None: F.layer_norm(x, normalized, w, b, eps)
        group.case("layer_norm", suffix, run, inputs, {"shape": list(normalized), "affine": affine, "eps": eps}, **more)

    case("vectors", (4, 7), (7,))
    case("tokens", (2, 5, 8), (8,))
    case("no_bias", (2, 5, 8), (8,), affine=1)
    case("plain", (2, 5, 8), (8,), affine=0)
    case("images", (2, 3, 4, 5), (3, 4, 5))
    case("two_dims", (2, 3, 4, 5), (4, 5), affine=1)
    case("whole", (3, 4), (3, 4))
    case("one_row", (7,), (7,))
    case("one_element", (4, 1), (1,), eps=0.1)
    case("long", (3, 2500), (2500,), tol=2e-5)
    case("no_rows", (0, 5), (5,))
    case("eps", (4, 7), (7,), eps=0.1)
    case("shifted", (4, 16), (16,), lo=99, hi=101, tol=1e-4)
    case("f64", (3, 9), (9,), dtype=f64, tol=1e-12)


def group_norm(group):
    def case(suffix, shape, groups, affine=2, eps=1e-5, dtype=None, **more):
        kinds = {"dtype": dtype} if dtype else {}
        inputs = {"x": u(*shape, **kinds)}
        inputs |= {name: u(shape[1], lo=0.5, hi=1.5, **kinds) for name in (["weight", "bias"] if affine else [])}
        run = lambda x, w=None, b=None: F.group_norm(x, groups, w, b, eps)
        group.case("group_norm", suffix, run, inputs, {"groups": groups, "affine": affine, "eps": eps}, **more)

    case("images", (2, 6, 4, 5), 3)
    case("one_group", (2, 6, 4, 5), 1)
    case("each_channel", (2, 6, 4, 5), 6)
    case("plain", (2, 4, 3, 3), 2, affine=0)
    case("columns", (5, 8), 4)
    case("sequence", (2, 4, 7), 2)
    case("one_image", (1, 4, 1, 3), 2, eps=0.01)
    case("f64", (2, 4, 3, 3), 2, dtype=f64, tol=1e-12)
