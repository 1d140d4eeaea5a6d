"""Losses. Class targets are i64, soft ones probabilities. "weight" says whether there is a weight per class as the
last input; of binary losses, whether there is one per element after the target, and "pos_weight" one after that."""

import torch
import torch.nn.functional as F

from .vectors import Group, f64, ints, lit, u

REDUCTIONS = ("mean", "sum", "none")


def add(group: Group):
    cross_entropy(group)
    nll(group)
    soft_cross_entropy(group)
    binary(group)
    binary_weighted(group)
    regression(group)
    bent(group)


def cross_entropy(group):
    def loss(suffix, logits, target, reduction="mean", smoothing=0.0, ignore=-100, weight=None, **more):
        inputs = {"logits": logits, "target": target} | ({"weight": weight} if weight is not None else {})
        run = lambda x, t, w=None: F.cross_entropy(
            x, t, w, ignore_index=ignore, reduction=reduction, label_smoothing=smoothing
        )
        attrs = {
            "reduction": reduction,
            "label_smoothing": smoothing,
            "ignore_index": ignore,
            "weight": weight is not None,
        }
        group.case("cross_entropy", suffix, run, inputs, attrs, diff=["logits"], **more)

    weights = u(5, lo=0.2, hi=2)
    for reduction in REDUCTIONS:
        loss(reduction, u(4, 10, lo=-4, hi=4), ints(4), reduction)
        loss(f"smooth_{reduction}", u(4, 10, lo=-4, hi=4), ints(4), reduction, smoothing=0.1)
        loss(f"ignore_{reduction}", u(5, 3), lit([0, -100, 2, 1, -100], torch.int64), reduction)
        loss(f"weight_{reduction}", u(6, 5), ints(6, hi=5), reduction, weight=weights)
        loss(
            f"weight_smooth_ignore_{reduction}",
            u(6, 5),
            lit([0, 4, 2, 2, 1, 3], torch.int64),
            reduction,
            smoothing=0.1,
            ignore=2,
            weight=weights,
        )
    loss("ignore_class", u(5, 3), lit([0, 1, 2, 1, 0], torch.int64), ignore=1)
    loss("ignore_smooth", u(5, 3), lit([0, 1, 2, 1, 0], torch.int64), ignore=1, smoothing=0.2)
    loss("one_row", u(1, 10), lit([3], torch.int64))
    loss("one_class", u(3, 1), lit([0, 0, 0], torch.int64))
    loss("large", lit([[1000.0, -1000.0, 0.0], [-1e4, 1e4, 1e4]]), lit([1, 2], torch.int64))
    loss("all_ignored", u(2, 3), lit([-100, -100], torch.int64), confirm=False)
    loss("all_ignored_sum", u(2, 3), lit([-100, -100], torch.int64), "sum")
    loss("empty_sum", u(0, 3), lit([], torch.int64), "sum")
    loss("f64", u(3, 4, dtype=f64), ints(3, hi=4), smoothing=0.1, tol=1e-12)


def soft_cross_entropy(group):
    def loss(suffix, logits, target, reduction="mean", smoothing=0.0, weight=None, **more):
        inputs = {"logits": logits, "target": target} | ({"weight": weight} if weight is not None else {})
        run = lambda x, t, w=None: F.cross_entropy(x, t, w, reduction=reduction, label_smoothing=smoothing)
        attrs = {
            "reduction": reduction,
            "label_smoothing": smoothing,
            "ignore_index": -100,
            "weight": weight is not None,
        }
        diff = ["logits", "target"]
        group.case("cross_entropy", f"soft_{suffix}", run, inputs, attrs, diff=diff, **more)

    shares = lambda *shape: lambda seed: torch.softmax(u(*shape)(seed), -1)
    for reduction in REDUCTIONS:
        loss(reduction, u(4, 6, lo=-4, hi=4), shares(4, 6), reduction)
        loss(f"smooth_{reduction}", u(4, 6, lo=-4, hi=4), shares(4, 6), reduction, smoothing=0.2)
        loss(f"weight_smooth_{reduction}", u(4, 6), shares(4, 6), reduction, smoothing=0.1, weight=u(6, lo=0.2, hi=2))
    loss("weight", u(4, 6), shares(4, 6), weight=u(6, lo=0.2, hi=2))
    loss("not_normalised", u(3, 4), u(3, 4, lo=0, hi=2))
    loss("one_row", u(1, 3), shares(1, 3))
    loss("one_class", u(3, 1), shares(3, 1))
    loss("empty_sum", u(0, 3), shares(0, 3), "sum")
    loss("f64", u(3, 4, dtype=f64), u(3, 4, lo=0, hi=1, dtype=f64), smoothing=0.1, tol=1e-12)


def nll(group):
    def loss(suffix, x, target, reduction="mean", ignore=-100, weight=None):
        inputs = {"log_probabilities": x, "target": target} | ({"weight": weight} if weight is not None else {})
        run = lambda x, t, w=None: F.nll_loss(x, t, w, ignore_index=ignore, reduction=reduction)
        group.case(
            "nll",
            suffix,
            run,
            inputs,
            {"reduction": reduction, "ignore_index": ignore, "weight": weight is not None},
            diff=["log_probabilities"],
        )

    for reduction in REDUCTIONS:
        loss(reduction, u(4, 10, lo=-4, hi=0), ints(4), reduction)
        loss(f"ignore_{reduction}", u(5, 3, lo=-4, hi=0), lit([0, 1, 2, -100, 0], torch.int64), reduction)
        loss(
            f"weight_ignore_{reduction}",
            u(6, 5, lo=-4, hi=0),
            lit([0, 4, 2, 2, 1, 3], torch.int64),
            reduction,
            ignore=2,
            weight=u(5, lo=0.2, hi=2),
        )
    loss("one_row", u(1, 3, lo=-4, hi=0), lit([2], torch.int64))


def binary(group):
    for op, fn, lo, hi in (
        ("binary_cross_entropy", F.binary_cross_entropy, 0.02, 0.98),
        ("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, -5, 5),
    ):

        def loss(suffix, x, target, reduction="mean", **more):
            group.case(
                op,
                suffix,
                lambda x, t: fn(x, t, reduction=reduction),
                {"x": x, "target": target},
                {"reduction": reduction, "weight": False, "pos_weight": False},
                diff=["x"],
                **more,
            )

        for reduction in REDUCTIONS:
            loss(reduction, u(5, 3, lo=lo, hi=hi), ints(5, 3, hi=2, dtype=torch.float32), reduction)
            loss(f"soft_{reduction}", u(7, lo=lo, hi=hi), u(7, lo=0, hi=1), reduction)
        loss("column", u(6, 1, lo=lo, hi=hi), ints(6, 1, hi=2, dtype=torch.float32))
        loss("one", u(1, 1, lo=lo, hi=hi), lit([[1.0]]))
        loss("empty_sum", u(0, 1, lo=lo, hi=hi), u(0, 1, lo=0, hi=1), "sum")
        loss("f64", u(4, lo=lo, hi=hi, dtype=f64), u(4, lo=0, hi=1, dtype=f64), tol=1e-12)
        ends = [0.0, 0.0, 1.0, 1.0, 0.5] if hi < 1 else [-200.0, -200.0, 200.0, 200.0, 0.0]
        # The logarithm is cut at -100, the gradient's denominator at 1e-12.
        loss("saturated_none", lit(ends), lit([0.0, 1.0, 0.0, 1.0, 1.0]), "none")


def binary_weighted(group):
    def loss(op, suffix, x, target, weight=None, pos_weight=None, reduction="mean", **more):
        inputs = {"x": x, "target": target}
        inputs |= {"weight": weight} if weight is not None else {}
        inputs |= {"pos_weight": pos_weight} if pos_weight is not None else {}

        def run(*args):
            given = dict(zip(inputs, args))
            options = {name: given[name] for name in ("weight", "pos_weight") if name in given}
            return getattr(F, op)(given["x"], given["target"], reduction=reduction, **options)

        attrs = {"reduction": reduction, "weight": weight is not None, "pos_weight": pos_weight is not None}
        group.case(op, suffix, run, inputs, attrs, diff=["x"], **more)

    logits = "binary_cross_entropy_with_logits"
    factors = lambda *shape: u(*shape, lo=0.2, hi=3)
    for reduction in REDUCTIONS:
        for op, lo, hi in (("binary_cross_entropy", 0.02, 0.98), (logits, -5, 5)):
            x, t = u(5, 3, lo=lo, hi=hi), u(5, 3, lo=0, hi=1)
            loss(op, f"weight_{reduction}", x, t, weight=factors(5, 3), reduction=reduction)
            loss(op, f"weight_columns_{reduction}", x, t, weight=factors(3), reduction=reduction)
        x, t = u(5, 3, lo=-5, hi=5), ints(5, 3, hi=2, dtype=torch.float32)
        loss(logits, f"pos_weight_{reduction}", x, t, pos_weight=factors(3), reduction=reduction)
        loss(logits, f"both_{reduction}", x, u(5, 3, lo=0, hi=1), factors(5, 1), factors(3), reduction)
    far = lit([-200.0, -200.0, 200.0, 200.0, 0.0]), lit([0.0, 1.0, 0.0, 1.0, 1.0])
    loss(logits, "pos_weight_saturated", *far, pos_weight=lit([2.0]), reduction="none")


def bent(group):
    for op, fn, name in (("smooth_l1", F.smooth_l1_loss, "beta"), ("huber", F.huber_loss, "delta")):

        def loss(suffix, x, target, bend=1.0, reduction="mean", **more):
            run = lambda x, t: fn(x, t, reduction=reduction, **{name: bend})
            group.case(op, suffix, run, {"x": x, "target": target}, {"reduction": reduction, name: bend}, **more)

        for reduction in REDUCTIONS:
            loss(f"matrix_{reduction}", u(4, 3), u(4, 3), reduction=reduction)
            loss(f"bend_{reduction}", u(4, 3), u(4, 3), 0.3, reduction)
        loss("size1", u(1), u(1), 2.5)
        loss("at_the_bend", lit([1.0, 2.0, 3.0, 0.0]), lit([0.0, 3.0, 3.0, 0.5]))
        loss("empty_sum", u(0, 2), u(0, 2), reduction="sum")
        loss("f64", u(3, 4, dtype=f64), u(3, 4, dtype=f64), 0.7, tol=1e-12)
    group.case(
        "smooth_l1",
        "beta_zero",
        lambda x, t: F.smooth_l1_loss(x, t, beta=0.0),
        {"x": u(4, 3), "target": u(4, 3)},
        {"reduction": "mean", "beta": 0.0},
    )


def regression(group):
    for op, fn in (("mse", F.mse_loss), ("l1", F.l1_loss)):
        for reduction in REDUCTIONS:
            for suffix, shape in (("matrix", (4, 3)), ("size1", (1,)), ("images", (2, 3, 2, 3))):
                group.case(
                    op,
                    f"{suffix}_{reduction}",
                    lambda x, t, r=reduction: fn(x, t, reduction=r),
                    {"x": u(*shape), "target": u(*shape)},
                    {"reduction": reduction},
                )
        group.case(
            op,
            "equal",
            lambda x, t: fn(x, t, reduction="mean"),
            {"x": lit([1.0, 2.0, 3.0]), "target": lit([1.0, 2.5, 3.0])},
            {"reduction": "mean"},
        )
        group.case(
            op,
            "empty_sum",
            lambda x, t: fn(x, t, reduction="sum"),
            {"x": u(0, 2), "target": u(0, 2)},
            {"reduction": "sum"},
        )
