"""Element-wise ops: arithmetic, activations, comparisons, choice.

Binary ops have attrs {"scalar": null or number, "scalar_left": bool}: with a scalar there is only `in0`,
and the scalar stands on the right, or on the left where "scalar_left" is true."""

import torch

from .vectors import Group, bf16, boolean, f16, f32, f64, ints, lit, u, u8

INF, NAN = float("inf"), float("nan")
ARITHMETIC = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
COMPARE = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}
# Both operands stay away from 0, for division.
SHAPES = {
    "same": ((3, 5), (3, 5)),
    "size1": ((1,), (1,)),
    "row": ((4, 7), (7,)),
    "column": ((4, 7), (4, 1)),
    "both_sides": ((3, 1, 5), (2, 1)),
    "channels": ((2, 3, 2, 3), (1, 3, 1, 1)),
    "zero_dim": ((), (2, 3)),
    "empty": ((0, 3), (3,)),
}


def binary(group: Group, op, fn, suffix, a, b=None, *, scalar=None, left=False, **more):
    attrs = {"scalar": scalar, "scalar_left": left}
    if b is None:
        run = (lambda x: fn(torch.tensor(scalar, dtype=x.dtype), x)) if left else (lambda x: fn(x, scalar))
        group.case(op, suffix, run, {"a": a}, attrs, **more)
    else:
        group.case(op, suffix, fn, {"a": a, "b": b}, attrs, **more)


def add(group: Group):
    arithmetic(group)
    unary(group)
    extremes(group)
    comparisons(group)
    choice(group)


def arithmetic(group):
    for op, fn in ARITHMETIC.items():
        for suffix, (a, b) in SHAPES.items():
            binary(group, op, fn, suffix, u(*a), u(*b, lo=0.5, hi=2.5), tol=1e-6)
        binary(group, op, fn, "f64", u(2, 3, dtype=f64), u(3, lo=-2.5, hi=-0.5, dtype=f64), tol=1e-12)
        binary(group, op, fn, "f16", u(3, 4, dtype=f16), u(4, lo=0.5, hi=2.5, dtype=f16), tol=2e-3)
        binary(group, op, fn, "bf16", u(3, 4, dtype=bf16), u(4, lo=0.5, hi=2.5, dtype=bf16), tol=1.6e-2)
        binary(group, op, fn, "i64", ints(3, 4, lo=-9), ints(4, lo=1), tol=0 if op != "div" else 1e-6)
        binary(group, op, fn, "scalar", u(3, 5), scalar=1.75, tol=1e-6)
        binary(group, op, fn, "scalar_left", u(3, 5, lo=0.5, hi=2.5), scalar=-3.0, left=True, tol=1e-6)
    for op in ("add", "sub", "mul"):
        binary(
            group, op, ARITHMETIC[op], "u8_wraps", lit([0, 1, 7, 200, 255], u8), lit([1, 2, 90, 100, 255], u8), tol=0
        )
    binary(group, "add", torch.add, "mixed_f32_i64", u(2, 3), ints(3, lo=-4, hi=5), tol=1e-6)
    binary(
        group, "mul", torch.mul, "mixed_bool_f32", ints(2, 3, lo=0, hi=2, dtype=boolean), u(2, 3), dtype="f32", tol=0
    )
    binary(group, "div", torch.div, "by_zero", lit([1.0, -1.0, 0.0, 3.0]), lit([0.0, 0.0, 0.0, -0.0]), diff=[], tol=0)


def unary(group):
    simple = {
        "neg": (torch.neg, -2, 2, 0),
        "exp": (torch.exp, -4, 4, 1e-5),
        "log": (torch.log, 0.05, 4, 1e-5),
        "sqrt": (torch.sqrt, 0.05, 4, 1e-5),
        "abs": (torch.abs, -2, 2, 0),
        "relu": (torch.relu, -2, 2, 0),
        "sigmoid": (torch.sigmoid, -6, 6, 1e-5),
        "tanh": (torch.tanh, -4, 4, 1e-5),
    }
    for op, (fn, lo, hi, tol) in simple.items():
        for suffix, shape in {
            "matrix": (5, 7),
            "size1": (1, 1),
            "odd": (3, 1, 11),
            "zero_dim": (),
            "empty": (0, 4),
        }.items():
            group.case(op, suffix, fn, {"x": u(*shape, lo=lo, hi=hi)}, {}, tol=tol)
        group.case(op, "long", fn, {"x": u(131, lo=lo, hi=hi)}, {}, tol=tol)
        group.case(op, "f64", fn, {"x": u(2, 5, lo=lo, hi=hi, dtype=f64)}, {}, tol=min(tol, 1e-12))
    for op in ("neg", "abs"):
        group.case(op, "i64", simple[op][0], {"x": ints(7, lo=-5, hi=5)}, {}, tol=0)
    # At the kinks and the ends of the range.
    group.case("abs", "zero", torch.abs, {"x": lit([-1.0, -0.0, 0.0, 2.0])}, {}, tol=0)
    group.case("relu", "zero", torch.relu, {"x": lit([-1.0, -0.0, 0.0, 1e-38, 2.0])}, {}, tol=0)
    group.case("relu", "nonfinite", torch.relu, {"x": lit([NAN, INF, -INF, 1.0])}, {}, diff=[], tol=0)
    group.case("sigmoid", "saturated", torch.sigmoid, {"x": lit([-200.0, -30.0, 0.0, 30.0, 200.0])}, {})
    group.case("tanh", "saturated", torch.tanh, {"x": lit([-200.0, -10.0, 0.0, 1e-4, 10.0, 200.0])}, {})
    group.case(
        "exp",
        "range",
        torch.exp,
        {"x": lit([-200.0, -80.0, 0.0, 88.0, 100.0, INF, -INF, NAN])},
        {},
        diff=[],
        confirm=False,
    )
    group.case("log", "range", torch.log, {"x": lit([0.0, 1e-37, 1.0, 1e37, INF, -1.0])}, {}, diff=[])
    group.case("sqrt", "range", torch.sqrt, {"x": lit([0.0, 1e-37, 1.0, 1e37, INF, -1.0])}, {}, diff=[])
    for suffix, exponent, lo, hi in (
        ("square", 2.0, -2, 2),
        ("cube", 3.0, -2, 2),
        ("root", 0.5, 0.1, 3),
        ("inverse", -1.0, 0.5, 2),
        ("one", 1.0, -2, 2),
        ("zero", 0.0, -2, 2),
        ("fraction", 2.7, 0.1, 3),
        ("inverse_root", -0.5, 0.2, 3),
    ):
        group.case("pow", suffix, lambda x, e=exponent: x.pow(e), {"x": u(3, 5, lo=lo, hi=hi)}, {"exponent": exponent})
    group.case("pow", "of_zero", lambda x: x.pow(2.0), {"x": lit([0.0, -1.0, 1.0])}, {"exponent": 2.0})
    group.case("pow", "zero_of_zero", lambda x: x.pow(0.0), {"x": lit([0.0, -1.0, 1.0])}, {"exponent": 0.0})
    group.case("pow", "negative_base", lambda x: x.pow(0.5), {"x": lit([-1.0, 4.0])}, {"exponent": 0.5}, diff=[])
    group.case("pow", "i64", lambda x: x.pow(3), {"x": ints(6, lo=-4, hi=5)}, {"exponent": 3}, tol=0)


def extremes(group):
    for op, fn in {"maximum": torch.maximum, "minimum": torch.minimum}.items():
        for suffix in ("same", "size1", "row", "both_sides", "empty"):
            a, b = SHAPES[suffix]
            group.case(op, suffix, fn, {"a": u(*a), "b": u(*b)}, {}, tol=1e-6)
        group.case(op, "ties", fn, {"a": lit([1.0, 2.0, 3.0, 0.0]), "b": lit([1.0, 3.0, 2.0, -0.0])}, {})
        group.case(op, "nan", fn, {"a": lit([NAN, 1.0, NAN]), "b": lit([1.0, NAN, NAN])}, {}, diff=[], tol=0)
        group.case(op, "i64", fn, {"a": ints(3, 4), "b": ints(4)}, {}, tol=0)
    for suffix, lo, hi in (("both", -0.5, 1.25), ("min", 0.25, None), ("max", None, 0.25), ("crossed", 1.0, -1.0)):
        group.case(
            "clamp", suffix, lambda x, lo=lo, hi=hi: x.clamp(lo, hi), {"x": u(3, 7)}, {"min": lo, "max": hi}, tol=0
        )
    group.case(
        "clamp",
        "at_bounds",
        lambda x: x.clamp(-1.0, 1.0),
        {"x": lit([-2.0, -1.0, 0.0, 1.0, 2.0])},
        {"min": -1.0, "max": 1.0},
        tol=0,
    )
    group.case(
        "clamp",
        "nan",
        lambda x: x.clamp(-1.0, 1.0),
        {"x": lit([NAN, INF, -INF])},
        {"min": -1.0, "max": 1.0},
        diff=[],
        tol=0,
    )
    group.case("clamp", "i64", lambda x: x.clamp(2, 7), {"x": ints(9)}, {"min": 2, "max": 7}, tol=0)


def comparisons(group):
    for op, fn in COMPARE.items():
        binary(
            group, op, fn, "f32", ints(4, 5, lo=0, hi=3, dtype=f32), ints(4, 5, lo=0, hi=3, dtype=f32), diff=[], tol=0
        )
        binary(
            group,
            op,
            fn,
            "f32_broadcast",
            ints(3, 1, lo=0, hi=3, dtype=f32),
            ints(2, 1, 4, lo=0, hi=3, dtype=f32),
            diff=[],
            tol=0,
        )
        binary(group, op, fn, "i64", ints(2, 7, hi=3), ints(7, hi=3), tol=0)
        binary(group, op, fn, "i64_scalar", ints(9, hi=4), scalar=2, tol=0)
        binary(group, op, fn, "f32_scalar", u(3, 3), scalar=0.25, diff=[], tol=0)
        binary(group, op, fn, "nan", lit([NAN, NAN, 1.0, INF, -0.0]), lit([NAN, 1.0, NAN, INF, 0.0]), diff=[], tol=0)
        binary(group, op, fn, "mixed_i64_f32", ints(6, hi=3), lit([0.0, 0.5, 1.0, 1.5, 2.0, 2.5]), diff=[], tol=0)
        binary(group, op, fn, "empty", u(0, 3), u(1, 3), diff=[], tol=0)


def choice(group):
    mask = lambda *shape: ints(*shape, lo=0, hi=2, dtype=boolean)
    for suffix, c, a, b in (
        ("same", (3, 5), (3, 5), (3, 5)),
        ("size1", (1,), (1,), (1,)),
        ("all_broadcast", (2, 1, 1), (3, 1), (4,)),
        ("mask_row", (5,), (3, 5), (3, 1)),
        ("zero_dim", (), (2, 3), ()),
        ("empty", (0, 1), (3,), (1,)),
    ):
        group.case(
            "where", suffix, torch.where, {"condition": mask(*c), "a": u(*a), "b": u(*b)}, {}, dtype="f32", tol=1e-6
        )
    group.case("where", "i64", torch.where, {"condition": mask(7), "a": ints(7), "b": ints(7)}, {}, dtype="i64", tol=0)
    group.case(
        "where",
        "nan_hidden",
        torch.where,
        {"condition": lit([True, False], boolean), "a": lit([1.0, NAN]), "b": lit([INF, 2.0])},
        {},
        dtype="f32",
        tol=0,
    )
