"""Parts and places: slices, splits, indices, flips, rolls, margins."""

import torch
import torch.nn.functional as F

from .vectors import Group, boolean, f16, f64, ints, lit, u, u8


def add(group: Group):
    slices(group)
    indices(group)
    turns(group)
    margins(group)


def slices(group):
    for suffix, given, dim, start, end, step in (
        ("plain", (7, 3), 0, 1, 5, 1),
        ("step", (3, 11), 1, 1, 10, 3),
        ("step_images", (2, 5, 3, 2), 1, 0, 5, 2),
        ("negative", (4, 6), -1, -4, -1, 1),
        ("beyond", (5,), 0, -99, 99, 2),
        ("size1", (3, 1), 1, 0, 1, 4),
        ("crossed", (5, 2), 0, 4, 2, 1),
        ("empty", (0, 4), 1, 1, 3, 1),
    ):
        attrs = {"dim": dim, "start": start, "end": end, "step": step}

        def run(x, dim=dim, at=slice(start, end, step)):
            return x[tuple(at if d == dim % x.dim() else slice(None) for d in range(x.dim()))]

        group.case("slice", suffix, run, {"x": u(*given)}, attrs, tol=0)
        if suffix == "step":
            for name, x in dtypes(given):
                group.case("slice", name, run, {"x": x}, attrs, tol=0)
    for suffix, given, dim, index in (
        ("first", (4, 3), 0, 2),
        ("last", (2, 3, 5), -1, -2),
        ("size1", (1, 3), 0, 0),
        ("line", (5,), 0, -1),
        ("empty", (0, 3), 1, 1),
    ):
        attrs = {"dim": dim, "index": index}
        group.case("select", suffix, lambda x, d=dim, i=index: x.select(d, i), {"x": u(*given)}, attrs, tol=0)
    for suffix, given, size, dim, count in (
        ("even", (6, 2), 2, 0, 3),
        ("uneven", (2, 7), 3, -1, 3),
        ("larger", (3, 2), 5, 0, 1),
        ("empty", (0, 2), 2, 0, 1),
    ):
        group.case(
            "split",
            suffix,
            lambda x, s=size, d=dim: x.split(s, d),
            {"x": u(*given)},
            {"size": size, "dim": dim},
            outputs=[f"y{j}" for j in range(count)],
            tol=0,
        )
    for suffix, given, chunks, dim, count in (
        ("even", (6, 2), 3, 0, 3),
        ("uneven", (2, 7), 3, -1, 3),
        ("fewer", (5, 2), 4, 0, 3),
        ("empty", (0, 2), 2, 0, 2),
    ):
        group.case(
            "chunk",
            suffix,
            lambda x, s=chunks, d=dim: x.chunk(s, d),
            {"x": u(*given)},
            {"chunks": chunks, "dim": dim},
            outputs=[f"y{j}" for j in range(count)],
            tol=0,
        )


def dtypes(shape):
    return (
        ("f64", u(*shape, dtype=f64)),
        ("i64", ints(*shape)),
        ("u8", ints(*shape, hi=256, dtype=u8)),
        ("bool", ints(*shape, hi=2, dtype=boolean)),
        ("f16", u(*shape, dtype=f16)),
    )


def indices(group):
    for suffix, given, dim, index in (
        ("rows", (5, 3), 0, [4, 0, 2]),
        ("repeated", (3, 4), 0, [1, 1, 2, 1, 0, 1]),
        ("columns", (2, 7), -1, [6, 6, 0]),
        ("middle", (2, 3, 5), 1, [2, 0]),
        ("size1", (1, 1), 0, [0, 0]),
        ("none", (3, 2), 0, []),
        ("empty", (0, 4), 1, [3, 1]),
    ):
        attrs = {"dim": dim}
        run = lambda x, i, d=dim: torch.index_select(x, d, i)
        given = {"x": u(*given), "index": lit(index, torch.int64)}
        group.case("index_select", suffix, run, given, attrs, tol=1e-6)
    for name, x in dtypes((4, 3)):
        given = {"x": x, "index": lit([3, 3, 0], torch.int64)}
        group.case("index_select", name, lambda x, i: torch.index_select(x, 0, i), given, {"dim": 0}, tol=2e-3)
    for suffix, given, index, dim in (
        ("columns", (4, 5), (4, 3), 1),
        ("rows", (5, 3), (7, 3), 0),
        ("fewer", (4, 5, 3), (2, 6, 1), 1),
        ("negative", (2, 3, 5), (2, 3, 2), -1),
        ("size1", (3, 1), (3, 4), 1),
        ("none", (3, 4), (3, 0), 1),
        ("empty", (0, 4), (0, 2), 1),
    ):
        at = {"x": u(*given), "index": ints(*index, hi=given[dim])}
        group.case("gather", suffix, lambda x, i, d=dim: torch.gather(x, d, i), at, {"dim": dim}, tol=1e-6)
    for name, x in dtypes((3, 4)):
        at = {"x": x, "index": ints(3, 2, hi=4)}
        group.case("gather", name, lambda x, i: torch.gather(x, 1, i), at, {"dim": 1}, tol=2e-3)


def turns(group):
    for suffix, given, dims in (
        ("columns", (3, 5), (1,)),
        ("rows", (4, 3), (0,)),
        ("images", (2, 3, 4, 5), (-1, -2)),
        ("all", (2, 3, 5), (0, 1, 2)),
        ("outer", (2, 3, 5), (0, 2)),
        ("size1", (1, 7), (0,)),
        ("nothing", (3, 2), ()),
        ("empty", (0, 3), (0, 1)),
    ):
        run = lambda x, d=dims: torch.flip(x, d)
        group.case("flip", suffix, run, {"x": u(*given)}, {"dims": list(dims)}, tol=0)
    for name, x in dtypes((2, 5)):
        group.case("flip", name, lambda x: x.flip(1), {"x": x}, {"dims": [1]}, tol=0)
    for suffix, given, shifts, dims in (
        ("columns", (3, 5), (2,), (1,)),
        ("rows", (4, 3), (-1,), (0,)),
        ("images", (2, 3, 4, 5), (1, -2), (-1, -2)),
        ("far", (2, 3), (100, -7), (0, 1)),
        ("zero", (5,), (0,), (0,)),
        ("size1", (1, 4), (3,), (0,)),
        ("empty", (0, 3), (1, 1), (0, 1)),
    ):
        attrs = {"shifts": list(shifts), "dims": list(dims)}
        run = lambda x, s=shifts, d=dims: torch.roll(x, s, d)
        group.case("roll", suffix, run, {"x": u(*given)}, attrs, tol=0)
    for name, x in dtypes((2, 5)):
        group.case("roll", name, lambda x: x.roll(2, 1), {"x": x}, {"shifts": [2], "dims": [1]}, tol=0)


def margins(group):
    def pad(suffix, given, margins, mode, value=None, dtype=None, tol=1e-6):
        x = given if callable(given) else u(*given)
        run = lambda x: F.pad(x, margins, mode) if value is None else F.pad(x, margins, mode, value)
        attrs = {"margins": list(margins), "mode": mode, "value": value}
        group.case("pad", suffix, run, {"x": x}, attrs, tol=tol)

    pad("line", (5,), (2, 1), "constant", 0.5)
    pad("images", (2, 3, 4, 5), (1, 2, 3, 0), "constant", -1.5)
    pad("batch", (2, 3), (0, 0, 1, 2), "constant", 0.0)
    pad("size1", (1, 1), (1, 1, 1, 1), "constant", 2.0)
    pad("empty", (0, 3), (1, 2, 2, 0), "constant", 1.0)
    pad("nothing", (2, 3), (0, 0), "constant", 1.0)
    for name, x in dtypes((2, 3)):
        pad(name, x, (1, 2, 0, 1), "constant", 1.0)
    for mode in ("reflect", "replicate"):
        pad(f"{mode}_line", (2, 3, 5), (2, 4), mode)
        pad(f"{mode}_images", (2, 3, 4, 5), (1, 3, 3, 2), mode)
        pad(f"{mode}_one_side", (1, 1, 3, 2), (0, 1, 2, 0), mode)
        pad(f"{mode}_volume", (1, 2, 3, 2, 3), (1, 1, 1, 0, 2, 1), mode)
        pad(f"{mode}_f64", u(1, 4, 3, dtype=f64), (2, 2), mode, tol=1e-12)
        pad(f"{mode}_empty_batch", (0, 2, 3, 3), (1, 1, 1, 1), mode)
    pad("replicate_size1", (2, 1, 1, 1), (2, 3, 1, 0), "replicate")
    pad("replicate_wide", (1, 2, 3), (7, 5), "replicate")
