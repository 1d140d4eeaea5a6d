"""Ops that move elements: nothing is computed, except sums in the gradients of those that copy."""

import torch
import torch.nn.functional as F

from .vectors import Group, boolean, f16, ints, u, u8


def add(group: Group):
    for suffix, given, shape in (
        ("merge", (2, 3, 5), (6, 5)),
        ("infer", (2, 3, 5), (5, -1)),
        ("split", (12,), (2, -1, 3)),
        ("size1", (1,), (1, 1, 1)),
        ("to_zero_dim", (1, 1), ()),
        ("from_zero_dim", (), (1,)),
        ("empty", (0, 6), (0, 2, 3)),
        ("same", (3, 4), (3, 4)),
    ):
        group.case("reshape", suffix, lambda x, s=shape: x.reshape(s), {"x": u(*given)}, {"shape": list(shape)}, tol=0)
    for suffix, given, dims in (
        ("nhwc", (2, 3, 4, 5), (0, 2, 3, 1)),
        ("nchw", (2, 4, 5, 3), (0, 3, 1, 2)),
        ("reverse", (2, 3, 5), (2, 1, 0)),
        ("cycle", (3, 1, 7, 2), (2, 0, 3, 1)),
        ("negative", (2, 3, 5), (-1, 0, -2)),
        ("identity", (3, 2), (0, 1)),
        ("empty", (0, 2, 3), (2, 0, 1)),
    ):
        group.case(
            "permute",
            suffix,
            lambda x, d=dims: x.permute(d).contiguous(),
            {"x": u(*given)},
            {"dims": list(dims)},
            tol=0,
        )
    for suffix, given, a, b in (
        ("matrix", (3, 7), 0, 1),
        ("negative", (2, 3, 5), -2, -1),
        ("outer", (2, 3, 5), 0, 2),
        ("size1", (1, 9), 0, 1),
        ("same", (3, 4), 1, 1),
    ):
        group.case(
            "transpose",
            suffix,
            lambda x, a=a, b=b: x.transpose(a, b).contiguous(),
            {"x": u(*given)},
            {"dim0": a, "dim1": b},
            tol=0,
        )
    # A view that no strides describe: the elements must really move.
    for suffix, given, dims, shape in (
        ("nhwc_rows", (2, 3, 2, 3), (0, 2, 3, 1), (12, 3)),
        ("transposed_line", (3, 5), (1, 0), (15,)),
        ("regroup", (4, 3, 5), (2, 0, 1), (10, -1)),
    ):
        group.case(
            "permute_reshape",
            suffix,
            lambda x, d=dims, s=shape: x.permute(d).reshape(s),
            {"x": u(*given)},
            {"dims": list(dims), "shape": list(shape)},
            tol=0,
        )
    for suffix, given, a, b in (
        ("batch", (2, 3, 2, 5), 1, -1),
        ("all", (2, 3, 4), 0, -1),
        ("middle", (2, 3, 2, 3), 1, 2),
        ("one", (3, 4), 1, 1),
        ("zero_dim", (), 0, -1),
        ("empty", (0, 2, 3), 1, -1),
    ):
        group.case(
            "flatten",
            suffix,
            lambda x, a=a, b=b: x.flatten(a, b),
            {"x": u(*given)},
            {"start_dim": a, "end_dim": b},
            tol=0,
        )
    for suffix, given, shape in (
        ("rows", (1, 4), (3, 4)),
        ("columns", (3, 1), (3, 5)),
        ("new_dims", (3, 1), (2, 3, 4)),
        ("keep", (3, 1), (-1, 4)),
        ("zero_dim", (), (2, 3)),
        ("empty", (1, 3), (0, 3)),
    ):
        group.case("expand", suffix, lambda x, s=shape: x.expand(s), {"x": u(*given)}, {"shape": list(shape)})
        if -1 not in shape:
            group.case(
                "broadcast_to", suffix, lambda x, s=shape: x.broadcast_to(s), {"x": u(*given)}, {"shape": list(shape)}
            )
    for suffix, shapes, dim in (
        ("rows", ((2, 3), (1, 3), (4, 3)), 0),
        ("columns", ((3, 2), (3, 5)), -1),
        ("channels", ((2, 1, 2, 3), (2, 3, 2, 3)), 1),
        ("single", ((2, 3),), 0),
        ("with_empty", ((0, 3), (2, 3)), 0),
    ):
        group.case(
            "cat",
            suffix,
            lambda *xs, d=dim: torch.cat(xs, d),
            {f"x{j}": u(*s) for j, s in enumerate(shapes)},
            {"dim": dim},
            tol=0,
        )
    group.case("cat", "i64", lambda *xs: torch.cat(xs, 0), {"x0": ints(2, 2), "x1": ints(3, 2)}, {"dim": 0}, tol=0)
    for suffix, count, given, dim in (
        ("first", 3, (2, 5), 0),
        ("middle", 2, (3, 4), 1),
        ("last", 2, (3, 4), -1),
        ("zero_dim", 4, (), 0),
        ("single", 1, (3,), 0),
    ):
        group.case(
            "stack",
            suffix,
            lambda *xs, d=dim: torch.stack(xs, d),
            {f"x{j}": u(*given) for j in range(count)},
            {"dim": dim},
            tol=0,
        )
    for suffix, given, dim, start, length in (
        ("rows", (5, 3), 0, 1, 3),
        ("columns", (3, 7), 1, 4, 2),
        ("negative", (2, 3, 5), -1, 0, 1),
        ("all", (3, 4), 1, 0, 4),
        ("nothing", (3, 4), 0, 2, 0),
        ("channels", (2, 5, 2, 2), 1, 2, 2),
    ):
        group.case(
            "narrow",
            suffix,
            lambda x, a=(dim, start, length): x.narrow(*a),
            {"x": u(*given)},
            {"dim": dim, "start": start, "length": length},
            tol=0,
        )
    for suffix, p, training in (
        ("eval", 0.5, False),
        ("eval_p1", 1.0, False),
        ("train_p0", 0.0, True),
        ("train_p1", 1.0, True),
    ):
        group.case(
            "dropout",
            suffix,
            lambda x, p=p, t=training: F.dropout(x, p, t),
            {"x": u(3, 5)},
            {"p": p, "training": training},
            tol=0,
        )
    for op, fn, attrs in (
        ("permute", lambda x: x.permute(1, 0).contiguous(), {"dims": [1, 0]}),
        ("reshape", lambda x: x.reshape(3, 2), {"shape": [3, 2]}),
        ("narrow", lambda x: x.narrow(1, 1, 2), {"dim": 1, "start": 1, "length": 2}),
    ):
        for name, x in (
            ("i64", ints(2, 3)),
            ("u8", ints(2, 3, hi=256, dtype=u8)),
            ("bool", ints(2, 3, hi=2, dtype=boolean)),
            ("f16", u(2, 3, dtype=f16)),
        ):
            group.case(op, name, fn, {"x": x}, attrs, tol=0)
