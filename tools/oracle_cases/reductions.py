"""Reductions. "dims" null means over everything; "dim" likewise."""

import torch
import torch.nn.functional as F

from .vectors import Group, bf16, boolean, f16, f32, f64, ints, lit, u, u8

INF, NAN = float("inf"), float("nan")
CASES = (
    ("all", (3, 5), None, False),
    ("all_keep", (3, 5), None, True),
    ("rows", (4, 7), (0,), False),
    ("last", (4, 7), (-1,), False),
    ("last_keep", (4, 7), (1,), True),
    ("channels", (2, 3, 3, 5), (0, 2, 3), False),
    ("spatial_keep", (2, 3, 3, 5), (2, 3), True),
    ("middle", (2, 5, 3), (1,), False),
    ("size1", (1, 1), (0,), False),
    ("zero_dim", (), None, False),
    ("long", (131,), (0,), False),
)


def over(dims):
    return None if dims is None else list(dims)


def add(group: Group):
    for op, fn in {"sum": torch.sum, "mean": torch.mean}.items():
        for suffix, shape, dims, keep in CASES:
            run = lambda x, d=dims, k=keep: fn(x, d, keepdim=k) if d is not None or k else fn(x)
            if dims is None and keep:
                run = lambda x: fn(x, tuple(range(x.dim())), keepdim=True)
            group.case(op, suffix, run, {"x": u(*shape)}, {"dims": over(dims), "keepdim": keep})
        group.case(op, "empty_rows", lambda x: fn(x, 0), {"x": u(0, 3)}, {"dims": [0], "keepdim": False}, tol=0)
        group.case(op, "empty_batch", lambda x: fn(x, 1), {"x": u(0, 3)}, {"dims": [1], "keepdim": False}, tol=0)
        group.case(op, "f64", lambda x: fn(x, 1), {"x": u(3, 7, dtype=f64)}, {"dims": [1], "keepdim": False}, tol=1e-12)
        group.case(op, "f16", lambda x: fn(x, 1), {"x": u(3, 7, dtype=f16)}, {"dims": [1], "keepdim": False}, tol=2e-3)
        group.case(
            op, "bf16", lambda x: fn(x, 1), {"x": u(3, 7, dtype=bf16)}, {"dims": [1], "keepdim": False}, tol=1.6e-2
        )
    for name, x in (
        ("i64", ints(3, 5, lo=-5)),
        ("u8", ints(3, 5, lo=100, hi=256, dtype=u8)),
        ("bool", ints(3, 5, hi=2, dtype=boolean)),
    ):
        group.case("sum", name, lambda x: x.sum(1), {"x": x}, {"dims": [1], "keepdim": False}, tol=0)
    for op in ("max", "min"):
        extreme(group, op)
    for op in ("argmax", "argmin"):
        for suffix, shape, dim, keep in (
            ("rows", (5, 3), 0, False),
            ("last", (4, 10), -1, False),
            ("keep", (2, 3, 5), 1, True),
            ("all", (3, 5), None, False),
            ("size1", (3, 1), 1, False),
            ("empty_batch", (0, 4), 1, False),
        ):
            group.case(
                op,
                suffix,
                lambda x, d=dim, k=keep: getattr(torch, op)(x, d, k),
                {"x": u(*shape)},
                {"dim": dim, "keepdim": keep},
                diff=[],
                tol=0,
            )
        group.case(
            op,
            "ties",
            lambda x: getattr(torch, op)(x, 1),
            {"x": ints(4, 9, hi=3, dtype=f32)},
            {"dim": 1, "keepdim": False},
            diff=[],
            tol=0,
        )
        group.case(
            op,
            "nan",
            lambda x: getattr(torch, op)(x, 0),
            {"x": lit([1.0, NAN, INF, -INF])},
            {"dim": 0, "keepdim": False},
            diff=[],
            tol=0,
        )
        group.case(
            op, "i64", lambda x: getattr(torch, op)(x, 1), {"x": ints(3, 5)}, {"dim": 1, "keepdim": False}, tol=0
        )
    for op, fn in {"var": torch.var, "std": torch.std}.items():
        for correction in (0, 1):
            for suffix, shape, dims, keep in (
                ("rows", (5, 3), (0,), False),
                ("last_keep", (4, 7), (1,), True),
                ("channels", (2, 3, 3, 5), (0, 2, 3), False),
                ("all", (3, 5), None, False),
            ):
                group.case(
                    op,
                    f"{suffix}_c{correction}",
                    lambda x, d=dims, k=keep, c=correction: fn(x, d, correction=c, keepdim=k),
                    {"x": u(*shape)},
                    {"dims": over(dims), "correction": correction, "keepdim": keep},
                )
    group.case(
        "var",
        "offset",
        lambda x: torch.var(x, (0,), correction=1, keepdim=False),
        {"x": u(7, 3, lo=99, hi=101)},
        {"dims": [0], "correction": 1, "keepdim": False},
    )
    group.case(
        "var",
        "size1_c0",
        lambda x: torch.var(x, (1,), correction=0, keepdim=False),
        {"x": u(3, 1)},
        {"dims": [1], "correction": 0, "keepdim": False},
    )
    for op, fn in {"softmax": F.softmax, "log_softmax": F.log_softmax}.items():
        for suffix, shape, dim in (
            ("last", (4, 10), -1),
            ("rows", (5, 3), 0),
            ("channels", (2, 3, 2, 3), 1),
            ("size1", (3, 1), 1),
            ("line", (7,), 0),
            ("long", (2, 67), 1),
            ("empty_batch", (0, 4), 1),
        ):
            group.case(op, suffix, lambda x, d=dim: fn(x, d), {"x": u(*shape, lo=-4, hi=4)}, {"dim": dim})
        group.case(
            op,
            "large",
            lambda x: fn(x, 1),
            {"x": lit([[1000.0, 1001.0, 999.0], [-1000.0, 0.0, 1000.0], [-1e4, -1e4, -1e4]])},
            {"dim": 1},
        )
        group.case(op, "minus_infinity", lambda x: fn(x, 1), {"x": lit([[0.0, -INF, 1.0]])}, {"dim": 1}, diff=[])
        group.case(op, "f64", lambda x: fn(x, 1), {"x": u(3, 5, dtype=f64)}, {"dim": 1}, tol=1e-12)


def extreme(group, op):
    """max, min: with "dim" the outputs are values and indices (the first one of equals gets all the gradient);
    without, only the value (equals share the gradient)."""
    fn = getattr(torch, op)
    both = ("values", "indices")
    for suffix, shape, dim, keep in (
        ("rows", (5, 3), 0, False),
        ("last", (4, 7), -1, False),
        ("keep", (2, 3, 5), 1, True),
        ("size1", (3, 1), 1, False),
        ("empty_batch", (0, 4), 1, False),
    ):
        group.case(
            op,
            suffix,
            lambda x, d=dim, k=keep: fn(x, d, k),
            {"x": u(*shape)},
            {"dim": dim, "keepdim": keep},
            outputs=both,
            tol=0,
        )
    group.case(
        op,
        "ties",
        lambda x: fn(x, 1),
        {"x": lit([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, -0.0, 0.0, -0.0]])},
        {"dim": 1, "keepdim": False},
        outputs=both,
        tol=0,
    )
    group.case(
        op,
        "nan",
        lambda x: fn(x, 1),
        {"x": lit([[1.0, NAN, 3.0], [INF, 0.0, NAN]])},
        {"dim": 1, "keepdim": False},
        outputs=both,
        diff=[],
        tol=0,
    )
    group.case(op, "i64", lambda x: fn(x, 1), {"x": ints(3, 5)}, {"dim": 1, "keepdim": False}, outputs=both, tol=0)
    group.case(op, "all", lambda x: fn(x), {"x": u(3, 5)}, {"dim": None, "keepdim": False}, tol=0)
    group.case(
        op, "all_ties", lambda x: fn(x), {"x": lit([[1.0, 3.0, 1.0], [3.0, 1.0, 3.0]])}, {"dim": None, "keepdim": False}
    )
