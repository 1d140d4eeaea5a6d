"""Products, norms, running sums, order. "dims" null means over everything."""

import torch

from .vectors import Group, boolean, f16, f32, f64, ints, lit, u, u8

INF, NAN = float("inf"), float("nan")
CASES = (
    ("rows", (4, 7), (0,), False),
    ("last_keep", (4, 7), (-1,), True),
    ("channels", (2, 3, 2, 2), (0, 2, 3), False),
    ("outer", (2, 3, 4), (0, 2), True),
    ("size1", (3, 1), (1,), False),
    ("line", (67,), (0,), False),
    ("empty_batch", (0, 3), (1,), False),
)


def add(group: Group):
    prod(group)
    norm(group)
    logsumexp(group)
    cumsum(group)
    order(group)


def several(fn, dims, keepdim):
    """torch.prod takes one dimension at a time."""

    def run(x):
        for d in sorted((d % x.dim() for d in dims), reverse=True):
            x = fn(x, d, keepdim=keepdim)
        return x

    return run


def prod(group):
    for suffix, shape, dims, keep in CASES:
        attrs = {"dims": list(dims), "keepdim": keep}
        x = u(*shape, lo=0.5, hi=1.6)
        group.case("prod", suffix, several(torch.prod, dims, keep), {"x": x}, attrs)
    every = {"dims": None, "keepdim": False}
    group.case("prod", "all", torch.prod, {"x": u(3, 4)}, every)
    group.case("prod", "zero_dim", torch.prod, {"x": u()}, every)
    last = {"dims": [1], "keepdim": False}
    zeros = lit([[1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [2.0, 0.0, -0.0], [0.0, 0.0, 0.0]])
    group.case("prod", "zeros", lambda x: x.prod(1), {"x": zeros}, last)
    group.case("prod", "zeros_all", torch.prod, {"x": lit([[2.0, 0.0], [3.0, 4.0]])}, every)
    group.case("prod", "empty_rows", lambda x: x.prod(0), {"x": u(0, 3)}, {"dims": [0], "keepdim": False}, tol=0)
    group.case("prod", "f64", lambda x: x.prod(1), {"x": u(3, 5, dtype=f64)}, last, tol=1e-12)
    for name, x in (
        ("i64", ints(3, 5, lo=-3, hi=4)),
        ("u8", ints(3, 2, lo=100, hi=256, dtype=u8)),
        ("bool", ints(3, 2, hi=2, dtype=boolean)),
    ):
        group.case("prod", name, lambda x: x.prod(1), {"x": x}, last, tol=0)


def norm(group):
    """"p" is a text, for infinity."""
    for p in ("1", "2", "inf"):
        run = lambda x, d, k, p=float(p): torch.linalg.vector_norm(x, p, d, k)
        for suffix, shape, dims, keep in CASES:
            attrs = {"p": p, "dims": list(dims), "keepdim": keep}
            group.case("norm", f"{suffix}_{p}", lambda x, d=dims, k=keep: run(x, d, k), {"x": u(*shape)}, attrs)
        every = {"p": p, "dims": None, "keepdim": False}
        group.case("norm", f"all_{p}", lambda x: run(x, None, False), {"x": u(3, 4)}, every)
        some = {"p": p, "dims": [1], "keepdim": False}
        zeros = lit([[0.0, 0.0, 0.0], [3.0, 0.0, -4.0], [2.0, -2.0, 2.0]])
        group.case("norm", f"zeros_{p}", lambda x: run(x, 1, False), {"x": zeros}, some)
        group.case("norm", f"f64_{p}", lambda x: run(x, 1, False), {"x": u(3, 5, dtype=f64)}, some, tol=1e-12)
        large = lit([[300.0, 400.0]], f16)
        group.case("norm", f"f16_{p}", lambda x: run(x, 1, False), {"x": large}, some, tol=2e-3)


def logsumexp(group):
    run = lambda x, d, k: torch.logsumexp(x, d, k)
    for suffix, shape, dims, keep in CASES:
        attrs = {"dims": list(dims), "keepdim": keep}
        x = u(*shape, lo=-4, hi=4)
        group.case("logsumexp", suffix, lambda x, d=dims, k=keep: run(x, d, k), {"x": x}, attrs)
    last = {"dims": [1], "keepdim": False}
    large = lit([[1000.0, 1001.0, 999.0], [-1000.0, -1001.0, -999.0], [-1e4, 0.0, 1e4]])
    group.case("logsumexp", "large", lambda x: run(x, 1, False), {"x": large}, last)
    minus = lit([[-INF, 0.0, 1.0], [-INF, -INF, -INF]])
    group.case("logsumexp", "minus_infinity", lambda x: run(x, 1, False), {"x": minus}, last)
    plus = lit([[INF, 0.0, 1.0], [INF, -INF, INF], [NAN, 0.0, INF]])
    group.case("logsumexp", "infinity", lambda x: run(x, 1, False), {"x": plus}, last, diff=[])
    nothing = {"dims": [0], "keepdim": False}
    group.case("logsumexp", "empty_rows", lambda x: run(x, 0, False), {"x": u(0, 3)}, nothing)
    group.case("logsumexp", "f64", lambda x: run(x, 1, False), {"x": u(3, 5, dtype=f64)}, last, tol=1e-12)


def cumsum(group):
    for suffix, shape, dim in (
        ("rows", (5, 3), 0),
        ("last", (3, 7), -1),
        ("middle", (2, 4, 3), 1),
        ("size1", (3, 1), 1),
        ("long", (2, 131), 1),
        ("wide", (3, 70), 0),
        ("zero_dim", (), 0),
        ("empty", (0, 3), 0),
    ):
        group.case("cumsum", suffix, lambda x, d=dim: x.cumsum(d), {"x": u(*shape)}, {"dim": dim})
    group.case("cumsum", "f64", lambda x: x.cumsum(1), {"x": u(3, 5, dtype=f64)}, {"dim": 1}, tol=1e-12)
    for name, x in (
        ("i64", ints(3, 5, lo=-5)),
        ("u8", ints(3, 5, lo=100, hi=256, dtype=u8)),
        ("bool", ints(3, 5, hi=2, dtype=boolean)),
    ):
        group.case("cumsum", name, lambda x: x.cumsum(1), {"x": x}, {"dim": 1}, tol=0)


def order(group):
    both = ("values", "indices")
    for down in (False, True):
        name = "down" if down else "up"
        sort = lambda x, d, down=down: torch.sort(x, dim=d, descending=down, stable=True)
        for suffix, x, dim in (
            ("last", u(3, 7), -1),
            ("rows", u(5, 3), 0),
            ("middle", u(2, 5, 3), 1),
            ("size1", u(3, 1), 1),
            ("long", u(131), 0),
            ("ties", ints(4, 19, hi=4, dtype=f32), 1),
            ("i64", ints(3, 9, lo=-5), 1),
            ("u8", ints(3, 9, hi=256, dtype=u8), 1),
            ("f64", u(2, 5, dtype=f64), 1),
            ("empty", u(0, 3), 1),
            ("none", u(3, 0), 1),
        ):
            attrs = {"dim": dim, "descending": down}
            group.case("sort", f"{suffix}_{name}", lambda x, d=dim: sort(x, d), {"x": x}, attrs, outputs=both, tol=0)
        special = {"x": lit([1.0, NAN, -INF, INF, 0.0, NAN, -0.0, -1.0])}
        attrs = {"dim": 0, "descending": down}
        group.case("sort", f"nan_{name}", lambda x: sort(x, 0), special, attrs, outputs=both, diff=[], tol=0)
        run = lambda x, d: torch.argsort(x, dim=d, descending=down, stable=True)
        for suffix, x, dim in (
            ("last", u(3, 7), -1),
            ("ties", ints(4, 9, hi=3), 1),
            ("size1", u(1, 3), 0),
            ("empty", u(0, 3), 0),
        ):
            attrs = {"dim": dim, "descending": down}
            group.case("argsort", f"{suffix}_{name}", lambda x, d=dim: run(x, d), {"x": x}, attrs, diff=[], tol=0)
    for suffix, x, k, dim, largest in (
        ("last", u(3, 7), 3, -1, True),
        ("rows", u(5, 3), 2, 0, True),
        ("smallest", u(2, 5, 3), 4, 1, False),
        ("one", u(4, 10), 1, 1, True),
        ("all", u(3, 5), 5, 1, True),
        ("none", u(3, 5), 0, 1, True),
        ("size1", u(3, 1), 1, 1, False),
        ("long", u(211), 40, 0, True),
        ("empty", u(0, 4), 2, 1, True),
        ("i64", lit([[5, 3, 9, -2], [0, 7, 6, 8]], torch.int64), 2, 1, True),
        ("f64", u(2, 6, dtype=f64), 3, 1, False),
    ):
        attrs = {"k": k, "dim": dim, "largest": largest}
        run = lambda x, a=(k, dim, largest): torch.topk(x, *a)
        group.case("topk", suffix, run, {"x": x}, attrs, outputs=both, tol=0)
