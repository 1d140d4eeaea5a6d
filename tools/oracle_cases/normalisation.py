"""batch_norm. Inputs x, weight and bias (where "affine"), running_mean, running_var, num_batches_tracked;
outputs y and the three statistics afterwards. Only y is differentiated."""

import torch
import torch.nn.functional as F

from .vectors import Group, f32, f64, lit, u


def add(group: Group):
    def norm(
        suffix, x, training, affine=True, momentum=0.1, eps=1e-5, lo=-2.0, hi=2.0, dtype=f32, tol=1e-5, first=None
    ):
        channels = x[1]
        inputs = {"x": u(*x, lo=lo, hi=hi, dtype=dtype) if first is None else first}
        if affine:
            inputs |= {
                "weight": u(channels, lo=0.5, hi=1.5, dtype=dtype),
                "bias": u(channels, lo=-1, hi=1, dtype=dtype),
            }
        inputs |= {
            "running_mean": u(channels, lo=-1, hi=1, dtype=dtype),
            "running_var": u(channels, lo=0.5, hi=2, dtype=dtype),
            "num_batches_tracked": lit(7, torch.int64),
        }

        def run(x, *rest):
            weight, bias = rest[:2] if affine else (None, None)
            mean, var, batches = (t.clone() for t in rest[-3:])
            y = F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)
            return y, mean, var, batches + 1 if training else batches

        group.case(
            "batch_norm",
            suffix,
            run,
            inputs,
            {"training": training, "affine": affine, "momentum": momentum, "eps": eps},
            outputs=("y", "running_mean", "running_var", "num_batches_tracked"),
            diff=["x", "weight", "bias"] if affine else ["x"],
            tol=tol,
        )

    for mode, training in (("train", True), ("eval", False)):
        norm(f"4d_{mode}", (2, 3, 3, 5), training)
        norm(f"4d_no_affine_{mode}", (2, 3, 4, 2), training, affine=False)
        norm(f"4d_one_image_{mode}", (1, 5, 3, 3), training)
        norm(f"4d_one_channel_{mode}", (3, 1, 2, 3), training)
        norm(f"4d_1x1_{mode}", (4, 3, 1, 1), training)
        norm(f"2d_{mode}", (7, 5), training)
        norm(f"2d_no_affine_{mode}", (4, 3), training, affine=False)
        norm(f"3d_{mode}", (2, 3, 5), training)
        norm(f"momentum_eps_{mode}", (3, 2, 2, 2), training, momentum=0.4, eps=1e-3)
        norm(f"channels17_{mode}", (2, 17, 2, 2), training)
        norm(f"f64_{mode}", (2, 3, 2, 3), training, dtype=f64, tol=1e-12)
    norm("two_rows_train", (2, 3), True)
    norm("offset_train", (2, 3, 4, 4), True, lo=9.0, hi=11.0)
    norm("constant_channel_train", (2, 2, 2, 2), True, first=torch.full((2, 2, 2, 2), 0.75), tol=1e-4)
    norm("2d_one_row_eval", (1, 4), False)
    norm("empty_batch_eval", (0, 3, 2, 2), False)
