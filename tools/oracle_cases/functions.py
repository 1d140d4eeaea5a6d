"""More functions of one element, truth values, and tensors made from nothing."""

import torch

from .vectors import NAMES, Group, bf16, boolean, f16, f32, f64, ints, lit, u, u8

INF, NAN = float("inf"), float("nan")


def add(group: Group):
    unary(group)
    logical(group)
    creation(group)
    products(group)


def unary(group):
    simple = {
        "rsqrt": (torch.rsqrt, 0.05, 4, 1e-5),
        "reciprocal": (torch.reciprocal, 0.2, 4, 1e-5),
        "square": (torch.square, -3, 3, 1e-6),
        "sin": (torch.sin, -9, 9, 1e-6),
        "cos": (torch.cos, -9, 9, 1e-6),
        "erf": (torch.erf, -4, 4, 1e-6),
        "log1p": (torch.log1p, -0.9, 3, 1e-5),
        "expm1": (torch.expm1, -4, 4, 1e-6),
        "sign": (torch.sign, -2, 2, 0),
        "floor": (torch.floor, -5, 5, 0),
        "ceil": (torch.ceil, -5, 5, 0),
        "round": (torch.round, -5, 5, 0),
    }
    for op, (fn, lo, hi, tol) in simple.items():
        shapes = {"matrix": (5, 7), "size1": (1, 1), "odd": (3, 1, 11), "zero_dim": (), "empty": (0, 4), "long": (131,)}
        for suffix, shape in shapes.items():
            group.case(op, suffix, fn, {"x": u(*shape, lo=lo, hi=hi)}, {}, tol=tol)
        group.case(op, "f64", fn, {"x": u(2, 5, lo=lo, hi=hi, dtype=f64)}, {}, tol=min(tol, 1e-12))
        group.case(op, "f16", fn, {"x": u(7, lo=lo, hi=hi, dtype=f16)}, {}, tol=4e-3)
        group.case(op, "i64", fn, {"x": ints(7, lo=1, hi=9)}, {}, tol=1e-6)
    # At the kinks and the ends of the range.
    group.case("sign", "range", torch.sign, {"x": lit([-INF, -1e-40, -0.0, 0.0, 1e-40, INF, NAN])}, {}, diff=[], tol=0)
    group.case("sign", "i64_below", torch.sign, {"x": ints(9, lo=-3, hi=3)}, {}, tol=0)
    halves = lit([-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, 8388609.0, INF, NAN])
    for op in ("floor", "ceil", "round"):
        group.case(op, "range", simple[op][0], {"x": halves}, {}, diff=[], tol=0)
    for op in ("erf", "log1p", "expm1"):
        tiny = lit([-1e-30, -1e-8, -1e-4, 0.0, 1e-7, 1e-3, 0.1])
        # Small results must be right too: the tolerance is absolute below 1.
        group.case(op, "tiny", lambda x, f=simple[op][0]: f(x) * 1e6, {"x": tiny}, {}, diff=[], tol=1e-6)
    group.case("erf", "range", torch.erf, {"x": lit([-INF, -9.0, 9.0, INF, NAN])}, {}, diff=[], tol=0)
    group.case("log1p", "range", torch.log1p, {"x": lit([-1.0, -2.0, 1e37, INF, NAN])}, {}, diff=[], tol=1e-6)
    group.case("expm1", "range", torch.expm1, {"x": lit([-INF, -200.0, 80.0, 200.0, INF, NAN])}, {}, diff=[], tol=1e-6)
    group.case("rsqrt", "range", torch.rsqrt, {"x": lit([0.0, -1.0, INF, NAN])}, {}, diff=[], tol=0)
    group.case("reciprocal", "range", torch.reciprocal, {"x": lit([0.0, -0.0, INF, NAN])}, {}, diff=[], tol=0)


def logical(group):
    truth = lambda *shape: ints(*shape, hi=2, dtype=boolean)
    for op, fn in {"and": torch.logical_and, "or": torch.logical_or, "xor": torch.logical_xor}.items():
        op = f"logical_{op}"
        group.case(op, "bool", fn, {"a": truth(3, 5), "b": truth(3, 5)}, {}, tol=0)
        group.case(op, "broadcast", fn, {"a": truth(3, 1), "b": truth(4)}, {}, tol=0)
        group.case(op, "mixed", fn, {"a": ints(9, lo=-1, hi=2), "b": lit([0.0, 1.0, NAN] * 3)}, {}, diff=[], tol=0)
        group.case(op, "empty", fn, {"a": truth(0, 3), "b": truth(3)}, {}, tol=0)
    group.case("logical_not", "bool", torch.logical_not, {"x": truth(3, 5)}, {}, tol=0)
    group.case("logical_not", "u8", torch.logical_not, {"x": ints(7, hi=2, dtype=u8)}, {}, tol=0)
    group.case("logical_not", "f32", torch.logical_not, {"x": lit([0.0, -0.0, 2.0, NAN, INF])}, {}, diff=[], tol=0)
    for op, fn in {"any": torch.any, "all": torch.all}.items():
        for suffix, x, dims, keep in (
            ("rows", truth(3, 4), (0,), False),
            ("last_keep", truth(9, 2), (-1,), True),
            ("two", truth(2, 2, 3), (0, 2), False),
            ("size1", truth(3, 1), (1,), False),
            ("empty_rows", truth(0, 3), (0,), False),
            ("empty_batch", truth(0, 3), (1,), False),
            ("f32", ints(5, 3, hi=2, dtype=f32), (1,), False),
        ):
            attrs = {"dims": list(dims), "keepdim": keep}
            group.case(op, suffix, lambda x, d=dims, k=keep: fn(x, d, keepdim=k), {"x": x}, attrs, diff=[], tol=0)


def creation(group):
    def made(op, suffix, tensor, attrs, tol=0.0):
        group.case(op, suffix, lambda: tensor, {}, attrs, dtype=NAMES[tensor.dtype], tol=tol, confirm=False)

    for suffix, start, end, steps in (
        ("odd", -1.0, 1.0, 7),
        ("even", 0.0, 3.0, 10),
        ("down", 5.0, -2.0, 4),
        ("one", 2.5, 9.0, 1),
        ("none", 0.0, 1.0, 0),
        ("long", 0.1, 0.9, 101),
    ):
        attrs = {"start": start, "end": end, "steps": steps}
        made("linspace", suffix, torch.linspace(start, end, steps), attrs, tol=1e-6)
    for suffix, rows, columns, dtype in (
        ("square", 3, 3, f32),
        ("wide", 2, 4, f64),
        ("tall", 3, 1, torch.int64),
        ("none", 0, 2, f32),
        ("bool", 2, 2, boolean),
    ):
        attrs = {"rows": rows, "columns": columns, "dtype": NAMES[dtype]}
        made("eye", suffix, torch.eye(rows, columns, dtype=dtype), attrs)
    for suffix, start, end, step in (
        ("whole", 2, 9, 1),
        ("step", 1, 10, 4),
        ("down", 7, -2, -3),
        ("none", 3, 3, 1),
        ("float", 0.0, 1.0, 0.25),
        ("tenths", 0.0, 1.0, 0.1),
        ("float_down", 1.5, -1.0, -0.5),
        ("mixed", 0, 2.5, 1),
    ):
        attrs = {"start": start, "end": end, "step": step}
        made("arange", suffix, torch.arange(start, end, step), attrs, tol=1e-6)
    for suffix, x, classes in (
        ("line", ints(5, hi=4), 4),
        ("matrix", ints(2, 3, hi=2), 5),
        ("size1", ints(1, hi=1), 1),
        ("zero_dim", lit(2, torch.int64), 3),
        ("empty", ints(0, 2, hi=2), 3),
    ):
        run = lambda x, c=classes: torch.nn.functional.one_hot(x, c)
        group.case("one_hot", suffix, run, {"x": x}, {"classes": classes}, tol=0)
    for suffix, x, value in (("f32", u(2, 3), 1.5), ("i64", ints(4), 7), ("bf16", u(3, dtype=bf16), 0.1)):
        run = lambda x, v=value: torch.full_like(x, v)
        group.case("full_like", suffix, run, {"x": x}, {"value": value}, diff=[], tol=0)
    for suffix, a, b in (("row", (3,), (2, 3)), ("column", (2, 1), (2, 4)), ("empty", (1, 3), (0, 3))):
        given = {"x": u(*a), "other": u(*b)}
        group.case("expand_as", suffix, lambda x, other: x.expand_as(other), given, {}, diff=["x"])


def products(group):
    """Batches of matrices without batches, rows, columns or anything to add up."""
    for suffix, a, b in (
        ("plain", (3, 2, 5), (3, 5, 4)),
        ("size1", (1, 1, 1), (1, 1, 1)),
        ("batch0", (0, 2, 3), (0, 3, 4)),
        ("k0", (2, 3, 0), (2, 0, 4)),
        ("m0", (2, 0, 3), (2, 3, 4)),
        ("n0", (2, 3, 4), (2, 4, 0)),
        ("batch0_k0", (0, 2, 0), (0, 0, 3)),
        ("batch0_broadcast", (1, 2, 3), (0, 3, 4)),
        ("k0_broadcast", (2, 1, 3, 0), (4, 0, 2)),
        ("matrix_batch0", (2, 3), (0, 3, 4)),
        ("k0_line", (2, 0), (0,)),
    ):
        group.case("bmm", suffix, torch.matmul, {"a": u(*a), "b": u(*b)}, {})
    given = {"a": u(2, 3, 5, dtype=f64), "b": u(2, 5, 4, dtype=f64)}
    group.case("bmm", "f64", torch.matmul, given, {}, tol=1e-12)
    given = {"a": u(2, 3, 0, dtype=f64), "b": u(2, 0, 4, dtype=f64)}
    group.case("bmm", "k0_f64", torch.matmul, given, {}, tol=1e-12)
